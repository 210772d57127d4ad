#define _GNU_SOURCE // memmem
#include "tests/support/fields_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

#define HEAD_BYTES 16u // magic, bytes of the text, bytes of a struct

// The next description from here on; size: there is none.
static size_t next(const rt_bytes *bytes, size_t from, uint32_t *text_p)
{
    const uint64_t magic = RT_FIELDS_MAGIC;
    const uint8_t *at = memmem(bytes->data + from, bytes->size - from, &magic, sizeof magic);
    if (!at)
        return bytes->size;
    memcpy(text_p, at + sizeof magic, sizeof *text_p);
    return (size_t)(at - bytes->data);
}

static size_t find(const rt_bytes *bytes, uint32_t nth, uint32_t *text_p)
{
    size_t at = next(bytes, 0, text_p);
    while (nth-- > 0 && at < bytes->size)
        at = next(bytes, at + HEAD_BYTES + *text_p, text_p);
    assert_true(at < bytes->size);
    return at;
}

size_t fields_values(const rt_bytes *bytes, uint32_t nth)
{
    uint32_t text;
    const size_t at = find(bytes, nth, &text);
    return at + HEAD_BYTES + text;
}

size_t fields_at(const rt_bytes *bytes, uint32_t nth, const char *member)
{
    uint32_t text_bytes;
    char text[4096], wanted[64];
    const size_t at = find(bytes, nth, &text_bytes);
    size_t value = at + HEAD_BYTES + text_bytes;
    assert_true(text_bytes < sizeof text);
    memcpy(text, bytes->data + at + HEAD_BYTES, text_bytes);
    text[text_bytes] = '\0';
    snprintf(wanted, sizeof wanted, "%s:", member);
    for (char *rest = NULL, *one = strtok_r(text, " ", &rest); one;
         one = strtok_r(NULL, " ", &rest)) {
        if (strncmp(one, wanted, strlen(wanted)) == 0)
            return value;
        value += strtoul(strchr(one, ':') + 1, NULL, 10);
    }
    fail_msg("no %s in what is described", member);
    return 0;
}

void fields_plain(const rt_bytes *bytes, rt_bytes *plain)
{
    uint32_t text = 0;
    rt_bytes_clear(plain);
    for (size_t from = 0; from < bytes->size;) {
        const size_t at = next(bytes, from, &text);
        rt_bytes_put(plain, bytes->data + from, at - from);
        from = at < bytes->size ? at + HEAD_BYTES + text : at;
    }
}
