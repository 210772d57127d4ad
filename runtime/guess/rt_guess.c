#include "runtime/guess/rt_guess.h"

#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_formats.h"
#include "runtime/guess/rt_guess_parts.h"
#include "runtime/rt_json_read.h"
#include "runtime/stream/rt_json_cell.h"

#define DEPTH_MAX 8u

typedef struct {
    rt_guess_lines lines;
    rt_guess_layout layout;
    rt_guess_table table;
    uint32_t room; // of table.values
    rt_cell *cells;
    char *scratch;
    const char *label_value;
    uint32_t label;  // column that rows are divided by; UINT32_MAX: none yet
    uint8_t *splits; // of the row at hand, by column: bits by rt_guess_split_by
    uint32_t splits_room;
    uint32_t place; // of the member of an object that was found last
    const char *row_label;
} maker;

static rt_status add_column(maker *m, const char *name, size_t length)
{
    rt_status status =
        rt_grow(&m->table.values, &m->room, m->table.count + 1u, sizeof *m->table.values);
    if (!status)
        status = rt_grow(&m->splits, &m->splits_room, m->table.count + 1u, sizeof *m->splits);
    if (status)
        return status;
    return rt_guess_values_init(&m->table.values[m->table.count++], name, length);
}

// The second time rows are only told apart by their label.
static rt_status take(maker *m, uint32_t column, rt_cell cell)
{
    const rt_guess_values *values = &m->table.values[column];
    if (m->label == UINT32_MAX)
        return rt_guess_values_add(&m->table.values[column], cell);
    m->splits[column] = 0;
    if (cell.length == 0 || rt_guess_null_find(cell) >= 0)
        return RT_OK;
    const bool is_first = values->top_count > 0 && strlen(values->top[0].text) == cell.length &&
                          memcmp(values->top[0].text, cell.text, cell.length) == 0;
    m->splits[column] = (uint8_t)(1u << RT_GUESS_THERE | !rt_guess_says_no(cell) << RT_GUESS_TELLS |
                                  is_first << RT_GUESS_FIRST);
    return RT_OK;
}

static void count_by_label(maker *m, bool is_one)
{
    for (uint32_t i = 0; i < m->table.count; i++)
        for (uint32_t by = 0; by < RT_GUESS_SPLITS; by++)
            m->table.values[i].splits[by][m->splits[i] >> by & 1][is_one]++;
}

static bool is_label_one(const maker *m, rt_cell cell)
{
    double number, wanted;
    const rt_cell value = {m->label_value, strlen(m->label_value)};
    if (rt_columns_number(value, &wanted) && rt_columns_number(cell, &number))
        return number == wanted;
    return cell.length == value.length && memcmp(cell.text, value.text, cell.length) == 0;
}

// ---- tables ----------------------------------------------------------------------------------

static rt_status name_columns(maker *m, uint32_t *line_p)
{
    uint32_t line = 0;
    char name[16];
    const uint32_t count = rt_guess_split(&m->layout, &m->lines, &line, m->cells, m->scratch);
    rt_status status = RT_OK;
    for (uint32_t i = 0; i < count && !status; i++) {
        const rt_cell cell = m->cells[i];
        snprintf(name, sizeof name, "c%u", i + 1);
        if (m->layout.has_header)
            status = add_column(m, cell.text, cell.length);
        else
            status = add_column(m, name, strlen(name));
    }
    *line_p = m->layout.has_header ? line : 0;
    return status;
}

static rt_status take_table(maker *m)
{
    uint32_t line = 0;
    rt_status status = RT_OK;
    if (m->label == UINT32_MAX)
        status = name_columns(m, &line);
    else if (m->layout.has_header)
        rt_guess_split(&m->layout, &m->lines, &line, m->cells, m->scratch);
    m->table.row_count = 0;
    while (!status && line < m->lines.line_count) {
        const uint32_t before = line;
        const uint32_t count = rt_guess_split(&m->layout, &m->lines, &line, m->cells, m->scratch);
        if (count != m->table.count) { // a line that no sample is made of
            line = before + 1;
            continue;
        }
        for (uint32_t i = 0; i < count && !status; i++)
            status = take(m, i, m->cells[i]);
        if (m->label != UINT32_MAX)
            count_by_label(m, is_label_one(m, m->cells[m->label]));
        m->table.row_count++;
    }
    return status;
}

// ---- objects ---------------------------------------------------------------------------------

// Members come in the same order most times.
static rt_status find_path(maker *m, const char *path, uint32_t *column_p)
{
    for (uint32_t n = 0; n < m->table.count; n++) {
        const uint32_t i = (m->place + n) % m->table.count;
        if (strcmp(m->table.values[i].name, path) != 0)
            continue;
        m->place = i + 1;
        *column_p = i;
        return RT_OK;
    }
    if (m->table.count == 2 * RT_COLUMNS_MAX)
        return RT_LIMIT;
    rt_status status = add_column(m, path, strlen(path));
    *column_p = m->table.count - 1;
    if (!status)
        m->table.values[*column_p].empty = m->table.row_count; // in all rows before
    return status;
}

// False: a number that is not kept.
static bool cell_of(const cJSON *value, char number[RT_JSON_CELL_BYTES], rt_cell *cell)
{
    const char *text = "";
    if (cJSON_IsString(value))
        text = value->valuestring;
    else if (cJSON_IsBool(value))
        text = rt_json_cell_word(cJSON_IsTrue(value));
    else if (cJSON_IsNumber(value) && !rt_json_cell_number(value->valuedouble, number))
        return false;
    else if (cJSON_IsNumber(value))
        text = number;
    *cell = (rt_cell){text, strlen(text)};
    return true;
}

static rt_status take_array(maker *m, uint32_t column, const cJSON *array)
{
    rt_guess_values *values = &m->table.values[column];
    rt_cell cells[64];
    static _Thread_local char numbers[64][RT_JSON_CELL_BYTES];
    uint32_t count = 0;
    for (const cJSON *one = array->child; one && count < RT_COUNT_OF(cells); one = one->next) {
        values->nested += cJSON_IsArray(one) || cJSON_IsObject(one);
        if (cell_of(one, numbers[count], &cells[count]))
            count++;
    }
    if (m->label == UINT32_MAX)
        return rt_guess_values_add_array(values, cells, count);
    m->splits[column] = count > 0 ? 1u << RT_GUESS_THERE | 1u << RT_GUESS_TELLS : 0;
    return RT_OK;
}

static rt_status take_object(maker *m, const cJSON *object, const char *path, uint32_t depth);

static rt_status take_member(maker *m, const cJSON *value, const char *path, uint32_t depth)
{
    char number[RT_JSON_CELL_BYTES];
    rt_cell cell;
    uint32_t column;
    if (cJSON_IsObject(value) && depth < DEPTH_MAX)
        return take_object(m, value, path, depth + 1);
    rt_status status = find_path(m, path, &column);
    if (status == RT_LIMIT)
        return RT_OK; // there is no room for it in a configuration either
    if (status)
        return status;
    rt_guess_values *values = &m->table.values[column];
    if (cJSON_IsArray(value))
        return take_array(m, column, value);
    values->nested += cJSON_IsObject(value);
    values->words += cJSON_IsBool(value);
    if (!cell_of(value, number, &cell)) {
        values->beyond++;
        return RT_OK;
    }
    if (m->label == column)
        m->row_label = is_label_one(m, cell) ? "1" : "0";
    return take(m, column, cell);
}

static rt_status take_object(maker *m, const cJSON *object, const char *path, uint32_t depth)
{
    char own[4 * RT_NAME_MAX];
    rt_status status = RT_OK;
    for (const cJSON *one = object->child; one && !status; one = one->next) {
        const char *name = one->string ? one->string : "";
        const int length = snprintf(own, sizeof own, "%s%s%s", path, *path ? "." : "", name);
        // Paths go by dots, and there is a length that names may have.
        if (!*name || strchr(name, '.') || length >= (int)RT_NAME_MAX)
            continue;
        status = take_member(m, one, own, depth);
    }
    return status;
}

static rt_status take_objects(maker *m)
{
    rt_status status = RT_OK;
    m->table.row_count = 0;
    for (uint32_t line = 0; line < m->lines.line_count && !status; line++) {
        const rt_cell text = rt_guess_line(&m->lines, line);
        size_t byte;
        cJSON *json = rt_json_parse(text.text, text.length, &byte);
        if (!cJSON_IsObject(json)) {
            cJSON_Delete(json);
            continue;
        }
        m->place = 0;
        m->row_label = NULL;
        if (m->splits)
            memset(m->splits, 0, m->table.count * sizeof *m->splits);
        status = take_object(m, json, "", 0);
        cJSON_Delete(json);
        m->table.row_count++;
        if (m->label != UINT32_MAX)
            count_by_label(m, m->row_label && *m->row_label == '1');
    }
    // Members that some objects lack.
    for (uint32_t i = 0; i < m->table.count && m->label == UINT32_MAX; i++) {
        rt_guess_values *v = &m->table.values[i];
        uint64_t seen = v->present + v->empty;
        for (uint32_t n = 0; n < RT_GUESS_NULLS; n++)
            seen += v->nulls[n];
        if (seen < m->table.row_count)
            v->empty += m->table.row_count - seen;
    }
    return status;
}

// ---- columns ---------------------------------------------------------------------------------

static void find_commas(rt_guess_table *table)
{
    for (uint32_t i = 0; i < table->count; i++) {
        const rt_guess_values *v = &table->values[i];
        table->has_comma |= v->present > 0 && v->numbers[RT_NUMBER_COMMA] == v->present &&
                            v->numbers[RT_NUMBER_COMMA] > v->numbers[RT_NUMBER_PLAIN] &&
                            v->numbers[RT_NUMBER_COMMA] > v->numbers[RT_NUMBER_COMMA_GROUPS];
    }
}

static bool has_twin(const rt_guess_table *table, uint32_t index)
{
    for (uint32_t i = 0; i < table->count; i++)
        if (i != index && strcmp(table->values[i].name, table->values[index].name) == 0)
            return true;
    return false;
}

// Why a column's name is none that a configuration can use; NULL: it is one.
static const char *find_name_problem(const rt_guess_table *table, uint32_t index)
{
    const char *name = table->values[index].name;
    if (!*name)
        return "has no name: not used";
    if (strlen(name) >= RT_NAME_MAX)
        return "not used: its name is longer than 63 bytes";
    if (!rt_json_is_utf8(name, strlen(name)))
        return "not used: its name is no UTF-8 (iconv -f LATIN1 -t UTF-8 writes the file so)";
    if (has_twin(table, index))
        return "not used: two columns have this name";
    return NULL;
}

static rt_status make_columns(maker *m, const char *asked, rt_guess *guess, rt_error *error)
{
    const rt_guess_table *table = &m->table;
    guess->columns = rt_alloc(table->count, sizeof *guess->columns);
    if (!guess->columns)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    guess->column_count = table->count;
    for (uint32_t i = 0; i < table->count; i++) {
        guess->columns[i].name = table->values[i].name;
        guess->columns[i].column.separator = '|';
        guess->columns[i].column.values_max = 8;
    }
    rt_guess_column label = {0};
    rt_status status = rt_guess_label(table, asked, &guess->label, &label, error);
    if (!status && find_name_problem(table, guess->label))
        status = rt_fail(error, RT_DATA, "the label, %s: %s", table->values[guess->label].name,
                         find_name_problem(table, guess->label));
    if (status)
        return status;
    label.name = guess->columns[guess->label].name;
    guess->unlabelled = rt_guess_unlabelled(&table->values[guess->label], &label);
    guess->columns[guess->label] = label;
    return RT_OK;
}

static void decide_columns(maker *m, rt_guess *guess)
{
    uint32_t fields = 0;
    for (uint32_t i = 0; i < guess->column_count; i++) {
        rt_guess_column *one = &guess->columns[i];
        const char *problem = find_name_problem(&m->table, i);
        if (i == guess->label)
            continue;
        rt_guess_kind(&m->table, i, one);
        fields += one->column.kind == RT_COLUMN_CATEGORICAL || one->column.kind == RT_COLUMN_MULTI;
        fields += (uint32_t)one->has_hours + (uint32_t)one->has_days;
        if (fields > RT_FIELDS_MAX || i >= RT_COLUMNS_MAX - 2 * fields)
            problem = "not used: there is no room for so many columns";
        one->is_left_out = problem != NULL;
        if (!problem)
            continue;
        one->column.kind = RT_COLUMN_IGNORE;
        one->has_hours = one->has_days = one->is_person = false;
        snprintf(one->why, sizeof one->why, "%s", problem);
    }
}

// A model has at least one column of ids: the numbers themselves, where there is no other.
static rt_status check_columns(const rt_guess *guess, const char *path, rt_error *error)
{
    for (uint32_t i = 0; i < guess->column_count; i++) {
        const rt_guess_column *one = &guess->columns[i];
        if (one->column.kind == RT_COLUMN_CATEGORICAL || one->column.kind == RT_COLUMN_MULTI ||
            one->has_hours || one->has_days)
            return RT_OK;
    }
    for (uint32_t i = 0; i < guess->column_count; i++) {
        rt_guess_column *one = &guess->columns[i];
        if (one->column.kind != RT_COLUMN_DENSE)
            continue;
        one->column.kind = RT_COLUMN_CATEGORICAL;
        one->column.transform = RT_TRANSFORM_NONE;
        snprintf(one->why, sizeof one->why, "numbers, taken as ids: a model needs a column of ids");
        return RT_OK;
    }
    return rt_fail(error, RT_DATA, "%s: no column except the label is of use to a model", path);
}

static rt_status take_rows(maker *m)
{
    return m->layout.format == RT_FORMAT_JSON ? take_objects(m) : take_table(m);
}

static rt_status make_guess(maker *m, const char *path, const char *asked, rt_guess *guess,
                            rt_error *error)
{
    rt_status status = rt_guess_lines_read(path, &m->lines, error);
    if (!status)
        status = rt_guess_layout_find(path, &m->lines, &m->layout, error);
    if (status)
        return status;
    guess->format = m->layout.format;
    guess->is_whole = m->lines.is_whole;
    guess->delimiter = m->layout.delimiter;
    guess->has_header = m->layout.has_header;
    const bool is_tab = m->layout.delimiter == '\t';
    if (m->layout.has_quotes == is_tab)
        guess->quotes = is_tab ? RT_QUOTES_RFC4180 : RT_QUOTES_NONE;
    guess->row_count = m->lines.line_count;
    if (m->layout.format != RT_FORMAT_TABLE && m->layout.format != RT_FORMAT_JSON)
        return RT_OK;
    if (take_rows(m))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    guess->row_count = m->table.row_count;
    if (m->table.row_count == 0)
        return rt_fail(error, RT_DATA, "%s: there are no rows", path);
    find_commas(&m->table);
    status = make_columns(m, asked, guess, error);
    if (status)
        return status;
    m->label = guess->label;
    m->label_value = guess->columns[guess->label].column.label_value;
    if (take_rows(m))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    decide_columns(m, guess);
    return check_columns(guess, path, error);
}

rt_status rt_guess_make(const char *path, const char *label, rt_guess **guess_p, rt_error *error)
{
    maker m = {.label = UINT32_MAX, .table.layout = &m.layout};
    rt_guess *guess = rt_alloc(1, sizeof *guess + sizeof m.layout.words);
    m.cells = rt_alloc(RT_GUESS_CELLS_MAX, sizeof *m.cells);
    m.scratch = rt_alloc_lazy(1, RT_GUESS_SCRATCH);
    rt_status status = RT_OK;
    if (guess && m.cells && m.scratch)
        status = make_guess(&m, path, label, guess, error);
    else
        status = rt_fail(error, RT_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < m.table.count; i++) {
        if (guess && guess->columns)
            m.table.values[i].name = NULL; // the guess has it
        rt_guess_values_fini(&m.table.values[i]);
    }
    if (guess) {
        char *words = (char *)(guess + 1);
        memcpy(words, m.layout.words, sizeof m.layout.words);
        guess->layout = words;
    }
    rt_free(m.table.values);
    rt_free(m.splits);
    rt_free(m.cells);
    rt_free(m.scratch);
    rt_guess_lines_fini(&m.lines);
    if (status) {
        rt_guess_destroy(guess);
        return status;
    }
    *guess_p = guess;
    return RT_OK;
}

void rt_guess_destroy(rt_guess *guess)
{
    if (!guess)
        return;
    for (uint32_t i = 0; i < guess->column_count; i++)
        rt_free(guess->columns[i].name);
    rt_free(guess->columns);
    rt_free(guess);
}
