// reference - a plain training loop: a dictionary of rows, one model and an optimizer; no planner,
// no executor, no PS. What runs over a fabric is compared with it.
#ifndef REFERENCE_H
#define REFERENCE_H

#include "tests/support/fabric.h"

typedef struct {
    const fabric_plan *plan;
    ew_model *model;
    uint32_t dim, row_floats;
    float *rows;        // key_count x row_floats
    uint32_t *numbers;  // of each key in the batch, + 1; 0: not in it
    uint32_t *row_keys; // of each row of the batch: key
    uint32_t *last;     // of each key: iteration that trained it last; 0: it has no row
    uint32_t *seen;     // of each key: look-ups while it had no row
    uint32_t *lookups;
    uint32_t *bags;
} reference;

// Rows and weights before the first batch. The plan outlives it.
void reference_create(reference *r, const fabric_plan *plan);
void reference_destroy(reference *r);

// What of a batch is trained with rows.admit, by plain counts: the planner's must be the same. The
// sketch is so large that nothing collides or fades here.
void reference_admit(reference *r, const rt_batch *offered, const rt_batch *planned);

// Trains the batch of iteration t. came: the batch before rows were shared.
void reference_step(reference *r, const rt_batch *batch, const rt_batch *came, uint32_t t);

// Rows trained last before the floor start anew when they come back.
void reference_sweep(reference *r, uint32_t floor);

#endif
