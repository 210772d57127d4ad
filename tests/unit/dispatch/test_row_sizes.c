// model.embedding_dim as a list: reading and writing it, what becomes of it, costs and bytes by
// hand.
#include "tests/support/test.h"

#include <string.h>

#include "dispatch/planner/dp_account.h"
#include "dispatch/planner/dp_setup.h"
#include "tests/support/config_case.h"

static void must_refuse(const char *assignment, const char *text)
{
    rt_config config = config_fresh();
    rt_error error = {0};
    assert_int_equal(rt_config_set(&config, assignment, &error), RT_CONFIG);
    assert_string_equal(error.text, text);
    assert_int_equal(config.model.embedding_dim, 16);
    assert_int_equal(config.model.embedding_dim_count, 0);
    rt_config_fini(&config);
}

static void reading(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    config_must_set(&config, "model.embedding_dim=[4, 32, 8]");
    assert_int_equal(config.model.embedding_dim, 32);
    assert_int_equal(config.model.embedding_dim_count, 3);
    assert_true(config.model.embedding_dims[0] == 4 && config.model.embedding_dims[1] == 32 &&
                config.model.embedding_dims[2] == 8);
    char *json = config_json(&config);
    assert_non_null(strstr(json, "\"embedding_dim\""));
    rt_config again = config_fresh();
    rt_error error = {0};
    assert_int_equal(rt_config_load(&again, config_write_file("dims.json", json), &error), RT_OK);
    assert_memory_equal(&again.model, &config.model, sizeof again.model);
    config_must_set(&config, "model.embedding_dim=24"); // one for all again
    assert_int_equal(config.model.embedding_dim, 24);
    assert_int_equal(config.model.embedding_dim_count, 0);
    assert_int_equal(config.model.embedding_dims[1], 0);
    rt_free(json);
    rt_config_fini(&again);
    rt_config_fini(&config);
}

#define EXPECTED "expected an integer in [1, 4096], or a list of at most 256 of them"

static void refusing(void **state)
{
    (void)state;
    must_refuse("model.embedding_dim=0",
                "model.embedding_dim: 0 is out of range, expected an integer in [1, 4096]");
    must_refuse("model.embedding_dim=[4, 5000]",
                "model.embedding_dim[1]: 5000 is out of range, expected an integer in [1, 4096]");
    must_refuse("model.embedding_dim=[]", "model.embedding_dim: is empty, " EXPECTED);
    must_refuse("model.embedding_dim=true", "model.embedding_dim: true is not a number, " EXPECTED);
    must_refuse("model.embedding_dim={\"C1\": 4}",
                "model.embedding_dim: an object is not a number, " EXPECTED);
}

static void training_needs_one_length(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    rt_error error = {0};
    config_must_set(&config, "model.embedding_dim=[8, 8, 8]");
    assert_int_equal(rt_config_check_training(&config, &error), RT_OK);
    config_must_set(&config, "model.embedding_dim=[8, 8, 4]");
    assert_int_equal(rt_config_check_training(&config, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "model.embedding_dim: 4 floats for field 2, 8 for field 0"));
    config_must_set(&config, "model.embedding_dim=8");
    assert_int_equal(rt_config_check_training(&config, &error), RT_OK);
    rt_config_fini(&config);
}

static void layout(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    rt_schema schema = {.field_count = 3, .keys_per_sample_max = 3};
    dp_planner_config planner;
    rt_error error = {0};
    config_must_set(&config, "cache.rows=10000");
    config_must_set(&config, "model.embedding_dim=[4, 32, 8]");
    config_must_set(&config, "optimizer.rows.name=adagrad");
    config_must_set(&config, "network.dense_wire=bf16");
    assert_int_equal(dp_setup(&config, &schema, 0, &planner, &error), RT_OK);
    assert_int_equal(planner.dense_wire, RT_CODING_BF16);
    assert_int_equal(planner.layout.field_count, 3);
    for (uint32_t f = 0; f < 3; f++) { // one accumulator per value
        assert_int_equal(planner.layout.values[f], ((uint32_t[]){4, 32, 8})[f]);
        assert_int_equal(planner.layout.state[f], planner.layout.values[f]);
    }
    schema.field_count = 4;
    assert_int_equal(dp_setup(&config, &schema, 0, &planner, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "a list of 3, but the input has 4 fields"));
    rt_config_fini(&config);
}

static void add(dp_ops *ops, dp_op_kind kind, uint32_t field, uint8_t flags)
{
    dp_op *op = dp_ops_add(ops, kind);
    assert_non_null(op);
    op->key = rt_key(field, 1);
    op->flags = flags;
}

// Rows of 16 + 4 x (4 + 4) = 48 and 16 + 4 x (32 + 32) = 272 bytes with state, 32 and 144 without;
// gradients of 24 + 16 = 40 and 24 + 128 = 152; requests of 16 bytes.
static void by_hand(void **state)
{
    (void)state;
    dp_plan plan;
    dp_account account = {0};
    dp_account_config config = {.layout = {2, {4, 32}, {4, 32}, RT_CODING_FP32},
                                .worker_count = 1,
                                .rates.links = {{1000, 500}}};
    assert_int_equal(dp_plan_init(&plan, 1), RT_OK);
    dp_plan_clear(&plan);
    dp_slice *slice = &plan.slices[0];
    add(&slice->release, DP_OP_PUSH_ROW, 0, DP_OP_STATE);
    add(&slice->release, DP_OP_PUSH_ROW, 1, DP_OP_STATE);
    add(&slice->fill, DP_OP_PULL, 0, 0);
    add(&slice->fill, DP_OP_PULL, 1, DP_OP_STATE);
    add(&slice->fill, DP_OP_PULL, 1, 0);
    add(&slice->after, DP_OP_PUSH_GRAD, 0, 0);
    add(&slice->after, DP_OP_PUSH_GRAD, 1, 0);
    uint64_t up = 48 + 272 + 40 + 152, down = 32 + 272 + 144, requests = 3 * 16;
    dp_account_add(&config, &plan, &account);
    assert_int_equal(account.traffic[0].up, up + requests);
    assert_int_equal(account.traffic[0].down, down);
    test_close(account.cost_s[0], (double)up / 1000 + (double)down / 500, 1e-12, 0, "cost");
    test_close(dp_account_unit_s(&config), 0.144, 1e-12, 0, "the largest row, fastest link");
    dp_ticks ticks;
    dp_ticks_compute(&config.layout, config.rates.links, 1, 2, &ticks);
    test_close(ticks.push[1][0] * ticks.tick_s, 0.272, 1e-5, 0, "push");
    test_close(ticks.pull[0][0] * ticks.tick_s, 0.096, 1e-5, 0, "pull");
    test_close(ticks.grad[1][0] * ticks.tick_s, 0.152, 1e-5, 0, "gradient");
    dp_plan_fini(&plan);
}

TEST_MAIN(TEST(reading), TEST(refusing), TEST(training_needs_one_length), TEST(layout),
          TEST(by_hand))
