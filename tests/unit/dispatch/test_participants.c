// Who should train: from the first batch on, after a link dropped and recovered; when it is time to
// search, and what goes on from a state.
#include "dispatch/planner/dp_participants.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "dispatch/planner/dp_choice.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/fields_case.h"
#include "tests/support/random_batches.h"
#include "tests/support/test.h"

#define WORKERS 4u
#define SAMPLES 32u
#define FIELDS 4u
#define FAST 1e8
#define DENSE 1000000u // bytes: 10 ms on a fast link, 100 ms on a slow one

typedef struct {
    dp_planner_config config;
    dp_participants *chooser;
    random_batches batches;
    rt_batch batch;
    uint64_t rows; // of all shards
} scene;

static void open_scene(scene *s, uint32_t worker_count, uint32_t slots)
{
    *s = (scene){.config = {.worker_count = worker_count,
                            .sample_count_max = SAMPLES,
                            .keys_per_sample_max = FIELDS,
                            .layout.field_count = FIELDS,
                            .dense_bytes = DENSE,
                            .participants_min = 1,
                            .dispatch = {.policy = RT_POLICY_ESD, .alpha = 1}}};
    for (uint32_t f = 0; f < FIELDS; f++)
        s->config.layout.values[f] = 16;
    for (uint32_t w = 0; w < worker_count; w++) {
        s->config.slot_count[w] = slots;
        s->config.rates.links[w] = (dp_link){FAST, FAST};
        s->config.rates.compute_s_per_sample[w] = 0.0015; // 48 ms of one, 12 ms of four
    }
    assert_int_equal(dp_participants_create(&s->config, &s->chooser), RT_OK);
    random_batches_init(&s->batches, 7, FIELDS, 50, 1, 1.0);
    rt_batch_init(&s->batch, 0);
}

static void close_scene(scene *s)
{
    dp_participants_destroy(s->chooser);
    random_batches_fini(&s->batches);
    rt_batch_fini(&s->batch);
}

// One iteration: the set that trains it.
static uint64_t next(scene *s, uint64_t current)
{
    dp_input records[RT_WORKERS_MAX];
    uint32_t count;
    random_batches_fill(&s->batches, &s->batch, SAMPLES);
    assert_int_equal(dp_participants_next(s->chooser, &s->batch, current, s->rows, records, &count),
                     RT_OK);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(records[i].kind, DP_INPUT_PARTICIPATES);
        assert_int_equal(records[i].value, !(current >> records[i].worker & 1));
        current ^= rt_bit(records[i].worker);
    }
    return current;
}

static uint64_t run(scene *s, uint32_t iterations, uint64_t current)
{
    for (uint32_t i = 0; i < iterations; i++)
        current = next(s, current);
    return current;
}

static void tell_link(scene *s, uint32_t worker, double rate)
{
    for (uint32_t way = 0; way < 2; way++) {
        const dp_input input = {
            .kind = way ? DP_INPUT_LINK_DOWN : DP_INPUT_LINK_UP, .worker = worker, .value = rate};
        dp_participants_apply(s->chooser, &input);
    }
}

// Who is far too slow trains nothing, not even the first batch; nobody has planned for that.
static void the_first_batch_is_trained_by_the_right_ones(void **state)
{
    (void)state;
    scene s;
    open_scene(&s, WORKERS, SAMPLES * FIELDS);
    tell_link(&s, 2, FAST / 10);
    random_batches_fill(&s.batches, &s.batch, 3); // this says nothing yet
    dp_input records[RT_WORKERS_MAX];
    uint32_t count;
    assert_int_equal(dp_participants_next(s.chooser, &s.batch, 15, 0, records, &count), RT_OK);
    assert_int_equal(count, 0);
    assert_int_equal(next(&s, 15), 11);
    assert_false(dp_participants_searches(s.chooser));
    close_scene(&s);
}

static void a_link_that_drops_and_recovers(void **state)
{
    (void)state;
    scene s;
    open_scene(&s, WORKERS, SAMPLES * FIELDS);
    assert_int_equal(run(&s, DP_PARTICIPANTS_FIRST - 1, 15), 15); // computing is slow
    assert_false(dp_participants_searches(s.chooser));
    assert_int_equal(next(&s, 15), 15);
    assert_true(dp_participants_searches(s.chooser));
    assert_int_equal(next(&s, 15), 15);
    tell_link(&s, 2, FAST / 10); // its dense exchange alone is 100 ms
    assert_int_equal(next(&s, 15), 11);
    assert_false(dp_participants_searches(s.chooser)); // it was about another link
    tell_link(&s, 2, FAST * 0.95);
    assert_int_equal(run(&s, DP_PARTICIPANTS_GAP - 1, 11), 11); // so soon after the last
    assert_int_equal(next(&s, 11), 15);
    assert_int_equal(run(&s, 2 * DP_PARTICIPANTS_GAP, 15), 15);
    assert_true(dp_participants_searches(s.chooser));
    assert_int_equal(run(&s, 4000, 15), 15); // until searches are rare
    assert_false(dp_participants_searches(s.chooser));
    tell_link(&s, 2, FAST); // by less than a tenth
    assert_int_equal(run(&s, DP_RECENT_MAX, 15), 15);
    assert_false(dp_participants_searches(s.chooser));
    tell_link(&s, 2, FAST * 0.8); // a little: the batches are other ones by now
    assert_int_equal(next(&s, 15), 15);
    assert_true(dp_participants_searches(s.chooser));
    close_scene(&s);
}

// Every worker on a box with a shard for 200 rows; rows are long, and computing is nothing.
static void open_site(scene *s)
{
    open_scene(s, WORKERS, SAMPLES * FIELDS);
    dp_participants_destroy(s->chooser);
    s->config.homes = RT_HOMES_PLANNED;
    s->config.shard_rows_max = 200;
    s->config.boxes = (dp_boxes){.count = WORKERS, .worker_count = WORKERS};
    s->config.rates.shards = (dp_shards){WORKERS, WORKERS, {0}};
    s->config.dense_bytes = DENSE / 100;
    for (uint32_t w = 0; w < WORKERS; w++) {
        s->config.boxes.of_worker[w] = s->config.boxes.of_shard[w] = (uint8_t)w;
        s->config.boxes.given[w] = (dp_link){FAST, FAST};
        s->config.rates.compute_s_per_sample[w] = 0;
        s->config.layout.values[w % FIELDS] = 2048;
    }
    assert_int_equal(dp_participants_create(&s->config, &s->chooser), RT_OK);
}

// A box alone moves no row while its shard has room for all of them; then it shares them with
// others, as soon as that is known, and what is searched agrees. Also from a state.
static void rows_that_one_box_cannot_hold(void **state)
{
    (void)state;
    scene s, other;
    rt_bytes bytes = {0};
    rt_error error = {0};
    open_site(&s);
    s.rows = 200;
    assert_int_equal(next(&s, 15), 1);
    assert_int_equal(run(&s, 150, 1), 1);
    s.rows = 1000;
    const uint64_t several = next(&s, 1);
    assert_true(rt_bits_many(several));
    assert_true(rt_bits_many(run(&s, 20, several)));
    assert_true(dp_participants_searches(s.chooser));
    dp_participants_save(s.chooser, &bytes);
    rt_reader reader = rt_bytes_reader(&bytes);
    open_site(&other);
    assert_int_equal(dp_participants_load(other.chooser, &s.config.rates, &reader, &error), RT_OK);
    other.rows = s.rows;
    for (uint32_t i = 0; i < 172; i++) // the stream goes on
        random_batches_fill(&other.batches, &other.batch, SAMPLES);
    uint64_t current = several;
    for (uint32_t i = 0; i < 300; i++) {
        const uint64_t workers = next(&s, current);
        assert_int_equal(next(&other, current), workers);
        current = workers;
    }
    assert_true(rt_bits_many(current));
    s.rows = 200; // they have ended
    assert_int_equal(run(&s, 2000, current), 1);
    rt_bytes_fini(&bytes);
    close_scene(&s);
    close_scene(&other);
}

// Searches begin at a batch and three times as many later, and end.
static void searches_become_rare(void **state)
{
    (void)state;
    scene s;
    uint32_t begins = 0, units = 0;
    bool before = false;
    open_scene(&s, WORKERS, SAMPLES * FIELDS);
    for (uint32_t t = 0; t < 20000; t++) {
        assert_int_equal(next(&s, 15), 15);
        begins += dp_participants_searches(s.chooser) && !before;
        before = dp_participants_searches(s.chooser);
        units += before;
    }
    assert_true(begins >= 3 && begins <= 8);
    assert_true(units < 10000);
    close_scene(&s);
}

// What a search has found so far changes nothing: another set comes when all are compared.
static void a_set_changes_when_a_search_is_over(void **state)
{
    (void)state;
    scene s;
    uint32_t units = 0;
    open_scene(&s, WORKERS, SAMPLES * FIELDS);
    dp_participants_destroy(s.chooser);
    for (uint32_t w = 0; w < WORKERS; w++)
        s.config.rates.compute_s_per_sample[w] = 0.0005; // 16 ms of one, 4 ms of four
    assert_int_equal(dp_participants_create(&s.config, &s.chooser), RT_OK);
    assert_int_equal(run(&s, 4000, 15), 15); // until searches are rare
    assert_false(dp_participants_searches(s.chooser));
    tell_link(&s, 2, FAST * 0.75); // too little for an estimate; without it a tenth is saved
    uint64_t current = next(&s, 15);
    assert_true(dp_participants_searches(s.chooser));
    for (; current == 15 && units < 2000; units++)
        current = next(&s, current);
    assert_int_equal(current, 11);
    assert_false(dp_participants_searches(s.chooser));
    assert_true(units > 3);
    close_scene(&s);
}

// One made from the bytes of another goes on as that does: with the same sets in the same
// iterations, also from the middle of a search, before and after its batches stand still.
static void a_state_goes_on(void **state)
{
    (void)state;
    uint32_t searching = 0, changes = 0;
    for (uint32_t seen = 1; seen < 90; seen += 1 + seen / 12) {
        scene one, other;
        rt_bytes bytes = {0}, again = {0};
        rt_error error = {0};
        open_scene(&one, WORKERS, SAMPLES * FIELDS);
        open_scene(&other, WORKERS, SAMPLES * FIELDS);
        uint64_t current = 15;
        for (uint32_t k = 0; k < seen; k++) {
            if (seen > 20 && k + 2 == seen) // so soon that nothing follows yet
                tell_link(&one, 2, FAST / 1.5);
            current = next(&one, current);
            random_batches_fill(&other.batches, &other.batch, SAMPLES); // the stream goes on
        }
        searching += dp_participants_searches(one.chooser);
        dp_participants_save(one.chooser, &bytes);
        dp_rates rates = one.config.rates;
        if (seen > 20)
            rates.links[2] = (dp_link){FAST / 1.5, FAST / 1.5};
        rt_reader reader = rt_bytes_reader(&bytes);
        if (dp_participants_load(other.chooser, &rates, &reader, &error))
            fail_msg("%s", error.text);
        assert_int_equal(reader.left, 0);
        dp_participants_save(other.chooser, &again);
        assert_int_equal(bytes.size, again.size);
        assert_memory_equal(bytes.data, again.data, bytes.size);
        for (uint32_t k = 0; k < 120; k++) {
            if (k == 60) {
                tell_link(&one, 1, FAST / 20);
                tell_link(&other, 1, FAST / 20);
            }
            const uint64_t workers = next(&one, current);
            assert_int_equal(next(&other, current), workers);
            assert_int_equal(dp_participants_searches(one.chooser),
                             dp_participants_searches(other.chooser));
            changes += workers != current;
            current = workers;
        }
        rt_bytes_fini(&bytes);
        rt_bytes_fini(&again);
        close_scene(&one);
        close_scene(&other);
    }
    assert_true(searching > 5 && changes > 10);
}

// Cut short anywhere, or with any byte changed, it is refused or harmless.
static void damaged_states(void **state)
{
    (void)state;
    scene one;
    rt_bytes bytes = {0};
    open_scene(&one, WORKERS, SAMPLES * FIELDS);
    run(&one, DP_PARTICIPANTS_FIRST + 11, 15);
    assert_true(dp_participants_searches(one.chooser));
    dp_participants_save(one.chooser, &bytes);
    const size_t head = 200, tail = bytes.size - 2000; // between them, batches
    for (size_t at = 0; at<bytes.size; at += at> head && at < tail ? 997 : 3) {
        rt_error error = {0};
        for (uint32_t flip = 0; flip < 2; flip++) {
            scene other;
            open_scene(&other, WORKERS, SAMPLES * FIELDS);
            rt_reader reader = rt_bytes_reader(&bytes);
            reader.left = flip ? bytes.size : at;
            bytes.data[at] ^= flip ? 0x80 : 0;
            rt_status status =
                dp_participants_load(other.chooser, &one.config.rates, &reader, &error);
            bytes.data[at] ^= flip ? 0x80 : 0;
            assert_true(status == RT_DATA || (flip && !status));
            (void)run(&other, DP_PARTICIPANTS_FIRST + 2, 15);
            close_scene(&other);
        }
    }
    rt_bytes_fini(&bytes);
    close_scene(&one);
}

// Where the parts of a state are.
typedef struct {
    rt_bytes bytes;
    size_t choice, tried; // the search; what it tried, and how often
    uint64_t recent, tried_count;
} saved;

static uint64_t number_at(const saved *s, size_t at)
{
    uint64_t number;
    memcpy(&number, s->bytes.data + at, sizeof number);
    return number;
}

static void save_search(scene *one, saved *s)
{
    const uint32_t rates = 3 * WORKERS + 1 + RT_SHARDS_MAX; // links, computing; parameter servers
    *s = (saved){0};
    rt_bytes described = {0};
    dp_participants_save(one->chooser, &described);
    fields_plain(&described, &s->bytes); // which is read, too
    rt_bytes_fini(&described);
    size_t at = 7 * 8;
    s->recent = number_at(s, at);
    at += 8;
    for (uint64_t i = 0; i < s->recent; i++)
        at += 16 + (number_at(s, at) + 1) * 4 + number_at(s, at + 8) * 8;
    s->choice = at;
    s->tried = at + (4 + rates) * 8;
    s->tried_count = number_at(s, s->tried);
    assert_int_equal(s->bytes.size, s->tried + 8 + s->tried_count * sizeof(dp_candidate) + 16);
}

static rt_status load_with(scene *one, saved *s, size_t at, const void *value)
{
    scene other;
    uint8_t kept[8];
    rt_error error = {0};
    open_scene(&other, WORKERS, SAMPLES * FIELDS);
    memcpy(kept, s->bytes.data + at, 8);
    memcpy(s->bytes.data + at, value, 8);
    rt_reader reader = rt_bytes_reader(&s->bytes);
    const rt_status status =
        dp_participants_load(other.chooser, &one->config.rates, &reader, &error);
    memcpy(s->bytes.data + at, kept, 8);
    assert_true(!status || strstr(error.text, "participants: "));
    close_scene(&other);
    return status;
}

static void must_refuse(scene *one, saved *s, size_t at, uint64_t value)
{
    if (load_with(one, s, at, &value) != RT_DATA)
        fail_msg("%" PRIx64 " at %zu is taken", value, at);
}

static void must_refuse_double(scene *one, saved *s, size_t at, double value)
{
    if (load_with(one, s, at, &value) != RT_DATA)
        fail_msg("%g at %zu is taken", value, at);
}

static void must_refuse_share(scene *one, saved *s, size_t at)
{
    static const double bad[] = {0, -1, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < RT_COUNT_OF(bad); i++)
        must_refuse_double(one, s, at, bad[i]);
}

// Value by value; all others are as they were.
static void values_that_no_state_has(void **state)
{
    (void)state;
    scene one;
    saved s;
    open_scene(&one, WORKERS, SAMPLES * FIELDS);
    run(&one, DP_PARTICIPANTS_FIRST + 11, 15);
    save_search(&one, &s);
    while (dp_participants_searches(one.chooser) && s.tried_count == 0) { // until one is over
        rt_bytes_fini(&s.bytes);
        run(&one, 1, 15);
        if (dp_participants_searches(one.chooser))
            save_search(&one, &s);
    }
    assert_true(dp_participants_searches(one.chooser));
    const uint64_t seen = number_at(&s, 8), layout = number_at(&s, 0);
    must_refuse(&one, &s, 0, layout + (UINT64_C(1) << 56));
    must_refuse(&one, &s, 8, UINT64_C(1) << 32);
    must_refuse(&one, &s, 16, seen + 1); // the last estimate, the last search
    must_refuse(&one, &s, 24, seen + 1);
    must_refuse(&one, &s, 32, 3);
    must_refuse(&one, &s, 40, 2);
    must_refuse_share(&one, &s, 48);
    must_refuse(&one, &s, 56, s.recent + 1);
    must_refuse(&one, &s, s.choice, 2);
    must_refuse(&one, &s, s.choice + 8, 0); // workers
    must_refuse(&one, &s, s.choice + 8, 15 | rt_bit(WORKERS));
    must_refuse_share(&one, &s, s.choice + 16);
    must_refuse(&one, &s, s.choice + 24, 1); // batches
    must_refuse(&one, &s, s.choice + 24, s.recent + 1);
    for (uint32_t rate = 0; rate < 2 * WORKERS; rate++)
        must_refuse_double(&one, &s, s.choice + 32 + 8 * rate, 0);
    for (size_t at = s.choice + 32; at < s.tried; at += 8)
        must_refuse_double(&one, &s, at, -1);
    must_refuse(&one, &s, s.tried, WORKERS + 1);
    assert_true(s.tried_count > 0);
    for (uint64_t i = 0; i < s.tried_count; i++) {
        const size_t at = s.tried + 8 + i * sizeof(dp_candidate);
        must_refuse(&one, &s, at + offsetof(dp_candidate, workers), 0);
        must_refuse(&one, &s, at + offsetof(dp_candidate, workers), rt_bit(WORKERS));
        must_refuse_double(&one, &s, at + offsetof(dp_candidate, predicted_s), 0);
        must_refuse_double(&one, &s, at + offsetof(dp_candidate, moved), -1e-9);
    }
    const uint64_t workers = number_at(&s, s.bytes.size - 16);
    must_refuse(&one, &s, s.bytes.size - 16, workers ^ 1);
    must_refuse(&one, &s, s.bytes.size - 8, 1u << 20); // parts of a trial
    assert_int_equal(load_with(&one, &s, 8, s.bytes.data + 8), RT_OK);
    rt_bytes_fini(&s.bytes);
    close_scene(&one);
}

// Another set every few iterations, by the seed alone, never fewer than may be; from a state, too.
static void sets_rotate(void **state)
{
    (void)state;
    scene s;
    uint64_t current = 15, sets = 0, last = 0;
    rt_error error = {0};
    open_scene(&s, WORKERS, SAMPLES * FIELDS);
    dp_participants_destroy(s.chooser);
    s.config.dispatch.participants = RT_PARTICIPANTS_ROTATE;
    s.config.participants_min = 2;
    assert_int_equal(dp_participants_open(&s.config, NULL, NULL, &s.chooser, &error), RT_OK);
    for (uint32_t t = 0; t < 60; t++) {
        if (t == 31) {
            rt_bytes bytes = {0};
            dp_participants_save(s.chooser, &bytes);
            dp_participants_destroy(s.chooser);
            assert_int_equal(
                dp_participants_open(&s.config, &bytes, &s.config.rates, &s.chooser, &error),
                RT_OK);
            rt_bytes_fini(&bytes);
        }
        current = next(&s, current);
        assert_true(current == last || t % DP_PARTICIPANTS_TURN == 0 || t == 0);
        assert_true(rt_bit_count(current) >= 2 && current < 16);
        sets += current != last;
        last = current;
    }
    assert_true(sets > 10);
    s.config.dispatch.participants = RT_PARTICIPANTS_ALL;
    dp_participants *none;
    assert_int_equal(dp_participants_open(&s.config, NULL, NULL, &none, &error), RT_OK);
    assert_null(none);
    close_scene(&s);
}

static void tell_lost(scene *s, uint32_t worker)
{
    const dp_input input = {.kind = DP_INPUT_LOST, .worker = worker, .value = 1};
    dp_participants_apply(s->chooser, &input);
}

// However good its link becomes; a search that may have found it best is ended.
static void who_is_lost_is_not_chosen(void **state)
{
    (void)state;
    scene s;
    open_scene(&s, WORKERS, SAMPLES * FIELDS);
    tell_link(&s, 2, FAST / 10);
    assert_int_equal(next(&s, 15), 11);
    assert_int_equal(run(&s, DP_PARTICIPANTS_GAP - 2, 11), 11);
    tell_link(&s, 2, FAST);
    tell_lost(&s, 2);
    assert_int_equal(run(&s, 400, 11), 11);
    close_scene(&s);

    open_scene(&s, WORKERS, SAMPLES * FIELDS);
    tell_link(&s, 2, FAST / 10);
    assert_int_equal(run(&s, DP_PARTICIPANTS_FIRST + 1, 15), 11);
    assert_true(dp_participants_searches(s.chooser));
    tell_lost(&s, 2);
    assert_false(dp_participants_searches(s.chooser));
    assert_int_equal(run(&s, 400, 11), 11);
    close_scene(&s);

    open_scene(&s, WORKERS, SAMPLES * FIELDS);
    dp_participants_destroy(s.chooser);
    s.config.dispatch.participants = RT_PARTICIPANTS_ROTATE;
    s.config.participants_min = 3;
    assert_int_equal(dp_participants_open(&s.config, NULL, NULL, &s.chooser, NULL), RT_OK);
    tell_lost(&s, 1);
    for (uint32_t t = 0; t < 60; t++)
        assert_int_equal(next(&s, 13), 13); // the only set that is large enough
    close_scene(&s);
}

TEST_MAIN(TEST(the_first_batch_is_trained_by_the_right_ones), TEST(who_is_lost_is_not_chosen),
          TEST(a_link_that_drops_and_recovers), TEST(rows_that_one_box_cannot_hold),
          TEST(searches_become_rare), TEST(a_set_changes_when_a_search_is_over),
          TEST(a_state_goes_on), TEST(damaged_states), TEST(values_that_no_state_has),
          TEST(sets_rotate))
