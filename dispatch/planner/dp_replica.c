#include "dispatch/planner/dp_replica.h"

#include <inttypes.h>
#include <string.h>

// One being planned, one that comes; and cache.lookahead.
#define BATCHES 2u
#define BATCHES_MAX (BATCHES + DP_LOOKAHEAD_MAX)

struct dp_replica {
    dp_replica_config config;
    dp_broadcast_limits limits;
    rt_tables tables;
    dp_planner *planner;
    uint32_t ahead; // dp_planner_ahead
    rt_batch batches[BATCHES_MAX];
    uint32_t batch_count;
    uint64_t received, previewed, planned; // batches, from the first; each is a ring position
    uint64_t made;                         // slices
    bool ended;
};

rt_status dp_replica_create(const dp_replica_config *config, dp_replica **replica_p,
                            rt_error *error)
{
    dp_replica *replica = rt_alloc(1, sizeof *replica);
    if (!replica)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the planner");
    const dp_planner_config *planner = config->planner;
    replica->config = *config;
    replica->config.planner = NULL;
    replica->config.tables = NULL;
    if (config->tables)
        replica->tables = *config->tables;
    replica->ahead = dp_planner_ahead(planner);
    replica->limits = (dp_broadcast_limits){.dense_count = config->limits.dense_count,
                                            .more_labels = config->limits.more_labels,
                                            .field_count = config->limits.field_count,
                                            .sample_count_max = planner->sample_count_max,
                                            .keys_per_sample_max = planner->keys_per_sample_max};
    rt_status status = dp_planner_create(planner, &replica->planner, error);
    if (status) {
        rt_free(replica);
        return status;
    }
    replica->batch_count = BATCHES + replica->ahead;
    for (uint32_t i = 0; i < replica->batch_count; i++)
        rt_batch_init(&replica->batches[i], config->limits.dense_count);
    *replica_p = replica;
    return RT_OK;
}

void dp_replica_destroy(dp_replica *replica)
{
    if (!replica)
        return;
    for (uint32_t i = 0; i < replica->batch_count; i++)
        rt_batch_fini(&replica->batches[i]);
    dp_planner_destroy(replica->planner);
    rt_free(replica);
}

static rt_batch *batch_at(dp_replica *replica, uint64_t position)
{
    return &replica->batches[position % replica->batch_count];
}

// Records first: those of an iteration come with the batch that completes it.
static rt_status take_in(dp_replica *replica, const rt_message *message, rt_error *error)
{
    dp_broadcast_reader reader;
    rt_status status = dp_broadcast_begin(message, &replica->limits, &reader, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < reader.head.input_count; i++) {
        dp_input input;
        status = dp_broadcast_next_input(&reader, &input, error);
        if (status)
            return status;
        status = dp_planner_apply(replica->planner, &input, error);
        if (status)
            return status;
    }
    for (uint32_t i = 0; i < reader.head.batch_count; i++) {
        if (replica->ended || replica->received - replica->planned == replica->batch_count)
            return rt_fail(error, RT_WIRE, "coordinator: a BATCH that is too early");
        rt_batch *batch = batch_at(replica, replica->received);
        status = dp_broadcast_next_batch(&reader, batch, error);
        if (status)
            return status;
        if (rt_tables_fold(&replica->tables, batch))
            return rt_fail(error, RT_NO_MEMORY, "out of memory for a batch");
        replica->received++;
    }
    if (reader.reader.left)
        return rt_fail(error, RT_WIRE, "coordinator: bytes after a BATCH");
    replica->ended |= reader.head.flags & DP_BROADCAST_END;
    return RT_OK;
}

static rt_status plan_one(dp_planner *planner, rt_batch *batch, const dp_plan **plan_p)
{
    uint32_t refused;
    rt_status status = dp_planner_admit(planner, batch, &refused);
    if (status)
        return status;
    status = dp_planner_look_up(planner, batch);
    if (status)
        return status;
    dp_planner_place(planner);
    return dp_planner_commit(planner, plan_p);
}

// As dp_feed's planner thread does: a batch is planned once cache.lookahead batches behind it were
// shown, or the input has ended.
static rt_status plan_next(dp_replica *replica, const dp_plan **plan_p, rt_error *error)
{
    dp_planner *planner = replica->planner;
    rt_batch *batch = batch_at(replica, replica->planned);
    while (replica->previewed < replica->received &&
           replica->previewed <= replica->planned + replica->ahead) {
        if (dp_planner_preview(planner, batch_at(replica, replica->previewed++)))
            return rt_fail(error, RT_NO_MEMORY, "out of memory for a batch that is ahead");
    }
    if (replica->planned == replica->received)
        return rt_fail(error, RT_WIRE, "coordinator: a BATCH message without the batch");
    const rt_status status = plan_one(planner, batch, plan_p);
    replica->planned++;
    if (status)
        return rt_fail(error, status, "planning failed: %s", rt_status_text(status));
    return RT_OK;
}

static rt_status plan_flush(dp_replica *replica, const dp_plan **plan_p, rt_error *error)
{
    const rt_status status = dp_planner_flush(replica->planner, plan_p);
    if (status)
        return rt_fail(error, status, "planning failed: %s", rt_status_text(status));
    return RT_OK;
}

static rt_status emit(dp_replica *replica, const dp_plan *plan, const rt_batch *batch,
                      rt_message *slice, rt_error *error)
{
    const dp_replica_config *config = &replica->config;
    rt_status status = dp_slice_encode(plan, config->rank, batch, &config->limits, config->sender,
                                       ++replica->made, slice);
    if (status)
        return rt_fail(error, status, "out of memory for a slice");
    dp_slice_set_fingerprint(slice, batch ? dp_plan_fingerprint(plan) : 0);
    return RT_OK;
}

rt_status dp_replica_plan(dp_replica *replica, const rt_message *batches, rt_message *slice,
                          rt_error *error)
{
    uint64_t sequence = rt_message_header(batches)->iteration;
    if (sequence != replica->made + 1)
        return rt_fail(error, RT_WIRE,
                       "coordinator: a BATCH for slice %" PRIu64 ", expected one for %" PRIu64,
                       sequence, replica->made + 1);
    rt_status status = take_in(replica, batches, error);
    if (status)
        return status;
    const dp_plan *plan;
    const rt_batch *batch = NULL;
    if (replica->planned < replica->received || !replica->ended)
        batch = batch_at(replica, replica->planned);
    status = batch ? plan_next(replica, &plan, error) : plan_flush(replica, &plan, error);
    if (status)
        return status;
    return emit(replica, plan, batch, slice, error);
}
