// A shard alone: messages that break the rules, bounds, files.
#include "runtime/files/rt_file.h"
#include "tests/support/shard_case.h"

#include <math.h>
#include <stdio.h>

#include "runtime/rt_hash.h"

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
    const uint32_t none = RT_WIRE_STEP;
    uint8_t bytes[256] = {0};
    // Sizes
    rejected(&f, 0, message_of(0, RT_MESSAGE_PULL, 1, 2, bytes, 16), "2 records of 16 bytes");
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
    rejected(&f, 0, grad_of(0, 6, 1, 3, 5, 2, 1), "step 2, expected 0");
    rejected(&f, 0, grad_of(0, 0, 1, 3, 0, none, 1), "iteration 0");
    rejected(&f, 0, grad_of(0, UINT64_C(1) << 32, 1, 3, 5, none, 1), "no version");
    rejected(&f, 0, grad_of(0, 6, 1, 3, 4, none, 1), "the row has version 5");
    // Gradients against each other
    accepted(&f, 0, grad_of(0, 6, 1, 3, 5, none, 1));
    rejected(&f, 0, grad_of(0, 6, 1, 3, 5, none, 1), "sent twice");
    rejected(&f, 1, grad_of(1, 6, 1, 7, 5, none, 1), "mask 7");
    rejected(&f, 1, grad_of(1, 6, 1, 3, 5, RT_WIRE_NO_STEP, 1), "step 1, others have 0");
    rejected(&f, 1, grad_of(1, 7, 1, 3, 5, none, 1), "base 5 is that of iteration 6");
    accepted(&f, 0, grad_of(0, 8, 2, 3, 7, none, 1));
    rejected(&f, 1, grad_of(1, 8, 2, 3, 6, none, 1), "base 6");
    rejected(&f, 2, push_of(2, 8, 1, 6, 1), "wait for version 5");
    // Dense
    const float floats[2] = {1, 2};
    rejected(&f, 0, dense_of(0, 1, 0, floats, 0), "8 bytes");
    rejected(&f, 0, message_of(0, RT_MESSAGE_DENSE_GRAD, 1, 0, bytes, 15), "15 bytes");
    accepted(&f, 0, dense_of(0, 3, 0, floats, 2));
    rejected(&f, 0, dense_of(0, 3, 0, floats, 2), "twice");
    rejected(&f, 1, dense_of(1, 3, 0, floats, 1), "another worker's has 2");
    rejected(&f, 0, dense_of(0, 2, 0, floats, 2), "after one of 3");
    rt_message others = dense_of(1, 3, 0, floats, 2);
    rt_message_payload(&others)[0] = 3;
    rejected(&f, 1, others, "of the workers 3, another worker's is of 7");
    others = dense_of(1, 4, 0, floats, 2);
    rt_message_payload(&others)[0] = 5;
    rejected(&f, 1, others, "of the workers 5, which cannot be"); // without the sender
    others = dense_of(1, 4, 0, floats, 2);
    rt_message_payload(&others)[0] = 15;
    rejected(&f, 1, others, "of the workers f, which cannot be");
    rejected(&f, 1, message_of(1, RT_MESSAGE_DENSE_PULL, 1, 0, NULL, 0), "none is kept");
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
    const grad_record one = {{3, 3, 0, RT_WIRE_STEP}, {1, 2, 3, 4}};
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
        receive(&f, 0, message_of(0, RT_MESSAGE_PUSH_GRAD, 3, 2, grads, sizeof grads), &error),
        RT_WIRE);
    teardown(&f);
}

static void test_other_shards_keys_are_rejected(void **context)
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
    rejected(&f, 0, pull_of(0, RT_MESSAGE_PULL, 1, key, 0, 0), text);
    rejected(&f, 1, push_of(1, 1, key, 1, 1), text);
    rejected(&f, 2, grad_of(2, 1, key, 6, 0, RT_WIRE_STEP, 1), text);
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
    rejected(&f, 2, grad_of(2, 4, 1, 6, 3, RT_WIRE_STEP, 1), "others have 1");
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
    const uint32_t none = RT_WIRE_STEP;
    const float floats[40] = {0};
    ps_shard_config config = config_of(&f);
    config.pulls_parked_max = 2;
    config.gradient_bytes_max = 300; // two gradients of 120 bytes
    config.dense_bytes_max = 200;
    config.memory_bytes_max = 64 << 10;
    start(&f, &config);
    accepted(&f, 0, pull_of(0, RT_MESSAGE_PULL, 3, 1, 2, 0));
    accepted(&f, 0, pull_of(0, RT_MESSAGE_PULL, 3, 2, 2, 0));
    limited(&f, 0, pull_of(0, RT_MESSAGE_PULL, 3, 3, 2, 0), "worker 0: 1 pulls while 2 wait");
    accepted(&f, 1, pull_of(1, RT_MESSAGE_PULL, 3, 1, 2, 0)); // per worker
    accepted(&f, 2, push_of(2, 2, 1, 2, 1));                  // answers one
    accepted(&f, 0, pull_of(0, RT_MESSAGE_PULL, 4, 3, 2, 0));
    accepted(&f, 2, push_of(2, 2, 2, 2, 1)); // answers the other
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
    assert_int_equal(error.status, RT_CONFIG);
    assert_non_null(strstr(error.text, "ps.memory_bytes_max"));
    drop_sent(&f);
    accepted(&f, 2, push_of(2, 3, key - 1, 3, 2)); // rows that are there still work
    expect_row(&f, key - 1, 3, 2);
    teardown(&f);
}

// As many gradients as bytes are allowed for, of 104 and the floats each: to the byte, and of one
// message as of many.
static void test_gradients_that_fit(void **context)
{
    (void)context;
    for (uint32_t room = 1; room < 4; room++) {
        for (uint32_t less = 0; less < 2; less++) {
            fixture f;
            grad_record all[4];
            ps_shard_config config = config_of(&f);
            const uint32_t fit = room - less;
            config.gradient_bytes_max = room * (DIM * sizeof(float) + 104) - less;
            start(&f, &config);
            for (uint32_t i = 0; i < 4; i++)
                all[i] = (grad_record){{i, 6, 0, RT_WIRE_STEP}, {1, 2, 3, 4}};
            limited(&f, 1,
                    message_of(1, RT_MESSAGE_PUSH_GRAD, 3, fit + 1, all, (fit + 1) * sizeof all[0]),
                    "gradients while 0 wait for other workers");
            assert_int_equal(statistics_of(&f).gradients_waiting, 0);
            accepted(&f, 1, message_of(1, RT_MESSAGE_PUSH_GRAD, 3, fit, all, fit * sizeof all[0]));
            limited(&f, 1, grad_of(1, 3, 99, 6, 0, RT_WIRE_STEP, 1), "1 gradients while");
            assert_int_equal(statistics_of(&f).gradients_waiting, fit);
            teardown(&f);
        }
    }
}

// Iterations that a version can be: up to the last one.
static void test_the_last_version(void **context)
{
    (void)context;
    fixture f;
    setup(&f);
    accepted(&f, 0, grad_of(0, UINT32_MAX, 1, 1, UINT32_MAX - 1, RT_WIRE_STEP, 1));
    rejected(&f, 0, grad_of(0, UINT32_MAX, 2, 1, UINT32_MAX, RT_WIRE_STEP, 1), "base");
    accepted(&f, 0, push_of(0, 1, 3, UINT32_MAX, 1));
    expect_row(&f, 3, UINT32_MAX, 1);
    accepted(&f, 1, pull_of(1, RT_MESSAGE_PULL, 1, 3, UINT32_MAX, 0));
    assert_int_equal(statistics_of(&f).pulls_parked, 0);
    teardown(&f);
}

// Where there is no room for another row, those that are there are still served: a message is only
// refused for rows that it would make.
static void test_a_full_table_serves_its_rows(void **context)
{
    (void)context;
    fixture f;
    rt_error error = {0};
    ps_shard_config config = config_of(&f);
    config.memory_bytes_max = 64 << 10;
    config.row_wire = RT_CODING_FP32;
    start(&f, &config);
    uint64_t count = 0;
    while (receive(&f, 0, push_of(0, 2, count, 2, 1), &error) == RT_OK) {
        drop_sent(&f);
        count++;
    }
    drop_sent(&f);
    const rt_wire_pull pulls[] = {{0, 0, 0}, {1, 0, 0}, {2, 0, 0}};
    accepted(&f, 0, message_of(0, RT_MESSAGE_PULL, 3, 3, pulls, sizeof pulls));
    accepted(&f, 0, pull_of(0, RT_MESSAGE_PULL, 3, count, 5, 0)); // of no row: it only waits
    const rt_wire_pull first = {count, 0, 0};
    assert_int_equal(
        receive(&f, 0, message_of(0, RT_MESSAGE_PULL, 3, 1, &first, sizeof first), &error),
        RT_CONFIG);
    accepted(&f, 0, grad_of(0, 4, count, 3, 3, RT_WIRE_STEP, 1));
    assert_int_equal(receive(&f, 0, grad_of(0, 5, count, 3, 0, RT_WIRE_STEP, 1), &error),
                     RT_CONFIG);
    accepted(&f, 0, grad_of(0, 5, 0, 3, 2, RT_WIRE_STEP, 1));
    assert_int_equal(statistics_of(&f).rows, count);
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
    snprintf(path, sizeof path, "%s/rows-000-of-001.bin", folder);
    rt_file_place place = {.path = path};
    const rt_sink sink = rt_file_sink(&place);
    assert_int_equal(ps_shard_save(f.shard, &sink, 42, NULL, NULL, NULL, NULL, &error), RT_OK);
    setup(&g);
    assert_int_equal(ps_shard_load(g.shard, path, 43, NULL, NULL, NULL, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "schema"));
    assert_int_equal(ps_shard_load(g.shard, path, 42, NULL, NULL, NULL, &error), RT_OK);
    assert_int_equal(statistics_of(&g).rows, 9000);
    for (uint32_t key = 1; key <= 9000; key++)
        expect_row(&g, key * 7919, key, (float)key);
    assert_int_equal(ps_shard_load(g.shard, path, 42, NULL, NULL, NULL, &error),
                     RT_DATA); // every key twice
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

TEST_MAIN(TEST(test_a_version_without_a_step), TEST(test_broken_messages_are_rejected),
          TEST(test_messages_are_checked_before_they_are_applied),
          TEST(test_a_key_twice_in_a_message), TEST(test_other_shards_keys_are_rejected),
          TEST(test_other_epochs_are_discarded), TEST(test_bounds), TEST(test_gradients_that_fit),
          TEST(test_the_last_version), TEST(test_a_full_table_serves_its_rows),
          TEST(test_save_and_load))
