// What a run that goes on makes of the checkpoints before: which one the next builds on, and
// whether the parts of one belong together. Real processes, and manifests that are right in all
// else.
#include "tests/support/test.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dispatch/coordinator/dp_checkpoint.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/stream/rt_position.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

static const char config[] = "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 16},"
                             " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 1312,"
                             "  \"synthetic\": {\"scale\": 0.001, \"clusters\": 4}},"
                             " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]},"
                             " \"dispatch\": {\"measure_compute\": false},"
                             " \"cache\": {\"rows\": 500}, \"timeouts\": {\"start_s\": 20},"
                             " \"checkpoint\": {\"every_iterations\": 20, \"keep\": 9}}";

// "lanyard up CONFIG --out FOLDER/out --set SET... FLAG"; FLAG may be NULL. Must end well, and say
// the text if there is one.
static void run(const char *const sets[2], const char *flag, const char *text)
{
    process p;
    run_start_up(&p, config, "out", flag, (const char *const[]){sets[0], sets[1], NULL});
    run_must_end(&p, 0);
    if (text)
        run_must_say(&p, text);
    process_fini(&p);
}

// Of a checkpoint, or of a version of the published models.
static char *manifest_in(const char *folder, uint32_t iteration)
{
    char name[100];
    size_t size;
    snprintf(name, sizeof name, "%s/ckpt-%012" PRIu32 "/manifest.json", folder, iteration);
    char *text = run_file("out", name, &size);
    if (!text)
        fail_msg("%s has nothing of iteration %" PRIu32, folder, iteration);
    return text;
}

static uint64_t number_in(const char *folder, uint32_t iteration, const char *name, int base)
{
    char *text = manifest_in(folder, iteration);
    const char *at = strstr(text, name);
    assert_non_null(at);
    const uint64_t number = strtoull(at + strlen(name), NULL, base);
    free(text);
    return number;
}

static uint64_t base_of(uint32_t iteration)
{
    return number_in("checkpoints", iteration, "\"base\": ", 10);
}

// ---- rows in memory ----------------------------------------------------------------------------

static const char losing[] =
    "{\"workers\": 2, \"ps\": {\"shards\": 2}, \"batch\": {\"samples_per_worker\": 16},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 32000,"
    "  \"synthetic\": {\"scale\": 0.001, \"clusters\": 4}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]},"
    " \"dispatch\": {\"measure_compute\": false, \"alpha\": 0.5}, \"links\": {\"pin\": true},"
    " \"cache\": {\"rows\": 500}, \"on_worker_loss\": \"restart\","
    " \"timeouts\": {\"start_s\": 20, \"peer_s\": 2},"
    " \"checkpoint\": {\"every_iterations\": 100, \"full_every\": 3, \"keep\": 3}}";

// A run in which one process is killed; so many shards go on with the rows that they have.
static void lose(const char *out, const char *victim, const char *shards_in_memory)
{
    process p;
    run_start_up(&p, losing, out, NULL, NULL);
    run_await_checkpoint(&p, out);
    assert_int_equal(kill(process_child(&p, victim), SIGKILL), 0);
    process_await(&p, 0, "going on after iteration", RUN_CASE_S);
    run_must_end(&p, 0);
    size_t size;
    char *metrics = run_file(out, "metrics.jsonl", &size);
    if (!strstr(metrics, shards_in_memory))
        fail_msg("no %s; it said:\n%s", shards_in_memory, p.text);
    free(metrics);
    process_fini(&p);
}

static void shards_that_are_there_read_nothing(void **state)
{
    (void)state;
    run_up(losing, "calm", NULL, NULL);
    lose("worker", "worker", "\"shards_in_memory\":2");
    run_must_be_the_same("worker", "calm", 2);
    lose("shard", "ps", "\"shards_in_memory\":1");
    run_must_be_the_same("shard", "calm", 2);
    lose("coordinator", "coordinator", "\"shards_in_memory\":2");
    run_must_be_the_same("coordinator", "calm", 2);
}

// ---- what the next one builds on ---------------------------------------------------------------

static void other_shards_build_on_nothing(void **state)
{
    (void)state;
    run((const char *const[]){"checkpoint.full_every=9", "ps.shards=1"}, NULL, NULL);
    assert_int_equal(base_of(40), 20);
    run((const char *const[]){"stream.samples_max=1952", "checkpoint.full_every=9"}, "--resume",
        "going on after iteration 40");
    assert_int_equal(base_of(60), 40); // as many shards
    run((const char *const[]){"ps.shards=2", "stream.samples_max=3232"}, "--resume",
        "going on after iteration 60");
    assert_int_equal(base_of(80), 0);
    assert_int_equal(base_of(100), 80);
    run((const char *const[]){"ps.shards=2", "stream.samples_max=3872"}, "--resume",
        "going on after iteration 100");
}

// What `lanyard eval` says of the checkpoint; the caller's.
static char *evaluate(uint32_t iteration)
{
    char name[100];
    process p;
    snprintf(name, sizeof name, "out/checkpoints/ckpt-%012" PRIu32, iteration);
    run_start(&p, (const char *const[]){"eval", run_path(name), NULL},
              (const char *const[]){"stream.samples_max=320", NULL});
    run_must_end(&p, 0);
    char *said = strdup(p.text);
    process_fini(&p);
    return said;
}

// header: of a file of rows. As one of iteration, with changes since base.
static void put_rows(uint32_t iteration, uint32_t base, uint8_t *bytes, size_t size)
{
    char name[120];
    const uint32_t place[] = {iteration, base};
    memcpy(bytes + 56, place, sizeof place);
    const uint64_t sum = rt_hash_bytes(bytes, 64);
    memcpy(bytes + 64, &sum, sizeof sum);
    snprintf(name, sizeof name, "out/checkpoints/ckpt-%012" PRIu32, iteration);
    assert_int_equal(rt_checkpoint_make(run_path(name), NULL), RT_OK);
    strcat(name, "/rows-000-of-001.bin");
    run_write(name, bytes, size);
}

// 219 files without a change stand between the rows of the first checkpoint and the second.
static void long_chains_are_read(void **state)
{
    (void)state;
    const uint64_t rows = 0;
    uint8_t header[72];
    char name[100];
    size_t size;
    run((const char *const[]){"checkpoint.every_iterations=220", "stream.samples_max=14112"}, NULL,
        NULL);
    assert_int_equal(base_of(440), 220);
    char *want = evaluate(440);
    snprintf(name, sizeof name, "checkpoints/ckpt-%012d/rows-000-of-001.bin", 220);
    char *all = run_file("out", name, &size);
    assert_true(size > sizeof header);
    memcpy(header, all, sizeof header);
    memcpy(header + 24, &rows, sizeof rows);
    put_rows(1, 0, (uint8_t *)all, size);
    for (uint32_t i = 2; i <= 220; i++)
        put_rows(i, i - 1, header, sizeof header);
    snprintf(name, sizeof name, "out/checkpoints/ckpt-%012d/manifest.json", 220);
    assert_int_equal(unlink(run_path(name)), 0); // it has the sum of other rows
    char *found = evaluate(440);
    assert_string_equal(found, want);
    free(all);
    free(found);
    free(want);
}

// ---- which stay --------------------------------------------------------------------------------

// The checkpoints that are there, as "40 60".
static void must_stay(const char *want)
{
    char found[256] = "";
    uint32_t *iterations, count;
    assert_int_equal(rt_checkpoint_list(run_path("out/checkpoints"), &iterations, &count, NULL),
                     RT_OK);
    for (uint32_t i = 0, used = 0; i < count && used < sizeof found; i++)
        used += (uint32_t)snprintf(found + used, sizeof found - used, "%s%" PRIu32, i ? " " : "",
                                   iterations[i]);
    rt_free(iterations);
    assert_string_equal(found, want);
}

// Goes on for 10 iterations, at whose end there is one more.
static void go_on(uint32_t iterations, const char *more, const char *const *stay)
{
    char samples[64];
    process p;
    snprintf(samples, sizeof samples, "stream.samples_max=%" PRIu32, 32 * iterations);
    run_start_up(&p, config, "out", iterations > 10 ? "--resume" : NULL,
                 (const char *const[]){"checkpoint.every_iterations=0", "checkpoint.at_end=true",
                                       samples, "checkpoint.keep=2", more, NULL});
    run_must_end(&p, 0);
    process_fini(&p);
    must_stay(*stay);
}

// A run that is started again and again, with a checkpoint each time, would fill the disk if every
// start counted its own only.
static void as_many_stay_over_starts(void **state)
{
    (void)state;
    static const char *const stay[] = {"10", "10 20", "20 30", "30 40", "40 50", "50 60"};
    for (uint32_t i = 0; i < RT_COUNT_OF(stay); i++) // other shards do not matter
        go_on(10 * (i + 1), i % 4 == 3 ? "ps.shards=2" : "checkpoint.full_every=1", &stay[i]);
}

// What those that stay build on stays as well.
static void chains_stay_over_starts(void **state)
{
    (void)state;
    static const char *const stay[] = {"10", "10 20", "10 20 30", "10 20 30 40", "40 50"};
    for (uint32_t i = 0; i < RT_COUNT_OF(stay); i++)
        go_on(10 * (i + 1), "checkpoint.full_every=3", &stay[i]);
}

static uint64_t published_base(uint32_t iteration)
{
    return number_in("published", iteration, "\"base\": ", 10);
}

static uint64_t published_run(uint32_t iteration)
{
    return number_in("published", iteration, "\"run\": \"", 16);
}

static void publish_up_to(const char *samples, bool resumes, const char *text)
{
    process p;
    run_start_up(&p, config, "out", resumes ? "--resume" : NULL,
                 (const char *const[]){"publish.every_s=1000", "publish.guard.log_loss=0",
                                       "publish.guard.calibration=0", "checkpoint.full_every=9",
                                       samples, NULL});
    run_must_end(&p, 0);
    if (text)
        run_must_say(&p, text);
    process_fini(&p);
}

static void lose_checkpoint(uint32_t iteration)
{
    char name[100];
    snprintf(name, sizeof name, "out/checkpoints/ckpt-%012" PRIu32 "/manifest.json", iteration);
    assert_int_equal(remove(run_path(name)), 0);
}

static void put_published(uint32_t iteration, const char *manifest)
{
    char name[100];
    snprintf(name, sizeof name, "out/published/ckpt-%012" PRIu32 "/manifest.json", iteration);
    assert_int_equal(remove(run_path(name)), 0);
    run_write(name, manifest, strlen(manifest));
}

// Servers need only the changes of a run that was started again, unless what they have is lost.
static void versions_go_on(void **state)
{
    (void)state;
    publish_up_to("stream.samples_max=1312", false, NULL);
    const uint64_t first = published_run(41);
    publish_up_to("stream.samples_max=1952", true, "going on after iteration 41");
    assert_int_equal(published_base(60), 41);
    assert_int_equal(published_run(60), first);

    char *lost = manifest_in("published", 61);
    lose_checkpoint(60), lose_checkpoint(61);
    publish_up_to("stream.samples_max=1952", true, "going on after iteration 41");
    assert_int_equal(published_base(60), 0); // servers may have the one that is lost
    const uint64_t second = published_run(60);
    assert_int_not_equal(second, first);

    put_published(61, lost); // as where the one in its place could not be published
    free(lost);
    publish_up_to("stream.samples_max=2592", true, "going on after iteration 61");
    assert_int_equal(published_base(80), 0);
    assert_int_not_equal(published_run(80), second);
}

// ---- what belongs together ---------------------------------------------------------------------

// The place of a part's object in a manifest, from its name to its end.
static char *part_of(char *manifest, const char *name, size_t *size_p)
{
    char *at = strstr(manifest, name);
    assert_non_null(at);
    char *end = strchr(at, '}');
    assert_non_null(end);
    *size_p = (size_t)(end - at);
    return at;
}

// The manifest of a checkpoint, with another text in the place of the one from part on, signed.
static void rewrite_manifest(uint32_t iteration, char *manifest, const char *part, size_t part_size,
                             const char *instead)
{
    char name[100], text[4096];
    rt_bytes signed_text = {0};
    char *signature = strstr(manifest, ",\n  \"checksum\": \"");
    assert_non_null(signature);
    strcpy(signature, "\n}");
    snprintf(text, sizeof text, "%.*s%s%s", (int)(part - manifest), manifest, instead,
             part + part_size);
    rt_manifest_sign(text, &signed_text);
    assert_false(signed_text.failed);
    snprintf(name, sizeof name, "out/checkpoints/ckpt-%012" PRIu32 "/manifest.json", iteration);
    run_write(name, signed_text.data, signed_text.size);
    rt_bytes_fini(&signed_text);
}

// A manifest of the checkpoint that says this of planner.bin.
static void tell_of_planner(uint32_t iteration, const rt_file_sum *sum)
{
    char instead[200];
    size_t part_size;
    char *manifest = manifest_in("checkpoints", iteration);
    const char *part = part_of(manifest, "\"planner.bin\"", &part_size);
    snprintf(instead, sizeof instead,
             "\"planner.bin\", \"bytes\": %" PRIu64 ", \"hash\": \"%016" PRIx64 "\"", sum->bytes,
             sum->hash);
    rewrite_manifest(iteration, manifest, part, part_size, instead);
    free(manifest);
}

// Writes the planner's state of a checkpoint again, as that of `other`. Its iteration is the only
// number of that value among the first behind the position in the stream.
static void date_planner(uint32_t iteration, uint32_t other)
{
    char path[600];
    rt_bytes state = {0};
    rt_file_sum sum;
    uint32_t found = 0;
    snprintf(path, sizeof path, "%s/out/checkpoints/ckpt-%012" PRIu32 "/planner.bin", run_folder(),
             iteration);
    assert_int_equal(rt_pack_read(path, DP_CHECKPOINT_MAGIC, &state, &sum, NULL), RT_OK);
    rt_bytes position = {0};
    rt_reader reader = rt_bytes_reader(&state);
    (void)rt_reader_u64(&reader);
    assert_true(rt_position_take(&reader, &position));
    rt_bytes_fini(&position);
    (void)rt_reader_u64(&reader); // of the head: its description (rt_fields.h), then its values
    const uint32_t text = rt_reader_u32(&reader), size = rt_reader_u32(&reader);
    const size_t first = state.size - reader.left + text, end = first + size;
    for (size_t at = first; at < end && at + sizeof iteration <= state.size;
         at += sizeof iteration) {
        if (memcmp(state.data + at, &iteration, sizeof iteration) != 0)
            continue;
        memcpy(state.data + at, &other, sizeof other);
        found++;
    }
    assert_int_equal(found, 1);
    assert_int_equal(rt_pack_write(path, DP_CHECKPOINT_MAGIC, state.data, state.size, &sum, NULL),
                     RT_OK);
    tell_of_planner(iteration, &sum);
    rt_bytes_fini(&state);
}

// Rows and planner of one checkpoint are of one moment, whatever the manifest says.
static void a_planner_of_another_iteration(void **state)
{
    (void)state;
    static const char *const more[] = {"stream.samples_max=2592", "checkpoint.full_every=1"};
    run((const char *const[]){"checkpoint.full_every=1", "stream.samples_max=1312"}, NULL, NULL);
    date_planner(40, 40); // changes nothing
    run((const char *const[]){"checkpoint.full_every=1", "stream.samples_max=1952"}, "--resume",
        "going on after iteration 40");
    date_planner(60, 61);
    run(more, "--resume",
        "the checkpoint of iteration 60 is damaged and passed over: state of the "
        "planner: of another iteration");
    assert_int_equal(base_of(60), 0); // made again
    run(more, "--resume", "going on after iteration 80");
}

// ---- what is counted over starts ---------------------------------------------------------------

// Rows that were trained last before iteration 11, long ago, end as soon as the run goes on.
static void rows_grow_old_over_starts(void **state)
{
    (void)state;
    static const char ages[] = "\"ages\": [";
    process p;
    run((const char *const[]){"rows.expire_s=1000000", "stream.samples_max=1312"}, NULL, NULL);
    char *manifest = manifest_in("checkpoints", 40);
    const char *at = strstr(manifest, ages);
    assert_non_null(at);
    at += strlen(ages);
    rewrite_manifest(40, manifest, at, strcspn(at, "]"), "10, 1000000000");
    free(manifest);
    run_start_up(&p, config, "out", "--resume",
                 (const char *const[]){"rows.expire_s=1000000", "stream.samples_max=1952", NULL});
    run_must_end(&p, 0);
    run_must_say(&p, "going on after iteration 40");
    process_fini(&p);
    size_t size;
    char *metrics = run_file("out", "metrics.jsonl", &size);
    assert_non_null(strstr(metrics, "\"record\":\"sweep\""));
    assert_non_null(strstr(metrics, "\"floor\":11"));
    free(metrics);
}

TEST_MAIN(TEST(shards_that_are_there_read_nothing), TEST_SLOW(other_shards_build_on_nothing, 120),
          TEST_SLOW(long_chains_are_read, 120), TEST_SLOW(as_many_stay_over_starts, 120),
          TEST_SLOW(chains_stay_over_starts, 120), TEST_SLOW(rows_grow_old_over_starts, 120),
          TEST_SLOW(versions_go_on, 120), TEST_SLOW(a_planner_of_another_iteration, 120))
