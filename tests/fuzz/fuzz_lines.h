// fuzz_lines - what targets that parse lines share.
#ifndef FUZZ_LINES_H
#define FUZZ_LINES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_base.h"
#include "runtime/stream/rt_line.h"

// Parses a line; what it got of it, and why it refused it.
typedef bool (*fuzz_line)(void *context, const rt_line *line, rt_line_problem *problem);

// Gives every line of the text to `parse`, in a block of exactly the size that rt_line promises;
// what is refused must come with a reason.
static inline void fuzz_lines(const uint8_t *data, size_t size, fuzz_line parse, void *context)
{
    const char *at = (const char *)data, *end = at + size;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const size_t length = (size_t)((stop ? stop : end) - at);
        rt_line_problem problem = {.text = ""};
        char *block = malloc(length + 1 + RT_LINE_PAD);
        rt_assert(block);
        memcpy(block, at, length);
        memset(block + length, '0', 1 + RT_LINE_PAD);
        block[length] = '\n';
        const rt_line line = {.text = block, .length = (uint32_t)length, .number = 1};
        rt_assert(parse(context, &line, &problem) || strlen(problem.text) > 0);
        free(block);
        at += length + 1;
    }
}

#endif
