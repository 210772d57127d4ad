// Conversations of a shard with its workers, against those that were recorded
// (tests/golden/shard.golden): every message that it sends, what it refuses and why, what it
// counts, and the rows that it has in the end. What a shard has to do, other tests say; this one
// notices that one does otherwise.
//
// What workers say is drawn by a seed, of few keys, versions and iterations, so that pulls wait,
// sums become complete, changes come early and late; some of it is wrong, and changes nothing. Now
// and then a cut is written and read by another shard, which goes on; rows end, or are forgotten.
//
// A change that is to make others: LANYARD_UPDATE_GOLDEN=1 (or a part of a name) writes the file
// anew. It has a line for each conversation, NAME: KEY=VALUE...; the keys are those of set_up.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps_lite/ps_shard.h"
#include "ps_lite/ps_store.h"
#include "runtime/files/rt_file.h"
#include "runtime/numbers/rt_coding.h"
#include "runtime/rt_hash.h"
#include "tests/support/records.h"
#include "tests/support/test.h"

#define GOLDEN "tests/golden/shard.golden"
#define SCHEMA 77u
#define EPOCH 2u
#define ITERATIONS_MAX 6u
#define VERSIONS_MAX 5u
#define STEPS_OF_VERSION 60u
#define RECORDS_MAX 4u
#define RECORD_BYTES_MAX 512u

typedef struct {
    ps_shard_config config;
    ps_shard *shard;
    ps_store *store;
    rt_random random;
    uint32_t keys, steps, cut_every, expire_every;
    uint32_t now;        // the lowest version that is drawn: it rises
    uint32_t full_every; // so many calls of send are refused now and then; 0: none
    uint32_t calls;
    uint64_t said[RT_WORKERS_MAX]; // to each worker: hash of all messages
    uint32_t messages[RT_WORKERS_MAX];
    uint32_t statuses[32];
    uint64_t refusals; // hash of their texts
    uint32_t refused;
    uint32_t last_cut, cuts;
} conversation;

// ---- what it says ------------------------------------------------------------------------------

static rt_status note(void *context, uint32_t peer, rt_message *message)
{
    conversation *c = context;
    const uint32_t worker = rt_peer_rank(peer);
    rt_error error = {0};
    if (c->full_every && c->calls++ % c->full_every == 0)
        return RT_AGAIN;
    if (rt_message_validate(message, peer, &error))
        fail_msg("%s", error.text);
    rt_message_header(message)->stamp = 0; // of a clock
    c->said[worker] = rt_mix(c->said[worker] ^ rt_hash_bytes(message->data, message->size));
    c->messages[worker]++;
    rt_message_release(message);
    return RT_OK;
}

static void note_status(conversation *c, rt_status status, const char *text)
{
    c->statuses[status % RT_COUNT_OF(c->statuses)]++;
    if (!status)
        return;
    c->refused++;
    c->refusals = rt_mix(c->refusals ^ rt_hash_bytes(text, strlen(text)));
}

// ---- what workers say --------------------------------------------------------------------------

static uint32_t below(conversation *c, uint32_t count)
{
    return rt_random_below(&c->random, count);
}

static uint64_t some_key(conversation *c)
{
    return UINT64_C(0x0100000000000000) + below(c, c->keys) * UINT64_C(0x9e3779b97f4a7);
}

static void some_floats(conversation *c, float *floats, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        floats[i] = (float)below(c, 65) / 16 - 2;
}

static uint64_t some_workers(conversation *c)
{
    return rt_random_u64(&c->random) & rt_bits_below(c->config.worker_count);
}

// A step, mostly; now and then what is neither.
static uint32_t some_step(conversation *c)
{
    const uint32_t drawn = below(c, 16);
    return drawn < 3 ? drawn : RT_WIRE_STEP;
}

// A record of this type; its bytes.
static size_t draw_record(conversation *c, rt_message_type type, uint8_t *to)
{
    const uint32_t dim = c->config.dim;
    const uint32_t state = rt_optimizer_state_floats(&c->config.optimizer, dim);
    const bool is_coded = type == RT_MESSAGE_PUSH_GRAD_CODED ||
                          type == RT_MESSAGE_PUSH_DELTA_CODED || type == RT_MESSAGE_PUSH_CHANGE;
    float floats[64];
    size_t size;
    const uint64_t key = some_key(c);
    const uint32_t version = below(c, 8) ? c->now + below(c, VERSIONS_MAX + 1) : 0;
    if (type == RT_MESSAGE_PULL || type == RT_MESSAGE_FORGET) {
        const rt_wire_pull pull = {key, version,
                                   below(c, 4) | (below(c, 2) ? RT_WIRE_TAG_STATE : 0) |
                                       (below(c, 4) ? 0 : RT_WIRE_TAG_WHOLE)};
        memcpy(to, &pull, sizeof pull);
        return sizeof pull;
    }
    if (type == RT_MESSAGE_PUSH_GRAD || type == RT_MESSAGE_PUSH_GRAD_CODED) {
        const rt_wire_grad grad = {key, some_workers(c), version, some_step(c)};
        memcpy(to, &grad, size = sizeof grad);
    } else if (type == RT_MESSAGE_PUSH_DELTA || type == RT_MESSAGE_PUSH_DELTA_CODED) {
        const rt_wire_delta delta = {key, version + 1 + below(c, 2) - (below(c, 20) == 0), version,
                                     below(c, 2), 0};
        memcpy(to, &delta, size = sizeof delta);
    } else if (type == RT_MESSAGE_PUSH_CHANGE) {
        const rt_wire_change change = {key, version + 1 + below(c, 2), version};
        memcpy(to, &change, size = sizeof change);
    } else {
        const rt_wire_row row = {key, version, below(c, 3)};
        memcpy(to, &row, size = sizeof row);
    }
    const bool has_state = type != RT_MESSAGE_PUSH_GRAD && type != RT_MESSAGE_PUSH_GRAD_CODED;
    some_floats(c, floats, dim + state);
    if (!is_coded) {
        const size_t bytes = (dim + (has_state ? state : 0)) * sizeof *floats;
        memcpy(to + size, floats, bytes);
        return size + bytes;
    }
    const uint32_t words = rt_coding_words(c->config.row_wire, dim);
    rt_coding_pack(c->config.row_wire, floats, dim, to + size);
    size += words * sizeof(float);
    memcpy(to + size, floats + dim, (has_state ? state : 0) * sizeof *floats);
    return size + (has_state ? state : 0) * sizeof *floats;
}

static rt_message draw_rows(conversation *c, uint32_t worker)
{
    static const rt_message_type types[] = {RT_MESSAGE_PULL,
                                            RT_MESSAGE_PULL,
                                            RT_MESSAGE_PULL,
                                            RT_MESSAGE_PUSH_ROW,
                                            RT_MESSAGE_PUSH_ROW,
                                            RT_MESSAGE_PUSH_GRAD,
                                            RT_MESSAGE_PUSH_GRAD,
                                            RT_MESSAGE_PUSH_GRAD,
                                            RT_MESSAGE_FORGET,
                                            RT_MESSAGE_PUSH_DELTA,
                                            RT_MESSAGE_PUSH_DELTA,
                                            RT_MESSAGE_PUSH_CHANGE,
                                            RT_MESSAGE_PUSH_GRAD_CODED,
                                            RT_MESSAGE_PUSH_DELTA_CODED,
                                            RT_MESSAGE_SLICE};
    uint8_t bytes[RECORDS_MAX * RECORD_BYTES_MAX];
    const rt_message_type type = types[below(c, RT_COUNT_OF(types))];
    const uint32_t count = 1 + below(c, RECORDS_MAX);
    size_t size = 0;
    rt_message message;
    for (uint32_t i = 0; i < count; i++)
        size += draw_record(c, type, bytes + size);
    if (below(c, 40) == 0)
        size -= 4;
    assert_int_equal(rt_message_create(&message, type, rt_peer(RT_ROLE_WORKER, worker),
                                       c->now + 1 + below(c, ITERATIONS_MAX), count, size),
                     RT_OK);
    memcpy(rt_message_payload(&message), bytes, size);
    return message;
}

// Of the dense exchange: what all say is alike, so that sums become complete.
static rt_message draw_dense(conversation *c, uint32_t worker)
{
    struct {
        rt_wire_dense head;
        float floats[8];
    } grad = {.head = {below(c, 8) ? rt_bits_below(c->config.worker_count) : some_workers(c)}};
    const rt_wire_dense_step step = {.applies = below(c, 8) != 0, .scale = 1};
    rt_message message;
    const uint32_t which = below(c, 6), t = c->now + 1 + below(c, ITERATIONS_MAX);
    const uint32_t peer = rt_peer(RT_ROLE_WORKER, worker);
    some_floats(c, grad.floats, RT_COUNT_OF(grad.floats));
    if (which < 4) {
        const uint32_t count = 8 - (below(c, 30) == 0);
        assert_int_equal(rt_message_create(&message, RT_MESSAGE_DENSE_GRAD, peer, t,
                                           8 * below(c, 2), sizeof grad.head + 4 * count),
                         RT_OK);
        memcpy(rt_message_payload(&message), &grad, sizeof grad.head + 4 * count);
    } else if (which == 4) {
        assert_int_equal(
            rt_message_create(&message, RT_MESSAGE_DENSE_STEP, peer, t, 0, sizeof step), RT_OK);
        memcpy(rt_message_payload(&message), &step, sizeof step);
    } else {
        assert_int_equal(rt_message_create(&message, RT_MESSAGE_DENSE_PULL, peer, t, 0, 0), RT_OK);
    }
    return message;
}

static void say_something(conversation *c)
{
    rt_error error = {0};
    const uint32_t worker = below(c, c->config.worker_count + (below(c, 50) == 0));
    rt_message message = below(c, 5) ? draw_rows(c, worker) : draw_dense(c, worker);
    rt_message_header(&message)->epoch = below(c, 60) ? EPOCH : EPOCH - 1;
    if (rt_message_validate(&message, rt_peer(RT_ROLE_WORKER, worker), &error)) {
        rt_message_release(&message); // a transport lets it not through
        return;
    }
    note_status(c, ps_shard_receive(c->shard, rt_peer(RT_ROLE_WORKER, worker), &message, &error),
                error.text);
}

// ---- cuts and ends -----------------------------------------------------------------------------

static void create(conversation *c)
{
    c->config.send = note;
    c->config.context = c;
    c->config.store = c->store;
    assert_int_equal(ps_shard_create(&c->config, &c->shard), RT_OK);
}

static void put_rows(const conversation *c, rt_bytes *record)
{
    ps_shard_statistics statistics;
    const uint32_t floats =
        c->config.dim + rt_optimizer_state_floats(&c->config.optimizer, c->config.dim);
    uint64_t rows = 0;
    for (uint32_t k = 0; k < c->keys; k++) {
        uint32_t version = 0;
        const float *row = ps_shard_find(
            c->shard, UINT64_C(0x0100000000000000) + k * UINT64_C(0x9e3779b97f4a7), &version);
        rows = rt_mix(rows ^ (row ? rt_hash_bytes(row, floats * sizeof *row) ^ version : 1));
    }
    ps_shard_get_statistics(c->shard, &statistics);
    records_put(record, "rows %" PRIu64 " #%016" PRIx64 " counts #%016" PRIx64, statistics.rows,
                rows, rt_hash_bytes(&statistics, sizeof statistics));
}

static void expire(conversation *c, rt_bytes *record)
{
    rt_error error = {0};
    uint64_t ended = 0;
    const uint32_t floor = c->now + below(c, VERSIONS_MAX);
    const rt_status status = ps_shard_expire(c->shard, floor, NULL, NULL, &ended, &error);
    note_status(c, status, error.text);
    const bool forgotten = ps_shard_forget(c->shard, some_key(c));
    records_put(record, "below %" PRIu32 ": status %d, %" PRIu64 " rows ended, one forgotten: %d",
                floor, status, ended, forgotten);
}

// What a shard has that reads the last file of all rows and the changes upon it.
static void read_changes(conversation *c, const char *whole, const char *changes, rt_bytes *record)
{
    ps_shard *own = c->shard;
    rt_error error = {0};
    create(c);
    rt_status status = ps_shard_load(c->shard, whole, SCHEMA, NULL, NULL, NULL, &error);
    if (!status)
        status = ps_shard_load(c->shard, changes, SCHEMA, NULL, NULL, NULL, &error);
    note_status(c, status, error.text);
    put_rows(c, record);
    ps_shard_destroy(c->shard);
    c->shard = own;
}

// The rows go to a file, and another shard has them; what waited is lost.
static void cut(conversation *c, rt_bytes *record)
{
    char path[300], whole[300];
    const ps_cut how = {.iteration = c->now + VERSIONS_MAX, .base = c->cuts % 2 ? c->last_cut : 0};
    rt_error error = {0};
    rt_file_sum sum = {0};
    snprintf(path, sizeof path, "%s", test_path(how.base ? "changes" : "rows"));
    snprintf(whole, sizeof whole, "%s", test_path("rows"));
    rt_file_place place = {.path = path};
    const rt_sink sink = rt_file_sink(&place);
    const rt_status saved = ps_shard_save(c->shard, &sink, SCHEMA, &how, NULL, NULL, &sum, &error);
    note_status(c, saved, error.text);
    ps_shard_cut(c->shard, how.iteration, how.base);
    put_rows(c, record);
    rt_wire_key keys[64];
    const uint32_t count = ps_shard_keys(c->shard, c->cuts, RT_COUNT_OF(keys), keys);
    records_put(record, "cut %" PRIu32 " upon %" PRIu32 ": %" PRIu32 " keys #%016" PRIx64,
                how.iteration, how.base, count, rt_hash_bytes(keys, count * sizeof *keys));
    c->last_cut = how.iteration;
    c->cuts++;
    if (!saved && how.base && !c->store)
        read_changes(c, whole, path, record);
    if (saved || how.base)
        return;
    ps_shard_destroy(c->shard);
    create(c);
    error = (rt_error){0};
    note_status(c, ps_shard_load(c->shard, path, SCHEMA, NULL, NULL, NULL, &error), "load");
    put_rows(c, record);
    if (c->cuts % 4 == 1)
        expire(c, record); // nothing waits now
}

// ---- a conversation ----------------------------------------------------------------------------

static void plan_homes(ps_shard_config *config)
{
    config->homes = RT_HOMES_PLANNED;
    config->names_left = true;
}

static void set_up(conversation *c, const char *key, const char *value)
{
    static const char *const optimizers[] = {"sgd", "adagrad", "rowwise_adagrad", "ftrl"};
    static const rt_optimizer_kind kinds[] = {RT_OPTIMIZER_SGD, RT_OPTIMIZER_ADAGRAD,
                                              RT_OPTIMIZER_ROWWISE_ADAGRAD, RT_OPTIMIZER_FTRL};
    ps_shard_config *config = &c->config;
    const uint32_t number = (uint32_t)strtoul(value, NULL, 10);
    const struct {
        const char *key;
        uint32_t *to;
    } numbers[] = {{"workers", &config->worker_count},
                   {"shards", &config->shard_count},
                   {"rank", &config->rank},
                   {"dim", &config->dim},
                   {"parked", &config->pulls_parked_max},
                   {"queue", &config->queue_messages_max},
                   {"message", &config->message_bytes},
                   {"keys", &c->keys},
                   {"steps", &c->steps},
                   {"cut", &c->cut_every},
                   {"expire", &c->expire_every},
                   {"full", &c->full_every}};
    for (size_t i = 0; i < RT_COUNT_OF(numbers); i++) {
        if (strcmp(numbers[i].key, key) == 0) {
            *numbers[i].to = number;
            return;
        }
    }
    for (size_t i = 0; i < RT_COUNT_OF(optimizers); i++) {
        if (strcmp(key, "optimizer") == 0 && strcmp(optimizers[i], value) == 0)
            config->optimizer.kind = kinds[i];
    }
    if (strcmp(key, "seed") == 0)
        c->random = (rt_random){number};
    else if (strcmp(key, "wire") == 0)
        config->row_wire = number == 16 ? RT_CODING_BF16 : RT_CODING_INT8;
    else if (strcmp(key, "homes") == 0)
        plan_homes(config);
    else if (strcmp(key, "deltas") == 0)
        config->adds_deltas = true;
    else if (strcmp(key, "dense") == 0)
        config->keeps_dense = true;
    else if (strcmp(key, "rows") == 0)
        config->memory_bytes_max = number;
    else if (strcmp(key, "gradients") == 0)
        config->gradient_bytes_max = number;
    else if (strcmp(key, "dense_bytes") == 0)
        config->dense_bytes_max = number;
    else if (strcmp(key, "disk") == 0)
        assert_int_equal(ps_store_create("/var/tmp", 64 << 20, &c->store, NULL), RT_OK);
    else if (strcmp(key, "optimizer") != 0)
        fail_msg("%s: a shard has none", key);
}

static void put_end(conversation *c, rt_bytes *record)
{
    char line[RECORDS_LINE_BYTES] = "told";
    for (uint32_t w = 0; w < c->config.worker_count; w++) {
        const size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, " w%" PRIu32 "=%" PRIu32 "#%016" PRIx64, w,
                 c->messages[w], c->said[w]);
    }
    records_put(record, "%s", line);
    snprintf(line, sizeof line, "statuses");
    for (uint32_t s = 0; s < RT_COUNT_OF(c->statuses); s++) {
        const size_t used = strlen(line);
        if (c->statuses[s])
            snprintf(line + used, sizeof line - used, " %" PRIu32 ":%" PRIu32, s, c->statuses[s]);
    }
    records_put(record, "%s, %" PRIu32 " refused #%016" PRIx64, line, c->refused, c->refusals);
}

static char *play(const char *line)
{
    static conversation c;
    char text[RECORDS_LINE_BYTES];
    rt_bytes record = {0};
    c = (conversation){.keys = 6, .steps = 2000, .random = {1}};
    c.config =
        (ps_shard_config){.shard_count = 1,
                          .worker_count = 3,
                          .epoch = EPOCH,
                          .dim = 4,
                          .optimizer = {.kind = RT_OPTIMIZER_SGD,
                                        .learning_rate = 0.125f,
                                        .epsilon = 0.5f,
                                        .beta = 1},
                          .seed = 5,
                          .init_scale = 1,
                          .memory_bytes_max = 1 << 20,
                          .gradient_bytes_max = 1 << 20,
                          .dense_bytes_max = 1 << 20,
                          .dense_optimizer = {.kind = RT_OPTIMIZER_SGD, .learning_rate = 0.5f},
                          .pulls_parked_max = 64,
                          .message_bytes = 120,
                          .queue_messages_max = 8};
    snprintf(text, sizeof text, "%s", strchr(line, ':') + 1);
    for (char *rest = NULL, *one = strtok_r(text, " ", &rest); one;
         one = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(one, '=');
        assert_non_null(value);
        *value++ = '\0';
        set_up(&c, one, value);
    }
    create(&c);
    for (uint32_t i = 1; i <= c.steps; i++) {
        rt_error error = {0};
        c.now = i / STEPS_OF_VERSION;
        say_something(&c);
        if (below(&c, 3) == 0) {
            const rt_status status = ps_shard_flush(c.shard, &error);
            note_status(&c, status, status == RT_AGAIN ? "again" : error.text);
        }
        if (c.cut_every && i % c.cut_every == 0)
            cut(&c, &record);
        if (c.expire_every && i % c.expire_every == 0)
            expire(&c, &record);
    }
    put_rows(&c, &record);
    put_end(&c, &record);
    ps_shard_destroy(c.shard);
    ps_store_destroy(c.store);
    return records_text(&record);
}

int main(int argc, char **argv)
{
    return records_main(GOLDEN, 2u, 0, play, argc, argv);
}
