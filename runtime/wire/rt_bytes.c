#define _GNU_SOURCE // mremap
#include "runtime/wire/rt_bytes.h"

#include <string.h>
#include <sys/mman.h>

#define CAPACITY_MIN 4096u
// Blocks of so many bytes are no part of the heap: what a checkpoint takes is of another size each
// time, and would leave holes there that nothing else fits into.
#define MAPPED_MIN ((size_t)1 << 18)

static void give_back(uint8_t *data, size_t capacity)
{
    if (capacity >= MAPPED_MIN)
        (void)munmap(data, capacity);
    else
        rt_free(data);
}

void rt_bytes_fini(rt_bytes *bytes)
{
    give_back(bytes->data, bytes->capacity);
    *bytes = (rt_bytes){0};
}

static uint8_t *map(size_t capacity)
{
    void *data = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED ? NULL : data;
}

// Of a mapped block: where it is now. NULL: it stays as it was.
static uint8_t *stretch(uint8_t *data, size_t capacity, size_t wanted)
{
    void *now = mremap(data, capacity, wanted, MREMAP_MAYMOVE);
    return now == MAP_FAILED ? NULL : now;
}

static uint8_t *take(size_t capacity)
{
    if (capacity >= MAPPED_MIN)
        return map(capacity);
    return rt_alloc(capacity, 1);
}

// A larger block with what was in it; or it has failed.
static void enlarge(rt_bytes *bytes, size_t capacity)
{
    const bool is_mapped = bytes->capacity >= MAPPED_MIN;
    uint8_t *data = is_mapped ? stretch(bytes->data, bytes->capacity, capacity) : take(capacity);
    bytes->failed = !data;
    if (!data)
        return;
    if (!is_mapped && bytes->size)
        memcpy(data, bytes->data, bytes->size);
    if (!is_mapped)
        rt_free(bytes->data);
    bytes->data = data;
    bytes->capacity = capacity;
}

bool rt_bytes_reserve(rt_bytes *bytes, size_t size)
{
    const size_t wanted = bytes->size + size;
    if (wanted < size || wanted > SIZE_MAX / 4)
        bytes->failed = true;
    if (!bytes->failed && size > bytes->capacity - bytes->size)
        enlarge(bytes, wanted);
    return !bytes->failed;
}

void *rt_bytes_extend(rt_bytes *bytes, size_t size)
{
    const size_t wanted = bytes->size + size;
    if (wanted < size || wanted > SIZE_MAX / 4)
        bytes->failed = true;
    if (!bytes->failed && wanted > bytes->capacity) {
        size_t capacity = CAPACITY_MIN;
        while (capacity < wanted)
            capacity *= 2;
        enlarge(bytes, capacity);
    }
    if (bytes->failed)
        return NULL;
    bytes->size += size;
    return bytes->data + bytes->size - size;
}

void rt_bytes_put(rt_bytes *bytes, const void *from, size_t size)
{
    if (size == 0)
        return;
    void *to = rt_bytes_extend(bytes, size);
    if (to)
        memcpy(to, from, size);
}

bool rt_reader_get(rt_reader *reader, void *to, uint64_t count, size_t size)
{
    const void *from = rt_reader_take(reader, count, size);
    if (from && count)
        memcpy(to, from, count * size);
    return from != NULL;
}

uint32_t rt_reader_u32(rt_reader *reader)
{
    uint32_t value = 0;
    rt_reader_get(reader, &value, 1, sizeof value);
    return value;
}

uint64_t rt_reader_u64(rt_reader *reader)
{
    uint64_t value = 0;
    rt_reader_get(reader, &value, 1, sizeof value);
    return value;
}

double rt_reader_double(rt_reader *reader)
{
    double value = 0;
    rt_reader_get(reader, &value, 1, sizeof value);
    return value;
}
