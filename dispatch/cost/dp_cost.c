#include "dispatch/cost/dp_view.h"

#include <string.h>

// Per sample: start from "pull everything everywhere"; then every key that somebody holds takes its
// pull (and, if dirty, the pushes that all others would cause) off the holders' columns. One byte
// per look-up decides, so a batch costs O(look-ups + samples x workers), and a pass over the
// workers for keys with several holders.

// Samples of one thread: [begin, end).
typedef struct {
    uint32_t begin, end;
} sample_range;

#define GROUP 4u // workers that one step of a loop takes on

typedef int32_t quad __attribute__((vector_size(16), may_alias));
_Static_assert(sizeof(quad) == GROUP * sizeof(int32_t), "one vector per group");

// What one key with several holders changes in the row of a sample that has it, by worker. Popular
// keys are in many samples of a batch, so the last ones stay here: key d at place d modulo count.
// Tables by worker have RT_WORKERS_MAX members, a multiple of GROUP, so that a sum may run past the
// last worker.
#define KEPT_KEYS 2048u
#define KEPT_GROUPS 4096u // 64 KB

typedef struct {
    uint32_t groups; // of a row
    uint32_t mask;   // places - 1
    const quad *all; // of every distinct key, where there is room for them: nothing is kept here
    uint32_t key[KEPT_KEYS]; // 1 + index of the distinct key; 0: none
    quad change[KEPT_GROUPS];
} kept_changes;

static uint32_t groups_of(const dp_view *view)
{
    return (view->worker_count + GROUP - 1) / GROUP;
}

static void forget_changes(const dp_view *view, kept_changes *kept)
{
    kept->groups = groups_of(view);
    kept->all = (const quad *)view->changes;
    if (kept->all)
        return;
    kept->mask = KEPT_KEYS - 1;
    while ((kept->mask + 1) * kept->groups > KEPT_GROUPS)
        kept->mask /= 2;
    memset(kept->key, 0, sizeof kept->key);
}

// All ones where bit k of bits is set: popular keys are held by many workers, and a loop over the
// bits of a mask costs more than all the additions.
static inline quad lanes_of(uint64_t bits)
{
    const int32_t four = (int32_t)(bits & ((1u << GROUP) - 1));
    const quad bit = {1, 2, 4, 8};
    const quad spread = {four, four, four, four};
    return (spread & bit) == bit;
}

static inline quad load(const int32_t *from)
{
    quad value;
    memcpy(&value, from, sizeof value);
    return value;
}

static void find_change(const dp_view *view, const dp_distinct *key, quad *change)
{
    const int32_t *pull = view->ticks->pull[key->field];
    const int32_t *push = view->ticks->push[key->field];
    const uint32_t n = view->worker_count;
    quad sums = {0};
    for (uint32_t j = 0; j < n && key->dirty; j += GROUP)
        sums += load(push + j) & lanes_of(key->holders >> j);
    const int32_t pushes = sums[0] + sums[1] + sums[2] + sums[3];
    for (uint32_t j = 0; j < n; j += GROUP)
        change[j / GROUP] = pushes - ((load(pull + j) + pushes) & lanes_of(key->holders >> j));
}

static inline const quad *change_of(const dp_view *view, uint32_t index, kept_changes *kept)
{
    const uint32_t at = index & kept->mask;
    quad *change = kept->change + at * kept->groups;
    if (RT_UNLIKELY(kept->key[at] != index + 1)) {
        find_change(view, &view->distinct[index], change);
        kept->key[at] = index + 1;
    }
    return change;
}

// Adds to row, whole groups of it. Few groups are summed up in registers, for which the compiler
// must know how many there are.
static inline __attribute__((always_inline)) void add_keys(const dp_view *view, uint32_t begin,
                                                           uint32_t end, kept_changes *kept,
                                                           uint32_t groups, quad *row)
{
    const dp_ticks *ticks = view->ticks;
    int32_t *by_worker = (int32_t *)row;
    int32_t everywhere = 0;
    quad sums[RT_WORKERS_MAX / GROUP];
    for (uint32_t g = 0; g < groups; g++)
        sums[g] = (quad){0};
    for (uint32_t k = begin; k < end; k++) {
        uint32_t index = view->lookups[k];
        uint32_t held = view->held[index];
        if (held == DP_HELD_BY_MANY) {
            const quad *change = change_of(view, index, kept);
            for (uint32_t g = 0; g < groups; g++)
                sums[g] += change[g];
        } else if (held != DP_HELD_BY_NONE) {
            uint32_t field = view->uniform ? k - begin : view->distinct[index].field;
            uint32_t owner = held & DP_HELD_WORKER;
            int32_t push = held & DP_HELD_CLEAN ? 0 : ticks->push[field][owner];
            everywhere += push;
            by_worker[owner] -= push + ticks->pull[field][owner];
        }
    }
    for (uint32_t g = 0; g < groups; g++)
        row[g] += sums[g] + everywhere;
}

// The same where the changes of all keys are at hand: no branch depends on who holds a key.
static inline __attribute__((always_inline)) void add_changes(const dp_view *view, uint32_t begin,
                                                              uint32_t end, const quad *all,
                                                              uint32_t groups, quad *row)
{
    quad sums[DP_COST_WORKERS_MAX / GROUP];
    for (uint32_t g = 0; g < groups; g++)
        sums[g] = row[g];
    for (uint32_t k = begin; k < end; k++) {
        const quad *change = all + (size_t)view->lookups[k] * groups;
        for (uint32_t g = 0; g < groups; g++)
            sums[g] += change[g];
    }
    for (uint32_t g = 0; g < groups; g++)
        row[g] = sums[g];
}

static void sample_row(const dp_view *view, uint32_t begin, uint32_t end, kept_changes *kept,
                       quad *row)
{
    if (kept->all && kept->groups == 1)
        add_changes(view, begin, end, kept->all, 1, row);
    else if (kept->all && kept->groups == 2)
        add_changes(view, begin, end, kept->all, 2, row);
    else if (kept->all)
        add_changes(view, begin, end, kept->all, kept->groups, row);
    else if (kept->groups == 1)
        add_keys(view, begin, end, kept, 1, row);
    else if (kept->groups == 2)
        add_keys(view, begin, end, kept, 2, row);
    else
        add_keys(view, begin, end, kept, kept->groups, row);
}

// Bounded staleness: a worker pushes the copy that it has before it pulls it anew.
static void add_owed(const dp_view *view, uint32_t begin, uint32_t end, int32_t *row)
{
    for (uint32_t k = begin; k < end; k++) {
        const uint32_t index = view->lookups[k];
        const int32_t *push = view->ticks->push[view->distinct[index].field];
        for (uint64_t rest = view->owed[index]; rest; rest &= rest - 1)
            row[rt_lowest_bit(rest)] += push[rt_lowest_bit(rest)];
    }
}

// Where boxes are told, what a row costs depends on where it is, too.
static void add_key_on_box(const dp_view *view, uint32_t index, int32_t *row)
{
    const dp_ticks *ticks = view->ticks;
    const dp_distinct *key = &view->distinct[index];
    int32_t pushes = 0;
    for (uint64_t rest = key->dirty ? key->holders : 0; rest; rest &= rest - 1)
        pushes += dp_box_push(ticks, key->field, key->box, rt_lowest_bit(rest));
    for (uint32_t j = 0; j < view->worker_count; j++) {
        if (!(key->holders >> j & 1))
            row[j] += dp_box_pull(ticks, key->field, key->box, j) + pushes;
        if (view->owed && view->owed[index] >> j & 1)
            row[j] += dp_box_push(ticks, key->field, key->box, j);
    }
}

static void cost_on_boxes(const dp_view *view, sample_range samples, int32_t *cost, uint32_t stride)
{
    for (uint32_t i = samples.begin; i < samples.end; i++) {
        int32_t *row = cost + (size_t)i * stride;
        memset(row, 0, view->worker_count * sizeof *row);
        for (uint32_t k = view->offsets[i]; k < view->offsets[i + 1]; k++)
            add_key_on_box(view, view->lookups[k], row);
    }
}

// A row that another worker trains next will be pushed, and pulled there.
static void add_next(const dp_view *view, sample_range samples, int32_t *cost, uint32_t stride)
{
    for (uint32_t i = samples.begin; i < samples.end; i++) {
        int32_t *row = cost + (size_t)i * stride;
        for (uint32_t k = view->offsets[i]; k < view->offsets[i + 1]; k++) {
            const uint32_t next = view->next[view->lookups[k]];
            const uint32_t field = view->distinct[view->lookups[k]].field;
            if (next == DP_NO_NEXT)
                continue;
            const int32_t *push = view->ticks->push[field];
            const int32_t pull = view->ticks->pull[field][next];
            for (uint32_t j = 0; j < view->worker_count; j++)
                row[j] += j == next ? 0 : push[j] + pull;
        }
    }
}

static void cost_on_links(const dp_view *view, sample_range samples, int32_t *cost, uint32_t stride)
{
    const dp_ticks *ticks = view->ticks;
    uint32_t n = view->worker_count;
    int32_t base[RT_WORKERS_MAX] = {0};
    kept_changes kept;
    forget_changes(view, &kept);
    for (uint32_t f = 0; f < ticks->field_count; f++) {
        for (uint32_t j = 0; j < n; j++)
            base[j] += ticks->pull[f][j];
    }
    for (uint32_t i = samples.begin; i < samples.end; i++) {
        quad row[RT_WORKERS_MAX / GROUP];
        int32_t *by_worker = (int32_t *)row;
        uint32_t begin = view->offsets[i], end = view->offsets[i + 1];
        if (view->uniform) {
            memcpy(row, base, kept.groups * sizeof *row);
        } else {
            memset(row, 0, kept.groups * sizeof *row);
            for (uint32_t k = begin; k < end; k++) {
                const int32_t *pull = ticks->pull[view->distinct[view->lookups[k]].field];
                for (uint32_t j = 0; j < n; j++)
                    by_worker[j] += pull[j];
            }
        }
        sample_row(view, begin, end, &kept, row);
        if (view->owed)
            add_owed(view, begin, end, by_worker);
        memcpy(cost + (size_t)i * stride, row, n * sizeof *cost);
    }
}

typedef struct {
    const dp_view *view;
    int32_t *cost;
    uint32_t stride, part_count;
} matrix;

static void fill_part(void *context, uint32_t part)
{
    const matrix *m = context;
    const uint64_t count = m->view->sample_count;
    const sample_range samples = {(uint32_t)(count * part / m->part_count),
                                  (uint32_t)(count * (part + 1) / m->part_count)};
    if (m->view->ticks->box_count)
        cost_on_boxes(m->view, samples, m->cost, m->stride);
    else
        cost_on_links(m->view, samples, m->cost, m->stride);
    if (m->view->next)
        add_next(m->view, samples, m->cost, m->stride);
}

static void find_changes(void *context, uint32_t part)
{
    const matrix *m = context;
    const uint32_t groups = groups_of(m->view);
    const uint64_t count = m->view->distinct_count;
    const uint32_t end = (uint32_t)(count * (part + 1) / m->part_count);
    quad *all = (quad *)m->view->changes;
    for (uint32_t d = (uint32_t)(count * part / m->part_count); d < end; d++) {
        if (m->view->held[d] == DP_HELD_BY_NONE)
            memset(all + (size_t)d * groups, 0, groups * sizeof *all);
        else
            find_change(m->view, &m->view->distinct[d], all + (size_t)d * groups);
    }
}

void dp_cost_matrix(const dp_view *view, int32_t *cost, uint32_t stride)
{
    matrix m = {view, cost, stride, rt_pool_threads(view->pool)};
    rt_assert(!view->changes || view->worker_count <= DP_COST_WORKERS_MAX);
    if (view->changes && !view->ticks->box_count)
        rt_pool_run(view->pool, m.part_count, find_changes, &m);
    rt_pool_run(view->pool, m.part_count, fill_part, &m);
}
