// rt_ids - names of the last events, to know those that come again.
//
// A window over hashes (XXH3, 64 bits) of names: exact, but that two names of a million have the
// same hash once in 3e13 events. Events are numbered from 0 on. One thread adds, another may save.
#ifndef RT_IDS_H
#define RT_IDS_H

#include "runtime/wire/rt_bytes.h"

typedef struct rt_ids rt_ids;

// window: events that are known; ahead: how many more may be added before one is saved. 24 bytes
// each. RT_NO_MEMORY.
rt_status rt_ids_create(uint32_t window, uint32_t ahead, rt_ids **ids_p);
void rt_ids_destroy(rt_ids *ids); // NULL is fine

bool rt_ids_has(const rt_ids *ids, uint64_t hash);
void rt_ids_add(rt_ids *ids, uint64_t hash); // of the next event; 0: it has no name

uint64_t rt_ids_repeated(const rt_ids *ids); // as rt_ids_note counted them
void rt_ids_note(rt_ids *ids);               // an event was known

// Appends the window as it was before event `number`, which is at most `ahead` events ago.
void rt_ids_save(rt_ids *ids, uint64_t number, rt_bytes *bytes);
// Into new ones; a smaller window keeps the newest. RT_DATA: no such bytes.
rt_status rt_ids_load(rt_ids *ids, rt_reader *reader, rt_error *error);

// Whether saved ones are what comes next.
bool rt_ids_are_next(const rt_reader *reader);

#endif
