#include "ps_lite/ps_shard.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ps_lite/ps_dense.h"
#include "runtime/rt_hash.h"
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

static rt_status capture(void *context, uint32_t peer, rt_message *message)
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

static ps_shard_config config_of(fixture *f)
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

static void start(fixture *f, const ps_shard_config *config)
{
    memset(f, 0, sizeof *f);
    assert_int_equal(ps_shard_create(config, &f->shard), RT_OK);
}

static void setup(fixture *f)
{
    const ps_shard_config config = config_of(f);
    start(f, &config);
}

static void drop_sent(fixture *f)
{
    while (f->sent_count)
        rt_message_release(&f->sent[--f->sent_count]);
}

static void teardown(fixture *f)
{
    drop_sent(f);
    ps_shard_destroy(f->shard);
}

// ---- Messages by hand

static rt_message message_of(uint32_t worker, rt_message_type type, uint64_t t, uint32_t count,
                             const void *payload, size_t size)
{
    rt_message message = {0};
    assert_int_equal(
        rt_message_create(&message, type, rt_peer(RT_ROLE_WORKER, worker), t, count, size), RT_OK);
    rt_message_header(&message)->epoch = EPOCH;
    if (size)
        memcpy(rt_message_payload(&message), payload, size);
    return message;
}

static rt_status receive(fixture *f, uint32_t worker, rt_message message, rt_error *error)
{
    rt_status status = ps_shard_receive(f->shard, rt_peer(RT_ROLE_WORKER, worker), &message, error);
    assert_null(message.data);
    return status;
}

static void accepted(fixture *f, uint32_t worker, rt_message message)
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

static rt_message pull_of(uint32_t worker, rt_message_type type, uint64_t t, uint64_t key,
                          uint32_t version, uint32_t tag)
{
    const rt_wire_pull pull = {key, version, tag};
    return message_of(worker, type, t, 1, &pull, sizeof pull);
}

static row_record row_of(uint64_t key, uint32_t version, float value)
{
    return (row_record){{key, version, 0}, {value, value + 1, value + 2, value + 3, value + 4}};
}

// The structures have padding at their end; the wire has none.
static rt_message push_of(uint32_t worker, uint64_t t, uint64_t key, uint32_t version, float value)
{
    const row_record record = row_of(key, version, value);
    return message_of(worker, RT_MESSAGE_PUSH_ROW, t, 1, &record, sizeof(rt_wire_row) + ROW * 4);
}

static rt_message grad_of(uint32_t worker, uint64_t t, uint64_t key, uint64_t mask, uint32_t base,
                          uint32_t keeper, float value)
{
    const grad_record record = {{key, mask, base, keeper}, {value, -value, 2 * value, 0}};
    return message_of(worker, RT_MESSAGE_PUSH_GRAD, t, 1, &record, sizeof(rt_wire_grad) + DIM * 4);
}

// ---- What came out

static void flush(fixture *f)
{
    assert_int_equal(ps_shard_flush(f->shard, NULL), RT_OK);
}

static uint32_t count_sent(const fixture *f, rt_message_type type)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < f->sent_count; i++)
        count += rt_message_header(&f->sent[i])->type == type;
    return count;
}

// The only record of the only message of a type; returns its floats.
static const float *only_record(fixture *f, rt_message_type type, uint32_t worker,
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

static ps_shard_statistics statistics_of(const fixture *f)
{
    ps_shard_statistics statistics;
    ps_shard_get_statistics(f->shard, &statistics);
    return statistics;
}

static void expect_row(const fixture *f, uint64_t key, uint32_t version, float value)
{
    uint32_t got = 0;
    const float *row = ps_shard_find(f->shard, key, &got);
    assert_non_null(row);
    assert_int_equal(got, version);
    for (int i = 0; i < ROW; i++)
        assert_true(row[i] == value + (float)i);
}

// ---- Pulls and rows

static void test_first_touch_creates_by_init(void **context)
{
    (void)context;
    fixture f;
    rt_wire_row head;
    float want[DIM];
    setup(&f);
    accepted(&f, 1, pull_of(1, RT_MESSAGE_PULL, 1, 77, 0, 5));
    const float *got = only_record(&f, RT_MESSAGE_ROWS, 1, &head);
    rt_row_init(77, 5, 1, DIM, want);
    assert_memory_equal(got, want, sizeof want);
    assert_true(head.key == 77 && head.version == 0 && head.tag == 5);
    assert_int_equal(statistics_of(&f).rows_created, 1);
    teardown(&f);
}

static void test_pulls_wait_for_their_version_and_block_nobody(void **context)
{
    (void)context;
    fixture f;
    rt_wire_row head;
    setup(&f);
    accepted(&f, 0, pull_of(0, RT_MESSAGE_PULL, 4, 1, 3, 7 | RT_WIRE_TAG_STATE)); // parks
    accepted(&f, 0, pull_of(0, RT_MESSAGE_PULL, 4, 2, 0, 8));                     // does not
    only_record(&f, RT_MESSAGE_ROWS, 0, &head);
    assert_true(head.key == 2);
    drop_sent(&f);
    accepted(&f, 1, push_of(1, 2, 1, 2, 10)); // an older version does not wake it
    flush(&f);
    assert_int_equal(count_sent(&f, RT_MESSAGE_ROWS), 0);
    assert_int_equal(statistics_of(&f).pulls_parked, 1);
    accepted(&f, 2, push_of(2, 4, 1, 3, 20));
    const float *got = only_record(&f, RT_MESSAGE_ROWS, 0, &head);
    assert_true(head.version == 3 && head.tag == (7 | RT_WIRE_TAG_STATE));
    assert_true(got[0] == 20 && got[ROW - 1] == 24); // with state
    assert_int_equal(statistics_of(&f).pulls_parked, 0);
    teardown(&f);
}

static void test_a_newer_row_answers_with_its_version(void **context)
{
    (void)context;
    fixture f;
    rt_wire_row head;
    setup(&f);
    accepted(&f, 0, push_of(0, 9, 1, 9, 10));
    accepted(&f, 1, pull_of(1, RT_MESSAGE_PULL, 4, 1, 3, 0));
    const float *got = only_record(&f, RT_MESSAGE_ROWS, 1, &head);
    assert_true(head.version == 9 && got[0] == 10);
    teardown(&f);
}

static void test_stale_pushes_are_ignored_and_answered(void **context)
{
    (void)context;
    fixture f;
    setup(&f);
    accepted(&f, 0, push_of(0, 6, 1, 6, 10));
    accepted(&f, 1, push_of(1, 6, 1, 6, 20));
    accepted(&f, 2, push_of(2, 7, 1, 5, 30));
    expect_row(&f, 1, 6, 10);
    assert_int_equal(statistics_of(&f).row_pushes_ignored, 2);
    assert_int_equal(count_sent(&f, RT_MESSAGE_PUSHED), 3); // credits return all the same
    teardown(&f);
}

// ---- Gradients

static const uint32_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
static const float uneven[] = {1e8f, 1, -1e8f}; // (g0 + g1) + g2 is 0, g0 + g2 + g1 is 1

static void test_sums_are_in_worker_order_whatever_comes_first(void **context)
{
    (void)context;
    for (size_t i = 0; i < RT_COUNT_OF(orders); i++) {
        fixture f;
        uint32_t version;
        setup(&f);
        accepted(&f, 0, push_of(0, 3, 1, 3, 10));
        for (int k = 0; k < 3; k++) {
            const uint32_t worker = orders[i][k];
            accepted(&f, worker, grad_of(worker, 4, 1, 7, 3, RT_WIRE_NO_KEEPER, uneven[worker]));
        }
        const float *row = ps_shard_find(f.shard, 1, &version);
        assert_int_equal(version, 4);
        assert_true(row[0] == 10 && row[1] == 11); // the sum is 0
        assert_int_equal(statistics_of(&f).steps, 1);
        assert_int_equal(statistics_of(&f).gradients_waiting, 0);
        teardown(&f);
    }
}

static void test_gradients_stay_invisible_until_all_and_base_are_in(void **context)
{
    (void)context;
    fixture f;
    rt_wire_row head;
    setup(&f);
    accepted(&f, 0, pull_of(0, RT_MESSAGE_PULL, 5, 1, 4, 0));
    accepted(&f, 1, grad_of(1, 4, 1, 6, 3, RT_WIRE_NO_KEEPER, 1));
    accepted(&f, 2, grad_of(2, 4, 1, 6, 3, RT_WIRE_NO_KEEPER, 1)); // overtook the base row
    uint32_t version;
    assert_null(ps_shard_find(f.shard, 1, &version));
    accepted(&f, 0, push_of(0, 4, 1, 2, 50)); // not the base either
    expect_row(&f, 1, 2, 50);
    accepted(&f, 1, push_of(1, 4, 1, 3, 10));
    const float *got = only_record(&f, RT_MESSAGE_ROWS, 0, &head);
    float want[ROW] = {10, 11, 12, 13, 14}, sum[DIM] = {2, -2, 4, 0};
    const ps_shard_config config = config_of(&f);
    rt_optimizer_step(&config.optimizer, DIM, 4, want, want + DIM, sum);
    assert_true(head.version == 4);
    assert_memory_equal(got, want, DIM * sizeof(float));
    assert_memory_equal(ps_shard_find(f.shard, 1, &version), want, sizeof want);
    teardown(&f);
}

static void test_the_base_alone_does_not_apply_a_part_of_the_sum(void **context)
{
    (void)context;
    fixture f;
    uint32_t version;
    setup(&f);
    accepted(&f, 1, grad_of(1, 4, 1, 6, 3, RT_WIRE_NO_KEEPER, 1));
    accepted(&f, 2, push_of(2, 4, 1, 3, 10));
    expect_row(&f, 1, 3, 10);
    accepted(&f, 2, grad_of(2, 4, 1, 6, 3, RT_WIRE_NO_KEEPER, 1));
    assert_non_null(ps_shard_find(f.shard, 1, &version));
    assert_int_equal(version, 4);
    teardown(&f);
}

// The pull of the base version comes before the sum that replaces it.
static void test_pulls_of_the_base_are_answered_before_the_sum(void **context)
{
    (void)context;
    fixture f;
    rt_wire_row head;
    setup(&f);
    accepted(&f, 0, pull_of(0, RT_MESSAGE_PULL, 4, 1, 3, 0));
    accepted(&f, 1, grad_of(1, 4, 1, 6, 3, RT_WIRE_NO_KEEPER, 1));
    accepted(&f, 2, grad_of(2, 4, 1, 6, 3, RT_WIRE_NO_KEEPER, 1));
    accepted(&f, 2, push_of(2, 4, 1, 3, 10));
    const float *got = only_record(&f, RT_MESSAGE_ROWS, 0, &head);
    assert_true(head.version == 3 && got[0] == 10);
    teardown(&f);
}

static void test_first_touch_by_several_creates_from_base_0(void **context)
{
    (void)context;
    fixture f;
    uint32_t version;
    setup(&f);
    accepted(&f, 0, grad_of(0, 1, 1, 3, 0, RT_WIRE_NO_KEEPER, 1));
    assert_null(ps_shard_find(f.shard, 1, &version));
    accepted(&f, 1, grad_of(1, 1, 1, 3, 0, RT_WIRE_NO_KEEPER, 1));
    float want[ROW] = {0}, sum[DIM] = {2, -2, 4, 0};
    const ps_shard_config config = config_of(&f);
    rt_row_init(1, 5, 1, DIM, want);
    rt_optimizer_step(&config.optimizer, DIM, 1, want, want + DIM, sum);
    assert_memory_equal(ps_shard_find(f.shard, 1, &version), want, sizeof want);
    assert_int_equal(version, 1);
    teardown(&f);
}

static void test_keeper_gets_the_sum_of_the_others(void **context)
{
    (void)context;
    for (int early = 0; early < 2; early++) { // the pull first, or last
        fixture f;
        rt_wire_row head;
        uint32_t version;
        setup(&f);
        if (early)
            accepted(&f, 1, pull_of(1, RT_MESSAGE_PULL_SUM, 4, 1, 4, 6));
        accepted(&f, 2, grad_of(2, 4, 1, 5, 3, 1, 8));
        accepted(&f, 0, grad_of(0, 4, 1, 5, 3, 1, 4));
        flush(&f);
        assert_int_equal(count_sent(&f, RT_MESSAGE_SUM_ROWS), early);
        if (!early)
            accepted(&f, 1, pull_of(1, RT_MESSAGE_PULL_SUM, 4, 1, 4, 6));
        const float *got = only_record(&f, RT_MESSAGE_SUM_ROWS, 1, &head);
        assert_true(head.version == 4 && head.tag == 6 && got[0] == 12 && got[1] == -12);
        assert_null(ps_shard_find(f.shard, 1, &version)); // not applied
        assert_int_equal(statistics_of(&f).gradients_waiting, 0);
        drop_sent(&f);
        accepted(&f, 1, pull_of(1, RT_MESSAGE_PULL_SUM, 5, 1, 4, 6)); // forgotten: parks
        flush(&f);
        assert_int_equal(f.sent_count, 0);
        teardown(&f);
    }
}

static void test_two_sums_of_a_key_are_kept_apart(void **context)
{
    (void)context;
    fixture f;
    setup(&f);
    accepted(&f, 0, pull_of(0, RT_MESSAGE_PULL_SUM, 4, 1, 4, 0));
    accepted(&f, 1, pull_of(1, RT_MESSAGE_PULL_SUM, 6, 1, 6, 0));
    accepted(&f, 2, grad_of(2, 4, 1, 4, 3, 0, 40));
    accepted(&f, 2, grad_of(2, 6, 1, 4, 5, 1, 60));
    flush(&f);
    assert_int_equal(count_sent(&f, RT_MESSAGE_SUM_ROWS), 2);
    for (uint32_t i = 0; i < f.sent_count; i++) {
        const rt_wire_header *header = rt_message_header(&f.sent[i]);
        float sum;
        if (header->type != RT_MESSAGE_SUM_ROWS)
            continue;
        memcpy(&sum, rt_message_payload(&f.sent[i]) + sizeof(rt_wire_row), sizeof sum);
        assert_true(sum == (rt_peer_rank(f.peers[i]) == 0 ? 40 : 60));
    }
    teardown(&f);
}

// Many thousands of pulls and sums wait at once, then all end: storage grows, nothing is lost.
static void test_many_wait(void **context)
{
    (void)context;
    enum { KEYS = 5000 };
    fixture f;
    ps_shard_config config = config_of(&f);
    config.pulls_parked_max = KEYS;
    start(&f, &config);
    for (uint32_t key = 0; key < KEYS; key++) {
        const float value = (float)key;
        accepted(&f, 0, pull_of(0, RT_MESSAGE_PULL, 3, key, 2, key));
        accepted(&f, 1, grad_of(1, 2, key, 6, 1, RT_WIRE_NO_KEEPER, value));
        drop_sent(&f);
    }
    assert_int_equal(statistics_of(&f).pulls_parked, KEYS);
    assert_int_equal(statistics_of(&f).gradients_waiting, KEYS);
    for (uint32_t key = KEYS; key-- > 0;) {
        uint32_t version;
        float want[ROW] = {1, 2, 3, 4, 5},
              sum[DIM] = {2 * (float)key, -2 * (float)key, 4 * (float)key, 0};
        rt_optimizer_step(&config.optimizer, DIM, 2, want, want + DIM, sum);
        accepted(&f, 2, push_of(2, 2, key, 1, 1));
        accepted(&f, 2, grad_of(2, 2, key, 6, 1, RT_WIRE_NO_KEEPER, (float)key));
        assert_memory_equal(ps_shard_find(f.shard, key, &version), want, sizeof want);
        assert_int_equal(version, 2);
        drop_sent(&f);
    }
    assert_int_equal(statistics_of(&f).pulls_parked, 0);
    assert_int_equal(statistics_of(&f).gradients_waiting, 0);
    teardown(&f);
}

// ---- Outgoing messages

static void test_replies_are_split_by_size_and_by_iteration(void **context)
{
    (void)context;
    fixture f;
    setup(&f);
    ps_shard_config config = config_of(&f);
    config.message_bytes = 100; // three rows of 32 bytes
    ps_shard_destroy(f.shard);
    start(&f, &config);
    rt_wire_pull pulls[8];
    for (uint64_t t = 1; t <= 2; t++) {
        for (uint32_t i = 0; i < 8; i++)
            pulls[i] = (rt_wire_pull){i, 0, i};
        accepted(&f, 0, message_of(0, RT_MESSAGE_PULL, t, 8, pulls, sizeof pulls));
    }
    assert_int_equal(f.sent_count, 4); // the full ones at once
    flush(&f);
    assert_int_equal(f.sent_count, 6);
    uint32_t counts[3] = {0, 0, 0};
    for (uint32_t i = 0; i < f.sent_count; i++) {
        const rt_wire_header *header = rt_message_header(&f.sent[i]);
        assert_true(header->count <= 3 && header->iteration <= 2);
        counts[header->iteration] += header->count;
    }
    assert_true(counts[1] == 8 && counts[2] == 8);
    teardown(&f);
}

static void test_a_full_transport_keeps_order_and_has_a_bound(void **context)
{
    (void)context;
    fixture f;
    rt_error error = {RT_OK, ""};
    setup(&f);
    f.full = true;
    for (uint32_t i = 1; i <= 8; i++)
        accepted(&f, 1, push_of(1, i, 1, i, 1));
    assert_int_equal(ps_shard_flush(f.shard, NULL), RT_AGAIN);
    assert_int_equal(receive(&f, 1, push_of(1, 9, 1, 9, 1), &error), RT_LIMIT);
    assert_non_null(strstr(error.text, "worker 1"));
    accepted(&f, 2, push_of(2, 1, 2, 1, 1)); // others are not concerned
    f.full = false;
    accepted(&f, 1, push_of(1, 9, 1, 9, 1)); // goes behind those that wait
    flush(&f);
    assert_int_equal(f.sent_count, 10);
    uint64_t t = 0;
    for (uint32_t i = 0; i < f.sent_count; i++)
        if (rt_peer_rank(f.peers[i]) == 1)
            assert_int_equal(rt_message_header(&f.sent[i])->iteration, ++t);
    assert_int_equal(t, 9);
    teardown(&f);
}

// ---- Dense gradients

static rt_message dense_of(uint32_t worker, uint64_t t, uint32_t chunk, const float *floats,
                           uint32_t count)
{
    return message_of(worker, RT_MESSAGE_DENSE_GRAD, t, chunk, floats, count * sizeof *floats);
}

// The sums themselves are test_ps_dense's.
static void test_dense_sums_go_to_every_worker(void **context)
{
    (void)context;
    fixture f;
    uint64_t workers = 0;
    setup(&f);
    for (uint32_t worker = WORKERS; worker-- > 0;) {
        const float floats[2] = {uneven[worker], (float)worker};
        assert_int_equal(f.sent_count, 0);
        accepted(&f, worker, dense_of(worker, 7, 4, floats, 2));
    }
    assert_int_equal(f.sent_count, WORKERS);
    for (uint32_t m = 0; m < f.sent_count; m++) {
        const rt_wire_header *header = rt_message_header(&f.sent[m]);
        const float *sum = (const float *)(const void *)rt_message_payload(&f.sent[m]);
        assert_int_equal(header->type, RT_MESSAGE_DENSE_SUM);
        assert_int_equal(header->sender, rt_peer(RT_ROLE_PS, 0));
        assert_true(header->iteration == 7 && header->count == 4);
        assert_true(sum[0] == 0 && sum[1] == 3);
        workers |= rt_bit(rt_peer_rank(f.peers[m]));
    }
    assert_int_equal(workers, 7);
    assert_int_equal(statistics_of(&f).dense_sums, 1);
    teardown(&f);
}

// ---- What peers may not do

static void rejected(fixture *f, uint32_t worker, rt_message message, const char *text)
{
    rt_error error = {RT_OK, ""};
    const ps_shard_statistics before = statistics_of(f);
    const uint32_t sent = f->sent_count;
    assert_int_equal(receive(f, worker, message, &error), RT_WIRE);
    assert_int_equal(error.status, RT_WIRE);
    char name[16];
    snprintf(name, sizeof name, "worker %u", worker);
    if (!strstr(error.text, name) || !strstr(error.text, text))
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", error.text, name, text);
    const ps_shard_statistics after = statistics_of(f);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(ps_shard_flush(f->shard, NULL), RT_OK);
    assert_int_equal(f->sent_count, sent);
}

static void test_broken_messages_are_rejected(void **context)
{
    (void)context;
    fixture f;
    rt_error error;
    setup(&f);
    accepted(&f, 0, push_of(0, 5, 1, 5, 10));
    const uint32_t none = RT_WIRE_NO_KEEPER;
    uint8_t bytes[256] = {0};
    // Sizes
    rejected(&f, 0, message_of(0, RT_MESSAGE_PULL, 1, 2, bytes, 16), "2 records of 16 bytes");
    rejected(&f, 0, message_of(0, RT_MESSAGE_PULL_SUM, 1, 1, bytes, 32), "1 records of 16 bytes");
    rejected(&f, 0, message_of(0, RT_MESSAGE_PUSH_ROW, 1, 1, bytes, 32), "1 records of 36 bytes");
    rejected(&f, 0, message_of(0, RT_MESSAGE_PUSH_GRAD, 1, 3, bytes, 80), "3 records of 40 bytes");
    rejected(&f, 0, message_of(0, RT_MESSAGE_PULL, 1, UINT32_MAX, bytes, 240), "do not make");
    // Types
    rejected(&f, 2, message_of(2, RT_MESSAGE_ROWS, 1, 0, bytes, 0), "takes no ROWS");
    rejected(&f, 2, message_of(2, RT_MESSAGE_SLICE, 1, 0, bytes, 0), "takes no SLICE");
    // Rows
    rejected(&f, 0, push_of(0, 1, 1, 0, 1), "version 0");
    // Gradients by themselves
    rejected(&f, 0, grad_of(0, 6, 1, 6, 5, none, 1), "lacks the sender");
    rejected(&f, 0, grad_of(0, 6, 1, 9, 5, none, 1), "beyond 2");
    rejected(&f, 0, grad_of(0, 6, 1, 3, 6, none, 1), "base 6");
    rejected(&f, 0, grad_of(0, 6, 1, 3, 5, 3, 1), "keeper 3");
    rejected(&f, 0, grad_of(0, 6, 1, 3, 5, 1, 1), "holds the keeper 1");
    rejected(&f, 0, grad_of(0, 0, 1, 3, 0, none, 1), "iteration 0");
    rejected(&f, 0, grad_of(0, UINT64_C(1) << 32, 1, 3, 5, none, 1), "no version");
    rejected(&f, 0, grad_of(0, 6, 1, 3, 4, none, 1), "the row has version 5");
    // Gradients against each other
    accepted(&f, 0, grad_of(0, 6, 1, 3, 5, none, 1));
    rejected(&f, 0, grad_of(0, 6, 1, 3, 5, none, 1), "sent twice");
    rejected(&f, 1, grad_of(1, 6, 1, 7, 5, none, 1), "mask 7");
    rejected(&f, 1, grad_of(1, 6, 1, 3, 5, 2, 1), "keeper 2");
    rejected(&f, 1, grad_of(1, 7, 1, 3, 5, none, 1), "base 5 is that of iteration 6");
    accepted(&f, 0, grad_of(0, 8, 2, 3, 7, none, 1));
    rejected(&f, 1, grad_of(1, 8, 2, 3, 6, none, 1), "base 6");
    rejected(&f, 2, push_of(2, 8, 1, 6, 1), "wait for version 5");
    // Sums
    rejected(&f, 1, pull_of(1, RT_MESSAGE_PULL_SUM, 6, 1, 6, 0), "keeper");
    rejected(&f, 1, pull_of(1, RT_MESSAGE_PULL_SUM, 6, 1, 0, 0), "version 0");
    accepted(&f, 2, pull_of(2, RT_MESSAGE_PULL_SUM, 9, 3, 9, 0));
    rejected(&f, 2, pull_of(2, RT_MESSAGE_PULL_SUM, 9, 3, 9, 0), "asked for twice");
    rejected(&f, 1, pull_of(1, RT_MESSAGE_PULL_SUM, 9, 3, 9, 0), "for keeper 2");
    rejected(&f, 0, grad_of(0, 9, 3, 3, 8, none, 1), "others have 2");
    // Dense
    const float floats[2] = {1, 2};
    rejected(&f, 0, dense_of(0, 1, 0, floats, 0), "0 bytes");
    rejected(&f, 0, message_of(0, RT_MESSAGE_DENSE_GRAD, 1, 0, bytes, 7), "7 bytes");
    accepted(&f, 0, dense_of(0, 3, 0, floats, 2));
    rejected(&f, 0, dense_of(0, 3, 0, floats, 2), "twice");
    rejected(&f, 1, dense_of(1, 3, 0, floats, 1), "another worker's has 2");
    rejected(&f, 0, dense_of(0, 2, 0, floats, 2), "after one of 3");
    // Peers
    rt_message message = pull_of(0, RT_MESSAGE_PULL, 1, 1, 0, 0);
    assert_int_equal(ps_shard_receive(f.shard, rt_peer(RT_ROLE_WORKER, 3), &message, &error),
                     RT_WIRE);
    message = pull_of(0, RT_MESSAGE_PULL, 1, 1, 0, 0);
    assert_int_equal(ps_shard_receive(f.shard, rt_peer(RT_ROLE_PS, 0), &message, &error), RT_WIRE);
    expect_row(&f, 1, 5, 10);
    teardown(&f);
}

// A bad record at the end of a message leaves the good ones before it unapplied.
static void test_messages_are_checked_before_they_are_applied(void **context)
{
    (void)context;
    fixture f;
    uint8_t bytes[2 * (sizeof(rt_wire_row) + ROW * 4)];
    const row_record good = row_of(1, 4, 10), bad = row_of(2, 0, 20);
    const size_t size = sizeof bytes / 2;
    uint32_t version;
    setup(&f);
    memcpy(bytes, &good, size);
    memcpy(bytes + size, &bad, size);
    rejected(&f, 1, message_of(1, RT_MESSAGE_PUSH_ROW, 4, 2, bytes, sizeof bytes), "version 0");
    assert_null(ps_shard_find(f.shard, 1, &version));
    teardown(&f);
}

static void test_a_key_twice_in_a_message(void **context)
{
    (void)context;
    fixture f;
    rt_error error;
    const rt_wire_pull pulls[2] = {{1, 0, 0}, {1, 0, 1}};
    const rt_wire_pull sums[2] = {{2, 3, 0}, {2, 3, 1}};
    const grad_record one = {{3, 3, 0, RT_WIRE_NO_KEEPER}, {1, 2, 3, 4}};
    const grad_record grads[2] = {one, one};
    setup(&f);
    accepted(&f, 0, message_of(0, RT_MESSAGE_PULL, 1, 2, pulls, sizeof pulls));
    assert_int_equal(statistics_of(&f).rows, 1);
    uint8_t rows[2 * (sizeof(rt_wire_row) + ROW * 4)];
    const row_record older = row_of(4, 1, 10), newer = row_of(4, 2, 20);
    memcpy(rows, &older, sizeof rows / 2);
    memcpy(rows + sizeof rows / 2, &newer, sizeof rows / 2);
    accepted(&f, 0, message_of(0, RT_MESSAGE_PUSH_ROW, 3, 2, rows, sizeof rows));
    expect_row(&f, 4, 2, 20);
    assert_int_equal(
        receive(&f, 0, message_of(0, RT_MESSAGE_PULL_SUM, 3, 2, sums, sizeof sums), &error),
        RT_WIRE);
    assert_int_equal(
        receive(&f, 0, message_of(0, RT_MESSAGE_PUSH_GRAD, 3, 2, grads, sizeof grads), &error),
        RT_WIRE);
    teardown(&f);
}

static void test_other_shards_keys_and_dense_are_rejected(void **context)
{
    (void)context;
    fixture f;
    ps_shard_config config = config_of(&f);
    config.shard_count = 3;
    config.rank = 2;
    start(&f, &config);
    uint64_t key = 0;
    while (rt_key_shard(key, 3) != 1)
        key++;
    const char *text = "belongs to shard 1 of 3, this is shard 2";
    const float one = 1;
    rejected(&f, 0, pull_of(0, RT_MESSAGE_PULL, 1, key, 0, 0), text);
    rejected(&f, 0, pull_of(0, RT_MESSAGE_PULL_SUM, 1, key, 1, 0), text);
    rejected(&f, 1, push_of(1, 1, key, 1, 1), text);
    rejected(&f, 2, grad_of(2, 1, key, 6, 0, RT_WIRE_NO_KEEPER, 1), text);
    rejected(&f, 2, dense_of(2, 1, 0, &one, 1), "only shard 0");
    while (rt_key_shard(key, 3) != 2)
        key++;
    accepted(&f, 0, pull_of(0, RT_MESSAGE_PULL, 1, key, 0, 0));
    teardown(&f);
}

static void test_other_epochs_are_discarded(void **context)
{
    (void)context;
    fixture f;
    uint32_t version;
    setup(&f);
    for (uint32_t epoch = EPOCH - 1; epoch <= EPOCH + 1; epoch += 2) {
        rt_message message = push_of(0, 1, 1, 1, 10);
        rt_message_header(&message)->epoch = epoch;
        accepted(&f, 0, message);
    }
    assert_null(ps_shard_find(f.shard, 1, &version));
    assert_int_equal(f.sent_count, 0);
    assert_int_equal(statistics_of(&f).messages_discarded, 2);
    teardown(&f);
}

// ---- Bounds

// An iteration that is applied nowhere: the version alone, once all have said so.
static void test_a_version_without_a_step(void **context)
{
    (void)context;
    fixture f;
    rt_wire_row head;
    float want[ROW], first[DIM];
    const uint32_t void_step = RT_WIRE_NO_STEP;
    setup(&f);
    const ps_shard_config config = config_of(&f);
    accepted(&f, 0, push_of(0, 3, 1, 3, 10));
    uint32_t version;
    memcpy(want, ps_shard_find(f.shard, 1, &version), sizeof want);
    accepted(&f, 0, pull_of(0, RT_MESSAGE_PULL, 5, 1, 4, 0));
    accepted(&f, 1, grad_of(1, 4, 1, 6, 3, void_step, NAN));
    rejected(&f, 2, grad_of(2, 4, 1, 6, 3, RT_WIRE_NO_KEEPER, 1), "others have -2");
    expect_row(&f, 1, 3, 10);
    accepted(&f, 2, grad_of(2, 4, 1, 6, 3, void_step, 1));
    (void)only_record(&f, RT_MESSAGE_ROWS, 0, &head);
    assert_int_equal(head.version, 4);
    assert_memory_equal(ps_shard_find(f.shard, 1, &version), want, sizeof want);
    accepted(&f, 0, grad_of(0, 1, 7, 3, 0, void_step, 1)); // of a row that is not there yet
    accepted(&f, 1, grad_of(1, 1, 7, 3, 0, void_step, 1));
    rt_row_init(7, config.seed, config.init_scale, DIM, first);
    assert_memory_equal(ps_shard_find(f.shard, 7, &version), first, sizeof first);
    assert_int_equal(version, 1);
    assert_true(statistics_of(&f).steps == 0 && statistics_of(&f).steps_skipped == 2);
    teardown(&f);
}

static void limited(fixture *f, uint32_t worker, rt_message message, const char *text)
{
    rt_error error = {RT_OK, ""};
    assert_int_equal(receive(f, worker, message, &error), RT_LIMIT);
    if (!strstr(error.text, text))
        fail_msg("\"%s\" lacks \"%s\"", error.text, text);
}

static void test_bounds(void **context)
{
    (void)context;
    fixture f;
    const uint32_t none = RT_WIRE_NO_KEEPER;
    const float floats[40] = {0};
    ps_shard_config config = config_of(&f);
    config.pulls_parked_max = 2;
    config.gradient_bytes_max = 300; // two gradients of 120 bytes
    config.dense_bytes_max = 200;
    config.memory_bytes_max = 64 << 10;
    start(&f, &config);
    accepted(&f, 0, pull_of(0, RT_MESSAGE_PULL, 3, 1, 2, 0));
    accepted(&f, 0, pull_of(0, RT_MESSAGE_PULL_SUM, 3, 2, 2, 0));
    limited(&f, 0, pull_of(0, RT_MESSAGE_PULL, 3, 3, 2, 0), "worker 0: 1 pulls while 2 wait");
    limited(&f, 0, pull_of(0, RT_MESSAGE_PULL_SUM, 3, 3, 2, 0), "worker 0");
    accepted(&f, 1, pull_of(1, RT_MESSAGE_PULL, 3, 1, 2, 0)); // per worker
    accepted(&f, 2, push_of(2, 2, 1, 2, 1));                  // answers one
    accepted(&f, 0, pull_of(0, RT_MESSAGE_PULL, 4, 3, 2, 0));
    accepted(&f, 1, grad_of(1, 2, 2, 2, 1, 0, 1)); // answers the other
    accepted(&f, 0, pull_of(0, RT_MESSAGE_PULL, 4, 3, 2, 0));
    accepted(&f, 1, grad_of(1, 3, 7, 6, 0, none, 1));
    accepted(&f, 1, grad_of(1, 3, 8, 6, 0, none, 1));
    limited(&f, 1, grad_of(1, 3, 9, 6, 0, none, 1), "2 wait for other workers");
    accepted(&f, 0, dense_of(0, 1, 0, floats, 40));
    limited(&f, 0, dense_of(0, 1, 1, floats, 40), "200");
    uint64_t key = 100;
    rt_error error = {RT_OK, ""};
    for (; receive(&f, 2, push_of(2, 2, key, 2, 1), &error) == RT_OK; key++)
        drop_sent(&f);
    assert_int_equal(error.status, RT_LIMIT);
    assert_non_null(strstr(error.text, "ps.memory_bytes_max"));
    drop_sent(&f);
    accepted(&f, 2, push_of(2, 3, key - 1, 3, 2)); // rows that are there still work
    expect_row(&f, key - 1, 3, 2);
    teardown(&f);
}

// ---- Files

static void test_save_and_load(void **context)
{
    (void)context;
    fixture f, g;
    rt_error error = {RT_OK, ""};
    char path[256];
    setup(&f);
    for (uint32_t key = 1; key <= 9000; key++) {
        accepted(&f, 0, push_of(0, key, key * 7919, key, (float)key));
        drop_sent(&f);
    }
    const char *folder = test_directory();
    assert_int_equal(ps_shard_save(f.shard, folder, 42, NULL, NULL, NULL, NULL, &error), RT_OK);
    snprintf(path, sizeof path, "%s/rows-000-of-001.bin", folder);
    setup(&g);
    assert_int_equal(ps_shard_load(g.shard, path, 43, NULL, NULL, NULL, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "schema"));
    assert_int_equal(ps_shard_load(g.shard, path, 42, NULL, NULL, NULL, &error), RT_OK);
    assert_int_equal(statistics_of(&g).rows, 9000);
    for (uint32_t key = 1; key <= 9000; key++)
        expect_row(&g, key * 7919, key, (float)key);
    assert_int_equal(ps_shard_load(g.shard, path, 42, NULL, NULL, NULL, &error), RT_DATA); // every key twice
    teardown(&g);

    uint64_t rows = 0; // the same file into two shards
    for (uint32_t rank = 0; rank < 2; rank++) {
        ps_shard_config config = config_of(&g);
        config.rank = rank;
        config.shard_count = 2;
        start(&g, &config);
        assert_int_equal(ps_shard_load(g.shard, path, 42, NULL, NULL, NULL, &error), RT_OK);
        rows += statistics_of(&g).rows;
        teardown(&g);
    }
    assert_int_equal(rows, 9000);
    teardown(&f);
}

TEST_MAIN(TEST(test_first_touch_creates_by_init),
          TEST(test_pulls_wait_for_their_version_and_block_nobody),
          TEST(test_a_newer_row_answers_with_its_version),
          TEST(test_stale_pushes_are_ignored_and_answered),
          TEST(test_sums_are_in_worker_order_whatever_comes_first),
          TEST(test_gradients_stay_invisible_until_all_and_base_are_in),
          TEST(test_the_base_alone_does_not_apply_a_part_of_the_sum),
          TEST(test_a_version_without_a_step),
          TEST(test_pulls_of_the_base_are_answered_before_the_sum),
          TEST(test_first_touch_by_several_creates_from_base_0),
          TEST(test_keeper_gets_the_sum_of_the_others), TEST(test_two_sums_of_a_key_are_kept_apart),
          TEST(test_many_wait), TEST(test_replies_are_split_by_size_and_by_iteration),
          TEST(test_a_full_transport_keeps_order_and_has_a_bound),
          TEST(test_dense_sums_go_to_every_worker), TEST(test_broken_messages_are_rejected),
          TEST(test_messages_are_checked_before_they_are_applied),
          TEST(test_a_key_twice_in_a_message), TEST(test_other_shards_keys_and_dense_are_rejected),
          TEST(test_other_epochs_are_discarded), TEST(test_bounds), TEST(test_save_and_load))
