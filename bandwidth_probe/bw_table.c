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

bool bw_table_measured(bw_table *table, uint32_t worker, bw_way way, bw_source source,
                       double bytes_per_s)
{
    rt_assert(worker < table->worker_count);
    bw_known *link = &table->links[worker][way];
    if (table->pinned || !isfinite(bytes_per_s) || bytes_per_s <= 0)
        return false;
    if (source == BW_PROBED || link->smooth <= 0)
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
