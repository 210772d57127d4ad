#include "ps_lite/ps_shard.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/rt_log.h"
#include "runtime/wire/rt_control.h"

#define BLOCK_RECORDS 256u

typedef struct {
    uint64_t key;
    uint32_t version;
    uint32_t is_unborn; // the key had no row; else its floats are in the block
} image;

struct ps_image_block {
    ps_image_block *before;
    uint32_t count;
    uint32_t rows; // that have floats
    float *floats; // NULL: none has
    image images[BLOCK_RECORDS];
};

void ps_images_init(ps_images *images, uint32_t row_floats, uint64_t bytes_max)
{
    *images = (ps_images){.row_floats = row_floats, .bytes_max = bytes_max};
}

static uint64_t floats_bytes(const ps_images *images)
{
    return (uint64_t)BLOCK_RECORDS * images->row_floats * sizeof(float);
}

// The bytes may be those of somebody who is to be forgotten.
static void free_block(ps_images *images, ps_image_block *block)
{
    images->bytes -= sizeof *block;
    if (block->floats) {
        images->bytes -= floats_bytes(images);
        explicit_bzero(block->floats, floats_bytes(images));
    }
    rt_free(block->floats);
    rt_free(block);
}

static void free_blocks(ps_images *images, ps_generation *of)
{
    for (ps_image_block *block = of->newest, *before; block; block = before) {
        before = block->before;
        free_block(images, block);
    }
    of->newest = NULL;
}

void ps_images_give_up(ps_images *images)
{
    for (uint32_t g = 0; g < PS_GENERATIONS; g++) {
        free_blocks(images, &images->of[g]);
        images->of[g] = (ps_generation){0};
    }
    images->count = 0;
    images->until = 0;
}

static void open_generation(ps_images *images, uint32_t iteration, uint64_t base, uint64_t lineage)
{
    images->of[images->count++] =
        (ps_generation){.iteration = iteration, .base = base, .lineage = lineage};
    images->until = iteration;
}

void ps_images_begin(ps_images *images, uint32_t iteration, uint64_t lineage)
{
    ps_images_give_up(images);
    if (images->bytes_max && iteration)
        open_generation(images, iteration, 0, lineage);
}

// ---- adding ----------------------------------------------------------------------------------

static void give_up_for(ps_images *images, const char *why)
{
    rt_info("rows as they were at the checkpoint of iteration %" PRIu32
            " are no longer kept in memory (%s): after a loss they would come from files, until "
            "the next checkpoint",
            images->of[0].iteration, why);
    ps_images_give_up(images);
}

// Room for one more, with floats or without; NULL: all were given up.
static ps_image_block *make_room(ps_images *images, bool with_floats)
{
    ps_generation *of = &images->of[images->count - 1];
    ps_image_block *block = of->newest;
    const bool is_full = !block || block->count == BLOCK_RECORDS;
    uint64_t more = 0;
    if (is_full)
        more += sizeof *block;
    if (with_floats && (is_full || !block->floats))
        more += floats_bytes(images);
    if (images->bytes + more > images->bytes_max)
        return give_up_for(images, "too many rows change"), NULL;
    if (is_full) {
        block = rt_alloc(1, sizeof *block);
        if (!block)
            return give_up_for(images, "out of memory"), NULL;
        block->before = of->newest;
        of->newest = block;
        images->bytes += sizeof *block;
    }
    if (!with_floats || block->floats)
        return block;
    block->floats = rt_alloc(BLOCK_RECORDS, images->row_floats * sizeof(float));
    if (!block->floats)
        return give_up_for(images, "out of memory"), NULL;
    images->bytes += floats_bytes(images);
    return block;
}

// A generation's first image of a key is what counts.
static bool was_just_added(const ps_images *images, uint64_t key)
{
    const ps_image_block *block = images->of[images->count - 1].newest;
    return block && block->count && block->images[block->count - 1].key == key;
}

void ps_images_add(ps_images *images, const ps_table *table, const ps_entry *entry)
{
    if (was_just_added(images, entry->key))
        return;
    ps_image_block *block = make_room(images, true);
    if (!block)
        return;
    block->images[block->count++] = (image){entry->key, entry->version, false};
    memcpy(block->floats + (uint64_t)block->rows++ * images->row_floats, ps_table_row(table, entry),
           images->row_floats * sizeof(float));
}

void ps_images_add_unborn(ps_images *images, uint64_t key)
{
    ps_image_block *block = NULL;
    if (!was_just_added(images, key))
        block = make_room(images, false);
    if (block)
        block->images[block->count++] = (image){key, 0, true};
}

// ---- cuts ------------------------------------------------------------------------------------

// The older one goes.
static void drop_old(ps_images *images)
{
    free_blocks(images, &images->of[0]);
    images->of[0] = images->of[1];
    images->of[1] = (ps_generation){0};
    images->count--;
}

// What was logged since the newer cut belongs to the older one.
static void join_newer(ps_images *images)
{
    ps_generation *newer = &images->of[1];
    ps_image_block *first = newer->newest;
    while (first && first->before)
        first = first->before;
    if (first) {
        first->before = images->of[0].newest;
        images->of[0].newest = newer->newest;
    }
    *newer = (ps_generation){0};
    images->count--;
}

// Rows that were pulled and never trained are in no file of changes: a run that loads them has
// none.
static void carry_unborn(ps_images *images, const ps_table *table, const ps_generation *from)
{
    for (const ps_image_block *block = from->newest; block; block = block->before) {
        for (uint32_t i = 0; i < block->count; i++) {
            if (!block->images[i].is_unborn)
                continue;
            const ps_entry *entry = ps_table_find(table, block->images[i].key);
            if (entry && entry->version == 0)
                ps_images_add_unborn(images, entry->key);
            if (!images->count) // given up: the block is gone
                return;
        }
    }
}

void ps_images_cut(ps_images *images, const ps_table *table, uint32_t iteration, uint32_t base,
                   uint32_t complete)
{
    uint64_t base_lineage = RT_LINEAGE_ALL_ROWS;
    if (!images->bytes_max)
        return;
    if (images->count == 2 && complete == images->of[1].iteration)
        drop_old(images);
    else if (images->count == 2)
        join_newer(images);
    if (images->count && complete != images->of[0].iteration)
        ps_images_give_up(images);
    if (base)
        base_lineage = images->count && images->of[0].iteration == base ? images->of[0].lineage : 0;
    open_generation(images, iteration, base_lineage, 0);
    if (base && images->count == 2)
        carry_unborn(images, table, &images->of[0]);
}

void ps_images_written(ps_images *images, uint32_t iteration, uint64_t bytes, uint64_t hash)
{
    ps_generation *of = &images->of[images->count ? images->count - 1 : 0];
    if (images->count && of->iteration == iteration)
        of->lineage = rt_control_lineage(of->base, bytes, hash);
}

// ---- back ------------------------------------------------------------------------------------

// Its number plus 1; 0: there is none.
static uint32_t find_generation(const ps_images *images, uint32_t iteration, uint64_t lineage)
{
    for (uint32_t g = 0; g < images->count; g++)
        if (lineage && images->of[g].iteration == iteration && images->of[g].lineage == lineage)
            return g + 1;
    return 0;
}

bool ps_images_have(const ps_images *images, uint32_t iteration, uint64_t lineage)
{
    return find_generation(images, iteration, lineage) != 0;
}

static rt_status put_back(const ps_images *images, ps_table *table, const image *one,
                          const float *floats, rt_error *error)
{
    ps_entry *entry = ps_table_find(table, one->key);
    if (!entry) {
        const rt_status status = ps_table_reserve(table, 1, error);
        if (status)
            return status;
        entry = ps_table_insert(table, one->key);
    }
    entry->version = one->version;
    memcpy(ps_table_row(table, entry), floats, images->row_floats * sizeof(float));
    return RT_OK;
}

static rt_status undo_block(const ps_images *images, ps_table *table, const ps_image_block *block,
                            rt_error *error)
{
    uint64_t row = block->rows;
    for (uint32_t i = block->count; i-- > 0;) {
        const image *one = &block->images[i];
        rt_status status = RT_OK;
        if (one->is_unborn)
            (void)ps_table_erase(table, one->key);
        else
            status =
                put_back(images, table, one, block->floats + --row * images->row_floats, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status ps_images_roll_back(ps_images *images, ps_table *table, uint32_t iteration,
                              uint64_t lineage, ps_progress progress, void *context,
                              rt_error *error)
{
    const uint32_t found = find_generation(images, iteration, lineage);
    if (!found)
        return rt_fail(error, RT_NOT_FOUND,
                       "no rows of the checkpoint of iteration %" PRIu32 " are in memory",
                       iteration);
    for (uint32_t g = found; g < images->count; g++)
        images->of[g].lineage = 0; // cut short, the rows are on their way back and nowhere else
    for (uint32_t g = images->count; g-- >= found;) {
        for (const ps_image_block *block = images->of[g].newest; block; block = block->before) {
            rt_status status = undo_block(images, table, block, error);
            if (!status && progress)
                status = progress(context, -1, error);
            if (status)
                return status;
        }
    }
    for (uint32_t g = found - 1; g < images->count; g++)
        free_blocks(images, &images->of[g]);
    images->count = found;
    images->until = iteration;
    return RT_OK;
}
