// rt_intake - the table of operations of those that bring events into a journal.
//
// To add one: a file with its operations, a line in the list of rt_live.c, its name in
// RT_SOURCE_MAP (rt_sources.h) and its keys. An intake tells nobody that events are kept before the
// journal said so. It has threads of its own, and where the journal is full it lets those wait that
// send.
#ifndef RT_INTAKE_H
#define RT_INTAKE_H

#include "runtime/config/rt_config.h"
#include "runtime/live/rt_journal.h"
#include "runtime/stream/rt_position.h"

typedef struct {
    uint64_t connections; // made so far
    uint64_t refused;     // events or requests that were turned away
    uint64_t unnamed;     // events that their sender may send again, and that nobody would know
} rt_intake_counts;

typedef struct {
    rt_journal *of[RT_FLOWS];
} rt_journals;

typedef struct {
    rt_source_kind kind;
    bool takes_both; // events and outcomes come to one that is open; else to one each
    // Journals are those of the flows that it takes, the others NULL. config and they outlive it.
    // RT_CONFIG, RT_IO, RT_NO_MEMORY; error names the key.
    rt_status (*open)(const rt_config *config, const rt_journals *journals, void **intake_p,
                      rt_error *error);
    // Takes nothing more, and waits until what it took is committed and answered.
    void (*close)(void *intake);
    void (*counts)(void *intake, rt_intake_counts *counts);
} rt_intake_ops;

extern const rt_intake_ops rt_intake_http, rt_intake_tcp, rt_intake_feed;
#ifdef RT_HAS_MQTT
extern const rt_intake_ops rt_intake_mqtt;
#endif

// RT_CONFIG: an address beyond loopback to listen on in the clear without security.insecure.
rt_status rt_intake_check_open(const rt_config *config, const char *key, const char *address,
                               rt_error *error);

// A TCP socket that listens on HOST:PORT, not blocking; says where. -1: error names the key.
int rt_intake_listen(const char *name, const char *key, const char *address, rt_error *error);

#endif
