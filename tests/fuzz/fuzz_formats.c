// libFuzzer: clang-14 -fsanitize=fuzzer,address,undefined. The first byte selects the format (JSON,
// libsvm, a table with transforms and crosses) and what its columns are; every line of the rest is
// parsed, in a block of exactly the size that rt_line promises.
#include <math.h>
#include <stdlib.h>

#include "runtime/config/rt_formats.h"
#include "runtime/rt_hash.h"
#include "runtime/stream/rt_parser.h"
#include "tests/fuzz/fuzz_lines.h"

#define KINDS 12u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    const rt_parser_ops *ops;
    void *parser;
    rt_schema schema;
    double *dense;
    uint64_t *keys;
} target;

static void open_target(target *t, uint8_t choice)
{
    const rt_id_kind id = choice & 1 ? RT_ID_NUMBER : RT_ID_HASH;
    rt_column columns[] = {
        {.name = "y", .kind = RT_COLUMN_LABEL, .label_value = "1", .path = "a.0"},
        {.name = "u", .kind = RT_COLUMN_CATEGORICAL, .id = id, .missing = "7"},
        {.name = "t", .kind = RT_COLUMN_TIME, .time_format = "%Y-%m-%d"},
        {.name = "m", .kind = RT_COLUMN_MULTI, .id = id, .separator = '|', .values_max = 4},
        {.name = "x",
         .kind = RT_COLUMN_DENSE,
         .transform = RT_TRANSFORM_BUCKET,
         .edge_count = 2,
         .edges = {-1, 2.5}},
        {.name = "w", .kind = RT_COLUMN_WEIGHT},
        {.name = "i", .kind = RT_COLUMN_ID},
        {.name = "h",
         .kind = RT_COLUMN_CATEGORICAL,
         .transform = RT_TRANSFORM_HOUR,
         .time_format = "unix",
         .from_count = 1,
         .from = {"x"}},
        {.name = "c", .kind = RT_COLUMN_CATEGORICAL, .from_count = 2, .from = {"u", "h"}},
    };
    rt_stream_config config = {.table = {.delimiter = choice & 2 ? ';' : '\t',
                                         .quotes = RT_QUOTES_RFC4180,
                                         .column_count = RT_COUNT_OF(columns),
                                         .columns = columns},
                               .libsvm = {.label_at_least = 1,
                                          .index_first = choice & 1,
                                          .dense_count = 3,
                                          .field_count = 2,
                                          .fields = {5, 100},
                                          .values_max = 4}};
    static const rt_format formats[] = {RT_FORMAT_JSON, RT_FORMAT_LIBSVM, RT_FORMAT_TABLE};
    static const char *const names[] = {"a.0", "#", "i"}; // of events
    rt_error error;
    t->ops = rt_parser_find(formats[choice % KINDS / 4]);
    rt_assert(t->ops->create(&config, &t->parser, &error) == RT_OK);
    rt_assert(t->ops->name_by(t->parser, names[choice % KINDS / 4], &error) == RT_OK);
    t->ops->schema(t->parser, &t->schema);
    t->dense = calloc(t->schema.dense_count, sizeof *t->dense);
    t->keys = calloc(t->schema.keys_per_sample_max, sizeof *t->keys);
    rt_assert(t->dense && t->keys);
}

static void check_sample(const target *t, const rt_line_sample *sample)
{
    uint32_t field = 0;
    rt_assert(sample->label == 0 || sample->label == 1);
    for (uint32_t i = 0; i < t->schema.dense_count; i++)
        rt_assert(isfinite((float)sample->dense[i]));
    rt_assert(!t->schema.has_weights || (sample->weight >= 0 && sample->weight <= 1e6f));
    rt_assert(sample->key_count <= t->schema.keys_per_sample_max);
    for (uint32_t i = 0; i < sample->key_count; i++) {
        rt_assert(rt_key_field(sample->keys[i]) == field ||
                  (i > 0 && rt_key_field(sample->keys[i]) == field + 1));
        field = rt_key_field(sample->keys[i]);
        for (uint32_t k = 0; k < i; k++)
            rt_assert(sample->keys[k] != sample->keys[i]);
    }
    rt_assert(field == t->schema.field_count - 1);
}

static bool parse(void *context, const rt_line *line, rt_line_problem *problem)
{
    target *t = context;
    rt_line_sample sample = {.dense = t->dense, .keys = t->keys};
    (void)t->ops->name(t->parser, line);
    if (!t->ops->parse(t->parser, line, &sample, problem))
        return false;
    check_sample(t, &sample);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static target targets[KINDS];
    if (size == 0)
        return 0;
    target *t = &targets[data[0] % KINDS];
    if (!t->parser)
        open_target(t, data[0] % KINDS);
    fuzz_lines(data + 1, size - 1, parse, t);
    return 0;
}
