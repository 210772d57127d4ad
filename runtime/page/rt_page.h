// rt_page - text of an HTML page that grows: markup as it is, everything else escaped.
//
// What comes out is well-formed XML too. One owner; a failed allocation is remembered.
#ifndef RT_PAGE_H
#define RT_PAGE_H

#include "runtime/rt_base.h"

typedef struct {
    char *text;
    uint32_t size, capacity;
    bool failed;
} rt_page;

// The document up to its head's last line, with the style that charts (rt_chart.h) need.
void rt_page_head(rt_page *page, const char *title);

// <main id="now">, and before it the choice of what the axes of its charts (rt_chart.h) count.
void rt_page_begin_main(rt_page *page);

void rt_page_fini(rt_page *page);

// Markup of the program's own, with printf's directives for numbers and constants.
void rt_page_add(rt_page *page, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Text from outside: markup characters become entities; what is no UTF-8 or no character of XML
// becomes U+FFFD.
void rt_page_text(rt_page *page, const char *text);

// Four digits at most, with k, M, G where large; "-" when not finite.
const char *rt_page_number(double value, char text[32]);

// "5 s", "12 min", "3.5 h"; "-" when not finite.
const char *rt_page_age(double seconds, char text[32]);

#endif
