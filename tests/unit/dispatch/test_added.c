// Boxes that were added to a run: what is kept of them from one start to the next.
#include "dispatch/coordinator/dp_members.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/support/config_case.h"
#include "tests/support/test.h"

#define BOX(name, rest) "{\"name\": \"" name "\", \"gbps\": 0.5" rest "}"
#define TWO "boxes=[" BOX("a", ", \"shards\": 1") "," BOX("b", "") "]"

static rt_config config_of(const char *boxes)
{
    rt_config config = config_fresh();
    config_must_set(&config, boxes);
    return config;
}

static dp_added read(rt_config *config, rt_status want, const char *text)
{
    dp_added added;
    rt_error error = {0};
    assert_int_equal(dp_members_read_added(test_path("x"), config, &added, &error), want);
    if (!strstr(error.text, text))
        fail_msg("\"%s\", expected \"%s\"", error.text, text);
    return added;
}

// c with a key, awaited; d without. a and c take part.
static void write_some(void)
{
    rt_config config = config_of(TWO);
    dp_added added = {.first = 2, .count = 2};
    dp_members members = {.boxes = 5};
    rt_error error = {0};
    assert_int_equal(rt_config_add_box(&config, BOX("c", ", \"workers\": 2, \"port\": 9"), NULL),
                     RT_OK);
    assert_int_equal(rt_config_add_box(&config, BOX("d", ", \"shards\": 1"), NULL), RT_OK);
    added.of[0].has_key = added.of[0].awaited = true;
    strcpy(added.of[0].key.name, "till");
    memset(added.of[0].key.bytes, 0x5a, sizeof added.of[0].key.bytes);
    if (dp_members_write(&config, test_path("x"), &members, &added, &error))
        fail_msg("%s", error.text);
    rt_config_fini(&config);
}

static void who_starts_again_knows_them(void **state)
{
    (void)state;
    rt_config config = config_of(TWO);
    dp_members members;
    write_some();
    dp_added added = read(&config, RT_OK, "");
    assert_true(added.first == 2 && added.count == 2);
    assert_true(added.of[0].has_key && added.of[0].awaited);
    assert_false(added.of[1].has_key || added.of[1].awaited);
    assert_string_equal(added.of[0].key.name, "till");
    assert_int_equal(added.of[0].key.bytes[31], 0x5a);
    assert_non_null(dp_added_find_key(&added, added.of[0].key.bytes));
    assert_null(dp_added_find_key(&added, added.of[1].key.bytes));
    assert_int_equal(config.box_count, 4);
    assert_int_equal(config.worker_count, 5); // of a, b, c, c, d
    assert_int_equal(config.boxes[2].port, 9);
    assert_true(config.boxes[2].spare && config.boxes[3].spare);
    assert_int_equal(dp_members_read(&config, test_path("x"), &members, NULL), RT_OK);
    assert_int_equal(members.boxes, 5);
    assert_int_equal(members.workers, 0xd);
    rt_wire_allowed all[RT_SITE_BOXES_MAX];
    assert_int_equal(dp_added_list(&added, all), 1);
    assert_string_equal(all[0].name, "till");
    dp_added_joined(&added, members.boxes);
    assert_false(added.of[0].awaited);
    rt_config_fini(&config);
}

static void a_run_without_them_has_none(void **state)
{
    (void)state;
    rt_config config = config_of(TWO);
    assert_int_equal(read(&config, RT_OK, "").count, 0);
    assert_int_equal(config.box_count, 2);
    rt_config_fini(&config);
}

// Callers look at them whatever comes back.
static void of_a_file_that_cannot_be_opened_there_are_none(void **state)
{
    (void)state;
    rt_config config = config_of(TWO);
    char folder[300];
    dp_added added;
    rt_error error = {0};
    memset(folder, 'x', sizeof folder - 1); // longer than a name may be
    folder[sizeof folder - 1] = '\0';
    memset(&added, 0xff, sizeof added);
    assert_int_not_equal(dp_members_read_added(folder, &config, &added, &error), RT_OK);
    assert_int_equal(added.count, 0);
    assert_int_equal(config.box_count, 2);
    rt_config_fini(&config);
}

// Somebody has written them into the configuration: that is what counts, where they stand in order.
static void the_configuration_may_have_them_too(void **state)
{
    (void)state;
    rt_config config = config_of("boxes=[" BOX("a", ", \"shards\": 1") "," BOX("b", "") "," BOX(
        "c", ", \"workers\": 3") "]");
    write_some();
    assert_int_equal(read(&config, RT_OK, "").count, 2);
    assert_int_equal(config.box_count, 4);
    assert_int_equal(config.boxes[2].worker_count, 3);
    assert_false(config.boxes[2].spare);
    rt_config_fini(&config);
}

static void other_places_are_refused(void **state)
{
    (void)state;
    rt_config config =
        config_of("boxes=[" BOX("a", ", \"shards\": 1") "," BOX("b", "") "," BOX("d", "") "]");
    write_some();
    (void)read(&config, RT_CONFIG, "box \"c\" was added as number 3 of boxes, which is \"d\"");
    rt_config_fini(&config);
    config = config_of("boxes=[" BOX("a", ", \"shards\": 1") "]");
    (void)read(&config, RT_CONFIG,
               "box \"c\" was added as number 3 of boxes, of which the configuration has only 1: "
               "none may be taken out");
    rt_config_fini(&config);
}

static void broken_files_are_named(void **state)
{
    (void)state;
    static const char *const broken[] = {
        "{\"added\": [1]}",
        "{\"added\": [{\"at\": 2}]}",
        "{\"added\": [{\"at\": -1, \"box\": " BOX("c", "") "}]}",
        "{\"added\": [{\"at\": 64, \"box\": " BOX("c", "") "}]}",
        "{\"added\": [{\"at\": 2, \"box\": " BOX("c", "") "}, {\"at\": 4, \"box\": " BOX("d",
                                                                                         "") "}]}",
        "{\"added\": [{\"at\": 2, \"box\": " BOX("c", "") ", \"key\": {\"name\": \"c\"}}]}",
        "{\"added\": [{\"at\": 2, \"box\": " BOX("c", "") ", \"key\": {\"name\": \"c\", "
                                                          "\"public\": \"short\"}}]}"};
    write_some();
    for (size_t i = 0; i < RT_COUNT_OF(broken); i++) {
        rt_config config = config_of(TWO);
        FILE *file = fopen(test_path("x/boxes"), "w");
        assert_non_null(file);
        assert_true(fputs(broken[i], file) >= 0);
        fclose(file);
        (void)read(&config, RT_DATA, "x/boxes: added: expected");
        rt_config_fini(&config);
    }
}

TEST_MAIN(TEST(who_starts_again_knows_them), TEST(a_run_without_them_has_none),
          TEST(of_a_file_that_cannot_be_opened_there_are_none),
          TEST(the_configuration_may_have_them_too), TEST(other_places_are_refused),
          TEST(broken_files_are_named))
