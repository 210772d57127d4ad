// A model is whole, on one box, at every moment: collected from processes that share no disk, put
// in place of the one before as a whole, refused where it is torn; and so are copies of
// checkpoints.
#include "tests/support/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/files/rt_checkpoint.h"
#include "runtime/rt_base.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

#define SETS_MAX 12
#define FAILING "build/release/tests/libfailing.so"
#define SHARDS 2u
#define MEMBERS 4u // two shards, two workers

static const char config[] =
    "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 16}, \"ps\": {\"shards\": 2},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 4800,"
    "  \"synthetic\": {\"scale\": 0.001, \"clusters\": 4}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]},"
    " \"dispatch\": {\"measure_compute\": false},"
    " \"cache\": {\"rows\": 500}, \"timeouts\": {\"start_s\": 20}}";

static const char *config_path(void)
{
    run_write("config.json", config, strlen(config));
    return run_path("config.json");
}

static void start(process *p, const char *out, const char *flag, const char *const *sets)
{
    run_start_up(p, config, out, flag, sets);
}

static void run(const char *out, const char *flag, const char *const *sets)
{
    run_up(config, out, flag, sets);
}

// A command on a folder of the case; it must end with a status and say a text.
static void command(const char *name, const char *source, const char *out, int status,
                    const char *text)
{
    process p = {0};
    const char *arguments[6] = {process_lanyard(), name, run_path(source)};
    if (out) {
        arguments[3] = "--out";
        arguments[4] = run_path(out);
    }
    process_start(&p, arguments);
    run_must_end(&p, status);
    run_must_say(&p, text);
    process_fini(&p);
}

static void copy_file(const char *from, const char *to)
{
    size_t size;
    char *bytes = run_file(".", from, &size);
    assert_non_null(bytes);
    run_write(to, bytes, size);
    free(bytes);
}

static void remove_all(const char *name)
{
    process p = {0};
    const char *const arguments[] = {"/bin/rm", "-r", run_path(name), NULL};
    assert_int_equal(process_run(&p, arguments, RUN_CASE_S), 0);
    process_fini(&p);
}

// ---- boxes -----------------------------------------------------------------------------------

typedef struct {
    process coordinator, members[MEMBERS];
    const char *sets[SETS_MAX];
} boxes;

// A process of its own folder, by which all relative paths go: as on a box of its own.
static void start_in(process *p, const char *box, const char *const *command_line,
                     const char *const *sets)
{
    static char program[400];
    const char *arguments[16 + 2 * SETS_MAX] = {"/usr/bin/env", "-C", run_path(box), program};
    size_t count = 4;
    assert_non_null(realpath(process_lanyard(), program));
    (void)mkdir(run_path(box), 0777);
    while (*command_line)
        arguments[count++] = *command_line++;
    for (; sets && *sets; sets++) {
        arguments[count++] = "--set";
        arguments[count++] = *sets;
    }
    *p = (process){0};
    process_start(p, arguments);
}

static void start_boxes(boxes *b, const char *flag)
{
    static char config_file[300], address[100];
    static const char *const names[MEMBERS] = {"p0", "p1", "w0", "w1"};
    snprintf(config_file, sizeof config_file, "%s", config_path());
    const char *const coordinator[] = {"coordinator", config_file, "--out", "run", flag, NULL};
    start_in(&b->coordinator, "c", coordinator, b->sets);
    const size_t end = process_await(&b->coordinator, 0, "listening on tcp://", RUN_CASE_S);
    process_await(&b->coordinator, end, "\n", RUN_CASE_S);
    snprintf(address, sizeof address, "%.*s", (int)strcspn(b->coordinator.text + end, "\n"),
             b->coordinator.text + end);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        const char *const member[] = {i < SHARDS ? "ps" : "worker",
                                      config_file,
                                      "--rank",
                                      i % 2 ? "1" : "0",
                                      "--coordinator",
                                      address,
                                      NULL};
        start_in(&b->members[i], names[i], member, b->sets);
    }
}

static void end_boxes(boxes *b, int status, int members_status)
{
    run_must_end(&b->coordinator, status);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        run_must_end(&b->members[i], members_status);
        process_fini(&b->members[i]);
    }
}

static void run_boxes(boxes *b, const char *flag)
{
    start_boxes(b, flag);
    end_boxes(b, 0, 0);
}

static bool exists(const char *name)
{
    return access(run_path(name), F_OK) == 0;
}

// SAVE named a folder of the coordinator's box to processes that cannot see it.
static void no_two_processes_share_a_disk(void **state)
{
    (void)state;
    boxes b = {0};
    run("calm", NULL, NULL);
    run_boxes(&b, NULL);
    process_fini(&b.coordinator);
    run_must_be_the_same("c/run", "calm", SHARDS);
    run_must_equal("c/run", "calm", "model/config.json");
    assert_false(exists("p0/run") || exists("p1/run") || exists("w0/run") || exists("w1/run"));
    assert_false(exists("c/run/model.tmp"));
    command("eval", "c/run/model", NULL, 0, "4800 samples: log loss");
}

// ---- copies ----------------------------------------------------------------------------------

#define EVERY_40 "checkpoint.every_iterations=40", "checkpoint.full_every=3"

static void a_lost_folder_comes_back(void **state)
{
    (void)state;
    boxes b = {.sets = {EVERY_40}};
    run_boxes(&b, NULL);
    process_fini(&b.coordinator);
    assert_int_equal(rename(run_path("c/run/model"), run_path("calm")), 0);
    assert_true(exists("c/run/checkpoints/ckpt-000000000080/rows-001-of-002.bin")); // the copy
    remove_all("p1/run");
    size_t size;
    char *bytes = run_file("p0/run/checkpoints/ckpt-000000000040", "rows-000-of-002.bin", &size);
    assert_non_null(bytes);
    bytes[size / 2] ^= 1; // a base of the one that is resumed from
    run_write("p0/run/checkpoints/ckpt-000000000040/rows-000-of-002.bin", bytes, size);
    free(bytes);
    assert_int_equal(unlink(run_path("c/run/checkpoints/ckpt-000000000120/manifest.json")), 0);
    run_boxes(&b, "--resume");
    run_must_say(&b.coordinator, "ps 1 gets the copy of ");
    run_must_say(&b.coordinator, "ps 0 gets the copy of ");
    run_must_say(&b.coordinator, "going on after iteration 80");
    process_fini(&b.coordinator);
    run_must_equal("c/run/model", "calm", "dense.bin");
    run_must_equal("c/run/model", "calm", "rows-000-of-002.bin");
    run_must_equal("c/run/model", "calm", "rows-001-of-002.bin");
    assert_true(exists("p1/run/checkpoints/ckpt-000000000040/rows-001-of-002.bin")); // sent back
}

static void without_copies_it_is_the_end(void **state)
{
    (void)state;
    boxes b = {.sets = {EVERY_40, "checkpoint.copies=0"}};
    run_boxes(&b, NULL);
    process_fini(&b.coordinator);
    assert_false(exists("c/run/checkpoints/ckpt-000000000080/rows-001-of-002.bin"));
    remove_all("p1/run");
    start_boxes(&b, "--resume");
    end_boxes(&b, 5, 5);
    run_must_say(&b.coordinator, "no checkpoint can be read");
    process_fini(&b.coordinator);
}

// The copy is damaged too: that is named, and the checkpoint before is taken.
static void a_damaged_copy_is_passed_over(void **state)
{
    (void)state;
    boxes b = {.sets = {"checkpoint.every_iterations=40", "checkpoint.full_every=1"}};
    run_boxes(&b, NULL);
    process_fini(&b.coordinator);
    assert_int_equal(rename(run_path("c/run/model"), run_path("calm")), 0);
    remove_all("p1/run");
    size_t size;
    char *bytes = run_file("c/run/checkpoints/ckpt-000000000120", "rows-001-of-002.bin", &size);
    assert_non_null(bytes);
    bytes[size / 2] ^= 1;
    run_write("c/run/checkpoints/ckpt-000000000120/rows-001-of-002.bin", bytes, size);
    free(bytes);
    run_boxes(&b, "--resume");
    run_must_say(&b.coordinator, "the checkpoint of iteration 120 is damaged and passed over");
    run_must_say(&b.coordinator, "going on after iteration 80");
    process_fini(&b.coordinator);
    run_must_equal("c/run/model", "calm", "rows-001-of-002.bin");
}

// ---- torn ------------------------------------------------------------------------------------

static void a_torn_model_is_refused(void **state)
{
    (void)state;
    size_t size;
    const char *const other[] = {"seed=5", "checkpoint.every_iterations=100", NULL};
    run("one", NULL, NULL);
    run("other", NULL, other);
    char *good = run_file("one/model", "rows-001-of-002.bin", &size);
    assert_non_null(good);
    const char *const rows = "one/model/rows-001-of-002.bin";
    copy_file("other/model/rows-001-of-002.bin", rows); // of another run
    command("eval", "one/model", NULL, 1, rows);
    run_write(rows, good, size - 1);
    command("eval", "one/model", NULL, 1, "bytes, the manifest says");
    good[size / 2] ^= 4;
    run_write(rows, good, size);
    command("eval", "one/model", NULL, 1, "has the sum ");
    good[size / 2] ^= 4;
    assert_int_equal(unlink(run_path(rows)), 0);
    command("eval", "one/model", NULL, 1, "manifest.json names: No such file");
    run_write(rows, good, size);
    free(good);
    copy_file("other/model/dense.bin", "one/model/dense.bin"); // AUC 0.682 instead of 0.787
    command("eval", "one/model", NULL, 1, "one/model/dense.bin");
    assert_int_equal(unlink(run_path("one/model/manifest.json")), 0); // as version 0.1.0 left it
    command("eval", "one/model", NULL, 0, "not whether they are of one run");
    assert_int_equal(unlink(run_path("other/checkpoints/ckpt-000000000100/manifest.json")), 0);
    command("eval", "other/checkpoints/ckpt-000000000100", NULL, 1, "was never completed");
}

// ---- export ----------------------------------------------------------------------------------

static void export_makes_the_models_own_bytes(void **state)
{
    (void)state;
    process p;
    const char *const sets[] = {EVERY_40, "checkpoint.at_end=true", NULL};
    run("run", NULL, sets);
    command("export", "run", "again", 0, "ckpt-000000000150");
    const char *const files[] = {"dense.bin", "rows-000-of-002.bin", "rows-001-of-002.bin",
                                 "config.json", "manifest.json"};
    for (size_t i = 0; i < RT_COUNT_OF(files); i++)
        run_must_equal("again", "run/model", files[i]);
    command("export", "run/checkpoints/ckpt-000000000120", "again", 0, "ckpt-000000000120");
    command("eval", "again", NULL, 0, "4800 samples: log loss");
    command("export", "run", ".", 1, "which is no part of a model");
    command("export", "run/model", "more", 0, "more"); // a model is one already
    run_must_equal("more", "run/model", "rows-001-of-002.bin");

    const char *const endless[] = {"checkpoint.every_iterations=30", "stream.samples_max=10000000",
                                   NULL};
    start(&p, "running", NULL, endless); // while it trains
    run_await_checkpoint(&p, "running");
    command("export", "running", "live", 0, "live: the model of ");
    assert_int_equal(kill(p.pid, SIGINT), 0);
    run_must_end(&p, 0);
    process_fini(&p);
}

// ---- ends ------------------------------------------------------------------------------------

static int run_failing(const char *out, const char *order, process *p, const char *const *sets)
{
    setenv("LANYARD_FAIL", order, 1);
    setenv("LD_PRELOAD", FAILING, 1);
    start(p, out, NULL, sets);
    unsetenv("LD_PRELOAD");
    return process_end(p, RUN_CASE_S);
}

// At every rename and removal of the coordinator: what is there then is one of two models.
static void a_kill_leaves_the_old_or_the_new(void **state)
{
    (void)state;
    uint32_t kills = 0, old = 0, new = 0;
    const char *const sets[] = {"seed=5", "stream.samples_max=640", NULL};
    if (!strstr(process_lanyard(), "build/lanyard"))
        test_skip("a library that is loaded first does not go with a sanitizer");
    run("hit", NULL, NULL);
    run("new", NULL, sets);
    assert_int_equal(rename(run_path("hit/model"), run_path("old")), 0);
    for (uint32_t n = 1, killed = 1; killed; n++) {
        char order[64];
        process p;
        (void)mkdir(run_path("hit/model"), 0777);
        const char *const files[] = {"dense.bin",     "scale.bin",           "config.json",
                                     "manifest.json", "rows-000-of-002.bin", "rows-001-of-002.bin"};
        for (size_t i = 0; i < RT_COUNT_OF(files); i++) {
            char from[64], to[64];
            snprintf(from, sizeof from, "old/%s", files[i]);
            snprintf(to, sizeof to, "hit/model/%s", files[i]);
            copy_file(from, to);
        }
        snprintf(order, sizeof order, "coordinator end %u", n);
        (void)run_failing("hit", order, &p, sets);
        killed = strstr(p.text, "failing: ") != NULL;
        kills += killed;
        process_fini(&p);
        command("eval", "hit/model", NULL, 0, "samples: log loss");
        size_t size, old_size;
        char *now = run_file("hit/model", "rows-000-of-002.bin", &size);
        char *before = run_file("old", "rows-000-of-002.bin", &old_size);
        const bool is_old = size == old_size && memcmp(now, before, size) == 0;
        run_must_equal("hit/model", is_old ? "old" : "new/model", "dense.bin");
        run_must_equal("hit/model", is_old ? "old" : "new/model", "rows-001-of-002.bin");
        old += is_old;
        new += !is_old;
        free(now);
        free(before);
        if (exists("hit/model.tmp"))
            remove_all("hit/model.tmp");
    }
    assert_true(kills > 6 && old > 3 && new > 1);
}

// Whatever is killed once model and summary are there.
static void after_the_model_nothing_matters(void **state)
{
    (void)state;
    static const char *const orders[] = {"ps exit 1", "worker exit 1", "coordinator exit 1"};
    if (!strstr(process_lanyard(), "build/lanyard"))
        test_skip("a library that is loaded first does not go with a sanitizer");
    for (size_t i = 0; i < RT_COUNT_OF(orders); i++) {
        process p;
        const char *const sets[] = {"on_worker_loss=restart", NULL};
        const int status = run_failing("hit", orders[i], &p, sets);
        run_must_say(&p, "failing: exit");
        if (status != 0 || strstr(p.text, "restart 1"))
            fail_msg("%s: status %d; it said:\n%s", orders[i], status, p.text);
        process_fini(&p);
        command("eval", "hit/model", NULL, 0, "4800 samples: log loss");
    }
}

// There is no place for the model: the one before stays, and what is trained is not lost.
static void what_could_not_be_saved_is_finished_later(void **state)
{
    (void)state;
    process p;
    const char *const sets[] = {"checkpoint.every_iterations=40", NULL};
    run("calm", NULL, sets);
    assert_int_equal(mkdir(run_path("hit"), 0777), 0);
    assert_int_equal(mkdir(run_path("hit/model.tmp"), 0777), 0);
    assert_int_equal(mkdir(run_path("hit/model.tmp/rows-001-of-002.bin.tmp"), 0777), 0);
    start(&p, "hit", NULL, sets);
    run_must_end(&p, 1);
    run_must_say(&p, "rows-001-of-002.bin.tmp");
    run_must_say(&p, "--resume finishes it, from the checkpoint of iteration 120");
    process_fini(&p);
    assert_false(exists("hit/model"));
    assert_int_equal(rmdir(run_path("hit/model.tmp/rows-001-of-002.bin.tmp")), 0);
    run("hit", "--resume", sets);
    run_must_be_the_same("hit", "calm", SHARDS);
}

// ---- other versions --------------------------------------------------------------------------

// tests/golden/checkpoint-1 was made by lanyard 0.1.0: format 1.
static void a_checkpoint_of_the_version_before_is_read(void **state)
{
    (void)state;
    process p;
    const char *const sets[] = {"batch.samples_per_worker=8",
                                "stream.samples_max=480",
                                "stream.synthetic.scale=0.0002",
                                "stream.synthetic.clusters=2",
                                "model.embedding_dim=2",
                                "model.mlp=[4]",
                                "cache.rows=600",
                                NULL};
    static const char *const files[] = {"config.json",         "dense.bin",
                                        "planner.bin",         "rows-000-of-002.bin",
                                        "rows-001-of-002.bin", "manifest.json"};
    const char *const folder = "run/checkpoints/ckpt-000000000010";
    if (access("tests/golden/checkpoint-1/manifest.json", R_OK) != 0)
        test_skip("is run from the root of the repository");
    assert_int_equal(rt_checkpoint_make(run_path(folder), NULL), RT_OK);
    for (size_t i = 0; i < RT_COUNT_OF(files); i++) {
        char from[100], to[100], bytes[1 << 16];
        snprintf(from, sizeof from, "tests/golden/checkpoint-1/%s", files[i]);
        snprintf(to, sizeof to, "%s/%s", folder, files[i]);
        FILE *file = fopen(from, "r");
        assert_non_null(file);
        run_write(to, bytes, fread(bytes, 1, sizeof bytes, file));
        fclose(file);
    }
    command("eval", folder, NULL, 0, "samples: log loss");
    command("export", folder, "model", 0, "ckpt-000000000010");
    command("eval", "model", NULL, 0, "samples: log loss");
    start(&p, "run", "--resume", sets);
    run_must_end(&p, 0);
    run_must_say(&p, "going on after iteration 10, 160 samples");
    run_must_say(&p, "30 iterations, 480 samples");
    process_fini(&p);
}

// ---- links -----------------------------------------------------------------------------------

static void must_be_precious(const char *why)
{
    char text[16] = "";
    FILE *file = fopen(run_path("elsewhere/manifest.json"), "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    if (strcmp(text, "precious") != 0)
        fail_msg("%s: a file elsewhere was written to", why);
}

// Whoever may write to a run's folder cannot have it write, or remove, something elsewhere.
static void links_lead_nowhere(void **state)
{
    static const char *const files[] = {"running.json",  "running.json.tmp",  "stream.taken",
                                        "metrics.jsonl", "metrics.jsonl.new", "records.jsonl",
                                        "summary.json",  "summary.json.new",  "records.jsonl.new"};
    static const char *const folders[] = {"checkpoints", "model", "model.tmp", "model.old",
                                          "published"};
    static const char *const sets[] = {"checkpoint.every_iterations=50", "publish.every_s=1", NULL};
    char link[64];
    (void)state;
    assert_int_equal(mkdir(run_path("elsewhere"), 0777), 0);
    run_write("elsewhere/manifest.json", "precious", strlen("precious"));
    assert_int_equal(mkdir(run_path("out"), 0777), 0);
    for (size_t i = 0; i < RT_COUNT_OF(files); i++) {
        snprintf(link, sizeof link, "out/%s", files[i]);
        assert_int_equal(symlink("../elsewhere/manifest.json", run_path(link)), 0);
    }
    run("out", NULL, NULL);
    must_be_precious("files");
    for (size_t i = 0; i < RT_COUNT_OF(folders); i++) {
        process p = {0};
        char out[32];
        snprintf(out, sizeof out, "out%zu", i);
        snprintf(link, sizeof link, "out%zu/%s", i, folders[i]);
        assert_int_equal(mkdir(run_path(out), 0777), 0);
        assert_int_equal(symlink("../elsewhere", run_path(link)), 0);
        start(&p, out, NULL, sets);
        run_must_end(&p, 1);
        run_must_say(&p, "a symbolic link: expected a folder of this run");
        process_fini(&p);
        must_be_precious(folders[i]);
    }
}

TEST_MAIN(TEST(links_lead_nowhere), TEST(no_two_processes_share_a_disk),
          TEST(a_lost_folder_comes_back), TEST(without_copies_it_is_the_end),
          TEST(a_damaged_copy_is_passed_over), TEST(a_torn_model_is_refused),
          TEST(export_makes_the_models_own_bytes), TEST_SLOW(a_kill_leaves_the_old_or_the_new, 180),
          TEST(after_the_model_nothing_matters), TEST(what_could_not_be_saved_is_finished_later),
          TEST(a_checkpoint_of_the_version_before_is_read))
