// rt_kafka_parts - inside the source of lines for Kafka: what reading shares with what looks
// whether a topic is still the one that was read.
#ifndef RT_KAFKA_PARTS_H
#define RT_KAFKA_PARTS_H

#include <librdkafka/rdkafka.h>

#include "runtime/rt_log.h"
#include "runtime/stream/rt_kafka_place.h"
#include "runtime/stream/rt_source.h"

typedef enum {
    RT_KAFKA_READS,  // from at.next on
    RT_KAFKA_LAST,   // the message read last is looked at again
    RT_KAFKA_ANCHOR, // the one of some thousands before
    RT_KAFKA_LOOKS   // for the offsets that are there
} rt_kafka_state;

typedef struct {
    rt_kafka_place at;
    uint64_t coming_offset, coming; // rt_kafka_place_pass
    rt_kafka_state state;
    uint64_t resume;          // RT_KAFKA_ANCHOR: where it goes on if that is the same
    rd_kafka_queue_t *queue;  // NULL: it is not read yet
    rd_kafka_message_t *head; // the next one; NULL: none is there
    uint32_t passed;          // that went before it, though it is far ahead
    bool is_stopped;          // by an offset that is not there: it has to be started anew
    bool is_empty;            // since the last wake
    bool is_outside;          // it seemed to stand where no message is, when it was looked at last
    uint64_t look_ns;         // when it is looked at again
    bool is_at_end;           // all of its messages were there, and no connection was lost since
} rt_kafka_partition;

typedef struct {
    const rt_stream_config *config;
    rd_kafka_t *client;
    rd_kafka_topic_t *topic;
    int wake;
    rt_source_watch watch;
    bool is_joined; // older messages go first, and are waited for
    rt_kafka_partition *partitions;
    uint32_t partition_count, partition_capacity, started_count;
    uint32_t fewer_count;        // partitions that the topic had when it was looked at, if fewer
    bool is_missing;             // there is no such topic: nothing was ever sent
    bool is_cut;                 // a connection was lost: ends are not known any more
    uint64_t held_ns;            // since when a message waits for older ones; 0: none does
    uint64_t look_ns;            // for partitions, next
    uint64_t locate_ns;          // for offsets
    rd_kafka_message_t *message; // NULL: none is open
    char *text;                  // of it, with room behind; text_size bytes from text_next on
    uint32_t text_capacity, text_next, text_size, last_next;
    uint64_t line; // of the message, the next one
    uint64_t arrival_ns;
    bool is_stamped; // by its producer, or by the broker
    uint64_t bytes_read;
    uint64_t lost, breaks; // rt_source_counts
    rt_log_limit limit, silence;
} rt_kafka;

uint64_t rt_kafka_hash_of(const rd_kafka_message_t *message);

// The offset from which a partition is asked for, and what has to be looked at first: of one that
// is asked for the first time, or that may be another one by now.
int64_t rt_kafka_begin(rt_kafka_partition *p);

// Asks for partition i once more from there.
void rt_kafka_ask_again(rt_kafka *k, uint32_t i);

// What the queue of partition i gave: a message, its end, an error. True: it is for reading; else
// it was looked at, and is of no further use.
bool rt_kafka_look(rt_kafka *k, uint32_t i, const rd_kafka_message_t *message);

// Partition i has nothing now. Some brokers say nothing of an offset that is not there.
void rt_kafka_look_at_quiet(rt_kafka *k, uint32_t i);

// Partitions whose offsets are asked for: of all that are due.
void rt_kafka_locate_all(rt_kafka *k);

// The topic has so many partitions, fewer than are read.
void rt_kafka_drop_partitions(rt_kafka *k, uint32_t count);

#endif
