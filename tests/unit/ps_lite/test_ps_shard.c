// A shard alone: what it answers to pulls, pushes and gradients, and when.
#include "runtime/config/rt_optimizers.h"
#include "tests/support/shard_case.h"

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
            accepted(&f, worker, grad_of(worker, 4, 1, 7, 3, RT_WIRE_STEP, uneven[worker]));
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
    accepted(&f, 1, grad_of(1, 4, 1, 6, 3, RT_WIRE_STEP, 1));
    accepted(&f, 2, grad_of(2, 4, 1, 6, 3, RT_WIRE_STEP, 1)); // overtook the base row
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
    accepted(&f, 1, grad_of(1, 4, 1, 6, 3, RT_WIRE_STEP, 1));
    accepted(&f, 2, push_of(2, 4, 1, 3, 10));
    expect_row(&f, 1, 3, 10);
    accepted(&f, 2, grad_of(2, 4, 1, 6, 3, RT_WIRE_STEP, 1));
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
    accepted(&f, 1, grad_of(1, 4, 1, 6, 3, RT_WIRE_STEP, 1));
    accepted(&f, 2, grad_of(2, 4, 1, 6, 3, RT_WIRE_STEP, 1));
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
    accepted(&f, 0, grad_of(0, 1, 1, 3, 0, RT_WIRE_STEP, 1));
    assert_null(ps_shard_find(f.shard, 1, &version));
    accepted(&f, 1, grad_of(1, 1, 1, 3, 0, RT_WIRE_STEP, 1));
    float want[ROW] = {0}, sum[DIM] = {2, -2, 4, 0};
    const ps_shard_config config = config_of(&f);
    rt_row_init(1, 5, 1, DIM, want);
    rt_optimizer_step(&config.optimizer, DIM, 1, want, want + DIM, sum);
    assert_memory_equal(ps_shard_find(f.shard, 1, &version), want, sizeof want);
    assert_int_equal(version, 1);
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
        accepted(&f, 1, grad_of(1, 2, key, 6, 1, RT_WIRE_STEP, value));
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
        accepted(&f, 2, grad_of(2, 2, key, 6, 1, RT_WIRE_STEP, (float)key));
        assert_memory_equal(ps_shard_find(f.shard, key, &version), want, sizeof want);
        assert_int_equal(version, 2);
        drop_sent(&f);
    }
    assert_int_equal(statistics_of(&f).pulls_parked, 0);
    assert_int_equal(statistics_of(&f).gradients_waiting, 0);
    teardown(&f);
}

// Every number, after one of everything and two of some.
static void test_everything_is_counted(void **context)
{
    (void)context;
    fixture f;
    const rt_wire_pull three[] = {{1, 0, 0}, {2, 0, 1}, {3, 9, 2}}; // the last one waits
    uint8_t rows[2 * (sizeof(rt_wire_row) + ROW * 4)];
    const row_record older = row_of(4, 5, 10), newer = row_of(5, 6, 20);
    const float floats[2] = {1, 2};
    setup(&f);
    accepted(&f, 0, message_of(0, RT_MESSAGE_PULL, 1, 3, three, sizeof three));
    accepted(&f, 1, pull_of(1, RT_MESSAGE_PULL, 1, 3, 9, 0));
    memcpy(rows, &older, sizeof rows / 2);
    memcpy(rows + sizeof rows / 2, &newer, sizeof rows / 2);
    accepted(&f, 0, message_of(0, RT_MESSAGE_PUSH_ROW, 3, 2, rows, sizeof rows));
    accepted(&f, 0, push_of(0, 3, 4, 5, 1)); // nothing new
    accepted(&f, 0, push_of(0, 9, 3, 9, 1)); // what two wait for
    accepted(&f, 0, grad_of(0, 7, 4, 3, 5, RT_WIRE_STEP, 1));
    accepted(&f, 1, grad_of(1, 7, 4, 3, 5, RT_WIRE_STEP, 1));
    accepted(&f, 0, grad_of(0, 8, 5, 1, 6, RT_WIRE_NO_STEP, 1));
    accepted(&f, 1, grad_of(1, 9, 8, 3, 0, RT_WIRE_STEP, 1)); // waits for worker 0
    for (uint32_t worker = 0; worker < WORKERS; worker++)
        accepted(&f, worker, dense_of(worker, 1, 0, floats, 2));
    rt_message old = push_of(0, 1, 1, 1, 10);
    rt_message_header(&old)->epoch = EPOCH + 1;
    accepted(&f, 0, old);
    const ps_shard_statistics got = statistics_of(&f);
    const ps_shard_statistics want = {.rows = 5,
                                      .row_bytes = got.row_bytes,
                                      .pulls = 4,
                                      .pulls_parked_max = 2,
                                      .rows_created = 2,
                                      .row_pushes = 4,
                                      .row_pushes_ignored = 1,
                                      .gradients = 4,
                                      .gradients_waiting = 1,
                                      .steps = 1,
                                      .steps_skipped = 1,
                                      .dense_sums = 1,
                                      .messages_discarded = 1};
    assert_memory_equal(&got, &want, sizeof got);
    assert_true(got.row_bytes > 0);
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

// The sums themselves are test_ps_dense's.
static void test_dense_sums_go_to_who_takes_part(void **context)
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
        const uint8_t *payload = rt_message_payload(&f.sent[m]);
        const float *sum = (const float *)(const void *)(payload + sizeof(rt_wire_dense));
        assert_int_equal(header->type, RT_MESSAGE_DENSE_SUM);
        assert_int_equal(header->sender, rt_peer(RT_ROLE_PS, 0));
        assert_true(header->iteration == 7 && header->count == 4);
        assert_true(sum[0] == 0 && sum[1] == 3);
        workers |= rt_bit(rt_peer_rank(f.peers[m]));
    }
    assert_int_equal(workers, 7);
    assert_int_equal(statistics_of(&f).dense_sums, 1);
    drop_sent(&f);
    for (uint32_t worker = 0; worker < WORKERS; worker += 2) { // without worker 1
        const float floats[1] = {uneven[worker]};
        rt_message message = dense_of(worker, 8, 4, floats, 1);
        const rt_wire_dense two = {5};
        memcpy(rt_message_payload(&message), &two, sizeof two);
        accepted(&f, worker, message);
    }
    assert_int_equal(f.sent_count, 2);
    assert_true(f.peers[0] == rt_peer(RT_ROLE_WORKER, 0) &&
                f.peers[1] == rt_peer(RT_ROLE_WORKER, 2));
    teardown(&f);
}

// Weights go to who has asked for them, beside the sums, from this shard.
static void test_dense_weights_are_sent(void **context)
{
    (void)context;
    fixture f;
    struct {
        rt_wire_dense_state head;
        float values[2];
    } block = {{2, 2}, {10, 20}}, got;
    const float ones[2] = {1, 2};
    const rt_wire_dense_step step = {.applies = 1, .scale = 1};
    ps_shard_config config = config_of(&f);
    config.keeps_dense = true;
    config.dense_optimizer = (rt_optimizer_config){.kind = RT_OPTIMIZER_SGD, .learning_rate = 0.5f};
    start(&f, &config);
    accepted(&f, 0, message_of(0, RT_MESSAGE_DENSE_STATE, 0, 0, &block, sizeof block));
    accepted(&f, 1, message_of(1, RT_MESSAGE_DENSE_PULL, 1, 0, NULL, 0));
    accepted(&f, 2, message_of(2, RT_MESSAGE_DENSE_PULL, 1, 0, NULL, 0));
    for (uint32_t worker = 0; worker < WORKERS; worker++)
        accepted(&f, worker, dense_of(worker, 1, 0, ones, 2));
    assert_int_equal(f.sent_count, WORKERS);
    assert_int_equal(statistics_of(&f).dense_pieces, 0);
    drop_sent(&f);
    accepted(&f, 0, message_of(0, RT_MESSAGE_DENSE_STEP, 1, 1, &step, sizeof step));
    assert_int_equal(f.sent_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const rt_wire_header *header = rt_message_header(&f.sent[i]);
        assert_int_equal(f.peers[i], rt_peer(RT_ROLE_WORKER, 1 + i));
        assert_true(header->type == RT_MESSAGE_DENSE_STATE &&
                    header->sender == rt_peer(RT_ROLE_PS, 0));
        assert_true(header->iteration == 1 && header->count == 0);
        memcpy(&got, rt_message_payload(&f.sent[i]), sizeof got);
        assert_true(got.values[0] == 10 - 0.5f * 3 && got.values[1] == 20 - 0.5f * 6);
    }
    assert_int_equal(statistics_of(&f).dense_pieces, 2);
    assert_int_equal(statistics_of(&f).dense_sums, 1);
    teardown(&f);
}

TEST_MAIN(TEST(test_dense_weights_are_sent), TEST(test_first_touch_creates_by_init),
          TEST(test_pulls_wait_for_their_version_and_block_nobody),
          TEST(test_a_newer_row_answers_with_its_version),
          TEST(test_stale_pushes_are_ignored_and_answered),
          TEST(test_sums_are_in_worker_order_whatever_comes_first),
          TEST(test_gradients_stay_invisible_until_all_and_base_are_in),
          TEST(test_the_base_alone_does_not_apply_a_part_of_the_sum),
          TEST(test_pulls_of_the_base_are_answered_before_the_sum),
          TEST(test_first_touch_by_several_creates_from_base_0), TEST(test_many_wait),
          TEST(test_everything_is_counted), TEST(test_replies_are_split_by_size_and_by_iteration),
          TEST(test_a_full_transport_keeps_order_and_has_a_bound),
          TEST(test_dense_sums_go_to_who_takes_part))
