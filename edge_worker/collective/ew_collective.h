// ew_collective - sums over all workers by a library made for it: Open MPI, NCCL.
//
// A blocking all-reduce on a thread of its own (ew_reducer). The library is opened at run time by
// a plug-in, so the program builds and starts without it. All workers call reduce equally often,
// with equal counts. Afterwards every worker holds the same bits; the order of the additions is the
// library's, the same in every run with as many workers and as many floats.
#ifndef EW_COLLECTIVE_H
#define EW_COLLECTIVE_H

#include "runtime/rt_base.h"

#define EW_DEVICE_ID_BYTES 16u
#define EW_MEETING_ID_BYTES 128u // of an ncclUniqueId

typedef struct {
    uint32_t rank, worker_count;
    double timeout_s;   // of create and of every reduce
    const uint8_t *id;  // EW_MEETING_ID_BYTES that identify gave to worker 0
    void *device_state; // ew_device.state where the floats are in a device's memory
    // Becomes true, at any time: give up. Read atomically.
    const bool *stop;
} ew_collective_config;

typedef struct {
    const char *name;
    bool device_memory; // of the floats
    // What others need to know of this worker: which device it has (EW_DEVICE_ID_BYTES), the
    // version of its library, which must be the others', and of worker 0 where it is met
    // (EW_MEETING_ID_BYTES; NULL for the others). RT_UNSUPPORTED: this cannot be had here; error
    // says what is missing. NULL: nothing to know.
    rt_status (*identify)(void *device_state, uint8_t *device, uint32_t *version, uint8_t *id,
                          rt_error *error);
    // Meets the other workers. RT_UNSUPPORTED, RT_PEER, RT_TIMEOUT, RT_STOPPED.
    rt_status (*create)(const ew_collective_config *config, void **state_p, rt_error *error);
    // is_complete: all others get here too, after as many sums. Otherwise nobody is waited for.
    void (*destroy)(void *state, bool is_complete);
    // By the thread that uses the device: what it has queued so far comes before the next reduce.
    // NULL: floats are in host memory.
    void (*mark)(void *state);
    // values (count floats, where device_memory says) become their sum over all workers; it is
    // there on return. RT_PEER, RT_TIMEOUT, RT_STOPPED, RT_IO: values hold nothing.
    rt_status (*reduce)(void *state, float *values, uint32_t count, rt_error *error);
    // The same of one float in host memory.
    rt_status (*reduce_host)(void *state, float *value, rt_error *error);
} ew_collective_ops;

// The table of liblanyard_mpi.so, or "ew_nccl" of liblanyard_cuda.so. RT_UNSUPPORTED: error says
// what this machine or build lacks.
rt_status ew_mpi_find(const ew_collective_ops **ops_p, rt_error *error);
rt_status ew_nccl_find(const ew_collective_ops **ops_p, rt_error *error);

// What the symbol EW_MPI_SYMBOL of liblanyard_mpi.so is.
#define EW_MPI_ABI 2u // of this header
#define EW_MPI_SYMBOL "lanyard_mpi_plugin"
#define EW_MPI_FILE "liblanyard_mpi.so"
typedef struct {
    uint32_t abi;
    const ew_collective_ops *ops;
} ew_mpi_plugin;

#endif
