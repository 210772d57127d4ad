// ps_memory - what a shard may have in memory, by share, where ps.memory_bytes_max bounds the rows.
#ifndef PS_MEMORY_H
#define PS_MEMORY_H

#include "runtime/config/rt_config.h"

// Each of: images of rows for a start without files, gradients that wait for others, dense weights.
uint64_t ps_memory_share(const rt_config *config);

// With rows on disk: changed pages that stay in memory while a copy of the process writes a
// checkpoint. Changes nothing but when rows are taken, so it may follow from the memory of the
// machine, or of its control group: an eighth of it, for all shards of the box; and not more than a
// share. 0: rows are in memory.
uint64_t ps_memory_held_max(const rt_config *config, uint32_t rank);

// All of it, but for rows that are copied while a checkpoint is written.
uint64_t ps_memory_max(const rt_config *config, uint32_t rank);

#endif
