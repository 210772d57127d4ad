// rt_date - times as people write them, as milliseconds since 1970-01-01 00:00 UTC.
//
// Pure functions: no time zone of the machine, no locale, no leap seconds; the proleptic Gregorian
// calendar, years 1 to 9999.
#ifndef RT_DATE_H
#define RT_DATE_H

#include "runtime/rt_base.h"

#define RT_DAY_MS INT64_C(86400000)

// Whether a pattern has a year, a month, a day, and hours, minutes and seconds only below one
// another: %Y (4 digits) or %y (2; 69 to 99 are 1969 to 1999), %m, %d, %H, %M, %S (2 digits each),
// %% and other bytes as they are.
bool rt_date_pattern_is_good(const char *pattern);

// False: the text does not fit the pattern, or there is no such day or hour.
bool rt_date_parse(const char *pattern, const char *text, size_t length, int64_t *ms_p);

// The text of a time, terminated, without what is less than a second. Its length; 0: it does not
// fit into size bytes.
size_t rt_date_format(const char *pattern, int64_t ms, char *text, size_t size);

uint32_t rt_date_hour(int64_t ms);    // 0 to 23
uint32_t rt_date_weekday(int64_t ms); // 0: Monday

#endif
