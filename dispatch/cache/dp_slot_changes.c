#include "dispatch/cache/dp_slot_changes.h"

#define AHEAD 12u // copies between the prefetch of a record or slot and its use

rt_status dp_slot_changes_create(uint32_t worker_count, uint32_t change_count_max,
                                 dp_slot_changes **changes_p)
{
    dp_slot_changes *changes = rt_alloc(worker_count, sizeof *changes);
    bool is_complete = changes != NULL;
    for (uint32_t w = 0; w < worker_count && is_complete; w++) {
        changes[w].left = rt_alloc_unset(change_count_max, sizeof *changes[w].left);
        changes[w].taken = rt_alloc_unset(change_count_max, sizeof *changes[w].taken);
        is_complete = changes[w].left && changes[w].taken;
    }
    if (!is_complete) {
        dp_slot_changes_destroy(changes, worker_count);
        return RT_NO_MEMORY;
    }
    *changes_p = changes;
    return RT_OK;
}

void dp_slot_changes_destroy(dp_slot_changes *changes, uint32_t worker_count)
{
    for (uint32_t w = 0; changes && w < worker_count; w++) {
        rt_free(changes[w].left);
        rt_free(changes[w].taken);
    }
    rt_free(changes);
}

static dp_copies *copies_of(const dp_slot_change_set *set, dp_directory *directory, uint32_t record)
{
    dp_record *of = &directory->records[record];
    return set->viewed ? &of->viewed : &of->copies;
}

// Records and slots are far apart in memory: both are fetched some copies before their use.
static void prefetch(const dp_slot_change_set *set, dp_directory *directory,
                     const dp_slot_change *change, uint32_t left)
{
    if (left > 2 * AHEAD)
        dp_directory_prefetch(directory, change[2 * AHEAD].record);
    if (left > AHEAD) {
        const uint32_t first = copies_of(set, directory, change[AHEAD].record)->first;
        if (first != DP_NO_COPY)
            __builtin_prefetch(&set->caches[dp_copy_worker(first)].slots[dp_copy_slot(first)], 1);
    }
}

void dp_slot_changes_unlink(const dp_slot_change_set *set, dp_directory *directory, uint32_t part,
                            uint32_t part_count)
{
    for (uint32_t w = 0; w < set->worker_count; w++) {
        const dp_slot_changes *changes = &set->changes[w];
        for (uint32_t i = 0; i < changes->left_count; i++) {
            const dp_slot_change *change = &changes->left[i];
            if (part_count == 1)
                prefetch(set, directory, change, changes->left_count - i);
            else if (dp_slot_changes_part(change->record, part_count) != part)
                continue;
            dp_cache_unlink(set->caches, w, change->slot,
                            copies_of(set, directory, change->record));
        }
    }
}

void dp_slot_changes_link(const dp_slot_change_set *set, dp_directory *directory, uint32_t part,
                          uint32_t part_count)
{
    for (uint32_t w = 0; w < set->worker_count; w++) {
        const dp_slot_changes *changes = &set->changes[w];
        for (uint32_t i = 0; i < changes->taken_count; i++) {
            const dp_slot_change *change = &changes->taken[i];
            if (part_count == 1 && i + AHEAD < changes->taken_count)
                dp_directory_prefetch(directory, change[AHEAD].record);
            else if (part_count > 1 && dp_slot_changes_part(change->record, part_count) != part)
                continue;
            dp_cache_link(&set->caches[w], change->slot, copies_of(set, directory, change->record));
        }
    }
}
