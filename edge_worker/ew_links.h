// ew_links - probes of a worker's link to every box of shards (bw_probe), one box after the other,
// over the connections that its rows use.
//
// Blocking, on the thread that owns the endpoints. A plain value.
#ifndef EW_LINKS_H
#define EW_LINKS_H

#include "bandwidth_probe/bw_passive.h"
#include "bandwidth_probe/bw_probe.h"
#include "runtime/wire/rt_control.h"

typedef struct {
    const rt_transport_ops *ops;
    rt_endpoint *const *shards; // connected; nothing else arrives on them meanwhile
    uint32_t shard_count;
    bw_passive *passive;                       // is told what the probes read
    uint32_t self;                             // as the shards know the worker
    uint32_t shards_in;                        // rt_wire_welcome
    const char (*addresses)[RT_ADDRESS_MAX];   // of the shards: they tell which share a box
    double turn_s, silence_s;                  // bw_probe_config
    rt_status (*progress)(void *, rt_error *); // likewise, with context
    void *context;
} ew_links_config;

// Fills in links (RT_SHARDS_MAX), one for each box but the worker's own (passive->local), in order
// of the first shard there. There may be no other: *count is 0. Errors are
// bw_probe_run's; RT_PEER: a shard is gone.
rt_status ew_links_measure(const ew_links_config *config, rt_wire_link *links, uint32_t *count,
                           rt_error *error);

#endif
