// ew_values - a file of a published version on its way to a server, without optimizer state.
//
// It comes in parts (rt_wire_fetched), each in one piece or more. Every part is checked by its own
// checksum, and all of them by the sum that the version's manifest has of the file with state. What
// is written here has a sum of its own. One thread.
#ifndef EW_VALUES_H
#define EW_VALUES_H

#include "runtime/files/rt_file.h"
#include "runtime/files/rt_pack.h"
#include "runtime/wire/rt_bytes.h"
#include "runtime/wire/rt_control.h"

typedef struct {
    const char *name; // for errors
    bool is_rows;     // else of tensors
    rt_file *to;
    rt_bytes part;           // as far as it has come
    uint64_t offset;         // in the file with state, of the part
    bool is_whole;           // all parts have come
    rt_file_sum origin, own; // of the file with state, and of what is written
    uint64_t bytes_max;      // of the file with state
} ew_values;

// What a manifest can name of this kind: files of rows, and dense.bin.
bool ew_values_may_be(const char *file);

void ew_values_init(ew_values *values, const char *name, bool is_rows, uint64_t bytes_max,
                    rt_file *to);
void ew_values_fini(ew_values *values); // the file is the caller's

// The next question: values->offset, values->part.size (rt_wire_fetch.skip). This is its answer.
// RT_WIRE: it cannot be one; RT_DATA: a part is damaged; RT_IO, RT_LIMIT, RT_NO_MEMORY.
rt_status ew_values_take(ew_values *values, const rt_wire_fetched *fetched, const void *bytes,
                         size_t size, rt_error *error);

#endif
