// Planners as a run has them, against what was recorded of them (tests/golden/planners.golden):
// what they plan, what work each of their steps is said to be, what they tell policies, the slices
// that workers get; their state at a cut, what a planner of another configuration makes of it, and
// what is said of a state, a slice or a chooser's bytes with another word in any place.
//
// A change that is to make others: LANYARD_UPDATE_GOLDEN=1 (or a part of a name) writes the file
// anew. It begins with what was wanted, so that a new one is a new line.
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

#define GOLDEN "tests/golden/planners.golden"
#define PARTS 4u

// ---- what is said ------------------------------------------------------------------------------

#define TEXTS_MAX 40u

// Of many tries: each text with its count, in the order in which they came; and a sum of all.
typedef struct {
    char texts[TEXTS_MAX][200];
    uint32_t counts[TEXTS_MAX];
    uint32_t text_count, tries;
    uint64_t sum;
} said;

static void note(said *all, const char *text, uint64_t more)
{
    uint32_t i = 0;
    while (i < all->text_count && strcmp(all->texts[i], text) != 0)
        i++;
    assert_true(i < TEXTS_MAX && strlen(text) < sizeof *all->texts);
    if (i == all->text_count)
        snprintf(all->texts[all->text_count++], sizeof *all->texts, "%s", text);
    all->counts[i]++;
    all->tries++;
    all->sum = rt_mix(all->sum ^ rt_hash_bytes(text, strlen(text)) ^ rt_mix(more));
}

static void put_said(rt_bytes *record, const char *what, const said *all)
{
    records_put(record, "%s: %" PRIu32 " #%08" PRIx32, what, all->tries, (uint32_t)all->sum);
    for (uint32_t i = 0; i < all->text_count; i++)
        records_put(record, "  %" PRIu32 ": %s", all->counts[i], all->texts[i]);
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
    mark_described(&m, 8, planner->waiting_count);
    mark_section(&m, 4); // the policy's
    mark_section(&m, 4); // who takes part
    for (uint32_t i = 0; i < 2; i++)
        if (i ? planner->window != NULL : planner->admission != NULL)
            mark_section(&m, 6);
    for (uint32_t w = 0; w < n; w++) {
        mark_described(&m, !w && p->is_told ? 8 : 0, 1);
        for (uint32_t set = 0; set < 1u + (planner->shown != NULL); set++) {
            if (w && w + 1 < n)
                m.at += sizeof(uint64_t) + size_at(&m, m.at);
            else
                mark_cache(&m, p->planner_config.slot_count[w]);
        }
    }
    assert_int_equal(m.at, state->size);
    return m.closely;
}

// Into a new planner. Its text, and in *more all that it took over.
static const char *load(const planned *p, const dp_planner_config *config, const rt_bytes *state,
                        bool same, dp_planner **planner_p, dp_restored *restored, uint64_t *more)
{
    static rt_error error;
    rt_reader reader = rt_bytes_reader(state);
    rt_bytes again = {0};
    error = (rt_error){0};
    *restored = (dp_restored){0};
    assert_int_equal(dp_planner_create(config, planner_p, NULL), RT_OK);
    planned_tell(p, *planner_p);
    const rt_status status = dp_planner_load(*planner_p, &reader, same, restored, &error);
    *more = (uint64_t)status;
    if (status)
        return error.text;
    dp_planner_save(*planner_p, &restored->lineup, &again);
    *more ^= rt_hash_bytes(again.data, again.size) ^ restored->caches ^ 2u * restored->policy ^
             4u * restored->iteration ^ reader.left << 40 ^ rt_mix(restored->input_count);
    rt_bytes_fini(&again);
    return "taken";
}

static void try_state(void *context, const rt_bytes *bytes, said *all)
{
    const planned *p = context;
    dp_planner *planner;
    dp_restored restored;
    uint64_t more;
    const char *text = load(p, &p->planner_config, bytes, true, &planner, &restored, &more);
    note(all, without_numbers(text), more);
    rt_bytes_fini(&restored.lineup);
    dp_planner_destroy(planner);
}

static void put_state(rt_bytes *record, planned *p, const rt_bytes *state)
{
    said all = {0};
    records_put(record, "state: %zu bytes #%08" PRIx32, state->size,
                (uint32_t)rt_hash_bytes(state->data, state->size));
    if (!p->tries)
        return;
    bool *closely = mark_state(p, state);
    bend(state, closely, p->tries, p->config.worker_count, p->planner_config.slot_count[0],
         try_state, p, &all);
    put_said(record, "states", &all);
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
    const rt_status status =
        dp_participants_load(chooser, dp_planner_rates(p->planner), &reader, &error);
    dp_participants_save(chooser, &again);
    note(all, status ? error.text : "taken", rt_hash_bytes(again.data, again.size) ^ reader.left);
    rt_bytes_fini(&again);
    dp_participants_destroy(chooser);
}

static void put_chooser(rt_bytes *record, planned *p)
{
    rt_bytes state = {0};
    said all = {0};
    if (!p->chooser)
        return;
    dp_participants_save(p->chooser, &state);
    records_put(record, "chooser: %zu bytes #%08" PRIx32 "%s", state.size,
                (uint32_t)rt_hash_bytes(state.data, state.size),
                dp_participants_searches(p->chooser) ? ", searches" : "");
    if (p->tries) {
        bool *closely = calloc(state.size / 4 + 1, sizeof *closely);
        for (uint32_t w = 0; w < 20; w++)
            closely[w] = true;
        bend(&state, closely, 60 * p->tries, p->config.worker_count, 0, try_chooser, p, &all);
        put_said(record, "choosers", &all);
        free(closely);
    }
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
    const rt_status status = dp_slice_decode(&message, &p->limits, &view, &error);
    note(all, status ? error.text : "taken", (uint64_t)status);
}

static void put_slice(rt_bytes *record, planned *p, const char *what, const rt_bytes *bytes)
{
    said all = {0};
    if (!p->tries_slices || !bytes->size)
        return;
    bool *closely = calloc(bytes->size / 4 + 1, sizeof *closely);
    for (uint32_t w = 0; w < (sizeof(rt_wire_header) + sizeof(rt_wire_slice)) / 4; w++)
        closely[w] = true;
    p->limits.rank = planned_rank(p);
    bend(bytes, closely, 4, p->config.worker_count, p->planner_config.slot_count[0], try_slice, p,
         &all);
    put_said(record, what, &all);
    free(closely);
}

static void put_slices(rt_bytes *record, planned *p)
{
    const dp_plan *plan;
    rt_message message;
    put_slice(record, p, "first slice", &p->first_slice);
    put_slice(record, p, "last slice", &p->last_slice);
    assert_int_equal(dp_planner_flush(p->planner, &plan), RT_OK);
    assert_int_equal(dp_slice_encode(plan, planned_rank(p), NULL, &p->limits, 0, 1, &message),
                     RT_OK);
    put_slice(record, p, "flush", &(rt_bytes){.data = message.data, .size = message.size});
    rt_message_release(&message);
}

// ---- a record ----------------------------------------------------------------------------------

static void put_sums(rt_bytes *record, const planned *p, const char *what)
{
    const planned_sums *s = &p->sums;
    records_put(record,
                "%s: %" PRIu64 " plans #%08" PRIx32 " decisions #%08" PRIx32 " views #%08" PRIx32,
                what, s->planned, (uint32_t)s->plans, (uint32_t)s->decisions, (uint32_t)s->views);
    records_put(record,
                "  work: %" PRIu64 " in %" PRIu64 " steps #%08" PRIx32 "; slices: %" PRIu64
                " bytes #%08" PRIx32,
                s->instructions, s->steps, (uint32_t)s->work, s->slice_bytes, (uint32_t)s->slices);
    if (s->refused || s->sweeps)
        records_put(record, "  %" PRIu64 " refused, %" PRIu64 " ended in %" PRIu64, s->refused,
                    s->ended, s->sweeps);
}

static void put_sets(rt_bytes *record, const planned *p)
{
    char line[1500];
    size_t used = (size_t)snprintf(line, sizeof line,
                                   "sets (%" PRIu64 " searching #%08" PRIx32 "):", p->sums.searched,
                                   (uint32_t)p->sums.choosers);
    for (uint32_t i = 0; i < p->set_count && used + 40 < sizeof line; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, " %" PRIu32 "=%" PRIx64,
                                 p->last_iterations[i], p->last_sets[i]);
    records_put(record, "%s", line);
}

static void put_setup(rt_bytes *record, const dp_planner_config *c)
{
    const dp_rows *rows = &c->rows;
    const dp_rates *rates = &c->rates;
    uint64_t layout = 0;
    for (uint32_t f = 0; f < c->layout.field_count; f++)
        layout = rt_mix(layout ^ c->layout.values[f]) + c->layout.state[f];
    records_put(record,
                "set up: %" PRIu32 " to %" PRIu32 " of %" PRIu32 " samples, %" PRIu32
                " keys, slots %" PRIu32 "+%" PRIu32 ", rows %" PRIu64 " %" PRIu64 " %" PRIu32
                " %" PRIu64 " %" PRIu64 ", shard rows %" PRIu64,
                c->micro_batch_min, dp_planner_micro_batch_max(c), c->sample_count_max,
                c->keys_per_sample_max, c->slot_count[c->worker_count - 1] - c->overshoot,
                c->overshoot, rows->max, rows->keep_min, rows->expire_iterations, rows->admit_bytes,
                c->keys_expected, c->shard_rows_max);
    records_put(
        record,
        "  who %" PRIx64 " at least %" PRIu32 ", ahead %" PRIu32 ", dense %" PRIu64 " %" PRIu64
        " %" PRIu64 ", links %g %g %g %g of %" PRIu32 " %" PRIu32 ", rows #%08" PRIx32,
        c->participants, c->participants_min, dp_planner_ahead(c), c->dense_bytes,
        c->dense_whole_bytes, c->dense_return_bytes, rates->links[0].up_bytes_per_s,
        rates->links[0].down_bytes_per_s, rates->ps_bytes_per_s, rates->compute_s_per_sample[0],
        rates->shards.count, rates->shards.dense_count, (uint32_t)layout);
}

// One that is made in parts, with room for so many keys.
static void put_begun(rt_bytes *record, const planned *p, uint64_t key_count)
{
    dp_planner *planner;
    uint32_t parts = 0;
    assert_int_equal(dp_planner_begin(&p->planner_config, key_count, &planner, NULL), RT_OK);
    for (; !dp_planner_is_whole(planner); parts++)
        assert_int_equal(dp_planner_add_cache(planner), RT_OK);
    const dp_slice *slice = &planner->work.plan.slices[0];
    records_put(record,
                "begun for %" PRIu64 ": %" PRIu32 " parts, directory %" PRIu64
                " bytes, operations %" PRIu32 " %" PRIu32 " %" PRIu32,
                key_count, parts, dp_directory_bytes(&planner->directory), slice->release.capacity,
                slice->fill.capacity, slice->after.capacity);
    dp_planner_destroy(planner);
}

#define LOADED_ROWS_MAX 100000u // larger caches take long to make

// What a planner of another configuration makes of the state. False: there is none.
static bool put_as(rt_bytes *record, const planned *p, const char *as, bool same,
                   const rt_bytes *state)
{
    dp_planner_config config;
    dp_planner *planner;
    dp_restored restored;
    uint64_t more;
    const char *why = planned_config(p, as, &config);
    if (why) {
        records_put(record, "as %s: %s", as, why);
        return false;
    }
    if (!same)
        put_setup(record, &config);
    if (config.slot_count[0] > LOADED_ROWS_MAX)
        return false;
    const char *text = load(p, &config, state, same, &planner, &restored, &more);
    records_put(record, "as %s%s: %s; %s%s%" PRIu32 " %" PRIu64 ", lineup %zu, #%08" PRIx32,
                as ? as : "it was", same ? " (same)" : "", text, restored.caches ? "caches " : "",
                restored.policy ? "policy " : "", restored.iteration, restored.input_count,
                restored.lineup.size, (uint32_t)more);
    rt_bytes_fini(&restored.lineup);
    dp_planner_destroy(planner);
    return true;
}

// The rest is planned by one that was made from the state.
static void go_on(rt_bytes *record, planned *p, const rt_bytes *state)
{
    dp_planner *planner;
    dp_participants *chooser;
    dp_restored restored;
    rt_error error = {0};
    uint64_t more;
    const char *text = load(p, &p->planner_config, state, true, &planner, &restored, &more);
    assert_string_equal(text, "taken");
    const dp_plan *plan;
    uint64_t refilled = 0;
    for (uint32_t slot = 0; dp_planner_refill(planner, 30, &slot, &plan) == RT_OK;)
        for (uint32_t w = 0; w < p->config.worker_count; w++)
            refilled += plan->slices[w].fill.count;
    records_put(record, "refilled: %" PRIu64, refilled);
    if (dp_participants_open(&p->planner_config, &restored.lineup, dp_planner_rates(planner),
                             &chooser, &error))
        fail_msg("%s", error.text);
    rt_bytes_fini(&restored.lineup);
    planned_replace(p, planner, chooser);
    while (p->iteration < p->iterations && planned_step(p))
        continue;
    put_sums(record, p, "after");
}

static void put_cut(rt_bytes *record, planned *p)
{
    rt_bytes state;
    planned_cut(p, &state);
    put_state(record, p, &state);
    put_chooser(record, p);
    put_slices(record, p);
    (void)put_as(record, p, NULL, false, &state);
    put_begun(record, p, 0);
    put_begun(record, p, 700);
    put_begun(record, p, 1000000);
    for (uint32_t i = 0; i < p->as_count; i++) {
        if (put_as(record, p, p->as[i], false, &state))
            (void)put_as(record, p, p->as[i], true, &state);
    }
    go_on(record, p, &state);
    rt_bytes_fini(&state);
}

static char *play(const char *line)
{
    static planned p;
    rt_bytes record = {0};
    const char *sets = strchr(line, ':');
    planned_open(&p, sets + 1);
    while (p.iteration < p.cut && planned_step(&p))
        continue;
    put_sums(&record, &p, "before");
    put_cut(&record, &p);
    put_sets(&record, &p);
    planned_close(&p);
    return records_text(&record);
}

int main(int argc, char **argv)
{
    return records_main(GOLDEN, PARTS, 0, play, argc, argv);
}
