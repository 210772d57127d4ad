// Messages in and out, the chains of slots, and the work list: all runs in the caller's thread.
// What a call makes ready is worked off before it returns, so nothing is ready between two calls.
#include "edge_worker/executor/ew_executor.h"

#include <inttypes.h>
#include <string.h>

#include "edge_worker/executor/ew_executor_parts.h"
#include "runtime/rt_hash.h"

// ---- creation --------------------------------------------------------------------------------

rt_status ew_executor_create(const ew_executor_config *config, ew_executor **executor_p)
{
    rt_assert(config->shard_count >= 1 && config->slice_count_max >= 1);
    ew_executor *e = rt_alloc(1, sizeof *e);
    if (!e)
        return RT_NO_MEMORY;
    e->config = *config;
    e->partner_count = config->shard_count;
    if (config->limits.hands || config->limits.sums)
        e->partner_count += config->limits.worker_count;
    e->slice_count = config->slice_count_max;
    if (config->limits.sums) // a slice's sums may be under way while the next ones are trained
        e->slice_count *= 2;
    e->slices = rt_alloc(e->slice_count, sizeof *e->slices);
    e->slots = rt_alloc(config->limits.slot_count, sizeof *e->slots);
    e->push_rows = rt_alloc(e->partner_count, sizeof *e->push_rows);
    e->push_whole = rt_alloc(e->partner_count, sizeof *e->push_whole);
    e->push_grads = rt_alloc(e->partner_count, sizeof *e->push_grads);
    e->pulls = rt_alloc(e->partner_count, sizeof *e->pulls);
    e->pushes = rt_alloc(e->partner_count, sizeof *e->pushes);
    e->batch_slots = rt_alloc(EW_BATCH_MAX, sizeof *e->batch_slots);
    e->batch_keys = rt_alloc(EW_BATCH_MAX, sizeof *e->batch_keys);
    e->batch_rows = rt_alloc(EW_BATCH_MAX, sizeof *e->batch_rows);
    if (config->codes)
        e->batch_values =
            rt_alloc((size_t)EW_BATCH_CODED * (config->values + config->state), sizeof(float));
    if (!e->slices || !e->slots || (config->codes && !e->batch_values) || !e->push_rows ||
        !e->push_whole || !e->push_grads || !e->pulls || !e->pushes || !e->batch_slots ||
        !e->batch_keys || !e->batch_rows) {
        ew_executor_destroy(e);
        return RT_NO_MEMORY;
    }
    for (uint32_t i = 0; i < e->slice_count; i++)
        e->slices[i].index = i;
    for (uint32_t p = 0; p < e->partner_count; p++) {
        e->pushes[p].credits = config->push_credits;
        e->pushes[p].counted = p < config->shard_count;
    }
    *executor_p = e;
    return RT_OK;
}

void ew_executor_destroy(ew_executor *e)
{
    if (!e)
        return;
    for (uint32_t i = 0; e->slices && i < e->slice_count; i++) {
        rt_message_release(&e->slices[i].message);
        rt_free(e->slices[i].nodes);
        rt_free(e->slices[i].staging);
        rt_free(e->slices[i].handed);
        rt_free(e->slices[i].sums);
        rt_free(e->slices[i].gradients);
    }
    for (uint32_t p = 0; p < e->partner_count; p++) {
        if (e->pulls)
            ew_outlet_fini(&e->pulls[p]);
        if (e->pushes)
            ew_outlet_fini(&e->pushes[p]);
    }
    for (uint32_t i = 0; i < e->parked_count; i++)
        rt_message_release(&e->parked[i].message);
    rt_free(e->parked);
    rt_free(e->slices);
    rt_free(e->slots);
    rt_free(e->push_rows);
    rt_free(e->push_whole);
    rt_free(e->push_grads);
    rt_free(e->pulls);
    rt_free(e->pushes);
    rt_free(e->batch_slots);
    rt_free(e->batch_keys);
    rt_free(e->batch_rows);
    rt_free(e->batch_values);
    rt_free(e);
}

// ---- messages out ----------------------------------------------------------------------------

static rt_status flush_outlet(ew_executor *e, uint32_t partner, ew_outlet *outlet, rt_error *error)
{
    char name[32];
    const rt_status status =
        ew_outlet_flush(outlet, e->config.send, e->config.send_context, partner);
    if (status)
        return rt_fail(error, status, "cannot send to %s: %s", ew_partner_name(e, partner, name),
                       rt_status_text(status));
    return RT_OK;
}

rt_status ew_executor_flush(ew_executor *e, rt_error *error)
{
    for (uint32_t p = 0; p < e->partner_count; p++) {
        rt_status status = flush_outlet(e, p, &e->pulls[p], error);
        if (!status)
            status = flush_outlet(e, p, &e->pushes[p], error);
        if (status)
            return status;
    }
    return RT_OK;
}

// ---- chains ----------------------------------------------------------------------------------

static void chain(ew_executor *e, ew_node *n)
{
    ew_slot_state *slot = &e->slots[n->slot];
    if (slot->tail) {
        slot->tail->next = n;
    } else {
        ew_node_list_add(&e->ready, n);
    }
    slot->tail = n;
}

// Slices that train nothing count as trained when their turn comes; so do those that were left out,
// once the one behind them is here.
static void pass_idle_slices(ew_executor *e)
{
    for (const ew_slice_state *s; (s = ew_slice_behind(e, e->trained));) {
        e->trained = s->sequence - 1;
        if (!(s->view.counts.flags & DP_SLICE_FLUSH))
            break;
        e->trained++;
        e->iteration = (uint32_t)rt_max_u64(e->iteration, s->view.counts.cut);
    }
}

static rt_status free_done_slices(ew_executor *e)
{
    pass_idle_slices(e);
    for (uint32_t i = 0; i < e->slice_count; i++) {
        ew_slice_state *s = &e->slices[i];
        if (s->sequence && s->nodes_left == 0 && s->sequence <= e->trained) {
            rt_assert(s->train_left == 0);
            if (ew_capture_forgets(e, s))
                return RT_NO_MEMORY;
            rt_counts_add(&e->statistics.done, &s->done);
            rt_message_release(&s->message);
            s->sequence = 0;
        }
    }
    return RT_OK;
}

// ---- the work list ---------------------------------------------------------------------------

static void check_row(ew_executor *e, const ew_node *n)
{
    const ew_slot_state *slot = &e->slots[n->slot];
    if (!slot->full || slot->version != n->version)
        e->statistics.stale_reads++;
}

static void init_row(ew_executor *e, ew_slice_state *slice, ew_node *n)
{
    e->config.rows->init(e->config.rows_context, &n->slot, &n->key, 1);
    if (e->config.bases)
        ew_bases_first(e->config.bases, n->slot, n->key);
    if (e->config.codes && !e->config.bases)
        ew_codes_first(e->config.codes, n->slot);
    e->slots[n->slot].key = n->key;
    e->slots[n->slot].version = 0;
    e->slots[n->slot].full = true;
    slice->done.first_touch++;
    ew_node_complete(e, slice, n);
}

static ew_node_list *push_list(ew_executor *e, const ew_node *n)
{
    if (e->config.codes && n->kind == NODE_PUSH_ROW &&
        ew_slice_of(e, n)->view.push_reasons[n->index] & DP_PUSH_WHOLE)
        return e->push_whole;
    return e->push_rows;
}

static rt_status advance(ew_executor *e, ew_node *n, rt_error *error)
{
    ew_slice_state *slice = ew_slice_of(e, n);
    ew_slot_state *slot = &e->slots[n->slot];
    n->ready = true;
    switch ((ew_node_kind)n->kind) {
    case NODE_PUSH_ROW:
    case NODE_PUSH_DELTA:
        if (!slot->full || slot->version != n->version)
            return rt_fail(error, RT_WIRE,
                           "slice %" PRIu64 " pushes slot %" PRIu32 " at version %" PRIu32
                           ", it has %" PRIu32,
                           slice->sequence, n->slot, n->version, slot->version);
        ew_node_list_add(&push_list(e, n)[ew_partner_of_push(e, n)], n);
        break;
    case NODE_DROP:
        slot->full = false;
        ew_node_complete(e, slice, n);
        break;
    case NODE_PULL:
        if (n->arrived)
            ew_landing_unstage(e, slice, n);
        break;
    case NODE_INIT:
        init_row(e, slice, n);
        break;
    case NODE_TRAIN:
        check_row(e, n);
        rt_assert(slice->train_left > 0);
        slice->train_left--;
        break;
    case NODE_PUSH_GRAD:
        ew_node_list_add(&e->push_grads[ew_partner_of_gradient(e, n)], n);
        break;
    case NODE_SUM:
        return ew_sum_begin(e, slice, n, error);
    }
    return RT_OK;
}

static rt_status work(ew_executor *e, rt_error *error)
{
    bool more = true;
    while (more) {
        for (ew_node *n; (n = ew_node_list_take(&e->ready));) {
            rt_status status = advance(e, n, error);
            if (status)
                return status;
        }
        for (uint32_t p = 0; p < e->partner_count; p++) {
            if (ew_capture_rows(e, p) || ew_capture_gradients(e, p))
                return rt_fail(error, RT_NO_MEMORY, "out of memory for messages with rows");
        }
        more = e->ready.first != NULL;
    }
    if (free_done_slices(e))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for messages to the PS");
    return ew_executor_flush(e, error);
}

// ---- slices in -------------------------------------------------------------------------------

// at: of the node in its slice, by which the answer finds it.
static rt_wire_pull pull_of(const ew_node *n, uint32_t at)
{
    rt_wire_pull pull = {n->key, n->version, at};
    if (n->flags & DP_OP_STATE)
        pull.tag |= RT_WIRE_TAG_STATE;
    if (n->flags & DP_OP_WHOLE)
        pull.tag |= RT_WIRE_TAG_WHOLE;
    return pull;
}

static rt_status request_of_shard(ew_executor *e, const ew_slice_state *s, uint32_t shard)
{
    const uint32_t most = ew_records_per_message(e, sizeof(rt_wire_pull));
    const rt_wire_slice *counts = &s->view.counts;
    const uint32_t first = ew_first_pull_node(counts), end = first + counts->pull_count;
    rt_message message = {0};
    uint32_t count = 0;
    for (uint32_t at = first; at < end; at++) {
        const ew_node *n = &s->nodes[at];
        if (ew_partner_of_pull(e, n) != shard)
            continue;
        if (count == 0 &&
            ew_message_for(e, RT_MESSAGE_PULL, s->sequence, most, sizeof(rt_wire_pull), &message))
            return RT_NO_MEMORY;
        const rt_wire_pull pull = pull_of(n, at);
        memcpy(rt_message_payload(&message) + count * sizeof pull, &pull, sizeof pull);
        if (++count < most)
            continue;
        if (ew_outlet_put(&e->pulls[shard], &message))
            return RT_NO_MEMORY;
        count = 0;
    }
    if (count == 0)
        return RT_OK;
    rt_message_finish(&message, count, count * sizeof(rt_wire_pull));
    return ew_outlet_put(&e->pulls[shard], &message);
}

// Requests go out as soon as the slice is known: the staging buffer has room for every answer.
static rt_status request_rows(ew_executor *e, const ew_slice_state *s)
{
    for (uint32_t shard = 0; shard < e->config.shard_count; shard++) {
        const rt_status status = request_of_shard(e, s, shard);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status prepare_slice(ew_executor *e, ew_slice_state *s)
{
    const rt_wire_slice *c = &s->view.counts;
    uint64_t nodes = ew_nodes_of(c);
    uint64_t staged = (uint64_t)c->pull_count * ew_landing_stride(e);
    if (nodes >= RT_WIRE_TAG_WHOLE ||
        rt_grow(&s->nodes, &s->node_capacity, nodes, sizeof *s->nodes) ||
        rt_grow(&s->staging, &s->staging_capacity, staged, sizeof *s->staging))
        return RT_NO_MEMORY;
    ew_nodes_add(s);
    s->nodes_left = s->node_count;
    s->done = (rt_counts){0};
    s->handed_done = 0;
    s->train_left = c->row_count;
    s->pulls_left = c->pull_count;
    const rt_status status = ew_handed_prepare(s);
    if (status)
        return status;
    return ew_sums_prepare(e, s);
}

// Lets the operations of a slice start.
static rt_status begin_slice(ew_executor *e, ew_slice_state *s, rt_error *error)
{
    if (request_rows(e, s))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for slice %" PRIu64, s->sequence);
    for (uint32_t i = 0; i < s->node_count; i++) {
        const ew_node *n = &s->nodes[i], *tail = e->slots[n->slot].tail;
        if (n->kind == NODE_TRAIN && tail && tail->kind == NODE_TRAIN && tail->slice == n->slice)
            return rt_fail(error, RT_WIRE, "slice %" PRIu64 " trains slot %" PRIu32 " twice",
                           s->sequence, n->slot);
        chain(e, &s->nodes[i]);
    }
    return RT_OK;
}

// Whether the slice is the next one, with those that were left out before it, and may be out.
static rt_status check_place(const ew_executor *e, uint64_t sequence, uint32_t left_out,
                             rt_error *error)
{
    const uint32_t most = e->config.slice_count_max;
    const bool waits = e->trained < e->received; // else none is outstanding
    if (sequence <= e->received || sequence - e->received - 1 != left_out)
        return rt_fail(error, RT_WIRE,
                       "slice %" PRIu64 " came after slice %" PRIu64 ", and %" PRIu32
                       " were left out",
                       sequence, e->received, left_out);
    if (ew_slice_at(e, sequence)->sequence || (waits && sequence > e->trained + most))
        return rt_fail(error, RT_WIRE,
                       "slice %" PRIu64 " came, but slice %" PRIu64
                       " is not done: more than %" PRIu32 " outstanding",
                       sequence, sequence - most, most);
    return RT_OK;
}

// Where copies may be stale workers push changes of rows, else rows.
static rt_status check_pushes(const ew_executor *e, uint64_t sequence, const rt_wire_slice *counts,
                              rt_error *error)
{
    if (e->config.bases && counts->push_count)
        return rt_fail(error, RT_WIRE,
                       "slice %" PRIu64 " pushes rows, but consistency.staleness is above 0",
                       sequence);
    if (!e->config.bases && counts->delta_count)
        return rt_fail(error, RT_WIRE,
                       "slice %" PRIu64
                       " pushes changes of rows, but consistency.staleness is 0 or off",
                       sequence);
    return RT_OK;
}

static rt_status receive_slice(ew_executor *e, rt_message *message, rt_error *error)
{
    uint64_t sequence = rt_message_header(message)->iteration;
    dp_slice_view view;
    rt_status status = dp_slice_decode(message, &e->config.limits, &view, error);
    if (status)
        return status;
    status = check_place(e, sequence, view.counts.left_out, error);
    if (status)
        return status;
    status = check_pushes(e, sequence, &view.counts, error);
    if (status)
        return status;
    ew_slice_state *s = ew_slice_at(e, sequence);
    rt_assert(s->sequence == 0 && sequence > e->received); // check_place
    s->view = view;
    s->message = *message;
    *message = (rt_message){0};
    s->sequence = sequence;
    e->received = sequence;
    if (prepare_slice(e, s))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for slice %" PRIu64, sequence);
    return begin_slice(e, s, error);
}

static bool all_pushed(const ew_executor *e)
{
    for (uint32_t p = 0; p < e->partner_count; p++) {
        if (e->pushes[p].count || e->pushes[p].credits != e->config.push_credits)
            return false;
    }
    return true;
}

bool ew_executor_is_held_up(const ew_executor *e)
{
    for (uint32_t p = e->config.shard_count; p < e->partner_count; p++) {
        if (e->pushes[p].count)
            return true;
    }
    return false;
}

ew_wait ew_executor_waits_for(const ew_executor *e)
{
    if (e->received == e->trained)
        return EW_WAIT_PLAN;
    return all_pushed(e) ? EW_WAIT_PULL : EW_WAIT_PUSH;
}

// ---- messages in -----------------------------------------------------------------------------

static rt_status take_handed(ew_executor *e, uint32_t worker, const rt_message *message,
                             rt_error *error)
{
    if (rt_message_header(message)->type == RT_MESSAGE_GRADS)
        return ew_sums_receive(e, worker, message, error);
    return ew_landing_receive(e, e->config.shard_count + worker, message, error);
}

// Who sends may have its slice before us.
static rt_status receive_handed(ew_executor *e, uint32_t worker, rt_message *message,
                                rt_error *error)
{
    if (rt_message_header(message)->iteration > e->received)
        return ew_handed_park(e, worker, message, error);
    return take_handed(e, worker, message, error);
}

// What has come before the slice.
static rt_status take_parked(ew_executor *e, uint64_t sequence, rt_error *error)
{
    uint32_t worker;
    rt_message message = {0};
    while (ew_handed_unpark(e, sequence, &worker, &message) == RT_OK) {
        const rt_status status = take_handed(e, worker, &message, error);
        rt_message_release(&message);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status receive_credit(ew_executor *e, uint32_t shard, rt_error *error)
{
    if (e->pushes[shard].credits == e->config.push_credits)
        return rt_fail(error, RT_WIRE, "PS shard %" PRIu32 " confirms a push that nobody sent",
                       shard);
    e->pushes[shard].credits++;
    return RT_OK;
}

// Rows of a shard, coded or not as network.row_wire says.
static rt_status receive_of_shard(ew_executor *e, uint32_t shard, const rt_message *message,
                                  bool coded, rt_error *error)
{
    const char *wire = e->config.codes ? "not \"fp32\"" : "\"fp32\"";
    if (coded != (e->config.codes != NULL))
        return rt_fail(error, RT_WIRE, "PS shard %" PRIu32 ": %s, but network.row_wire is %s",
                       shard, rt_message_type_name(rt_message_header(message)->type), wire);
    return ew_landing_receive(e, shard, message, error);
}

static bool takes_of_workers(const ew_executor *e, uint32_t type)
{
    return (type == RT_MESSAGE_HANDED && e->config.limits.hands) ||
           (type == RT_MESSAGE_GRADS && e->config.limits.sums);
}

static rt_status dispatch_message(ew_executor *e, uint32_t peer, rt_message *message,
                                  rt_error *error)
{
    const rt_wire_header *header = rt_message_header(message);
    uint32_t shard = rt_peer_rank(peer);
    char name[32];
    if (header->epoch != e->config.epoch)
        return RT_OK; // of a run that was rolled back
    if (rt_peer_role(peer) == RT_ROLE_COORDINATOR && header->type == RT_MESSAGE_SLICE) {
        const uint64_t sequence = header->iteration;
        const rt_status status = receive_slice(e, message, error);
        if (status)
            return status;
        return take_parked(e, sequence, error);
    }
    if (rt_peer_role(peer) == RT_ROLE_WORKER && takes_of_workers(e, header->type) &&
        shard < e->config.limits.worker_count && shard != e->config.rank)
        return receive_handed(e, shard, message, error);
    if (rt_peer_role(peer) != RT_ROLE_PS || shard >= e->config.shard_count)
        return rt_fail(error, RT_WIRE, "%s from %s, which is not a PS shard of this run",
                       rt_message_type_name(header->type), rt_peer_name(peer, name));
    switch (header->type) {
    case RT_MESSAGE_ROWS:
        return receive_of_shard(e, shard, message, false, error);
    case RT_MESSAGE_ROWS_CODED:
        return receive_of_shard(e, shard, message, true, error);
    case RT_MESSAGE_PUSHED:
        return receive_credit(e, shard, error);
    default:
        return rt_fail(error, RT_WIRE, "unexpected %s from PS shard %" PRIu32,
                       rt_message_type_name(header->type), shard);
    }
}

rt_status ew_executor_receive(ew_executor *e, uint32_t peer, rt_message *message, rt_error *error)
{
    rt_status status = dispatch_message(e, peer, message, error);
    rt_message_release(message);
    if (status)
        return status;
    return work(e, error);
}

// ---- training --------------------------------------------------------------------------------

rt_status ew_executor_next_job(ew_executor *e, ew_job *job)
{
    const ew_slice_state *s = ew_slice_at(e, e->trained + 1);
    if (e->job_out || s->sequence != e->trained + 1 || s->train_left || s->pulls_left ||
        ew_sums_hold_up(e, s))
        return RT_AGAIN;
    e->job_out = true;
    *job = (ew_job){s->sequence, &s->view};
    return RT_OK;
}

const rt_wire_slice *ew_executor_next_counts(const ew_executor *e)
{
    const ew_slice_state *s = ew_slice_at(e, e->trained + 1);
    if (s->sequence != e->trained + 1 || s->view.counts.flags & DP_SLICE_FLUSH)
        return NULL;
    return &s->view.counts;
}

rt_status ew_executor_trained(ew_executor *e, const float *gradients, bool apply, rt_counts *done,
                              rt_error *error)
{
    ew_slice_state *s = ew_slice_at(e, e->trained + 1);
    const rt_wire_slice *c = &s->view.counts;
    const uint32_t first = ew_first_train_node(c);
    rt_assert(e->job_out && s->sequence == e->trained + 1 && s->train_left == 0);
    e->job_out = false;
    e->trained++;
    e->iteration = c->iteration;
    e->gradients = gradients;
    e->apply = apply;
    for (uint32_t i = 0; i < c->row_count; i++) {
        ew_node *n = &s->nodes[first + i];
        if (s->view.row_modes[i] == DP_MODE_OWN)
            e->slots[n->slot].version = c->iteration;
        ew_node_complete(e, s, n);
    }
    rt_status status = work(e, error);
    e->gradients = NULL;
    e->statistics.handed += s->handed_done;
    if (done)
        *done = s->done; // everything of the slice comes before or with its training
    return status;
}

uint32_t ew_executor_iteration(const ew_executor *e)
{
    return e->iteration;
}

bool ew_executor_idle(const ew_executor *e)
{
    for (uint32_t i = 0; i < e->slice_count; i++) {
        if (e->slices[i].sequence)
            return false;
    }
    for (uint32_t p = 0; p < e->partner_count; p++) {
        if (e->pulls[p].count)
            return false;
    }
    return all_pushed(e);
}

ew_executor_statistics ew_executor_get_statistics(const ew_executor *e)
{
    return e->statistics;
}
