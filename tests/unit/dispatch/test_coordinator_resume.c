// A run that goes on: what is in its checkpoints, what members are told, and that every slice is
// the one that the run before had.
#include "tests/unit/dispatch/test_coordinator_support.h"

#include "runtime/stream/rt_stream.h"
#include "runtime/files/rt_pack.h"

#define EVERY 16u // iterations between checkpoints
#define FIRST EVERY
#define SECOND (2 * EVERY)
#define CACHE_ROWS 100000u // of which a slice fills 65536

// ---- slices ------------------------------------------------------------------------------------

typedef struct {
    uint64_t of[ITERATIONS + 1][WORKERS]; // payloads; 0: not seen yet
} seen;

static void train_through(fixture *f, seen *all, uint32_t first, uint32_t last)
{
    for (uint32_t t = first; t <= last; t++) {
        for (uint32_t w = 0; w < WORKERS; w++) {
            uint32_t iteration;
            rt_message slice = expect(f, 1 + w, RT_MESSAGE_SLICE);
            const rt_wire_report one = report_on(&slice, &iteration);
            const uint64_t hash =
                rt_hash_bytes(rt_message_payload(&slice), slice.size - sizeof(rt_wire_header));
            assert_int_equal(iteration, t);
            if (all->of[t][w] && all->of[t][w] != hash)
                fail_msg("worker %u gets another slice of iteration %u", w, t);
            all->of[t][w] = hash;
            report(f, w, rt_message_header(&slice)->iteration, &one);
            rt_message_release(&slice);
        }
    }
}

static void take_cut(fixture *f, uint32_t base, uint32_t want)
{
    take_flush(f);
    assert_int_equal(play_cut_upon(f, base), want);
}

static void set_up(fixture *f)
{
    f->config.checkpoint.every_iterations = EVERY;
    f->config.checkpoint.copies = false;
    f->config.dispatch.measure_compute = false; // no records: plans do not depend on times
}

// A run with two checkpoints; *f is over then.
static void run_once(fixture *f, seen *all)
{
    *all = (seen){0};
    prepare(f);
    set_up(f);
    start(f);
    train_through(f, all, 1, FIRST);
    take_cut(f, 0, FIRST);
    train_through(f, all, FIRST + 1, SECOND);
    take_cut(f, FIRST, SECOND);
    train_through(f, all, SECOND + 1, ITERATIONS);
    take_flush(f);
    end_well(f);
    finish(f, RT_OK, "");
}

static void run_again(fixture *f)
{
    prepare_again(f);
    set_up(f);
    f->own.resume = DP_RESUME_NEWEST;
}

// ---- the shard ---------------------------------------------------------------------------------

// Every key that was trained, in the version of the last time.
typedef struct {
    rt_wire_key *keys;
    uint32_t count;
} known;

static int compare_keys(const void *a, const void *b)
{
    const rt_wire_key *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->version > y->version ? -1 : x->version < y->version;
}

static known keys_until(const fixture *f, uint32_t last)
{
    known all = {0};
    uint32_t capacity = 0, distinct = 0;
    rt_stream *stream;
    rt_batch batch;
    assert_int_equal(rt_stream_open(&f->config.stream, f->config.seed, &stream, NULL), RT_OK);
    rt_batch_init(&batch, rt_stream_schema(stream)->dense_count);
    for (uint32_t t = 1; t <= last; t++) {
        assert_int_equal(rt_stream_read(stream, &batch, WORKERS * BATCH, NULL), RT_OK);
        assert_int_equal(
            rt_grow(&all.keys, &capacity, all.count + batch.key_count, sizeof *all.keys), RT_OK);
        for (uint32_t k = 0; k < batch.key_count; k++)
            all.keys[all.count++] = (rt_wire_key){batch.keys[k], t, 0};
    }
    qsort(all.keys, all.count, sizeof *all.keys, compare_keys);
    for (uint32_t k = 0; k < all.count; k++) {
        if (distinct == 0 || all.keys[distinct - 1].key != all.keys[k].key)
            all.keys[distinct++] = all.keys[k];
    }
    all.count = distinct;
    rt_batch_fini(&batch);
    rt_stream_close(stream);
    return all;
}

static void say_keys(fixture *f, const rt_wire_key *keys, uint32_t count, size_t size)
{
    rt_message message;
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_KEYS, SHARD, 0, count, size), RT_OK);
    if (size)
        memcpy(rt_message_payload(&message), keys, size);
    assert_int_equal(ops->send(f->members[0], COORDINATOR, &message), RT_OK);
}

static void expect_keys(fixture *f, uint64_t from)
{
    rt_message message = expect(f, 0, RT_MESSAGE_KEYS);
    assert_int_equal(rt_message_header(&message)->iteration, from);
    rt_message_release(&message);
}

// In two answers, and that there are no more.
static void tell_keys(fixture *f, const known *all)
{
    const uint32_t some = all->count / 3;
    expect_keys(f, 0);
    say_keys(f, all->keys, some, some * sizeof *all->keys);
    expect_keys(f, some);
    say_keys(f, all->keys + some, all->count - some, (all->count - some) * sizeof *all->keys);
    expect_keys(f, all->count);
    say_keys(f, NULL, 0, 0);
}

// base: of the checkpoint, which is read after those that it changes.
static void load_rows(fixture *f, uint32_t iteration, bool is_first)
{
    char folder[700];
    rt_wire_load load;
    const rt_wire_written loaded = {0};
    rt_message message = expect(f, 0, RT_MESSAGE_LOAD);
    assert_int_equal(rt_message_header(&message)->iteration, iteration);
    assert_true(rt_control_has(&message, sizeof load));
    memcpy(&load, rt_message_payload(&message), sizeof load);
    rt_message_release(&message);
    snprintf(folder, sizeof folder, "%s/checkpoints/ckpt-%012u", f->out, iteration);
    assert_string_equal(load.folder, folder);
    assert_int_equal(load.shard_count, 1);
    assert_int_equal(load.flags, is_first ? RT_WIRE_LOAD_FIRST : 0);
    assert_int_equal(load.files[0].bytes, strlen(rows));
    assert_int_equal(load.files[0].hash, 88);
    say(f, 0, RT_MESSAGE_LOADED, iteration, &loaded, sizeof loaded, NULL, 0);
}

// Of the second checkpoint all rows, or of the first.
static void load_all(fixture *f, uint32_t iteration)
{
    load_rows(f, FIRST, true);
    if (iteration == SECOND)
        load_rows(f, SECOND, false);
    known all = keys_until(f, iteration);
    tell_keys(f, &all);
    rt_free(all.keys);
}

// ---- the workers -------------------------------------------------------------------------------

static void take_dense(fixture *f, uint32_t iteration)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        rt_message message = expect(f, 1 + w, RT_MESSAGE_PART);
        const rt_wire_part want = {0, 5};
        assert_int_equal(rt_message_header(&message)->iteration, iteration);
        assert_memory_equal(rt_message_payload(&message), &want, sizeof want);
        assert_memory_equal(rt_message_payload(&message) + sizeof want, "dense", 5);
        rt_message_release(&message);
    }
}

// What fills caches is carried out before anything else comes; of a part of the slots that held no
// rows no slice comes. Rows that were filled.
static uint32_t fill_caches(fixture *f)
{
    const uint64_t s = 1;
    uint32_t pulls = 0;
    for (uint32_t w = 0; w < WORKERS; w++) {
        rt_wire_slice head;
        rt_message message = expect(f, 1 + w, RT_MESSAGE_SLICE);
        memcpy(&head, rt_message_payload(&message), sizeof head);
        assert_int_equal(rt_message_header(&message)->iteration, s);
        assert_int_equal(rt_message_header(&message)->epoch, f->welcome.epoch);
        assert_int_equal(head.iteration, 0);
        pulls += head.pull_count;
        rt_message_release(&message);
        message = expect(f, 1 + w, RT_MESSAGE_MARK);
        assert_int_equal(rt_message_header(&message)->iteration, s);
        rt_message_release(&message);
    }
    say(f, 1, RT_MESSAGE_MARK, s + 100, NULL, 0, NULL, 0); // of something else
    for (uint32_t w = 0; w < WORKERS; w++)
        say(f, 1 + w, RT_MESSAGE_MARK, s, NULL, 0, NULL, 0);
    return pulls;
}

static void must_have_resumed(const fixture *f, uint32_t iteration, bool caches)
{
    cJSON *record = last_record(f, "resumed");
    assert_true(number(record, "iteration") == iteration);
    assert_true(number(record, "epoch") == f->welcome.epoch);
    assert_int_equal(cJSON_IsTrue(cJSON_GetObjectItem(record, "caches")), caches);
    assert_in_range((int)number(record, "seconds"), 0, PATIENCE_S * test_limit_factor());
    cJSON_Delete(record);
}

static void must_have_trained_all(const fixture *f)
{
    cJSON *summary = json_of(f, "summary.json");
    assert_true(number(summary, "iterations") == ITERATIONS);
    assert_true(number(summary, "samples") == ITERATIONS * WORKERS * BATCH);
    cJSON_Delete(summary);
}

static void go_on_to_the_end(fixture *f, seen *all, uint32_t from)
{
    train_through(f, all, from + 1, ITERATIONS);
    take_flush(f);
    end_well(f);
    finish(f, RT_OK, "");
    must_have_trained_all(f);
}

static void path_of(const fixture *f, uint32_t iteration, const char *name, char path[700])
{
    snprintf(path, 700, "%s/checkpoints/ckpt-%012u/%s", f->out, iteration, name);
}

static bool is_there(const fixture *f, uint32_t iteration)
{
    char path[700];
    path_of(f, iteration, RT_MANIFEST_NAME, path);
    return access(path, F_OK) == 0;
}

// ---- cases -------------------------------------------------------------------------------------

static void every_slice_is_the_same(void **state)
{
    (void)state;
    static seen all;
    fixture f;
    run_once(&f, &all);
    run_again(&f);
    start(&f);
    assert_int_equal(f.welcome.epoch, 2);
    load_all(&f, SECOND);
    take_dense(&f, SECOND);
    assert_in_range(fill_caches(&f), 1000, WORKERS * CACHE_ROWS);
    go_on_to_the_end(&f, &all, SECOND);
    must_have_resumed(&f, SECOND, true);
}

// What is damaged is set aside; the run goes on from the one before, and the next builds on that.
static void a_damaged_one_is_passed_over(void **state)
{
    (void)state;
    static seen all;
    char path[700];
    fixture f;
    run_once(&f, &all);
    path_of(&f, SECOND, "dense.bin", path);
    assert_int_equal(truncate(path, 4), 0);
    run_again(&f);
    start(&f);
    load_all(&f, FIRST);
    take_dense(&f, FIRST);
    assert_in_range(fill_caches(&f), 1000, WORKERS * CACHE_ROWS);
    assert_false(is_there(&f, SECOND));
    train_through(&f, &all, FIRST + 1, SECOND);
    take_cut(&f, FIRST, SECOND);
    go_on_to_the_end(&f, &all, SECOND);
    must_have_resumed(&f, FIRST, true);
}

// Of another cache nothing is known: rows are pulled as they are touched, and training begins
// behind the dense part.
static void caches_that_differ_start_empty(void **state)
{
    (void)state;
    static seen all;
    fixture f;
    run_once(&f, &all);
    run_again(&f);
    f.config.cache.rows = CACHE_ROWS / 2;
    f.own.identity.config_hash++;
    start(&f);
    load_all(&f, SECOND);
    take_dense(&f, SECOND);
    all = (seen){0};
    go_on_to_the_end(&f, &all, SECOND);
    must_have_resumed(&f, SECOND, false);
}

typedef struct {
    uint32_t count; // that KEYS says
    size_t size;    // bytes that there are
    const char *text;
} answer;

static void keys_that_cannot_be(void **state)
{
    (void)state;
    static const rt_wire_key twice[] = {{7, 3, 0}, {9, 3, 0}, {7, 4, 0}};
    const size_t two = 2 * sizeof *twice;
    static seen all;
    const answer cases[] = {
        {3, sizeof twice, "ps 0: key 0000000000000007: "},
        {3, two, "ps 0: keys are cut short"},
        {RT_WIRE_KEYS_MAX + 1, two, "ps 0: keys that nobody asked for"},
    };
    fixture f;
    run_once(&f, &all);
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        run_again(&f);
        start(&f);
        load_rows(&f, FIRST, true);
        load_rows(&f, SECOND, false);
        expect_keys(&f, 0);
        say_keys(&f, twice, cases[i].count, cases[i].size);
        expect_stop(&f, i == 0 ? RT_REASON_LASTS : RT_REASON_FAILED);
        finish(&f, i == 0 ? RT_DATA : RT_WIRE, cases[i].text);
    }
}

// Rows of another moment than the planner's: the checkpoint is of no use, and so is the other one.
static void rows_of_another_moment(void **state)
{
    (void)state;
    static seen all;
    fixture f;
    run_once(&f, &all);
    run_again(&f);
    start(&f);
    load_rows(&f, FIRST, true);
    load_rows(&f, SECOND, false);
    known other = keys_until(&f, SECOND);
    other.keys[5].version--;
    tell_keys(&f, &other);
    rt_free(other.keys);
    load_rows(&f, FIRST, true);
    expect_keys(&f, 0);
    say_keys(&f, NULL, 0, 0);
    expect_stop(&f, RT_REASON_LASTS);
    finish(&f, RT_DATA,
           "no checkpoint can be read (those of the iterations 32, 16 are damaged); all is left as "
           "it is");
    assert_true(is_there(&f, SECOND));
}

// Nothing is set aside before one is found to be whole.
static void a_shard_that_is_lost_meanwhile(void **state)
{
    (void)state;
    static seen all;
    char path[700];
    fixture f;
    run_once(&f, &all);
    path_of(&f, SECOND, "dense.bin", path);
    assert_int_equal(truncate(path, 4), 0);
    run_again(&f);
    start(&f);
    load_rows(&f, FIRST, true);
    expect_keys(&f, 0);
    end_by_failure(&f);
    assert_true(is_there(&f, SECOND));
}

// ---- states that cannot be ---------------------------------------------------------------------

static rt_bytes state_of(const fixture *f, uint32_t iteration)
{
    char path[700];
    rt_file_sum sum;
    rt_bytes bytes = {0};
    path_of(f, iteration, "planner.bin", path);
    assert_int_equal(rt_pack_read(path, DP_CHECKPOINT_MAGIC, &bytes, &sum, NULL), RT_OK);
    return bytes;
}

// The second checkpoint's, as if the run had written that.
static void put_state(const fixture *f, const rt_bytes *bytes, size_t size)
{
    char path[700], hash[32];
    rt_file_sum sum;
    rt_bytes text = {0};
    cJSON *root;
    path_of(f, SECOND, "planner.bin", path);
    assert_int_equal(rt_pack_write(path, DP_CHECKPOINT_MAGIC, bytes->data, size, &sum, NULL),
                     RT_OK);
    path_of(f, SECOND, "", path);
    assert_int_equal(rt_manifest_read(path, &root, NULL), RT_OK);
    cJSON *part = NULL, *parts = cJSON_GetObjectItem(root, "parts");
    cJSON_ArrayForEach(part, parts)
    {
        if (strcmp(cJSON_GetObjectItem(part, "name")->valuestring, "planner.bin") == 0)
            break;
    }
    assert_non_null(part);
    snprintf(hash, sizeof hash, "%016" PRIx64, sum.hash);
    assert_true(cJSON_ReplaceItemInObject(part, "bytes", cJSON_CreateNumber((double)sum.bytes)));
    assert_true(cJSON_ReplaceItemInObject(part, "hash", cJSON_CreateString(hash)));
    cJSON_Delete(cJSON_DetachItemFromObject(root, "checksum"));
    char *printed = cJSON_Print(root);
    rt_manifest_sign(printed, &text);
    path_of(f, SECOND, RT_MANIFEST_NAME, path);
    assert_int_equal(rt_file_save(path, text.data, text.size, NULL), RT_OK);
    rt_bytes_fini(&text);
    free(printed);
    cJSON_Delete(root);
}

typedef enum {
    OTHER_ITERATION,
    NO_POSITION,
    LONGER_THAN_THE_FILE,
    HALF_OF_THE_SUMS,
    HALF_OF_THE_SCALE
} fault;

static void damage_state(const fixture *f, fault which)
{
    uint64_t planned;
    rt_bytes bytes = state_of(f, which == OTHER_ITERATION ? FIRST : SECOND);
    memcpy(&planned, bytes.data, sizeof planned);
    assert_in_range(planned, 1000, bytes.size - 100);
    const uint64_t wrong = which == NO_POSITION ? 0 : bytes.size;
    if (which == NO_POSITION || which == LONGER_THAN_THE_FILE)
        memcpy(bytes.data, &wrong, sizeof wrong);
    if (which == HALF_OF_THE_SUMS)
        put_state(f, &bytes, sizeof planned + planned + 50);
    else
        put_state(f, &bytes, bytes.size - (which == HALF_OF_THE_SCALE));
    rt_bytes_fini(&bytes);
}

// The rows fit, or are not asked for; what is left of the checkpoint does not.
static void states_that_cannot_be(void **state)
{
    (void)state;
    static seen all;
    fixture f;
    run_once(&f, &all);
    rt_bytes sound = state_of(&f, SECOND);
    for (fault which = OTHER_ITERATION; which <= HALF_OF_THE_SCALE; which++) {
        const bool asks = which != NO_POSITION && which != LONGER_THAN_THE_FILE;
        damage_state(&f, which);
        run_again(&f);
        start(&f);
        load_rows(&f, FIRST, true);
        load_rows(&f, SECOND, false);
        known keys = keys_until(&f, which == OTHER_ITERATION ? FIRST : SECOND);
        if (asks)
            tell_keys(&f, &keys);
        rt_free(keys.keys);
        load_rows(&f, FIRST, true); // it is passed over
        end_by_failure(&f);
        put_state(&f, &sound, sound.size);
    }
    rt_bytes_fini(&sound);
    run_again(&f);
    start(&f);
    load_all(&f, SECOND);
    take_dense(&f, SECOND);
    end_by_failure(&f);
}

TEST_MAIN(TEST(every_slice_is_the_same), TEST(a_damaged_one_is_passed_over),
          TEST(caches_that_differ_start_empty), TEST(keys_that_cannot_be),
          TEST(rows_of_another_moment), TEST(a_shard_that_is_lost_meanwhile),
          TEST(states_that_cannot_be))
