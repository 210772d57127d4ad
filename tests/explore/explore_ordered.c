// What is right with bounded staleness, and where rows travel rounded: the plans of all workers,
// carried out in the planned order.
#include "tests/explore/explore.h"
#include "tests/support/test.h"

#include <string.h>

typedef struct {
    bool full;
    uint8_t key, value;
} copy;

typedef struct {
    ex_program *program;
    copy copies[EX_WORKERS][EX_SLOTS];
    uint8_t version[EX_KEYS], value[EX_KEYS]; // at the PS
    uint8_t summed[EX_KEYS];                  // workers whose gradients came
} sequence;

static void push_delta(sequence *s, uint32_t worker, const ex_node *n)
{
    copy *c = &s->copies[worker][n->slot];
    assert_true(c->full && c->key == n->key);
    assert_int_equal(s->version[n->key], n->base);
    s->value[n->key] = ex_value_add(s->program, s->value[n->key], c->value);
    s->version[n->key] = n->version;
    c->full = false;
}

// Changes of a slice before its training, or after, in the order of their versions.
static void push_deltas(sequence *s, uint32_t q, bool late)
{
    for (uint32_t version = 1; version < 256; version++)
        for (uint32_t w = 0; w < s->program->scenario.worker_count; w++) {
            const ex_slice *slice = &s->program->slices[q][w];
            bool trained = false;
            for (uint32_t i = 0; i < slice->node_count; i++) {
                const ex_node *n = &slice->nodes[i];
                trained |= n->kind == EX_TRAIN;
                if (n->kind == EX_PUSH_DELTA && n->version == version && trained == late)
                    push_delta(s, w, n);
            }
        }
}

static void push_row(sequence *s, uint32_t worker, const ex_node *n)
{
    copy *c = &s->copies[worker][n->slot];
    ex_program *p = s->program;
    assert_true(c->full && c->key == n->key);
    s->value[n->key] = n->whole ? c->value : ex_value_with_change(p, s->value[n->key], c->value);
    s->version[n->key] = n->version;
    if (n->whole)
        c->value = ex_value_round(p, c->value);
    c->full = n->reason != DP_REASON_EVICT;
}

// Rows that leave, or those that are taken in: pushes behind pulls.
static void push_rows(sequence *s, uint32_t q, bool taken_in)
{
    for (uint32_t w = 0; w < s->program->scenario.worker_count; w++) {
        const ex_slice *slice = &s->program->slices[q][w];
        bool pulled = false;
        for (uint32_t i = 0; i < slice->node_count; i++) {
            const ex_node *n = &slice->nodes[i];
            pulled |= n->kind == EX_PULL || n->kind == EX_INIT;
            if (n->kind == EX_PUSH_ROW && pulled == taken_in)
                push_row(s, w, n);
        }
    }
}

static void fill(sequence *s, uint32_t q, uint32_t worker)
{
    const ex_slice *slice = &s->program->slices[q][worker];
    for (uint32_t i = 0; i < slice->node_count; i++) {
        const ex_node *n = &slice->nodes[i];
        uint8_t value = s->value[n->key];
        if (n->kind != EX_PULL && n->kind != EX_INIT)
            continue;
        assert_int_equal(s->version[n->key], n->kind == EX_PULL ? n->version : 0);
        if (s->program->scenario.rounded && !n->whole && s->version[n->key])
            value = ex_value_round(s->program, value);
        s->copies[worker][n->slot] = (copy){true, n->key, value};
    }
}

static void train(sequence *s, uint32_t q, uint32_t worker)
{
    const ex_slice *slice = &s->program->slices[q][worker];
    for (uint32_t i = 0; i < slice->node_count; i++) {
        const ex_node *n = &slice->nodes[i];
        copy *c = &s->copies[worker][n->slot];
        if (n->kind != EX_TRAIN)
            continue;
        assert_true(c->full && c->key == n->key);
        s->program->reads[slice->iteration][worker][n->key] = c->value;
        if (n->mode == DP_MODE_GRAD)
            s->summed[n->key] |= (uint8_t)(1u << worker);
        else if (!ex_is_bad(&s->program->scenario, slice->iteration))
            c->value = ex_value_step(s->program, c->value, slice->iteration, 1u << worker);
    }
}

static void step_sums(sequence *s, uint32_t iteration)
{
    for (uint32_t k = 0; k < s->program->scenario.key_count; k++) {
        if (!s->summed[k])
            continue;
        if (!ex_is_bad(&s->program->scenario, iteration))
            s->value[k] = ex_value_step(s->program, s->value[k], iteration, s->summed[k]);
        s->version[k] = (uint8_t)iteration;
        s->summed[k] = 0;
    }
}

static void end_rows(sequence *s)
{
    for (uint32_t k = 0; k < s->program->scenario.key_count; k++) {
        if (s->version[k] >= s->program->scenario.floor)
            continue;
        s->version[k] = 0;
        s->value[k] = (uint8_t)k;
    }
}

void ex_expect_ordered(ex_program *p)
{
    const ex_scenario *scenario = &p->scenario;
    sequence s = {.program = p};
    for (uint32_t k = 0; k < scenario->key_count; k++)
        s.value[k] = (uint8_t)k;
    for (uint32_t q = 0; q < p->slice_count; q++) {
        push_deltas(&s, q, false);
        push_rows(&s, q, false);
        for (uint32_t w = 0; w < scenario->worker_count; w++)
            fill(&s, q, w);
        push_rows(&s, q, true);
        for (uint32_t w = 0; w < scenario->worker_count; w++)
            train(&s, q, w);
        step_sums(&s, p->slices[q][0].iteration);
        push_deltas(&s, q, true);
        if (q + 1u == p->cut_slice && scenario->floor)
            end_rows(&s);
        else if (q + 1u == p->cut_slice && scenario->rounded)
            memcpy(p->expected[scenario->cut], s.value, sizeof s.value);
    }
    if (scenario->rounded)
        memcpy(p->expected[scenario->iterations], s.value, sizeof s.value);
    memcpy(p->final_version, s.version, sizeof s.version);
    memcpy(p->final_value, s.value, sizeof s.value);
}
