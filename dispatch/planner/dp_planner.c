#include "dispatch/planner/dp_planner.h"

#include <inttypes.h>
#include <string.h>

#include "dispatch/planner/dp_homes.h"
#include "dispatch/planner/dp_hot.h"
#include "dispatch/cost/dp_ticks.h"
#include "dispatch/planner/dp_window.h"

static uint32_t equal_share(const dp_planner_config *config)
{
    const uint32_t fewest = dp_planner_fewest(config);
    return (config->sample_count_max + fewest - 1) / fewest;
}

uint32_t dp_planner_micro_batch_max(const dp_planner_config *config)
{
    return (uint32_t)rt_max_u64(equal_share(config), config->micro_batch_max);
}

// Beyond an equal share a policy gives a worker what its cache holds: dp_view.rows_max.
rt_status dp_planner_check(const dp_planner_config *config, rt_error *error)
{
    const uint32_t samples = equal_share(config);
    const uint64_t rows = (uint64_t)samples * config->keys_per_sample_max;
    for (uint32_t j = 0; j < config->worker_count; j++) {
        if (config->hot && config->slot_count[j] < rows + config->hot->count)
            return rt_fail(error, RT_CONFIG,
                           "cache.rows: the cache of worker %" PRIu32 " has %" PRIu32
                           " rows, expected at least %" PRIu64 ": %" PRIu32
                           " hot rows (dispatch.profile), and %" PRIu64
                           " that one micro-batch may need beside them",
                           j, config->slot_count[j], rows + config->hot->count, config->hot->count,
                           rows);
        if (config->slot_count[j] < rows + (config->overshoot > 0))
            return rt_fail(error, RT_CONFIG,
                           "the cache of worker %" PRIu32 " has %" PRIu32
                           " rows, but one micro-batch may need %" PRIu64 " (%" PRIu32
                           " samples x %" PRIu32 " keys): raise cache.rows or cache.ratio",
                           j, config->slot_count[j], rows, samples, config->keys_per_sample_max);
        if (config->slot_count[j] >= DP_SLOTS_MAX)
            return rt_fail(error, RT_CONFIG,
                           "the cache of worker %" PRIu32 " has %" PRIu32
                           " rows, at most %u are possible",
                           j, config->slot_count[j], DP_SLOTS_MAX - 1);
    }
    return RT_OK;
}

static rt_status allocate_work(const dp_planner_config *config, uint64_t lookups, dp_work *work)
{
    uint64_t slice_lookups =
        (uint64_t)dp_planner_micro_batch_max(config) * config->keys_per_sample_max;
    work->distinct = rt_alloc_unset(lookups, sizeof *work->distinct);
    work->trainers = rt_alloc_unset(lookups, sizeof *work->trainers);
    work->movers = rt_alloc_unset(lookups, sizeof *work->movers);
    work->senders = rt_alloc_unset(lookups, sizeof *work->senders);
    work->summers = rt_alloc(lookups, sizeof *work->summers);
    work->homes = rt_alloc(lookups, sizeof *work->homes);
    work->row_keys = rt_alloc(config->worker_count, sizeof *work->row_keys);
    work->fills = rt_alloc(config->worker_count, sizeof *work->fills);
    if (!work->distinct || !work->trainers || !work->movers || !work->senders || !work->summers ||
        !work->homes || !work->row_keys || !work->fills ||
        dp_plan_init(&work->plan, config->worker_count))
        return RT_NO_MEMORY;
    for (uint32_t j = 0; j < config->worker_count; j++) {
        work->row_keys[j] = rt_alloc_unset(slice_lookups, sizeof(uint32_t));
        work->fills[j] = rt_alloc_unset(slice_lookups, sizeof(bool));
        if (!work->row_keys[j] || !work->fills[j] ||
            dp_slice_reserve(&work->plan.slices[j], dp_planner_micro_batch_max(config),
                             (uint32_t)slice_lookups))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

// With bounded staleness several workers have copies to read: decisions see the caches.
bool dp_planner_decides_on_snapshots(const dp_planner_config *config)
{
    const rt_dispatch_config *dispatch = &config->dispatch;
    if (config->consistency.staleness > 0)
        return false;
    if (dispatch->view == RT_VIEW_AUTO)
        return dp_policy_can(dispatch->policy, DP_POLICY_SNAPSHOTS);
    return dispatch->view == RT_VIEW_SNAPSHOT;
}

static bool sizes_differ(const dp_layout *layout)
{
    for (uint32_t f = 1; f < layout->field_count; f++) {
        if (dp_row_bytes(layout, f, true) != dp_row_bytes(layout, 0, true))
            return true;
    }
    return false;
}

static rt_status create_cache(const dp_planner *planner, uint32_t worker, dp_cache *cache)
{
    const dp_planner_config *config = &planner->config;
    const dp_eviction_config eviction = {config->eviction, config->slot_count[worker],
                                         planner->by_bytes, config->lookahead > 0};
    return dp_cache_init(cache, worker, &eviction);
}

rt_status dp_planner_create_caches(const dp_planner *planner, dp_cache **caches_p)
{
    const dp_planner_config *config = &planner->config;
    *caches_p = rt_alloc(config->worker_count, sizeof **caches_p);
    if (!*caches_p)
        return RT_NO_MEMORY;
    for (uint32_t j = 0; j < config->worker_count; j++) {
        if (create_cache(planner, j, &(*caches_p)[j]))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

rt_status dp_planner_create_slot_changes(const dp_planner *planner, dp_slot_changes **changes_p)
{
    const dp_planner_config *config = &planner->config;
    return dp_slot_changes_create(config->worker_count,
                                  dp_planner_micro_batch_max(config) * config->keys_per_sample_max,
                                  changes_p);
}

void dp_planner_destroy_caches(dp_cache *caches, uint32_t worker_count)
{
    for (uint32_t j = 0; caches && j < worker_count; j++)
        dp_cache_fini(&caches[j]);
    rt_free(caches);
}

bool dp_planner_is_whole(const dp_planner *planner)
{
    return planner->caches_missing == 0;
}

// What workers have comes first, then what decisions see.
rt_status dp_planner_add_cache(dp_planner *planner)
{
    const uint32_t n = planner->config.worker_count, left = planner->caches_missing--;
    rt_assert(left > 0);
    const bool is_viewed = planner->viewed.caches && left <= n;
    const uint32_t worker = (n - left % n) % n;
    dp_cache *cache = &(is_viewed ? planner->viewed.caches : planner->own.caches)[worker];
    if (create_cache(planner, worker, cache))
        return RT_NO_MEMORY;
    if (planner->cached && (is_viewed || !planner->viewed.caches))
        dp_cache_count_fields(cache, &planner->directory, planner->cached);
    return RT_OK;
}

// Without what is in them: dp_planner_add_cache.
static rt_status allocate_caches(dp_planner *planner, uint64_t lookups)
{
    const dp_planner_config *config = &planner->config;
    planner->by_bytes = sizes_differ(&config->layout);
    planner->own.caches = rt_alloc(config->worker_count, sizeof *planner->own.caches);
    planner->caches_missing = config->worker_count;
    if (!planner->own.caches || dp_planner_create_slot_changes(planner, &planner->own.changes))
        return RT_NO_MEMORY;
    if (dp_planner_decides_on_snapshots(config)) {
        planner->viewed.caches = rt_alloc(config->worker_count, sizeof *planner->viewed.caches);
        planner->caches_missing *= 2;
        if (!planner->viewed.caches ||
            dp_planner_create_slot_changes(planner, &planner->viewed.changes))
            return RT_NO_MEMORY;
    }
    if (dp_policy_chooses_tables(&config->dispatch)) {
        planner->cached = rt_alloc(RT_FIELDS_MAX, sizeof *planner->cached);
        if (!planner->cached)
            return RT_NO_MEMORY;
    }
    if (config->dispatch.window > 1 &&
        dp_window_create(config->dispatch.window, dp_planner_ahead(config) + 1,
                         config->worker_count, config->sample_count_max, lookups, &planner->window))
        return RT_NO_MEMORY;
    if (config->lookahead > 0) {
        planner->preview.next_use = rt_alloc(lookups, sizeof *planner->preview.next_use);
        if (!planner->preview.next_use || dp_lookahead_init(&planner->preview.batches))
            return RT_NO_MEMORY;
    }
    if (config->consistency.staleness > 0 &&
        dp_stale_create(config->consistency.staleness, config->worker_count, config->slot_count,
                        lookups, &planner->stale))
        return RT_NO_MEMORY;
    if (config->hot) {
        planner->hot.lacking = rt_alloc(config->hot->count / 64 + 1, sizeof(uint64_t));
        if (!planner->hot.lacking)
            return RT_NO_MEMORY;
    }
    if (config->rows.admit > 1 &&
        dp_admission_create(config->rows.admit, config->rows.admit_bytes, &planner->admission))
        return RT_NO_MEMORY;
    if (config->rows.admit_share > 0 && config->rows.admit_share < 1 &&
        dp_admission_create_by_chance(config->rows.admit_share, config->seed, &planner->admission))
        return RT_NO_MEMORY;
    return RT_OK;
}

static rt_status allocate_changes(dp_planner *planner, uint64_t lookups)
{
    const uint32_t workers = (planner->config.worker_count + 3) / 4 * 4;
    if (workers > DP_COST_WORKERS_MAX)
        return RT_OK;
    planner->changes = rt_alloc_unset(lookups * workers, sizeof *planner->changes);
    if (!planner->changes)
        return RT_NO_MEMORY;
    return RT_OK;
}

static rt_status allocate(dp_planner *planner)
{
    const dp_planner_config *config = &planner->config;
    uint64_t lookups = (uint64_t)config->sample_count_max * config->keys_per_sample_max;
    if (lookups > UINT32_MAX)
        return RT_NO_MEMORY;
    planner->lookups = rt_alloc_unset(lookups, sizeof *planner->lookups);
    planner->held = rt_alloc_unset(lookups, sizeof *planner->held);
    planner->latest = rt_alloc_unset(lookups, sizeof *planner->latest);
    planner->look_up.missing = rt_alloc_unset(lookups, sizeof *planner->look_up.missing);
    planner->own.slots = rt_alloc_unset(lookups * config->worker_count, sizeof *planner->own.slots);
    planner->viewed.slots =
        rt_alloc_unset(lookups * config->worker_count, sizeof *planner->viewed.slots);
    planner->worker_of_sample = rt_alloc_unset(config->sample_count_max, sizeof(uint32_t));
    planner->unsynced.records = rt_alloc_unset(lookups, sizeof *planner->unsynced.records);
    planner->expired.records = rt_alloc_lazy(lookups, sizeof *planner->expired.records);
    if (!planner->lookups || !planner->held || !planner->latest || !planner->look_up.missing ||
        !planner->own.slots || !planner->viewed.slots || !planner->worker_of_sample ||
        !planner->unsynced.records || !planner->expired.records ||
        dp_numbers_init(&planner->numbers, lookups) || allocate_changes(planner, lookups) ||
        dp_planner_set_pool(planner, NULL) || allocate_work(config, lookups, &planner->work) ||
        dp_directory_init(&planner->directory, config->keys_expected) ||
        (config->homes == RT_HOMES_PLANNED && dp_directory_keep_homes(&planner->directory)))
        return RT_NO_MEMORY;
    planner->directory.has_stale = config->consistency.staleness > 0;
    return allocate_caches(planner, lookups);
}

// Ticks of the rows on all links that there are.
static void compute_row_ticks(dp_planner *planner, uint32_t keys_per_sample_max)
{
    const dp_planner_config *config = &planner->config;
    dp_link links[RT_SITE_BOXES_MAX];
    if (config->boxes.count > 0) {
        dp_box_links(&config->boxes, &config->rates, links);
        dp_ticks_compute(&config->layout, links, config->boxes.count, keys_per_sample_max,
                         &planner->ticks);
    } else {
        dp_ticks_compute(&config->layout, config->rates.links, config->worker_count,
                         keys_per_sample_max, &planner->ticks);
    }
    planner->ticks.worker_count = config->worker_count;
}

// Of the iteration whose batch is looked up, or, before the first, of that.
static uint64_t dense_bytes_now(const dp_planner *planner)
{
    return dp_dense_bytes(planner->config.dense_bytes, planner->config.dense_whole_bytes,
                          (uint32_t)rt_max_u64(planner->iteration, 1), planner->participants);
}

static void add_servers(dp_planner *planner)
{
    const dp_planner_config *config = &planner->config;
    if (config->boxes.count)
        dp_ticks_add_boxes(&config->layout, &config->boxes, &config->rates, planner->participants,
                           dense_bytes_now(planner), &planner->ticks);
    else
        dp_ticks_add_shards(&config->layout, config->rates.ps_bytes_per_s, &config->rates.shards,
                            dense_bytes_now(planner) * rt_bit_count(planner->participants),
                            &planner->ticks);
    planner->ticks.homes_move = config->homes == RT_HOMES_PLANNED;
}

void dp_planner_compute_ticks(dp_planner *planner)
{
    dp_active_set(planner);
    const dp_planner_config *config = &planner->config;
    // A key costs a pull and a push; in snapshots a push by everybody else.
    uint64_t transfers = 2;
    if (planner->viewed.caches)
        transfers = rt_max_u64(transfers, config->worker_count);
    if (config->dispatch.window > 1) // what it costs next: a push and a pull
        transfers += 2;
    compute_row_ticks(planner, (uint32_t)((transfers * config->keys_per_sample_max + 1) / 2));
    dp_ticks_add_load(config->rates.links, dense_bytes_now(planner),
                      config->rates.compute_s_per_sample, &planner->ticks);
    add_servers(planner);
    dp_active_ticks(planner);
}

rt_status dp_planner_create_policy(dp_planner *planner, rt_error *error)
{
    const dp_planner_config *config = &planner->config;
    const dp_policy_config policy = {
        .worker_count = config->worker_count,
        .box_count = config->boxes.count,
        .sample_count_max = config->sample_count_max,
        .distinct_count_max = config->sample_count_max * config->keys_per_sample_max,
        .seed = config->seed,
        .dispatch = config->dispatch,
        .measure_error = config->measure_error,
    };
    planner->policy = dp_policy_find(config->dispatch.policy);
    return planner->policy->create(&policy, &planner->policy_state, error);
}

rt_status dp_planner_create(const dp_planner_config *config, dp_planner **planner_p,
                            rt_error *error)
{
    dp_planner *planner;
    rt_status status = dp_planner_begin(config, 0, &planner, error);
    if (status)
        return status;
    while (!dp_planner_is_whole(planner)) {
        status = dp_planner_add_cache(planner);
        if (status) {
            dp_planner_destroy(planner);
            return rt_fail(error, status, "out of memory for the planner's caches and batch");
        }
    }
    *planner_p = planner;
    return RT_OK;
}

// Operations of an equal share, so that lists which grow are not copied again and again.
static rt_status expect_operations(dp_planner *planner)
{
    const dp_planner_config *config = &planner->config;
    const uint32_t rows = equal_share(config) * config->keys_per_sample_max;
    for (uint32_t j = 0; j < config->worker_count; j++) {
        dp_slice *slice = &planner->work.plan.slices[j];
        if (dp_ops_reserve(&slice->fill, rows) || dp_ops_reserve(&slice->release, rows) ||
            dp_ops_reserve(&slice->after, rows))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

// Rows in caches, and those of a batch: there are never more records.
static rt_status expect_keys(dp_planner *planner, uint64_t key_count)
{
    const dp_planner_config *config = &planner->config;
    uint64_t most = (uint64_t)config->sample_count_max * config->keys_per_sample_max;
    if (key_count == 0)
        return RT_OK;
    const uint64_t sets = planner->viewed.caches ? 2 : 1;
    for (uint32_t j = 0; j < config->worker_count; j++)
        most += sets * config->slot_count[j];
    if (expect_operations(planner))
        return RT_NO_MEMORY;
    return dp_directory_expect(&planner->directory, rt_min_u64(key_count, most));
}

rt_status dp_planner_begin(const dp_planner_config *config, uint64_t key_count,
                           dp_planner **planner_p, rt_error *error)
{
    rt_assert(config->worker_count >= 1 && config->worker_count <= RT_WORKERS_MAX);
    rt_assert(dp_planner_ahead(config) <= DP_LOOKAHEAD_MAX);
    rt_assert(!config->hot || config->eviction == RT_EVICT_LRU); // no copy outlives its use
    rt_status status = dp_planner_check(config, error);
    if (status)
        return status;
    dp_planner *planner = rt_alloc(1, sizeof *planner);
    if (!planner)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the planner");
    planner->config = *config;
    planner->took_part = rt_bits_below(config->worker_count); // all have the weights at the start
    if (config->participants == 0)
        planner->config.participants = planner->took_part;
    status = allocate(planner);
    if (!status)
        status = expect_keys(planner, key_count);
    if (status) {
        rt_fail(error, status, "out of memory for the planner's caches and batch");
    } else {
        status = dp_planner_create_policy(planner, error);
    }
    if (status) {
        dp_planner_destroy(planner);
        return status;
    }
    dp_planner_compute_ticks(planner);
    *planner_p = planner;
    return RT_OK;
}

static void work_fini(dp_work *work, uint32_t worker_count)
{
    for (uint32_t j = 0; j < worker_count; j++) {
        if (work->row_keys)
            rt_free(work->row_keys[j]);
        if (work->fills)
            rt_free(work->fills[j]);
    }
    rt_free(work->distinct);
    rt_free(work->trainers);
    rt_free(work->movers);
    rt_free(work->senders);
    rt_free(work->summers);
    rt_free(work->homes);
    rt_free(work->row_keys);
    rt_free(work->fills);
    dp_plan_fini(&work->plan);
}

static void destroy_set(dp_cache_set *set, uint32_t worker_count)
{
    dp_planner_destroy_caches(set->caches, worker_count);
    dp_slot_changes_destroy(set->changes, worker_count);
    rt_free(set->slots);
}

void dp_planner_destroy(dp_planner *planner)
{
    if (!planner)
        return;
    dp_planner_end_locating(planner);
    destroy_set(&planner->own, planner->config.worker_count);
    destroy_set(&planner->viewed, planner->config.worker_count);
    dp_stale_destroy(planner->stale);
    dp_window_destroy(planner->window);
    dp_admission_destroy(planner->admission);
    if (planner->policy_state)
        planner->policy->destroy(planner->policy_state);
    work_fini(&planner->work, planner->config.worker_count);
    dp_directory_fini(&planner->directory);
    dp_lookahead_fini(&planner->preview.batches);
    rt_free(planner->preview.next_use);
    rt_free(planner->lookups);
    rt_free(planner->held);
    rt_free(planner->latest);
    rt_free(planner->look_up.missing);
    dp_numbers_fini(&planner->numbers);
    rt_free(planner->changes);
    rt_free(planner->worker_of_sample);
    rt_free(planner->collect.row_of);
    rt_free(planner->locate.held_rows.keys);
    rt_free(planner->gone);
    rt_free(planner->collect.trained);
    rt_free(planner->cached);
    rt_free(planner->unsynced.records);
    rt_free(planner->expired.records);
    rt_free(planner->hot.lacking);
    rt_free(planner);
}

void dp_planner_recompute(dp_planner *planner)
{
    dp_planner_compute_ticks(planner);
    if (planner->policy->configure)
        planner->policy->configure(planner->policy_state, &planner->config.dispatch);
}

// ---- placement -------------------------------------------------------------------------------

void dp_planner_place(dp_planner *planner)
{
    const rt_dispatch_config *dispatch = &planner->config.dispatch;
    const uint32_t fields = planner->config.layout.field_count;
    dp_policy_report report = {.error = -1};
    if (planner->window)
        planner->view.next = dp_window_next(planner->window, planner);
    planner->policy->place(planner->policy_state, &planner->view, planner->worker_of_sample);
    dp_active_ranks(planner, planner->view.sample_count, planner->worker_of_sample);
    if (planner->window)
        dp_window_placed(planner->window, planner);
    if (planner->policy->report)
        planner->policy->report(planner->policy_state, &report);
    planner->decision = (dp_decision){
        .alpha = dispatch->alpha,
        .search_evaluations_max = dispatch->search_evaluations,
        .evaluations = report.evaluations,
        .opt_samples = report.opt_samples,
        .heu_samples = report.heu_samples,
        .error_measured = report.error >= 0,
        .error_bound_s = (double)report.error_bound * planner->ticks.tick_s,
        .device_s = report.device_s,
        .error_s = report.error >= 0 ? (double)report.error * planner->ticks.tick_s : 0,
    };
    if (dp_policy_chooses_tables(dispatch)) {
        planner->decision.table_count = fields;
        planner->decision.tables = (uint32_t)rt_min_u64(dispatch->tables, fields);
    }
}

// ---- views -----------------------------------------------------------------------------------

const dp_decision *dp_planner_decision(const dp_planner *planner)
{
    return &planner->decision;
}

void dp_planner_set_profile(dp_planner *planner, dp_profile *profile)
{
    planner->profile = profile;
}

const dp_view *dp_planner_view(const dp_planner *planner)
{
    return &planner->view;
}

const uint32_t *dp_planner_placement(const dp_planner *planner)
{
    return planner->worker_of_sample;
}

const dp_ticks *dp_planner_ticks(const dp_planner *planner)
{
    return &planner->view_ticks;
}

const dp_directory *dp_planner_directory(const dp_planner *planner)
{
    return &planner->directory;
}
