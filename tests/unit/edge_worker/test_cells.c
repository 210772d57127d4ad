// Samples from cells by name: the keys and numbers are those of the same line read from a file.
#include "tests/support/test.h"

#include <stdio.h>
#include <string.h>

#include "edge_worker/predict/ew_cells.h"
#include "runtime/rt_hash.h"

static rt_config config;

static ew_cells *cells_of(const char *const *sets)
{
    ew_cells *cells;
    rt_error error = {0};
    assert_int_equal(rt_config_init(&config), RT_OK);
    for (; *sets; sets++)
        if (rt_config_set(&config, *sets, &error))
            fail_msg("%s", error.text);
    if (ew_cells_create(&config, &cells, &error))
        fail_msg("%s", error.text);
    return cells;
}

static void put(ew_cells *cells, const char *name, const char *text)
{
    const uint32_t column = ew_cells_find(cells, name, strlen(name));
    assert_int_not_equal(column, EW_CELL_NONE);
    ew_cells_put(cells, column, text, strlen(text));
}

static uint64_t hashed(uint32_t field, const char *text)
{
    return rt_key(field, rt_hash_bytes(text, strlen(text)));
}

static const char *const table[] = {
    "stream.format=table",
    "stream.table={\"delimiter\": \"\\t\", \"header\": true, \"columns\": ["
    "{\"name\": \"y\", \"kind\": \"label\", \"value\": \"1\"},"
    "{\"name\": \"price\", \"kind\": \"dense\"},"
    "{\"name\": \"note\", \"kind\": \"ignore\"},"
    "{\"name\": \"shop\", \"kind\": \"categorical\", \"id\": \"hash\"},"
    "{\"name\": \"tags\", \"kind\": \"multi\", \"id\": \"number\", \"separator\": \"|\","
    " \"values_max\": 3}]}",
    NULL};

static void a_table(void **state)
{
    static const char odd[] = "a,\"b\"\nc\td";
    ew_cells *cells = cells_of(table);
    rt_batch batch;
    rt_error error = {0};
    (void)state;
    rt_batch_init(&batch, 1);
    assert_int_equal(ew_cells_count(cells), 4);
    assert_int_equal(ew_cells_find(cells, "y", 1), EW_CELL_NONE);
    assert_int_equal(ew_cells_find(cells, "sho", 3), EW_CELL_NONE);
    put(cells, "price", "2.5");
    put(cells, "shop", odd); // all that divides or quotes cells
    put(cells, "tags", "7|9|7");
    assert_int_equal(ew_cells_append(cells, &batch, &error), RT_OK);
    ew_cells_clear(cells);
    put(cells, "note", "whatever");
    assert_int_equal(ew_cells_append(cells, &batch, &error), RT_OK);
    const uint64_t want[] = {hashed(0, odd), rt_key(1, 7), rt_key(1, 9), rt_key(0, RT_ID_MISSING),
                             rt_key(1, RT_ID_MISSING)};
    assert_int_equal(batch.sample_count, 2);
    assert_int_equal(batch.key_count, 5);
    assert_memory_equal(batch.keys, want, sizeof want);
    assert_true(batch.dense[0] == 2.5f && batch.dense[1] == 0);
    put(cells, "price", "cheap");
    assert_int_equal(ew_cells_append(cells, &batch, &error), RT_DATA);
    assert_non_null(strstr(error.text, "price"));
    assert_int_equal(batch.sample_count, 2);
    static const char line[] = "0\t2.5\tx\ta\t7";
    assert_int_equal(ew_cells_append_line(cells, line, strlen(line), &batch, &error), RT_OK);
    assert_int_equal(ew_cells_append_line(cells, line + 2, strlen(line) - 2, &batch, &error),
                     RT_OK);
    assert_int_equal(batch.keys[5], hashed(0, "a"));
    assert_memory_equal(&batch.keys[5], &batch.keys[7], 2 * sizeof *batch.keys);
    rt_batch_fini(&batch);
    ew_cells_destroy(cells);
    rt_config_fini(&config);
}

static void criteo_and_the_generator(void **state)
{
    ew_cells *cells = cells_of((const char *const[]){"stream.format=criteo", NULL});
    rt_batch batch;
    rt_error error = {0};
    (void)state;
    rt_batch_init(&batch, 13);
    put(cells, "I13", "1");
    put(cells, "C1", "0000ffff");
    put(cells, "C26", "00000010");
    assert_int_equal(ew_cells_append(cells, &batch, &error), RT_OK);
    assert_true(batch.dense[0] == 0 && batch.dense[12] == 0x1.62e43p-1f); // log 2
    assert_int_equal(batch.keys[0], rt_key(0, 0xffff));
    assert_int_equal(batch.keys[1], rt_key(1, RT_ID_MISSING));
    assert_int_equal(batch.keys[25], rt_key(25, 16));
    ew_cells_destroy(cells);
    rt_config_fini(&config);
    cells = cells_of((const char *const[]){"stream.format=synthetic", NULL});
    put(cells, "D2", "-0.5");
    rt_batch_clear(&batch);
    assert_int_equal(ew_cells_append(cells, &batch, &error), RT_OK);
    assert_true(batch.dense[1] == -0.5f && batch.dense[0] == 0);
    put(cells, "D2", "x");
    assert_int_equal(ew_cells_append(cells, &batch, &error), RT_DATA);
    rt_batch_fini(&batch);
    ew_cells_destroy(cells);
    rt_config_fini(&config);
}

TEST_MAIN(TEST(a_table), TEST(criteo_and_the_generator))
