// Every reachable state once, depth first.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/explore/explore.h"
#include "tests/support/test.h"

typedef struct {
    ex_state state;
    ex_action actions[EX_ACTIONS];
    uint32_t count, next;
} frame;

typedef struct {
    ex_model model;
    const ex_options *options;
    ex_counts *counts;
    ex_set seen; // Two states of a program are taken for one with a probability of states^2 / 2^65
    ex_reducer *reducer;         // or NULL
    frame *frames[EX_DEPTH + 1]; // as far as there was any
    uint32_t depth;
    uint8_t *bytes;
} search;

static frame *frame_at(search *s, uint32_t depth)
{
    if (!s->frames[depth])
        s->frames[depth] = rt_alloc(1, sizeof *s->frames[depth]);
    assert_non_null(s->frames[depth]);
    return s->frames[depth];
}

// ---- sets ------------------------------------------------------------------------------------

static uint64_t *place_of(const ex_set *set, uint64_t hash)
{
    uint64_t at = hash & (set->size - 1);
    while (set->hashes[at] && set->hashes[at] != hash)
        at = (at + 1) & (set->size - 1);
    return &set->hashes[at];
}

static void grow(ex_set *set)
{
    ex_set larger = {.size = set->size ? 2 * set->size : 128, .count = set->count};
    larger.hashes = rt_alloc(larger.size, sizeof *larger.hashes);
    assert_non_null(larger.hashes);
    for (uint64_t i = 0; i < set->size; i++)
        if (set->hashes[i])
            *place_of(&larger, set->hashes[i]) = set->hashes[i];
    rt_free(set->hashes);
    *set = larger;
}

bool ex_set_has(const ex_set *set, uint64_t hash)
{
    return set->size && *place_of(set, hash + (hash == 0)) != 0;
}

bool ex_set_add(ex_set *set, uint64_t hash)
{
    hash += hash == 0;
    if (2 * set->count >= set->size)
        grow(set);
    uint64_t *place = place_of(set, hash);
    if (*place)
        return false;
    *place = hash;
    set->count++;
    return true;
}

void ex_set_fini(ex_set *set)
{
    rt_free(set->hashes);
    *set = (ex_set){0};
}

// ---- search ----------------------------------------------------------------------------------

static uint64_t hash_of(search *s, const ex_state *state)
{
    return rt_hash_bytes(s->bytes, ex_pack(&s->model, state, s->bytes));
}

static bool is_new(search *s, const ex_state *state, uint64_t *hash_p)
{
    *hash_p = hash_of(s, state);
    return ex_set_add(&s->seen, *hash_p);
}

// An answer that is under way stands for all that can happen.
static bool find_answer(const search *s, frame *f)
{
    for (uint32_t i = 0; i < f->count; i++) {
        if (!ex_is_free(&s->model, &f->state, f->actions[i]))
            continue;
        f->actions[0] = f->actions[i];
        f->count = 1;
        return true;
    }
    return false;
}

// The actions to follow.
static void list_actions(search *s, frame *f)
{
    const ex_options *o = s->options;
    f->next = 0;
    f->count = ex_actions(&s->model, &f->state, f->actions);
    if (o->checked)
        s->counts->compared +=
            ex_check_persistent(&s->model, s->reducer, &f->state, f->actions, f->count);
    if (o->reduction == EX_ALL || find_answer(s, f))
        return;
    if (o->reduction == EX_PERSISTENT)
        f->count = ex_persistent(s->reducer, &f->state, f->actions, f->count);
}

static void end_run(search *s)
{
    const ex_state *states[EX_DEPTH + 1];
    ex_action actions[EX_DEPTH];
    s->counts->leaves++;
    if (!s->options->leaf)
        return;
    for (uint32_t i = 0; i <= s->depth; i++) {
        states[i] = &s->frames[i]->state;
        if (i < s->depth)
            actions[i] = s->frames[i]->actions[s->frames[i]->next - 1];
    }
    s->options->leaf(s->options->context, s->model.program, actions, s->depth, states);
}

// The frame on top is a state: a new one, or the end of this run.
static void enter(search *s)
{
    frame *top = s->frames[s->depth];
    uint64_t hash;
    top->count = top->next = 0;
    if (s->model.failed)
        return;
    if (!is_new(s, &top->state, &hash)) {
        end_run(s);
        return;
    }
    s->counts->states++;
    if (s->options->states_max && s->counts->states > s->options->states_max)
        fail_msg("more than %" PRIu64 " states", s->options->states_max);
    list_actions(s, top);
    if (top->count)
        return;
    s->counts->ends++;
    s->counts->end_hash ^= hash;
    ex_check_end(&s->model, &top->state);
    if (!s->model.failed)
        end_run(s);
}

static void step(search *s)
{
    frame *top = s->frames[s->depth];
    assert_true(s->depth < EX_DEPTH);
    frame_at(s, ++s->depth)->state = top->state;
    s->counts->transitions++;
    if (s->depth > s->counts->depth)
        s->counts->depth = s->depth;
    ex_act_on(&s->model, &s->frames[s->depth]->state, top->actions[top->next++]);
    enter(s);
}

static void print_failure(const search *s, char *text, size_t size)
{
    static const char *const names[] = {"slice", "train", "settle", "up", "back", "cut", "hand"};
    size_t at = (size_t)snprintf(text, size, "%s; after", s->model.violation);
    for (uint32_t i = 0; i < s->depth && at < size; i++) {
        const frame *f = s->frames[i];
        ex_action a = f->actions[f->next - 1];
        at += (size_t)snprintf(text + at, size - at, " %s(%u,%u)", names[a.act], a.worker, a.shard);
    }
}

bool ex_explore(ex_program *program, const ex_options *options, ex_counts *counts, char *violation,
                size_t size)
{
    search s = {.model = {.program = program, .broken = options->broken},
                .options = options,
                .counts = counts};
    *counts = (ex_counts){0};
    s.bytes = rt_alloc(EX_STATE_BYTES, 1);
    assert_non_null(s.bytes);
    if (options->reduction == EX_PERSISTENT || options->checked)
        s.reducer = ex_reducer_create(&s.model);
    ex_start(&s.model, &frame_at(&s, 0)->state);
    enter(&s);
    while (!s.model.failed) {
        frame *top = s.frames[s.depth];
        if (top->next < top->count)
            step(&s);
        else if (s.depth == 0)
            break;
        else
            s.depth--;
    }
    if (s.model.failed)
        print_failure(&s, violation, size);
    ex_reducer_destroy(s.reducer);
    ex_set_fini(&s.seen);
    for (uint32_t i = 0; i <= EX_DEPTH; i++)
        rt_free(s.frames[i]);
    rt_free(s.bytes);
    return !s.model.failed;
}
