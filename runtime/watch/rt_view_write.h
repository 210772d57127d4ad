// rt_view_write - a view for those who look: as JSON, for Prometheus, as a page.
//
// alerts may be NULL: nobody judges. unix_s: now.
#ifndef RT_VIEW_WRITE_H
#define RT_VIEW_WRITE_H

#include "runtime/page/rt_page.h"
#include "runtime/watch/rt_alerts.h"

// One object (docs/WATCHING.md), as a whole document.
void rt_view_write_json(const rt_view *view, const rt_alerts *alerts, double unix_s, rt_json *json);

// The text format of Prometheus, version 0.0.4. RT_NO_MEMORY.
rt_status rt_view_write_prometheus(const rt_view *view, const rt_alerts *alerts, double unix_s,
                                   rt_page *text);

// The document; what changes in it; that as a server-sent event.
void rt_view_write_page(const rt_view *view, const rt_alerts *alerts, double unix_s, rt_page *page);
void rt_view_write_body(const rt_view *view, const rt_alerts *alerts, double unix_s, rt_page *page);
void rt_view_write_event(const rt_page *body, rt_page *event);

// A table up to its head: first, with markup, and the titles of sets' cells; the cells of one item.
// values NULL: nobody knows any.
void rt_view_begin_table(rt_page *page, const char *first, const rt_metric_set_kind *sets,
                         uint32_t set_count);
void rt_view_write_cells(rt_page *page, rt_metric_set_kind set, const double *values);

#endif
