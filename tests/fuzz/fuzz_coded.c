// Bytes of a worker at a shard where rows and dense gradients travel rounded: whatever passes is
// carried out, everything else is refused.
#include <stdlib.h>
#include <string.h>

#include "ps_lite/ps_shard.h"
#include "runtime/config/rt_optimizers.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static rt_status swallow(void *context, uint32_t peer, rt_message *message)
{
    (void)context;
    (void)peer;
    rt_message_release(message);
    return RT_OK;
}

// Of a message: kind, worker, count, length; then its payload, in an exact block, so that
// sanitizers see every byte too far.
static void give(ps_shard *shard, const uint8_t *head, const uint8_t *bytes, size_t size)
{
    static const rt_message_type types[] = {RT_MESSAGE_PULL,
                                            RT_MESSAGE_PUSH_CHANGE,
                                            RT_MESSAGE_PUSH_GRAD_CODED,
                                            RT_MESSAGE_PUSH_ROW,
                                            RT_MESSAGE_DENSE_GRAD_INT8,
                                            RT_MESSAGE_DENSE_STEP,
                                            RT_MESSAGE_PUSH_DELTA_CODED};
    rt_message message;
    rt_error error;
    const uint32_t worker = head[1] % 2, peer = rt_peer(RT_ROLE_WORKER, worker);
    rt_status status = rt_message_create(&message, types[head[0] % RT_COUNT_OF(types)], peer,
                                         1 + head[1] / 128, head[2] % 4, size);
    rt_assert(status == RT_OK);
    if (size)
        memcpy(rt_message_payload(&message), bytes, size);
    if (rt_message_validate(&message, peer, &error) == RT_OK)
        (void)ps_shard_receive(shard, peer, &message, &error);
    else
        rt_message_release(&message);
    (void)ps_shard_flush(shard, &error);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size < 1)
        return 0;
    const bool adagrad = bytes[0] & 8;
    const ps_shard_config config = {
        .shard_count = 1,
        .worker_count = 2,
        .dim = 1 + bytes[0] % 8,
        .optimizer = {.kind = adagrad ? RT_OPTIMIZER_ADAGRAD : RT_OPTIMIZER_SGD,
                      .learning_rate = 0.1f},
        .seed = 1,
        .init_scale = 1,
        .adds_deltas = bytes[0] & 32,
        .row_wire = bytes[0] & 16 ? RT_CODING_BF16 : RT_CODING_INT8,
        .memory_bytes_max = 1 << 20,
        .gradient_bytes_max = 1 << 20,
        .dense_bytes_max = 1 << 16,
        .pulls_parked_max = 64,
        .message_bytes = 1 << 10,
        .queue_messages_max = 8,
        .send = swallow};
    ps_shard *shard;
    rt_status status = ps_shard_create(&config, &shard);
    rt_assert(status == RT_OK);
    bytes++;
    size--;
    while (size >= 4) {
        const uint8_t *head = bytes;
        const size_t length = rt_min_u64(head[3], size - 4);
        give(shard, head, bytes + 4, length);
        bytes += 4 + length;
        size -= 4 + length;
    }
    ps_shard_destroy(shard);
    return 0;
}
