// Costs: ESD's Algorithm 1 by brute force, ticks, predicted times, and the sums over a run.
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

#include "dispatch/planner/dp_account.h"
#include "dispatch/cost/dp_ticks.h"
#include "dispatch/solvers/dp_solver.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/planner_case.h"

// ---- Algorithm 1, word for word --------------------------------------------------------------

typedef struct {
    uint64_t holders;
    bool dirty;
} key_state;

// ESD, Algorithm 1: for every key of the sample whose latest version is not on `worker`, a pull;
// and if others hold a newer version than the PS, a push by each of them.
static int64_t key_cost(const dp_ticks *ticks, uint32_t field, key_state state, uint32_t worker)
{
    if (state.holders >> worker & 1)
        return 0;
    int64_t push = 0;
    for (uint32_t j = 0; j < ticks->worker_count; j++) {
        if (state.dirty && state.holders >> j & 1)
            push += ticks->push[field][j];
    }
    return ticks->pull[field][worker] + push;
}

static void random_ticks(rt_random *random, uint32_t worker_count, uint32_t field_count,
                         dp_ticks *ticks)
{
    *ticks = (dp_ticks){.tick_s = 1, .worker_count = worker_count, .field_count = field_count};
    for (uint32_t f = 0; f < field_count; f++) {
        for (uint32_t j = 0; j < worker_count; j++) {
            ticks->pull[f][j] = 1 + (int32_t)rt_random_below(random, 1000);
            ticks->push[f][j] = 1 + (int32_t)rt_random_below(random, 1000);
        }
    }
}

static key_state random_state(rt_random *random, uint32_t worker_count)
{
    uint64_t all = worker_count == 64 ? UINT64_MAX : rt_bit(worker_count) - 1;
    uint64_t holders = 0;
    switch (rt_random_below(random, 4)) {
    case 0: // unborn, or at the PS only
        return (key_state){0, false};
    case 1: // owned or clean
        holders = rt_bit(rt_random_below(random, worker_count));
        break;
    case 2: // several
        holders = rt_random_u64(random) & rt_random_u64(random) & all;
        break;
    case 3:
        holders = all;
        break;
    }
    return (key_state){holders, holders && rt_random_below(random, 2)};
}

// How dp_view.h says that `held` shows a state.
static uint8_t held_byte(key_state state)
{
    if (state.holders == 0)
        return DP_HELD_BY_NONE;
    if (rt_bit_count(state.holders) > 1)
        return DP_HELD_BY_MANY;
    return (uint8_t)(rt_lowest_bit(state.holders) | (state.dirty ? 0 : DP_HELD_CLEAN));
}

#define SAMPLES 40u
#define FIELDS 6u
#define BAG 3u
#define DISTINCT 60u

// A batch made up from nothing but states.
typedef struct {
    dp_ticks ticks;
    key_state states[DISTINCT];
    dp_distinct distinct[DISTINCT];
    uint8_t held[DISTINCT];
    uint32_t offsets[SAMPLES + 1];
    uint32_t lookups[SAMPLES * FIELDS * BAG];
    int32_t changes[DISTINCT * DP_COST_WORKERS_MAX] __attribute__((aligned(16)));
    dp_view view;
} made_up;

static void make_up(made_up *m, rt_random *random, uint32_t worker_count, bool uniform)
{
    uint32_t count = 0;
    random_ticks(random, worker_count, FIELDS, &m->ticks);
    for (uint32_t d = 0; d < DISTINCT; d++) { // key d belongs to field d % FIELDS
        m->states[d] = random_state(random, worker_count);
        m->held[d] = held_byte(m->states[d]);
        m->distinct[d] = (dp_distinct){.holders = m->states[d].holders,
                                       .held = m->held[d],
                                       .field = (uint8_t)(d % FIELDS),
                                       .dirty = m->states[d].dirty};
    }
    for (uint32_t i = 0; i < SAMPLES; i++) {
        m->offsets[i] = count;
        for (uint32_t f = 0; f < FIELDS; f++) {
            uint32_t bag = uniform ? 1 : 1 + rt_random_below(random, BAG);
            uint32_t first = rt_random_below(random, DISTINCT / FIELDS);
            for (uint32_t k = 0; k < bag; k++)
                m->lookups[count++] = (first + k) % (DISTINCT / FIELDS) * FIELDS + f;
        }
    }
    m->offsets[SAMPLES] = count;
    m->view = (dp_view){.worker_count = worker_count,
                        .sample_count = SAMPLES,
                        .lookup_count = count,
                        .distinct_count = DISTINCT,
                        .uniform = uniform,
                        .offsets = m->offsets,
                        .lookups = m->lookups,
                        .distinct = m->distinct,
                        .held = m->held,
                        .ticks = &m->ticks};
    if (worker_count <= DP_COST_WORKERS_MAX && rt_random_below(random, 2)) {
        memset(m->changes, 0x55, sizeof m->changes);
        m->view.changes = m->changes;
    }
}

static void check_made_up(const made_up *m, uint32_t stride)
{
    int32_t *cost = rt_alloc((size_t)SAMPLES * stride, sizeof *cost);
    assert_non_null(cost);
    for (uint32_t k = 0; k < SAMPLES * stride; k++)
        cost[k] = -7;
    dp_cost_matrix(&m->view, cost, stride);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        for (uint32_t j = 0; j < stride; j++) {
            int64_t want = 0;
            for (uint32_t k = m->offsets[i]; k < m->offsets[i + 1]; k++) {
                uint32_t d = m->lookups[k];
                if (j >= m->view.worker_count)
                    continue;
                want += key_cost(&m->ticks, d % FIELDS, m->states[d], j);
            }
            if (j >= m->view.worker_count)
                want = -7; // not touched
            assert_int_equal(cost[i * stride + j], want);
        }
    }
    rt_free(cost);
}

static void matrix_is_algorithm_1(void **state)
{
    (void)state;
    static const uint32_t workers[] = {1, 2, 3, 8, 13, 16, 63, 64};
    static made_up m;
    rt_random random = {1};
    for (uint32_t w = 0; w < RT_COUNT_OF(workers); w++) {
        for (uint32_t round = 0; round < 60; round++) {
            make_up(&m, &random, workers[w], round % 2);
            check_made_up(&m, workers[w] + round % 3);
        }
    }
}

// ---- the same from the states that plans lead to ---------------------------------------------

static void check_view(const planner_case *pc)
{
    const dp_view *view = dp_planner_view(pc->planner);
    uint32_t n = pc->shape.worker_count;
    int32_t *cost = rt_alloc((size_t)view->sample_count * n, sizeof *cost);
    assert_non_null(cost);
    dp_cost_matrix(view, cost, n);
    for (uint32_t i = 0; i < view->sample_count; i++) {
        for (uint32_t j = 0; j < n; j++) {
            int64_t want = 0;
            for (uint32_t k = pc->batch.key_offsets[i]; k < pc->batch.key_offsets[i + 1]; k++) {
                uint64_t key = pc->batch.keys[k];
                plan_checker_key known = plan_checker_find(pc->checker, key);
                key_state held = {known.holders, known.version != known.version_ps};
                want += key_cost(view->ticks, rt_key_field(key), held, j);
            }
            assert_int_equal(cost[i * n + j], want);
            assert_true(want <= DP_COST_MAX);
        }
    }
    rt_free(cost);
}

static void check_distinct(const planner_case *pc)
{
    const dp_view *view = dp_planner_view(pc->planner);
    uint32_t uses = 0, first = 0;
    assert_int_equal(view->iteration, pc->iteration);
    assert_int_equal(view->lookup_count, pc->batch.key_count);
    for (uint32_t k = 0; k < view->lookup_count; k++) {
        uint32_t d = view->lookups[k];
        assert_int_equal(view->distinct[d].key, pc->batch.keys[k]);
        assert_int_equal(view->distinct[d].field, rt_key_field(pc->batch.keys[k]));
        assert_true(d <= first); // numbered in order of first appearance
        first += d == first;
    }
    assert_int_equal(first, view->distinct_count);
    for (uint32_t d = 0; d < view->distinct_count; d++) {
        const dp_distinct *key = &view->distinct[d];
        plan_checker_key known = plan_checker_find(pc->checker, key->key);
        assert_int_equal(key->holders, known.holders);
        assert_int_equal(key->version, known.version);
        assert_int_equal(key->dirty, known.version != known.version_ps);
        assert_int_equal(view->held[d], held_byte((key_state){known.holders, key->dirty}));
        assert_int_equal(key->held, view->held[d]);
        uses += key->uses;
    }
    assert_int_equal(uses, view->lookup_count);
    bool uniform = true;
    for (uint32_t i = 0; i < pc->batch.sample_count; i++)
        uniform &= view->offsets[i + 1] - view->offsets[i] == pc->shape.field_count;
    assert_int_equal(view->uniform, uniform);
    uint32_t room = 0;
    for (uint32_t j = 0; j < view->worker_count; j++)
        room += view->capacity[j];
    assert_int_equal(room, view->sample_count);
}

static void views_show_the_states(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 24; i++) {
        planner_shape shape = {.seed = i,
                               .worker_count = (uint32_t[]){2, 3, 8, 64}[i % 4],
                               .sample_count_max = 70,
                               .field_count = 5,
                               .ids_per_field = 60,
                               .bag_max = 1 + i % 3,
                               .zipf = 0.9,
                               .cache = (cache_size)(i % 3),
                               .dispatch = {.policy = RT_POLICY_LAIA, .view = RT_VIEW_STRICT}};
        planner_case pc;
        planner_case_init(&pc, &shape);
        for (uint32_t t = 0; t < 25; t++) {
            planner_case_look_up(&pc, t % 5 ? 70 : 1 + rt_random_below(&pc.random, 70));
            check_distinct(&pc);
            check_view(&pc);
            planner_case_commit(&pc);
            if (t % 6 == 5)
                planner_case_flush(&pc); // clean copies
        }
        planner_case_fini(&pc);
    }
}

// ---- ticks -----------------------------------------------------------------------------------

static double row_s(uint32_t floats, double bytes_per_s)
{
    return (16 + 4.0 * floats) / bytes_per_s; // record header and floats
}

static void check_tick(int32_t ticks, double seconds, double tick_s)
{
    assert_true(ticks >= 1 && ticks <= 1 << 18);
    if (ticks > 1)
        assert_true(fabs(ticks * tick_s - seconds) <= 0.5000001 * tick_s);
    else
        assert_true(seconds <= 1.5000001 * tick_s);
}

static void ticks_are_bounded_and_near(void **state)
{
    (void)state;
    static const uint32_t keys_per_sample[] = {1, 2, 26, 511, 512, 513, 5000, 1000000};
    rt_random random = {7};
    for (uint32_t round = 0; round < 400; round++) {
        dp_layout layout = {.field_count = 1 + rt_random_below(&random, 20)};
        dp_link links[RT_WORKERS_MAX];
        uint32_t n = 1 + rt_random_below(&random, RT_WORKERS_MAX);
        uint32_t keys = keys_per_sample[round % RT_COUNT_OF(keys_per_sample)];
        int32_t most = 0;
        dp_ticks ticks;
        for (uint32_t f = 0; f < layout.field_count; f++) {
            layout.values[f] = 1 + rt_random_below(&random, 1024);
            layout.state[f] = rt_random_below(&random, 3) * layout.values[f];
        }
        for (uint32_t j = 0; j < n; j++)
            links[j] = (dp_link){pow(10, 5 + 5 * rt_random_unit(&random)),
                                 pow(10, 5 + 5 * rt_random_unit(&random))};
        dp_ticks_compute(&layout, links, n, keys, &ticks);
        assert_int_equal(ticks.worker_count, n);
        assert_int_equal(ticks.field_count, layout.field_count);
        for (uint32_t f = 0; f < layout.field_count; f++) {
            uint32_t row = layout.values[f] + layout.state[f];
            for (uint32_t j = 0; j < n; j++) {
                check_tick(ticks.pull[f][j], row_s(row, links[j].down_bytes_per_s), ticks.tick_s);
                check_tick(ticks.push[f][j], row_s(row, links[j].up_bytes_per_s), ticks.tick_s);
                check_tick(ticks.grad[f][j], row_s(layout.values[f] + 2, links[j].up_bytes_per_s),
                           ticks.tick_s); // a gradient's header has 24 bytes
                most = most > ticks.pull[f][j] ? most : ticks.pull[f][j];
                most = most > ticks.push[f][j] ? most : ticks.push[f][j];
                most = most > ticks.grad[f][j] ? most : ticks.grad[f][j];
            }
        }
        assert_true(2 * (int64_t)most * keys <= DP_COST_MAX);
        // Nearly as fine as the bounds allow (a short gradient has the longer header).
        assert_true(most >= (1 << 18) * 2 / 3 || 3 * ((int64_t)most + 2) * keys >= DP_COST_MAX);
    }
}

// As fine as the bound allows, but for one tick of each of a sample's transfers.
static void ticks_reach_the_bound(void **state)
{
    (void)state;
    const dp_layout layout = {.field_count = 1, .values = {100}, .state = {100}};
    const dp_link link = {1e6, 1e7};
    for (uint32_t keys = 1000; keys < 10000; keys += 777) {
        dp_ticks ticks;
        dp_ticks_compute(&layout, &link, 1, keys, &ticks);
        assert_int_equal(ticks.push[0][0], DP_COST_MAX / (2 * keys) - 1);
    }
}

// ---- times -----------------------------------------------------------------------------------

// int8: the first 20 iterations of a run are in 32 bits; the simulator leaves some out.
static void dense_bytes_of_the_first(void **state)
{
    (void)state;
    dp_account_config config = {.worker_count = 2, .dense_bytes = 100, .dense_whole_bytes = 400};
    test_close(dp_account_dense_bytes(&config, 0, 10), 400, 1e-12, 0, "all in 32 bits");
    test_close(dp_account_dense_bytes(&config, 0, 80), 175, 1e-12, 0, "a quarter of them");
    test_close(dp_account_dense_bytes(&config, 15, 10), 250, 1e-12, 0, "half of them");
    test_close(dp_account_dense_bytes(&config, 20, 10), 100, 1e-12, 0, "none");
    test_close(dp_account_dense_bytes(&config, 0, 0), 100, 1e-12, 0, "no iteration");
    config.dense_whole_bytes = 0;
    test_close(dp_account_dense_bytes(&config, 0, 10), 100, 1e-12, 0, "not int8");
    config.worker_count = 1;
    test_close(dp_account_dense_bytes(&config, 0, 10), 0, 1e-12, 0, "nobody to add to");
}

static double predicted_of(const dp_account_config *config, uint64_t participants,
                           uint64_t returning, uint64_t sharing, dp_account *account)
{
    dp_plan plan;
    *account = (dp_account){0};
    assert_int_equal(dp_plan_init(&plan, config->worker_count), RT_OK);
    plan.iteration = 1;
    plan.participants = participants;
    plan.returning = returning;
    plan.sharing = sharing;
    dp_account_add(config, &plan, account);
    dp_plan_fini(&plan);
    return account->predicted_s;
}

// Who trains alone moves no dense byte, on boxes and without; before others train it gives the
// weights to the shards, of which they fetch them.
static void who_trains_alone(void **state)
{
    (void)state;
    dp_account account;
    dp_account_config config = {.worker_count = 2,
                                .dense_bytes = 600,
                                .dense_whole_bytes = 2400,
                                .dense_return_bytes = 1200,
                                .rates = {.links = {{100, 200}, {50, 25}}, .shards.count = 2}};
    config.rates.shards.dense_count = 2;
    test_close(predicted_of(&config, 1, 0, 0, &account), 0, 1e-12, 0, "alone");
    test_close(predicted_of(&config, 3, 0, 0, &account), 2400 / 25.0, 1e-12, 0, "both");
    test_close(predicted_of(&config, 3, 2, 1, &account), 3600 / 25.0, 1e-12, 0, "one comes back");
    test_close(predicted_of(&config, 1, 1, 2, &account), 1200 / 200.0, 1e-12, 0, "another alone");

    config.boxes = (dp_boxes){.count = 2,
                              .worker_count = 2,
                              .of_worker = {0, 1},
                              .of_shard = {0, 1},
                              .given = {{100, 200}, {50, 25}}};
    test_close(predicted_of(&config, 1, 0, 0, &account), 0, 1e-12, 0, "alone");
    assert_true(account.boxes.up[0] == 0 && account.boxes.down[1] == 0);
    (void)predicted_of(&config, 3, 0, 0, &account); // half of it stays on its box
    assert_true(account.boxes.up[0] == 2400 && account.boxes.up[1] == 2400);
    (void)predicted_of(&config, 3, 2, 1, &account); // half of the weights each way
    assert_true(account.boxes.up[0] == 2400 + 2 * 600 && account.boxes.down[1] == 2400 + 2 * 600);
    assert_true(account.boxes.up[1] == 2400 && account.boxes.down[0] == 2400);
}

// Worker 0 hands a row of 4 floats and 2 of state to worker 1, and pulls one of 4: 40 bytes and 32.
// A gradient between workers takes both links and none of the PS.
static void gradients_to_a_trainer(void **state)
{
    (void)state;
    dp_plan plan;
    dp_account account = {0};
    dp_account_config config = {.layout = {.field_count = 1, .values = {4}, .state = {2}},
                                .worker_count = 2,
                                .rates = {.links = {{100, 200}, {50, 25}}, .ps_bytes_per_s = 1e-3}};
    assert_int_equal(dp_plan_init(&plan, 2), RT_OK);
    plan.participants = 3;
    dp_ops_add(&plan.slices[0].after, DP_OP_REDUCE)->peer = 1;
    dp_ops_add(&plan.slices[1].after, DP_OP_SUM)->peer = 0;
    dp_account_add(&config, &plan, &account);
    assert_int_equal(account.handed.rows, 0);
    assert_int_equal(account.handed.gradients, 1);
    assert_int_equal(account.traffic[0].up, 24 + 16);
    assert_int_equal(account.traffic[1].down, 24 + 16);
    assert_true(account.traffic[0].down == 0 && account.traffic[1].up == 0);
    test_close(account.predicted_s, 40 / 25.0, 1e-12, 0, "predicted");
    test_close(dp_account_cost_s(&account, 2), 40 / 25.0, 1e-12, 0, "cost");
    dp_plan_fini(&plan);
}

static void rows_handed_over(void **state)
{
    (void)state;
    dp_plan plan;
    dp_account account = {0};
    dp_account_config config = {.layout = {.field_count = 1, .values = {4}, .state = {2}},
                                .worker_count = 2,
                                .rates = {.links = {{100, 200}, {50, 25}}, .ps_bytes_per_s = 4}};
    assert_int_equal(dp_plan_init(&plan, 2), RT_OK);
    plan.participants = 3;
    dp_op *send = dp_ops_add(&plan.slices[0].release, DP_OP_SEND);
    send->flags = DP_OP_STATE;
    send->peer = 1;
    dp_op *receive = dp_ops_add(&plan.slices[1].fill, DP_OP_RECV);
    receive->flags = DP_OP_STATE;
    receive->peer = 0;
    dp_op *pull = dp_ops_add(&plan.slices[0].fill, DP_OP_PULL);
    pull->version = 1;
    dp_account_add(&config, &plan, &account);
    assert_int_equal(account.handed.rows, 1);
    assert_int_equal(account.handed.bytes, 40);
    assert_int_equal(account.traffic[0].up, 40 + sizeof(rt_wire_pull));
    assert_int_equal(account.traffic[0].down, 32);
    assert_int_equal(account.traffic[1].up, 0);
    assert_int_equal(account.traffic[1].down, 40);
    test_close(account.cost_s[0], 32 / 200.0, 1e-12, 0, "the pull");
    test_close(account.cost_s[1], 40 / 25.0, 1e-12, 0, "the slower of two links");
    test_close(account.predicted_s, 32 / 4.0, 1e-12, 0, "the PS has part in the pull alone");
    config.boxes = (dp_boxes){.count = 1, .worker_count = 2, .given = {{100, 100}}};
    config.rates.shards.count = 1;
    account = (dp_account){0};
    dp_account_add(&config, &plan, &account);
    test_close(account.cost_s[1], 0, 0, 0, "on one box");
    assert_int_equal(account.boxes.up[0], 0);
    dp_plan_fini(&plan);
}

static void predicted_times(void **state)
{
    (void)state;
    dp_account_config config = {.worker_count = 2, .rates.links = {{1000, 2000}, {100, 50}}};
    dp_traffic traffic[2] = {{500, 500}, {10, 20}}; // 0.5 s up, 0.25 s down; 0.1 s, 0.4 s
    uint32_t samples[2] = {10, 30};
    test_close(dp_predict_s(&config, 1, 3, traffic, 0, samples), 0.5, 1e-12, 0, "links");
    config.rates.compute_s_per_sample[0] = 0.01; // 0.5 + 0.1
    config.rates.compute_s_per_sample[1] = 0.02; // 0.4 + 0.6
    test_close(dp_predict_s(&config, 1, 3, traffic, 0, samples), 1.0, 1e-12, 0, "computation");
    config.rates.ps_bytes_per_s = 260; // 510 up, 520 down
    test_close(dp_predict_s(&config, 1, 3, traffic, 0, samples), 2.0, 1e-12, 0, "PS");
    // Of the 510 and 520, 130 are rows that go from one worker to the other.
    test_close(dp_predict_s(&config, 1, 3, traffic, 130, samples), 1.5, 1e-12, 0,
               "rows handed over");
    config.rates.ps_bytes_per_s = 10000;
    config.dense_bytes = 100; // 1: 120 bytes down in 2.4 s, + 0.6
    test_close(dp_predict_s(&config, 1, 3, traffic, 0, samples), 3.0, 1e-12, 0, "dense");
    config.dense_whole_bytes = 400; // in the first iterations: 420 bytes down in 8.4 s, + 0.6
    for (uint32_t t = 0; t <= RT_CODING_WHOLE_ITERATIONS + 1; t++)
        test_close(dp_predict_s(&config, t, 3, traffic, 0, samples),
                   t > 0 && t <= RT_CODING_WHOLE_ITERATIONS ? 9.0 : 3.0, 1e-12, 0, "dense, whole");
    config.dense_whole_bytes = 0;
    config.rates.ps_bytes_per_s = 100; // 720 down
    test_close(dp_predict_s(&config, 1, 3, traffic, 0, samples), 7.2, 1e-12, 0, "dense at the PS");
    config.rates.shards =
        (dp_shards){4, 1, {20, 0, 9, 100}}; // 520 of rows: 130 a shard, 200 dense at 0
    test_close(dp_predict_s(&config, 1, 3, traffic, 0, samples), 330 / 20.0, 1e-12, 0,
               "first shard");
    config.rates.shards.bytes_per_s[2] = 7;
    test_close(dp_predict_s(&config, 1, 3, traffic, 0, samples), 130 / 7.0, 1e-12, 0,
               "another shard");
    config.rates.shards.dense_count = 4; // 50 dense each
    test_close(dp_predict_s(&config, 1, 3, traffic, 0, samples), 180 / 7.0, 1e-12, 0, "all alike");
    config.rates.ps_bytes_per_s = 10;
    test_close(dp_predict_s(&config, 1, 3, traffic, 0, samples), 72, 1e-12, 0, "all shards");
}

// What the search counts in ticks is the time that the prediction names.
static void ticks_of_shards_are_the_predicted_time(void **state)
{
    (void)state;
    static const dp_shards cases[] = {{0},
                                      {2, 1, {0}},
                                      {2, 1, {3e6, 0}},
                                      {3, 1, {0, 4e6, 3e6}},
                                      {4, 1, {9e6, 2e6, 0, 5e6}},
                                      {4, 4, {9e6, 2e6, 0, 5e6}},
                                      {3, 2, {5e6, 4e6, 3e6}}};
    static const double ps[] = {0, 1e7, 6e6, 0, 2e7, 2e7, 0};
    const dp_layout layout = {1, {64}, {64}, RT_CODING_FP32};
    const dp_link links[] = {{1e6, 1e6}, {2e6, 2e6}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        for (uint64_t dense = 0; dense < 4000000; dense += 900000) {
            static dp_ticks ticks;
            const double rows = 5000, bytes = rows * dp_row_bytes(&layout, 0, true);
            dp_ticks_compute(&layout, links, 2, 10, &ticks);
            dp_ticks_add_shards(&layout, ps[i], &cases[i], 2 * dense, &ticks);
            const double expected = dp_shards_s(ps[i], &cases[i], bytes, 2 * (double)dense);
            test_close(dp_ticks_shards(&ticks, rows * ticks.ps_row[0]) * ticks.tick_s, expected,
                       1e-3, 0, "seconds");
            assert_true((expected > 0) == (i > 0));
        }
    }
}

static void unit_of_cost(void **state)
{
    (void)state;
    dp_account_config config = {.worker_count = 2,
                                .rates.links = {{1000, 2000}, {100, 4000}},
                                .layout = {3, {8, 16, 4}, {8, 0, 100}, RT_CODING_FP32}};
    test_close(dp_account_unit_s(&config), (16 + 4 * 16) / 4000.0, 1e-12, 0, "unit");
}

// ---- sums over a run -------------------------------------------------------------------------

typedef struct {
    uint64_t kinds[RT_WORKERS_MAX][DP_OP_KINDS][3]; // by reason
    uint64_t first[RT_WORKERS_MAX];
    double up[RT_WORKERS_MAX], down[RT_WORKERS_MAX], requests[RT_WORKERS_MAX]; // bytes
    double cost_s, predicted_s;
    uint64_t samples, lookups, wholes;
} tally;

// Of values: in 32 bits, in 16, in 8 and a scale; words of 4 bytes.
static uint32_t coded_bytes(const dp_layout *layout, uint32_t values)
{
    const uint32_t bytes = layout->wire == RT_CODING_BF16   ? 2 * values
                           : layout->wire == RT_CODING_INT8 ? 4 + values
                                                            : 4 * values;
    return (bytes + 3) / 4 * 4;
}

static void tally_op(const dp_layout *layout, const dp_op *op, uint32_t j, tally *sum)
{
    uint32_t field = (uint32_t)(op->key >> 56);
    const uint32_t values = layout->values[field], state = 4 * layout->state[field];
    const uint32_t coded = coded_bytes(layout, values);
    const bool stays = layout->wire != RT_CODING_FP32 && op->flags & DP_OP_WHOLE;
    sum->kinds[j][op->kind][op->reason]++;
    sum->first[j] += op->kind == DP_OP_INIT || (op->kind == DP_OP_PULL && op->version == 0);
    if (op->kind == DP_OP_PULL) {
        sum->down[j] += 16 + (op->version ? coded : 4 * values);
        sum->down[j] += op->flags & DP_OP_STATE ? state : 0;
        sum->requests[j] += 16;
    } else if (op->kind == DP_OP_PUSH_ROW) {
        sum->up[j] += 16 + (stays ? 4 * values : coded) + state;
        sum->wholes += stays;
    } else if (op->kind == DP_OP_PUSH_GRAD) {
        sum->up[j] += 24 + coded;
    }
}

static void tally_plan(const dp_account_config *config, const dp_plan *plan, tally *all)
{
    static tally one; // of this iteration, for its time
    double slowest = 0, ps = 0, sums[2] = {0, 0};
    memset(&one, 0, sizeof one);
    for (uint32_t j = 0; j < plan->worker_count; j++) {
        const dp_slice *slice = &plan->slices[j];
        const dp_ops *lists[] = {&slice->release, &slice->fill, &slice->after};
        for (uint32_t l = 0; l < 3; l++) {
            for (uint32_t k = 0; k < lists[l]->count; k++) {
                tally_op(&config->layout, &lists[l]->items[k], j, all);
                tally_op(&config->layout, &lists[l]->items[k], j, &one);
            }
        }
        double up_s = one.up[j] / config->rates.links[j].up_bytes_per_s;
        double down_s = one.down[j] / config->rates.links[j].down_bytes_per_s;
        all->cost_s += up_s + down_s;
        double up = one.up[j] + one.requests[j] + (double)config->dense_bytes;
        double down = one.down[j] + (double)config->dense_bytes;
        double time = fmax(up / config->rates.links[j].up_bytes_per_s,
                           down / config->rates.links[j].down_bytes_per_s) +
                      slice->sample_count * config->rates.compute_s_per_sample[j];
        slowest = fmax(slowest, time);
        sums[0] += up;
        sums[1] += down;
        all->samples += slice->sample_count;
        all->lookups += slice->lookup_count;
    }
    ps = fmax(sums[0], sums[1]) / config->rates.ps_bytes_per_s;
    all->predicted_s += fmax(slowest, ps);
}

static void compare_sums(const dp_account *account, const tally *sum, uint32_t worker_count)
{
    rt_counts all = {0};
    for (uint32_t j = 0; j < worker_count; j++) {
        const rt_counts *counts = &account->workers[j];
        assert_int_equal(counts->miss_pull, sum->kinds[j][DP_OP_PULL][0]);
        assert_int_equal(counts->update_push, sum->kinds[j][DP_OP_PUSH_ROW][DP_REASON_UPDATE]);
        assert_int_equal(counts->evict_push, sum->kinds[j][DP_OP_PUSH_ROW][DP_REASON_EVICT]);
        assert_int_equal(counts->flush_push, 0);
        assert_int_equal(counts->grad_push, sum->kinds[j][DP_OP_PUSH_GRAD][0]);
        assert_int_equal(counts->first_touch, sum->first[j]);
        assert_int_equal(account->traffic[j].up, sum->up[j] + sum->requests[j]);
        assert_int_equal(account->traffic[j].down, sum->down[j]);
        all.miss_pull += counts->miss_pull;
        all.update_push += counts->update_push;
        all.evict_push += counts->evict_push;
        all.grad_push += counts->grad_push;
        all.first_touch += counts->first_touch;
    }
    rt_counts got = dp_account_counts(account, worker_count);
    assert_memory_equal(&got, &all, sizeof got);
    assert_true(all.update_push && all.evict_push && all.grad_push && all.first_touch);
    // Sums of the same doubles in another order.
    test_close(dp_account_cost_s(account, worker_count), sum->cost_s, 1e-12, 0, "cost");
    test_close(account->predicted_s, sum->predicted_s, 1e-12, 0, "predicted time");
    assert_int_equal(account->samples, sum->samples);
    assert_int_equal(account->hits.lookups, sum->lookups);
}

static void sums_count_every_operation(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 12; i++) {
        planner_shape shape = {
            .seed = i,
            .row_wire = (rt_coding)(i / 4),
            .worker_count = 5,
            .sample_count_max = 60,
            .field_count = 4,
            .ids_per_field = 400,
            .bag_max = 1 + i % 2,
            .zipf = 0.9,
            .dispatch = {.policy = RT_POLICY_RANDOM, .first_touch = (rt_first_touch)(i / 2 % 2)}};
        static dp_account account;
        static tally sum;
        planner_case pc;
        memset(&account, 0, sizeof account);
        memset(&sum, 0, sizeof sum);
        planner_case_init(&pc, &shape);
        dp_account_config config = {.layout = pc.config.layout,
                                    .worker_count = 5,
                                    .rates.ps_bytes_per_s = i % 2 ? 1e8 : 1e12,
                                    .dense_bytes = 1000,
                                    .rates.compute_s_per_sample = {0, 1e-6, 3e-5, 0, 2e-6}};
        memcpy(config.rates.links, pc.config.rates.links, sizeof config.rates.links);
        for (uint32_t t = 0; t < 40; t++) {
            planner_case_look_up(&pc, 60);
            planner_case_commit(&pc);
            dp_account_add(&config, pc.plan, &account);
            tally_plan(&config, pc.plan, &sum);
        }
        assert_int_equal(account.iterations, 40);
        compare_sums(&account, &sum, 5);
        assert_int_equal(sum.wholes > 0, shape.row_wire != RT_CODING_FP32);
        planner_case_fini(&pc);
    }
}

// ---- chunks of the dense exchange ------------------------------------------------------------

static uint32_t chunk_of(const dp_planner_config *config, const rt_batch *batch)
{
    dp_planner *planner;
    const dp_plan *plan = NULL;
    assert_int_equal(dp_planner_create(config, &planner, NULL), RT_OK);
    assert_int_equal(dp_planner_look_up(planner, batch), RT_OK);
    dp_planner_place(planner);
    assert_int_equal(dp_planner_commit(planner, &plan), RT_OK);
    const uint32_t floats = plan->dense_chunk_floats;
    dp_planner_destroy(planner);
    return floats;
}

// A chunk suits the slowest of: every link, each way; what a worker has of all parameter servers'
// link, and of the shards' that have the sums.
static void chunks_suit_the_slowest_link(void **state)
{
    (void)state;
    enum { WORKERS = 4 };
    const double fast = 1e9, slow = 4e7; // 2 ms of it are 20000 floats
    planner_case pc;
    const planner_shape shape = {.seed = 1,
                                 .worker_count = WORKERS,
                                 .sample_count_max = 16,
                                 .field_count = 2,
                                 .ids_per_field = 50,
                                 .bag_max = 1,
                                 .dispatch = {.policy = RT_POLICY_RANDOM}};
    planner_case_init(&pc, &shape);
    random_batches_fill(&pc.batches, &pc.batch, 16);
    dp_planner_config config = pc.config;
    for (uint32_t j = 0; j < WORKERS; j++)
        config.rates.links[j] = (dp_link){fast, fast};
    config.rates.ps_bytes_per_s = 0;
    config.rates.shards = (dp_shards){.count = 3, .dense_count = 2};
    assert_int_equal(chunk_of(&config, &pc.batch), dp_dense_chunk_floats(fast, RT_CODING_FP32));
    double *const limits[] = {&config.rates.links[0].up_bytes_per_s,
                              &config.rates.links[3].up_bytes_per_s,
                              &config.rates.links[2].down_bytes_per_s, &config.rates.ps_bytes_per_s,
                              &config.rates.shards.bytes_per_s[1]};
    for (size_t i = 0; i < RT_COUNT_OF(limits); i++) {
        const double was = *limits[i];
        *limits[i] = i < 3 ? slow : WORKERS * slow;
        assert_int_equal(chunk_of(&config, &pc.batch), 20000);
        *limits[i] = was;
    }
    config.rates.shards.bytes_per_s[2] = slow; // only rows pass here
    assert_int_equal(chunk_of(&config, &pc.batch), dp_dense_chunk_floats(fast, RT_CODING_FP32));
    planner_case_fini(&pc);
}

// Rows of a worker pass its box's link, which is as fast as the fastest that a worker there found.
static void ticks_of_boxes(void **state)
{
    (void)state;
    const dp_layout layout = {.field_count = 2, .values = {8, 32}, .state = {8, 1}};
    const dp_boxes boxes = {.count = 2,
                            .worker_count = 3,
                            .of_worker = {0, 1, 1},
                            .of_shard = {1},
                            .given = {{1, 1}, {1, 1}}};
    const dp_rates rates = {.shards.count = 1, .links = {{1e8, 5e7}, {1e7, 1e6}, {9e6, 2e7}}};
    const dp_link links[] = {{1e8, 5e7}, {1e7, 2e7}};
    dp_ticks ticks;
    dp_ticks_compute(&layout, rates.links, 3, 4, &ticks);
    dp_ticks_add_boxes(&layout, &boxes, &rates, 7, 1000, &ticks);
    for (uint32_t f = 0; f < 2; f++) {
        const double row = dp_row_bytes(&layout, f, true) / ticks.tick_s;
        const double grad = dp_grad_bytes(&layout, f) / ticks.tick_s;
        for (uint32_t j = 0; j < 3; j++) {
            const uint32_t b = boxes.of_worker[j];
            const dp_link *link = &links[b];
            assert_int_equal(ticks.box_up[f][b], rint(row / link->up_bytes_per_s));
            assert_int_equal(ticks.box_down[f][b], rint(row / link->down_bytes_per_s));
            assert_int_equal(ticks.box_grad[f][b], rint(grad / link->down_bytes_per_s));
            assert_int_equal(ticks.push[f][j], ticks.box_up[f][b]);
            assert_int_equal(ticks.pull[f][j], ticks.box_down[f][b]);
            assert_int_equal(ticks.grad[f][j], rint(grad / link->up_bytes_per_s));
        }
    }
}

TEST_MAIN(TEST(ticks_of_boxes), TEST(chunks_suit_the_slowest_link), TEST(matrix_is_algorithm_1),
          TEST(views_show_the_states), TEST(ticks_are_bounded_and_near),
          TEST(ticks_reach_the_bound), TEST(predicted_times), TEST(dense_bytes_of_the_first),
          TEST(who_trains_alone), TEST(rows_handed_over), TEST(gradients_to_a_trainer),
          TEST(ticks_of_shards_are_the_predicted_time), TEST(unit_of_cost),
          TEST(sums_count_every_operation))
