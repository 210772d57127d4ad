// dp_handover - a row goes from one worker's cache straight into another's (Herald, appendix B).
//
// A row that worker a alone has in its latest version, and the PS lacks, is needed by one other
// worker b: a sends it to b (SEND), b takes it into a slot (RECV), with its optimizer state. One
// hop over both links, in place of a push to the PS and a pull from there. The PS keeps the version
// that it had (P stays below L); b owns the row afterwards, and pushes it when it leaves b's cache,
// when several train it, or at a flush. A row that several need goes by way of the PS, which has to
// have it before it can add their gradients.
//
// With dispatch.hand_over. Several threads may plan at once (dp_threads.c): to send changes the
// holder's slice, to receive that of the only trainer, and both what is of the one key.
#ifndef DP_HANDOVER_H
#define DP_HANDOVER_H

#include "dispatch/planner/dp_planner_parts.h"

// Whether the only holder of a row had better send it to its trainers than push it: there is one,
// another one, and by the link table the one transfer takes less than the two.
bool dp_handover_is_better(const dp_planner *planner, const dp_record *record, uint64_t trainers);

// SEND in the slice of the holder, whose copy is given up. RT_NO_MEMORY.
rt_status dp_handover_send(dp_planner *planner, uint32_t d, const dp_record *record);

// The operation that fills the row of distinct key d, which has its slot, becomes a RECV.
void dp_handover_receive(const dp_planner *planner, uint32_t d, dp_op *op);

#endif
