#include "runtime/stream/rt_event_id.h"

#include <string.h>

#include "runtime/rt_hash.h"

rt_status rt_event_id_init(const rt_stream_config *config, rt_event_id *id, rt_error *error)
{
    const rt_table_config *table = &config->table;
    if (config->format != RT_FORMAT_TABLE)
        return rt_fail(error, RT_CONFIG,
                       "stream.id: lines of this stream.format have no named columns");
    if (table->has_header)
        return rt_fail(error, RT_CONFIG,
                       "stream.id: needs the columns in their order (stream.table.header false)");
    for (uint32_t i = 0; i < table->column_count; i++) {
        if (strcmp(table->columns[i].name, config->id) == 0) {
            *id = (rt_event_id){i, table->delimiter};
            return RT_OK;
        }
    }
    return rt_fail(error, RT_CONFIG, "stream.id: no column of stream.table.columns has the name %s",
                   config->id);
}

// Behind the cell that begins at `at`, in quotes or not.
static const char *end_of_cell(const char *at, const char *end, char delimiter)
{
    if (at < end && *at == '"') {
        for (at++; at < end; at++) {
            if (*at != '"')
                continue;
            if (at + 1 == end || at[1] != '"')
                break;
            at++;
        }
    }
    const char *found = at < end ? memchr(at, delimiter, (size_t)(end - at)) : NULL;
    return found ? found : end;
}

uint64_t rt_event_id_find(const rt_event_id *id, const rt_line *line)
{
    const char *at = line->text, *end = at + line->length;
    for (uint32_t i = 0;; i++) {
        const char *cell_end = end_of_cell(at, end, id->delimiter);
        if (i == id->column)
            return cell_end > at ? rt_hash_bytes(at, (size_t)(cell_end - at)) : 0;
        if (cell_end == end)
            return 0;
        at = cell_end + 1;
    }
}
