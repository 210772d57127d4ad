#include "runtime/wire/rt_counts.h"

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
