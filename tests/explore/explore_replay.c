// The same events, at the real executors and shards.
#include <stdlib.h>
#include <string.h>

#include "edge_worker/executor/ew_executor.h"
#include "ps_lite/ps_shard.h"
#include "tests/explore/explore.h"
#include "tests/support/test.h"

#define SEED 7u
#define COORDINATOR rt_peer(RT_ROLE_COORDINATOR, 0)

typedef struct {
    rt_message messages[EX_QUEUE];
    uint32_t first, count;
} channel;

typedef struct replay replay;

typedef struct {
    replay *all;
    uint32_t rank;
    ew_executor *executor;
    ew_host_rows rows;
    ew_bases bases; // staleness
    ew_codes codes; // rounded
    ew_job job;
    float gradients[EX_SLOTS][EX_DIM];
} real_worker;

typedef struct {
    replay *all;
    uint32_t rank;
    ps_shard *shard;
} real_shard;

struct replay {
    const ex_program *program;
    real_worker workers[EX_WORKERS];
    real_shard shards[EX_SHARDS];
    channel up[EX_WORKERS][EX_SHARDS], back[EX_WORKERS][EX_SHARDS];
    channel across[EX_WORKERS][EX_WORKERS];
};

static void channel_put(channel *c, rt_message *message)
{
    assert_true(c->count < EX_QUEUE);
    c->messages[(c->first + c->count++) % EX_QUEUE] = *message;
    *message = (rt_message){0};
}

static rt_message channel_take(channel *c)
{
    rt_message message = c->messages[c->first];
    c->first = (c->first + 1) % EX_QUEUE;
    c->count--;
    return message;
}

static rt_status send_up(void *context, uint32_t to, rt_message *message)
{
    real_worker *w = context;
    const uint32_t shards = w->all->program->scenario.shard_count;
    channel_put(to < shards ? &w->all->up[w->rank][to] : &w->all->across[w->rank][to - shards],
                message);
    return RT_OK;
}

static rt_status send_back(void *context, uint32_t peer, rt_message *message)
{
    real_shard *s = context;
    channel_put(&s->all->back[rt_peer_rank(peer)][s->rank], message);
    return RT_OK;
}

// ---- parts -----------------------------------------------------------------------------------

static void create_worker(replay *r, uint32_t rank)
{
    const ex_scenario *s = &r->program->scenario;
    real_worker *w = &r->workers[rank];
    rt_optimizer_config optimizer = ex_optimizer();
    *w = (real_worker){.all = r, .rank = rank};
    assert_int_equal(ew_host_rows_init(&w->rows, ex_slots_of(s), EX_DIM, &optimizer, SEED, 0.5f),
                     RT_OK);
    if (s->staleness)
        assert_int_equal(ew_bases_init(&w->bases, ex_slots_of(s), EX_DIM, &optimizer, SEED, 0.5f),
                         RT_OK);
    if (s->rounded)
        assert_int_equal(ew_codes_init(&w->codes, RT_CODING_BF16, s->staleness ? 0 : ex_slots_of(s),
                                       EX_DIM, SEED, 0.5f),
                         RT_OK);
    ew_executor_config config = {.rank = rank,
                                 .shard_count = s->shard_count,
                                 .slice_count_max = s->run_ahead + 2u,
                                 .push_credits = s->push_credits,
                                 .message_bytes = 1, // one record
                                 .limits = {.field_count = 1,
                                            .worker_count = s->worker_count,
                                            .rank = rank,
                                            .hands = s->hands,
                                            .sums = s->sums > 0,
                                            .sample_count_max = s->slot_count,
                                            .lookup_count_max = s->slot_count,
                                            .slot_count = ex_slots_of(s),
                                            .shard_count = s->homes ? s->shard_count : 0},
                                 .values = EX_DIM,
                                 .state = EX_ROW_FLOATS - EX_DIM,
                                 .rows = &ew_host_rows_ops,
                                 .rows_context = &w->rows,
                                 .bases = w->bases.rows ? &w->bases : NULL,
                                 .codes = w->codes.rows ? &w->codes : NULL,
                                 .send = send_up,
                                 .send_context = w};
    assert_int_equal(ew_executor_create(&config, &w->executor), RT_OK);
}

static void create_shard(replay *r, uint32_t rank)
{
    const ex_scenario *s = &r->program->scenario;
    real_shard *one = &r->shards[rank];
    *one = (real_shard){.all = r, .rank = rank};
    ps_shard_config config = {.rank = rank,
                              .shard_count = s->shard_count,
                              .worker_count = s->worker_count,
                              .dim = EX_DIM,
                              .optimizer = ex_optimizer(),
                              .seed = SEED,
                              .init_scale = 0.5f,
                              .adds_deltas = s->staleness > 0,
                              .homes = s->homes ? RT_HOMES_PLANNED : RT_HOMES_HASHED,
                              .row_wire = s->rounded ? RT_CODING_BF16 : RT_CODING_FP32,
                              .memory_bytes_max = 1 << 20,
                              .gradient_bytes_max = 1 << 20,
                              .dense_bytes_max = 1 << 10,
                              .pulls_parked_max = 64,
                              .message_bytes = 1,
                              .queue_messages_max = EX_QUEUE,
                              .send = send_back,
                              .context = one};
    assert_int_equal(ps_shard_create(&config, &one->shard), RT_OK);
}

// A message of another epoch, which says nothing here.
static void put_stray(replay *r, uint32_t from, uint32_t to, const ex_message *stray)
{
    const size_t size = sizeof(rt_wire_row) + EX_ROW_FLOATS * sizeof(float);
    const rt_wire_row row = {.key = r->program->keys[stray->key], .version = stray->version};
    rt_message message;
    const rt_message_type type =
        stray->kind == EX_MESSAGE_HANDED ? RT_MESSAGE_HANDED : RT_MESSAGE_GRADS;
    assert_int_equal(rt_message_create(&message, type, rt_peer(RT_ROLE_WORKER, from),
                                       stray->slice + 1u, 1, size),
                     RT_OK);
    rt_message_header(&message)->epoch = 9;
    memset(rt_message_payload(&message), 0, size);
    memcpy(rt_message_payload(&message), &row, sizeof row);
    channel_put(&r->across[from][to], &message);
}

static void create(replay *r, const ex_program *program, const ex_state *start)
{
    memset(r, 0, sizeof *r);
    r->program = program;
    for (uint32_t from = 0; from < EX_WORKERS; from++)
        for (uint32_t to = 0; to < EX_WORKERS; to++)
            for (uint32_t i = 0; i < start->across[from][to].count; i++)
                put_stray(r, from, to, &start->across[from][to].messages[i]);
    for (uint32_t w = 0; w < program->scenario.worker_count; w++)
        create_worker(r, w);
    for (uint32_t s = 0; s < program->scenario.shard_count; s++)
        create_shard(r, s);
}

static void empty(channel *c)
{
    while (c->count) {
        rt_message message = channel_take(c);
        rt_message_release(&message);
    }
}

static void destroy(replay *r)
{
    for (uint32_t w = 0; w < r->program->scenario.worker_count; w++) {
        ew_executor_destroy(r->workers[w].executor);
        ew_host_rows_fini(&r->workers[w].rows);
        ew_bases_fini(&r->workers[w].bases);
        ew_codes_fini(&r->workers[w].codes);
        for (uint32_t s = 0; s < r->program->scenario.shard_count; s++) {
            empty(&r->up[w][s]);
            empty(&r->back[w][s]);
        }
        for (uint32_t i = 0; i < EX_WORKERS; i++)
            empty(&r->across[w][i]);
    }
    for (uint32_t s = 0; s < r->program->scenario.shard_count; s++)
        ps_shard_destroy(r->shards[s].shard);
}

// ---- messages --------------------------------------------------------------------------------

static void same_floats(const ex_program *p, uint32_t value, const uint8_t *bytes, uint32_t count)
{
    assert_memory_equal(bytes, p->values[value].floats, count * sizeof(float));
}

static void same_pull(const ex_program *p, const ex_message *want, const uint8_t *record)
{
    rt_wire_pull pull;
    memcpy(&pull, record, sizeof pull);
    assert_int_equal(pull.key, p->keys[want->key]);
    assert_int_equal(pull.version, want->version);
    assert_int_equal(pull.tag & RT_WIRE_TAG_STATE ? 1 : 0, want->state);
}

// Values in 16 bits, and state in 32, or none: NULL.
static void same_coded(const float floats[EX_DIM], const float *state, const uint8_t *bytes)
{
    uint32_t words[EX_DIM];
    const size_t size = rt_coding_words(RT_CODING_BF16, EX_DIM) * sizeof *words;
    rt_coding_pack(RT_CODING_BF16, floats, EX_DIM, words);
    assert_memory_equal(bytes, words, size);
    if (state)
        assert_memory_equal(bytes + size, state, (EX_ROW_FLOATS - EX_DIM) * sizeof *state);
}

static void same_change(const ex_program *p, const ex_message *want, const uint8_t *record)
{
    rt_wire_change change;
    float floats[EX_ROW_FLOATS];
    memcpy(&change, record, sizeof change);
    assert_int_equal(change.key, p->keys[want->key]);
    assert_int_equal(change.version, want->version);
    assert_int_equal(change.base, want->base);
    ex_value_change(p, want->value, floats);
    same_coded(floats, p->values[want->value].floats + EX_DIM, record + sizeof change);
}

// The floats of the row that is meant, behind its head.
static const uint8_t *row_floats(const ex_program *p, const ex_message *want, const uint8_t *record)
{
    rt_wire_row row;
    memcpy(&row, record, sizeof row);
    assert_int_equal(row.key, p->keys[want->key]);
    assert_int_equal(row.version, want->version);
    return record + sizeof row;
}

static void same_row(const ex_program *p, uint32_t worker, const ex_message *want,
                     const uint8_t *record)
{
    const ex_node *n = &p->slices[want->slice][worker].nodes[want->node];
    const uint8_t *coded = row_floats(p, want, record);
    if (want->kind == EX_MESSAGE_ROWS && p->scenario.rounded && want->version && !n->whole) {
        const float *floats = p->values[want->value].floats;
        same_coded(floats, want->state ? floats + EX_DIM : NULL, coded);
        return;
    }
    same_floats(p, want->value, coded,
                want->state || want->kind != EX_MESSAGE_ROWS ? EX_ROW_FLOATS : EX_DIM);
}

static void same_gradient(const ex_program *p, uint32_t worker, const ex_message *want,
                          const uint8_t *record)
{
    const ex_node *n = &p->slices[want->slice][worker].nodes[want->node];
    rt_wire_grad grad;
    float own[EX_DIM];
    memcpy(&grad, record, sizeof grad);
    assert_int_equal(grad.key, p->keys[want->key]);
    assert_int_equal(grad.mask, n->mask);
    assert_int_equal(grad.base, n->base);
    assert_int_equal(grad.step, want->step ? RT_WIRE_STEP : RT_WIRE_NO_STEP);
    ex_gradient(want->version, 1u << worker, own);
    if (p->scenario.rounded)
        same_coded(own, NULL, record + sizeof grad);
    else
        assert_memory_equal(record + sizeof grad, own, sizeof own);
}

static void same_delta(const ex_program *p, uint32_t worker, const ex_message *want,
                       const uint8_t *record)
{
    const ex_node *n = &p->slices[want->slice][worker].nodes[want->node];
    rt_wire_delta delta;
    float change[EX_ROW_FLOATS];
    memcpy(&delta, record, sizeof delta);
    assert_int_equal(delta.key, p->keys[want->key]);
    assert_int_equal(delta.version, want->version);
    assert_int_equal(delta.base, n->base);
    assert_int_equal(delta.pulls, n->peer);
    ex_value_change(p, want->value, change);
    if (p->scenario.rounded)
        same_coded(change, change + EX_DIM, record + sizeof delta);
    else
        assert_memory_equal(record + sizeof delta, change, sizeof change);
}

static void same_message(const ex_program *p, uint32_t worker, const ex_message *want,
                         const rt_message *got)
{
    static const rt_message_type types[] = {[EX_MESSAGE_PULL] = RT_MESSAGE_PULL,
                                            [EX_MESSAGE_PUSH_ROW] = RT_MESSAGE_PUSH_ROW,
                                            [EX_MESSAGE_PUSH_GRAD] = RT_MESSAGE_PUSH_GRAD,
                                            [EX_MESSAGE_PUSH_DELTA] = RT_MESSAGE_PUSH_DELTA,
                                            [EX_MESSAGE_PUSH_CHANGE] = RT_MESSAGE_PUSH_CHANGE,
                                            [EX_MESSAGE_FORGET] = RT_MESSAGE_FORGET,
                                            [EX_MESSAGE_ROWS] = RT_MESSAGE_ROWS,
                                            [EX_MESSAGE_PUSHED] = RT_MESSAGE_PUSHED,
                                            [EX_MESSAGE_HANDED] = RT_MESSAGE_HANDED,
                                            [EX_MESSAGE_SUMMAND] = RT_MESSAGE_GRADS};
    static const rt_message_type coded_types[EX_MESSAGE_SUMMAND + 1] = {
        [EX_MESSAGE_PUSH_GRAD] = RT_MESSAGE_PUSH_GRAD_CODED,
        [EX_MESSAGE_PUSH_DELTA] = RT_MESSAGE_PUSH_DELTA_CODED,
        [EX_MESSAGE_ROWS] = RT_MESSAGE_ROWS_CODED};
    const rt_wire_header *header = rt_message_header(got);
    const uint8_t *record = rt_message_payload(got);
    const rt_message_type coded = coded_types[want->kind];
    assert_int_equal(header->type, p->scenario.rounded && coded ? coded : types[want->kind]);
    if (want->kind == EX_MESSAGE_PUSHED)
        return;
    assert_int_equal(header->count, 1);
    if (want->kind == EX_MESSAGE_PUSH_GRAD)
        assert_true(header->iteration == (want->version | (uint64_t)p->short_samples[want->version]
                                                              << RT_WIRE_SHORT_BIT));
    else
        assert_int_equal(header->iteration, want->slice + 1);
    if (want->kind == EX_MESSAGE_PULL || want->kind == EX_MESSAGE_FORGET)
        same_pull(p, want, record);
    else if (want->kind == EX_MESSAGE_PUSH_DELTA)
        same_delta(p, worker, want, record);
    else if (want->kind == EX_MESSAGE_PUSH_CHANGE)
        same_change(p, want, record);
    else if (want->kind == EX_MESSAGE_PUSH_GRAD || want->kind == EX_MESSAGE_SUMMAND)
        same_gradient(p, worker, want, record);
    else
        same_row(p, worker, want, record);
}

// Messages that the last action added; those before were compared when they came.
static void same_channel(const ex_program *p, uint32_t worker, const ex_queue *want,
                         const channel *got, uint32_t known)
{
    assert_int_equal(got->count, want->count);
    for (uint32_t i = known; i < want->count; i++)
        same_message(p, worker, &want->messages[(want->first + i) % EX_QUEUE],
                     &got->messages[(got->first + i) % EX_QUEUE]);
}

static uint32_t kept(const ex_queue *before, bool taken)
{
    return before->count - taken;
}

static void compare(const replay *r, ex_action a, const ex_state *before, const ex_state *after)
{
    const ex_scenario *s = &r->program->scenario;
    for (uint32_t w = 0; w < s->worker_count; w++)
        for (uint32_t i = 0; i < s->shard_count; i++) {
            bool here = a.worker == w && a.shard == i;
            same_channel(r->program, w, &after->up[w][i], &r->up[w][i],
                         kept(&before->up[w][i], here && a.act == EX_ACT_UP));
            same_channel(r->program, w, &after->back[w][i], &r->back[w][i],
                         kept(&before->back[w][i], here && a.act == EX_ACT_BACK));
        }
    for (uint32_t w = 0; w < s->worker_count; w++)
        for (uint32_t i = 0; i < s->worker_count; i++) {
            const bool here = a.act == EX_ACT_HAND && a.shard == w && a.worker == i;
            same_channel(r->program, w, &after->across[w][i], &r->across[w][i],
                         kept(&before->across[w][i], here));
        }
}

// ---- events ----------------------------------------------------------------------------------

static void receive_slice(real_worker *w, uint32_t q)
{
    rt_error error = {0};
    const rt_message *from = &w->all->program->messages[q][w->rank];
    uint8_t *data = malloc(from->size);
    assert_non_null(data);
    memcpy(data, from->data, from->size);
    rt_message message = {data, from->size, free, data};
    if (ew_executor_receive(w->executor, COORDINATOR, &message, &error))
        fail_msg("%s", error.text);
}

// The rows of a job are those that the model has in these slots.
static void begin_job(real_worker *w, const ex_worker *model)
{
    const ex_program *p = w->all->program;
    assert_int_equal(ew_executor_next_job(w->executor, &w->job), RT_OK);
    const dp_slice_view *slice = w->job.slice;
    for (uint32_t i = 0; i < slice->counts.row_count; i++) {
        uint32_t at = slice->row_slots[i];
        const ex_slot *slot = &model->slots[at];
        same_floats(p, slot->value, (const uint8_t *)(w->rows.slab + at * w->rows.stride),
                    slot->state ? EX_ROW_FLOATS : EX_DIM);
        ex_gradient(slice->counts.iteration, 1u << w->rank, w->gradients[i]);
    }
}

static void end_job(real_worker *w)
{
    const dp_slice_view *slice = w->job.slice;
    bool apply = !ex_is_bad(&w->all->program->scenario, slice->counts.iteration);
    rt_error error = {0};
    for (uint32_t i = 0; apply && i < slice->counts.row_count; i++) {
        const float *gradient = w->gradients[i];
        if (slice->row_modes[i] == DP_MODE_OWN)
            ew_host_rows_ops.step(&w->rows, &slice->row_slots[i], &gradient, 1,
                                  slice->counts.iteration);
    }
    if (ew_executor_trained(w->executor, w->gradients[0], apply, NULL, &error))
        fail_msg("%s", error.text);
}

static void deliver_up(replay *r, uint32_t worker, uint32_t shard)
{
    rt_error error = {0};
    rt_message message = channel_take(&r->up[worker][shard]);
    if (ps_shard_receive(r->shards[shard].shard, rt_peer(RT_ROLE_WORKER, worker), &message,
                         &error) ||
        ps_shard_flush(r->shards[shard].shard, &error))
        fail_msg("%s", error.text);
}

static void deliver_back(replay *r, uint32_t worker, uint32_t shard)
{
    rt_error error = {0};
    rt_message message = channel_take(&r->back[worker][shard]);
    if (ew_executor_receive(r->workers[worker].executor, rt_peer(RT_ROLE_PS, shard), &message,
                            &error))
        fail_msg("%s", error.text);
}

static void deliver_across(replay *r, uint32_t worker, uint32_t from)
{
    rt_error error = {0};
    rt_message message = channel_take(&r->across[from][worker]);
    if (ew_executor_receive(r->workers[worker].executor, rt_peer(RT_ROLE_WORKER, from), &message,
                            &error))
        fail_msg("%s", error.text);
}

static void same_shard(const replay *r, const ex_state *state, uint32_t shard)
{
    const ex_program *p = r->program;
    for (uint32_t k = 0; k < p->scenario.key_count; k++) {
        uint32_t version = 0;
        const ex_row *want = &state->rows[shard][k];
        const float *row = ps_shard_find(r->shards[shard].shard, p->keys[k], &version);
        assert_int_equal(row != NULL, want->exists);
        assert_int_equal(row ? version : 0, want->version);
        if (row)
            same_floats(p, want->value, (const uint8_t *)row, EX_ROW_FLOATS);
    }
}

// Of a worker: what it would answer to a MARK, and whether it has a job.
static void same_worker(const replay *r, const ex_state *state, uint32_t worker)
{
    const ex_model model = {.program = (ex_program *)(uintptr_t)r->program};
    assert_int_equal(ew_executor_idle(r->workers[worker].executor), ex_idle(&model, state, worker));
}

static void expire(replay *r, uint32_t shard)
{
    rt_error error = {0};
    uint64_t ended;
    if (ps_shard_expire(r->shards[shard].shard, r->program->scenario.floor, NULL, NULL, &ended,
                        &error))
        fail_msg("%s", error.text);
}

static void act(replay *r, ex_action a, const ex_state *before)
{
    real_worker *w = &r->workers[a.worker];
    switch ((ex_act)a.act) {
    case EX_ACT_SLICE:
        receive_slice(w, before->workers[a.worker].received);
        break;
    case EX_ACT_TRAIN:
        begin_job(w, &before->workers[a.worker]);
        if (!r->program->scenario.guard)
            end_job(w);
        break;
    case EX_ACT_SETTLE:
        end_job(w);
        break;
    case EX_ACT_UP:
        deliver_up(r, a.worker, a.shard);
        break;
    case EX_ACT_BACK:
        deliver_back(r, a.worker, a.shard);
        break;
    case EX_ACT_CUT:
        same_shard(r, before, a.shard);
        if (r->program->scenario.floor)
            expire(r, a.shard);
        break;
    case EX_ACT_HAND:
        deliver_across(r, a.worker, a.shard);
        break;
    }
}

static void check_end(const replay *r, const ex_state *state)
{
    const ex_program *p = r->program;
    uint64_t handed = 0, gradients = 0;
    for (uint32_t s = 0; s < p->scenario.shard_count; s++) {
        ps_shard_statistics statistics;
        ps_shard_get_statistics(r->shards[s].shard, &statistics);
        assert_int_equal(statistics.pulls_parked, 0);
        assert_int_equal(statistics.gradients_waiting, 0);
        if (!p->scenario.hands) // else an owner's push may overtake that of who had the row before
            assert_int_equal(statistics.row_pushes_ignored, 0);
        same_shard(r, state, s);
    }
    for (uint32_t w = 0; w < p->scenario.worker_count; w++) {
        ew_executor_statistics statistics = ew_executor_get_statistics(r->workers[w].executor);
        assert_int_equal(statistics.stale_reads, 0);
        handed += statistics.handed;
        gradients += statistics.gradients;
        assert_memory_equal(&statistics.done, &p->planned[w], sizeof statistics.done);
        assert_true(ew_executor_idle(r->workers[w].executor));
    }
    assert_int_equal(handed, p->operations[DP_OP_SEND]);
    assert_int_equal(handed, p->operations[DP_OP_RECV]);
    assert_int_equal(gradients, p->operations[DP_OP_REDUCE]);
    assert_int_equal(gradients, p->operations[DP_OP_SUM]);
}

void ex_replay(void *context, const ex_program *program, const ex_action *actions, uint32_t count,
               const ex_state *const *states)
{
    ex_replayed *replayed = context;
    const ex_model model = {.program = (ex_program *)(uintptr_t)program};
    ex_action possible[EX_ACTIONS];
    replay r;
    create(&r, program, states[0]);
    for (uint32_t i = 0; i < count; i++) {
        act(&r, actions[i], states[i]);
        compare(&r, actions[i], states[i], states[i + 1]);
        same_worker(&r, states[i + 1], actions[i].worker);
    }
    if (ex_actions(&model, states[count], possible) == 0)
        check_end(&r, states[count]);
    destroy(&r);
    replayed->runs++;
    replayed->actions += count;
}
