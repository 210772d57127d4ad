// rt_file_kind - what a file is, by its first bytes: text, packed text, or something else.
//
// Pure functions.
#ifndef RT_FILE_KIND_H
#define RT_FILE_KIND_H

#include "runtime/stream/rt_unpack.h"

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
