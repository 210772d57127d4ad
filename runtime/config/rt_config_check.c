// What keys say of each other; where samples come from and the network have files of their own.
#include <inttypes.h>
#include <string.h>

#include "runtime/config/rt_config_keys.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/config/rt_policies.h"

static rt_status check_links(const rt_config *config, rt_error *error)
{
    uint32_t given = config->links.given_count;
    if (given != 0 && given != config->worker_count)
        return rt_fail(error, RT_CONFIG,
                       "links.workers: %u links, expected one for each of the %u "
                       "workers",
                       given, config->worker_count);
    return RT_OK;
}

static rt_status check_participants(const rt_config *config, rt_error *error)
{
    const uint64_t beyond =
        config->dispatch.participant_mask & ~rt_bits_below(config->worker_count);
    if (beyond)
        return rt_fail(error, RT_CONFIG,
                       "dispatch.participants: rank %u, expected one below workers (%u)",
                       rt_lowest_bit(beyond), config->worker_count);
    return RT_OK;
}

// NULL: none does.
static rt_status check_rows(const rt_config *config, rt_error *error)
{
    const rt_rows_config *rows = &config->rows;
    if (rows->admit > 1 && rows->admit_share < 1)
        return rt_fail(error, RT_CONFIG,
                       "rows.admit_share: %g, but rows.admit is %" PRIu32
                       ": a key gets a row by one of the two; expected 1",
                       rows->admit_share, rows->admit);
    return RT_OK;
}

// A rate that changes would move weights by itself: ftrl's z holds what earlier rates made of them.
static rt_status check_rate(const rt_config *config, rt_error *error)
{
    const rt_optimizer_config *optimizer = &config->optimizer_dense;
    const char *key = NULL;
    if (optimizer->decay != RT_DECAY_NONE)
        key = "decay";
    if (optimizer->warmup_iterations)
        key = "warmup_iterations";
    if (!rt_optimizer_is(optimizer->kind, RT_OWN_RATES) || !key)
        return RT_OK;
    return rt_fail(error, RT_CONFIG,
                   "optimizer.dense.%s: %s has a learning rate of its own for every weight", key,
                   rt_config_choice_name("optimizer.dense.name", (int)optimizer->kind));
}

const char *rt_config_staleness_name(const rt_config *config)
{
    return config->consistency_auto ? "consistency.staleness (of dispatch.policy \"het\")"
                                    : "consistency.staleness";
}

// With bounded staleness changes of several workers are added up, of values and of state. That
// means something where state is a sum; a moving average is none, and ftrl's values follow from its
// state.
static rt_status check_adds_up(const rt_config *config, rt_error *error)
{
    const rt_optimizer_kind kind = config->optimizer_rows.kind;
    char expected[256];
    int used = 0;
    const char *name;
    if (rt_optimizer_is(kind, RT_ADDS_UP))
        return RT_OK;
    for (uint32_t other = 0; other < RT_OPTIMIZER_COUNT; other++) {
        name = rt_config_choice_name("optimizer.rows.name", (int)other);
        if (name && rt_optimizer_is(other, RT_ADDS_UP) && used < (int)sizeof expected)
            used += snprintf(expected + used, sizeof expected - (size_t)used, "%s\"%s\"",
                             used ? ", " : "", name);
    }
    return rt_fail(error, RT_CONFIG,
                   "optimizer.rows.name: %s cannot add up what several workers changed, as "
                   "%s above 0 needs: expected one of %s",
                   rt_config_choice_name("optimizer.rows.name", (int)kind),
                   rt_config_staleness_name(config), expected);
}

// Under its name people expect HET's caches, as those are by which it is compared.
static rt_status check_het(const rt_config *config, rt_error *error)
{
    if (config->dispatch.policy != RT_POLICY_HET)
        return RT_OK;
    if (!config->consistency.bounded)
        return rt_fail(
            error, RT_CONFIG,
            "consistency.staleness: \"off\" not with dispatch.policy \"het\", which trains "
            "on stale copies: expected \"auto\" (%u), \"inf\", or a number of iterations",
            RT_STALENESS_HET);
    if (config->cache.eviction == RT_EVICT_EMARK || config->cache.eviction == RT_EVICT_TTL)
        return rt_fail(error, RT_CONFIG,
                       "cache.eviction: \"%s\" not with dispatch.policy \"het\": expected "
                       "\"auto\" (\"light_lfu\"), \"light_lfu\", \"lfu\" or \"lru\"",
                       rt_config_choice_name("cache.eviction", (int)config->cache.eviction));
    return RT_OK;
}

// Uses to come decide when a row leaves, in synchronous training alone.
static rt_status check_ttl(const rt_config *config, rt_error *error)
{
    if (config->cache.eviction != RT_EVICT_TTL) {
        if (config->dispatch.policy != RT_POLICY_BAGPIPE)
            return RT_OK;
        return rt_fail(error, RT_CONFIG,
                       "cache.eviction: \"%s\" not with dispatch.policy \"bagpipe\": expected "
                       "\"auto\" or \"ttl\"",
                       rt_config_choice_name("cache.eviction", (int)config->cache.eviction));
    }
    const bool by_policy = config->cache.eviction_given == RT_EVICT_AUTO;
    const char *what = by_policy ? "dispatch.policy: \"bagpipe\"" : "cache.eviction: \"ttl\"";
    if (rt_config_lookahead(config) == 0)
        return rt_fail(error, RT_CONFIG,
                       "%s looks ahead to know when a row leaves: expected cache.lookahead above 0",
                       what);
    if (config->consistency.bounded)
        return rt_fail(error, RT_CONFIG,
                       "%s: not with %s: rows leave by their uses, in synchronous training only",
                       what, rt_config_staleness_name(config));
    return RT_OK;
}

// Hot rows stay because nothing else does: every row is summed by the parameter servers, alone.
static rt_status check_fae(const rt_config *config, rt_error *error)
{
    const rt_dispatch_config *dispatch = &config->dispatch;
    const struct {
        const char *key;
        bool given;
    } others[] = {
        {"consistency.staleness", config->consistency.bounded},
        {"dispatch.full_sync", dispatch->full_sync},
        {"dispatch.hand_over", dispatch->hand_over},
        {"dispatch.reduce", dispatch->reduce},
        {"ps.homes \"planned\"", config->ps_homes == RT_HOMES_PLANNED},
    };
    if (dispatch->policy != RT_POLICY_FAE)
        return RT_OK;
    if (config->cache.eviction != RT_EVICT_LRU)
        return rt_fail(error, RT_CONFIG,
                       "cache.eviction: \"%s\" not with dispatch.policy \"fae\", which evicts "
                       "nothing: expected \"auto\" or \"lru\"",
                       rt_config_choice_name("cache.eviction", (int)config->cache.eviction));
    for (size_t i = 0; i < RT_COUNT_OF(others); i++)
        if (others[i].given)
            return rt_fail(error, RT_CONFIG,
                           "%s: not with dispatch.policy \"fae\", whose rows all go by way of the "
                           "parameter servers",
                           others[i].key);
    return RT_OK;
}

static rt_status check_consistency(const rt_config *config, rt_error *error)
{
    const rt_dispatch_config *dispatch = &config->dispatch;
    const bool is_stale = config->consistency.staleness > 0;
    const struct {
        const char *key, *why;
        bool given;
    } others[] = {
        {"dispatch.full_sync", "it is for synchronous training only", dispatch->full_sync},
        {"cache.lookahead", "rows leave a cache after an iteration, not within",
         is_stale && config->cache.lookahead > 0},
        {"dispatch.hand_over", "copies of several workers meet at the parameter server",
         dispatch->hand_over},
        {"dispatch.view", "\"strict\" knows no row that several hold; decisions see the caches",
         is_stale && dispatch->view == RT_VIEW_STRICT},
    };
    if (!config->consistency.bounded)
        return RT_OK;
    for (size_t i = 0; i < RT_COUNT_OF(others); i++)
        if (others[i].given)
            return rt_fail(error, RT_CONFIG, "%s: not with %s: %s", others[i].key,
                           rt_config_staleness_name(config), others[i].why);
    return is_stale ? check_adds_up(config, error) : RT_OK;
}

// A window expects rows to be as synchronous training leaves them, on links of workers, and to be
// those of the batches that were shown.
static rt_status check_window(const rt_config *config, rt_error *error)
{
    const char *lookahead = config->cache.lookahead
                                ? "cache.lookahead above 32"
                                : "dispatch.policy \"bagpipe\" (which looks 199 batches ahead)";
    const struct {
        const char *key, *why;
        bool given;
    } others[] = {
        {rt_config_staleness_name(config), "it knows synchronous training only",
         config->consistency.bounded},
        {"boxes", "it knows links of workers, not of boxes", config->box_count > 0},
        {"rows.admit", "batches are seen before it is known which keys have rows",
         config->rows.admit > 1},
        {lookahead, "every batch that is known would be placed again",
         rt_config_lookahead(config) > 32},
    };
    if (config->dispatch.window <= 1)
        return RT_OK;
    for (size_t i = 0; i < RT_COUNT_OF(others); i++)
        if (others[i].given)
            return rt_fail(error, RT_CONFIG, "dispatch.window: above 1 not with %s: %s",
                           others[i].key, others[i].why);
    return RT_OK;
}

// What travels rounded is a change against what the worker got of the PS, alone.
static rt_status check_row_wire(const rt_config *config, rt_error *error)
{
    if (config->row_wire == RT_CODING_FP32 || !config->dispatch.hand_over)
        return RT_OK;
    return rt_fail(error, RT_CONFIG,
                   "network.row_wire: \"%s\" not with dispatch.hand_over: what a worker has of "
                   "another one is no change of what the PS has",
                   rt_config_choice_name("network.row_wire", (int)config->row_wire));
}

// Rows and gradients go from worker to worker over connections of their own.
static rt_status check_mutual(const rt_config *config, rt_error *error)
{
    const char *key = config->dispatch.hand_over ? "dispatch.hand_over" : "dispatch.reduce";
    if (!rt_dispatch_is_mutual(&config->dispatch))
        return RT_OK;
    if (config->ps_homes == RT_HOMES_PLANNED)
        return rt_fail(error, RT_CONFIG,
                       "%s: not with ps.homes \"planned\": a push stays on the box there, so "
                       "nothing is saved",
                       key);
    if (config->network_transport != RT_NETWORK_ZMQ)
        return rt_fail(error, RT_CONFIG,
                       "%s: not with network.transport \"%s\": workers listen for each other by "
                       "\"zmq\" alone",
                       key,
                       rt_config_choice_name("network.transport", (int)config->network_transport));
    if (config->network_worker_port &&
        config->network_worker_port + config->worker_count - 1 > UINT16_MAX)
        return rt_fail(error, RT_CONFIG,
                       "network.worker_port: %u, and that of worker %u is no port: at most %u",
                       config->network_worker_port, config->worker_count - 1,
                       UINT16_MAX + 1 - config->worker_count);
    return RT_OK;
}

// One worker steps a row with all gradients, and keeps it: in synchronous training, of rows that
// are not pushed anyway.
static rt_status check_reduce(const rt_config *config, rt_error *error)
{
    const struct {
        const char *key;
        bool given;
    } others[] = {
        {"dispatch.full_sync", config->dispatch.full_sync},
        {rt_config_staleness_name(config), config->consistency.bounded},
        {"network.row_wire", config->row_wire != RT_CODING_FP32},
    };
    if (!config->dispatch.reduce)
        return RT_OK;
    for (size_t i = 0; i < RT_COUNT_OF(others); i++)
        if (others[i].given)
            return rt_fail(error, RT_CONFIG, "dispatch.reduce: not with %s", others[i].key);
    return RT_OK;
}

// "auto", "cpu", "cuda", "cuda:0".
static rt_status check_device(const rt_config *config, rt_error *error)
{
    static const char gpu[] = "cuda:";
    char shown[RT_CONFIG_SHOWN_MAX];
    const char *name = config->device, *number = name + sizeof gpu - 1;
    if (strcmp(name, "auto") == 0 || strcmp(name, "cpu") == 0 || strcmp(name, "cuda") == 0 ||
        (strncmp(name, gpu, sizeof gpu - 1) == 0 && *number &&
         number[strspn(number, "0123456789")] == '\0'))
        return RT_OK;
    return rt_fail(error, RT_CONFIG,
                   "device: %s is unknown, expected \"auto\", \"cpu\", \"cuda\", or a GPU by its "
                   "number: \"cuda:0\"",
                   rt_config_show_text(name, shown));
}

static rt_status check_sim(const rt_config *config, rt_error *error)
{
    if (config->sim_iterations == 0 || config->sim_warmup < config->sim_iterations)
        return RT_OK;
    return rt_fail(error, RT_CONFIG,
                   "sim.warmup: %u iterations leave none of the %" PRIu64 " of sim.iterations",
                   config->sim_warmup, config->sim_iterations);
}

// What stream.patience needs beyond the stream (rt_config_check_stream).
static rt_status check_judged(const rt_config *config, rt_error *error)
{
    if (config->stream.patience == 0)
        return RT_OK;
    if (config->publish.every_s > 0)
        return rt_fail(error, RT_CONFIG,
                       "stream.patience: saves the best model, but servers of publish.every_s take "
                       "the newest: leave one of them out");
    if (!config->checkpoint.copies)
        return rt_fail(error, RT_CONFIG,
                       "stream.patience: needs checkpoint.copies 1, as the coordinator judges the "
                       "rows of all shards");
    return RT_OK;
}

rt_status rt_config_check_model(const rt_config *config, rt_error *error)
{
    // In the order in which somebody who is wrong in several ways is told.
    static rt_status (*const checks[])(const rt_config *config, rt_error *error) = {
        rt_config_check_boxes,
        check_links,
        check_participants,
        check_rows,
        check_device,
        check_het,
        check_fae,
        check_ttl,
        check_consistency,
        check_window,
        check_row_wire,
        check_mutual,
        check_reduce,
        check_rate,
        rt_config_check_stream,
        rt_config_check_network,
        check_judged,
        check_sim,
    };
    for (size_t i = 0; i < RT_COUNT_OF(checks); i++) {
        const rt_status status = checks[i](config, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status rt_config_check(const rt_config *config, rt_error *error)
{
    const rt_status status = rt_config_check_source(config, error);
    if (status)
        return status;
    return rt_config_check_model(config, error);
}

rt_status rt_config_check_training(const rt_config *config, rt_error *error)
{
    const rt_model_config *model = &config->model;
    if (config->dispatch.participants != RT_PARTICIPANTS_ALL &&
        (config->collective == RT_COLLECTIVE_MPI || config->collective == RT_COLLECTIVE_NCCL))
        return rt_fail(error, RT_CONFIG,
                       "network.collective: \"%s\" takes all workers into every iteration, "
                       "expected \"ps\" or \"auto\" where dispatch.participants is not \"all\"",
                       rt_config_choice_name("network.collective", (int)config->collective));
    for (uint32_t f = 1; f < model->embedding_dim_count; f++) {
        if (model->embedding_dims[f] != model->embedding_dims[0])
            return rt_fail(error, RT_CONFIG,
                           "model.embedding_dim: %u floats for field %u, %u for field 0, but a "
                           "training run needs rows of one length (`lanyard sim` does not)",
                           model->embedding_dims[f], f, model->embedding_dims[0]);
    }
    return RT_OK;
}
