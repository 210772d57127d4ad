// Which actions may wait: persistent sets of actions.
//
// Two actions are independent in a state if neither makes the other impossible and both orders lead
// to the same state, or both break a rule. A set of possible actions is persistent if all that can
// happen before one of it happens is independent of the whole set. Then every run from here has an
// equal one that begins in the set: its first action of the set moves to the front, or, where it
// has none, one of the set is put in front. So it is enough to follow the set, and every end and
// every broken rule is still found. Nothing is put off for ever, because runs are finite: every
// action takes one of finitely many slices, trainings, messages or cuts, and no state comes twice.
//
// What is independent, and why:
// - Answers to a worker go first, see ex_is_free. Below, an action is one with the answers that
//   follow from it, and all that differs in the order of answers is the same.
// - Actions of different workers, but deliveries to the PS: each touches its own worker, and the
//   ends of its connections. A slice or a verdict that is possible remains so, whatever others do.
// - What a worker does and the delivery of what it sent before: one appends, the other takes.
// - Deliveries to the PS of different keys: rows, sums and parked pulls are by key.
// - Deliveries of one key from different workers: not by reasoning. All orders of all that others
//   may still send of this key are tried at the model of the PS, and the delivery in question is
//   compared before and after each of them. Messages are taken to be possible rather too early: a
//   push waits for what comes before it on its slot, a request for nothing. Values do not steer the
//   PS, so the expected ones stand for those that workers will have.
// - A slice and the end of a training at the same worker: if no connection gets messages of both,
//   their order is all that could differ. They touch different nodes, and slots in order of nodes.
// - A cut: nothing else is possible before it that it sees. All is carried out and confirmed,
//   requests are answered, and the next slices wait for the cut.
//
// With few push credits confirmations are no free answers, they let messages out: then only
// trainings and cuts are taken alone.
//
// explore_check.c tries all of this in every state of small scenarios.
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/explore/explore_parts.h"

enum { MESSAGES = 64 }; // of a key in a run; a set of them is a uint64_t

// A message of a key that a worker sends in the course of the run.
typedef struct {
    uint8_t worker;
    ex_message message;
    uint64_t delivered_before, answered_before; // what must have happened before it can be sent
} key_message;

typedef struct {
    key_message messages[MESSAGES];
    uint32_t count;
    uint64_t pulls;
} key_traffic;

// What the PS has of a key, and what of its messages it has got and answered.
typedef struct {
    ex_row row;
    uint64_t delivered, answered;
} key_state;

// Messages that slices and trainings of a worker put on a connection.
typedef struct {
    uint8_t requests, rows, gradients;
} sends;

struct ex_reducer {
    ex_model model;
    key_traffic keys[EX_KEYS];
    uint8_t index[EX_WORKERS][EX_SLICES * EX_NODES]; // in the traffic of the node's key
    sends sends[EX_WORKERS][EX_SLICES][EX_SHARDS];
    ex_state scratch;              // a PS
    ex_set commuting, conflicting; // answers of commutes_with_all
};

// ---- traffic of a program --------------------------------------------------------------------

static bool is_message(const ex_node *n)
{
    return n->kind == EX_PULL || n->kind == EX_PUSH_ROW || n->kind == EX_PUSH_GRAD;
}

static ex_message message_to_be(const ex_model *m, uint32_t worker, uint32_t at)
{
    static const uint8_t kinds[] = {[EX_PULL] = EX_MESSAGE_PULL,
                                    [EX_PUSH_ROW] = EX_MESSAGE_PUSH_ROW,
                                    [EX_PUSH_GRAD] = EX_MESSAGE_PUSH_GRAD};
    const ex_node *n = node_at(m, worker, at);
    ex_message message = message_of(kinds[n->kind], at, n);
    message.state = n->kind == EX_PUSH_ROW || n->state;
    if (n->kind == EX_PUSH_ROW)
        message.value = m->program->expected[n->version][n->key];
    if (n->kind == EX_PUSH_GRAD)
        message.step = batch_counts(m, worker, n->version);
    return message;
}

// A push is captured when all that stands before it on its slot is complete.
static void add_reasons(const ex_reducer *r, const key_traffic *traffic, key_message *one,
                        const ex_node *n)
{
    for (const ex_node *p = n; p->previous;) {
        uint32_t at = p->previous - 1u;
        p = node_at(&r->model, one->worker, at);
        if (p->key != n->key)
            return;
        if (!is_message(p))
            continue;
        uint64_t bit = UINT64_C(1) << r->index[one->worker][at];
        *(traffic->pulls & bit ? &one->answered_before : &one->delivered_before) |= bit;
    }
}

static void add_message(ex_reducer *r, uint32_t worker, uint32_t at)
{
    const ex_node *n = node_at(&r->model, worker, at);
    key_traffic *traffic = &r->keys[n->key];
    assert_true(traffic->count < MESSAGES);
    const uint64_t bit = UINT64_C(1) << traffic->count;
    key_message *one = &traffic->messages[traffic->count];
    r->index[worker][at] = (uint8_t)traffic->count++;
    one->worker = (uint8_t)worker;
    one->message = message_to_be(&r->model, worker, at);
    if (n->kind == EX_PULL)
        traffic->pulls |= bit;
    else
        add_reasons(r, traffic, one, n);
}

static void count_send(ex_reducer *r, uint32_t worker, uint32_t q, const ex_node *n)
{
    sends *s = &r->sends[worker][q][ex_shard_of(scenario_of(&r->model), n->key)];
    if (n->kind == EX_PUSH_ROW)
        s->rows++;
    else if (n->kind == EX_PUSH_GRAD)
        s->gradients++;
    else
        s->requests++;
}

ex_reducer *ex_reducer_create(const ex_model *model)
{
    ex_reducer *r = rt_alloc(1, sizeof *r);
    const ex_program *p = model->program;
    assert_non_null(r);
    r->model.program = model->program;
    r->model.broken = model->broken;
    for (uint32_t w = 0; w < p->scenario.worker_count; w++)
        for (uint32_t q = 0; q < p->slice_count; q++)
            for (uint32_t i = 0; i < p->slices[q][w].node_count; i++) {
                const ex_node *n = &p->slices[q][w].nodes[i];
                if (!is_message(n))
                    continue;
                add_message(r, w, q * EX_NODES + i);
                count_send(r, w, q, n);
            }
    return r;
}

void ex_reducer_destroy(ex_reducer *r)
{
    if (!r)
        return;
    ex_set_fini(&r->commuting);
    ex_set_fini(&r->conflicting);
    rt_free(r);
}

// ---- deliveries of one key -------------------------------------------------------------------

// The PS gets one message more. Returns a sum over its answers.
static uint64_t deliver(ex_reducer *r, key_state *x, uint32_t worker, const ex_message *message)
{
    const key_traffic *traffic = &r->keys[message->key];
    const uint32_t shard = ex_shard_of(scenario_of(&r->model), message->key);
    ex_state *ps = &r->scratch;
    uint64_t answers = 0;
    ps->rows[shard][message->key] = x->row;
    memset(ps->parked, 0, sizeof ps->parked);
    for (uint64_t bits = x->delivered & ~x->answered & traffic->pulls; bits; bits &= bits - 1) {
        const key_message *pull = &traffic->messages[__builtin_ctzll(bits)];
        ps->parked[pull->worker][pull->message.slice] |= 1u << pull->message.node;
    }
    queue_put(&ps->up[worker][shard], *message);
    ex_ps_receive(&r->model, ps, worker, shard);
    x->row = ps->rows[shard][message->key];
    x->delivered |= UINT64_C(1) << r->index[worker][message->slice * EX_NODES + message->node];
    for (uint32_t w = 0; w < scenario_of(&r->model)->worker_count; w++)
        for (ex_queue *back = &ps->back[w][shard]; back->count;) {
            ex_message out = queue_take(back);
            if (out.kind == EX_MESSAGE_PUSHED)
                continue;
            x->answered |= UINT64_C(1) << r->index[w][out.slice * EX_NODES + out.node];
            answers += rt_hash_bytes(&out, sizeof out) + w;
        }
    return answers;
}

// first, then second, with a clean slate.
static bool deliver_two(ex_reducer *r, key_state *x, const key_message *first,
                        const key_message *second, uint64_t *answers_p)
{
    r->model.failed = false;
    *answers_p = deliver(r, x, first->worker, &first->message);
    if (!r->model.failed)
        *answers_p += deliver(r, x, second->worker, &second->message);
    return !r->model.failed;
}

static bool commute(ex_reducer *r, const key_state *x, const key_message *a, const key_message *b)
{
    key_state ab = *x, ba = *x;
    uint64_t answers_ab, answers_ba;
    bool right_ab = deliver_two(r, &ab, a, b, &answers_ab);
    bool right_ba = deliver_two(r, &ba, b, a, &answers_ba);
    if (!right_ab || !right_ba)
        return right_ab == right_ba;
    return answers_ab == answers_ba && ab.delivered == ba.delivered && ab.answered == ba.answered &&
           memcmp(&ab.row, &ba.row, sizeof ab.row) == 0;
}

static bool may_come(const key_message *one, const key_state *x, uint32_t index)
{
    return !(x->delivered >> index & 1) && !(one->delivered_before & ~x->delivered) &&
           !(one->answered_before & ~x->answered);
}

static uint64_t question_of(const key_state *x, const key_message *a)
{
    uint64_t hash = rt_hash_bytes(&x->row, sizeof x->row);
    hash = rt_mix(hash ^ rt_mix(x->delivered) ^ rt_mix(x->answered + 1));
    hash ^= rt_mix(rt_hash_bytes(&a->message, sizeof a->message) + a->worker);
    return hash;
}

// Whether the delivery of `a` commutes with all that other workers may send of its key before it
// comes, in any order.
static bool commutes_with_all(ex_reducer *r, const key_state *x, const key_message *a)
{
    const key_traffic *traffic = &r->keys[a->message.key];
    uint64_t question = question_of(x, a);
    bool answer = !ex_set_has(&r->conflicting, question);
    if (!answer || ex_set_has(&r->commuting, question))
        return answer;
    for (uint32_t i = 0; i < traffic->count && answer; i++) {
        const key_message *b = &traffic->messages[i];
        if (b->worker == a->worker || !may_come(b, x, i))
            continue;
        answer = commute(r, x, a, b);
        key_state next = *x;
        r->model.failed = false;
        deliver(r, &next, b->worker, &b->message);
        if (answer && !r->model.failed)
            answer = commutes_with_all(r, &next, a);
    }
    ex_set_add(answer ? &r->commuting : &r->conflicting, question);
    return answer;
}

// No answer is under way.
static key_state read_key(const ex_reducer *r, const ex_state *state, uint32_t key)
{
    const key_traffic *traffic = &r->keys[key];
    const uint32_t shard = ex_shard_of(scenario_of(&r->model), key);
    key_state x = {.row = state->rows[shard][key]};
    uint64_t under_way = 0;
    for (uint32_t w = 0; w < scenario_of(&r->model)->worker_count; w++) {
        const ex_queue *up = &state->up[w][shard];
        for (uint32_t i = 0; i < up->count; i++) {
            const ex_message *m = &up->messages[(up->first + i) % EX_QUEUE];
            if (m->key == key)
                under_way |= UINT64_C(1) << r->index[w][m->slice * EX_NODES + m->node];
        }
    }
    for (uint32_t i = 0; i < traffic->count; i++) {
        const key_message *one = &traffic->messages[i];
        const uint32_t q = one->message.slice, node = one->message.node;
        const uint64_t bit = UINT64_C(1) << i;
        const ex_worker *worker = &state->workers[one->worker];
        if (!(traffic->pulls & bit)) {
            x.delivered |= worker->done[q] >> node & 1 ? bit & ~under_way : 0;
        } else if (worker->arrived[q] >> node & 1) {
            x.delivered |= bit;
            x.answered |= bit;
        } else if (state->parked[one->worker][q] >> node & 1) {
            x.delivered |= bit;
        }
    }
    return x;
}

static bool is_delivery_alone(ex_reducer *r, const ex_state *state, ex_action action)
{
    const ex_message *head = queue_head(&state->up[action.worker][action.shard]);
    if (ex_may_cut(&r->model, state, action.shard))
        return false;
    key_message one = {.worker = action.worker, .message = *head};
    key_state x = read_key(r, state, head->key);
    return commutes_with_all(r, &x, &one);
}

// ---- slices and trainings --------------------------------------------------------------------

// Whether some connection gets messages both of slice q and of the training of the earlier slice
// `trained`: of that training's gradients, or of rows whose slot it releases.
static bool in_conflict(const ex_reducer *r, uint32_t worker, uint32_t trained, uint32_t q)
{
    for (uint32_t s = 0; s < scenario_of(&r->model)->shard_count; s++) {
        const sends *slice = &r->sends[worker][q][s];
        uint32_t of_training = r->sends[worker][trained][s].gradients;
        for (uint32_t i = trained + 1; i < q; i++)
            of_training += r->sends[worker][i][s].rows;
        if (slice->rows > 1 || (of_training && slice->rows + slice->requests))
            return true;
    }
    return false;
}

// One past the last slice that this worker can get before its next training ends.
static uint32_t window_end(const ex_reducer *r, const ex_state *state, uint32_t worker)
{
    const ex_program *p = r->model.program;
    uint32_t end = state->workers[worker].trained + p->scenario.run_ahead + 1u;
    if (p->cut_slice && state->captured != (1u << p->scenario.shard_count) - 1)
        end = end < p->cut_slice ? end : p->cut_slice;
    return end < p->slice_count ? end : p->slice_count;
}

static bool is_training_alone(const ex_reducer *r, const ex_state *state, ex_action action)
{
    const ex_worker *w = &state->workers[action.worker];
    if (action.act == EX_ACT_TRAIN && scenario_of(&r->model)->guard)
        return true; // sends nothing
    for (uint32_t q = w->received; q < window_end(r, state, action.worker); q++)
        if (in_conflict(r, action.worker, w->trained, q))
            return false;
    return true;
}

static bool is_slice_alone(const ex_reducer *r, const ex_state *state, ex_action action)
{
    const ex_worker *w = &state->workers[action.worker];
    for (uint32_t q = w->trained; q < w->received; q++)
        if (in_conflict(r, action.worker, q, w->received))
            return false;
    return true;
}

// All workers have carried out what comes before it, and what they sent is confirmed.
static bool is_cut_alone(const ex_reducer *r, const ex_state *state)
{
    for (uint32_t w = 0; w < scenario_of(&r->model)->worker_count; w++)
        if (state->workers[w].received != r->model.program->cut_slice ||
            !ex_idle(&r->model, state, w))
            return false;
    return true;
}

// ---- persistent sets -------------------------------------------------------------------------

bool ex_is_alone(ex_reducer *r, const ex_state *state, ex_action action)
{
    const bool credits = scenario_of(&r->model)->push_credits >= EX_QUEUE;
    switch ((ex_act)action.act) {
    case EX_ACT_BACK:
        return ex_is_free(&r->model, state, action);
    case EX_ACT_CUT:
        return is_cut_alone(r, state);
    case EX_ACT_UP:
        return credits && is_delivery_alone(r, state, action);
    case EX_ACT_SLICE:
        return credits && is_slice_alone(r, state, action);
    case EX_ACT_TRAIN:
    case EX_ACT_SETTLE:
        return is_training_alone(r, state, action);
    case EX_ACT_HAND: // explored without this reduction
        break;
    }
    return false;
}

bool ex_is_pair(const ex_reducer *r, ex_action first, ex_action second)
{
    const ex_scenario *s = scenario_of(&r->model);
    const ex_act end = s->guard ? EX_ACT_SETTLE : EX_ACT_TRAIN;
    return s->push_credits >= EX_QUEUE && first.worker == second.worker &&
           first.act == EX_ACT_SLICE && second.act == end;
}

static bool find_alone(ex_reducer *r, const ex_state *state, ex_action *actions, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (ex_is_alone(r, state, actions[i])) {
            actions[0] = actions[i];
            return true;
        }
    return false;
}

uint32_t ex_persistent(ex_reducer *r, const ex_state *state, ex_action *actions, uint32_t count)
{
    if (count < 2 || find_alone(r, state, actions, count))
        return count ? 1 : 0;
    for (uint32_t i = 0; i + 1 < count; i++) // ex_actions has the two next to each other
        if (ex_is_pair(r, actions[i], actions[i + 1])) {
            actions[0] = actions[i];
            actions[1] = actions[i + 1];
            return 2;
        }
    return count;
}
