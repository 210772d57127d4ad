#include "ps_lite/ps_model_file.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/files/rt_file.h"
#include "tests/support/test.h"

static ps_model_info info_of(uint64_t rows)
{
    return (ps_model_info){.schema = 0x1234,
                           .row_count = rows,
                           .shard = 1,
                           .shard_count = 4,
                           .dim = 3,
                           .state_floats = 2,
                           .optimizer = 3};
}

static void row_of(uint64_t i, float row[5])
{
    for (int k = 0; k < 5; k++)
        row[k] = (float)i * 10 + (float)k;
}

static void write_rows_as(const char *path, uint64_t rows, bool packed, rt_file_sum *sum_p)
{
    ps_model_info info = info_of(rows);
    info.packed = packed;
    ps_model_writer *writer = NULL;
    float row[5];
    rt_file_sum sum;
    rt_file_place place = {.path = path};
    const rt_sink sink = rt_file_sink(&place);
    assert_int_equal(ps_model_writer_open(&sink, &info, &writer, NULL), RT_OK);
    for (uint64_t i = 0; i < rows; i++) {
        row_of(i, row);
        assert_int_equal(ps_model_writer_add(writer, i * 977, (uint32_t)i + 5, row, NULL), RT_OK);
    }
    assert_int_equal(ps_model_writer_commit(writer, &sum, NULL), RT_OK);
    if (!packed)
        assert_int_equal(sum.bytes, ps_model_file_bytes(&info));
    if (sum_p)
        *sum_p = sum;
}

static void write_rows(const char *path, uint64_t rows)
{
    write_rows_as(path, rows, false, NULL);
}

// Reads to the end; RT_END and every row right, or the error.
static rt_status read_rows(const char *path, uint64_t rows, rt_error *error)
{
    ps_model_info info;
    ps_model_reader *reader = NULL;
    rt_status status = ps_model_reader_open(path, NULL, NULL, &info, &reader, error);
    if (status != RT_OK)
        return status;
    const ps_model_info want = info_of(rows);
    assert_true(info.schema == want.schema && info.row_count == want.row_count);
    assert_true(info.shard == want.shard && info.shard_count == want.shard_count);
    assert_true(info.dim == want.dim && info.state_floats == want.state_floats);
    assert_int_equal(info.optimizer, want.optimizer);
    uint64_t key, i = 0;
    uint32_t version;
    const float *row;
    for (; (status = ps_model_reader_next(reader, &key, &version, &row, error)) == RT_OK; i++) {
        float floats[5];
        row_of(i, floats);
        assert_true(key == i * 977 && version == i + 5);
        assert_memory_equal(row, floats, sizeof floats);
    }
    assert_true(status != RT_END || i == rows);
    ps_model_reader_close(reader);
    return status;
}

static const char *file_in(const char *folder)
{
    static char path[256];
    assert_int_equal(ps_model_file_path(folder, 1, 4, path, sizeof path, NULL), RT_OK);
    return path;
}

static void test_what_is_written_is_read(void **context)
{
    (void)context;
    const uint64_t rows[] = {0, 1, 3, PS_MODEL_BLOCK_ROWS, PS_MODEL_BLOCK_ROWS + 1, 20001};
    const char *path = file_in(test_directory());
    assert_non_null(strstr(path, "/rows-001-of-004.bin"));
    for (size_t i = 0; i < RT_COUNT_OF(rows); i++) {
        write_rows(path, rows[i]);
        assert_int_equal(read_rows(path, rows[i], NULL), RT_END);
    }
}

static void overwrite(const char *path, const uint8_t *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

// Every byte changed, every length cut: an error that names the file, or (nothing) a good read.
static void find_damage(bool packed)
{
    static uint8_t bytes[4096];
    enum { ROWS = 21 };
    rt_error error = {RT_OK, ""};
    const char *path = file_in(test_directory());
    write_rows_as(path, ROWS, packed, NULL);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_true(packed ? size < 72 + 24 + ROWS * (8 + 4 + 20)
                       : size == 72 + 24 + ROWS * (8 + 4 + 20));
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 0x41;
        overwrite(path, bytes, size);
        assert_int_equal(read_rows(path, ROWS, &error), RT_DATA);
        assert_non_null(strstr(error.text, path));
        bytes[i] ^= 0x41;
        overwrite(path, bytes, i);
        assert_int_equal(read_rows(path, ROWS, &error), RT_DATA);
    }
    overwrite(path, bytes, size + 1);
    assert_int_equal(read_rows(path, ROWS, &error), RT_DATA);
    assert_non_null(strstr(error.text, "goes on"));
}

static void test_damage_is_found(void **context)
{
    (void)context;
    find_damage(false);
}

static void test_damage_is_found_in_packed_files(void **context)
{
    (void)context;
    find_damage(true);
}

// Packed or not, what is read is the same; the sum is that of the bytes on disk.
static void test_packed_files(void **context)
{
    (void)context;
    const uint64_t rows[] = {0, 1, PS_MODEL_BLOCK_ROWS, 9001};
    const char *path = file_in(test_directory());
    uint64_t hash = 0;
    for (size_t i = 0; i < RT_COUNT_OF(rows); i++) {
        for (int packed = 0; packed < 2; packed++) {
            struct stat info;
            rt_file_sum sum;
            write_rows_as(path, rows[i], packed, &sum);
            assert_int_equal(read_rows(path, rows[i], NULL), RT_END);
            assert_int_equal(stat(path, &info), 0);
            assert_int_equal(info.st_size, sum.bytes);
            assert_true(rows[i] < PS_MODEL_BLOCK_ROWS || sum.hash != hash); // a row is not worth it
            hash = sum.hash;
        }
    }
}

static void test_the_old_file_stays_until_the_new_one_is_complete(void **context)
{
    (void)context;
    const ps_model_info info = info_of(9);
    ps_model_writer *writer = NULL;
    rt_error error;
    char unfinished[300];
    const float row[5] = {0};
    const char *folder = test_directory(), *path = file_in(folder);
    rt_file_place place = {.path = path}, nowhere = {.path = "/nowhere/at/all"};
    const rt_sink sink = rt_file_sink(&place), no_sink = rt_file_sink(&nowhere);
    write_rows(path, 7);
    assert_int_equal(ps_model_writer_open(&sink, &info, &writer, NULL), RT_OK);
    assert_int_equal(ps_model_writer_add(writer, 1, 2, row, NULL), RT_OK);
    assert_int_equal(read_rows(path, 7, NULL), RT_END);
    ps_model_writer_abort(writer);
    assert_int_equal(read_rows(path, 7, NULL), RT_END);
    snprintf(unfinished, sizeof unfinished, "%s.tmp", path);
    assert_int_not_equal(access(unfinished, F_OK), 0);
    assert_int_equal(ps_model_writer_open(&no_sink, &info, &writer, &error), RT_IO);
    assert_non_null(strstr(error.text, "/nowhere/at/all"));
    assert_int_equal(read_rows("/nowhere/at/all", 0, &error), RT_IO);
}

// Cut short it would be the path of another file.
static void test_a_path_that_does_not_fit(void **state)
{
    (void)state;
    char path[32];
    rt_error error = {0};
    assert_int_equal(ps_model_file_path("/0123456789a", 1, 4, path, sizeof path, &error), RT_CONFIG);
    assert_string_equal(error.text, "the path /0123456789a is too long");
    assert_int_equal(ps_model_file_path("/0123456789", 1, 4, path, sizeof path, &error), RT_OK);
    assert_string_equal(path, "/0123456789/rows-001-of-004.bin");
}

TEST_MAIN(TEST(test_what_is_written_is_read), TEST(test_a_path_that_does_not_fit), TEST(test_damage_is_found),
          TEST(test_damage_is_found_in_packed_files), TEST(test_packed_files),
          TEST(test_the_old_file_stays_until_the_new_one_is_complete))
