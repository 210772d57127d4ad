#include "runtime/config/rt_address.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>

#include "tests/support/test.h"

// Two boxes: "both" has an IPv6 address and then an IPv4 one, "six" the first alone.
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **found_p)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    const bool has_four = host && strcmp(host, "both") == 0;
    if (!has_four && (!host || strcmp(host, "six") != 0))
        return real(host, port, hints, found_p);
    if (hints->ai_family == AF_INET)
        return has_four ? real("127.0.0.1", port, hints, found_p) : EAI_NONAME;
    int reason = real("::1", port, hints, found_p);
    if (!reason && has_four)
        reason = real("127.0.0.1", port, hints, &(*found_p)->ai_next);
    return reason;
}

// Who connects by ZeroMQ takes IPv4 wherever there is one: who listens has to do the same.
static void a_name_is_its_ipv4_address(void **state)
{
    (void)state;
    struct sockaddr_storage place = {0};
    socklen_t length = 0;
    char address[64];
    assert_int_equal(rt_address_listen("", "both:7000", "", 0, address, sizeof address, NULL),
                     RT_OK);
    assert_string_equal(address, "tcp://127.0.0.1:7000");
    assert_true(rt_address_resolve("tcp://both:7000", &place, &length));
    assert_int_equal(place.ss_family, AF_INET);
    assert_int_equal(rt_address_listen("", "six:7000", "", 0, address, sizeof address, NULL),
                     RT_OK);
    assert_string_equal(address, "tcp://[::1]:7000");
    assert_true(rt_address_resolve("tcp://six:7000", &place, &length));
    assert_int_equal(place.ss_family, AF_INET6);
}

static void one_interface_stays(void **state)
{
    (void)state;
    char address[64];
    assert_int_equal(rt_address_reachable("tcp://10.1.2.3:7000", "rubbish", address, 64, NULL),
                     RT_OK);
    assert_string_equal(address, "tcp://10.1.2.3:7000");
    assert_int_equal(rt_address_reachable("tcp://100.0.0.0:7000", "rubbish", address, 64, NULL),
                     RT_OK);
    assert_string_equal(address, "tcp://100.0.0.0:7000");
    assert_int_equal(rt_address_reachable("ipc:///tmp/0.0.0.0:1", "rubbish", address, 64, NULL),
                     RT_OK);
    assert_string_equal(address, "ipc:///tmp/0.0.0.0:1");
}

static void every_interface_becomes_the_one_that_leads_there(void **state)
{
    (void)state;
    char address[64];
    static const char *const all[] = {"tcp://0.0.0.0:7000", "tcp://[::]:7000", "tcp://*:7000"};
    for (size_t i = 0; i < RT_COUNT_OF(all); i++) {
        assert_int_equal(rt_address_reachable(all[i], "tcp://127.0.0.9:80", address, 64, NULL),
                         RT_OK);
        assert_string_equal(address, "tcp://127.0.0.1:7000");
        assert_int_equal(rt_address_reachable(all[i], "tcp://localhost:80", address, 64, NULL),
                         RT_OK);
        assert_non_null(strstr(address, ":7000"));
        assert_null(strstr(address, "0.0.0.0"));
    }
}

static void what_cannot_be_reached_is_named(void **state)
{
    (void)state;
    char address[64];
    rt_error error = {0};
    assert_int_equal(rt_address_reachable("tcp://0.0.0.0:1", "here", address, 64, &error),
                     RT_CONFIG);
    assert_non_null(strstr(error.text, "here"));
    assert_int_equal(rt_address_reachable("tcp://0.0.0.0:1", "tcp://", address, 64, &error),
                     RT_CONFIG);
    assert_int_equal(
        rt_address_reachable("tcp://0.0.0.0:1", "tcp://127.0.0.1:80", address, 16, &error),
        RT_LIMIT);
    assert_int_equal(rt_address_reachable("tcp://127.0.0.1:1", "", address, 8, &error), RT_LIMIT);
}

// Of those that are told apart: this machine's, and all others.
static void who_is_here(void **state)
{
    static const struct {
        const char *address;
        bool is_here;
    } all[] = {{"127.0.0.1", true},     {"127.8.9.10", true}, {"::ffff:127.0.0.1", true},
               {"192.0.2.77", false},   {"0.0.0.0", false},   {"::ffff:192.0.2.77", false},
               {"2001:db8::77", false}, {"128.0.0.1", false}, {"::", false}};
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(all); i++) {
        struct sockaddr_storage place = {0};
        struct sockaddr_in *four = (struct sockaddr_in *)&place;
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)&place;
        place.ss_family = AF_INET;
        if (inet_pton(AF_INET, all[i].address, &four->sin_addr) != 1) {
            place.ss_family = AF_INET6;
            assert_int_equal(inet_pton(AF_INET6, all[i].address, &six->sin6_addr), 1);
        }
        if (rt_address_is_here(&place) != all[i].is_here)
            fail_msg("%s", all[i].address);
    }
}

static void hosts_and_ports_come_apart_and_together(void **state)
{
    (void)state;
    static const struct {
        const char *address, *host; // NULL: it is none
        uint32_t port;
        const char *again; // NULL: as it was
    } cases[] = {
        {"shop:80", "shop", 80, NULL},
        {"tcp://10.0.0.1:7000", "10.0.0.1", 7000, "10.0.0.1:7000"},
        {"[::1]:7301", "::1", 7301, NULL},
        {"[fe80::1%eth0]:7301", "fe80::1%eth0", 7301, NULL},
        {"[::]:0", "::", 0, NULL},
        {"::1:7301", "::1", 7301, "[::1]:7301"},
        {"*:7000", "*", 7000, NULL},
        {"::1", NULL, 0, NULL}, // 1 is no port
        {"fe80::1", NULL, 0, NULL},
        {"2001:db8:0:0:0:0:0:1", NULL, 0, NULL},
        {"[::1]", NULL, 0, NULL},
        {"[::1]7301", NULL, 0, NULL},
        {"[]:1", NULL, 0, NULL},
        {":1", NULL, 0, NULL},
        {"::", NULL, 0, NULL},
        {"a:b:1", NULL, 0, NULL},
        {"shop", NULL, 0, NULL},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        char host[64], again[64];
        uint32_t port = 0;
        if (rt_address_split(cases[i].address, host, sizeof host, &port) != (cases[i].host != NULL))
            fail_msg("%s: %s", cases[i].address, cases[i].host ? "no address" : "an address");
        if (!cases[i].host)
            continue;
        assert_string_equal(host, cases[i].host);
        assert_int_equal(port, cases[i].port);
        assert_true(rt_address_join(host, port, again, sizeof again));
        assert_string_equal(again, cases[i].again ? cases[i].again : cases[i].address);
        assert_false(rt_address_join(host, port, again, strlen(again)));
    }
}

// What network.bind may be: a number, in brackets or not, a name, an interface.
static void hosts_to_listen_on(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"::1", "tcp://[::1]:5"},         {"[::1]", "tcp://[::1]:5"},
        {"::", "tcp://[::]:5"},           {"fe80::a:1%lo", "tcp://[fe80::a:1%lo]:5"},
        {"lo", "tcp://127.0.0.1:5"},      {"six", "tcp://six:5"},
        {"10.0.0.1", "tcp://10.0.0.1:5"}, {"*", "tcp://*:5"},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        char address[64];
        assert_int_equal(
            rt_address_listen(cases[i][0], "10.0.0.9:1", "", 5, address, sizeof address, NULL),
            RT_OK);
        assert_string_equal(address, cases[i][1]);
    }
}

TEST_MAIN(TEST(hosts_and_ports_come_apart_and_together), TEST(hosts_to_listen_on),
          TEST(a_name_is_its_ipv4_address), TEST(one_interface_stays),
          TEST(every_interface_becomes_the_one_that_leads_there),
          TEST(what_cannot_be_reached_is_named), TEST(who_is_here))
