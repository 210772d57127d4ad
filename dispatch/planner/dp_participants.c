#include "dispatch/planner/dp_participants.h"

#include <math.h>

#include "dispatch/planner/dp_choice.h"
#include "runtime/config/rt_policies.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"
#include "runtime/wire/rt_fields.h"

// Of a rate, that ask for another choice: at once, or when the batches are other ones. Measured
// times swing by more than the little.
#define CHANGE_LITTLE 0.1
#define CHANGE_MUCH 0.4
#define ROWS_MORE 4 // a fourth more rows than before, likewise

// Of the state as bytes, above the rows in its first number; before it there was no such number.
#define LAYOUT UINT64_C(0x34)

struct dp_participants {
    dp_planner_config config; // with the values in force
    dp_recent recent;         // stands still while a search judges by all of it
    uint64_t seen;            // batches
    uint64_t estimated;       // of them, at the last estimate; 0: none yet
    uint64_t searched;        // when the last search began; 0: none yet
    uint64_t change;          // of a rate, since then: 0 none, 1 a little, 2 much
    uint64_t is_rough;        // what is in force is an estimate that no search has confirmed
    double moved;             // see dp_estimate_s
    uint64_t keys_expected;   // of the run
    uint64_t rows, rows_now;  // more than a shard takes, at the last choice and now; 0: they fit
    dp_choice choice;
};

rt_status dp_participants_create(const dp_planner_config *config, dp_participants **chooser_p)
{
    dp_participants *self = rt_alloc(1, sizeof *self);
    if (!self)
        return RT_NO_MEMORY;
    self->config = *config;
    self->config.lookahead = 0; // what is ahead is not among the recent batches
    self->config.dispatch.window = 1;
    self->config.measure_error = false;
    self->keys_expected = config->keys_expected;
    self->config.keys_expected = 0;
    self->config.rows.admit = 0; // what it sees was admitted
    self->config.rows.admit_share = 0;
    self->moved = DP_ESTIMATE_MOVED;
    dp_recent_init(&self->recent);
    *chooser_p = self;
    return RT_OK;
}

void dp_participants_destroy(dp_participants *self)
{
    if (!self)
        return;
    dp_choice_end(&self->choice);
    dp_recent_fini(&self->recent);
    rt_free(self);
}

// A state that does not fit begins anew: it says what to judge by, not what is true.
rt_status dp_participants_open(const dp_planner_config *config, const rt_bytes *chooser_state,
                               const dp_rates *rates, dp_participants **chooser_p, rt_error *error)
{
    rt_error why = {0};
    const rt_participants kind = config->dispatch.participants;
    *chooser_p = NULL;
    if (config->worker_count < 2 ||
        (kind != RT_PARTICIPANTS_AUTO && kind != RT_PARTICIPANTS_ROTATE))
        return RT_OK;
    if (dp_participants_create(config, chooser_p))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the choice of participants");
    if (!chooser_state || !chooser_state->size)
        return RT_OK;
    rt_reader reader = rt_bytes_reader(chooser_state);
    rt_status status = dp_participants_load(*chooser_p, rates, &reader, &why);
    if (status == RT_NO_MEMORY)
        return rt_fail(error, status, "%s", why.text);
    if (status)
        rt_warn("%s: it is chosen anew", why.text);
    return RT_OK;
}

static bool rotates(const dp_participants *self)
{
    return self->config.dispatch.participants == RT_PARTICIPANTS_ROTATE;
}

bool dp_participants_searches(const dp_participants *self)
{
    return self->choice.runs;
}

// Any set that is large enough, by the seed.
static uint64_t turned(const dp_participants *self)
{
    const dp_planner_config *config = &self->config;
    const uint32_t n = config->worker_count,
                   least = (uint32_t)rt_max_u64(config->participants_min, 1);
    const uint64_t all = rt_bits_below(n) & ~config->lost;
    uint64_t workers = rt_mix(rt_mix(config->seed) + self->seen) & all;
    for (uint64_t j = self->seen; rt_bit_count(workers) < least && workers != all; j++)
        workers |= rt_bit((uint32_t)(j % n)) & all;
    return workers;
}

void dp_participants_apply(dp_participants *self, const dp_input *input)
{
    double *rate = dp_rates_at(&self->config.rates, (dp_input_kind)input->kind, input->worker);
    if (input->kind == DP_INPUT_POLICY) {
        self->config.dispatch.policy = (rt_policy_kind)rt_policy_of_number((uint32_t)input->value);
        self->change = 2;
    }
    if (input->kind == DP_INPUT_LOST && input->value > 0) {
        self->config.lost |= rt_bit(input->worker);
        self->change = rt_max_u64(1, self->change);
        if (self->choice.runs)
            dp_choice_end(&self->choice);
    }
    if (!rate)
        return;
    const double change = fabs(input->value - *rate);
    const uint32_t now = (change > CHANGE_LITTLE * *rate) + (change > CHANGE_MUCH * *rate);
    self->change = rt_max_u64(now, self->change);
    *rate = input->value;
}

// ---- when ------------------------------------------------------------------------------------

// Before the first iteration, and once rates have changed much; a search before that is of no use
// any more. A batch that is far from full says little.
static bool estimate_is_due(const dp_participants *self, const rt_batch *batch)
{
    if (2 * batch->sample_count < self->config.sample_count_max)
        return false;
    return self->estimated == 0 ||
           (self->change == 2 && self->seen - self->estimated >= DP_PARTICIPANTS_GAP);
}

static bool search_is_due(const dp_participants *self)
{
    if (self->searched == 0)
        return self->seen >= DP_PARTICIPANTS_FIRST;
    return self->seen >= 3 * self->searched ||
           (self->is_rough && self->seen - self->estimated >= DP_PARTICIPANTS_GAP) ||
           (self->change > 0 && self->seen - self->searched >= DP_RECENT_MAX);
}

static bool stands_still(const dp_participants *self)
{
    return self->choice.runs && self->recent.count == DP_RECENT_MAX;
}

// What shards lack room for is another reason to choose again.
static void note_rows(dp_participants *self, uint64_t rows)
{
    const dp_planner_config *config = &self->config;
    const uint64_t all = rt_max_u64(rows, self->keys_expected);
    self->rows_now = 0;
    if (config->homes == RT_HOMES_PLANNED && config->shard_rows_max > 0 &&
        all > config->shard_rows_max)
        self->rows_now = all;
    if (self->rows_now > self->rows + self->rows / ROWS_MORE)
        self->change = 2;
}

// Shards that cannot take all rows: in a trial, which has few, they take the same part of them.
static void judge_by_rows(dp_participants *self, uint64_t rows)
{
    self->rows = rows;
    self->config.shard_share = rows ? (double)self->config.shard_rows_max / (double)rows : 0;
}

// ---- the two ways to a set -------------------------------------------------------------------

static rt_status estimate(dp_participants *self, const rt_batch *batch, uint64_t *workers_p)
{
    double estimates[RT_WORKERS_MAX];
    dp_demand demand;
    judge_by_rows(self, self->rows_now);
    if (dp_demand_measure(batch, &self->config.layout, &demand))
        return RT_NO_MEMORY;
    const uint64_t likeliest = dp_choice_estimate(&self->config, &demand, self->moved, estimates);
    double now = INFINITY;
    if (dp_trial_fits(&self->config, *workers_p))
        now = dp_estimate_s(&self->config, &demand, self->moved, *workers_p);
    if (estimates[rt_bit_count(likeliest) - 1] < (1 - DP_PARTICIPANTS_MUCH) * now)
        *workers_p = likeliest;
    dp_demand_fini(&demand);
    dp_choice_end(&self->choice);
    self->estimated = self->seen;
    self->change = 0;
    self->is_rough = 1;
    return RT_OK;
}

// One unit of a search; another set once it is done.
static rt_status search(dp_participants *self, const rt_batch *batch, uint64_t *workers_p)
{
    dp_choice *choice = &self->choice;
    rt_status status = RT_OK;
    if (choice->runs && choice->current != *workers_p)
        dp_choice_end(choice); // somebody else has changed it
    if (!choice->runs && !search_is_due(self))
        return RT_OK;
    if (!choice->runs) {
        judge_by_rows(self, self->rows_now);
        self->searched = self->seen;
        self->change = self->is_rough = 0;
        return dp_choice_begin(choice, &self->config, &self->recent, self->moved, *workers_p);
    }
    status = dp_choice_step(choice, &self->recent, batch->key_count);
    if (status || choice->runs)
        return status;
    const dp_candidate *best = dp_choice_best(choice);
    if (best && best->moved > 0 && choice->batch_count == DP_RECENT_MAX)
        self->moved = best->moved;
    *workers_p = dp_choice_result(choice);
    return RT_OK;
}

static rt_status choose(dp_participants *self, const rt_batch *batch, uint64_t rows,
                        uint64_t *workers_p)
{
    rt_status status = RT_OK;
    if (!stands_still(self))
        status = dp_recent_add(&self->recent, batch);
    self->seen++;
    note_rows(self, rows);
    if (status)
        return status;
    if (estimate_is_due(self, batch))
        return estimate(self, batch, workers_p);
    return search(self, batch, workers_p);
}

rt_status dp_participants_next(dp_participants *self, const rt_batch *batch, uint64_t current,
                               uint64_t rows, dp_input *records, uint32_t *count_p)
{
    uint64_t workers = current;
    *count_p = 0;
    if (rotates(self)) {
        if (self->seen && self->seen % DP_PARTICIPANTS_TURN == 0)
            workers = turned(self);
        self->seen++;
    } else {
        const rt_status status = choose(self, batch, rows, &workers);
        if (status)
            return status;
    }
    for (uint64_t rest = current ^ workers; rest; rest &= rest - 1) {
        const uint32_t worker = rt_lowest_bit(rest);
        records[(*count_p)++] = (dp_input){.kind = DP_INPUT_PARTICIPATES,
                                           .worker = worker,
                                           .value = (double)(workers >> worker & 1)};
    }
    return RT_OK;
}

// ---- state -----------------------------------------------------------------------------------

// Its numbers; the layout stands above the rows.
typedef struct {
    uint64_t rows, seen, estimated, searched, change, is_rough;
    double moved;
} saved_head;

#define HEAD(XX, PART, NONE, T) \
    XX(T, rows)                 \
    XX(T, seen)                 \
    XX(T, estimated)            \
    XX(T, searched)             \
    XX(T, change)               \
    XX(T, is_rough)             \
    XX(T, moved)
RT_FIELDS(head_fields, saved_head, HEAD,
          "rows:8 seen:8 estimated:8 searched:8 change:8 is_rough:8 moved:8");

void dp_participants_save(const dp_participants *self, rt_bytes *bytes)
{
    const saved_head head = {LAYOUT << 56 | self->rows,
                             self->seen,
                             self->estimated,
                             self->searched,
                             self->change,
                             self->is_rough,
                             self->moved};
    rt_fields_put(bytes, &head_fields, &head, 1);
    dp_recent_save(&self->recent, bytes);
    dp_choice_save(&self->choice, bytes);
}

static rt_status load(dp_participants *self, rt_reader *reader)
{
    const dp_recent_limits limits = {self->config.sample_count_max,
                                     self->config.keys_per_sample_max,
                                     self->config.layout.field_count};
    saved_head head;
    if (!rt_fields_get(reader, &head_fields, &head, 1) || head.rows >> 56 != LAYOUT)
        return RT_DATA;
    judge_by_rows(self, head.rows & ~(UINT64_MAX << 56));
    self->seen = head.seen;
    self->estimated = head.estimated;
    self->searched = head.searched;
    self->change = head.change;
    self->is_rough = head.is_rough;
    self->moved = head.moved;
    if (reader->failed || self->seen > DP_ITERATIONS_MAX || self->estimated > self->seen ||
        self->searched > self->seen || self->change > 2 || self->is_rough > 1 ||
        !(self->moved > 0) || !isfinite(self->moved))
        return RT_DATA;
    uint64_t count = 0;
    if (!rotates(self))
        count = rt_min_u64(self->seen, DP_RECENT_MAX);
    const rt_status status = dp_recent_load(&self->recent, &limits, reader);
    if (status)
        return status;
    if (self->recent.count != count)
        return RT_DATA;
    return dp_choice_load(&self->choice, &self->config, &self->recent, reader);
}

rt_status dp_participants_load(dp_participants *self, const dp_rates *rates, rt_reader *reader,
                               rt_error *error)
{
    rt_assert(self->seen == 0);
    self->config.rates = *rates;
    rt_status status = load(self, reader);
    if (!status)
        return RT_OK;
    self->recent.count = self->recent.next = 0;
    self->seen = self->estimated = self->searched = self->change = self->is_rough = 0;
    self->moved = DP_ESTIMATE_MOVED;
    if (status == RT_DATA)
        return rt_fail(error, status, "participants: the saved state does not fit this run");
    return rt_fail(error, status, "who takes part: %s", rt_status_text(status));
}
