#include "runtime/rt_date.h"

#include <string.h>

typedef enum {
    YEAR,
    MONTH,
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    FRACTION,
    HALF,
    OFFSET,
    WEEKDAY,
    PARTS
} part;

#define ISO "iso"
#define ISO_PATTERN "%Y-%m-%dT%H:%M:%S.%fZ" // as it is written

static const char *const month_names[] = {"January",   "February", "March",    "April",
                                          "May",       "June",     "July",     "August",
                                          "September", "October",  "November", "December"};
static const char *const day_names[] = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                        "Friday", "Saturday", "Sunday"};

// The part that a letter stands for; PARTS: none.
static part part_of(char letter)
{
    static const struct {
        char letter;
        part one;
    } letters[] = {{'Y', YEAR}, {'y', YEAR},   {'m', MONTH},  {'b', MONTH},  {'d', DAY},
                   {'H', HOUR}, {'I', HOUR},   {'M', MINUTE}, {'S', SECOND}, {'f', FRACTION},
                   {'p', HALF}, {'z', OFFSET}, {'a', WEEKDAY}};
    for (size_t i = 0; i < RT_COUNT_OF(letters); i++)
        if (letters[i].letter == letter)
            return letters[i].one;
    return PARTS;
}

double rt_date_unit_ms(const char *format)
{
    static const struct {
        const char *name;
        double ms;
    } units[] = {{"unix", 1000}, {"unix_ms", 1}, {"unix_us", 1e-3}, {"unix_ns", 1e-6}};
    for (size_t i = 0; i < RT_COUNT_OF(units); i++)
        if (strcmp(units[i].name, format) == 0)
            return units[i].ms;
    return 0;
}

static bool is_good_pattern(const char *pattern)
{
    uint32_t seen = 0;
    bool is_half = false;
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
        is_half |= *at == 'I';
    }
    const uint32_t clock = seen >> HOUR & 15u;
    return (seen & 7u) == 7u && (clock & (clock + 1)) == 0 && is_half == (seen >> HALF & 1);
}

bool rt_date_format_is_good(const char *format)
{
    return rt_date_unit_ms(format) > 0 || strcmp(format, ISO) == 0 || is_good_pattern(format);
}

// ---- reading ---------------------------------------------------------------------------------

static bool is_digit(const char *at, const char *end)
{
    return at < end && *at >= '0' && *at <= '9';
}

static bool take_digits(const char **at_p, const char *end, uint32_t min, uint32_t max,
                        int *value_p)
{
    int value = 0;
    uint32_t count = 0;
    for (; count < max && is_digit(*at_p, end); count++)
        value = value * 10 + (*(*at_p)++ - '0');
    *value_p = value;
    return count >= min;
}

// Milliseconds; digits behind the third are passed over.
static bool take_fraction(const char **at_p, const char *end, int *ms_p)
{
    static const int scale[] = {0, 100, 10, 1};
    const char *begin = *at_p;
    int ms;
    take_digits(at_p, end, 0, 3, &ms);
    *ms_p = ms * scale[*at_p - begin];
    while (is_digit(*at_p, end) && *at_p - begin < 9)
        ++*at_p;
    return *at_p > begin;
}

// Whether a text begins with this word, whatever the case of its letters.
static bool begins(const char *at, const char *end, const char *word, size_t size)
{
    if ((size_t)(end - at) < size)
        return false;
    for (size_t i = 0; i < size; i++)
        if ((at[i] | 0x20) != (word[i] | 0x20))
            return false;
    return true;
}

// A name, or its first three letters. Its number from 1; 0: it is none of them.
static int take_name(const char **at_p, const char *end, const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        const size_t size = strlen(names[i]);
        const bool is_whole = begins(*at_p, end, names[i], size);
        if (!is_whole && !begins(*at_p, end, names[i], 3))
            continue;
        *at_p += is_whole ? size : 3;
        return i + 1;
    }
    return 0;
}

// Minutes east of Greenwich.
static bool take_offset(const char **at_p, const char *end, int *minutes_p)
{
    static const char *const zero[] = {"UTC", "GMT", "Z"};
    int hours, minutes = 0;
    *minutes_p = 0;
    for (size_t i = 0; i < RT_COUNT_OF(zero); i++) {
        const size_t size = strlen(zero[i]);
        if (begins(*at_p, end, zero[i], size)) {
            *at_p += size;
            return true;
        }
    }
    if (*at_p == end || (**at_p != '+' && **at_p != '-'))
        return false;
    const int sign = *(*at_p)++ == '-' ? -1 : 1;
    if (!take_digits(at_p, end, 2, 2, &hours))
        return false;
    const bool has_colon = *at_p < end && **at_p == ':';
    *at_p += has_colon;
    if ((has_colon || is_digit(*at_p, end)) && !take_digits(at_p, end, 2, 2, &minutes))
        return false;
    *minutes_p = sign * (hours * 60 + minutes);
    return hours < 24 && minutes < 60;
}

// AM adds nothing to hours from 1 to 12, of which 12 is 0.
static bool take_half(const char **at_p, const char *end, int *half_p)
{
    const bool is_after = begins(*at_p, end, "PM", 2);
    if (!is_after && !begins(*at_p, end, "AM", 2))
        return false;
    *at_p += 2;
    *half_p = 1 + is_after;
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

// touches: another part stands before or behind it, so that all its digits are written.
static bool take_part(char letter, bool touches, const char **at_p, const char *end,
                      int parts[PARTS])
{
    const part one = part_of(letter);
    const uint32_t min = touches ? 2 : 1;
    switch (letter) {
    case 'Y':
        return take_digits(at_p, end, 4, 4, &parts[one]);
    case 'y':
        if (!take_digits(at_p, end, 2, 2, &parts[one]))
            return false;
        parts[one] += parts[one] < 69 ? 2000 : 1900;
        return true;
    case 'b':
        parts[one] = take_name(at_p, end, month_names, 12);
        return parts[one] > 0;
    case 'a':
        parts[one] = take_name(at_p, end, day_names, 7);
        return parts[one] > 0;
    case 'f':
        return take_fraction(at_p, end, &parts[one]);
    case 'p':
        return take_half(at_p, end, &parts[one]);
    case 'z':
        return take_offset(at_p, end, &parts[one]);
    default:
        return take_digits(at_p, end, min, 2, &parts[one]);
    }
}

// The time that parts stand for; false: there is none.
static bool time_of(int parts[PARTS], int64_t *ms_p)
{
    if (parts[HALF]) {
        if (parts[HOUR] < 1 || parts[HOUR] > 12)
            return false;
        parts[HOUR] = parts[HOUR] % 12 + (parts[HALF] == 2 ? 12 : 0);
    }
    if (parts[YEAR] < 1 || parts[MONTH] < 1 || parts[MONTH] > 12 || parts[DAY] < 1 ||
        parts[DAY] > month_days(parts[YEAR], parts[MONTH]) || parts[HOUR] > 23 ||
        parts[MINUTE] > 59 || parts[SECOND] > 59)
        return false;
    const int64_t seconds =
        parts[HOUR] * 3600 + (parts[MINUTE] - parts[OFFSET]) * 60 + parts[SECOND];
    *ms_p = days_of(parts[YEAR], parts[MONTH], parts[DAY]) * RT_DAY_MS + seconds * 1000 +
            parts[FRACTION];
    return true;
}

static bool take(const char **at_p, const char *end, const char *characters)
{
    if (*at_p == end || !strchr(characters, **at_p))
        return false;
    ++*at_p;
    return true;
}

static bool parse_iso(const char *at, const char *end, int64_t *ms_p)
{
    int parts[PARTS] = {0};
    if (!take_digits(&at, end, 4, 4, &parts[YEAR]) || !take(&at, end, "-") ||
        !take_digits(&at, end, 2, 2, &parts[MONTH]) || !take(&at, end, "-") ||
        !take_digits(&at, end, 2, 2, &parts[DAY]))
        return false;
    if (at == end)
        return time_of(parts, ms_p);
    if (!take(&at, end, "Tt ") || !take_digits(&at, end, 2, 2, &parts[HOUR]))
        return false;
    if (take(&at, end, ":") && !take_digits(&at, end, 2, 2, &parts[MINUTE]))
        return false;
    if (take(&at, end, ":") && !take_digits(&at, end, 2, 2, &parts[SECOND]))
        return false;
    if (take(&at, end, ".,") && !take_fraction(&at, end, &parts[FRACTION]))
        return false;
    (void)take(&at, end, " ");
    if (at < end && !take_offset(&at, end, &parts[OFFSET]))
        return false;
    return at == end && time_of(parts, ms_p);
}

bool rt_date_parse(const char *format, const char *text, size_t length, int64_t *ms_p)
{
    const char *at = text, *end = text + length;
    int parts[PARTS] = {0};
    bool is_part = false;
    if (strcmp(format, ISO) == 0)
        return parse_iso(at, end, ms_p);
    for (; *format; format++) {
        const bool was_part = is_part;
        is_part = *format == '%' && part_of(*++format) != PARTS;
        if (is_part && !take_part(*format, was_part || format[1] == '%', &at, end, parts))
            return false;
        if (!is_part && (at == end || *at++ != *format))
            return false;
    }
    return at == end && time_of(parts, ms_p);
}

// ---- writing ---------------------------------------------------------------------------------

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
    parts[FRACTION] = (int)(of_day % 1000);
    parts[WEEKDAY] = (int)rt_date_weekday(ms);
}

// At most 5 bytes, not terminated. Their count.
static size_t write_part(char letter, const int parts[PARTS], char *text)
{
    const int hour = parts[HOUR];
    int count = letter == 'Y' ? 4 : 2, value = parts[part_of(letter)];
    switch (letter) {
    case 'b':
        memcpy(text, month_names[parts[MONTH] - 1], 3);
        return 3;
    case 'a':
        memcpy(text, day_names[parts[WEEKDAY]], 3);
        return 3;
    case 'p':
        memcpy(text, hour < 12 ? "AM" : "PM", 2);
        return 2;
    case 'z':
        memcpy(text, "+0000", 5);
        return 5;
    case 'f':
        count = 3;
        break;
    case 'I':
        value = (hour + 11) % 12 + 1;
        break;
    default:
        break;
    }
    for (int i = count; i-- > 0; value /= 10)
        text[i] = (char)('0' + value % 10);
    return (size_t)count;
}

size_t rt_date_format(const char *format, int64_t ms, char *text, size_t size)
{
    int parts[PARTS] = {0};
    size_t used = 0;
    find_parts(ms, parts);
    if (strcmp(format, ISO) == 0)
        format = ISO_PATTERN;
    for (; *format && used + 6 <= size; format++) {
        if (*format == '%' && part_of(*++format) != PARTS)
            used += write_part(*format, parts, text + used);
        else
            text[used++] = *format;
    }
    if (*format || used >= size)
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
