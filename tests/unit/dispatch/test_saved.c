// A checkpoint as the coordinator reads it back: all of it, or nothing and a message that names the
// file. The case writes the files itself.
#include "dispatch/coordinator/dp_saved.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/files/rt_checkpoint.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define SCHEMA UINT64_C(0x1234567890abcdef)
#define CONFIG UINT64_C(0xfedcba0987654321)
#define SHARDS 3u

// What a manifest says; the files that go with it are whole.
typedef struct {
    uint32_t folder; // of this iteration
    uint32_t iteration, base, shard_count;
    uint64_t schema;
    uint32_t parts;    // of planner.bin, dense.bin, rows of shard 0, 1...: how many it names
    uint32_t unhashed; // which part has no hash; UINT32_MAX: all have one
} written;

static written of(uint32_t iteration, uint32_t base)
{
    return (written){.folder = iteration,
                     .iteration = iteration,
                     .base = base,
                     .shard_count = SHARDS,
                     .schema = SCHEMA,
                     .parts = 2 + SHARDS,
                     .unhashed = UINT32_MAX};
}

static const char *directory(void)
{
    static char path[512];
    snprintf(path, sizeof path, "%s", test_path("checkpoints"));
    return path;
}

static const char *folder_of(uint32_t iteration)
{
    static char folder[RT_FOLDER_MAX];
    assert_int_equal(rt_checkpoint_path(directory(), iteration, folder, sizeof folder, NULL),
                     RT_OK);
    return folder;
}

static const char *file_of(uint32_t iteration, const char *name)
{
    static char path[RT_FOLDER_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", folder_of(iteration), name);
    return path;
}

static void put_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

// dense.bin is longer than a block that is read at once.
static size_t dense_of(uint32_t iteration, uint8_t bytes[200000])
{
    const size_t size = 150000 + iteration;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(i * 7 + iteration);
    return size;
}

static rt_file_sum rows_of(uint32_t iteration, uint32_t shard)
{
    return (rt_file_sum){1000u * iteration + shard, rt_mix(1000u * iteration + shard)};
}

static void put_parts(rt_json *json, const written *w, const rt_file_sum *own)
{
    rt_json_begin_array(json, "parts");
    for (uint32_t i = 0; i < w->parts; i++) {
        char name[64];
        rt_manifest_part part = {.has_hash = i != w->unhashed};
        snprintf(name, sizeof name, "rows-%03" PRIu32 "-of-%03" PRIu32 ".bin", i - 2,
                 w->shard_count);
        part.sum = i < 2 ? own[i] : rows_of(w->folder, i - 2);
        rt_manifest_put_part(json, i == 0 ? "planner.bin" : i == 1 ? "dense.bin" : name, &part);
    }
    rt_json_end_array(json);
}

static void fill_manifest(rt_json *json, const written *w, const rt_file_sum *own)
{
    rt_manifest_begin(json, "checkpoint", RT_MANIFEST_FORMAT_STATE);
    rt_json_u64(json, "iteration", w->iteration);
    rt_json_u64(json, "base", w->base);
    rt_json_u64(json, "epoch", 7 + w->folder);
    rt_json_u64(json, "shards", w->shard_count);
    rt_json_u64(json, "samples", (UINT64_C(1) << 40) + w->folder);
    rt_manifest_put_hash(json, "schema", w->schema);
    rt_manifest_put_hash(json, "config", CONFIG);
    put_parts(json, w, own);
}

// A manifest alone, not synced.
static void write_manifest(written w)
{
    rt_json json;
    rt_bytes bytes = {0};
    const rt_file_sum own[2] = {{1, 1}, {1, 1}};
    assert_int_equal(mkdir(folder_of(w.folder), 0700), 0);
    fill_manifest(&json, &w, own);
    rt_json_end_object(&json);
    rt_manifest_sign(rt_json_text(&json, NULL), &bytes);
    put_file(file_of(w.folder, "manifest.json"), bytes.data, bytes.size);
    rt_bytes_fini(&bytes);
    rt_json_fini(&json);
}

static void write_checkpoint(written w)
{
    static uint8_t dense[200000];
    char state[64];
    rt_json json;
    rt_file_sum own[2];
    rt_error error = {0};
    assert_int_equal(rt_checkpoint_make(folder_of(w.folder), &error), RT_OK);
    const size_t length = (size_t)snprintf(state, sizeof state, "state of %" PRIu32, w.folder);
    assert_int_equal(rt_pack_write(file_of(w.folder, "planner.bin"), DP_CHECKPOINT_MAGIC, state,
                                   length, &own[0], &error),
                     RT_OK);
    const size_t size = dense_of(w.folder, dense);
    put_file(file_of(w.folder, "dense.bin"), dense, size);
    own[1] = (rt_file_sum){size, rt_hash_bytes(dense, size)};
    fill_manifest(&json, &w, own);
    assert_int_equal(rt_manifest_write(&json, folder_of(w.folder), &error), RT_OK);
}

static void check_load(const rt_wire_load *load, uint32_t iteration)
{
    assert_int_equal(load->shard_count, SHARDS);
    assert_string_equal(load->folder, folder_of(iteration));
    for (uint32_t s = 0; s < SHARDS; s++) {
        assert_int_equal(load->files[s].bytes, rows_of(iteration, s).bytes);
        assert_true(load->files[s].hash == rows_of(iteration, s).hash);
    }
}

// Three that build on each other: the first of them has all rows.
static void all_of_it_is_read(void **state)
{
    (void)state;
    static uint8_t dense[200000];
    static const uint32_t iterations[] = {4, 9, 12};
    dp_saved saved;
    rt_error error = {0};
    write_checkpoint(of(4, 0));
    write_checkpoint(of(9, 4));
    write_checkpoint(of(12, 9));
    if (dp_saved_read(directory(), 12, SCHEMA, &saved, &error))
        fail_msg("%s", error.text);
    assert_int_equal(saved.iteration, 12);
    assert_int_equal(saved.epoch, 7 + 12);
    assert_int_equal(saved.samples, (UINT64_C(1) << 40) + 12);
    assert_true(saved.config_hash == CONFIG);
    assert_int_equal(saved.state.size, strlen("state of 12"));
    assert_memory_equal(saved.state.data, "state of 12", saved.state.size);
    assert_int_equal(saved.dense.size, dense_of(12, dense));
    assert_memory_equal(saved.dense.data, dense, saved.dense.size);
    assert_int_equal(saved.count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(saved.past[i].iteration, iterations[i]);
        assert_int_equal(saved.past[i].base, i ? iterations[i - 1] : 0);
        check_load(&saved.loads[i], iterations[i]);
    }
    dp_saved_fini(&saved);
    assert_true(!saved.past && !saved.loads && !saved.count && !saved.dense.data);
}

// What a shard is told of one checkpoint has nothing of the one that was read before.
static void fewer_shards_than_before(void **state)
{
    (void)state;
    dp_saved saved;
    rt_error error = {0};
    written first = of(4, 0);
    first.shard_count = SHARDS - 1;
    first.parts = 2 + SHARDS - 1;
    write_checkpoint(first);
    write_checkpoint(of(9, 4));
    if (dp_saved_read(directory(), 9, SCHEMA, &saved, &error))
        fail_msg("%s", error.text);
    assert_int_equal(saved.count, 2);
    assert_int_equal(saved.loads[0].shard_count, SHARDS - 1);
    assert_true(saved.loads[0].files[SHARDS - 2].bytes > 0);
    assert_true(saved.loads[0].files[SHARDS - 1].bytes == 0);
    check_load(&saved.loads[1], 9);
    dp_saved_fini(&saved);
}

// Those before count among what stays, of another model, too, if they can be read with what they
// build on.
static void those_before_are_found(void **state)
{
    (void)state;
    static const struct {
        uint32_t iteration, base;
    } want[] = {{3, 0}, {4, 3}, {8, 0}, {9, 0}, {12, 9}};
    dp_saved saved;
    dp_checkpoint_past *past;
    uint32_t count;
    rt_error error = {0};
    written other = of(8, 0);
    other.schema++;
    write_checkpoint(of(9, 0));
    write_checkpoint(of(12, 9));
    write_checkpoint(of(20, 12)); // of a history that is lost
    write_manifest(of(2, 1));     // on nothing
    write_manifest(of(3, 0));
    write_manifest(of(4, 3));
    write_manifest(of(5, 4));
    assert_int_equal(unlink(file_of(5, "manifest.json")), 0); // never completed
    write_manifest(of(6, 5));
    write_manifest(of(7, 3)); // on the same as another one
    write_manifest(other);
    assert_int_equal(dp_saved_read(directory(), 12, SCHEMA, &saved, &error), RT_OK);
    assert_int_equal(dp_saved_past(directory(), &saved, &past, &count, &error), RT_OK);
    assert_int_equal(count, RT_COUNT_OF(want));
    for (uint32_t i = 0; i < count; i++)
        assert_true(past[i].iteration == want[i].iteration && past[i].base == want[i].base);
    rt_free(past);
    dp_saved_fini(&saved);
}

// Reading the newest one fails so, with these words.
static void must_fail(uint32_t iteration, rt_status want, const char *words)
{
    dp_saved saved;
    rt_error error = {0};
    const rt_status status = dp_saved_read(directory(), iteration, SCHEMA, &saved, &error);
    if (status != want || error.status != want || !strstr(error.text, words))
        fail_msg("status %d (%d: %s), expected %d with '%s'", status, error.status, error.text,
                 want, words);
    assert_true(!saved.state.data && !saved.dense.data && !saved.past && !saved.loads);
}

static void what_was_never_completed_is_not_found(void **state)
{
    (void)state;
    must_fail(4, RT_NOT_FOUND, "ckpt-000000000004");
    write_checkpoint(of(4, 0));
    assert_int_equal(unlink(file_of(4, "manifest.json")), 0);
    must_fail(4, RT_NOT_FOUND, "ckpt-000000000004");
}

// It is damage when what a whole checkpoint builds on is gone.
static void a_gap_in_the_chain_is_damage(void **state)
{
    (void)state;
    write_checkpoint(of(4, 0));
    write_checkpoint(of(9, 4));
    assert_int_equal(unlink(file_of(4, "manifest.json")), 0);
    must_fail(9, RT_DATA, "it builds on the one of iteration 4, which is not complete here");
}

static void another_schema_is_refused(void **state)
{
    (void)state;
    written other = of(4, 0);
    other.schema = SCHEMA + 1;
    write_checkpoint(other);
    must_fail(4, RT_CONFIG, "schema 1234567890abcdf0, this run has 1234567890abcdef");
    write_checkpoint(of(9, 4)); // and so is what builds on it
    must_fail(9, RT_CONFIG, "ckpt-000000000004");
}

static void manifests_that_cannot_be(void **state)
{
    (void)state;
    written w = of(4, 0);
    w.iteration = 5; // of another folder
    write_checkpoint(w);
    must_fail(4, RT_DATA, "no manifest of iteration 4");
    write_checkpoint(of(4, 4)); // would build on itself
    must_fail(4, RT_DATA, "no manifest of iteration 4");
    w = of(4, 0);
    w.shard_count = 0;
    w.parts = 2;
    write_checkpoint(w);
    must_fail(4, RT_DATA, "no manifest of iteration 4");
    for (uint32_t parts = 0; parts < 2 + SHARDS; parts++) { // one is missing
        w = of(4, 0);
        w.parts = parts;
        write_checkpoint(w);
        must_fail(4, RT_DATA, "no manifest of iteration 4");
    }
    for (uint32_t part = 0; part < 2 + SHARDS; part++) {
        w = of(4, 0);
        w.unhashed = part;
        write_checkpoint(w);
        must_fail(4, RT_DATA, "no manifest of iteration 4");
    }
}

static void as_many_shards_as_there_may_be(void **state)
{
    (void)state;
    dp_saved saved;
    written w = of(4, 0);
    w.shard_count = RT_SHARDS_MAX;
    w.parts = 2 + RT_SHARDS_MAX;
    write_checkpoint(w);
    assert_int_equal(dp_saved_read(directory(), 4, SCHEMA, &saved, NULL), RT_OK);
    assert_int_equal(saved.loads[0].shard_count, RT_SHARDS_MAX);
    dp_saved_fini(&saved);
    w.shard_count = RT_SHARDS_MAX + 1;
    w.parts = 2 + RT_SHARDS_MAX + 1;
    write_checkpoint(w);
    must_fail(4, RT_DATA, "no manifest of iteration 4");
}

static void own_parts_that_are_not_those_of_the_manifest(void **state)
{
    (void)state;
    static uint8_t dense[200000];
    rt_file_sum sum;
    write_checkpoint(of(4, 0));
    const size_t size = dense_of(4, dense);
    put_file(file_of(4, "dense.bin"), dense, size - 1);
    must_fail(4, RT_DATA, "dense.bin is damaged");
    put_file(file_of(4, "dense.bin"), dense, size + 1);
    must_fail(4, RT_DATA, "dense.bin: longer than 150004 bytes");
    dense[70000] ^= 1;
    put_file(file_of(4, "dense.bin"), dense, size);
    must_fail(4, RT_DATA, "dense.bin is damaged");
    assert_int_equal(unlink(file_of(4, "dense.bin")), 0);
    must_fail(4, RT_DATA, "dense.bin: No such file");
    assert_int_equal(mkdir(file_of(4, "dense.bin"), 0700), 0);
    must_fail(4, RT_IO, "dense.bin: Is a directory");
    assert_int_equal(rmdir(file_of(4, "dense.bin")), 0);
    write_checkpoint(of(4, 0));
    assert_int_equal(
        rt_pack_write(file_of(4, "planner.bin"), DP_CHECKPOINT_MAGIC, "State of 4", 10, &sum, NULL),
        RT_OK); // whole, but another one, of the same length
    must_fail(4, RT_DATA, "planner.bin is not the file that the manifest names");
    put_file(file_of(4, "planner.bin"), dense, 100);
    must_fail(4, RT_DATA, "planner.bin");
}

// As many as checkpoint.full_every allows, and one more.
static void chains_have_an_end(void **state)
{
    (void)state;
    dp_saved saved;
    assert_int_equal(mkdir(directory(), 0700), 0);
    for (uint32_t i = 1; i < 1000; i++)
        write_manifest(of(i, i - 1)); // nobody reads the other files
    write_checkpoint(of(1000, 999));
    write_checkpoint(of(1001, 1000));
    assert_int_equal(dp_saved_read(directory(), 1000, SCHEMA, &saved, NULL), RT_OK);
    assert_int_equal(saved.count, 1000);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(saved.past[i].iteration, i + 1);
        assert_int_equal(saved.past[i].base, i);
        assert_int_equal(saved.loads[i].files[1].bytes, rows_of(i + 1, 1).bytes);
    }
    dp_saved_fini(&saved);
    must_fail(1001, RT_DATA, "more than 1000 checkpoints build on each other");
}

TEST_MAIN(TEST(all_of_it_is_read), TEST(those_before_are_found), TEST(fewer_shards_than_before),
          TEST(what_was_never_completed_is_not_found), TEST(a_gap_in_the_chain_is_damage),
          TEST(another_schema_is_refused), TEST(manifests_that_cannot_be),
          TEST(as_many_shards_as_there_may_be), TEST(own_parts_that_are_not_those_of_the_manifest),
          TEST(chains_have_an_end))
