#include "dispatch/planner/dp_participants.h"

#include <math.h>
#include <string.h>

#include "dispatch/cost/dp_ticks.h"
#include "dispatch/planner/dp_account.h"

#define CHANGE 0.1 // of a rate, that asks for another choice

struct dp_participants {
    dp_planner_config config;                  // with the values in force
    rt_batch batches[DP_PARTICIPANTS_BATCHES]; // a ring
    uint32_t count, next;
    uint64_t seen;   // batches
    uint64_t chosen; // of them, at the last choice; 0: none yet
    bool is_changed; // a rate, since then
};

rt_status dp_participants_create(const dp_planner_config *config, dp_participants **chooser_p)
{
    dp_participants *self = rt_alloc(1, sizeof *self);
    if (!self)
        return RT_NO_MEMORY;
    self->config = *config;
    self->config.lookahead = 0; // what is ahead is not in the ring
    self->config.measure_error = false;
    self->config.keys_expected = 0;
    for (uint32_t i = 0; i < DP_PARTICIPANTS_BATCHES; i++)
        rt_batch_init(&self->batches[i], 0);
    *chooser_p = self;
    return RT_OK;
}

void dp_participants_destroy(dp_participants *self)
{
    if (!self)
        return;
    for (uint32_t i = 0; i < DP_PARTICIPANTS_BATCHES; i++)
        rt_batch_fini(&self->batches[i]);
    rt_free(self);
}

// Keys only: a planner looks at nothing else.
rt_status dp_participants_see(dp_participants *self, const rt_batch *batch)
{
    rt_batch *copy = &self->batches[self->next];
    rt_batch_clear(copy);
    if (rt_batch_reserve(copy, batch->sample_count, batch->key_count))
        return RT_NO_MEMORY;
    copy->sample_count = batch->sample_count;
    copy->key_count = batch->key_count;
    memcpy(copy->key_offsets, batch->key_offsets,
           (batch->sample_count + 1u) * sizeof *batch->key_offsets);
    memcpy(copy->keys, batch->keys, batch->key_count * sizeof *batch->keys);
    self->next = (self->next + 1) % DP_PARTICIPANTS_BATCHES;
    self->count += self->count < DP_PARTICIPANTS_BATCHES;
    self->seen++;
    return RT_OK;
}

void dp_participants_apply(dp_participants *self, const dp_input *input)
{
    double *rate = dp_rates_at(&self->config.rates, (dp_input_kind)input->kind, input->worker);
    if (!rate)
        return;
    self->is_changed |= fabs(input->value - *rate) > CHANGE * *rate;
    *rate = input->value;
}

bool dp_participants_due(const dp_participants *self)
{
    if (self->chosen == 0)
        return self->seen >= DP_PARTICIPANTS_FIRST;
    return self->seen >= 3 * self->chosen ||
           (self->is_changed && self->seen >= self->chosen + DP_PARTICIPANTS_GAP);
}

// ---- sets ------------------------------------------------------------------------------------

// Workers in the order of what an even share of the batch costs them: dense exchange, computing,
// and rows both ways.
typedef struct {
    double seconds;
    uint32_t rank;
} share;

double dp_participants_dense_s(const dp_planner_config *config, uint32_t rank)
{
    const dp_link *link = &config->rates.links[rank];
    return (double)config->dense_bytes / fmin(link->up_bytes_per_s, link->down_bytes_per_s);
}

static void order_workers(const dp_planner_config *config, share *shares)
{
    const double samples = (double)config->sample_count_max / config->worker_count;
    const double bytes =
        samples * config->keys_per_sample_max * dp_row_bytes(&config->layout, 0, true);
    for (uint32_t j = 0; j < config->worker_count; j++) {
        const dp_link *link = &config->rates.links[j];
        const share one = {dp_participants_dense_s(config, j) + samples * config->rates.compute_s_per_sample[j] +
                               bytes / link->up_bytes_per_s + bytes / link->down_bytes_per_s,
                           j};
        uint32_t at = j;
        for (; at > 0 && shares[at - 1].seconds > one.seconds; at--)
            shares[at] = shares[at - 1];
        shares[at] = one;
    }
}

void dp_participants_order(const dp_planner_config *config, uint32_t *ranks)
{
    share shares[RT_WORKERS_MAX];
    order_workers(config, shares);
    for (uint32_t k = 0; k < config->worker_count; k++)
        ranks[k] = shares[k].rank;
}

// The configuration of a planner that has these workers and no others.
static void config_of(const dp_planner_config *all, uint64_t workers, dp_planner_config *config)
{
    *config = *all;
    config->worker_count = 0;
    config->participants = 0;
    config->participants_min = 0;
    for (uint64_t rest = workers; rest; rest &= rest - 1) {
        const uint32_t rank = rt_lowest_bit(rest), j = config->worker_count++;
        config->rates.links[j] = all->rates.links[rank];
        config->slot_count[j] = all->slot_count[rank];
        config->rates.compute_s_per_sample[j] = all->rates.compute_s_per_sample[rank];
    }
}

// ---- a trial ---------------------------------------------------------------------------------

static rt_status plan_all(const dp_participants *self, dp_planner *planner,
                          const dp_account_config *costs, double *seconds_p)
{
    const uint32_t oldest = self->next + DP_PARTICIPANTS_BATCHES - self->count;
    dp_account account = {0};
    for (uint32_t i = 0; i < self->count; i++) {
        const dp_plan *plan;
        rt_status status =
            dp_planner_look_up(planner, &self->batches[(oldest + i) % DP_PARTICIPANTS_BATCHES]);
        if (status)
            return status;
        dp_planner_place(planner);
        status = dp_planner_commit(planner, &plan);
        if (status)
            return status;
        if (i >= self->count / 2 && plan)
            dp_account_add(costs, plan, &account);
    }
    *seconds_p = account.predicted_s / (double)account.iterations;
    return RT_OK;
}

// RT_CONFIG: a cache of the set is too small.
static rt_status try_set(const dp_participants *self, uint64_t workers, double *seconds_p)
{
    dp_planner_config config;
    dp_account_config costs;
    dp_planner *planner;
    config_of(&self->config, workers, &config);
    rt_status status = dp_planner_check(&config, NULL);
    if (!status)
        status = dp_planner_create(&config, &planner, NULL);
    if (status)
        return status;
    dp_account_init(&config, &costs);
    status = plan_all(self, planner, &costs, seconds_p);
    dp_planner_destroy(planner);
    return status;
}

// ---- the choice ------------------------------------------------------------------------------

typedef struct {
    dp_candidate items[RT_WORKERS_MAX];
    uint32_t count;
    dp_candidate best, current;
} trials;

static rt_status add_trial(const dp_participants *self, uint64_t workers, uint64_t current,
                           trials *t)
{
    double seconds;
    rt_status status = try_set(self, workers, &seconds);
    if (status == RT_CONFIG)
        return RT_OK;
    if (status)
        return status;
    const dp_candidate one = {workers, seconds};
    t->items[t->count++] = one;
    if (t->best.workers == 0 || seconds < t->best.predicted_s)
        t->best = one;
    if (workers == current)
        t->current = one;
    return RT_OK;
}

rt_status dp_participants_choose(dp_participants *self, uint64_t current, uint64_t *workers_p,
                                 dp_candidate *candidates, uint32_t *count_p)
{
    share shares[RT_WORKERS_MAX];
    trials t = {0};
    uint64_t workers = 0;
    rt_status status = RT_OK;
    order_workers(&self->config, shares);
    for (uint32_t k = 0; k < self->config.worker_count && !status; k++) {
        workers |= rt_bit(shares[k].rank);
        if (t.best.workers && dp_participants_dense_s(&self->config, shares[k].rank) > t.best.predicted_s)
            break;
        status = add_trial(self, workers, current, &t);
    }
    if (!status && t.current.workers == 0) // a set that somebody named, or that rates have left
        status = add_trial(self, current, current, &t);
    if (status)
        return status;
    self->chosen = self->seen;
    self->is_changed = false;
    if (count_p) {
        memcpy(candidates, t.items, t.count * sizeof *t.items);
        *count_p = t.count;
    }
    const bool better = t.current.workers == 0 ||
                        t.best.predicted_s < (1 - DP_PARTICIPANTS_GAIN) * t.current.predicted_s;
    *workers_p = t.best.workers && better ? t.best.workers : current;
    return RT_OK;
}
