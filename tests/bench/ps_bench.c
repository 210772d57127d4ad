// Rows per second through one shard, without sockets: what the rest of a server adds comes on top.
//
// ps_bench [ROWS_IN_TABLE]: messages of 2,048 random keys, pulls and pushes, rows of 64 bytes and
// of 2 KB; one thread. A pull includes filling the reply, a push the copy into the table.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps_lite/ps_shard.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/rt_hash.h"

#define RECORDS 2048u
#define WARM_UP 20u
#define MESSAGES 400u

typedef struct {
    uint64_t rows_received;
    uint64_t bytes_received;
} sink;

static rt_status receive_reply(void *context, uint32_t peer, rt_message *message)
{
    sink *got = context;
    (void)peer;
    const rt_wire_header *header = rt_message_header(message);
    got->rows_received += header->type == RT_MESSAGE_ROWS ? header->count : 0;
    got->bytes_received += message->size;
    rt_message_release(message);
    return RT_OK;
}

static ps_shard *create(uint32_t dim, sink *got)
{
    const ps_shard_config config = {.shard_count = 1,
                                    .worker_count = 2,
                                    .dim = dim,
                                    .optimizer = {.kind = RT_OPTIMIZER_SGD, .learning_rate = 0.1f},
                                    .init_scale = 0.01f,
                                    .memory_bytes_max = UINT64_C(8) << 30,
                                    .gradient_bytes_max = UINT64_C(1) << 30,
                                    .dense_bytes_max = 1 << 20,
                                    .pulls_parked_max = 1 << 20,
                                    .message_bytes = 256 << 10,
                                    .queue_messages_max = 64,
                                    .send = receive_reply,
                                    .context = got};
    ps_shard *shard = NULL;
    if (ps_shard_create(&config, &shard) != RT_OK)
        abort();
    return shard;
}

static rt_message make(rt_message_type type, uint32_t worker, uint64_t t, size_t record_size)
{
    rt_message message;
    if (rt_message_create(&message, type, rt_peer(RT_ROLE_WORKER, worker), t, RECORDS,
                          RECORDS * record_size) != RT_OK)
        abort();
    memset(rt_message_payload(&message), 0, RECORDS * record_size);
    return message;
}

static void receive(ps_shard *shard, uint32_t worker, rt_message *message)
{
    rt_error error;
    if (ps_shard_receive(shard, rt_peer(RT_ROLE_WORKER, worker), message, &error) != RT_OK ||
        ps_shard_flush(shard, &error) != RT_OK) {
        fprintf(stderr, "%s\n", error.text);
        exit(EXIT_FAILURE);
    }
}

static rt_message pulls(rt_random *random, uint32_t rows, uint64_t t, bool in_order)
{
    rt_message message = make(RT_MESSAGE_PULL, 0, t, sizeof(rt_wire_pull));
    rt_wire_pull *pull = (rt_wire_pull *)(void *)rt_message_payload(&message);
    for (uint32_t i = 0; i < RECORDS; i++)
        pull[i].key = in_order ? t * RECORDS + i : rt_random_below(random, rows);
    return message;
}

// Rows and gradients alike: a head, then dim floats.
static rt_message pushes(rt_random *random, uint32_t rows, uint64_t t, uint32_t dim)
{
    const size_t size = sizeof(rt_wire_row) + dim * sizeof(float);
    rt_message message = make(RT_MESSAGE_PUSH_ROW, 0, t, size);
    for (uint32_t i = 0; i < RECORDS; i++) {
        const rt_wire_row head = {rt_random_below(random, rows), (uint32_t)t, 0};
        memcpy(rt_message_payload(&message) + i * size, &head, sizeof head);
    }
    return message;
}

static rt_message gradients(uint32_t worker, uint64_t block, uint64_t t, uint32_t base,
                            uint32_t dim)
{
    const size_t size = sizeof(rt_wire_grad) + dim * sizeof(float);
    rt_message message = make(RT_MESSAGE_PUSH_GRAD, worker, t, size);
    for (uint32_t i = 0; i < RECORDS; i++) {
        const rt_wire_grad head = {block * RECORDS + i, 3, base, RT_WIRE_STEP};
        memcpy(rt_message_payload(&message) + i * size, &head, sizeof head);
    }
    return message;
}

static void print(const char *what, uint32_t dim, uint64_t rows, uint64_t ns)
{
    printf("%-28s dim %4u: %6.2f M rows/s  %5.2f GB/s of values\n", what, dim,
           (double)rows / (double)ns * 1e3, (double)rows * dim * 4 / (double)ns);
}

static void fill(ps_shard *shard, uint32_t rows, uint32_t dim)
{
    const uint64_t begin = rt_now_ns();
    for (uint64_t t = 0; t < rows / RECORDS; t++) {
        rt_message message = pulls(NULL, rows, t, true);
        receive(shard, 0, &message);
    }
    print("first touch (create, pull)", dim, rows / RECORDS * RECORDS, rt_now_ns() - begin);
}

// Two workers' gradients, first of keys that have no row, then of the same keys again.
static void bench_gradients(uint32_t dim, uint32_t blocks)
{
    const char *const names[] = {"gradients of 2, new rows", "gradients of 2"};
    sink got = {0, 0};
    ps_shard *shard = create(dim, &got);
    for (uint32_t round = 0; round < 2; round++) {
        uint64_t ns = 0;
        for (uint32_t block = 0; block < blocks; block++) {
            rt_message one[2];
            for (uint32_t worker = 0; worker < 2; worker++)
                one[worker] = gradients(worker, block, round + 1, round, dim);
            const uint64_t begin = rt_now_ns();
            receive(shard, 0, &one[0]);
            receive(shard, 1, &one[1]);
            ns += rt_now_ns() - begin;
        }
        print(names[round], dim, UINT64_C(2) * blocks * RECORDS, ns);
    }
    ps_shard_destroy(shard);
}

static void bench(uint32_t dim, uint32_t rows)
{
    sink got = {0, 0};
    ps_shard *shard = create(dim, &got);
    rt_random random = {1};
    fill(shard, rows, dim);
    uint64_t pull_ns = 0, push_ns = 0;
    for (uint64_t t = 1; t <= WARM_UP + MESSAGES; t++) {
        rt_message pull = pulls(&random, rows, t, false);
        rt_message push = pushes(&random, rows, t, dim);
        const uint64_t begin = rt_now_ns();
        receive(shard, 0, &pull);
        const uint64_t middle = rt_now_ns();
        receive(shard, 0, &push);
        pull_ns += t > WARM_UP ? middle - begin : 0;
        push_ns += t > WARM_UP ? rt_now_ns() - middle : 0;
    }
    ps_shard_destroy(shard);
    print("pull", dim, MESSAGES * RECORDS, pull_ns);
    print("push row", dim, MESSAGES * RECORDS, push_ns);
    bench_gradients(dim, (uint32_t)rt_min_u64(MESSAGES, rows / RECORDS));
}

int main(int argc, char **argv)
{
    const uint32_t rows = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 4000000;
    bench(16, rows);
    bench(512, rows / 32);
    return EXIT_SUCCESS;
}
