#include "edge_worker/ew_exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "edge_worker/ew_reducer.h"
#include "runtime/numbers/rt_bf16.h"
#include "runtime/rt_log.h"

#define CHUNKS_USUAL 1024u // at most, unless a chunk would be too large for a message
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
    float *residual; // bf16: what rounding has lost so far

    // The iteration in progress.
    bool open, trained;
    uint64_t iteration, early_bytes;
    uint32_t chunk_floats;
    uint32_t final_from;  // written by the training thread
    uint32_t sent_from;   // floats from here on are sent
    rt_message unsent;    // or all but these, which the transport did not take yet; else empty
    uint32_t chunks_left; // whose sums have not come
    uint64_t arrived[EW_EXCHANGE_CHUNKS_MAX / 64];
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
            (config->worker_count == 1 || config->wire == RT_DENSE_BF16 || config->keyed));
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

rt_status ew_exchange_create(const ew_exchange_config *config, ew_exchange **exchange_p,
                             rt_error *error)
{
    const uint32_t most = EW_EXCHANGE_CHUNKS_MAX * RT_WIRE_DENSE_CHUNK_FLOATS_MAX;
    rt_status status = RT_OK;
    if (config->count > most)
        return rt_fail(error, RT_UNSUPPORTED,
                       "%" PRIu32 " dense gradients, at most %" PRIu32 " can be exchanged",
                       config->count, most);
    ew_exchange *x = rt_alloc(1, sizeof *x);
    if (!x)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    x->config = *config;
    x->chunk_floats = 1;
    if (config->wire == RT_DENSE_BF16) {
        x->residual = rt_alloc(config->count, sizeof *x->residual);
        if (!x->residual)
            status = rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
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
    rt_message_release(&x->unsent);
    rt_free(x->residual);
    rt_free(x);
}

// ---- an iteration ----------------------------------------------------------------------------

static uint32_t chunk_of(uint32_t planned, uint32_t count)
{
    uint64_t least = (count + CHUNKS_USUAL - 1) / CHUNKS_USUAL;
    uint64_t floats = rt_max_u64(rt_max_u64(planned, least), 1);
    return (uint32_t)rt_min_u64(floats, RT_WIRE_DENSE_CHUNK_FLOATS_MAX);
}

void ew_exchange_begin(ew_exchange *x, uint64_t iteration, uint32_t chunk_floats)
{
    const uint32_t count = x->config.count;
    rt_assert(!x->open);
    x->open = true;
    x->trained = false;
    x->iteration = iteration;
    x->early_bytes = 0;
    x->chunk_floats = chunk_of(chunk_floats, count);
    x->chunks_left = (count + x->chunk_floats - 1) / x->chunk_floats;
    x->sent_from = count;
    memset(x->arrived, 0, sizeof x->arrived);
    __atomic_store_n(&x->final_from, count, __ATOMIC_RELEASE);
    if (x->reducer)
        ew_reducer_begin(x->reducer);
}

void ew_exchange_final(ew_exchange *x, uint32_t from)
{
    const uint64_t one = 1;
    const uint32_t chunk = x->chunk_floats, before = x->final_from; // this thread's
    if (!x->config.overlap || from >= before)
        return;
    __atomic_store_n(&x->final_from, from, __ATOMIC_RELEASE);
    if (x->reducer)
        ew_reducer_final(x->reducer, from);
    else if ((from + chunk - 1) / chunk < (before + chunk - 1) / chunk && // a whole one more
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

static rt_status send_unsent(ew_exchange *x, rt_error *error)
{
    if (!x->unsent.data)
        return RT_OK;
    rt_status status = x->config.send(x->config.send_context, 0, &x->unsent);
    if (status && status != RT_AGAIN)
        return rt_fail(error, status, "cannot send to PS shard 0: %s", rt_status_text(status));
    return status;
}

// What a message holds stays as it is, sent or not: with bf16 the residual has changed.
static rt_status fill_chunk(ew_exchange *x, uint32_t first, uint32_t floats, rt_error *error)
{
    rt_message message;
    const bool bf16 = x->config.wire == RT_DENSE_BF16;
    const size_t bytes = floats * (bf16 ? sizeof(uint16_t) : sizeof(float));
    rt_status status =
        rt_message_create(&message, bf16 ? RT_MESSAGE_DENSE_GRAD_BF16 : RT_MESSAGE_DENSE_GRAD,
                          rt_peer(RT_ROLE_WORKER, x->config.rank), x->iteration, first, bytes);
    if (status)
        return rt_fail(error, status, "out of memory");
    uint8_t *payload = rt_message_payload(&message);
    if (bf16)
        rt_bf16_pack_feedback(x->config.gradients + first, x->residual + first, floats,
                              (uint16_t *)(void *)payload);
    else
        memcpy(payload, x->config.gradients + first, bytes);
    if (!x->trained)
        x->early_bytes += bytes;
    x->unsent = message;
    return RT_OK;
}

rt_status ew_exchange_advance(ew_exchange *x, rt_error *error)
{
    const uint32_t final_from = __atomic_load_n(&x->final_from, __ATOMIC_ACQUIRE);
    if (!x->open || x->reducer)
        return RT_OK;
    rt_status status = send_unsent(x, error);
    while (!status && x->sent_from > 0) {
        const uint32_t first = (x->sent_from - 1) / x->chunk_floats * x->chunk_floats;
        if (first < final_from)
            break;
        status = fill_chunk(x, first, x->sent_from - first, error);
        if (status)
            break;
        x->sent_from = first;
        status = send_unsent(x, error);
    }
    return status == RT_AGAIN ? RT_OK : status;
}

bool ew_exchange_is_held_up(const ew_exchange *x)
{
    return x->unsent.data != NULL;
}

static rt_status take_sum(ew_exchange *x, const rt_message *message, rt_error *error)
{
    const rt_wire_header *header = rt_message_header(message);
    const bool bf16 = header->type == RT_MESSAGE_DENSE_SUM_BF16;
    const uint32_t first = header->count, count = x->config.count, chunk = first / x->chunk_floats;
    const uint64_t floats = header->payload_bytes / (bf16 ? sizeof(uint16_t) : sizeof(float));
    if (!x->open || x->reducer || header->iteration != x->iteration ||
        bf16 != (x->config.wire == RT_DENSE_BF16) || first >= count || first < x->sent_from ||
        first % x->chunk_floats || floats != rt_min_u64(count - first, x->chunk_floats) ||
        x->arrived[chunk / 64] & rt_bit(chunk % 64))
        return rt_fail(error, RT_WIRE, "PS shard 0: a dense sum that nobody waits for");
    if (bf16)
        rt_bf16_unpack((const uint16_t *)(const void *)rt_message_payload(message),
                       (uint32_t)floats, x->config.gradients + first);
    else
        memcpy(x->config.gradients + first, rt_message_payload(message), floats * sizeof(float));
    x->arrived[chunk / 64] |= rt_bit(chunk % 64);
    x->chunks_left--;
    return RT_OK;
}

bool ew_exchange_takes(uint32_t type)
{
    return type == RT_MESSAGE_DENSE_SUM || type == RT_MESSAGE_DENSE_SUM_BF16 ||
           type == RT_MESSAGE_DENSE_JOINED;
}

rt_status ew_exchange_receive(ew_exchange *x, const rt_message *message, rt_error *error)
{
    if (rt_message_header(message)->type == RT_MESSAGE_DENSE_JOINED)
        return take_joined(x, message, error);
    return take_sum(x, message, error);
}

rt_status ew_exchange_take(ew_exchange *x, rt_error *error)
{
    rt_status status;
    if (!x->open || !x->trained)
        return RT_AGAIN;
    status = x->reducer ? ew_reducer_state(x->reducer, error) : (x->chunks_left ? RT_AGAIN : RT_OK);
    x->open = status == RT_AGAIN;
    return status;
}

bool ew_exchange_last(const ew_exchange *x, float *sum)
{
    const uint32_t last = x->config.count - 1, chunk = last / x->chunk_floats;
    rt_error ignored;
    bool there = x->reducer ? x->trained && ew_reducer_state(x->reducer, &ignored) == RT_OK
                            : (x->arrived[chunk / 64] & rt_bit(chunk % 64)) != 0;
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
