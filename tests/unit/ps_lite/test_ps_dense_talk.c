// Dense exchanges of workers at a shard. Workers are played: who takes part in an iteration is
// drawn, who sat out fetches the weights, who trained alone tells them. In every one:
//   each worker of an iteration gets the sum of each chunk once: that of its gradients in worker
//   order, rounded as the wire wants it
//   who fetches weights gets those that all steps since they were told make of them, bit for bit
//   whoever joins learns what all have said
// Of a message that is made wrong on its way: what is refused has a reason, and changes and answers
// nothing.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps_lite/ps_shard.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/numbers/rt_bf16.h"
#include "runtime/numbers/rt_coding.h"
#include "runtime/numbers/rt_int8.h"
#include "runtime/rt_hash.h"
#include "tests/support/lies.h"
#include "tests/support/test.h"

#define LINE_BYTES 200u
#define WORKERS_MAX 8u
#define FLOATS_MAX 4096u
#define PIECES 3u // of the weights that a worker sends
#define ITERATIONS_MAX 32u

// KEY=VALUE... of set_up.
static const char *const exchanges[] = {
    "seed=1",
    "seed=2 workers=1",
    "seed=3 joins=2 workers=4",
    "seed=4 joins=1 floats=3 chunk=5",
    "seed=5 joins=3 lies=0",
    "seed=6 workers=8 changes=1 full=3",
    "seed=7 wire=16",
    "seed=8 wire=16 floats=4000 chunk=2500 iterations=4",
    "seed=9 wire=8",
    "seed=10 wire=8 floats=700 chunk=300",
    "seed=11 wire=8 changes=1 workers=5",
    "seed=12 keeps=1 iterations=14",
    "seed=13 keeps=1 iterations=14 optimizer=adagrad workers=4",
    "seed=14 keeps=1 iterations=12 optimizer=rowwise_adagrad floats=33 chunk=32",
    "seed=15 keeps=1 iterations=14 optimizer=ftrl full=4",
    "seed=16 keeps=1 wire=16 workers=5",
    "seed=17 keeps=1 wire=8 optimizer=adagrad floats=600 chunk=256",
    "seed=18 keeps=1 workers=2 iterations=24",
    "seed=23 keeps=1 workers=6 iterations=10 optimizer=adagrad full=5",
    "seed=24 keeps=1 workers=2 iterations=16 optimizer=ftrl wire=8",
    "seed=19 bytes=600 workers=8 lies=60",
    "seed=20 bytes=500 wire=16 workers=6",
    "seed=21 bytes=700 wire=8 workers=6",
    "seed=22 bytes=300 keeps=1",
    "seed=25 wire=8 floats=700 chunk=300 iterations=26",
};

typedef struct {
    uint32_t t;     // its iteration
    uint32_t chunk; // of that one, which it says next
    uint32_t sums;  // of that one, which came
    uint32_t piece;
    uint64_t version; // of its weights
    bool shares;      // nobody else has them
    bool waits;       // for weights
    uint32_t joins, joined;
    uint32_t messages;
    uint32_t came[ITERATIONS_MAX]; // floats of sums
} player;

typedef struct {
    uint32_t seed, workers, floats, chunk, wire, iterations, rounds, bytes, full_every, lies;
    bool keeps, changes;
    rt_optimizer_kind optimizer;
} settings;

typedef struct {
    settings set;
    ps_shard *shard;
    rt_random random;
    player players[WORKERS_MAX];
    uint32_t said, sent;
    uint32_t lie_at; // 0: nobody lies
    uint64_t lie_seed;
    rt_status status; // of the message that ended it
    bool is_over;
    float sums[ITERATIONS_MAX][FLOATS_MAX]; // that the shard has made
    bool is_told[ITERATIONS_MAX];           // weights, after this iteration
    uint32_t teller[ITERATIONS_MAX];
} exchange;

// ---- what the shard says -----------------------------------------------------------------------

static uint32_t chunks_of(const settings *set)
{
    return (set->floats + set->chunk - 1) / set->chunk;
}

static uint64_t workers_of(const settings *set, uint32_t t)
{
    const uint64_t all = rt_bits_below(set->workers);
    const uint64_t drawn = rt_mix(set->seed * 1000u + t) & all;
    if (!set->changes)
        return all;
    return drawn ? drawn : rt_bit(t % set->workers);
}

static void draw(const settings *set, uint64_t what, uint32_t rank, uint32_t first, uint32_t count,
                 float *floats)
{
    rt_random random = {rt_mix(set->seed ^ what << 32 ^ (uint64_t)rank << 24 ^ first)};
    for (uint32_t i = 0; i < count; i++)
        floats[i] = (float)rt_random_below(&random, 65) / 16 - 2;
}

// What a worker adds, as it is when it has come.
static void gradient_of(const settings *set, uint32_t t, uint32_t rank, uint32_t first,
                        uint32_t count, float *floats)
{
    static uint8_t bytes[FLOATS_MAX * 8];
    static uint16_t halves[FLOATS_MAX];
    static float lost[FLOATS_MAX];
    draw(set, t, rank, first, count, floats);
    if (set->wire == 16) {
        rt_bf16_pack(floats, count, halves);
        rt_bf16_unpack(halves, count, floats);
    }
    if (set->wire == 8 && t > RT_CODING_WHOLE_ITERATIONS) {
        const uint32_t rounded = count - (first + count == set->floats);
        memset(lost, 0, sizeof lost);
        rt_int8_pack_blocks(floats, lost, rounded, bytes);
        rt_int8_unpack_blocks(bytes, rounded, floats);
    }
}

static void sum_of(const settings *set, uint32_t t, uint32_t first, uint32_t count, float *sum)
{
    static float floats[FLOATS_MAX];
    memset(sum, 0, count * sizeof *sum);
    for (uint32_t w = 0; w < set->workers; w++) {
        if (!(workers_of(set, t) >> w & 1))
            continue;
        gradient_of(set, t, w, first, count, floats);
        for (uint32_t i = 0; i < count; i++)
            sum[i] += floats[i];
    }
}

// Floats of a sum, from its payload on.
static uint32_t read_sum(const rt_message *message, float *floats)
{
    rt_wire_dense_int8 head;
    const uint64_t size = rt_message_header(message)->payload_bytes;
    const uint8_t *at = rt_message_payload((rt_message *)(uintptr_t)message);
    const uint32_t type = rt_message_header(message)->type;
    if (type == RT_MESSAGE_DENSE_SUM_INT8) {
        memcpy(&head, at, sizeof head);
        at += sizeof head;
        memcpy(floats + head.floats - head.whole, at, head.whole * sizeof *floats);
        rt_int8_unpack_blocks(at + head.whole * sizeof *floats, head.floats - head.whole, floats);
        return head.floats;
    }
    const uint64_t rest = size - sizeof(rt_wire_dense);
    at += sizeof(rt_wire_dense);
    if (type == RT_MESSAGE_DENSE_SUM_BF16) {
        rt_bf16_unpack((const uint16_t *)(const void *)at, (uint32_t)(rest / 2), floats);
        return (uint32_t)(rest / 2);
    }
    assert_int_equal(type, RT_MESSAGE_DENSE_SUM);
    memcpy(floats, at, rest);
    return (uint32_t)(rest / sizeof *floats);
}

// In 8 bits a component may be off by a step of its block's scale, and the shard's residual.
static void check_sum(const settings *set, uint32_t t, uint32_t first, uint32_t count,
                      const float *got)
{
    static float sum[FLOATS_MAX];
    static uint16_t halves[FLOATS_MAX];
    float largest = 0;
    sum_of(set, t, first, count, sum);
    if (set->wire == 16) {
        rt_bf16_pack(sum, count, halves);
        rt_bf16_unpack(halves, count, sum);
    }
    if (set->wire != 8 || t <= RT_CODING_WHOLE_ITERATIONS) {
        assert_memory_equal(got, sum, count * sizeof *sum);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(sum[i]));
    for (uint32_t i = 0; i < count; i++)
        assert_true(fabsf(got[i] - sum[i]) <= 2 * largest / 127);
}

static void take_sum(exchange *x, player *p, uint32_t rank, const rt_message *message)
{
    static float got[FLOATS_MAX];
    const uint32_t t = (uint32_t)rt_message_header(message)->iteration;
    const uint32_t first = rt_message_header(message)->count;
    p->sums++;
    if (x->lie_at)
        return;
    const uint32_t count = read_sum(message, got);
    assert_true(t == p->t && workers_of(&x->set, t) >> rank & 1);
    assert_true(first % x->set.chunk == 0 && first + count <= x->set.floats);
    check_sum(&x->set, t, first, count, got);
    memcpy(x->sums[t] + first, got, count * sizeof *got);
    p->came[t] += count;
}

static rt_optimizer_config optimizer_of(const settings *set)
{
    return (rt_optimizer_config){.kind = set->optimizer,
                                 .learning_rate = 0.125f,
                                 .epsilon = 0.5f,
                                 .momentum = 0.5f,
                                 .initial_accumulator = 0.25f,
                                 .l1 = 0.25f,
                                 .beta = 1};
}

static void draw_weights(const settings *set, uint64_t version, uint32_t rank, uint32_t first,
                         uint32_t count, float *floats)
{
    draw(set, UINT32_MAX - version, rank, first, count, floats);
    for (uint32_t i = 0; i < count; i++)
        floats[i] += 3; // state of some optimizers cannot be negative
}

static rt_wire_dense_step step_of(uint32_t t)
{
    return (rt_wire_dense_step){.applies = t % 4 != 3, .scale = t % 3 ? 1 : 0.5f};
}

// The whole block after an iteration: what was told last, and all steps since.
static void weights_after(const exchange *x, uint32_t version, float *block)
{
    const rt_optimizer_config optimizer = optimizer_of(&x->set);
    const uint32_t values = x->set.floats - 1;
    const uint32_t total = values + rt_optimizer_state_floats(&optimizer, values);
    uint32_t told = version;
    while (!x->is_told[told])
        assert_true(told-- > 0);
    for (uint32_t piece = 0; piece < PIECES; piece++) {
        const uint32_t first = total * piece / PIECES, end = total * (piece + 1) / PIECES;
        draw_weights(&x->set, told, x->teller[told], first, end - first, block + first);
    }
    for (uint32_t t = told + 1; t <= version; t++) {
        const rt_wire_dense_step step = step_of(t);
        if (step.applies)
            rt_optimizer_step_scaled(&optimizer, values, t, step.scale, block, block + values,
                                     x->sums[t]);
    }
}

static void take_state(exchange *x, player *p, const rt_message *message)
{
    static float block[4 * FLOATS_MAX];
    rt_wire_dense_state head;
    const rt_wire_header *header = rt_message_header(message);
    const uint8_t *at = rt_message_payload((rt_message *)(uintptr_t)message);
    memcpy(&head, at, sizeof head);
    const uint64_t floats = (header->payload_bytes - sizeof head) / sizeof(float);
    if (!x->lie_at) {
        weights_after(x, (uint32_t)header->iteration, block);
        assert_memory_equal(at + sizeof head, block + header->count, floats * sizeof *block);
    }
    if (header->count + floats != head.total)
        return;
    p->version = header->iteration;
    p->waits = false;
}

// All that was said in this round, by rank.
static void take_joined(const exchange *x, player *p, const rt_message *message)
{
    rt_wire_dense_join joins[WORKERS_MAX];
    p->joined++;
    if (x->lie_at)
        return;
    assert_int_equal(rt_message_header(message)->count, x->set.workers);
    memcpy(joins, rt_message_payload((rt_message *)(uintptr_t)message),
           x->set.workers * sizeof *joins);
    for (uint32_t w = 0; w < x->set.workers; w++) {
        assert_int_equal(joins[w].collectives, 3 + w);
        assert_int_equal(joins[w].version, 7 * (p->joined - 1));
    }
}

static rt_status hear(void *context, uint32_t peer, rt_message *message)
{
    exchange *x = context;
    rt_error error = {0};
    const uint32_t rank = rt_peer_rank(peer);
    player *p = &x->players[rank];
    if (x->set.full_every && x->sent++ % x->set.full_every == 0)
        return RT_AGAIN;
    if (rt_message_validate(message, peer, &error))
        fail_msg("%s", error.text);
    const uint32_t type = rt_message_header(message)->type;
    p->messages++;
    if (type == RT_MESSAGE_DENSE_STATE)
        take_state(x, p, message);
    else if (type == RT_MESSAGE_DENSE_JOINED)
        take_joined(x, p, message);
    else
        take_sum(x, p, rank, message);
    rt_message_release(message);
    return RT_OK;
}

// ---- what workers say --------------------------------------------------------------------------

static rt_message create(rt_message_type type, uint32_t rank, uint64_t t, uint32_t count,
                         const void *head, size_t head_size, const void *rest, size_t rest_size)
{
    rt_message message;
    assert_int_equal(rt_message_create(&message, type, rt_peer(RT_ROLE_WORKER, rank), t, count,
                                       head_size + rest_size),
                     RT_OK);
    if (head_size)
        memcpy(rt_message_payload(&message), head, head_size);
    if (rest_size)
        memcpy(rt_message_payload(&message) + head_size, rest, rest_size);
    return message;
}

// The last float of the part, the verdict, is never in blocks; of the first iterations none is.
static rt_message say_blocks(const settings *set, uint32_t rank, uint32_t t, uint32_t first,
                             uint32_t count, const float *floats)
{
    static uint8_t bytes[FLOATS_MAX * 8];
    static float lost[FLOATS_MAX];
    rt_wire_dense_int8 head = {workers_of(set, t), count, first + count == set->floats};
    if (t <= RT_CODING_WHOLE_ITERATIONS)
        head.whole = count;
    const uint32_t rounded = count - head.whole;
    memset(lost, 0, sizeof lost);
    memcpy(bytes, floats + rounded, head.whole * sizeof *floats);
    rt_int8_pack_blocks(floats, lost, rounded, bytes + head.whole * sizeof *floats);
    return create(RT_MESSAGE_DENSE_GRAD_INT8, rank, t, first, &head, sizeof head, bytes,
                  head.whole * sizeof *floats + rt_int8_bytes(rounded));
}

static rt_message say_chunk(const settings *set, uint32_t rank, uint32_t t, uint32_t chunk)
{
    float floats[FLOATS_MAX];
    uint16_t halves[FLOATS_MAX];
    const uint32_t chunks = chunks_of(set);
    const uint32_t first = (chunk + rank + t) % chunks * set->chunk;
    const uint32_t count = (uint32_t)rt_min_u64(set->chunk, set->floats - first);
    const rt_wire_dense head = {workers_of(set, t)};
    draw(set, t, rank, first, count, floats);
    if (set->wire == 8)
        return say_blocks(set, rank, t, first, count, floats);
    if (set->wire != 16)
        return create(RT_MESSAGE_DENSE_GRAD, rank, t, first, &head, sizeof head, floats,
                      count * sizeof *floats);
    rt_bf16_pack(floats, count, halves);
    return create(RT_MESSAGE_DENSE_GRAD_BF16, rank, t, first, &head, sizeof head, halves,
                  count * sizeof *halves);
}

static rt_message say_weights(exchange *x, uint32_t rank, player *p)
{
    float floats[4 * FLOATS_MAX];
    const settings *set = &x->set;
    const rt_optimizer_config optimizer = {.kind = set->optimizer};
    const uint32_t values = set->floats - 1;
    const rt_wire_dense_state head = {values,
                                      values + rt_optimizer_state_floats(&optimizer, values)};
    const uint32_t first = head.total * p->piece / PIECES;
    const uint32_t end = head.total * ++p->piece / PIECES;
    draw_weights(set, p->version, rank, first, end - first, floats);
    x->is_told[p->version] = true;
    x->teller[p->version] = rank;
    if (p->piece == PIECES) {
        p->piece = 0;
        p->shares = false;
    }
    return create(RT_MESSAGE_DENSE_STATE, rank, p->version, first, &head, sizeof head, floats,
                  (end - first) * sizeof *floats);
}

static rt_message say_step(uint32_t rank, uint32_t t)
{
    const rt_wire_dense_step step = step_of(t);
    return create(RT_MESSAGE_DENSE_STEP, rank, t, 1, &step, sizeof step, NULL, 0);
}

static rt_message say_join(uint32_t rank, uint32_t round)
{
    const rt_wire_dense_join join = {.collectives = 3 + rank, .version = 7 * round};
    return create(RT_MESSAGE_DENSE_JOIN, rank, 0, 1, &join, sizeof join, NULL, 0);
}

static rt_message say_pull(uint32_t rank, player *p, uint64_t version)
{
    p->waits = true;
    return create(RT_MESSAGE_DENSE_PULL, rank, version, 0, NULL, 0, NULL, 0);
}

// In an iteration that others are in, too. False: it waits for the sums.
static bool say_in(const settings *set, uint32_t rank, player *p, rt_message *message)
{
    const uint32_t chunks = chunks_of(set);
    if (p->chunk < chunks) {
        *message = say_chunk(set, rank, p->t, p->chunk++);
        return true;
    }
    if (p->sums < chunks)
        return false;
    p->sums = p->chunk = 0;
    p->version = p->t++;
    if (set->keeps)
        *message = say_step(rank, p->t - 1);
    return true; // with nothing to say, maybe
}

// What a worker says next. False: it waits, or has come to the end.
static bool speak(exchange *x, uint32_t rank, player *p, rt_message *message)
{
    const settings *set = &x->set;
    if (p->joins < set->rounds || p->joined < p->joins) {
        if (p->joins > p->joined)
            return false;
        *message = say_join(rank, p->joins++);
        return true;
    }
    while (p->t <= set->iterations && !message->data) {
        const uint64_t workers = workers_of(set, p->t);
        const bool is_in = workers >> rank & 1, is_alone = set->keeps && workers == rt_bit(rank);
        if (p->shares && !is_alone) {
            *message = say_weights(x, rank, p);
        } else if (!is_in) {
            p->t++;
        } else if (set->keeps && p->version + 1 < p->t) {
            if (p->waits)
                return false;
            *message = say_pull(rank, p, p->t - 1);
        } else if (is_alone) {
            p->version = p->t++;
            p->shares = true;
        } else if (!say_in(set, rank, p, message)) {
            return false;
        }
    }
    if (!message->data && p->shares)
        *message = say_weights(x, rank, p);
    else if (!message->data && set->keeps && p->version < set->iterations && !p->waits)
        *message = say_pull(rank, p, set->iterations);
    return message->data != NULL;
}

// ---- an exchange -------------------------------------------------------------------------------

static uint64_t hash_weights(const exchange *x)
{
    uint32_t count = 0;
    const ps_weights *weights = ps_shard_weights(x->shard);
    const float *block = weights ? ps_weights_block(weights, &count) : NULL;
    return block ? rt_hash_bytes(block, count * sizeof *block) ^ ps_weights_version(weights) : 0;
}

static uint32_t messages_of(const exchange *x)
{
    uint32_t sum = 0;
    for (uint32_t w = 0; w < x->set.workers; w++)
        sum += x->players[w].messages;
    return sum;
}

// Ends it when the shard refuses.
static void give(exchange *x, uint32_t rank, rt_message *message)
{
    char what[LIES_TEXT_BYTES] = "";
    rt_error error = {0};
    rt_random random = {x->lie_seed};
    uint32_t peer = rt_peer(RT_ROLE_WORKER, rank);
    const bool is_lie = ++x->said == x->lie_at;
    const uint32_t kind = rt_message_header(message)->type;
    const char *type = rt_message_type_name(kind);
    if (is_lie)
        lies_tell(&random, x->set.workers + 1, message, &peer, what);
    const uint64_t before = hash_weights(x);
    const uint32_t messages = messages_of(x);
    x->status = rt_message_validate(message, peer, &error);
    if (!x->status)
        x->status = ps_shard_receive(x->shard, peer, message, &error);
    rt_message_release(message);
    // With weights that are told anew the old ones may be gone.
    const bool same = kind == RT_MESSAGE_DENSE_STATE || hash_weights(x) == before;
    if (x->status && (!*error.text || !same || messages_of(x) != messages))
        fail_msg("%s, %s: refused (%s), and something has changed or gone out", type, what,
                 error.text);
    x->is_over = is_lie || x->status;
}

static bool flush(exchange *x)
{
    rt_error error = {0};
    const uint32_t before = x->sent, messages = messages_of(x);
    const rt_status status = ps_shard_flush(x->shard, &error);
    assert_true(status == RT_OK || status == RT_AGAIN);
    return messages_of(x) != messages || x->sent != before;
}

static bool happens(exchange *x)
{
    const uint32_t first = rt_random_below(&x->random, x->set.workers);
    if (rt_random_below(&x->random, 4) == 0)
        (void)flush(x);
    for (uint32_t i = 0; i < x->set.workers; i++) {
        rt_message message = {0};
        const uint32_t rank = (first + i) % x->set.workers;
        if (!speak(x, rank, &x->players[rank], &message))
            continue;
        give(x, rank, &message);
        return true;
    }
    return flush(x);
}

// Every sum came whole, to all that were in its iteration.
static void check_end(const exchange *x)
{
    static float block[4 * FLOATS_MAX];
    uint32_t count = 0;
    const ps_weights *weights = ps_shard_weights(x->shard);
    for (uint32_t w = 0; w < x->set.workers; w++) {
        assert_true(x->players[w].t > x->set.iterations && !x->players[w].waits);
        for (uint32_t t = 1; t <= x->set.iterations; t++) {
            const uint64_t workers = workers_of(&x->set, t);
            const bool comes = workers >> w & 1 && !(x->set.keeps && workers == rt_bit(w));
            assert_int_equal(x->players[w].came[t], comes ? x->set.floats : 0);
        }
    }
    if (!weights)
        return;
    const float *own = ps_weights_block(weights, &count);
    assert_int_equal(ps_weights_version(weights), x->set.iterations);
    weights_after(x, x->set.iterations, block);
    assert_memory_equal(own, block, (x->set.floats - 1) * sizeof *block);
}

static void begin(exchange *x)
{
    const ps_shard_config config = {.shard_count = 1,
                                    .worker_count = x->set.workers,
                                    .dim = 4,
                                    .optimizer = {.kind = RT_OPTIMIZER_SGD, .learning_rate = 0.5f},
                                    .memory_bytes_max = 1 << 18,
                                    .gradient_bytes_max = 1 << 18,
                                    .dense_bytes_max = x->set.bytes,
                                    .keeps_dense = x->set.keeps,
                                    .dense_optimizer = optimizer_of(&x->set),
                                    .pulls_parked_max = 16,
                                    .message_bytes = 120,
                                    .queue_messages_max = 256,
                                    .send = hear,
                                    .context = x};
    assert_int_equal(ps_shard_create(&config, &x->shard), RT_OK);
    for (uint32_t w = 0; w < x->set.workers; w++)
        x->players[w] =
            (player){.t = 1, .shares = x->set.keeps && w == rt_lowest_bit(workers_of(&x->set, 1))};
}

// Returns how many messages workers said. lie_at 0: all of it, which comes to its end unless the
// shard has no room for it or is asked too often.
static uint32_t run(const settings *set, uint32_t lie_at, uint64_t lie_seed, bool *taken_p)
{
    static exchange x;
    x = (exchange){
        .set = *set, .random = {rt_mix(set->seed)}, .lie_at = lie_at, .lie_seed = lie_seed};
    begin(&x);
    while (!x.is_over && happens(&x)) {
        // until nothing can happen any more
    }
    if (!lie_at && x.status)
        assert_true(set->bytes < 1 << 18 || set->rounds > 2);
    if (!lie_at && !x.status)
        check_end(&x);
    *taken_p = !x.status;
    ps_shard_destroy(x.shard);
    return x.said;
}

// ---- all of them ----------------------------------------------------------------------------------

static void set_up(settings *set, const char *key, const char *value)
{
    static const char *const kinds[] = {"sgd", "adagrad", "rowwise_adagrad", "ftrl"};
    static const rt_optimizer_kind optimizers[] = {RT_OPTIMIZER_SGD, RT_OPTIMIZER_ADAGRAD,
                                                   RT_OPTIMIZER_ROWWISE_ADAGRAD, RT_OPTIMIZER_FTRL};
    const uint32_t number = (uint32_t)strtoul(value, NULL, 10);
    const struct {
        const char *key;
        uint32_t *to;
    } numbers[] = {{"seed", &set->seed},     {"workers", &set->workers},
                   {"floats", &set->floats}, {"chunk", &set->chunk},
                   {"wire", &set->wire},     {"iterations", &set->iterations},
                   {"joins", &set->rounds},  {"bytes", &set->bytes},
                   {"lies", &set->lies},     {"full", &set->full_every}};
    for (size_t i = 0; i < RT_COUNT_OF(numbers); i++) {
        if (strcmp(numbers[i].key, key) == 0) {
            *numbers[i].to = number;
            return;
        }
    }
    if (strcmp(key, "keeps") == 0)
        set->keeps = set->changes = true;
    else if (strcmp(key, "changes") == 0)
        set->changes = true;
    else if (strcmp(key, "optimizer") != 0)
        fail_msg("%s: a dense exchange has none", key);
    for (size_t i = 0; i < RT_COUNT_OF(kinds); i++)
        if (strcmp(key, "optimizer") == 0 && strcmp(kinds[i], value) == 0)
            set->optimizer = optimizers[i];
}

static settings read_line(const char *line)
{
    char text[LINE_BYTES];
    settings set = {.seed = 1,
                    .workers = 3,
                    .floats = 40,
                    .chunk = 16,
                    .iterations = 8,
                    .bytes = 1 << 18,
                    .optimizer = RT_OPTIMIZER_SGD,
                    .lies = 30};
    printf("%s\n", line);
    snprintf(text, sizeof text, "%s", line);
    for (char *rest = NULL, *one = strtok_r(text, " ", &rest); one;
         one = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(one, '=');
        assert_non_null(value);
        *value++ = '\0';
        set_up(&set, one, value);
    }
    assert_true(set.iterations < ITERATIONS_MAX);
    return set;
}

static void sums_and_weights_are_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(exchanges); i++) {
        bool taken;
        const settings set = read_line(exchanges[i]);
        run(&set, 0, 0, &taken);
    }
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    uint32_t taken = 0, lies = 0;
    for (size_t i = 0; i < RT_COUNT_OF(exchanges); i++) {
        bool one;
        const settings set = read_line(exchanges[i]);
        const uint32_t said = run(&set, 0, 0, &one);
        rt_random random = {set.seed};
        for (uint32_t k = 0; k < set.lies; k++, lies++) {
            const uint32_t at = 1 + rt_random_below(&random, said);
            run(&set, at, rt_random_u64(&random), &one);
            taken += one;
        }
    }
    printf("%" PRIu32 " of %" PRIu32 " lies were taken\n", taken, lies);
    assert_true(taken < 2 * lies / 3); // floats, for one, may be any
}

TEST_MAIN(TEST(sums_and_weights_are_right), TEST(what_is_wrong_is_refused))
