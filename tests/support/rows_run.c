#include "tests/support/rows_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps_lite/ps_shard.h"
#include "runtime/rt_hash.h"
#include "tests/support/fabric_parts.h"
#include "tests/support/lies.h"
#include "tests/support/test.h"

#define EPOCH 3u
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
    uint64_t sent; // messages
} worker;

typedef struct {
    run *run;
    uint32_t rank;
    ps_shard *shard;
    bool unsent;
    uint64_t sent; // messages
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
    bool is_taken;
    bool is_over;
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
    w->sent++;
    fabric_queue_put(queue_of(r, rt_peer(RT_ROLE_WORKER, w->rank), to), message);
    return RT_OK;
}

static rt_status send_of_shard(void *context, uint32_t to, rt_message *message)
{
    shard *s = context;
    run *r = s->run;
    if (is_full(r))
        return RT_AGAIN;
    s->sent++;
    fabric_queue_put(queue_of(r, rt_peer(RT_ROLE_PS, s->rank), to), message);
    return RT_OK;
}

static uint32_t row_floats(const fabric_plan *plan)
{
    const uint32_t dim = plan->shape.model.embedding_dim;
    return dim + rt_optimizer_state_floats(&plan->shape.rows, dim);
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

static void must(rt_status status, const rt_error *error)
{
    if (status)
        fail_msg("%s", error->text);
}

// ---- lies ------------------------------------------------------------------------------------

static rt_status receive(run *r, uint32_t peer, uint32_t to, rt_message *message, rt_error *error)
{
    if (rt_peer_role(to) == RT_ROLE_PS)
        return ps_shard_receive(r->shards[rt_peer_rank(to)].shard, peer, message, error);
    return ew_executor_receive(r->workers[rt_peer_rank(to)].executor, peer, message, error);
}

// The rows of whoever gets a message.
static uint64_t hash_rows(const run *r, uint32_t peer)
{
    const uint32_t rank = rt_peer_rank(peer), floats = row_floats(r->plan);
    uint64_t rows = 0;
    if (rt_peer_role(peer) == RT_ROLE_WORKER) {
        const ew_host_rows *own = &r->workers[rank].rows;
        const size_t count = (size_t)own->slot_count * own->stride;
        return rt_hash_bytes(own->slab, count * sizeof *own->slab);
    }
    for (uint32_t k = 0; k < r->plan->key_count; k++) {
        uint32_t version = 0;
        const float *row = ps_shard_find(r->shards[rank].shard, r->plan->keys[k], &version);
        rows = rt_mix(rows ^ (row ? rt_hash_bytes(row, floats * sizeof *row) ^ version : 1));
    }
    return rows;
}

static uint64_t sent_by(const run *r, uint32_t peer)
{
    const uint32_t rank = rt_peer_rank(peer);
    return rt_peer_role(peer) == RT_ROLE_WORKER ? r->workers[rank].sent : r->shards[rank].sent;
}

// Validated as a transport does it.
static rt_status give(run *r, uint32_t peer, uint32_t to, rt_message *message, rt_error *error)
{
    rt_status status = rt_message_validate(message, peer, error);
    if (!status)
        status = receive(r, peer, to, message, error);
    rt_message_release(message);
    return status;
}

// It is of another length than it says, and not of those that are taken at their word.
static bool must_refuse(const rt_wire_header *was, const rt_wire_header *is)
{
    return (was->count != is->count || was->payload_bytes != is->payload_bytes) &&
           is->type != RT_MESSAGE_PUSHED && is->type != RT_MESSAGE_SLICE &&
           is->type != RT_MESSAGE_HANDED;
}

// By these nothing may change, be they refused or passed over. Of others the records in front of
// the wrong one may count: who refuses one ends.
static bool must_change_nothing(const rt_wire_header *was, const rt_wire_header *is, bool refused)
{
    return (was->epoch != is->epoch && is->type != RT_MESSAGE_PUSHED) ||
           (refused && was->type != is->type);
}

static void check_lie(bool ok, const char *what, const char *type, const rt_error *error)
{
    if (!ok)
        fail_msg("%s, %s (\"%s\")", type, what, error->text);
}

// Whoever refuses one says why, and answers nothing.
static void deliver_lie(run *r, uint32_t from, uint32_t to, rt_message *message)
{
    char what[LIES_TEXT_BYTES] = "twice";
    rt_random random = {r->lie_seed};
    rt_error error = {0};
    uint32_t peer = from;
    const rt_wire_header was = *rt_message_header(message);
    const char *type = rt_message_type_name(was.type);
    if (r->lie_seed % 7 == 0) {
        rt_message first = fabric_copy(message);
        must(give(r, from, to, &first, &error), &error);
    } else {
        lies_tell(&random, r->n + 2, message, &peer, what);
    }
    const rt_wire_header is = *rt_message_header(message);
    const uint64_t rows = hash_rows(r, to), sent = sent_by(r, to);
    const rt_status status = give(r, peer, to, message, &error);
    const bool same = hash_rows(r, to) == rows && sent_by(r, to) == sent;
    r->is_over = true;
    r->is_taken = !status;
    printf("%s, %s\n", type, what);
    check_lie(status || !must_refuse(&was, &is), "is taken", type, &error);
    check_lie(!status || *error.text, "is refused without a reason", type, &error);
    check_lie(!status || sent_by(r, to) == sent, "is refused and answered", type, &error);
    check_lie(same || !must_change_nothing(&was, &is, status), "changes something", type, &error);
}

// ---- what happens ------------------------------------------------------------------------------

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
    }
    r->floor = 0;
    for (uint32_t i = 0; i < r->n; i++)
        r->workers[i].trained = r->handed;
}

// Sixteenths, small enough that their sums are exact.
static float *draw_gradients(const run *r, uint32_t rank, const rt_wire_slice *c)
{
    const uint32_t count = c->row_count * r->plan->shape.model.embedding_dim;
    rt_random random = {rt_mix(r->schedule.seed ^ (uint64_t)c->iteration << 8 ^ rank)};
    float *floats = calloc(count + 1, sizeof *floats);
    assert_non_null(floats);
    for (uint32_t i = 0; i < count; i++)
        floats[i] = (float)rt_random_below(&random, 65) / 16 - 2;
    return floats;
}

static bool counts(const run *r, uint32_t iteration)
{
    return !r->schedule.skip_every || iteration % r->schedule.skip_every != 0;
}

static void train(run *r, worker *w, const ew_job *job)
{
    rt_counts done;
    rt_error error = {0};
    const rt_wire_slice *c = &job->slice->counts;
    const bool applies = counts(r, c->iteration);
    float *gradients = draw_gradients(r, w->rank, c);
    for (uint32_t i = 0; applies && i < c->row_count; i++) {
        const float *one = gradients + (size_t)i * w->rows.values;
        if (job->slice->row_modes[i] == DP_MODE_OWN)
            ew_host_rows_ops.step(&w->rows, &job->slice->row_slots[i], &one, 1, c->iteration);
    }
    w->trained = job->sequence;
    must(ew_executor_trained(w->executor, gradients, applies, &done, &error), &error);
    free(gradients);
}

static void check_idle(run *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        const ew_executor *e = r->workers[i].executor;
        if (ew_executor_idle(e)) // who has nothing to do waits for nothing
            assert_true(!ew_executor_waits_for(e) && !ew_executor_is_held_up(e));
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

// ---- what must have come of it -----------------------------------------------------------------

// A row as one loop over all slices has it.
typedef struct {
    float *row, *sum;         // values and state; gradients of the iteration
    uint32_t version, summed; // iterations; summed: of sum
} wanted_row;

static void begin_anew(const run *r, uint32_t k, wanted_row *one)
{
    const fabric_shape *shape = &r->plan->shape;
    const uint32_t dim = shape->model.embedding_dim;
    one->version = 0;
    rt_row_init(r->plan->keys[k], shape->seed, (float)shape->model.init_scale, dim, one->row);
    rt_optimizer_init_state(&shape->rows, dim, one->row + dim);
}

static uint32_t index_of(const fabric_plan *plan, uint64_t key)
{
    uint32_t low = 0, high = plan->key_count;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (plan->keys[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    assert_true(low < plan->key_count && plan->keys[low] == key);
    return low;
}

// What a worker's slots have, and what its gradients add.
static void add_slice(const run *r, uint32_t rank, const rt_message *slice, uint64_t *keys,
                      wanted_row *all)
{
    dp_slice_view view;
    rt_error error = {0};
    const dp_slice_limits limits = fabric_limits(r->plan, rank);
    const uint32_t dim = r->plan->shape.model.embedding_dim;
    must(dp_slice_decode(slice, &limits, &view, &error), &error);
    const rt_wire_slice *c = &view.counts;
    for (uint32_t i = 0; i < c->pull_count; i++)
        keys[view.pull_slots[i]] = view.pull_keys[i];
    for (uint32_t i = 0; i < c->init_count; i++)
        keys[view.init_slots[i]] = view.init_keys[i];
    float *gradients = draw_gradients(r, rank, c);
    for (uint32_t i = 0; i < c->row_count; i++) {
        wanted_row *one = &all[index_of(r->plan, keys[view.row_slots[i]])];
        if (one->summed != c->iteration)
            memset(one->sum, 0, dim * sizeof *one->sum);
        one->summed = c->iteration;
        for (uint32_t d = 0; d < dim; d++)
            one->sum[d] += gradients[(size_t)i * dim + d];
    }
    free(gradients);
}

// Rows that were trained in slice s make their step, rows below its floor end.
static void end_slice(const run *r, uint32_t s, uint32_t iteration, wanted_row *all)
{
    const fabric_shape *shape = &r->plan->shape;
    const uint32_t dim = shape->model.embedding_dim;
    for (uint32_t k = 0; k < r->plan->key_count; k++) {
        wanted_row *one = &all[k];
        if (iteration && one->summed == iteration) {
            if (counts(r, iteration))
                rt_optimizer_step(&shape->rows, dim, iteration, one->row, one->row + dim, one->sum);
            one->version = iteration;
        }
        if (one->version < r->plan->floors[s])
            begin_anew(r, k, one);
    }
}

// At the one shard that has it.
static const float *find_row(const run *r, uint64_t key, uint32_t *version_p)
{
    const float *row = NULL;
    for (uint32_t i = 0; i < r->s; i++) {
        const float *here = ps_shard_find(r->shards[i].shard, key, version_p);
        assert_true(!row || !here);
        row = here ? here : row;
    }
    return row;
}

static void check_rows(const run *r, const wanted_row *all)
{
    const fabric_shape *shape = &r->plan->shape;
    const bool is_exact = shape->row_wire == RT_CODING_FP32 && shape->consistency.staleness == 0;
    for (uint32_t k = 0; k < r->plan->key_count; k++) {
        uint32_t version = 0;
        const float *row = find_row(r, r->plan->keys[k], &version);
        if (version != r->plan->versions[k] || (is_exact && version != all[k].version))
            fail_msg("key %" PRIx64 " has version %" PRIu32 ", planned was %" PRIu32
                     ", trained last in %" PRIu32,
                     r->plan->keys[k], version, r->plan->versions[k], all[k].version);
        if (row && is_exact)
            assert_memory_equal(row, all[k].row, row_floats(r->plan) * sizeof *row);
    }
}

static void check_counts(const run *r)
{
    rt_counts done = {0};
    uint64_t handed = 0, gradients = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        const ew_executor_statistics got = ew_executor_get_statistics(r->workers[i].executor);
        rt_counts_add(&done, &got.done);
        handed += got.handed;
        gradients += got.gradients;
        assert_int_equal(got.stale_reads, 0);
    }
    assert_memory_equal(&done, &r->plan->planned, sizeof done);
    assert_int_equal(handed, r->plan->handed);
    assert_int_equal(gradients, r->plan->gradients);
    for (uint32_t i = 0; i < r->s; i++) {
        ps_shard_statistics got;
        ps_shard_get_statistics(r->shards[i].shard, &got);
        assert_int_equal(got.pulls_parked + got.gradients_waiting + got.deltas_waiting, 0);
        assert_int_equal(got.messages_discarded, 0);
    }
}

static void check(const run *r)
{
    const uint32_t floats = row_floats(r->plan), n = r->plan->key_count;
    wanted_row *all = calloc(n, sizeof *all);
    float *memory = calloc((size_t)n * 2 * floats, sizeof *memory);
    uint64_t *keys[RT_WORKERS_MAX];
    assert_true(all && memory);
    for (uint32_t k = 0; k < n; k++) {
        all[k].row = memory + (size_t)k * 2 * floats;
        all[k].sum = all[k].row + floats;
        begin_anew(r, k, &all[k]);
    }
    for (uint32_t i = 0; i < r->n; i++)
        keys[i] = calloc(r->plan->planner.slot_count[i], sizeof **keys);
    for (uint32_t s = 0; s < r->plan->slice_count; s++) {
        uint32_t iteration = 0;
        for (uint32_t i = 0; i < r->n; i++) {
            const rt_message *slice = &r->plan->slices[(size_t)s * r->n + i];
            rt_wire_slice head;
            if (!slice->data)
                continue;
            memcpy(&head, rt_message_payload(slice), sizeof head);
            iteration = head.iteration;
            add_slice(r, i, slice, keys[i], all);
        }
        end_slice(r, s, iteration, all);
    }
    check_rows(r, all);
    check_counts(r);
    for (uint32_t i = 0; i < r->n; i++)
        free(keys[i]);
    free(memory);
    free(all);
}

static void play(run *r)
{
    uint32_t events = 0;
    create(r);
    while (!r->is_over && happens(r)) {
        assert_true(++events < EVENTS_MAX);
        if (!r->is_over)
            check_idle(r);
    }
    if (!r->is_over && (!is_drained(r) || r->handed != r->plan->slice_count))
        fail_msg("nothing can happen any more: %" PRIu32 " of %" PRIu32 " slices", r->handed,
                 r->plan->slice_count);
}

static run run_of(const fabric_plan *plan, const rows_run_schedule *schedule)
{
    return (run){.plan = plan,
                 .schedule = *schedule,
                 .n = plan->shape.worker_count,
                 .s = plan->shape.shard_count,
                 .random = {rt_mix(schedule->seed + 1)}};
}

uint32_t rows_run_play(const fabric_plan *plan, const rows_run_schedule *schedule)
{
    run r = run_of(plan, schedule);
    play(&r);
    check(&r);
    destroy(&r);
    return r.delivered;
}

bool rows_run_lie(const fabric_plan *plan, const rows_run_schedule *schedule, uint32_t delivery,
                  uint64_t seed)
{
    run r = run_of(plan, schedule);
    r.lie_at = delivery;
    r.lie_seed = seed;
    play(&r);
    assert_true(r.is_over);
    destroy(&r);
    return r.is_taken;
}
