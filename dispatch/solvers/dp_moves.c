#include "dispatch/solvers/dp_moves.h"

#include <string.h>

#define BLOCK_ROWS 16u
#define CHUNK_BLOCKS 16u
#define CHUNK_ROWS (BLOCK_ROWS * CHUNK_BLOCKS)

rt_status dp_moves_init(dp_moves *moves, uint32_t row_count_max, uint32_t sink_count_max)
{
    size_t lanes = dp_lanes_count(sink_count_max);
    size_t chunks = (size_t)row_count_max / CHUNK_ROWS + 1;
    size_t pool = chunks + sink_count_max; // every sink has one chunk that is not full
    *moves = (dp_moves){
        .lanes = dp_lanes_best(),
        .chunk_count_max = (uint32_t)chunks,
        .pool_count = (uint32_t)pool,
        .change = rt_alloc(pool * CHUNK_ROWS, lanes * sizeof(int32_t)),
        .block_least = rt_alloc(pool * CHUNK_BLOCKS, lanes * sizeof(int32_t)),
        .chunk_least = rt_alloc(chunks * sink_count_max, lanes * sizeof(int32_t)),
        .least = rt_alloc(sink_count_max, lanes * sizeof(int32_t)),
        .row = rt_alloc(pool * CHUNK_ROWS, sizeof(uint32_t)),
        .chunk = rt_alloc(chunks * sink_count_max, sizeof(uint32_t)),
        .free = rt_alloc(pool, sizeof(uint32_t)),
    };
    if (!moves->change || !moves->block_least || !moves->chunk_least || !moves->least ||
        !moves->row || !moves->chunk || !moves->free) {
        dp_moves_fini(moves);
        return RT_NO_MEMORY;
    }
    return RT_OK;
}

void dp_moves_fini(dp_moves *moves)
{
    rt_free(moves->change);
    rt_free(moves->block_least);
    rt_free(moves->chunk_least);
    rt_free(moves->least);
    rt_free(moves->row);
    rt_free(moves->chunk);
    rt_free(moves->free);
    *moves = (dp_moves){0};
}

void dp_moves_reset(dp_moves *moves, const dp_problem *problem)
{
    moves->problem = problem;
    moves->lane_count = dp_lanes_count(problem->sink_count);
    for (uint32_t i = 0; i < moves->pool_count; i++)
        moves->free[i] = moves->pool_count - 1 - i;
    moves->free_count = moves->pool_count;
    memset(moves->row_count, 0, sizeof moves->row_count);
}

// Index of a slot of a sink among all slots of the pool.
static size_t place_of(const dp_moves *moves, uint32_t sink, uint32_t slot)
{
    size_t list = (size_t)sink * moves->chunk_count_max;
    return (size_t)moves->chunk[list + slot / CHUNK_ROWS] * CHUNK_ROWS + slot % CHUNK_ROWS;
}

static int32_t *change_at(const dp_moves *moves, size_t place)
{
    return moves->change + place * moves->lane_count;
}

// Appends a slot without content and returns its place.
static size_t grow(dp_moves *moves, uint32_t sink)
{
    uint32_t slot = moves->row_count[sink]++;
    if (slot % CHUNK_ROWS == 0) {
        rt_assert(moves->free_count > 0 && slot / CHUNK_ROWS < moves->chunk_count_max);
        size_t list = (size_t)sink * moves->chunk_count_max;
        moves->chunk[list + slot / CHUNK_ROWS] = moves->free[--moves->free_count];
    }
    return place_of(moves, sink, slot);
}

void dp_moves_add(dp_moves *moves, uint32_t sink, uint32_t row, const int32_t *costs)
{
    size_t place = grow(moves, sink);
    dp_lanes_subtract(costs, costs[sink], moves->lane_count, change_at(moves, place));
    moves->row[place] = row;
}

static void refresh_block(dp_moves *moves, uint32_t sink, uint32_t slot)
{
    uint32_t first = slot / BLOCK_ROWS * BLOCK_ROWS;
    uint32_t count = moves->row_count[sink] - first;
    size_t place = place_of(moves, sink, first);
    moves->lanes->minima(change_at(moves, place), (uint32_t)rt_min_u64(count, BLOCK_ROWS),
                         moves->lane_count,
                         moves->block_least + place / BLOCK_ROWS * moves->lane_count);
}

static void refresh_chunk(dp_moves *moves, uint32_t sink, uint32_t slot)
{
    uint32_t first = slot / CHUNK_ROWS * CHUNK_ROWS;
    uint32_t count = (moves->row_count[sink] - first + BLOCK_ROWS - 1) / BLOCK_ROWS;
    size_t list = (size_t)sink * moves->chunk_count_max + slot / CHUNK_ROWS;
    size_t block = (size_t)moves->chunk[list] * CHUNK_BLOCKS;
    moves->lanes->minima(moves->block_least + block * moves->lane_count,
                         (uint32_t)rt_min_u64(count, CHUNK_BLOCKS), moves->lane_count,
                         moves->chunk_least + list * moves->lane_count);
}

static void refresh_sink(dp_moves *moves, uint32_t sink)
{
    size_t list = (size_t)sink * moves->chunk_count_max;
    uint32_t count = (moves->row_count[sink] + CHUNK_ROWS - 1) / CHUNK_ROWS;
    if (count > 0)
        moves->lanes->minima(moves->chunk_least + list * moves->lane_count, count,
                             moves->lane_count, moves->least + (size_t)sink * moves->lane_count);
}

static void refresh(dp_moves *moves, uint32_t sink, uint32_t slot)
{
    refresh_block(moves, sink, slot);
    refresh_chunk(moves, sink, slot);
    refresh_sink(moves, sink);
}

void dp_moves_build(dp_moves *moves)
{
    for (uint32_t sink = 0; sink < moves->problem->sink_count; sink++) {
        for (uint32_t slot = 0; slot < moves->row_count[sink]; slot += BLOCK_ROWS)
            refresh_block(moves, sink, slot);
        for (uint32_t slot = 0; slot < moves->row_count[sink]; slot += CHUNK_ROWS)
            refresh_chunk(moves, sink, slot);
        refresh_sink(moves, sink);
    }
}

// The first of count vectors that has value in its lane; there is one.
static uint32_t first_with(const int32_t *vectors, uint32_t lane_count, uint32_t lane,
                           int32_t value)
{
    uint32_t index = 0;
    while (vectors[(size_t)index * lane_count + lane] != value)
        index++;
    return index;
}

uint32_t dp_moves_find(const dp_moves *moves, uint32_t sink, uint32_t other)
{
    rt_assert(moves->row_count[sink] > 0);
    uint32_t lanes = moves->lane_count;
    int32_t value = dp_moves_least(moves, sink)[other];
    size_t list = (size_t)sink * moves->chunk_count_max;
    uint32_t chunk = first_with(moves->chunk_least + list * lanes, lanes, other, value);
    size_t pool = moves->chunk[list + chunk];
    uint32_t block =
        first_with(moves->block_least + pool * CHUNK_BLOCKS * lanes, lanes, other, value);
    size_t place = pool * CHUNK_ROWS + block * BLOCK_ROWS;
    uint32_t slot = first_with(change_at(moves, place), lanes, other, value);
    return chunk * CHUNK_ROWS + block * BLOCK_ROWS + slot;
}

uint32_t dp_moves_row(const dp_moves *moves, uint32_t sink, uint32_t slot)
{
    return moves->row[place_of(moves, sink, slot)];
}

static void write_slot(dp_moves *moves, uint32_t sink, size_t place, uint32_t row)
{
    const int32_t *costs = moves->problem->cost + (size_t)row * moves->problem->stride;
    int32_t *change = change_at(moves, place);
    for (uint32_t l = 0; l < moves->problem->sink_count; l++)
        change[l] = costs[l] - costs[sink];
    moves->row[place] = row;
}

void dp_moves_append(dp_moves *moves, uint32_t sink, uint32_t row)
{
    write_slot(moves, sink, grow(moves, sink), row);
    refresh(moves, sink, moves->row_count[sink] - 1);
}

void dp_moves_replace(dp_moves *moves, uint32_t sink, uint32_t slot, uint32_t row)
{
    write_slot(moves, sink, place_of(moves, sink, slot), row);
    refresh(moves, sink, slot);
}

void dp_moves_remove(dp_moves *moves, uint32_t sink, uint32_t slot)
{
    uint32_t last = --moves->row_count[sink];
    size_t from = place_of(moves, sink, last);
    size_t to = place_of(moves, sink, slot);
    if (slot != last) {
        memcpy(change_at(moves, to), change_at(moves, from), moves->lane_count * sizeof(int32_t));
        moves->row[to] = moves->row[from];
        refresh_block(moves, sink, slot);
    }
    if (last % BLOCK_ROWS != 0)
        refresh_block(moves, sink, last);
    if (last % CHUNK_ROWS != 0)
        refresh_chunk(moves, sink, last);
    else
        moves->free[moves->free_count++] = (uint32_t)(from / CHUNK_ROWS);
    if (slot / CHUNK_ROWS != last / CHUNK_ROWS)
        refresh_chunk(moves, sink, slot);
    refresh_sink(moves, sink);
}
