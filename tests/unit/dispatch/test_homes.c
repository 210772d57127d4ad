// Homes of rows and links of boxes: plans of random runs, carried out on plain lists of what every
// shard has; and what passes every link, counted operation by operation.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "dispatch/cost/dp_boxes.h"
#include "dispatch/planner/dp_account.h"
#include "dispatch/planner/dp_planner.h"
#include "dispatch/planner/dp_snapshot.h"
#include "dispatch/planner/dp_sweep.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/random_batches.h"
#include "tests/support/test.h"

#define FIELDS 3u
#define IDS 40u
#define KEYS (FIELDS * IDS)
#define SHARDS 6u
#define FORGETS 10000u
#define DENSE 1200u // bytes of gradients, and of weights with their state
#define WEIGHTS 6000u

typedef struct {
    uint32_t workers, boxes, shards;
    uint8_t box_of_worker[RT_WORKERS_MAX], box_of_shard[RT_SHARDS_MAX];
    rt_homes homes;
    rt_policy_kind policy;
    uint64_t shard_rows_max;
    bool some_sit_out, sweeps;
    uint64_t seed;
} site;

typedef struct {
    dp_planner_config config;
    dp_planner *planner;
    dp_account_config costs;
    dp_account account;
    random_batches batches;
    rt_batch batch;
    uint32_t at[SHARDS][KEYS]; // version that a shard has; 0: no row
    dp_box_traffic traffic;    // counted here
    double predicted_s;
    uint64_t took_part; // in the iteration before
    uint32_t alone;     // iterations
    uint64_t moves;
    dp_op forgets[FORGETS]; // that are under way
    uint32_t forget_count;
    rt_random random;
} run;

static uint32_t number_of(uint64_t key)
{
    const uint64_t id = key & RT_ID_MASK;
    assert_true(id < IDS && rt_key_field(key) < FIELDS);
    return (uint32_t)(rt_key_field(key) * IDS + id);
}

static void fill_config(const site *s, dp_planner_config *config)
{
    *config = (dp_planner_config){
        .worker_count = s->workers,
        .sample_count_max = 6 * s->workers,
        .keys_per_sample_max = FIELDS,
        .participants_min = s->some_sit_out ? 1 : 0,
        .layout.field_count = FIELDS,
        .homes = s->homes,
        .shard_rows_max = s->shard_rows_max,
        .dense_bytes = DENSE,
        .dense_return_bytes = WEIGHTS,
        .dispatch = {.policy = s->policy, .alpha = 1, .search_evaluations = 200},
        .rates.shards = {s->shards, s->shards, {0}},
        .boxes = {.count = s->boxes, .worker_count = s->workers},
        .seed = s->seed};
    memcpy(config->boxes.of_worker, s->box_of_worker, sizeof s->box_of_worker);
    memcpy(config->boxes.of_shard, s->box_of_shard, sizeof s->box_of_shard);
    for (uint32_t f = 0; f < FIELDS; f++) {
        config->layout.values[f] = 8;
        config->layout.state[f] = 8;
    }
    for (uint32_t b = 0; b < s->boxes; b++)
        config->boxes.given[b] = (dp_link){1e6 * (1 + b), 2e6 * (1 + b)};
    for (uint32_t j = 0; j < s->workers; j++) {
        config->slot_count[j] = (s->some_sit_out ? 6 * s->workers : 6) * FIELDS + 5 * j;
        config->rates.links[j] = config->boxes.given[s->box_of_worker[j]];
        config->rates.compute_s_per_sample[j] = 1e-5 * j;
    }
}

static void run_init(run *r, const site *s)
{
    rt_error error = {0};
    memset(r, 0, sizeof *r);
    r->random.state = s->seed;
    fill_config(s, &r->config);
    if (dp_planner_create(&r->config, &r->planner, &error))
        fail_msg("%s", error.text);
    dp_account_init(&r->config, &r->costs);
    random_batches_init(&r->batches, s->seed, FIELDS, IDS, 1, 0.8);
    rt_batch_init(&r->batch, 0);
}

static void run_fini(run *r)
{
    dp_planner_destroy(r->planner);
    random_batches_fini(&r->batches);
    rt_batch_fini(&r->batch);
}

// ---- what passes the links ---------------------------------------------------------------------

static void pass(run *r, dp_box_traffic *one, uint32_t from, uint32_t to, uint64_t bytes, bool row)
{
    (void)r;
    if (from == to)
        return;
    one->up[from] += bytes;
    one->down[to] += bytes;
    one->rows_up[from] += row;
    one->rows_down[to] += row;
}

static void pass_op(run *r, dp_box_traffic *one, uint32_t worker, const dp_op *op)
{
    const uint32_t here = r->config.boxes.of_worker[worker];
    const uint32_t planned = op->flags / 4;
    const uint32_t shard =
        planned ? planned - 1 : rt_key_shard(op->key, r->config.rates.shards.count);
    const uint32_t there = r->config.boxes.of_shard[shard];
    assert_int_equal(planned > 0, r->config.homes == RT_HOMES_PLANNED);
    if (op->kind == DP_OP_PUSH_ROW)
        pass(r, one, here, there, 16 + 64, true);
    if (op->kind == DP_OP_PUSH_GRAD)
        pass(r, one, here, there, 24 + 32, true);
    if (op->kind == DP_OP_FORGET)
        pass(r, one, here, there, 16, false);
    if (op->kind != DP_OP_PULL)
        return;
    pass(r, one, here, there, 16, false);
    pass(r, one, there, here, 16 + (op->flags & DP_OP_STATE ? 64 : 32), true);
}

// The dense exchange of several; who comes back fetches the weights, and has them of the shards,
// which one that trained alone gave them to.
static void pass_dense(run *r, const dp_plan *plan, uint32_t worker, dp_box_traffic *one)
{
    const uint32_t shards = r->config.rates.shards.count, here = r->config.boxes.of_worker[worker];
    const uint64_t before = r->took_part, now = plan->participants;
    const bool trains = now >> worker & 1, trained = before >> worker & 1;
    for (uint32_t s = 0; s < shards; s++) {
        const uint32_t there = r->config.boxes.of_shard[s];
        if (trains && now != rt_bit(worker)) {
            pass(r, one, here, there, DENSE / shards, false);
            pass(r, one, there, here, DENSE / shards, false);
        }
        if (before && trains && !trained)
            pass(r, one, there, here, WEIGHTS / shards, false);
        if (before == rt_bit(worker) && now != before)
            pass(r, one, here, there, WEIGHTS / shards, false);
    }
    r->alone += trains && now == rt_bit(worker);
}

static void pass_plan(run *r, const dp_plan *plan)
{
    static dp_box_traffic one;
    double slowest = 0;
    memset(&one, 0, sizeof one);
    for (uint32_t w = 0; w < plan->worker_count; w++) {
        const dp_slice *slice = &plan->slices[w];
        const dp_ops *lists[] = {&slice->release, &slice->fill, &slice->after};
        for (uint32_t l = 0; l < 3; l++)
            for (uint32_t i = 0; i < lists[l]->count; i++)
                if (lists[l]->items[i].kind != DP_OP_DROP && lists[l]->items[i].kind != DP_OP_INIT)
                    pass_op(r, &one, w, &lists[l]->items[i]);
        pass_dense(r, plan, w, &one);
    }
    r->took_part = plan->participants;
    for (uint32_t b = 0; b < r->config.boxes.count; b++) {
        const double link =
            fmax((double)one.up[b] / (1e6 * (1 + b)), (double)one.down[b] / (2e6 * (1 + b)));
        slowest = fmax(slowest, link);
        for (uint32_t w = 0; w < plan->worker_count; w++)
            if (r->config.boxes.of_worker[w] == b && plan->participants >> w & 1)
                slowest = fmax(slowest, link + 1e-5 * w * plan->slices[w].sample_count);
        r->traffic.up[b] += one.up[b];
        r->traffic.down[b] += one.down[b];
        r->traffic.rows_up[b] += one.rows_up[b];
        r->traffic.rows_down[b] += one.rows_down[b];
    }
    r->predicted_s += slowest;
}

// ---- what shards have --------------------------------------------------------------------------

static uint32_t shard_of(const run *r, const dp_op *op)
{
    return dp_op_shard(op, r->config.rates.shards.count);
}

static void carry_out_pushes(run *r, const dp_ops *ops)
{
    for (uint32_t i = 0; i < ops->count; i++) {
        const dp_op *op = &ops->items[i];
        if (op->kind != DP_OP_PUSH_ROW)
            continue;
        uint32_t *at = &r->at[shard_of(r, op)][number_of(op->key)];
        assert_true(*at < op->version);
        *at = op->version;
    }
}

// A pull that a shard cannot answer would wait for ever.
static void carry_out_pulls(run *r, const dp_plan *plan)
{
    for (uint32_t w = 0; w < plan->worker_count; w++)
        for (uint32_t i = 0; i < plan->slices[w].fill.count; i++) {
            const dp_op *op = &plan->slices[w].fill.items[i];
            if (op->kind == DP_OP_PULL && r->at[shard_of(r, op)][number_of(op->key)] != op->version)
                fail_msg("iteration %" PRIu32 ", worker %" PRIu32 ": key %" PRIx64
                         " version %" PRIu32 " is pulled from shard %" PRIu32
                         ", which has %" PRIu32,
                         plan->iteration, w, op->key, op->version, shard_of(r, op),
                         r->at[shard_of(r, op)][number_of(op->key)]);
        }
}

static void carry_out_gradients(run *r, const dp_plan *plan)
{
    uint64_t arrived[KEYS] = {0};
    uint32_t shard[KEYS] = {0};
    for (uint32_t w = 0; w < plan->worker_count; w++)
        for (uint32_t i = 0; i < plan->slices[w].after.count; i++) {
            const dp_op *op = &plan->slices[w].after.items[i];
            if (op->kind != DP_OP_PUSH_GRAD)
                continue;
            const uint32_t key = number_of(op->key);
            assert_true(!arrived[key] || shard[key] == shard_of(r, op)); // all meet at one
            shard[key] = shard_of(r, op);
            assert_int_equal(r->at[shard[key]][key], op->base);
            arrived[key] |= rt_bit(w);
            if (arrived[key] == op->mask)
                r->at[shard[key]][key] = op->version;
        }
}

// Words to forget come any time after the pulls of their iteration, and before a cut.
static void send_forgets(run *r, const dp_plan *plan)
{
    for (uint32_t w = 0; w < plan->worker_count; w++)
        for (uint32_t i = 0; i < plan->slices[w].after.count; i++) {
            const dp_op *op = &plan->slices[w].after.items[i];
            if (op->kind != DP_OP_FORGET)
                continue;
            assert_true(r->forget_count < FORGETS);
            r->forgets[r->forget_count++] = *op;
        }
}

static void take_forgets(run *r, uint32_t one_of)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->forget_count; i++) {
        const dp_op *op = &r->forgets[i];
        uint32_t *at = &r->at[shard_of(r, op)][number_of(op->key)];
        if (rt_random_below(&r->random, one_of)) {
            r->forgets[kept++] = *op;
            continue;
        }
        *at = *at > op->version ? *at : 0;
    }
    r->forget_count = kept;
}

static void check_homes(run *r)
{
    uint64_t count[SHARDS] = {0};
    take_forgets(r, 1);
    for (uint32_t key = 0; key < KEYS; key++) {
        uint32_t homes = 0;
        for (uint32_t s = 0; s < r->config.rates.shards.count; s++) {
            homes += r->at[s][key] > 0;
            count[s] += r->at[s][key] > 0;
        }
        assert_true(homes <= 1);
    }
    for (uint32_t s = 0; s < SHARDS && r->config.homes == RT_HOMES_PLANNED; s++)
        assert_true(dp_planner_directory(r->planner)->home_counts[s] >= count[s]);
}

static void carry_out(run *r, const dp_plan *plan)
{
    const uint32_t waiting = r->forget_count;
    for (uint32_t w = 0; w < plan->worker_count; w++)
        carry_out_pushes(r, &plan->slices[w].release);
    carry_out_pulls(r, plan);
    send_forgets(r, plan);
    assert_true(plan->moves >=
                r->forget_count - waiting); // a row without versions moves in silence
    take_forgets(r, 3);
    for (uint32_t w = 0; w < plan->worker_count; w++)
        carry_out_pushes(r, &plan->slices[w].after);
    take_forgets(r, 3);
    carry_out_gradients(r, plan);
    take_forgets(r, 2);
    r->moves += plan->moves;
}

// Caches filled anew, as after a start: every row comes from the shard that has it, and as many as
// there were.
static void check_refill(run *r)
{
    const dp_plan *plan;
    const dp_directory *directory = dp_planner_directory(r->planner);
    uint32_t slot = 0, pulls = 0, copies = 0;
    rt_status status;
    while ((status = dp_planner_refill(r->planner, 50, &slot, &plan)) == RT_OK) {
        carry_out_pulls(r, plan);
        for (uint32_t w = 0; w < plan->worker_count; w++)
            pulls += plan->slices[w].fill.count;
    }
    assert_int_equal(status, RT_END);
    for (uint32_t i = 0; i <= directory->mask; i++) {
        const uint32_t number = directory->entries[i].record;
        copies += number ? rt_bit_count(directory->records[number - 1].copies.holders) : 0;
    }
    assert_true(slot > 0 && copies > 0);
    assert_int_equal(pulls, copies);
}

// Everything is at the shards, once, where the directory says.
static void check_flush(run *r)
{
    const dp_plan *plan;
    assert_int_equal(dp_planner_flush(r->planner, &plan), RT_OK);
    carry_out(r, plan);
    check_homes(r);
    for (uint32_t key = 0; key < KEYS; key++) {
        const uint32_t version =
            dp_directory_version(dp_planner_directory(r->planner), rt_key(key / IDS, key % IDS));
        uint32_t found = 0;
        for (uint32_t s = 0; s < r->config.rates.shards.count; s++)
            found += r->at[s][key];
        assert_int_equal(found, version);
    }
    check_refill(r);
}

static void sweep(run *r)
{
    const dp_plan *plan;
    uint64_t ended;
    uint32_t floor = 5;
    take_forgets(r, 1);
    for (uint32_t s = 0; s < SHARDS; s++)
        for (uint32_t key = 0; key < KEYS; key++)
            r->at[s][key] = r->at[s][key] < floor ? 0 : r->at[s][key];
    assert_int_equal(dp_sweep(r->planner, floor, &plan, &ended), RT_OK);
}

static void let(run *r, uint32_t worker, bool participates)
{
    dp_input input = {.kind = DP_INPUT_PARTICIPATES, .worker = worker, .value = participates};
    assert_int_equal(dp_planner_apply(r->planner, &input, NULL), RT_OK);
}

// Workers 1 and 3 are left in the end; 1 then trains alone, with others, alone, and 0 alone.
static void let_some_sit_out(run *r, const site *s, uint32_t t)
{
    if (t % 3 == 0)
        let(r, t / 3 % s->workers, t % 2);
    if (t == 37 || t == 50)
        let(r, 3, false);
    if (t == 43 || t == 52)
        let(r, 0, true);
    if (t == 52)
        let(r, 1, false);
}

static void step(run *r, const site *s, uint32_t t)
{
    const dp_plan *plan;
    rt_error error = {0};
    if (s->some_sit_out)
        let_some_sit_out(r, s, t);
    random_batches_fill(&r->batches, &r->batch, t % 5 ? 6 * s->workers : 1 + t % 7);
    assert_int_equal(dp_planner_look_up(r->planner, &r->batch), RT_OK);
    dp_planner_place(r->planner);
    assert_int_equal(dp_planner_commit(r->planner, &plan), RT_OK);
    carry_out(r, plan);
    pass_plan(r, plan);
    dp_account_add(&r->costs, plan, &r->account);
    if (!dp_planner_legal(r->planner, &error))
        fail_msg("iteration %" PRIu32 ": %s", t, error.text);
    if (s->sweeps && t == 30)
        sweep(r);
    if (t % 20 == 0)
        check_flush(r);
}

static void run_site(const site *s)
{
    static run r;
    run_init(&r, s);
    for (uint32_t t = 1; t <= 60; t++)
        step(&r, s, t);
    check_flush(&r);
    assert_memory_equal(&r.traffic, &r.account.boxes, sizeof r.traffic);
    test_close(r.account.predicted_s, r.predicted_s, 1e-12, 0, "predicted time");
    assert_int_equal(r.alone > 10, s->some_sit_out);
    assert_int_equal(r.moves > 0, s->homes == RT_HOMES_PLANNED && s->boxes > 1);
    run_fini(&r);
}

static void run_policies(site s)
{
    for (uint32_t homes = 0; homes < RT_HOMES_COUNT; homes++)
        for (uint32_t policy = 0; policy < RT_POLICY_COUNT; policy++)
            for (uint64_t seed = 1; seed <= 4; seed++) {
                s.homes = (rt_homes)homes;
                s.policy = (rt_policy_kind)policy;
                s.seed = seed;
                run_site(&s);
            }
}

// ---- cases -------------------------------------------------------------------------------------

static const site boxes_of_four = {.workers = 4,
                                   .boxes = 4,
                                   .shards = 4,
                                   .box_of_worker = {0, 1, 2, 3},
                                   .box_of_shard = {0, 1, 2, 3}};

static void a_worker_and_a_shard_on_every_box(void **state)
{
    (void)state;
    run_policies(boxes_of_four);
}

// Two workers on a box, two shards on a box, a box of shards alone, one of a worker alone.
static void boxes_that_differ(void **state)
{
    (void)state;
    run_policies((site){.workers = 4,
                        .boxes = 4,
                        .shards = 5,
                        .box_of_worker = {0, 0, 1, 2},
                        .box_of_shard = {0, 1, 1, 3, 3}});
}

static void rows_that_end(void **state)
{
    site s = boxes_of_four;
    (void)state;
    s.sweeps = true;
    run_policies(s);
}

static void workers_that_sit_out(void **state)
{
    site s = boxes_of_four;
    (void)state;
    s.some_sit_out = true;
    run_policies(s);
}

// Shards that take few rows: no more than that, where all together have room.
static void shards_that_are_full(void **state)
{
    static run r;
    site s = boxes_of_four;
    (void)state;
    s.homes = RT_HOMES_PLANNED;
    s.policy = RT_POLICY_MAKESPAN;
    s.shard_rows_max = KEYS / 4 + 4;
    run_init(&r, &s);
    for (uint32_t t = 1; t <= 60; t++) {
        step(&r, &s, t);
        for (uint32_t i = 0; i < 4; i++)
            assert_true(dp_planner_directory(r.planner)->home_counts[i] <= s.shard_rows_max);
    }
    run_fini(&r);
}

// The first worker trains, the others sit out for good.
static void begin_with_one_box(run *r, site *s)
{
    s->some_sit_out = true;
    run_init(r, s);
    for (uint32_t w = 1; w < 4; w++) {
        dp_input input = {.kind = DP_INPUT_PARTICIPATES, .worker = w, .value = 0};
        assert_int_equal(dp_planner_apply(r->planner, &input, NULL), RT_OK);
    }
    s->some_sit_out = false;
}

// One box trains, and its shard is full: the others' take what it has no room for.
static void one_box_that_is_full(void **state)
{
    static run r;
    site s = boxes_of_four;
    (void)state;
    s.homes = RT_HOMES_PLANNED;
    s.policy = RT_POLICY_ESD;
    s.shard_rows_max = KEYS / 4 + 4;
    begin_with_one_box(&r, &s);
    for (uint32_t t = 1; t <= 60; t++) {
        step(&r, &s, t);
        for (uint32_t i = 0; i < 4; i++)
            assert_true(dp_planner_directory(r.planner)->home_counts[i] <= s.shard_rows_max);
    }
    assert_true(r.traffic.rows_up[0] > 0);
    run_fini(&r);
}

// Who trains alone needs no link; hashed, three quarters of its rows would.
static void rows_follow_who_trains_alone(void **state)
{
    static run r;
    site s = boxes_of_four;
    (void)state;
    s.homes = RT_HOMES_PLANNED;
    s.policy = RT_POLICY_ESD;
    begin_with_one_box(&r, &s);
    for (uint32_t t = 1; t <= 20; t++)
        step(&r, &s, t);
    for (uint32_t b = 0; b < 4; b++)
        assert_int_equal(r.traffic.rows_up[b], 0);
    run_fini(&r);
}

// What a worker's operations take one after another: all three lists of a slice count.
static void costs_add_up(void **state)
{
    (void)state;
    static const dp_op_kind kinds[] = {DP_OP_PUSH_ROW, DP_OP_PULL, DP_OP_PUSH_GRAD};
    dp_planner_config config;
    dp_slice all = {0};
    double sum = 0;
    fill_config(&boxes_of_four, &config);
    for (uint32_t i = 0; i < 3; i++) {
        dp_slice one = {0};
        dp_slice *const slices[] = {&one, &all};
        for (uint32_t k = 0; k < 2; k++) {
            dp_ops *const lists[] = {&slices[k]->release, &slices[k]->fill, &slices[k]->after};
            dp_op *op = dp_ops_add(lists[i], kinds[i]);
            assert_non_null(op);
            op->key = rt_key(0, 1);
            op->flags = DP_OP_STATE;
            dp_op_set_shard(op, 2); // on another box
        }
        const double cost =
            dp_boxes_slice_cost_s(&config.boxes, &config.layout, &config.rates, 0, &one);
        assert_true(cost > 0);
        sum += cost;
        rt_free(one.release.items);
        rt_free(one.fill.items);
        rt_free(one.after.items);
    }
    test_close(dp_boxes_slice_cost_s(&config.boxes, &config.layout, &config.rates, 0, &all), sum,
               1e-12, 0, "cost");
    rt_free(all.release.items);
    rt_free(all.fill.items);
    rt_free(all.after.items);
}

TEST_MAIN(TEST(costs_add_up), TEST(a_worker_and_a_shard_on_every_box), TEST(boxes_that_differ),
          TEST(rows_that_end), TEST(workers_that_sit_out), TEST(shards_that_are_full),
          TEST(one_box_that_is_full), TEST(rows_follow_who_trains_alone))
