// ew_finished - a finished model in memory, as predictions need it: rows, dense part, scale.
//
// Made of the folder of a model or of a checkpoint (ew_source). Optimizer state is left out: a row
// takes 4 dim bytes and about 26 of the index. Many threads may read one at the same time while
// nobody changes it.
#ifndef EW_FINISHED_H
#define EW_FINISHED_H

#include "edge_worker/predict/ew_source.h"
#include "runtime/stream/rt_scale.h"
#include "runtime/stream/rt_stream.h"

// Where a scorer finds rows that are not here: those of one batch, for one thread.
typedef struct {
    // Brings the rows of a batch's keys, but for those with named[i] 0. keys stay as they are until
    // the next batch. A row that cannot be had is no error: the context notes whose it was.
    rt_status (*gather)(void *context, const uint64_t *keys, const uint8_t *named, uint32_t count,
                        rt_error *error);
    // The rows of some of these keys, by their place in the array.
    void (*find)(void *context, const uint64_t *keys, uint32_t count, ps_found *found);
    void *context;
} ew_rows_elsewhere;

typedef struct {
    const rt_config *config; // of the folder
    rt_schema schema;
    uint64_t generation; // differs between any two in a process: what dense and scale belong to
    ps_store *store;     // of rows on disk (ps.storage); NULL: they are in memory
    ps_table *rows;      // NULL: of a source without_rows
    const ew_rows_elsewhere *elsewhere; // where they are then; who scores says
    rt_tensors *dense;
    char dense_path[RT_PATH_MAX + 64];
    rt_scale *scale;             // NULL: dense features stay as they are
    uint64_t iteration, samples; // of the manifest; 0: it does not say
    double trained_s; // when the last of its samples were trained, in seconds since 1970, as the
                      // manifest says; else when that was written; 0: it has none
} ew_finished;

// All that the source holds, checked by its manifest. config lives as long as weights. RT_DATA,
// RT_CONFIG, RT_IO, RT_LIMIT, RT_NO_MEMORY: weights is zeros; error names file and what was
// expected.
rt_status ew_finished_open(const ew_source *source, ew_finished *weights, rt_error *error);
void ew_finished_close(ew_finished *weights); // also zeros

// As ew_finished_open, of a source that builds on what `from` holds, which nobody changes
// meanwhile: its rows are copied, so that of the files only the changes are read.
rt_status ew_finished_copy(const ew_finished *from, const ew_source *source, ew_finished *weights,
                           rt_error *error);

// Puts what another source holds over it: a folder of changes that builds on this iteration, or
// one with all rows. After an error weights is of no further use. Nobody reads it meanwhile.
rt_status ew_finished_update(ew_finished *weights, const ew_source *source, rt_error *error);

#endif
