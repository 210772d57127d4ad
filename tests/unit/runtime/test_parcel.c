// A file from one end to the other; the case carries the messages, and damages them.
#include "runtime/files/rt_parcel.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/test.h"

#define SHARD rt_peer(RT_ROLE_PS, 3)
#define COORDINATOR rt_peer(RT_ROLE_COORDINATOR, 0)
#define ITERATION 40u
#define FILE_NUMBER 7u
#define QUEUE_MAX 64u
#define PATIENCE_S 20.0

// The link: what was sent and has not been carried over.
typedef struct {
    rt_message pieces[QUEUE_MAX];
    uint32_t count, most;
    rt_parcel_file parcel;
    rt_parcel_in in;
    int wake_fd;
    uint8_t *bytes;
    size_t size;
} fixture;

static rt_status queue_piece(void *context, rt_message *message, rt_error *error)
{
    fixture *f = context;
    (void)error;
    assert_true(f->count < QUEUE_MAX);
    f->pieces[f->count++] = *message;
    f->most = f->count > f->most ? f->count : f->most;
    *message = (rt_message){0};
    return RT_OK;
}

static void write_source(const char *name, const uint8_t *bytes, size_t size)
{
    FILE *file = fopen(test_path(name), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void setup(fixture *f, size_t size, const char *given)
{
    char target[300]; // test_path's own goes with its next call
    snprintf(target, sizeof target, "%s", given);
    *f = (fixture){.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), .size = size};
    rt_error error = {0};
    rt_parcel_config config = {.send = queue_piece,
                               .context = f,
                               .sender = SHARD,
                               .file = FILE_NUMBER,
                               .iteration = ITERATION};
    f->bytes = test_random_bytes(size);
    write_source("source", f->bytes, size);
    if (rt_parcel_open(&f->parcel, test_path("source"), &config, f->wake_fd, &error))
        fail_msg("%s", error.text);
    assert_int_equal(config.total, size);
    assert_int_equal(
        rt_parcel_expect(&f->in, SHARD, ITERATION, FILE_NUMBER, target, f->wake_fd, &error), RT_OK);
}

static void teardown(fixture *f)
{
    for (uint32_t i = 0; i < f->count; i++)
        rt_message_release(&f->pieces[i]);
    rt_parcel_close(&f->parcel);
    rt_parcel_drop(&f->in);
    close(f->wake_fd);
    free(f->bytes);
}

static void await(fixture *f)
{
    eventfd_t woken;
    struct pollfd one = {.fd = f->wake_fd, .events = POLLIN};
    (void)poll(&one, 1, (int)(PATIENCE_S * 1000));
    (void)eventfd_read(f->wake_fd, &woken);
}

// The first piece reaches the receiver.
static rt_status deliver(fixture *f, rt_error *error)
{
    rt_message message = f->pieces[0];
    memmove(f->pieces, f->pieces + 1, --f->count * sizeof *f->pieces);
    rt_status status = rt_parcel_take(&f->in, &message, error);
    rt_message_release(&message);
    return status;
}

static void answer(fixture *f)
{
    rt_message message = {0};
    rt_error error = {0};
    if (rt_parcel_look(&f->in, COORDINATOR, &message) != RT_OK)
        return;
    if (rt_parcel_taken(&f->parcel.out, &message, "coordinator", &error))
        fail_msg("%s", error.text);
    rt_message_release(&message);
}

// Until both ends know how it ended.
static void carry_all(fixture *f)
{
    const uint64_t end = rt_now_ns() + (uint64_t)(PATIENCE_S * 1e9);
    while (!f->parcel.out.is_complete && !f->parcel.out.refusal.status) {
        rt_error error = {0};
        assert_true(rt_now_ns() < end);
        assert_int_equal(rt_parcel_step(&f->parcel, &error), RT_OK);
        while (f->count > 0) {
            if (deliver(f, &error))
                fail_msg("%s", error.text);
        }
        const size_t room = rt_parcel_room(&f->parcel.out);
        answer(f);
        if (!f->parcel.out.is_complete && !f->parcel.out.refusal.status &&
            rt_parcel_room(&f->parcel.out) == room) // more of it would be a message that came
            await(f);
    }
}

static void a_file_arrives_as_it_is(void **state)
{
    (void)state;
    const size_t piece = RT_WIRE_PIECE_BYTES_MAX;
    const size_t sizes[] = {1, piece - 1, piece, piece + 1, 16 * piece, 16 * piece + 1, 5000001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fixture f;
        uint8_t *got = malloc(sizes[i] + 1);
        setup(&f, sizes[i], test_path("target"));
        carry_all(&f);
        assert_int_equal(f.in.status, RT_OK);
        assert_true(f.most <= RT_WIRE_PIECES_MAX);
        assert_true(rt_parcel_sum(&f.in) == rt_hash_bytes(f.bytes, sizes[i]));
        FILE *file = fopen(test_path("target"), "r");
        assert_non_null(file);
        assert_int_equal(fread(got, 1, sizes[i] + 1, file), sizes[i]);
        assert_memory_equal(got, f.bytes, sizes[i]);
        fclose(file);
        free(got);
        teardown(&f);
    }
}

// While the receiver says nothing, no more than its share is under way.
static void a_slow_receiver_holds_the_sender_back(void **state)
{
    (void)state;
    fixture f;
    rt_error error = {0};
    setup(&f, 5000000, test_path("target"));
    while (rt_parcel_room(&f.parcel.out) > 0) {
        assert_int_equal(rt_parcel_step(&f.parcel, &error), RT_OK);
        if (rt_parcel_room(&f.parcel.out) > 0)
            await(&f);
    }
    assert_int_equal(f.count, RT_WIRE_PIECES_MAX);
    carry_all(&f);
    assert_int_equal(f.most, RT_WIRE_PIECES_MAX);
    assert_int_equal(f.in.status, RT_OK);
    teardown(&f);
}

// What a piece must not be; how to make it so of a good one.
typedef struct {
    const char *what;
    size_t at;
    uint8_t flip;
} damage;

static void damaged_pieces_are_refused(void **state)
{
    (void)state;
    const size_t payload = sizeof(rt_wire_header);
    const damage all[] = {
        {"checksum", payload + sizeof(rt_wire_piece) + 100, 1},
        {"checksum", payload + offsetof(rt_wire_piece, checksum), 1},
        {"checksum", payload + offsetof(rt_wire_piece, sum), 1},
        {"expected those from 0", payload + offsetof(rt_wire_piece, offset), 1},
        {"expected those from 0", payload + offsetof(rt_wire_piece, total) + 1, 3},
        {"nobody waits for", payload + offsetof(rt_wire_piece, file), 1},
        {"nobody waits for", offsetof(rt_wire_header, iteration), 1},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        fixture f;
        rt_error error = {0};
        setup(&f, 1000, test_path("target"));
        while (f.count == 0) {
            assert_int_equal(rt_parcel_step(&f.parcel, &error), RT_OK);
            if (f.count == 0)
                await(&f);
        }
        f.pieces[0].data[all[i].at] ^= all[i].flip;
        assert_int_equal(deliver(&f, &error), RT_WIRE);
        if (!strstr(error.text, all[i].what) || !strstr(error.text, "ps 3"))
            fail_msg("\"%s\" lacks \"%s\"", error.text, all[i].what);
        teardown(&f);
    }
}

static void what_the_receiver_cannot_write_is_told(void **state)
{
    (void)state;
    fixture f;
    setup(&f, 3000000, "/nowhere/at/all");
    carry_all(&f);
    assert_int_equal(f.in.status, RT_IO);
    assert_non_null(strstr(f.in.error.text, "/nowhere/at/all"));
    assert_int_equal(f.parcel.out.refusal.status, RT_IO);
    assert_non_null(
        strstr(f.parcel.out.refusal.text, "coordinator: cannot create /nowhere/at/all"));
    assert_int_equal(rt_parcel_room(&f.parcel.out), 0);
    teardown(&f);
}

static void what_the_sender_cannot_read_is_told(void **state)
{
    (void)state;
    fixture f;
    rt_error error = {0};
    setup(&f, 3000000, test_path("target"));
    f.parcel.out.config.total += 10; // as if it had been longer when it was opened
    carry_all(&f);
    while (f.count > 0)
        assert_int_equal(deliver(&f, &error), RT_OK);
    assert_int_equal(f.in.status, RT_IO);
    assert_non_null(strstr(f.in.error.text, "ps 3: the file has become shorter"));
    rt_parcel_drop(&f.in);
    rt_parcel_config config = {.send = queue_piece, .context = &f};
    rt_parcel_file none;
    assert_int_equal(rt_parcel_open(&none, test_path("missing"), &config, f.wake_fd, &error),
                     RT_NOT_FOUND);
    assert_non_null(strstr(error.text, "missing"));
    teardown(&f);
    assert_int_not_equal(access(test_path("target"), F_OK), 0);
}

TEST_MAIN(TEST(a_file_arrives_as_it_is), TEST(a_slow_receiver_holds_the_sender_back),
          TEST(damaged_pieces_are_refused), TEST(what_the_receiver_cannot_write_is_told),
          TEST(what_the_sender_cannot_read_is_told))
