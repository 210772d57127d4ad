// rt_date - times as people write them, as milliseconds since 1970-01-01 00:00 UTC.
//
// Pure functions: no time zone of the machine, no locale, no leap seconds; the proleptic Gregorian
// calendar, years 1 to 9999.
#ifndef RT_DATE_H
#define RT_DATE_H

#include "runtime/rt_base.h"

#define RT_DAY_MS INT64_C(86400000)

// A format is one of
//   "unix", "unix_ms", "unix_us", "unix_ns": a number since 1970, which rt_date_unit_ms is for;
//   "iso": ISO 8601 as programs write it: 2026-10-01, with T or a space and 18:00, seconds, a
//     fraction, Z or an offset behind it (2026-10-01T18:00:00.567+02:00);
//   a pattern as strptime(3) has it: %Y (4 digits) or %y (2; 69 to 99 are 1969 to 1999), %m or %b
//     (Oct, October), %d, %H or %I with %p (AM, PM), %M, %S (2 digits, or 1 where no digit follows
//     them), %f (a fraction of a second, 1 to 9 digits), %z (Z, UTC, GMT, +02:00, +0200, +02), %a
//     (a weekday, which is not looked at), %% and other bytes as they are. A year, a month, a day,
//     and hours, minutes, seconds, fractions only below one another.
// A time without an offset is UTC.
bool rt_date_format_is_good(const char *format);

// Of the formats that are numbers: milliseconds in one of them; 0: it is another format.
double rt_date_unit_ms(const char *format);

// Of the other formats. False: the text does not fit, or there is no such day or hour.
bool rt_date_parse(const char *format, const char *text, size_t length, int64_t *ms_p);

// The text of a time, terminated, without what the format has no place for. Its length; 0: it does
// not fit into size bytes.
size_t rt_date_format(const char *format, int64_t ms, char *text, size_t size);

uint32_t rt_date_hour(int64_t ms);    // 0 to 23
uint32_t rt_date_weekday(int64_t ms); // 0: Monday

#endif
