// What a checkpoint keeps of a join, as it stood at the end of a step.
#include <string.h>

#include "runtime/rt_build.h"
#include "runtime/rt_hash.h"
#include "runtime/stream/rt_join_parts.h"
#include "runtime/wire/rt_fields.h"

#define SAVE_MAGIC UINT32_C(0x4e494f4a) // "JOIN"
// Dense features have 32 bits each, or, where those do not hold all that was read, 64.
#define SAVE_VERSION 1u
#define SAVE_VERSION_LONG 2u
#define KEYS_MAX (1u << 16)

void rt_join_remember(rt_join *join)
{
    join->remembers = true;
}

uint64_t rt_join_step(rt_join *join)
{
    pthread_mutex_lock(&join->lock);
    const uint64_t step = ++join->step;
    pthread_mutex_unlock(&join->lock);
    return step;
}

// Of a join, in a position.
typedef struct {
    uint64_t step, numbers, turns;
    int64_t clock_ms;
    uint32_t has_clock, jumps;
    rt_join_counts counts;
} told;

#define COUNTS(XX, PART, NONE, T) \
    XX(T, events)                 \
    XX(T, outcomes)               \
    XX(T, waiting)                \
    XX(T, kept)                   \
    XX(T, unanswered)             \
    XX(T, late)                   \
    XX(T, unmatched)              \
    XX(T, repeated)               \
    XX(T, crowded)                \
    NONE(T, doubted)
RT_FIELDS(counts_fields, rt_join_counts, COUNTS,
          "events:8 outcomes:8 waiting:8 kept:8 unanswered:8 late:8 unmatched:8 repeated:8 "
          "crowded:8");
#define TOLD(XX, PART, NONE, T) \
    XX(T, step)                 \
    XX(T, numbers)              \
    XX(T, turns)                \
    XX(T, clock_ms)             \
    XX(T, has_clock)            \
    XX(T, jumps)                \
    PART(T, counts, &counts_fields)
RT_FIELDS(told_fields, told, TOLD,
          "step:8 numbers:8 turns:8 clock_ms:8 has_clock:4 jumps:4 counts*1{events:8 outcomes:8 "
          "waiting:8 kept:8 unanswered:8 late:8 unmatched:8 repeated:8 crowded:8}");

void rt_join_tell(const rt_join *join, rt_bytes *bytes)
{
    const told all = {join->step, join->numbers, join->turns, join->clock_ms, join->has_clock,
                      0,          join->counts};
    rt_fields_put(bytes, &told_fields, &all, 1);
}

bool rt_join_seek(rt_join *join, rt_reader *bytes)
{
    told all;
    if (!rt_fields_get(bytes, &told_fields, &all, 1))
        return false;
    join->step = all.step;
    join->numbers = all.numbers;
    join->turns = all.turns;
    join->clock_ms = all.clock_ms;
    join->has_clock = all.has_clock != 0;
    join->counts = all.counts;
    join->counts.waiting = join->counts.kept = 0; // of what rt_join_load brings
    return true;
}

bool rt_join_find_step(rt_reader *bytes, uint64_t *step_p)
{
    told all;
    if (!rt_fields_get(bytes, &told_fields, &all, 1))
        return false;
    *step_p = all.step;
    return true;
}

// GONE also before it came; free records are all zero, so they are, too.
static rt_join_state state_at(const rt_join_record *one, uint64_t step)
{
    rt_join_state state = GONE;
    for (rt_join_state s = OFFERED; s < STATES; s++) {
        if (one->since[s] <= step)
            state = s;
    }
    return state;
}

// As they were known at the end of a step. Of one label the state says whether it is.
static uint32_t label_flags(const rt_join *join, const rt_join_record *one, uint64_t step)
{
    uint32_t known = 0;
    if (join->label_count == 1)
        return 2u * (one->labels.ones != 0);
    for (uint32_t l = 0; l < join->label_count; l++)
        if (one->told[l] <= step)
            known |= one->labels.known & 1u << l;
    return known << 8 | (one->labels.ones & known) << 16 | (uint32_t)one->late << 24;
}

static rt_status read_labels(const rt_join *join, uint32_t flags, rt_join_record *one)
{
    const bool is_one = flags & 2;
    if (join->label_count == 1) {
        one->labels.known = one->state != WAITING && one->state != OFFERED;
        one->labels.ones = is_one && one->labels.known;
        one->late = one->state == LATE;
        if (flags > 15)
            return RT_DATA;
        return RT_OK;
    }
    one->labels.known = flags >> 8 & 0xff;
    one->labels.ones = flags >> 16 & 0xff;
    one->late = (uint8_t)(flags >> 24);
    if (((one->labels.known | one->late) & ~join->all) || (flags & 0xf2) ||
        (one->labels.ones & ~one->labels.known))
        return RT_DATA;
    if (rt_join_reserve_told(join, one))
        return RT_NO_MEMORY;
    for (uint32_t l = 0; l < join->label_count; l++)
        one->told[l] = join->step;
    return RT_OK;
}

// The time that counted for it at the end of a step.
static int64_t known_at(const rt_join_record *one, uint64_t step)
{
    if (one->doubted != RT_JOIN_NEVER && one->doubted > step)
        return one->before_ms;
    return one->known_ms;
}

static const double *dense_of(const rt_join_record *one)
{
    return (const double *)(const void *)(one->payload + one->key_count * sizeof(uint64_t));
}

// 32 bits hold its dense features.
static bool is_short(const rt_join *join, const rt_join_record *one)
{
    for (uint32_t k = 0; one->payload && k < join->settings.dense_count; k++)
        if ((double)(float)dense_of(one)[k] != dense_of(one)[k])
            return false;
    return true;
}

static void save_payload(const rt_join *join, const rt_join_record *one, bool is_long,
                         rt_bytes *bytes)
{
    const uint32_t dense_count = join->settings.dense_count;
    rt_bytes_put(bytes, one->payload, one->key_count * sizeof(uint64_t));
    if (is_long)
        rt_bytes_put(bytes, dense_of(one), dense_count * sizeof(double));
    for (uint32_t k = 0; !is_long && k < dense_count; k++) {
        const float value = (float)dense_of(one)[k];
        rt_bytes_put(bytes, &value, sizeof value);
    }
}

static void save_one(const rt_join *join, const rt_join_record *one, rt_join_state state,
                     uint64_t step, bool is_long, rt_bytes *bytes)
{
    const uint32_t flags = 1u * one->is_early | label_flags(join, one, step) |
                           4u * one->is_trained | 8u * one->is_unanswered;
    rt_bytes_put_u64(bytes, one->id);
    rt_bytes_put_u64(bytes, (uint64_t)one->time_ms);
    rt_bytes_put_u64(bytes, (uint64_t)known_at(one, step));
    rt_bytes_put_u64(bytes, one->number);
    rt_bytes_put_u64(bytes, one->turns[state == LATE]);
    rt_bytes_put_u32(bytes, state);
    rt_bytes_put_u32(bytes, flags);
    rt_bytes_put(bytes, &one->weight, sizeof one->weight);
    rt_bytes_put_u32(bytes, one->key_count);
    if (one->payload)
        save_payload(join, one, is_long, bytes);
}

void rt_join_save(rt_join *join, uint64_t step, rt_bytes *bytes)
{
    uint64_t count = 0;
    bool is_long = false;
    pthread_mutex_lock(&join->lock);
    for (uint32_t i = 0; i < join->record_count; i++) {
        const bool is_there = state_at(&join->records[i], step) != GONE;
        count += is_there;
        is_long |= is_there && !is_short(join, &join->records[i]);
    }
    rt_bytes_put_u32(bytes, SAVE_MAGIC);
    rt_bytes_put_u32(bytes, is_long ? SAVE_VERSION_LONG : SAVE_VERSION);
    rt_bytes_put_u64(bytes, count);
    for (uint32_t i = 0; i < join->record_count; i++) {
        const rt_join_record *one = &join->records[i];
        const rt_join_state state = state_at(one, step);
        if (state != GONE)
            save_one(join, one, state, step, is_long, bytes);
    }
    pthread_mutex_unlock(&join->lock);
}

void rt_join_settle(rt_join *join, uint64_t step)
{
    pthread_mutex_lock(&join->lock);
    while (join->gone_first != RT_JOIN_NONE &&
           join->records[join->gone_first].since[GONE] <= step) {
        const uint32_t index = join->gone_first;
        join->gone_first = join->records[index].next;
        rt_join_release(join, index);
    }
    pthread_mutex_unlock(&join->lock);
}

// RT_DATA: it is cut short.
static rt_status read_payload(const rt_join *join, bool is_long, rt_reader *bytes,
                              rt_join_record *one)
{
    const uint32_t dense_count = join->settings.dense_count;
    const size_t keys = one->key_count * sizeof(uint64_t);
    one->payload = rt_alloc(keys + dense_count * sizeof(double) + 1, 1);
    if (!one->payload)
        return RT_NO_MEMORY;
    if (!rt_reader_get(bytes, one->payload, one->key_count, sizeof(uint64_t)))
        return RT_DATA;
    if (is_long)
        return rt_reader_get(bytes, one->payload + keys, dense_count, sizeof(double)) ? RT_OK
                                                                                      : RT_DATA;
    for (uint32_t k = 0; k < dense_count; k++) {
        float value = 0;
        if (!rt_reader_get(bytes, &value, 1, sizeof value))
            return RT_DATA;
        const double read = (double)value;
        memcpy(one->payload + keys + k * sizeof read, &read, sizeof read);
    }
    return RT_OK;
}

static rt_status read_one(rt_join *join, bool is_long, rt_reader *bytes, rt_join_record *one)
{
    *one = (rt_join_record){.id = rt_reader_u64(bytes), .doubted = RT_JOIN_NEVER};
    one->time_ms = (int64_t)rt_reader_u64(bytes);
    one->known_ms = (int64_t)rt_reader_u64(bytes);
    one->number = rt_reader_u64(bytes);
    const uint64_t turn = rt_reader_u64(bytes);
    one->state = (rt_join_state)rt_reader_u32(bytes);
    const uint32_t flags = rt_reader_u32(bytes);
    rt_reader_get(bytes, &one->weight, 1, sizeof one->weight);
    one->key_count = rt_reader_u32(bytes);
    if (bytes->failed || one->state >= GONE || one->key_count > KEYS_MAX ||
        one->number >= join->numbers || ((flags & 1) && one->state != KEPT))
        return RT_DATA;
    one->is_early = flags & 1;
    one->is_trained = flags & 4;
    one->is_unanswered = flags & 8;
    one->turns[0] = one->turns[1] = turn;
    for (uint32_t s = 0; s < STATES; s++)
        one->since[s] = RT_JOIN_NEVER;
    one->since[one->state] = join->step;
    rt_status status = read_labels(join, flags, one);
    if (status)
        return status;
    if (one->is_early && one->key_count > 0)
        return RT_DATA;
    if (one->is_early)
        return RT_OK;
    return read_payload(join, is_long, bytes, one);
}

// Ready ones go into their queue by turn.
static void queue_ready(rt_join *join, uint32_t index)
{
    uint32_t before = RT_JOIN_NONE, at = join->ready_first;
    while (at != RT_JOIN_NONE && join->records[at].turns[0] < join->records[index].turns[0]) {
        before = at;
        at = join->records[at].next;
    }
    join->records[index].next = at;
    if (before == RT_JOIN_NONE)
        join->ready_first = index;
    else
        join->records[before].next = index;
    if (at == RT_JOIN_NONE)
        join->ready_last = index;
}

// One event is aside at most, and every other has its id alone.
static bool is_twice(const rt_join *join, const rt_join_record *one)
{
    if (one->state == OFFERED)
        return join->offered != RT_JOIN_NONE;
    return join->slot_count && rt_join_find(join, one->id) != RT_JOIN_NONE;
}

static rt_status offer_again(rt_join *join, const rt_join_record *one, uint32_t *index_p)
{
    rt_status status = rt_join_reserve(join, index_p);
    if (status)
        return status;
    rt_join_record *record = &join->records[*index_p];
    join->free = record->next;
    *record = *one;
    record->heap_at = record->next = RT_JOIN_NONE;
    join->offered = *index_p;
    return RT_OK;
}

static rt_status put_back(rt_join *join, rt_join_record *one)
{
    uint32_t index;
    const rt_join_state state = one->state;
    if (is_twice(join, one))
        return RT_DATA;
    rt_status status = RT_OK;
    if (state == OFFERED)
        status = offer_again(join, one, &index);
    else
        status = rt_join_add(join, *one, state, &index);
    if (status)
        return status;
    one->payload = NULL; // the record's now
    one->told = NULL;
    rt_join_count_state(join, one, state, 1);
    if (state == WAITING || state == KEPT)
        rt_join_heap_add(join, index, rt_join_end_of(join, one, state));
    else if (state != OFFERED)
        queue_ready(join, index);
    return RT_OK;
}

static rt_status load_records(rt_join *join, uint64_t count, bool is_long, rt_reader *bytes)
{
    for (uint64_t i = 0; i < count; i++) {
        rt_join_record one;
        rt_status status = read_one(join, is_long, bytes, &one);
        if (!status)
            status = put_back(join, &one);
        rt_free(one.payload); // what the join did not take over
        rt_free(one.told);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status rt_join_load(rt_join *join, rt_reader *bytes, rt_error *error)
{
    const bool is_ours = rt_reader_u32(bytes) == SAVE_MAGIC;
    const uint32_t version = rt_reader_u32(bytes);
    const uint64_t count = rt_reader_u64(bytes);
    const bool is_long = version == SAVE_VERSION_LONG;
    rt_status status = RT_DATA;
    if (is_ours && version > SAVE_VERSION_LONG)
        return rt_fail_format(error, "what waits (stream.join)", version, SAVE_VERSION_LONG, NULL);
    if (is_ours && (is_long || version == SAVE_VERSION) && !bytes->failed)
        status = load_records(join, count, is_long, bytes);
    if (status == RT_NO_MEMORY)
        return rt_fail(error, status, "out of memory for a join");
    if (status)
        return rt_fail(error, RT_DATA, "the events that wait (stream.join) are damaged");
    return RT_OK;
}
