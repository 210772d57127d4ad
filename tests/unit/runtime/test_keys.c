// Key files, the list of boxes that may join, and what connections with the wrong keys come to.
#include "runtime/transport/rt_keys.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "runtime/config/rt_address.h"
#include "runtime/transport/rt_transport.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

#define COORDINATOR (rt_peer(RT_ROLE_COORDINATOR, 0))
#define SHARD (rt_peer(RT_ROLE_PS, 0))
#define WORKER (rt_peer(RT_ROLE_WORKER, 3))
#define PATIENCE_MS 20000
#define QUIET_MS 1500 // in which nothing may come

static const rt_transport_ops *const ops = &rt_transport_zmq;

static const char *path_of(const char *name)
{
    static char paths[4][512], folder[256];
    static unsigned next;
    if (!folder[0])
        snprintf(folder, sizeof folder, "%s", test_directory());
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void put(char *field, const char *name)
{
    snprintf(field, RT_PATH_MAX, "%s", path_of(name));
}

// Keys of boxes a, b and c in "keys"; the coordinator is on box a. c is not on the list.
static rt_config config_with_keys(void)
{
    rt_config config = config_fresh();
    const char *const boxes[] = {"a", "b", "c"};
    for (size_t i = 0; i < RT_COUNT_OF(boxes); i++)
        assert_int_equal(rt_keys_create(path_of("keys"), boxes[i], NULL), RT_OK);
    assert_int_equal(rename(path_of("keys/c.public"), path_of("c.public")), 0);
    put(config.security_key, "keys/a.secret");
    put(config.security_allow, "keys");
    put(config.security_server_key, "keys/a.public");
    return config;
}

static rt_keys keys_of(const char *box, rt_config *config)
{
    rt_keys keys;
    rt_error error = {0};
    char name[64];
    snprintf(name, sizeof name, "keys/%s.secret", box);
    put(config->security_key, name);
    if (rt_keys_load(config, &keys, &error))
        fail_msg("%s", error.text);
    return keys;
}

static void refuse(const rt_config *config, const char *path, const char *why)
{
    rt_keys keys;
    rt_error error = {0};
    if (rt_keys_load(config, &keys, &error) == RT_OK)
        fail_msg("%s was taken, expected a refusal: %s", path, why);
    if (!strstr(error.text, path) || !strstr(error.text, why))
        fail_msg("\"%s\" does not name %s and \"%s\"", error.text, path, why);
    assert_false(keys.is_set);
}

static void pairs_are_made_and_read(void **state)
{
    (void)state;
    struct stat info;
    rt_config config = config_with_keys();
    rt_keys keys = keys_of("a", &config);
    assert_true(keys.is_set && !keys.is_insecure);
    assert_string_equal(keys.own.name, "a");
    assert_int_equal(keys.allowed_count, 2);
    assert_memory_equal(keys.coordinator.bytes, keys.own.bytes, RT_KEY_BYTES);
    assert_string_equal(rt_keys_find(&keys, keys.own.bytes), "a");
    rt_keys other = keys_of("b", &config);
    assert_string_equal(rt_keys_find(&keys, other.own.bytes), "b");
    assert_memory_not_equal(other.own.bytes, keys.own.bytes, RT_KEY_BYTES);
    rt_keys third = keys_of("c", &config);
    assert_null(rt_keys_find(&keys, third.own.bytes));
    assert_int_equal(stat(path_of("keys/a.secret"), &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    rt_config_fini(&config);
}

static void keys_are_never_written_over(void **state)
{
    (void)state;
    rt_error error = {0};
    assert_int_equal(rt_keys_create(path_of("keys"), "a", &error), RT_OK);
    assert_int_equal(rt_keys_create(path_of("keys"), "a", &error), RT_IO);
    assert_non_null(strstr(error.text, "never overwrites keys"));
    assert_int_equal(unlink(path_of("keys/a.secret")), 0);
    assert_int_equal(rt_keys_create(path_of("keys"), "a", &error),
                     RT_IO); // the public half is there
    assert_int_not_equal(access(path_of("keys/a.secret"), F_OK), 0);
    const char *const names[] = {"", "a/b", "..", "a b", "\xc3\xa4"};
    for (size_t i = 0; i < RT_COUNT_OF(names); i++)
        assert_int_equal(rt_keys_create(path_of("keys"), names[i], &error), RT_CONFIG);
}

static void modes_are_checked(void **state)
{
    (void)state;
    rt_config config = config_with_keys();
    const mode_t readable[] = {0640, 0604, 0620, 0602, 0610, 0644};
    for (size_t i = 0; i < RT_COUNT_OF(readable); i++) {
        assert_int_equal(chmod(config.security_key, readable[i]), 0);
        refuse(&config, "a.secret", "chmod 600");
    }
    assert_int_equal(chmod(config.security_key, 0400), 0);
    assert_int_equal(chmod(path_of("keys/b.public"), 0666), 0);
    refuse(&config, "b.public", "chmod go-w");
    assert_int_equal(chmod(path_of("keys/b.public"), 0644), 0);
    assert_int_equal(chmod(config.security_allow, 0777), 0);
    refuse(&config, "keys", "chmod go-w");
    assert_int_equal(chmod(config.security_allow, 0755), 0);
    rt_keys keys = keys_of("a", &config);
    assert_true(keys.is_set);
    rt_config_fini(&config);
}

static void broken_files_are_named(void **state)
{
    (void)state;
    rt_config config = config_with_keys();
    static const char *const texts[] = {
        "",
        "lanyard-public-key 1 x",
        "lanyard-public-key 2 x rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7",
        "lanyard-public-key 1 x rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7 more",
        "lanyard-public-key 1 x rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf78",
        "lanyard-public-key 1 x rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf\xff",
        "lanyard-public-key 1 ../x rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7",
        "lanyard-public-key 1 x ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~",
        "\n\n\xff\xfe",
    };
    for (size_t i = 0; i < RT_COUNT_OF(texts); i++) {
        put(config.security_server_key, "broken");
        write_file("broken", texts[i]);
        refuse(&config, "broken", "expected");
        assert_int_equal(chmod(path_of("broken"), 0600), 0);
        put(config.security_key, "broken");
        refuse(&config, "broken", "no secret key");
        put(config.security_key, "keys/a.secret");
        put(config.security_server_key, "keys/a.public");
    }
    put(config.security_key, "keys/a.public"); // the wrong half
    assert_int_equal(chmod(config.security_key, 0600), 0);
    refuse(&config, "a.public", "no secret key");
    put(config.security_key, "keys");
    refuse(&config, "keys", "not a regular file");
    put(config.security_key, "nothing");
    refuse(&config, "nothing", "No such file");
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    put(config.security_key, "pipe"); // must not wait for a writer
    refuse(&config, "pipe", "not a regular file");
    put(config.security_key, "keys/a.secret");
    put(config.security_allow, "nothing");
    refuse(&config, "nothing", "security.allow");
    assert_int_equal(mkdir(path_of("empty"), 0755), 0);
    put(config.security_allow, "empty");
    refuse(&config, "empty", "no key of any box");
    rt_config_fini(&config);
}

// ---- connections -----------------------------------------------------------------------------

static rt_status receive_within(rt_endpoint *endpoint, int limit_ms, uint32_t *peer_p,
                                rt_message *message)
{
    uint64_t end_ns = rt_now_ns() + (uint64_t)limit_ms * UINT64_C(1000000);
    rt_status status;
    bool ready = false;
    while ((status = ops->receive(endpoint, peer_p, message, NULL)) == RT_AGAIN) {
        if (rt_now_ns() > end_ns)
            return RT_TIMEOUT;
        ops->wait(&endpoint, 1, -1, 20, &ready);
    }
    return status;
}

static void send_beat(rt_endpoint *endpoint)
{
    rt_message message;
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_HEARTBEAT, WORKER, 0, 0, 0), RT_OK);
    assert_int_equal(ops->send(endpoint, COORDINATOR, &message), RT_OK);
}

typedef struct {
    rt_transport *here, *there;
    rt_endpoint *server, *client;
    char address[RT_NAME_MAX];
} pair;

static void pair_open(pair *both, const rt_keys *server, const rt_keys *client)
{
    assert_int_equal(rt_transport_open(ops, server, &both->here, NULL), RT_OK);
    assert_int_equal(rt_transport_open(ops, client, &both->there, NULL), RT_OK);
    assert_int_equal(ops->listen(both->here, COORDINATOR, "tcp://127.0.0.1:0", both->address,
                                 &both->server, NULL),
                     RT_OK);
    assert_int_equal(
        ops->connect(both->there, WORKER, COORDINATOR, both->address, &both->client, NULL), RT_OK);
    send_beat(both->client);
}

static void pair_close(pair *both)
{
    ops->end(both->client, 0);
    ops->end(both->server, 0);
    ops->close(both->there);
    ops->close(both->here);
}

static void expect_heard(const rt_keys *server, const rt_keys *client, bool heard)
{
    pair both;
    uint32_t peer;
    rt_message message = {0};
    pair_open(&both, server, client);
    rt_status status = receive_within(both.server, heard ? PATIENCE_MS : QUIET_MS, &peer, &message);
    assert_int_equal(status, heard ? RT_OK : RT_TIMEOUT);
    if (heard)
        assert_int_equal(peer, WORKER);
    rt_message_release(&message);
    pair_close(&both);
}

static void only_known_keys_get_in(void **state)
{
    (void)state;
    rt_config config = config_with_keys();
    rt_keys a = keys_of("a", &config), b = keys_of("b", &config), c = keys_of("c", &config);
    const rt_keys none = {0};
    expect_heard(&a, &a, true);
    expect_heard(&a, &b, true);
    expect_heard(&a, &c, false);    // not on the list
    expect_heard(&a, &none, false); // no key
    expect_heard(&none, &a, false); // a server without keys is none of ours
    rt_keys misled = b;
    misled.coordinator = b.own; // expects another server than answers
    expect_heard(&a, &misled, false);
    rt_keys liar = c; // the public half of b, without the secret one
    liar.own = b.own;
    expect_heard(&a, &liar, false);
    rt_config_fini(&config);
}

// ---- replays: what a client once said, said again by somebody who listened

#define RECORD_MAX (1u << 16)

typedef struct {
    int listener, stop[2];
    uint32_t port, server_port;
    uint8_t bytes[RECORD_MAX]; // from the client
    size_t size;
    pthread_t thread;
} recorder;

static struct sockaddr_in local(uint32_t port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_addr = {htonl(INADDR_LOOPBACK)},
                                .sin_port = htons((uint16_t)port)};
}

static int dial(uint32_t port)
{
    struct sockaddr_in address = local(port);
    int one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(one, (const struct sockaddr *)&address, sizeof address), 0);
    return one;
}

// Passes bytes on both ways until it is told to stop.
static void *record(void *argument)
{
    recorder *r = argument;
    uint8_t bytes[4096];
    int client = accept(r->listener, NULL, NULL), server = dial(r->server_port);
    struct pollfd items[] = {{client, POLLIN, 0}, {server, POLLIN, 0}, {r->stop[0], POLLIN, 0}};
    while (poll(items, 3, -1) > 0 && !items[2].revents) {
        for (int i = 0; i < 2; i++) {
            if (!items[i].revents)
                continue;
            ssize_t got = read(items[i].fd, bytes, sizeof bytes);
            if (got <= 0) {
                items[i].fd = -1;
                continue;
            }
            if (i == 0 && r->size + (size_t)got <= RECORD_MAX) {
                memcpy(r->bytes + r->size, bytes, (size_t)got);
                r->size += (size_t)got;
            }
            (void)send(i == 0 ? server : client, bytes, (size_t)got, MSG_NOSIGNAL);
        }
    }
    close(client);
    close(server);
    return NULL;
}

static void recorder_start(recorder *r, const char *server)
{
    struct sockaddr_in address = local(0);
    socklen_t size = sizeof address;
    char host[64];
    *r = (recorder){0};
    assert_true(rt_address_split(server, host, sizeof host, &r->server_port));
    r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(r->listener, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(r->listener, 1), 0);
    assert_int_equal(getsockname(r->listener, (struct sockaddr *)&address, &size), 0);
    r->port = ntohs(address.sin_port);
    assert_int_equal(pipe(r->stop), 0);
    assert_int_equal(pthread_create(&r->thread, NULL, record, r), 0);
}

static void replays_and_fragments_are_not_heard(void **state)
{
    (void)state;
    static recorder r;
    rt_config config = config_with_keys();
    rt_keys a = keys_of("a", &config), b = keys_of("b", &config);
    rt_transport *here = NULL, *there = NULL;
    rt_endpoint *server = NULL, *client = NULL;
    char address[RT_NAME_MAX], through[64];
    uint32_t peer;
    rt_message message = {0};
    assert_int_equal(rt_transport_open(ops, &a, &here, NULL), RT_OK);
    assert_int_equal(rt_transport_open(ops, &b, &there, NULL), RT_OK);
    assert_int_equal(ops->listen(here, COORDINATOR, "tcp://127.0.0.1:0", address, &server, NULL),
                     RT_OK);
    recorder_start(&r, address);
    snprintf(through, sizeof through, "tcp://127.0.0.1:%u", r.port);
    assert_int_equal(ops->connect(there, WORKER, COORDINATOR, through, &client, NULL), RT_OK);
    send_beat(client);
    assert_int_equal(receive_within(server, PATIENCE_MS, &peer, &message), RT_OK);
    rt_message_release(&message);
    ops->end(client, 0);
    ops->close(there);
    assert_int_equal(write(r.stop[1], "", 1), 1);
    assert_int_equal(pthread_join(r.thread, NULL), 0);
    assert_true(r.size > 300); // greeting, HELLO, INITIATE, a message
    int again[64];
    size_t count = 0;
    for (size_t size = r.size; size > 0 && count < RT_COUNT_OF(again); size -= (size + 63) / 64) {
        again[count] = dial(r.server_port);
        (void)send(again[count++], r.bytes, size, MSG_NOSIGNAL);
    }
    assert_int_equal(receive_within(server, QUIET_MS, &peer, &message), RT_TIMEOUT);
    while (count > 0)
        close(again[--count]);
    ops->end(server, 0);
    ops->close(here);
    rt_config_fini(&config);
}

// One that was added later is heard, and may be a server; a second key of a name is refused.
static void a_key_more_gets_in(void **state)
{
    (void)state;
    rt_config config = config_with_keys();
    rt_error error = {0};
    rt_keys a = keys_of("a", &config), b = keys_of("b", &config), c = keys_of("c", &config);
    pair both;
    uint32_t peer;
    rt_message message = {0};
    expect_heard(&a, &c, false);
    assert_int_equal(rt_transport_open(ops, &a, &both.here, NULL), RT_OK);
    assert_int_equal(ops->trust(both.here, SHARD, c.own.bytes, &error), RT_CONFIG);
    assert_int_equal(ops->allow(both.here, &b.own, &error), RT_OK); // it is on the list already
    rt_public_key liar = c.own;
    snprintf(liar.name, sizeof liar.name, "%s", b.own.name);
    assert_int_equal(ops->allow(both.here, &liar, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "another key of that name"));
    assert_int_equal(ops->allow(both.here, &c.own, &error), RT_OK);
    liar = b.own;
    liar.bytes[0] ^= 1;
    snprintf(liar.name, sizeof liar.name, "%s", c.own.name);
    assert_int_equal(ops->allow(both.here, &liar, &error), RT_CONFIG);
    assert_int_equal(ops->trust(both.here, SHARD, c.own.bytes, &error), RT_OK);
    assert_int_equal(rt_transport_open(ops, &c, &both.there, NULL), RT_OK);
    assert_int_equal(
        ops->listen(both.here, COORDINATOR, "tcp://127.0.0.1:0", both.address, &both.server, NULL),
        RT_OK);
    assert_int_equal(
        ops->connect(both.there, WORKER, COORDINATOR, both.address, &both.client, NULL), RT_OK);
    send_beat(both.client);
    assert_int_equal(receive_within(both.server, PATIENCE_MS, &peer, &message), RT_OK);
    rt_message_release(&message);
    pair_close(&both);
    rt_config_fini(&config);
}

static void a_shard_must_have_the_key_that_was_named(void **state)
{
    (void)state;
    rt_config config = config_with_keys();
    rt_error error = {0};
    rt_transport *transport = NULL;
    rt_endpoint *endpoint = NULL;
    rt_keys a = keys_of("a", &config), c = keys_of("c", &config);
    assert_int_equal(rt_transport_open(ops, &a, &transport, NULL), RT_OK);
    assert_int_not_equal( // nobody said which
        ops->connect(transport, WORKER, SHARD, "tcp://127.0.0.1:1", &endpoint, &error), RT_OK);
    assert_int_equal(ops->trust(transport, SHARD, c.own.bytes, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "ps 0"));
    assert_int_equal(ops->trust(transport, SHARD, a.own.bytes, &error), RT_OK);
    assert_int_equal(ops->connect(transport, WORKER, SHARD, "tcp://127.0.0.1:1", &endpoint, &error),
                     RT_OK);
    ops->end(endpoint, 0);
    ops->close(transport);
    rt_config_fini(&config);
}

static void without_keys_only_loopback(void **state)
{
    (void)state;
    static const char *const outside[] = {"tcp://0.0.0.0:0", "tcp://*:0", "tcp://192.0.2.1:5",
                                          "tcp://[::]:0"};
    static const char *const inside[] = {"tcp://127.0.0.1:0", "tcp://127.3.2.1:0"};
    char bound[RT_NAME_MAX];
    rt_transport *transport = NULL;
    rt_endpoint *endpoint = NULL;
    rt_error error = {0};
    assert_int_equal(ops->open(&transport, NULL), RT_OK);
    for (size_t i = 0; i < RT_COUNT_OF(outside); i++) {
        assert_int_equal(ops->listen(transport, COORDINATOR, outside[i], bound, &endpoint, &error),
                         RT_CONFIG);
        assert_non_null(strstr(error.text, "security.key"));
        assert_non_null(strstr(error.text, outside[i]));
    }
    assert_int_equal(ops->connect(transport, WORKER, COORDINATOR, outside[2], &endpoint, &error),
                     RT_CONFIG);
    for (size_t i = 0; i < RT_COUNT_OF(inside); i++) {
        assert_int_equal(ops->listen(transport, COORDINATOR, inside[i], bound, &endpoint, &error),
                         RT_OK);
        ops->end(endpoint, 0);
    }
    ops->close(transport);
    assert_true(rt_address_is_loopback("tcp://localhost:1"));
    assert_true(rt_address_is_loopback("tcp://[::1]:1"));
    assert_true(rt_address_is_loopback("ipc:///tmp/x"));
    assert_false(rt_address_is_loopback("tcp://128.0.0.1:1"));
    assert_false(rt_address_is_loopback("tcp://no-such-host.invalid:1"));
}

static void where_to_listen(void **state)
{
    (void)state;
    const struct {
        const char *bind, *given, *interface;
        uint32_t port;
        const char *want; // NULL: an error
    } cases[] = {
        {"", "", "", 0, "tcp://127.0.0.1:0"},
        {"", "", "", 7, "tcp://127.0.0.1:7"},
        {"", "10.0.0.1:7000", "", 0, "tcp://10.0.0.1:7000"},
        {"", "10.0.0.1:7000", "eth9", 7001, "tcp://10.0.0.1:7001"},
        {"", "[::1]:5", "", 0, "tcp://[::1]:5"},
        {"0.0.0.0", "10.0.0.1:7000", "lo", 0, "tcp://0.0.0.0:7000"},
        {"", "", "lo", 0, "tcp://127.0.0.1:0"},
        {"", "", "no-such-interface", 0, NULL},
        {"", "no-such-host.invalid:5", "", 0, NULL},
        {"", "10.0.0.1", "", 0, NULL},
        {"", "10.0.0.1:70000", "", 0, NULL},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        char address[128] = "";
        rt_error error = {0};
        rt_status status = rt_address_listen(cases[i].bind, cases[i].given, cases[i].interface,
                                             cases[i].port, address, sizeof address, &error);
        assert_int_equal(status == RT_OK, cases[i].want != NULL);
        if (cases[i].want)
            assert_string_equal(address, cases[i].want);
        else
            assert_true(strlen(error.text) > 0);
    }
}

TEST_MAIN(TEST(pairs_are_made_and_read), TEST(keys_are_never_written_over), TEST(modes_are_checked),
          TEST(broken_files_are_named), TEST(only_known_keys_get_in),
          TEST(replays_and_fragments_are_not_heard), TEST(a_key_more_gets_in),
          TEST(a_shard_must_have_the_key_that_was_named), TEST(without_keys_only_loopback),
          TEST(where_to_listen))
