#include "tests/support/plan_checker.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/plan_checker_parts.h"

bool plan_check_wrong(plan_checker *c, uint64_t key, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    rt_fail(c->error, RT_DATA, "iteration %" PRIu32 ", worker %" PRIu32 ", key %" PRIx64 ": %s",
            c->iteration, c->worker, key, text);
    return false;
}

// ---- keys ------------------------------------------------------------------------------------

static uint32_t *table_place(const plan_checker *c, uint64_t key)
{
    uint32_t at = (uint32_t)(rt_mix(~key) & (c->table_size - 1));
    while (c->table[at] && c->keys[c->table[at] - 1].key != key)
        at = (at + 1) & (c->table_size - 1);
    return &c->table[at];
}

static void grow_table(plan_checker *c)
{
    uint32_t size = c->table_size ? c->table_size * 2 : 1024;
    rt_free(c->table);
    c->table = rt_alloc(size, sizeof *c->table);
    rt_assert(c->table != NULL);
    c->table_size = size;
    for (uint32_t i = 0; i < c->key_count; i++)
        *table_place(c, c->keys[i].key) = i + 1;
}

uint64_t plan_check_initial(uint64_t key)
{
    return rt_mix(key + UINT64_C(0x1717));
}

// The number of a key; a new one is unborn.
uint32_t plan_check_number(plan_checker *c, uint64_t key)
{
    if ((c->key_count + 1) * 2 > c->table_size)
        grow_table(c);
    uint32_t *place = table_place(c, key);
    if (*place)
        return *place - 1;
    uint32_t number = c->key_count++;
    size_t slots = c->config.worker_count * sizeof(uint32_t);
    rt_status status = rt_grow(&c->keys, &c->key_capacity, c->key_count, sizeof *c->keys);
    rt_assert(!status);
    status = rt_grow(&c->slot_of, &c->slot_of_capacity, c->key_count, slots);
    rt_assert(!status);
    c->keys[number] = (known_key){.key = key, .content = plan_check_initial(key)};
    *place = number + 1;
    return number;
}

// ---- before and after the slices ----------------------------------------------------------------

static void touch(plan_checker *c, uint32_t sample)
{
    for (uint32_t k = c->batch->key_offsets[sample]; k < c->batch->key_offsets[sample + 1]; k++) {
        uint32_t number = plan_check_number(c, c->batch->keys[k]);
        known_key *key = &c->keys[number];
        if (key->iteration != c->iteration) {
            key->iteration = c->iteration;
            key->trainers = key->arrived = 0;
            key->batch_sum = key->gradient_sum = 0;
            key->summer = key->summed = 0;
            key->pulled = key->update_pushed = false;
            c->touched[c->touched_count++] = number;
        }
        key->trainers |= rt_bit(c->worker);
        key->batch_sum += plan_check_gradient(c->iteration, sample);
    }
}

// Workers that sit out have no samples, the others equal shares, or what the bounds allow.
static bool check_share(plan_checker *c, uint32_t sample_count)
{
    const uint32_t n = rt_bit_count(c->participants), total = c->batch->sample_count;
    const uint32_t number = rt_bits_under(c->participants, c->worker);
    uint32_t least = total / n + (number < total % n), most = least;
    if (!(c->participants >> c->worker & 1))
        return sample_count == 0 || plan_check_wrong(c, 0, "it sits out, and has samples");
    if (c->config.micro_batch_max) {
        least = (uint32_t)rt_min_u64(least, c->config.micro_batch_min);
        most = (uint32_t)rt_max_u64(most, c->config.micro_batch_max);
    }
    if (sample_count < least || sample_count > most)
        return plan_check_wrong(c, 0, "%" PRIu32 " samples, allowed are %" PRIu32 " to %" PRIu32,
                                sample_count, least, most);
    return true;
}

// Every sample is placed once, ascending within a slice, and every worker gets its share.
static bool check_placement(plan_checker *c, const dp_plan *plan)
{
    uint32_t n = c->config.worker_count, placed = 0, total = c->batch->sample_count;
    rt_status status = rt_grow(&c->placed, &c->placed_capacity, total, sizeof *c->placed);
    rt_assert(!status);
    status = rt_grow(&c->touched, &c->touched_capacity, c->batch->key_count, sizeof *c->touched);
    rt_assert(!status);
    memset(c->placed, 0, total);
    c->touched_count = 0;
    for (c->worker = 0; c->worker < n; c->worker++) {
        const dp_slice *slice = &plan->slices[c->worker];
        if (!check_share(c, slice->sample_count))
            return false;
        for (uint32_t i = 0; i < slice->sample_count; i++) {
            uint32_t sample = slice->samples[i];
            if (sample >= total || c->placed[sample]++)
                return plan_check_wrong(
                    c, 0, "sample %" PRIu32 " placed twice, or not in the batch", sample);
            if (i > 0 && sample <= slice->samples[i - 1])
                return plan_check_wrong(c, 0, "samples do not ascend");
            touch(c, sample);
        }
        placed += slice->sample_count;
    }
    return placed == total ||
           plan_check_wrong(c, 0, "%" PRIu32 " of %" PRIu32 " samples", placed, total);
}

// Copies of other workers have an older version now.
static void outdate(plan_checker *c, known_key *key, uint64_t holders)
{
    uint32_t number = (uint32_t)(key - c->keys), worker = c->worker;
    for (uint64_t rest = key->holders & ~holders; rest; rest &= rest - 1) {
        c->worker = rt_lowest_bit(rest);
        if (*plan_check_slot(c, number))
            c->slots[c->worker][*plan_check_slot(c, number) - 1].stale = true;
    }
    c->worker = worker;
    key->holders = holders;
}

static bool finish_sum(plan_checker *c, known_key *key)
{
    if (key->arrived != key->trainers)
        return plan_check_wrong(c, key->key, "gradients of %" PRIx64 " of %" PRIx64, key->arrived,
                                key->trainers);
    if (key->version > 0 && key->stored != key->version)
        return plan_check_wrong(c, key->key, "the sum waits for ever for its base %" PRIu32,
                                key->version);
    if (!key->known)
        key->content_ps = plan_check_initial(key->key);
    key->known = true;
    key->content_ps = plan_check_stepped(key->content_ps, key->gradient_sum);
    key->stored = key->version_ps = key->version = c->iteration;
    outdate(c, key, 0);
    return true;
}

// The worker that sums has the row with all gradients, the PS what it had.
static bool finish_reduced(plan_checker *c, known_key *key)
{
    const uint32_t worker = rt_lowest_bit(key->summer), number = (uint32_t)(key - c->keys);
    const uint64_t others = key->trainers & ~key->summer;
    c->worker = worker;
    model_slot *slot = &c->slots[worker][*plan_check_slot(c, number) - 1];
    if (key->arrived != others || key->summed != others)
        return plan_check_wrong(c, key->key, "gradients of %" PRIx64 " sent, %" PRIx64 " summed",
                                key->arrived, key->summed);
    slot->content = plan_check_stepped(slot->content, key->gradient_sum);
    slot->version = key->version = c->iteration;
    outdate(c, key, key->summer);
    return true;
}

static bool finish_key(plan_checker *c, known_key *key)
{
    bool summed = plan_check_is_summed(c, key);
    if (key->update_pushed && !key->pulled && !summed && !c->config.full_sync)
        return plan_check_wrong(c, key->key, "an update push that nobody needs");
    if (key->trainers & ~key->holders)
        return plan_check_wrong(c, key->key, "trained by %" PRIx64 ", held by %" PRIx64,
                                key->trainers, key->holders);
    key->content = plan_check_stepped(key->content, key->batch_sum);
    if (key->summer)
        return finish_reduced(c, key);
    if (summed)
        return finish_sum(c, key);
    outdate(c, key, key->trainers);
    key->version = c->iteration;
    return true;
}

// The latest version of a key is somewhere.
static bool check_kept(plan_checker *c)
{
    for (uint32_t i = 0; i < c->key_count; i++) {
        const known_key *key = &c->keys[i];
        if (key->holders == 0 && key->version_ps != key->version)
            return plan_check_wrong(c, key->key, "version %" PRIu32 " is lost", key->version);
        if (key->stored != key->version_ps)
            return plan_check_wrong(c, key->key, "the PS has version %" PRIu32 ", planned %" PRIu32,
                                    key->stored, key->version_ps);
        if (key->version > 0 && key->stored == key->version && key->content_ps != key->content)
            return plan_check_wrong(c, key->key, "the PS lacks updates in version %" PRIu32,
                                    key->version);
    }
    return true;
}

static bool run_slices(plan_checker *c, const dp_plan *plan)
{
    uint32_t n = c->config.worker_count;
    for (c->worker = 0; c->worker < n; c->worker++) {
        if (!plan_check_release(c, &plan->slices[c->worker].release))
            return false;
    }
    for (c->worker = 0; c->worker < n; c->worker++) {
        const dp_slice *slice = &plan->slices[c->worker];
        if (!plan_check_fill(c, &slice->fill) || !plan_check_evictions(c, &slice->release))
            return false;
    }
    for (c->worker = 0; c->worker < n; c->worker++) {
        if (!plan_check_train(c, &plan->slices[c->worker]))
            return false;
    }
    for (c->worker = 0; c->worker < n; c->worker++) {
        if (!plan_check_after(c, &plan->slices[c->worker].after))
            return false;
    }
    return true;
}

bool plan_checker_step(plan_checker *c, const rt_batch *batch, const dp_plan *plan, rt_error *error)
{
    c->participants = plan->participants;
    c->error = error;
    c->batch = batch;
    c->worker = 0;
    uint32_t last = c->iteration;
    c->iteration = plan->iteration;
    if (plan->iteration != last + 1 || plan->worker_count != c->config.worker_count ||
        plan->sample_count != batch->sample_count)
        return plan_check_wrong(
            c, 0, "a plan of iteration %" PRIu32 " after %" PRIu32 ", %" PRIu32 " samples",
            plan->iteration, last, plan->sample_count);
    if (!check_placement(c, plan) || !run_slices(c, plan))
        return false;
    c->worker = 0;
    for (uint32_t i = 0; i < c->touched_count; i++) {
        if (!finish_key(c, &c->keys[c->touched[i]]))
            return false;
    }
    return check_kept(c);
}

bool plan_checker_flush(plan_checker *c, const dp_plan *plan, rt_error *error)
{
    uint32_t iteration = c->iteration;
    bool right = true;
    c->error = error;
    c->iteration = 0;
    c->worker = 0;
    if (plan->iteration != 0 || plan->sample_count != 0)
        return plan_check_wrong(c, 0, "a flush of iteration %" PRIu32, plan->iteration);
    for (; right && c->worker < c->config.worker_count; c->worker++) {
        const dp_slice *slice = &plan->slices[c->worker];
        if (slice->sample_count || slice->lookup_count || slice->row_count || slice->fill.count ||
            slice->after.count)
            right = plan_check_wrong(c, 0, "a flush that does more than push");
        else
            right = plan_check_release(c, &slice->release);
    }
    for (uint32_t i = 0; right && i < c->key_count; i++) {
        if (c->keys[i].version_ps != c->keys[i].version)
            right = plan_check_wrong(c, c->keys[i].key, "not flushed");
    }
    right = right && check_kept(c);
    c->iteration = iteration;
    return right;
}

plan_checker *plan_checker_create(const plan_checker_config *config)
{
    plan_checker *c = rt_alloc(1, sizeof *c);
    rt_assert(c != NULL);
    c->config = *config;
    for (uint32_t w = 0; w < config->worker_count; w++) {
        c->slots[w] = rt_alloc(config->slot_count[w], sizeof *c->slots[w]);
        rt_assert(c->slots[w] != NULL);
    }
    return c;
}

void plan_checker_destroy(plan_checker *c)
{
    if (!c)
        return;
    for (uint32_t w = 0; w < c->config.worker_count; w++)
        rt_free(c->slots[w]);
    rt_free(c->keys);
    rt_free(c->slot_of);
    rt_free(c->table);
    rt_free(c->touched);
    rt_free(c->placed);
    rt_free(c);
}

plan_checker_key plan_checker_find(const plan_checker *c, uint64_t key)
{
    uint32_t place = c->table_size ? *table_place(c, key) : 0;
    if (!place)
        return (plan_checker_key){0};
    const known_key *known = &c->keys[place - 1];
    return (plan_checker_key){known->holders, known->version, known->version_ps};
}

uint32_t plan_checker_key_count(const plan_checker *c)
{
    return c->key_count;
}

uint64_t plan_checker_key_at(const plan_checker *c, uint32_t index)
{
    return c->keys[index].key;
}
