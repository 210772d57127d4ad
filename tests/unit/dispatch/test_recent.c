// The last batches of a run: the oldest make room, and a run that goes on has those of before.
#include "dispatch/planner/dp_recent.h"

#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define SAMPLES 2u
#define FIELDS 3u

static const dp_recent_limits limits = {
    .sample_count_max = SAMPLES, .keys_per_sample_max = FIELDS + 1, .field_count = FIELDS};

// Two samples: the first has two keys of field 0, the second none, so that there are as many keys
// as if each had one of every field.
static void fill(rt_batch *batch, uint64_t id)
{
    const uint64_t keys[] = {rt_key(0, id),     rt_key(0, id + 1), rt_key(1, id),
                             rt_key(2, id + 2), rt_key(1, id),     rt_key(2, id)};
    const uint32_t offsets[] = {0, 4, 6};
    rt_batch_init(batch, 0);
    assert_int_equal(rt_batch_reserve(batch, SAMPLES, RT_COUNT_OF(keys)), RT_OK);
    batch->sample_count = SAMPLES;
    batch->key_count = RT_COUNT_OF(keys);
    batch->has_gaps = true;
    memcpy(batch->keys, keys, sizeof keys);
    memcpy(batch->key_offsets, offsets, sizeof offsets);
}

static void must_be(const rt_batch *got, uint64_t id)
{
    rt_batch want;
    fill(&want, id);
    assert_int_equal(got->sample_count, want.sample_count);
    assert_int_equal(got->key_count, want.key_count);
    assert_int_equal(got->has_gaps, want.has_gaps);
    assert_memory_equal(got->keys, want.keys, want.key_count * sizeof *want.keys);
    assert_memory_equal(got->key_offsets, want.key_offsets, (SAMPLES + 1) * sizeof(uint32_t));
    rt_batch_fini(&want);
}

static void add_some(dp_recent *recent, uint32_t count)
{
    dp_recent_init(recent);
    for (uint32_t i = 0; i < count; i++) {
        rt_batch batch;
        fill(&batch, 100 + i);
        assert_int_equal(dp_recent_add(recent, &batch), RT_OK);
        rt_batch_fini(&batch);
    }
}

static void the_oldest_make_room(void **state)
{
    static const uint32_t counts[] = {0, 1, DP_RECENT_MAX - 1, DP_RECENT_MAX, DP_RECENT_MAX + 7};
    (void)state;
    for (size_t c = 0; c < RT_COUNT_OF(counts); c++) {
        dp_recent recent;
        add_some(&recent, counts[c]);
        const uint32_t kept = counts[c] < DP_RECENT_MAX ? counts[c] : DP_RECENT_MAX;
        assert_int_equal(recent.count, kept);
        for (uint32_t i = 0; i < kept; i++)
            must_be(dp_recent_at(&recent, i), 100 + counts[c] - kept + i);
        dp_recent_fini(&recent);
    }
}

static void what_is_saved_is_loaded(void **state)
{
    static const uint32_t counts[] = {0, 1, DP_RECENT_MAX + 7};
    (void)state;
    for (size_t c = 0; c < RT_COUNT_OF(counts); c++) {
        dp_recent one, other;
        rt_bytes bytes = {0};
        add_some(&one, counts[c]);
        dp_recent_save(&one, &bytes);
        assert_false(bytes.failed);
        rt_reader reader = rt_bytes_reader(&bytes);
        dp_recent_init(&other);
        assert_int_equal(dp_recent_load(&other, &limits, &reader), RT_OK);
        assert_int_equal(reader.left, 0);
        assert_int_equal(other.count, one.count);
        for (uint32_t i = 0; i < one.count; i++)
            must_be(dp_recent_at(&other, i), 100 + counts[c] - one.count + i);
        rt_bytes_fini(&bytes);
        dp_recent_fini(&one);
        dp_recent_fini(&other);
    }
}

static void must_refuse(const rt_bytes *bytes, size_t size, const dp_recent_limits *own)
{
    dp_recent recent;
    rt_reader reader = {bytes->data, size, false};
    dp_recent_init(&recent);
    assert_int_equal(dp_recent_load(&recent, own, &reader), RT_DATA);
    assert_int_equal(recent.count, 0);
    dp_recent_fini(&recent);
}

// Cut off anywhere, or of a run that had more samples, keys or fields.
static void what_cannot_be_is_refused(void **state)
{
    dp_recent recent;
    rt_bytes bytes = {0};
    (void)state;
    add_some(&recent, 3);
    dp_recent_save(&recent, &bytes);
    for (size_t size = 0; size < bytes.size; size++)
        must_refuse(&bytes, size, &limits);
    dp_recent_limits own = limits;
    own.sample_count_max = SAMPLES - 1;
    must_refuse(&bytes, bytes.size, &own);
    own = limits;
    own.keys_per_sample_max = FIELDS;
    must_refuse(&bytes, bytes.size, &own);
    own = limits;
    own.field_count = FIELDS - 1;
    must_refuse(&bytes, bytes.size, &own);
    rt_bytes_fini(&bytes);
    dp_recent_fini(&recent);
}

TEST_MAIN(TEST(the_oldest_make_room), TEST(what_is_saved_is_loaded),
          TEST(what_cannot_be_is_refused))
