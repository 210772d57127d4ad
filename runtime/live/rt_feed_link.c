#include "runtime/live/rt_feed_link.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "runtime/config/rt_config.h"
#include "runtime/wire/rt_control.h"
#include "runtime/files/rt_own.h"

#define SERVER rt_peer(RT_ROLE_COORDINATOR, 0)
#define MESSAGE_BYTES ((size_t)256 << 10) // of lines, about
#define SILENT_NS UINT64_C(5000000000)    // without an answer: another connection
#define AGAIN_NS UINT64_C(200000000)      // the coordinator's journal was full
#define RECONNECT_NS UINT64_C(1000000000)

static const rt_message_type types[RT_FLOWS] = {RT_MESSAGE_EVENTS, RT_MESSAGE_OUTCOMES};
static const char *const names[RT_FLOWS] = {"events", "outcomes"};

// ---- the feeder's name -----------------------------------------------------------------------

static rt_status write_name(const char *path, uint64_t name, rt_error *error)
{
    char text[32], fresh[RT_PATH_MAX + 32];
    snprintf(fresh, sizeof fresh, "%s.new", path);
    const int length = snprintf(text, sizeof text, "%016" PRIx64 "\n", name);
    int file = -1;
    const rt_status status = rt_own_create(fresh, 0644, &file, error);
    if (status)
        return status;
    const bool is_written = write(file, text, (size_t)length) == length && fsync(file) == 0;
    close(file);
    if (is_written && rename(fresh, path) == 0)
        return RT_OK;
    return rt_fail(error, RT_IO, "%s: cannot be written: %s", path, strerror(errno));
}

// Random, once: another spool is another feeder.
static rt_status take_name(rt_feed_link *f, const char *directory, rt_error *error)
{
    char path[RT_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/feeder", directory);
    FILE *file = fopen(path, "re");
    if (file) {
        const bool is_read = fscanf(file, "%" SCNx64, &f->feeder) == 1 && f->feeder;
        fclose(file);
        if (!is_read)
            return rt_fail(error, RT_DATA, "%s: no name of a feeder", path);
    } else {
        while (f->feeder == 0)
            if (getrandom(&f->feeder, sizeof f->feeder, 0) != sizeof f->feeder)
                f->feeder = 0;
        rt_status status = write_name(path, f->feeder, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// ---- the connection --------------------------------------------------------------------------

static void disconnect(rt_feed_link *f)
{
    if (f->endpoint)
        rt_transport_zmq.end(f->endpoint, 0);
    f->endpoint = NULL;
    f->is_answered = false;
    f->end_count = 0;
    if (*f->hub->addresses[1]) // the other one next
        f->address = f->hub->addresses[f->address == f->hub->addresses[0]];
}

// Damage of the spool took what is between what was sent and first.
static bool is_behind_gap(const rt_feed_link *f, uint64_t first)
{
    return first > f->sent + 1;
}

static rt_status send_events(rt_feed_link *f, uint64_t first, uint32_t count, const char *lines,
                             size_t size)
{
    uint64_t left = rt_journal_statistics(f->journal).first;
    if (is_behind_gap(f, first))
        left = f->kept ? first : first + (first - f->sent - 1);
    const rt_wire_events head = {f->feeder, left};
    rt_message message;
    rt_status status = rt_message_create(&message, types[f->flow], rt_visitor_peer(&f->visitor),
                                         first, count, sizeof head + size);
    if (status)
        return status;
    memcpy(rt_message_payload(&message), &head, sizeof head);
    if (size)
        memcpy(rt_message_payload(&message) + sizeof head, lines, size);
    status = rt_transport_send(&rt_transport_zmq, f->endpoint, SERVER, &message);
    rt_message_release(&message);
    return status;
}

static void connect_to(rt_feed_link *f)
{
    rt_error error = {0};
    uint64_t count;
    const uint64_t now = rt_now_ns();
    if (f->endpoint || now < f->pause_until_ns)
        return;
    f->pause_until_ns = now + RECONNECT_NS;
    const rt_keys *keys = f->hub->keys;
    rt_status status = RT_OK;
    const bool is_standby = f->address == f->hub->addresses[1];
    const rt_public_key *key = is_standby ? &keys->standby : &keys->coordinator;
    if (keys->is_set && *f->hub->addresses[1])
        status = rt_transport_zmq.trust(f->transport, SERVER, key->bytes, &error);
    if (!status)
        status = rt_transport_zmq.connect(f->transport, rt_visitor_peer(&f->visitor), SERVER,
                                          f->address, &f->endpoint, &error);
    if (status) {
        f->endpoint = NULL;
        if (rt_log_due(&f->limit, &count))
            rt_warn("feed.to: %s; %s stay in the spool", error.text, names[f->flow]);
        return;
    }
    f->heard_ns = rt_now_ns();
    f->pause_until_ns = 0;
    (void)send_events(f, 0, 0, NULL, 0); // what do you have?
}

// Goes on behind what the coordinator has.
static rt_status rewind_to(rt_feed_link *f, uint64_t kept, rt_error *error)
{
    uint64_t lost;
    rt_journal_counts counts = rt_journal_statistics(f->journal);
    if (kept + 1 > counts.next && rt_journal_begin_at(f->journal, kept + 1)) {
        rt_warn("feed: the spool's end is damaged: it goes on with number %" PRIu64
                ", behind what the coordinator has",
                kept + 1);
        counts = rt_journal_statistics(f->journal);
    }
    const uint64_t from = rt_max_u64(rt_min_u64(kept + 1, counts.next), counts.first);
    if (kept + 1 > counts.next)
        return rt_fail(error, RT_DATA,
                       "the coordinator has number %" PRIu64
                       " of this spool, which ends with %" PRIu64
                       ": it is an old copy; put the right one back, or empty the folder",
                       kept, counts.next - 1);
    const rt_status status = rt_journal_seek(f->journal, from, &lost, error);
    f->frame.count = 0;
    f->end_count = 0;
    f->sent = from - 1;
    f->kept = rt_max_u64(f->kept, kept);
    rt_journal_keep_from(f->journal, f->kept + 1);
    if (status == RT_NOT_FOUND)
        return RT_OK;
    return status;
}

static rt_status take_answer(rt_feed_link *f, const rt_wire_header *header, rt_error *error)
{
    f->heard_ns = rt_now_ns();
    if (!f->is_answered || header->count) {
        if (!f->is_answered) {
            rt_visitor_settle(&f->visitor);
            rt_info("feed: connected to %s, which has %" PRIu64 " of %" PRIu64 " %s", f->address,
                    header->iteration, rt_journal_statistics(f->journal).next - 1, names[f->flow]);
            f->connections++;
        }
        if (header->count)
            f->pause_until_ns = f->heard_ns + AGAIN_NS;
        f->is_answered = true;
        return rewind_to(f, header->iteration, error);
    }
    f->kept = rt_max_u64(f->kept, header->iteration);
    while (f->end_count > 0 && f->ends[f->end_first % RT_FEED_UNANSWERED_MAX] <= f->kept) {
        f->end_first++;
        f->end_count--;
    }
    rt_journal_keep_from(f->journal, f->kept + 1);
    return RT_OK;
}

// Another feeder has our number: the next one, at once, at the same place.
static void change_number(rt_feed_link *f)
{
    rt_transport_zmq.end(f->endpoint, 0);
    f->endpoint = NULL;
    if (rt_visitor_next(&f->visitor))
        connect_to(f);
    else
        f->pause_until_ns = rt_now_ns() + RECONNECT_NS; // all are taken
}

static rt_status take_message(rt_feed_link *f, const rt_message *message, rt_error *error)
{
    if (rt_message_header(message)->type == RT_MESSAGE_KEPT)
        return take_answer(f, rt_message_header(message), error);
    if (rt_control_is_taken(message))
        change_number(f);
    else
        disconnect(f);
    return RT_OK;
}

// What is no message is passed over.
static rt_status receive_all(rt_feed_link *f, rt_error *error)
{
    while (f->endpoint) {
        uint32_t peer;
        rt_message message = {0};
        rt_error failure = {0};
        rt_status status =
            rt_transport_receive(&rt_transport_zmq, f->endpoint, &peer, &message, &failure);
        if (status == RT_NOT_FOUND)
            disconnect(f);
        const bool is_message = !status;
        if (is_message)
            status = take_message(f, &message, error);
        rt_message_release(&message);
        if (status == RT_AGAIN || status == RT_NOT_FOUND)
            return RT_OK;
        if (status && (is_message || status != RT_WIRE))
            return status;
    }
    return RT_OK;
}

// ---- sending ---------------------------------------------------------------------------------

// The first lines of a frame, about as many as fit into a message.
static size_t part_of(const rt_journal_frame *frame, uint32_t *count_p)
{
    size_t size = 0;
    uint32_t count = 0;
    while (count < frame->count && (count == 0 || size < MESSAGE_BYTES)) {
        const char *end = memchr(frame->lines + size, '\n', frame->size - size);
        size = end ? (size_t)(end + 1 - frame->lines) : frame->size;
        count++;
    }
    *count_p = count;
    return size;
}

static rt_status send_some(rt_feed_link *f, rt_error *error)
{
    while (f->endpoint && f->is_answered && f->end_count < RT_FEED_UNANSWERED_MAX &&
           rt_now_ns() >= f->pause_until_ns) {
        uint32_t count;
        rt_status status = RT_OK;
        if (f->frame.count == 0)
            status = rt_journal_read(f->journal, &f->frame, error);
        if (status == RT_AGAIN) {
            f->frame.count = 0;
            return RT_OK;
        }
        if (status)
            return status;
        if (is_behind_gap(f, f->frame.first) && f->end_count > 0)
            return RT_OK; // the coordinator is not to wait for what is lost, but for all before it
        const size_t size = part_of(&f->frame, &count);
        status = send_events(f, f->frame.first, count, f->frame.lines, size);
        if (status == RT_AGAIN)
            return RT_OK;
        if (status == RT_NOT_FOUND) {
            disconnect(f);
            return RT_OK;
        }
        if (status)
            return rt_fail(error, status, "feed: cannot send: %s", rt_status_text(status));
        if (f->end_count == 0)
            f->heard_ns = rt_now_ns(); // from now on an answer is waited for
        f->sent = f->frame.first + count - 1;
        f->ends[(f->end_first + f->end_count++) % RT_FEED_UNANSWERED_MAX] = f->sent;
        f->frame.lines += size;
        f->frame.size -= size;
        f->frame.first += count;
        f->frame.count -= count;
    }
    return RT_OK;
}

static void look_at_silence(rt_feed_link *f)
{
    const bool waits = f->endpoint && (!f->is_answered || f->end_count > 0);
    if (!waits || rt_now_ns() - f->heard_ns < SILENT_NS)
        return;
    rt_info("feed: no answer from %s: connecting again", f->address);
    disconnect(f);
}

// ---- all of it -------------------------------------------------------------------------------

rt_status rt_feed_link_init(rt_feed_link *f, rt_flow flow, rt_journal *journal,
                            const char *directory, rt_transport *transport, const rt_feed_hub *hub,
                            rt_error *error)
{
    *f = (rt_feed_link){.flow = flow,
                        .journal = journal,
                        .transport = transport,
                        .hub = hub,
                        .address = hub->addresses[0]};
    const rt_status status = rt_visitor_init(&f->visitor, error);
    if (status)
        return status;
    return take_name(f, directory, error);
}

void rt_feed_link_fini(rt_feed_link *f)
{
    disconnect(f);
}

rt_status rt_feed_link_turn(rt_feed_link *f, rt_error *error)
{
    connect_to(f);
    rt_status status = receive_all(f, error);
    if (!status)
        status = send_some(f, error);
    look_at_silence(f);
    return status;
}
