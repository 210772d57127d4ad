#include "tests/support/plan_checker.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/rt_hash.h"

typedef struct {
    uint64_t key;
    uint64_t holders;     // H: workers whose copy has version L
    uint32_t version;     // L
    uint32_t version_ps;  // P
    uint64_t content;     // that version L must have
    uint64_t content_ps;  // that the PS has, of version stored
    uint32_t stored;      // version at the PS
    bool known;           // to the PS
    uint32_t row_pushed;  // last version that came as a row
    uint32_t pending;     // iteration whose sum its only holder still has to pull, or 0
    uint64_t pending_sum; // of the other trainers' gradients

    // The iteration that is carried out.
    uint32_t iteration;
    uint64_t trainers;  // U
    uint64_t batch_sum; // of the gradients of all samples
    uint64_t arrived;   // workers whose gradient the PS has
    uint64_t gradient_sum;
    uint64_t keeper; // bit of the worker that keeps its gradient, or 0
    bool kept;       // it said so
    bool pulled, update_pushed;
    uint64_t sent_to, sent_content; // bit of the worker that a row is on its way to; or 0
    uint32_t sent_by;
} known_key;

typedef struct {
    uint32_t key; // number + 1; 0: free
    uint32_t version;
    uint64_t content;
    uint64_t gradient; // of the training that runs
    bool stale;        // a later version exists: the slot may be filled again
    bool has_state;
    uint32_t filled, evicted, trained; // last iteration in which it was
} model_slot;

struct plan_checker {
    uint64_t participants; // of the plan that is checked
    plan_checker_config config;
    model_slot *slots[RT_WORKERS_MAX];
    known_key *keys;
    uint32_t *slot_of; // key_capacity x worker_count: slot + 1 of a copy, stale or not
    uint32_t key_count, key_capacity, slot_of_capacity;
    uint32_t *table; // number + 1 of a key, by hash
    uint32_t table_size;
    uint32_t *touched; // keys of the batch
    uint32_t touched_count, touched_capacity;
    uint8_t *placed; // by sample
    uint32_t placed_capacity;

    // What is carried out at the moment.
    uint32_t iteration;
    uint32_t worker;
    const rt_batch *batch;
    rt_error *error;
};

static bool wrong(plan_checker *c, uint64_t key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool wrong(plan_checker *c, uint64_t key, const char *format, ...)
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

static uint64_t initial_content(uint64_t key)
{
    return rt_mix(key + UINT64_C(0x1717));
}

// The number of a key; a new one is unborn.
static uint32_t number_of(plan_checker *c, uint64_t key)
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
    c->keys[number] = (known_key){.key = key, .content = initial_content(key)};
    *place = number + 1;
    return number;
}

static uint32_t *slot_of(const plan_checker *c, uint32_t number)
{
    return &c->slot_of[(size_t)number * c->config.worker_count + c->worker];
}

// One optimizer step: depends on the row before and on the sum, not on the order of the sum.
static uint64_t stepped(uint64_t content, uint64_t gradient)
{
    return rt_mix(content + rt_mix(gradient));
}

static uint64_t sample_gradient(uint32_t iteration, uint32_t sample)
{
    return rt_mix((uint64_t)iteration << 32 | sample);
}

static bool is_summed(const plan_checker *c, const known_key *key)
{
    return rt_bit_count(key->trainers) > 1 || (key->trainers && c->config.always_summed);
}

// ---- release ---------------------------------------------------------------------------------

// The slot of an operation that needs the latest version of op->key in it; NULL: reported.
static model_slot *held_slot(plan_checker *c, const dp_op *op, known_key **key_p)
{
    uint32_t number = number_of(c, op->key);
    known_key *key = &c->keys[number];
    if (op->slot >= c->config.slot_count[c->worker]) {
        wrong(c, op->key, "operation %u on slot %" PRIu32 " of %" PRIu32, op->kind, op->slot,
              c->config.slot_count[c->worker]);
        return NULL;
    }
    model_slot *slot = &c->slots[c->worker][op->slot];
    if (slot->key != number + 1) {
        wrong(c, op->key, "operation %u: slot %" PRIu32 " does not hold it", op->kind, op->slot);
        return NULL;
    }
    *key_p = key;
    return slot;
}

static void free_slot(plan_checker *c, model_slot *slot)
{
    uint32_t number = slot->key - 1;
    *slot_of(c, number) = 0;
    c->keys[number].holders &= ~rt_bit(c->worker);
    slot->key = 0;
}

static bool check_push_row(plan_checker *c, const dp_op *op)
{
    known_key *key;
    model_slot *slot = held_slot(c, op, &key);
    if (!slot)
        return false;
    if (slot->stale || !(key->holders >> c->worker & 1))
        return wrong(c, op->key, "PUSH_ROW of a stale copy");
    if (key->pending)
        return wrong(c, op->key, "PUSH_ROW before the sum of %" PRIu32 " is in", key->pending);
    if (op->version != key->version)
        return wrong(c, op->key, "PUSH_ROW of version %" PRIu32 ", the latest is %" PRIu32,
                     op->version, key->version);
    if (key->version_ps >= key->version)
        return wrong(c, op->key, "PUSH_ROW, but the PS has version %" PRIu32, key->version_ps);
    if (key->row_pushed == key->version)
        return wrong(c, op->key, "version %" PRIu32 " is pushed twice", key->version);
    if (!slot->has_state || !(op->flags & DP_OP_STATE))
        return wrong(c, op->key, "PUSH_ROW without optimizer state");
    if (c->config.hand_over && op->reason == DP_REASON_UPDATE && key->iteration == c->iteration &&
        !is_summed(c, key) && !c->config.full_sync)
        return wrong(c, op->key, "PUSH_ROW for one trainer, who could be sent the row");
    if (op->reason == DP_REASON_UPDATE && key->iteration != c->iteration && !c->config.full_sync)
        return wrong(c, op->key, "an update push of a row that nobody trains");
    bool flush = op->reason == DP_REASON_FLUSH;
    const bool is_out = !(c->participants >> c->worker & 1);
    if (op->reason > DP_REASON_FLUSH || (flush && c->iteration != 0 && !is_out) ||
        (!flush && c->iteration == 0 && !c->config.full_sync))
        return wrong(c, op->key, "PUSH_ROW for reason %u", op->reason);
    if (op->reason == DP_REASON_EVICT && key->holders != rt_bit(c->worker))
        return wrong(c, op->key, "evict push, but %" PRIx64 " hold it", key->holders);
    key->row_pushed = key->version_ps = key->stored = key->version;
    key->content_ps = slot->content;
    key->known = true;
    key->update_pushed |= op->reason == DP_REASON_UPDATE;
    if (op->reason != DP_REASON_EVICT)
        return true;
    slot->evicted = c->iteration;
    free_slot(c, slot);
    return true;
}

static bool check_drop(plan_checker *c, const dp_op *op)
{
    known_key *key;
    model_slot *slot = held_slot(c, op, &key);
    if (!slot)
        return false;
    bool others = key->holders & ~rt_bit(c->worker);
    if (key->pending && !slot->stale)
        return wrong(c, op->key, "DROP before the sum of %" PRIu32 " is in", key->pending);
    if (!slot->stale && !others && key->version_ps != key->version)
        return wrong(c, op->key, "DROP of the only copy of version %" PRIu32 " (PS: %" PRIu32 ")",
                     key->version, key->version_ps);
    free_slot(c, slot);
    return true;
}

// One worker has the only copy of what the PS lacks, another one alone trains it.
static bool check_send(plan_checker *c, const dp_op *op)
{
    known_key *key;
    model_slot *slot = held_slot(c, op, &key);
    if (!slot)
        return false;
    if (slot->stale || key->holders != rt_bit(c->worker) || key->pending)
        return wrong(c, op->key, "SEND of a copy that is not the only latest one");
    if (op->version != key->version || key->version_ps >= key->version)
        return wrong(c, op->key, "SEND of version %" PRIu32 ", latest %" PRIu32 ", PS has %" PRIu32,
                     op->version, key->version, key->version_ps);
    if (!slot->has_state || !(op->flags & DP_OP_STATE))
        return wrong(c, op->key, "SEND without optimizer state");
    if (!c->config.hand_over || key->iteration != c->iteration || op->keeper == c->worker ||
        op->keeper >= c->config.worker_count || key->trainers != rt_bit(op->keeper))
        return wrong(c, op->key, "SEND to %u, trained by %" PRIx64, op->keeper, key->trainers);
    key->sent_to = rt_bit(op->keeper);
    key->sent_by = c->worker;
    key->sent_content = slot->content;
    free_slot(c, slot);
    return true;
}

static bool run_release(plan_checker *c, const dp_ops *ops)
{
    for (uint32_t i = 0; i < ops->count; i++) {
        const dp_op *op = &ops->items[i];
        bool right = op->kind == DP_OP_PUSH_ROW ? check_push_row(c, op)
                     : op->kind == DP_OP_SEND
                         ? check_send(c, op)
                     : op->kind == DP_OP_DROP
                         ? check_drop(c, op)
                         : wrong(c, op->key, "release has operation %u", op->kind);
        if (!right)
            return false;
    }
    return true;
}

// ---- fill ------------------------------------------------------------------------------------

// Takes the slot for a row that arrives; NULL: reported.
static model_slot *fill_slot(plan_checker *c, const dp_op *op, uint32_t number)
{
    if (op->slot >= c->config.slot_count[c->worker]) {
        wrong(c, op->key, "fills slot %" PRIu32 " of %" PRIu32, op->slot,
              c->config.slot_count[c->worker]);
        return NULL;
    }
    model_slot *slot = &c->slots[c->worker][op->slot];
    if (slot->key && !slot->stale) {
        wrong(c, op->key, "fills slot %" PRIu32 ", which holds key %" PRIx64, op->slot,
              c->keys[slot->key - 1].key);
        return NULL;
    }
    if (slot->filled == c->iteration) {
        wrong(c, op->key, "fills slot %" PRIu32 " twice", op->slot);
        return NULL;
    }
    if (slot->key && *slot_of(c, slot->key - 1) == op->slot + 1)
        *slot_of(c, slot->key - 1) = 0;
    known_key *key = &c->keys[number];
    *slot_of(c, number) = op->slot + 1;
    key->holders |= rt_bit(c->worker);
    slot->key = number + 1;
    slot->stale = false;
    slot->filled = c->iteration;
    return slot;
}

static bool check_pull(plan_checker *c, const dp_op *op)
{
    uint32_t number = number_of(c, op->key);
    known_key *key = &c->keys[number];
    if (op->version != key->version || key->version_ps != key->version)
        return wrong(c, op->key,
                     "PULL of version %" PRIu32 ", latest %" PRIu32 ", PS will have %" PRIu32,
                     op->version, key->version, key->version_ps);
    if (key->holders >> c->worker & 1)
        return wrong(c, op->key, "PULL, but the worker holds it");
    if (key->version == 0 && c->config.first_touch == RT_FIRST_TOUCH_LOCAL)
        return wrong(c, op->key, "PULL of a row never trained");
    if (key->version > 0 && (!key->known || key->stored != key->version))
        return wrong(c, op->key, "PULL waits for ever: the PS has version %" PRIu32, key->stored);
    if (!key->known) {
        key->known = true;
        key->content_ps = initial_content(op->key);
    }
    model_slot *slot = fill_slot(c, op, number);
    if (!slot)
        return false;
    key->pulled = true;
    slot->version = key->stored;
    slot->content = key->content_ps;
    slot->has_state = op->flags & DP_OP_STATE;
    return true;
}

static bool check_recv(plan_checker *c, const dp_op *op)
{
    uint32_t number = number_of(c, op->key);
    known_key *key = &c->keys[number];
    if (key->sent_to != rt_bit(c->worker) || key->sent_by != op->keeper ||
        op->version != key->version || !(op->flags & DP_OP_STATE))
        return wrong(c, op->key, "RECV of version %" PRIu32 " from %u, sent to %" PRIx64,
                     op->version, op->keeper, key->sent_to);
    model_slot *slot = fill_slot(c, op, number);
    if (!slot)
        return false;
    key->sent_to = 0;
    slot->version = key->version;
    slot->content = key->sent_content;
    slot->has_state = true;
    return true;
}

static bool check_init(plan_checker *c, const dp_op *op)
{
    uint32_t number = number_of(c, op->key);
    known_key *key = &c->keys[number];
    if (key->version != 0 || key->known || op->version != 0)
        return wrong(c, op->key, "INIT of a row that has version %" PRIu32, key->version);
    if (key->holders >> c->worker & 1)
        return wrong(c, op->key, "INIT twice on one worker");
    if (c->config.first_touch != RT_FIRST_TOUCH_LOCAL)
        return wrong(c, op->key, "INIT, but first touches are pulled");
    model_slot *slot = fill_slot(c, op, number);
    if (!slot)
        return false;
    slot->version = 0;
    slot->content = initial_content(op->key);
    slot->has_state = true;
    return true;
}

static bool check_pull_sum(plan_checker *c, const dp_op *op)
{
    known_key *key;
    model_slot *slot = held_slot(c, op, &key);
    if (!slot)
        return false;
    if (key->pending == 0 || op->version != key->pending || slot->stale ||
        key->holders != rt_bit(c->worker))
        return wrong(c, op->key, "PULL_SUM of %" PRIu32 ", pending %" PRIu32 ", held by %" PRIx64,
                     op->version, key->pending, key->holders);
    slot->content = stepped(slot->content, slot->gradient + key->pending_sum);
    slot->version = key->pending;
    key->pending = 0; // the PS answers once and forgets
    return true;
}

static bool run_fill(plan_checker *c, const dp_ops *ops)
{
    for (uint32_t i = 0; i < ops->count; i++) {
        const dp_op *op = &ops->items[i];
        bool right = op->kind == DP_OP_PULL   ? check_pull(c, op)
                     : op->kind == DP_OP_INIT ? check_init(c, op)
                     : op->kind == DP_OP_RECV ? check_recv(c, op)
                     : op->kind == DP_OP_PULL_SUM
                         ? check_pull_sum(c, op)
                         : wrong(c, op->key, "fill has operation %u", op->kind);
        if (!right)
            return false;
    }
    return true;
}

// A slot is taken from its row because another row needs it, not for nothing.
static bool check_evictions(plan_checker *c, const dp_ops *ops)
{
    for (uint32_t i = 0; i < ops->count; i++) {
        const dp_op *op = &ops->items[i];
        bool evicted = op->kind == DP_OP_PUSH_ROW && op->reason == DP_REASON_EVICT;
        if (evicted && c->slots[c->worker][op->slot].filled != c->iteration)
            return wrong(c, op->key, "evicted from slot %" PRIu32 ", which stays empty", op->slot);
    }
    return true;
}

// ---- training --------------------------------------------------------------------------------

// Gradients of several workers are added up.
static bool check_mode(plan_checker *c, known_key *key, const model_slot *slot, uint32_t mode)
{
    bool grad = mode == DP_MODE_GRAD || mode == DP_MODE_KEEP;
    if (mode > DP_MODE_KEEP || grad != is_summed(c, key))
        return wrong(c, key->key, "mode %" PRIu32 ", but %" PRIu32 " workers train it", mode,
                     rt_bit_count(key->trainers));
    if (mode != DP_MODE_GRAD && !slot->has_state)
        return wrong(c, key->key, "mode %" PRIu32 " without optimizer state", mode);
    if (mode != DP_MODE_KEEP)
        return true;
    if (key->keeper)
        return wrong(c, key->key, "kept by two workers");
    key->keeper = rt_bit(c->worker);
    return true;
}

static bool check_row(plan_checker *c, const dp_row *row)
{
    if (row->slot >= c->config.slot_count[c->worker])
        return wrong(c, 0, "trains slot %" PRIu32, row->slot);
    model_slot *slot = &c->slots[c->worker][row->slot];
    if (!slot->key || slot->stale)
        return wrong(c, 0, "trains slot %" PRIu32 ", which holds no current row", row->slot);
    known_key *key = &c->keys[slot->key - 1];
    if (slot->trained == c->iteration)
        return wrong(c, key->key, "slot %" PRIu32 " is two rows", row->slot);
    if (row->version != key->version || slot->version != key->version ||
        !(key->holders >> c->worker & 1))
        return wrong(c, key->key,
                     "trains version %" PRIu32 " in plan, %" PRIu32 " in slot, latest %" PRIu32,
                     row->version, slot->version, key->version);
    if (slot->content != key->content)
        return wrong(c, key->key, "the row of version %" PRIu32 " lacks updates", row->version);
    if (key->pending)
        return wrong(c, key->key, "trained before the sum of %" PRIu32 " is in", key->pending);
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
            return wrong(c, key, "look-up %" PRIu32 " of sample %" PRIu32 " is no row", *at,
                         sample);
        model_slot *slot = &c->slots[c->worker][slice->rows[slice->lookup_rows[(*at)++]].slot];
        if (c->keys[slot->key - 1].key != key)
            return wrong(c, key, "sample %" PRIu32 " is given the row of key %" PRIx64, sample,
                         c->keys[slot->key - 1].key);
        slot->gradient += sample_gradient(c->iteration, sample);
    }
    return true;
}

static bool train(plan_checker *c, const dp_slice *slice)
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
        return wrong(c, 0, "%" PRIu32 " look-ups, %" PRIu32 " keys", slice->lookup_count, lookups);
    for (uint32_t r = 0; r < slice->row_count; r++) {
        model_slot *slot = &c->slots[c->worker][slice->rows[r].slot];
        const known_key *key = &c->keys[slot->key - 1];
        if (slot->gradient == 0)
            return wrong(c, key->key, "a row that no sample has");
        if (slice->rows[r].mode == DP_MODE_GRAD && slot->has_state && key->version > 0 &&
            slot->filled == c->iteration)
            return wrong(c, key->key, "pulled with optimizer state for a gradient");
        if (slice->rows[r].mode != DP_MODE_OWN)
            continue;
        slot->content = stepped(slot->content, slot->gradient);
        slot->version = c->iteration;
    }
    return true;
}

// What PUSH_GRAD and KEEP have in common; NULL: reported.
static model_slot *trained_slot(plan_checker *c, const dp_op *op, known_key **key_p)
{
    model_slot *slot = held_slot(c, op, key_p);
    if (!slot)
        return NULL;
    const known_key *key = *key_p;
    uint32_t keeper = key->keeper ? rt_lowest_bit(key->keeper) : DP_NO_KEEPER;
    bool right = false;
    if (slot->trained != c->iteration || op->version != c->iteration)
        wrong(c, op->key, "gradient of iteration %" PRIu32, op->version);
    else if (!is_summed(c, key) || op->mask != (key->trainers & ~key->keeper))
        wrong(c, op->key, "gradient for a sum of %" PRIx64 ", trained by %" PRIx64, op->mask,
              key->trainers);
    else if (op->base != key->version)
        wrong(c, op->key, "gradient on base %" PRIu32 ", latest %" PRIu32, op->base, key->version);
    else if (op->keeper != keeper)
        wrong(c, op->key, "keeper %u, by the rows %" PRIu32, op->keeper, keeper);
    else
        right = true;
    return right ? slot : NULL;
}

static bool check_push_grad(plan_checker *c, const dp_op *op)
{
    known_key *key;
    model_slot *slot = trained_slot(c, op, &key);
    if (!slot)
        return false;
    if (!key->keeper && key->version_ps != key->version)
        return wrong(c, op->key, "PUSH_GRAD on base %" PRIu32 ", the PS has %" PRIu32, op->base,
                     key->version_ps);
    if (key->arrived >> c->worker & 1 || key->keeper == rt_bit(c->worker))
        return wrong(c, op->key, "PUSH_GRAD twice, or by the keeper");
    key->arrived |= rt_bit(c->worker);
    key->gradient_sum += slot->gradient;
    slot->stale = true; // it has its own gradient only
    return true;
}

static bool check_keep(plan_checker *c, const dp_op *op)
{
    known_key *key;
    if (!trained_slot(c, op, &key))
        return false;
    if (key->keeper != rt_bit(c->worker) || key->kept)
        return wrong(c, op->key, "KEEP twice, or by another than the keeper");
    key->kept = true;
    return true;
}

static bool run_after(plan_checker *c, const dp_ops *ops)
{
    for (uint32_t i = 0; i < ops->count; i++) {
        const dp_op *op = &ops->items[i];
        bool right = op->kind == DP_OP_PUSH_GRAD ? check_push_grad(c, op)
                     : op->kind == DP_OP_KEEP
                         ? check_keep(c, op)
                         : wrong(c, op->key, "operation %u after training", op->kind);
        if (!right)
            return false;
    }
    return true;
}

// ---- before and after the slices ----------------------------------------------------------------

static void touch(plan_checker *c, uint32_t sample)
{
    for (uint32_t k = c->batch->key_offsets[sample]; k < c->batch->key_offsets[sample + 1]; k++) {
        uint32_t number = number_of(c, c->batch->keys[k]);
        known_key *key = &c->keys[number];
        if (key->iteration != c->iteration) {
            key->iteration = c->iteration;
            key->trainers = key->arrived = 0;
            key->batch_sum = key->gradient_sum = 0;
            key->keeper = 0;
            key->kept = key->pulled = key->update_pushed = false;
            c->touched[c->touched_count++] = number;
        }
        key->trainers |= rt_bit(c->worker);
        key->batch_sum += sample_gradient(c->iteration, sample);
    }
}

// Workers that sit out have no samples, the others equal shares, or what the bounds allow.
static bool check_share(plan_checker *c, uint32_t sample_count)
{
    const uint32_t n = rt_bit_count(c->participants), total = c->batch->sample_count;
    const uint32_t number = rt_bit_count(c->participants & (rt_bit(c->worker) - 1));
    uint32_t least = total / n + (number < total % n), most = least;
    if (!(c->participants >> c->worker & 1))
        return sample_count == 0 || wrong(c, 0, "it sits out, and has samples");
    if (c->config.micro_batch_max) {
        least = (uint32_t)rt_min_u64(least, c->config.micro_batch_min);
        most = (uint32_t)rt_max_u64(most, c->config.micro_batch_max);
    }
    if (sample_count < least || sample_count > most)
        return wrong(c, 0, "%" PRIu32 " samples, allowed are %" PRIu32 " to %" PRIu32, sample_count,
                     least, most);
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
                return wrong(c, 0, "sample %" PRIu32 " placed twice, or not in the batch", sample);
            if (i > 0 && sample <= slice->samples[i - 1])
                return wrong(c, 0, "samples do not ascend");
            touch(c, sample);
        }
        placed += slice->sample_count;
    }
    return placed == total || wrong(c, 0, "%" PRIu32 " of %" PRIu32 " samples", placed, total);
}

// Copies of other workers have an older version now.
static void outdate(plan_checker *c, known_key *key, uint64_t holders)
{
    uint32_t number = (uint32_t)(key - c->keys), worker = c->worker;
    for (uint64_t rest = key->holders & ~holders; rest; rest &= rest - 1) {
        c->worker = rt_lowest_bit(rest);
        if (*slot_of(c, number))
            c->slots[c->worker][*slot_of(c, number) - 1].stale = true;
    }
    c->worker = worker;
    key->holders = holders;
}

static bool finish_sum(plan_checker *c, known_key *key)
{
    if (key->arrived != (key->trainers & ~key->keeper))
        return wrong(c, key->key, "gradients of %" PRIx64 " of %" PRIx64, key->arrived,
                     key->trainers);
    if (key->keeper) {
        if (!key->kept)
            return wrong(c, key->key, "the keeper does not KEEP");
        outdate(c, key, key->keeper);
        key->version = key->pending = c->iteration;
        key->pending_sum = key->gradient_sum;
        return true;
    }
    if (key->version > 0 && key->stored != key->version)
        return wrong(c, key->key, "the sum waits for ever for its base %" PRIu32, key->version);
    if (!key->known)
        key->content_ps = initial_content(key->key);
    key->known = true;
    key->content_ps = stepped(key->content_ps, key->gradient_sum);
    key->stored = key->version_ps = key->version = c->iteration;
    outdate(c, key, 0);
    return true;
}

static bool finish_key(plan_checker *c, known_key *key)
{
    bool summed = is_summed(c, key);
    if (key->update_pushed && !key->pulled && !summed && !c->config.full_sync)
        return wrong(c, key->key, "an update push that nobody needs");
    if (key->trainers & ~key->holders)
        return wrong(c, key->key, "trained by %" PRIx64 ", held by %" PRIx64, key->trainers,
                     key->holders);
    key->content = stepped(key->content, key->batch_sum);
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
            return wrong(c, key->key, "version %" PRIu32 " is lost", key->version);
        if (key->stored != key->version_ps)
            return wrong(c, key->key, "the PS has version %" PRIu32 ", planned %" PRIu32,
                         key->stored, key->version_ps);
        if (key->version > 0 && key->stored == key->version && key->content_ps != key->content)
            return wrong(c, key->key, "the PS lacks updates in version %" PRIu32, key->version);
    }
    return true;
}

static bool run_slices(plan_checker *c, const dp_plan *plan)
{
    uint32_t n = c->config.worker_count;
    for (c->worker = 0; c->worker < n; c->worker++) {
        if (!run_release(c, &plan->slices[c->worker].release))
            return false;
    }
    for (c->worker = 0; c->worker < n; c->worker++) {
        const dp_slice *slice = &plan->slices[c->worker];
        if (!run_fill(c, &slice->fill) || !check_evictions(c, &slice->release))
            return false;
    }
    for (c->worker = 0; c->worker < n; c->worker++) {
        if (!train(c, &plan->slices[c->worker]))
            return false;
    }
    for (c->worker = 0; c->worker < n; c->worker++) {
        if (!run_after(c, &plan->slices[c->worker].after))
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
        return wrong(c, 0, "a plan of iteration %" PRIu32 " after %" PRIu32 ", %" PRIu32 " samples",
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
        return wrong(c, 0, "a flush of iteration %" PRIu32, plan->iteration);
    for (; right && c->worker < c->config.worker_count; c->worker++) {
        const dp_slice *slice = &plan->slices[c->worker];
        if (slice->sample_count || slice->lookup_count || slice->row_count || slice->fill.count ||
            slice->after.count)
            right = wrong(c, 0, "a flush that does more than push");
        else
            right = run_release(c, &slice->release);
    }
    for (uint32_t i = 0; right && i < c->key_count; i++) {
        if (c->keys[i].version_ps != c->keys[i].version)
            right = wrong(c, c->keys[i].key, "not flushed");
        if (c->keys[i].pending)
            right = wrong(c, c->keys[i].key, "the sum of %" PRIu32 " was never pulled",
                          c->keys[i].pending);
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
