#define _GNU_SOURCE // memmem
#include "runtime/rt_json_read.h"

#include <stdbool.h>
#include <string.h>

// NULL: there is none. Behind an escaped backslash \u0000 is five characters.
static const char *find_zero(const char *text, size_t size)
{
    const char *end = text + size, *at = text;
    const char *zero = memchr(text, '\0', size);
    while ((at = memmem(at, (size_t)(end - at), "\\u0000", 6))) {
        const char *first = at;
        while (first > text && first[-1] == '\\')
            first--;
        const bool is_one = (at - first) % 2 == 0;
        if (is_one && zero && zero < at)
            return zero;
        if (is_one)
            return at;
        at++;
    }
    return zero;
}

cJSON *rt_json_parse(const char *text, size_t size, size_t *byte_p)
{
    const char *end = text, *last = text + size, *zero = find_zero(text, size);
    cJSON *tree = zero ? NULL : cJSON_ParseWithLengthOpts(text, size, &end, 0);
    while (tree && end < last && strchr(" \t\r\n", *end))
        end++;
    if (tree && end >= last)
        return tree;
    *byte_p = (size_t)((zero ? zero : end) - text);
    cJSON_Delete(tree);
    return NULL;
}
