#include "dispatch/planner/dp_participants.h"

#include <math.h>
#include <string.h>

#include "dispatch/cost/dp_ticks.h"
#include "dispatch/planner/dp_account.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"

// Of a rate, that ask for another choice: at once, or when the batches are other ones. Measured
// times swing by more than the little, and a choice takes as long as planning some hundred batches.
#define CHANGE_LITTLE 0.1
#define CHANGE_MUCH 0.4

struct dp_participants {
    dp_planner_config config;                  // with the values in force
    rt_batch batches[DP_PARTICIPANTS_BATCHES]; // a ring
    bool has_gaps; // in the batches
    uint32_t count, next;
    uint64_t seen;   // batches
    uint64_t chosen; // of them, at the last choice; 0: none yet
    uint32_t change; // of a rate, since then: 0 none, 1 a little, 2 much
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
    self->has_gaps = config->rows.admit > 1;
    self->config.rows.admit = 0; // what it sees was admitted
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

// A state that does not fit begins anew: it says what to judge by, not what is true.
rt_status dp_participants_open(const dp_planner_config *config, const rt_bytes *lineup,
                               const dp_rates *rates, dp_participants **chooser_p, rt_error *error)
{
    rt_error why = {0};
    const rt_participants kind = config->dispatch.participants;
    *chooser_p = NULL;
    if (kind != RT_PARTICIPANTS_AUTO && kind != RT_PARTICIPANTS_ROTATE)
        return RT_OK;
    if (dp_participants_create(config, chooser_p))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the choice of participants");
    if (!lineup || !lineup->size)
        return RT_OK;
    rt_reader reader = rt_bytes_reader(lineup);
    rt_status status = dp_participants_load(*chooser_p, rates, &reader, &why);
    if (status == RT_NO_MEMORY)
        return rt_fail(error, status, "%s", why.text);
    if (status)
        rt_warn("%s: it is chosen anew", why.text);
    return RT_OK;
}

static bool rotates(const dp_participants *self)
{
    return self->config.dispatch.participants == RT_PARTICIPANTS_ROTATE;
}

// Any set that is large enough, by the seed.
static uint64_t turned(const dp_participants *self)
{
    const dp_planner_config *config = &self->config;
    const uint32_t n = config->worker_count,
                   least = (uint32_t)rt_max_u64(config->participants_min, 1);
    uint64_t workers = rt_mix(rt_mix(config->seed) + self->seen) & rt_bits_below(n);
    for (uint64_t j = self->seen; rt_bit_count(workers) < least; j++)
        workers |= rt_bit((uint32_t)(j % n));
    return workers;
}

// Keys only: a planner looks at nothing else.
rt_status dp_participants_see(dp_participants *self, const rt_batch *batch)
{
    if (rotates(self)) {
        self->seen++;
        return RT_OK;
    }
    rt_batch *copy = &self->batches[self->next];
    rt_batch_clear(copy);
    if (rt_batch_reserve(copy, batch->sample_count, batch->key_count))
        return RT_NO_MEMORY;
    copy->sample_count = batch->sample_count;
    copy->key_count = batch->key_count;
    copy->has_gaps = self->has_gaps;
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
    if (input->kind == DP_INPUT_POLICY) {
        self->config.dispatch.policy = (rt_policy_kind)input->value;
        self->change = 2;
    }
    if (!rate)
        return;
    const double change = fabs(input->value - *rate);
    const uint32_t now = change > CHANGE_MUCH * *rate ? 2 : change > CHANGE_LITTLE * *rate;
    self->change = now > self->change ? now : self->change;
    *rate = input->value;
}

bool dp_participants_due(const dp_participants *self)
{
    if (self->chosen == 0)
        return self->seen >= DP_PARTICIPANTS_FIRST;
    const uint64_t since = self->seen - self->chosen;
    return self->seen >= 3 * self->chosen || (self->change == 2 && since >= DP_PARTICIPANTS_GAP) ||
           (self->change == 1 && since >= DP_PARTICIPANTS_BATCHES);
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
    self->change = 0;
    if (count_p) {
        memcpy(candidates, t.items, t.count * sizeof *t.items);
        *count_p = t.count;
    }
    const bool better = t.current.workers == 0 ||
                        t.best.predicted_s < (1 - DP_PARTICIPANTS_GAIN) * t.current.predicted_s;
    *workers_p = t.best.workers && better ? t.best.workers : current;
    return RT_OK;
}

rt_status dp_participants_records(dp_participants *self, uint64_t current, dp_input *records,
                                  uint32_t *count_p)
{
    uint64_t workers = current;
    rt_status status = RT_OK;
    *count_p = 0;
    if (rotates(self))
        workers = self->seen && self->seen % DP_PARTICIPANTS_TURN == 0 ? turned(self) : current;
    else if (dp_participants_due(self))
        status = dp_participants_choose(self, current, &workers, NULL, NULL);
    for (uint64_t rest = current ^ workers; rest && !status; rest &= rest - 1) {
        const uint32_t worker = rt_lowest_bit(rest);
        records[(*count_p)++] = (dp_input){.kind = DP_INPUT_PARTICIPATES,
                                           .worker = worker,
                                           .value = (double)(workers >> worker & 1)};
    }
    return status;
}

// ---- state -----------------------------------------------------------------------------------

void dp_participants_save(const dp_participants *self, rt_bytes *bytes)
{
    const uint32_t oldest = self->next + DP_PARTICIPANTS_BATCHES - self->count;
    rt_bytes_put_u64(bytes, self->seen);
    rt_bytes_put_u64(bytes, self->chosen);
    rt_bytes_put_u64(bytes, self->change);
    rt_bytes_put_u64(bytes, self->count);
    for (uint32_t i = 0; i < self->count; i++) {
        const rt_batch *batch = &self->batches[(oldest + i) % DP_PARTICIPANTS_BATCHES];
        rt_bytes_put_u64(bytes, batch->sample_count);
        rt_bytes_put_u64(bytes, batch->key_count);
        rt_bytes_put(bytes, batch->key_offsets,
                     (batch->sample_count + 1u) * sizeof *batch->key_offsets);
        rt_bytes_put(bytes, batch->keys, batch->key_count * sizeof *batch->keys);
    }
}

static bool are_offsets(const rt_batch *batch, uint32_t keys_per_sample_max)
{
    if (batch->key_offsets[0] != 0 || batch->key_offsets[batch->sample_count] != batch->key_count)
        return false;
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const uint32_t from = batch->key_offsets[i], end = batch->key_offsets[i + 1];
        if (end < from || end - from > keys_per_sample_max)
            return false;
    }
    return true;
}

static rt_status load_batch(dp_participants *self, rt_reader *reader)
{
    rt_batch *batch = &self->batches[self->next];
    const uint64_t samples = rt_reader_u64(reader), keys = rt_reader_u64(reader);
    const uint32_t most = self->config.keys_per_sample_max;
    rt_batch_clear(batch);
    if (reader->failed || samples < 1 || samples > self->config.sample_count_max ||
        keys > samples * most)
        return RT_DATA;
    if (rt_batch_reserve(batch, (uint32_t)samples, (uint32_t)keys))
        return RT_NO_MEMORY;
    batch->sample_count = (uint32_t)samples;
    batch->key_count = (uint32_t)keys;
    if (!rt_reader_get(reader, batch->key_offsets, samples + 1, sizeof *batch->key_offsets) ||
        !rt_reader_get(reader, batch->keys, keys, sizeof *batch->keys) || !are_offsets(batch, most))
        return RT_DATA;
    for (uint32_t i = 0; i < batch->key_count; i++) {
        if (rt_key_field(batch->keys[i]) >= self->config.layout.field_count)
            return RT_DATA;
    }
    self->next = (self->next + 1) % DP_PARTICIPANTS_BATCHES;
    self->count++;
    return RT_OK;
}

rt_status dp_participants_load(dp_participants *self, const dp_rates *rates, rt_reader *reader,
                               rt_error *error)
{
    rt_status status = RT_OK;
    const uint64_t seen = rt_reader_u64(reader), chosen = rt_reader_u64(reader);
    const uint64_t change = rt_reader_u64(reader), count = rt_reader_u64(reader);
    rt_assert(self->seen == 0);
    if (reader->failed || chosen > seen || change > 2 ||
        count != (rotates(self) ? 0 : rt_min_u64(seen, DP_PARTICIPANTS_BATCHES)))
        status = RT_DATA;
    for (uint64_t i = 0; i < count && !status; i++)
        status = load_batch(self, reader);
    if (status) {
        self->count = self->next = 0;
        return rt_fail(error, status, "who takes part: %s",
                       status == RT_DATA ? "the state cannot be one of this run"
                                         : rt_status_text(status));
    }
    self->seen = seen;
    self->chosen = chosen;
    self->change = (uint32_t)change;
    self->config.rates = *rates;
    return RT_OK;
}
