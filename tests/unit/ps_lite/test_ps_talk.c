// Conversations of a shard with its workers. What workers say is drawn by a seed, of few keys,
// versions and iterations, so that pulls wait, sums become complete, changes come early and late;
// some of it is wrong. Now and then a cut is written and read by another shard, which goes on; rows
// end, or are forgotten. In every one:
//   a row that goes out was asked for, is not older than was asked for, and as the shard has it
//   in that version; no pull is answered twice, none is lost
//   every push that is taken is confirmed once
//   versions only rise
//   what is refused has a reason and changes no row
//   what a cut has, who reads it has
//   bounds hold
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps_lite/ps_shard.h"
#include "ps_lite/ps_store.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/files/rt_file.h"
#include "runtime/numbers/rt_coding.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define LINE_BYTES 200u
#define PULLS_MAX 65536u
#define SCHEMA 77u
#define EPOCH 2u
#define ITERATIONS_MAX 6u
#define VERSIONS_MAX 5u
#define STEPS_OF_VERSION 60u
#define RECORDS_MAX 4u
#define RECORD_BYTES_MAX 512u

// KEY=VALUE... of set_up.
static const char *const conversations[] = {
    "seed=1",
    "seed=2 optimizer=rowwise_adagrad",
    "seed=3 optimizer=adagrad dim=8 workers=5",
    "seed=4 optimizer=ftrl cut=300",
    "seed=5 shards=2 rank=1",
    "seed=6 shards=3 rank=0 homes=1",
    "seed=7 shards=2 homes=1 cut=150 expire=230",
    "seed=8 deltas=1",
    "seed=9 deltas=1 optimizer=adagrad cut=200",
    "seed=10 wire=16",
    "seed=11 wire=16 deltas=1 optimizer=rowwise_adagrad",
    "seed=12 wire=8 optimizer=adagrad",
    "seed=13 wire=8 deltas=1",
    "seed=14 wire=8 homes=1 shards=2 cut=170 expire=90",
    "seed=15 dense=1",
    "seed=16 dense=1 dense_bytes=100",
    "seed=17 disk=1 rows=8388608 cut=500",
    "seed=18 disk=1 rows=8388608 wire=16 optimizer=adagrad",
    "seed=19 parked=3",
    "seed=20 queue=2 full=2",
    "seed=21 full=3 message=60",
    "seed=22 rows=4096 keys=200",
    "seed=23 gradients=150",
    "seed=24 expire=60 keys=12",
    "seed=25 cut=50 keys=12 optimizer=adagrad",
    "seed=26 workers=1",
    "seed=27 workers=12 keys=3 steps=4000",
    "seed=28 disk=1",
    "seed=29 disk=1 rows=8388608 homes=1 shards=2 cut=150 expire=230",
    "seed=30 rows=81920 keys=9000 steps=6000 optimizer=adagrad",
    "seed=31 keys=9000 steps=9000 cut=2100",
    "seed=32 keys=2500 steps=5000 cut=700 homes=1 shards=2 wire=16",
    "seed=33 keys=1500 steps=3000 cut=500 deltas=1 optimizer=rowwise_adagrad dim=5",
    "seed=34 wire=8 deltas=1 dim=9 gradients=400 full=3",
    "seed=35 homes=1 shards=2 cut=40 keys=20 expire=70 steps=800",
    "seed=36 dim=5 optimizer=rowwise_adagrad workers=2 message=33",
    "seed=37 workers=7 keys=2 parked=200 message=1000 full=4",
};

typedef struct {
    uint32_t worker;
    rt_wire_pull pull;
} asked;

// A key as it was seen last.
typedef struct {
    bool is_there;
    uint32_t version;
    float row[64];
} seen;

typedef struct {
    ps_shard_config config;
    ps_shard *shard;
    ps_store *store;
    rt_random random;
    uint32_t keys, steps, cut_every, expire_every;
    uint32_t now;        // the lowest version that is drawn: it rises
    uint32_t full_every; // so many calls of send are refused now and then; 0: none
    uint32_t calls;
    asked *pulls; // that wait for an answer
    uint32_t pull_count;
    seen *rows;                      // of all keys
    uint64_t pushes[RT_WORKERS_MAX]; // taken, less those that were confirmed
    uint32_t refused, answered;
    uint32_t last_cut, cuts;
} conversation;

static uint64_t key_of(uint32_t index)
{
    return UINT64_C(0x0100000000000000) + index * UINT64_C(0x9e3779b97f4a7);
}

static uint32_t index_of(uint64_t key)
{
    return (uint32_t)((key - UINT64_C(0x0100000000000000)) / UINT64_C(0x9e3779b97f4a7));
}

static uint32_t row_floats(const conversation *c)
{
    return c->config.dim + rt_optimizer_state_floats(&c->config.optimizer, c->config.dim);
}

// ---- what it says ------------------------------------------------------------------------------

static bool is_of(const asked *one, uint32_t worker, const rt_wire_row *row)
{
    return one->worker == worker && one->pull.key == row->key && one->pull.tag == row->tag &&
           one->pull.version <= row->version;
}

// A pull that waits leaves the list.
static void take_pull(conversation *c, uint32_t worker, const rt_wire_row *row)
{
    uint32_t i = 0;
    while (i < c->pull_count && !is_of(&c->pulls[i], worker, row))
        i++;
    if (i == c->pull_count)
        fail_msg("worker %" PRIu32 " gets key %" PRIx64 " in version %" PRIu32
                 ", which it has not asked for",
                 worker, row->key, row->version);
    c->pulls[i] = c->pulls[--c->pull_count];
    c->answered++;
}

// As the shard had the row when it was seen last, if that was in this version.
static void check_row(const conversation *c, const rt_wire_row *row, const uint8_t *floats,
                      bool is_coded)
{
    uint8_t packed[512];
    const uint32_t dim = c->config.dim;
    const seen *one = &c->rows[index_of(row->key)];
    if (!one->is_there || one->version != row->version || row->version == 0)
        return;
    if (!is_coded) {
        assert_memory_equal(floats, one->row, dim * sizeof *one->row);
        return;
    }
    rt_coding_pack(c->config.row_wire, one->row, dim, packed);
    assert_memory_equal(floats, packed, rt_coding_words(c->config.row_wire, dim) * sizeof(float));
}

static void take_rows(conversation *c, uint32_t worker, const rt_message *message)
{
    const rt_wire_header *header = rt_message_header(message);
    const bool is_coded = header->type == RT_MESSAGE_ROWS_CODED;
    const uint32_t dim = c->config.dim;
    const uint8_t *at = rt_message_payload(message);
    for (uint32_t i = 0; i < header->count; i++) {
        rt_wire_row row;
        memcpy(&row, at, sizeof row);
        at += sizeof row;
        const bool is_whole = !is_coded || row.version == 0 || row.tag & RT_WIRE_TAG_WHOLE;
        take_pull(c, worker, &row);
        check_row(c, &row, at, !is_whole);
        at += (is_whole ? dim : rt_coding_words(c->config.row_wire, dim)) * sizeof(float);
        at += row.tag & RT_WIRE_TAG_STATE ? (row_floats(c) - dim) * sizeof(float) : 0;
    }
    assert_ptr_equal(at, rt_message_payload(message) + header->payload_bytes);
}

static rt_status hear(void *context, uint32_t peer, rt_message *message)
{
    conversation *c = context;
    const uint32_t worker = rt_peer_rank(peer);
    rt_error error = {0};
    if (c->full_every && c->calls++ % c->full_every == 0)
        return RT_AGAIN;
    if (rt_message_validate(message, peer, &error))
        fail_msg("%s", error.text);
    const uint32_t type = rt_message_header(message)->type;
    if (type == RT_MESSAGE_ROWS || type == RT_MESSAGE_ROWS_CODED)
        take_rows(c, worker, message);
    if (type == RT_MESSAGE_PUSHED) {
        assert_true(c->pushes[worker] > 0);
        c->pushes[worker]--;
    }
    rt_message_release(message);
    return RT_OK;
}

// What the shard has; keys that are there only go on. may_end: some may be gone, or begin anew.
static void look(conversation *c, bool may_change, bool may_end)
{
    for (uint32_t k = 0; k < c->keys; k++) {
        seen *one = &c->rows[k];
        uint32_t version = 0;
        const float *row = ps_shard_find(c->shard, key_of(k), &version);
        const size_t size = row_floats(c) * sizeof *row;
        if (one->is_there && !may_end && (!row || version < one->version))
            fail_msg("key %" PRIx64 " was there in version %" PRIu32 ", and is in %" PRIu32,
                     key_of(k), one->version, version);
        if (!may_change && (one->is_there != (row != NULL) || one->version != version ||
                            (row && memcmp(one->row, row, size) != 0)))
            fail_msg("key %" PRIx64 " had version %" PRIu32 ", and has, for no reason, another row "
                     "in version %" PRIu32,
                     key_of(k), one->version, version);
        one->is_there = row != NULL;
        one->version = version;
        if (row)
            memcpy(one->row, row, size);
    }
}

static void check_bounds(const conversation *c)
{
    ps_shard_statistics got;
    uint64_t rows = 0;
    ps_shard_get_statistics(c->shard, &got);
    for (uint32_t k = 0; k < c->keys; k++)
        rows += c->rows[k].is_there;
    assert_int_equal(got.rows, rows);
    assert_true(got.pulls_parked <= (uint64_t)c->config.pulls_parked_max * c->config.worker_count);
    assert_true(got.pulls_parked <= c->pull_count);
    assert_true(got.gradients_waiting * c->config.dim * sizeof(float) <=
                c->config.gradient_bytes_max);
    assert_true(got.rows <= 1 || got.row_bytes <= c->config.memory_bytes_max);
}

// ---- what workers say --------------------------------------------------------------------------

static uint32_t below(conversation *c, uint32_t count)
{
    return rt_random_below(&c->random, count);
}

static uint64_t some_key(conversation *c)
{
    return key_of(below(c, c->keys));
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

// The records of a pull, which is to be answered.
static void note_pulls(conversation *c, uint32_t worker, const rt_wire_pull *pulls, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_true(c->pull_count < PULLS_MAX);
        c->pulls[c->pull_count++] = (asked){worker, pulls[i]};
    }
}

static bool has_key_twice(const rt_message *message)
{
    const rt_wire_header *header = rt_message_header(message);
    const uint64_t size = header->count ? header->payload_bytes / header->count : 0;
    const uint8_t *records = rt_message_payload((rt_message *)(uintptr_t)message);
    for (uint32_t i = 0; i < header->count; i++)
        for (uint32_t j = 0; j < i; j++)
            if (memcmp(records + i * size, records + j * size, sizeof(uint64_t)) == 0)
                return true;
    return false;
}

static void say_something(conversation *c)
{
    rt_error error = {0};
    rt_wire_pull pulls[RECORDS_MAX];
    const uint32_t worker = below(c, c->config.worker_count + (below(c, 50) == 0));
    rt_message message = below(c, 5) ? draw_rows(c, worker) : draw_dense(c, worker);
    rt_message_header(&message)->epoch = below(c, 60) ? EPOCH : EPOCH - 1;
    if (rt_message_validate(&message, rt_peer(RT_ROLE_WORKER, worker), &error)) {
        rt_message_release(&message); // a transport lets it not through
        return;
    }
    const rt_wire_header header = *rt_message_header(&message);
    const bool counts = header.epoch == EPOCH;
    const bool is_twice = rt_message_is_push(header.type) && has_key_twice(&message);
    const uint32_t asked_before = c->pull_count;
    if (header.type == RT_MESSAGE_PULL && counts) {
        memcpy(pulls, rt_message_payload(&message), header.count * sizeof *pulls);
        note_pulls(c, worker, pulls, header.count);
    }
    if (counts && rt_message_is_push(header.type))
        c->pushes[worker]++;
    const rt_status status =
        ps_shard_receive(c->shard, rt_peer(RT_ROLE_WORKER, worker), &message, &error);
    assert_null(message.data);
    if (status) {
        assert_true((status == RT_WIRE || status == RT_LIMIT || status == RT_CONFIG) &&
                    *error.text);
        c->refused++;
        if (counts && rt_message_is_push(header.type))
            c->pushes[worker]--;
        c->pull_count = asked_before;
    }
    // Forgotten rows leave, if they come too late to be wanted; else versions rise.
    if (c->keys > 200)
        return; // to look takes long
    look(c, counts && (!status || is_twice), header.type == RT_MESSAGE_FORGET);
    check_bounds(c);
}

// ---- cuts and ends -----------------------------------------------------------------------------

static void create(conversation *c)
{
    c->config.send = hear;
    c->config.context = c;
    c->config.store = c->store;
    assert_int_equal(ps_shard_create(&c->config, &c->shard), RT_OK);
}

// What waited is lost.
static void forget_talk(conversation *c)
{
    c->pull_count = 0;
    memset(c->pushes, 0, sizeof c->pushes);
}

static void expire(conversation *c)
{
    rt_error error = {0};
    uint64_t ended = 0, gone = 0;
    const uint32_t floor = c->now + below(c, VERSIONS_MAX);
    look(c, true, true);
    for (uint32_t k = 0; k < c->keys; k++)
        gone += c->rows[k].is_there && c->rows[k].version < floor;
    const rt_status status = ps_shard_expire(c->shard, floor, NULL, NULL, &ended, &error);
    assert_true(status == RT_OK || (status == RT_WIRE && *error.text));
    assert_int_equal(ended, status ? 0 : gone);
    look(c, status == RT_OK, true);
    const uint64_t key = some_key(c);
    const bool was_there = c->rows[index_of(key)].is_there;
    assert_int_equal(ps_shard_forget(c->shard, key), was_there);
    look(c, true, true);
    assert_false(c->rows[index_of(key)].is_there);
}

// A shard that reads the last file of all rows and the changes upon it has what this one has of
// rows that are younger than the first cut. (Older ones come late here, as in no run.)
static void read_changes(conversation *c, const char *whole, const char *changes, uint32_t base)
{
    ps_shard *own = c->shard;
    rt_error error = {0};
    create(c);
    if (ps_shard_load(c->shard, whole, SCHEMA, NULL, NULL, NULL, &error) ||
        ps_shard_load(c->shard, changes, SCHEMA, NULL, NULL, NULL, &error))
        fail_msg("%s", error.text);
    for (uint32_t k = 0; k < c->keys; k++) {
        const seen *one = &c->rows[k];
        uint32_t version = 0;
        const float *row = ps_shard_find(c->shard, key_of(k), &version);
        if (!one->is_there || one->version <= base)
            continue;
        assert_non_null(row);
        assert_int_equal(version, one->version);
        assert_memory_equal(row, one->row, row_floats(c) * sizeof *row);
    }
    ps_shard_destroy(c->shard);
    c->shard = own;
}

// All keys once, with their versions.
static void check_keys(const conversation *c)
{
    rt_wire_key *keys = calloc(c->keys + 1, sizeof *keys);
    ps_shard_statistics got;
    ps_shard_get_statistics(c->shard, &got);
    assert_int_equal(ps_shard_keys(c->shard, 0, c->keys + 1, keys), got.rows);
    for (uint64_t i = 0; i < got.rows; i++) {
        uint32_t version = 0;
        assert_non_null(ps_shard_find(c->shard, keys[i].key, &version));
        assert_int_equal(keys[i].version, version);
        for (uint64_t j = 0; j < i && got.rows < 300; j++)
            assert_true(keys[j].key != keys[i].key);
    }
    const uint64_t from = got.rows / 2;
    if (got.rows > 0) {
        rt_wire_key one;
        assert_int_equal(ps_shard_keys(c->shard, from, 1, &one), 1);
        assert_memory_equal(&one, &keys[from], sizeof one);
    }
    free(keys);
}

// The rows go to a file, and another shard has them.
static void cut(conversation *c)
{
    char path[300], whole[300];
    const ps_cut how = {.iteration = c->now + VERSIONS_MAX, .base = c->cuts % 2 ? c->last_cut : 0};
    rt_error error = {0};
    rt_file_sum sum = {0};
    snprintf(path, sizeof path, "%s", test_path(how.base ? "changes" : "rows"));
    snprintf(whole, sizeof whole, "%s", test_path("rows"));
    rt_file_place place = {.path = path};
    const rt_sink sink = rt_file_sink(&place);
    if (ps_shard_save(c->shard, &sink, SCHEMA, &how, NULL, NULL, &sum, &error))
        fail_msg("%s", error.text);
    ps_shard_cut(c->shard, how.iteration, how.base, how.base);
    look(c, true, true);
    check_bounds(c);
    check_keys(c);
    c->last_cut = how.iteration;
    c->cuts++;
    if (how.base && !c->store)
        read_changes(c, whole, path, how.base);
    if (how.base)
        return;
    ps_shard_destroy(c->shard);
    create(c);
    forget_talk(c);
    if (ps_shard_load(c->shard, path, SCHEMA, NULL, NULL, NULL, &error))
        fail_msg("%s", error.text);
    look(c, false, false);
    if (c->cuts % 4 == 1)
        expire(c); // nothing waits now
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

// All answers are out, and what is left of the pulls waits.
static void check_end(conversation *c)
{
    ps_shard_statistics got;
    rt_error error = {0};
    c->full_every = 0;
    while (ps_shard_flush(c->shard, &error) == RT_AGAIN) {
    }
    ps_shard_get_statistics(c->shard, &got);
    assert_int_equal(c->pull_count, got.pulls_parked);
    for (uint32_t w = 0; w < c->config.worker_count; w++)
        assert_int_equal(c->pushes[w], 0);
    look(c, true, true);
    check_bounds(c);
    assert_true(c->refused > 0 && (c->answered > 0 || got.rows == 0));
}

static void converse(const char *line)
{
    static conversation c;
    char text[LINE_BYTES];
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
    snprintf(text, sizeof text, "%s", line);
    printf("%s\n", line);
    for (char *rest = NULL, *one = strtok_r(text, " ", &rest); one;
         one = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(one, '=');
        assert_non_null(value);
        *value++ = '\0';
        set_up(&c, one, value);
    }
    c.pulls = calloc(PULLS_MAX, sizeof *c.pulls);
    c.rows = calloc(c.keys, sizeof *c.rows);
    create(&c);
    for (uint32_t i = 1; i <= c.steps; i++) {
        rt_error error = {0};
        c.now = i / STEPS_OF_VERSION;
        say_something(&c);
        if (below(&c, 3) == 0) {
            const rt_status status = ps_shard_flush(c.shard, &error);
            assert_true(status == RT_OK || status == RT_AGAIN);
        }
        if (c.cut_every && i % c.cut_every == 0)
            cut(&c);
        if (c.expire_every && i % c.expire_every == 0)
            expire(&c);
    }
    check_end(&c);
    ps_shard_destroy(c.shard);
    ps_store_destroy(c.store);
    free(c.pulls);
    free(c.rows);
}

static void every_answer_is_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(conversations); i++)
        converse(conversations[i]);
}

TEST_MAIN(TEST(every_answer_is_right))
