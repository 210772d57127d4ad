// dp_planner_legal says of every count and link that is wrong that it is.
#include <string.h>

#include "dispatch/planner/dp_planner_parts.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/planner_case.h"
#include "tests/support/test.h"

typedef enum { OCCUPIED, OUTDATED, FREE, HOLDER, SLOT, KEY, COUNT, WAYS } way;
#define OF_BOTH KEY // the ways before it: of the workers' caches and of what is shown

static const char *const says[WAYS] = {
    [OCCUPIED] = "slots are lost",  [OUTDATED] = "slots are lost",
    [FREE] = "slots are lost",      [HOLDER] = "",
    [SLOT] = "holds it in no slot", [KEY] = "entry and record differ",
    [COUNT] = "records reachable",
};

static dp_record *held_record(dp_planner *planner, const dp_cache_set *set)
{
    dp_directory *directory = &planner->directory;
    for (uint32_t r = 0; r < directory->record_count; r++) {
        if (dp_planner_copies(planner, set, r)->holders == 1)
            return &directory->records[r];
    }
    fail_msg("nobody holds a row alone");
    return NULL;
}

static void spoil(dp_planner *planner, const dp_cache_set *set, way how)
{
    dp_cache *caches = set->caches;
    dp_record *record = held_record(planner, set);
    dp_copies *copies = set == &planner->own ? &record->copies : &record->viewed;
    switch (how) {
    case OCCUPIED:
        caches[1].occupied++;
        break;
    case OUTDATED:
        caches[0].outdated++;
        break;
    case FREE:
        caches[1].free_count++;
        break;
    case HOLDER:
        copies->holders |= 2;
        break;
    case SLOT:
        caches[0].slots[dp_cache_slot(caches, 0, copies)].record ^= 1;
        break;
    case KEY:
        record->key ^= 1;
        break;
    case COUNT:
        planner->directory.record_count++;
        break;
    case WAYS:
        break;
    }
}

static void must_be_seen(rt_view_kind view, bool is_viewed, way how)
{
    const planner_shape shape = {.seed = 3,
                                 .worker_count = 3,
                                 .sample_count_max = 12,
                                 .field_count = 2,
                                 .ids_per_field = 40,
                                 .bag_max = 1,
                                 .cache = CACHE_MIDDLE,
                                 .dispatch = {.policy = RT_POLICY_ESD, .alpha = 1, .view = view}};
    planner_case pc;
    rt_error error = {0};
    planner_case_init(&pc, &shape);
    for (uint32_t t = 0; t < 5; t++) {
        planner_case_look_up(&pc, 12);
        planner_case_commit(&pc);
    }
    assert_int_equal(pc.planner->viewed.caches != NULL, view == RT_VIEW_SNAPSHOT);
    assert_true(dp_planner_legal(pc.planner, &error));
    spoil(pc.planner, is_viewed ? &pc.planner->viewed : &pc.planner->own, how);
    if (dp_planner_legal(pc.planner, &error) || !strstr(error.text, says[how]))
        fail_msg("way %d: \"%s\"", (int)how, error.text);
    planner_case_fini(&pc);
}

static void what_is_wrong_is_seen(void **state)
{
    (void)state;
    for (way how = 0; how < WAYS; how++)
        must_be_seen(RT_VIEW_STRICT, false, how);
}

static void also_of_what_decisions_see(void **state)
{
    (void)state;
    for (way how = 0; how < OF_BOTH; how++) {
        must_be_seen(RT_VIEW_SNAPSHOT, false, how);
        must_be_seen(RT_VIEW_SNAPSHOT, true, how);
    }
}

TEST_MAIN(TEST(what_is_wrong_is_seen), TEST(also_of_what_decisions_see))
