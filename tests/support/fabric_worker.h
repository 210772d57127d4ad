// fabric_worker - the inside of a fabric, and what a worker of it does to train.
#ifndef FABRIC_WORKER_H
#define FABRIC_WORKER_H

#include "ps_lite/ps_shard.h"
#include "tests/support/fabric.h"
#include "tests/support/fabric_parts.h"

typedef struct fabric fabric;

typedef struct {
    fabric *fabric;
    uint32_t rank;
    ew_executor *executor;
    ew_host_rows rows;
    ew_bases bases; // bounded staleness
    ew_codes codes; // rows travel rounded
    ew_model *model;
    ew_job job;
    bool found, training, stepped; // the job is known; began; its step is done
    bool awaits_verdict;           // its rows are as they were before the training
    bool dense_open, apply;
    bool blocked; // a full queue refused a message
    ew_exchange *exchange;
    ew_weights weights;
    uint64_t iteration, place; // of the last job
    uint64_t trained;          // sequence of the last job, or sweep
    uint64_t given;            // of the last slice that was handed out to it
    ew_step_result step;
    double loss_sum;
    float *before; // rows of the job when it began
    uint32_t speed;
} fabric_worker;

typedef struct {
    fabric *fabric;
    uint32_t rank;
    ps_shard *shard;
    bool unsent;
    uint32_t speed;
} fabric_shard;

struct fabric {
    const fabric_plan *plan;
    const fabric_schedule *schedule;
    fabric_result *result;
    dp_traffic bytes; // of rows, that were sent
    uint32_t n, s;    // workers, shards
    fabric_worker *workers;
    fabric_shard *shards;
    fabric_queue *down;   // coordinator to worker
    fabric_queue *up;     // worker x shard
    fabric_queue *back;   // shard x worker
    fabric_queue *across; // worker x worker, where rows are handed over
    uint32_t handed;      // slices given out
    uint32_t floor;       // of the sweep that was given out last and is not carried out; or 0
    rt_random random;
};

// Ends the test if a call of this worker failed.
void fabric_must(const fabric_worker *w, rt_status status, const rt_error *error);

bool fabric_takes_part(const fabric_worker *w, const rt_wire_slice *slice);

// Training of the job that was found, between two choices of the schedule.
void fabric_begin_job(fabric_worker *w);
void fabric_end_job(fabric_worker *w);

// A sum of the dense exchange came: the verdict settles the job, all of it steps the dense part.
void fabric_take_dense_sum(fabric_worker *w, const rt_message *message);

#endif
