#include "tests/support/visitors.h"

#include <string.h>
#include <sys/resource.h>

#include "tests/support/test.h"

#define SERVER rt_peer(RT_ROLE_COORDINATOR, 0)
#define FILES 4096u // each end takes several descriptors
#define WAIT_S 60

static const rt_transport_ops *const ops = &rt_transport_zmq;

static void send_one(rt_endpoint *end, uint32_t self, rt_message_type type, const void *payload,
                     size_t size)
{
    rt_message message;
    bool ready;
    rt_status status = RT_AGAIN;
    assert_int_equal(rt_message_create(&message, type, self, 1, 0, size), RT_OK);
    memcpy(rt_message_payload(&message), payload, size);
    for (int i = 0; i < WAIT_S * 50 && status == RT_AGAIN; i++) {
        status = ops->send(end, SERVER, &message);
        if (status == RT_AGAIN)
            (void)ops->wait(&end, 1, -1, 20, &ready);
    }
    assert_int_equal(status, RT_OK);
}

static void await_answer(rt_endpoint *end, uint32_t self)
{
    rt_message answer = {0};
    uint32_t peer;
    bool ready;
    rt_status status = RT_AGAIN;
    for (int i = 0; i < WAIT_S * 50 && status == RT_AGAIN; i++) {
        (void)ops->wait(&end, 1, -1, 20, &ready);
        status = ops->receive(end, &peer, &answer, NULL);
    }
    if (status || rt_message_header(&answer)->type == RT_MESSAGE_STOP)
        fail_msg("visitor %u: %s", rt_peer_rank(self), status ? rt_status_text(status) : "STOP");
    rt_message_release(&answer);
}

void visitors_take(visitors *v, const char *address, uint32_t first, uint32_t count,
                   rt_message_type type, const void *payload, size_t size)
{
    struct rlimit files;
    *v = (visitors){.count = count};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max < FILES ? files.rlim_max : FILES;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    assert_int_equal(ops->open(&v->transport, NULL), RT_OK);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t self = rt_peer(RT_ROLE_VISITOR, first + i);
        assert_int_equal(ops->connect(v->transport, self, SERVER, address, &v->ends[i], NULL),
                         RT_OK);
        send_one(v->ends[i], self, type, payload, size);
    }
    for (uint32_t i = 0; i < count; i++)
        await_answer(v->ends[i], rt_peer(RT_ROLE_VISITOR, first + i));
}

void visitors_leave(visitors *v)
{
    for (uint32_t i = 0; i < v->count; i++)
        ops->end(v->ends[i], 0);
    ops->close(v->transport);
}
