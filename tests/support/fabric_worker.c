#include "tests/support/fabric_worker.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "edge_worker/ew_trainer.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

void fabric_must(const fabric_worker *w, rt_status status, const rt_error *error)
{
    if (status)
        fail_msg("worker %u: %s", w->rank, error->text);
}

bool fabric_takes_part(const fabric_worker *w, const rt_wire_slice *slice)
{
    return slice->workers >> w->rank & 1;
}

static const float *row_at(const fabric_worker *w, uint32_t slot)
{
    return w->rows.slab + (size_t)slot * w->rows.stride;
}

static void assert_rows_untouched(const fabric_worker *w)
{
    const dp_slice_view *slice = w->job.slice;
    for (uint32_t r = 0; r < slice->counts.row_count; r++)
        assert_memory_equal(row_at(w, slice->row_slots[r]), w->before + r * w->rows.stride,
                            w->rows.stride * sizeof(float));
}

static void step_job(fabric_worker *w)
{
    rt_error error = {0};
    ew_micro_batch batch = ew_trainer_batch(w->job.slice, w->rows.slab, w->rows.stride);
    assert_rows_untouched(w);
    if (ew_model_check(w->model, &batch, w->rows.slot_count, &error) ||
        ew_model_step(w->model, &batch, NULL, NULL, &w->step, &error))
        fail_msg("worker %u: %s", w->rank, error.text);
    w->loss_sum += isfinite(w->step.loss_sum) ? w->step.loss_sum : 0;
    w->stepped = true;
}

// Rows are remembered at the start; the step runs then or at the end, so that an operation that
// touches a row during training is seen either way.
void fabric_begin_job(fabric_worker *w)
{
    const dp_slice_view *slice = w->job.slice;
    for (uint32_t r = 0; r < slice->counts.row_count; r++)
        memcpy(w->before + r * w->rows.stride, row_at(w, slice->row_slots[r]),
               w->rows.stride * sizeof(float));
    const rt_wire_slice *c = &slice->counts;
    rt_error error = {0};
    if (c->iteration == 1 && w->rank == rt_lowest_bit(c->workers) && c->workers != rt_bit(w->rank))
        fabric_must(w, ew_weights_begin(&w->weights, &error), &error);
    w->place = dp_slice_place(c);
    ew_weights_shift(&w->weights, c->log_odds, slice->more_odds);
    ew_exchange_begin(w->exchange, c->iteration, c->dense_chunk_floats, c->workers);
    w->training = w->dense_open = true;
    w->stepped = false;
    if (rt_random_below(&w->fabric->random, 2))
        step_job(w);
}

static void take_dense_sum(fabric_worker *w);

static void send_dense(fabric_worker *w)
{
    uint32_t count;
    rt_error error = {0};
    float *gradients = ew_model_dense(w->model, EW_GRADIENTS, &count);
    gradients[count] = isfinite(w->step.loss_sum) ? 0.0f : 1.0f;
    ew_exchange_trained(w->exchange);
    fabric_must(w, ew_exchange_advance(w->exchange, &error), &error);
}

void fabric_end_job(fabric_worker *w)
{
    if (!w->stepped)
        step_job(w);
    w->training = w->found = false;
    w->awaits_verdict = true;
    send_dense(w);
    if (ew_exchange_alone(w->exchange))
        take_dense_sum(w);
}

// As ew_worker and ew_trainer do it.
static void settle_job(fabric_worker *w, bool apply)
{
    rt_counts done;
    rt_error error = {0};
    const fabric_plan *plan = w->fabric->plan;
    const dp_slice_view *slice = w->job.slice;
    uint64_t sequence = w->job.sequence;
    assert_true(w->awaits_verdict);
    assert_rows_untouched(w);
    w->awaits_verdict = false;
    apply &= !(slice->counts.flags & DP_SLICE_UNTRAINED);
    w->apply = apply;
    w->trained = sequence;
    for (uint32_t r = 0; apply && r < slice->counts.row_count; r++) {
        const float *gradient = w->step.row_gradients + (size_t)r * w->rows.values;
        if (slice->row_modes[r] == DP_MODE_OWN)
            ew_host_rows_ops.step(&w->rows, &slice->row_slots[r], &gradient, 1,
                                  dp_slice_place(&slice->counts));
    }
    if (ew_executor_trained(w->executor, w->step.row_gradients, apply, &done, &error))
        fail_msg("worker %u, trained %" PRIu64 ": %s", w->rank, sequence, error.text);
    assert_memory_equal(&done, &plan->counts[(sequence - 1) * w->fabric->n + w->rank], sizeof done);
}

// As ew_turn: the verdict may be there before the rest.
static void take_dense_sum(fabric_worker *w)
{
    float verdict;
    uint32_t count;
    rt_error error = {0};
    if (w->awaits_verdict && ew_exchange_last(w->exchange, &verdict))
        settle_job(w, verdict == 0);
    rt_status status = ew_exchange_take(w->exchange, &error);
    if (status == RT_AGAIN)
        return;
    fabric_must(w, status, &error);
    w->dense_open = false;
    const float *gradients = ew_model_dense(w->model, EW_GRADIENTS, &count);
    fabric_must(w,
                ew_weights_step(&w->weights, w->iteration, w->place, w->apply,
                                ew_exchange_alone(w->exchange), gradients, &error),
                &error);
    w->fabric->result->alone += ew_exchange_alone(w->exchange);
    if (w->apply)
        ew_model_dense_step(w->model, w->place);
}

void fabric_take_dense_sum(fabric_worker *w, const rt_message *message)
{
    rt_error error = {0};
    fabric_must(w, ew_exchange_receive(w->exchange, message, &error), &error);
    take_dense_sum(w);
}
