// ew_rows - the cache slab as the executor sees it: slots that hold rows, on whatever device.
//
// A row is `values` floats, followed by `state` floats of the row optimizer. Calls take lists, so
// that a device can move them in one go; pointers are host memory. A list names no slot twice.
// All calls come from the communication thread, except step_rows of the training thread on slots
// that it trains; the executor makes sure that no two calls touch one slot at the same time.
#ifndef EW_ROWS_H
#define EW_ROWS_H

#include "runtime/rt_base.h"
#include "runtime/numbers/rt_optimizer.h"

typedef struct ew_rows_ops {
    // Copies the first float_count floats of each slot to rows[i].
    void (*read)(void *context, const uint32_t *slots, uint32_t count, uint32_t float_count,
                 float *const *rows);
    // Copies rows[i] (float_count floats) into each slot.
    void (*write)(void *context, const uint32_t *slots, uint32_t count, uint32_t float_count,
                  const float *const *rows);
    // First touch: initial values of each key (rt_row_init) and fresh optimizer state.
    void (*init)(void *context, const uint32_t *slots, const uint64_t *keys, uint32_t count);
    // One optimizer step per slot: gradients[i] has `values` floats. iteration: rt_optimizer_step.
    void (*step)(void *context, const uint32_t *slots, const float *const *gradients,
                 uint32_t count, uint64_t iteration);
} ew_rows_ops;

// Rows in host memory.
typedef struct {
    float *slab; // slot_count x stride
    uint32_t slot_count;
    uint32_t values, state;
    uint32_t stride; // floats between rows, a multiple of 16
    rt_optimizer_config optimizer;
    uint64_t seed;
    float init_scale;
} ew_host_rows;

rt_status ew_host_rows_init(ew_host_rows *rows, uint32_t slot_count, uint32_t values,
                            const rt_optimizer_config *optimizer, uint64_t seed, float init_scale);
void ew_host_rows_fini(ew_host_rows *rows);

extern const ew_rows_ops ew_host_rows_ops; // context: ew_host_rows

#endif
