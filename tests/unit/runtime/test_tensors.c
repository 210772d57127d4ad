#include "runtime/files/rt_tensors.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/test.h"

static float numbers[64];

static const rt_tensor tensors[] = {{"deep.0.weight", 2, {3, 4}, numbers},
                                    {"deep.0.bias", 1, {4}, numbers + 12},
                                    {"empty", 3, {2, 0, 5}, numbers},
                                    {"scale", 0, {0}, numbers + 16}};
static const uint64_t value_counts[] = {12, 4, 0, 1};

static const char *file_in(const char *folder)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/dense.bin", folder);
    return path;
}

static void write_all(const char *path)
{
    for (int i = 0; i < 64; i++)
        numbers[i] = (float)i / 3;
    assert_int_equal(rt_tensors_write(path, tensors, 4, NULL), RT_OK);
}

static void test_what_is_written_is_read(void **context)
{
    (void)context;
    rt_tensors *file = NULL;
    const char *path = file_in(test_directory());
    write_all(path);
    assert_int_equal(rt_tensors_open(path, &file, NULL), RT_OK);
    assert_int_equal(rt_tensors_count(file), 4);
    for (uint32_t i = 0; i < 4; i++) {
        const rt_tensor *got = rt_tensors_at(file, i);
        assert_string_equal(got->name, tensors[i].name);
        assert_int_equal(got->rank, tensors[i].rank);
        assert_memory_equal(got->shape, tensors[i].shape, sizeof got->shape);
        assert_memory_equal(got->values, tensors[i].values, value_counts[i] * sizeof(float));
        assert_ptr_equal(rt_tensors_find(file, tensors[i].name), got);
    }
    assert_null(rt_tensors_find(file, "deep"));
    rt_tensors_close(file);
    assert_int_equal(rt_tensors_write(path, NULL, 0, NULL), RT_OK);
    assert_int_equal(rt_tensors_open(path, &file, NULL), RT_OK);
    assert_int_equal(rt_tensors_count(file), 0);
    rt_tensors_close(file);
}

static void overwrite(const char *path, const uint8_t *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

// Every byte changed (padding apart), every length cut: an error that names the file.
static void test_damage_is_found(void **context)
{
    (void)context;
    static uint8_t bytes[4096];
    rt_error error = {RT_OK, ""};
    rt_tensors *file = NULL;
    const char *path = file_in(test_directory());
    write_all(path);
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    const size_t size = fread(bytes, 1, sizeof bytes, stream);
    fclose(stream);
    size_t unnoticed = 0;
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 0x41;
        overwrite(path, bytes, size);
        rt_status status = rt_tensors_open(path, &file, &error);
        if (status == RT_OK) {
            rt_tensors_close(file);
            unnoticed++;
        } else {
            assert_int_equal(status, RT_DATA);
            assert_non_null(strstr(error.text, path));
        }
        bytes[i] ^= 0x41;
        overwrite(path, bytes, i);
        assert_int_equal(rt_tensors_open(path, &file, &error), RT_DATA);
    }
    const size_t content = 32 + 4 * 128 + 17 * sizeof(float);
    assert_int_equal(unnoticed, size - content);
    assert_int_equal(rt_tensors_open("/nowhere/at/all", &file, &error), RT_IO);
    assert_int_equal(rt_tensors_write("/nowhere/at/all", tensors, 4, &error), RT_IO);
}

// A directory whose checksum is right and whose contents are not.
static void test_two_of_a_name_are_rejected(void **context)
{
    (void)context;
    rt_tensors *file = NULL;
    rt_error error;
    const rt_tensor twice[] = {{"a", 1, {1}, numbers}, {"a", 1, {1}, numbers}};
    const char *path = file_in(test_directory());
    assert_int_equal(rt_tensors_write(path, twice, 2, NULL), RT_OK);
    assert_int_equal(rt_tensors_open(path, &file, &error), RT_DATA);
    assert_non_null(strstr(error.text, "second tensor a"));
}

TEST_MAIN(TEST(test_what_is_written_is_read), TEST(test_damage_is_found),
          TEST(test_two_of_a_name_are_rejected))
