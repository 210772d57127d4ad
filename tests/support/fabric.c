#include "tests/support/fabric.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge_worker/device/ew_device.h"
#include "edge_worker/ew_weights.h"
#include "ps_lite/ps_shard.h"
#include "runtime/rt_hash.h"
#include "tests/support/fabric_worker.h"
#include "tests/support/test.h"

#define TURNS_MAX 20000000u
#define COORDINATOR rt_peer(RT_ROLE_COORDINATOR, 0)

// ---- queues ----------------------------------------------------------------------------------

static bool queue_has_room(const fabric *f, const fabric_queue *q)
{
    return f->schedule->queue_max == 0 || q->count < f->schedule->queue_max;
}

static bool is_of_rows(uint32_t type)
{
    return type == RT_MESSAGE_PULL || type == RT_MESSAGE_ROWS || type == RT_MESSAGE_ROWS_CODED ||
           rt_message_is_push(type);
}

static rt_status offer(fabric *f, fabric_queue *q, rt_message *message)
{
    if (!queue_has_room(f, q)) {
        f->result->again++;
        return RT_AGAIN;
    }
    fabric_queue_put(q, message);
    return RT_OK;
}

static rt_status send_to_shard(void *context, uint32_t to, rt_message *message)
{
    fabric_worker *w = context;
    fabric *f = w->fabric;
    const rt_wire_header header = *rt_message_header(message);
    rt_status status = offer(f, &f->up[w->rank * f->s + to], message);
    w->blocked |= status == RT_AGAIN;
    f->bytes.up += !status && is_of_rows(header.type) ? header.payload_bytes : 0;
    return status;
}

// To a shard, or behind those to a worker.
static rt_status send_rows(void *context, uint32_t to, rt_message *message)
{
    fabric_worker *w = context;
    fabric *f = w->fabric;
    if (to < f->s)
        return send_to_shard(w, to, message);
    const rt_wire_header header = *rt_message_header(message);
    assert_true(header.type == RT_MESSAGE_HANDED || header.type == RT_MESSAGE_GRADS);
    assert_int_not_equal(to - f->s, w->rank);
    rt_status status = offer(f, &f->across[w->rank * f->n + to - f->s], message);
    w->blocked |= status == RT_AGAIN;
    f->bytes.up += !status ? header.payload_bytes : 0;
    f->bytes.down += !status ? header.payload_bytes : 0;
    return status;
}

static rt_status send_to_worker(void *context, uint32_t peer, rt_message *message)
{
    fabric_shard *s = context;
    fabric *f = s->fabric;
    const rt_wire_header header = *rt_message_header(message);
    assert_int_equal(rt_peer_role(peer), RT_ROLE_WORKER);
    rt_status status = offer(f, &f->back[s->rank * f->n + rt_peer_rank(peer)], message);
    f->bytes.down += !status && is_of_rows(header.type) ? header.payload_bytes : 0;
    return status;
}

// ---- parts -----------------------------------------------------------------------------------

// Some parts are far slower than others: that makes the rare orders.
static uint32_t random_speed(fabric *f)
{
    static const uint32_t speeds[] = {1, 4, 16, 64};
    return speeds[rt_random_below(&f->random, RT_COUNT_OF(speeds))];
}

// As rt_stripes_shards.
static uint32_t dense_shards(const fabric *f)
{
    const fabric_shape *shape = &f->plan->shape;
    const bool is_whole = !rt_optimizer_is_elementwise(&shape->dense);
    return is_whole && shape->change_every ? 1 : f->s;
}

static void create_exchange(fabric *f, fabric_worker *w)
{
    uint32_t count;
    rt_error error = {0};
    ew_exchange_config exchange = {.collective = RT_COLLECTIVE_PS,
                                   .wire = f->plan->shape.dense_wire,
                                   .rank = w->rank,
                                   .worker_count = f->n,
                                   .shard_count = dense_shards(f),
                                   .gradients = ew_model_dense(w->model, EW_GRADIENTS, &count),
                                   .timeout_s = 10,
                                   .wake_fd = -1,
                                   .send = send_to_shard,
                                   .send_context = w};
    exchange.count = count + 1;
    exchange.device_gradients = exchange.gradients;
    if (ew_exchange_create(&exchange, &w->exchange, &error))
        fail_msg("%s", error.text);
    w->weights = (ew_weights){.shared = f->plan->shape.change_every > 0,
                              .stripes = {count, exchange.shard_count},
                              .optimizer = f->plan->shape.dense,
                              .sender = rt_peer(RT_ROLE_WORKER, w->rank),
                              .exchange = w->exchange,
                              .ops = &fabric_weights_ops,
                              .context = w->model};
    assert_int_equal(ew_weights_init(&w->weights, &error), RT_OK);
}

static void create_worker(fabric *f, uint32_t rank)
{
    const fabric_shape *shape = &f->plan->shape;
    fabric_worker *w = &f->workers[rank];
    rt_error error = {0};
    uint32_t slots = f->plan->planner.slot_count[rank];
    ew_model_config model = fabric_model(f->plan, false);
    *w = (fabric_worker){.fabric = f, .rank = rank, .speed = random_speed(f)};
    assert_int_equal(ew_host_rows_init(&w->rows, slots, shape->model.embedding_dim, &shape->rows,
                                       shape->seed, (float)shape->model.init_scale),
                     RT_OK);
    if (shape->consistency.staleness > 0)
        assert_int_equal(ew_bases_init(&w->bases, slots, shape->model.embedding_dim, &shape->rows,
                                       shape->seed, (float)shape->model.init_scale),
                         RT_OK);
    if (shape->row_wire != RT_CODING_FP32)
        assert_int_equal(ew_codes_init(&w->codes, shape->row_wire, w->bases.rows ? 0 : slots,
                                       shape->model.embedding_dim, shape->seed,
                                       (float)shape->model.init_scale),
                         RT_OK);
    if (ew_model_create(&model, fabric_device(), &w->model, &error))
        fail_msg("%s", error.text);
    ew_executor_config executor = {
        .rank = rank,
        .shard_count = f->s,
        .slice_count_max = f->schedule->run_ahead + 2, // as ew_worker has it
        .push_credits = f->schedule->push_credits,
        .message_bytes = f->schedule->message_bytes,
        .limits = fabric_limits(f->plan, rank),
        .values = w->rows.values,
        .state = w->rows.state,
        .rows = &ew_host_rows_ops,
        .rows_context = &w->rows,
        .bases = w->bases.rows ? &w->bases : NULL,
        .codes = w->codes.rows ? &w->codes : NULL,
        .send = send_rows,
        .send_context = w,
    };
    assert_int_equal(ew_executor_create(&executor, &w->executor), RT_OK);
    create_exchange(f, w);
    w->before = calloc((size_t)model.row_count_max * w->rows.stride, sizeof *w->before);
    assert_non_null(w->before);
}

static void create_shard(fabric *f, uint32_t rank)
{
    const fabric_shape *shape = &f->plan->shape;
    fabric_shard *s = &f->shards[rank];
    *s = (fabric_shard){.fabric = f, .rank = rank, .speed = random_speed(f)};
    ps_shard_config config = {.rank = rank,
                              .shard_count = f->s,
                              .worker_count = f->n,
                              .dim = shape->model.embedding_dim,
                              .optimizer = shape->rows,
                              .seed = shape->seed,
                              .init_scale = (float)shape->model.init_scale,
                              .adds_deltas = shape->consistency.staleness > 0,
                              .row_wire = shape->row_wire,
                              .homes = shape->homes,
                              .memory_bytes_max = 16 << 20,
                              .gradient_bytes_max = 64 << 20,
                              .dense_bytes_max = 64 << 20,
                              .keeps_dense = shape->change_every > 0,
                              .dense_optimizer = shape->dense,
                              .pulls_parked_max = 1 << 20,
                              .message_bytes = f->schedule->message_bytes,
                              .queue_messages_max = 1 << 12,
                              .send = send_to_worker,
                              .context = s};
    assert_int_equal(ps_shard_create(&config, &s->shard), RT_OK);
}

const ew_device *fabric_device(void)
{
    static ew_device device;
    rt_error error = {0};
    if (!device.ops && ew_device_open("cpu", &device, &error))
        fail_msg("%s", error.text);
    return &device;
}

static void create(fabric *f)
{
    f->workers = calloc(f->n, sizeof *f->workers);
    f->shards = calloc(f->s, sizeof *f->shards);
    f->down = calloc(f->n, sizeof *f->down);
    f->up = calloc((size_t)f->n * f->s, sizeof *f->up);
    f->back = calloc((size_t)f->n * f->s, sizeof *f->back);
    f->across = calloc((size_t)f->n * f->n, sizeof *f->across);
    for (uint32_t i = 0; i < f->n; i++)
        f->down[i].speed = random_speed(f);
    for (uint32_t i = 0; i < f->n * f->s; i++) {
        f->up[i].speed = random_speed(f);
        f->back[i].speed = random_speed(f);
    }
    for (uint32_t i = 0; i < f->n * f->n && rt_dispatch_is_mutual(&f->plan->shape.dispatch); i++)
        f->across[i].speed = random_speed(f);
    for (uint32_t i = 0; i < f->n; i++)
        create_worker(f, i);
    for (uint32_t i = 0; i < f->s; i++)
        create_shard(f, i);
}

static void destroy(fabric *f)
{
    for (uint32_t i = 0; i < f->n; i++) {
        ew_executor_destroy(f->workers[i].executor);
        ew_exchange_destroy(f->workers[i].exchange, true);
        ew_weights_fini(&f->workers[i].weights);
        ew_model_destroy(f->workers[i].model);
        ew_host_rows_fini(&f->workers[i].rows);
        ew_bases_fini(&f->workers[i].bases);
        ew_codes_fini(&f->workers[i].codes);
        free(f->workers[i].before);
        fabric_queue_fini(&f->down[i]);
    }
    for (uint32_t i = 0; i < f->s; i++)
        ps_shard_destroy(f->shards[i].shard);
    for (uint32_t i = 0; i < f->n * f->s; i++) {
        fabric_queue_fini(&f->up[i]);
        fabric_queue_fini(&f->back[i]);
    }
    for (uint32_t i = 0; i < f->n * f->n; i++)
        fabric_queue_fini(&f->across[i]);
    free(f->workers);
    free(f->shards);
    free(f->down);
    free(f->up);
    free(f->back);
    free(f->across);
}

// ---- choices ---------------------------------------------------------------------------------

typedef enum {
    HAND_OUT,
    DOWN,
    UP,
    BACK,
    ACROSS,
    TRAIN,
    FLUSH_WORKER,
    FLUSH_SHARD,
    EXPIRE
} action_kind;

typedef struct {
    action_kind kind;
    uint32_t index;
    uint64_t weight;
} action;

typedef struct {
    action chosen;
    uint64_t total;
} lottery;

static void enter(fabric *f, lottery *draw, action_kind kind, uint32_t index, uint32_t weight)
{
    draw->total += weight;
    if (rt_random_u64(&f->random) % draw->total < weight)
        draw->chosen = (action){kind, index, weight};
}

// Of the slices that are out: those that were left out before the first that a worker has are not.
static uint64_t trained_by(const fabric *f, uint32_t worker)
{
    const fabric_worker *w = &f->workers[worker];
    uint64_t trained = w->trained;
    while (trained < w->given && !f->plan->slices[trained * f->n + worker].data)
        trained++;
    return trained < w->given ? trained : f->handed;
}

static bool may_hand_out(const fabric *f)
{
    uint64_t least = f->handed;
    for (uint32_t i = 0; i < f->n; i++)
        least = rt_min_u64(least, trained_by(f, i));
    return !f->floor && f->handed < f->plan->slice_count &&
           f->handed - least <= f->schedule->run_ahead;
}

// Everything that was given out is carried out.
static bool is_drained(const fabric *f)
{
    for (uint32_t i = 0; i < f->n; i++) {
        if (f->down[i].count || f->workers[i].dense_open ||
            !ew_executor_idle(f->workers[i].executor))
            return false;
    }
    return true;
}

// Whether the worker has the weights for its next iteration; after the last one, the last.
static bool has_weights(fabric_worker *w)
{
    rt_error error = {0};
    const rt_wire_slice *next = ew_executor_next_counts(w->executor);
    uint64_t needed = w->weights.version;
    if (next && fabric_takes_part(w, next))
        needed = next->iteration - 1;
    const bool is_end =
        !next && ew_executor_iteration(w->executor) == w->fabric->plan->shape.iterations;
    if (is_end)
        needed = w->fabric->plan->shape.iterations;
    if (next ? next->workers != rt_bit(w->rank) : is_end)
        fabric_must(w, ew_weights_share(&w->weights, &error), &error);
    rt_status status = ew_weights_get(&w->weights, needed, &error);
    fabric_must(w, status == RT_AGAIN ? RT_OK : status, &error);
    w->fabric->result->fetched += status == RT_AGAIN;
    return !status;
}

static void sit_out(fabric_worker *w)
{
    rt_counts done;
    rt_error error = {0};
    const fabric_plan *plan = w->fabric->plan;
    const uint64_t sequence = w->job.sequence;
    assert_int_equal(w->job.slice->counts.sample_count, 0);
    assert_int_equal(w->job.slice->counts.row_count, 0);
    w->trained = sequence;
    fabric_must(w, ew_executor_trained(w->executor, NULL, true, &done, &error), &error);
    assert_memory_equal(&done, &plan->counts[(sequence - 1) * w->fabric->n + w->rank], sizeof done);
}

static bool may_train(fabric_worker *w)
{
    if (w->found || w->dense_open)
        return w->found;
    while (has_weights(w) && ew_executor_next_job(w->executor, &w->job) == RT_OK) {
        w->iteration = w->job.slice->counts.iteration;
        w->found = fabric_takes_part(w, &w->job.slice->counts);
        if (w->found)
            break;
        sit_out(w);
    }
    return w->found;
}

static bool worker_has_room(const fabric *f, uint32_t rank)
{
    bool room = false;
    for (uint32_t i = 0; i < f->s; i++)
        room |= queue_has_room(f, &f->up[rank * f->s + i]);
    for (uint32_t i = 0; i < f->n; i++)
        room |= i != rank && queue_has_room(f, &f->across[rank * f->n + i]);
    return room;
}

static bool shard_has_room(const fabric *f, uint32_t rank)
{
    bool room = false;
    for (uint32_t i = 0; i < f->n; i++)
        room |= queue_has_room(f, &f->back[rank * f->n + i]);
    return room;
}

static lottery draw(fabric *f)
{
    lottery all = {0};
    for (uint32_t i = 0; i < f->n; i++)
        (void)may_train(&f->workers[i]); // who sits out is done with that, and may be given more
    if (may_hand_out(f))
        enter(f, &all, HAND_OUT, 0, 16);
    if (f->floor && is_drained(f))
        enter(f, &all, EXPIRE, 0, 16);
    for (uint32_t i = 0; i < f->n; i++) {
        fabric_worker *w = &f->workers[i];
        if (f->down[i].count)
            enter(f, &all, DOWN, i, f->down[i].speed);
        if (may_train(w))
            enter(f, &all, TRAIN, i, w->speed);
        if (w->blocked && worker_has_room(f, i))
            enter(f, &all, FLUSH_WORKER, i, w->speed);
    }
    for (uint32_t i = 0; i < f->n * f->s; i++) {
        if (f->up[i].count)
            enter(f, &all, UP, i, f->up[i].speed);
        if (f->back[i].count)
            enter(f, &all, BACK, i, f->back[i].speed);
    }
    for (uint32_t i = 0; i < f->n * f->n; i++) {
        if (f->across[i].count)
            enter(f, &all, ACROSS, i, f->across[i].speed);
    }
    for (uint32_t i = 0; i < f->s; i++) {
        if (f->shards[i].unsent && shard_has_room(f, i))
            enter(f, &all, FLUSH_SHARD, i, f->shards[i].speed);
    }
    return all;
}

static void hand_out(fabric *f)
{
    for (uint32_t i = 0; i < f->n; i++) {
        const rt_message *slice = &f->plan->slices[(size_t)f->handed * f->n + i];
        if (!slice->data)
            continue;
        rt_message message = fabric_copy(slice);
        fabric_queue_put(&f->down[i], &message);
        f->workers[i].given = f->handed + 1;
    }
    f->floor = f->plan->floors[f->handed++];
}

static void expire(fabric *f)
{
    rt_error error = {0};
    uint64_t ended;
    for (uint32_t i = 0; i < f->s; i++) {
        if (ps_shard_expire(f->shards[i].shard, f->floor, NULL, NULL, &ended, &error))
            fail_msg("shard %u: %s", i, error.text);
    }
    f->floor = 0;
    for (uint32_t i = 0; i < f->n; i++)
        f->workers[i].trained = f->handed;
}

static void deliver_slice(fabric *f, uint32_t rank)
{
    rt_error error = {0};
    rt_message message = fabric_queue_take(&f->down[rank], COORDINATOR);
    if (ew_executor_receive(f->workers[rank].executor, COORDINATOR, &message, &error))
        fail_msg("worker %u, slice: %s", rank, error.text);
    assert_null(message.data);
}

static void deliver_up(fabric *f, uint32_t index)
{
    rt_error error = {0};
    uint32_t peer = rt_peer(RT_ROLE_WORKER, index / f->s);
    fabric_shard *s = &f->shards[index % f->s];
    rt_message message = fabric_queue_take(&f->up[index], peer);
    if (ps_shard_receive(s->shard, peer, &message, &error))
        fail_msg("shard %u: %s", s->rank, error.text);
    s->unsent = true;
}

static void deliver_back(fabric *f, uint32_t index)
{
    rt_error error = {0};
    uint32_t peer = rt_peer(RT_ROLE_PS, index / f->n);
    fabric_worker *w = &f->workers[index % f->n];
    rt_message message = fabric_queue_take(&f->back[index], peer);
    if (ew_exchange_takes(rt_message_header(&message)->type))
        fabric_take_dense_sum(w, &message);
    else if (rt_message_header(&message)->type == RT_MESSAGE_DENSE_STATE)
        fabric_must(w, ew_weights_receive(&w->weights, &message, &error), &error);
    else if (ew_executor_receive(w->executor, peer, &message, &error))
        fail_msg("worker %u, from shard %u: %s", w->rank, index / f->n, error.text);
    rt_message_release(&message);
}

static void deliver_across(fabric *f, uint32_t index)
{
    rt_error error = {0};
    const uint32_t peer = rt_peer(RT_ROLE_WORKER, index / f->n);
    fabric_worker *w = &f->workers[index % f->n];
    rt_message message = fabric_queue_take(&f->across[index], peer);
    if (ew_executor_receive(w->executor, peer, &message, &error))
        fail_msg("worker %u, from worker %u: %s", w->rank, index / f->n, error.text);
    assert_null(message.data);
}

static void act(fabric *f, const action *a)
{
    rt_error error = {0};
    rt_status status = RT_OK;
    switch (a->kind) {
    case HAND_OUT:
        hand_out(f);
        break;
    case DOWN:
        deliver_slice(f, a->index);
        break;
    case UP:
        deliver_up(f, a->index);
        break;
    case BACK:
        deliver_back(f, a->index);
        break;
    case ACROSS:
        deliver_across(f, a->index);
        break;
    case TRAIN:
        if (f->workers[a->index].training)
            fabric_end_job(&f->workers[a->index]);
        else
            fabric_begin_job(&f->workers[a->index]);
        break;
    case FLUSH_WORKER:
        f->workers[a->index].blocked = false;
        status = ew_executor_flush(f->workers[a->index].executor, &error);
        if (!status)
            status = ew_exchange_advance(f->workers[a->index].exchange, &error);
        break;
    case FLUSH_SHARD:
        status = ps_shard_flush(f->shards[a->index].shard, &error);
        f->shards[a->index].unsent = status == RT_AGAIN;
        status = status == RT_AGAIN ? RT_OK : status;
        break;
    case EXPIRE:
        expire(f);
        break;
    }
    if (status)
        fail_msg("flush %u: %s", a->index, error.text);
}

// ---- the end ---------------------------------------------------------------------------------

static bool is_done(fabric *f)
{
    if (f->handed < f->plan->slice_count || !is_drained(f))
        return false;
    for (uint32_t i = 0; i < f->n; i++) {
        if (!has_weights(&f->workers[i]) || ew_exchange_is_held_up(f->workers[i].exchange))
            return false;
    }
    for (uint32_t i = 0; i < f->n * f->s; i++) {
        if (f->up[i].count) // steps that nobody confirms
            return false;
    }
    return true;
}

static void dump(const fabric *f)
{
    printf("%u of %u slices handed out\n", f->handed, f->plan->slice_count);
    for (uint32_t i = 0; i < f->n; i++) {
        const fabric_worker *w = &f->workers[i];
        printf("worker %u: trained %" PRIu64 "%s%s%s%s, %u slices on the way\n", i, w->trained,
               w->training ? ", training" : "", w->dense_open ? ", awaits a dense sum" : "",
               ew_executor_idle(w->executor) ? ", idle" : ", busy", w->blocked ? ", blocked" : "",
               f->down[i].count);
    }
    for (uint32_t i = 0; i < f->s; i++) {
        ps_shard_statistics statistics;
        ps_shard_get_statistics(f->shards[i].shard, &statistics);
        printf("shard %u: %" PRIu64 " pulls parked, %" PRIu64 " gradients waiting%s\n", i,
               statistics.pulls_parked, statistics.gradients_waiting,
               f->shards[i].unsent ? ", unsent replies" : "");
    }
    for (uint32_t i = 0; i < f->n * f->s; i++) {
        if (f->up[i].count || f->back[i].count)
            printf("worker %u -> shard %u: %u messages; shard %u -> worker %u: %u\n", i / f->s,
                   i % f->s, f->up[i].count, i / f->n, i % f->n, f->back[i].count);
    }
}

static void check_workers(fabric *f)
{
    rt_counts done = {0};
    uint32_t count;
    const float *dense = ew_model_dense(f->workers[0].model, EW_VALUES, &count);
    for (uint32_t i = 0; i < f->n; i++) {
        ew_executor_statistics statistics = ew_executor_get_statistics(f->workers[i].executor);
        assert_int_equal(statistics.stale_reads, 0);
        f->result->early += statistics.rows_early;
        f->result->handed += statistics.handed;
        f->result->gradients += statistics.gradients;
        f->result->loss_sum += f->workers[i].loss_sum;
        rt_counts_add(&done, &statistics.done);
        assert_memory_equal(ew_model_dense(f->workers[i].model, EW_VALUES, &count), dense,
                            count * sizeof *dense);
    }
    assert_memory_equal(&done, &f->plan->planned, sizeof done);
    assert_int_equal(f->result->handed, f->plan->handed);
    assert_int_equal(f->result->gradients, f->plan->gradients);
    assert_int_equal(f->bytes.up, f->plan->traffic.up);
    assert_int_equal(f->bytes.down, f->plan->traffic.down);
    f->result->dense_count = count;
    f->result->dense = malloc(count * sizeof *dense);
    memcpy(f->result->dense, dense, count * sizeof *dense);
}

static void check_shards(fabric *f)
{
    uint64_t rows = 0, keys = 0;
    for (uint32_t k = 0; k < f->plan->key_count; k++)
        keys += f->plan->versions[k] > 0;
    for (uint32_t i = 0; i < f->s; i++)
        fabric_check_part(&f->workers[0].weights, f->workers[0].model,
                          ps_shard_weights(f->shards[i].shard), i, f->plan->shape.iterations);
    for (uint32_t i = 0; i < f->s; i++) {
        ps_shard_statistics statistics;
        ps_shard_get_statistics(f->shards[i].shard, &statistics);
        assert_int_equal(statistics.pulls_parked, 0);
        assert_int_equal(statistics.gradients_waiting, 0);
        assert_int_equal(statistics.deltas_waiting, 0);
        if (!f->plan->shape.dispatch.hand_over) // where an owner's push may overtake an older one
            assert_int_equal(statistics.row_pushes_ignored, 0);
        assert_int_equal(statistics.messages_discarded, 0);
        f->result->parked = rt_max_u64(f->result->parked, statistics.pulls_parked_max);
        rows += statistics.rows;
    }
    assert_int_equal(rows, keys);
}

// At its home: where they are planned, whichever shard has it.
static const float *find_row(const fabric *f, uint64_t key, uint32_t *version_p)
{
    const float *row = NULL;
    if (f->plan->shape.homes == RT_HOMES_HASHED)
        return ps_shard_find(f->shards[rt_key_shard(key, f->s)].shard, key, version_p);
    for (uint32_t s = 0; s < f->s && !row; s++)
        row = ps_shard_find(f->shards[s].shard, key, version_p);
    return row;
}

static void collect_rows(fabric *f)
{
    const fabric_plan *plan = f->plan;
    fabric_result *result = f->result;
    result->key_count = plan->key_count;
    result->row_floats = f->workers[0].rows.values + f->workers[0].rows.state;
    result->rows = calloc((size_t)plan->key_count * result->row_floats, sizeof(float));
    for (uint32_t k = 0; k < plan->key_count; k++) {
        uint32_t version = 0;
        const float *row = find_row(f, plan->keys[k], &version);
        float *into = result->rows + (size_t)k * result->row_floats;
        if (plan->versions[k] == 0) { // it would start anew
            const fabric_shape *shape = &plan->shape;
            const uint32_t dim = shape->model.embedding_dim;
            assert_null(row);
            rt_row_init(plan->keys[k], shape->seed, (float)shape->model.init_scale, dim, into);
            rt_optimizer_init_state(&shape->rows, dim, into + dim);
            continue;
        }
        assert_non_null(row);
        if (version != plan->versions[k])
            fail_msg("key %" PRIx64 " has version %u at the PS, planned was %u", plan->keys[k],
                     version, plan->versions[k]);
        memcpy(into, row, result->row_floats * sizeof(float));
    }
}

void fabric_run(const fabric_plan *plan, const fabric_schedule *schedule, fabric_result *result)
{
    fabric f = {.plan = plan,
                .schedule = schedule,
                .result = result,
                .n = plan->shape.worker_count,
                .s = plan->shape.shard_count,
                .random = {rt_mix(schedule->seed + 1)}};
    *result = (fabric_result){0};
    create(&f);
    while (!is_done(&f)) {
        lottery next = draw(&f);
        if (next.total == 0 || ++result->turns > TURNS_MAX) {
            dump(&f);
            fail_msg("seed %" PRIu64 ", schedule %" PRIu64 ": nothing can happen any more",
                     plan->shape.seed, schedule->seed);
        }
        act(&f, &next.chosen);
    }
    check_workers(&f);
    check_shards(&f);
    collect_rows(&f);
    destroy(&f);
}

void fabric_result_fini(fabric_result *result)
{
    free(result->rows);
    free(result->dense);
}
