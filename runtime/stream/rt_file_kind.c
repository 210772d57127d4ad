#include "runtime/stream/rt_file_kind.h"

#include <string.h>

typedef struct {
    const char *magic;
    uint32_t size;
    uint32_t at;  // where it stands
    bool is_text; // it could begin a line: then a zero byte must follow somewhere
    rt_file_kind kind;
} known;

#define MAGIC(bytes) bytes, sizeof bytes - 1
#define PACKED(name, packing)            \
    {                                    \
        name, packing, true, false, NULL \
    }
#define OTHER(name, advice)                       \
    {                                             \
        name, RT_PACKED_NOT, false, false, advice \
    }
#define COLUMNS(name)                                   \
    {                                                   \
        name, RT_PACKED_NOT, true, true, COLUMNS_ADVICE \
    }
#define COLUMNS_ADVICE "lanyard-parquet FILE writes its rows as lines, for stream.files=-"
#define PACKER_ADVICE "unpack it, or pack it with gzip, xz, bzip2 or zstd"
#define SHEET_ADVICE "save the sheet as CSV"

static const known kinds[] = {
    {MAGIC("\x28\xb5\x2f\xfd"), 0, false, PACKED("zstd", RT_PACKED_ZSTD)},
    {MAGIC("\x1f\x8b"), 0, false, PACKED("gzip", RT_PACKED_GZIP)},
    {MAGIC("\xfd"
           "7zXZ\0"),
     0, false, PACKED("xz", RT_PACKED_XZ)},
    {MAGIC("BZh"), 0, true, PACKED("bzip2", RT_PACKED_BZIP2)},
    {MAGIC("PAR1"), 0, true, COLUMNS("a Parquet file")},
    {MAGIC("ARROW1\0"), 0, false, COLUMNS("an Arrow file")},
    {MAGIC("FEA1"), 0, true, COLUMNS("a Feather file")},
    {MAGIC("\xff\xff\xff\xff"), 0, false, COLUMNS("an Arrow stream")},
    {MAGIC("ORC"), 0, true, COLUMNS("an ORC file")},
    {MAGIC("Obj\x01"), 0, false, OTHER("an Avro file", "write its records as JSON lines")},
    {MAGIC("PK\x03\x04"), 0, false,
     OTHER("a zip file, or a sheet of Excel or LibreOffice (.xlsx, .ods)",
           "unzip it, or save the sheet as CSV")},
    {MAGIC("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), 0, false,
     OTHER("a file of Microsoft Office (.xls)", SHEET_ADVICE)},
    {MAGIC("SQLite format 3\0"), 0, false,
     OTHER("an SQLite database", "sqlite3 -csv -header FILE 'select * from ...' writes a table")},
    {MAGIC("%PDF-"), 0, false, OTHER("a PDF document", "it holds no rows")},
    {MAGIC("\x89HDF\r\n\x1a\n"), 0, false, OTHER("an HDF5 file", "write its table as CSV")},
    {MAGIC("\x93NUMPY"), 0, false, OTHER("an array of numpy", "numpy.savetxt writes it as text")},
    {MAGIC("\x04\x22\x4d\x18"), 0, false, OTHER("packed with lz4", PACKER_ADVICE)},
    {MAGIC("\x1f\x9d"), 0, false, OTHER("packed with compress", PACKER_ADVICE)},
    {MAGIC("LZIP"), 0, true, OTHER("packed with lzip", PACKER_ADVICE)},
    {MAGIC("\xff\x06\x00\x00sNaPpY"), 0, false, OTHER("packed with snappy", PACKER_ADVICE)},
    {MAGIC("7z\xbc\xaf\x27\x1c"), 0, false, OTHER("a 7-Zip archive", PACKER_ADVICE)},
    {MAGIC("Rar!\x1a"), 0, false, OTHER("a RAR archive", PACKER_ADVICE)},
    {MAGIC("ustar"), 257, true, OTHER("a tar archive", "take its files out with tar -x")},
    {MAGIC("\x89PNG"), 0, false, OTHER("a picture", "it holds no rows")},
    {MAGIC("\xff\xd8\xff"), 0, false, OTHER("a picture", "it holds no rows")},
    {MAGIC("\x7f"
           "ELF"),
     0, false, OTHER("a program", "it holds no rows")},
    {MAGIC("\xff\xfe\0\0"), 0, false, OTHER("UTF-32 text", "iconv -t UTF-8 makes text of it")},
    {MAGIC("\0\0\xfe\xff"), 0, false, OTHER("UTF-32 text", "iconv -t UTF-8 makes text of it")},
};

// A frame of zstd may be preceded by skippable frames (RFC 8878, section 3.1.2), whose first byte
// has 16 values.
static bool is_skippable(const uint8_t *bytes, size_t count)
{
    static const uint8_t rest[] = {0x2a, 0x4d, 0x18};
    return (bytes[0] & 0xf0) == 0x50 && memcmp(bytes + 1, rest, rt_min_u64(count - 1, 3)) == 0;
}

static bool has_control(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] < 0x20 && bytes[i] != '\t' && bytes[i] != '\n' && bytes[i] != '\r')
            return true;
    return false;
}

rt_file_kind rt_file_kind_of(const uint8_t *bytes, size_t count, bool *may_tell_more)
{
    static const rt_file_kind text = {NULL, RT_PACKED_NOT, true, false, NULL};
    *may_tell_more = count == 0;
    if (count == 0)
        return text;
    if (is_skippable(bytes, count)) {
        *may_tell_more = count < 4;
        return count < 4 ? text : kinds[0].kind;
    }
    for (size_t i = 0; i < RT_COUNT_OF(kinds); i++) {
        const known *one = &kinds[i];
        const size_t whole = one->at + one->size;
        if (one->at > 0 && count < whole)
            continue; // what would be waited for is a line of text, as a rule
        const size_t compared = rt_min_u64(count - one->at, one->size);
        if (memcmp(bytes + one->at, one->magic, compared) != 0)
            continue;
        if (compared == one->size && (!one->is_text || has_control(bytes, count)))
            return one->kind;
        *may_tell_more |= compared < one->size || count < RT_FILE_KIND_BYTES;
    }
    return text;
}

rt_packing rt_file_kind_named(const char *path, const char **ending_p, const char **name_p)
{
    static const struct {
        const char *ending, *name;
        rt_packing packing;
    } endings[] = {{".zst", "zstd", RT_PACKED_ZSTD},
                   {".gz", "gzip", RT_PACKED_GZIP},
                   {".xz", "xz", RT_PACKED_XZ},
                   {".bz2", "bzip2", RT_PACKED_BZIP2}};
    const size_t length = strlen(path);
    for (size_t i = 0; i < RT_COUNT_OF(endings); i++) {
        const size_t size = strlen(endings[i].ending);
        if (length <= size || strcmp(path + length - size, endings[i].ending) != 0)
            continue;
        *ending_p = endings[i].ending;
        *name_p = endings[i].name;
        return endings[i].packing;
    }
    return RT_PACKED_NOT;
}

// ---- UTF-16 ----------------------------------------------------------------------------------

rt_wide rt_file_kind_wide(const uint8_t *bytes, size_t count, bool *may_tell_more)
{
    *may_tell_more = count < 2;
    if (count < 2)
        return RT_WIDE_NOT;
    if (bytes[0] == 0xff && bytes[1] == 0xfe)
        return RT_WIDE_LITTLE;
    if (bytes[0] == 0xfe && bytes[1] == 0xff)
        return RT_WIDE_BIG;
    if (!bytes[0] == !bytes[1]) // none of them zero, or both
        return RT_WIDE_NOT;
    *may_tell_more = count < 4;
    if (count < 4 || !bytes[0] != !bytes[2] || !bytes[1] != !bytes[3])
        return RT_WIDE_NOT;
    return bytes[0] ? RT_WIDE_LITTLE : RT_WIDE_BIG;
}

static size_t write_utf8(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    const uint32_t more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t first[] = {0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(first[more] | c >> (6 * more));
    for (uint32_t i = 1; i <= more; i++)
        out[i] = (char)(0x80 | (c >> (6 * (more - i)) & 0x3f));
    return more + 1;
}

size_t rt_file_kind_narrow(rt_wide wide, const uint8_t *bytes, size_t size, bool is_end, char *out,
                           size_t *used_p)
{
    const uint32_t high = wide == RT_WIDE_BIG ? 0 : 1, replacement = 0xfffd;
    size_t at = 0, count = 0;
    while (at + 2 <= size) {
        uint32_t c = (uint32_t)bytes[at + high] << 8 | bytes[at + 1 - high];
        size_t step = 2;
        if ((c & 0xfc00) == 0xd800) {
            if (at + 4 > size && !is_end)
                break;
            const uint32_t low =
                at + 4 > size ? 0 : (uint32_t)bytes[at + 2 + high] << 8 | bytes[at + 3 - high];
            const bool is_pair = (low & 0xfc00) == 0xdc00;
            c = is_pair ? 0x10000 + ((c & 0x3ff) << 10) + (low & 0x3ff) : replacement;
            step = is_pair ? 4 : 2;
        } else if ((c & 0xfc00) == 0xdc00) {
            c = replacement;
        }
        count += write_utf8(c, out + count);
        at += step;
    }
    *used_p = is_end ? size : at;
    return count;
}
