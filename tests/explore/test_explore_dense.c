// Explores how dense weights stay those of synchronous training while workers sit out and come
// back: docs/PROTOCOL.md, "Dense weights at the shards".
//
// Workers, shards and coordinator are a compact model that copies its state: an event is a slice
// that comes in or a message that is delivered; after it the part does all that it can. Every order
// of events of every scenario is tried: who takes part in which iteration, which batches are bad,
// how far slices run ahead, one shard or two. Weights are the set of the iterations whose steps are
// in them. tests/conform/test_oracle.c has the real parts do the same, in orders by chance.
// EXPLORE=full explores all scenarios; otherwise every so many of them.
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "runtime/rt_hash.h"
#include "tests/explore/explore_case.h"
#include "tests/explore/explore_rules.h"

// What is explored, also of cases that pass: the runner shows the output of those that fail.
static FILE *report;

enum { WORKERS = 3, SHARDS = 2, ITERATIONS = 4, QUEUE = 12 };

// Rules, each broken by one name.
#define BREAK_MAP(XX)                                                                           \
    XX(NONE, "nothing")                                                                         \
    XX(ONE_SAYS_STEP, "only the lowest rank of an iteration says what becomes of it")           \
    XX(STEP_AT_SUM, "a shard steps with its sum before it knows the verdict")                   \
    XX(BEGIN_LATE, "the weights of the beginning come behind the first gradient")               \
    XX(BEGIN_BY_ZERO, "worker 0 sends them, whether it takes part or not")                      \
    XX(ANSWER_OLD, "a fetch is answered with what there is")                                    \
    XX(NO_WAKE, "a fetch that waits is not looked at again")                                    \
    XX(NO_FETCH, "who comes back trains with the weights it has")                               \
    XX(FETCH_HALF, "who comes back begins once the first shard has answered")                   \
    XX(ASKED_UNREADY, "worker 0 hands the weights out as they are when it is asked at the end") \
    XX(NEVER_SHARED, "who trained alone does not give its weights to the shards")               \
    XX(NOT_AT_END, "who trained alone gives them when others train, and not at the end")        \
    XX(SHARED_FIRST, "a shard keeps the weights that it has")                                   \
    XX(SHARED_OLD, "who trained alone gives the weights from before its last step")             \
    XX(NOT_TOLD, "who trains no more gets no slice that says so")

typedef enum { BREAK_MAP(EXPLORE_RULE) BREAKS } broken;

static const char *const texts[] = {BREAK_MAP(EXPLORE_TEXT)};

typedef struct {
    uint8_t workers, shards, iterations, run_ahead;
    uint8_t part[ITERATIONS + 1]; // mask of workers, by iteration from 1
    uint8_t bad;                  // bits of iterations
    bool leaves_out;              // who sits out gets one slice that says so, and then none
    broken broken;
} scenario;

typedef enum { BEGIN = 1, GRAD, STEP, PULL, SUM, STATE } message_kind;

typedef struct {
    uint8_t kind, iteration, weights; // weights: of BEGIN and STATE
} message;

typedef struct {
    uint8_t count;
    message items[QUEUE];
} queue;

typedef struct {
    uint8_t received; // slices
    uint8_t next;     // iteration that it is at
    uint8_t waits;    // 1: for sums, 2: for weights
    uint8_t got;      // shards that have answered
    uint8_t version, weights[SHARDS];
    uint8_t ahead;    // 1: the shards have not heard of its version
    uint8_t answered; // 1: what it was asked for at the end is out
} worker;

typedef struct {
    uint8_t begun, version, weights, summed;
    uint8_t arrived[ITERATIONS + 1];
    uint8_t wanted[WORKERS]; // version + 1
} shard;

typedef struct {
    worker workers[WORKERS];
    shard shards[SHARDS];
    queue up[WORKERS][SHARDS], back[SHARDS][WORKERS];
} state;

typedef struct {
    const scenario *s;
    uint64_t *seen; // hashes of states, by linear probing; 0: free
    uint64_t room, states, transitions;
    char violation[160];
} search;

static void violate(search *x, const char *what, uint32_t who, uint32_t t)
{
    if (!*x->violation)
        snprintf(x->violation, sizeof x->violation, "%s (%u, iteration %u)", what, who, t);
}

static void put(queue *q, message m)
{
    assert_true(q->count < QUEUE);
    q->items[q->count++] = m;
}

static message take(queue *q)
{
    const message m = q->items[0];
    memmove(q->items, q->items + 1, --q->count * sizeof *q->items);
    q->items[q->count] = (message){0};
    return m;
}

// The steps that synchronous training has made after iteration t.
static uint8_t right(const scenario *s, uint32_t t)
{
    return (uint8_t)(((1u << t) - 1) & ~(s->bad >> 1));
}

static uint8_t with_step(const scenario *s, uint8_t weights, uint32_t t)
{
    return (uint8_t)(s->bad >> t & 1 ? weights : weights | 1u << (t - 1));
}

// ---- a worker --------------------------------------------------------------------------------

static void tell_shards(const scenario *s, state *at, uint32_t w, message_kind kind, uint32_t t)
{
    for (uint32_t k = 0; k < s->shards; k++)
        put(&at->up[w][k], (message){(uint8_t)kind, (uint8_t)t, at->workers[w].weights[k]});
}

static void fetch(const scenario *s, state *at, uint32_t w, uint32_t version)
{
    at->workers[w].waits = 2;
    at->workers[w].got = 0;
    tell_shards(s, at, w, PULL, version);
}

static bool is_alone(const scenario *s, uint32_t w, uint32_t t)
{
    return s->part[t] == 1u << w;
}

static bool is_left_out(const scenario *s, uint32_t w, uint32_t t)
{
    return s->leaves_out && t > 1 && !(s->part[t] >> w & 1) &&
           (s->broken == BREAK_NOT_TOLD || !(s->part[t - 1] >> w & 1));
}

// Its gradient is the sum.
static void train_alone(const scenario *s, state *at, uint32_t w)
{
    worker *one = &at->workers[w];
    for (uint32_t k = 0; k < s->shards; k++)
        one->weights[k] = with_step(s, one->weights[k], one->next);
    one->version = one->next++;
    one->ahead = 1;
}

static void share(const scenario *s, state *at, uint32_t w)
{
    worker *one = &at->workers[w];
    if (!one->ahead || s->broken == BREAK_NEVER_SHARED)
        return;
    one->ahead = 0;
    for (uint32_t k = 0; k < s->shards; k++) {
        const uint32_t last = s->broken == BREAK_SHARED_OLD ? 1u << (one->version - 1) : 0;
        put(&at->up[w][k], (message){BEGIN, one->version, (uint8_t)(one->weights[k] & ~last)});
    }
}

static void begin(search *x, state *at, uint32_t w)
{
    const scenario *s = x->s;
    worker *one = &at->workers[w];
    const uint32_t t = one->next;
    const bool late = s->broken == BREAK_BEGIN_LATE;
    for (uint32_t k = 0; k < s->shards; k++) {
        if (one->weights[k] != right(s, t - 1))
            violate(x, "trains with other weights", w, t);
    }
    if (is_alone(s, w, t)) {
        train_alone(s, at, w);
        return;
    }
    const bool is_first = s->broken == BREAK_BEGIN_BY_ZERO ? false : w == rt_lowest_bit(s->part[1]);
    if (t == 1 && is_first && !late)
        tell_shards(s, at, w, BEGIN, 0);
    tell_shards(s, at, w, GRAD, t);
    if (t == 1 && is_first && late)
        tell_shards(s, at, w, BEGIN, 0);
    one->waits = 1;
    one->got = 0;
}

// All that it can do.
static void go_on(search *x, state *at, uint32_t w)
{
    rt_assert(w < WORKERS);
    const scenario *s = x->s;
    worker *one = &at->workers[w];
    while (!one->waits && one->next <= s->iterations && one->next <= one->received) {
        if (!is_alone(s, w, one->next) && !is_left_out(s, w, one->next))
            share(s, at, w);
        if (one->next == 1 && w == 0 && s->broken == BREAK_BEGIN_BY_ZERO)
            tell_shards(s, at, w, BEGIN, 0);
        if (!(s->part[one->next] >> w & 1)) {
            one->next++;
        } else if (one->version != one->next - 1 && s->broken != BREAK_NO_FETCH) {
            fetch(s, at, w, one->next - 1u);
        } else {
            begin(x, at, w);
        }
    }
    if (one->waits || one->next <= s->iterations)
        return;
    if (w != 0 && s->broken != BREAK_NOT_AT_END)
        share(s, at, w);
    if (w != 0 || one->answered)
        return;
    if (one->version != s->iterations && s->broken != BREAK_ASKED_UNREADY) {
        fetch(s, at, w, s->iterations);
        return;
    }
    one->answered = 1;
    for (uint32_t k = 0; k < s->shards; k++) {
        if (one->weights[k] != right(s, s->iterations))
            violate(x, "hands out other weights", w, s->iterations);
    }
}

static void take_sum(search *x, state *at, uint32_t w, uint32_t k, message m)
{
    const scenario *s = x->s;
    worker *one = &at->workers[w];
    if (one->waits != 1 || m.iteration != one->next || one->got >> k & 1)
        violate(x, "a sum that nobody waits for", w, m.iteration);
    one->got |= (uint8_t)(1u << k);
    if (one->got != rt_bits_below(s->shards))
        return;
    const bool says = s->broken != BREAK_ONE_SAYS_STEP || w == rt_lowest_bit(s->part[one->next]);
    if (says)
        tell_shards(s, at, w, STEP, one->next);
    for (uint32_t i = 0; i < s->shards; i++)
        one->weights[i] = with_step(s, one->weights[i], one->next);
    one->version = one->next++;
    one->waits = 0;
}

static void take_state(search *x, state *at, uint32_t w, uint32_t k, message m)
{
    const scenario *s = x->s;
    worker *one = &at->workers[w];
    const bool half = s->broken == BREAK_FETCH_HALF;
    one->weights[k] = m.weights;
    one->got |= (uint8_t)(1u << k);
    if (one->waits != 2 && !half)
        violate(x, "weights that nobody waits for", w, m.iteration);
    if (one->waits != 2 || (one->got != rt_bits_below(s->shards) && !half))
        return;
    one->version = (uint8_t)(one->next - 1);
    one->waits = 0;
}

// ---- a shard ---------------------------------------------------------------------------------

static void answer(search *x, state *at, uint32_t k)
{
    shard *one = &at->shards[k];
    for (uint32_t w = 0; w < x->s->workers && one->begun; w++) {
        const bool any = x->s->broken == BREAK_ANSWER_OLD;
        if (!one->wanted[w] || (!any && one->wanted[w] != one->version + 1))
            continue;
        put(&at->back[k][w], (message){STATE, one->version, one->weights});
        one->wanted[w] = 0;
    }
}

static void complete_sum(search *x, state *at, uint32_t k, uint32_t t)
{
    const scenario *s = x->s;
    shard *one = &at->shards[k];
    if (!one->begun || one->version != t - 1)
        violate(x, "a sum is complete before the weights are there", k, t);
    one->summed = (uint8_t)t;
    if (s->broken == BREAK_STEP_AT_SUM) {
        one->version = (uint8_t)t;
        one->weights |= (uint8_t)(1u << (t - 1));
        answer(x, at, k);
    }
    for (uint64_t rest = s->part[t]; rest; rest &= rest - 1)
        put(&at->back[k][rt_lowest_bit(rest)], (message){SUM, (uint8_t)t, 0});
}

static void take_step(search *x, state *at, uint32_t k, uint32_t t)
{
    shard *one = &at->shards[k];
    if (one->begun && t <= one->version)
        return; // said before
    if (!one->begun || t != one->version + 1u || one->summed != t) {
        violate(x, "a step that does not follow", k, t);
        return;
    }
    one->weights = with_step(x->s, one->weights, t);
    one->version = (uint8_t)t;
    if (x->s->broken != BREAK_NO_WAKE)
        answer(x, at, k);
}

static void take_by_shard(search *x, state *at, uint32_t k, uint32_t w, message m)
{
    shard *one = &at->shards[k];
    switch ((message_kind)m.kind) {
    case BEGIN:
        if (one->begun && x->s->broken == BREAK_SHARED_FIRST)
            break;
        if (one->begun && (m.iteration <= one->version || one->summed > one->version))
            violate(x, "weights that do not follow", k, m.iteration);
        one->begun = 1;
        one->version = m.iteration;
        one->weights = m.weights;
        answer(x, at, k);
        break;
    case GRAD:
        one->arrived[m.iteration] |= (uint8_t)(1u << w);
        if (one->arrived[m.iteration] == x->s->part[m.iteration])
            complete_sum(x, at, k, m.iteration);
        break;
    case STEP:
        take_step(x, at, k, m.iteration);
        break;
    case PULL:
        if (one->begun && m.iteration < one->version)
            violate(x, "weights of before are asked for", w, m.iteration);
        one->wanted[w] = (uint8_t)(m.iteration + 1);
        answer(x, at, k);
        break;
    case SUM:
    case STATE:
        fail_msg("message %u", m.kind);
    }
}

// ---- all orders ------------------------------------------------------------------------------

// False: it was seen before.
static bool note(search *x, const state *at)
{
    uint64_t hash = rt_hash_bytes(at, sizeof *at);
    hash = hash ? hash : 1;
    if (2 * x->states >= x->room) {
        uint64_t *old = x->seen, room = x->room;
        x->room = room ? 2 * room : 1 << 12;
        x->seen = calloc(x->room, sizeof *x->seen);
        assert_non_null(x->seen);
        for (uint64_t i = 0; i < room; i++) {
            uint64_t place = old[i] % x->room;
            while (old[i] && x->seen[place])
                place = (place + 1) % x->room;
            if (old[i])
                x->seen[place] = old[i];
        }
        free(old);
    }
    uint64_t place = hash % x->room;
    for (; x->seen[place]; place = (place + 1) % x->room)
        if (x->seen[place] == hash)
            return false;
    x->seen[place] = hash;
    x->states++;
    return true;
}

static void check_end(search *x, const state *at)
{
    const scenario *s = x->s;
    for (uint32_t w = 0; w < s->workers; w++) {
        if (at->workers[w].next <= s->iterations || at->workers[w].waits)
            violate(x, "nothing can happen any more", w, at->workers[w].next);
    }
    for (uint32_t k = 0; k < s->shards; k++) {
        const shard *one = &at->shards[k];
        bool waiting = false;
        for (uint32_t w = 0; w < s->workers; w++)
            waiting |= one->wanted[w] != 0;
        if (waiting || (!at->workers[0].ahead &&
                        (one->version != s->iterations || one->weights != right(s, s->iterations))))
            violate(x, "a shard is not where it should be at the end", k, one->version);
    }
    if (!at->workers[0].answered)
        violate(x, "the weights do not come at the end", 0, s->iterations);
}

// The first iteration from t on of which a worker gets a slice; past the last one: the flush.
static uint32_t next_slice(const scenario *s, uint32_t w, uint32_t t)
{
    while (t <= s->iterations && is_left_out(s, w, t))
        t++;
    return t;
}

// Up to which iteration the worker may get slices now; 0: none. What is left out nobody waits for.
static uint32_t may_receive(const scenario *s, const state *at, uint32_t w)
{
    uint32_t least = ITERATIONS + 1;
    for (uint32_t i = 0; i < s->workers; i++) {
        const uint32_t own = next_slice(s, i, at->workers[i].next);
        least = own < least ? own : least;
    }
    uint32_t t = next_slice(s, w, at->workers[w].received + 1u);
    t = t > s->iterations ? s->iterations : t; // a flush comes with the last slices
    return t > at->workers[w].received && t <= least + s->run_ahead ? t : 0;
}

static void explore(search *x, const state *at)
{
    const scenario *s = x->s;
    bool any = false;
    if (*x->violation || !note(x, at))
        return;
    for (uint32_t w = 0; w < s->workers && !*x->violation; w++) {
        const uint32_t last = may_receive(s, at, w);
        if (last) {
            state next = *at;
            next.workers[w].received = (uint8_t)last;
            go_on(x, &next, w);
            x->transitions++;
            explore(x, &next);
            any = true;
        }
        for (uint32_t k = 0; k < s->shards; k++) {
            if (at->up[w][k].count) {
                state next = *at;
                take_by_shard(x, &next, k, w, take(&next.up[w][k]));
                x->transitions++;
                explore(x, &next);
                any = true;
            }
            if (at->back[k][w].count) {
                state next = *at;
                const message m = take(&next.back[k][w]);
                (m.kind == SUM ? take_sum : take_state)(x, &next, w, k, m);
                go_on(x, &next, w);
                x->transitions++;
                explore(x, &next);
                any = true;
            }
        }
    }
    if (!any)
        check_end(x, at);
}

static void run(const scenario *s, search *x)
{
    static state first; // padding is zero, too
    memset(&first, 0, sizeof first);
    *x = (search){.s = s};
    for (uint32_t w = 0; w < s->workers; w++)
        first.workers[w].next = 1;
    explore(x, &first);
    free(x->seen);
}

// Scenario number `number` of all with so many workers, iterations and shards; false past the last.
static bool draw(uint64_t number, scenario *s)
{
    const uint32_t sets = (1u << s->workers) - 1;
    for (uint32_t t = 1; t <= s->iterations; t++, number /= sets)
        s->part[t] = (uint8_t)(1 + number % sets);
    s->run_ahead = (uint8_t)(number % 3);
    number /= 3;
    s->bad = (uint8_t)(number % (1u << s->iterations) << 1);
    return number < 1u << s->iterations;
}

static void explore_all(uint8_t workers, uint8_t shards, uint8_t iterations, bool leaves_out,
                        uint64_t every)
{
    uint64_t scenarios = 0, states = 0, transitions = 0;
    for (uint64_t number = 0;; number += ex_is_full() ? 1 : every) {
        search x;
        scenario s = {.workers = workers,
                      .shards = shards,
                      .iterations = iterations,
                      .leaves_out = leaves_out};
        if (!draw(number, &s))
            break;
        run(&s, &x);
        if (*x.violation)
            fail_msg("scenario %llu of %u workers, %u shards: %s", (unsigned long long)number,
                     workers, shards, x.violation);
        scenarios++;
        states += x.states;
        transitions += x.transitions;
    }
    fprintf(report,
            "%u workers, %u shards, %u iterations%s: %llu scenarios, %llu states, %llu "
            "transitions\n",
            workers, shards, iterations, leaves_out ? ", left out" : "",
            (unsigned long long)scenarios, (unsigned long long)states,
            (unsigned long long)transitions);
    assert_true(scenarios > 10);
}

static void every_order(void **context)
{
    (void)context;
    explore_all(2, 1, 4, false, 1);
    explore_all(2, 2, 3, false, 1);
    explore_all(3, 1, 3, false, 7);
    explore_all(3, 2, 2, false, 31);
    if (ex_is_full())
        explore_all(3, 1, 4, false, 1);
}

// Slices with nothing in them do not go out.
static void every_order_with_slices_left_out(void **context)
{
    (void)context;
    explore_all(2, 1, 4, true, 1);
    explore_all(2, 2, 3, true, 1);
    explore_all(3, 1, 3, true, 7);
    explore_all(3, 2, 2, true, 31);
}

// Each is found in some scenario of two or three workers.
static void broken_rules(void **context)
{
    (void)context;
    for (uint32_t b = 1; b < BREAKS; b++) {
        uint64_t found = 0, tried = 0;
        char first[160] = "";
        for (uint64_t number = 0; !found || number < 40; number++) {
            search x;
            scenario s = {.workers = 3, .shards = 2, .iterations = 2, .broken = (broken)b};
            s.leaves_out = s.broken == BREAK_NOT_TOLD;
            if (!draw(number * 5 + 3, &s))
                break;
            run(&s, &x);
            tried++;
            found += *x.violation != 0;
            if (*x.violation && !*first)
                snprintf(first, sizeof first, "%s", x.violation);
        }
        fprintf(report, "%s: %llu of %llu, %s\n", texts[b], (unsigned long long)found,
                (unsigned long long)tried, first);
        if (!found)
            fail_msg("nothing is found where %s", texts[b]);
    }
}

int main(int argc, char **argv)
{
    static const test_case cases[] = {TEST_SLOW(every_order, 3600),
                                      TEST_SLOW(every_order_with_slices_left_out, 3600),
                                      TEST_SLOW(broken_rules, 300)};
    report = fdopen(dup(STDOUT_FILENO), "w");
    assert_non_null(report);
    setvbuf(report, NULL, _IOLBF, 0);
    return test_run(cases, sizeof cases / sizeof cases[0], argc, argv);
}
