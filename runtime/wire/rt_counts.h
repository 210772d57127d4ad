// rt_counts - what a worker counts and times in an iteration, from its executor to the wire, the
// trace, the metrics and the report page. A counter is one line here, where it counts, and its line
// in docs/METRICS.md.
#ifndef RT_COUNTS_H
#define RT_COUNTS_H

#include "runtime/rt_base.h"
#include "runtime/rt_json.h"
#include "runtime/wire/rt_fields.h"

// clang-format off

// Row movements of one worker, by kind: the numbers that ESD counts. XX(name, title): transfers, with
// the title that the report page gives them; OTHER(name, title): no transfers.
#define RT_COUNTS_MAP(XX, OTHER)                                                            \
    XX(miss_pull, "pulls")            /* PULL, first touches that the PS makes included */  \
    XX(update_push, "update pushes")  /* PUSH_ROW because another worker needs the row */   \
    XX(evict_push, "evict pushes")    /* PUSH_ROW because the slot is needed */             \
    XX(flush_push, "flush pushes")    /* PUSH_ROW for a checkpoint or the end */            \
    XX(grad_push, "gradient pushes")  /* PUSH_GRAD */                                       \
    OTHER(first_touch, "")            /* keys never trained before, by INIT or a PULL of version 0 */

// Where the time of an iteration goes: the five follow each other. XX(name, title).
#define RT_TIMES_MAP(XX)                                                                    \
    XX(compute, "compute")            /* forward, backward, row updates */                  \
    XX(dense, "dense exchange")       /* waiting for it */                                  \
    XX(push, "waiting for rows, own pushes under way")                                      \
    XX(pull, "waiting for rows")      /* and nothing else */                                \
    XX(plan, "waiting for the plan")  /* that is, for the slice */

// clang-format on

#define RT_COUNTS_NONE(name, title)
#define RT_COUNTS_ONE(name, title) +1

#define XX(name, title) uint64_t name;
typedef struct {
    RT_COUNTS_MAP(XX, XX)
} rt_counts;
#undef XX

#define XX(name, title) uint64_t name##_ns;
typedef struct {
    RT_TIMES_MAP(XX)
} rt_times;
#undef XX

extern const rt_fields rt_counts_fields, rt_times_fields; // as checkpoints keep sums of them

void rt_counts_add(rt_counts *sum, const rt_counts *one);
rt_counts rt_counts_less(const rt_counts *left, const rt_counts *right); // left - right
void rt_times_add(rt_times *sum, const rt_times *one);

// An object of numbers, times scale; key: NULL in an array. Times are in ms.
void rt_counts_write(rt_json *json, const char *key, const rt_counts *counts, double scale);
void rt_times_write(rt_json *json, const char *key, const rt_times *times, double scale);

#endif
