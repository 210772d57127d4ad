// The directory against a plain sorted list of keys, and its memory.
#include "tests/support/test.h"

#include <stdlib.h>

#include "dispatch/cache/dp_directory.h"
#include "dispatch/plan/dp_plan.h"

#define KEYS_MAX 3000u
#define NO_RECORD UINT32_MAX

// ---- model -------------------------------------------------------------------------------------

typedef struct {
    uint64_t key;
    uint32_t version; // 0: never trained
    uint32_t record;  // NO_RECORD: none
} known_key;

typedef struct {
    dp_directory directory;
    known_key known[KEYS_MAX];
    uint32_t found; // keys that the directory was asked for
    uint32_t with_record;
    rt_random random;
} pair;

// Keys whose hashes share their low bits when clash is set: long runs of occupied entries.
static void choose_keys(pair *p, bool clash)
{
    uint64_t next = 0;
    for (uint32_t i = 0; i < KEYS_MAX; i++) {
        do {
            next++;
        } while (clash && (rt_mix(next) & 0x3e0) != 0x3e0);
        p->known[i] = (known_key){next, 0, NO_RECORD};
    }
    p->known[KEYS_MAX - 1].key = 0; // a key like any other
    p->known[KEYS_MAX - 2].key = UINT64_MAX;
}

static void pair_init(pair *p, uint64_t keys_expected, bool clash, uint64_t seed)
{
    *p = (pair){.random = {seed}};
    choose_keys(p, clash);
    assert_int_equal(dp_directory_init(&p->directory, keys_expected), RT_OK);
}

static void check_record(const pair *p, const known_key *known, uint32_t record)
{
    const dp_record *r = &p->directory.records[record];
    assert_true(record < p->directory.record_top);
    assert_int_equal(r->key, known->key);
    assert_int_equal(r->version, known->version);
    assert_true(r->entry <= p->directory.mask);
    assert_int_equal(p->directory.entries[r->entry].key, known->key);
    assert_int_equal(p->directory.entries[r->entry].record, record + 1);
}

static void find(pair *p, uint32_t i)
{
    known_key *known = &p->known[i];
    assert_int_equal(dp_directory_reserve(&p->directory, 1), RT_OK);
    uint32_t record = dp_directory_find(&p->directory, known->key);
    check_record(p, known, record);
    if (known->record != NO_RECORD) {
        assert_int_equal(record, known->record);
        return;
    }
    const dp_record *r = &p->directory.records[record]; // a new one: everything at rest
    assert_int_equal(r->version_ps, known->version);
    assert_int_equal(r->copies.holders, 0);
    assert_int_equal(r->copies.first, DP_NO_COPY);
    assert_int_equal(r->seen, 0);
    p->found += known->version == 0;
    p->with_record++;
    known->record = record;
}

// As an iteration that several workers train it in.
static void release(pair *p, uint32_t i, uint32_t iteration)
{
    known_key *known = &p->known[i];
    dp_record *record = &p->directory.records[known->record];
    record->version = record->version_ps = iteration;
    record->seen = iteration;
    dp_directory_release(&p->directory, known->record);
    known->version = iteration;
    known->record = NO_RECORD;
    p->with_record--;
}

static void check_all(pair *p)
{
    rt_error error = {0};
    assert_int_equal(p->directory.key_count, p->found);
    assert_int_equal(p->directory.record_count, p->with_record);
    if (!dp_directory_legal(&p->directory, &error))
        fail_msg("%s", error.text);
    uint8_t *taken = rt_alloc(p->directory.record_top + 1u, 1);
    assert_non_null(taken);
    for (uint32_t i = 0; i < KEYS_MAX; i++) {
        const known_key *known = &p->known[i];
        assert_int_equal(dp_directory_version(&p->directory, known->key), known->version);
        if (known->record == NO_RECORD)
            continue;
        check_record(p, known, known->record);
        assert_int_equal(taken[known->record]++, 0); // one record each
    }
    rt_free(taken);
}

// ---- cases -------------------------------------------------------------------------------------

static void is_a_map(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 6; seed++) {
        pair p;
        pair_init(&p, seed * 400, seed % 2, seed);
        for (uint32_t iteration = 1; iteration <= 300; iteration++) {
            for (uint32_t k = 0; k < 100; k++) {
                uint32_t i = rt_random_below(&p.random, 1 + iteration * KEYS_MAX / 300);
                i = KEYS_MAX - 1 - rt_random_below(&p.random, i + 1) % KEYS_MAX;
                find(&p, i);
                if (rt_random_below(&p.random, 3) == 0)
                    release(&p, i, iteration);
            }
            if (iteration % 50 == 0)
                check_all(&p);
        }
        assert_true(p.found > KEYS_MAX / 2);
        dp_directory_fini(&p.directory);
    }
}

// Growth moves entries, not records: every record must know its new place.
static void records_survive_growth(void **state)
{
    (void)state;
    pair p;
    pair_init(&p, 0, false, 1);
    uint64_t mask = p.directory.mask;
    for (uint32_t i = 0; i < 600; i++) {
        find(&p, i);
        if (i % 3 == 0)
            release(&p, i, i + 1);
    }
    assert_int_equal(p.directory.mask, mask); // 600 of 1024 entries
    assert_int_equal(dp_directory_reserve(&p.directory, 20000), RT_OK);
    assert_true(p.directory.mask > mask);
    check_all(&p);
    for (uint32_t i = 0; i < 600; i++) {
        find(&p, i);
        release(&p, i, 1000 + i);
    }
    check_all(&p);
    assert_int_equal(p.directory.record_count, 0);
    dp_directory_fini(&p.directory);
}

static void load_stays_below_70_percent(void **state)
{
    (void)state;
    dp_directory directory;
    assert_int_equal(dp_directory_init(&directory, 0), RT_OK);
    for (uint64_t key = 1; key < 40000; key++) {
        assert_int_equal(dp_directory_reserve(&directory, 1), RT_OK);
        dp_directory_find(&directory, key);
        assert_true(directory.key_count * 10 <= (directory.mask + 1) * 7);
    }
    dp_directory_fini(&directory);
}

static void expected_keys_need_no_growth(void **state)
{
    (void)state;
    static const uint64_t counts[] = {0, 1, 716, 717, 100000};
    for (uint32_t c = 0; c < RT_COUNT_OF(counts); c++) {
        dp_directory directory;
        assert_int_equal(dp_directory_init(&directory, counts[c]), RT_OK);
        const dp_entry *entries = directory.entries;
        for (uint64_t key = 0; key < counts[c]; key++) {
            assert_int_equal(dp_directory_reserve(&directory, 1), RT_OK);
            dp_directory_find(&directory, key * 7919);
        }
        assert_ptr_equal(directory.entries, entries);
        dp_directory_fini(&directory);
    }
}

// Entries are numbered with 32 bits; more is refused, not wrapped around.
static void too_many_keys_are_refused(void **state)
{
    (void)state;
    static const uint64_t counts[] = {UINT64_C(3006477108), UINT64_C(1) << 62, UINT64_MAX};
    for (uint32_t i = 0; i < RT_COUNT_OF(counts); i++) {
        dp_directory directory;
        assert_int_equal(dp_directory_init(&directory, counts[i]), RT_NO_MEMORY);
    }
}

// Five million keys, at most `batch` of them with a record at a time: 16 bytes at a load of 35% to
// 70%.
static void five_million_keys(void **state)
{
    (void)state;
    const uint32_t batch = 8192, batches = 5000000 / batch;
    uint32_t *records = rt_alloc(batch, sizeof *records);
    dp_directory directory;
    assert_non_null(records);
    assert_int_equal(dp_directory_init(&directory, 0), RT_OK);
    for (uint32_t b = 0; b < batches; b++) {
        assert_int_equal(dp_directory_reserve(&directory, batch), RT_OK);
        for (uint32_t i = 0; i < batch; i++)
            records[i] = dp_directory_find(&directory, (uint64_t)b * batch + i);
        for (uint32_t i = 0; i < batch; i++) {
            dp_record *record = &directory.records[records[i]];
            record->version = record->version_ps = b + 1;
            dp_directory_release(&directory, records[i]);
        }
    }
    uint64_t keys = (uint64_t)batches * batch;
    uint64_t pool = 3 * batch * (sizeof(dp_record) + sizeof(uint32_t)); // of growth by half
    assert_int_equal(directory.key_count, keys);
    assert_true(dp_directory_bytes(&directory) >= keys * 16);
    assert_true((double)dp_directory_bytes(&directory) <=
                (double)keys * 16 * 2 / 0.7 + (double)pool);
    assert_true(directory.record_top <= 2 * batch);
    for (uint64_t key = 0; key < keys; key += 997)
        assert_int_equal(dp_directory_version(&directory, key), key / batch + 1);
    assert_int_equal(dp_directory_version(&directory, keys), 0);
    dp_directory_fini(&directory);
    rt_free(records);
}

// All seek before any record is made, then records are attached in another order: as if each had
// been found in its turn.
static void found_in_steps(void **state)
{
    (void)state;
    dp_directory one, all;
    dp_sought sought[600];
    assert_int_equal(dp_directory_init(&one, 0), RT_OK);
    assert_int_equal(dp_directory_init(&all, 0), RT_OK);
    for (uint32_t batch = 0; batch < 4; batch++) { // half of the keys are known from before
        const uint64_t first = batch * 300;
        uint32_t records[600];
        assert_int_equal(dp_directory_reserve(&one, 600), RT_OK);
        assert_int_equal(dp_directory_reserve(&all, 600), RT_OK);
        for (uint32_t i = 0; i < 600; i++)
            records[i] = dp_directory_find(&one, first + i);
        for (uint32_t i = 0; i < 600; i++)
            sought[i] = dp_directory_seek(&all, first + i, dp_directory_home(&all, first + i));
        for (uint32_t i = 0; i < 600; i++) {
            assert_int_equal(sought[i].record, DP_NO_RECORD);
            assert_int_equal(sought[i].has_entry, batch > 0 && i < 300);
            dp_directory_reserve_record(&all, first + i, &sought[i]);
            assert_int_equal(sought[i].record, records[i]);
        }
        for (uint32_t i = 600; i-- > 0;)
            dp_directory_attach(&all, first + i, &sought[i]);
        assert_true(dp_directory_legal(&all, NULL));
        assert_int_equal(all.key_count, one.key_count);
        assert_memory_equal(all.entries, one.entries, (one.mask + 1) * sizeof *one.entries);
        assert_memory_equal(all.records, one.records, one.record_top * sizeof *one.records);
        for (uint32_t i = 0; i < 600; i++) {
            one.records[records[i]].version = one.records[records[i]].version_ps = batch + 1;
            all.records[records[i]] = one.records[records[i]];
            dp_directory_release(&one, records[i]);
            dp_directory_release(&all, records[i]);
        }
    }
    dp_directory_fini(&one);
    dp_directory_fini(&all);
}

static void illegal_states_are_named(void **state)
{
    (void)state;
    static const struct {
        uint32_t version, version_ps;
        uint64_t holders;
        bool legal;
    } cases[] = {
        {0, 0, 0, true}, {5, 5, 0, true},  {5, 5, 2, true},  {5, 3, 2, true},
        {5, 3, 6, true}, {5, 3, 0, false}, {3, 5, 2, false},
    };
    for (uint32_t i = 0; i < RT_COUNT_OF(cases); i++) {
        dp_directory directory;
        rt_error error = {0};
        assert_int_equal(dp_directory_init(&directory, 0), RT_OK);
        assert_int_equal(dp_directory_reserve(&directory, 1), RT_OK);
        dp_record *record = &directory.records[dp_directory_find(&directory, 77)];
        record->version = cases[i].version;
        record->version_ps = cases[i].version_ps;
        record->copies.holders = cases[i].holders;
        record->copies.first = record->copies.holders ? 0 : DP_NO_COPY;
        assert_int_equal(dp_directory_legal(&directory, &error), cases[i].legal);
        if (!cases[i].legal)
            assert_true(error.text[0] != '\0');
        if (record->copies.holders == 0)
            record->copies.holders = 1;
        record->copies.first = DP_NO_COPY;
        assert_false(dp_directory_legal(&directory, &error));
        dp_directory_fini(&directory);
    }
}

TEST_MAIN(TEST(is_a_map), TEST(records_survive_growth), TEST(load_stays_below_70_percent),
          TEST(expected_keys_need_no_growth), TEST(too_many_keys_are_refused),
          TEST_SLOW(five_million_keys, 120), TEST(found_in_steps), TEST(illegal_states_are_named))
