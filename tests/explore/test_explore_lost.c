// Explores the loss of a worker that a run goes on without: docs/PROTOCOL.md, "A worker that is
// lost".
//
// Coordinator, two shards (of rows, and of the dense weights) and two workers are a compact model;
// which loss is spared is said by the coordinator's own dp_membership.c. One worker trains every
// iteration in which the other does not train alone; the other one takes part, trains alone, pushes
// its row, or sits out, in every order. It dies at any moment, which cuts off what it has sent at
// any place, and the coordinator notices at any moment after that. The last slice is the flush.
// What must hold: if the run goes on, it comes to its end, and the shard has every version that the
// dead worker made.
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "tests/support/members.h"
#include "tests/explore/explore_rules.h"
#include "tests/explore/explore_states.h"

// What is explored, also of cases that pass.
static FILE *report;

enum { SLICES = 6, ROLES = 4, MESSAGES = 12 };
enum { OTHER, MORTAL }; // workers
enum { OF_ROWS, OF_DENSE, SHARDS };

// Rules, each broken by one name.
#define BREAK_MAP(XX)                                                            \
    XX(NONE, "nothing")                                                          \
    XX(EVERY_REPORT, "every report of who sits out settles its slice")           \
    XX(UNCONFIRMED, "idle is said of what was sent, confirmed or not")           \
    XX(NOT_NEEDED, "slices that are under way are not looked at")                \
    XX(ROWS, "rows that the shard lacks, and no slice yet pushes, do not count") \
    XX(STATE, "dense weights of who trained alone are not waited for")           \
    XX(PLANNED, "what was planned before the loss goes out all the same")

typedef enum { BREAK_MAP(EXPLORE_RULE) BREAKS } broken;

static const char *const texts[] = {BREAK_MAP(EXPLORE_TEXT)};

typedef enum { TAKES_PART, ALONE, PUSHES, SITS_OUT } role;
typedef enum { ROW, SUMMAND, DENSE_GRAD, DENSE_STATE } message; // of the mortal one to the shard

typedef struct {
    uint8_t sent;                                // slices
    uint8_t lives, noticed, spared, rolled_back; // of the mortal one
    uint8_t planned;                             // slices, when the loss was noticed
    uint8_t got, trained;                        // slices that it has carried out; begun to train
    uint8_t dirty, ahead;           // version of the row that it owns; iteration alone, or 0
    uint8_t unconfirmed, confirmed; // messages; of them, on their way back
    uint8_t said, heard, idle;      // reports sent, heard; mask of those that say idle
    uint8_t out_count[SHARDS], out[SHARDS][MESSAGES][2]; // message, iteration
    uint8_t row, dense, grads, summands; // at the shard: versions, masks of iterations
    uint8_t done;                        // slices that the other has carried out
    // Of the coordinator: last: trained by the mortal one.
    uint8_t clean, complete, needed, settled, last;
} state;

typedef struct {
    broken broken;
    uint8_t roles[SLICES + 1];
    uint8_t ahead, flights; // slices that are planned but not sent; that may be under way
    explore_states found;
    uint64_t transitions, states, spared;
    char violation[160];
} search;

static void add(search *x, const state *at)
{
    x->transitions++;
    (void)explore_states_add(&x->found, at);
}

static uint8_t bit(uint32_t i)
{
    return (uint8_t)(1u << i);
}

// ---- plans -----------------------------------------------------------------------------------

// The version that only the mortal worker has behind slice q, as planned; 0: none.
static uint8_t owned_after(const search *x, uint32_t q)
{
    uint8_t version = 0;
    for (uint32_t t = 1; t <= q; t++) {
        if (x->roles[t] == TAKES_PART || x->roles[t] == ALONE)
            version = (uint8_t)t;
        else if (x->roles[t] == PUSHES)
            version = 0;
    }
    return version;
}

// What it does in slice q: after its loss only what was planned before, and what a flush asks of
// it.
static role role_in(const search *x, const state *at, uint32_t q)
{
    if (!at->noticed || q <= at->planned)
        return (role)x->roles[q];
    return q == SLICES && owned_after(x, at->planned) ? PUSHES : SITS_OUT;
}

// ---- the coordinator -------------------------------------------------------------------------

static dp_membership members; // of the state that is looked at

static dp_member *load(const state *at)
{
    dp_member *one = &members.workers[MORTAL];
    const bool trains = at->last && at->last >= rt_min_u64(at->sent, SLICES - 1);
    members.workers[OTHER].needed = members.workers[OTHER].trained = 0;
    members.clean = at->clean ? rt_bit(MORTAL) : 0;
    members.complete = at->complete;
    members.sequence = at->sent;
    members.iteration = SLICES; // the flush counts here
    members.connected = at->noticed ? 2 : 3;
    one->needed = at->needed;
    one->settled = at->settled;
    one->trained = at->last;
    one->state = trains ? DP_MEMBER_TRAINS : DP_MEMBER_SITS_OUT;
    if (at->noticed)
        one->state = DP_MEMBER_LOST;
    return one;
}

static void keep(state *at)
{
    const dp_member *one = &members.workers[MORTAL];
    at->clean = members.clean != 0;
    at->complete = (uint8_t)members.complete;
    at->needed = (uint8_t)one->needed;
    at->settled = (uint8_t)one->settled;
    at->last = (uint8_t)one->trained;
}

static void complete(state *at)
{
    const uint8_t reported = at->noticed ? at->done : (uint8_t)rt_min_u64(at->done, at->heard);
    load(at);
    if (reported > at->complete)
        dp_membership_completed(&members, reported);
    keep(at);
}

static void send_slice(search *x, const state *from)
{
    state at = *from;
    const uint32_t q = from->sent + 1u;
    if (q > SLICES || from->sent - from->complete >= x->flights || from->rolled_back)
        return;
    const role does = role_in(x, from, q);
    const bool trains = does == TAKES_PART || does == ALONE;
    const uint64_t participants = (trains ? rt_bit(MORTAL) : 0) | (does != ALONE ? 1 : 0);
    uint64_t needed = participants | (does == PUSHES ? rt_bit(MORTAL) : 0);
    if (x->broken == BREAK_NOT_NEEDED)
        needed &= ~rt_bit(MORTAL);
    load(from);
    const dp_membership_slice slice = {.sequence = q,
                                       .iteration = q == SLICES ? 0 : q,
                                       .participants =
                                           x->broken == BREAK_NOT_NEEDED ? 1 : participants,
                                       .needed = needed,
                                       .clean = owned_after(x, q) ? 0 : rt_bit(MORTAL)};
    const bool goes = dp_membership_sent(&members, &slice);
    keep(&at);
    at.sent++;
    at.rolled_back = !goes && x->broken != BREAK_PLANNED;
    add(x, &at);
}

static void hear_report(search *x, const state *from)
{
    state at = *from;
    if (from->heard == from->said || from->noticed)
        return;
    const uint32_t q = ++at.heard;
    load(from);
    const bool sits_out = x->roles[q] == PUSHES || x->roles[q] == SITS_OUT;
    dp_membership_reported(&members, MORTAL, q,
                           from->idle & bit(q) || (x->broken == BREAK_EVERY_REPORT && sits_out));
    keep(&at);
    complete(&at);
    add(x, &at);
}

static void notice(search *x, const state *from)
{
    state at = *from;
    if (from->lives || from->noticed || from->rolled_back)
        return;
    dp_member *one = load(from);
    if (x->broken == BREAK_STATE)
        one->trained = 0;
    if (x->broken == BREAK_ROWS)
        members.clean = UINT64_MAX;
    one->state = DP_MEMBER_SITS_OUT; // also where a rule that would say so is broken
    at.noticed = 1;
    at.planned = (uint8_t)rt_min_u64(from->sent + x->ahead, SLICES);
    at.spared = dp_membership_can_spare(&members, MORTAL);
    at.rolled_back = !at.spared;
    x->spared += at.spared;
    complete(&at);
    add(x, &at);
}

// ---- the worker that dies --------------------------------------------------------------------

static void say(state *at, message what, uint32_t iteration)
{
    const uint32_t s = what == ROW || what == SUMMAND ? OF_ROWS : OF_DENSE;
    uint8_t *next = at->out[s][at->out_count[s]];
    assert_true(at->out_count[s] < MESSAGES);
    at->out_count[s]++;
    next[0] = (uint8_t)what;
    next[1] = (uint8_t)iteration;
    if (what == ROW || what == SUMMAND)
        at->unconfirmed++;
}

static void say_report(const search *x, state *at, uint32_t q, bool sits_out)
{
    const bool is_idle = at->unconfirmed == 0 || x->broken == BREAK_UNCONFIRMED;
    at->said = (uint8_t)q;
    at->idle |= sits_out && is_idle ? bit(q) : 0;
}

// It has the dense weights after q - 1, or the shard has.
static bool has_weights(const search *x, const state *at, uint32_t q)
{
    const bool took_part = q == 1 || x->roles[q - 1] == TAKES_PART || x->roles[q - 1] == ALONE;
    return took_part || at->dense == q - 1;
}

// The next slice that has come, as far as it can be carried out.
static void carry_out(search *x, const state *from)
{
    state at = *from;
    const uint32_t q = from->got + 1u;
    if (!from->lives || q > from->sent)
        return;
    const role does = (role)x->roles[q];
    if (from->trained < q && from->ahead && does != ALONE) {
        say(&at, DENSE_STATE, from->ahead);
        at.ahead = 0;
    }
    if (does == TAKES_PART && from->trained < q) {
        if (!has_weights(x, from, q))
            return;
        say(&at, DENSE_GRAD, q);
        at.trained = (uint8_t)q;
        add(x, &at);
        return;
    }
    if (does == TAKES_PART) { // the verdict
        if (from->dense < q)
            return;
        say(&at, SUMMAND, q);
        at.dirty = (uint8_t)q;
    } else if (does == ALONE) {
        if (!has_weights(x, from, q))
            return;
        at.dirty = at.ahead = (uint8_t)q;
    } else if (does == PUSHES && from->dirty) {
        say(&at, ROW, from->dirty);
        at.dirty = 0;
    }
    at.got = at.trained = (uint8_t)q;
    say_report(x, &at, q, does == PUSHES || does == SITS_OUT);
    add(x, &at);
}

static void hear_confirmation(search *x, const state *from)
{
    state at = *from;
    if (!from->confirmed || !from->lives)
        return;
    at.confirmed--;
    at.unconfirmed--;
    add(x, &at);
}

static void cut_off(state *at, const state *from, uint32_t shard, uint32_t left)
{
    memset(at->out[shard], 0, sizeof at->out[shard]);
    memcpy(at->out[shard], from->out[shard], left * sizeof at->out[shard][0]);
    at->out_count[shard] = (uint8_t)left;
}

// What it had sent to each shard may still arrive, up to some message.
static void die(search *x, const state *from)
{
    state at = *from;
    if (!from->lives)
        return;
    at.lives = 0;
    at.confirmed = 0;
    for (uint32_t rows = 0; rows <= from->out_count[OF_ROWS]; rows++) {
        for (uint32_t dense = 0; dense <= from->out_count[OF_DENSE]; dense++) {
            for (uint32_t said = from->heard; said <= from->said; said++) {
                at.said = (uint8_t)said;
                cut_off(&at, from, OF_ROWS, rows);
                cut_off(&at, from, OF_DENSE, dense);
                add(x, &at);
            }
        }
    }
}

// ---- the shard, and the other worker ---------------------------------------------------------

static void deliver(search *x, const state *from, uint32_t shard)
{
    state at = *from;
    uint8_t(*out)[2] = at.out[shard];
    if (!from->out_count[shard])
        return;
    const message what = (message)out[0][0];
    const uint8_t iteration = out[0][1];
    memmove(out, out + 1, (MESSAGES - 1) * sizeof *out);
    memset(out[MESSAGES - 1], 0, sizeof *out);
    at.out_count[shard]--;
    if (what == ROW)
        at.row = (uint8_t)rt_max_u64(at.row, iteration);
    else if (what == SUMMAND)
        at.summands |= bit(iteration);
    else if (what == DENSE_GRAD)
        at.grads |= bit(iteration);
    else if (iteration > at.dense)
        at.dense = iteration;
    if (from->lives && (what == ROW || what == SUMMAND))
        at.confirmed++;
    add(x, &at);
}

// The other one needs the dense weights of the iteration before, the sum of a row that both had
// trained, and the row that is pushed for it. Once it has trained, the shard makes the dense step.
static void train(search *x, const state *from)
{
    state at = *from;
    const uint32_t q = from->done + 1u;
    if (q > from->sent || from->rolled_back)
        return;
    const role does = role_in(x, from, q), before = q > 1 ? role_in(x, from, q - 1) : SITS_OUT;
    if (does != ALONE) {
        const bool has_weights = before != ALONE || from->dense >= q - 1;
        const bool has_sum = before != TAKES_PART || from->summands & bit(q - 1);
        const bool has_row = does != PUSHES || from->row >= owned_after(x, q - 1);
        const bool has_grad = does != TAKES_PART || from->grads & bit(q);
        if (!has_weights || !has_sum || !has_row || !has_grad)
            return;
        at.dense = (uint8_t)q;
    }
    at.done = (uint8_t)q;
    complete(&at);
    add(x, &at);
}

// ---- what must hold --------------------------------------------------------------------------

// Nothing more happens.
static void check_end(search *x, const state *at)
{
    if (at->rolled_back && at->spared && at->sent > at->planned)
        snprintf(x->violation, sizeof x->violation, "what was planned after its loss needs it");
    if (at->rolled_back)
        return;
    if (at->done < SLICES || (at->lives && at->heard < SLICES))
        snprintf(x->violation, sizeof x->violation, "stands still after slice %u", at->done);
    uint8_t last = 0;
    for (uint32_t t = 1; t <= SLICES && t <= (at->noticed ? at->planned : SLICES); t++) {
        const role does = (role)x->roles[t];
        last = does == TAKES_PART || does == ALONE ? (uint8_t)t : last;
        if (at->noticed && does == TAKES_PART && !(at->summands & bit(t)))
            snprintf(x->violation, sizeof x->violation, "a gradient of %u is lost", t);
    }
    if (at->noticed && at->row < last)
        snprintf(x->violation, sizeof x->violation, "version %u of the row is lost", last);
}

static void explore(search *x)
{
    state first;
    memset(&first, 0, sizeof first);
    first.lives = 1;
    explore_states_clear(&x->found);
    add(x, &first);
    for (uint32_t i = 0; i < x->found.count && !*x->violation; i++) {
        const state at = *(const state *)explore_states_at(&x->found, i);
        const uint64_t before = x->transitions;
        send_slice(x, &at);
        hear_report(x, &at);
        carry_out(x, &at);
        hear_confirmation(x, &at);
        deliver(x, &at, OF_ROWS);
        deliver(x, &at, OF_DENSE);
        train(x, &at);
        notice(x, &at);
        const bool is_end = x->transitions == before;
        die(x, &at);
        if (is_end)
            check_end(x, &at);
    }
    x->states += x->found.count;
}

static void explore_all(search *x)
{
    uint32_t all = 1;
    for (uint32_t t = 1; t < SLICES; t++)
        all *= ROLES;
    explore_states_init(&x->found, sizeof(state), 1u << 18);
    dp_membership_init(&members, 2, 1);
    members_begin(&members);
    for (uint32_t number = 0; number < 4 * all && !*x->violation; number++) {
        uint32_t rest = number / 4;
        x->ahead = number & 1;
        x->flights = 1 + (number >> 1 & 1);
        for (uint32_t t = 1; t < SLICES; t++, rest /= ROLES)
            x->roles[t] = rest % ROLES;
        x->roles[SLICES] = owned_after(x, SLICES - 1) ? PUSHES : SITS_OUT;
        explore(x);
    }
    fprintf(report, "    %s: %llu states, %llu transitions, %llu losses spared: %s\n",
            texts[x->broken], (unsigned long long)x->states, (unsigned long long)x->transitions,
            (unsigned long long)x->spared, *x->violation ? x->violation : "holds");
    explore_states_fini(&x->found);
}

static void nothing_is_lost_with_a_worker_that_is_spared(void **unused)
{
    (void)unused;
    search x = {.broken = BREAK_NONE};
    explore_all(&x);
    assert_string_equal(x.violation, "");
    assert_true(x.spared > 1000);
}

static void every_rule_is_needed(void **unused)
{
    (void)unused;
    for (uint32_t b = BREAK_NONE + 1; b < BREAKS; b++) {
        search x = {.broken = (broken)b};
        explore_all(&x);
        if (!*x.violation)
            fail_msg("not found: %s", texts[b]);
    }
}

int main(int argc, char **argv)
{
    static const test_case cases[] = {TEST_SLOW(nothing_is_lost_with_a_worker_that_is_spared, 300),
                                      TEST_SLOW(every_rule_is_needed, 300)};
    report = fdopen(dup(STDOUT_FILENO), "w");
    assert_non_null(report);
    setvbuf(report, NULL, _IOLBF, 0);
    return test_run(cases, sizeof cases / sizeof cases[0], argc, argv);
}
