#define _GNU_SOURCE // memmem
#include "tests/support/played_rules.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/played_parts.h"
#include "tests/support/test.h"

#define BROKEN_BYTES_MAX 2000u

void played_break(played *p, const char *format, ...)
{
    char line[400];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (p->broken.size > BROKEN_BYTES_MAX)
        return;
    strcat(line, "\n");
    rt_bytes_put(&p->broken, line, rt_min_u64((uint64_t)length + 1, sizeof line - 1));
}

static bool is_worker(uint32_t peer)
{
    return rt_peer_role(peer) == RT_ROLE_WORKER;
}

// A worker that the coordinator has to reckon with: welcome, and not lost.
static bool counts(const played_peer *one)
{
    return one->told.is_welcome && !one->told.has_left && !one->is_gone && !one->is_mute;
}

// What is true of all of them; the first of whom it is not.
static const played_peer *any_worker(const played *p, bool (*lacks)(const played_told *told),
                                     uint32_t *rank_p)
{
    for (uint32_t i = 0; i < RT_WORKERS_MAX; i++) {
        *rank_p = i;
        if (counts(&p->peers[i]) && lacks(&p->peers[i].told))
            return &p->peers[i];
    }
    return NULL;
}

static bool has_slices(const played_told *told)
{
    return told->out > 0;
}

static bool is_not_empty(const played_told *told)
{
    return told->out > 0 || (told->sequence > 0 && !told->is_marked);
}

static bool has_not_finished(const played_told *told)
{
    return !told->has_finished;
}

static void must_not(played *p, const char *what, bool (*lacks)(const played_told *told),
                     const char *why)
{
    uint32_t rank;
    if (any_worker(p, lacks, &rank))
        played_break(p, "%s goes out while worker %" PRIu32 " %s", what, rank, why);
}

// ---- what is told ------------------------------------------------------------------------------

static void check_place(played *p, const char *name, played_told *told, uint32_t type,
                        const char *what)
{
    const bool is_word =
        type == RT_MESSAGE_STOP || type == RT_MESSAGE_ALLOW || type == RT_MESSAGE_HEARTBEAT;
    if (told->stops && told->stops >= told->hellos && type != RT_MESSAGE_HEARTBEAT)
        played_break(p, "%s is told %s after STOP", name, what);
    if (type == RT_MESSAGE_WELCOME && told->is_welcome)
        played_break(p, "%s is welcome twice", name);
    if (type != RT_MESSAGE_WELCOME && !is_word && !told->is_welcome)
        played_break(p, "%s is told %s before WELCOME", name, what);
    told->is_welcome |= type == RT_MESSAGE_WELCOME;
    told->stops += type == RT_MESSAGE_STOP;
}

static void check_cut(played *p, played_told *told, const rt_message *message)
{
    rt_wire_cut order;
    const uint32_t iteration = (uint32_t)rt_message_header(message)->iteration;
    must_not(p, "CUT", is_not_empty, "has work to do");
    if (iteration <= told->cut)
        played_break(p, "a cut of iteration %" PRIu32 " follows that of %" PRIu32, iteration,
                     told->cut);
    told->cut = iteration;
    if (!rt_control_has(message, sizeof order))
        return;
    memcpy(&order, rt_message_payload(message), sizeof order);
    if (order.base >= iteration)
        played_break(p, "the cut of iteration %" PRIu32 " builds on %" PRIu32, iteration,
                     order.base);
    if (order.base && order.keep_from > order.base)
        played_break(p, "the cut of iteration %" PRIu32 " builds on %" PRIu32 ", which goes",
                     iteration, order.base);
    if (order.keep_from > p->cut_complete)
        played_break(p,
                     "checkpoints before %" PRIu32 " go, and %" PRIu32 " is the last that stands",
                     order.keep_from, p->cut_complete);
}

// What people read: answers to a visitor, and why a member is stopped, if the run is not complete.
static void hear(played *p, const char *who, const rt_message *message)
{
    char text[RT_FOLDER_MAX] = "", line[RT_FOLDER_MAX + 64];
    const rt_wire_header *header = rt_message_header(message);
    if (rt_control_text(message, text, sizeof text) ||
        (header->type == RT_MESSAGE_STOP && header->iteration == RT_REASON_COMPLETE))
        return;
    for (char *at = text; (at = strchr(at, '\n'));)
        *at = ';';
    const int length = snprintf(line, sizeof line, "%s: %s\n", who, text);
    if (p->heard.size && memmem(p->heard.data, p->heard.size, line, (size_t)length))
        return;
    rt_bytes_put(&p->heard, line, (size_t)length);
}

void played_rules_told(played *p, uint32_t peer, const rt_message *message)
{
    char name[32];
    const rt_wire_header *header = rt_message_header(message);
    played_told *told = &played_find(p, peer)->told;
    if (header->type == RT_MESSAGE_CONTROLLED || header->type == RT_MESSAGE_STOP)
        hear(p, header->type == RT_MESSAGE_STOP ? "stop" : "answer", message);
    if (rt_peer_role(peer) == RT_ROLE_VISITOR)
        return;
    check_place(p, rt_peer_name(peer, name), told, header->type,
                rt_message_type_name(header->type));
    if (header->type == RT_MESSAGE_SLICE) {
        if (header->iteration <= told->sequence)
            played_break(p, "worker %" PRIu32 " gets slice %" PRIu64 " after %" PRIu64,
                         rt_peer_rank(peer), header->iteration, told->sequence);
        told->gap = (uint32_t)(header->iteration - told->sequence - 1);
        told->sequence = header->iteration;
        told->is_marked = false;
    }
    if (header->type == RT_MESSAGE_CUT)
        check_cut(p, told, message);
    if (header->type == RT_MESSAGE_FINISH)
        must_not(p, "FINISH", has_slices, "has slices that it has not reported");
    if (header->type == RT_MESSAGE_FINISH && told->is_asked)
        played_break(p, "worker %" PRIu32 " is asked to finish twice", rt_peer_rank(peer));
    told->is_asked |= header->type == RT_MESSAGE_FINISH;
    if (header->type == RT_MESSAGE_SAVE && is_worker(peer) && header->iteration == 0)
        must_not(p, "SAVE", has_not_finished, "has not finished");
}

// ---- slices ------------------------------------------------------------------------------------

static void check_same(played *p, uint64_t sequence, const rt_wire_slice *slice)
{
    const uint32_t before = p->slice_count;
    assert_int_equal(
        rt_grow(&p->slices, &p->slice_capacity, (uint32_t)sequence + 1, sizeof *p->slices), RT_OK);
    if (sequence >= before) {
        memset(p->slices + before, 0, (sequence + 1 - before) * sizeof *p->slices);
        p->slice_count = (uint32_t)sequence + 1;
    }
    played_slice *one = &p->slices[sequence];
    if (!one->is_known)
        *one = (played_slice){true, slice->iteration, slice->fingerprint, slice->workers, 0};
    if (one->iteration != slice->iteration || one->fingerprint != slice->fingerprint ||
        one->workers != slice->workers)
        played_break(p, "slice %" PRIu64 " is not of one plan for all workers", sequence);
    one->samples += slice->sample_count;
}

void played_rules_slice(played *p, uint32_t rank, uint64_t sequence, const rt_wire_slice *slice)
{
    played_told *told = &p->peers[rank].told;
    check_same(p, sequence, slice);
    if (slice->left_out != told->gap)
        played_break(
            p, "worker %" PRIu32 " is told that %" PRIu32 " slices were left out, of %" PRIu32,
            rank, slice->left_out, told->gap);
    if (slice->iteration && slice->iteration <= told->trained)
        played_break(p, "worker %" PRIu32 " trains iteration %" PRIu32 " after %" PRIu32, rank,
                     slice->iteration, told->trained);
    if (slice->iteration) {
        told->trained = slice->iteration;
        told->out++;
    }
    if (told->out > p->welcome.run_ahead)
        played_break(p, "worker %" PRIu32 " has %" PRIu32 " slices to train, more than %" PRIu32,
                     rank, told->out, p->welcome.run_ahead);
}

// ---- what is said ------------------------------------------------------------------------------

static void take_report(played *p, uint32_t rank, const rt_message *message)
{
    rt_wire_report report;
    played_told *told = &p->peers[rank].told;
    if (told->out == 0 || message->size < sizeof(rt_wire_header) + sizeof report)
        return;
    memcpy(&report, rt_message_payload(message), sizeof report);
    told->out--;
    rt_counts_add(&p->done[rank], &report.done);
    p->samples += report.sample_count;
}

// Once all shards have written theirs; a copy of it may still be on its way.
static void take_written(played *p, const rt_message *message)
{
    rt_wire_written written;
    const uint32_t iteration = (uint32_t)rt_message_header(message)->iteration;
    if (message->size < sizeof(rt_wire_header) + sizeof written)
        return;
    memcpy(&written, rt_message_payload(message), sizeof written);
    p->written_count = iteration == p->written_of ? p->written_count : 0;
    p->written_of = iteration;
    p->written_count += written.status == RT_OK;
    if (p->written_count == (uint32_t)__builtin_popcount(p->welcome.shards_in))
        p->cut_complete = iteration;
}

void played_rules_took(played *p, uint32_t peer, const rt_message *message)
{
    const uint32_t type = rt_message_header(message)->type;
    played_told *told = &played_find(p, peer)->told;
    told->has_left |= type == RT_MESSAGE_FAILED;
    told->hellos += type == RT_MESSAGE_HELLO;
    if (type == RT_MESSAGE_WRITTEN)
        take_written(p, message);
    if (!is_worker(peer))
        return;
    if (type == RT_MESSAGE_REPORT)
        take_report(p, rt_peer_rank(peer), message);
    told->is_marked |= type == RT_MESSAGE_MARK;
    if (type == RT_MESSAGE_FINISHED) {
        rt_wire_report report;
        if (!told->has_finished && rt_control_has(message, sizeof report)) {
            memcpy(&report, rt_message_payload(message), sizeof report);
            rt_counts_add(&p->done[rt_peer_rank(peer)], &report.done);
        }
        told->has_finished = true;
    }
}

// ---- the end -----------------------------------------------------------------------------------

static const played_row *find(const played_rows *rows, uint64_t key)
{
    uint32_t low = 0, high = rows->count;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (rows->rows[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low < rows->count && rows->rows[low].key == key ? &rows->rows[low] : NULL;
}

static void check_rows(played *p)
{
    played_sort(&p->held);
    played_sort(&p->trained);
    played_sort(&p->wanted);
    // With deltas the PS counts on, whoever trained.
    const bool may_be_later = p->config->consistency.staleness > 0;
    for (uint32_t i = 0; i < p->trained.count; i++) {
        const played_row *row = &p->trained.rows[i], *held = find(&p->held, row->key);
        if (!held ||
            (may_be_later ? held->version < row->version : held->version != row->version)) {
            played_break(p,
                         "key %" PRIx64 " was trained last in iteration %" PRIu32
                         ", its shard has version %" PRIu32,
                         row->key, row->version, held ? held->version : 0);
            return;
        }
    }
    for (uint32_t i = 0; i < p->wanted.count; i++) {
        const played_row *row = &p->wanted.rows[i], *held = find(&p->held, row->key);
        if (!held || held->version < row->version) {
            played_break(p, "nobody pushes version %" PRIu32 " of key %" PRIx64, row->version,
                         row->key);
            return;
        }
    }
}

void played_rules_end(played *p, bool complete)
{
    for (uint32_t i = 0; i < RT_WORKERS_MAX + RT_SHARDS_MAX; i++) {
        const played_peer *one = &p->peers[i];
        const bool hears =
            one->is_there && !one->is_gone && !one->is_full && !one->is_broken && !one->is_mute;
        if (hears && one->told.hellos && !one->told.stops && !one->told.has_left)
            played_break(p, "%s %" PRIu32 " is not told of the end",
                         i < RT_WORKERS_MAX ? "worker" : "shard", i % RT_WORKERS_MAX);
    }
    if (complete)
        check_rows(p);
}
