// Probes while a run goes on: when they are due, what is asked of whom, and how much of the time
// they may take. The case plays the workers; time is what it says.
#include "dispatch/coordinator/dp_links.h"

#include <math.h>
#include <string.h>

#include "dispatch/coordinator/dp_stats.h"
#include "dispatch/planner/dp_setup.h"
#include "runtime/config/rt_formats.h"
#include "tests/support/members.h"
#include "tests/support/notes.h"
#include "tests/support/test.h"

#define WORKERS 3u
#define EVERY_S 100.0
#define PROBE_S 0.9  // that a probe takes
#define MBIT 0.125e6 // bytes/s

typedef struct {
    rt_config config;
    rt_transport transport;
    dp_roster *roster;
    dp_stats *stats;
    dp_planner_config planner;
    dp_feed *feed;
    dp_links links;
    dp_prober prober;
    uint64_t now_ns;
    uint32_t pauses, probes[WORKERS];
    double paused_s;
} prober_case;

static void pass(prober_case *c, double seconds)
{
    c->now_ns += (uint64_t)(seconds * 1e9);
}

static void create_feed(prober_case *c)
{
    dp_planner_config *planner = &c->planner;
    rt_stream *stream;
    dp_feed_config feed = {
        .config = &c->config, .planner = planner, .planned_max = 2, .wake_fd = -1};
    c->config.stream.format = RT_FORMAT_SYNTHETIC;
    c->config.stream.samples_max = 1;
    c->config.cache.rows = 100000;
    assert_int_equal(rt_stream_open(&c->config.stream, 1, &stream, NULL), RT_OK);
    const rt_schema *schema = rt_stream_schema(stream);
    assert_int_equal(dp_setup(&c->config, schema, 0, planner, NULL), RT_OK);
    dp_account_init(planner, &feed.costs);
    feed.limits = (dp_slice_limits){.dense_count = schema->dense_count,
                                    .field_count = schema->field_count,
                                    .worker_count = WORKERS,
                                    .batch_samples = planner->sample_count_max,
                                    .sample_count_max = dp_planner_micro_batch_max(planner),
                                    .lookup_count_max = dp_planner_micro_batch_max(planner) *
                                                        planner->keys_per_sample_max,
                                    .slot_count = planner->slot_count[0]};
    assert_int_equal(dp_feed_create(&feed, stream, &c->feed, NULL), RT_OK);
}

// A LINK with these rates.
static rt_status answer(prober_case *c, uint32_t worker, double mbit_up, double mbit_down)
{
    rt_message message;
    const rt_wire_link link = {
        .streams = 1, .up_bytes_per_s = mbit_up * MBIT, .down_bytes_per_s = mbit_down * MBIT};
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_LINK, rt_peer(RT_ROLE_WORKER, worker),
                                       0, 1, sizeof link),
                     RT_OK);
    memcpy(rt_message_payload(&message), &link, sizeof link);
    rt_status status =
        dp_prober_take(&c->prober, rt_peer(RT_ROLE_WORKER, worker), &message, c->now_ns, NULL);
    rt_message_release(&message);
    return status;
}

static void begin(prober_case *c)
{
    *c = (prober_case){.now_ns = UINT64_C(5000000000)};
    assert_int_equal(rt_config_init(&c->config), RT_OK);
    c->config.worker_count = WORKERS;
    c->config.links.pin = false;
    for (uint32_t w = 0; w < WORKERS; w++)
        c->config.links.workers[w] = (rt_link_config){.gbps_up = 1, .gbps_down = 1};
    const dp_roster_config roster = {
        .ops = &notes_ops, .transport = &c->transport, .config = &c->config};
    const dp_stats_config stats = {.config = &c->config, .dense_count = 1};
    assert_int_equal(dp_roster_create(&roster, &c->roster, NULL), RT_OK);
    members_begin(dp_roster_members(c->roster));
    assert_int_equal(dp_stats_create(&stats, &c->stats, NULL), RT_OK);
    create_feed(c);
    dp_links_init(&c->config, &c->links);
    c->prober = (dp_prober){.roster = c->roster,
                            .links = &c->links,
                            .feed = c->feed,
                            .metrics = dp_stats_metrics(c->stats),
                            .sender = rt_peer(RT_ROLE_COORDINATOR, 0),
                            .worker_count = WORKERS,
                            .every_s = EVERY_S};
    dp_prober_init(&c->prober, c->now_ns);
    for (uint32_t w = 0; w < WORKERS; w++)
        assert_int_equal(answer(c, w, 100, 100), RT_OK); // joined
}

static void fini(prober_case *c)
{
    dp_feed_destroy(c->feed);
    dp_stats_destroy(c->stats);
    dp_roster_destroy(c->roster);
    rt_config_fini(&c->config);
}

static void step(prober_case *c, bool may_begin, bool quiet)
{
    assert_int_equal(dp_prober_step(&c->prober, may_begin, quiet, c->now_ns, NULL), RT_OK);
}

static rt_status mark(prober_case *c, uint32_t peer, uint64_t number)
{
    rt_message message;
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_MARK, peer, number, 0, 0), RT_OK);
    rt_status status = dp_prober_mark(&c->prober, peer, &message, NULL);
    rt_message_release(&message);
    return status;
}

static void mark_all(prober_case *c)
{
    for (uint32_t w = 0; w < WORKERS; w++)
        assert_int_equal(mark(c, rt_peer(RT_ROLE_WORKER, w), c->prober.number), RT_OK);
}

// Transfers of a worker said this; 0: nothing.
static void report(prober_case *c, uint32_t worker, const double bytes_per_s[BW_WAYS])
{
    const rt_wire_report one = {.up_bytes_per_s = bytes_per_s[BW_UP],
                                .down_bytes_per_s = bytes_per_s[BW_DOWN]};
    dp_links_reported(&c->links, worker, &one);
    dp_prober_reported(&c->prober, worker, &one, c->now_ns);
}

// So many seconds of a run, one iteration in each: workers answer what they are asked; links have
// 100 Mbit/s, transfers say what `estimates` says.
static void run(prober_case *c, uint32_t seconds, const double estimates[WORKERS][BW_WAYS])
{
    for (uint32_t i = 0; i < seconds; i++) {
        for (uint32_t w = 0; w < WORKERS; w++)
            report(c, w, estimates[w]);
        dp_links_iterated(&c->links, i, c->feed, c->prober.metrics);
        pass(c, 1);
        const uint64_t begin_ns = c->now_ns;
        step(c, true, true);
        c->pauses += c->prober.open;
        while (c->prober.open) {
            if (c->prober.drains && c->prober.marks == 0)
                mark_all(c);
            step(c, true, true);
            if (c->prober.asked) {
                const uint32_t w = rt_lowest_bit(c->prober.asked);
                pass(c, PROBE_S);
                c->probes[w]++;
                assert_int_equal(answer(c, w, 100, 100), RT_OK);
            }
        }
        c->paused_s += (double)(c->now_ns - begin_ns) * 1e-9;
        notes_clear(&c->transport);
    }
}

// Nobody is asked to measure while anything moves, and one at a time.
static void nothing_moves_while_a_worker_measures(void **state)
{
    (void)state;
    prober_case c;
    rt_transport *t = &c.transport;
    begin(&c);
    pass(&c, EVERY_S - 1);
    step(&c, true, true);
    assert_false(c.prober.open); // not due
    pass(&c, 2);
    step(&c, false, true);
    assert_false(c.prober.open); // a checkpoint is being made
    step(&c, true, false);
    assert_true(c.prober.open); // nothing is handed out, but iterations are under way
    assert_int_equal(t->endpoint.count, 0);
    assert_int_equal(dp_prober_awaited(&c.prober).workers, 0);
    step(&c, false, true);
    assert_int_equal(notes_ranks(t, RT_MESSAGE_MARK, RT_ROLE_WORKER, 1), 7);
    assert_int_equal(mark(&c, rt_peer(RT_ROLE_WORKER, 0), 1), RT_OK);
    assert_int_equal(mark(&c, rt_peer(RT_ROLE_WORKER, 2), 1), RT_OK);
    assert_int_equal(dp_prober_awaited(&c.prober).workers, 2);
    step(&c, false, true);
    assert_int_equal(notes_ranks(t, RT_MESSAGE_LINK, RT_ROLE_WORKER, 0), 0);
    assert_int_equal(mark(&c, rt_peer(RT_ROLE_WORKER, 1), 1), RT_OK);
    for (uint32_t w = 0; w < WORKERS; w++) {
        step(&c, false, true);
        step(&c, false, true);
        assert_int_equal(notes_ranks(t, RT_MESSAGE_LINK, RT_ROLE_WORKER, 0), (2u << w) - 1);
        pass(&c, 0.1);
        assert_int_equal(answer(&c, w, 100, 20), RT_OK);
        assert_true(bw_table_rate(&c.links.table, w, BW_DOWN) == 20 * MBIT);
    }
    step(&c, false, true);
    assert_false(c.prober.open);
    fini(&c);
}

static void what_nobody_waits_for(void **state)
{
    (void)state;
    prober_case c;
    begin(&c);
    const uint32_t worker = rt_peer(RT_ROLE_WORKER, 1);
    assert_int_equal(answer(&c, 1, 10, 10), RT_WIRE); // it has told already
    assert_true(bw_table_rate(&c.links.table, 1, BW_UP) == 100 * MBIT);
    assert_int_equal(mark(&c, worker, 0), RT_WIRE);
    pass(&c, EVERY_S);
    step(&c, true, true);
    step(&c, true, true);
    assert_int_equal(mark(&c, rt_peer(RT_ROLE_PS, 1), 1), RT_WIRE);
    assert_int_equal(mark(&c, worker, 2), RT_WIRE);
    assert_int_equal(mark(&c, worker, 1), RT_OK);
    assert_int_equal(mark(&c, worker, 1), RT_WIRE);
    assert_int_equal(mark(&c, rt_peer(RT_ROLE_WORKER, 0), 1), RT_OK);
    assert_int_equal(mark(&c, rt_peer(RT_ROLE_WORKER, 2), 1), RT_OK);
    step(&c, true, true);
    assert_int_equal(answer(&c, 1, 10, 10), RT_WIRE); // worker 0 was asked
    assert_int_equal(answer(&c, 0, 10, 10), RT_OK);
    fini(&c);
}

// A link that its transfers tell of, both ways, needs no probe; one of which one way is never full
// does, and one that nothing is known of.
static void links_that_tell_are_left_alone(void **state)
{
    (void)state;
    static const double estimates[WORKERS][BW_WAYS] = {
        {100 * MBIT, 100 * MBIT}, {100 * MBIT, 0}, {0, 0}};
    prober_case c;
    begin(&c);
    c.prober.every_s = 300;
    run(&c, 3000, estimates);
    assert_int_equal(c.probes[0], 0);
    assert_in_range(c.probes[1], 9, 10);
    assert_in_range(c.probes[2], 9, 10);
    fini(&c);
}

// Transfers say that a link has changed; a probe confirms or corrects it soon. Where the two differ
// again and again, because the probe is alone on the link, probes become rare.
static void a_change_is_checked(void **state)
{
    (void)state;
    double estimates[WORKERS][BW_WAYS] = {
        {50 * MBIT, 100 * MBIT}, {100 * MBIT, 100 * MBIT}, {100 * MBIT, 100 * MBIT}};
    prober_case c;
    begin(&c);
    run(&c, BW_AGREE, estimates);
    assert_true(bw_table_rate(&c.links.table, 0, BW_UP) == 50 * MBIT);
    estimates[0][BW_UP] = 100 * MBIT;
    run(&c, 8, estimates);
    assert_int_equal(c.probes[0], 1);
    assert_true(bw_table_rate(&c.links.table, 0, BW_UP) == 100 * MBIT);
    assert_int_equal(c.probes[1] + c.probes[2], 0);
    estimates[0][BW_UP] = 50 * MBIT;
    run(&c, 1000, estimates); // after 20, 40, 80, 160, 320... seconds, not every 10
    assert_in_range(c.probes[0], 5, 7);
    fini(&c);
}

// However often links change and whatever links.probe_s says, training goes on most of the time.
static void pauses_are_a_small_share(void **state)
{
    (void)state;
    static const double nothing[WORKERS][BW_WAYS];
    prober_case c;
    begin(&c);
    c.prober.every_s = 0.5;
    run(&c, 20, nothing);
    assert_in_range(c.pauses, 2, 4); // those that a run may have at once
    run(&c, 3000, nothing);
    assert_true(c.paused_s < DP_PROBER_SAVED_S + DP_PROBER_PAUSE_S + PROBE_S + 0.01 * 3020);
    assert_true(c.paused_s > 0.008 * 3020);
    for (uint32_t w = 0; w < WORKERS; w++) // all have their turn
        assert_in_range(c.probes[w], c.probes[0] - 2, c.probes[0] + 2);
    fini(&c);
}

static void a_stop_ends_a_pause(void **state)
{
    (void)state;
    prober_case c;
    begin(&c);
    pass(&c, EVERY_S);
    step(&c, true, true);
    mark_all(&c);
    step(&c, false, true);
    dp_prober_stop(&c.prober);
    assert_int_equal(answer(&c, 0, 100, 100), RT_OK);
    step(&c, false, true);
    assert_false(c.prober.open);
    assert_int_equal(notes_ranks(&c.transport, RT_MESSAGE_LINK, RT_ROLE_WORKER, 0), 1);
    fini(&c);
}

// A checkpoint has the rates in force, that of a slow box of shards among them: it counts until
// probes say otherwise.
static void a_resumed_run_knows_slow_boxes(void **state)
{
    (void)state;
    static const char addresses[][RT_ADDRESS_MAX] = {"tcp://10.0.0.1:1", "tcp://10.0.0.1:2",
                                                     "tcp://10.0.0.2:1"};
    prober_case c;
    dp_planner *planner;
    rt_message message;
    rt_wire_link links[2] = {{.shard = 0}, {.shard = 2}};
    begin(&c);
    dp_planner_config config = c.planner;
    c.config.ps_shard_count = config.rates.shards.count = 3;
    config.rates.shards.bytes_per_s[0] = config.rates.shards.bytes_per_s[1] = 10 * MBIT;
    assert_int_equal(dp_planner_create(&config, &planner, NULL), RT_OK);
    dp_links_init(&c.config, &c.links);
    dp_links_place(&c.links, addresses);
    dp_links_resume(&c.links, planner);
    for (uint32_t s = 0; s < 3; s++)
        assert_true(bw_table_shard_rate(&c.links.table, s) == config.rates.shards.bytes_per_s[s]);
    for (uint32_t i = 0; i < 2; i++)
        links[i].up_bytes_per_s = links[i].down_bytes_per_s = 100 * MBIT;
    const uint32_t peer = rt_peer(RT_ROLE_WORKER, 0);
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_LINK, peer, 0, 2, sizeof links), RT_OK);
    memcpy(rt_message_payload(&message), links, sizeof links);
    assert_int_equal(dp_links_take(&c.links, peer, &message, NULL), RT_OK);
    rt_message_release(&message);
    const uint64_t version = c.links.table.version;
    dp_links_tell(&c.links, 0, c.feed, c.prober.metrics);
    assert_true(c.links.table.version > version);
    for (uint32_t s = 0; s < 3; s++)
        assert_true(bw_table_shard_rate(&c.links.table, s) == 0);
    dp_planner_destroy(planner);
    fini(&c);
}

// A LINK of some boxes; count: what its header says.
static rt_status tell_links(prober_case *c, uint32_t peer, const rt_wire_link *links, uint32_t size,
                            uint32_t count)
{
    rt_message message;
    assert_int_equal(
        rt_message_create(&message, RT_MESSAGE_LINK, peer, 0, count, size * sizeof *links), RT_OK);
    memcpy(rt_message_payload(&message), links, size * sizeof *links);
    rt_error error = {0};
    rt_status status = dp_links_take(&c->links, peer, &message, &error);
    assert_int_equal(error.status, status);
    assert_true(status == RT_OK || strstr(error.text, "LINK"));
    rt_message_release(&message);
    return status;
}

// Nothing of them is kept, not even what was told before.
static void impossible_links_are_refused(void **state)
{
    (void)state;
    const uint32_t worker = rt_peer(RT_ROLE_WORKER, 1);
    const rt_wire_link good[] = {{.shard = 0, .up_bytes_per_s = 1, .down_bytes_per_s = 2},
                                 {.shard = 2, .up_bytes_per_s = 0, .rtt_s = 3}};
    const rt_wire_link bad[] = {{.shard = 3},
                                {.shard = 0}, // again
                                {.shard = 1, .up_bytes_per_s = -1},
                                {.shard = 1, .up_bytes_per_s = NAN},
                                {.shard = 1, .down_bytes_per_s = -1e-9},
                                {.shard = 1, .down_bytes_per_s = INFINITY},
                                {.shard = 1, .rtt_s = -1},
                                {.shard = 1, .rtt_s = NAN}};
    prober_case c;
    begin(&c);
    c.links.table.shard_count = 3;
    assert_int_equal(tell_links(&c, worker, good, 2, 2), RT_OK);
    assert_int_equal(c.links.probe_counts[1], 2);
    for (size_t i = 0; i < RT_COUNT_OF(bad); i++) {
        const rt_wire_link links[] = {good[0], bad[i]};
        assert_int_equal(tell_links(&c, worker, links, 2, 2), RT_WIRE);
        assert_int_equal(c.links.probe_counts[1], 0);
    }
    const rt_wire_link four[4] = {{.shard = 0}, {.shard = 1}, {.shard = 2}, {.shard = 3}};
    assert_int_equal(tell_links(&c, worker, four, 4, 4), RT_WIRE); // there are three
    assert_int_equal(tell_links(&c, worker, four, 0, 0), RT_WIRE);
    assert_int_equal(tell_links(&c, worker, four, 1, 2), RT_WIRE);
    assert_int_equal(tell_links(&c, worker, four, 2, 1), RT_WIRE);
    assert_int_equal(tell_links(&c, rt_peer(RT_ROLE_WORKER, WORKERS), four, 1, 1), RT_WIRE);
    assert_int_equal(tell_links(&c, rt_peer(RT_ROLE_PS, 1), four, 1, 1), RT_WIRE);
    assert_int_equal(tell_links(&c, rt_peer(RT_ROLE_WORKER, WORKERS - 1), four, 3, 3), RT_OK);
    fini(&c);
}

static void pinned_links_and_0_never_pause(void **state)
{
    (void)state;
    static const double nothing[WORKERS][BW_WAYS];
    prober_case c;
    begin(&c);
    c.prober.every_s = 0;
    run(&c, 1000, nothing);
    c.prober.every_s = EVERY_S;
    c.links.table.pinned = true;
    run(&c, 1000, nothing);
    assert_int_equal(c.pauses, 0);
    fini(&c);
}

// Neither the answer of a worker that is lost is waited for, nor its measurement, nor is it asked.
static void lost_workers_are_not_waited_for(void **state)
{
    (void)state;
    prober_case c;
    rt_transport *t = &c.transport;
    begin(&c);
    pass(&c, EVERY_S);
    step(&c, true, true);
    assert_int_equal(mark(&c, rt_peer(RT_ROLE_WORKER, 0), 1), RT_OK);
    assert_int_equal(mark(&c, rt_peer(RT_ROLE_WORKER, 2), 1), RT_OK);
    dp_membership_lose(dp_roster_members(c.roster), 1); // before its MARK
    assert_int_equal(dp_prober_awaited(&c.prober).workers, 0);
    step(&c, false, true);
    assert_int_equal(notes_ranks(t, RT_MESSAGE_LINK, RT_ROLE_WORKER, 0), 1);
    dp_membership_lose(dp_roster_members(c.roster), 0); // while it measures
    step(&c, false, true);
    assert_int_equal(notes_ranks(t, RT_MESSAGE_LINK, RT_ROLE_WORKER, 0), 5);
    assert_int_equal(dp_prober_awaited(&c.prober).workers, 4);
    assert_int_equal(answer(&c, 2, 100, 20), RT_OK);
    step(&c, false, true);
    assert_false(c.prober.open);
    t->endpoint.count = 0;
    pass(&c, EVERY_S);
    step(&c, true, true);
    assert_int_equal(notes_ranks(t, RT_MESSAGE_MARK, RT_ROLE_WORKER, 2), 4);
    fini(&c);
}

// Who measured longest ago goes first, in whatever order of ranks.
static void the_oldest_goes_first(void **state)
{
    (void)state;
    static const uint32_t orders[][WORKERS] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                               {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (size_t i = 0; i < RT_COUNT_OF(orders); i++) {
        prober_case c;
        begin(&c);
        for (uint32_t k = 0; k < WORKERS; k++)
            c.prober.workers[orders[i][k]].probed_ns = c.now_ns + k;
        pass(&c, EVERY_S + 1);
        step(&c, true, true);
        step(&c, true, true);
        mark_all(&c);
        for (uint32_t k = 0; k < WORKERS; k++) {
            step(&c, true, true);
            assert_int_equal(c.prober.asked, rt_bit(orders[i][k]));
            assert_int_equal(answer(&c, orders[i][k], 100, 100), RT_OK);
        }
        fini(&c);
    }
}

TEST_MAIN(TEST(nothing_moves_while_a_worker_measures), TEST(the_oldest_goes_first),
          TEST(lost_workers_are_not_waited_for), TEST(what_nobody_waits_for),
          TEST(links_that_tell_are_left_alone), TEST(a_change_is_checked),
          TEST(pauses_are_a_small_share), TEST(a_stop_ends_a_pause),
          TEST(a_resumed_run_knows_slow_boxes), TEST(pinned_links_and_0_never_pause),
          TEST(impossible_links_are_refused))
