// eviction_model - the rules of dispatch/cache/dp_eviction.h word for word; every question searches
// all slots.
#ifndef EVICTION_MODEL_H
#define EVICTION_MODEL_H

#include "runtime/config/rt_config.h"

typedef struct {
    bool occupied, outdated;
    uint32_t mark, frequency;
    uint32_t used; // last iteration
    int64_t at;    // number of the last use; light_lfu: that of the hand's pass, falling from -1
    bool direct;   // light_lfu: no victim
    uint64_t key;  // the caller's
    uint32_t bytes;
    uint32_t next; // iteration of the next use, or 0
} eviction_model_slot;

typedef struct {
    rt_eviction_kind kind;
    bool by_bytes;
    uint32_t slot_count, occupied, target;
    int64_t uses, passed;
    uint32_t hand;
    uint32_t only_needed; // iteration in which no row was left that is not needed later
    eviction_model_slot *slots;
} eviction_model;

void eviction_model_init(eviction_model *model, rt_eviction_kind kind, uint32_t slot_count);
void eviction_model_fini(eviction_model *model);

void eviction_model_use(eviction_model *model, uint32_t slot, uint32_t iteration);
void eviction_model_outdate(eviction_model *model, uint32_t slot);
void eviction_model_free(eviction_model *model, uint32_t slot);
void eviction_model_expect(eviction_model *model, uint32_t slot, uint32_t next);
bool eviction_model_is_candidate(const eviction_model *model, uint32_t slot, uint32_t iteration);
bool eviction_model_is_needed(const eviction_model *model, uint32_t slot, uint32_t iteration);
uint32_t eviction_model_victim(eviction_model *model, uint32_t iteration);

#endif
