// shard_case - a shard of the parameter server alone: messages to it by hand, what it sends caught.
//
// Three workers, rows of four floats and one of state. Static: every test has its own copy.
#ifndef SHARD_CASE_H
#define SHARD_CASE_H

#include <string.h>

#include "ps_lite/ps_shard.h"
#include "runtime/config/rt_optimizers.h"
#include "tests/support/test.h"

#define WORKERS 3
#define DIM 4
#define ROW 5 // row-wise adagrad: one float of state
#define SENT_MAX 256
#define EPOCH 2

typedef struct {
    ps_shard *shard;
    rt_message sent[SENT_MAX];
    uint32_t peers[SENT_MAX];
    uint32_t sent_count;
    bool full; // the transport takes nothing
} fixture;

static inline rt_status capture(void *context, uint32_t peer, rt_message *message)
{
    fixture *f = context;
    rt_error error;
    if (f->full)
        return RT_AGAIN;
    assert_true(f->sent_count < SENT_MAX);
    assert_int_equal(rt_message_validate(message, peer, &error), RT_OK);
    assert_int_equal(rt_message_header(message)->epoch, EPOCH);
    f->peers[f->sent_count] = peer;
    f->sent[f->sent_count++] = *message;
    *message = (rt_message){0};
    return RT_OK;
}

static inline ps_shard_config config_of(fixture *f)
{
    return (ps_shard_config){
        .rank = 0,
        .shard_count = 1,
        .worker_count = WORKERS,
        .epoch = EPOCH,
        .dim = DIM,
        .optimizer = {.kind = RT_OPTIMIZER_ROWWISE_ADAGRAD, .learning_rate = 0.1f},
        .seed = 5,
        .init_scale = 1,
        .memory_bytes_max = 1 << 20,
        .gradient_bytes_max = 1 << 20,
        .dense_bytes_max = 1 << 20,
        .pulls_parked_max = 64,
        .message_bytes = 1 << 16,
        .queue_messages_max = 8,
        .send = capture,
        .context = f};
}

static inline void start(fixture *f, const ps_shard_config *config)
{
    memset(f, 0, sizeof *f);
    assert_int_equal(ps_shard_create(config, &f->shard), RT_OK);
}

static inline void setup(fixture *f)
{
    const ps_shard_config config = config_of(f);
    start(f, &config);
}

static inline void drop_sent(fixture *f)
{
    while (f->sent_count)
        rt_message_release(&f->sent[--f->sent_count]);
}

static inline void teardown(fixture *f)
{
    drop_sent(f);
    ps_store *store = ps_shard_store(f->shard);
    ps_shard_destroy(f->shard);
    ps_store_destroy(store);
}

// ---- Messages by hand

static inline rt_message message_of(uint32_t worker, rt_message_type type, uint64_t t,
                                    uint32_t count, const void *payload, size_t size)
{
    rt_message message = {0};
    assert_int_equal(
        rt_message_create(&message, type, rt_peer(RT_ROLE_WORKER, worker), t, count, size), RT_OK);
    rt_message_header(&message)->epoch = EPOCH;
    if (size)
        memcpy(rt_message_payload(&message), payload, size);
    return message;
}

static inline rt_status receive(fixture *f, uint32_t worker, rt_message message, rt_error *error)
{
    rt_status status = ps_shard_receive(f->shard, rt_peer(RT_ROLE_WORKER, worker), &message, error);
    assert_null(message.data);
    return status;
}

static inline void accepted(fixture *f, uint32_t worker, rt_message message)
{
    rt_error error = {RT_OK, ""};
    if (receive(f, worker, message, &error) != RT_OK)
        fail_msg("%s", error.text);
}

typedef struct {
    rt_wire_row head;
    float floats[ROW];
} row_record;

typedef struct {
    rt_wire_grad head;
    float floats[DIM];
} grad_record;

static inline rt_message pull_of(uint32_t worker, rt_message_type type, uint64_t t, uint64_t key,
                                 uint32_t version, uint32_t tag)
{
    const rt_wire_pull pull = {key, version, tag};
    return message_of(worker, type, t, 1, &pull, sizeof pull);
}

static inline row_record row_of(uint64_t key, uint32_t version, float value)
{
    return (row_record){{key, version, 0}, {value, value + 1, value + 2, value + 3, value + 4}};
}

// The structures have padding at their end; the wire has none.
static inline rt_message push_of(uint32_t worker, uint64_t t, uint64_t key, uint32_t version,
                                 float value)
{
    const row_record record = row_of(key, version, value);
    return message_of(worker, RT_MESSAGE_PUSH_ROW, t, 1, &record, sizeof(rt_wire_row) + ROW * 4);
}

static inline rt_message grad_of(uint32_t worker, uint64_t t, uint64_t key, uint64_t mask,
                                 uint32_t base, uint32_t step, float value)
{
    const grad_record record = {{key, mask, base, step}, {value, -value, 2 * value, 0}};
    return message_of(worker, RT_MESSAGE_PUSH_GRAD, t, 1, &record, sizeof(rt_wire_grad) + DIM * 4);
}

// Of all workers.
static inline rt_message dense_of(uint32_t worker, uint64_t t, uint32_t chunk, const float *floats,
                                  uint32_t count)
{
    struct {
        rt_wire_dense head;
        float floats[64];
    } record = {.head = {rt_bits_below(WORKERS)}};
    assert_true(count <= RT_COUNT_OF(record.floats));
    memcpy(record.floats, floats, count * sizeof *floats);
    return message_of(worker, RT_MESSAGE_DENSE_GRAD, t, chunk, &record,
                      sizeof record.head + count * sizeof *floats);
}

// ---- What came out

static inline void flush(fixture *f)
{
    assert_int_equal(ps_shard_flush(f->shard, NULL), RT_OK);
}

static inline uint32_t count_sent(const fixture *f, rt_message_type type)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < f->sent_count; i++)
        count += rt_message_header(&f->sent[i])->type == type;
    return count;
}

// The only record of the only message of a type; returns its floats.
static inline const float *only_record(fixture *f, rt_message_type type, uint32_t worker,
                                       rt_wire_row *head)
{
    flush(f);
    assert_int_equal(count_sent(f, type), 1);
    uint32_t i = 0;
    while (rt_message_header(&f->sent[i])->type != type)
        i++;
    assert_int_equal(f->peers[i], rt_peer(RT_ROLE_WORKER, worker));
    assert_int_equal(rt_message_header(&f->sent[i])->count, 1);
    memcpy(head, rt_message_payload(&f->sent[i]), sizeof *head);
    return (const float *)(const void *)(rt_message_payload(&f->sent[i]) + sizeof *head);
}

static inline ps_shard_statistics statistics_of(const fixture *f)
{
    ps_shard_statistics statistics;
    ps_shard_get_statistics(f->shard, &statistics);
    return statistics;
}

static inline void expect_row(const fixture *f, uint64_t key, uint32_t version, float value)
{
    uint32_t got = 0;
    const float *row = ps_shard_find(f->shard, key, &got);
    assert_non_null(row);
    assert_int_equal(got, version);
    for (int i = 0; i < ROW; i++)
        assert_true(row[i] == value + (float)i);
}

#endif
