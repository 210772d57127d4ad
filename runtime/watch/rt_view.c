#include "runtime/watch/rt_view.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/rt_json_read.h"

#define RECENT_S 10.0
#define TICK_S (RECENT_S / (RT_VIEW_RECENT - 8)) // so many moments hold all of it
#define FADE 0.05                                // of an iteration in a mean that fades
#define REFERENCE_WINDOWS 10.0
#define LINES_MIN 100.0    // for a share of them
#define STALL_S 10.0       // without an iteration
#define STALL_ITERATIONS 5 // as long as so many take

#define XX(name, title) #name,
const char *const rt_view_time_names[RT_VIEW_TIMES] = {RT_TIMES_MAP(XX)};
const char *const rt_view_op_names[RT_VIEW_OPS] = {RT_COUNTS_MAP(XX, RT_COUNTS_NONE)};
#undef XX

static bool has_chart(uint32_t metric)
{
    return rt_metric_of_run(metric)->chart.title != NULL;
}

uint32_t rt_view_series(uint32_t metric)
{
    uint32_t series = 0;
    rt_assert(metric == RT_RUN_METRICS || has_chart(metric));
    for (uint32_t i = 0; i < metric; i++)
        series += has_chart(i);
    return series;
}

rt_status rt_view_init(rt_view *view, uint32_t point_max)
{
    *view = (rt_view){.offset_s = NAN, .time_s = NAN, .dense_bytes = NAN};
    rt_metric_begin(RT_SET_RUN, view->values);
    view->iteration = view->iterations = view->checkpoint_iteration = view->warnings = 0;
    view->in_force = view->held = view->waits_for_input = 0;
    rt_view_begin_anew(view);
    view->columns = rt_alloc(RT_FIELDS_MAX, sizeof *view->columns);
    rt_status status = RT_NO_MEMORY;
    if (view->columns)
        status = rt_course_init(&view->course, point_max, rt_view_series(RT_RUN_METRICS));
    if (status)
        rt_view_fini(view);
    return status;
}

void rt_view_fini(rt_view *view)
{
    rt_course_fini(&view->course);
    rt_free(view->columns);
    view->columns = NULL;
}

// ---- reading ---------------------------------------------------------------------------------

static void copy_text(char *text, size_t size, const cJSON *json, const char *name)
{
    snprintf(text, size, "%s", rt_json_text_of(json, name));
}

static double fade(double mean, double value, double share)
{
    if (isnan(value))
        return mean;
    if (isnan(mean))
        return value;
    return mean + share * (value - mean);
}

static rt_view_memory memory_of(const cJSON *json)
{
    rt_view_memory memory;
    rt_metric_take_all(RT_SET_PROCESS, "members", json, &memory.rss_bytes, NULL);
    return memory;
}

// ---- iterations ------------------------------------------------------------------------------

static void take_way(rt_view_way *way, double rows, double dense)
{
    const double bytes = rows + dense;
    way->rows += rows;
    way->sum += bytes;
    if (way->an_iteration > 0)
        way->an_iteration = fade(way->an_iteration, bytes, FADE);
    else
        way->an_iteration = bytes;
}

// Who takes part stands in the list of participants.
static uint64_t participants_of(const cJSON *json)
{
    const cJSON *list = rt_json_member(json, "participants"), *one;
    uint64_t mask = 0;
    cJSON_ArrayForEach(one, list)
    {
        const double place = rt_json_value(one);
        if (place >= 0 && place < RT_WORKERS_MAX)
            mask |= UINT64_C(1) << (uint32_t)place;
    }
    if (cJSON_IsArray(list))
        return mask;
    return ~UINT64_C(0);
}

static void take_workers(rt_view *view, const cJSON *json)
{
    const cJSON *const bytes[2] = {rt_json_member(json, "bytes_up"),
                                   rt_json_member(json, "bytes_down")};
    const cJSON *times = rt_json_member(json, "times_ms");
    const uint64_t part = participants_of(json);
    const int count = cJSON_GetArraySize(times);
    for (int j = 0; j < count && j < (int)RT_WORKERS_MAX; j++) {
        rt_view_worker *worker = &view->workers[j];
        const cJSON *one = cJSON_GetArrayItem(times, j);
        worker->takes_part = part >> j & 1;
        for (uint32_t k = 0; k < RT_VIEW_TIMES; k++) {
            const double ms = rt_json_number_or_0(one, rt_view_time_names[k]);
            worker->time_s[k] += ms * 1e-3;
            worker->times_ms[k] = view->iterations ? fade(worker->times_ms[k], ms, FADE) : ms;
        }
        for (uint32_t way = 0; way < 2; way++) {
            const double rows = rt_json_value(cJSON_GetArrayItem(bytes[way], j));
            double dense = 0; // who trains alone exchanges nothing
            if (worker->takes_part && rt_bit_count(part) > 1 && !isnan(view->dense_bytes))
                dense = view->dense_bytes;
            take_way(&worker->ways[way], isnan(rows) ? 0 : rows, dense);
        }
        if ((uint32_t)j >= view->worker_count) {
            worker->rank = (uint32_t)j;
            worker->memory = (rt_view_memory){NAN, NAN};
            view->worker_count = (uint32_t)j + 1;
        }
    }
    view->worker_most = (uint32_t)rt_max_u64(view->worker_most, view->worker_count);
}

static void take_tick(rt_view *view)
{
    const rt_view_tick *last = &view->recent[(view->tick_count - 1) % RT_VIEW_RECENT];
    if (view->tick_count && view->time_s < last->time_s)
        view->tick_count = 0; // another process goes on
    // The last one moves on until it is far enough from the one before it.
    if (view->tick_count >= 2) {
        const rt_view_tick *before = &view->recent[(view->tick_count - 2) % RT_VIEW_RECENT];
        view->tick_count -= view->time_s - before->time_s < TICK_S;
    }
    view->recent[view->tick_count++ % RT_VIEW_RECENT] =
        (rt_view_tick){view->time_s, view->samples, view->malformed, view->iterations};
}

static void note_reference(rt_view *view, const cJSON *json)
{
    const double samples = rt_json_number_or_0(json, "samples");
    const double of = fmax(view->window_samples, 1) * REFERENCE_WINDOWS;
    const double share = fmax(samples / of, samples / fmax(view->samples, 1)); // at first all
    view->reference_loss = fade(view->reference_loss, view->window_log_loss, fmin(share, 1));
}

static void add_to_course(rt_view *view)
{
    double values[RT_COURSE_SERIES_MAX];
    uint32_t series = 0;
    for (uint32_t i = 0; i < RT_RUN_METRICS; i++) {
        if (has_chart(i))
            values[series++] = view->values[i];
        rt_mean_add(&view->means[i], view->values[i]);
    }
    rt_course_add(&view->course, view->iteration, view->earlier_s + view->time_s, values);
}

static void take_iteration(rt_view *view, cJSON *json)
{
    const double iteration = rt_json_number(json, "iteration"), before_s = view->iteration_time_s;
    const cJSON *ops = rt_json_member(json, "ops");
    if (!rt_json_member(json, "window")) // of builds that had none
        (void)cJSON_AddItemReferenceToObject(json, "window",
                                             cJSON_GetObjectItemCaseSensitive(json, "quality"));
    rt_metric_take_all(RT_SET_RUN, "iteration", json, view->values, view->told);
    view->iteration = isnan(iteration) ? view->iteration + 1 : iteration;
    view->iteration_time_s = view->time_s;
    view->passed_ms = view->time_s >= before_s ? (view->time_s - before_s) * 1e3 : (double)NAN;
    if (cJSON_IsTrue(rt_json_member(json, "bad")))
        view->bad_time_s = view->time_s;
    if (isnan(view->unsaved_time_s) && view->iteration > view->checkpoint_iteration)
        view->unsaved_time_s = view->time_s;
    for (uint32_t k = 0; k < RT_VIEW_OPS; k++)
        view->ops[k] += rt_json_number_or_0(ops, rt_view_op_names[k]);
    note_reference(view, json);
    take_workers(view, json);
    view->iterations++;
    view->waits_for_input = 0;
    take_tick(view);
    view->samples_per_s = rt_view_rates_of(view, NAN).samples_per_s;
    add_to_course(view);
}

// ---- other records ---------------------------------------------------------------------------

static void take_rates(rt_view_worker *worker, const cJSON *json)
{
    static const char *const names[2] = {"up", "down"};
    for (uint32_t way = 0; way < 2; way++) {
        const double rate = rt_json_number(json, names[way]);
        worker->ways[way].bytes_per_s = rate;
        worker->ways[way].best = fmax(worker->ways[way].best, rate);
    }
}

// What was trained since a checkpoint began counts from its end.
static void note_checkpoint(rt_view *view, double iteration, double time_s)
{
    const double before = view->checkpoint_iteration;
    view->checkpoint_iteration = iteration;
    view->checkpoint_time_s = time_s;
    if (view->iteration <= view->checkpoint_iteration)
        view->unsaved_time_s = NAN;
    else if (view->checkpoint_iteration > before)
        view->unsaved_time_s = fmax(view->unsaved_time_s, view->checkpoint_time_s);
}

// One was completed, or was not.
static void take_checkpoint(rt_view *view, cJSON *json)
{
    if (cJSON_IsTrue(rt_json_member(json, "complete")))
        note_checkpoint(view, rt_json_number(json, "iteration"), view->time_s);
}

// Every list of the record, as long as it may be.
static void take_lists(rt_view *view, const cJSON *json)
{
    const cJSON *one;
    view->worker_count = view->shard_count = view->out_count = 0;
    cJSON_ArrayForEach(one, rt_json_member(json, "workers"))
    {
        if (view->worker_count == RT_WORKERS_MAX)
            break;
        rt_view_worker *worker = &view->workers[view->worker_count++];
        worker->rank = (uint32_t)rt_json_number_or_0(one, "rank");
        worker->memory = memory_of(one);
        take_rates(worker, one);
    }
    cJSON_ArrayForEach(one, rt_json_member(json, "shards"))
    {
        if (view->shard_count == RT_SHARDS_MAX)
            break;
        rt_view_shard *shard = &view->shards[view->shard_count++];
        shard->memory = memory_of(one);
        rt_metric_take_all(RT_SET_SHARD, "members", one, &shard->keys, NULL);
    }
    cJSON_ArrayForEach(one, rt_json_member(json, "out"))
    {
        if (view->out_count < RT_WORKERS_MAX)
            view->out[view->out_count++] = (uint32_t)rt_json_value(one);
    }
}

static void take_members(rt_view *view, cJSON *json)
{
    const cJSON *checkpoint = rt_json_member(json, "checkpoint");
    const double trouble = view->input_lost + view->input_breaks, doubted = view->doubted;
    rt_metric_take_all(RT_SET_RUN, "members", json, view->values, view->told);
    take_lists(view, json);
    view->coordinator = memory_of(rt_json_member(json, "coordinator"));
    view->dense_bytes = rt_json_number(json, "dense_bytes");
    view->has_ended = cJSON_IsTrue(rt_json_member(json, "ended"));
    note_checkpoint(view, rt_json_number(checkpoint, "iteration"),
                    view->time_s - rt_json_number(checkpoint, "age_s"));
    if (view->doubted > 0 && !(view->doubted <= doubted))
        view->doubted_time_s = view->time_s;
    if (view->input_lost + view->input_breaks > trouble)
        view->lost_time_s = view->time_s;
    view->standby_away_time_s =
        view->time_s - rt_json_number(rt_json_member(json, "standby"), "away_s");
    copy_text(view->policy, sizeof view->policy, json, "policy");
    if (isnan(view->taken_unix_s))
        view->offset_s = rt_json_number(json, "unix_s") - view->time_s;
}

static void take_columns(rt_view *view, cJSON *json)
{
    const cJSON *one;
    uint32_t count = 0;
    cJSON_ArrayForEach(one, rt_json_member(json, "columns"))
    {
        if (count == RT_FIELDS_MAX)
            break;
        rt_view_column *column = &view->columns[count++];
        const double values = column->values, empty = column->empty, fresh = column->fresh;
        copy_text(column->name, sizeof column->name, one, "name");
        rt_metric_take_all(RT_SET_COLUMN, "columns", one, &column->values, NULL);
        column->empty_share = column->new_share = 0;
        if (column->values > values) {
            column->empty_share = (column->empty - empty) / (column->values - values);
            column->new_share = (column->fresh - fresh) / (column->values - values);
        }
    }
    view->column_count = count;
}

// What is written "(empty)" is not what has no value; whoever reads labels wants each once.
static void name_apart(const rt_view *view, rt_view_slice *slice)
{
    char name[RT_VIEW_NAME];
    uint32_t turn = 1;
    memcpy(name, slice->name, sizeof name);
    for (const rt_view_slice *other = view->slices; other < slice;) {
        if (strcmp(other->name, slice->name) != 0) {
            other++;
            continue;
        }
        snprintf(slice->name, sizeof slice->name, "%.48s (%" PRIu32 ")", name, ++turn);
        other = view->slices;
    }
}

static void take_slices(rt_view *view, cJSON *json)
{
    const cJSON *one;
    view->slice_count = 0;
    copy_text(view->slice_column, sizeof view->slice_column, json, "column");
    cJSON_ArrayForEach(one, rt_json_member(json, "values"))
    {
        if (view->slice_count == RT_VIEW_SLICES_MAX)
            break;
        rt_view_slice *slice = &view->slices[view->slice_count++];
        copy_text(slice->name, sizeof slice->name, one, "value");
        name_apart(view, slice);
        rt_metric_take_all(RT_SET_SLICE, "slices", one, &slice->quality.samples, NULL);
    }
}

static void take_warning(rt_view *view, cJSON *json)
{
    const uint64_t at = (uint64_t)view->warnings++ % RT_VIEW_WARNINGS;
    view->texts[at].time_s = view->time_s;
    copy_text(view->texts[at].text, RT_VIEW_TEXT, json, "text");
}

void rt_view_begin_anew(rt_view *view)
{
    view->iteration_time_s = view->checkpoint_time_s = view->unsaved_time_s = NAN;
    view->bad_time_s = view->doubted_time_s = view->lost_time_s = view->in_force_time_s = NAN;
    view->standby_there = view->standby_in_step = view->standby_behind_bytes = NAN;
    view->standby_commits_alone = view->standby_checkpoint = NAN;
    view->tick_count = 0;
    view->has_ended = false;
    for (uint32_t i = 0; i < RT_VIEW_WARNINGS; i++)
        view->texts[i].time_s = NAN;
}

// One that cannot be judged yet is held back, too, and nobody has to look.
static void take_publish(rt_view *view, cJSON *json)
{
    const double iteration = rt_json_number(json, "iteration");
    const double pinned = rt_json_number_or_0(json, "pinned");
    const bool is_held = cJSON_IsTrue(rt_json_member(json, "held"));
    if (pinned > 0 ? view->in_force != pinned : !is_held) {
        view->in_force = pinned > 0 ? pinned : iteration;
        view->in_force_time_s = view->time_s;
    }
    if (!is_held) {
        view->held = 0;
        view->held_iteration = NAN;
        return;
    }
    if (cJSON_IsTrue(rt_json_member(json, "early")))
        return;
    if (!(view->held > 0))
        view->held_time_s = view->time_s;
    view->held = rt_json_number_or_0(json, "held_count");
    view->held_iteration = iteration;
    copy_text(view->held_why, sizeof view->held_why, json, "why");
}

// Another process goes on from a checkpoint: its clock begins anew, and what came after follows
// again.
static void take_resumed(rt_view *view, cJSON *json)
{
    const double iteration = rt_json_number_or_0(json, "iteration");
    rt_course_cut(&view->course, iteration);
    if (!isnan(view->iteration_time_s))
        view->earlier_s += view->iteration_time_s;
    rt_view_begin_anew(view);
    view->again += fmax(view->iteration - iteration, 0);
    view->iteration = iteration;
    view->checkpoint_time_s = view->time_s;
    view->checkpoint_iteration = iteration;
    view->held = 0;
    view->held_iteration = NAN;
}

static void take_stream(rt_view *view, cJSON *json)
{
    view->lag_events = rt_json_number(json, "events") - rt_json_number(json, "read");
}

static const struct {
    const char *name;
    void (*take)(rt_view *view, cJSON *json);
} kinds[] = {
    {"iteration", take_iteration}, {"members", take_members},       {"columns", take_columns},
    {"slices", take_slices},       {"warning", take_warning},       {"resumed", take_resumed},
    {"stream", take_stream},       {"checkpoint", take_checkpoint}, {"publish", take_publish}};

bool rt_view_take(rt_view *view, const char *line, double unix_s)
{
    const char *kind;
    cJSON *json = rt_json_record(line, &kind);
    if (!json)
        return false;
    view->time_s = rt_json_number(json, "time_s");
    if (!isnan(unix_s))
        view->offset_s = unix_s - view->time_s;
    view->taken_unix_s = unix_s;
    for (size_t i = 0; i < RT_COUNT_OF(kinds); i++) {
        if (strcmp(kind, kinds[i].name) == 0)
            kinds[i].take(view, json);
    }
    cJSON_Delete(json);
    return true;
}

void rt_view_take_summary(rt_view *view, const cJSON *json)
{
    rt_metric_take_all(RT_SET_RUN, "summary", json, view->values, view->told);
}

// ---- what follows from it --------------------------------------------------------------------

double rt_view_age_s(const rt_view *view, double time_s, double unix_s)
{
    const double age = unix_s - (view->offset_s + time_s);
    if (age < 0)
        return 0;
    return age;
}

double rt_view_unsaved_s(const rt_view *view, double unix_s)
{
    if (!(view->checkpoint_every_s > 0) || view->has_ended)
        return NAN;
    if (isnan(view->unsaved_time_s))
        return 0;
    return rt_view_age_s(view, view->unsaved_time_s, unix_s);
}

double rt_view_standby_away_s(const rt_view *view, double unix_s)
{
    if (isnan(view->standby_there) || view->has_ended)
        return NAN;
    if (view->standby_there > 0)
        return 0;
    return rt_view_age_s(view, view->standby_away_time_s, unix_s);
}

rt_view_rates rt_view_rates_of(const rt_view *view, double unix_s)
{
    rt_view_rates rates = {NAN, NAN, NAN, NAN};
    const uint64_t count = rt_min_u64(view->tick_count, RT_VIEW_RECENT);
    if (count < 2)
        return rates;
    const rt_view_tick *last = &view->recent[(view->tick_count - 1) % RT_VIEW_RECENT];
    const rt_view_tick *first = last;
    for (uint64_t back = 1; back < count; back++) {
        const rt_view_tick *one = &view->recent[(view->tick_count - 1 - back) % RT_VIEW_RECENT];
        if (first != last && last->time_s - one->time_s > RECENT_S)
            break;
        first = one;
    }
    const double passed = last->time_s - first->time_s;
    const double samples = last->samples - first->samples;
    const double malformed = last->malformed - first->malformed;
    const double between = last->iterations - first->iterations;
    if (!(passed > 0))
        return rates;
    rates = (rt_view_rates){.iterations_per_s = between / passed,
                            .samples_per_s = samples / passed,
                            .malformed_share = malformed / fmax(samples + malformed, 1),
                            .iteration_ms = passed / between * 1e3};
    if (rt_view_age_s(view, last->time_s, unix_s) > RECENT_S + 3e-3 * rates.iteration_ms)
        rates.iterations_per_s = rates.samples_per_s = 0;
    return rates;
}

rt_view_link rt_view_link_of(const rt_view_way *way, double iterations_per_s)
{
    rt_view_link link = {.sum = way->sum, .bytes_per_s = NAN, .best = NAN, .used = NAN};
    if (way->best > 0)
        link.best = way->best;
    if (way->bytes_per_s > 0) {
        link.bytes_per_s = way->bytes_per_s;
        link.used = way->an_iteration * iterations_per_s / way->bytes_per_s;
    }
    return link;
}

double rt_view_link_share(const rt_view *view, char about[RT_VIEW_NAME])
{
    double least = NAN;
    for (uint32_t i = 0; i < 2 * view->worker_count; i++) {
        const rt_view_way *one = &view->workers[i / 2].ways[i % 2];
        const double share = one->best > 0 ? one->bytes_per_s / one->best : (double)NAN;
        if (isnan(share) || share >= least)
            continue;
        least = share;
        snprintf(about, RT_VIEW_NAME, "worker %" PRIu32 ", %s", view->workers[i / 2].rank,
                 i % 2 ? "down" : "up");
    }
    return least;
}

static void note_memory(const rt_view_memory *memory, const char *who, uint32_t number,
                        double *most, char about[RT_VIEW_NAME])
{
    const double share = memory->max_bytes > 0 ? memory->rss_bytes / memory->max_bytes : NAN;
    if (isnan(share) || share <= *most)
        return;
    *most = share;
    snprintf(about, RT_VIEW_NAME, "%s %" PRIu32, who, number);
}

double rt_view_memory_share(const rt_view *view, char about[RT_VIEW_NAME])
{
    double most = NAN;
    note_memory(&view->coordinator, "coordinator", 0, &most, about);
    for (uint32_t j = 0; j < view->worker_count; j++)
        note_memory(&view->workers[j].memory, "worker", view->workers[j].rank, &most, about);
    for (uint32_t s = 0; s < view->shard_count; s++)
        note_memory(&view->shards[s].memory, "ps", s, &most, about);
    return most;
}

bool rt_view_publishes(const rt_view *view)
{
    return view->in_force > 0 || view->held > 0;
}

void rt_view_values(const rt_view *view, double unix_s, double values[RT_RUN_METRICS])
{
    const rt_view_rates rates = rt_view_rates_of(view, unix_s);
    const double day_s = view->offset_s + view->ahead_s; // where records have time 0
    const double age_s = rt_view_age_s(view, view->iteration_time_s, unix_s);
    char about[RT_VIEW_NAME];
    memcpy(values, view->values, sizeof view->values);
    values[RT_RUN_iteration_age_s] = age_s;
    values[RT_RUN_last_iteration_unix_s] = day_s + view->iteration_time_s;
    values[RT_RUN_iterations_per_s] = rates.iterations_per_s;
    values[RT_RUN_samples_per_s] = rates.samples_per_s;
    values[RT_RUN_iteration_ms] = rates.iteration_ms;
    values[RT_RUN_malformed_share] = rates.malformed_share;
    values[RT_RUN_checkpoint_age_s] = rt_view_age_s(view, view->checkpoint_time_s, unix_s);
    values[RT_RUN_checkpoint_unix_s] = day_s + view->checkpoint_time_s;
    values[RT_RUN_unsaved_s] = rt_view_unsaved_s(view, unix_s);
    values[RT_RUN_standby_away_s] = rt_view_standby_away_s(view, unix_s);
    values[RT_RUN_in_force_age_s] = rt_view_age_s(view, view->in_force_time_s, unix_s);
    if (view->held > 0)
        values[RT_RUN_held_s] = rt_view_age_s(view, view->held_time_s, unix_s);
    values[RT_RUN_input_trouble] = view->input_lost + view->input_breaks;
    values[RT_RUN_workers_all] = view->worker_count;
    values[RT_RUN_workers_out] = view->out_count;
    values[RT_RUN_bad_age_s] = rt_view_age_s(view, view->bad_time_s, unix_s);
    values[RT_RUN_lost_age_s] = rt_view_age_s(view, view->lost_time_s, unix_s);
    values[RT_RUN_doubted_age_s] = rt_view_age_s(view, view->doubted_time_s, unix_s);
    values[RT_RUN_link_share] = rt_view_link_share(view, about);
    values[RT_RUN_memory_share] = rt_view_memory_share(view, about);
    if (view->iterations > 0 && !(view->waits_for_input > 0) && !view->has_ended)
        values[RT_RUN_idle_s] = age_s;
    // A window, and as much before it to compare with.
    if (view->samples >= 2 * view->window_samples && view->reference_loss > 0)
        values[RT_RUN_loss_drift] = view->window_log_loss / view->reference_loss;
    if (view->samples + view->malformed >= LINES_MIN && age_s < RT_VIEW_RECENT_S)
        values[RT_RUN_malformed_now] = rates.malformed_share;
}

bool rt_view_is_alone(const rt_view *view)
{
    return view->worker_most == 1 && view->shard_count == 1;
}

bool rt_view_has_chart(const rt_view *view, uint32_t metric)
{
    const bool is_of_placing = metric == RT_RUN_cost || metric == RT_RUN_predicted_ms ||
                               metric == RT_RUN_decision_ms || metric == RT_RUN_alpha;
    return !is_of_placing || !rt_view_is_alone(view);
}

bool rt_view_line(const rt_view *view, uint32_t metric, double *iterations, double *times_s,
                  double *values)
{
    const rt_metric *of = rt_metric_of_run(metric);
    const uint32_t series = rt_view_series(metric);
    bool is_known = false;
    for (uint32_t p = 0; p < view->course.count; p++) {
        const double mean = rt_mean_of(&view->course.points[p].values[series]);
        iterations[p] = view->course.points[p].at;
        times_s[p] = view->course.points[p].time_s;
        values[p] = mean * of->chart.scale;
        is_known |= isfinite(values[p]);
    }
    return is_known;
}

const char *rt_view_state(const rt_view *view, double unix_s)
{
    const rt_view_rates rates = rt_view_rates_of(view, unix_s);
    const double age_s = rt_view_age_s(view, view->iteration_time_s, unix_s);
    if (view->has_ended)
        return "ended";
    if (view->iterations == 0)
        return "starts";
    if (view->waits_for_input > 0)
        return "waits";
    const double limit_s = fmax(STALL_S, STALL_ITERATIONS * 1e-3 * rates.iteration_ms);
    if (age_s > limit_s)
        return "stalls";
    return "trains";
}
