// Which column is the label, and which of its texts is label 1.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/rt_formats.h"
#include "runtime/guess/rt_guess_parts.h"
#include "runtime/rt_json_read.h"

#define CLASSES_FEW 64u
#define RATING_SCORE 4u
#define NAMED_SCORE 10u

#define WORDS_LABEL "label labels target y"
#define WORDS_OUTCOME                                                                               \
    "click clicked clicks converted conversion bought buy purchased purchase churn churned "        \
    "exited default defaulted fraud fraudulent response responded outcome survived subscribed "     \
    "installed install liked like returned won success attrition cancelled canceled canceled "      \
    "readmitted approved accepted booked ordered opened gekauft kauf geklickt klick achat acheté " \
    "comprado acquistato retained active deposit class show noshow"
// A column that is called so is known before, or says the contrary.
#define WORDS_BEFORE \
    "previous previously prev last past prior before earlier ever history historical not non un"
#define WORDS_RATING "rating ratings stars"
#define YES                                                                                     \
    "1 1.0 true t yes y ja j oui o si sí sim s on positive pos good click clicked bought buy " \
    "purchase purchased converted churn churned yes. >50k fraud won success approved accepted " \
    "returned subscribed x"
#define NO                                                                                          \
    "0 0.0 false f no n nein non nao não off negative neg bad none -1 -1.0 no. <=50k stayed lost " \
    "rejected declined"

static bool is_in(const char *text, const char *words)
{
    char lower[RT_GUESS_TEXT];
    text += strspn(text, " ");
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == ' ')
        length--;
    if (length > sizeof lower)
        return false;
    for (size_t i = 0; i < length; i++)
        lower[i] = rt_guess_lower(text[i]);
    for (const char *at = words; *at;) {
        const size_t size = strcspn(at, " ");
        if (size == length && memcmp(at, lower, size) == 0)
            return true;
        at += size + strspn(at + size, " ");
    }
    return false;
}

bool rt_guess_says_no(rt_cell cell)
{
    char text[RT_GUESS_TEXT];
    double number;
    if (rt_columns_number_as(RT_NUMBER_COMMA, cell, &number))
        return number == 0;
    if (cell.length >= sizeof text)
        return false;
    memcpy(text, cell.text, cell.length);
    text[cell.length] = '\0';
    return is_in(text, NO);
}

static uint64_t none_of(const rt_guess_values *v)
{
    uint64_t none = v->empty;
    for (uint32_t i = 0; i < RT_GUESS_NULLS; i++)
        none += v->nulls[i];
    return none;
}

// Texts that it has, without what stands for nothing: 2, or 1 where the other one is nothing.
static bool is_binary(const rt_guess_values *v)
{
    const uint64_t distinct = rt_keyset_count(&v->distinct);
    const uint64_t none = none_of(v);
    if (v->arrays > 0 || v->nested > 0)
        return false;
    return distinct == 2 ||
           (distinct == 1 && none * 100 >= v->present && is_in(v->top[0].text, YES));
}

// Called so; or, where columns have no names, 1 to 5.
static bool is_rating(const rt_guess_table *table, const rt_guess_values *v)
{
    const uint64_t distinct = rt_keyset_count(&v->distinct);
    const bool is_named = rt_guess_has_word(v->name, WORDS_RATING);
    const bool is_like_one = !table->layout->has_header &&
                             table->layout->format == RT_FORMAT_TABLE && v->max == 5 &&
                             v->min > 0 && v->min <= 1 && distinct <= 10;
    return v->numbers[RT_NUMBER_PLAIN] == v->present && distinct > 2 && distinct <= 20 &&
           (is_named || is_like_one);
}

// How much speaks for it; 0: it cannot be.
static uint32_t score_of(const rt_guess_table *table, uint32_t index)
{
    const rt_guess_values *v = &table->values[index];
    const bool is_before = rt_guess_has_word(v->name, WORDS_BEFORE);
    const bool is_named = !is_before && rt_guess_has_word(v->name, WORDS_LABEL);
    const bool is_outcome = !is_before && rt_guess_has_word(v->name, WORDS_OUTCOME);
    const bool is_all = is_outcome && is_in(v->name, WORDS_OUTCOME); // "exited", "is active"
    if (is_rating(table, v))
        return RATING_SCORE;
    if (!is_binary(v))
        return 0;
    if (is_before)
        return 1;
    const bool is_word = is_in(v->top[0].text, YES " " NO);
    const bool is_edge = index == 0 || index + 1 == table->count;
    return (is_named ? 16u : 0) + (is_outcome ? 8u : 0) + (is_all ? 4u : 0) + (is_word ? 2u : 0) +
           (is_edge ? 2u : 0) + (index + 1 == table->count) + 2;
}

static void list_binary(const rt_guess_table *table, char *list, size_t size)
{
    size_t used = 0;
    list[0] = '\0';
    for (uint32_t i = 0; i < table->count && used + RT_NAME_MAX < size; i++)
        if (is_binary(&table->values[i]))
            used += (size_t)snprintf(list + used, size - used, "%s%.60s", used ? ", " : "",
                                     table->values[i].name);
}

// By its name, or its number from 1. Up to an equals sign, if there is none of the whole.
static bool find_asked(const rt_guess_table *table, const char *asked, uint32_t *index_p,
                       const char **value_p)
{
    const char *ends[] = {asked + strlen(asked), strrchr(asked, '=')};
    for (size_t e = 0; e < RT_COUNT_OF(ends) && ends[e]; e++) {
        const size_t length = (size_t)(ends[e] - asked);
        *value_p = *ends[e] ? ends[e] + 1 : NULL;
        for (*index_p = 0; *index_p < table->count; ++*index_p) {
            const char *name = table->values[*index_p].name;
            if (strlen(name) == length && memcmp(name, asked, length) == 0)
                return true;
        }
        char *end;
        const unsigned long number = strtoul(asked, &end, 10);
        *index_p = (uint32_t)number - 1;
        if (end == ends[e] && number >= 1 && number <= table->count)
            return true;
    }
    return false;
}

// ---- what is label 1 -------------------------------------------------------------------------

static uint64_t count_of(const rt_guess_values *v, const char *text)
{
    for (uint32_t i = 0; i < v->top_count; i++)
        if (strcmp(v->top[i].text, text) == 0)
            return v->top[i].count;
    return 0;
}

static void take_value(const rt_guess_values *v, const char *text, const char *why,
                       rt_guess_column *column)
{
    const uint64_t rows = v->top_count == 1 ? v->present + none_of(v) : v->present;
    const double share = rows ? 100 * (double)count_of(v, text) / (double)rows : 0;
    double number;
    // A number is compared as one, so that 1 is also 1.0.
    if (!rt_columns_number((rt_cell){text, strlen(text)}, &number) || number != 1)
        snprintf(column->column.label_value, RT_NAME_MAX, "%s", text);
    snprintf(column->why, sizeof column->why, "%s; \"%s\" is 1: %.1f%% of the rows", why, text,
             share);
}

static bool is_less(const char *a, const char *b)
{
    double x, y;
    const rt_cell first = {a, strlen(a)}, second = {b, strlen(b)};
    if (rt_columns_number(first, &x) && rt_columns_number(second, &y))
        return x < y;
    return false;
}

// Of two numbers the larger, 2 of 1 and 2; of two texts the one that says yes, else the one that
// does not say no, else the rarer.
static void decide_binary(const rt_guess_values *v, const char *why, rt_guess_column *column)
{
    const char *a = v->top[0].text, *b = v->top[1].text;
    const bool a_is = is_in(a, YES) || is_in(b, NO), b_is = is_in(b, YES) || is_in(a, NO);
    if (v->top_count == 1) { // the other one is empty
        take_value(v, a, why, column);
        snprintf(column->column.missing, RT_NAME_MAX, "%s", strcmp(a, "0") == 0 ? "1" : "0");
        return;
    }
    if (is_less(a, b) || is_less(b, a))
        take_value(v, is_less(a, b) ? b : a, why, column);
    else if (a_is != b_is)
        take_value(v, a_is ? a : b, why, column);
    else
        take_value(v, v->top[0].count < v->top[1].count ? a : b, why, column);
}

static rt_status decide_many(const rt_guess_values *v, const char *why, rt_guess_column *column,
                             rt_error *error)
{
    const uint64_t distinct = rt_keyset_count(&v->distinct);
    const bool are_whole = v->numbers[RT_NUMBER_PLAIN] == v->present && v->fractions == 0;
    if (are_whole && v->min == 0 && (uint64_t)v->max + 1 == distinct && distinct <= CLASSES_FEW) {
        column->column.classes = (uint32_t)distinct;
        snprintf(column->why, sizeof column->why, "%s; one of %u classes", why, (unsigned)distinct);
        return RT_OK;
    }
    if (v->numbers[RT_NUMBER_PLAIN] == v->present && v->present > 0) {
        const double from = v->max > 1 && v->max <= 10 ? ceil(v->max * 0.8) : v->max;
        column->column.label_rule = RT_LABEL_AT_LEAST;
        snprintf(column->column.label_value, RT_NAME_MAX, "%.15g", from);
        snprintf(column->why, sizeof column->why, "%s; 1 from %.15g on (`value` says so)", why,
                 from);
        return RT_OK;
    }
    return rt_fail(error, RT_DATA,
                   "%s has %s%llu different texts (%s, %s, ...); say which is label 1: --label "
                   "'%s=%s'",
                   v->name, distinct >= 300000 ? "at least " : "", (unsigned long long)distinct,
                   v->top[0].text, v->top[1].text, v->name, v->top[0].text);
}

double rt_guess_unlabelled(const rt_guess_values *v, rt_guess_column *column)
{
    const uint64_t none = column->column.missing[0] ? 0 : none_of(v);
    const size_t used = strlen(column->why);
    if (none == 0)
        return 0;
    snprintf(column->why + used, sizeof column->why - used,
             "; %" PRIu64 " rows have none, and are left out", none);
    return (double)none / (double)(none + v->present);
}

rt_status rt_guess_label(const rt_guess_table *table, const char *asked, uint32_t *index_p,
                         rt_guess_column *column, rt_error *error)
{
    char list[400];
    const char *value = NULL, *why = "as asked";
    uint32_t best = 0, named = 0;
    if (asked && !find_asked(table, asked, index_p, &value))
        return rt_fail(error, RT_DATA, "--label %s: no column has this name or number", asked);
    for (uint32_t i = 0; i < table->count && !asked; i++) {
        const uint32_t score = score_of(table, i);
        named += score >= NAMED_SCORE;
        if (score < best || score == 0 || (score == best && best > 0))
            continue;
        best = score;
        *index_p = i;
    }
    if (!asked && best == 0) {
        return rt_fail(error, RT_DATA,
                       "no column has two values, as a label has (clicked or not, bought or not); "
                       "say which it is: --label NAME, or NAME=VALUE where VALUE is label 1");
    }
    const rt_guess_values *v = &table->values[*index_p];
    if (!asked) {
        list_binary(table, list, sizeof list);
        const bool is_only = !strchr(list, ',');
        why = best >= NAMED_SCORE && named > 1 ? "the likeliest by its name; else --label NAME"
              : best >= NAMED_SCORE            ? "the label by its name"
              : best == RATING_SCORE && is_rating(table, v) ? "a rating"
              : is_only                                     ? "the only column with two values"
                        : "the likeliest of those with two values; else --label NAME";
    }
    snprintf(column->column.label_value, RT_NAME_MAX, "1");
    column->column.kind = RT_COLUMN_LABEL;
    if (v->present == 0)
        return rt_fail(error, RT_DATA, "%s, the label, is always empty", v->name);
    if (value && count_of(v, value) == 0 && v->top_count < RT_GUESS_TOP)
        return rt_fail(error, RT_DATA, "--label %s: the first %llu rows have no \"%s\" there",
                       asked, (unsigned long long)table->row_count, value);
    if (value)
        take_value(v, value, why, column);
    else if (is_binary(v))
        decide_binary(v, why, column);
    else
        return decide_many(v, why, column, error);
    // It is kept as far as it is shown.
    const char *one = column->column.label_value;
    if (strlen(one) + 1 >= RT_GUESS_TEXT || !rt_json_is_utf8(one, strlen(one)))
        return rt_fail(error, RT_DATA,
                       "%s, the label: its text for 1 is longer than %u bytes, or not UTF-8 (iconv "
                       "-f LATIN1 -t UTF-8 writes the file so)",
                       v->name, RT_GUESS_TEXT - 2);
    return RT_OK;
}
