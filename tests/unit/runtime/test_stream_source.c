// The source of files: against splitting the same text in memory.
#include "tests/unit/runtime/test_stream_support.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "runtime/stream/rt_source.h"

// Lines of 0 to some thousand bytes, a third of them ending in "\r\n".
static char *make_text(uint64_t seed, size_t size_min, size_t *size_p)
{
    rt_random random = {seed};
    char *text = malloc(size_min + 8192);
    size_t size = 0;
    assert_non_null(text);
    while (size < size_min) {
        uint32_t length = rt_random_below(&random, rt_random_below(&random, 4000) + 1);
        for (uint32_t i = 0; i < length; i++)
            text[size++] = (char)('!' + rt_random_below(&random, 90));
        if (rt_random_below(&random, 3) == 0)
            text[size++] = '\r';
        text[size++] = '\n';
    }
    *size_p = size;
    return text;
}

// fifo_ends: so that a pipe has an end.
static rt_status open_paths(char **paths, uint32_t count, void **source_p, rt_error *error)
{
    const rt_stream_config config = {.files = paths, .file_count = count, .fifo_ends = true};
    return rt_source_files.open(&config, 0, source_p, error);
}

static rt_source_counts counts_of(const void *source)
{
    rt_source_counts counts;
    rt_source_files.counts(source, &counts);
    return counts;
}

// Reads all lines of the source and compares with those of text.
static void expect_lines(void *source, uint32_t file, const char *text, size_t size)
{
    rt_error error;
    rt_line line;
    uint64_t number = 0;
    for (const char *at = text; at < text + size;) {
        const char *stop = memchr(at, '\n', (size_t)(text + size - at));
        const char *next = stop ? stop + 1 : text + size;
        stop = stop ? stop : text + size;
        size_t length = (size_t)(stop - at);
        length -= length > 0 && at[length - 1] == '\r';
        assert_int_equal(rt_source_files.line(source, 0, 0, &line, &error), RT_OK);
        assert_int_equal(line.number, ++number);
        assert_int_equal(line.file, file);
        assert_int_equal(line.is_too_long, length > RT_LINE_MAX);
        if (!line.is_too_long) {
            assert_int_equal(line.length, length);
            assert_memory_equal(line.text, at, length);
            assert_true(line.text[length] == '\n' || line.text[length] == '\r');
        }
        at = next;
    }
}

static void expect_end(void *source)
{
    rt_error error;
    rt_line line;
    assert_int_equal(rt_source_files.line(source, 0, 0, &line, &error), RT_END);
    assert_int_equal(rt_source_files.line(source, 0, 0, &line, &error), RT_END);
}

static void *open_source(char **paths, uint32_t count)
{
    rt_error error = {0};
    void *source = NULL;
    rt_status status = open_paths(paths, count, &source, &error);
    if (status)
        fail_msg("%s", error.text);
    return source;
}

static void plain_and_packed_lines(void **state)
{
    (void)state;
    size_t size;
    char *text = make_text(1, 3 << 20, &size);
    char *paths[4] = {put_bytes("a.tsv", text, size), put_packed("b.tsv.zst", text, size, size),
                      put_packed("c.zst", text, size, 10000),
                      put_packed("packed_without_the_name", text, size, 100000)};
    void *source = open_source(paths, 4);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < 4; i++) {
        struct stat info;
        assert_string_equal(rt_source_files.input_name(source, i), paths[i]);
        assert_int_equal(stat(paths[i], &info), 0);
        bytes += (uint64_t)info.st_size;
        expect_lines(source, i, text, size);
    }
    expect_end(source);
    assert_int_equal(counts_of(source).bytes_all, bytes);
    assert_int_equal(counts_of(source).bytes_read, bytes);
    rt_source_files.close(source);
    for (uint32_t i = 0; i < 4; i++)
        free(paths[i]);
    free(text);
}

static void odd_ends_of_files(void **state)
{
    (void)state;
    static const char *const texts[] = {"a\nb", "", "\n", "c\r\n\r\nd\r", "(", "P*", "x", "\r\n"};
    char *paths[RT_COUNT_OF(texts)], name[16];
    for (uint32_t i = 0; i < RT_COUNT_OF(texts); i++) {
        sprintf(name, "%u", i);
        paths[i] = put_text(name, texts[i]);
    }
    void *source = open_source(paths, RT_COUNT_OF(texts));
    for (uint32_t i = 0; i < RT_COUNT_OF(texts); i++)
        expect_lines(source, i, texts[i], strlen(texts[i]));
    expect_end(source);
    rt_source_files.close(source);
    for (uint32_t i = 0; i < RT_COUNT_OF(texts); i++)
        free(paths[i]);
}

static void lines_that_are_too_long(void **state)
{
    (void)state;
    static const size_t lengths[] = {RT_LINE_MAX,     10,          RT_LINE_MAX + 1,
                                     RT_LINE_MAX - 1, 5000000,     3,
                                     RT_LINE_MAX + 2, RT_LINE_MAX, 2000000};
    size_t size = 0;
    char *text = malloc(20 << 20);
    assert_non_null(text);
    for (uint32_t i = 0; i < RT_COUNT_OF(lengths); i++) {
        memset(text + size, 'a' + (int)i, lengths[i]);
        size += lengths[i];
        text[size++] = '\n';
    }
    size--; // the last, too long, has no line end
    char *paths[4] = {put_bytes("long", text, size), put_packed("long.zst", text, size, size), NULL,
                      put_text("after", "next\n")};
    // Nothing of the third file is left when its end is seen.
    text[RT_LINE_MAX] = 'a';
    paths[2] = put_bytes("one_line", text, RT_LINE_MAX + 1);
    text[RT_LINE_MAX] = '\n';
    void *source = open_source(paths, 4);
    expect_lines(source, 0, text, size);
    expect_lines(source, 1, text, size);
    text[RT_LINE_MAX] = 'a';
    expect_lines(source, 2, text, RT_LINE_MAX + 1);
    expect_lines(source, 3, "next\n", 5);
    expect_end(source);
    rt_source_files.close(source);
    for (uint32_t i = 0; i < 4; i++)
        free(paths[i]);
    free(text);
}

// Reads to the end or the first error.
static rt_status drain(void *source, uint64_t *lines_p, rt_error *error)
{
    rt_line line;
    rt_status status;
    *lines_p = 0;
    while (!(status = rt_source_files.line(source, 0, 0, &line, error)))
        ++*lines_p;
    return status;
}

static void packed_files_cut_anywhere(void **state)
{
    (void)state;
    size_t size, packed_size;
    char *text = make_text(2, 20000, &size);
    uint8_t *packed = pack(text, size, 9000, &packed_size);
    size_t frame = ZSTD_findFrameCompressedSize(packed, packed_size);
    assert_true(frame < packed_size && packed_size < 30000);
    for (size_t cut = 0; cut < packed_size; cut += cut < 40 || packed_size - cut < 40 ? 1 : 37) {
        char *path = put_bytes("cut.zst", packed, cut);
        void *source = open_source(&path, 1);
        rt_error error = {0};
        uint64_t lines;
        rt_status status = drain(source, &lines, &error);
        assert_int_equal(status, RT_DATA);
        assert_non_null(strstr(error.text, "cut.zst:"));
        rt_source_files.close(source);
        free(path);
    }
    // Between two frames nothing shows that more was to come.
    char *path = put_bytes("cut.zst", packed, frame);
    void *source = open_source(&path, 1);
    expect_lines(source, 0, text, 9000);
    expect_end(source);
    rt_source_files.close(source);
    free(path);
    free(packed);
    free(text);
}

static void damaged_packed_files(void **state)
{
    (void)state;
    size_t size, packed_size;
    char *text = make_text(3, 5000, &size);
    uint8_t *packed = pack(text, size, size, &packed_size);
    uint32_t unharmed = 0; // a few bits can have another value and mean the same
    for (size_t i = 0; i < packed_size; i += 1 + i / 50) {
        packed[i] ^= 0x40;
        char *path = put_bytes("damaged.zst", packed, packed_size);
        void *source = open_source(&path, 1);
        rt_error error = {0};
        uint64_t lines;
        rt_status status = drain(source, &lines, &error); // frames have checksums
        rt_source_files.close(source);
        if (status == RT_DATA) {
            assert_non_null(strstr(error.text, "damaged.zst:"));
        } else {
            assert_int_equal(status, RT_END);
            source = open_source(&path, 1);
            expect_lines(source, 0, text, size);
            rt_source_files.close(source);
            unharmed++;
        }
        free(path);
        packed[i] ^= 0x40;
    }
    assert_true(unharmed < 5);
    free(packed);
    free(text);
}

static void skippable_frames_are_skipped(void **state)
{
    (void)state;
    const char text[] = "one\ntwo\n";
    static const uint8_t skippable[] = {0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'x', '\n', 'z'};
    size_t packed_size;
    uint8_t *packed = pack(text, sizeof text - 1, 100, &packed_size), file[256];
    memcpy(file, skippable, sizeof skippable);
    memcpy(file + sizeof skippable, packed, packed_size);
    memcpy(file + sizeof skippable + packed_size, skippable, sizeof skippable);
    char *path = put_bytes("s", file, packed_size + 2 * sizeof skippable);
    void *source = open_source(&path, 1);
    expect_lines(source, 0, text, sizeof text - 1);
    expect_end(source);
    rt_source_files.close(source);
    free(packed);
    free(path);
}

static void expect_open_fails(char **paths, uint32_t count, rt_status want, const char *words)
{
    rt_error error = {0};
    void *source = NULL;
    assert_int_equal(open_paths(paths, count, &source, &error), want);
    assert_null(source);
    if (!strstr(error.text, words))
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static void inputs_that_cannot_be_read(void **state)
{
    (void)state;
    char *good = put_text("good", "1\n"), *absent = path_of("absent"), *folder = path_of("folder");
    char *gzip = put_bytes("a.gz", "\x1f\x8b\x08\x00\x00\x00", 6); // cut off
    char *text = put_text("text.zst", "1\t2\n");
    assert_int_equal(mkdir(folder, 0700), 0);
    char *first[] = {absent, good}, *second[] = {good, absent}, *third[] = {good, folder};
    expect_open_fails(first, 2, RT_IO, "absent: No such file");
    expect_open_fails(second, 2, RT_IO, "absent: No such file");
    expect_open_fails(third, 2, RT_IO, "folder");
    char *bad[] = {gzip, text};
    static const char *const words[] = {"a.gz:1: the packed file is cut off",
                                        "text.zst:1: named .zst"};
    for (uint32_t i = 0; i < 2; i++) {
        void *source = open_source(&bad[i], 1);
        rt_error error = {0};
        uint64_t lines;
        assert_int_equal(drain(source, &lines, &error), RT_DATA);
        assert_int_equal(lines, 0);
        if (!strstr(error.text, words[i]))
            fail_msg("\"%s\" does not say \"%s\"", error.text, words[i]);
        rt_source_files.close(source);
    }
    char *all[] = {good, absent, folder, gzip, text};
    for (uint32_t i = 0; i < RT_COUNT_OF(all); i++)
        free(all[i]);
}

// Replaces standard input by a pipe; its end to write to.
static int pipe_to_stdin(void)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    close(ends[0]);
    return ends[1];
}

typedef struct {
    int descriptor;
    const uint8_t *bytes;
    size_t size;
} piecewise;

// A thread that writes the bytes in small pieces and closes the pipe.
static void *write_pieces(void *argument)
{
    const piecewise *job = argument;
    rt_random random = {5};
    for (size_t at = 0; at < job->size;) {
        size_t count = 1 + rt_random_below(&random, 1 + rt_random_below(&random, 20000));
        count = count < job->size - at ? count : job->size - at;
        ssize_t written = write(job->descriptor, job->bytes + at, count);
        if (written < 0)
            abort();
        at += (size_t)written;
    }
    close(job->descriptor);
    return NULL;
}

static void standard_input_in_pieces(void **state)
{
    (void)state;
    size_t size, packed_size;
    char *text = make_text(4, 2 << 20, &size), dash[] = "-", *paths[] = {dash};
    uint8_t *packed = pack(text, size, 300000, &packed_size);
    for (int round = 0; round < 4; round++) {
        bool is_packed = round & 1, blocks = round < 2;
        int writer = pipe_to_stdin();
        if (!blocks)
            assert_int_equal(fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK), 0);
        piecewise job = {writer, is_packed ? packed : (const uint8_t *)text,
                         is_packed ? packed_size : size};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, write_pieces, &job), 0);
        void *source = open_source(paths, 1);
        expect_lines(source, 0, text, size);
        expect_end(source);
        assert_int_equal(counts_of(source).bytes_all, 0);
        assert_int_equal(counts_of(source).bytes_read, is_packed ? packed_size : size);
        rt_source_files.close(source);
        assert_true(fcntl(STDIN_FILENO, F_GETFD) >= 0); // not ours to close
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    free(packed);
    free(text);
}

// A line that is there is given out though the pipe stays open and nothing follows.
static void standard_input_line_by_line(void **state)
{
    (void)state;
    char dash[] = "-", *paths[] = {dash}, text[32];
    int writer = pipe_to_stdin();
    void *source = open_source(paths, 1);
    for (int i = 0; i < 100; i++) {
        rt_error error;
        rt_line line;
        int size = sprintf(text, "%d\n", i);
        assert_int_equal(write(writer, text, (size_t)size), size);
        assert_int_equal(rt_source_files.line(source, 0, 0, &line, &error), RT_OK);
        assert_int_equal(line.length, size - 1);
        assert_memory_equal(line.text, text, size - 1);
    }
    close(writer);
    expect_end(source);
    rt_source_files.close(source);
}

// The same packed: what the writer flushed comes out, also more than fits in one block.
static void standard_input_packed_and_flushed(void **state)
{
    (void)state;
    // Six blocks, the last of which crosses the end of the second 256 KiB of text: the decoder has
    // taken all of its input by then, and still holds text.
    const size_t size = 2 * 262144 + 50000, flushed = 100000;
    char *text = malloc(size), dash[] = "-", *paths[] = {dash};
    assert_non_null(text);
    memset(text, 'a', size);
    for (size_t i = 99; i < size; i += 100)
        text[i] = '\n';
    uint8_t packed[60000]; // the pipe takes it at once
    ZSTD_CStream *packer = ZSTD_createCStream();
    ZSTD_inBuffer in = {text, 0, 0};
    ZSTD_outBuffer out = {packed, sizeof packed, 0};
    while (in.size < size) {
        in.size = size - in.size > flushed ? in.size + flushed : size;
        assert_int_equal(ZSTD_compressStream2(packer, &out, &in, ZSTD_e_flush), 0);
    }
    int writer = pipe_to_stdin();
    assert_int_equal(write(writer, packed, out.pos), out.pos);
    void *source = open_source(paths, 1);
    expect_lines(source, 0, text, size / 100 * 100);
    rt_source_files.close(source);
    close(writer);
    ZSTD_freeCStream(packer);
    free(text);
}

// A wait for input ends when the descriptor of rt_source_watch is readable: before the first
// byte, between lines and within one. What was a whole line by then is given out first.
static void standard_input_is_given_up(void **state)
{
    (void)state;
    char *paths[] = {"-"};
    const char *const texts[] = {"", "a\nb\n", "a\nb\nc"};
    for (size_t i = 0; i < RT_COUNT_OF(texts); i++) {
        rt_line line;
        rt_error error;
        int stop[2], writer = pipe_to_stdin();
        assert_int_equal(pipe(stop), 0);
        assert_int_equal(write(writer, texts[i], strlen(texts[i])), strlen(texts[i]));
        void *source = open_source(paths, 1);
        rt_source_files.watch(source, &(rt_source_watch){stop[0], -1});
        for (uint32_t k = 0; i > 0 && k < 2; k++) {
            assert_int_equal(rt_source_files.line(source, 0, 0, &line, &error), RT_OK);
            assert_int_equal(line.text[0], 'a' + (int)k);
        }
        assert_int_equal(write(stop[1], "x", 1), 1);
        assert_int_equal(rt_source_files.line(source, 0, 0, &line, &error), RT_STOPPED);
        rt_source_files.close(source);
        close(writer);
        close(stop[0]);
        close(stop[1]);
    }
}

// A named pipe that nobody writes to yet can be opened, waited for and given up.
static void a_pipe_without_a_writer(void **state)
{
    (void)state;
    char path[512], *paths[] = {path};
    void *source;
    rt_line line;
    rt_error error;
    int stop[2];
    snprintf(path, sizeof path, "%s/pipe", test_directory());
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(pipe(stop), 0);
    assert_int_equal(open_paths(paths, 1, &source, &error), RT_OK);
    rt_source_files.watch(source, &(rt_source_watch){stop[0], -1});
    assert_int_equal(write(stop[1], "", 1), 1);
    assert_int_equal(rt_source_files.line(source, 0, 0, &line, &error), RT_STOPPED);
    rt_source_files.close(source);

    assert_int_equal(open_paths(paths, 1, &source, &error), RT_OK);
    int writer = open(path, O_WRONLY);
    assert_true(writer >= 0);
    assert_int_equal(write(writer, "one\ntwo\n", 8), 8);
    close(writer);
    expect_lines(source, 0, "one\ntwo\n", 8);
    expect_end(source);
    rt_source_files.close(source);
}

TEST_MAIN(TEST(a_pipe_without_a_writer), TEST(plain_and_packed_lines), TEST(odd_ends_of_files),
          TEST(lines_that_are_too_long), TEST(packed_files_cut_anywhere),
          TEST(damaged_packed_files), TEST(skippable_frames_are_skipped),
          TEST(inputs_that_cannot_be_read), TEST(standard_input_in_pieces),
          TEST(standard_input_line_by_line), TEST(standard_input_packed_and_flushed),
          TEST(standard_input_is_given_up))
