#include "dispatch/coordinator/dp_ages.h"

#define STEPS 16u
#define MS UINT64_C(1000000)

void dp_ages_init(dp_ages *ages, double expire_s)
{
    *ages = (dp_ages){.limit_ns = (uint64_t)(expire_s * 1e9)};
    ages->step_ns = ages->limit_ns / STEPS;
}

static void note(dp_ages *ages, uint32_t iteration, uint64_t now_ns)
{
    const uint32_t last = (ages->first + ages->count - 1) % DP_AGES_NOTES;
    if (ages->count == DP_AGES_NOTES ||
        (ages->count && now_ns - ages->notes[last].ns < ages->step_ns))
        return;
    const uint32_t at = (ages->first + ages->count++) % DP_AGES_NOTES;
    ages->notes[at].ns = now_ns;
    ages->notes[at].iteration = iteration;
}

bool dp_ages_iterated(dp_ages *ages, uint32_t iteration, uint64_t now_ns, dp_input *input)
{
    bool is_old = false;
    if (!ages->limit_ns)
        return false;
    while (ages->count && now_ns - ages->notes[ages->first].ns >= ages->limit_ns) {
        *input = (dp_input){.kind = DP_INPUT_ROWS_FLOOR,
                            .value = (double)ages->notes[ages->first].iteration + 1};
        ages->first = (ages->first + 1) % DP_AGES_NOTES;
        ages->count--;
        is_old = true;
    }
    note(ages, iteration, now_ns);
    return is_old;
}

void dp_ages_keep(const dp_ages *ages, uint64_t now_ns, dp_ages_kept *kept)
{
    *kept = (dp_ages_kept){.count = ages->count};
    for (uint32_t i = 0; i < ages->count; i++) {
        const uint32_t at = (ages->first + i) % DP_AGES_NOTES;
        kept->notes[i].iteration = ages->notes[at].iteration;
        kept->notes[i].age_ms = (now_ns - ages->notes[at].ns) / MS;
    }
}

// A note may be from before the clock began: only differences are looked at.
void dp_ages_go_on(dp_ages *ages, const dp_ages_kept *kept, uint64_t now_ns)
{
    for (uint32_t i = 0; ages->limit_ns && i < kept->count; i++)
        note(ages, kept->notes[i].iteration, now_ns - kept->notes[i].age_ms * MS);
}
