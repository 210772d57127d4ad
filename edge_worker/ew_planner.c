#include "edge_worker/ew_planner.h"

#include <pthread.h>
#include <sys/prctl.h>

#include "dispatch/planner/dp_replica.h"
#include "dispatch/planner/dp_setup.h"
#include "runtime/rt_queue.h"
#include "runtime/rt_thread.h"

// A message on its way in, and then the slice on its way out.
typedef struct {
    rt_message message;
    rt_status status; // of planning
    rt_error error;
} work;

struct ew_planner {
    dp_replica *replica; // the thread's
    rt_queue *in, *out;
    work *works; // work_count, a ring
    uint32_t work_count;
    uint64_t given, taken;
    pthread_t thread;
    bool running;
};

static void plan(ew_planner *planner, work *one)
{
    rt_message slice = {0};
    one->status = dp_replica_plan(planner->replica, &one->message, &slice, &one->error);
    rt_message_release(&one->message);
    one->message = slice;
}

static void *run(void *context)
{
    ew_planner *planner = context;
    void *item;
    prctl(PR_SET_NAME, "planner");
    while (rt_queue_take(planner->in, &item) == RT_OK) {
        plan(planner, item);
        const bool failed = ((const work *)item)->status != RT_OK; // it is the taker's from here on
        if (rt_queue_put(planner->out, item) || failed)
            break;
    }
    return NULL;
}

static rt_status create_replica(const ew_planner_config *config, dp_replica **replica_p,
                                rt_error *error)
{
    const rt_wire_welcome *welcome = config->welcome;
    const rt_schema schema = {.dense_count = welcome->dense_count,
                              .field_count = welcome->field_count,
                              .keys_per_sample_max = welcome->keys_per_sample_max};
    dp_planner_config planner;
    rt_config *run = rt_alloc(1, sizeof *run);
    if (!run)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the planner");
    *run = *config->config;
    run->cache.rows = welcome->slot_count; // however the coordinator came to it
    rt_config_keep_members(run, welcome->workers, welcome->shards_in);
    rt_status status = dp_setup(run, &schema, 0, &planner, error);
    if (!status)
        dp_setup_dense(run, welcome->dense_bytes, &planner);
    rt_free(run);
    if (status)
        return status;
    for (uint32_t j = 0; j < planner.worker_count; j++)
        planner.slot_count[j] = welcome->slot_count; // its overshoot was in there already
    planner.measure_error = config->config->sim_dispatch_error;
    const dp_replica_config replica = {.planner = &planner,
                                       .limits = config->limits,
                                       .tables = config->tables,
                                       .rank = config->rank,
                                       .sender = rt_peer(RT_ROLE_COORDINATOR, 0)};
    return dp_replica_create(&replica, replica_p, error);
}

static rt_status create_parts(ew_planner *planner, const ew_planner_config *config, rt_error *error)
{
    planner->work_count = config->welcome->run_ahead + 1; // the flush as well
    planner->works = rt_alloc(planner->work_count, sizeof *planner->works);
    const rt_status status = create_replica(config, &planner->replica, error);
    if (status)
        return status;
    if (!planner->works || rt_queue_create(planner->work_count, -1, &planner->in) ||
        rt_queue_create(planner->work_count, config->wake_fd, &planner->out))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the planner");
    if (rt_thread_start(&planner->thread, run, planner) != 0)
        return rt_fail(error, RT_LIMIT, "cannot start the planner's thread");
    planner->running = true;
    return RT_OK;
}

rt_status ew_planner_create(const ew_planner_config *config, ew_planner **planner_p,
                            rt_error *error)
{
    ew_planner *planner = rt_alloc(1, sizeof *planner);
    if (!planner)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the planner");
    const rt_status status = create_parts(planner, config, error);
    if (status) {
        ew_planner_destroy(planner);
        return status;
    }
    *planner_p = planner;
    return RT_OK;
}

void ew_planner_destroy(ew_planner *planner)
{
    if (!planner)
        return;
    if (planner->running) {
        rt_queue_close(planner->in);
        rt_queue_close(planner->out);
        pthread_join(planner->thread, NULL);
    }
    for (uint32_t i = 0; planner->works && i < planner->work_count; i++)
        rt_message_release(&planner->works[i].message);
    rt_queue_destroy(planner->in);
    rt_queue_destroy(planner->out);
    dp_replica_destroy(planner->replica);
    rt_free(planner->works);
    rt_free(planner);
}

rt_status ew_planner_give(ew_planner *planner, rt_message *batches, rt_error *error)
{
    if (planner->given - planner->taken == planner->work_count)
        return rt_fail(error, RT_WIRE, "coordinator: more than %u BATCH messages at once",
                       planner->work_count);
    work *one = &planner->works[planner->given++ % planner->work_count];
    *one = (work){.message = *batches};
    *batches = (rt_message){0};
    (void)rt_queue_put(planner->in, one); // it has room for all
    return RT_OK;
}

rt_status ew_planner_take(ew_planner *planner, rt_message *slice, rt_error *error)
{
    void *item;
    if (rt_queue_try_take(planner->out, &item))
        return RT_AGAIN;
    work *one = item;
    planner->taken++;
    *slice = one->message;
    one->message = (rt_message){0};
    if (one->status)
        *error = one->error;
    return one->status;
}

bool ew_planner_idle(const ew_planner *planner)
{
    return planner->given == planner->taken;
}
