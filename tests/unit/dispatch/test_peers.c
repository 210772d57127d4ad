// Bagpipe's designs in simulation, against the definitions carried out the slow way: every batch is
// kept, and what a window needs is found by reading its batches again.
#include "dispatch/sim/dp_peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/cost/dp_ticks.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

#define WORKERS 4u
#define PER_WORKER 8u
#define BATCH (WORKERS * PER_WORKER)
#define BATCHES 40u
#define LAST_SAMPLES 13u
#define COUNT (BATCHES + 1)
#define DIM 8u

// ---- the stream --------------------------------------------------------------------------------

static rt_config config_of(const char *const *sets)
{
    rt_config config = config_fresh();
    char samples[64];
    snprintf(samples, sizeof samples, "stream.samples_max=%u", BATCH * BATCHES + LAST_SAMPLES);
    config_must_set(&config, "stream.format=synthetic");
    config_must_set(&config, "stream.synthetic.scale=0.0005");
    config_must_set(&config, samples);
    config_must_set(&config, "batch.samples_per_worker=8");
    config_must_set(&config, "model.embedding_dim=8");
    config_must_set(&config, "cache.rows=2000");
    config_must_set(&config, "links.workers=[5, 5, 0.5, 0.5]");
    config_must_set(&config, "sim.warmup=0");
    for (; sets && *sets; sets++)
        config_must_set(&config, *sets);
    return config;
}

static void read_all(const rt_config *config, rt_batch batches[COUNT])
{
    rt_stream *stream;
    assert_int_equal(rt_stream_open(&config->stream, config->seed, &stream, NULL), RT_OK);
    const uint32_t dense = rt_stream_schema(stream)->dense_count;
    for (uint32_t b = 0; b < COUNT; b++) {
        rt_batch_init(&batches[b], dense);
        assert_int_equal(rt_stream_read(stream, &batches[b], BATCH, NULL), RT_OK);
    }
    rt_stream_close(stream);
}

static dp_sim_result simulate(const rt_config *config, const char *spec)
{
    dp_peer peer;
    dp_sim_result result;
    rt_error error = {0};
    rt_stream *stream;
    assert_int_equal(rt_stream_open(&config->stream, config->seed, &stream, NULL), RT_OK);
    const rt_schema schema = *rt_stream_schema(stream);
    rt_stream_close(stream);
    const dp_sim_config sim = {.config = config, .schema = &schema, .dense_bytes = 1000};
    assert_int_equal(dp_peer_parse(spec, &peer, &error), RT_OK);
    if (dp_peer_run(&sim, &peer, &result, &error))
        fail_msg("%s: %s", spec, error.text);
    return result;
}

static uint32_t worker_of(const rt_batch *batch, uint32_t i)
{
    return i * WORKERS / batch->sample_count;
}

// Samples of a batch that use a key; *mask_p: their workers.
static uint32_t uses_of(const rt_batch *batch, uint64_t key, uint32_t *mask_p)
{
    uint32_t uses = 0;
    *mask_p = 0;
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        for (uint32_t at = batch->key_offsets[i]; at < batch->key_offsets[i + 1]; at++) {
            if (batch->keys[at] != key)
                continue;
            uses++;
            *mask_p |= 1u << worker_of(batch, i);
        }
    }
    return uses;
}

static bool has_key(const rt_batch *batch, uint64_t key)
{
    uint32_t mask;
    return uses_of(batch, key, &mask) > 0;
}

static int compare_keys(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// The keys of batches [first, last), each once.
static uint32_t distinct_of(const rt_batch *batches, uint32_t first, uint32_t last, uint64_t *keys)
{
    uint32_t count = 0, distinct = 0;
    for (uint32_t b = first; b < last; b++) {
        memcpy(keys + count, batches[b].keys, batches[b].key_count * sizeof *keys);
        count += batches[b].key_count;
    }
    qsort(keys, count, sizeof *keys, compare_keys);
    for (uint32_t i = 0; i < count; i++) {
        if (i == 0 || keys[i] != keys[distinct - 1])
            keys[distinct++] = keys[i];
    }
    return distinct;
}

typedef struct {
    uint64_t pulls[WORKERS], row_pushes, grad_pushes[WORKERS], reduced, first_touches;
    uint64_t critical, window_rows, window_batches;
} expected;

// Samples are given out in sequence, to all workers equally many. An iteration takes no less than
// what each link carries in it.
static void compare_loads(const rt_config *config, const rt_batch *batches,
                          const dp_sim_result *result)
{
    uint64_t lookups = 0, samples[WORKERS] = {0};
    const dp_account *account = &result->account;
    for (uint32_t b = 0; b < COUNT; b++) {
        lookups += batches[b].key_count;
        for (uint32_t j = 0; j < WORKERS; j++)
            samples[j] +=
                batches[b].sample_count / WORKERS + (j < batches[b].sample_count % WORKERS);
    }
    assert_int_equal(account->hits.lookups, lookups);
    assert_in_range(account->hits.lookups_hit, 0, lookups);
    for (uint32_t j = 0; j < WORKERS; j++) {
        const double up = config->links.workers[j].gbps_up * 1e9 / 8;
        const double down = config->links.workers[j].gbps_down * 1e9 / 8;
        assert_int_equal(account->micro_batch[j], samples[j]);
        assert_true(account->predicted_s >= (double)account->traffic[j].up / up * (1 - 1e-9));
        assert_true(account->predicted_s >= (double)account->traffic[j].down / down * (1 - 1e-9));
    }
}

static void compare(const dp_sim_result *result, const expected *want)
{
    uint64_t row_pushes = 0, first = 0;
    assert_int_equal(result->account.iterations, COUNT);
    assert_int_equal(result->account.samples, BATCH * BATCHES + LAST_SAMPLES);
    for (uint32_t j = 0; j < WORKERS; j++) {
        const rt_counts *got = &result->account.workers[j];
        assert_int_equal(got->miss_pull, want->pulls[j]);
        assert_int_equal(got->grad_push, want->grad_pushes[j]);
        row_pushes += got->evict_push;
        first += got->first_touch;
    }
    assert_int_equal(row_pushes, want->row_pushes);
    assert_int_equal(first, want->first_touches);
    assert_int_equal(result->reduce_bytes, want->reduced * DIM * sizeof(float));
    assert_int_equal(result->reduce_critical_bytes, want->critical * DIM * sizeof(float));
    assert_int_equal(result->window_rows, want->window_rows);
    assert_int_equal(result->window_batches, want->window_batches);
}

// ---- bagpipe -----------------------------------------------------------------------------------

// Where the window of batch b ends, behind its last batch: it never shrinks from the left, and
// grows while its rows fit.
static uint32_t window_end(const rt_batch *batches, uint32_t b, uint32_t end, uint32_t limit,
                           uint32_t slots, uint64_t *keys)
{
    end = end > b ? end : b + 1;
    while (end < COUNT && end - b < limit && distinct_of(batches, b, end + 1, keys) <= slots)
        end++;
    return end;
}

static expected expect_bagpipe(const rt_batch *batches, uint32_t limit, uint32_t slots,
                               bool replicate, bool pulls_first)
{
    expected want = {0};
    uint64_t *keys = malloc(COUNT * BATCH * 64 * sizeof *keys);
    uint32_t end = 0, ends[COUNT];
    for (uint32_t b = 0; b < COUNT; b++)
        ends[b] = end = window_end(batches, b, end, limit, slots, keys);
    for (uint32_t b = 0; b < COUNT; b++) {
        want.window_rows += distinct_of(batches, b, ends[b], keys);
        want.window_batches += ends[b] - b;
        const uint32_t count = distinct_of(batches, b, b + 1, keys);
        for (uint32_t k = 0; k < count; k++) {
            uint32_t mask, before = b, again = b + 1;
            const uint32_t uses = uses_of(&batches[b], keys[k], &mask);
            while (before > 0 && !has_key(&batches[before - 1], keys[k]))
                before--; // the last use is in batch before - 1
            while (again < ends[b] && !has_key(&batches[again], keys[k]))
                again++;
            const bool stays = again<ends[b], is_cached = before> 0 && ends[before - 1] > b;
            const bool is_private = !replicate && uses == 1 && !stays;
            const bool moves = !is_cached && (before > 0 || pulls_first);
            for (uint32_t j = 0; j < WORKERS; j++) {
                const bool fetches = !is_private || mask >> j & 1;
                want.pulls[j] += moves && fetches;
                want.first_touches += before == 0 && fetches;
            }
            want.reduced += !is_private;
            want.critical += !is_private && ends[b] > b + 1 && has_key(&batches[b + 1], keys[k]);
            want.row_pushes += !stays;
        }
    }
    free(keys);
    return want;
}

static void bagpipe_moves_what_its_window_says(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *cache, *first;
        uint32_t limit, slots;
        bool replicate, pulls_first;
    } cases[] = {
        {"bagpipe:window=1", "cache.rows=2000", "dispatch.first_touch=local", 1, 2000, false,
         false},
        {"bagpipe:window=2", "cache.rows=2000", "dispatch.first_touch=pull", 2, 2000, false, true},
        {"bagpipe:window=7", "cache.rows=2000", "dispatch.first_touch=local", 7, 2000, false,
         false},
        {"bagpipe", "cache.rows=900", "dispatch.first_touch=local", 1024, 900, false, false},
        {"bagpipe:window=30", "cache.rows=700", "dispatch.first_touch=pull", 30, 700, false, true},
        {"bagpipe:window=5:replicate=true", "cache.rows=2000", "dispatch.first_touch=local", 5,
         2000, true, false},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        const char *const sets[] = {cases[i].cache, cases[i].first, NULL};
        rt_config config = config_of(sets);
        rt_batch batches[COUNT];
        read_all(&config, batches);
        const expected want = expect_bagpipe(batches, cases[i].limit, cases[i].slots,
                                             cases[i].replicate, cases[i].pulls_first);
        const dp_sim_result got = simulate(&config, cases[i].spec);
        compare(&got, &want);
        compare_loads(&config, batches, &got);
        for (uint32_t b = 0; b < COUNT; b++)
            rt_batch_fini(&batches[b]);
        rt_config_fini(&config);
    }
}

// Partitioned: a row comes to one worker and is written back once, whatever moves between workers,
// and placing samples by their rows leaves fewer of those moves than giving them out in sequence.
static void bagpipe_has_rows_on_one_worker(void **state)
{
    (void)state;
    rt_config config = config_of(NULL);
    rt_batch batches[COUNT];
    read_all(&config, batches);
    const expected want = expect_bagpipe(batches, 7, 2000, true, false);
    const dp_sim_result got = simulate(&config, "bagpipe:window=7:partition=true");
    const dp_sim_result sequence = simulate(&config, "bagpipe:window=7");
    const dp_layout *layout = &got.costs.layout;
    uint64_t pulls = 0, pushes = 0, up = 0, down = 0;
    for (uint32_t j = 0; j < WORKERS; j++) {
        pulls += got.account.workers[j].miss_pull;
        pushes += got.account.workers[j].evict_push;
        up += got.account.traffic[j].up;
        down += got.account.traffic[j].down;
    }
    assert_int_equal(pulls, want.pulls[0]); // replicated, each worker pulls every row once
    assert_int_equal(pushes, want.row_pushes);
    assert_int_equal(got.reduce_bytes, 0);
    const uint64_t fetched = got.account.handed.rows, whole = dp_row_bytes(layout, 0, true);
    const uint64_t back_and_forth = dp_row_bytes(layout, 0, false) + dp_grad_bytes(layout, 0);
    assert_int_equal(up, pulls * 16 + pushes * whole + fetched * back_and_forth);
    assert_int_equal(down, pulls * whole + fetched * back_and_forth);
    assert_true(fetched >= got.account.hits.keys - got.account.hits.distinct);
    // If every row were with one of its users, which no placement sees to: in sequence it is half
    // as many again.
    const uint64_t at_least = sequence.account.hits.keys - sequence.account.hits.distinct;
    if (4 * fetched >= 5 * at_least)
        fail_msg("%" PRIu64 " rows from other workers, at least %" PRIu64 " in sequence", fetched,
                 at_least);
    for (uint32_t b = 0; b < COUNT; b++)
        rt_batch_fini(&batches[b]);
    rt_config_fini(&config);
}

static void a_batch_that_no_cache_holds(void **state)
{
    (void)state;
    dp_peer peer;
    dp_sim_result result;
    rt_error error = {0};
    rt_config config = config_of((const char *const[]){"cache.rows=250", NULL});
    rt_stream *stream;
    assert_int_equal(rt_stream_open(&config.stream, config.seed, &stream, NULL), RT_OK);
    const rt_schema schema = *rt_stream_schema(stream);
    rt_stream_close(stream);
    const dp_sim_config sim = {.config = &config, .schema = &schema};
    assert_int_equal(dp_peer_parse("bagpipe", &peer, &error), RT_OK);
    assert_int_equal(dp_peer_run(&sim, &peer, &result, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "the cache of a worker 250 (cache.rows)"));
    rt_config_fini(&config);
}

// ---- words -------------------------------------------------------------------------------------

static void specs(void **state)
{
    (void)state;
    dp_peer peer;
    rt_error error = {0};
    assert_int_equal(dp_peer_parse("laia", &peer, &error), RT_NOT_FOUND);
    assert_int_equal(dp_peer_parse("bagpipes", &peer, &error), RT_NOT_FOUND);
    assert_int_equal(dp_peer_parse("bag", &peer, &error), RT_NOT_FOUND);
    assert_int_equal(dp_peer_parse("bagpipe:window=3:replicate=false", &peer, &error), RT_OK);
    assert_true(peer.window == 3 && !peer.replicate);
    assert_int_equal(dp_peer_parse("bagpipe:partition=true", &peer, &error), RT_OK);
    assert_true(peer.partition);
    static const char *const bad[] = {"bagpipe:partition=true:replicate=true",
                                      "bagpipe:window=0",
                                      "bagpipe:window=1025",
                                      "bagpipe:hot_rows=3",
                                      "bagpipe:window=-1",
                                      "bagpipe:window=",
                                      "bagpipe:",
                                      "bagpipe:replicate=truely",
                                      "bagpipe:replicate=yes",
                                      "bagpipe:window=7x"};
    for (size_t i = 0; i < RT_COUNT_OF(bad); i++) {
        assert_int_equal(dp_peer_parse(bad[i], &peer, &error), RT_CONFIG);
        assert_non_null(strstr(error.text, bad[i]));
    }
}

// Half a stream would give half a result, without a word.
static void bad_data_is_an_error(void **state)
{
    (void)state;
    static const char *const specs[] = {"bagpipe", "bagpipe:window=2", "bagpipe:partition=true"};
    const char *const sets[] = {"stream.format=criteo", "stream.samples_max=0",
                                config_write_criteo(20 * BATCH, 1200), NULL};
    rt_config config = config_of(sets);
    rt_stream *stream;
    assert_int_equal(rt_stream_open(&config.stream, config.seed, &stream, NULL), RT_OK);
    const rt_schema schema = *rt_stream_schema(stream);
    rt_stream_close(stream);
    const dp_sim_config sim = {.config = &config, .schema = &schema};
    for (size_t i = 0; i < RT_COUNT_OF(specs); i++) {
        dp_peer peer;
        dp_sim_result result;
        rt_error error = {0};
        assert_int_equal(dp_peer_parse(specs[i], &peer, &error), RT_OK);
        assert_int_equal(dp_peer_run(&sim, &peer, &result, &error), RT_DATA);
        assert_non_null(strstr(error.text, "are malformed"));
    }
    rt_config_fini(&config);
}

TEST_MAIN(TEST(bad_data_is_an_error), TEST(bagpipe_moves_what_its_window_says),
          TEST(bagpipe_has_rows_on_one_worker), TEST(a_batch_that_no_cache_holds), TEST(specs))
