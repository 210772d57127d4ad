#include "tests/support/random_batches.h"

#include <math.h>

void random_batches_init(random_batches *batches, uint64_t seed, uint32_t field_count,
                         uint32_t ids_per_field, uint32_t bag_max, double exponent)
{
    rt_assert(bag_max >= 1 && ids_per_field >= bag_max);
    *batches = (random_batches){{seed}, field_count, ids_per_field, bag_max, NULL};
    batches->cumulative = rt_alloc(ids_per_field, sizeof *batches->cumulative);
    rt_assert(batches->cumulative != NULL);
    double sum = 0;
    for (uint32_t i = 0; i < ids_per_field; i++)
        batches->cumulative[i] = sum += pow(i + 1.0, -exponent);
}

void random_batches_fini(random_batches *batches)
{
    rt_free(batches->cumulative);
    batches->cumulative = NULL;
}

static uint64_t random_id(random_batches *batches)
{
    double at = rt_random_unit(&batches->random) * batches->cumulative[batches->ids_per_field - 1];
    uint32_t low = 0, high = batches->ids_per_field - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (batches->cumulative[middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

// Appends the keys of one field; no id twice.
static uint32_t add_field(random_batches *batches, uint32_t field, uint64_t *keys, uint32_t count)
{
    uint32_t first = count;
    uint32_t want = 1 + rt_random_below(&batches->random, batches->bag_max);
    while (count - first < want) {
        uint64_t key = rt_key(field, random_id(batches));
        uint32_t k = first;
        while (k < count && keys[k] != key)
            k++;
        if (k == count) {
            keys[count++] = key;
        } else if (want > 1) { // popular ids come up again and again: settle for fewer
            want--;
        }
    }
    return count;
}

void random_batches_fill(random_batches *batches, rt_batch *batch, uint32_t sample_count)
{
    uint32_t keys_max = batches->field_count * batches->bag_max;
    uint64_t *keys = rt_alloc(keys_max, sizeof *keys);
    rt_assert(keys != NULL && batch->dense_count == 0);
    rt_batch_clear(batch);
    batch->is_weighted = sample_count % 2; // every other batch
    for (uint32_t i = 0; i < sample_count; i++) {
        uint32_t count = 0;
        for (uint32_t f = 0; f < batches->field_count; f++)
            count = add_field(batches, f, keys, count);
        rt_status status = rt_batch_append(batch, 0, NULL, keys, count);
        rt_assert(status == RT_OK);
        batch->weights[i] = 0.25f * (float)i;
    }
    rt_free(keys);
}
