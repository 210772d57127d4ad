// Input records: when they come into force, their journal, and runs planned again from it.
#include "tests/support/test.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dispatch/sim/dp_sim.h"
#include "dispatch/cost/dp_ticks.h"
#include "dispatch/planner/dp_planner_parts.h"
#include "dispatch/solvers/dp_solver.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/config_case.h"
#include "tests/support/planner_case.h"

static planner_shape small_shape(uint64_t seed)
{
    return (planner_shape){.seed = seed,
                           .worker_count = 4,
                           .sample_count_max = 40,
                           .field_count = 3,
                           .ids_per_field = 60,
                           .bag_max = 1,
                           .zipf = 0.8,
                           .dispatch = {.policy = RT_POLICY_ESD, .tables = 3}};
}

static dp_input apply(dp_planner *planner, dp_input_kind kind, uint32_t worker, double value,
                      uint32_t iteration)
{
    dp_input input = {.kind = kind, .worker = worker, .value = value, .iteration = iteration};
    rt_error error = {0};
    if (dp_planner_apply(planner, &input, &error))
        fail_msg("%s", error.text);
    return input;
}

static void step(planner_case *pc)
{
    planner_case_look_up(pc, 40);
    planner_case_commit(pc);
}

// ---- when ---------------------------------------------------------------------------------------

// One planner hears of everything at the start, the other of each record just before its look-up.
static void records_take_effect_at_their_iteration(void **state)
{
    (void)state;
    static const struct {
        uint32_t iteration, worker;
        dp_input_kind kind;
        double value;
    } records[] = {
        {20, 0, DP_INPUT_ALPHA, 0.5},   {5, 0, DP_INPUT_ALPHA, 0.25},
        {12, 2, DP_INPUT_LINK_UP, 1e7}, {12, 1, DP_INPUT_LINK_DOWN, 3e6},
        {5, 0, DP_INPUT_ALPHA, 1},      {25, 3, DP_INPUT_COMPUTE, 1e-5},
        {20, 0, DP_INPUT_PS_LINK, 1e8}, {15, 6, DP_INPUT_SHARD_LINK, 1e6},
        {8, 0, DP_INPUT_TABLES, 2},     {9, 0, DP_INPUT_SEARCH_EVALUATIONS, 100},
    };
    planner_shape shape = small_shape(1);
    planner_case early, late, never;
    planner_case_init(&early, &shape);
    planner_case_init(&late, &shape);
    planner_case_init(&never, &shape);
    uint32_t differing = 0;
    for (size_t i = 0; i < RT_COUNT_OF(records); i++) {
        dp_input input = apply(early.planner, records[i].kind, records[i].worker, records[i].value,
                               records[i].iteration);
        assert_int_equal(input.iteration, records[i].iteration);
        assert_int_equal(input.number, i + 1);
    }
    for (uint32_t t = 1; t <= 30; t++) {
        for (size_t i = 0; i < RT_COUNT_OF(records); i++) {
            if (records[i].iteration == t)
                apply(late.planner, records[i].kind, records[i].worker, records[i].value, 0);
        }
        step(&early);
        step(&late);
        step(&never);
        double alpha = t < 5 ? 0 : t < 20 ? 1 : 0.5; // of two in iteration 5 the later one holds
        assert_true(dp_planner_decision(early.planner)->alpha == alpha);
        assert_true(dp_planner_value(early.planner, DP_INPUT_ALPHA, 0) == alpha);
        assert_true((dp_planner_value(early.planner, DP_INPUT_LINK_UP, 2) == 1e7) == (t >= 12));
        assert_true((dp_planner_value(early.planner, DP_INPUT_LINK_DOWN, 1) == 3e6) == (t >= 12));
        assert_true((dp_planner_value(early.planner, DP_INPUT_COMPUTE, 3) == 1e-5) == (t >= 25));
        assert_true((dp_planner_value(early.planner, DP_INPUT_PS_LINK, 0) == 1e8) == (t >= 20));
        assert_true((dp_planner_value(early.planner, DP_INPUT_SHARD_LINK, 6) == 1e6) == (t >= 15));
        assert_true((dp_planner_value(early.planner, DP_INPUT_TABLES, 0) == 2) == (t >= 8));
        assert_int_equal(dp_planner_decision(early.planner)->search_evaluations_max,
                         t >= 9 ? 100 : 0);
        assert_int_equal(dp_plan_fingerprint(early.plan), dp_plan_fingerprint(late.plan));
        differing += dp_plan_fingerprint(early.plan) != dp_plan_fingerprint(never.plan);
        if (t < 5)
            assert_int_equal(differing, 0);
    }
    assert_true(differing > 0);
    planner_case_fini(&early);
    planner_case_fini(&late);
    planner_case_fini(&never);
}

static void a_late_record_is_renamed(void **state)
{
    (void)state;
    planner_shape shape = small_shape(2);
    planner_case pc;
    planner_case_init(&pc, &shape);
    for (uint32_t t = 1; t <= 5; t++)
        step(&pc);
    assert_int_equal(apply(pc.planner, DP_INPUT_ALPHA, 0, 0.5, 3).iteration, 6);
    assert_int_equal(apply(pc.planner, DP_INPUT_ALPHA, 0, 0.75, 5).iteration, 6);
    assert_int_equal(apply(pc.planner, DP_INPUT_ALPHA, 0, 0.25, 7).iteration, 7);
    planner_case_look_up(&pc, 40);
    assert_true(dp_planner_value(pc.planner, DP_INPUT_ALPHA, 0) == 0.75);
    // Iteration 6 is looked up, though not placed: too late for it.
    dp_input input = apply(pc.planner, DP_INPUT_ALPHA, 0, 1, 6);
    assert_int_equal(input.iteration, 7);
    assert_int_equal(input.number, 4);
    planner_case_commit(&pc);
    assert_true(dp_planner_decision(pc.planner)->alpha == 0.75);
    planner_case_fini(&pc);
}

static void must_refuse(dp_planner *planner, dp_input input, rt_status expected, const char *text)
{
    rt_error error = {0};
    dp_input before = input;
    assert_int_equal(dp_planner_apply(planner, &input, &error), expected);
    assert_string_equal(error.text, text);
    assert_memory_equal(&input, &before, sizeof input);
}

static void records_out_of_range_are_refused(void **state)
{
    (void)state;
    planner_shape shape = small_shape(3);
    planner_case pc;
    planner_case_init(&pc, &shape);
    must_refuse(pc.planner, (dp_input){.kind = DP_INPUT_ALPHA, .value = 1.5}, RT_CONFIG,
                "alpha: 1.5, expected a number in [0, 1]");
    must_refuse(pc.planner, (dp_input){.kind = DP_INPUT_ALPHA, .value = NAN}, RT_CONFIG,
                "alpha: nan, expected a number in [0, 1]");
    must_refuse(pc.planner, (dp_input){.kind = DP_INPUT_LINK_UP, .worker = 4, .value = 1e9},
                RT_CONFIG, "link_up: worker 4, expected one below 4");
    must_refuse(pc.planner, (dp_input){.kind = DP_INPUT_LINK_UP, .value = 0}, RT_CONFIG,
                "link_up: 0, expected a number in [1, 1e+15]");
    must_refuse(pc.planner, (dp_input){.kind = DP_INPUT_TABLES, .value = 2.5}, RT_CONFIG,
                "tables: 2.5, expected an integer in [0, 256]");
    must_refuse(pc.planner, (dp_input){.kind = DP_INPUT_ALPHA, .worker = 1, .value = 1}, RT_CONFIG,
                "alpha: worker 1, expected one below 1");
    for (uint32_t i = 0; i < DP_INPUTS_WAITING_MAX; i++)
        apply(pc.planner, DP_INPUT_ALPHA, 0, 0.5, 3 + i % 2);
    must_refuse(pc.planner, (dp_input){.kind = DP_INPUT_ALPHA, .value = 1}, RT_AGAIN,
                "1024 input records wait for their iteration");
    for (uint32_t t = 1; t <= 4; t++)
        step(&pc);
    assert_int_equal(apply(pc.planner, DP_INPUT_ALPHA, 0, 1, 0).number, DP_INPUTS_WAITING_MAX + 1);
    planner_case_fini(&pc);
}

// ---- ticks --------------------------------------------------------------------------------------

static void ticks_follow_the_records(void **state)
{
    (void)state;
    planner_shape shape = small_shape(4);
    planner_case pc;
    planner_case_init(&pc, &shape);
    step(&pc);
    const dp_ticks *ticks = dp_planner_ticks(pc.planner);
    assert_int_equal(ticks->compute[0], 0);
    assert_int_equal(ticks->ps_row[0], 0);
    assert_int_equal(ticks->dense_up[0], 0);
    apply(pc.planner, DP_INPUT_COMPUTE, 1, 2e-6, 0);
    apply(pc.planner, DP_INPUT_COMPUTE, 2, 3600, 0);
    apply(pc.planner, DP_INPUT_PS_LINK, 0, 1e9, 0);
    step(&pc);
    assert_int_equal(ticks->compute[0], 0);
    assert_int_equal(ticks->compute[1], rint(2e-6 / ticks->tick_s));
    assert_int_equal(ticks->compute[2], DP_COMPUTE_TICKS_MAX);
    for (uint32_t f = 0; f < shape.field_count; f++) {
        uint32_t row = dp_row_bytes(&pc.config.layout, f, true);
        uint32_t grad = dp_grad_bytes(&pc.config.layout, f);
        assert_int_equal(ticks->ps_row[f], rint(row / 1e9 / ticks->tick_s));
        assert_int_equal(ticks->ps_grad[f], rint(grad / 1e9 / ticks->tick_s));
    }
    planner_case_fini(&pc);
}

// The dearest sample that a policy can make costs less than DP_COST_MAX: a pull and a push for each
// key; a push by every worker, where copies are shown as they were before; and what a window looks
// ahead to. The tick is as fine as that allows.
static void ticks_leave_room_for_the_dearest_sample(void **state)
{
    static const struct {
        rt_view_kind view;
        uint32_t window, transfers;
    } cases[] = {{RT_VIEW_STRICT, 1, 2},
                 {RT_VIEW_STRICT, 2, 4},
                 {RT_VIEW_SNAPSHOT, 1, 4},
                 {RT_VIEW_SNAPSHOT, 2, 6}};
    const uint32_t keys = 1201; // so many that the bound is theirs, and odd
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        planner_shape shape = small_shape(6);
        planner_case pc;
        dp_planner *planner;
        planner_case_init(&pc, &shape);
        dp_planner_config config = pc.config;
        config.keys_per_sample_max = keys;
        for (uint32_t j = 0; j < shape.worker_count; j++)
            config.slot_count[j] = shape.sample_count_max * keys;
        config.dispatch.view = cases[i].view;
        config.dispatch.window = cases[i].window;
        rt_error error = {0};
        if (dp_planner_create(&config, &planner, &error))
            fail_msg("%s", error.text);
        const dp_ticks *ticks = dp_planner_ticks(planner);
        uint64_t slowest = 0;
        for (uint32_t f = 0; f < shape.field_count; f++) {
            for (uint32_t j = 0; j < shape.worker_count; j++) {
                slowest = rt_max_u64(slowest, (uint64_t)ticks->pull[f][j]);
                slowest = rt_max_u64(slowest, (uint64_t)ticks->push[f][j]);
            }
        }
        const uint32_t pairs = (cases[i].transfers * keys + 1) / 2;
        assert_int_equal(slowest, DP_COST_MAX / (2 * pairs) - 1);
        dp_planner_destroy(planner);
        planner_case_fini(&pc);
    }
}

static void dense_bytes_are_in_the_ticks(void **state)
{
    (void)state;
    planner_shape shape = small_shape(5);
    planner_case pc;
    planner_case_init(&pc, &shape);
    dp_planner_config config = pc.config;
    dp_planner *planner;
    config.dense_bytes = 100000;
    config.rates.ps_bytes_per_s = 1; // slow beyond reason
    config.rates.compute_s_per_sample[3] = 1e-5;
    assert_int_equal(dp_planner_create(&config, &planner, NULL), RT_OK);
    const dp_ticks *ticks = dp_planner_ticks(planner);
    for (uint32_t j = 0; j < 4; j++) {
        double up = 100000 / config.rates.links[j].up_bytes_per_s / ticks->tick_s;
        double down = 100000 / config.rates.links[j].down_bytes_per_s / ticks->tick_s;
        assert_true(fabs((double)ticks->dense_up[j] - up) <= 0.5);
        assert_true(fabs((double)ticks->dense_down[j] - down) <= 0.5);
    }
    assert_int_equal(ticks->compute[3], rint(1e-5 / ticks->tick_s));
    assert_int_equal(ticks->ps_row[0], INT32_MAX); // cut, not wrapped
    assert_true(ticks->ps_limits[0].dense == INT64_C(1000000000000000));
    dp_planner_destroy(planner);
    planner_case_fini(&pc);
}

// A policy sees workers that take part, numbered anew, each with its own costs.
static void ticks_are_those_of_who_takes_part(void **state)
{
    (void)state;
    planner_shape shape = small_shape(5);
    planner_case pc;
    shape.cache = CACHE_EVERYTHING;
    shape.participants_min = 1;
    planner_case_init(&pc, &shape);
    dp_planner_config config = pc.config;
    dp_planner *planner;
    config.dense_bytes = 100000;
    for (uint32_t j = 0; j < 4; j++) {
        config.rates.links[j] = (dp_link){1e8 * (1 + j), 1e7 * (9 - j)};
        config.rates.compute_s_per_sample[j] = 1e-5 * (1 + j);
    }
    assert_int_equal(dp_planner_create(&config, &planner, NULL), RT_OK);
    dp_input input = {.kind = DP_INPUT_PARTICIPATES, .worker = 1, .value = 0};
    assert_int_equal(dp_planner_apply(planner, &input, NULL), RT_OK);
    random_batches_fill(&pc.batches, &pc.batch, shape.sample_count_max);
    assert_int_equal(dp_planner_look_up(planner, &pc.batch), RT_OK);
    const dp_view *view = dp_planner_view(planner);
    const dp_ticks *seen = view->ticks;
    assert_int_equal(view->worker_count, 3);
    for (uint32_t j = 0; j < 3; j++) {
        const uint32_t rank = j + (j >= 1);
        const dp_link *link = &config.rates.links[rank];
        const double up = 1e5 / link->up_bytes_per_s / seen->tick_s;
        const double down = 1e5 / link->down_bytes_per_s / seen->tick_s;
        assert_true(fabs((double)seen->dense_up[j] - up) <= 0.5);
        assert_true(fabs((double)seen->dense_down[j] - down) <= 0.5);
        assert_true(fabs(seen->compute[j] - 1e-5 * (1 + rank) / seen->tick_s) <= 0.5);
    }
    dp_planner_destroy(planner);
    planner_case_fini(&pc);
}

// ---- a worker that is lost ----------------------------------------------------------------------

static uint64_t dirty_workers(const dp_planner *planner)
{
    uint64_t dirty = 0;
    for (uint32_t w = 0; w < planner->config.worker_count; w++) {
        for (uint32_t slot = 0; slot < planner->own.caches[w].slot_count; slot++)
            dirty |= dp_planner_dirty_in(planner, w, slot) ? rt_bit(w) : 0;
    }
    return dirty;
}

// Who is said to be clean has no row that the PS lacks, and everybody who sits out becomes clean;
// it can be lost then, and never trains again, whoever asks for it.
static void a_lost_worker_trains_no_more(void **state)
{
    (void)state;
    planner_shape shape = small_shape(6);
    planner_case pc;
    uint32_t waited = 0;
    shape.cache = CACHE_EVERYTHING;
    shape.participants_min = 1;
    planner_case_init(&pc, &shape);
    for (uint32_t t = 0; t < 5; t++)
        step(&pc);
    assert_int_equal(dp_planner_clean(pc.planner), 0);
    assert_int_equal(dirty_workers(pc.planner), 15);
    apply(pc.planner, DP_INPUT_PARTICIPATES, 1, 0, 0);
    for (; !(dp_planner_clean(pc.planner) & 2); waited++) {
        step(&pc);
        assert_true(waited < 100);
        assert_int_equal(dp_planner_clean(pc.planner) & dirty_workers(pc.planner), 0);
        assert_int_equal(dp_planner_clean(pc.planner) & ~UINT64_C(2), 0); // the others train
    }
    assert_true(waited > 1);
    apply(pc.planner, DP_INPUT_LOST, 1, 1, 0);
    apply(pc.planner, DP_INPUT_PARTICIPATES, 1, 1, 0);
    for (uint32_t t = 0; t < 20; t++) {
        step(&pc);
        assert_int_equal(dp_planner_participants(pc.planner), 13);
        const dp_slice *slice = &pc.plan->slices[1];
        for (uint32_t i = 0; i < slice->release.count; i++)
            assert_int_equal(slice->release.items[i].kind, DP_OP_DROP);
        assert_int_equal(slice->fill.count + slice->after.count, 0);
    }
    assert_true(dp_planner_value(pc.planner, DP_INPUT_LOST, 1) == 1);
    assert_true(dp_planner_value(pc.planner, DP_INPUT_LOST, 2) == 0);
    apply(pc.planner, DP_INPUT_LOST, 2, 1, 0); // it trains
    random_batches_fill(&pc.batches, &pc.batch, shape.sample_count_max);
    assert_int_equal(dp_planner_look_up(pc.planner, &pc.batch), RT_PEER);
    planner_case_fini(&pc);
}

// ---- journal ------------------------------------------------------------------------------------

static void a_journal_reads_back(void **state)
{
    (void)state;
    static const double values[] = {0.1, 1.0 / 3, 5e-324, 1e15, 123456789.123456789, 0, 1};
    char path[512];
    rt_metrics *journal;
    rt_error error = {0};
    dp_inputs inputs;
    dp_input written[64];
    rt_random random = {7};
    snprintf(path, sizeof path, "%s/records.jsonl", test_directory());
    assert_int_equal(rt_metrics_open(path, &journal, &error), RT_OK);
    for (uint32_t i = 0; i < 64; i++) {
        static const dp_input_kind kinds[] = {DP_INPUT_ALPHA, DP_INPUT_COMPUTE, DP_INPUT_PS_LINK,
                                              DP_INPUT_SHARD_LINK};
        dp_input_kind kind = kinds[i % 4];
        double value = values[rt_random_below(&random, kind >= DP_INPUT_PS_LINK ? 7 : 3)];
        written[i] = (dp_input){.number = i + 1,
                                .iteration = 100 - i / 2 * 2,
                                .kind = kind,
                                .worker = dp_input_subject(kind) ? i % 5 : 0,
                                .value = value};
        if (i % 16 == 15) { // a key, whatever its bits
            const dp_input forget = dp_input_forget(rt_random_u64(&random));
            written[i].kind = forget.kind;
            written[i].worker = forget.worker;
            written[i].value = forget.value;
        }
        dp_journal_write(journal, &written[i]);
    }
    rt_metrics_close(journal);
    if (dp_inputs_load(path, 5, &inputs, &error))
        fail_msg("%s", error.text);
    assert_int_equal(inputs.count, 64);
    for (uint32_t i = 0; i < 64; i++) { // iterations fall by pairs, so pairs come out in reverse
        const dp_input *want = &written[(31 - i / 2) * 2 + i % 2], *got = &inputs.items[i];
        assert_int_equal(got->iteration, want->iteration);
        assert_int_equal(got->kind, want->kind);
        assert_int_equal(got->worker, want->worker);
        assert_true(got->value == want->value);
        assert_int_equal(got->number, want->number);
    }
    dp_inputs_fini(&inputs);
}

static void bad_journals_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"{\"kind\":\"alpha\",\"iteration\":1,\"value\":0.5}\nnonsense\n",
         "line 2: expected a JSON object that ends with the line"},
        {"{\"iteration\":1,\"value\":0.5}\n", "line 1: kind: expected the name of an input record"},
        {"{\"kind\":\"beta\",\"iteration\":1,\"value\":0.5}\n",
         "line 1: kind: expected the name of an input record"},
        {"{\"kind\":\"alpha\",\"iteration\":1,\"value\":null}\n",
         "line 1: value: expected a number"},
        {"{\"kind\":\"alpha\",\"iteration\":-1,\"value\":1}\n",
         "line 1: iteration: expected an integer in [0, 4294967295]"},
        {"{\"kind\":\"compute\",\"iteration\":1,\"value\":1}\n",
         "line 1: worker: expected an integer in [0, 4294967295]"},
        {"{\"kind\":\"compute\",\"iteration\":1,\"worker\":3,\"value\":1}\n",
         "line 1: compute: worker 3, expected one below 3"},
        {"{\"kind\":\"alpha\",\"iteration\":1,\"value\":2}\n",
         "line 1: alpha: 2, expected a number in [0, 1]"},
        {"{\"record\":\"batch\",\"iteration\":1}\n",
         "line 1: samples: expected an integer in [0, 4294967295]"},
        {"{\"record\":\"batch\",\"iteration\":2,\"samples\":0}\n",
         "line 1: expected a later iteration, with samples"},
        {"{\"record\":\"batch\",\"iteration\":2,\"samples\":1}\n"
         "{\"record\":\"batch\",\"iteration\":2,\"samples\":1}\n",
         "line 2: expected a later iteration, with samples"},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        rt_error error = {0};
        dp_inputs inputs;
        const char *path = config_write_file("bad.jsonl", cases[i].text);
        if (dp_inputs_load(path, 3, &inputs, &error) != RT_CONFIG)
            fail_msg("%s: not refused", cases[i].text);
        assert_true(strncmp(error.text, path, strlen(path)) == 0);
        assert_string_equal(error.text + strlen(path) + 2, cases[i].error);
        assert_int_equal(inputs.count, 0);
    }
    static char longest[3000];
    memset(longest, ' ', sizeof longest - 1);
    rt_error error = {0};
    dp_inputs inputs;
    assert_int_equal(dp_inputs_load(config_write_file("long", longest), 3, &inputs, &error),
                     RT_CONFIG);
    assert_non_null(strstr(error.text, "line 1: longer than 1024 bytes"));
    assert_int_equal(dp_inputs_load("/nonexistent/x", 3, &inputs, &error), RT_IO);
    // Other lines and members that nobody knows are skipped.
    const char *more = "{\"record\":\"note\",\"kind\":5}\n\n"
                       "{\"kind\":\"alpha\",\"iteration\":2,\"value\":1,\"more\":{}}";
    if (dp_inputs_load(config_write_file("more", more), 3, &inputs, &error))
        fail_msg("%s", error.text);
    assert_int_equal(inputs.count, 1);
    assert_int_equal(inputs.items[0].iteration, 2);
    dp_inputs_fini(&inputs);
}

// A process that is killed, or a disk that is full, leaves a line without its end: the last one, or
// the one before the start of the process that goes on.
static void half_a_line_is_left_out(void **state)
{
    (void)state;
#define RECORD "{\"kind\":\"alpha\",\"iteration\":1,\"value\":0.5}\n"
#define RESUMED "{\"record\":\"resumed\",\"iteration\":1,\"inputs\":1}\n"
    static const struct {
        const char *text;
        uint32_t count; // 0: refused
    } cases[] = {{RECORD "{\"kind\":\"al", 1},
                 {RECORD "{\"kind\":\"al\n" RESUMED RECORD, 2},
                 {RECORD "{\"kind\":\"al\n" RECORD, 0},
                 {RECORD "{\"kind\":\"al\n{\"kind\n" RESUMED, 0},
                 {"{\"kind\":\"al\n", 0}};
#undef RECORD
#undef RESUMED
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        rt_error error = {0};
        dp_inputs inputs;
        rt_status status =
            dp_inputs_load(config_write_file("half.jsonl", cases[i].text), 3, &inputs, &error);
        assert_int_equal(status, cases[i].count ? RT_OK : RT_CONFIG);
        assert_int_equal(inputs.count, cases[i].count);
        dp_inputs_fini(&inputs);
    }
}

// ---- whole runs ---------------------------------------------------------------------------------

static dp_sim_result simulate(const rt_config *config, const dp_inputs *inputs, const char *journal)
{
    rt_error error = {0};
    rt_stream *stream;
    dp_sim_result result;
    assert_int_equal(rt_stream_open(&config->stream, config->seed, &stream, &error), RT_OK);
    rt_schema schema = *rt_stream_schema(stream);
    rt_stream_close(stream);
    dp_sim_config sim = {.config = config, .schema = &schema, .inputs = inputs, .journal = journal};
    if (dp_sim_run(&sim, &result, &error))
        fail_msg("%s", error.text);
    return result;
}

static void replay(const char *journal, const char *policy, const char *limit, const char *limit2)
{
    rt_error error = {0};
    rt_config config = config_fresh();
    dp_inputs inputs = {0}, none = {0};
    config_must_set(&config, "stream={\"format\": \"synthetic\", \"samples_max\": 9600}");
    config_must_set(&config, "batch.samples_per_worker=16");
    config_must_set(&config, "cache.rows=800");
    config_must_set(&config, "links.workers=[5, 5, 0.5, 0.5]");
    config_must_set(&config, policy);
    config_must_set(&config, limit);
    config_must_set(&config, limit2);
    config.dispatch.alpha_share = 1e-12;
    uint64_t first = simulate(&config, NULL, journal).fingerprint;
    if (dp_inputs_load(journal, 4, &inputs, &error))
        fail_msg("%s", error.text);
    assert_true(inputs.count > 0);
    assert_int_equal(simulate(&config, &inputs, NULL).fingerprint, first);
    assert_int_not_equal(simulate(&config, &none, NULL).fingerprint, first);
    for (uint32_t i = 0; i < inputs.count; i++)
        inputs.items[i].iteration += 20; // later is another run
    assert_int_not_equal(simulate(&config, &inputs, NULL).fingerprint, first);
    dp_inputs_fini(&inputs);
    rt_config_fini(&config);
}

// Limits that no machine keeps, so that records are certain.
static void a_run_is_planned_again_from_its_journal(void **state)
{
    (void)state;
    char journal[512];
    snprintf(journal, sizeof journal, "%s/journal.jsonl", test_directory());
    replay(journal, "dispatch.policy=esd", "dispatch.alpha=auto", "seed=1");
    replay(journal, "dispatch.policy=makespan", "dispatch.budget_ms=1e-9", "dispatch.alpha=1");
}

// Every kind of record is one value of the rates, of a worker or shard, or none of them.
static void a_record_changes_one_rate(void **state)
{
    (void)state;
    const dp_rates before = {
        .links = {{1, 1}}, .ps_bytes_per_s = 1, .shards = {.count = 1, .bytes_per_s = {1}}};
    uint32_t rates = 0;
    for (uint32_t kind = 0; kind < DP_INPUT_KINDS; kind++) {
        dp_account_config account = {.rates = before};
        const dp_input input = {
            .kind = kind, .worker = kind == DP_INPUT_PS_LINK ? 0 : 3, .value = 7};
        double *rate = dp_rates_at(&account.rates, (dp_input_kind)kind, input.worker);
        dp_account_apply(&input, &account);
        assert_true(!rate == !memcmp(&account.rates, &before, sizeof before));
        if (!rate)
            continue;
        assert_true(*rate == 7);
        *rate = kind == DP_INPUT_PS_LINK ? 1 : 0;
        assert_memory_equal(&account.rates, &before, sizeof before);
        rates++;
    }
    assert_int_equal(rates, 5);
}

static void fingerprints_see_the_order(void **state)
{
    (void)state;
    uint64_t a = dp_fingerprint_add(dp_fingerprint_add(0, 1), 2);
    uint64_t b = dp_fingerprint_add(dp_fingerprint_add(0, 2), 1);
    assert_int_not_equal(a, b);
    assert_int_not_equal(dp_fingerprint_add(0, 0), dp_fingerprint_add(dp_fingerprint_add(0, 0), 0));
}

// Batches that were not full; what came after the checkpoint of a start is taken back.
static void short_batches_read_back(void **state)
{
    (void)state;
    static const char text[] = "{\"record\":\"batch\",\"iteration\":3,\"samples\":7}\n"
                               "{\"record\":\"batch\",\"iteration\":5,\"samples\":2}\n"
                               "{\"record\":\"batch\",\"iteration\":8,\"samples\":1}\n"
                               "{\"record\":\"resumed\",\"iteration\":5,\"inputs\":0}\n"
                               "{\"record\":\"batch\",\"iteration\":6,\"samples\":90}\n";
    static const uint32_t want[] = {64, 64, 64, 7, 64, 2, 64, 64, 64, 64};
    dp_inputs inputs;
    rt_error error = {0};
    if (dp_inputs_load(config_write_file("batches", text), 3, &inputs, &error))
        fail_msg("%s", error.text);
    assert_int_equal(inputs.batch_count, 3);
    for (uint32_t t = 0; t < RT_COUNT_OF(want); t++)
        assert_int_equal(dp_inputs_samples(&inputs, t, 64), want[t]); // no batch is larger
    dp_inputs_fini(&inputs);
}

TEST_MAIN(TEST(records_take_effect_at_their_iteration), TEST(a_late_record_is_renamed),
          TEST(records_out_of_range_are_refused), TEST(ticks_follow_the_records),
          TEST(ticks_leave_room_for_the_dearest_sample), TEST(dense_bytes_are_in_the_ticks),
          TEST(ticks_are_those_of_who_takes_part), TEST(a_lost_worker_trains_no_more),
          TEST(a_journal_reads_back), TEST(bad_journals_are_refused), TEST(short_batches_read_back),
          TEST(half_a_line_is_left_out), TEST(a_run_is_planned_again_from_its_journal),
          TEST(fingerprints_see_the_order), TEST(a_record_changes_one_rate))
