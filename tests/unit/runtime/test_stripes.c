// A vector spread over shards: against a plain walk over its floats, one by one.
#include "runtime/config/rt_optimizers.h"
#include "runtime/numbers/rt_stripes.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

#define COUNT_MAX 5000u

// Every float has one place at one shard, parts have no holes, and there and back is the same.
static void check(uint32_t count, uint32_t shard_count)
{
    static float vector[COUNT_MAX], part[COUNT_MAX], back[COUNT_MAX];
    const rt_stripes stripes = {count, shard_count};
    uint32_t sizes[RT_SHARDS_MAX] = {0}, total = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t shard = i / RT_STRIPE_FLOATS % shard_count; // the walk
        uint32_t at;
        assert_int_equal(rt_stripes_owner(&stripes, i, &at), shard);
        assert_int_equal(at, sizes[shard]);
        assert_int_equal(rt_stripes_place(&stripes, shard, at), i);
        sizes[shard]++;
        vector[i] = (float)(i * 7 + 1);
    }
    memset(back, 0, sizeof back);
    for (uint32_t s = 0; s < shard_count; s++) {
        assert_int_equal(rt_stripes_part(&stripes, s), sizes[s]);
        total += sizes[s];
        // In two pieces, cut anywhere.
        const uint32_t cut = sizes[s] / 3;
        rt_stripes_gather(&stripes, s, 0, cut, vector, part);
        rt_stripes_gather(&stripes, s, cut, sizes[s] - cut, vector, part + cut);
        for (uint32_t i = 0; i < sizes[s]; i++)
            assert_true(part[i] == vector[rt_stripes_place(&stripes, s, i)]);
        rt_stripes_scatter(&stripes, s, cut, sizes[s] - cut, part + cut, back);
        rt_stripes_scatter(&stripes, s, 0, cut, part, back);
    }
    assert_int_equal(total, count);
    assert_int_equal(rt_stripes_part(&stripes, shard_count), 0);
    assert_memory_equal(back, vector, count * sizeof *vector);
}

static void every_float_has_its_place(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 255, 256, 257, 511, 512, 513, 1024, 3000, COUNT_MAX};
    for (uint32_t shards = 1; shards <= RT_SHARDS_MAX; shards++)
        for (size_t i = 0; i < RT_COUNT_OF(counts); i++)
            check(counts[i], shards);
}

// Shards keep weights only where somebody can sit out; state of the whole block is kept whole then.
static void where_weights_are_kept(void **state)
{
    (void)state;
    rt_config config;
    assert_int_equal(rt_config_init(&config), RT_OK);
    config.ps_shard_count = 4;
    config.optimizer_dense.kind = RT_OPTIMIZER_ROWWISE_ADAGRAD;
    assert_false(rt_stripes_keep(&config));
    assert_int_equal(rt_stripes_shards(&config, config.ps_shard_count), 4);
    config.dispatch.participants = RT_PARTICIPANTS_AUTO;
    assert_true(rt_stripes_keep(&config));
    assert_int_equal(rt_stripes_shards(&config, config.ps_shard_count), 1);
    config.optimizer_dense.kind = RT_OPTIMIZER_ADAM;
    assert_int_equal(rt_stripes_shards(&config, config.ps_shard_count), 4);
    rt_config_fini(&config);
}

// Who sits out needs shards that keep weights, which other collectives do without.
static void collectives_that_take_all_are_refused(void **state)
{
    (void)state;
    static const rt_collective kinds[] = {RT_COLLECTIVE_AUTO, RT_COLLECTIVE_PS, RT_COLLECTIVE_MPI,
                                          RT_COLLECTIVE_NCCL};
    rt_config config;
    assert_int_equal(rt_config_init(&config), RT_OK);
    for (size_t i = 0; i < RT_COUNT_OF(kinds); i++) {
        rt_error error = {0};
        config.collective = kinds[i];
        config.dispatch.participants = RT_PARTICIPANTS_ALL;
        assert_int_equal(rt_config_check_training(&config, &error), RT_OK);
        config.dispatch.participants = RT_PARTICIPANTS_AUTO;
        assert_int_equal(rt_config_check_training(&config, &error), i < 2 ? RT_OK : RT_CONFIG);
        assert_true(i < 2 || strstr(error.text, "network.collective"));
    }
    rt_config_fini(&config);
}

// A list of participants goes by the ranks of those who are left.
static void who_is_left_is_numbered_anew(void **state)
{
    (void)state;
    rt_config config;
    rt_error error = {0};
    assert_int_equal(rt_config_init(&config), RT_OK);
    assert_int_equal(rt_config_set(&config, "workers=4", &error), RT_OK);
    assert_int_equal(rt_config_set(&config, "dispatch.participants=[1,3]", &error), RT_OK);
    rt_config_keep_members(&config, 0xd, UINT64_MAX); // without worker 1
    assert_int_equal(config.worker_count, 3);
    assert_int_equal(config.dispatch.participant_mask, 4); // that was 3
    rt_config_fini(&config);
}

TEST_MAIN(TEST(every_float_has_its_place), TEST(where_weights_are_kept),
          TEST(collectives_that_take_all_are_refused), TEST(who_is_left_is_numbered_anew))
