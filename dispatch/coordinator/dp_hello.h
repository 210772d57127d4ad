// dp_hello - whether a HELLO is that of a member of this run: what it says of itself against what
// the run knows. A plain value.
#ifndef DP_HELLO_H
#define DP_HELLO_H

#include "dispatch/coordinator/dp_added.h"
#include "runtime/config/rt_config.h"
#include "runtime/transport/rt_keys.h"
#include "runtime/wire/rt_control.h"

typedef struct {
    const rt_config *config; // of all boxes
    const rt_identity *identity;
    const rt_keys *keys;   // NULL: loopback only
    const dp_added *added; // boxes that were let in later; NULL: none
} dp_hello_run;

// peer: one of the configuration, from whom it came; name: of it. RT_CONFIG: another configuration,
// box or key; RT_WIRE: it says that it is somebody else, or not where it listens; others as
// rt_control_agree. error says which.
rt_status dp_hello_check(const dp_hello_run *run, uint32_t peer, const rt_wire_hello *hello,
                         const char *name, rt_error *error);

#endif
