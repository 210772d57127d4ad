// libFuzzer: clang-14 -fsanitize=fuzzer,address,undefined. Every line of the input goes to
// rt_criteo_parse, in a block of exactly the size that rt_line promises.
#include <math.h>

#include "runtime/rt_hash.h"
#include "runtime/stream/rt_criteo.h"
#include "tests/fuzz/fuzz_lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool parse(void *criteo, const rt_line *line, rt_line_problem *problem)
{
    double dense[RT_CRITEO_DENSE];
    uint64_t keys[RT_CRITEO_FIELDS];
    rt_line_sample sample = {.dense = dense, .keys = keys};
    if (!rt_criteo_parse(criteo, line, &sample, problem))
        return false;
    rt_assert(sample.label == 0 || sample.label == 1);
    rt_assert(sample.key_count == RT_CRITEO_FIELDS);
    for (uint32_t i = 0; i < RT_CRITEO_FIELDS; i++)
        rt_assert(rt_key_field(keys[i]) == i);
    for (uint32_t i = 0; i < RT_CRITEO_DENSE; i++)
        rt_assert(isfinite(dense[i]) && dense[i] >= 0);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static rt_criteo *criteo;
    if (!criteo)
        rt_assert(rt_criteo_create(&criteo) == RT_OK);
    fuzz_lines(data, size, parse, criteo);
    return 0;
}
