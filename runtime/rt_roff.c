#include "runtime/rt_roff.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

// What a character is written as; NULL: as it is.
static const char *escape(char c, bool begins_line)
{
    switch (c) {
    case '\\':
        return "\\e";
    case '-':
        return "\\-";
    case '"':
        return "\\(dq";
    case '\'':
        return "\\(aq";
    case '^':
        return "\\(ha";
    case '~':
        return "\\(ti";
    case '.':
        if (begins_line)
            return "\\&.";
        return NULL;
    default:
        return NULL;
    }
}

void rt_roff_text(FILE *out, const char *text)
{
    bool is_bold = false, begins_line = true;
    for (; *text; text++) {
        const char *escaped = escape(*text, begins_line);
        begins_line = *text == '\n';
        if (*text == '`' && (is_bold || strchr(text + 1, '`'))) {
            is_bold = !is_bold;
            fputs(is_bold ? "\\fB" : "\\fR", out);
        } else if (escaped) {
            fputs(escaped, out);
        } else {
            fputc(*text, out);
        }
    }
}
