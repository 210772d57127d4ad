// Servers on other boxes copy versions without optimizer state, and of a change no more than the
// change: the copy has the rows of the original bit for bit, whatever goes wrong on the way.
// docs/PROTOCOL.md, "Published files".
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "dispatch/coordinator/dp_publisher.h"
#include "edge_worker/predict/ew_finished.h"
#include "edge_worker/serve/ew_subscriber.h"
#include "ps_lite/ps_merge.h"
#include "ps_lite/ps_model_file.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_file.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/files/rt_published.h"
#include "runtime/wire/rt_traffic.h"
#include "tests/support/run_case.h"

#define DIM 24u
#define SHARDS 2u
#define PATIENCE_NS UINT64_C(60000000000)
#define FIRST 4u // iteration of the first version; then one every 4

static const char config[] =
    "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 256}, \"stream\": {\"format\": "
    "\"synthetic\", \"samples_max\": 8192, \"synthetic\": {\"shape\": \"criteo\", \"scale\": "
    "0.01}}, \"model\": {\"embedding_dim\": 24, \"mlp\": [8]}, \"cache\": {\"rows\": 30000},"
    " \"ps\": {\"shards\": 2}, \"optimizer\": {\"dense\": {\"name\": \"adam\"}},"
    " \"checkpoint\": {\"every_iterations\": 4, \"full_every\": 1000},"
    " \"publish\": {\"every_s\": 1000, \"keep\": 100,"
    "  \"guard\": {\"log_loss\": 0, \"calibration\": 0}}}";

typedef struct {
    char there[500], here[500], address[64];
    dp_publisher *publisher;
    ew_subscriber *subscriber;
} scene;

static void open_publisher(scene *s)
{
    rt_error error = {0};
    const dp_publisher_config own = {.address = s->address + strlen("tcp://"),
                                     .folder = s->there,
                                     .key = "publish.address",
                                     .values = ps_model_values};
    if (dp_publisher_open(&own, &s->publisher, &error))
        fail_msg("%s", error.text);
}

static void open_subscriber(scene *s)
{
    rt_error error = {0};
    const ew_subscriber_config own = {
        .address = s->address, .standby = "", .folder = s->here, .keep = 100};
    if (ew_subscriber_open(&own, &s->subscriber, &error))
        fail_msg("%s", error.text);
}

static void put_in_force(const scene *s, uint32_t iteration)
{
    const rt_published current = {.iteration = iteration, .pinned = true};
    rt_error error = {0};
    if (rt_published_write(s->there, &current, &error))
        fail_msg("%s", error.text);
}

static void open_scene(scene *s, const char *optimizer)
{
    char set[100];
    snprintf(set, sizeof set, "optimizer.rows.name=%s", optimizer);
    *s = (scene){0};
    run_up(config, "out", NULL, (const char *const[]){set, NULL});
    snprintf(s->there, sizeof s->there, "%s", run_path("out/published"));
    snprintf(s->here, sizeof s->here, "%s", run_path("copy"));
    snprintf(s->address, sizeof s->address, "tcp://127.0.0.1:%u", test_free_port());
    put_in_force(s, FIRST);
    open_publisher(s);
}

static void close_scene(scene *s)
{
    ew_subscriber_close(s->subscriber);
    dp_publisher_close(s->publisher);
}

static void pause_ms(long ms)
{
    const struct timespec pause = {0, ms * 1000000};
    (void)nanosleep(&pause, NULL);
}

static void await_version(const scene *s, uint32_t iteration)
{
    const uint64_t end_ns = rt_now_ns() + PATIENCE_NS;
    rt_published current = {0};
    while (rt_published_read(s->here, &current, NULL) || current.iteration != iteration) {
        if (rt_now_ns() > end_ns)
            fail_msg("iteration %u is in force, expected %u", current.iteration, iteration);
        pause_ms(10);
    }
}

// Until the copy says that it has none for a reason with this in it.
static void await_failure(const scene *s, const char *text)
{
    const uint64_t end_ns = rt_now_ns() + PATIENCE_NS;
    rt_error error = {0};
    while (ew_subscriber_find(s->subscriber, &error) != RT_AGAIN || !strstr(error.text, text)) {
        if (rt_now_ns() > end_ns)
            fail_msg("nothing about \"%s\": %s", text, error.text);
        pause_ms(10);
    }
}

static void version_path(const char *folder, uint32_t iteration, const char *file, char path[700])
{
    assert_int_equal(rt_checkpoint_path(folder, iteration, path, 600, NULL), RT_OK);
    if (file)
        snprintf(path + strlen(path), 80, "/%s", file);
}

static uint64_t size_of(const char *folder, uint32_t iteration, const char *file)
{
    char path[700];
    struct stat info;
    version_path(folder, iteration, file, path);
    assert_int_equal(stat(path, &info), 0);
    return (uint64_t)info.st_size;
}

static uint64_t size_of_rows(const char *folder, uint32_t iteration)
{
    return size_of(folder, iteration, "rows-000-of-002.bin") +
           size_of(folder, iteration, "rows-001-of-002.bin");
}

// Bytes of messages with versions so far; publisher and subscriber are this process.
static uint64_t bytes_carried(void)
{
    rt_traffic all;
    rt_traffic_share(RT_ROLE_COORDINATOR, &all);
    return all.bytes[RT_CAUSE_versions] / 2;
}

static void open_version(const char *folder, uint32_t iteration, rt_config *own,
                         ew_finished *weights)
{
    char path[700];
    ew_source source;
    rt_error error = {0};
    version_path(folder, iteration, NULL, path);
    if (ew_source_open(path, NULL, 0, false, own, &source, &error) ||
        ew_finished_open(&source, weights, &error))
        fail_msg("%s", error.text);
}

static void must_have_equal_rows(const ps_table *a, const ps_table *b)
{
    uint64_t at = 0;
    assert_true(ps_table_count(a) > 100);
    assert_int_equal(ps_table_count(a), ps_table_count(b));
    for (const ps_entry *one; (one = ps_table_next(a, &at));) {
        const ps_entry *other = ps_table_find(b, one->key);
        assert_non_null(other);
        assert_int_equal(one->version, other->version);
        assert_memory_equal(ps_table_row(a, one), ps_table_row(b, other), DIM * sizeof(float));
    }
}

static void must_have_equal_arrays(const rt_tensors *there, const rt_tensors *here)
{
    for (uint32_t i = 0; i < rt_tensors_count(there); i++) {
        const rt_tensor *a = rt_tensors_at(there, i), *b = rt_tensors_find(here, a->name);
        if (strcmp(a->name, RT_TENSOR_STATE) == 0) {
            assert_null(b);
            continue;
        }
        uint64_t count = 1;
        assert_non_null(b);
        assert_memory_equal(a->shape, b->shape, sizeof a->shape);
        for (uint32_t k = 0; k < a->rank; k++)
            count *= a->shape[k];
        assert_memory_equal(a->values, b->values, count * sizeof(float));
    }
}

static void must_be_copied(const char *there, const char *here, uint32_t iteration)
{
    ew_finished a, b;
    rt_config config_a, config_b;
    open_version(there, iteration, &config_a, &a);
    open_version(here, iteration, &config_b, &b);
    must_have_equal_rows(a.rows, b.rows);
    must_have_equal_arrays(a.dense, b.dense);
    ew_finished_close(&a);
    ew_finished_close(&b);
    rt_config_fini(&config_a);
    rt_config_fini(&config_b);
}

static cJSON *manifest_of(const char *folder, uint32_t iteration)
{
    char path[700];
    cJSON *root;
    version_path(folder, iteration, NULL, path);
    assert_int_equal(rt_manifest_read(path, &root, NULL), RT_OK);
    return root;
}

static uint32_t base_of(const char *folder, uint32_t iteration)
{
    uint32_t base;
    cJSON *root = manifest_of(folder, iteration);
    assert_true(rt_manifest_u32(root, "base", UINT32_MAX, &base));
    cJSON_Delete(root);
    return base;
}

// A version's rows become all rows, as those of a run do in the course of time.
static void merge_there(const scene *s, uint32_t iteration)
{
    cJSON *root = manifest_of(s->there, iteration), *before = manifest_of(s->there, FIRST);
    char folder[700];
    rt_error error = {0};
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        char name[40], paths[2][700], merged[720];
        rt_manifest_part parts[2];
        rt_file_sum sum;
        snprintf(name, sizeof name, "rows-%03u-of-%03u.bin", shard, SHARDS);
        version_path(s->there, FIRST, name, paths[0]);
        version_path(s->there, iteration, name, paths[1]);
        snprintf(merged, sizeof merged, "%s.merged", paths[1]);
        assert_true(rt_manifest_part_of(before, name, &parts[0]) &&
                    rt_manifest_part_of(root, name, &parts[1]));
        rt_file_place place = {.path = merged};
        const rt_sink sink = rt_file_sink(&place);
        if (ps_merge((const char *const[]){paths[0], paths[1]},
                     (const rt_file_sum[]){parts[0].sum, parts[1].sum}, 2, &sink, &sum, &error))
            fail_msg("%s", error.text);
        assert_int_equal(rename(merged, paths[1]), 0);
        assert_true(rt_manifest_set_sum(root, name, &sum));
    }
    cJSON_SetNumberValue(cJSON_GetObjectItemCaseSensitive(root, "base"), 0);
    version_path(s->there, iteration, NULL, folder);
    assert_int_equal(rt_manifest_save(root, folder, &error), RT_OK);
    cJSON_Delete(root);
    cJSON_Delete(before);
}

// Puts a version in force, and returns how many bytes came with it.
static uint64_t take(const scene *s, uint32_t iteration)
{
    const uint64_t before = bytes_carried();
    put_in_force(s, iteration);
    await_version(s, iteration);
    must_be_copied(s->there, s->here, iteration);
    return bytes_carried() - before;
}

#define MARGIN 20000u // manifests, config.json, scale.bin, questions

// A version came with no more than itself.
static void must_be_all(const scene *s, uint32_t iteration, uint64_t bytes)
{
    const uint64_t own =
        size_of_rows(s->here, iteration) + size_of(s->here, iteration, "dense.bin");
    if (bytes > own + MARGIN)
        fail_msg("%lu bytes came for %lu of version %u", bytes, own, iteration);
}

static void copy_changes(const char *optimizer, double share)
{
    scene s;
    open_scene(&s, optimizer);
    open_subscriber(&s);
    (void)take(&s, FIRST);
    const uint64_t all = size_of_rows(s.there, FIRST), own = size_of_rows(s.here, FIRST);
    if (!((double)own < share * (double)all))
        fail_msg("%s: %lu of %lu bytes were copied", optimizer, own, all);
    assert_true(size_of(s.here, FIRST, "dense.bin") < size_of(s.there, FIRST, "dense.bin") / 2);
    must_be_all(&s, 2 * FIRST, take(&s, 2 * FIRST));
    merge_there(&s, 2 * FIRST);
    assert_true(size_of_rows(s.there, 2 * FIRST) > all);
    must_be_all(&s, 3 * FIRST, take(&s, 3 * FIRST));
    assert_int_equal(base_of(s.there, 2 * FIRST), 0);
    assert_int_equal(base_of(s.here, 2 * FIRST), FIRST);
    close_scene(&s);
}

static void adagrad_has_one_float_for_each_value(void **state)
{
    (void)state;
    copy_changes("adagrad", 0.6);
}

static void adam_has_two(void **state)
{
    (void)state;
    copy_changes("adam", 0.42);
}

static void must_be_the_same_file(const char *one, const char *other, uint32_t iteration,
                                  const char *file)
{
    char path[2][700];
    version_path(one, iteration, file, path[0]);
    version_path(other, iteration, file, path[1]);
    process_must_run((const char *const[]){"/usr/bin/cmp", path[0], path[1], NULL}, 60);
}

static void run_command(const char *command, const char *folder, const char *out)
{
    const char *const words[] = {process_lanyard(),    command, folder,
                                 out ? "--out" : NULL, out,     NULL};
    process_must_run(words, 60);
}

// A copy is handed on as it is, and is a version for everybody else, too.
static void a_copy_is_as_good(void **state)
{
    scene s, next = {0};
    char path[700], model[2][500];
    (void)state;
    open_scene(&s, "adagrad");
    open_subscriber(&s);
    (void)take(&s, FIRST);
    (void)take(&s, 2 * FIRST);
    snprintf(next.there, sizeof next.there, "%s", s.here);
    snprintf(next.here, sizeof next.here, "%s", run_path("second"));
    snprintf(next.address, sizeof next.address, "tcp://127.0.0.1:%u", test_free_port());
    open_publisher(&next);
    open_subscriber(&next);
    await_version(&next, 2 * FIRST);
    static const char *const files[] = {"rows-000-of-002.bin", "dense.bin", "manifest.json"};
    for (size_t i = 0; i < RT_COUNT_OF(files); i++)
        must_be_the_same_file(next.there, next.here, FIRST, files[i]);
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(model[i], sizeof model[i], "%s/model%u", run_folder(), i);
        version_path(i ? s.there : next.here, 2 * FIRST, NULL, path);
        run_command("verify", path, NULL);
        run_command("export", path, model[i]);
    }
    cJSON *there = manifest_of(s.there, FIRST), *here = manifest_of(next.here, FIRST);
    assert_true(rt_manifest_identity(there) != 0);
    assert_true(rt_manifest_identity(there) == rt_manifest_identity(here));
    cJSON_Delete(there);
    cJSON_Delete(here);
    close_scene(&next);
    close_scene(&s);
}

// ---- on the way ------------------------------------------------------------------------------

static void flip(const char *path, long at)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    const int byte = fgetc(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    assert_int_equal(fclose(file), 0);
}

static void what_goes_wrong_is_mended(void **state)
{
    scene s;
    char last[700], away[720], first[700];
    (void)state;
    open_scene(&s, "adagrad");
    version_path(s.there, FIRST, "rows-001-of-002.bin", last);
    version_path(s.there, FIRST, "rows-000-of-002.bin", first);
    snprintf(away, sizeof away, "%s.away", last);
    assert_int_equal(rename(last, away), 0);
    open_subscriber(&s);
    await_failure(&s, "No such file"); // the files before it have come
    dp_publisher_close(s.publisher);
    await_failure(&s, "tcp://");
    assert_int_equal(rename(first, last), 0); // each is whole, and the other one
    assert_int_equal(rename(away, first), 0);
    assert_true(size_of(s.there, FIRST, "rows-000-of-002.bin") <
                size_of(s.there, FIRST, "rows-001-of-002.bin")); // else it is too long
    open_publisher(&s);
    await_failure(&s, "is made of");
    assert_int_equal(rename(first, away), 0);
    assert_int_equal(rename(last, first), 0);
    assert_int_equal(rename(away, last), 0);
    flip(last, 5000);
    await_failure(&s, "is damaged");
    flip(last, 5000);
    await_version(&s, FIRST);
    must_be_copied(s.there, s.here, FIRST);
    close_scene(&s);
}

TEST_MAIN(TEST_SLOW(adagrad_has_one_float_for_each_value, 120), TEST_SLOW(adam_has_two, 120),
          TEST_SLOW(a_copy_is_as_good, 120), TEST_SLOW(what_goes_wrong_is_mended, 120))
