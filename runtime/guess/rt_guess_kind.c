// What a column is to a model, by its name and by what its values have in common.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/rt_formats.h"
#include "runtime/guess/rt_guess_parts.h"
#include "runtime/rt_date.h"
#include "runtime/rt_json_read.h"

#define DAY_MS (24 * INT64_C(3600000))
#define FEW 32u // values that are told apart better than they are measured

// Words of names; what people call things in English, German, French, Spanish and Italian.
#define WORDS_ID                                                                                 \
    "id ids uid uuid guid code codes key sku ean gtin isbn asin zip postal postcode plz number " \
    "no nr num item product article artikel produit producto user customer client kunde kunden " \
    "member device shop store branch filiale category cat kategorie type class segment brand "   \
    "campaign ad banner site page channel kanal region country land city model version status "  \
    "gender sex merchant seller supplier advertiser publisher creative os browser pos position"
#define WORDS_QUANTITY                                                                                    \
    "price preis prix precio prezzo amount betrag montant qty quantity menge count cnt age alter "        \
    "total sum summe cost costs kosten revenue umsatz distance duration dauer seconds sec secs "          \
    "minutes hours days weeks months weight gewicht height length width size volume score rate "          \
    "pct percent prozent share ratio discount rabatt temperature temp balance salary income "             \
    "limit budget premium visits views clicks impressions sessions orders purchases points stars rating " \
    "tenure latitude longitude lat lon lng speed power energy load value wert bytes avg mean min "        \
    "max std median nights guests rooms children adults area level depth frequency recency"
#define WORDS_PERSON                                                                             \
    "customer user client member person people patient kunde kunden visitor subscriber account " \
    "email mail phone telephone telefon mobile ip cookie ssn passport name surname firstname "   \
    "lastname username login contact employee driver cliente utente utilisateur"
#define WORDS_EVENT "session order transaction event request view search query offer invoice click"
#define WORDS_TIME                                                                             \
    "time timestamp ts date datetime at when day hour created updated zeit datum heure fecha " \
    "epoch ms millis seen since"
#define WORDS_BIRTH "birth birthday birthdate dob geburtsdatum geburtstag naissance"

// ---- names -----------------------------------------------------------------------------------

static bool is_word_in(const char *word, size_t length, const char *words)
{
    for (const char *at = words; *at;) {
        const size_t size = strcspn(at, " ");
        if (size == length && memcmp(at, word, size) == 0)
            return true;
        at += size + strspn(at + size, " ");
    }
    return false;
}

// Or one of them with what makes an id of it: itemid, kundennr.
static bool is_id_of(const char *word, size_t length, const char *words)
{
    static const char *const endings[] = {"id", "ids", "code", "key", "nr", "no", "nummer"};
    for (size_t i = 0; i < RT_COUNT_OF(endings); i++) {
        const size_t size = strlen(endings[i]);
        if (length > size && memcmp(word + length - size, endings[i], size) == 0 &&
            is_word_in(word, length - size, words))
            return true;
    }
    return false;
}

static bool find_word(const char *name, const char *words,
                      bool (*is_one)(const char *word, size_t length, const char *words))
{
    char word[64];
    size_t length = 0;
    for (const char *at = name;; at++) {
        const bool is_begin = at > name && rt_guess_is_upper(*at) &&
                              (rt_guess_is_letter(at[-1]) && !rt_guess_is_upper(at[-1])); // userId
        const bool is_letter = rt_guess_is_letter(*at) || (*at & 0x80);
        if ((!is_letter || is_begin) && length > 0) {
            if (is_one(word, length, words))
                return true;
            length = 0;
        }
        if (!*at)
            return false;
        if (is_letter && length < sizeof word)
            word[length++] = rt_guess_lower(*at);
    }
}

bool rt_guess_has_word(const char *name, const char *words)
{
    return find_word(name, words, is_word_in);
}

static bool is_person(const char *name)
{
    return rt_guess_has_word(name, WORDS_PERSON) || find_word(name, WORDS_PERSON, is_id_of);
}

// ---- counts ----------------------------------------------------------------------------------

static uint64_t distinct_of(const rt_guess_values *v)
{
    return rt_keyset_count(&v->distinct);
}

static uint64_t nulls_of(const rt_guess_values *v)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < RT_GUESS_NULLS; i++)
        count += v->nulls[i];
    return count;
}

static uint64_t rows_of(const rt_guess_values *v)
{
    return v->present + v->empty + nulls_of(v);
}

static double share(uint64_t part, uint64_t of)
{
    return of ? (double)part / (double)of : 0;
}

// "12% empty" behind what was said.
static void add_empty(const rt_guess_values *v, rt_guess_column *column)
{
    const size_t used = strlen(column->why);
    const uint64_t none = v->empty + nulls_of(v);
    if (none > 0)
        snprintf(column->why + used, sizeof column->why - used, ", %.*f%% empty",
                 none * 1000 < rows_of(v) * 10, 100 * share(none, rows_of(v)));
}

static bool can_be_null(const char *text)
{
    return strlen(text) < RT_COLUMN_NULL_SIZE && rt_json_is_utf8(text, strlen(text));
}

static void add_null(rt_column *column, const char *text)
{
    if (column->null_count < RT_COLUMN_NULLS_MAX && can_be_null(text))
        snprintf(column->nulls[column->null_count++], RT_COLUMN_NULL_SIZE, "%s", text);
}

// The most frequent ones; only sure ones where texts are values.
static void take_nulls(const rt_guess_values *v, bool only_sure, rt_column *column)
{
    bool is_taken[RT_GUESS_NULLS] = {0}, is_sure;
    column->null_count = 0;
    for (uint32_t n = 0; n < RT_COLUMN_NULLS_MAX; n++) {
        int best = -1;
        for (uint32_t i = 0; i < RT_GUESS_NULLS; i++) {
            rt_guess_null(i, &is_sure);
            if (!is_taken[i] && v->nulls[i] > 0 && (is_sure || !only_sure) &&
                (best < 0 || v->nulls[i] > v->nulls[best]))
                best = (int)i;
        }
        if (best < 0)
            return;
        is_taken[best] = true;
        add_null(column, rt_guess_null((uint32_t)best, &is_sure));
    }
}

// ---- numbers ---------------------------------------------------------------------------------

static uint64_t odd_of(const rt_guess_values *v)
{
    uint64_t count = v->odd_more;
    for (uint32_t i = 0; i < v->odd_count; i++)
        count += v->odd[i].count;
    return count;
}

static bool can_all_be_nulls(const rt_guess_values *v)
{
    for (uint32_t i = 0; i < v->odd_count; i++)
        if (!can_be_null(v->odd[i].text))
            return false;
    return v->odd_more == 0 && v->odd_count <= 2;
}

// Whether they are numbers, but for a few texts that can be named as nulls.
static bool find_number_format(const rt_guess_table *table, const rt_guess_values *v,
                               rt_number_format *format_p)
{
    uint64_t most = 0;
    for (int format = RT_NUMBER_PLAIN; format <= RT_NUMBER_SPACE_GROUPS; format++) {
        if (v->numbers[format] <= most)
            continue;
        most = v->numbers[format];
        *format_p = (rt_number_format)format;
    }
    // 1,234 is 1.234 where semicolons divide cells, as it is where other columns have decimals so.
    if (*format_p == RT_NUMBER_COMMA && v->numbers[RT_NUMBER_COMMA_GROUPS] == most &&
        !table->has_comma && table->layout->delimiter != ';')
        *format_p = RT_NUMBER_COMMA_GROUPS;
    if (*format_p == RT_NUMBER_PLAIN && table->has_comma && v->fractions == 0 &&
        table->layout->format == RT_FORMAT_TABLE)
        *format_p = RT_NUMBER_COMMA; // whole ones so far
    // So is 1.234 not 1.234 where others have decimals behind a comma.
    if (*format_p == RT_NUMBER_PLAIN && table->has_comma && v->grouped > 0 &&
        v->grouped == v->dotted && table->layout->format == RT_FORMAT_TABLE)
        *format_p = RT_NUMBER_POINT_GROUPS;
    const uint64_t odd = v->present - most;
    return most > 0 && (odd * 1000 <= v->present ||
                        (can_all_be_nulls(v) && most * 2 >= v->present && odd == odd_of(v)));
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Whether whole numbers lie about evenly between the least and the largest, as numbers do that are
// given to things one by one, and quantities do not.
static bool is_even(const rt_guess_values *v)
{
    double sorted[RT_GUESS_NUMBERS];
    const size_t count = rt_min_u64(v->present - odd_of(v), RT_GUESS_NUMBERS);
    memcpy(sorted, v->sample, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_doubles);
    const double range = v->max - v->min;
    const double low = (sorted[count / 4] - v->min) / range,
                 middle = (sorted[count / 2] - v->min) / range,
                 high = (sorted[count * 3 / 4] - v->min) / range;
    return fabs(low - 0.25) < 0.1 && fabs(middle - 0.5) < 0.1 && fabs(high - 0.75) < 0.1;
}

// Whether few of many possible numbers occur, again and again, also among the usual ones, and they
// are not round: as codes do.
static bool is_sparse(const rt_guess_values *v)
{
    double sorted[RT_GUESS_NUMBERS];
    const size_t count = rt_min_u64(v->present - odd_of(v), RT_GUESS_NUMBERS);
    size_t round = 0, distinct = 1;
    memcpy(sorted, v->sample, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_doubles);
    for (size_t i = 0; i < count; i++)
        round += fmod(sorted[i], 10) == 0;
    const size_t low = count / 10, high = count - 1 - count / 10;
    for (size_t i = low + 1; i <= high; i++)
        distinct += sorted[i] != sorted[i - 1];
    const double range = v->max - v->min, bulk = sorted[high] - sorted[low];
    return distinct_of(v) * 8 <= v->present && range > 8 * (double)distinct_of(v) &&
           bulk > 8 * (double)distinct && round * 2 < count;
}

static void decide_dense(const rt_guess_values *v, rt_number_format format, const char *why,
                         rt_guess_column *column)
{
    char min[32], max[32];
    column->column.kind = RT_COLUMN_DENSE;
    column->column.number_format = format;
    take_nulls(v, false, &column->column);
    for (uint32_t i = 0; i < v->odd_count; i++)
        add_null(&column->column, v->odd[i].text);
    if (format == RT_NUMBER_POINT_GROUPS && v->grouped == v->dotted) {
        snprintf(column->why, sizeof column->why, "whole numbers, points between thousands");
        return;
    }
    snprintf(min, sizeof min, "%.6g", v->min);
    snprintf(max, sizeof max, "%.6g", v->max);
    snprintf(column->why, sizeof column->why, "%s, %s to %s", why, min, max);
    if (v->min >= 0 && v->max > 1000 && !(v->leading_zeros > 0)) {
        double sorted[RT_GUESS_NUMBERS];
        const size_t count = rt_min_u64(v->present - odd_of(v), RT_GUESS_NUMBERS);
        memcpy(sorted, v->sample, count * sizeof *sorted);
        qsort(sorted, count, sizeof *sorted, compare_doubles);
        if (sorted[count / 2] * 20 < v->max)
            column->column.transform = RT_TRANSFORM_LOG1P; // a few are very large
    }
}

static void decide_categorical(const rt_guess_values *v, const char *why, rt_guess_column *column)
{
    column->column.kind = RT_COLUMN_CATEGORICAL;
    take_nulls(v, true, &column->column);
    snprintf(column->why, sizeof column->why, "%s, %llu different", why,
             (unsigned long long)distinct_of(v));
    column->is_person = v->mails * 2 > v->present || v->addresses * 2 > v->present ||
                        v->phones * 2 > v->present ||
                        (distinct_of(v) > 20 && is_person(column->name));
}

static void decide_ignore(const char *why, rt_guess_column *column)
{
    column->column.kind = RT_COLUMN_IGNORE;
    snprintf(column->why, sizeof column->why, "%s", why);
}

static void decide_number(const rt_guess_values *v, rt_number_format format,
                          rt_guess_column *column)
{
    const uint64_t distinct = distinct_of(v), numbers = v->present - odd_of(v);
    const char *name = column->name;
    const bool is_quantity = rt_guess_has_word(name, WORDS_QUANTITY),
               is_id = rt_guess_has_word(name, WORDS_ID),
               is_called_id = rt_guess_has_word(name, "id ids uid key code") ||
                              find_word(name, WORDS_ID " " WORDS_PERSON " " WORDS_EVENT, is_id_of);
    if (v->leading_zeros > 0 && v->fractions == 0)
        decide_categorical(v, "digits with zeros before them", column);
    else if (v->fractions > 0)
        decide_dense(v, format, "numbers with decimals", column);
    else if (v->steps + 1 >= numbers && numbers > 20)
        decide_ignore("counts the rows", column);
    else if (distinct * 100 >= numbers * 99 && numbers > 100 && (is_id || !is_quantity) &&
             (is_called_id || is_even(v)))
        decide_ignore("another number in every row: nothing to learn from it", column);
    else if (is_called_id)
        decide_categorical(v, "whole numbers that are ids by their name", column);
    else if (is_quantity)
        decide_dense(v, format, "whole numbers that are a quantity by their name", column);
    else if (is_id)
        decide_categorical(v, "whole numbers that are ids by their name", column);
    else if (distinct <= FEW)
        decide_categorical(v, "few whole numbers", column);
    else if (is_sparse(v))
        decide_categorical(v, "few of many possible whole numbers, as codes are", column);
    else if (v->negatives == 0 && v->max >= 200 && (v->max > 1e7 || is_even(v)))
        decide_categorical(v, "whole numbers, spread as ids are", column);
    else
        decide_dense(v, format, "whole numbers", column);
}

// ---- times -----------------------------------------------------------------------------------

static bool decide_time(const rt_guess_values *v, const char *format, const rt_guess_time *time,
                        rt_guess_column *column)
{
    const bool is_birth = rt_guess_has_word(column->name, WORDS_BIRTH);
    column->column.kind = RT_COLUMN_IGNORE;
    snprintf(column->column.time_format, RT_NAME_MAX, "%s", format);
    take_nulls(v, false, &column->column);
    column->has_hours = !is_birth && rt_bits_many(time->hours);
    column->has_days = !is_birth && time->last_ms - time->first_ms >= DAY_MS;
    const char *made = column->has_hours && column->has_days ? "hour and weekday are made of them"
                       : column->has_hours                   ? "the hour is made of them"
                       : column->has_days                    ? "the weekday is made of them"
                                                             : "not used: all of one day";
    snprintf(column->why, sizeof column->why, "times as %s: %s", format,
             is_birth ? "not used, they are of births" : made);
    return true;
}

static bool find_text_time(const rt_guess_values *v, rt_guess_column *column)
{
    char format[RT_NAME_MAX];
    const bool is_called = rt_guess_has_word(column->name, WORDS_TIME " " WORDS_BIRTH);
    for (uint32_t i = 0; v->has_times && rt_guess_time_format(i, format); i++) {
        const rt_guess_time *time = &v->times[i];
        if (time->is_dead || time->hours == 0)
            continue;
        // Digits alone may be any number.
        const bool is_digits = v->numbers[RT_NUMBER_PLAIN] == v->present;
        const bool is_short = strstr(format, "%y%m%d") == format;
        const bool is_recent = time->first_ms > INT64_C(631152000000) && // 1990
                               time->last_ms < INT64_C(2208988800000);   // 2040
        if (is_digits && (!is_recent || (is_short && !is_called)))
            continue;
        return decide_time(v, format, time, column);
    }
    return false;
}

// Seconds, or parts of them, since 1970.
static bool find_unix_time(const rt_guess_values *v, rt_guess_column *column)
{
    static const struct {
        const char *format;
        double ms;
    } units[] = {{"unix", 1000}, {"unix_ms", 1}, {"unix_us", 1e-3}, {"unix_ns", 1e-6}};
    const uint64_t numbers = v->numbers[RT_NUMBER_PLAIN];
    const bool is_called = rt_guess_has_word(column->name, WORDS_TIME);
    if (numbers < v->present || numbers == 0 || (!is_called && v->rises * 10 < numbers * 9))
        return false;
    for (size_t i = 0; i < RT_COUNT_OF(units); i++) {
        const double first = v->min * units[i].ms, last = v->max * units[i].ms;
        if (first < 631152000e3 || last > 2208988800e3) // 1990 to 2040
            continue;
        rt_guess_time time = {.first_ms = (int64_t)first, .last_ms = (int64_t)last};
        const size_t count = rt_min_u64(numbers, RT_GUESS_NUMBERS);
        for (size_t k = 0; k < count; k++)
            time.hours |= 1u << rt_date_hour((int64_t)(v->sample[k] * units[i].ms));
        return decide_time(v, units[i].format, &time, column);
    }
    return false;
}

// ---- lists and texts -------------------------------------------------------------------------

static void decide_list(const rt_guess_values *v, uint64_t distinct, uint64_t most,
                        rt_guess_column *column)
{
    column->column.kind = RT_COLUMN_MULTI;
    column->column.values_max = (uint32_t)rt_min_u64(rt_max_u64(most, 8), 32);
    take_nulls(v, true, &column->column);
    snprintf(column->why, sizeof column->why, "several values in a cell, %llu different",
             (unsigned long long)distinct);
}

// Whether a character divides cells into values that come again in other cells.
static bool find_list(const rt_guess_table *table, const rt_guess_values *v,
                      rt_guess_column *column)
{
    for (uint32_t i = 0; i < RT_GUESS_SEPARATORS; i++) {
        const uint64_t parts = v->parts[i], distinct = rt_keyset_count(&v->distinct_parts[i]);
        const char separator = rt_guess_separator(i);
        if (separator == table->layout->delimiter && table->layout->format == RT_FORMAT_TABLE)
            continue;
        if (v->lists[i] * 5 < v->present || distinct * 2 >= distinct_of(v) || distinct * 10 > parts)
            continue;
        column->column.separator = separator;
        decide_list(v, distinct, parts / rt_max_u64(v->present, 1) * 4, column);
        return true;
    }
    return false;
}

static void decide_text(const rt_guess_table *table, const rt_guess_values *v,
                        rt_guess_column *column)
{
    const uint64_t distinct = distinct_of(v);
    const double length = share(v->bytes, v->present), spaces = share(v->spaces, v->present);
    if (find_list(table, v, column))
        return;
    if (distinct * 100 >= v->present * 98 && v->present > 50)
        decide_ignore(length > 40 && spaces > 4 ? "running text: not used"
                                                : "another text in every row: nothing to learn "
                                                  "from it",
                      column);
    else if (length > 60 && spaces > 8 && distinct * 2 > v->present)
        decide_ignore("running text: not used", column);
    else
        decide_categorical(v, v->words == v->present ? "true or false" : "texts", column);
}

// ---- all of it -------------------------------------------------------------------------------

// Rows are so where the label is `label`, and are not where it is the other one.
static bool goes_with_label(uint64_t rows[2][2], uint32_t label)
{
    return rows[1][label] > 10 && rows[0][!label] > 10 &&
           rows[1][!label] * 1000 <= rows[0][!label] && rows[0][label] * 50 <= rows[1][label];
}

// Rows are so only where the label is 1, if not in all of these: it is no chance, as twenty of
// label 0 were to be expected among them.
static bool comes_with_one(uint64_t rows[2][2])
{
    const double ones = (double)(rows[0][1] + rows[1][1]), zeros = (double)rows[0][0];
    return rows[1][0] == 0 && ones > 0 && (double)rows[1][1] * zeros > 20 * (zeros + ones);
}

// Why a column is known when the label is, not before; NULL: it may be known before.
static const char *find_late(rt_guess_values *v)
{
    if (goes_with_label(v->splits[RT_GUESS_THERE], 1) || comes_with_one(v->splits[RT_GUESS_THERE]))
        return "filled only where the label is 1: it is not known before";
    if (goes_with_label(v->splits[RT_GUESS_THERE], 0))
        return "filled only where the label is 0: it is not known before";
    if (distinct_of(v) == 2 && (goes_with_label(v->splits[RT_GUESS_FIRST], 0) ||
                                goes_with_label(v->splits[RT_GUESS_FIRST], 1)))
        return "says what the label says: it is not known before";
    if (goes_with_label(v->splits[RT_GUESS_TELLS], 1) || comes_with_one(v->splits[RT_GUESS_TELLS]))
        return "0, no or nothing wherever the label is 0: it is not known before";
    if (goes_with_label(v->splits[RT_GUESS_TELLS], 0))
        return "0, no or nothing wherever the label is 1: it is not known before";
    return NULL;
}

void rt_guess_kind(const rt_guess_table *table, uint32_t index, rt_guess_column *column)
{
    rt_guess_values *v = &table->values[index];
    rt_number_format format = RT_NUMBER_PLAIN;
    const char *late = find_late(v);
    const uint64_t none = v->empty + nulls_of(v);
    if (v->nested > 0)
        decide_ignore("objects in an array: not read", column);
    else if (v->beyond > 0)
        decide_ignore("numbers beyond 2^53, which JSON rounds: write them as texts", column);
    else if (v->present == 0)
        decide_ignore("always empty", column);
    else if (late)
        decide_ignore(late, column);
    else if (v->arrays > 0)
        decide_list(v, rt_keyset_count(&v->distinct_array), v->array_max, column);
    else if (distinct_of(v) == 1 && none * 200 < rows_of(v))
        snprintf(column->why, sizeof column->why, "always \"%.40s\"", v->top[0].text);
    else if (find_text_time(v, column) || find_unix_time(v, column))
        ;
    else if (find_number_format(table, v, &format))
        decide_number(v, format, column);
    else
        decide_text(table, v, column);
    if (column->column.kind != RT_COLUMN_IGNORE)
        add_empty(v, column);
}
