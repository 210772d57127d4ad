#include "dispatch/planner/dp_window.h"

#include <string.h>

#include "dispatch/planner/dp_planner_parts.h"
#include "dispatch/solvers/dp_solver.h"
#include "runtime/rt_hash.h"

// Where a key is: the index among the distinct keys of an iteration's batch. Iteration 0: nowhere.
typedef struct {
    uint32_t iteration, index;
} place_of;

typedef struct {
    uint64_t key;
    place_of last; // iteration 0: the entry is free
} seen_key;

typedef struct {
    uint32_t iteration, sample_count, key_count, distinct_count;
    bool uniform, is_placed;
    uint32_t *offsets, *lookups;
    dp_distinct *distinct;
    uint8_t *held;
    uint64_t *trainers; // ranks that are expected to train it
    place_of *before, *after;
    uint32_t *worker_of_sample;    // ranks
    uint32_t loaded, loaded_count; // iteration and samples of what was loaded for it; 0: nothing
} window_batch;

struct dp_window {
    uint32_t size, kept, worker_count, sample_count_max, stride;
    uint32_t placed[RT_WORKERS_MAX]; // samples of the last placement, by rank
    uint32_t placed_count;
    window_batch *batches; // kept, by iteration
    seen_key *table;
    uint64_t mask, used; // entries - 1; entries that are not free
    int32_t *cost;
    void *solver;
    uint8_t *next;
};

static rt_status allocate_batch(uint32_t samples, uint64_t lookups, window_batch *b)
{
    b->offsets = rt_alloc(samples + 1, sizeof *b->offsets);
    b->lookups = rt_alloc(lookups, sizeof *b->lookups);
    b->distinct = rt_alloc(lookups, sizeof *b->distinct);
    b->held = rt_alloc(lookups, sizeof *b->held);
    b->trainers = rt_alloc(lookups, sizeof *b->trainers);
    b->before = rt_alloc(lookups, sizeof *b->before);
    b->after = rt_alloc(lookups, sizeof *b->after);
    b->worker_of_sample = rt_alloc(samples, sizeof *b->worker_of_sample);
    if (!b->offsets || !b->lookups || !b->distinct || !b->held || !b->trainers || !b->before ||
        !b->after || !b->worker_of_sample)
        return RT_NO_MEMORY;
    return RT_OK;
}

static rt_status allocate_rest(dp_window *w, uint64_t lookups)
{
    if (!w->batches || !w->table || !w->cost || !w->next ||
        dp_solver_transport.create(w->sample_count_max, w->worker_count, &w->solver))
        return RT_NO_MEMORY;
    for (uint32_t i = 0; i < w->kept; i++) {
        if (allocate_batch(w->sample_count_max, lookups, &w->batches[i]))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

rt_status dp_window_create(uint32_t size, uint32_t kept, uint32_t worker_count,
                           uint32_t sample_count_max, uint64_t lookups, dp_window **window_p)
{
    rt_assert(size >= 2 && kept >= size);
    dp_window *w = rt_alloc(1, sizeof *w);
    uint64_t entries = 16;
    if (!w)
        return RT_NO_MEMORY;
    while (entries < 4 * lookups * kept)
        entries *= 2;
    w->size = size;
    w->kept = kept;
    w->worker_count = worker_count;
    w->sample_count_max = sample_count_max;
    w->stride = (worker_count + 7) / 8 * 8;
    w->mask = entries - 1;
    w->batches = rt_alloc(kept, sizeof *w->batches);
    w->table = rt_alloc(entries, sizeof *w->table);
    w->cost = rt_alloc((size_t)sample_count_max * w->stride, sizeof *w->cost);
    w->next = rt_alloc(lookups, sizeof *w->next);
    const rt_status status = allocate_rest(w, lookups);
    if (status)
        dp_window_destroy(w);
    else
        *window_p = w;
    return status;
}

void dp_window_destroy(dp_window *w)
{
    if (!w)
        return;
    for (uint32_t i = 0; w->batches && i < w->kept; i++) {
        window_batch *b = &w->batches[i];
        rt_free(b->offsets);
        rt_free(b->lookups);
        rt_free(b->distinct);
        rt_free(b->held);
        rt_free(b->trainers);
        rt_free(b->before);
        rt_free(b->after);
        rt_free(b->worker_of_sample);
    }
    if (w->solver)
        dp_solver_transport.destroy(w->solver);
    rt_free(w->batches);
    rt_free(w->table);
    rt_free(w->cost);
    rt_free(w->next);
    rt_free(w);
}

static window_batch *batch_of(const dp_window *w, uint32_t iteration)
{
    return &w->batches[iteration % w->kept];
}

// ---- keys ------------------------------------------------------------------------------------

static seen_key *find_key(const dp_window *w, uint64_t key)
{
    uint64_t at = rt_mix(key) & w->mask;
    while (w->table[at].last.iteration && w->table[at].key != key)
        at = (at + 1) & w->mask;
    return &w->table[at];
}

// Keys that left the window stay in the table until it is half full.
static void forget_keys(dp_window *w, uint32_t iteration)
{
    memset(w->table, 0, (w->mask + 1) * sizeof *w->table);
    w->used = 0;
    const uint32_t first = iteration > w->kept ? iteration - w->kept + 1 : 1;
    for (uint32_t t = first; t < iteration; t++) {
        const window_batch *b = batch_of(w, t);
        for (uint32_t d = 0; b->iteration == t && d < b->distinct_count; d++) {
            seen_key *seen = find_key(w, b->distinct[d].key);
            w->used += seen->last.iteration == 0;
            *seen = (seen_key){b->distinct[d].key, {t, d}};
        }
    }
}

// Whether a place is in the batches from iteration on.
static bool is_in_sight(const dp_window *w, place_of at, uint32_t iteration)
{
    return at.iteration >= iteration && at.iteration &&
           batch_of(w, at.iteration)->iteration == at.iteration;
}

static uint32_t number_key(dp_window *w, window_batch *b, uint64_t key)
{
    seen_key *seen = find_key(w, key);
    if (seen->last.iteration == b->iteration)
        return seen->last.index;
    const uint32_t d = b->distinct_count++;
    w->used += seen->last.iteration == 0;
    b->before[d] = seen->last;
    b->after[d] = (place_of){0};
    b->distinct[d] = (dp_distinct){.key = key, .field = (uint8_t)rt_key_field(key)};
    if (seen->last.iteration &&
        batch_of(w, seen->last.iteration)->iteration == seen->last.iteration)
        batch_of(w, seen->last.iteration)->after[seen->last.index] = (place_of){b->iteration, d};
    *seen = (seen_key){key, {b->iteration, d}};
    return d;
}

static void set_trainers(window_batch *b, const uint32_t *worker_of_sample)
{
    memset(b->trainers, 0, b->distinct_count * sizeof *b->trainers);
    for (uint32_t i = 0; i < b->sample_count; i++)
        for (uint32_t k = b->offsets[i]; k < b->offsets[i + 1]; k++)
            b->trainers[b->lookups[k]] |= rt_bit(worker_of_sample[i]);
    b->is_placed = true;
}

void dp_window_add(dp_window *w, const dp_planner *planner, const rt_batch *batch,
                   uint32_t iteration)
{
    window_batch *b = batch_of(w, iteration);
    b->iteration = iteration;
    if (w->used > w->mask / 2)
        forget_keys(w, iteration);
    b->sample_count = batch->sample_count;
    b->key_count = batch->key_count;
    b->distinct_count = 0;
    b->is_placed = false;
    b->uniform = dp_planner_is_uniform(planner, batch);
    memcpy(b->offsets, batch->key_offsets, (batch->sample_count + 1) * sizeof *b->offsets);
    for (uint32_t k = 0; k < batch->key_count; k++) {
        b->lookups[k] = number_key(w, b, batch->keys[k]);
        b->distinct[b->lookups[k]].uses++;
    }
    if (b->loaded == iteration && b->loaded_count == b->sample_count)
        set_trainers(b, b->worker_of_sample);
}

// ---- placing ---------------------------------------------------------------------------------

// Where a row is expected when its batch's turn comes.
static void expect_row(dp_window *w, const dp_planner *planner, window_batch *b, uint32_t d)
{
    dp_distinct *key = &b->distinct[d];
    uint64_t holders = 0;
    key->dirty = false;
    key->box = DP_NO_BOX;
    if (is_in_sight(w, b->before[d], planner->iteration)) {
        holders = batch_of(w, b->before[d].iteration)->trainers[b->before[d].index];
        key->dirty = true;
        if (rt_bits_many(holders) && !planner->viewed.caches)
            holders = 0;
    } else {
        const uint32_t index = dp_directory_peek(&planner->directory, key->key);
        const dp_record *record = index == DP_NO_RECORD ? NULL : &planner->directory.records[index];
        if (record) {
            holders = planner->viewed.caches ? record->viewed.holders : record->copies.holders;
            key->dirty = record->version != record->version_ps || rt_bits_many(holders);
        }
    }
    key->holders = dp_active_numbers(planner, holders);
    b->held[d] = key->held = dp_planner_held_byte(key->holders, key->dirty);
}

static uint8_t next_of(const dp_window *w, const dp_planner *planner, const window_batch *b,
                       uint32_t d)
{
    if (!is_in_sight(w, b->after[d], planner->iteration))
        return DP_NO_NEXT;
    const window_batch *then = batch_of(w, b->after[d].iteration);
    const uint64_t trainers = dp_active_numbers(planner, then->trainers[b->after[d].index]);
    if (!then->is_placed || !rt_bits_one(trainers))
        return DP_NO_NEXT;
    return (uint8_t)rt_lowest_bit(trainers);
}

// Shares of the last placement, where they are for these workers; else equal ones.
static void expect_shares(const dp_window *w, const dp_planner *planner, uint32_t sample_count,
                          uint32_t *capacity)
{
    const uint32_t n = planner->view.worker_count;
    uint32_t sum = 0;
    for (uint32_t j = 0; j < n; j++) {
        capacity[j] = w->placed[planner->rank_of[j]];
        sum += capacity[j];
    }
    for (uint32_t j = 0; j < n && (sum != sample_count || w->placed_count != sample_count); j++)
        capacity[j] = sample_count / n + (j < sample_count % n);
}

static void place_batch(dp_window *w, const dp_planner *planner, window_batch *b)
{
    uint32_t capacity[RT_WORKERS_MAX];
    dp_view view = planner->view;
    for (uint32_t d = 0; d < b->distinct_count; d++) {
        expect_row(w, planner, b, d);
        w->next[d] = next_of(w, planner, b, d);
    }
    expect_shares(w, planner, b->sample_count, capacity);
    view.sample_count = b->sample_count;
    view.lookup_count = b->key_count;
    view.distinct_count = b->distinct_count;
    view.uniform = b->uniform;
    view.offsets = b->offsets;
    view.lookups = b->lookups;
    view.distinct = b->distinct;
    view.held = b->held;
    view.next = w->next;
    dp_cost_matrix(&view, w->cost, w->stride);
    const dp_problem problem = {b->sample_count, view.worker_count, w->stride, w->cost, capacity};
    dp_solver_transport.solve(w->solver, &problem, b->worker_of_sample);
    dp_active_ranks(planner, b->sample_count, b->worker_of_sample);
    set_trainers(b, b->worker_of_sample);
}

static void place_if_known(dp_window *w, const dp_planner *planner, uint32_t iteration)
{
    window_batch *b = batch_of(w, iteration);
    if (b->iteration == iteration)
        place_batch(w, planner, b);
}

const uint8_t *dp_window_next(dp_window *w, const dp_planner *planner)
{
    const uint32_t first = planner->iteration, end = first + w->size;
    const window_batch *now = batch_of(w, first);
    rt_assert(now->iteration == first && now->distinct_count == planner->view.distinct_count);
    for (uint32_t t = first; t < end; t++) {
        if (!batch_of(w, t)->is_placed)
            place_if_known(w, planner, t);
    }
    for (uint32_t t = end; t-- > first;)
        place_if_known(w, planner, t);
    for (uint32_t t = first + 1; t < end; t++)
        place_if_known(w, planner, t);
    for (uint32_t d = 0; d < now->distinct_count; d++)
        w->next[d] = next_of(w, planner, now, d);
    return w->next;
}

void dp_window_placed(dp_window *w, const dp_planner *planner)
{
    window_batch *b = batch_of(w, planner->iteration);
    memset(w->placed, 0, sizeof w->placed);
    for (uint32_t i = 0; i < b->sample_count; i++)
        w->placed[planner->worker_of_sample[i]]++;
    w->placed_count = b->sample_count;
    set_trainers(b, planner->worker_of_sample);
}

// ---- saved -----------------------------------------------------------------------------------

void dp_window_save(const dp_window *w, uint32_t iteration, rt_bytes *bytes)
{
    rt_bytes_put_u32(bytes, w->placed_count);
    rt_bytes_put(bytes, w->placed, w->worker_count * sizeof *w->placed);
    for (uint32_t t = iteration + 1; t < iteration + w->size; t++) {
        const window_batch *b = batch_of(w, t);
        const bool is_known = b->iteration == t && b->is_placed;
        rt_bytes_put_u32(bytes, is_known ? t : 0);
        rt_bytes_put_u32(bytes, is_known ? b->sample_count : 0);
        if (is_known)
            rt_bytes_put(bytes, b->worker_of_sample, b->sample_count * sizeof(uint32_t));
    }
}

static bool load_batch(dp_window *w, rt_reader *reader)
{
    const uint32_t iteration = rt_reader_u32(reader), count = rt_reader_u32(reader);
    window_batch *b = batch_of(w, iteration);
    if (count > w->sample_count_max || (iteration == 0 && count) ||
        !rt_reader_get(reader, b->worker_of_sample, count, sizeof(uint32_t)))
        return false;
    b->loaded = iteration;
    b->loaded_count = count;
    for (uint32_t i = 0; i < count; i++) {
        if (b->worker_of_sample[i] >= w->worker_count)
            return false;
    }
    return true;
}

bool dp_window_load(dp_window *w, rt_reader *reader)
{
    w->placed_count = rt_reader_u32(reader);
    bool is_right = rt_reader_get(reader, w->placed, w->worker_count, sizeof *w->placed);
    for (uint32_t i = 1; i < w->size && is_right; i++)
        is_right = load_batch(w, reader);
    return is_right && !reader->failed;
}
