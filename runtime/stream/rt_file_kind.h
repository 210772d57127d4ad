// rt_file_kind - what a file is, by its first bytes: text, packed text, or something else.
//
// Pure functions.
#ifndef RT_FILE_KIND_H
#define RT_FILE_KIND_H

#include "runtime/rt_base.h"

// ---- rt_unpack.c ------------------------------------------------------------------------------

// Bytes of a packed file as they are unpacked: gzip, xz, bzip2, zstd.
//
// One thread. A file may be several packed ones behind one another, with zero bytes between them.
// Memory is bounded by what a packer may ask for: windows up to 2 GiB (zstd), 1 GiB (xz).

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

// -----------------------------------------------------------------------------------------------

#define RT_FILE_KIND_BYTES 512u // so many first bytes tell all that can be told

typedef struct {
    const char *name;   // "gzip", "a Parquet file"; of text NULL
    rt_packing packing; // RT_PACKED_NOT: it is text, or not read at all
    bool is_read;       // text, what is unpacked, and
    bool is_columnar;   // what rt_columnar makes lines of
    const char *advice; // of a kind that is not read: what to do
} rt_file_kind;

// Of the first count bytes. *may_tell_more: with more bytes it could be another kind. Text is
// decided at its first byte, unless a packed file begins with the same one.
rt_file_kind rt_file_kind_of(const uint8_t *bytes, size_t count, bool *may_tell_more);

// What packing a file of this name should have; RT_PACKED_NOT: the name says nothing of it.
// *ending_p: the end of the name, *name_p: what it is called.
rt_packing rt_file_kind_named(const char *path, const char **ending_p, const char **name_p);

typedef enum { RT_WIDE_NOT, RT_WIDE_LITTLE, RT_WIDE_BIG } rt_wide; // UTF-16, and its order of bytes

// Whether text is UTF-16: by its mark, or by every second byte being zero. Needs 4 bytes to be
// sure; *may_tell_more as above.
rt_wide rt_file_kind_wide(const uint8_t *bytes, size_t count, bool *may_tell_more);

// Makes UTF-8 of UTF-16, as far as whole characters are there; *used_p: bytes of it. out has room
// for size / 2 * 3 bytes. What is no character becomes U+FFFD. is_end: nothing follows.
size_t rt_file_kind_narrow(rt_wide wide, const uint8_t *bytes, size_t size, bool is_end, char *out,
                           size_t *used_p);

#endif
