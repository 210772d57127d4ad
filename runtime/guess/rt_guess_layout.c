// Which format, delimiter and quotes lines have, and whether the first one is a header.
#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_formats.h"
#include "runtime/guess/rt_guess_parts.h"
#include "runtime/rt_date.h"
#include "runtime/rt_json_read.h"

#define LOOKED_AT 500u // lines that decide

// ---- splitting -------------------------------------------------------------------------------

// A quoted cell; line_p moves on with it. False: it is not one.
static bool take_quoted(const rt_guess_lines *lines, uint32_t *line_p, const char **at_p,
                        char **scratch_p, rt_cell *cell)
{
    const char *at = *at_p + 1, *end = lines->bytes + lines->starts[*line_p + 1] - 1;
    char *out = *scratch_p;
    const uint32_t first = *line_p;
    cell->text = out;
    for (;; at++) {
        if (at == end) {
            const bool is_last = *line_p + 1 == lines->line_count;
            if (is_last || *line_p - first == RT_LINES_JOINED_MAX ||
                out - *scratch_p > (ptrdiff_t)RT_LINES_JOINED_BYTES)
                return false;
            end = lines->bytes + lines->starts[++*line_p + 1] - 1;
        } else if (*at == '"' && at[1] == '"') {
            at++;
        } else if (*at == '"') {
            break;
        }
        *out++ = *at;
    }
    cell->length = (size_t)(out - *scratch_p);
    *out++ = '\n';
    *scratch_p = out;
    *at_p = at + 1;
    return true;
}

uint32_t rt_guess_split(const rt_guess_layout *layout, const rt_guess_lines *lines,
                        uint32_t *line_p, rt_cell *cells, char *scratch)
{
    const char *at = rt_guess_line(lines, *line_p).text;
    uint32_t count = 0;
    for (;; at++) {
        const char *end = lines->bytes + lines->starts[*line_p + 1] - 1;
        rt_cell *cell = &cells[count];
        if (count == RT_GUESS_CELLS_MAX)
            return 0;
        count++;
        if (layout->has_quotes && at < end && *at == '"') {
            if (!take_quoted(lines, line_p, &at, &scratch, cell))
                return 0;
            end = lines->bytes + lines->starts[*line_p + 1] - 1;
            if (at < end && *at != layout->delimiter)
                return 0;
        } else {
            const char *stop = memchr(at, layout->delimiter, (size_t)(end - at));
            *cell = (rt_cell){at, (size_t)((stop ? stop : end) - at)};
            at = stop ? stop : end;
        }
        if (at == end)
            break;
    }
    ++*line_p;
    return count;
}

// ---- delimiters ------------------------------------------------------------------------------

typedef struct {
    double share; // of the records that have as many cells as the first one
    uint32_t cells;
    uint32_t broken; // quotes that are wrong
    uint32_t records;
    double commas; // share of the delimiters that stand between digits
} split_score;

static double share_between_digits(const rt_guess_lines *lines, uint32_t count, char delimiter)
{
    uint64_t all = 0, between = 0;
    for (uint32_t i = 0; i < count; i++) {
        const rt_cell line = rt_guess_line(lines, i);
        for (size_t k = 1; k + 1 < line.length; k++) {
            if (line.text[k] != delimiter)
                continue;
            all++;
            between += rt_guess_is_digit(line.text[k - 1]) && rt_guess_is_digit(line.text[k + 1]);
        }
    }
    return all ? (double)between / (double)all : 0;
}

static split_score score_of(const rt_guess_lines *lines, char delimiter, bool has_quotes,
                            rt_cell *cells, char *scratch)
{
    const rt_guess_layout layout = {.delimiter = delimiter, .has_quotes = has_quotes};
    const uint32_t count = (uint32_t)rt_min_u64(lines->line_count, LOOKED_AT);
    split_score score = {0};
    uint32_t same = 0;
    for (uint32_t i = 0; i < count;) {
        const uint32_t before = i;
        if (rt_guess_line(lines, i).length == 0) {
            i++;
            continue;
        }
        const uint32_t found = rt_guess_split(&layout, lines, &i, cells, scratch);
        if (found == 0) {
            i = before + 1;
            score.broken += i < lines->line_count || lines->is_whole; // the last may be cut
        }
        if (score.records == 0)
            score.cells = found;
        score.records++;
        same += found == score.cells;
    }
    score.share = score.records ? (double)same / score.records : 0;
    score.commas = share_between_digits(lines, count, delimiter);
    return score;
}

static bool is_better(const split_score *a, const split_score *b)
{
    const bool a_fits = a->share >= 0.95 && a->cells > 1, b_fits = b->share >= 0.95 && b->cells > 1;
    if (a_fits != b_fits)
        return a_fits;
    if (!a_fits)
        return a->cells > 1 && a->share > b->share;
    if ((a->commas > 0.5) != (b->commas > 0.5))
        return a->commas <= 0.5;
    return a->cells > b->cells;
}

static bool find_delimiter(const rt_guess_lines *lines, rt_guess_layout *layout, rt_cell *cells,
                           char *scratch, split_score *best)
{
    static const char delimiters[] = "\t;|,\x01^~: "; // the surer ones first
    *best = (split_score){0};
    for (size_t i = 0; i < sizeof delimiters - 1; i++) {
        split_score score = score_of(lines, delimiters[i], true, cells, scratch);
        const split_score bare = score_of(lines, delimiters[i], false, cells, scratch);
        const bool has_quotes = score.broken * 50 <= score.records && score.share >= bare.share;
        if (!has_quotes)
            score = bare;
        if (i >= sizeof delimiters - 3 && best->share >= 0.9 && best->cells > 1)
            break; // colons and spaces stand in cells of all kinds
        if (!is_better(&score, best))
            continue;
        *best = score;
        layout->delimiter = delimiters[i];
        layout->has_quotes = has_quotes;
    }
    return best->cells > 1 && best->share >= 0.5;
}

// ---- headers ---------------------------------------------------------------------------------

static bool is_value(rt_cell cell)
{
    double number;
    for (int format = RT_NUMBER_PLAIN; format <= RT_NUMBER_SPACE_GROUPS; format++)
        if (rt_columns_number_as((rt_number_format)format, cell, &number))
            return true;
    char format[RT_NAME_MAX];
    int64_t ms;
    for (uint32_t i = 0; rt_guess_time_format(i, format); i++)
        if (rt_date_parse(format, cell.text, cell.length, &ms))
            return true;
    return false;
}

static bool is_same(rt_cell a, rt_cell b)
{
    return a.length == b.length && memcmp(a.text, b.text, a.length) == 0;
}

// 0, 1, 2, ... as programs name columns that have no names.
static bool is_counted(const rt_cell *cells, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        double number;
        if (!rt_columns_number(cells[i], &number) || (uint32_t)number != i)
            return false;
    }
    return count > 2;
}

// A header has no values, and either what stands below it has, or none of its names comes again.
static bool find_header(const rt_guess_lines *lines, const rt_guess_layout *layout, rt_cell *cells,
                        char *scratch)
{
    rt_cell *below = cells + RT_GUESS_CELLS_MAX;
    char *scratch_below = scratch + RT_GUESS_SCRATCH;
    uint32_t line = 0, values = 0, again = 0, named = 0, twice = 0;
    const uint32_t count = rt_guess_split(layout, lines, &line, cells, scratch);
    if (is_counted(cells, count))
        return true;
    for (uint32_t i = 0; i < count; i++) {
        if (is_value(cells[i]) || rt_guess_null_find(cells[i]) >= 0)
            return false;
        named += cells[i].length > 0;
        for (uint32_t k = 0; k < i && cells[i].length > 0; k++)
            twice += is_same(cells[i], cells[k]);
    }
    if (named * 2 < count)
        return false;
    for (uint32_t records = 0; line < lines->line_count && records < LOOKED_AT; records++) {
        const uint32_t before = line;
        if (rt_guess_split(layout, lines, &line, below, scratch_below) != count) {
            line += line == before;
            continue;
        }
        for (uint32_t i = 0; i < count; i++) {
            values += is_value(below[i]);
            again += cells[i].length > 0 && is_same(cells[i], below[i]);
        }
    }
    return values > 0 || (again == 0 && twice == 0);
}

// ---- formats ---------------------------------------------------------------------------------

// How many of the first lines are objects.
static double share_of_objects(const rt_guess_lines *lines)
{
    uint32_t count = 0, good = 0;
    for (uint32_t i = 0; i < lines->line_count && count < 50; i++) {
        const rt_cell line = rt_guess_line(lines, i);
        if (line.length == 0)
            continue;
        size_t byte;
        cJSON *json = rt_json_parse(line.text, line.length, &byte);
        good += cJSON_IsObject(json);
        count++;
        cJSON_Delete(json);
    }
    return count ? (double)good / count : 0;
}

static bool is_hexadecimal(rt_cell cell)
{
    for (size_t i = 0; i < cell.length; i++)
        if (!rt_guess_is_digit(cell.text[i]) &&
            (rt_guess_lower(cell.text[i]) < 'a' || rt_guess_lower(cell.text[i]) > 'f'))
            return false;
    return cell.length == 8 || cell.length == 0;
}

// A label, 13 whole numbers, 26 ids of 8 hexadecimal digits, by tabs.
static bool is_criteo(const rt_guess_lines *lines, rt_cell *cells, char *scratch)
{
    const rt_guess_layout layout = {.delimiter = '\t'};
    for (uint32_t i = 0; i < lines->line_count && i < 20;) {
        double number;
        if (rt_guess_split(&layout, lines, &i, cells, scratch) != 40)
            return false;
        for (uint32_t k = 0; k < 14; k++)
            if (!rt_columns_number(cells[k], &number) && (k == 0 || cells[k].length > 0))
                return false;
        for (uint32_t k = 14; k < 40; k++)
            if (!is_hexadecimal(cells[k]))
                return false;
    }
    return true;
}

// number, then index:number, by spaces.
static bool is_libsvm(const rt_guess_lines *lines)
{
    uint32_t pairs = 0;
    for (uint32_t i = 0; i < lines->line_count && i < 50; i++) {
        const rt_cell line = rt_guess_line(lines, i);
        const char *at = line.text, *end = at + line.length;
        for (uint32_t word = 0; at < end; word++) {
            const char *stop = memchr(at, ' ', (size_t)(end - at));
            stop = stop ? stop : end;
            const char *colon = memchr(at, ':', (size_t)(stop - at));
            double number;
            const char *value = colon ? colon + 1 : at;
            if ((word == 0) != (colon == NULL) ||
                !rt_columns_number((rt_cell){value, (size_t)(stop - value)}, &number) ||
                (colon && !rt_columns_number((rt_cell){at, (size_t)(colon - at)}, &number)))
                return false;
            pairs += colon != NULL;
            at = stop + (stop < end);
            while (at < end && *at == ' ')
                at++;
        }
    }
    return pairs > 0;
}

static const char *delimiter_name(char delimiter)
{
    static const struct {
        char delimiter;
        const char *name;
    } names[] = {{'\t', "tabs"},      {';', "semicolons"}, {'|', "bars (|)"},
                 {',', "commas"},     {1, "\\x01"},        {'^', "carets"},
                 {'~', "tildes (~)"}, {':', "colons"},     {' ', "spaces"}};
    for (size_t i = 0; i < RT_COUNT_OF(names); i++)
        if (names[i].delimiter == delimiter)
            return names[i].name;
    return "?";
}

static rt_status find_table(const char *path, const rt_guess_lines *lines, rt_guess_layout *layout,
                            rt_cell *cells, char *scratch, rt_error *error)
{
    split_score score;
    if (!find_delimiter(lines, layout, cells, scratch, &score))
        return rt_fail(error, RT_DATA,
                       "%s: no rows can be read: no character divides the first %u lines into the "
                       "same number of cells",
                       path, score.records ? score.records : lines->line_count);
    layout->format = RT_FORMAT_TABLE;
    layout->has_header = find_header(lines, layout, cells, scratch);
    snprintf(layout->words, sizeof layout->words, "a table by %s, %s header%s",
             delimiter_name(layout->delimiter), layout->has_header ? "with a" : "without a",
             layout->has_quotes ? "" : ", quotes are text");
    return RT_OK;
}

static rt_status find_format(const char *path, const rt_guess_lines *lines, rt_guess_layout *layout,
                             rt_cell *cells, char *scratch, rt_error *error)
{
    const rt_cell first = rt_guess_line(lines, 0);
    const char *at = first.text + strspn(first.text, " \t\r\n");
    if (memchr(lines->bytes, 0, lines->size))
        return rt_fail(error, RT_DATA, "%s: it is no text: it has zero bytes", path);
    if (*at == '{' && share_of_objects(lines) < 0.9)
        return rt_fail(error, RT_DATA,
                       "%s: JSON that is not one object a line; `jq -c . FILE` writes it so", path);
    if (*at == '[')
        return rt_fail(
            error, RT_DATA,
            "%s: an array of JSON; expected one object a line: `jq -c '.[]' FILE` writes "
            "it so",
            path);
    if (*at == '<')
        return rt_fail(error, RT_DATA, "%s: XML or HTML; expected rows of a table, or JSON lines",
                       path);
    if (*at == '{') {
        layout->format = RT_FORMAT_JSON;
        snprintf(layout->words, sizeof layout->words, "JSON, one object a line");
        return RT_OK;
    }
    if (is_criteo(lines, cells, scratch)) {
        layout->format = RT_FORMAT_CRITEO;
        snprintf(layout->words, sizeof layout->words, "Criteo's format");
        return RT_OK;
    }
    if (is_libsvm(lines)) {
        layout->format = RT_FORMAT_LIBSVM;
        snprintf(layout->words, sizeof layout->words, "libsvm's format");
        return RT_OK;
    }
    return find_table(path, lines, layout, cells, scratch, error);
}

rt_status rt_guess_layout_find(const char *path, const rt_guess_lines *lines,
                               rt_guess_layout *layout, rt_error *error)
{
    rt_cell *cells = rt_alloc(2 * RT_GUESS_CELLS_MAX, sizeof *cells);
    char *scratch = rt_alloc_lazy(2, RT_GUESS_SCRATCH);
    rt_status status = RT_OK;
    *layout = (rt_guess_layout){0};
    if (cells && scratch)
        status = find_format(path, lines, layout, cells, scratch, error);
    else
        status = rt_fail(error, RT_NO_MEMORY, "out of memory");
    rt_free(scratch);
    rt_free(cells);
    return status;
}
