// The PS of the exploration: ps_shard.c, with its checks.
#include "tests/explore/explore_parts.h"

typedef struct {
    ex_model *model;
    ex_state *state;
    uint32_t shard;
} shard_turn;

static ex_row *row_of(shard_turn *t, uint32_t key)
{
    return row_at(t->model, t->state, t->shard, key);
}

static void reply(shard_turn *t, uint32_t worker, ex_message message)
{
    queue_put(&t->state->back[worker][t->shard], message);
}

static void answer_pull(shard_turn *t, uint32_t worker, uint32_t at)
{
    const ex_node *n = node_at(t->model, worker, at);
    ex_row *row = row_of(t, n->key);
    row->pulls = (uint8_t)(row->pulls + (scenario_of(t->model)->staleness > 0 &&
                                         t->model->broken != EX_BREAK_DELTA_UNCOUNTED));
    ex_message message = message_of(EX_MESSAGE_ROWS, at, n);
    message.version = row->version;
    const bool whole = !scenario_of(t->model)->rounded || n->whole ||
                       (n->version == 0 && t->model->broken != EX_BREAK_WIRE_FIRST_ROUNDED);
    message.value = whole ? row->value : ex_value_round(t->model->program, row->value);
    message.state = n->state;
    reply(t, worker, message);
}

// The parked pull of a key with the least version, of those that can be answered.
static bool take_parked(shard_turn *t, uint32_t key, uint32_t *worker_p, uint32_t *at_p)
{
    const uint32_t version = row_of(t, key)->version;
    uint32_t best = version + 1u;
    for (uint32_t w = 0; w < scenario_of(t->model)->worker_count; w++)
        for (uint32_t q = 0; q < t->model->program->slice_count; q++)
            for (uint32_t bits = t->state->parked[w][q]; bits; bits &= bits - 1) {
                uint32_t at = q * EX_NODES + (uint32_t)__builtin_ctz(bits);
                const ex_node *n = node_at(t->model, w, at);
                if (n->key != key || shard_of(t->model, n) != t->shard || n->version >= best)
                    continue;
                best = n->version;
                *worker_p = w;
                *at_p = at;
            }
    if (best > version)
        return false;
    t->state->parked[*worker_p][*at_p / EX_NODES] &= ~(1u << *at_p % EX_NODES);
    return true;
}

static void wake_pulls(shard_turn *t, uint32_t key)
{
    uint32_t worker = 0, at = 0;
    while (t->model->broken != EX_BREAK_NO_WAKE && take_parked(t, key, &worker, &at))
        answer_pull(t, worker, at);
}

static void apply_sum(shard_turn *t, uint32_t key, uint32_t iteration)
{
    ex_row *row = row_of(t, key);
    ex_sum *sum = &row->sums[iteration];
    if (sum->step)
        row->value = ex_value_step(t->model->program, row->value, iteration, sum->arrived);
    row->version = (uint8_t)iteration;
    *sum = (ex_sum){0};
}

static bool apply_ready_sum(shard_turn *t, uint32_t key)
{
    const ex_row *row = row_of(t, key);
    for (uint32_t i = 1; i <= EX_ITERATIONS; i++) {
        const ex_sum *sum = &row->sums[i];
        if (sum->open && sum->arrived == sum->mask && sum->base == row->version) {
            apply_sum(t, key, i);
            return true;
        }
    }
    return false;
}

static void row_changed(shard_turn *t, uint32_t key)
{
    bool more = true;
    if (t->model->broken == EX_BREAK_SUM_BEFORE_WAKE)
        apply_ready_sum(t, key);
    while (more) {
        wake_pulls(t, key);
        more = t->model->broken != EX_BREAK_NO_WAITING_SUM && apply_ready_sum(t, key);
    }
}

static void create_row(ex_row *row, uint32_t key)
{
    row->exists = true;
    row->version = 0;
    row->value = (uint8_t)key;
}

static bool has_its_turn(const shard_turn *t, const ex_row *row, uint32_t base, uint32_t pulls)
{
    return (row->version == base || t->model->broken == EX_BREAK_DELTA_ANY_BASE) &&
           (row->pulls == pulls || t->model->broken == EX_BREAK_DELTA_NO_PULLS ||
            t->model->broken == EX_BREAK_DELTA_ANY_BASE);
}

static void add_change(shard_turn *t, uint32_t key, const ex_waiting *change)
{
    ex_row *row = row_of(t, key);
    row->value = ex_value_add(t->model->program, row->value, change->value);
    row->version = change->version;
    row->pulls = 0;
    wake_pulls(t, key);
}

static void add_waiting(shard_turn *t, uint32_t key)
{
    ex_row *row = row_of(t, key);
    for (uint32_t i = 0; i < EX_WAITING && t->model->broken != EX_BREAK_DELTA_NO_WAKE; i++) {
        const ex_waiting one = row->waiting[i];
        if (!one.open || !has_its_turn(t, row, one.base, one.pulls))
            continue;
        row->waiting[i] = (ex_waiting){0};
        add_change(t, key, &one);
        i = UINT32_MAX; // from the first on
    }
}

static void take_delta(shard_turn *t, uint32_t worker, const ex_message *in)
{
    const ex_node *n = node_at(t->model, worker, in->slice * EX_NODES + in->node);
    ex_row *row = row_of(t, in->key);
    const ex_waiting change = {true, in->version, n->base, n->peer, in->value};
    if (!row->exists && n->base == 0)
        create_row(row, in->key);
    if (row->exists &&
        (row->version > n->base || (row->version == n->base && row->pulls > n->peer)) &&
        t->model->broken != EX_BREAK_DELTA_ANY_BASE &&
        t->model->broken != EX_BREAK_DELTA_NO_PULLS) {
        ex_violate(t->model, "the shard refuses: a change of base %u, the row has version %u",
                   n->base, row->version);
        return;
    }
    if (row->exists && has_its_turn(t, row, n->base, n->peer)) {
        add_change(t, in->key, &change);
        add_waiting(t, in->key);
        return;
    }
    for (uint32_t i = 0; i < EX_WAITING; i++) {
        if (row->waiting[i].open)
            continue;
        row->waiting[i] = change;
        return;
    }
    ex_violate(t->model, "more changes wait than the model has room for");
}

static void take_pull(shard_turn *t, uint32_t worker, const ex_message *in)
{
    ex_row *row = row_of(t, in->key);
    ex_break broken = t->model->broken;
    if (!row->exists && (in->version == 0 || broken == EX_BREAK_CREATE_UNKNOWN))
        create_row(row, in->key);
    if (row->exists && (row->version >= in->version || broken == EX_BREAK_ANSWER_OLD ||
                        broken == EX_BREAK_CREATE_UNKNOWN))
        answer_pull(t, worker, in->slice * EX_NODES + in->node), add_waiting(t, in->key);
    else
        t->state->parked[worker][in->slice] |= 1u << in->node;
}

static void check_version(shard_turn *t, const ex_message *in)
{
    const ex_row *row = row_of(t, in->key);
    if (in->version == 0)
        ex_violate(t->model, "the shard refuses: a row of version 0");
    for (uint32_t i = 1; i <= EX_ITERATIONS; i++)
        if (row->sums[i].open && row->sums[i].base < in->version)
            ex_violate(t->model,
                       "the shard refuses: version %u while gradients wait for version %u",
                       in->version, row->sums[i].base);
}

// What a worker changed of the row that came to it, rounded.
static void take_change(shard_turn *t, const ex_message *in)
{
    ex_row *row = row_of(t, in->key);
    check_version(t, in);
    if (in->version <= in->base || row->version != in->base || (!row->exists && in->base)) {
        ex_violate(t->model, "the shard refuses: a change of version %u, the row has %u", in->base,
                   row->version);
        return;
    }
    if (!row->exists)
        create_row(row, in->key);
    row->value = ex_value_with_change(t->model->program, row->value, in->value);
    row->version = in->version;
    row_changed(t, in->key);
}

// The row is at home elsewhere, up to a version.
static void take_forget(shard_turn *t, const ex_message *in)
{
    ex_row *row = row_of(t, in->key);
    const ex_break broken = t->model->broken;
    if (row->exists && (row->version <= in->version || broken == EX_BREAK_FORGET_ANY)) {
        row->exists = false;
        row->version = row->value = 0;
    }
    for (uint32_t i = 1; i <= EX_ITERATIONS && broken == EX_BREAK_FORGET_SUMS; i++)
        row->sums[i] = (ex_sum){0};
    for (uint32_t w = 0; w < EX_WORKERS && broken == EX_BREAK_FORGET_PARKED; w++)
        for (uint32_t q = 0; q < t->model->program->slice_count; q++)
            for (uint32_t bits = t->state->parked[w][q]; bits; bits &= bits - 1) {
                const uint32_t i = (uint32_t)__builtin_ctz(bits);
                const ex_node *n = node_at(t->model, w, q * EX_NODES + i);
                if (n->key == in->key && shard_of(t->model, n) == t->shard)
                    t->state->parked[w][q] &= ~(1u << i);
            }
}

static void take_row(shard_turn *t, const ex_message *in)
{
    ex_row *row = row_of(t, in->key);
    check_version(t, in);
    if (row->exists && in->version < row->version && scenario_of(t->model)->hands &&
        t->model->broken != EX_BREAK_HAND_STORE_OLD)
        return; // it was handed on since, and the owner's push came first
    if (row->exists && in->version <= row->version && t->model->broken != EX_BREAK_STORE_ANY &&
        t->model->broken != EX_BREAK_HAND_STORE_OLD) {
        ex_violate(t->model, "a version comes to the PS a second time");
        return;
    }
    row->exists = true;
    row->version = in->version;
    row->value = in->value;
    row_changed(t, in->key);
}

static void check_gradient(shard_turn *t, uint32_t worker, const ex_message *in, const ex_node *n)
{
    const ex_row *row = row_of(t, in->key);
    const ex_sum *sum = &row->sums[in->version];
    if (!(n->mask >> worker & 1))
        ex_violate(t->model, "the shard refuses: the mask lacks the sender");
    else if (n->base >= in->version)
        ex_violate(t->model, "the shard refuses: a base that is not earlier");
    else if (sum->open && sum->arrived >> worker & 1)
        ex_violate(t->model, "the shard refuses: a gradient comes twice");
    else if (sum->open && sum->step != in->step)
        ex_violate(t->model, "the shard refuses: trainers disagree about the verdict");
    else if (sum->open && (sum->mask != n->mask || sum->base != n->base))
        ex_violate(t->model, "the shard refuses: trainers disagree about mask or base");
    else if (row->exists && row->version > n->base && t->model->broken != EX_BREAK_APPLY_AT_ONCE)
        ex_violate(t->model, "the shard refuses: base %u, the row has version %u", n->base,
                   row->version);
    for (uint32_t i = 1; i <= EX_ITERATIONS; i++)
        if (i != in->version && row->sums[i].open && row->sums[i].base == n->base)
            ex_violate(t->model, "the shard refuses: two sums on base %u", n->base);
}

static void close_sum(shard_turn *t, uint32_t key, uint32_t iteration)
{
    ex_row *row = row_of(t, key);
    ex_sum *sum = &row->sums[iteration];
    if (!row->exists && sum->base == 0)
        create_row(row, key);
    if (!row->exists || (row->version != sum->base && t->model->broken != EX_BREAK_NO_BASE_CHECK))
        return;
    apply_sum(t, key, iteration);
    row_changed(t, key);
}

static bool sum_is_complete(const ex_model *m, const ex_sum *sum)
{
    if (m->broken == EX_BREAK_SUM_INCOMPLETE && rt_bit_count(sum->arrived) == 2)
        return true;
    return sum->arrived == sum->mask;
}

static void take_gradient(shard_turn *t, uint32_t worker, const ex_message *in)
{
    const ex_node *n = node_at(t->model, worker, in->slice * EX_NODES + in->node);
    ex_row *row = row_of(t, in->key);
    ex_sum *sum = &row->sums[in->version];
    check_gradient(t, worker, in, n);
    if (t->model->failed)
        return;
    sum->open = true;
    sum->mask = n->mask;
    sum->base = n->base;
    sum->step = in->step;
    sum->arrived |= (uint8_t)(1u << worker);
    if (t->model->broken == EX_BREAK_APPLY_AT_ONCE && (row->exists || sum->base == 0)) {
        if (!row->exists)
            create_row(row, in->key);
        apply_sum(t, in->key, in->version);
        row_changed(t, in->key);
    } else if (sum_is_complete(t->model, sum)) {
        close_sum(t, in->key, in->version);
    }
}

// A confirmation leaves at once, rows when the shard has worked off what there was.
void ex_ps_receive(ex_model *m, ex_state *state, uint32_t worker, uint32_t shard)
{
    shard_turn one = {m, state, shard}, *t = &one;
    ex_message in = queue_take(&state->up[worker][shard]);
    const bool unconfirmed =
        in.kind == EX_MESSAGE_FORGET && m->broken == EX_BREAK_FORGET_UNCONFIRMED;
    if (in.kind != EX_MESSAGE_PULL && !unconfirmed)
        reply(t, worker, (ex_message){.kind = EX_MESSAGE_PUSHED});
    switch ((ex_message_kind)in.kind) {
    case EX_MESSAGE_PULL:
        take_pull(t, worker, &in);
        break;
    case EX_MESSAGE_PUSH_ROW:
        take_row(t, &in);
        break;
    case EX_MESSAGE_PUSH_GRAD:
        take_gradient(t, worker, &in);
        break;
    case EX_MESSAGE_PUSH_DELTA:
        take_delta(t, worker, &in);
        break;
    case EX_MESSAGE_PUSH_CHANGE:
        take_change(t, &in);
        break;
    case EX_MESSAGE_FORGET:
        take_forget(t, &in);
        break;
    case EX_MESSAGE_ROWS:
    case EX_MESSAGE_PUSHED:
    case EX_MESSAGE_HANDED:
    case EX_MESSAGE_SUMMAND:
        break;
    }
}
