// Who sums a row's gradients, against the header's words: transfers as a plain list, and every way
// tried.
#include <string.h>

#include "dispatch/planner/dp_reduce.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define WORKERS 4u
#define PS WORKERS // a link of its own
#define FIELDS 2u
#define ROWS 24u
#define CASES 400u
#define TRANSFERS_MAX 1024u

typedef struct {
    uint32_t link;
    bool up;
    int64_t ticks;
} transfer;

typedef struct {
    dp_planner planner;
    dp_record records[ROWS];
    dp_distinct distinct[ROWS];
    uint64_t trainers[ROWS];
    uint8_t summers[ROWS];
    transfer all[TRANSFERS_MAX];
    uint32_t count;
    uint32_t by_worker, by_ps; // rows that are summed there
} scene;

// Every other row is dirty on its only holder, others are clean copies, on several workers, or new.
static void draw(scene *s, uint32_t number)
{
    rt_random random = {number + 1};
    dp_ticks *ticks = &s->planner.ticks;
    memset(s, 0, sizeof *s);
    s->planner.config.worker_count = ticks->worker_count = WORKERS;
    s->planner.config.dispatch.first_touch =
        number % 2 ? RT_FIRST_TOUCH_PULL : RT_FIRST_TOUCH_LOCAL;
    s->planner.participants = number % 3 ? 0xf : 0xd;
    s->planner.directory.records = s->records;
    s->planner.view.distinct_count = ROWS;
    for (uint32_t j = 0; j < WORKERS; j++) {
        const int32_t slow = 1 + (int32_t)rt_random_below(&random, 9);
        for (uint32_t f = 0; f < FIELDS; f++) {
            ticks->pull[f][j] = slow * (10 + (int32_t)rt_random_below(&random, 30));
            ticks->push[f][j] = slow * (10 + (int32_t)rt_random_below(&random, 30));
            ticks->grad[f][j] = slow * (5 + (int32_t)rt_random_below(&random, 25));
        }
        ticks->dense_up[j] = rt_random_below(&random, 200);
        ticks->dense_down[j] = rt_random_below(&random, 200);
    }
    for (uint32_t f = 0; f < FIELDS; f++) {
        ticks->ps_row[f] = (int32_t)rt_random_below(&random, 90);
        ticks->ps_grad[f] = (int32_t)rt_random_below(&random, 90);
    }
    ticks->ps_limit_count = 1;
    ticks->ps_limits[0].dense = rt_random_below(&random, 500);
    for (uint32_t d = 0; d < ROWS; d++) {
        const uint32_t r = (d * 7 + 3) % ROWS; // records stand in another order
        dp_record *record = &s->records[r];
        record->key = rt_key(d % FIELDS, d);
        record->version = rt_random_below(&random, 4) ? 5 : 0;
        record->version_ps = record->version && rt_random_below(&random, 2) ? 3 : record->version;
        if (record->version)
            record->copies.holders = record->version_ps < record->version
                                         ? rt_bit(rt_random_below(&random, WORKERS))
                                         : rt_random_below(&random, 1u << WORKERS);
        s->distinct[d] = (dp_distinct){.key = record->key, .record = r};
        s->trainers[d] = (1 + rt_random_below(&random, 15)) & s->planner.participants;
    }
    s->planner.work =
        (dp_work){.distinct = s->distinct, .trainers = s->trainers, .summers = s->summers};
    memset(s->summers, DP_NO_WORKER, sizeof s->summers);
}

static void add(scene *s, uint32_t link, bool up, int64_t ticks)
{
    assert_true(s->count < TRANSFERS_MAX);
    s->all[s->count++] = (transfer){link, up, ticks};
}

static int64_t sum_of(const scene *s, uint32_t link, bool up)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < s->count; i++)
        sum += s->all[i].link == link && s->all[i].up == up ? s->all[i].ticks : 0;
    return sum;
}

// What comes before the training, whoever sums.
static void add_moves(scene *s)
{
    const dp_ticks *ticks = &s->planner.ticks;
    for (uint32_t j = 0; j < WORKERS; j++) {
        if (!(s->planner.participants >> j & 1))
            continue;
        add(s, j, true, ticks->dense_up[j]);
        add(s, j, false, ticks->dense_down[j]);
    }
    add(s, PS, true, ticks->ps_limits[0].dense);
    add(s, PS, false, ticks->ps_limits[0].dense);
    for (uint32_t d = 0; d < ROWS; d++) {
        const dp_record *record = &s->records[s->distinct[d].record];
        const uint64_t holders = record->copies.holders;
        const uint32_t f = d % FIELDS;
        if (record->version == 0 && s->planner.config.dispatch.first_touch == RT_FIRST_TOUCH_LOCAL)
            continue; // its trainers make it
        for (uint32_t j = 0; j < WORKERS; j++) {
            const bool has = holders >> j & 1, trains = s->trainers[d] >> j & 1;
            if (record->version_ps < record->version && has && s->trainers[d] != holders) {
                add(s, j, true, ticks->push[f][j]);
                add(s, PS, false, ticks->ps_row[f]);
            }
            if (trains && !has) {
                add(s, j, false, ticks->pull[f][j]);
                add(s, PS, true, ticks->ps_row[f]);
            }
        }
    }
}

// Adds the gradients of row d to the worker, or to the PS; the longest of the links that they pass.
static int64_t add_gradients(scene *s, uint32_t d, uint32_t to)
{
    const dp_ticks *ticks = &s->planner.ticks;
    const uint32_t f = d % FIELDS;
    int64_t longest = 0;
    for (uint32_t j = 0; j < WORKERS; j++) {
        if (j == to || !(s->trainers[d] >> j & 1))
            continue;
        add(s, j, true, ticks->grad[f][j]);
        add(s, to, false, to == PS ? ticks->ps_grad[f] : ticks->pull[f][to]);
        const int64_t up = sum_of(s, j, true);
        longest = up > longest ? up : longest;
    }
    const int64_t down = sum_of(s, to, false);
    return down > longest ? down : longest;
}

// Who has no copy pulls the optimizer's state, too.
static int64_t state_of(const scene *s, uint32_t d, uint32_t to)
{
    const dp_ticks *ticks = &s->planner.ticks;
    const uint32_t f = d % FIELDS;
    const int64_t more = (int64_t)ticks->pull[f][to] - ticks->grad[f][to];
    const bool has = s->records[s->distinct[d].record].copies.holders >> to & 1;
    return has || more < 0 ? 0 : more;
}

static void check_row(scene *s, uint32_t d)
{
    const uint32_t before = s->count;
    uint32_t best = PS;
    int64_t least = add_gradients(s, d, PS);
    for (uint32_t j = 0; j < WORKERS; j++) {
        s->count = before;
        const bool trains = s->trainers[d] >> j & 1;
        const int64_t longest = trains ? add_gradients(s, d, j) + state_of(s, d, j) : 0;
        if (!trains || longest >= least)
            continue;
        least = longest;
        best = j;
    }
    s->count = before;
    add_gradients(s, d, best);
    assert_int_equal(s->summers[d], best == PS ? DP_NO_WORKER : best);
    s->by_ps += best == PS;
    s->by_worker += best != PS;
}

// Rows of the most trainers first, and in order.
static void the_busiest_link_has_least_to_do(void **state)
{
    (void)state;
    static scene s;
    uint32_t by_worker = 0, by_ps = 0;
    for (uint32_t i = 0; i < CASES; i++) {
        draw(&s, i);
        dp_reduce_choose(&s.planner);
        add_moves(&s);
        for (uint32_t trainers = WORKERS; trainers > 1; trainers--) {
            for (uint32_t d = 0; d < ROWS; d++)
                if (rt_bit_count(s.trainers[d]) == trainers)
                    check_row(&s, d);
        }
        for (uint32_t d = 0; d < ROWS; d++)
            if (rt_bit_count(s.trainers[d]) < 2) // it has its own gradient
                assert_int_equal(s.summers[d], DP_NO_WORKER);
        by_worker += s.by_worker;
        by_ps += s.by_ps;
    }
    assert_true(by_worker > 1000 && by_ps > 1000);
}

TEST_MAIN(TEST(the_busiest_link_has_least_to_do))
