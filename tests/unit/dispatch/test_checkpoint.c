// Checkpoints one after the other as the coordinator makes them: what each builds on, which stay,
// what becomes of one that fails, versions that are published, epochs. The case answers for shards.
#include "dispatch/coordinator/dp_checkpoint.h"

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_file.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/files/rt_published.h"
#include "runtime/rt_hash.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

#define SHARDS 2u
#define SCHEMA UINT64_C(0x1234567890abcdef)
#define CONFIG UINT64_C(0xfedcba0987654321)
#define PATIENCE_S 20u
#define TOLD_MAX 1024

typedef struct {
    rt_config config;
    dp_checkpoint_config how;
    dp_checkpoint *checkpoint;
    rt_wire_cut cut; // of the last one
    char directory[400], published[400];
    double trained_s;
    bool is_held, is_early;
    dp_guard guard;
    dp_evidence evidence;
    uint64_t end_ns;
} fixture;

static char told[TOLD_MAX]; // the last record

static void take(void *context, const char *text, size_t size)
{
    (void)context;
    snprintf(told, sizeof told, "%.*s", (int)size, text);
}

// keep, full_every: as configured. Published where there is a folder for it.
static void prepare(fixture *f, uint32_t keep, uint32_t full_every, bool publishes)
{
    *f = (fixture){.config = config_fresh(),
                   .end_ns = rt_now_ns() + PATIENCE_S * test_limit_factor() * UINT64_C(1000000000),
                   .trained_s = 1000};
    f->config.ps_shard_count = SHARDS;
    f->config.checkpoint.keep = keep;
    f->config.checkpoint.full_every = full_every;
    f->config.checkpoint.copies = 0;
    snprintf(f->directory, sizeof f->directory, "%s", test_path("checkpoints"));
    if (publishes)
        snprintf(f->published, sizeof f->published, "%s", test_path("published"));
    assert_int_equal(rt_checkpoint_make(f->directory, NULL), RT_OK);
    f->how = (dp_checkpoint_config){.directory = f->directory,
                                    .published = f->published,
                                    .config = &f->config,
                                    .config_hash = CONFIG,
                                    .schema = SCHEMA,
                                    .epoch = 4,
                                    .guard = &f->guard,
                                    .evidence = &f->evidence};
    dp_evidence_init(&f->evidence, &f->config, 0);
    assert_int_equal(rt_metrics_open(NULL, &f->how.metrics, NULL), RT_OK);
    rt_metrics_tap(f->how.metrics, take, NULL);
}

static void open_with(fixture *f, const dp_checkpoint_past *past, uint32_t count)
{
    rt_error error = {0};
    if (dp_checkpoint_create(&f->how, past, count, &f->checkpoint, &error))
        fail_msg("%s", error.text);
}

static void close_all(fixture *f)
{
    dp_checkpoint_destroy(f->checkpoint);
    dp_evidence_fini(&f->evidence);
    rt_metrics_close(f->how.metrics);
    rt_config_fini(&f->config);
    char command[900];
    snprintf(command, sizeof command, "rm -rf '%s' '%s'", f->directory, f->published);
    assert_int_equal(system(command), 0);
}

static void put_text(rt_bytes *bytes, const char *what, uint32_t iteration)
{
    char text[64];
    const int size = snprintf(text, sizeof text, "%s of %u", what, iteration);
    *bytes = (rt_bytes){0};
    rt_bytes_put(bytes, text, (size_t)size);
}

static void begin(fixture *f, uint32_t iteration)
{
    rt_error error = {0};
    dp_checkpoint_content content = {.iteration = iteration,
                                     .samples = 10 * iteration,
                                     .events.next[0] = 100 * iteration,
                                     .scale_samples = 7 * iteration,
                                     .trained_s = f->trained_s,
                                     .verdict = {.log_loss = 0.5,
                                                 .normalised_entropy = 0.75,
                                                 .calibration = 1.25,
                                                 .is_held = f->is_held,
                                                 .is_early = f->is_early}};
    put_text(&content.state, "state", iteration);
    put_text(&content.dense, "dense", iteration);
    put_text(&content.scale, "scale", iteration);
    if (dp_checkpoint_begin(f->checkpoint, &content, &f->cut, &error))
        fail_msg("%s", error.text);
    assert_true(dp_checkpoint_busy(f->checkpoint));
}

// A shard's rows are written, or not.
static rt_status say_written(fixture *f, uint32_t shard, uint32_t iteration, rt_status status,
                             rt_error *error)
{
    static const char why[] = "no room";
    rt_message message;
    const size_t more = status ? strlen(why) : 0;
    const rt_wire_written written = {
        .status = (uint32_t)status, .bytes = (f->cut.base ? 50 : 5000) + shard, .hash = 60 + shard};
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_WRITTEN, rt_peer(RT_ROLE_PS, shard),
                                       iteration, 1, sizeof written + more),
                     RT_OK);
    memcpy(rt_message_payload(&message), &written, sizeof written);
    memcpy(rt_message_payload(&message) + sizeof written, why, more);
    status = dp_checkpoint_written(f->checkpoint, shard, &message, error);
    rt_message_release(&message);
    return status;
}

static void await_end(fixture *f)
{
    while (dp_checkpoint_busy(f->checkpoint)) {
        struct pollfd child = {.fd = dp_checkpoint_fd(f->checkpoint), .events = POLLIN};
        assert_true(rt_now_ns() < f->end_ns);
        (void)poll(&child, 1, 100);
        dp_checkpoint_step(f->checkpoint);
    }
    assert_int_equal(dp_checkpoint_fd(f->checkpoint), -1);
}

static void finish(fixture *f, uint32_t iteration)
{
    dp_checkpoint_write(f->checkpoint);
    for (uint32_t s = 0; s < SHARDS; s++)
        assert_int_equal(say_written(f, s, iteration, RT_OK, NULL), RT_OK);
    await_end(f);
}

static void make(fixture *f, uint32_t iteration)
{
    begin(f, iteration);
    finish(f, iteration);
    assert_int_equal(dp_checkpoint_newest(f->checkpoint), iteration);
}

// Those that are there are these, and all are complete.
static void must_be_there(const char *folder, const uint32_t *want, uint32_t want_count)
{
    uint32_t *iterations, count;
    char path[RT_FOLDER_MAX];
    assert_int_equal(rt_checkpoint_list(folder, &iterations, &count, NULL), RT_OK);
    assert_int_equal(count, want_count);
    for (uint32_t i = 0; i < count; i++) {
        cJSON *root;
        assert_int_equal(iterations[i], want[i]);
        assert_int_equal(rt_checkpoint_path(folder, iterations[i], path, sizeof path, NULL), RT_OK);
        assert_int_equal(rt_manifest_read(path, &root, NULL), RT_OK);
        cJSON_Delete(root);
    }
    rt_free(iterations);
}

static cJSON *manifest_of(const char *folder, uint32_t iteration)
{
    char path[RT_FOLDER_MAX];
    cJSON *root;
    assert_int_equal(rt_checkpoint_path(folder, iteration, path, sizeof path, NULL), RT_OK);
    assert_int_equal(rt_manifest_read(path, &root, NULL), RT_OK);
    return root;
}

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    if (!cJSON_IsNumber(item))
        fail_msg("no %s", name);
    return item->valuedouble;
}

// ---- what is written ---------------------------------------------------------------------------

static void part_must_be(const cJSON *root, const char *name, uint64_t bytes, uint64_t hash)
{
    rt_manifest_part part;
    if (!rt_manifest_part_of(root, name, &part) || part.sum.bytes != bytes || part.sum.hash != hash)
        fail_msg("%s: another part", name);
}

static void file_must_be(const fixture *f, const char *name, const char *text)
{
    char path[800], got[100];
    snprintf(path, sizeof path, "%s/%s", f->cut.folder, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    got[fread(got, 1, sizeof got - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(got, text);
}

static void all_of_it_is_written(void **state)
{
    (void)state;
    fixture f;
    char path[800], hash[20];
    rt_bytes bytes = {0};
    rt_file_sum sum;
    prepare(&f, 3, 3, false);
    open_with(&f, NULL, 0);
    make(&f, 7);
    snprintf(path, sizeof path, "%s/ckpt-000000000007", f.directory);
    assert_string_equal(f.cut.folder, path);
    file_must_be(&f, "dense.bin", "dense of 7");
    file_must_be(&f, "scale.bin", "scale of 7");
    snprintf(path, sizeof path, "%s/planner.bin", f.cut.folder);
    assert_int_equal(rt_pack_read(path, DP_CHECKPOINT_MAGIC, &bytes, &sum, NULL), RT_OK);
    assert_int_equal(bytes.size, 10);
    assert_memory_equal(bytes.data, "state of 7", 10);
    rt_bytes_fini(&bytes);
    cJSON *root = manifest_of(f.directory, 7), *record = cJSON_Parse(told);
    static const struct {
        const char *name;
        double value;
    } numbers[] = {{"iteration", 7}, {"base", 0},   {"samples", 70},
                   {"epoch", 4},     {"shards", 2}, {"scale_samples", 49}};
    for (size_t i = 0; i < RT_COUNT_OF(numbers); i++)
        assert_true(number(root, numbers[i].name) == numbers[i].value);
    assert_string_equal(cJSON_GetObjectItem(root, "kind")->valuestring, "checkpoint");
    assert_string_equal(cJSON_GetObjectItem(root, "homes")->valuestring, "hashed");
    snprintf(hash, sizeof hash, "%016lx", (unsigned long)SCHEMA);
    assert_string_equal(cJSON_GetObjectItem(root, "schema")->valuestring, hash);
    snprintf(hash, sizeof hash, "%016lx", (unsigned long)CONFIG);
    assert_string_equal(cJSON_GetObjectItem(root, "config")->valuestring, hash);
    part_must_be(root, "rows-000-of-002.bin", 5000, 60);
    part_must_be(root, "rows-001-of-002.bin", 5001, 61);
    part_must_be(root, "dense.bin", 10, rt_hash_bytes("dense of 7", 10));
    part_must_be(root, "scale.bin", 10, rt_hash_bytes("scale of 7", 10));
    part_must_be(root, "planner.bin", sum.bytes, sum.hash);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(record, "complete")));
    assert_true(number(record, "bytes") == (double)(5000 + 5001 + sum.bytes + 10));
    assert_true(number(record, "iteration") == 7 && number(record, "base") == 0);
    cJSON_Delete(root);
    cJSON_Delete(record);
    close_all(&f);
}

// ---- which build on which, which stay --------------------------------------------------------

#define MADE 7u // one after the other

static void what_builds_on_what(void **state)
{
    (void)state;
    static const struct {
        uint32_t full_every, bases[MADE];
    } cases[] = {{1, {0, 0, 0, 0, 0, 0, 0}},
                 {2, {0, 1, 0, 3, 0, 5, 0}},
                 {3, {0, 1, 2, 0, 4, 5, 0}},
                 {100, {0, 1, 2, 3, 4, 5, 6}}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        fixture f;
        prepare(&f, 100, cases[i].full_every, false);
        open_with(&f, NULL, 0);
        for (uint32_t t = 1; t <= MADE; t++) {
            make(&f, t);
            cJSON *root = manifest_of(f.directory, t);
            assert_int_equal(f.cut.base, cases[i].bases[t - 1]);
            assert_int_equal(f.cut.keep_from, t > 1);
            assert_true(number(root, "base") == f.cut.base);
            assert_int_equal(dp_checkpoint_events(f.checkpoint, true).next[0], 100 * t);
            assert_int_equal(dp_checkpoint_events(f.checkpoint, false).next[0], 100);
            cJSON_Delete(root);
        }
        close_all(&f);
    }
}

// After so many, those from `first` on are left. Shards are told with the next one.
static void which_stay(void **state)
{
    (void)state;
    static const struct {
        uint32_t keep, full_every, first[MADE];
    } cases[] = {{1, 1, {1, 2, 3, 4, 5, 6, 7}}, {2, 1, {1, 1, 2, 3, 4, 5, 6}},
                 {3, 1, {1, 1, 1, 2, 3, 4, 5}}, {1, 3, {1, 1, 1, 4, 4, 4, 7}},
                 {2, 3, {1, 1, 1, 1, 4, 4, 4}}, {1, 100, {1, 1, 1, 1, 1, 1, 1}}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        fixture f;
        uint32_t want[MADE];
        prepare(&f, cases[i].keep, cases[i].full_every, false);
        open_with(&f, NULL, 0);
        for (uint32_t t = 1; t <= MADE; t++) {
            const uint32_t first = cases[i].first[t - 1];
            make(&f, t);
            assert_int_equal(f.cut.keep_from, t == 1 ? 0 : cases[i].first[t - 2]);
            for (uint32_t k = first; k <= t; k++)
                want[k - first] = k;
            must_be_there(f.directory, want, t - first + 1);
            assert_int_equal(dp_checkpoint_events(f.checkpoint, false).next[0], 100 * first);
        }
        close_all(&f);
    }
}

// Of those that are too old none stays but for what the newest builds on.
static void old_ones_go(void **state)
{
    (void)state;
    for (uint32_t full_every = 1; full_every <= 3; full_every += 2) {
        fixture f;
        const struct timeval hour_ago[2] = {{time(NULL) - 3600, 0}, {time(NULL) - 3600, 0}};
        static const uint32_t changes[] = {1, 2, 3}, full[] = {3};
        prepare(&f, 100, full_every, false);
        f.config.checkpoint.keep_s = 1800;
        open_with(&f, NULL, 0);
        for (uint32_t t = 1; t <= 2; t++) {
            char path[RT_FOLDER_MAX + 40];
            make(&f, t);
            snprintf(path, sizeof path, "%s/manifest.json", f.cut.folder);
            assert_int_equal(utimes(path, hour_ago), 0);
        }
        make(&f, 3);
        must_be_there(f.directory, full_every == 1 ? full : changes, full_every == 1 ? 1 : 3);
        close_all(&f);
    }
}

// Rows were forgotten: files of changes do not tell that, until one has come that has all rows.
static void all_rows_are_wanted(void **state)
{
    (void)state;
    static const uint32_t bases[] = {0, 1, 0, 0, 0, 5};
    fixture f;
    prepare(&f, 100, 100, false);
    open_with(&f, NULL, 0);
    assert_true(dp_checkpoint_has_all(f.checkpoint));
    for (uint32_t t = 1; t <= 6; t++) {
        if (t == 3) {
            dp_checkpoint_want_all(f.checkpoint, 4);
            dp_checkpoint_want_all(f.checkpoint, 2); // wanted already
        }
        assert_int_equal(dp_checkpoint_has_all(f.checkpoint), t < 3 || t > 5);
        make(&f, t);
        assert_int_equal(f.cut.base, bases[t - 1]);
    }
    close_all(&f);
}

static void what_was_there_counts(void **state)
{
    (void)state;
    static const dp_checkpoint_past past[] = {{3, 0, {{5}}, 900}, {5, 3, {{6}}, 90}};
    for (uint32_t of_others = 0; of_others < 2; of_others++) {
        fixture f;
        prepare(&f, 100, 3, false);
        f.how.is_of_others = of_others;
        open_with(&f, past, 2);
        assert_int_equal(dp_checkpoint_newest(f.checkpoint), 5);
        assert_int_equal(dp_checkpoint_events(f.checkpoint, false).next[0], 5);
        assert_int_equal(dp_checkpoint_events(f.checkpoint, true).next[0], 6);
        make(&f, 8);
        assert_int_equal(f.cut.base, of_others ? 0 : 5);
        assert_int_equal(f.cut.keep_from, 3);
        make(&f, 9);
        assert_int_equal(f.cut.base, of_others ? 8 : 0);
        close_all(&f);
    }
}

// ---- what fails --------------------------------------------------------------------------------

// Training goes on without it, and the next builds on the one before.
static void one_that_fails_is_nobodys(void **state)
{
    (void)state;
    static const uint32_t left[] = {1}, then[] = {1, 3};
    for (uint32_t own = 0; own < 2; own++) {
        fixture f;
        char path[800];
        prepare(&f, 2, 3, false);
        open_with(&f, NULL, 0);
        make(&f, 1);
        begin(&f, 2);
        if (own) { // its folder cannot be made
            snprintf(path, sizeof path, "%s", f.cut.folder);
            FILE *file = fopen(path, "w");
            assert_non_null(file);
            fclose(file);
        }
        dp_checkpoint_write(f.checkpoint);
        assert_int_equal(say_written(&f, 0, 2, RT_OK, NULL), RT_OK);
        assert_int_equal(say_written(&f, 1, 2, own ? RT_OK : RT_IO, NULL), RT_OK);
        await_end(&f);
        assert_int_equal(dp_checkpoint_newest(f.checkpoint), 1);
        cJSON *record = cJSON_Parse(told);
        assert_true(cJSON_IsFalse(cJSON_GetObjectItem(record, "complete")));
        cJSON_Delete(record);
        if (own)
            (void)unlink(path);
        must_be_there(f.directory, left, 1);
        make(&f, 3);
        assert_int_equal(f.cut.base, 1);
        must_be_there(f.directory, then, 2);
        close_all(&f);
    }
}

static void must_refuse(fixture *f, uint32_t shard, uint32_t iteration, const char *text)
{
    rt_error error = {0};
    assert_int_equal(say_written(f, shard, iteration, RT_OK, &error), RT_WIRE);
    assert_string_equal(error.text, text);
}

static void answers_that_nobody_waits_for(void **state)
{
    (void)state;
    fixture f;
    rt_error error = {0};
    rt_message message;
    prepare(&f, 2, 3, false);
    open_with(&f, NULL, 0);
    must_refuse(&f, 0, 5, "ps 0: WRITTEN that nobody waits for");
    begin(&f, 5);
    dp_checkpoint_write(f.checkpoint);
    must_refuse(&f, 0, 4, "ps 0: WRITTEN that nobody waits for");
    must_refuse(&f, SHARDS, 5, "ps 2: WRITTEN that nobody waits for");
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_WRITTEN, rt_peer(RT_ROLE_PS, 0), 5, 1,
                                       sizeof(rt_wire_written) - 1),
                     RT_OK);
    assert_int_equal(dp_checkpoint_written(f.checkpoint, 0, &message, &error), RT_WIRE);
    rt_message_release(&message);
    assert_int_equal(say_written(&f, 1, 5, RT_OK, NULL), RT_OK);
    must_refuse(&f, 1, 5, "ps 1: WRITTEN that nobody waits for");
    assert_int_equal(say_written(&f, 0, 5, RT_OK, NULL), RT_OK);
    await_end(&f);
    assert_int_equal(dp_checkpoint_newest(f.checkpoint), 5);
    close_all(&f);
}

// ---- published ---------------------------------------------------------------------------------

static rt_published in_force(const fixture *f)
{
    rt_published current;
    assert_int_equal(rt_published_read(f->published, &current, NULL), RT_OK);
    return current;
}

static rt_published_version version_of(const fixture *f, uint32_t iteration)
{
    rt_published_version version;
    rt_error error = {0};
    if (rt_published_version_of(f->published, iteration, &version, &error))
        fail_msg("%s", error.text);
    return version;
}

static double last_number(const char *name)
{
    cJSON *record = cJSON_Parse(told);
    const cJSON *member = cJSON_GetObjectItem(record, name);
    const double value = cJSON_IsBool(member) ? cJSON_IsTrue(member) : number(record, name);
    cJSON_Delete(record);
    return value;
}

// Each is one of the run, says when its samples were trained, and is in force unless it is held
// back, or somebody has pinned another.
static void versions_of_a_run(void **state)
{
    (void)state;
    fixture f;
    prepare(&f, 100, 100, true);
    f.config.publish.keep = 100;
    open_with(&f, NULL, 0);
    make(&f, 1);
    const uint64_t run = version_of(&f, 1).run;
    assert_true(run != 0 && in_force(&f).iteration == 1 && !in_force(&f).pinned);
    assert_true(version_of(&f, 1).trained_s == 1000 && version_of(&f, 1).since_s == 1000);
    f.trained_s = 1010;
    make(&f, 2);
    rt_published_version version = version_of(&f, 2);
    assert_true(version.run == run && version.base == 1 && version.samples == 20);
    assert_true(version.trained_s == 1010 && version.since_s == 1000 && !version.is_held);
    assert_true(version.log_loss == 0.5 && version.calibration == 1.25);
    assert_int_equal(in_force(&f).iteration, 2);
    cJSON *record = cJSON_Parse(told);
    assert_string_equal(cJSON_GetObjectItem(record, "record")->valuestring, "publish");
    assert_true(number(record, "iteration") == 2 && number(record, "normalised_entropy") == 0.75);
    assert_true(cJSON_IsFalse(cJSON_GetObjectItem(record, "held")));
    cJSON_Delete(record);
    f.is_held = true;
    make(&f, 3);
    assert_true(version_of(&f, 3).is_held && version_of(&f, 3).since_s == 1010);
    assert_int_equal(in_force(&f).iteration, 2);
    f.is_held = false;
    const rt_published pinned = {.iteration = 1, .pinned = true};
    assert_int_equal(rt_published_write(f.published, &pinned, NULL), RT_OK);
    make(&f, 4);
    assert_true(version_of(&f, 4).base == 3 && in_force(&f).iteration == 1 && in_force(&f).pinned);
    assert_true(last_number("pinned") == 1 && last_number("held") == 0);
    cJSON *root = manifest_of(f.published, 4);
    rt_manifest_part part;
    assert_false(rt_manifest_part_of(root, "planner.bin", &part)); // nobody else needs it
    assert_true(rt_manifest_part_of(root, "dense.bin", &part));
    cJSON_Delete(root);
    close_all(&f);
}

// What the version in force says of every sample, in the copy that asks.
static float theirs;

static rt_status recall(const char *folder, const rt_batch *batch, uint32_t first,
                        uint32_t output_count, float *predictions, rt_error *error)
{
    assert_true(output_count == 1 && strstr(folder, "ckpt-000000000001") != NULL);
    if (theirs < 0)
        return rt_fail(error, RT_IO, "no such file");
    for (uint32_t i = first; i < batch->sample_count; i++)
        predictions[i - first] = theirs;
    return RT_OK;
}

// Half of these have label 1, and are given 0.4 and 0.6 by the run.
static void come(fixture *f, uint32_t iteration)
{
    dp_heard heard;
    float predictions[200];
    uint64_t passed = 0;
    rt_batch batch;
    const uint64_t key = 7;
    rt_batch_init(&batch, 0);
    for (uint32_t i = 0; i < RT_COUNT_OF(predictions); i++) {
        assert_int_equal(rt_batch_append(&batch, (float)(i % 2), NULL, &key, 1), RT_OK);
        predictions[i] = i % 2 ? 0.6f : 0.4f;
    }
    dp_heard_init(&heard, 0);
    assert_int_equal(dp_heard_take(&heard, &batch, 1, &passed), RT_OK);
    for (uint32_t i = 0; i < batch.sample_count; i++)
        heard.at[i] = i;
    dp_evidence_add(&f->evidence, &heard, predictions, 1, iteration);
    dp_heard_fini(&heard);
    rt_batch_fini(&batch);
}

// A version that the first look doubts is held against the one in force by the samples that came
// since; without any, or where it cannot be read, it stays back.
static void the_newest_against_the_one_in_force(void **state)
{
    (void)state;
    fixture f;
    prepare(&f, 100, 100, true);
    f.how.recall = recall;
    f.config.publish.keep = 100;
    f.config.publish.guard_hold_s = 1e6;
    open_with(&f, NULL, 0);
    make(&f, 1);
    assert_true(f.guard.good_entropy == 0.75);
    f.is_held = true;
    theirs = 0.5f;
    make(&f, 2); // nothing has come
    assert_int_equal(in_force(&f).iteration, 1);
    assert_true(last_number("held") == 1 && last_number("early") == 1);
    come(&f, 2);
    theirs = -1;
    make(&f, 3);
    assert_int_equal(in_force(&f).iteration, 1);
    assert_true(last_number("held_count") == 1);
    theirs = 0.5f; // log loss 0.69; the run's is 0.51
    make(&f, 4);
    assert_int_equal(in_force(&f).iteration, 4);
    assert_false(version_of(&f, 4).is_held);
    assert_true(last_number("in_force") == 1 && last_number("compared") == 200);
    test_close(last_number("in_force_logloss"), 0.6931, 1e-3, 1, "log loss in force");
    test_close(last_number("compared_logloss"), 0.5108, 1e-3, 1, "log loss of the newest");
    assert_true(last_number("held_count") == 0 && last_number("held") == 0);
    const rt_published back = {.iteration = 1, .pinned = true};
    assert_int_equal(rt_published_write(f.published, &back, NULL), RT_OK);
    make(&f, 5); // pinned: nothing is compared
    assert_true(last_number("held") == 1 && in_force(&f).iteration == 1);
    f.is_early = true;
    make(&f, 6);
    assert_true(last_number("held") == 1 && last_number("early") == 1);
    close_all(&f);
}

// It waits for samples to be compared by, but when the time is over that is told.
static void who_waits_for_samples_is_told_of(void **state)
{
    (void)state;
    fixture f;
    prepare(&f, 100, 100, true);
    f.how.recall = recall;
    f.config.publish.guard_hold_s = 1e-9;
    open_with(&f, NULL, 0);
    make(&f, 1);
    f.is_held = true;
    make(&f, 2);
    assert_true(last_number("held") == 1 && last_number("early") == 1);
    make(&f, 3);
    assert_true(last_number("held") == 1 && last_number("early") == 0);
    assert_true(last_number("held_count") == 1);
    close_all(&f);
}

// A run that begins again in the folder of one that came further takes its version away once it has
// one that passes, and not before.
static void what_another_run_published_stays(void **state)
{
    (void)state;
    static const uint32_t before[] = {4, 5}, now[] = {3};
    fixture f;
    prepare(&f, 100, 100, true);
    f.config.publish.keep = 100;
    open_with(&f, NULL, 0);
    make(&f, 4);
    make(&f, 5);
    dp_checkpoint_destroy(f.checkpoint);
    open_with(&f, NULL, 0);
    f.is_held = true;
    make(&f, 1);
    make(&f, 2);
    assert_int_equal(in_force(&f).iteration, 5);
    must_be_there(f.published, before, 2);
    f.is_held = false;
    make(&f, 3);
    assert_int_equal(in_force(&f).iteration, 3);
    assert_int_equal(version_of(&f, 3).base, 0);
    must_be_there(f.published, now, 1);
    close_all(&f);
}

// It is worse there, too: it stays back, and so it does when the time is over. A margin that is set
// meanwhile counts from the next version on.
static void what_is_worse_stays_back(void **state)
{
    (void)state;
    fixture f;
    prepare(&f, 100, 100, true);
    f.how.recall = recall;
    f.config.publish.guard_log_loss = 0.05;
    f.config.publish.guard_hold_s = 1e6;
    open_with(&f, NULL, 0);
    make(&f, 1);
    f.is_held = true;
    come(&f, 2);
    for (uint32_t i = 0; i < f.evidence.batch.sample_count; i++)
        f.evidence.batch.labels[i] = i % 20 == 1; // of which the run says 0.5 on average
    theirs = 0.1f;
    make(&f, 3);
    assert_true(last_number("held_count") == 1 && last_number("early") == 0);
    f.config.publish.guard_hold_s = 0;
    make(&f, 4);
    assert_true(last_number("held_count") == 2);
    assert_int_equal(in_force(&f).iteration, 1);
    f.config.publish.guard_log_loss = f.config.publish.guard_calibration = 0;
    make(&f, 5);
    assert_int_equal(in_force(&f).iteration, 5);
    close_all(&f);
}

// A run that goes on from the newest version goes on with its versions; from anything else they are
// another run's, and the first has all rows.
static void versions_of_runs_that_go_on(void **state)
{
    (void)state;
    enum { AS_IT_WAS, FROM_BEFORE, OF_OTHERS, OTHER_START, CASES };
    static const dp_checkpoint_past past[] = {{1, 0, {{0}}, 900}, {2, 1, {{0}}, 90}};
    static const uint32_t all[] = {1, 2, 3};
    for (uint32_t which = AS_IT_WAS; which < CASES; which++) {
        fixture f;
        prepare(&f, 100, 100, true);
        f.config.publish.keep = 100;
        open_with(&f, NULL, 0);
        make(&f, 1);
        f.trained_s = 1010;
        make(&f, 2);
        const uint64_t run = version_of(&f, 2).run;
        dp_checkpoint_destroy(f.checkpoint);
        if (which == OTHER_START) { // the checkpoint was made again by another
            f.how.epoch++;
            f.how.published = "";
            open_with(&f, past, 1);
            make(&f, 2);
            dp_checkpoint_destroy(f.checkpoint);
            f.how.published = f.published;
        }
        f.how.is_of_others = which == OF_OTHERS;
        f.how.epoch++;
        f.trained_s = 1020;
        open_with(&f, past, which == FROM_BEFORE ? 1 : 2);
        make(&f, 3);
        const rt_published_version version = version_of(&f, 3);
        const bool is_same = which == AS_IT_WAS;
        assert_int_equal(version.run == run, is_same);
        assert_int_equal(version.base, is_same ? 2 : 0);
        assert_true(version.since_s == (is_same ? 1010 : 1020));
        must_be_there(f.published, all, 3);
        close_all(&f);
    }
}

// A version that cannot be published is no failure of the checkpoint; the next has all rows.
static void what_cannot_be_published(void **state)
{
    (void)state;
    fixture f;
    char command[900];
    prepare(&f, 100, 100, true);
    open_with(&f, NULL, 0);
    make(&f, 1);
    snprintf(command, sizeof command, "rm -r '%s' && touch '%s'", f.published, f.published);
    assert_int_equal(system(command), 0);
    make(&f, 2);
    assert_int_equal(f.cut.base, 1);
    cJSON *record = cJSON_Parse(told);
    assert_string_equal(cJSON_GetObjectItem(record, "record")->valuestring, "checkpoint");
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(record, "complete")));
    cJSON_Delete(record);
    assert_int_equal(unlink(f.published), 0);
    assert_int_equal(rt_checkpoint_make(f.published, NULL), RT_OK);
    make(&f, 3);
    assert_int_equal(f.cut.base, 0);
    assert_int_equal(in_force(&f).iteration, 3);
    make(&f, 4);
    assert_int_equal(f.cut.base, 3);
    close_all(&f);
}

// ---- beside ------------------------------------------------------------------------------------

static void epochs_are_counted(void **state)
{
    (void)state;
    char folder[400], path[500];
    uint32_t epoch;
    snprintf(folder, sizeof folder, "%s", test_path("checkpoints"));
    snprintf(path, sizeof path, "%s/epoch", folder);
    assert_int_equal(rt_checkpoint_make(folder, NULL), RT_OK);
    assert_int_equal(dp_checkpoint_epoch(folder), 0);
    for (uint32_t start = 1; start <= 3; start++) {
        assert_int_equal(dp_checkpoint_begin_epoch(folder, &epoch, NULL), RT_OK);
        assert_int_equal(epoch, start);
        assert_int_equal(dp_checkpoint_epoch(folder), start);
    }
    static const uint32_t raised[][2] = {{1, 3}, {4, 3}, {5, 4}, {100, 99}, {100, 99}, {7, 99}};
    for (size_t i = 0; i < RT_COUNT_OF(raised); i++) {
        assert_int_equal(dp_checkpoint_raise_epoch(folder, raised[i][0], NULL), RT_OK);
        assert_int_equal(dp_checkpoint_epoch(folder), raised[i][1]);
    }
    static const char *const damaged[] = {"99 0000000000000000\n", "99\n", "", "x"};
    for (size_t i = 0; i < RT_COUNT_OF(damaged); i++) {
        assert_int_equal(rt_file_save(path, damaged[i], strlen(damaged[i]), NULL), RT_OK);
        const uint32_t now = (uint32_t)time(NULL); // above every number of starts
        assert_in_range(dp_checkpoint_epoch(folder), now, now + 100);
    }
    assert_int_equal(rt_file_save(test_path("none"), "", 0, NULL), RT_OK);
    assert_int_not_equal(dp_checkpoint_begin_epoch(test_path("none"), &epoch, NULL), RT_OK);
}

// Without one there is none afterwards, whoever left one behind.
static void a_scale_or_none(void **state)
{
    (void)state;
    char folder[400], path[500];
    rt_error error = {0};
    const rt_bytes some = {.data = (uint8_t *)"scale", .size = 5}, none = {0};
    snprintf(folder, sizeof folder, "%s", test_path("folder"));
    snprintf(path, sizeof path, "%s/scale.bin", folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(dp_checkpoint_write_scale(&none, folder, NULL), RT_OK);
    assert_int_equal(dp_checkpoint_write_scale(&some, folder, NULL), RT_OK);
    assert_int_equal(access(path, R_OK), 0);
    assert_int_equal(dp_checkpoint_write_scale(&none, folder, NULL), RT_OK);
    assert_int_not_equal(access(path, R_OK), 0);
    assert_int_equal(mkdir(path, 0700), 0); // cannot be removed so
    assert_int_equal(dp_checkpoint_write_scale(&none, folder, &error), RT_IO);
    assert_non_null(strstr(error.text, "cannot remove"));
}

// ---- merging ----------------------------------------------------------------------------------

#define MERGED_BYTES 5000u // more than the changes

static const char zeros[6000];

// What becomes of the next merge.
static enum { MERGES, DIES, FAILS, WAITS } merge_does;

static rt_status merge(const char *const *paths, const rt_file_sum *sums, uint32_t count,
                       const rt_sink *sink, rt_file_sum *sum_p, rt_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        struct stat info;
        if (stat(paths[i], &info) != 0 || (uint64_t)info.st_size != sums[i].bytes)
            return rt_fail(error, RT_DATA, "%s", paths[i]);
    }
    rt_status status = sink->open(sink->context, 0, error);
    if (!status)
        status = sink->write(sink->context, zeros, MERGED_BYTES, error);
    if (merge_does == DIES && strstr(paths[0], "rows-001"))
        raise(SIGKILL);
    while (merge_does == WAITS)
        (void)pause();
    if (merge_does == FAILS) {
        sink->abort(sink->context);
        return rt_fail(error, RT_IO, "the disk is full");
    }
    *sum_p = (rt_file_sum){MERGED_BYTES, 70 + count};
    return status ? status : sink->commit(sink->context, error);
}

// As make, with the shards' files.
static void make_files(fixture *f, uint32_t iteration)
{
    char folder[RT_FOLDER_MAX], path[RT_FOLDER_MAX + 64];
    begin(f, iteration);
    assert_int_equal(rt_checkpoint_path(f->directory, iteration, folder, sizeof folder, NULL),
                     RT_OK);
    assert_int_equal(rt_checkpoint_make(folder, NULL), RT_OK);
    for (uint32_t s = 0; s < SHARDS; s++) {
        snprintf(path, sizeof path, "%s/rows-%03u-of-%03u.bin", folder, s, SHARDS);
        assert_int_equal(rt_file_save(path, zeros, (f->cut.base ? 50 : 5000) + s, NULL), RT_OK);
    }
    finish(f, iteration);
}

static void await_merge(fixture *f)
{
    while (dp_checkpoint_merge_fd(f->checkpoint) >= 0) {
        assert_true(rt_now_ns() < f->end_ns);
        struct pollfd child = {.fd = dp_checkpoint_merge_fd(f->checkpoint), .events = POLLIN};
        (void)poll(&child, 1, 100);
        dp_checkpoint_step(f->checkpoint);
    }
}

static void base_must_be(const char *folder, uint32_t iteration, double base)
{
    char path[RT_FOLDER_MAX];
    cJSON *root = manifest_of(folder, iteration);
    assert_int_equal(rt_checkpoint_path(folder, iteration, path, sizeof path, NULL), RT_OK);
    assert_int_equal(rt_manifest_check(path, root, NULL), RT_OK);
    assert_true(number(root, "base") == base);
    cJSON_Delete(root);
}

static void begin_merging(fixture *f, int does)
{
    merge_does = does;
    prepare(f, 2, 3, true);
    f->how.merge = merge;
    open_with(f, NULL, 0);
    for (uint32_t t = 1; t <= 3; t++)
        make_files(f, t);
    assert_true(dp_checkpoint_merge_fd(f->checkpoint) >= 0);
}

// Cuts go on meanwhile, and build on what is being merged; afterwards what it was made of goes.
static void merged_beside_the_run(void **state)
{
    (void)state;
    fixture f;
    begin_merging(&f, MERGES);
    make_files(&f, 4);
    assert_int_equal(f.cut.base, 3);
    await_merge(&f);
    base_must_be(f.directory, 3, 0);
    base_must_be(f.directory, 4, 3);
    base_must_be(f.published, 3, 0);
    base_must_be(f.published, 4, 3);
    cJSON *root = manifest_of(f.directory, 3);
    part_must_be(root, "rows-001-of-002.bin", MERGED_BYTES, 73);
    uint64_t lineage = RT_LINEAGE_ALL_ROWS, told_lineage;
    for (uint32_t t = 0; t < 3; t++) // as shards know it
        lineage = rt_control_lineage(lineage, (t ? 50 : 5000) + 1, 61);
    assert_true(rt_manifest_hash(cJSON_GetObjectItem(root, "lineages"), "rows-001-of-002.bin",
                                 &told_lineage));
    assert_true(lineage == told_lineage);
    cJSON_Delete(root);
    make_files(&f, 5);
    assert_int_equal(f.cut.base, 4);
    must_be_there(f.directory, (const uint32_t[]){3, 4, 5}, 3);
    close_all(&f);
}

// It is killed, or has no room: the chain is as it was, and shards write all rows once.
static void merges_that_fail(void **state)
{
    (void)state;
    for (int does = DIES; does <= FAILS; does++) {
        fixture f;
        begin_merging(&f, does);
        await_merge(&f);
        base_must_be(f.directory, 3, 2);
        base_must_be(f.published, 3, 2);
        make_files(&f, 4);
        assert_int_equal(f.cut.base, 0);
        merge_does = MERGES;
        for (uint32_t t = 5; t <= 6; t++)
            make_files(&f, t);
        await_merge(&f);
        base_must_be(f.directory, 6, 0);
        close_all(&f);
    }
}

// No file of rows that are to be forgotten is made, and what a merge has begun goes.
static void merges_end_with_a_forget(void **state)
{
    (void)state;
    fixture f;
    begin_merging(&f, WAITS);
    dp_checkpoint_want_all(f.checkpoint, 4);
    assert_int_equal(dp_checkpoint_merge_fd(f.checkpoint), -1);
    assert_int_not_equal(access(test_path("checkpoints/merge.tmp"), F_OK), 0);
    make_files(&f, 5);
    assert_int_equal(f.cut.base, 0);
    assert_true(dp_checkpoint_has_all(f.checkpoint));
    close_all(&f);
}

// Shards of other boxes, whose files a merge here would not reach, write all rows when full_every
// says so, however many bytes the changes have.
static void changes_from_elsewhere_are_not_counted(void **state)
{
    (void)state;
    fixture f;
    const dp_checkpoint_past past = {.iteration = 1, .row_bytes = 150};
    prepare(&f, 9, 4, false);
    f.how.merge = merge;
    open_with(&f, &past, 1);
    for (uint32_t t = 2; t <= 5; t++) { // changes of 101 bytes each
        make(&f, t);
        assert_int_equal(f.cut.base, t == 5 ? 0 : t - 1);
    }
    close_all(&f);
}

TEST_MAIN(TEST(all_of_it_is_written), TEST(what_builds_on_what), TEST(which_stay),
          TEST(old_ones_go), TEST(all_rows_are_wanted), TEST(what_was_there_counts),
          TEST(one_that_fails_is_nobodys), TEST(answers_that_nobody_waits_for),
          TEST(versions_of_a_run), TEST(versions_of_runs_that_go_on),
          TEST(the_newest_against_the_one_in_force), TEST(who_waits_for_samples_is_told_of),
          TEST(what_another_run_published_stays), TEST(what_is_worse_stays_back),
          TEST(what_cannot_be_published), TEST(epochs_are_counted), TEST(a_scale_or_none),
          TEST(merged_beside_the_run), TEST(merges_that_fail), TEST(merges_end_with_a_forget),
          TEST(changes_from_elsewhere_are_not_counted))
