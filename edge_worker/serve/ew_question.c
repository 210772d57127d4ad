// JSON is read in two steps: members become values, by column, of the context once and of each
// candidate over again; then both together become cells, which the model's own parser makes a
// sample of. So a question and a line of the stream cannot mean different things.
#include "edge_worker/serve/ew_question.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "runtime/rt_json_read.h"

// A tree may take forty times its text: a JSON body has at most so many bytes, and so many more for
// every candidate that it may have.
#define QUESTION_BYTES (64u << 10)
#define CANDIDATE_BYTES 2048u

typedef struct {
    bool is_given, in_lists;
    const char *text; // in the tree of the body, or number
    size_t length;
    size_t list; // where it begins in lists, if it is there
    char number[EW_CELLS_NUMBER_BYTES];
} value;

struct ew_questions {
    ew_cells *cells;
    rt_schema schema;
    value *shared, *own; // of the context and of one candidate, by column
    double *dense;       // of one candidate
    rt_bytes lists;      // cells that were arrays
    rt_json json;
    uint32_t *ranking;
    uint32_t ranking_capacity;
    ew_event *event; // NULL: samples are no events
    rt_bytes *lines;
    char name[EW_QUESTION_ID_MAX]; // of the next question that has none
};

rt_status ew_questions_create(ew_cells *cells, const rt_schema *schema, ew_questions **questions_p)
{
    ew_questions *q = rt_alloc(1, sizeof *q);
    if (!q)
        return RT_NO_MEMORY;
    q->cells = cells;
    q->schema = *schema;
    q->shared = rt_alloc(ew_cells_count(cells) + 1u, sizeof *q->shared);
    q->own = rt_alloc(ew_cells_count(cells) + 1u, sizeof *q->own);
    q->dense = rt_alloc(schema->dense_count + 1u, sizeof *q->dense);
    rt_json_init(&q->json, 0);
    if (!q->shared || !q->own || !q->dense) {
        ew_questions_destroy(q);
        return RT_NO_MEMORY;
    }
    *questions_p = q;
    return RT_OK;
}

void ew_questions_destroy(ew_questions *q)
{
    if (!q)
        return;
    rt_json_fini(&q->json);
    rt_bytes_fini(&q->lists);
    rt_free(q->ranking);
    rt_free(q->own);
    rt_free(q->dense);
    rt_free(q->shared);
    rt_free(q);
}

void ew_questions_keep(ew_questions *q, ew_event *event, rt_bytes *lines)
{
    q->event = event;
    q->lines = lines;
}

void ew_questions_name(ew_questions *q, const char *name)
{
    snprintf(q->name, sizeof q->name, "%s", name);
}

// ---- JSON ------------------------------------------------------------------------------------

// A value as the text of a cell, "" for null. NULL: a number that JSON may have rounded.
static const char *text_of(const ew_cells *cells, const cJSON *json,
                           char number[EW_CELLS_NUMBER_BYTES])
{
    if (cJSON_IsNumber(json))
        return ew_cells_number(cells, json->valuedouble, number);
    if (cJSON_IsString(json))
        return json->valuestring;
    if (cJSON_IsBool(json))
        return ew_cells_word(cells, cJSON_IsTrue(json));
    return "";
}

// name: of the column.
static rt_status take_value(const ew_cells *cells, const cJSON *json, const char *name, value *v,
                            rt_error *error)
{
    v->in_lists = false;
    if (cJSON_IsObject(json) || cJSON_IsArray(json))
        return rt_fail(error, RT_DATA, "\"%s\": expected a string, a number or null", name);
    v->text = text_of(cells, json, v->number);
    if (!v->text)
        return rt_fail(error, RT_DATA,
                       "\"%s\": numbers beyond 2^53 are not exact in JSON: write a string", name);
    v->length = strlen(v->text);
    return RT_OK;
}

// Values of an array, which become one cell.
static rt_status take_list(ew_questions *q, const cJSON *array, uint32_t column, value *v,
                           rt_error *error)
{
    const char separator = ew_cells_separator(q->cells, column);
    const char *name = ew_cells_name(q->cells, column);
    const size_t begin = q->lists.size;
    if (!separator)
        return rt_fail(error, RT_DATA, "\"%s\": expected one value", name);
    for (const cJSON *item = array->child; item; item = item->next) {
        value one;
        if (cJSON_IsObject(item) || cJSON_IsArray(item))
            return rt_fail(error, RT_DATA, "\"%s\": expected values in an array", name);
        const rt_status status = take_value(q->cells, item, name, &one, error);
        if (status)
            return status;
        if (memchr(one.text, separator, one.length))
            return rt_fail(error, RT_DATA,
                           "\"%s\": a value contains the separator of "
                           "values",
                           name);
        if (item != array->child)
            rt_bytes_put(&q->lists, &separator, 1);
        rt_bytes_put(&q->lists, one.text, one.length);
    }
    if (q->lists.failed)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    v->in_lists = true;
    v->list = begin;
    v->length = q->lists.size - begin;
    return RT_OK;
}

static rt_status take_member(ew_questions *q, const cJSON *one, uint32_t column, value *values,
                             rt_error *error)
{
    value *v = &values[column];
    if (v->is_given)
        return rt_fail(error, RT_DATA, "\"%s\" stands twice", ew_cells_name(q->cells, column));
    v->is_given = true;
    if (cJSON_IsArray(one))
        return take_list(q, one, column, v, error);
    return take_value(q->cells, one, ew_cells_name(q->cells, column), v, error);
}

// A member that is no column by its name may be one by its path, or an object with some in it: as in
// the lines that the model was trained on.
static rt_status take_path(ew_questions *q, const cJSON *one, const char *before, value *values,
                           rt_error *error)
{
    char path[RT_NAME_MAX];
    const int length =
        snprintf(path, sizeof path, "%s%s%s", before, *before ? "." : "", one->string);
    const bool fits = length > 0 && (size_t)length < sizeof path;
    const uint32_t column = fits ? ew_cells_find_path(q->cells, path) : EW_CELL_NONE;
    rt_status status = RT_OK;
    if (column != EW_CELL_NONE)
        return take_member(q, one, column, values, error);
    if (!fits || !cJSON_IsObject(one) || !ew_cells_has_paths(q->cells))
        return ew_cells_refuse_name(q->cells, path, strlen(path), error);
    for (const cJSON *part = one->child; part && !status; part = part->next)
        status = take_path(q, part, path, values, error);
    return status;
}

// Members become cells; where each stands is remembered by its column.
static rt_status take_members(ew_questions *q, const cJSON *object, value *values, rt_error *error)
{
    uint32_t column = EW_CELL_NONE;
    rt_status status = RT_OK;
    for (const cJSON *one = object->child; one && !status; one = one->next) {
        column = ew_cells_find_behind(q->cells, column, one->string, strlen(one->string));
        if (column != EW_CELL_NONE)
            status = take_member(q, one, column, values, error);
        else
            status = take_path(q, one, "", values, error);
    }
    return status;
}

static void forget(const ew_questions *q, value *values)
{
    for (uint32_t i = 0; i < ew_cells_count(q->cells); i++)
        values[i].is_given = false;
}

// What a candidate says of itself goes before what the context says of all.
static void put_cells(const ew_questions *q)
{
    ew_cells_clear(q->cells);
    for (uint32_t i = 0; i < ew_cells_count(q->cells); i++) {
        const value *v = &q->own[i];
        if (!v->is_given)
            v = &q->shared[i];
        if (!v->is_given || v->length == 0)
            continue; // where its text would be is from another question, or nowhere
        const char *text = v->text;
        if (v->in_lists) // by its place: lists may have moved since
            text = (const char *)q->lists.data + v->list;
        ew_cells_put(q->cells, i, text, v->length);
    }
}

static rt_status keep_candidate(ew_questions *q, const ew_question *question, uint32_t number,
                                double now_s, rt_error *error)
{
    char id[EW_QUESTION_ID_MAX + 16];
    if (!q->event)
        return RT_OK;
    snprintf(id, sizeof id, "%s.%" PRIu32, question->id, number);
    return ew_event_put(q->event, id, now_s, q->lines, error);
}

// What is predicted of is what is kept: where the question says no time, that of the answer.
static rt_status take_candidate(ew_questions *q, const cJSON *json, double now_s, rt_batch *batch,
                                rt_error *error)
{
    const size_t lists = q->lists.size;
    if (!cJSON_IsObject(json))
        return rt_fail(error, RT_DATA, "expected an object of columns");
    forget(q, q->own);
    rt_status status = take_members(q, json, q->own, error);
    if (status)
        return status;
    put_cells(q);
    if (q->event)
        ew_event_date(q->event, now_s, q->cells);
    status = ew_cells_append(q->cells, batch, error);
    q->lists.size = lists;
    return status;
}

static rt_status take_candidates(ew_questions *q, const cJSON *array, uint32_t most,
                                 rt_batch *batch, const ew_question *question, rt_error *error)
{
    const double now_s = q->event ? rt_unix_s() : 0;
    uint32_t number = 0;
    for (const cJSON *one = array->child; one; one = one->next, number++) {
        if (number == most)
            return rt_fail(error, RT_LIMIT, "more than %" PRIu32 " candidates", most);
        rt_status status = take_candidate(q, one, now_s, batch, error);
        if (!status)
            status = keep_candidate(q, question, number, now_s, error);
        if (status)
            return rt_fail_in(error, "candidate %" PRIu32, number);
    }
    if (number == 0)
        return rt_fail(error, RT_DATA, "no candidates, expected 1 to %" PRIu32, most);
    return RT_OK;
}

// Events need a name, so that outcomes find them; who asks is told it with the answer.
static rt_status take_id(const ew_questions *q, const cJSON *json, ew_question *question,
                         rt_error *error)
{
    const char *id = "";
    if (json)
        id = cJSON_GetStringValue(json);
    else if (q->event)
        id = q->name;
    if (!id || strlen(id) >= sizeof question->id)
        return rt_fail(error, RT_DATA, "\"id\": expected a string of up to %zu bytes",
                       sizeof question->id - 1);
    snprintf(question->id, sizeof question->id, "%s", id);
    return RT_OK;
}

enum { PART_ID, PART_CONTEXT, PART_CANDIDATES, PART_COUNT };
static const char *const part_names[PART_COUNT] = {"id", "context", "candidates"};

// Members of a question; NULL: it is not there.
typedef struct {
    const cJSON *of[PART_COUNT];
} parts;

static rt_status find_part(const cJSON *member, parts *found, rt_error *error)
{
    const char *name = member->string;
    for (uint32_t i = 0; i < PART_COUNT; i++) {
        if (strcmp(name, part_names[i]) != 0)
            continue;
        if (found->of[i])
            return rt_fail(error, RT_DATA, "\"%s\" stands twice", name);
        found->of[i] = member;
        return RT_OK;
    }
    return rt_fail(error, RT_DATA, "unknown member \"%.*s\"", RT_NAME_MAX, name);
}

static rt_status find_parts(const cJSON *tree, parts *found, rt_error *error)
{
    *found = (parts){0};
    const cJSON *members = cJSON_IsObject(tree) ? tree->child : NULL;
    for (const cJSON *one = members; one; one = one->next) {
        const rt_status status = find_part(one, found, error);
        if (status)
            return status;
    }
    const cJSON *context = found->of[PART_CONTEXT];
    if (!cJSON_IsArray(found->of[PART_CANDIDATES]) || (context && !cJSON_IsObject(context)))
        return rt_fail(
            error, RT_DATA,
            "expected {\"context\": {column: value, ...}, \"candidates\": [{...}, ...]}");
    return RT_OK;
}

static rt_status take_tree(ew_questions *q, const cJSON *tree, uint32_t most, rt_batch *batch,
                           ew_question *question, rt_error *error)
{
    parts found;
    rt_status status = find_parts(tree, &found, error);
    if (status)
        return status;
    status = take_id(q, found.of[PART_ID], question, error);
    if (status)
        return status;
    const cJSON *context = found.of[PART_CONTEXT];
    forget(q, q->shared);
    if (context && take_members(q, context, q->shared, error))
        return rt_fail_in(error, "context");
    return take_candidates(q, found.of[PART_CANDIDATES], most, batch, question, error);
}

static rt_status take_json(ew_questions *q, const char *body, size_t size, uint32_t most,
                           rt_batch *batch, ew_question *question, rt_error *error)
{
    const size_t size_max = QUESTION_BYTES + most * (size_t)CANDIDATE_BYTES;
    size_t byte;
    if (size > size_max)
        return rt_fail(error, RT_LIMIT,
                       "a body of %zu bytes, expected at most %zu for %" PRIu32
                       " candidates (serve.candidates_max)",
                       size, size_max, most);
    cJSON *tree = rt_json_parse(body, size, &byte);
    if (!tree)
        return rt_fail(error, RT_DATA, "the body is no JSON (byte %zu)", byte);
    rt_bytes_clear(&q->lists);
    const rt_status status = take_tree(q, tree, most, batch, question, error);
    cJSON_Delete(tree);
    return status;
}

// ---- binary ----------------------------------------------------------------------------------

// Keys go to the table as they are: one of another field would be answered with its row.
static rt_status check_numbers(const ew_questions *q, uint32_t candidate, const uint64_t *keys,
                               const double *dense, rt_error *error)
{
    for (uint32_t f = 0; f < q->schema.field_count; f++)
        if (rt_key_field(keys[f]) != f)
            return rt_fail(error, RT_DATA,
                           "candidate %" PRIu32 ": key %" PRIu32 " is not one of field %" PRIu32,
                           candidate, f, f);
    for (uint32_t d = 0; d < q->schema.dense_count; d++)
        if (!isfinite((float)dense[d]))
            return rt_fail(error, RT_DATA,
                           "candidate %" PRIu32 ": dense feature %" PRIu32 " is not finite",
                           candidate, d);
    return RT_OK;
}

// Of 32 or of 64 bits each.
static void read_dense(const char *bytes, uint32_t count, bool is_long, double *dense)
{
    float one;
    if (is_long)
        memcpy(dense, bytes, count * sizeof *dense);
    for (uint32_t d = 0; !is_long && d < count; d++) {
        memcpy(&one, bytes + d * sizeof one, sizeof one);
        dense[d] = (double)one;
    }
}

static rt_status take_binary(const ew_questions *q, const char *body, size_t size, uint32_t most,
                             rt_batch *batch, rt_error *error)
{
    const uint32_t fields = q->schema.field_count, dense_count = q->schema.dense_count;
    uint64_t keys[RT_FIELDS_MAX];
    ew_question_header header;
    if (size < sizeof header)
        return rt_fail(error, RT_DATA, "%zu bytes, expected a header of %zu", size, sizeof header);
    memcpy(&header, body, sizeof header);
    const bool is_long = header.magic == EW_QUESTION_LONG_MAGIC;
    if ((header.magic != EW_QUESTION_MAGIC && !is_long) || header.field_count != fields ||
        header.dense_count != dense_count)
        return rt_fail(error, RT_DATA,
                       "expected the bytes LYPQ or LYPD, %" PRIu32 " fields and %" PRIu32
                       " dense features",
                       fields, dense_count);
    const size_t dense_bytes = dense_count * (is_long ? sizeof(double) : sizeof(float));
    const size_t sample_bytes = fields * sizeof(uint64_t) + dense_bytes;
    const rt_status wrong = header.count == 0 ? RT_DATA : RT_LIMIT;
    if (header.count == 0 || header.count > most)
        return rt_fail(error, wrong, "%" PRIu32 " candidates, expected 1 to %" PRIu32, header.count,
                       most);
    if (size != sizeof header + header.count * sample_bytes)
        return rt_fail(error, RT_DATA, "%zu bytes, expected %zu", size,
                       sizeof header + header.count * sample_bytes);
    const char *key_bytes = body + sizeof header;
    const char *first = key_bytes + header.count * fields * sizeof(uint64_t);
    for (uint32_t i = 0; i < header.count; i++) {
        read_dense(first + i * dense_bytes, dense_count, is_long, q->dense);
        memcpy(keys, key_bytes + i * fields * sizeof *keys, fields * sizeof *keys);
        const rt_status status = check_numbers(q, i, keys, q->dense, error);
        if (status)
            return status;
        if (rt_batch_append_read(batch, 0, q->dense, keys, fields))
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
    return RT_OK;
}

// A question that is refused leaves batch and lines as they were: others are in them, too.
rt_status ew_question_take(ew_questions *q, const char *body, size_t size, bool is_binary,
                           uint32_t most, rt_batch *batch, ew_question *question, rt_error *error)
{
    const uint32_t samples = batch->sample_count, keys = batch->key_count;
    const size_t lines = q->lines ? q->lines->size : 0;
    rt_status status;
    *question = (ew_question){.is_binary = is_binary, .first = samples};
    if (is_binary && q->event) {
        status =
            rt_fail(error, RT_DATA,
                    "a binary question has no cells to log, and serve.log is set: ask /predict");
    } else if (is_binary) {
        status = take_binary(q, body, size, most, batch, error);
    } else {
        status = take_json(q, body, size, most, batch, question, error);
    }
    if (status) {
        batch->sample_count = samples;
        batch->key_count = keys;
        if (q->lines)
            q->lines->size = lines;
    }
    question->count = batch->sample_count - samples;
    return status;
}

// ---- answers ---------------------------------------------------------------------------------

// Of several labels the first counts, of several classes the likeliest.
static float rank_of(const ew_questions *q, const float *probabilities, uint32_t candidate)
{
    const size_t outputs = q->schema.output_count;
    const float *own = probabilities + candidate * outputs;
    float largest = own[0];
    for (size_t c = 1; c < q->schema.class_count; c++)
        if (own[c] > largest)
            largest = own[c];
    return largest;
}

// Best first; equal ones as they were asked for.
static bool rank(ew_questions *q, const float *probabilities, uint32_t count)
{
    if (rt_grow(&q->ranking, &q->ranking_capacity, count, sizeof *q->ranking))
        return false;
    for (uint32_t i = 0; i < count; i++) { // few: insertion
        const float own = rank_of(q, probabilities, i);
        uint32_t at = i;
        for (; at > 0 && rank_of(q, probabilities, q->ranking[at - 1]) < own; at--)
            q->ranking[at] = q->ranking[at - 1];
        q->ranking[at] = i;
    }
    return true;
}

// Of one label a number for every candidate, of several labels or classes a list of numbers, and
// what they are of.
static void put_probabilities(ew_questions *q, const float *probabilities, uint32_t count)
{
    rt_json *json = &q->json;
    char name[RT_NAME_MAX];
    const uint32_t labels = q->schema.output_count;
    if (labels > 1) {
        const char *kind = q->schema.class_count ? "classes" : "labels";
        rt_json_begin_array(json, kind);
        for (uint32_t l = 0; l < labels; l++) {
            rt_schema_output_name(&q->schema, l, name);
            rt_json_string(json, NULL, name);
        }
        rt_json_end_array(json);
    }
    rt_json_begin_array(json, "probabilities");
    for (uint32_t i = 0; i < count; i++) {
        if (labels > 1)
            rt_json_begin_array(json, NULL);
        for (uint32_t l = 0; l < labels; l++)
            rt_json_float(json, NULL, probabilities[(size_t)i * labels + l]);
        if (labels > 1)
            rt_json_end_array(json);
    }
    rt_json_end_array(json);
}

static void put_json(ew_questions *q, const ew_question *question, const float *probabilities,
                     const ew_version *version, double age_s, rt_bytes *bytes)
{
    size_t size = 0;
    rt_json *json = &q->json;
    rt_json_clear(json);
    rt_json_begin_object(json, NULL);
    if (question->id[0])
        rt_json_string(json, "id", question->id);
    put_probabilities(q, probabilities, question->count);
    rt_json_begin_array(json, "ranking");
    for (uint32_t i = 0; i < question->count; i++)
        rt_json_u64(json, NULL, q->ranking[i]);
    rt_json_end_array(json);
    rt_json_begin_object(json, "model");
    rt_json_u64(json, "iteration", version->iteration);
    rt_json_u64(json, "samples", version->samples);
    rt_json_double(json, "age_s", age_s);
    if (version->rows_newest) {
        rt_json_begin_array(json, "rows");
        rt_json_u64(json, NULL, version->rows_oldest);
        rt_json_u64(json, NULL, version->rows_newest);
        rt_json_end_array(json);
    }
    rt_json_end_object(json);
    rt_json_end_object(json);
    const char *text = rt_json_text(json, &size);
    bytes->failed |= !text;
    if (text)
        rt_bytes_put(bytes, text, size);
}

rt_status ew_question_answer(ew_questions *q, const ew_question *question,
                             const float *probabilities, const ew_version *version, double now_s,
                             rt_bytes *bytes)
{
    const uint32_t labels = q->schema.output_count;
    const float *own = probabilities + (size_t)question->first * labels;
    const double age_s = now_s - version->trained_s;
    bytes->size = 0;
    bytes->failed = !rank(q, own, question->count);
    if (bytes->failed)
        return RT_NO_MEMORY;
    if (question->is_binary) {
        ew_answer_header header = {EW_ANSWER_MAGIC, question->count, version->iteration, age_s};
        if (labels > 1)
            header.magic = EW_ANSWERS_MAGIC;
        rt_bytes_put(bytes, &header, sizeof header);
        if (labels > 1)
            rt_bytes_put_u64(bytes, labels);
        rt_bytes_put(bytes, own, (size_t)question->count * labels * sizeof *own);
        rt_bytes_put(bytes, q->ranking, question->count * sizeof *q->ranking);
    } else {
        put_json(q, question, own, version, age_s, bytes);
    }
    return bytes->failed ? RT_NO_MEMORY : RT_OK;
}
