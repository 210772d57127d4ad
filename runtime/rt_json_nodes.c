#include "runtime/rt_json_nodes.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/numbers/rt_decimal.h"

#define NUMBER_BYTES_MAX 1024u // longer ones are refused

typedef struct {
    rt_json_nodes *json;
    const char *text, *at, *end;
    char *strings; // where the next one goes
    rt_status status; // RT_NO_MEMORY, else RT_DATA if it fails
} parsing;

void rt_json_nodes_fini(rt_json_nodes *json)
{
    rt_free(json->nodes);
    rt_free(json->strings);
    *json = (rt_json_nodes){0};
}

static void skip_space(parsing *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r'))
        p->at++;
}

static bool is_next(const parsing *p, char c)
{
    return p->at < p->end && *p->at == c;
}

static bool is_digit(const parsing *p)
{
    return p->at < p->end && *p->at >= '0' && *p->at <= '9';
}

// ---- strings -----------------------------------------------------------------------------------

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    const char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// The four digits behind "\u"; UINT32_MAX: they are none.
static uint32_t take_hex(parsing *p)
{
    uint32_t value = 0;
    if (p->end - p->at < 4)
        return UINT32_MAX;
    for (uint32_t i = 0; i < 4; i++) {
        const int digit = hex_digit(*p->at++);
        if (digit < 0)
            return UINT32_MAX;
        value = value << 4 | (uint32_t)digit;
    }
    return value;
}

// As UTF-8. At most three bytes of six, or four of twelve.
static char *put_code(char *to, uint32_t code)
{
    if (code < 0x80) {
        *to++ = (char)code;
        return to;
    }
    if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
    } else {
        if (code < 0x10000) {
            *to++ = (char)(0xe0 | code >> 12);
        } else {
            *to++ = (char)(0xf0 | code >> 18);
            *to++ = (char)(0x80 | (code >> 12 & 0x3f));
        }
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
    }
    *to++ = (char)(0x80 | (code & 0x3f));
    return to;
}

// Behind "\u"; NULL: no character, or half of one.
static char *take_code(parsing *p, char *to)
{
    uint32_t code = take_hex(p);
    if (code == 0 || code == UINT32_MAX || (code >= 0xdc00 && code < 0xe000))
        return NULL;
    if (code >= 0xd800 && code < 0xdc00) {
        if (p->end - p->at < 6 || p->at[0] != '\\' || p->at[1] != 'u')
            return NULL;
        p->at += 2;
        const uint32_t low = take_hex(p);
        if (low < 0xdc00 || low >= 0xe000)
            return NULL;
        code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
    }
    return put_code(to, code);
}

// Behind a backslash.
static char *take_escape(parsing *p, char *to)
{
    static const char escapes[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (p->at == p->end)
        return NULL;
    const char c = *p->at++;
    if (c == 'u')
        return take_code(p, to);
    const char *escape = c ? strchr(escapes, c) : NULL;
    if (!escape)
        return NULL;
    *to = values[escape - escapes];
    return to + 1;
}

// From the first escape on: what came before, and the rest, go to strings.
static bool take_escaped(parsing *p, const char *begin, const char **text_p, uint32_t *length_p)
{
    char *to = p->strings;
    memcpy(to, begin, (size_t)(p->at - begin));
    to += p->at - begin;
    while (p->at < p->end && *p->at != '"' && *p->at != '\0') {
        if (*p->at != '\\') {
            *to++ = *p->at++;
            continue;
        }
        p->at++;
        to = take_escape(p, to);
        if (!to)
            return false;
    }
    *text_p = p->strings;
    *length_p = (uint32_t)(to - p->strings);
    p->strings = to;
    return is_next(p, '"');
}

// At its first quote. After an error `at` is there again.
static bool take_string(parsing *p, const char **text_p, uint32_t *length_p)
{
    const char *quote = p->at++, *begin = p->at;
    while (p->at < p->end && *p->at != '"' && *p->at != '\\' && *p->at != '\0')
        p->at++;
    bool good = is_next(p, '"');
    *text_p = begin;
    *length_p = (uint32_t)(p->at - begin);
    if (is_next(p, '\\'))
        good = take_escaped(p, begin, text_p, length_p);
    p->at = good ? p->at + 1 : quote;
    return good;
}

// ---- values ------------------------------------------------------------------------------------

static bool take_digits(parsing *p)
{
    const char *begin = p->at;
    while (is_digit(p))
        p->at++;
    return p->at > begin;
}

static bool take_number(parsing *p, rt_json_node *node)
{
    const char *begin = p->at;
    bool good;
    node->kind = RT_JSON_NUMBER;
    node->is_integer = true;
    p->at += *p->at == '-';
    if (is_next(p, '0')) {
        p->at++;
        good = !is_digit(p);
    } else {
        good = take_digits(p);
    }
    if (good && is_next(p, '.')) {
        p->at++;
        node->is_integer = false;
        good = take_digits(p);
    }
    if (good && (is_next(p, 'e') || is_next(p, 'E'))) {
        p->at++;
        node->is_integer = false;
        if (is_next(p, '+') || is_next(p, '-'))
            p->at++;
        good = take_digits(p);
    }
    node->text = begin;
    node->length = (uint32_t)(p->at - begin);
    good = good && node->length <= NUMBER_BYTES_MAX;
    p->at = good ? p->at : begin;
    return good;
}

static bool take_word(parsing *p, rt_json_node *node)
{
    static const struct {
        const char *word;
        size_t length;
        rt_json_kind kind;
    } words[] = {{"null", 4, RT_JSON_NULL}, {"false", 5, RT_JSON_FALSE}, {"true", 4, RT_JSON_TRUE}};
    for (size_t i = 0; i < RT_COUNT_OF(words); i++) {
        if ((size_t)(p->end - p->at) < words[i].length ||
            memcmp(p->at, words[i].word, words[i].length) != 0)
            continue;
        p->at += words[i].length;
        node->kind = words[i].kind;
        return true;
    }
    return false;
}

static bool take_value(parsing *p, const char *name, uint32_t name_length, uint32_t depth,
                       uint32_t *number_p);

// At its bracket. Values link to each other as they come: nodes move, numbers do not.
static bool take_values(parsing *p, uint32_t parent, bool is_object, uint32_t depth)
{
    const char close = is_object ? '}' : ']';
    uint32_t before = 0, number;
    if (depth > RT_JSON_NODES_DEPTH_MAX)
        return false;
    p->at++;
    skip_space(p);
    if (is_next(p, close)) {
        p->at++;
        return true;
    }
    for (;;) {
        const char *name = NULL;
        uint32_t name_length = 0;
        if (is_object) {
            if (!is_next(p, '"') || !take_string(p, &name, &name_length))
                return false;
            skip_space(p);
            if (!is_next(p, ':'))
                return false;
            p->at++;
            skip_space(p);
        }
        if (!take_value(p, name, name_length, depth, &number))
            return false;
        *(before ? &p->json->nodes[before].next : &p->json->nodes[parent].child) = number;
        before = number;
        skip_space(p);
        if (is_next(p, close)) {
            p->at++;
            return true;
        }
        if (!is_next(p, ','))
            return false;
        p->at++;
        skip_space(p);
    }
}

static bool take_value(parsing *p, const char *name, uint32_t name_length, uint32_t depth,
                       uint32_t *number_p)
{
    rt_json_nodes *json = p->json;
    const uint32_t number = json->count;
    if (p->at == p->end)
        return false;
    if (rt_grow(&json->nodes, &json->capacity, (uint64_t)number + 1, sizeof *json->nodes)) {
        p->status = RT_NO_MEMORY;
        return false;
    }
    json->count++;
    *number_p = number;
    rt_json_node *node = &json->nodes[number];
    *node = (rt_json_node){.name = name, .name_length = name_length};
    const char c = *p->at;
    if (c == '"') {
        node->kind = RT_JSON_STRING;
        return take_string(p, &node->text, &node->length);
    }
    if (c == '{' || c == '[') {
        node->kind = c == '{' ? RT_JSON_OBJECT : RT_JSON_ARRAY;
        return take_values(p, number, c == '{', depth + 1);
    }
    return c == '-' || is_digit(p) ? take_number(p, node) : take_word(p, node);
}

rt_status rt_json_nodes_parse(rt_json_nodes *json, const char *text, size_t size, size_t *byte_p)
{
    parsing p = {.json = json, .text = text, .at = text, .end = text + size, .status = RT_DATA};
    uint32_t whole;
    *byte_p = 0;
    json->count = 0;
    if (size > INT32_MAX)
        return RT_LIMIT;
    // An escape is no shorter than what it stands for.
    if (rt_grow(&json->strings, &json->strings_capacity, size + 1, 1))
        return RT_NO_MEMORY;
    p.strings = json->strings;
    skip_space(&p);
    const bool good = take_value(&p, NULL, 0, 0, &whole);
    if (good)
        skip_space(&p);
    *byte_p = (size_t)(p.at - text);
    return good && p.at == p.end ? RT_OK : p.status;
}

double rt_json_node_number(const rt_json_node *node)
{
    char text[NUMBER_BYTES_MAX + 1];
    double value;
    if (rt_decimal_short(node->text, node->length, &value))
        return value;
    memcpy(text, node->text, node->length);
    text[node->length] = '\0';
    return strtod(text, NULL);
}
