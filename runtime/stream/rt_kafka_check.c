// Whether a partition is still the one that was read, and what became of messages that are gone.
//
// A topic may have been deleted and made again: its offsets begin anew. Before reading goes on, the
// message that was read last is read once more and compared. Where it is not there, the partition's
// end was taken back (an election of a broker that lacked it), or it is another partition: the
// anchor tells. What retention took before it was read is counted.
#include <inttypes.h>

#include "runtime/stream/rt_kafka_parts.h"

#define LOCATE_MS 2000
#define LOCATE_RETRY_NS UINT64_C(5000000000)
#define QUIET_NS UINT64_C(1000000000)

uint64_t rt_kafka_hash_of(const rd_kafka_message_t *message)
{
    rd_kafka_timestamp_type_t type;
    const int64_t stamp = rd_kafka_message_timestamp(message, &type);
    return rt_kafka_hash(stamp, message->key, message->key_len, message->payload, message->len);
}

static int64_t offset_of(const rt_kafka_partition *p)
{
    if (p->state == RT_KAFKA_LAST)
        return (int64_t)rt_kafka_last_offset(&p->at);
    if (p->state == RT_KAFKA_ANCHOR)
        return (int64_t)p->at.anchor_offset;
    if (p->at.next)
        return (int64_t)p->at.next;
    return RD_KAFKA_OFFSET_BEGINNING;
}

int64_t rt_kafka_begin(rt_kafka_partition *p)
{
    p->state = RT_KAFKA_READS;
    if (p->at.last && !p->head)
        p->state = RT_KAFKA_LAST;
    return offset_of(p);
}

static void seek_to(rt_kafka *k, uint32_t i, rt_kafka_state state)
{
    rt_kafka_partition *p = &k->partitions[i];
    p->state = state;
    p->is_at_end = false;
    p->is_empty = false;
    if (!p->is_stopped) {
        (void)rd_kafka_seek(k->topic, (int32_t)i, offset_of(p), 0);
        return;
    }
    p->is_stopped = false;
    (void)rd_kafka_consume_stop(k->topic, (int32_t)i);
    (void)rd_kafka_consume_start(k->topic, (int32_t)i, offset_of(p));
}

void rt_kafka_ask_again(rt_kafka *k, uint32_t i)
{
    rt_kafka_partition *p = &k->partitions[i];
    (void)rt_kafka_begin(p);
    seek_to(k, i, p->state);
}

static void look_for_offsets(rt_kafka *k, uint32_t i)
{
    k->partitions[i].state = RT_KAFKA_LOOKS;
    k->partitions[i].is_at_end = false;
    k->locate_ns = 0;
}

static void begin_anew(rt_kafka *k, uint32_t i, const char *why)
{
    rt_kafka_partition *p = &k->partitions[i];
    rt_warn("stream.kafka: topic %s, partition %" PRIu32 ", was read up to offset %" PRIu64
            ": %s; it is taken for another one and read from its beginning, and what was not read "
            "of the one before, if anything, is lost",
            k->config->kafka_topic, i, p->at.next, why);
    k->breaks++;
    p->at = (rt_kafka_place){0};
    p->coming = 0;
    seek_to(k, i, RT_KAFKA_READS);
}

// What was read last is not there any more, but it is the same partition.
static void go_on_at_resume(rt_kafka *k, uint32_t i)
{
    rt_kafka_partition *p = &k->partitions[i];
    if (p->resume < p->at.next) {
        rt_warn("stream.kafka: topic %s, partition %" PRIu32 ", ends at offset %" PRIu64
                ", and had been read up to %" PRIu64
                ": its brokers took messages back that were read; it goes on at its end",
                k->config->kafka_topic, i, p->resume, p->at.next);
        k->breaks++;
        p->at.next = p->resume;
        p->at.skip = p->at.last = 0;
        p->coming = 0;
    }
    seek_to(k, i, RT_KAFKA_READS);
}

static void try_anchor(rt_kafka *k, uint32_t i, uint64_t resume)
{
    k->partitions[i].resume = resume;
    seek_to(k, i, RT_KAFKA_ANCHOR);
}

// The message that is looked for is not among those that are there. A compacted topic may have lost
// it, and be the same; an end that was taken back needs a proof.
static void miss(rt_kafka *k, uint32_t i)
{
    rt_kafka_partition *p = &k->partitions[i];
    if (p->state == RT_KAFKA_LAST && p->at.anchor &&
        p->at.anchor_offset < rt_kafka_last_offset(&p->at)) {
        try_anchor(k, i, p->at.next);
    } else if (p->state == RT_KAFKA_LAST || p->resume >= p->at.next) {
        rt_info("stream.kafka: topic %s, partition %" PRIu32 ": the messages by which it would be "
                "known are not there any more; reading goes on at offset %" PRIu64,
                k->config->kafka_topic, i, p->at.next);
        seek_to(k, i, RT_KAFKA_READS);
    } else {
        begin_anew(k, i, "its end is before that");
    }
}

static bool look_at_message(rt_kafka *k, uint32_t i, const rd_kafka_message_t *message)
{
    rt_kafka_partition *p = &k->partitions[i];
    const uint64_t wanted = p->state == RT_KAFKA_LAST ? p->at.last : p->at.anchor;
    const bool is_there = message->offset == offset_of(p);
    if (!is_there) {
        miss(k, i);
    } else if (rt_kafka_hash_of(message) != wanted) {
        begin_anew(k, i, "another message stands where one was that it had read");
    } else if (p->state == RT_KAFKA_LAST) {
        p->state = RT_KAFKA_READS;
        return p->at.skip > 0; // else the next one is
    } else {
        go_on_at_resume(k, i);
    }
    return false;
}

// Nothing is at the offset that was asked for, or behind it.
static void look_at_end(rt_kafka *k, uint32_t i, const rd_kafka_message_t *message)
{
    const rt_kafka_partition *p = &k->partitions[i];
    const bool is_end = message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
    const bool goes_on = is_end && (uint64_t)message->offset >= p->at.next;
    if (p->state == RT_KAFKA_ANCHOR || (p->state == RT_KAFKA_LAST && goes_on))
        miss(k, i);
    else
        look_for_offsets(k, i);
}

bool rt_kafka_look(rt_kafka *k, uint32_t i, const rd_kafka_message_t *message)
{
    rt_kafka_partition *p = &k->partitions[i];
    const bool is_looking = p->state == RT_KAFKA_LAST || p->state == RT_KAFKA_ANCHOR;
    switch (message->err) {
    case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
    case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
        p->is_stopped = true; // librdkafka takes no seek then
        look_at_end(k, i, message);
        return false;
    case RD_KAFKA_RESP_ERR__PARTITION_EOF:
        if (!is_looking && (uint64_t)message->offset >= p->at.next)
            return p->state == RT_KAFKA_READS;
        look_at_end(k, i, message);
        return false;
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART: // it may be another one when it comes back
        rt_kafka_ask_again(k, i);
        return true;
    case RD_KAFKA_RESP_ERR_NO_ERROR:
        return is_looking ? look_at_message(k, i, message) : p->state == RT_KAFKA_READS;
    default:
        return true;
    }
}

// By what the broker said with its last answer to whoever asked for messages.
void rt_kafka_look_at_quiet(rt_kafka *k, uint32_t i)
{
    rt_kafka_partition *p = &k->partitions[i];
    int64_t low = -1, high = -1;
    if (p->state == RT_KAFKA_LOOKS || rt_now_ns() < p->look_ns)
        return;
    p->look_ns = rt_now_ns() + QUIET_NS;
    const rd_kafka_resp_err_t reason =
        rd_kafka_get_watermark_offsets(k->client, k->config->kafka_topic, (int32_t)i, &low, &high);
    const bool is_looking = p->state != RT_KAFKA_READS;
    const int64_t at = offset_of(p), end = at + is_looking;
    const bool is_outside =
        !reason && at >= 0 && high >= 0 && (end > high || (low >= 0 && at < low));
    if (is_outside && p->is_outside) // twice: it is not about to be said otherwise
        look_for_offsets(k, i);
    p->is_outside = is_outside && !p->is_outside;
}

// Offsets from low on are there, up to high.
static void settle(rt_kafka *k, uint32_t i, uint64_t low, uint64_t high)
{
    rt_kafka_partition *p = &k->partitions[i];
    const uint64_t last = rt_kafka_last_offset(&p->at);
    if (p->at.next > high || (p->at.skip && last >= high)) {
        if (p->at.anchor && p->at.anchor_offset >= low && p->at.anchor_offset < high)
            try_anchor(k, i, high);
        else
            begin_anew(k, i, "its end is before that");
        return;
    }
    if (last >= low || p->at.next == 0) {
        (void)rt_kafka_begin(p);
        seek_to(k, i, p->state);
        return;
    }
    if (p->at.next < low) {
        const uint64_t lost = low - p->at.next;
        rt_warn("stream.kafka: topic %s, partition %" PRIu32 ": %" PRIu64
                " messages from offset %" PRIu64
                " on are lost: Kafka deleted them before they were read",
                k->config->kafka_topic, i, lost, p->at.next);
        k->lost += lost;
        p->at.next = low;
        p->at.skip = p->at.last = 0;
    }
    seek_to(k, i, RT_KAFKA_READS);
}

void rt_kafka_locate_all(rt_kafka *k)
{
    uint64_t told;
    if (rt_now_ns() < k->locate_ns)
        return;
    k->locate_ns = UINT64_MAX;
    for (uint32_t i = 0; i < k->started_count; i++) {
        int64_t low = 0, high = 0;
        if (k->partitions[i].state != RT_KAFKA_LOOKS)
            continue;
        const rd_kafka_resp_err_t reason = rd_kafka_query_watermark_offsets(
            k->client, k->config->kafka_topic, (int32_t)i, &low, &high, LOCATE_MS);
        if (!reason && low >= 0 && high >= low) {
            settle(k, i, (uint64_t)low, (uint64_t)high);
            continue;
        }
        k->locate_ns = rt_now_ns() + LOCATE_RETRY_NS;
        if (rt_log_due(&k->limit, &told))
            rt_warn("stream.kafka: topic %s, partition %" PRIu32 ": its offsets are not known: %s",
                    k->config->kafka_topic, i, rd_kafka_err2str(reason));
        return; // nobody answers: one wait at a time
    }
}

void rt_kafka_drop_partitions(rt_kafka *k, uint32_t count)
{
    uint32_t dropped = 0;
    for (uint32_t i = count; i < k->partition_count; i++) {
        rt_kafka_partition *p = &k->partitions[i];
        dropped += p->at.next > 0 || p->head;
        if (p->head)
            rd_kafka_message_destroy(p->head);
        if (p->queue) {
            (void)rd_kafka_consume_stop(k->topic, (int32_t)i);
            rd_kafka_queue_destroy(p->queue);
        }
        *p = (rt_kafka_partition){0};
    }
    k->started_count = (uint32_t)rt_min_u64(k->started_count, count);
    k->partition_count = (uint32_t)rt_min_u64(k->partition_count, count);
    if (!dropped)
        return;
    k->breaks++;
    rt_warn("stream.kafka: topic %s has %" PRIu32 " partitions now, and had %" PRIu32
            ": it was made again; what was not read of those that are gone, if anything, is lost",
            k->config->kafka_topic, count, count + dropped);
}
