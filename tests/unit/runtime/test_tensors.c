#include "runtime/files/rt_tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
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

// Every byte changed, every length cut: an error that names the file.
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
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 0x41;
        overwrite(path, bytes, size);
        assert_int_equal(rt_tensors_open(path, &file, &error), RT_DATA);
        assert_non_null(strstr(error.text, path));
        bytes[i] ^= 0x41;
        overwrite(path, bytes, i);
        assert_int_equal(rt_tensors_open(path, &file, &error), RT_DATA);
    }
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

// tests/support/read_safetensors.py knows the format and nothing of us.
static void test_others_read_it(void **context)
{
    (void)context;
    char command[512], line[1024];
    if (system("command -v python3 >/dev/null") != 0)
        test_skip("python3 is not installed");
    const char *path = file_in(test_directory());
    write_all(path);
    snprintf(command, sizeof command, "python3 tests/support/read_safetensors.py %s 2>&1", path);
    FILE *reader = popen(command, "r");
    assert_non_null(reader);
    static const char *const begins[] = {"deep.0.weight [3, 4] ", "deep.0.bias [4] ",
                                         "empty [2, 0, 5]", "scale [] "};
    for (uint32_t i = 0; i < 4; i++) {
        if (!fgets(line, sizeof line, reader) || strncmp(line, begins[i], strlen(begins[i])) != 0)
            fail_msg("%s", line);
        char *at = line + strlen(begins[i]);
        for (uint64_t k = 0; k < value_counts[i]; k++)
            assert_true(strtof(at, &at) == tensors[i].values[k]);
        assert_string_equal(at, "\n");
    }
    assert_null(fgets(line, sizeof line, reader));
    assert_int_equal(pclose(reader), 0);
}

// Files of version 1, as programs before wrote them.
static void test_the_layout_before_is_read(void **context)
{
    (void)context;
    static uint8_t bytes[4096];
    rt_tensors *file = NULL;
    rt_error error;
    const char *path = file_in(test_directory());
    write_all(path); // numbers
    FILE *stream = fopen("tests/golden/dense-version-1.bin", "rb");
    assert_non_null(stream);
    const size_t size = fread(bytes, 1, sizeof bytes, stream);
    fclose(stream);
    assert_int_equal(rt_tensors_decode("old", bytes, size, &file, &error), RT_OK);
    assert_int_equal(rt_tensors_count(file), 4);
    for (uint32_t i = 0; i < 4; i++) {
        const rt_tensor *got = rt_tensors_find(file, tensors[i].name);
        assert_true(got && got->rank == tensors[i].rank);
        assert_memory_equal(got->values, tensors[i].values, value_counts[i] * sizeof(float));
    }
    rt_tensors_close(file);
    const size_t content = 32 + 4 * 128 + 17 * sizeof(float); // padding apart
    size_t noticed = 0;
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 0x41;
        if (rt_tensors_decode("old", bytes, size, &file, &error) == RT_OK)
            rt_tensors_close(file);
        else
            noticed++;
        bytes[i] ^= 0x41;
    }
    assert_int_equal(noticed, content);
}

// Headers that nobody wrote, with a checksum that is right.
static void test_impossible_headers_are_refused(void **context)
{
    (void)context;
    static const struct {
        const char *entries, *error;
    } cases[] = {
        {"", NULL},
        {",\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}", NULL},
        {",\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}", "entry 0"},
        {",\"a\":{\"dtype\":\"F32\",\"shape\":[2,],\"data_offsets\":[0,8]}", "entry 0"},
        {",\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,2],\"data_offsets\":[0,8]}", "entry 0"},
        {",\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,8]}",
         "entry 0"},
        {",\"a\\n\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}", "entry 0"},
        {",\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}", "tensor a"},
        {",\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}", "tensor a"},
        {",\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,4]}", "tensor a"},
        {",\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}", "tensor a"},
        {",\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4294967296],"
         "\"data_offsets\":[0,0]}",
         "tensor a"},
        {",\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}", "do not match"},
        {"x", "do not match"},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        char bytes[1024], text[512];
        const char *const start = "{\"__metadata__\":{\"lanyard\":\"2\",\"xxh3\":\"";
        const size_t begin = 8 + strlen(start), header = 512, values = i ? 8 : 0;
        rt_tensors *file = NULL;
        rt_error error;
        snprintf(text, sizeof text, "%s%016d\"}%s}", start, 0, cases[i].entries);
        memset(bytes, ' ', sizeof bytes);
        memcpy(bytes + 8, text, strlen(text));
        memset(bytes + header, 0, values);
        const uint64_t length = header - 8;
        memcpy(bytes, &length, sizeof length);
        char digits[17];
        snprintf(digits, sizeof digits, "%016" PRIx64,
                 rt_hash_bytes(bytes + begin + 16, header + values - begin - 16));
        memcpy(bytes + begin, digits, 16);
        rt_status status = rt_tensors_decode("made", bytes, header + values, &file, &error);
        if (status == RT_OK)
            rt_tensors_close(file);
        if ((status == RT_OK) != !cases[i].error || (status && !strstr(error.text, cases[i].error)))
            fail_msg("case %zu: %s", i, status ? error.text : "taken");
    }
}

TEST_MAIN(TEST(test_what_is_written_is_read), TEST(test_damage_is_found), TEST(test_others_read_it),
          TEST(test_the_layout_before_is_read), TEST(test_impossible_headers_are_refused),
          TEST(test_two_of_a_name_are_rejected))
