// Runs of executors with shards, each with another way to move rows and in an order that is drawn:
// what must come of each, and of each of its messages that is made wrong on its way, is in
// tests/support/rows_run.h. Plans are a planner's. A run that fails is named by its line; a new one
// is a new line.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/rt_optimizers.h"
#include "runtime/config/rt_policies.h"
#include "runtime/rt_hash.h"
#include "tests/support/rows_run.h"
#include "tests/support/test.h"

#define LINE_BYTES 200u

// KEY=VALUE... of set_up.
static const char *const runs[] = {
    "seed=1",
    "seed=2 cache=0 ahead=3 optimizer=0",
    "seed=3 cache=2 optimizer=2 touch=1",
    "seed=4 ahead=0 credits=1 full=3",
    "seed=5 ahead=3 message=40 policy=1",
    "seed=6 full=2 credits=1 message=1 optimizer=3",
    "seed=7 skip=3",
    "seed=9 wire=16 full=5",
    "seed=10 sync=1 bag=3 dim=5 fields=2",
    "seed=11 homes=1 cache=0",
    "seed=12 homes=1 change=2 iterations=14 workers=4",
    "seed=13 change=3 iterations=14 full=4",
    "seed=14 hands=1 ids=8 ahead=3",
    "seed=15 hands=1 full=3 optimizer=0",
    "seed=16 sums=1 ids=8 skip=4",
    "seed=17 sums=1 hands=1 ahead=3 full=3 credits=1 change=3",
    "seed=18 sums=1 ahead=1 optimizer=2",
    "seed=19 stale=2 ids=8",
    "seed=20 stale=3 wire=8 optimizer=2 full=3",
    "seed=21 stale=0 policy=2",
    "seed=22 wire=16 dim=5 cache=0",
    "seed=23 wire=8 optimizer=0 message=60",
    "seed=24 wire=8 homes=1 dim=7 full=3",
    "seed=25 expire=3 iterations=16 ids=30",
    "seed=26 expire=3 iterations=14 ids=30 homes=1 wire=16",
    "seed=27 workers=1 shards=1 ahead=4",
    "seed=28 workers=7 shards=3 samples=2 hands=1 sums=1 ids=6 skip=5",
    "seed=29 stale=2 wire=16 touch=1 dim=3 lies=15",
    "seed=30 stale=5 touch=1 policy=1 lies=15",
    "seed=31 wire=16 touch=1 optimizer=2 lies=15",
    "seed=32 wire=8 touch=1 full=4 lies=15",
    "seed=33 hands=1 touch=1 lies=15",
    "seed=41 hands=1 homes=1 lies=15",
    "seed=34 sums=1 touch=1 optimizer=3 full=2 lies=15",
    "seed=35 stale=1 credits=1 message=1 full=3 samples=5 ids=40 lies=15",
    "seed=36 evict=0 lookahead=4 policy=2 bag=3 ids=30 lies=15",
    "seed=37 change=2 iterations=14 workers=4 skip=3 lies=15",
    "seed=38 change=2 sums=1 hands=1 iterations=16 workers=4 cache=0 lies=15",
    "seed=39 expire=3 iterations=14 ids=30 hands=1 sums=1 lies=15",
    "seed=40 expire=4 iterations=14 ids=30 stale=2 lies=15",
};

typedef struct {
    fabric_shape shape;
    rows_run_schedule schedule;
    uint32_t lies;
} scenario;

// Settings that are numbers of another type than that of the line.
static void set_kind(scenario *s, const char *key, uint32_t number)
{
    static const rt_policy_kind policies[] = {RT_POLICY_RANDOM, RT_POLICY_LAIA, RT_POLICY_ESD};
    static const rt_optimizer_kind optimizers[] = {RT_OPTIMIZER_SGD, RT_OPTIMIZER_ADAGRAD,
                                                   RT_OPTIMIZER_ROWWISE_ADAGRAD, RT_OPTIMIZER_FTRL};
    fabric_shape *shape = &s->shape;
    rt_dispatch_config *dispatch = &shape->dispatch;
    if (strcmp(key, "seed") == 0)
        shape->seed = s->schedule.seed = number;
    else if (strcmp(key, "cache") == 0)
        shape->cache = (cache_size)number;
    else if (strcmp(key, "evict") == 0)
        shape->eviction = (rt_eviction_kind)number;
    else if (strcmp(key, "policy") == 0)
        dispatch->policy = policies[number];
    else if (strcmp(key, "optimizer") == 0)
        shape->rows.kind = optimizers[number];
    else if (strcmp(key, "wire") == 0)
        shape->row_wire = number == 16 ? RT_CODING_BF16 : RT_CODING_INT8;
    else if (strcmp(key, "homes") == 0)
        shape->homes = RT_HOMES_PLANNED;
    else if (strcmp(key, "stale") == 0)
        shape->consistency = (rt_consistency_config){true, number};
    else if (strcmp(key, "touch") == 0)
        dispatch->first_touch = (rt_first_touch)number;
    else
        fail_msg("%s: a run of rows has none", key);
}

static void set_up(scenario *s, const char *key, const char *value)
{
    fabric_shape *shape = &s->shape;
    rows_run_schedule *schedule = &s->schedule;
    rt_dispatch_config *dispatch = &shape->dispatch;
    const uint32_t number = (uint32_t)strtoul(value, NULL, 10);
    const struct {
        const char *key;
        uint32_t *to;
    } numbers[] = {{"workers", &shape->worker_count},
                   {"shards", &shape->shard_count},
                   {"samples", &shape->samples_per_worker},
                   {"iterations", &shape->iterations},
                   {"change", &shape->change_every},
                   {"fields", &shape->field_count},
                   {"ids", &shape->ids_per_field},
                   {"bag", &shape->bag_max},
                   {"dim", &shape->model.embedding_dim},
                   {"lookahead", &shape->lookahead},
                   {"expire", &shape->ends.expire_iterations},
                   {"ahead", &schedule->run_ahead},
                   {"credits", &schedule->push_credits},
                   {"message", &schedule->message_bytes},
                   {"full", &schedule->full_every},
                   {"skip", &schedule->skip_every},
                   {"lies", &s->lies}};
    const struct {
        const char *key;
        bool *to;
    } flags[] = {{"hands", &dispatch->hand_over},
                 {"sums", &dispatch->reduce},
                 {"sync", &dispatch->full_sync}};
    for (size_t i = 0; i < RT_COUNT_OF(numbers); i++) {
        if (strcmp(numbers[i].key, key) == 0) {
            *numbers[i].to = number;
            return;
        }
    }
    for (size_t i = 0; i < RT_COUNT_OF(flags); i++) {
        if (strcmp(flags[i].key, key) == 0) {
            *flags[i].to = number != 0;
            return;
        }
    }
    set_kind(s, key, number);
}

static scenario begin(void)
{
    return (scenario){
        .shape = {.seed = 1,
                  .worker_count = 3,
                  .shard_count = 2,
                  .samples_per_worker = 3,
                  .iterations = 10,
                  .field_count = 3,
                  .ids_per_field = 12,
                  .bag_max = 1,
                  .dense_count = 1,
                  .cache = CACHE_MIDDLE,
                  .eviction = RT_EVICT_LRU,
                  .dispatch = {.policy = RT_POLICY_RANDOM, .alpha = 1},
                  .model = {.embedding_dim = 4, .init_scale = 0.125},
                  .rows = {.kind = RT_OPTIMIZER_ADAGRAD,
                           .learning_rate = 0.125f,
                           .epsilon = 0.5f,
                           .initial_accumulator = 0.25f,
                           .l2 = 0.5f,
                           .beta = 1}},
        .schedule = {.seed = 1, .run_ahead = 2, .push_credits = 2, .message_bytes = 160},
        .lies = 60};
}

static scenario read_line(const char *line)
{
    char text[LINE_BYTES];
    scenario s = begin();
    snprintf(text, sizeof text, "%s", line);
    for (char *rest = NULL, *one = strtok_r(text, " ", &rest); one;
         one = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(one, '=');
        assert_non_null(value);
        *value++ = '\0';
        set_up(&s, one, value);
    }
    return s;
}

static void rows_are_those_of_one_loop(void **state)
{
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(runs); i++) {
        fabric_plan plan;
        const scenario s = read_line(runs[i]);
        printf("%s\n", runs[i]);
        fabric_plan_init(&plan, &s.shape);
        rows_run_play(&plan, &s.schedule);
        fabric_plan_fini(&plan);
    }
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    uint32_t lies = 0, taken = 0;
    for (size_t i = 0; i < RT_COUNT_OF(runs); i++) {
        fabric_plan plan;
        const scenario s = read_line(runs[i]);
        printf("%s\n", runs[i]);
        fabric_plan_init(&plan, &s.shape);
        const uint32_t delivered = rows_run_play(&plan, &s.schedule);
        rt_random random = {s.schedule.seed};
        for (uint32_t k = 0; k < s.lies; k++, lies++) {
            const uint32_t delivery = 1 + rt_random_below(&random, delivered);
            taken += rows_run_lie(&plan, &s.schedule, delivery, rt_random_u64(&random));
        }
        fabric_plan_fini(&plan);
    }
    printf("%" PRIu32 " of %" PRIu32 " lies were taken\n", taken, lies);
    assert_true(taken < 2 * lies / 3); // floats, for one, may be any
}

TEST_MAIN(TEST(rows_are_those_of_one_loop), TEST(what_is_wrong_is_refused))
