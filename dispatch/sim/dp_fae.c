// FAE: a static set of popular rows on every worker, summed like dense weights in every iteration,
// all of it; every other row is pulled, and its gradient pushed, by every worker that trains it. No
// cache beyond the hot set. (As Herald, ESD and Bagpipe describe and measure it.)
#include <inttypes.h>
#include <string.h>

#include "dispatch/sim/dp_peer_parts.h"
#include "dispatch/planner/dp_popularity.h"

// Samples that wait for a batch of their kind.
typedef struct {
    dp_peer_batch batch; // no distinct list
} pool;

typedef struct {
    dp_peer_run_state *run;
    bool *is_hot, *was_seen; // by record
    uint32_t hot_capacity, seen_capacity;
    uint64_t hot_bytes; // of all vectors
    uint32_t *owner;    // by record: worker + 1 that listed it last, in iteration owner_of
    uint32_t *owner_of;
    uint32_t owner_capacity, owner_of_capacity;
    uint32_t iteration;
    pool pools[2]; // cold, hot
} fae;

static rt_status reserve(fae *f)
{
    const uint64_t records = f->run->directory.record_top;
    if (rt_grow(&f->is_hot, &f->hot_capacity, records, sizeof *f->is_hot) ||
        rt_grow(&f->was_seen, &f->seen_capacity, records, sizeof *f->was_seen) ||
        rt_grow(&f->owner, &f->owner_capacity, records, sizeof *f->owner) ||
        rt_grow(&f->owner_of, &f->owner_of_capacity, records, sizeof *f->owner_of))
        return RT_NO_MEMORY;
    return RT_OK;
}

static void make_hot(fae *f, uint32_t record)
{
    const uint32_t field = dp_peer_field(f->run, record);
    f->is_hot[record] = true;
    f->hot_bytes += f->run->costs.layout.values[field] * sizeof(float);
}

// The first so many of these rows.
static rt_status make_all_hot(fae *f, const dp_popular *rows, uint64_t count, rt_error *error)
{
    dp_directory *directory = &f->run->directory;
    for (uint64_t i = 0; i < count; i++) {
        if (dp_directory_reserve(directory, 1))
            return rt_fail(error, RT_NO_MEMORY, "out of memory: the hot rows");
        const uint32_t record = dp_directory_find(directory, rows[i].key);
        if (reserve(f))
            return rt_fail(error, RT_NO_MEMORY, "out of memory: the hot rows");
        if (f->is_hot[record]) // no profile that was counted has it twice
            return rt_fail(error, RT_DATA, "%s:%" PRIu64 ": a row that stands before it, too",
                           f->run->peer->file, i + 2);
        make_hot(f, record);
    }
    return RT_OK;
}

// What `lanyard profile` counted.
static rt_status read_profile(fae *f, rt_error *error)
{
    const dp_sim_config *sim = f->run->sim;
    const dp_peer *peer = f->run->peer;
    dp_popular *rows = NULL;
    uint64_t count = 0;
    rt_status status =
        dp_popularity_read(peer->file, sim->config, sim->schema, &rows, &count, error);
    if (status)
        return status;
    if (peer->hot_rows > count)
        status = rt_fail(error, RT_CONFIG, "fae:hot_rows=%" PRIu64 ": %s has %" PRIu64 " rows",
                         peer->hot_rows, peer->file, count);
    else if (peer->hot_rows)
        status = make_all_hot(f, rows, peer->hot_rows, error);
    else
        status = make_all_hot(f, rows, count, error);
    rt_free(rows);
    return status;
}

// What it would count. The stream from its start once more.
static rt_status profile(fae *f, rt_error *error)
{
    dp_peer_run_state *run = f->run;
    const rt_config *config = run->sim->config;
    const dp_popularity_config settings = {.samples_max = run->peer->profile,
                                           .memory_max = UINT64_MAX};
    const uint64_t wanted = run->peer->hot_rows ? run->peer->hot_rows : run->slot_count;
    dp_popularity popularity;
    rt_stream_close(run->stream);
    run->stream = NULL;
    rt_status status = dp_popularity_take(config, &settings, &popularity, error);
    if (status)
        return status;
    status = make_all_hot(f, popularity.uses, rt_min_u64(wanted, popularity.row_count), error);
    dp_popularity_fini(&popularity);
    if (status)
        return status;
    return rt_stream_open(&config->stream, config->seed, &run->stream, error);
}

static bool sample_is_hot(const fae *f, const dp_peer_batch *batch, uint32_t i)
{
    for (uint32_t at = batch->offsets[i]; at < batch->offsets[i + 1]; at++) {
        if (!f->is_hot[batch->records[at]])
            return false;
    }
    return true;
}

static void move_cold(fae *f, dp_peer_moves *moves, uint32_t worker, uint32_t record)
{
    if (f->owner_of[record] == f->iteration && f->owner[record] == worker + 1)
        return;
    f->owner_of[record] = f->iteration;
    f->owner[record] = worker + 1;
    moves->hits.keys++;
    dp_peer_pull(f->run, moves, worker, record, false, !f->was_seen[record]);
    dp_peer_push_grad(f->run, moves, worker, record);
}

// Samples of a worker follow each other, so its distinct rows are found by who listed them last.
static bool iterate(fae *f, const dp_peer_batch *batch)
{
    dp_peer_moves moves = {.sample_count = batch->sample_count, .reduce_bytes = f->hot_bytes};
    f->iteration++;
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const uint32_t worker = dp_peer_worker(f->run, batch->sample_count, i);
        moves.micro_batch[worker]++;
        for (uint32_t at = batch->offsets[i]; at < batch->offsets[i + 1]; at++) {
            const uint32_t record = batch->records[at];
            moves.hits.lookups++;
            moves.hits.lookups_hit += f->is_hot[record];
            if (!f->is_hot[record])
                move_cold(f, &moves, worker, record);
        }
    }
    for (uint32_t at = 0; at < batch->key_count; at++)
        f->was_seen[batch->records[at]] = true;
    return dp_peer_iterated(f->run, &moves);
}

// ---- hot and cold batches --------------------------------------------------------------------

static rt_status put_sample(pool *p, const dp_peer_batch *from, uint32_t i)
{
    dp_peer_batch *to = &p->batch;
    const uint32_t count = from->offsets[i + 1] - from->offsets[i];
    if (rt_grow(&to->offsets, &to->offset_capacity, to->sample_count + UINT64_C(2),
                sizeof *to->offsets) ||
        rt_grow(&to->records, &to->record_capacity, (uint64_t)to->key_count + count,
                sizeof *to->records))
        return RT_NO_MEMORY;
    memcpy(to->records + to->key_count, from->records + from->offsets[i],
           count * sizeof *to->records);
    to->key_count += count;
    to->offsets[++to->sample_count] = to->key_count;
    return RT_OK;
}

// A pool that has become a whole batch is trained.
static rt_status schedule(fae *f, const dp_peer_batch *batch, bool *is_last, rt_error *error)
{
    for (uint32_t i = 0; i < batch->sample_count && !*is_last; i++) {
        pool *p = &f->pools[sample_is_hot(f, batch, i)];
        if (put_sample(p, batch, i))
            return rt_fail(error, RT_NO_MEMORY, "out of memory: hot and cold samples");
        if (p->batch.sample_count < f->run->batch_size)
            continue;
        *is_last = iterate(f, &p->batch);
        p->batch.sample_count = p->batch.key_count = 0;
    }
    return RT_OK;
}

static rt_status train_batch(fae *f, const dp_peer_batch *batch, bool *is_last, rt_error *error)
{
    if (reserve(f))
        return rt_fail(error, RT_NO_MEMORY, "out of memory: the rows");
    if (f->run->peer->schedule)
        return schedule(f, batch, is_last, error);
    *is_last = iterate(f, batch);
    return RT_OK;
}

// RT_END: the input has ended before the last iteration.
static rt_status train_input(fae *f, dp_peer_batch *batch, rt_error *error)
{
    for (bool is_last = false; !is_last;) {
        rt_status status = dp_peer_read(f->run, f->run->batch_size, batch, error);
        if (status)
            return status;
        status = train_batch(f, batch, &is_last, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status train(fae *f, rt_error *error)
{
    dp_peer_batch batch = {0};
    const rt_status status = train_input(f, &batch, error);
    dp_peer_batch_fini(&batch);
    if (status != RT_END)
        return status;
    bool is_last = false;
    for (uint32_t k = 0; k < 2; k++) {
        if (f->pools[k].batch.sample_count && !is_last)
            is_last = iterate(f, &f->pools[k].batch);
    }
    return RT_OK;
}

rt_status dp_fae_run(dp_peer_run_state *run, rt_error *error)
{
    fae f = {.run = run};
    rt_status status;
    if (run->peer->file[0])
        status = read_profile(&f, error);
    else
        status = profile(&f, error);
    if (!status)
        status = train(&f, error);
    rt_free(f.is_hot);
    rt_free(f.was_seen);
    rt_free(f.owner);
    rt_free(f.owner_of);
    dp_peer_batch_fini(&f.pools[0].batch);
    dp_peer_batch_fini(&f.pools[1].batch);
    return status;
}
