#include "tests/support/random_view.h"

#include <string.h>

#include "tests/support/test.h"

static int32_t up_to(rt_random *random, uint32_t most)
{
    return 1 + (int32_t)rt_random_below(random, most);
}

static void fill_links(const view_shape *shape, rt_random *random, dp_ticks *t)
{
    for (uint32_t j = 0; j < shape->workers; j++) {
        const int32_t slow = up_to(random, shape->uneven ? 300 : 10);
        for (uint32_t f = 0; f < shape->fields; f++) {
            const int32_t size = shape->equal_rows ? 100 : 100 + 50 * (int32_t)(f % 3);
            t->pull[f][j] = slow * size;
            t->push[f][j] = slow * size + 7 * (int32_t)j;
            t->grad[f][j] = slow * size - 11;
        }
        t->compute[j] = shape->compute ? up_to(random, 3000) : 0;
        t->dense_up[j] = shape->compute ? up_to(random, 5000) : 0;
        t->dense_down[j] = shape->compute ? up_to(random, 5000) : 0;
    }
    if (!shape->ps)
        return;
    for (uint32_t f = 0; f < shape->fields; f++) {
        t->ps_row[f] = 20 + 10 * (int32_t)(f % 3);
        t->ps_grad[f] = 11 + 7 * (int32_t)(f % 3);
    }
    t->ps_limit_count = 3;
    for (uint32_t i = 0; i < 3; i++) {
        t->ps_limits[i].share = 1.0 / (1 + (i + 1) % 3);
        t->ps_limits[i].dense = 1000 * i;
    }
}

// Workers on boxes in turn, shards on all but the last.
static void fill_boxes(const view_shape *shape, rt_random *random, dp_ticks *t)
{
    t->box_count = shape->boxes;
    t->homes_move = shape->homes;
    t->shard_boxes = rt_bit(shape->boxes) / 2 - 1;
    memset(t->box_of, DP_NO_BOX, sizeof t->box_of);
    for (uint32_t b = 0; b < shape->boxes; b++) {
        const uint32_t slowest = shape->uneven ? 250 : 9;
        const int32_t up = up_to(random, slowest), down = up_to(random, slowest);
        for (uint32_t f = 0; f < shape->fields; f++) {
            const int32_t size = shape->equal_rows ? 100 : 100 + 50 * (int32_t)(f % 3);
            t->box_up[f][b] = up * size;
            t->box_down[f][b] = down * size;
            t->box_grad[f][b] = down * size - 13;
        }
        t->box_dense_up[b] = up_to(random, 4000);
        t->box_dense_down[b] = up_to(random, 4000);
    }
    for (uint32_t j = 0; j < shape->workers; j++) {
        const uint32_t b = (j + j / 3) % shape->boxes;
        t->box_of[j] = (uint8_t)b;
        for (uint32_t f = 0; f < shape->fields; f++) {
            t->pull[f][j] = t->box_down[f][b];
            t->push[f][j] = t->box_up[f][b];
            t->grad[f][j] = t->box_up[f][b] - 9;
        }
        t->dense_up[j] = t->box_dense_up[b];
        t->dense_down[j] = t->box_dense_down[b];
    }
}

// Nobody, one worker or several, whose copy the PS has or not.
static void fill_key(const view_shape *shape, rt_random *random, uint32_t d, random_view *made)
{
    dp_distinct *key = &made->distinct[d];
    const uint64_t all = UINT64_MAX >> (64 - shape->workers);
    const uint32_t kind = rt_random_below(random, 4);
    key->holders = rt_bit(rt_random_below(random, shape->workers));
    if (kind == 0)
        key->holders = 0;
    else if (kind == 3)
        key->holders = rt_random_u64(random) & all;
    key->dirty = key->holders && !shape->owed && rt_random_below(random, 2);
    key->held = DP_HELD_BY_NONE;
    if (rt_bit_count(key->holders) > 1)
        key->held = DP_HELD_BY_MANY;
    else if (key->holders)
        key->held = (uint8_t)(rt_lowest_bit(key->holders) | (key->dirty ? 0 : DP_HELD_CLEAN));
    key->box = DP_NO_BOX;
    if (shape->boxes && rt_random_below(random, 5))
        key->box = (uint8_t)rt_random_below(random, shape->boxes);
    made->held[d] = key->held;
    made->owed[d] = rt_random_u64(random) & rt_random_u64(random) & all & ~key->holders;
    made->next[d] = DP_NO_NEXT;
    if (rt_random_below(random, 3))
        made->next[d] = (uint8_t)rt_random_below(random, shape->workers);
    made->cached[key->field] += rt_bit_count(key->holders);
}

// The number of a key, a new one where it appears first.
static uint32_t number_of(uint32_t field, uint32_t id, random_view *made)
{
    dp_view *view = &made->view;
    const uint64_t key = (uint64_t)field << 56 | id;
    uint32_t d = 0;
    while (d < view->distinct_count && made->distinct[d].key != key)
        d++;
    if (d == view->distinct_count) {
        assert_true(d < RANDOM_VIEW_KEYS_MAX);
        made->distinct[view->distinct_count++] =
            (dp_distinct){.key = key, .field = (uint8_t)field, .box = DP_NO_BOX};
    }
    made->distinct[d].uses++;
    return d;
}

static void add_look_up(uint32_t field, uint32_t id, random_view *made)
{
    assert_true(made->view.lookup_count < RANDOM_VIEW_LOOKUPS_MAX);
    made->lookups[made->view.lookup_count++] = number_of(field, id, made);
}

static void fill_sample(const view_shape *shape, rt_random *random, uint32_t i, random_view *made)
{
    for (uint32_t f = 0; f < shape->fields; f++) {
        const uint32_t bag = 1 + rt_random_below(random, shape->bag_max);
        const uint32_t a = rt_random_below(random, shape->ids);
        const uint32_t b = rt_random_below(random, shape->ids);
        for (uint32_t k = 0; k < bag; k++)
            add_look_up(f, ((a < b ? a : b) + k) % shape->ids, made);
        for (uint32_t k = 0; f == 0 && i % 8 && k < shape->common; k++)
            add_look_up(f, shape->ids + k, made);
    }
    made->offsets[i + 1] = made->view.lookup_count;
}

static void fill_workers(const view_shape *shape, rt_random *random, random_view *made)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < shape->samples; i++)
        most = (uint32_t)rt_max_u64(most, made->offsets[i + 1] - made->offsets[i]);
    for (uint32_t j = 0; j < shape->workers; j++) {
        made->capacity[j] = shape->samples / shape->workers + (j < shape->samples % shape->workers);
        made->rows_max[j] = made->capacity[j] * most + j;
        made->ranks[j] = (uint8_t)(j + (j + 1) / 2);
        (void)up_to(random, 90); // what follows is drawn as it was when views were recorded
    }
}

void random_view_fill(const view_shape *shape, rt_random *random, random_view *made)
{
    assert_true(shape->samples <= RANDOM_VIEW_SAMPLES_MAX);
    memset(made, 0, sizeof *made);
    made->ticks =
        (dp_ticks){.tick_s = 1e-6, .worker_count = shape->workers, .field_count = shape->fields};
    fill_links(shape, random, &made->ticks);
    if (shape->boxes)
        fill_boxes(shape, random, &made->ticks);
    for (uint32_t i = 0; i < shape->samples; i++)
        fill_sample(shape, random, i, made);
    for (uint32_t d = 0; d < made->view.distinct_count; d++)
        fill_key(shape, random, d, made);
    for (uint32_t f = 0; f < shape->fields; f++) // keys that the batch does not have
        made->cached[f] += rt_random_below(random, 50);
    fill_workers(shape, random, made);
    memset(made->changes, 0x55, sizeof made->changes);
    const dp_view counts = made->view;
    made->view = (dp_view){.iteration = 1,
                           .worker_count = shape->workers,
                           .sample_count = shape->samples,
                           .lookup_count = counts.lookup_count,
                           .distinct_count = counts.distinct_count,
                           .uniform = shape->bag_max == 1 && !shape->common,
                           .offsets = made->offsets,
                           .lookups = made->lookups,
                           .distinct = made->distinct,
                           .held = made->held,
                           .capacity = made->capacity,
                           .ranks = shape->ranks ? made->ranks : NULL,
                           .micro_batch_min = shape->micro_batch_min,
                           .micro_batch_max = shape->micro_batch_max,
                           .rows_max = shape->tight ? made->rows_max : NULL,
                           .ticks = &made->ticks,
                           .cached = made->cached,
                           .owed = shape->owed ? made->owed : NULL,
                           .always_summed = shape->summed,
                           .next = shape->next ? made->next : NULL,
                           .changes = shape->changes ? made->changes : NULL};
}

uint64_t random_view_users(const random_view *made, uint32_t distinct,
                           const uint32_t *worker_of_sample)
{
    uint64_t users = 0;
    for (uint32_t i = 0; i < made->view.sample_count; i++)
        for (uint32_t k = made->offsets[i]; k < made->offsets[i + 1]; k++)
            if (made->lookups[k] == distinct)
                users |= rt_bit(worker_of_sample[i]);
    return users;
}
