#include "edge_worker/ew_trainer.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>

#include "runtime/rt_queue.h"
#include "runtime/rt_thread.h"

#define TASKS_MAX 4u // TRAIN, ROWS, DENSE and the barrier of a save

typedef enum { TASK_TRAIN, TASK_ROWS, TASK_DENSE, TASK_BARRIER } task_kind;

typedef struct {
    task_kind kind;
    const dp_slice_view *slice;
    uint64_t place; // rt_optimizer_place
    bool apply;
} task;

struct ew_trainer {
    ew_trainer_config config;
    pthread_t thread;
    bool running;
    rt_queue *tasks, *results, *barriers;
    task ring[TASKS_MAX];
    uint32_t ring_next;
    ew_trained trained;
    const float *row_gradients;     // of the last training, on the device
    uint32_t *own_slots, *own_rows; // row_count_max, shared with the device
    // Devices with memory of their own: gradients of the rows that are not OWN, on their way.
    uint32_t *sent_rows;     // row_count_max, shared with the device
    float *packed_gradients; // row_count_max x dim, likewise
    float *host_gradients;   // row_count_max x dim
    // Host copy of the dense gradients, shared with the device so that it copies them itself; on
    // unified devices the block. The verdict is last.
    float *dense;
    uint32_t dense_count;  // without it
    ew_exchange *exchange; // or NULL
};

ew_micro_batch ew_trainer_batch(const dp_slice_view *slice, float *slab, uint32_t row_stride)
{
    const rt_wire_slice *c = &slice->counts;
    return (ew_micro_batch){.sample_count = c->sample_count,
                            .lookup_count = c->lookup_count,
                            .row_count = c->row_count,
                            .labels = slice->labels,
                            .weights = slice->weights,
                            .dense = slice->dense,
                            .lookup_rows = slice->lookup_rows,
                            .bag_offsets = slice->bag_offsets,
                            .row_slots = slice->row_slots,
                            .slab = slab,
                            .row_stride = row_stride,
                            .scale = 1.0f / (float)c->batch_samples,
                            .log_odds = c->log_odds,
                            .more_odds = slice->more_odds};
}

// The worker is the only one that trains these rows: it owns them and steps them in place.
static void step_own_rows(ew_trainer *t, const dp_slice_view *slice)
{
    const ew_device *device = t->config.device;
    uint32_t count = 0;
    for (uint32_t r = 0; r < slice->counts.row_count; r++) {
        if (slice->row_modes[r] != DP_MODE_OWN)
            continue;
        t->own_slots[count] = slice->row_slots[r];
        t->own_rows[count++] = r;
    }
    device->ops->rows_step(device->state, &t->config.row_optimizer, t->config.dim,
                           dp_slice_place(&slice->counts), t->config.slab, t->config.row_stride,
                           t->own_slots, t->own_rows, count, t->row_gradients);
}

// Fetches the gradients of the rows that other workers train too.
static const float *fetch_gradients(ew_trainer *t, const dp_slice_view *slice,
                                    const float *gradients)
{
    const ew_device *device = t->config.device;
    uint32_t count = 0, dim = t->config.dim;
    if (device->unified)
        return gradients;
    for (uint32_t r = 0; r < slice->counts.row_count; r++)
        if (slice->row_modes[r] != DP_MODE_OWN)
            t->sent_rows[count++] = r;
    device->ops->rows_get(device->state, gradients, dim, dim, t->sent_rows, count,
                          t->packed_gradients);
    for (uint32_t k = 0; k < count; k++)
        memcpy(t->host_gradients + (size_t)t->sent_rows[k] * dim,
               t->packed_gradients + (size_t)k * dim, dim * sizeof(float));
    return t->host_gradients;
}

static float verdict_of(double loss_sum)
{
    return isfinite(loss_sum) ? 0.0f : 1.0f;
}

// The verdict stands at the end of the vector, which is final first: the loss is known before that.
static void layer_done(void *context, uint32_t offset, uint32_t count)
{
    ew_trainer *t = context;
    if (t->config.device->unified && offset + count == t->dense_count)
        t->dense[t->dense_count] = verdict_of(ew_model_loss(t->config.model));
    ew_exchange_final(t->exchange, offset);
}

// Whether the exchange works on gradients where the model leaves them; otherwise they come to the
// host in one piece, after the backward pass.
static bool in_place(const ew_trainer *t)
{
    return t->config.device->unified || (t->exchange && ew_exchange_on_device(t->exchange));
}

static void train(ew_trainer *t, const dp_slice_view *slice)
{
    const bool early = t->exchange && in_place(t) && ew_exchange_overlaps(t->exchange);
    uint64_t begin = rt_now_ns();
    ew_trained *out = &t->trained;
    ew_step_result step = {0};
    ew_micro_batch batch = ew_trainer_batch(slice, t->config.slab, t->config.row_stride);
    *out = (ew_trained){0};
    out->status = ew_model_check(t->config.model, &batch, t->config.slot_count, &out->error);
    if (!out->status)
        out->status = ew_model_step(t->config.model, &batch, early ? layer_done : NULL, t, &step,
                                    &out->error);
    if (!out->status) {
        t->row_gradients = step.row_gradients;
        out->row_gradients = fetch_gradients(t, slice, step.row_gradients);
        out->status = t->config.device->ops->finish(t->config.device->state, &out->error);
    }
    if (!out->status && !in_place(t))
        out->status = ew_model_dense_read(t->config.model, EW_GRADIENTS, t->dense, &out->error);
    if (!early || !t->config.device->unified) // else it may already have become the sum
        t->dense[t->dense_count] = verdict_of(step.loss_sum);
    out->predictions = step.predictions;
    out->loss_sum = step.loss_sum;
    out->compute_ns = rt_now_ns() - begin;
}

// Finished when it returns: the executor reads these rows next.
static void settle_rows(ew_trainer *t, const dp_slice_view *slice, bool apply)
{
    uint64_t begin = rt_now_ns();
    ew_trained *out = &t->trained;
    if (apply) {
        step_own_rows(t, slice);
        out->status = t->config.device->ops->finish(t->config.device->state, &out->error);
    }
    out->compute_ns += rt_now_ns() - begin;
}

static void dense_step(ew_trainer *t, uint64_t place, bool apply)
{
    rt_error error = {0};
    if (!apply)
        return;
    if (!in_place(t) && ew_model_dense_write(t->config.model, EW_GRADIENTS, t->dense, &error))
        return; // the device stays failed: the next training reports it
    ew_model_dense_step(t->config.model, place);
}

static void *run_tasks(void *context)
{
    ew_trainer *t = context;
    void *item;
    prctl(PR_SET_NAME, "trainer");
    while (rt_queue_take(t->tasks, &item) == RT_OK) {
        const task *next = item;
        switch (next->kind) {
        case TASK_TRAIN:
            train(t, next->slice);
            (void)rt_queue_put(t->results, &t->trained);
            break;
        case TASK_ROWS:
            settle_rows(t, next->slice, next->apply);
            (void)rt_queue_put(t->results, &t->trained);
            break;
        case TASK_DENSE:
            dense_step(t, next->place, next->apply);
            break;
        case TASK_BARRIER:
            (void)rt_queue_put(t->barriers, t);
            break;
        }
    }
    return NULL;
}

static rt_status allocate(ew_trainer *t)
{
    uint32_t rows = t->config.row_count_max;
    const ew_device *device = t->config.device;
    float *block = ew_model_dense(t->config.model, EW_GRADIENTS, &t->dense_count);
    t->own_slots = device->ops->alloc_shared(device->state, rows);
    t->own_rows = device->ops->alloc_shared(device->state, rows);
    t->dense = block;
    if (!device->unified) {
        size_t floats = (size_t)rows * t->config.dim;
        t->sent_rows = device->ops->alloc_shared(device->state, rows);
        t->packed_gradients = device->ops->alloc_shared(device->state, floats);
        t->host_gradients = rt_alloc(floats, sizeof(float));
        t->dense = device->ops->alloc_shared(device->state, t->dense_count + (size_t)1);
        if (!t->sent_rows || !t->packed_gradients || !t->host_gradients)
            return RT_NO_MEMORY;
    }
    if (!t->own_slots || !t->own_rows || !t->dense || rt_queue_create(TASKS_MAX, -1, &t->tasks) ||
        rt_queue_create(1, t->config.wake_fd, &t->results) || rt_queue_create(1, -1, &t->barriers))
        return RT_NO_MEMORY;
    return RT_OK;
}

rt_status ew_trainer_create(const ew_trainer_config *config, ew_trainer **trainer_p,
                            rt_error *error)
{
    ew_trainer *t = rt_alloc(1, sizeof *t);
    if (!t)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    t->config = *config;
    rt_status status = RT_OK;
    if (allocate(t))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for training");
    else if (rt_thread_start(&t->thread, run_tasks, t) != 0)
        status = rt_fail(error, RT_LIMIT, "cannot start the training thread");
    else
        t->running = true;
    if (status) {
        ew_trainer_destroy(t);
        return status;
    }
    *trainer_p = t;
    return RT_OK;
}

void ew_trainer_stop(ew_trainer *t)
{
    if (t && t->running) {
        rt_queue_close(t->tasks);
        rt_queue_close(t->results);
        rt_queue_close(t->barriers);
        pthread_join(t->thread, NULL);
        t->running = false;
        t->exchange = NULL;
    }
}

void ew_trainer_destroy(ew_trainer *t)
{
    if (!t)
        return;
    rt_assert(!t->exchange);
    ew_trainer_stop(t);
    rt_queue_destroy(t->tasks);
    rt_queue_destroy(t->results);
    rt_queue_destroy(t->barriers);
    const ew_device *device = t->config.device;
    void *shared[] = {t->own_slots, t->own_rows, t->sent_rows, t->packed_gradients,
                      device->unified ? NULL : t->dense};
    for (size_t i = 0; i < RT_COUNT_OF(shared); i++)
        device->ops->free_shared(device->state, shared[i]);
    rt_free(t->host_gradients);
    rt_free(t);
}

// At most TASKS_MAX are outstanding, so a place in the ring is free when its turn comes again.
static void give(ew_trainer *t, task next)
{
    task *place = &t->ring[t->ring_next++ % TASKS_MAX];
    *place = next;
    (void)rt_queue_put(t->tasks, place);
}

void ew_trainer_train(ew_trainer *t, const dp_slice_view *slice)
{
    give(t, (task){.kind = TASK_TRAIN, .slice = slice});
}

void ew_trainer_rows(ew_trainer *t, const dp_slice_view *slice, bool apply)
{
    give(t, (task){.kind = TASK_ROWS, .slice = slice, .apply = apply});
}

void ew_trainer_dense(ew_trainer *t, uint64_t place, bool apply)
{
    give(t, (task){.kind = TASK_DENSE, .place = place, .apply = apply});
}

rt_status ew_trainer_result(ew_trainer *t, const ew_trained **trained_p)
{
    void *item;
    rt_status status = rt_queue_try_take(t->results, &item);
    if (!status)
        *trained_p = item;
    return status;
}

float *ew_trainer_dense_gradients(ew_trainer *t, uint32_t *count_p)
{
    *count_p = t->dense_count + 1;
    return t->dense;
}

void ew_trainer_attach(ew_trainer *t, ew_exchange *exchange)
{
    t->exchange = exchange;
}

// ---- dense parameters ------------------------------------------------------------------------

static rt_status await_tasks(ew_trainer *t, rt_error *error)
{
    void *item;
    give(t, (task){.kind = TASK_BARRIER});
    rt_status status = rt_queue_take(t->barriers, &item);
    return status ? rt_fail(error, status, "the training thread has ended") : RT_OK;
}

rt_status ew_trainer_settle(ew_trainer *t, rt_error *error)
{
    rt_status status = await_tasks(t, error);
    return status ? status : t->config.device->ops->finish(t->config.device->state, error);
}

static rt_status read_dense(void *context, float *values, float *state, rt_error *error)
{
    ew_trainer *t = context;
    uint32_t state_count;
    rt_status status = await_tasks(t, error);
    (void)ew_model_dense(t->config.model, EW_OPTIMIZER_STATE, &state_count);
    if (!status)
        status = ew_model_dense_read(t->config.model, EW_VALUES, values, error);
    if (!status && state_count)
        status = ew_model_dense_read(t->config.model, EW_OPTIMIZER_STATE, state, error);
    return status;
}

static rt_status write_dense(void *context, const float *values, const float *state,
                             rt_error *error)
{
    ew_trainer *t = context;
    uint32_t state_count;
    rt_status status = await_tasks(t, error);
    (void)ew_model_dense(t->config.model, EW_OPTIMIZER_STATE, &state_count);
    if (!status)
        status = ew_model_dense_write(t->config.model, EW_VALUES, values, error);
    if (!status && state_count)
        status = ew_model_dense_write(t->config.model, EW_OPTIMIZER_STATE, state, error);
    return status;
}

static uint32_t shifts(const void *context, float log_odds, const float *more_odds,
                       float by[RT_LABELS_MAX])
{
    const ew_trainer *t = context;
    return ew_model_shifts(t->config.model, log_odds, more_odds, by);
}

const ew_weights_ops ew_trainer_weights = {read_dense, write_dense, shifts};

// Tensors by name; values and state: host copies of the two blocks, state NULL to leave it out.
static uint32_t list_tensors(const ew_trainer *t, const float *values, const float *state,
                             uint32_t state_count, rt_tensor *tensors)
{
    uint32_t count = 0;
    while (count + 1 < RT_TENSORS_MAX &&
           ew_model_tensor(t->config.model, count, values, &tensors[count]))
        count++;
    if (state) {
        tensors[count] = (rt_tensor){.rank = 1, .shape = {state_count}, .values = state};
        strcpy(tensors[count++].name, RT_TENSOR_STATE);
    }
    return count;
}

typedef struct {
    float *values, *state;
    uint32_t state_count;
    rt_tensor *tensors;
} host_copy;

static void host_copy_fini(host_copy *copy)
{
    rt_free(copy->values);
    rt_free(copy->state);
    rt_free(copy->tensors);
}

static rt_status host_copy_init(ew_trainer *t, host_copy *copy, rt_error *error)
{
    *copy = (host_copy){0};
    (void)ew_model_dense(t->config.model, EW_OPTIMIZER_STATE, &copy->state_count);
    copy->values = rt_alloc(t->dense_count, sizeof *copy->values);
    copy->state = rt_alloc(copy->state_count + 1u, sizeof *copy->state);
    copy->tensors = rt_alloc(RT_TENSORS_MAX, sizeof *copy->tensors);
    rt_status status = copy->values && copy->state && copy->tensors
                           ? read_dense(t, copy->values, copy->state, error)
                           : rt_fail(error, RT_NO_MEMORY, "out of memory for the dense part");
    if (status)
        host_copy_fini(copy);
    return status;
}

static rt_status get_tensors(ew_trainer *t, bool with_state, rt_bytes *bytes, rt_error *error)
{
    host_copy copy;
    rt_status status = host_copy_init(t, &copy, error);
    if (status)
        return status;
    uint32_t count = list_tensors(t, copy.values, with_state ? copy.state : NULL,
                                  with_state ? copy.state_count : 0, copy.tensors);
    if (rt_tensors_encode(copy.tensors, count, bytes))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for the dense part");
    host_copy_fini(&copy);
    return status;
}

rt_status ew_trainer_get_model(ew_trainer *t, rt_bytes *bytes, rt_error *error)
{
    return get_tensors(t, false, bytes, error);
}

rt_status ew_trainer_get_state(ew_trainer *t, rt_bytes *bytes, rt_error *error)
{
    return get_tensors(t, true, bytes, error);
}

rt_status ew_trainer_set_state(ew_trainer *t, const rt_bytes *bytes, bool begins, rt_error *error)
{
    rt_tensors *tensors;
    uint32_t count;
    rt_status status =
        rt_tensors_decode("the dense part", bytes->data, bytes->size, &tensors, error);
    if (status)
        return status;
    const rt_tensor *state = rt_tensors_find(tensors, RT_TENSOR_STATE);
    (void)ew_model_dense(t->config.model, EW_OPTIMIZER_STATE, &count);
    status = await_tasks(t, error);
    if (!status) // first: of another model its layers say more than the size of its state
        status = begins ? ew_model_begin_with(t->config.model, tensors, error)
                        : ew_model_load(t->config.model, tensors, error);
    if (!status && !begins && (!state || state->rank != 1 || state->shape[0] != count))
        status = rt_fail(error, RT_DATA, "%" PRIu64 " floats of optimizer state, expected %u",
                         state ? state->shape[0] : 0, count);
    if (status)
        rt_fail_in(error, "the dense part of the %s", begins ? "model" : "checkpoint");
    if (!status && !begins && count)
        status = ew_model_dense_write(t->config.model, EW_OPTIMIZER_STATE, state->values, error);
    rt_tensors_close(tensors);
    return status;
}
