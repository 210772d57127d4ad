#include "edge_worker/ew_exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "edge_worker/ew_lanes.h"
#include "edge_worker/ew_reducer.h"
#include "runtime/rt_log.h"

#define REDUCER_CHUNK_FLOATS (UINT32_C(1) << 18) // a library cuts them further as it likes

_Static_assert(sizeof(((rt_wire_dense_join *)0)->id) == EW_MEETING_ID_BYTES &&
                   sizeof(((rt_wire_dense_join *)0)->device) == EW_DEVICE_ID_BYTES,
               "wire layout");

struct ew_exchange {
    ew_exchange_config config;
    rt_collective kind; // AUTO until it is decided
    const ew_collective_ops *ops[RT_COLLECTIVE_NCCL + 1];
    rt_wire_dense_join own;
    uint64_t join_end_ns; // by then all have joined
    bool asked, meeting;  // a DENSE_JOINED is awaited; auto: the others are to be met
    ew_reducer *reducer;
    float *residual; // bf16, int8: what rounding has lost so far
    ew_lanes lanes;  // ps

    // The iteration in progress.
    bool open, trained;
    bool alone; // takes part alone (ps)
    uint64_t iteration, early_bytes;
    uint32_t final_from; // written by the training thread
};

static const char *name_of(rt_collective kind)
{
    return rt_config_choice_name("network.collective", (int)kind);
}

// ---- what the workers have in common ---------------------------------------------------------

static bool decides_alone(const ew_exchange_config *config)
{
    return config->collective == RT_COLLECTIVE_PS ||
           (config->collective == RT_COLLECTIVE_AUTO &&
            (config->worker_count == 1 || config->wire != RT_CODING_FP32 || config->keyed));
}

// Whether the own worker can take part; where another collective would do, error is not needed.
static rt_status look_for(ew_exchange *x, rt_collective kind, rt_error *error)
{
    const ew_exchange_config *config = &x->config;
    const ew_collective_ops **ops = &x->ops[kind];
    rt_status status = RT_OK;
    *ops = kind == RT_COLLECTIVE_MPI ? config->mpi : config->nccl;
    if (!*ops)
        status = kind == RT_COLLECTIVE_MPI ? ew_mpi_find(ops, error) : ew_nccl_find(ops, error);
    if (!status && (*ops)->device_memory && !config->device_state)
        status = rt_fail(error, RT_UNSUPPORTED, "this worker computes on the CPU");
    if (!status && (*ops)->identify)
        status = (*ops)->identify(config->device_state, x->own.device, &x->own.version,
                                  config->rank == 0 ? x->own.id : NULL, error);
    if (!status)
        x->own.collectives |= 1u << kind;
    return status;
}

static rt_status look_around(ew_exchange *x, rt_error *error)
{
    rt_error why = {0};
    rt_status status = RT_OK;
    x->own.collectives = 1u << RT_COLLECTIVE_PS;
    if (x->config.collective == RT_COLLECTIVE_AUTO)
        (void)look_for(x, RT_COLLECTIVE_NCCL, &why);
    else
        status = look_for(x, x->config.collective, &why);
    return status ? rt_fail(error, status, "network.collective \"%s\": %.200s",
                            name_of(x->config.collective), why.text)
                  : RT_OK;
}

// The worker that keeps the others from using kind; count: none does.
static uint32_t find_without(const rt_wire_dense_join *joins, uint32_t count, rt_collective kind)
{
    static const uint8_t none[sizeof joins->device] = {0};
    for (uint32_t w = 0; w < count; w++) {
        if (!(joins[w].collectives & 1u << kind))
            return w;
        if (kind == RT_COLLECTIVE_NCCL && joins[w].version != joins[0].version)
            return w;
        for (uint32_t v = 0; v < w && kind == RT_COLLECTIVE_NCCL; v++)
            if (memcmp(joins[v].device, joins[w].device, sizeof none) == 0)
                return w;
    }
    return count;
}

static rt_status start_reducer(ew_exchange *x, const rt_wire_dense_join *first, rt_error *error)
{
    const ew_exchange_config *config = &x->config;
    const ew_collective_ops *ops = x->ops[x->kind];
    ew_reducer_config reducer = {.ops = ops,
                                 .rank = config->rank,
                                 .worker_count = config->worker_count,
                                 .timeout_s = config->timeout_s,
                                 .device_state = config->device_state,
                                 .values = ops->device_memory ? config->device_gradients
                                                              : config->gradients,
                                 .count = config->count - 1,
                                 .last = config->gradients + config->count - 1,
                                 .chunk_floats = REDUCER_CHUNK_FLOATS,
                                 .wake_fd = config->wake_fd};
    memcpy(reducer.id, first->id, sizeof reducer.id);
    return ew_reducer_create(&reducer, &x->reducer, error);
}

// Every worker gets the same records, so all come to the same end.
static rt_status decide(ew_exchange *x, const rt_wire_dense_join *joins, rt_error *error)
{
    const uint32_t count = x->config.worker_count;
    const rt_collective asked = x->config.collective;
    rt_collective kind = asked == RT_COLLECTIVE_AUTO ? RT_COLLECTIVE_NCCL : asked;
    uint32_t without = find_without(joins, count, kind);
    if (asked == RT_COLLECTIVE_AUTO && without < count)
        kind = RT_COLLECTIVE_PS;
    else if (without < count)
        return rt_fail(error, RT_UNSUPPORTED,
                       "network.collective \"%s\": worker %" PRIu32 " cannot take part%s",
                       name_of(kind), without,
                       kind == RT_COLLECTIVE_NCCL
                           ? ": it has no NCCL, another version of it, or no GPU of its own"
                           : "");
    x->kind = kind;
    x->meeting = asked == RT_COLLECTIVE_AUTO && kind == RT_COLLECTIVE_NCCL;
    return kind == RT_COLLECTIVE_PS ? RT_OK : start_reducer(x, joins, error);
}

// auto: whether all have met the others, which what they can do does not tell: a firewall, say.
static void decide_again(ew_exchange *x, const rt_wire_dense_join *joins)
{
    uint32_t without = find_without(joins, x->config.worker_count, RT_COLLECTIVE_NCCL);
    if (without == x->config.worker_count)
        return;
    ew_reducer_destroy(x->reducer, false);
    x->reducer = NULL;
    x->kind = RT_COLLECTIVE_PS;
    rt_warn("network.collective \"auto\": ps, as worker %" PRIu32
            " could not meet the others by NCCL",
            without);
}

static rt_status take_joined(ew_exchange *x, const rt_message *message, rt_error *error)
{
    if (!x->asked || rt_message_header(message)->count != x->config.worker_count)
        return rt_fail(error, RT_WIRE, "PS shard 0: a DENSE_JOINED that nobody waits for");
    rt_wire_dense_join joins[RT_WORKERS_MAX];
    memcpy(joins, rt_message_payload(message), x->config.worker_count * sizeof *joins);
    x->asked = false;
    if (x->kind == RT_COLLECTIVE_AUTO)
        return decide(x, joins, error);
    decide_again(x, joins);
    return RT_OK;
}

static rt_status send_join(ew_exchange *x, rt_error *error)
{
    rt_message message;
    x->asked = true;
    if (rt_message_create(&message, RT_MESSAGE_DENSE_JOIN, rt_peer(RT_ROLE_WORKER, x->config.rank),
                          0, 1, sizeof x->own))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    memcpy(rt_message_payload(&message), &x->own, sizeof x->own);
    rt_status status = x->config.send(x->config.send_context, 0, &message);
    rt_message_release(&message);
    return status ? rt_fail(error, status, "cannot send to PS shard 0: %s", rt_status_text(status))
                  : RT_OK;
}

rt_status ew_exchange_join(ew_exchange *x, rt_error *error)
{
    x->join_end_ns = rt_now_ns() + (uint64_t)(x->config.timeout_s * 1e9);
    return x->kind == RT_COLLECTIVE_AUTO ? send_join(x, error) : RT_OK;
}

// auto: tells the others whether the meeting came about. RT_AGAIN: it is not over, or they are to
// answer, who may take as long as a meeting may.
static rt_status end_meeting(ew_exchange *x, rt_error *error)
{
    rt_error why = {0};
    rt_status status = ew_reducer_state(x->reducer, &why);
    if (status == RT_AGAIN)
        return RT_AGAIN;
    if (status) {
        rt_warn("network.collective \"auto\": without NCCL: %.200s", why.text);
        x->own.collectives = 1u << RT_COLLECTIVE_PS;
    }
    x->meeting = false;
    x->join_end_ns = rt_now_ns() + (uint64_t)(2 * x->config.timeout_s * 1e9);
    status = send_join(x, error);
    return status ? status : RT_AGAIN;
}

rt_status ew_exchange_ready(ew_exchange *x, rt_error *error)
{
    rt_status status = RT_AGAIN;
    if (x->kind == RT_COLLECTIVE_PS)
        return RT_OK;
    if (x->meeting)
        return end_meeting(x, error);
    if (x->reducer && !x->asked)
        status = ew_reducer_state(x->reducer, error);
    // Once it has met the others, the reducer's own limits hold.
    if (status == RT_AGAIN && !x->open && rt_now_ns() > x->join_end_ns)
        return rt_fail(error, RT_TIMEOUT, "network.collective: not all workers joined within %g s",
                       x->config.timeout_s);
    return status;
}

const char *ew_exchange_name(const ew_exchange *x)
{
    return name_of(x->kind);
}

bool ew_exchange_overlaps(const ew_exchange *x)
{
    return x->config.overlap;
}

bool ew_exchange_on_device(const ew_exchange *x)
{
    return x->reducer && x->ops[x->kind]->device_memory;
}

// ---- create, destroy -------------------------------------------------------------------------

static rt_status create_lanes(ew_exchange *x, rt_error *error)
{
    const ew_exchange_config *config = &x->config;
    if (config->wire != RT_CODING_FP32) {
        x->residual = rt_alloc(config->count, sizeof *x->residual);
        if (!x->residual)
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
    x->lanes = (ew_lanes){.stripes = {config->count, config->shard_count},
                          .coding = config->wire,
                          .sender = rt_peer(RT_ROLE_WORKER, config->rank),
                          .gradients = config->gradients,
                          .residual = x->residual,
                          .send = config->send,
                          .send_context = config->send_context};
    return ew_lanes_init(&x->lanes, error);
}

rt_status ew_exchange_create(const ew_exchange_config *config, ew_exchange **exchange_p,
                             rt_error *error)
{
    ew_exchange *x = rt_alloc(1, sizeof *x);
    if (!x)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    x->config = *config;
    rt_status status = create_lanes(x, error);
    if (config->keyed && config->collective == RT_COLLECTIVE_AUTO && config->device_state)
        rt_info("network.collective \"auto\": ps, as NCCL does not encrypt and keys are in use; "
                "\"nccl\" asks for it all the same");
    x->kind = decides_alone(config) ? RT_COLLECTIVE_PS : RT_COLLECTIVE_AUTO;
    if (!status && x->kind == RT_COLLECTIVE_AUTO)
        status = look_around(x, error);
    if (status) {
        ew_exchange_destroy(x, false);
        return status;
    }
    *exchange_p = x;
    return RT_OK;
}

void ew_exchange_destroy(ew_exchange *x, bool is_complete)
{
    if (!x)
        return;
    ew_reducer_destroy(x->reducer, is_complete);
    ew_lanes_fini(&x->lanes);
    rt_free(x->residual);
    rt_free(x);
}

// ---- an iteration ----------------------------------------------------------------------------

// Who takes part alone has the sum in its own gradients: nothing is sent.
bool ew_exchange_alone(const ew_exchange *x)
{
    return x->alone;
}

void ew_exchange_begin(ew_exchange *x, uint64_t iteration, uint32_t chunk_floats, uint64_t workers)
{
    rt_assert(!x->open);
    x->open = true;
    x->trained = false;
    x->alone = !x->reducer && rt_bit_count(workers) == 1;
    x->iteration = iteration;
    x->early_bytes = 0;
    if (!x->alone)
        ew_lanes_begin(&x->lanes, iteration, chunk_floats, workers);
    __atomic_store_n(&x->final_from, x->config.count, __ATOMIC_RELEASE);
    if (x->reducer)
        ew_reducer_begin(x->reducer);
}

void ew_exchange_final(ew_exchange *x, uint32_t from)
{
    const uint64_t one = 1;
    const uint32_t step = ew_lanes_step(&x->lanes), before = x->final_from; // this thread's
    if (!x->config.overlap || x->alone || from >= before)
        return;
    __atomic_store_n(&x->final_from, from, __ATOMIC_RELEASE);
    if (x->reducer)
        ew_reducer_final(x->reducer, from);
    else if ((from + step - 1) / step < (before + step - 1) / step && // a whole one more
             write(x->config.wake_fd, &one, sizeof one) < 0) {
        // it is full of wake-ups
    }
}

void ew_exchange_trained(ew_exchange *x)
{
    x->trained = true;
    __atomic_store_n(&x->final_from, 0, __ATOMIC_RELEASE);
    if (x->reducer)
        ew_reducer_trained(x->reducer);
}

rt_status ew_exchange_advance(ew_exchange *x, rt_error *error)
{
    const bool sends = x->open && !x->reducer && !x->alone;
    const uint32_t final_from =
        sends ? __atomic_load_n(&x->final_from, __ATOMIC_ACQUIRE) : x->config.count;
    uint64_t bytes = 0;
    rt_status status = ew_lanes_advance(&x->lanes, final_from, &bytes, error);
    x->early_bytes += x->trained ? 0 : bytes;
    return status;
}

bool ew_exchange_is_held_up(const ew_exchange *x)
{
    return ew_lanes_held_up(&x->lanes);
}

rt_status ew_exchange_post(ew_exchange *x, uint32_t shard, rt_message *message, rt_error *error)
{
    return ew_lanes_post(&x->lanes, shard, message, error);
}

bool ew_exchange_takes(uint32_t type)
{
    return type == RT_MESSAGE_DENSE_SUM || type == RT_MESSAGE_DENSE_SUM_BF16 ||
           type == RT_MESSAGE_DENSE_SUM_INT8 || type == RT_MESSAGE_DENSE_JOINED;
}

rt_status ew_exchange_receive(ew_exchange *x, const rt_message *message, rt_error *error)
{
    if (rt_message_header(message)->type == RT_MESSAGE_DENSE_JOINED)
        return take_joined(x, message, error);
    if (!x->open || x->reducer || x->alone)
        return rt_fail(error, RT_WIRE, "PS shard %" PRIu32 ": a dense sum that nobody waits for",
                       rt_peer_rank(rt_message_header(message)->sender));
    return ew_lanes_take(&x->lanes, message, error);
}

rt_status ew_exchange_take(ew_exchange *x, rt_error *error)
{
    rt_status status;
    if (!x->open || !x->trained)
        return RT_AGAIN;
    if (x->reducer)
        status = ew_reducer_state(x->reducer, error);
    else
        status = x->alone || ew_lanes_complete(&x->lanes) ? RT_OK : RT_AGAIN;
    x->open = status == RT_AGAIN;
    return status;
}

bool ew_exchange_last(const ew_exchange *x, float *sum)
{
    const uint32_t last = x->config.count - 1;
    rt_error ignored;
    bool there = x->reducer ? x->trained && ew_reducer_state(x->reducer, &ignored) == RT_OK
                 : x->alone ? x->trained
                            : ew_lanes_arrived(&x->lanes, last);
    if (there)
        *sum = x->config.gradients[last];
    return there;
}

bool ew_exchange_busy(const ew_exchange *x)
{
    return x->open;
}

uint64_t ew_exchange_early_bytes(const ew_exchange *x)
{
    return x->early_bytes;
}
