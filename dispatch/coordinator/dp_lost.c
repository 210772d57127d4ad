#include "dispatch/coordinator/dp_lost.h"

bool dp_lost_sent(dp_lost *lost, uint64_t sequence, uint32_t iteration, uint64_t participants,
                  uint64_t needed)
{
    for (uint64_t rest = needed; rest; rest &= rest - 1)
        lost->needed[rt_lowest_bit(rest)] = sequence;
    for (uint64_t rest = iteration ? participants : 0; rest; rest &= rest - 1)
        lost->trained[rt_lowest_bit(rest)] = iteration;
    return !(lost->gone & (needed | (iteration ? participants : 0)));
}

void dp_lost_reported(dp_lost *lost, uint32_t worker, uint64_t sequence, bool idle)
{
    if (idle)
        lost->settled[worker] = sequence;
}

void dp_lost_completed(dp_lost *lost, uint32_t iteration)
{
    lost->complete = iteration;
}

bool dp_lost_is_spare(const dp_lost *lost, uint32_t worker)
{
    const uint32_t trained = lost->trained[worker];
    return lost->settled[worker] >= lost->needed[worker] && (!trained || lost->complete > trained);
}
