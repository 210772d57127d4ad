// When there is no memory: every allocation of a shard and of an executor that are made, and of a
// file that is written and read, fails once, and each says that it did.
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge_worker/executor/ew_executor.h"
#include "ps_lite/ps_checkpoint.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/files/rt_file.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define SCHEMA 77u
#define ROWS 5u
#define FAILURES_MAX 1000u

// ---- allocations that fail: mk/tests.mk links these --------------------------------------------

static atomic_uint left; // allocations until one fails; 0: none does

static bool fails(void)
{
    return atomic_load(&left) && atomic_fetch_sub(&left, 1) == 1;
}

// clang-format off
#define WRAPPED(type, name, parameters, arguments) \
    type __real_##name parameters;                 \
    type __wrap_##name parameters;                 \
    type __wrap_##name parameters                  \
    {                                              \
        return fails() ? NULL : __real_##name arguments; \
    }
WRAPPED(void *, malloc, (size_t size), (size))
WRAPPED(void *, calloc, (size_t count, size_t size), (count, size))
WRAPPED(void *, realloc, (void *old, size_t size), (old, size))
WRAPPED(void *, aligned_alloc, (size_t align, size_t size), (align, size))
WRAPPED(void *, XXH3_createState, (void), ())
// clang-format on

// ---- what is tried -----------------------------------------------------------------------------

// How many allocations it makes, each of which has failed once.
static uint32_t fail_each(rt_status (*attempt)(rt_error *error))
{
    for (uint32_t n = 1; n < FAILURES_MAX; n++) {
        rt_error error = {0};
        atomic_store(&left, n);
        const rt_status status = attempt(&error);
        const bool failed = atomic_load(&left) == 0;
        atomic_store(&left, 0);
        if (!failed) {
            assert_int_equal(status, RT_OK);
            return n - 1;
        }
        if (status != RT_NO_MEMORY)
            fail_msg("allocation %" PRIu32 ": status %d, %s", n, status, error.text);
    }
    fail_msg("no end");
    return 0;
}

static rt_status take(void *context, uint32_t peer, rt_message *message)
{
    (void)context;
    (void)peer;
    rt_message_release(message);
    return RT_OK;
}

static rt_status create_shard(ps_shard **shard_p)
{
    static const ps_shard_config config = {
        .shard_count = 1,
        .worker_count = 3,
        .dim = 4,
        .optimizer = {.kind = RT_OPTIMIZER_ADAGRAD, .learning_rate = 0.5f},
        .adds_deltas = true,
        .row_wire = RT_CODING_BF16,
        .memory_bytes_max = 1 << 20,
        .gradient_bytes_max = 1 << 20,
        .dense_bytes_max = 1 << 20,
        .keeps_dense = true,
        .pulls_parked_max = 16,
        .message_bytes = 100,
        .queue_messages_max = 4,
        .send = take};
    return ps_shard_create(&config, shard_p);
}

static rt_status try_shard(rt_error *error)
{
    ps_shard *shard = NULL;
    const rt_status status = create_shard(&shard);
    (void)error;
    assert_true(!status == (shard != NULL));
    ps_shard_destroy(shard);
    return status;
}

static rt_status try_executor(rt_error *error)
{
    ew_executor *executor = NULL;
    ew_codes codes;
    (void)error;
    rt_status status = ew_codes_init(&codes, RT_CODING_INT8, 8, 4, 1, 1);
    if (status)
        return status;
    const ew_executor_config config = {
        .shard_count = 2,
        .slice_count_max = 2,
        .limits = {.worker_count = 3, .slot_count = 8, .hands = true, .sums = true},
        .values = 4,
        .state = 4,
        .codes = &codes};
    status = ew_executor_create(&config, &executor);
    assert_true(!status == (executor != NULL));
    ew_executor_destroy(executor);
    ew_codes_fini(&codes);
    return status;
}

// ---- files -------------------------------------------------------------------------------------

static ps_shard *with_rows(void)
{
    ps_shard *shard;
    rt_error error;
    assert_int_equal(create_shard(&shard), RT_OK);
    for (uint64_t key = 1; key <= ROWS; key++) {
        rt_message message;
        const rt_wire_row head = {key, 3, 0};
        const float floats[8] = {(float)key, 1, 2, 3, 4, 5, 6, 7};
        const uint32_t worker = rt_peer(RT_ROLE_WORKER, 0);
        assert_int_equal(rt_message_create(&message, RT_MESSAGE_PUSH_ROW, worker, 3, 1,
                                           sizeof head + sizeof floats),
                         RT_OK);
        memcpy(rt_message_payload(&message), &head, sizeof head);
        memcpy(rt_message_payload(&message) + sizeof head, floats, sizeof floats);
        assert_int_equal(ps_shard_receive(shard, worker, &message, &error), RT_OK);
    }
    return shard;
}

static ps_shard *full;
static rt_wire_load load;
static char path[RT_FOLDER_MAX + 32];

static rt_status try_save(rt_error *error)
{
    rt_file_place place = {.path = path};
    const rt_sink sink = rt_file_sink(&place);
    const ps_cut all = {.iteration = 3};
    rt_file_sum sum = {0};
    const rt_status status = ps_shard_save(full, &sink, SCHEMA, &all, NULL, NULL, &sum, error);
    load.files[0].bytes = sum.bytes;
    load.files[0].hash = sum.hash;
    return status;
}

// The status that the coordinator would be told.
static rt_status try_load(rt_error *error)
{
    ps_shard *shard = NULL;
    ps_shard_statistics got = {0};
    rt_wire_written loaded = {0};
    rt_message order = {0}, answer = {0};
    rt_status status = create_shard(&shard);
    if (!status)
        status = rt_control_create_struct(&order, RT_MESSAGE_LOAD, rt_peer(RT_ROLE_COORDINATOR, 0),
                                          3, &load, sizeof load, NULL);
    if (!status)
        status = ps_checkpoint_load(shard, &order, SCHEMA, 0, NULL, NULL, &answer, error);
    if (!status) {
        memcpy(&loaded, rt_message_payload(&answer), sizeof loaded);
        status = (rt_status)loaded.status;
        ps_shard_get_statistics(shard, &got);
        assert_true(status || got.rows == ROWS);
    }
    rt_message_release(&order);
    rt_message_release(&answer);
    ps_shard_destroy(shard);
    return status;
}

static void a_shard(void **state)
{
    (void)state;
    assert_in_range(fail_each(try_shard), 20, 200);
}

static void an_executor(void **state)
{
    (void)state;
    assert_in_range(fail_each(try_executor), 13, 40);
}

static void a_file(void **state)
{
    (void)state;
    full = with_rows();
    snprintf(load.folder, sizeof load.folder, "%s", test_directory());
    snprintf(path, sizeof path, "%s/rows-000-of-001.bin", load.folder);
    load.shard_count = 1;
    assert_in_range(fail_each(try_save), 3, 100);
    assert_in_range(fail_each(try_load), 20, 200);
    // A model is known by XXH3: read twice.
    rt_hasher *hasher = rt_hasher_create();
    uint8_t bytes[4096];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    assert_int_equal(fclose(file), 0);
    rt_hasher_add(hasher, bytes, size);
    load.files[0].hash = rt_hasher_sum(hasher);
    load.flags = RT_WIRE_LOAD_MODEL;
    rt_hasher_destroy(hasher);
    assert_in_range(fail_each(try_load), 20, 200);
    ps_shard_destroy(full);
}

TEST_MAIN(TEST(a_shard), TEST(an_executor), TEST(a_file))
