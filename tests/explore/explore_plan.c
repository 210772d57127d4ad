// Scenarios become programs, planned by the real planner.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dispatch/planner/dp_planner_parts.h"
#include "dispatch/planner/dp_sweep.h"
#include "dispatch/plan/dp_slice_wire.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/config/rt_policies.h"
#include "runtime/rt_hash.h"
#include "runtime/numbers/rt_coding.h"
#include "runtime/numbers/rt_optimizer.h"
#include "tests/explore/explore.h"
#include "tests/support/plan_checker.h"
#include "tests/support/test.h"

#define SEED 7u
#define SAMPLES_MAX (EX_WORKERS * EX_SLOTS)

const char *ex_break_text(ex_break which)
{
    static const char *const texts[] = {
#define XX(name, text) [EX_BREAK_##name] = text,
        EX_BREAK_MAP(XX) EX_STALE_MAP(XX) EX_SWEEP_MAP(XX) EX_HOMES_MAP(XX) EX_HANDS_MAP(XX)
            EX_SUMS_MAP(XX)
#undef XX
    };
    return texts[which];
}

rt_optimizer_config ex_optimizer(void)
{
    return (rt_optimizer_config){.kind = RT_OPTIMIZER_ROWWISE_ADAGRAD,
                                 .learning_rate = 0.25f,
                                 .epsilon = 1e-6f,
                                 .initial_accumulator = 0.5f,
                                 .batch_samples = SAMPLES_MAX};
}

// Every trainer moves a float of its own, so that sums are exact in any order.
void ex_gradient(uint32_t iteration, uint32_t mask, float gradient[EX_DIM])
{
    for (uint32_t w = 0; w < EX_DIM; w++)
        gradient[w] = mask >> w & 1 ? 1.0f + (float)iteration : 0.0f;
}

bool ex_break_is_of_plan(ex_break which)
{
    static const char planner[] = "planner: ";
    return strncmp(ex_break_text(which), planner, sizeof planner - 1) == 0;
}

double ex_ps_bytes_per_s(const ex_scenario *scenario)
{
    const double rates[] = {0, 1e6, 1e8, 0, 1e6};
    return rates[scenario->sums];
}

bool ex_is_bad(const ex_scenario *scenario, uint32_t iteration)
{
    return scenario->guard && scenario->bad >> (iteration - 1) & 1;
}

uint32_t ex_shard_of(const ex_scenario *scenario, uint32_t key)
{
    return key % scenario->shard_count;
}

void ex_scenario_print(const ex_scenario *s, char *text, size_t size)
{
    size_t at = (size_t)snprintf(
        text, size, "%u workers, %u keys, %u slots, %u shards, run-ahead %u, credits %u%s%s%s%s%s",
        s->worker_count, s->key_count, s->slot_count, s->shard_count, s->run_ahead, s->push_credits,
        s->full_sync ? ", full_sync" : "", s->lookahead ? ", look-ahead" : "",
        s->first_touch_pull ? ", first touch by pull" : "", s->guard ? ", guard" : "",
        s->sits_out ? ", some sit out" : "");
    at += (size_t)snprintf(text + at, size - at, "%s%s%s", s->homes ? ", homes" : "",
                           s->rounded ? ", rounded" : "", s->hands ? ", hands" : "");
    if (s->sums)
        at += (size_t)snprintf(text + at, size - at, ", sums %u%s", s->sums,
                               s->strays ? ", strays" : "");
    if (s->staleness)
        at += (size_t)snprintf(text + at, size - at, ", staleness %u", s->staleness);
    if (s->cut && s->floor)
        at +=
            (size_t)snprintf(text + at, size - at, ", sweep after %u, floor %u", s->cut, s->floor);
    else if (s->cut)
        at += (size_t)snprintf(text + at, size - at, ", cut after %u", s->cut);
    for (uint32_t t = 0; t < s->iterations; t++) {
        at += (size_t)snprintf(text + at, size - at, "%s", t ? " |" : ", trains");
        for (uint32_t w = 0; w < s->worker_count; w++)
            at += (size_t)snprintf(text + at, size - at, " %x", s->trains[t][w]);
        if (ex_is_bad(s, t + 1))
            at += (size_t)snprintf(text + at, size - at, " bad");
    }
}

// ---- values ----------------------------------------------------------------------------------

static int find_value(const ex_program *p, uint32_t parent, uint32_t iteration, uint32_t mask)
{
    for (uint32_t i = 0; i < p->value_count; i++) {
        const ex_value *one = &p->values[i];
        if (one->parent == parent && one->iteration == iteration && one->mask == mask)
            return (int)i;
    }
    return -1;
}

uint8_t ex_value_step(ex_program *p, uint8_t parent, uint32_t iteration, uint32_t mask)
{
    rt_optimizer_config optimizer = ex_optimizer();
    float gradient[EX_DIM];
    int known = find_value(p, parent, iteration, mask);
    if (known >= 0)
        return (uint8_t)known;
    assert_true(p->value_count < EX_VALUES);
    ex_value *value = &p->values[p->value_count];
    *value = p->values[parent];
    value->parent = parent;
    value->iteration = (uint8_t)iteration;
    value->mask = (uint8_t)mask;
    ex_gradient(iteration, mask, gradient);
    rt_optimizer_step(&optimizer, EX_DIM, iteration, value->floats, value->floats + EX_DIM,
                      gradient);
    return (uint8_t)p->value_count++;
}

void ex_value_change(const ex_program *p, uint8_t changed, float change[EX_ROW_FLOATS])
{
    uint8_t base = changed;
    while (p->values[base].iteration != 0 && p->values[base].iteration < EX_CHANGED)
        base = p->values[base].parent;
    for (uint32_t i = 0; i < EX_ROW_FLOATS; i++)
        change[i] = p->values[changed].floats[i] - p->values[base].floats[i];
}

static void round_floats(float *floats)
{
    uint32_t words[EX_DIM];
    rt_coding_pack(RT_CODING_BF16, floats, EX_DIM, words);
    rt_coding_unpack(RT_CODING_BF16, words, EX_DIM, floats);
}

uint8_t ex_value_add(ex_program *p, uint8_t parent, uint8_t changed)
{
    float change[EX_ROW_FLOATS];
    int known = find_value(p, parent, EX_ADDED, changed);
    if (known >= 0)
        return (uint8_t)known;
    assert_true(p->value_count < EX_VALUES);
    ex_value *value = &p->values[p->value_count];
    *value = p->values[parent];
    value->parent = parent;
    value->iteration = EX_ADDED;
    value->mask = changed;
    ex_value_change(p, changed, change);
    if (p->scenario.rounded)
        round_floats(change);
    for (uint32_t i = 0; i < EX_ROW_FLOATS; i++)
        value->floats[i] += change[i];
    return (uint8_t)p->value_count++;
}

// The number of the value that was made of another one in this way, or -1 with a copy of that, the
// newest value, for the caller to change.
static int derive(ex_program *p, uint8_t parent, uint8_t how, uint8_t mask)
{
    const int known = find_value(p, parent, how, mask);
    if (known >= 0)
        return known;
    assert_true(p->value_count < EX_VALUES);
    ex_value *value = &p->values[p->value_count++];
    *value = p->values[parent];
    value->parent = parent;
    value->iteration = how;
    value->mask = mask;
    return -1;
}

uint8_t ex_value_round(ex_program *p, uint8_t parent)
{
    const int known = derive(p, parent, EX_ROUNDED, 0);
    if (known >= 0)
        return (uint8_t)known;
    round_floats(p->values[p->value_count - 1].floats);
    return (uint8_t)(p->value_count - 1);
}

uint8_t ex_value_with_change(ex_program *p, uint8_t parent, uint8_t changed)
{
    float change[EX_ROW_FLOATS];
    const int known = derive(p, parent, EX_CHANGED, changed);
    if (known >= 0)
        return (uint8_t)known;
    float *floats = p->values[p->value_count - 1].floats;
    ex_value_change(p, changed, change);
    round_floats(change);
    for (uint32_t i = 0; i < EX_DIM; i++)
        floats[i] += change[i];
    memcpy(floats + EX_DIM, p->values[changed].floats + EX_DIM,
           (EX_ROW_FLOATS - EX_DIM) * sizeof *floats);
    return (uint8_t)(p->value_count - 1);
}

// Value number k is the initial value of key k. What sequential training gives follows.
static void expect(ex_program *p)
{
    const ex_scenario *s = &p->scenario;
    rt_optimizer_config optimizer = ex_optimizer();
    for (uint32_t k = 0; k < s->key_count; k++) {
        ex_value *value = &p->values[p->value_count++];
        rt_row_init(p->keys[k], SEED, 0.5f, EX_DIM, value->floats);
        rt_optimizer_init_state(&optimizer, EX_DIM, value->floats + EX_DIM);
        p->expected[0][k] = (uint8_t)k;
    }
    for (uint32_t t = 1; t <= s->iterations; t++) {
        memcpy(p->latest[t], p->latest[t - 1], EX_KEYS);
        memcpy(p->expected[t], p->expected[t - 1], EX_KEYS);
        for (uint32_t k = 0; k < s->key_count; k++) {
            uint32_t trainers = 0;
            for (uint32_t w = 0; w < s->worker_count; w++)
                trainers |= (s->trains[t - 1][w] >> k & 1u) << w;
            if (!trainers)
                continue;
            p->latest[t][k] = (uint8_t)t;
            if (!ex_is_bad(s, t))
                p->expected[t][k] = ex_value_step(p, p->expected[t - 1][k], t, trainers);
        }
        for (uint32_t k = 0; k < s->key_count && s->floor && t == s->cut; k++) {
            if (p->latest[t][k] >= s->floor)
                continue;
            p->latest[t][k] = 0; // it starts anew
            p->expected[t][k] = (uint8_t)k;
        }
    }
}

// ---- from plans to nodes ---------------------------------------------------------------------

static uint8_t key_number(const ex_program *p, uint64_t key)
{
    for (uint32_t k = 0; k < p->scenario.key_count; k++)
        if (p->keys[k] == key)
            return (uint8_t)k;
    fail_msg("a plan names key %" PRIx64 ", which is in no batch", key);
    return 0;
}

static ex_node *add_node(ex_slice *slice, ex_kind kind, uint32_t slot)
{
    assert_true(slice->node_count < EX_NODES && slot < EX_SLOTS);
    ex_node *n = &slice->nodes[slice->node_count++];
    *n = (ex_node){.kind = (uint8_t)kind, .slot = (uint8_t)slot, .peer = DP_NO_WORKER};
    return n;
}

static const struct {
    uint8_t operation, kind;
} kinds[] = {{DP_OP_PUSH_ROW, EX_PUSH_ROW},
             {DP_OP_DROP, EX_DROP},
             {DP_OP_PULL, EX_PULL},
             {DP_OP_INIT, EX_INIT},
             {DP_OP_PUSH_GRAD, EX_PUSH_GRAD},
             {DP_OP_REDUCE, EX_REDUCE},
             {DP_OP_SUM, EX_SUM}};

// All operations of a kind, as dp_slice_encode groups them.
static void add_operations(ex_program *p, ex_slice *slice, const dp_ops *ops, dp_op_kind operation,
                           ex_kind kind)
{
    for (uint32_t i = 0; i < ops->count; i++) {
        const dp_op *op = &ops->items[i];
        if (op->kind != operation)
            continue;
        ex_node *n = add_node(slice, kind, op->slot == DP_NO_SLOT ? 0 : op->slot);
        n->key = key_number(p, op->key);
        n->version = (uint8_t)op->version;
        n->base = (uint8_t)op->base;
        n->mask = (uint8_t)op->mask;
        n->peer = op->peer;
        n->reason = op->reason;
        n->state = op->flags & DP_OP_STATE;
        n->whole = op->flags & DP_OP_WHOLE;
        if (p->scenario.homes)
            n->shard = (uint8_t)dp_op_shard(op, p->scenario.shard_count);
        p->operations[operation]++;
    }
}

static void add_rows(const ex_program *p, ex_slice *slice, const dp_slice *from,
                     const rt_batch *batch)
{
    for (uint32_t r = 0; r < from->row_count; r++) {
        ex_node *n = add_node(slice, EX_TRAIN, from->rows[r].slot);
        n->version = (uint8_t)from->rows[r].version;
        n->mode = (uint8_t)from->rows[r].mode;
        for (uint32_t i = 0; i < from->sample_count; i++) // one key each
            if (from->lookup_rows[i] == r)
                n->key = key_number(p, batch->keys[from->samples[i]]);
    }
}

// Every operation of a plan must be one that the model knows.
static void check_kinds(const dp_slice *from, uint32_t added)
{
    assert_int_equal(from->release.count + from->fill.count + from->after.count + from->row_count,
                     added);
}

static void add_slice(ex_program *p, ex_slice *slice, const dp_slice *from, const rt_batch *batch)
{
    for (uint32_t i = 0; i < 2; i++)
        add_operations(p, slice, &from->release, kinds[i].operation, kinds[i].kind);
    add_operations(p, slice, &from->release, DP_OP_SEND, EX_SEND);
    add_operations(p, slice, &from->release, DP_OP_PUSH_DELTA, EX_PUSH_DELTA);
    add_operations(p, slice, &from->fill, DP_OP_RECV, EX_RECV);
    for (uint32_t i = 2; i < 4; i++)
        add_operations(p, slice, &from->fill, kinds[i].operation, kinds[i].kind);
    add_operations(p, slice, &from->after, DP_OP_PUSH_ROW, EX_PUSH_ROW); // taken in
    add_rows(p, slice, from, batch);
    for (uint32_t i = 4; i < 7; i++)
        add_operations(p, slice, &from->after, kinds[i].operation, kinds[i].kind);
    add_operations(p, slice, &from->after, DP_OP_PUSH_DELTA, EX_PUSH_DELTA);
    add_operations(p, slice, &from->after, DP_OP_FORGET, EX_FORGET);
    check_kinds(from, slice->node_count);
}

void ex_link_nodes(ex_program *p, uint32_t worker)
{
    uint16_t last[EX_SLOTS] = {0};
    for (uint32_t q = 0; q < p->slice_count; q++) {
        ex_slice *slice = &p->slices[q][worker];
        for (uint32_t i = 0; i < slice->node_count; i++) {
            ex_node *n = &slice->nodes[i];
            uint16_t self = (uint16_t)(1 + q * EX_NODES + i);
            n->previous = n->next = 0;
            if (n->kind == EX_FORGET)
                continue;
            n->previous = last[n->slot];
            if (n->previous) {
                uint32_t at = n->previous - 1u;
                p->slices[at / EX_NODES][worker].nodes[at % EX_NODES].next = self;
            }
            last[n->slot] = self;
        }
    }
}

// What ex_is_free relies on: a row that comes lets a training start, and nothing else; or it is
// taken in, and goes on before that.
static void check_fills(const ex_program *p, uint32_t worker)
{
    for (uint32_t q = 0; q < p->slice_count; q++) {
        const ex_slice *slice = &p->slices[q][worker];
        for (uint32_t i = 0; i < slice->node_count; i++) {
            const ex_node *n = &slice->nodes[i];
            if (n->kind != EX_PULL && n->kind != EX_RECV)
                continue;
            assert_true(n->next && (n->next - 1u) / EX_NODES == q);
            const ex_node *next = &slice->nodes[(n->next - 1u) % EX_NODES];
            if (p->scenario.homes && next->kind == EX_PUSH_ROW)
                next = &slice->nodes[(next->next - 1u) % EX_NODES];
            assert_int_equal(next->kind, EX_TRAIN);
        }
    }
}

static void add_plan(ex_program *p, const dp_plan *plan, const rt_batch *batch)
{
    const ex_scenario *s = &p->scenario;
    uint32_t q = p->slice_count++;
    assert_true(q < EX_SLICES);
    for (uint32_t w = 0; w < s->worker_count; w++) {
        dp_slice_limits limits = {.field_count = 1,
                                  .worker_count = s->worker_count,
                                  .rank = w,
                                  .hands = s->hands,
                                  .sums = s->sums > 0,
                                  .batch_samples = SAMPLES_MAX,
                                  .sample_count_max = s->slot_count,
                                  .lookup_count_max = s->slot_count,
                                  .slot_count = ex_slots_of(s),
                                  .shard_count = s->homes ? s->shard_count : 0};
        ex_slice *slice = &p->slices[q][w];
        *slice = (ex_slice){.iteration = (uint8_t)plan->iteration};
        if (batch && batch->sample_count < SAMPLES_MAX)
            p->short_samples[plan->iteration] = (uint8_t)batch->sample_count;
        add_slice(p, slice, &plan->slices[w], batch);
        dp_counts_add_slice(&p->planned[w], &plan->slices[w]);
        assert_int_equal(dp_slice_encode(plan, w, batch, &limits, rt_peer(RT_ROLE_COORDINATOR, 0),
                                         q + 1, &p->messages[q][w]),
                         RT_OK);
    }
}

// ---- planning --------------------------------------------------------------------------------

typedef struct {
    ex_program *program;
    dp_planner *planner;
    plan_checker *checker;
    rt_batch batches[EX_ITERATIONS];
    uint32_t shown;
} planning;

static dp_planner_config planner_config(const ex_scenario *s)
{
    dp_planner_config config = {
        .worker_count = s->worker_count,
        .sample_count_max = SAMPLES_MAX,
        .keys_per_sample_max = 1,
        .micro_batch_max = s->slot_count,
        .eviction = s->eviction,
        .lookahead = s->lookahead ? 2 : 0,
        .layout = {.field_count = 1, .values = {EX_DIM}, .state = {EX_ROW_FLOATS - EX_DIM}},
        .dispatch = {.policy = RT_POLICY_RANDOM,
                     .full_sync = s->full_sync,
                     .hand_over = s->hands,
                     .reduce = s->sums > 0,
                     .first_touch =
                         s->first_touch_pull ? RT_FIRST_TOUCH_PULL : RT_FIRST_TOUCH_LOCAL},
        .consistency = {s->staleness > 0, s->staleness},
        .overshoot = s->staleness ? s->slot_count : 0,
        .seed = SEED};
    config.rates.ps_bytes_per_s = ex_ps_bytes_per_s(s);
    if (s->rounded)
        config.layout.wire = RT_CODING_BF16;
    if (s->homes) {
        config.homes = RT_HOMES_PLANNED;
        config.rates.shards = (dp_shards){s->shard_count, s->shard_count, {0}};
        config.boxes = (dp_boxes){.count = s->worker_count, .worker_count = s->worker_count};
    }
    for (uint32_t w = 0; w < s->worker_count; w++) {
        config.boxes.of_worker[w] = (uint8_t)w;
        config.boxes.of_shard[w % EX_SHARDS] = (uint8_t)(w % EX_SHARDS);
        config.boxes.given[w] = (dp_link){1e8, 1e8};
        config.slot_count[w] = ex_slots_of(s);
        config.rates.links[w] = (dp_link){1e8, 1e8};
        if (w == 0 && s->sums == EX_SUMS_ELSEWHERE)
            config.rates.links[w] = (dp_link){1e7, 1e7};
    }
    // dp_planner_check asks for the larger of N / n and micro_batch_max
    config.sample_count_max = (uint32_t)s->worker_count * s->slot_count;
    return config;
}

static plan_checker *create_checker(const ex_scenario *s, const dp_planner_config *config)
{
    plan_checker_config checker = {.worker_count = s->worker_count,
                                   .first_touch = config->dispatch.first_touch,
                                   .full_sync = s->full_sync,
                                   .hand_over = s->hands,
                                   .reduce = s->sums > 0,
                                   .micro_batch_max = s->slot_count};
    for (uint32_t w = 0; w < s->worker_count; w++)
        checker.slot_count[w] = s->slot_count;
    return plan_checker_create(&checker);
}

// A sample of one key for every (worker, key).
static void fill_batch(const ex_program *p, uint32_t t, rt_batch *batch)
{
    const ex_scenario *s = &p->scenario;
    rt_batch_init(batch, 0);
    for (uint32_t w = 0; w < s->worker_count; w++)
        for (uint32_t k = 0; k < s->key_count; k++)
            if (s->trains[t][w] >> k & 1)
                assert_int_equal(rt_batch_append(batch, 0, NULL, &p->keys[k], 1), RT_OK);
    assert_true(batch->sample_count > 0);
}

static void take_plan(planning *all, const dp_plan *plan)
{
    rt_error error = {0};
    const rt_batch *batch = plan->iteration ? &all->batches[plan->iteration - 1] : NULL;
    // test_stale.c, test_sweep.c and test_homes.c check these plans.
    const ex_scenario *s = &all->program->scenario;
    if (s->staleness || s->floor || s->homes) {
        add_plan(all->program, plan, batch);
        return;
    }
    bool right = batch ? plan_checker_step(all->checker, batch, plan, &error)
                       : plan_checker_flush(all->checker, plan, &error);
    if (!right) {
        char text[512];
        ex_scenario_print(&all->program->scenario, text, sizeof text);
        fail_msg("%s: %s", text, error.text);
    }
    add_plan(all->program, plan, batch);
}

static void check_directory(const planning *all)
{
    rt_error error = {0};
    if (!dp_planner_legal(all->planner, &error))
        fail_msg("%s", error.text);
}

// The placement is the scenario's; everything else is the planner's.
static void plan_iteration(planning *all, uint32_t t)
{
    const ex_scenario *s = &all->program->scenario;
    const dp_plan *plan = NULL;
    while (s->lookahead && all->shown < s->iterations && all->shown <= t + 2)
        assert_int_equal(dp_planner_preview(all->planner, &all->batches[all->shown++]), RT_OK);
    for (uint32_t w = 0; w < s->worker_count && s->sits_out; w++) {
        dp_input input = {
            .kind = DP_INPUT_PARTICIPATES, .worker = w, .value = s->trains[t][w] ? 1 : 0};
        assert_int_equal(dp_planner_apply(all->planner, &input, NULL), RT_OK);
    }
    assert_int_equal(dp_planner_look_up(all->planner, &all->batches[t]), RT_OK);
    for (uint32_t w = 0, sample = 0; w < s->worker_count; w++)
        for (uint32_t k = 0; k < s->key_count; k++)
            if (s->trains[t][w] >> k & 1)
                all->planner->worker_of_sample[sample++] = w;
    assert_int_equal(dp_planner_commit(all->planner, &plan), RT_OK);
    take_plan(all, plan);
    check_directory(all);
}

static void plan_flush(planning *all)
{
    const dp_plan *plan;
    assert_int_equal(dp_planner_flush(all->planner, &plan), RT_OK);
    take_plan(all, plan);
    check_directory(all);
}

static void plan_sweep(planning *all)
{
    const dp_plan *plan;
    uint64_t ended;
    assert_int_equal(dp_sweep(all->planner, all->program->scenario.floor, &plan, &ended), RT_OK);
    take_plan(all, plan);
    check_directory(all);
}

// The same for every number of shards, which is no matter of the planner.
static void choose_keys(ex_program *p)
{
    uint64_t id = 0;
    for (uint32_t k = 0; k < p->scenario.key_count; k++) {
        while (rt_key_shard(rt_key(0, id), EX_SHARDS) != k % EX_SHARDS)
            id++;
        p->keys[k] = rt_key(0, id++);
    }
}

void ex_program_init(ex_program *p, const ex_scenario *s)
{
    planning all = {.program = p};
    rt_error error = {0};
    memset(p, 0, sizeof *p);
    p->scenario = *s;
    choose_keys(p);
    expect(p);
    dp_planner_config config = planner_config(s);
    if (dp_planner_create(&config, &all.planner, &error))
        fail_msg("%s", error.text);
    // Not before: it would ask for slots for all samples. A scenario has as many as fit.
    all.planner->config.participants_min = s->sits_out ? 1 : 0;
    all.checker = create_checker(s, &config);
    for (uint32_t t = 0; t < s->iterations; t++)
        fill_batch(p, t, &all.batches[t]);
    for (uint32_t t = 0; t < s->iterations; t++) {
        plan_iteration(&all, t);
        if (t + 1 == s->cut) {
            (s->floor ? plan_sweep : plan_flush)(&all);
            p->cut_slice = p->slice_count;
        }
    }
    plan_flush(&all);
    for (uint32_t w = 0; w < s->worker_count; w++) {
        ex_link_nodes(p, w);
        check_fills(p, w);
    }
    if (ex_is_ordered(s))
        ex_expect_ordered(p);
    for (uint32_t t = 0; t < s->iterations; t++)
        rt_batch_fini(&all.batches[t]);
    plan_checker_destroy(all.checker);
    dp_planner_destroy(all.planner);
}

void ex_program_fini(ex_program *p)
{
    for (uint32_t q = 0; q < p->slice_count; q++)
        for (uint32_t w = 0; w < p->scenario.worker_count; w++)
            rt_message_release(&p->messages[q][w]);
}

// ---- equal programs --------------------------------------------------------------------------

static uint8_t rename_bits(uint32_t bits, const uint8_t *names)
{
    uint32_t renamed = 0;
    for (; bits; bits &= bits - 1)
        renamed |= 1u << names[__builtin_ctz(bits)];
    return (uint8_t)renamed;
}

static uint64_t hash_worker(const ex_program *p, uint32_t worker, const uint8_t *workers,
                            const uint8_t *keys)
{
    uint8_t slots[EX_SLOTS] = {0}, slot_count = 0; // 1 + name
    uint64_t hash = workers[worker];
    for (uint32_t q = 0; q < p->slice_count; q++) {
        const ex_slice *slice = &p->slices[q][worker];
        hash = rt_mix(hash ^ (slice->iteration * 64u + slice->node_count));
        for (uint32_t i = 0; i < slice->node_count; i++) {
            const ex_node *n = &slice->nodes[i];
            uint32_t peer = n->peer == DP_NO_WORKER ? EX_WORKERS : workers[n->peer];
            if (!slots[n->slot])
                slots[n->slot] = ++slot_count;
            uint64_t low = n->kind | slots[n->slot] << 4 | keys[n->key] << 8 | n->version << 12 |
                           n->base << 16 | rename_bits(n->mask, workers) << 20;
            uint64_t high = peer | (uint32_t)n->mode << 4 | n->state << 8 | n->reason << 12;
            hash = rt_mix(hash ^ low ^ high << 32);
        }
    }
    return hash;
}

uint64_t ex_program_hash(const ex_program *p, const uint8_t *workers, const uint8_t *keys)
{
    const ex_scenario *s = &p->scenario;
    uint64_t sum = 0;
    for (uint32_t w = 0; w < s->worker_count; w++)
        sum += hash_worker(p, w, workers, keys);
    return sum;
}
