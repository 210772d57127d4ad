#include "runtime/wire/rt_counts.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

#define COUNTS (0u RT_COUNTS_MAP(RT_COUNTS_ONE, RT_COUNTS_ONE))
#define TIMES (0u RT_TIMES_MAP(RT_COUNTS_ONE))

_Static_assert(sizeof(rt_counts) == COUNTS * sizeof(uint64_t), "nothing but counters");
_Static_assert(sizeof(rt_times) == TIMES * sizeof(uint64_t), "nothing but times");

static void numbered(void *object, uint32_t count, uint64_t first)
{
    uint64_t *at = object;
    for (uint32_t i = 0; i < count; i++)
        at[i] = first << i;
}

static void every_member_takes_part(void **state)
{
    (void)state;
    rt_counts sum, one, want;
    rt_times time_sum, time_one, time_want;
    numbered(&sum, COUNTS, 1000);
    numbered(&one, COUNTS, 7);
    numbered(&want, COUNTS, 1007);
    rt_counts_add(&sum, &one);
    assert_memory_equal(&sum, &want, sizeof want);
    const rt_counts rest = rt_counts_less(&sum, &one);
    numbered(&want, COUNTS, 1000);
    assert_memory_equal(&rest, &want, sizeof want);
    numbered(&time_sum, TIMES, 1000);
    numbered(&time_one, TIMES, 7);
    numbered(&time_want, TIMES, 1007);
    rt_times_add(&time_sum, &time_one);
    assert_memory_equal(&time_sum, &time_want, sizeof time_want);
}

static cJSON *written(void (*write)(rt_json *json))
{
    rt_json json;
    rt_json_init(&json, 0);
    rt_json_begin_object(&json, NULL);
    write(&json);
    rt_json_end_object(&json);
    cJSON *read = cJSON_Parse(rt_json_text(&json, NULL));
    assert_non_null(read);
    rt_json_fini(&json);
    return read;
}

static void write_both(rt_json *json)
{
    rt_counts counts;
    rt_times times;
    numbered(&counts, COUNTS, 3);
    numbered(&times, TIMES, 5000000);
    rt_counts_write(json, "ops", &counts, 0.5);
    rt_times_write(json, "times_ms", &times, 2);
}

static void check_names(const cJSON *object, const char *const *names, uint32_t count, double first)
{
    assert_int_equal(cJSON_GetArraySize(object), count);
    for (uint32_t i = 0; i < count; i++) {
        char row[64];
        const cJSON *one = cJSON_GetObjectItemCaseSensitive(object, names[i]);
        assert_true(cJSON_IsNumber(one) && one->valuedouble == first * (double)(1u << i));
        snprintf(row, sizeof row, "| `%s` |", names[i]);
        if (!test_file_has("docs/METRICS.md", row))
            fail_msg("docs/METRICS.md has no row %s", row);
    }
}

// Under its own name, and told of in docs/METRICS.md.
static void every_member_is_written(void **state)
{
    (void)state;
#define XX(name, title) #name,
    static const char *const counts[] = { RT_COUNTS_MAP(XX, XX) };
    static const char *const times[] = { RT_TIMES_MAP(XX) };
#undef XX
    cJSON *json = written(write_both);
    check_names(cJSON_GetObjectItem(json, "ops"), counts, COUNTS, 1.5);
    check_names(cJSON_GetObjectItem(json, "times_ms"), times, TIMES, 10);
    cJSON_Delete(json);
}

TEST_MAIN(TEST(every_member_takes_part), TEST(every_member_is_written))
