#include "runtime/stream/rt_parser.h"

#include <inttypes.h>
#include <stdio.h>

#include "runtime/config/rt_formats.h"
#include "runtime/stream/rt_synthetic.h"

#define XX(kind, number, name, traits, help) extern const rt_parser_ops rt_parser_##name;
RT_FORMAT_MAP(XX, RT_CHOICE_NONE)
#undef XX

const rt_parser_ops *rt_parser_find(rt_format format)
{
#define XX(kind, number, name, traits, help) [number] = &rt_parser_##name,
    static const rt_parser_ops *const parsers[] = { RT_FORMAT_MAP(XX, RT_CHOICE_NONE) };
#undef XX
    if ((size_t)format >= RT_COUNT_OF(parsers))
        return NULL;
    return parsers[format];
}

void rt_schema_output_name(const rt_schema *schema, uint32_t output, char name[RT_NAME_MAX])
{
    if (schema->class_count)
        snprintf(name, RT_NAME_MAX, "%" PRIu32, output);
    else
        snprintf(name, RT_NAME_MAX, "%s", schema->label_names[output]);
}

void rt_parser_dense_name(const rt_stream_config *config, uint32_t feature, char name[RT_NAME_MAX])
{
    const rt_table_config *table = &config->table;
    snprintf(name, RT_NAME_MAX, "I%" PRIu32, feature + 1);
    if (config->format == RT_FORMAT_LIBSVM)
        snprintf(name, RT_NAME_MAX, "index %" PRIu64, config->libsvm.index_first + feature);
    if (!rt_format_has(config->format, RT_HAS_COLUMNS))
        return;
    for (uint32_t i = 0, dense = 0; i < table->column_count; i++)
        if (table->columns[i].kind == RT_COLUMN_DENSE && dense++ == feature &&
            table->columns[i].name[0])
            snprintf(name, RT_NAME_MAX, "%s", table->columns[i].name);
}

rt_status rt_parser_complete(const rt_stream_config *config, rt_schema *schema, rt_error *error)
{
    schema->label_count = rt_config_label_count(config);
    schema->class_count = rt_config_class_count(config);
    schema->output_count = rt_config_output_count(config);
    for (uint32_t l = 0; l < schema->label_count; l++)
        snprintf(schema->label_names[l], RT_NAME_MAX, "%s", rt_config_label(config, l));
    if (config->holds_outcomes) // they have no fields
        return RT_OK;
    return rt_tables_find(config, schema->field_names, schema->field_count, &schema->tables, error);
}

// Questions have none, and lines of columns no cell of it then; of other formats a line has so many
// cells, whatever is made of them.
static bool has_names(const rt_stream_config *config)
{
    const bool is_question =
        config->labels_optional && rt_format_has(config->format, RT_HAS_COLUMNS);
    return *config->id && !is_question;
}

rt_status rt_parser_open(const rt_stream_config *config, const rt_parser_ops **ops_p,
                         void **parser_p, rt_error *error)
{
    const rt_parser_ops *ops = rt_parser_find(config->format);
    void *parser;
    if (!ops)
        return rt_fail(error, RT_CONFIG, "stream.format: unknown value %d", (int)config->format);
    rt_status status = ops->create(config, &parser, error);
    if (status)
        return status;
    if (has_names(config))
        status = ops->name_by(parser, config->id, error);
    if (status) {
        ops->destroy(parser);
        return status;
    }
    *ops_p = ops;
    *parser_p = parser;
    return RT_OK;
}

static rt_status parsed_schema(const rt_parser_ops *ops, const rt_stream_config *config,
                               rt_schema *schema, rt_error *error)
{
    void *parser;
    rt_status status = ops->create(config, &parser, error);
    if (status)
        return status;
    ops->schema(parser, schema);
    ops->destroy(parser);
    return RT_OK;
}

static rt_status generated_schema(const rt_stream_config *config, uint64_t seed, rt_schema *schema,
                                  rt_error *error)
{
    rt_synthetic *synthetic;
    rt_status status = rt_synthetic_create(config, seed, &synthetic, error);
    if (status)
        return status;
    rt_synthetic_schema(synthetic, schema);
    rt_synthetic_destroy(synthetic);
    return RT_OK;
}

rt_status rt_parser_read_schema(const rt_stream_config *config, uint64_t seed, rt_schema *schema,
                                rt_error *error)
{
    const rt_parser_ops *ops = rt_parser_find(config->format);
    rt_status status = RT_OK;
    if (rt_format_is_generated(config->format))
        status = generated_schema(config, seed, schema, error);
    else if (ops)
        status = parsed_schema(ops, config, schema, error);
    else
        status = rt_fail(error, RT_CONFIG, "stream.format: unknown value %d", (int)config->format);
    if (status)
        return status;
    return rt_parser_complete(config, schema, error);
}
