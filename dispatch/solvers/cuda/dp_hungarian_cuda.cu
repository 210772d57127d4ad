// The parallel Hungarian method of ESD (section 4.3): initial reduction, initial matching, then
// covering zeros and adjusting until every row is matched, on the expanded matrix, which has one
// column per place.
//
// The columns of a sink are equal, start with equal prices, and stay so: a row that is matched to
// one of them has a zero in all of them, so as soon as one is uncovered, the rows matched to the
// others are covered and their columns uncovered too. So a column's state is kept once per sink,
// and nothing has k x k elements.
//
// Covering and adjusting run as one search: distance is the sum of the adjustments after which a
// row has its first zero in an uncovered column. The nearest row is next: an unmatched one ends the
// search, a matched one is covered and its sink uncovered. Prices are adjusted once at the end, by
// what has passed since a line was covered or uncovered.
//
// Three rows (0, 1, 2) and two sinks (A with two places, B with one), by way of example:
//
//     costs     A  B     reduced by the least of each row, then of each column
//         0     1  4          0  0      initial matching: A takes 0 and 1, B has no unmatched row
//         1     2  6          0  1      with a zero; row 2 is left
//         2     3  9          0  3
//
//     search    B has room, so it is uncovered, at 0. Distances by way of B: row 0: 0, 1: 1, 2: 3.
//               The nearest is row 0, which is matched: it is covered and its sink A uncovered, at
//               0. By way of A row 2 is at 0: the nearest, and unmatched. The search ends.
//     augment   Row 2 goes to A, which is full and passes row 0 on to B: 4 + 2 + 3 = 9.
//
// No races: one block. A row's price, distance and via belong to one thread. Places and what is
// shared change between barriers, by one thread or (initial matching) one thread per row.
#include "dispatch/solvers/cuda/dp_cuda_parts.h"

#define FAR INT64_MAX
#define MATCHED 0x80000000u // in a rank: unmatched rows come first

typedef struct {
    int64_t price;    // u, of the row
    int64_t distance; // in this search
    uint32_t via;     // the uncovered sink at that distance
    uint32_t unused;
} row_work;

typedef struct {
    int64_t price[DP_CUDA_SINKS_MAX];        // v
    int64_t uncovered_at[DP_CUDA_SINKS_MAX]; // in this search; FAR: covered
    uint32_t room[DP_CUDA_SINKS_MAX];
    uint32_t via_row[DP_CUDA_SINKS_MAX]; // the matched row that uncovered the sink
    int64_t distance[RT_CUDA_WARP];      // of each warp's nearest row
    uint32_t rank[RT_CUDA_WARP];
    uint32_t counts[RT_CUDA_WARP];
    uint32_t left; // unmatched rows
} board;

static __device__ int64_t reduced(const dp_cuda_problem &p, const row_work *rows, const board *b,
                                  uint32_t row, uint32_t sink)
{
    return dp_cuda_cost(p, row, sink) - rows[row].price - b->price[sink];
}

// The least (distance, rank) of the block, for all threads. Ranks are unique.
static __device__ void find_least(board *b, int64_t *distance_p, uint32_t *rank_p)
{
    int64_t distance = *distance_p;
    uint32_t rank = *rank_p, warp = threadIdx.x / RT_CUDA_WARP;
    for (uint32_t bits = RT_CUDA_WARP / 2; bits > 0; bits /= 2) {
        int64_t other = __shfl_xor_sync(RT_CUDA_FULL, distance, bits);
        uint32_t other_rank = __shfl_xor_sync(RT_CUDA_FULL, rank, bits);
        if (other < distance || (other == distance && other_rank < rank)) {
            distance = other;
            rank = other_rank;
        }
    }
    __syncthreads();
    if (threadIdx.x % RT_CUDA_WARP == 0) {
        b->distance[warp] = distance;
        b->rank[warp] = rank;
    }
    __syncthreads();
    for (uint32_t w = 0; w < blockDim.x / RT_CUDA_WARP; w++)
        if (b->distance[w] < distance || (b->distance[w] == distance && b->rank[w] < rank)) {
            distance = b->distance[w];
            rank = b->rank[w];
        }
    *distance_p = distance;
    *rank_p = rank;
}

// Initial reduction: by the least of each row, then by what is left in each column.
static __device__ void reduce_matrix(const dp_cuda_problem &p, row_work *rows, uint32_t *place,
                                     board *b)
{
    for (uint32_t j = threadIdx.x; j < p.sink_count; j += blockDim.x) {
        b->price[j] = 0;
        b->room[j] = p.capacity[j];
    }
    if (threadIdx.x == 0)
        b->left = p.row_count;
    for (uint32_t i = threadIdx.x; i < p.row_count; i += blockDim.x) {
        int64_t least = FAR;
        for (uint32_t j = 0; j < p.sink_count; j++) {
            int64_t cost = dp_cuda_cost(p, i, j);
            least = cost < least ? cost : least;
        }
        rows[i].price = least;
        place[i] = DP_CUDA_NONE;
    }
    __syncthreads();
    for (uint32_t j = 0; j < p.sink_count; j++) {
        int64_t least = FAR;
        uint32_t rank = threadIdx.x;
        for (uint32_t i = threadIdx.x; i < p.row_count; i += blockDim.x) {
            int64_t left = reduced(p, rows, b, i, j);
            least = left < least ? left : least;
        }
        find_least(b, &least, &rank);
        __syncthreads();
        if (threadIdx.x == 0)
            b->price[j] = least;
    }
    __syncthreads();
}

// How many threads below this one say yes, and how many there are in the block.
static __device__ uint32_t rank_of(board *b, bool yes, uint32_t *total_p)
{
    uint32_t before = yes, lane = threadIdx.x % RT_CUDA_WARP, warp = threadIdx.x / RT_CUDA_WARP;
    for (uint32_t step = 1; step < RT_CUDA_WARP; step *= 2) {
        uint32_t other = __shfl_up_sync(RT_CUDA_FULL, before, step);
        before += lane >= step ? other : 0;
    }
    __syncthreads();
    if (lane == RT_CUDA_WARP - 1)
        b->counts[warp] = before;
    __syncthreads();
    uint32_t total = 0;
    before -= yes;
    for (uint32_t w = 0; w < blockDim.x / RT_CUDA_WARP; w++) {
        before += w < warp ? b->counts[w] : 0;
        total += b->counts[w];
    }
    *total_p = total;
    return before;
}

// Initial matching: every sink takes the first unmatched rows that have a zero there.
static __device__ void match_zeros(const dp_cuda_problem &p, const row_work *rows, uint32_t *place,
                                   board *b)
{
    for (uint32_t j = 0; j < p.sink_count; j++) {
        uint32_t room = p.capacity[j], taken = 0;
        for (uint32_t first = 0; first < p.row_count && taken < room; first += blockDim.x) {
            uint32_t i = first + threadIdx.x, total;
            bool zero =
                i < p.row_count && place[i] == DP_CUDA_NONE && reduced(p, rows, b, i, j) == 0;
            uint32_t rank = rank_of(b, zero, &total);
            if (zero && taken + rank < room)
                place[i] = j;
            taken = taken + total < room ? taken + total : room;
        }
        if (threadIdx.x == 0) {
            b->room[j] = room - taken;
            b->left -= taken;
        }
    }
    __syncthreads();
}

// Uncovers a sink: rows that are not covered may have got nearer.
static __device__ void relax(const dp_cuda_problem &p, row_work *rows, const uint32_t *place,
                             const board *b, uint32_t sink)
{
    for (uint32_t i = threadIdx.x; i < p.row_count; i += blockDim.x) {
        if (place[i] != DP_CUDA_NONE && b->uncovered_at[place[i]] != FAR)
            continue;
        int64_t distance = b->uncovered_at[sink] + reduced(p, rows, b, i, sink);
        if (distance < rows[i].distance) {
            rows[i].distance = distance;
            rows[i].via = sink;
        }
    }
}

// Covers and uncovers until an unmatched row is next; returns it, and the sum of adjustments.
static __device__ uint32_t search(const dp_cuda_problem &p, row_work *rows, const uint32_t *place,
                                  board *b, int64_t *end_p)
{
    for (uint32_t j = threadIdx.x; j < p.sink_count; j += blockDim.x)
        b->uncovered_at[j] = b->room[j] > 0 ? 0 : FAR;
    for (uint32_t i = threadIdx.x; i < p.row_count; i += blockDim.x)
        rows[i].distance = FAR;
    __syncthreads();
    for (uint32_t j = 0; j < p.sink_count; j++)
        if (b->room[j] > 0)
            relax(p, rows, place, b, j);
    // Every turn uncovers one more sink, at most all of them.
    for (uint32_t turn = 0; turn <= p.sink_count; turn++) {
        int64_t distance = FAR;
        uint32_t rank = UINT32_MAX;
        for (uint32_t i = threadIdx.x; i < p.row_count; i += blockDim.x) {
            bool matched = place[i] != DP_CUDA_NONE;
            uint32_t own = i | (matched ? MATCHED : 0);
            if (matched && b->uncovered_at[place[i]] != FAR)
                continue;
            if (rows[i].distance < distance || (rows[i].distance == distance && own < rank)) {
                distance = rows[i].distance;
                rank = own;
            }
        }
        find_least(b, &distance, &rank);
        *end_p = distance;
        if (!(rank & MATCHED))
            return rank;
        uint32_t row = rank & ~MATCHED, sink = place[row];
        __syncthreads();
        if (threadIdx.x == 0) {
            b->uncovered_at[sink] = distance;
            b->via_row[sink] = row;
        }
        __syncthreads();
        relax(p, rows, place, b, sink);
    }
    return DP_CUDA_NONE;
}

// Adjusts prices, then matches row: along the way each sink passes one of its rows on. What an
// adjustment takes from the costs of all uncovered columns goes back to the covered rows: so zeros
// stay zeros, and no cost that is left falls below one.
static __device__ void augment(const dp_cuda_problem &p, row_work *rows, uint32_t *place, board *b,
                               uint32_t row, int64_t end)
{
    for (uint32_t i = threadIdx.x; i < p.row_count; i += blockDim.x)
        if (place[i] != DP_CUDA_NONE && b->uncovered_at[place[i]] != FAR)
            rows[i].price -= end - b->uncovered_at[place[i]];
    __syncthreads();
    for (uint32_t j = threadIdx.x; j < p.sink_count; j += blockDim.x)
        if (b->uncovered_at[j] != FAR)
            b->price[j] += end - b->uncovered_at[j];
    if (threadIdx.x == 0) {
        uint32_t sink = rows[row].via;
        place[row] = sink;
        while (b->room[sink] == 0) {
            row = b->via_row[sink];
            sink = rows[row].via;
            place[row] = sink;
        }
        b->room[sink]--;
        b->left--;
    }
    __syncthreads();
}

static __global__ void __launch_bounds__(DP_CUDA_THREADS_MAX)
    hungarian(dp_cuda_problem p, row_work *rows, uint32_t *place)
{
    SHARED(board, b, 1);
    reduce_matrix(p, rows, place, b);
    match_zeros(p, rows, place, b);
    while (b->left > 0) {
        int64_t end;
        uint32_t row = search(p, rows, place, b, &end);
        if (row == DP_CUDA_NONE)
            return; // never: there are as many places as rows; the host sees it
        augment(p, rows, place, b, row, end);
    }
}

static rt_status create(uint32_t index, uint32_t row_count_max, uint32_t sink_count_max,
                        void **state_p, rt_error *error)
{
    if ((uint64_t)row_count_max * sink_count_max >= MATCHED)
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
    LAUNCH(hungarian, dim3(1), dim3(dp_cuda_threads(&p)), 0, solver->stream, p,
           (row_work *)solver->work, solver->place);
    return dp_cuda_end(solver, &p, sink_of_row, error);
}

extern "C" {
extern const dp_cuda_table dp_hungarian_cuda_table;
const dp_cuda_table dp_hungarian_cuda_table = {"hungarian_cuda", create, dp_cuda_destroy, solve,
                                               dp_cuda_device_s};
}
