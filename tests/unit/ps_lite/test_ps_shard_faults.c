// A shard whose transport breaks at the n-th message, for every n: whatever the shard was doing, it
// says so at once.
#include "tests/support/shard_case.h"

#include "runtime/numbers/rt_coding.h"

typedef struct {
    fixture f;
    uint32_t left; // messages that the transport still takes
    bool broken;
    bool done; // this round: it has told
} line;

static rt_status take(void *context, uint32_t peer, rt_message *message)
{
    line *l = context;
    if (l->left == 0) {
        l->broken = true;
        return RT_PEER;
    }
    l->left--;
    return capture(&l->f, peer, message);
}

// Every message of one record, so that the second record of an answer sends the first.
static void begin(line *l, uint32_t n, ps_shard_config config)
{
    *l = (line){.left = n};
    config.message_bytes = 1;
    config.send = take;
    config.context = l;
    memset(&l->f, 0, sizeof l->f);
    assert_int_equal(ps_shard_create(&config, &l->f.shard), RT_OK);
}

static void check(line *l, rt_status status, const rt_error *error)
{
    if (!l->broken) {
        assert_int_equal(status, RT_OK);
        return;
    }
    if (status != RT_PEER || !strstr(error->text, "cannot send to worker"))
        fail_msg("%s: %s", rt_status_text(status), error->text);
    l->done = true;
}

static void give(line *l, uint32_t worker, rt_message message)
{
    rt_error error = {0};
    if (l->done)
        rt_message_release(&message);
    else
        check(l, receive(&l->f, worker, message, &error), &error);
}

static void flush_all(line *l)
{
    rt_error error = {0};
    if (!l->done)
        check(l, ps_shard_flush(l->f.shard, &error), &error);
}

static rt_message pulls_of(uint32_t worker, rt_message_type type, uint64_t t, uint64_t first,
                           uint32_t version)
{
    const rt_wire_pull three[] = {
        {first, version, 0}, {first + 1, version, 1}, {first + 2, version, 2}};
    return message_of(worker, type, t, 3, three, sizeof three);
}

static rt_message rows_of(uint64_t t, uint64_t first, uint32_t version)
{
    uint8_t bytes[3 * (sizeof(rt_wire_row) + ROW * 4)];
    for (uint32_t i = 0; i < 3; i++) {
        const row_record one = row_of(first + i, version, (float)i);
        memcpy(bytes + i * sizeof bytes / 3, &one, sizeof bytes / 3);
    }
    return message_of(0, RT_MESSAGE_PUSH_ROW, t, 3, bytes, sizeof bytes);
}

static rt_message grads_of(uint32_t worker, uint64_t t, uint64_t first, uint64_t mask,
                           uint32_t base, uint32_t step)
{
    grad_record three[3];
    for (uint32_t i = 0; i < 3; i++)
        three[i] = (grad_record){{first + i, mask, base, step}, {1, 2, 3, 4}};
    return message_of(worker, RT_MESSAGE_PUSH_GRAD, t, 3, three, sizeof three);
}

// Rows, gradients and sums, with pulls that wait for each: two workers' of every row.
static void rows_and_sums(line *l)
{
    for (uint32_t worker = 1; worker < 3; worker++) {
        give(l, worker, pulls_of(worker, RT_MESSAGE_PULL, 1, 10, 0));
        give(l, worker, pulls_of(worker, RT_MESSAGE_PULL, 2, 10, 2));
        give(l, worker, pulls_of(worker, RT_MESSAGE_PULL, 3, 10, 3));
        give(l, worker, pulls_of(worker, RT_MESSAGE_PULL, 4, 10, 4));
    }
    give(l, 0, grads_of(0, 4, 10, 1, 3, RT_WIRE_STEP)); // waits for version 3
    give(l, 0, rows_of(2, 10, 2));
    give(l, 0, grads_of(0, 3, 10, 3, 2, RT_WIRE_STEP));
    give(l, 1, grads_of(1, 3, 10, 3, 2, RT_WIRE_STEP)); // makes 3, and then 4
    const float floats[2] = {1, 2};
    for (uint32_t worker = 0; worker < WORKERS; worker++)
        give(l, worker, dense_of(worker, 7, 0, floats, 2));
    flush_all(l);
}

static rt_message changes_of(uint64_t first, uint32_t base, uint32_t version)
{
    enum { BYTES = sizeof(rt_wire_change) + 12 };
    static const float values[DIM] = {127, 1, 2, 3};
    uint8_t bytes[3 * BYTES] = {0};
    for (uint32_t i = 0; i < 3; i++) {
        const rt_wire_change head = {first + i, version, base};
        memcpy(bytes + i * BYTES, &head, sizeof head);
        rt_coding_pack(RT_CODING_INT8, values, DIM, bytes + i * BYTES + sizeof head);
    }
    return message_of(0, RT_MESSAGE_PUSH_CHANGE, 9, 3, bytes, sizeof bytes);
}

static void rounded_rows(line *l)
{
    for (uint32_t worker = 1; worker < 3; worker++) {
        give(l, worker, pulls_of(worker, RT_MESSAGE_PULL, 1, 10, 0));
        give(l, worker, pulls_of(worker, RT_MESSAGE_PULL, 1, 10, 2));
    }
    give(l, 0, changes_of(10, 0, 2));
    give(l, 1, pulls_of(1, RT_MESSAGE_PULL, 3, 10, 2));
    flush_all(l);
}

static rt_message deltas_of(uint64_t first, uint32_t base, uint32_t version, uint32_t pulls)
{
    enum { BYTES = sizeof(rt_wire_delta) + ROW * 4 };
    uint8_t bytes[3 * BYTES] = {0};
    for (uint32_t i = 0; i < 3; i++) {
        const rt_wire_delta head = {
            .key = first + i, .version = version, .base = base, .pulls = pulls};
        memcpy(bytes + i * BYTES, &head, sizeof head);
    }
    return message_of(0, RT_MESSAGE_PUSH_DELTA, 9, 3, bytes, sizeof bytes);
}

static void stale_rows(line *l)
{
    for (uint32_t worker = 1; worker < 3; worker++) {
        give(l, worker, pulls_of(worker, RT_MESSAGE_PULL, 1, 10, 2));
        give(l, worker, pulls_of(worker, RT_MESSAGE_PULL, 1, 10, 3));
    }
    give(l, 0, deltas_of(10, 2, 3, 2)); // once both pulls of 2 are answered
    give(l, 0, deltas_of(10, 0, 2, 0));
    give(l, 0, deltas_of(10, 3, 4, 3));
    give(l, 1, pulls_of(1, RT_MESSAGE_PULL, 2, 10, 4));
    give(l, 2, pulls_of(2, RT_MESSAGE_PULL, 2, 10, 3)); // the third: makes 4
    flush_all(l);
}

static void rows_that_leave(line *l)
{
    const rt_wire_pull gone[] = {{10, 9, 0}, {11, 9, 0}};
    give(l, 0, rows_of(2, 10, 2));
    give(l, 0, message_of(0, RT_MESSAGE_FORGET, 9, 2, gone, sizeof gone));
    flush_all(l);
}

static void every_message_may_be_the_last(void **state)
{
    (void)state;
    void (*const stories[])(line *) = {rows_and_sums, rounded_rows, stale_rows, rows_that_leave};
    for (size_t s = 0; s < RT_COUNT_OF(stories); s++) {
        static line l;
        uint32_t n = 0;
        do {
            ps_shard_config config = config_of(&l.f);
            config.row_wire = s == 1 ? RT_CODING_INT8 : RT_CODING_FP32;
            config.adds_deltas = s == 2;
            config.homes = s == 3 ? RT_HOMES_PLANNED : RT_HOMES_HASHED;
            begin(&l, n++, config);
            stories[s](&l);
            assert_int_equal(l.done, l.broken);
            teardown(&l.f);
        } while (l.broken);
        assert_true(n > (s == 3 ? 2 : 10)); // so many there were
    }
}

TEST_MAIN(TEST(every_message_may_be_the_last))
