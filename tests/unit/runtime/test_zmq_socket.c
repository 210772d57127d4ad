// Which congestion control the TCP sockets of the ZeroMQ transport have.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/wire/rt_wire.h"
#include "runtime/transport/rt_transport.h"
#include "runtime/transport/rt_zmq_socket.h"
#include "tests/support/test.h"

#define COORDINATOR (rt_peer(RT_ROLE_COORDINATOR, 0))
#define NAME_MAX_CONTROL 16
#define FDS_MAX 256

typedef struct {
    int listener, client, server;
} pair;

static void get_control(int fd, char name[NAME_MAX_CONTROL])
{
    socklen_t size = NAME_MAX_CONTROL - 1;
    memset(name, 0, NAME_MAX_CONTROL);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size), 0);
}

static void assert_control(int fd, const char *want)
{
    char name[NAME_MAX_CONTROL];
    get_control(fd, name);
    assert_string_equal(name, want);
}

// What a fresh socket of this machine has; where that is what we choose nothing can be seen.
static void get_default(char name[NAME_MAX_CONTROL])
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    get_control(fd, name);
    close(fd);
    if (strcmp(name, "reno") == 0)
        test_skip("this machine's congestion control is Reno anyway");
}

static pair connect_over(struct in_addr address)
{
    pair two = {socket(AF_INET, SOCK_STREAM, 0), socket(AF_INET, SOCK_STREAM, 0), -1};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = address};
    socklen_t size = sizeof at;
    assert_int_equal(bind(two.listener, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(two.listener, 1), 0);
    assert_int_equal(getsockname(two.listener, (struct sockaddr *)&at, &size), 0);
    assert_int_equal(connect(two.client, (struct sockaddr *)&at, size), 0);
    two.server = accept(two.listener, NULL, NULL);
    assert_true(two.server >= 0);
    return two;
}

static void pair_close(const pair *two)
{
    close(two->listener);
    close(two->client);
    close(two->server);
}

static void test_a_connection_over_loopback_is_tuned(void **state)
{
    (void)state;
    char usual[NAME_MAX_CONTROL];
    get_default(usual);
    pair two = connect_over((struct in_addr){htonl(INADDR_LOOPBACK)});
    assert_true(rt_zmq_socket_tune(two.client));
    assert_control(two.client, "reno");
    assert_control(two.server, usual);
    pair_close(&two);
}

static void test_other_connections_stay_as_they_are(void **state)
{
    (void)state;
    char usual[NAME_MAX_CONTROL];
    struct ifaddrs *all = NULL;
    struct in_addr own = {0};
    get_default(usual);
    assert_int_equal(getifaddrs(&all), 0);
    for (struct ifaddrs *one = all; one; one = one->ifa_next)
        if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET && (one->ifa_flags & IFF_UP) &&
            !(one->ifa_flags & IFF_LOOPBACK))
            own = ((struct sockaddr_in *)(void *)one->ifa_addr)->sin_addr;
    freeifaddrs(all);
    if (own.s_addr == 0)
        test_skip("this machine has no address but loopback");
    pair two = connect_over(own);
    assert_false(rt_zmq_socket_tune(two.client));
    assert_control(two.client, usual);
    pair_close(&two);
}

static void test_other_descriptors_are_left_alone(void **state)
{
    (void)state;
    int ends[2], local[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, local), 0);
    assert_false(rt_zmq_socket_tune(ends[0]));
    assert_false(rt_zmq_socket_tune(local[0]));
    assert_false(rt_zmq_socket_tune(-1));
}

// Of the connected TCP sockets of this process.
static uint32_t count_tuned(uint32_t *count_p)
{
    uint32_t tuned = 0;
    *count_p = 0;
    for (int fd = 3; fd < FDS_MAX; fd++) {
        char name[NAME_MAX_CONTROL];
        struct sockaddr_storage peer = {0};
        socklen_t size = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &size) != 0 ||
            (peer.ss_family != AF_INET && peer.ss_family != AF_INET6))
            continue;
        get_control(fd, name);
        tuned += strcmp(name, "reno") == 0;
        *count_p += 1;
    }
    return tuned;
}

static void check_both_ends(const char *address)
{
    const rt_transport_ops *ops = &rt_transport_zmq;
    char bound[RT_NAME_MAX], usual[NAME_MAX_CONTROL];
    rt_transport *transport;
    rt_endpoint *listener, *client;
    rt_error error = {0};
    uint32_t count;
    get_default(usual);
    assert_int_equal(ops->open(&transport, &error), RT_OK);
    if (ops->listen(transport, COORDINATOR, address, bound, &listener, &error) != RT_OK)
        test_skip("%s", error.text);
    assert_int_equal(
        ops->connect(transport, rt_peer(RT_ROLE_WORKER, 0), COORDINATOR, bound, &client, &error),
        RT_OK);
    assert_int_equal(count_tuned(&count), 2);
    assert_int_equal(count, 2);
    ops->end(client, 0);
    ops->end(listener, 0);
    ops->close(transport);
}

static void test_both_ends_of_a_transport(void **state)
{
    (void)state;
    check_both_ends("tcp://127.0.0.1:0");
}

static void test_both_ends_over_ipv6(void **state)
{
    (void)state;
    check_both_ends("tcp://[::1]:0");
}

TEST_MAIN(TEST(test_a_connection_over_loopback_is_tuned),
          TEST(test_other_connections_stay_as_they_are),
          TEST(test_other_descriptors_are_left_alone), TEST(test_both_ends_of_a_transport),
          TEST(test_both_ends_over_ipv6))
