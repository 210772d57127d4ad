#include "edge_worker/executor/ew_executor.h"

#include <string.h>

#include "runtime/numbers/rt_optimizer.h"

rt_status ew_codes_init(ew_codes *codes, rt_coding coding, uint32_t slot_count, uint32_t values,
                        uint64_t seed, float init_scale)
{
    const uint32_t words = rt_coding_words(coding, values);
    *codes = (ew_codes){.coding = coding,
                        .values = values,
                        .words = words,
                        .seed = seed,
                        .init_scale = init_scale,
                        .rows = rt_alloc((size_t)slot_count * words, sizeof *codes->rows),
                        .versions = rt_alloc(slot_count, sizeof *codes->versions),
                        .is_initial = rt_alloc(slot_count, sizeof *codes->is_initial),
                        .scratch = rt_alloc(values, sizeof *codes->scratch)};
    if (codes->rows && codes->versions && codes->is_initial && codes->scratch)
        return RT_OK;
    ew_codes_fini(codes);
    return RT_NO_MEMORY;
}

void ew_codes_fini(ew_codes *codes)
{
    rt_free(codes->rows);
    rt_free(codes->versions);
    rt_free(codes->is_initial);
    rt_free(codes->scratch);
    *codes = (ew_codes){0};
}

static uint32_t *words_of(const ew_codes *codes, uint32_t slot)
{
    return codes->rows + (size_t)slot * codes->words;
}

// Most are told apart by their first value.
static bool is_as_it_begins(const ew_codes *codes, uint64_t key, const float *values)
{
    float *begins = codes->scratch;
    rt_row_init(key, codes->seed, codes->init_scale, 1, begins);
    if (memcmp(begins, values, sizeof *values) != 0)
        return false;
    rt_row_init(key, codes->seed, codes->init_scale, codes->values, begins);
    return memcmp(begins, values, codes->values * sizeof *values) == 0;
}

void ew_codes_take(ew_codes *codes, uint32_t slot, uint64_t key, uint32_t version,
                   const void *words, float *values)
{
    if (version == 0) {
        memcpy(values, words, codes->values * sizeof *values);
        if (is_as_it_begins(codes, key, values))
            ew_codes_first(codes, slot);
        else
            ew_codes_round(codes, slot, version, values);
        return;
    }
    codes->versions[slot] = version;
    codes->is_initial[slot] = false;
    memcpy(words_of(codes, slot), words, codes->words * sizeof *codes->rows);
    rt_coding_unpack(codes->coding, words, codes->values, values);
}

void ew_codes_first(ew_codes *codes, uint32_t slot)
{
    codes->versions[slot] = 0;
    codes->is_initial[slot] = true;
}

void ew_codes_round(ew_codes *codes, uint32_t slot, uint32_t version, float *values)
{
    codes->versions[slot] = version;
    codes->is_initial[slot] = false;
    rt_coding_pack(codes->coding, values, codes->values, words_of(codes, slot));
    rt_coding_unpack(codes->coding, words_of(codes, slot), codes->values, values);
}

void ew_codes_change(ew_codes *codes, uint32_t slot, uint64_t key, float *restrict values,
                     void *words)
{
    float *restrict base = codes->scratch;
    if (codes->is_initial[slot])
        rt_row_init(key, codes->seed, codes->init_scale, codes->values, base);
    else
        rt_coding_unpack(codes->coding, words_of(codes, slot), codes->values, base);
    for (uint32_t i = 0; i < codes->values; i++)
        values[i] -= base[i];
    rt_coding_pack(codes->coding, values, codes->values, words);
}
