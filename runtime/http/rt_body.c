#define _GNU_SOURCE // mremap
#include "runtime/http/rt_http_parts.h"

#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES ((size_t)4096)
#define SMALL_BYTES ((size_t)16 << 10) // up to here from the heap

static bool is_mapped(const rt_body *body)
{
    return body->capacity > SMALL_BYTES;
}

static char *map(rt_body *body, size_t capacity)
{
    void *block;
    if (is_mapped(body))
        block = mremap(body->bytes, body->capacity, capacity, MREMAP_MAYMOVE);
    else
        block = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        return NULL;
    if (!is_mapped(body) && body->size)
        memcpy(block, body->bytes, body->size);
    if (!is_mapped(body))
        rt_free(body->bytes);
    return block;
}

static rt_status reserve(rt_body *body, size_t wanted)
{
    size_t capacity = SMALL_BYTES;
    while (capacity < wanted && capacity <= SIZE_MAX / 2)
        capacity *= 2; // what is not written to is no memory
    char *bytes = NULL;
    if (capacity >= wanted)
        bytes = capacity == SMALL_BYTES ? rt_alloc_unset(capacity, 1) : map(body, capacity);
    if (!bytes)
        return RT_NO_MEMORY;
    body->bytes = bytes;
    body->capacity = capacity;
    return RT_OK;
}

rt_status rt_body_add(rt_body *body, const char *part, size_t size)
{
    if (size >= SIZE_MAX - body->size)
        return RT_NO_MEMORY;
    if (body->size + size + 1 > body->capacity) {
        const rt_status status = reserve(body, body->size + size + 1);
        if (status)
            return status;
    }
    memcpy(body->bytes + body->size, part, size);
    body->size += size;
    body->bytes[body->size] = '\0';
    return RT_OK;
}

void rt_body_fini(rt_body *body)
{
    if (is_mapped(body))
        (void)munmap(body->bytes, body->capacity);
    else
        rt_free(body->bytes);
    *body = (rt_body){0};
}

uint64_t rt_body_held(size_t size)
{
    if (size < SMALL_BYTES)
        return size;
    return (size + 1 + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}
