// The worker of the exploration: ew_executor.c, ew_landing.c, ew_capture.c, ew_handed.c and
// ew_sums.c, with their checks.
#include "tests/explore/explore_parts.h"

// A node of a worker: slice x EX_NODES + node.
typedef uint16_t place;

typedef struct {
    place places[EX_SLICES * EX_NODES];
    uint32_t first, count;
} place_list;

// One event at one worker.
typedef struct {
    ex_model *model;
    ex_state *state;
    ex_worker *self;
    uint32_t worker;
    place_list ready, push_rows[EX_SHARDS], push_whole[EX_SHARDS], push_grads[EX_SHARDS];
    place_list sends[EX_WORKERS], reduces[EX_WORKERS];
} turn;

static void list_add(place_list *list, uint32_t at)
{
    list->places[list->count++] = (place)at;
}

// ---- worker ----------------------------------------------------------------------------------

static bool all_pushed(const ex_model *m, const ex_state *state, uint32_t worker)
{
    for (uint32_t s = 0; s < scenario_of(m)->shard_count; s++)
        if (state->held[worker][s].count ||
            state->workers[worker].credits[s] != scenario_of(m)->push_credits)
            return false;
    return true;
}

static uint32_t all_nodes(const ex_slice *slice)
{
    return (1u << slice->node_count) - 1;
}

static uint32_t sum_nodes(const ex_slice *slice)
{
    uint32_t nodes = 0;
    for (uint32_t i = 0; i < slice->node_count; i++)
        nodes |= slice->nodes[i].kind == EX_SUM ? 1u << i : 0;
    return nodes;
}

bool ex_worker_done(const ex_model *m, const ex_state *state, uint32_t worker)
{
    const ex_worker *w = &state->workers[worker];
    for (uint32_t q = 0; q < w->received; q++) {
        const ex_slice *slice = slice_at(m, q, worker);
        const uint32_t sums = m->broken == EX_BREAK_SUM_UNMARKED ? sum_nodes(slice) : 0;
        if ((w->done[q] | sums) != all_nodes(slice))
            return false;
    }
    return w->trained == w->received;
}

bool ex_idle(const ex_model *m, const ex_state *state, uint32_t worker)
{
    return ex_worker_done(m, state, worker) && all_pushed(m, state, worker);
}

static void complete(turn *t, uint32_t at)
{
    uint32_t next = node_at(t->model, t->worker, at)->next;
    t->self->done[at / EX_NODES] |= 1u << at % EX_NODES;
    if (next && (next - 1) / EX_NODES < t->self->received)
        list_add(&t->ready, next - 1);
}

static void flush_pushes(turn *t)
{
    for (uint32_t s = 0; s < scenario_of(t->model)->shard_count; s++) {
        ex_queue *held = &t->state->held[t->worker][s];
        while (held->count && t->self->credits[s]) {
            queue_put(&t->state->up[t->worker][s], queue_take(held));
            t->self->credits[s]--;
        }
    }
}

static bool is_change(const turn *t, const ex_node *n)
{
    return scenario_of(t->model)->rounded && !n->whole && n->kind == EX_PUSH_ROW;
}

// A copy that went whole is from now on what others get of it.
static void round_copy(turn *t, ex_slot *slot)
{
    if (t->model->broken != EX_BREAK_WIRE_BASE_KEPT)
        slot->base = slot->version;
    if (t->model->broken != EX_BREAK_WIRE_NOT_ROUNDED)
        slot->value = ex_value_round(t->model->program, slot->value);
}

static void capture_row(turn *t, uint32_t s, uint32_t at)
{
    const ex_node *n = node_at(t->model, t->worker, at);
    ex_slot *slot = &t->self->slots[n->slot];
    const bool delta = n->kind == EX_PUSH_DELTA;
    ex_message message = message_of(delta             ? EX_MESSAGE_PUSH_DELTA
                                    : is_change(t, n) ? EX_MESSAGE_PUSH_CHANGE
                                                      : EX_MESSAGE_PUSH_ROW,
                                    at, n);
    message.key = slot->key;
    message.value = slot->value;
    message.state = slot->state;
    if (!slot->state)
        ex_violate(t->model, "a row is pushed without its optimizer state");
    if (is_change(t, n))
        message.base = slot->base;
    else if (scenario_of(t->model)->rounded && !delta)
        round_copy(t, slot);
    queue_put(&t->state->held[t->worker][s], message);
    if (n->reason == DP_REASON_EVICT || delta)
        slot->full = false;
    complete(t, at);
}

static void capture_send(turn *t, uint32_t at)
{
    const ex_node *n = node_at(t->model, t->worker, at);
    ex_slot *slot = &t->self->slots[n->slot];
    ex_message message = message_of(EX_MESSAGE_HANDED, at, n);
    message.key = slot->key;
    message.value = slot->value;
    message.state = n->state && slot->state;
    if (!slot->state)
        ex_violate(t->model, "a row is handed over without its optimizer state");
    queue_put(&t->state->across[t->worker][n->peer], message);
    slot->full = false;
    complete(t, at);
}

static void capture_reduce(turn *t, uint32_t at)
{
    const ex_node *n = node_at(t->model, t->worker, at);
    ex_slot *slot = &t->self->slots[n->slot];
    ex_message message = message_of(EX_MESSAGE_SUMMAND, at, n);
    message.key = slot->key;
    message.step = batch_counts(t->model, t->worker, n->version);
    queue_put(&t->state->across[t->worker][n->peer], message);
    slot->full = false;
    complete(t, at);
}

static void capture_gradient(turn *t, uint32_t s, uint32_t at)
{
    const ex_node *n = node_at(t->model, t->worker, at);
    ex_slot *slot = &t->self->slots[n->slot];
    ex_message message = message_of(EX_MESSAGE_PUSH_GRAD, at, n);
    message.key = slot->key;
    message.step = batch_counts(t->model, t->worker, n->version);
    queue_put(&t->state->held[t->worker][s], message);
    slot->full = false;
    complete(t, at);
}

// A step here: of mode OWN, or with a sum.
static void step_slot(turn *t, ex_slot *slot, uint32_t iteration, uint32_t mask)
{
    bool apply = !ex_is_bad(scenario_of(t->model), iteration) ||
                 (t->model->broken == EX_BREAK_IGNORE_VERDICT && t->worker == 0);
    if (!slot->state)
        ex_violate(t->model, "a step without optimizer state");
    if (apply)
        slot->value = ex_value_step(t->model->program, slot->value, iteration, mask);
    slot->version = (uint8_t)iteration;
}

// The mask of a sum with one gradient more.
static uint8_t sum_with(const turn *t, uint8_t sum, uint32_t worker, bool step)
{
    const uint32_t later = sum & (EX_IN_DISORDER - 1u) & ~((2u << worker) - 1);
    if (t->model->broken == EX_BREAK_SUM_AS_COMES && later)
        sum |= EX_IN_DISORDER;
    return (uint8_t)(sum | 1u << worker | (step ? EX_SAYS_STEP : EX_SAYS_NO_STEP));
}

static bool is_sum_of(const ex_node *n, const ex_node *other)
{
    return n->kind == EX_SUM && n->slot == other->slot;
}

// The gradients that the row lacks; 0: all are in.
static uint32_t sums_left(const turn *t, uint32_t q, const ex_node *sum, const uint32_t *done)
{
    const ex_slice *slice = slice_at(t->model, q, t->worker);
    uint32_t left = 0;
    for (uint32_t i = 0; i < slice->node_count; i++)
        left |= is_sum_of(&slice->nodes[i], sum) && !(done[q] >> i & 1) ? 1u << i : 0;
    return left;
}

static void step_sum(turn *t, uint32_t q, const ex_node *n)
{
    uint8_t *sum = &t->self->sums[q][n->slot];
    const uint32_t says = *sum & (EX_SAYS_STEP | EX_SAYS_NO_STEP);
    if (says == (EX_SAYS_STEP | EX_SAYS_NO_STEP))
        ex_violate(t->model, "the executor refuses: workers do not agree whether a batch counts");
    step_slot(t, &t->self->slots[n->slot], n->version, *sum & ~says);
    *sum = 0;
}

// The step of every gradient by itself, the own one at the end.
static void step_each(turn *t, uint32_t q, const ex_node *n, bool last)
{
    step_slot(t, &t->self->slots[n->slot], n->version, 1u << n->peer);
    if (!last)
        return;
    step_slot(t, &t->self->slots[n->slot], n->version, 1u << t->worker);
    t->self->sums[q][n->slot] = 0;
}

// A gradient is in, and so is the own one: with the last of them the row is stepped, once.
static void take_summand(turn *t, uint32_t at)
{
    const uint32_t q = at / EX_NODES;
    const ex_node *n = node_at(t->model, t->worker, at);
    const bool last = sums_left(t, q, n, t->self->done) == 1u << at % EX_NODES;
    if (t->model->broken == EX_BREAK_SUM_EACH)
        step_each(t, q, n, last);
    else if (last)
        step_sum(t, q, n);
    complete(t, at);
}

static void land(turn *t, uint32_t at, const ex_message *row)
{
    const ex_node *n = node_at(t->model, t->worker, at);
    ex_slot *slot = &t->self->slots[n->slot];
    *slot = (ex_slot){.full = true,
                      .state = row->state,
                      .key = n->key,
                      .version = n->version,
                      .value = row->value,
                      .base = scenario_of(t->model)->rounded ? n->version : 0};
    t->self->staged[at / EX_NODES][n->slot] = (ex_message){0};
    complete(t, at);
}

static bool has_arrived(const turn *t, uint32_t at)
{
    return t->self->arrived[at / EX_NODES] >> at % EX_NODES & 1;
}

static void init_slot(turn *t, uint32_t at)
{
    const ex_node *n = node_at(t->model, t->worker, at);
    ex_slot *slot = &t->self->slots[n->slot];
    *slot = (ex_slot){.full = true, .state = true, .key = n->key, .value = n->key};
    complete(t, at);
}

static void start_push(turn *t, uint32_t at)
{
    const ex_node *n = node_at(t->model, t->worker, at);
    const ex_slot *slot = &t->self->slots[n->slot];
    const uint32_t shard = shard_of(t->model, n);
    if (n->kind == EX_PUSH_GRAD)
        list_add(&t->push_grads[shard], at);
    else if (!slot->full || slot->version != (n->kind == EX_PUSH_DELTA ? n->mask : n->version))
        ex_violate(t->model, "the executor refuses: pushes version %u, the slot has %u", n->version,
                   slot->full ? slot->version : 0);
    else if (n->kind == EX_SEND)
        list_add(&t->sends[n->peer], at);
    else
        list_add(
            &(is_change(t, n) || n->kind == EX_PUSH_DELTA ? t->push_rows : t->push_whole)[shard],
            at);
}

// The node's turn has come.
static void advance(turn *t, uint32_t at)
{
    const ex_node *n = node_at(t->model, t->worker, at);
    ex_slot *slot = &t->self->slots[n->slot];
    switch ((ex_kind)n->kind) {
    case EX_PUSH_ROW:
    case EX_SEND:
    case EX_PUSH_DELTA:
    case EX_PUSH_GRAD:
        if (!is_done(t->self, at))
            start_push(t, at);
        break;
    case EX_REDUCE:
        list_add(&t->reduces[n->peer], at);
        break;
    case EX_SUM:
        if (!is_done(t->self, at) && has_arrived(t, at))
            take_summand(t, at);
        break;
    case EX_DROP:
        slot->full = false;
        complete(t, at);
        break;
    case EX_PULL:
    case EX_RECV:
        if (is_done(t->self, at)) // EX_BREAK_LAND_EARLY, EX_BREAK_HAND_LANDS
            complete(t, at);
        else if (has_arrived(t, at))
            land(t, at, &t->self->staged[at / EX_NODES][n->slot]);
        break;
    case EX_INIT:
        init_slot(t, at);
        break;
    case EX_TRAIN:
    case EX_FORGET:
        break; // wait for the whole slice
    }
}

static void send_forget(turn *t, uint32_t at)
{
    const ex_node *n = node_at(t->model, t->worker, at);
    const bool unconfirmed = t->model->broken == EX_BREAK_FORGET_UNCONFIRMED;
    if (n->kind != EX_FORGET || is_done(t->self, at))
        return;
    queue_put(&(unconfirmed ? t->state->up : t->state->held)[t->worker][shard_of(t->model, n)],
              message_of(EX_MESSAGE_FORGET, at, n));
    t->self->done[at / EX_NODES] |= 1u << at % EX_NODES;
}

static void send_forgets_of(turn *t, uint32_t q)
{
    for (uint32_t i = 0; i < slice_at(t->model, q, t->worker)->node_count; i++)
        send_forget(t, q * EX_NODES + i);
}

// Of slices that are carried out, in the order in which the executor looks at them.
static void send_forgets(turn *t)
{
    const uint32_t ring = scenario_of(t->model)->run_ahead + 2u, trained = t->self->trained;
    for (uint32_t i = 0; i < ring; i++)
        for (uint32_t q = trained > ring ? trained - ring : 0; q < trained; q++) {
            const ex_slice *slice = slice_at(t->model, q, t->worker);
            uint32_t done = t->self->done[q];
            for (uint32_t k = 0; k < slice->node_count; k++)
                done |= slice->nodes[k].kind == EX_FORGET ? 1u << k : 0;
            if ((q + 1) % ring == i && done == all_nodes(slice))
                send_forgets_of(t, q);
        }
}

static void work(turn *t)
{
    bool more = true;
    while (more && !t->model->failed) {
        while (t->ready.first < t->ready.count)
            advance(t, t->ready.places[t->ready.first++]);
        for (uint32_t s = 0; s < scenario_of(t->model)->shard_count; s++) {
            place_list *rows = &t->push_rows[s], *whole = &t->push_whole[s];
            place_list *grads = &t->push_grads[s];
            while (rows->first < rows->count)
                capture_row(t, s, rows->places[rows->first++]);
            while (whole->first < whole->count)
                capture_row(t, s, whole->places[whole->first++]);
            while (grads->first < grads->count)
                capture_gradient(t, s, grads->places[grads->first++]);
        }
        for (uint32_t w = 0; w < scenario_of(t->model)->worker_count; w++) {
            place_list *sends = &t->sends[w], *reduces = &t->reduces[w];
            while (sends->first < sends->count)
                capture_send(t, sends->places[sends->first++]);
            while (reduces->first < reduces->count)
                capture_reduce(t, reduces->places[reduces->first++]);
        }
        more = t->ready.first < t->ready.count;
    }
    ex_worker *w = t->self;
    while (w->trained < w->received && slice_at(t->model, w->trained, t->worker)->iteration == 0)
        w->trained++;
    send_forgets(t);
    flush_pushes(t);
}

static void request(turn *t, uint32_t at)
{
    const ex_node *n = node_at(t->model, t->worker, at);
    const uint32_t s = shard_of(t->model, n);
    ex_message message = message_of(EX_MESSAGE_PULL, at, n);
    message.state = n->state;
    queue_put(t->model->broken == EX_BREAK_PULLS_TAKE_CREDITS ? &t->state->held[t->worker][s]
                                                              : &t->state->up[t->worker][s],
              message);
}

static void request_rows(turn *t, uint32_t q)
{
    const ex_slice *slice = slice_at(t->model, q, t->worker);
    for (uint32_t i = 0; i < slice->node_count; i++)
        if (slice->nodes[i].kind == EX_PULL)
            request(t, q * EX_NODES + i);
}

static turn begin(ex_model *m, ex_state *state, uint32_t worker)
{
    return (turn){.model = m, .state = state, .self = &state->workers[worker], .worker = worker};
}

void ex_worker_receive_slice(ex_model *m, ex_state *state, uint32_t worker)
{
    turn one = begin(m, state, worker), *t = &one;
    uint32_t q = t->self->received++;
    const ex_slice *slice = slice_at(t->model, q, t->worker);
    const uint32_t places = scenario_of(t->model)->sums ? 2 : 1; // as many again wait for sums
    const uint32_t ring = places * (scenario_of(t->model)->run_ahead + 2u);
    if (q >= ring &&
        (t->self->done[q - ring] != all_nodes(slice_at(t->model, q - ring, t->worker)) ||
         t->self->trained <= q - ring))
        ex_violate(t->model, "the executor refuses: more slices outstanding than announced");
    request_rows(t, q);
    if (t->model->broken == EX_BREAK_FORGET_AT_ONCE)
        send_forgets_of(t, q);
    for (uint32_t i = 0; i < slice->node_count; i++) {
        const ex_node *n = &slice->nodes[i];
        const bool early = (t->model->broken == EX_BREAK_PUSH_EARLY && n->kind == EX_PUSH_ROW) ||
                           (t->model->broken == EX_BREAK_HAND_EARLY && n->kind == EX_SEND);
        if (is_released(t->self, n) || early)
            list_add(&t->ready, q * EX_NODES + i);
    }
    work(t);
}

// EX_BREAK_HAND_TRAINS: all but a row of another worker is there.
static bool waits_for_hand(const ex_worker *w, const ex_slice *slice, const ex_node *training)
{
    for (uint32_t i = 0; i < slice->node_count; i++) {
        const ex_node *n = &slice->nodes[i];
        if (n->kind == EX_RECV && n->slot == training->slot)
            return is_released(w, n);
    }
    return false;
}

// Where workers sum: an operation in front of the training waits for a sum of an earlier slice, or
// one that is too old does.
static bool is_held_up(const ex_model *m, const ex_state *state, uint32_t worker)
{
    const ex_worker *w = &state->workers[worker];
    const ex_slice *slice = slice_at(m, w->trained, worker);
    const uint32_t far = scenario_of(m)->run_ahead + 2u;
    uint32_t before = 0;
    if (!scenario_of(m)->sums || m->broken == EX_BREAK_SUM_AHEAD)
        return false;
    for (uint32_t i = 0; i < slice->node_count && slice->nodes[i].kind != EX_TRAIN; i++)
        before |= 1u << i;
    return before & ~w->done[w->trained] ||
           (w->trained >= far &&
            w->done[w->trained - far] != all_nodes(slice_at(m, w->trained - far, worker)));
}

bool ex_worker_may_train(const ex_model *m, const ex_state *state, uint32_t worker)
{
    const ex_worker *w = &state->workers[worker];
    if (w->computed || w->trained == w->received)
        return false;
    const ex_slice *slice = slice_at(m, w->trained, worker);
    for (uint32_t i = 0; i < slice->node_count; i++)
        if (slice->nodes[i].kind == EX_TRAIN && !is_released(w, &slice->nodes[i]) &&
            m->broken != EX_BREAK_TRAIN_EARLY &&
            !(m->broken == EX_BREAK_HAND_TRAINS && waits_for_hand(w, slice, &slice->nodes[i])))
            return false;
    return slice->iteration > 0 && !is_held_up(m, state, worker);
}

// Against what sequential training gives, not against the plan alone.
static void check_read(turn *t, const ex_node *n, uint32_t iteration)
{
    const ex_program *p = t->model->program;
    const ex_slot *slot = &t->self->slots[n->slot];
    uint32_t version = p->scenario.staleness ? n->version : p->latest[iteration - 1][n->key];
    uint32_t value = ex_is_ordered(&p->scenario) ? p->reads[iteration][t->worker][n->key]
                                                 : p->expected[iteration - 1][n->key];
    if (!slot->full || slot->key != n->key || slot->version != version || n->version != version)
        ex_violate(t->model, "stale read: iteration %u needs version %u, the slot has %s %u",
                   iteration, version,
                   slot->full && slot->key == n->key ? "version" : "another row,", slot->version);
    else if (slot->value != value)
        ex_violate(t->model, "wrong value: version %u lacks updates or has others", version);
}

// EX_BREAK_SUM_EARLY, EX_BREAK_SUM_NOT_AWAITED: as if the gradients were in.
static void skip_sums(turn *t, uint32_t q, const ex_node *n)
{
    const ex_slice *slice = slice_at(t->model, q, t->worker);
    for (uint32_t i = 0; i < slice->node_count; i++)
        if (is_sum_of(&slice->nodes[i], n) && !is_done(t->self, q * EX_NODES + i))
            complete(t, q * EX_NODES + i);
}

// Where the worker sums: its own gradient is the first that it has.
static void begin_sum(turn *t, uint32_t q, const ex_node *n)
{
    uint8_t *sum = &t->self->sums[q][n->slot];
    const uint32_t iteration = slice_at(t->model, q, t->worker)->iteration;
    if (t->model->broken != EX_BREAK_SUM_FORGETS)
        *sum = sum_with(t, *sum, t->worker, batch_counts(t->model, t->worker, iteration));
    if (t->model->broken == EX_BREAK_SUM_NOT_AWAITED)
        skip_sums(t, q, n);
}

static void settle(turn *t)
{
    uint32_t q = t->self->trained++;
    const ex_slice *slice = slice_at(t->model, q, t->worker);
    t->self->computed = false;
    for (uint32_t i = 0; i < slice->node_count; i++) {
        const ex_node *n = &slice->nodes[i];
        if (n->kind != EX_TRAIN)
            continue;
        if (n->mode == DP_MODE_OWN)
            step_slot(t, &t->self->slots[n->slot], slice->iteration, 1u << t->worker);
        complete(t, q * EX_NODES + i);
        if (n->mode == DP_MODE_REDUCE)
            begin_sum(t, q, n);
    }
    work(t);
}

// EX_BREAK_NO_VERDICT: gradients leave with the end of the computation.
static void send_unsettled(turn *t, uint32_t q)
{
    const ex_slice *slice = slice_at(t->model, q, t->worker);
    for (uint32_t i = 0; i < slice->node_count; i++)
        if (slice->nodes[i].kind == EX_PUSH_GRAD)
            start_push(t, q * EX_NODES + i);
    work(t);
}

void ex_worker_train(ex_model *m, ex_state *state, uint32_t worker)
{
    turn one = begin(m, state, worker), *t = &one;
    uint32_t q = t->self->trained;
    const ex_slice *slice = slice_at(t->model, q, t->worker);
    for (uint32_t i = 0; i < slice->node_count; i++)
        if (slice->nodes[i].kind == EX_TRAIN)
            check_read(t, &slice->nodes[i], slice->iteration);
    if (!scenario_of(t->model)->guard) {
        settle(t);
        return;
    }
    t->self->computed = true;
    if (t->model->broken == EX_BREAK_NO_VERDICT)
        send_unsettled(t, q);
    if (t->model->broken == EX_BREAK_FORGET_UNSETTLED) {
        send_forgets_of(t, q);
        flush_pushes(t);
    }
}

void ex_worker_settle(ex_model *m, ex_state *state, uint32_t worker)
{
    turn t = begin(m, state, worker);
    settle(&t);
}

bool ex_worker_may_settle(const ex_model *m, const ex_state *state, uint32_t worker)
{
    const ex_worker *w = &state->workers[worker];
    for (uint32_t i = 0; i < scenario_of(m)->worker_count && w->computed; i++) {
        const ex_worker *other = &state->workers[i];
        if (other->trained < w->trained || (other->trained == w->trained && !other->computed))
            return false;
    }
    return w->computed;
}

static void receive_row(turn *t, const ex_message *message)
{
    uint32_t at = message->slice * EX_NODES + message->node;
    const ex_node *n = node_at(t->model, t->worker, at);
    bool any = t->model->broken == EX_BREAK_ANY_VERSION && message->version > n->version;
    if (has_arrived(t, at))
        ex_violate(t->model, "the executor refuses: an answer that nobody waits for");
    else if (message->version != n->version && !any)
        ex_violate(t->model, "the executor refuses: version %u, expected exactly %u",
                   message->version, n->version);
    t->self->arrived[at / EX_NODES] |= 1u << at % EX_NODES;
    bool early = t->model->broken == EX_BREAK_LAND_EARLY && n->kind == EX_PULL;
    if (is_released(t->self, n) || early)
        land(t, at, message);
    else
        t->self->staged[at / EX_NODES][n->slot] = *message;
}

void ex_worker_receive(ex_model *m, ex_state *state, uint32_t worker, uint32_t s)
{
    turn one = begin(m, state, worker), *t = &one;
    ex_message message = queue_take(&t->state->back[t->worker][s]);
    if (message.kind == EX_MESSAGE_PUSHED || t->model->broken == EX_BREAK_PULLS_TAKE_CREDITS)
        t->self->credits[s]++;
    if (message.kind != EX_MESSAGE_PUSHED)
        receive_row(t, &message);
    work(t);
}

// The node that takes a row or a gradient of another worker, whether its slice has come or not; or
// its number is that of no node.
static uint32_t find_taker(const turn *t, const ex_message *message, uint32_t from)
{
    const ex_kind kind = message->kind == EX_MESSAGE_HANDED ? EX_RECV : EX_SUM;
    const ex_slice *slice = slice_at(t->model, message->slice, t->worker);
    for (uint32_t i = 0; i < slice->node_count; i++) {
        const ex_node *n = &slice->nodes[i];
        if (n->kind == kind && n->key == message->key && n->peer == from)
            return message->slice * EX_NODES + i;
    }
    return EX_SLICES * EX_NODES;
}

// What comes before its slice, or before the training, is kept for it.
static void receive_summand(turn *t, uint32_t at, const ex_message *message)
{
    const ex_break broken = t->model->broken;
    const ex_node *n = node_at(t->model, t->worker, at);
    const bool is_trained = message->slice < t->self->trained;
    uint8_t *sum = &t->self->sums[message->slice][n->slot];
    *sum = sum_with(t, *sum, n->peer, message->step);
    if (message->old)
        *sum |= EX_OF_NOBODY;
    if (broken == EX_BREAK_SUM_TWICE && !is_trained)
        *sum |= EX_TWICE;
    if (broken == EX_BREAK_SUM_EARLY && is_trained) {
        if (!is_done(t->self, at))
            step_sum(t, message->slice, n);
        skip_sums(t, message->slice, n);
    } else if (broken == EX_BREAK_SUM_NOT_AWAITED && is_trained) {
        if (!sums_left(t, message->slice, n, t->self->arrived))
            step_sum(t, message->slice, n);
    } else if (is_trained && is_released(t->self, n)) {
        take_summand(t, at);
    }
}

static void receive_handed(turn *t, uint32_t at, const ex_message *message)
{
    const ex_node *n = node_at(t->model, t->worker, at);
    const bool is_here = message->slice < t->self->received;
    if (is_here && (is_released(t->self, n) || t->model->broken == EX_BREAK_HAND_LANDS))
        land(t, at, message);
    else
        t->self->staged[at / EX_NODES][n->slot] = *message;
}

static bool is_lost(const turn *t, const ex_message *message)
{
    const bool is_here = message->slice < t->self->received;
    const bool is_trained = message->slice < t->self->trained;
    if (message->kind == EX_MESSAGE_HANDED)
        return t->model->broken == EX_BREAK_HAND_LOST && !is_here;
    return (t->model->broken == EX_BREAK_SUM_LOST && !is_here) ||
           (t->model->broken == EX_BREAK_SUM_LOST_UNTRAINED && !is_trained);
}

static bool is_dropped(const turn *t, const ex_message *message)
{
    const bool taken = message->kind == EX_MESSAGE_HANDED
                           ? t->model->broken == EX_BREAK_HAND_OLD_EPOCH
                           : t->model->broken == EX_BREAK_SUM_OLD_EPOCH;
    return message->old && !taken;
}

// A row or a gradient of another worker.
void ex_worker_receive_handed(ex_model *m, ex_state *state, uint32_t worker, uint32_t from)
{
    turn one = begin(m, state, worker), *t = &one;
    const ex_message message = queue_take(&t->state->across[from][t->worker]);
    if (is_dropped(t, &message))
        return;
    const uint32_t at = find_taker(t, &message, from);
    if (at == EX_SLICES * EX_NODES || has_arrived(t, at)) {
        ex_violate(m, "the executor refuses: a row or gradient of worker %u that nothing takes",
                   from);
        return;
    }
    const ex_node *n = node_at(m, worker, at);
    if (message.version != n->version)
        ex_violate(m, "the executor refuses: version %u, expected exactly %u", message.version,
                   n->version);
    if (message.slice + 1u > t->self->received + scenario_of(m)->run_ahead + 2u)
        ex_violate(m, "the executor refuses: a row for a slice that cannot be out");
    if (is_lost(t, &message))
        return;
    t->self->arrived[at / EX_NODES] |= 1u << at % EX_NODES;
    if (message.kind == EX_MESSAGE_HANDED)
        receive_handed(t, at, &message);
    else
        receive_summand(t, at, &message);
    work(t);
}
