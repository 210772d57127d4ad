// What a publisher answers, byte for byte, to whoever asks for published files, and for rows.
#include "dispatch/coordinator/dp_publisher.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/wire/rt_bytes.h"
#include "runtime/wire/rt_control.h"
#include "tests/support/test.h"

#define SELF rt_peer(RT_ROLE_COORDINATOR, 0)
#define VISITOR rt_peer(RT_ROLE_VISITOR, 5)
#define PATIENCE_S 20u
#define FILE_BYTES (RT_WIRE_FETCH_BYTES_MAX + 1000u)

static const rt_transport_ops *const ops = &rt_transport_zmq;

typedef struct {
    char folder[400];
    dp_publisher *publisher;
    rt_transport *transport;
    rt_endpoint *endpoint;
    uint64_t asked, end_ns;
    _Atomic(rt_status) in_force; // of the server whose publisher it is; its thread asks
    _Atomic bool pinned;
    uint8_t *bytes; // of the file of rows
} fixture;

static void put_file(const fixture *f, const char *name, const void *bytes, size_t size)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static rt_status tell_in_force(void *context, rt_published *published)
{
    const fixture *f = context;
    *published = (rt_published){.iteration = 4000000001u, .pinned = f->pinned};
    return f->in_force;
}

static rt_status echo(void *context, const rt_message *question, rt_message *answer)
{
    (void)context;
    const rt_wire_looked_up head = {.dim = 77};
    return rt_control_create_struct(answer, RT_MESSAGE_LOOKED_UP, SELF,
                                    rt_message_header(question)->iteration, &head, sizeof head,
                                    NULL);
}

// Of a file of which 7 bytes become PART, whatever they are.
#define PART (3u * RT_WIRE_FETCH_BYTES_MAX / 2)

static rt_status seven(int file, const char *name, uint64_t offset, rt_bytes *part,
                       uint64_t *next_p, uint64_t *checksum_p, rt_error *error)
{
    if (offset % 7)
        return rt_fail(error, RT_DATA, "%s: nothing begins at %" PRIu64, name, offset);
    assert_true(file >= 0);
    uint8_t *to = rt_bytes_extend(part, PART);
    memset(to, (int)offset, PART);
    *next_p = offset + 7;
    *checksum_p = offset + 70;
    return RT_OK;
}

static void open_shelf(fixture *f, bool of_server)
{
    char address[64], tcp[80], folder[500];
    rt_error error = {0};
    *f = (fixture){.end_ns = rt_now_ns() + PATIENCE_S * test_limit_factor() * UINT64_C(1000000000),
                   .bytes = test_random_bytes(FILE_BYTES)};
    snprintf(f->folder, sizeof f->folder, "%s", test_path("published"));
    assert_int_equal(mkdir(f->folder, 0700), 0);
    snprintf(folder, sizeof folder, "%s/ckpt-000000000012", f->folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    put_file(f, "current.json", "{\"iteration\":12}\n", 17);
    put_file(f, "ckpt-000000000012/rows-000-of-001.bin", f->bytes, FILE_BYTES);
    put_file(f, "secret", "secret", 6);
    snprintf(address, sizeof address, "127.0.0.1:%u", test_free_port());
    const dp_publisher_config config = {.address = address,
                                        .folder = f->folder,
                                        .key = "publish.address",
                                        .values = seven,
                                        .in_force = of_server ? tell_in_force : NULL,
                                        .look_up = of_server ? echo : NULL,
                                        .context = f};
    if (dp_publisher_open(&config, &f->publisher, &error))
        fail_msg("%s", error.text);
    snprintf(tcp, sizeof tcp, "tcp://%s", address);
    assert_int_equal(ops->open(&f->transport, NULL), RT_OK);
    assert_int_equal(ops->connect(f->transport, VISITOR, SELF, tcp, &f->endpoint, NULL), RT_OK);
}

static void close_shelf(fixture *f)
{
    ops->end(f->endpoint, 0);
    ops->close(f->transport);
    dp_publisher_close(f->publisher);
    free(f->bytes);
}

static void ask(fixture *f, rt_message_type type, const void *payload, size_t size)
{
    rt_message message;
    assert_int_equal(rt_message_create(&message, type, VISITOR, ++f->asked, size > 0, size), RT_OK);
    if (size)
        memcpy(rt_message_payload(&message), payload, size);
    assert_int_equal(ops->send(f->endpoint, SELF, &message), RT_OK);
}

static void ask_for(fixture *f, const char *name, uint64_t offset)
{
    rt_wire_fetch fetch = {.offset = offset};
    snprintf(fetch.name, sizeof fetch.name, "%s", name);
    ask(f, RT_MESSAGE_FETCH, &fetch, sizeof fetch);
}

// The answer to what was asked last.
static rt_message answer(fixture *f, rt_message_type type)
{
    rt_message message = {0};
    rt_status status = RT_AGAIN;
    while (status == RT_AGAIN) {
        bool ready;
        uint32_t peer;
        rt_error error = {0};
        status = ops->receive(f->endpoint, &peer, &message, &error);
        assert_true(rt_now_ns() < f->end_ns);
        if (status == RT_AGAIN)
            ops->wait(&f->endpoint, 1, -1, 50, &ready);
    }
    assert_int_equal(status, RT_OK);
    assert_int_equal(rt_message_header(&message)->type, type);
    assert_int_equal(rt_message_header(&message)->iteration, f->asked);
    assert_int_equal(rt_message_header(&message)->count, type == RT_MESSAGE_LOOKED_UP);
    return message;
}

static void must_get(fixture *f, const char *name, uint64_t offset, uint64_t total,
                     const void *bytes, size_t size)
{
    rt_wire_fetched fetched;
    ask_for(f, name, offset);
    rt_message message = answer(f, RT_MESSAGE_FETCHED);
    rt_reader reader = rt_message_reader(&message);
    assert_true(rt_reader_get(&reader, &fetched, 1, sizeof fetched));
    assert_int_equal(fetched.status, RT_OK);
    assert_int_equal(fetched.offset, offset);
    assert_int_equal(fetched.total, total);
    assert_int_equal(reader.left, size);
    assert_memory_equal(reader.next, bytes, size);
    rt_message_release(&message);
}

static void must_refuse(fixture *f, const char *name, uint64_t offset, rt_status status,
                        const char *text)
{
    rt_wire_fetched fetched;
    ask_for(f, name, offset);
    rt_message message = answer(f, RT_MESSAGE_FETCHED);
    rt_reader reader = rt_message_reader(&message);
    assert_true(rt_reader_get(&reader, &fetched, 1, sizeof fetched));
    assert_int_equal(fetched.status, status);
    assert_int_equal(fetched.offset, offset);
    if (reader.left != strlen(text) || memcmp(reader.next, text, reader.left) != 0)
        fail_msg("%.*s, expected %s", (int)reader.left, (const char *)reader.next, text);
    rt_message_release(&message);
}

#define ROWS "ckpt-000000000012/rows-000-of-001.bin"

static void must_get_part(fixture *f, uint64_t offset, uint64_t skip, size_t size)
{
    rt_wire_fetched fetched;
    rt_wire_fetch fetch = {.offset = offset, .skip = skip, .values = 1};
    snprintf(fetch.name, sizeof fetch.name, "%s", ROWS);
    ask(f, RT_MESSAGE_FETCH, &fetch, sizeof fetch);
    rt_message message = answer(f, RT_MESSAGE_FETCHED);
    rt_reader reader = rt_message_reader(&message);
    assert_true(rt_reader_get(&reader, &fetched, 1, sizeof fetched));
    assert_int_equal(fetched.status, offset % 7 ? RT_DATA : RT_OK);
    if (!fetched.status) {
        assert_true(fetched.offset == offset && fetched.skip == skip);
        assert_true(fetched.part == PART && fetched.next == offset + 7);
        assert_true(fetched.checksum == offset + 70 && fetched.total == FILE_BYTES);
        assert_int_equal(reader.left, size);
        assert_true(size == 0 || (reader.next[0] == offset && reader.next[size - 1] == offset));
    }
    rt_message_release(&message);
}

// The part of the question before may be another one, or be asked for from any byte on.
static void parts_without_state(void **state)
{
    (void)state;
    fixture f;
    open_shelf(&f, false);
    must_get_part(&f, 0, 0, RT_WIRE_FETCH_BYTES_MAX);
    must_get_part(&f, 7, 0, RT_WIRE_FETCH_BYTES_MAX);
    must_get_part(&f, 0, RT_WIRE_FETCH_BYTES_MAX, PART - RT_WIRE_FETCH_BYTES_MAX);
    must_get_part(&f, 3, 0, 0);
    must_get_part(&f, 7, PART - 1, 1);
    must_get_part(&f, 7, PART, 0);
    must_get_part(&f, 7, UINT64_MAX, 0);
    close_shelf(&f);
}

// A build of before gets an answer that it cannot read either, and so knows why.
static void another_build_is_answered(void **state)
{
    (void)state;
    fixture f;
    rt_message message;
    open_shelf(&f, false);
    assert_int_equal(
        rt_message_create(&message, RT_MESSAGE_FETCH, VISITOR, ++f.asked, 1, sizeof(rt_wire_fetch)),
        RT_OK);
    ((rt_wire_header *)(void *)message.data)->version = RT_WIRE_VERSION - 1;
    assert_int_equal(ops->send(f.endpoint, SELF, &message), RT_OK);
    f.asked = 0; // of no question
    message = answer(&f, RT_MESSAGE_FETCHED);
    const rt_wire_fetched *fetched = (const void *)rt_message_payload(&message);
    assert_int_equal(fetched->status, RT_WIRE);
    assert_int_equal(rt_message_header(&message)->version, RT_WIRE_VERSION);
    rt_message_release(&message);
    close_shelf(&f);
}

static void files_from_any_byte_on(void **state)
{
    (void)state;
    fixture f;
    open_shelf(&f, false);
    must_get(&f, "current.json", 0, 17, "{\"iteration\":12}\n", 17);
    must_get(&f, "current.json", 14, 17, "2}\n", 3);
    must_get(&f, ROWS, 0, FILE_BYTES, f.bytes, RT_WIRE_FETCH_BYTES_MAX);
    must_get(&f, ROWS, 1, FILE_BYTES, f.bytes + 1, RT_WIRE_FETCH_BYTES_MAX);
    must_get(&f, ROWS, RT_WIRE_FETCH_BYTES_MAX, FILE_BYTES, f.bytes + RT_WIRE_FETCH_BYTES_MAX,
             1000);
    must_get(&f, ROWS, FILE_BYTES - 1, FILE_BYTES, f.bytes + FILE_BYTES - 1, 1);
    must_get(&f, ROWS, FILE_BYTES, FILE_BYTES, "", 0);
    must_get(&f, ROWS, UINT64_MAX, FILE_BYTES, "", 0);
    close_shelf(&f);
}

static void what_is_not_handed_out(void **state)
{
    (void)state;
    char path[600];
    fixture f;
    open_shelf(&f, false);
    must_refuse(&f, "secret", 0, RT_NOT_FOUND, "no published file has this name");
    must_refuse(&f, "../published/current.json", 0, RT_NOT_FOUND,
                "no published file has this name");
    must_refuse(&f, "ckpt-000000000013/dense.bin", 7, RT_NOT_FOUND,
                "ckpt-000000000013/dense.bin: No such file or directory");
    snprintf(path, sizeof path, "%s/ckpt-000000000012/dense.bin", f.folder);
    assert_int_equal(symlink("../secret", path), 0);
    must_refuse(&f, "ckpt-000000000012/dense.bin", 0, RT_NOT_FOUND,
                "ckpt-000000000012/dense.bin: Too many levels of symbolic links");
    snprintf(path, sizeof path, "%s/ckpt-000000000012/scale.bin", f.folder);
    assert_int_equal(mkdir(path, 0700), 0);
    must_refuse(&f, "ckpt-000000000012/scale.bin", 0, RT_IO,
                "ckpt-000000000012/scale.bin: Is a directory");
    close_shelf(&f);
}

// What is no question has no answer, and ends nothing.
static void what_is_no_question(void **state)
{
    (void)state;
    fixture f;
    rt_wire_fetch fetch;
    memset(&fetch, 'a', sizeof fetch); // a name that does not end
    open_shelf(&f, false);
    ask(&f, RT_MESSAGE_FETCH, &fetch, sizeof fetch);
    ask(&f, RT_MESSAGE_FETCH, "short", 5);
    ask(&f, RT_MESSAGE_HEARTBEAT, NULL, 0);
    ask(&f, RT_MESSAGE_HELLO, "hello", 5);
    must_get(&f, "current.json", 0, 17, "{\"iteration\":12}\n", 17);
    close_shelf(&f);
}

// A server says what it answers with, whatever is in its folder.
static void what_a_server_has_in_force(void **state)
{
    (void)state;
    static const char loose[] = "{\"iteration\":4000000001,\"pinned\":false}\n";
    static const char pinned[] = "{\"iteration\":4000000001,\"pinned\":true}\n";
    fixture f;
    open_shelf(&f, true);
    must_get(&f, "current.json", 0, strlen(loose), loose, strlen(loose));
    must_refuse(&f, "current.json", 1, RT_NOT_FOUND, "current.json: nothing is in force");
    f.pinned = true;
    must_get(&f, "current.json", 0, strlen(pinned), pinned, strlen(pinned));
    f.in_force = RT_AGAIN;
    must_refuse(&f, "current.json", 0, RT_NOT_FOUND, "current.json: nothing is in force");
    must_get(&f, ROWS, FILE_BYTES - 5, FILE_BYTES, f.bytes + FILE_BYTES - 5, 5);
    close_shelf(&f);
}

// A run has no rows for those who ask one by one; a server does.
static void who_hands_out_rows(void **state)
{
    (void)state;
    static const char text[] = "rows are handed out by a server (serve.hand_out), not by a run";
    for (uint32_t of_server = 0; of_server < 2; of_server++) {
        fixture f;
        rt_wire_looked_up head;
        char command[500];
        open_shelf(&f, of_server);
        ask(&f, RT_MESSAGE_LOOK_UP, "version", 8);
        rt_message message = answer(&f, RT_MESSAGE_LOOKED_UP);
        rt_reader reader = rt_message_reader(&message);
        assert_true(rt_reader_get(&reader, &head, 1, sizeof head));
        assert_int_equal(head.status, of_server ? RT_OK : RT_UNSUPPORTED);
        assert_int_equal(head.dim, of_server ? 77 : 0);
        if (!of_server) {
            assert_int_equal(reader.left, strlen(text));
            assert_memory_equal(reader.next, text, reader.left);
        }
        rt_message_release(&message);
        close_shelf(&f);
        snprintf(command, sizeof command, "rm -r '%s'", f.folder);
        assert_int_equal(system(command), 0);
    }
}

static void where_it_cannot_listen(void **state)
{
    (void)state;
    dp_publisher *publisher = NULL;
    rt_error error = {0};
    const dp_publisher_config config = {
        .address = "192.0.2.1:7", .folder = "/", .key = "publish.address"}; // of no machine
    assert_int_not_equal(dp_publisher_open(&config, &publisher, &error), RT_OK);
    assert_memory_equal(error.text, "publish.address", 15);
    assert_null(publisher);
    dp_publisher_close(NULL);
}

TEST_MAIN(TEST(files_from_any_byte_on), TEST(parts_without_state), TEST(another_build_is_answered),
          TEST(what_is_not_handed_out), TEST(what_is_no_question), TEST(what_a_server_has_in_force),
          TEST(who_hands_out_rows), TEST(where_it_cannot_listen))
