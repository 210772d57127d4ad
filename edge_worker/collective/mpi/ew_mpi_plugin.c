// What liblanyard_mpi.so shows: all-reduce by Open MPI, between workers that mpirun started.
//
// MPI_Iallreduce and a look at it again and again, because a wait of MPI has no end of its own. MPI
// belongs to the thread that called create. Once a peer is lost MPI cannot be left in good order:
// then destroy only forgets it, and mpirun ends what is left.
#include <mpi.h>

#include <stdlib.h>
#include <time.h>

#include "edge_worker/collective/ew_collective.h"

#define SPINS 2000 // looks without a pause, then with one
#define PAUSE_NS 20000

typedef struct {
    ew_collective_config config;
    MPI_Comm comm;
    bool failed;
} mpi;

static rt_status failure(mpi *self, int code, rt_error *error)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    self->failed = true;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        return rt_fail(error, RT_PEER, "MPI: error %d", code);
    return rt_fail(error, RT_PEER, "MPI: %s", text);
}

static rt_status meet(mpi *self, rt_error *error)
{
    int provided, size, is_there;
    const int rank = (int)self->config.rank;
    if (MPI_Initialized(&is_there) != MPI_SUCCESS ||
        (!is_there && MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS))
        return rt_fail(error, RT_UNSUPPORTED, "MPI does not start");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if ((uint32_t)size != self->config.worker_count)
        return rt_fail(error, RT_UNSUPPORTED, "MPI knows of %d processes, expected %u workers",
                       size, self->config.worker_count);
    // In the order of our ranks, whatever mpirun gave.
    int code = MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &self->comm);
    if (code != MPI_SUCCESS)
        return failure(self, code, error);
    MPI_Comm_set_errhandler(self->comm, MPI_ERRORS_RETURN);
    return RT_OK;
}

static rt_status create(const ew_collective_config *config, void **state_p, rt_error *error)
{
    if (config->worker_count > 1 && !getenv("OMPI_COMM_WORLD_SIZE"))
        return rt_fail(error, RT_UNSUPPORTED,
                       "network.collective \"mpi\": this worker was not started by mpirun");
    mpi *self = rt_alloc(1, sizeof *self);
    if (!self)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    self->config = *config;
    rt_status status = meet(self, error);
    if (status) {
        rt_free(self);
        return status;
    }
    *state_p = self;
    return RT_OK;
}

static void destroy(void *state, bool is_complete)
{
    mpi *self = state;
    if (is_complete && !self->failed) {
        MPI_Comm_free(&self->comm);
        MPI_Finalize();
    }
    rt_free(self);
}

static rt_status reduce(void *state, float *values, uint32_t count, rt_error *error)
{
    mpi *self = state;
    MPI_Request request;
    const uint64_t end_ns = rt_now_ns() + (uint64_t)(self->config.timeout_s * 1e9);
    int is_done = 0, code = MPI_Iallreduce(MPI_IN_PLACE, values, (int)count, MPI_FLOAT, MPI_SUM,
                                           self->comm, &request);
    for (uint32_t spins = 0; code == MPI_SUCCESS; spins++) {
        code = MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
        if (is_done || code != MPI_SUCCESS)
            break;
        const bool stop = __atomic_load_n(self->config.stop, __ATOMIC_ACQUIRE);
        if (stop || rt_now_ns() > end_ns) {
            self->failed = true;
            if (stop)
                return rt_fail(error, RT_STOPPED, "stopped");
            return rt_fail(error, RT_TIMEOUT, "MPI: no sum of all workers within %g s",
                           self->config.timeout_s);
        }
        if (spins > SPINS)
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    if (code != MPI_SUCCESS)
        return failure(self, code, error);
    return RT_OK;
}

static rt_status reduce_host(void *state, float *value, rt_error *error)
{
    return reduce(state, value, 1, error);
}

static const ew_collective_ops ops = {.name = "mpi",
                                      .create = create,
                                      .destroy = destroy,
                                      .reduce = reduce,
                                      .reduce_host = reduce_host};

extern const ew_mpi_plugin lanyard_mpi_plugin;
__attribute__((visibility("default"))) const ew_mpi_plugin lanyard_mpi_plugin = {EW_MPI_ABI, &ops};
