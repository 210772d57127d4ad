#include "runtime/live/rt_live.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/live/rt_live_clock.h"
#include "runtime/rt_log.h"
#include "runtime/stream/rt_position.h"
#include "runtime/stream/rt_source.h"
#include "runtime/files/rt_own.h"

static const rt_intake_ops *const intakes[] = {
    &rt_intake_http,
    &rt_intake_tcp,
    &rt_intake_feed,
#ifdef RT_HAS_MQTT
    &rt_intake_mqtt,
#endif
};

struct rt_live {
    const rt_config *config;
    rt_mirror *mirror; // NULL: journals are here alone
    rt_journals journals;
    bool is_old; // a journal had lines when it was opened
    struct {
        const rt_intake_ops *ops; // NULL: it is not sent, or comes to the intake of events
        void *intake;
    } intakes[RT_FLOWS];
    atomic_uint_least64_t read[RT_FLOWS];
};

static bool is_sent(const rt_config *config, rt_flow flow)
{
    if (flow == RT_FLOW_EVENTS)
        return rt_config_source_is_live(&config->stream);
    return rt_config_join_is_live(&config->stream);
}

bool rt_live_is_wanted(const rt_config *config)
{
    return is_sent(config, RT_FLOW_EVENTS) || is_sent(config, RT_FLOW_OUTCOMES);
}

rt_journal *rt_live_journal(const rt_live *live, rt_flow flow)
{
    return live->journals.of[flow];
}

rt_live_counts rt_live_statistics(rt_live *live, rt_flow flow)
{
    rt_live_counts counts = {.journal = rt_journal_statistics(live->journals.of[flow]),
                             .read = atomic_load(&live->read[flow])};
    const rt_flow at = live->intakes[flow].ops ? flow : RT_FLOW_EVENTS;
    live->intakes[at].ops->counts(live->intakes[at].intake, &counts.intake);
    return counts;
}

static rt_status lacks_place(const rt_stream_config *stream, rt_flow flow, rt_error *error)
{
    const char *key = "stream.source";
    rt_source_kind kind = stream->source;
    if (flow == RT_FLOW_OUTCOMES) {
        key = "stream.join.source";
        kind = stream->join.source;
    }
    return rt_fail(error, RT_CONFIG,
                   "journal.directory: %s \"%s\" keeps what comes in a journal: expected a folder, "
                   "or --out",
                   key, rt_config_choice_name(key, (int)kind));
}

static rt_status open_journal(rt_live *live, rt_flow flow, const char *directory, rt_error *error)
{
    char path[RT_PATH_MAX + 16];
    const rt_config *config = live->config;
    if (!*directory)
        return lacks_place(&config->stream, flow, error);
    if (flow == RT_FLOW_OUTCOMES && mkdir(directory, 0750) != 0 && errno != EEXIST)
        return rt_fail(error, RT_IO, "%s: cannot be made: %s", directory, strerror(errno));
    rt_journal_place(directory, flow, path, sizeof path);
    rt_journal_copy copy;
    if (live->mirror)
        copy = rt_mirror_copy(live->mirror, flow);
    rt_status status = RT_OK;
    if (flow == RT_FLOW_OUTCOMES) // a name that nobody gave
        status = rt_own_check_folder(path, error);
    if (!status)
        status = rt_journal_open(path, config->journal_bytes_max, live->mirror ? &copy : NULL,
                                 &live->journals.of[flow], error);
    if (status)
        return status;
    rt_journal_keep_for(live->journals.of[flow], config->journal_keep_s);
    if (live->mirror)
        rt_mirror_attach(live->mirror, flow, live->journals.of[flow]);
    live->is_old |= rt_journal_statistics(live->journals.of[flow]).next > 1;
    return RT_OK;
}

static const rt_intake_ops *find_intake(rt_source_kind kind)
{
    for (size_t i = 0; i < RT_COUNT_OF(intakes); i++)
        if (intakes[i]->kind == kind)
            return intakes[i];
    return NULL;
}

// One for events and one for outcomes, or one for both.
static rt_status open_intakes(rt_live *live, rt_error *error)
{
    const rt_stream_config *stream = &live->config->stream;
    const rt_source_kind kinds[RT_FLOWS] = {stream->source, stream->join.source};
    bool is_open[RT_FLOWS] = {false};
    for (rt_flow flow = 0; flow < RT_FLOWS; flow++) {
        if (!live->journals.of[flow] || is_open[flow])
            continue;
        const rt_intake_ops *ops = find_intake(kinds[flow]);
        rt_journals journals = {{NULL}};
        if (!ops)
            return rt_fail(error, RT_UNSUPPORTED,
                           "stream.source: this build has no \"%s\" (docs/DEPENDENCIES.md)",
                           rt_config_choice_name("stream.source", (int)kinds[flow]));
        for (rt_flow other = flow; other < RT_FLOWS; other++) {
            if (other != flow && (!ops->takes_both || kinds[other] != kinds[flow]))
                continue;
            journals.of[other] = live->journals.of[other];
            is_open[other] = true;
        }
        rt_status status = ops->open(live->config, &journals, &live->intakes[flow].intake, error);
        if (status)
            return status;
        live->intakes[flow].ops = ops;
    }
    return RT_OK;
}

// Stamps of both flows are of one clock, which goes on where the last one is.
static void go_on_with_time(rt_live *live, const char *place)
{
    uint64_t last_ns = 0;
    for (rt_flow flow = 0; flow < RT_FLOWS; flow++)
        if (live->journals.of[flow])
            last_ns = rt_max_u64(last_ns, rt_journal_last_ns(live->journals.of[flow]));
    rt_live_clock_resume(place, last_ns);
}

static rt_status open_all(rt_live *live, const char *place, rt_error *error)
{
    for (rt_flow flow = 0; flow < RT_FLOWS; flow++) {
        if (!is_sent(live->config, flow))
            continue;
        rt_status status = open_journal(live, flow, place, error);
        if (status)
            return status;
    }
    go_on_with_time(live, place);
    return open_intakes(live, error);
}

rt_status rt_live_open(const rt_config *config, const char *directory, rt_live **live_p,
                       rt_error *error)
{
    return rt_live_open_with(config, directory, NULL, live_p, error);
}

rt_status rt_live_open_with(const rt_config *config, const char *directory, rt_mirror *mirror,
                            rt_live **live_p, rt_error *error)
{
    const char *place = *config->journal_directory ? config->journal_directory : directory;
    rt_live *live = rt_alloc(1, sizeof *live);
    if (!live)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a source");
    live->config = config;
    live->mirror = mirror;
    rt_status status = open_all(live, place, error);
    if (status) {
        rt_live_close(live);
        return status;
    }
    *live_p = live;
    return RT_OK;
}

void rt_live_close(rt_live *live)
{
    if (!live)
        return;
    rt_mirror_stop(live->mirror); // or commits would wait for who may be away
    for (rt_flow flow = 0; flow < RT_FLOWS; flow++)
        if (live->intakes[flow].ops)
            live->intakes[flow].ops->close(live->intakes[flow].intake);
    for (rt_flow flow = 0; flow < RT_FLOWS; flow++)
        rt_journal_close(live->journals.of[flow]);
    rt_free(live);
}

// ---- the source ------------------------------------------------------------------------------

typedef struct {
    rt_journal *journal;
    atomic_uint_least64_t *read; // the live's
    rt_source_watch watch;
    rt_journal_frame frame; // what is left of it
    uint64_t next;          // event
    size_t last_size;       // of the line given out last; 0: none that could come again
    uint64_t bytes_read;
    bool was_away;
    char name[RT_NAME_MAX];
} source;

static bool serves(const rt_stream_config *config)
{
    return rt_config_source_is_live(config);
}

static rt_status for_runs_only(const rt_stream_config *config, const char *kind, rt_error *error)
{
    if (config->holds_outcomes)
        return rt_fail(error, RT_CONFIG,
                       "stream.join.source: \"%s\" is for runs (`lanyard up`) and `lanyard feed`; "
                       "use --set stream.join.source=file",
                       kind);
    return rt_fail(error, RT_CONFIG,
                   "stream.source: \"%s\" is for runs (`lanyard up`) and `lanyard feed`; use --set "
                   "stream.source=file --set stream.files=...",
                   kind);
}

static rt_status open_source(const rt_stream_config *config, uint64_t seed, void **source_p,
                             rt_error *error)
{
    const char *kind = rt_config_choice_name("stream.source", (int)config->source);
    (void)seed;
    if (!config->live)
        return for_runs_only(config, kind, error);
    const rt_flow flow = config->holds_outcomes ? RT_FLOW_OUTCOMES : RT_FLOW_EVENTS;
    source *s = rt_alloc(1, sizeof *s);
    if (!s)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for an input");
    s->journal = config->live->journals.of[flow];
    s->read = &config->live->read[flow];
    s->watch = (rt_source_watch){-1, -1};
    s->next = rt_journal_statistics(s->journal).first;
    s->was_away = config->live->is_old;
    snprintf(s->name, sizeof s->name, "%s%s", kind, flow == RT_FLOW_OUTCOMES ? " (outcomes)" : "");
    atomic_store(s->read, s->next);
    *source_p = s;
    return RT_OK;
}

static void close_source(void *context)
{
    rt_free(context);
}

static void watch_source(void *context, const rt_source_watch *watch)
{
    ((source *)context)->watch = *watch;
}

static rt_status wait_for_frame(const source *s, uint64_t deadline_ns)
{
    struct pollfd wanted[] = {{rt_journal_fd(s->journal), POLLIN, 0}, {s->watch.stop, POLLIN, 0}};
    const int count = poll(wanted, 2, rt_wait_ms(deadline_ns));
    if (count > 0 && wanted[1].revents)
        return RT_STOPPED;
    if (count == 0)
        return RT_AGAIN;
    return RT_OK;
}

static rt_status next_line(void *context, uint64_t deadline_ns, uint32_t line_feeds, rt_line *line,
                           rt_error *error)
{
    source *s = context;
    if (line_feeds > 0) // an event is one line
        return RT_END;
    while (s->frame.count == 0) {
        rt_status status = rt_journal_read(s->journal, &s->frame, error);
        if (status == RT_AGAIN) {
            s->frame.count = 0;
            status = wait_for_frame(s, deadline_ns);
        } else if (!status) {
            s->bytes_read += s->frame.size;
            s->next = s->frame.first;
        }
        if (status)
            return status;
    }
    const char *end = memchr(s->frame.lines, '\n', s->frame.size);
    rt_assert(end != NULL);
    s->last_size = (size_t)(end + 1 - s->frame.lines);
    uint32_t length = (uint32_t)(end - s->frame.lines);
    if (length > 0 && s->frame.lines[length - 1] == '\r')
        length--;
    *line = (rt_line){.text = s->frame.lines,
                      .length = length,
                      .number = s->next + 1, // an event is never the header of a file
                      .arrival_ns = s->frame.arrival_ns,
                      .origin = s->frame.origin,
                      .clock = RT_CLOCK_KEPT};
    s->frame.lines = end + 1;
    s->frame.size -= s->last_size;
    s->frame.count--;
    s->next++;
    atomic_store(s->read, s->next);
    return RT_OK;
}

static bool was_away(const void *context)
{
    return ((const source *)context)->was_away;
}

static void take_back(void *context)
{
    source *s = context;
    rt_assert(s->last_size > 0);
    s->frame.lines -= s->last_size;
    s->frame.size += s->last_size;
    s->frame.count++;
    s->next--;
    s->last_size = 0;
}

static void tell(const void *context, rt_bytes *bytes)
{
    rt_bytes_put_u64(bytes, ((const source *)context)->next);
}

static rt_status seek(void *context, rt_reader *bytes, const rt_source_place *place,
                      rt_error *error)
{
    source *s = context;
    uint64_t lost = 0;
    uint64_t next = 0;
    (void)place;
    if (bytes)
        next = rt_reader_u64(bytes);
    if (next == 0 || bytes->failed || bytes->left)
        return rt_fail(error, RT_DATA, "the position in the journal is damaged");
    const rt_journal_counts counts = rt_journal_statistics(s->journal);
    if (counts.next < next && rt_journal_begin_at(s->journal, next))
        rt_warn("%s: it goes on with number %" PRIu64 "; what was acknowledged since the "
                "checkpoint is lost, if anything was",
                counts.next == 1 ? "the journal is empty" : "the journal's end is damaged", next);
    rt_status status = rt_journal_seek(s->journal, next, &lost, error);
    if (status == RT_NOT_FOUND)
        rt_warn("the journal begins %" PRIu64 " events behind the checkpoint: what a run trained "
                "of them that went on after it is not in this model, and they are lost to it",
                lost);
    else if (status)
        return status;
    s->next = next + lost;
    atomic_store(s->read, s->next);
    rt_info("%s: going on with event %" PRIu64 " of the journal, %" PRIu64 " are there", s->name,
            s->next, counts.next - rt_min_u64(counts.next, s->next));
    return RT_OK;
}

static const char *input_name(const void *context, uint32_t input)
{
    (void)input;
    return ((const source *)context)->name;
}

static void counts(const void *context, rt_source_counts *counts)
{
    const source *s = context;
    *counts = (rt_source_counts){.bytes_read = s->bytes_read,
                                 .lost = rt_journal_statistics(s->journal).lost};
}

const rt_source_ops rt_source_live = {.name = RT_POSITION_JOURNAL,
                                      .serves = serves,
                                      .open = open_source,
                                      .close = close_source,
                                      .watch = watch_source,
                                      .line = next_line,
                                      .back = take_back,
                                      .was_away = was_away,
                                      .tell = tell,
                                      .seek = seek,
                                      .input_name = input_name,
                                      .counts = counts};
