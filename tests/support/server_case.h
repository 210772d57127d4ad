// server_case - a shard's server in a thread; the case plays the coordinator and a worker, over
// real sockets.
//
// Rows of four floats, without state (SGD). Static: every test has its own copy.
#ifndef SERVER_CASE_H
#define SERVER_CASE_H

#include <pthread.h>
#include <string.h>

#include "ps_lite/ps_server.h"
#include "runtime/config/rt_optimizers.h"
#include "tests/support/test.h"

#define DIM 4
#define HASH 0xabcdu
#define PATIENCE_MS 20000u // a step that takes longer has failed
#define NO_WAKE (-1)

static const rt_transport_ops *const ops = &rt_transport_zmq;

typedef struct {
    rt_config config;
    rt_transport *transport;
    rt_endpoint *coordinator; // listens
    rt_endpoint *worker;      // connected to the shard
    pthread_t thread;
    ps_server_config server;
    rt_status status; // of the server
    rt_error error;
    char address[RT_NAME_MAX];
    char shard_address[RT_ADDRESS_MAX];
} fixture;

static inline void *run_server(void *argument)
{
    fixture *f = argument;
    f->status = ps_server_run(&f->server, &f->error);
    return NULL;
}

static inline bool is_sign_of_life(const rt_message *message)
{
    const uint32_t type = rt_message_header(message)->type;
    return type == RT_MESSAGE_HEARTBEAT || type == RT_MESSAGE_VITALS;
}

static inline void receive(rt_endpoint *endpoint, rt_message *message)
{
    const uint64_t end = rt_now_ns() + PATIENCE_MS * UINT64_C(1000000);
    rt_error error = {RT_OK, ""};
    uint32_t peer;
    rt_status status;
    while ((status = ops->receive(endpoint, &peer, message, &error)) == RT_AGAIN ||
           (status == RT_OK && is_sign_of_life(message))) {
        bool ready;
        rt_message_release(message);
        if (rt_now_ns() > end)
            fail_msg("nothing came");
        ops->wait(&endpoint, 1, NO_WAKE, 100, &ready);
    }
    if (status != RT_OK)
        fail_msg("%s", error.text);
}

static inline rt_message expect(rt_endpoint *endpoint, rt_message_type type)
{
    rt_message message = {0};
    receive(endpoint, &message);
    assert_string_equal(rt_message_type_name(rt_message_header(&message)->type),
                        rt_message_type_name(type));
    return message;
}

static inline void send_bytes(rt_endpoint *endpoint, uint32_t from, uint32_t to,
                              rt_message_type type, uint64_t t, uint32_t count, const void *payload,
                              size_t size)
{
    rt_message message = {0};
    assert_int_equal(rt_message_create(&message, type, from, t, count, size), RT_OK);
    if (size)
        memcpy(rt_message_payload(&message), payload, size);
    assert_int_equal(ops->send(endpoint, to, &message), RT_OK);
}

static inline void from_coordinator(fixture *f, rt_message_type type, const void *payload,
                                    size_t size)
{
    send_bytes(f->coordinator, rt_peer(RT_ROLE_COORDINATOR, 0), rt_peer(RT_ROLE_PS, 0), type, 0, 0,
               payload, size);
}

static inline void from_worker(fixture *f, rt_message_type type, const void *payload, size_t size)
{
    send_bytes(f->worker, rt_peer(RT_ROLE_WORKER, 0), rt_peer(RT_ROLE_PS, 0), type, 3, 1, payload,
               size);
}

static inline rt_wire_welcome welcome_of(const fixture *f)
{
    rt_wire_welcome welcome = {.worker_count = f->config.worker_count,
                               .shard_count = 1,
                               .dense_count = 1,
                               .field_count = 2,
                               .keys_per_sample_max = 2,
                               .slot_count = 100,
                               .sample_count_max = 10,
                               .run_ahead = 1,
                               .shards_in = 1,
                               .workers = rt_bit(f->config.worker_count) - 1};
    memcpy(welcome.shards[0], f->shard_address, RT_ADDRESS_MAX);
    return welcome;
}

// Up to the shard's HELLO.
static inline void start(fixture *f)
{
    rt_error error;
    memset(f, 0, sizeof *f);
    f->config.worker_count = 2;
    f->config.ps_shard_count = 1;
    f->config.ps_memory_bytes_max = 1 << 24;
    f->config.model.embedding_dim = DIM;
    f->config.model.init_scale = 0.01;
    f->config.optimizer_rows =
        (rt_optimizer_config){.kind = RT_OPTIMIZER_SGD, .learning_rate = 0.5f};
    f->config.network_message_bytes = 1 << 16;
    f->config.timeout_peer_s = 20;
    f->config.timeout_start_s = 20;
    strcpy(f->config.network_bind, "127.0.0.1");
    assert_int_equal(ops->open(&f->transport, &error), RT_OK);
    assert_int_equal(ops->listen(f->transport, rt_peer(RT_ROLE_COORDINATOR, 0), "tcp://127.0.0.1:0",
                                 f->address, &f->coordinator, &error),
                     RT_OK);
    f->server = (ps_server_config){.transport = ops,
                                   .config = &f->config,
                                   .coordinator = f->address,
                                   .identity = {.config_hash = HASH},
                                   .schema = 77};
}

static inline void launch(fixture *f)
{
    assert_int_equal(pthread_create(&f->thread, NULL, run_server, f), 0);
    rt_message message = expect(f->coordinator, RT_MESSAGE_HELLO);
    rt_wire_hello hello;
    assert_true(rt_control_has(&message, sizeof hello));
    memcpy(&hello, rt_message_payload(&message), sizeof hello);
    rt_message_release(&message);
    assert_true(hello.role == RT_ROLE_PS && hello.rank == 0 && hello.config_hash == HASH);
    memcpy(f->shard_address, hello.address, sizeof hello.address);
}

// The coordinator's welcome, and a worker that comes.
static inline void join_run_as(fixture *f, const rt_wire_welcome *welcome, uint64_t worker_hash)
{
    rt_error error = {RT_OK, ""};
    from_coordinator(f, RT_MESSAGE_WELCOME, welcome, sizeof *welcome);
    if (ops->connect(f->transport, rt_peer(RT_ROLE_WORKER, 0), rt_peer(RT_ROLE_PS, 0),
                     f->shard_address, &f->worker, &error) != RT_OK)
        fail_msg("%s", error.text);
    rt_wire_hello hello = {.role = RT_ROLE_WORKER, .config_hash = worker_hash};
    rt_control_put_text(hello.program, sizeof hello.program, rt_build());
    from_worker(f, RT_MESSAGE_HELLO, &hello, sizeof hello);
}

static inline void join_run(fixture *f, uint64_t worker_hash)
{
    const rt_wire_welcome welcome = welcome_of(f);
    join_run_as(f, &welcome, worker_hash);
}

static inline void end(fixture *f, rt_status status, const char *text)
{
    pthread_join(f->thread, NULL);
    assert_string_equal(rt_status_text(f->status), rt_status_text(status));
    if (status != RT_OK && !strstr(f->error.text, text))
        fail_msg("\"%s\" lacks \"%s\"", f->error.text, text);
    if (f->worker)
        ops->end(f->worker, 0);
    ops->end(f->coordinator, 0);
    ops->close(f->transport);
}

typedef struct {
    rt_wire_row head;
    float floats[DIM];
} row_record;

static inline void expect_failed(fixture *f, rt_status status, const char *text)
{
    char reason[512];
    rt_message message = expect(f->coordinator, RT_MESSAGE_FAILED);
    assert_int_equal(rt_control_text(&message, reason, sizeof reason), RT_OK);
    rt_message_release(&message);
    if (!strstr(reason, text))
        fail_msg("\"%s\" lacks \"%s\"", reason, text);
    end(f, status, text);
}

#endif
