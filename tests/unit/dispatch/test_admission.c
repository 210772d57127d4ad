// Which keys get a row: counts against a plain list, what the bound of their memory costs, fading,
// and counts that go through bytes.
#include "tests/support/test.h"

#include <stdlib.h>

#include "dispatch/planner/dp_admission.h"

#define KEYS_MAX 5000u
#define BYTES (1u << 20) // so many that nothing collides in these tests

static dp_admission *create(uint32_t times, uint64_t bytes)
{
    dp_admission *admission;
    assert_int_equal(dp_admission_create(times, bytes, &admission), RT_OK);
    return admission;
}

// One sample of one field with these keys.
static void fill(rt_batch *batch, const uint64_t *keys, uint32_t count)
{
    rt_batch_clear(batch);
    assert_int_equal(rt_batch_append(batch, 1, NULL, keys, count), RT_OK);
}

// Samples lose the keys of which there were fewer; the order of the others stays.
static void a_batch_keeps_what_was_seen_often_enough(void **state)
{
    (void)state;
    dp_admission *admission = create(3, BYTES);
    dp_directory directory;
    rt_batch batch;
    uint32_t refused;
    static const uint64_t first[] = {10, 20, 30}, second[] = {10, 40}, third[] = {20, 10};
    rt_batch_init(&batch, 0);
    assert_int_equal(dp_directory_init(&directory, 100), RT_OK);
    assert_int_equal(dp_directory_add(&directory, 40, 1, 0), RT_OK); // it has a row
    assert_int_equal(rt_batch_append(&batch, 1, NULL, first, 3), RT_OK);
    assert_int_equal(rt_batch_append(&batch, 0, NULL, second, 2), RT_OK);
    assert_int_equal(rt_batch_append(&batch, 1, NULL, third, 2), RT_OK);
    assert_int_equal(dp_admission_filter(admission, &directory, &batch, &refused), RT_OK);
    assert_int_equal(refused, 3);
    assert_true(batch.has_gaps);
    assert_int_equal(batch.key_count, 4);
    assert_int_equal(batch.key_offsets[1], 1);
    assert_int_equal(batch.key_offsets[2], 3);
    assert_int_equal(batch.key_offsets[3], 4);
    assert_true(batch.keys[0] == 10 && batch.keys[1] == 10 && batch.keys[2] == 40 &&
                batch.keys[3] == 10);
    assert_true(admission->refused[0] == 20 && admission->refused[1] == 30 &&
                admission->refused[2] == 20);
    assert_int_equal(dp_admission_count(admission, 40), 0); // nobody counts what has a row
    fill(&batch, third, 2);
    assert_false(batch.has_gaps);
    assert_int_equal(dp_admission_filter(admission, &directory, &batch, &refused), RT_OK);
    assert_int_equal(refused, 0); // 20 for the third time
    assert_false(batch.has_gaps);
    rt_batch_fini(&batch);
    dp_directory_fini(&directory);
    dp_admission_destroy(admission);
}

// Never too low; and seldom too high, while fewer keys are counted than fade the counts.
static void counts_are_those_of_a_list(void **state)
{
    (void)state;
    static const uint64_t bytes[] = {BYTES, 4 * 4096};
    for (size_t b = 0; b < RT_COUNT_OF(bytes); b++) {
        dp_admission *admission = create(200, bytes[b]);
        dp_directory directory;
        rt_batch batch;
        rt_random random = {b + 1};
        uint32_t *counts = calloc(KEYS_MAX, sizeof *counts), wrong = 0, refused, fresh = 0;
        rt_batch_init(&batch, 0);
        assert_int_equal(dp_directory_init(&directory, 100), RT_OK);
        for (uint32_t i = 0; fresh < admission->columns / 2 - 2 && i < 40000; i++) {
            const uint32_t u = rt_random_below(&random, KEYS_MAX);
            const uint64_t key = (uint64_t)u * u / KEYS_MAX; // some often
            fill(&batch, &key, 1);
            assert_int_equal(dp_admission_filter(admission, &directory, &batch, &refused), RT_OK);
            fresh += counts[key]++ == 0;
            if (counts[key] < 200)
                assert_true(dp_admission_count(admission, key) >= counts[key]);
            assert_true(refused <= (counts[key] < 200));
        }
        for (uint32_t key = 0; key < KEYS_MAX; key++)
            wrong += dp_admission_count(admission, key) != rt_min_u64(counts[key], 200);
        if (b == 0)
            assert_int_equal(wrong, 0);
        else // half as many keys as columns: 2.4% collide in all four rows
            assert_true(wrong < KEYS_MAX / 20);
        free(counts);
        rt_batch_fini(&batch);
        dp_directory_fini(&directory);
        dp_admission_destroy(admission);
    }
}

// Keys that come once for ever: none is let in for long, whatever their number.
static void counts_fade(void **state)
{
    (void)state;
    dp_admission *admission = create(2, 4 * 1024);
    dp_directory directory;
    rt_batch batch;
    uint64_t refused_ever = 0;
    uint32_t refused;
    rt_batch_init(&batch, 0);
    assert_int_equal(dp_directory_init(&directory, 100), RT_OK);
    for (uint64_t key = 1; key <= 100000; key++) {
        fill(&batch, &key, 1);
        assert_int_equal(dp_admission_filter(admission, &directory, &batch, &refused), RT_OK);
        refused_ever += refused;
        if (key == 300)
            assert_int_equal(dp_admission_count(admission, 1), 1);
        if (key == 600)
            assert_int_equal(dp_admission_count(admission, 1), 0);
    }
    assert_true(refused_ever > 98000);
    rt_batch_fini(&batch);
    dp_directory_fini(&directory);
    dp_admission_destroy(admission);
}

// Of 4,000 new keys in each of 20 batches so many get a row as the share says, others in each
// batch, the same every time; twice in a batch is once.
static void chance_admits_a_share(void **state)
{
    (void)state;
    dp_admission *one, *same;
    dp_directory directory;
    rt_batch batch, again;
    uint64_t keys[8000];
    uint32_t refused, also, admitted = 0, of_key = 0;
    rt_batch_init(&batch, 0);
    rt_batch_init(&again, 0);
    assert_int_equal(dp_directory_init(&directory, 100), RT_OK);
    assert_int_equal(dp_directory_add(&directory, 40, 1, 0), RT_OK); // it has a row
    assert_int_equal(dp_admission_create_by_chance(0.3, 7, &one), RT_OK);
    assert_int_equal(dp_admission_create_by_chance(0.3, 7, &same), RT_OK);
    for (uint32_t k = 0; k < 4000; k++)
        keys[k] = keys[4000 + k] = 1000 + k;
    for (uint64_t draw = 1; draw <= 20; draw++) {
        fill(&batch, keys, 8000);
        fill(&again, keys, 8000);
        one->draw = same->draw = draw;
        assert_int_equal(dp_admission_filter(one, &directory, &batch, &refused), RT_OK);
        assert_int_equal(dp_admission_filter(same, &directory, &again, &also), RT_OK);
        assert_int_equal(batch.key_count, again.key_count);
        assert_memory_equal(batch.keys, again.keys, batch.key_count * sizeof *batch.keys);
        assert_int_equal(batch.key_count + refused, 8000);
        assert_int_equal(batch.key_count % 2, 0);
        for (uint32_t k = 0; k < batch.key_count / 2; k++) {
            assert_true(batch.keys[k] == batch.keys[batch.key_count / 2 + k]);
            of_key += batch.keys[k] == 1000;
        }
        admitted += batch.key_count / 2;
    }
    assert_in_range(admitted, 24000 - 650, 24000 + 650); // 5 standard deviations
    assert_in_range(of_key, 1, 15);
    fill(&batch, (const uint64_t[]){40}, 1);
    for (one->draw = 100; one->draw < 120; one->draw++)
        assert_int_equal(dp_admission_filter(one, &directory, &batch, &refused), RT_OK);
    assert_int_equal(batch.key_count, 1);
    rt_batch_fini(&batch);
    rt_batch_fini(&again);
    dp_directory_fini(&directory);
    dp_admission_destroy(one);
    dp_admission_destroy(same);
}

static void counts_go_through_bytes(void **state)
{
    (void)state;
    dp_admission *admission = create(9, 1 << 16), *other = create(9, 1 << 16),
                 *larger = create(9, 1 << 17), *rarer = create(8, 1 << 16);
    dp_directory directory;
    rt_batch batch;
    rt_bytes bytes = {0};
    uint32_t refused;
    rt_batch_init(&batch, 0);
    assert_int_equal(dp_directory_init(&directory, 100), RT_OK);
    for (uint64_t i = 0; i < 9000; i++) {
        const uint64_t key = i * i % 4001;
        fill(&batch, &key, 1);
        assert_int_equal(dp_admission_filter(admission, &directory, &batch, &refused), RT_OK);
    }
    dp_admission_save(admission, &bytes);
    assert_false(dp_admission_fits(larger, rt_bytes_reader(&bytes)));
    assert_false(dp_admission_fits(rarer, rt_bytes_reader(&bytes)));
    rt_reader reader = rt_bytes_reader(&bytes);
    assert_int_equal(dp_admission_load(other, &reader), RT_OK);
    assert_int_equal(reader.left, 0);
    assert_int_equal(other->fresh, admission->fresh);
    assert_memory_equal(other->counters, admission->counters,
                        (size_t)admission->columns * DP_ADMISSION_ROWS);
    for (size_t size = 0; size < bytes.size; size += 1 + bytes.size / 97) {
        reader = (rt_reader){bytes.data, size, false};
        assert_int_equal(dp_admission_load(other, &reader), RT_DATA);
    }
    rt_bytes_fini(&bytes);
    rt_batch_fini(&batch);
    dp_directory_fini(&directory);
    dp_admission_destroy(admission);
    dp_admission_destroy(other);
    dp_admission_destroy(larger);
    dp_admission_destroy(rarer);
}

TEST_MAIN(TEST(a_batch_keeps_what_was_seen_often_enough), TEST(counts_are_those_of_a_list),
          TEST(counts_fade), TEST(chance_admits_a_share), TEST(counts_go_through_bytes))
