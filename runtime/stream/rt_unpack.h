// rt_unpack - bytes of a packed file as they are unpacked: gzip, xz, bzip2, zstd.
//
// One thread. A file may be several packed ones behind one another, with zero bytes between them.
// Memory is bounded by what a packer may ask for: windows up to 2 GiB (zstd), 1 GiB (xz).
#ifndef RT_UNPACK_H
#define RT_UNPACK_H

#include "runtime/rt_base.h"

typedef enum {
    RT_PACKED_NOT,
    RT_PACKED_ZSTD,
    RT_PACKED_GZIP,
    RT_PACKED_XZ,
    RT_PACKED_BZIP2
} rt_packing;

typedef struct rt_unpack rt_unpack;

rt_status rt_unpack_create(rt_unpack **unpack_p); // RT_NO_MEMORY
void rt_unpack_destroy(rt_unpack *unpack);        // NULL is fine

void rt_unpack_begin(rt_unpack *unpack, rt_packing packing);

// Takes bytes at *in_p, which is moved behind them, and writes up to room bytes. RT_DATA: they are
// damaged, rt_unpack_problem says how; RT_NO_MEMORY.
rt_status rt_unpack_step(rt_unpack *unpack, const uint8_t **in_p, const uint8_t *end, char *out,
                         size_t room, size_t *count_p);
const char *rt_unpack_problem(const rt_unpack *unpack);

bool rt_unpack_is_inside(const rt_unpack *unpack); // the file must not end here
bool rt_unpack_has_more(const rt_unpack *unpack);  // more comes out without more going in

#endif
