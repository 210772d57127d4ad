// A worker that plans for itself makes the coordinator's slices, byte for byte.
#include "dispatch/planner/dp_replica.h"
#include "runtime/config/rt_policies.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/crossed.h"
#include "tests/support/planner_case.h"
#include "tests/support/test.h"

#define COORDINATOR rt_peer(RT_ROLE_COORDINATOR, 0)
#define SAMPLES 12u

typedef struct {
    planner_case pc;
    dp_broadcast broadcast;
    uint32_t sent; // batches
    uint64_t sequence;
    dp_replica *replicas[4];
} rig;

static dp_slice_limits limits_of(const rig *r, uint32_t worker)
{
    const dp_planner_config *config = &r->pc.config;
    uint32_t samples = dp_planner_micro_batch_max(config);
    return (dp_slice_limits){.field_count = config->layout.field_count,
                             .worker_count = config->worker_count,
                             .batch_samples = config->sample_count_max,
                             .sample_count_max = samples,
                             .lookup_count_max = samples * config->keys_per_sample_max,
                             .slot_count = config->slot_count[worker]};
}

static dp_replica *replica_of(const rig *r, uint32_t worker)
{
    dp_replica *replica;
    rt_error error = {0};
    const dp_replica_config config = {.planner = &r->pc.config,
                                      .limits = limits_of(r, worker),
                                      .rank = worker,
                                      .sender = COORDINATOR};
    if (dp_replica_create(&config, &replica, &error))
        fail_msg("%s", error.text);
    return replica;
}

static void setup(rig *r, uint32_t i)
{
    const planner_shape shape = {.seed = i,
                                 .worker_count = 1 + i % 4,
                                 .sample_count_max = SAMPLES,
                                 .field_count = 3,
                                 .ids_per_field = 40,
                                 .bag_max = 1 + i % 2,
                                 .zipf = 0.8,
                                 .cache = CACHE_MIDDLE,
                                 .eviction = (rt_eviction_kind)crossed(i, 1, RT_EVICT_COUNT),
                                 .lookahead = i % 5 == 4 ? 33 : i % 5,
                                 .dispatch = {.policy = (rt_policy_kind)(i / 2 % RT_POLICY_COUNT),
                                              .alpha = 0.5,
                                              .window = i % 3 ? 1 : i % 5 + 1,
                                              .search_evaluations = 500}};
    memset(r, 0, sizeof *r);
    planner_case_init(&r->pc, &shape);
    for (uint32_t w = 0; w < shape.worker_count; w++)
        r->replicas[w] = replica_of(r, w);
}

static void cleanup(rig *r)
{
    for (uint32_t w = 0; w < r->pc.shape.worker_count; w++)
        dp_replica_destroy(r->replicas[w]);
    dp_broadcast_fini(&r->broadcast);
    planner_case_fini(&r->pc);
}

// A record now and then, as controllers give them: for the next look-up.
static void maybe_tell(rig *r)
{
    rt_random *random = &r->pc.random;
    rt_error error = {0};
    dp_input input = {.kind = rt_random_below(random, 2) ? DP_INPUT_ALPHA : DP_INPUT_LINK_UP};
    if (rt_random_below(random, 3))
        return;
    if (input.kind == DP_INPUT_LINK_UP)
        input.worker = rt_random_below(random, r->pc.shape.worker_count);
    input.value = input.kind == DP_INPUT_ALPHA ? 0.25 * rt_random_below(random, 5)
                                               : 1e7 * (1 + rt_random_below(random, 90));
    if (dp_planner_apply(r->pc.planner, &input, &error))
        fail_msg("%s", error.text);
    assert_int_equal(dp_broadcast_add_input(&r->broadcast, &input), RT_OK);
}

// Plans one batch of the planner_case; what it read goes into the next message.
static void plan(rig *r)
{
    planner_case *pc = &r->pc;
    maybe_tell(r);
    planner_case_look_up(pc, 1 + rt_random_below(&pc->random, SAMPLES));
    while (r->sent < pc->iteration + pc->ahead_count) {
        uint32_t at = r->sent++ - (pc->iteration - 1);
        const rt_batch *batch = at ? &pc->ahead[at - 1] : &pc->batch;
        assert_int_equal(dp_broadcast_add_batch(&r->broadcast, batch), RT_OK);
    }
    planner_case_commit(pc);
}

static void compare(rig *r, bool end)
{
    const dp_plan *made = r->pc.plan;
    const rt_batch *batch = made->iteration ? &r->pc.batch : NULL;
    rt_message batches, expected, slice = {0};
    rt_error error = {0};
    r->sequence++;
    assert_int_equal(dp_broadcast_take(&r->broadcast, COORDINATOR, r->sequence, end, &batches),
                     RT_OK);
    for (uint32_t w = 0; w < r->pc.shape.worker_count; w++) {
        const dp_slice_limits limits = limits_of(r, w);
        if (dp_replica_plan(r->replicas[w], &batches, &slice, &error))
            fail_msg("seed %d, slice %d: %s", (int)r->pc.shape.seed, (int)r->sequence, error.text);
        assert_int_equal(
            dp_slice_encode(made, w, batch, &limits, COORDINATOR, r->sequence, &expected), RT_OK);
        dp_slice_set_fingerprint(&expected, batch ? dp_plan_fingerprint(made) : 0);
        assert_int_equal(expected.size, dp_slice_bytes(made, w, batch, &limits));
        assert_int_equal(slice.size, expected.size);
        assert_memory_equal(slice.data, expected.data, slice.size);
        rt_message_release(&slice);
        rt_message_release(&expected);
    }
    rt_message_release(&batches);
}

static void replicas_plan_alike(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 60; i++) {
        rig r;
        setup(&r, i);
        for (uint32_t t = 0; t < 40; t++) {
            plan(&r);
            compare(&r, false);
        }
        // The batches that were only shown are dropped: an end is where the input ends.
        if (r.pc.shape.lookahead == 0) {
            planner_case_flush(&r.pc);
            compare(&r, true);
        }
        cleanup(&r);
    }
}

// The message of the first iteration, complete with a record.
static rt_message first_message(rig *r)
{
    rt_message message;
    setup(r, 20); // no look-ahead, ESD
    dp_input input = {.kind = DP_INPUT_ALPHA, .value = 1};
    rt_error error;
    assert_int_equal(dp_planner_apply(r->pc.planner, &input, &error), RT_OK);
    assert_int_equal(dp_broadcast_add_input(&r->broadcast, &input), RT_OK);
    plan(r);
    assert_int_equal(dp_broadcast_take(&r->broadcast, COORDINATOR, 1, false, &message), RT_OK);
    return message;
}

static rt_status plan_fresh(const rig *r, const rt_message *message)
{
    rt_message slice = {0};
    rt_error error = {0};
    dp_replica *replica = replica_of(r, 0);
    rt_status status = dp_replica_plan(replica, message, &slice, &error);
    assert_int_equal(error.status, status);
    rt_message_release(&slice);
    dp_replica_destroy(replica);
    return status;
}

static rt_message copy_of(const rt_message *message, size_t size)
{
    uint8_t *data = malloc(size);
    memcpy(data, message->data, size < message->size ? size : message->size);
    return (rt_message){data, size, free, data};
}

static void every_length_is_checked(void **state)
{
    (void)state;
    rig r;
    rt_message good = first_message(&r);
    assert_int_equal(plan_fresh(&r, &good), RT_OK);
    for (size_t size = sizeof(rt_wire_header); size < good.size; size += 4) {
        rt_message cut = copy_of(&good, size);
        assert_int_equal(plan_fresh(&r, &cut), RT_WIRE);
        rt_message_release(&cut);
    }
    rt_message longer = copy_of(&good, good.size + 8);
    assert_int_equal(plan_fresh(&r, &longer), RT_WIRE);
    rt_message_release(&longer);
    rt_message_release(&good);
    cleanup(&r);
}

// Whatever 32 bits are changed, the message is refused or planned; nothing else happens (which the
// sanitizers watch). What is no sample's label is refused.
static void every_word_is_checked(void **state)
{
    (void)state;
    rig r;
    rt_message good = first_message(&r);
    uint32_t refused = 0, words = 0;
    for (size_t at = sizeof(rt_wire_header); at + 4 <= good.size; at += 4, words++) {
        static const uint32_t values[] = {0, 1, 0x7fffffffu, UINT32_MAX};
        for (size_t i = 0; i < RT_COUNT_OF(values); i++) {
            rt_message bad = copy_of(&good, good.size);
            memcpy(bad.data + at, &values[i], 4);
            rt_status status = plan_fresh(&r, &bad);
            assert_true(status == RT_OK || status == RT_WIRE || status == RT_CONFIG);
            refused += status != RT_OK;
            rt_message_release(&bad);
        }
    }
    assert_true(refused > words / 2);
    rt_message_release(&good);
    cleanup(&r);
}

static void the_order_is_checked(void **state)
{
    (void)state;
    rig r;
    rt_message good = first_message(&r), slice = {0};
    rt_error error = {0};
    rt_message_header(&good)->iteration = 2;
    assert_int_equal(plan_fresh(&r, &good), RT_WIRE);
    rt_message_header(&good)->iteration = 1;
    assert_int_equal(dp_replica_plan(r.replicas[0], &good, &slice, &error), RT_OK);
    rt_message_release(&slice);
    assert_int_equal(dp_replica_plan(r.replicas[0], &good, &slice, &error), RT_WIRE);
    rt_message_release(&good);
    cleanup(&r);
}

TEST_MAIN(TEST(replicas_plan_alike), TEST(every_length_is_checked), TEST(every_word_is_checked),
          TEST(the_order_is_checked))
