// libFuzzer: clang-14 -fsanitize=fuzzer,address,undefined. Every line of the input goes to
// rt_criteo_parse, in a block of exactly the size that rt_line promises.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "runtime/stream/rt_criteo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(const rt_criteo *criteo, const char *text, size_t length)
{
    float dense[RT_CRITEO_DENSE];
    uint64_t keys[RT_CRITEO_FIELDS];
    rt_line_sample sample = {.dense = dense, .keys = keys};
    rt_line_problem problem = {.text = ""};
    char *block = malloc(length + 1 + RT_LINE_PAD);
    rt_assert(block);
    memcpy(block, text, length);
    memset(block + length, '0', 1 + RT_LINE_PAD);
    block[length] = '\n';
    rt_line line = {.text = block, .length = (uint32_t)length, .number = 1};
    if (rt_criteo_parse(criteo, &line, &sample, &problem)) {
        rt_assert(sample.label == 0 || sample.label == 1);
        rt_assert(sample.key_count == RT_CRITEO_FIELDS);
        for (uint32_t i = 0; i < RT_CRITEO_FIELDS; i++)
            rt_assert(rt_key_field(keys[i]) == i);
        for (uint32_t i = 0; i < RT_CRITEO_DENSE; i++)
            rt_assert(isfinite(dense[i]) && dense[i] >= 0);
    } else {
        rt_assert(strlen(problem.text) > 0);
    }
    free(block);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static rt_criteo *criteo;
    if (!criteo)
        rt_assert(rt_criteo_create(&criteo) == RT_OK);
    const char *at = (const char *)data, *end = at + size;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        check_line(criteo, at, (size_t)(stop - at));
        at = stop + 1;
    }
    return 0;
}
