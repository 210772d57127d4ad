#include "runtime/page/rt_page.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/rt_json.h"

void rt_page_fini(rt_page *page)
{
    rt_free(page->text);
    *page = (rt_page){0};
}

static char *room(rt_page *page, size_t bytes)
{
    if (page->failed || bytes > UINT32_MAX / 2 ||
        rt_grow(&page->text, &page->capacity, (uint64_t)page->size + bytes + 1, 1)) {
        page->failed = true;
        return NULL;
    }
    return page->text + page->size;
}

void rt_page_add(rt_page *page, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    char *at = room(page, (size_t)length);
    if (!at)
        return;
    va_start(arguments, format);
    vsnprintf(at, (size_t)length + 1, format, arguments);
    va_end(arguments);
    page->size += (uint32_t)length;
}

// Bytes of the UTF-8 character at the start of text that XML allows; 0: none is there.
static size_t character(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] < 0x80)
        return at[0] >= 0x20 && at[0] != 0x7f;
    const size_t length = (size_t)2 + (at[0] >= 0xe0) + (at[0] >= 0xf0);
    if (strnlen(text, length) < length || !rt_json_is_utf8(text, length))
        return 0;
    if (at[0] == 0xef && at[1] == 0xbf && at[2] >= 0xbe) // U+FFFE, U+FFFF
        return 0;
    return length;
}

void rt_page_text(rt_page *page, const char *text)
{
    while (*text) {
        const size_t length = character(text);
        switch (*text) {
        case '&':
            rt_page_add(page, "&amp;");
            break;
        case '<':
            rt_page_add(page, "&lt;");
            break;
        case '>':
            rt_page_add(page, "&gt;");
            break;
        case '"':
            rt_page_add(page, "&quot;");
            break;
        case '\'':
            rt_page_add(page, "&#39;");
            break;
        default:
            if (length)
                rt_page_add(page, "%.*s", (int)length, text);
            else
                rt_page_add(page, "\xef\xbf\xbd");
        }
        text += rt_max_u64(length, 1);
    }
}

const char *rt_page_number(double value, char text[32])
{
    static const struct {
        double unit;
        const char *name;
    } units[] = {{1e9, "G"}, {1e6, "M"}, {1e4, "k"}};
    const double size = fabs(value);
    if (!isfinite(value))
        return strcpy(text, "-");
    for (size_t i = 0; i < RT_COUNT_OF(units); i++) {
        const double unit = i == 2 ? 1e3 : units[i].unit;
        if (size >= units[i].unit) {
            snprintf(text, 32, "%.4g%s", value / unit, units[i].name);
            return text;
        }
    }
    const char *format = size >= 1 || value == 0 ? "%.4g" : "%.3g";
    if (size >= 1000)
        format = "%.0f";
    snprintf(text, 32, format, value);
    return text;
}

const char *rt_page_age(double seconds, char text[32])
{
    if (!isfinite(seconds))
        return strcpy(text, "-");
    if (seconds < 120)
        snprintf(text, 32, "%.0f s", seconds);
    else if (seconds < 7200)
        snprintf(text, 32, "%.0f min", seconds / 60);
    else
        snprintf(text, 32, "%.1f h", seconds / 3600);
    return text;
}
