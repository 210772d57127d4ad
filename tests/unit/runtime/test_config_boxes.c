// "boxes": what follows from them, and what may not stand beside them.
#include "tests/support/test.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/config_case.h"

#define BOX(name, rest) "{\"name\": \"" name "\", \"gbps\": 0.5" rest "}"
#define FOUR                                                                              \
    "boxes=[{\"name\": \"a\", \"gbps\": 0.5, \"shards\": 1},"                             \
    "{\"name\": \"b\", \"gbps\": 0.5, \"workers\": 2},"                                   \
    "{\"name\": \"c\", \"gbps_up\": 1, \"gbps_down\": 2, \"workers\": 0, \"shards\": 2}," \
    "{\"name\": \"d\", \"gbps\": 0.5}]"

static void workers_shards_and_links_follow(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    rt_error error = {0};
    config_must_set(&config, "stream.files=x");
    config_must_set(&config, "workers=17");
    config_must_set(&config, FOUR);
    assert_int_equal(config.worker_count, 4);
    assert_int_equal(config.links.given_count, 4);
    assert_int_equal(config.ps_shard_count, 3);
    assert_int_equal(config.network_ps_count, 0);
    const uint32_t workers[] = {0, 1, 1, 3}, shards[] = {0, 2, 2};
    for (uint32_t j = 0; j < 4; j++) {
        assert_int_equal(rt_config_box_of_worker(&config, j), workers[j]);
        assert_true(config.links.workers[j].gbps_up == 0.5);
    }
    for (uint32_t s = 0; s < 3; s++)
        assert_int_equal(rt_config_box_of_shard(&config, s), shards[s]);
    assert_int_equal(rt_config_box_of_worker(&config, 4), RT_SITE_BOXES_MAX);
    assert_int_equal(rt_config_check(&config, &error), RT_OK);
    rt_config_keep_members(&config, 0xd, UINT64_MAX); // without the first one of b
    assert_int_equal(config.worker_count, 3);
    assert_int_equal(rt_config_box_of_worker(&config, 1), 1);
    assert_int_equal(rt_config_box_of_worker(&config, 2), 3);
    assert_int_equal(rt_config_check(&config, &error), RT_OK);
    rt_config_fini(&config);
}

// Of a, b, c and d the second and the last one stay away: ranks close up, with links and addresses.
static void spare_boxes_stay_away(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    rt_error error = {0};
    uint64_t workers, shards;
    config_must_set(&config, "stream.files=x");
    config_must_set(
        &config, "boxes=[{\"name\": \"a\", \"gbps\": 0.5, \"shards\": 1, \"host\": \"h1\"},"
                 "{\"name\": \"b\", \"gbps\": 2, \"shards\": 2, \"host\": \"h2\", \"spare\": true},"
                 "{\"name\": \"c\", \"gbps\": 3, \"workers\": 2, \"shards\": 1, \"host\": \"h3\"},"
                 "{\"name\": \"d\", \"gbps\": 0.5, \"spare\": true}]");
    assert_int_equal(rt_config_first_boxes(&config), 5);
    rt_config_members_of_boxes(&config, 5, &workers, &shards);
    assert_int_equal(workers, 0xd); // of a, b, c, c, d
    assert_int_equal(shards, 0x9);  // of a, b, b, c
    rt_config_leave_spares(&config);
    assert_int_equal(config.worker_count, 3);
    assert_int_equal(config.ps_shard_count, 2);
    assert_int_equal(config.network_ps_count, 2);
    assert_string_equal(config.network_ps[1], "h3:7001");
    assert_string_equal(config.network_ps[2], "");
    assert_true(config.links.workers[1].gbps_up == 3);
    assert_int_equal(rt_config_box_of_worker(&config, 2), 2);
    assert_int_equal(rt_config_box_of_shard(&config, 1), 2);
    assert_int_equal(rt_config_check(&config, &error), RT_OK);
    assert_int_equal(
        rt_config_set(&config,
                      "boxes=[" BOX("a", ", \"shards\": 1, \"spare\": true") "," BOX("b", "") "]",
                      &error),
        RT_CONFIG);
    assert_non_null(strstr(error.text, "there is no shard at the start"));
    rt_config_fini(&config);
}

static void addresses_follow(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    config_must_set(&config, "boxes=[" BOX("a", ", \"shards\": 2, \"host\": \"10.0.0.1\"") "," BOX(
                                 "b", ", \"shards\": 1, \"host\": \"shop\", \"port\": 9") "]");
    assert_int_equal(config.network_ps_count, 3);
    assert_string_equal(config.network_ps[0], "10.0.0.1:7001");
    assert_string_equal(config.network_ps[1], "10.0.0.1:7002");
    assert_string_equal(config.network_ps[2], "shop:9");
    config_must_set(&config, "boxes=[" BOX("a", ", \"shards\": 1, \"host\": \"fd00::5\"") "," BOX(
                                 "b", ", \"shards\": 1, \"host\": \"[::1]\"") "]");
    assert_string_equal(config.network_ps[0], "[fd00::5]:7001");
    assert_string_equal(config.network_ps[1], "[::1]:7001");
    rt_config_fini(&config);
}

// All keys as text; the caller's.
static char *text_of(const rt_config *config)
{
    char *text = NULL;
    assert_int_equal(rt_config_to_json(config, &text), RT_OK);
    return text;
}

#define HOST(name, host, rest) BOX(name, ", \"shards\": 1, \"host\": \"" host "\"" rest)

// As if it had stood there, behind the others; and without it all is as before, and so is the hash
// on which members agree.
static void a_box_more_stands_behind_the_others(void **state)
{
    (void)state;
    static const char *const sites[][3] = {
        {HOST("a", "h1", "") "," HOST("b", "h2", ""), HOST("c", "h3", ""),
         HOST("c", "h3", ", \"spare\": true")},
        {BOX("a", ", \"shards\": 2") "," BOX("b", ", \"workers\": 3"),
         "{\"name\": \"c\", \"gbps_up\": 0.1, \"gbps_down\": 0.3, \"workers\": 2, "
         "\"transport\": \"zmq\"}",
         "{\"name\": \"c\", \"gbps_up\": 0.1, \"gbps_down\": 0.3, \"workers\": 2, "
         "\"transport\": \"zmq\", \"spare\": true}"}};
    for (size_t i = 0; i < RT_COUNT_OF(sites); i++) {
        char set[1024];
        rt_error error = {0};
        rt_config given = config_fresh(), whole = config_fresh();
        snprintf(set, sizeof set, "boxes=[%s]", sites[i][0]);
        config_must_set(&given, set);
        snprintf(set, sizeof set, "boxes=[%s,%s]", sites[i][0], sites[i][2]);
        config_must_set(&whole, set);
        char *before = text_of(&given), *want = text_of(&whole);
        if (rt_config_add_box(&given, sites[i][1], &error))
            fail_msg("%s", error.text);
        char *got = text_of(&given);
        assert_string_equal(got, want);
        assert_true(given.boxes[2].spare);
        assert_int_equal(rt_config_site_boxes(&given), 2);
        rt_config_leave_last_spares(&given);
        char *after = text_of(&given);
        assert_string_equal(after, before);
        rt_free(before), rt_free(want), rt_free(got), rt_free(after);
        rt_config_fini(&given);
        rt_config_fini(&whole);
    }
}

static void who_comes_later_takes_part_in_a_list(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    config_must_set(&config, "boxes=[" BOX("a", ", \"shards\": 1") "," BOX("b", "") "]");
    config_must_set(&config, "dispatch.participants=[0,1]");
    char *before = text_of(&config);
    assert_int_equal(rt_config_add_box(&config, BOX("c", ""), NULL), RT_OK);
    assert_int_equal(config.dispatch.participant_mask, 7);
    rt_config_leave_last_spares(&config);
    char *after = text_of(&config);
    assert_string_equal(after, before);
    rt_free(before), rt_free(after);
    rt_config_fini(&config);
}

static void a_box_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {BOX("a", ", \"workers\": 2"), "is also the name of box 0"},
        {"{\"name\": \"c\"}", "expected either"},
        {"{\"gbps\": 1}", "\"name\" is missing"},
        {BOX("c", ", \"workers\": 64"), "65 workers"},
        {BOX("c", ", \"workers\": 0"), "neither a worker nor a shard"},
        {BOX("c", ", \"shards\": 1, \"host\": \"h\""), "the others have none"},
        {BOX("c", ", \"colour\": 1"), "colour"},
        {"[1]", "is no box"},
        {"nonsense", "no JSON object"}};
    rt_config config = config_fresh();
    config_must_set(&config, "boxes=[" BOX("a", ", \"shards\": 1") "]");
    char *before = text_of(&config);
    for (size_t i = 0; i < RT_COUNT_OF(wrong); i++) {
        rt_error error = {0};
        assert_int_equal(rt_config_add_box(&config, wrong[i][0], &error), RT_CONFIG);
        if (!strstr(error.text, wrong[i][1]))
            fail_msg("\"%s\", expected \"%s\"", error.text, wrong[i][1]);
        char *after = text_of(&config);
        assert_string_equal(after, before);
        rt_free(after);
    }
    rt_free(before);
    rt_config_fini(&config);
}

static void the_hash_of_a_box_is_that_of_its_entry(void **state)
{
    (void)state;
    rt_config one = config_fresh(), other = config_fresh();
    config_must_set(&one, "boxes=[" BOX("a", ", \"shards\": 1") "," BOX("b", "") "]");
    config_must_set(&other,
                    "boxes=[" BOX("a", ", \"shards\": 2") "," BOX("b", ", \"spare\": true") "]");
    assert_true(rt_config_hash_box(&one, 0) != rt_config_hash_box(&other, 0));
    assert_true(rt_config_hash_box(&one, 1) == rt_config_hash_box(&other, 1));
    assert_true(rt_config_hash_box(&one, 0) != rt_config_hash_box(&one, 1));
    assert_true(rt_config_hash_box(&one, 2) == 0);
    assert_true(rt_config_hash_box(&one, rt_config_box_of_worker(&one, 2)) == 0);
    rt_config_fini(&one);
    rt_config_fini(&other);
}

static void must_say(const char *const *sets, const char *text)
{
    rt_config config = config_fresh();
    rt_error error = {0};
    rt_status status = RT_OK;
    for (; *sets && !status; sets++)
        status = rt_config_set(&config, *sets, &error);
    if (!status)
        status = rt_config_check(&config, &error);
    assert_int_equal(status, RT_CONFIG);
    if (!strstr(error.text, text))
        fail_msg("\"%s\", expected \"%s\"", error.text, text);
    rt_config_fini(&config);
}

#define SAYS(text, ...) must_say((const char *const[]){"stream.files=x", __VA_ARGS__, NULL}, text)

static void what_contradicts_is_refused_by_name(void **state)
{
    (void)state;
    SAYS("workers: says something else than boxes", FOUR, "workers=5");
    SAYS("ps.shards: says something else than boxes", FOUR, "ps.shards=1");
    SAYS("links.workers: says something else than boxes", FOUR, "links.workers=[1, 1, 1, 1]");
    SAYS("links.ps_gbps: says something else than boxes", FOUR, "links.ps_gbps=1");
    SAYS("network.ps: says something else than boxes", FOUR,
         "network.ps=[\"x:1\", \"x:2\", \"x:3\"]");
    SAYS("boxes[1]: \"a\" is also the name of box 0",
         "boxes=[" BOX("a", ", \"shards\": 1") "," BOX("a", "") "]");
    SAYS("boxes: 1 workers and 0 shards", "boxes=[" BOX("a", "") "]");
    SAYS("boxes[0]: box \"a\" has neither a worker nor a shard",
         "boxes=[" BOX("a", ", \"workers\": 0") "]");
    SAYS("boxes[0]: expected either \"gbps\"", "boxes=[{\"name\": \"a\", \"shards\": 1}]");
    SAYS("boxes[0]: the key \"name\" is missing", "boxes=[{\"gbps\": 1, \"shards\": 1}]");
    SAYS("boxes[0]: 5 is no box", "boxes=[5]");
    SAYS(
        "boxes[1]: box \"b\" has shards and no \"host\"",
        "boxes=[" BOX("a", ", \"shards\": 1, \"host\": \"x\"") "," BOX("b", ", \"shards\": 1") "]");
}

static void homes_need_boxes(void **state)
{
    (void)state;
    SAYS("ps.homes: \"planned\" needs to know", "ps.homes=planned");
    SAYS("consistency.staleness: not with ps.homes", FOUR, "ps.homes=planned",
         "consistency.staleness=3");
    SAYS("dispatch.first_touch: not with ps.homes", FOUR, "ps.homes=planned",
         "dispatch.first_touch=pull");
}

// In a file other keys show wherever they stand; what a file includes is overridden.
static void order_in_a_file_means_nothing(void **state)
{
    (void)state;
    const char *const texts[] = {"{\"workers\": 3, \"boxes\": [" BOX("a", ", \"shards\": 1") "]}",
                                 "{\"boxes\": [" BOX("a", ", \"shards\": 1") "], \"workers\": 3}"};
    for (uint32_t i = 0; i < 2; i++) {
        rt_config config = config_fresh();
        rt_error error = {0};
        assert_int_equal(rt_config_load(&config, config_write_file("boxes.json", texts[i]), &error),
                         RT_OK);
        config_must_set(&config, "stream.files=x");
        assert_int_equal(rt_config_check(&config, &error), RT_CONFIG);
        assert_non_null(strstr(error.text, "workers: says something else than boxes"));
        rt_config_fini(&config);
    }
}

// `up` hands its processes the whole configuration: it must come back as it was.
static void written_and_read_again(void **state)
{
    (void)state;
    rt_config config = config_fresh(), again = config_fresh();
    rt_error error = {0};
    char *json;
    uint32_t at = 0;
    config_must_set(&config, FOUR);
    config_must_set(&config, "ps.homes=planned");
    assert_int_equal(rt_config_to_json(&config, &json), RT_OK);
    assert_int_equal(rt_config_load(&again, config_write_file("boxes.json", json), &error), RT_OK);
    assert_null(rt_config_difference(&config, &again, &at));
    rt_free(json);
    rt_config_fini(&config);
    rt_config_fini(&again);
}

// A model of a run that went on without the only worker of a box says who trained it, and can be
// read.
static void written_without_a_box(void **state)
{
    (void)state;
    rt_config config = config_fresh(), again = config_fresh();
    rt_error error = {0};
    config_must_set(&config, FOUR);
    rt_config_keep_members(&config, 0x7, UINT64_MAX); // without that of d
    char *json = config_json(&config);
    if (rt_config_load(&again, config_write_file("boxes.json", json), &error))
        fail_msg("%s", error.text);
    assert_int_equal(again.box_count, 3);
    assert_int_equal(again.worker_count, 3);
    rt_free(json);
    rt_config_fini(&config);
    rt_config_fini(&again);
}

TEST_MAIN(TEST(workers_shards_and_links_follow), TEST(addresses_follow),
          TEST(spare_boxes_stay_away), TEST(a_box_more_stands_behind_the_others),
          TEST(who_comes_later_takes_part_in_a_list), TEST(a_box_that_does_not_fit_is_refused),
          TEST(the_hash_of_a_box_is_that_of_its_entry), TEST(what_contradicts_is_refused_by_name),
          TEST(homes_need_boxes), TEST(order_in_a_file_means_nothing), TEST(written_and_read_again),
          TEST(written_without_a_box))
