// What is right with bounded staleness: the plans of all workers, carried out in the planned order.
#include "tests/explore/explore.h"
#include "tests/support/test.h"

typedef struct {
    bool full;
    uint8_t key, value;
} copy;

typedef struct {
    ex_program *program;
    copy copies[EX_WORKERS][EX_SLOTS];
    uint8_t version[EX_KEYS], value[EX_KEYS]; // at the PS
} sequence;

static void push(sequence *s, uint32_t worker, const ex_node *n)
{
    copy *c = &s->copies[worker][n->slot];
    assert_true(c->full && c->key == n->key);
    assert_int_equal(s->version[n->key], n->base);
    s->value[n->key] = ex_value_add(s->program, s->value[n->key], c->value);
    s->version[n->key] = n->version;
    c->full = false;
}

// Pushes of a slice before its training, or after, in the order of their versions.
static void push_all(sequence *s, uint32_t q, bool late)
{
    for (uint32_t version = 1; version < 256; version++)
        for (uint32_t w = 0; w < s->program->scenario.worker_count; w++) {
            const ex_slice *slice = &s->program->slices[q][w];
            bool trained = false;
            for (uint32_t i = 0; i < slice->node_count; i++) {
                const ex_node *n = &slice->nodes[i];
                trained |= n->kind == EX_TRAIN;
                if (n->kind == EX_PUSH_DELTA && n->version == version && trained == late)
                    push(s, w, n);
            }
        }
}

static void fill(sequence *s, uint32_t q, uint32_t worker)
{
    const ex_slice *slice = &s->program->slices[q][worker];
    for (uint32_t i = 0; i < slice->node_count; i++) {
        const ex_node *n = &slice->nodes[i];
        if (n->kind == EX_PULL)
            assert_int_equal(s->version[n->key], n->version);
        if (n->kind == EX_INIT)
            assert_int_equal(s->version[n->key], 0);
        if (n->kind == EX_PULL || n->kind == EX_INIT)
            s->copies[worker][n->slot] = (copy){true, n->key, s->value[n->key]};
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
        if (!ex_is_bad(&s->program->scenario, slice->iteration))
            c->value = ex_value_step(s->program, c->value, slice->iteration, 1u << worker);
    }
}

void ex_expect_stale(ex_program *p)
{
    sequence s = {.program = p};
    for (uint32_t k = 0; k < p->scenario.key_count; k++)
        s.value[k] = (uint8_t)k;
    for (uint32_t q = 0; q < p->slice_count; q++) {
        push_all(&s, q, false);
        for (uint32_t w = 0; w < p->scenario.worker_count; w++)
            fill(&s, q, w);
        for (uint32_t w = 0; w < p->scenario.worker_count; w++)
            train(&s, q, w);
        push_all(&s, q, true);
        for (uint32_t k = 0; k < p->scenario.key_count; k++) {
            if (!p->scenario.floor || q + 1u != p->cut_slice || s.version[k] >= p->scenario.floor)
                continue;
            s.version[k] = 0; // a sweep ends it
            s.value[k] = (uint8_t)k;
        }
    }
    for (uint32_t k = 0; k < p->scenario.key_count; k++) {
        p->final_version[k] = s.version[k];
        p->final_value[k] = s.value[k];
    }
}
