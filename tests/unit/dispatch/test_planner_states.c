// Planners as a run has them, of the settings in planners.txt:
//   one that goes on from another's state plans what that one would have, and is told of policies,
//   slices and choices the same; so does one that has more threads
//   a planner of other settings takes a state over, with the caches where it has the same
//   a state, a slice or a chooser's bytes in which some word is another are refused with one of the
//   sentences below, each of which comes up, or taken; a planner with a state that was taken is legal
#include "runtime/config/rt_policies.h"
#include "tests/support/planned.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/planner/dp_planner_parts.h"
#include "runtime/rt_build.h"
#include "runtime/rt_hash.h"
#include "tests/support/records.h"
#include "tests/support/test.h"

#define PLANNERS "tests/unit/dispatch/planners.txt"

// What is said of what cannot be, with # for numbers.
static const char *const refusals[] = {
    "slice: a gradient for a worker that cannot sum it",
    "slice: a gradient names workers that do not exist",
    "slice: a row index is out of range",
    "slice: a row that is handed over by or to no other worker, or without state",
    "slice: a row's home is no shard of this run",
    "slice: a slot is out of range",
    "slice: a sum of gradients of workers that do not train the row",
    "slice: an unknown reason of a push",
    "slice: an unknown training mode",
    "slice: gradients do not fit the rows' modes",
    "slice: impossible log odds of its labels",
    "slice: its iteration does not fit its kind",
    "slice: its length does not fit its counts",
    "slice: look-ups do not fit the fields",
    "slice: more gradients than rows that have one",
    "slice: more operations than slots",
    "slice: more samples or look-ups than announced at the start",
    "slice: no worker takes part, or one that does not exist",
    "slice: rows and look-ups do not fit together",
    "slice: samples do not fit the kind of slice",
    "slice: several labels without weights",
    "slice: shorter than its counts",
    "slice: sums do not fit the rows' modes",
    "slice: unknown flags",
    "slice: unknown flags of a pull",
    "state of the planner has format #, written by another build; this is lanyard , which reads up to #",
    "state of the planner: a policy that cannot be",
    "state of the planner: a slot is free twice or does not exist",
    "state of the planner: a value in force is out of range",
    "state of the planner: a window that cannot be",
    "state of the planner: an input record is out of range",
    "state of the planner: counts of keys that cannot be",
    "state of the planner: it ends early",
    "state of the planner: it ends within the caches that decisions see",
    "state of the planner: it ends within the counts of keys",
    "state of the planner: it ends within the free slots",
    "state of the planner: it ends within the input records",
    "state of the planner: it ends within the keys of a cache",
    "state of the planner: it ends within the policy",
    "state of the planner: it ends within the sizes of the caches",
    "state of the planner: it ends within the window",
    "state of the planner: it ends within the workers",
    "state of the planner: it ends within who takes part",
    "state of the planner: it is not that of this policy",
    "state of the planner: its head cannot be",
    "state of the planner: the eviction of a cache cannot be that of these slots",
    "state of the planner: the shards hold # trained rows, the cut has # (or other versions)",
    "state of the planner: worker # holds key #, which no shard has",
    "the checkpoint was written with consistency.staleness above #, whose versions of rows run ahead of the iterations: keep it above #",
    "participants: the saved state does not fit this run",
};

// ---- what is said ------------------------------------------------------------------------------

// Of many tries: how often each sentence came, and how many were taken.
typedef struct {
    uint32_t counts[RT_COUNT_OF(refusals)], taken;
} said;

static void note(said *all, const char *text)
{
    for (size_t i = 0; i < RT_COUNT_OF(refusals); i++) {
        if (strcmp(refusals[i], text) == 0) {
            all->counts[i]++;
            return;
        }
    }
    fail_msg("it is said that %s", text);
}

// Numbers are others in every try, and a build's name in every commit.
static const char *without_numbers(const char *text)
{
    static char out[200];
    size_t n = 0;
    const size_t build = strlen(rt_build());
    while (*text && n + 20 < sizeof out) {
        if (strncmp(text, rt_build(), build) == 0) {
            text += build;
            continue;
        }
        const size_t digits = strspn(text, "0123456789abcdef");
        const bool is_number = digits == 16 || (*text >= '0' && *text <= '9');
        const size_t length = digits && is_number ? digits : strcspn(text, " ") + 1;
        n += (size_t)snprintf(out + n, sizeof out - n, "%.*s", is_number ? 1 : (int)length,
                              is_number ? "#" : text);
        text += rt_min_u64(length, strlen(text));
    }
    out[n] = '\0';
    return out;
}

// ---- another word ------------------------------------------------------------------------------

#define VALUES 26u

// What a word is tried as. n: workers; slots: of a cache.
static uint32_t value_of(uint32_t which, uint32_t word, uint32_t n, uint32_t slots)
{
    const uint32_t values[VALUES] = {0,
                                     1,
                                     word + 1,
                                     word - 1,
                                     word ^ 0x40,
                                     UINT32_MAX,
                                     UINT32_MAX - 1,
                                     word | 0x80000000u,
                                     0x7ff00000u, // infinity, as the upper half of a double
                                     0x7ff80000u, // not a number
                                     0x3ff00000u, // 1
                                     0x3fefffffu, // less
                                     n,
                                     n - 1,
                                     n + 1,
                                     slots,
                                     slots - 1,
                                     slots + 1,
                                     2 * slots + 1,
                                     DP_INPUTS_WAITING_MAX + 1,
                                     DP_INPUT_KINDS,
                                     RT_POLICY_COUNT,
                                     DP_ITERATIONS_MAX,
                                     DP_ITERATIONS_MAX + 1,
                                     RT_WORKERS_MAX,
                                     RT_WORKERS_MAX + 1};
    return values[which];
}

typedef void try_bytes(void *context, const rt_bytes *bytes, said *all);

// Every value in words that count (closely), in others every so-many-th; and every so-many-th
// length.
static void bend(const rt_bytes *from, const bool *closely, uint32_t every, uint32_t n,
                 uint32_t slots, try_bytes *try_it, void *context, said *all)
{
    rt_bytes bent = {.data = malloc(from->size), .size = from->size};
    memcpy(bent.data, from->data, from->size);
    for (uint32_t i = 0; i < from->size / sizeof(uint32_t); i++) {
        uint32_t word, *at = (uint32_t *)(void *)(bent.data + i * sizeof word);
        memcpy(&word, at, sizeof word);
        for (uint32_t v = 0; v < VALUES; v++) {
            const uint32_t value = value_of(v, word, n, slots);
            if (value == word || (!(closely && closely[i]) && rt_mix(i * VALUES + v) % every))
                continue;
            memcpy(at, &value, sizeof value);
            try_it(context, &bent, all);
        }
        memcpy(at, &word, sizeof word);
    }
    for (bent.size = 0; bent.size < from->size; bent.size++) {
        const bool near = closely && closely[bent.size / sizeof(uint32_t)];
        if ((near && bent.size % 4 == 0) || rt_mix(bent.size) % (4 * every) == 0)
            try_it(context, &bent, all);
    }
    free(bent.data);
}

// ---- states ------------------------------------------------------------------------------------

// Where the sections of a state begin (dp_snapshot.c): a second description of its layout.
typedef struct {
    const rt_bytes *state;
    bool *closely; // by word
    size_t at;
} marks;

static void mark(marks *m, size_t at, uint32_t words)
{
    for (size_t w = at / 4; w < at / 4 + words && w < m->state->size / 4; w++)
        m->closely[w] = true;
}

static uint64_t size_at(const marks *m, size_t at)
{
    uint64_t size = 0;
    memcpy(&size, m->state->data + at, sizeof size);
    return size;
}

// A section behind its size.
static void mark_section(marks *m, uint32_t words)
{
    const uint64_t size = size_at(m, m->at);
    mark(m, m->at, 2 + words);
    m->at += sizeof size + size;
    mark(m, m->at - 8, 2);
}

// Structs that are described (rt_fields.h): in their first words, as far as some are asked for.
static void mark_described(marks *m, uint32_t words, uint64_t count)
{
    uint32_t head[2];
    memcpy(head, m->state->data + m->at + sizeof(uint64_t), sizeof head);
    m->at += sizeof(uint64_t) + sizeof head + head[0];
    mark(m, m->at, words);
    m->at += count * head[1];
}

static void mark_cache(marks *m, uint32_t slots)
{
    const size_t begin = m->at + sizeof(uint64_t);
    const size_t keys = begin + sizeof(uint64_t) + size_at(m, begin) * sizeof(uint32_t);
    mark_section(m, 4);
    mark(m, keys, 2);
    mark(m, keys + slots * sizeof(uint64_t), 8);
}

static bool *mark_state(const planned *p, const rt_bytes *state)
{
    const uint32_t n = p->config.worker_count;
    const dp_planner *planner = p->planner;
    marks m = {.state = state, .closely = calloc(state->size / 4 + 1, sizeof(bool))};
    mark_described(&m, p->is_told ? 14 : 0, 1); // head
    mark_described(&m, p->is_told ? 12 : 0, 1); // values in force
    mark(&m, m.at, p->is_told ? n : 0);
    m.at += n * sizeof(uint32_t);
    mark_described(&m, 8, planner->inputs.waiting_count);
    mark_section(&m, 4); // the policy's
    mark_section(&m, 4); // who takes part
    for (uint32_t i = 0; i < 2; i++)
        if (i ? planner->window != NULL : planner->admission != NULL)
            mark_section(&m, 6);
    for (uint32_t w = 0; w < n; w++) {
        mark_described(&m, !w && p->is_told ? 8 : 0, 1);
        for (uint32_t set = 0; set < 1u + (planner->viewed.caches != NULL); set++) {
            if (w && w + 1 < n)
                m.at += sizeof(uint64_t) + size_at(&m, m.at);
            else
                mark_cache(&m, p->planner_config.slot_count[w]);
        }
    }
    assert_int_equal(m.at, state->size);
    return m.closely;
}

// Into a new planner; NULL: it is taken, else why not. *planner_p: the caller's, in any case.
static const char *load(const planned *p, const dp_planner_config *config, const rt_bytes *state,
                        bool same, dp_planner **planner_p, dp_restored *restored)
{
    static rt_error error;
    rt_reader reader = rt_bytes_reader(state);
    error = (rt_error){0};
    *restored = (dp_restored){0};
    assert_int_equal(dp_planner_create(config, planner_p, NULL), RT_OK);
    planned_tell(p, *planner_p);
    return dp_planner_load(*planner_p, &reader, same, restored, &error) ? error.text : NULL;
}

static void try_state(void *context, const rt_bytes *bytes, said *all)
{
    const planned *p = context;
    dp_planner *planner;
    dp_restored restored;
    rt_error error = {0};
    const char *text = load(p, &p->planner_config, bytes, true, &planner, &restored);
    if (text)
        note(all, without_numbers(text));
    else if (!dp_planner_legal(planner, &error))
        fail_msg("a state is taken, with which %s", error.text);
    all->taken += !text;
    rt_bytes_fini(&restored.chooser_state);
    dp_planner_destroy(planner);
}

static void bend_state(planned *p, const rt_bytes *state, said *all)
{
    if (!p->tries)
        return;
    bool *closely = mark_state(p, state);
    bend(state, closely, p->tries, p->config.worker_count, p->planner_config.slot_count[0],
         try_state, p, all);
    free(closely);
}

// ---- choosers ----------------------------------------------------------------------------------

static void try_chooser(void *context, const rt_bytes *bytes, said *all)
{
    const planned *p = context;
    dp_participants *chooser;
    rt_error error = {0};
    rt_bytes again = {0};
    rt_reader reader = rt_bytes_reader(bytes);
    assert_int_equal(dp_participants_create(&p->planner_config, &chooser), RT_OK);
    if (dp_participants_load(chooser, dp_planner_rates(p->planner), &reader, &error))
        note(all, error.text);
    dp_participants_save(chooser, &again);
    rt_bytes_fini(&again);
    dp_participants_destroy(chooser);
}

static void bend_chooser(planned *p, said *all)
{
    rt_bytes state = {0};
    if (!p->chooser || !p->tries)
        return;
    dp_participants_save(p->chooser, &state);
    bool *closely = calloc(state.size / 4 + 1, sizeof *closely);
    for (uint32_t w = 0; w < 20; w++)
        closely[w] = true;
    bend(&state, closely, 60 * p->tries, p->config.worker_count, 0, try_chooser, p, all);
    free(closely);
    rt_bytes_fini(&state);
}

// ---- slices ------------------------------------------------------------------------------------

static void try_slice(void *context, const rt_bytes *bytes, said *all)
{
    const planned *p = context;
    dp_slice_view view;
    rt_error error = {0};
    const rt_message message = {.data = bytes->data, .size = bytes->size};
    if (bytes->size < sizeof(rt_wire_header))
        return;
    if (dp_slice_decode(&message, &p->limits, &view, &error))
        note(all, error.text);
    else
        all->taken++;
}

static void bend_slice(planned *p, const rt_bytes *bytes, said *all)
{
    if (!bytes->size)
        return;
    bool *closely = calloc(bytes->size / 4 + 1, sizeof *closely);
    for (uint32_t w = 0; w < (sizeof(rt_wire_header) + sizeof(rt_wire_slice)) / 4; w++)
        closely[w] = true;
    p->limits.rank = planned_rank(p);
    bend(bytes, closely, 4, p->config.worker_count, p->planner_config.slot_count[0], try_slice, p,
         all);
    free(closely);
}

static void bend_slices(planned *p, said *all)
{
    const dp_plan *plan;
    rt_message message;
    if (!p->tries_slices)
        return;
    bend_slice(p, &p->first_slice, all);
    bend_slice(p, &p->last_slice, all);
    assert_int_equal(dp_planner_flush(p->planner, &plan), RT_OK);
    assert_int_equal(dp_slice_encode(plan, planned_rank(p), NULL, &p->limits, 0, 1, &message),
                     RT_OK);
    bend_slice(p, &(rt_bytes){.data = message.data, .size = message.size}, all);
    rt_message_release(&message);
}

// ---- what must come of it ----------------------------------------------------------------------

static void step_to(planned *p, uint32_t iteration)
{
    while (p->iteration < iteration && planned_step(p))
        continue;
}

// A planner of other settings has the caches, if it has such; the rest is of its own.
static void load_as(const planned *p, const char *as, const rt_bytes *state)
{
    dp_planner_config config;
    dp_planner *planner;
    dp_restored restored;
    rt_error error = {0};
    const dp_planner_config *own = &p->planner_config;
    const char *why = planned_config(p, as, &config);
    if (why)
        fail_msg("%s: %s", as, why);
    const char *text = load(p, &config, state, false, &planner, &restored);
    const bool fits = config.worker_count == own->worker_count &&
                      config.slot_count[0] == own->slot_count[0] &&
                      config.eviction == own->eviction;
    if (text) {
        assert_non_null(strstr(text, "consistency.staleness"));
    } else {
        assert_int_equal(restored.iteration, p->iteration);
        assert_int_equal(restored.caches, fits);
        assert_true(!restored.policy || config.dispatch.policy == own->dispatch.policy);
        if (!dp_planner_legal(planner, &error))
            fail_msg("%s: %s", as, error.text);
    }
    rt_bytes_fini(&restored.chooser_state);
    dp_planner_destroy(planner);
}

// The rest is planned by one that was made from the state.
static void replace(planned *p, const rt_bytes *state)
{
    dp_planner *planner;
    dp_participants *chooser;
    dp_restored restored;
    rt_error error = {0};
    const dp_plan *plan;
    assert_null(load(p, &p->planner_config, state, true, &planner, &restored));
    assert_true(restored.caches && restored.iteration == p->iteration);
    for (uint32_t slot = 0; dp_planner_refill(planner, 30, &slot, &plan) == RT_OK;)
        continue;
    const dp_rates told = dp_planner_rates_told(planner);
    if (dp_participants_open(&p->planner_config, &restored.chooser_state, &told, &chooser, &error))
        fail_msg("%s", error.text);
    rt_bytes_fini(&restored.chooser_state);
    planned_replace(p, planner, chooser);
}

static void check_same(const planned *a, const planned *b, const char *what)
{
    const planned_sums *x = &a->sums, *y = &b->sums;
    if (x->plans != y->plans || x->views != y->views || x->slices != y->slices ||
        x->decisions != y->decisions)
        fail_msg("%s: plans %d, views %d, slices %d, decisions %d are the same", what,
                 x->plans == y->plans, x->views == y->views, x->slices == y->slices,
                 x->decisions == y->decisions);
}

typedef void check_line(const char *sets);

// Every parts-th of the file.
static void check_lines(uint32_t part, uint32_t parts, check_line *check)
{
    records_list list;
    records_open(PLANNERS, &list);
    for (uint32_t i = part; i < list.count; i += parts) {
        printf("%s\n", list.of[i].name);
        check(strchr(list.of[i].line, ':') + 1);
    }
    records_close(&list);
}

static void check_going_on(const char *sets)
{
    static planned one, other;
    rt_bytes state, same;
    planned_open(&one, sets);
    planned_open(&other, sets);
    step_to(&one, one.cut);
    step_to(&other, other.cut);
    planned_cut(&one, &state);
    planned_cut(&other, &same);
    assert_int_equal(state.size, same.size);
    assert_memory_equal(state.data, same.data, same.size);
    for (uint32_t i = 0; i < one.as_count; i++)
        load_as(&one, one.as[i], &state);
    replace(&one, &state);
    step_to(&one, one.iterations);
    step_to(&other, other.iterations);
    check_same(&one, &other, "one that goes on");
    rt_bytes_fini(&state);
    rt_bytes_fini(&same);
    planned_close(&one);
    planned_close(&other);
}

static void going_on(void **state)
{
    (void)state;
    check_lines(0, 1, check_going_on);
}

static void check_threads(const char *sets)
{
    static planned one, other;
    char more[3000];
    snprintf(more, sizeof more, "%s planner.threads=3", sets);
    planned_open(&one, sets);
    planned_open(&other, more);
    step_to(&one, one.iterations);
    step_to(&other, other.iterations);
    check_same(&one, &other, "one with three threads");
    assert_int_equal(one.sums.times, other.sums.times);
    planned_close(&one);
    planned_close(&other);
}

static void more_threads(void **state)
{
    (void)state;
    check_lines(1, 2, check_threads);
}

static said bent;

static void bend_line(const char *sets)
{
    static planned p;
    rt_bytes state;
    if (!strstr(sets, "tries=") && !strstr(sets, "slices="))
        return;
    planned_open(&p, sets);
    step_to(&p, p.cut);
    planned_cut(&p, &state);
    bend_state(&p, &state, &bent);
    bend_chooser(&p, &bent);
    bend_slices(&p, &bent);
    rt_bytes_fini(&state);
    planned_close(&p);
}

static void other_words(void **state)
{
    (void)state;
    check_lines(0, 1, bend_line);
    for (size_t i = 0; i < RT_COUNT_OF(refusals); i++)
        if (!bent.counts[i])
            fail_msg("nothing is refused with \"%s\"", refusals[i]);
    assert_true(bent.taken > 0);
}

TEST_MAIN(TEST(going_on), TEST(more_threads), TEST(other_words))
