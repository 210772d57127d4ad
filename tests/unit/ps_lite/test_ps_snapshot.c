// Which rows of a table go into a file, in which order, and which of its blocks are packed.
#include "runtime/files/rt_file.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ps_lite/ps_snapshot.h"
#include "runtime/rt_hash.h"

#define FLOATS 8u
#define BLOCK_BYTES (PS_MODEL_BLOCK_ROWS * (8u + 4 + FLOATS * sizeof(float)))

static uint64_t key_of(uint64_t i)
{
    return rt_key((uint32_t)(i % 5), rt_mix(i) >> 8);
}

static void add_row(ps_table *table, uint64_t key, uint32_t version, uint64_t seed)
{
    rt_random random = {seed};
    assert_int_equal(ps_table_reserve(table, 1, NULL), RT_OK);
    ps_entry *entry = ps_table_insert(table, key);
    entry->version = version;
    float *row = ps_table_row(table, entry);
    for (uint32_t k = 0; k < FLOATS; k++) {
        const uint32_t bits = (uint32_t)rt_random_u64(&random);
        memcpy(&row[k], &bits, sizeof bits);
    }
}

static ps_table *make(void)
{
    ps_table *table;
    const ps_table_config config = {.row_floats = FLOATS, .memory_bytes_max = UINT64_C(1) << 30};
    assert_int_equal(ps_table_create(&config, &table), RT_OK);
    return table;
}

static ps_model_info info_of(uint32_t base, bool packed)
{
    return (ps_model_info){
        .shard_count = 1, .dim = FLOATS, .iteration = 100, .base = base, .packed = packed};
}

// Row i of count: number i, or backwards; version i modulo 100.
static ps_table *make_rows(uint64_t count, bool backwards)
{
    ps_table *table = make();
    for (uint64_t n = 0; n < count; n++) {
        const uint64_t i = backwards ? count - 1 - n : n;
        add_row(table, key_of(i), (uint32_t)(i % 100), i + 1);
    }
    return table;
}

static void must_have_what_changed(const char *path, uint64_t count, uint32_t base)
{
    ps_model_info info;
    ps_model_reader *reader;
    ps_table *table = make_rows(count, false);
    uint64_t key, last = 0, found = 0, want = 0, at = 0;
    uint32_t version;
    const float *row;
    assert_int_equal(ps_model_reader_open(path, NULL, NULL, &info, &reader, NULL), RT_OK);
    while (ps_model_reader_next(reader, &key, &version, &row, NULL) == RT_OK) {
        const ps_entry *entry = ps_table_find(table, key);
        assert_true(found == 0 || key > last);
        assert_non_null(entry);
        assert_int_equal(version, entry->version);
        assert_true(base == 0 || version > base);
        assert_memory_equal(row, ps_table_row(table, entry), FLOATS * sizeof *row);
        last = key;
        found++;
    }
    for (const ps_entry *entry; (entry = ps_table_next(table, &at));)
        want += base == 0 || entry->version > base;
    assert_int_equal(found, want);
    assert_int_equal(info.row_count, want);
    ps_model_reader_close(reader);
    ps_table_destroy(table);
}

// All rows, never trained ones included; or those above the base. The order in which they came does
// not show.
static void what_changed_by_key(void **state)
{
    (void)state;
    const uint64_t count = 3 * PS_MODEL_BLOCK_ROWS + 5;
    const uint32_t bases[] = {0, 1, 60, 98, 99};
    for (size_t i = 0; i < RT_COUNT_OF(bases); i++) {
        rt_file_sum sums[2];
        for (int backwards = 0; backwards < 2; backwards++) {
            ps_table *table = make_rows(count, backwards);
            const ps_model_info info = info_of(bases[i], true);
            rt_file_place place = {.path = test_path("changed")};
            const rt_sink sink = rt_file_sink(&place);
            assert_int_equal(
                ps_snapshot_write(table, &info, &sink, NULL, NULL, &sums[backwards], NULL), RT_OK);
            ps_table_destroy(table);
        }
        assert_memory_equal(&sums[0], &sums[1], sizeof sums[0]);
        must_have_what_changed(test_path("changed"), count, bases[i]);
    }
}

// A file of rows of another kind is refused, whatever about them differs.
static void rows_of_another_kind(void **state)
{
    (void)state;
    const ps_model_info own = info_of(0, false);
    ps_table *table = make_rows(9, false);
    rt_file_place place = {.path = test_path("kind")};
    const rt_sink sink = rt_file_sink(&place);
    assert_int_equal(ps_snapshot_write(table, &own, &sink, NULL, NULL, NULL, NULL), RT_OK);
    ps_table_destroy(table);
    for (uint32_t i = 0; i < 6; i++) {
        rt_error error = {0};
        ps_model_info info = own;
        table = make();
        info.dim -= i == 0 || i == 4;
        info.state_floats += i == 1 || i == 4; // as many floats in all
        info.optimizer += i == 2;
        info.schema += i == 3;
        const rt_status want = i == 5 ? RT_OK : RT_CONFIG;
        assert_int_equal(
            ps_snapshot_read(table, &info, test_path("kind"), NULL, NULL, NULL, &error), want);
        assert_int_equal(ps_table_count(table), want ? 0 : 9);
        assert_int_equal(strstr(error.text, "schema") != NULL, i == 3);
        ps_table_destroy(table);
    }
}

typedef struct {
    const char *path; // beside the final one
    uint32_t before;  // calls before the file was begun
    uint32_t all, end_at;
} calls;

static rt_status note_call(void *context, int wait_fd, rt_error *error)
{
    assert_int_equal(wait_fd, -1);
    calls *seen = context;
    seen->before += access(seen->path, F_OK) != 0;
    return ++seen->all == seen->end_at ? rt_fail(error, RT_STOPPED, "enough") : RT_OK;
}

// Also while the rows are brought in order, which takes most of the time before the first of them
// is written: at least log2(count!) comparisons, and 65,536 of them to a call.
static void progress_is_made_while_sorting(void **state)
{
    (void)state;
    const uint64_t count = 100000, comparisons_min = 1516704;
    char beside[512];
    rt_error error = {0};
    ps_table *table = make_rows(count, false);
    const ps_model_info info = info_of(0, false);
    calls seen = {.path = beside};
    snprintf(beside, sizeof beside, "%s.tmp", test_path("sorted"));
    rt_file_place place = {.path = test_path("sorted")};
    const rt_sink sink = rt_file_sink(&place);
    assert_int_equal(ps_snapshot_write(table, &info, &sink, note_call, &seen, NULL, &error), RT_OK);
    assert_true(seen.before >= comparisons_min / 65536);
    // Then once for each block of rows; merging takes no more than twice as many comparisons.
    assert_int_equal(seen.all - seen.before,
                     (count + PS_MODEL_BLOCK_ROWS - 1) / PS_MODEL_BLOCK_ROWS);
    assert_true(seen.before <= 2 * comparisons_min / 65536);
    seen = (calls){.path = beside, .end_at = 3};
    place.path = test_path("ended");
    assert_int_equal(ps_snapshot_write(table, &info, &sink, note_call, &seen, NULL, &error),
                     RT_STOPPED);
    assert_string_equal(error.text, "enough");
    assert_int_equal(seen.all, 3); // it is not asked again
    assert_int_not_equal(access(test_path("ended"), F_OK), 0);
    ps_table_destroy(table);
}

// blocks: 'r' random values, '0' zeros; what is stored of each.
static void stored_bytes(const char *blocks, uint32_t *stored)
{
    ps_model_writer *writer;
    ps_model_info info = info_of(0, true);
    uint64_t key = 0;
    const size_t count = strlen(blocks);
    info.row_count = count * PS_MODEL_BLOCK_ROWS;
    rt_file_place place = {.path = test_path("blocks")};
    const rt_sink sink = rt_file_sink(&place);
    assert_int_equal(ps_model_writer_open(&sink, &info, &writer, NULL), RT_OK);
    for (size_t b = 0; b < count; b++) {
        rt_random random = {b + 1};
        for (uint32_t i = 0; i < PS_MODEL_BLOCK_ROWS; i++) {
            uint32_t row[FLOATS] = {0};
            for (uint32_t k = 0; k < FLOATS && blocks[b] == 'r'; k++)
                row[k] = (uint32_t)rt_random_u64(&random);
            float floats[FLOATS];
            memcpy(floats, row, sizeof floats);
            assert_int_equal(ps_model_writer_add(writer, rt_mix(++key), 1, floats, NULL), RT_OK);
        }
    }
    assert_int_equal(ps_model_writer_commit(writer, NULL, NULL), RT_OK);
    FILE *file = fopen(test_path("blocks"), "r");
    assert_non_null(file);
    long at = 72;
    for (size_t b = 0; b < count; b++) {
        uint32_t header[6];
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        assert_int_equal(fread(header, sizeof header, 1, file), 1);
        stored[b] = header[4];
        at += (long)sizeof header + header[4];
    }
    fclose(file);
}

// Where packing gains little, the blocks after it are not tried; where it gains, every one is.
static void packing_stops_where_it_gains_little(void **state)
{
    (void)state;
    const char *const blocks = "00r00000000000000000r0";
    uint32_t stored[32];
    stored_bytes(blocks, stored);
    for (size_t b = 0; b < strlen(blocks); b++) {
        const bool is_tried = b < 2 || b == 18 || b == 19;
        if (is_tried != (stored[b] < BLOCK_BYTES / 2) || stored[b] > BLOCK_BYTES)
            fail_msg("block %zu has %u bytes of %zu", b, stored[b], (size_t)BLOCK_BYTES);
    }
}

TEST_MAIN(TEST(what_changed_by_key), TEST(rows_of_another_kind),
          TEST(progress_is_made_while_sorting), TEST(packing_stops_where_it_gains_little))
