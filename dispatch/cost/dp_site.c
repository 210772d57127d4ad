#include "dispatch/cost/dp_site.h"

double *dp_rates_at(dp_rates *rates, dp_input_kind kind, uint32_t index)
{
    switch (kind) {
    case DP_INPUT_LINK_UP:
        return &rates->links[index].up_bytes_per_s;
    case DP_INPUT_LINK_DOWN:
        return &rates->links[index].down_bytes_per_s;
    case DP_INPUT_COMPUTE:
        return &rates->compute_s_per_sample[index];
    case DP_INPUT_PS_LINK:
        return &rates->ps_bytes_per_s;
    case DP_INPUT_SHARD_LINK:
        return &rates->shards.bytes_per_s[index];
    case DP_INPUT_ALPHA:
    case DP_INPUT_SEARCH_EVALUATIONS:
    case DP_INPUT_TABLES:
    case DP_INPUT_PARTICIPATES:
    case DP_INPUT_ROWS_FLOOR:
    case DP_INPUT_POLICY:
    case DP_INPUT_FORGET:
    case DP_INPUT_KINDS:
        break;
    }
    return NULL;
}
