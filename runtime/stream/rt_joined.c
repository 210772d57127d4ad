#include "runtime/stream/rt_joined.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/config/rt_sources.h"
#include "runtime/rt_clock.h"
#include "runtime/rt_log.h"
#include "runtime/stream/rt_join_time.h"
#include "runtime/stream/rt_position.h"
#include "runtime/wire/rt_fields.h"

#define NOT_WAITING 1u             // a deadline that is over: what is there, or RT_AGAIN
#define VAIN_NS UINT64_C(1000000)  // after a look in vain events go on so long without another
#define LOOK_NS UINT64_C(50000000) // an event that waits for outcomes, until the caller has a look
#define HOLD_S 30u                 // one input waits so long for the other
#define AHEAD 32u // outcomes that are read, and not taken: a wrong time does not hold up the others
#define OVERTAKEN 12u

// An outcome that was read and is not taken.
typedef struct {
    rt_join_word word; // its time is the one that the join knows
    uint64_t number;   // in the order of reading
    rt_join_labels labels;
    bool is_word;       // rt_line_sample
    bool is_taken;      // its word is: it is being given to the join
    uint32_t overtaken; // by so many that were read later
} head;

struct rt_joined {
    rt_join *join;
    rt_stream_config config; // of the outcomes; borrows from the stream's
    rt_stream *outcomes;
    rt_batch batch; // of one outcome
    rt_join_time time;
    int64_t offer_ms;  // what the event that is aside moves the clock to, and outcomes are read to
    int64_t ahead_ms;  // what the clock is ahead of this process's, at most
    bool is_ahead;     // it is known
    bool measures;     // there were records without a word
    head heads[AHEAD]; // by time; of one time by number
    uint32_t head_count;
    uint64_t head_number; // of the next
    uint32_t label_count;
    bool dated;     // outcomes have times in their lines
    bool has_words; // their times are words: of their lines, or of who sent them
    bool events_have_words;
    bool was_set_back;  // the clock
    bool is_measured;   // neither has: all times are of one clock, this process's
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
    if (arrival_ns == 0)
        arrival_ns = rt_arrival_ns();
    return (int64_t)(arrival_ns / 1000000);
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
    joined->has_words = joined->dated || config->join.source == RT_SOURCE_KAFKA;
    joined->events_have_words = schema->has_times || config->source == RT_SOURCE_KAFKA;
    joined->is_measured = !joined->has_words && !joined->events_have_words;
    joined->offer_ms = RT_JOIN_TIME_UNKNOWN;
    rt_join_time_init(&joined->time, (int64_t)(config->join.window_s * 1000));
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

// ---- times -----------------------------------------------------------------------------------

// The clock against this process's, for when nothing comes: who sends may be ahead of it.
static void note_ahead(rt_joined *joined)
{
    int64_t clock_ms;
    if (joined->is_measured || !rt_join_clock(joined->join, &clock_ms))
        return;
    clock_ms -= rt_joined_arrival_ms(0);
    if (clock_ms > joined->ahead_ms)
        joined->ahead_ms = clock_ms;
}

static void take_word(rt_joined *joined, rt_flow flow, const rt_join_word *word)
{
    uint64_t id;
    int64_t clock_ms, earlier_ms;
    if (rt_join_time_take(&joined->time, flow, word, &id))
        rt_join_doubt(joined->join, id);
    if (flow != RT_FLOW_EVENTS || !rt_join_clock(joined->join, &clock_ms) ||
        !rt_join_time_is_earlier(&joined->time, clock_ms, &earlier_ms))
        return;
    rt_warn("stream.join: events are of %.0f s before the time that it was for those before them: "
            "the clock goes back",
            (double)(clock_ms - earlier_ms) * 1e-3);
    joined->was_set_back = true;
    rt_join_time_set_back(&joined->time, earlier_ms);
    rt_join_set_back(joined->join, earlier_ms, RT_JOIN_TIME_FAR_MS);
}

// Of a record that is given to the join; its word, if it is one, was taken.
static int64_t moves_to(const rt_joined *joined, const rt_join_word *word, bool is_word)
{
    if (is_word)
        return rt_join_time_move(&joined->time, word);
    if (joined->events_have_words) // it is of now, whenever that is for them
        return RT_JOIN_TIME_UNKNOWN;
    return word->time_ms;
}

rt_status rt_joined_offer(rt_joined *joined, const rt_line_sample *sample, rt_error *error)
{
    const rt_join_word word = {sample->time_ms, sample->arrival_ms, sample->origin, sample->id};
    rt_line_sample event = *sample;
    if (sample->is_word) {
        event.time_ms = rt_join_time_of(&joined->time, &word);
        take_word(joined, RT_FLOW_EVENTS, &word);
    }
    joined->offer_ms = moves_to(joined, &word, sample->is_word);
    rt_status status = rt_join_offer(joined->join, &event);
    if (status)
        return rt_fail(error, status, "out of memory for an event that waits");
    return RT_OK;
}

// ---- outcomes --------------------------------------------------------------------------------

static bool is_before(const head *left, const head *right)
{
    if (left->word.time_ms != right->word.time_ms)
        return left->word.time_ms < right->word.time_ms;
    return left->number < right->number;
}

// Whether an outcome tells of others that they are early: not if it is late itself, for all that is
// known.
static bool is_on_time(const rt_joined *joined, const head *one)
{
    int64_t clock_ms;
    return rt_join_clock(joined->join, &clock_ms) &&
           one->word.time_ms >= clock_ms - joined->time.window_ms;
}

static void put_head(rt_joined *joined, const rt_line_sample *sample)
{
    head one = {.word = {sample->time_ms, sample->arrival_ms, sample->origin, sample->id},
                .number = joined->head_number++,
                .is_word = sample->is_word};
    uint32_t at = joined->head_count++;
    if (sample->is_word)
        one.word.time_ms = rt_join_time_of(&joined->time, &one.word);
    for (uint32_t l = 0; l < joined->label_count; l++) {
        one.labels.known |= (uint8_t)(!isnan(sample->labels[l]) << l);
        one.labels.ones |= (uint8_t)((sample->labels[l] > 0) << l);
    }
    const bool overtakes = is_on_time(joined, &one);
    for (; at > 0 && is_before(&one, &joined->heads[at - 1]) && !joined->heads[at - 1].is_taken;
         at--) {
        joined->heads[at] = joined->heads[at - 1];
        joined->heads[at].overtaken += overtakes;
    }
    joined->heads[at] = one;
}

// Reads the next outcome. RT_AGAIN: none came until the deadline.
static rt_status read_head(rt_joined *joined, uint64_t deadline_ns, rt_error *error)
{
    rt_line_sample sample;
    const uint64_t now = joined->vain_ns ? rt_now_ns() : 0;
    if (deadline_ns == NOT_WAITING && now > 0 && now - joined->vain_ns < VAIN_NS)
        return RT_AGAIN;
    rt_status status =
        rt_stream_next(joined->outcomes, &joined->batch, deadline_ns, &sample, error);
    joined->vain_ns = status == RT_AGAIN ? rt_now_ns() : 0;
    joined->ended = status == RT_END;
    if (!status)
        put_head(joined, &sample);
    if (joined->ended)
        return RT_OK;
    return status;
}

// Reads outcomes: one, or, where they may not be in order, as many as there are places for; only
// the first is waited for. RT_AGAIN: there is none.
static rt_status read_heads(rt_joined *joined, uint64_t deadline_ns, rt_error *error)
{
    const uint32_t most = joined->has_words ? AHEAD : 1;
    rt_status status = RT_OK;
    while (!status && joined->head_count < most && !joined->ended)
        status = read_head(joined, joined->head_count ? NOT_WAITING : deadline_ns, error);
    if (status == RT_AGAIN && joined->head_count > 0)
        return RT_OK;
    return status;
}

// The place of the outcome that is next: the earliest; before it one whose time is wrong, as so
// many say that came after it.
static uint32_t next_head(const rt_joined *joined)
{
    for (uint32_t i = 1; i < joined->head_count && !joined->heads[0].is_taken; i++)
        if (joined->heads[i].overtaken >= OVERTAKEN)
            return i;
    return 0;
}

// Whether its time is wrong, or of before the clock went back: it is taken as it is, and says
// nothing of what time it is.
static bool is_strange(const rt_joined *joined, const head *one)
{
    const int64_t limit_ms = rt_join_time_limit(&joined->time);
    return one->is_word &&
           (one->overtaken >= OVERTAKEN ||
            (joined->was_set_back && limit_ms != RT_JOIN_TIME_UNKNOWN &&
             one->word.time_ms > limit_ms + joined->time.window_ms + RT_JOIN_TIME_FAR_MS));
}

// Whether it is before an event that is aside; without one outcomes need not wait.
static bool is_next(const rt_joined *joined, bool has_event)
{
    if (joined->head_count == 0)
        return false;
    return !has_event || joined->heads[0].is_taken || next_head(joined) > 0 ||
           (joined->events_have_words && !joined->has_words) ||
           is_strange(joined, &joined->heads[0]) ||
           joined->heads[0].word.time_ms < joined->offer_ms;
}

// That of an outcome for the join: its own, unless it tells nothing of when the event was. Then it
// is one of now.
static int64_t outcome_time(const rt_joined *joined, const head *one)
{
    int64_t clock_ms = one->word.time_ms;
    const bool is_own = one->is_word
                            ? !is_strange(joined, one) &&
                                  !rt_join_time_is_far(&joined->time, RT_FLOW_OUTCOMES, &one->word)
                            : !joined->events_have_words;
    if (is_own || rt_join_clock(joined->join, &clock_ms))
        return clock_ms;
    clock_ms = rt_join_time_level(&joined->time);
    if (clock_ms == RT_JOIN_TIME_UNKNOWN)
        return one->word.time_ms;
    return clock_ms;
}

static rt_status take_head(rt_joined *joined, rt_error *error)
{
    bool is_taken;
    const uint32_t at = next_head(joined);
    head one = joined->heads[at];
    memmove(joined->heads + 1, joined->heads, at * sizeof one);
    if (one.is_word && !one.is_taken && is_strange(joined, &one))
        joined->time.doubted++;
    else if (one.is_word && !one.is_taken)
        take_word(joined, RT_FLOW_OUTCOMES, &one.word);
    one.is_taken = true;
    joined->heads[0] = one;
    rt_join_limit(joined->join, moves_to(joined, &one.word, one.is_word),
                  rt_join_time_now(&joined->time));
    rt_status status = rt_join_outcome(joined->join, one.word.id, outcome_time(joined, &one),
                                       one.labels, &is_taken);
    if (status)
        return rt_fail(error, status, "out of memory for an outcome that waits");
    if (is_taken)
        memmove(joined->heads, joined->heads + 1, --joined->head_count * sizeof one);
    note_ahead(joined);
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
        rt_warn("stream.join: %s did not answer for %u s: the run goes on without them, and their "
                "later lines may come too late",
                what, HOLD_S);
    return false;
}

static bool lacks_outcomes(const rt_joined *joined)
{
    return joined->head_count == 0 && !joined->ended && rt_stream_is_behind(joined->outcomes);
}

// The next outcome, or RT_AGAIN. For an event the outcomes before it are waited for.
static rt_status look_for_outcome(rt_joined *joined, const rt_joined_events *events, bool has_event,
                                  rt_error *error)
{
    const uint64_t deadline_ns = events->deadline_ns;
    uint64_t soon = rt_now_ns() + LOOK_NS;
    rt_status status = RT_OK;
    if (events->ended && !has_event)
        return read_heads(joined, deadline_ns, error);
    if (has_event || events->idle)
        status = read_heads(joined, NOT_WAITING, error);
    if (!has_event || (status && status != RT_AGAIN))
        return status;
    if (!waits_for(joined, lacks_outcomes(joined), "outcomes"))
        return status;
    if (deadline_ns)
        soon = rt_min_u64(soon, deadline_ns);
    status = read_heads(joined, soon, error);
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
        rt_join_advance(joined->join, rt_joined_arrival_ms(0) + joined->ahead_ms);
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
    const bool has_event = rt_join_has_offer(joined->join, &time_ms); // offer_ms counts
    const bool only_outcomes = events->ended && !has_event;
    joined->is_held = false;
    rt_status status = look_for_outcome(joined, events, has_event, error);
    if (status && (status != RT_AGAIN || only_outcomes || joined->is_held))
        return status;
    if (is_next(joined, has_event)) {
        const bool may_be = only_outcomes || has_event ||
                            (events->idle && !waits_for(joined, events->behind, "events"));
        if (may_be)
            return take_head(joined, error);
        return RT_AGAIN;
    }
    if (has_event) {
        rt_join_limit(joined->join, joined->offer_ms, rt_join_time_now(&joined->time));
        status = rt_join_admit(joined->join);
        if (status)
            return rt_fail(error, status, "out of memory for an event that waits");
        note_ahead(joined);
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
    rt_join_counts counts = rt_join_statistics(joined->join);
    counts.doubted = joined->time.doubted;
    return counts;
}

rt_stream_stats rt_joined_outcomes(const rt_joined *joined)
{
    return rt_stream_statistics(joined->outcomes);
}

double rt_joined_pending(const rt_joined *joined)
{
    return rt_join_pending(joined->join);
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

// The outcome that was read first and is not taken, as builds have it that read no other.
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

// What only newer builds have, behind the position of outcomes: who is aside, all outcomes that were
// read and are not taken, and what senders said of the time (rt_join_time.h).
typedef struct {
    int64_t offer_ms;
    uint64_t head_number;
    uint32_t head_count, was_set_back;
} saved_reading;

typedef struct {
    uint64_t id, origin, number;
    int64_t time_ms, arrival_ms;
    uint32_t known, ones, is_word, is_taken;
    uint64_t overtaken;
} saved_head;

#define READING(XX, PART, NONE, T) \
    XX(T, offer_ms)                \
    XX(T, head_number)             \
    XX(T, head_count)              \
    XX(T, was_set_back)
RT_FIELDS(reading_fields, saved_reading, READING, "");
#define HEAD(XX, PART, NONE, T) \
    XX(T, id)                   \
    XX(T, origin)               \
    XX(T, number)               \
    XX(T, time_ms)              \
    XX(T, arrival_ms)           \
    XX(T, known)                \
    XX(T, ones)                 \
    XX(T, is_word)              \
    XX(T, is_taken)             \
    XX(T, overtaken)
RT_FIELDS(head_fields, saved_head, HEAD, "");

static void tell_newer(const rt_joined *joined, rt_bytes *bytes)
{
    const saved_reading reading = {joined->offer_ms, joined->head_number, joined->head_count,
                                   joined->was_set_back};
    rt_fields_put(bytes, &reading_fields, &reading, 1);
    rt_fields_begin(bytes, &head_fields);
    for (uint32_t i = 0; i < joined->head_count; i++) {
        const head *one = &joined->heads[i];
        const saved_head saved = {one->word.id,      one->word.origin,     one->number,
                                  one->word.time_ms, one->word.arrival_ms, one->labels.known,
                                  one->labels.ones,  one->is_word,         one->is_taken,
                                  one->overtaken};
        rt_fields_add(bytes, &head_fields, &saved);
    }
    rt_join_time_tell(&joined->time, bytes);
}

static void put_sized(rt_bytes *bytes, rt_bytes *part)
{
    rt_bytes_put_u64(bytes, part->size);
    rt_bytes_put(bytes, part->data, part->size);
    bytes->failed |= part->failed;
    rt_bytes_fini(part);
}

void rt_joined_tell(const rt_joined *joined, rt_bytes *bytes)
{
    rt_bytes outcomes = {0}, newer = {0};
    const head none = {0}, *first = joined->head_count ? &joined->heads[0] : &none;
    const uint32_t known = joined->label_count > 1 ? first->labels.known : 0; // of one, as ever
    const saved_outcome outcome = {joined->head_count > 0, known << 8 | first->labels.ones,
                                   first->word.id, first->word.time_ms};
    rt_join_tell(joined->join, bytes);
    rt_fields_put(bytes, &outcome_fields, &outcome, 1);
    rt_stream_tell(joined->outcomes, &outcomes);
    put_sized(bytes, &outcomes);
    tell_newer(joined, &newer);
    put_sized(bytes, &newer);
}

static void seek_first(rt_joined *joined, const saved_outcome *outcome)
{
    head one = {.word = {.id = outcome->id, .time_ms = outcome->time_ms},
                .labels = {1, outcome->labels & 0xff},
                .is_word = joined->has_words};
    if (joined->label_count > 1)
        one.labels.known = outcome->labels >> 8 & 0xff;
    joined->heads[0] = one;
    joined->head_count = outcome->has_head != 0;
    joined->head_number = 1;
}

static bool seek_newer(rt_joined *joined, rt_reader *bytes)
{
    saved_reading reading;
    saved_head saved[AHEAD];
    if (!rt_fields_get(bytes, &reading_fields, &reading, 1) || reading.head_count > AHEAD ||
        !rt_fields_get(bytes, &head_fields, saved, reading.head_count))
        return false;
    joined->offer_ms = reading.offer_ms;
    joined->head_number = reading.head_number;
    joined->head_count = reading.head_count;
    joined->was_set_back = reading.was_set_back != 0;
    for (uint32_t i = 0; i < joined->head_count; i++) {
        const saved_head *one = &saved[i];
        joined->heads[i] = (head){.word = {one->time_ms, one->arrival_ms, one->origin, one->id},
                                  .number = one->number,
                                  .labels = {(uint8_t)one->known, (uint8_t)one->ones},
                                  .is_word = one->is_word != 0,
                                  .is_taken = one->is_taken != 0,
                                  .overtaken = (uint32_t)one->overtaken};
    }
    return rt_join_time_seek(&joined->time, bytes);
}

// Builds before had nothing behind the position of outcomes.
static bool find_newer(rt_joined *joined, rt_reader *bytes)
{
    if (bytes->left == 0)
        return true;
    const uint64_t size = rt_reader_u64(bytes);
    const void *from = rt_reader_take(bytes, size, 1);
    rt_reader newer = {from, size, false};
    return from && bytes->left == 0 && seek_newer(joined, &newer);
}

rt_status rt_joined_seek(rt_joined *joined, rt_reader *bytes, rt_error *error)
{
    rt_bytes outcomes = {0};
    saved_outcome outcome = {0};
    int64_t clock_ms;
    bool is_good =
        rt_join_seek(joined->join, bytes) && rt_fields_get(bytes, &outcome_fields, &outcome, 1);
    seek_first(joined, &outcome);
    const uint64_t size = rt_reader_u64(bytes);
    const void *position = rt_reader_take(bytes, size, 1);
    is_good = is_good && position && find_newer(joined, bytes);
    if (!is_good)
        return rt_fail(error, RT_DATA, "the position in the outcomes (stream.join) is damaged");
    rt_bytes_put(&outcomes, position, size);
    if (joined->is_measured && rt_join_clock(joined->join, &clock_ms) && clock_ms > 0)
        rt_clock_at_least((uint64_t)clock_ms * 1000000);
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
