// explore_parts - what the files of the exploration's model share.
#ifndef EXPLORE_PARTS_H
#define EXPLORE_PARTS_H

#include "tests/explore/explore.h"
#include "tests/support/test.h"

// A rule or an invariant does not hold. The first one counts.
__attribute__((format(printf, 2, 3))) void ex_violate(ex_model *model, const char *format, ...);

static inline const ex_scenario *scenario_of(const ex_model *m)
{
    return &m->program->scenario;
}

static inline const ex_slice *slice_at(const ex_model *m, uint32_t slice, uint32_t worker)
{
    rt_assert(slice < EX_SLICES && worker < EX_WORKERS);
    return &m->program->slices[slice][worker];
}

static inline const ex_node *node_at(const ex_model *m, uint32_t worker, uint32_t at)
{
    return &slice_at(m, at / EX_NODES, worker)->nodes[at % EX_NODES];
}

static inline uint32_t shard_of(const ex_model *m, const ex_node *n)
{
    const ex_scenario *s = scenario_of(m);
    return s->homes ? n->shard : ex_shard_of(s, n->key);
}

static inline bool is_done(const ex_worker *w, uint32_t at)
{
    return w->done[at / EX_NODES] >> at % EX_NODES & 1;
}

// Every earlier node on its slot is complete: rel(slot).
static inline bool is_released(const ex_worker *w, const ex_node *n)
{
    return !n->previous || is_done(w, n->previous - 1u);
}

static inline void queue_put(ex_queue *q, ex_message message)
{
    assert_true(q->count < EX_QUEUE);
    q->messages[(q->first + q->count++) % EX_QUEUE] = message;
}

static inline const ex_message *queue_head(const ex_queue *q)
{
    return &q->messages[q->first];
}

static inline ex_message queue_take(ex_queue *q)
{
    ex_message message = q->messages[q->first];
    q->first = (uint8_t)((q->first + 1) % EX_QUEUE);
    q->count--;
    return message;
}

static inline ex_message message_of(ex_message_kind kind, uint32_t at, const ex_node *n)
{
    return (ex_message){.kind = (uint8_t)kind,
                        .slice = (uint8_t)(at / EX_NODES),
                        .node = (uint8_t)(at % EX_NODES),
                        .key = n->key,
                        .version = n->version};
}

static inline ex_row *row_at(const ex_model *m, ex_state *state, uint32_t shard, uint32_t key)
{
    rt_assert(shard < scenario_of(m)->shard_count && key < EX_KEYS);
    return &state->rows[shard][key];
}

// The step flag of a worker's gradient.
static inline bool batch_counts(const ex_model *m, uint32_t worker, uint32_t iteration)
{
    return !ex_is_bad(scenario_of(m), iteration) || m->broken == EX_BREAK_NO_VERDICT ||
           (m->broken == EX_BREAK_IGNORE_VERDICT && worker == 0);
}

// ---- explore_model.c

bool ex_may_cut(const ex_model *model, const ex_state *state, uint32_t shard);

// ---- explore_worker.c

void ex_worker_receive_slice(ex_model *model, ex_state *state, uint32_t worker);
void ex_worker_train(ex_model *model, ex_state *state, uint32_t worker);
void ex_worker_settle(ex_model *model, ex_state *state, uint32_t worker);
void ex_worker_receive(ex_model *model, ex_state *state, uint32_t worker, uint32_t shard);
void ex_worker_receive_handed(ex_model *model, ex_state *state, uint32_t worker, uint32_t from);
bool ex_worker_may_train(const ex_model *model, const ex_state *state, uint32_t worker);
bool ex_worker_may_settle(const ex_model *model, const ex_state *state, uint32_t worker);

// Every slice that came is carried out; pushes may be unconfirmed.
bool ex_worker_done(const ex_model *model, const ex_state *state, uint32_t worker);

// ---- explore_ps.c

void ex_ps_receive(ex_model *model, ex_state *state, uint32_t worker, uint32_t shard);

#endif
