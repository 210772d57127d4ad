// dp_setup: how many rows a cache has, and what else a planner is told.
#include "tests/support/test.h"

#include <stdio.h>
#include <string.h>

#include "dispatch/planner/dp_setup.h"
#include "tests/support/config_case.h"

// Of the caches of two workers with 256 samples of 26 keys each.
static uint32_t slots(const char *assignment, uint64_t distinct_keys)
{
    const rt_schema schema = {.field_count = 26, .keys_per_sample_max = 26};
    rt_config config = config_fresh();
    dp_planner_config planner;
    rt_error error = {0};
    config_must_set(&config, "workers=2");
    config_must_set(&config, "batch.samples_per_worker=256");
    if (assignment)
        config_must_set(&config, assignment);
    assert_int_equal(dp_setup(&config, &schema, distinct_keys, &planner, &error), RT_OK);
    assert_int_equal(planner.slot_count[0], planner.slot_count[1]);
    rt_config_fini(&config);
    return planner.slot_count[0];
}

static void caches(void **state)
{
    (void)state;
    assert_int_equal(slots(NULL, 1000000), 80000); // cache.ratio 0.08
    assert_int_equal(slots(NULL, 1000003), 80001);
    assert_int_equal(slots("cache.ratio=0.5", 100000), 50000);
    assert_int_equal(slots(NULL, 5000), 256 * 26); // not 400: no batch would fit
    assert_int_equal(slots("cache.distinct_keys=5000", 0), 256 * 26);
    assert_int_equal(slots("cache.rows=300", 5000), 300); // as it is said; dp_planner_check refuses
    assert_in_range(slots(NULL, 0), 2 * 256 * 26, UINT32_MAX); // of keys that nobody can count
}

// What a worker's share of a batch may need has to fit a cache, however its size is given: products
// past 32 bits among them.
static void shares(void **state)
{
    (void)state;
    static const struct {
        const char *workers, *samples, *rows;
        uint32_t keys;
        const char *want; // NULL: it fits
    } cases[] = {
        {"workers=1", "batch.samples=1000", "cache.rows=0", 67108, NULL},
        {"workers=1", "batch.samples=1000", "cache.rows=0", 67109, "batch.samples: a worker's"},
        {"workers=1", "batch.samples=1000", "cache.rows=67108863", 67109, "at most 67108863"},
        {"workers=1", "batch.samples=4194304", "cache.rows=0", 1024, "may need 4294967296 rows"},
        {"workers=64", "batch.samples=4194304", "cache.rows=0", 1023, NULL},
        {"workers=64", "batch.samples=4194304", "cache.rows=0", 1024, "or more workers"},
        {"workers=2", "batch.samples_per_worker=65536", "cache.rows=0", 65536,
         "batch.samples_per_worker: a worker's share of a batch, 65536 samples"},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        const rt_schema schema = {.field_count = 1, .keys_per_sample_max = cases[i].keys};
        rt_config config = config_fresh();
        dp_planner_config planner;
        rt_error error = {0};
        uint64_t rows;
        config_must_set(&config, cases[i].workers);
        config_must_set(&config, cases[i].samples);
        config_must_set(&config, cases[i].rows);
        const rt_status status = dp_setup(&config, &schema, 100, &planner, &error);
        assert_int_equal(status, cases[i].want ? RT_CONFIG : RT_OK);
        if (cases[i].want)
            assert_non_null(strstr(error.text, cases[i].want));
        assert_int_equal(dp_setup_share_rows(&config, &schema, &rows, &error), status);
        assert_int_equal(rows, (uint64_t)rt_config_share(&config) * cases[i].keys);
        rt_config_fini(&config);
    }
}

#define BOX(name, rest) "{\"name\":\"" name "\"" rest "}"

// Links of boxes in bytes per second, and who is where.
static void boxes(void **state)
{
    (void)state;
    static const uint8_t of_worker[] = {0, 2, 2}, of_shard[] = {0, 1, 1};
    const rt_schema schema = {.field_count = 2, .keys_per_sample_max = 2};
    rt_config config = config_fresh();
    dp_planner_config planner;
    rt_error error = {0};
    config_must_set(
        &config,
        "boxes=[" BOX("a", ",\"gbps\":0.5,\"workers\":1,\"shards\":1") "," BOX(
            "b", ",\"gbps_up\":2,\"gbps_down\":4,\"workers\":0,\"shards\":2") "," BOX("c",
                                                                                      ",\"gbps_"
                                                                                      "up\":1,"
                                                                                      "\"gbps_"
                                                                                      "down\":8,"
                                                                                      "\"workers\":"
                                                                                      "2") "]");
    assert_int_equal(dp_setup(&config, &schema, 1000, &planner, &error), RT_OK);
    assert_int_equal(planner.boxes.count, 3);
    assert_int_equal(planner.boxes.worker_count, 3);
    assert_memory_equal(planner.boxes.of_worker, of_worker, sizeof of_worker);
    assert_memory_equal(planner.boxes.of_shard, of_shard, sizeof of_shard);
    const double up[] = {62.5e6, 250e6, 125e6}, down[] = {62.5e6, 500e6, 1e9};
    for (uint32_t b = 0; b < 3; b++) {
        assert_true(planner.boxes.given[b].up_bytes_per_s == up[b]);
        assert_true(planner.boxes.given[b].down_bytes_per_s == down[b]);
    }
    assert_int_equal(planner.shard_rows_max, dp_setup_rows_that_fit(&config) / 3);
    rt_config_fini(&config);
    config = config_fresh();
    assert_int_equal(dp_setup(&config, &schema, 1000, &planner, &error), RT_OK);
    assert_int_equal(planner.boxes.count, 0);
    rt_config_fini(&config);
}

// With one or two assignments; rows of 26 fields.
static rt_status set_up(const char *one, const char *other, dp_planner_config *planner,
                        rt_error *error)
{
    const rt_schema schema = {.field_count = 26, .keys_per_sample_max = 26};
    rt_config config = config_fresh();
    config_must_set(&config, "batch.samples_per_worker=10");
    if (one)
        config_must_set(&config, one);
    if (other)
        config_must_set(&config, other);
    const rt_status status = dp_setup(&config, &schema, 0, planner, error);
    rt_config_fini(&config);
    return status;
}

static void must_be_refused(const char *one, const char *other, const char *text)
{
    dp_planner_config planner;
    rt_error error = {0};
    assert_int_equal(set_up(one, other, &planner, &error), RT_CONFIG);
    if (!strstr(error.text, text))
        fail_msg("%s", error.text);
}

static void what_cannot_be_set_up(void **state)
{
    (void)state;
    dp_planner_config planner;
    must_be_refused("cache.ratio=1", "cache.distinct_keys=67108864",
                    "a cache of 67108864 rows per worker, at most 67108863 are possible");
    assert_int_equal(set_up("cache.ratio=1", "cache.distinct_keys=67108863", &planner, NULL),
                     RT_OK);
    must_be_refused("model.embedding_dim=[4,8]", NULL, "a list of 2, but the input has 26 fields");
}

// 64 MiB of rows with their state, and two batches at least.
static void rows_where_nobody_counts(void **state)
{
    (void)state;
    dp_planner_config planner;
    assert_int_equal(set_up("model.embedding_dim=64", "optimizer.rows.name=sgd", &planner, NULL),
                     RT_OK);
    assert_int_equal(planner.slot_count[0], (64u << 20) / (64 * 4));
    assert_int_equal(set_up("model.embedding_dim=64", NULL, &planner, NULL), RT_OK);
    assert_int_equal(planner.slot_count[0], (64u << 20) / (2 * 64 * 4));
    assert_int_equal(
        set_up("model.embedding_dim=4096", "batch.samples_per_worker=100", &planner, NULL), RT_OK);
    assert_int_equal(planner.slot_count[0], 2 * 100 * 26);
}

static void micro_batches(void **state)
{
    (void)state;
    static const struct {
        const char *one, *other;
        uint32_t min, max;
    } cases[] = {{"dispatch.policy=esd", NULL, 0, 0},
                 {"dispatch.policy=makespan", NULL, 0, 40},
                 {"dispatch.policy=makespan", "workers=20", 0, 80},
                 {"dispatch.policy=makespan", "dispatch.micro_batches=equal", 0, 0},
                 {"dispatch.policy=makespan", "dispatch.micro_batch_max=17", 0, 17},
                 {"dispatch.policy=esd", "dispatch.micro_batch_max=17", 0, 0},
                 {"dispatch.policy=makespan", "dispatch.micro_batch_min=3", 3, 40}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        dp_planner_config planner;
        assert_int_equal(set_up(cases[i].one, cases[i].other, &planner, NULL), RT_OK);
        assert_int_equal(planner.micro_batch_min, cases[i].min);
        assert_int_equal(planner.micro_batch_max, cases[i].max);
        assert_int_equal(dp_planner_micro_batch_max(&planner),
                         cases[i].max < 10 ? 10 : cases[i].max);
    }
}

// The bytes of a row with its state, an eighth for what is free between rows, its key and what
// finds it; a tenth stays free.
static void rows_that_shards_hold(void **state)
{
    (void)state;
    static const struct {
        const char *one, *other;
        uint64_t rows; // of one shard
    } cases[] = {
        // 2 x 16 floats: 144 bytes, 8 and 51.2
        {"ps.memory_bytes_max=1048576", NULL, (uint64_t)(0.9 * (1048576 / 203.2))},
        {"ps.memory_bytes_max=1048576", "ps.shards=3", 3 * (uint64_t)(0.9 * (1048576 / 203.2))},
        {"ps.storage=disk", "ps.memory_bytes_max=1048576", (uint64_t)(0.9 * (1048576 / 59.2))},
        {"ps.storage=disk", "ps.disk_bytes_max=1048576", (uint64_t)(0.9 * (1048576 / 144.0))}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        dp_planner_config planner;
        assert_int_equal(set_up(cases[i].one, cases[i].other, &planner, NULL), RT_OK);
        assert_in_range(planner.rows.max, cases[i].rows - 1, cases[i].rows + 1);
    }
}

static void rows_that_end(void **state)
{
    (void)state;
    dp_planner_config planner;
    assert_int_equal(set_up("rows.max=1000", "rows.expire_iterations=9", &planner, NULL), RT_OK);
    assert_int_equal(planner.rows.max, 1000);
    assert_int_equal(planner.rows.expire_iterations, 9);
}

// Slots of the second of two workers, in batches of 10 samples of 3 keys.
static void check_slots(uint32_t slots, uint32_t overshoot, uint32_t participants_min,
                        const char *text)
{
    const dp_planner_config planner = {.worker_count = 2,
                                       .sample_count_max = 10,
                                       .keys_per_sample_max = 3,
                                       .overshoot = overshoot,
                                       .participants_min = participants_min,
                                       .slot_count = {1000, slots}};
    rt_error error = {0};
    assert_int_equal(dp_planner_check(&planner, &error), text ? RT_CONFIG : RT_OK);
    if (text && !strstr(error.text, text))
        fail_msg("%s", error.text);
}

static void slots_that_a_planner_needs(void **state)
{
    (void)state;
    check_slots(15, 0, 0, NULL);
    check_slots(
        14, 0, 0,
        "the cache of worker 1 has 14 rows, but one micro-batch may need 15 (5 samples x 3 keys)");
    check_slots(16, 15, 0, NULL);
    check_slots(15, 15, 0, "worker 1 has 15 rows");
    check_slots(30, 0, 1, NULL);
    check_slots(29, 0, 1, "may need 30 (10 samples x 3 keys)");
    check_slots(DP_SLOTS_MAX - 1, 0, 0, NULL);
    check_slots(DP_SLOTS_MAX, 0, 0,
                "the cache of worker 1 has 67108864 rows, at most 67108863 are possible");
}

// Values as they are, in bytes and seconds.
static void what_a_planner_is_told(void **state)
{
    (void)state;
    static const char *const sets[] = {"workers=3",
                                       "links.workers=[1,2,{\"gbps_up\":4,\"gbps_down\":8}]",
                                       "links.ps_gbps=3",
                                       "ps.shards=2",
                                       "seed=77",
                                       "cache.eviction=lfu",
                                       "cache.lookahead=5",
                                       "cache.distinct_keys=900",
                                       "cache.rows=3000",
                                       "network.dense_wire=bf16",
                                       "network.row_wire=int8",
                                       "rows.expire_iterations=9",
                                       "rows.admit=3",
                                       "rows.admit_bytes=5000",
                                       "model.embedding_dim=[8,12]",
                                       "sim.compute_us_per_sample=30",
                                       "dispatch.participants=[0,2]",
                                       "batch.samples_per_worker=10"};
    const rt_schema schema = {.field_count = 2, .keys_per_sample_max = 2};
    rt_config config = config_fresh();
    dp_planner_config planner;
    for (size_t i = 0; i < RT_COUNT_OF(sets); i++)
        config_must_set(&config, sets[i]);
    assert_int_equal(dp_setup(&config, &schema, 0, &planner, NULL), RT_OK);
    assert_int_equal(planner.worker_count, 3);
    assert_int_equal(planner.sample_count_max, 30);
    assert_int_equal(planner.keys_per_sample_max, 2);
    assert_int_equal(planner.eviction, RT_EVICT_LFU);
    assert_int_equal(planner.lookahead, 5);
    assert_int_equal(planner.seed, 77);
    assert_int_equal(planner.keys_expected, 900);
    assert_int_equal(planner.dense_wire, RT_CODING_BF16);
    assert_int_equal(planner.layout.wire, RT_CODING_INT8);
    assert_int_equal(planner.layout.field_count, 2);
    assert_int_equal(planner.rows.expire_iterations, 9);
    assert_int_equal(planner.rows.admit, 3);
    assert_int_equal(planner.rows.admit_bytes, 5000);
    assert_int_equal(planner.participants, 5);
    assert_int_equal(planner.dispatch.policy, config.dispatch.policy);
    assert_int_equal(planner.rates.shards.count, 2);
    assert_int_equal(planner.rates.shards.dense_count, 2);
    assert_true(planner.rates.ps_bytes_per_s == 375e6);
    for (uint32_t f = 0; f < 2; f++) {
        assert_int_equal(planner.layout.values[f], 8 + 4 * f);
        assert_int_equal(planner.layout.state[f], 8 + 4 * f);
    }
    const double up[] = {125e6, 250e6, 500e6}, down[] = {125e6, 250e6, 1e9};
    for (uint32_t j = 0; j < 3; j++) {
        assert_true(planner.rates.links[j].up_bytes_per_s == up[j]);
        assert_true(planner.rates.links[j].down_bytes_per_s == down[j]);
        test_close(planner.rates.compute_s_per_sample[j], 30e-6, 1e-12, 0, "seconds per sample");
        assert_int_equal(planner.slot_count[j], 3000);
    }
    rt_config_fini(&config);
}

// With copies that may be stale a micro-batch has slots of its own.
static void stale_copies_take_slots(void **state)
{
    (void)state;
    static const char *const staleness[] = {"consistency.staleness=0", "consistency.staleness=1",
                                            "consistency.staleness=5"};
    for (uint32_t i = 0; i < RT_COUNT_OF(staleness); i++) {
        dp_planner_config planner;
        assert_int_equal(set_up(staleness[i], "cache.rows=700", &planner, NULL), RT_OK);
        assert_int_equal(planner.overshoot, i ? 260 : 0);
        for (uint32_t j = 0; j < 4; j++)
            assert_int_equal(planner.slot_count[j], i ? 960 : 700);
    }
}

static void threads(void **state)
{
    (void)state;
    static const char *const sets[] = {"planner.threads=1", "planner.threads=2",
                                       "planner.threads=3"};
    for (uint32_t i = 0; i < RT_COUNT_OF(sets); i++) {
        rt_config config = config_fresh();
        rt_pool *pool = (rt_pool *)&config; // not of any run
        config_must_set(&config, sets[i]);
        assert_int_equal(dp_setup_threads(&config, &pool, NULL), RT_OK);
        assert_int_equal(pool != NULL, i > 0);
        assert_int_equal(rt_pool_threads(pool), i + 1);
        rt_pool_destroy(pool);
        rt_config_fini(&config);
    }
}

// As few as have room for a batch.
static void the_fewest_workers(void **state)
{
    (void)state;
    static const struct {
        const char *rows, *who;
        uint32_t fewest;
    } cases[] = {{"cache.rows=1040", "dispatch.participants=auto", 1},
                 {"cache.rows=1039", "dispatch.participants=auto", 2},
                 {"cache.rows=520", "dispatch.participants=rotate", 2},
                 {"cache.rows=519", "dispatch.participants=[0,1,2]", 3},
                 {"cache.rows=260", "dispatch.participants=auto", 4},
                 {"cache.rows=25", "dispatch.participants=auto", 4},
                 {"cache.rows=5000", "dispatch.participants=all", 0}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        dp_planner_config planner;
        assert_int_equal(set_up(cases[i].rows, cases[i].who, &planner, NULL), RT_OK);
        assert_int_equal(planner.participants_min, cases[i].fewest);
    }
}

// Gradients may be rounded; weights that somebody fetches are not, and have their state with them.
static void the_dense_part(void **state)
{
    (void)state;
    static const struct {
        const char *wire, *optimizer;
        uint64_t bytes, whole, back;
    } cases[] = {{NULL, "optimizer.dense.name=sgd", 4000, 0, 4000},
                 {NULL, "optimizer.dense.name=adagrad", 4000, 0, 8000},
                 {"network.dense_wire=bf16", "optimizer.dense.name=adam", 2000, 0, 12000},
                 {"network.dense_wire=int8", "optimizer.dense.name=sgd", 1016, 4000, 4000}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        rt_config config = config_fresh();
        dp_planner_config planner = {0};
        if (cases[i].wire)
            config_must_set(&config, cases[i].wire);
        config_must_set(&config, cases[i].optimizer);
        dp_setup_dense(&config, cases[i].bytes, &planner);
        assert_int_equal(planner.dense_bytes, cases[i].bytes);
        assert_int_equal(planner.dense_whole_bytes, cases[i].whole);
        assert_int_equal(planner.dense_return_bytes, cases[i].back);
        rt_config_fini(&config);
    }
}

// The input is read where nothing else says how many keys there are, and only then.
static void keys_are_counted(void **state)
{
    (void)state;
    static const char *const known[] = {"cache.rows=1", "cache.distinct_keys=1"};
    uint64_t keys = 1;
    rt_error error = {0};
    const char *input = config_write_criteo(60, 0); // 13 and 26 values of i % (f + 2)
    rt_config config = config_fresh();
    config_must_set(&config, input);
    assert_true(dp_setup_needs_keys(&config));
    assert_int_equal(dp_setup_count_keys(&config, &keys, &error), RT_OK);
    uint64_t want = 0;
    for (uint32_t f = 13; f < 39; f++)
        want += f + 2;
    assert_int_equal(keys, want);
    for (size_t i = 0; i < RT_COUNT_OF(known); i++) {
        rt_config other = config_fresh();
        config_must_set(&other, input);
        config_must_set(&other, known[i]);
        keys = 1;
        assert_false(dp_setup_needs_keys(&other));
        assert_int_equal(dp_setup_count_keys(&other, &keys, &error), RT_OK);
        assert_int_equal(keys, 0);
        rt_config_fini(&other);
    }
    rt_config_fini(&config);
    config = config_fresh();
    config_must_set(&config, "stream.files=[\"-\"]"); // standard input can be read once
    assert_false(dp_setup_needs_keys(&config));
    rt_config_fini(&config);
}

static void an_empty_input_is_an_error(void **state)
{
    (void)state;
    uint64_t keys;
    char one[600], two[700];
    rt_error error = {0};
    snprintf(one, sizeof one, "%s", config_write_criteo(0, 0));
    for (uint32_t files = 1; files <= 2; files++) {
        rt_config config = config_fresh();
        snprintf(two, sizeof two, "%.*s,\"%s\"]", (int)strlen(one) - 1, one, test_path("rows"));
        config_must_set(&config, files == 1 ? one : two);
        assert_int_equal(dp_setup_count_keys(&config, &keys, &error), RT_DATA);
        assert_non_null(strstr(error.text, test_path("rows")));
        assert_int_equal(strstr(error.text, ", ...") != NULL, files == 2);
        rt_config_fini(&config);
    }
    rt_config config = config_fresh();
    config_must_set(&config, "stream.files=[\"/nowhere/at/all\"]");
    assert_true(dp_setup_count_keys(&config, &keys, &error) != RT_OK);
    rt_config_fini(&config);
}

TEST_MAIN(TEST(keys_are_counted), TEST(an_empty_input_is_an_error), TEST(caches), TEST(shares),
          TEST(boxes), TEST(what_cannot_be_set_up), TEST(rows_where_nobody_counts),
          TEST(micro_batches), TEST(rows_that_shards_hold), TEST(rows_that_end),
          TEST(slots_that_a_planner_needs), TEST(the_fewest_workers), TEST(the_dense_part),
          TEST(what_a_planner_is_told), TEST(stale_copies_take_slots), TEST(threads))
