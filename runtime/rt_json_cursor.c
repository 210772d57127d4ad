#include "runtime/rt_json_cursor.h"

#include <string.h>

void rt_json_cursor_init(rt_json_cursor *c, char *text, size_t size)
{
    *c = (rt_json_cursor){.begin = text, .at = text, .end = text + size};
}

static bool fail(rt_json_cursor *c)
{
    c->failed = true;
    return false;
}

static bool is_space(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

// The next byte that is no space; 0: there is none.
static char next_byte(rt_json_cursor *c)
{
    while (c->at < c->end && is_space(*c->at))
        c->at++;
    return c->at < c->end && !c->failed ? *c->at : '\0';
}

rt_json_kind rt_json_peek(rt_json_cursor *c)
{
    const char byte = next_byte(c);
    switch (byte) {
    case '{':
        return RT_JSON_OBJECT;
    case '[':
        return RT_JSON_ARRAY;
    case '"':
        return RT_JSON_STRING;
    case 't':
        return RT_JSON_TRUE;
    case 'f':
        return RT_JSON_FALSE;
    case 'n':
        return RT_JSON_NULL;
    default:
        return byte == '-' || (byte >= '0' && byte <= '9') ? RT_JSON_NUMBER : RT_JSON_NOTHING;
    }
}

// ---- objects and arrays ------------------------------------------------------------------------

bool rt_json_enter(rt_json_cursor *c)
{
    const char byte = next_byte(c);
    if ((byte != '{' && byte != '[') || c->depth == RT_JSON_LEVELS_MAX)
        return fail(c);
    c->arrays &= ~(UINT32_C(1) << c->depth);
    c->arrays |= (uint32_t)(byte == '[') << c->depth;
    c->depth++;
    c->is_fresh = true;
    c->at++;
    return true;
}

bool rt_json_each(rt_json_cursor *c)
{
    rt_assert(c->depth > 0);
    const bool is_array = c->arrays >> (c->depth - 1) & 1, was_fresh = c->is_fresh;
    const char byte = next_byte(c);
    c->is_fresh = false;
    if (c->failed)
        return false;
    if (byte == (is_array ? ']' : '}')) {
        c->depth--;
        c->at++;
        return false;
    }
    if (was_fresh)
        return true;
    if (byte != ',')
        return fail(c);
    c->at++;
    return true;
}

bool rt_json_name(rt_json_cursor *c, rt_json_slice *name)
{
    if (rt_json_peek(c) != RT_JSON_STRING)
        return fail(c);
    if (!rt_json_take(c, name))
        return false;
    if (next_byte(c) != ':')
        return fail(c);
    c->at++;
    return true;
}

// ---- strings -----------------------------------------------------------------------------------

static bool read_hex(const char *at, const char *end, uint32_t *code_p)
{
    uint32_t code = 0;
    if (end - at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        const char byte = at[i], low = (char)(byte | 0x20);
        const bool is_digit = byte >= '0' && byte <= '9';
        if (!is_digit && (low < 'a' || low > 'f'))
            return false;
        code = code << 4 | (uint32_t)(is_digit ? byte - '0' : low - 'a' + 10);
    }
    *code_p = code;
    return true;
}

static char *put_utf8(char *to, uint32_t code)
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

// Behind "\u"; two of them where one is the first half of a pair.
static const char *decode_unicode(const char *at, const char *end, char **to)
{
    uint32_t code, second;
    if (!read_hex(at, end, &code) || code == 0 || (code >= 0xdc00 && code < 0xe000))
        return NULL;
    at += 4;
    if (code >= 0xd800 && code < 0xdc00) {
        if (end - at < 6 || at[0] != '\\' || at[1] != 'u' || !read_hex(at + 2, end, &second) ||
            second < 0xdc00 || second > 0xdfff)
            return NULL;
        code = 0x10000 + ((code - 0xd800) << 10) + (second - 0xdc00);
        at += 6;
    }
    *to = put_utf8(*to, code);
    return at;
}

// Behind the backslash. NULL: it is none that there is.
static const char *decode_escape(const char *at, const char *end, char **to)
{
    static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    if (at == end)
        return NULL;
    if (*at == 'u')
        return decode_unicode(at + 1, end, to);
    const char *name = *at ? strchr(names, *at) : NULL;
    if (!name)
        return NULL;
    *(*to)++ = bytes[name - names];
    return at + 1;
}

static bool take_string(rt_json_cursor *c, rt_json_slice *text)
{
    const char *at = c->at + 1;
    while (at < c->end && *at != '"' && *at != '\\' && *at != '\0')
        at++;
    *text = (rt_json_slice){c->at + 1, (size_t)(at - c->at) - 1};
    char *to = c->at + 1 + text->length;
    while (at < c->end && *at != '"') {
        if (*at == '\0')
            return fail(c);
        if (*at == '\\')
            at = decode_escape(at + 1, c->end, &to);
        else
            *to++ = *at++;
        if (!at)
            return fail(c);
    }
    if (at == c->end)
        return fail(c);
    text->length = (size_t)(to - text->text);
    c->at += at + 1 - c->at;
    return true;
}

// The same without decoding: what is behind a backslash is looked at when it is taken.
static bool skip_string(rt_json_cursor *c)
{
    char *at = c->at + 1;
    while (at < c->end && *at != '"')
        at += *at == '\\' ? 2 : 1;
    if (at >= c->end)
        return fail(c);
    c->at = at + 1;
    return true;
}

// ---- numbers and words -------------------------------------------------------------------------

static char *skip_digits(char *at, const char *end)
{
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

static bool take_number(rt_json_cursor *c, rt_json_slice *text)
{
    char *at = c->at + (*c->at == '-'), *digits = at;
    at = skip_digits(at, c->end);
    if (at == digits || (*digits == '0' && at - digits > 1))
        return fail(c);
    if (at < c->end && *at == '.') {
        digits = at + 1;
        at = skip_digits(digits, c->end);
        if (at == digits)
            return fail(c);
    }
    if (at < c->end && (*at == 'e' || *at == 'E')) {
        at++;
        at += at < c->end && (*at == '+' || *at == '-');
        digits = at;
        at = skip_digits(digits, c->end);
        if (at == digits)
            return fail(c);
    }
    *text = (rt_json_slice){c->at, (size_t)(at - c->at)};
    c->at = at;
    return true;
}

static bool take_word(rt_json_cursor *c, const char *word, rt_json_slice *text)
{
    const size_t length = strlen(word);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0)
        return fail(c);
    *text = (rt_json_slice){c->at, length};
    c->at += length;
    return true;
}

bool rt_json_take(rt_json_cursor *c, rt_json_slice *text)
{
    switch (rt_json_peek(c)) {
    case RT_JSON_STRING:
        return take_string(c, text);
    case RT_JSON_NUMBER:
        return take_number(c, text);
    case RT_JSON_TRUE:
        return take_word(c, "true", text);
    case RT_JSON_FALSE:
        return take_word(c, "false", text);
    case RT_JSON_NULL:
        return take_word(c, "null", text);
    default:
        return fail(c);
    }
}

bool rt_json_skip(rt_json_cursor *c)
{
    const uint32_t outside = c->depth;
    rt_json_slice text;
    do {
        const rt_json_kind kind = rt_json_peek(c);
        if (kind == RT_JSON_OBJECT || kind == RT_JSON_ARRAY)
            (void)rt_json_enter(c);
        else if (kind == RT_JSON_STRING)
            (void)skip_string(c);
        else
            (void)rt_json_take(c, &text);
        while (c->depth > outside && !c->failed && !rt_json_each(c)) {
            // it was the last one of its level
        }
        if (!c->failed && c->depth > outside && !(c->arrays >> (c->depth - 1) & 1)) {
            // a member: its name is passed over, too
            if (rt_json_peek(c) != RT_JSON_STRING || !skip_string(c) || next_byte(c) != ':')
                return fail(c);
            c->at++;
        }
    } while (c->depth > outside && !c->failed);
    return !c->failed;
}

bool rt_json_ends(rt_json_cursor *c)
{
    return !c->failed && next_byte(c) == '\0' && c->at == c->end;
}
