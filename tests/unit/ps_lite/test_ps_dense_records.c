// Dense exchanges of workers at a shard, against those that were recorded
// (tests/golden/dense.golden): every message that the shard sends, the weights that it keeps, what
// it counts; and, of messages that were made wrong on their way, what it says to them.
//
// Workers are played: who takes part in an iteration is drawn, who sat out fetches the weights, who
// trained alone tells them. LANYARD_UPDATE_GOLDEN=1 (or a part of a name) writes the file anew. It
// has a line for each exchange, NAME: KEY=VALUE...; the keys are those of set_up.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps_lite/ps_shard.h"
#include "runtime/numbers/rt_bf16.h"
#include "runtime/numbers/rt_coding.h"
#include "runtime/numbers/rt_int8.h"
#include "tests/support/lies.h"
#include "tests/support/records.h"
#include "tests/support/test.h"

#define GOLDEN "tests/golden/dense.golden"
#define WORKERS_MAX 8u
#define FLOATS_MAX 4096u
#define PIECES 3u // of the weights that a worker sends

typedef struct {
    uint32_t t;     // its iteration
    uint32_t chunk; // of that one, which it says next
    uint32_t sums;  // of that one, which came
    uint32_t piece;
    uint64_t version; // of its weights
    bool shares;      // nobody else has them
    bool waits;       // for weights
    uint32_t joins, joined;
    uint64_t told; // hash of what the shard says to it
    uint32_t messages;
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
    rt_bytes *record;
} exchange;

// ---- what the shard says -----------------------------------------------------------------------

static uint32_t chunks_of(const settings *set)
{
    return (set->floats + set->chunk - 1) / set->chunk;
}

static void take_state(player *p, const rt_message *message)
{
    rt_wire_dense_state head;
    const rt_wire_header *header = rt_message_header(message);
    memcpy(&head, rt_message_payload(message), sizeof head);
    const uint64_t floats = (header->payload_bytes - sizeof head) / sizeof(float);
    if (header->count + floats != head.total)
        return;
    p->version = header->iteration;
    p->waits = false;
}

static rt_status note(void *context, uint32_t peer, rt_message *message)
{
    exchange *x = context;
    rt_error error = {0};
    player *p = &x->players[rt_peer_rank(peer)];
    if (x->set.full_every && x->sent++ % x->set.full_every == 0)
        return RT_AGAIN;
    if (rt_message_validate(message, peer, &error))
        fail_msg("%s", error.text);
    const uint32_t type = rt_message_header(message)->type;
    p->told = rt_mix(p->told ^ rt_hash_bytes(message->data, message->size));
    p->messages++;
    if (type == RT_MESSAGE_DENSE_STATE)
        take_state(p, message);
    else if (type == RT_MESSAGE_DENSE_JOINED)
        p->joined++;
    else
        p->sums++;
    rt_message_release(message);
    return RT_OK;
}

// ---- what workers say --------------------------------------------------------------------------

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

static rt_message say_weights(const settings *set, uint32_t rank, player *p)
{
    float floats[4 * FLOATS_MAX];
    const rt_optimizer_config optimizer = {.kind = set->optimizer};
    const uint32_t values = set->floats - 1;
    const rt_wire_dense_state head = {values,
                                      values + rt_optimizer_state_floats(&optimizer, values)};
    const uint32_t first = head.total * p->piece / PIECES;
    const uint32_t end = head.total * ++p->piece / PIECES;
    draw(set, UINT32_MAX - p->version, rank, first, end - first, floats);
    for (uint32_t i = 0; i < end - first; i++)
        floats[i] += 3; // state of some optimizers cannot be negative
    if (p->piece == PIECES) {
        p->piece = 0;
        p->shares = false;
    }
    return create(RT_MESSAGE_DENSE_STATE, rank, p->version, first, &head, sizeof head, floats,
                  (end - first) * sizeof *floats);
}

static rt_message say_step(const settings *set, uint32_t rank, uint32_t t)
{
    const rt_wire_dense_step step = {.applies = t % 4 != 3, .scale = t % 3 ? 1 : 0.5f};
    (void)set;
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
        *message = say_step(set, rank, p->t - 1);
    return true; // with nothing to say, maybe
}

// What a worker says next. False: it waits, or has come to the end.
static bool speak(const settings *set, uint32_t rank, player *p, rt_message *message)
{
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
            *message = say_weights(set, rank, p);
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
        *message = say_weights(set, rank, p);
    else if (!message->data && set->keeps && p->version < set->iterations && !p->waits)
        *message = say_pull(rank, p, set->iterations);
    return message->data != NULL;
}

// ---- an exchange -------------------------------------------------------------------------------

// Ends it when the shard refuses.
static void give(exchange *x, uint32_t rank, rt_message *message)
{
    char what[LIES_TEXT_BYTES] = "";
    rt_error error = {0};
    rt_random random = {x->lie_seed};
    uint32_t peer = rt_peer(RT_ROLE_WORKER, rank);
    const bool is_lie = ++x->said == x->lie_at;
    const char *type = rt_message_type_name(rt_message_header(message)->type);
    if (is_lie)
        lies_tell(&random, x->set.workers + 1, message, &peer, what);
    x->status = rt_message_validate(message, peer, &error);
    if (!x->status)
        x->status = ps_shard_receive(x->shard, peer, message, &error);
    rt_message_release(message);
    if (x->status)
        records_put(x->record, "%" PRIu32 " %s of worker %" PRIu32 ", %s: %d %s", x->said, type,
                    rank, what, x->status, error.text);
    x->is_over = is_lie || x->status;
}

static bool flush(exchange *x)
{
    rt_error error = {0};
    const uint32_t before = x->sent;
    uint32_t messages = 0;
    for (uint32_t w = 0; w < x->set.workers; w++)
        messages += x->players[w].messages;
    const rt_status status = ps_shard_flush(x->shard, &error);
    assert_true(status == RT_OK || status == RT_AGAIN);
    for (uint32_t w = 0; w < x->set.workers; w++)
        messages -= x->players[w].messages;
    return messages != 0 || x->sent != before;
}

static bool happens(exchange *x)
{
    const uint32_t first = rt_random_below(&x->random, x->set.workers);
    if (rt_random_below(&x->random, 4) == 0)
        (void)flush(x);
    for (uint32_t i = 0; i < x->set.workers; i++) {
        rt_message message = {0};
        const uint32_t rank = (first + i) % x->set.workers;
        if (!speak(&x->set, rank, &x->players[rank], &message))
            continue;
        give(x, rank, &message);
        return true;
    }
    return flush(x);
}

static void put_end(exchange *x)
{
    uint32_t count = 0;
    ps_shard_statistics got;
    const ps_weights *weights = ps_shard_weights(x->shard);
    const float *block = weights ? ps_weights_block(weights, &count) : NULL;
    for (uint32_t w = 0; w < x->set.workers; w++)
        records_put(x->record, "worker %" PRIu32 ": %" PRIu32 " messages #%016" PRIx64, w,
                    x->players[w].messages, x->players[w].told);
    ps_shard_get_statistics(x->shard, &got);
    records_put(x->record,
                "%" PRIu64 " sums, %" PRIu64 " pieces, counts #%016" PRIx64 ", weights %" PRIu64
                " #%016" PRIx64,
                got.dense_sums, got.dense_pieces, rt_hash_bytes(&got, sizeof got),
                weights ? ps_weights_version(weights) : 0,
                block ? rt_hash_bytes(block, count * sizeof *block) : 0);
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
                                    .dense_optimizer = {.kind = x->set.optimizer,
                                                        .learning_rate = 0.125f,
                                                        .epsilon = 0.5f,
                                                        .momentum = 0.5f,
                                                        .initial_accumulator = 0.25f,
                                                        .l1 = 0.25f,
                                                        .beta = 1},
                                    .pulls_parked_max = 16,
                                    .message_bytes = 120,
                                    .queue_messages_max = 256,
                                    .send = note,
                                    .context = x};
    assert_int_equal(ps_shard_create(&config, &x->shard), RT_OK);
    for (uint32_t w = 0; w < x->set.workers; w++)
        x->players[w] =
            (player){.t = 1, .shares = x->set.keeps && w == rt_lowest_bit(workers_of(&x->set, 1))};
}

// Returns how many messages workers said. lie_at 0: all of it, recorded.
static uint32_t run(const settings *set, uint32_t lie_at, uint64_t lie_seed, bool *taken_p,
                    rt_bytes *record)
{
    static exchange x;
    x = (exchange){.set = *set,
                   .random = {rt_mix(set->seed)},
                   .lie_at = lie_at,
                   .lie_seed = lie_seed,
                   .record = record};
    begin(&x);
    while (!x.is_over && happens(&x)) {
        // until nothing can happen any more
    }
    for (uint32_t w = 0; !x.is_over && w < set->workers; w++)
        assert_true(x.players[w].t > set->iterations && !x.players[w].waits);
    if (lie_at == 0)
        put_end(&x);
    *taken_p = !x.status;
    ps_shard_destroy(x.shard);
    return x.said;
}

// ---- the file ----------------------------------------------------------------------------------

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

static char *play(const char *line)
{
    char text[RECORDS_LINE_BYTES];
    rt_bytes record = {0};
    bool taken;
    uint32_t all_taken = 0;
    settings set = {.seed = 1,
                    .workers = 3,
                    .floats = 40,
                    .chunk = 16,
                    .iterations = 8,
                    .bytes = 1 << 18,
                    .optimizer = RT_OPTIMIZER_SGD,
                    .lies = 30};
    snprintf(text, sizeof text, "%s", strchr(line, ':') + 1);
    for (char *rest = NULL, *one = strtok_r(text, " ", &rest); one;
         one = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(one, '=');
        assert_non_null(value);
        *value++ = '\0';
        set_up(&set, one, value);
    }
    const uint32_t said = run(&set, 0, 0, &taken, &record);
    rt_random random = {set.seed};
    for (uint32_t i = 0; i < set.lies; i++) {
        const uint32_t at = 1 + rt_random_below(&random, said);
        run(&set, at, rt_random_u64(&random), &taken, &record);
        all_taken += taken;
    }
    records_put(&record, "%" PRIu32 " lies were taken", all_taken);
    return records_text(&record);
}

int main(int argc, char **argv)
{
    return records_main(GOLDEN, 1u, 0, play, argc, argv);
}
