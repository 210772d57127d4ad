// libFuzzer: clang-14 -fsanitize=fuzzer,address,undefined. The first byte selects delimiter, ids
// and label; every line of the rest goes to rt_table_parse, in a block of exactly the size that
// rt_line promises.
#include <math.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "runtime/stream/rt_table.h"
#include "tests/fuzz/fuzz_lines.h"

#define VALUES_MAX 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static rt_table *open_table(uint8_t choice)
{
    rt_id_kind id = choice & 2 ? RT_ID_NUMBER : RT_ID_HASH;
    rt_column columns[] = {
        {.name = "u", .kind = RT_COLUMN_CATEGORICAL, .id = id},
        {.name = "x", .kind = RT_COLUMN_DENSE, .transform = RT_TRANSFORM_LOG1P},
        {.name = "y", .kind = RT_COLUMN_LABEL, .label_value = "1"},
        {.name = "m",
         .kind = RT_COLUMN_MULTI,
         .id = id,
         .separator = '|',
         .values_max = VALUES_MAX},
        {.name = "z", .kind = RT_COLUMN_DENSE},
        {.name = "i", .kind = RT_COLUMN_IGNORE},
    };
    if (choice & 4)
        columns[2].label_rule = RT_LABEL_AT_LEAST;
    else if (choice & 8)
        strcpy(columns[2].label_value, "click");
    rt_table_config config = {.delimiter = choice & 1 ? ',' : '\t',
                              .column_count = RT_COUNT_OF(columns),
                              .columns = columns};
    rt_table *table;
    rt_error error;
    rt_assert(rt_table_create(&config, RT_COLUMNS_SAMPLES, &table, &error) == RT_OK);
    return table;
}

static void check_sample(const rt_line_sample *sample)
{
    rt_assert(sample->label == 0 || sample->label == 1);
    rt_assert(isfinite(sample->dense[0]) && sample->dense[0] >= 0 && isfinite(sample->dense[1]));
    rt_assert(sample->key_count >= 2 && sample->key_count <= 1 + VALUES_MAX);
    for (uint32_t i = 0; i < sample->key_count; i++) {
        rt_assert(rt_key_field(sample->keys[i]) == (i > 0));
        for (uint32_t k = 0; k < i; k++)
            rt_assert(sample->keys[k] != sample->keys[i]);
    }
}

static bool parse(void *table, const rt_line *line, rt_line_problem *problem)
{
    double dense[2];
    uint64_t keys[1 + VALUES_MAX];
    rt_line_sample sample = {.dense = dense, .keys = keys};
    if (!rt_table_parse(table, line, &sample, problem))
        return false;
    check_sample(&sample);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static rt_table *tables[16];
    if (size == 0)
        return 0;
    rt_table **table = &tables[data[0] % 16];
    if (!*table)
        *table = open_table(data[0] % 16);
    fuzz_lines(data + 1, size - 1, parse, *table);
    return 0;
}
