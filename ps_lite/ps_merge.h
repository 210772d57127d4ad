// ps_merge - a shard's file of all rows and the files of changes that build on it become one file
// of all rows.
//
// The result has the bytes that ps_snapshot_write writes of a table into which ps_snapshot_read has
// read the same files. Rows stand in files in the order of their keys, so no table is needed: two
// blocks and what is read ahead of each file are in memory, whatever the table's size.
#ifndef PS_MERGE_H
#define PS_MERGE_H

#include "ps_lite/ps_model_file.h"

// So many files at most can be merged at once.
#define PS_MERGE_FILES_MAX 32u

// paths: oldest first; the first has all rows, each other one what changed since the one before it.
// sums: what each of them has to have. Reads all of them twice, then commits the sink. RT_DATA: a
// file is damaged, is another one, or does not build on the one before; error names it. The sink's
// errors, RT_IO, RT_NO_MEMORY.
rt_status ps_merge(const char *const *paths, const rt_file_sum *sums, uint32_t count,
                   const rt_sink *sink, rt_file_sum *sum_p, rt_error *error);

#endif
