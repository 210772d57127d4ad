// Rows that leave a worker and rows that come to one: every operation before a training.
#include "tests/support/plan_checker_parts.h"

#include <inttypes.h>

// ---- release ---------------------------------------------------------------------------------

model_slot *plan_check_held(plan_checker *c, const dp_op *op, known_key **key_p)
{
    uint32_t number = plan_check_number(c, op->key);
    known_key *key = &c->keys[number];
    if (op->slot >= c->config.slot_count[c->worker]) {
        plan_check_wrong(c, op->key, "operation %u on slot %" PRIu32 " of %" PRIu32, op->kind,
                         op->slot, c->config.slot_count[c->worker]);
        return NULL;
    }
    model_slot *slot = &c->slots[c->worker][op->slot];
    if (slot->key != number + 1) {
        plan_check_wrong(c, op->key, "operation %u: slot %" PRIu32 " does not hold it", op->kind,
                         op->slot);
        return NULL;
    }
    *key_p = key;
    return slot;
}

static void free_slot(plan_checker *c, model_slot *slot)
{
    uint32_t number = slot->key - 1;
    *plan_check_slot(c, number) = 0;
    c->keys[number].holders &= ~rt_bit(c->worker);
    slot->key = 0;
}

static bool check_push_row(plan_checker *c, const dp_op *op)
{
    known_key *key;
    model_slot *slot = plan_check_held(c, op, &key);
    if (!slot)
        return false;
    if (slot->stale || !(key->holders >> c->worker & 1))
        return plan_check_wrong(c, op->key, "PUSH_ROW of a stale copy");
    if (op->version != key->version)
        return plan_check_wrong(c, op->key,
                                "PUSH_ROW of version %" PRIu32 ", the latest is %" PRIu32,
                                op->version, key->version);
    if (key->version_ps >= key->version)
        return plan_check_wrong(c, op->key, "PUSH_ROW, but the PS has version %" PRIu32,
                                key->version_ps);
    if (key->row_pushed == key->version)
        return plan_check_wrong(c, op->key, "version %" PRIu32 " is pushed twice", key->version);
    if (!slot->has_state || !(op->flags & DP_OP_STATE))
        return plan_check_wrong(c, op->key, "PUSH_ROW without optimizer state");
    if (c->config.hand_over && op->reason == DP_REASON_UPDATE && key->iteration == c->iteration &&
        !plan_check_is_summed(c, key) && !c->config.full_sync)
        return plan_check_wrong(c, op->key, "PUSH_ROW for one trainer, who could be sent the row");
    if (op->reason == DP_REASON_UPDATE && key->iteration != c->iteration && !c->config.full_sync)
        return plan_check_wrong(c, op->key, "an update push of a row that nobody trains");
    bool flush = op->reason == DP_REASON_FLUSH;
    const bool is_out = !(c->participants >> c->worker & 1);
    if (op->reason > DP_REASON_FLUSH || (flush && c->iteration != 0 && !is_out) ||
        (!flush && c->iteration == 0 && !c->config.full_sync))
        return plan_check_wrong(c, op->key, "PUSH_ROW for reason %u", op->reason);
    if (op->reason == DP_REASON_EVICT && key->holders != rt_bit(c->worker))
        return plan_check_wrong(c, op->key, "evict push, but %" PRIx64 " hold it", key->holders);
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
    model_slot *slot = plan_check_held(c, op, &key);
    if (!slot)
        return false;
    bool others = key->holders & ~rt_bit(c->worker);
    if (!slot->stale && !others && key->version_ps != key->version)
        return plan_check_wrong(c, op->key,
                                "DROP of the only copy of version %" PRIu32 " (PS: %" PRIu32 ")",
                                key->version, key->version_ps);
    free_slot(c, slot);
    return true;
}

// One worker has the only copy of what the PS lacks, another one alone trains it.
static bool check_send(plan_checker *c, const dp_op *op)
{
    known_key *key;
    model_slot *slot = plan_check_held(c, op, &key);
    if (!slot)
        return false;
    if (slot->stale || key->holders != rt_bit(c->worker))
        return plan_check_wrong(c, op->key, "SEND of a copy that is not the only latest one");
    if (op->version != key->version || key->version_ps >= key->version)
        return plan_check_wrong(c, op->key,
                                "SEND of version %" PRIu32 ", latest %" PRIu32 ", PS has %" PRIu32,
                                op->version, key->version, key->version_ps);
    if (!slot->has_state || !(op->flags & DP_OP_STATE))
        return plan_check_wrong(c, op->key, "SEND without optimizer state");
    if (!c->config.hand_over || key->iteration != c->iteration || op->peer == c->worker ||
        op->peer >= c->config.worker_count || key->trainers != rt_bit(op->peer))
        return plan_check_wrong(c, op->key, "SEND to %u, trained by %" PRIx64, op->peer,
                                key->trainers);
    key->sent_to = rt_bit(op->peer);
    key->sent_by = c->worker;
    key->sent_content = slot->content;
    free_slot(c, slot);
    return true;
}

bool plan_check_release(plan_checker *c, const dp_ops *ops)
{
    for (uint32_t i = 0; i < ops->count; i++) {
        const dp_op *op = &ops->items[i];
        bool right = op->kind == DP_OP_PUSH_ROW ? check_push_row(c, op)
                     : op->kind == DP_OP_SEND   ? check_send(c, op)
                     : op->kind == DP_OP_DROP
                         ? check_drop(c, op)
                         : plan_check_wrong(c, op->key, "release has operation %u", op->kind);
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
        plan_check_wrong(c, op->key, "fills slot %" PRIu32 " of %" PRIu32, op->slot,
                         c->config.slot_count[c->worker]);
        return NULL;
    }
    model_slot *slot = &c->slots[c->worker][op->slot];
    if (slot->key && !slot->stale) {
        plan_check_wrong(c, op->key, "fills slot %" PRIu32 ", which holds key %" PRIx64, op->slot,
                         c->keys[slot->key - 1].key);
        return NULL;
    }
    if (slot->filled == c->iteration) {
        plan_check_wrong(c, op->key, "fills slot %" PRIu32 " twice", op->slot);
        return NULL;
    }
    if (slot->key && *plan_check_slot(c, slot->key - 1) == op->slot + 1)
        *plan_check_slot(c, slot->key - 1) = 0;
    known_key *key = &c->keys[number];
    *plan_check_slot(c, number) = op->slot + 1;
    key->holders |= rt_bit(c->worker);
    slot->key = number + 1;
    slot->stale = false;
    slot->filled = c->iteration;
    return slot;
}

static bool check_pull(plan_checker *c, const dp_op *op)
{
    uint32_t number = plan_check_number(c, op->key);
    known_key *key = &c->keys[number];
    if (op->version != key->version || key->version_ps != key->version)
        return plan_check_wrong(
            c, op->key, "PULL of version %" PRIu32 ", latest %" PRIu32 ", PS will have %" PRIu32,
            op->version, key->version, key->version_ps);
    if (key->holders >> c->worker & 1)
        return plan_check_wrong(c, op->key, "PULL, but the worker holds it");
    const uint64_t trainers = key->iteration == c->iteration ? key->trainers : 0;
    if (!(trainers >> c->worker & 1) && (trainers || !c->config.keeps_hot))
        return plan_check_wrong(
            c, op->key, "PULL by a worker that does not train it, trained by %" PRIx64, trainers);
    if (key->version == 0 && c->config.first_touch == RT_FIRST_TOUCH_LOCAL)
        return plan_check_wrong(c, op->key, "PULL of a row never trained");
    if (key->version > 0 && (!key->known || key->stored != key->version))
        return plan_check_wrong(c, op->key, "PULL waits for ever: the PS has version %" PRIu32,
                                key->stored);
    if (!key->known) {
        key->known = true;
        key->content_ps = plan_check_initial(op->key);
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
    uint32_t number = plan_check_number(c, op->key);
    known_key *key = &c->keys[number];
    if (key->sent_to != rt_bit(c->worker) || key->sent_by != op->peer ||
        op->version != key->version || !(op->flags & DP_OP_STATE))
        return plan_check_wrong(c, op->key, "RECV of version %" PRIu32 " from %u, sent to %" PRIx64,
                                op->version, op->peer, key->sent_to);
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
    uint32_t number = plan_check_number(c, op->key);
    known_key *key = &c->keys[number];
    if (key->version != 0 || key->known || op->version != 0)
        return plan_check_wrong(c, op->key, "INIT of a row that has version %" PRIu32,
                                key->version);
    if (key->holders >> c->worker & 1)
        return plan_check_wrong(c, op->key, "INIT twice on one worker");
    if (c->config.first_touch != RT_FIRST_TOUCH_LOCAL)
        return plan_check_wrong(c, op->key, "INIT, but first touches are pulled");
    model_slot *slot = fill_slot(c, op, number);
    if (!slot)
        return false;
    slot->version = 0;
    slot->content = plan_check_initial(op->key);
    slot->has_state = true;
    return true;
}

bool plan_check_fill(plan_checker *c, const dp_ops *ops)
{
    for (uint32_t i = 0; i < ops->count; i++) {
        const dp_op *op = &ops->items[i];
        bool right = op->kind == DP_OP_PULL   ? check_pull(c, op)
                     : op->kind == DP_OP_INIT ? check_init(c, op)
                     : op->kind == DP_OP_RECV
                         ? check_recv(c, op)
                         : plan_check_wrong(c, op->key, "fill has operation %u", op->kind);
        if (!right)
            return false;
    }
    return true;
}

// A slot is taken from its row because another row needs it, not for nothing.
bool plan_check_evictions(plan_checker *c, const dp_ops *ops)
{
    for (uint32_t i = 0; i < ops->count; i++) {
        const dp_op *op = &ops->items[i];
        bool evicted = op->kind == DP_OP_PUSH_ROW && op->reason == DP_REASON_EVICT;
        if (evicted && !c->config.expires && c->slots[c->worker][op->slot].filled != c->iteration)
            return plan_check_wrong(c, op->key, "evicted from slot %" PRIu32 ", which stays empty",
                                    op->slot);
    }
    return true;
}
