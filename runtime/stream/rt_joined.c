#include "runtime/stream/rt_joined.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "runtime/rt_log.h"
#include "runtime/stream/rt_position.h"
#include "runtime/wire/rt_fields.h"

#define NOT_WAITING 1u             // a deadline that is over: what is there, or RT_AGAIN
#define VAIN_NS UINT64_C(1000000)  // after a look in vain events go on so long without another
#define LOOK_NS UINT64_C(50000000) // an event that waits for outcomes, until the caller has a look
#define HOLD_S 30u                 // one input waits so long for the other

struct rt_joined {
    rt_join *join;
    rt_stream_config config; // of the outcomes; borrows from the stream's
    rt_stream *outcomes;
    rt_batch batch; // of one outcome
    bool has_head;  // an outcome was read and is not taken
    uint64_t id;
    int64_t time_ms;
    rt_join_labels labels;
    uint32_t label_count;
    bool dated;         // outcomes have times in their lines
    bool ended;         // no outcome follows
    bool finished;      // rt_join_end was said
    uint64_t vain_ns;   // when outcomes were looked for in vain; 0: they were not
    uint64_t held_ns;   // since when one input waits for the other; 0: none does
    bool is_held;       // the event that is aside
    uint64_t resend_ns; // no window ends until then; 0: they do
    rt_log_limit limit;
};

int64_t rt_joined_arrival_ms(uint64_t arrival_ns)
{
    struct timespec now;
    if (arrival_ns)
        return (int64_t)(arrival_ns / 1000000);
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// The first of the files that can be read again, with other times then.
static const char *regular_file(char *const *files, uint32_t count)
{
    struct stat info;
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(files[i], "-") != 0 && stat(files[i], &info) == 0 && S_ISREG(info.st_mode))
            return files[i];
    }
    return NULL;
}

static rt_status check_times(const rt_stream_config *config, const rt_schema *events,
                             const rt_schema *outcomes, rt_error *error)
{
    const char *file = NULL, *list = "stream.table.columns";
    if (!events->has_times)
        file = regular_file(config->files, config->file_count);
    if (!file && !outcomes->has_times) {
        file = regular_file(config->join.files, config->join.file_count);
        list = "stream.join.columns";
    }
    if (!file)
        return RT_OK;
    return rt_fail(error, RT_CONFIG,
                   "%s: no column of kind \"time\", and %s is a file, whose lines do not say when "
                   "they came",
                   list, file);
}

static rt_status create_join(rt_joined *joined, const rt_stream_config *config, uint64_t seed,
                             uint32_t dense_count, rt_error *error)
{
    rt_join_settings settings = {.join = config->join,
                                 .dense_count = dense_count,
                                 .label_count = joined->label_count,
                                 .seed = seed,
                                 .negatives_keep = 1};
    if (config->negatives_keep > 0)
        settings.negatives_keep = config->negatives_keep;
    return rt_join_create(&settings, &joined->join, error);
}

rt_stream_config rt_joined_config(const rt_stream_config *events)
{
    const rt_join_config *join = &events->join;
    rt_stream_config config = *events; // brokers, the live source
    config.format = join->format;
    config.source = join->source;
    config.id[0] = '\0';
    memcpy(config.kafka_topic, join->topic, sizeof join->topic);
    config.file_count = join->file_count;
    config.files = join->files;
    config.samples_max = 0;
    config.labels_optional = false;
    config.negatives_keep = 1;
    config.table = join->table;
    config.join = (rt_join_config){.source = RT_SOURCE_FILE};
    config.holds_outcomes = true;
    return config;
}

rt_status rt_joined_create(const rt_stream_config *config, uint64_t seed, const rt_schema *schema,
                           rt_joined **joined_p, rt_error *error)
{
    rt_joined *joined = rt_alloc(1, sizeof *joined);
    if (!joined)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a join");
    joined->config = rt_joined_config(config);
    joined->label_count = rt_config_label_count(config);
    rt_batch_init(&joined->batch, 0);
    rt_status status = create_join(joined, config, seed, schema->dense_count, error);
    if (!status)
        status = rt_stream_open(&joined->config, seed, &joined->outcomes, error);
    if (!status)
        status = check_times(config, schema, rt_stream_schema(joined->outcomes), error);
    if (status) {
        rt_joined_destroy(joined);
        return status;
    }
    joined->dated = rt_stream_schema(joined->outcomes)->has_times;
    if (rt_stream_was_away(joined->outcomes) && config->join.resend_s > 0) {
        joined->resend_ns = rt_now_ns() + (uint64_t)(config->join.resend_s * 1e9);
        rt_join_hold(joined->join, true);
    }
    *joined_p = joined;
    return RT_OK;
}

void rt_joined_destroy(rt_joined *joined)
{
    if (!joined)
        return;
    rt_stream_close(joined->outcomes);
    rt_batch_fini(&joined->batch);
    rt_join_destroy(joined->join);
    rt_free(joined);
}

void rt_joined_watch(rt_joined *joined, int stop)
{
    rt_stream_watch(joined->outcomes, stop, -1);
}

rt_status rt_joined_offer(rt_joined *joined, const rt_line_sample *sample, rt_error *error)
{
    rt_status status = rt_join_offer(joined->join, sample);
    if (status)
        return rt_fail(error, status, "out of memory for an event that waits");
    return RT_OK;
}

// Reads the next outcome, unless one is there. RT_AGAIN: none came until the deadline.
static rt_status read_head(rt_joined *joined, uint64_t deadline_ns, rt_error *error)
{
    rt_line_sample sample;
    if (joined->has_head || joined->ended)
        return RT_OK;
    const uint64_t now = joined->vain_ns ? rt_now_ns() : 0;
    if (deadline_ns == NOT_WAITING && now > 0 && now - joined->vain_ns < VAIN_NS)
        return RT_AGAIN;
    rt_status status =
        rt_stream_next(joined->outcomes, &joined->batch, deadline_ns, &sample, error);
    joined->vain_ns = status == RT_AGAIN ? rt_now_ns() : 0;
    joined->ended = status == RT_END;
    joined->has_head = !status;
    if (joined->ended)
        return RT_OK;
    if (status)
        return status;
    joined->id = sample.id;
    joined->labels = (rt_join_labels){0};
    for (uint32_t l = 0; l < joined->label_count; l++) {
        joined->labels.known |= (uint8_t)(!isnan(sample.labels[l]) << l);
        joined->labels.ones |= (uint8_t)((sample.labels[l] > 0) << l);
    }
    joined->time_ms = sample.time_ms;
    return RT_OK;
}

static rt_status take_head(rt_joined *joined, rt_error *error)
{
    bool is_taken;
    rt_status status =
        rt_join_outcome(joined->join, joined->id, joined->time_ms, joined->labels, &is_taken);
    joined->has_head = joined->has_head && !is_taken;
    if (status)
        return rt_fail(error, status, "out of memory for an outcome that waits");
    return RT_OK;
}

// behind: something of the other input is on its way. Whether it is waited for.
static bool waits_for(rt_joined *joined, bool behind, const char *what)
{
    uint64_t told;
    if (!behind) {
        joined->held_ns = 0;
        return false;
    }
    if (joined->held_ns == 0)
        joined->held_ns = rt_now_ns();
    if (rt_now_ns() - joined->held_ns < HOLD_S * UINT64_C(1000000000))
        return true;
    if (rt_log_due(&joined->limit, &told))
        rt_warn("stream.join: %s did not answer for %u s: it goes on without them, and what comes "
                "of them then may be late",
                what, HOLD_S);
    return false;
}

static bool lacks_outcomes(const rt_joined *joined)
{
    return !joined->has_head && !joined->ended && rt_stream_is_behind(joined->outcomes);
}

// The next outcome, or RT_AGAIN. For an event the outcomes before it are waited for.
static rt_status look_for_outcome(rt_joined *joined, const rt_joined_events *events, bool has_event,
                                  rt_error *error)
{
    const uint64_t deadline_ns = events->deadline_ns;
    uint64_t soon = rt_now_ns() + LOOK_NS;
    rt_status status = RT_OK;
    if (events->ended && !has_event)
        return read_head(joined, deadline_ns, error);
    if (has_event || events->idle)
        status = read_head(joined, NOT_WAITING, error);
    if (!has_event || (status && status != RT_AGAIN))
        return status;
    if (!waits_for(joined, lacks_outcomes(joined), "outcomes"))
        return status;
    if (deadline_ns)
        soon = rt_min_u64(soon, deadline_ns);
    status = read_head(joined, soon, error);
    joined->is_held = status == RT_AGAIN && lacks_outcomes(joined);
    return status;
}

bool rt_joined_is_held(const rt_joined *joined)
{
    return joined->is_held;
}

// Nothing came, and nothing is known to come: what has no times is of now.
static void let_time_pass(rt_joined *joined, const rt_joined_events *events)
{
    if (events->idle && !events->behind && !events->dated && !joined->dated &&
        !lacks_outcomes(joined))
        rt_join_advance(joined->join, rt_joined_arrival_ms(0));
}

static void end_resending(rt_joined *joined)
{
    if (joined->resend_ns == 0 || rt_now_ns() < joined->resend_ns)
        return;
    joined->resend_ns = 0;
    rt_join_hold(joined->join, false);
}

// What can be done without another event; nothing is ready. RT_AGAIN: an event is wanted, or one is
// held.
static rt_status move(rt_joined *joined, const rt_joined_events *events, rt_error *error)
{
    int64_t time_ms;
    const bool has_event = rt_join_has_offer(joined->join, &time_ms);
    const bool only_outcomes = events->ended && !has_event;
    joined->is_held = false;
    rt_status status = look_for_outcome(joined, events, has_event, error);
    if (status && (status != RT_AGAIN || only_outcomes || joined->is_held))
        return status;
    if (joined->has_head && (!has_event || joined->time_ms < time_ms)) {
        const bool is_next = only_outcomes || has_event ||
                             (events->idle && !waits_for(joined, events->behind, "events"));
        if (is_next)
            return take_head(joined, error);
        return RT_AGAIN;
    }
    if (has_event) {
        status = rt_join_admit(joined->join);
        if (status)
            return rt_fail(error, status, "out of memory for an event that waits");
        return RT_OK;
    }
    let_time_pass(joined, events);
    if (!events->ended && !rt_join_has_ready(joined->join))
        return RT_AGAIN;
    if (!events->ended)
        return RT_OK;
    if (joined->finished)
        return RT_END;
    joined->finished = true;
    rt_join_end(joined->join);
    return RT_OK;
}

rt_status rt_joined_fill(rt_joined *joined, const rt_joined_events *events, rt_batch *batch,
                         uint32_t sample_count, rt_error *error)
{
    for (;;) {
        while (batch->sample_count < sample_count && rt_join_give(joined->join, batch)) {
            // until nothing is ready
        }
        if (batch->sample_count == sample_count)
            return RT_OK;
        end_resending(joined);
        if (rt_join_has_ready(joined->join))
            continue;
        rt_status status = move(joined, events, error);
        if (status)
            return status;
    }
}

rt_join_counts rt_joined_counts(const rt_joined *joined)
{
    return rt_join_statistics(joined->join);
}

rt_stream_stats rt_joined_outcomes(const rt_joined *joined)
{
    return rt_stream_statistics(joined->outcomes);
}

// ---- positions -------------------------------------------------------------------------------

void rt_joined_remember(rt_joined *joined)
{
    rt_join_remember(joined->join);
}

void rt_joined_step(rt_joined *joined)
{
    rt_join_step(joined->join);
}

// Of one label 0 or 1, as ever.
static uint32_t labels_in_file(const rt_joined *joined)
{
    const uint32_t known = joined->label_count > 1 ? joined->labels.known : 0;
    return known << 8 | joined->labels.ones;
}

// The outcome that was read and not taken.
typedef struct {
    uint32_t has_head, labels;
    uint64_t id;
    int64_t time_ms;
} saved_outcome;

#define OUTCOME(XX, PART, NONE, T) \
    XX(T, has_head)                \
    XX(T, labels)                  \
    XX(T, id)                      \
    XX(T, time_ms)
RT_FIELDS(outcome_fields, saved_outcome, OUTCOME, "has_head:4 labels:4 id:8 time_ms:8");

void rt_joined_tell(const rt_joined *joined, rt_bytes *bytes)
{
    rt_bytes outcomes = {0};
    const saved_outcome outcome = {joined->has_head, labels_in_file(joined), joined->id,
                                   joined->time_ms};
    rt_join_tell(joined->join, bytes);
    rt_fields_put(bytes, &outcome_fields, &outcome, 1);
    rt_stream_tell(joined->outcomes, &outcomes);
    rt_bytes_put_u64(bytes, outcomes.size);
    rt_bytes_put(bytes, outcomes.data, outcomes.size);
    bytes->failed |= outcomes.failed;
    rt_bytes_fini(&outcomes);
}

rt_status rt_joined_seek(rt_joined *joined, rt_reader *bytes, rt_error *error)
{
    rt_bytes outcomes = {0};
    saved_outcome outcome = {0};
    const bool is_good =
        rt_join_seek(joined->join, bytes) && rt_fields_get(bytes, &outcome_fields, &outcome, 1);
    joined->has_head = outcome.has_head != 0;
    joined->labels = (rt_join_labels){1, outcome.labels & 0xff};
    if (joined->label_count > 1)
        joined->labels.known = outcome.labels >> 8 & 0xff;
    joined->id = outcome.id;
    joined->time_ms = outcome.time_ms;
    const uint64_t size = rt_reader_u64(bytes);
    const void *position = rt_reader_take(bytes, size, 1);
    if (!is_good || !position)
        return rt_fail(error, RT_DATA, "the position in the outcomes (stream.join) is damaged");
    rt_bytes_put(&outcomes, position, size);
    rt_status status;
    if (outcomes.failed)
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for a position");
    else
        status = rt_stream_seek(joined->outcomes, &outcomes, error);
    rt_bytes_fini(&outcomes);
    return status;
}

void rt_joined_save(rt_joined *joined, uint64_t step, rt_bytes *bytes)
{
    rt_join_save(joined->join, step, bytes);
}

void rt_joined_settle(rt_joined *joined, uint64_t step)
{
    rt_join_settle(joined->join, step);
}

rt_status rt_joined_load(rt_joined *joined, rt_reader *bytes, rt_error *error)
{
    return rt_join_load(joined->join, bytes, error);
}
