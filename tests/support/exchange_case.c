#include "tests/support/exchange_case.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "edge_worker/device/ew_cuda.h"
#include "runtime/rt_cuda.h"
#include "tests/support/devices.h"
#include "tests/support/test.h"

// ---- messages --------------------------------------------------------------------------------

static void put(exchange_queue *q, rt_message *message)
{
    assert_true(q->end - q->begin < EXCHANGE_MESSAGES_MAX);
    q->messages[q->end++ % EXCHANGE_MESSAGES_MAX] = *message;
    *message = (rt_message){0};
}

static rt_status send_up(void *context, uint32_t shard, rt_message *message)
{
    exchange_worker *w = context;
    assert_true(shard < w->of->shard_count);
    rt_message_header(message)->epoch = shard; // which only this case looks at
    if (w->of->up_max && w->up.end - w->up.begin >= w->of->up_max)
        return RT_AGAIN;
    put(&w->up, message);
    return RT_OK;
}

static rt_message copy_of(const rt_message *message)
{
    rt_message copy;
    const rt_wire_header *header = rt_message_header(message);
    assert_int_equal(rt_message_create(&copy, (rt_message_type)header->type, header->sender,
                                       header->iteration, header->count, header->payload_bytes),
                     RT_OK);
    memcpy(rt_message_payload(&copy), rt_message_payload(message), header->payload_bytes);
    return copy;
}

// The shard takes one message of a worker. False: there is none.
static bool serve(exchange_group *g, exchange_worker *w)
{
    rt_error error = {0};
    ps_dense_answer answer;
    if (w->up.begin == w->up.end)
        return false;
    rt_message message = w->up.messages[w->up.begin++ % EXCHANGE_MESSAGES_MAX];
    const uint32_t shard = rt_message_header(&message)->epoch;
    assert_true(ps_dense_takes(rt_message_header(&message)->type));
    g->bytes[shard] += rt_message_header(&message)->payload_bytes;
    if (rt_message_validate(&message, rt_peer(RT_ROLE_WORKER, w->rank), &error) ||
        ps_dense_receive(g->dense[shard], w->rank, &message, &answer, &error))
        fail_msg("%s", error.text);
    rt_message_release(&message);
    for (uint64_t rest = answer.message.data ? answer.workers : 0; rest; rest &= rest - 1) {
        rt_message copy = copy_of(&answer.message);
        rt_message_header(&copy)->sender = rt_peer(RT_ROLE_PS, shard);
        put(&g->workers[rt_lowest_bit(rest)].down, &copy);
    }
    rt_message_release(&answer.message);
    return true;
}

static bool receive(exchange_worker *w, rt_status *status_p, rt_error *error)
{
    if (w->down.begin == w->down.end)
        return false;
    rt_message message = w->down.messages[w->down.begin++ % EXCHANGE_MESSAGES_MAX];
    assert_true(ew_exchange_takes(rt_message_header(&message)->type));
    *status_p = ew_exchange_receive(w->exchange, &message, error);
    rt_message_release(&message);
    return true;
}

// ---- a group ---------------------------------------------------------------------------------

// Every worker with a GPU of its own: what stands in for CUDA has only one.
static const ew_collective_ops *real_nccl(void)
{
    const rt_cuda_plugin *plugin;
    rt_error error = {0};
    if (rt_cuda_open(test_plugin_path(), &plugin, &error))
        fail_msg("%s", error.text);
    const ew_collective_ops *ops = plugin->table("ew_nccl");
    assert_non_null(ops);
    return ops;
}

static rt_status identify(void *device_state, uint8_t *device, uint32_t *version, uint8_t *id,
                          rt_error *error)
{
    static uint8_t next;
    rt_status status = real_nccl()->identify(device_state, device, version, id, error);
    device[0] = ++next;
    return status;
}

static rt_status identify_older(void *device_state, uint8_t *device, uint32_t *version, uint8_t *id,
                                rt_error *error)
{
    rt_status status = identify(device_state, device, version, id, error);
    *version -= id ? 0 : 1; // all but worker 0's
    return status;
}

const ew_collective_ops *exchange_nccl_of_versions(void)
{
    static ew_collective_ops ops;
    ops = *real_nccl();
    ops.identify = identify_older;
    return &ops;
}

const ew_collective_ops *exchange_nccl(bool distinct)
{
    static ew_collective_ops ops;
    ops = *real_nccl();
    if (distinct)
        ops.identify = identify;
    return &ops;
}

rt_status exchange_worker_open(exchange_group *g, uint32_t rank, ew_exchange_config config,
                               rt_error *error)
{
    exchange_worker *w = &g->workers[rank];
    w->of = g;
    w->rank = rank;
    w->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    assert_true(w->wake_fd >= 0);
    w->host = rt_alloc(g->count, sizeof *w->host);
    assert_non_null(w->host);
    w->values = w->host;
    if (config.nccl) {
        if (!g->device.ops && ew_cuda_open(test_plugin_path(), &(ew_device_wish){.name = "cuda:0"},
                                           &g->device, error))
            fail_msg("%s", error->text);
        w->values = g->device.ops->alloc(g->device.state, g->count);
        config.device_state = g->device.state;
    }
    config.rank = rank;
    config.worker_count = g->n;
    config.shard_count = g->shard_count;
    config.count = g->count;
    config.gradients = w->host;
    config.device_gradients = w->values;
    config.wake_fd = w->wake_fd;
    config.send = send_up;
    config.send_context = w;
    return ew_exchange_create(&config, &w->exchange, error);
}

// A turn of everybody, in any order. False: nobody had anything to do.
bool exchange_turn(exchange_group *g, rt_status *status_p, rt_error *error)
{
    bool busy = false;
    const uint32_t first = rt_random_below(&g->random, g->n);
    for (uint32_t i = 0; i < g->n && !*status_p; i++) {
        exchange_worker *w = &g->workers[(first + i) % g->n];
        if (!w->exchange)
            continue;
        *status_p = ew_exchange_advance(w->exchange, error);
        if (rt_random_below(&g->random, 3))
            busy |= serve(g, w);
        if (!*status_p && rt_random_below(&g->random, 3))
            busy |= receive(w, status_p, error);
        busy |= w->up.begin != w->up.end || w->down.begin != w->down.end;
    }
    return busy;
}

// Sleeps until an exchange has news; a case has a time limit.
void exchange_await_news(exchange_group *g)
{
    struct pollfd fds[EXCHANGE_WORKERS_MAX];
    uint64_t count;
    for (uint32_t i = 0; i < g->n; i++)
        fds[i] = (struct pollfd){.fd = g->workers[i].wake_fd, .events = POLLIN};
    (void)poll(fds, g->n, 100);
    for (uint32_t i = 0; i < g->n; i++)
        if (read(g->workers[i].wake_fd, &count, sizeof count) < 0) {
            // it had none
        }
}

static rt_status await_ready(exchange_group *g, rt_error *error)
{
    for (;;) {
        uint32_t ready = 0;
        rt_status status = RT_OK;
        bool busy = exchange_turn(g, &status, error);
        for (uint32_t i = 0; i < g->n && !status; i++) {
            ew_exchange *x = g->workers[i].exchange;
            rt_status one = x ? ew_exchange_ready(x, error) : RT_OK;
            ready += one == RT_OK;
            status = one == RT_AGAIN ? RT_OK : one;
        }
        if (status || ready == g->n)
            return status;
        if (!busy)
            exchange_await_news(g);
    }
}

rt_status exchange_join_all(exchange_group *g, rt_error *error)
{
    for (uint32_t i = 0; i < g->n; i++) {
        rt_status status =
            g->workers[i].exchange ? ew_exchange_join(g->workers[i].exchange, error) : RT_OK;
        if (status)
            return status;
    }
    return await_ready(g, error);
}

exchange_group *exchange_group_open(rt_collective kind, uint32_t n, uint32_t count,
                                    ew_exchange_config config)
{
    rt_error error = {0};
    exchange_group *g = rt_alloc(1, sizeof *g);
    assert_non_null(g);
    *g = (exchange_group){.n = n,
                          .count = count,
                          .kind = kind,
                          .shard_count = config.shard_count ? config.shard_count : 1,
                          .random = {rt_mix(n * 1000003 + count)}};
    const ps_dense_config dense = {.worker_count = n, .bytes_max = UINT64_C(1) << 30};
    for (uint32_t s = 0; s < g->shard_count; s++)
        assert_int_equal(ps_dense_create(&dense, &g->dense[s]), RT_OK);
    config.collective = kind;
    if (config.timeout_s == 0)
        config.timeout_s = 50;
    if (kind == RT_COLLECTIVE_NCCL)
        config.nccl = exchange_nccl(true);
    for (uint32_t i = 0; i < n; i++)
        if (exchange_worker_open(g, i, config, &error))
            fail_msg("worker %u: %s", i, error.text);
    return g;
}

void exchange_worker_end(exchange_worker *w, bool is_complete)
{
    ew_exchange_destroy(w->exchange, is_complete);
    w->exchange = NULL;
    if (w->values != w->host)
        w->of->device.ops->free(w->of->device.state, w->values);
    w->values = w->host;
}

void exchange_group_close(exchange_group *g, bool is_complete)
{
    for (uint32_t i = 0; i < g->n; i++) {
        exchange_worker *w = &g->workers[i];
        exchange_worker_end(w, is_complete);
        rt_free(w->host);
        close(w->wake_fd);
        while (w->up.begin != w->up.end)
            rt_message_release(&w->up.messages[w->up.begin++ % EXCHANGE_MESSAGES_MAX]);
        while (w->down.begin != w->down.end)
            rt_message_release(&w->down.messages[w->down.begin++ % EXCHANGE_MESSAGES_MAX]);
    }
    ew_device_close(&g->device);
    for (uint32_t s = 0; s < g->shard_count; s++)
        ps_dense_destroy(g->dense[s]);
    rt_free(g);
}

// ---- an iteration ----------------------------------------------------------------------------

float exchange_gradient(uint32_t rank, uint64_t t, uint32_t i)
{
    uint64_t bits = rt_mix((t * 64 + rank) * UINT64_C(0x100000001) + i);
    return ((float)(bits & 0xfffff) - 524288) * 0x1p-10f;
}

static void copy_values(exchange_worker *w, ew_copy kind, uint32_t first, uint32_t count)
{
    rt_error error = {0};
    const ew_device *device = &w->of->device;
    if (!device->ops || w->values == w->host)
        return;
    count -= first + count == w->of->count; // the last float stays on the host
    float *to = w->values + first, *host = w->host + first;
    device->ops->copy(device->state, kind, kind == EW_COPY_IN ? to : host,
                      kind == EW_COPY_IN ? host : to, count * sizeof(float));
    if (device->ops->finish(device->state, &error))
        fail_msg("%s", error.text);
}

// The backward pass: gradients become final in pieces, while sums come back.
void exchange_compute(exchange_worker *w, uint64_t t)
{
    exchange_group *g = w->of;
    rt_status status = RT_OK;
    rt_error error = {0};
    for (uint32_t end = g->count; end > 0;) {
        uint32_t piece = 1 + rt_random_below(&g->random, g->count), first = 0;
        first = piece >= end ? 0 : end - piece;
        for (uint32_t i = first; i < end; i++)
            w->host[i] = exchange_gradient(w->rank, t, i);
        copy_values(w, EW_COPY_IN, first, end - first);
        ew_exchange_final(w->exchange, first);
        end = first;
        (void)exchange_turn(g, &status, &error);
        if (status)
            fail_msg("%s", error.text);
    }
    ew_exchange_trained(w->exchange);
}

bool exchange_take_all(exchange_group *g, rt_status *status_p, rt_error *error)
{
    bool done = true;
    for (uint32_t i = 0; i < g->n && !*status_p; i++) {
        exchange_worker *w = &g->workers[i];
        if (w->done || !w->exchange)
            continue;
        rt_status status = ew_exchange_take(w->exchange, error);
        w->done = !status;
        done &= w->done;
        if (status != RT_AGAIN)
            *status_p = status;
    }
    return done;
}

// Until all have the sum, or one says that there will be none.
rt_status exchange_await_sums(exchange_group *g, rt_error *error)
{
    rt_status status = RT_OK;
    while (!status && !exchange_take_all(g, &status, error) && !status)
        if (!exchange_turn(g, &status, error) && !status)
            exchange_await_news(g);
    return status;
}

void exchange_iterate(exchange_group *g, uint64_t t, uint32_t chunk_floats)
{
    rt_error error = {0};
    for (uint32_t i = 0; i < g->n; i++) {
        g->workers[i].done = false;
        assert_false(ew_exchange_busy(g->workers[i].exchange));
        ew_exchange_begin(g->workers[i].exchange, t, chunk_floats, rt_bits_below(g->n));
    }
    for (uint32_t i = 0; i < g->n; i++)
        exchange_compute(&g->workers[i], t);
    if (exchange_await_sums(g, &error))
        fail_msg("%s", error.text);
    for (uint32_t i = 0; i < g->n; i++) {
        float last;
        copy_values(&g->workers[i], EW_COPY_OUT, 0, g->count);
        assert_true(ew_exchange_last(g->workers[i].exchange, &last));
        assert_true(last == g->workers[i].host[g->count - 1]);
    }
}

// Bit for bit where sums are in worker order, which the one that stands in for NCCL keeps too.
void exchange_check_sums(const exchange_group *g, uint64_t t)
{
    for (uint32_t i = 0; i < g->count; i++) {
        float sum = exchange_gradient(0, t, i);
        for (uint32_t rank = 1; rank < g->n; rank++)
            sum += exchange_gradient(rank, t, i);
        for (uint32_t rank = 0; rank < g->n; rank++)
            if (memcmp(&g->workers[rank].host[i], &sum, sizeof sum) != 0)
                fail_msg("worker %u of %u, iteration %" PRIu64
                         ", float %u of %u: %.9g, expected %.9g",
                         rank, g->n, t, i, g->count, g->workers[rank].host[i], sum);
    }
}
