// A slice by hand, with every operation there is: where each value stands in the message, and which
// values no worker takes.
#include "dispatch/plan/dp_slice_wire.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

#define COORDINATOR rt_peer(RT_ROLE_COORDINATOR, 0)
#define WORKERS 4u
#define RANK 1u
#define SHARDS 4u
#define SLOTS 21u
#define ROWS 5u
#define KEY(n) (UINT64_C(0xabc0000000000000) + (n))
#define NONE DP_NO_WORKER

typedef struct {
    rt_batch batch;
    uint32_t key_offsets[4], bag_offsets[7], lookups[8];
    uint64_t keys[8];
    float dense[6], labels[3];
    uint32_t samples[2], lookup_rows[6];
    dp_row rows[ROWS];
    dp_plan plan;
    dp_slice_limits limits;
} made;

static void add(dp_ops *ops, dp_op op, uint32_t shard)
{
    dp_op *to = dp_ops_add(ops, (dp_op_kind)op.kind);
    assert_non_null(to);
    *to = op;
    dp_op_set_shard(to, shard);
}

// Rows of worker 1: own, a gradient to the PS, own, one that is summed here, and one that worker 3
// sums.
static void make_ops(dp_slice *s)
{
    static const uint32_t modes[ROWS] = {DP_MODE_OWN, DP_MODE_GRAD, DP_MODE_OWN, DP_MODE_REDUCE,
                                         DP_MODE_GRAD};
    for (uint32_t r = 0; r < ROWS; r++)
        s->rows[r] = (dp_row){.slot = 5 - r, .version = 30 + r, .mode = modes[r]};
    add(&s->release,
        (dp_op){.kind = DP_OP_PUSH_ROW,
                .slot = 11,
                .version = 3,
                .peer = NONE,
                .reason = DP_REASON_EVICT,
                .flags = DP_OP_WHOLE},
        2);
    add(&s->release, (dp_op){.kind = DP_OP_DROP, .slot = 13}, 0);
    add(&s->release, (dp_op){.kind = DP_OP_SEND, .slot = 12, .version = 4, .peer = 2}, 1);
    add(&s->release,
        (dp_op){.kind = DP_OP_PUSH_DELTA,
                .slot = 14,
                .mask = 5,
                .version = 9,
                .base = 7,
                .pulls = 2,
                .reason = DP_REASON_FLUSH},
        0);
    add(&s->release, (dp_op){.kind = DP_OP_DROP, .slot = 10}, 0);
    add(&s->fill,
        (dp_op){.kind = DP_OP_PULL,
                .key = KEY(1),
                .slot = 15,
                .version = 6,
                .peer = NONE,
                .flags = DP_OP_STATE | DP_OP_WHOLE},
        3);
    add(&s->fill, (dp_op){.kind = DP_OP_INIT, .key = KEY(3), .slot = 17}, 0);
    add(&s->fill,
        (dp_op){.kind = DP_OP_RECV,
                .key = KEY(2),
                .slot = 16,
                .version = 8,
                .peer = 0,
                .flags = DP_OP_STATE},
        0);
    add(&s->fill, (dp_op){.kind = DP_OP_INIT, .key = KEY(5), .slot = 0}, 0);
    add(&s->after, (dp_op){.kind = DP_OP_PUSH_ROW, .slot = 19, .version = 1, .peer = NONE}, 1);
    add(&s->after,
        (dp_op){.kind = DP_OP_PUSH_GRAD, .slot = 4, .mask = 0xb, .base = 3, .peer = NONE}, 2);
    add(&s->after, (dp_op){.kind = DP_OP_SUM, .key = KEY(7), .slot = 2, .mask = 7, .peer = 0}, 0);
    add(&s->after, (dp_op){.kind = DP_OP_SUM, .key = KEY(7), .slot = 2, .mask = 7, .peer = 2}, 0);
    add(&s->after, (dp_op){.kind = DP_OP_REDUCE, .slot = 1, .mask = 0xe, .base = 4, .peer = 3}, 3);
    add(&s->after,
        (dp_op){.kind = DP_OP_PUSH_DELTA,
                .slot = 20,
                .mask = 6,
                .version = 10,
                .base = 8,
                .pulls = 1,
                .reason = DP_REASON_UPDATE},
        0);
    add(&s->after, (dp_op){.kind = DP_OP_FORGET, .key = KEY(8), .version = 12}, 3);
    add(&s->after, (dp_op){.kind = DP_OP_FORGET, .key = KEY(9), .version = 13}, 1);
}

// Samples 2 and 0 of three; two fields, two dense features.
static void make(made *m)
{
    memset(m, 0, sizeof *m);
    const uint32_t key_offsets[] = {0, 2, 4, 7};
    memcpy(m->key_offsets, key_offsets, sizeof key_offsets);
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t k = key_offsets[i]; k < key_offsets[i + 1]; k++)
            m->keys[k] = rt_key(k > key_offsets[i], 100 + k);
        m->labels[i] = i == 1;
        m->dense[2 * i] = (float)i;
        m->dense[2 * i + 1] = (float)i + 0.5f;
    }
    m->batch = (rt_batch){.sample_count = 3,
                          .dense_count = 2,
                          .label_count = 1,
                          .key_count = 7,
                          .labels = m->labels,
                          .dense = m->dense,
                          .key_offsets = m->key_offsets,
                          .keys = m->keys};
    m->limits = (dp_slice_limits){.dense_count = 2,
                                  .field_count = 2,
                                  .worker_count = WORKERS,
                                  .rank = RANK,
                                  .batch_samples = 4,
                                  .sample_count_max = 2,
                                  .lookup_count_max = 6,
                                  .slot_count = SLOTS,
                                  .shard_count = SHARDS,
                                  .hands = true,
                                  .sums = true};
    assert_int_equal(dp_plan_init(&m->plan, WORKERS), RT_OK);
    m->plan.iteration = 5;
    m->plan.step = 5;
    m->plan.sample_count = 3;
    m->plan.participants = 0xf;
    m->plan.dense_chunk_floats = 4096;
    dp_slice *s = &m->plan.slices[RANK];
    assert_int_equal(dp_slice_reserve(s, 2, 6), RT_OK);
    const uint32_t samples[] = {2, 0}, lookup_rows[] = {0, 1, 2, 3, 4};
    memcpy(s->samples, samples, sizeof samples);
    memcpy(s->lookup_rows, lookup_rows, sizeof lookup_rows);
    s->sample_count = 2;
    s->lookup_count = 5;
    s->row_count = ROWS;
    make_ops(s);
}

static rt_message encode(const made *m)
{
    rt_message message;
    assert_int_equal(
        dp_slice_encode(&m->plan, RANK, &m->batch, &m->limits, COORDINATOR, 9, &message), RT_OK);
    assert_int_equal(message.size, dp_slice_bytes(&m->plan, RANK, &m->batch, &m->limits));
    return message;
}

static dp_slice_view decode(const made *m, const rt_message *message)
{
    dp_slice_view view;
    rt_error error = {0};
    if (dp_slice_decode(message, &m->limits, &view, &error))
        fail_msg("%s", error.text);
    return view;
}

#define SAME(array, ...)                                   \
    do {                                                   \
        const __typeof__(*(array)) want[] = {__VA_ARGS__}; \
        assert_non_null(array);                            \
        assert_memory_equal(array, want, sizeof want);     \
    } while (0)

static void check_ops(const dp_slice_view *v)
{
    SAME(v->push_slots, 11, 12, 19);
    SAME(v->push_versions, 3, 4, 1);
    SAME(v->push_reasons, DP_REASON_EVICT | DP_PUSH_WHOLE, 0, 0);
    SAME(v->push_homes, 2, 1, 1);
    SAME(v->push_peers, NONE, 2, NONE);
    SAME(v->drop_slots, 13, 10);
    SAME(v->pull_keys, KEY(1), KEY(2));
    SAME(v->pull_slots, 15, 16);
    SAME(v->pull_versions, 6, 8);
    SAME(v->pull_flags, DP_OP_STATE | DP_OP_WHOLE, DP_OP_STATE);
    SAME(v->pull_homes, 3, 0);
    SAME(v->pull_peers, NONE, 0);
    SAME(v->init_keys, KEY(3), KEY(5));
    SAME(v->init_slots, 17, 0);
    SAME(v->grad_masks, 0xb, 0xe);
    SAME(v->grad_rows, 1, 4);
    SAME(v->grad_bases, 3, 4);
    SAME(v->grad_homes, 2, 3);
    SAME(v->grad_peers, NONE, 3);
    SAME(v->sum_keys, KEY(7));
    SAME(v->sum_masks, 7);
    SAME(v->sum_rows, 3);
    SAME(v->delta_slots, 14, 20);
    SAME(v->delta_held, 5, 6);
    SAME(v->delta_versions, 9, 10);
    SAME(v->delta_bases, 7, 8);
    SAME(v->delta_pulls, 2, 1);
    SAME(v->delta_reasons, DP_REASON_FLUSH, DP_REASON_UPDATE);
    SAME(v->forget_keys, KEY(8), KEY(9));
    SAME(v->forget_versions, 12, 13);
    SAME(v->forget_homes, 3, 1);
}

static void every_value_has_its_place(void **state)
{
    (void)state;
    made m;
    make(&m);
    rt_message message = encode(&m);
    const dp_slice_view v = decode(&m, &message);
    const rt_wire_slice counts = {.flags = DP_SLICE_HOMES | DP_SLICE_HANDS | DP_SLICE_SUMS,
                                  .iteration = 5,
                                  .batch_samples = 4,
                                  .step = 5,
                                  .trained = 3,
                                  .sample_count = 2,
                                  .lookup_count = 5,
                                  .row_count = ROWS,
                                  .push_count = 3,
                                  .drop_count = 2,
                                  .pull_count = 2,
                                  .init_count = 2,
                                  .grad_count = 2,
                                  .delta_count = 2,
                                  .delta_late = 1,
                                  .dense_chunk_floats = 4096,
                                  .workers = 0xf,
                                  .sum_count = 1,
                                  .push_late = 1,
                                  .forget_count = 2};
    assert_memory_equal(&v.counts, &counts, sizeof counts);
    assert_null(v.weights);
    assert_null(v.more_odds);
    SAME(v.labels, 0, 0);
    SAME(v.dense, 2, 2.5f, 0, 0.5f);
    SAME(v.bag_offsets, 0, 1, 3, 4, 5);
    SAME(v.lookup_rows, 0, 1, 2, 3, 4);
    SAME(v.row_slots, 5, 4, 3, 2, 1);
    SAME(v.row_versions, 30, 31, 32, 33, 34);
    SAME(v.row_modes, DP_MODE_OWN, DP_MODE_GRAD, DP_MODE_OWN, DP_MODE_REDUCE, DP_MODE_GRAD);
    check_ops(&v);
    rt_message_release(&message);
    dp_plan_fini(&m.plan);
}

// Fields that no key is left of have empty bags.
static void gaps(void **state)
{
    (void)state;
    made m;
    make(&m);
    m.batch.has_gaps = true;
    m.keys[4] = rt_key(1, 104); // sample 2 lacks field 0, sample 0 field 1
    m.keys[1] = rt_key(0, 101);
    rt_message message = encode(&m);
    SAME(decode(&m, &message).bag_offsets, 0, 0, 3, 5, 5);
    rt_message_release(&message);
    dp_plan_fini(&m.plan);
}

// Where fields share tables the plan names the rows of keys, the slice those of look-ups.
static void folded(void **state)
{
    (void)state;
    static const uint32_t bag_offsets[] = {0, 1, 3, 4, 5, 6, 8},
                          lookups[] = {0, 1, 0, 2, 2, 4, 3, 4};
    static const uint32_t key_offsets[] = {0, 2, 3, 5}, lookup_rows[] = {0, 1, 2, 1};
    made m;
    make(&m);
    memcpy(m.bag_offsets, bag_offsets, sizeof bag_offsets);
    memcpy(m.lookups, lookups, sizeof lookups);
    memcpy(m.key_offsets, key_offsets, sizeof key_offsets);
    m.batch.tables = (const struct rt_tables *)(const void *)&m; // that there are some is all
    m.batch.key_count = 5;
    m.batch.lookup_count = 8;
    m.batch.bag_offsets = m.bag_offsets;
    m.batch.lookups = m.lookups;
    dp_slice *s = &m.plan.slices[RANK];
    memcpy(s->lookup_rows, lookup_rows, sizeof lookup_rows);
    s->lookup_count = 4;
    rt_message message = encode(&m);
    const dp_slice_view v = decode(&m, &message);
    assert_int_equal(v.counts.lookup_count, 6);
    SAME(v.bag_offsets, 0, 1, 3, 4, 6);
    SAME(v.lookup_rows, 1, 0, 1, 2, 1, 2);
    rt_message_release(&message);
    dp_plan_fini(&m.plan);
}

// ---- values that cannot be -------------------------------------------------------------------

typedef struct {
    size_t member; // of dp_slice_view
    uint32_t index, width;
    uint64_t value;
    const char *text; // NULL: it is taken
} change;

#define AT(name, index, value, text)                                                             \
    {                                                                                            \
        offsetof(dp_slice_view, name), index, sizeof *((dp_slice_view *)NULL)->name, value, text \
    }
#define SLOT "a slot is out of range"
#define ROW "a row index is out of range"
#define HOME "a row's home is no shard of this run"
#define PEER "a row that is handed over by or to no other worker, or without state"
#define CANNOT_SUM "a gradient for a worker that cannot sum it"
#define NO_SUM "a sum of gradients of workers that do not train the row"
#define NO_CHANGE "a change that can be that of no row"

static const change changes[] = {
    AT(row_slots, 4, 20, NULL),
    AT(row_slots, 4, 21, SLOT),
    AT(push_slots, 2, 21, SLOT),
    AT(drop_slots, 1, 21, SLOT),
    AT(delta_slots, 1, 21, SLOT),
    AT(pull_slots, 1, 21, SLOT),
    AT(init_slots, 1, 21, SLOT),
    AT(push_slots, 2, 20, NULL),
    AT(drop_slots, 1, 20, NULL),
    AT(delta_slots, 0, 20, NULL),
    AT(pull_slots, 1, 20, NULL),
    AT(init_slots, 1, 20, NULL),
    AT(lookup_rows, 4, 5, ROW),
    AT(lookup_rows, 4, 4, NULL),
    AT(grad_rows, 1, 5, ROW),
    AT(sum_rows, 0, 5, ROW),
    AT(grad_rows, 0, 0, "gradients do not fit"),
    AT(sum_rows, 0, 4, "sums do not fit"),
    AT(row_modes, 0, 2, "an unknown training mode"),
    AT(row_modes, 0, 4, "an unknown training mode"),
    AT(row_modes, 0, DP_MODE_GRAD, "gradients do not fit"),
    AT(row_modes, 0, DP_MODE_REDUCE, "sums do not fit"),
    AT(row_modes, 4, DP_MODE_OWN, "more gradients than rows that have one"),
    AT(row_modes, 4, DP_MODE_REDUCE, "sums do not fit"),
    AT(row_modes, 3, DP_MODE_OWN, "more gradients than rows that have one"),
    AT(push_homes, 2, 3, NULL),
    AT(push_homes, 2, 4, HOME),
    AT(pull_homes, 0, 4, HOME),
    AT(grad_homes, 1, 4, HOME),
    AT(forget_homes, 0, 4, HOME),
    AT(forget_homes, 1, 3, NULL),
    AT(push_peers, 1, 3, NULL),
    AT(push_peers, 1, 4, PEER),
    AT(push_peers, 1, RANK, PEER),
    AT(push_peers, 0, 2, PEER),
    AT(push_reasons, 1, DP_REASON_EVICT, PEER),
    AT(pull_peers, 1, 3, NULL),
    AT(pull_peers, 1, 4, PEER),
    AT(pull_peers, 1, RANK, PEER),
    AT(pull_peers, 0, 2, PEER),
    AT(pull_flags, 1, 0, PEER),
    AT(push_reasons, 0, DP_REASON_FLUSH, NULL),
    AT(push_reasons, 0, DP_REASON_FLUSH + 1, "an unknown reason of a push"),
    AT(push_reasons, 0, DP_PUSH_WHOLE | DP_REASON_FLUSH, NULL),
    AT(pull_flags, 0, 0, NULL),
    AT(pull_flags, 0, 4, "unknown flags of a pull"),
    AT(delta_reasons, 0, DP_REASON_FLUSH + 1, NO_CHANGE),
    AT(delta_pulls, 0, WORKERS, NULL),
    AT(delta_pulls, 1, WORKERS + 1, NO_CHANGE),
    AT(delta_versions, 1, 8, NO_CHANGE),
    AT(delta_versions, 1, 9, NULL),
    AT(delta_bases, 0, 9, NO_CHANGE),
    AT(delta_bases, 0, 8, NULL),
    AT(grad_masks, 0, 0, "a gradient names workers that do not exist"),
    AT(grad_masks, 0, 0x10, "a gradient names workers that do not exist"),
    AT(grad_masks, 0, 0xf, NULL),
    AT(grad_peers, 1, 4, CANNOT_SUM),
    AT(grad_peers, 1, RANK, CANNOT_SUM),
    AT(grad_peers, 1, 0, CANNOT_SUM),
    AT(grad_peers, 1, 2, NULL),
    AT(grad_masks, 1, 0xc, CANNOT_SUM),
    AT(sum_masks, 0, 2, NO_SUM),
    AT(sum_masks, 0, 5, NO_SUM),
    AT(sum_masks, 0, 0x17, NO_SUM),
    AT(sum_masks, 0, 0xf, NULL),
    AT(bag_offsets, 0, 1, "bag offsets do not cover"),
    AT(bag_offsets, 4, 4, "bag offsets do not"),
    AT(bag_offsets, 2, 0, "bag offsets fall"),
    AT(bag_offsets, 3, 6, "bag offsets fall"),
    AT(bag_offsets, 2, 1, NULL),
    AT(bag_offsets, 3, 5, NULL),
};

static void must_decode(const made *m, const rt_message *message, const char *text, size_t number)
{
    dp_slice_view view;
    rt_error error = {0};
    const rt_status status = dp_slice_decode(message, &m->limits, &view, &error);
    if (status != (text ? RT_WIRE : RT_OK) || (text && !strstr(error.text, text)))
        fail_msg("change %zu: \"%s\", expected \"%s\"", number, error.text, text ? text : "");
}

static void values_that_cannot_be(void **state)
{
    (void)state;
    made m;
    make(&m);
    for (size_t i = 0; i < RT_COUNT_OF(changes); i++) {
        rt_message message = encode(&m);
        const dp_slice_view view = decode(&m, &message);
        const change *c = &changes[i];
        uint8_t *array;
        memcpy(&array, (const uint8_t *)&view + c->member, sizeof array);
        memcpy(array + (size_t)c->index * c->width, &c->value, c->width); // little-endian
        must_decode(&m, &message, c->text, i);
        rt_message_release(&message);
    }
    dp_plan_fini(&m.plan);
}

// Counts that fit the message's length, but not the run.
static void limits_of_a_run(void **state)
{
    (void)state;
    static const struct {
        size_t member;
        uint32_t exact;
    } bounds[] = {{offsetof(dp_slice_limits, sample_count_max), 2},
                  {offsetof(dp_slice_limits, lookup_count_max), 5}};
    made m;
    make(&m);
    rt_message message = encode(&m);
    for (size_t i = 0; i < RT_COUNT_OF(bounds); i++) {
        made other = m;
        uint32_t *bound = (uint32_t *)(void *)((uint8_t *)&other.limits + bounds[i].member);
        *bound = bounds[i].exact;
        must_decode(&other, &message, NULL, i);
        *bound = bounds[i].exact - 1;
        must_decode(&other, &message, "more samples or look-ups than announced", i);
    }
    for (uint32_t i = 0; i < 3; i++) { // a run without any of these
        made other = m;
        if (i == 0)
            other.limits.shard_count = 0;
        else
            *(i == 1 ? &other.limits.hands : &other.limits.sums) = false;
        must_decode(&other, &message, "unknown flags", i);
    }
    rt_wire_slice *counts = (rt_wire_slice *)(void *)rt_message_payload(&message);
    counts->workers = 0x1f;
    must_decode(&m, &message, "no worker takes part, or one that does not exist", 0);
    counts->workers = 0;
    must_decode(&m, &message, "no worker takes part, or one that does not exist", 1);
    counts->workers = 0x7; // worker 3 does not take part, and sums
    must_decode(&m, &message, CANNOT_SUM, 2);
    counts->workers = 0xf;
    counts->push_late = 3;
    must_decode(&m, &message, NULL, 3);
    counts->push_late = 4;
    must_decode(&m, &message, "more operations than slots", 4);
    counts->push_late = 1;
    counts->delta_late = 2;
    must_decode(&m, &message, NULL, 5);
    counts->delta_late = 3;
    must_decode(&m, &message, "more operations than slots", 6);
    rt_message_release(&message);
    dp_plan_fini(&m.plan);
}

TEST_MAIN(TEST(every_value_has_its_place), TEST(gaps), TEST(folded), TEST(values_that_cannot_be),
          TEST(limits_of_a_run))
