// Events of what was served.
#include "edge_worker/serve/ew_event.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

#define COLUMNS                                                                   \
    "stream.table.columns=[{\"name\":\"id\",\"kind\":\"id\"},{\"name\":\"item\"," \
    "\"kind\":\"categorical\"},{\"name\":\"price\",\"kind\":\"dense\"}]"
#define LISTS                                                                     \
    "stream.table.columns=[{\"name\":\"id\",\"kind\":\"id\"},{\"name\":\"tags\"," \
    "\"kind\":\"multi\"}]"
#define OUTCOMES                                                                       \
    "stream.join.columns=[{\"name\":\"id\",\"kind\":\"id\"},{\"name\":\"y\",\"kind\":" \
    "\"label\"}]"

static void put(ew_cells *cells, const char *name, const char *text)
{
    ew_cells_put(cells, ew_cells_find(cells, name, strlen(name)), text, strlen(text));
}

// The cells and events of a model whose format and columns are given; config is the caller's.
static void open_event(const char *format, const char *columns, rt_config *config,
                       ew_cells **cells_p, ew_event **event_p)
{
    rt_error error = {0};
    *config = config_fresh();
    config_must_set(config, format);
    config_must_set(config, columns);
    config_must_set(config, OUTCOMES);
    config_must_set(config, "stream.join.source=http");
    if (ew_cells_create(config, cells_p, &error) ||
        ew_event_create(config, *cells_p, event_p, &error))
        fail_msg("%s", error.text);
    ew_cells_clear(*cells_p);
}

// A server goes on with its events while the model that they were made by goes, and its
// configuration with it.
static void outlives_its_configuration(void **state)
{
    (void)state;
    ew_cells *cells;
    ew_event *event;
    rt_bytes lines = {0};
    rt_error error = {0};
    rt_config config;
    open_event("stream.format=table", COLUMNS, &config, &cells, &event);
    memset(config.stream.table.columns, 0x5a,
           config.stream.table.column_count * sizeof *config.stream.table.columns);
    rt_config_fini(&config);
    put(cells, "item", "bread");
    put(cells, "price", "2.5");
    if (ew_event_put(event, "e7", 0, &lines, &error))
        fail_msg("%s", error.text);
    rt_bytes_put(&lines, "", 1);
    assert_string_equal((const char *)lines.data, "e7,bread,2.5\n");
    rt_bytes_fini(&lines);
    ew_event_destroy(event);
    ew_cells_destroy(cells);
}

// Of a time, and of an hour that is made of it: what is predicted of and what is kept is the same.
static void has_the_time_of_the_answer(void **state)
{
    static const char *const columns[] = {
        "stream.table.columns=[{\"name\":\"id\",\"kind\":\"id\"},{\"name\":\"at\",\"kind\":"
        "\"time\"},"
        "{\"name\":\"hour\",\"kind\":\"categorical\",\"from\":\"at\",\"transform\":\"hour\"}]",
        "stream.table.columns=[{\"name\":\"id\",\"kind\":\"id\"},{\"name\":\"at\",\"kind\":"
        "\"ignore\"},"
        "{\"name\":\"when\",\"kind\":\"time\",\"from\":\"at\",\"time_format\":\"%Y-%m-%d "
        "%H:%M:%S\"},"
        "{\"name\":\"hour\",\"kind\":\"categorical\",\"from\":\"at\",\"transform\":\"hour\","
        "\"time_format\":\"%Y-%m-%d %H:%M:%S\"}]",
        "stream.table.columns=[{\"name\":\"id\",\"kind\":\"id\"},{\"name\":\"item\","
        "\"kind\":\"categorical\"},{\"name\":\"at\",\"kind\":\"time\",\"time_format\":\"unix_ms\"}"
        "]"};
    static const char *const lines[][2] = {{"e7,7261.500\n", "e8,1800\n"},
                                           {"e7,1970-01-01 02:01:01\n", "e8,1970-01-01 00:30:00\n"},
                                           {"e7,,7261500\n", "e8,,1800\n"}};
    static const char *const said[] = {"1800", "1970-01-01 00:30:00", "1800"};
    static const uint64_t hours[][2] = {{2, 0}, {2, 0}, {RT_ID_MISSING, RT_ID_MISSING}};
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        ew_cells *cells;
        ew_event *event;
        rt_bytes written = {0};
        rt_batch batch;
        rt_error error = {0};
        rt_config config;
        open_event("stream.format=table", columns[i], &config, &cells, &event);
        rt_batch_init(&batch, 0);
        for (uint32_t is_said = 0; is_said < 2; is_said++) {
            ew_cells_clear(cells);
            if (is_said)
                put(cells, "at", said[i]);
            ew_event_date(event, 7261.5, cells);
            if (ew_cells_append(cells, &batch, &error) ||
                ew_event_put(event, is_said ? "e8" : "e7", 7261.5, &written, &error))
                fail_msg("%s", error.text);
            assert_int_equal(batch.keys[is_said], rt_key(0, hours[i][is_said]));
            rt_bytes_put(&written, "", 1);
            assert_string_equal((const char *)written.data, lines[i][is_said]);
            rt_bytes_clear(&written);
        }
        rt_bytes_fini(&written);
        rt_batch_fini(&batch);
        ew_event_destroy(event);
        ew_cells_destroy(cells);
        rt_config_fini(&config);
    }
}

static uint32_t allocations, failing; // so far; the number of the one that fails

static void *allocate(size_t size)
{
    if (allocations++ == failing)
        return NULL;
    return malloc(size);
}

// An event is logged whole or not at all: none lacks the value for which there was no memory.
static void is_whole_or_out_of_memory(void **state)
{
    (void)state;
    ew_cells *cells;
    ew_event *event;
    rt_bytes lines = {0};
    rt_error error = {0};
    rt_config config;
    open_event("stream.format=json", LISTS, &config, &cells, &event);
    put(cells, "tags",
        "new\x1f"
        "cheap");
    cJSON_InitHooks(&(cJSON_Hooks){allocate, free});
    rt_status status;
    for (failing = 0;; failing++) {
        allocations = 0;
        status = ew_event_put(event, "e7", 0, &lines, &error);
        if (allocations <= failing)
            break; // none failed
        assert_int_equal(status, RT_NO_MEMORY);
        assert_int_equal(lines.size, 0);
    }
    cJSON_InitHooks(NULL);
    assert_int_equal(status, RT_OK);
    assert_true(failing > 5); // an object, an array, three values
    rt_bytes_put(&lines, "", 1);
    assert_string_equal((const char *)lines.data, "{\"id\":\"e7\",\"tags\":[\"new\",\"cheap\"]}\n");
    rt_bytes_fini(&lines);
    ew_event_destroy(event);
    ew_cells_destroy(cells);
    rt_config_fini(&config);
}

TEST_MAIN(TEST(outlives_its_configuration), TEST(has_the_time_of_the_answer),
          TEST(is_whole_or_out_of_memory))
