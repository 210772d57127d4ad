// rt_course - how numbers of a run went, in a bounded number of points, however long it is.
//
// A point is the mean of as many iterations in a row; when all are used, neighbours are merged, and
// each stands for twice as many. One owner.
#ifndef RT_COURSE_H
#define RT_COURSE_H

#include "runtime/rt_base.h"

#define RT_COURSE_SERIES_MAX 24u

typedef struct {
    double sum;
    uint64_t count;
} rt_mean;

typedef struct {
    double at;     // iteration, the last one
    double time_s; // its time
    uint64_t records;
    rt_mean values[RT_COURSE_SERIES_MAX];
} rt_point;

typedef struct {
    rt_point *points;
    uint32_t count, max, series_count;
    uint64_t stride; // records of a full point
} rt_course;

double rt_mean_of(const rt_mean *mean); // NAN without values

// A value that is not finite is none.
void rt_mean_add(rt_mean *mean, double value);

// point_max is even. RT_NO_MEMORY.
rt_status rt_course_init(rt_course *course, uint32_t point_max, uint32_t series_count);
void rt_course_fini(rt_course *course); // also of a zeroed one

// values: series_count, NAN where there is none.
void rt_course_add(rt_course *course, double at, double time_s, const double *values);

// Points that end behind `at` go.
void rt_course_cut(rt_course *course, double at);

#endif
