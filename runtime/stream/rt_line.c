#include "runtime/stream/rt_line.h"

#include <stdarg.h>
#include <stdio.h>

#define SHOWN_BYTES_MAX 24u

static void quote(char *text, size_t size, const char *cell, size_t cell_length)
{
    size_t shown = cell_length < SHOWN_BYTES_MAX ? cell_length : SHOWN_BYTES_MAX;
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < shown; i++) {
        unsigned byte = (unsigned char)cell[i];
        const char *format = byte < 0x20 || byte >= 0x7f ? "\\x%02x" : "%c";
        used += (size_t)snprintf(text + used, size - used, format, byte);
    }
    if (shown < cell_length)
        snprintf(text + used, size - used, "...");
}

bool rt_line_reject_cell(rt_line_problem *problem, uint32_t column, const char *name,
                         const char *expected, const char *cell, size_t cell_length)
{
    char shown[4 * SHOWN_BYTES_MAX + 4];
    quote(shown, sizeof shown, cell, cell_length);
    return rt_line_reject(problem, "column %u (%s): expected %s, found \"%s\"", column + 1, name,
                          expected, shown);
}

bool rt_line_reject(rt_line_problem *problem, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem->text, sizeof problem->text, format, arguments);
    va_end(arguments);
    return false;
}
