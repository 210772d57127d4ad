// Chains of a shard's files, merged and read one after the other: both are the same rows, to the
// byte. Rows are trained, born, swept (floors), leave for another shard and come back.
#include "ps_lite/ps_merge.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ps_lite/ps_snapshot.h"
#include "runtime/files/rt_file.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define KEYS_MAX 9000u // more than two blocks
#define FILES_MAX 9u
#define PATH 400

typedef struct {
    rt_random random;
    ps_model_info info;
    ps_table *table;
    uint64_t left[KEYS_MAX];
    uint32_t keys, count; // files
    char paths[FILES_MAX][PATH];
    rt_file_sum sums[FILES_MAX];
} chain;

static ps_table *make_table(const ps_model_info *info)
{
    ps_table *table;
    const ps_table_config config = {.row_floats = info->dim + info->state_floats,
                                    .memory_bytes_max = UINT64_C(1) << 30};
    assert_int_equal(ps_table_create(&config, &table), RT_OK);
    return table;
}

static void train(chain *c, uint64_t key, uint32_t version)
{
    ps_entry *entry = ps_table_find(c->table, key);
    if (!entry) {
        assert_int_equal(ps_table_reserve(c->table, 1, NULL), RT_OK);
        entry = ps_table_insert(c->table, key);
    }
    entry->version = version;
    float *row = ps_table_row(c->table, entry);
    for (uint32_t k = 0; k < c->info.dim + c->info.state_floats; k++)
        row[k] = (float)rt_random_below(&c->random, 4);
}

// What happens between two cuts. The keys that have left stand in c->left, ascending.
static void go_on(chain *c, uint32_t share)
{
    const uint32_t base = c->info.base, iteration = c->info.iteration;
    c->info.left_count = 0;
    for (uint64_t key = 1; key <= c->keys; key++) {
        const ps_entry *entry = ps_table_find(c->table, key * 7);
        const uint32_t chance = rt_random_below(&c->random, 100);
        if (chance < share) {
            train(c, key * 7, base + 1 + rt_random_below(&c->random, iteration - base));
        } else if (base && entry && chance >= 95) {
            assert_true(ps_table_erase(c->table, key * 7));
            c->left[c->info.left_count++] = key * 7;
        }
    }
    if (base && rt_random_below(&c->random, 3) == 0)
        c->info.floor = (uint32_t)rt_max_u64(c->info.floor, rt_random_below(&c->random, iteration));
    for (uint64_t at = 0; ps_table_erase_below(c->table, c->info.floor, &at);) {
        // swept
    }
}

static void add_file(chain *c)
{
    rt_file_place place = {.path = c->paths[c->count]};
    const rt_sink sink = rt_file_sink(&place);
    ps_model_info info = c->info;
    snprintf(c->paths[c->count], PATH, "%s-%u", test_path("rows"), c->count);
    info.left = c->left;
    if (!info.base)
        info.floor = 0;
    assert_int_equal(
        ps_snapshot_write(c->table, &info, &sink, NULL, NULL, &c->sums[c->count], NULL), RT_OK);
    c->count++;
}

// The optimizers' kinds of state, by floats a value or a row.
static void make_chain(chain *c, uint64_t seed, uint32_t count)
{
    *c = (chain){.random = {seed}, .keys = seed % 20 ? 300 : KEYS_MAX};
    const uint32_t dim = 1 + rt_random_below(&c->random, 9);
    const uint32_t states[] = {0, 1, dim, 2 * dim};
    c->info = (ps_model_info){.schema = 77,
                              .shard = 1,
                              .shard_count = 2,
                              .dim = dim,
                              .state_floats = states[rt_random_below(&c->random, 4)],
                              .optimizer = rt_random_below(&c->random, 5),
                              .homes = RT_HOMES_PLANNED,
                              .packed = rt_random_below(&c->random, 2)};
    c->table = make_table(&c->info);
    for (uint32_t i = 0; i < count; i++) {
        c->info.iteration = c->info.base + 1 + rt_random_below(&c->random, 50);
        go_on(c, i ? rt_random_below(&c->random, 60) : 80);
        add_file(c);
        c->info.base = c->info.iteration;
    }
}

static void end_chain(chain *c)
{
    for (uint32_t i = 0; i < c->count; i++)
        assert_int_equal(unlink(c->paths[i]), 0);
    ps_table_destroy(c->table);
}

static rt_status merge(const chain *c, const rt_sink *sink, rt_file_sum *sum, rt_error *error)
{
    const char *paths[FILES_MAX];
    for (uint32_t i = 0; i < c->count; i++)
        paths[i] = c->paths[i];
    return ps_merge(paths, c->sums, c->count, sink, sum, error);
}

// Brute force: all files into a table, and that to a file.
static rt_file_sum read_and_write(const chain *c, const char *path)
{
    rt_file_sum sum;
    rt_file_place place = {.path = path};
    const rt_sink sink = rt_file_sink(&place);
    ps_table *table = make_table(&c->info);
    ps_model_info info = c->info;
    for (uint32_t i = 0; i < c->count; i++)
        assert_int_equal(ps_snapshot_read(table, &info, c->paths[i], NULL, NULL, NULL, NULL),
                         RT_OK);
    info.base = info.floor = info.left_count = 0;
    info.packed = true;
    assert_int_equal(ps_snapshot_write(table, &info, &sink, NULL, NULL, &sum, NULL), RT_OK);
    ps_table_destroy(table);
    return sum;
}

static void same_as_read_one_by_one(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 80; seed++) {
        chain c;
        rt_file_sum sum;
        char merged[PATH], read[PATH];
        make_chain(&c, seed, 1 + (uint32_t)(seed % FILES_MAX));
        snprintf(merged, sizeof merged, "%s", test_path("merged"));
        snprintf(read, sizeof read, "%s", test_path("read"));
        rt_file_place place = {.path = merged};
        const rt_sink sink = rt_file_sink(&place);
        rt_error error = {0};
        if (merge(&c, &sink, &sum, &error))
            fail_msg("seed %u: %s", (unsigned)seed, error.text);
        const rt_file_sum want = read_and_write(&c, read);
        assert_memory_equal(&sum, &want, sizeof sum);
        end_chain(&c);
    }
}

// A disk that has room for so many pieces.
typedef struct {
    uint32_t room;
    bool was_aborted, was_committed;
} disk;

static rt_status open_disk(void *context, uint64_t total, rt_error *error)
{
    (void)context;
    (void)total;
    (void)error;
    return RT_OK;
}

static rt_status write_disk(void *context, const void *bytes, size_t size, rt_error *error)
{
    disk *d = context;
    (void)bytes;
    (void)size;
    if (d->room == 0)
        return rt_fail(error, RT_IO, "no room");
    d->room--;
    return RT_OK;
}

static rt_status commit_disk(void *context, rt_error *error)
{
    (void)error;
    ((disk *)context)->was_committed = true;
    return RT_OK;
}

static void abort_disk(void *context)
{
    ((disk *)context)->was_aborted = true;
}

static rt_status merge_to(const chain *c, disk *d, rt_error *error)
{
    const rt_sink sink = {open_disk, write_disk, commit_disk, abort_disk, d, "disk"};
    return merge(c, &sink, NULL, error);
}

static void full_disk(void **state)
{
    (void)state;
    chain c;
    make_chain(&c, 3, 4);
    for (uint32_t room = 0;; room++) {
        disk d = {.room = room};
        rt_error error = {0};
        const rt_status status = merge_to(&c, &d, &error);
        assert_int_equal(d.was_committed, status == RT_OK);
        assert_int_equal(d.was_aborted, status != RT_OK);
        if (!status)
            break;
        assert_int_equal(status, RT_IO);
        assert_string_equal(error.text, "no room");
        assert_true(room < 10);
    }
    end_chain(&c);
}

static void flip(const char *path, long at)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    const int byte = fgetc(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_not_equal(fputc(byte ^ 1, file), EOF);
    assert_int_equal(fclose(file), 0);
}

// A damaged file, one of another chain, one too few: nothing comes of it.
static void files_that_do_not_belong_together(void **state)
{
    (void)state;
    chain c;
    make_chain(&c, 5, 4);
    for (uint32_t i = 0; i < c.count; i++) {
        for (uint64_t at = 0; at < c.sums[i].bytes; at += 1 + at / 3) {
            disk d = {.room = 100};
            flip(c.paths[i], (long)at);
            assert_int_equal(merge_to(&c, &d, NULL), RT_DATA);
            assert_false(d.was_committed);
            flip(c.paths[i], (long)at);
        }
        disk d = {.room = 100};
        c.sums[i].hash ^= 1;
        assert_int_equal(merge_to(&c, &d, NULL), RT_DATA);
        c.sums[i].hash ^= 1;
        assert_false(d.was_committed);
    }
    for (uint32_t without = 0; without < 3; without++) {
        const char *paths[3];
        rt_file_sum sums[3];
        disk d = {.room = 100};
        const rt_sink sink = {open_disk, write_disk, commit_disk, abort_disk, &d, "disk"};
        for (uint32_t i = 0; i < 3; i++) {
            paths[i] = c.paths[i + (i >= without)];
            sums[i] = c.sums[i + (i >= without)];
        }
        rt_error error = {0};
        assert_int_equal(ps_merge(paths, sums, 3, &sink, NULL, &error), RT_DATA);
        assert_non_null(strstr(error.text, "changes"));
    }
    disk d = {.room = 100};
    assert_int_equal(merge_to(&c, &d, NULL), RT_OK);
    end_chain(&c);
}

TEST_MAIN(TEST(same_as_read_one_by_one), TEST(full_disk), TEST(files_that_do_not_belong_together))
