// The model that a run begins with: what is read of it, and every difference that is named.
#include "dispatch/coordinator/dp_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/files/rt_manifest.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"
#include "tests/support/config_case.h"
#include "tests/support/said.h"
#include "tests/support/test.h"

// What is wrong with the files of a model.
typedef enum {
    NOTHING,
    NO_ROWS,
    OF_A_CHECKPOINT,
    NO_CONFIG,
    TORN_CONFIG,
    NO_SCALE,
    TORN_SCALE,
    SHORT_SCALE,
    TORN,
    NO_DENSE,
    NO_FILE,
    OTHER_MANIFEST
} fault;

// Numbers of the manifest. NONE: it has no such one.
#define NONE UINT64_MAX
#define SAMPLES ((UINT64_C(1) << 40) + 1)
typedef struct {
    uint64_t iteration, samples, scale_samples, shards;
} numbers;
static const numbers usual = {12, SAMPLES, 77, 2};

#define DENSE_BYTES 150000u

static const char *dense_bytes(void)
{
    static char bytes[DENSE_BYTES];
    for (uint32_t i = 0; i < DENSE_BYTES; i++)
        bytes[i] = (char)(i * 7 + i / 256);
    return bytes;
}

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

static void write_file(const char *name, const void *bytes, size_t size)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder(), name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void put_part(rt_json *json, const char *name, const void *bytes, size_t size, fault which)
{
    const bool is_model = which != OF_A_CHECKPOINT;
    const rt_manifest_part part = {.sum = {size, 7},
                                   .xxh3 = rt_hash_bytes(bytes, size),
                                   .has_hash = !is_model,
                                   .has_xxh3 = is_model};
    write_file(name, bytes, which == TORN ? size - 1 : size);
    rt_manifest_put_part(json, name, &part);
}

static void put_scale(rt_json *json, const rt_config *config, fault which)
{
    static rt_schema schema;
    rt_scale *scale;
    rt_tensor tensors[RT_SCALE_TENSORS];
    rt_bytes bytes = {0};
    assert_int_equal(rt_stream_read_schema(&config->stream, config->seed, &schema, NULL), RT_OK);
    assert_int_equal(rt_scale_create(schema.dense_count - (which == SHORT_SCALE), 1, &scale),
                     RT_OK);
    const uint32_t count = rt_scale_tensors(scale, tensors);
    assert_int_equal(rt_tensors_encode(tensors, count, &bytes), RT_OK);
    put_part(json, "scale.bin", bytes.data, which == TORN_SCALE ? 5 : bytes.size, NOTHING);
    rt_scale_destroy(scale);
    rt_bytes_fini(&bytes);
}

static void put_rows(rt_json *json, uint64_t shards, fault which)
{
    for (uint32_t s = 0; s < shards && shards != NONE; s++) {
        char name[64];
        const bool is_last = s + 1 == shards;
        snprintf(name, sizeof name, "rows-%03u-of-%03u.bin", s, (unsigned)shards);
        if (!is_last || which != NO_ROWS)
            put_part(json, name, s ? "more rows" : "rows", s ? 9 : 4, is_last ? which : NOTHING);
    }
}

static void put_dense(rt_json *json, fault which)
{
    char path[600];
    snprintf(path, sizeof path, "%s/dense.bin", folder());
    (void)remove(path);
    if (which == NO_FILE)
        assert_int_equal(mkdir(path, 0700), 0);
    else if (which != NO_DENSE)
        put_part(json, "dense.bin", dense_bytes(), DENSE_BYTES, which);
}

static void put_number(rt_json *json, const char *name, uint64_t value)
{
    if (value != NONE)
        rt_json_u64(json, name, value);
}

// A model, in the folder of the case.
static void write_with(const char *const *sets, fault which, const numbers *n)
{
    rt_config config = config_of(sets);
    rt_json json;
    rt_error error = {0};
    char path[600], *text = config_json(&config);
    (void)mkdir(folder(), 0700);
    rt_manifest_begin(&json, "model", RT_MANIFEST_FORMAT);
    put_number(&json, "iteration", n->iteration);
    put_number(&json, "samples", n->samples);
    put_number(&json, "scale_samples", n->scale_samples);
    put_number(&json, "shards", n->shards);
    rt_json_begin_array(&json, "parts");
    put_part(&json, "config.json", text, which == TORN_CONFIG ? 1 : strlen(text), NOTHING);
    put_dense(&json, which == TORN || which == NO_DENSE || which == NO_FILE ? which : NOTHING);
    put_rows(&json, n->shards, which == OF_A_CHECKPOINT || which == NO_ROWS ? which : NOTHING);
    if (which != NO_SCALE)
        put_scale(&json, &config, which);
    rt_json_end_array(&json);
    assert_int_equal(rt_manifest_write(&json, folder(), &error), RT_OK);
    snprintf(path, sizeof path, "%s/config.json", folder());
    if (which == NO_CONFIG)
        assert_int_equal(remove(path), 0);
    if (which == OTHER_MANIFEST)
        write_file(RT_MANIFEST_NAME, "{}", 2);
    rt_free(text);
    rt_config_fini(&config);
}

static void write_model(const char *const *sets, fault which)
{
    write_with(sets, which, &usual);
}

static rt_status read_from(const char *path, const char *const *sets, dp_initial *initial,
                           rt_error *error)
{
    static rt_schema schema;
    rt_config config = config_of(sets);
    assert_int_equal(rt_stream_read_schema(&config.stream, config.seed, &schema, NULL), RT_OK);
    const rt_status status = dp_initial_read(path, &config, &schema, initial, error);
    rt_config_fini(&config);
    return status;
}

static rt_status read_it(const char *const *sets, dp_initial *initial, rt_error *error)
{
    return read_from(folder(), sets, initial, error);
}

static void take(const char *const *sets, dp_initial *initial)
{
    rt_error error = {0};
    if (read_it(sets, initial, &error))
        fail_msg("%s", error.text);
}

static void accept(const char *const *sets)
{
    dp_initial initial;
    take(sets, &initial);
    dp_initial_fini(&initial);
}

// says: all of it, with @ for the folder; of what begins with "its" that is left away, too.
static void refuse(const char *const *sets, rt_status want, const char *says)
{
    dp_initial initial;
    const dp_initial none = {0};
    rt_error error = {0};
    char text[sizeof error.text];
    const char *at = strchr(says, '@');
    if (strncmp(says, "its ", 4) == 0)
        snprintf(text, sizeof text, "--init: %s: %s", folder(), says);
    else if (at)
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - says), says, folder(), at + 1);
    else
        snprintf(text, sizeof text, "%s", says);
    const rt_status status = read_it(sets, &initial, &error);
    if (status != want || strcmp(error.text, text) != 0)
        fail_msg("%d: \"%s\", expected %d: \"%s\"", status, error.text, want, text);
    assert_memory_equal(&initial, &none, sizeof none);
}

static void all_of_it_is_read(void **state)
{
    (void)state;
    static const char *const planned[] = {"ps.homes=planned", NULL};
    for (uint32_t has_homes = 0; has_homes < 2; has_homes++) {
        dp_initial initial;
        write_model(has_homes ? planned : NULL, NOTHING);
        take(NULL, &initial);
        const dp_saved *saved = &initial.saved;
        assert_int_equal(saved->iteration, 0);
        assert_true(saved->samples == SAMPLES);
        assert_int_equal(saved->count, 1);
        assert_int_equal(saved->dense.size, DENSE_BYTES);
        assert_memory_equal(saved->dense.data, dense_bytes(), DENSE_BYTES);
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
        {"model.mlp=[8, 4, 2]", "its number of layers (model.mlp) is 2, this run has 3"},
        {"model.deep_input=dense", "its model.deep_input is all, this run has dense"},
        {"model.pooling=mean", "its model.pooling is sum, this run has mean"},
        {"stream.dense_scaling=none", "its stream.dense_scaling is standard, this run has none"},
    };
    write_model(own, NOTHING);
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++)
        refuse(SETS(own[0], own[1], own[2], cases[i].set), RT_CONFIG, cases[i].says);
    accept(SETS(own[0], own[1], own[2], "stream.synthetic.labels=2")); // a label more
    write_model(SETS(own[0], own[1], own[2], "stream.synthetic.labels=2"), NOTHING);
    refuse(own, RT_CONFIG, "its number of labels is 2, this run has 1");
}

#define COLUMN(name, kind) "{\"name\":\"" name "\",\"kind\":\"" kind "\"}"
#define TABLE(...) "stream.table.columns=[" COLUMN("y", "label") "," __VA_ARGS__ "]"

#define BEHIND ": put additional fields after those of the model"

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
         "its field 1 is \"b\", this run's is \"c\"" BEHIND},
        {TABLE(COLUMN("b", "categorical") "," COLUMN("a", "categorical")),
         "its field 0 is \"a\", this run's is \"b\"" BEHIND},
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
    take(SETS(format, none,
              TABLE(COLUMN("a", "categorical") "," COLUMN("b", "categorical") "," COLUMN(
                  "c", "categorical"))),
         &initial);
    assert_null(initial.scale);
    dp_initial_fini(&initial);
    accept(SETS(format, some)); // there is nothing to scale
    write_model(SETS(format, some, none, "stream.tables=[\"b=a\"]"), NO_SCALE);
    accept(SETS(format, some, none, "stream.tables=[\"b=a\"]"));
    refuse(SETS(format, some, none), RT_CONFIG,
           "its field \"b\" has the rows of \"a\", this run's those of \"b\" (stream.tables)");
}

#define LABELS_BEHIND ": put additional labels after those of the model"

// A model whose own configuration cannot be.
static void columns_that_nobody_reads(void **state)
{
    (void)state;
    write_model(SETS("stream.format=table", "stream.table.columns=[]"), NO_SCALE);
    refuse(SETS("stream.format=table", TABLE(COLUMN("a", "categorical"))), RT_CONFIG,
           "--init: stream.table.columns: expected a label, found 0");
}

// Of several labels each is known by its name; more may come behind those of the model. A single
// one may be called anything.
static void labels_are_those_of_the_model(void **state)
{
    (void)state;
    static const char format[] = "stream.format=table", none[] = "stream.dense_scaling=none";
    static const char one[] = TABLE(COLUMN("a", "categorical"));
    static const char two[] = TABLE(COLUMN("z", "label") "," COLUMN("a", "categorical"));
    static const char other[] = TABLE(COLUMN("w", "label") "," COLUMN("a", "categorical"));
    static const char more[] =
        TABLE(COLUMN("z", "label") "," COLUMN("v", "label") "," COLUMN("a", "categorical"));
    static const char other_one[] =
        "stream.table.columns=[" COLUMN("z", "label") "," COLUMN("a", "categorical") "]";
    static const char swapped[] = "stream.table.columns=[" COLUMN("z", "label") "," COLUMN(
        "y", "label") "," COLUMN("a", "categorical") "]";
    write_model(SETS(format, two, none), NO_SCALE);
    refuse(SETS(format, other, none), RT_CONFIG,
           "its label 1 is \"z\", this run's is \"w\"" LABELS_BEHIND);
    refuse(SETS(format, swapped, none), RT_CONFIG,
           "its label 0 is \"y\", this run's is \"z\"" LABELS_BEHIND);
    accept(SETS(format, two, none));
    accept(SETS(format, more, none));
    write_model(SETS(format, one, none), NO_SCALE);
    accept(SETS(format, other_one, none));
    accept(SETS(format, two, none));
    refuse(SETS(format, swapped, none), RT_CONFIG,
           "its label 0 is \"y\", this run's is \"z\"" LABELS_BEHIND);
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
    write_model(din, NOTHING);
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++)
        refuse(SETS(din[0], din[1], din[2], din[3], cases[i].set), RT_CONFIG, cases[i].says);
    accept(SETS(din[0], din[1], din[2], din[3], "model.fan_out=7"));
    write_model(sage, NOTHING);
    refuse(SETS(sage[0], "model.fan_out=6"), RT_CONFIG, "its model.fan_out is 5, this run has 6");
    accept(SETS(sage[0], sage[1], "model.sequence=bought"));
}

static void files_that_cannot_be(void **state)
{
    (void)state;
    static const struct {
        fault which;
        rt_status status;
        const char *says;
    } cases[] = {
        {NO_ROWS, RT_DATA, "--init: @/manifest.json does not name rows-001-of-002.bin"},
        {OF_A_CHECKPOINT, RT_CONFIG,
         "--init: @: a checkpoint; `lanyard export` makes a model of it"},
        {NO_CONFIG, RT_IO, "--init: @/config.json: cannot be opened: No such file or directory"},
        {TORN_CONFIG, RT_CONFIG,
         "--init: @/config.json: line 1, column 2: the text ends in the middle of a JSON value"},
        {NO_SCALE, RT_CONFIG, "its stream.dense_scaling is none, this run has standard"},
        {TORN_SCALE, RT_DATA, "--init: @/scale.bin is not a file of tensors that lanyard wrote"},
        {SHORT_SCALE, RT_DATA,
         "--init: @/scale.bin: \"scale.mean\" and \"scale.factor\": expected 13 finite values "
         "each"},
        {TORN, RT_DATA,
         "--init: @/dense.bin has 149999 bytes, the manifest says 150000: it is not the file that "
         "belongs there"},
        {NO_DENSE, RT_IO, "--init: cannot open @/dense.bin: No such file or directory"},
        {NO_FILE, RT_IO, "--init: cannot read @/dense.bin"},
        {OTHER_MANIFEST, RT_DATA, "--init: @/manifest.json is damaged"},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        write_model(NULL, cases[i].which);
        refuse(NULL, cases[i].status, cases[i].says);
    }
}

// What the manifest counts, up to the largest that it can; beyond that it says nothing.
static void numbers_of_the_manifest(void **state)
{
    (void)state;
    const uint64_t most = UINT64_C(1) << 53;
    const struct {
        numbers is;
        uint64_t samples, scale_samples;
    } cases[] = {{{12, 5, 77, 1}, 5, 77},           {{NONE, 5, NONE, 2}, 5, 5},
                 {{12, most, most, 2}, most, most}, {{12, 5, most + 2, 2}, 5, 5},
                 {{12, most + 2, 77, 2}, 0, 77},    {{0, NONE, NONE, RT_SHARDS_MAX}, 0, 1}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        dp_initial initial;
        write_with(NULL, NOTHING, &cases[i].is);
        take(NULL, &initial);
        assert_true(initial.saved.samples == cases[i].samples);
        assert_true(rt_scale_samples(initial.scale) == cases[i].scale_samples);
        assert_int_equal(initial.saved.loads[0].shard_count, cases[i].is.shards);
        dp_initial_fini(&initial);
    }
    static const uint64_t none[] = {0, NONE, RT_SHARDS_MAX + 1};
    for (size_t i = 0; i < RT_COUNT_OF(none); i++) {
        const numbers is = {12, 5, 77, none[i]};
        write_with(NULL, NOTHING, &is);
        refuse(NULL, RT_DATA, "--init: @/manifest.json does not say how many shards");
    }
}

// Who begins with a model says so.
static void it_is_named_when_it_is_read(void **state)
{
    (void)state;
    static const uint64_t iterations[] = {12, UINT32_MAX, NONE};
    for (size_t i = 0; i < RT_COUNT_OF(iterations); i++) {
        const numbers is = {iterations[i], SAMPLES, 77, 2};
        char text[700];
        said_output log;
        write_with(NULL, NOTHING, &is);
        rt_log_setup(RT_LOG_INFO, "c");
        said_begin(&log, STDERR_FILENO);
        accept(NULL);
        snprintf(text, sizeof text,
                 "begins with the model %s, of %" PRIu64 " iterations and %" PRIu64 " samples\n",
                 folder(), iterations[i] == NONE ? 0 : iterations[i], SAMPLES);
        const char *said = said_end(&log);
        if (!strstr(said, text))
            fail_msg("\"%s\", expected \"%s\"", said, text);
    }
}

static void no_model(void **state)
{
    (void)state;
    char text[700];
    snprintf(text, sizeof text, "--init %s: No such file or directory", folder());
    refuse(NULL, RT_NOT_FOUND, text);
    assert_int_equal(mkdir(folder(), 0700), 0);
    refuse(NULL, RT_NOT_FOUND, "--init: @: no manifest.json: expected the folder model/ of a run");
}

// Appends a folder to a path, which has so many bytes then.
static void go_down(char *path, size_t bytes)
{
    const size_t length = strlen(path);
    path[length] = '/';
    memset(path + length + 1, 'x', bytes - length - 1);
    path[bytes] = '\0';
    assert_int_equal(mkdir(path, 0700), 0);
}

// Shards are told where it is, in a message with so much room.
static void a_path_that_is_too_long(void **state)
{
    (void)state;
    char path[RT_FOLDER_MAX + 1];
    snprintf(path, sizeof path, "%s", test_directory());
    while (RT_FOLDER_MAX - strlen(path) > 250)
        go_down(path, strlen(path) + 100);
    for (uint32_t beyond = 0; beyond < 2; beyond++) {
        dp_initial initial;
        rt_error error = {0};
        const size_t length = strlen(path);
        go_down(path, RT_FOLDER_MAX - 1 + beyond);
        assert_int_equal(read_from(path, NULL, &initial, &error),
                         beyond ? RT_CONFIG : RT_NOT_FOUND);
        assert_int_equal(strcmp(error.text, "--init: the path has more than 1023 bytes") == 0,
                         beyond);
        path[length] = '\0';
    }
}

TEST_MAIN(TEST(all_of_it_is_read), TEST(differences_are_named),
          TEST(columns_are_those_of_the_model), TEST(columns_that_nobody_reads),
          TEST(labels_are_those_of_the_model), TEST(keys_of_one_kind_of_model),
          TEST(files_that_cannot_be), TEST(numbers_of_the_manifest),
          TEST(it_is_named_when_it_is_read), TEST(no_model), TEST(a_path_that_is_too_long))
