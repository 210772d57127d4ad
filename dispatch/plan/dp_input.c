#include "dispatch/plan/dp_input.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/config/rt_config.h"
#include "runtime/config/rt_policies.h"

typedef struct {
    const char *name;
    const char *subject; // NULL: none
    bool is_integer;
    double min, max;
} input_kind;

#define INPUT(XX, PART, NONE, T) \
    XX(T, number)                \
    XX(T, iteration)             \
    XX(T, kind)                  \
    XX(T, worker)                \
    NONE(T, unused) XX(T, value)
RT_FIELDS_SHARED(dp_input_fields, dp_input, INPUT,
                 "number:8 iteration:4 kind:4 worker:4 unused:4 value:8");

static const input_kind kinds[DP_INPUT_KINDS] = {
    [DP_INPUT_LINK_UP] = {"link_up", "worker", false, 1, 1e15},
    [DP_INPUT_LINK_DOWN] = {"link_down", "worker", false, 1, 1e15},
    [DP_INPUT_COMPUTE] = {"compute", "worker", false, 0, 3600},
    [DP_INPUT_ALPHA] = {"alpha", NULL, false, 0, 1},
    [DP_INPUT_SEARCH_EVALUATIONS] = {"search_evaluations", NULL, true, 0, UINT32_MAX},
    [DP_INPUT_TABLES] = {"tables", NULL, true, 0, RT_FIELDS_MAX},
    [DP_INPUT_PS_LINK] = {"ps_link", NULL, false, 0, 1e15},
    [DP_INPUT_SHARD_LINK] = {"shard_link", "shard", false, 0, 1e15},
    [DP_INPUT_PARTICIPATES] = {"participates", "worker", true, 0, 1},
    [DP_INPUT_ROWS_FLOOR] = {"rows_floor", NULL, true, 0, UINT32_MAX},
    [DP_INPUT_FORGET] = {"forget", NULL, true, 1, (double)UINT32_MAX + 1},
    [DP_INPUT_POLICY] = {"policy", NULL, true, 0, RT_POLICY_COUNT},
    [DP_INPUT_LOST] = {"lost", "worker", true, 0, 1},
};

dp_input dp_input_forget(uint64_t key)
{
    return (dp_input){
        .kind = DP_INPUT_FORGET, .worker = (uint32_t)key, .value = (double)(key >> 32) + 1};
}

uint64_t dp_input_key(const dp_input *input)
{
    rt_assert(input->kind == DP_INPUT_FORGET);
    return (uint64_t)(input->value - 1) << 32 | input->worker;
}

const char *dp_input_name(dp_input_kind kind)
{
    return kinds[kind].name;
}

const char *dp_input_subject(dp_input_kind kind)
{
    return kinds[kind].subject;
}

rt_status dp_input_find(const char *name, dp_input_kind *kind_p)
{
    for (uint32_t k = 0; k < DP_INPUT_KINDS; k++) {
        if (strcmp(kinds[k].name, name) == 0) {
            *kind_p = (dp_input_kind)k;
            return RT_OK;
        }
    }
    return RT_CONFIG;
}

rt_status dp_input_check(const dp_input *input, uint32_t worker_count, rt_error *error)
{
    rt_assert(input->kind < DP_INPUT_KINDS);
    const input_kind *kind = &kinds[input->kind];
    const char *number = kind->is_integer ? "an integer" : "a number";
    uint32_t count = kind->subject ? worker_count : 1;
    if (input->kind == DP_INPUT_SHARD_LINK)
        count = RT_SHARDS_MAX;
    if (input->kind != DP_INPUT_FORGET && input->worker >= count)
        return rt_fail(error, RT_CONFIG, "%s: %s %" PRIu32 ", expected one below %" PRIu32,
                       kind->name, kind->subject ? kind->subject : "worker", input->worker, count);
    if (!(input->value >= kind->min && input->value <= kind->max) ||
        (kind->is_integer && input->value != floor(input->value)))
        return rt_fail(error, RT_CONFIG, "%s: %g, expected %s in [%g, %g]", kind->name,
                       input->value, number, kind->min, kind->max);
    return RT_OK;
}
