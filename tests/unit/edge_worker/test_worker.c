// What a worker does before it joins: names the interface to NCCL. It ends there, as its device is
// none.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge_worker/ew_worker.h"
#include "tests/support/test.h"

#define VARIABLE "NCCL_SOCKET_IFNAME"

// What the variable is after that; "": it is not set. users: what it was, or NULL.
static const char *named(const char *interface, const char *collective, const char *users)
{
    char set[64];
    rt_config config;
    rt_error error = {0};
    assert_int_equal(rt_config_init(&config), RT_OK);
    snprintf(config.device, sizeof config.device, "cuda:none");
    snprintf(config.network_interface, sizeof config.network_interface, "%s", interface);
    snprintf(set, sizeof set, "network.collective=%s", collective);
    if (rt_config_set(&config, set, &error))
        fail_msg("%s", error.text);
    unsetenv(VARIABLE);
    if (users)
        setenv(VARIABLE, users, 1);
    const ew_worker_config worker = {.config = &config, .coordinator = "tcp://127.0.0.1:1"};
    assert_int_equal(ew_worker_run(&worker, &error), RT_UNSUPPORTED);
    assert_non_null(strstr(error.text, "cuda:none"));
    rt_config_fini(&config);
    return getenv(VARIABLE) ? getenv(VARIABLE) : "";
}

static void nccl_is_told_the_interface(void **state)
{
    (void)state;
    assert_string_equal(named("eth7", "auto", NULL), "=eth7"); // not what begins so
    assert_string_equal(named("eth7", "nccl", NULL), "=eth7");
}

static void the_users_interface_is_kept(void **state)
{
    (void)state;
    assert_string_equal(named("eth7", "nccl", "ib0"), "ib0");
}

static void nothing_is_set_where_nothing_is_to_be_said(void **state)
{
    (void)state;
    assert_string_equal(named("", "nccl", NULL), "");
    assert_string_equal(named("eth7", "ps", NULL), "");
}

TEST_MAIN(TEST(nccl_is_told_the_interface), TEST(the_users_interface_is_kept),
          TEST(nothing_is_set_where_nothing_is_to_be_said))
