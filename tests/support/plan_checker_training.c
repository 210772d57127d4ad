// What a slice trains, and what it tells the PS of it.
#include "tests/support/plan_checker_parts.h"

#include <inttypes.h>

// ---- training --------------------------------------------------------------------------------

// Gradients of several workers are added up.
static bool check_mode(plan_checker *c, known_key *key, const model_slot *slot, uint32_t mode)
{
    const bool grad = mode == DP_MODE_GRAD || (mode == DP_MODE_REDUCE && c->config.reduce);
    if ((!grad && mode != DP_MODE_OWN) || grad != plan_check_is_summed(c, key))
        return plan_check_wrong(c, key->key, "mode %" PRIu32 ", but %" PRIu32 " workers train it",
                                mode, rt_bit_count(key->trainers));
    if (mode != DP_MODE_GRAD && !slot->has_state)
        return plan_check_wrong(c, key->key, "mode %" PRIu32 " without optimizer state", mode);
    if (mode == DP_MODE_REDUCE && key->summer)
        return plan_check_wrong(c, key->key, "summed by two workers");
    if (mode == DP_MODE_REDUCE)
        key->summer = rt_bit(c->worker);
    return true;
}

static bool check_row(plan_checker *c, const dp_row *row)
{
    if (row->slot >= c->config.slot_count[c->worker])
        return plan_check_wrong(c, 0, "trains slot %" PRIu32, row->slot);
    model_slot *slot = &c->slots[c->worker][row->slot];
    if (!slot->key || slot->stale)
        return plan_check_wrong(c, 0, "trains slot %" PRIu32 ", which holds no current row",
                                row->slot);
    known_key *key = &c->keys[slot->key - 1];
    if (slot->trained == c->iteration)
        return plan_check_wrong(c, key->key, "slot %" PRIu32 " is two rows", row->slot);
    if (row->version != key->version || slot->version != key->version ||
        !(key->holders >> c->worker & 1))
        return plan_check_wrong(
            c, key->key, "trains version %" PRIu32 " in plan, %" PRIu32 " in slot, latest %" PRIu32,
            row->version, slot->version, key->version);
    if (slot->content != key->content)
        return plan_check_wrong(c, key->key, "the row of version %" PRIu32 " lacks updates",
                                row->version);
    if (!check_mode(c, key, slot, row->mode))
        return false;
    slot->trained = c->iteration;
    slot->gradient = 0;
    return true;
}

static bool add_sample(plan_checker *c, const dp_slice *slice, uint32_t sample, uint32_t *at)
{
    for (uint32_t k = c->batch->key_offsets[sample]; k < c->batch->key_offsets[sample + 1]; k++) {
        uint64_t key = c->batch->keys[k];
        if (*at >= slice->lookup_count || slice->lookup_rows[*at] >= slice->row_count)
            return plan_check_wrong(c, key, "look-up %" PRIu32 " of sample %" PRIu32 " is no row",
                                    *at, sample);
        model_slot *slot = &c->slots[c->worker][slice->rows[slice->lookup_rows[(*at)++]].slot];
        if (c->keys[slot->key - 1].key != key)
            return plan_check_wrong(c, key, "sample %" PRIu32 " is given the row of key %" PRIx64,
                                    sample, c->keys[slot->key - 1].key);
        slot->gradient += plan_check_gradient(c->iteration, sample);
    }
    return true;
}

bool plan_check_train(plan_checker *c, const dp_slice *slice)
{
    uint32_t lookups = 0;
    for (uint32_t r = 0; r < slice->row_count; r++) {
        if (!check_row(c, &slice->rows[r]))
            return false;
    }
    for (uint32_t i = 0; i < slice->sample_count; i++) {
        if (!add_sample(c, slice, slice->samples[i], &lookups))
            return false;
    }
    if (lookups != slice->lookup_count)
        return plan_check_wrong(c, 0, "%" PRIu32 " look-ups, %" PRIu32 " keys", slice->lookup_count,
                                lookups);
    for (uint32_t r = 0; r < slice->row_count; r++) {
        model_slot *slot = &c->slots[c->worker][slice->rows[r].slot];
        const known_key *key = &c->keys[slot->key - 1];
        if (slot->gradient == 0)
            return plan_check_wrong(c, key->key, "a row that no sample has");
        if (slice->rows[r].mode == DP_MODE_GRAD && slot->has_state && key->version > 0 &&
            slot->filled == c->iteration)
            return plan_check_wrong(c, key->key, "pulled with optimizer state for a gradient");
        if (slice->rows[r].mode != DP_MODE_OWN)
            continue;
        slot->content = plan_check_stepped(slot->content, slot->gradient);
        slot->version = c->iteration;
    }
    return true;
}

// What PUSH_GRAD, REDUCE and SUM have in common; NULL: reported.
static model_slot *trained_slot(plan_checker *c, const dp_op *op, known_key **key_p)
{
    model_slot *slot = plan_check_held(c, op, key_p);
    if (!slot)
        return NULL;
    const known_key *key = *key_p;
    uint32_t peer = DP_NO_WORKER;
    bool right = false;
    if (op->kind == DP_OP_REDUCE && key->summer)
        peer = rt_lowest_bit(key->summer);
    else if (op->kind == DP_OP_SUM) // any other trainer, each once
        peer = op->peer;
    if (slot->trained != c->iteration || op->version != c->iteration)
        plan_check_wrong(c, op->key, "gradient of iteration %" PRIu32, op->version);
    else if (!plan_check_is_summed(c, key) || op->mask != key->trainers)
        plan_check_wrong(c, op->key, "gradient for a sum of %" PRIx64 ", trained by %" PRIx64,
                         op->mask, key->trainers);
    else if (op->base != key->version)
        plan_check_wrong(c, op->key, "gradient on base %" PRIu32 ", latest %" PRIu32, op->base,
                         key->version);
    else if (op->peer != peer)
        plan_check_wrong(c, op->key, "for worker %u, by the rows %" PRIu32, op->peer, peer);
    else
        right = true;
    return right ? slot : NULL;
}

// A gradient goes to who sums: the copy that it was made with has it alone, and is outdated.
static void gradient_leaves(const plan_checker *c, known_key *key, model_slot *slot)
{
    key->arrived |= rt_bit(c->worker);
    key->gradient_sum += slot->gradient;
    slot->stale = true;
}

static bool check_push_grad(plan_checker *c, const dp_op *op)
{
    known_key *key;
    model_slot *slot = trained_slot(c, op, &key);
    if (!slot)
        return false;
    if (key->summer)
        return plan_check_wrong(c, op->key, "PUSH_GRAD of a row that a worker sums");
    if (key->version_ps != key->version)
        return plan_check_wrong(c, op->key, "PUSH_GRAD on base %" PRIu32 ", the PS has %" PRIu32,
                                op->base, key->version_ps);
    if (key->arrived >> c->worker & 1)
        return plan_check_wrong(c, op->key, "PUSH_GRAD twice");
    gradient_leaves(c, key, slot);
    return true;
}

static bool check_reduce(plan_checker *c, const dp_op *op)
{
    known_key *key;
    model_slot *slot = trained_slot(c, op, &key);
    if (!slot)
        return false;
    if (!key->summer || key->summer == rt_bit(c->worker) || key->arrived >> c->worker & 1)
        return plan_check_wrong(c, op->key, "REDUCE twice, or by the worker that sums");
    gradient_leaves(c, key, slot);
    return true;
}

static bool check_sum(plan_checker *c, const dp_op *op)
{
    known_key *key;
    model_slot *slot = trained_slot(c, op, &key);
    if (!slot)
        return false;
    if (key->summer != rt_bit(c->worker) || op->peer >= c->config.worker_count ||
        !((key->trainers & ~key->summer & ~key->summed) >> op->peer & 1))
        return plan_check_wrong(c, op->key, "SUM of the gradient of %u, trained by %" PRIx64,
                                op->peer, key->trainers);
    key->gradient_sum += key->summed ? 0 : slot->gradient;
    key->summed |= rt_bit(op->peer);
    return true;
}

bool plan_check_after(plan_checker *c, const dp_ops *ops)
{
    for (uint32_t i = 0; i < ops->count; i++) {
        const dp_op *op = &ops->items[i];
        bool right = op->kind == DP_OP_PUSH_GRAD ? check_push_grad(c, op)
                     : op->kind == DP_OP_REDUCE  ? check_reduce(c, op)
                     : op->kind == DP_OP_SUM
                         ? check_sum(c, op)
                         : plan_check_wrong(c, op->key, "operation %u after training", op->kind);
        if (!right)
            return false;
    }
    return true;
}
