// An ask lives on the stack of the thread that waits for it, and is in the list while it does. The
// socket belongs to the asker's thread alone; a wake descriptor tells it that something was put in.
#include "edge_worker/serve/ew_asker.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "runtime/rt_log.h"
#include "runtime/rt_thread.h"
#include "runtime/transport/rt_visitor.h"
#include "runtime/wire/rt_control.h"

#define SERVER rt_peer(RT_ROLE_COORDINATOR, 0)
#define WAIT_MS 200
#define PAUSE_NS 200000000                  // before it is tried to connect again
#define PROBE_EVERY_NS UINT64_C(1000000000) // of who does not answer
#define PROBES_MAX 5u                       // then over another connection

typedef enum { ASK_WAITS, ASK_SENT, ASK_ANSWERED, ASK_FAILED } ask_state;

typedef struct ask {
    struct ask *next;
    uint64_t number;
    ask_state state;
    rt_message question, answer;
} ask;

struct ew_asker {
    char address[RT_NAME_MAX + 16];
    rt_transport *transport;
    rt_endpoint *endpoint; // NULL: not connected
    rt_visitor visitor;
    bool is_let_in; // it has answered over this connection: nobody else has our number there
    int wake_fd;
    atomic_bool stops;
    pthread_t thread;
    bool started;
    uint64_t probed_ns;
    uint32_t probes; // without an answer

    pthread_mutex_t lock; // of all below
    pthread_cond_t answered;
    ask *asks; // they are those of the threads that wait
    uint64_t number;
    bool is_silent;
};

// ---- who asks --------------------------------------------------------------------------------

static void leave(ew_asker *asker, const ask *own)
{
    ask **at = &asker->asks;
    while (*at && *at != own)
        at = &(*at)->next;
    if (*at)
        *at = own->next;
}

static void note_silence(ew_asker *asker, const char *why)
{
    if (!asker->is_silent)
        rt_warn("rows: %s %s; trying on", asker->address, why);
    asker->is_silent = true;
}

static struct timespec time_of(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

static void wake(const ew_asker *asker)
{
    const uint64_t one = 1;
    if (write(asker->wake_fd, &one, sizeof one) < 0)
        return; // it is awake: the counter is full
}

rt_status ew_asker_ask(ew_asker *asker, rt_message *question, uint64_t deadline_ns,
                       rt_message *answer, rt_error *error)
{
    const struct timespec end = time_of(deadline_ns);
    ask own = {.question = *question};
    *question = (rt_message){0};
    int result = 0;
    pthread_mutex_lock(&asker->lock);
    own.number = ++asker->number;
    if (asker->is_silent) { // nobody waits for who did not answer before
        own.state = ASK_FAILED;
    } else {
        own.state = ASK_WAITS;
        own.next = asker->asks;
        asker->asks = &own;
        wake(asker);
    }
    while (own.state < ASK_ANSWERED && result == 0)
        result = pthread_cond_timedwait(&asker->answered, &asker->lock, &end);
    leave(asker, &own);
    if (own.state < ASK_ANSWERED)
        note_silence(asker, "does not answer");
    pthread_mutex_unlock(&asker->lock);
    rt_message_release(&own.question);
    if (own.state == ASK_ANSWERED) {
        *answer = own.answer;
        return RT_OK;
    }
    const rt_status why = own.state == ASK_FAILED ? RT_PEER : RT_TIMEOUT;
    return rt_fail(error, why, "%s does not answer", asker->address);
}

// ---- the asker's thread ----------------------------------------------------------------------

static rt_status send_one(const ew_asker *asker, rt_message *question, uint64_t number)
{
    rt_message_header(question)->sender = rt_visitor_peer(&asker->visitor);
    rt_message_header(question)->iteration = number;
    return rt_transport_send(&rt_transport_zmq, asker->endpoint, SERVER, question);
}

// A question for no rows: of who does not answer, and first of all, so that no question for rows is
// lost where another visitor has our number.
static void greet(ew_asker *asker)
{
    const rt_wire_look_up none = {0};
    rt_message message = {0};
    if (!rt_control_create_struct(&message, RT_MESSAGE_LOOK_UP, rt_visitor_peer(&asker->visitor), 0,
                                  &none, sizeof none, NULL))
        (void)send_one(asker, &message, 0);
    rt_message_release(&message);
}

static rt_status connect_anew(ew_asker *asker, rt_error *error)
{
    asker->is_let_in = false;
    const rt_status status =
        rt_transport_zmq.connect(asker->transport, rt_visitor_peer(&asker->visitor), SERVER,
                                 asker->address, &asker->endpoint, error);
    if (!status)
        greet(asker);
    return status;
}

// What was asked over a connection that ended has no answer.
static void hang_up(ew_asker *asker)
{
    if (asker->endpoint)
        rt_transport_zmq.end(asker->endpoint, 0);
    asker->endpoint = NULL;
    asker->probes = 0;
    pthread_mutex_lock(&asker->lock);
    note_silence(asker, "is away");
    for (ask *one = asker->asks; one; one = one->next)
        if (one->state < ASK_ANSWERED)
            one->state = ASK_FAILED;
    pthread_cond_broadcast(&asker->answered);
    pthread_mutex_unlock(&asker->lock);
}

// With the lock held. RT_AGAIN: the connection takes no more at present.
static rt_status send_waiting(ew_asker *asker)
{
    for (ask *one = asker->asks; one; one = one->next) {
        if (one->state != ASK_WAITS)
            continue;
        const rt_status status = send_one(asker, &one->question, one->number);
        if (status)
            return status;
        one->state = ASK_SENT;
    }
    return RT_OK;
}

static rt_status send_all(ew_asker *asker)
{
    if (!asker->is_let_in)
        return RT_OK;
    pthread_mutex_lock(&asker->lock);
    const rt_status status = send_waiting(asker);
    pthread_mutex_unlock(&asker->lock);
    if (status == RT_AGAIN)
        return RT_OK;
    return status;
}

static rt_status probe(ew_asker *asker)
{
    pthread_mutex_lock(&asker->lock);
    const bool is_silent = asker->is_silent;
    pthread_mutex_unlock(&asker->lock);
    if (!is_silent || rt_now_ns() - asker->probed_ns < PROBE_EVERY_NS)
        return RT_OK;
    if (asker->probes++ == PROBES_MAX)
        return RT_PEER;
    asker->probed_ns = rt_now_ns();
    greet(asker);
    return RT_OK;
}

static void take(ew_asker *asker, rt_message *message)
{
    const uint64_t number = rt_message_header(message)->iteration;
    asker->probes = 0;
    asker->is_let_in = true;
    rt_visitor_settle(&asker->visitor);
    pthread_mutex_lock(&asker->lock);
    if (asker->is_silent)
        rt_info("rows: %s answers again", asker->address);
    asker->is_silent = false;
    ask *one = asker->asks;
    while (one && one->number != number)
        one = one->next;
    if (one && one->state == ASK_SENT) {
        one->answer = *message;
        *message = (rt_message){0};
        one->state = ASK_ANSWERED;
        pthread_cond_broadcast(&asker->answered);
    }
    pthread_mutex_unlock(&asker->lock);
}

// Another visitor has our number: the next one, at once. Nothing was asked over this connection.
static rt_status change_number(ew_asker *asker)
{
    rt_error error = {0};
    if (!rt_visitor_next(&asker->visitor))
        return RT_PEER; // all are taken
    rt_transport_zmq.end(asker->endpoint, 0);
    asker->endpoint = NULL;
    return connect_anew(asker, &error);
}

static rt_status receive_all(ew_asker *asker)
{
    for (;;) {
        uint32_t peer;
        rt_message message = {0};
        rt_error error = {0};
        const rt_status status =
            rt_transport_receive(&rt_transport_zmq, asker->endpoint, &peer, &message, &error);
        if (status == RT_AGAIN)
            return RT_OK;
        if (status == RT_WIRE)
            continue; // no message of ours
        if (status)
            return status;
        const uint32_t type = rt_message_header(&message)->type;
        const bool is_taken = rt_control_is_taken(&message);
        if (type == RT_MESSAGE_LOOKED_UP)
            take(asker, &message);
        rt_message_release(&message);
        if (is_taken)
            return change_number(asker);
        if (type == RT_MESSAGE_STOP)
            return RT_PEER;
    }
}

static rt_status converse(ew_asker *asker)
{
    rt_error error = {0};
    rt_status status = RT_OK;
    if (!asker->endpoint)
        status = connect_anew(asker, &error);
    if (status)
        return status;
    status = send_all(asker);
    if (status)
        return status;
    status = probe(asker);
    if (status)
        return status;
    return receive_all(asker);
}

static void work_once(ew_asker *asker)
{
    const struct timespec pause = {0, PAUSE_NS};
    bool ready;
    uint64_t wakes;
    if (converse(asker)) {
        hang_up(asker);
        (void)nanosleep(&pause, NULL);
        return;
    }
    (void)rt_transport_zmq.wait(&asker->endpoint, 1, asker->wake_fd, WAIT_MS, &ready);
    while (read(asker->wake_fd, &wakes, sizeof wakes) > 0)
        ;
}

static void *work(void *context)
{
    ew_asker *asker = context;
    while (!atomic_load(&asker->stops))
        work_once(asker);
    return NULL;
}

// ---- beginning and end -----------------------------------------------------------------------

static rt_status open_all(ew_asker *asker, const rt_keys *keys, rt_error *error)
{
    asker->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (asker->wake_fd < 0)
        return rt_fail(error, RT_LIMIT, "eventfd: %s", strerror(errno));
    rt_status status = rt_transport_open(&rt_transport_zmq, keys, &asker->transport, error);
    if (status)
        return status;
    status = rt_visitor_init(&asker->visitor, error);
    if (status)
        return status;
    status = connect_anew(asker, error);
    if (status)
        return status;
    return rt_thread_run(&asker->thread, &asker->started, work, asker, error);
}

rt_status ew_asker_open(const ew_asker_config *config, ew_asker **asker_p, rt_error *error)
{
    pthread_condattr_t clock;
    ew_asker *asker = rt_alloc(1, sizeof *asker);
    if (!asker)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    snprintf(asker->address, sizeof asker->address, "%s", config->address);
    pthread_mutex_init(&asker->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC); // that of rt_now_ns
    pthread_cond_init(&asker->answered, &clock);
    pthread_condattr_destroy(&clock);
    const rt_status status = open_all(asker, config->keys, error);
    if (status) {
        ew_asker_close(asker);
        return status;
    }
    *asker_p = asker;
    return RT_OK;
}

void ew_asker_close(ew_asker *asker)
{
    if (!asker)
        return;
    atomic_store(&asker->stops, true);
    if (asker->started) {
        wake(asker);
        pthread_join(asker->thread, NULL);
    }
    if (asker->endpoint)
        rt_transport_zmq.end(asker->endpoint, 0);
    if (asker->transport)
        rt_transport_zmq.close(asker->transport);
    if (asker->wake_fd >= 0)
        close(asker->wake_fd);
    pthread_cond_destroy(&asker->answered);
    pthread_mutex_destroy(&asker->lock);
    rt_free(asker);
}
