#include "runtime/stream/rt_file_kind.h"

#include <bzlib.h>
#include <lzma.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "runtime/rt_memory.h"

#define XZ_MEMORY_MAX (UINT64_C(1) << 30)
#define GZIP_WINDOW (MAX_WBITS + 16) // of gzip alone
#define ZSTD_WINDOW_LOG_MAX 31

struct rt_unpack {
    rt_packing packing;
    bool is_inside;
    bool has_more;
    bool is_open; // gzip, xz, bzip2: the decoder is between its creation and its end
    char problem[160];
    ZSTD_DCtx *zstd;
    z_stream gzip;
    lzma_stream xz;
    bz_stream bzip2;
};

rt_status rt_unpack_create(rt_unpack **unpack_p)
{
    rt_unpack *unpack = rt_alloc(1, sizeof *unpack);
    if (!unpack)
        return RT_NO_MEMORY;
    unpack->zstd = ZSTD_createDCtx();
    if (!unpack->zstd) {
        rt_free(unpack);
        return RT_NO_MEMORY;
    }
    // What somebody packed with a long window (zstd --long=31) is read, for the memory that it says.
    ZSTD_DCtx_setParameter(unpack->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX);
    *unpack_p = unpack;
    return RT_OK;
}

static void close_decoder(rt_unpack *unpack)
{
    if (unpack->is_open && unpack->packing == RT_PACKED_GZIP)
        inflateEnd(&unpack->gzip);
    if (unpack->is_open && unpack->packing == RT_PACKED_XZ)
        lzma_end(&unpack->xz);
    if (unpack->is_open && unpack->packing == RT_PACKED_BZIP2)
        BZ2_bzDecompressEnd(&unpack->bzip2);
    unpack->is_open = false;
}

void rt_unpack_destroy(rt_unpack *unpack)
{
    if (!unpack)
        return;
    close_decoder(unpack);
    ZSTD_freeDCtx(unpack->zstd);
    rt_free(unpack);
}

void rt_unpack_begin(rt_unpack *unpack, rt_packing packing)
{
    close_decoder(unpack);
    ZSTD_DCtx_reset(unpack->zstd, ZSTD_reset_session_only);
    unpack->packing = packing;
    unpack->is_inside = unpack->has_more = false;
}

const char *rt_unpack_problem(const rt_unpack *unpack)
{
    return unpack->problem;
}

bool rt_unpack_is_inside(const rt_unpack *unpack)
{
    return unpack->is_inside;
}

bool rt_unpack_has_more(const rt_unpack *unpack)
{
    return unpack->has_more;
}

// What stands where a stream of the packing should begin is something else: what was appended to a
// packed file, as its first bytes are looked at before they come here.
static rt_status other_bytes(rt_unpack *unpack, const char *packing)
{
    snprintf(unpack->problem, sizeof unpack->problem,
             "the packed data (%s) ends here, and the bytes that follow are not %s: cut them off, "
             "or pack the whole file anew",
             packing, packing);
    return RT_DATA;
}

static rt_status damaged(rt_unpack *unpack, const char *packing, const char *what)
{
    snprintf(unpack->problem, sizeof unpack->problem, "the packed data (%s) is damaged%s%s",
             packing, what ? ": " : "", what ? what : "");
    return RT_DATA;
}

static void skip_padding(const uint8_t **in_p, const uint8_t *end)
{
    while (*in_p < end && **in_p == 0)
        ++*in_p;
}

// ---- zstd ------------------------------------------------------------------------------------

static rt_status step_zstd(rt_unpack *unpack, const uint8_t **in_p, const uint8_t *end, char *out,
                           size_t room, size_t *count_p)
{
    if (!unpack->is_inside)
        skip_padding(in_p, end);
    if (*in_p == end && !unpack->is_inside)
        return RT_OK;
    ZSTD_inBuffer in = {*in_p, (size_t)(end - *in_p), 0};
    ZSTD_outBuffer to = {out, room, 0};
    const size_t awaited = ZSTD_decompressStream(unpack->zstd, &to, &in);
    if (ZSTD_getErrorCode(awaited) == ZSTD_error_prefix_unknown)
        return other_bytes(unpack, "zstd");
    if (ZSTD_isError(awaited))
        return damaged(unpack, "zstd", ZSTD_getErrorName(awaited));
    *in_p += in.pos;
    *count_p = to.pos;
    unpack->is_inside = awaited != 0;
    unpack->has_more = to.pos == room && awaited != 0;
    return RT_OK;
}

// ---- the others: a stream that ends, and perhaps another one behind it -----------------------

typedef enum { STEP_ON, STEP_STREAM_END, STEP_DAMAGED, STEP_NO_MEMORY } step_result;

static bool open_decoder(rt_unpack *unpack)
{
    unpack->gzip = (z_stream){0};
    unpack->xz = (lzma_stream)LZMA_STREAM_INIT;
    unpack->bzip2 = (bz_stream){0};
    if (unpack->packing == RT_PACKED_GZIP)
        return inflateInit2(&unpack->gzip, GZIP_WINDOW) == Z_OK;
    if (unpack->packing == RT_PACKED_XZ)
        return lzma_stream_decoder(&unpack->xz, XZ_MEMORY_MAX, 0) == LZMA_OK;
    return BZ2_bzDecompressInit(&unpack->bzip2, 0, 0) == BZ_OK;
}

static step_result step_gzip(rt_unpack *unpack, const uint8_t **in_p, const uint8_t *end, char *out,
                             size_t room, size_t *count_p)
{
    z_stream *z = &unpack->gzip;
    z->next_in = (Bytef *)(uintptr_t)*in_p;
    z->avail_in = (uInt)(end - *in_p);
    z->next_out = (Bytef *)out;
    z->avail_out = (uInt)room;
    const int result = inflate(z, Z_NO_FLUSH);
    *in_p = z->next_in;
    *count_p = room - z->avail_out;
    if (result == Z_STREAM_END)
        return STEP_STREAM_END;
    if (result == Z_MEM_ERROR)
        return STEP_NO_MEMORY;
    if (result == Z_OK || result == Z_BUF_ERROR)
        return STEP_ON;
    // So zlib names a wrong first byte, with a code that says nothing.
    if (z->msg && strcmp(z->msg, "incorrect header check") == 0)
        other_bytes(unpack, "gzip");
    else
        damaged(unpack, "gzip", z->msg);
    return STEP_DAMAGED;
}

static step_result step_xz(rt_unpack *unpack, const uint8_t **in_p, const uint8_t *end, char *out,
                           size_t room, size_t *count_p)
{
    lzma_stream *x = &unpack->xz;
    x->next_in = *in_p;
    x->avail_in = (size_t)(end - *in_p);
    x->next_out = (uint8_t *)out;
    x->avail_out = room;
    const lzma_ret result = lzma_code(x, LZMA_RUN);
    *in_p = x->next_in;
    *count_p = room - x->avail_out;
    if (result == LZMA_STREAM_END)
        return STEP_STREAM_END;
    if (result == LZMA_MEM_ERROR)
        return STEP_NO_MEMORY;
    if (result == LZMA_OK || result == LZMA_BUF_ERROR)
        return STEP_ON;
    if (result == LZMA_FORMAT_ERROR)
        other_bytes(unpack, "xz");
    else
        damaged(unpack, "xz",
                result == LZMA_MEMLIMIT_ERROR ? "needs more than 1 GiB to be unpacked" : NULL);
    return STEP_DAMAGED;
}

static step_result step_bzip2(rt_unpack *unpack, const uint8_t **in_p, const uint8_t *end,
                              char *out, size_t room, size_t *count_p)
{
    bz_stream *b = &unpack->bzip2;
    b->next_in = (char *)(uintptr_t)*in_p;
    b->avail_in = (unsigned)(end - *in_p);
    b->next_out = out;
    b->avail_out = (unsigned)room;
    const int result = BZ2_bzDecompress(b);
    *in_p = (const uint8_t *)b->next_in;
    *count_p = room - b->avail_out;
    if (result == BZ_STREAM_END)
        return STEP_STREAM_END;
    if (result == BZ_MEM_ERROR)
        return STEP_NO_MEMORY;
    if (result == BZ_OK)
        return STEP_ON;
    if (result == BZ_DATA_ERROR_MAGIC)
        other_bytes(unpack, "bzip2");
    else
        damaged(unpack, "bzip2", NULL);
    return STEP_DAMAGED;
}

static rt_status step_stream(rt_unpack *unpack, const uint8_t **in_p, const uint8_t *end, char *out,
                             size_t room, size_t *count_p)
{
    if (!unpack->is_open)
        skip_padding(in_p, end);
    if (!unpack->is_open && *in_p == end)
        return RT_OK;
    if (!unpack->is_open && !open_decoder(unpack))
        return RT_NO_MEMORY;
    unpack->is_open = unpack->is_inside = true;
    step_result result;
    if (unpack->packing == RT_PACKED_GZIP)
        result = step_gzip(unpack, in_p, end, out, room, count_p);
    else if (unpack->packing == RT_PACKED_XZ)
        result = step_xz(unpack, in_p, end, out, room, count_p);
    else
        result = step_bzip2(unpack, in_p, end, out, room, count_p);
    if (result == STEP_DAMAGED)
        return RT_DATA;
    if (result == STEP_NO_MEMORY)
        return RT_NO_MEMORY;
    if (result == STEP_STREAM_END) {
        close_decoder(unpack);
        unpack->is_inside = false;
    }
    unpack->has_more = *in_p < end || (result == STEP_ON && *count_p == room);
    return RT_OK;
}

rt_status rt_unpack_step(rt_unpack *unpack, const uint8_t **in_p, const uint8_t *end, char *out,
                         size_t room, size_t *count_p)
{
    *count_p = 0;
    unpack->has_more = false;
    if (unpack->packing == RT_PACKED_ZSTD)
        return step_zstd(unpack, in_p, end, out, room, count_p);
    return step_stream(unpack, in_p, end, out, room, count_p);
}
