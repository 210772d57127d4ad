// Explores who leads a run that has a standby: docs/PROTOCOL.md, "Who leads", and
// docs/RELIABILITY.md.
//
// Coordinator, standby and shards are a compact model. An event is a start, a crash, a cable that
// is cut or mended, a HELLO, a WELCOME that arrives, a loss that is noticed, a promotion, or
// somebody's event that is sent; every order of them is tried. What must hold: nobody serves in an
// epoch that is over, a coordinator that was replaced never leads again, and an acknowledged event
// is on the disk of whoever leads next ("wait"; with "go_on" those aside that a coordinator took in
// alone before the standby led).
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

enum { HUB, SPARE, COORDINATORS };
enum {
    SHARDS = 2,
    ALL = (1 << SHARDS) - 1,
    EVENTS = 2,
    BLOCK = 16,
    STARTS = 3,
    CUTS = 4,
    CRASHES = 2
};

// Rules, each broken by one name.
#define BREAK_MAP(XX)                                                                         \
    XX(NONE, "nothing")                                                                       \
    XX(NOBODY_CHECKS, "shards neither say nor compare whom they have served")                 \
    XX(NOT_ON_DISK, "a shard that starts anew does not know whom it has served")              \
    XX(NEXT_EPOCH, "a promoted standby begins the next epoch, not the next block")            \
    XX(LEADS_UNHEARD, "a coordinator takes itself for the leader once all have said HELLO")   \
    XX(ACKNOWLEDGES_ALONE, "with \"wait\" events are acknowledged while the standby is away") \
    XX(ACKNOWLEDGES_EARLY, "with \"go_on\" they are before all shards have answered")         \
    XX(PROMOTED_FOLLOWS, "a promoted standby takes blocks of the one before")

typedef enum { BREAK_MAP(EXPLORE_RULE) BREAKS } broken;

static const char *const texts[] = {BREAK_MAP(EXPLORE_TEXT)};

typedef enum { DOWN, GATHERS, WELCOMES, LEADS, REPLACED } phase;

typedef struct {
    uint8_t phase[COORDINATORS], epoch[COORDINATORS], starts[COORDINATORS];
    uint8_t joined[COORDINATORS];   // shards that it believes to have
    uint8_t answered[COORDINATORS]; // that have taken its WELCOME
    uint8_t at[SHARDS];             // 1 + coordinator; 0: connected to none
    uint8_t served[SHARDS];         // epoch, on its disk
    uint8_t promoted, known;        // known: epoch that the standby has been told
    uint8_t mirrors;                // the hub's connection to its standby is there
    uint8_t cut;                    // bit 0: hub from spare; 1 + s: hub from shard s
    uint8_t cuts, crashes, sent;
    uint8_t disk[COORDINATORS], acknowledged, alone; // masks of events
    uint8_t led;  // the spare has: all shards have taken its WELCOME
    uint8_t late; // after that the hub has begun to lead, or acknowledged alone before it leads
} state;

typedef struct {
    broken broken;
    bool waits; // coordinator.standby_away
    explore_states found;
    uint32_t *parents; // by place among them, 1 + place
    uint32_t parent_capacity, from;
    uint64_t transitions;
    char violation[160];
} search;

static void add(search *x, const state *at)
{
    x->transitions++;
    if (!explore_states_add(&x->found, at))
        return;
    assert_int_equal(rt_grow(&x->parents, &x->parent_capacity, x->found.count, sizeof *x->parents),
                     RT_OK);
    x->parents[x->found.count - 1] = x->from;
}

static bool reaches(const state *at, uint32_t c, uint32_t s)
{
    return c == SPARE || !(at->cut >> (1 + s) & 1);
}

static bool hub_reaches_spare(const state *at)
{
    return !(at->cut & 1);
}

static bool is_up(const state *at, uint32_t c)
{
    return at->phase[c] != DOWN && at->phase[c] != REPLACED;
}

static void end(state *at, uint32_t c, phase how)
{
    at->phase[c] = (uint8_t)how;
    at->joined[c] = at->answered[c] = 0;
    for (uint32_t s = 0; s < SHARDS; s++) {
        if (at->at[s] == 1 + c && reaches(at, c, s))
            at->at[s] = 0; // it hears that the connection has ended
    }
    if (c == HUB)
        at->mirrors = 0;
}

// ---- events ----------------------------------------------------------------------------------

static void start(search *x, const state *from, uint32_t c)
{
    state at = *from;
    const bool is_there = hub_reaches_spare(from);
    if (from->phase[c] != DOWN || from->starts[c] == STARTS || (c == SPARE && !from->promoted) ||
        (c == HUB && x->waits && !is_there))
        return;
    at.starts[c]++;
    if (c == HUB && is_there && from->promoted && x->broken != BREAK_PROMOTED_FOLLOWS) {
        end(&at, c, REPLACED);
    } else {
        if (c == HUB && is_there) { // the epoch of the start before, and what is on its disk
            at.mirrors = 1;
            at.known = at.known > at.epoch[HUB] ? at.known : at.epoch[HUB];
            at.disk[SPARE] |= from->starts[SPARE] ? 0 : at.disk[HUB];
        }
        at.epoch[c]++;
        at.phase[c] = GATHERS;
    }
    add(x, &at);
}

static void look_at_mirror(search *x, const state *from)
{
    state at = *from;
    if (!is_up(from, HUB))
        return;
    if (!hub_reaches_spare(from)) {
        at.mirrors = 0;
    } else if (from->promoted && x->broken != BREAK_PROMOTED_FOLLOWS) {
        end(&at, HUB, REPLACED);
    } else {
        at.mirrors = 1;
        at.disk[SPARE] |= from->starts[SPARE] ? 0 : at.disk[HUB];
    }
    add(x, &at);
}

static void say_hello(search *x, const state *from, uint32_t s, uint32_t c)
{
    state at = *from;
    if (from->at[s] || !is_up(from, c) || !reaches(from, c, s))
        return;
    if (from->served[s] > from->epoch[c] && x->broken != BREAK_NOBODY_CHECKS) {
        end(&at, c, REPLACED);
    } else if (from->joined[c] >> s & 1 || from->phase[c] != GATHERS) {
        return; // it has only just been lost: it is to come again
    } else {
        at.at[s] = (uint8_t)(1 + c);
        at.joined[c] |= (uint8_t)(1u << s);
        if (at.joined[c] == ALL)
            at.phase[c] = WELCOMES;
        if (at.phase[c] == WELCOMES && c == HUB && at.led && x->broken == BREAK_LEADS_UNHEARD)
            at.late = 1;
    }
    add(x, &at);
}

static void take_welcome(search *x, const state *from, uint32_t s, uint32_t c)
{
    state at = *from;
    if (from->phase[c] != WELCOMES || from->at[s] != 1 + c || from->answered[c] >> s & 1 ||
        !reaches(from, c, s))
        return;
    if (from->served[s] > from->epoch[c]) {
        if (x->broken == BREAK_NOBODY_CHECKS)
            snprintf(x->violation, sizeof x->violation, "shard %u serves epoch %u after %u", s,
                     from->epoch[c], from->served[s]);
        end(&at, c, DOWN);
    } else {
        at.served[s] = from->epoch[c];
        at.answered[c] |= (uint8_t)(1u << s);
        if (at.answered[c] == ALL) {
            at.phase[c] = LEADS;
            at.late |= c == HUB && at.led;
            at.led |= c == SPARE;
        }
    }
    add(x, &at);
}

// The end of a connection, from either side.
static void lose(search *x, const state *from, uint32_t s)
{
    state at = *from;
    const uint32_t c = from->at[s] - 1u;
    if (from->at[s] && (!reaches(from, c, s) || !is_up(from, c))) {
        at.at[s] = 0;
        add(x, &at);
    }
    for (uint32_t other = 0; other < COORDINATORS; other++) {
        at = *from;
        if (!is_up(from, other) || !(from->joined[other] >> s & 1) ||
            (from->at[s] == 1 + other && reaches(from, other, s)))
            continue;
        end(&at, other, DOWN);
        add(x, &at);
    }
}

static void crash(search *x, const state *from)
{
    if (from->crashes == CRASHES)
        return;
    for (uint32_t s = 0; s < SHARDS; s++) {
        state at = *from;
        at.crashes++;
        at.at[s] = 0;
        at.served[s] = x->broken == BREAK_NOT_ON_DISK ? 0 : at.served[s];
        add(x, &at);
    }
    for (uint32_t c = 0; c < COORDINATORS; c++) {
        state at = *from;
        if (!is_up(from, c))
            continue;
        at.crashes++;
        end(&at, c, DOWN);
        add(x, &at);
    }
}

static void cut_or_mend(search *x, const state *from)
{
    for (uint32_t cable = 0; cable <= SHARDS && from->cuts < CUTS; cable++) {
        state at = *from;
        at.cuts++;
        at.cut ^= (uint8_t)(1u << cable);
        add(x, &at);
    }
}

static void promote(search *x, const state *from)
{
    state at = *from;
    if (from->promoted || !from->starts[HUB] || (!from->known && !from->mirrors))
        return;
    at.promoted = 1;
    at.epoch[SPARE] = (uint8_t)(x->broken == BREAK_NEXT_EPOCH ? from->known : BLOCK - 1);
    add(x, &at);
}

static void send(search *x, const state *from, uint32_t c)
{
    state at = *from;
    const uint8_t event = (uint8_t)(1u << from->sent);
    if (from->sent == EVENTS || !is_up(from, c) || (c == SPARE && !from->promoted))
        return;
    const bool follows = c == HUB && from->mirrors && hub_reaches_spare(from) &&
                         (!from->promoted || x->broken == BREAK_PROMOTED_FOLLOWS);
    const bool hears = from->phase[c] == LEADS || x->broken == BREAK_ACKNOWLEDGES_EARLY ||
                       (from->phase[c] == WELCOMES && x->broken == BREAK_LEADS_UNHEARD);
    const bool alone = !from->mirrors && (x->waits ? x->broken == BREAK_ACKNOWLEDGES_ALONE : hears);
    if (c == HUB && !follows && !alone)
        return; // nobody is told: it is sent again, to somebody
    at.sent++;
    at.disk[c] |= event;
    at.disk[SPARE] |= follows && !from->starts[SPARE] ? event : 0; // else behind what it has read
    at.acknowledged |= event;
    at.alone |= c == HUB && !follows ? event : 0;
    at.late |= c == HUB && !follows && from->phase[HUB] != LEADS && from->led;
    add(x, &at);
}

// ---- what must hold --------------------------------------------------------------------------

static void check(search *x, const state *at)
{
    const uint8_t lost = (uint8_t)(at->acknowledged & ~at->disk[SPARE]);
    const bool both = at->phase[HUB] == LEADS && at->phase[SPARE] == LEADS;
    uint32_t with[COORDINATORS] = {0};
    for (uint32_t s = 0; s < SHARDS; s++) {
        if (at->at[s])
            with[at->at[s] - 1u]++;
    }
    if (*x->violation)
        return;
    if (at->promoted && (x->waits ? lost : lost & ~at->alone))
        snprintf(x->violation, sizeof x->violation, "an acknowledged event is lost");
    else if (at->late)
        snprintf(x->violation, sizeof x->violation, "the hub leads after its standby has led");
    else if (both && with[HUB] == SHARDS && with[SPARE] == SHARDS)
        snprintf(x->violation, sizeof x->violation, "both train");
    else if (at->phase[HUB] == LEADS && with[HUB] == SHARDS && at->led)
        snprintf(x->violation, sizeof x->violation, "the hub trains after its standby has led");
}

// How it came to a state, from the beginning.
static void show(const search *x, uint32_t place)
{
    static const char *const phases[] = {"down", "gathers", "welcomes", "leads", "replaced"};
    const state *at = explore_states_at(&x->found, place);
    if (x->parents[place])
        show(x, x->parents[place] - 1);
    fprintf(report, "    hub %s e%u joined %x answered %x, spare %s%s e%u joined %x answered %x;",
            phases[at->phase[HUB]], at->epoch[HUB], at->joined[HUB], at->answered[HUB],
            phases[at->phase[SPARE]], at->promoted ? " promoted" : "", at->epoch[SPARE],
            at->joined[SPARE], at->answered[SPARE]);
    for (uint32_t s = 0; s < SHARDS; s++)
        fprintf(report, " shard at %u served %u;", at->at[s], at->served[s]);
    fprintf(report, " cut %x, mirrors %u, acknowledged %x, disks %x %x, late %u\n", at->cut,
            at->mirrors, at->acknowledged, at->disk[HUB], at->disk[SPARE], at->late);
}

static void explore(search *x)
{
    state first;
    memset(&first, 0, sizeof first);
    explore_states_init(&x->found, sizeof(state), 1u << 24);
    add(x, &first);
    for (uint32_t i = 0; i < x->found.count && !*x->violation; i++) {
        const state at = *(const state *)explore_states_at(&x->found, i);
        x->from = 1 + i;
        check(x, &at);
        if (*x->violation && x->broken == BREAK_NONE)
            show(x, i);
        for (uint32_t c = 0; c < COORDINATORS; c++) {
            start(x, &at, c);
            send(x, &at, c);
            for (uint32_t s = 0; s < SHARDS; s++) {
                say_hello(x, &at, s, c);
                take_welcome(x, &at, s, c);
            }
        }
        for (uint32_t s = 0; s < SHARDS; s++)
            lose(x, &at, s);
        look_at_mirror(x, &at);
        crash(x, &at);
        cut_or_mend(x, &at);
        promote(x, &at);
    }
    fprintf(report, "    %s, %s: %u states, %llu transitions: %s\n", x->waits ? "wait" : "go_on",
            texts[x->broken], x->found.count, (unsigned long long)x->transitions,
            *x->violation ? x->violation : "holds");
    explore_states_fini(&x->found);
    rt_free(x->parents);
}

static void one_leads_and_nothing_acknowledged_is_lost(void **unused)
{
    (void)unused;
    for (uint32_t waits = 0; waits < 2; waits++) {
        search x = {.waits = waits};
        explore(&x);
        assert_string_equal(x.violation, "");
    }
}

static void every_rule_is_needed(void **unused)
{
    (void)unused;
    for (uint32_t b = BREAK_NONE + 1; b < BREAKS; b++) {
        search x = {.broken = (broken)b,
                    .waits = b == BREAK_ACKNOWLEDGES_ALONE || b == BREAK_PROMOTED_FOLLOWS};
        explore(&x);
        if (!*x.violation)
            fail_msg("not found: %s", texts[b]);
    }
}

int main(int argc, char **argv)
{
    static const test_case cases[] = {TEST_SLOW(one_leads_and_nothing_acknowledged_is_lost, 300),
                                      TEST_SLOW(every_rule_is_needed, 300)};
    report = fdopen(dup(STDOUT_FILENO), "w");
    assert_non_null(report);
    setvbuf(report, NULL, _IOLBF, 0);
    return test_run(cases, sizeof cases / sizeof cases[0], argc, argv);
}
