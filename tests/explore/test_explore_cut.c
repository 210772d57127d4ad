// Explores a cut that needs no standstill, and the roll-back to it: docs/RECOVERY.md, "The cut" and
// "The roll-back".
//
// Planner, one shard and two workers are a compact model of one row, which is trained in every
// iteration by one worker, the other, both, or nobody; a row that one worker owns and the other
// trains goes by way of the shard, or straight to it. At every boundary of iterations the planner
// makes a cut or none. Worker MORTAL may die at any moment, which cuts off what it has sent
// anywhere; the coordinator notices at any later moment, and all go back to the newest cut that is
// complete. What must hold: a training reads the version that was planned, in the value of its own
// epoch; a complete cut holds the row of its iteration; a run comes to its end, with the last
// version at the shard. EXPLORE=full explores all scenarios, otherwise one of sixteen.
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "tests/explore/explore_rules.h"
#include "tests/explore/explore_states.h"

// What is explored, also of cases that pass.
static FILE *report;

enum { ITERATIONS = 3, FLUSH = ITERATIONS + 1, SLICES = FLUSH, ROLES = 4, MESSAGES = 6 };
enum { MORTAL, OTHER, WORKERS };
enum { CUTS = 3 }; // cut 0 is the start of the run

// Rules, each broken by one name.
#define BREAK_MAP(XX)                                                              \
    XX(NONE, "nothing")                                                            \
    XX(NO_IMAGE, "a row is changed past the cut without keeping it as it was")     \
    XX(LATE, "a row of the cut that comes behind a later one is not kept")         \
    XX(TRAINED, "a row that is to be pushed for the cut is trained first")         \
    XX(FILLED, "a row that is to be pushed for the cut makes room first")          \
    XX(MARK, "the mark does not wait for pushes to be confirmed")                  \
    XX(ONE_MARK, "the cut is complete with the first mark")                        \
    XX(FREED, "images of the cut before go when the next one begins")              \
    XX(OPEN, "the roll-back goes to a cut that is not complete")                   \
    XX(COPIES, "copies that were trained since the cut count as those of the cut") \
    XX(EPOCH_SHARD, "the shard takes messages of the epoch before")                \
    XX(EPOCH_WORKER, "a worker takes rows of the epoch before")                    \
    XX(WAITED, "slices of the new epoch go out before all have rolled back")       \
    XX(PARKED, "pulls and gradients of the epoch before stay at the shard")

typedef enum { BREAK_MAP(EXPLORE_RULE) BREAKS } broken;

static const char *const texts[] = {BREAK_MAP(EXPLORE_TEXT)};

typedef enum { NOBODY, BY_MORTAL, BY_OTHER, BY_BOTH } role;

// Of a worker in a slice.
enum {
    OP_CUT = 1,  // push the row for the cut before this slice, when there is time
    OP_PUSH = 2, // push it now
    OP_SEND = 4, // to the other worker
    OP_PULL = 8,
    OP_RECV = 16,
    OP_TRAIN = 32,
    OP_GRAD = 64, // several train it: the gradient goes to the shard
    OP_INIT = 128 // nobody has trained it
};

// A version of the row: the iteration that made it, and the epoch in which that was.
typedef struct {
    uint8_t version, epoch;
} row;

typedef enum { ROW, PULL, GRAD, ROLL_BACK } message_kind;
typedef struct {
    uint8_t kind, epoch, slice;
    uint8_t cut; // the newest one that was planned before the slice
    row row;     // of a PULL and GRAD: the version that is asked for, or that it builds on
} message;

typedef struct {
    uint8_t ops[SLICES + 1], cuts[SLICES + 1]; // of slices; the newest cut before each
    uint8_t has, done, stage; // slices that came, and were carried out; steps of the next one
    row copy;                 // epoch 0: it has none
    uint8_t owes;             // 1 + the cut for which the copy is to be pushed
    uint8_t unconfirmed;      // pushes
    uint8_t marked;           // the newest cut that it has marked
    uint8_t epoch;
    uint8_t out_count, in_count, hand_count;
    message out[MESSAGES];  // to the shard
    message in[MESSAGES];   // from the shard
    message hand[MESSAGES]; // from the other worker
} worker;

typedef struct {
    worker workers[WORKERS];
    // The planner.
    uint8_t planned, cut; // slices; the newest cut
    uint8_t latest, pushed, holders;
    row last; // the latest version
    uint8_t cut_at[CUTS];
    row cut_row[CUTS];
    uint8_t cut_holders[CUTS], touched[CUTS]; // workers whose copies changed since
    // The coordinator.
    uint8_t lives, noticed, complete, to_roll, epoch;
    // The shard.
    uint8_t shard_epoch, shard_freed;
    row at; // version 0: unborn
    uint8_t has_image[CUTS];
    row image[CUTS];
    uint8_t parked[WORKERS];  // 1 + the version
    uint8_t grads, grad_base; // mask
} state;

typedef struct {
    broken broken;
    uint8_t roles[ITERATIONS + 1];
    bool hands;
    uint8_t flights;
    explore_states found;
    uint64_t transitions, states, rolled, cuts;
    char violation[160];
} search;

static void add(search *x, const state *at)
{
    x->transitions++;
    (void)explore_states_add(&x->found, at);
}

#define BAD(x, ...)                                                      \
    do {                                                                 \
        if (!*(x)->violation)                                            \
            snprintf((x)->violation, sizeof(x)->violation, __VA_ARGS__); \
    } while (0)

static uint8_t bit(uint32_t i)
{
    return (uint8_t)(1u << i);
}

static void post(message *queue, uint8_t *count, message m)
{
    assert_true(*count < MESSAGES);
    queue[(*count)++] = m;
}

static message take(message *queue, uint8_t *count)
{
    const message first = queue[0];
    memmove(queue, queue + 1, (MESSAGES - 1) * sizeof *queue);
    memset(&queue[MESSAGES - 1], 0, sizeof *queue);
    (*count)--;
    return first;
}

// ---- the planner -----------------------------------------------------------------------------

static uint8_t trainers_of(const search *x, uint32_t epoch, uint32_t t)
{
    const uint8_t by = t == FLUSH ? NOBODY : x->roles[t];
    if (epoch > 1)
        return by == NOBODY ? 0 : bit(OTHER);
    return by;
}

static void touch(state *at, uint32_t w)
{
    for (uint32_t k = 0; k < CUTS; k++)
        at->touched[k] |= bit(w);
}

// The one holder of a version that the shard lacks pushes it.
static void plan_push(state *at, uint32_t t, uint8_t op)
{
    if (at->pushed >= at->latest)
        return;
    const uint32_t owner = rt_lowest_bit(at->holders);
    at->workers[owner].ops[t] |= op;
    at->pushed = at->latest;
}

static void plan_cut(state *at, uint32_t t)
{
    const uint32_t k = ++at->cut;
    plan_push(at, t, OP_CUT);
    at->cut_at[k] = (uint8_t)(t - 1);
    at->cut_row[k] = at->last;
    at->cut_holders[k] = at->holders;
    at->touched[k] = 0;
}

static void plan_alone(const search *x, state *at, uint32_t t, uint32_t w)
{
    if (at->latest > 0 && !(at->holders & bit(w))) {
        const bool is_owned = at->pushed < at->latest;
        const uint32_t owner = is_owned ? rt_lowest_bit(at->holders) : w;
        if (is_owned && x->hands) {
            at->workers[owner].ops[t] |= OP_SEND;
            at->workers[w].ops[t] |= OP_RECV;
            touch(at, owner);
        } else {
            plan_push(at, t, OP_PUSH);
            at->workers[w].ops[t] |= OP_PULL;
        }
    }
    at->workers[w].ops[t] |= at->latest > 0 ? OP_TRAIN : OP_TRAIN | OP_INIT;
    at->holders = bit(w);
    touch(at, w);
}

static void plan_both(state *at, uint32_t t)
{
    plan_push(at, t, OP_PUSH);
    for (uint32_t w = 0; w < WORKERS; w++) {
        if (!(at->holders & bit(w)))
            at->workers[w].ops[t] |= at->latest > 0 ? OP_PULL : OP_INIT;
        at->workers[w].ops[t] |= OP_GRAD;
        touch(at, w);
    }
    at->holders = 0;
    at->pushed = (uint8_t)t;
}

static bool may_cut(const state *at, uint32_t t)
{
    return at->cut + 1u < CUTS && at->complete == at->cut && at->cut_at[at->cut] + 1u < t;
}

// Slices of a new epoch wait until all have rolled back.
static bool may_plan(const search *x, const state *at, uint32_t t)
{
    const uint8_t waits_for = x->broken == BREAK_WAITED ? bit(OTHER) : bit(OTHER) | bit(WORKERS);
    if (t > SLICES || at->to_roll & waits_for)
        return false;
    for (uint32_t w = 0; w < WORKERS; w++)
        if ((w == OTHER || at->epoch == 1) && t > at->workers[w].done + x->flights)
            return false;
    return true;
}

static void plan_slice(search *x, const state *from, bool cuts)
{
    state at = *from;
    const uint32_t t = from->planned + 1u;
    if (!may_plan(x, from, t) || (cuts && !may_cut(from, t)))
        return;
    if (cuts)
        plan_cut(&at, t);
    const uint8_t trainers = trainers_of(x, from->epoch, t);
    if (trainers == BY_BOTH)
        plan_both(&at, t);
    else if (trainers)
        plan_alone(x, &at, t, rt_lowest_bit(trainers));
    if (trainers) {
        at.last = (row){(uint8_t)t, at.epoch};
        at.latest = (uint8_t)t;
    }
    if (t == FLUSH)
        plan_push(&at, t, OP_PUSH);
    for (uint32_t w = 0; w < WORKERS; w++) {
        at.workers[w].has = (uint8_t)t;
        at.workers[w].cuts[t] = at.cut;
    }
    at.planned = (uint8_t)t;
    add(x, &at);
}

// ---- workers ---------------------------------------------------------------------------------

static void push(state *at, uint32_t w, uint32_t cut)
{
    worker *own = &at->workers[w];
    const message m = {ROW, own->epoch, (uint8_t)(own->done + 1), (uint8_t)cut, own->copy};
    post(own->out, &own->out_count, m);
    own->unconfirmed++;
}

// What the copy owes a cut goes before the copy changes.
static void pay(state *at, uint32_t w, bool is_paid)
{
    worker *own = &at->workers[w];
    if (own->owes && is_paid)
        push(at, w, own->owes - 1u);
    if (is_paid)
        own->owes = 0;
}

static bool may_mark(const search *x, const state *at, uint32_t w)
{
    const worker *own = &at->workers[w];
    const uint32_t slice = at->cut_at[at->cut] + 1u;
    const bool has_begun = own->done >= slice || (own->done + 1u == slice && own->stage);
    const bool is_confirmed = !own->unconfirmed || x->broken == BREAK_MARK;
    return own->marked < at->cut && has_begun && !own->owes && is_confirmed &&
           own->epoch == at->epoch && !at->to_roll;
}

static row image_of(const state *at, uint32_t k)
{
    for (uint32_t i = k; i < CUTS; i++)
        if (at->has_image[i])
            return at->image[i];
    return at->at;
}

static void check_cut(search *x, const state *at)
{
    const row found = image_of(at, at->complete), want = at->cut_row[at->complete];
    if (found.version != want.version || found.epoch != want.epoch)
        BAD(x, "cut %u of iteration %u holds version %u.%u, not %u.%u", at->complete,
            at->cut_at[at->complete], found.version, found.epoch, want.version, want.epoch);
}

// What has to be there before the training of slice t: of the epoch, or of the cut that it began with.
static row expected_of(const search *x, const state *at, uint32_t epoch, uint32_t t)
{
    const uint32_t from = epoch > 1 ? at->cut_at[at->complete] : 0;
    row want = epoch > 1 ? at->cut_row[at->complete] : (row){0, 0};
    for (uint32_t i = from + 1; i < t; i++)
        if (trainers_of(x, epoch, i))
            want = (row){(uint8_t)i, (uint8_t)epoch};
    return want;
}

static void check_read(search *x, const state *at, uint32_t w, uint32_t t)
{
    const row has = at->workers[w].copy, want = expected_of(x, at, at->workers[w].epoch, t);
    if (has.version != want.version || (want.version && has.epoch != want.epoch))
        BAD(x, "worker %u trains %u.%u in iteration %u, not %u.%u", w, has.version, has.epoch, t,
            want.version, want.epoch);
}

static void train(search *x, state *at, uint32_t w, uint32_t t)
{
    worker *own = &at->workers[w];
    check_read(x, at, w, t);
    if (own->ops[t] & OP_TRAIN) {
        if (x->broken != BREAK_TRAINED)
            pay(at, w, true);
        own->copy = (row){(uint8_t)t, own->epoch};
        return;
    }
    pay(at, w, true);
    const message m = {GRAD, own->epoch, (uint8_t)t, own->cuts[t], own->copy};
    post(own->out, &own->out_count, m);
    own->unconfirmed++;
    own->copy = (row){0, 0};
}

static void ask(const search *x, state *at, uint32_t w, uint32_t t)
{
    worker *own = &at->workers[w];
    const row want = {expected_of(x, at, own->epoch, t).version, 0};
    post(own->out, &own->out_count, (message){PULL, own->epoch, (uint8_t)t, own->cuts[t], want});
}

// What the shard lacks was trained since the cut, and has paid.
static void hand_over(state *at, uint32_t w, uint32_t t)
{
    worker *own = &at->workers[w], *peer = &at->workers[1 - w];
    assert_int_equal(own->owes, 0);
    post(peer->hand, &peer->hand_count, (message){ROW, own->epoch, (uint8_t)t, 0, own->copy});
}

// What leaves, and what is asked for.
static void release(const search *x, state *at, uint32_t w, uint32_t t)
{
    worker *own = &at->workers[w];
    const uint8_t ops = own->ops[t];
    if (ops & OP_CUT)
        own->owes = 1 + own->cuts[t];
    if (ops & OP_PUSH) {
        pay(at, w, true);
        push(at, w, own->cuts[t]);
    }
    if (ops & OP_SEND)
        hand_over(at, w, t);
    if (ops & (OP_SEND | OP_PULL | OP_RECV | OP_INIT)) { // another row comes into the slot
        pay(at, w, x->broken != BREAK_FILLED);
        own->owes = 0;
        own->copy = (row){0, 0};
    }
    if (ops & OP_PULL)
        ask(x, at, w, t);
}

// The next step of the next slice: what leaves, then the training.
static void carry_out(search *x, const state *from, uint32_t w)
{
    state at = *from;
    worker *own = &at.workers[w];
    const uint32_t t = own->done + 1u;
    if (t > own->has || (w == MORTAL && !from->lives))
        return;
    const uint8_t ops = own->ops[t];
    if (own->stage == 0) {
        release(x, &at, w, t);
        own->stage = 1;
        add(x, &at);
        return;
    }
    if (ops & (OP_PULL | OP_RECV) && !own->copy.version)
        return; // it has not come yet
    if (ops & (OP_TRAIN | OP_GRAD))
        train(x, &at, w, t);
    own->done = (uint8_t)t;
    own->stage = 0;
    add(x, &at);
}

// In the background, when there is time.
static void pay_in_time(search *x, const state *from, uint32_t w)
{
    state at = *from;
    if (!from->workers[w].owes || (w == MORTAL && !from->lives))
        return;
    pay(&at, w, true);
    add(x, &at);
}

static void say_mark(search *x, const state *from, uint32_t w)
{
    state at = *from;
    if ((w == MORTAL && !from->lives) || !may_mark(x, from, w))
        return;
    at.workers[w].marked = at.cut;
    const bool others = at.workers[1 - w].marked == at.cut || at.epoch > 1;
    if (others || x->broken == BREAK_ONE_MARK) {
        at.complete = at.cut;
        x->cuts++;
        check_cut(x, &at);
    }
    add(x, &at);
}

static bool is_taken(const search *x, const worker *own, const message *m)
{
    return m->epoch == own->epoch || x->broken == BREAK_EPOCH_WORKER;
}

static void roll_worker_back(state *at, uint32_t w)
{
    worker *own = &at->workers[w];
    memset(own->ops, 0, sizeof own->ops);
    memset(own->cuts, 0, sizeof own->cuts);
    own->has = own->done = at->cut_at[at->complete];
    own->stage = own->owes = own->unconfirmed = 0;
    own->marked = at->complete;
    own->epoch = at->epoch;
    at->to_roll &= (uint8_t)~bit(w);
}

static void hear(search *x, const state *from, uint32_t w, bool from_peer)
{
    state at = *from;
    worker *own = &at.workers[w];
    if (w == MORTAL && !from->lives)
        return;
    if (from_peer ? !own->hand_count : !own->in_count)
        return;
    const message m = from_peer ? take(own->hand, &own->hand_count) : take(own->in, &own->in_count);
    if (!from_peer && m.kind == ROLL_BACK)
        roll_worker_back(&at, w);
    else if (is_taken(x, own, &m) && m.slice <= own->done + 1u && own->stage == 1)
        own->copy = m.row;
    else if (is_taken(x, own, &m))
        return; // of a slice that is not there yet: it waits
    add(x, &at);
}

// ---- the shard -------------------------------------------------------------------------------

// Of cuts [from, to] that a roll-back may go to: what a message of cut `to` tells of.
static uint32_t first_of(const search *x, const state *at, uint32_t to)
{
    return x->broken == BREAK_FREED ? to : at->shard_freed;
}

// Before the row becomes another version: what cuts have that are before it.
static void keep_images(const search *x, state *at, uint32_t version, uint32_t cut)
{
    for (uint32_t k = first_of(x, at, cut); k <= cut && x->broken != BREAK_NO_IMAGE; k++) {
        if (at->at.version > at->cut_at[k] || version <= at->cut_at[k] || at->has_image[k])
            continue;
        at->has_image[k] = 1;
        at->image[k] = at->at;
    }
}

// A version that comes behind a later one may be that of a cut.
static void mend_images(const search *x, state *at, row late, uint32_t cut)
{
    for (uint32_t k = first_of(x, at, cut); k <= cut && x->broken != BREAK_LATE; k++)
        if (at->has_image[k] && late.version > at->image[k].version &&
            late.version <= at->cut_at[k])
            at->image[k] = late;
}

static void answer_parked(state *at)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        worker *to = &at->workers[w];
        if (!at->parked[w] || at->parked[w] > at->at.version + 1)
            continue;
        post(to->in, &to->in_count, (message){ROW, at->shard_epoch, 0, 0, at->at});
        at->parked[w] = 0;
    }
}

static void make_sum(const search *x, state *at, uint32_t t, uint32_t cut)
{
    if (at->grads != 3 || at->at.version != at->grad_base)
        return;
    keep_images(x, at, t, cut);
    at->at = (row){(uint8_t)t, at->shard_epoch};
    at->grads = at->grad_base = 0;
    answer_parked(at);
}

static void take_row(const search *x, state *at, const message *m)
{
    if (m->row.version > at->at.version) {
        keep_images(x, at, m->row.version, m->cut);
        at->at = m->row;
        answer_parked(at);
    } else {
        mend_images(x, at, m->row, m->cut);
    }
}

static void take_grad(const search *x, state *at, uint32_t w, const message *m)
{
    at->grads |= bit(w);
    at->grad_base = m->row.version;
    make_sum(x, at, m->slice, m->cut);
}

// Confirmed is what was processed: the confirmation itself takes no time here.
static void deliver(search *x, const state *from, uint32_t w)
{
    state at = *from;
    worker *own = &at.workers[w];
    if (!own->out_count)
        return;
    const message m = take(own->out, &own->out_count);
    if (m.epoch == own->epoch && m.kind != PULL && own->unconfirmed)
        own->unconfirmed--;
    if (m.epoch != at.shard_epoch && x->broken != BREAK_EPOCH_SHARD) {
        add(x, &at);
        return;
    }
    if (m.kind == ROW) {
        take_row(x, &at, &m);
    } else if (m.kind == GRAD) {
        take_grad(x, &at, w, &m);
    } else {
        at.parked[w] = m.row.version + 1;
        answer_parked(&at);
    }
    add(x, &at);
}

// Once the coordinator says that a cut is complete, images of those before it go.
static void free_images(search *x, const state *from)
{
    state at = *from;
    if (from->shard_freed >= from->complete || from->to_roll)
        return;
    for (uint32_t k = at.shard_freed; k < at.complete; k++) {
        at.has_image[k] = 0;
        at.image[k] = (row){0, 0};
    }
    at.shard_freed = at.complete;
    add(x, &at);
}

static void roll_shard_back(search *x, const state *from)
{
    state at = *from;
    if (!(from->to_roll & bit(WORKERS)))
        return;
    at.at = image_of(&at, at.complete);
    memset(at.has_image, 0, sizeof at.has_image);
    memset(at.image, 0, sizeof at.image);
    if (x->broken != BREAK_PARKED) {
        memset(at.parked, 0, sizeof at.parked);
        at.grads = at.grad_base = 0;
    }
    at.shard_epoch = at.epoch;
    at.shard_freed = at.complete;
    at.to_roll &= (uint8_t)~bit(WORKERS);
    add(x, &at);
}

// ---- the loss --------------------------------------------------------------------------------

static void die(search *x, const state *from)
{
    if (!from->lives)
        return;
    const worker *own = &from->workers[MORTAL];
    const uint32_t handed = from->workers[OTHER].hand_count;
    for (uint32_t left = 0; left <= own->out_count; left++)
        for (uint32_t hands = 0; hands <= handed; hands++) {
            state at = *from;
            worker *dead = &at.workers[MORTAL], *peer = &at.workers[OTHER];
            at.lives = 0;
            memset(dead->out + left, 0, (MESSAGES - left) * sizeof *dead->out);
            dead->out_count = (uint8_t)left;
            memset(peer->hand + hands, 0, (MESSAGES - hands) * sizeof *peer->hand);
            peer->hand_count = (uint8_t)hands;
            memset(dead->in, 0, sizeof dead->in);
            memset(dead->hand, 0, sizeof dead->hand);
            dead->in_count = dead->hand_count = 0;
            add(x, &at);
        }
}

// The planner goes back at once, then tells shard and worker.
static void notice(search *x, const state *from)
{
    state at = *from;
    worker *other = &at.workers[OTHER];
    if (from->lives || from->noticed)
        return;
    at.noticed = 1;
    at.epoch = 2;
    if (x->broken == BREAK_OPEN)
        at.complete = at.cut;
    const uint8_t k = at.complete;
    at.cut = k;
    at.planned = at.cut_at[k];
    at.last = at.cut_row[k];
    at.latest = at.pushed = at.last.version;
    at.holders = at.cut_holders[k] & bit(OTHER);
    if (x->broken != BREAK_COPIES)
        at.holders &= (uint8_t)~at.touched[k];
    at.to_roll = bit(OTHER) | bit(WORKERS);
    post(other->in, &other->in_count, (message){ROLL_BACK, 2, 0, 0, {0, 0}});
    x->rolled++;
    add(x, &at);
}

// ---- what must hold --------------------------------------------------------------------------

// Nothing more happens but, at any time, a death.
static void check_end(search *x, const state *at)
{
    const row want = at->last;
    if (at->planned < SLICES || at->workers[OTHER].done < SLICES ||
        (at->lives && at->workers[MORTAL].done < SLICES))
        BAD(x, "stands still after slice %u", at->workers[OTHER].done);
    else if (at->at.version != want.version || at->at.epoch != want.epoch)
        BAD(x, "the shard ends with %u.%u, not %u.%u", at->at.version, at->at.epoch, want.version,
            want.epoch);
}

static void explore(search *x)
{
    state first;
    memset(&first, 0, sizeof first);
    first.lives = first.epoch = first.shard_epoch = 1;
    first.workers[MORTAL].epoch = first.workers[OTHER].epoch = 1;
    explore_states_clear(&x->found);
    add(x, &first);
    for (uint32_t i = 0; i < x->found.count && !*x->violation; i++) {
        const state at = *(const state *)explore_states_at(&x->found, i);
        const uint64_t before = x->transitions;
        plan_slice(x, &at, false);
        plan_slice(x, &at, true);
        for (uint32_t w = 0; w < WORKERS; w++) {
            carry_out(x, &at, w);
            pay_in_time(x, &at, w);
            say_mark(x, &at, w);
            hear(x, &at, w, false);
            hear(x, &at, w, true);
            deliver(x, &at, w);
        }
        free_images(x, &at);
        roll_shard_back(x, &at);
        notice(x, &at);
        const bool is_end = x->transitions == before;
        if (is_end)
            check_end(x, &at);
        die(x, &at);
    }
    x->states += x->found.count;
}

enum { SCENARIOS = 4 * ROLES * ROLES * ROLES, STRIDE = 37 };
_Static_assert(ITERATIONS == 3 && SCENARIOS % STRIDE, "every scenario once");

static void explore_all(search *x, uint32_t count)
{
    explore_states_init(&x->found, sizeof(state), 1u << 20);
    for (uint32_t i = 0; i < count && !*x->violation; i++) {
        const uint32_t number = i * STRIDE % SCENARIOS;
        uint32_t rest = number / 4;
        x->hands = number & 1;
        x->flights = (uint8_t)(1 + (number >> 1 & 1));
        for (uint32_t t = 1; t <= ITERATIONS; t++, rest /= ROLES)
            x->roles[t] = (uint8_t)(rest % ROLES);
        explore(x);
    }
    fprintf(report, "    %s: %llu states, %llu transitions, %llu cuts, %llu roll-backs: %s\n",
            texts[x->broken], (unsigned long long)x->states, (unsigned long long)x->transitions,
            (unsigned long long)x->cuts, (unsigned long long)x->rolled,
            *x->violation ? x->violation : "holds");
    explore_states_fini(&x->found);
}

static void a_run_goes_back_to_its_cut(void **unused)
{
    (void)unused;
    search x = {.broken = BREAK_NONE};
    explore_all(&x, getenv("EXPLORE") ? SCENARIOS : SCENARIOS / 16);
    assert_string_equal(x.violation, "");
    assert_true(x.rolled > 1000 && x.cuts > 1000);
}

static void every_rule_is_needed(void **unused)
{
    (void)unused;
    for (uint32_t b = BREAK_NONE + 1; b < BREAKS; b++) {
        search x = {.broken = (broken)b};
        explore_all(&x, SCENARIOS);
        if (!*x.violation)
            fail_msg("not found: %s", texts[b]);
    }
}

int main(int argc, char **argv)
{
    static const test_case cases[] = {TEST_SLOW(a_run_goes_back_to_its_cut, 300),
                                      TEST_SLOW(every_rule_is_needed, 300)};
    report = fdopen(dup(STDOUT_FILENO), "w");
    assert_non_null(report);
    setvbuf(report, NULL, _IOLBF, 0);
    return test_run(cases, sizeof cases / sizeof cases[0], argc, argv);
}
