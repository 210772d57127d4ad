#include "runtime/live/rt_intake_core.h"

#include <string.h>

#include "runtime/stream/rt_joined.h"
#include "runtime/stream/rt_parser.h"

struct rt_intake_reader {
    bool takes_anything;
    rt_stream_config stream; // borrows from the configuration
    const rt_parser_ops *ops;
    void *parser;
    rt_line_sample sample;
    char *header; // names of the columns as the first line of a file has them; NULL: no table
    char *line;   // copy of the one that is read, with the end and the bytes behind it
    size_t capacity;
};

// Of a table without derived columns: "hour,item,bought".
static rt_status write_header(rt_intake_reader *reader, rt_error *error)
{
    const rt_table_config *table = &reader->stream.table;
    const char delimiter[] = {table->delimiter, '\0'};
    size_t size = 1;
    for (uint32_t i = 0; i < table->column_count; i++)
        size += strlen(table->columns[i].name) + 1;
    reader->header = rt_alloc(size, 1);
    if (!reader->header)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a parser");
    for (uint32_t i = 0; i < table->column_count; i++) {
        if (table->columns[i].from_count > 0)
            continue;
        if (*reader->header)
            strcat(reader->header, delimiter);
        strcat(reader->header, table->columns[i].name);
    }
    return RT_OK;
}

static rt_status create_parser(rt_intake_reader *reader, rt_error *error)
{
    rt_schema schema;
    reader->ops = rt_parser_find(reader->stream.format);
    if (!reader->ops)
        return rt_fail(error, RT_CONFIG, "stream.format: lines of this format cannot be sent");
    rt_status status = reader->ops->create(&reader->stream, &reader->parser, error);
    if (!status && *reader->stream.id) // it may be a cell beside the others
        status = reader->ops->name_by(reader->parser, reader->stream.id, error);
    if (status)
        return status;
    reader->ops->schema(reader->parser, &schema);
    reader->sample.dense = rt_alloc(schema.dense_count + 1u, sizeof *reader->sample.dense);
    reader->sample.keys = rt_alloc(schema.keys_per_sample_max + 1u, sizeof *reader->sample.keys);
    if (!reader->sample.dense || !reader->sample.keys)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a parser");
    if (rt_format_has(reader->stream.format, RT_HAS_DELIMITER))
        return write_header(reader, error);
    return RT_OK;
}

rt_status rt_intake_reader_create(const rt_config *config, rt_flow flow,
                                  rt_intake_reader **reader_p, rt_error *error)
{
    rt_intake_reader *reader = rt_alloc(1, sizeof *reader);
    if (!reader)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a parser");
    reader->takes_anything = config->stream.take_anything;
    reader->stream = config->stream;
    if (flow == RT_FLOW_OUTCOMES)
        reader->stream = rt_joined_config(&config->stream);
    reader->stream.names = NULL; // those are of what is trained
    const rt_status status = reader->takes_anything ? RT_OK : create_parser(reader, error);
    if (status) {
        rt_intake_reader_destroy(reader);
        return status;
    }
    *reader_p = reader;
    return RT_OK;
}

void rt_intake_reader_destroy(rt_intake_reader *reader)
{
    if (!reader)
        return;
    if (reader->parser)
        reader->ops->destroy(reader->parser);
    rt_free(reader->sample.dense);
    rt_free(reader->sample.keys);
    rt_free(reader->header);
    rt_free(reader->line);
    rt_free(reader);
}

// With the line end, and the bytes that parsers may read behind it.
static bool copy_line(rt_intake_reader *reader, const char *text, size_t length)
{
    const size_t wanted = length + 1 + RT_LINE_PAD;
    if (wanted > reader->capacity) {
        rt_free(reader->line);
        reader->capacity = 2 * wanted;
        reader->line = rt_alloc(reader->capacity, 1);
        reader->capacity *= reader->line != NULL;
    }
    if (!reader->line)
        return false;
    memcpy(reader->line, text, length);
    reader->line[length] = '\n';
    return true;
}

bool rt_intake_reader_takes(rt_intake_reader *reader, const char *text, size_t length,
                            rt_line_problem *problem)
{
    if (length > RT_LINE_MAX)
        return rt_line_reject(problem, "expected a line of at most %u bytes, found more",
                              RT_LINE_MAX);
    if (reader->takes_anything)
        return true;
    if (length > 0 && text[length - 1] == '\r')
        length--;
    if (length == 0)
        return rt_line_reject(problem, "expected a sample, found an empty line");
    if (reader->header && strlen(reader->header) == length &&
        memcmp(reader->header, text, length) == 0)
        return rt_line_reject(problem, "expected a sample, found the names of the columns");
    if (!copy_line(reader, text, length)) // whoever stores it will say so
        return true;
    const rt_line line = {.text = reader->line, .length = (uint32_t)length, .number = 2};
    reader->sample.odd_labels = 0;
    return reader->ops->parse(reader->parser, &line, &reader->sample, problem);
}

bool rt_intake_reader_takes_all(rt_intake_reader *reader, const char *text, size_t size,
                                uint32_t *line_p, rt_line_problem *problem)
{
    const char *end = text + size;
    *line_p = 0;
    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        stop = stop ? stop : end;
        ++*line_p;
        if (!rt_intake_reader_takes(reader, text, (size_t)(stop - text), problem))
            return false;
        text = stop + 1;
    }
    return true;
}

const char *rt_intake_trim(const char *text, size_t *size_p)
{
    static const char mark[] = "\xef\xbb\xbf";
    size_t size = *size_p;
    if (size >= sizeof mark - 1 && memcmp(text, mark, sizeof mark - 1) == 0) {
        text += sizeof mark - 1;
        size -= sizeof mark - 1;
    }
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == '\r'))
        size--;
    *size_p = size;
    return text;
}

bool rt_intake_is_packed(const char *text, size_t size)
{
    return size >= 4 &&
           (memcmp(text, "\x1f\x8b", 2) == 0 || memcmp(text, "\x28\xb5\x2f\xfd", 4) == 0);
}
