#include "bandwidth_probe/bw_table.h"

#include <math.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define GBIT 0.125e9 // bytes/s

static void open_table_with(bool pin, double ps_gbps, bw_table *table)
{
    rt_config config;
    assert_int_equal(rt_config_init(&config), RT_OK);
    config.worker_count = 2;
    config.links.pin = pin;
    config.links.ps_gbps = ps_gbps;
    config.links.workers[0] = (rt_link_config){.gbps_up = 1, .gbps_down = 2};
    config.links.workers[1] = (rt_link_config){.gbps_up = 0.5, .gbps_down = 0.25};
    config.links.workers[2] = (rt_link_config){.gbps_up = 4, .gbps_down = 4}; // of nobody
    bw_table_init(&config, table);
    rt_config_fini(&config);
}

static void open_table(bool pin, bw_table *table)
{
    open_table_with(pin, 0, table);
}

static void starts_with_the_configuration(void **state)
{
    (void)state;
    bw_table table;
    open_table_with(false, 3, &table);
    assert_true(bw_table_ps_rate(&table) == 3 * GBIT);
    assert_true(bw_table_rate(&table, 0, BW_UP) == GBIT);
    assert_true(bw_table_rate(&table, 0, BW_DOWN) == 2 * GBIT);
    assert_true(bw_table_rate(&table, 1, BW_UP) == 0.5 * GBIT);
    assert_true(bw_table_rate(&table, 1, BW_DOWN) == 0.25 * GBIT);
    assert_true(table.links[2][BW_UP].bytes_per_s == 0);
    assert_int_equal(table.version, 1);
}

static void a_probe_counts_at_once_beyond_15_percent(void **state)
{
    (void)state;
    bw_table table;
    open_table(false, &table);
    assert_false(bw_table_measured(&table, 0, BW_UP, BW_PROBED, 0.86 * GBIT));
    assert_false(bw_table_measured(&table, 0, BW_UP, BW_PROBED, 1.14 * GBIT));
    assert_int_equal(table.version, 1);
    assert_true(bw_table_measured(&table, 0, BW_UP, BW_PROBED, 0.84 * GBIT));
    assert_int_equal(table.version, 2);
    assert_true(bw_table_rate(&table, 0, BW_UP) == 0.84 * GBIT);
    assert_true(bw_table_rate(&table, 0, BW_DOWN) == 2 * GBIT); // each way and worker apart
    assert_true(bw_table_rate(&table, 1, BW_UP) == 0.5 * GBIT);
    assert_false(bw_table_measured(&table, 0, BW_UP, BW_PROBED, 0.9 * GBIT)); // of what is in force
}

static void estimates_have_to_last(void **state)
{
    (void)state;
    bw_table table;
    open_table(false, &table);
    for (uint32_t i = 1; i < BW_AGREE; i++)
        assert_false(bw_table_measured(&table, 1, BW_DOWN, BW_ESTIMATED, 0.1 * GBIT));
    assert_true(bw_table_measured(&table, 1, BW_DOWN, BW_ESTIMATED, 0.1 * GBIT));
    test_close(bw_table_rate(&table, 1, BW_DOWN), 0.1 * GBIT, 1e-9, 0, "rate");
    // One odd value among good ones changes nothing, however often.
    for (uint32_t i = 0; i < 20 * BW_LASTS; i++) {
        double value = i % BW_LASTS == 0 ? 0.13 * GBIT : 0.1 * GBIT;
        assert_false(bw_table_measured(&table, 1, BW_DOWN, BW_ESTIMATED, value));
    }
    assert_int_equal(table.version, 2);
}

// Five estimates that say so, a recovery, and five again are no change that lasts.
static void a_recovery_starts_the_count_again(void **state)
{
    (void)state;
    bw_table table;
    open_table(false, &table);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 1; i < BW_AGREE; i++)
            assert_false(bw_table_measured(&table, 1, BW_DOWN, BW_ESTIMATED, 0.2 * GBIT));
        for (uint32_t i = 0; i < 8; i++)
            assert_false(bw_table_measured(&table, 1, BW_DOWN, BW_ESTIMATED, 0.25 * GBIT));
    }
    assert_int_equal(table.version, 1);
}

// What transfers say is rough: a probe corrects it by less than it takes otherwise, once.
static void a_probe_corrects_estimates(void **state)
{
    (void)state;
    bw_table table;
    open_table(false, &table);
    assert_false(bw_table_doubts(&table, 0));
    for (uint32_t i = 0; i < BW_AGREE; i++)
        bw_table_measured(&table, 0, BW_DOWN, BW_ESTIMATED, GBIT);
    assert_true(bw_table_doubts(&table, 0) && !bw_table_doubts(&table, 1));
    assert_true(bw_table_measured(&table, 0, BW_DOWN, BW_PROBED, 1.1 * GBIT));
    assert_false(bw_table_doubts(&table, 0));
    assert_false(bw_table_measured(&table, 0, BW_DOWN, BW_PROBED, GBIT));
    for (uint32_t i = 0; i < BW_AGREE; i++)
        bw_table_measured(&table, 0, BW_DOWN, BW_ESTIMATED, 0.5 * GBIT);
    assert_false(bw_table_measured(&table, 0, BW_DOWN, BW_PROBED, 0.51 * GBIT)); // near enough
    assert_false(bw_table_doubts(&table, 0));
}

static bw_changes estimate(bw_table *table, double up0, double up1, uint32_t rounds)
{
    bw_changes one, all = {0};
    for (uint32_t i = 0; i < rounds; i++) {
        bw_rates rates[2] = {{.ways = {[BW_UP] = up0 * GBIT}}, {.ways = {[BW_UP] = up1 * GBIT}}};
        bw_table_estimated(table, rates, &one);
        all.links[BW_UP] |= one.links[BW_UP];
        all.links[BW_DOWN] |= one.links[BW_DOWN];
        all.ps |= one.ps;
    }
    return all;
}

// One worker alone reads slow: its own link. Both at once: the one that they share, whose rate is
// their sum, now and when it changes.
static void who_is_slow_together_shares_a_limit(void **state)
{
    (void)state;
    bw_table table;
    open_table(false, &table);
    bw_changes changes = estimate(&table, 0.3, 0.5, BW_LASTS);
    assert_true(changes.links[BW_UP] == 1 && !changes.ps);
    test_close(bw_table_rate(&table, 0, BW_UP), 0.3 * GBIT, 1e-9, 0, "own link");
    open_table(false, &table);
    assert_true(bw_table_ps_rate(&table) == 0);
    changes = estimate(&table, 0.3, 0.2, BW_LASTS);
    assert_true(changes.links[BW_UP] == 0 && changes.ps);
    test_close(bw_table_ps_rate(&table), 0.5 * GBIT, 1e-9, 0, "shared link");
    assert_true(bw_table_rate(&table, 0, BW_UP) == GBIT);
    changes = estimate(&table, 0.2, 0.1, BW_LASTS);
    test_close(bw_table_ps_rate(&table), 0.3 * GBIT, 1e-9, 0, "slower shared link");
    changes = estimate(&table, 1, 0.5, BW_LASTS);
    assert_true(changes.links[BW_UP] == 0 && changes.ps);
    test_close(bw_table_ps_rate(&table), 1.5 * GBIT, 1e-9, 0, "no limit any more");
}

static void open_many(const double *gbps, uint32_t count, bw_table *table)
{
    rt_config config;
    assert_int_equal(rt_config_init(&config), RT_OK);
    config.worker_count = count;
    config.links.pin = false;
    for (uint32_t j = 0; j < count; j++)
        config.links.workers[j] = (rt_link_config){.gbps_up = gbps[j], .gbps_down = gbps[j]};
    bw_table_init(&config, table);
    rt_config_fini(&config);
}

static bw_changes estimate_many(bw_table *table, const double *down, uint32_t rounds)
{
    bw_changes one, all = {0};
    for (uint32_t i = 0; i < rounds; i++) {
        bw_rates rates[RT_WORKERS_MAX] = {0};
        for (uint32_t j = 0; j < table->worker_count; j++)
            rates[j].ways[BW_DOWN] = down[j] * GBIT;
        bw_table_estimated(table, rates, &one);
        all.links[BW_DOWN] |= one.links[BW_DOWN];
        all.ps |= one.ps;
    }
    return all;
}

// Two of four links break down in the same moment. The others get what their links have, so it is
// not the parameter servers that hold up those two. Without the others it could be.
static void who_is_slow_beside_quick_ones_has_a_slow_link(void **state)
{
    (void)state;
    static const double links[] = {0.2, 0.2, 0.2, 0.2};
    static const double broken[] = {0.02, 0.02, 0.19, 0.2};
    static const double alone[] = {0.02, 0.02, 0, 0};
    bw_table table;
    open_many(links, 4, &table);
    bw_changes changes = estimate_many(&table, broken, BW_LASTS);
    assert_true(changes.links[BW_DOWN] == 3 && !changes.ps);
    test_close(bw_table_rate(&table, 1, BW_DOWN), 0.02 * GBIT, 1e-9, 0, "broken link");
    assert_true(bw_table_ps_rate(&table) == 0);
    open_many(links, 4, &table);
    changes = estimate_many(&table, alone, BW_LASTS);
    assert_true(changes.links[BW_DOWN] == 0 && changes.ps);
    // Once the others are busy they show which it is, and lift the limit.
    changes = estimate_many(&table, broken, 2 * BW_LASTS);
    assert_true(changes.links[BW_DOWN] == 3 && changes.ps);
    test_close(bw_table_ps_rate(&table), 0.43 * GBIT, 1e-9, 0, "no limit any more");
}

// The parameter servers hold up the quick ones. Links that are slower than a share of theirs are
// not held up, which does not make them witnesses.
static void slow_links_do_not_speak_for_quick_ones(void **state)
{
    (void)state;
    static const double links[] = {0.2, 0.2, 0.02, 0.06};
    static const double shared[] = {0.05, 0.06, 0.02, 0.06};
    bw_table table;
    open_many(links, 4, &table);
    bw_changes changes = estimate_many(&table, shared, BW_LASTS);
    assert_true(changes.links[BW_DOWN] == 0 && changes.ps);
    test_close(bw_table_ps_rate(&table), 0.19 * GBIT, 1e-9, 0, "shared link");
}

// ---- boxes of shards ----------------------------------------------------------------------------

static void shards_of_one_host_are_on_one_box(void **state)
{
    (void)state;
    static const char addresses[][RT_ADDRESS_MAX] = {"tcp://10.0.0.1:7000",  "tcp://10.0.0.1:7001",
                                                     "tcp://10.0.0.11:7000", "tcp://10.0.0.1:70",
                                                     "tcp://[fe80::1]:7",    "tcp://[fe80::1]:8"};
    static const uint32_t expected[] = {0, 0, 2, 0, 4, 4};
    uint32_t box_of[6];
    bw_boxes(addresses, 6, box_of);
    assert_memory_equal(box_of, expected, sizeof expected);
    bw_boxes(addresses + 2, 2, box_of); // one begins like the other
    assert_true(box_of[0] == 0 && box_of[1] == 1);
}

static void open_boxes(bw_table *table)
{
    static const double links[] = {1, 1, 1};
    static const uint32_t box_of[] = {0, 1, 1};
    open_many(links, 3, table);
    table->shard_count = 3;
    memcpy(table->box_of, box_of, sizeof box_of);
}

static bw_changes probe(bw_table *table, uint32_t worker, double box0, double box1)
{
    bw_changes changes;
    const bw_reading readings[] = {{0, {box0 * GBIT, 2 * box0 * GBIT}, 3e-3},
                                   {1, {box1 * GBIT, 2 * box1 * GBIT}, 2e-3}};
    bw_table_probed(table, worker, readings, 2, &changes);
    return changes;
}

// The best box shows the worker's link; a box that lets less through has a limit of its own, which
// its shards share.
static void a_slow_box_limits_its_shards(void **state)
{
    (void)state;
    bw_table table;
    open_boxes(&table);
    bw_changes changes = probe(&table, 0, 0.5, 0.49); // its own link, by way of either
    assert_true(changes.links[BW_UP] == 1 && changes.shards == 0);
    test_close(bw_table_rate(&table, 0, BW_UP), 0.5 * GBIT, 1e-9, 0, "own link");
    assert_true(table.rtt_s[0] == 2e-3);
    changes = probe(&table, 1, 2, 0.8);
    assert_true(changes.links[BW_UP] == 2 && changes.shards == 6);
    test_close(bw_table_rate(&table, 1, BW_UP), 2 * GBIT, 1e-9, 0, "own link");
    test_close(bw_table_shard_rate(&table, 1), 0.4 * GBIT, 1e-9, 0, "half of the box");
    test_close(bw_table_shard_rate(&table, 2), 0.4 * GBIT, 1e-9, 0, "half of the box");
    assert_true(bw_table_shard_rate(&table, 0) == 0);
    changes = probe(&table, 2, 3, 1.2); // that box has more than the one before saw
    assert_true(changes.shards == 6);
    test_close(bw_table_shard_rate(&table, 1), 0.6 * GBIT, 1e-9, 0, "half of the box");
}

// A worker that has not probed a box says nothing about it, whatever it reads of another one.
static void who_has_not_probed_a_box_does_not_limit_it(void **state)
{
    (void)state;
    bw_table table;
    bw_changes changes;
    const bw_reading nearest = {0, {2 * GBIT, 4 * GBIT}, 3e-3};
    open_boxes(&table);
    probe(&table, 0, 0.5, 0.49);
    bw_table_probed(&table, 1, &nearest, 1, &changes);
    assert_true(changes.links[BW_UP] == 2 && changes.shards == 0);
    assert_true(bw_table_shard_rate(&table, 1) == 0 && bw_table_shard_rate(&table, 2) == 0);
}

static void a_pinned_table_only_keeps_times(void **state)
{
    (void)state;
    bw_table table;
    open_boxes(&table);
    table.pinned = true;
    bw_changes changes = probe(&table, 0, 2, 0.5);
    assert_true(changes.links[BW_UP] == 0 && changes.shards == 0 && table.version == 1);
    assert_true(bw_table_rate(&table, 0, BW_UP) == GBIT && table.rtt_s[0] == 2e-3);
}

// An estimate of long ago does not make a link slow together with another.
static void old_estimates_do_not_count(void **state)
{
    (void)state;
    bw_table table;
    open_table(false, &table);
    estimate(&table, 0, 0.2, 1);
    estimate(&table, 0, 0, BW_RECENT);
    bw_changes changes = estimate(&table, 0.3, 0, BW_LASTS);
    assert_true(changes.links[BW_UP] == 1 && !changes.ps);
}

// An estimate counts in BW_FORGET rounds, its own the first, and in no other.
static void an_estimate_is_forgotten(void **state)
{
    (void)state;
    for (uint32_t more = 0; more < 2; more++) {
        bw_table table;
        open_table(false, &table);
        estimate(&table, 0.5, 0, 1);
        estimate(&table, 0, 0, BW_FORGET - BW_AGREE + more);
        assert_true(estimate(&table, 0.5, 0, BW_AGREE - 2).links[BW_UP] == 0);
        assert_int_equal(estimate(&table, 0.5, 0, 1).links[BW_UP], more == 0);
    }
}

// Real estimates scatter: two wild ones among eight do no harm, nor do a few now and then.
static void wild_estimates_do_no_harm(void **state)
{
    (void)state;
    bw_table table;
    open_table(false, &table);
    for (uint32_t i = 0; i < 20 * BW_LASTS; i++)
        assert_true(estimate(&table, i % BW_LASTS < 2 ? 5 : 0.9, 0, 1).links[BW_UP] == 0);
    for (uint32_t i = 0; i < 20 * BW_LASTS; i++)
        assert_true(estimate(&table, i % 4 ? 0 : 0.5, 0, 1).links[BW_UP] == 0);
    for (uint32_t i = 0; i < 3 * BW_LASTS; i++)
        estimate(&table, i % 4 ? 0.1 : 3, 0, 1);
    test_close(bw_table_rate(&table, 0, BW_UP), 0.1 * GBIT, 1e-9, 0, "median");
}

// A bound from below raises a rate, and never lowers one.
static void bounds_only_raise(void **state)
{
    (void)state;
    bw_table table;
    bw_changes changes;
    open_table(false, &table);
    for (uint32_t i = 0; i < BW_AGREE; i++) {
        const bw_rates rates[2] = {{.at_least = {0.1 * GBIT, 0.2 * GBIT}},
                                   {.at_least = {0.9 * GBIT, 0.2 * GBIT}}};
        bw_table_estimated(&table, rates, &changes);
    }
    assert_true(changes.links[BW_UP] == 2 && changes.links[BW_DOWN] == 0 && !changes.ps);
    test_close(bw_table_rate(&table, 1, BW_UP), 0.9 * GBIT, 1e-9, 0, "raised");
}

static void pinned_links_and_impossible_rates_stay(void **state)
{
    (void)state;
    bw_table table;
    open_table(true, &table);
    assert_false(bw_table_measured(&table, 0, BW_UP, BW_PROBED, 0.1 * GBIT));
    assert_true(bw_table_rate(&table, 0, BW_UP) == GBIT);
    open_table(false, &table);
    const double impossible[] = {0, -1, NAN, INFINITY};
    for (size_t i = 0; i < RT_COUNT_OF(impossible); i++)
        assert_false(bw_table_measured(&table, 0, BW_UP, BW_PROBED, impossible[i]));
    assert_true(bw_table_rate(&table, 0, BW_UP) == GBIT);
    assert_true(bw_table_measured(&table, 0, BW_UP, BW_PROBED, 0.5)); // bytes/s
}

// One link as the rules of bw_table.h say it, from all that was measured since its last change.
typedef struct {
    double force;
    bool is_estimate;
    struct {
        double value;
        uint64_t round;
    } all[4000];
    uint32_t count;
} plain_link;

static bool is_far(const plain_link *link, double value, double share)
{
    return fabs(value - link->force) > share * link->force;
}

// Of the last eight that are no older than 16 rounds, on one side of what is in force and far from
// it: how many, and the one in the middle.
static uint32_t middle_of(const plain_link *link, uint64_t round, bool below, double *middle)
{
    double side[BW_LASTS];
    uint32_t count = 0;
    const uint32_t first = link->count < BW_LASTS ? 0 : link->count - BW_LASTS;
    for (uint32_t i = first; i < link->count; i++) {
        const double value = link->all[i].value;
        if (round - link->all[i].round < BW_FORGET && is_far(link, value, 0.15) &&
            (value < link->force) == below)
            side[count++] = value;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t less = 0, same = 0;
        for (uint32_t k = 0; k < count; k++) {
            less += side[k] < side[i];
            same += side[k] == side[i];
        }
        if (less <= count / 2 && count / 2 < less + same)
            *middle = side[i];
    }
    return count;
}

static bool measure_plainly(plain_link *link, uint64_t round, bw_source source, double value)
{
    double middle = value;
    if (source == BW_ESTIMATED) {
        assert_true(link->count < RT_COUNT_OF(link->all));
        link->all[link->count].value = value;
        link->all[link->count++].round = round;
        if (middle_of(link, round, true, &middle) < 6 && middle_of(link, round, false, &middle) < 6)
            return false;
    } else {
        const bool far = is_far(link, value, link->is_estimate ? 0.05 : 0.15);
        link->is_estimate = false;
        if (!far)
            return false;
    }
    link->force = middle;
    link->is_estimate = source == BW_ESTIMATED;
    link->count = 0;
    return true;
}

static void random_measurements(void **state)
{
    (void)state;
    uint32_t changes = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        static plain_link link;
        rt_random random = {seed};
        bw_table table;
        double around = GBIT;
        open_table(false, &table);
        link = (plain_link){.force = GBIT};
        for (uint32_t i = 0; i < 1500; i++) {
            const bw_source source = rt_random_below(&random, 25) ? BW_ESTIMATED : BW_PROBED;
            const double noise = seed % 2 ? 0.5 * rt_random_unit(&random) - 0.25
                                          : 0.15 * ((double)rt_random_below(&random, 5) - 2);
            const double value = around * (1 + noise);
            around =
                rt_random_below(&random, 30) ? around : GBIT * (0.5 + rt_random_below(&random, 4));
            table.rounds += rt_random_below(&random, 12) ? rt_random_below(&random, 3) : 14;
            const uint64_t version = table.version;
            const bool changed = measure_plainly(&link, table.rounds, source, value);
            assert_int_equal(bw_table_measured(&table, 0, BW_UP, source, value), changed);
            assert_int_equal(table.version, version + changed);
            assert_true(bw_table_rate(&table, 0, BW_UP) == link.force);
            assert_int_equal(bw_table_doubts(&table, 0), link.is_estimate);
            changes += changed;
        }
    }
    assert_true(changes > 1000);
}

TEST_MAIN(TEST(starts_with_the_configuration), TEST(a_probe_counts_at_once_beyond_15_percent),
          TEST(estimates_have_to_last), TEST(a_probe_corrects_estimates),
          TEST(a_recovery_starts_the_count_again), TEST(who_is_slow_together_shares_a_limit),
          TEST(who_is_slow_beside_quick_ones_has_a_slow_link),
          TEST(slow_links_do_not_speak_for_quick_ones), TEST(shards_of_one_host_are_on_one_box),
          TEST(a_slow_box_limits_its_shards), TEST(who_has_not_probed_a_box_does_not_limit_it),
          TEST(a_pinned_table_only_keeps_times), TEST(old_estimates_do_not_count),
          TEST(an_estimate_is_forgotten), TEST(wild_estimates_do_no_harm), TEST(bounds_only_raise),
          TEST(pinned_links_and_impossible_rates_stay), TEST(random_measurements))
