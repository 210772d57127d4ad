// ew_saving - the dense part of the model on its way to the coordinator's box.
//
// One thread, one model.
#ifndef EW_SAVING_H
#define EW_SAVING_H

#include "edge_worker/ew_trainer.h"
#include "runtime/files/rt_parcel.h"
#include "runtime/transport/rt_member.h"

typedef struct {
    rt_member *member;
    rt_bytes bytes;
    rt_parcel_out out;
} ew_saving;

void ew_saving_fini(ew_saving *saving); // also of a zeroed one

// Waits until training is done, then begins. member stays the caller's. RT_NO_MEMORY, RT_PEER.
rt_status ew_saving_begin(ew_saving *saving, rt_member *member, uint32_t self, ew_trainer *trainer,
                          rt_error *error);

// Takes a TAKEN and sends what may be sent. RT_WIRE, RT_NO_MEMORY, RT_PEER; or why the coordinator
// cannot write it.
rt_status ew_saving_take(ew_saving *saving, const rt_message *message, rt_error *error);

#endif
