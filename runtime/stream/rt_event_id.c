#include "runtime/stream/rt_event_id.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"

#define NUMBER_MAX 65536

bool rt_event_id_number(const char *text, uint32_t *number_p)
{
    const size_t length = strlen(text);
    if (length == 0 || length > 5 || strspn(text, "0123456789") != length)
        return false;
    const long number = strtol(text, NULL, 10);
    *number_p = (uint32_t)(number - 1);
    return number >= 1 && number <= NUMBER_MAX;
}

// Behind the cell that begins at `at`, in quotes or not.
static const char *end_of_cell(const char *at, const char *end, char delimiter, bool has_quotes)
{
    if (has_quotes && at < end && *at == '"') {
        for (at++; at < end; at++) {
            if (*at != '"')
                continue;
            if (at + 1 == end || at[1] != '"')
                break;
            at++;
        }
    }
    const char *found = at < end ? memchr(at, delimiter, (size_t)(end - at)) : NULL;
    return found ? found : end;
}

uint64_t rt_event_id_of_cell(const rt_line *line, uint32_t number, char delimiter, bool has_quotes)
{
    const char *at = line->text, *end = at + line->length;
    for (uint32_t i = 0;; i++) {
        const char *cell_end = end_of_cell(at, end, delimiter, has_quotes);
        if (i == number)
            return cell_end > at ? rt_hash_bytes(at, (size_t)(cell_end - at)) : 0;
        if (cell_end == end)
            return 0;
        at = cell_end + 1;
    }
}
