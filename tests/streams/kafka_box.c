// kafka_box - a Kafka cluster for tests: librdkafka's mock (rdkafka_mock.h) in a process of its
// own.
//
// Says where its brokers listen, in a line. Then takes blocks of lines from standard input, each
// ended by an empty one, produces a message of every line to topic "events" (three partitions) or,
// behind a line ">outcomes", to that, and says how many were delivered. Ends with its input.
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTITIONS 3
#define FLUSH_MS 20000

static unsigned delivered;

static void note(rd_kafka_t *client, const rd_kafka_message_t *message, void *context)
{
    (void)client;
    (void)context;
    delivered += !message->err;
}

static rd_kafka_t *create(rd_kafka_conf_t *conf)
{
    char why[256];
    rd_kafka_t *client = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    if (!client) {
        fprintf(stderr, "kafka_box: %s\n", why);
        exit(1);
    }
    return client;
}

int main(void)
{
    static const char *const topics[] = {"events", "outcomes"};
    char line[4096], why[256];
    unsigned at = 0; // topic
    rd_kafka_t *owner = create(rd_kafka_conf_new());
    rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(owner, 1);
    if (!cluster)
        return 1;
    for (unsigned i = 0; i < 2; i++)
        rd_kafka_mock_topic_create(cluster, topics[i], PARTITIONS, 1);
    const char *brokers = rd_kafka_mock_cluster_bootstraps(cluster);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "bootstrap.servers", brokers, why, sizeof why);
    rd_kafka_conf_set(conf, "linger.ms", "1", why, sizeof why);
    rd_kafka_conf_set_dr_msg_cb(conf, note);
    rd_kafka_t *producer = create(conf);
    printf("%s\n", brokers);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        const size_t length = strcspn(line, "\n");
        if (line[0] == '>') {
            at = strncmp(line + 1, topics[1], length - 1) == 0;
            continue;
        }
        if (length > 0) {
            (void)rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(topics[at]),
                                    RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                    RD_KAFKA_V_VALUE(line, length), RD_KAFKA_V_END);
            continue;
        }
        (void)rd_kafka_flush(producer, FLUSH_MS);
        printf("%u\n", delivered);
        fflush(stdout);
        delivered = 0;
    }
    rd_kafka_destroy(producer);
    rd_kafka_mock_cluster_destroy(cluster);
    rd_kafka_destroy(owner);
    return 0;
}
