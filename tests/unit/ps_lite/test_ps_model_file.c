#include "ps_lite/ps_model_file.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/files/rt_file.h"
#include "runtime/rt_hash.h"
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

static void write_rows_of(const char *path, const ps_model_info *info, rt_file_sum *sum_p)
{
    ps_model_writer *writer = NULL;
    float row[5];
    rt_file_sum sum;
    rt_file_place place = {.path = path};
    const rt_sink sink = rt_file_sink(&place);
    assert_int_equal(ps_model_writer_open(&sink, info, &writer, NULL), RT_OK);
    for (uint64_t i = 0; i < info->row_count; i++) {
        row_of(i, row);
        assert_int_equal(ps_model_writer_add(writer, i * 977, (uint32_t)i + 5, row, NULL), RT_OK);
    }
    assert_int_equal(ps_model_writer_commit(writer, &sum, NULL), RT_OK);
    if (!info->packed)
        assert_int_equal(sum.bytes, ps_model_file_bytes(info));
    if (sum_p)
        *sum_p = sum;
}

static void write_rows_as(const char *path, uint64_t rows, bool packed, rt_file_sum *sum_p)
{
    ps_model_info info = info_of(rows);
    info.packed = packed;
    write_rows_of(path, &info, sum_p);
}

static void write_rows_above(const char *path, uint64_t rows, uint32_t floor)
{
    ps_model_info info = info_of(rows);
    info.floor = floor;
    write_rows_of(path, &info, NULL);
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

static void must_say(const char *path, uint64_t rows, const char *words)
{
    char text[400];
    rt_error error = {RT_OK, ""};
    assert_int_equal(read_rows(path, rows, &error), RT_DATA);
    snprintf(text, sizeof text, "%s%s", path, words);
    assert_string_equal(error.text, text);
}

// Of a file without a floor, one of whose bytes is another one.
static const char *words_of_place(size_t at)
{
    if (at < 8)
        return " is not a file of rows";
    if (at >= 72)
        return ": block 0 (rows from 0 on) is damaged";
    return ": the header is damaged";
}

// Every byte changed, every length cut: an error that names the file and what is wrong.
static void find_damage(bool packed)
{
    static uint8_t bytes[4096];
    enum { ROWS = 21 };
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
        must_say(path, ROWS, words_of_place(i));
        bytes[i] ^= 0x41;
        overwrite(path, bytes, i);
        must_say(path, ROWS, i < 72 ? " is not a file of rows" : " ends early, after 0 of 21 rows");
    }
    overwrite(path, bytes, size + 1);
    must_say(path, ROWS, " goes on after its 21 rows");
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

// The same behind the first block, and in the longer header.
static void test_damage_in_what_follows(void **context)
{
    (void)context;
    enum { ROWS = PS_MODEL_BLOCK_ROWS + 3, BEGIN = 80, SECOND = BEGIN + 24 + 4096 * 32 };
    static const struct {
        size_t cut, flip; // one of them
        const char *words;
    } cases[] = {{71, 0, " is not a file of rows"},
                 {72, 0, ": the header is damaged"},
                 {79, 0, ": the header is damaged"},
                 {80, 0, " ends early, after 0 of 4099 rows"},
                 {SECOND - 1, 0, " ends early, after 0 of 4099 rows"},
                 {SECOND, 0, " ends early, after 4096 of 4099 rows"},
                 {SECOND + 23, 0, " ends early, after 4096 of 4099 rows"},
                 {SECOND + 24, 0, " ends early, after 4096 of 4099 rows"},
                 {0, 64, ": the header is damaged"},
                 {0, 71, ": the header is damaged"},
                 {0, 72, ": the header is damaged"},
                 {0, 79, ": the header is damaged"},
                 {0, SECOND - 1, ": block 0 (rows from 0 on) is damaged"},
                 {0, SECOND, ": block 1 (rows from 4096 on) is damaged"},
                 {0, SECOND + 12, ": block 1 (rows from 4096 on) is damaged"},
                 {0, SECOND + 24 + 95, ": block 1 (rows from 4096 on) is damaged"}};
    const char *path = file_in(test_directory());
    write_rows_above(path, ROWS, 70);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    static uint8_t bytes[SECOND + 200];
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_int_equal(size, SECOND + 24 + 3 * 32);
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        bytes[cases[i].flip] ^= cases[i].flip ? 1 : 0;
        overwrite(path, bytes, cases[i].cut ? cases[i].cut : size);
        must_say(path, ROWS, cases[i].words);
        bytes[cases[i].flip] ^= cases[i].flip ? 1 : 0;
    }
    overwrite(path, bytes, size);
    assert_int_equal(read_rows(path, ROWS, NULL), RT_END);
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
    assert_int_equal(ps_model_file_path("/0123456789a", 1, 4, path, sizeof path, &error),
                     RT_CONFIG);
    assert_string_equal(error.text, "the path /0123456789a is too long");
    assert_int_equal(ps_model_file_path("/0123456789", 1, 4, path, sizeof path, &error), RT_OK);
    assert_string_equal(path, "/0123456789/rows-001-of-004.bin");
}

// A row of 64 floats, of which nothing can be packed, or everything.
static void write_mixed(const char *path, uint64_t rows, uint64_t random_from, uint64_t random_to)
{
    const ps_model_info info = {.row_count = rows, .shard_count = 1, .dim = 64, .packed = true};
    ps_model_writer *writer = NULL;
    rt_random random = {7};
    rt_file_place place = {.path = path};
    const rt_sink sink = rt_file_sink(&place);
    assert_int_equal(ps_model_writer_open(&sink, &info, &writer, NULL), RT_OK);
    for (uint64_t i = 0; i < rows; i++) {
        uint64_t bits[32] = {0};
        float row[64];
        for (uint32_t k = 0; k < 32 && i >= random_from && i < random_to; k++)
            bits[k] = rt_random_u64(&random);
        memcpy(row, bits, sizeof row);
        assert_int_equal(ps_model_writer_add(writer, i, 1, row, NULL), RT_OK);
    }
    assert_int_equal(ps_model_writer_commit(writer, NULL, NULL), RT_OK);
}

// Which blocks of a file are packed, a bit for each.
static uint64_t packed_blocks(const char *path)
{
    uint64_t packed = 0;
    uint32_t numbers[6]; // of a block's header: its checksum, rows, number, bytes, flags
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 72, SEEK_SET), 0);
    for (uint32_t i = 0; fread(numbers, sizeof numbers, 1, file) == 1; i++) {
        assert_int_equal(numbers[3], i);
        assert_true(numbers[5] <= 1);
        packed |= (uint64_t)numbers[5] << i;
        assert_int_equal(fseek(file, numbers[4], SEEK_CUR), 0);
    }
    fclose(file);
    return packed;
}

// Where a block gets less than an eighth smaller, it and 15 more are stored as they are.
static void test_which_blocks_are_packed(void **context)
{
    (void)context;
    const uint64_t rows = PS_MODEL_BLOCK_ROWS;
    const char *path = file_in(test_directory());
    static const struct {
        double share; // of the rows that cannot be packed; of a row 12 bytes of 268 always can
        uint64_t packed;
    } cases[] = {{0.895, 1}, {0.925, 0}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        write_mixed(path, rows, 0, (uint64_t)(cases[i].share * (double)rows));
        assert_int_equal(packed_blocks(path), cases[i].packed);
    }
    write_mixed(path, 18 * rows + 1, rows, 2 * rows);
    assert_int_equal(packed_blocks(path), 1 | 1 << 17 | 1 << 18);
}

// ---- what headers say ------------------------------------------------------------------------

enum { HEADER = 64, FLOOR = 8 };

// Bytes of a file of this many rows that says what info says; its size.
static size_t file_of(const ps_model_info *info, uint8_t *bytes, size_t most)
{
    const char *path = file_in(test_path("."));
    ps_model_writer *writer = NULL;
    float row[5];
    rt_file_place place = {.path = path};
    const rt_sink sink = rt_file_sink(&place);
    assert_int_equal(ps_model_writer_open(&sink, info, &writer, NULL), RT_OK);
    for (uint64_t i = 0; i < info->row_count; i++) {
        row_of(i, row);
        assert_int_equal(ps_model_writer_add(writer, i, 5, row, NULL), RT_OK);
    }
    assert_int_equal(ps_model_writer_commit(writer, NULL, NULL), RT_OK);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t size = fread(bytes, 1, most, file);
    fclose(file);
    return size;
}

// Both kinds of headers keep every number; the longer one is there where it has something to say.
static void test_headers_keep_every_number(void **state)
{
    (void)state;
    uint8_t bytes[4096];
    for (uint32_t i = 0; i < 4; i++) {
        ps_model_info want = info_of(3), got;
        ps_model_reader *reader;
        want.iteration = 900;
        want.base = i ? 800 : 0;
        want.floor = i & 1 ? 70 : 0;
        want.left_count = i & 2 ? 2 : 0;
        const size_t size = file_of(&want, bytes, sizeof bytes);
        uint32_t version, header_bytes;
        memcpy(&version, bytes + 8, sizeof version);
        memcpy(&header_bytes, bytes + 12, sizeof header_bytes);
        assert_int_equal(version, i ? 3 : 2);
        assert_int_equal(header_bytes, HEADER + 8 + (i ? FLOOR : 0));
        assert_int_equal(size, header_bytes + 24 + 3 * (8 + 4 + 20));
        assert_int_equal(ps_model_file_bytes(&want), size);
        assert_int_equal(
            ps_model_reader_open(file_in(test_path(".")), NULL, NULL, &got, &reader, NULL), RT_OK);
        assert_true(got.iteration == 900 && got.base == want.base && got.floor == want.floor);
        assert_true(got.left_count == want.left_count && got.row_count == 3 && got.dim == 3);
        ps_model_reader_close(reader);
    }
}

// Sets a number of a header, whose checksum stays right; what a reader says of that.
static rt_status with_number(uint8_t *bytes, size_t size, size_t at, uint32_t number,
                             rt_error *error)
{
    uint8_t changed[4096];
    uint32_t header_bytes;
    ps_model_info info;
    ps_model_reader *reader;
    memcpy(changed, bytes, size);
    memcpy(changed + at, &number, sizeof number);
    memcpy(&header_bytes, bytes + 12, sizeof header_bytes);
    const uint64_t checksum = rt_hash_bytes(changed, header_bytes - sizeof checksum);
    memcpy(changed + header_bytes - sizeof checksum, &checksum, sizeof checksum);
    const char *path = file_in(test_path("."));
    overwrite(path, changed, size);
    const rt_status status = ps_model_reader_open(path, NULL, NULL, &info, &reader, error);
    if (!status)
        ps_model_reader_close(reader);
    return status;
}

// What is said of the file below where one of the numbers from SHARD on is another one.
static void must_be_impossible(const rt_error *error, size_t at, uint32_t number, size_t shard)
{
    uint32_t n[] = {1, 4, 3, 2, 3, PS_MODEL_BLOCK_ROWS};
    char text[400];
    if (at - shard < sizeof n)
        n[(at - shard) / sizeof *n] = number;
    snprintf(text, sizeof text,
             "%s: dimension %u, state %u, shard %u of %u, blocks of %u are impossible",
             file_in(test_path(".")), n[2], n[3], n[0], n[1], n[5]);
    assert_string_equal(error->text, text);
}

// Places in the header (docs/MODEL_FORMAT.md), and numbers there that are just good, or just not.
static void test_impossible_headers_are_refused(void **state)
{
    (void)state;
    enum {
        MAGIC = 0,
        VERSION = 8,
        SIZE = 12,
        SHARD = 32,
        SHARDS = 36,
        DIM = 40,
        STATE = 44,
        BLOCK = 52
    };
    enum { BASE = 60, LEFT = 68 };
    uint8_t bytes[4096];
    rt_error error;
    ps_model_info info = info_of(3);
    info.base = 800;
    info.floor = 70;
    const size_t size = file_of(&info, bytes, sizeof bytes);
    const struct {
        size_t at;
        uint32_t number;
        bool good;
    } cases[] = {{DIM, 1, true},
                 {DIM, 65536, true},
                 {DIM, 0, false},
                 {DIM, 65537, false},
                 {STATE, 0, true},
                 {STATE, 65536, true},
                 {STATE, 65537, false},
                 {SHARD, 3, true},
                 {SHARD, 4, false},
                 {SHARDS, 2, true},
                 {SHARDS, 1, false},
                 {BLOCK, PS_MODEL_BLOCK_ROWS, true},
                 {BLOCK, PS_MODEL_BLOCK_ROWS + 1, false},
                 {BLOCK, PS_MODEL_BLOCK_ROWS - 1, false},
                 {LEFT, 3, true},
                 {LEFT, 4, false},
                 {BASE, 0, true},
                 {MAGIC, 1, false},
                 {MAGIC + 4, 1, false},
                 {VERSION, 3, true},
                 {VERSION, 4, false},
                 {VERSION, 1, false},
                 {SIZE, 81, false},
                 {SIZE, 79, false}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        error = (rt_error){0};
        // The checksum is over as many bytes as the header says.
        if (cases[i].at == SIZE) {
            memcpy(bytes + SIZE, &cases[i].number, sizeof(uint32_t));
            overwrite(file_in(test_path(".")), bytes, size);
            assert_int_equal(read_rows(file_in(test_path(".")), 3, &error), RT_DATA);
            const uint32_t right = 80;
            memcpy(bytes + SIZE, &right, sizeof right);
            continue;
        }
        const bool is_later = cases[i].at == VERSION && cases[i].number > 3; // sound, and no damage
        const rt_status bad = is_later ? RT_UNSUPPORTED : RT_DATA;
        if (with_number(bytes, size, cases[i].at, cases[i].number, &error) !=
            (cases[i].good ? RT_OK : bad))
            fail_msg("%u at %zu: %s", cases[i].number, cases[i].at, error.text);
        if (!cases[i].good && cases[i].at >= SHARD)
            must_be_impossible(&error, cases[i].at, cases[i].number, SHARD);
    }
    info.left_count = 1; // of changes alone
    assert_int_equal(file_of(&info, bytes, sizeof bytes), size);
    assert_int_equal(with_number(bytes, size, BASE, 0, &error), RT_DATA);
    must_be_impossible(&error, BASE, 0, SHARD);
}

// ---- what blocks say -------------------------------------------------------------------------

// A block whose checksum is right, and which says something else than its place does.
static void test_blocks_that_are_not_in_their_place(void **state)
{
    (void)state;
    enum { BEGIN = HEADER + 8, ROWS = 8, INDEX = 12, STORED = 16, FLAGS = 20 };
    uint8_t bytes[4096], changed[4096];
    rt_error error;
    const ps_model_info info = info_of(3);
    const size_t size = file_of(&info, bytes, sizeof bytes), block = size - BEGIN;
    static const struct {
        size_t at;
        int by;
    } cases[] = {{ROWS, 1},    {ROWS, -1},   {INDEX, 1}, {STORED, 1},
                 {STORED, -1}, {STORED, -8}, {FLAGS, 2}, {FLAGS, 1}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        uint32_t number;
        memcpy(changed, bytes, size);
        memcpy(&number, changed + BEGIN + cases[i].at, sizeof number);
        number += (uint32_t)cases[i].by;
        memcpy(changed + BEGIN + cases[i].at, &number, sizeof number);
        const size_t stored =
            cases[i].at == STORED && cases[i].by < 0 ? block + cases[i].by : block;
        const uint64_t checksum = rt_hash_bytes(changed + BEGIN + 8, stored - 8);
        memcpy(changed + BEGIN, &checksum, sizeof checksum);
        overwrite(file_in(test_path(".")), changed, size);
        assert_int_equal(read_rows(file_in(test_path(".")), 3, &error), RT_DATA);
        if (!strstr(error.text, "block 0 (rows from 0 on) is damaged"))
            fail_msg("case %zu: %s", i, error.text);
    }
}

// Keys of rows that are in memory already: those of the block that were not given out.
static void test_keys_ahead(void **state)
{
    (void)state;
    const uint64_t rows = PS_MODEL_BLOCK_ROWS + 10;
    const char *path = file_in(test_directory());
    ps_model_info info;
    ps_model_reader *reader;
    uint64_t key;
    uint32_t version;
    const float *row;
    const uint64_t *keys;
    write_rows(path, rows);
    assert_int_equal(ps_model_reader_open(path, NULL, NULL, &info, &reader, NULL), RT_OK);
    assert_int_equal(ps_model_reader_ahead(reader, &keys), 0);
    for (uint64_t i = 0; i < rows; i++) {
        assert_int_equal(ps_model_reader_next(reader, &key, &version, &row, NULL), RT_OK);
        const uint64_t end = i < PS_MODEL_BLOCK_ROWS ? PS_MODEL_BLOCK_ROWS : rows;
        const uint32_t ahead = ps_model_reader_ahead(reader, &keys);
        assert_int_equal(ahead, end - i - 1);
        for (uint32_t k = 0; k < ahead && k < 3; k++)
            assert_int_equal(keys[k], (i + 1 + k) * 977);
    }
    ps_model_reader_close(reader);
}

typedef struct {
    uint32_t calls, end_at;
} calls;

static rt_status note_call(void *context, int wait_fd, rt_error *error)
{
    calls *seen = context;
    (void)wait_fd;
    return ++seen->calls == seen->end_at ? rt_fail(error, RT_STOPPED, "enough") : RT_OK;
}

// Reading can be ended anywhere, by whoever is called meanwhile.
static void test_reading_can_be_ended(void **state)
{
    (void)state;
    const uint64_t rows = PS_MODEL_BLOCK_ROWS + 10;
    const char *path = file_in(test_directory());
    write_rows(path, rows);
    for (uint32_t end_at = 0; end_at < 8; end_at++) {
        calls seen = {.end_at = end_at};
        ps_model_info info;
        ps_model_reader *reader;
        uint64_t key;
        uint32_t version;
        const float *row;
        rt_error error = {0};
        rt_status status = ps_model_reader_open(path, note_call, &seen, &info, &reader, &error);
        const bool is_open = status == RT_OK;
        while (!status)
            status = ps_model_reader_next(reader, &key, &version, &row, &error);
        if (is_open)
            ps_model_reader_close(reader);
        const bool is_ended = end_at && seen.calls >= end_at;
        assert_int_equal(status, is_ended ? RT_STOPPED : RT_END);
        assert_true(end_at == 0 || seen.calls <= end_at); // it is not asked again
        assert_true(end_at != 0 || seen.calls >= 5);      // header, two blocks of two parts
    }
}

TEST_MAIN(TEST(test_headers_keep_every_number), TEST(test_impossible_headers_are_refused),
          TEST(test_blocks_that_are_not_in_their_place), TEST(test_keys_ahead),
          TEST(test_reading_can_be_ended), TEST(test_what_is_written_is_read),
          TEST(test_a_path_that_does_not_fit), TEST(test_damage_is_found),
          TEST(test_damage_is_found_in_packed_files), TEST(test_damage_in_what_follows),
          TEST(test_which_blocks_are_packed), TEST(test_packed_files),
          TEST(test_the_old_file_stays_until_the_new_one_is_complete))
