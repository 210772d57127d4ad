// nccl (CPU) - what stands in for NCCL in tests: all-reduce between threads of one process, with
// the calls that the project makes, and as asynchronous as NCCL is in the eyes of who waits.
#ifndef CUDA_CPU_NCCL_H
#define CUDA_CPU_NCCL_H

#include "cuda_runtime.h"

#define NCCL_STAND_IN

typedef enum {
    ncclSuccess = 0,
    ncclInvalidArgument = 4,
    ncclRemoteError = 6,
    ncclInProgress = 7
} ncclResult_t;
typedef enum { ncclFloat = 7 } ncclDataType_t;
typedef enum { ncclSum = 0 } ncclRedOp_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef struct {
    int blocking; // 0 here
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER \
    {                           \
        1                       \
    }
typedef struct cuda_cpu_comm *ncclComm_t;

extern "C" {
ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int count, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream);
const char *ncclGetErrorString(ncclResult_t result);

// For tests: the rank whose call to meet the others fails (-1: none).
void cuda_cpu_nccl_fail(int rank);
}

#endif
