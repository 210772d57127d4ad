// JSON text as people write it: where in it something is wrong, by line and column, and what may
// have been meant.
#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_config_keys.h"

#define NESTING_MAX 16

// Where in the text something is wrong, for people: both from 1, columns in characters.
typedef struct {
    uint32_t line, column;
} position;

static position position_of(const char *text, const char *at)
{
    position where = {1, 1};
    for (; text < at; text++) {
        if (*text == '\n') {
            where.line++;
            where.column = 1;
        } else if (((unsigned char)*text & 0xc0) != 0x80) {
            where.column++;
        }
    }
    return where;
}

static rt_status fail_at(const char *text, const char *at, const char *what, rt_error *error)
{
    position where = position_of(text, at);
    return rt_fail(error, RT_CONFIG, "line %u, column %u: %s", where.line, where.column, what);
}

// What libcjson lets pass or would cut short: zero bytes, unescaped control characters, and
// nesting without need. Leaves everything else to it.
static rt_status check_text(const char *text, size_t size, rt_error *error)
{
    uint32_t depth = 0;
    bool in_string = false;
    if (!rt_json_is_utf8(text, size))
        return rt_fail(error, RT_CONFIG, "not UTF-8 text");
    for (const char *at = text, *end = text + size; at < end; at++) {
        unsigned char byte = (unsigned char)*at;
        bool is_space = byte == '\n' || byte == '\r' || byte == '\t';
        if (byte == 0 || (byte < 0x20 && (in_string || !is_space)))
            return fail_at(text, at, "a control character: this is not JSON text", error);
        if (in_string) {
            if (byte == '\\' && end - at > 5 && memcmp(at, "\\u0000", 6) == 0)
                return fail_at(text, at, "strings cannot hold zero bytes", error);
            if (byte == '\\')
                at++; // whatever is escaped does not end the string
            else if (byte == '"')
                in_string = false;
        } else if (byte == '"') {
            in_string = true;
        } else if (byte == '{' || byte == '[') {
            if (++depth > NESTING_MAX)
                return fail_at(text, at, "nested too deeply", error);
        } else if ((byte == '}' || byte == ']') && depth > 0) {
            depth--;
        }
    }
    return RT_OK;
}

// The comma in "1,}" or "[1, ]", if that is what ends JSON here; else NULL. libcjson stops at the
// closing bracket that it did not expect, or behind it.
static const char *find_last_comma(const char *text, const char *end)
{
    bool closes = *end == '}' || *end == ']';
    for (; end > text && strchr(" \t\r\n}]", end[-1]); end--)
        closes = closes || end[-1] == '}' || end[-1] == ']';
    if (closes && end > text && end[-1] == ',')
        return end - 1;
    return NULL;
}

static const char *skip_back(const char *text, const char *at)
{
    while (at > text && strchr(" \t\r\n", at[-1]))
        at--;
    return at;
}

// The rest of the line is shown.
static rt_status fail_near(const char *text, const char *end, rt_error *error)
{
    char what[128], line[RT_CONFIG_SHOWN_MAX], shown[RT_CONFIG_SHOWN_MAX];
    const char *at = skip_back(text, end);
    if (at == end && at > text && !strchr("{[,:\"", at[-1])) { // behind what should be a name?
        const char *before = skip_back(text, end - 1);
        if (before > text && strchr("{,", before[-1]))
            end--;
    }
    const bool follows = *end == '"' && at > text && !strchr("{[,:", at[-1]);
    snprintf(line, sizeof line, "%.*s", (int)strcspn(end, "\r\n"), end);
    const char *hint = follows ? " (is a comma missing?)" : "";
    snprintf(what, sizeof what, "not JSON from here on%s: %s", hint,
             rt_config_show_text(line, shown));
    return fail_at(text, end, what, error);
}

rt_status rt_config_parse(const char *text, size_t size, cJSON **tree_p, rt_error *error)
{
    const char *end = text;
    rt_status status = check_text(text, size, error);
    if (status)
        return status;
    cJSON *tree = cJSON_ParseWithLengthOpts(text, size + 1, &end, true);
    if (tree) {
        *tree_p = tree;
        return RT_OK;
    }
    if (end < text || end > text + size)
        end = text + size;
    const char *comma = find_last_comma(text, end);
    if (comma)
        return fail_at(text, comma, "JSON allows no comma before a closing bracket", error);
    if (end == text + size)
        return fail_at(text, end, "the text ends in the middle of a JSON value", error);
    return fail_near(text, end, error);
}
