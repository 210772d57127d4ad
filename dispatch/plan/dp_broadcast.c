#include "dispatch/plan/dp_broadcast.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "runtime/stream/rt_tables.h"
#include "runtime/wire/rt_bytes.h"

static uint64_t padded(uint64_t bytes)
{
    return (bytes + 7) & ~UINT64_C(7);
}

// ---- sending ---------------------------------------------------------------------------------

void dp_broadcast_fini(dp_broadcast *broadcast)
{
    rt_free(broadcast->batches);
    broadcast->batches = NULL;
}

// Keys travel as streams have them, with their fields; who receives a batch folds it again. A bag
// without a look-up was a missing value.
static uint32_t key_count(const rt_batch *batch)
{
    if (!batch->tables)
        return batch->key_count;
    const size_t bag_count = (size_t)batch->sample_count * batch->tables->field_count;
    uint32_t count = batch->lookup_count;
    for (size_t bag = 0; bag < bag_count; bag++)
        count += batch->bag_offsets[bag] == batch->bag_offsets[bag + 1];
    return count;
}

static bool says_what_is_learnt(const rt_batch *batch)
{
    return batch->learning.unknown || batch->learning.is_untrained || rt_batch_shifts(batch) ||
           rt_batch_is_balanced(batch);
}

static uint64_t batch_bytes(const rt_batch *batch)
{
    const uint64_t samples = batch->sample_count, labels = samples * batch->label_count;
    const uint64_t learning = says_what_is_learnt(batch) ? sizeof(rt_wire_learning) : 0;
    return sizeof(rt_wire_batch) + learning +
           (batch->is_weighted ? 2 : 1) * padded(labels * sizeof(float)) +
           padded(samples * batch->dense_count * sizeof(float)) +
           padded((samples + 1) * sizeof(uint32_t)) + key_count(batch) * sizeof(uint64_t);
}

uint64_t dp_broadcast_bytes(const rt_batch *batch)
{
    return sizeof(rt_wire_header) + sizeof(rt_wire_broadcast) + batch_bytes(batch);
}

static uint8_t *put(uint8_t *at, const void *items, uint64_t bytes)
{
    if (bytes)
        memcpy(at, items, bytes);
    memset(at + bytes, 0, padded(bytes) - bytes);
    return at + padded(bytes);
}

// Key offsets and keys of a folded batch, as they were before.
static void put_unfolded(uint8_t *at, const rt_batch *batch)
{
    const uint32_t fields = batch->tables->field_count;
    uint32_t *offsets = (uint32_t *)(void *)at;
    const uint64_t size = (batch->sample_count + UINT64_C(1)) * sizeof *offsets;
    uint64_t *keys = (uint64_t *)(void *)(at + padded(size));
    uint32_t count = 0;
    memset(at, 0, padded(size));
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        for (uint32_t f = 0; f < fields; f++) {
            const uint32_t *bag = &batch->bag_offsets[(size_t)i * fields + f];
            if (bag[0] == bag[1])
                keys[count++] = rt_key(f, RT_ID_MISSING);
            for (uint32_t l = bag[0]; l < bag[1]; l++)
                keys[count++] =
                    rt_tables_field_key(batch->tables, f, batch->keys[batch->lookups[l]]);
        }
        offsets[i + 1] = count;
    }
}

static uint8_t *put_learning(uint8_t *at, const rt_batch_learning *learning)
{
    rt_wire_learning wire = {.unknown = learning->unknown, .is_untrained = learning->is_untrained};
    memcpy(wire.log_odds, learning->log_odds, sizeof wire.log_odds);
    memcpy(wire.less, learning->less, sizeof wire.less);
    return put(at, &wire, sizeof wire);
}

static rt_status reserve(dp_broadcast *broadcast, uint64_t more)
{
    uint64_t want = broadcast->batch_bytes + more;
    if (want <= broadcast->batch_capacity)
        return RT_OK;
    uint8_t *grown = rt_alloc(2 * want, 1);
    if (!grown)
        return RT_NO_MEMORY;
    if (broadcast->batch_bytes)
        memcpy(grown, broadcast->batches, broadcast->batch_bytes);
    rt_free(broadcast->batches);
    broadcast->batches = grown;
    broadcast->batch_capacity = 2 * want;
    return RT_OK;
}

rt_status dp_broadcast_add_batch(dp_broadcast *broadcast, const rt_batch *batch)
{
    const uint32_t flags = (batch->is_weighted ? DP_BATCH_WEIGHTED : 0) |
                           (says_what_is_learnt(batch) ? DP_BATCH_LEARNING : 0);
    const rt_wire_batch head = {batch->sample_count | flags, key_count(batch)};
    uint64_t bytes = batch_bytes(batch), samples = batch->sample_count;
    if (reserve(broadcast, bytes))
        return RT_NO_MEMORY;
    uint8_t *at = broadcast->batches + broadcast->batch_bytes;
    at = put(at, &head, sizeof head);
    if (flags & DP_BATCH_LEARNING)
        at = put_learning(at, &batch->learning);
    at = put(at, batch->labels, samples * batch->label_count * sizeof(float));
    if (batch->is_weighted)
        at = put(at, batch->weights, samples * batch->label_count * sizeof(float));
    at = put(at, batch->dense, samples * batch->dense_count * sizeof(float));
    if (batch->tables) {
        put_unfolded(at, batch);
    } else {
        at = put(at, batch->key_offsets, (samples + 1) * sizeof(uint32_t));
        put(at, batch->keys, batch->key_count * sizeof(uint64_t));
    }
    broadcast->batch_bytes += bytes;
    broadcast->batch_count++;
    return RT_OK;
}

rt_status dp_broadcast_add_input(dp_broadcast *broadcast, const dp_input *input)
{
    if (broadcast->input_count == DP_INPUTS_WAITING_MAX)
        return RT_LIMIT;
    broadcast->inputs[broadcast->input_count++] = (rt_wire_input){.number = input->number,
                                                                  .iteration = input->iteration,
                                                                  .kind = input->kind,
                                                                  .worker = input->worker,
                                                                  .value = input->value};
    return RT_OK;
}

rt_status dp_broadcast_take(dp_broadcast *broadcast, uint32_t sender, uint64_t sequence, bool end,
                            rt_message *message)
{
    const rt_wire_broadcast head = {.flags = end ? DP_BROADCAST_END : 0,
                                    .batch_count = broadcast->batch_count,
                                    .input_count = broadcast->input_count};
    uint64_t input_bytes = broadcast->input_count * sizeof *broadcast->inputs;
    rt_status status = rt_message_create(message, RT_MESSAGE_BATCH, sender, sequence, 1,
                                         sizeof head + input_bytes + broadcast->batch_bytes);
    if (status)
        return status;
    uint8_t *at = put(rt_message_payload(message), &head, sizeof head);
    at = put(at, broadcast->inputs, input_bytes);
    put(at, broadcast->batches, broadcast->batch_bytes);
    broadcast->batch_bytes = 0;
    broadcast->batch_count = 0;
    broadcast->input_count = 0;
    return RT_OK;
}

// ---- receiving -------------------------------------------------------------------------------

static rt_status bad(rt_error *error, const char *what)
{
    return rt_fail(error, RT_WIRE, "coordinator: a BATCH with %s", what);
}

rt_status dp_broadcast_begin(const rt_message *message, const dp_broadcast_limits *limits,
                             dp_broadcast_reader *reader, rt_error *error)
{
    *reader = (dp_broadcast_reader){.limits = *limits, .reader = rt_message_reader(message)};
    const void *head = rt_reader_take(&reader->reader, 1, sizeof reader->head);
    if (!head)
        return bad(error, "fewer bytes than its head has");
    memcpy(&reader->head, head, sizeof reader->head);
    if (reader->head.flags & ~DP_BROADCAST_END || reader->head.reserved ||
        reader->head.input_count > DP_INPUTS_WAITING_MAX)
        return bad(error, "impossible numbers in its head");
    return RT_OK;
}

rt_status dp_broadcast_next_input(dp_broadcast_reader *reader, dp_input *input, rt_error *error)
{
    rt_wire_input wire;
    const void *bytes = rt_reader_take(&reader->reader, 1, sizeof wire);
    if (!bytes)
        return bad(error, "fewer records than it announces");
    memcpy(&wire, bytes, sizeof wire);
    if (wire.kind >= DP_INPUT_KINDS || wire.reserved)
        return bad(error, "a record of no known kind");
    *input = (dp_input){.number = wire.number,
                        .iteration = wire.iteration,
                        .kind = wire.kind,
                        .worker = wire.worker,
                        .value = wire.value};
    return RT_OK;
}

// The keys of one sample: a run of keys for every field, in order.
static bool keys_are_in_order(const uint64_t *keys, uint32_t count, uint32_t field_count)
{
    uint32_t field = 0;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t next = rt_key_field(keys[k]);
        if (next != field && (k == 0 || next != field + 1))
            return false;
        field = next;
    }
    return count > 0 && rt_key_field(keys[0]) == 0 && field == field_count - 1;
}

static rt_status append_all(const dp_broadcast_limits *limits, const rt_wire_batch *head,
                            const float *labels, const float *weights, const float *dense,
                            const uint32_t *offsets, const uint64_t *keys, rt_batch *batch,
                            rt_error *error)
{
    const uint32_t label_count = limits->more_labels + 1;
    rt_batch_begin(batch, label_count, weights != NULL);
    if (rt_batch_reserve(batch, head->sample_count, head->key_count))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a batch");
    if (offsets[0] != 0 || offsets[head->sample_count] != head->key_count)
        return bad(error, "key offsets that do not span its keys");
    for (uint32_t i = 0; i < head->sample_count; i++) {
        uint32_t count = offsets[i + 1] - offsets[i];
        if (offsets[i + 1] < offsets[i] || count > limits->keys_per_sample_max ||
            offsets[i + 1] > head->key_count ||
            !keys_are_in_order(keys + offsets[i], count, limits->field_count))
            return bad(error, "a sample whose keys are not one run per field");
        if (rt_batch_append(batch, 0, dense + (size_t)i * limits->dense_count, keys + offsets[i],
                            count))
            return rt_fail(error, RT_NO_MEMORY, "out of memory for a batch");
    }
    memcpy(batch->labels, labels, head->sample_count * (size_t)label_count * sizeof *labels);
    if (weights)
        memcpy(batch->weights, weights, head->sample_count * (size_t)label_count * sizeof *weights);
    return RT_OK;
}

// False: they cannot be.
static bool take_learning(rt_reader *in, const dp_broadcast_limits *limits,
                          rt_batch_learning *learning)
{
    rt_wire_learning wire;
    if (!rt_reader_get(in, &wire, 1, sizeof wire))
        return false;
    const uint64_t all = rt_bits_below(limits->more_labels + 1);
    for (uint32_t l = 0; l < RT_LABELS_MAX; l++)
        if (!isfinite(wire.log_odds[l]) || (wire.log_odds[l] != 0 && !(all >> l & 1)))
            return false;
    if (wire.unknown & ~all || wire.is_untrained > 1 || !(wire.less[0] >= 0 && wire.less[0] < 1) ||
        !(wire.less[1] >= 0 && wire.less[1] < 1))
        return false;
    memcpy(learning->less, wire.less, sizeof wire.less);
    memcpy(learning->log_odds, wire.log_odds, sizeof wire.log_odds);
    learning->unknown = (uint8_t)wire.unknown;
    learning->is_untrained = wire.is_untrained;
    return true;
}

rt_status dp_broadcast_next_batch(dp_broadcast_reader *reader, rt_batch *batch, rt_error *error)
{
    const dp_broadcast_limits *limits = &reader->limits;
    rt_wire_batch head;
    rt_reader *in = &reader->reader;
    const void *bytes = rt_reader_take(in, 1, sizeof head);
    if (!bytes)
        return bad(error, "fewer batches than it announces");
    memcpy(&head, bytes, sizeof head);
    const bool is_weighted = head.sample_count & DP_BATCH_WEIGHTED;
    rt_batch_learning learning = {0};
    if (head.sample_count & DP_BATCH_LEARNING && !take_learning(in, limits, &learning))
        return bad(error, "impossible log odds of its labels");
    head.sample_count &= ~(DP_BATCH_WEIGHTED | DP_BATCH_LEARNING);
    uint64_t samples = head.sample_count;
    if (samples == 0 || samples > limits->sample_count_max ||
        head.key_count > samples * limits->keys_per_sample_max)
        return rt_fail(error, RT_WIRE,
                       "coordinator: a BATCH of %" PRIu32 " samples with %" PRIu32
                       " keys, at most %" PRIu32 " with %" PRIu32 " each",
                       head.sample_count, head.key_count, limits->sample_count_max,
                       limits->keys_per_sample_max);
    const uint64_t label_bytes = padded(samples * (limits->more_labels + 1) * sizeof(float));
    const float *labels = rt_reader_take(in, 1, label_bytes);
    const float *weights = NULL;
    if (is_weighted)
        weights = rt_reader_take(in, 1, label_bytes);
    const float *dense = rt_reader_take(in, 1, padded(samples * limits->dense_count * 4));
    const uint32_t *offsets = rt_reader_take(in, 1, padded((samples + 1) * sizeof(uint32_t)));
    const uint64_t *keys = rt_reader_take(in, head.key_count, sizeof(uint64_t));
    if (limits->more_labels && !is_weighted)
        return bad(error, "several labels without weights");
    if (!labels || (is_weighted && !weights) || !dense || !offsets || !keys)
        return bad(error, "fewer bytes than its samples need");
    const rt_status status =
        append_all(limits, &head, labels, weights, dense, offsets, keys, batch, error);
    batch->learning = learning;
    return status;
}
