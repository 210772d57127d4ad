#include "runtime/wire/rt_counts.h"

#define ONE(name, title) {#name, offsetof(rt_counts, name), sizeof(uint64_t), NULL},
static const rt_field counts_members[] = {RT_COUNTS_MAP(ONE, ONE)};
#undef ONE
const rt_fields rt_counts_fields =
    RT_FIELDS_VALUE(counts, rt_counts,
                    "miss_pull:8 update_push:8 evict_push:8 flush_push:8 grad_push:8 first_touch:8 "
                    "pull_sum:8");

#define ONE(name, title) {#name "_ns", offsetof(rt_times, name##_ns), sizeof(uint64_t), NULL},
static const rt_field times_members[] = {RT_TIMES_MAP(ONE)};
#undef ONE
const rt_fields rt_times_fields =
    RT_FIELDS_VALUE(times, rt_times, "compute_ns:8 dense_ns:8 push_ns:8 pull_ns:8 plan_ns:8");

void rt_counts_add(rt_counts *sum, const rt_counts *one)
{
#define XX(name, title) sum->name += one->name;
    RT_COUNTS_MAP(XX, XX)
#undef XX
}

rt_counts rt_counts_less(const rt_counts *left, const rt_counts *right)
{
#define XX(name, title) .name = left->name - right->name,
    return (rt_counts)
    {
        RT_COUNTS_MAP(XX, XX)
    };
#undef XX
}

void rt_times_add(rt_times *sum, const rt_times *one)
{
#define XX(name, title) sum->name##_ns += one->name##_ns;
    RT_TIMES_MAP(XX)
#undef XX
}

void rt_counts_write(rt_json *json, const char *key, const rt_counts *counts, double scale)
{
    rt_json_begin_object(json, key);
#define XX(name, title) rt_json_double(json, #name, (double)counts->name *scale);
    RT_COUNTS_MAP(XX, XX)
#undef XX
    rt_json_end_object(json);
}

void rt_times_write(rt_json *json, const char *key, const rt_times *times, double scale)
{
    rt_json_begin_object(json, key);
#define XX(name, title) rt_json_double(json, #name, (double)times->name##_ns * 1e-6 * scale);
    RT_TIMES_MAP(XX)
#undef XX
    rt_json_end_object(json);
}
