// rt_libsvm - lines of "label index:value index:value ..." (libsvm, libFM).
//
// Indices below stream.libsvm.dense, counted from the smallest, are dense features; the others are
// ids, whose field follows from stream.libsvm.fields. Order is of no matter, an index may stand
// once. "qid:..." and what follows a '#' are not read.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "runtime/stream/rt_columns.h"
#include "runtime/stream/rt_parser.h"

typedef struct {
    rt_libsvm_config config;
    uint32_t field_count; // at least 1
    uint64_t first_id;    // the smallest index that is an id
    bool labels_optional; // every label is 0, whatever stands there, if anything
    uint64_t line;        // number of this one, for seen
    uint64_t *seen;       // dense_count: the last line that had the feature
    uint32_t *counts;     // field_count: keys of this line
    uint64_t *keys;       // field_count x values_max
} parser;

static void destroy(void *self)
{
    parser *p = self;
    if (!p)
        return;
    rt_free(p->seen);
    rt_free(p->counts);
    rt_free(p->keys);
    rt_free(p);
}

static rt_status create(const rt_stream_config *config, void **parser_p, rt_error *error)
{
    parser *p = rt_alloc(1, sizeof *p);
    if (!p)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a stream");
    p->config = config->libsvm;
    p->labels_optional = config->labels_optional;
    p->field_count = p->config.field_count ? p->config.field_count : 1;
    p->first_id = p->config.index_first + p->config.dense_count;
    if (p->config.field_count == 0)
        p->config.fields[0] = p->first_id;
    p->seen = rt_alloc(p->config.dense_count, sizeof *p->seen);
    p->counts = rt_alloc(p->field_count, sizeof *p->counts);
    p->keys = rt_alloc((size_t)p->field_count * p->config.values_max, sizeof *p->keys);
    rt_status status = RT_OK;
    if (!p->seen || !p->counts || !p->keys)
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for a stream");
    else if ((uint64_t)p->field_count * p->config.values_max > RT_KEYS_PER_SAMPLE_MAX)
        status = rt_fail(error, RT_CONFIG,
                         "stream.libsvm.values_max: %u ids in each of %u fields are more than the "
                         "%u keys that a sample may have",
                         p->config.values_max, p->field_count, RT_KEYS_PER_SAMPLE_MAX);
    if (status) {
        destroy(p);
        return status;
    }
    *parser_p = p;
    return RT_OK;
}

static void schema(const void *self, rt_schema *schema)
{
    const parser *p = self;
    memset(schema, 0, sizeof *schema);
    schema->dense_count = p->config.dense_count;
    schema->field_count = p->field_count;
    schema->keys_per_sample_max = p->field_count * p->config.values_max;
    for (uint32_t f = 0; f < p->field_count; f++)
        snprintf(schema->field_names[f], RT_NAME_MAX, "from %" PRIu64, p->config.fields[f]);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

// The next word; false: there is none.
static bool next_word(const char **at_p, const char *end, rt_cell *word)
{
    const char *at = *at_p;
    while (at < end && is_blank(*at))
        at++;
    const char *from = at;
    while (at < end && !is_blank(*at))
        at++;
    *word = (rt_cell){from, (size_t)(at - from)};
    *at_p = at;
    return at > from;
}

static bool parse_index(rt_cell text, uint64_t *index_p)
{
    uint64_t index = 0;
    for (size_t i = 0; i < text.length; i++) {
        const uint32_t digit = (uint32_t)text.text[i] - '0';
        if (digit > 9 || index >= RT_ID_MISSING / 10)
            return false;
        index = index * 10 + digit;
    }
    *index_p = index;
    return text.length > 0;
}

static bool take_dense(parser *p, uint64_t feature, double value, rt_line_sample *sample,
                       rt_line_problem *problem)
{
    if (p->seen[feature] == p->line)
        return rt_line_reject(problem, "index %" PRIu64 " stands twice",
                              (feature + p->config.index_first));
    p->seen[feature] = p->line;
    sample->dense[feature] = value;
    return isfinite((float)value) ||
           rt_line_reject(problem, "index %" PRIu64 ": expected a number that fits 32 bits",
                          (feature + p->config.index_first));
}

// Of the field whose first index is the last one that is not above.
static bool take_id(parser *p, uint64_t index, double value, rt_line_problem *problem)
{
    uint32_t field = p->field_count;
    while (field > 0 && p->config.fields[field - 1] > index)
        field--;
    if (field == 0)
        return rt_line_reject(problem,
                              "index %" PRIu64 ": is in no field, the first one begins at %" PRIu64,
                              index, p->config.fields[0]);
    if (value != 0 && value != 1)
        return rt_line_reject(problem,
                              "index %" PRIu64
                              ": expected 0 or 1, found %g (numbers are features below "
                              "stream.libsvm.dense)",
                              index, value);
    field--;
    const uint64_t key = rt_key(field, index);
    uint64_t *keys = p->keys + (size_t)field * p->config.values_max;
    for (uint32_t i = 0; i < p->counts[field]; i++) {
        if (keys[i] == key)
            return rt_line_reject(problem, "index %" PRIu64 " stands twice", index);
    }
    if (value == 1 && p->counts[field] < p->config.values_max)
        keys[p->counts[field]++] = key;
    return true;
}

static bool take_pair(parser *p, rt_cell word, rt_line_sample *sample, rt_line_problem *problem)
{
    const char *colon = memchr(word.text, ':', word.length);
    const size_t left = colon ? (size_t)(colon - word.text) : 0;
    uint64_t index;
    double value;
    if (left == 3 && memcmp(word.text, "qid", 3) == 0)
        return true;
    if (!colon || !parse_index((rt_cell){word.text, left}, &index) ||
        index < p->config.index_first ||
        !rt_columns_number((rt_cell){colon + 1, word.length - left - 1}, &value))
        return rt_line_reject(
            problem, "expected INDEX:NUMBER with an index from %" PRIu64 " on, found \"%.*s\"",
            p->config.index_first, (int)rt_min_u64(word.length, 24), word.text);
    if (index < p->first_id)
        return take_dense(p, index - p->config.index_first, value, sample, problem);
    return take_id(p, index, value, problem);
}

static void put_keys(const parser *p, rt_line_sample *sample)
{
    sample->key_count = 0;
    for (uint32_t f = 0; f < p->field_count; f++) {
        const uint64_t *keys = p->keys + (size_t)f * p->config.values_max;
        for (uint32_t i = 0; i < p->counts[f]; i++)
            sample->keys[sample->key_count++] = keys[i];
        if (p->counts[f] == 0)
            sample->keys[sample->key_count++] = rt_key(f, RT_ID_MISSING);
    }
}

// The first word. Where labels do not matter it may be anything, or not be there.
static bool take_label(const parser *p, const char **at_p, const char *end, rt_line_sample *sample,
                       rt_line_problem *problem)
{
    const char *at = *at_p;
    rt_cell word = {at, 0};
    double label = 0;
    const bool is_there = next_word(&at, end, &word);
    sample->label = 0;
    if (p->labels_optional) {
        if (is_there && !memchr(word.text, ':', word.length))
            *at_p = at;
        return true;
    }
    const size_t sign = is_there && word.text[0] == '+';
    if (!is_there || !rt_columns_number((rt_cell){word.text + sign, word.length - sign}, &label))
        return rt_line_reject(problem, "expected a label, a number, found \"%.*s\"",
                              (int)rt_min_u64(word.length, 24), word.text);
    *at_p = at;
    sample->label = label >= p->config.label_at_least;
    sample->odd_labels = p->config.label_at_least == 1 && label > 1;
    sample->odd_value = label;
    return true;
}

static bool parse(void *self, const rt_line *line, rt_line_sample *sample, rt_line_problem *problem)
{
    parser *p = self;
    const char *at = line->text, *end = at + line->length;
    const char *comment = memchr(at, '#', line->length);
    rt_cell word;
    end = comment ? comment : end;
    if (memchr(at, '\0', line->length))
        return rt_line_reject(problem, "expected text, found a zero byte");
    if (!take_label(p, &at, end, sample, problem))
        return false;
    p->line++;
    memset(p->counts, 0, p->field_count * sizeof *p->counts);
    for (uint32_t i = 0; i < p->config.dense_count; i++)
        sample->dense[i] = 0;
    while (next_word(&at, end, &word)) {
        if (!take_pair(p, word, sample, problem))
            return false;
    }
    put_keys(p, sample);
    return true;
}

static rt_status name_by(void *self, const char *id, rt_error *error)
{
    (void)self;
    if (strcmp(id, "#") == 0)
        return RT_OK;
    return rt_fail(error, RT_CONFIG,
                   "stream.id: \"%s\": lines of stream.format libsvm have no columns; expected "
                   "\"#\", the comment at their end",
                   id);
}

// The comment, without what is blank around it.
static uint64_t name(void *self, const rt_line *line)
{
    const char *end = line->text + line->length, *at = memchr(line->text, '#', line->length);
    (void)self;
    if (!at)
        return 0;
    at++;
    while (at < end && strchr(" \t", *at))
        at++;
    while (end > at && strchr(" \t\r", end[-1]))
        end--;
    if (end > at)
        return rt_hash_bytes(at, (size_t)(end - at));
    return 0;
}

const rt_parser_ops rt_parser_libsvm = {
    .create = create,
    .destroy = destroy,
    .schema = schema,
    .parse = parse,
    .name_by = name_by,
    .name = name,
};
