// Which key has which version at which shard, from the slices that workers carry out.
#include <stdlib.h>
#include <string.h>

#include "dispatch/plan/dp_slice_wire.h"
#include "tests/support/played_parts.h"
#include "tests/support/test.h"

static void add(played_rows *to, uint64_t key, uint32_t version, uint32_t shard)
{
    assert_int_equal(rt_grow(&to->rows, &to->capacity, to->count + 1u, sizeof *to->rows), RT_OK);
    to->rows[to->count++] = (played_row){key, version, shard};
}

static void put(played *p, uint64_t key, uint32_t version, uint32_t shard)
{
    add(&p->held, key, version, shard);
}

static uint32_t shard_of(const played *p, uint64_t key, const uint8_t *homes, uint32_t i)
{
    return homes ? homes[i] : rt_key_shard(key, p->welcome.shard_count);
}

// The newest version first.
static int compare(const void *left, const void *right)
{
    const played_row *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->version > b->version ? -1 : a->version < b->version;
}

void played_sort(played_rows *rows)
{
    uint32_t distinct = 0;
    if (rows->count)
        qsort(rows->rows, rows->count, sizeof *rows->rows, compare);
    for (uint32_t i = 0; i < rows->count; i++) {
        if (distinct == 0 || rows->rows[distinct - 1].key != rows->rows[i].key)
            rows->rows[distinct++] = rows->rows[i];
    }
    rows->count = distinct;
}

static dp_slice_limits limits_of(const played *p, uint32_t rank)
{
    const rt_config *config = p->config;
    const rt_wire_welcome *welcome = &p->welcome;
    return (dp_slice_limits){
        .dense_count = welcome->dense_count,
        .more_labels = p->more_labels,
        .field_count = welcome->field_count,
        .worker_count = welcome->worker_count,
        .rank = rt_bits_under(welcome->workers, rank),
        .sample_count_max = welcome->sample_count_max,
        .lookup_count_max = welcome->sample_count_max * welcome->keys_per_sample_max,
        .slot_count = welcome->slot_count,
        .shard_count = config->ps_homes == RT_HOMES_PLANNED ? welcome->shard_count : 0,
        .hands = config->dispatch.hand_over,
        .sums = config->dispatch.reduce};
}

// What goes to another worker is at no shard.
static void push(played *p, const uint64_t *keys, const dp_slice_view *view, uint32_t first,
                 uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        const uint64_t key = keys[view->push_slots[i]];
        if (!view->push_peers || view->push_peers[i] == DP_NO_WORKER)
            put(p, key, view->push_versions[i], shard_of(p, key, view->push_homes, i));
    }
}

static void fill(uint64_t *keys, const dp_slice_view *view)
{
    const rt_wire_slice *counts = &view->counts;
    for (uint32_t i = 0; i < counts->pull_count; i++)
        keys[view->pull_slots[i]] = view->pull_keys[i];
    for (uint32_t i = 0; i < counts->init_count; i++)
        keys[view->init_slots[i]] = view->init_keys[i];
}

// Sums that the shard makes.
static void add_gradients(played *p, const uint64_t *keys, const dp_slice_view *view)
{
    for (uint32_t i = 0; i < view->counts.grad_count; i++) {
        const uint64_t key = keys[view->row_slots[view->grad_rows[i]]];
        if (!view->grad_peers || view->grad_peers[i] == DP_NO_WORKER)
            put(p, key, view->counts.iteration, shard_of(p, key, view->grad_homes, i));
    }
}

static void push_deltas(played *p, const uint64_t *keys, const dp_slice_view *view, uint32_t first,
                        uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        const uint64_t key = keys[view->delta_slots[i]];
        put(p, key, view->delta_versions[i], shard_of(p, key, NULL, i));
    }
}

// What rules look at in the end.
static void note_rows(played *p, const uint64_t *keys, const dp_slice_view *view)
{
    const rt_wire_slice *counts = &view->counts;
    for (uint32_t i = 0; i < counts->row_count; i++)
        add(&p->trained, keys[view->row_slots[i]], counts->iteration, 0);
    for (uint32_t i = 0; i < counts->pull_count; i++)
        if (!view->pull_peers || view->pull_peers[i] == DP_NO_WORKER)
            add(&p->wanted, view->pull_keys[i], view->pull_versions[i], 0);
}

void played_carry_out(played *p, uint32_t rank, const rt_message *message, rt_wire_slice *counts)
{
    dp_slice_view view;
    rt_error error = {0};
    const dp_slice_limits limits = limits_of(p, rank);
    played_peer *worker = &p->peers[rank];
    if (dp_slice_decode(message, &limits, &view, &error))
        fail_msg("worker %u: %s", rank, error.text);
    *counts = view.counts;
    if (!worker->keys)
        worker->keys = rt_alloc(p->welcome.slot_count, sizeof *worker->keys);
    assert_non_null(worker->keys);
    push(p, worker->keys, &view, 0, counts->push_count - counts->push_late);
    push_deltas(p, worker->keys, &view, 0, counts->delta_count - counts->delta_late);
    fill(worker->keys, &view);
    note_rows(p, worker->keys, &view);
    push(p, worker->keys, &view, counts->push_count - counts->push_late, counts->push_count);
    add_gradients(p, worker->keys, &view);
    push_deltas(p, worker->keys, &view, counts->delta_count - counts->delta_late,
                counts->delta_count);
}

static void copy(const played_rows *from, played_rows *to)
{
    assert_int_equal(rt_grow(&to->rows, &to->capacity, from->count + 1u, sizeof *to->rows), RT_OK);
    if (from->count)
        memcpy(to->rows, from->rows, from->count * sizeof *to->rows);
    to->count = from->count;
    to->iteration = from->iteration;
}

void played_keep(played *p, uint32_t iteration)
{
    uint32_t i = 0;
    while (i < p->cut_count && p->cuts[i].iteration != iteration)
        i++;
    assert_true(i < PLAYED_CUTS);
    p->cut_count += i == p->cut_count;
    played_sort(&p->held);
    copy(&p->held, &p->cuts[i]);
    memcpy(p->cuts[i].done, p->done, sizeof p->done);
    p->cuts[i].samples = p->samples;
    p->cuts[i].iteration = iteration;
}

void played_load(played *p, uint32_t iteration)
{
    for (uint32_t i = 0; i < p->cut_count; i++) {
        if (p->cuts[i].iteration != iteration)
            continue;
        copy(&p->cuts[i], &p->held);
        memcpy(p->done, p->cuts[i].done, sizeof p->done);
        p->samples = p->cuts[i].samples;
    }
}

bool played_is_at(const played *p, const played_row *row, uint32_t shard)
{
    return p->config->ps_homes == RT_HOMES_PLANNED
               ? row->shard == shard
               : rt_key_shard(row->key, p->welcome.shard_count) == shard;
}

static bool is_among(uint64_t key, const uint64_t *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (keys[i] == key)
            return true;
    }
    return false;
}

// Those of a shard that end leave the list.
static uint64_t drop(const played *p, played_rows *rows, uint32_t shard, uint32_t floor,
                     const uint64_t *keys, uint32_t count)
{
    uint32_t left = 0;
    played_sort(rows);
    for (uint32_t i = 0; i < rows->count; i++) {
        const played_row *row = &rows->rows[i];
        if (!played_is_at(p, row, shard) ||
            (row->version >= floor && !is_among(row->key, keys, count)))
            rows->rows[left++] = *row;
    }
    const uint64_t ended = rows->count - left;
    rows->count = left;
    return ended;
}

uint64_t played_expire(played *p, uint32_t shard, uint32_t floor, const uint64_t *keys,
                       uint32_t count)
{
    (void)drop(p, &p->trained, shard, floor, keys, count);
    (void)drop(p, &p->wanted, shard, floor, keys, count);
    return drop(p, &p->held, shard, floor, keys, count);
}
