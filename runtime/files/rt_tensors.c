#include "runtime/files/rt_tensors.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/files/rt_file.h"
#include "runtime/rt_hash.h"

#define MAGIC UINT64_C(0x534e45544e594c52) // "RLYNTENS"
#define VERSION 1u
#define ALIGN 64u

typedef struct {
    uint64_t magic;
    uint32_t version;
    uint32_t tensor_count;
    uint64_t file_bytes;
    uint64_t checksum; // XXH3 of the directory that follows
} file_header;
_Static_assert(sizeof(file_header) == 32, "file layout");

typedef struct {
    char name[RT_TENSOR_NAME_MAX];
    uint32_t rank;
    uint32_t reserved;
    uint64_t shape[RT_TENSOR_RANK_MAX]; // beyond rank: 0
    uint64_t offset;                    // in the file, a multiple of ALIGN
    uint64_t value_count;
    uint64_t checksum; // XXH3 of the values
} file_entry;
_Static_assert(sizeof(file_entry) == 128, "file layout");

struct rt_tensors {
    uint8_t *bytes;
    uint64_t size;
    uint32_t count;
    rt_tensor *tensors;
};

static uint64_t align_up(uint64_t offset)
{
    return (offset + ALIGN - 1) / ALIGN * ALIGN;
}

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

static void fill_directory(const rt_tensor *tensors, uint32_t count, file_header *header,
                           file_entry *entries)
{
    uint64_t end = align_up(sizeof *header + count * sizeof *entries);
    for (uint32_t i = 0; i < count; i++) {
        file_entry *entry = &entries[i];
        rt_assert(tensors[i].rank <= RT_TENSOR_RANK_MAX);
        rt_assert(memchr(tensors[i].name, 0, sizeof tensors[i].name));
        bool fits = value_count(tensors[i].rank, tensors[i].shape, &entry->value_count);
        rt_assert(fits);
        strcpy(entry->name, tensors[i].name);
        entry->rank = tensors[i].rank;
        memcpy(entry->shape, tensors[i].shape, entry->rank * sizeof entry->shape[0]);
        entry->offset = end;
        entry->checksum = rt_hash_bytes(tensors[i].values, entry->value_count * sizeof(float));
        end = align_up(end + entry->value_count * sizeof(float));
    }
    *header =
        (file_header){MAGIC, VERSION, count, end, rt_hash_bytes(entries, count * sizeof *entries)};
}

rt_status rt_tensors_encode(const rt_tensor *tensors, uint32_t count, rt_bytes *bytes)
{
    if (count > RT_TENSORS_MAX)
        return RT_LIMIT;
    const size_t directory_bytes = sizeof(file_header) + count * sizeof(file_entry);
    uint8_t *directory = rt_alloc(1, directory_bytes);
    if (!directory)
        return RT_NO_MEMORY;
    file_header *header = (file_header *)(void *)directory;
    file_entry *entries = (file_entry *)(void *)(directory + sizeof *header);
    fill_directory(tensors, count, header, entries);
    uint8_t *out = rt_bytes_extend(bytes, header->file_bytes);
    if (out) {
        memset(out, 0, header->file_bytes);
        memcpy(out, directory, directory_bytes);
    }
    for (uint32_t i = 0; out && i < count; i++)
        memcpy(out + entries[i].offset, tensors[i].values, entries[i].value_count * sizeof(float));
    rt_free(directory);
    return out ? RT_OK : RT_NO_MEMORY;
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
    if (status != RT_OK)
        rt_fail(error, status, "out of memory: %s", path);
    if (status == RT_OK)
        status = rt_file_create(path, &file, error);
    if (status == RT_OK) {
        status = rt_file_write(file, bytes.data, bytes.size, error);
        if (status == RT_OK)
            status = rt_file_commit(file, error);
        else
            rt_file_abort(file);
    }
    rt_bytes_fini(&bytes);
    return status;
}

static rt_status read_all(const char *path, rt_tensors *tensors, rt_error *error)
{
    struct stat info;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return rt_fail(error, RT_IO, "cannot open %s: %s", path, strerror(errno));
    rt_status status = RT_OK;
    if (fstat(descriptor, &info) != 0)
        status = rt_fail(error, RT_IO, "cannot read %s: %s", path, strerror(errno));
    else if (!(tensors->bytes = rt_alloc(1, (size_t)info.st_size)))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory: %s has %lld bytes", path,
                         (long long)info.st_size);
    while (status == RT_OK && tensors->size < (uint64_t)info.st_size) {
        ssize_t got =
            read(descriptor, tensors->bytes + tensors->size, (size_t)info.st_size - tensors->size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            status = rt_fail(error, RT_IO, "cannot read %s: %s", path,
                             got ? strerror(errno) : "it became shorter");
        else
            tensors->size += (uint64_t)got;
    }
    close(descriptor);
    return status;
}

static rt_status check_header(const char *path, const rt_tensors *tensors, rt_error *error)
{
    const file_header *header = (const file_header *)(void *)tensors->bytes;
    if (tensors->size < sizeof *header || header->magic != MAGIC)
        return rt_fail(error, RT_DATA, "%s is not a file of tensors", path);
    if (header->version != VERSION)
        return rt_fail(error, RT_DATA, "%s has format version %u, expected %u", path,
                       header->version, VERSION);
    if (header->file_bytes != tensors->size)
        return rt_fail(error, RT_DATA, "%s has %llu bytes, its header says %llu", path,
                       (unsigned long long)tensors->size, (unsigned long long)header->file_bytes);
    const uint64_t directory_bytes = header->tensor_count * sizeof(file_entry);
    if (header->tensor_count > RT_TENSORS_MAX || sizeof *header + directory_bytes > tensors->size ||
        rt_hash_bytes(header + 1, directory_bytes) != header->checksum)
        return rt_fail(error, RT_DATA, "%s: the directory of tensors is damaged", path);
    return RT_OK;
}

static rt_status take_entry(const char *path, rt_tensors *tensors, const file_entry *entry,
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

// Validates the bytes, which are in place.
static rt_status take_all(const char *path, rt_tensors *tensors, rt_error *error)
{
    rt_status status = check_header(path, tensors, error);
    if (status != RT_OK)
        return status;
    const file_header *header = (const file_header *)(void *)tensors->bytes;
    const file_entry *entries = (const file_entry *)(const void *)(header + 1);
    tensors->tensors = rt_alloc(header->tensor_count, sizeof *tensors->tensors);
    if (!tensors->tensors)
        status = rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    for (uint32_t i = 0; status == RT_OK && i < header->tensor_count; i++)
        status = take_entry(path, tensors, &entries[i], error);
    return status;
}

rt_status rt_tensors_open(const char *path, rt_tensors **tensors_p, rt_error *error)
{
    rt_tensors *tensors = rt_alloc(1, sizeof *tensors);
    if (!tensors)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    rt_status status = read_all(path, tensors, error);
    if (status == RT_OK)
        status = take_all(path, tensors, error);
    if (status != RT_OK) {
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
    if (status != RT_OK) {
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
