#include "edge_worker/serve/ew_question.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"

#define NUMBER_BYTES 32u

typedef struct {
    const char *text;
    char number[NUMBER_BYTES];
} value;

struct ew_questions {
    ew_cells *cells;
    rt_schema schema;
    value *shared, *own; // of the context and of one candidate, by column
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
    rt_json_init(&q->json, 0);
    if (!q->shared || !q->own) {
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
    rt_free(q->ranking);
    rt_free(q->own);
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

// ---- JSON --------------------------------------------------------------------------------------

// name: of the column.
static rt_status take_value(const cJSON *item, const char *name, value *v, rt_error *error)
{
    const double number = item->valuedouble;
    if (cJSON_IsString(item)) {
        v->text = item->valuestring;
        return RT_OK;
    }
    v->text = v->number;
    if (cJSON_IsNull(item))
        v->number[0] = '\0';
    else if (cJSON_IsBool(item))
        snprintf(v->number, sizeof v->number, "%d", cJSON_IsTrue(item));
    else if (!cJSON_IsNumber(item))
        return rt_fail(error, RT_DATA, "\"%s\": expected a string, a number or null", name);
    else if (number == rint(number) && fabs(number) <= 0x1p53)
        snprintf(v->number, sizeof v->number, "%" PRId64, (int64_t)number);
    else if (fabs(number) > 0x1p53)
        return rt_fail(error, RT_DATA,
                       "\"%s\": numbers beyond 2^53 are not exact in JSON: write a string",
                       name);
    else
        rt_json_format_double(number, v->number);
    return RT_OK;
}

// Values of an array, which becomes one cell; the text lives as long as the array.
static rt_status take_list(cJSON *array, char separator, value *v, rt_error *error)
{
    rt_bytes text = {0};
    rt_status status = RT_OK;
    if (!separator)
        return rt_fail(error, RT_DATA, "\"%s\": expected one value", array->string);
    for (const cJSON *item = array->child; item && !status; item = item->next) {
        value one = {.text = NULL};
        status = cJSON_IsArray(item) || cJSON_IsObject(item)
                     ? rt_fail(error, RT_DATA, "\"%s\": expected values in an array", array->string)
                     : take_value(item, array->string, &one, error);
        if (!status && strchr(one.text, separator))
            status = rt_fail(error, RT_DATA, "\"%s\": a value holds what divides values",
                             array->string);
        if (!status && item != array->child)
            rt_bytes_put(&text, &separator, 1);
        if (!status)
            rt_bytes_put(&text, one.text, strlen(one.text));
    }
    rt_bytes_put(&text, "", 1);
    cJSON *cell = status || text.failed ? NULL : cJSON_CreateString((const char *)text.data);
    rt_bytes_fini(&text);
    if (status)
        return status;
    if (!cell || !cJSON_AddItemToArray(array, cell)) {
        cJSON_Delete(cell);
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
    v->text = cell->valuestring;
    return RT_OK;
}

// Members become cells; where each stands is remembered by its column.
static rt_status take_members(const ew_questions *q, cJSON *object, value *values, rt_error *error)
{
    rt_status status = RT_OK;
    uint32_t column = EW_CELL_NONE;
    for (cJSON *item = object ? object->child : NULL; item && !status; item = item->next) {
        column = ew_cells_find_behind(q->cells, column, item->string, strlen(item->string));
        if (column == EW_CELL_NONE)
            return rt_fail(error, RT_DATA, "the model has no column \"%.*s\"", RT_NAME_MAX,
                           item->string);
        status = cJSON_IsArray(item) ? take_list(item, ew_cells_separator(q->cells, column),
                                                 &values[column], error)
                                     : take_value(item, item->string, &values[column], error);
    }
    return status;
}

static void forget(const ew_questions *q, value *values)
{
    for (uint32_t i = 0; i < ew_cells_count(q->cells); i++)
        values[i].text = NULL;
}

static void put_cells(const ew_questions *q)
{
    ew_cells_clear(q->cells);
    for (uint32_t i = 0; i < ew_cells_count(q->cells); i++) {
        const char *text = q->own[i].text ? q->own[i].text : q->shared[i].text;
        if (text)
            ew_cells_put(q->cells, i, text, strlen(text));
    }
}

static rt_status take_candidate(ew_questions *q, cJSON *candidate, rt_batch *batch,
                                rt_error *error)
{
    if (!cJSON_IsObject(candidate))
        return rt_fail(error, RT_DATA, "expected an object of columns");
    forget(q, q->own);
    rt_status status = take_members(q, candidate, q->own, error);
    if (status)
        return status;
    put_cells(q);
    return ew_cells_append(q->cells, batch, error);
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

static rt_status take_id(const ew_questions *q, const cJSON *root, ew_question *question,
                         rt_error *error)
{
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(root, "id");
    if (!id) {
        if (q->event)
            snprintf(question->id, sizeof question->id, "%s", q->name);
        return RT_OK;
    }
    if (!cJSON_IsString(id) || strlen(id->valuestring) >= sizeof question->id)
        return rt_fail(error, RT_DATA, "\"id\": expected a string of up to %zu bytes",
                       sizeof question->id - 1);
    snprintf(question->id, sizeof question->id, "%s", id->valuestring);
    return RT_OK;
}

static rt_status check_root(const cJSON *root, uint32_t most, rt_error *error)
{
    const cJSON *context = cJSON_GetObjectItemCaseSensitive(root, "context");
    const cJSON *candidates = cJSON_GetObjectItemCaseSensitive(root, "candidates");
    if (!cJSON_IsObject(root) || !cJSON_IsArray(candidates) ||
        (context && !cJSON_IsObject(context)))
        return rt_fail(
            error, RT_DATA,
            "expected {\"context\": {column: value, ...}, \"candidates\": [{...}, ...]}");
    const int count = cJSON_GetArraySize(candidates);
    if (count < 1 || (uint32_t)count > most)
        return rt_fail(error, count < 1 ? RT_DATA : RT_LIMIT,
                       "%d candidates, expected 1 to %" PRIu32, count, most);
    for (const cJSON *item = root->child; item; item = item->next)
        if (strcmp(item->string, "id") != 0 && item != context && item != candidates)
            return rt_fail(error, RT_DATA, "unknown member \"%.*s\"", RT_NAME_MAX, item->string);
    return RT_OK;
}

static rt_status take_json(ew_questions *q, const cJSON *root, uint32_t most, rt_batch *batch,
                           ew_question *question, rt_error *error)
{
    cJSON *context = cJSON_GetObjectItemCaseSensitive(root, "context");
    const cJSON *candidates = cJSON_GetObjectItemCaseSensitive(root, "candidates");
    rt_status status = check_root(root, most, error);
    if (!status)
        status = take_id(q, root, question, error);
    const double now_s = q->event ? rt_unix_s() : 0;
    forget(q, q->shared);
    if (!status && take_members(q, context, q->shared, error))
        status = rt_fail_in(error, "context");
    uint32_t number = 0;
    for (cJSON *one = candidates ? candidates->child : NULL; one && !status;
         one = one->next, number++) {
        status = take_candidate(q, one, batch, error);
        if (!status)
            status = keep_candidate(q, question, number, now_s, error);
        if (status)
            rt_fail_in(error, "candidate %" PRIu32, number);
    }
    return status;
}

// ---- binary ------------------------------------------------------------------------------------

static rt_status take_binary(const ew_questions *q, const char *body, size_t size, uint32_t most,
                             rt_batch *batch, rt_error *error)
{
    const uint32_t fields = q->schema.field_count, dense_count = q->schema.dense_count;
    const size_t sample_bytes = fields * sizeof(uint64_t) + dense_count * sizeof(float);
    uint64_t keys[RT_FIELDS_MAX];
    ew_question_header header;
    if (size < sizeof header)
        return rt_fail(error, RT_DATA, "%zu bytes, expected a header of %zu", size, sizeof header);
    memcpy(&header, body, sizeof header);
    if (header.magic != EW_QUESTION_MAGIC || header.field_count != fields ||
        header.dense_count != dense_count)
        return rt_fail(error, RT_DATA,
                       "expected the bytes LYPQ, %" PRIu32 " fields and %" PRIu32 " dense features",
                       fields, dense_count);
    if (header.count < 1 || header.count > most)
        return rt_fail(error, header.count < 1 ? RT_DATA : RT_LIMIT,
                       "%" PRIu32 " candidates, expected 1 to %" PRIu32, header.count, most);
    if (size != sizeof header + header.count * sample_bytes)
        return rt_fail(error, RT_DATA, "%zu bytes, expected %zu", size,
                       sizeof header + header.count * sample_bytes);
    const char *key_bytes = body + sizeof header;
    const char *dense_bytes = key_bytes + header.count * fields * sizeof(uint64_t);
    for (uint32_t i = 0; i < header.count; i++) {
        memcpy(keys, key_bytes + i * fields * sizeof *keys, fields * sizeof *keys);
        for (uint32_t f = 0; f < fields; f++)
            if (rt_key_field(keys[f]) != f)
                return rt_fail(
                    error, RT_DATA,
                    "candidate %" PRIu32 ": key %" PRIu32 " is not one of field %" PRIu32, i, f, f);
        if (rt_batch_append(
                batch, 0,
                (const float *)(const void *)(dense_bytes + i * dense_count * sizeof(float)), keys,
                fields))
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
    return RT_OK;
}

rt_status ew_question_take(ew_questions *q, const char *body, size_t size, bool is_binary,
                           uint32_t most, rt_batch *batch, ew_question *question, rt_error *error)
{
    const uint32_t samples = batch->sample_count, keys = batch->key_count;
    const size_t lines = q->lines ? q->lines->size : 0;
    rt_status status;
    *question = (ew_question){.is_binary = is_binary, .first = samples};
    if (is_binary && q->event) {
        status = rt_fail(error, RT_DATA,
                         "a binary question has no cells to log, and serve.log is set: ask /predict");
    } else if (is_binary) {
        status = take_binary(q, body, size, most, batch, error);
    } else {
        cJSON *root = cJSON_ParseWithLength(body, size);
        status = root ? take_json(q, root, most, batch, question, error)
                      : rt_fail(error, RT_DATA, "the body is no JSON");
        cJSON_Delete(root);
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

// ---- answers -----------------------------------------------------------------------------------

// Best first by the first of the labels; equal ones as they were asked for.
static bool rank(ew_questions *q, const float *probabilities, uint32_t count)
{
    const size_t labels = q->schema.label_count;
    if (rt_grow(&q->ranking, &q->ranking_capacity, count, sizeof *q->ranking))
        return false;
    for (uint32_t i = 0; i < count; i++) { // few: insertion
        uint32_t at = i;
        for (; at > 0 && probabilities[q->ranking[at - 1] * labels] < probabilities[i * labels];
             at--)
            q->ranking[at] = q->ranking[at - 1];
        q->ranking[at] = i;
    }
    return true;
}

// Of one label a number for every candidate, of several a list of numbers, and what they are of.
static void put_probabilities(ew_questions *q, const float *probabilities, uint32_t count)
{
    rt_json *json = &q->json;
    const uint32_t labels = q->schema.label_count;
    if (labels > 1) {
        rt_json_begin_array(json, "labels");
        for (uint32_t l = 0; l < labels; l++)
            rt_json_string(json, NULL, q->schema.label_names[l]);
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
    const uint32_t labels = q->schema.label_count;
    const float *own = probabilities + (size_t)question->first * labels;
    const double age_s = now_s - version->trained_s;
    bytes->size = 0;
    bytes->failed = !rank(q, own, question->count);
    if (bytes->failed)
        return RT_NO_MEMORY;
    if (question->is_binary) {
        const ew_answer_header header = {labels > 1 ? EW_ANSWERS_MAGIC : EW_ANSWER_MAGIC,
                                         question->count, version->iteration, age_s};
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
