// What every policy, search and solver makes of batches made by chance, and what rows cost on links
// made by chance, against what was recorded (tests/golden/policies.golden): placements, loads, what
// a policy keeps, ticks. What they have to be, other tests say; this one notices that they became
// others. Everything is played twice, alone and with three threads.
//
// A change that is to make others: LANYARD_UPDATE_GOLDEN=1 writes the file anew.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/cost/dp_boxes.h"
#include "dispatch/cost/dp_ticks.h"
#include "dispatch/policies/dp_policies.h"
#include "dispatch/policies/dp_search.h"
#include "dispatch/solvers/dp_solvers.h"
#include "tests/support/fields_case.h"
#include "tests/support/random_view.h"
#include "tests/support/records.h"
#include "tests/support/solver_case.h"
#include "tests/support/test.h"

#define GOLDEN "tests/golden/policies.golden"
#define PARTS 4u // of the file, each a case
#define ROUNDS 8u
#define CHANGED 4u // the round before which a policy is saved, loaded and told other values

static uint64_t add_hash(uint64_t sum, const void *bytes, size_t size)
{
    return rt_mix(sum ^ rt_hash_bytes(bytes, size));
}

// The value of NAME=VALUE in a line; 0: it is not there.
static uint32_t value_of(const char *line, const char *name)
{
    char pattern[64];
    snprintf(pattern, sizeof pattern, " %s=", name);
    const char *at = strstr(line, pattern);
    return at ? (uint32_t)strtoul(at + strlen(pattern), NULL, 10) : 0;
}

static view_shape shape_of(const char *line)
{
    return (view_shape){.workers = value_of(line, "workers"),
                        .samples = value_of(line, "samples"),
                        .fields = value_of(line, "fields"),
                        .ids = value_of(line, "ids"),
                        .bag_max = (uint32_t)rt_max_u64(value_of(line, "bag"), 1),
                        .common = value_of(line, "common"),
                        .boxes = value_of(line, "boxes"),
                        .homes = value_of(line, "homes"),
                        .owed = value_of(line, "owed"),
                        .summed = value_of(line, "summed"),
                        .next = value_of(line, "next"),
                        .changes = value_of(line, "changes"),
                        .ranks = value_of(line, "ranks"),
                        .ps = value_of(line, "ps"),
                        .compute = value_of(line, "compute"),
                        .equal_rows = value_of(line, "equal_rows"),
                        .uneven = value_of(line, "uneven"),
                        .tight = value_of(line, "tight"),
                        .micro_batch_min = value_of(line, "least"),
                        .micro_batch_max = value_of(line, "most")};
}

// ---- policies ----------------------------------------------------------------------------------

static const struct {
    const char *name;
    const dp_policy_ops *ops;
    rt_dispatch_config before, after;
} policies[] = {
    {"random", &dp_policy_random, {0}, {0}},
    {"laia", &dp_policy_laia, {0}, {0}},
    {"laia, tables", &dp_policy_laia, {.tables = 2}, {.tables = 1}},
    {"esd", &dp_policy_esd, {.alpha = 0.4}, {.alpha = 1}},
    {"esd, hungarian", &dp_policy_esd, {.solver = RT_SOLVER_HUNGARIAN}, {.alpha = 0.8}},
    {"esd, greedy", &dp_policy_esd, {.alpha = 0.3, .solver = RT_SOLVER_GREEDY}, {.alpha = 1}},
    {"makespan", &dp_policy_makespan, {.search_evaluations = 4000}, {.search_evaluations = 90}},
    {"makespan, hurried",
     &dp_policy_makespan,
     {.search_evaluations = 30},
     {.search_evaluations = 300}},
};

typedef struct {
    const dp_policy_ops *ops;
    void *state;
    uint64_t sum; // of all that it said
} playing;

static void *create(const dp_policy_ops *ops, const view_shape *shape, const rt_dispatch_config *d)
{
    const dp_policy_config config = {.worker_count =
                                         shape->ranks ? 2 * shape->workers : shape->workers,
                                     .sample_count_max = shape->samples,
                                     .distinct_count_max = RANDOM_VIEW_LOOKUPS_MAX,
                                     .box_count = shape->boxes,
                                     .seed = 7,
                                     .dispatch = *d,
                                     .measure_error = d->solver == RT_SOLVER_GREEDY};
    rt_error error = {0};
    void *state;
    if (ops->create(&config, &state, &error))
        fail_msg("%s: %s", ops->name, error.text);
    return state;
}

static void place(playing *p, const dp_view *view)
{
    uint32_t worker_of[RANDOM_VIEW_SAMPLES_MAX];
    dp_policy_report report = {.error = -1};
    p->ops->place(p->state, view, worker_of);
    p->sum = add_hash(p->sum, worker_of, view->sample_count * sizeof *worker_of);
    if (p->ops->report)
        p->ops->report(p->state, &report);
    const int64_t said[] = {report.opt_samples, report.heu_samples, report.evaluations,
                            report.error_bound, report.error};
    p->sum = add_hash(p->sum, said, sizeof said);
}

// Another state takes over what this one saved.
static void change(playing *p, const view_shape *shape, const rt_dispatch_config *after)
{
    rt_bytes bytes = {0}, plain = {0};
    if (p->ops->save) {
        p->ops->save(p->state, &bytes);
        assert_false(bytes.failed);
        fields_plain(&bytes, &plain);
        p->sum = add_hash(p->sum, plain.data, plain.size);
        rt_bytes_fini(&plain);
        p->ops->destroy(p->state);
        p->state = create(p->ops, shape, after);
        rt_reader reader = rt_bytes_reader(&bytes);
        assert_true(p->ops->load(p->state, &reader) && reader.left == 0);
        rt_bytes_fini(&bytes);
    }
    if (p->ops->configure)
        p->ops->configure(p->state, after);
}

static uint64_t play_policy(const char *line, size_t number, rt_pool *pool)
{
    static random_view made;
    const view_shape shape = shape_of(line);
    rt_random random = {value_of(line, "seed")};
    playing p = {.ops = policies[number].ops};
    p.state = create(p.ops, &shape, &policies[number].before);
    for (uint32_t t = 0; t < ROUNDS; t++) {
        random_view_fill(&shape, &random, &made);
        made.view.pool = pool;
        if (t == CHANGED)
            change(&p, &shape, &policies[number].after);
        place(&p, &made.view);
    }
    if (p.ops->save)
        change(&p, &shape, &policies[number].after);
    p.ops->destroy(p.state);
    return p.sum;
}

// ---- the search --------------------------------------------------------------------------------

// factor: beyond some they are scaled down.
static void random_prices(const view_shape *shape, double factor, rt_random *random,
                          dp_prices *prices)
{
    *prices = (dp_prices){0};
    for (uint32_t j = 0; j < shape->workers; j++) {
        prices->up[j] = factor * (0.25 + rt_random_unit(random));
        prices->down[j] = factor * (0.25 + rt_random_unit(random));
        prices->sample[j] = (int32_t)rt_random_below(random, 50);
    }
    for (uint32_t b = 0; b < shape->boxes; b++) {
        prices->box_up[b] = factor * (0.25 + rt_random_unit(random));
        prices->box_down[b] = factor * (0.25 + rt_random_unit(random));
    }
}

// Around the samples that every worker starts with; rows for half of an even batch, and more.
static void random_limits(const random_view *made, rt_random *random, dp_search_limits *limits)
{
    *limits = (dp_search_limits){.evaluations_max = rt_random_below(random, 4000)};
    for (uint32_t j = 0; j < made->view.worker_count; j++) {
        const uint32_t keys = made->view.distinct_count;
        limits->min[j] = made->capacity[j];
        limits->min[j] -= (uint32_t)rt_min_u64(limits->min[j], rt_random_below(random, 5));
        limits->max[j] = made->capacity[j] + rt_random_below(random, 5);
        limits->rows_max[j] = keys / 2 + rt_random_below(random, keys);
    }
}

static void fill_placement(const random_view *made, rt_random *random, uint32_t *worker_of)
{
    const uint32_t count = made->view.sample_count;
    for (uint32_t i = 0, j = 0, k = 0; i < count; i++, k++) {
        for (; k == made->capacity[j]; k = 0)
            j++;
        worker_of[i] = j;
    }
    for (uint32_t i = count; i > 1; i--) {
        const uint32_t other = rt_random_below(random, i), kept = worker_of[i - 1];
        worker_of[i - 1] = worker_of[other];
        worker_of[other] = kept;
    }
}

static uint64_t play_search(const char *line, rt_pool *pool)
{
    static random_view made;
    const view_shape shape = shape_of(line);
    rt_random random = {value_of(line, "seed")};
    const double factor = (double)rt_max_u64(value_of(line, "dear"), 1);
    dp_search *search;
    uint64_t sum = 0;
    assert_int_equal(dp_search_create(shape.workers, shape.boxes, shape.samples,
                                      RANDOM_VIEW_LOOKUPS_MAX, &search),
                     RT_OK);
    for (uint32_t t = 0; t < ROUNDS; t++) {
        uint32_t worker_of[RANDOM_VIEW_SAMPLES_MAX];
        dp_prices prices;
        dp_search_limits limits;
        dp_loads loads;
        random_view_fill(&shape, &random, &made);
        made.view.pool = pool;
        random_prices(&shape, factor, &random, &prices);
        random_limits(&made, &random, &limits);
        fill_placement(&made, &random, worker_of);
        const int64_t before = dp_search_cost(search, &made.view, &prices, worker_of);
        const uint32_t spent =
            dp_search_run(search, &made.view, &prices, &limits, &random, worker_of);
        dp_search_loads(search, &loads);
        const int64_t said[] = {before, dp_search_cost(search, &made.view, &prices, worker_of),
                                spent, (int64_t)random.state};
        sum = add_hash(sum, worker_of, made.view.sample_count * sizeof *worker_of);
        sum = add_hash(sum, &loads, sizeof loads);
        sum = add_hash(sum, said, sizeof said);
    }
    dp_search_destroy(search);
    return sum;
}

static uint64_t play_matrix(const char *line, rt_pool *pool)
{
    static random_view made;
    const view_shape shape = shape_of(line);
    rt_random random = {value_of(line, "seed")};
    uint64_t sum = 0;
    for (uint32_t t = 0; t < ROUNDS; t++) {
        random_view_fill(&shape, &random, &made);
        made.view.pool = pool;
        const uint32_t stride = shape.workers + t;
        const size_t count = (size_t)shape.samples * stride;
        int32_t *cost = solver_allocate(count, sizeof *cost);
        memset(cost, 0x77, count * sizeof *cost);
        dp_cost_matrix(&made.view, cost, stride);
        sum = add_hash(sum, cost, count * sizeof *cost);
        free(cost);
    }
    return sum;
}

static void play_views(const char *line, rt_bytes *record)
{
    rt_pool *pool;
    assert_int_equal(rt_pool_create(3, &pool, NULL), RT_OK);
    const uint64_t matrix = play_matrix(line, NULL), search = play_search(line, NULL);
    assert_true(play_matrix(line, pool) == matrix && play_search(line, pool) == search);
    records_put(record, "matrix #%016" PRIx64, matrix);
    records_put(record, "search #%016" PRIx64, search);
    for (size_t i = 0; i < RT_COUNT_OF(policies); i++) {
        const uint64_t one = play_policy(line, i, NULL);
        assert_true(play_policy(line, i, pool) == one);
        records_put(record, "%s #%016" PRIx64, policies[i].name, one);
    }
    rt_pool_destroy(pool);
}

// ---- solvers -----------------------------------------------------------------------------------

static uint64_t play_solver(const dp_solver_ops *ops, const char *line)
{
    const uint32_t rows = value_of(line, "rows"), sinks = value_of(line, "sinks");
    const uint32_t step = (uint32_t)rt_max_u64(value_of(line, "step"), 1);
    uint32_t *sink_of_row = solver_allocate(rows, sizeof *sink_of_row);
    uint64_t sum = 0;
    void *state;
    assert_int_equal(ops->create(rows, sinks, &state), RT_OK);
    for (uint32_t c = 0; c < COST_KIND_COUNT * CAPACITY_KIND_COUNT; c += step) {
        solver_case made = solver_case_make(c, rows, sinks, (solver_costs)(c % COST_KIND_COUNT),
                                            (solver_capacities)(c / COST_KIND_COUNT));
        ops->solve(state, &made.problem, sink_of_row);
        assert_true(solver_fits(&made.problem, sink_of_row));
        sum = add_hash(sum, sink_of_row, rows * sizeof *sink_of_row);
        solver_case_drop(&made);
    }
    ops->destroy(state);
    free(sink_of_row);
    return sum;
}

static void play_solvers(const char *line, rt_bytes *record)
{
    static const dp_solver_ops *const solvers[] = {&dp_solver_transport, &dp_solver_greedy,
                                                   &dp_solver_hungarian};
    for (size_t s = 0; s < RT_COUNT_OF(solvers); s++)
        if (s < 2 || !value_of(line, "fast")) // the others take long for many rows
            records_put(record, "%s #%016" PRIx64, solvers[s]->name, play_solver(solvers[s], line));
}

// ---- what rows cost ----------------------------------------------------------------------------

typedef struct {
    dp_layout layout;
    dp_rates rates;
    dp_boxes boxes;
} site;

static double rate(rt_random *random)
{
    return 1e4 * (1 + rt_random_below(random, 100000));
}

static dp_link link_of(rt_random *random)
{
    const double up = rate(random); // arguments and members are drawn in no order of their own
    return (dp_link){up, rate(random)};
}

// Boxes 0 to 4; the workers are on the first four, the shards on all.
static site make_site(uint32_t workers, uint32_t shards, rt_random *random)
{
    site s = {.layout = {.field_count = 1 + rt_random_below(random, 6),
                         .wire = (rt_coding)rt_random_below(random, 3)},
              .rates.ps_bytes_per_s = rt_random_below(random, 2) ? rate(random) : 0,
              .rates.shards = {.count = shards, .dense_count = 1 + rt_random_below(random, shards)},
              .boxes = {.count = 5, .worker_count = workers}};
    for (uint32_t f = 0; f < s.layout.field_count; f++) {
        s.layout.values[f] = 1 + rt_random_below(random, 300);
        s.layout.state[f] = rt_random_below(random, 3) * s.layout.values[f];
    }
    for (uint32_t j = 0; j < workers; j++) {
        s.rates.links[j] = link_of(random);
        s.rates.compute_s_per_sample[j] = 1e-9 * rt_random_below(random, 100000);
        s.boxes.of_worker[j] = (uint8_t)rt_random_below(random, 4);
    }
    for (uint32_t i = 0; i < shards; i++) {
        s.rates.shards.bytes_per_s[i] = rt_random_below(random, 3) ? rate(random) : 0;
        s.boxes.of_shard[i] = (uint8_t)rt_random_below(random, 5);
    }
    for (uint32_t b = 0; b < s.boxes.count; b++)
        s.boxes.given[b] = link_of(random);
    return s;
}

static uint64_t hash_of_ticks(const site *s, uint32_t workers, rt_random *random, bool on_boxes)
{
    dp_ticks ticks; // has holes
    const uint64_t dense = rt_random_below(random, 5000000);
    const uint64_t participants = rt_random_u64(random) & (rt_bit(workers) - 1);
    dp_ticks_compute(&s->layout, s->rates.links, workers, 1 + rt_random_below(random, 3000),
                     &ticks);
    dp_ticks_add_load(s->rates.links, dense, s->rates.compute_s_per_sample, &ticks);
    if (on_boxes)
        dp_ticks_add_boxes(&s->layout, &s->boxes, &s->rates, participants, dense, &ticks);
    else
        dp_ticks_add_shards(&s->layout, s->rates.ps_bytes_per_s, &s->rates.shards, dense, &ticks);
    const double shards[] = {
        ticks.tick_s, dp_ticks_shards(&ticks, rt_random_below(random, 1000000)),
        dp_shards_s(s->rates.ps_bytes_per_s, &s->rates.shards, 1e6, (double)dense),
        dp_dense_chunk_floats(s->rates.links[0].up_bytes_per_s, s->layout.wire)};
    uint64_t sum = add_hash(0, shards, sizeof shards);
#define ADD(member) sum = add_hash(sum, &ticks.member, sizeof ticks.member)
    ADD(pull), ADD(push), ADD(grad), ADD(compute), ADD(dense_up), ADD(dense_down);
    ADD(ps_row), ADD(ps_grad), ADD(box_count), ADD(box_of), ADD(shard_boxes), ADD(box_up);
    ADD(box_down), ADD(box_grad), ADD(box_dense_up), ADD(box_dense_down);
#undef ADD
    for (uint32_t i = 0; i < ticks.ps_limit_count; i++) {
        const double limit[] = {ticks.ps_limits[i].share, (double)ticks.ps_limits[i].dense};
        sum = add_hash(sum, limit, sizeof limit);
    }
    return sum;
}

static void fill_ops(const site *s, uint32_t workers, rt_random *random, dp_ops *ops)
{
    const uint32_t count = rt_random_below(random, 40);
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t kind = (uint8_t)rt_random_below(random, DP_OP_KINDS);
        dp_op *op = dp_ops_add(ops, (dp_op_kind)kind);
        const uint32_t id = rt_random_below(random, 1000);
        op->key = rt_key(rt_random_below(random, s->layout.field_count), id);
        op->version = rt_random_below(random, 3);
        op->peer = (uint8_t)rt_random_below(random, workers);
        op->flags = (uint8_t)rt_random_below(random, 4);
        if (rt_random_below(random, 2))
            dp_op_set_shard(op, rt_random_below(random, s->rates.shards.count));
    }
}

static uint64_t hash_of_slice(const site *s, uint32_t worker, uint32_t workers, rt_random *random,
                              dp_slice *slice, dp_box_traffic *traffic)
{
    const dp_link *links = s->rates.links;
    dp_handed handed = {0};
    fill_ops(s, workers, random, &slice->release);
    fill_ops(s, workers, random, &slice->fill);
    fill_ops(s, workers, random, &slice->after);
    const dp_passing passing = dp_slice_passing(&s->layout, slice);
    const dp_traffic all = dp_passing_traffic(&passing);
    const dp_handed own = dp_slice_handed(&s->layout, links, NULL, worker, slice);
    const dp_handed boxes =
        dp_slice_handed(&s->layout, s->boxes.given, s->boxes.of_worker, worker, slice);
    dp_handed_add(&handed, &own);
    dp_handed_add(&handed, &boxes);
    const double costs[] = {dp_passing_cost_s(&passing, &links[worker]),
                            dp_boxes_slice_cost_s(&s->boxes, &s->layout, &s->rates, worker, slice)};
    uint64_t sum = add_hash(0, &passing, sizeof passing);
    sum = add_hash(sum, &all, sizeof all);
    sum = add_hash(sum, &own, sizeof own);
    sum = add_hash(sum, &handed, sizeof handed);
    sum = add_hash(sum, costs, sizeof costs);
    dp_boxes_add_slice(&s->boxes, &s->layout, s->rates.shards.count, worker, slice, traffic);
    return sum;
}

static void play_prices(const char *line, rt_bytes *record)
{
    const uint32_t workers = value_of(line, "workers"), shards = value_of(line, "shards");
    rt_random random = {value_of(line, "seed")};
    uint64_t ticks = 0, slices = 0, boxes = 0;
    for (uint32_t t = 0; t < 10; t++) {
        const site s = make_site(workers, shards, &random);
        const uint64_t all = rt_bit(workers) - 1, some = rt_random_u64(&random) & all;
        dp_box_traffic traffic = {0}, sum = {0};
        uint32_t samples[RT_WORKERS_MAX];
        dp_plan plan;
        dp_link links[RT_SITE_BOXES_MAX];
        ticks = rt_mix(ticks + hash_of_ticks(&s, workers, &random, t % 2));
        assert_int_equal(dp_plan_init(&plan, workers), RT_OK);
        for (uint32_t j = 0; j < workers; j++) {
            samples[j] = rt_random_below(&random, 300);
            slices =
                rt_mix(slices + hash_of_slice(&s, j, workers, &random, &plan.slices[j], &traffic));
        }
        dp_boxes_add_dense(&s.boxes, &s.rates.shards, some, t % 4 * 70000, &traffic);
        dp_boxes_add_return(&s.boxes, &s.rates.shards, some, all & ~some, t % 3 * 9000, &traffic);
        dp_box_traffic_add(&traffic, s.boxes.count, &sum);
        dp_box_traffic_add(&traffic, s.boxes.count - 1, &sum);
        dp_box_links(&s.boxes, &s.rates, links);
        const double time = dp_boxes_predict_s(&s.boxes, &s.rates, some, &traffic, samples);
        boxes = add_hash(boxes, &traffic, sizeof traffic);
        boxes = add_hash(boxes, &sum, sizeof sum);
        boxes = add_hash(boxes, links, s.boxes.count * sizeof *links);
        boxes = add_hash(boxes, &time, sizeof time);
        dp_plan_fini(&plan);
    }
    records_put(record, "ticks #%016" PRIx64, ticks);
    records_put(record, "slices #%016" PRIx64, slices);
    records_put(record, "boxes #%016" PRIx64, boxes);
}

// ---- the file ----------------------------------------------------------------------------------

static char *play(const char *line)
{
    rt_bytes record = {0};
    if (value_of(line, "rows"))
        play_solvers(line, &record);
    else if (value_of(line, "shards"))
        play_prices(line, &record);
    else
        play_views(line, &record);
    return records_text(&record);
}

int main(int argc, char **argv)
{
    return records_main(GOLDEN, PARTS, 0, play, argc, argv);
}
