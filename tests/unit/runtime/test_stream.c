// rt_stream: files in sequence, malformed lines, limits, standard input, counting; real data.
#include "runtime/config/rt_formats.h"
#include "tests/unit/runtime/test_stream_support.h"

#include "runtime/config/rt_config.h"
#include "runtime/stream/rt_keyset.h"

static rt_column pair[] = {{.name = "y", .kind = RT_COLUMN_LABEL, .label_value = "1"},
                           {.name = "u", .kind = RT_COLUMN_CATEGORICAL, .id = RT_ID_NUMBER}};

// "label,number" lines.
static rt_stream_config pair_config(char **files, uint32_t file_count)
{
    rt_stream_config config = {.format = RT_FORMAT_TABLE,
                               .file_count = file_count,
                               .files = files,
                               .malformed_share_max = 0.01,
                               .table = {',', false, 2, pair}};
    return config;
}

// size lines "0,<i>", every bad_each-th of them "bad".
static char *pair_lines(uint32_t size, uint32_t bad_each)
{
    char *text = malloc(16 * size + 1), *at = text;
    assert_non_null(text);
    for (uint32_t i = 0; i < size; i++)
        at += bad_each && (i + 1) % bad_each == 0 ? sprintf(at, "bad\n") : sprintf(at, "0,%u\n", i);
    *at = '\0';
    return text;
}

static void expect_ids(const rt_batch *batch, const uint64_t *ids, uint32_t count)
{
    assert_int_equal(batch->sample_count, count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(batch->keys[i], ids[i]);
}

static void files_in_sequence(void **state)
{
    (void)state;
    char *files[] = {put_text("a", "y,u\n1,10\r\n0,11"), put_text("b", "y,u"), put_text("c", ""),
                     put_packed("d", "y,u\n1,12\n\n", 10, 3), put_text("e", "y,u\n0,13\n")};
    rt_stream_config config = pair_config(files, 5);
    config.table.has_header = true;
    config.malformed_share_max = 0;
    static const uint64_t ids[] = {10, 11, 12, 13};
    for (uint32_t batch_size = 1; batch_size < 6; batch_size++) {
        rt_batch all;
        rt_stream_stats stats;
        rt_error error = {0};
        assert_int_equal(read_all(&config, 0, batch_size, &all, &stats, &error), RT_END);
        expect_ids(&all, ids, 4);
        assert_true(all.labels[0] == 1 && all.labels[1] == 0 && all.labels[2] == 1);
        assert_int_equal(stats.samples, 4);
        assert_int_equal(stats.lines, 4);
        assert_int_equal(stats.malformed, 0);
        assert_int_equal(stats.bytes_read, stats.bytes_all);
        rt_batch_fini(&all);
    }
    for (uint32_t i = 0; i < 5; i++)
        free(files[i]);
}

// A batch is short only at the end, and samples_max ends a stream exactly there.
static void batch_sizes_and_limits(void **state)
{
    (void)state;
    char *text = pair_lines(1000, 0), *file = put_text("a", text);
    rt_stream_config config = pair_config(&file, 1);
    static const uint64_t limits[] = {0, 1, 299, 300, 301, 1000, 2000};
    for (uint32_t n = 0; n < RT_COUNT_OF(limits); n++) {
        config.samples_max = limits[n];
        uint64_t left = limits[n] && limits[n] < 1000 ? limits[n] : 1000;
        rt_stream *stream;
        rt_error error = {0};
        rt_batch batch;
        assert_int_equal(rt_stream_open(&config, 0, &stream, &error), RT_OK);
        rt_batch_init(&batch, 0);
        while (left > 0) {
            assert_int_equal(rt_stream_read(stream, &batch, 100, &error), RT_OK);
            assert_int_equal(batch.sample_count, left < 100 ? left : 100);
            left -= batch.sample_count;
        }
        for (int again = 0; again < 2; again++) {
            assert_int_equal(rt_stream_read(stream, &batch, 100, &error), RT_END);
            assert_int_equal(batch.sample_count, 0);
        }
        rt_batch_fini(&batch);
        rt_stream_close(stream);
    }
    free(file);
    free(text);
}

static void blank_lines(void **state)
{
    (void)state;
    static const struct {
        const char *first, *second;
        uint32_t samples, malformed;
    } cases[] = {{"1,1\n\n", "1,2\n", 2, 0}, {"1,1\n\n\n\r\n", "1,2\n\n", 2, 0},
                 {"\n1,1\n", "1,2\n", 2, 1}, {"1,1\n\n\n1,3\n\n", "\n1,2\n", 3, 3},
                 {"\n", "\n", 0, 0},         {"1,1\n\n", "\n\n1,2\n", 2, 2}};
    for (uint32_t i = 0; i < RT_COUNT_OF(cases); i++) {
        char *files[] = {put_text("a", cases[i].first), put_text("b", cases[i].second)};
        rt_stream_config config = pair_config(files, 2);
        config.malformed_share_max = 1;
        rt_batch all;
        rt_stream_stats stats;
        rt_error error = {0};
        assert_int_equal(read_all(&config, 0, 10, &all, &stats, &error), RT_END);
        assert_int_equal(all.sample_count, cases[i].samples);
        assert_int_equal(stats.malformed, cases[i].malformed);
        assert_int_equal(stats.lines, cases[i].samples + cases[i].malformed);
        rt_batch_fini(&all);
        free(files[0]);
        free(files[1]);
    }
}

static rt_status read_pairs(const char *text, double share_max, rt_batch *all,
                            rt_stream_stats *stats, rt_error *error)
{
    char *file = put_text("pairs", text);
    rt_stream_config config = pair_config(&file, 1);
    config.malformed_share_max = share_max;
    rt_status status = read_all(&config, 0, 64, all, stats, error);
    free(file);
    return status;
}

// The mark of UTF-8 that some programs begin a file with, where there is no header; nowhere
// but at the beginning.
static void a_mark_is_no_cell(void **state)
{
    (void)state;
    static const uint64_t ids[] = {7, 8, 9};
    char *files[] = {put_text("a", "\xef\xbb\xbf"
                                   "1,7\n\xef\xbb\xbf"
                                   "1,6\n"),
                     put_text("b", "\xef\xbb\xbf\"1\",8\n"), put_text("c", "\xef\xbb\xbf\n0,9\n")};
    rt_stream_config config = pair_config(files, 3);
    config.malformed_share_max = 1;
    rt_batch all;
    rt_stream_stats stats;
    rt_error error = {0};
    assert_int_equal(read_all(&config, 0, 10, &all, &stats, &error), RT_END);
    expect_ids(&all, ids, 3);
    assert_int_equal(stats.malformed, 2);
    rt_batch_fini(&all);
    for (size_t i = 0; i < RT_COUNT_OF(files); i++)
        free(files[i]);
}

static void malformed_share_is_judged(void **state)
{
    (void)state;
    static const struct {
        uint32_t lines, bad_each;
        double share_max;
        rt_status want;
        uint64_t lines_read, malformed;
    } cases[] = {
        {5000, 100, 0.01, RT_END, 5000, 50},   // exactly the limit, at every moment from 1000 on
        {5000, 100, 0.009, RT_DATA, 1000, 10}, // seen as soon as judging starts
        {900, 2, 0.5, RT_END, 900, 450},       //
        {900, 2, 0.49, RT_DATA, 900, 450},     // too few lines before the end
        {1000, 1000, 0, RT_DATA, 1000, 1},     //
        {999, 999, 0, RT_DATA, 999, 1},        //
        {3000, 0, 0, RT_END, 3000, 0},         //
        {3000, 300, 0.002, RT_DATA, 1000, 3},  // the thousandth is good, three before were not
        {3000, 1, 1, RT_END, 3000, 3000},      // anything goes
    };
    for (uint32_t i = 0; i < RT_COUNT_OF(cases); i++) {
        char *text = pair_lines(cases[i].lines, cases[i].bad_each);
        rt_batch all;
        rt_stream_stats stats;
        rt_error error = {0};
        rt_status status = read_pairs(text, cases[i].share_max, &all, &stats, &error);
        if (status != cases[i].want || stats.lines != cases[i].lines_read)
            fail_msg("case %u: %s after %u lines: %s", i, rt_status_text(status),
                     (unsigned)stats.lines, error.text);
        assert_int_equal(stats.malformed, cases[i].malformed);
        rt_batch_fini(&all);
        free(text);
    }
}

static void the_error_names_file_line_and_counts(void **state)
{
    (void)state;
    char *text = pair_lines(2000, 0);
    memcpy(strstr(text, "0,1499\n"), "1;1499", 6);
    rt_batch all;
    rt_stream_stats stats;
    rt_error error = {0};
    assert_int_equal(read_pairs(text, 0, &all, &stats, &error), RT_DATA);
    assert_non_null(strstr(error.text, "/pairs:1500: 1 of the last 1500 lines are malformed, "
                                       "stream.malformed_share_max allows a share of 0; "
                                       "the last one: expected 2 cells, found 1"));
    rt_batch_fini(&all);
    free(text);
}

static void the_share_is_judged_at_samples_max(void **state)
{
    (void)state;
    char *text = pair_lines(100, 2), *file = put_text("a", text);
    rt_stream_config config = pair_config(&file, 1);
    config.samples_max = 10;
    rt_batch all;
    rt_stream_stats stats;
    rt_error error = {0};
    assert_int_equal(read_all(&config, 0, 10, &all, &stats, &error), RT_DATA);
    assert_int_equal(all.sample_count, 10); // what was good comes before the failure
    assert_int_equal(stats.samples, 10);
    rt_batch_fini(&all);
    config.malformed_share_max = 0.5;
    assert_int_equal(read_all(&config, 0, 10, &all, &stats, &error), RT_END);
    assert_int_equal(all.sample_count, 10);
    rt_batch_fini(&all);
    free(file);
    free(text);
    assert_int_equal(read_pairs("1,1\n\n\n1,2\n", 0, &all, &stats, &error), RT_DATA);
    assert_non_null(strstr(error.text, "/pairs:3: 2 of the last 4 lines are malformed"));
    assert_non_null(strstr(error.text, "found an empty line"));
    rt_batch_fini(&all);
}

static void a_failed_stream_stays_failed(void **state)
{
    (void)state;
    char *text = pair_lines(5000, 1), *file = put_text("a", text);
    rt_stream_config config = pair_config(&file, 1);
    rt_stream *stream;
    rt_error error = {0}, again = {0};
    rt_batch batch;
    assert_int_equal(rt_stream_open(&config, 0, &stream, &error), RT_OK);
    rt_batch_init(&batch, 0);
    assert_int_equal(rt_stream_read(stream, &batch, 10, &error), RT_DATA);
    assert_int_equal(rt_stream_read(stream, &batch, 10, &again), RT_DATA);
    assert_int_equal(batch.sample_count, 0);
    assert_string_equal(again.text, error.text);
    assert_int_equal(rt_stream_statistics(stream).lines, 1000);
    rt_batch_fini(&batch);
    rt_stream_close(stream);
    free(file);
    free(text);
}

static void the_first_five_are_logged(void **state)
{
    (void)state;
    char *log_path = path_of("log"), *text = pair_lines(70, 10), *out;
    size_t size;
    int kept = dup(STDERR_FILENO);
    int file = open(log_path, O_CREAT | O_RDWR, 0600);
    assert_true(dup2(file, STDERR_FILENO) == STDERR_FILENO);
    rt_batch all;
    rt_stream_stats stats;
    rt_error error = {0};
    rt_status status = read_pairs(text, 1, &all, &stats, &error);
    dup2(kept, STDERR_FILENO);
    assert_int_equal(status, RT_END);
    assert_int_equal(stats.malformed, 7);
    out = slurp(log_path, &size);
    uint32_t lines = 0;
    for (char *at = out; (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(lines, 5);
    assert_non_null(strstr(out, "/pairs:10: expected 2 cells, found 1\n"));
    assert_non_null(strstr(out, "/pairs:50: expected 2 cells, found 1 (further"));
    rt_batch_fini(&all);
    close(file);
    close(kept);
    free(out);
    free(text);
    free(log_path);
}

// 50,000 good lines do not pay for what follows them: the last 5,000 to 10,000 lines count. What
// was good before the failure is given out.
static void good_lines_do_not_pay_for_garbage(void **state)
{
    (void)state;
    const uint32_t good = 50000;
    char *text = pair_lines(good, 0), *garbage = pair_lines(1000, 1);
    char *both = malloc(strlen(text) + strlen(garbage) + 1);
    assert_non_null(both);
    sprintf(both, "%s%s", text, garbage);
    rt_batch all;
    rt_stream_stats stats;
    rt_error error = {0};
    assert_int_equal(read_pairs(both, 0.01, &all, &stats, &error), RT_DATA);
    assert_int_equal(all.sample_count, good);
    assert_true(stats.malformed > 0 && stats.malformed <= 102); // 1% of 10,000
    rt_batch_fini(&all);
    // Garbage that lies far back is forgotten.
    sprintf(both, "%.*s", (int)strlen(garbage) / 20, garbage);
    strcat(both, text);
    assert_int_equal(read_pairs(both, 0.06, &all, &stats, &error), RT_END);
    assert_int_equal(stats.malformed, 50);
    rt_batch_fini(&all);
    free(both);
    free(garbage);
    free(text);
}

typedef struct {
    const char *text;
    rt_status want;
    const char *words; // of the error
} header_case;

static rt_column named[] = {{.name = "y", .kind = RT_COLUMN_LABEL, .label_value = "1"},
                            {.name = "skip", .kind = RT_COLUMN_IGNORE},
                            {.name = "u", .kind = RT_COLUMN_CATEGORICAL, .id = RT_ID_NUMBER},
                            {.name = "v", .kind = RT_COLUMN_CATEGORICAL, .id = RT_ID_NUMBER},
                            {.name = "x", .kind = RT_COLUMN_DENSE}};

static rt_stream_config named_config(char **files, uint32_t file_count)
{
    rt_stream_config config = {.format = RT_FORMAT_TABLE,
                               .file_count = file_count,
                               .files = files,
                               .table = {',', true, 5, named}};
    return config;
}

static void columns_are_those_of_the_header(void **state)
{
    (void)state;
    static const header_case cases[] = {
        {"y,skip,u,v,x\n1,s,2,3,0.5\n0,s,4,5,7\n", RT_END, ""},
        {"x,v,u,y\n0.5,3,2,1\n7,5,4,0\n", RT_END, ""},
        {"\xef\xbb\xbfu,what,\"y\",x,\"v\",else\n\"2\",\"a\"\"b\",\"1\",0.5,\"3\",\n4,,0,7,5,\n",
         RT_END, ""},
        {"y,skip,u,x\n1,s,2,0.5\n", RT_DATA,
         "/h:1: the header lacks this column of "
         "stream.table.columns: v"},
        {"y,u,v,x,u\n", RT_DATA, "has this column twice: u"},
        {"y,u,v,\"x\n", RT_DATA, "a quote that is not closed"},
        {"x,v,u,y\n0.5,3,2\n", RT_DATA, "expected 4 cells, found 3"},
        {"x,v,u,y\n0.5,z,2,1\n", RT_DATA, "column 2 (v)"},
    };
    for (uint32_t i = 0; i < RT_COUNT_OF(cases); i++) {
        char *file = put_text("h", cases[i].text);
        rt_stream_config config = named_config(&file, 1);
        rt_batch all;
        rt_error error = {0};
        rt_status status = read_all(&config, 0, 10, &all, NULL, &error);
        if (status != cases[i].want || !strstr(error.text, cases[i].words))
            fail_msg("case %u: %s: %s", i, rt_status_text(status), error.text);
        if (status == RT_END) {
            const uint64_t keys[] = {rt_key(0, 2), rt_key(1, 3), rt_key(0, 4), rt_key(1, 5)};
            assert_int_equal(all.sample_count, 2);
            assert_true(all.labels[0] == 1 && all.labels[1] == 0);
            assert_true(all.dense[0] == 0.5f && all.dense[1] == 7);
            assert_memory_equal(all.keys, keys, sizeof keys);
        }
        rt_batch_fini(&all);
        free(file);
    }
}

// Every file has its own order; who writes to a pipe next may send the header again.
static void headers_of_several_files(void **state)
{
    (void)state;
    char *files[] = {put_text("a", "y,u,v,x\n1,2,3,4\ny,u,v,x\n1,2,3,4\n"),
                     put_text("b", "x,y,v,u\n4,1,3,2\n")};
    rt_stream_config config = named_config(files, 2);
    rt_batch all;
    rt_stream_stats stats;
    rt_error error = {0};
    assert_int_equal(read_all(&config, 0, 10, &all, &stats, &error), RT_END);
    assert_int_equal(all.sample_count, 3);
    assert_int_equal(stats.malformed, 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(all.keys[2 * i], rt_key(0, 2));
        assert_int_equal(all.keys[2 * i + 1], rt_key(1, 3));
        assert_true(all.dense[i] == 4 && all.labels[i] == 1);
    }
    rt_batch_fini(&all);
    free(files[0]);
    free(files[1]);
}

static void labels_that_are_odd_are_counted(void **state)
{
    (void)state;
    rt_batch all;
    rt_stream_stats stats;
    rt_error error = {0};
    assert_int_equal(read_pairs("1,1\n0,2\n1.0,3\n-1,4\n2,5\n", 0, &all, &stats, &error), RT_END);
    assert_int_equal(stats.odd_labels, 2);
    assert_int_equal(stats.positive, 2);
    rt_batch_fini(&all);
}

// A quoted cell may hold line feeds; one that is never closed costs its own line only.
static void line_feeds_inside_quotes(void **state)
{
    (void)state;
    static rt_column texts[] = {{.name = "y", .kind = RT_COLUMN_LABEL, .label_value = "1"},
                                {.name = "t", .kind = RT_COLUMN_CATEGORICAL, .id = RT_ID_HASH}};
    static const char text[] = "\xef\xbb\xbf" // a mark, which is no part of the label
                               "1,\"a\nb\"\n"
                               "0,\"c \"\"d\"\"\n\n\ne\"\n"
                               "1,\"open\n"
                               "0,f\n"
                               "1,\"g\r\nh\"";
    static const char *const cells[] = {"a\nb", "c \"d\"\n\n\ne", "f", "g\r\nh"};
    for (uint32_t batch_size = 1; batch_size < 6; batch_size++) {
        char *file = put_text("q", text);
        rt_stream_config config = pair_config(&file, 1);
        config.table.columns = texts;
        config.malformed_share_max = 0.5;
        rt_batch all;
        rt_stream_stats stats;
        rt_error error = {0};
        assert_int_equal(read_all(&config, 0, batch_size, &all, &stats, &error), RT_END);
        assert_int_equal(all.sample_count, RT_COUNT_OF(cells));
        assert_int_equal(stats.malformed, 1);
        for (uint32_t i = 0; i < RT_COUNT_OF(cells); i++) {
            const uint64_t id = rt_hash_bytes(cells[i], strlen(cells[i])) & RT_ID_MASK;
            assert_int_equal(all.keys[i], rt_key(0, id));
        }
        rt_batch_fini(&all);
        free(file);
    }
}

// What has come is given out after a while though the pipe stays open, and lost is nothing.
static void a_batch_that_does_not_fill(void **state)
{
    (void)state;
    int ends[2];
    char dash[] = "-", *paths[] = {dash};
    rt_stream *stream;
    rt_batch batch;
    rt_error error = {0};
    rt_stream_config config = pair_config(paths, 1);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    assert_int_equal(rt_stream_open(&config, 0, &stream, &error), RT_OK);
    rt_stream_set_wait(stream, 1000000);
    rt_batch_init(&batch, 0);
    for (uint32_t round = 0; round < 3; round++) {
        assert_int_equal(write(ends[1], "0,1\n1,2\n1,", 10), 10);
        assert_int_equal(rt_stream_read(stream, &batch, 10, &error), RT_OK);
        assert_int_equal(batch.sample_count, 2);
        assert_int_equal(write(ends[1], "3\n", 2), 2);
        assert_int_equal(rt_stream_read(stream, &batch, 10, &error), RT_OK);
        assert_int_equal(batch.sample_count, 1);
    }
    close(ends[1]);
    assert_int_equal(rt_stream_read(stream, &batch, 10, &error), RT_END);
    assert_int_equal(rt_stream_statistics(stream).samples, 9);
    assert_int_equal(rt_stream_statistics(stream).bytes_lost, 0);
    rt_stream_close(stream);
    rt_batch_fini(&batch);
    close(ends[0]);
}

static void lines_that_are_no_text(void **state)
{
    (void)state;
    size_t size = 3 << 20;
    char *text = malloc(size), *file;
    assert_non_null(text);
    memset(text, 'x', size);
    memcpy(text, "1,2\n", 4);
    memcpy(text + size - 5, "\n1,3\n", 5);
    file = put_bytes("a", text, size);
    rt_stream_config config = pair_config(&file, 1);
    rt_batch all;
    rt_stream_stats stats;
    rt_error error = {0};
    assert_int_equal(read_all(&config, 0, 10, &all, &stats, &error), RT_DATA);
    assert_non_null(strstr(error.text, "/a:2: 1 of the last 3 lines"));
    assert_non_null(strstr(error.text, "at most 1048576 bytes"));
    rt_batch_fini(&all);
    static const char zeros[] = "1,2\n1,\0003\n1,4\n";
    free(file);
    file = put_bytes("a", zeros, sizeof zeros - 1);
    config.malformed_share_max = 0.4;
    assert_int_equal(read_all(&config, 0, 10, &all, &stats, &error), RT_END);
    static const uint64_t ids[] = {2, 4};
    expect_ids(&all, ids, 2);
    assert_int_equal(stats.malformed, 1);
    rt_batch_fini(&all);
    free(file);
    free(text);
}

static void a_truncated_file_is_an_error(void **state)
{
    (void)state;
    char *text = pair_lines(20000, 0);
    size_t packed_size;
    uint8_t *packed = pack(text, strlen(text), strlen(text), &packed_size);
    char *file = put_bytes("a.zst", packed, packed_size - 4);
    rt_stream_config config = pair_config(&file, 1);
    rt_batch all;
    rt_stream_stats stats;
    rt_error error = {0};
    assert_int_equal(read_all(&config, 0, 100, &all, &stats, &error), RT_DATA);
    assert_non_null(strstr(error.text, "a.zst:"));
    assert_non_null(strstr(error.text, "the packed file is cut off"));
    rt_batch_fini(&all);
    free(file);
    free(packed);
    free(text);
}

static void configurations_that_cannot_work(void **state)
{
    (void)state;
    char absent[] = "/nowhere/absent.tsv", dash[] = "-", *files[] = {absent}, *standard[] = {dash};
    rt_stream_config config = pair_config(files, 1);
    rt_stream *stream = NULL;
    rt_error error = {0};
    uint64_t count = 99;
    assert_int_equal(rt_stream_open(&config, 0, &stream, &error), RT_IO);
    assert_string_equal(error.text, "cannot open /nowhere/absent.tsv: No such file or directory");
    config.format = RT_FORMAT_CRITEO;
    assert_int_equal(rt_stream_open(&config, 0, &stream, &error), RT_IO);
    config.file_count = 0;
    assert_int_equal(rt_stream_open(&config, 0, &stream, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "stream.files"));
    config = pair_config(standard, 1);
    assert_int_equal(rt_stream_count_keys(&config, 0, &count, &error), RT_CONFIG);
    config.format = RT_FORMAT_SYNTHETIC;
    config.synthetic_scale = 1;
    assert_int_equal(rt_stream_count_keys(&config, 0, &count, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "stream.samples_max"));
    assert_null(stream);
    assert_int_equal(count, 99);
}

// Enough distinct keys that the set grows several times; key 0 is one of them.
static void counted_keys(void **state)
{
    (void)state;
    char *text = malloc(4 << 20), *at = text;
    assert_non_null(text);
    for (uint32_t i = 0; i < 300000; i++)
        at += sprintf(at, "0,%u\n", i % 150001);
    char *file = put_text("a", text);
    rt_stream_config config = pair_config(&file, 1);
    uint64_t count = 0;
    rt_error error = {0};
    assert_int_equal(rt_stream_count_keys(&config, 0, &count, &error), RT_OK);
    assert_int_equal(count, 150001);
    config.samples_max = 100;
    assert_int_equal(rt_stream_count_keys(&config, 0, &count, &error), RT_OK);
    assert_int_equal(count, 100);
    free(file);
    free(text);
    char *bad = put_text("bad", "x\n");
    config = pair_config(&bad, 1);
    assert_int_equal(rt_stream_count_keys(&config, 0, &count, &error), RT_DATA);
    assert_int_equal(count, 100);
    free(bad);
}

// Keys that all want the last slot go round to the first ones, and survive growing.
static void counted_keys_at_the_end_of_the_set(void **state)
{
    (void)state;
    rt_keyset set;
    assert_int_equal(rt_keyset_init(&set), RT_OK);
    uint64_t keys[100], slot_count = set.slot_count;
    uint32_t count = 0;
    for (uint64_t key = 1; count < 100; key++) {
        if ((rt_mix(key) & (slot_count - 1)) == slot_count - 1)
            keys[count++] = key;
    }
    for (int again = 0; again < 2; again++) {
        assert_int_equal(rt_keyset_add(&set, keys, 100), RT_OK);
        assert_int_equal(rt_keyset_count(&set), 100);
    }
    for (uint64_t key = 0; set.slot_count == slot_count; key++) {
        uint64_t odd = UINT64_C(1) << 63 | key;
        assert_int_equal(rt_keyset_add(&set, &odd, 1), RT_OK);
        assert_int_equal(rt_keyset_count(&set), 101 + key);
    }
    count = (uint32_t)rt_keyset_count(&set);
    assert_int_equal(rt_keyset_add(&set, keys, 100), RT_OK);
    assert_int_equal(rt_keyset_count(&set), count);
    rt_keyset_fini(&set);
}

// A full batch is given out while the writer of the pipe is still there.
static void standard_input(void **state)
{
    (void)state;
    int ends[2];
    char dash[] = "-", *files[] = {dash};
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    rt_stream_config config = pair_config(files, 1);
    rt_stream *stream;
    rt_error error = {0};
    rt_batch batch;
    assert_int_equal(rt_stream_open(&config, 0, &stream, &error), RT_OK);
    rt_batch_init(&batch, 0);
    static const char first[] = "1,5\n0,6\n1,7\n1", second[] = ",8\n0,9";
    static const uint64_t three[] = {5, 6, 7}, two[] = {8, 9};
    assert_int_equal(write(ends[1], first, sizeof first - 1), sizeof first - 1);
    assert_int_equal(rt_stream_read(stream, &batch, 3, &error), RT_OK);
    expect_ids(&batch, three, 3);
    assert_int_equal(write(ends[1], second, sizeof second - 1), sizeof second - 1);
    close(ends[1]);
    assert_int_equal(rt_stream_read(stream, &batch, 3, &error), RT_OK);
    expect_ids(&batch, two, 2);
    assert_int_equal(rt_stream_read(stream, &batch, 3, &error), RT_END);
    assert_int_equal(rt_stream_statistics(stream).bytes_all, 0);
    assert_int_equal(rt_stream_statistics(stream).bytes_read, sizeof first - 1 + sizeof second - 1);
    rt_batch_fini(&batch);
    rt_stream_close(stream);
}

static void criteo_plain_and_packed_are_the_same(void **state)
{
    (void)state;
    char *packed = strdup(test_data_file("criteo_kaggle_100k.tsv.zst"));
    size_t size;
    char *text = slurp(packed, &size), *plain = put_bytes("plain.tsv", text, size);
    char *frames = put_packed("frames", text, size, 3000000);
    char *paths[] = {packed, plain, frames};
    rt_batch want, got;
    rt_stream_stats stats;
    rt_error error = {0};
    rt_stream_config config = {.format = RT_FORMAT_CRITEO, .file_count = 1, .files = paths};
    assert_int_equal(read_all(&config, 0, 512, &want, &stats, &error), RT_END);
    assert_int_equal(want.sample_count, 100000);
    uint64_t distinct = 0;
    assert_int_equal(rt_stream_count_keys(&config, 0, &distinct, &error), RT_OK);
    assert_int_equal(distinct, distinct_of(&want));
    assert_int_equal(distinct, 248407); // (column, text) pairs, counted by a script
    for (uint32_t i = 1; i < 3; i++) {
        config.files = &paths[i];
        assert_int_equal(read_all(&config, 0, 100000, &got, &stats, &error), RT_END);
        assert_same(&got, &want);
        rt_batch_fini(&got);
    }
    rt_batch_fini(&want);
    for (uint32_t i = 0; i < 3; i++)
        free(paths[i]);
    free(text);
}

static void load_format(rt_config *config, const char *path, const char *data)
{
    rt_error error = {0};
    char *quoted = malloc(strlen(data) + 32);
    assert_non_null(quoted);
    sprintf(quoted, "stream.files=%s", data);
    assert_int_equal(rt_config_init(config), RT_OK);
    if (access(path, R_OK) != 0)
        test_skip("%s is not here (tests run in the root of the repository)", path);
    if (rt_config_load(config, path, &error) || rt_config_set(config, quoted, &error))
        fail_msg("%s", error.text);
    config->stream.malformed_share_max = 0;
    free(quoted);
}

// Counts worked out by a script: rows, clicks, distinct values per column added up.
static void avazu_by_its_format_file(void **state)
{
    (void)state;
    rt_config config;
    rt_batch all;
    rt_stream_stats stats;
    rt_error error = {0};
    load_format(&config, "configs/formats/avazu.json", test_data_file("avazu_10k.csv.zst"));
    if (read_all(&config.stream, 0, 1000, &all, &stats, &error) != RT_END)
        fail_msg("%s", error.text);
    assert_int_equal(all.sample_count, 9999);
    assert_int_equal(all.key_count, 9999 * 22);
    double clicks = 0;
    for (uint32_t i = 0; i < all.sample_count; i++)
        clicks += all.labels[i];
    assert_int_equal((int)clicks, 1706);
    assert_int_equal(distinct_of(&all), 11198);
    rt_batch_fini(&all);
    rt_config_fini(&config);
}

static void movielens_by_its_format_file(void **state)
{
    (void)state;
    rt_config config;
    rt_batch all;
    rt_stream_stats stats;
    rt_error error = {0};
    load_format(&config, "configs/formats/movielens.json",
                test_data_file("movielens_100k.tsv.zst"));
    if (read_all(&config.stream, 0, 1000, &all, &stats, &error) != RT_END)
        fail_msg("%s", error.text);
    assert_int_equal(all.sample_count, 100000);
    assert_int_equal(distinct_of(&all), 943 + 1682); // GroupLens: users, movies
    assert_int_equal(all.keys[0], 196);              // the first line: 196 242 3 ...
    assert_int_equal(all.keys[1], 1ull << 56 | 242);
    assert_true(all.labels[0] == 0);
    double good = 0;
    for (uint32_t i = 0; i < all.sample_count; i++)
        good += all.labels[i];
    assert_int_equal((int)good, 55375);
    rt_batch_fini(&all);
    rt_config_fini(&config);
}

TEST_MAIN(TEST(good_lines_do_not_pay_for_garbage), TEST(columns_are_those_of_the_header),
          TEST(headers_of_several_files), TEST(labels_that_are_odd_are_counted),
          TEST(line_feeds_inside_quotes), TEST(a_batch_that_does_not_fill), TEST(files_in_sequence),
          TEST(a_mark_is_no_cell), TEST(batch_sizes_and_limits), TEST(blank_lines),
          TEST(malformed_share_is_judged), TEST(the_error_names_file_line_and_counts),
          TEST(the_share_is_judged_at_samples_max), TEST(a_failed_stream_stays_failed),
          TEST(the_first_five_are_logged), TEST(lines_that_are_no_text),
          TEST(a_truncated_file_is_an_error), TEST(configurations_that_cannot_work),
          TEST(counted_keys), TEST(counted_keys_at_the_end_of_the_set), TEST(standard_input),
          TEST(criteo_plain_and_packed_are_the_same), TEST(avazu_by_its_format_file),
          TEST(movielens_by_its_format_file))
