#include "dispatch/plan/dp_journal.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES_MAX 1024
#define INPUTS_MAX (1u << 24)

void dp_journal_write(rt_metrics *journal, const dp_input *input)
{
    dp_input_kind kind = (dp_input_kind)input->kind;
    rt_json *json = rt_metrics_begin(journal, "input");
    rt_json_u64(json, "number", input->number);
    rt_json_u64(json, "iteration", input->iteration);
    rt_json_string(json, "kind", dp_input_name(kind));
    if (dp_input_subject(kind))
        rt_json_u64(json, dp_input_subject(kind), input->worker);
    if (kind == DP_INPUT_FORGET) {
        char key[17];
        snprintf(key, sizeof key, "%016" PRIx64, dp_input_key(input));
        rt_json_string(json, "key", key);
    } else {
        rt_json_double(json, "value", input->value);
    }
    rt_metrics_end(journal);
}

void dp_journal_batch(rt_metrics *journal, uint32_t iteration, uint32_t samples)
{
    rt_json *json = rt_metrics_begin(journal, "batch");
    rt_json_u64(json, "iteration", iteration);
    rt_json_u64(json, "samples", samples);
    rt_metrics_end(journal);
}

void dp_journal_resume(rt_metrics *journal, uint32_t iteration, uint64_t input_count)
{
    rt_json *json = rt_metrics_begin(journal, "resumed");
    rt_json_u64(json, "iteration", iteration);
    rt_json_u64(json, "inputs", input_count);
    rt_metrics_end(journal);
}

// A member that is an integer in [0, UINT32_MAX].
static rt_status read_u32(const cJSON *object, const char *name, uint32_t *value_p, rt_error *error)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, name);
    double number = cJSON_IsNumber(value) ? value->valuedouble : -1;
    if (!(number >= 0 && number <= UINT32_MAX) || number != floor(number))
        return rt_fail(error, RT_CONFIG, "%s: expected an integer in [0, %u]", name, UINT32_MAX);
    *value_p = (uint32_t)number;
    return RT_OK;
}

static rt_status read_forget(const cJSON *object, dp_input *input, rt_error *error)
{
    const char *key = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "key"));
    if (!key || strlen(key) != 16 || strspn(key, "0123456789abcdef") != 16)
        return rt_fail(error, RT_CONFIG, "key: expected 16 hexadecimal digits");
    *input = dp_input_forget(strtoull(key, NULL, 16));
    return read_u32(object, "iteration", &input->iteration, error);
}

static rt_status read_input(const cJSON *object, uint32_t worker_count, dp_input *input,
                            rt_error *error)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(object, "kind");
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, "value");
    dp_input_kind kind;
    *input = (dp_input){0};
    if (!cJSON_IsString(name) || dp_input_find(name->valuestring, &kind))
        return rt_fail(error, RT_CONFIG, "kind: expected the name of an input record");
    if (kind == DP_INPUT_FORGET)
        return read_forget(object, input, error);
    if (!cJSON_IsNumber(value))
        return rt_fail(error, RT_CONFIG, "value: expected a number");
    input->kind = kind;
    input->value = value->valuedouble;
    rt_status status = read_u32(object, "iteration", &input->iteration, error);
    if (!status && dp_input_subject(kind))
        status = read_u32(object, dp_input_subject(kind), &input->worker, error);
    if (status)
        return status;
    return dp_input_check(input, worker_count, error);
}

static rt_status add_input(const cJSON *object, uint32_t worker_count, dp_inputs *inputs,
                           rt_error *error)
{
    dp_input input;
    rt_status status = read_input(object, worker_count, &input, error);
    if (status)
        return status;
    if (inputs->count == INPUTS_MAX)
        return rt_fail(error, RT_LIMIT, "more than %u records", INPUTS_MAX);
    if (rt_grow(&inputs->items, &inputs->capacity, inputs->count + 1u, sizeof *inputs->items))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    input.number = inputs->count + 1u;
    inputs->items[inputs->count++] = input;
    return RT_OK;
}

static rt_status add_batch(const cJSON *object, dp_inputs *inputs, rt_error *error)
{
    dp_short_batch batch;
    uint32_t last = 0;
    if (inputs->batch_count)
        last = inputs->batches[inputs->batch_count - 1].iteration;
    rt_status status = read_u32(object, "iteration", &batch.iteration, error);
    if (!status)
        status = read_u32(object, "samples", &batch.samples, error);
    if (status)
        return status;
    if (batch.iteration <= last || batch.samples == 0)
        return rt_fail(error, RT_CONFIG, "expected a later iteration, with samples");
    if (inputs->batch_count == INPUTS_MAX)
        return rt_fail(error, RT_LIMIT, "more than %u batches", INPUTS_MAX);
    if (rt_grow(&inputs->batches, &inputs->batch_capacity, inputs->batch_count + 1u,
                sizeof *inputs->batches))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    inputs->batches[inputs->batch_count++] = batch;
    return RT_OK;
}

// What came after the checkpoint that a process went on from is taken back.
static rt_status take_back(const cJSON *object, dp_inputs *inputs, rt_error *error)
{
    uint32_t stay = 0, iteration = 0;
    rt_status status = read_u32(object, "inputs", &stay, error);
    if (!status)
        status = read_u32(object, "iteration", &iteration, error);
    inputs->count = (uint32_t)rt_min_u64(inputs->count, stay);
    if (status)
        return status;
    while (inputs->batch_count > 0 &&
           inputs->batches[inputs->batch_count - 1].iteration > iteration)
        inputs->batch_count--;
    return RT_OK;
}

// RT_DATA: it is no object. *is_start: it is the first that a process wrote.
static rt_status read_line(const char *line, uint32_t worker_count, dp_inputs *inputs,
                           bool *is_start, rt_error *error)
{
    rt_status status = RT_OK;
    cJSON *object = cJSON_Parse(line);
    if (!cJSON_IsObject(object)) {
        cJSON_Delete(object);
        return rt_fail(error, RT_DATA, "expected a JSON object that ends with the line");
    }
    const char *record = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "record"));
    *is_start = record && strcmp(record, "resumed") == 0;
    if (!record || strcmp(record, "input") == 0)
        status = add_input(object, worker_count, inputs, error);
    else if (strcmp(record, "batch") == 0)
        status = add_batch(object, inputs, error);
    else if (*is_start)
        status = take_back(object, inputs, error);
    cJSON_Delete(object);
    return status;
}

static int compare(const void *a, const void *b)
{
    const dp_input *x = a, *y = b;
    if (x->iteration != y->iteration)
        return x->iteration < y->iteration ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

// A process that is killed may leave half a line: the last one, or the one before the next start.
static rt_status read_lines(FILE *file, uint32_t worker_count, dp_inputs *inputs, rt_error *error)
{
    char line[LINE_BYTES_MAX];
    rt_error half = {0}; // what is wrong with the line before
    bool is_whole = false;
    for (uint64_t number = 1; fgets(line, sizeof line, file); number++) {
        rt_error own = {0};
        bool is_start = false;
        const size_t length = strlen(line);
        is_whole = length > 0 && line[length - 1] == '\n';
        if (length == sizeof line - 1 && !is_whole)
            rt_fail(&own, RT_CONFIG, "longer than %d bytes: no journal", LINE_BYTES_MAX);
        else if (line[0] != '\n')
            (void)read_line(line, worker_count, inputs, &is_start, &own);
        if (own.status)
            rt_fail_in(&own, "line %" PRIu64, number);
        if (half.status && !is_start)
            break;
        half = own;
        if (half.status && half.status != RT_DATA)
            break;
    }
    if (!half.status || (half.status == RT_DATA && !is_whole && feof(file)))
        return RT_OK;
    if (half.status == RT_DATA)
        return rt_fail(error, RT_CONFIG, "%s", half.text);
    return rt_fail(error, half.status, "%s", half.text);
}

rt_status dp_inputs_load(const char *path, uint32_t worker_count, dp_inputs *inputs,
                         rt_error *error)
{
    *inputs = (dp_inputs){0};
    FILE *file = fopen(path, "re");
    if (!file)
        return rt_fail(error, RT_IO, "%s: %s", path, strerror(errno));
    rt_status status = read_lines(file, worker_count, inputs, error);
    if (status)
        rt_fail_in(error, "%s", path);
    else if (ferror(file))
        status = rt_fail(error, RT_IO, "%s: cannot be read", path);
    fclose(file);
    if (status)
        dp_inputs_fini(inputs);
    else if (inputs->count)
        qsort(inputs->items, inputs->count, sizeof *inputs->items, compare);
    return status;
}

void dp_inputs_fini(dp_inputs *inputs)
{
    rt_free(inputs->items);
    rt_free(inputs->batches);
    *inputs = (dp_inputs){0};
}

uint32_t dp_inputs_samples(const dp_inputs *inputs, uint64_t iteration, uint32_t full)
{
    uint32_t low = 0, high = inputs->batch_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (inputs->batches[middle].iteration < iteration)
            low = middle + 1;
        else
            high = middle;
    }
    const bool is_there = low < inputs->batch_count && inputs->batches[low].iteration == iteration;
    if (!is_there)
        return full;
    return (uint32_t)rt_min_u64(inputs->batches[low].samples, full);
}
