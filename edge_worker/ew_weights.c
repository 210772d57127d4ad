#include "edge_worker/ew_weights.h"

#include <inttypes.h>
#include <string.h>

rt_status ew_weights_init(ew_weights *w, rt_error *error)
{
    const uint32_t count = w->stripes.count;
    if (!w->shared)
        return RT_OK;
    w->values = rt_alloc(count, sizeof *w->values);
    w->state = rt_alloc(rt_optimizer_state_floats(&w->optimizer, count) + 1u, sizeof *w->state);
    if (!w->values || !w->state)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for dense weights");
    return RT_OK;
}

void ew_weights_fini(ew_weights *w)
{
    rt_free(w->values);
    rt_free(w->state);
    w->values = w->state = NULL;
}

void ew_weights_resume(ew_weights *w, uint64_t iteration)
{
    w->begun = w->version = iteration;
}

// ---- a shard's block: the values of its part, then every kind of state -----------------------

static uint32_t block_floats(const ew_weights *w, uint32_t shard)
{
    const uint32_t part = rt_stripes_part(&w->stripes, shard);
    return part + rt_optimizer_state_floats(&w->optimizer, part);
}

// Shards that have a part of the vector of gradients, which is one float longer.
static bool has_part(const ew_weights *w, uint32_t shard)
{
    const rt_stripes vector = {w->stripes.count + 1, w->stripes.shard_count};
    return rt_stripes_part(&vector, shard) > 0;
}

typedef struct {
    uint32_t at, count; // floats of a part
    float *vector;      // they belong to
} stretch;

// Floats from `at` on, at most `most`, that belong to one vector: the values, or one kind of state.
// What an optimizer has for the block stands behind them; the one part is all of it then.
static stretch stretch_at(const ew_weights *w, uint32_t shard, uint32_t at, uint32_t most)
{
    const uint32_t part = rt_stripes_part(&w->stripes, shard);
    uint32_t kind = 0, first = 0;
    if (part > 0) {
        kind = at / part;
        first = at % part;
    }
    const uint32_t kinds = 1 + rt_optimizer_find(w->optimizer.kind)->about->state.per_value;
    stretch one = {first, (uint32_t)rt_min_u64(most, part - first), w->values};
    if (kind >= kinds)
        return (stretch){0, most, w->state + (at - part)};
    if (kind > 0)
        one.vector = w->state + (size_t)(kind - 1) * w->stripes.count;
    return one;
}

static void get_block(const ew_weights *w, uint32_t shard, uint32_t first, uint32_t count,
                      float *out)
{
    for (uint32_t done = 0; done < count;) {
        const stretch one = stretch_at(w, shard, first + done, count - done);
        rt_stripes_gather(&w->stripes, shard, one.at, one.count, one.vector, out + done);
        done += one.count;
    }
}

static void put_block(const ew_weights *w, uint32_t shard, uint32_t first, uint32_t count,
                      const float *in)
{
    for (uint32_t done = 0; done < count;) {
        const stretch one = stretch_at(w, shard, first + done, count - done);
        rt_stripes_scatter(&w->stripes, shard, one.at, one.count, in + done, one.vector);
        done += one.count;
    }
}

// ---- to the shards ---------------------------------------------------------------------------

// One message even of a block without floats: the shard waits for it.
static rt_status send_block(ew_weights *w, uint32_t shard, rt_error *error)
{
    const uint32_t total = block_floats(w, shard);
    const rt_wire_dense_state head = {rt_stripes_part(&w->stripes, shard), total};
    uint32_t first = 0;
    do {
        rt_message message;
        const uint32_t count = (uint32_t)rt_min_u64(total - first, RT_WIRE_DENSE_CHUNK_FLOATS_MAX);
        if (rt_message_create(&message, RT_MESSAGE_DENSE_STATE, w->sender, w->version, first,
                              sizeof head + count * sizeof(float)))
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
        uint8_t *payload = rt_message_payload(&message);
        memcpy(payload, &head, sizeof head);
        get_block(w, shard, first, count, (float *)(void *)(payload + sizeof head));
        first += count;
        const rt_status status = ew_exchange_post(w->exchange, shard, &message, error);
        if (status)
            return status;
    } while (first < total);
    return RT_OK;
}

static rt_status send_blocks(ew_weights *w, rt_error *error)
{
    for (uint32_t s = 0; s < w->stripes.shard_count; s++) {
        if (!has_part(w, s))
            continue;
        const rt_status status = send_block(w, s, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status ew_weights_begin(ew_weights *w, rt_error *error)
{
    if (!w->shared)
        return RT_OK;
    rt_status status = w->ops->read(w->context, w->values, w->state, error);
    if (status)
        return status;
    return send_blocks(w, error);
}

void ew_weights_shift(ew_weights *w, float log_odds, const float *more_odds)
{
    if (w->shared)
        w->shifted = w->ops->shifts(w->context, log_odds, more_odds, w->by);
}

rt_status ew_weights_share(ew_weights *w, rt_error *error)
{
    if (!w->ahead)
        return RT_OK;
    w->ahead = false;
    const rt_status status = w->ops->read(w->context, w->values, w->state, error);
    if (status)
        return status;
    return send_blocks(w, error);
}

// Of the shard's part.
static void put_shifts(const ew_weights *w, uint32_t shard, rt_wire_dense_step *step)
{
    for (uint32_t l = 0; l < RT_LABELS_MAX; l++) {
        uint32_t at;
        step->at[l] = 0;
        step->by[l] = 0;
        if (w->by[l] == 0 || rt_stripes_owner(&w->stripes, w->shifted + l, &at) != shard)
            continue;
        step->at[l] = at;
        step->by[l] = w->by[l];
    }
}

static rt_status send_steps(ew_weights *w, uint64_t iteration, rt_wire_dense_step *step,
                            rt_error *error)
{
    for (uint32_t s = 0; s < w->stripes.shard_count; s++) {
        rt_message message;
        if (!has_part(w, s))
            continue;
        if (rt_message_create(&message, RT_MESSAGE_DENSE_STEP, w->sender, iteration, 1,
                              sizeof *step))
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
        put_shifts(w, s, step);
        memcpy(rt_message_payload(&message), step, sizeof *step);
        const rt_status status = ew_exchange_post(w->exchange, s, &message, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// Of shards that have floats to send.
static rt_status send_pulls(ew_weights *w, uint64_t iteration, rt_error *error)
{
    for (uint32_t s = 0; s < w->stripes.shard_count; s++) {
        rt_message message;
        if (block_floats(w, s) == 0)
            continue;
        if (rt_message_create(&message, RT_MESSAGE_DENSE_PULL, w->sender, iteration, 0, 0))
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
        const rt_status status = ew_exchange_post(w->exchange, s, &message, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status ew_weights_step(ew_weights *w, uint64_t iteration, uint64_t place, bool applies,
                          bool alone, const float *gradients, rt_error *error)
{
    w->version = iteration;
    if (!w->shared)
        return RT_OK;
    w->ahead = alone;
    if (alone)
        return RT_OK;
    rt_wire_dense_step step = {.applies = applies,
                               .scale = 1,
                               .behind = (uint32_t)(iteration - (uint32_t)place),
                               .trained = (uint32_t)(place >> RT_OPTIMIZER_PART)};
    if (applies)
        step.scale = rt_optimizer_scale(&w->optimizer, w->stripes.count, gradients);
    return send_steps(w, iteration, &step, error);
}

// ---- from the shards -------------------------------------------------------------------------

rt_status ew_weights_get(ew_weights *w, uint64_t iteration, rt_error *error)
{
    if (w->left == 0 && w->version == iteration)
        return RT_OK;
    if (w->left > 0)
        return RT_AGAIN;
    if (!w->shared || iteration < w->version)
        return rt_fail(error, RT_WIRE,
                       "the dense weights after iteration %" PRIu64
                       " are needed, these are those after %" PRIu64,
                       iteration, w->version);
    w->wanted = iteration;
    w->left = w->stripes.count + rt_optimizer_state_floats(&w->optimizer, w->stripes.count);
    memset(w->arrived, 0, sizeof w->arrived);
    const rt_status status = send_pulls(w, iteration, error);
    if (status)
        return status;
    return RT_AGAIN;
}

rt_status ew_weights_receive(ew_weights *w, const rt_message *message, rt_error *error)
{
    rt_wire_dense_state head;
    const rt_wire_header *header = rt_message_header(message);
    const uint32_t shard = rt_peer_rank(header->sender), first = header->count;
    rt_reader reader = rt_message_reader(message);
    memcpy(&head, rt_reader_take(&reader, 1, sizeof head), sizeof head);
    const uint32_t count = (uint32_t)(reader.left / sizeof(float));
    if (w->left == 0 || shard >= w->stripes.shard_count || header->iteration != w->wanted ||
        head.value_count != rt_stripes_part(&w->stripes, shard) ||
        head.total != block_floats(w, shard) || first != w->arrived[shard] ||
        count > head.total - first)
        return rt_fail(error, RT_WIRE, "PS shard %" PRIu32 ": dense weights that nobody waits for",
                       shard);
    put_block(w, shard, first, count, (const float *)(const void *)reader.next);
    w->arrived[shard] += count;
    w->left -= count;
    if (w->left > 0)
        return RT_OK;
    w->version = w->wanted;
    return w->ops->write(w->context, w->values, w->state, error);
}
