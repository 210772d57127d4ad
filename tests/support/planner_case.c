#include "tests/support/planner_case.h"

#include <inttypes.h>
#include <string.h>

#include "tests/support/test.h"

static uint32_t slot_count(const planner_shape *shape, uint32_t worker)
{
    uint32_t n = shape->worker_count;
    const uint32_t fewest = shape->participants_min ? shape->participants_min : n;
    uint32_t samples = (shape->sample_count_max + fewest - 1) / fewest;
    samples = (uint32_t)rt_max_u64(samples, shape->dispatch.micro_batch_max);
    uint32_t rows = samples * shape->field_count * shape->bag_max;
    uint32_t all = shape->field_count * shape->ids_per_field;
    switch (shape->cache) {
    case CACHE_SMALLEST:
        return rows;
    case CACHE_MIDDLE:
        return rows + rows * (worker % 3) / 2 + worker % 5;
    case CACHE_EVERYTHING:
        return rows > all ? rows : all;
    }
    return 0;
}

static void fill_config(const planner_shape *shape, dp_planner_config *config)
{
    *config = (dp_planner_config){.worker_count = shape->worker_count,
                                  .sample_count_max = shape->sample_count_max,
                                  .keys_per_sample_max = shape->field_count * shape->bag_max,
                                  .eviction = shape->eviction,
                                  .lookahead = shape->lookahead,
                                  .participants_min = shape->participants_min,
                                  .layout.field_count = shape->field_count,
                                  .layout.wire = shape->row_wire,
                                  .micro_batch_min = shape->dispatch.micro_batch_min,
                                  .micro_batch_max = shape->dispatch.micro_batch_max,
                                  .dispatch = shape->dispatch,
                                  .consistency = shape->consistency,
                                  .seed = shape->seed};
    for (uint32_t f = 0; f < shape->field_count; f++) {
        config->layout.values[f] = 8 + 4 * (f % 3);
        config->layout.state[f] = f % 2 ? 1 : config->layout.values[f];
    }
    config->rates.ps_bytes_per_s = shape->dispatch.reduce ? 1e8 : 0; // or no worker would sum
    for (uint32_t j = 0; j < shape->worker_count; j++) {
        double slower = j % 2 ? 10 : 1;
        config->slot_count[j] = slot_count(shape, j);
        config->rates.links[j] = (dp_link){6e8 / slower, 5e8 / slower};
    }
}

// Caches have room for them beside what they hold otherwise.
static void add_hot(planner_case *pc)
{
    const planner_shape *shape = &pc->shape;
    const uint32_t count = shape->hot_ids * shape->field_count;
    uint64_t *keys = rt_alloc(count, sizeof *keys);
    assert_non_null(keys);
    for (uint32_t i = 0; i < count; i++)
        keys[i] = rt_key(i % shape->field_count, i / shape->field_count);
    assert_int_equal(dp_hot_create(keys, count, &pc->hot), RT_OK);
    rt_free(keys);
    pc->config.hot = pc->hot;
    for (uint32_t j = 0; j < shape->worker_count; j++)
        pc->config.slot_count[j] += count;
}

void planner_case_init(planner_case *pc, const planner_shape *shape)
{
    *pc = (planner_case){.shape = *shape, .random = {rt_mix(shape->seed)}};
    rt_error error = {0};
    fill_config(shape, &pc->config);
    if (shape->hot_ids)
        add_hot(pc);
    if (dp_planner_create(&pc->config, &pc->planner, &error))
        fail_msg("%s", error.text);
    plan_checker_config checker = {.worker_count = shape->worker_count,
                                   .first_touch = shape->dispatch.first_touch,
                                   .hand_over = shape->dispatch.hand_over,
                                   .reduce = shape->dispatch.reduce,
                                   .expires = shape->eviction == RT_EVICT_TTL,
                                   .full_sync = shape->dispatch.full_sync,
                                   .always_summed = shape->consistency.bounded || pc->hot,
                                   .keeps_hot = pc->hot != NULL,
                                   .micro_batch_min = shape->dispatch.micro_batch_min,
                                   .micro_batch_max = shape->dispatch.micro_batch_max};
    for (uint32_t j = 0; j < shape->worker_count; j++)
        checker.slot_count[j] = pc->config.slot_count[j];
    pc->checker = plan_checker_create(&checker);
    random_batches_init(&pc->batches, shape->seed, shape->field_count, shape->ids_per_field,
                        shape->bag_max, shape->zipf);
    rt_batch_init(&pc->batch, 0);
    for (uint32_t k = 0; k <= shape->lookahead; k++)
        rt_batch_init(&pc->ahead[k], 0);
}

void planner_case_fini(planner_case *pc)
{
    dp_planner_destroy(pc->planner);
    dp_hot_destroy(pc->hot);
    plan_checker_destroy(pc->checker);
    random_batches_fini(&pc->batches);
    rt_batch_fini(&pc->batch);
    for (uint32_t k = 0; k <= pc->shape.lookahead; k++)
        rt_batch_fini(&pc->ahead[k]);
}

void planner_case_look_up(planner_case *pc, uint32_t sample_count)
{
    uint32_t lookahead = pc->shape.lookahead;
    const rt_batch spare = pc->batch;
    while (pc->ahead_count <= lookahead) {
        rt_batch *next = &pc->ahead[pc->ahead_count++];
        random_batches_fill(&pc->batches, next, sample_count);
        if (lookahead > 0)
            assert_int_equal(dp_planner_preview(pc->planner, next), RT_OK);
    }
    pc->batch = pc->ahead[0];
    memmove(pc->ahead, pc->ahead + 1, lookahead * sizeof *pc->ahead);
    pc->ahead[lookahead] = spare;
    pc->ahead_count--;
    assert_int_equal(dp_planner_look_up(pc->planner, &pc->batch), RT_OK);
    pc->iteration++;
}

uint32_t planner_case_next_use(const planner_case *pc, uint64_t key)
{
    for (uint32_t b = 0; b < pc->ahead_count; b++) {
        for (uint32_t k = 0; k < pc->ahead[b].key_count; k++) {
            if (pc->ahead[b].keys[k] == key)
                return pc->iteration + 1 + b;
        }
    }
    return 0;
}

void planner_case_commit(planner_case *pc)
{
    rt_error error = {0};
    dp_planner_place(pc->planner);
    assert_int_equal(dp_planner_commit(pc->planner, &pc->plan), RT_OK);
    if (!plan_checker_step(pc->checker, &pc->batch, pc->plan, &error))
        fail_msg("seed %" PRIu64 ": %s", pc->shape.seed, error.text);
    pc->fills = 0;
    for (uint32_t j = 0; j < pc->shape.worker_count; j++)
        pc->fills += pc->plan->slices[j].fill.count;
}

void planner_case_flush(planner_case *pc)
{
    rt_error error = {0};
    assert_int_equal(dp_planner_flush(pc->planner, &pc->plan), RT_OK);
    if (!plan_checker_flush(pc->checker, pc->plan, &error))
        fail_msg("seed %" PRIu64 ": %s", pc->shape.seed, error.text);
}

void planner_case_compare(planner_case *pc)
{
    const dp_directory *directory = dp_planner_directory(pc->planner);
    rt_error error = {0};
    if (!dp_planner_legal(pc->planner, &error))
        fail_msg("seed %" PRIu64 ", iteration %" PRIu32 ": %s", pc->shape.seed, pc->iteration,
                 error.text);
    uint32_t count = plan_checker_key_count(pc->checker), held = 0;
    assert_int_equal(directory->key_count, count);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key = plan_checker_key_at(pc->checker, i);
        plan_checker_key known = plan_checker_find(pc->checker, key);
        assert_int_equal(dp_directory_version(directory, key), known.version);
        held += known.holders != 0;
    }
    for (uint64_t i = 0; i <= directory->mask; i++) {
        const uint32_t record = directory->entries[i].record;
        if (!record || directory->records[record - 1].copies.holders)
            continue;
        const dp_record *other = &directory->records[record - 1]; // outdated, or shown
        assert_true(other->copies.first != DP_NO_COPY || other->viewed.first != DP_NO_COPY);
        held++;
    }
    assert_int_equal(directory->record_count, held); // others keep 16 bytes only
    for (uint64_t i = 0; i <= directory->mask; i++) {
        const dp_entry *entry = &directory->entries[i];
        if (!entry->record)
            continue;
        const dp_record *record = &directory->records[entry->record - 1];
        plan_checker_key known = plan_checker_find(pc->checker, record->key);
        assert_int_equal(record->version, known.version);
        if (!pc->shape.dispatch.full_sync) // the planner counts a push that opens the next plan
            assert_int_equal(record->version_ps, known.version_ps);
        assert_int_equal(record->copies.holders, known.holders);
    }
}
