// rt_pack - one block of bytes as a file: checksums, zstd, written as a whole or not at all.
//
// docs/MODEL_FORMAT.md describes the bytes. Everything read is validated before it is given out.
#ifndef RT_PACK_H
#define RT_PACK_H

#include "runtime/wire/rt_bytes.h"

// What names a written file among others of its name.
typedef struct {
    uint64_t bytes;
    uint64_t hash; // over the checksums of its parts
} rt_file_sum;

// RT_IO, RT_NO_MEMORY; error names the file.
rt_status rt_pack_write(const char *path, uint64_t magic, const void *bytes, size_t size,
                        rt_file_sum *sum, rt_error *error);

// Appends what was written to bytes. RT_IO, RT_NO_MEMORY, RT_DATA (not such a file, or damaged).
rt_status rt_pack_read(const char *path, uint64_t magic, rt_bytes *bytes, rt_file_sum *sum,
                       rt_error *error);

#endif
