// ps_snapshot - the rows of a table to a model file and back.
//
// Rows stand in the file in the order of their keys: equal tables give equal files, whatever the
// order in which the rows came. Works on a table that does not change meanwhile.
#ifndef PS_SNAPSHOT_H
#define PS_SNAPSHOT_H

#include "ps_lite/ps_model_file.h"
#include "ps_lite/ps_table.h"

// Writes the rows whose version is above info->base to a sink, and info->left; info->row_count is
// not looked at. sum_p and progress may be NULL. The sink's errors, RT_NO_MEMORY, or what progress
// returned.
rt_status ps_snapshot_write(const ps_table *table, const ps_model_info *info, const rt_sink *sink,
                            ps_progress progress, void *context, rt_file_sum *sum_p,
                            rt_error *error);

// Adds the rows of a file that belong to shard info->shard of info->shard_count; a row that is
// there already is replaced if the file holds changes (base > 0), or ends if it has left the file's
// shard and did not come with another file of these changes; rows below the file's floor end,
// which info->floor becomes. The file may be of another number of shards. RT_CONFIG: another
// dimension, optimizer or schema than info's, or no room in the table; RT_IO, RT_DATA, RT_LIMIT,
// RT_NO_MEMORY.
rt_status ps_snapshot_read(ps_table *table, ps_model_info *info, const char *path,
                           ps_progress progress, void *context, rt_file_sum *sum_p,
                           rt_error *error);

#endif
