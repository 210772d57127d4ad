// The source of lines for a topic of Kafka: all its partitions, each from the offset where a
// checkpoint stands, so that nothing has to be kept here.
//
// A message is an event, or several in lines. Offsets are part of the position; a run that begins
// anew starts with the oldest messages. One thread; librdkafka has threads of its own, and writes a
// wake descriptor when messages are there.
#include <inttypes.h>
#include <librdkafka/rdkafka.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "runtime/http/rt_http_secrets.h"
#include "runtime/rt_log.h"
#include "runtime/stream/rt_source.h"

#define METADATA_MS 2000
#define PARTITIONS_EVERY_NS UINT64_C(30000000000)
#define PARTITIONS_RETRY_NS UINT64_C(500000000)
#define PARTITIONS_MAX 3000u

typedef struct {
    uint64_t next; // offset of the next message
    uint64_t skip; // lines of it that were given out before
} partition;

typedef struct {
    const rt_stream_config *config;
    rd_kafka_t *client;
    rd_kafka_queue_t *queue;
    int wake;
    rt_source_watch watch;
    partition *partitions;
    uint32_t partition_count, partition_capacity, assigned_count;
    uint64_t look_ns; // for partitions, next
    rd_kafka_message_t *message; // NULL: none is open
    char *text;                  // of it, with room behind; text_size bytes from text_next on
    uint32_t text_capacity, text_next, text_size, last_next;
    uint64_t line;     // of the message, the next one
    uint64_t arrival_ns;
    uint64_t bytes_read;
    rt_log_limit limit;
} kafka;

static bool serves(const rt_stream_config *config)
{
    return config->format != RT_FORMAT_SYNTHETIC && config->source == RT_SOURCE_KAFKA;
}

static void close_message(kafka *k)
{
    if (k->message)
        rd_kafka_message_destroy(k->message);
    k->message = NULL;
}

static void close_source(void *source)
{
    kafka *k = source;
    close_message(k);
    if (k->queue)
        rd_kafka_queue_destroy(k->queue);
    if (k->client) {
        (void)rd_kafka_consumer_close(k->client);
        rd_kafka_destroy(k->client);
    }
    if (k->wake >= 0)
        close(k->wake);
    rt_free(k->text);
    rt_free(k->partitions);
    rt_free(k);
}

static void log_library(const rd_kafka_t *client, int level, const char *facility, const char *text)
{
    (void)client;
    rt_log(level <= 4 ? RT_LOG_WARN : RT_LOG_DEBUG, "stream.kafka: %s: %s", facility, text);
}

static rt_status set(rd_kafka_conf_t *conf, const char *name, const char *value, rt_error *error)
{
    char why[256];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why) == RD_KAFKA_CONF_OK)
        return RT_OK;
    return rt_fail(error, RT_CONFIG, "stream.kafka: %s: %s", name, why);
}

// "name=value,name=value"
static rt_status set_options(rd_kafka_conf_t *conf, const char *options, rt_error *error)
{
    char text[RT_PATH_MAX];
    rt_status status = RT_OK;
    snprintf(text, sizeof text, "%s", options);
    for (char *rest = text, *one; !status && (one = strsep(&rest, ","));) {
        char *value = strchr(one, '=');
        if (*one == '\0')
            continue;
        if (!value)
            return rt_fail(error, RT_CONFIG,
                           "stream.kafka.options: \"%s\": expected \"name=value\"", one);
        *value = '\0';
        status = set(conf, one, value + 1, error);
    }
    return status;
}

static rt_status configure(const rt_stream_config *config, rd_kafka_conf_t *conf, rt_error *error)
{
    char *password = NULL;
    rt_status status = set(conf, "bootstrap.servers", config->kafka_brokers, error);
    if (!status)
        status = set(conf, "group.id", config->kafka_group, error);
    if (!status)
        status = set(conf, "enable.auto.commit", "false", error);
    if (!status)
        status = set(conf, "auto.offset.reset", "earliest", error);
    if (!status)
        status = set_options(conf, config->kafka_options, error);
    if (!status && *config->kafka_password)
        status = rt_http_read_word("stream.kafka.password", config->kafka_password, &password,
                                   error);
    if (!status && password)
        status = set(conf, "sasl.password", password, error);
    if (password)
        explicit_bzero(password, strlen(password));
    rt_free(password);
    rd_kafka_conf_set_log_cb(conf, log_library);
    return status;
}

static rt_status open_source(const rt_stream_config *config, uint64_t seed, void **source_p,
                             rt_error *error)
{
    char why[256];
    const uint64_t one = 1;
    kafka *k = rt_alloc(1, sizeof *k);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    (void)seed;
    if (!k || !conf) {
        rt_free(k);
        return rt_fail(error, RT_NO_MEMORY, "out of memory for stream.kafka");
    }
    k->config = config;
    k->watch = (rt_source_watch){-1, -1};
    k->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    rt_status status = configure(config, conf, error);
    if (!status && k->wake < 0)
        status = rt_fail(error, RT_LIMIT, "cannot create an event descriptor");
    if (!status) {
        k->client = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
        if (!k->client)
            status = rt_fail(error, RT_CONFIG, "stream.kafka: %s", why);
        else
            conf = NULL; // the client's
    }
    if (conf)
        rd_kafka_conf_destroy(conf);
    if (status) {
        close_source(k);
        return status;
    }
    (void)rd_kafka_poll_set_consumer(k->client);
    k->queue = rd_kafka_queue_get_consumer(k->client);
    rd_kafka_queue_io_event_enable(k->queue, k->wake, &one, sizeof one);
    *source_p = k;
    return RT_OK;
}

static void watch(void *source, const rt_source_watch *watch)
{
    ((kafka *)source)->watch = *watch;
}

// ---- partitions ------------------------------------------------------------------------------

static rt_status grow(kafka *k, uint32_t count, rt_error *error)
{
    if (count > PARTITIONS_MAX)
        return rt_fail(error, RT_LIMIT, "stream.kafka.topic: %" PRIu32 " partitions, at most %u",
                       count, PARTITIONS_MAX);
    if (rt_grow(&k->partitions, &k->partition_capacity, count, sizeof *k->partitions))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for stream.kafka");
    while (k->partition_count < count)
        k->partitions[k->partition_count++] = (partition){0};
    return RT_OK;
}

// How many the topic has now; 0: nobody knows.
static uint32_t count_partitions(kafka *k, const char **why_p)
{
    const struct rd_kafka_metadata *metadata;
    uint32_t count = 0;
    rd_kafka_topic_t *topic = rd_kafka_topic_new(k->client, k->config->kafka_topic, NULL);
    const rd_kafka_resp_err_t reason =
        topic ? rd_kafka_metadata(k->client, 0, topic, &metadata, METADATA_MS)
              : rd_kafka_last_error();
    *why_p = rd_kafka_err2str(reason);
    if (!reason && metadata->topic_cnt == 1) {
        count = (uint32_t)metadata->topics[0].partition_cnt;
        if (metadata->topics[0].err)
            *why_p = rd_kafka_err2str(metadata->topics[0].err);
    }
    if (!reason)
        rd_kafka_metadata_destroy(metadata);
    if (topic)
        rd_kafka_topic_destroy(topic);
    return count;
}

// All partitions are read, those that are new from their first message on.
static rt_status look_for_partitions(kafka *k, rt_error *error)
{
    const char *why;
    uint64_t told;
    const uint64_t now = rt_now_ns();
    if (now < k->look_ns)
        return RT_OK;
    const uint32_t count = count_partitions(k, &why);
    k->look_ns = rt_now_ns() + (count ? PARTITIONS_EVERY_NS : PARTITIONS_RETRY_NS);
    if (count == 0 && rt_log_due(&k->limit, &told))
        rt_warn("stream.kafka: topic %s at %s: %s; trying again", k->config->kafka_topic,
                k->config->kafka_brokers, why);
    if (count <= k->assigned_count)
        return RT_OK;
    rt_status status = grow(k, count, error);
    if (status)
        return status;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)count);
    for (uint32_t i = 0; i < count; i++) {
        rd_kafka_topic_partition_t *one =
            rd_kafka_topic_partition_list_add(list, k->config->kafka_topic, (int32_t)i);
        one->offset = k->partitions[i].next ? (int64_t)k->partitions[i].next
                                            : RD_KAFKA_OFFSET_BEGINNING;
    }
    const rd_kafka_resp_err_t reason = rd_kafka_assign(k->client, list);
    rd_kafka_topic_partition_list_destroy(list);
    if (reason)
        return rt_fail(error, RT_IO, "stream.kafka: %s", rd_kafka_err2str(reason));
    k->assigned_count = count;
    rt_info("stream.kafka: topic %s, %" PRIu32 " partitions", k->config->kafka_topic, count);
    return RT_OK;
}

// ---- messages --------------------------------------------------------------------------------

static rt_status keep_text(kafka *k, rt_error *error)
{
    const size_t size = k->message->len;
    if (size > RT_LINE_MAX * 16u)
        return rt_fail(error, RT_LIMIT, "stream.kafka: a message of %zu bytes, at most %u", size,
                       RT_LINE_MAX * 16u);
    if (rt_grow(&k->text, &k->text_capacity, size + 1 + RT_LINE_PAD, 1))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for stream.kafka");
    if (size)
        memcpy(k->text, k->message->payload, size);
    k->text[size] = '\n';
    k->text_size = (uint32_t)size;
    while (k->text_size > 0 && k->text[k->text_size - 1] == '\n')
        k->text_size--; // lines end with their last byte
    k->text_next = k->last_next = 0;
    k->bytes_read += size;
    return RT_OK;
}

static bool pass_over(kafka *k, uint64_t lines)
{
    for (k->line = 0; k->line < lines; k->line++) {
        const char *end = memchr(k->text + k->text_next, '\n', k->text_size + 1 - k->text_next);
        if (!end || k->text_next > k->text_size)
            return false;
        k->text_next = (uint32_t)(end + 1 - k->text);
    }
    return true;
}

// *is_one_p: a message is open now.
static rt_status take_message(kafka *k, rd_kafka_message_t *message, bool *is_one_p,
                              rt_error *error)
{
    uint64_t told;
    struct timespec now;
    k->message = message;
    *is_one_p = false;
    if (message->err) {
        if (message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF && rt_log_due(&k->limit, &told))
            rt_warn("stream.kafka: %s", rd_kafka_message_errstr(message));
        const bool is_fatal = message->err == RD_KAFKA_RESP_ERR__FATAL;
        close_message(k);
        return is_fatal ? rt_fail(error, RT_IO, "stream.kafka: the client cannot go on") : RT_OK;
    }
    const uint32_t at = (uint32_t)message->partition;
    if (at >= k->partition_count || (uint64_t)message->offset < k->partitions[at].next) {
        close_message(k); // it was read before the partitions were assigned again
        return RT_OK;
    }
    partition *p = &k->partitions[at];
    if (p->skip && (uint64_t)message->offset > p->next)
        p->skip = 0;
    p->next = (uint64_t)message->offset;
    rt_status status = keep_text(k, error);
    clock_gettime(CLOCK_REALTIME, &now);
    k->arrival_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    *is_one_p = !status && k->text_size > 0 && pass_over(k, p->skip);
    if (!status && !*is_one_p) {
        *p = (partition){.next = (uint64_t)message->offset + 1};
        close_message(k);
    }
    return status;
}

static rt_status wait_for_messages(kafka *k, uint64_t deadline_ns)
{
    struct pollfd wanted[] = {{k->wake, POLLIN, 0}, {k->watch.stop, POLLIN, 0}};
    uint64_t wakes;
    const uint64_t now = rt_now_ns();
    uint64_t until = deadline_ns ? rt_min_u64(deadline_ns, k->look_ns) : k->look_ns;
    const int wait_ms = now >= until ? 0 : (int)((until - now) / 1000000 + 1);
    (void)poll(wanted, 2, wait_ms);
    if (wanted[1].revents)
        return RT_STOPPED;
    if (wanted[0].revents && read(k->wake, &wakes, sizeof wakes) < 0) {
        // somebody else has read it
    }
    return deadline_ns && rt_now_ns() >= deadline_ns && !wanted[0].revents ? RT_AGAIN : RT_OK;
}

static rt_status next_message(kafka *k, uint64_t deadline_ns, rt_error *error)
{
    for (;;) {
        bool is_one = false;
        rt_status status = look_for_partitions(k, error);
        if (status)
            return status;
        rd_kafka_message_t *message = rd_kafka_consumer_poll(k->client, 0);
        if (message) {
            status = take_message(k, message, &is_one, error);
            if (status || is_one)
                return status;
            continue;
        }
        status = wait_for_messages(k, deadline_ns);
        if (status)
            return status;
    }
}

static void end_message(kafka *k)
{
    k->partitions[k->message->partition] =
        (partition){.next = (uint64_t)k->message->offset + 1};
    close_message(k);
}

static rt_status next_line(void *source, uint64_t deadline_ns, uint32_t line_feeds, rt_line *line,
                           rt_error *error)
{
    kafka *k = source;
    if (line_feeds > 0) // an event is one line
        return RT_END;
    if (k->message && k->text_next > k->text_size)
        end_message(k);
    if (!k->message) {
        rt_status status = next_message(k, deadline_ns, error);
        if (status)
            return status;
    }
    const char *text = k->text + k->text_next;
    const char *end = memchr(text, '\n', k->text_size + 1 - k->text_next);
    size_t length = (size_t)(end - text);
    k->last_next = k->text_next;
    k->text_next += (uint32_t)length + 1;
    k->line++;
    const bool is_too_long = length > RT_LINE_MAX;
    if (length > 0 && text[length - 1] == '\r')
        length--;
    *line = (rt_line){.text = is_too_long ? end : text,
                      .length = is_too_long ? 0 : (uint32_t)length,
                      .file = (uint32_t)k->message->partition,
                      .number = (uint64_t)k->message->offset + 1,
                      .is_too_long = is_too_long,
                      .arrival_ns = k->arrival_ns};
    return RT_OK;
}

static void take_back(void *source)
{
    kafka *k = source;
    rt_assert(k->message && k->line > 0);
    k->text_next = k->last_next;
    k->line--;
}

// ---- positions -------------------------------------------------------------------------------

static void tell(const void *source, rt_bytes *bytes)
{
    const kafka *k = source;
    rt_bytes_put_u64(bytes, k->partition_count);
    for (uint32_t i = 0; i < k->partition_count; i++) {
        partition p = k->partitions[i];
        if (k->message && (uint32_t)k->message->partition == i) {
            const bool is_done = k->text_next > k->text_size;
            p.next = (uint64_t)k->message->offset + is_done;
            p.skip = is_done ? 0 : k->line;
        }
        rt_bytes_put(bytes, &p, sizeof p);
    }
}

static rt_status seek(void *source, rt_reader *bytes, const rt_source_place *place, rt_error *error)
{
    kafka *k = source;
    const uint64_t count = bytes ? rt_reader_u64(bytes) : 0;
    (void)place;
    if (!bytes || bytes->failed || count > PARTITIONS_MAX ||
        bytes->left != count * sizeof *k->partitions)
        return rt_fail(error, RT_DATA, "the offsets of Kafka are damaged");
    rt_status status = grow(k, (uint32_t)count, error);
    if (!status && count)
        rt_reader_get(bytes, k->partitions, count, sizeof *k->partitions);
    return status;
}

static const char *input_name(const void *source, uint32_t input)
{
    (void)input;
    return ((const kafka *)source)->config->kafka_topic;
}

static void counts(const void *source, rt_source_counts *counts)
{
    *counts = (rt_source_counts){.bytes_read = ((const kafka *)source)->bytes_read};
}

const rt_source_ops rt_source_kafka = {.name = "kafka",
                                       .serves = serves,
                                       .open = open_source,
                                       .close = close_source,
                                       .watch = watch,
                                       .line = next_line,
                                       .back = take_back,
                                       .tell = tell,
                                       .seek = seek,
                                       .input_name = input_name,
                                       .counts = counts};
