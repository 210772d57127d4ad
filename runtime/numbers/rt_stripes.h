// rt_stripes - a vector of floats spread over parameter servers, in stripes that go round.
//
// Stripe number i, of RT_STRIPE_FLOATS, belongs to shard i modulo their number; the last may be
// shorter. A shard's part is its stripes one behind the other, and what is sent to it and kept
// there goes by places in the part. So every shard has an even share of any stretch of the vector,
// and works from the first float of a backward pass to the last. Plain values, any thread.
#ifndef RT_STRIPES_H
#define RT_STRIPES_H

#include "runtime/config/rt_config.h"

#define RT_STRIPE_FLOATS 256u

typedef struct {
    uint32_t count;       // floats of the vector
    uint32_t shard_count; // that have a part of it: 0 to shard_count - 1
} rt_stripes;

// How many of the shards that take part sum the dense gradients of a run. An optimizer with state
// of the whole block keeps it whole, at shard 0, where shards step it.
uint32_t rt_stripes_shards(const rt_config *config, uint32_t shard_count);

// Whether the shards keep the dense weights and step them: only where a worker can sit out, and
// will need them when it comes back.
bool rt_stripes_keep(const rt_config *config);

uint32_t rt_stripes_part(const rt_stripes *stripes, uint32_t shard); // floats of a shard

// Place in the vector of float `at` of a shard's part; and the shard, and the place there, of one
// in the vector.
uint32_t rt_stripes_place(const rt_stripes *stripes, uint32_t shard, uint32_t at);
uint32_t rt_stripes_owner(const rt_stripes *stripes, uint32_t place, uint32_t *at_p);

// Floats from `at` on, at most `most`, that stand side by side in the vector too; at least 1.
uint32_t rt_stripes_run(const rt_stripes *stripes, uint32_t at, uint32_t most);

// Floats [first, first + count) of a shard's part, out of the vector and back into it.
void rt_stripes_gather(const rt_stripes *stripes, uint32_t shard, uint32_t first, uint32_t count,
                       const float *vector, float *part);
void rt_stripes_scatter(const rt_stripes *stripes, uint32_t shard, uint32_t first, uint32_t count,
                        const float *part, float *vector);

#endif
