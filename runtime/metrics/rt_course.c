#include "runtime/metrics/rt_course.h"

#include <math.h>

double rt_mean_of(const rt_mean *mean)
{
    if (mean->count)
        return mean->sum / (double)mean->count;
    return (double)NAN;
}

void rt_mean_add(rt_mean *mean, double value)
{
    if (!isfinite(value))
        return;
    mean->sum += value;
    mean->count++;
}

rt_status rt_course_init(rt_course *course, uint32_t point_max, uint32_t series_count)
{
    rt_assert(series_count <= RT_COURSE_SERIES_MAX && point_max % 2 == 0);
    *course = (rt_course){.max = point_max, .series_count = series_count, .stride = 1};
    course->points = rt_alloc(point_max, sizeof *course->points);
    if (!course->points)
        return RT_NO_MEMORY;
    return RT_OK;
}

void rt_course_fini(rt_course *course)
{
    rt_free(course->points);
    *course = (rt_course){0};
}

// Two neighbours become one: half the points are free again.
static void halve(rt_course *course)
{
    for (uint32_t i = 0; i < course->count / 2; i++) {
        const rt_point *a = &course->points[2 * i], *b = a + 1;
        rt_point both = {.at = b->at, .time_s = b->time_s, .records = a->records + b->records};
        for (uint32_t k = 0; k < course->series_count; k++) {
            both.values[k].sum = a->values[k].sum + b->values[k].sum;
            both.values[k].count = a->values[k].count + b->values[k].count;
        }
        course->points[i] = both;
    }
    course->count /= 2;
    course->stride *= 2;
}

static rt_point *point_for(rt_course *course)
{
    if (course->count && course->points[course->count - 1].records < course->stride)
        return &course->points[course->count - 1];
    if (course->count == course->max)
        halve(course);
    rt_point *point = &course->points[course->count++];
    *point = (rt_point){0};
    return point;
}

void rt_course_add(rt_course *course, double at, double time_s, const double *values)
{
    rt_point *point = point_for(course);
    point->at = at;
    point->time_s = time_s;
    point->records++;
    for (uint32_t k = 0; k < course->series_count; k++)
        rt_mean_add(&point->values[k], values[k]);
}

void rt_course_cut(rt_course *course, double at)
{
    while (course->count && course->points[course->count - 1].at > at)
        course->count--;
}
