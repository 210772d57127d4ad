// Every reachable state once, depth first.
#include <stdio.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/explore.h"
#include "tests/support/test.h"

typedef struct {
    ex_state state;
    ex_action actions[EX_ACTIONS];
    uint32_t count, next;
} frame;

// Hashes of the states that were seen: 0 is a free place. Two states of one scenario are taken for
// one with a probability of states^2 / 2^65: 10^-7 at two million states.
typedef struct {
    uint64_t *hashes;
    uint64_t size, count;
} seen_set;

typedef struct {
    ex_model model;
    const ex_options *options;
    ex_counts *counts;
    seen_set seen;
    frame *frames;
    uint32_t depth;
    uint8_t *bytes;
} search;

static bool insert(seen_set *seen, uint64_t hash)
{
    uint64_t at = hash & (seen->size - 1);
    hash += hash == 0;
    while (seen->hashes[at] && seen->hashes[at] != hash)
        at = (at + 1) & (seen->size - 1);
    if (seen->hashes[at])
        return false;
    seen->hashes[at] = hash;
    seen->count++;
    return true;
}

static void grow(seen_set *seen)
{
    seen_set larger = {.size = seen->size ? 2 * seen->size : 1024};
    larger.hashes = rt_alloc(larger.size, sizeof *larger.hashes);
    assert_non_null(larger.hashes);
    for (uint64_t i = 0; i < seen->size; i++)
        if (seen->hashes[i])
            insert(&larger, seen->hashes[i]);
    rt_free(seen->hashes);
    *seen = larger;
}

static uint64_t hash_of(search *s, const ex_state *state)
{
    return rt_hash_bytes(s->bytes, ex_pack(&s->model, state, s->bytes));
}

static bool is_new(search *s, const ex_state *state, uint64_t *hash_p)
{
    if (2 * s->seen.count >= s->seen.size)
        grow(&s->seen);
    *hash_p = hash_of(s, state);
    return insert(&s->seen, *hash_p);
}

// The actions to follow: one that commutes with all others stands for them.
static void list_actions(search *s, frame *f)
{
    f->next = 0;
    f->count = ex_actions(&s->model, &f->state, f->actions);
    for (uint32_t i = 0; s->options->reduced && i < f->count; i++) {
        if (!ex_is_free(&s->model, &f->state, f->actions[i]))
            continue;
        f->actions[0] = f->actions[i];
        f->count = 1;
        return;
    }
}

static void end_run(search *s)
{
    const ex_state *states[EX_DEPTH + 1];
    ex_action actions[EX_DEPTH];
    s->counts->leaves++;
    if (!s->options->leaf)
        return;
    for (uint32_t i = 0; i <= s->depth; i++) {
        states[i] = &s->frames[i].state;
        if (i < s->depth)
            actions[i] = s->frames[i].actions[s->frames[i].next - 1];
    }
    s->options->leaf(s->options->context, s->model.program, actions, s->depth, states);
}

// The frame on top is a state: a new one, or the end of this run.
static void enter(search *s)
{
    frame *top = &s->frames[s->depth];
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
        fail_msg("more than %llu states", (unsigned long long)s->options->states_max);
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
    frame *top = &s->frames[s->depth];
    assert_true(s->depth < EX_DEPTH);
    s->frames[++s->depth].state = top->state;
    s->counts->transitions++;
    if (s->depth > s->counts->depth)
        s->counts->depth = s->depth;
    ex_act_on(&s->model, &s->frames[s->depth].state, top->actions[top->next++]);
    enter(s);
}

static void print_failure(const search *s, char *text, size_t size)
{
    static const char *const names[] = {"slice", "train", "settle", "up", "back", "cut"};
    size_t at = (size_t)snprintf(text, size, "%s; after", s->model.violation);
    for (uint32_t i = 0; i < s->depth && at < size; i++) {
        const frame *f = &s->frames[i];
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
    s.frames = rt_alloc(EX_DEPTH + 1, sizeof *s.frames);
    s.bytes = rt_alloc(EX_STATE_BYTES, 1);
    assert_true(s.frames && s.bytes);
    ex_start(&s.model, &s.frames[0].state);
    enter(&s);
    while (!s.model.failed) {
        frame *top = &s.frames[s.depth];
        if (top->next < top->count)
            step(&s);
        else if (s.depth == 0)
            break;
        else
            s.depth--;
    }
    if (s.model.failed)
        print_failure(&s, violation, size);
    rt_free(s.seen.hashes);
    rt_free(s.frames);
    rt_free(s.bytes);
    return !s.model.failed;
}
