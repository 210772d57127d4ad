// Lists of a table of this program's own: what a list says of its elements is enough to read, to
// write and to judge them.
#include <stdlib.h>
#include <string.h>

#include "runtime/config/rt_config_rows.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

typedef struct {
    char name[8];
    bool ripe;
    uint32_t seeds, gram_count;
    double low, high;
    double grams[3];
    int colour;
    char mark;
} fruit;

typedef struct {
    uint32_t fruit_count, label_count, price_count;
    fruit fruits[4];
    char labels[2][8];
    uint64_t prices[3];
} basket;

static const rt_config_choice colours[] = {{"red", 4, ""}, {"green", 9, ""}, {0}};

static rt_status not_hollow(const void *element, const cJSON *value, const char *path,
                            rt_error *error)
{
    (void)value;
    if (((const fruit *)element)->seeds == 0)
        return rt_fail(error, RT_CONFIG, "%s: is hollow", path);
    return RT_OK;
}

#define OBJECT fruit
static const rt_config_key a_weight = {.type = RT_KEY_DOUBLE, IN(0, 100)};
static const rt_config_list grams = {.expected = "a list of at most 3 rising weights",
                                     .count_max = 3,
                                     .element = &a_weight,
                                     .takes_one = true,
                                     .rises = "weight"};
static const rt_config_key fruit_members[] = {
    {TEXT_ROW("name", name, "", "Its name."), .is_required = true},
    BOOL("ripe", ripe, "true", "Whether it is."),
    U32("seeds", seeds, "5", BRIEF(IN(0, 9)), "", "How many."),
    {ROW("both", RT_KEY_DOUBLE, NULL, "", "Low and high."), ABOVE(0, 9),
     .offset = OFFSET(low, double), .also_offset = OFFSET(high, double), .is_short = true},
    DOUBLE("low", low, "1", IN(0, 9), "", "Low."),
    DOUBLE("high", high, "2", BRIEF(IN(0, 9)), "", "High."),
    {LIST_ROW("grams", grams, grams, gram_count, "[]", "g", "Weights."), .is_brief = true},
    {CHOICE_ROW("colour", colour, int, "\"green\"", colours, "Its colour."), .is_brief = true},
    CHARACTER("mark", mark, "+", "+-", "Its mark."),
    {0},
};
#undef OBJECT
#define OBJECT basket
static const rt_config_list fruits = {.expected = "a list of 1 to 4 fruits",
                                      .count_min = 1,
                                      .count_max = 4,
                                      .members = fruit_members,
                                      .kind = "fruit",
                                      .form = "an object",
                                      .check = not_hollow};
static const rt_config_key a_label = {.type = RT_KEY_TEXT, .size = 8};
static const rt_config_list labels = {.expected = "a label, or a list of at most 2",
                                      .count_max = 2,
                                      .element = &a_label,
                                      .takes_one = true};
static const rt_config_key a_price = {.type = RT_KEY_U64, IN(1, 1e15)};
static const rt_config_list prices = {
    .expected = "a list of at most 3 prices", .count_max = 3, .element = &a_price};
static const rt_config_key basket_members[] = {
    LIST("fruits", fruits, fruits, fruit_count, NULL, "", "What is in it."),
    LIST("labels", labels, labels, label_count, "[]", "", "What it says."),
    LIST("prices", prices, prices, price_count, "[]", "", "What it costs."),
    {0},
};

static rt_status read_basket(const char *text, basket *b, rt_error *error)
{
    cJSON *json = cJSON_Parse(text);
    assert_non_null(json);
    memset(b, 0, sizeof *b);
    const rt_status status = rt_config_members_read(basket_members, b, json, "basket", error);
    cJSON_Delete(json);
    return status;
}

static void must_be_written(const char *text, const char *expected)
{
    basket b;
    rt_json json;
    rt_error error = {0};
    if (read_basket(text, &b, &error))
        fail_msg("%s: %s", text, error.text);
    rt_json_init(&json, 0);
    rt_json_begin_object(&json, NULL);
    rt_config_members_write(basket_members, &b, NULL, &json);
    rt_json_end_object(&json);
    assert_string_equal(rt_json_text(&json, NULL), expected);
    rt_json_fini(&json);
}

static void what_is_read_is_written(void **state)
{
    (void)state;
    must_be_written("{\"fruits\": [{\"name\": \"fig\"}]}",
                    "{\"fruits\":[{\"name\":\"fig\",\"ripe\":true,\"low\":1,\"mark\":\"+\"}],"
                    "\"labels\":[],\"prices\":[]}");
    must_be_written(
        "{\"fruits\": [{\"name\": \"a\", \"both\": 3, \"seeds\": 1, \"mark\": \"-\"},"
        " {\"colour\": \"red\", \"name\": \"b\", \"grams\": [1.5, 2], \"ripe\": false},"
        " {\"name\": \"c\", \"grams\": 7, \"colour\": \"green\", \"seeds\": 5, \"high\": 2}],"
        " \"labels\": \"cheap\", \"prices\": [900000000000000, 1]}",
        "{\"fruits\":[{\"name\":\"a\",\"ripe\":true,\"seeds\":1,\"low\":3,\"high\":3,\"mark\":\"-\"},"
        "{\"name\":\"b\",\"ripe\":false,\"low\":1,\"grams\":[1.5,2],\"colour\":\"red\","
        "\"mark\":\"+\"},"
        "{\"name\":\"c\",\"ripe\":true,\"low\":1,\"grams\":[7],\"mark\":\"+\"}],"
        "\"labels\":[\"cheap\"],\"prices\":[900000000000000,1]}");
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"fruits\": []}", "basket.fruits: is empty, expected a list of 1 to 4 fruits"},
        {"{\"fruits\": {}}", "basket.fruits: an object is not a list, expected a list of 1 to 4"},
        {"{\"fruits\": [3]}", "basket.fruits[0]: 3 is no fruit, expected an object"},
        {"{\"fruits\": [{}]}", "basket.fruits[0]: the key \"name\" is missing"},
        {"{\"fruits\": [{\"name\": \"x\", \"seeds\": 0}]}", "basket.fruits[0]: is hollow"},
        {"{\"fruits\": [{\"name\": \"x\", \"seed\": 1}]}",
         "basket.fruits[0].seed: unknown key, did you mean \"seeds\"?"},
        {"{\"fruits\": [{\"name\": \"x\", \"grams\": [2, 2]}]}",
         "basket.fruits[0].grams[1]: is not above the weight before it"},
        {"{\"fruits\": [{\"name\": \"x\", \"grams\": [1, 101]}]}",
         "basket.fruits[0].grams[1]: 101 is out of range, expected a number in [0, 100]"},
        {"{\"fruits\": [{\"name\": \"x\", \"grams\": \"much\"}]}",
         "basket.fruits[0].grams: \"much\" is not a number, expected a list of at most 3"},
        {"{\"labels\": [\"a\", \"b\", \"c\"]}",
         "basket.labels: has 3 elements, expected a label, or a list of at most 2"},
        {"{\"labels\": [\"a\", 1]}", "basket.labels[1]: 1 is not a string"},
        {"{\"labels\": 1}", "basket.labels: 1 is not a list, expected a label"},
        {"{\"prices\": [0.5]}", "basket.prices[0]: 0.5 is not an integer"},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        basket b;
        rt_error error = {0};
        assert_int_equal(read_basket(cases[i][0], &b, &error), RT_CONFIG);
        if (!strstr(error.text, cases[i][1]))
            fail_msg("\"%s\", expected \"%s\"", error.text, cases[i][1]);
    }
}

// The lists of the program: whatever a table says that a configuration owns, a copy owns anew.
static void a_copy_owns_what_it_has(void **state)
{
    (void)state;
    rt_config config = config_fresh(), copy;
    uint32_t owned = 0;
    for (const rt_config_key *key = rt_config_keys; key->path; key++) {
        char set[128];
        if (!key->list || !key->list->is_owned)
            continue;
        snprintf(set, sizeof set, "%s=%s", key->path,
                 key->list->members ? "[{\"kind\":\"ignore\"},{\"kind\":\"id\"}]"
                                    : "[\"a\",\"bc\"]");
        config_must_set(&config, set);
        owned++;
    }
    assert_int_equal(owned, 4);
    char *before = config_json(&config);
    assert_int_equal(rt_config_copy(&config, &copy), RT_OK);
    for (const rt_config_key *key = rt_config_keys; key->path; key++) {
        void *one, *other;
        if (!key->list || !key->list->is_owned)
            continue;
        memcpy(&one, (const char *)&config + key->offset, sizeof one);
        memcpy(&other, (const char *)&copy + key->offset, sizeof other);
        if (!one || !other || one == other)
            fail_msg("%s: the copy has none, or the other's", key->path);
    }
    rt_config_fini(&config);
    char *after = config_json(&copy);
    assert_string_equal(after, before);
    rt_free(before), rt_free(after);
    rt_config_fini(&copy);
}

// What completion offers for a key is taken by it.
static void words_that_are_offered_are_taken(void **state)
{
    (void)state;
    static const char *const some[][2] = {{"dispatch.participants", "rotate"},
                                          {"consistency.staleness", "inf"},
                                          {"dispatch.alpha", "auto"},
                                          {"links.pin", "true"},
                                          {"cache.eviction", "lru"}};
    rt_config config = config_fresh();
    uint32_t found = 0;
    const char *path, *word;
    for (uint32_t i = 0; (path = rt_config_key_path(i)); i++) {
        for (uint32_t k = 0; (word = rt_config_key_word(i, k)); k++) {
            char set[128];
            snprintf(set, sizeof set, "%s=%s", path, word);
            config_must_set(&config, set);
            for (size_t s = 0; s < RT_COUNT_OF(some); s++)
                found += strcmp(path, some[s][0]) == 0 && strcmp(word, some[s][1]) == 0;
        }
    }
    assert_int_equal(found, RT_COUNT_OF(some));
    rt_config_fini(&config);
}

TEST_MAIN(TEST(what_is_read_is_written), TEST(what_is_wrong_is_named),
          TEST(a_copy_owns_what_it_has), TEST(words_that_are_offered_are_taken))
