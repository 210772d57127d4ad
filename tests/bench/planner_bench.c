// Times of the planner's three steps on one machine-sized batch: 8 workers x 128 samples of 26
// fields, keys by Zipf's law out of 250,000 that are all known before the measurement.
//
// usage: planner_bench [ITERATIONS [SAMPLES_PER_WORKER]]
#include <stdio.h>
#include <stdlib.h>

#include "dispatch/planner/dp_planner.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/random_batches.h"

#define WORKERS 8u
#define FIELDS 26u
#define KEYS 250000u
#define IDS_PER_FIELD (KEYS / FIELDS)
#define CACHE_SHARE 0.08
#define WARMUP 40u

typedef struct {
    dp_planner *planner;
    random_batches batches;
    rt_batch batch;
    uint32_t sample_count;
} bench;

typedef struct {
    uint64_t look_up, place, commit; // ns
    dp_hits hits;
} measured;

static void fail(const char *what)
{
    fprintf(stderr, "planner_bench: %s\n", what);
    exit(1);
}

static void set_up(bench *b, uint32_t samples_per_worker)
{
    rt_error error = {0};
    dp_planner_config config = {
        .worker_count = WORKERS,
        .sample_count_max = WORKERS * samples_per_worker,
        .keys_per_sample_max = FIELDS,
        .layout.field_count = FIELDS,
        .dispatch = {.policy = RT_POLICY_ESD, .alpha = 1},
        .keys_expected = KEYS,
    };
    uint32_t slots = (uint32_t)(CACHE_SHARE * KEYS);
    uint32_t least = samples_per_worker * FIELDS;
    for (uint32_t f = 0; f < FIELDS; f++)
        config.layout.values[f] = 16;
    for (uint32_t j = 0; j < WORKERS; j++) {
        double bytes_per_s = j < WORKERS / 2 ? 5e9 / 8 : 0.5e9 / 8;
        config.rates.links[j] = (dp_link){bytes_per_s, bytes_per_s};
        config.slot_count[j] = slots > least ? slots : least;
    }
    if (dp_planner_create(&config, &b->planner, &error))
        fail(error.text);
    b->sample_count = config.sample_count_max;
    random_batches_init(&b->batches, 1, FIELDS, IDS_PER_FIELD, 1, 1.05);
    rt_batch_init(&b->batch, 0);
}

static measured step(bench *b)
{
    const dp_plan *plan;
    uint64_t begin = rt_now_ns();
    if (dp_planner_look_up(b->planner, &b->batch))
        fail("out of memory");
    uint64_t looked_up = rt_now_ns();
    dp_planner_place(b->planner);
    uint64_t placed = rt_now_ns();
    if (dp_planner_commit(b->planner, &plan))
        fail("out of memory");
    return (measured){looked_up - begin, placed - looked_up, rt_now_ns() - placed, plan->hits};
}

// Every key once, so that the directory has its size from then on; then some batches as measured.
static void warm_up(bench *b)
{
    uint64_t keys[FIELDS];
    for (uint32_t id = 0; id < IDS_PER_FIELD;) {
        rt_batch_clear(&b->batch);
        for (; b->batch.sample_count < b->sample_count && id < IDS_PER_FIELD; id++) {
            for (uint32_t f = 0; f < FIELDS; f++)
                keys[f] = rt_key(f, id);
            if (rt_batch_append(&b->batch, 0, NULL, keys, FIELDS))
                fail("out of memory");
        }
        step(b);
    }
    for (uint32_t i = 0; i < WARMUP; i++) {
        random_batches_fill(&b->batches, &b->batch, b->sample_count);
        step(b);
    }
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void report(const char *name, uint64_t *ns, uint32_t count)
{
    qsort(ns, count, sizeof *ns, by_size);
    printf("%-8s p50 %7.3f ms   p99 %7.3f ms   least %7.3f ms\n", name,
           (double)ns[count / 2] * 1e-6, (double)ns[(uint64_t)count * 99 / 100] * 1e-6,
           (double)ns[0] * 1e-6);
}

int main(int argc, char **argv)
{
    bench b;
    uint32_t iterations = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 300;
    uint32_t samples_per_worker = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 128;
    if (iterations < 1 || iterations > 1000000 || samples_per_worker < 1 ||
        samples_per_worker > 65536)
        fail("ITERATIONS is 1 to 1000000, SAMPLES_PER_WORKER 1 to 65536");
    uint64_t *ns[3];
    for (uint32_t k = 0; k < 3; k++) {
        ns[k] = rt_alloc(iterations, sizeof **ns);
        if (!ns[k])
            fail("out of memory");
    }
    set_up(&b, samples_per_worker);
    warm_up(&b);
    dp_hits sum = {0};
    for (uint32_t i = 0; i < iterations; i++) {
        random_batches_fill(&b.batches, &b.batch, b.sample_count);
        measured m = step(&b);
        ns[0][i] = m.look_up;
        ns[1][i] = m.place;
        ns[2][i] = m.commit;
        sum.lookups += m.hits.lookups;
        sum.lookups_hit += m.hits.lookups_hit;
        sum.distinct += m.hits.distinct;
    }
    const dp_directory *directory = dp_planner_directory(b.planner);
    printf("%u samples x %u keys, %u workers, %llu keys known in %.1f MB, %.0f distinct a batch, "
           "%.0f%% of the look-ups hit\n",
           b.sample_count, FIELDS, WORKERS, (unsigned long long)directory->key_count,
           (double)dp_directory_bytes(directory) * 1e-6, (double)sum.distinct / iterations,
           100.0 * (double)sum.lookups_hit / (double)sum.lookups);
    report("look up", ns[0], iterations);
    report("place", ns[1], iterations);
    report("commit", ns[2], iterations);
    dp_planner_destroy(b.planner);
    random_batches_fini(&b.batches);
    rt_batch_fini(&b.batch);
    for (uint32_t k = 0; k < 3; k++)
        rt_free(ns[k]);
    return 0;
}
