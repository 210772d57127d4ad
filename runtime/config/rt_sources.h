// rt_sources - "stream.source": a line for each. LIVE(...): who sends is told what is kept in the
// journal (rt_intake.h).
#ifndef RT_SOURCES_H
#define RT_SOURCES_H

#include "runtime/config/rt_choice.h"

// clang-format off
#define RT_SOURCE_MAP(XX, LIVE)                                                          \
    XX(FILE, file, "`stream.files`, one after the other, each to its end")               \
    XX(FOLLOW, follow, "one file that grows, and the files that take its name")          \
    LIVE(HTTP, http, "`POST /events` with lines of `stream.format`")                     \
    LIVE(TCP, tcp, "lines; the sender gets the number of stored lines back")             \
    LIVE(FEED, feed, "`lanyard feed` on other boxes")                                    \
    LIVE(MQTT, mqtt, "a topic of an MQTT broker, QoS 1 (libmosquitto)")                  \
    XX(KAFKA, kafka, "a topic of Kafka (librdkafka)")
// clang-format on

#define XX(kind, name, help) RT_SOURCE_##kind,
enum { RT_SOURCE_MAP(XX, XX) };
#undef XX
#define RT_SOURCE_COUNT (0 RT_SOURCE_MAP(RT_CHOICE_ONE, RT_CHOICE_ONE))

#endif
