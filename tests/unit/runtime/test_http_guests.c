// Who has to go when a server's places are short.
#include "runtime/http/rt_http_guests.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/test.h"

#define PLACES 16u

typedef struct {
    int ends[2]; // the guest's socket, and the other side
    rt_http_guest *guest;
} visitor;

static rt_http_guests *open_guests(bool ends_late)
{
    rt_http_guests *guests;
    const rt_http_guests_config config = {.places = PLACES,
                                          .head_s = ends_late ? 0.3 : 0.5,
                                          .idle_s = 100,
                                          .body_s = 100,
                                          .body_bytes_per_s = 1000,
                                          .ends_late = ends_late};
    assert_int_equal(rt_http_guests_open(&config, &guests), RT_OK);
    return guests;
}

static visitor visit(rt_http_guests *guests, const char *address)
{
    visitor v;
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    const struct sockaddr *from = (const struct sockaddr *)&v4;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, v.ends), 0);
    if (inet_pton(AF_INET, address, &v4.sin_addr) != 1) {
        assert_int_equal(inet_pton(AF_INET6, address, &v6.sin6_addr), 1);
        from = (const struct sockaddr *)&v6;
    }
    v.guest = rt_http_guests_enter(guests, v.ends[0], from);
    assert_non_null(v.guest);
    return v;
}

static void leave(rt_http_guests *guests, visitor *v)
{
    rt_http_guests_leave(guests, v->guest);
    close(v->ends[0]);
    close(v->ends[1]);
}

static bool is_asked_to_go(const visitor *v)
{
    char byte;
    return recv(v->ends[1], &byte, 1, MSG_DONTWAIT) == 0;
}

static uint32_t count_asked(const visitor *visitors, uint32_t count)
{
    uint32_t asked = 0;
    for (uint32_t i = 0; i < count; i++)
        asked += is_asked_to_go(&visitors[i]);
    return asked;
}

static void let_time_pass(void)
{
    usleep(100000); // much more than the share of head_s from which on a guest is slow
}

// The address that holds most places gives one up, and of its guests the slowest.
static void the_many_make_room(void **state)
{
    (void)state;
    rt_http_guests *guests = open_guests(false);
    visitor few[3], many[PLACES];
    for (uint32_t i = 0; i < 3; i++)
        few[i] = visit(guests, "192.0.2.1");
    for (uint32_t i = 0; i < PLACES - 4; i++)
        many[i] = visit(guests, i % 2 ? "2001:db8::5" : "2001:db8::6:7"); // one network
    let_time_pass();
    many[PLACES - 4] = visit(guests, "2001:db8::9");
    let_time_pass();
    assert_int_equal(count_asked(few, 3), 0);
    assert_true(count_asked(many, PLACES - 3) >= 1);
    assert_true(is_asked_to_go(&many[0]));
    assert_false(is_asked_to_go(&many[PLACES - 4]));
    for (uint32_t i = 0; i < 3; i++)
        leave(guests, &few[i]);
    for (uint32_t i = 0; i < PLACES - 3; i++)
        leave(guests, &many[i]);
    rt_http_guests_close(guests);
}

// Strangers, each of an address of its own, take no more than their share; who is known stays.
static void places_are_kept_for_the_known(void **state)
{
    (void)state;
    rt_http_guests *guests = open_guests(false);
    char address[32];
    visitor known = visit(guests, "198.51.100.1"), strangers[PLACES];
    rt_http_guests_note_worth(guests, known.guest);
    for (uint32_t i = 0; i < PLACES - 2; i++) {
        snprintf(address, sizeof address, "192.0.2.%u", i + 1);
        strangers[i] = visit(guests, address);
    }
    let_time_pass();
    let_time_pass();
    let_time_pass();
    assert_true(count_asked(strangers, PLACES - 2) >= PLACES / 4 - 2);
    assert_false(is_asked_to_go(&known));
    leave(guests, &known);
    known = visit(guests, "198.51.100.1"); // its address is remembered
    let_time_pass();
    assert_false(is_asked_to_go(&known));
    leave(guests, &known);
    for (uint32_t i = 0; i < PLACES - 2; i++)
        leave(guests, &strangers[i]);
    rt_http_guests_close(guests);
}

// Who is being answered, and who has sent what was not read, stays.
static void the_busy_stay(void **state)
{
    (void)state;
    rt_http_guests *guests = open_guests(false);
    visitor all[PLACES];
    for (uint32_t i = 0; i < PLACES; i++) {
        all[i] = visit(guests, "127.0.0.1");
        if (i % 2)
            rt_http_guests_note(guests, all[i].guest, RT_HTTP_GUEST_SERVED);
        else
            assert_int_equal(send(all[i].ends[1], "x", 1, 0), 1);
    }
    let_time_pass();
    let_time_pass();
    assert_int_equal(count_asked(all, PLACES), 0);
    rt_http_guests_note(guests, all[5].guest, RT_HTTP_GUEST_NEW);
    let_time_pass();
    let_time_pass();
    assert_int_equal(count_asked(all, PLACES), 1);
    assert_true(is_asked_to_go(&all[5]));
    for (uint32_t i = 0; i < PLACES; i++)
        leave(guests, &all[i]);
    rt_http_guests_close(guests);
}

static void the_late_go(void **state)
{
    (void)state;
    rt_http_guests *guests = open_guests(true);
    visitor late = visit(guests, "127.0.0.1"), served = visit(guests, "127.0.0.1");
    visitor idle = visit(guests, "127.0.0.1");
    rt_http_guests_note(guests, served.guest, RT_HTTP_GUEST_SERVED);
    rt_http_guests_note(guests, idle.guest, RT_HTTP_GUEST_IDLE);
    for (int i = 0; i < 200 && !is_asked_to_go(&late); i++)
        usleep(50000);
    assert_true(is_asked_to_go(&late));
    assert_false(is_asked_to_go(&served));
    assert_false(is_asked_to_go(&idle));
    leave(guests, &late);
    leave(guests, &served);
    leave(guests, &idle);
    rt_http_guests_close(guests);
}

TEST_MAIN(TEST(the_many_make_room), TEST(places_are_kept_for_the_known), TEST(the_busy_stay),
          TEST(the_late_go))
