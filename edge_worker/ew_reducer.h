// ew_reducer - the thread on which a blocking collective (ew_collective) sums dense gradients.
//
// It works through a vector from its end to its beginning, chunk by chunk, as far as the training
// thread says that the floats are final. One owner calls all but final, which is the training
// thread's.
#ifndef EW_REDUCER_H
#define EW_REDUCER_H

#include "edge_worker/collective/ew_collective.h"

typedef struct ew_reducer ew_reducer;

typedef struct {
    const ew_collective_ops *ops;
    uint32_t rank, worker_count;
    double timeout_s;                // of meeting the others, and of every sum
    uint8_t id[EW_MEETING_ID_BYTES]; // of worker 0
    void *device_state;
    float *values; // count floats, where ops says; outlives the reducer
    float *last;   // one float more, in host memory, which follows when all is computed
    uint32_t count, chunk_floats; // the same on all workers
    int wake_fd;                  // eventfd, written when a state changes
} ew_reducer_config;

// The thread starts to meet the other workers at once: ew_reducer_state tells when it has.
rt_status ew_reducer_create(const ew_reducer_config *config, ew_reducer **reducer_p,
                            rt_error *error);

// is_complete: all workers have come to their regular end. A thread that a library holds for longer
// than a few seconds is left behind.
void ew_reducer_destroy(ew_reducer *reducer, bool is_complete);

// A sum follows; only when state is RT_OK.
void ew_reducer_begin(ew_reducer *reducer);

// Of the sum begun last, values [from, count) are what this worker adds, once the device has done
// what it was given so far; after trained, all of them.
void ew_reducer_final(ew_reducer *reducer, uint32_t from);
void ew_reducer_trained(ew_reducer *reducer);

// RT_OK: all that was begun is there. RT_AGAIN: not yet. Else it has failed and error says how.
rt_status ew_reducer_state(ew_reducer *reducer, rt_error *error);

#endif
