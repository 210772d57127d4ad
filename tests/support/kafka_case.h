// kafka_case - a cluster of librdkafka's mock for a case, and what it is sent.
#ifndef KAFKA_CASE_H
#define KAFKA_CASE_H

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "runtime/config/rt_config.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

#define KAFKA_UNUSED __attribute__((unused))
#define KAFKA_PARTITIONS 3

static rd_kafka_t *owner, *producer;
static rd_kafka_mock_cluster_t *cluster;
static rt_config kafka_config;
static uint32_t undelivered;

static KAFKA_UNUSED void note(rd_kafka_t *client, const rd_kafka_message_t *message, void *context)
{
    (void)client;
    (void)context;
    undelivered -= !message->err;
}

static KAFKA_UNUSED rd_kafka_t *make_client(rd_kafka_conf_t *conf)
{
    char why[256];
    rd_kafka_t *client = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    if (!client)
        fail_msg("%s", why);
    return client;
}

// Topics "events" of broker 1 and "outcomes" of broker 2, of so many partitions.
static KAFKA_UNUSED void begin_cluster_of(int partitions)
{
    char why[256];
#ifdef __SANITIZE_THREAD__
    test_skip("the thread sanitizer knows no threads of thrd_create, which librdkafka starts");
#endif
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    owner = make_client(rd_kafka_conf_new());
    cluster = rd_kafka_mock_cluster_new(owner, 2);
    assert_non_null(cluster);
    const char *topics[] = {"events", "outcomes"};
    for (int t = 0; t < 2; t++) {
        rd_kafka_mock_topic_create(cluster, topics[t], partitions, 1);
        for (int p = 0; p < partitions; p++)
            rd_kafka_mock_partition_set_leader(cluster, topics[t], p, t + 1);
    }
    const char *brokers = rd_kafka_mock_cluster_bootstraps(cluster);
    rd_kafka_conf_set(conf, "bootstrap.servers", brokers, why, sizeof why);
    rd_kafka_conf_set(conf, "linger.ms", "1", why, sizeof why);
    rd_kafka_conf_set_dr_msg_cb(conf, note);
    producer = make_client(conf);
    kafka_config = config_fresh();
    snprintf(why, sizeof why, "stream.kafka.brokers=%s", brokers);
    config_must_set(&kafka_config, why);
    config_must_set(&kafka_config, "stream.source=kafka");
    config_must_set(&kafka_config, "stream.format=table");
    config_must_set(&kafka_config, "stream.kafka.options=topic.metadata.refresh.interval.ms=200,"
                                   "reconnect.backoff.max.ms=200,fetch.error.backoff.ms=20,"
                                   "fetch.wait.max.ms=50");
    config_must_set(&kafka_config,
                    "stream.table.columns=[{\"name\":\"id\",\"kind\":\"id\"},{\"name\":\"c\","
                    "\"kind\":\"categorical\",\"id\":\"number\"}]");
}

static KAFKA_UNUSED void begin_cluster(void)
{
    begin_cluster_of(KAFKA_PARTITIONS);
}

static KAFKA_UNUSED void end_cluster(void)
{
    rd_kafka_destroy(producer);
    rd_kafka_mock_cluster_destroy(cluster);
    rd_kafka_destroy(owner);
    rt_config_fini(&kafka_config);
}

static KAFKA_UNUSED void send_one(const char *topic, int partition, int64_t time_ms,
                                  const char *line)
{
    undelivered++;
    const rd_kafka_resp_err_t reason =
        rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
                          RD_KAFKA_V_TIMESTAMP(time_ms), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                          RD_KAFKA_V_VALUE((void *)(uintptr_t)line, strlen(line)), RD_KAFKA_V_END);
    assert_int_equal(reason, RD_KAFKA_RESP_ERR_NO_ERROR);
}

static KAFKA_UNUSED void flush_all(void)
{
    (void)rd_kafka_flush(producer, 20000);
    assert_int_equal(undelivered, 0);
}

static KAFKA_UNUSED int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

#endif
