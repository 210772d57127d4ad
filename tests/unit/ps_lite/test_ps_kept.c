// Rows that outlive a shard, in memory or on disk: rolled back in place they are, bit for bit, what
// the files of the checkpoint give.
#include "tests/support/shard_case.h"

#include <stdio.h>
#include <unistd.h>

#include "ps_lite/ps_checkpoint.h"
#include "ps_lite/ps_model_file.h"
#include "runtime/files/rt_file.h"
#include "runtime/rt_hash.h"

#define SCHEMA 7u
#define KEYS 60u
#define FILES_MAX 8u

// A checkpoint's files, from the one with all rows on.
typedef struct {
    uint32_t count;
    uint32_t iterations[FILES_MAX];
    uint64_t lineage;
} chain;

static bool on_disk; // rows of the next shard

static ps_shard_config keeping(fixture *f)
{
    ps_shard_config config = config_of(f);
    if (on_disk) {
        config.memory_bytes_max = 8 << 20; // keys of a block of rows
        assert_int_equal(ps_store_create(test_path("."), 1 << 30, &config.store, NULL), RT_OK);
    }
    config.homes = RT_HOMES_PLANNED;
    config.names_left = true;
    config.image_bytes_max = 1 << 20;
    return config;
}

static const char *name_of(uint32_t iteration)
{
    static char name[32];
    snprintf(name, sizeof name, "rows-%u", iteration);
    return name;
}

static rt_file_sum save_cut(const ps_shard *shard, const char *name, const ps_cut *cut)
{
    rt_file_sum sum = {0};
    rt_file_place place = {.path = test_path(name)};
    const rt_sink sink = rt_file_sink(&place);
    rt_error error = {0};
    if (ps_shard_save(shard, &sink, SCHEMA, cut, NULL, NULL, &sum, &error))
        fail_msg("%s", error.text);
    return sum;
}

// As a CUT and its WRITTEN do. The checkpoint before is complete unless it is said otherwise.
static void cut_at(fixture *f, chain *files, uint32_t iteration, bool has_all, uint32_t complete)
{
    const ps_cut cut = {iteration, has_all ? 0 : complete};
    const rt_file_sum sum = save_cut(f->shard, name_of(iteration), &cut);
    if (has_all)
        *files = (chain){.lineage = RT_LINEAGE_ALL_ROWS};
    files->iterations[files->count++] = iteration;
    files->lineage = rt_control_lineage(files->lineage, sum.bytes, sum.hash);
    ps_shard_cut(f->shard, iteration, cut.base, complete);
    assert_int_equal(ps_shard_hold(f->shard, NULL), RT_OK); // for a copy that writes the file
    ps_shard_written(f->shard, iteration, sum.bytes, sum.hash);
}

// What a shard holds, as the bytes of a file of all rows, which are in the order of their keys.
static uint64_t digest_of(const ps_shard *shard)
{
    const ps_cut all = {1000, 0};
    return save_cut(shard, "digest", &all).hash;
}

static uint64_t digest_of_files(const chain *files)
{
    fixture g;
    rt_error error = {0};
    const ps_shard_config config = keeping(&g);
    start(&g, &config);
    for (uint32_t i = 0; i < files->count; i++)
        if (ps_shard_load(g.shard, test_path(name_of(files->iterations[i])), SCHEMA, NULL, NULL,
                          NULL, &error))
            fail_msg("%s", error.text);
    const uint64_t digest = digest_of(g.shard);
    teardown(&g);
    return digest;
}

// The shard is gone, and its rows are another one's.
static rt_status adopt_in(fixture *f, fixture *next, ps_kept **kept, uint32_t iteration,
                          uint64_t lineage, ps_progress progress)
{
    rt_error error = {0};
    if (f)
        *kept = ps_shard_give(f->shard);
    if (f)
        teardown(f);
    if (!*kept)
        return RT_NOT_FOUND;
    const ps_shard_config config = keeping(next);
    start(next, &config);
    const rt_status status =
        ps_shard_adopt(next->shard, kept, iteration, lineage, progress, NULL, &error);
    if (status) {
        assert_true(error.text[0] != '\0');
        teardown(next);
    }
    return status;
}

// A step of training, by any kind of message that changes rows.
static void change(fixture *f, uint64_t *seed, uint32_t iteration)
{
    for (uint32_t i = 0; i < 30; i++) {
        const uint64_t chance = *seed = rt_mix(*seed + 1);
        const uint64_t key = 1 + (chance >> 8) % KEYS;
        uint32_t version = 0;
        const bool is_there = ps_shard_find(f->shard, key, &version) != NULL;
        const rt_wire_pull gone = {key, version, 0};
        if (version >= iteration)
            continue;
        switch (chance & 3) {
        case 0:
            accepted(f, 0, push_of(0, iteration, key, iteration, (float)(chance >> 40)));
            break;
        case 1:
            accepted(f, 1, grad_of(1, iteration, key, 2, version, 0, 0.25f));
            break;
        case 2:
            if (key % 2 == 0)
                accepted(f, 0, pull_of(0, RT_MESSAGE_PULL, iteration, key, 0, 0));
            break;
        default: // its new home; nobody asks for it here as for a row that nobody has trained
            if (is_there && version && key % 2)
                accepted(f, 0, message_of(0, RT_MESSAGE_FORGET, iteration, 1, &gone, sizeof gone));
            break;
        }
        flush(f);
        drop_sent(f);
    }
}

static void rolled_back_is_loaded(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 40; round++) {
        fixture f, g;
        chain files = {0}, older = {0};
        uint64_t seed = round;
        uint32_t t = 0;
        ps_kept *kept = NULL;
        on_disk = round % 8 == 7;
        const ps_shard_config config = keeping(&f);
        start(&f, &config);
        for (uint32_t c = 1; c <= 1 + round % 6; c++) {
            change(&f, &seed, ++t);
            change(&f, &seed, ++t);
            older = files;
            cut_at(&f, &files, ++t, c == 1 || (round & 8 && c == 3),
                   c == 1 ? 0 : older.iterations[older.count - 1]);
        }
        change(&f, &seed, ++t);
        change(&f, &seed, ++t);
        // Every third round the newest cut never became a checkpoint.
        const chain *back = round % 3 == 2 && older.count ? &older : &files;
        assert_int_equal(
            adopt_in(&f, &g, &kept, back->iterations[back->count - 1], back->lineage, NULL), RT_OK);
        assert_null(kept);
        assert_true(digest_of(g.shard) == digest_of_files(back));
        // And again, from there.
        const chain was = *back;
        files = was;
        change(&g, &seed, ++t);
        cut_at(&g, &files, ++t, false, files.iterations[files.count - 1]);
        assert_true(digest_of(g.shard) != digest_of_files(&was));
        change(&g, &seed, ++t);
        assert_int_equal(adopt_in(&g, &f, &kept, t - 1, files.lineage, NULL), RT_OK);
        assert_true(digest_of(f.shard) == digest_of_files(&files));
        teardown(&f);
    }
}

// A cut that failed, and one behind it that builds on what was complete before both.
static void a_failed_cut_is_no_checkpoint(void **state)
{
    (void)state;
    fixture f, g;
    chain files = {0};
    uint64_t seed = 99;
    ps_kept *kept = NULL;
    const ps_shard_config config = keeping(&f);
    start(&f, &config);
    change(&f, &seed, 1);
    cut_at(&f, &files, 2, true, 0);
    const chain good = files;
    change(&f, &seed, 3);
    cut_at(&f, &files, 4, false, 2); // which is never complete
    change(&f, &seed, 5);
    files = good;
    cut_at(&f, &files, 6, false, 2);
    change(&f, &seed, 7);
    assert_int_equal(adopt_in(&f, &g, &kept, 4, good.lineage, NULL), RT_NOT_FOUND);
    assert_int_equal(adopt_in(NULL, &g, &kept, 6, good.lineage, NULL), RT_NOT_FOUND);
    assert_int_equal(adopt_in(NULL, &g, &kept, 6, files.lineage, NULL), RT_OK);
    assert_true(digest_of(g.shard) == digest_of_files(&files));
    change(&g, &seed, 8);
    assert_int_equal(adopt_in(&g, &f, &kept, 2, good.lineage, NULL), RT_OK);
    assert_true(digest_of(f.shard) == digest_of_files(&good));
    teardown(&f);
}

static rt_status stop_at_once(void *context, int wait_fd, rt_error *error)
{
    (void)context;
    (void)wait_fd;
    return rt_fail(error, RT_STOPPED, "another loss");
}

// A checkpoint of all rows at 31, and changes before and behind it.
static void start_and_cut(fixture *f, chain *files, uint64_t *seed)
{
    const ps_shard_config config = keeping(f);
    start(f, &config);
    for (uint32_t t = 1; t <= 30; t++)
        change(f, seed, t);
    cut_at(f, files, 31, true, 0);
    for (uint32_t t = 32; t <= 50; t++)
        change(f, seed, t);
}

// A second loss in the middle: the rows are rolled back by the start after that one.
static void a_roll_back_that_was_cut_short(void **state)
{
    (void)state;
    fixture f, g;
    chain files = {0};
    uint64_t seed = 5;
    ps_kept *kept = NULL;
    start_and_cut(&f, &files, &seed);
    assert_int_equal(adopt_in(&f, &g, &kept, 31, files.lineage, stop_at_once), RT_STOPPED);
    assert_int_equal(adopt_in(NULL, &g, &kept, 31, files.lineage, stop_at_once), RT_STOPPED);
    assert_int_equal(adopt_in(NULL, &g, &kept, 31, files.lineage, NULL), RT_OK);
    assert_true(digest_of(g.shard) == digest_of_files(&files));
    teardown(&g);
}

// The rows are between two checkpoints then: they are not those of the newer one any more, although
// its images were there.
static void a_roll_back_past_a_checkpoint_that_was_cut_short(void **state)
{
    (void)state;
    fixture f, g;
    chain files = {0};
    uint64_t seed = 6;
    ps_kept *kept = NULL;
    start_and_cut(&f, &files, &seed);
    chain newer = files;
    cut_at(&f, &newer, 51, false, 31);
    for (uint32_t t = 52; t <= 60; t++)
        change(&f, &seed, t);
    assert_int_equal(adopt_in(&f, &g, &kept, 31, files.lineage, stop_at_once), RT_STOPPED);
    assert_int_equal(adopt_in(NULL, &g, &kept, 51, newer.lineage, NULL), RT_NOT_FOUND);
    assert_int_equal(adopt_in(NULL, &g, &kept, 31, files.lineage, NULL), RT_OK);
    assert_true(digest_of(g.shard) == digest_of_files(&files));
    teardown(&g);
}

// ---- reading files -----------------------------------------------------------------------------

static rt_status stop_in_the_middle(void *context, int wait_fd, rt_error *error)
{
    uint32_t *left = context;
    (void)wait_fd;
    if ((*left)-- > 0)
        return RT_OK;
    return rt_fail(error, RT_STOPPED, "another loss");
}

// A LOAD of the only shard's file of a checkpoint. What LOADED says, or what ended the reading.
static rt_status load_file(fixture *f, uint32_t iteration, bool is_first, const rt_file_sum *sum,
                           uint32_t steps)
{
    char from[400], to[400];
    rt_wire_load load = {.shard_count = 1, .flags = RT_WIRE_LOAD_HOMES};
    rt_wire_written loaded = {0};
    rt_message message, answer = {0};
    rt_error error = {0};
    if (is_first)
        load.flags |= RT_WIRE_LOAD_FIRST;
    load.files[0].bytes = sum->bytes;
    load.files[0].hash = sum->hash;
    assert_true(rt_control_put_text(load.folder, sizeof load.folder, test_path("")));
    snprintf(from, sizeof from, "%s", test_path(name_of(iteration)));
    snprintf(to, sizeof to, "%s", test_path("rows-000-of-001.bin"));
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(
        rt_control_create_struct(&message, RT_MESSAGE_LOAD, 0, iteration, &load, sizeof load, NULL),
        RT_OK);
    rt_status status = ps_checkpoint_load(f->shard, &message, SCHEMA, 0, stop_in_the_middle, &steps,
                                          &answer, &error);
    if (!status) {
        memcpy(&loaded, rt_message_payload(&answer), sizeof loaded);
        status = (rt_status)loaded.status;
    }
    rt_message_release(&message);
    rt_message_release(&answer);
    assert_int_equal(rename(to, from), 0);
    return status;
}

// Rows of a file that was not read to its good end are no checkpoint's: not of the one that was
// wanted, nor of the one that was there before. The next start reads files.
static void a_load_that_failed(void **state)
{
    (void)state;
    enum { WHOLE, OTHER_SUM, STOPPED, CUT_OFF, WAYS };
    fixture f;
    chain files = {0};
    uint64_t seed = 8;
    const ps_shard_config config = keeping(&f);
    start(&f, &config);
    for (uint32_t t = 1; t <= 30; t++)
        change(&f, &seed, t);
    const ps_cut all = {31, 0}, changes = {51, 31};
    const rt_file_sum first = save_cut(f.shard, name_of(31), &all);
    cut_at(&f, &files, 31, true, 0);
    for (uint32_t t = 32; t <= 50; t++)
        change(&f, &seed, t);
    const rt_file_sum second = save_cut(f.shard, name_of(51), &changes);
    teardown(&f);
    const uint64_t lineage = rt_control_lineage(files.lineage, second.bytes, second.hash);
    for (int way = WHOLE; way < WAYS; way++) {
        fixture g, next;
        rt_file_sum named = second;
        start(&g, &config);
        assert_int_equal(load_file(&g, 31, true, &first, UINT32_MAX), RT_OK);
        if (way == OTHER_SUM)
            named.hash++;
        if (way == CUT_OFF)
            assert_int_equal(truncate(test_path(name_of(51)), (off_t)second.bytes - 3), 0);
        const rt_status status = load_file(&g, 51, false, &named, way == STOPPED ? 0 : UINT32_MAX);
        assert_true((status == RT_OK) == (way == WHOLE));
        ps_kept *kept = NULL;
        assert_int_equal(adopt_in(&g, &next, &kept, 51, lineage, NULL),
                         way == WHOLE ? RT_OK : RT_NOT_FOUND);
        assert_null(kept);
        if (way == WHOLE)
            teardown(&next);
    }
}

// Whether a shard has anything to go back to after one of these.
static bool has_images_after(void (*what)(fixture *f), uint64_t image_bytes_max)
{
    fixture f;
    chain files = {0};
    uint64_t seed = 3;
    ps_shard_config config = keeping(&f);
    config.image_bytes_max = image_bytes_max;
    start(&f, &config);
    change(&f, &seed, 1);
    cut_at(&f, &files, 2, true, 0);
    change(&f, &seed, 3);
    if (what)
        what(&f);
    ps_kept *kept = ps_shard_give(f.shard);
    const bool has = kept != NULL;
    ps_kept_destroy(kept);
    teardown(&f);
    return has;
}

static void sweep(fixture *f)
{
    uint64_t ended;
    assert_int_equal(ps_shard_expire(f->shard, 1, NULL, NULL, &ended, NULL), RT_OK);
    assert_int_equal(statistics_of(f).image_bytes, 0);
}

static void forget(fixture *f)
{
    assert_true(statistics_of(f).image_bytes > 0);
    (void)ps_shard_forget(f->shard, 5);
    assert_int_equal(statistics_of(f).image_bytes, 0);
}

static void clear(fixture *f)
{
    assert_int_equal(ps_shard_clear(f->shard), RT_OK);
}

static void what_gives_images_up(void **state)
{
    (void)state;
    assert_true(has_images_after(NULL, 1 << 20));
    assert_false(has_images_after(NULL, 0));
    assert_false(has_images_after(NULL, 5000)); // less than a block
    assert_false(has_images_after(sweep, 1 << 20));
    assert_false(has_images_after(forget, 1 << 20));
    assert_false(has_images_after(clear, 1 << 20));
}

// Images are of the rows that changed, not of the table, and those of a checkpoint go once the next
// one is complete.
static void images_are_bounded(void **state)
{
    (void)state;
    fixture f;
    chain files = {0};
    uint64_t seed = 3, most = 0;
    const ps_shard_config config = keeping(&f);
    start(&f, &config);
    cut_at(&f, &files, 1, true, 0);
    for (uint32_t t = 2; t < 200; t += 2) {
        change(&f, &seed, t);
        cut_at(&f, &files, t + 1, true, t - 1);
        const uint64_t bytes = statistics_of(&f).image_bytes;
        if (t < 20)
            most = bytes > most ? bytes : most;
        assert_true(bytes <= 2 * most);
    }
    teardown(&f);
}

TEST_MAIN(TEST(rolled_back_is_loaded), TEST(a_failed_cut_is_no_checkpoint),
          TEST(a_roll_back_that_was_cut_short),
          TEST(a_roll_back_past_a_checkpoint_that_was_cut_short), TEST(a_load_that_failed),
          TEST(what_gives_images_up), TEST(images_are_bounded))
