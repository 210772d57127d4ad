#include "dispatch/coordinator/dp_cut.h"

#include <string.h>

#include "runtime/rt_log.h"

void dp_cut_fini(dp_cut *cut)
{
    rt_bytes_fini(&cut->dense);
    if (cut->planned)
        dp_feed_give(cut->feed, cut->planned);
    cut->planned = NULL;
}

static uint64_t workers(const dp_cut *cut)
{
    return dp_membership_workers(dp_roster_members(cut->roster));
}

static uint64_t awaited_workers(const dp_cut *cut)
{
    return workers(cut) & ~cut->marks;
}

static bool lacks_dense(const dp_cut *cut)
{
    return cut->planned->is_cut && (cut->dense_bytes == 0 || cut->dense.size < cut->dense_bytes);
}

void dp_cut_lose(dp_cut *cut, uint32_t worker)
{
    if (!cut->planned || cut->asked || worker != cut->lead || !lacks_dense(cut))
        return;
    rt_bytes_fini(&cut->dense);
    cut->dense_bytes = 0;
    cut->lead = rt_lowest_bit(workers(cut));
    cut->marks &= ~rt_bit(cut->lead);
    cut->asks_anew = true;
}

// count: 1 + who sends the dense part, and needs the others' to have it
static rt_status send_mark(dp_cut *cut, uint32_t worker, rt_error *error)
{
    rt_message mark;
    const uint32_t giver = cut->planned->is_cut ? 1 + cut->lead : 0;
    if (rt_message_create(&mark, RT_MESSAGE_MARK, cut->sender, cut->planned->sequence, giver, 0))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return dp_roster_send(cut->roster, rt_peer(RT_ROLE_WORKER, worker), &mark, error);
}

void dp_cut_request(dp_cut *cut)
{
    const double passed_s = (double)(rt_now_ns() - cut->end_ns) * 1e-9;
    const bool is_due = cut->is_wanted || (cut->every_s > 0 && passed_s >= cut->every_s);
    if (!is_due || cut->is_requested || cut->planned || dp_checkpoint_busy(cut->checkpoint))
        return;
    cut->is_wanted = false;
    cut->is_requested = true;
    dp_feed_request_cut(cut->feed);
}

rt_status dp_cut_begin(dp_cut *cut, dp_planned *planned, rt_error *error)
{
    rt_assert(!cut->planned);
    cut->planned = planned;
    cut->marks = cut->captured = 0;
    cut->asked = cut->asks_anew = false;
    cut->is_requested &= !planned->is_cut;
    cut->dense_bytes = cut->ended_rows = 0;
    cut->drained_ns = 0;
    cut->begin_ns = rt_now_ns();
    cut->lead = rt_lowest_bit(awaited_workers(cut));
    for (uint64_t rest = awaited_workers(cut); rest; rest &= rest - 1) {
        const rt_status status = send_mark(cut, rt_lowest_bit(rest), error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status dp_cut_mark(dp_cut *cut, uint32_t peer, const rt_message *message, rt_error *error)
{
    char name[32];
    if (rt_peer_role(peer) != RT_ROLE_WORKER || !cut->planned ||
        cut->marks >> rt_peer_rank(peer) & 1 ||
        rt_message_header(message)->iteration != cut->planned->sequence)
        return rt_fail(error, RT_WIRE, "%s: a MARK that nobody waits for",
                       rt_peer_name(peer, name));
    const uint32_t giver = rt_message_header(message)->count;
    if (rt_peer_rank(peer) == cut->lead && giver != 0 && giver != 1 + cut->lead)
        return RT_OK; // of the MARK before, which named the one that is lost
    cut->marks |= rt_bit(rt_peer_rank(peer));
    return RT_OK;
}

rt_status dp_cut_part(dp_cut *cut, uint32_t peer, const rt_message *message, rt_error *error)
{
    rt_wire_part part;
    rt_reader reader = rt_message_reader(message);
    if (peer != rt_peer(RT_ROLE_WORKER, cut->lead) || !cut->planned ||
        !rt_reader_get(&reader, &part, 1, sizeof part) || part.offset != cut->dense.size ||
        part.total > RT_WIRE_PAYLOAD_BYTES_MAX || part.total < part.offset ||
        reader.left > part.total - part.offset)
        return rt_fail(error, RT_WIRE, "a PART of the dense weights that nobody waits for");
    cut->dense_bytes = part.total;
    rt_bytes_put(&cut->dense, reader.next, reader.left);
    if (cut->dense.failed)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return RT_OK;
}

// What the planner knew when it made the cut, the sums of the run, and the scale of dense features
// where there is one, and the names of events.
static void gather_state(const dp_cut *cut, rt_bytes *state)
{
    const rt_bytes *planned = &cut->planned->state;
    *state = (rt_bytes){0};
    rt_bytes_put_u64(state, planned->size);
    rt_bytes_put(state, planned->data, planned->size);
    dp_stats_save(cut->stats, state);
    rt_bytes_put(state, cut->planned->scale.data, cut->planned->scale.size);
    rt_bytes_put(state, cut->planned->ids.data, cut->planned->ids.size);
}

// Every worker has carried out everything up to the cut, and shards have processed what they sent:
// the rows that they hold are the checkpoint's.
static rt_status ask_shards(dp_cut *cut, rt_error *error)
{
    dp_checkpoint_content content = {.iteration = cut->planned->cut,
                                     .samples = dp_stats_samples(cut->stats),
                                     .epochs = cut->planned->epochs,
                                     .events = cut->planned->events,
                                     .dense = cut->dense,
                                     .scale = cut->planned->scale_bin,
                                     .scale_samples = cut->planned->scale_samples,
                                     .drain_ms = (double)(cut->drained_ns - cut->begin_ns) * 1e-6};
    rt_wire_cut order;
    cut->dense = cut->planned->scale_bin = (rt_bytes){0};
    cut->asked = true;
    cut->asked_ns = rt_now_ns();
    content.trained_s = cut->drained_s;
    if (cut->ages)
        dp_ages_keep(cut->ages, cut->drained_ns, &content.ages);
    dp_stats_judge(cut->stats, cut->planned->is_learnt, &content.verdict);
    content.wait_ms = (double)(cut->asked_ns - cut->drained_ns) * 1e-6;
    gather_state(cut, &content.state);
    if (content.state.failed) {
        rt_bytes_fini(&content.state);
        rt_bytes_fini(&content.dense);
        rt_bytes_fini(&content.scale);
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the state of the planner");
    }
    rt_status status = dp_checkpoint_begin(cut->checkpoint, &content, &order, error);
    if (status)
        return status;
    for (uint32_t s = 0; s < cut->shard_count; s++) {
        rt_message message;
        if (rt_control_create_struct(&message, RT_MESSAGE_CUT, cut->sender, content.iteration,
                                     &order, sizeof order, NULL))
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
        rt_message_header(&message)->count = dp_checkpoint_newest(cut->checkpoint);
        status = dp_roster_send(cut->roster, rt_peer(RT_ROLE_PS, s), &message, error);
        if (status)
            return status;
    }
    dp_checkpoint_write(cut->checkpoint);
    return RT_OK;
}

// Rows that end are those of the same versions on all shards.
static rt_status expire(dp_cut *cut, rt_error *error)
{
    const rt_wire_expire order = {.floor = cut->planned->floor};
    cut->asked = true;
    cut->asked_ns = rt_now_ns();
    for (uint32_t s = 0; s < cut->shard_count; s++) {
        const dp_planned *planned = cut->planned;
        const size_t bytes = planned->forgotten_count * sizeof *planned->forgotten;
        rt_message message;
        if (rt_message_create(&message, RT_MESSAGE_EXPIRE, cut->sender, planned->cut, 1,
                              sizeof order + bytes))
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
        memcpy(rt_message_payload(&message), &order, sizeof order);
        memcpy(rt_message_payload(&message) + sizeof order, planned->forgotten, bytes);
        const rt_status status =
            dp_roster_send(cut->roster, rt_peer(RT_ROLE_PS, s), &message, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status dp_cut_step(dp_cut *cut, rt_error *error)
{
    if (cut->planned && cut->asks_anew) {
        cut->asks_anew = false;
        return send_mark(cut, cut->lead, error);
    }
    if (!cut->planned || cut->asked || awaited_workers(cut))
        return RT_OK;
    if (!cut->planned->is_cut)
        return expire(cut, error);
    if (lacks_dense(cut))
        return RT_OK;
    const bool busy = dp_checkpoint_busy(cut->checkpoint);
    if (!cut->drained_ns) {
        cut->drained_ns = rt_now_ns();
        cut->drained_s = rt_unix_s();
        if (busy && !cut->planned->epochs) // an epoch waits until the one before is judged
            rt_info("the checkpoint before is still being written: training waits for it");
    }
    if (busy)
        return RT_OK;
    return ask_shards(cut, error);
}

dp_awaited dp_cut_awaited(const dp_cut *cut)
{
    dp_awaited awaited = {.what = "has not carried out a cut", .number = cut->planned->sequence};
    if (cut->asked) {
        awaited.shards = rt_bits_below(cut->shard_count) & ~cut->captured;
        return awaited;
    }
    awaited.workers = awaited_workers(cut);
    if (lacks_dense(cut))
        awaited.workers |= rt_bit(cut->lead);
    return awaited;
}

rt_status dp_cut_expired(dp_cut *cut, uint32_t peer, const rt_message *message, bool *swept_p,
                         rt_error *error)
{
    char name[32];
    rt_wire_expire answer;
    *swept_p = false;
    if (rt_peer_role(peer) != RT_ROLE_PS || !cut->planned || cut->planned->is_cut || !cut->asked ||
        cut->captured >> rt_peer_rank(peer) & 1 || !rt_control_has(message, sizeof answer))
        return rt_fail(error, RT_WIRE, "%s: an EXPIRE that nobody asked for",
                       rt_peer_name(peer, name));
    memcpy(&answer, rt_message_payload(message), sizeof answer);
    cut->ended_rows += answer.rows;
    cut->captured |= rt_bit(rt_peer_rank(peer));
    *swept_p = rt_bit_count(cut->captured) == cut->shard_count;
    if (!*swept_p)
        return RT_OK;
    dp_feed_give(cut->feed, cut->planned);
    cut->planned = NULL;
    cut->asked = false;
    return RT_OK;
}

rt_status dp_cut_captured(dp_cut *cut, uint32_t peer, rt_error *error)
{
    char name[32];
    if (rt_peer_role(peer) != RT_ROLE_PS || !cut->asked || !cut->planned->is_cut)
        return rt_fail(error, RT_WIRE, "%s: a CUT that nobody asked for", rt_peer_name(peer, name));
    cut->captured |= rt_bit(rt_peer_rank(peer));
    if (rt_bit_count(cut->captured) < cut->shard_count)
        return RT_OK;
    cut->end_ns = rt_now_ns();
    dp_checkpoint_paused(cut->checkpoint, (double)(cut->end_ns - cut->asked_ns) * 1e-6);
    dp_feed_give(cut->feed, cut->planned);
    cut->planned = NULL;
    cut->asked = false;
    return RT_OK;
}
