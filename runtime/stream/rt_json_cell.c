#include "runtime/stream/rt_json_cell.h"

#include <math.h>
#include <stdio.h>

bool rt_json_cell_number(double number, char text[RT_JSON_CELL_BYTES])
{
    const bool is_integer = number == floor(number);
    if (is_integer && fabs(number) > RT_JSON_INTEGER_MAX && fabs(number) < 1e22)
        return false;
    snprintf(text, RT_JSON_CELL_BYTES,
             is_integer && fabs(number) <= RT_JSON_INTEGER_MAX ? "%.0f" : "%.17g", number + 0.0);
    return isfinite(number);
}

const char *rt_json_cell_word(bool is_true)
{
    return is_true ? "true" : "false";
}
