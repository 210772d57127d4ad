// plan_checker_parts - what the parts of plan_checker share: its model of keys and slots.
//
// plan_checker.c knows keys, carries a plan out in order and looks at what an iteration leaves;
// plan_checker_moves.c checks what goes out and comes in, plan_checker_training.c what is trained
// and told afterwards. A check that fails says so once, by plan_check_wrong, and returns false.
#ifndef PLAN_CHECKER_PARTS_H
#define PLAN_CHECKER_PARTS_H

#include "runtime/rt_hash.h"
#include "tests/support/plan_checker.h"

typedef struct {
    uint64_t key;
    uint64_t holders;    // H: workers whose copy has version L
    uint32_t version;    // L
    uint32_t version_ps; // P
    uint64_t content;    // that version L must have
    uint64_t content_ps; // that the PS has, of version stored
    uint32_t stored;     // version at the PS
    bool known;          // to the PS
    uint32_t row_pushed; // last version that came as a row

    // The iteration that is carried out.
    uint32_t iteration;
    uint64_t trainers;  // U
    uint64_t batch_sum; // of the gradients of all samples
    uint64_t arrived;   // workers whose gradient the PS has
    uint64_t gradient_sum;
    uint64_t summer, summed; // bit of the worker that sums, or 0; whose gradients it takes
    bool pulled, update_pushed;
    uint64_t sent_to, sent_content; // bit of the worker that a row is on its way to; or 0
    uint32_t sent_by;
} known_key;

typedef struct {
    uint32_t key; // number + 1; 0: free
    uint32_t version;
    uint64_t content;
    uint64_t gradient; // of the training that runs
    bool stale;        // a later version exists: the slot may be filled again
    bool has_state;
    uint32_t filled, evicted, trained; // last iteration in which it was
} model_slot;

struct plan_checker {
    uint64_t participants; // of the plan that is checked
    plan_checker_config config;
    model_slot *slots[RT_WORKERS_MAX];
    known_key *keys;
    uint32_t *slot_of; // key_capacity x worker_count: slot + 1 of a copy, stale or not
    uint32_t key_count, key_capacity, slot_of_capacity;
    uint32_t *table; // number + 1 of a key, by hash
    uint32_t table_size;
    uint32_t *touched; // keys of the batch
    uint32_t touched_count, touched_capacity;
    uint8_t *placed; // by sample
    uint32_t placed_capacity;

    // What is carried out at the moment.
    uint32_t iteration;
    uint32_t worker;
    const rt_batch *batch;
    rt_error *error;
};

// ---- plan_checker.c

// Always false; the error has iteration, worker and key.
bool plan_check_wrong(plan_checker *c, uint64_t key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// What a row begins with.
uint64_t plan_check_initial(uint64_t key);

// The number of a key; a new one is unborn.
uint32_t plan_check_number(plan_checker *c, uint64_t key);

static inline uint32_t *plan_check_slot(const plan_checker *c, uint32_t number)
{
    return &c->slot_of[(size_t)number * c->config.worker_count + c->worker];
}

// One optimizer step: depends on the row before and on the sum, not on the order of the sum.
static inline uint64_t plan_check_stepped(uint64_t content, uint64_t gradient)
{
    return rt_mix(content + rt_mix(gradient));
}

static inline uint64_t plan_check_gradient(uint32_t iteration, uint32_t sample)
{
    return rt_mix((uint64_t)iteration << 32 | sample);
}

static inline bool plan_check_is_summed(const plan_checker *c, const known_key *key)
{
    return rt_bit_count(key->trainers) > 1 || (key->trainers && c->config.always_summed);
}

// ---- plan_checker_moves.c

bool plan_check_release(plan_checker *c, const dp_ops *ops);
bool plan_check_fill(plan_checker *c, const dp_ops *ops);
bool plan_check_evictions(plan_checker *c, const dp_ops *ops);

// The slot of an operation that needs the latest version of op->key in it; NULL: reported.
model_slot *plan_check_held(plan_checker *c, const dp_op *op, known_key **key_p);

// ---- plan_checker_training.c

bool plan_check_train(plan_checker *c, const dp_slice *slice);
bool plan_check_after(plan_checker *c, const dp_ops *ops);

#endif
