// Ports that cases name: another one each time, and none that somebody has or is given.
#include "tests/support/test.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static int listen_at(uint16_t port)
{
    const struct sockaddr_in place = {
        .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons(port)};
    const int one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(one, (const struct sockaddr *)&place, sizeof place), 0);
    assert_int_equal(listen(one, 1), 0);
    return one;
}

static void each_is_another(void **state)
{
    static bool seen[UINT16_MAX + 1];
    (void)state;
    for (uint32_t i = 0; i < 1000; i++) {
        const uint16_t port = test_free_port();
        assert_false(seen[port]);
        seen[port] = true;
    }
}

static void who_asks_for_any_is_given_another(void **state)
{
    unsigned first = 0;
    (void)state;
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
    if (!file || fscanf(file, "%u", &first) != 1 || first < 32000)
        test_skip("ports are given from %u on here", first);
    fclose(file);
    for (uint32_t i = 0; i < 1000; i++)
        assert_true(test_free_port() < first);
}

static void who_listens_keeps_it(void **state)
{
    (void)state;
    const uint16_t port = test_free_port();
    const int listener = listen_at(port);
    for (uint32_t i = 0; i < 50000; i++) // more than there are
        assert_int_not_equal(test_free_port(), port);
    close(listener);
}

TEST_MAIN(TEST(each_is_another), TEST(who_asks_for_any_is_given_another),
          TEST(who_listens_keeps_it))
