// ew_lender - hands the model of a server out to others: published files and rows (serve.hand_out).
//
// A dp_publisher that also answers LOOK_UPs, from the full copy that this server answers with. What is
// in force for others is what it has taken over, so that it has the rows of every version that they
// learn of; those of the version before stay until the next change is read.
#ifndef EW_LENDER_H
#define EW_LENDER_H

#include "edge_worker/serve/ew_follower.h"
#include "runtime/transport/rt_keys.h"

typedef struct ew_lender ew_lender;

typedef struct {
    const char *address; // "HOST:PORT"
    const char *folder;  // rt_published, that of the copy
    const rt_keys *keys; // NULL: loopback only; outlives the lender
    ew_follower *copy;   // outlives it, too
} ew_lender_config;

// RT_CONFIG: nobody publishes to the folder, or the address needs keys; RT_IO, RT_NO_MEMORY,
// RT_LIMIT.
rt_status ew_lender_open(const ew_lender_config *config, ew_lender **lender_p, rt_error *error);
void ew_lender_close(ew_lender *lender); // also NULL

#endif
