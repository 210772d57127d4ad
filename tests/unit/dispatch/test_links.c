// What the coordinator makes of probes and transfers: input records, and records of the metrics. In
// place of a feed the case notes what it is told.
#include "dispatch/coordinator/dp_links.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

#define WORKERS 2u
#define SHARDS 3u
#define MBIT 0.125e6 // bytes/s
#define TOLD_MAX 32u

static dp_input told[TOLD_MAX];
static uint32_t told_count;

void dp_feed_tell(dp_feed *feed, const dp_input *input)
{
    assert_null(feed);
    assert_true(told_count < TOLD_MAX);
    told[told_count++] = *input;
}

typedef struct {
    rt_config config;
    dp_links links;
    rt_metrics *metrics;
    char path[600];
} links_case;

// Shards 0 and 1 are on one box, shard 2 on another.
static void begin(links_case *c, bool pinned)
{
    static const char addresses[][RT_ADDRESS_MAX] = {"tcp://10.0.0.1:1", "tcp://10.0.0.1:2",
                                                     "tcp://10.0.0.2:1"};
    *c = (links_case){0};
    told_count = 0;
    assert_int_equal(rt_config_init(&c->config), RT_OK);
    c->config.worker_count = WORKERS;
    c->config.ps_shard_count = SHARDS;
    c->config.links.pin = pinned;
    for (uint32_t w = 0; w < WORKERS; w++)
        c->config.links.workers[w] = (rt_link_config){.gbps_up = 1, .gbps_down = 1};
    snprintf(c->path, sizeof c->path, "%s", test_path("metrics.jsonl"));
    assert_int_equal(rt_metrics_open(c->path, &c->metrics, NULL), RT_OK);
    dp_links_init(&c->config, &c->links);
    dp_links_place(&c->links, addresses);
}

static void fini(links_case *c)
{
    rt_metrics_close(c->metrics);
    rt_config_fini(&c->config);
}

static rt_status take(links_case *c, uint32_t peer, const rt_wire_link *links, uint32_t count,
                      size_t bytes, rt_error *error)
{
    rt_message message;
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_LINK, peer, 0, count, bytes), RT_OK);
    memcpy(rt_message_payload(&message), links, bytes);
    const rt_status status = dp_links_take(&c->links, peer, &message, error);
    rt_message_release(&message);
    return status;
}

static rt_wire_link link_of(uint32_t shard, double up, double down)
{
    return (rt_wire_link){.shard = shard,
                          .streams = 3 + shard,
                          .up_bytes_per_s = up * MBIT,
                          .down_bytes_per_s = down * MBIT,
                          .up_spread = 0.25 + shard,
                          .down_spread = 0.5 + shard,
                          .rtt_s = 0.002 + shard};
}

// The number-th record of this name; the caller's (cJSON_Delete).
static cJSON *record(const links_case *c, const char *name, uint32_t number)
{
    char *line = NULL;
    size_t size = 0;
    FILE *file = fopen(c->path, "r");
    assert_non_null(file);
    cJSON *found = NULL;
    while (!found && getline(&line, &size, file) > 0) {
        cJSON *one = cJSON_Parse(line);
        const cJSON *own = cJSON_GetObjectItem(one, "record");
        assert_true(cJSON_IsString(own));
        if (strcmp(own->valuestring, name) == 0 && number-- == 0)
            found = one;
        else
            cJSON_Delete(one);
    }
    free(line);
    fclose(file);
    return found;
}

static void number_must_be(const cJSON *object, const char *name, double want)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    if (!cJSON_IsNumber(item) || item->valuedouble != want)
        fail_msg("%s is %.17g, expected %.17g", name, item ? item->valuedouble : NAN, want);
}

static void numbers_must_be(const cJSON *object, const char *name, uint32_t count,
                            const double *want)
{
    const cJSON *items = cJSON_GetObjectItem(object, name);
    assert_int_equal(cJSON_GetArraySize(items), count);
    for (uint32_t i = 0; i < count; i++) {
        const double got = cJSON_GetArrayItem(items, (int)i)->valuedouble;
        if (got != want[i])
            fail_msg("%s %u is %.17g, expected %.17g", name, i, got, want[i]);
    }
}

static void was_told(uint32_t i, dp_input_kind kind, uint32_t worker, double value)
{
    assert_true(i < told_count);
    if (told[i].kind != kind || told[i].worker != worker || fabs(told[i].value - value) > 1e-6)
        fail_msg("told %u of %u: %.17g, expected kind %d of %u: %.17g", told[i].kind,
                 told[i].worker, told[i].value, kind, worker, value);
}

// The better box shows the worker's link. With all who probed it far below their own links the
// other one is a limit, which its two shards share.
static void a_probe_changes_links_and_boxes(void **state)
{
    (void)state;
    links_case c;
    begin(&c, false);
    for (uint32_t w = 0; w < WORKERS; w++) {
        const rt_wire_link links[] = {link_of(0, 40, 30), link_of(2, 200 + w, 100 + w)};
        assert_int_equal(take(&c, rt_peer(RT_ROLE_WORKER, w), links, 2, sizeof links, NULL), RT_OK);
        assert_int_equal(c.links.probe_counts[w], 2);
        assert_int_equal(told_count, w == 0 ? 0 : 4);
        c.links.iteration = 9;
        dp_links_tell(&c.links, w, NULL, c.metrics);
        assert_int_equal(c.links.probe_counts[w], 0);
    }
    was_told(0, DP_INPUT_LINK_UP, 0, 200 * MBIT);
    was_told(1, DP_INPUT_LINK_DOWN, 0, 100 * MBIT);
    was_told(2, DP_INPUT_SHARD_LINK, 0, 15 * MBIT);
    was_told(3, DP_INPUT_SHARD_LINK, 1, 15 * MBIT);
    was_told(4, DP_INPUT_LINK_UP, 1, 201 * MBIT);
    was_told(5, DP_INPUT_LINK_DOWN, 1, 101 * MBIT);
    assert_int_equal(told_count, 6);
    dp_links_tell(&c.links, 0, NULL, c.metrics); // told already
    assert_int_equal(told_count, 6);
    fini(&c);
}

static void a_probe_is_recorded(void **state)
{
    (void)state;
    links_case c;
    begin(&c, false);
    const rt_wire_link links[] = {link_of(0, 40, 30), link_of(2, 200, 100)};
    assert_int_equal(take(&c, rt_peer(RT_ROLE_WORKER, 1), links, 2, sizeof links, NULL), RT_OK);
    c.links.iteration = 9;
    dp_links_tell(&c.links, 1, NULL, c.metrics);
    assert_true(c.links.table.version > 0);
    for (uint32_t i = 0; i < 2; i++) {
        cJSON *one = record(&c, "probe", i);
        assert_non_null(one);
        number_must_be(one, "worker", 1);
        number_must_be(one, "shard", 2.0 * i);
        number_must_be(one, "streams", 3 + 2.0 * i);
        number_must_be(one, "up", links[i].up_bytes_per_s);
        number_must_be(one, "down", links[i].down_bytes_per_s);
        number_must_be(one, "up_spread", 0.25 + 2 * i);
        number_must_be(one, "down_spread", 0.5 + 2 * i);
        number_must_be(one, "rtt_ms", links[i].rtt_s * 1e3);
        number_must_be(one, "version", (double)c.links.table.version);
        number_must_be(one, "iteration", 9);
        cJSON_Delete(one);
    }
    assert_null(record(&c, "probe", 2));
    fini(&c);
}

static void must_refuse(links_case *c, uint32_t peer, const rt_wire_link *links, uint32_t count,
                        size_t bytes, const char *words)
{
    rt_error error = {0};
    const rt_status status = take(c, peer, links, count, bytes, &error);
    if (status != RT_WIRE || !strstr(error.text, words))
        fail_msg("status %d (%s), expected RT_WIRE with '%s'", status, error.text, words);
    if (rt_peer_rank(peer) < WORKERS)
        assert_int_equal(c->links.probe_counts[rt_peer_rank(peer)], 0);
}

static void links_that_cannot_be(void **state)
{
    (void)state;
    static const double wrong[] = {-1, -1e-300, NAN, INFINITY};
    links_case c;
    begin(&c, false);
    const uint32_t worker = rt_peer(RT_ROLE_WORKER, 1);
    const rt_wire_link good[] = {link_of(0, 0, 0), link_of(1, 1, 1), link_of(2, 1, 1),
                                 link_of(2, 1, 1)};
    const size_t one = sizeof *good;
    assert_int_equal(take(&c, worker, good, 3, 3 * one, NULL), RT_OK);
    assert_int_equal(c.links.probe_counts[1], 3);
    c.links.probe_counts[1] = 0;
    must_refuse(&c, rt_peer(RT_ROLE_PS, 1), good, 3, 3 * one, "ps 1: a LINK of");
    must_refuse(&c, rt_peer(RT_ROLE_WORKER, WORKERS), good, 3, 3 * one, "with 3 boxes");
    must_refuse(&c, worker, good, 0, 0, "a LINK of 0 bytes with 0 boxes");
    must_refuse(&c, worker, good, 4, 4 * one, "with 4 boxes");
    must_refuse(&c, worker, good, 2, 3 * one, "with 2 boxes");
    must_refuse(&c, worker, good, 3, 3 * one - 1, "with 3 boxes");
    for (uint32_t i = 0; i < 5; i++) { // shards in ascending order, and none that is not there
        static const uint32_t shards[5][2] = {{0, SHARDS}, {SHARDS, 0}, {1, 0}, {1, 1}, {2, 2}};
        const rt_wire_link links[] = {link_of(shards[i][0], 1, 1), link_of(shards[i][1], 1, 1)};
        must_refuse(&c, worker, links, 2, sizeof links, "that cannot be");
    }
    for (size_t i = 0; i < RT_COUNT_OF(wrong); i++) {
        rt_wire_link links[] = {good[0], good[0], good[0]};
        links[0].up_bytes_per_s = links[1].down_bytes_per_s = links[2].rtt_s = wrong[i];
        for (uint32_t k = 0; k < 3; k++)
            must_refuse(&c, worker, &links[k], 1, one, "a LINK to shard 0 that cannot be");
    }
    assert_int_equal(told_count, 0);
    fini(&c);
}

static void report(links_case *c, uint32_t worker, double up, double down)
{
    const rt_wire_report one = {.up_bytes_per_s = up * MBIT,
                                .down_bytes_per_s = down * MBIT,
                                .up_at_least = (1 + worker) * MBIT,
                                .down_at_least = (3 + worker) * MBIT};
    dp_links_reported(&c->links, worker, &one);
}

// Links have a gigabit/s in force. What transfers said in one iteration is not said of the next.
static void transfers_change_links_in_the_end(void **state)
{
    (void)state;
    links_case c;
    begin(&c, false);
    for (uint32_t t = 1; t <= BW_AGREE; t++) {
        assert_int_equal(told_count, 0);
        report(&c, 0, 1000, 1000);
        report(&c, 1, 1000, 500);
        dp_links_iterated(&c.links, t, NULL, c.metrics);
        assert_int_equal(c.links.iteration, t);
        assert_true(c.links.estimates[1].ways[BW_DOWN] == 0);
    }
    assert_int_equal(told_count, 1);
    was_told(0, DP_INPUT_LINK_DOWN, 1, 500 * MBIT);
    fini(&c);
}

static void an_iteration_is_recorded(void **state)
{
    (void)state;
    links_case c;
    begin(&c, false);
    const rt_wire_link probe = link_of(0, 1000, 1000);
    assert_int_equal(take(&c, rt_peer(RT_ROLE_WORKER, 1), &probe, 1, sizeof probe, NULL), RT_OK);
    dp_links_tell(&c.links, 1, NULL, c.metrics);
    bw_table_set_shard_rate(&c.links.table, 2, 70 * MBIT);
    c.links.table.ps[BW_UP].bytes_per_s = c.links.table.ps[BW_DOWN].bytes_per_s = 900 * MBIT;
    report(&c, 0, 900, 910);
    report(&c, 1, 920, 930);
    dp_links_iterated(&c.links, 7, NULL, c.metrics);
    cJSON *one = record(&c, "links", 0);
    assert_non_null(one);
    const cJSON *up = cJSON_GetObjectItem(one, "up"), *down = cJSON_GetObjectItem(one, "down");
    number_must_be(one, "iteration", 7);
    number_must_be(one, "version", (double)c.links.table.version);
    numbers_must_be(up, "in_force", 2, (double[]){1000 * MBIT, 1000 * MBIT});
    numbers_must_be(down, "in_force", 2, (double[]){1000 * MBIT, 1000 * MBIT});
    numbers_must_be(up, "estimate", 2, (double[]){900 * MBIT, 920 * MBIT});
    numbers_must_be(down, "estimate", 2, (double[]){910 * MBIT, 930 * MBIT});
    numbers_must_be(up, "at_least", 2, (double[]){1 * MBIT, 2 * MBIT});
    numbers_must_be(down, "at_least", 2, (double[]){3 * MBIT, 4 * MBIT});
    numbers_must_be(one, "rtt_ms", 2, (double[]){0, 2});
    number_must_be(one, "ps", 900 * MBIT);
    numbers_must_be(one, "shards", 3, (double[]){0, 0, 70 * MBIT});
    cJSON_Delete(one);
    dp_links_iterated(&c.links, 8, NULL, c.metrics); // nobody said anything
    one = record(&c, "links", 1);
    numbers_must_be(cJSON_GetObjectItem(one, "up"), "estimate", 2, (double[]){0, 0});
    numbers_must_be(cJSON_GetObjectItem(one, "up"), "at_least", 2, (double[]){0, 0});
    cJSON_Delete(one);
    fini(&c);
}

static void pinned_links_stay(void **state)
{
    (void)state;
    links_case c;
    begin(&c, true);
    for (uint32_t t = 1; t <= 2 * BW_LASTS; t++) {
        report(&c, 0, 10, 10);
        report(&c, 1, 10, 10);
        dp_links_iterated(&c.links, t, NULL, c.metrics);
        assert_int_equal(c.links.iteration, t);
    }
    assert_int_equal(told_count, 0);
    assert_null(record(&c, "links", 0));
    fini(&c);
}

// All workers read slow at once: it is the link of the parameter servers.
static void a_shared_link_is_told(void **state)
{
    (void)state;
    links_case c;
    begin(&c, false);
    for (uint32_t t = 1; t <= BW_AGREE; t++) {
        report(&c, 0, 100, 1000);
        report(&c, 1, 100, 1000);
        dp_links_iterated(&c.links, t, NULL, c.metrics);
    }
    assert_int_equal(told_count, 1);
    was_told(0, DP_INPUT_PS_LINK, 0, 200 * MBIT);
    fini(&c);
}

TEST_MAIN(TEST(a_probe_changes_links_and_boxes), TEST(a_probe_is_recorded),
          TEST(links_that_cannot_be), TEST(transfers_change_links_in_the_end),
          TEST(an_iteration_is_recorded), TEST(pinned_links_stay), TEST(a_shared_link_is_told))
