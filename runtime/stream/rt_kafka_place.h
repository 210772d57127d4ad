// rt_kafka_place - how far a partition was read, and by what it is known that it is still the one
// that was read: an offset says nothing of a topic that was deleted and made again.
//
// Two messages are remembered by a hash: the last one that was read, and one of some thousands
// before it (of a short partition the first), which is still there when the end was taken back.
#ifndef RT_KAFKA_PLACE_H
#define RT_KAFKA_PLACE_H

#include "runtime/wire/rt_bytes.h"

// Goes into positions; all zero: nothing was read.
typedef struct {
    uint64_t next; // offset of the next message
    uint64_t skip; // lines of it that were given out before
    uint64_t last; // hash of the message before `next`, with skip of that one; 0: not known
    uint64_t anchor_offset, anchor; // hash; 0: not known
} rt_kafka_place;

// Never 0. stamp: of the message, -1 where it has none.
uint64_t rt_kafka_hash(int64_t stamp, const void *key, size_t key_size, const void *text,
                       size_t text_size);

// Offset of the message that `last` is of.
static inline uint64_t rt_kafka_last_offset(const rt_kafka_place *at)
{
    return at->skip || at->next == 0 ? at->next : at->next - 1;
}

// The message was read to its end. *coming: what the anchor will be, not kept over restarts.
void rt_kafka_place_pass(rt_kafka_place *at, uint64_t *coming_offset, uint64_t *coming,
                         uint64_t offset, uint64_t hash);

// As a position has them: begin, then add each of so many. take: of any version, those of the first one
// have no hashes; *count_p of them, the caller's (rt_free). RT_DATA: they are none; RT_UNSUPPORTED:
// of a later version; RT_NO_MEMORY.
void rt_kafka_places_begin(rt_bytes *bytes, uint32_t count);
void rt_kafka_places_add(rt_bytes *bytes, const rt_kafka_place *at);
rt_status rt_kafka_places_take(rt_reader *bytes, uint32_t count_max, rt_kafka_place **places_p,
                               uint32_t *count_p, rt_error *error);

#endif
