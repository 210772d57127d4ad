#include "tests/support/fabric_parts.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

void fabric_queue_put(fabric_queue *q, rt_message *message)
{
    if (q->first > 64 && q->first + q->count == q->capacity) {
        memmove(q->messages, q->messages + q->first, q->count * sizeof *q->messages);
        q->first = 0;
    }
    assert_int_equal(
        rt_grow(&q->messages, &q->capacity, (uint64_t)q->first + q->count + 1, sizeof *q->messages),
        RT_OK);
    q->messages[q->first + q->count++] = *message;
    *message = (rt_message){0};
}

rt_message fabric_queue_take(fabric_queue *q, uint32_t sender)
{
    rt_error error = {0};
    rt_message message = q->messages[q->first++];
    q->count--;
    if (rt_message_validate(&message, sender, &error))
        fail_msg("%s", error.text);
    assert_int_equal(rt_message_header(&message)->sender, sender);
    return message;
}

void fabric_queue_fini(fabric_queue *q)
{
    for (uint32_t i = 0; i < q->count; i++)
        rt_message_release(&q->messages[q->first + i]);
    rt_free(q->messages);
}

rt_message fabric_copy(const rt_message *from)
{
    uint8_t *data = malloc(from->size);
    assert_non_null(data);
    memcpy(data, from->data, from->size);
    return (rt_message){data, from->size, free, data};
}

// ---- weights of who sits out -----------------------------------------------------------------

static rt_status read_weights(void *context, float *values, float *state, rt_error *error)
{
    uint32_t count;
    ew_model *model = context;
    (void)ew_model_dense(model, EW_OPTIMIZER_STATE, &count);
    rt_status status = ew_model_dense_read(model, EW_VALUES, values, error);
    return status || !count ? status : ew_model_dense_read(model, EW_OPTIMIZER_STATE, state, error);
}

static rt_status write_weights(void *context, const float *values, const float *state,
                               rt_error *error)
{
    uint32_t count;
    ew_model *model = context;
    (void)ew_model_dense(model, EW_OPTIMIZER_STATE, &count);
    rt_status status = ew_model_dense_write(model, EW_VALUES, values, error);
    return status || !count ? status
                            : ew_model_dense_write(model, EW_OPTIMIZER_STATE, state, error);
}

static uint32_t shifts(const void *context, float log_odds, const float *more_odds,
                       float by[RT_LABELS_MAX])
{
    return ew_model_shifts(context, log_odds, more_odds, by);
}

const ew_weights_ops fabric_weights_ops = {read_weights, write_weights, shifts};

void fabric_check_part(const ew_weights *w, ew_model *model, const ps_weights *kept, uint32_t rank,
                       uint64_t version)
{
    const uint32_t part = rank < w->stripes.shard_count ? rt_stripes_part(&w->stripes, rank) : 0;
    uint32_t total, count;
    const float *block = kept ? ps_weights_block(kept, &total) : NULL;
    const float *values = ew_model_dense(model, EW_VALUES, &count);
    const float *state = ew_model_dense(model, EW_OPTIMIZER_STATE, &count);
    if (!w->shared || part == 0)
        return;
    assert_non_null(block);
    assert_int_equal(ps_weights_version(kept), version);
    assert_int_equal(total, part + rt_optimizer_state_floats(&w->optimizer, part));
    for (uint32_t i = 0; i < part; i++)
        assert_memory_equal(block + i, values + rt_stripes_place(&w->stripes, rank, i),
                            sizeof *block);
    for (uint32_t i = part; i < total && w->stripes.shard_count > 1; i++)
        assert_memory_equal(block + i,
                            state + (size_t)(i / part - 1) * w->stripes.count +
                                rt_stripes_place(&w->stripes, rank, i % part),
                            sizeof *block);
}
