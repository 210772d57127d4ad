// liblanyard: what lanyard.h promises, over ew_finished, ew_scorer and ew_cells.
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "edge_worker/predict/ew_cells.h"
#include "edge_worker/predict/ew_scorer.h"
#include "edge_worker/predict/lanyard.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_published.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_json.h"
#include "runtime/rt_locale.h"
#include "runtime/stream/rt_line.h"

#define PUBLIC __attribute__((visibility("default")))
#define BATCH_SAMPLES 256u
#define NUMBER_BYTES EW_CELLS_NUMBER_BYTES

// What one score at a time works with.
typedef struct room {
    struct room *next;
    ew_scorer *scorer;
    ew_cells *cells;
    rt_batch batch;
    bool is_place[BATCH_SAMPLES]; // of a line that is no sample
    lanyard_told told;            // of rows that are none; NULL: nobody is
    void *context;
    locale_t host;                 // of the thread that asks
    uint64_t nans;                 // rows of this call that gave NaN
    rt_error reason;               // of the first
    char (*numbers)[NUMBER_BYTES]; // a cell of each column
} room;

struct lanyard_model {
    rt_config config;
    bool has_config;
    ew_finished weights;
    ew_device device;
    ew_cells *cells; // for names
    char (*output_names)[RT_NAME_MAX];
    pthread_mutex_t lock;
    room *rooms; // that nobody uses
};

PUBLIC int lanyard_abi(void)
{
    return LANYARD_ABI;
}

// The status of a load or a score, and its sentence.
static int tell(const rt_error *failure, int bad, char *text, size_t size)
{
    if (text && size > 0)
        snprintf(text, size, "%s", failure->text);
    switch (failure->status) {
    case RT_OK:
        return LANYARD_OK;
    case RT_NO_MEMORY:
        return LANYARD_NO_MEMORY;
    case RT_DATA:
    case RT_CONFIG:
    case RT_NOT_FOUND:
    case RT_IO:
    case RT_LIMIT:
        return bad;
    default:
        return LANYARD_FAILED;
    }
}

// ---- models ----------------------------------------------------------------------------------

static rt_status name_outputs(lanyard_model *model, rt_error *error)
{
    const rt_schema *schema = &model->weights.schema;
    model->output_names = rt_alloc(schema->output_count, sizeof *model->output_names);
    if (!model->output_names)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < schema->output_count; i++)
        rt_schema_output_name(schema, i, model->output_names[i]);
    return RT_OK;
}

// The folder of the version in force, where a run publishes.
static rt_status find_version(const char *folder, char found[RT_PATH_MAX + 64], rt_error *error)
{
    rt_published current;
    const rt_status status = rt_published_read(folder, &current, error);
    if (!status)
        return rt_checkpoint_path(folder, current.iteration, found, RT_PATH_MAX + 64, error);
    if (status != RT_NOT_FOUND)
        return status;
    *error = (rt_error){0};
    if ((size_t)snprintf(found, RT_PATH_MAX + 64, "%s", folder) >= RT_PATH_MAX + 64)
        return rt_fail(error, RT_CONFIG, "%.200s...: the path is too long", folder);
    return RT_OK;
}

// A folder of a later build holds no model for this one (LANYARD_NO_MODEL).
static rt_status refuse_later(rt_status status, rt_error *error)
{
    if (status != RT_UNSUPPORTED)
        return status;
    error->status = RT_DATA;
    return RT_DATA;
}

static rt_status load(lanyard_model *model, const char *folder, rt_error *error)
{
    ew_source source;
    char found[RT_PATH_MAX + 64]; // copied where it is needed later
    rt_status status = find_version(folder, found, error);
    if (status)
        return refuse_later(status, error);
    status = ew_source_open(found, NULL, 0, false, &model->config, &source, error);
    if (status)
        return refuse_later(status, error);
    model->has_config = true;
    status = ew_scorer_open_device(1, &model->device, error);
    if (status)
        return status;
    status = ew_finished_open(&source, &model->weights, error);
    if (status)
        return refuse_later(status, error);
    status = ew_cells_create(&model->config, &model->cells, error);
    if (status)
        return status;
    return name_outputs(model, error);
}

PUBLIC int lanyard_load(const char *folder, lanyard_model **model_p, char *error, size_t error_size)
{
    rt_error failure = {0};
    lanyard_model *model = rt_alloc(1, sizeof *model);
    if (!model) {
        rt_fail(&failure, RT_NO_MEMORY, "out of memory");
        return tell(&failure, LANYARD_NO_MEMORY, error, error_size);
    }
    pthread_mutex_init(&model->lock, NULL);
    const locale_t host = rt_locale_enter();
    const rt_status status = load(model, folder, &failure);
    rt_locale_leave(host);
    if (status)
        lanyard_free(model);
    else
        *model_p = model;
    return tell(&failure, LANYARD_NO_MODEL, error, error_size);
}

static void destroy_room(room *r)
{
    if (!r)
        return;
    ew_scorer_destroy(r->scorer);
    ew_cells_destroy(r->cells);
    rt_batch_fini(&r->batch);
    rt_free(r->numbers);
    rt_free(r);
}

PUBLIC void lanyard_free(lanyard_model *model)
{
    if (!model)
        return;
    for (room *r = model->rooms, *next; r; r = next) {
        next = r->next;
        destroy_room(r);
    }
    ew_cells_destroy(model->cells);
    rt_free(model->output_names);
    ew_finished_close(&model->weights);
    ew_device_close(&model->device);
    if (model->has_config)
        rt_config_fini(&model->config);
    pthread_mutex_destroy(&model->lock);
    rt_free(model);
}

PUBLIC void lanyard_version(const lanyard_model *model, uint64_t *iteration, uint64_t *samples,
                            double *trained_s)
{
    if (iteration)
        *iteration = model->weights.iteration;
    if (samples)
        *samples = model->weights.samples;
    if (trained_s)
        *trained_s = model->weights.trained_s;
}

PUBLIC const char *lanyard_column_name(const lanyard_model *model, size_t number)
{
    if (number >= ew_cells_count(model->cells))
        return NULL;
    return ew_cells_name(model->cells, (uint32_t)number);
}

PUBLIC const char *lanyard_column_kind(const lanyard_model *model, size_t number)
{
    if (number >= ew_cells_count(model->cells))
        return NULL;
    return rt_config_column_kind(ew_cells_kind(model->cells, (uint32_t)number));
}

PUBLIC char lanyard_column_separator(const lanyard_model *model, size_t number)
{
    if (number >= ew_cells_count(model->cells))
        return 0;
    return ew_cells_separator(model->cells, (uint32_t)number);
}

PUBLIC const char *lanyard_format(const lanyard_model *model)
{
    return rt_config_choice_name("stream.format", (int)model->config.stream.format);
}

PUBLIC size_t lanyard_dense_count(const lanyard_model *model)
{
    return model->weights.schema.dense_count;
}

PUBLIC size_t lanyard_field_count(const lanyard_model *model)
{
    return model->weights.schema.field_count;
}

PUBLIC size_t lanyard_label_count(const lanyard_model *model)
{
    return model->weights.schema.output_count;
}

PUBLIC const char *lanyard_label_name(const lanyard_model *model, size_t number)
{
    const rt_schema *schema = &model->weights.schema;
    return number < schema->output_count ? model->output_names[number] : NULL;
}

// ---- rooms -----------------------------------------------------------------------------------

static rt_status furnish(const lanyard_model *model, room *r, rt_error *error)
{
    rt_batch_init(&r->batch, model->weights.schema.dense_count);
    r->numbers = rt_alloc(ew_cells_count(model->cells) + 1u, sizeof *r->numbers);
    if (!r->numbers)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    const rt_status status =
        ew_scorer_create(&model->weights, &model->device, BATCH_SAMPLES, &r->scorer, error);
    if (status)
        return status;
    return ew_cells_create(&model->config, &r->cells, error);
}

static rt_status create_room(const lanyard_model *model, room **room_p, rt_error *error)
{
    room *r = rt_alloc(1, sizeof *r);
    if (!r)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    const rt_status status = furnish(model, r, error);
    if (status) {
        destroy_room(r);
        return status;
    }
    *room_p = r;
    return RT_OK;
}

// The lock is not the model's to change for its users; scoring changes nothing else of it.
static rt_status enter(const lanyard_model *model, locale_t host, room **room_p, rt_error *error)
{
    rt_status status = RT_OK;
    lanyard_model *own = (lanyard_model *)(uintptr_t)model;
    pthread_mutex_lock(&own->lock);
    room *r = own->rooms;
    if (r)
        own->rooms = r->next;
    pthread_mutex_unlock(&own->lock);
    if (!r)
        status = create_room(model, &r, error);
    if (status)
        return status;
    r->host = host;
    r->told = NULL;
    r->nans = 0;
    *room_p = r;
    return RT_OK;
}

static void leave(const lanyard_model *model, room *r)
{
    lanyard_model *own = (lanyard_model *)(uintptr_t)model;
    pthread_mutex_lock(&own->lock);
    r->next = own->rooms;
    own->rooms = r;
    pthread_mutex_unlock(&own->lock);
}

// A row that gives NaN. The host is called in its own locale.
static void tell_row(room *r, size_t row, const rt_error *reason)
{
    if (r->nans++ == 0)
        r->reason = *reason;
    if (r->nans == 1)
        rt_fail_in(&r->reason, "row %zu", row);
    if (!r->told)
        return;
    rt_locale_leave(r->host);
    r->told(r->context, row, reason->text);
    (void)rt_locale_enter();
}

static bool has_nan(const float *probabilities, uint32_t count)
{
    uint32_t i = 0;
    while (i < count && !isnan(probabilities[i]))
        i++;
    return i < count;
}

// Scores what is in the batch and empties it. from: number of its first sample in all.
static rt_status score_batch(const lanyard_model *model, room *r, size_t from, float *all,
                             rt_error *error)
{
    const float *probabilities;
    rt_error none = {0};
    const uint32_t count = r->batch.sample_count, labels = model->weights.schema.output_count;
    float *to = all + from * labels;
    const rt_status status =
        ew_scorer_run(r->scorer, &model->weights, &r->batch, &probabilities, error);
    for (uint32_t i = 0; i < count * labels && !status; i++)
        to[i] = r->is_place[i / labels] ? NAN : probabilities[i];
    for (uint32_t i = 0; i < count && !status; i++) {
        if (r->is_place[i] || !has_nan(to + (size_t)i * labels, labels))
            continue;
        rt_fail(&none, RT_DATA, "the model gives no number: its weights are not finite");
        tell_row(r, from + i, &none);
    }
    memset(r->is_place, 0, sizeof r->is_place);
    rt_batch_clear(&r->batch);
    return status;
}

// The same, once the batch is full or has the last sample. count: samples so far.
static rt_status score_if_due(const lanyard_model *model, room *r, bool is_last, size_t count,
                              float *all, rt_error *error)
{
    if (r->batch.sample_count < BATCH_SAMPLES && !is_last)
        return RT_OK;
    return score_batch(model, r, count - r->batch.sample_count, all, error);
}

// ---- by columns ------------------------------------------------------------------------------

static void put_value(room *r, uint32_t place, const lanyard_column *column, size_t index)
{
    const char *at = (const char *)column->values + index * column->stride;
    char *number = r->numbers[place];
    const char *text = number;
    double real;
    int64_t integer;
    switch (column->type) {
    case LANYARD_TEXT:
        ew_cells_put(r->cells, place, at, strnlen(at, column->stride));
        return;
    case LANYARD_INT64:
        memcpy(&integer, at, sizeof integer);
        snprintf(number, NUMBER_BYTES, "%" PRId64, integer);
        break;
    case LANYARD_DOUBLE:
        memcpy(&real, at, sizeof real);
        text = "";
        if (!isnan(real))
            text = ew_cells_number(r->cells, real, number);
        if (!text)
            text = rt_json_format_double(real, number);
        break;
    case LANYARD_BOOL:
        text = ew_cells_word(r->cells, *at != 0);
        break;
    }
    ew_cells_put(r->cells, place, text, strlen(text));
}

static rt_status find_places(const room *r, const lanyard_column *columns, size_t column_count,
                             uint32_t *places, rt_error *error)
{
    for (size_t i = 0; i < column_count; i++) {
        places[i] = ew_cells_find(r->cells, columns[i].name, strlen(columns[i].name));
        if (places[i] == EW_CELL_NONE)
            return ew_cells_refuse_name(r->cells, columns[i].name, strlen(columns[i].name), error);
        if ((int)columns[i].type < LANYARD_TEXT || columns[i].type > LANYARD_BOOL)
            return rt_fail(error, RT_DATA, "column \"%s\": unknown type %d", columns[i].name,
                           (int)columns[i].type);
    }
    return RT_OK;
}

static rt_status score_columns(const lanyard_model *model, room *r, const lanyard_column *columns,
                               size_t column_count, size_t count, float *to, rt_error *error)
{
    uint32_t places[RT_COLUMNS_MAX];
    if (column_count > RT_COLUMNS_MAX)
        return rt_fail(error, RT_DATA, "%zu columns, expected at most %d", column_count,
                       RT_COLUMNS_MAX);
    rt_status status = find_places(r, columns, column_count, places, error);
    if (status)
        return status;
    ew_cells_clear(r->cells);
    for (size_t i = 0; i < count; i++) {
        for (size_t c = 0; c < column_count; c++)
            put_value(r, places[c], &columns[c], i);
        if (ew_cells_append(r->cells, &r->batch, error))
            return rt_fail_in(error, "sample %zu", i);
        status = score_if_due(model, r, i + 1 == count, i + 1, to, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// What a call has to say when all went well: of rows that gave NaN.
static void end_call(const lanyard_model *model, room *r, size_t rows, rt_error *failure)
{
    if (failure->status == RT_OK && r->nans > 0)
        snprintf(failure->text, sizeof failure->text,
                 "%" PRIu64 " of %zu rows gave no number; %.300s", r->nans, rows, r->reason.text);
    rt_batch_clear(&r->batch);
    memset(r->is_place, 0, sizeof r->is_place);
    leave(model, r);
}

PUBLIC int lanyard_score(const lanyard_model *model, const lanyard_column *columns,
                         size_t column_count, size_t count, float *probabilities, char *error,
                         size_t error_size)
{
    room *r;
    rt_error failure = {0};
    const locale_t host = rt_locale_enter();
    if (enter(model, host, &r, &failure) == RT_OK) {
        score_columns(model, r, columns, column_count, count, probabilities, &failure);
        end_call(model, r, count, &failure);
    }
    rt_locale_leave(host);
    return tell(&failure, LANYARD_BAD_INPUT, error, error_size);
}

// ---- by lines --------------------------------------------------------------------------------

static rt_status append_place(const lanyard_model *model, room *r, rt_error *error)
{
    uint64_t keys[RT_FIELDS_MAX];
    const uint32_t fields = model->weights.schema.field_count;
    const uint32_t place = r->batch.sample_count;
    float *dense = rt_alloc(model->weights.schema.dense_count + 1u, sizeof *dense);
    if (!dense)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    for (uint32_t f = 0; f < fields; f++)
        keys[f] = rt_key(f, RT_ID_MISSING);
    const rt_status status = rt_batch_append(&r->batch, 0, dense, keys, fields);
    rt_free(dense);
    if (status)
        return rt_fail(error, status, "out of memory");
    r->is_place[place] = true;
    return RT_OK;
}

// Lines that are left, and rows so far.
typedef struct {
    const char *at, *end;
    size_t rows;
} lines_left;

// The bytes of a line at `at`, without its end; *next_p: behind that.
static size_t line_at(const char *at, const char *end, const char **next_p)
{
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    size_t length = (size_t)((stop ? stop : end) - at);
    *next_p = stop ? stop + 1 : end;
    return length - (length > 0 && at[length - 1] == '\r');
}

// The next row: a line, or several that a quote holds together. If they are none, the first stands
// alone, and gets a place, so that those behind it keep their numbers.
static rt_status append_row(const lanyard_model *model, room *r, lines_left *left, rt_error *error)
{
    const char *first = left->at, *next, *behind;
    size_t length = line_at(first, left->end, &behind);
    rt_error reason = {0}, later = {0};
    bool goes_on = false;
    rt_status status = rt_fail(&reason, RT_DATA, "expected a sample, found an empty line");
    if (length > 0)
        status = ew_cells_append_line(r->cells, first, length, &r->batch, &goes_on, &reason);
    next = behind;
    for (uint32_t lines = 1; status == RT_DATA && goes_on && next < left->end &&
                             lines < RT_LINES_JOINED_MAX && length < RT_LINES_JOINED_BYTES;
         lines++) {
        const char *at = next;
        length = (size_t)(at - first) + line_at(at, left->end, &next);
        status = ew_cells_append_line(r->cells, first, length, &r->batch, &goes_on, &later);
    }
    left->at = status ? behind : next;
    if (status == RT_DATA) {
        tell_row(r, left->rows, &reason);
        status = append_place(model, r, error);
    } else if (status) {
        *error = length > 0 && later.status ? later : reason;
    }
    left->rows += status == RT_OK;
    return status;
}

// A mark that some programs begin a file with, and a header.
static rt_status pass_head(room *r, lines_left *left, bool is_ordered, rt_error *error)
{
    static const char mark[] = "\xef\xbb\xbf";
    bool is_header = false;
    const char *behind;
    if (left->end - left->at >= 3 && memcmp(left->at, mark, 3) == 0)
        left->at += 3;
    if (left->at == left->end || is_ordered)
        return RT_OK;
    const size_t length = line_at(left->at, left->end, &behind);
    const rt_status status = ew_cells_take_header(r->cells, left->at, length, &is_header, error);
    if (is_header)
        left->at = behind;
    return status;
}

static rt_status score_lines(const lanyard_model *model, room *r, lines_left *left, bool is_ordered,
                             float *to, size_t capacity, rt_error *error)
{
    rt_status status = pass_head(r, left, is_ordered, error);
    while (!status && left->at < left->end) {
        if (left->rows == capacity)
            return rt_fail(error, RT_DATA, "more than %zu lines", capacity);
        status = append_row(model, r, left, error);
        if (!status)
            status = score_if_due(model, r, left->at == left->end, left->rows, to, error);
    }
    return status;
}

PUBLIC int lanyard_score_lines_as(const lanyard_model *model, const char *const *order,
                                  size_t order_count, const char *lines, size_t size,
                                  float *probabilities, size_t capacity, size_t *count_p,
                                  lanyard_told told, void *context, char *error, size_t error_size)
{
    room *r;
    rt_error failure = {0};
    lines_left left = {.at = lines, .end = lines + size};
    const locale_t host = rt_locale_enter();
    if (enter(model, host, &r, &failure) == RT_OK) {
        r->told = told;
        r->context = context;
        if (ew_cells_order(r->cells, order, order_count, &failure) == RT_OK)
            score_lines(model, r, &left, order_count > 0, probabilities, capacity, &failure);
        end_call(model, r, left.rows, &failure);
    }
    rt_locale_leave(host);
    *count_p = failure.status ? 0 : left.rows;
    return tell(&failure, LANYARD_BAD_INPUT, error, error_size);
}

PUBLIC int lanyard_score_lines(const lanyard_model *model, const char *lines, size_t size,
                               float *probabilities, size_t capacity, size_t *count_p, char *error,
                               size_t error_size)
{
    return lanyard_score_lines_as(model, NULL, 0, lines, size, probabilities, capacity, count_p,
                                  NULL, NULL, error, error_size);
}

// ---- by keys ---------------------------------------------------------------------------------

// Every field has a key at least, in order, and no more than a line could have.
static rt_status check_keys(const rt_schema *schema, const uint64_t *keys, size_t count,
                            size_t sample, rt_error *error)
{
    uint32_t next = 0;
    for (size_t k = 0; k < count; k++) {
        const uint32_t field = rt_key_field(keys[k]);
        if (field != next && (next == 0 || field != next - 1))
            return rt_fail(error, RT_DATA,
                           "sample %zu: a key of field %u, expected one of field %u", sample, field,
                           next);
        next = field + 1;
    }
    if (next != schema->field_count || count > schema->keys_per_sample_max)
        return rt_fail(
            error, RT_DATA,
            "sample %zu: %zu keys up to field %u, expected keys of %u fields, at most %u", sample,
            count, next, schema->field_count, schema->keys_per_sample_max);
    return RT_OK;
}

// Dense features of samples, side by side: either of the two.
typedef struct {
    const float *short_ones;
    const double *long_ones;
} numbers;

static rt_status append_numbers(const rt_schema *schema, room *r, size_t sample, numbers dense,
                                const uint64_t *keys, uint32_t key_count, rt_error *error)
{
    const size_t first = sample * schema->dense_count;
    rt_status status;
    for (uint32_t k = 0; k < schema->dense_count; k++) {
        const float one =
            dense.long_ones ? (float)dense.long_ones[first + k] : dense.short_ones[first + k];
        if (!isfinite(one))
            return rt_fail(error, RT_DATA, "sample %zu: dense feature %u is not finite", sample, k);
    }
    if (dense.long_ones)
        status = rt_batch_append_read(&r->batch, 0, dense.long_ones + first, keys, key_count);
    else
        status = rt_batch_append(&r->batch, 0, dense.short_ones + first, keys, key_count);
    return status ? rt_fail(error, status, "out of memory") : RT_OK;
}

static rt_status score_keys(const lanyard_model *model, room *r, size_t count, numbers dense,
                            const uint64_t *keys, const size_t *offsets, float *to, rt_error *error)
{
    const rt_schema *schema = &model->weights.schema;
    for (size_t i = 0; i < count; i++) {
        size_t first = i * schema->field_count, end = first + schema->field_count;
        if (offsets) {
            first = offsets[i];
            end = offsets[i + 1];
        }
        rt_status status = check_keys(schema, keys + first, end - first, i, error);
        if (!status)
            status =
                append_numbers(schema, r, i, dense, keys + first, (uint32_t)(end - first), error);
        if (status)
            return status;
        status = score_if_due(model, r, i + 1 == count, i + 1, to, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static int score_numbers(const lanyard_model *model, locale_t host, size_t count, numbers dense,
                         const uint64_t *keys, const size_t *key_offsets, float *probabilities,
                         char *error, size_t error_size)
{
    room *r;
    rt_error failure = {0};
    if (enter(model, host, &r, &failure) == RT_OK) {
        score_keys(model, r, count, dense, keys, key_offsets, probabilities, &failure);
        end_call(model, r, count, &failure);
    }
    return tell(&failure, LANYARD_BAD_INPUT, error, error_size);
}

PUBLIC int lanyard_score_numbers(const lanyard_model *model, size_t count, const double *dense,
                                 const uint64_t *keys, const size_t *key_offsets,
                                 float *probabilities, char *error, size_t error_size)
{
    const locale_t host = rt_locale_enter();
    const int code = score_numbers(model, host, count, (numbers){.long_ones = dense}, keys,
                                   key_offsets, probabilities, error, error_size);
    rt_locale_leave(host);
    return code;
}

PUBLIC int lanyard_score_keys(const lanyard_model *model, size_t count, const float *dense,
                              const uint64_t *keys, const size_t *key_offsets, float *probabilities,
                              char *error, size_t error_size)
{
    const locale_t host = rt_locale_enter();
    const int code = score_numbers(model, host, count, (numbers){.short_ones = dense}, keys,
                                   key_offsets, probabilities, error, error_size);
    rt_locale_leave(host);
    return code;
}
