// dp_admission - a row is stored once its key was seen often enough (rows.admit), or by chance
// (rows.admit_share).
//
// Most keys of a stream come once or twice and are never seen again. With rows.admit above 1 a key
// that has no row is only counted; until it was seen so many times its look-ups are taken out of
// the batch before it is looked up: its field has one row less, which is a row of zeros that nobody
// trains. Models say so by rows.admit in their config.json, and whoever predicts does the same
// with keys that they have no row for.
//
// Counts are a count-min sketch of bytes with conservative updates (Estan and Varghese, SIGCOMM
// 2002), so memory is bounded: counts may be too high where keys collide, never too low. They fade:
// once half as many keys as the sketch has columns were counted for the first time, all counts are
// halved. So "often enough" means within some such windows, and a key that comes back after its
// row has ended starts with what has not faded.
//
// By chance a key without a row gets one in a batch with a probability, decided by a hash of the
// run's seed, the batch's number and the key; nothing is counted or kept.
//
// Deterministic: equal batches in equal order give equal decisions. Plain memory, one thread.
#ifndef DP_ADMISSION_H
#define DP_ADMISSION_H

#include "dispatch/cache/dp_directory.h"
#include "runtime/stream/rt_batch.h"
#include "runtime/wire/rt_bytes.h"
#include "runtime/wire/rt_wire.h"

#define DP_ADMISSION_ROWS 4u // of counters, each by a hash of its own

typedef struct {
    uint64_t chance;     // of a hash below it a row is stored; 0: by counts
    uint64_t seed, draw; // by chance: draw is the number of the batch, whoever filters sets it
    uint32_t times;      // a row is stored once its key was seen so often: 2 to 255; 0: by chance
    uint32_t columns;    // of each row of counters, a power of two
    uint64_t fresh;      // keys counted for the first time since the counts were halved
    uint8_t *counters;   // DP_ADMISSION_ROWS x columns
    uint64_t *refused;   // scratch: look-ups that are taken out
    uint32_t *places;    // likewise, of a folded batch: where its keys go
    uint32_t refused_capacity, place_capacity;
} dp_admission;

// bytes: of the counters, rounded down to a power of two. RT_NO_MEMORY.
rt_status dp_admission_create(uint32_t times, uint64_t bytes, dp_admission **admission_p);
// share: above 0 and below 1.
rt_status dp_admission_create_by_chance(double share, uint64_t seed, dp_admission **admission_p);
void dp_admission_destroy(dp_admission *admission);

// Counts the look-ups of keys that the directory does not know, and takes those of them out of the
// batch whose keys were not seen often enough, this batch included. They stand in refused,
// *refused_count_p of them. RT_NO_MEMORY: the batch is as it was, the counts are not.
rt_status dp_admission_filter(dp_admission *admission, const dp_directory *directory,
                              rt_batch *batch, uint32_t *refused_count_p);

// How often a key was seen, at most `times`. For tests.
uint32_t dp_admission_count(const dp_admission *admission, uint64_t key);

// The counts as bytes, and back. Fits: they are those of this size and these times. RT_DATA: they
// do not fit, or are not whole.
void dp_admission_save(const dp_admission *admission, rt_bytes *bytes);
bool dp_admission_fits(const dp_admission *admission, rt_reader reader);
rt_status dp_admission_load(dp_admission *admission, rt_reader *reader);

#endif
