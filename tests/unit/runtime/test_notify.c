// What a service manager hears of a process.
#include "tests/support/test.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/rt_notify.h"

// Where a manager listens. The name is a path, or abstract with '@' in front.
static int listen_at(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t length = strlen(name);
    memcpy(address.sun_path, name, length);
    if (*name == '@')
        address.sun_path[0] = '\0';
    int one = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    assert_true(one >= 0);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    assert_int_equal(bind(one, (const struct sockaddr *)&address, size), 0);
    return one;
}

static void expect(int fd, const char *want)
{
    char text[64] = "";
    const ssize_t got = recv(fd, text, sizeof text - 1, 0);
    if (want)
        assert_string_equal(got > 0 ? text : "nothing", want);
    else
        assert_true(got < 0);
}

static void readiness_and_life_are_told(void **state)
{
    (void)state;
    char abstract[64];
    snprintf(abstract, sizeof abstract, "@lanyard-test-%ld", (long)getpid());
    const char *names[] = {test_path("notify"), abstract};
    for (size_t i = 0; i < RT_COUNT_OF(names); i++) {
        int manager = listen_at(names[i]);
        rt_notify notify;
        rt_notify_open(names[i], "3600000000", NULL, &notify);
        rt_notify_ready(&notify);
        expect(manager, "READY=1");
        rt_notify_alive(&notify);
        rt_notify_alive(&notify); // the next one is due in half an hour
        expect(manager, "WATCHDOG=1");
        expect(manager, NULL);
        rt_notify_close(&notify);
        close(manager);
    }
}

static void signs_of_life_come_again(void **state)
{
    (void)state;
    int manager = listen_at(test_path("notify"));
    rt_notify notify;
    rt_notify_open(test_path("notify"), "2000", NULL, &notify); // one in a millisecond
    rt_notify_alive(&notify);
    expect(manager, "WATCHDOG=1");
    usleep(1000);
    rt_notify_alive(&notify);
    expect(manager, "WATCHDOG=1");
    rt_notify_close(&notify);
    close(manager);
}

// Neither may end or hold up anything.
static void who_does_not_ask_is_not_told(void **state)
{
    (void)state;
    char own[16], long_name[300];
    memset(long_name, '/', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    const char *none[] = {NULL, "", "@", "relative", "/no/such/socket", long_name};
    rt_notify notify;
    rt_notify_ready(NULL);
    rt_notify_alive(NULL);
    for (size_t i = 0; i < RT_COUNT_OF(none); i++) {
        rt_notify_open(none[i], "1000", NULL, &notify);
        rt_notify_ready(&notify);
        rt_notify_alive(&notify);
        rt_notify_close(&notify);
    }
    int manager = listen_at(test_path("notify"));
    const struct {
        const char *us, *pid;
        bool wanted;
    } asked[] = {{"1000", "1", false}, {NULL, NULL, false}, {"soon", NULL, false},
                 {"-1", NULL, false},  {"1000", own, true}, {"99999999999999999999", NULL, false}};
    snprintf(own, sizeof own, "%ld", (long)getpid());
    for (size_t i = 0; i < RT_COUNT_OF(asked); i++) {
        rt_notify_open(test_path("notify"), asked[i].us, asked[i].pid, &notify);
        rt_notify_alive(&notify);
        expect(manager, asked[i].wanted ? "WATCHDOG=1" : NULL);
        rt_notify_close(&notify);
    }
    close(manager);
}

// A manager that does not read: its queue is full soon.
static void a_full_queue_holds_up_nothing(void **state)
{
    (void)state;
    int manager = listen_at(test_path("notify"));
    rt_notify notify;
    rt_notify_open(test_path("notify"), NULL, NULL, &notify);
    for (int i = 0; i < 10000; i++)
        rt_notify_ready(&notify);
    rt_notify_close(&notify);
    close(manager);
}

TEST_MAIN(TEST(readiness_and_life_are_told), TEST(signs_of_life_come_again),
          TEST(who_does_not_ask_is_not_told), TEST(a_full_queue_holds_up_nothing))
