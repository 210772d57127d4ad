// Programs with a rule of the planner broken in one place.
#include <string.h>

#include "tests/explore/explore.h"
#include "tests/support/test.h"

static void remove_node(ex_slice *slice, uint32_t at)
{
    memmove(&slice->nodes[at], &slice->nodes[at + 1],
            (slice->node_count - at - 1u) * sizeof *slice->nodes);
    slice->node_count--;
}

static void move_node(ex_slice *slice, uint32_t from, uint32_t to)
{
    ex_node n = slice->nodes[from];
    remove_node(slice, from);
    memmove(&slice->nodes[to + 1], &slice->nodes[to],
            (slice->node_count - to) * sizeof *slice->nodes);
    slice->nodes[to] = n;
    slice->node_count++;
}

static bool double_node(ex_slice *slice, uint32_t at)
{
    if (slice->node_count == EX_NODES)
        return false;
    slice->nodes[slice->node_count++] = slice->nodes[at];
    move_node(slice, slice->node_count - 1u, at + 1);
    return true;
}

static ex_node *training_of(ex_slice *slice, const ex_node *n)
{
    for (uint32_t i = 0; i < slice->node_count; i++)
        if (slice->nodes[i].kind == EX_TRAIN && slice->nodes[i].slot == n->slot)
            return &slice->nodes[i];
    return NULL;
}

static uint32_t index_of(const ex_slice *slice, ex_kind kind, uint32_t slot)
{
    for (uint32_t i = 0; i < slice->node_count; i++)
        if (slice->nodes[i].kind == kind && slice->nodes[i].slot == slot)
            return i;
    return EX_NODES;
}

// The same gradient in the slices of all workers: in the mask of the key's sum in this iteration.
static void change_sum(ex_program *p, uint32_t q, const ex_node *sum, ex_break which)
{
    uint32_t out = 31u - (uint32_t)__builtin_clz(sum->mask); // its last trainer
    uint8_t mask = sum->mask, key = sum->key;
    for (uint32_t w = 0; w < p->scenario.worker_count; w++) {
        ex_slice *slice = &p->slices[q][w];
        for (uint32_t i = slice->node_count; i-- > 0;) {
            ex_node *n = &slice->nodes[i];
            if (n->kind != EX_PUSH_GRAD || n->key != key)
                continue;
            if (which == EX_BREAK_PLAN_SMALL_MASK) {
                n->mask = (uint8_t)(mask & ~(1u << out));
                if (w == out)
                    remove_node(slice, i);
            } else if (which == EX_BREAK_PLAN_WRONG_BASE) {
                n->base--;
            } else { // every trainer takes itself for the only one
                uint32_t pull = index_of(slice, EX_PULL, n->slot);
                training_of(slice, n)->mode = DP_MODE_OWN;
                if (pull < EX_NODES)
                    slice->nodes[pull].state = true;
                remove_node(slice, i);
            }
        }
    }
}

// A row that is taken in: the push follows the pull into its slot.
static bool is_taken_in(const ex_slice *slice, const ex_node *push)
{
    const uint32_t pull = index_of(slice, EX_PULL, push->slot);
    return pull < EX_NODES && &slice->nodes[pull] < push;
}

// Whether a shard is told to forget the key's row.
static bool forgets(const ex_slice *slice, uint32_t key)
{
    for (uint32_t i = 0; i < slice->node_count; i++)
        if (slice->nodes[i].kind == EX_FORGET && slice->nodes[i].key == key)
            return true;
    return false;
}

// What a worker sent the gradient of, or summed, in the iteration of a version.
static bool has_node(const ex_program *p, uint32_t w, ex_kind kind, dp_mode mode, const ex_node *n)
{
    for (uint32_t q = 0; q < p->slice_count; q++) {
        const ex_slice *slice = &p->slices[q][w];
        for (uint32_t i = 0; i < slice->node_count; i++) {
            const ex_node *other = &slice->nodes[i];
            if (other->kind == kind && other->key == n->key && slice->iteration == n->version &&
                (kind != EX_TRAIN || other->mode == mode))
                return true;
        }
    }
    return false;
}

// The third of three workers.
static bool name_another(const ex_program *p, uint32_t w, ex_node *n)
{
    return p->scenario.worker_count > 2 && (n->peer = (uint8_t)(EX_WORKERS - w - n->peer), true);
}

// Rules of gradients that a trainer sums.
static bool break_sum_at(ex_program *p, ex_break which, uint32_t q, uint32_t w, uint32_t at)
{
    ex_slice *slice = &p->slices[q][w];
    ex_node *n = &slice->nodes[at];
    const ex_node *training = training_of(slice, n);
    const bool reduce = n->kind == EX_REDUCE, sum = n->kind == EX_SUM;
    const bool fill = n->kind == EX_PULL || n->kind == EX_RECV;
    switch (which) {
    case EX_BREAK_PLAN_NO_REDUCE:
        return reduce && (remove_node(slice, at), true);
    case EX_BREAK_PLAN_NO_SUM:
        return sum && (remove_node(slice, at), true);
    case EX_BREAK_PLAN_REDUCE_ANOTHER:
        return reduce && name_another(p, w, n);
    case EX_BREAK_PLAN_SUM_ANOTHER:
        return sum && name_another(p, w, n);
    case EX_BREAK_PLAN_GRAD_FOR_REDUCE:
        return reduce && (n->kind = EX_PUSH_GRAD, n->peer = DP_NO_WORKER, true);
    case EX_BREAK_PLAN_SUM_STATELESS:
        return fill && training->mode == DP_MODE_REDUCE && (n->state = false, true);
    case EX_BREAK_PLAN_SUM_STORED:
        return n->kind == EX_PUSH_ROW && has_node(p, w, EX_TRAIN, DP_MODE_REDUCE, n) &&
               (remove_node(slice, at), true);
    case EX_BREAK_PLAN_SENDER_VALID:
        return fill && has_node(p, w, EX_REDUCE, DP_MODE_GRAD, n) && (remove_node(slice, at), true);
    default:
        return false;
    }
}

// Rules of rows that go from worker to worker.
static bool break_hand_at(ex_program *p, ex_break which, uint32_t q, uint32_t w, uint32_t at)
{
    ex_slice *slice = &p->slices[q][w];
    ex_node *n = &slice->nodes[at];
    const bool send = n->kind == EX_SEND, recv = n->kind == EX_RECV;
    switch (which) {
    case EX_BREAK_PLAN_NO_SEND:
        return send && (remove_node(slice, at), true);
    case EX_BREAK_PLAN_NO_RECV:
        return recv && (remove_node(slice, at), true);
    case EX_BREAK_PLAN_OLD_RECV:
        return recv && (n->version--, true);
    case EX_BREAK_PLAN_RECV_ANOTHER:
        return recv && name_another(p, w, n);
    case EX_BREAK_PLAN_PULL_FOR_RECV:
        return recv && (n->kind = EX_PULL, true);
    case EX_BREAK_PLAN_SEND_STATELESS:
        return send && (n->state = false, true);
    case EX_BREAK_PLAN_SEND_LATE:
        return (recv || n->kind == EX_PULL) && index_of(slice, EX_SEND, n->slot) < at &&
               (move_node(slice, at, 0), true);
    default:
        return break_sum_at(p, which, q, w, at);
    }
}

// Rules of homes, and of rows that travel rounded.
static bool break_home_at(ex_program *p, ex_break which, uint32_t q, uint32_t w, uint32_t at)
{
    ex_slice *slice = &p->slices[q][w];
    ex_node *n = &slice->nodes[at];
    const bool push = n->kind == EX_PUSH_ROW, in = push && is_taken_in(slice, n);
    const bool whole = push && n->whole && !in;
    const bool elsewhere = !p->scenario.homes || n->shard != w;
    const uint32_t floor = p->scenario.floor && q >= p->cut_slice ? p->scenario.floor : 0;
    switch (which) {
    case EX_BREAK_PLAN_NO_FORGET:
        return n->kind == EX_FORGET && (remove_node(slice, at), true);
    case EX_BREAK_PLAN_FORGET_PUSHED:
        return n->kind == EX_FORGET && (n->version++, true);
    case EX_BREAK_PLAN_PUSH_STAYS:
        return push && !in && (n->shard ^= 1, true);
    case EX_BREAK_PLAN_NOT_TAKEN_IN:
        return in && (remove_node(slice, at), true);
    case EX_BREAK_PLAN_TAKEN_IN_STATELESS:
        return in && (slice->nodes[index_of(slice, EX_PULL, n->slot)].state = false, true);
    case EX_BREAK_PLAN_GRAD_STAYS:
        return n->kind == EX_PUSH_GRAD && (n->shard ^= 1, true);
    case EX_BREAK_WIRE_STAYS_CHANGED:
        return whole && elsewhere && n->reason != DP_REASON_EVICT && (n->whole = false, true);
    case EX_BREAK_WIRE_MOVED_CHANGED:
        return whole && forgets(slice, n->key) && n->reason == DP_REASON_EVICT &&
               (n->whole = false, true);
    case EX_BREAK_WIRE_ENDED_CHANGED:
        return whole && floor && n->reason == DP_REASON_EVICT && !p->scenario.homes &&
               (n->whole = false, true);
    case EX_BREAK_WIRE_TAKEN_IN:
        return in && !(slice->nodes[index_of(slice, EX_PULL, n->slot)].whole = false);
    default:
        return break_hand_at(p, which, q, w, at);
    }
}

// Breaks the rule at this node if it is about such a node. False: it is not.
static bool break_at(ex_program *p, ex_break which, uint32_t q, uint32_t w, uint32_t at)
{
    ex_slice *slice = &p->slices[q][w];
    ex_node *n = &slice->nodes[at];
    const ex_node *training = training_of(slice, n);
    bool push = n->kind == EX_PUSH_ROW, pull = n->kind == EX_PULL, grad = n->kind == EX_PUSH_GRAD;
    switch (which) {
    case EX_BREAK_PLAN_NO_UPDATE_PUSH:
        return push && n->reason == DP_REASON_UPDATE && (remove_node(slice, at), true);
    case EX_BREAK_PLAN_NO_FLUSH_PUSH:
        return push && n->reason == DP_REASON_FLUSH && (remove_node(slice, at), true);
    case EX_BREAK_PLAN_NO_EVICT_PUSH:
        return push && n->reason == DP_REASON_EVICT && (n->kind = EX_DROP, true);
    case EX_BREAK_PLAN_SECOND_PUSH:
    case EX_BREAK_STORE_ANY:
        return push && n->reason != DP_REASON_EVICT && double_node(slice, at);
    case EX_BREAK_PLAN_OLD_PULL:
        return pull && n->version > 0 && (n->version--, true);
    case EX_BREAK_PLAN_NO_PULL:
        return pull && (remove_node(slice, at), true);
    case EX_BREAK_PLAN_PULL_STATELESS:
        return pull && training->mode != DP_MODE_GRAD && (n->state = false, true);
    case EX_BREAK_PLAN_PULL_STATEFUL:
        return pull && training->mode == DP_MODE_GRAD && (n->state = true);
    case EX_BREAK_PLAN_INIT_AGAIN:
        return pull && n->version > 0 && (n->kind = EX_INIT, true);
    case EX_BREAK_PLAN_OWN_FOR_GRAD:
    case EX_BREAK_PLAN_SMALL_MASK:
        return grad && (change_sum(p, q, n, which), true);
    case EX_BREAK_PLAN_WRONG_BASE:
        return grad && n->base > 0 && (change_sum(p, q, n, which), true);
    case EX_BREAK_PLAN_GRAD_TWICE:
        return grad && double_node(slice, at);
    case EX_BREAK_PLAN_FILL_FIRST:
        return pull && at > 0 && index_of(slice, EX_PUSH_ROW, n->slot) < at &&
               (move_node(slice, at, 0), true);
    case EX_BREAK_PLAN_NO_DROP:
        return n->kind == EX_DROP && (remove_node(slice, at), true);
    default:
        return break_home_at(p, which, q, w, at);
    }
}

bool ex_program_break(ex_program *p, ex_break which, uint32_t place)
{
    for (uint32_t q = 0; q < p->slice_count; q++)
        for (uint32_t w = 0; w < p->scenario.worker_count; w++)
            for (uint32_t i = 0; i < p->slices[q][w].node_count; i++) {
                ex_program copy = *p; // the messages stay the first one's
                if (!break_at(&copy, which, q, w, i) || place-- > 0)
                    continue;
                *p = copy;
                for (uint32_t j = 0; j < p->scenario.worker_count; j++)
                    ex_link_nodes(p, j);
                return true;
            }
    return false;
}
