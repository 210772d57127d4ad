#include "runtime/watch/rt_view.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/rt_json_read.h"

#define RECENT_S 10.0
#define FADE 0.05 // of an iteration in a mean that fades
#define REFERENCE_WINDOWS 10.0
#define STALL_S 10.0       // without an iteration
#define STALL_ITERATIONS 5 // as long as so many take

#define XX(name, title) #name,
const char *const rt_view_time_names[RT_VIEW_TIMES] = {RT_TIMES_MAP(XX)};
#undef XX

rt_status rt_view_init(rt_view *view)
{
    *view = (rt_view){.offset_s = NAN, .time_s = NAN, .iteration_time_s = NAN};
    double *const unknown[] = {&view->keys,
                               &view->predicted_ms,
                               &view->cost,
                               &view->hits,
                               &view->hits_keys,
                               &view->decision_ms,
                               &view->alpha,
                               &view->latency_p99_ms,
                               &view->reference_loss,
                               &view->members_time_s,
                               &view->checkpoint_every_s,
                               &view->checkpoint_time_s,
                               &view->unsaved_time_s,
                               &view->bad_time_s,
                               &view->lost_time_s,
                               &view->waiting_events,
                               &view->doubted_time_s,
                               &view->lag_events,
                               &view->lag_bytes,
                               &view->dense_bytes,
                               &view->window.accuracy,
                               &view->window.log_loss,
                               &view->window.auc,
                               &view->window.calibration};
    for (size_t i = 0; i < RT_COUNT_OF(unknown); i++)
        *unknown[i] = NAN;
    view->columns = rt_alloc(RT_FIELDS_MAX, sizeof *view->columns);
    rt_status status = RT_NO_MEMORY;
    if (view->columns)
        status = rt_course_init(&view->course, RT_VIEW_POINTS, RT_VIEW_SERIES);
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

static rt_view_quality quality_of(const cJSON *json)
{
    return (rt_view_quality){.samples = rt_json_number_or_0(json, "samples"),
                             .log_loss = rt_json_number(json, "log_loss"),
                             .auc = rt_json_number(json, "auc"),
                             .calibration = rt_json_number(json, "calibration"),
                             .mean_label = rt_json_number(json, "mean_label"),
                             .accuracy = rt_json_number(json, "accuracy")};
}

static rt_view_memory memory_of(const cJSON *json)
{
    return (rt_view_memory){rt_json_number(json, "rss_bytes"),
                            rt_json_number(json, "memory_max_bytes")};
}

// ---- iterations ------------------------------------------------------------------------------

static void take_way(rt_view_way *way, double bytes)
{
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
            double sum = isnan(rows) ? 0 : rows;
            if (worker->takes_part && rt_bit_count(part) > 1 && !isnan(view->dense_bytes))
                sum += view->dense_bytes; // who trains alone exchanges nothing
            take_way(&worker->ways[way], sum);
        }
        if ((uint32_t)j >= view->worker_count) {
            worker->rank = (uint32_t)j;
            worker->memory = (rt_view_memory){NAN, NAN};
            view->worker_count = (uint32_t)j + 1;
        }
    }
}

static void take_tick(rt_view *view)
{
    const rt_view_tick *last = &view->recent[(view->tick_count - 1) % RT_VIEW_RECENT];
    if (view->tick_count && view->time_s < last->time_s)
        view->tick_count = 0; // another process goes on
    view->recent[view->tick_count++ % RT_VIEW_RECENT] =
        (rt_view_tick){view->time_s, view->samples, view->malformed};
}

static void take_quality(rt_view *view, const cJSON *json)
{
    const cJSON *window = rt_json_member(json, "window");
    const double samples = rt_json_number_or_0(json, "samples");
    if (!window)
        window = rt_json_member(json, "quality");
    view->window = quality_of(window);
    const double of = fmax(view->window.samples, 1) * REFERENCE_WINDOWS;
    const double share = fmax(samples / of, samples / fmax(view->samples, 1)); // at first all
    view->reference_loss = fade(view->reference_loss, view->window.log_loss, fmin(share, 1));
}

static void add_point(rt_view *view, double before_s)
{
    const double passed = view->time_s - before_s;
    const double values[RT_VIEW_SERIES] = {
        [RT_VIEW_iterations] = passed > 0 ? passed : (double)NAN, // turned round when it is shown
        [RT_VIEW_log_loss] = view->window.log_loss,
        [RT_VIEW_auc] = view->window.auc,
        [RT_VIEW_accuracy] = view->window.accuracy,
        [RT_VIEW_calibration] = view->window.calibration,
        [RT_VIEW_cost] = view->cost,
        [RT_VIEW_predicted_ms] = view->predicted_ms,
        [RT_VIEW_hits] = 100 * view->hits,
        [RT_VIEW_lag] = view->lag_events};
    rt_course_add(&view->course, (double)view->iteration, values);
}

// What a process counts, of a run that goes on, in which the next one counts anew.
static void count_on(double *count, double *told, const cJSON *json, const char *key)
{
    const double now = rt_json_number_or_0(json, key);
    if (now < *told)
        *told = 0;
    *count += now - *told;
    *told = now;
}

static void take_iteration(rt_view *view, const cJSON *json)
{
    const cJSON *hits = rt_json_member(json, "hit_ratio");
    const double iteration = rt_json_number(json, "iteration"), before_s = view->iteration_time_s;
    view->iteration++;
    if (!isnan(iteration))
        view->iteration = (uint64_t)iteration;
    view->iteration_time_s = view->time_s;
    view->samples += rt_json_number_or_0(json, "samples");
    count_on(&view->malformed, &view->malformed_told, json, "malformed_lines");
    if (cJSON_IsTrue(rt_json_member(json, "bad"))) {
        view->bad_batches++;
        view->bad_time_s = view->time_s;
    }
    if (isnan(view->unsaved_time_s) && (double)view->iteration > view->checkpoint_iteration)
        view->unsaved_time_s = view->time_s;
    view->keys = rt_json_number(json, "keys");
    view->predicted_ms = rt_json_number(json, "predicted_ms");
    view->cost = rt_json_number(json, "cost");
    view->hits = rt_json_number(hits, "lookups");
    view->hits_keys = rt_json_number(hits, "keys");
    view->decision_ms = rt_json_number(json, "decision_ms");
    view->alpha = rt_json_number(json, "alpha");
    view->latency_p99_ms = rt_json_number(rt_json_member(json, "latency_ms"), "p99");
    take_quality(view, json);
    take_workers(view, json);
    view->iterations++;
    view->waits_for_input = false;
    take_tick(view);
    add_point(view, before_s);
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

static rt_view_standby standby_of(const rt_view *view, const cJSON *json)
{
    const bool is_there = cJSON_IsTrue(rt_json_member(json, "there"));
    return (rt_view_standby){
        .is_known = cJSON_IsObject(json),
        .is_there = is_there,
        .is_in_step = cJSON_IsTrue(rt_json_member(json, "in_step")),
        .away_time_s = is_there ? (double)NAN : view->time_s - rt_json_number(json, "away_s"),
        .behind_bytes = rt_json_number(json, "behind_bytes"),
        .commits_alone = rt_json_number(json, "commits_alone"),
        .checkpoint = rt_json_number(json, "checkpoint")};
}

// What was trained since a checkpoint began counts from its end.
static void note_checkpoint(rt_view *view, double iteration, double time_s)
{
    const double before = view->checkpoint_iteration;
    view->checkpoint_iteration = iteration;
    view->checkpoint_time_s = time_s;
    if ((double)view->iteration <= view->checkpoint_iteration)
        view->unsaved_time_s = NAN;
    else if (view->checkpoint_iteration > before)
        view->unsaved_time_s = fmax(view->unsaved_time_s, view->checkpoint_time_s);
}

// One was completed, or was not.
static void take_checkpoint(rt_view *view, const cJSON *json)
{
    if (cJSON_IsTrue(rt_json_member(json, "complete")))
        note_checkpoint(view, rt_json_number(json, "iteration"), view->time_s);
}

static void take_losses(rt_view *view, const cJSON *json)
{
    const double before = view->input_lost + view->input_breaks;
    count_on(&view->input_lost, &view->lost_told, json, "events_lost");
    count_on(&view->input_breaks, &view->breaks_told, json, "breaks");
    if (view->input_lost + view->input_breaks > before)
        view->lost_time_s = view->time_s;
}

static void take_join(rt_view *view, const cJSON *json)
{
    const double doubted = rt_json_number(json, "doubted");
    view->waiting_events = rt_json_number(json, "waiting");
    if (doubted > view->doubted)
        view->doubted_time_s = view->time_s;
    if (!isnan(doubted))
        view->doubted = doubted;
}

static void take_members(rt_view *view, const cJSON *json, double unix_s)
{
    const cJSON *workers = rt_json_member(json, "workers"),
                *shards = rt_json_member(json, "shards");
    const cJSON *out = rt_json_member(json, "out"), *one,
                *checkpoint = rt_json_member(json, "checkpoint");
    uint32_t j = 0, s = 0;
    cJSON_ArrayForEach(one, workers)
    {
        if (j == RT_WORKERS_MAX)
            break;
        rt_view_worker *worker = &view->workers[j++];
        worker->rank = (uint32_t)rt_json_number_or_0(one, "rank");
        worker->memory = memory_of(one);
        take_rates(worker, one);
    }
    view->worker_count = j;
    cJSON_ArrayForEach(one, shards)
    {
        if (s == RT_SHARDS_MAX)
            break;
        view->shards[s++] =
            (rt_view_shard){memory_of(one), rt_json_number(one, "keys"),
                            rt_json_number(one, "row_bytes"), rt_json_number(one, "row_bytes_max")};
    }
    view->shard_count = s;
    view->out_count = 0;
    cJSON_ArrayForEach(one, out)
    {
        if (view->out_count < RT_WORKERS_MAX)
            view->out[view->out_count++] = (uint32_t)rt_json_value(one);
    }
    view->coordinator = memory_of(rt_json_member(json, "coordinator"));
    view->dense_bytes = rt_json_number(json, "dense_bytes");
    view->waits_for_input = cJSON_IsTrue(rt_json_member(json, "waits_for_input"));
    view->has_ended = cJSON_IsTrue(rt_json_member(json, "ended"));
    view->members_time_s = view->time_s;
    view->checkpoint_every_s = rt_json_number(checkpoint, "every_s");
    note_checkpoint(view, rt_json_number(checkpoint, "iteration"),
                    view->time_s - rt_json_number(checkpoint, "age_s"));
    take_join(view, rt_json_member(json, "join"));
    view->lag_events = rt_json_number(rt_json_member(json, "lag"), "events");
    view->lag_bytes = rt_json_number(rt_json_member(json, "lag"), "bytes");
    take_losses(view, rt_json_member(json, "input"));
    view->standby = standby_of(view, rt_json_member(json, "standby"));
    copy_text(view->policy, sizeof view->policy, json, "policy");
    if (isnan(unix_s))
        view->offset_s = rt_json_number(json, "unix_s") - view->time_s;
}

static void take_columns(rt_view *view, const cJSON *json)
{
    const cJSON *one;
    uint32_t count = 0;
    cJSON_ArrayForEach(one, rt_json_member(json, "columns"))
    {
        if (count == RT_FIELDS_MAX)
            break;
        rt_view_column *column = &view->columns[count++];
        const double values = rt_json_number_or_0(one, "values"),
                     empty = rt_json_number_or_0(one, "empty");
        const double fresh = rt_json_number_or_0(one, "new");
        copy_text(column->name, sizeof column->name, one, "name");
        column->values += values;
        column->empty += empty;
        column->fresh += fresh;
        column->empty_share = column->new_share = 0;
        if (values > 0) {
            column->empty_share = empty / values;
            column->new_share = fresh / values;
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

static void take_slices(rt_view *view, const cJSON *json)
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
        slice->quality = quality_of(one);
    }
}

static void take_warning(rt_view *view, const cJSON *json)
{
    const uint64_t at = view->warning_count++ % RT_VIEW_WARNINGS;
    view->warnings[at].time_s = view->time_s;
    copy_text(view->warnings[at].text, RT_VIEW_TEXT, json, "text");
}

void rt_view_begin_anew(rt_view *view)
{
    view->iteration_time_s = view->checkpoint_time_s = view->unsaved_time_s = NAN;
    view->bad_time_s = view->doubted_time_s = view->lost_time_s = view->members_time_s = NAN;
    view->standby.is_known = false;
    view->tick_count = 0;
    view->has_ended = false;
    for (uint32_t i = 0; i < RT_VIEW_WARNINGS; i++)
        view->warnings[i].time_s = NAN;
}

// One that cannot be judged yet is held back, too, and nobody has to look.
static void take_publish(rt_view *view, const cJSON *json)
{
    rt_view_published *published = &view->published;
    const double iteration = rt_json_number(json, "iteration");
    if (!cJSON_IsTrue(rt_json_member(json, "held"))) {
        *published = (rt_view_published){.in_force = iteration, .held_time_s = NAN};
        return;
    }
    if (cJSON_IsTrue(rt_json_member(json, "early")))
        return;
    if (!(published->held > 0))
        published->held_time_s = view->time_s;
    published->held = rt_json_number_or_0(json, "held_count");
    published->held_iteration = iteration;
    copy_text(published->why, sizeof published->why, json, "why");
}

// Another process goes on from a checkpoint: its clock begins anew, and what came after follows
// again.
static void take_resumed(rt_view *view, const cJSON *json)
{
    const double iteration = rt_json_number_or_0(json, "iteration");
    rt_course_cut(&view->course, iteration);
    rt_view_begin_anew(view);
    view->iteration = (uint64_t)iteration;
    view->checkpoint_time_s = view->time_s;
    view->checkpoint_iteration = iteration;
    view->published.held = 0;
}

static void take_stream(rt_view *view, const cJSON *json)
{
    view->lag_events = rt_json_number(json, "events") - rt_json_number(json, "read");
}

static const struct {
    const char *name;
    void (*take)(rt_view *view, const cJSON *json);
} kinds[] = {{"iteration", take_iteration},   {"columns", take_columns}, {"slices", take_slices},
             {"warning", take_warning},       {"resumed", take_resumed}, {"stream", take_stream},
             {"checkpoint", take_checkpoint}, {"publish", take_publish}};

bool rt_view_take(rt_view *view, const char *line, double unix_s)
{
    const char *kind;
    cJSON *json = rt_json_record(line, &kind);
    if (!json)
        return false;
    view->time_s = rt_json_number(json, "time_s");
    if (!isnan(unix_s))
        view->offset_s = unix_s - view->time_s;
    if (strcmp(kind, "members") == 0)
        take_members(view, json, unix_s);
    for (size_t i = 0; i < RT_COUNT_OF(kinds); i++) {
        if (strcmp(kind, kinds[i].name) == 0)
            kinds[i].take(view, json);
    }
    cJSON_Delete(json);
    return true;
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
    if (!view->standby.is_known || view->has_ended)
        return NAN;
    if (view->standby.is_there)
        return 0;
    return rt_view_age_s(view, view->standby.away_time_s, unix_s);
}

rt_view_rates rt_view_rates_of(const rt_view *view, double unix_s)
{
    rt_view_rates rates = {NAN, NAN, NAN, NAN};
    const uint64_t count = rt_min_u64(view->tick_count, RT_VIEW_RECENT);
    if (count < 2)
        return rates;
    const rt_view_tick *last = &view->recent[(view->tick_count - 1) % RT_VIEW_RECENT];
    const rt_view_tick *first = last;
    uint64_t between = 0;
    for (uint64_t back = 1; back < count; back++) {
        const rt_view_tick *one = &view->recent[(view->tick_count - 1 - back) % RT_VIEW_RECENT];
        if (between && last->time_s - one->time_s > RECENT_S)
            break;
        first = one;
        between = back;
    }
    const double passed = last->time_s - first->time_s;
    const double samples = last->samples - first->samples;
    const double malformed = last->malformed - first->malformed;
    if (!(passed > 0))
        return rates;
    rates = (rt_view_rates){.iterations_per_s = (double)between / passed,
                            .samples_per_s = samples / passed,
                            .malformed_share = malformed / fmax(samples + malformed, 1),
                            .iteration_ms = passed / (double)between * 1e3};
    if (rt_view_age_s(view, last->time_s, unix_s) > RECENT_S + 3e-3 * rates.iteration_ms)
        rates.iterations_per_s = rates.samples_per_s = 0;
    return rates;
}

double rt_view_use(const rt_view_way *way, const rt_view_rates *rates)
{
    if (!(way->bytes_per_s > 0))
        return NAN;
    return way->an_iteration * rates->iterations_per_s / way->bytes_per_s;
}

const char *rt_view_state(const rt_view *view, double unix_s)
{
    const rt_view_rates rates = rt_view_rates_of(view, unix_s);
    const double age_s = rt_view_age_s(view, view->iteration_time_s, unix_s);
    if (view->has_ended)
        return "ended";
    if (view->iterations == 0)
        return "starts";
    if (view->waits_for_input)
        return "waits";
    const double limit_s = fmax(STALL_S, STALL_ITERATIONS * 1e-3 * rates.iteration_ms);
    if (age_s > limit_s)
        return "stalls";
    return "trains";
}
