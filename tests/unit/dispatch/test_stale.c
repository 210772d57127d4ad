// Bounded staleness against HET itself: a plain loop of Fetch, CheckValid, Evict, Read and Write
// over dictionaries of copies, which is told batches and placements and nothing else. Every
// operation of every plan must be the loop's, and no read beyond Lemma 1's bounds.
#include "tests/support/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/plan/dp_plan.h"
#include "dispatch/planner/dp_planner.h"
#include "runtime/config/rt_policies.h"
#include "runtime/rt_hash.h"
#include "tests/support/eviction_model.h"
#include "tests/support/planner_case.h"
#include "tests/support/random_batches.h"

#define FIELDS 4u
#define WORKERS_MAX 6u
#define KEYS_MAX 4096u

// ---- HET -------------------------------------------------------------------------------------

typedef struct {
    bool there, read, spent;
    uint32_t start, current; // c_s, c_c
    uint32_t trained;        // iteration
    uint32_t slot;
} copy;

typedef struct {
    uint64_t key;
    uint32_t clock;   // c_g, never forgotten
    uint32_t version; // of the last push
    uint32_t pulls;   // since
    copy copies[WORKERS_MAX];
} row;

typedef struct {
    uint32_t kind, worker, reason;
    uint32_t version, base, pulls;
    uint64_t key;
} operation;

typedef struct {
    uint32_t staleness, worker_count, limit[WORKERS_MAX];
    uint32_t iteration;
    row rows[KEYS_MAX];
    uint32_t row_count;
    eviction_model caches[WORKERS_MAX];
    uint32_t free_slots[WORKERS_MAX][KEYS_MAX], free_count[WORKERS_MAX];
    operation *operations; // of the iteration
    uint32_t operation_count;
    uint64_t reads, hits, stale, clock_messages;
    uint32_t spread; // of the iteration
} het;

static row *find(het *h, uint64_t key)
{
    for (uint32_t i = 0; i < h->row_count; i++) {
        if (h->rows[i].key == key)
            return &h->rows[i];
    }
    assert_true(h->row_count < KEYS_MAX);
    h->rows[h->row_count] = (row){.key = key};
    return &h->rows[h->row_count++];
}

static operation *note(het *h, uint32_t kind, uint32_t worker, const row *r)
{
    h->operations[h->operation_count] =
        (operation){.kind = kind, .worker = worker, .key = r->key, .version = r->version};
    return &h->operations[h->operation_count++];
}

// Evict(k): the server adds the update, then c_g := max(c_g, c_c).
static void push(het *h, uint32_t worker, row *r, dp_reason reason)
{
    const copy *c = &r->copies[worker];
    operation *o = note(h, DP_OP_PUSH_DELTA, worker, r);
    o->reason = reason;
    o->base = r->version;
    o->pulls = r->pulls;
    const uint32_t least = reason == DP_REASON_FLUSH ? c->trained : h->iteration;
    r->version = r->version + 1 > least ? r->version + 1 : least;
    o->version = r->version;
    r->pulls = 0;
    r->clock = r->clock > c->current ? r->clock : c->current;
}

static bool check_valid(const het *h, const copy *c, uint32_t clock)
{
    const uint64_t s = h->staleness;
    return !c->spent && c->current <= c->start + s && clock <= c->current + s;
}

static void fetch(het *h, uint32_t worker, row *r, bool local)
{
    copy *c = &r->copies[worker];
    const bool first = r->version == 0 && local;
    note(h, first ? DP_OP_INIT : DP_OP_PULL, worker, r);
    r->pulls += !first;
    if (!c->there)
        c->slot = h->free_slots[worker][--h->free_count[worker]];
    if (!c->there)
        eviction_model_use(&h->caches[worker], c->slot, h->iteration);
    h->caches[worker].slots[c->slot].key = r->key;
    *c = (copy){.there = true, .start = r->clock, .current = r->clock, .slot = c->slot};
}

// The keys of a worker in order of appearance.
static uint32_t keys_of(const rt_batch *batch, const uint32_t *placement, uint32_t worker,
                        uint64_t *keys)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        for (uint32_t at = batch->key_offsets[i];
             placement[i] == worker && at < batch->key_offsets[i + 1]; at++) {
            uint32_t k = 0;
            while (k < count && keys[k] != batch->keys[at])
                k++;
            keys[k] = batch->keys[at];
            count += k == count;
        }
    }
    return count;
}

static void check_copies(het *h, uint32_t worker, const uint64_t *keys, uint32_t count)
{
    for (uint32_t k = 0; k < count; k++) {
        row *r = find(h, keys[k]);
        copy *c = &r->copies[worker];
        c->read = true;
        h->reads++;
        if (!c->there)
            continue;
        eviction_model_use(&h->caches[worker], c->slot, h->iteration);
        h->clock_messages += !c->spent && c->current <= c->start + (uint64_t)h->staleness;
        if (check_valid(h, c, r->clock)) {
            h->hits++;
            // One and the same c_g: within s of it, so within 2s of each other.
            assert_true(c->current <= r->clock + (uint64_t)h->staleness);
            assert_true(r->clock <= c->current + (uint64_t)h->staleness);
            continue;
        }
        h->stale++;
        if (!c->spent)
            push(h, worker, r, DP_REASON_UPDATE);
        c->spent = true; // to be fetched
    }
}

// The largest difference of two copies that were read, before they are written.
static void measure(het *h)
{
    for (uint32_t i = 0; i < h->row_count; i++) {
        for (uint32_t a = 0; a < h->worker_count; a++) {
            for (uint32_t b = 0; b < h->worker_count; b++) {
                const copy *x = &h->rows[i].copies[a], *y = &h->rows[i].copies[b];
                if (x->read && y->read && x->current > y->current &&
                    x->current - y->current > h->spread)
                    h->spread = x->current - y->current;
            }
        }
    }
}

static void write_copies(het *h, uint32_t worker, const uint64_t *keys, uint32_t count)
{
    for (uint32_t k = 0; k < count; k++) {
        find(h, keys[k])->copies[worker].current++;
        find(h, keys[k])->copies[worker].trained = h->iteration;
        find(h, keys[k])->copies[worker].read = false;
    }
}

// Evict(): while over capacity.
static void trim(het *h, uint32_t worker)
{
    eviction_model *cache = &h->caches[worker];
    while (cache->occupied > h->limit[worker]) {
        const uint32_t slot = eviction_model_victim(cache, h->iteration + 1);
        row *r = find(h, cache->slots[slot].key);
        if (!r->copies[worker].spent)
            push(h, worker, r, DP_REASON_EVICT);
        r->copies[worker] = (copy){0};
        eviction_model_free(cache, slot);
        h->free_slots[worker][h->free_count[worker]++] = slot;
    }
}

static void het_step(het *h, const rt_batch *batch, const uint32_t *placement, bool local)
{
    static uint64_t keys[WORKERS_MAX][KEYS_MAX];
    uint32_t counts[WORKERS_MAX];
    h->iteration++;
    h->operation_count = h->spread = 0;
    for (uint32_t w = 0; w < h->worker_count; w++) {
        counts[w] = keys_of(batch, placement, w, keys[w]);
        check_copies(h, w, keys[w], counts[w]);
    }
    for (uint32_t w = 0; w < h->worker_count; w++) {
        for (uint32_t k = 0; k < counts[w]; k++) {
            row *r = find(h, keys[w][k]);
            if (!r->copies[w].there || r->copies[w].spent) {
                fetch(h, w, r, local);
                r->copies[w].read = true;
            }
        }
    }
    measure(h);
    for (uint32_t w = 0; w < h->worker_count; w++)
        write_copies(h, w, keys[w], counts[w]);
    for (uint32_t w = 0; w < h->worker_count; w++)
        trim(h, w);
}

// By worker and slot.
static void het_flush(het *h)
{
    h->operation_count = 0;
    for (uint32_t w = 0; w < h->worker_count; w++) {
        for (uint32_t slot = 0; slot < h->caches[w].slot_count; slot++) {
            if (!h->caches[w].slots[slot].occupied)
                continue;
            row *r = find(h, h->caches[w].slots[slot].key);
            if (!r->copies[w].spent)
                push(h, w, r, DP_REASON_FLUSH);
            r->copies[w].spent = true;
        }
    }
}

// ---- the planner -----------------------------------------------------------------------------

typedef struct {
    uint64_t seed;
    uint32_t staleness, worker_count, samples, ids;
    double zipf;
    rt_policy_kind policy;
    rt_eviction_kind eviction;
    rt_first_touch first_touch;
    uint32_t limit; // cache rows; 0: all keys
    uint32_t iterations, flush_every;
} shape;

typedef struct {
    shape shape;
    dp_planner_config config;
    dp_planner *planner;
    random_batches batches;
    rt_batch batch;
    het *het;
    uint64_t reads;
    uint32_t spread;
} run;

static void run_init(run *r, const shape *s)
{
    rt_error error = {0};
    *r = (run){.shape = *s, .het = calloc(1, sizeof(het))};
    const uint32_t rows = s->samples * FIELDS;
    r->config = (dp_planner_config){.worker_count = s->worker_count,
                                    .sample_count_max = s->samples * s->worker_count,
                                    .keys_per_sample_max = FIELDS,
                                    .eviction = s->eviction,
                                    .layout.field_count = FIELDS,
                                    .dispatch = {.policy = s->policy,
                                                 .alpha = 1,
                                                 .first_touch = s->first_touch,
                                                 .search_evaluations = 200},
                                    .consistency = {true, s->staleness},
                                    .overshoot = rows,
                                    .seed = s->seed};
    *r->het = (het){.staleness = s->staleness, .worker_count = s->worker_count};
    r->het->operations = calloc((size_t)4 * KEYS_MAX * WORKERS_MAX, sizeof(operation));
    for (uint32_t f = 0; f < FIELDS; f++)
        r->config.layout.values[f] = 8;
    for (uint32_t j = 0; j < s->worker_count; j++) {
        const uint32_t limit = s->limit ? s->limit : FIELDS * s->ids;
        r->config.slot_count[j] = limit + rows;
        r->config.rates.links[j] = (dp_link){j % 2 ? 6e7 : 6e8, j % 2 ? 6e7 : 6e8};
        r->het->limit[j] = limit;
        eviction_model_init(&r->het->caches[j], s->eviction, limit + rows);
        for (uint32_t slot = limit + rows; slot-- > 0;)
            r->het->free_slots[j][r->het->free_count[j]++] = slot;
    }
    if (dp_planner_create(&r->config, &r->planner, &error))
        fail_msg("%s", error.text);
    random_batches_init(&r->batches, s->seed, FIELDS, s->ids, 1, s->zipf);
    rt_batch_init(&r->batch, 0);
}

static void run_fini(run *r)
{
    for (uint32_t j = 0; j < r->shape.worker_count; j++)
        eviction_model_fini(&r->het->caches[j]);
    dp_planner_destroy(r->planner);
    random_batches_fini(&r->batches);
    rt_batch_fini(&r->batch);
    free(r->het->operations);
    free(r->het);
}

static const operation *look_for(const het *h, uint32_t worker, const dp_op *op)
{
    for (uint32_t i = 0; i < h->operation_count; i++) {
        const operation *o = &h->operations[i];
        if (o->kind == op->kind && o->worker == worker && o->key == op->key &&
            o->version == op->version)
            return o;
    }
    return NULL;
}

static uint32_t compare_ops(const run *r, uint32_t worker, const dp_ops *ops)
{
    for (uint32_t i = 0; i < ops->count; i++) {
        const dp_op *op = &ops->items[i];
        const operation *o = look_for(r->het, worker, op);
        if (!o)
            fail_msg("iteration %" PRIu32 ": worker %" PRIu32 " has operation %d of key %" PRIx64
                     ", version %" PRIu32 ", which HET does not have",
                     r->het->iteration, worker, op->kind, op->key, op->version);
        if (op->kind != DP_OP_PUSH_DELTA)
            continue;
        assert_int_equal(op->reason, o->reason);
        assert_int_equal(op->base, o->base);
        assert_int_equal(op->pulls, o->pulls);
    }
    return ops->count;
}

static void compare_plan(const run *r, const dp_plan *plan)
{
    uint32_t count = 0;
    for (uint32_t w = 0; w < plan->worker_count; w++) {
        count += compare_ops(r, w, &plan->slices[w].release);
        count += compare_ops(r, w, &plan->slices[w].fill);
        count += compare_ops(r, w, &plan->slices[w].after);
    }
    assert_int_equal(count, r->het->operation_count);
}

// Before the iteration: who may read what it has, and who has to push.
static void compare_view(run *r)
{
    const dp_view *view = dp_planner_view(r->planner);
    for (uint32_t d = 0; d < view->distinct_count; d++) {
        const row *of = find(r->het, view->distinct[d].key);
        uint64_t holders = 0, owed = 0;
        for (uint32_t w = 0; w < r->shape.worker_count; w++) {
            const copy *c = &of->copies[w];
            if (c->there && check_valid(r->het, c, of->clock))
                holders |= rt_bit(w);
            else if (c->there && !c->spent)
                owed |= rt_bit(w);
        }
        assert_int_equal(view->distinct[d].holders, holders);
        assert_int_equal(view->owed[d], owed);
        assert_false(view->distinct[d].dirty);
    }
}

static void step(run *r)
{
    const dp_plan *plan;
    rt_error error = {0};
    het *h = r->het;
    const uint64_t hits = h->hits, stale = h->stale, messages = h->clock_messages;
    random_batches_fill(&r->batches, &r->batch, r->config.sample_count_max);
    assert_int_equal(dp_planner_look_up(r->planner, &r->batch), RT_OK);
    compare_view(r);
    dp_planner_place(r->planner);
    assert_int_equal(dp_planner_commit(r->planner, &plan), RT_OK);
    het_step(h, &r->batch, dp_planner_placement(r->planner),
             r->shape.first_touch == RT_FIRST_TOUCH_LOCAL);
    compare_plan(r, plan);
    assert_int_equal(plan->hits.keys_hit, h->hits - hits);
    assert_int_equal(plan->clocks.stale_keys, h->stale - stale);
    assert_int_equal(plan->clocks.clock_messages, h->clock_messages - messages);
    assert_int_equal(plan->clocks.clock_spread, h->spread);
    assert_true(h->spread <= 2 * (uint64_t)h->staleness + 1);
    r->spread = r->spread > h->spread ? r->spread : h->spread;
    if (!dp_planner_legal(r->planner, &error))
        fail_msg("%s", error.text);
    if (r->shape.flush_every && h->iteration % r->shape.flush_every == 0) {
        assert_int_equal(dp_planner_flush(r->planner, &plan), RT_OK);
        het_flush(h);
        compare_plan(r, plan);
    }
}

static void check(const shape *s, uint64_t *reads, uint32_t *spread)
{
    run r;
    printf("seed %" PRIu64 ": s %" PRIu32 ", %" PRIu32
           " workers, policy %d, eviction %d, limit %" PRIu32 "\n",
           s->seed, s->staleness, s->worker_count, s->policy, s->eviction, s->limit);
    run_init(&r, s);
    for (uint32_t t = 0; t < s->iterations; t++)
        step(&r);
    *reads += r.het->reads;
    *spread = r.spread > *spread ? r.spread : *spread;
    run_fini(&r);
}

static const uint32_t bounds[] = {1, 2, 3, 5, 10, 100, RT_STALENESS_INF};

// Every policy, eviction and bound; the rest at random.
static void every_operation_is_hets(void **state)
{
    (void)state;
    rt_random random = {11};
    uint64_t reads = 0;
    uint32_t spread = 0;
    for (uint32_t i = 0; i < RT_POLICY_COUNT * RT_EVICT_COUNT * RT_COUNT_OF(bounds); i++) {
        const uint32_t samples = 2 + rt_random_below(&random, 5);
        const uint32_t limits[] = {0, 1, samples * FIELDS, samples * FIELDS * 2};
        const shape s = {.seed = i + 1,
                         .staleness = bounds[i / (RT_POLICY_COUNT * RT_EVICT_COUNT)],
                         .worker_count = 1 + rt_random_below(&random, WORKERS_MAX),
                         .samples = samples,
                         .ids = 5 + rt_random_below(&random, 40),
                         .zipf = rt_random_below(&random, 3) * 0.6,
                         .policy = (rt_policy_kind)(i % RT_POLICY_COUNT),
                         .eviction = (rt_eviction_kind)(i / RT_POLICY_COUNT % RT_EVICT_COUNT),
                         .first_touch = (rt_first_touch)rt_random_below(&random, 2),
                         .limit = limits[rt_random_below(&random, 4)],
                         .iterations = 60,
                         .flush_every = rt_random_below(&random, 2) * 13};
        check(&s, &reads, &spread);
    }
}

// 2s + 1 occurs, and nothing beyond it, in a million reads.
static void no_read_is_beyond_the_bound(void **state)
{
    (void)state;
    uint64_t reads = 0, beyond = 0;
    for (uint32_t s = 1; reads < 1000000; s = s % 3 + 1) {
        uint32_t spread = 0;
        const shape one = {.seed = 1000 + reads,
                           .staleness = s,
                           .worker_count = 4,
                           .samples = 24,
                           .ids = 60,
                           .zipf = 0.8,
                           .policy = RT_POLICY_RANDOM,
                           .eviction = RT_EVICT_LFU,
                           .limit = 60,
                           .iterations = 500};
        check(&one, &reads, &spread);
        beyond += spread == 2 * s + 1;
    }
    assert_true(beyond > 0);
    printf("%" PRIu64 " reads\n", reads);
}

// Staleness 0: nothing stays in a cache, every trainer pushes its gradient, also one alone.
static void no_copy_is_used_twice(void **state)
{
    (void)state;
    for (uint32_t policy = 0; policy < RT_POLICY_COUNT; policy++) {
        const planner_shape s = {
            .seed = policy,
            .worker_count = 3,
            .sample_count_max = 24,
            .field_count = FIELDS,
            .ids_per_field = 30,
            .bag_max = 1,
            .zipf = 0.6,
            .cache = CACHE_EVERYTHING,
            .consistency = {.bounded = true},
            .dispatch = {.policy = (rt_policy_kind)policy, .alpha = 1, .search_evaluations = 200}};
        planner_case pc;
        planner_case_init(&pc, &s);
        for (uint32_t t = 0; t < 30; t++) {
            planner_case_look_up(&pc, 24);
            planner_case_commit(&pc);
            for (uint32_t w = 0; w < pc.plan->worker_count; w++) {
                const dp_slice *slice = &pc.plan->slices[w];
                assert_int_equal(slice->release.count, 0);
                assert_int_equal(slice->fill.count, slice->row_count);
                assert_int_equal(slice->after.count, slice->row_count);
                for (uint32_t r = 0; r < slice->row_count; r++)
                    assert_int_equal(slice->after.items[r].kind, DP_OP_PUSH_GRAD);
            }
            assert_int_equal(pc.plan->hits.keys_hit, 0);
        }
        planner_case_compare(&pc);
        planner_case_fini(&pc);
    }
}

TEST_MAIN(TEST(no_copy_is_used_twice), TEST_SLOW(every_operation_is_hets, 120),
          TEST_SLOW(no_read_is_beyond_the_bound, 120))
