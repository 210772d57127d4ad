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
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "runtime/config/rt_address.h"
#include "runtime/config/rt_sources.h"
#include "runtime/http/rt_http_secrets.h"
#include "runtime/live/rt_intake_core.h"
#include "runtime/rt_log.h"

#define KEEPALIVE_S 60
#define POLL_MS 100 // also where bytes wait inside of TLS
#define FULL_MS 50
#define RECONNECT_MS_MIN 200
#define RECONNECT_MS_MAX 5000
#define BATCH_BYTES_MAX ((size_t)1 << 20)
#define READS_MAX 1000

typedef struct {
    rt_intake_core core;
    const rt_config *config;
    rt_flow flow;
    const char *topic;
    char name[RT_NAME_MAX + 16]; // of the session
    struct mosquitto *client;
    char host[RT_NAME_MAX];
    uint32_t port;
    bool is_connected; // the session is there; the thread's, as are those below
    rt_bytes batch;
    uint32_t batch_count;
    rt_log_limit limit, bad;
    rt_status committed; // the last block; under the core's lock
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
    (void)mosquitto_subscribe(client, NULL, in->topic, 1);
    rt_info("stream.mqtt: connected to %s:%" PRIu32 ", topic %s", in->host, in->port, in->topic);
    pthread_mutex_lock(&in->core.lock);
    in->core.counts.connections++;
    pthread_mutex_unlock(&in->core.lock);
}

// What the run cannot read is left out: nobody can be told, and a broker would send it for ever.
static void put_line(intake *in, const char *line, size_t length)
{
    rt_line_problem problem;
    uint64_t count;
    if (length == 0 || (length == 1 && *line == '\r'))
        return;
    if (rt_intake_reader_takes(in->core.readers[in->flow], line, length, &problem)) {
        rt_bytes_put(&in->batch, line, length);
        rt_bytes_put(&in->batch, "\n", 1);
        in->batch_count++;
        return;
    }
    rt_intake_count_refused(&in->core, 1);
    if (rt_log_due(&in->bad, &count))
        rt_warn("stream.mqtt: %" PRIu64 " lines were left out; the last one: %s", count,
                problem.text);
}

static void on_message(struct mosquitto *client, void *context,
                       const struct mosquitto_message *message)
{
    intake *in = context;
    const char *text = message->payload;
    size_t size = message->payloadlen > 0 ? (size_t)message->payloadlen : 0;
    uint64_t told;
    (void)client;
    if (size == 0)
        return;
    text = rt_intake_trim(text, &size);
    if (in->batch.size + size + 1 >= RT_JOURNAL_FRAME_MAX) {
        rt_intake_count_refused(&in->core, 1);
        if (rt_log_due(&in->bad, &told))
            rt_warn("stream.mqtt: %" PRIu64 " messages were left out; the last one has %zu bytes, "
                    "more than there is room for",
                    told, size);
        return;
    }
    for (const char *end = text + size; text < end;) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        stop = stop ? stop : end;
        put_line(in, text, (size_t)(stop - text));
        text = stop + 1;
    }
}

static void committed(void *context, uint32_t count, rt_status status)
{
    intake *in = context;
    (void)count;
    pthread_mutex_lock(&in->core.lock);
    in->committed = status;
    pthread_mutex_unlock(&in->core.lock);
}

// Until the journal has what came. Where it is full that may take long; the broker waits.
static rt_status commit(intake *in)
{
    const rt_journal_entry entry = {
        .lines = (const char *)in->batch.data, .size = in->batch.size, .count = in->batch_count};
    if (in->batch.failed)
        return RT_NO_MEMORY;
    rt_status status = rt_intake_append(&in->core, in->flow, &entry, committed, in);
    while (status == RT_AGAIN && !rt_intake_is_stopped(&in->core)) {
        rt_intake_pause(&in->core, FULL_MS);
        status = rt_intake_append(&in->core, in->flow, &entry, committed, in);
    }
    if (status)
        return status;
    rt_intake_settle(&in->core);
    rt_intake_wakes_seen(&in->core);
    pthread_mutex_lock(&in->core.lock);
    status = in->committed;
    pthread_mutex_unlock(&in->core.lock);
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
    struct pollfd wanted[] = {{mosquitto_socket(in->client), POLLIN, 0},
                              {in->core.wake, POLLIN, 0}};
    if (wanted[0].fd < 0)
        return false;
    (void)poll(wanted, 2, POLL_MS);
    rt_bytes_clear(&in->batch);
    in->batch_count = 0;
    const int reason = read_all(in);
    if ((in->batch.size > 0 || in->batch.failed) && commit(in))
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
    struct mosquitto *client = mosquitto_new(in->name, false, in);
    int reason = MOSQ_ERR_NOMEM;
    if (client)
        reason = mosquitto_threaded_set(client, true);
    if (!reason && *stream->mqtt_user)
        reason = mosquitto_username_pw_set(client, stream->mqtt_user, password);
    if (!reason && *stream->mqtt_ca)
        reason = mosquitto_tls_set(client, stream->mqtt_ca, NULL, NULL, NULL, NULL);
    if (password)
        explicit_bzero(password, strlen(password));
    rt_free(password);
    if (reason) {
        const rt_status status = reason == MOSQ_ERR_NOMEM ? RT_NO_MEMORY : RT_CONFIG;
        const char *of = *stream->mqtt_ca ? ": stream.mqtt.ca " : "";
        rt_fail(error, status, "stream.mqtt: %s%s%s", mosquitto_strerror(reason), of,
                stream->mqtt_ca);
        if (client)
            mosquitto_destroy(client);
        return NULL;
    }
    mosquitto_connect_callback_set(client, on_connect);
    mosquitto_message_callback_set(client, on_message);
    return client;
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
    int reason = MOSQ_ERR_INVAL;
    if (in->client)
        reason = mosquitto_connect(in->client, in->host, (int)in->port, KEEPALIVE_S);
    if (!reason)
        return true;
    const int cause = errno;
    const char *why = mosquitto_strerror(reason);
    if (reason == MOSQ_ERR_ERRNO)
        why = strerror(cause);
    if (error.status)
        why = error.text;
    if (rt_log_due(&in->limit, &count))
        rt_warn("stream.mqtt: no connection to %s:%" PRIu32 ": %s; trying again", in->host,
                in->port, why);
    return false;
}

static void *run(void *context)
{
    intake *in = context;
    int pause_ms = RECONNECT_MS_MIN;
    prctl(PR_SET_NAME, "mqtt");
    while (!rt_intake_is_stopped(&in->core)) {
        if (connect_client(in)) {
            while (!rt_intake_is_stopped(&in->core) && turn(in))
                if (in->is_connected)
                    pause_ms = RECONNECT_MS_MIN;
            if (!rt_intake_is_stopped(&in->core))
                rt_info("stream.mqtt: the connection ended");
        }
        if (!rt_intake_is_stopped(&in->core))
            rt_intake_pause(&in->core, pause_ms);
        pause_ms *= 2;
        if (pause_ms > RECONNECT_MS_MAX)
            pause_ms = RECONNECT_MS_MAX;
    }
    if (in->client)
        (void)mosquitto_disconnect(in->client);
    return NULL;
}

static void close_intake(void *context)
{
    intake *in = context;
    rt_intake_stop(&in->core);
    if (in->client)
        mosquitto_destroy(in->client);
    mosquitto_lib_cleanup();
    rt_bytes_fini(&in->batch);
    rt_intake_end(&in->core);
    rt_free(in);
}

static rt_status check(intake *in, rt_error *error)
{
    const rt_stream_config *stream = &in->config->stream;
    if (!rt_address_split(stream->mqtt_broker, in->host, sizeof in->host, &in->port))
        return rt_fail(error, RT_CONFIG,
                       "stream.mqtt.broker: \"%s\" is no address, expected \"HOST:PORT\"",
                       stream->mqtt_broker);
    const char *key = in->flow == RT_FLOW_EVENTS ? "stream.mqtt.topic" : "stream.join.topic";
    if (mosquitto_sub_topic_check(in->topic) != MOSQ_ERR_SUCCESS)
        return rt_fail(error, RT_CONFIG, "%s: \"%s\" is no topic", key, in->topic);
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

static rt_status begin(intake *in, const rt_journals *journals, rt_error *error)
{
    rt_status status = rt_intake_begin(&in->core, "stream.mqtt", in->config, journals, error);
    if (status)
        return status;
    status = check(in, error);
    if (!status)
        status = rt_intake_read_lines(&in->core, in->config, error);
    if (status)
        return status;
    in->client = create_client(in, error); // what cannot be right is told now, not by the thread
    if (!in->client)
        return error->status;
    return rt_intake_start(&in->core, run, in, error);
}

static rt_status open_intake(const rt_config *config, const rt_journals *journals, void **intake_p,
                             rt_error *error)
{
    intake *in = rt_alloc(1, sizeof *in);
    if (!in)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for stream.mqtt");
    (void)mosquitto_lib_init();
    in->config = config;
    in->flow = journals->of[RT_FLOW_EVENTS] ? RT_FLOW_EVENTS : RT_FLOW_OUTCOMES;
    const bool is_events = in->flow == RT_FLOW_EVENTS;
    in->topic = is_events ? config->stream.mqtt_topic : config->stream.join.topic;
    const char *suffix = is_events ? "" : "-outcomes";
    snprintf(in->name, sizeof in->name, "%s%s", config->stream.mqtt_client, suffix);
    rt_status status = begin(in, journals, error);
    if (status) {
        close_intake(in);
        return status;
    }
    *intake_p = in;
    return RT_OK;
}

static void counts(void *context, rt_intake_counts *counts)
{
    rt_intake_read_counts(&((intake *)context)->core, counts);
}

const rt_intake_ops rt_intake_mqtt = {
    .kind = RT_SOURCE_MQTT, .open = open_intake, .close = close_intake, .counts = counts};
