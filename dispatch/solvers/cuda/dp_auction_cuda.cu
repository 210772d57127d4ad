// The auction method with epsilon scaling on the transportation form; dp_auction.c says why it is
// exact. In every round all rows without a place bid at the same prices, a thread each; then every
// sink keeps the highest bids that it has room for.
//
// A bid is one number: its price above, the row (lower ones first) below, so that no two are equal
// and which are kept depends on nothing else. The lowest bid that a full sink keeps is found by
// counting bids in bins that narrow down by a factor of BINS per turn.
//
// No races: one block. A row's bid and place belong to one thread; what is shared changes by
// atomic additions, minima and maxima of integers, whose results do not depend on their order, or
// between barriers by one thread per sink.
#include "dispatch/solvers/cuda/dp_cuda_parts.h"

#define EPSILON_STEP 5
#define ROW_BITS 22
#define ROW_MASK ((UINT64_C(1) << ROW_BITS) - 1)
#define BIN_BITS 5
#define BINS (1u << BIN_BITS)

typedef unsigned long long key; // what CUDA's atomic functions take

typedef struct {
    key bid; // of this row
} row_work;

typedef struct {
    int64_t price[DP_CUDA_SINKS_MAX];
    key low[DP_CUDA_SINKS_MAX], high[DP_CUDA_SINKS_MAX]; // the lowest kept bid is within
    uint32_t bids[DP_CUDA_SINKS_MAX];                    // kept and fresh
    uint32_t above[DP_CUDA_SINKS_MAX];                   // bids above high
    uint32_t bins[DP_CUDA_SINKS_MAX * BINS];
    uint32_t waiting; // rows without a place
    uint32_t open;    // sinks whose lowest bid is not found yet
} board;

// So that (value >> shift) < BINS.
static __device__ uint32_t shift_of(key value)
{
    uint32_t shift = 0;
    while (value >> shift >= BINS)
        shift++;
    return shift;
}

static __device__ void make_bid(const dp_cuda_problem &p, row_work *rows, uint32_t *place,
                                const board *b, uint32_t row, int64_t epsilon)
{
    int64_t best = INT64_MAX, second = INT64_MAX, scale = p.sink_count + (int64_t)1;
    uint32_t target = 0;
    for (uint32_t j = 0; j < p.sink_count; j++) {
        int64_t value = dp_cuda_cost(p, row, j) * scale + b->price[j];
        if (value < best) {
            second = best;
            best = value;
            target = j;
        } else if (value < second) {
            second = value;
        }
    }
    if (p.sink_count == 1)
        second = best;
    int64_t price = b->price[target] + (second - best) + epsilon;
    rows[row].bid = (key)price << ROW_BITS | (ROW_MASK - row);
    place[row] = target;
}

// All rows bid that wait; then every sink knows how many bids it has, and from where to where.
static __device__ void collect_bids(const dp_cuda_problem &p, row_work *rows, uint32_t *place,
                                    board *b, int64_t epsilon)
{
    for (uint32_t j = threadIdx.x; j < p.sink_count; j += blockDim.x) {
        b->low[j] = ~(key)0;
        b->high[j] = 0;
        b->bids[j] = b->above[j] = 0;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < p.row_count; i += blockDim.x) {
        if (place[i] == DP_CUDA_NONE)
            make_bid(p, rows, place, b, i, epsilon);
        atomicAdd(&b->bids[place[i]], 1u);
        atomicMin(&b->low[place[i]], rows[i].bid);
        atomicMax(&b->high[place[i]], rows[i].bid);
    }
    __syncthreads();
}

// Whether sink j has more bids than places and its lowest kept one is not known.
static __device__ bool is_open(const dp_cuda_problem &p, const board *b, uint32_t j)
{
    return b->bids[j] > p.capacity[j] && b->low[j] < b->high[j];
}

// One thread per sink: the bin that holds the bid with capacity - 1 bids above it.
static __device__ void narrow(const dp_cuda_problem &p, board *b, uint32_t j)
{
    uint32_t shift = shift_of(b->high[j] - b->low[j]), bin = BINS - 1;
    const uint32_t *bins = b->bins + j * BINS;
    while (bin > 0 && b->above[j] + bins[bin] < p.capacity[j])
        b->above[j] += bins[bin--];
    key low = b->low[j] + ((key)bin << shift), high = low + (((key)1 << shift) - 1);
    b->low[j] = low;
    b->high[j] = high < b->high[j] ? high : b->high[j];
    if (is_open(p, b, j))
        atomicAdd(&b->open, 1u);
}

// Finds the lowest bid that every sink keeps.
static __device__ void find_lowest(const dp_cuda_problem &p, const row_work *rows,
                                   const uint32_t *place, board *b)
{
    if (threadIdx.x == 0)
        b->open = 1;
    __syncthreads();
    while (b->open > 0) {
        __syncthreads();
        for (uint32_t k = threadIdx.x; k < p.sink_count * BINS; k += blockDim.x)
            b->bins[k] = 0;
        if (threadIdx.x == 0)
            b->open = 0;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < p.row_count; i += blockDim.x) {
            uint32_t j = place[i];
            key bid = rows[i].bid;
            if (!is_open(p, b, j) || bid < b->low[j] || bid > b->high[j])
                continue;
            atomicAdd(&b->bins[j * BINS +
                               (uint32_t)((bid - b->low[j]) >> shift_of(b->high[j] - b->low[j]))],
                      1u);
        }
        __syncthreads();
        for (uint32_t j = threadIdx.x; j < p.sink_count; j += blockDim.x)
            if (is_open(p, b, j))
                narrow(p, b, j);
        __syncthreads();
    }
}

// Rows below the lowest kept bid of their sink wait again; full sinks take its price.
static __device__ void settle(const dp_cuda_problem &p, const row_work *rows, uint32_t *place,
                              board *b)
{
    if (threadIdx.x == 0)
        b->waiting = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < p.row_count; i += blockDim.x) {
        uint32_t j = place[i];
        if (b->bids[j] <= p.capacity[j] || rows[i].bid >= b->low[j])
            continue;
        place[i] = DP_CUDA_NONE;
        atomicAdd(&b->waiting, 1u);
    }
    for (uint32_t j = threadIdx.x; j < p.sink_count; j += blockDim.x)
        if (b->bids[j] >= p.capacity[j])
            b->price[j] = (int64_t)(b->low[j] >> ROW_BITS);
    __syncthreads();
}

// Only differences of prices matter; this keeps them small enough for a bid.
static __device__ void normalise(const dp_cuda_problem &p, board *b)
{
    int64_t least = INT64_MAX;
    for (uint32_t j = 0; j < p.sink_count; j++)
        least = b->price[j] < least ? b->price[j] : least;
    __syncthreads();
    for (uint32_t j = threadIdx.x; j < p.sink_count; j += blockDim.x)
        b->price[j] -= least;
    __syncthreads();
}

static __global__ void __launch_bounds__(DP_CUDA_THREADS_MAX)
    auction(dp_cuda_problem p, row_work *rows, uint32_t *place)
{
    SHARED(board, b, 1);
    int64_t epsilon = p.cost_highest * (p.sink_count + (int64_t)1) / EPSILON_STEP;
    for (uint32_t j = threadIdx.x; j < p.sink_count; j += blockDim.x)
        b->price[j] = 0;
    for (bool last = false; !last; epsilon /= EPSILON_STEP) {
        last = epsilon <= 1;
        for (uint32_t i = threadIdx.x; i < p.row_count; i += blockDim.x)
            place[i] = DP_CUDA_NONE; // everything is up for auction again
        __syncthreads();
        normalise(p, b);
        // Ends: in every round a sink with bids gets fuller, or the lowest bid that it keeps rises.
        do {
            collect_bids(p, rows, place, b, last ? 1 : epsilon);
            find_lowest(p, rows, place, b);
            settle(p, rows, place, b);
        } while (b->waiting > 0);
    }
}

// Prices stay below the number of sinks times the largest scaled cost, twice: 42 bits hold them.
static rt_status create(uint32_t index, uint32_t row_count_max, uint32_t sink_count_max,
                        void **state_p, rt_error *error)
{
    if ((uint64_t)row_count_max * sink_count_max > ROW_MASK + 1)
        return rt_fail(error, RT_UNSUPPORTED, "%u rows on %u sinks are too many", row_count_max,
                       sink_count_max);
    return dp_cuda_create(index, row_count_max, sink_count_max, sizeof(row_work), state_p, error);
}

static rt_status solve(void *state, const dp_problem *problem, uint32_t *sink_of_row,
                       rt_error *error)
{
    dp_cuda_solver *solver = (dp_cuda_solver *)state;
    dp_cuda_problem p;
    if (!dp_cuda_begin(solver, problem, &p))
        return RT_OK;
    LAUNCH(auction, dim3(1), dim3(dp_cuda_threads(&p)), 0, solver->stream, p,
           (row_work *)solver->work, solver->place);
    return dp_cuda_end(solver, &p, sink_of_row, error);
}

extern "C" {
extern const dp_cuda_table dp_auction_cuda_table;
const dp_cuda_table dp_auction_cuda_table = {"auction_cuda", create, dp_cuda_destroy, solve,
                                             dp_cuda_device_s};
}
