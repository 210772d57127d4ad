// ps_images - how rows were at the newest checkpoints: a log of first changes, which is undone
// from its end.
//
// A cut begins a generation. The first change of a row after it, which the row's version tells,
// adds the row as it was, or that it was not there; later changes of the same row add nothing new.
// Undone from the end, a generation gives the rows of its cut, whatever was logged twice. There are
// at most two generations: the newest complete checkpoint's, and that of the cut behind it. What is
// undone only in part can be undone again. At bytes_max, or out of memory, all images are given up
// until the next cut; that is never an error, since files have the same rows. One thread.
//
// A checkpoint is known by its iteration and its lineage (rt_control_lineage), which is made of the
// sums of the shard's files that it consists of.
#ifndef PS_IMAGES_H
#define PS_IMAGES_H

#include "ps_lite/ps_model_file.h"
#include "ps_lite/ps_table.h"

#define PS_GENERATIONS 2u

typedef struct ps_image_block ps_image_block;

typedef struct {
    uint32_t iteration;     // of the cut; 0: there is none
    uint64_t base, lineage; // of what its file builds on, and its own; 0: not known
    ps_image_block *newest;
} ps_generation;

typedef struct {
    uint32_t row_floats;
    uint64_t bytes, bytes_max; // 0: none are kept
    uint32_t until;            // rows of versions up to this have not changed; see ps_images_keep
    uint32_t count;
    ps_generation of[PS_GENERATIONS]; // from old to new
} ps_images;

void ps_images_init(ps_images *images, uint32_t row_floats, uint64_t bytes_max);

// Drops all images, and their bytes from memory, until the next cut.
void ps_images_give_up(ps_images *images);

// The rows are those of a checkpoint, which was loaded.
void ps_images_begin(ps_images *images, uint32_t iteration, uint64_t lineage);

// A cut is captured, whose file builds on that of base (0: it has all rows). complete: iteration of
// the newest complete checkpoint; a cut that never became one is forgotten.
void ps_images_cut(ps_images *images, const ps_table *table, uint32_t iteration, uint32_t base,
                   uint32_t complete);

// The file of the newest cut is written.
void ps_images_written(ps_images *images, uint32_t iteration, uint64_t bytes, uint64_t hash);

// ---- before a row changes --------------------------------------------------------------------

void ps_images_add(ps_images *images, const ps_table *table, const ps_entry *entry);
void ps_images_add_unborn(ps_images *images, uint64_t key);

// The row is about to change, or to go.
static inline void ps_images_keep(ps_images *images, const ps_table *table, const ps_entry *entry)
{
    if (images->count && entry->version <= images->until)
        ps_images_add(images, table, entry);
}

// The key gets a row.
static inline void ps_images_born(ps_images *images, uint64_t key)
{
    if (images->count)
        ps_images_add_unborn(images, key);
}

// ---- back ------------------------------------------------------------------------------------

// Whether rows can become those of this checkpoint.
bool ps_images_have(const ps_images *images, uint32_t iteration, uint64_t lineage);

// They do. RT_NOT_FOUND: they cannot; RT_CONFIG, RT_NO_MEMORY: no room for a row that had gone; or
// what progress (may be NULL) returned. It can be tried again after any of these.
rt_status ps_images_roll_back(ps_images *images, ps_table *table, uint32_t iteration,
                              uint64_t lineage, ps_progress progress, void *context,
                              rt_error *error);

#endif
