// Rows that outlive a shard, for the shard of the next start (ps_images.c).
#include "ps_lite/ps_shard_parts.h"

struct ps_kept {
    uint32_t rank, shard_count;
    uint32_t floor;
    ps_table *table;
    ps_store *store; // of the table, or NULL
    ps_images images;
};

ps_kept *ps_shard_give(ps_shard *shard)
{
    ps_kept *kept = NULL;
    if (shard->images.count)
        kept = rt_alloc(1, sizeof *kept);
    if (!kept)
        return NULL;
    *kept = (ps_kept){.rank = shard->config.rank,
                      .shard_count = shard->config.shard_count,
                      .floor = shard->floor,
                      .table = shard->table,
                      .store = shard->config.store,
                      .images = shard->images};
    shard->table = NULL;
    shard->config.store = NULL;
    ps_images_init(&shard->images, shard->row_floats, 0);
    return kept;
}

void ps_kept_destroy(ps_kept *kept)
{
    if (!kept)
        return;
    ps_images_give_up(&kept->images);
    ps_table_destroy(kept->table);
    ps_store_destroy(kept->store);
    rt_free(kept);
}

uint32_t ps_kept_iteration(const ps_kept *kept)
{
    return kept->images.of[kept->images.count - 1].iteration;
}

rt_status ps_shard_adopt(ps_shard *shard, ps_kept **kept_p, uint32_t iteration, uint64_t lineage,
                         ps_progress progress, void *context, rt_error *error)
{
    ps_kept *kept = *kept_p;
    const ps_shard_config *config = &shard->config;
    if (kept->rank != config->rank || kept->shard_count != config->shard_count)
        return rt_fail(error, RT_NOT_FOUND, "rows in memory are those of shard %u of %u",
                       kept->rank, kept->shard_count);
    const rt_status status = ps_images_roll_back(&kept->images, kept->table, iteration, lineage,
                                                 progress, context, error);
    if (status)
        return status;
    ps_table_destroy(shard->table);
    ps_store_destroy(shard->config.store);
    ps_images_give_up(&shard->images);
    ps_left_fini(&shard->left);
    shard->table = kept->table;
    shard->config.store = kept->store;
    shard->images = kept->images;
    shard->floor = kept->floor;
    ps_left_cut(&shard->left, iteration, 0);
    rt_free(kept);
    *kept_p = NULL;
    return RT_OK;
}
