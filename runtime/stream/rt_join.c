#include "runtime/stream/rt_join.h"

#include <pthread.h>
#include <string.h>

#include "runtime/numbers/rt_negatives.h"
#include "runtime/rt_hash.h"

#define NONE UINT32_MAX
#define NEVER UINT64_MAX
#define JUMP_MS INT64_C(86400000) // and a window: a time further ahead is doubted
#define JUMPS_BELIEVED 16u
#define SAVE_MAGIC UINT32_C(0x4e494f4a) // "JOIN"
#define SAVE_VERSION 1u
#define KEYS_MAX (1u << 16)

// An event goes through these in order; it may pass some over. An outcome without its event is
// EARLY from the start.
typedef enum { OFFERED, WAITING, READY, KEPT, LATE, GONE, STATES } event_state;

typedef struct {
    uint64_t id;
    int64_t time_ms;        // as it was given
    int64_t known_ms;       // not above the clock when it came in
    int64_t end_ms;         // of waiting, or of being kept
    uint64_t number;        // in the order of coming
    uint64_t since[STATES]; // step in which a state began
    uint64_t turns[2];      // order among the ready, of READY and LATE
    event_state state;
    bool is_early;         // an outcome
    uint8_t late;          // labels that a correction makes 1
    rt_join_labels labels; // of outcomes that came before the training
    uint64_t *told;        // of several labels: step in which each was known; else NULL
    bool is_unanswered;    // it became ready because its window ended
    bool is_trained;       // as label 0
    float weight;
    uint32_t key_count;
    uint8_t *payload; // keys, then dense features
    uint32_t heap_at; // NONE: not in it
    uint32_t next;    // of the ready, of the gone, or of the free
} record;

struct rt_join {
    rt_join_settings settings;
    int64_t window_ms, late_ms;
    uint32_t label_count;
    uint8_t all;          // labels
    pthread_mutex_t lock; // all below: rt_join_save comes from another thread
    record *records;
    uint32_t record_count, record_capacity;
    uint32_t free;
    uint32_t *slots; // hash table: record, or NONE; slot_count is a power of two
    uint32_t slot_count, slots_used;
    uint32_t *heap; // by end_ms, then number
    uint32_t heap_count, heap_capacity;
    uint32_t ready_first, ready_last;
    uint32_t gone_first, gone_last; // remembered for rt_join_save
    uint32_t offered;
    bool remembers;
    uint64_t step, numbers, turns;
    int64_t clock_ms;
    bool has_clock;
    uint32_t jumps; // in a row
    rt_join_counts counts;
};

// ---- the table of ids --------------------------------------------------------------------------

static uint32_t slot_of(const rt_join *join, uint64_t id)
{
    uint32_t at = (uint32_t)rt_mix(id) & (join->slot_count - 1);
    while (join->slots[at] != NONE && join->records[join->slots[at]].id != id)
        at = (at + 1) & (join->slot_count - 1);
    return at;
}

static uint32_t find(const rt_join *join, uint64_t id)
{
    return join->slots[slot_of(join, id)];
}

static rt_status grow_slots(rt_join *join)
{
    const uint32_t count = join->slot_count ? 2 * join->slot_count : 64;
    uint32_t *old = join->slots, old_count = join->slot_count;
    uint32_t *slots = rt_alloc(count, sizeof *slots);
    if (!slots)
        return RT_NO_MEMORY;
    memset(slots, 0xff, count * sizeof *slots);
    join->slots = slots;
    join->slot_count = count;
    for (uint32_t i = 0; i < old_count; i++) {
        if (old[i] != NONE)
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
    join->slots[hole] = NONE;
    join->slots_used--;
    for (uint32_t at = (hole + 1) & mask; join->slots[at] != NONE; at = (at + 1) & mask) {
        const uint32_t home = (uint32_t)rt_mix(join->records[join->slots[at]].id) & mask;
        if (((at - home) & mask) < ((at - hole) & mask))
            continue;
        join->slots[hole] = join->slots[at];
        join->slots[at] = NONE;
        hole = at;
    }
}

// ---- the heap of ends --------------------------------------------------------------------------

static bool is_before(const rt_join *join, uint32_t left, uint32_t right)
{
    const record *a = &join->records[left], *b = &join->records[right];
    return a->end_ms != b->end_ms ? a->end_ms < b->end_ms : a->number < b->number;
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
    if (at == NONE)
        return;
    join->records[index].heap_at = NONE;
    const uint32_t last = join->heap[--join->heap_count];
    if (last != index)
        sift(join, at, last);
}

// There is room: reserve_one.
static void heap_add(rt_join *join, uint32_t index, int64_t end_ms)
{
    join->records[index].end_ms = end_ms;
    sift(join, join->heap_count++, index);
}

// ---- records -----------------------------------------------------------------------------------

static void release(rt_join *join, uint32_t index)
{
    record *one = &join->records[index];
    rt_free(one->payload);
    rt_free(one->told);
    *one = (record){.state = GONE, .heap_at = NONE, .next = join->free};
    join->free = index;
}

// Room for one more record and in the heap.
static rt_status reserve_one(rt_join *join, uint32_t *index_p)
{
    if (rt_grow(&join->heap, &join->heap_capacity, join->heap_count + 1u, sizeof *join->heap))
        return RT_NO_MEMORY;
    if (join->free == NONE) {
        if (rt_grow(&join->records, &join->record_capacity, join->record_count + 1u,
                    sizeof *join->records))
            return RT_NO_MEMORY;
        join->records[join->record_count].payload = NULL;
        join->records[join->record_count].told = NULL;
        release(join, join->record_count++);
    }
    *index_p = join->free;
    return RT_OK;
}

static rt_status add(rt_join *join, record what, event_state state, uint32_t *index_p)
{
    uint32_t index;
    if (reserve_one(join, &index))
        return RT_NO_MEMORY;
    const uint32_t next_free = join->records[index].next;
    what.state = state;
    what.heap_at = what.next = NONE;
    join->records[index] = what;
    if (insert(join, index)) {
        join->records[index].payload = NULL;
        join->records[index].told = NULL;
        release(join, index);
        return RT_NO_MEMORY;
    }
    join->free = next_free;
    *index_p = index;
    return RT_OK;
}

// Where it is written when each of several labels was known.
static rt_status reserve_told(const rt_join *join, record *one)
{
    if (join->label_count == 1)
        return RT_OK;
    one->told = rt_alloc(join->label_count, sizeof *one->told);
    return one->told ? RT_OK : RT_NO_MEMORY;
}

// Labels that the record lacks so far, from this step on. False: it has them all.
static bool learn(const rt_join *join, record *one, rt_join_labels labels)
{
    const uint8_t fresh_ones = labels.known & join->all & (uint8_t)~one->labels.known;
    for (uint32_t l = 0; one->told && l < join->label_count; l++)
        one->told[l] = fresh_ones >> l & 1 ? join->step : one->told[l];
    one->labels.known |= fresh_ones;
    one->labels.ones |= labels.ones & fresh_ones;
    return fresh_ones != 0;
}

static record fresh(rt_join *join, uint64_t id, int64_t time_ms, event_state state)
{
    record one = {.id = id, .time_ms = time_ms, .number = join->numbers++};
    for (uint32_t s = 0; s < STATES; s++)
        one.since[s] = NEVER;
    one.since[state] = join->step;
    return one;
}

static void append(rt_join *join, uint32_t *first, uint32_t *last, uint32_t index)
{
    join->records[index].next = NONE;
    if (*first == NONE)
        *first = index;
    else
        join->records[*last].next = index;
    *last = index;
}

static void count_state(rt_join *join, const record *one, event_state state, int64_t by)
{
    uint64_t *count = state == WAITING ? &join->counts.waiting
                      : state == KEPT  ? &join->counts.kept
                                       : NULL;
    (void)one;
    if (count)
        *count += (uint64_t)by;
}

// It is in force from this step on.
static void enter(rt_join *join, uint32_t index, event_state state)
{
    record *one = &join->records[index];
    count_state(join, one, one->state, -1);
    count_state(join, one, state, 1);
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
            release(join, index);
    }
}

// ---- time --------------------------------------------------------------------------------------

// What becomes of a record whose time is over.
static void end_one(rt_join *join, uint32_t index)
{
    record *one = &join->records[index];
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
    while (join->heap_count > 0 && join->records[join->heap[0]].end_ms < time_ms)
        end_one(join, join->heap[0]);
}

static void move_clock(rt_join *join, int64_t time_ms)
{
    if (join->has_clock && time_ms > join->clock_ms + JUMP_MS + join->window_ms &&
        ++join->jumps < JUMPS_BELIEVED)
        return;
    join->jumps = 0;
    join->clock_ms = !join->has_clock || time_ms > join->clock_ms ? time_ms : join->clock_ms;
    join->has_clock = true;
    end_until(join, join->clock_ms);
}

void rt_join_advance(rt_join *join, int64_t time_ms)
{
    pthread_mutex_lock(&join->lock);
    move_clock(join, time_ms);
    pthread_mutex_unlock(&join->lock);
}

static int64_t known_time(const rt_join *join, int64_t time_ms)
{
    return time_ms < join->clock_ms ? time_ms : join->clock_ms;
}

// Of a record in this state.
static int64_t end_of(const rt_join *join, const record *one, event_state state)
{
    const bool is_late = state == KEPT && !one->is_early;
    return one->known_ms + join->window_ms + (is_late ? join->late_ms : 0);
}

// ---- events ------------------------------------------------------------------------------------

rt_status rt_join_offer(rt_join *join, const rt_line_sample *sample)
{
    const size_t keys = sample->key_count * sizeof *sample->keys;
    const size_t dense = join->settings.dense_count * sizeof *sample->dense;
    rt_status status = RT_OK;
    pthread_mutex_lock(&join->lock);
    rt_assert(join->offered == NONE && join->ready_first == NONE);
    const uint32_t before = join->slot_count ? find(join, sample->id) : NONE;
    join->counts.events++;
    if (before != NONE && !join->records[before].is_early) {
        join->counts.repeated++;
    } else {
        record one = fresh(join, sample->id, sample->time_ms, OFFERED);
        one.weight = sample->weight;
        one.key_count = sample->key_count;
        one.payload = rt_alloc(keys + dense + 1, 1);
        // Beside the table: an outcome that came before has the place of its id.
        status = one.payload ? reserve_told(join, &one) : RT_NO_MEMORY;
        if (!status)
            status = reserve_one(join, &join->offered);
        if (!status) {
            memcpy(one.payload, sample->keys, keys);
            memcpy(one.payload + keys, sample->dense, dense);
            one.heap_at = one.next = NONE;
            one.state = OFFERED;
            join->free = join->records[join->offered].next;
            join->records[join->offered] = one;
        } else {
            rt_free(one.payload);
            rt_free(one.told);
        }
    }
    pthread_mutex_unlock(&join->lock);
    return status;
}

bool rt_join_has_offer(const rt_join *join, int64_t *time_ms_p)
{
    if (join->offered == NONE)
        return false;
    *time_ms_p = join->records[join->offered].time_ms;
    return true;
}

// For one more, as far as that goes before others are ready.
static void make_room(rt_join *join)
{
    while (join->ready_first == NONE && join->heap_count >= join->settings.join.events_max) {
        join->counts.crowded++;
        end_one(join, join->heap[0]);
    }
}

// The event is in; its outcome may have come before.
static rt_status settle_offer(rt_join *join)
{
    const uint32_t index = join->offered;
    record *one = &join->records[index];
    const uint32_t early = join->slot_count ? find(join, one->id) : NONE;
    const int64_t time_ms = known_time(join, one->time_ms);
    rt_join_labels labels = {0};
    if (early != NONE) {
        if (join->records[early].known_ms >= time_ms - join->window_ms)
            labels = join->records[early].labels;
        enter(join, early, GONE);
    }
    if (insert(join, index) ||
        rt_grow(&join->heap, &join->heap_capacity, join->heap_count + 1u, sizeof *join->heap))
        return RT_NO_MEMORY;
    join->records[index].known_ms = time_ms;
    join->offered = NONE;
    enter(join, index, WAITING);
    learn(join, &join->records[index], labels);
    if (join->records[index].labels.known == join->all) {
        enter(join, index, READY);
        return RT_OK;
    }
    heap_add(join, index, time_ms + join->window_ms);
    end_until(join, join->clock_ms); // its time may be over already
    return RT_OK;
}

rt_status rt_join_admit(rt_join *join)
{
    rt_status status = RT_OK;
    pthread_mutex_lock(&join->lock);
    rt_assert(join->offered != NONE && join->ready_first == NONE);
    move_clock(join, join->records[join->offered].time_ms);
    make_room(join);
    if (join->ready_first == NONE)
        status = settle_offer(join);
    pthread_mutex_unlock(&join->lock);
    return status;
}

// ---- outcomes ----------------------------------------------------------------------------------

static rt_status keep_early(rt_join *join, uint64_t id, int64_t time_ms, rt_join_labels labels)
{
    uint32_t index;
    record one = fresh(join, id, time_ms, KEPT);
    one.known_ms = known_time(join, time_ms);
    one.is_early = true;
    rt_status status = reserve_told(join, &one);
    if (!status) {
        learn(join, &one, labels);
        status = add(join, one, KEPT, &index);
    }
    if (status) {
        rt_free(one.told);
        return status;
    }
    join->counts.kept++;
    heap_add(join, index, end_of(join, &join->records[index], KEPT));
    return RT_OK;
}

static rt_status answer(rt_join *join, uint64_t id, int64_t time_ms, rt_join_labels labels)
{
    const uint32_t index = join->slot_count ? find(join, id) : NONE;
    if (index == NONE)
        return keep_early(join, id, time_ms, labels);
    record *one = &join->records[index];
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

rt_status rt_join_outcome(rt_join *join, uint64_t id, int64_t time_ms, rt_join_labels labels,
                          bool *taken_p)
{
    rt_status status = RT_OK;
    pthread_mutex_lock(&join->lock);
    rt_assert(join->ready_first == NONE);
    move_clock(join, time_ms);
    if (join->slot_count == 0 || find(join, id) == NONE)
        make_room(join);
    *taken_p = join->ready_first == NONE;
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

// ---- samples -----------------------------------------------------------------------------------

bool rt_join_has_ready(const rt_join *join)
{
    return join->ready_first != NONE;
}

// A correction has nothing to say of labels that stay what they were.
static void put_labels(const record *one, rt_batch *batch, uint32_t i)
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

static void put(const record *one, rt_batch *batch)
{
    const uint32_t i = batch->sample_count++;
    const size_t keys = one->key_count * sizeof *batch->keys;
    memcpy(batch->keys + batch->key_count, one->payload, keys);
    if (batch->dense_count)
        memcpy(batch->dense + (size_t)i * batch->dense_count, one->payload + keys,
               batch->dense_count * sizeof *batch->dense);
    put_labels(one, batch, i);
    batch->key_offsets[i] = batch->key_count;
    batch->key_count += one->key_count;
    batch->key_offsets[i + 1] = batch->key_count;
}

// *given_p: it is in the batch, and not a negative that is left out.
static void give_first(rt_join *join, rt_batch *batch, bool *given_p)
{
    const uint32_t index = join->ready_first;
    record *one = &join->records[index];
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
    heap_add(join, index, end_of(join, &join->records[index], KEPT));
}

bool rt_join_give(rt_join *join, rt_batch *batch)
{
    bool is_given = false;
    pthread_mutex_lock(&join->lock);
    while (join->ready_first != NONE && !is_given)
        give_first(join, batch, &is_given);
    pthread_mutex_unlock(&join->lock);
    return is_given;
}

rt_join_counts rt_join_statistics(const rt_join *join)
{
    return join->counts;
}

// ---- creation ----------------------------------------------------------------------------------

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
    join->free = join->ready_first = join->gone_first = join->offered = NONE;
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

// ---- what a checkpoint keeps -------------------------------------------------------------------

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

void rt_join_tell(const rt_join *join, rt_bytes *bytes)
{
    rt_bytes_put_u64(bytes, join->step);
    rt_bytes_put_u64(bytes, join->numbers);
    rt_bytes_put_u64(bytes, join->turns);
    rt_bytes_put_u64(bytes, (uint64_t)join->clock_ms);
    rt_bytes_put_u32(bytes, join->has_clock);
    rt_bytes_put_u32(bytes, join->jumps);
    rt_bytes_put(bytes, &join->counts, sizeof join->counts);
}

bool rt_join_seek(rt_join *join, rt_reader *bytes)
{
    join->step = rt_reader_u64(bytes);
    join->numbers = rt_reader_u64(bytes);
    join->turns = rt_reader_u64(bytes);
    join->clock_ms = (int64_t)rt_reader_u64(bytes);
    join->has_clock = rt_reader_u32(bytes) != 0;
    join->jumps = rt_reader_u32(bytes);
    rt_reader_get(bytes, &join->counts, 1, sizeof join->counts);
    join->counts.waiting = join->counts.kept = 0; // of what rt_join_load brings
    return !bytes->failed;
}

// GONE also before it came; free records are all zero, so they are, too.
static event_state state_at(const record *one, uint64_t step)
{
    event_state state = GONE;
    for (event_state s = OFFERED; s < STATES; s++) {
        if (one->since[s] <= step)
            state = s;
    }
    return state;
}

// As they were known at the end of a step. Of one label the state says whether it is.
static uint32_t label_flags(const rt_join *join, const record *one, uint64_t step)
{
    uint32_t known = 0;
    if (join->label_count == 1)
        return one->labels.ones ? 2u : 0;
    for (uint32_t l = 0; l < join->label_count; l++)
        known |= one->told[l] <= step ? one->labels.known & 1u << l : 0;
    return known << 8 | (one->labels.ones & known) << 16 | (uint32_t)one->late << 24;
}

static rt_status read_labels(const rt_join *join, uint32_t flags, record *one)
{
    const bool is_one = flags & 2;
    if (join->label_count == 1) {
        one->labels.known = one->state != WAITING && one->state != OFFERED;
        one->labels.ones = is_one && one->labels.known;
        one->late = one->state == LATE;
        return flags > 15 ? RT_DATA : RT_OK;
    }
    one->labels.known = flags >> 8 & 0xff;
    one->labels.ones = flags >> 16 & 0xff;
    one->late = (uint8_t)(flags >> 24);
    if (((one->labels.known | one->late) & ~join->all) || (flags & 0xf2) ||
        (one->labels.ones & ~one->labels.known))
        return RT_DATA;
    if (reserve_told(join, one))
        return RT_NO_MEMORY;
    for (uint32_t l = 0; l < join->label_count; l++)
        one->told[l] = join->step;
    return RT_OK;
}

static void save_one(const rt_join *join, const record *one, event_state state, uint64_t step,
                     rt_bytes *bytes)
{
    const uint32_t flags = (one->is_early ? 1u : 0) | label_flags(join, one, step) |
                           (one->is_trained ? 4u : 0) | (one->is_unanswered ? 8u : 0);
    rt_bytes_put_u64(bytes, one->id);
    rt_bytes_put_u64(bytes, (uint64_t)one->time_ms);
    rt_bytes_put_u64(bytes, (uint64_t)one->known_ms);
    rt_bytes_put_u64(bytes, one->number);
    rt_bytes_put_u64(bytes, one->turns[state == LATE]);
    rt_bytes_put_u32(bytes, state);
    rt_bytes_put_u32(bytes, flags);
    rt_bytes_put(bytes, &one->weight, sizeof one->weight);
    rt_bytes_put_u32(bytes, one->key_count);
    if (one->payload)
        rt_bytes_put(bytes, one->payload,
                     one->key_count * sizeof(uint64_t) +
                         join->settings.dense_count * sizeof(float));
}

void rt_join_save(rt_join *join, uint64_t step, rt_bytes *bytes)
{
    uint64_t count = 0;
    pthread_mutex_lock(&join->lock);
    for (uint32_t i = 0; i < join->record_count; i++)
        count += state_at(&join->records[i], step) != GONE;
    rt_bytes_put_u32(bytes, SAVE_MAGIC);
    rt_bytes_put_u32(bytes, SAVE_VERSION);
    rt_bytes_put_u64(bytes, count);
    for (uint32_t i = 0; i < join->record_count; i++) {
        const record *one = &join->records[i];
        const event_state state = state_at(one, step);
        if (state != GONE)
            save_one(join, one, state, step, bytes);
    }
    pthread_mutex_unlock(&join->lock);
}

void rt_join_settle(rt_join *join, uint64_t step)
{
    pthread_mutex_lock(&join->lock);
    while (join->gone_first != NONE && join->records[join->gone_first].since[GONE] <= step) {
        const uint32_t index = join->gone_first;
        join->gone_first = join->records[index].next;
        release(join, index);
    }
    pthread_mutex_unlock(&join->lock);
}

static rt_status read_one(rt_join *join, rt_reader *bytes, record *one)
{
    *one = (record){.id = rt_reader_u64(bytes)};
    one->time_ms = (int64_t)rt_reader_u64(bytes);
    one->known_ms = (int64_t)rt_reader_u64(bytes);
    one->number = rt_reader_u64(bytes);
    const uint64_t turn = rt_reader_u64(bytes);
    one->state = (event_state)rt_reader_u32(bytes);
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
        one->since[s] = NEVER;
    one->since[one->state] = join->step;
    rt_status status = read_labels(join, flags, one);
    if (status)
        return status;
    if (one->is_early)
        return one->key_count == 0 ? RT_OK : RT_DATA;
    const size_t size =
        one->key_count * sizeof(uint64_t) + join->settings.dense_count * sizeof(float);
    const void *payload = rt_reader_take(bytes, size, 1);
    if (!payload)
        return RT_DATA;
    one->payload = rt_alloc(size + 1, 1);
    if (!one->payload)
        return RT_NO_MEMORY;
    memcpy(one->payload, payload, size);
    return RT_OK;
}

// Ready ones go into their queue by turn.
static void queue_ready(rt_join *join, uint32_t index)
{
    uint32_t before = NONE, at = join->ready_first;
    while (at != NONE && join->records[at].turns[0] < join->records[index].turns[0]) {
        before = at;
        at = join->records[at].next;
    }
    join->records[index].next = at;
    if (before == NONE)
        join->ready_first = index;
    else
        join->records[before].next = index;
    join->ready_last = at == NONE ? index : join->ready_last;
}

static rt_status put_back(rt_join *join, record *one)
{
    uint32_t index;
    const event_state state = one->state;
    if (state == OFFERED ? join->offered != NONE : join->slot_count && find(join, one->id) != NONE)
        return RT_DATA;
    rt_status status = RT_OK;
    if (state == OFFERED) {
        status = reserve_one(join, &index);
        if (!status) {
            join->free = join->records[index].next;
            join->records[index] = *one;
            join->records[index].heap_at = join->records[index].next = NONE;
            join->offered = index;
        }
    } else {
        status = add(join, *one, state, &index);
    }
    if (status)
        return status;
    one->payload = NULL; // the record's now
    one->told = NULL;
    count_state(join, one, state, 1);
    if (state == WAITING || state == KEPT)
        heap_add(join, index, end_of(join, one, state));
    else if (state != OFFERED)
        queue_ready(join, index);
    return RT_OK;
}

rt_status rt_join_load(rt_join *join, rt_reader *bytes, rt_error *error)
{
    const bool is_known =
        rt_reader_u32(bytes) == SAVE_MAGIC && rt_reader_u32(bytes) == SAVE_VERSION;
    const uint64_t count = rt_reader_u64(bytes);
    rt_status status = is_known && !bytes->failed ? RT_OK : RT_DATA;
    for (uint64_t i = 0; i < count && !status; i++) {
        record one;
        status = read_one(join, bytes, &one);
        if (!status)
            status = put_back(join, &one);
        rt_free(one.payload);
        rt_free(one.told);
    }
    if (status == RT_NO_MEMORY)
        return rt_fail(error, status, "out of memory for a join");
    return status ? rt_fail(error, RT_DATA, "the events that wait (stream.join) are damaged")
                  : RT_OK;
}
