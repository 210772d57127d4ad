#include "edge_worker/ew_lanes.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/numbers/rt_bf16.h"

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
    rt_status status =
        ew_outlet_flush(&lanes->lanes[shard].out, lanes->send, lanes->send_context, shard);
    return status ? rt_fail(error, status, "cannot send to PS shard %" PRIu32 ": %s", shard,
                            rt_status_text(status))
                  : RT_OK;
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

static rt_status fill_chunk(ew_lanes *lanes, uint32_t shard, uint32_t first, uint64_t *bytes_p,
                            rt_error *error)
{
    rt_message message;
    ew_lane *lane = &lanes->lanes[shard];
    const rt_wire_dense head = {lanes->workers};
    const uint32_t floats = lane->sent_from - first;
    const size_t bytes = floats * (lanes->bf16 ? sizeof(uint16_t) : sizeof(float));
    rt_status status = rt_message_create(
        &message, lanes->bf16 ? RT_MESSAGE_DENSE_GRAD_BF16 : RT_MESSAGE_DENSE_GRAD, lanes->sender,
        lanes->iteration, first, sizeof head + bytes);
    if (status)
        return rt_fail(error, status, "out of memory");
    void *payload = rt_message_payload(&message) + sizeof head;
    memcpy(rt_message_payload(&message), &head, sizeof head);
    if (lanes->bf16)
        pack(lanes, shard, first, floats, payload);
    else
        rt_stripes_gather(&lanes->stripes, shard, first, floats, lanes->gradients, payload);
    lane->sent_from = first;
    *bytes_p += bytes;
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

rt_status ew_lanes_advance(ew_lanes *lanes, uint32_t final_from, uint64_t *bytes_p,
                           rt_error *error)
{
    rt_status status = RT_OK;
    for (uint32_t s = 0; s < lanes->stripes.shard_count && !status; s++)
        status = flush(lanes, s, error);
    while (!status) {
        const uint32_t shard = next_lane(lanes, final_from);
        if (shard == lanes->stripes.shard_count)
            break;
        status = fill_chunk(lanes, shard, next_chunk(&lanes->lanes[shard]), bytes_p, error);
    }
    return status;
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

rt_status ew_lanes_take(ew_lanes *lanes, const rt_message *message, rt_error *error)
{
    const rt_wire_header *header = rt_message_header(message);
    const bool bf16 = header->type == RT_MESSAGE_DENSE_SUM_BF16;
    const uint32_t shard = rt_peer_rank(header->sender), first = header->count;
    const uint64_t bytes = header->payload_bytes - sizeof(rt_wire_dense);
    const uint64_t floats = bytes / (bf16 ? sizeof(uint16_t) : sizeof(float));
    ew_lane *lane = shard < lanes->stripes.shard_count ? &lanes->lanes[shard] : NULL;
    const uint32_t chunk = lane ? first / lane->chunk_floats : 0;
    if (!lane || header->iteration != lanes->iteration || bf16 != lanes->bf16 ||
        first >= lane->count || first < lane->sent_from || first % lane->chunk_floats ||
        floats != rt_min_u64(lane->count - first, lane->chunk_floats) ||
        lane->arrived[chunk / 64] & rt_bit(chunk % 64))
        return rt_fail(error, RT_WIRE, "PS shard %" PRIu32 ": a dense sum that nobody waits for",
                       shard);
    const void *payload = rt_message_payload(message) + sizeof(rt_wire_dense);
    if (bf16)
        unpack(lanes, shard, first, (uint32_t)floats, payload);
    else
        rt_stripes_scatter(&lanes->stripes, shard, first, (uint32_t)floats, payload,
                           lanes->gradients);
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
