#include "tests/support/planned.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/planner/dp_planner_parts.h"
#include "dispatch/planner/dp_setup.h"
#include "dispatch/planner/dp_sweep.h"
#include "runtime/rt_hash.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

#define DENSE_BYTES 6000u

// What a run would have learned. The last of these wait at a cut.
static const dp_input told[] = {
    {.iteration = 3, .kind = DP_INPUT_LINK_UP, .worker = 1, .value = 2e7},
    {.iteration = 3, .kind = DP_INPUT_LINK_DOWN, .worker = 0, .value = 9e8},
    {.iteration = 5, .kind = DP_INPUT_COMPUTE, .worker = 1, .value = 4e-5},
    {.iteration = 6, .kind = DP_INPUT_ALPHA, .value = 0.75},
    {.iteration = 6, .kind = DP_INPUT_SEARCH_EVALUATIONS, .value = 70},
    {.iteration = 6, .kind = DP_INPUT_TABLES, .value = 9},
    {.iteration = 8, .kind = DP_INPUT_PS_LINK, .value = 6e7},
    {.iteration = 9, .kind = DP_INPUT_SHARD_LINK, .worker = 0, .value = 3e7},
    {.iteration = 10, .kind = DP_INPUT_SHARD_LINK, .worker = 1, .value = 5e5},
    {.iteration = 17, .kind = DP_INPUT_LINK_UP, .worker = 0, .value = 3e7},
    {.iteration = 18, .kind = DP_INPUT_COMPUTE, .worker = 0, .value = 1e-3},
    {.iteration = 44, .kind = DP_INPUT_LINK_UP, .worker = 0, .value = 1e6},
    {.iteration = 44, .kind = DP_INPUT_LINK_DOWN, .worker = 0, .value = 1e6},
    {.iteration = 64, .kind = DP_INPUT_COMPUTE, .worker = 2, .value = 1e-2},
    {.iteration = 74, .kind = DP_INPUT_LINK_UP, .worker = 1, .value = 2e6},
    {.iteration = 84, .kind = DP_INPUT_LINK_UP, .worker = 0, .value = 6e8},
    {.iteration = 84, .kind = DP_INPUT_LINK_DOWN, .worker = 0, .value = 6e8},
};

// ---- opening -----------------------------------------------------------------------------------

static void set_common(rt_config *config)
{
    static const char *const common[] = {
        "stream.format=synthetic",    "stream.samples_max=20000", "stream.synthetic.scale=0.002",
        "batch.samples_per_worker=3", "cache.rows=100",           "links.workers=[5,5,0.5,0.5]",
        "planner.threads=1"};
    for (size_t i = 0; i < RT_COUNT_OF(common); i++)
        config_must_set(config, common[i]);
}

static void set_all(const char *sets, rt_config *config)
{
    char text[sizeof((planned *)0)->sets];
    snprintf(text, sizeof text, "%s", sets);
    for (char *rest = NULL, *set = strtok_r(text, " ;", &rest); set;
         set = strtok_r(NULL, " ;", &rest))
        config_must_set(config, set);
}

static void read_line(planned *p, const char *line)
{
    char text[3000];
    p->iterations = 24;
    p->cut = 14;
    snprintf(text, sizeof text, "%s", line);
    for (char *rest = NULL, *set = strtok_r(text, " \n", &rest); set;
         set = strtok_r(NULL, " \n", &rest)) {
        const size_t used = strlen(p->sets);
        if (strncmp(set, "iterations=", 11) == 0)
            p->iterations = (uint32_t)strtoul(set + 11, NULL, 10);
        else if (strncmp(set, "cut=", 4) == 0)
            p->cut = (uint32_t)strtoul(set + 4, NULL, 10);
        else if (strncmp(set, "tries=", 6) == 0)
            p->tries = (uint32_t)strtoul(set + 6, NULL, 10);
        else if (strcmp(set, "slices=true") == 0)
            p->tries_slices = true;
        else if (strcmp(set, "told=true") == 0)
            p->is_told = true;
        else if (strncmp(set, "as=", 3) == 0 && p->as_count < PLANNED_AS_MAX)
            snprintf(p->as[p->as_count++], sizeof *p->as, "%s", set + 3);
        else
            snprintf(p->sets + used, sizeof p->sets - used, "%s%s", used ? " " : "", set);
    }
}

static const char *set_up(const rt_config *config, const rt_schema *schema,
                          dp_planner_config *planner)
{
    static rt_error error;
    error = (rt_error){0};
    if (rt_config_check(config, &error) || dp_setup(config, schema, 0, planner, &error) ||
        dp_planner_check(planner, &error))
        return error.text;
    dp_setup_dense(config, DENSE_BYTES, planner);
    return NULL;
}

const char *planned_config(const planned *p, const char *as, dp_planner_config *planner)
{
    rt_config config = config_fresh();
    set_common(&config);
    set_all(p->sets, &config);
    if (as)
        set_all(as, &config);
    const char *why = set_up(&config, &p->schema, planner);
    rt_config_fini(&config);
    return why;
}

static void set_limits(planned *p)
{
    const rt_config *config = &p->config;
    const uint32_t samples = dp_planner_micro_batch_max(&p->planner_config);
    p->limits =
        (dp_slice_limits){.dense_count = p->schema.dense_count,
                          .more_labels = p->schema.label_count - 1,
                          .field_count = p->schema.field_count,
                          .worker_count = config->worker_count,
                          .batch_samples = p->planner_config.sample_count_max,
                          .sample_count_max = samples,
                          .lookup_count_max = samples * p->planner_config.keys_per_sample_max,
                          .slot_count = p->planner_config.slot_count[0],
                          .hands = config->dispatch.hand_over,
                          .sums = config->dispatch.reduce};
    if (config->ps_homes == RT_HOMES_PLANNED)
        p->limits.shard_count = config->ps_shard_count;
}

void planned_open(planned *p, const char *line)
{
    rt_error error = {0};
    *p = (planned){.config = config_fresh()};
    read_line(p, line);
    set_common(&p->config);
    set_all(p->sets, &p->config);
    if (rt_stream_open(&p->config.stream, p->config.seed, &p->stream, &error))
        fail_msg("%s", error.text);
    p->schema = *rt_stream_schema(p->stream);
    const char *why = set_up(&p->config, &p->schema, &p->planner_config);
    if (why)
        fail_msg("%s", why);
    set_limits(p);
    for (uint32_t i = 0; i < RT_COUNT_OF(p->batches); i++)
        rt_batch_init(&p->batches[i], p->schema.dense_count);
    if (dp_planner_create(&p->planner_config, &p->planner, &error) ||
        dp_participants_open(&p->planner_config, NULL, NULL, &p->chooser, &error))
        fail_msg("%s", error.text);
    assert_int_equal(dp_setup_threads(&p->config, &p->pool, &error), RT_OK);
    assert_int_equal(dp_planner_set_pool(p->planner, p->pool), RT_OK);
}

void planned_close(planned *p)
{
    rt_stream_close(p->stream);
    for (uint32_t i = 0; i < RT_COUNT_OF(p->batches); i++)
        rt_batch_fini(&p->batches[i]);
    dp_planner_destroy(p->planner);
    rt_pool_destroy(p->pool);
    dp_participants_destroy(p->chooser);
    rt_bytes_fini(&p->first_slice);
    rt_bytes_fini(&p->last_slice);
    rt_config_fini(&p->config);
}

// ---- sums --------------------------------------------------------------------------------------

static void add(uint64_t *sum, uint64_t value)
{
    *sum = rt_mix(*sum ^ value) + value;
}

static void add_bytes(uint64_t *sum, const void *bytes, size_t size)
{
    add(sum, rt_hash_bytes(bytes, size));
}

static void add_view(planned *p)
{
    const dp_view *view = dp_planner_view(p->planner);
    uint64_t *sum = &p->sums.views;
    add(sum, view->distinct_count);
    add(sum, view->uniform);
    add(sum, view->micro_batch_min + (uint64_t)view->micro_batch_max * 1000);
    add_bytes(sum, view->capacity, view->worker_count * sizeof *view->capacity);
    add_bytes(sum, view->rows_max, view->worker_count * sizeof *view->rows_max);
    add_bytes(sum, view->held, view->distinct_count);
    for (uint32_t d = 0; d < view->distinct_count; d++) {
        const dp_distinct *one = &view->distinct[d];
        add(sum, one->holders ^ rt_mix(one->version) ^ (uint64_t)one->uses << 32 ^ one->box);
    }
    if (view->cached)
        add_bytes(sum, view->cached, p->schema.field_count * sizeof *view->cached);
    if (view->owed)
        add_bytes(sum, view->owed, view->distinct_count * sizeof *view->owed);
    if (view->next)
        add_bytes(sum, view->next, view->distinct_count);
}

static void add_decision(planned *p)
{
    const dp_decision *decision = dp_planner_decision(p->planner);
    uint64_t *sum = &p->sums.decisions;
    const double values[] = {decision->alpha, decision->error_bound_s, decision->error_s};
    add_bytes(sum, values, sizeof values);
    add(sum, decision->evaluations);
    add(sum, decision->search_evaluations_max + ((uint64_t)decision->error_measured << 40));
    add(sum, decision->opt_samples + ((uint64_t)decision->heu_samples << 32));
    add(sum, decision->tables + ((uint64_t)decision->table_count << 32));
    add(sum, dp_planner_clean(p->planner));
    add(sum, dp_planner_row_count(p->planner));
    for (uint32_t kind = 0; kind < DP_INPUT_KINDS; kind++) {
        uint32_t count = dp_input_subject((dp_input_kind)kind) ? p->config.worker_count : 1;
        if (kind == DP_INPUT_SHARD_LINK)
            count = p->config.ps_shard_count;
        for (uint32_t w = 0; w < count; w++) {
            const double value = dp_planner_value(p->planner, (dp_input_kind)kind, w);
            add_bytes(sum, &value, sizeof value);
        }
    }
}

static void keep_slice(planned *p, const rt_message *message)
{
    rt_bytes *last = p->first_slice.size ? &p->last_slice : &p->first_slice;
    rt_bytes_clear(last);
    rt_bytes_put(last, message->data, message->size);
}

// All workers' slices, each read as its worker reads it.
static void add_slices(planned *p, const dp_plan *plan, const rt_batch *batch)
{
    for (uint32_t w = 0; w < p->config.worker_count; w++) {
        rt_message message;
        dp_slice_view view;
        rt_error error = {0};
        p->limits.rank = w;
        assert_int_equal(dp_slice_encode(plan, w, batch, &p->limits, 0, plan->iteration, &message),
                         RT_OK);
        assert_int_equal(message.size, dp_slice_bytes(plan, w, batch, &p->limits));
        if (dp_slice_decode(&message, &p->limits, &view, &error))
            fail_msg("iteration %" PRIu32 ", worker %" PRIu32 ": %s", plan->iteration, w,
                     error.text);
        add_bytes(&p->sums.slices, message.data, message.size);
        if (w == planned_rank(p) && plan->iteration)
            keep_slice(p, &message);
        rt_message_release(&message);
    }
}

// batch: NULL for a sweep or a flush.
static void add_plan(planned *p, const dp_plan *plan, const rt_batch *batch)
{
    add(&p->sums.plans, dp_plan_fingerprint(plan));
    add_bytes(&p->sums.times, &p->planner->predicted_s, sizeof p->planner->predicted_s);
    add_slices(p, plan, batch);
}

// ---- an iteration ------------------------------------------------------------------------------

static bool read_ahead(planned *p)
{
    const uint32_t most = dp_planner_ahead(&p->planner_config) + 1;
    rt_error error = {0};
    while (p->ahead < most) {
        rt_batch *next = &p->batches[(p->first + p->ahead) % RT_COUNT_OF(p->batches)];
        const rt_status status =
            rt_stream_read(p->stream, next, p->planner_config.sample_count_max, &error);
        if (status == RT_END)
            break;
        if (status)
            fail_msg("%s", error.text);
        assert_int_equal(rt_tables_fold(&p->schema.tables, next), RT_OK);
        assert_int_equal(dp_planner_preview(p->planner, next), RT_OK);
        p->ahead++;
    }
    return p->ahead > 0;
}

static void apply(planned *p, const dp_input *input)
{
    dp_input one = *input;
    rt_error error = {0};
    if (dp_planner_apply(p->planner, &one, &error))
        fail_msg("%s", error.text);
    if (p->chooser)
        dp_participants_apply(p->chooser, &one);
}

// Two iterations before they are in force.
static void tell(planned *p)
{
    for (uint32_t i = 0; i < RT_COUNT_OF(told) && p->is_told; i++) {
        const uint32_t at = told[i].iteration == 3 ? 1 : told[i].iteration - 4;
        const bool is_shard = told[i].kind == DP_INPUT_SHARD_LINK;
        const uint32_t count = is_shard ? p->config.ps_shard_count : p->config.worker_count;
        if (at == p->iteration && told[i].worker < count)
            apply(p, &told[i]);
    }
}

static void choose(planned *p, const rt_batch *batch)
{
    dp_input records[RT_WORKERS_MAX];
    uint32_t count;
    if (!p->chooser)
        return;
    assert_int_equal(dp_participants_next(p->chooser, batch, dp_planner_participants(p->planner),
                                          dp_planner_row_count(p->planner), records, &count),
                     RT_OK);
    for (uint32_t i = 0; i < count; i++)
        apply(p, &records[i]);
}

static void sweep(planned *p)
{
    uint32_t floor;
    uint64_t ended = 0;
    const dp_plan *plan;
    if (!dp_sweep_due(p->planner, &floor))
        return;
    assert_int_equal(dp_sweep(p->planner, floor, &plan, &ended), RT_OK);
    add_plan(p, plan, NULL);
    add(&p->sums.plans, floor);
    add(&p->sums.plans, ended);
}

static void look_up(planned *p, const rt_batch *batch)
{
    for (bool done = false; !done;) {
        assert_int_equal(dp_planner_make_room(p->planner, batch, &done), RT_OK);
    }
    for (bool done = false; !done;) {
        assert_int_equal(dp_planner_look_up_step(p->planner, batch, &done), RT_OK);
    }
}

static const dp_plan *commit(planned *p)
{
    const dp_plan *plan;
    for (bool done = false; !done;) {
        assert_int_equal(dp_planner_commit_step(p->planner, &done, &plan), RT_OK);
    }
    return plan;
}

bool planned_step(planned *p)
{
    uint32_t refused;
    if (!read_ahead(p))
        return false;
    rt_batch *batch = &p->batches[p->first];
    p->iteration++;
    tell(p);
    sweep(p);
    assert_int_equal(dp_planner_admit(p->planner, batch, &refused), RT_OK);
    add(&p->sums.plans, refused);
    choose(p, batch);
    look_up(p, batch);
    dp_planner_place(p->planner);
    add_view(p);
    add_bytes(&p->sums.plans, dp_planner_placement(p->planner),
              batch->sample_count * sizeof(uint32_t));
    const dp_plan *plan = commit(p);
    add_plan(p, plan, batch);
    add_decision(p);
    p->first = (p->first + 1) % RT_COUNT_OF(p->batches);
    p->ahead--;
    return true;
}

// ---- a cut -------------------------------------------------------------------------------------

void planned_cut(planned *p, rt_bytes *state)
{
    const dp_plan *plan;
    rt_bytes chooser_state = {0};
    rt_error error = {0};
    assert_int_equal(dp_planner_flush(p->planner, &plan), RT_OK);
    add_plan(p, plan, NULL);
    if (p->chooser)
        dp_participants_save(p->chooser, &chooser_state);
    *state = (rt_bytes){0};
    dp_planner_save(p->planner, &chooser_state, state);
    assert_false(state->failed);
    rt_bytes_fini(&chooser_state);
    if (!dp_planner_legal(p->planner, &error))
        fail_msg("%s", error.text);
}

void planned_replace(planned *p, dp_planner *planner, dp_participants *chooser)
{
    dp_planner_destroy(p->planner);
    dp_participants_destroy(p->chooser);
    p->planner = planner;
    p->chooser = chooser;
    assert_int_equal(dp_planner_set_pool(planner, p->pool), RT_OK);
    for (uint32_t i = 0; i < p->ahead; i++)
        assert_int_equal(
            dp_planner_preview(planner, &p->batches[(p->first + i) % RT_COUNT_OF(p->batches)]),
            RT_OK);
}

void planned_tell(const planned *p, dp_planner *to)
{
    const dp_directory *directory = dp_planner_directory(p->planner);
    for (uint64_t i = 0; i <= directory->mask; i++) {
        const dp_entry *entry = &directory->entries[i];
        const dp_record *record = entry->record ? &directory->records[entry->record - 1] : NULL;
        const uint32_t version = record ? record->version : entry->version;
        uint32_t home = directory->homes ? directory->homes[i] : 0;
        if (record && directory->homes)
            home = record->home;
        if (version)
            assert_int_equal(dp_planner_know(to, entry->key, version, home), RT_OK);
    }
}
