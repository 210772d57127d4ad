// explore_states - the states that an exploration has found: a list in the order in which they were
// found, each once. A state is a plain value without padding that is not zero.
#ifndef EXPLORE_STATES_H
#define EXPLORE_STATES_H

#include <stdlib.h>
#include <string.h>

#include "runtime/rt_base.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

typedef struct {
    size_t size; // of a state
    uint8_t *list;
    uint32_t *seen; // 1 + places in list, by hash; 0: free
    uint32_t room, count, capacity;
} explore_states;

// room: of the table, more than twice as many as will be found.
static inline void explore_states_init(explore_states *states, size_t size, uint32_t room)
{
    *states = (explore_states){.size = size, .room = room};
    states->seen = calloc(room, sizeof *states->seen);
    assert_non_null(states->seen);
}

static inline void explore_states_fini(explore_states *states)
{
    free(states->seen);
    rt_free(states->list);
}

static inline void explore_states_clear(explore_states *states)
{
    states->count = 0;
    memset(states->seen, 0, states->room * sizeof *states->seen);
}

// Valid until the next one is added.
static inline const void *explore_states_at(const explore_states *states, uint32_t place)
{
    return states->list + (size_t)place * states->size;
}

// Whether it is a new one; it is the last of the list then.
static inline bool explore_states_add(explore_states *states, const void *state)
{
    uint64_t at = rt_hash_bytes(state, states->size) % states->room;
    for (; states->seen[at]; at = (at + 1) % states->room) {
        if (memcmp(explore_states_at(states, states->seen[at] - 1), state, states->size) == 0)
            return false;
    }
    assert_true(states->count < states->room / 2);
    assert_int_equal(rt_grow(&states->list, &states->capacity, states->count + 1u, states->size),
                     RT_OK);
    memcpy(states->list + (size_t)states->count * states->size, state, states->size);
    states->seen[at] = ++states->count;
    return true;
}

#endif
