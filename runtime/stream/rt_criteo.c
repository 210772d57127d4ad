#include "runtime/stream/rt_criteo.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "runtime/stream/rt_event_id.h"
#include "runtime/stream/rt_parser.h"

#define COLUMNS (1 + RT_CRITEO_DENSE + RT_CRITEO_FIELDS)
#define INTEGER_DIGITS_MAX 18 // fits into 64 bits
#define ID_DIGITS 8
#define LOGS (1u << 14) // 96% of the integers of the Kaggle set are smaller

struct rt_criteo {
    float log1p[LOGS];
    uint8_t digits[256]; // value of a hexadecimal digit; 0xff: not one
    uint32_t columns;    // of a line: one more where the name of an event is behind the others
    uint32_t id_column;
    bool labels_optional; // every label is 0; its cell may hold anything, or be left out
};

rt_status rt_criteo_create(rt_criteo **criteo_p)
{
    rt_criteo *criteo = rt_alloc(1, sizeof *criteo);
    if (!criteo)
        return RT_NO_MEMORY;
    for (uint32_t i = 0; i < LOGS; i++)
        criteo->log1p[i] = (float)log1p(i);
    memset(criteo->digits, 0xff, sizeof criteo->digits);
    for (uint8_t i = 0; i < 16; i++) {
        criteo->digits[(uint8_t) "0123456789abcdef"[i]] = i;
        criteo->digits[(uint8_t) "0123456789ABCDEF"[i]] = i;
    }
    criteo->columns = COLUMNS;
    *criteo_p = criteo;
    return RT_OK;
}

void rt_criteo_destroy(rt_criteo *criteo)
{
    rt_free(criteo);
}

void rt_criteo_schema(rt_schema *schema)
{
    memset(schema, 0, sizeof *schema);
    schema->dense_count = RT_CRITEO_DENSE;
    schema->field_count = RT_CRITEO_FIELDS;
    schema->keys_per_sample_max = RT_CRITEO_FIELDS;
    for (uint32_t i = 0; i < RT_CRITEO_FIELDS; i++)
        snprintf(schema->field_names[i], RT_NAME_MAX, "C%u", i + 1);
}

static uint32_t count_columns(const rt_line *line)
{
    uint32_t columns = 1;
    for (uint32_t i = 0; i < line->length; i++)
        columns += line->text[i] == '\t';
    return columns;
}

// Finds out what parsing stumbled over in column; kept out of the hot path.
static __attribute__((noinline)) bool reject(const rt_criteo *criteo, const rt_line *line,
                                             uint32_t column, rt_line_problem *problem)
{
    const char *end = line->text + line->length;
    const uint32_t columns = count_columns(line);
    const bool lacks_label = criteo->labels_optional && columns == criteo->columns - 1;
    if (columns != criteo->columns && !lacks_label)
        return rt_line_reject(problem, "expected %u tab separated columns, found %u",
                              criteo->columns, columns);
    const char *cell = line->text;
    for (uint32_t i = lacks_label; i < column; i++)
        cell = (const char *)memchr(cell, '\t', (size_t)(end - cell)) + 1;
    const char *cell_end = memchr(cell, '\t', (size_t)(end - cell));
    size_t length = (size_t)((cell_end ? cell_end : end) - cell);
    char name[16];
    if (column == 0)
        return rt_line_reject_cell(problem, column, "label", "0 or 1", cell, length);
    if (column <= RT_CRITEO_DENSE) {
        snprintf(name, sizeof name, "I%u", column);
        return rt_line_reject_cell(problem, column, name,
                                   "an integer of up to 18 digits or nothing", cell, length);
    }
    snprintf(name, sizeof name, "C%u", column - RT_CRITEO_DENSE);
    return rt_line_reject_cell(problem, column, name, "8 hexadecimal digits or nothing", cell,
                               length);
}

// The end of the integer at `at`; NULL when there is neither one nor an empty cell. No digit and no
// tab stands at the end of a line, so nothing here runs past it.
static inline const char *take_integer(const rt_criteo *criteo, const char *at, double *value_p)
{
    bool is_negative = *at == '-';
    at += is_negative;
    const char *first = at;
    uint64_t value = 0;
    for (uint32_t digit; (digit = (uint32_t)*at - '0') <= 9; at++)
        value = value * 10 + digit; // may wrap; rejected below then
    size_t digits = (size_t)(at - first);
    if (digits > INTEGER_DIGITS_MAX || (is_negative && digits == 0))
        return NULL;
    if (is_negative)
        value = 0;
    *value_p = value < LOGS ? (double)criteo->log1p[value] : log1p((double)value);
    return at;
}

// 8 digits, most significant first; false when one of them is none. Reads all 8 bytes in any case.
static inline bool take_id(const rt_criteo *criteo, const char *at, uint64_t *id_p)
{
    uint32_t id = 0, seen = 0;
    for (int i = 0; i < ID_DIGITS; i++) {
        uint32_t digit = criteo->digits[(uint8_t)at[i]];
        seen |= digit;
        id = id << 4 | (digit & 0xf);
    }
    *id_p = id;
    return seen <= 0xf;
}

// Where the cells behind the label begin; NULL: there is no label, and there should be.
static const char *take_label(const rt_criteo *criteo, const rt_line *line, rt_line_sample *sample)
{
    const char *at = line->text;
    if (RT_UNLIKELY(criteo->labels_optional)) {
        sample->label = 0;
        if (count_columns(line) != criteo->columns)
            return at;
        return (const char *)memchr(at, '\t', line->length) + 1;
    }
    if ((*at != '0' && *at != '1') || at[1] != '\t')
        return NULL;
    sample->label = (float)(*at - '0');
    return at + 2;
}

bool rt_criteo_parse(const rt_criteo *criteo, const rt_line *line, rt_line_sample *sample,
                     rt_line_problem *problem)
{
    _Static_assert(RT_LINE_PAD >= ID_DIGITS, "take_id may read this far behind the line");
    const char *at = take_label(criteo, line, sample), *end = line->text + line->length;
    if (!at)
        return reject(criteo, line, 0, problem);
    for (uint32_t i = 0; i < RT_CRITEO_DENSE; i++) {
        at = take_integer(criteo, at, &sample->dense[i]);
        if (!at || *at != '\t')
            return reject(criteo, line, 1 + i, problem);
        at++;
    }
    for (uint32_t i = 0; i < RT_CRITEO_FIELDS; i++) {
        uint64_t id = RT_ID_MISSING;
        if (*at != '\t' && at != end) {
            if (!take_id(criteo, at, &id))
                return reject(criteo, line, 1 + RT_CRITEO_DENSE + i, problem);
            at += ID_DIGITS;
        }
        sample->keys[i] = rt_key(i, id);
        if (i + 1 < RT_CRITEO_FIELDS && *at++ != '\t')
            return reject(criteo, line, 1 + RT_CRITEO_DENSE + i, problem);
    }
    sample->key_count = RT_CRITEO_FIELDS;
    if (RT_LIKELY(at == end && criteo->columns == COLUMNS))
        return true;
    const bool has_name = criteo->columns > COLUMNS && at < end && *at == '\t' &&
                          !memchr(at + 1, '\t', (size_t)(end - at - 1));
    return has_name || reject(criteo, line, COLUMNS - 1, problem);
}

// ---- the table of operations -----------------------------------------------------------------

static rt_status create(const rt_stream_config *config, void **parser_p, rt_error *error)
{
    rt_criteo *criteo;
    if (rt_criteo_create(&criteo))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a stream");
    criteo->labels_optional = config->labels_optional;
    *parser_p = criteo;
    return RT_OK;
}

static void destroy(void *parser)
{
    rt_criteo_destroy(parser);
}

static void schema(const void *parser, rt_schema *schema)
{
    (void)parser;
    rt_criteo_schema(schema);
}

static bool parse(void *parser, const rt_line *line, rt_line_sample *sample,
                  rt_line_problem *problem)
{
    return rt_criteo_parse(parser, line, sample, problem);
}

// "I1" to "I13", "C1" to "C26", or the number of a column; the one behind the last is another one.
static rt_status name_by(void *parser, const char *id, rt_error *error)
{
    rt_criteo *criteo = parser;
    char name[16];
    uint32_t number = COLUMNS + 1;
    for (uint32_t i = 1; i < COLUMNS; i++) {
        if (i <= RT_CRITEO_DENSE)
            snprintf(name, sizeof name, "I%u", i);
        else
            snprintf(name, sizeof name, "C%u", i - RT_CRITEO_DENSE);
        if (strcmp(name, id) == 0)
            number = i;
    }
    if (number > COLUMNS && (!rt_event_id_number(id, &number) || number > COLUMNS))
        return rt_fail(
            error, RT_CONFIG,
            "stream.id: \"%s\" is no column of stream.format criteo; expected I1 to I%u, "
            "C1 to C%u, a number from 1 to %u, or %u: a column behind them",
            id, RT_CRITEO_DENSE, RT_CRITEO_FIELDS, COLUMNS, COLUMNS + 1);
    criteo->id_column = number;
    criteo->columns = COLUMNS + (number == COLUMNS);
    return RT_OK;
}

static uint64_t name(void *parser, const rt_line *line)
{
    return rt_event_id_of_cell(line, ((const rt_criteo *)parser)->id_column, '\t', false);
}

const rt_parser_ops rt_parser_criteo = {
    .create = create,
    .destroy = destroy,
    .schema = schema,
    .parse = parse,
    .name_by = name_by,
    .name = name,
};
