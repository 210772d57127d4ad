// dp_peer_parts - what Bagpipe's designs (dp_peers.h) share: batches as numbers, and what an
// iteration moves.
#ifndef DP_PEER_PARTS_H
#define DP_PEER_PARTS_H

#include "dispatch/cache/dp_directory.h"
#include "dispatch/sim/dp_peers.h"

// A batch whose keys are numbers: those of the directory's records, which are never given back.
typedef struct {
    uint32_t sample_count, key_count, distinct_count;
    uint32_t *offsets;  // sample_count + 1; keys of sample i: [offsets[i], offsets[i + 1])
    uint32_t *records;  // key_count
    uint32_t *distinct; // distinct_count records, by first appearance
    uint32_t offset_capacity, record_capacity, distinct_capacity;
} dp_peer_batch;

// What one iteration moves.
typedef struct {
    rt_counts workers[RT_WORKERS_MAX];
    uint64_t up[RT_WORKERS_MAX], down[RT_WORKERS_MAX];       // bytes of records
    uint64_t sent[RT_WORKERS_MAX], received[RT_WORKERS_MAX]; // of those between two workers
    uint64_t fetched;                                        // rows that a worker had of another
    uint64_t reduce_bytes;                                   // of the vectors that all workers sum
    uint64_t reduce_critical_bytes;                          // those that the next batch needs
    uint64_t window_rows, window_batches;
    uint32_t micro_batch[RT_WORKERS_MAX];
    uint32_t sample_count;
    dp_hits hits;
} dp_peer_moves;

typedef struct {
    const dp_sim_config *sim;
    const dp_peer *peer;
    dp_account_config costs;
    rt_stream *stream;
    rt_batch raw;
    dp_directory directory;
    uint32_t *stamps; // by record: batch that listed it last
    uint32_t stamp_capacity, batch_count;
    uint32_t slot_count, batch_size;
    bool first_touch_moves; // dispatch.first_touch "pull"
    uint64_t iterations;
    dp_sim_result *result;
} dp_peer_run_state;

// The next batch of the stream, of up to sample_count samples, into *batch (zeroed, or used
// before). RT_END; RT_NO_MEMORY; the stream's errors.
rt_status dp_peer_read(dp_peer_run_state *run, uint32_t sample_count, dp_peer_batch *batch,
                       rt_error *error);
void dp_peer_batch_fini(dp_peer_batch *batch);

// Worker of sample i: equal shares, in sequence.
static inline uint32_t dp_peer_worker(const dp_peer_run_state *run, uint32_t sample_count,
                                      uint32_t i)
{
    return (uint32_t)((uint64_t)i * run->costs.worker_count / sample_count);
}

static inline uint32_t dp_peer_field(const dp_peer_run_state *run, uint32_t record)
{
    return rt_key_field(run->directory.records[record].key);
}

// A row from the parameter servers; is_new: it was never there before.
void dp_peer_pull(const dp_peer_run_state *run, dp_peer_moves *moves, uint32_t worker,
                  uint32_t record, bool with_state, bool is_new);
void dp_peer_push_row(const dp_peer_run_state *run, dp_peer_moves *moves, uint32_t worker,
                      uint32_t record);
void dp_peer_push_grad(const dp_peer_run_state *run, dp_peer_moves *moves, uint32_t worker,
                       uint32_t record);
// Its gradient is summed among all workers; is_critical: the next batch needs it.
void dp_peer_reduce(const dp_peer_run_state *run, dp_peer_moves *moves, uint32_t record,
                    bool is_critical);

// A worker has the row of its owner, and returns its gradient.
void dp_peer_fetch(const dp_peer_run_state *run, dp_peer_moves *moves, uint32_t owner,
                   uint32_t worker, uint32_t record);

// An iteration ends: counted after the warm-up. True: it was the last that is wanted.
bool dp_peer_iterated(dp_peer_run_state *run, const dp_peer_moves *moves);

rt_status dp_bagpipe_run(dp_peer_run_state *run, rt_error *error);

#endif
