// Rates from transfers over simulated links: a token bucket and a delay each way, and a clock of
// its own at the other end, all in virtual time. What the link's rate is, the simulation knows.
#include "bandwidth_probe/bw_passive.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define MBIT 0.125 // bytes/us

// One direction of a link, first in, first out.
typedef struct {
    double rate; // bytes/us
    double bucket_max, bucket, at_us;
    double latency_us;
} wire;

static wire wire_of(double mbit)
{
    double bucket = mbit * MBIT * 4000 > 65536 ? mbit * MBIT * 4000 : 65536;
    return (wire){.rate = mbit * MBIT, .bucket_max = bucket, .bucket = bucket, .latency_us = 100};
}

static void refill(wire *w, double now_us)
{
    w->bucket += (now_us - w->at_us) * w->rate;
    w->bucket = w->bucket < w->bucket_max ? w->bucket : w->bucket_max;
    w->at_us = now_us;
}

// When a message handed over at now_us is at the other end. Messages are handed over in order.
static double pass(wire *w, double now_us, double bytes)
{
    if (now_us > w->at_us)
        refill(w, now_us);
    const double lacks = bytes - w->bucket;
    w->bucket = lacks > 0 ? 0 : w->bucket - bytes;
    w->at_us += lacks > 0 ? lacks / w->rate : 0;
    return w->at_us + w->latency_us;
}

typedef struct {
    bw_passive passive;
    wire up, down;
    uint64_t shard_offset_us; // its clock less the worker's
    double shard_drift;       // seconds per second
    double now_us;
    rt_random random;
} rig;

static void rig_init(rig *r, double mbit_up, double mbit_down)
{
    *r = (rig){.up = wire_of(mbit_up), .down = wire_of(mbit_down), .random = {11}};
    r->shard_offset_us = UINT64_C(0x7fff0000); // its stamps soon start from 0 again
    r->now_us = 1e6;
    memset(&r->passive, 0xa5, sizeof r->passive); // whatever was there
    bw_passive_init(&r->passive);
}

static uint32_t shard_stamp(const rig *r, double us, bool prompt)
{
    const double there = us * (1 + r->shard_drift);
    return bw_stamp(((uint64_t)there + r->shard_offset_us) * 1000, prompt);
}

// Pushes handed over together; their confirmations come back much later, in one go.
static void push(rig *r, uint32_t count, double bytes, bool prompt)
{
    double arrived[BW_PASSIVE_PUSHES_MAX];
    for (uint32_t i = 0; i < count; i++) {
        bw_passive_sent(&r->passive, 0, (uint64_t)bytes, true, (uint64_t)r->now_us);
        arrived[i] = pass(&r->up, r->now_us, bytes);
    }
    if (count)
        r->now_us = arrived[count - 1] + 30000;
    for (uint32_t i = 0; i < count; i++)
        bw_passive_confirmed(&r->passive, 0, shard_stamp(r, arrived[i], prompt),
                             (uint64_t)r->now_us);
}

static void pull(rig *r, uint32_t count, double bytes, bool prompt)
{
    const double handed = r->now_us;
    for (uint32_t i = 0; i < count; i++) {
        r->now_us = pass(&r->down, handed, bytes);
        bw_passive_received(&r->passive, 0, (uint64_t)bytes, shard_stamp(r, handed, true),
                            (uint64_t)r->now_us, prompt);
    }
}

static void idle(rig *r, double us)
{
    r->now_us += us;
}

static void expect_rate(rig *r, bw_way way, double mbit, double tolerance)
{
    const double rate = bw_passive_estimate(&r->passive, way);
    if (mbit == 0)
        assert_true(rate == 0);
    else
        test_close(rate * 8e-6, mbit, tolerance, 0, way == BW_UP ? "Mbit/s up" : "Mbit/s down");
}

// From 20 Mbit/s to 5 Gbit/s, each way on its own, after pauses that fill the bucket again.
static void busy_links_are_measured(void **state)
{
    (void)state;
    static const double rates[][2] = {{20, 50}, {200, 20}, {500, 2000}, {5000, 5000}};
    for (size_t i = 0; i < RT_COUNT_OF(rates); i++) {
        rig r;
        rig_init(&r, rates[i][0], rates[i][1]);
        push(&r, 1, 2000, true); // something quick: the latency is known
        pull(&r, 1, 2000, true);
        for (uint32_t t = 0; t < 12; t++) {
            idle(&r, 50000);
            push(&r, rates[i][0] > 1000 ? 48 : 8, 262144, true);
            idle(&r, 50000);
            pull(&r, rates[i][1] > 1000 ? 200 : 8, 262144, true);
        }
        expect_rate(&r, BW_UP, rates[i][0], 0.03);
        expect_rate(&r, BW_DOWN, rates[i][1], 0.03);
        expect_rate(&r, BW_UP, 0, 0); // each byte counts once
    }
}

// An application that uses a fast link a little, however regularly, says nothing about it.
static void idle_applications_say_nothing(void **state)
{
    (void)state;
    static const double bytes[] = {100, 4000, 65536, 262144};
    for (size_t i = 0; i < RT_COUNT_OF(bytes); i++) {
        rig r;
        rig_init(&r, 200, 200);
        for (uint32_t t = 0; t < 3000; t++) {
            const double busy_us = bytes[i] / (200 * MBIT);
            push(&r, 1, bytes[i], true);
            pull(&r, 1, bytes[i], true);
            idle(&r, busy_us * (1 + rt_random_unit(&r.random)));
        }
        expect_rate(&r, BW_UP, 0, 0);
        expect_rate(&r, BW_DOWN, 0, 0);
    }
}

// Too little to fill the link, but more than a link of a tenth could have moved in that time. Never
// more than the link has.
static void quick_messages_bound_the_rate(void **state)
{
    (void)state;
    static const double rates[] = {20, 50, 200, 1000, 5000};
    static const double bytes[] = {100000, 262144, 1 << 20, 4 << 20};
    for (size_t i = 0; i < RT_COUNT_OF(rates); i++) {
        for (size_t k = 0; k < RT_COUNT_OF(bytes); k++) {
            rig r;
            rig_init(&r, rates[i], rates[i]);
            push(&r, 1, 2000, true);
            pull(&r, 1, 2000, true);
            bw_passive_at_least(&r.passive, BW_UP);
            bw_passive_at_least(&r.passive, BW_DOWN);
            idle(&r, 100000);
            push(&r, 1, bytes[k], true);
            idle(&r, 100000);
            pull(&r, 1, bytes[k], true);
            for (bw_way way = 0; way < BW_WAYS; way++) {
                const double least = bw_passive_at_least(&r.passive, way) * 8e-6;
                assert_true(least <= 1.03 * rates[i]);
                if (bytes[k] > 200000 && bytes[k] >= rates[i] * MBIT * 40000) // 40 ms
                    assert_true(least >= 0.5 * rates[i]);
                assert_true(bw_passive_at_least(&r.passive, way) == 0);
            }
        }
    }
}

// Messages that go out one by one, at half the rate of the link, with the worker waiting between
// them: the time between them is not the link's. Ten minutes, and a clock that loses 150 ppm.
static void a_slow_sender_is_no_slow_link(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 100, 100);
    r.shard_drift = -150e-6;
    for (uint32_t t = 0; t < 32000; t++) {
        const double bytes = 20000 + 200000 * rt_random_unit(&r.random);
        const double begin = r.now_us;
        const double arrived = pass(&r.down, begin, bytes);
        bw_passive_received(&r.passive, 0, (uint64_t)bytes, shard_stamp(&r, begin, true),
                            (uint64_t)arrived, true);
        r.now_us = begin + 2 * bytes / (100 * MBIT);
    }
    expect_rate(&r, BW_DOWN, 0, 0);
}

// A receiver that is busy with other things takes messages long after they came, at its own pace.
static void a_slow_receiver_is_no_slow_link(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 200, 200);
    for (uint32_t t = 0; t < 50; t++) {
        const double handed = r.now_us;
        for (uint32_t i = 0; i < 10; i++) {
            const double arrived = pass(&r.down, handed, 262144);
            const bool prompt = i < 5; // the others are not waited for
            const double taken = prompt ? arrived : r.now_us + 200000;
            r.now_us = taken > arrived ? taken : arrived;
            bw_passive_received(&r.passive, 0, 262144, shard_stamp(&r, handed, true),
                                (uint64_t)r.now_us, prompt);
        }
        push(&r, 8, 262144, false);
        idle(&r, 30000);
    }
    expect_rate(&r, BW_UP, 0, 0);
    expect_rate(&r, BW_DOWN, 200, 0.03);
}

// A machine too busy to take messages when they come: a third of them are late by up to 40 ms, the
// first of a stretch always, and those behind are not taken before.
static void late_arrivals_do_not_count(void **state)
{
    (void)state;
    static const double rates[] = {20, 200, 500};
    for (size_t i = 0; i < RT_COUNT_OF(rates); i++) {
        rig r;
        rig_init(&r, 1000, rates[i]);
        pull(&r, 1, 2000, true);
        for (uint32_t t = 0; t < 40; t++) {
            const double handed = r.now_us;
            double taken = 0;
            for (uint32_t k = 0; k < 24; k++) {
                const double arrived = pass(&r.down, handed, rates[i] * 2000);
                const bool late = k == 0 || rt_random_below(&r.random, 3) == 0;
                const double at = arrived + (late ? 40000 * rt_random_unit(&r.random) : 50);
                taken = at > taken ? at : taken + 20;
                bw_passive_received(&r.passive, 0, (uint64_t)(rates[i] * 2000),
                                    shard_stamp(&r, handed, true), (uint64_t)taken, true);
            }
            r.now_us = taken + 20000;
            const double rate = bw_passive_estimate(&r.passive, BW_DOWN);
            if (t > 0)
                test_close(rate * 8e-6, rates[i], 0.1, 0, "Mbit/s");
        }
    }
}

// While the way down is full, what acknowledges the way up waits, and TCP sends less than the link
// carries: only what passes beside an idle way down counts. A link that is slower from then on
// shows once the way down has a pause.
static void a_full_way_does_not_slow_the_other(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 100, 20);
    push(&r, 1, 2000, true);
    pull(&r, 1, 2000, true);
    for (uint32_t t = 0; t < 60; t++) {
        const double carried = t < 40 ? 100 : 30;
        r.up.rate = carried * MBIT;
        push(&r, 8, 262144, true);
        const double alone = bw_passive_estimate(&r.passive, BW_UP) * 8e-6;
        test_close(alone, carried, t == 40 ? 0.5 : 0.03, 0, "Mbit/s beside an idle way");
        r.up.rate = 25 * MBIT;
        idle(&r, 100000);
        const double handed = r.now_us;
        pull(&r, 8, 262144, true);
        const double over = r.now_us;
        r.now_us = handed; // at the same time
        push(&r, 6, 262144, true);
        r.now_us = over > r.now_us ? over : r.now_us;
        assert_true(t == 0 || t >= 40 || bw_passive_estimate(&r.passive, BW_UP) == 0);
        bw_passive_estimate(&r.passive, BW_UP); // takes what there may be
        idle(&r, 100000);
    }
    expect_rate(&r, BW_DOWN, 20, 0.03);
}

// Pushes on their way, of which nobody knows yet how long they take, fill the way up: what the way
// down carries beside them does not count, as it has shown to carry more.
static void waiting_pushes_hold_up_the_way_down(void **state)
{
    (void)state;
    for (uint32_t waits = 0; waits < 2; waits++) {
        rig r;
        rig_init(&r, 25, 25);
        push(&r, 1, 2000, true);
        pull(&r, 1, 2000, true);
        bw_passive_probed(&r.passive, BW_DOWN, 100 * MBIT * 1e6);
        idle(&r, 100000);
        if (waits)
            bw_passive_sent(&r.passive, 0, 262144, true, (uint64_t)r.now_us);
        pull(&r, 8, 262144, true);
        expect_rate(&r, BW_DOWN, waits ? 0 : 25, 0.03);
    }
}

// Both ways full all the time, on a link that drops to a tenth: it shows soon, for both read slow.
static void a_link_that_drops_shows_under_load(void **state)
{
    (void)state;
    rig r;
    uint32_t seen[BW_WAYS] = {0};
    rig_init(&r, 500, 500);
    bw_passive_probed(&r.passive, BW_UP, 500 * MBIT * 1e6);
    bw_passive_probed(&r.passive, BW_DOWN, 500 * MBIT * 1e6);
    push(&r, 1, 2000, true);
    pull(&r, 1, 2000, true);
    r.up.rate = r.down.rate = 50 * MBIT;
    for (uint32_t t = 0; t < 8; t++) {
        const double handed = r.now_us;
        pull(&r, 8, 262144, true);
        const double over = r.now_us;
        r.now_us = handed; // at the same time
        push(&r, 8, 262144, true);
        r.now_us = over > r.now_us ? over : r.now_us;
        idle(&r, 100000);
        for (bw_way way = 0; way < BW_WAYS; way++) {
            const double rate = bw_passive_estimate(&r.passive, way) * 8e-6;
            if (rate > 0)
                test_close(rate, 50, 0.03, 0, "Mbit/s");
            seen[way] += rate > 0;
        }
    }
    assert_true(seen[BW_UP] >= 6 && seen[BW_DOWN] >= 6);
}

// What a probe read tells that from the first transfer on. Only what does not count again and again
// counts in the end, as the link may have become slower.
static void a_probe_tells_what_a_way_carries(void **state)
{
    (void)state;
    rig r;
    uint32_t counted = 0;
    rig_init(&r, 25, 20);
    push(&r, 1, 2000, true);
    pull(&r, 1, 2000, true);
    bw_passive_probed(&r.passive, BW_UP, 100 * MBIT * 1e6);
    for (uint32_t t = 0; t < 40; t++) {
        const double handed = r.now_us;
        pull(&r, 8, 262144, true);
        const double over = r.now_us;
        r.now_us = handed; // at the same time
        push(&r, 6, 262144, true);
        r.now_us = over > r.now_us ? over : r.now_us;
        const bool counts = bw_passive_estimate(&r.passive, BW_UP) > 0;
        assert_true(t >= 8 || !counts);
        counted += counts;
        idle(&r, 100000);
    }
    assert_true(counted > 0);
}

// What went before a push was handed over earlier, and may have arrived long ago.
static void what_went_before_a_push_is_not_quick(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 20, 20);
    push(&r, 1, 2000, true);
    for (uint32_t t = 0; t < 40; t++) {
        bw_passive_sent(&r.passive, 0, 1 << 20, false, (uint64_t)r.now_us);
        r.now_us = pass(&r.up, r.now_us, 1 << 20) + 30000;
        push(&r, 1, 2000, true);
        assert_true(bw_passive_at_least(&r.passive, BW_UP) <= 20e6 / 8);
    }
}

// On a link on which every push waits behind other bytes none is quick. A probe has told how long a
// quick one takes; and what clocks may have drifted since then is in doubt.
static void a_busy_link_is_not_quick(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 50, 50);
    bw_passive_timed(&r.passive, 0, BW_UP, (int64_t)r.shard_offset_us + 100, (uint64_t)r.now_us);
    double most = 0;
    for (uint32_t t = 0; t < 3000; t++) {
        bw_passive_sent(&r.passive, 0, 150000, false, (uint64_t)r.now_us);
        pass(&r.up, r.now_us, 150000);
        push(&r, 1, 60000, true);
        const double least = bw_passive_at_least(&r.passive, BW_UP) * 8e-6;
        assert_true(least <= 50);
        most = most < least ? least : most;
        idle(&r, 100000);
    }
    assert_true(most > 20); // it says something nevertheless
}

// A link that drops to a tenth and recovers, and clocks that differ by 50 ppm, for ten minutes.
static void changes_show_at_once(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 200, 200);
    r.shard_drift = 50e-6;
    push(&r, 1, 2000, true);
    for (uint32_t t = 0; t < 1200; t++) {
        const double mbit = t / 100 % 2 ? 20 : 200;
        r.up.rate = mbit * MBIT;
        push(&r, 1, 2000, true);
        push(&r, 8, 262144, true);
        idle(&r, 400000);
        if (t > 0) {
            const double rate = bw_passive_estimate(&r.passive, BW_UP);
            if (rate > 0 && t % 100 > 1)
                test_close(rate * 8e-6, mbit, 0.06, 0, "Mbit/s after a change");
            assert_true(t % 100 != 2 || rate > 0);
        }
    }
    assert_true(r.now_us > 600e6);
}

// What a worker exchanges with a shard on its own box says nothing of its link.
static void what_passes_no_link_says_nothing(void **state)
{
    (void)state;
    for (uint32_t local = 0; local < 2; local++) {
        rig r;
        rig_init(&r, 200, 200);
        r.passive.local = local; // shard 0
        push(&r, 1, 2000, true);
        for (uint32_t t = 0; t < 20; t++) {
            push(&r, 8, 262144, true);
            pull(&r, 8, 262144, true);
        }
        assert_int_equal(bw_passive_estimate(&r.passive, BW_UP) > 0, local == 0);
        assert_int_equal(bw_passive_estimate(&r.passive, BW_DOWN) > 0, local == 0);
        assert_true(local == 0 || bw_passive_at_least(&r.passive, BW_UP) <= 0);
    }
}

// Clocks that nobody sets right differ by half an hour after a year; times on the wire start from 0
// again 880 times.
static void clocks_may_part_for_long(void **state)
{
    (void)state;
    const double day_us = 86400e6;
    for (uint32_t slow = 0; slow < 2; slow++) {
        rig r;
        rig_init(&r, 100, 20);
        r.shard_drift = slow ? -60e-6 : 60e-6;
        for (uint32_t day = 0; day < 365; day++) {
            const double end_us = r.now_us + day_us;
            while (r.now_us < end_us) {
                idle(&r, 600e6);
                push(&r, 1, 2000, true);
                pull(&r, 1, 2000, true);
            }
            bw_passive_estimate(&r.passive, BW_UP); // takes what there may be
            bw_passive_estimate(&r.passive, BW_DOWN);
            idle(&r, 1e6);
            push(&r, 8, 262144, true);
            idle(&r, 1e6);
            pull(&r, 8, 262144, true);
            expect_rate(&r, BW_UP, 100, 0.05);
            expect_rate(&r, BW_DOWN, 20, 0.05);
        }
    }
}

// Two shards share the link of a worker, each with a clock of its own.
static void shards_share_the_link(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 200, 200);
    for (uint32_t t = 0; t < 20; t++) {
        double arrived[16];
        for (uint32_t i = 0; i < 16; i++) {
            bw_passive_sent(&r.passive, i % 2, i < 2 ? 1000 : 200000, true, (uint64_t)r.now_us);
            arrived[i] = pass(&r.up, r.now_us, i < 2 ? 1000 : 200000);
        }
        for (uint32_t i = 0; i < 16; i++) {
            const uint32_t stamp =
                bw_stamp((uint64_t)(arrived[i] * 1000) + (i % 2 ? 77000000000 : 0), true);
            bw_passive_confirmed(&r.passive, i % 2, stamp, (uint64_t)arrived[i]);
        }
        r.now_us = arrived[15] + 100000;
    }
    expect_rate(&r, BW_UP, 200, 0.03);
}

// Confirmations beyond what is followed, without a time, and of nothing at all.
static void strange_confirmations_do_no_harm(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 20, 20);
    bw_passive_confirmed(&r.passive, 0, 12345, 1);
    for (uint32_t i = 0; i < 3 * BW_PASSIVE_PUSHES_MAX; i++)
        bw_passive_sent(&r.passive, 0, 1000, true, 1000 + i);
    for (uint32_t i = 0; i < 4 * BW_PASSIVE_PUSHES_MAX; i++)
        bw_passive_confirmed(&r.passive, 0, i % 3 ? 0 : 0xffffffff - i, 100000 + 50000 * i);
    bw_passive_init(&r.passive);
    push(&r, 1, 2000, true);
    push(&r, 20, 262144, true);
    expect_rate(&r, BW_UP, 20, 0.03);
}

TEST_MAIN(TEST(busy_links_are_measured), TEST(what_passes_no_link_says_nothing),
          TEST(idle_applications_say_nothing), TEST(quick_messages_bound_the_rate),
          TEST(a_slow_sender_is_no_slow_link), TEST(a_slow_receiver_is_no_slow_link),
          TEST(late_arrivals_do_not_count), TEST(a_full_way_does_not_slow_the_other),
          TEST(waiting_pushes_hold_up_the_way_down), TEST(a_probe_tells_what_a_way_carries),
          TEST(a_link_that_drops_shows_under_load), TEST(what_went_before_a_push_is_not_quick),
          TEST(a_busy_link_is_not_quick), TEST(changes_show_at_once),
          TEST(clocks_may_part_for_long), TEST(shards_share_the_link),
          TEST(strange_confirmations_do_no_harm))
