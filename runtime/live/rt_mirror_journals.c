// The journals of a mirror: what the standby lacks goes there, and what it has too much ends.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/live/rt_mirror_parts.h"
#include "runtime/live/rt_segment.h"

static rt_journal_extent *find_there(rt_mirror_flow *f, uint64_t first)
{
    for (uint32_t i = 0; i < f->there_count; i++)
        if (f->there[i].first == first)
            return &f->there[i];
    return NULL;
}

static uint64_t bytes_there(rt_mirror_flow *f, uint64_t first)
{
    const rt_journal_extent *known = find_there(f, first);
    if (!known)
        return 0;
    return known->bytes;
}

// Its bytes at the standby are so many from now on; 0: it is gone.
static rt_status note_there(rt_mirror_flow *f, uint64_t first, uint64_t bytes, rt_error *error)
{
    rt_journal_extent *known = find_there(f, first);
    if (known && bytes == 0) {
        memmove(known, known + 1, (size_t)(f->there + f->there_count - known - 1) * sizeof *known);
        f->there_count--;
    } else if (known) {
        known->bytes = bytes;
    } else if (bytes > 0) {
        if (rt_grow(&f->there, &f->there_capacity, f->there_count + 1u, sizeof *f->there))
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
        f->there[f->there_count++] = (rt_journal_extent){first, bytes};
    }
    return RT_OK;
}

static rt_status cut(rt_mirror_flow *f, uint64_t first, uint64_t bytes, rt_error *error)
{
    rt_mirror *m = f->mirror;
    if (bytes_there(f, first) <= bytes)
        return RT_OK;
    const rt_wire_mirror what = {.kind = RT_MIRROR_CUT,
                                 .flow = f->flow,
                                 .id = m->id,
                                 .epoch = m->config.epoch,
                                 .number = first,
                                 .offset = bytes};
    rt_status status = rt_mirror_ask(m, &what, NULL, 0, NULL, error);
    if (status)
        return status;
    return note_there(f, first, bytes, error);
}

static rt_status send_bytes(rt_mirror_flow *f, uint64_t first, uint64_t offset, const void *bytes,
                            size_t size, bool syncs, rt_error *error)
{
    rt_mirror *m = f->mirror;
    rt_wire_mirror what = {.kind = RT_MIRROR_BLOCK,
                           .flow = f->flow,
                           .id = m->id,
                           .epoch = m->config.epoch,
                           .number = first,
                           .offset = offset};
    if (syncs)
        what.flags = RT_WIRE_MIRROR_SYNC;
    rt_status status = rt_mirror_ask(m, &what, bytes, size, NULL, error);
    if (status)
        return status;
    return note_there(f, first, offset + size, error);
}

static rt_status send_from(rt_mirror_flow *f, const rt_journal_extent *here, uint64_t offset,
                           const char *path, int file, rt_error *error)
{
    while (offset < here->bytes) {
        const size_t wanted = rt_min_u64(here->bytes - offset, RT_WIRE_MIRROR_BYTES_MAX);
        const ssize_t count = pread(file, f->mirror->buffer, wanted, (off_t)offset);
        if (count != (ssize_t)wanted)
            return rt_fail(error, RT_NOT_FOUND, "%s: ends at %" PRIu64, path, offset);
        rt_status status = send_bytes(f, here->first, offset, f->mirror->buffer, wanted,
                                      offset + wanted == here->bytes, error);
        if (status)
            return status;
        offset += wanted;
    }
    return RT_OK;
}

// From the file, as far as it is committed.
static rt_status send_segment(rt_mirror_flow *f, const rt_journal_extent *here, rt_error *error)
{
    char path[RT_PATH_MAX + RT_SEGMENT_NAME_MAX + 2], name[RT_SEGMENT_NAME_MAX];
    const uint64_t offset = bytes_there(f, here->first);
    if (offset >= here->bytes)
        return RT_OK;
    rt_segment_name(here->first, name);
    snprintf(path, sizeof path, "%s/%s", rt_journal_directory(f->journal), name);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return rt_fail(error, RT_NOT_FOUND, "%s: %s", path, strerror(errno));
    const rt_status status = send_from(f, here, offset, path, file, error);
    close(file);
    return status;
}

// A piece of the block that a commit waits for; false: it has been taken back.
static bool copy_piece(rt_mirror_flow *f, uint64_t offer, size_t done, size_t *size_p,
                       bool *is_last)
{
    rt_mirror *m = f->mirror;
    pthread_mutex_lock(&m->lock);
    const bool is_there = f->is_offered && f->offer == offer;
    if (is_there) {
        *size_p = rt_min_u64(f->size - done, RT_WIRE_MIRROR_BYTES_MAX);
        *is_last = done + *size_p == f->size;
        memcpy(m->buffer, f->bytes + done, *size_p);
    }
    pthread_mutex_unlock(&m->lock);
    return is_there;
}

static rt_status send_block(rt_mirror_flow *f, uint64_t offer, uint64_t segment, uint64_t offset,
                            rt_error *error)
{
    rt_mirror *m = f->mirror;
    const rt_journal_extent *known = find_there(f, segment);
    size_t done = 0, size = 0;
    bool is_last = false;
    if (!known || known->bytes != offset) // what was committed before it comes first
        return RT_OK;
    while (!is_last) {
        if (!copy_piece(f, offer, done, &size, &is_last))
            return RT_OK;
        rt_status status = send_bytes(f, segment, offset + done, m->buffer, size, is_last, error);
        if (status)
            return status;
        done += size;
    }
    pthread_mutex_lock(&m->lock);
    if (f->is_offered && f->offer == offer) {
        f->is_done = true;
        f->kept = (rt_journal_extent){segment, offset + done};
        pthread_cond_broadcast(&m->changed);
    }
    pthread_mutex_unlock(&m->lock);
    return RT_OK;
}

// What is there beyond what is committed here, and was not acknowledged: blocks that were taken
// back, or what a coordinator had sent that went down. From a standby that has just answered those
// segments go, too, that are not here, but for those that lead to the first one here.
static rt_status cut_excess(rt_mirror_flow *f, const rt_journal_extent *here, uint32_t count,
                            rt_error *error)
{
    const bool leads_here = find_there(f, here[0].first) != NULL;
    pthread_mutex_lock(&f->mirror->lock);
    const rt_journal_extent kept = f->kept;
    pthread_mutex_unlock(&f->mirror->lock);
    for (uint32_t i = f->there_count; i-- > 0;) {
        const rt_journal_extent there = f->there[i];
        uint64_t bytes = 0;
        if (there.first < here[0].first && leads_here)
            bytes = there.bytes;
        for (uint32_t h = 0; h < count; h++)
            if (here[h].first == there.first)
                bytes = here[h].bytes;
        if (kept.first == there.first) // acknowledged, and committed in a moment
            bytes = rt_max_u64(bytes, kept.bytes);
        rt_status status = cut(f, there.first, bytes, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// Where the block begins that a commit waits for; false: none does.
static bool find_offered(rt_mirror_flow *f, uint64_t *offer_p, rt_journal_extent *at)
{
    pthread_mutex_lock(&f->mirror->lock);
    const bool is_offered = f->is_offered && !f->is_done;
    *offer_p = f->offer;
    *at = (rt_journal_extent){f->segment, f->offset};
    pthread_mutex_unlock(&f->mirror->lock);
    return is_offered;
}

static uint64_t count_behind(rt_mirror_flow *f, const rt_journal_extent *here, uint32_t count)
{
    uint64_t behind = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t there = bytes_there(f, here[i].first);
        behind += here[i].bytes - rt_min_u64(here[i].bytes, there);
    }
    return behind;
}

static rt_status bring_committed(rt_mirror_flow *f, const rt_journal_extent *here, uint32_t count,
                                 rt_error *error)
{
    rt_status status = cut_excess(f, here, count, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < count; i++) {
        status = send_segment(f, &here[i], error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status bring_up(rt_mirror_flow *f, uint64_t *behind_p, rt_error *error)
{
    rt_journal_extent *here, at;
    uint32_t count;
    uint64_t offer;
    const bool is_offered = find_offered(f, &offer, &at); // all before it is committed by now
    if (rt_journal_extents(f->journal, &here, &count))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    rt_status status = bring_committed(f, here, count, error);
    rt_free(here);
    if (!status && is_offered)
        status = send_block(f, offer, at.first, at.bytes, error);
    if (status)
        return status;
    if (rt_journal_extents(f->journal, &here, &count)) // or it would pass for being in step
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    *behind_p += count_behind(f, here, count);
    rt_free(here);
    return RT_OK;
}

static rt_journal *journal_of(rt_mirror_flow *f)
{
    pthread_mutex_lock(&f->mirror->lock);
    rt_journal *journal = f->journal;
    pthread_mutex_unlock(&f->mirror->lock);
    return journal;
}

rt_status rt_mirror_journals(rt_mirror *m, rt_error *error)
{
    uint64_t behind = 0;
    for (uint32_t i = 0; i < RT_MIRROR_FLOWS; i++) {
        if (!journal_of(&m->flows[i]))
            continue;
        rt_status status = bring_up(&m->flows[i], &behind, error);
        if (status)
            return status;
    }
    pthread_mutex_lock(&m->lock);
    m->behind_bytes = behind;
    m->is_in_step = m->is_in_step || behind == 0;
    pthread_mutex_unlock(&m->lock);
    return RT_OK;
}

uint64_t rt_mirror_journal_first(rt_mirror *m, rt_flow flow)
{
    rt_journal *journal = journal_of(&m->flows[flow]);
    if (journal)
        return rt_journal_statistics(journal).first;
    return 0;
}

rt_status rt_mirror_journal_keep_from(rt_mirror *m, rt_flow flow, uint64_t first, rt_error *error)
{
    rt_mirror_flow *f = &m->flows[flow];
    for (uint32_t i = f->there_count; i-- > 0;) {
        if (f->there[i].first >= first)
            continue;
        rt_status status = cut(f, f->there[i].first, 0, error);
        if (status)
            return status;
    }
    return RT_OK;
}
