#include "dispatch/planner/dp_choice.h"

#include <math.h>
#include <string.h>

#include "dispatch/cost/dp_ticks.h"
#include "runtime/wire/rt_fields.h"

#define HOPELESS 2.0  // times the least estimate: such a set is not tried
#define DOUBTFUL 1.25 // times the estimate of the set in force: few batches do not prove it better

// ---- sets ------------------------------------------------------------------------------------

// By what an even share of a batch costs: dense exchange, computing, and rows both ways.
static double share_s(const dp_planner_config *config, uint32_t rank)
{
    const double samples = (double)config->sample_count_max / config->worker_count;
    const double bytes =
        samples * config->keys_per_sample_max * dp_row_bytes(&config->layout, 0, true);
    const dp_link *link = &config->rates.links[rank];
    return dp_estimate_dense_s(config, rank) + samples * config->rates.compute_s_per_sample[rank] +
           bytes / link->up_bytes_per_s + bytes / link->down_bytes_per_s;
}

void dp_choice_order(const dp_planner_config *config, uint32_t *ranks)
{
    double seconds[RT_WORKERS_MAX];
    for (uint32_t j = 0; j < config->worker_count; j++) {
        const double one = config->lost >> j & 1 ? INFINITY : share_s(config, j);
        uint32_t at = j;
        for (; at > 0 && seconds[at - 1] > one; at--) {
            seconds[at] = seconds[at - 1];
            ranks[at] = ranks[at - 1];
        }
        seconds[at] = one;
        ranks[at] = j;
    }
}

static uint64_t prefix(const uint32_t *ranks, uint32_t count)
{
    uint64_t workers = 0;
    for (uint32_t k = 0; k < count; k++)
        workers |= rt_bit(ranks[k]);
    return workers;
}

static void estimate_all(const dp_planner_config *config, const dp_demand *demand, double moved,
                         const uint32_t *ranks, double *estimates)
{
    for (uint32_t k = 0; k < config->worker_count; k++) {
        const uint64_t workers = prefix(ranks, k + 1);
        const bool fits = !(workers & config->lost) && k + 1 >= config->participants_min &&
                          dp_trial_fits(config, workers);
        estimates[k] = fits ? dp_estimate_s(config, demand, moved, workers) : INFINITY;
    }
}

// How many workers the prefix to take has.
static uint32_t likeliest_of(const double *estimates, uint32_t count)
{
    double least = INFINITY;
    for (uint32_t k = 0; k < count; k++)
        least = fmin(least, estimates[k]);
    if (estimates[0] <= least && isfinite(least))
        return 1; // alone, a box shares no row
    uint32_t k = count;
    while (k > 1 && !(estimates[k - 1] <= (1 + DP_CHOICE_GAIN) * least))
        k--;
    return k;
}

uint64_t dp_choice_estimate(const dp_planner_config *config, const dp_demand *demand, double moved,
                            double *estimates)
{
    uint32_t ranks[RT_WORKERS_MAX];
    dp_choice_order(config, ranks);
    estimate_all(config, demand, moved, ranks, estimates);
    return prefix(ranks, likeliest_of(estimates, config->worker_count));
}

// ---- which is next ---------------------------------------------------------------------------

static const dp_candidate *find_tried(const dp_choice *c, uint64_t workers)
{
    for (uint32_t i = 0; i < c->tried_count; i++) {
        if (c->tried[i].workers == workers)
            return &c->tried[i];
    }
    return NULL;
}

const dp_candidate *dp_choice_best(const dp_choice *c)
{
    const dp_candidate *best = NULL;
    for (uint32_t i = 0; i < c->tried_count; i++) {
        if (isfinite(c->tried[i].predicted_s) &&
            (!best || c->tried[i].predicted_s < best->predicted_s))
            best = &c->tried[i];
    }
    return best;
}

static double best_s(const dp_choice *c)
{
    const dp_candidate *best = dp_choice_best(c);
    if (!best)
        return INFINITY;
    return best->predicted_s;
}

static bool is_worth(const dp_choice *c, uint32_t count)
{
    if (count < 1 || count > c->config.worker_count || !isfinite(c->estimates[count - 1]) ||
        c->estimates[count - 1] > HOPELESS * c->estimates[c->likeliest - 1])
        return false;
    for (uint32_t k = 0; k < count && count > 1; k++) { // who trains alone exchanges nothing
        if (dp_estimate_dense_s(&c->config, c->ranks[k]) > best_s(c))
            return false;
    }
    return !find_tried(c, prefix(c->ranks, count));
}

// The size of the best prefix, or that of the likeliest where the best is none.
static uint32_t best_prefix(const dp_choice *c)
{
    const dp_candidate *best = dp_choice_best(c);
    for (uint32_t k = 1; best && k <= c->config.worker_count; k++) {
        if (prefix(c->ranks, k) == best->workers)
            return k;
    }
    return c->likeliest;
}

// 0: nothing is left to try.
static uint64_t next_set(const dp_choice *c)
{
    const uint32_t n = c->config.worker_count;
    if (!find_tried(c, c->current))
        return c->current;
    if (is_worth(c, c->likeliest))
        return prefix(c->ranks, c->likeliest);
    for (uint32_t k = 1; k < 2 * n; k *= 2) {
        const uint32_t count = (uint32_t)rt_min_u64(k, n);
        if (is_worth(c, count))
            return prefix(c->ranks, count);
    }
    const uint32_t best = best_prefix(c);
    if (is_worth(c, best + 1))
        return prefix(c->ranks, best + 1);
    if (is_worth(c, best - 1))
        return prefix(c->ranks, best - 1);
    return 0;
}

// ---- units -----------------------------------------------------------------------------------

// RT_NO_MEMORY.
static rt_status prepare(dp_choice *c, const dp_planner_config *config, const dp_recent *recent)
{
    c->config = *config;
    if (dp_demand_measure(dp_recent_at(recent, 0), &config->layout, &c->demand))
        return RT_NO_MEMORY;
    dp_choice_order(&c->config, c->ranks);
    estimate_all(&c->config, &c->demand, c->moved, c->ranks, c->estimates);
    c->likeliest = likeliest_of(c->estimates, c->config.worker_count);
    c->runs = true;
    return RT_OK;
}

rt_status dp_choice_begin(dp_choice *c, const dp_planner_config *config, const dp_recent *recent,
                          double moved, uint64_t current)
{
    rt_assert(!c->runs && recent->count >= 2);
    c->current = current;
    c->moved = moved;
    c->batch_count = recent->count;
    c->tried_count = 0;
    c->workers = 0;
    c->done = c->batch = 0;
    return prepare(c, config, recent);
}

void dp_choice_end(dp_choice *c)
{
    dp_trial_destroy(c->trial);
    c->trial = NULL;
    dp_demand_fini(&c->demand);
    c->runs = false;
}

static uint32_t counted(const dp_choice *c)
{
    return c->batch_count - c->batch_count / 2;
}

static rt_status plan_part(dp_choice *c, const dp_recent *recent)
{
    bool is_planned;
    rt_status status = dp_trial_step(c->trial, dp_recent_at(recent, c->batch),
                                     c->batch >= c->batch_count / 2, &is_planned);
    c->done++;
    c->batch += is_planned;
    return status;
}

// How much of the rows of a batch moved in the trial.
static double moved_in(const dp_choice *c)
{
    const double expected = dp_estimate_row_bytes(&c->config, &c->demand, c->workers);
    if (!(expected > 0))
        return 0;
    return dp_trial_row_bytes(c->trial) / counted(c) / expected;
}

static void note(dp_choice *c, double predicted_s, double moved)
{
    rt_assert(c->tried_count <= c->config.worker_count);
    c->tried[c->tried_count++] = (dp_candidate){c->workers, predicted_s, moved};
    dp_trial_destroy(c->trial);
    c->trial = NULL;
    c->workers = 0;
    c->done = c->batch = 0;
}

// The set that is tried next has a trial; those that do not fit are passed over. No trial: there is
// nothing left.
static rt_status open_trial(dp_choice *c)
{
    while (!c->trial && (c->workers = next_set(c)) != 0) {
        const double part = (double)c->batch_count / DP_RECENT_MAX;
        rt_status status = dp_trial_create(&c->config, c->workers, part, &c->trial);
        if (status == RT_CONFIG)
            note(c, INFINITY, 0);
        else if (status)
            return status;
    }
    return RT_OK;
}

static rt_status do_part(dp_choice *c, const dp_recent *recent)
{
    rt_status status;
    if (c->trial)
        status = plan_part(c, recent);
    else
        status = open_trial(c);
    if (status)
        return status;
    if (c->trial) {
        const double seconds = dp_trial_seconds(c->trial) / counted(c);
        if (c->batch == c->batch_count)
            note(c, seconds, moved_in(c));
        else if (seconds > best_s(c))
            note(c, seconds, 0);
    }
    if (!c->trial && next_set(c) == 0)
        dp_choice_end(c);
    return RT_OK;
}

static double next_work(const dp_choice *c, const dp_recent *recent)
{
    if (!c->trial)
        return (double)DP_TRIAL_CREATION_WORK;
    return (double)dp_trial_work(c->trial, dp_recent_at(recent, c->batch));
}

static double unit_work(const dp_choice *c, uint32_t key_count)
{
    const bool searches = dp_policy_can(c->config.dispatch.policy, DP_POLICY_TIME);
    const double share = searches ? DP_CHOICE_SEARCH_SHARE : DP_CHOICE_SHARE;
    return share * (double)dp_trial_decision_work(&c->config, key_count);
}

rt_status dp_choice_step(dp_choice *c, const dp_recent *recent, uint32_t key_count)
{
    const double most = unit_work(c, key_count);
    double work = next_work(c, recent);
    rt_status status;
    do {
        status = do_part(c, recent);
    } while (!status && c->runs && (work += next_work(c, recent)) <= most);
    return status;
}

// Trials begin with empty caches. Until these are full a box alone looks better than it is, and
// several worse, who have to bring together first what belongs together.
static bool is_doubtful(const dp_choice *c, uint64_t workers)
{
    double estimate = 0, current = INFINITY; // of prefixes; of others none are there
    for (uint32_t k = 1; k <= c->config.worker_count; k++) {
        if (prefix(c->ranks, k) == workers)
            estimate = c->estimates[k - 1];
        if (prefix(c->ranks, k) == c->current)
            current = c->estimates[k - 1];
    }
    return c->batch_count < DP_RECENT_MAX && estimate > DOUBTFUL * current;
}

uint64_t dp_choice_result(const dp_choice *c)
{
    const dp_candidate *best = dp_choice_best(c), *current = find_tried(c, c->current);
    if (!best)
        return c->current;
    const bool better = best->predicted_s < (1 - DP_CHOICE_GAIN) * current->predicted_s;
    if (better && !is_doubtful(c, best->workers))
        return best->workers;
    return c->current;
}

// ---- state -----------------------------------------------------------------------------------

typedef void rate_visit(void *context, double *rate, dp_input_kind kind, uint32_t index);

// How many rates there are of a kind.
static uint32_t rate_count(dp_input_kind kind, uint32_t worker_count)
{
    if (kind == DP_INPUT_LINK_UP || kind == DP_INPUT_LINK_DOWN || kind == DP_INPUT_COMPUTE)
        return worker_count;
    return kind == DP_INPUT_SHARD_LINK ? RT_SHARDS_MAX : 1;
}

// Rates by the records that change them, so that what is read back is what a record may say.
static void each_rate(dp_rates *rates, uint32_t worker_count, rate_visit *visit, void *context)
{
    for (uint32_t kind = 0; kind < DP_INPUT_KINDS; kind++) {
        for (uint32_t i = 0; i < rate_count((dp_input_kind)kind, worker_count); i++) {
            double *rate = dp_rates_at(rates, (dp_input_kind)kind, i);
            if (rate)
                visit(context, rate, (dp_input_kind)kind, i);
        }
    }
}

static void put_rate(void *context, double *rate, dp_input_kind kind, uint32_t index)
{
    (void)kind;
    (void)index;
    rt_bytes_put_double(context, *rate);
}

#define CANDIDATE(XX, PART, NONE, T) \
    XX(T, workers)                   \
    XX(T, predicted_s)               \
    XX(T, moved)
RT_FIELDS(candidate_fields, dp_candidate, CANDIDATE, "workers:8 predicted_s:8 moved:8");

void dp_choice_save(const dp_choice *c, rt_bytes *bytes)
{
    dp_rates rates = c->config.rates;
    rt_bytes_put_u64(bytes, c->runs);
    if (!c->runs)
        return;
    rt_bytes_put_u64(bytes, c->current);
    rt_bytes_put_double(bytes, c->moved);
    rt_bytes_put_u64(bytes, c->batch_count);
    each_rate(&rates, c->config.worker_count, put_rate, bytes);
    rt_bytes_put_u64(bytes, c->tried_count);
    rt_fields_put(bytes, &candidate_fields, c->tried, c->tried_count);
    rt_bytes_put_u64(bytes, c->workers);
    rt_bytes_put_u64(bytes, c->done);
}

typedef struct {
    rt_reader *reader;
    uint32_t worker_count;
    bool wrong;
} rate_reader;

static void get_rate(void *context, double *rate, dp_input_kind kind, uint32_t index)
{
    rate_reader *in = context;
    const dp_input input = {.kind = kind, .worker = index, .value = rt_reader_double(in->reader)};
    in->wrong |= dp_input_check(&input, in->worker_count, NULL) != RT_OK;
    *rate = input.value;
}

static bool load_tried(dp_choice *c, rt_reader *reader)
{
    const uint64_t all = rt_bits_below(c->config.worker_count), count = rt_reader_u64(reader);
    if (reader->failed || count > c->config.worker_count ||
        !rt_fields_get(reader, &candidate_fields, c->tried, count))
        return false;
    for (uint64_t i = 0; i < count; i++) {
        const dp_candidate *one = &c->tried[i];
        if (!(one->predicted_s > 0) || !(one->moved >= 0) || one->workers == 0 ||
            (one->workers & ~all) != 0)
            return false;
    }
    c->tried_count = (uint32_t)count;
    return true;
}

// What was planned is planned again, unless the bytes are not those of a choice.
static rt_status load_trial(dp_choice *c, const dp_recent *recent, rt_reader *reader)
{
    const uint64_t workers = rt_reader_u64(reader), done = rt_reader_u64(reader);
    if (reader->failed || (workers == 0 && done > 0) || (workers != 0 && workers != next_set(c)))
        return RT_DATA;
    if (workers == 0)
        return RT_OK;
    rt_status status = open_trial(c);
    if (status)
        return status;
    if (c->workers != workers)
        return RT_DATA;
    while (c->done < done && c->batch < c->batch_count) {
        status = plan_part(c, recent);
        if (status)
            return status;
    }
    if (c->done < done || c->batch == c->batch_count)
        return RT_DATA; // it would have been over
    return RT_OK;
}

static rt_status go_on(dp_choice *c, const dp_planner_config *then, const dp_recent *recent,
                       rt_reader *reader)
{
    if (prepare(c, then, recent))
        return RT_NO_MEMORY;
    const rt_status status = load_trial(c, recent, reader);
    if (status)
        return status;
    if (next_set(c) == 0 && !c->trial)
        return RT_DATA; // it would have been done
    return RT_OK;
}

rt_status dp_choice_load(dp_choice *c, const dp_planner_config *config, const dp_recent *recent,
                         rt_reader *reader)
{
    dp_planner_config then = *config;
    rate_reader rates = {reader, config->worker_count, false};
    const uint64_t runs = rt_reader_u64(reader);
    rt_assert(!c->runs);
    if (reader->failed || runs > 1)
        return RT_DATA;
    if (!runs)
        return RT_OK;
    c->current = rt_reader_u64(reader);
    c->moved = rt_reader_double(reader);
    const uint64_t batch_count = rt_reader_u64(reader);
    each_rate(&then.rates, config->worker_count, get_rate, &rates);
    c->config.worker_count = config->worker_count;
    if (reader->failed || rates.wrong || batch_count < 2 || batch_count > recent->count ||
        !(c->moved > 0) || !isfinite(c->moved) || c->current == 0 ||
        (c->current & ~rt_bits_below(config->worker_count)) != 0 || !load_tried(c, reader))
        return RT_DATA;
    c->batch_count = (uint32_t)batch_count;
    const rt_status status = go_on(c, &then, recent, reader);
    if (status)
        dp_choice_end(c);
    return status;
}
