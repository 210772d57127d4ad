#include "tests/support/fabric_case.h"

#include "tests/support/test.h"
#include "runtime/config/rt_models.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/config/rt_policies.h"

#include <math.h>
#include <string.h>

fabric_shape fabric_case_shape(uint64_t seed)
{
    const rt_optimizer_config adagrad = {.kind = RT_OPTIMIZER_ADAGRAD,
                                         .learning_rate = 0.05f,
                                         .epsilon = 1e-2f,
                                         .initial_accumulator = 0.1f};
    return (fabric_shape){
        .seed = seed,
        .worker_count = 4,
        .shard_count = 2,
        .samples_per_worker = 8,
        .iterations = 40,
        .field_count = 4,
        .ids_per_field = 40,
        .bag_max = 1,
        .dense_count = 3,
        .zipf = 1.0,
        .cache = CACHE_MIDDLE,
        .eviction = RT_EVICT_LRU,
        .dispatch = {.policy = RT_POLICY_LAIA, .alpha = 1, .search_evaluations = 300},
        .model = {.kind = RT_MODEL_WDL,
                  .embedding_dim = 8,
                  .deep_input = RT_DEEP_ALL,
                  .mlp_layer_count = 2,
                  .mlp = {12, 6},
                  .init_scale = 0.1,
                  .base_rate_auto = true},
        .rows = adagrad,
        .dense = adagrad};
}

fabric_schedule fabric_case_schedule(rt_random *random, uint32_t i)
{
    return (fabric_schedule){.seed = rt_random_u64(random),
                             .run_ahead = rt_random_below(random, 5),
                             .push_credits = 1 + rt_random_below(random, 4),
                             .message_bytes = i % 2 ? 200 : 1 << 18,
                             .queue_max = rt_random_below(random, 4)};
}

void fabric_case_must_give(const fabric_plan *plan, uint32_t schedules, rt_random *random,
                           const float *rows, uint32_t floats, ew_model *model)
{
    for (uint32_t i = 0; i < schedules; i++) {
        uint32_t count;
        fabric_result result;
        const fabric_schedule schedule = fabric_case_schedule(random, i);
        fabric_run(plan, &schedule, &result);
        assert_int_equal(result.row_floats, floats);
        assert_memory_equal(result.rows, rows, (size_t)plan->key_count * floats * sizeof(float));
        assert_memory_equal(result.dense, ew_model_dense(model, EW_VALUES, &count),
                            result.dense_count * sizeof(float));
        fabric_result_fini(&result);
    }
}

static void round_bf16(float *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        const uint32_t rest = bits & 0xffff;
        bits -= rest;
        if (rest > 0x8000 || (rest == 0x8000 && bits & 0x10000))
            bits += 0x10000;
        memcpy(&values[i], &bits, sizeof bits);
    }
}

static void round_int8(float *values, uint32_t count)
{
    float largest = 0;
    for (uint32_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(values[i]));
    const float scale = largest / 127;
    for (uint32_t i = 0; i < count; i++)
        values[i] = largest > 0 ? scale * (float)(int)nearbyintf(values[i] * (1 / scale)) : 0;
}

void fabric_case_round(rt_coding coding, float *values, uint32_t count)
{
    if (coding == RT_CODING_BF16)
        round_bf16(values, count);
    if (coding == RT_CODING_INT8)
        round_int8(values, count);
}
