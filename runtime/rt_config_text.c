#include <stdio.h>
#include <string.h>

#include "runtime/rt_config_keys.h"

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

rt_status rt_config_parse(const char *text, size_t size, cJSON **tree_p, rt_error *error)
{
    const char *end = text;
    rt_status status = check_text(text, size, error);
    if (status != RT_OK)
        return status;
    cJSON *tree = cJSON_ParseWithLengthOpts(text, size + 1, &end, true);
    if (tree) {
        *tree_p = tree;
        return RT_OK;
    }
    if (end < text || end >= text + size)
        return fail_at(text, text + size, "the text ends in the middle of a JSON value", error);
    char what[96], shown[RT_CONFIG_SHOWN_MAX];
    snprintf(what, sizeof what, "not JSON from here on: %s", rt_config_show_text(end, shown));
    return fail_at(text, end, what, error);
}
