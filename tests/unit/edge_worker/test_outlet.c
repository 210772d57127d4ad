// Messages on their way to one partner: in order, however often the transport is full, and no more
// of them than credits allow.
#include "edge_worker/executor/ew_outlet.h"

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

enum { SENT_MAX = 6000, TO = 4 };

typedef struct {
    uint32_t room; // messages that are taken before it is full
    rt_status says;
    uint32_t count;
    uint64_t sent[SENT_MAX];
} wire;

static rt_status take(void *context, uint32_t partner, rt_message *message)
{
    wire *w = context;
    assert_int_equal(partner, TO);
    if (w->says)
        return w->says;
    if (w->room == 0)
        return RT_AGAIN;
    w->room--;
    assert_true(w->count < SENT_MAX);
    w->sent[w->count++] = rt_message_header(message)->iteration;
    rt_message_release(message);
    return RT_OK;
}

static void put(ew_outlet *outlet, uint64_t number)
{
    rt_message message;
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_PUSHED, 0, number, 0, 0), RT_OK);
    assert_int_equal(ew_outlet_put(outlet, &message), RT_OK);
    assert_null(message.data);
}

// Puts and flushes in any order, with any room and any number of credits.
static void messages_leave_in_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        const bool counted = seed % 2;
        wire w = {.room = 0};
        rt_random random = {seed};
        ew_outlet outlet = {.credits = 3, .counted = counted};
        uint64_t number = 0;
        uint32_t credits = 3;
        for (uint32_t op = 0; op < 2000; op++) {
            const uint32_t what = rt_random_below(&random, 10);
            if (what < (op / 200 % 2 ? 3 : 6)) {
                put(&outlet, number++);
                assert_int_equal(outlet.count, number - w.count);
                continue;
            }
            if (what == 9 && counted) {
                outlet.credits++;
                credits++;
            }
            const uint32_t before = w.count, waits = outlet.count;
            const uint32_t room = rt_random_below(&random, 6);
            w.room = room;
            assert_int_equal(ew_outlet_flush(&outlet, take, &w, TO), RT_OK);
            uint32_t want = room < waits ? room : waits;
            want = counted && want > credits ? credits : want;
            assert_int_equal(w.count - before, want);
            credits -= counted ? want : 0;
            assert_int_equal(outlet.credits, credits);
            assert_int_equal(outlet.count, number - w.count);
        }
        for (uint32_t i = 0; i < w.count; i++)
            assert_int_equal(w.sent[i], i);
        assert_true(w.count > 150);
        assert_true(outlet.capacity <= 1024); // room is used again
        ew_outlet_fini(&outlet);
        assert_true(!outlet.messages && outlet.count == 0);
    }
}

static void a_broken_link_is_told(void **state)
{
    (void)state;
    wire w = {.says = RT_PEER};
    ew_outlet outlet = {.counted = false};
    assert_int_equal(ew_outlet_flush(&outlet, take, &w, TO), RT_OK); // nothing to send
    put(&outlet, 1);
    assert_int_equal(ew_outlet_flush(&outlet, take, &w, TO), RT_PEER);
    assert_int_equal(outlet.count, 1);
    w = (wire){.room = 1};
    assert_int_equal(ew_outlet_flush(&outlet, take, &w, TO), RT_OK);
    assert_true(w.count == 1 && w.sent[0] == 1);
    ew_outlet_fini(&outlet);
}

TEST_MAIN(TEST(messages_leave_in_order), TEST(a_broken_link_is_told))
