// What becomes of all rows at once: files, the end of those that were not seen for long, lists of
// keys.
#include <inttypes.h>

#include "ps_lite/ps_shard_parts.h"
#include "ps_lite/ps_snapshot.h"

static ps_model_info info_of(const ps_shard *shard, uint64_t schema)
{
    const ps_shard_config *config = &shard->config;
    return (ps_model_info){.schema = schema,
                           .shard = config->rank,
                           .shard_count = config->shard_count,
                           .dim = config->dim,
                           .state_floats = shard->row_floats - config->dim,
                           .optimizer = config->optimizer.kind,
                           .homes = config->homes};
}

rt_status ps_shard_save(const ps_shard *shard, const rt_sink *sink, uint64_t schema,
                        const ps_cut *cut, ps_progress progress, void *context, rt_file_sum *sum_p,
                        rt_error *error)
{
    ps_model_info info = info_of(shard, schema);
    uint64_t *left = NULL;
    if (cut) {
        info.iteration = cut->iteration;
        info.base = cut->base;
        if (cut->base) // a file of all rows has none that have ended
            info.floor = shard->floor;
        info.packed = true;
    }
    if (info.base && ps_left_since(&shard->left, shard->table, info.base, &left, &info.left_count))
        return rt_fail(error, RT_NO_MEMORY, "out of memory: keys that have left the shard");
    info.left = left;
    rt_status status =
        ps_snapshot_write(shard->table, &info, sink, progress, context, sum_p, error);
    rt_free(left);
    return status;
}

void ps_shard_cut(ps_shard *shard, uint32_t iteration, uint32_t base, uint32_t complete)
{
    ps_left_cut(&shard->left, iteration, base);
    ps_images_cut(&shard->images, shard->table, iteration, base, complete);
}

void ps_shard_written(ps_shard *shard, uint32_t iteration, uint64_t bytes, uint64_t hash)
{
    ps_images_written(&shard->images, iteration, bytes, hash);
}

// Files of another number of shards, or of other homes, say nothing of the rows of this one.
static uint64_t lineage_of(const ps_shard *shard, const rt_wire_load *load)
{
    const ps_shard_config *config = &shard->config;
    const ps_images *images = &shard->images;
    const bool was_planned = load->flags & RT_WIRE_LOAD_HOMES;
    uint64_t base = 0;
    if (load->shard_count != config->shard_count ||
        was_planned != (config->homes == RT_HOMES_PLANNED))
        return 0;
    if (load->flags & RT_WIRE_LOAD_FIRST && load->lineage)
        return load->lineage;
    if (load->flags & RT_WIRE_LOAD_FIRST)
        base = RT_LINEAGE_ALL_ROWS;
    else if (images->count)
        base = images->of[images->count - 1].lineage;
    return rt_control_lineage(base, load->files[config->rank].bytes,
                              load->files[config->rank].hash);
}

uint64_t ps_shard_begin_load(ps_shard *shard, const rt_wire_load *load)
{
    const uint64_t lineage = load->flags & RT_WIRE_LOAD_MODEL ? 0 : lineage_of(shard, load);
    ps_images_give_up(&shard->images);
    return lineage;
}

void ps_shard_loaded(ps_shard *shard, uint32_t iteration, uint64_t lineage)
{
    ps_left_cut(&shard->left, iteration, 0);
    if (lineage)
        ps_images_begin(&shard->images, iteration, lineage);
}

rt_status ps_shard_load(ps_shard *shard, const char *path, uint64_t schema, ps_progress progress,
                        void *context, rt_file_sum *sum_p, rt_error *error)
{
    ps_model_info info = info_of(shard, schema);
    rt_status status = ps_snapshot_read(shard->table, &info, path, progress, context, sum_p, error);
    shard->floor = (uint32_t)rt_max_u64(shard->floor, info.floor);
    return status;
}

void ps_shard_begin_with(ps_shard *shard)
{
    for (uint64_t i = 0; i < ps_table_count(shard->table); i++)
        ps_table_find(shard->table, ps_table_key(shard->table, i))->version = 0;
    shard->floor = 0;
}

rt_status ps_shard_clear(ps_shard *shard)
{
    const ps_table_config config = ps_shard_table_config(shard);
    ps_table *empty;
    if (ps_table_create(&config, &empty))
        return RT_NO_MEMORY;
    ps_table_destroy(shard->table);
    shard->table = empty;
    shard->floor = 0;
    ps_left_fini(&shard->left);
    ps_images_give_up(&shard->images);
    return RT_OK;
}

static rt_status erase_below(ps_shard *shard, uint32_t floor, ps_progress progress, void *context,
                             rt_error *error)
{
    uint64_t at = 0;
    while (ps_table_erase_below(shard->table, floor, &at)) {
        rt_status status = RT_OK;
        if (progress)
            status = progress(context, -1, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status ps_shard_expire(ps_shard *shard, uint32_t floor, ps_progress progress, void *context,
                          uint64_t *ended_p, rt_error *error)
{
    const uint64_t before = ps_table_count(shard->table);
    if (ps_parked_count(shard->parked) || ps_aggregates_count(shard->aggregates) ||
        (shard->deltas && ps_aggregates_count(shard->deltas)))
        return rt_fail(error, RT_WIRE,
                       "coordinator: EXPIRE while %" PRIu32 " pulls and %" PRIu64
                       " gradients wait for their rows",
                       ps_parked_count(shard->parked),
                       (uint64_t)ps_aggregates_gradients(shard->aggregates));
    ps_images_give_up(&shard->images); // as many rows may end as there are
    const rt_status status = erase_below(shard, floor, progress, context, error);
    shard->floor = (uint32_t)rt_max_u64(shard->floor, floor);
    *ended_p = before - ps_table_count(shard->table);
    shard->statistics.rows_ended += *ended_p;
    return status;
}

bool ps_shard_forget(ps_shard *shard, uint64_t key)
{
    ps_images_give_up(&shard->images); // no image of it may come back
    const bool was_there = ps_table_erase(shard->table, key);
    shard->statistics.rows_ended += was_there;
    return was_there;
}

rt_status ps_shard_hold(const ps_shard *shard, rt_error *error)
{
    if (!shard->config.store)
        return RT_OK;
    return ps_store_hold(shard->config.store, error);
}

rt_status ps_shard_release(const ps_shard *shard, rt_error *error)
{
    if (!shard->config.store)
        return RT_OK;
    return ps_store_release(shard->config.store, error);
}

uint32_t ps_shard_keys(const ps_shard *shard, uint64_t from, uint32_t count_max,
                       rt_wire_key *records)
{
    uint32_t count = 0;
    for (uint64_t i = from; i < ps_table_count(shard->table) && count < count_max; i++) {
        const ps_entry *entry = ps_table_find(shard->table, ps_table_key(shard->table, i));
        records[count++] = (rt_wire_key){entry->key, entry->version, 0};
    }
    return count;
}
