// What the values of a column have in common.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/guess/rt_guess_parts.h"
#include "runtime/rt_date.h"
#include "runtime/rt_hash.h"

#define DISTINCT_MAX 300000u // beyond it nothing depends on the count

// ---- what stands for nothing -----------------------------------------------------------------

static const struct {
    const char *text;
    bool is_sure; // of a text, too: nobody is called so
} nulls[] = {
    {"NULL", true},  {"null", true},  {"Null", true},       {"\\N", true},
    {"NaN", true},   {"nan", true},   {"N/A", true},        {"n/a", true},
    {"#N/A", true},  {"<NA>", true},  {"(null)", true},     {"NA", false},
    {"None", false}, {"none", false}, {"-", false},         {"?", false},
    {".", false},    {"NaT", true},   {"0000-00-00", true}, {"0000-00-00 00:00:00", true},
};
_Static_assert(RT_COUNT_OF(nulls) == RT_GUESS_NULLS, "one count for each");

const char *rt_guess_null(uint32_t index, bool *is_sure_p)
{
    if (index >= RT_COUNT_OF(nulls))
        return NULL;
    *is_sure_p = nulls[index].is_sure;
    return nulls[index].text;
}

int rt_guess_null_find(rt_cell cell)
{
    for (size_t i = 0; i < RT_COUNT_OF(nulls) && cell.length < RT_COLUMN_NULL_SIZE; i++)
        if (strlen(nulls[i].text) == cell.length &&
            memcmp(nulls[i].text, cell.text, cell.length) == 0)
            return (int)i;
    return -1;
}

// ---- times -----------------------------------------------------------------------------------

bool rt_guess_time_format(uint32_t index, char format[RT_NAME_MAX])
{
    static const char *const whole[] = {"iso",
                                        "%d/%b/%Y:%H:%M:%S %z",
                                        "%a, %d %b %Y %H:%M:%S %z",
                                        "%a %b %d %H:%M:%S %Y",
                                        "%Y%m%d",
                                        "%Y%m%d%H",
                                        "%Y%m%d%H%M",
                                        "%Y%m%d%H%M%S",
                                        "%Y%m%dT%H%M%S",
                                        "%Y%m%dT%H%M%SZ",
                                        "%y%m%d%H",
                                        "%y%m%d"};
    // Month before day where a slash divides them, as in the United States, unless that cannot be.
    static const char *const days[] = {"%d.%m.%Y", "%d.%m.%y",  "%m/%d/%Y", "%d/%m/%Y", "%m/%d/%y",
                                       "%d/%m/%y", "%Y/%m/%d",  "%d-%m-%Y", "%m-%d-%Y", "%d-%b-%Y",
                                       "%d %b %Y", "%b %d, %Y", "%d-%b-%y", "%Y.%m.%d"};
    static const char *const clocks[] = {"",          " %H:%M",      " %H:%M:%S", " %H:%M:%S.%f",
                                         " %I:%M %p", " %I:%M:%S %p"};
    if (index < RT_COUNT_OF(whole)) {
        snprintf(format, RT_NAME_MAX, "%s", whole[index]);
        return true;
    }
    index -= (uint32_t)RT_COUNT_OF(whole);
    if (index >= RT_COUNT_OF(days) * RT_COUNT_OF(clocks))
        return false;
    snprintf(format, RT_NAME_MAX, "%s%s", days[index / RT_COUNT_OF(clocks)],
             clocks[index % RT_COUNT_OF(clocks)]);
    return true;
}
_Static_assert(RT_GUESS_TIMES >= 12 + 14 * 6, "all of them");

static bool is_likely(int64_t ms)
{
    return ms > -INT64_C(3000000000000) && ms < INT64_C(4200000000000); // 1875 to 2103
}

static void add_time(rt_guess_values *values, rt_cell cell)
{
    char format[RT_NAME_MAX];
    bool is_alive = false;
    const bool begins_well = cell.length >= 6 && cell.length < 48 &&
                             (rt_guess_is_digit(cell.text[0]) || rt_guess_is_letter(cell.text[0]));
    for (uint32_t i = 0; i < RT_GUESS_TIMES && values->has_times; i++) {
        rt_guess_time *time = &values->times[i];
        int64_t ms = 0;
        if (time->is_dead || !rt_guess_time_format(i, format))
            continue;
        if (!begins_well || !rt_date_parse(format, cell.text, cell.length, &ms) || !is_likely(ms)) {
            time->missed++;
            time->is_dead = time->missed * 200 > values->present; // at most a half percent
            is_alive |= !time->is_dead;
            continue;
        }
        is_alive = true;
        if (time->hours == 0 || ms < time->first_ms)
            time->first_ms = ms;
        if (time->hours == 0 || ms > time->last_ms)
            time->last_ms = ms;
        time->hours |= 1u << rt_date_hour(ms);
    }
    values->has_times = is_alive;
}

// ---- numbers ---------------------------------------------------------------------------------

static void note(rt_guess_value *list, uint32_t *count, uint32_t max, rt_cell cell, uint64_t *more)
{
    uint32_t i = 0;
    const size_t length = rt_min_u64(cell.length, RT_GUESS_TEXT - 1);
    while (i < *count &&
           (strlen(list[i].text) != length || memcmp(list[i].text, cell.text, length) != 0))
        i++;
    if (i == max) {
        ++*more;
        return;
    }
    if (i == *count) {
        memcpy(list[i].text, cell.text, length);
        ++*count;
    }
    list[i].count++;
}

// Whether points stand between thousands, at no other place: 1.234, 12.345.678.
static bool is_grouped(rt_cell cell)
{
    size_t digits = 0, points = 0;
    for (size_t i = cell.text[0] == '-'; i < cell.length; i++) {
        const bool is_point = cell.text[i] == '.';
        if (is_point && (digits == 0 || digits > 3 || (points > 0 && digits != 3)))
            return false;
        if (!is_point && !rt_guess_is_digit(cell.text[i]))
            return false;
        points += is_point;
        digits = is_point ? 0 : digits + 1;
    }
    const size_t sign = cell.text[0] == '-';
    return points > 0 && digits == 3 && cell.text[sign] != '0';
}

static void add_number(rt_guess_values *values, rt_cell cell)
{
    double number = 0, any = 0;
    bool is_one = false;
    if (cell.length < 40)
        for (int format = RT_NUMBER_SPACE_GROUPS; format >= RT_NUMBER_PLAIN; format--) {
            if (!rt_columns_number_as((rt_number_format)format, cell, &any))
                continue;
            values->numbers[format]++;
            is_one = true;
            number = any; // as it is written plainly, if it can be read so
        }
    if (!is_one) {
        note(values->odd, &values->odd_count, RT_GUESS_ODD, cell, &values->odd_more);
        return;
    }
    const uint64_t seen = values->numbers[RT_NUMBER_PLAIN] + values->fractions;
    const size_t sign = cell.text[0] == '-' || cell.text[0] == '+';
    values->dotted += memchr(cell.text, '.', cell.length) != NULL;
    values->grouped += is_grouped(cell);
    values->fractions += number != floor(number) || memchr(cell.text, '.', cell.length) ||
                         memchr(cell.text, ',', cell.length);
    values->leading_zeros +=
        cell.length > sign + 1 && cell.text[sign] == '0' && rt_guess_is_digit(cell.text[sign + 1]);
    values->negatives += number < 0;
    values->rises += number > values->before;
    values->steps += number == values->before + 1;
    values->before = number;
    if (values->present == 1 || number < values->min)
        values->min = number;
    if (values->present == 1 || number > values->max)
        values->max = number;
    // Every number has the same chance to stay (Vitter's algorithm R).
    rt_random random = {seen};
    if (seen <= RT_GUESS_NUMBERS)
        values->sample[seen ? seen - 1 : 0] = number;
    else if (rt_random_unit(&random) * (double)seen < RT_GUESS_NUMBERS)
        values->sample[rt_random_below(&random, RT_GUESS_NUMBERS)] = number;
}

// ---- texts -----------------------------------------------------------------------------------

char rt_guess_separator(uint32_t index)
{
    static const char separators[RT_GUESS_SEPARATORS] = {'|', ';', ','};
    return separators[index];
}

static rt_status add_parts(rt_guess_values *values, rt_cell cell)
{
    for (uint32_t i = 0; i < RT_GUESS_SEPARATORS; i++) {
        const char separator = rt_guess_separator(i);
        const char *at = cell.text, *end = at + cell.length;
        if (!memchr(at, separator, cell.length) && values->lists[i] == 0 && values->present > 1000)
            continue;
        values->lists[i] += memchr(at, separator, cell.length) != NULL;
        for (; at <= end; at++) {
            const char *stop = memchr(at, separator, (size_t)(end - at));
            stop = stop ? stop : end;
            const uint64_t hash = rt_hash_bytes(at, (size_t)(stop - at));
            values->parts[i]++;
            if (rt_keyset_count(&values->distinct_parts[i]) < DISTINCT_MAX &&
                rt_keyset_add(&values->distinct_parts[i], &hash, 1))
                return RT_NO_MEMORY;
            at = stop;
        }
    }
    return RT_OK;
}

static void add_shape(rt_guess_values *values, rt_cell cell)
{
    uint32_t digits = 0, points = 0, spaces = 0, others = 0;
    for (size_t i = 0; i < cell.length; i++) {
        const unsigned char c = (unsigned char)cell.text[i];
        digits += rt_guess_is_digit((char)c);
        points += c == '.';
        spaces += c == ' ';
        others += !rt_guess_is_digit((char)c) && c != '.' && c != ' ' && c != '-' && c != '(' &&
                  c != ')' && c != '/';
    }
    const char *at = memchr(cell.text, '@', cell.length);
    values->mails += at && at > cell.text && spaces == 0 &&
                     memchr(at, '.', (size_t)(cell.text + cell.length - at));
    values->addresses += points == 3 && others == 0 && digits >= 4 && digits + 3 == cell.length;
    values->phones += cell.text[0] == '+' && others == 1 && digits >= 8 && digits <= 15;
    values->bytes += cell.length;
    values->bytes_max = rt_max_u64(values->bytes_max, cell.length);
    values->spaces += spaces;
}

// ---- a column --------------------------------------------------------------------------------

rt_status rt_guess_values_init(rt_guess_values *values, const char *name, size_t length)
{
    *values = (rt_guess_values){.has_times = true};
    values->name = rt_alloc(length + 1, 1);
    rt_status status = values->name ? RT_OK : RT_NO_MEMORY;
    if (!status)
        memcpy(values->name, name, length);
    if (!status)
        status = rt_keyset_init(&values->distinct);
    if (!status)
        status = rt_keyset_init(&values->distinct_array);
    for (uint32_t i = 0; i < RT_GUESS_SEPARATORS && !status; i++)
        status = rt_keyset_init(&values->distinct_parts[i]);
    return status;
}

void rt_guess_values_fini(rt_guess_values *values)
{
    rt_free(values->name);
    rt_keyset_fini(&values->distinct);
    rt_keyset_fini(&values->distinct_array);
    for (uint32_t i = 0; i < RT_GUESS_SEPARATORS; i++)
        rt_keyset_fini(&values->distinct_parts[i]);
}

rt_status rt_guess_values_add(rt_guess_values *values, rt_cell cell)
{
    uint64_t more = 0;
    const int null = rt_guess_null_find(cell);
    if (cell.length == 0 || null >= 0) {
        values->empty += null < 0;
        if (null >= 0)
            values->nulls[null]++;
        return RT_OK;
    }
    values->present++;
    const uint64_t hash = rt_hash_bytes(cell.text, cell.length);
    if (rt_keyset_count(&values->distinct) < DISTINCT_MAX &&
        rt_keyset_add(&values->distinct, &hash, 1))
        return RT_NO_MEMORY;
    note(values->top, &values->top_count, RT_GUESS_TOP, cell, &more);
    add_number(values, cell);
    if (values->has_times)
        add_time(values, cell);
    add_shape(values, cell);
    return add_parts(values, cell);
}

rt_status rt_guess_values_add_array(rt_guess_values *values, const rt_cell *cells, uint32_t count)
{
    values->present += count > 0;
    values->empty += count == 0;
    values->arrays++;
    values->array_values += count;
    values->array_max = rt_max_u64(values->array_max, count);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t hash = rt_hash_bytes(cells[i].text, cells[i].length);
        if (rt_keyset_count(&values->distinct_array) < DISTINCT_MAX &&
            rt_keyset_add(&values->distinct_array, &hash, 1))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}
