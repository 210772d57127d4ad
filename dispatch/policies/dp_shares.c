#include "dispatch/policies/dp_shares.h"

#include <math.h>

#define HALVINGS 60u // of the interval that the level is in

static double clamp(double value, const dp_share *share)
{
    return fmin(fmax(value, share->min), share->max);
}

static double filled(const dp_share *share, double level)
{
    return clamp((level - share->fixed) / share->per_sample, share);
}

// At this one any worker takes all samples.
static double level_max(const dp_share *shares, uint32_t worker_count, uint32_t sample_count)
{
    double level = 0;
    for (uint32_t j = 0; j < worker_count; j++)
        level = fmax(level, shares[j].fixed + shares[j].per_sample * sample_count);
    return level;
}

static double find_level(const dp_share *shares, uint32_t worker_count, uint32_t sample_count)
{
    double low = 0, high = level_max(shares, worker_count, sample_count);
    for (uint32_t i = 0; i < HALVINGS; i++) {
        const double middle = (low + high) / 2;
        double sum = 0;
        for (uint32_t j = 0; j < worker_count; j++)
            sum += filled(&shares[j], middle);
        if (sum < sample_count)
            low = middle;
        else
            high = middle;
    }
    return high;
}

// The worker to take one sample more, or one less: who is farthest from what it should have.
static uint32_t farthest(const dp_share *shares, uint32_t worker_count, const double *wanted,
                         const uint32_t *sizes, bool more)
{
    uint32_t best = UINT32_MAX;
    double best_gap = 0;
    for (uint32_t j = 0; j < worker_count; j++) {
        double gap = wanted[j] - sizes[j];
        bool can = sizes[j] < shares[j].max;
        if (!more) {
            gap = -gap;
            can = sizes[j] > shares[j].min;
        }
        if (can && (best == UINT32_MAX || gap > best_gap)) {
            best = j;
            best_gap = gap;
        }
    }
    return best;
}

// One sample more, or one less.
static void change(uint32_t *size, uint64_t *sum, bool more)
{
    if (more) {
        ++*size;
        ++*sum;
    } else {
        --*size;
        --*sum;
    }
}

static void make_whole(const dp_share *shares, uint32_t worker_count, uint32_t sample_count,
                       const double *wanted, uint32_t *sizes)
{
    uint64_t sum = 0;
    for (uint32_t j = 0; j < worker_count; j++) {
        sizes[j] = (uint32_t)floor(clamp(wanted[j], &shares[j]));
        sum += sizes[j];
    }
    while (sum != sample_count) {
        const bool more = sum < sample_count;
        const uint32_t j = farthest(shares, worker_count, wanted, sizes, more);
        if (j == UINT32_MAX) // the bounds of all together do not allow it
            break;
        change(&sizes[j], &sum, more);
    }
    for (uint32_t j = 0; sum != sample_count; j = (j + 1) % worker_count) {
        const bool more = sum < sample_count;
        if (!more && sizes[j] == 0)
            continue;
        change(&sizes[j], &sum, more);
    }
}

void dp_shares_level(const dp_share *shares, uint32_t worker_count, uint32_t sample_count,
                     uint32_t *sizes)
{
    double wanted[RT_WORKERS_MAX];
    const double level = find_level(shares, worker_count, sample_count);
    for (uint32_t j = 0; j < worker_count; j++)
        wanted[j] = filled(&shares[j], level);
    make_whole(shares, worker_count, sample_count, wanted, sizes);
}

void dp_shares_approach(const dp_share *shares, uint32_t worker_count, uint32_t sample_count,
                        double part, uint32_t *sizes)
{
    double wanted[RT_WORKERS_MAX], sum = 0;
    const double level = find_level(shares, worker_count, sample_count);
    for (uint32_t j = 0; j < worker_count; j++)
        sum += sizes[j];
    const double scale = sum > 0 ? sample_count / sum : 0;
    for (uint32_t j = 0; j < worker_count; j++)
        wanted[j] = (1 - part) * scale * sizes[j] + part * filled(&shares[j], level);
    make_whole(shares, worker_count, sample_count, wanted, sizes);
}
