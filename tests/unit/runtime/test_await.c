// In a network namespace of the case's own, that gets an address while somebody waits for it.
#define _GNU_SOURCE // unshare
#include "runtime/config/rt_await.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/test.h"

#define LATE_MS 300
#define NS_PER_MS UINT64_C(1000000)

#define ADDRESS 0x0a090909u // 10.9.9.9

// An address of its own for an interface: 0 brings it up only.
static void set_up(const char *interface, uint32_t address)
{
    struct ifreq request = {.ifr_flags = IFF_UP};
    const struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    rt_assert(fd >= 0 && (address || ioctl(fd, SIOCSIFFLAGS, &request) == 0));
    memcpy(&request.ifr_addr, &place, sizeof place);
    rt_assert(address == 0 || ioctl(fd, SIOCSIFADDR, &request) == 0);
    close(fd);
}

// A network that has loopback and nothing else. (Without any address Linux lets all be bound.)
static void leave_the_network(void)
{
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 && unshare(CLONE_NEWNET) != 0)
        test_skip("no network namespace here: %s", strerror(errno));
    set_up("lo", 0);
}

static void *add_address_later(void *context)
{
    (void)context;
    (void)poll(NULL, 0, LATE_MS);
    set_up("lo:1", ADDRESS);
    return NULL;
}

static bool may_listen(void)
{
    const struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(ADDRESS)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool may = bind(fd, (const struct sockaddr *)&place, sizeof place) == 0;
    close(fd);
    return may;
}

static void an_address_that_comes_is_waited_for(void **state)
{
    (void)state;
    static const char *const forms[] = {"10.9.9.9:7000", "tcp://10.9.9.9:7000", "10.9.9.9"};
    for (size_t i = 0; i < RT_COUNT_OF(forms); i++) {
        const rt_await_place places[] = {{"watch.listen", ""}, {"network.bind", forms[i]}};
        pthread_t later;
        leave_the_network();
        assert_false(may_listen());
        assert_int_equal(pthread_create(&later, NULL, add_address_later, NULL), 0);
        assert_int_equal(rt_await_places(places, 2, 20, -1, NULL, NULL), RT_OK);
        assert_true(may_listen());
        pthread_join(later, NULL);
    }
}

static void the_wait_has_an_end(void **state)
{
    (void)state;
    const rt_await_place places[] = {{"network.bind", "10.9.9.9:7000"},
                                     {"network.interface", "eth77"},
                                     {"network.coordinator", "[2001:db8::1]:7000"}};
    leave_the_network();
    const uint64_t begin = rt_now_ns();
    assert_int_equal(rt_await_places(places, 3, 0.2, -1, NULL, NULL), RT_OK); // for all together
    assert_in_range(rt_now_ns() - begin, 200 * NS_PER_MS, 20000 * NS_PER_MS);
    assert_false(may_listen());
}

static void whoever_is_to_end_waits_no_more(void **state)
{
    (void)state;
    const rt_await_place place = {"feed.listen", "10.9.9.9:7082"};
    rt_error error = {0};
    leave_the_network();
    const int stop = eventfd(1, EFD_CLOEXEC);
    assert_int_equal(rt_await_places(&place, 1, 1000, stop, NULL, &error), RT_STOPPED);
    assert_non_null(strstr(error.text, "feed.listen"));
    close(stop);
}

// Nothing to wait for, or nothing that waiting mends.
static void others_do_not_wait(void **state)
{
    (void)state;
    const rt_await_place places[] = {
        {"a", ""},          {"b", "*"},           {"c", "*:7000"},       {"d", "0.0.0.0:1"},
        {"e", "[::]:7000"}, {"f", "127.0.0.1:0"}, {"g", "ipc:///tmp/x"}, {"h", "::1"},
        {"i", "[::1]"},     {"j", "[::1]:7000"},  {"k", "::"},           {"l", "::1:7000"}};
    leave_the_network();
    const int stop = eventfd(1, EFD_CLOEXEC);
    assert_int_equal(rt_await_places(places, RT_COUNT_OF(places), 1000, stop, NULL, NULL), RT_OK);
    close(stop);
}

TEST_MAIN(TEST(an_address_that_comes_is_waited_for), TEST(the_wait_has_an_end),
          TEST(whoever_is_to_end_waits_no_more), TEST(others_do_not_wait))
