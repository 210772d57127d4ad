#include "runtime/rt_date.h"

#include <string.h>

typedef enum { YEAR, MONTH, DAY, HOUR, MINUTE, SECOND, PARTS } part;

// The part that a letter stands for; PARTS: none.
static part part_of(char letter)
{
    static const char letters[] = "YmdHMS";
    if (letter == 'y')
        letter = 'Y';
    const char *found = strchr(letters, letter);
    if (!letter || !found)
        return PARTS;
    return (part)(found - letters);
}

bool rt_date_pattern_is_good(const char *pattern)
{
    uint32_t seen = 0;
    for (const char *at = pattern; *at; at++) {
        if (*at != '%')
            continue;
        const part one = part_of(*++at);
        if (one == PARTS && *at != '%')
            return false;
        if (one != PARTS && seen >> one & 1)
            return false;
        if (one != PARTS)
            seen |= 1u << one;
    }
    const uint32_t rest = seen >> HOUR;
    return (seen & 7u) == 7u && (rest & (rest + 1)) == 0;
}

static bool take_digits(const char **at_p, const char *end, uint32_t count, int *value_p)
{
    int value = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (*at_p == end || **at_p < '0' || **at_p > '9')
            return false;
        value = value * 10 + (*(*at_p)++ - '0');
    }
    *value_p = value;
    return true;
}

// Days from 1970-01-01: months count from March, so that the leap day ends a year.
static int64_t days_of(int year, int month, int day)
{
    const int64_t y = year - (month < 3);
    const int64_t shifted = (month + 9) % 12;
    return y * 365 + y / 4 - y / 100 + y / 400 + (shifted * 306 + 5) / 10 + day - 1 - 719468;
}

static int month_days(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month - 1] + (month == 2 && is_leap);
}

bool rt_date_parse(const char *pattern, const char *text, size_t length, int64_t *ms_p)
{
    const char *at = text, *end = text + length;
    int parts[PARTS] = {0};
    for (; *pattern; pattern++) {
        part one = PARTS;
        if (*pattern == '%')
            one = part_of(*++pattern);
        if (one == PARTS) {
            if (at == end || *at++ != *pattern)
                return false;
        } else if (!take_digits(&at, end, *pattern == 'Y' ? 4 : 2, &parts[one])) {
            return false;
        }
        if (*pattern == 'y' && one == YEAR)
            parts[YEAR] += parts[YEAR] < 69 ? 2000 : 1900;
    }
    if (at != end || parts[YEAR] < 1 || parts[MONTH] < 1 || parts[MONTH] > 12 || parts[DAY] < 1 ||
        parts[DAY] > month_days(parts[YEAR], parts[MONTH]) || parts[HOUR] > 23 ||
        parts[MINUTE] > 59 || parts[SECOND] > 59)
        return false;
    const int64_t seconds = parts[HOUR] * 3600 + parts[MINUTE] * 60 + parts[SECOND];
    *ms_p = days_of(parts[YEAR], parts[MONTH], parts[DAY]) * RT_DAY_MS + seconds * 1000;
    return true;
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

// The parts of a time, as rt_date_parse has them: days of a year that begins in March.
static void find_parts(int64_t ms, int parts[PARTS])
{
    const int64_t days = floor_divide(ms, RT_DAY_MS), of_day = ms - days * RT_DAY_MS;
    int year = (int)(days / 365) + 1971; // late, never early, and a few steps from it
    while (days_of(year, 1, 1) > days)
        year--;
    int month = 12;
    while (days_of(year, month, 1) > days)
        month--;
    parts[YEAR] = year;
    parts[MONTH] = month;
    parts[DAY] = (int)(days - days_of(year, month, 1)) + 1;
    parts[HOUR] = (int)(of_day / 3600000);
    parts[MINUTE] = (int)(of_day / 60000 % 60);
    parts[SECOND] = (int)(of_day / 1000 % 60);
}

size_t rt_date_format(const char *pattern, int64_t ms, char *text, size_t size)
{
    int parts[PARTS];
    size_t used = 0;
    find_parts(ms, parts);
    for (; *pattern && used + 5 <= size; pattern++) {
        part one = PARTS;
        if (*pattern == '%')
            one = part_of(*++pattern);
        if (one == PARTS) {
            text[used++] = *pattern;
            continue;
        }
        const int count = *pattern == 'Y' ? 4 : 2;
        for (int i = count, rest = parts[one]; i-- > 0; rest /= 10)
            text[used + (size_t)i] = (char)('0' + rest % 10);
        used += (size_t)count;
    }
    if (*pattern || used >= size)
        return 0;
    text[used] = '\0';
    return used;
}

uint32_t rt_date_hour(int64_t ms)
{
    const int64_t of_day = ms - floor_divide(ms, RT_DAY_MS) * RT_DAY_MS;
    return (uint32_t)(of_day / 3600000);
}

uint32_t rt_date_weekday(int64_t ms)
{
    const int64_t days = floor_divide(ms, RT_DAY_MS) + 3; // 1970-01-01 was a Thursday
    return (uint32_t)(days - floor_divide(days, 7) * 7);
}
