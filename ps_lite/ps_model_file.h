// ps_model_file - the rows of one shard on disk; docs/MODEL_FORMAT.md describes the bytes.
//
// Written to a sink, of a file or of another box. Everything read is validated: sizes, numbers,
// checksums.
#ifndef PS_MODEL_FILE_H
#define PS_MODEL_FILE_H

#include "runtime/config/rt_config.h"
#include "runtime/files/rt_pack.h"
#include "runtime/files/rt_sink.h"

#define PS_MODEL_BLOCK_ROWS 4096u

// Called again and again while rows are sorted and a file is written or read; anything but RT_OK
// ends that. wait_fd: readable when there is something to go on with, until when it may wait; -1:
// it must not.
typedef rt_status (*ps_progress)(void *context, int wait_fd, rt_error *error);

typedef struct ps_model_writer ps_model_writer;
typedef struct ps_model_reader ps_model_reader;

typedef struct {
    uint64_t schema;    // hash of what the keys mean; the coordinator's
    uint64_t row_count; // of the file
    uint32_t shard;     // below shard_count
    uint32_t shard_count;
    uint32_t dim;          // values per row
    uint32_t state_floats; // optimizer state per row, after the values
    uint32_t optimizer;    // rt_optimizer_kind
    uint32_t iteration;    // of the cut that the rows belong to; 0: not a checkpoint
    uint32_t base;         // only rows that changed after this iteration; 0: all
    uint32_t floor;        // rows of older files whose version is below have ended; 0: none have
    uint32_t left_count;   // of changes: rows of version 0, whose keys have left the shard since
                           // base, among row_count
    const uint64_t *left;  // their keys, ascending, of who writes; NULL: of who reads
    rt_homes homes;        // of who reads: which of a file's rows are its own (ps_snapshot.c)
    bool packed;           // blocks are packed with zstd where that is worth it
} ps_model_info;

// "directory/rows-003-of-008.bin"; path has room for size bytes. RT_CONFIG: too long.
rt_status ps_model_file_path(const char *directory, uint32_t shard, uint32_t shard_count,
                             char *path, size_t size, rt_error *error);

// Bytes of a file that is not packed.
uint64_t ps_model_file_bytes(const ps_model_info *info);

// Then exactly info->row_count rows, then commit; abort (also of NULL) gives up. sink is copied,
// its context stays the caller's. The sink's errors, RT_NO_MEMORY.
rt_status ps_model_writer_open(const rt_sink *sink, const ps_model_info *info,
                               ps_model_writer **writer_p, rt_error *error);
rt_status ps_model_writer_add(ps_model_writer *writer, uint64_t key, uint32_t version,
                              const float *row, rt_error *error);
// sum_p may be NULL. Frees the writer.
rt_status ps_model_writer_commit(ps_model_writer *writer, rt_file_sum *sum_p, rt_error *error);
void ps_model_writer_abort(ps_model_writer *writer);

// progress (may be NULL) is called by open and by next. RT_IO, RT_DATA (not a model file, or
// damaged), RT_NO_MEMORY, RT_LIMIT, or what progress returned.
rt_status ps_model_reader_open(const char *path, ps_progress progress, void *context,
                               ps_model_info *info, ps_model_reader **reader_p, rt_error *error);
// RT_END after the last row. *row_p (dim + state_floats floats) is valid until the next call.
rt_status ps_model_reader_next(ps_model_reader *reader, uint64_t *key_p, uint32_t *version_p,
                               const float **row_p, rt_error *error);

// Keys of the rows that next gives before it reads on, for who prepares for them; how many. Valid
// until it does.
uint32_t ps_model_reader_ahead(const ps_model_reader *reader, const uint64_t **keys_p);

// A part of an open file, as it is without optimizer state: of offset 0 the header, of others the
// block that begins there, packed if it was. The parts in order are such a file. *next_p: where the
// next part begins, the size of the file behind the last. *checksum_p: that of the part as it is in
// the file: the sum of the file is made of them (docs/MODEL_FORMAT.md). name: for errors. Appends
// to part. RT_DATA (not a model file, no block there, or damaged), RT_IO, RT_NO_MEMORY.
rt_status ps_model_values(int file, const char *name, uint64_t offset, rt_bytes *part,
                          uint64_t *next_p, uint64_t *checksum_p, rt_error *error);

// Whether a part (bytes of such a file from offset on: the header, or a block) is whole by its own
// checksum, and this, which the sum of the file is made of.
bool ps_model_part_sum(uint64_t offset, const uint8_t *bytes, size_t size, uint64_t *checksum_p);

// Of the file, after RT_END.
rt_file_sum ps_model_reader_sum(const ps_model_reader *reader);
void ps_model_reader_close(ps_model_reader *reader);

#endif
