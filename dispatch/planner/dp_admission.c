#include "dispatch/planner/dp_admission.h"

#include <math.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "runtime/stream/rt_tables.h"
#include "runtime/wire/rt_fields.h"

typedef struct {
    uint32_t times, columns;
    uint64_t fresh, set; // set: counters that are not 0, which follow by place and value
} saved_head;

#define HEAD(XX, PART, NONE, T) \
    XX(T, times)                \
    XX(T, columns)              \
    XX(T, fresh)                \
    XX(T, set)
RT_FIELDS(head_fields, saved_head, HEAD, "times:4 columns:4 fresh:8 set:8");

rt_status dp_admission_create(uint32_t times, uint64_t bytes, dp_admission **admission_p)
{
    rt_assert(times >= 2 && times <= UINT8_MAX && bytes >= DP_ADMISSION_ROWS);
    dp_admission *admission = rt_alloc(1, sizeof *admission);
    if (!admission)
        return RT_NO_MEMORY;
    uint64_t columns = 1;
    while (2 * columns * DP_ADMISSION_ROWS <= bytes && columns < UINT64_C(1) << 31)
        columns *= 2;
    admission->times = times;
    admission->columns = (uint32_t)columns;
    admission->counters = rt_alloc(columns * DP_ADMISSION_ROWS, sizeof *admission->counters);
    if (!admission->counters) {
        rt_free(admission);
        return RT_NO_MEMORY;
    }
    *admission_p = admission;
    return RT_OK;
}

rt_status dp_admission_create_by_chance(double share, uint64_t seed, dp_admission **admission_p)
{
    rt_assert(share > 0 && share < 1);
    dp_admission *admission = rt_alloc(1, sizeof *admission);
    if (!admission)
        return RT_NO_MEMORY;
    admission->chance = rt_max_u64(1, (uint64_t)ldexp(share, 63) * 2);
    admission->seed = seed;
    *admission_p = admission;
    return RT_OK;
}

void dp_admission_destroy(dp_admission *admission)
{
    if (!admission)
        return;
    rt_free(admission->counters);
    rt_free(admission->refused);
    rt_free(admission->places);
    rt_free(admission);
}

// ---- counts ----------------------------------------------------------------------------------

// Double hashing: row r looks at first + r x step.
static uint32_t find_counters(const dp_admission *admission, uint64_t key,
                              uint8_t *counters[DP_ADMISSION_ROWS])
{
    const uint64_t hash = rt_mix(key ^ UINT64_C(0x5bf03635f0b7a54d));
    const uint32_t step = (uint32_t)(hash >> 32) | 1, mask = admission->columns - 1;
    uint32_t least = UINT8_MAX;
    for (uint32_t r = 0; r < DP_ADMISSION_ROWS; r++) {
        const uint32_t column = ((uint32_t)hash + r * step) & mask;
        counters[r] = &admission->counters[(size_t)r * admission->columns + column];
        least = (uint32_t)rt_min_u64(least, *counters[r]);
    }
    return least;
}

uint32_t dp_admission_count(const dp_admission *admission, uint64_t key)
{
    uint8_t *counters[DP_ADMISSION_ROWS];
    return find_counters(admission, key, counters);
}

static void fade(dp_admission *admission)
{
    const size_t count = (size_t)admission->columns * DP_ADMISSION_ROWS;
    for (size_t i = 0; i < count; i++)
        admission->counters[i] /= 2;
    admission->fresh = 0;
}

// Only the smallest counters of a key grow: the others are too high already.
static void count_one(dp_admission *admission, uint64_t key)
{
    uint8_t *counters[DP_ADMISSION_ROWS];
    const uint32_t seen = find_counters(admission, key, counters);
    if (seen >= admission->times)
        return;
    for (uint32_t r = 0; r < DP_ADMISSION_ROWS; r++) {
        if (*counters[r] == seen)
            *counters[r] = (uint8_t)(seen + 1);
    }
    admission->fresh += seen == 0;
}

// ---- a batch ---------------------------------------------------------------------------------

static void count_all(dp_admission *admission, const dp_directory *directory, const rt_batch *batch)
{
    for (uint32_t k = 0; k < batch->key_count; k++) {
        if (!dp_directory_knows(directory, batch->keys[k]))
            count_one(admission, batch->keys[k]);
    }
}

static bool is_refused(const dp_admission *admission, const dp_directory *directory, uint64_t key)
{
    if (dp_directory_knows(directory, key))
        return false;
    if (admission->chance)
        return rt_mix(key ^ rt_mix(admission->seed ^ rt_mix(admission->draw))) >= admission->chance;
    return dp_admission_count(admission, key) < admission->times;
}

rt_status dp_admission_filter(dp_admission *admission, const dp_directory *directory,
                              rt_batch *batch, uint32_t *refused_count_p)
{
    uint32_t kept = 0, refused = 0, at = 0;
    if (rt_grow(&admission->refused, &admission->refused_capacity, batch->key_count,
                sizeof *admission->refused) ||
        (batch->tables && rt_grow(&admission->places, &admission->place_capacity, batch->key_count,
                                  sizeof *admission->places)))
        return RT_NO_MEMORY;
    if (!admission->chance)
        count_all(admission, directory, batch);
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        for (; at < batch->key_offsets[i + 1]; at++) {
            const uint64_t key = batch->keys[at];
            const bool is_out = is_refused(admission, directory, key);
            if (batch->tables)
                admission->places[at] = is_out ? RT_BATCH_GONE : kept;
            if (is_out)
                admission->refused[refused++] = key;
            else
                batch->keys[kept++] = key;
        }
        batch->key_offsets[i + 1] = kept;
    }
    batch->key_count = kept;
    batch->has_gaps |= refused > 0;
    if (batch->tables && refused > 0)
        rt_batch_move_lookups(batch, batch->tables->field_count, admission->places);
    if (!admission->chance && admission->fresh >= rt_max_u64(1, admission->columns / 2))
        fade(admission);
    *refused_count_p = refused;
    return RT_OK;
}

// ---- as bytes --------------------------------------------------------------------------------

void dp_admission_save(const dp_admission *admission, rt_bytes *bytes)
{
    const size_t count = (size_t)admission->columns * DP_ADMISSION_ROWS;
    saved_head head = {admission->times, admission->columns, admission->fresh, 0};
    for (size_t i = 0; i < count; i++)
        head.set += admission->counters[i] > 0;
    rt_fields_put(bytes, &head_fields, &head, 1);
    for (size_t i = 0; i < count; i++) {
        const uint64_t one = (uint64_t)i << 8 | admission->counters[i];
        if (admission->counters[i])
            rt_bytes_put_u64(bytes, one);
    }
}

bool dp_admission_fits(const dp_admission *admission, rt_reader reader)
{
    saved_head head;
    return rt_fields_get(&reader, &head_fields, &head, 1) && head.times == admission->times &&
           head.columns == admission->columns;
}

rt_status dp_admission_load(dp_admission *admission, rt_reader *reader)
{
    const uint64_t count = (uint64_t)admission->columns * DP_ADMISSION_ROWS;
    const bool fits = dp_admission_fits(admission, *reader);
    saved_head head;
    if (!fits || !rt_fields_get(reader, &head_fields, &head, 1) || head.set > count)
        return RT_DATA;
    if (count > 0)
        memset(admission->counters, 0, count);
    admission->fresh = head.fresh;
    for (uint64_t i = 0; i < head.set; i++) {
        const uint64_t one = rt_reader_u64(reader);
        if (reader->failed || one >> 8 >= count || (one & 0xff) == 0)
            return RT_DATA;
        admission->counters[one >> 8] = (uint8_t)one;
    }
    return RT_OK;
}
