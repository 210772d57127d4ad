// ew_run - what the worker's parts share: the state of one run, from the first HELLO to the end.
//
// ew_worker.c begins and ends it, ew_turn.c carries it from slice to slice, ew_messages.c takes
// what coordinator and shards say. The communication thread's.
#ifndef EW_RUN_H
#define EW_RUN_H

#include "bandwidth_probe/bw_passive.h"
#include "bandwidth_probe/bw_probe.h"
#include "edge_worker/ew_exchange.h"
#include "edge_worker/ew_trainer.h"
#include "edge_worker/ew_weights.h"
#include "edge_worker/ew_worker.h"
#include "edge_worker/executor/ew_bases.h"
#include "edge_worker/executor/ew_device_rows.h"
#include "runtime/config/rt_config.h"
#include "runtime/files/rt_parcel.h"
#include "runtime/transport/rt_guests.h"
#include "runtime/transport/rt_member.h"
#include "runtime/wire/rt_control.h"

// ---- ew_links.c -------------------------------------------------------------------------------

// Probes of a worker's link to every box of shards (bw_probe), one box after the other, over the
// connections that its rows use.
//
// Blocking, on the thread that owns the endpoints. A plain value.

typedef struct {
    const rt_transport_ops *ops;
    rt_endpoint *const *shards; // connected; nothing else arrives on them meanwhile
    uint32_t shard_count;
    bw_passive *passive;                       // is told what the probes read
    uint32_t self;                             // as the shards know the worker
    uint32_t shards_in;                        // rt_wire_welcome
    const char (*addresses)[RT_ADDRESS_MAX];   // of the shards: they tell which share a box
    double turn_s, silence_s;                  // bw_probe_config
    rt_status (*progress)(void *, rt_error *); // likewise, with context
    void *context;
} ew_links_config;

// Fills in links (RT_SHARDS_MAX), one for each box but the worker's own (passive->local), in order
// of the first shard there. There may be no other: *count is 0. Errors are
// bw_probe_run's; RT_PEER: a shard is gone.
rt_status ew_links_measure(const ew_links_config *config, rt_wire_link *links, uint32_t *count,
                           rt_error *error);

// ---- ew_saving.c ------------------------------------------------------------------------------

// The dense part of the model on its way to the coordinator's box.
//
// One thread, one model.

typedef struct {
    rt_member *member;
    rt_bytes bytes;
    rt_parcel_out out;
} ew_saving;

void ew_saving_fini(ew_saving *saving); // also of a zeroed one

// Waits until training is done, then begins. member stays the caller's. RT_NO_MEMORY, RT_PEER.
rt_status ew_saving_begin(ew_saving *saving, rt_member *member, uint32_t self, ew_trainer *trainer,
                          rt_error *error);

// Takes a TAKEN and sends what may be sent. RT_WIRE, RT_NO_MEMORY, RT_PEER; or why the coordinator
// cannot write it.
rt_status ew_saving_take(ew_saving *saving, const rt_message *message, rt_error *error);

// ---- ew_peers.c -------------------------------------------------------------------------------

// A worker's connections to the other workers of its run (dispatch.hand_over, dispatch.reduce).
//
// Every worker listens, and connects to all others: rows and gradients go out by its own
// connections, what comes in comes by its listener, from those that have said HELLO. An address is
// told to the coordinator in HELLO, all of them come back in PEERS. A worker that is gone is the
// coordinator's to find; what goes to it is dropped. Only where the coordinator says nothing for
// `patience_s` does the end of such a connection end this worker. One thread. A plain value.

typedef struct {
    const rt_transport_ops *ops; // NULL: nothing is handed over
    rt_transport *transport;
    double patience_s;
    char address[RT_NAME_MAX]; // under which others reach the listener
    rt_guests guests;
    uint32_t rank, worker_count;         // places
    uint64_t workers;                    // mask of ranks of the configuration, by place
    bool connected;                      // PEERS has come
    rt_endpoint *others[RT_WORKERS_MAX]; // by place; NULL: the worker itself, or not yet
    uint64_t gone_ns;                    // since when one is gone; 0: all are there
    uint32_t gone;                       // its place
} ew_peers;

typedef struct {
    const rt_config *config;
    rt_identity identity;
    uint32_t rank;           // of the configuration
    const char *coordinator; // address
    rt_notify *notify;       // or NULL
} ew_peers_config;

// Listens, where the configuration asks for it (rt_dispatch_is_mutual); otherwise does nothing.
// Errors are rt_guests_listen's.
rt_status ew_peers_listen(ew_peers *peers, const rt_transport_ops *ops, rt_transport *transport,
                          const ew_peers_config *config, rt_error *error);

// Who the others are, by WELCOME; place: of this worker.
void ew_peers_welcome(ew_peers *peers, const rt_wire_welcome *welcome, uint32_t place);

// PEERS: connects to all others and greets them. RT_WIRE: it does not fit the run; RT_CONFIG: a
// worker's key is not on the list of those that may join; RT_IO.
rt_status ew_peers_connect(ew_peers *peers, const rt_message *message, rt_error *error);

// To the worker of a place, as rt_transport_ops.send; but one that is gone is no error: the message
// is dropped.
rt_status ew_peers_send(ew_peers *peers, uint32_t place, rt_message *message);

// Appends the endpoints to be waited for; at most RT_WORKERS_MAX. Returns how many.
uint32_t ew_peers_endpoints(const ew_peers *peers, rt_endpoint **endpoints);

// The next message of a worker to this one, as rt_peer of its place. RT_AGAIN: none. RT_WIRE: one
// broke the protocol; error names it.
rt_status ew_peers_receive(ew_peers *peers, uint32_t *peer_p, rt_message *message, rt_error *error);

// Looks whether connections to others have ended. RT_PEER: one did patience_s ago, and the run goes
// on; RT_CONFIG: one refused this worker.
rt_status ew_peers_look(ew_peers *peers, rt_error *error);

void ew_peers_end(ew_peers *peers, uint32_t linger_ms);

// -----------------------------------------------------------------------------------------------

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
