// dp_ticks - transfer times as integers.
#ifndef DP_TICKS_H
#define DP_TICKS_H

#include "dispatch/cost/dp_site.h"
#include "dispatch/cost/dp_view.h"
#include "dispatch/plan/dp_plan.h"

// Bytes of one row on the wire, record header included (runtime/wire/rt_wire.h): D of the papers.
// Where rows travel rounded, a whole one takes its 32 bits for each value.
uint32_t dp_row_bytes(const dp_layout *layout, uint32_t field, bool with_state);
uint32_t dp_whole_row_bytes(const dp_layout *layout, uint32_t field, bool with_state);
uint32_t dp_grad_bytes(const dp_layout *layout, uint32_t field);

// T = D / B for every field and worker. The tick is chosen so that the slowest transfer takes at
// most 2^18 of them and the cost of one sample stays below DP_COST_MAX.
void dp_ticks_compute(const dp_layout *layout, const dp_link *links, uint32_t worker_count,
                      uint32_t keys_per_sample_max, dp_ticks *ticks);

// The members of dp_ticks beside the row transfers, in the same tick: computing time (by worker,
// seconds per sample) and dense exchange (bytes of one worker, each way).
void dp_ticks_add_load(const dp_link *links, uint64_t dense_bytes,
                       const double *compute_s_per_sample, dp_ticks *ticks);

// The link of the parameter servers: of all shards (each way; 0: no limit), and of each.
// dense_bytes: of all workers together, one way.
void dp_ticks_add_shards(const dp_layout *layout, double ps_bytes_per_s, const dp_shards *shards,
                         uint64_t dense_bytes, dp_ticks *ticks);

// Boxes and their links, in place of dp_ticks_add_shards; dense_bytes: of one worker. participants:
// who takes part.
void dp_ticks_add_boxes(const dp_layout *layout, const dp_boxes *boxes, const dp_rates *rates,
                        uint64_t participants, uint64_t dense_bytes, dp_ticks *ticks);

// Ticks that the parameter servers take, one way, with rows that take so many of ps_row.
double dp_ticks_shards(const dp_ticks *ticks, double row_ticks);

// Seconds that they take for the bytes of rows and of the dense exchange, one way, of all workers.
double dp_shards_s(double ps_bytes_per_s, const dp_shards *shards, double row_bytes,
                   double dense_bytes);

// Floats of one message of the dense exchange, for a link of such bytes/s, the slowest that takes
// part: a part is summed and on its way back while the next is on its way up, so that only the
// first way up and the last way down have nothing beside them; each costs every process some work.
// In 8 bits four times as many, as long as a message may have them.
uint32_t dp_dense_chunk_floats(double bytes_per_s, rt_coding coding);

// What one operation sends: bytes of rows and gradients, and of what only asks or tells (up); and
// of rows and gradients that go to another worker, or come from one.
typedef struct {
    uint64_t up, down, request;
    uint64_t sent, received;
} dp_passing;
dp_passing dp_op_passing(const dp_layout *layout, const dp_op *op);

// The same of all operations of a slice.
dp_passing dp_slice_passing(const dp_layout *layout, const dp_slice *slice);

// Bytes of one worker's row traffic in one iteration, requests included, and what it exchanges with
// other workers.
typedef struct {
    uint64_t up, down;
} dp_traffic;
dp_traffic dp_passing_traffic(const dp_passing *all);

// Seconds on the links that the operations of one worker take one after another: the sum of
// D / B over its pulls and pushes, ESD's transmission cost (section 4). Requests are not counted.
double dp_passing_cost_s(const dp_passing *all, const dp_link *link);

// Rows and gradients that a worker takes from others, in bytes, and the seconds that they take one
// after another: each at the rate of the slower of the two links. dp_passing_cost_s does not have
// them. links: of all workers; or of boxes, and box_of says where workers are.
typedef struct {
    uint64_t rows, gradients, bytes;
    double cost_s;
} dp_handed;
void dp_handed_add(dp_handed *sum, const dp_handed *one);
dp_handed dp_slice_handed(const dp_layout *layout, const dp_link *links, const uint8_t *box_of,
                          uint32_t worker, const dp_slice *slice);

#endif
