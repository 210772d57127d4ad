// ew_run - what the worker's parts share: the state of one run, from the first HELLO to the end.
//
// ew_worker.c begins and ends it, ew_turn.c carries it from slice to slice, ew_messages.c takes
// what coordinator and shards say. The communication thread's.
#ifndef EW_RUN_H
#define EW_RUN_H

#include "bandwidth_probe/bw_passive.h"
#include "edge_worker/executor/ew_bases.h"
#include "edge_worker/executor/ew_device_rows.h"
#include "edge_worker/ew_exchange.h"
#include "edge_worker/ew_links.h"
#include "edge_worker/ew_peers.h"
#include "edge_worker/ew_saving.h"
#include "edge_worker/ew_trainer.h"
#include "edge_worker/ew_weights.h"
#include "edge_worker/ew_worker.h"
#include "runtime/transport/rt_member.h"

// Of the job. Rows are stepped, and gradients sent, once every worker's verdict is known.
typedef enum {
    EW_PHASE_NONE,
    EW_PHASE_TRAINS,
    EW_PHASE_AWAITS_VERDICT,
    EW_PHASE_STEPS_ROWS
} ew_phase;

// The end of the run, as far as this worker has come.
typedef enum {
    EW_FINISH_NONE,
    EW_FINISH_ASKED,   // no slices come after those that are here
    EW_FINISH_ANSWERED // all is carried out and said: only the end of the run is waited for
} ew_finish;

// What the coordinator asks at a cut.
typedef struct {
    bool waits;       // for its answer
    bool wants_dense; // the dense part of the giver goes before the answer
    uint64_t number;
} ew_mark;

typedef struct {
    const ew_worker_config *config;
    rt_transport *transport;
    rt_member member;
    rt_endpoint *endpoints[1 + RT_SHARDS_MAX]; // coordinator, then shards
    uint32_t shard_count;
    ew_peers peers; // dispatch.hand_over, dispatch.reduce
    uint32_t rank;  // among the workers that take part
    ew_device device;
    bool device_open;
    rt_tables tables;                      // that fields share
    uint32_t sequence_field, target_field; // of the model, where it has such
    ew_model *model;
    ew_host_rows rows;          // of a device that computes in host memory
    ew_device_rows device_rows; // of any other
    ew_bases bases;             // bounded staleness; or empty
    ew_codes codes;             // rows travel rounded
    ew_executor *executor;
    ew_trainer *trainer;
    ew_exchange *exchange;
    ew_weights weights;             // of iterations in which it sits out
    bool joined;                    // the exchange
    uint64_t trained_ns, summed_ns; // of the last iteration: its gradients, and their sum
    ew_phase phase;
    ew_job job;
    bool apply;         // the job's iteration counts
    bool is_untrained;  // it is predicted only
    uint64_t iteration; // of the job
    uint64_t place;     // likewise: of its optimizer steps (rt_optimizer_place)
    ew_finish finish;
    ew_mark mark;
    uint32_t giver; // worker that is asked for the dense weights, at a MARK that says so or FINISH
    bool probes;    // the coordinator asked for a LINK
    ew_saving saving;  // of the model, when the coordinator asks for it
    rt_bytes restored; // dense part of a checkpoint, as far as it has come
    int wake_fd;
    uint64_t idle_ns;   // since when there is nothing to train; 0: nothing was trained yet
    uint64_t looked_ns; // until then the waiting is in waited_ns
    uint64_t waited_ns[EW_WAIT_COUNT];
    bw_passive link;
    bool prompt;                   // the next message was waited for
    uint64_t fingerprint;          // of the plan of the job
    ew_executor_statistics so_far; // as of the last report
    rt_counts reported;            // sum over all reports
    rt_wire_report report;
} ew_run;

// As the coordinator knows this worker; among those that take part its rank is w->rank.
static inline uint32_t ew_run_self(const ew_run *w)
{
    return rt_peer(RT_ROLE_WORKER, w->config->rank);
}

// The shard of a place: it listens under the rank that the configuration gives it.
static inline uint32_t ew_run_shard(const ew_run *w, uint32_t place)
{
    return rt_peer(RT_ROLE_PS, rt_bit_at(w->member.welcome.shards_in, place));
}

static inline uint32_t ew_run_self_to_shards(const ew_run *w)
{
    return rt_peer(RT_ROLE_WORKER, w->rank);
}

// ---- ew_turn.c -------------------------------------------------------------------------------

// Waits for messages, then each part does what it can without waiting.
rt_status ew_run_turn(ew_run *w, rt_error *error);

// ---- ew_messages.c ---------------------------------------------------------------------------

// Takes what the coordinator or a shard has sent so far.
rt_status ew_run_drain_coordinator(ew_run *w, rt_error *error);
rt_status ew_run_drain_shard(ew_run *w, uint32_t shard, rt_error *error);

// Takes what other workers have handed over so far.
rt_status ew_run_drain_peers(ew_run *w, rt_error *error);

// Measures the links and tells the coordinator.
rt_status ew_run_measure_links(ew_run *w, double silence_s,
                               rt_status (*progress)(void *, rt_error *), rt_error *error);

// Everything that came is carried out, and the shards have confirmed every push.
bool ew_run_is_idle(const ew_run *run);

// What the coordinator asked for, once nothing else is left to do: a MARK, a probe, the end.
rt_status ew_run_answer_if_idle(ew_run *w, rt_error *error);

// As rt_member_tell_vitals, with what this worker has moved.
rt_status ew_run_tell_vitals(ew_run *w, rt_error *error);

#endif
