// lies - a message made wrong on its way, in one of the ways that a peer, a bug or a flipped bit
// would have it.
#ifndef LIES_H
#define LIES_H

#include "runtime/rt_hash.h"
#include "runtime/wire/rt_wire.h"

#define LIES_TEXT_BYTES 64u

// Changes a message, or who it is said to be from (*peer, of ranks below rank_count), as drawn;
// what: how, empty where nothing could be changed.
void lies_tell(rt_random *random, uint32_t rank_count, rt_message *message, uint32_t *peer,
               char what[LIES_TEXT_BYTES]);

#endif
