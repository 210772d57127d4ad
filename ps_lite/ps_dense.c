#include "ps_lite/ps_dense.h"

typedef struct {
    uint64_t iteration;
    uint64_t arrived; // workers
    uint32_t chunk;
    uint32_t added; // workers 0 to added - 1 are in the sum
    uint32_t float_count;
    rt_message sum;      // worker 0's message, added to in place; empty while added is 0
    rt_message *waiting; // worker_count
} open_sum;

struct ps_dense {
    uint32_t worker_count;
    uint32_t open_count;
    uint64_t bytes;
    uint64_t bytes_max;
    open_sum *open;       // open_count of PS_DENSE_OPEN_MAX, in no order
    rt_message *waiting;  // PS_DENSE_OPEN_MAX x worker_count; each open_sum owns a stretch
    uint64_t *iterations; // per worker: of its latest message
};

rt_status ps_dense_create(uint32_t worker_count, uint64_t bytes_max, ps_dense **dense_p)
{
    rt_assert(worker_count > 0 && worker_count <= RT_WORKERS_MAX);
    ps_dense *dense = rt_alloc(1, sizeof *dense);
    if (!dense)
        return RT_NO_MEMORY;
    dense->worker_count = worker_count;
    dense->bytes_max = bytes_max;
    dense->open = rt_alloc(PS_DENSE_OPEN_MAX, sizeof *dense->open);
    dense->waiting = rt_alloc((size_t)PS_DENSE_OPEN_MAX * worker_count, sizeof *dense->waiting);
    dense->iterations = rt_alloc(worker_count, sizeof *dense->iterations);
    if (!dense->open || !dense->waiting || !dense->iterations) {
        ps_dense_destroy(dense);
        return RT_NO_MEMORY;
    }
    for (size_t i = 0; i < PS_DENSE_OPEN_MAX; i++)
        dense->open[i].waiting = dense->waiting + i * worker_count;
    *dense_p = dense;
    return RT_OK;
}

void ps_dense_destroy(ps_dense *dense)
{
    if (!dense)
        return;
    for (uint32_t i = 0; i < dense->open_count; i++) {
        rt_message_release(&dense->open[i].sum);
        for (uint32_t w = 0; w < dense->worker_count; w++)
            rt_message_release(&dense->open[i].waiting[w]);
    }
    rt_free(dense->open);
    rt_free(dense->waiting);
    rt_free(dense->iterations);
    rt_free(dense);
}

static open_sum *find_open(const ps_dense *dense, uint64_t iteration, uint32_t chunk)
{
    for (uint32_t i = 0; i < dense->open_count; i++)
        if (dense->open[i].iteration == iteration && dense->open[i].chunk == chunk)
            return &dense->open[i];
    return NULL;
}

static rt_status check(const ps_dense *dense, uint32_t worker, const rt_wire_header *header,
                       const open_sum *open, rt_error *error)
{
    const uint64_t bytes = header->payload_bytes;
    const unsigned long long t = header->iteration;
    if (bytes == 0 || bytes % sizeof(float) || bytes > RT_WIRE_DENSE_CHUNK_FLOATS_MAX * sizeof(float))
        return rt_fail(error, RT_WIRE,
                       "worker %u: dense gradient of iteration %llu, chunk %u: %llu bytes are not "
                       "1 to %u floats",
                       worker, t, header->count, (unsigned long long)bytes,
                       RT_WIRE_DENSE_CHUNK_FLOATS_MAX);
    if (header->iteration < dense->iterations[worker])
        return rt_fail(error, RT_WIRE,
                       "worker %u: dense gradient of iteration %llu after one of %llu", worker, t,
                       (unsigned long long)dense->iterations[worker]);
    if (open && open->arrived & rt_bit(worker))
        return rt_fail(error, RT_WIRE,
                       "worker %u: dense gradient of iteration %llu, chunk %u twice", worker, t,
                       header->count);
    if (open && open->float_count != bytes / sizeof(float))
        return rt_fail(error, RT_WIRE,
                       "worker %u: dense gradient of iteration %llu, chunk %u has %llu floats, "
                       "another worker's has %u",
                       worker, t, header->count, (unsigned long long)(bytes / sizeof(float)),
                       open->float_count);
    if (dense->bytes + bytes > dense->bytes_max ||
        (!open && dense->open_count == PS_DENSE_OPEN_MAX))
        return rt_fail(error, RT_LIMIT,
                       "worker %u: dense gradient of iteration %llu, chunk %u: %u sums with %llu "
                       "bytes are open, at most %u with %llu are allowed",
                       worker, t, header->count, dense->open_count,
                       (unsigned long long)dense->bytes, PS_DENSE_OPEN_MAX,
                       (unsigned long long)dense->bytes_max);
    return RT_OK;
}

static void add(float *restrict sum, const float *restrict one, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        sum[i] += one[i];
}

static float *floats(const rt_message *message)
{
    return (float *)(void *)rt_message_payload(message);
}

// Adds every gradient whose turn has come.
static void advance(ps_dense *dense, open_sum *open)
{
    for (; open->added < dense->worker_count; open->added++) {
        rt_message *next = &open->waiting[open->added];
        if (!next->data)
            return;
        if (open->added == 0) {
            open->sum = *next;
            *next = (rt_message){0};
            continue;
        }
        add(floats(&open->sum), floats(next), open->float_count);
        rt_message_release(next);
        *next = (rt_message){0};
        dense->bytes -= open->float_count * sizeof(float);
    }
}

static void finish(ps_dense *dense, open_sum *open, rt_message *sum)
{
    *sum = open->sum;
    rt_message_header(sum)->type = RT_MESSAGE_DENSE_SUM;
    dense->bytes -= open->float_count * sizeof(float);
    open_sum *last = &dense->open[--dense->open_count];
    rt_message *waiting = open->waiting; // all empty
    *open = *last;
    *last = (open_sum){.waiting = waiting};
}

rt_status ps_dense_add(ps_dense *dense, uint32_t worker, rt_message *message, rt_message *sum,
                       rt_error *error)
{
    const rt_wire_header *header = rt_message_header(message);
    open_sum *open = find_open(dense, header->iteration, header->count);
    rt_status status = check(dense, worker, header, open, error);
    if (status != RT_OK)
        return status;
    if (!open) {
        open = &dense->open[dense->open_count++];
        *open = (open_sum){.iteration = header->iteration,
                           .chunk = header->count,
                           .float_count = (uint32_t)(header->payload_bytes / sizeof(float)),
                           .waiting = open->waiting};
    }
    dense->iterations[worker] = header->iteration;
    dense->bytes += header->payload_bytes;
    open->arrived |= rt_bit(worker);
    open->waiting[worker] = *message;
    *message = (rt_message){0};
    *sum = (rt_message){0};
    advance(dense, open);
    if (open->added == dense->worker_count)
        finish(dense, open, sum);
    return RT_OK;
}

uint32_t ps_dense_open(const ps_dense *dense)
{
    return dense->open_count;
}
