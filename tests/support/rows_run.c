#include "tests/support/rows_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps_lite/ps_shard.h"
#include "runtime/rt_hash.h"
#include "tests/support/fabric_parts.h"
#include "tests/support/lies.h"
#include "tests/support/records.h"
#include "tests/support/test.h"

#define EPOCH 3u
#define TYPES 90u // more than there are of messages
#define EVENTS_MAX 200000u
#define COORDINATOR rt_peer(RT_ROLE_COORDINATOR, 0)

typedef struct run run;

typedef struct {
    run *run;
    uint32_t rank;
    ew_executor *executor;
    ew_host_rows rows;
    ew_bases bases;
    ew_codes codes;
    uint64_t trained, given; // sequences: of the last job, and slice
    bool blocked;
    uint64_t said, seen; // hashes: of its messages; of what it tells of itself
    uint32_t messages[TYPES];
} worker;

typedef struct {
    run *run;
    uint32_t rank;
    ps_shard *shard;
    bool unsent;
    uint64_t said;
    uint32_t messages;
} shard;

struct run {
    const fabric_plan *plan;
    rows_run_schedule schedule;
    uint32_t n, s;
    worker *workers;
    shard *shards;
    fabric_queue *queues; // of all pairs: see queue_of
    uint32_t queue_count;
    uint32_t handed, floor;
    uint32_t sent, delivered;
    uint32_t lie_at; // 0: nobody lies
    uint64_t lie_seed;
    uint64_t taken; // hash of what came of the lie; 0: it was refused
    bool is_over;
    rt_bytes *record;
    rt_random random;
};

// ---- queues ------------------------------------------------------------------------------------

// Parts by number: workers, shards, the coordinator.
static uint32_t part_of(const run *r, uint32_t peer)
{
    if (peer == COORDINATOR)
        return r->n + r->s;
    return rt_peer_rank(peer) + (rt_peer_role(peer) == RT_ROLE_PS ? r->n : 0);
}

static uint32_t peer_of(const run *r, uint32_t part)
{
    if (part == r->n + r->s)
        return COORDINATOR;
    return part < r->n ? rt_peer(RT_ROLE_WORKER, part) : rt_peer(RT_ROLE_PS, part - r->n);
}

static fabric_queue *queue_of(const run *r, uint32_t from, uint32_t to)
{
    return &r->queues[part_of(r, from) * (r->n + r->s) + part_of(r, to)];
}

static bool is_full(run *r)
{
    return r->schedule.full_every && ++r->sent % r->schedule.full_every == 0;
}

static uint64_t hash_message(uint64_t before, uint32_t to, const rt_message *message)
{
    rt_message_header(message)->stamp = 0; // of a clock
    return rt_mix(before ^ to ^ rt_hash_bytes(message->data, message->size));
}

static rt_status send_of_worker(void *context, uint32_t partner, rt_message *message)
{
    worker *w = context;
    run *r = w->run;
    const uint32_t to =
        partner < r->s ? rt_peer(RT_ROLE_PS, partner) : rt_peer(RT_ROLE_WORKER, partner - r->s);
    if (is_full(r)) {
        w->blocked = true;
        return RT_AGAIN;
    }
    w->said = hash_message(w->said, to, message);
    w->messages[rt_message_header(message)->type]++;
    fabric_queue_put(queue_of(r, rt_peer(RT_ROLE_WORKER, w->rank), to), message);
    return RT_OK;
}

static rt_status send_of_shard(void *context, uint32_t to, rt_message *message)
{
    shard *s = context;
    run *r = s->run;
    if (is_full(r))
        return RT_AGAIN;
    s->said = hash_message(s->said, to, message);
    s->messages++;
    fabric_queue_put(queue_of(r, rt_peer(RT_ROLE_PS, s->rank), to), message);
    return RT_OK;
}

// ---- parts -------------------------------------------------------------------------------------

static void create_worker(run *r, uint32_t rank)
{
    const fabric_shape *shape = &r->plan->shape;
    const uint32_t dim = shape->model.embedding_dim;
    const float scale = (float)shape->model.init_scale;
    const uint32_t slots = r->plan->planner.slot_count[rank];
    const bool is_stale = shape->consistency.staleness > 0;
    worker *w = &r->workers[rank];
    *w = (worker){.run = r, .rank = rank};
    assert_int_equal(ew_host_rows_init(&w->rows, slots, dim, &shape->rows, shape->seed, scale),
                     RT_OK);
    if (is_stale)
        assert_int_equal(ew_bases_init(&w->bases, slots, dim, &shape->rows, shape->seed, scale),
                         RT_OK);
    if (shape->row_wire != RT_CODING_FP32)
        assert_int_equal(ew_codes_init(&w->codes, shape->row_wire, is_stale ? 0 : slots, dim,
                                       shape->seed, scale),
                         RT_OK);
    const ew_executor_config config = {.rank = rank,
                                       .shard_count = r->s,
                                       .epoch = EPOCH,
                                       .slice_count_max = r->schedule.run_ahead + 2,
                                       .push_credits = r->schedule.push_credits,
                                       .message_bytes = r->schedule.message_bytes,
                                       .one_at_a_time = r->schedule.one_at_a_time,
                                       .limits = fabric_limits(r->plan, rank),
                                       .values = w->rows.values,
                                       .state = w->rows.state,
                                       .rows = &ew_host_rows_ops,
                                       .rows_context = &w->rows,
                                       .bases = w->bases.rows ? &w->bases : NULL,
                                       .codes = w->codes.rows ? &w->codes : NULL,
                                       .send = send_of_worker,
                                       .send_context = w};
    assert_int_equal(ew_executor_create(&config, &w->executor), RT_OK);
}

static void create_shard(run *r, uint32_t rank)
{
    const fabric_shape *shape = &r->plan->shape;
    shard *s = &r->shards[rank];
    *s = (shard){.run = r, .rank = rank};
    const ps_shard_config config = {.rank = rank,
                                    .shard_count = r->s,
                                    .worker_count = r->n,
                                    .epoch = EPOCH,
                                    .dim = shape->model.embedding_dim,
                                    .optimizer = shape->rows,
                                    .seed = shape->seed,
                                    .init_scale = (float)shape->model.init_scale,
                                    .adds_deltas = shape->consistency.staleness > 0,
                                    .row_wire = shape->row_wire,
                                    .homes = shape->homes,
                                    .names_left = shape->homes == RT_HOMES_PLANNED,
                                    .memory_bytes_max = 1 << 20,
                                    .gradient_bytes_max = 1 << 20,
                                    .dense_bytes_max = 1 << 20,
                                    .pulls_parked_max = 1 << 12,
                                    .message_bytes = r->schedule.message_bytes,
                                    .queue_messages_max = 1 << 10,
                                    .send = send_of_shard,
                                    .context = s};
    assert_int_equal(ps_shard_create(&config, &s->shard), RT_OK);
}

static void create(run *r)
{
    r->queue_count = (r->n + r->s + 1) * (r->n + r->s);
    r->workers = calloc(r->n, sizeof *r->workers);
    r->shards = calloc(r->s, sizeof *r->shards);
    r->queues = calloc(r->queue_count, sizeof *r->queues);
    assert_true(r->workers && r->shards && r->queues);
    for (uint32_t i = 0; i < r->queue_count; i++) // some are slow: that makes the rare orders
        r->queues[i].speed = 1u << 2 * rt_random_below(&r->random, 3);
    for (uint32_t i = 0; i < r->n; i++)
        create_worker(r, i);
    for (uint32_t i = 0; i < r->s; i++)
        create_shard(r, i);
}

static void destroy(run *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        ew_executor_destroy(r->workers[i].executor);
        ew_host_rows_fini(&r->workers[i].rows);
        ew_bases_fini(&r->workers[i].bases);
        ew_codes_fini(&r->workers[i].codes);
    }
    for (uint32_t i = 0; i < r->s; i++)
        ps_shard_destroy(r->shards[i].shard);
    for (uint32_t i = 0; i < r->queue_count; i++)
        fabric_queue_fini(&r->queues[i]);
    free(r->workers);
    free(r->shards);
    free(r->queues);
}

// ---- lies ------------------------------------------------------------------------------------

static rt_status receive(run *r, uint32_t peer, uint32_t to, rt_message *message, rt_error *error)
{
    if (rt_peer_role(to) == RT_ROLE_PS)
        return ps_shard_receive(r->shards[rt_peer_rank(to)].shard, peer, message, error);
    return ew_executor_receive(r->workers[rt_peer_rank(to)].executor, peer, message, error);
}

// What whoever took a lie has said and counted.
static uint64_t hash_part(const run *r, uint32_t peer)
{
    const uint32_t rank = rt_peer_rank(peer);
    if (rt_peer_role(peer) == RT_ROLE_WORKER) {
        const worker *w = &r->workers[rank];
        const ew_executor_statistics got = ew_executor_get_statistics(w->executor);
        return rt_hash_bytes(&got, sizeof got) ^ w->said;
    }
    ps_shard_statistics got;
    ps_shard_get_statistics(r->shards[rank].shard, &got);
    return rt_hash_bytes(&got, sizeof got) ^ r->shards[rank].said;
}

// Validated as a transport does it. again: the same once more, or empty.
static rt_status give(run *r, uint32_t peer, uint32_t to, rt_message *message, rt_message *again,
                      rt_error *error)
{
    rt_status status = rt_message_validate(message, peer, error);
    if (!status)
        status = receive(r, peer, to, message, error);
    if (!status && again->data)
        status = receive(r, peer, to, again, error);
    rt_message_release(message);
    rt_message_release(again);
    return status;
}

// To whom it goes, what is wrong with it, and what is said to that.
static void deliver_lie(run *r, uint32_t from, uint32_t to, rt_message *message)
{
    char what[LIES_TEXT_BYTES] = "twice", name[32];
    rt_random random = {r->lie_seed};
    rt_error error = {0};
    rt_message again = {0};
    uint32_t peer = from;
    const char *type = rt_message_type_name(rt_message_header(message)->type);
    if (r->lie_seed % 7 == 0)
        again = fabric_copy(message);
    else
        lies_tell(&random, r->n + 2, message, &peer, what);
    const rt_status status = give(r, peer, to, message, &again, &error);
    r->is_over = true;
    if (!status)
        r->taken = rt_mix(hash_part(r, to)) | 1;
    else
        records_put(r->record, "%" PRIu32 " %s to %s, %s: %s", r->delivered, type,
                    rt_peer_name(to, name), what, error.text);
}

// ---- what happens ------------------------------------------------------------------------------

static void must(rt_status status, const rt_error *error)
{
    if (status)
        fail_msg("%s", error->text);
}

static void deliver(run *r, uint32_t index)
{
    rt_error error = {0};
    const uint32_t from = peer_of(r, index / (r->n + r->s)), to = peer_of(r, index % (r->n + r->s));
    fabric_queue *q = &r->queues[index];
    if (++r->delivered == r->lie_at) {
        rt_message message = q->messages[q->first++];
        q->count--;
        rt_message_header(&message)->sender = from;
        deliver_lie(r, from, to, &message);
        return;
    }
    rt_message_header(&q->messages[q->first])->sender = from;
    rt_message message = fabric_queue_take(q, from);
    must(receive(r, from, to, &message, &error), &error);
    assert_null(message.data);
    if (rt_peer_role(to) == RT_ROLE_PS)
        r->shards[rt_peer_rank(to)].unsent = true;
}

// As a fabric has it: slices that were left out are none that are out.
static uint64_t trained_by(const run *r, const worker *w)
{
    uint64_t trained = w->trained;
    while (trained < w->given && !r->plan->slices[trained * r->n + w->rank].data)
        trained++;
    return trained < w->given ? trained : r->handed;
}

static bool may_hand_out(const run *r)
{
    uint64_t least = r->handed;
    for (uint32_t i = 0; i < r->n; i++)
        least = rt_min_u64(least, trained_by(r, &r->workers[i]));
    return !r->floor && r->handed < r->plan->slice_count &&
           r->handed - least <= r->schedule.run_ahead;
}

static void hand_out(run *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        const rt_message *slice = &r->plan->slices[(size_t)r->handed * r->n + i];
        if (!slice->data)
            continue;
        rt_message message = fabric_copy(slice);
        rt_message_header(&message)->epoch = EPOCH;
        fabric_queue_put(queue_of(r, COORDINATOR, rt_peer(RT_ROLE_WORKER, i)), &message);
        r->workers[i].given = r->handed + 1;
    }
    r->floor = r->plan->floors[r->handed++];
}

static bool is_drained(const run *r)
{
    for (uint32_t i = 0; i < r->queue_count; i++)
        if (r->queues[i].count)
            return false;
    for (uint32_t i = 0; i < r->n; i++)
        if (!ew_executor_idle(r->workers[i].executor))
            return false;
    return true;
}

static void expire(run *r)
{
    for (uint32_t i = 0; i < r->s; i++) {
        uint64_t ended = 0;
        rt_error error = {0};
        must(ps_shard_expire(r->shards[i].shard, r->floor, NULL, NULL, &ended, &error), &error);
        if (r->lie_at == 0)
            records_put(r->record, "shard %" PRIu32 ": %" PRIu64 " rows below %" PRIu32 " ended", i,
                        ended, r->floor);
    }
    r->floor = 0;
    for (uint32_t i = 0; i < r->n; i++)
        r->workers[i].trained = r->handed;
}

// Sixteenths, small enough that their sums are exact.
static float *draw_gradients(const run *r, const worker *w, const rt_wire_slice *c)
{
    const uint32_t count = c->row_count * w->rows.values;
    rt_random random = {rt_mix(r->schedule.seed ^ (uint64_t)c->iteration << 8 ^ w->rank)};
    float *floats = calloc(count + 1, sizeof *floats);
    assert_non_null(floats);
    for (uint32_t i = 0; i < count; i++)
        floats[i] = (float)rt_random_below(&random, 65) / 16 - 2;
    return floats;
}

static void train(run *r, worker *w, const ew_job *job)
{
    rt_counts done;
    rt_error error = {0};
    const rt_wire_slice *c = &job->slice->counts;
    const uint32_t skip = r->schedule.skip_every;
    const bool applies = !skip || c->iteration % skip != 0;
    float *gradients = draw_gradients(r, w, c);
    for (uint32_t i = 0; applies && i < c->row_count; i++) {
        const float *one = gradients + (size_t)i * w->rows.values;
        if (job->slice->row_modes[i] == DP_MODE_OWN)
            ew_host_rows_ops.step(&w->rows, &job->slice->row_slots[i], &one, 1, c->iteration);
    }
    w->trained = job->sequence;
    must(ew_executor_trained(w->executor, gradients, applies, &done, &error), &error);
    w->seen = rt_mix(w->seen ^ rt_hash_bytes(&done, sizeof done));
    free(gradients);
}

// What it tells of itself, after whatever happened.
static void look_at(worker *w)
{
    const ew_executor *e = w->executor;
    const rt_wire_slice *next = ew_executor_next_counts(e);
    const uint64_t now[] = {ew_executor_waits_for(e), ew_executor_is_held_up(e),
                            ew_executor_has_begun(e), ew_executor_idle(e),
                            ew_executor_iteration(e), next ? next->iteration : UINT64_MAX};
    w->seen = rt_mix(w->seen ^ rt_hash_bytes(now, sizeof now));
}

static void begin_and_look(run *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        rt_error error = {0};
        bool has_begun = false;
        worker *w = &r->workers[i];
        if (r->schedule.one_at_a_time)
            must(ew_executor_begin(w->executor, &has_begun, &error), &error);
        w->seen = rt_mix(w->seen ^ has_begun);
        look_at(w);
    }
}

static bool flush(run *r)
{
    bool any = false;
    for (uint32_t i = 0; i < r->n; i++) {
        rt_error error = {0};
        any |= r->workers[i].blocked;
        if (r->workers[i].blocked) {
            r->workers[i].blocked = false;
            must(ew_executor_flush(r->workers[i].executor, &error), &error);
        }
    }
    for (uint32_t i = 0; i < r->s; i++) {
        rt_error error = {0};
        if (!r->shards[i].unsent)
            continue;
        const rt_status status = ps_shard_flush(r->shards[i].shard, &error);
        r->shards[i].unsent = status == RT_AGAIN;
        must(status == RT_AGAIN ? RT_OK : status, &error);
        any = true;
    }
    return any;
}

// One of the queues; false: all are empty.
static bool deliver_any(run *r)
{
    uint64_t total = 0;
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < r->queue_count; i++) {
        if (!r->queues[i].count)
            continue;
        total += r->queues[i].speed;
        if (rt_random_u64(&r->random) % total < r->queues[i].speed)
            chosen = i;
    }
    if (total)
        deliver(r, chosen);
    return total > 0;
}

static bool train_any(run *r)
{
    const uint32_t first = rt_random_below(&r->random, r->n);
    for (uint32_t i = 0; i < r->n; i++) {
        ew_job job;
        worker *w = &r->workers[(first + i) % r->n];
        if (ew_executor_next_job(w->executor, &job))
            continue;
        train(r, w, &job);
        return true;
    }
    return false;
}

// Something happens, whichever comes first in an order that is drawn.
static bool happens(run *r)
{
    const uint32_t first = rt_random_below(&r->random, 8);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t what = first < 4 ? 0 : first - 4;
        switch ((what + i) % 4) {
        case 0:
            if (deliver_any(r))
                return true;
            break;
        case 1:
            if (train_any(r))
                return true;
            break;
        case 2:
            if (flush(r))
                return true;
            break;
        default:
            if (!may_hand_out(r))
                break;
            hand_out(r);
            return true;
        }
    }
    if (!r->floor)
        return false;
    expire(r);
    return true;
}

// ---- the record --------------------------------------------------------------------------------

static void put_worker(run *r, const worker *w)
{
    char types[600] = "";
    const ew_executor_statistics got = ew_executor_get_statistics(w->executor);
    const size_t floats = (size_t)w->rows.slot_count * w->rows.stride;
    for (uint32_t t = 0; t < TYPES; t++) {
        const size_t used = strlen(types);
        if (w->messages[t])
            snprintf(types + used, sizeof types - used, " %s %" PRIu32, rt_message_type_name(t),
                     w->messages[t]);
    }
    records_put(r->record,
                "worker %" PRIu32 ": %s #%016" PRIx64 ", done #%016" PRIx64 ", %" PRIu64
                " stale, %" PRIu64 " early, %" PRIu64 " handed, %" PRIu64
                " gradients, seen #%016" PRIx64 ", rows #%016" PRIx64,
                w->rank, types, w->said, rt_hash_bytes(&got.done, sizeof got.done), got.stale_reads,
                got.rows_early, got.handed, got.gradients, w->seen,
                rt_hash_bytes(w->rows.slab, floats * sizeof *w->rows.slab));
}

static void put_shard(run *r, const shard *s)
{
    ps_shard_statistics got;
    uint64_t rows = 0;
    const uint32_t floats =
        r->plan->shape.model.embedding_dim +
        rt_optimizer_state_floats(&r->plan->shape.rows, r->plan->shape.model.embedding_dim);
    for (uint32_t k = 0; k < r->plan->key_count; k++) {
        uint32_t version = 0;
        const float *row = ps_shard_find(s->shard, r->plan->keys[k], &version);
        rows = rt_mix(rows ^ (row ? rt_hash_bytes(row, floats * sizeof *row) ^ version : 1));
    }
    ps_shard_get_statistics(s->shard, &got);
    records_put(r->record,
                "shard %" PRIu32 ": %" PRIu32 " messages #%016" PRIx64 ", %" PRIu64
                " rows #%016" PRIx64 ", %" PRIu64 " pulls, %" PRIu64 " most parked, counts "
                "#%016" PRIx64,
                s->rank, s->messages, s->said, got.rows, rows, got.pulls, got.pulls_parked_max,
                rt_hash_bytes(&got, sizeof got));
}

static void play(run *r)
{
    uint32_t events = 0;
    create(r);
    while (!r->is_over && happens(r)) {
        assert_true(++events < EVENTS_MAX);
        if (!r->is_over)
            begin_and_look(r);
    }
    if (!r->is_over && (!is_drained(r) || r->handed != r->plan->slice_count))
        fail_msg("nothing can happen any more: %" PRIu32 " of %" PRIu32 " slices", r->handed,
                 r->plan->slice_count);
}

uint32_t rows_run_play(const fabric_plan *plan, const rows_run_schedule *schedule, rt_bytes *record)
{
    run r = {.plan = plan,
             .schedule = *schedule,
             .n = plan->shape.worker_count,
             .s = plan->shape.shard_count,
             .record = record,
             .random = {rt_mix(schedule->seed + 1)}};
    play(&r);
    for (uint32_t i = 0; i < r.n; i++)
        put_worker(&r, &r.workers[i]);
    for (uint32_t i = 0; i < r.s; i++)
        put_shard(&r, &r.shards[i]);
    destroy(&r);
    return r.delivered;
}

uint64_t rows_run_lie(const fabric_plan *plan, const rows_run_schedule *schedule, uint32_t delivery,
                      uint64_t seed, rt_bytes *record)
{
    run r = {.plan = plan,
             .schedule = *schedule,
             .n = plan->shape.worker_count,
             .s = plan->shape.shard_count,
             .lie_at = delivery,
             .lie_seed = seed,
             .record = record,
             .random = {rt_mix(schedule->seed + 1)}};
    play(&r);
    assert_true(r.is_over);
    destroy(&r);
    return r.taken;
}
