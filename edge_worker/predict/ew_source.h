// ew_source - a folder with a model or a checkpoint in it, as all read it who do not train.
//
// A torn one is refused by name: a file that its manifest names is missing, or has another size or
// sum; a checkpoint was never completed. One thread.
#ifndef EW_SOURCE_H
#define EW_SOURCE_H

#include "ps_lite/ps_model_file.h"
#include "ps_lite/ps_table.h"
#include "runtime/config/rt_config.h"
#include "runtime/files/rt_tensors.h"
#include "runtime/stream/rt_keyset.h"

#define EW_ALL_SHARDS UINT32_MAX

typedef struct {
    const char *folder;
    const rt_config *config; // of the folder's config.json
    uint64_t schema;
    bool without_rows; // they are elsewhere: their files need not be here
    // Rows that are wanted, of files that nobody has to look through before; NULL: all are.
    const rt_keyset *only;
} ew_source;

// Loads config.json with sets over it, and checks it; reads_input: with what is about the input.
// On RT_OK config is the caller's (rt_config_fini), and folder and config outlive source.
// RT_NOT_FOUND: no such folder, or none of a model; RT_IO, RT_CONFIG, RT_NO_MEMORY.
rt_status ew_source_open(const char *folder, const char *const *sets, uint32_t set_count,
                         bool reads_input, rt_config *config, ew_source *source, rt_error *error);

// Whether a folder has a model, or published ones. RT_AGAIN: not yet, but one may come: the folder
// is empty, or one that a run publishes to, or is not there while the one above it is.
// RT_NOT_FOUND, RT_IO: waiting mends nothing. error says which.
rt_status ew_source_find(const char *folder, rt_error *error);

// Whether all is there that manifest.json names. A folder without one is a checkpoint that was
// never completed, RT_DATA; or a model of the version before: a warning says that nobody knows
// whether its files belong together. RT_IO, RT_NO_MEMORY.
rt_status ew_source_check(const ew_source *source, rt_error *error);

// What dense features, so many (0: nobody knows), are scaled by (rt_scale_open); NULL: they stay as
// they are, as those of models of the version before, which had no manifest either. RT_DATA:
// scale.bin is gone, or damaged; RT_IO, RT_NO_MEMORY.
rt_status ew_source_scale(const ew_source *source, uint32_t dense_count, rt_tensors **scale_p,
                          rt_error *error);

// The rows of one shard's file, or of all, go to an empty table, versions and the first row_floats
// floats of each; of a checkpoint also those that it builds on. *info_p: of the last file, may be
// NULL. RT_DATA (no such files, damaged, not those that the manifest names), RT_CONFIG (of another
// model; ps.memory_bytes_max is too small), RT_IO, RT_LIMIT, RT_NO_MEMORY.
rt_status ew_source_rows(const ew_source *source, uint32_t shard, uint32_t row_floats,
                         ps_table *table, ps_model_info *info_p, rt_error *error);

// The same of all shards into a table that holds the rows of iteration `have` of the same run:
// those of a checkpoint that builds on it, by way of those between, or all. Errors as above.
rt_status ew_source_changes(const ew_source *source, uint32_t row_floats, uint32_t have,
                            ps_table *table, rt_error *error);

#endif
