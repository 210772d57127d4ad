#include "bandwidth_probe/bw_table.h"

#include <math.h>

void bw_table_init(const rt_config *config, bw_table *table)
{
    *table =
        (bw_table){.worker_count = config->worker_count, .pinned = config->links.pin, .version = 1};
    for (uint32_t j = 0; j < config->worker_count; j++) {
        table->links[j][BW_UP].bytes_per_s = config->links.workers[j].gbps_up * 1e9 / 8;
        table->links[j][BW_DOWN].bytes_per_s = config->links.workers[j].gbps_down * 1e9 / 8;
    }
    table->ps[BW_UP].bytes_per_s = table->ps[BW_DOWN].bytes_per_s = config->links.ps_gbps * 1e9 / 8;
}

double bw_table_rate(const bw_table *table, uint32_t worker, bw_way way)
{
    rt_assert(worker < table->worker_count);
    return table->links[worker][way].bytes_per_s;
}

static bool differs(double value, double in_force)
{
    return fabs(value - in_force) > BW_CHANGE * in_force;
}

// What differs from the rate in force starts a series of its own: the rate before has no part in
// it.
static bool take(bw_table *table, bw_known *link, bw_source source, double bytes_per_s)
{
    if (source == BW_PROBED || link->smooth <= 0 ||
        (link->differs == 0 && differs(bytes_per_s, link->bytes_per_s)))
        link->smooth = bytes_per_s;
    else
        link->smooth += BW_SMOOTHING * (bytes_per_s - link->smooth);
    if (!differs(link->smooth, link->bytes_per_s)) {
        link->differs = 0;
        return false;
    }
    link->differs++;
    if (source == BW_ESTIMATED && link->differs < BW_LASTS)
        return false;
    link->bytes_per_s = link->smooth;
    link->differs = 0;
    table->version++;
    return true;
}

bool bw_table_measured(bw_table *table, uint32_t worker, bw_way way, bw_source source,
                       double bytes_per_s)
{
    rt_assert(worker < table->worker_count);
    if (table->pinned || !isfinite(bytes_per_s) || bytes_per_s <= 0)
        return false;
    return take(table, &table->links[worker][way], source, bytes_per_s);
}

static bool is_slow(const bw_table *table, uint32_t worker, bw_way way, double bytes_per_s)
{
    return bytes_per_s < (1 - BW_CHANGE) * table->links[worker][way].bytes_per_s;
}

typedef struct {
    double sum;
    uint32_t slow_count;
} together;

static together recent_together(const bw_table *table, bw_way way)
{
    together all = {0};
    for (uint32_t j = 0; j < table->worker_count; j++) {
        const double rate = table->recent[j][way].bytes_per_s;
        if (rate <= 0 || table->recent[j][way].round + BW_RECENT <= table->rounds)
            continue;
        all.sum += rate;
        all.slow_count += is_slow(table, j, way, rate);
    }
    return all;
}

static void note_recent(bw_table *table, const bw_rates *estimates)
{
    table->rounds++;
    for (uint32_t j = 0; j < table->worker_count; j++) {
        for (bw_way way = 0; way < BW_WAYS; way++) {
            const double rate = estimates[j].ways[way];
            if (!isfinite(rate) || rate <= 0)
                continue;
            table->recent[j][way].bytes_per_s = rate;
            table->recent[j][way].round = table->rounds;
        }
    }
}

void bw_table_estimated(bw_table *table, const bw_rates *estimates, bw_changes *changes)
{
    *changes = (bw_changes){0};
    if (table->pinned)
        return;
    note_recent(table, estimates);
    for (bw_way way = 0; way < BW_WAYS; way++) {
        const together all = recent_together(table, way);
        const bool shared = all.slow_count > 1;
        bw_known *ps = &table->ps[way];
        if (shared || (ps->bytes_per_s > 0 && all.sum > ps->bytes_per_s))
            changes->ps |= take(table, ps, BW_ESTIMATED, all.sum);
        for (uint32_t j = 0; j < table->worker_count; j++) {
            double rate = estimates[j].ways[way];
            const double least = estimates[j].at_least[way];
            if (!(rate > 0) && least > (1 + BW_CHANGE) * bw_table_rate(table, j, way))
                rate = least;
            if ((!shared || !is_slow(table, j, way, rate)) &&
                bw_table_measured(table, j, way, BW_ESTIMATED, rate))
                changes->links[way] |= rt_bit(j);
        }
    }
}

double bw_table_ps_rate(const bw_table *table)
{
    const double up = table->ps[BW_UP].bytes_per_s, down = table->ps[BW_DOWN].bytes_per_s;
    return up > 0 && (down <= 0 || up < down) ? up : down;
}
