// Where the rows of a trial (shard_share) are taken to be, of which nobody knows where they are:
// written down once more, for sites on which some boxes have no worker.
#include "dispatch/planner/dp_planner.h"
#include "runtime/config/rt_policies.h"

#include <string.h>

#include "tests/support/random_batches.h"
#include "tests/support/test.h"

#define FIELDS 3u
#define IDS 60u
#define SAMPLES 24u

typedef struct {
    uint32_t workers, boxes, shards;
    uint8_t box_of_worker[4], box_of_shard[6];
    double share;
} site;

static dp_planner *plan_trial(const site *s)
{
    dp_planner *planner;
    rt_error error = {0};
    dp_planner_config config = {
        .worker_count = s->workers,
        .sample_count_max = SAMPLES,
        .keys_per_sample_max = FIELDS,
        .layout.field_count = FIELDS,
        .homes = RT_HOMES_PLANNED,
        .shard_share = s->share,
        .dispatch = {.policy = RT_POLICY_ESD, .alpha = 1, .first_touch = RT_FIRST_TOUCH_PULL},
        .rates.shards = {s->shards, s->shards, {0}},
        .boxes = {.count = s->boxes, .worker_count = s->workers}};
    memcpy(config.boxes.of_worker, s->box_of_worker, sizeof s->box_of_worker);
    memcpy(config.boxes.of_shard, s->box_of_shard, sizeof s->box_of_shard);
    for (uint32_t f = 0; f < FIELDS; f++)
        config.layout.values[f] = config.layout.state[f] = 8;
    for (uint32_t b = 0; b < s->boxes; b++)
        config.boxes.given[b] = (dp_link){1e6, 1e6};
    for (uint32_t w = 0; w < s->workers; w++) {
        config.slot_count[w] = SAMPLES * FIELDS;
        config.rates.links[w] = config.boxes.given[0];
    }
    if (dp_planner_create(&config, &planner, &error))
        fail_msg("%s", error.text);
    return planner;
}

// Shards whose box has a worker, in order, have their share of all keys, by a hash of those; what
// is left goes to the others, or to all where there are none.
static uint32_t home_of(const site *s, uint64_t key)
{
    const double place = (double)(rt_mix(key ^ UINT64_C(0x706c61636573)) >> 11) / (1ull << 53);
    uint32_t others[6], other_count = 0;
    double taken = 0;
    for (uint32_t i = 0; i < s->shards; i++) {
        if (!memchr(s->box_of_worker, s->box_of_shard[i], s->workers)) {
            others[other_count++] = i;
            continue;
        }
        taken += s->share;
        if (place < taken)
            return i;
    }
    if (!other_count)
        return rt_key_shard(key, s->shards);
    return others[rt_key_shard(key, other_count)];
}

// Returns how many shards have a row.
static uint32_t check(const site *s, uint64_t seed)
{
    dp_planner *planner = plan_trial(s);
    random_batches batches;
    rt_batch batch;
    uint64_t counts[6] = {0}, used = 0;
    random_batches_init(&batches, seed, FIELDS, IDS, 1, 0.5);
    rt_batch_init(&batch, 0);
    random_batches_fill(&batches, &batch, SAMPLES);
    assert_int_equal(dp_planner_look_up(planner, &batch), RT_OK);
    const dp_directory *directory = dp_planner_directory(planner);
    for (uint32_t i = 0; i < directory->record_count; i++) {
        const dp_record *record = &directory->records[i];
        const uint32_t want = home_of(s, record->key);
        assert_int_equal(record->home, want);
        counts[want]++;
    }
    for (uint32_t i = 0; i < s->shards; i++) {
        assert_true(directory->home_counts[i] == counts[i]);
        used += counts[i] > 0;
    }
    dp_planner_destroy(planner);
    random_batches_fini(&batches);
    rt_batch_fini(&batch);
    return (uint32_t)used;
}

static void rows_of_a_trial(void **state)
{
    (void)state;
    static const site sites[] = {
        {2, 3, 4, {1, 2}, {0, 1, 2, 0}, 0.2},  // of two boxes with workers, and one without
        {2, 3, 4, {1, 2}, {0, 1, 2, 0}, 0.5},  // which is not needed
        {1, 4, 4, {3}, {0, 1, 2, 3}, 0.1},     // the last box alone
        {1, 4, 4, {0}, {0, 1, 2, 3}, 0.1},     // the first
        {3, 3, 3, {0, 1, 2}, {0, 1, 2}, 0.25}, // all, which have less than all rows
        {2, 3, 6, {0, 0}, {0, 0, 1, 1, 2, 2}, 0.15},
    };
    static const uint32_t used[] = {4, 2, 4, 4, 3, 6};
    for (size_t i = 0; i < RT_COUNT_OF(sites); i++) {
        for (uint64_t seed = 1; seed <= 3; seed++)
            assert_int_equal(check(&sites[i], seed), used[i]);
    }
}

TEST_MAIN(TEST(rows_of_a_trial))
