#include "dispatch/coordinator/dp_lost.h"

bool dp_lost_sent(dp_lost *lost, const dp_lost_slice *slice)
{
    const uint64_t participants = slice->iteration ? slice->participants : 0;
    const uint64_t needed = slice->needed | participants;
    for (uint64_t rest = needed; rest; rest &= rest - 1)
        lost->needed[rt_lowest_bit(rest)] = slice->sequence;
    for (uint64_t rest = participants; rest; rest &= rest - 1)
        lost->trained[rt_lowest_bit(rest)] = slice->iteration;
    lost->clean = slice->clean;
    return !(lost->gone & needed);
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
    return lost->clean >> worker & 1 && lost->settled[worker] >= lost->needed[worker] &&
           (!trained || lost->complete > trained);
}
