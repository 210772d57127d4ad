// Packed files and UTF-16: the lines of the text that was packed, from every place on; files of
// other kinds are refused by their name.
#include "tests/unit/runtime/test_stream_support.h"

#include <bzlib.h>
#include <lzma.h>
#include <sys/stat.h>
#include <zlib.h>

#include "runtime/stream/rt_lines.h"

#define LINES 3000
#define ROOM (2u << 20)

typedef enum { PLAIN, ZSTD, GZIP, XZ, BZIP2, PACKINGS } packing;
typedef enum { UTF8, LITTLE, BIG, LITTLE_BARE, WIDTHS } width_of;

static const char *const names[PACKINGS] = {"t", "t.zst", "t.gz", "t.xz", "t.bz2"};

static size_t pack_one(packing how, const uint8_t *bytes, size_t size, uint8_t *out)
{
    size_t used = 0;
    unsigned room = ROOM;
    switch (how) {
    case ZSTD: {
        ZSTD_CCtx *context = ZSTD_createCCtx();
        ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
        ZSTD_CCtx_setParameter(context, ZSTD_c_enableLongDistanceMatching, 1);
        ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 28);
        ZSTD_inBuffer in = {bytes, size, 0};
        ZSTD_outBuffer to = {out, ROOM, 0};
        assert_false(ZSTD_isError(ZSTD_compressStream2(context, &to, &in, ZSTD_e_continue)));
        assert_int_equal(ZSTD_compressStream2(context, &to, &in, ZSTD_e_end), 0);
        ZSTD_freeCCtx(context);
        return to.pos;
    }
    case GZIP: {
        z_stream z = {.next_in = (Bytef *)(uintptr_t)bytes,
                      .avail_in = (uInt)size,
                      .next_out = out,
                      .avail_out = ROOM};
        assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY),
                         Z_OK);
        assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
        deflateEnd(&z);
        return ROOM - z.avail_out;
    }
    case XZ:
        assert_int_equal(
            lzma_easy_buffer_encode(1, LZMA_CHECK_CRC32, NULL, bytes, size, out, &used, ROOM),
            LZMA_OK);
        return used;
    case BZIP2:
        assert_int_equal(BZ2_bzBuffToBuffCompress((char *)out, &room, (char *)(uintptr_t)bytes,
                                                  (unsigned)size, 9, 0, 0),
                         BZ_OK);
        return room;
    default:
        memcpy(out, bytes, size);
        return size;
    }
}

// Two packed files behind one another, zeros between them as padding.
static size_t pack_two(packing how, const uint8_t *bytes, size_t size, uint8_t *out)
{
    const size_t half = size / 2;
    size_t used = pack_one(how, bytes, half, out);
    const size_t padding = how == PLAIN ? 0 : 8;
    memset(out + used, 0, padding);
    used += padding;
    return used + pack_one(how, bytes + half, size - half, out + used);
}

static size_t widen(width_of how, const char *text, size_t size, uint8_t *out)
{
    size_t used = 0;
    if (how == UTF8) {
        memcpy(out, text, size);
        return size;
    }
    for (size_t at = how == LITTLE_BARE ? 0 : SIZE_MAX; at == SIZE_MAX || at < size;) {
        uint32_t c = 0xfeff, units[2], more = 0;
        if (at != SIZE_MAX) {
            const uint8_t first = (uint8_t)text[at];
            more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
            c = more ? first & (0x3fu >> more) : first;
            for (uint32_t i = 1; i <= more; i++)
                c = c << 6 | ((uint8_t)text[at + i] & 0x3f);
        }
        at = at == SIZE_MAX ? 0 : at + more + 1;
        const uint32_t count = c > 0xffff ? 2 : 1;
        units[0] = count == 1 ? c : 0xd800 + ((c - 0x10000) >> 10);
        units[1] = 0xdc00 + ((c - 0x10000) & 0x3ff);
        for (uint32_t i = 0; i < count; i++) {
            out[used++] = (uint8_t)(how == BIG ? units[i] >> 8 : units[i]);
            out[used++] = (uint8_t)(how == BIG ? units[i] : units[i] >> 8);
        }
    }
    return used;
}

static char *make_text(size_t *size_p)
{
    static const char *const words[] = {"tea", "Zürich", "日本", "\xf0\x9f\x8d\xb5", "", "a,b"};
    char *text = malloc(1 << 20);
    size_t size = 0;
    rt_random random = {3};
    assert_non_null(text);
    for (uint32_t i = 0; i < LINES; i++) {
        size += (size_t)sprintf(text + size, "%u", i);
        for (uint32_t n = rt_random_below(&random, 9); n > 0; n--)
            size += (size_t)sprintf(text + size, ";%s", words[rt_random_below(&random, 6)]);
        size += (size_t)sprintf(text + size, i % 3 ? "\n" : "\r\n");
    }
    *size_p = size;
    return text;
}

static int open_path(const char *path)
{
    const int file = open(path, O_RDONLY);
    assert_true(file >= 0);
    return file;
}

static void begin(rt_lines *lines, int *file, const char *path)
{
    if (*file >= 0)
        close(*file);
    *file = open_path(path);
    rt_lines_begin(lines, *file, path, 0, false);
}

// Every line, then some lines after a seek to where they begin. mark: bytes before the first one.
static void expect_text(rt_lines *lines, const char *path, const char *text, size_t size,
                        uint32_t mark)
{
    static rt_lines_place places[LINES + 1];
    static const char *starts[LINES];
    rt_error error = {0};
    rt_line line;
    uint64_t rest;
    int file = -1;
    begin(lines, &file, path);
    const char *at = text;
    for (uint32_t i = 0; i < LINES; i++) {
        const char *end = memchr(at, '\n', (size_t)(text + size - at));
        const size_t length = (size_t)(end - at) - (end > at && end[-1] == '\r');
        if (rt_lines_next(lines, 0, 0, &line, &error))
            fail_msg("%s: line %u: %s", path, i + 1, error.text);
        const uint32_t skipped = i == 0 ? mark : 0;
        assert_int_equal(line.length, length + skipped);
        assert_memory_equal(line.text + skipped, at, length);
        starts[i] = at;
        at = end + 1;
        places[i + 1] =
            (rt_lines_place){rt_lines_offset(lines), i + 1, rt_lines_last(lines), false};
    }
    assert_int_equal(rt_lines_next(lines, 0, 0, &line, &error), RT_END);
    assert_int_equal(places[LINES].offset, size + mark);
    rt_random random = {11};
    for (uint32_t n = 0; n < 4; n++) {
        const uint32_t i = 1 + rt_random_below(&random, LINES - 1);
        begin(lines, &file, path);
        assert_int_equal(rt_lines_seek(lines, &places[i], &rest, &error), RT_OK);
        const rt_lines_tail tail = rt_lines_last(lines);
        assert_memory_equal(&tail, &places[i].tail, sizeof tail);
        begin(lines, &file, path);
        rt_lines_place other = places[i];
        other.tail.hash ^= 1;
        assert_int_equal(rt_lines_seek(lines, &other, &rest, &error), RT_NOT_FOUND);
        begin(lines, &file, path);
        assert_int_equal(rt_lines_seek(lines, &places[i], &rest, &error), RT_OK);
        assert_int_equal(rt_lines_next(lines, 0, 0, &line, &error), RT_OK);
        assert_int_equal(line.number, i + 1);
        assert_memory_equal(line.text, starts[i], line.length);
    }
    close(file);
}

static void lines_of_all_kinds(void **state)
{
    (void)state;
    size_t size;
    char *text = make_text(&size);
    uint8_t *wide = malloc(ROOM), *packed = malloc(2 * ROOM);
    rt_lines *lines;
    assert_true(wide && packed);
    assert_int_equal(rt_lines_create(&lines, NULL), RT_OK);
    for (int how = PLAIN; how < PACKINGS; how++) {
        for (int width = UTF8; width < WIDTHS; width++) {
            const size_t bytes = widen((width_of)width, text, size, wide);
            const size_t count = pack_two((packing)how, wide, bytes, packed);
            char *path = put_bytes(names[how], packed, count);
            expect_text(lines, path, text, size, width == LITTLE || width == BIG ? 3 : 0);
            free(path);
        }
    }
    rt_lines_destroy(lines);
    free(packed);
    free(wide);
    free(text);
}

static void expect_fails(const char *name, const void *bytes, size_t size, const char *words)
{
    char *path = put_bytes(name, bytes, size);
    rt_lines *lines;
    rt_line line;
    rt_error error = {0};
    rt_status status = RT_OK;
    int file = open_path(path);
    assert_int_equal(rt_lines_create(&lines, NULL), RT_OK);
    rt_lines_begin(lines, file, path, 0, strcmp(name, "x") == 0); // as from a pipe
    while (!status)
        status = rt_lines_next(lines, 0, 0, &line, &error);
    assert_int_equal(status, RT_DATA);
    if (!strstr(error.text, words) || !strstr(error.text, name))
        fail_msg("%s: \"%s\" does not say \"%s\"", name, error.text, words);
    rt_lines_destroy(lines);
    close(file);
    free(path);
}

static void packed_files_that_are_cut_or_damaged(void **state)
{
    (void)state;
    size_t size;
    char *text = make_text(&size);
    uint8_t *packed = malloc(ROOM);
    assert_non_null(packed);
    for (int how = ZSTD; how < PACKINGS; how++) {
        const size_t count = pack_one((packing)how, (uint8_t *)text, size, packed);
        expect_fails(names[how], packed, count / 2, "cut off");
        expect_fails(names[how], packed, count - 1, "cut off");
        packed[count / 2] ^= 0x10;
        expect_fails(names[how], packed, count, "is damaged");
        packed[count / 2] ^= 0x10;
        for (size_t padding = 0; padding <= 8; padding += 8) {
            memset(packed + count, 0, padding);
            memcpy(packed + count + padding, "what is behind", 14);
            expect_fails(names[how], packed, count + padding + 14, "the bytes that follow are not");
        }
        // What begins like another file of the packing is one: cut off, or damaged.
        memcpy(packed + count, packed, 20);
        expect_fails(names[how], packed, count + 20, "cut off");
        expect_fails(names[how], packed, 0, "the file is empty");
        expect_fails(names[how], packed, 1, "too few");
    }
    uint8_t *twice = malloc(ROOM);
    assert_non_null(twice);
    const size_t once = pack_one(GZIP, (uint8_t *)text, size, packed);
    expect_fails("t.xz", twice, pack_one(XZ, packed, once, twice), "packed twice");
    free(twice);
    free(packed);
    free(text);
}

static void other_kinds_say_what_they_are(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *words;
    } cases[] = {
        {"PAR1\x15\x04\x15\0\0", 9, "a Parquet file"},
        {"ARROW1\0\0\xff", 9, "an Arrow file"},
        {"FEA1\0\0\0\0", 8, "a Feather file"},
        {"PK\x03\x04\x14\0", 6, "Excel"},
        {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 8, "Microsoft Office"},
        {"SQLite format 3\0\x10", 17, "an SQLite database"},
        {"%PDF-1.7\n", 9, "a PDF document"},
        {"Obj\x01\x04\x16", 6, "an Avro file"},
        {"\x04\x22\x4d\x18\x64", 5, "lz4"},
        {"7z\xbc\xaf\x27\x1c\0", 7, "7-Zip"},
        {"\xff\xfe\0\0a\0\0\0", 8, "UTF-32"},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++)
        expect_fails("x", cases[i].bytes, cases[i].size, cases[i].words);
    expect_fails("t.gz", "1,2\n", 4, "named .gz");
    // What only begins like one of them is text.
    static const char *const texts[] = {"PAR1,item\n", "ORC\n", "BZh,1\n", "Obj\n", "P", "%P\n"};
    for (size_t i = 0; i < RT_COUNT_OF(texts); i++) {
        char *path = put_text("text", texts[i]);
        rt_lines *lines;
        rt_line line;
        rt_error error = {0};
        int file = open_path(path);
        assert_int_equal(rt_lines_create(&lines, NULL), RT_OK);
        rt_lines_begin(lines, file, path, 0, false);
        assert_int_equal(rt_lines_next(lines, 0, 0, &line, &error), RT_OK);
        assert_memory_equal(line.text, texts[i], line.length);
        assert_int_equal(rt_lines_next(lines, 0, 0, &line, &error), RT_END);
        rt_lines_destroy(lines);
        close(file);
        free(path);
    }
}

// A stand-in for lanyard-parquet: it writes the bytes behind the first 16, and fails where the file
// says so.
static const char stand_in[] = "#!/bin/sh\n"
                               "tail -c +17 <\"$1\"\n"
                               "! grep -q FAILS \"$1\" || exit 1\n";

static void files_that_hold_columns(void **state)
{
    (void)state;
    static const uint8_t head[16] = "PAR1\x15\x04\0";
    size_t size;
    char *text = make_text(&size), *program = put_text("lanyard-parquet", stand_in);
    uint8_t *file = malloc(ROOM);
    char path_variable[600];
    rt_lines *lines;
    assert_non_null(file);
    assert_int_equal(chmod(program, 0700), 0);
    snprintf(path_variable, sizeof path_variable, "%s:%s", test_directory(), getenv("PATH"));
    setenv("PATH", path_variable, 1);
    memcpy(file, head, sizeof head);
    memcpy(file + sizeof head, text, size);
    char *path = put_bytes("rows.parquet", file, sizeof head + size);
    assert_int_equal(rt_lines_create(&lines, NULL), RT_OK);
    expect_text(lines, path, text, size, 0); // also from places within
    rt_lines_destroy(lines);                 // while the program writes
    memcpy(file + sizeof head + size, "FAILS\n", 6);
    expect_fails("fails.parquet", file, sizeof head + size + 6, "lanyard-parquet has failed");
    setenv("PATH", "/nowhere", 1);
    rt_error error = {0};
    rt_line line;
    const int descriptor = open_path(path);
    assert_int_equal(rt_lines_create(&lines, NULL), RT_OK);
    rt_lines_begin(lines, descriptor, path, 0, false);
    assert_int_equal(rt_lines_next(lines, 0, 0, &line, &error), RT_IO);
    assert_non_null(strstr(error.text, "lanyard-parquet, which reads such files"));
    rt_lines_destroy(lines);
    close(descriptor);
    free(path);
    free(program);
    free(file);
    free(text);
}

TEST_MAIN(TEST(files_that_hold_columns), TEST(lines_of_all_kinds),
          TEST(packed_files_that_are_cut_or_damaged), TEST(other_kinds_say_what_they_are))
