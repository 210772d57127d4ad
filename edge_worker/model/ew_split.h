// ew_split - look-ups as devices want them, of models whose fields share tables (rt_tables.h).
//
// A device knows a row in one field only (ew_lookups). So a row that several fields of a
// micro-batch look up is several rows to it, one for each field, in the same slot; what reached
// each is added up afterwards, in ascending order of the fields. All of it is a counting pass on
// the host before a step, and one `pool` on the device behind it.
//
// A model with a sequence field (din) gets its look-ups apart: to the others its bags are empty.
//
// A graph's model (graphsage) gets look-ups by node instead of by sample. A sample's fields are a
// node, fan_out neighbours, and for each of these its own neighbours. Its nodes are the first one
// and every neighbour that is there; each has two bags: its own row, and the rows of its
// neighbours. To the device own and neighbour are the two fields in which a row can be.
#ifndef EW_SPLIT_H
#define EW_SPLIT_H

#include "edge_worker/model/ew_model.h"

typedef struct {
    bool is_used;
    uint32_t row_count_max;    // rows as the device sees them: at most one for every look-up
    uint32_t sequence_field;   // UINT32_MAX: none
    uint32_t fan_out;          // of a graph; 0: none
    uint32_t lookup_count_max; // as the device sees them

    // Host, of the micro-batch at hand. A row of the batch has a chain of rows of the device.
    uint32_t *first, *next, *fields; // by row of the batch; by row of the device
    uint32_t *lookup_rows, *bag_offsets, *row_slots;
    uint32_t *parts, *part_offsets; // rows of the device by row of the batch; row_count + 1
    uint32_t row_count, batch_rows; // of the device, of the batch

    // The sequence's look-ups, sample by sample; host, and then where the device reads them.
    uint32_t *sequence_rows, *sequence_samples, *sequence_offsets; // ... sample_count + 1
    uint32_t sequence_count;

    // Of a graph: those of sample i are the nodes node_bags[2 i] (its first) and, its neighbours,
    // from node_bags[2 i + 1] to node_bags[2 i + 2].
    uint32_t *node_bags, node_count, node_count_max; // 2 x sample_count + 1
    const uint32_t *node_bags_there;
    uint32_t *node_bags_buffer;
    const uint32_t *rows_there, *samples_there, *offsets_there;

    uint32_t *parts_buffer, *part_offsets_buffer, *numbers; // device; numbers: 0, 1, 2 ...
    uint32_t *rows_buffer, *samples_buffer, *offsets_buffer;
    uint32_t number_count;
    float *sums; // device, gradients of the batch's rows
} ew_split;

// Nothing where no table is shared and there is no sequence. RT_NO_MEMORY.
rt_status ew_split_create(ew_model *model, rt_error *error);
void ew_split_destroy(ew_model *model);

// Makes the look-ups of the batch those of the device. The sequence's go to the device.
void ew_split_batch(ew_model *model, ew_micro_batch *batch);

// Queues the sums: gradients by row of the batch. Of rows in the sequence field they stand behind
// those of row_count_max others.
const float *ew_split_sum(ew_model *model);

#endif
