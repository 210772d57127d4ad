// Runs of executors with shards, against those that were recorded (tests/golden/rows.golden): every
// message that a worker or a shard sends, what each counts and tells of itself, the rows that they
// have in the end; and, of messages that were made wrong on their way, what is said to them. What
// they have to do, other tests say; this one notices that they do otherwise.
//
// Plans are a planner's. A change that is to make others: LANYARD_UPDATE_GOLDEN=1 (or a part of a
// name) writes the file anew. It has a line for each run, NAME: KEY=VALUE...; the keys are those of
// set_up.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/records.h"
#include "tests/support/rows_run.h"
#include "tests/support/test.h"

#define GOLDEN "tests/golden/rows.golden"
#define PARTS 2u

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
    } flags[] = {{"one", &schedule->one_at_a_time},
                 {"hands", &dispatch->hand_over},
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

static void put_lies(const fabric_plan *plan, const scenario *s, uint32_t delivered,
                     rt_bytes *record)
{
    rt_random random = {s->schedule.seed};
    uint64_t all = 0;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < s->lies; i++) {
        const uint32_t delivery = 1 + rt_random_below(&random, delivered);
        const uint64_t one =
            rows_run_lie(plan, &s->schedule, delivery, rt_random_u64(&random), record);
        taken += one != 0;
        all = rt_mix(all ^ one);
    }
    records_put(record, "%" PRIu32 " lies were taken #%016" PRIx64, taken, all);
}

static char *play(const char *line)
{
    char text[RECORDS_LINE_BYTES];
    rt_bytes record = {0};
    fabric_plan plan;
    scenario s = begin();
    snprintf(text, sizeof text, "%s", strchr(line, ':') + 1);
    for (char *rest = NULL, *one = strtok_r(text, " ", &rest); one;
         one = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(one, '=');
        assert_non_null(value);
        *value++ = '\0';
        set_up(&s, one, value);
    }
    fabric_plan_init(&plan, &s.shape);
    const uint32_t delivered = rows_run_play(&plan, &s.schedule, &record);
    put_lies(&plan, &s, delivered, &record);
    fabric_plan_fini(&plan);
    return records_text(&record);
}

int main(int argc, char **argv)
{
    return records_main(GOLDEN, PARTS, 0, play, argc, argv);
}
