// Bytes of a coordinator, of a shard and of another worker: a slice that passes is carried out as
// far as it goes, and rows and gradients that nobody asked for, or that do not fit, are refused.
#include <stdlib.h>
#include <string.h>

#include "edge_worker/executor/ew_executor.h"
#include "runtime/config/rt_optimizers.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define VALUES 2u

#define OTHER 2u // a worker

// hands, sums: where rows travel as they are.
static dp_slice_limits limits = {.dense_count = 1,
                                 .rank = 1,
                                 .field_count = 2,
                                 .worker_count = 3,
                                 .sample_count_max = 4,
                                 .lookup_count_max = 16,
                                 .slot_count = 8};

static rt_status swallow(void *context, uint32_t shard, rt_message *message)
{
    (void)context;
    (void)shard;
    rt_message_release(message);
    return RT_OK;
}

// An exact block, so that sanitizers see every byte too far. The header is right: a transport has
// checked it.
static rt_message wrap(const uint8_t *bytes, size_t size, rt_message_type type, uint64_t iteration,
                       uint32_t count)
{
    rt_message message = {0};
    rt_status status = rt_message_create(&message, type, 0, iteration, count, size);
    rt_assert(status == RT_OK);
    if (size)
        memcpy(rt_message_payload(&message), bytes, size);
    return message;
}

// Bytes that choose, until there are none.
typedef struct {
    const uint8_t *next;
    size_t left;
} chooser;

static uint32_t choose(chooser *from, uint32_t bound)
{
    if (from->left == 0)
        return 0;
    from->left--;
    return *from->next++ % bound;
}

static void choose_after(chooser *from, dp_slice *slice, const dp_row *row)
{
    static const dp_op_kind kinds[] = {
        [DP_MODE_GRAD] = DP_OP_PUSH_GRAD, [DP_MODE_REDUCE] = DP_OP_SUM};
    if (row->mode == DP_MODE_OWN)
        return;
    dp_op_kind kind = kinds[row->mode];
    if (kind == DP_OP_PUSH_GRAD && limits.sums && choose(from, 2))
        kind = DP_OP_REDUCE;
    dp_op *op = dp_ops_add(&slice->after, kind);
    rt_assert(op);
    op->key = choose(from, 4);
    for (uint32_t i = 0; i < slice->fill.count && choose(from, 8); i++)
        if (slice->fill.items[i].slot == row->slot) // or hardly a sum would be of its row
            op->key = slice->fill.items[i].key;
    op->slot = row->slot;
    op->mask = 1 + choose(from, 7);
    if (kind == DP_OP_REDUCE || kind == DP_OP_SUM) {
        op->mask = rt_bit(limits.rank) | rt_bit(OTHER);
        op->peer = OTHER;
    }
}

static void choose_ops(chooser *from, dp_slice *slice)
{
    for (uint32_t i = choose(from, 8); i > 0; i--) {
        static const dp_op_kind kinds[] = {DP_OP_PUSH_ROW, DP_OP_DROP, DP_OP_SEND,
                                           DP_OP_PULL,     DP_OP_INIT, DP_OP_RECV};
        uint32_t kind = choose(from, RT_COUNT_OF(kinds));
        if ((kinds[kind] == DP_OP_SEND || kinds[kind] == DP_OP_RECV) && !limits.hands)
            continue;
        dp_op *op = dp_ops_add(kind < 3 ? &slice->release : &slice->fill, kinds[kind]);
        rt_assert(op);
        op->key = choose(from, 4);
        op->slot = choose(from, limits.slot_count);
        op->version = choose(from, 4);
        op->reason = (uint8_t)choose(from, 3);
        op->flags = (uint8_t)choose(from, op->kind == DP_OP_PUSH_ROW ? 4 : 2);
        if (op->kind == DP_OP_SEND || op->kind == DP_OP_RECV)
            op->peer = OTHER;
        if (op->kind == DP_OP_SEND)
            op->reason = DP_REASON_UPDATE;
        if (op->kind == DP_OP_RECV)
            op->flags = DP_OP_STATE;
    }
    for (uint32_t r = 0; r < slice->row_count; r++)
        choose_after(from, slice, &slice->rows[r]);
}

// A slice in the right form, whatever it says.
static rt_message invent(chooser *from, uint64_t sequence)
{
    dp_plan plan;
    rt_batch batch;
    rt_message message;
    const float dense = 1;
    const uint64_t keys[] = {0, UINT64_C(1) << 56};
    rt_status status = dp_plan_init(&plan, 1);
    rt_assert(status == RT_OK);
    status = dp_slice_reserve(&plan.slices[0], 4, 8);
    rt_assert(status == RT_OK);
    dp_slice *slice = &plan.slices[0];
    rt_batch_init(&batch, 1);
    plan.iteration = (uint32_t)sequence;
    plan.sample_count = 4;
    plan.participants = rt_bits_below(limits.worker_count);
    plan.dense_chunk_floats = 1;
    slice->sample_count = choose(from, 4);
    slice->lookup_count = slice->row_count = slice->sample_count * 2;
    for (uint32_t i = 0; i < slice->sample_count; i++) {
        status = rt_batch_append(&batch, 1, &dense, keys, 2);
        rt_assert(status == RT_OK);
        slice->samples[i] = i;
    }
    for (uint32_t r = 0; r < slice->row_count; r++) {
        slice->lookup_rows[r] = r;
        static const dp_mode modes[] = {DP_MODE_OWN, DP_MODE_GRAD, DP_MODE_REDUCE};
        slice->rows[r] = (dp_row){choose(from, limits.slot_count), choose(from, 4),
                                  modes[choose(from, 2 + limits.sums)]};
    }
    choose_ops(from, slice);
    status = dp_slice_encode(&plan, 0, &batch, &limits, 0, sequence, &message);
    rt_assert(status == RT_OK);
    rt_batch_fini(&batch);
    dp_plan_fini(&plan);
    return message;
}

// Gradients in the right form, which a sum may wait for.
static rt_message invent_gradients(chooser *from, uint64_t sequence)
{
    uint8_t records[2][sizeof(rt_wire_grad) + VALUES * sizeof(float)] = {{0}};
    const uint32_t count = 1 + choose(from, 2);
    for (uint32_t i = 0; i < count; i++) {
        const rt_wire_grad grad = {.key = choose(from, 4),
                                   .mask = rt_bit(limits.rank) | rt_bit(OTHER),
                                   .base = choose(from, 4),
                                   .step = choose(from, 8) ? RT_WIRE_STEP : RT_WIRE_NO_STEP};
        memcpy(records[i], &grad, sizeof grad);
    }
    return wrap(records[0], count * sizeof records[0], RT_MESSAGE_GRADS, sequence, count);
}

static bool train(ew_executor *executor)
{
    ew_job job;
    rt_error error;
    static const float gradients[16 * VALUES];
    if (ew_executor_next_job(executor, &job) != RT_OK)
        return true;
    rt_assert(job.slice->counts.row_count <= 16);
    return ew_executor_trained(executor, gradients, true, NULL, &error) == RT_OK;
}

// The input is a list of messages: type and length, one byte each, payload.
static void run(ew_executor *executor, bool coded, const uint8_t *bytes, size_t size)
{
    uint64_t sequence = 0;
    rt_error error;
    while (size >= 2) {
        size_t length = rt_min_u64(bytes[1], size - 2);
        uint8_t kind = bytes[0] % 7;
        rt_message message = {0};
        uint32_t peer = rt_peer(RT_ROLE_PS, 0);
        rt_message_type type = coded ? RT_MESSAGE_ROWS_CODED : RT_MESSAGE_ROWS;
        if (kind == 0) {
            peer = rt_peer(RT_ROLE_COORDINATOR, 0);
            message = wrap(bytes + 2, length, RT_MESSAGE_SLICE, ++sequence, 1);
        } else if (kind == 4) {
            peer = rt_peer(RT_ROLE_COORDINATOR, 0);
            message = invent(&(chooser){bytes + 2, length}, ++sequence);
        } else if (kind == 3) {
            message = wrap(bytes + 2, 0, RT_MESSAGE_PUSHED, sequence, 0);
        } else if (kind == 5) { // of a slice that may not be there yet
            peer = rt_peer(RT_ROLE_WORKER, OTHER);
            type = bytes[0] / 8 % 2 ? RT_MESSAGE_HANDED : RT_MESSAGE_GRADS;
            message = wrap(bytes + 2, length, type, sequence + bytes[0] % 2, 1 + bytes[0] / 64);
        } else if (kind == 6) {
            peer = rt_peer(RT_ROLE_WORKER, OTHER);
            message = invent_gradients(&(chooser){bytes + 2, length}, sequence + bytes[0] % 2);
        } else {
            message = wrap(bytes + 2, length, type, sequence, 1 + bytes[0] / 64);
        }
        if (ew_executor_receive(executor, peer, &message, &error) || !train(executor))
            return;
        bytes += 2 + length;
        size -= 2 + length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    ew_executor *executor;
    ew_host_rows rows;
    ew_codes codes = {0};
    const rt_coding coding = (rt_coding)(size ? bytes[size - 1] % 3 : 0);
    limits.hands = limits.sums = coding == RT_CODING_FP32;
    rt_optimizer_config optimizer = {.kind = RT_OPTIMIZER_ADAGRAD, .learning_rate = 0.1f};
    if (ew_host_rows_init(&rows, limits.slot_count, VALUES, &optimizer, 1, 0.1f))
        return 0;
    if (coding && ew_codes_init(&codes, coding, limits.slot_count, VALUES, 1, 0.1f)) {
        ew_host_rows_fini(&rows);
        return 0;
    }
    ew_executor_config config = {.rank = 1,
                                 .shard_count = 1,
                                 .slice_count_max = 3,
                                 .push_credits = 2,
                                 .message_bytes = 64,
                                 .limits = limits,
                                 .values = VALUES,
                                 .state = rows.state,
                                 .rows = &ew_host_rows_ops,
                                 .rows_context = &rows,
                                 .codes = coding ? &codes : NULL,
                                 .send = swallow};
    if (ew_executor_create(&config, &executor) == RT_OK) {
        run(executor, coding != RT_CODING_FP32, bytes, size);
        ew_executor_destroy(executor);
    }
    ew_host_rows_fini(&rows);
    ew_codes_fini(&codes);
    return 0;
}
