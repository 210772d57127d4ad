// Going on with more input: longer lists, other lists, files that grew, were renamed or replaced.
// Every row has a number of its own, and every number is counted.
#include "runtime/config/rt_formats.h"
#include "tests/unit/runtime/test_stream_support.h"

#include <sys/stat.h>

#include "runtime/stream/rt_position.h"

#define ROWS_MAX 100000u

static rt_column pair[] = {{.name = "y", .kind = RT_COLUMN_LABEL, .label_value = "1"},
                           {.name = "u", .kind = RT_COLUMN_CATEGORICAL, .id = RT_ID_NUMBER}};

static uint8_t seen[ROWS_MAX];

static rt_stream_config config_of(char **files, uint32_t file_count)
{
    return (rt_stream_config){.format = RT_FORMAT_TABLE,
                              .file_count = file_count,
                              .files = files,
                              .table = {',', false, 2, pair}};
}

// Rows [first, first + count), at the end of the file.
static char *add_rows(const char *name, uint32_t first, uint32_t count)
{
    char *path = path_of(name);
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    for (uint32_t i = 0; i < count; i++)
        fprintf(file, "%u,%u\n", i & 1, first + i);
    assert_int_equal(fclose(file), 0);
    return path;
}

// Reads at most so many samples of the list from the position on, which moves (empty: from the
// start), and notes them. The status that ended it.
static rt_status read_on(char **files, uint32_t file_count, rt_bytes *position, uint64_t most,
                         rt_error *error)
{
    rt_stream_config config = config_of(files, file_count);
    rt_stream *stream;
    rt_batch batch;
    *error = (rt_error){0};
    rt_status status = rt_stream_open(&config, 0, &stream, error);
    assert_int_equal(status, RT_OK);
    rt_batch_init(&batch, 0);
    if (position->size > 0)
        status = rt_stream_seek(stream, position, error);
    while (!status && most > 0) {
        status = rt_stream_read(stream, &batch, (uint32_t)(most < 64 ? most : 64), error);
        most -= batch.sample_count;
        for (uint32_t i = 0; i < batch.sample_count; i++)
            seen[batch.keys[i] & RT_ID_MASK]++;
    }
    if (status == RT_OK || status == RT_END)
        rt_stream_tell(stream, position);
    rt_batch_fini(&batch);
    rt_stream_close(stream);
    return status;
}

static void must_read(char **files, uint32_t file_count, rt_bytes *position, uint64_t most)
{
    rt_error error;
    rt_status status = read_on(files, file_count, position, most, &error);
    if (status && status != RT_END)
        fail_msg("%s", error.text);
}

static void must_refuse(char **files, uint32_t file_count, rt_bytes *position, const char *words)
{
    rt_error error;
    assert_int_equal(read_on(files, file_count, position, ROWS_MAX, &error), RT_DATA);
    if (!strstr(error.text, words))
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static void expect_rows(uint32_t first, uint32_t count, uint32_t times)
{
    for (uint32_t i = first; i < first + count; i++) {
        if (seen[i] != times)
            fail_msg("row %u was read %u times, not %u", i, seen[i], times);
    }
}

static void longer_and_other_lists(void **state)
{
    (void)state;
    rt_bytes at = {0};
    char *d0 = add_rows("d0", 0, 2000), *d1 = add_rows("d1", 2000, 1000);
    char *d2 = add_rows("d2", 3000, 5000);
    must_read((char *[]){d0}, 1, &at, ROWS_MAX);
    expect_rows(0, 2000, 1);
    must_read((char *[]){d0, d1}, 2, &at, ROWS_MAX); // smaller than the first
    expect_rows(0, 3000, 1);
    must_read((char *[]){d0, d1}, 2, &at, ROWS_MAX); // nothing is new
    must_read((char *[]){d2}, 1, &at, 700);          // only the new one, and not to its end
    must_read((char *[]){d2, d0, d1}, 3, &at, ROWS_MAX);
    expect_rows(0, 8000, 1);
    must_read((char *[]){d2, d2}, 2, &at, ROWS_MAX); // what stands there again is read again
    expect_rows(0, 3000, 1);
    expect_rows(3000, 5000, 2);
    rt_bytes_fini(&at);
    free(d0), free(d1), free(d2);
}

// Stopped anywhere, with a list that grows each time.
static void stopped_anywhere(void **state)
{
    (void)state;
    rt_bytes at = {0};
    rt_random random = {7};
    char *files[12], name[16];
    for (uint32_t i = 0; i < RT_COUNT_OF(files); i++) {
        sprintf(name, "part-%u", i);
        files[i] = add_rows(name, i * 500, 500);
        must_read(files, i + 1, &at, rt_random_below(&random, 900));
    }
    must_read(files, RT_COUNT_OF(files), &at, ROWS_MAX);
    expect_rows(0, 500 * RT_COUNT_OF(files), 1);
    for (uint32_t i = 0; i < RT_COUNT_OF(files); i++)
        free(files[i]);
    rt_bytes_fini(&at);
}

static void files_that_grow(void **state)
{
    (void)state;
    rt_bytes at = {0};
    char *a = add_rows("a", 0, 1000), *b = add_rows("b", 10000, 100);
    char *both[] = {a, b};
    must_read(both, 2, &at, ROWS_MAX);
    free(add_rows("a", 1000, 500));
    free(add_rows("b", 10100, 1));
    must_read(both, 2, &at, ROWS_MAX);
    free(add_rows("b", 10101, 20000));
    must_read(both, 2, &at, 10);
    free(add_rows("a", 1500, 10)); // while the other one is in progress
    must_read(both, 2, &at, ROWS_MAX);
    expect_rows(0, 1510, 1);
    expect_rows(10000, 20101, 1);
    rt_bytes_fini(&at);
    free(a), free(b);
}

// A line that was half there when it was read is one line all the same.
static void a_file_that_grows_within_a_line(void **state)
{
    (void)state;
    rt_bytes at = {0};
    char *file = put_text("log", "1,1\n0,2\n1,3");
    must_read(&file, 1, &at, ROWS_MAX);
    FILE *more = fopen(file, "a");
    assert_non_null(more);
    fputs("7\n0,4\n", more); // it was 37
    fclose(more);
    must_read(&file, 1, &at, ROWS_MAX);
    expect_rows(1, 4, 1);
    assert_int_equal(seen[37] + seen[7], 0);
    more = fopen(file, "a");
    assert_non_null(more);
    fputs("0,5\n", more);
    fclose(more);
    must_read(&file, 1, &at, ROWS_MAX);
    expect_rows(1, 5, 1);
    rt_bytes_fini(&at);
    free(file);
}

static void packed_files_that_grow(void **state)
{
    (void)state;
    rt_bytes at = {0};
    char text[200000], *end = text;
    for (uint32_t i = 0; i < 9000; i++)
        end += sprintf(end, "1,%u\n", i);
    char *file = put_packed("p.zst", text, (size_t)(end - text), 20000);
    must_read(&file, 1, &at, ROWS_MAX);
    size_t size;
    end = text;
    for (uint32_t i = 9000; i < 9500; i++)
        end += sprintf(end, "1,%u\n", i);
    uint8_t *more = pack(text, (size_t)(end - text), 1 << 20, &size);
    FILE *appended = fopen(file, "a");
    assert_non_null(appended);
    assert_int_equal(fwrite(more, 1, size, appended), size);
    fclose(appended);
    must_read(&file, 1, &at, ROWS_MAX);
    expect_rows(0, 9500, 1);
    rt_bytes_fini(&at);
    free(more);
    free(file);
}

// A log that is rotated goes on under its new name, the new one is read from its start.
static void a_file_that_is_renamed(void **state)
{
    (void)state;
    rt_bytes at = {0};
    char *log = add_rows("log", 0, 2000), *old = path_of("log.1");
    must_read(&log, 1, &at, 800);
    free(add_rows("log", 2000, 50));
    assert_int_equal(rename(log, old), 0);
    free(add_rows("log", 5000, 300));
    must_read((char *[]){old, log}, 2, &at, 1000);
    must_read((char *[]){log, old}, 2, &at, ROWS_MAX);
    expect_rows(0, 2050, 1);
    expect_rows(5000, 300, 1);
    rt_bytes_fini(&at);
    free(log), free(old);
}

// In another folder it is another file, but with the same name and so many same bytes it is a copy.
static void a_copy_in_another_folder(void **state)
{
    (void)state;
    rt_bytes at = {0};
    char *a = add_rows("a", 0, 3000), *folder = path_of("copies"), *b = path_of("b");
    char copy[600], command[1500];
    snprintf(copy, sizeof copy, "%s/a", folder);
    snprintf(command, sizeof command, "mkdir '%s' && cp '%s' '%s' && cp '%s' '%s'", folder, a, copy,
             a, b);
    assert_int_equal(system(command), 0);
    must_read(&a, 1, &at, 1000);
    char *there = copy;
    must_read(&there, 1, &at, ROWS_MAX);
    expect_rows(0, 3000, 1);
    must_read(&b, 1, &at, ROWS_MAX); // a name of its own: a file of its own
    expect_rows(0, 3000, 2);
    rt_bytes_fini(&at);
    free(a), free(b), free(folder);
}

static void files_that_were_replaced_or_cut(void **state)
{
    (void)state;
    rt_bytes at = {0};
    rt_error error;
    char *a = add_rows("a", 0, 1000);
    assert_int_equal(read_on(&a, 1, &at, 500, &error), RT_OK);
    assert_int_equal(unlink(a), 0);
    free(add_rows("a", 4000, 1000));
    must_refuse(&a, 1, &at, "/a is not the file that was read up to byte");
    free(add_rows("b", 6000, 10));
    assert_int_equal(unlink(a), 0);
    free(add_rows("a", 0, 100));
    must_refuse(&a, 1, &at, "/a");
    // One that was read to its end may be replaced: its path holds a new file.
    at.size = 0;
    memset(seen, 0, sizeof seen);
    must_read(&a, 1, &at, ROWS_MAX);
    assert_int_equal(unlink(a), 0);
    free(add_rows("a", 7000, 30));
    must_read(&a, 1, &at, ROWS_MAX);
    expect_rows(0, 100, 1);
    expect_rows(7000, 30, 1);
    assert_int_equal(truncate(a, 100), 0);
    must_refuse(&a, 1, &at, "it was cut off or replaced");
    rt_bytes_fini(&at);
    free(a);
}

// Rows of equal length, the first 64 KiB and more of them the same: from row `from` on others.
static char *put_rows(const char *name, uint32_t count, uint32_t from, uint32_t more)
{
    static char text[32 * ROWS_MAX];
    size_t size = 0;
    for (uint32_t i = 0; i < count; i++)
        size += (size_t)sprintf(text + size, "1,%05u\n", i >= from ? i + more : i);
    return strstr(name, ".zst") ? put_packed(name, text, size, 50000) : put_bytes(name, text, size);
}

// Its first bytes are those of the file that was read, and what was read behind them is not.
static void files_that_were_written_anew(void **state)
{
    (void)state;
    static const char *const names[] = {"plain", "wide"};
    rt_error error;
    for (size_t n = 0; n < RT_COUNT_OF(names); n++) {
        rt_bytes at = {0};
        memset(seen, 0, sizeof seen);
        char *file = put_rows(names[n], 20000, 20000, 0);
        assert_int_equal(read_on(&file, 1, &at, 15000, &error), RT_OK);
        free(put_rows(names[n], 20000, 14990, 30000));
        must_refuse(&file, 1, &at, "what stands before that byte differs");
        free(put_rows(names[n], 22000, 15001, 0)); // the same up to there: more came
        must_read(&file, 1, &at, ROWS_MAX);
        expect_rows(0, 22000, 1);
        free(put_rows(names[n], 22000, 21000, 30000)); // as long, with another end
        must_read(&file, 1, &at, ROWS_MAX);
        expect_rows(0, 21000, 2);
        expect_rows(51000, 1000, 1);
        must_read(&file, 1, &at, ROWS_MAX); // nothing is new
        expect_rows(51000, 1000, 1);
        free(put_rows(names[n], 23000, 21000, 50000)); // longer, with other rows before
        must_read(&file, 1, &at, ROWS_MAX);
        expect_rows(0, 21000, 3);
        expect_rows(51000, 1000, 1);
        expect_rows(71000, 2000, 1);
        free(put_rows(names[n], 24000, 21000, 50000)); // it has grown
        must_read(&file, 1, &at, ROWS_MAX);
        expect_rows(0, 21000, 3);
        expect_rows(71000, 3000, 1);
        rt_bytes_fini(&at);
        free(file);
    }
}

static void pipe_of(const char *text, int *writer)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    close(ends[0]);
    assert_int_equal(write(ends[1], text, strlen(text)), strlen(text));
    *writer = ends[1];
}

// Standard input goes on with what it gives, also after an end; files before it are not read again.
static void standard_input_goes_on(void **state)
{
    (void)state;
    rt_bytes at = {0};
    int writer;
    char dash[] = "-", *a = add_rows("a", 0, 100), *list[] = {a, dash};
    pipe_of("1,200\n1,201\n", &writer);
    close(writer);
    must_read(list, 2, &at, ROWS_MAX);
    pipe_of("1,202\n1,203\n", &writer);
    must_read(list, 2, &at, 1); // the second of the two is lost
    close(writer);
    pipe_of("1,204\n", &writer);
    close(writer);
    must_read(list, 2, &at, ROWS_MAX);
    expect_rows(0, 100, 1);
    expect_rows(200, 3, 1);
    expect_rows(203, 1, 0);
    expect_rows(204, 1, 1);
    rt_bytes_fini(&at);
    free(a);
}

// What a pipe gave and no checkpoint has is counted over restarts.
static void what_a_restart_loses_is_counted(void **state)
{
    (void)state;
    rt_bytes at = {0};
    rt_error error = {0};
    rt_batch batch;
    char dash[] = "-", *paths[] = {dash}, *ledger_path = path_of("ledger");
    const int ledger = open(ledger_path, O_RDWR | O_CREAT, 0600);
    rt_stream_config config = config_of(paths, 1);
    rt_batch_init(&batch, 0);
    for (uint32_t round = 0; round < 3; round++) {
        rt_stream *stream;
        int writer;
        pipe_of("1,1\n1,2\n1,3\n", &writer); // 12 bytes, 4 of which reach a checkpoint
        assert_int_equal(rt_stream_open(&config, 0, &stream, &error), RT_OK);
        rt_stream_watch(stream, -1, ledger);
        if (round > 0)
            assert_int_equal(rt_stream_seek(stream, &at, &error), RT_OK);
        assert_int_equal(rt_stream_statistics(stream).bytes_lost, 8 * round);
        assert_int_equal(rt_stream_read(stream, &batch, 1, &error), RT_OK);
        rt_stream_tell(stream, &at);
        assert_int_equal(rt_stream_read(stream, &batch, 1, &error), RT_OK);
        close(writer);
        rt_stream_close(stream); // killed
    }
    rt_batch_fini(&batch);
    rt_bytes_fini(&at);
    close(ledger);
    free(ledger_path);
}

// A FIFO has no end while it is held open: writers come and go.
static void a_fifo_is_held_open(void **state)
{
    (void)state;
    char *path = path_of("fifo"), *a = add_rows("a", 0, 10);
    rt_stream_config config = config_of(&path, 1);
    rt_stream *stream;
    rt_batch batch;
    rt_error error = {0};
    int stop[2];
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(pipe(stop), 0);
    assert_int_equal(rt_stream_open(&config, 0, &stream, &error), RT_OK);
    rt_stream_watch(stream, stop[0], -1);
    rt_batch_init(&batch, 0);
    for (uint32_t i = 0; i < 3; i++) {
        const int writer = open(path, O_WRONLY);
        assert_true(writer >= 0);
        assert_int_equal(write(writer, "1,1\n", 4), 4);
        close(writer);
        assert_int_equal(rt_stream_read(stream, &batch, 1, &error), RT_OK);
        assert_int_equal(batch.sample_count, 1);
    }
    assert_int_equal(write(stop[1], "", 1), 1);
    assert_int_equal(rt_stream_read(stream, &batch, 1, &error), RT_END);
    rt_stream_close(stream);
    // With fifo_ends the last writer ends it.
    config.fifo_ends = true;
    assert_int_equal(rt_stream_open(&config, 0, &stream, &error), RT_OK);
    const int writer = open(path, O_WRONLY);
    assert_int_equal(write(writer, "1,1\n", 4), 4);
    close(writer);
    assert_int_equal(rt_stream_read(stream, &batch, 9, &error), RT_OK);
    assert_int_equal(rt_stream_read(stream, &batch, 9, &error), RT_END);
    rt_stream_close(stream);
    // What stands behind one would never be read.
    config = config_of((char *[]){path, a}, 2);
    assert_int_equal(rt_stream_open(&config, 0, &stream, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "stream.files[0]"));
    rt_batch_fini(&batch);
    free(path), free(a);
}

// A run that had come to its end left the offset of its last file, and the number of its files.
static void positions_of_the_first_format(void **state)
{
    (void)state;
    rt_bytes at = {0};
    char *d0 = add_rows("d0", 0, 2000), *d1 = add_rows("d1", 2000, 1000);
    struct stat info;
    assert_int_equal(stat(d0, &info), 0);
    const rt_position_old ended = {
        .samples = 2000, .lines = 2000, .file = 1, .line = 2000, .offset = (uint64_t)info.st_size};
    rt_bytes_put(&at, &ended, sizeof ended);
    must_read((char *[]){d0, d1}, 2, &at, ROWS_MAX);
    expect_rows(0, 2000, 0);
    expect_rows(2000, 1000, 1);
    at.size = 0;
    memset(seen, 0, sizeof seen);
    const rt_position_old inside = {
        .samples = 10, .lines = 10, .file = 0, .line = 10, .offset = 40};
    rt_bytes_put(&at, &inside, sizeof inside);
    must_read((char *[]){d0, d1}, 2, &at, ROWS_MAX);
    expect_rows(0, 10, 0);
    expect_rows(10, 2990, 1);
    rt_bytes_fini(&at);
    free(d0), free(d1);
}

// Any byte of a position may be anything.
static void damaged_positions(void **state)
{
    (void)state;
    rt_bytes at = {0}, damaged = {0};
    char *files[] = {add_rows("a", 0, 500), add_rows("b", 500, 500)};
    must_read(files, 2, &at, 700);
    for (size_t i = 0; i < at.size; i++) {
        rt_stream_config config = config_of(files, 2);
        rt_stream *stream;
        rt_batch batch;
        rt_error error = {0};
        damaged.size = 0;
        rt_bytes_put(&damaged, at.data, at.size);
        damaged.data[i] ^= (uint8_t)(1u << i % 8 | 0x80);
        assert_int_equal(rt_stream_open(&config, 0, &stream, &error), RT_OK);
        rt_batch_init(&batch, 0);
        rt_status status = rt_stream_seek(stream, &damaged, &error);
        while (!status)
            status = rt_stream_read(stream, &batch, 512, &error);
        assert_true(status == RT_END || error.text[0]);
        rt_batch_fini(&batch);
        rt_stream_close(stream);
    }
    for (size_t size = 0; size < at.size; size++) {
        rt_reader reader = {at.data, size, false};
        const bool taken = rt_position_take(&reader, &damaged);
        assert_false(taken);
    }
    rt_reader whole = rt_bytes_reader(&at);
    assert_true(rt_position_take(&whole, &damaged));
    assert_int_equal(damaged.size, at.size);
    rt_bytes_fini(&at);
    rt_bytes_fini(&damaged);
    free(files[0]), free(files[1]);
}

TEST_MAIN(TEST(longer_and_other_lists), TEST(stopped_anywhere), TEST(files_that_grow),
          TEST(a_file_that_grows_within_a_line), TEST(packed_files_that_grow),
          TEST(a_file_that_is_renamed), TEST(a_copy_in_another_folder),
          TEST(files_that_were_replaced_or_cut), TEST(files_that_were_written_anew),
          TEST(standard_input_goes_on), TEST(what_a_restart_loses_is_counted),
          TEST(a_fifo_is_held_open), TEST(positions_of_the_first_format), TEST(damaged_positions))
