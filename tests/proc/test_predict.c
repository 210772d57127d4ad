// Everybody who predicts with a model says the same: eval, predict, serve, liblanyard, numpy. Lines
// keep their places; what a run publishes is answered with, and nothing is lost at a change.
#include "tests/support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

#define RUN_S 200
#define SCRIPT "tests/proc/check_answers.py"
#define SETS_MAX 12

static const char wdl[] =
    "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 64}, \"stream\": {\"format\": "
    "\"criteo\"},"
    " \"model\": {\"deep_input\": \"all\", \"embedding_dim\": 8, \"mlp\": [16, 8]},"
    " \"optimizer\": {\"rows\": {\"learning_rate\": 0.1}}, \"cache\": {\"rows\": 20000}}";
static const char dfm[] =
    "{\"include\": \"%s/configs/formats/avazu.json\", \"workers\": 2,"
    " \"batch\": {\"samples_per_worker\": 64},"
    " \"model\": {\"name\": \"dfm\", \"embedding_dim\": 8, \"mlp\": [16, 8]},"
    " \"optimizer\": {\"rows\": {\"learning_rate\": 0.1}}, \"cache\": {\"rows\": 20000}}";
static const char ncf[] =
    "{\"include\": \"%s/configs/formats/movielens.json\", \"workers\": 2,"
    " \"batch\": {\"samples_per_worker\": 64},"
    " \"model\": {\"name\": \"ncf\", \"embedding_dim\": 8, \"mlp\": [16, 8]},"
    " \"optimizer\": {\"rows\": {\"learning_rate\": 0.1}}, \"cache\": {\"rows\": 20000}}";

static const char history[] =
    "{\"include\": \"%s/configs/formats/movielens_history.json\", \"workers\": 2,"
    " \"batch\": {\"samples_per_worker\": 64},"
    " \"model\": {\"deep_input\": \"all\", \"embedding_dim\": 8, \"mlp\": [16, 8]},"
    " \"optimizer\": {\"rows\": {\"learning_rate\": 0.1}}, \"cache\": {\"rows\": 20000}}";

static const char din[] =
    "{\"include\": \"%s/configs/formats/movielens_history.json\", \"workers\": 2,"
    " \"batch\": {\"samples_per_worker\": 64},"
    " \"model\": {\"name\": \"din\", \"sequence\": \"history\", \"target\": \"item\","
    "  \"attention\": [8, 6], \"embedding_dim\": 8, \"mlp\": [16, 8]},"
    " \"optimizer\": {\"rows\": {\"learning_rate\": 0.1}}, \"cache\": {\"rows\": 20000}}";

static const char graph[] =
    "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 64}, \"cache\": {\"rows\": 20000},"
    " \"stream\": {\"format\": \"table\", \"tables\": [\"near1=node\", \"near2=node\","
    "  \"near3=node\", \"far1=node\", \"far2=node\", \"far3=node\"],"
    "  \"table\": {\"delimiter\": \",\", \"columns\": ["
    "  {\"name\": \"class\", \"kind\": \"label\", \"classes\": 4},"
    "  {\"name\": \"node\", \"kind\": \"categorical\", \"id\": \"number\"},"
    "  {\"name\": \"near1\", \"kind\": \"categorical\", \"id\": \"number\"},"
    "  {\"name\": \"near2\", \"kind\": \"categorical\", \"id\": \"number\"},"
    "  {\"name\": \"near3\", \"kind\": \"categorical\", \"id\": \"number\"},"
    "  {\"name\": \"far1\", \"kind\": \"multi\", \"id\": \"number\"},"
    "  {\"name\": \"far2\", \"kind\": \"multi\", \"id\": \"number\"},"
    "  {\"name\": \"far3\", \"kind\": \"multi\", \"id\": \"number\"}]}},"
    " \"model\": {\"name\": \"graphsage\", \"fan_out\": 3, \"pooling\": \"mean\","
    "  \"embedding_dim\": 8, \"mlp\": [16, 8]},"
    " \"optimizer\": {\"rows\": {\"learning_rate\": 0.1}}}";

static const char two_labels[] =
    "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 64}, \"cache\": {\"rows\": 20000},"
    " \"stream\": {\"format\": \"table\", \"table\": {\"delimiter\": \",\", \"columns\": ["
    "  {\"name\": \"click\", \"kind\": \"label\"}, {\"name\": \"user\", \"kind\": \"categorical\"},"
    "  {\"name\": \"item\", \"kind\": \"categorical\"}, {\"name\": \"x\", \"kind\": \"dense\"},"
    "  {\"name\": \"buy\", \"kind\": \"label\", \"loss_weight\": 0.5}]}},"
    " \"model\": {\"name\": \"dfm\", \"embedding_dim\": 8, \"mlp\": [16, 8]},"
    " \"optimizer\": {\"rows\": {\"learning_rate\": 0.1}}}";

// Writes a configuration; those of a format include its file.
static const char *config_of(const char *text)
{
    char tree[1024];
    const char *path = test_path("config.json");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_non_null(getcwd(tree, sizeof tree));
    const char *place = strstr(text, "%s");
    if (place)
        fprintf(file, "%.*s%s%s", (int)(place - text), text, tree, place + 2);
    else
        fputs(text, file);
    assert_int_equal(fclose(file), 0);
    return path;
}

// Runs a program that must end well, and keeps what it said.
static void must_run(process *p, const char *const *arguments)
{
    *p = (process){0};
    if (process_run(p, arguments, RUN_S) != 0)
        fail_msg("%s %s: %s", arguments[0], arguments[1], p->text);
}

static void script(const char *command, const char *a, const char *b, const char *c, const char *d,
                   const char *e)
{
    const char *const arguments[] = {"/usr/bin/python3", SCRIPT, command, a, b, c, d, e, NULL};
    process_must_run(arguments, RUN_S);
}

// numpy, and the library that the package is over.
static void need_package(void)
{
    process_need_numpy();
    if (access(process_beside("liblanyard.so"), R_OK) != 0)
        test_skip("there is no %s", process_beside("liblanyard.so"));
}

static void train(const char *config, const char *out, const char *const *sets)
{
    process p;
    const char *arguments[6 + 2 * SETS_MAX] = {process_lanyard(), "up", config, "--out", out};
    size_t count = 5;
    for (; *sets; sets++) {
        arguments[count++] = "--set";
        arguments[count++] = *sets;
    }
    must_run(&p, arguments);
    process_fini(&p);
}

// ---- the same answers --------------------------------------------------------------------------

static void check_same(const char *text, const char *format, const char *training, const char *rows)
{
    char files[600], out[500], model[520], program[500], library[500];
    snprintf(files, sizeof files, "stream.files=%s", training);
    snprintf(out, sizeof out, "%s", test_path("out"));
    snprintf(model, sizeof model, "%s/model", out);
    snprintf(program, sizeof program, "%s", process_lanyard());
    snprintf(library, sizeof library, "%s", process_beside("liblanyard.so"));
    train(config_of(text), out, (const char *const[]){files, NULL});
    script("same", program, library, model, format, rows);
}

static void check_made(const char *text, const char *format)
{
    char training[500], rows[500];
    need_package();
    snprintf(training, sizeof training, "%s", test_path("train"));
    snprintf(rows, sizeof rows, "%s", test_path("rows"));
    script("make", format, training, "6000", "0", NULL);
    script("make", format, rows, "1500", "100000", NULL);
    check_same(text, format, training, rows);
}

static void same_answers_criteo(void **state)
{
    (void)state;
    check_made(wdl, "criteo");
}

static void same_answers_avazu(void **state)
{
    (void)state;
    check_made(dfm, "avazu");
}

static void same_answers_movielens(void **state)
{
    (void)state;
    check_made(ncf, "movielens");
}

// A row that two fields look up. Whoever plans, the run is the same.
static void same_answers_with_a_shared_table(void **state)
{
    char out[500], rows[500], other[500], files[600];
    (void)state;
    check_made(history, "history");
    snprintf(out, sizeof out, "%s", test_path("out"));
    snprintf(rows, sizeof rows, "%s", test_path("train"));
    script("shared", out, rows, NULL, NULL, NULL);
    snprintf(files, sizeof files, "stream.files=%s", rows);
    snprintf(other, sizeof other, "%s", test_path("other"));
    train(config_of(history), other, (const char *const[]){files, NULL});
    run_must_be_the_same("out", "other", 1);
    train(config_of(history), other,
          (const char *const[]){files, "rows.admit=3", "model.pooling=mean", NULL});
    snprintf(rows, sizeof rows, "%s", test_path("rows"));
    snprintf(other, sizeof other, "%s", test_path("other/model"));
    snprintf(out, sizeof out, "%s", process_beside("liblanyard.so"));
    script("same", process_lanyard(), out, other, "history", rows);
}

static void same_answers_with_attention(void **state)
{
    (void)state;
    check_made(din, "history");
}

// Stopped in the middle and gone on with: every bit as if it had not been.
static void check_going_on(const char *text, const char *format)
{
    char rows[500], files[600], config[500];
    need_package();
    snprintf(rows, sizeof rows, "%s", test_path("train"));
    script("make", format, rows, "4096", "0", NULL);
    snprintf(files, sizeof files, "stream.files=%s", rows);
    snprintf(config, sizeof config, "%s", test_path("whole"));
    const char *const end = "checkpoint.every_iterations=15";
    const char *const strict = "dispatch.measure_compute=false";
    train(config_of(text), config, (const char *const[]){files, end, strict, NULL});
    snprintf(config, sizeof config, "%s", test_path("parts"));
    train(config_of(text), config,
          (const char *const[]){files, end, strict, "stream.samples_max=2304", NULL});
    process p;
    const char *const arguments[] = {
        process_lanyard(), "up", config_of(text), "--out", config, "--resume", "--set", files,
        "--set",           end,  "--set",         strict,  NULL};
    must_run(&p, arguments);
    process_fini(&p);
    run_must_equal("whole", "parts", "model/rows-000-of-001.bin");
    run_must_equal("whole", "parts", "model/dense.bin");
}

static void a_shared_table_goes_on(void **state)
{
    (void)state;
    check_going_on(history, "history");
}

static void attention_goes_on(void **state)
{
    (void)state;
    check_going_on(din, "history");
}

// Classes, a graph; and keys that have no row yet are neighbours that are missing.
static void same_answers_of_a_graph(void **state)
{
    char out[500], rows[500], other[500], files[600], folder[500];
    process top;
    (void)state;
    check_made(graph, "graph");
    snprintf(rows, sizeof rows, "%s", test_path("train"));
    snprintf(files, sizeof files, "stream.files=%s", rows);
    snprintf(other, sizeof other, "%s", test_path("other"));
    train(config_of(graph), other, (const char *const[]){files, NULL});
    run_must_be_the_same("out", "other", 1);
    char *summary = run_file("other", "summary.json", &(size_t){0});
    if (!strstr(summary, "\"label_max\": 3"))
        fail_msg("not the highest class in %s", summary);
    free(summary);
    snprintf(folder, sizeof folder, "%s", test_path("other"));
    must_run(&top, (const char *const[]){process_lanyard(), "top", folder, "--once", NULL});
    if (!strstr(top.text, " accuracy 0."))
        fail_msg("no accuracy in %s", top.text);
    process_fini(&top);
    train(config_of(graph), other, (const char *const[]){files, "rows.admit=20", NULL});
    snprintf(rows, sizeof rows, "%s", test_path("rows"));
    snprintf(other, sizeof other, "%s", test_path("other/model"));
    snprintf(out, sizeof out, "%s", process_beside("liblanyard.so"));
    script("same", process_lanyard(), out, other, "graph", rows);
}

static void samples_of_a_graph(void **state)
{
    char folder[500];
    (void)state;
    need_package();
    snprintf(folder, sizeof folder, "%s", test_path(""));
    script("graph", process_lanyard(), folder, NULL, NULL, NULL);
}

static void a_graph_goes_on(void **state)
{
    (void)state;
    check_going_on(graph, "graph");
}

#define REAL_ROWS 10000 // of each set

static void same_answers_on_real_rows(void **state)
{
    static const struct {
        const char *text, *format, *file;
    } sets[] = {{wdl, "criteo", "criteo_kaggle_100k.tsv.zst"},
                {dfm, "avazu", "avazu_10k.csv.zst"},
                {ncf, "movielens", "movielens_100k.tsv.zst"}};
    char command[5000], rows[500];
    (void)state;
    need_package();
    for (size_t i = 0; i < RT_COUNT_OF(sets); i++) {
        snprintf(rows, sizeof rows, "%s", test_path("rows"));
        snprintf(command, sizeof command, "zstd -dcq %s | head -n %d >%s",
                 test_data_file(sets[i].file), REAL_ROWS, rows);
        assert_int_equal(system(command), 0);
        check_same(sets[i].text, sets[i].format, rows, rows);
    }
}

// ---- lines -------------------------------------------------------------------------------------

// The probabilities that predict gives for a file; count of them.
static uint32_t predicted(const char *model, const char *rows, double *values, uint32_t most)
{
    process p;
    char files[600], out[500];
    uint32_t count = 0;
    snprintf(files, sizeof files, "stream.files=%s", rows);
    snprintf(out, sizeof out, "%s", test_path("predicted"));
    const char *const arguments[] = {process_lanyard(),
                                     "predict",
                                     model,
                                     "--threads",
                                     "2",
                                     "--out",
                                     out,
                                     "--set",
                                     files,
                                     "--set",
                                     "stream.malformed_share_max=1",
                                     NULL};
    must_run(&p, arguments);
    process_fini(&p);
    FILE *file = fopen(out, "r");
    assert_non_null(file);
    while (count < most && fscanf(file, "%lf", &values[count]) == 1)
        count++;
    assert_true(feof(file));
    fclose(file);
    return count;
}

#define ROWS 700u

// Every third line loses its label, every seventh is none, every eleventh is blank.
static void spoil(const char *from, const char *to)
{
    char line[1024];
    FILE *in = fopen(from, "r"), *out = fopen(to, "w");
    assert_non_null(in);
    assert_non_null(out);
    for (uint32_t i = 0; fgets(line, sizeof line, in); i++) {
        if (i % 11 == 10)
            fputs("\n", out);
        else if (i % 7 == 6)
            fputs("no\tsample\n", out);
        else
            fputs(i % 3 ? line : strchr(line, '\t') + 1, out);
    }
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static void lines_keep_their_places(void **state)
{
    char training[500], rows[500], spoilt[500], out[500], files[520];
    static double whole[ROWS + 1], some[ROWS + 1];
    (void)state;
    need_package();
    snprintf(training, sizeof training, "%s", test_path("train"));
    snprintf(rows, sizeof rows, "%s", test_path("rows"));
    snprintf(spoilt, sizeof spoilt, "%s", test_path("spoilt"));
    snprintf(out, sizeof out, "%s", test_path("out"));
    snprintf(files, sizeof files, "stream.files=%s", training);
    script("make", "criteo", training, "2000", "0", NULL);
    script("make", "criteo", rows, "700", "100000", NULL);
    spoil(rows, spoilt);
    train(config_of(wdl), out, (const char *const[]){files, NULL});
    snprintf(out, sizeof out, "%s/model", test_path("out"));
    assert_int_equal(predicted(out, rows, whole, ROWS + 1), ROWS);
    assert_int_equal(predicted(out, spoilt, some, ROWS + 1), ROWS);
    for (uint32_t i = 0; i < ROWS; i++) {
        if (i % 11 == 10 || i % 7 == 6)
            assert_true(isnan(some[i]));
        else
            test_close(some[i], whole[i], 0, 1e-6, "a probability in its place");
    }
}

// ---- columns of every kind, and rows on disk -------------------------------------------------

static void columns_of_every_kind(void **state)
{
    char program[500], folder[500];
    (void)state;
    need_package();
    snprintf(program, sizeof program, "%s", process_lanyard());
    snprintf(folder, sizeof folder, "%s", test_path("columns"));
    assert_int_equal(mkdir(folder, 0700), 0);
    script("columns", program, folder, NULL, NULL, NULL);
}

static void rows_may_be_on_disk(void **state)
{
    char out[500], program[500];
    (void)state;
    need_package();
    snprintf(program, sizeof program, "%s", process_lanyard());
    snprintf(out, sizeof out, "%s", test_path("out"));
    train(config_of(wdl), out,
          (const char *const[]){"stream={\"format\": \"synthetic\", \"samples_max\": 12800, "
                                "\"synthetic\": {\"scale\": 0.02}}",
                                "model.embedding_dim=64", NULL});
    snprintf(out, sizeof out, "%s/model", test_path("out"));
    script("disk", program, out, NULL, NULL, NULL);
}

// ---- the Python package ------------------------------------------------------------------------

static void the_package_installs(void **state)
{
    process p;
    char command[3000], out[500];
    (void)state;
    need_package();
    p = (process){0};
    const char *const there[] = {"/usr/bin/python3", "-c", "import venv, ensurepip, setuptools",
                                 NULL};
    if (process_run(&p, there, RUN_S) != 0)
        test_skip("/usr/bin/python3 has no venv, ensurepip or setuptools (Debian packages "
                  "python3-venv, python3-setuptools)");
    process_fini(&p);
    snprintf(out, sizeof out, "%s", test_path("out"));
    train(config_of(wdl), out,
          (const char *const[]){"stream={\"format\": \"synthetic\", \"samples_max\": 1280, "
                                "\"synthetic\": {\"scale\": 0.001}}",
                                NULL});
    // The sources are copied: a build writes beside them.
    snprintf(command, sizeof command,
             "set -e; cd '%s/..'; cp -rL \"$OLDPWD/python\" source; cp \"$OLDPWD/%s\" here.so; "
             "/usr/bin/python3 -m venv --system-site-packages venv; "
             "install='venv/bin/pip install -q --no-build-isolation --no-deps ./source'; "
             "unset LANYARD_LIBRARY LANYARD_PROGRAM; "
             "if $install >said 2>&1; then exit 1; fi; grep -q 'does not stand in a tree' said; "
             "LANYARD_LIBRARY=\"$PWD/here.so\" LANYARD_PROGRAM=/bin/true $install; "
             "rm here.so; venv/bin/python -c \"import lanyard; "
             "model = lanyard.Model('out/model'); assert '/venv/' in lanyard.__file__; "
             "kinds = {name: name.kind for name in model.columns}; "
             "assert kinds['D1'] == 'dense' and kinds['C1'] == 'categorical', kinds; "
             "assert len(model.predict({'C1': [1, 2]})) == 2; "
             "assert len(lanyard.read('out/model').keys) > 100\"",
             out, process_beside("liblanyard.so"));
    const char *const install[] = {"/bin/bash", "-c", command, NULL};
    must_run(&p, install);
    process_fini(&p);
}

// ---- published ---------------------------------------------------------------------------------

static void published_models_are_followed(void **state)
{
    char out[500], program[500], library[500];
    (void)state;
    need_package();
    snprintf(out, sizeof out, "%s", test_path("out"));
    snprintf(program, sizeof program, "%s", process_lanyard());
    snprintf(library, sizeof library, "%s", process_beside("liblanyard.so"));
    train(config_of(wdl), out,
          (const char *const[]){"stream={\"format\": \"synthetic\", \"samples_max\": 12800, "
                                "\"synthetic\": {\"scale\": 0.001}}",
                                "publish.every_s=1000", "checkpoint.every_iterations=20",
                                "checkpoint.full_every=3", "publish.guard.log_loss=0",
                                "publish.guard.calibration=0", NULL});
    script("follow", program, library, out, NULL, NULL);
}

// Another box has its own copy: with keys, without the run.
static void published_models_are_copied(void **state)
{
    char program[500], library[500], config[500], folder[500];
    (void)state;
    need_package();
    snprintf(program, sizeof program, "%s", process_lanyard());
    snprintf(library, sizeof library, "%s", process_beside("liblanyard.so"));
    snprintf(config, sizeof config, "%s", config_of(wdl));
    snprintf(folder, sizeof folder, "%s", test_path("boxes"));
    assert_int_equal(mkdir(folder, 0700), 0);
    script("copy", program, library, config, folder, NULL);
}

static void same_answers_for_two_labels(void **state)
{
    (void)state;
    check_made(two_labels, "labels");
}

TEST_MAIN(TEST_SLOW(same_answers_for_two_labels, 240), TEST_SLOW(same_answers_criteo, 240),
          TEST_SLOW(same_answers_avazu, 240), TEST_SLOW(same_answers_movielens, 240),
          TEST_SLOW(same_answers_with_a_shared_table, 240), TEST_SLOW(a_shared_table_goes_on, 120),
          TEST_SLOW(same_answers_with_attention, 240), TEST_SLOW(attention_goes_on, 120),
          TEST_SLOW(same_answers_of_a_graph, 240), TEST_SLOW(a_graph_goes_on, 120),
          TEST_SLOW(samples_of_a_graph, 120), TEST_SLOW(same_answers_on_real_rows, 900),
          TEST_SLOW(lines_keep_their_places, 120), TEST_SLOW(columns_of_every_kind, 120),
          TEST_SLOW(rows_may_be_on_disk, 120), TEST_SLOW(the_package_installs, 240),
          TEST_SLOW(published_models_are_followed, 240),
          TEST_SLOW(published_models_are_copied, 240))
