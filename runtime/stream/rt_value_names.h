// rt_value_names - how the values of one column are written: an id is a hash, which says nothing to
// people.
//
// Whoever reads the column notes them, others ask. Bounded: of RT_VALUE_NAMES_MAX values, those
// that came first. A name prints (rt_printable), and no two are the same. Any thread.
#ifndef RT_VALUE_NAMES_H
#define RT_VALUE_NAMES_H

#include "runtime/rt_base.h"

#define RT_VALUE_NAMES_MAX 1024u
#define RT_VALUE_NAME_BYTES 48u // longer ones are cut, and have a part of their hash at the end

typedef struct rt_value_names rt_value_names;

// column: its name, copied. RT_NO_MEMORY.
rt_status rt_value_names_create(const char *column, rt_value_names **names_p);
void rt_value_names_destroy(rt_value_names *names); // NULL is fine

bool rt_value_names_are_of(const rt_value_names *names, const char *column); // NULL: of none

void rt_value_names_note(rt_value_names *names, uint64_t key, const char *text, size_t length);

// What was noted; else the id, in hexadecimal digits; "(empty)" of a missing value. names may be
// NULL. Returns text.
const char *rt_value_names_find(rt_value_names *names, uint64_t key,
                                char text[RT_VALUE_NAME_BYTES]);

#endif
