// libFuzzer: clang-14 -fsanitize=fuzzer,address,undefined. The first byte selects whose columns are
// asked for (a table's, JSON's) and whether the rest is the bytes of a binary question, or makes
// one of JSON: libcjson is not instrumented, so nothing would lead to them. What is taken is
// samples of the schema; what is refused leaves the batch as it was, and says why.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge_worker/serve/ew_question.h"
#include "runtime/rt_hash.h"
#include "runtime/stream/rt_parser.h"

#define KINDS 2u
#define MOST 3u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    rt_config config;
    rt_schema schema;
    ew_cells *cells;
    ew_questions *questions;
    rt_batch batch;
} target;

static void open_target(target *t, uint32_t kind)
{
    static const char *const sets[][2] = {{"stream.format=table", "stream.table.delimiter=\"|\""},
                                          {"stream.format=json", "stream.table.header=false"}};
    static const char columns[] =
        "stream.table.columns=[{\"name\": \"y\", \"kind\": \"label\"},"
        "{\"name\": \"x\", \"kind\": \"dense\"}, {\"name\": \"u\", \"kind\": \"categorical\"},"
        "{\"name\": \"m\", \"kind\": \"multi\", \"separator\": \";\", \"values_max\": 4}]";
    rt_error error;
    rt_assert(rt_config_init(&t->config) == RT_OK);
    rt_assert(rt_config_set(&t->config, sets[kind][0], &error) == RT_OK);
    rt_assert(rt_config_set(&t->config, sets[kind][1], &error) == RT_OK);
    rt_assert(rt_config_set(&t->config, columns, &error) == RT_OK);
    rt_assert(ew_cells_create(&t->config, &t->cells, &error) == RT_OK);
    rt_assert(rt_parser_read_schema(&t->config.stream, 1, &t->schema, &error) == RT_OK);
    rt_assert(ew_questions_create(t->cells, &t->schema, &t->questions) == RT_OK);
    rt_batch_init(&t->batch, t->schema.dense_count);
}

static void check_batch(const target *t, const ew_question *question)
{
    const rt_batch *batch = &t->batch;
    rt_assert(question->count == batch->sample_count && question->count <= MOST);
    for (uint32_t i = 0; i < batch->key_count; i++)
        rt_assert(rt_key_field(batch->keys[i]) < t->schema.field_count);
    for (uint32_t i = 0; i < batch->sample_count * t->schema.dense_count && !question->is_binary;
         i++)
        rt_assert(isfinite(batch->dense[i]));
}

// What chooses: one byte after the other, zeros at its end.
typedef struct {
    const uint8_t *at, *end;
} choices;

static uint32_t choose(choices *c, uint32_t count)
{
    return c->at < c->end ? *c->at++ % count : 0;
}

static void put(rt_bytes *body, const char *text)
{
    rt_bytes_put(body, text, strlen(text));
}

static void put_value(rt_bytes *body, choices *c)
{
    static const char *const values[] = {"7",         "-1.5e3", "1e17", "true",          "null",
                                         "\"a\"",     "\"\"",   "{}",   "\"\\u00e9;|\"", "[",
                                         "[1, \"2\"", "\""};
    const char *value = values[choose(c, RT_COUNT_OF(values))];
    put(body, value);
    if (value[0] == '[')
        put(body, "]");
    for (uint32_t left = strcmp(value, "\"") == 0 ? choose(c, 40) + 1 : 0; left > 0; left--) {
        const char byte = (char)choose(c, 256);
        rt_bytes_put(body, left > 1 ? &byte : "\"", 1);
    }
}

static void put_members(rt_bytes *body, choices *c)
{
    static const char *const names[] = {"\"u\": ", "\"x\": ", "\"m\": ", "\"y\": "};
    put(body, "{");
    for (uint32_t left = choose(c, 4); left > 0; left--) {
        put(body, names[choose(c, RT_COUNT_OF(names))]);
        put_value(body, c);
        put(body, left > 1 ? ", " : "");
    }
    put(body, "}");
}

// A question, in which one byte may be another.
static void put_json(rt_bytes *body, const uint8_t *data, size_t size)
{
    choices c = {data, data + size};
    const uint32_t other = choose(&c, 256), place = choose(&c, 256);
    put(body, "{");
    for (uint32_t part = choose(&c, 4); part > 0; part = choose(&c, 4)) {
        put(body, part == 1 ? "\"id\": " : part == 2 ? "\"context\": " : "\"candidates\": [], ");
        if (part == 1)
            put_value(body, &c);
        else if (part == 2)
            put_members(body, &c);
        put(body, part < 3 ? ", " : "");
    }
    put(body, "\"candidates\": [");
    for (uint32_t left = choose(&c, MOST + 2); left > 0; left--) {
        put_members(body, &c);
        put(body, left > 1 ? ", " : "");
    }
    put(body, "]}");
    if (other >= 0x80 && place < body->size)
        body->data[place] = (uint8_t)(other & 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static target targets[KINDS];
    rt_bytes bytes = {0};
    rt_error error = {0};
    ew_question question;
    if (size == 0)
        return 0;
    target *t = &targets[data[0] / 2 % KINDS];
    const bool is_binary = data[0] & 1;
    if (!t->cells)
        open_target(t, data[0] / 2 % KINDS);
    if (is_binary)
        rt_bytes_put(&bytes, data + 1, size - 1);
    else
        put_json(&bytes, data + 1, size - 1);
    char *body = calloc(bytes.size + 1, 1); // no larger than what it holds
    rt_assert(body && !bytes.failed);
    if (bytes.size > 0)
        memcpy(body, bytes.data, bytes.size);
    rt_batch_clear(&t->batch);
    if (ew_question_take(t->questions, body, bytes.size, is_binary, MOST, &t->batch, &question,
                         &error))
        rt_assert(t->batch.sample_count == 0 && t->batch.key_count == 0 && error.text[0]);
    else
        check_batch(t, &question);
    free(body);
    rt_bytes_fini(&bytes);
    return 0;
}
