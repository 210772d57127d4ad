// Fields that share rows: which they are, and batches in which every row of a sample stands once,
// against a search through all keys.
#include "tests/support/test.h"

#include <stdio.h>
#include <string.h>

#include "runtime/stream/rt_stream.h"
#include "runtime/stream/rt_tables.h"
#include "tests/support/config_case.h"
#include "tests/support/random_batches.h"

#define FIELDS 5u

static const char names[FIELDS][RT_NAME_MAX] = {"item", "user", "last=", "history", "last=item"};

static rt_status find(const char *pairs, rt_tables *tables, rt_error *error)
{
    char assignment[300];
    rt_config config = config_fresh();
    snprintf(assignment, sizeof assignment, "stream.tables=%s", pairs);
    config_must_set(&config, assignment);
    rt_status status = rt_tables_find(&config.stream, names, FIELDS, tables, error);
    rt_config_fini(&config);
    return status;
}

static void must_be(const char *pairs, const uint8_t want[FIELDS])
{
    rt_tables tables;
    rt_error error = {0};
    if (find(pairs, &tables, &error))
        fail_msg("%s: %s", pairs, error.text);
    for (uint32_t f = 0; f < FIELDS; f++)
        assert_int_equal(rt_tables_of(&tables, f), want[f]);
}

static void pairs_make_tables(void **state)
{
    (void)state;
    must_be("[]", (const uint8_t[]){0, 1, 2, 3, 4});
    must_be("history=item", (const uint8_t[]){0, 1, 2, 0, 4});
    must_be("[\"item=history\"]", (const uint8_t[]){0, 1, 2, 0, 4});
    must_be("[\"history=user\", \"history=item\"]", (const uint8_t[]){0, 0, 2, 0, 4});
    must_be("[\"last==history\", \"last=item=item\"]", (const uint8_t[]){0, 1, 2, 2, 0});
}

static void pairs_that_are_none(void **state)
{
    static const char *const bad[] = {"[\"item\"]", "[\"item=nobody\"]", "[\"nobody=item\"]",
                                      "[\"item=item\"]", "[\"history=item\", \"user=\"]"};
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(bad); i++) {
        rt_tables tables;
        rt_error error = {0};
        assert_int_equal(find(bad[i], &tables, &error), RT_CONFIG);
        assert_non_null(strstr(error.text, "stream.tables"));
    }
}

// ---- what formats say --------------------------------------------------------------------------

static rt_status schema_of(const char *stream, rt_schema *schema, rt_error *error)
{
    char assignment[1000];
    rt_config config = config_fresh();
    snprintf(assignment, sizeof assignment, "stream=%s", stream);
    config_must_set(&config, assignment);
    rt_status status = rt_stream_read_schema(&config.stream, 1, schema, error);
    rt_config_fini(&config);
    return status;
}

static void every_format_can(void **state)
{
    static const struct {
        const char *stream;
        uint32_t field, table;
    } formats[] = {
        {"{\"format\": \"criteo\", \"tables\": \"C26=C3\"}", 25, 2},
        {"{\"format\": \"synthetic\", \"tables\": \"C2=C1\"}", 1, 0},
        {"{\"format\": \"libsvm\", \"libsvm\": {\"fields\": [1, 10, 20]}, "
         "\"tables\": \"from 20=from 10\"}",
         2, 1},
        {"{\"format\": \"json\", \"table\": {\"columns\": [{\"name\": \"y\", \"kind\": \"label\"}, "
         "{\"name\": \"a\", \"kind\": \"categorical\"}, {\"name\": \"b\", \"kind\": \"multi\"}]}, "
         "\"tables\": \"b=a\"}",
         1, 0},
    };
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(formats); i++) {
        rt_schema schema;
        rt_error error = {0};
        if (schema_of(formats[i].stream, &schema, &error))
            fail_msg("%s: %s", formats[i].stream, error.text);
        for (uint32_t f = 0; f < schema.field_count; f++)
            assert_int_equal(rt_tables_of(&schema.tables, f),
                             f == formats[i].field ? formats[i].table : f);
    }
}

// Of libsvm 23 is the fourth of its field, as 13 is of the other.
static void indices_count_from_their_field(void **state)
{
    rt_schema schema;
    rt_error error = {0};
    (void)state;
    assert_int_equal(schema_of("{\"format\": \"libsvm\", \"libsvm\": {\"fields\": [1, 10, 20]}, "
                               "\"tables\": \"from 20=from 10\"}",
                               &schema, &error),
                     RT_OK);
    assert_true(rt_tables_row_key(&schema.tables, rt_key(2, 23)) == rt_key(1, 13));
    assert_true(rt_tables_row_key(&schema.tables, rt_key(1, 13)) == rt_key(1, 13));
    assert_true(rt_tables_row_key(&schema.tables, rt_key(2, RT_ID_MISSING)) ==
                rt_key(1, RT_ID_MISSING));
    assert_true(rt_tables_field_key(&schema.tables, 2, rt_key(1, 13)) == rt_key(2, 23));
    assert_true(rt_tables_field_key(&schema.tables, 2, rt_key(1, RT_ID_MISSING)) ==
                rt_key(2, RT_ID_MISSING));
}

static void columns_must_make_the_same_ids(void **state)
{
    rt_schema schema;
    rt_error error = {0};
    (void)state;
    assert_int_equal(
        schema_of("{\"format\": \"table\", \"table\": {\"columns\": [{\"name\": \"y\", \"kind\": "
                  "\"label\"}, {\"name\": \"a\", \"kind\": \"categorical\"}, {\"name\": \"b\", "
                  "\"kind\": \"multi\", \"id\": \"number\"}]}, \"tables\": \"b=a\"}",
                  &schema, &error),
        RT_CONFIG);
    assert_non_null(strstr(error.text, "columns b and a"));
}

// ---- every row once ----------------------------------------------------------------------------

static bool has(const uint64_t *keys, uint32_t count, uint64_t key)
{
    uint32_t i = 0;
    while (i < count && keys[i] != key)
        i++;
    return i < count;
}

// Fields 3 and 0 share, and 4 and 1.
static void share(rt_tables *tables)
{
    *tables = (rt_tables){.are_shared = true, .field_count = FIELDS, .of = {0, 1, 2, 0, 1}};
}

static void copy(const rt_batch *from, rt_batch *to)
{
    rt_batch_init(to, 0);
    for (uint32_t i = 0; i < from->sample_count; i++)
        assert_int_equal(rt_batch_append(to, 0, NULL, from->keys + from->key_offsets[i],
                                         from->key_offsets[i + 1] - from->key_offsets[i]),
                         RT_OK);
}

// Every look-up finds what the plain batch has in that place, less those that went out.
static void check_lookups(const rt_batch *plain, const rt_batch *batch, uint64_t out)
{
    uint32_t lookup = 0;
    for (uint32_t i = 0; i < plain->sample_count; i++) {
        for (uint32_t k = plain->key_offsets[i]; k < plain->key_offsets[i + 1]; k++) {
            const uint32_t field = rt_key_field(plain->keys[k]);
            const uint64_t id = plain->keys[k] & RT_ID_MASK;
            if (rt_key(field % 3, id) == out)
                continue;
            const uint32_t bag = i * FIELDS + field;
            assert_in_range(lookup, batch->bag_offsets[bag], batch->bag_offsets[bag + 1] - 1);
            const uint32_t place = batch->lookups[lookup++];
            assert_in_range(place, batch->key_offsets[i], batch->key_offsets[i + 1] - 1);
            assert_true(batch->keys[place] == rt_key(field % 3, id));
        }
    }
    assert_int_equal(lookup, batch->lookup_count);
}

static void every_row_stands_once(void **state)
{
    random_batches random;
    rt_batch plain, batch;
    rt_tables tables;
    uint32_t twice = 0;
    (void)state;
    share(&tables);
    for (uint32_t seed = 1; seed <= 40; seed++) {
        random_batches_init(&random, seed, FIELDS, 6 + seed % 30, 1 + seed % 5, 0.8);
        rt_batch_init(&plain, 0);
        random_batches_fill(&random, &plain, 1 + seed % 17);
        copy(&plain, &batch);
        assert_int_equal(rt_tables_fold(&tables, &batch), RT_OK);
        for (uint32_t i = 0; i < batch.sample_count; i++) {
            uint32_t count = 0, first = batch.key_offsets[i];
            for (uint32_t k = first; k < batch.key_offsets[i + 1]; k++, count++)
                assert_false(has(batch.keys + first, count, batch.keys[k]));
        }
        twice += plain.key_count - batch.key_count;
        check_lookups(&plain, &batch, UINT64_MAX);
        rt_batch_fini(&plain);
        rt_batch_fini(&batch);
        random_batches_fini(&random);
    }
    assert_true(twice > 100);
}

// An empty list of another's rows has none; one of its own has the row of what is missing.
static void missing_values(void **state)
{
    const uint64_t keys[] = {rt_key(0, RT_ID_MISSING), rt_key(1, 4), rt_key(2, RT_ID_MISSING),
                             rt_key(3, RT_ID_MISSING), rt_key(4, 4)};
    rt_batch batch;
    rt_tables tables;
    rt_error error = {0};
    (void)state;
    rt_batch_init(&batch, 0);
    assert_int_equal(rt_batch_append(&batch, 0, NULL, keys, FIELDS), RT_OK);
    assert_int_equal(find("[\"history=item\", \"last=item=user\"]", &tables, &error), RT_OK);
    assert_int_equal(rt_tables_fold(&tables, &batch), RT_OK);
    assert_true(batch.has_gaps);
    assert_int_equal(batch.key_count, 3); // what is missing of 0 and 2; 4 of 1, twice
    const uint32_t want[] = {0, 1, 2, 3, 3, 4};
    assert_memory_equal(batch.bag_offsets, want, sizeof want);
    assert_int_equal(batch.lookups[1], batch.lookups[3]);
    rt_batch_fini(&batch);
}

// As rows.admit takes them out.
static void keys_that_go_out(void **state)
{
    random_batches random;
    rt_batch plain, batch;
    rt_tables tables;
    uint32_t places[2000], kept = 0, at = 0;
    (void)state;
    share(&tables);
    random_batches_init(&random, 3, FIELDS, 12, 3, 1);
    rt_batch_init(&plain, 0);
    random_batches_fill(&random, &plain, 40);
    copy(&plain, &batch);
    assert_int_equal(rt_tables_fold(&tables, &batch), RT_OK);
    const uint64_t out = batch.keys[0];
    for (uint32_t i = 0; i < batch.sample_count; i++) {
        for (; at < batch.key_offsets[i + 1]; at++) {
            places[at] = batch.keys[at] == out ? RT_BATCH_GONE : kept;
            if (batch.keys[at] != out)
                batch.keys[kept++] = batch.keys[at];
        }
        batch.key_offsets[i + 1] = kept;
    }
    assert_true(kept < batch.key_count);
    batch.key_count = kept;
    rt_batch_move_lookups(&batch, FIELDS, places);
    check_lookups(&plain, &batch, out);
    rt_batch_fini(&plain);
    rt_batch_fini(&batch);
    random_batches_fini(&random);
}

TEST_MAIN(TEST(pairs_make_tables), TEST(pairs_that_are_none), TEST(every_format_can),
          TEST(indices_count_from_their_field), TEST(columns_must_make_the_same_ids),
          TEST(every_row_stands_once), TEST(missing_values), TEST(keys_that_go_out))
