// exchange_case - the dense exchange of several workers in one process, with PS shards between them
// and no network: every step is the test's.
#ifndef EXCHANGE_CASE_H
#define EXCHANGE_CASE_H

#include "edge_worker/ew_exchange.h"

#include "edge_worker/device/ew_device.h"
#include "ps_lite/ps_dense.h"
#include "runtime/rt_hash.h"

#define EXCHANGE_WORKERS_MAX 7
#define EXCHANGE_MESSAGES_MAX 4096

typedef struct {
    rt_message messages[EXCHANGE_MESSAGES_MAX];
    uint32_t begin, end;
} exchange_queue;

typedef struct exchange_group exchange_group;
typedef struct {
    exchange_group *of;
    uint32_t rank;
    ew_exchange *exchange;
    float *host, *values; // the vector, and where the exchange works on it
    int wake_fd;
    bool done;
    exchange_queue up, down;
} exchange_worker;

// Workers of one process, and the shards.
struct exchange_group {
    uint32_t n, count;
    rt_collective kind;
    uint32_t up_max;      // of a worker's messages on their way: more are not taken; 0: all are
    uint32_t shard_count; // of ew_exchange_config; 1 where it is left out
    ps_dense *dense[RT_SHARDS_MAX];
    uint64_t bytes[RT_SHARDS_MAX]; // of payloads that came to each
    rt_random random;
    ew_device device; // nccl: one for all, as one thread does everything
    exchange_worker workers[EXCHANGE_WORKERS_MAX];
};

// NCCL, or what stands in for it; distinct: every worker that asks has a GPU of its own.
const ew_collective_ops *exchange_nccl(bool distinct);

// Of which worker 0 has another version than the others.
const ew_collective_ops *exchange_nccl_of_versions(void);

// n workers whose vectors have count floats. config: collective and what workers have of their own
// are filled in.
exchange_group *exchange_group_open(rt_collective kind, uint32_t n, uint32_t count,
                                    ew_exchange_config config);
void exchange_group_close(exchange_group *g, bool is_complete);

// One worker alone, in a place of the group that is free.
rt_status exchange_worker_open(exchange_group *g, uint32_t rank, ew_exchange_config config,
                               rt_error *error);
void exchange_worker_end(exchange_worker *w, bool is_complete);

// All join and are ready.
rt_status exchange_join_all(exchange_group *g, rt_error *error);

// A turn of everybody, in any order. False: nobody had anything to do.
bool exchange_turn(exchange_group *g, rt_status *status_p, rt_error *error);

// Sleeps until an exchange has news, but not for ever.
void exchange_await_news(exchange_group *g);

// ---- an iteration

float exchange_gradient(uint32_t rank, uint64_t t, uint32_t i);

// The backward pass: gradients become final in pieces, while sums come back.
void exchange_compute(exchange_worker *w, uint64_t t);

bool exchange_take_all(exchange_group *g, rt_status *status_p, rt_error *error);

// Until all have the sum, or one says that there will be none.
rt_status exchange_await_sums(exchange_group *g, rt_error *error);

void exchange_iterate(exchange_group *g, uint64_t t, uint32_t chunk_floats);

// Bit for bit where sums are in worker order, which the one that stands in for NCCL keeps too.
void exchange_check_sums(const exchange_group *g, uint64_t t);

#endif
