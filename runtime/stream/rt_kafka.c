// The source of lines for a topic of Kafka: all its partitions, each from the offset where a
// checkpoint stands, so that nothing has to be kept here.
//
// A message is an event, or several in lines. Offsets are part of the position; a run that begins
// anew starts with the oldest messages. A line arrived when its message was stamped, by its
// producer or by the broker as the topic has it, so that it has the same time whenever it is read.
//
// Partitions are read by librdkafka's simple consumer, which has a queue for each: of their first
// messages the one with the smallest stamp is next. With a join no message is given out while an
// older one may follow, of a partition of which nothing is there and whose end was not seen; but
// for a partition that does not answer at all, which is waited for at most HOLD_NS.
//
// One thread; librdkafka has threads of its own, and writes a wake descriptor when messages are
// there.
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/config/rt_sources.h"
#include "runtime/http/rt_http_secrets.h"
#include "runtime/rt_clock.h"
#include "runtime/stream/rt_kafka_parts.h"

#define METADATA_MS 2000
#define PARTITIONS_EVERY_NS UINT64_C(30000000000)
#define PARTITIONS_RETRY_NS UINT64_C(500000000)
#define PARTITIONS_MAX 3000u
#define HOLD_NS UINT64_C(30000000000)
#define SERVE_NS UINT64_C(500000000) // so often the client is asked what failed
#define FAR_MS INT64_C(60000)
#define PASSED_MAX 8u

static bool serves(const rt_stream_config *config)
{
    return !rt_format_is_generated(config->format) && config->source == RT_SOURCE_KAFKA;
}

static void close_message(rt_kafka *k)
{
    if (k->message)
        rd_kafka_message_destroy(k->message);
    k->message = NULL;
}

static void close_partition(rt_kafka *k, uint32_t i)
{
    rt_kafka_partition *p = &k->partitions[i];
    if (p->head)
        rd_kafka_message_destroy(p->head);
    if (!p->queue)
        return;
    (void)rd_kafka_consume_stop(k->topic, (int32_t)i);
    rd_kafka_queue_destroy(p->queue);
}

static void close_source(void *source)
{
    rt_kafka *k = source;
    close_message(k);
    for (uint32_t i = 0; i < k->partition_count; i++)
        close_partition(k, i);
    if (k->topic)
        rd_kafka_topic_destroy(k->topic);
    if (k->client)
        rd_kafka_destroy(k->client);
    if (k->wake >= 0)
        close(k->wake);
    rt_free(k->text);
    rt_free(k->partitions);
    rt_free(k);
}

static void log_library(const rd_kafka_t *client, int level, const char *facility, const char *text)
{
    (void)client;
    const rt_log_level ours = level <= 4 ? RT_LOG_WARN : RT_LOG_DEBUG;
    rt_log(ours, "stream.kafka: %s: %s", facility, text);
}

static rt_status set(rd_kafka_conf_t *conf, const char *name, const char *value, rt_error *error)
{
    char why[256];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why) == RD_KAFKA_CONF_OK)
        return RT_OK;
    return rt_fail(error, RT_CONFIG, "stream.kafka: %s: %s", name, why);
}

// In rd_kafka_poll, so in the thread of the source.
static void note_failure(rd_kafka_t *client, int reason, const char *text, void *context)
{
    rt_kafka *k = context;
    uint64_t told;
    (void)client;
    k->is_cut |= reason == RD_KAFKA_RESP_ERR__TRANSPORT ||
                 reason == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN ||
                 reason == RD_KAFKA_RESP_ERR__TIMED_OUT;
    if (rt_log_due(&k->limit, &told))
        rt_warn("stream.kafka: %s", text);
}

// "name=value,name=value"
static rt_status set_options(rd_kafka_conf_t *conf, const char *options, rt_error *error)
{
    char text[RT_PATH_MAX];
    snprintf(text, sizeof text, "%s", options);
    for (char *rest = text, *one; (one = strsep(&rest, ","));) {
        char *value = strchr(one, '=');
        if (*one == '\0')
            continue;
        if (!value)
            return rt_fail(error, RT_CONFIG,
                           "stream.kafka.options: \"%s\": expected \"name=value\"", one);
        *value = '\0';
        rt_status status = set(conf, one, value + 1, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status set_password(rd_kafka_conf_t *conf, const char *path, rt_error *error)
{
    char *password = NULL;
    rt_status status = RT_OK;
    if (*path)
        status = rt_http_read_word("stream.kafka.password", path, &password, error);
    if (status || !password)
        return status;
    status = set(conf, "sasl.password", password, error);
    explicit_bzero(password, strlen(password));
    rt_free(password);
    return status;
}

// Options of the user's may change what stands before them, but not what follows.
static rt_status configure(const rt_stream_config *config, rd_kafka_conf_t *conf, rt_error *error)
{
    const struct {
        const char *name, *value;
    } before[] = {
        {"bootstrap.servers", config->kafka_brokers},
        {"group.id", "lanyard"},
        {"enable.auto.commit", "false"},
        {"enable.auto.offset.store", "false"},
    };
    for (size_t i = 0; i < RT_COUNT_OF(before); i++) {
        rt_status status = set(conf, before[i].name, before[i].value, error);
        if (status)
            return status;
    }
    rt_status status = set_options(conf, config->kafka_options, error);
    if (status)
        return status;
    status = set(conf, "enable.partition.eof", "true", error);
    if (!status) // what is to become of an offset that is gone is decided here
        status = set(conf, "auto.offset.reset", "error", error);
    if (status)
        return status;
    return set_password(conf, config->kafka_password, error);
}

// conf is the client's then, or freed.
static rt_status open_client(rt_kafka *k, rd_kafka_conf_t *conf, rt_error *error)
{
    char why[256];
    rd_kafka_conf_set_log_cb(conf, log_library);
    rd_kafka_conf_set_error_cb(conf, note_failure);
    rd_kafka_conf_set_opaque(conf, k);
    rt_status status = configure(k->config, conf, error);
    if (!status) {
        k->client = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
        if (k->client)
            return RT_OK;
        status = rt_fail(error, RT_CONFIG, "stream.kafka: %s", why);
    }
    rd_kafka_conf_destroy(conf);
    return status;
}

static rt_status open_topic(rt_kafka *k, rd_kafka_conf_t *conf, rt_error *error)
{
    rt_status status = open_client(k, conf, error);
    if (status)
        return status;
    if (k->wake < 0)
        return rt_fail(error, RT_LIMIT, "cannot create an event descriptor");
    k->topic = rd_kafka_topic_new(k->client, k->config->kafka_topic, NULL);
    if (!k->topic)
        return rt_fail(error, RT_CONFIG, "stream.kafka: topic %s: %s", k->config->kafka_topic,
                       rd_kafka_err2str(rd_kafka_last_error()));
    return RT_OK;
}

static rt_status open_source(const rt_stream_config *config, uint64_t seed, void **source_p,
                             rt_error *error)
{
    rt_kafka *k = rt_alloc(1, sizeof *k);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    (void)seed;
    if (!k || !conf) {
        rt_free(k);
        if (conf)
            rd_kafka_conf_destroy(conf);
        return rt_fail(error, RT_NO_MEMORY, "out of memory for stream.kafka");
    }
    k->config = config;
    k->is_joined = config->holds_outcomes || rt_config_has_join(config);
    k->watch = (rt_source_watch){-1, -1};
    k->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    rt_status status = open_topic(k, conf, error);
    if (status) {
        close_source(k);
        return status;
    }
    *source_p = k;
    return RT_OK;
}

static void watch(void *source, const rt_source_watch *watch)
{
    ((rt_kafka *)source)->watch = *watch;
}

// ---- partitions ------------------------------------------------------------------------------

static rt_status grow(rt_kafka *k, uint32_t count, rt_error *error)
{
    if (count > PARTITIONS_MAX)
        return rt_fail(error, RT_LIMIT, "stream.kafka.topic: %" PRIu32 " partitions, at most %u",
                       count, PARTITIONS_MAX);
    if (rt_grow(&k->partitions, &k->partition_capacity, count, sizeof *k->partitions))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for stream.kafka");
    while (k->partition_count < count)
        k->partitions[k->partition_count++] = (rt_kafka_partition){0};
    return RT_OK;
}

// How many the topic has now; 0: nobody knows, or there is no such topic.
static uint32_t count_partitions(rt_kafka *k, const char **why_p)
{
    const struct rd_kafka_metadata *metadata;
    uint32_t count = 0;
    rd_kafka_resp_err_t reason = rd_kafka_metadata(k->client, 0, k->topic, &metadata, METADATA_MS);
    if (!reason) {
        if (metadata->topic_cnt == 1) {
            count = (uint32_t)metadata->topics[0].partition_cnt;
            reason = metadata->topics[0].err;
        }
        rd_kafka_metadata_destroy(metadata);
    }
    k->is_missing = reason == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    *why_p = rd_kafka_err2str(reason);
    return count;
}

static rt_status start_partition(rt_kafka *k, uint32_t i, rt_error *error)
{
    static const uint64_t one = 1;
    rt_kafka_partition *p = &k->partitions[i];
    p->queue = rd_kafka_queue_get_partition(k->client, k->config->kafka_topic, (int32_t)i);
    if (!p->queue) // the client has not heard of it yet
        return RT_AGAIN;
    if (rd_kafka_consume_start(k->topic, (int32_t)i, rt_kafka_begin(p)) != 0) {
        const char *why = rd_kafka_err2str(rd_kafka_last_error());
        rd_kafka_queue_destroy(p->queue);
        p->queue = NULL;
        return rt_fail(error, RT_IO, "stream.kafka: topic %s, partition %" PRIu32 ": %s",
                       k->config->kafka_topic, i, why);
    }
    rd_kafka_queue_io_event_enable(p->queue, k->wake, &one, sizeof one);
    return RT_OK;
}

// Those that are not, of so many.
static rt_status start_partitions(rt_kafka *k, uint32_t count, rt_error *error)
{
    rt_status status = grow(k, (uint32_t)rt_max_u64(count, k->partition_count), error);
    if (status)
        return status;
    for (; k->started_count < count; k->started_count++) {
        status = start_partition(k, k->started_count, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// A topic never loses partitions: it was made again, if it still says so when it is asked twice.
static void look_for_fewer(rt_kafka *k, uint32_t count)
{
    if (count > 0 && count < k->partition_count && count == k->fewer_count)
        rt_kafka_drop_partitions(k, count);
    k->fewer_count = 0;
    if (count == 0 || count >= k->partition_count)
        return;
    k->fewer_count = count;
    k->look_ns = rt_now_ns() + PARTITIONS_RETRY_NS;
}

// All partitions are read.
static rt_status look_for_partitions(rt_kafka *k, rt_error *error)
{
    const char *why;
    uint64_t told;
    const uint64_t now = rt_now_ns();
    if (now < k->look_ns)
        return RT_OK;
    const uint32_t count = count_partitions(k, &why);
    const uint64_t pause_ns = count ? PARTITIONS_EVERY_NS : PARTITIONS_RETRY_NS;
    k->look_ns = rt_now_ns() + pause_ns;
    if (count == 0 && rt_log_due(&k->limit, &told))
        rt_warn("stream.kafka: topic %s at %s: %s; trying again", k->config->kafka_topic,
                k->config->kafka_brokers, why);
    look_for_fewer(k, count);
    if (count <= k->started_count)
        return RT_OK;
    rt_status status = start_partitions(k, count, error);
    if (status == RT_AGAIN) {
        k->look_ns = rt_now_ns() + PARTITIONS_RETRY_NS;
        return RT_OK;
    }
    if (!status)
        rt_info("stream.kafka: topic %s, %" PRIu32 " partitions", k->config->kafka_topic, count);
    return status;
}

// What came since a connection was lost is asked for again from where each partition stands, so
// that its end is told once more.
static void ask_again(rt_kafka *k)
{
    k->is_cut = false;
    for (uint32_t i = 0; i < k->started_count; i++) {
        if (!k->partitions[i].is_at_end)
            continue;
        rt_kafka_ask_again(k, i);
    }
}

// ---- messages --------------------------------------------------------------------------------

static rt_status keep_text(rt_kafka *k, rt_error *error)
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

static bool pass_over(rt_kafka *k, uint64_t lines)
{
    for (k->line = 0; k->line < lines; k->line++) {
        const char *end = memchr(k->text + k->text_next, '\n', k->text_size + 1 - k->text_next);
        if (!end || k->text_next > k->text_size)
            return false;
        k->text_next = (uint32_t)(end + 1 - k->text);
    }
    return true;
}

// What a partition's queue gave is its head now, its end, or nothing.
static rt_status take_message(rt_kafka *k, uint32_t i, rd_kafka_message_t *message, rt_error *error)
{
    uint64_t told;
    rt_kafka_partition *p = &k->partitions[i];
    const rd_kafka_resp_err_t reason = message->err;
    if (!rt_kafka_look(k, i, message)) {
        rd_kafka_message_destroy(message);
        return RT_OK;
    }
    if (!reason && (uint64_t)message->offset >= p->at.next) {
        if ((uint64_t)message->offset > p->at.next)
            p->at.skip = 0;
        p->head = message;
        p->is_at_end = false;
        return RT_OK;
    }
    if (reason == RD_KAFKA_RESP_ERR__PARTITION_EOF)
        p->is_at_end = true;
    else if (reason && rt_log_due(&k->limit, &told))
        rt_warn("stream.kafka: %s", rd_kafka_message_errstr(message));
    rd_kafka_message_destroy(message);
    if (reason == RD_KAFKA_RESP_ERR__FATAL)
        return rt_fail(error, RT_IO, "stream.kafka: the client cannot go on");
    return RT_OK;
}

static rt_status fill_head(rt_kafka *k, uint32_t i, rt_error *error)
{
    rt_kafka_partition *p = &k->partitions[i];
    while (!p->head && !p->is_empty) {
        rd_kafka_message_t *message = rd_kafka_consume(k->topic, (int32_t)i, 0);
        rt_status status = RT_OK;
        p->is_empty = !message;
        if (message)
            status = take_message(k, i, message, error);
        if (status)
            return status;
    }
    if (!p->head)
        rt_kafka_look_at_quiet(k, i);
    return RT_OK;
}

static rt_status fill_heads(rt_kafka *k, rt_error *error)
{
    uint64_t wakes;
    const bool is_woken = read(k->wake, &wakes, sizeof wakes) == sizeof wakes;
    for (uint32_t i = 0; i < k->started_count; i++)
        k->partitions[i].is_empty &= !is_woken;
    for (uint32_t i = 0; i < k->started_count; i++) {
        rt_status status = fill_head(k, i, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static int64_t stamp_of(const rd_kafka_message_t *message)
{
    rd_kafka_timestamp_type_t type;
    return rd_kafka_message_timestamp(message, &type); // -1: there is none
}

static bool is_behind(void *source)
{
    const rt_kafka *k = source;
    bool is_open = k->started_count == 0;
    if (k->is_missing)
        return false;
    for (uint32_t i = 0; i < k->started_count; i++) {
        const rt_kafka_partition *p = &k->partitions[i];
        is_open |= !p->head && !p->is_at_end;
    }
    return is_open && !k->message;
}

// A message waits for one that may be older.
static bool is_held(rt_kafka *k)
{
    uint64_t told;
    if (!is_behind(k)) {
        k->held_ns = 0;
        return false;
    }
    if (k->held_ns == 0)
        k->held_ns = rt_now_ns();
    if (rt_now_ns() - k->held_ns < HOLD_NS)
        return true;
    if (rt_log_due(&k->silence, &told))
        rt_warn("stream.kafka: topic %s: a partition did not answer for %u s: the others go on",
                k->config->kafka_topic, (unsigned)(HOLD_NS / 1000000000));
    return false;
}

// One partition goes before the others. A message that so many went before, though its stamp is far
// ahead of theirs, holds up those behind it if that is wrong: its turn is now. If it is right it
// waits for its time in the join (rt_join_time.h).
static rt_kafka_partition *pass_by(rt_kafka *k, rt_kafka_partition *next, int64_t stamp)
{
    for (uint32_t i = 0; i < k->started_count; i++) {
        rt_kafka_partition *p = &k->partitions[i];
        if (p == next || !p->head || stamp_of(p->head) <= stamp + FAR_MS)
            p->passed = 0;
        else if (++p->passed >= PASSED_MAX)
            next = p;
    }
    next->passed = 0;
    return next;
}

// The partition whose first message is the next one; NULL: there is none, or an older one may come.
static rt_kafka_partition *find_next(rt_kafka *k)
{
    rt_kafka_partition *next = NULL;
    int64_t least = 0;
    for (uint32_t i = 0; i < k->started_count; i++) {
        rt_kafka_partition *p = &k->partitions[i];
        if (!p->head)
            continue;
        const int64_t stamp = stamp_of(p->head);
        if (next && least <= stamp)
            continue;
        next = p;
        least = stamp;
    }
    if (next && k->is_joined && is_held(k))
        return NULL;
    if (next && k->is_joined)
        return pass_by(k, next, least);
    return next;
}

// One of a partition that is gone counts for nothing.
static void end_message(rt_kafka *k)
{
    const uint32_t i = (uint32_t)k->message->partition;
    rt_kafka_partition *p = &k->partitions[i];
    if (i < k->partition_count)
        rt_kafka_place_pass(&p->at, &p->coming_offset, &p->coming, (uint64_t)k->message->offset,
                            rt_kafka_hash_of(k->message));
    close_message(k);
}

// Opens a partition's first message. *is_one_p: it has a line that was not given out.
static rt_status open_message(rt_kafka *k, rt_kafka_partition *p, bool *is_one_p, rt_error *error)
{
    k->message = p->head;
    p->head = NULL;
    rt_status status = keep_text(k, error);
    k->arrival_ns = rt_arrival_ns();
    const int64_t stamp = stamp_of(k->message);
    k->is_stamped = stamp > 0 && (uint64_t)stamp < UINT64_MAX / 1000000;
    if (k->is_stamped)
        k->arrival_ns = (uint64_t)stamp * 1000000;
    *is_one_p = !status && k->text_size > 0 && pass_over(k, p->at.skip);
    if (!status && !*is_one_p)
        end_message(k);
    return status;
}

static rt_status wait_for_messages(rt_kafka *k, uint64_t deadline_ns)
{
    struct pollfd wanted[] = {{k->wake, POLLIN, 0}, {k->watch.stop, POLLIN, 0}};
    uint64_t until = rt_min_u64(rt_min_u64(k->look_ns, k->locate_ns), rt_now_ns() + SERVE_NS);
    if (deadline_ns)
        until = rt_min_u64(deadline_ns, until);
    (void)poll(wanted, 2, rt_wait_ms(rt_max_u64(until, 1))); // at once where look_ns is 0
    if (wanted[1].revents)
        return RT_STOPPED;
    if (deadline_ns && rt_now_ns() >= deadline_ns && !wanted[0].revents)
        return RT_AGAIN;
    return RT_OK;
}

static rt_status next_message(rt_kafka *k, uint64_t deadline_ns, rt_error *error)
{
    for (;;) {
        bool is_one = false;
        rt_status status = look_for_partitions(k, error);
        (void)rd_kafka_poll(k->client, 0); // note_failure
        if (k->is_cut)
            ask_again(k);
        rt_kafka_locate_all(k);
        if (!status)
            status = fill_heads(k, error);
        if (status)
            return status;
        rt_kafka_partition *next = find_next(k);
        if (next)
            status = open_message(k, next, &is_one, error);
        else
            status = wait_for_messages(k, deadline_ns);
        if (status || is_one)
            return status;
    }
}

static rt_status next_line(void *source, uint64_t deadline_ns, uint32_t line_feeds, rt_line *line,
                           rt_error *error)
{
    rt_kafka *k = source;
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
    if (is_too_long) {
        text = end;
        length = 0;
    }
    *line = (rt_line){.text = text,
                      .length = (uint32_t)length,
                      .file = (uint32_t)k->message->partition,
                      .number = (uint64_t)k->message->offset + 1,
                      .is_too_long = is_too_long,
                      .arrival_ns = k->arrival_ns,
                      .clock = k->is_stamped ? RT_CLOCK_SENDER : RT_CLOCK_READER};
    return RT_OK;
}

static void take_back(void *source)
{
    rt_kafka *k = source;
    rt_assert(k->message && k->line > 0);
    k->text_next = k->last_next;
    k->line--;
}

// ---- positions -------------------------------------------------------------------------------

// Where a partition stands, of which a message may be open.
static rt_kafka_place place_of(const rt_kafka *k, uint32_t i)
{
    rt_kafka_place at = k->partitions[i].at;
    if (!k->message || (uint32_t)k->message->partition != i)
        return at;
    const uint64_t offset = (uint64_t)k->message->offset, hash = rt_kafka_hash_of(k->message);
    uint64_t coming_offset = k->partitions[i].coming_offset, coming = k->partitions[i].coming;
    if (k->text_next > k->text_size) {
        rt_kafka_place_pass(&at, &coming_offset, &coming, offset, hash);
    } else if (k->line > 0) {
        at.next = offset;
        at.skip = k->line;
        at.last = hash;
    }
    return at;
}

static void tell(const void *source, rt_bytes *bytes)
{
    const rt_kafka *k = source;
    rt_kafka_places_begin(bytes, k->partition_count);
    for (uint32_t i = 0; i < k->partition_count; i++) {
        const rt_kafka_place at = place_of(k, i);
        rt_kafka_places_add(bytes, &at);
    }
}

static rt_status seek(void *source, rt_reader *bytes, const rt_source_place *at, rt_error *error)
{
    rt_kafka *k = source;
    rt_kafka_place *places;
    uint32_t count;
    (void)at;
    if (!bytes)
        return rt_fail(error, RT_DATA, "the offsets of Kafka are damaged");
    rt_status status = rt_kafka_places_take(bytes, PARTITIONS_MAX, &places, &count, error);
    if (status)
        return status;
    status = grow(k, count, error);
    for (uint32_t i = 0; !status && i < count; i++)
        k->partitions[i].at = places[i];
    rt_free(places);
    return status;
}

static const char *input_name(const void *source, uint32_t input)
{
    (void)input;
    return ((const rt_kafka *)source)->config->kafka_topic;
}

static void counts(const void *source, rt_source_counts *counts)
{
    const rt_kafka *k = source;
    *counts = (rt_source_counts){.bytes_read = k->bytes_read, .lost = k->lost, .breaks = k->breaks};
}

const rt_source_ops rt_source_kafka = {.name = "kafka",
                                       .serves = serves,
                                       .open = open_source,
                                       .close = close_source,
                                       .watch = watch,
                                       .line = next_line,
                                       .back = take_back,
                                       .is_behind = is_behind,
                                       .tell = tell,
                                       .seek = seek,
                                       .input_name = input_name,
                                       .counts = counts};
