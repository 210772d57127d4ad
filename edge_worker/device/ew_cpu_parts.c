#include "edge_worker/device/ew_cpu_parts.h"

#define PART_FLOATS_MIN (UINT64_C(16) << 10)
#define PARTS_PER_THREAD 4u // so that one that other programs hold up does less
#define UNIT 16u

typedef struct {
    ew_cpu_range range;
    const void *call;
    uint32_t count, step;
} piece;

static void run_part(void *context, uint32_t part)
{
    const piece *p = context;
    const uint32_t from = part * p->step;
    p->range(p->call, from, (uint32_t)rt_min_u64(p->count, (uint64_t)from + p->step));
}

void ew_cpu_split(const ew_cpu *cpu, uint32_t count, uint64_t item_floats, ew_cpu_range range,
                  const void *call)
{
    const uint32_t threads = rt_pool_threads(cpu->pool);
    const uint64_t parts =
        rt_min_u64(count * item_floats / PART_FLOATS_MIN, (uint64_t)threads * PARTS_PER_THREAD);
    if (threads == 1 || parts <= 1) {
        range(call, 0, count);
        return;
    }
    const uint64_t step = (count + parts - 1) / parts;
    piece p = {range, call, count, (uint32_t)((step + UNIT - 1) / UNIT * UNIT)};
    rt_pool_run(cpu->pool, (count + p.step - 1) / p.step, run_part, &p);
}

ew_lookups ew_cpu_samples(const ew_lookups *lookups, uint32_t from, uint32_t to)
{
    ew_lookups part = *lookups;
    const size_t first = (size_t)from * lookups->field_count;
    part.sample_count = to - from;
    if (part.bag_offsets) { // they count from the first look-up of all
        part.bag_offsets += first;
        return part;
    }
    part.lookup_rows += first;
    part.lookup_count = part.sample_count * lookups->field_count;
    return part;
}

ew_lookups ew_cpu_rows(const ew_lookups *lookups, uint32_t from, uint32_t to)
{
    ew_lookups part = *lookups;
    part.row_count = to - from;
    part.row_slots += from;
    part.row_starts += from; // they count from the first look-up of all
    part.row_fields += from;
    part.row_scalars += from;
    return part;
}
