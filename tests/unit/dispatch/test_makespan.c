// The weights by which makespan aims at the slowest link: against their definition, from the
// placements that it makes.
#include "dispatch/policies/dp_policies.h"

#include <math.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/fields_case.h"
#include "tests/support/test.h"

#define WORKERS 3u
#define SAMPLES 24u
#define KEYS 40u
#define ROUNDS 80u
#define STEP 0.05
#define WEIGHT_MIN 0.2

typedef struct {
    dp_view view;
    dp_ticks ticks;
    dp_distinct distinct[KEYS];
    uint8_t held[KEYS];
    uint32_t offsets[SAMPLES + 1], lookups[2 * SAMPLES];
    uint32_t capacity[WORKERS];
    uint8_t ranks[WORKERS];
} problem;

// As it is saved.
typedef struct {
    double up[RT_WORKERS_MAX], down[RT_WORKERS_MAX];
    double ps_up, ps_down;
} weights;

// Keys that nobody holds, one worker alone, or one worker and the parameter server. ps: ticks of a
// row on the parameter servers' link; 0: it is no limit.
static void make_problem(problem *p, int32_t ps, rt_random *random)
{
    *p = (problem){.view = {.worker_count = WORKERS,
                            .sample_count = SAMPLES,
                            .lookup_count = 2 * SAMPLES,
                            .distinct_count = KEYS,
                            .uniform = false,
                            .offsets = p->offsets,
                            .lookups = p->lookups,
                            .distinct = p->distinct,
                            .held = p->held,
                            .capacity = p->capacity,
                            .ticks = &p->ticks},
                   .ticks = {.worker_count = WORKERS, .field_count = 1}};
    dp_ticks *t = &p->ticks;
    for (uint32_t j = 0; j < WORKERS; j++) {
        const int32_t slow = j == 1 ? 10 : 1;
        p->capacity[j] = SAMPLES / WORKERS;
        p->ranks[j] = (uint8_t)(2 * j + 1);
        t->pull[0][j] = 100 * slow;
        t->push[0][j] = 110 * slow;
        t->grad[0][j] = 90 * slow;
        t->compute[j] = 7 + (int32_t)j;
        t->dense_up[j] = 300 * slow;
        t->dense_down[j] = 200 * slow;
    }
    t->ps_row[0] = ps;
    t->ps_grad[0] = ps ? ps - 1 : 0;
    t->ps_limits[0].share = 1;
    t->ps_limits[0].dense = 500;
    t->ps_limit_count = ps ? 1 : 0;
    for (uint32_t d = 0; d < KEYS; d++) {
        const uint32_t owner = rt_random_below(random, 2 * WORKERS);
        const bool clean = rt_random_below(random, 2);
        p->distinct[d] = (dp_distinct){.key = d, .held = DP_HELD_BY_NONE};
        if (owner < WORKERS) {
            p->distinct[d].holders = rt_bit(owner);
            p->distinct[d].dirty = !clean;
            p->distinct[d].held = (uint8_t)(owner | (clean ? DP_HELD_CLEAN : 0));
        }
        p->held[d] = p->distinct[d].held;
    }
    for (uint32_t i = 0; i < SAMPLES; i++) {
        p->offsets[i + 1] = 2 * (i + 1);
        p->lookups[2 * i] = rt_random_below(random, KEYS / 2);
        p->lookups[2 * i + 1] = KEYS / 2 + rt_random_below(random, KEYS / 2);
        p->distinct[p->lookups[2 * i]].uses++;
        p->distinct[p->lookups[2 * i + 1]].uses++;
    }
}

// Ticks of every link: what moves in the iteration, gradients included, and what is there anyway.
static void links_of(const problem *p, const uint32_t *worker_of, weights *times)
{
    const dp_ticks *t = &p->ticks;
    *times = (weights){.ps_up = t->ps_row[0] ? 500 : 0, .ps_down = t->ps_row[0] ? 500 : 0};
    for (uint32_t j = 0; j < WORKERS; j++) {
        times->up[j] = (double)t->dense_up[j];
        times->down[j] = (double)t->dense_down[j];
    }
    for (uint32_t i = 0; i < SAMPLES; i++) {
        times->up[worker_of[i]] += t->compute[worker_of[i]];
        times->down[worker_of[i]] += t->compute[worker_of[i]];
    }
    for (uint32_t d = 0; d < KEYS; d++) {
        const dp_distinct *key = &p->distinct[d];
        uint64_t users = 0;
        for (uint32_t k = 0; k < 2 * SAMPLES; k++)
            users |= p->lookups[k] == d ? rt_bit(worker_of[k / 2]) : 0;
        if (!users)
            continue;
        if (key->dirty && users != key->holders) {
            times->up[rt_lowest_bit(key->holders)] += t->push[0][rt_lowest_bit(key->holders)];
            times->ps_up += t->ps_row[0];
        }
        for (uint32_t j = 0; j < WORKERS; j++) {
            if (users >> j & 1 && !(key->holders >> j & 1)) {
                times->down[j] += t->pull[0][j];
                times->ps_down += t->ps_row[0];
            }
            if (users >> j & 1 && rt_bit_count(users) > 1) {
                times->up[j] += t->grad[0][j];
                times->ps_up += t->ps_grad[0];
            }
        }
    }
}

static void follow(const problem *p, const weights *times, weights *w)
{
    const bool has_ps = p->ticks.ps_row[0] > 0;
    double longest = fmax(times->ps_up, times->ps_down), largest = 0;
    for (uint32_t j = 0; j < WORKERS; j++)
        longest = fmax(longest, fmax(times->up[j], times->down[j]));
    for (uint32_t j = 0; j < WORKERS; j++) {
        const uint32_t r = p->view.ranks ? p->ranks[j] : j;
        w->up[r] *= exp(STEP * (times->up[j] / longest - 1));
        w->down[r] *= exp(STEP * (times->down[j] / longest - 1));
        largest = fmax(largest, fmax(w->up[r], w->down[r]));
    }
    if (has_ps) {
        w->ps_up *= exp(STEP * (times->ps_up / longest - 1));
        w->ps_down *= exp(STEP * (times->ps_down / longest - 1));
        largest = fmax(largest, fmax(w->ps_up, w->ps_down));
        w->ps_up = fmax(w->ps_up / largest, WEIGHT_MIN);
        w->ps_down = fmax(w->ps_down / largest, WEIGHT_MIN);
    }
    for (uint32_t j = 0; j < WORKERS; j++) {
        const uint32_t r = p->view.ranks ? p->ranks[j] : j;
        w->up[r] = fmax(w->up[r] / largest, WEIGHT_MIN);
        w->down[r] = fmax(w->down[r] / largest, WEIGHT_MIN);
    }
}

static void must_have(const void *state, const weights *want, uint32_t workers)
{
    rt_bytes described = {0}, bytes = {0};
    weights got;
    dp_policy_makespan.save(state, &described);
    fields_plain(&described, &bytes);
    rt_bytes_fini(&described);
    assert_true(!bytes.failed && bytes.size > sizeof(rt_random) + sizeof got);
    memcpy(&got, bytes.data + sizeof(rt_random), sizeof got);
    for (size_t at = sizeof(rt_random) + sizeof got; at < bytes.size; at++)
        assert_int_equal(bytes.data[at], 0); // equal micro-batches: nothing to start from
    rt_bytes_fini(&bytes);
    for (uint32_t r = 0; r < workers; r++) {
        test_close(got.up[r], want->up[r], 1e-12, 0, "a way up");
        test_close(got.down[r], want->down[r], 1e-12, 0, "a way down");
    }
    test_close(got.ps_up, want->ps_up, 1e-12, 0, "the way up to the parameter servers");
    test_close(got.ps_down, want->ps_down, 1e-12, 0, "the way down from them");
}

static void check(int32_t ps, bool some)
{
    const uint32_t workers = some ? 2 * WORKERS : WORKERS; // of the run; `some`: the others sit out
    rt_random random = {(uint64_t)ps + some};
    const dp_policy_config config = {.worker_count = workers,
                                     .sample_count_max = SAMPLES,
                                     .distinct_count_max = 2 * SAMPLES,
                                     .seed = 3,
                                     .dispatch = {.search_evaluations = 200}};
    void *state;
    weights want = {.ps_up = 1, .ps_down = 1};
    double lowest = 1;
    assert_int_equal(dp_policy_makespan.create(&config, &state, NULL), RT_OK);
    for (uint32_t r = 0; r < workers; r++)
        want.up[r] = want.down[r] = 1;
    must_have(state, &want, workers);
    for (uint32_t t = 0; t < ROUNDS; t++) {
        static problem p;
        uint32_t worker_of[SAMPLES], counts[WORKERS] = {0};
        weights times;
        make_problem(&p, ps, &random);
        p.view.ranks = some ? p.ranks : NULL;
        dp_policy_makespan.place(state, &p.view, worker_of);
        for (uint32_t i = 0; i < SAMPLES; i++)
            counts[worker_of[i]]++;
        assert_memory_equal(counts, p.capacity, sizeof counts);
        links_of(&p, worker_of, &times);
        follow(&p, &times, &want);
        must_have(state, &want, workers);
        lowest = fmin(lowest, fmin(want.up[p.view.ranks ? 1 : 0], want.ps_up));
    }
    assert_true(lowest == WEIGHT_MIN); // links with slack have come down to it
    dp_policy_makespan.destroy(state);
}

static void weights_follow_the_links(void **state)
{
    (void)state;
    check(0, false);
}

static void weights_of_the_parameter_servers(void **state)
{
    (void)state;
    check(25, false);
    check(400, false);
}

// By rank: who sits out keeps the weights that it had.
static void weights_of_those_who_take_part(void **state)
{
    (void)state;
    check(0, true);
    check(25, true);
}

// As builds of before saved it where boxes are told: random numbers, weights, micro-batches, their sum, boxes.
typedef struct {
    rt_random random;
    weights links;
    uint32_t last[RT_WORKERS_MAX], last_count;
    double up[RT_SITE_BOXES_MAX], down[RT_SITE_BOXES_MAX];
} __attribute__((packed)) saved;

static bool loads(const saved *all, uint32_t box_count)
{
    const dp_policy_config config = {.worker_count = WORKERS,
                                     .box_count = box_count,
                                     .sample_count_max = SAMPLES,
                                     .distinct_count_max = 2 * SAMPLES};
    const size_t size = box_count ? sizeof *all : offsetof(saved, up);
    void *state;
    rt_bytes bytes = {0}, again = {0}, plain = {0};
    rt_bytes_put(&bytes, all, size);
    rt_reader reader = rt_bytes_reader(&bytes);
    assert_int_equal(dp_policy_makespan.create(&config, &state, NULL), RT_OK);
    const bool ok = dp_policy_makespan.load(state, &reader);
    if (ok) {
        dp_policy_makespan.save(state, &again);
        fields_plain(&again, &plain);
        assert_int_equal(plain.size, size);
        assert_memory_equal(plain.data, all, size);
    }
    for (size_t less = 0; less < size; less += 1 + less / 7) {
        reader = rt_bytes_reader(&bytes);
        reader.left = less;
        assert_false(dp_policy_makespan.load(state, &reader));
    }
    dp_policy_makespan.destroy(state);
    rt_bytes_fini(&bytes);
    rt_bytes_fini(&again);
    rt_bytes_fini(&plain);
    return ok;
}

static void states_that_cannot_be(void **state)
{
    (void)state;
    static const double bad[] = {-0.001, 1.001, NAN, INFINITY}, good[] = {0, 1, 0.5};
    for (uint32_t boxes = 0; boxes < 3; boxes += 2) {
        saved all;
        size_t places[2 * WORKERS + 2 + 4]; // of weights
        uint32_t count = 0;
        memset(&all, 0, sizeof all);
        all.last[0] = 5;
        all.last[WORKERS - 1] = 7;
        all.last_count = 12;
        assert_true(loads(&all, boxes));
        for (uint32_t j = 0; j < WORKERS; j++) {
            places[count++] = offsetof(saved, links.up) + j * sizeof(double);
            places[count++] = offsetof(saved, links.down) + j * sizeof(double);
        }
        places[count++] = offsetof(saved, links.ps_up);
        places[count++] = offsetof(saved, links.ps_down);
        for (uint32_t b = 0; b < boxes; b++) {
            places[count++] = offsetof(saved, up) + b * sizeof(double);
            places[count++] = offsetof(saved, down) + b * sizeof(double);
        }
        for (uint32_t i = 0; i < count; i++) {
            for (size_t k = 0; k < RT_COUNT_OF(bad); k++) {
                memcpy((uint8_t *)&all + places[i], &bad[k], sizeof(double));
                assert_false(loads(&all, boxes));
            }
            for (size_t k = 0; k < RT_COUNT_OF(good); k++) {
                memcpy((uint8_t *)&all + places[i], &good[k], sizeof(double));
                assert_true(loads(&all, boxes));
            }
        }
        all.last_count = 11;
        assert_false(loads(&all, boxes));
        all.last_count = 13;
        assert_false(loads(&all, boxes));
    }
}

TEST_MAIN(TEST(weights_follow_the_links), TEST(weights_of_the_parameter_servers),
          TEST(weights_of_those_who_take_part), TEST(states_that_cannot_be))
