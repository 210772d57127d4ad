// Files that another thread reads ahead: pieces of any size, slow ones, none at all.
#include "runtime/files/rt_ahead.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define PATIENCE_MS 20000 // a step that takes longer has failed

static void write_file(const char *path, const uint8_t *bytes, size_t size)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static rt_ahead *open_ahead(const char *path)
{
    rt_ahead *ahead;
    rt_error error = {0};
    if (rt_ahead_open(path, &ahead, &error))
        fail_msg("%s", error.text);
    return ahead;
}

// What take says once it says something; waits by the descriptor alone.
static rt_status take(rt_ahead *ahead, uint8_t *bytes, size_t size, size_t *got_p, rt_error *error)
{
    rt_status status;
    while ((status = rt_ahead_take(ahead, bytes, size, got_p, error)) == RT_AGAIN) {
        struct pollfd one = {.fd = rt_ahead_fd(ahead), .events = POLLIN};
        if (poll(&one, 1, PATIENCE_MS) != 1)
            fail_msg("nothing came");
    }
    return status;
}

static void all_of_a_file(const char *path, const uint8_t *bytes, size_t size, size_t most)
{
    uint8_t *piece = malloc(most);
    rt_random random = {most};
    rt_ahead *ahead = open_ahead(path);
    size_t at = 0, got;
    assert_non_null(piece);
    rt_status status;
    while ((status = take(ahead, piece, 1 + rt_random_u64(&random) % most, &got, NULL)) == RT_OK) {
        assert_true(got > 0 && got <= size - at);
        assert_true(memcmp(piece, bytes + at, got) == 0);
        at += got;
    }
    assert_int_equal(status, RT_END);
    assert_int_equal(at, size);
    rt_ahead_close(ahead);
    free(piece);
}

static void pieces_of_any_size(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 1, RT_AHEAD_BYTES, 3 * RT_AHEAD_BYTES + 777};
    const size_t most[] = {1000, 300000, 2 * RT_AHEAD_BYTES};
    for (size_t i = 0; i < RT_COUNT_OF(sizes); i++) {
        uint8_t *bytes = test_random_bytes(sizes[i]);
        write_file(test_path("file"), bytes, sizes[i]);
        for (size_t k = 0; k < RT_COUNT_OF(most); k++)
            all_of_a_file(test_path("file"), bytes, sizes[i], most[k]);
        free(bytes);
    }
}

static void what_cannot_be_read_is_named(void **state)
{
    (void)state;
    uint8_t byte;
    size_t got;
    rt_error error = {0};
    rt_ahead *ahead = open_ahead(test_path("nothing"));
    assert_int_equal(take(ahead, &byte, 1, &got, &error), RT_IO);
    assert_non_null(strstr(error.text, "cannot open"));
    assert_non_null(strstr(error.text, "nothing: No such file or directory"));
    rt_ahead_close(ahead);
    ahead = open_ahead("/");
    assert_int_equal(take(ahead, &byte, 1, &got, &error), RT_IO);
    assert_non_null(strstr(error.text, "cannot read"));
    rt_ahead_close(ahead);
}

// The reader may stand still: in open, before the first byte, with a full buffer.
static void closing_waits_for_nothing(void **state)
{
    (void)state;
    uint8_t byte, *bytes = test_random_bytes(3 * RT_AHEAD_BYTES);
    size_t got;
    assert_int_equal(mkfifo(test_path("pipe"), 0600), 0);
    rt_ahead *ahead = open_ahead(test_path("pipe"));
    assert_int_equal(rt_ahead_take(ahead, &byte, 1, &got, NULL), RT_AGAIN);
    rt_ahead_close(ahead);

    assert_int_equal(mkfifo(test_path("other"), 0600), 0); // that of before opens the first one
    ahead = open_ahead(test_path("other"));
    const int writer = open(test_path("other"), O_WRONLY);
    assert_int_equal(rt_ahead_take(ahead, &byte, 1, &got, NULL), RT_AGAIN);
    assert_int_equal(write(writer, "x", 1), 1);
    assert_int_equal(take(ahead, &byte, 1, &got, NULL), RT_OK);
    assert_int_equal(byte, 'x');
    assert_int_equal(rt_ahead_take(ahead, &byte, 1, &got, NULL), RT_AGAIN);
    rt_ahead_close(ahead);
    close(writer);

    write_file(test_path("file"), bytes, 3 * RT_AHEAD_BYTES);
    ahead = open_ahead(test_path("file"));
    assert_int_equal(take(ahead, &byte, 1, &got, NULL), RT_OK);
    assert_int_equal(byte, bytes[0]);
    rt_ahead_close(ahead);
    free(bytes);
}

TEST_MAIN(TEST(pieces_of_any_size), TEST(what_cannot_be_read_is_named),
          TEST(closing_waits_for_nothing))
