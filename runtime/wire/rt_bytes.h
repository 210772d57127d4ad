// rt_bytes - a block of bytes that grows at its end, for state that goes into a file or a message.
//
// Plain value, zero-initialised; one thread. Running out of memory is noted and told once, at the
// end: puts after it do nothing, until it is cleared. Reading back: rt_reader (rt_wire.h), which
// never passes the end.
#ifndef RT_BYTES_H
#define RT_BYTES_H

#include "runtime/rt_base.h"
#include "runtime/wire/rt_wire.h"

typedef struct {
    uint8_t *data;
    size_t size, capacity;
    bool failed; // out of memory
} rt_bytes;

void rt_bytes_fini(rt_bytes *bytes);

// Empty again, as one that never failed; it keeps its memory.
static inline void rt_bytes_clear(rt_bytes *bytes)
{
    bytes->size = 0;
    bytes->failed = false;
}

// Appends size bytes.
void rt_bytes_put(rt_bytes *bytes, const void *from, size_t size);

// Room for so many bytes more, and no more than that. False: out of memory.
bool rt_bytes_reserve(rt_bytes *bytes, size_t size);

// Appends size bytes for the caller to fill in; NULL when out of memory.
void *rt_bytes_extend(rt_bytes *bytes, size_t size);

static inline void rt_bytes_put_u32(rt_bytes *bytes, uint32_t value)
{
    rt_bytes_put(bytes, &value, sizeof value);
}
static inline void rt_bytes_put_u64(rt_bytes *bytes, uint64_t value)
{
    rt_bytes_put(bytes, &value, sizeof value);
}
static inline void rt_bytes_put_double(rt_bytes *bytes, double value)
{
    rt_bytes_put(bytes, &value, sizeof value);
}

static inline rt_reader rt_bytes_reader(const rt_bytes *bytes)
{
    return (rt_reader){bytes->data, bytes->size, false};
}

// Copies count elements of size bytes out, whatever their alignment; false when they do not fit.
bool rt_reader_get(rt_reader *reader, void *to, uint64_t count, size_t size);

// The next value; 0 when there is none (reader->failed then).
uint32_t rt_reader_u32(rt_reader *reader);
uint64_t rt_reader_u64(rt_reader *reader);
double rt_reader_double(rt_reader *reader);

#endif
