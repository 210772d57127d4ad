// A shard's rows as a whole: lists of keys, rows that end or move to another shard, and what files
// of all rows and of changes say of them.
#include "tests/support/shard_case.h"

#include <stdio.h>

#include "ps_lite/ps_model_file.h"
#include "runtime/files/rt_file.h"
#include "runtime/rt_hash.h"

#define SCHEMA 42u

static ps_shard_config planned(fixture *f)
{
    ps_shard_config config = config_of(f);
    config.homes = RT_HOMES_PLANNED;
    config.names_left = true;
    return config;
}

// Key k in version k, for each of 1 to count.
static void push_many(fixture *f, uint32_t count)
{
    for (uint32_t key = 1; key <= count; key++) {
        accepted(f, 0, push_of(0, key, key, key, (float)key));
        drop_sent(f);
    }
}

static bool has(const fixture *f, uint64_t key)
{
    uint32_t version;
    return ps_shard_find(f->shard, key, &version) != NULL;
}

static rt_message forget_of(const rt_wire_pull *ones, uint32_t count)
{
    return message_of(0, RT_MESSAGE_FORGET, 9, count, ones, count * sizeof *ones);
}

// ---- lists -----------------------------------------------------------------------------------

static void keys_from_any_number_on(void **state)
{
    (void)state;
    enum { COUNT = 50 };
    fixture f;
    setup(&f);
    push_many(&f, COUNT);
    for (uint32_t from = 0; from <= COUNT + 1; from++) {
        for (uint32_t most = 1; most < 9; most++) {
            rt_wire_key keys[9];
            memset(keys, 0xee, sizeof keys);
            const uint32_t left = from < COUNT ? COUNT - from : 0, want = left < most ? left : most;
            assert_int_equal(ps_shard_keys(f.shard, from, most, keys), want);
            for (uint32_t i = 0; i < want; i++) {
                assert_int_equal(keys[i].key, from + i + 1);
                assert_int_equal(keys[i].version, from + i + 1);
                assert_int_equal(keys[i].reserved, 0);
            }
            assert_int_equal(keys[want].version, 0xeeeeeeee);
        }
    }
    teardown(&f);
}

static void files_that_a_shard_reads(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 4; bits++) {
        const bool now = bits & 1, before = bits & 2; // homes are, and were, planned
        for (uint32_t rank = 0; rank < 3; rank++) {
            fixture f;
            ps_shard_config config = now ? planned(&f) : config_of(&f);
            config.shard_count = 3;
            config.rank = rank;
            start(&f, &config);
            for (uint32_t count = 1; count <= 5; count++) {
                for (uint32_t file = 0; file < count; file++) {
                    bool want = true; // hashed anew: any file may have any key
                    if (now)          // its own, and those that nobody has any more
                        want = file == rank || file > 2;
                    else if (!before && count == 3)
                        want = file == rank;
                    assert_int_equal(ps_shard_wants_file(f.shard, file, count, before), want);
                }
            }
            teardown(&f);
        }
    }
}

// ---- rows that end ---------------------------------------------------------------------------

typedef struct {
    uint32_t calls, end_at;
} calls;

static rt_status note_call(void *context, int wait_fd, rt_error *error)
{
    calls *seen = context;
    assert_int_equal(wait_fd, -1);
    return ++seen->calls == seen->end_at ? rt_fail(error, RT_STOPPED, "enough") : RT_OK;
}

static void expired(fixture *f, uint32_t floor, uint64_t count)
{
    uint64_t ended = UINT64_MAX;
    rt_error error = {0};
    assert_int_equal(ps_shard_expire(f->shard, floor, NULL, NULL, &ended, &error), RT_OK);
    assert_int_equal(ended, count);
}

static void rows_below_a_floor_end(void **state)
{
    (void)state;
    fixture f;
    setup(&f);
    push_many(&f, 50);
    expired(&f, 20, 19);
    for (uint32_t key = 1; key <= 50; key++)
        assert_int_equal(has(&f, key), key >= 20);
    expired(&f, 20, 0);
    expired(&f, 7, 0);
    assert_true(ps_shard_forget(f.shard, 33));
    assert_false(ps_shard_forget(f.shard, 33));
    assert_false(ps_shard_forget(f.shard, 1000));
    assert_false(has(&f, 33));
    expired(&f, 51, 30);
    assert_int_equal(statistics_of(&f).rows, 0);
    assert_int_equal(statistics_of(&f).rows_ended, 50);
    teardown(&f);
}

static void not_expired(fixture *f, const char *text)
{
    uint64_t ended = 77;
    rt_error error = {0};
    const uint64_t rows = statistics_of(f).rows;
    assert_int_equal(ps_shard_expire(f->shard, 1000, NULL, NULL, &ended, &error), RT_WIRE);
    if (!strstr(error.text, text))
        fail_msg("\"%s\" lacks \"%s\"", error.text, text);
    assert_int_equal(statistics_of(f).rows, rows);
}

// A row that somebody waits for cannot end; once nobody does it can.
static void nothing_ends_while_somebody_waits(void **state)
{
    (void)state;
    fixture f;
    setup(&f);
    push_many(&f, 5);
    accepted(&f, 1, pull_of(1, RT_MESSAGE_PULL, 9, 3, 8, 0));
    not_expired(&f, "1 pulls and 0 gradients wait");
    accepted(&f, 0, push_of(0, 8, 3, 8, 1));
    accepted(&f, 0, grad_of(0, 9, 2, 3, 2, RT_WIRE_STEP, 1));
    not_expired(&f, "0 pulls and 1 gradients wait");
    accepted(&f, 1, grad_of(1, 9, 2, 3, 2, RT_WIRE_STEP, 1));
    expired(&f, 1000, 5);
    teardown(&f);

    ps_shard_config config = config_of(&f);
    config.adds_deltas = true;
    start(&f, &config);
    push_many(&f, 5);
    const struct {
        rt_wire_delta head;
        float floats[ROW];
    } delta = {.head = {.key = 3, .version = 9, .base = 8}};
    accepted(&f, 1,
             message_of(1, RT_MESSAGE_PUSH_DELTA, 1, 1, &delta,
                        sizeof delta.head + sizeof delta.floats));
    not_expired(&f, "wait for their rows");
    accepted(&f, 0, push_of(0, 8, 3, 8, 1));
    teardown(&f);

    start(&f, &config); // where deltas are taken, and none waits
    push_many(&f, 5);
    expired(&f, 1000, 5);
    teardown(&f);
}

// A large table takes a while: somebody else has a turn between parts of it, and may end it.
static void progress_is_made_while_rows_end(void **state)
{
    (void)state;
    enum { COUNT = 42000 }; // more than 5/8 of 2^16: an index of 2^17, two parts
    for (uint32_t end_at = 0; end_at < 2; end_at++) {
        fixture f;
        calls seen = {.end_at = end_at};
        uint64_t ended = 0;
        rt_error error = {0};
        ps_shard_config config = config_of(&f);
        config.memory_bytes_max = 1 << 24;
        start(&f, &config);
        push_many(&f, COUNT);
        assert_int_equal(ps_shard_expire(f.shard, COUNT + 1, note_call, &seen, &ended, &error),
                         end_at ? RT_STOPPED : RT_OK);
        assert_int_equal(seen.calls, 1);
        assert_true(end_at ? ended > 0 && ended < COUNT : ended == COUNT);
        assert_int_equal(statistics_of(&f).rows, COUNT - ended);
        assert_int_equal(statistics_of(&f).rows_ended, ended);
        teardown(&f);
    }
}

// ---- files -----------------------------------------------------------------------------------

static void save(const fixture *f, const char *name, const ps_cut *cut)
{
    rt_error error = {0};
    rt_file_place place = {.path = test_path(name)};
    const rt_sink sink = rt_file_sink(&place);
    if (ps_shard_save(f->shard, &sink, SCHEMA, cut, NULL, NULL, NULL, &error))
        fail_msg("%s", error.text);
}

static void load(fixture *f, const char *name)
{
    rt_error error = {0};
    if (ps_shard_load(f->shard, test_path(name), SCHEMA, NULL, NULL, NULL, &error))
        fail_msg("%s", error.text);
}

// What a file says; keys and versions in its order, which ends with key 0.
static ps_model_info read_file(const char *name, uint64_t *keys, uint32_t *versions)
{
    ps_model_info info;
    ps_model_reader *reader;
    const float *row;
    uint32_t i = 0;
    assert_int_equal(ps_model_reader_open(test_path(name), NULL, NULL, &info, &reader, NULL),
                     RT_OK);
    while (ps_model_reader_next(reader, &keys[i], &versions[i], &row, NULL) == RT_OK) {
        for (uint32_t k = 0; versions[i] == 0 && k < ROW; k++)
            assert_true(row[k] == 0);
        i++;
    }
    assert_int_equal(i, info.row_count);
    keys[i] = 0;
    ps_model_reader_close(reader);
    return info;
}

static void cut_at(fixture *f, const char *name, uint32_t iteration, uint32_t base)
{
    const ps_cut cut = {iteration, base};
    save(f, name, &cut);
    ps_shard_cut(f->shard, iteration, base, base);
}

// Files of changes say below which version rows of older files have ended; files of all rows have
// nothing to say of older ones. Who loads both has what the shard had.
static void files_of_changes_know_the_floor(void **state)
{
    (void)state;
    fixture f, g;
    uint64_t keys[64];
    uint32_t versions[64];
    setup(&f);
    push_many(&f, 30);
    cut_at(&f, "all", 30, 0);
    expired(&f, 12, 11);
    expired(&f, 5, 0); // the floor stays where it was
    accepted(&f, 0, push_of(0, 40, 20, 40, 1));
    cut_at(&f, "changes", 40, 30);
    cut_at(&f, "later", 41, 0);
    ps_model_info info = read_file("changes", keys, versions);
    assert_true(info.floor == 12 && info.iteration == 40 && info.base == 30);
    assert_true(info.row_count == 1 && keys[0] == 20 && versions[0] == 40);
    info = read_file("later", keys, versions);
    assert_true(info.floor == 0 && info.iteration == 41 && info.base == 0 && info.row_count == 19);
    save(&f, "model", NULL);
    info = read_file("model", keys, versions);
    assert_true(info.floor == 0 && info.iteration == 0 && info.row_count == 19);

    setup(&g);
    load(&g, "all");
    assert_int_equal(statistics_of(&g).rows, 30);
    load(&g, "changes");
    assert_int_equal(statistics_of(&g).rows, 19);
    for (uint32_t key = 12; key <= 30; key++)
        expect_row(&g, key, key == 20 ? 40 : key, key == 20 ? 1 : (float)key);
    cut_at(&g, "again", 50, 45); // it goes on where the other one was
    assert_int_equal(read_file("again", keys, versions).floor, 12);
    ps_shard_begin_with(g.shard);
    for (uint32_t key = 12; key <= 30; key++)
        expect_row(&g, key, 0, key == 20 ? 1 : (float)key);
    cut_at(&g, "begun", 50, 45);
    assert_int_equal(read_file("begun", keys, versions).floor, 0);
    expired(&g, 1, 19);
    assert_int_equal(ps_shard_clear(g.shard), RT_OK);
    cut_at(&g, "empty", 50, 45);
    assert_int_equal(read_file("empty", keys, versions).floor, 0);
    teardown(&g);
    teardown(&f);
}

// ---- rows that move --------------------------------------------------------------------------

static void a_row_is_given_up_to_a_version(void **state)
{
    (void)state;
    const rt_wire_pull ones[] = {{1, 1, 0}, {2, 1, 0}, {3, 9, 0}, {99, 9, 0}, {5, 5, 0}};
    fixture f;
    ps_shard_config config = planned(&f);
    start(&f, &config);
    push_many(&f, 5);
    accepted(&f, 0, forget_of(ones, 5));
    assert_true(!has(&f, 1) && has(&f, 2) && !has(&f, 3) && has(&f, 4) && !has(&f, 5));
    assert_int_equal(statistics_of(&f).rows_forgotten, 3);
    flush(&f);
    assert_int_equal(count_sent(&f, RT_MESSAGE_PUSHED), 1);
    assert_int_equal(rt_message_header(&f.sent[0])->iteration, 9);
    teardown(&f);
}

static void refused(fixture *f, const rt_wire_pull *ones, uint32_t count, const char *text)
{
    rt_error error = {0};
    const ps_shard_statistics before = statistics_of(f);
    assert_int_equal(receive(f, 0, forget_of(ones, count), &error), RT_WIRE);
    if (!strstr(error.text, text))
        fail_msg("\"%s\" lacks \"%s\"", error.text, text);
    const ps_shard_statistics after = statistics_of(f);
    assert_memory_equal(&before, &after, sizeof before);
}

static void what_cannot_be_given_up(void **state)
{
    (void)state;
    const rt_wire_pull good = {1, 1, 0}, no_version = {2, 0, 0}, tag = {3, 1, 4};
    const rt_wire_pull last[] = {good, no_version}, first[] = {tag, good};
    fixture f;
    ps_shard_config config = planned(&f);
    start(&f, &config);
    push_many(&f, 5);
    refused(&f, last, 2, "key 0000000000000002, version 0, tag 0");
    refused(&f, first, 2, "key 0000000000000003, version 1, tag 4");
    teardown(&f);
    setup(&f);
    push_many(&f, 5);
    refused(&f, &good, 1, "homes of rows are hashed");
    teardown(&f);
}

static void give_up(fixture *f, uint64_t key)
{
    const rt_wire_pull one = {key, 1000, 0};
    accepted(f, 0, forget_of(&one, 1));
    drop_sent(f);
}

static void names(const char *file, const uint64_t *want, uint32_t count)
{
    uint64_t keys[64];
    uint32_t versions[64], found = 0;
    const ps_model_info info = read_file(file, keys, versions);
    assert_int_equal(info.left_count, count);
    for (uint32_t i = 0; i < info.row_count; i++) {
        assert_true(i == 0 || keys[i] > keys[i - 1]);
        if (versions[i] == 0)
            assert_true(found < count && keys[i] == want[found++]);
    }
    assert_int_equal(found, count);
}

// A file of changes names what has left since the file that it builds on was cut, in the order of
// keys, each once, and nothing that is back. Who loads both has the rows that the shard has.
static void files_of_changes_name_what_left(void **state)
{
    (void)state;
    fixture f, g;
    ps_shard_config config = planned(&f);
    start(&f, &config);
    push_many(&f, 30);
    give_up(&f, 30); // before the first file: it does not have the row
    cut_at(&f, "all", 30, 0);
    give_up(&f, 9);
    give_up(&f, 4);
    give_up(&f, 17);
    accepted(&f, 0, push_of(0, 33, 4, 33, 5)); // it is back
    accepted(&f, 0, push_of(0, 34, 9, 34, 5)); // and away again
    give_up(&f, 9);
    cut_at(&f, "one", 40, 30);
    names("one", (const uint64_t[]){9, 17}, 2);
    give_up(&f, 2);
    const ps_cut longer = {50, 30}; // should the one of 40 never come to its end
    save(&f, "both", &longer);
    names("both", (const uint64_t[]){2, 9, 17}, 3);
    cut_at(&f, "two", 50, 40);
    names("two", (const uint64_t[]){2}, 1);
    cut_at(&f, "whole", 50, 0);
    names("whole", NULL, 0);

    ps_shard_config other = planned(&g);
    start(&g, &other);
    load(&g, "all");
    load(&g, "one");
    load(&g, "two");
    for (uint32_t key = 1; key <= 30; key++) {
        assert_int_equal(has(&g, key), has(&f, key));
        assert_int_equal(has(&g, key), key != 2 && key != 9 && key != 17 && key != 30);
    }
    expect_row(&g, 4, 33, 5);
    teardown(&g);

    give_up(&f, 3);
    assert_int_equal(ps_shard_clear(f.shard), RT_OK);
    cut_at(&f, "cleared", 60, 50);
    names("cleared", NULL, 0);
    teardown(&f);

    config.names_left = false; // no file of changes comes
    start(&f, &config);
    push_many(&f, 5);
    give_up(&f, 3);
    cut_at(&f, "unnamed", 60, 1);
    names("unnamed", NULL, 0);
    teardown(&f);
}

// What a cut's changes do not build on any more is not kept: a later cut with an earlier base lacks
// it.
static void what_left_long_ago_is_dropped(void **state)
{
    (void)state;
    fixture f;
    ps_shard_config config = planned(&f);
    start(&f, &config);
    push_many(&f, 9);
    ps_shard_cut(f.shard, 10, 0, 0);
    give_up(&f, 1);
    ps_shard_cut(f.shard, 20, 10, 10);
    give_up(&f, 2);
    ps_shard_cut(f.shard, 30, 20, 20); // those since 10 are of no use any more, those since 20 are
    give_up(&f, 3);
    const ps_cut since[] = {{40, 10}, {40, 20}, {40, 21}, {40, 30}, {40, 31}};
    const uint64_t left[] = {2, 3};
    const uint32_t first[] = {0, 0, 1, 1, 2};
    for (uint32_t i = 0; i < 5; i++) {
        save(&f, "since", &since[i]);
        names("since", left + first[i], 2 - first[i]);
    }
    teardown(&f);
}

// Of a shard that is gone, rows are dealt out by hash; what its changes say has left, and what came
// to us meanwhile, stays here. Rows of a shard that is there are its own.
static void files_of_shards_that_are_gone(void **state)
{
    (void)state;
    fixture f, g;
    ps_shard_config config = planned(&f);
    config.shard_count = 2;
    config.rank = 1;
    start(&f, &config);
    push_many(&f, 20);
    cut_at(&f, "all", 20, 0);
    give_up(&f, 6);
    give_up(&f, 7);
    cut_at(&f, "changes", 30, 20);
    teardown(&f);

    ps_shard_config other = planned(&g);
    start(&g, &other); // the only one now
    accepted(&g, 0, push_of(0, 25, 40, 25, 3));
    load(&g, "all");
    accepted(&g, 0, push_of(0, 21, 7, 21, 3)); // since, with a file of its own
    load(&g, "changes");
    assert_false(has(&g, 6));
    expect_row(&g, 7, 21, 3);
    expect_row(&g, 5, 5, 5);
    assert_int_equal(statistics_of(&g).rows, 20);
    teardown(&g);

    other.shard_count = 2; // the other one of two
    start(&g, &other);
    load(&g, "all");
    assert_int_equal(statistics_of(&g).rows, 0);
    teardown(&g);
    uint64_t rows = 0;
    config.shard_count = 3;
    for (uint32_t rank = 0; rank < 3; rank++) { // that has its file, and those that have not
        config.rank = rank;
        start(&g, &config);
        load(&g, "all");
        rows += statistics_of(&g).rows;
        assert_int_equal(statistics_of(&g).rows, rank == 1 ? 20 : 0);
        teardown(&g);
    }
    assert_int_equal(rows, 20);
}

TEST_MAIN(TEST(keys_from_any_number_on), TEST(files_that_a_shard_reads),
          TEST(rows_below_a_floor_end), TEST(nothing_ends_while_somebody_waits),
          TEST(progress_is_made_while_rows_end), TEST(files_of_changes_know_the_floor),
          TEST(a_row_is_given_up_to_a_version), TEST(what_cannot_be_given_up),
          TEST(files_of_changes_name_what_left), TEST(what_left_long_ago_is_dropped),
          TEST(files_of_shards_that_are_gone))
