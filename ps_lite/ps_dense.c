#include "ps_lite/ps_dense.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/config/rt_config.h"
#include "runtime/numbers/rt_bf16.h"
#include "runtime/numbers/rt_int8.h"

#define BLOCK_FLOATS 1024u

typedef struct {
    uint64_t iteration;
    uint64_t workers; // that take part
    uint64_t arrived; // of them
    uint64_t left;    // of them, those that are not in the sum yet
    uint32_t first;   // place of the chunk in the part
    rt_coding coding; // of the messages
    uint32_t whole;   // int8: floats at the end that are not in blocks
    uint32_t float_count;
    rt_message sum;      // floats: the first worker's message, or room of our own; empty before it
    rt_message *waiting; // worker_count
} open_sum;

// What each can do; then, where that is decided anew, whether it has come about.
#define ROUNDS_MAX 2u

struct ps_dense {
    uint32_t worker_count;
    uint32_t open_count;
    uint64_t bytes;
    uint64_t bytes_max;
    open_sum *open;            // open_count of PS_DENSE_OPEN_MAX, in no order
    rt_message *waiting;       // PS_DENSE_OPEN_MAX x worker_count; each open_sum owns a stretch
    uint64_t *iterations;      // per worker: of its latest message
    rt_wire_dense_join *joins; // per worker
    uint64_t joined;           // workers, of this round
    uint32_t rounds;           // of joining that all have come through
    ps_weights *weights;       // or NULL
    float *lost;               // int8: of the part, what rounding sums has lost so far
    uint32_t lost_capacity;
};

rt_status ps_dense_create(const ps_dense_config *config, ps_dense **dense_p)
{
    const uint32_t worker_count = config->worker_count;
    rt_assert(worker_count > 0 && worker_count <= RT_WORKERS_MAX);
    ps_dense *dense = rt_alloc(1, sizeof *dense);
    if (!dense)
        return RT_NO_MEMORY;
    dense->worker_count = worker_count;
    dense->bytes_max = config->bytes_max;
    if (config->keeps &&
        ps_weights_create(worker_count, &config->optimizer, config->bytes_max, &dense->weights)) {
        ps_dense_destroy(dense);
        return RT_NO_MEMORY;
    }
    dense->open = rt_alloc(PS_DENSE_OPEN_MAX, sizeof *dense->open);
    dense->waiting = rt_alloc((size_t)PS_DENSE_OPEN_MAX * worker_count, sizeof *dense->waiting);
    dense->iterations = rt_alloc(worker_count, sizeof *dense->iterations);
    dense->joins = rt_alloc(worker_count, sizeof *dense->joins);
    if (!dense->open || !dense->waiting || !dense->iterations || !dense->joins) {
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
    rt_free(dense->joins);
    rt_free(dense->lost);
    ps_weights_destroy(dense->weights);
    rt_free(dense);
}

static open_sum *find_open(const ps_dense *dense, uint64_t iteration, uint32_t first)
{
    for (uint32_t i = 0; i < dense->open_count; i++)
        if (dense->open[i].iteration == iteration && dense->open[i].first == first)
            return &dense->open[i];
    return NULL;
}

// What a message says of its floats.
typedef struct {
    rt_coding coding;
    uint64_t floats; // 0: the payload cannot be so many
    uint32_t whole;
} chunk;

static const char *name_of(rt_coding coding)
{
    static const char *const names[] = {"fp32", "bf16", "int8"};
    return names[coding];
}

static chunk blocks_of(const rt_message *message)
{
    rt_wire_dense_int8 head;
    chunk found = {RT_CODING_INT8, 0, 0};
    const uint64_t bytes = rt_message_header(message)->payload_bytes;
    if (bytes < sizeof head)
        return found;
    memcpy(&head, rt_message_payload(message), sizeof head);
    if (head.whole <= head.floats && head.floats <= RT_WIRE_DENSE_CHUNK_FLOATS_MAX &&
        bytes == sizeof head + head.whole * sizeof(float) + rt_int8_bytes(head.floats - head.whole))
        found = (chunk){RT_CODING_INT8, head.floats, head.whole};
    return found;
}

static chunk chunk_of(const rt_message *message)
{
    const rt_wire_header *header = rt_message_header(message);
    chunk found = {RT_CODING_FP32, 0, 0};
    uint64_t size = sizeof(float);
    if (header->type == RT_MESSAGE_DENSE_GRAD_INT8)
        return blocks_of(message);
    if (header->type == RT_MESSAGE_DENSE_GRAD_BF16) {
        found.coding = RT_CODING_BF16;
        size = sizeof(uint16_t);
    }
    const uint64_t bytes = header->payload_bytes - sizeof(rt_wire_dense);
    if (bytes % size == 0)
        found.floats = bytes / size;
    return found;
}

static uint64_t workers_of(const rt_message *message)
{
    rt_wire_dense head;
    memcpy(&head, rt_message_payload(message), sizeof head);
    return head.workers;
}

static rt_status check_workers(const ps_dense *dense, uint32_t worker, const rt_message *message,
                               const open_sum *open, rt_error *error)
{
    const rt_wire_header *header = rt_message_header(message);
    const uint64_t workers = workers_of(message);
    if (!(workers & rt_bit(worker)) || workers & ~rt_bits_below(dense->worker_count))
        return rt_fail(error, RT_WIRE,
                       "worker %u: dense gradient of iteration %" PRIu64
                       ", from %u, of the workers %" PRIx64 ", which cannot be",
                       worker, header->iteration, header->count, workers);
    if (open && open->workers != workers)
        return rt_fail(error, RT_WIRE,
                       "worker %u: dense gradient of iteration %" PRIu64
                       ", from %u, of the workers %" PRIx64 ", another worker's is of %" PRIx64,
                       worker, header->iteration, header->count, workers, open->workers);
    return RT_OK;
}

static rt_status check_chunk(const rt_wire_header *header, const chunk *in, uint32_t worker,
                             const open_sum *open, rt_error *error)
{
    const uint64_t t = header->iteration;
    if (in->floats == 0 || in->floats > RT_WIRE_DENSE_CHUNK_FLOATS_MAX)
        return rt_fail(error, RT_WIRE,
                       "worker %u: dense gradient of iteration %" PRIu64 ", from %u: %" PRIu64
                       " bytes are not 1 to %u floats",
                       worker, t, header->count, header->payload_bytes,
                       RT_WIRE_DENSE_CHUNK_FLOATS_MAX);
    if (open && open->arrived & rt_bit(worker))
        return rt_fail(error, RT_WIRE,
                       "worker %u: dense gradient of iteration %" PRIu64 ", from %u twice", worker,
                       t, header->count);
    if (open &&
        (open->float_count != in->floats || open->coding != in->coding || open->whole != in->whole))
        return rt_fail(error, RT_WIRE,
                       "worker %u: dense gradient of iteration %" PRIu64 ", from %u has %" PRIu64
                       " floats of %s, another worker's has %u of %s (%u and %u of them whole)",
                       worker, t, header->count, in->floats, name_of(in->coding), open->float_count,
                       name_of(open->coding), in->whole, open->whole);
    return RT_OK;
}

// What messages beside the gradients hold is 32 bits for each of their floats.
static uint64_t sum_bytes(uint64_t floats)
{
    return sizeof(rt_wire_dense) + floats * sizeof(float);
}

static rt_status check_room(const ps_dense *dense, uint32_t worker, const rt_wire_header *header,
                            const chunk *in, const open_sum *open, rt_error *error)
{
    uint64_t bytes = dense->bytes + header->payload_bytes, lost = 0;
    // Floats of a sum are held beside the messages of workers, unless one of these holds them.
    if (!open && in->coding != RT_CODING_FP32)
        bytes += sum_bytes(in->floats);
    if (in->coding == RT_CODING_INT8)
        lost = (header->count + in->floats) * sizeof(float);
    if (bytes > dense->bytes_max || lost > dense->bytes_max ||
        (!open && dense->open_count == PS_DENSE_OPEN_MAX))
        return rt_fail(error, RT_LIMIT,
                       "worker %u: dense gradient of iteration %" PRIu64
                       ", from %u: %u sums with %" PRIu64
                       " bytes are open, at most %u with %" PRIu64 " are allowed",
                       worker, header->iteration, header->count, dense->open_count, dense->bytes,
                       PS_DENSE_OPEN_MAX, dense->bytes_max);
    return RT_OK;
}

static rt_status check(const ps_dense *dense, uint32_t worker, const rt_message *message,
                       const chunk *in, const open_sum *open, rt_error *error)
{
    const rt_wire_header *header = rt_message_header(message);
    rt_status status = check_chunk(header, in, worker, open, error);
    if (status)
        return status;
    status = check_workers(dense, worker, message, open, error);
    if (status)
        return status;
    if (header->iteration < dense->iterations[worker])
        return rt_fail(error, RT_WIRE,
                       "worker %u: dense gradient of iteration %" PRIu64 " after one of %" PRIu64,
                       worker, header->iteration, dense->iterations[worker]);
    return check_room(dense, worker, header, in, open, error);
}

static void add(float *restrict sum, const float *restrict one, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        sum[i] += one[i];
}

static float *floats(const rt_message *message)
{
    return (float *)(void *)(rt_message_payload(message) + sizeof(rt_wire_dense));
}

static const uint16_t *halves(const rt_message *message)
{
    return (const uint16_t *)(const void *)(rt_message_payload(message) + sizeof(rt_wire_dense));
}

static void release(ps_dense *dense, rt_message *message)
{
    dense->bytes -= rt_message_header(message)->payload_bytes;
    rt_message_release(message);
}

// Of an int8 message: its floats that are whole, and the blocks of the others.
static const float *whole_of(const rt_message *message)
{
    return (const float *)(const void *)(rt_message_payload(message) + sizeof(rt_wire_dense_int8));
}

static const void *blocks_in(const rt_message *message, const open_sum *open)
{
    return whole_of(message) + open->whole;
}

// sum: float_count floats, here and below.
static void unpack_coded(const open_sum *open, const rt_message *next, float *sum)
{
    const uint32_t rounded = open->float_count - open->whole;
    if (open->coding == RT_CODING_BF16) {
        rt_bf16_unpack(halves(next), open->float_count, sum);
    } else {
        rt_int8_unpack_blocks(blocks_in(next, open), rounded, sum);
        memcpy(sum + rounded, whole_of(next), open->whole * sizeof *sum);
    }
}

static void add_coded(const open_sum *open, const rt_message *next, float *sum)
{
    const uint32_t rounded = open->float_count - open->whole;
    if (open->coding == RT_CODING_BF16) {
        rt_bf16_add(halves(next), open->float_count, sum);
    } else {
        rt_int8_add_blocks(blocks_in(next, open), rounded, sum);
        add(sum + rounded, whole_of(next), open->whole);
    }
}

// Adds every gradient whose turn has come.
static void advance(ps_dense *dense, open_sum *open)
{
    while (open->left) {
        const uint32_t worker = rt_lowest_bit(open->left);
        const bool is_first = open->left == open->workers;
        rt_message *next = &open->waiting[worker];
        if (!next->data)
            return;
        open->left &= open->left - 1;
        if (is_first && open->coding == RT_CODING_FP32) {
            open->sum = *next;
            *next = (rt_message){0};
            continue;
        }
        if (open->coding == RT_CODING_FP32)
            add(floats(&open->sum), floats(next), open->float_count);
        else if (is_first)
            unpack_coded(open, next, floats(&open->sum));
        else
            add_coded(open, next, floats(&open->sum));
        release(dense, next);
    }
}

// Floats become halves in their own place: what is written never passes what is read.
static void round_in_place(rt_message *sum, uint32_t float_count)
{
    uint16_t block[BLOCK_FLOATS];
    uint8_t *out = rt_message_payload(sum) + sizeof(rt_wire_dense);
    for (uint32_t first = 0; first < float_count; first += BLOCK_FLOATS) {
        uint32_t count = (uint32_t)rt_min_u64(float_count - first, BLOCK_FLOATS);
        rt_bf16_pack(floats(sum) + first, count, block);
        memcpy(out + first * sizeof *block, block, count * sizeof *block);
    }
    rt_message_finish(sum, rt_message_header(sum)->count,
                      sizeof(rt_wire_dense) + float_count * sizeof *block);
}

// The sum, and what rounding this part of it lost before, as a message of blocks. Sums of one place
// come in the order of iterations: who sends the next gradient of it has this sum, or weights that
// it went into.
static rt_status round_to_blocks(ps_dense *dense, open_sum *open)
{
    rt_message message;
    const uint32_t rounded = open->float_count - open->whole;
    const rt_wire_dense_int8 head = {open->workers, open->float_count, open->whole};
    const rt_wire_header *header = rt_message_header(&open->sum);
    const uint64_t bytes = sizeof head + open->whole * sizeof(float) + rt_int8_bytes(rounded);
    if (rt_grow(&dense->lost, &dense->lost_capacity, (uint64_t)open->first + rounded,
                sizeof *dense->lost))
        return RT_NO_MEMORY;
    if (rt_message_create(&message, RT_MESSAGE_DENSE_SUM_INT8, header->sender, header->iteration,
                          header->count, bytes))
        return RT_NO_MEMORY;
    memcpy(rt_message_payload(&message), &head, sizeof head);
    memcpy(rt_message_payload(&message) + sizeof head, floats(&open->sum) + rounded,
           open->whole * sizeof(float));
    rt_int8_pack_blocks(floats(&open->sum), dense->lost + open->first, rounded,
                        rt_message_payload(&message) + sizeof head + open->whole * sizeof(float));
    rt_message_release(&open->sum);
    open->sum = message;
    return RT_OK;
}

static rt_status round_sum(ps_dense *dense, open_sum *open, rt_error *error)
{
    if (open->coding == RT_CODING_BF16)
        round_in_place(&open->sum, open->float_count);
    if (open->coding == RT_CODING_INT8 && round_to_blocks(dense, open))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a sum of dense gradients");
    return RT_OK;
}

// The very sum that is sent.
static rt_status keep_sum(ps_dense *dense, const open_sum *open, rt_error *error)
{
    float *place;
    if (!dense->weights)
        return RT_OK;
    rt_status status = ps_weights_sum(dense->weights, open->iteration, open->first,
                                      open->float_count, &place, error);
    if (status)
        return status;
    if (open->coding != RT_CODING_FP32)
        unpack_coded(open, &open->sum, place);
    else
        memcpy(place, floats(&open->sum), open->float_count * sizeof *place);
    return RT_OK;
}

static rt_status finish(ps_dense *dense, open_sum *open, ps_dense_answer *answer, rt_error *error)
{
    rt_wire_header *header = rt_message_header(&open->sum);
    dense->bytes -= header->payload_bytes;
    header->type = RT_MESSAGE_DENSE_SUM;
    if (open->coding == RT_CODING_BF16)
        header->type = RT_MESSAGE_DENSE_SUM_BF16;
    rt_status status = round_sum(dense, open, error);
    if (!status)
        status = keep_sum(dense, open, error);
    *answer = (ps_dense_answer){open->sum, open->workers};
    open_sum *last = &dense->open[--dense->open_count];
    rt_message *waiting = open->waiting; // all empty
    *open = *last;
    *last = (open_sum){.waiting = waiting};
    if (status) {
        rt_message_release(&answer->message);
        *answer = (ps_dense_answer){0};
    }
    return status;
}

static rt_status begin(ps_dense *dense, const rt_message *message, const chunk *in,
                       open_sum **open_p)
{
    open_sum *open = &dense->open[dense->open_count];
    const rt_wire_header *header = rt_message_header(message);
    const rt_wire_dense head = {workers_of(message)};
    const uint64_t bytes = sum_bytes(in->floats);
    rt_message sum = {0};
    if (in->coding != RT_CODING_FP32 &&
        rt_message_create(&sum, RT_MESSAGE_DENSE_SUM, header->sender, header->iteration,
                          header->count, bytes))
        return RT_NO_MEMORY;
    if (sum.data) {
        memcpy(rt_message_payload(&sum), &head, sizeof head);
        dense->bytes += bytes;
    }
    *open = (open_sum){.iteration = header->iteration,
                       .workers = head.workers,
                       .left = head.workers,
                       .first = header->count,
                       .coding = in->coding,
                       .whole = in->whole,
                       .float_count = (uint32_t)in->floats,
                       .sum = sum,
                       .waiting = open->waiting};
    dense->open_count++;
    *open_p = open;
    return RT_OK;
}

static rt_status add_gradient(ps_dense *dense, uint32_t worker, rt_message *message,
                              ps_dense_answer *answer, rt_error *error)
{
    const rt_wire_header *header = rt_message_header(message);
    open_sum *open = find_open(dense, header->iteration, header->count);
    const chunk in = chunk_of(message);
    rt_status status = check(dense, worker, message, &in, open, error);
    if (status)
        return status;
    if (!open && begin(dense, message, &in, &open))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a sum of dense gradients");
    dense->iterations[worker] = header->iteration;
    dense->bytes += header->payload_bytes;
    open->arrived |= rt_bit(worker);
    open->waiting[worker] = *message;
    *message = (rt_message){0};
    advance(dense, open);
    if (open->left)
        return RT_OK;
    return finish(dense, open, answer, error);
}

static rt_status add_join(ps_dense *dense, uint32_t worker, const rt_message *message,
                          ps_dense_answer *answer, rt_error *error)
{
    const size_t size = sizeof *dense->joins;
    if (rt_message_header(message)->count != 1 || dense->joined & rt_bit(worker) ||
        dense->rounds == ROUNDS_MAX)
        return rt_fail(error, RT_WIRE, "worker %u: joins the dense exchange a second time", worker);
    memcpy(&dense->joins[worker], rt_message_payload(message), size);
    dense->joined |= rt_bit(worker);
    for (uint32_t w = 0; w < dense->worker_count; w++)
        if (!(dense->joined & rt_bit(w)))
            return RT_OK;
    dense->joined = 0;
    dense->rounds++;
    if (rt_message_create(&answer->message, RT_MESSAGE_DENSE_JOINED,
                          rt_message_header(message)->sender, 0, dense->worker_count,
                          dense->worker_count * size))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    memcpy(rt_message_payload(&answer->message), dense->joins, dense->worker_count * size);
    answer->workers = rt_bits_below(dense->worker_count);
    return RT_OK;
}

static bool is_of_weights(uint32_t type)
{
    return type == RT_MESSAGE_DENSE_STATE || type == RT_MESSAGE_DENSE_STEP ||
           type == RT_MESSAGE_DENSE_PULL;
}

bool ps_dense_takes(uint32_t type)
{
    return type == RT_MESSAGE_DENSE_GRAD || type == RT_MESSAGE_DENSE_GRAD_BF16 ||
           type == RT_MESSAGE_DENSE_GRAD_INT8 || type == RT_MESSAGE_DENSE_JOIN ||
           is_of_weights(type);
}

rt_status ps_dense_receive(ps_dense *dense, uint32_t worker, rt_message *message,
                           ps_dense_answer *answer, rt_error *error)
{
    const uint32_t type = rt_message_header(message)->type;
    *answer = (ps_dense_answer){0};
    if (type == RT_MESSAGE_DENSE_JOIN)
        return add_join(dense, worker, message, answer, error);
    if (!is_of_weights(type))
        return add_gradient(dense, worker, message, answer, error);
    if (!dense->weights)
        return rt_fail(error, RT_WIRE, "worker %u: a %s, but all workers take part: none is kept",
                       worker, rt_message_type_name(type));
    return ps_weights_receive(dense->weights, worker, message, error);
}

rt_status ps_dense_next(ps_dense *dense, ps_dense_answer *answer)
{
    uint32_t worker;
    rt_message message;
    *answer = (ps_dense_answer){0};
    if (!dense->weights)
        return RT_AGAIN;
    const rt_status status = ps_weights_next(dense->weights, &worker, &message);
    if (status)
        return status;
    *answer = (ps_dense_answer){message, rt_bit(worker)};
    return RT_OK;
}

const ps_weights *ps_dense_weights(const ps_dense *dense)
{
    return dense->weights;
}

uint32_t ps_dense_open(const ps_dense *dense)
{
    return dense->open_count;
}
