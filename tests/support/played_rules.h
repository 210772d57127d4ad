// played_rules - what a coordinator must do in every conversation, whatever happens in it.
//
// A rule that is broken becomes a line of played.broken, in words; a case fails when there is one.
// Towards a member:
//   nothing but a word of keys or of the end comes before its WELCOME, and nothing after its STOP
//   a worker's slices come in order, each once; what it was not sent is counted in the next
//   all workers that are sent a slice are told the same of it
//   no more slices are out than dispatch lets run ahead
//   a cut is ordered once all workers have emptied themselves, a later one each time; nothing goes
//   that the checkpoints that stand are built on
//   FINISH comes once all is reported, SAVE once all have finished
//   a member that is there is told of the end
// Of rows, in a run that came to its end:
//   every row that was trained is at its shard, in the version of its last training
//   every version that a worker waits for has been pushed
#ifndef PLAYED_RULES_H
#define PLAYED_RULES_H

#include "dispatch/plan/dp_slice_wire.h"
#include "tests/support/played.h"

void played_break(played *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

// The coordinator tells a member something; takes what one said.
void played_rules_told(played *p, uint32_t peer, const rt_message *message);
void played_rules_took(played *p, uint32_t peer, const rt_message *message);
// A worker reads a slice; sequence: its number.
void played_rules_slice(played *p, uint32_t rank, uint64_t sequence, const rt_wire_slice *slice);
// The run is over. complete: all that was to be trained is.
void played_rules_end(played *p, bool complete);

#endif
