// rt_join_parts - inside a join: what moves events along and what keeps them for a checkpoint
// share.
#ifndef RT_JOIN_PARTS_H
#define RT_JOIN_PARTS_H

#include <pthread.h>

#include "runtime/stream/rt_join.h"

#define RT_JOIN_NONE UINT32_MAX
#define RT_JOIN_NEVER UINT64_MAX

// An event goes through these in order; it may pass some over. An outcome without its event is
// EARLY from the start.
typedef enum { OFFERED, WAITING, READY, KEPT, LATE, GONE, STATES } rt_join_state;

typedef struct {
    uint64_t id;
    int64_t time_ms;   // as it was given
    int64_t known_ms;  // that counts for it: its own; of one that came late, or is doubted: the
                       // clock's then
    uint64_t doubted;  // step in which that was changed; RT_JOIN_NEVER
    int64_t before_ms; // what it was before
    int64_t end_ms;    // of waiting, or of being kept
    uint64_t number;   // in the order of coming
    uint64_t since[STATES]; // step in which a state began
    uint64_t turns[2];      // order among the ready, of READY and LATE
    rt_join_state state;
    bool is_early;         // an outcome
    uint8_t late;          // labels that a correction makes 1
    rt_join_labels labels; // of outcomes that came before the training
    uint64_t *told;        // of several labels: step in which each was known; else NULL
    bool is_unanswered;    // it became ready because its window ended
    bool is_trained;       // as label 0
    float weight;
    uint32_t key_count;
    uint8_t *payload; // keys, then dense features
    uint32_t heap_at; // RT_JOIN_NONE: not in it
    uint32_t next;    // of the ready, of the gone, or of the free
} rt_join_record;

struct rt_join {
    rt_join_settings settings;
    int64_t window_ms, late_ms;
    uint32_t label_count;
    uint8_t all;          // labels
    pthread_mutex_t lock; // all below: rt_join_save comes from another thread
    rt_join_record *records;
    uint32_t record_count, record_capacity;
    uint32_t free;
    uint32_t *slots; // hash table: record, or RT_JOIN_NONE; slot_count is a power of two
    uint32_t slot_count, slots_used;
    uint32_t *heap; // by end_ms, then number
    uint32_t heap_count, heap_capacity;
    uint32_t ready_first, ready_last;
    uint32_t gone_first, gone_last; // remembered for rt_join_save
    uint32_t offered;
    bool remembers;
    uint64_t step, numbers, turns;
    int64_t clock_ms;
    int64_t limit_ms, now_ms; // rt_join_limit
    bool has_clock, is_held;
    rt_join_counts counts;
    uint64_t ready_zeros; // of the ready, those with label 0
};

// Of an id; RT_JOIN_NONE: there is none.
uint32_t rt_join_find(const rt_join *join, uint64_t id);

// Room for one more record, and in the heap. RT_NO_MEMORY.
rt_status rt_join_reserve(rt_join *join, uint32_t *index_p);

// Where it is written when each of several labels was known. RT_NO_MEMORY.
rt_status rt_join_reserve_told(const rt_join *join, rt_join_record *one);

// A new record in a state; what it holds is the join's on RT_OK. RT_NO_MEMORY.
rt_status rt_join_add(rt_join *join, rt_join_record what, rt_join_state state, uint32_t *index_p);
void rt_join_release(rt_join *join, uint32_t index);

// There is room: rt_join_reserve.
void rt_join_heap_add(rt_join *join, uint32_t index, int64_t end_ms);

// When the time of a record in this state is over.
int64_t rt_join_end_of(const rt_join *join, const rt_join_record *one, rt_join_state state);

void rt_join_count_state(rt_join *join, const rt_join_record *one, rt_join_state state, int64_t by);

#endif
