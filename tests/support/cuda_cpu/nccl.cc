// See nccl.h. The last rank to come computes the sum for all, in the order of ranks; a rank's
// communicator is in progress until then. A rank that aborts leaves the others waiting, as a lost
// process does.
#include "nccl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define GROUPS_MAX 256
#define RANKS_MAX 64

struct group {
    ncclUniqueId id;
    int count, joined, arrived;
    bool lacks_one; // that aborted: its memory may be gone, and no sum is made any more
    size_t floats;
    unsigned long sums; // complete
    float *values[RANKS_MAX];
};

struct cuda_cpu_comm {
    group *of;
    int rank;
    unsigned long given; // sums that this rank has begun
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static group groups[GROUPS_MAX];
static int group_count;

static int failing_rank = -1;

extern "C" void cuda_cpu_nccl_fail(int rank)
{
    failing_rank = rank;
}

// Of a rank whose peers are lost once it has been given so many sums: what it is told when it asks
// how its communicator is, or whether it may ask at all.
static struct {
    int rank;
    unsigned long given;
    bool by_result;
} broken = {-1, 0, false};

extern "C" void cuda_cpu_nccl_break(int rank, unsigned long given, bool by_result)
{
    pthread_mutex_lock(&lock);
    broken = {rank, given, by_result};
    pthread_mutex_unlock(&lock);
}

extern "C" ncclResult_t ncclGetVersion(int *version)
{
    *version = 22707;
    return ncclSuccess;
}

extern "C" ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int next;
    pthread_mutex_lock(&lock);
    memset(id, 0, sizeof *id);
    int number = ++next;
    memcpy(id->internal, &number, sizeof number);
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

static group *find_group(const ncclUniqueId *id, int count)
{
    for (int i = 0; i < group_count; i++)
        if (memcmp(&groups[i].id, id, sizeof *id) == 0)
            return &groups[i];
    if (group_count == GROUPS_MAX || count > RANKS_MAX)
        return NULL;
    group *one = &groups[group_count++];
    one->id = *id;
    one->count = count;
    return one;
}

extern "C" ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int count, ncclUniqueId id,
                                               int rank, ncclConfig_t *config)
{
    if (rank == failing_rank)
        return ncclRemoteError;
    pthread_mutex_lock(&lock);
    group *of = find_group(&id, count);
    bool fits = of && of->count == count && rank < count && config->blocking == 0;
    if (fits) {
        *comm = static_cast<ncclComm_t>(calloc(1, sizeof **comm));
        (*comm)->of = of;
        (*comm)->rank = rank;
        of->joined++;
    }
    pthread_mutex_unlock(&lock);
    return fits ? ncclInProgress : ncclInvalidArgument;
}

extern "C" ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    pthread_mutex_lock(&lock);
    bool there = comm->of->joined == comm->of->count && comm->given <= comm->of->sums;
    *state = there ? ncclSuccess : ncclInProgress;
    const bool lost = comm->rank == broken.rank && comm->given >= broken.given;
    if (lost && !broken.by_result)
        *state = ncclRemoteError;
    pthread_mutex_unlock(&lock);
    return lost && broken.by_result ? ncclRemoteError : ncclSuccess;
}

extern "C" ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    (void)comm;
    return ncclSuccess;
}

extern "C" ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    free(comm);
    return ncclSuccess;
}

extern "C" ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    pthread_mutex_lock(&lock);
    comm->of->lacks_one = true;
    pthread_mutex_unlock(&lock);
    free(comm);
    return ncclSuccess;
}

static void add_up(group *of)
{
    cuda_cpu_device_memory(true);
    for (size_t i = 0; i < of->floats; i++) {
        float sum = of->values[0][i];
        for (int rank = 1; rank < of->count; rank++)
            sum += of->values[rank][i];
        for (int rank = 0; rank < of->count; rank++)
            of->values[rank][i] = sum;
    }
    cuda_cpu_device_memory(false);
}

extern "C" ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                                      ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream)
{
    (void)stream;
    if (from != to || type != ncclFloat || operation != ncclSum)
        return ncclInvalidArgument;
    cuda_cpu_argument("ncclAllReduce", to);
    pthread_mutex_lock(&lock);
    group *of = comm->of;
    bool fits = of->arrived == 0 || of->floats == count;
    of->floats = count;
    of->values[comm->rank] = static_cast<float *>(to);
    comm->given++;
    if (fits && ++of->arrived == of->count && !of->lacks_one) {
        add_up(of);
        of->arrived = 0;
        of->sums++;
    }
    pthread_mutex_unlock(&lock);
    return fits ? ncclInProgress : ncclInvalidArgument;
}

extern "C" const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclInvalidArgument ? "invalid argument" : "an error";
}
