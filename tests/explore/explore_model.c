// Workers, PS and coordinator of the exploration together; explore_replay.c holds workers and PS
// against ew_executor and ps_shard.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/explore/explore_parts.h"

void ex_violate(ex_model *m, const char *format, ...)
{
    va_list arguments;
    if (m->failed)
        return;
    m->failed = true;
    va_start(arguments, format);
    vsnprintf(m->violation, sizeof m->violation, format, arguments);
    va_end(arguments);
}

// Of hashed homes the one; of planned ones the first shard that has the row, and no other may.
static const ex_row *find_row(ex_model *m, const ex_state *state, uint32_t key, const char *where)
{
    const ex_scenario *s = scenario_of(m);
    const ex_row *row = &state->rows[ex_shard_of(s, key)][key];
    for (uint32_t i = 0; i < s->shard_count && s->homes; i++) {
        const ex_row *other = &state->rows[i][key];
        if (other->exists && row->exists && other != row)
            ex_violate(m, "%s: key %u is at two shards", where, key);
        for (uint32_t t = 1; t <= EX_ITERATIONS; t++)
            if (other->sums[t].open)
                ex_violate(m, "%s: a sum of key %u is open", where, key);
        row = other->exists ? other : row;
    }
    return row;
}

// The rows of a shard, after iteration; where homes are planned, of all.
static void check_rows(ex_model *m, const ex_state *state, uint32_t shard, uint32_t iteration,
                       const char *where)
{
    const ex_program *p = m->program;
    for (uint32_t k = 0; k < p->scenario.key_count; k++) {
        if (!p->scenario.homes && ex_shard_of(&p->scenario, k) != shard)
            continue;
        const ex_row *row = find_row(m, state, k, where);
        const bool stale = p->scenario.staleness > 0;
        uint32_t version = stale ? p->final_version[k] : p->latest[iteration][k];
        uint32_t value = stale ? p->final_value[k] : p->expected[iteration][k];
        if (row->version != version || row->exists != (version > 0))
            ex_violate(m, "%s: key %u has version %u at the PS, not %u", where, k, row->version,
                       version);
        else if (version && row->value != value)
            ex_violate(m, "%s: key %u lacks updates or has others", where, k);
        for (uint32_t i = 1; i <= EX_ITERATIONS; i++)
            if (row->sums[i].open)
                ex_violate(m, "%s: a sum of key %u is open", where, k);
        for (uint32_t i = 0; i < EX_WAITING; i++)
            if (row->waiting[i].open)
                ex_violate(m, "%s: a change of key %u waits", where, k);
    }
}

bool ex_may_cut(const ex_model *m, const ex_state *state, uint32_t shard)
{
    uint32_t n = scenario_of(m)->worker_count, marks = 0, cut = m->program->cut_slice;
    if (!cut || state->captured >> shard & 1)
        return false;
    for (uint32_t w = 0; w < n; w++) {
        const bool early =
            m->broken == EX_BREAK_CUT_UNCONFIRMED || m->broken == EX_BREAK_SWEEP_UNCONFIRMED;
        bool marked = early ? ex_worker_done(m, state, w) : ex_idle(m, state, w);
        marks += state->workers[w].received >= cut && marked;
    }
    const bool one = m->broken == EX_BREAK_CUT_ONE_MARK || m->broken == EX_BREAK_SWEEP_ONE_MARK;
    const bool open = m->broken == EX_BREAK_CUT_OPEN || m->broken == EX_BREAK_SWEEP_OPEN;
    return marks == n || (one && marks > 0) || (open && state->captured);
}

// EXPIRE at a shard: rows end by the versions that it has, which must be those whose keys ended.
static void expire(ex_model *m, ex_state *state, uint32_t shard)
{
    const ex_scenario *s = scenario_of(m);
    uint32_t floor = s->floor + (m->broken == EX_BREAK_SWEEP_MORE);
    if (m->broken == EX_BREAK_SWEEP_LESS)
        floor--;
    for (uint32_t k = 0; k < s->key_count; k++) {
        ex_row *row = &state->rows[shard][k];
        if (m->broken == EX_BREAK_SWEEP_NOT_ALL && shard == 0)
            continue;
        for (uint32_t i = 1; i <= EX_ITERATIONS; i++) {
            if (row->exists && row->version < floor && row->sums[i].open)
                ex_violate(m, "sweep: a sum of key %u is open", k);
        }
        if (row->exists && row->version < floor)
            *row = (ex_row){0};
    }
}

static void capture(ex_model *m, ex_state *state, uint32_t shard)
{
    if (scenario_of(m)->floor)
        expire(m, state, shard);
    else
        check_rows(m, state, shard, scenario_of(m)->cut, "cut");
    state->captured |= (uint8_t)(1u << shard);
}

// ---- events ----------------------------------------------------------------------------------

// What a process of an older epoch has sent for the first row or gradient that this worker takes
// from another one. False: it takes none.
static bool add_stray(const ex_model *m, ex_state *state, uint32_t worker)
{
    for (uint32_t q = 0; q < m->program->slice_count; q++) {
        const ex_slice *slice = slice_at(m, q, worker);
        for (uint32_t i = 0; i < slice->node_count; i++) {
            const ex_node *n = &slice->nodes[i];
            const bool hands = n->kind == EX_RECV;
            if (!hands && n->kind != EX_SUM)
                continue;
            ex_message stray =
                message_of(hands ? EX_MESSAGE_HANDED : EX_MESSAGE_SUMMAND, q * EX_NODES + i, n);
            stray.old = stray.state = true;
            stray.value = ex_value_step(m->program, n->key, 1, EX_OF_NOBODY);
            queue_put(&state->across[n->peer][worker], stray);
            return true;
        }
    }
    return false;
}

void ex_start(const ex_model *m, ex_state *state)
{
    memset(state, 0, sizeof *state);
    for (uint32_t w = 0; w < EX_WORKERS; w++)
        memset(state->workers[w].credits, scenario_of(m)->push_credits, EX_SHARDS);
    for (uint32_t w = 0; w < scenario_of(m)->worker_count && scenario_of(m)->strays; w++)
        if (add_stray(m, state, w))
            break;
}

// The coordinator has up to run_ahead + 1 slices with the workers, and none that comes after a cut
// before all shards have captured it. When it hands one out, every worker may get it at once or
// later, so handing out needs no action of its own.
static bool may_receive(const ex_model *m, const ex_state *state, uint32_t worker)
{
    const ex_program *p = m->program;
    uint32_t q = state->workers[worker].received, least = p->slice_count;
    if (q == p->slice_count)
        return false;
    for (uint32_t w = 0; w < p->scenario.worker_count; w++)
        least = (uint32_t)rt_min_u64(state->workers[w].trained, least);
    if (p->cut_slice && q >= p->cut_slice && m->broken != EX_BREAK_CUT_OPEN &&
        m->broken != EX_BREAK_SWEEP_OPEN && state->captured != (1u << p->scenario.shard_count) - 1)
        return false;
    return q - least <= p->scenario.run_ahead ||
           (m->broken == EX_BREAK_RUN_AHEAD && q - least <= p->scenario.run_ahead + 2u);
}

// Requests stay in the connection behind a pull that would be parked, if that is broken.
static bool may_go_up(const ex_model *m, const ex_state *state, uint32_t worker, uint32_t shard)
{
    if (m->broken != EX_BREAK_PARKED_BLOCKS)
        return true;
    const ex_message *head = queue_head(&state->up[worker][shard]);
    const ex_row *row = &state->rows[shard][head->key];
    return head->kind != EX_MESSAGE_PULL || head->version == 0 ||
           (row->exists && row->version >= head->version);
}

static bool may_come_back(const ex_model *m, const ex_state *state, uint32_t worker, uint32_t shard)
{
    const ex_message *head = queue_head(&state->back[worker][shard]);
    return m->broken != EX_BREAK_NO_STAGING || head->kind == EX_MESSAGE_PUSHED ||
           is_released(&state->workers[worker],
                       node_at(m, worker, head->slice * EX_NODES + head->node));
}

uint32_t ex_actions(const ex_model *m, const ex_state *state, ex_action *actions)
{
    const ex_scenario *s = scenario_of(m);
    uint32_t count = 0;
    for (uint8_t w = 0; w < s->worker_count; w++) {
        if (may_receive(m, state, w))
            actions[count++] = (ex_action){EX_ACT_SLICE, w, 0};
        if (ex_worker_may_train(m, state, w))
            actions[count++] = (ex_action){EX_ACT_TRAIN, w, 0};
        if (ex_worker_may_settle(m, state, w))
            actions[count++] = (ex_action){EX_ACT_SETTLE, w, 0};
        for (uint8_t i = 0; i < s->shard_count; i++) {
            if (state->up[w][i].count && may_go_up(m, state, w, i))
                actions[count++] = (ex_action){EX_ACT_UP, w, i};
            if (state->back[w][i].count && may_come_back(m, state, w, i))
                actions[count++] = (ex_action){EX_ACT_BACK, w, i};
        }
        for (uint8_t i = 0; i < s->worker_count; i++)
            if (state->across[i][w].count)
                actions[count++] = (ex_action){EX_ACT_HAND, w, i};
    }
    for (uint8_t i = 0; i < s->shard_count; i++)
        if (ex_may_cut(m, state, i))
            actions[count++] = (ex_action){EX_ACT_CUT, 0, i};
    return count;
}

void ex_act_on(ex_model *m, ex_state *state, ex_action action)
{
    switch ((ex_act)action.act) {
    case EX_ACT_SLICE:
        ex_worker_receive_slice(m, state, action.worker);
        break;
    case EX_ACT_TRAIN:
        ex_worker_train(m, state, action.worker);
        break;
    case EX_ACT_SETTLE:
        ex_worker_settle(m, state, action.worker);
        break;
    case EX_ACT_UP:
        ex_ps_receive(m, state, action.worker, action.shard);
        break;
    case EX_ACT_BACK:
        ex_worker_receive(m, state, action.worker, action.shard);
        break;
    case EX_ACT_CUT:
        capture(m, state, action.shard);
        break;
    case EX_ACT_HAND:
        ex_worker_receive_handed(m, state, action.worker, action.shard);
        break;
    }
}

void ex_check_end(ex_model *m, const ex_state *state)
{
    const ex_program *p = m->program;
    for (uint32_t w = 0; w < p->scenario.worker_count; w++) {
        if (state->workers[w].received < p->slice_count || !ex_idle(m, state, w))
            ex_violate(m, "deadlock: worker %u has got %u of %u slices and trained %u", w,
                       state->workers[w].received, p->slice_count, state->workers[w].trained);
        for (uint32_t q = 0; q < p->slice_count; q++) {
            if (state->parked[w][q])
                ex_violate(m, "a pull is parked at the end");
            for (uint32_t i = 0; i < p->scenario.slot_count; i++)
                if (state->workers[w].sums[q][i])
                    ex_violate(m, "worker %u has a sum that it stepped no row with", w);
        }
    }
    for (uint32_t s = 0; s < p->scenario.shard_count; s++)
        check_rows(m, state, s, p->scenario.iterations, "end");
    if (p->cut_slice && state->captured != (1u << p->scenario.shard_count) - 1)
        ex_violate(m, "the cut was never complete");
}

// Rows and sums that come back. Such an answer belongs to one node of one worker; what it does to
// that worker (the node has arrived, and lands once it is released) is the same before and after
// every other event, none of which it makes possible or impossible but what waits for it. The
// executor sends nothing because of it: what follows a fill on its slot is a training. So an order
// in which it comes later leads to the same states as one in which it comes now, and those in
// between differ only in what this worker has not looked at yet. Confirmations are the same while
// credits never run out.
//
// A row that is taken in goes on at once: its answer is not free.
bool ex_is_free(const ex_model *m, const ex_state *state, ex_action action)
{
    if (action.act != EX_ACT_BACK)
        return false;
    const ex_message *head = queue_head(&state->back[action.worker][action.shard]);
    if (head->kind == EX_MESSAGE_PUSHED)
        return scenario_of(m)->push_credits >= EX_QUEUE;
    const uint32_t next = node_at(m, action.worker, head->slice * EX_NODES + head->node)->next;
    return !next || node_at(m, action.worker, next - 1)->kind != EX_PUSH_ROW;
}

// ---- packing ---------------------------------------------------------------------------------

static void put(uint8_t **to, const void *from, size_t size)
{
    memcpy(*to, from, size);
    *to += size;
}

static void put_queue(uint8_t **to, const ex_queue *q)
{
    put(to, &q->count, 1);
    for (uint32_t i = 0; i < q->count; i++)
        put(to, &q->messages[(q->first + i) % EX_QUEUE], sizeof *q->messages);
}

size_t ex_pack(const ex_model *m, const ex_state *state, uint8_t *bytes)
{
    const ex_scenario *s = scenario_of(m);
    uint8_t *to = bytes;
    for (uint32_t w = 0; w < s->worker_count; w++) {
        put(&to, &state->workers[w], sizeof state->workers[w]);
        put(&to, state->parked[w], m->program->slice_count * sizeof state->parked[w][0]);
        for (uint32_t i = 0; i < s->shard_count; i++) {
            put_queue(&to, &state->up[w][i]);
            put_queue(&to, &state->held[w][i]);
            put_queue(&to, &state->back[w][i]);
        }
        for (uint32_t i = 0; i < s->worker_count && (s->hands || s->sums); i++)
            put_queue(&to, &state->across[w][i]);
    }
    for (uint32_t k = 0; k < s->key_count; k++)
        for (uint32_t i = 0; i < s->shard_count; i++)
            if (s->homes || i == ex_shard_of(s, k))
                put(&to, &state->rows[i][k], sizeof state->rows[i][k]);
    put(&to, &state->captured, 1);
    assert_true((size_t)(to - bytes) <= EX_STATE_BYTES);
    return (size_t)(to - bytes);
}
