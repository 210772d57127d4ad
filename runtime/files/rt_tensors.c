#include "runtime/files/rt_tensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/files/rt_file.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_build.h"

// What every file begins with, behind the length of its header: then 16 hexadecimal digits, the
// XXH3 of all that follows them, and DIGITS_END.
#define FORMAT 2u
#define BEGIN_FORMAT "{\"__metadata__\":{\"lanyard\":\""
#define BEGIN BEGIN_FORMAT "2\",\"xxh3\":\""
#define DIGITS 16u
#define DIGITS_END "\"}"
#define DIGITS_AT (sizeof(uint64_t) + sizeof BEGIN - 1)
#define ALIGN 64u // of the values in the file

// The layout before, version 1, which is still read.
#define OLD_MAGIC UINT64_C(0x534e45544e594c52) // "RLYNTENS"
#define OLD_VERSION 1u

typedef struct {
    uint64_t magic;
    uint32_t version;
    uint32_t tensor_count;
    uint64_t file_bytes;
    uint64_t checksum; // XXH3 of the directory that follows
} old_header;
_Static_assert(sizeof(old_header) == 32, "file layout");

typedef struct {
    char name[RT_TENSOR_NAME_MAX];
    uint32_t rank;
    uint32_t reserved;
    uint64_t shape[RT_TENSOR_RANK_MAX]; // beyond rank: 0
    uint64_t offset;                    // in the file, a multiple of ALIGN
    uint64_t value_count;
    uint64_t checksum; // XXH3 of the values
} old_entry;
_Static_assert(sizeof(old_entry) == 128, "file layout");

struct rt_tensors {
    uint8_t *bytes;
    uint64_t size;
    uint32_t count;
    rt_tensor *tensors;
};

// False when the product does not fit.
static bool value_count(uint32_t rank, const uint64_t *shape, uint64_t *count_p)
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < rank; i++)
        if (__builtin_mul_overflow(count, shape[i], &count))
            return false;
    *count_p = count;
    return count <= UINT64_MAX / 16;
}

// ---- writing ---------------------------------------------------------------------------------

static void put_text(rt_bytes *bytes, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void put_text(rt_bytes *bytes, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    rt_assert(length >= 0 && (size_t)length < sizeof text);
    rt_bytes_put(bytes, text, (size_t)length);
}

// Names are ours: what JSON would have to escape is not in them.
static bool is_plain(const char *name)
{
    for (; *name; name++)
        if (*name < ' ' || *name > '~' || *name == '"' || *name == '\\')
            return false;
    return true;
}

// Returns where its values end.
static uint64_t put_entry(rt_bytes *bytes, const rt_tensor *tensor, uint64_t begin)
{
    uint64_t count = 0;
    rt_assert(tensor->rank <= RT_TENSOR_RANK_MAX);
    rt_assert(memchr(tensor->name, 0, sizeof tensor->name) && is_plain(tensor->name));
    const bool fits = value_count(tensor->rank, tensor->shape, &count);
    rt_assert(fits);
    const uint64_t end = begin + count * sizeof(float);
    put_text(bytes, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[", tensor->name);
    for (uint32_t i = 0; i < tensor->rank; i++)
        put_text(bytes, "%s%" PRIu64, i ? "," : "", tensor->shape[i]);
    put_text(bytes, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, end);
    return end;
}

rt_status rt_tensors_encode(const rt_tensor *tensors, uint32_t count, rt_bytes *bytes)
{
    const size_t start = bytes->size;
    uint64_t end = 0;
    if (count > RT_TENSORS_MAX)
        return RT_LIMIT;
    rt_bytes_put_u64(bytes, 0);
    put_text(bytes, BEGIN "%0*d" DIGITS_END, (int)DIGITS, 0);
    for (uint32_t i = 0; i < count; i++)
        end = put_entry(bytes, &tensors[i], end);
    put_text(bytes, "}");
    while ((bytes->size - start) % ALIGN && !bytes->failed)
        put_text(bytes, " ");
    const uint64_t header_bytes = bytes->size - start - sizeof header_bytes;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t values = 0;
        (void)value_count(tensors[i].rank, tensors[i].shape, &values);
        rt_bytes_put(bytes, tensors[i].values, values * sizeof(float));
    }
    if (bytes->failed)
        return RT_NO_MEMORY;
    uint8_t *file = bytes->data + start;
    char digits[DIGITS + 1];
    const size_t hashed = DIGITS_AT + DIGITS;
    snprintf(digits, sizeof digits, "%016" PRIx64,
             rt_hash_bytes(file + hashed, bytes->size - start - hashed));
    memcpy(file, &header_bytes, sizeof header_bytes);
    memcpy(file + DIGITS_AT, digits, DIGITS);
    return RT_OK;
}

rt_status rt_tensors_encode_values(const rt_tensors *tensors, rt_bytes *bytes)
{
    uint32_t count = 0;
    rt_tensor *all = rt_alloc(rt_tensors_count(tensors) + 1u, sizeof *all);
    if (!all)
        return RT_NO_MEMORY;
    for (uint32_t i = 0; i < rt_tensors_count(tensors); i++)
        if (strcmp(rt_tensors_at(tensors, i)->name, RT_TENSOR_STATE) != 0)
            all[count++] = *rt_tensors_at(tensors, i);
    const rt_status status = rt_tensors_encode(all, count, bytes);
    rt_free(all);
    return status;
}

rt_status rt_tensors_write(const char *path, const rt_tensor *tensors, uint32_t count,
                           rt_error *error)
{
    rt_bytes bytes = {0};
    rt_file *file = NULL;
    rt_status status = rt_tensors_encode(tensors, count, &bytes);
    if (status == RT_LIMIT)
        return rt_fail(error, RT_LIMIT, "%s: %u tensors, at most %u fit into a file", path, count,
                       RT_TENSORS_MAX);
    if (status)
        rt_fail(error, status, "out of memory: %s", path);
    if (!status)
        status = rt_file_create(path, &file, error);
    if (!status) {
        status = rt_file_write(file, bytes.data, bytes.size, error);
        if (!status)
            status = rt_file_commit(file, error);
        else
            rt_file_abort(file);
    }
    rt_bytes_fini(&bytes);
    return status;
}

// ---- reading ---------------------------------------------------------------------------------

static rt_status read_bytes(const char *path, int descriptor, rt_tensors *tensors, rt_error *error)
{
    struct stat info;
    if (fstat(descriptor, &info) != 0)
        return rt_fail(error, RT_IO, "cannot read %s: %s", path, strerror(errno));
    const uint64_t size = (uint64_t)info.st_size;
    tensors->bytes = rt_alloc(1, size);
    if (!tensors->bytes)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s has %" PRIu64 " bytes", path, size);
    while (tensors->size < size) {
        ssize_t got = read(descriptor, tensors->bytes + tensors->size, size - tensors->size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return rt_fail(error, RT_IO, "cannot read %s: %s", path, strerror(errno));
        if (got == 0)
            return rt_fail(error, RT_IO, "cannot read %s: it became shorter", path);
        tensors->size += (uint64_t)got;
    }
    return RT_OK;
}

static rt_status read_all(const char *path, rt_tensors *tensors, rt_error *error)
{
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return rt_fail(error, RT_IO, "cannot open %s: %s", path, strerror(errno));
    const rt_status status = read_bytes(path, descriptor, tensors, error);
    close(descriptor);
    return status;
}

// The header, as strict as it is written; text: where it goes on.
typedef struct {
    const char *text, *end;
} scanner;

static bool skip(scanner *at, const char *text)
{
    const size_t length = strlen(text);
    if ((size_t)(at->end - at->text) < length || memcmp(at->text, text, length) != 0)
        return false;
    at->text += length;
    return true;
}

static bool scan_number(scanner *at, uint64_t *number_p)
{
    const char *begin = at->text;
    uint64_t number = 0;
    for (; at->text < at->end && *at->text >= '0' && *at->text <= '9'; at->text++)
        if (__builtin_mul_overflow(number, UINT64_C(10), &number) ||
            __builtin_add_overflow(number, (uint64_t)(*at->text - '0'), &number))
            return false;
    *number_p = number;
    return at->text > begin;
}

static bool scan_name(scanner *at, char name[RT_TENSOR_NAME_MAX])
{
    uint32_t length = 0;
    while (at->text < at->end && *at->text != '"' && length < RT_TENSOR_NAME_MAX - 1)
        name[length++] = *at->text++;
    name[length] = '\0';
    return is_plain(name) && strlen(name) == length && skip(at, "\"");
}

static bool scan_shape(scanner *at, rt_tensor *tensor)
{
    while (!skip(at, "]")) {
        if (tensor->rank == RT_TENSOR_RANK_MAX || (tensor->rank && !skip(at, ",")) ||
            !scan_number(at, &tensor->shape[tensor->rank++]))
            return false;
    }
    return true;
}

static bool scan_entry(scanner *at, rt_tensor *tensor, uint64_t *begin_p, uint64_t *end_p)
{
    return skip(at, ",\"") && scan_name(at, tensor->name) &&
           skip(at, ":{\"dtype\":\"F32\",\"shape\":[") && scan_shape(at, tensor) &&
           skip(at, ",\"data_offsets\":[") && scan_number(at, begin_p) && skip(at, ",") &&
           scan_number(at, end_p) && skip(at, "]}");
}

// The entries and what ends the header. *values_p: in the bytes, where the values begin.
static rt_status take_entries(const char *path, rt_tensors *tensors, scanner at, uint64_t values,
                              rt_error *error)
{
    uint64_t begin = 0, end = 0, last = 0, count = 0;
    while (at.text < at.end && *at.text == ',') {
        rt_tensor *tensor = &tensors->tensors[tensors->count];
        if (tensors->count == RT_TENSORS_MAX || !scan_entry(&at, tensor, &begin, &end))
            return rt_fail(error, RT_DATA, "%s: entry %u of the header is damaged", path,
                           tensors->count);
        if (rt_tensors_find(tensors, tensor->name))
            return rt_fail(error, RT_DATA, "%s: a second tensor %s", path, tensor->name);
        if (!value_count(tensor->rank, tensor->shape, &count) || begin != last || end < begin ||
            end > tensors->size - values || end - begin != count * sizeof(float))
            return rt_fail(error, RT_DATA, "%s: shape or place of tensor %s is impossible", path,
                           tensor->name);
        tensor->values = (const float *)(const void *)(tensors->bytes + values + begin);
        last = end;
        tensors->count++;
    }
    bool ends = skip(&at, "}") && last == tensors->size - values;
    while (skip(&at, " "))
        ;
    if (!ends || at.text != at.end)
        return rt_fail(error, RT_DATA,
                       "%s: its header and its %" PRIu64 " bytes do not "
                       "match",
                       path, tensors->size);
    return RT_OK;
}

static unsigned format_at(const char *text)
{
    unsigned format = 0;
    for (uint32_t i = 0; i < 4 && text[i] >= '0' && text[i] <= '9'; i++)
        format = 10 * format + (unsigned)(text[i] - '0');
    return format;
}

static rt_status take_safetensors(const char *path, rt_tensors *tensors, rt_error *error)
{
    const size_t hashed = DIGITS_AT + DIGITS;
    const char *begin = (const char *)tensors->bytes + sizeof(uint64_t);
    uint64_t header_bytes = 0;
    char digits[DIGITS + 1];
    if (tensors->size >= sizeof header_bytes)
        memcpy(&header_bytes, tensors->bytes, sizeof header_bytes);
    if (tensors->size < hashed || header_bytes > tensors->size - sizeof header_bytes ||
        memcmp(begin, BEGIN_FORMAT, sizeof BEGIN_FORMAT - 1) != 0)
        return rt_fail(error, RT_DATA, "%s is not a file of tensors that lanyard wrote", path);
    const unsigned format = format_at(begin + sizeof BEGIN_FORMAT - 1);
    if (format > FORMAT)
        return rt_fail_format(error, path, format, FORMAT, NULL);
    if (memcmp(begin, BEGIN, sizeof BEGIN - 1) != 0)
        return rt_fail(error, RT_DATA, "%s is not a file of tensors that lanyard wrote", path);
    snprintf(digits, sizeof digits, "%016" PRIx64,
             rt_hash_bytes(tensors->bytes + hashed, tensors->size - hashed));
    if (memcmp(digits, tensors->bytes + DIGITS_AT, DIGITS) != 0)
        return rt_fail(error, RT_DATA, "%s is damaged (checksum)", path);
    const uint64_t values = sizeof header_bytes + header_bytes;
    scanner at = {(const char *)tensors->bytes + hashed, (const char *)tensors->bytes + values};
    if (values % ALIGN || !skip(&at, DIGITS_END))
        return rt_fail(error, RT_DATA, "%s: its header is damaged", path);
    return take_entries(path, tensors, at, values, error);
}

// ---- the layout before -----------------------------------------------------------------------

static rt_status check_old(const char *path, const rt_tensors *tensors, rt_error *error)
{
    const old_header *header = (const old_header *)(void *)tensors->bytes;
    if (header->version != OLD_VERSION)
        return rt_fail_format(error, path, header->version, OLD_VERSION, NULL);
    if (header->file_bytes != tensors->size)
        return rt_fail(error, RT_DATA, "%s has %" PRIu64 " bytes, its header says %" PRIu64, path,
                       tensors->size, header->file_bytes);
    const uint64_t directory_bytes = header->tensor_count * sizeof(old_entry);
    if (header->tensor_count > RT_TENSORS_MAX || sizeof *header + directory_bytes > tensors->size ||
        rt_hash_bytes(header + 1, directory_bytes) != header->checksum)
        return rt_fail(error, RT_DATA, "%s: the directory of tensors is damaged", path);
    return RT_OK;
}

static rt_status take_old_entry(const char *path, rt_tensors *tensors, const old_entry *entry,
                                rt_error *error)
{
    rt_tensor *tensor = &tensors->tensors[tensors->count];
    uint64_t count = 0;
    if (!memchr(entry->name, 0, sizeof entry->name))
        return rt_fail(error, RT_DATA, "%s: tensor %u has an endless name", path, tensors->count);
    if (rt_tensors_find(tensors, entry->name))
        return rt_fail(error, RT_DATA, "%s: a second tensor %s", path, entry->name);
    if (entry->rank > RT_TENSOR_RANK_MAX || !value_count(entry->rank, entry->shape, &count) ||
        count != entry->value_count || entry->offset % ALIGN || entry->offset > tensors->size ||
        count * sizeof(float) > tensors->size - entry->offset)
        return rt_fail(error, RT_DATA, "%s: shape or place of tensor %s is impossible", path,
                       entry->name);
    if (rt_hash_bytes(tensors->bytes + entry->offset, count * sizeof(float)) != entry->checksum)
        return rt_fail(error, RT_DATA, "%s: the values of tensor %s are damaged", path,
                       entry->name);
    memcpy(tensor->name, entry->name, sizeof tensor->name);
    tensor->rank = entry->rank;
    memcpy(tensor->shape, entry->shape, sizeof tensor->shape);
    tensor->values = (const float *)(const void *)(tensors->bytes + entry->offset);
    tensors->count++;
    return RT_OK;
}

static bool is_old(const rt_tensors *tensors)
{
    const old_header *header = (const old_header *)(void *)tensors->bytes;
    return tensors->size >= sizeof *header && header->magic == OLD_MAGIC;
}

static rt_status take_old(const char *path, rt_tensors *tensors, rt_error *error)
{
    const old_header *header = (const old_header *)(void *)tensors->bytes;
    const old_entry *entries = (const old_entry *)(const void *)(header + 1);
    rt_status status = check_old(path, tensors, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < header->tensor_count; i++) {
        status = take_old_entry(path, tensors, &entries[i], error);
        if (status)
            return status;
    }
    return RT_OK;
}

// ---- files and bytes -------------------------------------------------------------------------

// Validates the bytes, which are in place.
static rt_status take_all(const char *path, rt_tensors *tensors, rt_error *error)
{
    tensors->tensors = rt_alloc(RT_TENSORS_MAX, sizeof *tensors->tensors);
    if (!tensors->tensors)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    if (is_old(tensors))
        return take_old(path, tensors, error);
    return take_safetensors(path, tensors, error);
}

rt_status rt_tensors_open(const char *path, rt_tensors **tensors_p, rt_error *error)
{
    rt_tensors *tensors = rt_alloc(1, sizeof *tensors);
    if (!tensors)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    rt_status status = read_all(path, tensors, error);
    if (!status)
        status = take_all(path, tensors, error);
    if (status) {
        rt_tensors_close(tensors);
        return status;
    }
    *tensors_p = tensors;
    return RT_OK;
}

rt_status rt_tensors_decode(const char *name, const void *bytes, size_t size,
                            rt_tensors **tensors_p, rt_error *error)
{
    if (size == 0)
        return rt_fail(error, RT_DATA, "%s is empty", name);
    rt_tensors *tensors = rt_alloc(1, sizeof *tensors);
    if (tensors)
        tensors->bytes = rt_alloc(1, size);
    if (!tensors || !tensors->bytes) {
        rt_tensors_close(tensors);
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", name);
    }
    memcpy(tensors->bytes, bytes, size);
    tensors->size = size;
    rt_status status = take_all(name, tensors, error);
    if (status) {
        rt_tensors_close(tensors);
        return status;
    }
    *tensors_p = tensors;
    return RT_OK;
}

void rt_tensors_close(rt_tensors *tensors)
{
    if (!tensors)
        return;
    rt_free(tensors->bytes);
    rt_free(tensors->tensors);
    rt_free(tensors);
}

uint32_t rt_tensors_count(const rt_tensors *tensors)
{
    return tensors->count;
}

const rt_tensor *rt_tensors_at(const rt_tensors *tensors, uint32_t index)
{
    rt_assert(index < tensors->count);
    return &tensors->tensors[index];
}

const rt_tensor *rt_tensors_find(const rt_tensors *tensors, const char *name)
{
    for (uint32_t i = 0; i < tensors->count; i++)
        if (strcmp(tensors->tensors[i].name, name) == 0)
            return &tensors->tensors[i];
    return NULL;
}
