// Batches and input records as a planner elsewhere gets them: every byte where the
// header says it is, and nothing taken that cannot be.
#include "dispatch/plan/dp_broadcast.h"

#include <math.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "runtime/stream/rt_tables.h"
#include "tests/support/test.h"

#define DENSE 3u
#define FIELDS 2u
#define SENDER 77u

// Sample i has i % 3 + 1 keys in field 0, one in field 1.
static void fill(rt_batch *batch, uint32_t samples, uint32_t seed)
{
    rt_batch_init(batch, DENSE);
    for (uint32_t i = 0; i < samples; i++) {
        float dense[DENSE];
        uint64_t keys[4];
        uint32_t count = 0;
        for (uint32_t d = 0; d < DENSE; d++)
            dense[d] = (float)(seed + i * DENSE + d) / 8;
        for (; count < i % 3 + 1; count++)
            keys[count] = rt_key(0, 1000 * seed + 10 * i + count);
        keys[count++] = rt_key(1, 1000 * seed + 10 * i + 9);
        assert_int_equal(rt_batch_append(batch, (float)((seed + i) % 2), dense, keys, count),
                         RT_OK);
    }
}

static dp_broadcast_limits limits_of(uint32_t samples)
{
    return (dp_broadcast_limits){.dense_count = DENSE,
                                 .field_count = FIELDS,
                                 .sample_count_max = samples,
                                 .keys_per_sample_max = 4};
}

static dp_input input_of(uint32_t i)
{
    return (dp_input){.number = UINT64_C(1) << (33 + i),
                      .iteration = 100 + i,
                      .kind = i % DP_INPUT_KINDS,
                      .worker = 3 * i,
                      .value = 0.1 + i};
}

static void check_batch(const rt_batch *got, const rt_batch *want)
{
    const size_t samples = want->sample_count;
    assert_int_equal(got->sample_count, want->sample_count);
    assert_int_equal(got->key_count, want->key_count);
    assert_memory_equal(got->labels, want->labels, samples * sizeof(float));
    assert_memory_equal(got->dense, want->dense, samples * DENSE * sizeof(float));
    assert_memory_equal(got->key_offsets, want->key_offsets, (samples + 1) * sizeof(uint32_t));
    assert_memory_equal(got->keys, want->keys, want->key_count * sizeof(uint64_t));
}

static void check_input(const dp_input *got, const dp_input *want)
{
    assert_int_equal(got->number, want->number);
    assert_int_equal(got->iteration, want->iteration);
    assert_int_equal(got->kind, want->kind);
    assert_int_equal(got->worker, want->worker);
    assert_true(got->value == want->value);
}

// Fields that share rows are folded; what a sample lacks has no look-up then. Both travel as they
// were.
static void folded_batches_are_unfolded(void **state)
{
    (void)state;
    static const rt_tables tables = {
        .are_shared = true, .field_count = FIELDS, .of = {0, 0}, .borrows = {false, true}};
    static dp_broadcast broadcast;
    rt_batch batch, want, got;
    rt_message message;
    dp_broadcast_reader reader;
    rt_error error = {0};
    const dp_broadcast_limits limits = limits_of(8);
    rt_batch_init(&batch, DENSE);
    rt_batch_init(&want, DENSE);
    for (uint32_t i = 0; i < 8; i++) {
        const float dense[DENSE] = {(float)i};
        const uint64_t keys[] = {rt_key(0, i % 3), rt_key(0, 7),
                                 rt_key(1, i % 4 ? i % 3 : RT_ID_MISSING)};
        assert_int_equal(rt_batch_append(&batch, 1, dense, keys, 3), RT_OK);
        assert_int_equal(rt_batch_append(&want, 1, dense, keys, 3), RT_OK);
    }
    assert_int_equal(rt_tables_fold(&tables, &batch), RT_OK);
    assert_true(batch.key_count < want.key_count);
    assert_int_equal(dp_broadcast_bytes(&batch), dp_broadcast_bytes(&want));
    assert_int_equal(dp_broadcast_add_batch(&broadcast, &batch), RT_OK);
    assert_int_equal(dp_broadcast_take(&broadcast, SENDER, 1, true, &message), RT_OK);
    assert_int_equal(dp_broadcast_begin(&message, &limits, &reader, &error), RT_OK);
    rt_batch_init(&got, DENSE);
    if (dp_broadcast_next_batch(&reader, &got, &error))
        fail_msg("%s", error.text);
    check_batch(&got, &want);
    rt_batch_fini(&batch);
    rt_batch_fini(&want);
    rt_batch_fini(&got);
    rt_message_release(&message);
    dp_broadcast_fini(&broadcast);
}

// Batches of odd and even sizes, so that arrays do and do not end at a multiple of eight bytes; two
// messages of one sender, the second without what the first had.
static void what_goes_in_comes_out(void **state)
{
    (void)state;
    static dp_broadcast broadcast;
    rt_error error = {0};
    for (uint32_t round = 0; round < 2; round++) {
        rt_batch batches[9], got;
        rt_message message;
        dp_broadcast_reader reader;
        const dp_broadcast_limits limits = limits_of(8);
        for (uint32_t b = 1; b <= 8; b++) {
            fill(&batches[b], b, b + round);
            assert_int_equal(dp_broadcast_add_batch(&broadcast, &batches[b]), RT_OK);
        }
        for (uint32_t i = 0; i < 9 + round; i++) {
            const dp_input input = input_of(i);
            assert_int_equal(dp_broadcast_add_input(&broadcast, &input), RT_OK);
        }
        assert_int_equal(dp_broadcast_take(&broadcast, SENDER, 5 + round, round == 1, &message),
                         RT_OK);
        const rt_wire_header *header = rt_message_header(&message);
        assert_int_equal(header->type, RT_MESSAGE_BATCH);
        assert_int_equal(header->sender, SENDER);
        assert_int_equal(header->iteration, 5 + round);
        assert_int_equal(dp_broadcast_begin(&message, &limits, &reader, &error), RT_OK);
        assert_int_equal(reader.head.flags, round ? DP_BROADCAST_END : 0);
        assert_int_equal(reader.head.batch_count, 8);
        assert_int_equal(reader.head.input_count, 9 + round);
        for (uint32_t i = 0; i < 9 + round; i++) {
            dp_input input;
            const dp_input want = input_of(i);
            assert_int_equal(dp_broadcast_next_input(&reader, &input, &error), RT_OK);
            check_input(&input, &want);
        }
        rt_batch_init(&got, DENSE);
        for (uint32_t b = 1; b <= 8; b++) {
            if (dp_broadcast_next_batch(&reader, &got, &error))
                fail_msg("batch %u: %s", b, error.text);
            check_batch(&got, &batches[b]);
            rt_batch_fini(&batches[b]);
        }
        assert_int_equal(reader.reader.left, 0);
        rt_batch_fini(&got);
        rt_message_release(&message);
    }
    dp_broadcast_fini(&broadcast);
    assert_null(broadcast.batches);
}

static void several_labels_come_along(void **state)
{
    (void)state;
    static dp_broadcast broadcast;
    rt_error error = {0};
    rt_batch batch, one, got;
    rt_message message;
    dp_broadcast_reader reader;
    dp_broadcast_limits limits = limits_of(8);
    limits.more_labels = 2;
    fill(&one, 5, 1);
    rt_batch_init(&batch, DENSE);
    rt_batch_begin(&batch, 3, true);
    for (uint32_t i = 0; i < 5; i++) {
        const float labels[] = {i % 2 ? 1 : NAN, i == 4, 1};
        assert_int_equal(rt_batch_append(&batch, 0, one.dense + (size_t)i * DENSE,
                                         one.keys + one.key_offsets[i],
                                         one.key_offsets[i + 1] - one.key_offsets[i]),
                         RT_OK);
        rt_batch_set_labels(&batch, i, labels, 0.5f);
    }
    assert_int_equal(dp_broadcast_add_batch(&broadcast, &batch), RT_OK);
    assert_int_equal(dp_broadcast_add_batch(&broadcast, &one), RT_OK);
    assert_int_equal(dp_broadcast_take(&broadcast, SENDER, 1, false, &message), RT_OK);
    assert_int_equal(dp_broadcast_begin(&message, &limits, &reader, &error), RT_OK);
    rt_batch_init(&got, DENSE);
    assert_int_equal(dp_broadcast_next_batch(&reader, &got, &error), RT_OK);
    assert_int_equal(got.label_count, 3);
    assert_true(got.is_weighted);
    check_batch(&got, &batch);
    assert_memory_equal(got.labels, batch.labels, 15 * sizeof(float));
    assert_memory_equal(got.weights, batch.weights, 15 * sizeof(float));
    assert_int_equal(dp_broadcast_next_batch(&reader, &got, &error), RT_WIRE); // has no weights
    rt_batch_fini(&got);
    rt_batch_fini(&one);
    rt_batch_fini(&batch);
    rt_message_release(&message);
    dp_broadcast_fini(&broadcast);
}

// One batch of three samples with seven keys, byte by byte.
static void bytes_are_where_the_header_says(void **state)
{
    (void)state;
    static dp_broadcast broadcast;
    static const uint32_t offsets[] = {0, 2, 5, 9};
    rt_batch batch;
    rt_message message;
    fill(&batch, 3, 1);
    assert_int_equal(batch.key_count, 9);
    assert_int_equal(dp_broadcast_add_batch(&broadcast, &batch), RT_OK);
    assert_int_equal(dp_broadcast_take(&broadcast, SENDER, 1, false, &message), RT_OK);
    // head, head of the batch, labels, dense, offsets, keys; in between bytes up to a multiple of 8
    const size_t labels = 16 + 8, dense = labels + 16, starts = dense + 40, keys = starts + 16,
                 end = keys + 9 * 8;
    const uint8_t *at = rt_message_payload(&message), none[4] = {0};
    assert_int_equal(message.size, sizeof(rt_wire_header) + end);
    assert_int_equal(dp_broadcast_bytes(&batch), message.size);
    assert_memory_equal(at + 16, ((uint32_t[]){3, 9}), 8);
    assert_memory_equal(at + labels, batch.labels, 12);
    assert_memory_equal(at + labels + 12, none, 4);
    assert_memory_equal(at + dense, batch.dense, 36);
    assert_memory_equal(at + dense + 36, none, 4);
    assert_memory_equal(at + starts, offsets, 16);
    assert_memory_equal(at + keys, batch.keys, 72);
    rt_message_release(&message);
    rt_batch_fini(&batch);
    dp_broadcast_fini(&broadcast);
}

static void no_more_records_than_can_wait(void **state)
{
    (void)state;
    static dp_broadcast broadcast;
    const dp_input input = input_of(1);
    for (uint32_t i = 0; i < DP_INPUTS_WAITING_MAX; i++)
        assert_int_equal(dp_broadcast_add_input(&broadcast, &input), RT_OK);
    assert_int_equal(dp_broadcast_add_input(&broadcast, &input), RT_LIMIT);
    dp_broadcast_fini(&broadcast);
}

// ---- what must not be taken ------------------------------------------------------------------

// A message of one record and one batch of two samples, as it goes out.
static rt_message good(void)
{
    static dp_broadcast broadcast;
    rt_batch batch;
    rt_message message;
    const dp_input input = input_of(2);
    fill(&batch, 2, 1);
    assert_int_equal(dp_broadcast_add_input(&broadcast, &input), RT_OK);
    assert_int_equal(dp_broadcast_add_batch(&broadcast, &batch), RT_OK);
    assert_int_equal(dp_broadcast_take(&broadcast, SENDER, 1, false, &message), RT_OK);
    rt_batch_fini(&batch);
    dp_broadcast_fini(&broadcast);
    broadcast = (dp_broadcast){0};
    return message;
}

// Reads all of it. what: a part of the error.
static void must_read(const rt_message *message, dp_broadcast_limits limits, rt_status want,
                      const char *what)
{
    dp_broadcast_reader reader;
    dp_input input;
    rt_batch batch;
    rt_error error = {0};
    rt_batch_init(&batch, DENSE);
    rt_status status = dp_broadcast_begin(message, &limits, &reader, &error);
    for (uint32_t i = 0; !status && i < reader.head.input_count; i++)
        status = dp_broadcast_next_input(&reader, &input, &error);
    for (uint32_t i = 0; !status && i < reader.head.batch_count; i++)
        status = dp_broadcast_next_batch(&reader, &batch, &error);
    rt_batch_fini(&batch);
    if (status != want || (what && !strstr(error.text, what)))
        fail_msg("status %d (%s), expected %d with '%s'", status, error.text, want, what);
}

// Where things stand in the payload of good(): head, record, batch of 2 samples and 2 + 3 keys.
enum {
    RECORD = 16,
    BATCH = RECORD + 32,
    LABELS = BATCH + 8,
    OFFSETS = LABELS + 8 + 24,
    KEYS = OFFSETS + 16,
    END = KEYS + 5 * 8
};

static void with_u32(size_t at, uint32_t value, rt_status want, const char *what)
{
    rt_message message = good();
    memcpy(rt_message_payload(&message) + at, &value, sizeof value);
    must_read(&message, limits_of(2), want, what);
    rt_message_release(&message);
}

static void numbers_that_cannot_be(void **state)
{
    (void)state;
    with_u32(0, 0, RT_OK, NULL);
    with_u32(0, DP_BROADCAST_END, RT_OK, NULL);
    with_u32(0, 2, RT_WIRE, "impossible numbers");
    with_u32(4, 2, RT_WIRE, "fewer batches");
    with_u32(8, DP_INPUTS_WAITING_MAX + 1, RT_WIRE, "impossible numbers");
    with_u32(8, DP_INPUTS_WAITING_MAX, RT_WIRE, "a record of no known kind"); // reads the batch
    with_u32(12, 1, RT_WIRE, "impossible numbers");
    with_u32(RECORD + 12, DP_INPUT_KINDS - 1, RT_OK, NULL);
    with_u32(RECORD + 12, DP_INPUT_KINDS, RT_WIRE, "no known kind");
    with_u32(RECORD + 20, 1, RT_WIRE, "no known kind");
    with_u32(BATCH, 0, RT_WIRE, "a BATCH of 0 samples with 5 keys, at most 2 with 4 each");
    with_u32(BATCH, 3, RT_WIRE, "a BATCH of 3 samples");
    with_u32(BATCH, 1, RT_WIRE, "a BATCH of 1 samples with 5 keys");
    with_u32(BATCH + 4, 9, RT_WIRE, "a BATCH of 2 samples with 9 keys");
    with_u32(BATCH + 4, 8, RT_WIRE, "fewer bytes than its samples need");
    with_u32(BATCH + 4, 4, RT_WIRE, "key offsets that do not span");
    with_u32(OFFSETS, 1, RT_WIRE, "key offsets that do not span");
    with_u32(OFFSETS + 8, 4, RT_WIRE, "key offsets that do not span");
    with_u32(OFFSETS + 4, 1, RT_WIRE, "one run per field");          // one key only
    with_u32(OFFSETS + 4, 6, RT_WIRE, "one run per field");          // behind the last
    with_u32(OFFSETS + 4, UINT32_MAX, RT_WIRE, "one run per field"); // and far behind
}

static void with_keys(const uint64_t keys[5], rt_status want)
{
    rt_message message = good();
    memcpy(rt_message_payload(&message) + KEYS, keys, 5 * sizeof *keys);
    must_read(&message, limits_of(2), want, want ? "one run per field" : NULL);
    rt_message_release(&message);
}

// Fields of two samples, of two and of three keys.
static void keys_are_one_run_per_field(void **state)
{
    (void)state;
    static const struct {
        uint32_t fields[5];
        rt_status want;
    } cases[] = {{{0, 1, 0, 0, 1}, RT_OK},   {{0, 1, 0, 1, 1}, RT_OK},   {{0, 0, 0, 0, 1}, RT_WIRE},
                 {{1, 1, 0, 0, 1}, RT_WIRE}, {{1, 0, 0, 0, 1}, RT_WIRE}, {{0, 1, 0, 1, 0}, RT_WIRE},
                 {{0, 2, 0, 0, 1}, RT_WIRE}, {{0, 1, 0, 1, 2}, RT_WIRE}, {{0, 1, 1, 1, 1}, RT_WIRE},
                 {{0, 1, 0, 0, 0}, RT_WIRE}};
    for (size_t c = 0; c < RT_COUNT_OF(cases); c++) {
        uint64_t keys[5];
        for (uint32_t k = 0; k < 5; k++)
            keys[k] = rt_key(cases[c].fields[k], 100 + k);
        with_keys(keys, cases[c].want);
    }
}

static void samples_have_at_most_so_many_keys(void **state)
{
    (void)state;
    rt_message message = good();
    dp_broadcast_limits limits = limits_of(2);
    limits.keys_per_sample_max = 3;
    must_read(&message, limits, RT_OK, NULL);
    limits.sample_count_max = 4; // so that only the sample itself has too many
    limits.keys_per_sample_max = 2;
    must_read(&message, limits, RT_WIRE, "5 keys, at most 4 with 2 each");
    rt_message_release(&message);
}

static void no_byte_may_be_missing(void **state)
{
    (void)state;
    rt_message message = good();
    assert_int_equal(message.size, sizeof(rt_wire_header) + END);
    must_read(&message, limits_of(2), RT_OK, NULL);
    const size_t whole = message.size;
    for (size_t size = 0; size < END; size++) {
        message.size = sizeof(rt_wire_header) + size;
        must_read(&message, limits_of(2), RT_WIRE,
                  size < RECORD   ? "fewer bytes than its head has"
                  : size < BATCH  ? "fewer records than it announces"
                  : size < LABELS ? "fewer batches than it announces"
                                  : "fewer bytes than its samples need");
    }
    message.size = whole;
    rt_message_release(&message);
}

TEST_MAIN(TEST(what_goes_in_comes_out), TEST(folded_batches_are_unfolded),
          TEST(several_labels_come_along), TEST(bytes_are_where_the_header_says),
          TEST(no_more_records_than_can_wait), TEST(numbers_that_cannot_be),
          TEST(keys_are_one_run_per_field), TEST(samples_have_at_most_so_many_keys),
          TEST(no_byte_may_be_missing))
