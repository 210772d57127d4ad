// A stream that goes on from a position gives what the one that told it would have given.
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "runtime/rt_hash.h"
#include "runtime/stream/rt_position.h"
#include "runtime/stream/rt_stream.h"
#include "tests/support/config_case.h"

#define LINES 4000u

// Rows "label,id,text"; with bad lines, blank ones within and at the end, long ones, CRLF.
static size_t make_text(char *text, uint64_t seed)
{
    rt_random random = {seed};
    size_t size = 0;
    for (uint32_t i = 0; i < LINES; i++) {
        uint32_t kind = rt_random_below(&random, 100);
        if (kind == 0)
            size += (size_t)sprintf(text + size, "\n");
        else if (kind == 1)
            size += (size_t)sprintf(text + size, "what is this\n");
        else
            size += (size_t)sprintf(text + size, "%u,%u,v%u%s\n", rt_random_below(&random, 2),
                                    rt_random_below(&random, 1000), rt_random_below(&random, 50),
                                    kind == 2 ? "\r" : "");
    }
    return size + (size_t)sprintf(text + size, "\n\n");
}

static void set_up(rt_config *config, bool packed)
{
    char *text = malloc(1 << 20), *frame = malloc(1 << 20), name[32], assignment[700] = "";
    *config = config_fresh();
    config_must_set(config, "stream.format=table");
    config_must_set(config, "stream.malformed_share_max=0.5");
    config_must_set(config, "stream.table={\"columns\": [{\"name\": \"y\", \"kind\": \"label\"},"
                            "{\"name\": \"u\", \"kind\": \"categorical\", \"id\": \"number\"},"
                            "{\"name\": \"v\", \"kind\": \"categorical\"}]}");
    strcpy(assignment, "stream.files=[");
    for (uint32_t f = 0; f < 3; f++) {
        size_t size = make_text(text, f + 1);
        snprintf(name, sizeof name, "%u.csv%s", f, packed ? ".zst" : "");
        if (packed)
            size = ZSTD_compress(frame, 1 << 20, text, size, 1);
        const char *path = config_write_bytes(name, packed ? frame : text, size);
        sprintf(assignment + strlen(assignment), "%s\"%s\"", f ? "," : "", path);
    }
    strcat(assignment, "]");
    config_must_set(config, assignment);
    free(text);
    free(frame);
}

static uint64_t hash_of(const rt_batch *batch)
{
    uint64_t hash = batch->sample_count;
    for (uint32_t i = 0; i < batch->sample_count; i++)
        hash = rt_mix(hash + (uint64_t)(batch->labels[i] + 7));
    for (uint32_t k = 0; k < batch->key_count; k++)
        hash = rt_mix(hash + batch->keys[k]);
    for (size_t k = 0; k < (size_t)batch->sample_count * batch->dense_count; k++)
        hash = rt_mix(hash + (uint64_t)(batch->dense[k] * 1024));
    return hash;
}

// Hashes of all batches from here to the end; positions before each, where wanted.
static uint32_t read_all(rt_stream *stream, uint32_t samples, uint64_t *hashes, rt_bytes *positions,
                         rt_stream_stats *stats)
{
    rt_batch batch;
    rt_error error = {0};
    uint32_t count = 0;
    rt_batch_init(&batch, rt_stream_schema(stream)->dense_count);
    for (;;) {
        if (positions)
            rt_stream_tell(stream, &positions[count]);
        rt_status status = rt_stream_read(stream, &batch, samples, &error);
        if (status == RT_END)
            break;
        if (status)
            fail_msg("%s", error.text);
        hashes[count++] = hash_of(&batch);
    }
    *stats = rt_stream_statistics(stream);
    rt_batch_fini(&batch);
    rt_stream_close(stream);
    return count;
}

static rt_stream *open_stream(const rt_config *config)
{
    rt_stream *stream;
    rt_error error = {0};
    if (rt_stream_open(&config->stream, 5, &stream, &error))
        fail_msg("%s", error.text);
    return stream;
}

// A position as the first format of checkpoints has it.
static rt_status seek_old(rt_stream *stream, const rt_position_old *old, rt_error *error)
{
    rt_bytes position = {0};
    rt_bytes_put(&position, old, sizeof *old);
    rt_status status = rt_stream_seek(stream, &position, error);
    rt_bytes_fini(&position);
    return status;
}

static void from_everywhere(const rt_config *config, uint32_t samples)
{
    static uint64_t hashes[2][4096];
    static rt_bytes positions[4096];
    rt_stream_stats stats[2];
    rt_error error = {0};
    uint32_t count = read_all(open_stream(config), samples, hashes[0], positions, &stats[0]);
    assert_true(count > 20);
    for (uint32_t i = 0; i <= count; i += i < 5 || i + 5 > count ? 1 : 7) {
        rt_stream *stream = open_stream(config);
        if (rt_stream_seek(stream, &positions[i], &error))
            fail_msg("%s", error.text);
        assert_int_equal(read_all(stream, samples, hashes[1], NULL, &stats[1]), count - i);
        assert_memory_equal(hashes[1], hashes[0] + i, (count - i) * sizeof **hashes);
        assert_int_equal(stats[1].samples, stats[0].samples);
        assert_int_equal(stats[1].lines, stats[0].lines);
        assert_int_equal(stats[1].malformed, stats[0].malformed);
        assert_true(stats[1].bytes_read <= stats[1].bytes_all);
    }
}

static void plain_files(void **state)
{
    (void)state;
    rt_config config;
    set_up(&config, false);
    from_everywhere(&config, 3);
    from_everywhere(&config, 128);
    config_must_set(&config, "stream.samples_max=5000");
    from_everywhere(&config, 100);
    rt_config_fini(&config);
}

static void packed_files(void **state)
{
    (void)state;
    rt_config config;
    set_up(&config, true);
    from_everywhere(&config, 64);
    rt_config_fini(&config);
}

static void generated(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    config_must_set(&config, "stream.format=synthetic");
    config_must_set(&config, "stream.samples_max=3000");
    from_everywhere(&config, 64);
    rt_config_fini(&config);
}

static void files_that_became_shorter(void **state)
{
    (void)state;
    for (int packed = 0; packed < 2; packed++) {
        rt_config config;
        rt_error error = {0};
        set_up(&config, packed);
        rt_stream *stream = open_stream(&config);
        const rt_position_old far = {.samples = 9, .lines = 9, .file = 1, .offset = 1 << 20};
        assert_int_equal(seek_old(stream, &far, &error), RT_DATA);
        assert_non_null(strstr(error.text, "1.csv"));
        rt_stream_close(stream);
        stream = open_stream(&config);
        const rt_position_old beyond = {.samples = 9, .lines = 9, .file = 4};
        assert_int_equal(seek_old(stream, &beyond, &error), RT_DATA);
        rt_stream_close(stream);
        rt_config_fini(&config);
    }
}

// Counts that no reader can have had; ever so many blank lines are counted, not gone through.
static void positions_that_cannot_be(void **state)
{
    (void)state;
    rt_config config;
    rt_error error = {0};
    rt_batch batch;
    set_up(&config, false);
    rt_stream *stream = open_stream(&config);
    rt_batch_init(&batch, rt_stream_schema(stream)->dense_count);
    const rt_position_old bad[] = {{.samples = 9, .lines = 8},
                                   {.samples = 9, .lines = 9, .malformed = 1},
                                   {.samples = 0, .lines = 1, .malformed = 2}};
    for (size_t i = 0; i < RT_COUNT_OF(bad); i++) {
        assert_int_equal(seek_old(stream, &bad[i], &error), RT_DATA);
        rt_stream_close(stream);
        stream = open_stream(&config);
    }
    const uint64_t blanks = UINT64_C(1) << 60;
    const rt_position_old blank = {.blank_lines = blanks, .first_blank = 1, .line = blanks};
    assert_int_equal(seek_old(stream, &blank, &error), RT_OK);
    assert_int_equal(rt_stream_read(stream, &batch, 8, &error), RT_OK);   // what stands before it
    assert_int_equal(rt_stream_read(stream, &batch, 8, &error), RT_DATA); // too many are bad
    assert_true(rt_stream_statistics(stream).malformed >= blanks);
    rt_stream_close(stream);
    rt_batch_fini(&batch);
    rt_config_fini(&config);
}

// Unpacking up to the place may take long: a request to stop ends it, and the stream with it.
// Lines that were malformed before the run went on count, and have no place any more.
static void lines_of_before_are_judged(void **state)
{
    (void)state;
    enum { EACH = 1000, BAD = 300 };
    rt_config config;
    rt_batch batch;
    rt_bytes position = {0};
    rt_error error = {0};
    char *text = calloc(2 * EACH + BAD, 16), assignment[700];
    size_t size = 0;
    assert_non_null(text);
    set_up(&config, false);
    for (int i = 0; i < 2 * EACH + BAD; i++)
        size += (size_t)sprintf(text + size,
                                i >= EACH && i < EACH + BAD ? "what is this\n" : "1,2,v\n");
    snprintf(assignment, sizeof assignment, "stream.files=[\"%s\"]",
             config_write_bytes("bad.csv", text, size));
    config_must_set(&config, assignment);
    rt_stream *stream = open_stream(&config);
    rt_batch_init(&batch, 0);
    assert_int_equal(rt_stream_read(stream, &batch, EACH + 9, &error), RT_OK);
    rt_stream_tell(stream, &position);
    rt_stream_close(stream);

    config_must_set(&config, "stream.malformed_share_max=0.1");
    stream = open_stream(&config);
    assert_int_equal(rt_stream_seek(stream, &position, &error), RT_OK);
    rt_status status;
    while ((status = rt_stream_read(stream, &batch, EACH, &error)) == RT_OK) {
    }
    assert_int_equal(status, RT_DATA);
    assert_string_equal(error.text,
                        "300 of the last 2300 lines are malformed, stream.malformed_share_max "
                        "allows a share of 0.1; all of them came before the run went on: its log "
                        "from then says where and why");
    rt_stream_close(stream);
    rt_batch_fini(&batch);
    rt_bytes_fini(&position);
    rt_config_fini(&config);
    free(text);
}

static void a_stop_ends_unpacking(void **state)
{
    (void)state;
    int stop[2];
    rt_config config;
    rt_error error = {0};
    rt_batch batch;
    set_up(&config, true);
    rt_stream *stream = open_stream(&config);
    rt_batch_init(&batch, rt_stream_schema(stream)->dense_count);
    const rt_position_old far = {.file = 1, .offset = UINT64_C(1) << 50};
    assert_int_equal(pipe(stop), 0);
    assert_int_equal(write(stop[1], "", 1), 1);
    rt_stream_watch(stream, stop[0], -1);
    if (seek_old(stream, &far, &error))
        fail_msg("%s", error.text);
    assert_int_equal(rt_stream_read(stream, &batch, 8, &error), RT_END);
    rt_stream_close(stream);
    close(stop[0]);
    close(stop[1]);
    rt_batch_fini(&batch);
    rt_config_fini(&config);
}

TEST_MAIN(TEST(plain_files), TEST(packed_files), TEST(generated), TEST(files_that_became_shorter),
          TEST(positions_that_cannot_be), TEST(lines_of_before_are_judged),
          TEST(a_stop_ends_unpacking))
