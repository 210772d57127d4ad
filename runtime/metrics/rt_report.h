// rt_report - tables of measurements: text for people as the rows are made, JSON at the end.
//
// A report is a sequence of sections, a section a table: columns named by its first row, one cell
// per column, then notes. One owner. A cell or note too many is our own bug and asserts.
#ifndef RT_REPORT_H
#define RT_REPORT_H

#include <stdio.h>

#include "runtime/rt_base.h"

#define RT_REPORT_COLUMNS_MAX 20u
#define RT_REPORT_CELL_MAX 40u // longer texts are cut

typedef struct rt_report rt_report;

// text: where the tables go, or NULL for JSON only.
rt_status rt_report_create(FILE *text, rt_report **report_p);
void rt_report_destroy(rt_report *report);

void rt_report_begin(rt_report *report, const char *name, const char *title);
void rt_report_text(rt_report *report, const char *column, const char *value);
// NAN: nothing was measured, "-" and null.
void rt_report_number(rt_report *report, const char *column, double value, uint32_t decimals);
void rt_report_end_row(rt_report *report);
void rt_report_note(rt_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void rt_report_end(rt_report *report);

// All sections: {"name": {"title": ..., "rows": [{column: value}], "notes": [...]}}. NULL: memory
// ran out on the way.
const char *rt_report_json(rt_report *report);

#endif
