#include "runtime/wire/rt_traffic.h"

#include "tests/support/test.h"

#define SHARD rt_peer(RT_ROLE_PS, 1)
#define WORKER rt_peer(RT_ROLE_WORKER, 2)
#define COORDINATOR rt_peer(RT_ROLE_COORDINATOR, 0)
#define VISITOR rt_peer(RT_ROLE_VISITOR, 77)

static uint64_t of(rt_role role, rt_cause cause)
{
    rt_traffic share;
    rt_traffic_share(role, &share);
    return share.bytes[cause];
}

// What two processes of a run exchange is in one of their shares.
static void a_link_is_of_one_share(void **state)
{
    (void)state;
    rt_traffic_begin();
    rt_traffic_count(RT_WAY_SENT, RT_MESSAGE_HANDED, WORKER, 1);
    rt_traffic_count(RT_WAY_RECEIVED, RT_MESSAGE_HANDED, WORKER, 20);
    rt_traffic_count(RT_WAY_SENT, RT_MESSAGE_PUSH_ROW, SHARD, 300);
    rt_traffic_count(RT_WAY_RECEIVED, RT_MESSAGE_ROWS, SHARD, 4000);
    rt_traffic_count(RT_WAY_SENT, RT_MESSAGE_REPORT, COORDINATOR, 50000);
    assert_int_equal(of(RT_ROLE_WORKER, RT_CAUSE_rows), 4301);
    assert_int_equal(of(RT_ROLE_WORKER, RT_CAUSE_reports), 0); // the coordinator has it
    assert_int_equal(of(RT_ROLE_COORDINATOR, RT_CAUSE_rows), 4321);
    assert_int_equal(of(RT_ROLE_PS, RT_CAUSE_rows), 0);
    rt_traffic_begin();
    assert_int_equal(of(RT_ROLE_COORDINATOR, RT_CAUSE_rows), 0);
}

// A message has the cause that the list of messages gives it; peers may be of any role, and types
// of any number.
static void causes_of_messages(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        rt_cause cause;
    } cases[] = {{RT_MESSAGE_PULL, RT_CAUSE_requests},
                 {RT_MESSAGE_PUSH_DELTA, RT_CAUSE_rows},
                 {RT_MESSAGE_GRADS, RT_CAUSE_gradients},
                 {RT_MESSAGE_DENSE_SUM_INT8, RT_CAUSE_dense},
                 {RT_MESSAGE_SLICE, RT_CAUSE_slices},
                 {RT_MESSAGE_DENSE_STATE, RT_CAUSE_dense_weights},
                 {RT_MESSAGE_REPORT, RT_CAUSE_reports},
                 {RT_MESSAGE_PIECE, RT_CAUSE_checkpoints},
                 {RT_MESSAGE_FETCHED, RT_CAUSE_versions},
                 {RT_MESSAGE_EVENTS, RT_CAUSE_feed},
                 {RT_MESSAGE_LOOKED_UP, RT_CAUSE_questions},
                 {RT_MESSAGE_PROBED, RT_CAUSE_probes},
                 {RT_MESSAGE_HEARTBEAT, RT_CAUSE_control}};
    rt_traffic_begin();
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++)
        rt_traffic_count(RT_WAY_SENT, cases[i].type, i % 2 ? VISITOR : UINT32_MAX, 10 + i);
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++)
        assert_int_equal(of(RT_ROLE_COORDINATOR, cases[i].cause), 10 + i);
    rt_traffic_count(RT_WAY_RECEIVED, UINT16_MAX, VISITOR, 5); // of no message: somewhere
}

// Parts of rows go from `rows` to their own causes, and the sum stays.
static void parts_of_rows(void **state)
{
    (void)state;
    rt_traffic share;
    rt_traffic_begin();
    rt_traffic_count(RT_WAY_RECEIVED, RT_MESSAGE_ROWS, SHARD, 1000);
    rt_traffic_split(RT_CAUSE_row_state, 300);
    rt_traffic_split(RT_CAUSE_first_rows, 100);
    rt_traffic_share(RT_ROLE_WORKER, &share);
    assert_int_equal(share.bytes[RT_CAUSE_rows], 600);
    assert_int_equal(share.bytes[RT_CAUSE_row_state], 300);
    assert_int_equal(share.bytes[RT_CAUSE_first_rows], 100);
    assert_int_equal(rt_traffic_bytes(&share), 1000);
    rt_traffic_split(RT_CAUSE_row_state, 5000); // told before its message was counted
    rt_traffic_share(RT_ROLE_WORKER, &share);
    assert_int_equal(rt_traffic_bytes(&share), 1000);
}

TEST_MAIN(TEST(a_link_is_of_one_share), TEST(causes_of_messages), TEST(parts_of_rows))
