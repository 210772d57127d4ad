#include "runtime/rt_base.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define KEPT_BLOCK_BYTES_MAX (32 << 20) // glibc takes no more
#define KEPT_BYTES_MAX (256 << 20)
#define HUGE_BYTES ((size_t)2 << 20)

_Noreturn void rt_assert_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "lanyard: internal error: %s does not hold (%s:%d)\n", condition, file, line);
    abort();
}

void rt_keep_freed_memory(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, KEPT_BLOCK_BYTES_MAX);
    (void)mallopt(M_TRIM_THRESHOLD, KEPT_BYTES_MAX);
}

static void *allocate(size_t count, size_t size, size_t *bytes_p)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2)
        return NULL;
    size_t align = bytes >= 2 * HUGE_BYTES ? HUGE_BYTES : 64;
    bytes = (rt_max_u64(bytes, 1) + align - 1) / align * align;
    void *block = aligned_alloc(align, bytes);
    if (!block)
        return NULL;
    if (align == HUGE_BYTES)
        (void)madvise(block, bytes, MADV_HUGEPAGE); // advice: failing costs speed only
    *bytes_p = bytes;
    return block;
}

void *rt_alloc(size_t count, size_t size)
{
    size_t bytes;
    void *block = allocate(count, size, &bytes);
    if (block)
        memset(block, 0, bytes);
    return block;
}

void *rt_alloc_unset(size_t count, size_t size)
{
    size_t bytes;
    return allocate(count, size, &bytes);
}

// calloc knows which pages are new, and leaves them alone.
void *rt_alloc_lazy(size_t count, size_t size)
{
    uint8_t *block = calloc(rt_max_u64(count, 1), size);
    if (!block || count * size < 2 * HUGE_BYTES)
        return block;
    const size_t before = HUGE_BYTES - (uintptr_t)block % HUGE_BYTES;
    (void)madvise(block + before, (count * size - before) / HUGE_BYTES * HUGE_BYTES,
                  MADV_HUGEPAGE); // likewise
    return block;
}

void rt_free(void *block)
{
    free(block);
}

rt_status rt_grow_unset(void *block_p, uint32_t *capacity_p, uint64_t count, size_t size)
{
    if (count <= *capacity_p)
        return RT_OK;
    uint64_t capacity = rt_max_u64(count, *capacity_p + (uint64_t)*capacity_p / 2);
    capacity = rt_max_u64(capacity, 16);
    if (capacity > UINT32_MAX)
        return RT_NO_MEMORY;
    void *block;
    memcpy(&block, block_p, sizeof block);
    void *grown = rt_alloc_unset((size_t)capacity, size);
    if (!grown)
        return RT_NO_MEMORY;
    if (block)
        memcpy(grown, block, (size_t)*capacity_p * size);
    rt_free(block);
    memcpy(block_p, &grown, sizeof grown);
    *capacity_p = (uint32_t)capacity;
    return RT_OK;
}

rt_status rt_grow(void *block_p, uint32_t *capacity_p, uint64_t count, size_t size)
{
    const uint32_t before = *capacity_p;
    uint8_t *block;
    rt_status status = rt_grow_unset(block_p, capacity_p, count, size);
    if (status || *capacity_p == before)
        return status;
    memcpy(&block, block_p, sizeof block);
    memset(block + (size_t)before * size, 0, (size_t)(*capacity_p - before) * size);
    return RT_OK;
}

uint64_t rt_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

int rt_wait_ms(uint64_t deadline_ns)
{
    const uint64_t now = rt_now_ns();
    if (deadline_ns == 0)
        return -1;
    if (now >= deadline_ns)
        return 0;
    return (int)rt_min_u64((deadline_ns - now) / 1000000 + 1, INT32_MAX);
}

double rt_unix_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
