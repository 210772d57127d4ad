// dp_setup - a planner's configuration from what the user wrote and what the stream has.
#ifndef DP_SETUP_H
#define DP_SETUP_H

#include "dispatch/planner/dp_planner.h"
#include "runtime/config/rt_config.h"
#include "runtime/stream/rt_stream.h"

// distinct_keys: of the input, for cache.ratio; 0 where unknown: caches have a size of their own.
// dense_bytes (dp_setup_dense) and measure_error are left at 0: the caller knows.
// RT_CONFIG: error names the key that is missing or does not fit.
rt_status dp_setup(const rt_config *config, const rt_schema *schema, uint64_t distinct_keys,
                   dp_planner_config *planner, rt_error *error);

// What dp_setup leaves out: the rows that every worker keeps, where the policy has some, read from
// dispatch.profile. Errors as dp_hot_read. They are the configuration's, and of every planner that is
// made of it, until fini; without them fini does nothing.
rt_status dp_setup_hot(const rt_config *config, const rt_schema *schema, dp_planner_config *planner,
                       rt_error *error);
void dp_setup_fini(dp_planner_config *planner);

// dense_bytes: of one worker, each way and iteration; 0: the dense exchange does not count.
void dp_setup_dense(const rt_config *config, uint64_t dense_bytes, dp_planner_config *planner);

// True when dp_setup needs the number of distinct keys and the config does not declare it.
bool dp_setup_needs_keys(const rt_config *config);

// Counts them, where dp_setup needs them and they can be counted; *keys_p is 0 otherwise. Errors as
// rt_stream_count_keys.
rt_status dp_setup_count_keys(const rt_config *config, uint64_t *keys_p, rt_error *error);

// Rows that ps.memory_bytes_max (and ps.disk_bytes_max) hold on all shards.
uint64_t dp_setup_rows_that_fit(const rt_config *config);

// Rows that an equal share of a full batch may need. RT_CONFIG: more than a cache can have; dp_setup
// says so, too, and whoever asks beforehand works with counts that fit 32 bits.
rt_status dp_setup_share_rows(const rt_config *config, const rt_schema *schema, uint64_t *rows_p,
                              rt_error *error);

// The most samples that a worker may get in an iteration; 0: all take equally many.
uint32_t dp_setup_micro_batch_max(const rt_config *config);

// Threads for a planner (dp_planner_set_pool), as planner.threads asks for; NULL: one is enough.
// RT_NO_MEMORY, RT_LIMIT.
rt_status dp_setup_threads(const rt_config *config, rt_pool **pool_p, rt_error *error);

#endif
