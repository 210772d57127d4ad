// What two processes say of each other's builds and configurations when they meet.
#include "cli/cli.h"
#include "runtime/wire/rt_control.h"

#include <string.h>

#include "tests/support/test.h"

#define WORKER rt_peer(RT_ROLE_WORKER, 3)

static const rt_identity here = {.config_hash = 1, .given_hash = 2, .format = 7};

typedef struct {
    const char *program; // NULL: the same build
    rt_identity identity;
    rt_status status;
    const char *says, *too; // of the error
} meeting;

static void the_build_or_the_configuration_is_named(void **state)
{
    (void)state;
    const meeting all[] = {
        {NULL, {1, 2, 7}, RT_OK, NULL, NULL},
        {"0.2.0 (abc)", {1, 2, 7}, RT_OK, NULL, NULL}, // the same protocol, the same values
        {NULL, {9, 8, 7}, RT_CONFIG, "worker 3 runs with another configuration", "the same file"},
        {NULL, {9, 2, 7}, RT_CONFIG, "worker 3 runs with another configuration", ""},
        {"0.2.0 (abc)",
         {9, 2, 7},
         RT_CONFIG,
         "worker 3 runs lanyard 0.2.0 (abc), this is lanyard",
         "; the configuration is the same, but keys or defaults of the builds differ"},
        {"0.2.0 (abc)",
         {9, 8, 7},
         RT_CONFIG,
         "another configuration",
         "and another build: lanyard 0.2.0 (abc), here "},
        {"0.2.0 (abc)",
         {1, 2, 8},
         RT_CONFIG,
         "lanyard 0.2.0 (abc), this is lanyard",
         "their files have format 8 and 7"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const meeting *m = &all[i];
        rt_error error = {0};
        rt_wire_hello hello = rt_control_greet(WORKER, &m->identity);
        if (m->program)
            rt_control_put_text(hello.program, sizeof hello.program, m->program);
        assert_int_equal(rt_control_agree(&hello, &here, "worker 3", &error), m->status);
        if (m->status && (!strstr(error.text, m->says) || !strstr(error.text, m->too)))
            fail_msg("\"%s\" lacks \"%s\" or \"%s\"", error.text, m->says, m->too);
        if (m->status && m->program && !strstr(error.text, rt_build()))
            fail_msg("\"%s\" does not say that this is %s", error.text, rt_build());
    }
}

static void another_protocol_is_refused_with_both_builds(void **state)
{
    (void)state;
    rt_message message;
    rt_error error = {0};
    rt_wire_hello hello = rt_control_greet(WORKER, &here), got;
    rt_control_put_text(hello.program, sizeof hello.program, "0.0.9");
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_HELLO, WORKER, 0, 1, 144), RT_OK);
    memcpy(rt_message_payload(&message), &hello, 144);
    rt_message_header(&message)->version = 4;
    assert_int_equal(
        rt_control_hello(&message, WORKER, rt_peer(RT_ROLE_COORDINATOR, 0), &got, &error),
        RT_CONFIG);
    assert_non_null(strstr(error.text, "worker 3 runs lanyard 0.0.9 (protocol 4), the coordinator "
                                       "lanyard "));
    assert_non_null(strstr(error.text, rt_build()));
    rt_message_release(&message);
}

// Not byte by byte: there is room between the members.
static bool is_same(const rt_identity *a, const rt_identity *b)
{
    return a->config_hash == b->config_hash && a->given_hash == b->given_hash &&
           a->format == b->format;
}

// The second hash is of what differs from the defaults, however it came to be so.
static void defaults_do_not_count_as_given(void **state)
{
    (void)state;
    rt_config one, other;
    assert_int_equal(rt_config_init(&one), RT_OK);
    assert_int_equal(rt_config_init(&other), RT_OK);
    const rt_identity plain = cli_identity(&one);
    assert_int_equal(rt_config_set(&other, "checkpoint.keep=3", NULL), RT_OK); // the default
    rt_identity changed = cli_identity(&other);
    assert_true(is_same(&plain, &changed));
    assert_int_equal(rt_config_set(&other, "checkpoint.keep=4", NULL), RT_OK);
    changed = cli_identity(&other);
    assert_true(changed.given_hash != plain.given_hash);
    assert_true(changed.config_hash != plain.config_hash);
    assert_int_equal(rt_config_set(&other, "checkpoint.keep=3", NULL), RT_OK);
    assert_int_equal(rt_config_set(&other, "network.bind=10.0.0.1", NULL), RT_OK); // a box's own
    changed = cli_identity(&other);
    assert_true(is_same(&plain, &changed));
    rt_config_fini(&one);
    rt_config_fini(&other);
}

TEST_MAIN(TEST(the_build_or_the_configuration_is_named),
          TEST(another_protocol_is_refused_with_both_builds), TEST(defaults_do_not_count_as_given))
