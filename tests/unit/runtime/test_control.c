// Messages that coordinator and members exchange beside the data: HELLOs of any size, text, ends.
#include "runtime/wire/rt_control.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/test.h"

#define WORKER rt_peer(RT_ROLE_WORKER, 3)
#define COORDINATOR rt_peer(RT_ROLE_COORDINATOR, 0)

static const rt_identity here = {.config_hash = 11, .given_hash = 12, .format = 7};

// The first size bytes of a HELLO (zeros behind them), as read into a place that was in use.
static rt_status read_hello(const rt_wire_hello *hello, size_t size, uint32_t version,
                            rt_wire_hello *got, rt_error *error)
{
    rt_message message;
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_HELLO, WORKER, 0, 1, size), RT_OK);
    memset(rt_message_payload(&message), 0, size);
    memcpy(rt_message_payload(&message), hello, rt_min_u64(size, sizeof *hello));
    rt_message_header(&message)->version = (uint16_t)version;
    memset(got, 0xee, sizeof *got);
    *error = (rt_error){0};
    const rt_status status = rt_control_hello(&message, WORKER, COORDINATOR, got, error);
    assert_int_equal(error->status, status);
    rt_message_release(&message);
    return status;
}

static void a_hello_is_read_whole(void **state)
{
    (void)state;
    rt_error error;
    rt_wire_hello hello = rt_control_greet(WORKER, &here), got;
    assert_true(hello.role == RT_ROLE_WORKER && hello.rank == 3 && hello.format == 7);
    assert_true(hello.pid == (uint64_t)getpid() && hello.config_hash == 11);
    assert_true(hello.given_hash == 12 && strcmp(hello.program, rt_build()) == 0);
    rt_control_put_text(hello.address, sizeof hello.address, "tcp://10.0.0.1:2");
    assert_int_equal(read_hello(&hello, sizeof hello, RT_WIRE_VERSION, &got, &error), RT_OK);
    assert_memory_equal(&got, &hello, sizeof got);
    // Another size of the same protocol; what can be read of it is.
    for (size_t size = 0; size < 2 * sizeof hello; size++) {
        char text[64];
        if (size == sizeof hello)
            continue;
        assert_int_equal(read_hello(&hello, size, RT_WIRE_VERSION, &got, &error), RT_WIRE);
        snprintf(text, sizeof text, "worker 3: a HELLO of %zu bytes, expected 184", size);
        assert_string_equal(error.text, text);
        const size_t same = size < 48 ? 0 : rt_min_u64(size, sizeof hello);
        static const rt_wire_hello zeros;
        assert_memory_equal(&got, &hello, same);
        assert_memory_equal((uint8_t *)&got + same, (const uint8_t *)&zeros + same,
                            sizeof got - same);
    }
}

static void another_version_of_any_size_is_named(void **state)
{
    (void)state;
    rt_error error;
    rt_wire_hello hello = rt_control_greet(WORKER, &here), got;
    rt_control_put_text(hello.program, sizeof hello.program, "0.0.9");
    for (size_t size = 0; size < 2 * sizeof hello; size++) {
        const rt_status want = size < 48 ? RT_WIRE : RT_CONFIG;
        assert_int_equal(read_hello(&hello, size, RT_WIRE_VERSION + 1, &got, &error), want);
        assert_int_equal(strstr(error.text, "install one build on all boxes") != NULL,
                         want == RT_CONFIG);
    }
}

// It goes to a terminal, and into strings.
static void text_of_a_hello_is_harmless(void **state)
{
    (void)state;
    rt_error error;
    rt_wire_hello hello = rt_control_greet(WORKER, &here), got;
    rt_control_put_text(hello.program, sizeof hello.program, "a\x1b[2J \x7f~\x80z");
    assert_int_equal(read_hello(&hello, sizeof hello, RT_WIRE_VERSION, &got, &error), RT_OK);
    assert_string_equal(got.program, "a?[2J ?~?z");
    memset(hello.program, 'x', sizeof hello.program);
    assert_int_equal(read_hello(&hello, sizeof hello, RT_WIRE_VERSION, &got, &error), RT_WIRE);
    assert_non_null(strstr(error.text, "text that does not end"));
    hello.program[sizeof hello.program - 1] = '\0';
    memset(hello.address, 'x', sizeof hello.address);
    assert_int_equal(read_hello(&hello, sizeof hello, RT_WIRE_VERSION, &got, &error), RT_WIRE);
    assert_non_null(strstr(error.text, "text that does not end"));
    hello.address[sizeof hello.address - 1] = '\0';
    assert_int_equal(read_hello(&hello, sizeof hello, RT_WIRE_VERSION, &got, &error), RT_OK);
}

static void text_is_read_where_it_fits(void **state)
{
    (void)state;
    char text[8];
    rt_message message;
    assert_int_equal(rt_control_create_text(&message, RT_MESSAGE_STOP, WORKER, "1234567"), RT_OK);
    const rt_wire_header *header = rt_message_header(&message);
    assert_true(header->type == RT_MESSAGE_STOP && header->sender == WORKER);
    assert_true(header->iteration == 0 && header->count == 0 && header->payload_bytes == 7);
    memset(text, 'x', sizeof text);
    assert_int_equal(rt_control_text(&message, text, sizeof text), RT_OK);
    assert_string_equal(text, "1234567");
    assert_int_equal(rt_control_text(&message, text, sizeof text - 1), RT_WIRE);
    for (uint32_t at = 0; at < 7; at++) { // a zero byte, wherever it is
        rt_message_payload(&message)[at] = '\0';
        assert_int_equal(rt_control_text(&message, text, sizeof text), RT_WIRE);
        rt_message_payload(&message)[at] = 'y';
    }
    rt_message_release(&message);
    assert_int_equal(rt_control_create_text(&message, RT_MESSAGE_STOP, WORKER, ""), RT_OK);
    assert_int_equal(rt_control_text(&message, text, 1), RT_OK);
    assert_string_equal(text, "");
    rt_message_release(&message);
}

static void an_end_says_whether_to_come_again(void **state)
{
    (void)state;
    static const struct {
        rt_status status;
        rt_reason reason;
    } cases[] = {{RT_OK, RT_REASON_COMPLETE},    {RT_PEER, RT_REASON_FAILED},
                 {RT_TIMEOUT, RT_REASON_FAILED}, {RT_CONFIG, RT_REASON_LASTS},
                 {RT_DATA, RT_REASON_LASTS},     {RT_REFUSED, RT_REASON_LASTS}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        rt_message message;
        char text[32];
        assert_int_equal(
            rt_control_create_end(&message, RT_MESSAGE_FAILED, WORKER, cases[i].status, "because"),
            RT_OK);
        assert_int_equal(rt_message_header(&message)->type, RT_MESSAGE_FAILED);
        assert_int_equal(rt_message_header(&message)->iteration, cases[i].reason);
        assert_int_equal(rt_control_text(&message, text, sizeof text), RT_OK);
        assert_string_equal(text, "because");
        rt_message_release(&message);
    }
}

static void a_record_may_be_followed_by_text(void **state)
{
    (void)state;
    static const uint8_t bytes[5] = {1, 2, 3, 4, 5};
    static const char *const texts[] = {NULL, "", "why"};
    for (size_t i = 0; i < RT_COUNT_OF(texts); i++) {
        rt_message message;
        const size_t length = texts[i] ? strlen(texts[i]) : 0;
        assert_int_equal(rt_control_create_struct(&message, RT_MESSAGE_WRITTEN, WORKER, 9, bytes,
                                                  sizeof bytes, texts[i]),
                         RT_OK);
        const rt_wire_header *header = rt_message_header(&message);
        assert_true(header->iteration == 9 && header->count == 1 && header->sender == WORKER);
        assert_int_equal(header->payload_bytes, sizeof bytes + length);
        assert_memory_equal(rt_message_payload(&message), bytes, sizeof bytes);
        if (length)
            assert_memory_equal(rt_message_payload(&message) + sizeof bytes, texts[i], length);
        assert_true(rt_control_has(&message, sizeof bytes + length));
        assert_false(rt_control_has(&message, sizeof bytes + length + 1));
        assert_false(rt_control_has(&message, sizeof bytes + length - 1));
        rt_message_release(&message);
    }
    rt_message message;
    assert_int_equal(rt_control_create(&message, RT_MESSAGE_FINISH, WORKER), RT_OK);
    const rt_wire_header *header = rt_message_header(&message);
    assert_true(header->iteration == 0 && header->count == 0 && header->payload_bytes == 0);
    assert_true(rt_control_has(&message, 0));
    rt_message_release(&message);
}

static void text_fills_a_field_with_zeros(void **state)
{
    (void)state;
    char field[8];
    memset(field, 'x', sizeof field);
    assert_true(rt_control_put_text(field, sizeof field, "abc"));
    assert_memory_equal(field, "abc\0\0\0\0\0", 8);
    assert_true(rt_control_put_text(field, sizeof field, "1234567"));
    assert_string_equal(field, "1234567");
    assert_false(rt_control_put_text(field, sizeof field, "12345678"));
    assert_memory_equal(field, "\0\0\0\0\0\0\0\0", 8);
}

// ---- no memory ---------------------------------------------------------------------------------

static bool is_out_of_memory;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *__wrap_malloc(size_t size)
{
    return is_out_of_memory ? NULL : __real_malloc(size);
}

static void without_memory_there_is_no_message(void **state)
{
    (void)state;
    rt_message message = {0};
    is_out_of_memory = true;
    const rt_status got[] = {
        rt_control_create(&message, RT_MESSAGE_STOP, WORKER),
        rt_control_create_text(&message, RT_MESSAGE_STOP, WORKER, ""),
        rt_control_create_text(&message, RT_MESSAGE_STOP, WORKER, "why"),
        rt_control_create_taken(&message, COORDINATOR, WORKER),
        rt_control_create_end(&message, RT_MESSAGE_FAILED, WORKER, RT_DATA, "why"),
        rt_control_create_struct(&message, RT_MESSAGE_CUT, WORKER, 1, "why", 3, NULL),
        rt_control_create_struct(&message, RT_MESSAGE_CUT, WORKER, 1, "why", 3, "text"),
    };
    is_out_of_memory = false;
    for (size_t i = 0; i < RT_COUNT_OF(got); i++)
        assert_int_equal(got[i], RT_NO_MEMORY);
    assert_null(message.data);
}

TEST_MAIN(TEST(a_hello_is_read_whole), TEST(another_version_of_any_size_is_named),
          TEST(text_of_a_hello_is_harmless), TEST(text_is_read_where_it_fits),
          TEST(an_end_says_whether_to_come_again), TEST(without_memory_there_is_no_message),
          TEST(a_record_may_be_followed_by_text), TEST(text_fills_a_field_with_zeros))
