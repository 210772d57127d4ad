#include "runtime/stream/rt_kafka_place.h"

#include "runtime/rt_build.h"
#include "runtime/rt_hash.h"
#include "runtime/wire/rt_fields.h"

#define ANCHOR_EVERY 4096u // messages
#define VERSION 3u
#define VERSION_UNNAMED 2u                      // without names (rt_fields.h)
#define VERSION_MARK (UINT64_C(0x4b4146) << 40) // above any count of the first version

#define PLACE(XX, PART, NONE, T) \
    XX(T, next)                  \
    XX(T, skip)                  \
    XX(T, last)                  \
    XX(T, anchor_offset)         \
    XX(T, anchor)
RT_FIELDS(place_fields, rt_kafka_place, PLACE, "next:8 skip:8");
#define UNNAMED "next:8 skip:8 last:8 anchor_offset:8 anchor:8"

uint64_t rt_kafka_hash(int64_t stamp, const void *key, size_t key_size, const void *text,
                       size_t text_size)
{
    const uint64_t parts[] = {(uint64_t)stamp, key_size, rt_hash_bytes(key, key_size), text_size,
                              rt_hash_bytes(text, text_size)};
    return rt_max_u64(rt_hash_bytes(parts, sizeof parts), 1);
}

void rt_kafka_place_pass(rt_kafka_place *at, uint64_t *coming_offset, uint64_t *coming,
                         uint64_t offset, uint64_t hash)
{
    if (!at->anchor) {
        at->anchor = hash;
        at->anchor_offset = offset;
    }
    if (!*coming) {
        *coming = at->anchor;
        *coming_offset = at->anchor_offset;
    }
    if (offset - *coming_offset >= ANCHOR_EVERY) {
        at->anchor = *coming;
        at->anchor_offset = *coming_offset;
        *coming = hash;
        *coming_offset = offset;
    }
    at->next = offset + 1;
    at->skip = 0;
    at->last = hash;
}

void rt_kafka_places_begin(rt_bytes *bytes, uint32_t count)
{
    rt_bytes_put_u64(bytes, VERSION_MARK | VERSION);
    rt_bytes_put_u64(bytes, count);
    rt_fields_begin(bytes, &place_fields);
}

void rt_kafka_places_add(rt_bytes *bytes, const rt_kafka_place *at)
{
    rt_fields_add(bytes, &place_fields, at);
}

rt_status rt_kafka_places_take(rt_reader *bytes, uint32_t count_max, rt_kafka_place **places_p,
                               uint32_t *count_p, rt_error *error)
{
    uint64_t count = rt_reader_u64(bytes), version = 1;
    if ((count & ~UINT64_C(0xff)) == VERSION_MARK) {
        version = count & 0xff;
        count = rt_reader_u64(bytes);
    }
    if (version > VERSION)
        return rt_fail_format(error, "the position in stream.kafka", (unsigned)version, VERSION,
                              NULL);
    if (bytes->failed || count > count_max)
        return rt_fail(error, RT_DATA, "the offsets of Kafka are damaged");
    rt_kafka_place *places = rt_alloc(count + 1, sizeof *places);
    if (!places)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for stream.kafka");
    const bool is_read = version == VERSION_UNNAMED
                             ? rt_fields_get_as(bytes, &place_fields, UNNAMED, places, count)
                             : rt_fields_get(bytes, &place_fields, places, count);
    if (!is_read || bytes->left) {
        rt_free(places);
        return rt_fail(error, RT_DATA, "the offsets of Kafka are damaged");
    }
    *places_p = places;
    *count_p = (uint32_t)count;
    return RT_OK;
}
