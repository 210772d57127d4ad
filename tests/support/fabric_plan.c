// The half of a fabric that comes before the run: samples, plans, slices.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "runtime/stream/rt_base_rate.h"
#include "tests/support/fabric.h"
#include "tests/support/test.h"

#define COORDINATOR rt_peer(RT_ROLE_COORDINATOR, 0)

static uint32_t batch_max(const fabric_shape *shape)
{
    return shape->worker_count * shape->samples_per_worker;
}

uint32_t fabric_slots(const fabric_plan *plan, uint32_t worker)
{
    const fabric_shape *shape = &plan->shape;
    uint32_t keys = shape->field_count * shape->bag_max;
    uint32_t least = dp_planner_micro_batch_max(&plan->planner) * keys;
    uint32_t all = shape->field_count * shape->ids_per_field;
    const uint32_t hot = shape->field_count * shape->hot_ids;
    switch (shape->cache) {
    case CACHE_SMALLEST:
        return hot + least;
    case CACHE_MIDDLE:
        return hot + least + least * (worker % 3) / 2 + worker % 5;
    case CACHE_EVERYTHING:
        return hot + (least > all ? least : all);
    }
    return 0;
}

static void make_hot(fabric_plan *plan)
{
    const uint32_t count = plan->shape.field_count * plan->shape.hot_ids;
    uint64_t *keys = calloc(count, sizeof *keys);
    for (uint32_t i = 0; i < count; i++)
        keys[i] = rt_key(i % plan->shape.field_count, i / plan->shape.field_count);
    assert_int_equal(dp_hot_create(keys, count, &plan->hot), RT_OK);
    free(keys);
    plan->planner.hot = plan->hot;
}

static void configure_planner(fabric_plan *plan)
{
    const fabric_shape *shape = &plan->shape;
    dp_planner_config *config = &plan->planner;
    *config = (dp_planner_config){.worker_count = shape->worker_count,
                                  .sample_count_max = batch_max(shape),
                                  .keys_per_sample_max = shape->field_count * shape->bag_max,
                                  .eviction = shape->hot_ids ? RT_EVICT_LRU : shape->eviction,
                                  .lookahead = shape->lookahead,
                                  .participants_min = shape->change_every ? 1 : 0,
                                  .rows = shape->ends,
                                  .layout.field_count = shape->field_count,
                                  .layout.wire = shape->row_wire,
                                  .dispatch = shape->dispatch,
                                  .consistency = shape->consistency,
                                  .seed = shape->seed};
    if (shape->hot_ids)
        make_hot(plan);
    if (dp_policy_can(shape->dispatch.policy, DP_POLICY_UNEQUAL)) {
        config->micro_batch_min = shape->dispatch.micro_batch_min;
        config->micro_batch_max = shape->dispatch.micro_batch_max;
    }
    uint32_t dim = shape->model.embedding_dim;
    for (uint32_t f = 0; f < shape->field_count; f++) {
        config->layout.values[f] = dim;
        config->layout.state[f] = rt_optimizer_state_floats(&shape->rows, dim);
    }
    if (shape->homes == RT_HOMES_PLANNED) {
        config->homes = shape->homes;
        config->rates.shards = (dp_shards){shape->shard_count, shape->shard_count, {0}};
        config->boxes =
            (dp_boxes){.count = shape->shard_count > shape->worker_count ? shape->shard_count
                                                                         : shape->worker_count,
                       .worker_count = shape->worker_count};
    }
    config->rates.ps_bytes_per_s = shape->dispatch.reduce ? 1e8 : 0; // or no worker would sum
    for (uint32_t b = 0; b < config->boxes.count; b++) {
        config->boxes.given[b] = (dp_link){6e8, 6e8};
        if (b < shape->worker_count)
            config->boxes.of_worker[b] = (uint8_t)b;
        if (b < shape->shard_count)
            config->boxes.of_shard[b] = (uint8_t)b;
    }
    if (shape->consistency.staleness > 0)
        config->overshoot = dp_planner_micro_batch_max(config) * config->keys_per_sample_max;
    for (uint32_t j = 0; j < shape->worker_count; j++) {
        config->slot_count[j] = fabric_slots(plan, j) + config->overshoot;
        config->rates.links[j] = (dp_link){j % 2 ? 6e7 : 6e8, j % 2 ? 6e7 : 6e8};
    }
}

// Further labels depend on other keys; every third is absent.
static void make_labels(rt_batch *batch, uint32_t i, float first, const uint64_t *own,
                        rt_random *random)
{
    float labels[RT_LABELS_MAX] = {first};
    for (uint32_t l = 1; l < batch->label_count; l++)
        labels[l] = rt_mix(own[l % 2] + l) % 4 < 1;
    for (uint32_t l = 0; l < batch->label_count; l++)
        labels[l] = rt_random_below(random, 3) ? labels[l] : NAN;
    rt_batch_set_labels(batch, i, labels, 1);
}

// Labels that depend on a key, so that there is something to learn.
static void make_batches(fabric_plan *plan)
{
    const fabric_shape *shape = &plan->shape;
    random_batches keys;
    rt_batch bare;
    rt_base_rate rate = {.follows = true, .label_count = shape->more_labels + 1};
    rt_random random = {rt_mix(shape->seed + 17)};
    float dense[16];
    assert_true(shape->dense_count <= RT_COUNT_OF(dense));
    random_batches_init(&keys, shape->seed, shape->field_count, shape->ids_per_field,
                        shape->bag_max, shape->zipf);
    rt_batch_init(&bare, 0);
    plan->batches = calloc(shape->iterations, sizeof *plan->batches);
    for (uint32_t t = 0; t < shape->iterations; t++) {
        bool last = t + 1 == shape->iterations && shape->last_samples;
        const bool is_short = shape->short_every && t % shape->short_every == 2;
        uint32_t samples = is_short ? 1 + t % batch_max(shape) : batch_max(shape);
        random_batches_fill(&keys, &bare, last ? shape->last_samples : samples);
        rt_batch_init(&plan->batches[t], shape->dense_count);
        if (shape->more_labels)
            rt_batch_begin(&plan->batches[t], shape->more_labels + 1, true);
        for (uint32_t i = 0; i < bare.sample_count; i++) {
            const uint64_t *own = bare.keys + bare.key_offsets[i];
            uint32_t count = bare.key_offsets[i + 1] - bare.key_offsets[i];
            float label = (float)((rt_mix(own[0]) + rt_random_below(&random, 4)) % 4 < 2);
            if (t < shape->lone_batches)
                label = 0;
            for (uint32_t k = 0; k < shape->dense_count; k++)
                dense[k] = (float)rt_random_unit(&random) - 0.5f;
            if (shape->bad_every && t % shape->bad_every == 1 && i == bare.sample_count / 2)
                dense[t % shape->dense_count] = t % 3 ? NAN : INFINITY;
            assert_int_equal(rt_batch_append(&plan->batches[t], label, dense, own, count), RT_OK);
            if (shape->more_labels)
                make_labels(&plan->batches[t], i, label, own, &random);
        }
        rt_base_rate_note(&rate, &plan->batches[t], 0);
    }
    random_batches_fini(&keys);
    rt_batch_fini(&bare);
}

static void keep_offered(fabric_plan *plan)
{
    if (plan->shape.ends.admit < 2 && !plan->shape.shares)
        return;
    plan->offered = calloc(plan->shape.iterations, sizeof *plan->offered);
    for (uint32_t t = 0; t < plan->shape.iterations; t++) {
        const rt_batch *batch = &plan->batches[t];
        rt_batch_init(&plan->offered[t], batch->dense_count);
        if (plan->shape.shares) // keys are all that anybody looks at
            plan->offered[t].is_weighted = batch->is_weighted;
        for (uint32_t i = 0; i < batch->sample_count; i++)
            assert_int_equal(rt_batch_append(&plan->offered[t], batch->labels[i],
                                             batch->dense + (size_t)i * batch->dense_count,
                                             batch->keys + batch->key_offsets[i],
                                             batch->key_offsets[i + 1] - batch->key_offsets[i]),
                             RT_OK);
    }
}

// Said here anew, and not by rt_tables_find.
static void share_rows(fabric_plan *plan)
{
    const uint32_t fields = plan->shape.field_count;
    plan->tables = (rt_tables){.are_shared = plan->shape.shares, .field_count = fields};
    for (uint32_t f = 0; f < fields; f++) {
        const bool is_first = plan->shape.is_graph || f + 1 == fields;
        plan->tables.of[f] = (uint8_t)(is_first ? 0 : f);
        plan->tables.borrows[f] = is_first && f > 0;
    }
    for (uint32_t t = 0; t < plan->shape.iterations; t++)
        assert_int_equal(rt_tables_fold(&plan->tables, &plan->batches[t]), RT_OK);
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void list_keys(fabric_plan *plan)
{
    uint64_t total = 0;
    for (uint32_t t = 0; t < plan->shape.iterations; t++)
        total += plan->batches[t].key_count;
    plan->keys = calloc(total, sizeof *plan->keys);
    uint64_t *end = plan->keys;
    for (uint32_t t = 0; t < plan->shape.iterations; t++) {
        const rt_batch *batch = &plan->batches[t];
        memcpy(end, batch->keys, batch->key_count * sizeof *end);
        end += batch->key_count;
    }
    qsort(plan->keys, total, sizeof *plan->keys, compare_keys);
    for (uint64_t i = 0; i < total; i++) {
        if (i == 0 || plan->keys[i] != plan->keys[plan->key_count - 1])
            plan->keys[plan->key_count++] = plan->keys[i];
    }
}

dp_slice_limits fabric_limits(const fabric_plan *plan, uint32_t worker)
{
    const fabric_shape *shape = &plan->shape;
    const uint32_t micro_batch = dp_planner_micro_batch_max(&plan->planner);
    return (dp_slice_limits){.dense_count = shape->dense_count,
                             .more_labels = shape->more_labels,
                             .field_count = shape->field_count,
                             .worker_count = shape->worker_count,
                             .batch_samples = plan->planner.sample_count_max,
                             .sample_count_max = micro_batch,
                             .lookup_count_max = micro_batch * plan->planner.keys_per_sample_max,
                             .slot_count = plan->planner.slot_count[worker],
                             .shard_count =
                                 shape->homes == RT_HOMES_PLANNED ? shape->shard_count : 0,
                             .rank = worker,
                             .hands = shape->dispatch.hand_over,
                             .sums = shape->dispatch.reduce};
}

// As dp_feed has it: a worker that sits out and has nothing to do gets no slice, but the first.
static bool is_left_out(fabric_plan *plan, const dp_plan *final, uint32_t w)
{
    const uint32_t told = plan->shape.dispatch.reduce ? FABRIC_RUN_AHEAD_MAX + 2 : 1;
    if (final->iteration == 0)
        return false;
    const bool is_idle = !(final->participants >> w & 1) && dp_slice_is_empty(&final->slices[w]);
    plan->idle[w] = is_idle ? plan->idle[w] + 1 : 0;
    return plan->idle[w] > told;
}

static void encode_slice(fabric_plan *plan, const dp_plan *final, const rt_batch *batch, uint32_t w)
{
    const dp_slice_limits limits = fabric_limits(plan, w);
    rt_message *slice = &plan->slices[(size_t)plan->slice_count * plan->shape.worker_count + w];
    assert_int_equal(
        dp_slice_encode(final, w, batch, &limits, COORDINATOR, plan->slice_count + 1, slice),
        RT_OK);
    dp_slice_set_place(slice, plan->gap[w], final->iteration ? 0 : plan->iteration);
    plan->gap[w] = 0;
}

static void add_slices(fabric_plan *plan, const dp_plan *final, const rt_batch *batch)
{
    const fabric_shape *shape = &plan->shape;
    plan->iteration = final->iteration ? final->iteration : plan->iteration;
    for (uint32_t w = 0; w < shape->worker_count; w++) {
        size_t at = (size_t)plan->slice_count * shape->worker_count + w;
        if (is_left_out(plan, final, w)) {
            plan->gap[w]++;
            plan->left_out++;
            continue;
        }
        encode_slice(plan, final, batch, w);
        dp_counts_add_slice(&plan->counts[at], &final->slices[w]);
        rt_counts_add(&plan->planned, &plan->counts[at]);
        const dp_passing passing = dp_slice_passing(&plan->planner.layout, &final->slices[w]);
        const dp_traffic traffic = dp_passing_traffic(&passing);
        plan->traffic.up += traffic.up;
        plan->traffic.down += traffic.down;
        const dp_handed handed = dp_slice_handed(&plan->planner.layout, plan->planner.rates.links,
                                                 NULL, w, &final->slices[w]);
        plan->handed += handed.rows;
        plan->gradients += handed.gradients;
    }
    plan->slice_count++;
}

// Another set, of at least one worker.
static void change_participants(const fabric_plan *plan, dp_planner *planner, uint32_t t)
{
    const fabric_shape *shape = &plan->shape;
    rt_random random = {rt_mix(shape->seed * 1000 + t)};
    const uint64_t all = rt_bits_below(shape->worker_count);
    uint64_t workers = rt_random_u64(&random) & all;
    workers = workers ? workers : rt_bit(rt_random_below(&random, shape->worker_count));
    for (uint32_t j = 0; j < shape->worker_count; j++) {
        dp_input input = {
            .kind = DP_INPUT_PARTICIPATES, .worker = j, .value = (double)(workers >> j & 1)};
        assert_int_equal(dp_planner_apply(planner, &input, NULL), RT_OK);
    }
}

// t iterations are planned, and another one follows.
static void sweep(fabric_plan *plan, dp_planner *planner, uint32_t t)
{
    const dp_plan *final = NULL;
    rt_error error = {0};
    uint64_t ended = 0;
    uint32_t floor;
    if (!dp_sweep_due(planner, &floor))
        return;
    const uint64_t before = dp_planner_directory(planner)->key_count;
    assert_int_equal(dp_sweep(planner, floor, &final, &ended), RT_OK);
    assert_true(ended > 0 && before - dp_planner_directory(planner)->key_count == ended);
    if (!dp_planner_legal(planner, &error))
        fail_msg("after a sweep: %s", error.text);
    plan->swept[t - 1] = plan->floors[plan->slice_count] = floor;
    add_slices(plan, final, NULL);
}

static void plan_all(fabric_plan *plan, dp_planner *planner)
{
    const dp_plan *final = NULL;
    rt_error error = {0};
    uint32_t shown = 0, planned = 0, refused;
    for (uint32_t t = 0; t < plan->shape.iterations; t++) {
        while (shown <= t + plan->shape.lookahead && shown < plan->shape.iterations)
            assert_int_equal(dp_planner_preview(planner, &plan->batches[shown++]), RT_OK);
        if (t > 0)
            sweep(plan, planner, t);
        if (plan->shape.change_every && t % plan->shape.change_every == 0)
            change_participants(plan, planner, t);
        assert_int_equal(dp_planner_admit(planner, &plan->batches[t], &refused), RT_OK);
        assert_int_equal(dp_planner_look_up(planner, &plan->batches[t]), RT_OK);
        dp_planner_place(planner);
        memcpy(plan->placements + (size_t)t * batch_max(&plan->shape),
               dp_planner_placement(planner),
               plan->batches[t].sample_count * sizeof *plan->placements);
        assert_int_equal(dp_planner_commit(planner, &final), RT_OK);
        add_slices(plan, final, &plan->batches[t]);
    }
    for (uint32_t t = 0; t < plan->shape.iterations; t++)
        planned += 1 + (plan->swept[t] > 0);
    assert_int_equal(plan->slice_count, planned);
    assert_int_equal(dp_planner_flush(planner, &final), RT_OK);
    assert_true(final->participants == dp_planner_participants(planner));
    if (!dp_planner_legal(planner, &error))
        fail_msg("after the flush: %s", error.text);
    add_slices(plan, final, NULL);
}

void fabric_plan_init(fabric_plan *plan, const fabric_shape *shape)
{
    dp_planner *planner;
    rt_error error = {0};
    *plan = (fabric_plan){.shape = *shape};
    plan->shape.rows.batch_samples = plan->shape.dense.batch_samples = batch_max(shape);
    configure_planner(plan);
    make_batches(plan);
    keep_offered(plan);
    share_rows(plan);
    list_keys(plan);
    size_t slices = (size_t)(2 * shape->iterations + 1) * shape->worker_count;
    plan->floors = calloc(2 * shape->iterations + 1, sizeof *plan->floors);
    plan->swept = calloc(shape->iterations, sizeof *plan->swept);
    plan->slices = calloc(slices, sizeof *plan->slices);
    plan->counts = calloc(slices, sizeof *plan->counts);
    plan->placements =
        calloc((size_t)shape->iterations * batch_max(shape), sizeof *plan->placements);
    plan->versions = calloc(plan->key_count, sizeof *plan->versions);
    if (dp_planner_create(&plan->planner, &planner, &error))
        fail_msg("%s", error.text);
    plan_all(plan, planner);
    for (uint32_t k = 0; k < plan->key_count; k++)
        plan->versions[k] = dp_directory_version(dp_planner_directory(planner), plan->keys[k]);
    dp_planner_destroy(planner);
}

void fabric_plan_fini(fabric_plan *plan)
{
    for (uint32_t t = 0; t < plan->shape.iterations; t++)
        rt_batch_fini(&plan->batches[t]);
    for (uint32_t t = 0; plan->offered && t < plan->shape.iterations; t++)
        rt_batch_fini(&plan->offered[t]);
    for (uint32_t i = 0; i < plan->slice_count * plan->shape.worker_count; i++)
        rt_message_release(&plan->slices[i]);
    free(plan->batches);
    free(plan->offered);
    free(plan->slices);
    free(plan->counts);
    free(plan->placements);
    free(plan->keys);
    free(plan->versions);
    free(plan->floors);
    free(plan->swept);
    dp_hot_destroy(plan->hot);
}

uint64_t fabric_place(const fabric_plan *plan, uint32_t t)
{
    const uint32_t full = plan->planner.sample_count_max;
    uint32_t samples = 0;
    for (uint32_t i = 0; i < t; i++)
        samples += plan->batches[i].sample_count;
    return rt_optimizer_place((samples + full - 1) / full, plan->batches[t - 1].sample_count, full);
}

ew_model_config fabric_model(const fabric_plan *plan, bool whole)
{
    const fabric_shape *shape = &plan->shape;
    uint32_t samples = whole ? batch_max(shape) : dp_planner_micro_batch_max(&plan->planner);
    uint32_t lookups = samples * plan->planner.keys_per_sample_max;
    return (ew_model_config){.model = shape->model,
                             .optimizer = shape->dense,
                             .seed = shape->seed,
                             .dense_count = shape->dense_count,
                             .field_count = shape->field_count,
                             .tables = plan->tables,
                             .sequence_field = shape->field_count - 1, // of a model that has one
                             .more_labels = shape->more_labels,
                             .class_count = shape->class_count,
                             .label_weights = {1, 0.5f, 2},
                             .sample_count_max = samples,
                             .lookup_count_max = lookups,
                             .row_count_max = lookups};
}
