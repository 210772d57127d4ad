#include "runtime/rt_json.h"
#include "runtime/files/rt_own.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/rt_locale.h"

void rt_json_init(rt_json *json, uint32_t indent)
{
    *json = (rt_json){.indent = indent};
}

void rt_json_fini(rt_json *json)
{
    rt_free(json->text);
    *json = (rt_json){0};
}

void rt_json_clear(rt_json *json)
{
    json->size = 0;
    json->depth = 0;
    json->failed = false;
}

static void append(rt_json *json, const char *bytes, size_t size)
{
    if (json->failed)
        return;
    uint64_t wanted = (uint64_t)json->size + size + 1;
    if (rt_grow(&json->text, &json->capacity, wanted, 1)) {
        json->failed = true;
        return;
    }
    memcpy(json->text + json->size, bytes, size);
    json->size += (uint32_t)size;
    json->text[json->size] = '\0';
}

static void append_text(rt_json *json, const char *text)
{
    append(json, text, strlen(text));
}

static void append_line_break(rt_json *json)
{
    static const char spaces[] = "                                ";
    if (!json->indent)
        return;
    append(json, "\n", 1);
    for (uint32_t i = 0; i < json->depth; i++)
        append(json, spaces, rt_min_u64(json->indent, sizeof spaces - 1));
}

// Length of the UTF-8 sequence at text, 0 where it is none (RFC 3629, section 4).
static size_t utf8_length(const unsigned char *text)
{
    unsigned lead = text[0], low = 0x80, high = 0xbf;
    const size_t length = (size_t)2 + (lead >= 0xe0) + (lead >= 0xf0);
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    if (lead == 0xe0)
        low = 0xa0;
    if (lead == 0xed)
        high = 0x9f; // no surrogates
    if (lead == 0xf0)
        low = 0x90;
    if (lead == 0xf4)
        high = 0x8f;
    if (text[1] < low || text[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if (text[i] < 0x80 || text[i] > 0xbf)
            return 0;
    }
    return length;
}

bool rt_json_is_utf8(const char *text, size_t size)
{
    const unsigned char *next = (const unsigned char *)text, *end = next + size;
    while (next < end) {
        size_t length = utf8_length(next);
        if (length == 0 || length > (size_t)(end - next))
            return false;
        next += length;
    }
    return true;
}

static void append_quoted(rt_json *json, const char *text)
{
    append(json, "\"", 1);
    for (const unsigned char *next = (const unsigned char *)text; *next;) {
        size_t length = utf8_length(next);
        char escape[8];
        if (length == 0) {
            append_text(json, "\\ufffd");
            next++;
            continue;
        }
        if (*next == '"' || *next == '\\') {
            append(json, (char[]){'\\', (char)*next}, 2);
        } else if (*next < 0x20 || *next == 0x7f) {
            snprintf(escape, sizeof escape, "\\u%04x", *next);
            append_text(json, escape);
        } else {
            append(json, (const char *)next, length);
        }
        next += length;
    }
    append(json, "\"", 1);
}

// Everything that stands before a value: comma, line break, key.
static void begin_value(rt_json *json, const char *key)
{
    if (json->depth == 0) {
        rt_assert(!key && json->size == 0);
        return;
    }
    uint32_t level = json->depth - 1;
    rt_assert(json->is_array[level] == !key);
    if (json->has_members[level])
        append(json, ",", 1);
    json->has_members[level] = true;
    append_line_break(json);
    if (key) {
        append_quoted(json, key);
        append_text(json, json->indent ? ": " : ":");
    }
}

static void open_level(rt_json *json, const char *key, bool is_array)
{
    rt_assert(json->depth < RT_JSON_DEPTH_MAX);
    begin_value(json, key);
    append_text(json, is_array ? "[" : "{");
    json->is_array[json->depth] = is_array;
    json->has_members[json->depth] = false;
    json->depth++;
}

static void close_level(rt_json *json, bool is_array)
{
    rt_assert(json->depth > 0 && json->is_array[json->depth - 1] == is_array);
    json->depth--;
    if (json->has_members[json->depth])
        append_line_break(json);
    append_text(json, is_array ? "]" : "}");
}

void rt_json_begin_object(rt_json *json, const char *key)
{
    open_level(json, key, false);
}

void rt_json_end_object(rt_json *json)
{
    close_level(json, false);
}

void rt_json_begin_array(rt_json *json, const char *key)
{
    open_level(json, key, true);
}

void rt_json_end_array(rt_json *json)
{
    close_level(json, true);
}

void rt_json_string(rt_json *json, const char *key, const char *text)
{
    begin_value(json, key);
    append_quoted(json, text);
}

void rt_json_bool(rt_json *json, const char *key, bool value)
{
    begin_value(json, key);
    append_text(json, value ? "true" : "false");
}

// The digits of a number, before end, with their zero; returns where they begin. A tenth of what
// printf takes, which matters for the numbers of an answer.
static char *put_digits(uint64_t number, char *end)
{
    *--end = '\0';
    do
        *--end = (char)('0' + number % 10);
    while (number /= 10);
    return end;
}

const char *rt_json_format_i64(int64_t value, char text[32])
{
    const uint64_t size = value < 0 ? -(uint64_t)value : (uint64_t)value;
    char *digits = put_digits(size, text + 32);
    if (value < 0)
        *--digits = '-';
    return digits;
}

void rt_json_u64(rt_json *json, const char *key, uint64_t value)
{
    char text[32];
    begin_value(json, key);
    append_text(json, put_digits(value, text + sizeof text));
}

void rt_json_double(rt_json *json, const char *key, double value)
{
    char text[32];
    begin_value(json, key);
    if (isfinite(value))
        append_text(json, rt_json_format_double(value, text));
    else
        append_text(json, "null");
}

void rt_json_float(rt_json *json, const char *key, float value)
{
    char text[32];
    begin_value(json, key);
    if (isfinite(value))
        append_text(json, rt_json_format_float(value, text));
    else
        append_text(json, "null");
}

void rt_json_doubles(rt_json *json, const char *key, const double *values, uint32_t count)
{
    rt_json_begin_array(json, key);
    for (uint32_t i = 0; i < count; i++)
        rt_json_double(json, NULL, values[i]);
    rt_json_end_array(json);
}

void rt_json_u64s(rt_json *json, const char *key, const uint64_t *values, uint32_t count)
{
    rt_json_begin_array(json, key);
    for (uint32_t i = 0; i < count; i++)
        rt_json_u64(json, NULL, values[i]);
    rt_json_end_array(json);
}

const char *rt_json_text(const rt_json *json, size_t *size_p)
{
    if (json->failed)
        return NULL;
    if (size_p)
        *size_p = json->size;
    if (!json->text)
        return "";
    return json->text;
}

const char *rt_json_format_double(double value, char text[32])
{
    for (int digits = 15; digits <= 17; digits++) {
        const char *end;
        snprintf(text, 32, "%.*g", digits, value);
        if (rt_locale_number(text, &end) == value)
            break;
    }
    return text;
}

// Of 0.0001 to 1, where probabilities are: the same digits, twenty times as fast. The number that
// is read back is the nearest of a quotient of two whole numbers, as a reader's is; where that lies
// half way between two floats nobody is asked to agree: false.
static bool format_fraction(float value, char text[32])
{
    static const double powers[] = {1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12};
    if (!(value >= 1e-4f && value < 1))
        return false;
    const uint32_t zeros = (value < 0.1f) + (value < 0.01f) + (value < 0.001f);
    for (uint32_t more = 0; more < 4; more++) {
        const double power = powers[zeros + more];
        uint64_t number = (uint64_t)((double)value * power + 0.5), bits;
        const double back = (double)number / power;
        memcpy(&bits, &back, sizeof bits);
        if ((float)back != value || (bits & 0x1fffffff) == 0x10000000)
            continue;
        uint32_t digits = 6 + zeros + more;
        for (; number % 10 == 0; number /= 10)
            digits--;
        memcpy(text, "0.", 2);
        text[2 + digits] = '\0';
        for (; digits > 0; number /= 10)
            text[1 + digits--] = (char)('0' + number % 10);
        return true;
    }
    return false;
}

const char *rt_json_format_float(float value, char text[32])
{
    if (format_fraction(value, text))
        return text;
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, 32, "%.*g", digits, (double)value);
        if (rt_locale_float(text) == value)
            break;
    }
    return text;
}

rt_status rt_json_save(const rt_json *json, const char *path, rt_error *error)
{
    char beside[4096];
    size_t size;
    const char *text = rt_json_text(json, &size);
    if (!text)
        return rt_fail(error, RT_NO_MEMORY, "%s: out of memory while writing JSON", path);
    int length = snprintf(beside, sizeof beside, "%s.new", path);
    if (length < 0 || (size_t)length >= sizeof beside)
        return rt_fail(error, RT_IO, "%.200s...: the path is too long", path);
    int descriptor;
    const rt_status status = rt_own_create(beside, 0666, &descriptor, error);
    if (status)
        return status;
    FILE *file = fdopen(descriptor, "w");
    if (!file) {
        close(descriptor);
        return rt_fail(error, RT_NO_MEMORY, "%s: out of memory", beside);
    }
    bool written = fwrite(text, 1, size, file) == size && fputc('\n', file) != EOF;
    written = fflush(file) == 0 && written;
    written = written && fsync(fileno(file)) == 0;
    int cause = errno;
    fclose(file);
    if (written && rename(beside, path) == 0)
        return RT_OK;
    if (written)
        cause = errno;
    unlink(beside);
    return rt_fail(error, RT_IO, "%s: cannot be written: %s", path, strerror(cause));
}
