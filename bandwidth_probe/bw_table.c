#include "bandwidth_probe/bw_table.h"

#include <math.h>
#include <string.h>

static size_t host_length(const char *address)
{
    const char *port = strrchr(address, ':');
    if (!port)
        return strlen(address);
    return (size_t)(port - address);
}

void bw_boxes(const char (*addresses)[RT_ADDRESS_MAX], uint32_t shard_count, uint32_t *box_of)
{
    for (uint32_t s = 0; s < shard_count; s++) {
        const size_t length = host_length(addresses[s]);
        box_of[s] = 0;
        while (box_of[s] < s && (host_length(addresses[box_of[s]]) != length ||
                                 memcmp(addresses[box_of[s]], addresses[s], length) != 0))
            box_of[s]++;
    }
}

void bw_table_init(const rt_config *config, bw_table *table)
{
    *table = (bw_table){.worker_count = config->worker_count,
                        .pinned = config->links.pin,
                        .version = 1,
                        .shard_count = config->ps_shard_count};
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

bool bw_table_doubts(const bw_table *table, uint32_t worker)
{
    rt_assert(worker < table->worker_count);
    return table->links[worker][BW_UP].is_estimate || table->links[worker][BW_DOWN].is_estimate;
}

static bool differs_by(double value, double in_force, double share)
{
    return fabs(value - in_force) > share * in_force;
}

static bool differs(double value, double in_force)
{
    return differs_by(value, in_force, BW_CHANGE);
}

static void put_in_force(bw_table *table, bw_known *link, bw_source source, double bytes_per_s)
{
    *link = (bw_known){.bytes_per_s = bytes_per_s, .is_estimate = source == BW_ESTIMATED};
    table->version++;
}

// Inserts a value into an ascending list.
static void insert(double *values, uint32_t count, double value)
{
    uint32_t at = count;
    for (; at > 0 && values[at - 1] > value; at--)
        values[at] = values[at - 1];
    values[at] = value;
}

static bool take_estimate(bw_table *table, bw_known *link, double bytes_per_s)
{
    double slower[BW_LASTS], faster[BW_LASTS];
    uint32_t slower_count = 0, faster_count = 0;
    link->last[link->next].bytes_per_s = bytes_per_s;
    link->last[link->next].round = table->rounds;
    link->next = (link->next + 1) % BW_LASTS;
    link->count = (uint32_t)rt_min_u64(link->count + 1, BW_LASTS);
    for (uint32_t i = 0; i < link->count; i++) {
        const double value = link->last[i].bytes_per_s;
        if (link->last[i].round + BW_FORGET <= table->rounds || !differs(value, link->bytes_per_s))
            continue;
        if (value < link->bytes_per_s)
            insert(slower, slower_count++, value);
        else
            insert(faster, faster_count++, value);
    }
    if (slower_count >= BW_AGREE)
        put_in_force(table, link, BW_ESTIMATED, slower[slower_count / 2]);
    else if (faster_count >= BW_AGREE)
        put_in_force(table, link, BW_ESTIMATED, faster[faster_count / 2]);
    else
        return false;
    return true;
}

bool bw_table_measured(bw_table *table, uint32_t worker, bw_way way, bw_source source,
                       double bytes_per_s)
{
    rt_assert(worker < table->worker_count);
    if (table->pinned || !isfinite(bytes_per_s) || bytes_per_s <= 0)
        return false;
    bw_known *link = &table->links[worker][way];
    if (source == BW_ESTIMATED)
        return take_estimate(table, link, bytes_per_s);
    const double share = link->is_estimate ? BW_PRECISE : BW_CHANGE;
    link->is_estimate = false;
    if (!differs_by(bytes_per_s, link->bytes_per_s, share))
        return false;
    put_in_force(table, link, BW_PROBED, bytes_per_s);
    return true;
}

// What a box lets through is what the quickest worker reads of it, if some worker reads less there
// than its own link has: otherwise only the workers' links showed.
static double box_rate(const bw_table *table, uint32_t box, bw_way way)
{
    double most = 0;
    bool is_limit = false;
    for (uint32_t j = 0; j < table->worker_count; j++) {
        const double here = table->probed[j][box][way];
        double best = 0;
        for (uint32_t s = 0; s < table->shard_count; s++)
            best = fmax(best, table->probed[j][s][way]);
        most = fmax(most, here);
        is_limit |= here > 0 && here < (1 - BW_CHANGE) * best;
    }
    return is_limit ? most : 0;
}

// A rate of 0 is none: nothing is known of that way.
static double slower_way(double up, double down)
{
    if (up > 0 && (down <= 0 || up < down))
        return up;
    return down;
}

static uint64_t update_boxes(bw_table *table)
{
    uint64_t changed = 0;
    for (uint32_t s = 0; s < table->shard_count; s++) {
        const double rate = slower_way(box_rate(table, table->box_of[s], BW_UP),
                                       box_rate(table, table->box_of[s], BW_DOWN));
        if (!differs(rate, table->boxes[s]))
            continue;
        table->boxes[s] = rate;
        table->version++;
        changed |= rt_bit(s);
    }
    return changed;
}

void bw_table_probed(bw_table *table, uint32_t worker, const bw_reading *readings, uint32_t count,
                     bw_changes *changes)
{
    double best[BW_WAYS] = {0};
    *changes = (bw_changes){0};
    rt_assert(worker < table->worker_count);
    for (uint32_t i = 0; i < count; i++) {
        const bw_reading *one = &readings[i];
        rt_assert(one->shard < table->shard_count);
        if (one->rtt_s > 0 && (i == 0 || one->rtt_s < table->rtt_s[worker]))
            table->rtt_s[worker] = one->rtt_s;
        for (bw_way way = 0; way < BW_WAYS; way++) {
            double rate = 0;
            if (isfinite(one->ways[way]))
                rate = fmax(one->ways[way], 0);
            table->probed[worker][one->shard][way] = rate;
            best[way] = fmax(best[way], rate);
        }
    }
    if (table->pinned)
        return;
    for (bw_way way = 0; way < BW_WAYS; way++) {
        if (bw_table_measured(table, worker, way, BW_PROBED, best[way]))
            changes->links[way] |= rt_bit(worker);
    }
    changes->shards = update_boxes(table);
}

static bool is_slow(const bw_table *table, uint32_t worker, bw_way way, double bytes_per_s)
{
    return bytes_per_s < (1 - BW_SHARED) * table->links[worker][way].bytes_per_s;
}

typedef struct {
    double sum;
    bool shared; // what is slow is slow for the sake of the parameter servers
} together;

static together recent_together(const bw_table *table, bw_way way)
{
    together all = {0};
    double quickest_held = 0, quickest_free = 0; // among the slow ones, among the others
    uint32_t slow_count = 0;
    for (uint32_t j = 0; j < table->worker_count; j++) {
        const double rate = table->recent[j][way].bytes_per_s;
        if (rate <= 0 || table->recent[j][way].round + BW_RECENT <= table->rounds)
            continue;
        const bool slow = is_slow(table, j, way, rate);
        double *quickest = slow ? &quickest_held : &quickest_free;
        *quickest = fmax(*quickest, rate);
        all.sum += rate;
        slow_count += slow;
    }
    all.shared = slow_count > 1 && quickest_free <= BW_WITNESS * quickest_held;
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
        bw_known *ps = &table->ps[way];
        if (all.shared || (ps->bytes_per_s > 0 && all.sum > ps->bytes_per_s))
            changes->ps |= take_estimate(table, ps, all.sum);
        for (uint32_t j = 0; j < table->worker_count; j++) {
            double rate = estimates[j].ways[way];
            const double least = estimates[j].at_least[way];
            if (!(rate > 0) && least > (1 + BW_CHANGE) * bw_table_rate(table, j, way))
                rate = least;
            if ((!all.shared || !is_slow(table, j, way, rate)) &&
                bw_table_measured(table, j, way, BW_ESTIMATED, rate))
                changes->links[way] |= rt_bit(j);
        }
    }
}

double bw_table_ps_rate(const bw_table *table)
{
    return slower_way(table->ps[BW_UP].bytes_per_s, table->ps[BW_DOWN].bytes_per_s);
}

static uint32_t shards_of_box(const bw_table *table, uint32_t shard)
{
    uint32_t count = 0;
    rt_assert(shard < table->shard_count);
    for (uint32_t s = 0; s < table->shard_count; s++)
        count += table->box_of[s] == table->box_of[shard];
    return count;
}

double bw_table_shard_rate(const bw_table *table, uint32_t shard)
{
    return table->boxes[shard] / shards_of_box(table, shard);
}

void bw_table_set_shard_rate(bw_table *table, uint32_t shard, double bytes_per_s)
{
    table->boxes[shard] = bytes_per_s * shards_of_box(table, shard);
}
