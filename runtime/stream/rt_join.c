#include "runtime/stream/rt_join_parts.h"

#include <string.h>

#include "runtime/numbers/rt_negatives.h"
#include "runtime/rt_hash.h"
#include "runtime/stream/rt_join_time.h"

// ---- the table of ids ------------------------------------------------------------------------

static uint32_t slot_of(const rt_join *join, uint64_t id)
{
    uint32_t at = (uint32_t)rt_mix(id) & (join->slot_count - 1);
    while (join->slots[at] != RT_JOIN_NONE && join->records[join->slots[at]].id != id)
        at = (at + 1) & (join->slot_count - 1);
    return at;
}

uint32_t rt_join_find(const rt_join *join, uint64_t id)
{
    return join->slots[slot_of(join, id)];
}

// Also where there is no table yet.
static uint32_t find_any(const rt_join *join, uint64_t id)
{
    if (join->slot_count == 0)
        return RT_JOIN_NONE;
    return rt_join_find(join, id);
}

static rt_status grow_slots(rt_join *join)
{
    const uint32_t count = (uint32_t)rt_max_u64(2 * join->slot_count, 64);
    uint32_t *old = join->slots, old_count = join->slot_count;
    uint32_t *slots = rt_alloc(count, sizeof *slots);
    if (!slots)
        return RT_NO_MEMORY;
    memset(slots, 0xff, count * sizeof *slots);
    join->slots = slots;
    join->slot_count = count;
    for (uint32_t i = 0; i < old_count; i++) {
        if (old[i] != RT_JOIN_NONE)
            slots[slot_of(join, join->records[old[i]].id)] = old[i];
    }
    rt_free(old);
    return RT_OK;
}

static rt_status insert(rt_join *join, uint32_t index)
{
    if (2 * (join->slots_used + 1) > join->slot_count && grow_slots(join))
        return RT_NO_MEMORY;
    join->slots[slot_of(join, join->records[index].id)] = index;
    join->slots_used++;
    return RT_OK;
}

// Those behind move up, so that no mark of what was there is needed.
static void take_out(rt_join *join, uint64_t id)
{
    const uint32_t mask = join->slot_count - 1;
    uint32_t hole = slot_of(join, id);
    join->slots[hole] = RT_JOIN_NONE;
    join->slots_used--;
    for (uint32_t at = (hole + 1) & mask; join->slots[at] != RT_JOIN_NONE; at = (at + 1) & mask) {
        const uint32_t home = (uint32_t)rt_mix(join->records[join->slots[at]].id) & mask;
        if (((at - home) & mask) < ((at - hole) & mask))
            continue;
        join->slots[hole] = join->slots[at];
        join->slots[at] = RT_JOIN_NONE;
        hole = at;
    }
}

// ---- the heap of ends ------------------------------------------------------------------------

static bool is_before(const rt_join *join, uint32_t left, uint32_t right)
{
    const rt_join_record *a = &join->records[left], *b = &join->records[right];
    if (a->end_ms != b->end_ms)
        return a->end_ms < b->end_ms;
    return a->number < b->number;
}

static void put_at(rt_join *join, uint32_t at, uint32_t index)
{
    join->heap[at] = index;
    join->records[index].heap_at = at;
}

static void sift(rt_join *join, uint32_t at, uint32_t index)
{
    while (at > 0 && is_before(join, index, join->heap[(at - 1) / 2])) {
        put_at(join, at, join->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (uint32_t child; (child = 2 * at + 1) < join->heap_count; at = child) {
        if (child + 1 < join->heap_count &&
            is_before(join, join->heap[child + 1], join->heap[child]))
            child++;
        if (!is_before(join, join->heap[child], index))
            break;
        put_at(join, at, join->heap[child]);
    }
    put_at(join, at, index);
}

static void heap_remove(rt_join *join, uint32_t index)
{
    const uint32_t at = join->records[index].heap_at;
    if (at == RT_JOIN_NONE)
        return;
    join->records[index].heap_at = RT_JOIN_NONE;
    const uint32_t last = join->heap[--join->heap_count];
    if (last != index)
        sift(join, at, last);
}

// There is room: reserve_one.
void rt_join_heap_add(rt_join *join, uint32_t index, int64_t end_ms)
{
    join->records[index].end_ms = end_ms;
    sift(join, join->heap_count++, index);
}

// ---- records ---------------------------------------------------------------------------------

void rt_join_release(rt_join *join, uint32_t index)
{
    rt_join_record *one = &join->records[index];
    rt_free(one->payload);
    rt_free(one->told);
    *one = (rt_join_record){.state = GONE, .heap_at = RT_JOIN_NONE, .next = join->free};
    join->free = index;
}

// Room for one more record and in the heap.
rt_status rt_join_reserve(rt_join *join, uint32_t *index_p)
{
    if (rt_grow(&join->heap, &join->heap_capacity, join->heap_count + 1u, sizeof *join->heap))
        return RT_NO_MEMORY;
    if (join->free == RT_JOIN_NONE) {
        if (rt_grow(&join->records, &join->record_capacity, join->record_count + 1u,
                    sizeof *join->records))
            return RT_NO_MEMORY;
        join->records[join->record_count].payload = NULL;
        join->records[join->record_count].told = NULL;
        rt_join_release(join, join->record_count++);
    }
    *index_p = join->free;
    return RT_OK;
}

rt_status rt_join_add(rt_join *join, rt_join_record what, rt_join_state state, uint32_t *index_p)
{
    uint32_t index;
    if (rt_join_reserve(join, &index))
        return RT_NO_MEMORY;
    const uint32_t next_free = join->records[index].next;
    what.state = state;
    what.heap_at = what.next = RT_JOIN_NONE;
    join->records[index] = what;
    if (insert(join, index)) {
        join->records[index].payload = NULL;
        join->records[index].told = NULL;
        rt_join_release(join, index);
        return RT_NO_MEMORY;
    }
    join->free = next_free;
    *index_p = index;
    return RT_OK;
}

// Where it is written when each of several labels was known.
rt_status rt_join_reserve_told(const rt_join *join, rt_join_record *one)
{
    if (join->label_count == 1)
        return RT_OK;
    one->told = rt_alloc(join->label_count, sizeof *one->told);
    if (!one->told)
        return RT_NO_MEMORY;
    return RT_OK;
}

// Labels that the rt_join_record lacks so far, from this step on. False: it has them all.
static bool learn(const rt_join *join, rt_join_record *one, rt_join_labels labels)
{
    const uint8_t fresh_ones = labels.known & join->all & (uint8_t)~one->labels.known;
    for (uint32_t l = 0; one->told && l < join->label_count; l++)
        if (fresh_ones >> l & 1)
            one->told[l] = join->step;
    one->labels.known |= fresh_ones;
    one->labels.ones |= labels.ones & fresh_ones;
    return fresh_ones != 0;
}

static rt_join_record fresh(rt_join *join, uint64_t id, int64_t time_ms, rt_join_state state)
{
    rt_join_record one = {.id = id, .time_ms = time_ms, .number = join->numbers++};
    for (uint32_t s = 0; s < STATES; s++)
        one.since[s] = RT_JOIN_NEVER;
    one.since[state] = join->step;
    one.doubted = RT_JOIN_NEVER;
    return one;
}

static void append(rt_join *join, uint32_t *first, uint32_t *last, uint32_t index)
{
    join->records[index].next = RT_JOIN_NONE;
    if (*first == RT_JOIN_NONE)
        *first = index;
    else
        join->records[*last].next = index;
    *last = index;
}

void rt_join_count_state(rt_join *join, const rt_join_record *one, rt_join_state state, int64_t by)
{
    uint64_t *count = NULL;
    if (state == READY && !one->labels.ones)
        join->ready_zeros += (uint64_t)by;
    if (state == WAITING)
        count = &join->counts.waiting;
    if (state == KEPT)
        count = &join->counts.kept;
    if (count)
        *count += (uint64_t)by;
}

// It is in force from this step on.
static void enter(rt_join *join, uint32_t index, rt_join_state state)
{
    rt_join_record *one = &join->records[index];
    rt_join_count_state(join, one, one->state, -1);
    rt_join_count_state(join, one, state, 1);
    heap_remove(join, index);
    one->state = state;
    one->since[state] = join->step;
    if (state == READY || state == LATE) {
        one->turns[state == LATE] = join->turns++;
        append(join, &join->ready_first, &join->ready_last, index);
    } else if (state == GONE) {
        take_out(join, one->id);
        if (join->remembers)
            append(join, &join->gone_first, &join->gone_last, index);
        else
            rt_join_release(join, index);
    }
}

// ---- time ------------------------------------------------------------------------------------

// What becomes of a rt_join_record whose time is over.
static void end_one(rt_join *join, uint32_t index)
{
    rt_join_record *one = &join->records[index];
    const bool waited = one->state == WAITING;
    join->counts.unanswered += waited;
    join->counts.unmatched += one->is_early;
    const bool is_kept = join->settings.join.unanswered == RT_JOIN_NEGATIVE;
    one->is_unanswered = waited;
    if (waited && is_kept)
        learn(join, one, (rt_join_labels){.known = join->all});
    enter(join, index, waited && (is_kept || one->labels.known) ? READY : GONE);
}

static void end_until(rt_join *join, int64_t time_ms)
{
    while (!join->is_held && join->heap_count > 0 && join->records[join->heap[0]].end_ms < time_ms)
        end_one(join, join->heap[0]);
}

static void move_clock(rt_join *join, int64_t time_ms)
{
    if (!join->has_clock || time_ms > join->clock_ms)
        join->clock_ms = time_ms;
    join->has_clock = true;
    end_until(join, join->clock_ms);
}

// By a record of this time.
static void move_by_record(rt_join *join, int64_t time_ms)
{
    if (join->limit_ms == RT_JOIN_TIME_UNKNOWN)
        return;
    move_clock(join, time_ms < join->limit_ms ? time_ms : join->limit_ms);
}

void rt_join_limit(rt_join *join, int64_t limit_ms, int64_t now_ms)
{
    join->limit_ms = limit_ms;
    join->now_ms = now_ms;
}

static int64_t now_of(const rt_join *join)
{
    return join->now_ms > join->clock_ms ? join->now_ms : join->clock_ms;
}

bool rt_join_clock(const rt_join *join, int64_t *clock_ms_p)
{
    *clock_ms_p = join->clock_ms;
    return join->has_clock;
}

void rt_join_advance(rt_join *join, int64_t time_ms)
{
    pthread_mutex_lock(&join->lock);
    move_clock(join, time_ms);
    pthread_mutex_unlock(&join->lock);
}

// Its window is one of another time from now on.
static void count_from(rt_join *join, uint32_t index, int64_t time_ms)
{
    rt_join_record *one = &join->records[index];
    const bool is_in_heap = one->heap_at != RT_JOIN_NONE;
    one->before_ms = one->known_ms;
    one->known_ms = time_ms;
    one->doubted = join->step;
    heap_remove(join, index);
    if (is_in_heap)
        rt_join_heap_add(join, index, rt_join_end_of(join, one, one->state));
}

void rt_join_doubt(rt_join *join, uint64_t id)
{
    pthread_mutex_lock(&join->lock);
    const uint32_t index = find_any(join, id);
    if (join->has_clock && index != RT_JOIN_NONE && join->records[index].known_ms > now_of(join))
        count_from(join, index, now_of(join));
    pthread_mutex_unlock(&join->lock);
}

void rt_join_set_back(rt_join *join, int64_t time_ms, int64_t far_ms)
{
    const int64_t latest_ms = time_ms + join->window_ms + far_ms;
    pthread_mutex_lock(&join->lock);
    join->clock_ms = join->now_ms = time_ms;
    for (uint32_t i = 0; i < join->record_count; i++) {
        const rt_join_record *one = &join->records[i];
        if (one->state == GONE || one->known_ms <= latest_ms)
            continue;
        if (one->time_ms >= time_ms - join->window_ms && one->time_ms <= latest_ms)
            count_from(join, i, one->time_ms);
        else
            count_from(join, i, time_ms + far_ms);
    }
    pthread_mutex_unlock(&join->lock);
}

void rt_join_hold(rt_join *join, bool is_held)
{
    pthread_mutex_lock(&join->lock);
    join->is_held = is_held;
    if (join->has_clock)
        end_until(join, join->clock_ms);
    pthread_mutex_unlock(&join->lock);
}

// Its own, but of one that is late by more than a window: nobody could have answered it in time.
static int64_t known_time(const rt_join *join, int64_t time_ms)
{
    if (join->has_clock && time_ms < join->clock_ms - join->window_ms)
        return now_of(join);
    return time_ms;
}

// Of a rt_join_record in this state.
int64_t rt_join_end_of(const rt_join *join, const rt_join_record *one, rt_join_state state)
{
    const int64_t end_ms = one->known_ms + join->window_ms;
    if (state == KEPT && !one->is_early)
        return end_ms + join->late_ms;
    return end_ms;
}

// ---- events ----------------------------------------------------------------------------------

// Memory for it, beside the table: an outcome that came before has the place of its id.
static rt_status reserve_offer(rt_join *join, size_t payload_bytes, rt_join_record *one)
{
    one->payload = rt_alloc(payload_bytes + 1, 1);
    if (!one->payload || rt_join_reserve_told(join, one) || rt_join_reserve(join, &join->offered)) {
        rt_free(one->payload);
        rt_free(one->told);
        return RT_NO_MEMORY;
    }
    return RT_OK;
}

static rt_status put_aside(rt_join *join, const rt_line_sample *sample)
{
    const size_t keys = sample->key_count * sizeof *sample->keys;
    const size_t dense = join->settings.dense_count * sizeof *sample->dense;
    rt_join_record one = fresh(join, sample->id, sample->time_ms, OFFERED);
    one.weight = sample->weight;
    one.key_count = sample->key_count;
    if (reserve_offer(join, keys + dense, &one))
        return RT_NO_MEMORY;
    memcpy(one.payload, sample->keys, keys);
    memcpy(one.payload + keys, sample->dense, dense);
    one.heap_at = one.next = RT_JOIN_NONE;
    one.state = OFFERED;
    join->free = join->records[join->offered].next;
    join->records[join->offered] = one;
    return RT_OK;
}

rt_status rt_join_offer(rt_join *join, const rt_line_sample *sample)
{
    rt_status status = RT_OK;
    pthread_mutex_lock(&join->lock);
    rt_assert(join->offered == RT_JOIN_NONE && join->ready_first == RT_JOIN_NONE);
    const uint32_t before = find_any(join, sample->id);
    join->counts.events++;
    if (before != RT_JOIN_NONE && !join->records[before].is_early)
        join->counts.repeated++;
    else
        status = put_aside(join, sample);
    pthread_mutex_unlock(&join->lock);
    return status;
}

bool rt_join_has_offer(const rt_join *join, int64_t *time_ms_p)
{
    if (join->offered == RT_JOIN_NONE)
        return false;
    *time_ms_p = join->records[join->offered].time_ms;
    return true;
}

// For one more, as far as that goes before others are ready.
static void make_room(rt_join *join)
{
    while (join->ready_first == RT_JOIN_NONE &&
           join->heap_count >= join->settings.join.events_max) {
        join->counts.crowded++;
        end_one(join, join->heap[0]);
    }
}

// The event is in; its outcome may have come before.
static rt_status settle_offer(rt_join *join)
{
    const uint32_t index = join->offered;
    rt_join_record *one = &join->records[index];
    const uint32_t early = find_any(join, one->id);
    const int64_t time_ms = known_time(join, one->time_ms);
    rt_join_labels labels = {0};
    if (early != RT_JOIN_NONE) {
        if (join->records[early].known_ms >= time_ms - join->window_ms)
            labels = join->records[early].labels;
        enter(join, early, GONE);
    }
    if (insert(join, index) ||
        rt_grow(&join->heap, &join->heap_capacity, join->heap_count + 1u, sizeof *join->heap))
        return RT_NO_MEMORY;
    join->records[index].known_ms = time_ms;
    join->offered = RT_JOIN_NONE;
    enter(join, index, WAITING);
    learn(join, &join->records[index], labels);
    if (join->records[index].labels.known == join->all) {
        enter(join, index, READY);
        return RT_OK;
    }
    rt_join_heap_add(join, index, time_ms + join->window_ms);
    if (join->has_clock)
        end_until(join, join->clock_ms); // its time may be over already
    return RT_OK;
}

rt_status rt_join_admit(rt_join *join)
{
    rt_status status = RT_OK;
    pthread_mutex_lock(&join->lock);
    rt_assert(join->offered != RT_JOIN_NONE && join->ready_first == RT_JOIN_NONE);
    move_by_record(join, join->records[join->offered].time_ms);
    make_room(join);
    if (join->ready_first == RT_JOIN_NONE)
        status = settle_offer(join);
    pthread_mutex_unlock(&join->lock);
    return status;
}

// ---- outcomes --------------------------------------------------------------------------------

static rt_status keep_early(rt_join *join, uint64_t id, int64_t time_ms, rt_join_labels labels)
{
    uint32_t index;
    rt_join_record one = fresh(join, id, time_ms, KEPT);
    one.known_ms = known_time(join, time_ms);
    one.is_early = true;
    rt_status status = rt_join_reserve_told(join, &one);
    if (!status) {
        learn(join, &one, labels);
        status = rt_join_add(join, one, KEPT, &index);
    }
    if (status) {
        rt_free(one.told);
        return status;
    }
    join->counts.kept++;
    rt_join_heap_add(join, index, rt_join_end_of(join, &join->records[index], KEPT));
    return RT_OK;
}

static rt_status answer(rt_join *join, uint64_t id, int64_t time_ms, rt_join_labels labels)
{
    const uint32_t index = find_any(join, id);
    if (index == RT_JOIN_NONE)
        return keep_early(join, id, time_ms, labels);
    rt_join_record *one = &join->records[index];
    const bool is_late = one->state == KEPT && !one->is_early;
    if (one->state == WAITING || (one->state == KEPT && one->is_early)) {
        if (!learn(join, one, labels))
            join->counts.repeated++;
        else if (one->state == WAITING && one->labels.known == join->all)
            enter(join, index, READY);
    } else if (is_late && (labels.ones & ~one->labels.ones & join->all)) {
        one->late = labels.ones & (uint8_t)~one->labels.ones & join->all;
        enter(join, index, LATE);
        join->counts.late++;
    } else {
        join->counts.repeated++;
    }
    return RT_OK;
}

// An outcome that comes after the window of its event, though no clock has told of its end yet.
static void end_before(rt_join *join, uint64_t id, int64_t time_ms)
{
    const uint32_t index = find_any(join, id);
    if (index != RT_JOIN_NONE && join->records[index].state == WAITING && !join->is_held &&
        join->records[index].end_ms < time_ms)
        end_one(join, index);
}

rt_status rt_join_outcome(rt_join *join, uint64_t id, int64_t time_ms, rt_join_labels labels,
                          bool *taken_p)
{
    rt_status status = RT_OK;
    pthread_mutex_lock(&join->lock);
    rt_assert(join->ready_first == RT_JOIN_NONE);
    move_by_record(join, time_ms);
    end_before(join, id, time_ms);
    if (join->slot_count == 0 || rt_join_find(join, id) == RT_JOIN_NONE)
        make_room(join);
    *taken_p = join->ready_first == RT_JOIN_NONE;
    if (*taken_p) {
        join->counts.outcomes++;
        status = answer(join, id, time_ms, labels);
    }
    pthread_mutex_unlock(&join->lock);
    return status;
}

void rt_join_end(rt_join *join)
{
    pthread_mutex_lock(&join->lock);
    while (join->settings.join.at_end == RT_JOIN_END_TRAIN && join->heap_count > 0)
        end_one(join, join->heap[0]);
    pthread_mutex_unlock(&join->lock);
}

// ---- samples ---------------------------------------------------------------------------------

bool rt_join_has_ready(const rt_join *join)
{
    return join->ready_first != RT_JOIN_NONE;
}

// A correction has nothing to say of labels that stay what they were.
static void put_labels(const rt_join_record *one, rt_batch *batch, uint32_t i)
{
    const bool is_late = one->state == LATE;
    for (uint32_t l = 0; l < batch->label_count; l++) {
        const size_t at = (size_t)i * batch->label_count + l;
        const bool is_one = (is_late ? one->late : one->labels.ones) >> l & 1;
        const bool is_known = one->labels.known >> l & 1;
        const float weight = is_known ? one->weight : 0;
        batch->labels[at] = is_one ? weight : 0;
        batch->weights[at] = is_late && (one->is_trained || !is_one) ? 0 : weight;
        if (!batch->is_weighted)
            batch->labels[at] = is_one;
    }
}

static void put(const rt_join_record *one, rt_batch *batch)
{
    const uint32_t i = batch->sample_count++;
    const size_t keys = one->key_count * sizeof *batch->keys;
    memcpy(batch->keys + batch->key_count, one->payload, keys);
    if (batch->dense_count)
        memcpy(batch->read + (size_t)i * batch->dense_count, one->payload + keys,
               batch->dense_count * sizeof *batch->read);
    rt_batch_round(batch, i);
    put_labels(one, batch, i);
    batch->key_offsets[i] = batch->key_count;
    batch->key_count += one->key_count;
    batch->key_offsets[i + 1] = batch->key_count;
}

// *given_p: it is in the batch, and not a negative that is left out.
static void give_first(rt_join *join, rt_batch *batch, bool *given_p)
{
    const uint32_t index = join->ready_first;
    rt_join_record *one = &join->records[index];
    const bool is_negative = one->state == READY && !one->labels.ones;
    join->ready_first = one->next;
    *given_p = !is_negative ||
               rt_negatives_keeps(join->settings.seed, one->id, join->settings.negatives_keep);
    if (*given_p)
        put(one, batch);
    if (!one->is_unanswered || one->state != READY || join->settings.join.late != RT_LATE_TRAIN) {
        enter(join, index, GONE);
        return;
    }
    one->is_trained = *given_p;
    enter(join, index, KEPT);
    rt_join_heap_add(join, index, rt_join_end_of(join, &join->records[index], KEPT));
}

bool rt_join_give(rt_join *join, rt_batch *batch)
{
    bool is_given = false;
    pthread_mutex_lock(&join->lock);
    while (join->ready_first != RT_JOIN_NONE && !is_given)
        give_first(join, batch, &is_given);
    pthread_mutex_unlock(&join->lock);
    return is_given;
}

rt_join_counts rt_join_statistics(const rt_join *join)
{
    return join->counts;
}

double rt_join_pending(const rt_join *join)
{
    if (join->settings.join.unanswered != RT_JOIN_NEGATIVE)
        return 0;
    return join->settings.negatives_keep * (double)(join->counts.waiting + join->ready_zeros);
}

// ---- creation --------------------------------------------------------------------------------

rt_status rt_join_create(const rt_join_settings *settings, rt_join **join_p, rt_error *error)
{
    rt_join *join = rt_alloc(1, sizeof *join);
    if (!join)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a join");
    join->settings = *settings;
    join->label_count = settings->label_count ? settings->label_count : 1;
    join->all = (uint8_t)((1u << join->label_count) - 1);
    join->window_ms = (int64_t)(settings->join.window_s * 1000);
    join->late_ms = (int64_t)(settings->join.late_s * 1000);
    join->limit_ms = INT64_MAX;
    join->now_ms = INT64_MIN;
    join->free = join->ready_first = join->gone_first = join->offered = RT_JOIN_NONE;
    pthread_mutex_init(&join->lock, NULL);
    *join_p = join;
    return RT_OK;
}

void rt_join_destroy(rt_join *join)
{
    if (!join)
        return;
    for (uint32_t i = 0; i < join->record_count; i++) {
        rt_free(join->records[i].payload);
        rt_free(join->records[i].told);
    }
    rt_free(join->records);
    rt_free(join->slots);
    rt_free(join->heap);
    pthread_mutex_destroy(&join->lock);
    rt_free(join);
}
