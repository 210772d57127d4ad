// What a shard's server makes of its configuration and of what the coordinator says at the start:
// bounds, learning rates, who may be in the run, what files of changes name.
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "ps_lite/ps_model_file.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/files/rt_checkpoint.h"

#include "tests/support/server_case.h"

static void stop(fixture *f)
{
    from_coordinator(f, RT_MESSAGE_STOP, "enough", 6);
    end(f, RT_STOPPED, "enough");
}

static void await(rt_endpoint *endpoint, rt_message_type type, void *to, size_t size)
{
    rt_message message = expect(endpoint, type);
    assert_true(rt_message_header(&message)->payload_bytes >= size);
    if (size)
        memcpy(to, rt_message_payload(&message), size);
    rt_message_release(&message);
}

// ---- who may be in the run -------------------------------------------------------------------

// Numbers of workers and shards that a coordinator names to a shard whose configuration has three
// and one.
static void runs_that_a_shard_takes_part_in(void **state)
{
    (void)state;
    static const struct {
        uint32_t workers, shards;
        rt_on_loss loss;
        uint32_t boxes;
        bool fits;
    } cases[] = {{3, 1, RT_LOSS_STOP, 0, true},    {2, 1, RT_LOSS_STOP, 0, false},
                 {4, 1, RT_LOSS_STOP, 0, false},   {3, 2, RT_LOSS_STOP, 0, false},
                 {2, 1, RT_LOSS_SHRINK, 0, true},  {4, 1, RT_LOSS_SHRINK, 0, false},
                 {2, 2, RT_LOSS_SHRINK, 0, false}, {4, 2, RT_LOSS_STOP, 2, true}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        fixture f;
        char text[128];
        start(&f);
        f.config.worker_count = 3;
        f.config.on_worker_loss = cases[i].loss;
        f.config.box_count = cases[i].boxes;
        f.config.boxes[0] = (rt_box_config){.name = "here", .worker_count = 3, .shard_count = 1};
        launch(&f);
        rt_wire_welcome welcome = welcome_of(&f);
        welcome.worker_count = cases[i].workers;
        welcome.workers = rt_bits_below(cases[i].workers);
        welcome.shard_count = cases[i].shards;
        welcome.shards_in = cases[i].shards == 1 ? 1 : 3;
        strcpy(welcome.shards[1], "tcp://127.0.0.1:1");
        from_coordinator(&f, RT_MESSAGE_WELCOME, &welcome, sizeof welcome);
        if (cases[i].fits) {
            stop(&f);
            continue;
        }
        snprintf(text, sizeof text, "runs %u workers and %u shards, this configuration has 3 and 1",
                 cases[i].workers, cases[i].shards);
        expect_failed(&f, RT_CONFIG, text);
    }
}

// ---- bounds ----------------------------------------------------------------------------------

typedef struct {
    rt_wire_grad head;
    float floats[DIM];
} grad_record;

// A quarter of the memory for gradients that wait, of 104 bytes and their floats each, and another
// one for dense gradients.
static void memory_is_shared_out(void **state)
{
    (void)state;
    enum { MEMORY = 1 << 20, FIT = MEMORY / 4 / (104 + DIM * 4) };
    fixture f;
    grad_record *grads = rt_alloc(FIT + 1, sizeof *grads);
    for (uint32_t i = 0; i <= FIT; i++)
        grads[i] = (grad_record){{i, 3, 0, RT_WIRE_STEP}, {1, 2, 3, 4}};
    for (uint32_t more = 0; more < 2; more++) {
        start(&f);
        f.config.ps_memory_bytes_max = MEMORY;
        launch(&f);
        join_run(&f, HASH);
        send_bytes(f.worker, rt_peer(RT_ROLE_WORKER, 0), rt_peer(RT_ROLE_PS, 0),
                   RT_MESSAGE_PUSH_GRAD, 3, FIT + more, grads, (FIT + more) * sizeof *grads);
        if (more) {
            expect_failed(&f, RT_LIMIT, "at most 2184 fit into 262144 bytes");
            continue;
        }
        await(f.worker, RT_MESSAGE_PUSHED, NULL, 0);
        stop(&f);
    }
    rt_free(grads);
    uint8_t *floats = rt_alloc(MEMORY, 1);
    const rt_wire_dense head = {3};
    memcpy(floats, &head, sizeof head);
    start(&f);
    f.config.ps_memory_bytes_max = MEMORY;
    launch(&f);
    join_run(&f, HASH);
    for (uint32_t i = 0; i < 2; i++) // an eighth each, and the heads are too much
        send_bytes(f.worker, rt_peer(RT_ROLE_WORKER, 0), rt_peer(RT_ROLE_PS, 0),
                   RT_MESSAGE_DENSE_GRAD, 1, i, floats, MEMORY / 8 + sizeof head);
    expect_failed(&f, RT_LIMIT, "with 262144 are allowed");
    rt_free(floats);
}

// ---- learning rates --------------------------------------------------------------------------

// That of the configuration, or the one that was set since, of rows and of dense weights.
static void the_rates_that_were_set(void **state)
{
    (void)state;
    for (uint32_t set = 0; set < 2; set++) {
        const float rate = set ? 0.25f : 0.5f, dense_rate = set ? 0.125f : 2;
        const row_record push = {{5, 2, 0}, {10, 20, 30, 40}};
        const grad_record grad = {{5, 1, 2, RT_WIRE_STEP}, {1, 2, 4, 8}};
        const rt_wire_pull pull = {5, 3, 1};
        struct {
            rt_wire_dense_state head;
            float values[2];
        } weights = {{2, 2}, {100, 200}}, got_weights;
        const struct {
            rt_wire_dense head;
            float values[2];
        } gradient = {{1}, {8, 16}};
        const rt_wire_dense_step step = {.applies = 1, .scale = 1};
        row_record got;
        fixture f;
        start(&f);
        f.config.dispatch.participants = RT_PARTICIPANTS_AUTO;
        f.config.optimizer_dense =
            (rt_optimizer_config){.kind = RT_OPTIMIZER_SGD, .learning_rate = 2};
        launch(&f);
        rt_wire_welcome welcome = welcome_of(&f);
        welcome.row_rate = set ? rate : 0;
        welcome.dense_rate = set ? dense_rate : 0;
        join_run_as(&f, &welcome, HASH);
        from_worker(&f, RT_MESSAGE_PUSH_ROW, &push, sizeof push);
        await(f.worker, RT_MESSAGE_PUSHED, NULL, 0);
        from_worker(&f, RT_MESSAGE_PUSH_GRAD, &grad, sizeof grad);
        await(f.worker, RT_MESSAGE_PUSHED, NULL, 0);
        from_worker(&f, RT_MESSAGE_PULL, &pull, sizeof pull);
        await(f.worker, RT_MESSAGE_ROWS, &got, sizeof got);
        for (uint32_t k = 0; k < DIM; k++)
            assert_true(got.floats[k] == push.floats[k] - rate * grad.floats[k]);
        const uint32_t self = rt_peer(RT_ROLE_WORKER, 0), shard = rt_peer(RT_ROLE_PS, 0);
        send_bytes(f.worker, self, shard, RT_MESSAGE_DENSE_STATE, 0, 0, &weights, sizeof weights);
        send_bytes(f.worker, self, shard, RT_MESSAGE_DENSE_GRAD, 1, 0, &gradient, sizeof gradient);
        await(f.worker, RT_MESSAGE_DENSE_SUM, NULL, 0);
        send_bytes(f.worker, self, shard, RT_MESSAGE_DENSE_STEP, 1, 1, &step, sizeof step);
        send_bytes(f.worker, self, shard, RT_MESSAGE_DENSE_PULL, 1, 0, NULL, 0);
        await(f.worker, RT_MESSAGE_DENSE_STATE, &got_weights, sizeof got_weights);
        for (uint32_t k = 0; k < 2; k++)
            assert_true(got_weights.values[k] ==
                        weights.values[k] - dense_rate * gradient.values[k]);
        stop(&f);
    }
}

// ---- files of changes ------------------------------------------------------------------------

static void make_cut(fixture *f, uint64_t iteration, const rt_wire_cut *cut)
{
    send_bytes(f->coordinator, rt_peer(RT_ROLE_COORDINATOR, 0), rt_peer(RT_ROLE_PS, 0),
               RT_MESSAGE_CUT, iteration, 0, cut, sizeof *cut);
    await(f->coordinator, RT_MESSAGE_CUT, NULL, 0);
    await(f->coordinator, RT_MESSAGE_WRITTEN, NULL, 0);
}

// A row, which then leaves for another shard.
static void come_and_go(fixture *f)
{
    const row_record push = {{5, 2, 0}, {1, 2, 3, 4}};
    const rt_wire_pull gone = {5, 2, 0};
    from_worker(f, RT_MESSAGE_PUSH_ROW, &push, sizeof push);
    await(f->worker, RT_MESSAGE_PUSHED, NULL, 0);
    from_worker(f, RT_MESSAGE_FORGET, &gone, sizeof gone);
    await(f->worker, RT_MESSAGE_PUSHED, NULL, 0);
}

// Where homes are planned and files of changes come again and again, they name what has left.
static void when_files_name_what_left(void **state)
{
    (void)state;
    static const struct {
        uint32_t every_iterations, full_every;
        double every_s, publish_s;
        bool names;
    } cases[] = {{10, 4, 0, 0, true}, {0, 4, 1, 0, true},   {0, 4, 0, 1, true},
                 {0, 4, 0, 0, false}, {10, 1, 0, 0, false}, {10, 2, 0, 0, true},
                 {10, 0, 0, 0, false}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        fixture f;
        char path[1200];
        rt_wire_cut cut = {.base = 0};
        ps_model_info info;
        ps_model_reader *reader;
        start(&f);
        f.config.ps_homes = RT_HOMES_PLANNED;
        f.config.checkpoint.every_iterations = cases[i].every_iterations;
        f.config.checkpoint.every_s = cases[i].every_s;
        f.config.checkpoint.full_every = cases[i].full_every;
        f.config.publish.every_s = cases[i].publish_s;
        launch(&f);
        join_run(&f, HASH);
        come_and_go(&f);
        assert_int_equal(rt_checkpoint_path(test_path("cuts"), 10 + (uint32_t)i, cut.folder,
                                            sizeof cut.folder, NULL),
                         RT_OK);
        make_cut(&f, 10 + i, &cut);
        come_and_go(&f);
        cut.base = 10 + (uint32_t)i;
        make_cut(&f, 20 + i, &cut);
        snprintf(path, sizeof path, "%s/rows-000-of-001.bin", cut.folder);
        assert_int_equal(ps_model_reader_open(path, NULL, NULL, &info, &reader, NULL), RT_OK);
        assert_int_equal(info.left_count, cases[i].names);
        ps_model_reader_close(reader);
        stop(&f);
    }
}

// ---- descriptors: mk/tests.mk links these ------------------------------------------------------

static atomic_bool has_no_eventfd, has_no_epoll;

int __real_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags)
{
    return has_no_eventfd ? -1 : __real_eventfd(count, flags);
}

int __real_epoll_create1(int flags);
int __wrap_epoll_create1(int flags);
int __wrap_epoll_create1(int flags)
{
    return has_no_epoll ? -1 : __real_epoll_create1(flags);
}

static void descriptors_that_there_are_none_of(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        fixture f;
        start(&f);
        launch(&f);
        const rt_wire_welcome welcome = welcome_of(&f);
        has_no_eventfd = i == 0;
        has_no_epoll = i == 1;
        from_coordinator(&f, RT_MESSAGE_WELCOME, &welcome, sizeof welcome);
        expect_failed(&f, RT_LIMIT, "out of descriptors");
        has_no_eventfd = has_no_epoll = false;
    }
}

TEST_MAIN(TEST(runs_that_a_shard_takes_part_in), TEST(memory_is_shared_out),
          TEST(the_rates_that_were_set), TEST(when_files_name_what_left),
          TEST(descriptors_that_there_are_none_of))
