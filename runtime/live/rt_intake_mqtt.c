// Events from a topic of an MQTT broker, with QoS 1, over a session that the broker keeps.
//
// libmosquitto queues the PUBACK of a message before it calls back, and writes it at once, unless
// the client was told that threads are used (mosquitto_threaded_set): then queued packets are
// written by mosquitto_loop_write alone. So this thread reads what has come, waits until the
// journal has it, and only then writes. What was not acknowledged comes again.
#include <errno.h>
#include <inttypes.h>
#include <mosquitto.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/config/rt_address.h"
#include "runtime/http/rt_http_secrets.h"
#include "runtime/live/rt_intake.h"
#include "runtime/rt_log.h"
#include "runtime/rt_thread.h"

#define KEEPALIVE_S 60
#define POLL_MS 100 // also where bytes wait inside of TLS
#define FULL_MS 50
#define RECONNECT_MS_MIN 200
#define RECONNECT_MS_MAX 5000
#define BATCH_BYTES_MAX ((size_t)1 << 20)
#define READS_MAX 1000

typedef struct {
    const rt_config *config;
    rt_journal *journal;
    struct mosquitto *client;
    char host[RT_NAME_MAX];
    uint32_t port;
    bool is_connected; // the session is there; the thread's, as are those below
    rt_bytes batch;
    uint32_t batch_count;
    int wake;
    pthread_t thread;
    bool runs;
    rt_log_limit limit, bad;
    pthread_mutex_t lock; // the members below
    pthread_cond_t changed;
    bool stop;
    bool is_waiting; // for the journal
    rt_status committed;
    rt_intake_counts counts;
} intake;

static void on_connect(struct mosquitto *client, void *context, int reason)
{
    intake *in = context;
    uint64_t count;
    if (reason) {
        if (rt_log_due(&in->limit, &count))
            rt_warn("stream.mqtt: the broker %s:%" PRIu32 " refuses: %s", in->host, in->port,
                    mosquitto_connack_string(reason));
        return;
    }
    in->is_connected = true;
    (void)mosquitto_subscribe(client, NULL, in->config->stream.mqtt_topic, 1);
    rt_info("stream.mqtt: connected to %s:%" PRIu32 ", topic %s", in->host, in->port,
            in->config->stream.mqtt_topic);
    pthread_mutex_lock(&in->lock);
    in->counts.connections++;
    pthread_mutex_unlock(&in->lock);
}

static void on_message(struct mosquitto *client, void *context,
                       const struct mosquitto_message *message)
{
    intake *in = context;
    const char *text = message->payload;
    size_t size = message->payloadlen > 0 ? (size_t)message->payloadlen : 0;
    uint32_t count = 0;
    uint64_t told;
    (void)client;
    while (size > 0 && text[size - 1] == '\n')
        size--;
    if (size == 0)
        return;
    const bool is_good =
        rt_journal_count_lines(text, size, &count) && in->batch.size + size < RT_JOURNAL_FRAME_MAX;
    pthread_mutex_lock(&in->lock);
    in->counts.refused += !is_good;
    in->counts.unnamed += is_good && !*in->config->stream.id ? count : 0;
    pthread_mutex_unlock(&in->lock);
    if (!is_good) {
        if (rt_log_due(&in->bad, &told))
            rt_warn("stream.mqtt: %" PRIu64 " messages with lines of more than %u bytes were left "
                    "out",
                    told, RT_LINE_MAX);
        return;
    }
    rt_bytes_put(&in->batch, text, size);
    rt_bytes_put(&in->batch, "\n", 1);
    in->batch_count += count;
}

static void committed(void *context, rt_status status)
{
    intake *in = context;
    pthread_mutex_lock(&in->lock);
    in->committed = status;
    in->is_waiting = false;
    pthread_cond_broadcast(&in->changed);
    pthread_mutex_unlock(&in->lock);
}

static bool is_stopped(intake *in)
{
    pthread_mutex_lock(&in->lock);
    const bool stop = in->stop;
    pthread_mutex_unlock(&in->lock);
    return stop;
}

// Until the journal has what came. Where it is full that may take long; the broker waits.
static rt_status commit(intake *in)
{
    const rt_journal_entry entry = {.lines = (const char *)in->batch.data,
                                    .size = in->batch.size,
                                    .count = in->batch_count,
                                    .done = committed,
                                    .context = in};
    if (in->batch.failed)
        return RT_NO_MEMORY;
    in->is_waiting = true;
    rt_status status = rt_journal_append(in->journal, &entry);
    while (status == RT_AGAIN && !is_stopped(in)) {
        struct pollfd wake = {in->wake, POLLIN, 0};
        (void)poll(&wake, 1, FULL_MS);
        status = rt_journal_append(in->journal, &entry);
    }
    pthread_mutex_lock(&in->lock);
    while (!status && in->is_waiting)
        pthread_cond_wait(&in->changed, &in->lock);
    status = status ? status : in->committed;
    pthread_mutex_unlock(&in->lock);
    return status;
}

// Everything that is there. Returns the library's status.
static int read_all(intake *in)
{
    int reason = MOSQ_ERR_SUCCESS;
    for (int i = 0; i < READS_MAX && !reason && in->batch.size < BATCH_BYTES_MAX; i++) {
        struct pollfd one = {mosquitto_socket(in->client), POLLIN, 0};
        reason = mosquitto_loop_read(in->client, 1);
        if (one.fd < 0 || poll(&one, 1, 0) != 1)
            break;
    }
    return reason;
}

static int write_all(intake *in)
{
    int reason = MOSQ_ERR_SUCCESS;
    while (!reason && mosquitto_want_write(in->client)) {
        struct pollfd one = {mosquitto_socket(in->client), POLLOUT, 0};
        if (one.fd < 0 || poll(&one, 1, POLL_MS) != 1)
            break;
        reason = mosquitto_loop_write(in->client, 1);
    }
    return reason;
}

// One round: read, keep, acknowledge. False: the connection is of no use any more.
static bool turn(intake *in)
{
    struct pollfd wanted[] = {{mosquitto_socket(in->client), POLLIN, 0}, {in->wake, POLLIN, 0}};
    if (wanted[0].fd < 0)
        return false;
    (void)poll(wanted, 2, POLL_MS);
    in->batch.size = 0;
    in->batch_count = 0;
    const int reason = read_all(in);
    if (in->batch.size > 0 && commit(in))
        return false; // nothing of it is acknowledged: it comes again
    return !reason && !mosquitto_loop_misc(in->client) && !write_all(in);
}

static struct mosquitto *create_client(intake *in, rt_error *error)
{
    const rt_stream_config *stream = &in->config->stream;
    char *password = NULL;
    if (*stream->mqtt_password &&
        rt_http_read_word("stream.mqtt.password", stream->mqtt_password, &password, error))
        return NULL;
    struct mosquitto *client = mosquitto_new(stream->mqtt_client, false, in);
    int reason = client ? MOSQ_ERR_SUCCESS : MOSQ_ERR_NOMEM;
    if (!reason)
        reason = mosquitto_threaded_set(client, true);
    if (!reason && *stream->mqtt_user)
        reason = mosquitto_username_pw_set(client, stream->mqtt_user, password);
    if (!reason && *stream->mqtt_ca)
        reason = mosquitto_tls_set(client, stream->mqtt_ca, NULL, NULL, NULL, NULL);
    if (password)
        explicit_bzero(password, strlen(password));
    rt_free(password);
    if (reason) {
        rt_fail(error, reason == MOSQ_ERR_NOMEM ? RT_NO_MEMORY : RT_CONFIG, "stream.mqtt: %s%s%s",
                mosquitto_strerror(reason), *stream->mqtt_ca ? ": stream.mqtt.ca " : "",
                stream->mqtt_ca);
        if (client)
            mosquitto_destroy(client);
        return NULL;
    }
    mosquitto_connect_callback_set(client, on_connect);
    mosquitto_message_callback_set(client, on_message);
    return client;
}

static void wait_ms(intake *in, int ms)
{
    struct pollfd wake = {in->wake, POLLIN, 0};
    (void)poll(&wake, 1, ms);
}

// A client of its own for every connection: nothing that was queued is left.
static bool connect_client(intake *in)
{
    rt_error error = {0};
    uint64_t count;
    in->is_connected = false;
    if (in->client)
        mosquitto_destroy(in->client);
    in->client = create_client(in, &error);
    const int reason = in->client
                           ? mosquitto_connect(in->client, in->host, (int)in->port, KEEPALIVE_S)
                           : MOSQ_ERR_INVAL;
    if (!reason)
        return true;
    const int cause = errno;
    if (rt_log_due(&in->limit, &count))
        rt_warn("stream.mqtt: no connection to %s:%" PRIu32 ": %s; trying again", in->host,
                in->port,
                error.status               ? error.text
                : reason == MOSQ_ERR_ERRNO ? strerror(cause)
                                           : mosquitto_strerror(reason));
    return false;
}

static void *run(void *context)
{
    intake *in = context;
    int pause_ms = RECONNECT_MS_MIN;
    prctl(PR_SET_NAME, "mqtt");
    while (!is_stopped(in)) {
        if (connect_client(in)) {
            while (!is_stopped(in) && turn(in))
                pause_ms = in->is_connected ? RECONNECT_MS_MIN : pause_ms;
            if (!is_stopped(in))
                rt_info("stream.mqtt: the connection ended");
        }
        if (!is_stopped(in))
            wait_ms(in, pause_ms);
        pause_ms = pause_ms * 2 < RECONNECT_MS_MAX ? pause_ms * 2 : RECONNECT_MS_MAX;
    }
    if (in->client)
        (void)mosquitto_disconnect(in->client);
    return NULL;
}

static void close_intake(void *context)
{
    intake *in = context;
    const uint64_t one = 1;
    pthread_mutex_lock(&in->lock);
    in->stop = true;
    pthread_mutex_unlock(&in->lock);
    if (in->wake >= 0 && write(in->wake, &one, sizeof one) < 0) {
        // it is readable already
    }
    if (in->runs)
        pthread_join(in->thread, NULL);
    if (in->client)
        mosquitto_destroy(in->client);
    mosquitto_lib_cleanup();
    if (in->wake >= 0)
        close(in->wake);
    rt_bytes_fini(&in->batch);
    pthread_cond_destroy(&in->changed);
    pthread_mutex_destroy(&in->lock);
    rt_free(in);
}

static rt_status check(intake *in, rt_error *error)
{
    const rt_stream_config *stream = &in->config->stream;
    if (!rt_address_split(stream->mqtt_broker, in->host, sizeof in->host, &in->port))
        return rt_fail(error, RT_CONFIG,
                       "stream.mqtt.broker: \"%s\" is no address, expected \"HOST:PORT\"",
                       stream->mqtt_broker);
    if (mosquitto_sub_topic_check(stream->mqtt_topic) != MOSQ_ERR_SUCCESS)
        return rt_fail(error, RT_CONFIG, "stream.mqtt.topic: \"%s\" is no topic",
                       stream->mqtt_topic);
    if (!*stream->mqtt_client)
        return rt_fail(
            error, RT_CONFIG,
            "stream.mqtt.client: expected a name, for the session that the broker keeps");
    if (*stream->mqtt_ca || rt_address_is_loopback(stream->mqtt_broker) ||
        in->config->security_insecure)
        return RT_OK;
    return rt_fail(error, RT_CONFIG,
                   "stream.mqtt.broker: %s is another machine: that needs stream.mqtt.ca (TLS), or "
                   "security.insecure: true",
                   stream->mqtt_broker);
}

static rt_status open_intake(const rt_config *config, rt_journal *journal, void **intake_p,
                             rt_error *error)
{
    intake *in = rt_alloc(1, sizeof *in);
    if (!in)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for stream.mqtt");
    (void)mosquitto_lib_init();
    in->config = config;
    in->journal = journal;
    in->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutex_init(&in->lock, NULL);
    pthread_cond_init(&in->changed, NULL);
    rt_status status = check(in, error);
    if (!status && in->wake < 0)
        status = rt_fail(error, RT_LIMIT, "cannot create an event descriptor");
    if (!status) { // what cannot be right is told now, not by the thread
        in->client = create_client(in, error);
        status = in->client ? RT_OK : error->status;
    }
    if (!status) {
        in->runs = rt_thread_start(&in->thread, run, in) == 0;
        status = in->runs ? RT_OK : rt_fail(error, RT_LIMIT, "cannot start a thread for MQTT");
    }
    if (status) {
        close_intake(in);
        return status;
    }
    *intake_p = in;
    return RT_OK;
}

static void counts(void *context, rt_intake_counts *counts)
{
    intake *in = context;
    pthread_mutex_lock(&in->lock);
    *counts = in->counts;
    pthread_mutex_unlock(&in->lock);
}

const rt_intake_ops rt_intake_mqtt = {
    .kind = RT_SOURCE_MQTT, .open = open_intake, .close = close_intake, .counts = counts};
