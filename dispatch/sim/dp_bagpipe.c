// Bagpipe (SOSP'23): the batches of a window are known. A row that the window needs again stays on
// all workers until its last use there; one that a single sample uses once is its worker's alone.
//
//     window of 2:   batch 1 {3, 9}    batch 2 {3, 4}    batch 3 {3, 6}    batch 4 {6, 1}
//     fetched        3, 9              4                 6                 1
//     until          3: 2, 9: 1        3: 3, 4: 2        6: 4, 3: 3        1: 4
//
// (its own example; the window is the present batch and the L - 1 behind it.) Shared rows are
// fetched by every worker, summed among them after each iteration that uses them, and written back
// once, by one of them. Sums that the next batch needs come first, the others meanwhile: the same
// bytes, so the predicted time, which is that of the links, does not know the difference.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/sim/dp_peer_parts.h"

// By record.
typedef struct {
    uint32_t last_use;       // batch of the window that needs it last
    uint32_t in_window;      // batches of the window that do
    uint32_t uses;           // samples of the present batch
    uint32_t worker;         // of the last of them
    uint32_t listed, lister; // batch, and worker + 1 of it, that counted it as a key last
    uint32_t next;           // batch that needs it, the last that was behind the present one
    bool is_cached;          // on all workers
    bool was_seen;
} row;

typedef struct {
    dp_peer_run_state *run;
    dp_peer_batch batches[DP_PEER_WINDOW_MAX]; // a ring
    uint32_t first, count, limit;
    uint32_t number;       // of the first, from 1
    uint64_t distinct;     // rows of the window
    dp_peer_batch ahead;   // read, and not in the window: it would overflow the cache
    bool has_ahead, ended; // no more can be read
    row *rows;
    uint32_t row_capacity;
    uint32_t *evicted; // shared rows of the present batch that are written back
    uint32_t evicted_capacity, evicted_count;
} bagpipe;

static dp_peer_batch *at(bagpipe *b, uint32_t place)
{
    return &b->batches[(b->first + place) % DP_PEER_WINDOW_MAX];
}

static rt_status read_ahead(bagpipe *b, rt_error *error)
{
    if (b->has_ahead || b->ended)
        return RT_OK;
    rt_status status = dp_peer_read(b->run, b->run->batch_size, &b->ahead, error);
    b->ended = status == RT_END;
    b->has_ahead = !status;
    if (b->ended)
        return RT_OK;
    if (!status && rt_grow(&b->rows, &b->row_capacity, b->run->directory.record_top,
                           sizeof *b->rows))
        return rt_fail(error, RT_NO_MEMORY, "out of memory: the rows");
    return status;
}

// With the batch ahead the window would need so many rows.
static uint64_t rows_with_ahead(const bagpipe *b)
{
    uint64_t rows = b->distinct;
    for (uint32_t i = 0; i < b->ahead.distinct_count; i++)
        rows += b->rows[b->ahead.distinct[i]].in_window == 0;
    return rows;
}

static void take_ahead(bagpipe *b)
{
    const uint32_t number = b->number + b->count;
    dp_peer_batch *into = at(b, b->count++);
    const dp_peer_batch free = *into;
    *into = b->ahead;
    b->ahead = free;
    b->has_ahead = false;
    for (uint32_t i = 0; i < into->distinct_count; i++) {
        row *one = &b->rows[into->distinct[i]];
        b->distinct += one->in_window++ == 0;
        one->last_use = number;
    }
}

// As many batches as the limit and the cache allow; at least one, if there is one.
static rt_status fill_window(bagpipe *b, rt_error *error)
{
    while (b->count < b->limit) {
        rt_status status = read_ahead(b, error);
        if (status)
            return status;
        if (!b->has_ahead)
            return RT_OK;
        const uint64_t rows = rows_with_ahead(b);
        if (rows > b->run->slot_count && b->count > 0)
            return RT_OK;
        if (rows > b->run->slot_count)
            return rt_fail(error, RT_CONFIG,
                           "bagpipe: a batch has %" PRIu64 " distinct rows, the cache of a worker "
                           "%" PRIu32 " (cache.rows): every worker must hold all of them",
                           rows, b->run->slot_count);
        take_ahead(b);
    }
    return RT_OK;
}

static void drop_first(bagpipe *b)
{
    const dp_peer_batch *batch = at(b, 0);
    for (uint32_t i = 0; i < batch->distinct_count; i++)
        b->distinct -= --b->rows[batch->distinct[i]].in_window == 0;
    b->first = (b->first + 1) % DP_PEER_WINDOW_MAX;
    b->count--;
    b->number++;
}

// Who uses what, and what was there.
static void count_uses(bagpipe *b, const dp_peer_batch *batch, dp_peer_moves *moves)
{
    for (uint32_t i = 0; i < batch->distinct_count; i++)
        b->rows[batch->distinct[i]].uses = 0;
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const uint32_t worker = dp_peer_worker(b->run, batch->sample_count, i);
        moves->micro_batch[worker]++;
        for (uint32_t k = batch->offsets[i]; k < batch->offsets[i + 1]; k++) {
            row *one = &b->rows[batch->records[k]];
            one->uses++;
            one->worker = worker;
            moves->hits.lookups++;
            moves->hits.lookups_hit += one->is_cached;
            if (one->listed == b->number && one->lister == worker + 1)
                continue;
            one->listed = b->number;
            one->lister = worker + 1;
            moves->hits.keys++;
            moves->hits.keys_hit += one->is_cached;
        }
    }
    moves->hits.distinct = batch->distinct_count;
}

static rt_status move_row(bagpipe *b, uint32_t record, dp_peer_moves *moves)
{
    const dp_peer_run_state *run = b->run;
    row *one = &b->rows[record];
    const bool stays = one->last_use > b->number;
    const bool is_private = !run->peer->replicate && one->uses == 1 && !stays;
    for (uint32_t j = 0; j < run->costs.worker_count && !one->is_cached; j++) {
        if (!is_private || j == one->worker)
            dp_peer_pull(run, moves, j, record, true, !one->was_seen);
    }
    if (!is_private)
        dp_peer_reduce(run, moves, record, one->next == b->number + 1);
    one->was_seen = true;
    one->is_cached = stays;
    if (stays)
        return RT_OK;
    if (is_private) {
        dp_peer_push_row(run, moves, one->worker, record);
        return RT_OK;
    }
    if (rt_grow(&b->evicted, &b->evicted_capacity, b->evicted_count + UINT64_C(1),
                sizeof *b->evicted))
        return RT_NO_MEMORY;
    b->evicted[b->evicted_count++] = record;
    return RT_OK;
}

static rt_status iterate(bagpipe *b, bool *is_last)
{
    const dp_peer_batch *batch = at(b, 0);
    dp_peer_moves moves = {.sample_count = batch->sample_count,
                           .window_rows = b->distinct,
                           .window_batches = b->count};
    b->evicted_count = 0;
    for (uint32_t i = 0; b->count > 1 && i < at(b, 1)->distinct_count; i++)
        b->rows[at(b, 1)->distinct[i]].next = b->number + 1;
    count_uses(b, batch, &moves);
    for (uint32_t i = 0; i < batch->distinct_count; i++) {
        if (move_row(b, batch->distinct[i], &moves))
            return RT_NO_MEMORY;
    }
    for (uint32_t i = 0; i < b->evicted_count; i++) // equal parts for all workers
        dp_peer_push_row(b->run, &moves, dp_peer_worker(b->run, b->evicted_count, i),
                         b->evicted[i]);
    *is_last = dp_peer_iterated(b->run, &moves);
    return RT_OK;
}

rt_status dp_bagpipe_run(dp_peer_run_state *run, rt_error *error)
{
    bagpipe *b = rt_alloc(1, sizeof *b);
    bool is_last = false;
    if (!b)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: the window");
    b->run = run;
    b->number = 1;
    b->limit = run->peer->window ? run->peer->window : DP_PEER_WINDOW_MAX;
    rt_status status = fill_window(b, error);
    while (!status && b->count > 0 && !is_last) {
        if (iterate(b, &is_last))
            status = rt_fail(error, RT_NO_MEMORY, "out of memory: the rows");
        drop_first(b);
        if (!status && !is_last)
            status = fill_window(b, error);
    }
    for (uint32_t i = 0; i < DP_PEER_WINDOW_MAX; i++)
        dp_peer_batch_fini(&b->batches[i]);
    dp_peer_batch_fini(&b->ahead);
    rt_free(b->rows);
    rt_free(b->evicted);
    rt_free(b);
    return status;
}
