// The model that a run begins with: what is read of it, and every difference that is named.
#include "dispatch/coordinator/dp_initial.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/files/rt_manifest.h"
#include "runtime/rt_hash.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

// What is wrong with the files of a model.
typedef enum { NOTHING, NO_SHARDS, NO_ROWS, OF_A_CHECKPOINT, NO_SCALE, TORN, NO_DENSE } fault;

static const char dense[] = "dense weights";

static const char *folder(void)
{
    static char path[512];
    snprintf(path, sizeof path, "%s", test_path("model"));
    return path;
}

static rt_config config_of(const char *const *sets)
{
    rt_config config = config_fresh();
    config_must_set(&config, "stream.format=synthetic");
    for (; sets && *sets; sets++)
        config_must_set(&config, *sets);
    return config;
}

static void put_part(rt_json *json, const char *name, const void *bytes, size_t size, fault which)
{
    char path[600];
    const bool is_model = which != OF_A_CHECKPOINT;
    const rt_manifest_part part = {.sum = {size, 7},
                                   .xxh3 = rt_hash_bytes(bytes, size),
                                   .has_hash = !is_model,
                                   .has_xxh3 = is_model};
    snprintf(path, sizeof path, "%s/%s", folder(), name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(bytes, 1, which == TORN ? size - 1 : size, file);
    assert_int_equal(fclose(file), 0);
    rt_manifest_put_part(json, name, &part);
}

static void put_scale(rt_json *json, const rt_config *config)
{
    static rt_schema schema;
    rt_scale *scale;
    rt_tensor tensors[RT_SCALE_TENSORS];
    rt_bytes bytes = {0};
    assert_int_equal(rt_stream_read_schema(&config->stream, config->seed, &schema, NULL), RT_OK);
    assert_int_equal(rt_scale_create(schema.dense_count, 1, &scale), RT_OK);
    rt_scale_tensors(scale, tensors);
    assert_int_equal(rt_tensors_encode(tensors, RT_SCALE_TENSORS, &bytes), RT_OK);
    put_part(json, "scale.bin", bytes.data, bytes.size, NOTHING);
    rt_scale_destroy(scale);
    rt_bytes_fini(&bytes);
}

// A model of two shards, in the folder of the case.
static void write_model(const char *const *sets, fault which)
{
    rt_config config = config_of(sets);
    rt_json json;
    rt_error error = {0};
    char *text = config_json(&config);
    (void)mkdir(folder(), 0700);
    rt_manifest_begin(&json, "model");
    rt_json_u64(&json, "iteration", 12);
    rt_json_u64(&json, "samples", (UINT64_C(1) << 40) + 1);
    rt_json_u64(&json, "scale_samples", 77);
    rt_json_u64(&json, "shards", which == NO_SHARDS ? 0 : 2);
    rt_json_begin_array(&json, "parts");
    put_part(&json, "config.json", text, strlen(text), NOTHING);
    put_part(&json, "dense.bin", dense, strlen(dense), which == TORN ? TORN : NOTHING);
    put_part(&json, "rows-000-of-002.bin", "rows", 4, which == OF_A_CHECKPOINT ? which : NOTHING);
    if (which != NO_ROWS)
        put_part(&json, "rows-001-of-002.bin", "more rows", 9, NOTHING);
    if (which != NO_SCALE)
        put_scale(&json, &config);
    rt_json_end_array(&json);
    assert_int_equal(rt_manifest_write(&json, folder(), &error), RT_OK);
    rt_free(text);
    rt_config_fini(&config);
}

static rt_status read(const char *const *sets, dp_initial *initial, rt_error *error)
{
    static rt_schema schema;
    rt_config config = config_of(sets);
    assert_int_equal(rt_stream_read_schema(&config.stream, config.seed, &schema, NULL), RT_OK);
    const rt_status status = dp_initial_read(folder(), &config, &schema, initial, error);
    rt_config_fini(&config);
    return status;
}

static void refuse(const char *const *sets, rt_status want, const char *says)
{
    dp_initial initial;
    const dp_initial none = {0};
    rt_error error = {0};
    const rt_status status = read(sets, &initial, &error);
    if (status != want || !strstr(error.text, says) || strncmp(error.text, "--init", 6) != 0)
        fail_msg("%d: \"%s\", expected %d: \"%s\"", status, error.text, want, says);
    assert_memory_equal(&initial, &none, sizeof none);
}

static void all_of_it_is_read(void **state)
{
    (void)state;
    static const char *const planned[] = {"ps.homes=planned", NULL};
    for (uint32_t has_homes = 0; has_homes < 2; has_homes++) {
        dp_initial initial;
        rt_error error = {0};
        write_model(has_homes ? planned : NULL, NOTHING);
        if (read(NULL, &initial, &error))
            fail_msg("%s", error.text);
        const dp_saved *saved = &initial.saved;
        assert_int_equal(saved->iteration, 0);
        assert_true(saved->samples == (UINT64_C(1) << 40) + 1);
        assert_int_equal(saved->count, 1);
        assert_int_equal(saved->dense.size, strlen(dense));
        assert_memory_equal(saved->dense.data, dense, strlen(dense));
        const rt_wire_load *load = &saved->loads[0];
        assert_int_equal(load->flags, RT_WIRE_LOAD_MODEL | (has_homes ? RT_WIRE_LOAD_HOMES : 0));
        assert_int_equal(load->shard_count, 2);
        assert_int_equal(load->files[0].bytes, 4);
        assert_int_equal(load->files[1].bytes, 9);
        assert_true(load->files[0].hash == rt_hash_bytes("rows", 4));
        assert_true(load->files[1].hash == rt_hash_bytes("more rows", 9));
        assert_string_equal(load->folder, folder());
        assert_non_null(initial.scale);
        assert_int_equal(rt_scale_samples(initial.scale), 77);
        dp_initial_fini(&initial);
        assert_null(initial.scale);
    }
}

#define SETS(...) ((const char *const[]){__VA_ARGS__, NULL})

// Each differs in one thing from the model, which has two fields of layers.
static void differences_are_named(void **state)
{
    (void)state;
    static const char *const own[] = {"model.name=wdl", "model.mlp=[8, 4]", "model.embedding_dim=4",
                                      NULL};
    static const struct {
        const char *set, *says;
    } cases[] = {
        {"model.name=dcn", "its model.name is wdl, this run has dcn"},
        {"model.embedding_dim=6", "its model.embedding_dim is 4, this run has 6"},
        {"optimizer.rows.name=sgd", "its optimizer.rows.name is adagrad, this run has sgd"},
        {"model.mlp=[8]", "its number of layers (model.mlp) is 2, this run has 1"},
        {"model.mlp=[8, 5]", "its width of a layer (model.mlp) is 4, this run has 5"},
        {"model.mlp=[9, 4]", "its width of a layer (model.mlp) is 8, this run has 9"},
        {"model.pooling=mean", "its model.pooling is sum, this run has mean"},
        {"stream.dense_scaling=none", "its stream.dense_scaling is standard, this run has none"},
    };
    write_model(own, NOTHING);
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++)
        refuse(SETS(own[0], own[1], own[2], cases[i].set), RT_CONFIG, cases[i].says);
    dp_initial initial;
    rt_error error = {0};
    if (read(SETS(own[0], own[1], own[2], "stream.synthetic.labels=2"), &initial, &error))
        fail_msg("%s", error.text); // a label more
    dp_initial_fini(&initial);
    write_model(SETS(own[0], own[1], own[2], "stream.synthetic.labels=2"), NOTHING);
    refuse(own, RT_CONFIG, "its number of labels is 2, this run has 1");
}

#define COLUMN(name, kind) "{\"name\":\"" name "\",\"kind\":\"" kind "\"}"
#define TABLE(...) "stream.table.columns=[" COLUMN("y", "label") "," __VA_ARGS__ "]"

// Of columns the run's may go on behind the model's.
static void columns_are_those_of_the_model(void **state)
{
    (void)state;
    static const char format[] = "stream.format=table", none[] = "stream.dense_scaling=none";
    static const char some[] = TABLE(COLUMN("a", "categorical") "," COLUMN("b", "categorical"));
    static const struct {
        const char *columns, *says;
    } cases[] = {
        {TABLE(COLUMN("a", "categorical")), "its number of fields is 2, this run has 1"},
        {TABLE(COLUMN("a", "categorical") "," COLUMN("c", "categorical")),
         "its field 1 is \"b\", this run's is \"c\""},
        {TABLE(COLUMN("b", "categorical") "," COLUMN("a", "categorical")),
         "its field 0 is \"a\", this run's is \"b\""},
        {TABLE(COLUMN("a", "categorical") "," COLUMN("b", "categorical") "," COLUMN("x", "dense")),
         "its number of dense features is 0, this run has 1"},
        {"stream.table.columns=[{\"name\":\"y\",\"kind\":\"label\",\"classes\":3}," COLUMN(
             "a", "categorical") "," COLUMN("b", "categorical") "]",
         "its number of classes is 0, this run has 3"},
    };
    write_model(SETS(format, some, none), NO_SCALE);
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++)
        refuse(SETS(format, cases[i].columns, none), RT_CONFIG, cases[i].says);
    refuse(SETS(format, some, none, "stream.tables=[\"b=a\"]"), RT_CONFIG,
           "its field \"b\" has the rows of \"b\", this run's those of \"a\" (stream.tables)");
    refuse(NULL, RT_CONFIG, "its stream.format is table, this run has synthetic");
    dp_initial initial;
    rt_error error = {0};
    if (read(SETS(format, none,
                  TABLE(COLUMN("a", "categorical") "," COLUMN("b", "categorical") "," COLUMN(
                      "c", "categorical"))),
             &initial, &error))
        fail_msg("%s", error.text);
    assert_null(initial.scale);
    dp_initial_fini(&initial);
}

// Of several labels each is known by its name; more may come behind those of the model.
static void labels_are_those_of_the_model(void **state)
{
    (void)state;
    static const char format[] = "stream.format=table", none[] = "stream.dense_scaling=none";
    static const char two[] = TABLE(COLUMN("z", "label") "," COLUMN("a", "categorical"));
    static const char other[] = TABLE(COLUMN("w", "label") "," COLUMN("a", "categorical"));
    static const char more[] =
        TABLE(COLUMN("z", "label") "," COLUMN("v", "label") "," COLUMN("a", "categorical"));
    dp_initial initial;
    rt_error error = {0};
    write_model(SETS(format, two, none), NO_SCALE);
    refuse(SETS(format, other, none), RT_CONFIG,
           "its label 1 is \"z\", this run's is \"w\": more labels come behind those of the model");
    if (read(SETS(format, two, none), &initial, &error))
        fail_msg("%s", error.text);
    dp_initial_fini(&initial);
    if (read(SETS(format, more, none), &initial, &error))
        fail_msg("%s", error.text);
    dp_initial_fini(&initial);
}

// What models of one kind have: din its history and the layers that weigh it, graphsage the numbers
// of neighbours. A model of another kind has such keys, too, and they say nothing of it.
static void keys_of_one_kind_of_model(void **state)
{
    (void)state;
    static const char *const din[] = {"model.name=din", "model.sequence=seen", "model.target=item",
                                      "model.attention=[8, 4]", NULL};
    static const char *const sage[] = {"model.name=graphsage", "model.fan_out=5", NULL};
    static const struct {
        const char *set, *says;
    } cases[] = {
        {"model.sequence=bought", "its model.sequence is seen, this run has bought"},
        {"model.target=shop", "its model.target is item, this run has shop"},
        {"model.attention=[8]", "its number of layers (model.attention) is 2, this run has 1"},
        {"model.attention=[8, 5]", "its width of a layer (model.attention) is 4, this run has 5"},
        {"model.attention=[9, 4]", "its width of a layer (model.attention) is 8, this run has 9"},
    };
    dp_initial initial;
    rt_error error = {0};
    write_model(din, NOTHING);
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++)
        refuse(SETS(din[0], din[1], din[2], din[3], cases[i].set), RT_CONFIG, cases[i].says);
    if (read(SETS(din[0], din[1], din[2], din[3], "model.fan_out=7"), &initial, &error))
        fail_msg("%s", error.text);
    dp_initial_fini(&initial);
    write_model(sage, NOTHING);
    refuse(SETS(sage[0], "model.fan_out=6"), RT_CONFIG, "its model.fan_out is 5, this run has 6");
    if (read(SETS(sage[0], sage[1], "model.sequence=bought"), &initial, &error))
        fail_msg("%s", error.text);
    dp_initial_fini(&initial);
}

static void files_that_cannot_be(void **state)
{
    (void)state;
    static const struct {
        fault which;
        rt_status status;
        const char *says;
    } cases[] = {
        {NO_SHARDS, RT_DATA, "manifest.json does not say how many shards"},
        {NO_ROWS, RT_DATA, "manifest.json does not name rows-001-of-002.bin"},
        {OF_A_CHECKPOINT, RT_CONFIG, "a checkpoint; `lanyard export` makes a model of it"},
        {NO_SCALE, RT_CONFIG, "its stream.dense_scaling is none, this run has standard"},
        {TORN, RT_DATA, "dense.bin"},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        write_model(NULL, cases[i].which);
        refuse(NULL, cases[i].status, cases[i].says);
    }
}

static void no_model(void **state)
{
    (void)state;
    refuse(NULL, RT_NOT_FOUND, "No such file or directory");
    assert_int_equal(mkdir(folder(), 0700), 0);
    refuse(NULL, RT_NOT_FOUND, "no manifest.json: expected the folder model/ of a run");
}

TEST_MAIN(TEST(all_of_it_is_read), TEST(differences_are_named),
          TEST(columns_are_those_of_the_model), TEST(labels_are_those_of_the_model),
          TEST(keys_of_one_kind_of_model), TEST(files_that_cannot_be), TEST(no_model))
