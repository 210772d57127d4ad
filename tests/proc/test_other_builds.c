// What another build wrote is told to be that, never to be damaged, and stays as it is; and no
// change of what checkpoints have passes without being recorded (tests/golden/saved).
#define _GNU_SOURCE // memmem
#include <cjson/cJSON.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dispatch/coordinator/dp_checkpoint.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/live/rt_segment.h"
#include "runtime/rt_hash.h"
#include "runtime/stream/rt_position.h"
#include "tests/support/fields_case.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"
#include "tests/support/test.h"

#define CHECKPOINT "run/checkpoints/ckpt-000000000004"
#define RECORDED "tests/golden/saved"
#define TEXTS_MAX 64u
#define BEGIN_S 60.0

static const char config[] =
    "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 8}, \"cache\": {\"rows\": 400},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 64,"
    "  \"synthetic\": {\"scale\": 0.0001, \"clusters\": 2, \"shape\": \"search\"}},"
    " \"model\": {\"embedding_dim\": 2, \"mlp\": [4]},"
    " \"checkpoint\": {\"at_end\": true}, \"timeouts\": {\"start_s\": 30}}";

// ---- files that are changed ------------------------------------------------------------------

static void read_state(const char *folder, rt_bytes *state)
{
    char path[600];
    rt_file_sum sum;
    rt_error error = {0};
    snprintf(path, sizeof path, "%s/planner.bin", folder);
    if (rt_pack_read(path, DP_CHECKPOINT_MAGIC, state, &sum, &error))
        fail_msg("%s", error.text);
}

// With another state, a format of its own, and who wrote it (NULL: as it is); the manifest is right.
static void write_all(const char *folder, const rt_bytes *state, unsigned format, const char *build)
{
    char path[600], hash[32];
    size_t size;
    rt_file_sum sum;
    rt_bytes text = {0};
    snprintf(path, sizeof path, "%s/planner.bin", folder);
    assert_int_equal(rt_pack_write(path, DP_CHECKPOINT_MAGIC, state->data, state->size, &sum, NULL),
                     RT_OK);
    char *manifest = run_file(CHECKPOINT, "manifest.json", &size);
    cJSON *root = cJSON_Parse(manifest), *part;
    assert_non_null(root);
    cJSON_DeleteItemFromObject(root, "checksum");
    cJSON_SetNumberValue(cJSON_GetObjectItem(root, "format"), format);
    if (build)
        cJSON_ReplaceItemInObject(root, "build", cJSON_CreateString(build));
    cJSON_ArrayForEach(part, cJSON_GetObjectItem(root, "parts"))
    {
        if (strcmp(cJSON_GetObjectItem(part, "name")->valuestring, "planner.bin") != 0)
            continue;
        snprintf(hash, sizeof hash, "%016" PRIx64, sum.hash);
        cJSON_SetNumberValue(cJSON_GetObjectItem(part, "bytes"), (double)sum.bytes);
        cJSON_ReplaceItemInObject(part, "hash", cJSON_CreateString(hash));
    }
    char *printed = cJSON_Print(root);
    rt_manifest_sign(printed, &text);
    run_write(CHECKPOINT "/manifest.json", text.data, text.size);
    rt_bytes_fini(&text);
    cJSON_Delete(root);
    free(printed);
    free(manifest);
}

static void write_state(const char *folder, const rt_bytes *state, unsigned format)
{
    write_all(folder, state, format, NULL);
}

static void verify(int status, const char *says)
{
    process p;
    run_start(&p, (const char *const[]){"verify", run_path("run"), NULL}, NULL);
    run_must_end(&p, status);
    run_must_say(&p, says);
    process_fini(&p);
}

// Neither what verifies nor what would go on takes it for damage; all is left as it is.
static void must_be_of_another_build(const char *says)
{
    process p;
    verify(1, says);
    run_start_up(&p, config, "run", "--resume",
                 (const char *const[]){"stream.samples_max=96", NULL});
    run_must_end(&p, 1);
    run_must_say(&p, says);
    run_must_say(&p, "written by");
    assert_null(strstr(p.text, "damaged"));
    process_fini(&p);
    assert_int_equal(access(run_path(CHECKPOINT "/planner.bin"), R_OK), 0);
    assert_int_not_equal(access(run_path("run/checkpoints/damaged-ckpt-000000000004"), F_OK), 0);
}

static void a_checkpoint_of_a_later_build(void **state)
{
    (void)state;
    process p;
    rt_bytes saved = {0};
    const uint32_t later = 77;
    char folder[600];
    run_up(config, "run", NULL, NULL);
    snprintf(folder, sizeof folder, "%s", run_path(CHECKPOINT));
    read_state(folder, &saved);
    verify(0, "whole, iteration 4");
    write_state(folder, &saved, RT_MANIFEST_FORMAT_STATE + 1);
    must_be_of_another_build("manifest.json has format 4");
    run_start(&p,
              (const char *const[]){"export", run_path("run"), "--out", run_path("model"), NULL},
              NULL);
    run_must_end(&p, 1); // nor is an older one taken without a word
    run_must_say(&p, "manifest.json has format 4");
    process_fini(&p);
    write_state(folder, &saved, RT_MANIFEST_FORMAT_STATE);
    verify(0, "whole, iteration 4");
    // The first description is in the position, the second is the head's of the planner.
    const size_t format = fields_at(&saved, 1, "format");
    uint32_t kept;
    memcpy(&kept, saved.data + format, sizeof kept);
    memcpy(saved.data + format, &later, sizeof later);
    write_state(folder, &saved, RT_MANIFEST_FORMAT_STATE);
    must_be_of_another_build("state of the planner has format 77");
    memcpy(saved.data + format, &kept, sizeof kept);
    const size_t version = sizeof(uint64_t) + sizeof(uint64_t); // of the position
    memcpy(&kept, saved.data + version, sizeof kept);
    memcpy(saved.data + version, &later, sizeof later);
    write_state(folder, &saved, RT_MANIFEST_FORMAT_STATE);
    must_be_of_another_build("the position in the input has format 77");
    memcpy(saved.data + version, &kept, sizeof kept);
    write_state(folder, &saved, RT_MANIFEST_FORMAT_STATE);
    run_up(config, "run", "--resume", (const char *const[]){"stream.samples_max=96", NULL});
    rt_bytes_fini(&saved);
}

// A state that is not that of the rows: both say so, and both call it what it is.
static void verify_finds_what_going_on_would(void **state)
{
    (void)state;
    process p;
    rt_bytes saved = {0};
    char folder[600];
    run_up(config, "run", NULL, NULL);
    snprintf(folder, sizeof folder, "%s", run_path(CHECKPOINT));
    read_state(folder, &saved);
    saved.data[fields_at(&saved, 1, "key_sum")] ^= 1;
    write_state(folder, &saved, RT_MANIFEST_FORMAT_STATE);
    verify(1, "trained rows");
    run_start_up(&p, config, "run", "--resume", NULL);
    run_must_end(&p, 1);
    run_must_say(&p, "damaged and passed over: state of the planner: the shards hold");
    process_fini(&p);
    rt_bytes_fini(&saved);
}

// A member that this build does not have, and one that the file lacks.
static void a_checkpoint_with_other_members(void **state)
{
    (void)state;
    rt_bytes saved = {0};
    char folder[600], *at;
    run_up(config, "run", NULL, NULL);
    snprintf(folder, sizeof folder, "%s", run_path(CHECKPOINT));
    read_state(folder, &saved);
    at = memmem(saved.data, saved.size, "stale_reads:", 12);
    assert_non_null(at);
    memcpy(at, "stale_rouds:", 12);
    write_state(folder, &saved, RT_MANIFEST_FORMAT_STATE);
    verify(0, "whole, iteration 4");
    run_up(config, "run", "--resume", (const char *const[]){"stream.samples_max=96", NULL});
    assert_int_equal(run_samples("run"), 96);
    rt_bytes_fini(&saved);
}

// Keys that this build does not know: who wrote them is said.
static void a_configuration_of_another_build(void **state)
{
    (void)state;
    process p;
    size_t size;
    rt_bytes saved = {0}, text = {0};
    char folder[600];
    run_up(config, "run", NULL, NULL);
    snprintf(folder, sizeof folder, "%s", run_path(CHECKPOINT));
    char *json = run_file(CHECKPOINT, "config.json", &size);
    rt_bytes_put(&text, "{\"of_tomorrow\": 1, ", 19);
    rt_bytes_put(&text, strchr(json, '{') + 1, strlen(strchr(json, '{') + 1));
    run_write(CHECKPOINT "/config.json", text.data, text.size);
    verify(1, "config.json: of_tomorrow: unknown key");
    read_state(folder, &saved);
    write_all(folder, &saved, RT_MANIFEST_FORMAT_STATE, "0.9.9 (feed)");
    verify(1, "(written by lanyard 0.9.9 (feed); this is lanyard ");
    write_state(folder, &saved, RT_MANIFEST_FORMAT_STATE + 1);
    verify(1, "manifest.json has format 4, written by lanyard");
    run_start(&p, (const char *const[]){"eval", folder, NULL}, NULL);
    run_must_end(&p, 1);
    run_must_say(&p, "manifest.json has format 4, written by lanyard");
    process_fini(&p);
    free(json);
    rt_bytes_fini(&saved);
    rt_bytes_fini(&text);
}

// Of a journal, or a spool: not set aside, nothing begun anew.
static void segments_of_a_later_build(void **state)
{
    (void)state;
    process p;
    rt_journal_memory *memory = calloc(1, sizeof *memory);
    rt_bytes bytes = {0};
    rt_segment_put_head(&bytes, 1, memory);
    const uint32_t later = 9;
    memcpy(bytes.data + offsetof(rt_segment_head, version), &later, sizeof later);
    const uint64_t hash = rt_hash_bytes(bytes.data, bytes.size - sizeof hash);
    memcpy(bytes.data + bytes.size - sizeof hash, &hash, sizeof hash);
    assert_int_equal(mkdir(run_path("spool"), 0700), 0);
    run_write("spool/00000000000000000001.seg", bytes.data, bytes.size);
    run_write("config.json", config, strlen(config));
    run_start(
        &p,
        (const char *const[]){"feed", run_path("config.json"), "--spool", run_path("spool"), NULL},
        (const char *const[]){"stream.source=tcp", "stream.format=criteo",
                              "stream.tcp.listen=127.0.0.1:0", "feed.to=127.0.0.1:1", NULL});
    run_must_end(&p, 1);
    run_must_say(&p, "00000000000000000001.seg has format 9, written by");
    assert_null(strstr(p.text, "damaged"));
    process_fini(&p);
    assert_int_equal(access(run_path("spool/00000000000000000001.seg"), R_OK), 0);
    rt_bytes_fini(&bytes);
    free(memory);
}

// ---- what is recorded ------------------------------------------------------------------------

typedef struct {
    char *texts[TEXTS_MAX];
    uint32_t count;
    unsigned format;
} saved_shape;

static int compare_texts(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

// Descriptions in a state, each once, and the format that the manifest names.
static void take_shape(const char *folder, saved_shape *shape)
{
    rt_bytes state = {0};
    cJSON *root;
    const uint64_t magic = RT_FIELDS_MAGIC;
    read_state(folder, &state);
    assert_int_equal(rt_manifest_read(folder, &root, NULL), RT_OK);
    shape->format = (unsigned)cJSON_GetObjectItem(root, "format")->valuedouble;
    cJSON_Delete(root);
    for (const uint8_t *at = state.data, *end = state.data + state.size;
         (at = memmem(at, (size_t)(end - at), &magic, sizeof magic)); at += sizeof magic) {
        uint32_t size;
        memcpy(&size, at + sizeof magic, sizeof size);
        char *text = strndup((const char *)at + 16, size);
        bool is_new = true;
        for (uint32_t i = 0; i < shape->count; i++)
            is_new &= strcmp(shape->texts[i], text) != 0;
        assert_true(shape->count < TEXTS_MAX);
        if (is_new)
            shape->texts[shape->count++] = text;
        else
            free(text);
    }
    if (shape->count)
        qsort(shape->texts, shape->count, sizeof *shape->texts, compare_texts);
    rt_bytes_fini(&state);
}

static void shape_fini(saved_shape *shape)
{
    for (uint32_t i = 0; i < shape->count; i++)
        free(shape->texts[i]);
}

static void newest(const char *pattern, char *path, size_t size)
{
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0)
        fail_msg("%s is not there", pattern);
    snprintf(path, size, "%s", found.gl_pathv[found.gl_pathc - 1]);
    globfree(&found);
}

static void check_case(const char *name)
{
    char archive[600], pattern[600], folder[600], recorded[600];
    saved_shape now = {0}, before = {0};
    snprintf(pattern, sizeof pattern, RECORDED "/*/%s.tar.xz", name);
    newest(pattern, archive, sizeof archive);
    snprintf(recorded, sizeof recorded, "%s", run_path("recorded"));
    snprintf(folder, sizeof folder, "%s", run_path("now"));
    assert_int_equal(mkdir(recorded, 0700), 0);
    process_must_run((const char *const[]){"/bin/tar", "-xJf", archive, "-C", recorded, NULL},
                     BEGIN_S);
    process_must_run((const char *const[]){"/usr/bin/python3", "-B", "tests/golden/saved.py",
                                           "begin", folder, name, NULL},
                     BEGIN_S);
    snprintf(pattern, sizeof pattern, "%s/run/checkpoints/ckpt-*", recorded);
    newest(pattern, recorded, sizeof recorded);
    take_shape(recorded, &before);
    snprintf(pattern, sizeof pattern, "%s/run/checkpoints/ckpt-*", folder);
    newest(pattern, folder, sizeof folder);
    take_shape(folder, &now);
    bool same = now.count == before.count && now.format == before.format;
    for (uint32_t i = 0; same && i < now.count; i++)
        same = strcmp(now.texts[i], before.texts[i]) == 0;
    if (!same) {
        for (uint32_t i = 0; i < now.count; i++)
            printf("now       %s\n", now.texts[i]);
        for (uint32_t i = 0; i < before.count; i++)
            printf("recorded  %s\n", before.texts[i]);
        fail_msg(
            "checkpoints of \"%s\" have format %u and other members than format %u in %s: where "
            "a member has gone, or is another one, raise RT_MANIFEST_FORMAT_STATE; then record "
            "them: tests/golden/saved.py make " RECORDED "/DAY",
            name, now.format, before.format, archive);
    }
    shape_fini(&now);
    shape_fini(&before);
}

static void what_is_saved_is_recorded(void **state)
{
    (void)state;
    static const char *const cases[] = {"esd", "makespan", "laia", "join"};
    if (access("tests/golden/saved.py", R_OK) != 0)
        test_skip("is run from the root of the repository");
    if (access("/usr/bin/python3", X_OK) != 0 || access("/usr/bin/xz", X_OK) != 0)
        test_skip(
            "/usr/bin/python3 or /usr/bin/xz (Debian packages python3, xz-utils) is not there");
    assert_int_equal(setenv("LANYARD", process_lanyard(), 1), 0);
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        char moved[64];
        check_case(cases[i]);
        snprintf(moved, sizeof moved, "recorded-%s", cases[i]);
        assert_int_equal(rename(run_path("recorded"), run_path(moved)), 0);
        snprintf(moved, sizeof moved, "now-%s", cases[i]);
        assert_int_equal(rename(run_path("now"), run_path(moved)), 0);
    }
}

TEST_MAIN(TEST(a_checkpoint_of_a_later_build), TEST(verify_finds_what_going_on_would),
          TEST(a_checkpoint_with_other_members), TEST(a_configuration_of_another_build),
          TEST(segments_of_a_later_build), TEST_SLOW(what_is_saved_is_recorded, 300))
