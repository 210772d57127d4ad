#include "edge_worker/serve/ew_values.h"

#include <inttypes.h>
#include <string.h>

#include "ps_lite/ps_model_file.h"
#include "runtime/files/rt_tensors.h"
#include "runtime/rt_hash.h"

#define PART_BYTES_MAX (UINT64_C(2) << 30) // more than a block of the longest rows has

bool ew_values_may_be(const char *file)
{
    return strncmp(file, "rows-", 5) == 0 || strcmp(file, "dense.bin") == 0;
}

void ew_values_init(ew_values *values, const char *name, bool is_rows, uint64_t bytes_max,
                    rt_file *to)
{
    *values = (ew_values){.name = name, .is_rows = is_rows, .bytes_max = bytes_max, .to = to};
}

void ew_values_fini(ew_values *values)
{
    rt_bytes_fini(&values->part);
}

static bool tensors_are_whole(const ew_values *v)
{
    rt_tensors *tensors;
    if (rt_tensors_decode(v->name, v->part.data, v->part.size, &tensors, NULL))
        return false;
    rt_tensors_close(tensors);
    return true;
}

static void add(rt_file_sum *sum, const ew_values *v, uint64_t bytes, uint64_t checksum)
{
    sum->bytes += bytes;
    sum->hash = v->is_rows ? rt_mix(sum->hash ^ checksum) : checksum;
}

static rt_status end_part(ew_values *v, const rt_wire_fetched *fetched, rt_error *error)
{
    uint64_t checksum = 0;
    bool is_whole;
    if (v->is_rows)
        is_whole = ps_model_part_sum(v->offset, v->part.data, v->part.size, &checksum);
    else {
        is_whole = tensors_are_whole(v);
        checksum = rt_hash_bytes(v->part.data, v->part.size);
    }
    if (!is_whole)
        return rt_fail(error, RT_DATA, "%s: the part from byte %" PRIu64 " on came damaged",
                       v->name, v->offset);
    const rt_status status = rt_file_write(v->to, v->part.data, v->part.size, error);
    if (status)
        return status;
    add(&v->origin, v, fetched->next - v->offset, fetched->checksum);
    add(&v->own, v, v->part.size, checksum);
    v->offset = fetched->next;
    v->is_whole = v->offset == fetched->total;
    rt_bytes_clear(&v->part);
    return RT_OK;
}

rt_status ew_values_take(ew_values *v, const rt_wire_fetched *fetched, const void *bytes,
                         size_t size, rt_error *error)
{
    if (fetched->offset != v->offset || fetched->skip != v->part.size || size == 0 ||
        fetched->part > PART_BYTES_MAX || fetched->next <= v->offset ||
        fetched->next > fetched->total || size > fetched->part - v->part.size)
        return rt_fail(error, RT_WIRE, "%s: an answer that fits no part of it", v->name);
    if (fetched->total > v->bytes_max)
        return rt_fail(error, RT_DATA, "%s has %" PRIu64 " bytes, its manifest says %" PRIu64,
                       v->name, fetched->total, v->bytes_max);
    rt_bytes_put(&v->part, bytes, size);
    if (v->part.failed)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", v->name);
    if (v->part.size < fetched->part)
        return RT_OK;
    return end_part(v, fetched, error);
}
