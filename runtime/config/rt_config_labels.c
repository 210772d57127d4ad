// What the labels of a stream are: columns of its own list, or of that of its outcomes.
#include "runtime/config/rt_config.h"
#include "runtime/config/rt_sources.h"

bool rt_config_has_join(const rt_stream_config *stream)
{
    return stream->join.file_count > 0 || stream->join.source != RT_SOURCE_FILE;
}

static const rt_table_config *table_of(const rt_stream_config *stream)
{
    if (rt_config_has_join(stream))
        return &stream->join.table;
    if (rt_format_has(stream->format, RT_HAS_COLUMNS))
        return &stream->table;
    return NULL;
}

static const rt_column *column_of(const rt_stream_config *stream, uint32_t label)
{
    const rt_table_config *table = table_of(stream);
    for (uint32_t i = 0; table && i < table->column_count; i++) {
        if (table->columns[i].kind == RT_COLUMN_LABEL && label-- == 0)
            return &table->columns[i];
    }
    return NULL;
}

uint32_t rt_config_label_count(const rt_stream_config *stream)
{
    uint32_t count = 0;
    if (rt_format_is_generated(stream->format))
        return (uint32_t)rt_max_u64(stream->synthetic_labels, 1);
    while (count < RT_LABELS_MAX && column_of(stream, count))
        count++;
    return (uint32_t)rt_max_u64(count, 1);
}

const char *rt_config_label(const rt_stream_config *stream, uint32_t label)
{
    static const char *const generated[RT_LABELS_MAX] = {"label",  "label2", "label3", "label4",
                                                         "label5", "label6", "label7", "label8"};
    const rt_column *column = column_of(stream, label);
    if (column && column->name[0])
        return column->name;
    return generated[label];
}

uint32_t rt_config_class_count(const rt_stream_config *stream)
{
    const rt_column *column = column_of(stream, 0);
    if (!column)
        return 0;
    return column->classes;
}

uint32_t rt_config_output_count(const rt_stream_config *stream)
{
    const uint32_t classes = rt_config_class_count(stream);
    if (classes)
        return classes;
    return rt_config_label_count(stream);
}

double rt_config_label_weight(const rt_stream_config *stream, uint32_t label)
{
    const rt_column *column = column_of(stream, label);
    if (column && column->loss_weight > 0)
        return column->loss_weight;
    return 1;
}
