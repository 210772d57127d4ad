#define _GNU_SOURCE // strtod_l
#include "runtime/rt_locale.h"

#include <stdlib.h>

// "C" is part of libc: to ask for it takes no memory, cannot fail, and gives the same every time.
static locale_t c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

locale_t rt_locale_enter(void)
{
    return uselocale(c_locale());
}

void rt_locale_leave(locale_t before)
{
    uselocale(before);
}

double rt_locale_number(const char *text, const char **end_p)
{
    char *end;
    const double number = strtod_l(text, &end, c_locale());
    *end_p = end;
    return number;
}

float rt_locale_float(const char *text)
{
    return strtof_l(text, NULL, c_locale());
}

static char small(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

// The text behind a word that it begins with; NULL: it does not.
static const char *behind(const char *text, const char *word)
{
    for (; *word; text++, word++)
        if (small(*text) != small(*word))
            return NULL;
    return text;
}

bool rt_locale_begins(const char *text, const char *word)
{
    return behind(text, word) != NULL;
}

bool rt_locale_is(const char *text, const char *word)
{
    const char *rest = behind(text, word);
    return rest && *rest == '\0';
}
