#include "runtime/wire/rt_bytes.h"

#include <string.h>

#define CAPACITY_MIN 4096u

void rt_bytes_fini(rt_bytes *bytes)
{
    rt_free(bytes->data);
    *bytes = (rt_bytes){0};
}

static void take_block(rt_bytes *bytes, uint8_t *data, size_t capacity)
{
    bytes->failed = !data;
    if (!data)
        return;
    if (bytes->size)
        memcpy(data, bytes->data, bytes->size);
    rt_free(bytes->data);
    bytes->data = data;
    bytes->capacity = capacity;
}

bool rt_bytes_reserve(rt_bytes *bytes, size_t size)
{
    if (!bytes->failed && size > bytes->capacity - bytes->size) {
        const size_t capacity = bytes->size + size;
        take_block(bytes, capacity >= size ? rt_alloc_unset(capacity, 1) : NULL, capacity);
    }
    return !bytes->failed;
}

void *rt_bytes_extend(rt_bytes *bytes, size_t size)
{
    if (!bytes->failed && size > bytes->capacity - bytes->size) {
        size_t wanted = bytes->size + size, capacity = CAPACITY_MIN;
        while (capacity < wanted && capacity <= SIZE_MAX / 2)
            capacity *= 2;
        uint8_t *data = NULL;
        if (wanted >= size && capacity >= wanted)
            data = rt_alloc(capacity, 1);
        take_block(bytes, data, capacity);
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
