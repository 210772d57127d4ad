#include "runtime/wire/rt_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define SENDER (rt_peer(RT_ROLE_WORKER, 3))

static rt_message message_of(rt_message_type type, uint32_t count, uint64_t payload_bytes)
{
    rt_message message = {0};
    assert_int_equal(rt_message_create(&message, type, SENDER, 7, count, payload_bytes), RT_OK);
    memset(rt_message_payload(&message), 0xa5, payload_bytes);
    return message;
}

// Whether a message of this type with count records and payload_bytes is accepted.
static bool is_valid(rt_message_type type, uint32_t count, uint64_t payload_bytes)
{
    rt_error error = {0};
    rt_message message = message_of(type, count, payload_bytes);
    rt_status status = rt_message_validate(&message, SENDER, &error);
    assert_true(status == RT_OK || status == RT_WIRE);
    if (status)
        assert_non_null(strstr(error.text, "worker 3"));
    rt_message_release(&message);
    return status == RT_OK;
}

static void create_fills_the_header(void **state)
{
    (void)state;
    rt_message message = {0};
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_PUSH_ROW, SENDER, 99, 5, 400), RT_OK);
    const uint8_t want[] = {
        0x52,
        0x4c,
        0x41,
        0x59, // "RLAY"
        RT_WIRE_VERSION,
        0,
        22,
        0, // PUSH_ROW
        0,
        0,
        0,
        0, // epoch
        3,
        0,
        0,
        2, // worker 3
        99,
        0,
        0,
        0,
        0,
        0,
        0,
        0, // iteration
        5,
        0,
        0,
        0, // count
        0,
        0,
        0,
        0, // stamp
        0x90,
        1,
        0,
        0,
        0,
        0,
        0,
        0, // 400
    };
    assert_int_equal(message.size, 440);
    assert_int_equal((uintptr_t)message.data % 8, 0);
    assert_memory_equal(message.data, want, sizeof want);
    assert_ptr_equal(rt_message_payload(&message), message.data + 40);
    rt_message_release(&message);
    assert_null(message.data);
    rt_message_release(&message); // an empty one too
}

static void create_refuses_what_nobody_would_accept(void **state)
{
    (void)state;
    rt_message message = {0};
    rt_status status = rt_message_create(&message, RT_MESSAGE_DENSE_GRAD, SENDER, 1, 1,
                                         RT_WIRE_PAYLOAD_BYTES_MAX + 4);
    assert_int_equal(status, RT_LIMIT);
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_STOP, SENDER, 1, 1, UINT64_MAX),
                     RT_LIMIT);
    assert_null(message.data);
}

static void release_gives_back_once(void **state)
{
    (void)state;
    rt_message message = message_of(RT_MESSAGE_STOP, 0, 10);
    message.size = 0; // what was sent or read does not matter
    rt_message_release(&message);
    assert_null(message.release);
    assert_null(message.hint);
}

static void finish_shortens(void **state)
{
    (void)state;
    rt_message message = message_of(RT_MESSAGE_PULL, 10, 160);
    rt_message_finish(&message, 4, 64);
    assert_int_equal(message.size, 104);
    assert_int_equal(rt_message_header(&message)->count, 4);
    assert_int_equal(rt_message_header(&message)->payload_bytes, 64);
    assert_int_equal(rt_message_validate(&message, SENDER, NULL), RT_OK);
    rt_message_release(&message);
}

static void payload_sizes_by_type(void **state)
{
    (void)state;
    // Records only.
    assert_true(is_valid(RT_MESSAGE_PULL, 3, 48));
    assert_true(is_valid(RT_MESSAGE_PULL, 0, 0));
    assert_false(is_valid(RT_MESSAGE_PULL, 3, 47));
    assert_false(is_valid(RT_MESSAGE_PULL, 3, 64));
    // Records and floats; in ROWS some may carry state and others not.
    assert_true(is_valid(RT_MESSAGE_ROWS, 2, 2 * 16 + 3 * 4));
    assert_false(is_valid(RT_MESSAGE_ROWS, 2, 2 * 16 + 3 * 4 + 1));
    assert_false(is_valid(RT_MESSAGE_ROWS, 2, 16));
    assert_false(is_valid(RT_MESSAGE_ROWS, 0, 4));
    // Records with as many floats each.
    assert_true(is_valid(RT_MESSAGE_PUSH_ROW, 2, 2 * (16 + 3 * 4)));
    assert_false(is_valid(RT_MESSAGE_PUSH_ROW, 2, 2 * 16 + 3 * 4));
    assert_true(is_valid(RT_MESSAGE_PUSH_GRAD, 3, 3 * (24 + 5 * 4)));
    assert_false(is_valid(RT_MESSAGE_PUSH_GRAD, 3, 3 * 24 - 4));
    assert_false(is_valid(RT_MESSAGE_PUSH_GRAD, 0, 24));
    // Floats, nothing, anything.
    assert_true(is_valid(RT_MESSAGE_DENSE_GRAD, 1, 8 + 12));
    assert_false(is_valid(RT_MESSAGE_DENSE_SUM, 1, 8 + 10));
    assert_false(is_valid(RT_MESSAGE_DENSE_SUM, 1, 4)); // shorter than who takes part
    assert_true(is_valid(RT_MESSAGE_DENSE_SUM_BF16, 1, 8 + 10));
    assert_false(is_valid(RT_MESSAGE_DENSE_GRAD_BF16, 1, 8 + 11));
    assert_true(is_valid(RT_MESSAGE_DENSE_STATE, 5, 8 + 12));
    assert_false(is_valid(RT_MESSAGE_DENSE_STATE, 5, 4));
    assert_true(is_valid(RT_MESSAGE_DENSE_STEP, 1, 80));
    assert_false(is_valid(RT_MESSAGE_DENSE_STEP, 1, 76));
    assert_true(is_valid(RT_MESSAGE_DENSE_PULL, 0, 0));
    assert_false(is_valid(RT_MESSAGE_DENSE_PULL, 0, 4));
    assert_true(is_valid(RT_MESSAGE_HEARTBEAT, 0, 0));
    assert_false(is_valid(RT_MESSAGE_HEARTBEAT, 0, 1));
    assert_false(is_valid(RT_MESSAGE_FINISH, 0, 8));
    assert_true(is_valid(RT_MESSAGE_STOP, 0, 11));
}

// Records that are there, and not a byte more; every type that has them.
static void payloads_of_records_alone(void **state)
{
    (void)state;
    static const struct {
        rt_message_type type;
        uint32_t bytes;
        bool floats; // may follow
    } types[] = {{RT_MESSAGE_PULL, 16, false},
                 {RT_MESSAGE_FORGET, 16, false},
                 {RT_MESSAGE_LINK, sizeof(rt_wire_link), false},
                 {RT_MESSAGE_ROWS, 16, true},
                 {RT_MESSAGE_ROWS_CODED, 16, true},
                 {RT_MESSAGE_PUSH_ROW, 16, true},
                 {RT_MESSAGE_HANDED, 16, true},
                 {RT_MESSAGE_PUSH_CHANGE, 16, true},
                 {RT_MESSAGE_PUSH_GRAD, 24, true},
                 {RT_MESSAGE_PUSH_GRAD_CODED, 24, true},
                 {RT_MESSAGE_GRADS, 24, true},
                 {RT_MESSAGE_PUSH_DELTA, 24, true},
                 {RT_MESSAGE_PUSH_DELTA_CODED, 24, true},
                 {RT_MESSAGE_DENSE_STEP, 80, false},
                 {RT_MESSAGE_DENSE_JOIN, sizeof(rt_wire_dense_join), false},
                 {RT_MESSAGE_DENSE_JOINED, sizeof(rt_wire_dense_join), false}};
    for (size_t i = 0; i < RT_COUNT_OF(types); i++) {
        for (uint32_t count = 0; count < 4; count++) {
            const uint32_t bytes = count * types[i].bytes;
            assert_true(is_valid(types[i].type, count, bytes));
            assert_int_equal(is_valid(types[i].type, count, bytes + 4 * count),
                             types[i].floats || count == 0);
            for (uint32_t more = 1; more < 4; more++)
                assert_false(is_valid(types[i].type, count, bytes + more));
            if (count)
                assert_false(is_valid(types[i].type, count, bytes - 4));
        }
    }
    for (uint32_t bytes = 0; bytes < 20; bytes++) { // one record, of 8 bytes, and numbers
        assert_int_equal(is_valid(RT_MESSAGE_DENSE_GRAD, 1, bytes), bytes >= 8 && bytes % 4 == 0);
        assert_int_equal(is_valid(RT_MESSAGE_DENSE_STATE, 1, bytes), bytes >= 8 && bytes % 4 == 0);
        assert_int_equal(is_valid(RT_MESSAGE_DENSE_SUM_BF16, 1, bytes),
                         bytes >= 8 && bytes % 2 == 0);
        assert_int_equal(is_valid(RT_MESSAGE_SAVE, 0, bytes), bytes == 0);
        assert_int_equal(is_valid(RT_MESSAGE_MARK, 0, bytes), bytes == 0);
        assert_true(is_valid(RT_MESSAGE_PIECE, 0, bytes));
    }
}

// The largest payload, which nobody writes here; and one more.
static void the_largest_message(void **state)
{
    (void)state;
    rt_message message;
    assert_int_equal(
        rt_message_create(&message, RT_MESSAGE_PIECE, SENDER, 1, 1, RT_WIRE_PAYLOAD_BYTES_MAX),
        RT_OK);
    assert_int_equal(rt_message_validate(&message, SENDER, NULL), RT_OK);
    message.size++;
    rt_message_header(&message)->payload_bytes++;
    assert_int_equal(rt_message_validate(&message, SENDER, NULL), RT_WIRE);
    rt_message_release(&message);
    assert_int_equal(
        rt_message_create(&message, RT_MESSAGE_PIECE, SENDER, 1, 1, RT_WIRE_PAYLOAD_BYTES_MAX + 1),
        RT_LIMIT);
}

static uint32_t given_back;

static void count_release(void *hint)
{
    given_back++;
    free(hint);
}

// One block for all; the last one gives it back.
static void copies_share_their_bytes(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= 4; count++) {
        rt_message message = message_of(RT_MESSAGE_STOP, 0, 12), copies[4];
        uint8_t *data = message.data;
        message.release = count_release;
        given_back = 0;
        assert_int_equal(rt_message_share(&message, count, copies), RT_OK);
        assert_null(message.data);
        for (uint32_t i = 0; i < count; i++) {
            assert_true(copies[i].data == data && copies[i].size == 52);
            assert_int_equal(rt_message_validate(&copies[i], SENDER, NULL), RT_OK);
        }
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(given_back, 0);
            rt_message_release(&copies[i]);
        }
        assert_int_equal(given_back, 1);
    }
}

// Who may be named as a sender, and which of them set the time.
static void senders_are_those_of_a_run(void **state)
{
    (void)state;
    const struct {
        uint32_t sender;
        bool is_known, may_stamp;
    } cases[] = {{rt_peer(RT_ROLE_COORDINATOR, 0), true, false},
                 {rt_peer(RT_ROLE_COORDINATOR, 1), false, false},
                 {rt_peer(RT_ROLE_WORKER, 0), true, false},
                 {rt_peer(RT_ROLE_WORKER, RT_WORKERS_MAX - 1), true, false},
                 {rt_peer(RT_ROLE_WORKER, RT_WORKERS_MAX), false, false},
                 {rt_peer(RT_ROLE_PS, 0), true, true},
                 {rt_peer(RT_ROLE_PS, 0xffffff), true, true},
                 {rt_peer(RT_ROLE_VISITOR, 5), true, false}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        rt_message message = message_of(RT_MESSAGE_HEARTBEAT, 0, 0);
        rt_message_header(&message)->sender = cases[i].sender;
        assert_int_equal(rt_message_validate(&message, SENDER, NULL),
                         cases[i].is_known ? RT_OK : RT_WIRE);
        rt_message_header(&message)->stamp = 1;
        assert_int_equal(rt_message_validate(&message, SENDER, NULL),
                         cases[i].may_stamp ? RT_OK : RT_WIRE);
        rt_message_release(&message);
    }
}

// 2^32 - 1 records of 16 bytes are 64 GB: must not wrap round to something that fits.
static void count_does_not_overflow(void **state)
{
    (void)state;
    assert_false(is_valid(RT_MESSAGE_PULL, UINT32_MAX, 160));
    assert_false(is_valid(RT_MESSAGE_PULL, 1u << 28, 0)); // x 16 is 2^32
    assert_false(is_valid(RT_MESSAGE_PUSH_ROW, 1u << 28, 0));
    assert_false(is_valid(RT_MESSAGE_ROWS, 1u << 28, 4096));
    assert_false(is_valid(RT_MESSAGE_PUSH_GRAD, 0xaaaaaaabu, 8)); // x 24 is 8 modulo 2^32
}

// Sets width bytes of a good message's header to value; it must be refused, the text saying why.
static void refuse(size_t offset, size_t width, uint64_t value, const char *why)
{
    rt_error error = {0};
    rt_message message = message_of(RT_MESSAGE_PULL, 2, 32);
    assert_int_equal(rt_message_validate(&message, SENDER, &error), RT_OK);
    memcpy(message.data + offset, &value, width);
    assert_int_equal(rt_message_validate(&message, SENDER, &error), RT_WIRE);
    assert_int_equal(error.status, RT_WIRE);
    if (!strstr(error.text, why) || !strstr(error.text, "worker 3"))
        fail_msg("\"%s\" does not say \"%s\" and who", error.text, why);
    rt_message_release(&message);
}

static void bad_headers_are_named(void **state)
{
    (void)state;
    refuse(offsetof(rt_wire_header, magic), 4, 0x12345678, "0x12345678");
    char newer[32];
    snprintf(newer, sizeof newer, "version %u", RT_WIRE_VERSION + 1);
    refuse(offsetof(rt_wire_header, version), 2, RT_WIRE_VERSION + 1, newer);
    refuse(offsetof(rt_wire_header, version), 2, 0, "version 0");
    refuse(offsetof(rt_wire_header, type), 2, 0, "unknown type 0");
    refuse(offsetof(rt_wire_header, type), 2, 4711, "unknown type 4711");
    refuse(offsetof(rt_wire_header, type), 2, 0xffff, "unknown type 65535");
    refuse(offsetof(rt_wire_header, sender), 4, 0, "sender");
    refuse(offsetof(rt_wire_header, sender), 4, 0x02000040, "sender"); // worker 64
    refuse(offsetof(rt_wire_header, sender), 4, 0x01000001, "sender"); // coordinator 1
    refuse(offsetof(rt_wire_header, sender), 4, 0x05000000, "sender"); // no such role
    refuse(offsetof(rt_wire_header, stamp), 4, 1, "time stamp");
    refuse(offsetof(rt_wire_header, count), 4, 3, "3 records");
    refuse(offsetof(rt_wire_header, payload_bytes), 8, 48, "header says 48");
    refuse(offsetof(rt_wire_header, payload_bytes), 8, UINT64_MAX - 7, "header says");
    refuse(offsetof(rt_wire_header, payload_bytes), 8, 0, "header says 0");
}

// Every prefix of a good message is refused; the block is as long as the prefix, so that a
// sanitizer sees a read past its end.
static void truncated_messages_are_refused(void **state)
{
    (void)state;
    rt_message whole = message_of(RT_MESSAGE_PULL, 2, 32);
    for (size_t size = 0; size < whole.size; size++) {
        uint8_t *copy = malloc(size ? size : 1);
        memcpy(copy, whole.data, size);
        rt_message cut = {copy, size, free, copy};
        assert_int_equal(rt_message_validate(&cut, SENDER, NULL), RT_WIRE);
        rt_message_release(&cut);
    }
    rt_message_release(&whole);
}

static void rubbish_is_refused(void **state)
{
    (void)state;
    rt_random random = {1};
    for (int i = 0; i < 20000; i++) {
        uint64_t words[12];
        for (size_t w = 0; w < RT_COUNT_OF(words); w++)
            words[w] = rt_random_u64(&random);
        rt_message message = {(uint8_t *)words, rt_random_below(&random, sizeof words + 1), NULL,
                              NULL};
        assert_int_equal(rt_message_validate(&message, SENDER, NULL), RT_WIRE);
    }
}

// Processes of two versions can tell each other so, which takes a HELLO and a STOP; nothing else.
static void other_versions_may_say_hello_and_stop(void **state)
{
    (void)state;
    static const uint16_t versions[] = {0, RT_WIRE_VERSION - 1, RT_WIRE_VERSION + 1, UINT16_MAX};
#define XX(name, number, ...) RT_MESSAGE_##name,
    static const rt_message_type types[] = { RT_MESSAGE_MAP(XX) };
#undef XX
    for (size_t v = 0; v < RT_COUNT_OF(versions); v++) {
        for (size_t i = 0; i < RT_COUNT_OF(types); i++) {
            rt_message message = message_of(types[i], 0, 0);
            rt_message_header(&message)->version = versions[v];
            const bool passes = types[i] == RT_MESSAGE_HELLO || types[i] == RT_MESSAGE_STOP;
            assert_int_equal(rt_message_validate(&message, SENDER, NULL), passes ? RT_OK : RT_WIRE);
            rt_message_release(&message);
        }
    }
}

// An epoch is the receiver's matter: whatever it is, it passes.
static void any_epoch_passes(void **state)
{
    (void)state;
    rt_message message = message_of(RT_MESSAGE_HEARTBEAT, 0, 0);
    rt_message_header(&message)->epoch = UINT32_MAX;
    assert_int_equal(rt_message_validate(&message, SENDER, NULL), RT_OK);
    rt_message_release(&message);
}

static void reader_stops_at_the_end(void **state)
{
    (void)state;
    rt_message message = message_of(RT_MESSAGE_SLICE, 0, 20);
    rt_reader reader = rt_message_reader(&message);
    assert_ptr_equal(rt_reader_take(&reader, 2, 8), rt_message_payload(&message));
    assert_ptr_equal(rt_reader_take(&reader, 0, 8), rt_message_payload(&message) + 16);
    assert_int_equal(reader.left, 4);
    assert_null(rt_reader_take(&reader, 1, 5));
    assert_true(reader.failed);
    assert_null(rt_reader_take(&reader, 1, 4)); // would fit, but comes after an overrun
    rt_message_release(&message);
}

static void reader_does_not_overflow(void **state)
{
    (void)state;
    rt_message message = message_of(RT_MESSAGE_SLICE, 0, 16);
    rt_reader reader = rt_message_reader(&message);
    assert_null(rt_reader_take(&reader, UINT64_C(1) << 60, 16)); // x 16 is 0 modulo 2^64
    reader = rt_message_reader(&message);
    assert_null(rt_reader_take(&reader, UINT64_MAX, 1));
    reader = rt_message_reader(&message);
    assert_non_null(rt_reader_take(&reader, 16, 1));
    assert_false(reader.failed);
    assert_int_equal(reader.left, 0);
    rt_message_release(&message);
}

static void names(void **state)
{
    (void)state;
    char text[32];
    assert_string_equal(rt_peer_name(rt_peer(RT_ROLE_COORDINATOR, 0), text), "coordinator");
    assert_string_equal(rt_peer_name(rt_peer(RT_ROLE_WORKER, 12), text), "worker 12");
    assert_string_equal(rt_peer_name(rt_peer(RT_ROLE_PS, 0xffffff), text), "ps 16777215");
    assert_string_equal(rt_peer_name(rt_peer(RT_ROLE_VISITOR, 63), text), "visitor 63");
    assert_string_equal(rt_peer_name(0xfeffffff, text), "unknown peer 0xfeffffff");
    assert_string_equal(rt_peer_name(0, text), "unknown peer 0");
    assert_string_equal(rt_message_type_name(RT_MESSAGE_PUSH_GRAD), "PUSH_GRAD");
    assert_string_equal(rt_message_type_name(1000), "unknown");
}

TEST_MAIN(TEST(create_fills_the_header), TEST(create_refuses_what_nobody_would_accept),
          TEST(release_gives_back_once), TEST(finish_shortens), TEST(payload_sizes_by_type),
          TEST(payloads_of_records_alone), TEST(the_largest_message),
          TEST(copies_share_their_bytes), TEST(senders_are_those_of_a_run),
          TEST(count_does_not_overflow), TEST(bad_headers_are_named),
          TEST(truncated_messages_are_refused), TEST(rubbish_is_refused),
          TEST(other_versions_may_say_hello_and_stop), TEST(any_epoch_passes),
          TEST(reader_stops_at_the_end), TEST(reader_does_not_overflow), TEST(names))
