// rt_repeats - a batch ends early when it has one key often that came rarely before.
//
// A batch teaches nothing to its own samples. That matters little for a key that was learnt before,
// and much for a user who is new and whose whole visit is in one batch. Batches have a part of the
// samples before them (rt_batch_grown). In the same way a key comes in one batch RT_REPEATS_LEAST
// times, or one time for RT_REPEATS_PART times that it came before, whichever is more; then the
// batch ends. A key that is spread over the whole stream never comes that often, so no column has
// to be named.
//
// Times are counted in slots, to which keys are hashed; keys in one slot count together. All times
// are halved when slots have RT_REPEATS_PER_SLOT of them on average: so a slot that others use
// allows a new user no more than RT_REPEATS_LEAST, however long the stream is, and a user who has
// been away for long is new again.
//
// Everything follows from the batches. One owner, no locking; create takes all memory.
#ifndef RT_REPEATS_H
#define RT_REPEATS_H

#include "runtime/stream/rt_tables.h"
#include "runtime/wire/rt_bytes.h"

#define RT_REPEATS_LEAST 8u
#define RT_REPEATS_PART 16u
#define RT_REPEATS_PER_SLOT 64u

typedef struct rt_repeats rt_repeats;

// batch_samples: of a full batch. RT_NO_MEMORY.
rt_status rt_repeats_create(uint32_t batch_samples, uint32_t keys_per_sample,
                            rt_repeats **repeats_p);
void rt_repeats_destroy(rt_repeats *repeats); // also NULL

// Counts the last sample of a batch that is not folded. True: the batch ends with it.
bool rt_repeats_end_with(rt_repeats *repeats, const rt_tables *tables, const rt_batch *batch);

// A batch is over: from now on its keys have come before. It may be folded.
void rt_repeats_add(rt_repeats *repeats, const rt_tables *tables, const rt_batch *batch);

// For a checkpoint, between two batches. load: into one that was just created, which may have more
// slots or fewer; where nothing was saved no key has come, and reader stays where it is. RT_DATA:
// the saved times are cut off.
void rt_repeats_save(const rt_repeats *repeats, rt_bytes *bytes);
rt_status rt_repeats_load(rt_repeats *repeats, rt_reader *reader, rt_error *error);
bool rt_repeats_are_next(const rt_reader *reader);

// Takes what rt_repeats_save wrote out of reader, if that is next. False: it is cut off, or memory
// ran out.
bool rt_repeats_take(rt_reader *reader, rt_bytes *bytes);

#endif
