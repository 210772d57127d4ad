// What a shard may have in memory, by share, of the machine or of its control group.
#include "ps_lite/ps_memory.h"

#include <string.h>

#include "runtime/rt_memory.h"
#include "tests/support/process_case.h"
#include "tests/support/test.h"

#define MIB (UINT64_C(1) << 20)

static rt_config with_shards(uint32_t shards)
{
    rt_config config = {
        .ps_shard_count = shards, .ps_memory_bytes_max = 1024 * MIB, .ps_storage = RT_STORAGE_DISK};
    return config;
}

static void a_group_bounds_what_is_held(void **state)
{
    (void)state;
    process_in_group("memory.max", "335544320\n");
    assert_int_equal(rt_memory_limit(), 320 * MIB);
    rt_config config = with_shards(1);
    assert_int_equal(ps_memory_held_max(&config, 0), 40 * MIB);
    assert_int_equal(ps_memory_max(&config, 0), (1024 + 3 * 256 + 40) * MIB);
    config.ps_memory_bytes_max = 100 * MIB; // its quarter is less
    assert_int_equal(ps_memory_held_max(&config, 0), 25 * MIB);
    config.ps_storage = RT_STORAGE_MEMORY;
    assert_int_equal(ps_memory_held_max(&config, 0), 0);
    assert_int_equal(ps_memory_max(&config, 0), 175 * MIB);
}

// Those of a box share it.
static void shards_of_a_box(void **state)
{
    (void)state;
    process_in_group("memory.max", "335544320\n");
    rt_config config = with_shards(4); // under `lanyard up`
    assert_int_equal(ps_memory_held_max(&config, 1), 10 * MIB);
    config.network_ps_count = 4;
    strcpy(config.network_ps[0], "10.0.0.1:7401");
    strcpy(config.network_ps[1], "10.0.0.11:7401");
    strcpy(config.network_ps[2], "10.0.0.1:7402");
    strcpy(config.network_ps[3], "10.0.0.1");
    assert_int_equal(ps_memory_held_max(&config, 1), 40 * MIB);
    assert_int_equal(ps_memory_held_max(&config, 2), 320 * MIB / 8 / 3);
}

TEST_MAIN(TEST(a_group_bounds_what_is_held), TEST(shards_of_a_box))
