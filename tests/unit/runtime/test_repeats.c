// When a key ends a batch, in short streams and long ones and after a restart.
#include "runtime/stream/rt_repeats.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/stream/rt_stream.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

#define FULL 256u
#define KEYS 2u

static const rt_tables none;

typedef struct {
    rt_repeats *repeats;
    rt_batch batch;
} reading;

static reading begin(uint32_t full)
{
    reading r;
    assert_int_equal(rt_repeats_create(full, KEYS, &r.repeats), RT_OK);
    rt_batch_init(&r.batch, 0);
    return r;
}

static void fini(reading *r)
{
    rt_batch_fini(&r->batch);
    rt_repeats_destroy(r->repeats);
}

static bool take(reading *r, const rt_tables *tables, uint64_t first, uint64_t second)
{
    const uint64_t keys[KEYS] = {rt_key(0, first), rt_key(1, second)};
    assert_int_equal(rt_batch_append(&r->batch, 0, NULL, keys, KEYS), RT_OK);
    return rt_repeats_end_with(r->repeats, tables, &r->batch);
}

static void end(reading *r, const rt_tables *tables)
{
    rt_repeats_add(r->repeats, tables, &r->batch);
    rt_batch_clear(&r->batch);
}

// Samples of a user, each of another item, until a batch ends or is full; the number of them.
static uint32_t visit(reading *r, uint64_t user, uint64_t *item)
{
    uint32_t count = 1;
    while (!take(r, &none, user, (*item)++) && count < FULL)
        count++;
    end(r, &none);
    return count;
}

// Batches of a visit begin with RT_REPEATS_LEAST samples and become longer and longer.
static void a_visit_ends_batches(void **state)
{
    (void)state;
    uint64_t item = 0;
    uint32_t seen = 0;
    reading r = begin(FULL);
    while (seen < 100 * RT_REPEATS_PART) {
        const uint32_t allowed = (seen + RT_REPEATS_PART - 1) / RT_REPEATS_PART;
        const uint32_t got = visit(&r, 7, &item);
        assert_int_equal(got, allowed < RT_REPEATS_LEAST ? RT_REPEATS_LEAST : allowed);
        seen += got;
    }
    assert_int_equal(visit(&r, 8, &item), RT_REPEATS_LEAST); // is new
    fini(&r);
}

// A value in a share of the samples, from the first on, ends no batch that has a 64th of the
// samples before it; nor does a user who comes three times.
static void what_comes_at_all_times_ends_none(void **state)
{
    (void)state;
    for (uint64_t every = 1; every < 12; every++) {
        uint64_t user = 1, seen = 0;
        reading r = begin(FULL);
        while (seen < 64 * FULL) {
            const uint64_t size = rt_batch_grown(FULL, seen);
            for (uint64_t i = 0; i < size; i++, seen++) {
                user += i % 3 == 0;
                const bool ends =
                    take(&r, &none, 1000 * every + user, seen % every == 0 ? 1 : 2 + seen);
                assert_true(!ends || i + 1 == size || seen < RT_REPEATS_LEAST * RT_REPEATS_PART);
            }
            end(&r, &none);
        }
        fini(&r);
    }
}

// New users end batches however many came before them, and a batch of a value that comes at all times
// stays full.
static void a_long_stream_is_the_same(void **state)
{
    (void)state;
    reading r = begin(FULL);
    uint64_t item = 0;
    uint64_t samples = 0;
    for (uint64_t user = 0; user < 400000; user++) { // others may share the user's slot
        const uint32_t got = visit(&r, user, &item);
        assert_in_range(got, RT_REPEATS_LEAST / 2, 2 * RT_REPEATS_LEAST);
        samples += got;
    }
    assert_in_range(samples, 399000 * RT_REPEATS_LEAST, 400100 * RT_REPEATS_LEAST);
    for (uint64_t batch = 0; batch < 2000; batch++) {
        for (uint64_t i = 0; i < FULL; i++, item++) {
            const bool ends = take(&r, &none, item, item % 3);
            assert_true(batch < 128 || !ends);
        }
        end(&r, &none);
    }
    fini(&r);
}

static uint64_t sizes_after(reading *r)
{
    uint64_t hash = 0, item = 0;
    for (uint64_t user = 0; user < 50; user++)
        hash = rt_mix(hash + visit(r, user, &item));
    return hash;
}

// Saved times go on in as many slots, in more, and in fewer.
static void times_outlive_a_restart(void **state)
{
    (void)state;
    rt_bytes saved = {0}, taken = {0}, cut = {0};
    uint64_t item = 0;
    reading r = begin(64 * FULL);
    for (uint64_t i = 0; i < 3000; i++)
        visit(&r, i % 50, &item);
    rt_repeats_save(r.repeats, &saved);
    rt_bytes_put(&saved, "rest", 4);
    const uint64_t wanted = sizes_after(&r);
    fini(&r);
    rt_reader reader = rt_bytes_reader(&saved);
    assert_true(rt_repeats_are_next(&reader));
    assert_true(rt_repeats_take(&reader, &taken));
    assert_int_equal(reader.left, 4);
    assert_false(rt_repeats_are_next(&reader));
    assert_true(rt_repeats_take(&reader, &cut)); // nothing is there
    assert_int_equal(reader.left + cut.size, 4);
    static const uint32_t fulls[] = {64 * FULL, 128 * FULL, FULL};
    for (size_t i = 0; i < RT_COUNT_OF(fulls); i++) {
        r = begin(fulls[i]);
        reader = rt_bytes_reader(&taken);
        assert_int_equal(rt_repeats_load(r.repeats, &reader, NULL), RT_OK);
        if (i == 0)
            assert_true(sizes_after(&r) == wanted);
        else
            assert_true(visit(&r, 3, &item) > RT_REPEATS_LEAST); // has come often
        fini(&r);
    }
    for (uint32_t bytes = 8; bytes < 32; bytes += 4) {
        rt_error error = {0};
        reader = (rt_reader){taken.data, bytes, false};
        r = begin(FULL);
        assert_int_equal(rt_repeats_load(r.repeats, &reader, &error), RT_DATA);
        reader = (rt_reader){taken.data, bytes, false};
        assert_false(rt_repeats_take(&reader, &cut));
        fini(&r);
    }
    rt_bytes_fini(&saved);
    rt_bytes_fini(&taken);
    rt_bytes_fini(&cut);
}

// The planner counts the same batch, folded.
static void a_folded_batch_counts_the_same(void **state)
{
    (void)state;
    static const char names[KEYS][RT_NAME_MAX] = {"item", "last"};
    rt_tables tables;
    rt_bytes as_read = {0}, folded = {0};
    rt_config config = config_fresh();
    config_must_set(&config, "stream.tables=last=item");
    assert_int_equal(rt_tables_find(&config.stream, names, KEYS, &tables, NULL), RT_OK);
    reading r = begin(FULL), plans = begin(FULL);
    for (uint32_t i = 1; i < RT_REPEATS_LEAST / 2; i++)
        assert_false(take(&r, &tables, 5, 5)); // one row, twice
    assert_true(take(&r, &tables, 5, 5));
    for (uint64_t i = 0; i < 40; i++)
        take(&r, &tables, i % 9, i % 4 ? i % 7 : RT_ID_MISSING);
    rt_repeats_add(r.repeats, &tables, &r.batch);
    assert_int_equal(rt_tables_fold(&tables, &r.batch), RT_OK);
    rt_repeats_add(plans.repeats, &tables, &r.batch);
    rt_repeats_save(r.repeats, &as_read);
    rt_repeats_save(plans.repeats, &folded);
    assert_int_equal(as_read.size, folded.size);
    assert_memory_equal(as_read.data, folded.data, folded.size);
    rt_bytes_fini(&as_read);
    rt_bytes_fini(&folded);
    rt_config_fini(&config);
    fini(&r);
    fini(&plans);
}

TEST_MAIN(TEST(a_visit_ends_batches), TEST(what_comes_at_all_times_ends_none),
          TEST(a_long_stream_is_the_same), TEST(times_outlive_a_restart),
          TEST(a_folded_batch_counts_the_same))
