#include "runtime/wire/rt_fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES_MAX (1u << 16)
#define RECORD_BYTES_MAX (1u << 24)
#define DEPTH_MAX 4u

// ---- describing ------------------------------------------------------------------------------

static void describe(const rt_fields *fields, rt_bytes *text)
{
    char word[96];
    for (uint32_t i = 0; i < fields->count; i++) {
        const rt_field *one = &fields->fields[i];
        int length;
        if (one->part)
            length = snprintf(word, sizeof word, "%s%s*%" PRIu32 "{", i ? " " : "", one->name,
                              one->bytes / one->part->size);
        else
            length =
                snprintf(word, sizeof word, "%s%s:%" PRIu32, i ? " " : "", one->name, one->bytes);
        rt_assert(length > 0 && (size_t)length < sizeof word);
        rt_bytes_put(text, word, (size_t)length);
        if (one->part) {
            describe(one->part, text);
            rt_bytes_put(text, "}", 1);
        }
    }
}

void rt_fields_describe(const rt_fields *fields, rt_bytes *text)
{
    describe(fields, text);
}

// Of one struct in a file.
static uint32_t record_bytes(const rt_fields *fields)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < fields->count; i++) {
        const rt_field *one = &fields->fields[i];
        sum += one->part ? one->bytes / one->part->size * record_bytes(one->part) : one->bytes;
    }
    return sum;
}

// ---- writing ---------------------------------------------------------------------------------

// Whether the struct in memory is what a file has of it.
static bool is_plain(const rt_fields *fields)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < fields->count; i++) {
        const rt_field *one = &fields->fields[i];
        if (one->offset != at || (one->part && !is_plain(one->part)))
            return false;
        at += one->bytes;
    }
    return at == fields->size;
}

static uint8_t *gather(const rt_fields *fields, const uint8_t *from, uint8_t *to)
{
    for (uint32_t i = 0; i < fields->count; i++) {
        const rt_field *one = &fields->fields[i];
        const uint8_t *at = from + one->offset;
        if (!one->part) {
            memcpy(to, at, one->bytes);
            to += one->bytes;
            continue;
        }
        for (uint32_t done = 0; done < one->bytes; done += one->part->size)
            to = gather(one->part, at + done, to);
    }
    return to;
}

void rt_fields_begin(rt_bytes *bytes, const rt_fields *fields)
{
    rt_bytes_put_u64(bytes, RT_FIELDS_MAGIC);
    const size_t head = bytes->size;
    rt_bytes_put_u32(bytes, 0);
    rt_bytes_put_u32(bytes, record_bytes(fields));
    describe(fields, bytes);
    if (bytes->failed)
        return;
    const uint32_t text = (uint32_t)(bytes->size - head - 2 * sizeof(uint32_t));
    memcpy(bytes->data + head, &text, sizeof text);
}

void rt_fields_add(rt_bytes *bytes, const rt_fields *fields, const void *from)
{
    uint8_t *to = rt_bytes_extend(bytes, record_bytes(fields));
    if (to)
        gather(fields, from, to);
}

void rt_fields_put(rt_bytes *bytes, const rt_fields *fields, const void *from, uint64_t count)
{
    const uint32_t size = record_bytes(fields);
    rt_fields_begin(bytes, fields);
    if (is_plain(fields)) {
        rt_bytes_put(bytes, from, count * size);
        return;
    }
    uint8_t *to = rt_bytes_extend(bytes, count * size);
    for (uint64_t i = 0; to && i < count; i++)
        to = gather(fields, (const uint8_t *)from + i * fields->size, to);
}

// ---- reading ---------------------------------------------------------------------------------

// A description: what is left of it.
typedef struct {
    const char *at, *end;
} words;

typedef struct {
    const char *name;
    size_t length;
    uint32_t count, bytes; // structs of the part, 0: it is none; bytes of all of it
    words part;
} item;

static bool take_number(words *text, uint32_t *number_p)
{
    uint64_t number = 0;
    const char *begin = text->at;
    for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++) {
        number = number * 10 + (uint64_t)(*text->at - '0');
        if (number > RECORD_BYTES_MAX)
            return false;
    }
    *number_p = (uint32_t)number;
    return text->at > begin;
}

static bool take_item(words *text, uint32_t depth, item *one);

// Bytes of a struct that is described so. False: it is no description.
static bool sum_items(words text, uint32_t depth, uint32_t *bytes_p)
{
    uint64_t sum = 0;
    item one;
    while (text.at < text.end) {
        if (!take_item(&text, depth, &one))
            return false;
        sum += one.bytes;
        if (sum > RECORD_BYTES_MAX)
            return false;
    }
    *bytes_p = (uint32_t)sum;
    return true;
}

static bool take_part(words *text, uint32_t depth, item *one)
{
    uint32_t open = 1, bytes;
    if (depth == DEPTH_MAX || !take_number(text, &one->count) || text->at == text->end ||
        *text->at != '{')
        return false;
    one->part.at = ++text->at;
    for (; text->at < text->end && open > 0; text->at++)
        open = open + (*text->at == '{') - (*text->at == '}');
    one->part.end = text->at - 1;
    if (open > 0 || !sum_items(one->part, depth + 1, &bytes) ||
        (uint64_t)bytes * one->count > RECORD_BYTES_MAX)
        return false;
    one->bytes = bytes * one->count;
    return true;
}

static bool is_of_a_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool take_item(words *text, uint32_t depth, item *one)
{
    *one = (item){.name = text->at};
    while (text->at < text->end && is_of_a_name(*text->at))
        text->at++;
    one->length = (size_t)(text->at - one->name);
    if (one->length == 0 || text->at == text->end)
        return false;
    const char mark = *text->at++;
    const bool is_taken = mark == ':'   ? take_number(text, &one->bytes)
                          : mark == '*' ? take_part(text, depth, one)
                                        : false;
    if (!is_taken || (text->at < text->end && *text->at != ' '))
        return false;
    text->at += text->at < text->end;
    return true;
}

static const rt_field *find(const rt_fields *fields, const item *one)
{
    for (uint32_t i = 0; i < fields->count; i++) {
        const rt_field *field = &fields->fields[i];
        if (strlen(field->name) == one->length &&
            memcmp(field->name, one->name, one->length) == 0 && !field->part == !one->part.at)
            return field;
    }
    return NULL;
}

// One struct of a description that is sound; what stands nowhere in it is zeros.
static void scatter(const rt_fields *fields, words text, const uint8_t *from, uint8_t *to)
{
    item one;
    for (uint32_t i = 0; i < fields->count; i++)
        memset(to + fields->fields[i].offset, 0, fields->fields[i].bytes);
    for (; text.at < text.end && take_item(&text, 0, &one); from += one.bytes) {
        const rt_field *field = find(fields, &one);
        if (!field)
            continue;
        if (!field->part) {
            memcpy(to + field->offset, from, rt_min_u64(field->bytes, one.bytes));
            continue;
        }
        const uint32_t ours = field->bytes / field->part->size;
        for (uint32_t k = 0; k < one.count && k < ours; k++)
            scatter(field->part, one.part, from + k * (one.bytes / one.count),
                    to + field->offset + k * field->part->size);
    }
}

static bool read_all(rt_reader *reader, const rt_fields *fields, words text, void *to,
                     uint64_t count)
{
    uint32_t size = 0;
    const bool is_sound = sum_items(text, 0, &size);
    const uint8_t *from = NULL;
    if (is_sound && size > 0)
        from = rt_reader_take(reader, count, size);
    if (count > 0 && !from)
        reader->failed = true;
    if (reader->failed)
        return false;
    for (uint64_t i = 0; i < count; i++)
        scatter(fields, text, from + i * size, (uint8_t *)to + i * fields->size);
    return true;
}

bool rt_fields_get_as(rt_reader *reader, const rt_fields *fields, const char *text, void *to,
                      uint64_t count)
{
    return read_all(reader, fields, (words){text, text + strlen(text)}, to, count);
}

// As this build describes it: in one piece.
static bool is_ours(const rt_fields *fields, words text)
{
    rt_bytes own = {0};
    describe(fields, &own);
    const size_t size = (size_t)(text.end - text.at);
    const bool same = !own.failed && own.size == size && memcmp(own.data, text.at, size) == 0;
    rt_bytes_fini(&own);
    return same && is_plain(fields);
}

// Takes the description off the reader; false: it is none.
static bool take_head(rt_reader *reader, words *text_p, uint32_t *size_p)
{
    (void)rt_reader_u64(reader);
    const uint32_t text_bytes = rt_reader_u32(reader), size = rt_reader_u32(reader);
    const char *text = rt_reader_take(reader, text_bytes, 1);
    uint32_t described = 0;
    if (!text || text_bytes > TEXT_BYTES_MAX ||
        !sum_items((words){text, text + text_bytes}, 0, &described) || described != size) {
        reader->failed = true;
        return false;
    }
    *text_p = (words){text, text + text_bytes};
    *size_p = size;
    return true;
}

bool rt_fields_get(rt_reader *reader, const rt_fields *fields, void *to, uint64_t count)
{
    words text;
    uint32_t size;
    if (!rt_fields_are_next(reader))
        return rt_fields_get_as(reader, fields, fields->before, to, count);
    if (!take_head(reader, &text, &size))
        return false;
    if (is_ours(fields, text))
        return rt_reader_get(reader, to, count, size);
    return read_all(reader, fields, text, to, count);
}

bool rt_fields_pass(rt_reader *reader, uint32_t before)
{
    words text;
    if (rt_fields_are_next(reader) && !take_head(reader, &text, &before))
        return false;
    return rt_reader_take(reader, 1, before) != NULL;
}

bool rt_fields_are_next(const rt_reader *reader)
{
    rt_reader head = *reader;
    return rt_reader_u64(&head) == RT_FIELDS_MAGIC && !head.failed;
}
