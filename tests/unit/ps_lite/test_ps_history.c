// A shard against the protocol: random legal histories of a planner, workers that execute them with
// messages in any order that channels allow, and rows that must equal, bit for bit, those of one
// process that trains iteration after iteration.
#include "ps_lite/ps_shard.h"
#include "runtime/config/rt_optimizers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define WORKERS_MAX 5
#define SHARDS_MAX 3
#define KEYS_MAX 24
#define OPS_MAX 400
#define CHANNEL_MAX 4096
#define DIM 5
#define FLOATS_MAX (3 * DIM)

typedef enum { OP_INIT, OP_PULL, OP_PUSH_ROW, OP_OWN, OP_GRAD, OP_REDUCE } op_kind;

typedef struct {
    op_kind kind;
    uint32_t t;
    uint32_t version; // of the row before: pull, push; base of gradients
    uint64_t mask;    // gradients
    bool state;       // pull
} op;

// One worker's copy of a key, and what it does with it, in plan order.
typedef struct {
    op ops[OPS_MAX];
    uint32_t count;
    uint32_t next;
    bool waiting; // a pull is out
    float row[FLOATS_MAX];
    uint32_t version;
} slot;

typedef struct {
    rt_message messages[CHANNEL_MAX];
    uint32_t first, count;
} channel;

typedef struct {
    rt_message message; // being filled
    uint32_t used;
} filling;

typedef struct {
    uint32_t worker_count, shard_count, key_count, iteration_count;
    rt_optimizer_config optimizer;
    uint32_t row_floats;
    uint64_t keys[KEYS_MAX];
    float want[KEYS_MAX][FLOATS_MAX]; // the sequential model
    uint32_t want_version[KEYS_MAX];
    slot slots[WORKERS_MAX][KEYS_MAX];
    ps_shard *shards[SHARDS_MAX];
    channel up[WORKERS_MAX][SHARDS_MAX], down[WORKERS_MAX][SHARDS_MAX];
    uint32_t pushes, pushed;
    uint32_t parked, ignored; // how much of each a history had
    rt_random random;
    uint32_t sending_shard;
} world;

static void gradient_of(uint64_t key, uint32_t worker, uint32_t t, float *gradient)
{
    rt_row_init(key * 1000003 + worker * 4099 + t, 17, 1.0f, DIM, gradient);
}

static bool chance(world *w, uint32_t percent)
{
    return rt_random_below(&w->random, 100) < percent;
}

static void put(channel *one, rt_message *message)
{
    assert_true(one->count < CHANNEL_MAX);
    one->messages[(one->first + one->count++) % CHANNEL_MAX] = *message;
    *message = (rt_message){0};
}

static rt_message take(channel *one)
{
    rt_message message = one->messages[one->first];
    one->first = (one->first + 1) % CHANNEL_MAX;
    one->count--;
    return message;
}

// The transport: now and then full.
static rt_status send_down(void *context, uint32_t peer, rt_message *message)
{
    world *w = context;
    rt_error error;
    if (chance(w, 15))
        return RT_AGAIN;
    assert_int_equal(rt_message_validate(message, peer, &error), RT_OK);
    put(&w->down[rt_peer_rank(peer)][w->sending_shard], message);
    return RT_OK;
}

// ---- The planner: PROTOCOL.md's directory, for one key at a time

typedef struct {
    uint32_t latest, at_ps;
    uint64_t holders;
} directory;

static void emit(world *w, uint32_t worker, uint32_t key, op one)
{
    slot *s = &w->slots[worker][key];
    assert_true(s->count < OPS_MAX);
    s->ops[s->count++] = one;
}

static void push_latest(world *w, directory *d, uint32_t key, uint32_t t)
{
    if (d->at_ps == d->latest)
        return;
    emit(w, rt_lowest_bit(d->holders), key, (op){OP_PUSH_ROW, t, d->latest, 0, false});
    d->at_ps = d->latest;
}

static void fetch(world *w, directory *d, uint32_t key, uint32_t worker, uint32_t t, bool state)
{
    if (d->holders & rt_bit(worker))
        return;
    const bool init = d->latest == 0 && chance(w, 70);
    emit(w, worker, key, (op){init ? OP_INIT : OP_PULL, t, d->latest, 0, state});
    d->holders |= rt_bit(worker);
}

// Gradients of workers in ascending order.
static void sum_of(uint64_t key, uint32_t t, uint64_t workers, float sum[DIM])
{
    float one[DIM];
    bool first = true;
    for (uint64_t left = workers; left; left &= left - 1) {
        gradient_of(key, rt_lowest_bit(left), t, first ? sum : one);
        for (int i = 0; !first && i < DIM; i++)
            sum[i] += one[i];
        first = false;
    }
}

static void sequential_step(world *w, uint32_t key, uint32_t t, uint64_t trainers)
{
    float sum[DIM];
    sum_of(w->keys[key], t, trainers, sum);
    rt_optimizer_step(&w->optimizer, DIM, t, w->want[key], w->want[key] + DIM, sum);
    w->want_version[key] = t;
}

static void plan_training(world *w, directory *d, uint32_t key, uint32_t t, uint64_t trainers)
{
    const bool alone = rt_bit_count(trainers) == 1;
    const bool reduce = !alone && chance(w, 30); // the row's gradient joins an all-reduce
    if ((trainers & ~d->holders && d->latest) || (!alone && !reduce))
        push_latest(w, d, key, t);
    for (uint64_t left = trainers; left; left &= left - 1)
        fetch(w, d, key, rt_lowest_bit(left), t, alone || reduce || chance(w, 50));
    for (uint64_t left = trainers; left; left &= left - 1) {
        const op_kind kind = alone ? OP_OWN : reduce ? OP_REDUCE : OP_GRAD;
        emit(w, rt_lowest_bit(left), key, (op){kind, t, d->latest, trainers, false});
    }
    d->latest = t;
    d->holders = alone || reduce ? trainers : 0;
    if (!alone && !reduce)
        d->at_ps = t;
    sequential_step(w, key, t, trainers);
}

static void plan(world *w)
{
    for (uint32_t key = 0; key < w->key_count; key++) {
        directory d = {0, 0, 0};
        rt_row_init(w->keys[key], 3, 0.5f, DIM, w->want[key]);
        rt_optimizer_init_state(&w->optimizer, DIM, w->want[key] + DIM);
        for (uint32_t t = 1; t <= w->iteration_count; t++) {
            uint64_t trainers = 0;
            for (uint32_t worker = 0; worker < w->worker_count; worker++)
                trainers |= chance(w, 30) ? rt_bit(worker) : 0;
            if (trainers)
                plan_training(w, &d, key, t, trainers);
            if (d.holders && chance(w, 15)) { // flush; evict one holder
                if (d.latest)
                    push_latest(w, &d, key, t);
                d.holders &= d.holders - 1;
            }
        }
        push_latest(w, &d, key, w->iteration_count);
    }
}

// ---- Workers: one message may hold several keys, of one type and iteration

static void send_up(world *w, uint32_t worker, uint32_t key, rt_message_type type, uint32_t t,
                    const void *head, size_t head_size, const float *floats, uint32_t count)
{
    const uint32_t shard = rt_key_shard(w->keys[key], w->shard_count);
    channel *up = &w->up[worker][shard];
    const size_t size = head_size + count * sizeof *floats;
    rt_message message = {0};
    uint32_t records = 0;
    if (up->count) { // joins the last message where it can
        rt_message *last = &up->messages[(up->first + up->count - 1) % CHANNEL_MAX];
        const rt_wire_header *header = rt_message_header(last);
        if (header->type == type && header->iteration == t && chance(w, 70)) {
            message = *last;
            records = header->count;
            up->count--;
        }
    }
    rt_message longer = {0};
    assert_int_equal(rt_message_create(&longer, type, rt_peer(RT_ROLE_WORKER, worker), t,
                                       records + 1, (records + 1) * size),
                     RT_OK);
    rt_message_header(&longer)->epoch = 9;
    if (records)
        memcpy(rt_message_payload(&longer), rt_message_payload(&message), records * size);
    uint8_t *record = rt_message_payload(&longer) + records * size;
    memcpy(record, head, head_size);
    if (count)
        memcpy(record + head_size, floats, count * sizeof *floats);
    rt_message_release(&message);
    w->pushes += !records && (type == RT_MESSAGE_PUSH_ROW || type == RT_MESSAGE_PUSH_GRAD);
    put(up, &longer);
}

static void own_step(world *w, slot *s, uint32_t t, const float *gradient)
{
    rt_optimizer_step(&w->optimizer, DIM, t, s->row, s->row + DIM, gradient);
    s->version = t;
    s->next++;
}

// An all-reduce ends for nobody before all have come to it.
static bool all_came(const world *w, uint32_t key, const op *reduce)
{
    for (uint64_t left = reduce->mask; left; left &= left - 1) {
        const slot *s = &w->slots[rt_lowest_bit(left)][key];
        for (uint32_t i = s->next + 1; i < s->count; i++)
            if (s->ops[i].kind == OP_REDUCE && s->ops[i].t == reduce->t)
                return false;
    }
    return true;
}

static void execute(world *w, uint32_t worker, uint32_t key)
{
    slot *s = &w->slots[worker][key];
    const op *one = &s->ops[s->next];
    const uint64_t id = w->keys[key];
    const uint32_t tag = key | (one->state ? RT_WIRE_TAG_STATE : 0);
    const rt_wire_pull pull = {id, one->version, tag};
    const rt_wire_row push = {id, one->version, 0};
    const rt_wire_grad grad = {id, one->mask, one->version, RT_WIRE_STEP};
    float gradient[DIM];
    gradient_of(id, worker, one->t, gradient);
    switch (one->kind) {
    case OP_INIT:
        rt_row_init(id, 3, 0.5f, DIM, s->row);
        rt_optimizer_init_state(&w->optimizer, DIM, s->row + DIM);
        s->version = 0;
        break;
    case OP_PULL:
        s->waiting = true;
        send_up(w, worker, key, RT_MESSAGE_PULL, one->t, &pull, sizeof pull, NULL, 0);
        return;
    case OP_PUSH_ROW:
        assert_int_equal(s->version, one->version);
        send_up(w, worker, key, RT_MESSAGE_PUSH_ROW, one->t, &push, sizeof push, s->row,
                w->row_floats);
        break;
    case OP_OWN:
        assert_int_equal(s->version, one->version);
        own_step(w, s, one->t, gradient);
        return;
    case OP_REDUCE:
        if (!all_came(w, key, one))
            return;
        assert_int_equal(s->version, one->version);
        sum_of(id, one->t, one->mask, gradient);
        own_step(w, s, one->t, gradient);
        return;
    case OP_GRAD:
        assert_int_equal(s->version, one->version);
        send_up(w, worker, key, RT_MESSAGE_PUSH_GRAD, one->t, &grad, sizeof grad, gradient, DIM);
        break;
    }
    s->next++;
}

static void land(world *w, uint32_t worker, const rt_wire_row *head, const float *floats,
                 uint32_t count)
{
    const uint32_t key = head->tag & ~RT_WIRE_TAG_STATE;
    assert_true(key < w->key_count && w->keys[key] == head->key);
    slot *s = &w->slots[worker][key];
    const op *one = &s->ops[s->next];
    assert_true(s->waiting);
    s->waiting = false;
    assert_int_equal(one->kind, OP_PULL);
    assert_int_equal(head->version, one->version); // exactly, or a stale or too new row is trained
    memcpy(s->row, floats, count * sizeof *floats);
    s->version = head->version;
    s->next++;
}

static void receive_down(world *w, uint32_t worker, uint32_t shard)
{
    rt_message message = take(&w->down[worker][shard]);
    const rt_wire_header *header = rt_message_header(&message);
    rt_reader reader = rt_message_reader(&message);
    assert_int_equal(header->sender, rt_peer(RT_ROLE_PS, shard));
    assert_int_equal(header->epoch, 9);
    w->pushed += header->type == RT_MESSAGE_PUSHED;
    for (uint32_t i = 0; i < header->count; i++) {
        rt_wire_row head;
        float floats[FLOATS_MAX];
        const void *bytes = rt_reader_take(&reader, 1, sizeof head);
        assert_non_null(bytes);
        memcpy(&head, bytes, sizeof head);
        const slot *s = &w->slots[worker][head.tag & ~RT_WIRE_TAG_STATE];
        assert_int_equal(header->iteration, s->ops[s->next].t); // of the pull
        const uint32_t count = head.tag & RT_WIRE_TAG_STATE ? w->row_floats : DIM;
        bytes = rt_reader_take(&reader, count, sizeof(float));
        assert_non_null(bytes);
        memcpy(floats, bytes, count * sizeof(float));
        land(w, worker, &head, floats, count);
    }
    assert_int_equal(reader.left, 0);
    rt_message_release(&message);
}

// ---- The run

static void step_shard(world *w, uint32_t shard, uint32_t worker)
{
    rt_error error = {RT_OK, ""};
    w->sending_shard = shard;
    if (w->up[worker][shard].count) {
        rt_message message = take(&w->up[worker][shard]);
        rt_status status =
            ps_shard_receive(w->shards[shard], rt_peer(RT_ROLE_WORKER, worker), &message, &error);
        if (status != RT_OK)
            fail_msg("%s", error.text);
    }
    if (chance(w, 40)) {
        rt_status status = ps_shard_flush(w->shards[shard], &error);
        assert_true(status == RT_OK || status == RT_AGAIN);
    }
}

static bool done(const world *w)
{
    for (uint32_t worker = 0; worker < w->worker_count; worker++)
        for (uint32_t key = 0; key < w->key_count; key++)
            if (w->slots[worker][key].next < w->slots[worker][key].count)
                return false;
    for (uint32_t worker = 0; worker < w->worker_count; worker++)
        for (uint32_t shard = 0; shard < w->shard_count; shard++)
            if (w->up[worker][shard].count || w->down[worker][shard].count)
                return false;
    return w->pushed == w->pushes;
}

static void run(world *w)
{
    for (uint64_t turn = 0; !done(w); turn++) {
        if (turn > 20000000)
            fail_msg("no progress: %u of %u pushes answered", w->pushed, w->pushes);
        const uint32_t worker = rt_random_below(&w->random, w->worker_count);
        const uint32_t shard = rt_random_below(&w->random, w->shard_count);
        const uint32_t key = rt_random_below(&w->random, w->key_count);
        slot *s = &w->slots[worker][key];
        switch (rt_random_below(&w->random, 3)) {
        case 0:
            if (s->next < s->count && !s->waiting)
                execute(w, worker, key);
            break;
        case 1:
            step_shard(w, shard, worker);
            break;
        default:
            if (w->down[worker][shard].count)
                receive_down(w, worker, shard);
            break;
        }
    }
}

static void start(world *w, uint64_t seed)
{
#define XX(kind, name, traits, help) RT_OPTIMIZER_##kind,
    static const rt_optimizer_kind kinds[] = { RT_OPTIMIZER_MAP(XX, RT_CHOICE_NONE) };
#undef XX
    memset(w, 0, sizeof *w);
    w->random.state = seed;
    w->worker_count = 2 + rt_random_below(&w->random, WORKERS_MAX - 1);
    w->shard_count = 1 + rt_random_below(&w->random, SHARDS_MAX);
    w->key_count = 1 + rt_random_below(&w->random, KEYS_MAX);
    w->iteration_count = 5 + rt_random_below(&w->random, 30);
    w->optimizer = (rt_optimizer_config){.kind = kinds[seed % RT_COUNT_OF(kinds)],
                                         .learning_rate = 0.1f,
                                         .epsilon = 1e-6f,
                                         .initial_accumulator = 0.1f,
                                         .beta1 = 0.9f,
                                         .beta2 = 0.99f,
                                         .l1 = 0.01f,
                                         .l2 = 0.1f,
                                         .beta = 1};
    w->row_floats = DIM + rt_optimizer_state_floats(&w->optimizer, DIM);
    for (uint32_t key = 0; key < w->key_count; key++)
        w->keys[key] = rt_key(key % 4, rt_random_u64(&w->random));
    for (uint32_t rank = 0; rank < w->shard_count; rank++) {
        const ps_shard_config config = {.rank = rank,
                                        .shard_count = w->shard_count,
                                        .worker_count = w->worker_count,
                                        .epoch = 9,
                                        .dim = DIM,
                                        .optimizer = w->optimizer,
                                        .seed = 3,
                                        .init_scale = 0.5f,
                                        .memory_bytes_max = 1 << 20,
                                        .gradient_bytes_max = 1 << 20,
                                        .dense_bytes_max = 1 << 20,
                                        .pulls_parked_max = 1000,
                                        .message_bytes = 200,
                                        .queue_messages_max = 1000,
                                        .send = send_down,
                                        .context = w};
        assert_int_equal(ps_shard_create(&config, &w->shards[rank]), RT_OK);
    }
}

static void check_end(world *w, uint64_t seed)
{
    for (uint32_t key = 0; key < w->key_count; key++) {
        const ps_shard *shard = w->shards[rt_key_shard(w->keys[key], w->shard_count)];
        uint32_t version = 0;
        const float *row = ps_shard_find(shard, w->keys[key], &version);
        if (w->want_version[key] == 0)
            continue;
        assert_non_null(row);
        assert_int_equal(version, w->want_version[key]);
        if (memcmp(row, w->want[key], w->row_floats * sizeof *row) != 0)
            fail_msg("seed %" PRIu64 ": row %u differs: %a, want %a", seed, key, row[0],
                     w->want[key][0]);
    }
    for (uint32_t i = 0; i < w->shard_count; i++) {
        ps_shard_statistics statistics;
        ps_shard_get_statistics(w->shards[i], &statistics);
        assert_int_equal(statistics.pulls_parked, 0);
        assert_int_equal(statistics.gradients_waiting, 0);
        w->ignored += (uint32_t)statistics.row_pushes_ignored; // two holders' pushes may cross
        w->parked += (uint32_t)statistics.pulls_parked_max;
        ps_shard_destroy(w->shards[i]);
    }
}

static void test_histories_end_in_the_sequential_model(void **context)
{
    (void)context;
    world *w = rt_alloc(1, sizeof *w);
    uint32_t parked = 0, pushes = 0, ignored = 0;
    for (uint64_t seed = 1; seed <= 600; seed++) {
        start(w, seed);
        plan(w);
        run(w);
        check_end(w, seed);
        parked += w->parked;
        pushes += w->pushes;
        ignored += w->ignored;
    }
    assert_true(parked > 1000 && pushes > 10000 && ignored > 100); // the histories exercise them
    rt_free(w);
}

TEST_MAIN(TEST(test_histories_end_in_the_sequential_model))
