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
//
// partition=true is the paper's second design: a row in the window is on one worker, its owner, and
// samples are placed so that as few rows as can be are on another one (its linear program, solved
// as a transportation problem). Who uses a row of another one has it from there, and returns the
// gradient. Owner is who used the row first, of several the one that owns the fewest.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/sim/dp_peer_parts.h"
#include "dispatch/solvers/dp_solver.h"

// By record.
typedef struct {
    uint32_t last_use;  // batch of the window that needs it last
    uint32_t in_window; // batches of the window that do
    uint32_t uses;      // samples of the present batch
    uint32_t worker;    // of the last of them
    uint32_t next;      // batch that needs it, the last that was behind the present one
    uint64_t users;     // workers of the present batch
    uint32_t owner;     // partition: who has it
    bool is_cached;     // on all workers; partition: on its owner
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
    void *solver;                   // partition: places samples
    int32_t *cost;                  // batch_size x workers
    uint32_t *placed;               // worker by sample of the present batch
    uint32_t owned[RT_WORKERS_MAX]; // rows, by owner
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
    if (!status &&
        rt_grow(&b->rows, &b->row_capacity, b->run->directory.record_top, sizeof *b->rows))
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
    const dp_peer_run_state *run = b->run;
    const uint64_t capacity =
        (uint64_t)run->slot_count * (run->peer->partition ? run->costs.worker_count : 1);
    while (b->count < b->limit) {
        rt_status status = read_ahead(b, error);
        if (status)
            return status;
        if (!b->has_ahead)
            return RT_OK;
        const uint64_t rows = rows_with_ahead(b);
        if (rows > capacity && b->count > 0)
            return RT_OK;
        if (rows > capacity)
            return rt_fail(error, RT_CONFIG,
                           "bagpipe: a batch has %" PRIu64 " distinct rows, the cache of a worker "
                           "%" PRIu32 " (cache.rows): %s must hold all of them",
                           rows, b->run->slot_count,
                           b->run->peer->partition ? "all together" : "every worker");
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

// Equal shares; a sample costs as many rows as are on other workers.
static void place_samples(bagpipe *b, const dp_peer_batch *batch)
{
    const uint32_t n = b->run->costs.worker_count;
    uint32_t capacity[RT_WORKERS_MAX];
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        int32_t *cost = b->cost + (size_t)i * n, cached = 0;
        memset(cost, 0, n * sizeof *cost);
        for (uint32_t k = batch->offsets[i]; k < batch->offsets[i + 1]; k++) {
            const row *one = &b->rows[batch->records[k]];
            cached += one->is_cached;
            cost[one->owner] -= one->is_cached;
        }
        for (uint32_t j = 0; j < n; j++)
            cost[j] += cached;
    }
    for (uint32_t j = 0; j < n; j++)
        capacity[j] = batch->sample_count / n + (j < batch->sample_count % n);
    const dp_problem problem = {batch->sample_count, n, n, b->cost, capacity};
    dp_solver_transport.solve(b->solver, &problem, b->placed);
}

static uint32_t worker_of(const bagpipe *b, const dp_peer_batch *batch, uint32_t i)
{
    return b->solver ? b->placed[i] : dp_peer_worker(b->run, batch->sample_count, i);
}

// Who uses what, and what was there.
static void count_uses(bagpipe *b, const dp_peer_batch *batch, dp_peer_moves *moves)
{
    for (uint32_t i = 0; i < batch->distinct_count; i++) {
        b->rows[batch->distinct[i]].uses = 0;
        b->rows[batch->distinct[i]].users = 0;
    }
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const uint32_t worker = worker_of(b, batch, i);
        moves->micro_batch[worker]++;
        for (uint32_t k = batch->offsets[i]; k < batch->offsets[i + 1]; k++) {
            row *one = &b->rows[batch->records[k]];
            one->uses++;
            one->worker = worker;
            const bool is_hit = one->is_cached && (!b->solver || one->owner == worker);
            moves->hits.lookups++;
            moves->hits.lookups_hit += is_hit;
            if (one->users >> worker & 1)
                continue;
            one->users |= rt_bit(worker);
            moves->hits.keys++;
            moves->hits.keys_hit += is_hit;
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

static void move_owned(bagpipe *b, uint32_t record, dp_peer_moves *moves)
{
    row *one = &b->rows[record];
    if (!one->is_cached) {
        one->owner = rt_lowest_bit(one->users);
        for (uint64_t rest = one->users; rest; rest &= rest - 1) {
            if (b->owned[rt_lowest_bit(rest)] < b->owned[one->owner])
                one->owner = rt_lowest_bit(rest);
        }
        b->owned[one->owner]++;
        dp_peer_pull(b->run, moves, one->owner, record, true, !one->was_seen);
    }
    for (uint64_t rest = one->users & ~rt_bit(one->owner); rest; rest &= rest - 1)
        dp_peer_fetch(b->run, moves, one->owner, rt_lowest_bit(rest), record);
    one->was_seen = true;
    one->is_cached = one->last_use > b->number;
    if (one->is_cached)
        return;
    b->owned[one->owner]--;
    dp_peer_push_row(b->run, moves, one->owner, record);
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
    if (b->solver)
        place_samples(b, batch);
    count_uses(b, batch, &moves);
    for (uint32_t i = 0; i < batch->distinct_count; i++) {
        if (b->solver)
            move_owned(b, batch->distinct[i], &moves);
        else if (move_row(b, batch->distinct[i], &moves))
            return RT_NO_MEMORY;
    }
    for (uint32_t i = 0; i < b->evicted_count; i++) // equal parts for all workers
        dp_peer_push_row(b->run, &moves, dp_peer_worker(b->run, b->evicted_count, i),
                         b->evicted[i]);
    *is_last = dp_peer_iterated(b->run, &moves);
    return RT_OK;
}

static rt_status create_solver(bagpipe *b)
{
    const uint32_t n = b->run->costs.worker_count;
    if (!b->run->peer->partition)
        return RT_OK;
    b->cost = rt_alloc((size_t)b->run->batch_size * n, sizeof *b->cost);
    b->placed = rt_alloc(b->run->batch_size, sizeof *b->placed);
    if (!b->cost || !b->placed)
        return RT_NO_MEMORY;
    return dp_solver_transport.create(b->run->batch_size, n, &b->solver);
}

static rt_status run_all(bagpipe *b, rt_error *error)
{
    if (create_solver(b))
        return rt_fail(error, RT_NO_MEMORY, "out of memory: placing");
    for (bool is_last = false; !is_last;) {
        const rt_status status = fill_window(b, error);
        if (status || b->count == 0)
            return status;
        if (iterate(b, &is_last))
            return rt_fail(error, RT_NO_MEMORY, "out of memory: the rows");
        drop_first(b);
    }
    return RT_OK;
}

rt_status dp_bagpipe_run(dp_peer_run_state *run, rt_error *error)
{
    bagpipe *b = rt_alloc(1, sizeof *b);
    if (!b)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: the window");
    b->run = run;
    b->number = 1;
    b->limit = run->peer->window ? run->peer->window : DP_PEER_WINDOW_MAX;
    const rt_status status = run_all(b, error);
    for (uint32_t i = 0; i < DP_PEER_WINDOW_MAX; i++)
        dp_peer_batch_fini(&b->batches[i]);
    dp_peer_batch_fini(&b->ahead);
    if (b->solver)
        dp_solver_transport.destroy(b->solver);
    rt_free(b->cost);
    rt_free(b->placed);
    rt_free(b->rows);
    rt_free(b->evicted);
    rt_free(b);
    return status;
}
