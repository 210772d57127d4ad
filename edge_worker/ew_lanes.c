#include "edge_worker/ew_lanes.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/numbers/rt_bf16.h"
#include "runtime/numbers/rt_coding.h"
#include "runtime/numbers/rt_int8.h"

#define CHUNKS_USUAL 1024u // at most, unless a chunk would be too large for a message

rt_status ew_lanes_init(ew_lanes *lanes, rt_error *error)
{
    const uint32_t most = EW_LANE_CHUNKS_MAX * RT_WIRE_DENSE_CHUNK_FLOATS_MAX;
    lanes->lanes = rt_alloc(lanes->stripes.shard_count, sizeof *lanes->lanes);
    if (!lanes->lanes)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    for (uint32_t s = 0; s < lanes->stripes.shard_count; s++) {
        ew_lane *lane = &lanes->lanes[s];
        lane->count = rt_stripes_part(&lanes->stripes, s);
        lane->chunk_floats = 1;
        if (lane->count > most)
            return rt_fail(error, RT_UNSUPPORTED,
                           "%" PRIu32 " dense gradients at one shard, at most %" PRIu32
                           " can be exchanged",
                           lane->count, most);
    }
    return RT_OK;
}

void ew_lanes_fini(ew_lanes *lanes)
{
    for (uint32_t s = 0; lanes->lanes && s < lanes->stripes.shard_count; s++)
        ew_outlet_fini(&lanes->lanes[s].out);
    rt_free(lanes->lanes);
    lanes->lanes = NULL;
}

// ---- out -------------------------------------------------------------------------------------

// As planned, unless that makes too many messages.
static uint32_t chunk_of(uint32_t planned, uint32_t count)
{
    const uint64_t least = (count + CHUNKS_USUAL - 1) / CHUNKS_USUAL;
    const uint64_t floats = rt_max_u64(rt_max_u64(planned, least), 1);
    return (uint32_t)rt_min_u64(floats, RT_WIRE_DENSE_CHUNK_FLOATS_MAX);
}

void ew_lanes_begin(ew_lanes *lanes, uint64_t iteration, uint32_t chunk_floats, uint64_t workers)
{
    lanes->iteration = iteration;
    lanes->workers = workers;
    for (uint32_t s = 0; s < lanes->stripes.shard_count; s++) {
        ew_lane *lane = &lanes->lanes[s];
        lane->chunk_floats = chunk_of(chunk_floats, lane->count);
        lane->chunks_left = (lane->count + lane->chunk_floats - 1) / lane->chunk_floats;
        lane->sent_from = lane->count;
        memset(lane->arrived, 0, sizeof lane->arrived);
    }
}

uint32_t ew_lanes_step(const ew_lanes *lanes)
{
    return lanes->lanes[0].chunk_floats * lanes->stripes.shard_count;
}

static rt_status flush(ew_lanes *lanes, uint32_t shard, rt_error *error)
{
    const rt_status status =
        ew_outlet_flush(&lanes->lanes[shard].out, lanes->send, lanes->send_context, shard);
    if (status)
        return rt_fail(error, status, "cannot send to PS shard %" PRIu32 ": %s", shard,
                       rt_status_text(status));
    return RT_OK;
}

rt_status ew_lanes_post(ew_lanes *lanes, uint32_t shard, rt_message *message, rt_error *error)
{
    if (ew_outlet_put(&lanes->lanes[shard].out, message))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return flush(lanes, shard, error);
}

static void pack(ew_lanes *lanes, uint32_t shard, uint32_t first, uint32_t floats, uint16_t *out)
{
    for (uint32_t done = 0, run; done < floats; done += run) {
        const uint32_t place = rt_stripes_place(&lanes->stripes, shard, first + done);
        run = rt_stripes_run(&lanes->stripes, first + done, floats - done);
        rt_bf16_pack_feedback(lanes->gradients + place, lanes->residual + place, run, out + done);
    }
}

// int8: floats at the end of a chunk that are not rounded: all of an early iteration; later the
// last float of the vector, the verdict.
static uint32_t whole_in(const ew_lanes *lanes, uint32_t shard, uint32_t first, uint32_t floats)
{
    const uint32_t last = first + floats - 1;
    if (lanes->iteration <= RT_CODING_WHOLE_ITERATIONS)
        return floats;
    return rt_stripes_place(&lanes->stripes, shard, last) == lanes->stripes.count - 1;
}

// As rt_int8_pack_blocks, of floats that stand in stripes.
static void pack_blocks(ew_lanes *lanes, uint32_t shard, uint32_t first, uint32_t floats, void *out)
{
    float values[RT_INT8_BLOCK], residual[RT_INT8_BLOCK], *scales = out;
    int8_t *codes = (int8_t *)(scales + rt_int8_blocks(floats));
    const rt_stripes *stripes = &lanes->stripes;
    for (uint32_t at = 0; at < floats; at += RT_INT8_BLOCK) {
        const uint32_t some = (uint32_t)rt_min_u64(floats - at, RT_INT8_BLOCK);
        rt_stripes_gather(stripes, shard, first + at, some, lanes->gradients, values);
        rt_stripes_gather(stripes, shard, first + at, some, lanes->residual, residual);
        *scales++ = rt_int8_pack_feedback(values, residual, some, codes + at);
        rt_stripes_scatter(stripes, shard, first + at, some, residual, lanes->residual);
    }
}

static void pack_int8(ew_lanes *lanes, uint32_t shard, uint32_t first, uint32_t floats,
                      uint8_t *out)
{
    const uint32_t whole = whole_in(lanes, shard, first, floats), rounded = floats - whole;
    const rt_wire_dense_int8 head = {lanes->workers, floats, whole};
    memcpy(out, &head, sizeof head);
    float *as_they_are = (float *)(void *)(out + sizeof head);
    rt_stripes_gather(&lanes->stripes, shard, first + rounded, whole, lanes->gradients,
                      as_they_are);
    pack_blocks(lanes, shard, first, rounded, as_they_are + whole);
}

static uint64_t chunk_bytes(const ew_lanes *lanes, uint32_t shard, uint32_t first, uint32_t floats)
{
    const uint32_t whole = whole_in(lanes, shard, first, floats);
    switch (lanes->coding) {
    case RT_CODING_BF16:
        return sizeof(rt_wire_dense) + floats * sizeof(uint16_t);
    case RT_CODING_INT8:
        return sizeof(rt_wire_dense_int8) + whole * sizeof(float) + rt_int8_bytes(floats - whole);
    case RT_CODING_FP32:
        break;
    }
    return sizeof(rt_wire_dense) + floats * sizeof(float);
}

static rt_status fill_chunk(ew_lanes *lanes, uint32_t shard, uint32_t first, uint64_t *bytes_p,
                            rt_error *error)
{
    static const rt_message_type types[] = {RT_MESSAGE_DENSE_GRAD, RT_MESSAGE_DENSE_GRAD_BF16,
                                            RT_MESSAGE_DENSE_GRAD_INT8};
    rt_message message;
    ew_lane *lane = &lanes->lanes[shard];
    const rt_wire_dense head = {lanes->workers};
    const uint32_t floats = lane->sent_from - first;
    const uint64_t bytes = chunk_bytes(lanes, shard, first, floats);
    rt_status status = rt_message_create(&message, types[lanes->coding], lanes->sender,
                                         lanes->iteration, first, bytes);
    if (status)
        return rt_fail(error, status, "out of memory");
    void *payload = rt_message_payload(&message) + sizeof head;
    memcpy(rt_message_payload(&message), &head, sizeof head);
    if (lanes->coding == RT_CODING_INT8)
        pack_int8(lanes, shard, first, floats, rt_message_payload(&message));
    else if (lanes->coding == RT_CODING_BF16)
        pack(lanes, shard, first, floats, payload);
    else
        rt_stripes_gather(&lanes->stripes, shard, first, floats, lanes->gradients, payload);
    lane->sent_from = first;
    *bytes_p += bytes - sizeof head;
    return ew_lanes_post(lanes, shard, &message, error);
}

// Where the next chunk begins, of a lane with floats that are not sent.
static uint32_t next_chunk(const ew_lane *lane)
{
    return (lane->sent_from - 1) / lane->chunk_floats * lane->chunk_floats;
}

// The lane whose next chunk ends highest in the vector, of those that can go; shard_count: none.
static uint32_t next_lane(const ew_lanes *lanes, uint32_t final_from)
{
    uint32_t best = lanes->stripes.shard_count, highest = 0;
    for (uint32_t s = 0; s < lanes->stripes.shard_count; s++) {
        const ew_lane *lane = &lanes->lanes[s];
        if (lane->out.count || lane->sent_from == 0)
            continue;
        const uint32_t first = next_chunk(lane);
        const uint32_t end = rt_stripes_place(&lanes->stripes, s, lane->sent_from - 1);
        if (rt_stripes_place(&lanes->stripes, s, first) < final_from || end < highest)
            continue;
        best = s;
        highest = end;
    }
    return best;
}

// Highest first, over all shards: a backward pass makes gradients from the end of the vector down.
rt_status ew_lanes_advance(ew_lanes *lanes, uint32_t final_from, uint64_t *bytes_p, rt_error *error)
{
    for (uint32_t s = 0; s < lanes->stripes.shard_count; s++) {
        const rt_status status = flush(lanes, s, error);
        if (status)
            return status;
    }
    for (;;) {
        const uint32_t shard = next_lane(lanes, final_from);
        if (shard == lanes->stripes.shard_count)
            return RT_OK;
        const uint32_t first = next_chunk(&lanes->lanes[shard]);
        const rt_status status = fill_chunk(lanes, shard, first, bytes_p, error);
        if (status)
            return status;
    }
}

bool ew_lanes_held_up(const ew_lanes *lanes)
{
    bool held_up = false;
    for (uint32_t s = 0; s < lanes->stripes.shard_count; s++)
        held_up |= lanes->lanes[s].out.count > 0;
    return held_up;
}

// ---- back ------------------------------------------------------------------------------------

static void unpack(ew_lanes *lanes, uint32_t shard, uint32_t first, uint32_t floats,
                   const uint16_t *in)
{
    for (uint32_t done = 0, run; done < floats; done += run) {
        run = rt_stripes_run(&lanes->stripes, first + done, floats - done);
        rt_bf16_unpack(in + done, run,
                       lanes->gradients + rt_stripes_place(&lanes->stripes, shard, first + done));
    }
}

static void unpack_int8(ew_lanes *lanes, uint32_t shard, uint32_t first, uint32_t floats,
                        const uint8_t *in)
{
    float values[RT_INT8_BLOCK];
    const uint32_t whole = whole_in(lanes, shard, first, floats), rounded = floats - whole;
    const float *as_they_are = (const float *)(const void *)in, *scales = as_they_are + whole;
    const int8_t *codes = (const int8_t *)(scales + rt_int8_blocks(rounded));
    rt_stripes_scatter(&lanes->stripes, shard, first + rounded, whole, as_they_are,
                       lanes->gradients);
    for (uint32_t at = 0; at < rounded; at += RT_INT8_BLOCK) {
        const uint32_t some = (uint32_t)rt_min_u64(rounded - at, RT_INT8_BLOCK);
        rt_int8_unpack(*scales++, codes + at, some, values);
        rt_stripes_scatter(&lanes->stripes, shard, first + at, some, values, lanes->gradients);
    }
}

// Whether the payload is that of a chunk as this worker sent it.
static bool fits(const ew_lanes *lanes, const rt_message *message, uint32_t shard, uint32_t floats)
{
    rt_wire_dense_int8 head;
    const rt_wire_header *header = rt_message_header(message);
    if (header->payload_bytes != chunk_bytes(lanes, shard, header->count, floats))
        return false;
    if (lanes->coding != RT_CODING_INT8)
        return true;
    memcpy(&head, rt_message_payload(message), sizeof head);
    return head.floats == floats && head.whole == whole_in(lanes, shard, header->count, floats);
}

// Floats of a chunk that begins there.
static uint32_t floats_from(const ew_lane *lane, uint32_t first)
{
    return (uint32_t)rt_min_u64(lane->count - first, lane->chunk_floats);
}

// Whether it is the sum of a chunk that was sent, and the first of it.
static bool is_awaited(const ew_lanes *lanes, const rt_message *message)
{
    static const rt_message_type types[] = {RT_MESSAGE_DENSE_SUM, RT_MESSAGE_DENSE_SUM_BF16,
                                            RT_MESSAGE_DENSE_SUM_INT8};
    const rt_wire_header *header = rt_message_header(message);
    const uint32_t shard = rt_peer_rank(header->sender), first = header->count;
    if (shard >= lanes->stripes.shard_count || header->iteration != lanes->iteration ||
        header->type != types[lanes->coding])
        return false;
    const ew_lane *lane = &lanes->lanes[shard];
    const uint32_t chunk = first / lane->chunk_floats;
    return first < lane->count && first >= lane->sent_from && first % lane->chunk_floats == 0 &&
           fits(lanes, message, shard, floats_from(lane, first)) &&
           !(lane->arrived[chunk / 64] & rt_bit(chunk % 64));
}

rt_status ew_lanes_take(ew_lanes *lanes, const rt_message *message, rt_error *error)
{
    const rt_wire_header *header = rt_message_header(message);
    const uint32_t shard = rt_peer_rank(header->sender), first = header->count;
    if (!is_awaited(lanes, message))
        return rt_fail(error, RT_WIRE, "PS shard %" PRIu32 ": a dense sum that nobody waits for",
                       shard);
    ew_lane *lane = &lanes->lanes[shard];
    const uint32_t floats = floats_from(lane, first), chunk = first / lane->chunk_floats;
    const void *payload = rt_message_payload(message) + sizeof(rt_wire_dense);
    if (lanes->coding == RT_CODING_INT8)
        unpack_int8(lanes, shard, first, floats,
                    rt_message_payload(message) + sizeof(rt_wire_dense_int8));
    else if (lanes->coding == RT_CODING_BF16)
        unpack(lanes, shard, first, floats, payload);
    else
        rt_stripes_scatter(&lanes->stripes, shard, first, floats, payload, lanes->gradients);
    lane->arrived[chunk / 64] |= rt_bit(chunk % 64);
    lane->chunks_left--;
    return RT_OK;
}

bool ew_lanes_complete(const ew_lanes *lanes)
{
    uint32_t left = 0;
    for (uint32_t s = 0; s < lanes->stripes.shard_count; s++)
        left += lanes->lanes[s].chunks_left;
    return left == 0;
}

bool ew_lanes_arrived(const ew_lanes *lanes, uint32_t place)
{
    uint32_t at;
    const uint32_t shard = rt_stripes_owner(&lanes->stripes, place, &at);
    const uint32_t chunk = at / lanes->lanes[shard].chunk_floats;
    return lanes->lanes[shard].arrived[chunk / 64] >> (chunk % 64) & 1;
}
