// dp_saved - a checkpoint on disk, as the coordinator reads it: manifest, own parts, what it builds
// on.
//
// Everything is validated: sizes, checksums, hashes of the parts, the schema. The shards' rows are
// theirs to read and judge. One thread.
#ifndef DP_SAVED_H
#define DP_SAVED_H

#include "dispatch/coordinator/dp_checkpoint.h"

typedef struct {
    uint32_t iteration, epoch;
    uint64_t samples;
    uint64_t config_hash; // of the run that wrote it
    dp_ages_kept ages;
    rt_bytes state, dense;
    // This one and all that it builds on, ascending: the first has all rows.
    dp_checkpoint_past *past;
    rt_wire_load *loads; // likewise: what shards are to be told, without `first`
    uint32_t count;
} dp_saved;

// RT_NOT_FOUND: it was never completed. RT_IO, RT_DATA: damaged, or a part is missing. RT_CONFIG:
// of another schema. RT_NO_MEMORY. error names the file; *saved is empty then.
rt_status dp_saved_read(const char *directory, uint32_t iteration, uint64_t schema, dp_saved *saved,
                        rt_error *error);
void dp_saved_fini(dp_saved *saved);

// All that are complete up to this one, ascending, with what they build on, for the caller
// (rt_free): what stays is counted over starts. Older ones that cannot be read are not among them.
// RT_IO, RT_NO_MEMORY.
rt_status dp_saved_past(const char *directory, const dp_saved *saved, dp_checkpoint_past **past_p,
                        uint32_t *count_p, rt_error *error);

#endif
