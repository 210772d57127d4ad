#include "ps_lite/ps_weights.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define NOBODY UINT32_MAX

struct ps_weights {
    rt_optimizer_config optimizer;
    uint64_t bytes_max;
    uint32_t begun_by;           // the worker that sends what the run begins with; NOBODY: not yet
    uint32_t value_count, total; // of the part, total with its state
    uint32_t begun;              // floats of the block that have come
    bool has_begun;              // a piece of it has, of as many as there may be
    float *block;                // total
    float *sum;                  // value_count + 1: the verdict may be behind them
    uint32_t summed;             // values of the sum in progress
    uint64_t version;            // iteration of the last step
    rt_wire_dense_step last;     // what it was
    uint64_t *wanted;            // by worker: the version that it waits for, + 1; 0: none
    uint64_t waiting;            // mask of those
    uint32_t sent;               // floats of the block to the first of them that is served
};

rt_status ps_weights_create(uint32_t worker_count, const rt_optimizer_config *optimizer,
                            uint64_t bytes_max, ps_weights **weights_p)
{
    ps_weights *weights = rt_alloc(1, sizeof *weights);
    if (!weights)
        return RT_NO_MEMORY;
    *weights = (ps_weights){.optimizer = *optimizer, .bytes_max = bytes_max, .begun_by = NOBODY};
    weights->wanted = rt_alloc(worker_count, sizeof *weights->wanted);
    if (!weights->wanted) {
        rt_free(weights);
        return RT_NO_MEMORY;
    }
    *weights_p = weights;
    return RT_OK;
}

void ps_weights_destroy(ps_weights *weights)
{
    if (!weights)
        return;
    rt_free(weights->block);
    rt_free(weights->sum);
    rt_free(weights->wanted);
    rt_free(weights);
}

static bool are_there(const ps_weights *weights)
{
    return weights->begun_by != NOBODY && weights->begun == weights->total;
}

// ---- the weights that a run begins with ------------------------------------------------------

static rt_status make_room(ps_weights *weights, uint32_t worker, const rt_wire_dense_state *head,
                           rt_error *error)
{
    const uint64_t values = head->value_count;
    const uint64_t state = rt_optimizer_state_floats(&weights->optimizer, head->value_count);
    const uint64_t bytes = (head->total + values + 1) * sizeof(float);
    if (head->total != values + state)
        return rt_fail(error, RT_WIRE,
                       "worker %" PRIu32 ": %" PRIu32 " dense weights are %" PRIu32
                       " floats with their state, expected %" PRIu64,
                       worker, head->value_count, head->total, values + state);
    if (bytes > weights->bytes_max)
        return rt_fail(error, RT_LIMIT,
                       "worker %" PRIu32 ": %" PRIu32
                       " dense weights with their state take %" PRIu64
                       " bytes, a shard has %" PRIu64 " for them: raise ps.memory_bytes_max",
                       worker, head->value_count, bytes, weights->bytes_max);
    weights->block = rt_alloc(rt_max_u64(head->total, 1), sizeof *weights->block);
    weights->sum = rt_alloc(values + 1, sizeof *weights->sum);
    if (!weights->block || !weights->sum)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for %" PRIu32 " dense weights",
                       head->value_count);
    weights->value_count = head->value_count;
    weights->total = head->total;
    weights->begun_by = worker;
    return RT_OK;
}

// Who trained alone knows better. Nobody fetches meanwhile, and no sum is under way: all who
// trained before have said their steps.
static bool is_newer(const ps_weights *weights, const rt_wire_header *header)
{
    return are_there(weights) && header->count == 0 && header->iteration > weights->version &&
           weights->summed == 0 && weights->sent == 0;
}

// Pieces come in order, from one worker.
static rt_status take_state(ps_weights *weights, uint32_t worker, const rt_message *message,
                            rt_error *error)
{
    rt_wire_dense_state head;
    const rt_wire_header *header = rt_message_header(message);
    rt_reader reader = rt_message_reader(message);
    memcpy(&head, rt_reader_take(&reader, 1, sizeof head), sizeof head);
    const uint64_t count = reader.left / sizeof(float);
    rt_status status = RT_OK;
    if (is_newer(weights, header)) {
        weights->begun_by = worker;
        weights->begun = 0;
        weights->has_begun = false;
    }
    if (weights->begun_by == NOBODY)
        status = make_room(weights, worker, &head, error);
    if (status)
        return status;
    const bool is_first = !weights->has_begun && header->count == 0;
    if (weights->begun_by != worker || head.value_count != weights->value_count ||
        head.total != weights->total || header->count != weights->begun ||
        count > weights->total - weights->begun ||
        (!is_first && (count == 0 || header->iteration != weights->version)))
        return rt_fail(error, RT_WIRE,
                       "worker %" PRIu32 ": dense weights of iteration %" PRIu64 ", from %" PRIu32
                       ", that nobody waits for",
                       worker, header->iteration, header->count);
    memcpy(weights->block + weights->begun, reader.next, reader.left);
    weights->begun += (uint32_t)count;
    weights->version = header->iteration;
    weights->has_begun = true;
    return RT_OK;
}

// ---- steps -----------------------------------------------------------------------------------

rt_status ps_weights_sum(ps_weights *weights, uint64_t iteration, uint32_t first, uint32_t count,
                         float **sum_p, rt_error *error)
{
    if (!are_there(weights) || iteration != weights->version + 1)
        return rt_fail(error, RT_WIRE,
                       "a dense sum of iteration %" PRIu64
                       " is complete, but the weights after %" PRIu64 " are not there",
                       iteration, iteration - 1);
    if ((uint64_t)first + count > (uint64_t)weights->value_count + 1)
        return rt_fail(error, RT_WIRE,
                       "dense gradients %" PRIu32 " to %" PRIu64 ", but there are %" PRIu32
                       " weights here",
                       first, (uint64_t)first + count, weights->value_count);
    *sum_p = weights->sum + first;
    weights->summed +=
        (uint32_t)rt_min_u64(count, weights->value_count - rt_min_u64(first, weights->value_count));
    return RT_OK;
}

static bool shifts_fit(const ps_weights *weights, const rt_wire_dense_step *step)
{
    for (uint32_t l = 0; l < RT_LABELS_MAX; l++)
        if (step->by[l] != 0 && (step->at[l] >= weights->value_count || !isfinite(step->by[l])))
            return false;
    return true;
}

static uint64_t place_of(uint64_t iteration, const rt_wire_dense_step *step)
{
    return (uint64_t)step->trained << RT_OPTIMIZER_PART | (uint32_t)(iteration - step->behind);
}

static rt_status take_step(ps_weights *weights, uint32_t worker, const rt_message *message,
                           rt_error *error)
{
    rt_wire_dense_step step;
    const uint64_t iteration = rt_message_header(message)->iteration;
    if (rt_message_header(message)->count != 1)
        return rt_fail(error, RT_WIRE, "worker %" PRIu32 ": a DENSE_STEP of %" PRIu32 " records",
                       worker, rt_message_header(message)->count);
    memcpy(&step, rt_message_payload(message), sizeof step);
    if (iteration < weights->version)
        return RT_OK; // others said it long ago, and maybe newer weights come in pieces now
    if (are_there(weights) && iteration == weights->version) {
        if (memcmp(&step, &weights->last, sizeof step) == 0)
            return RT_OK;
        return rt_fail(error, RT_WIRE,
                       "worker %" PRIu32 ": the dense step of iteration %" PRIu64
                       " is another one than that of the worker before",
                       worker, iteration);
    }
    if (!are_there(weights) || iteration != weights->version + 1 ||
        weights->summed != weights->value_count || step.applies > 1 || !(step.scale >= 0) ||
        !rt_optimizer_place_fits(place_of(iteration, &step), weights->optimizer.batch_samples) ||
        !shifts_fit(weights, &step))
        return rt_fail(error, RT_WIRE,
                       "worker %" PRIu32 ": a dense step of iteration %" PRIu64
                       ", whose sum is not complete or which cannot be",
                       worker, iteration);
    for (uint32_t l = 0; l < RT_LABELS_MAX; l++)
        if (step.by[l] != 0)
            weights->block[step.at[l]] += step.by[l];
    if (step.applies)
        rt_optimizer_step_scaled(&weights->optimizer, weights->value_count,
                                 place_of(iteration, &step), step.scale, weights->block,
                                 weights->block + weights->value_count, weights->sum);
    weights->version = iteration;
    weights->last = step;
    weights->summed = 0;
    return RT_OK;
}

// ---- fetches ---------------------------------------------------------------------------------

static rt_status take_pull(ps_weights *weights, uint32_t worker, const rt_message *message,
                           rt_error *error)
{
    const uint64_t version = rt_message_header(message)->iteration;
    const char *and_waits = weights->wanted[worker] ? ", and it waits already" : "";
    if (weights->wanted[worker] || (are_there(weights) && version < weights->version))
        return rt_fail(error, RT_WIRE,
                       "worker %" PRIu32 ": asks for the dense weights after iteration %" PRIu64
                       ", they are those after %" PRIu64 "%s",
                       worker, version, weights->version, and_waits);
    weights->wanted[worker] = version + 1;
    weights->waiting |= rt_bit(worker);
    return RT_OK;
}

rt_status ps_weights_receive(ps_weights *weights, uint32_t worker, const rt_message *message,
                             rt_error *error)
{
    switch (rt_message_header(message)->type) {
    case RT_MESSAGE_DENSE_STATE:
        return take_state(weights, worker, message, error);
    case RT_MESSAGE_DENSE_STEP:
        return take_step(weights, worker, message, error);
    default:
        return take_pull(weights, worker, message, error);
    }
}

rt_status ps_weights_next(ps_weights *weights, uint32_t *worker_p, rt_message *message)
{
    const rt_wire_dense_state head = {weights->value_count, weights->total};
    if (!are_there(weights))
        return RT_AGAIN;
    uint64_t rest = weights->waiting;
    while (rest && weights->wanted[rt_lowest_bit(rest)] != weights->version + 1)
        rest &= rest - 1;
    if (!rest)
        return RT_AGAIN;
    const uint32_t worker = rt_lowest_bit(rest);
    const uint32_t count =
        (uint32_t)rt_min_u64(weights->total - weights->sent, RT_WIRE_DENSE_CHUNK_FLOATS_MAX);
    if (rt_message_create(message, RT_MESSAGE_DENSE_STATE, 0, weights->version, weights->sent,
                          sizeof head + count * sizeof(float)))
        return RT_NO_MEMORY;
    memcpy(rt_message_payload(message), &head, sizeof head);
    memcpy(rt_message_payload(message) + sizeof head, weights->block + weights->sent,
           count * sizeof(float));
    *worker_p = worker;
    weights->sent += count;
    if (weights->sent == weights->total) {
        weights->sent = 0;
        weights->wanted[worker] = 0;
        weights->waiting &= ~rt_bit(worker);
    }
    return RT_OK;
}

uint64_t ps_weights_version(const ps_weights *weights)
{
    return weights->version;
}

const float *ps_weights_block(const ps_weights *weights, uint32_t *count_p)
{
    *count_p = weights->total;
    return are_there(weights) ? weights->block : NULL;
}
