// A shard's part of the dense weights: steps against plain ones of the optimizer, fetches, and what
// does not follow from what came before.
#include "ps_lite/ps_dense.h"
#include "runtime/config/rt_optimizers.h"

#include <math.h>
#include <string.h>

#include "runtime/numbers/rt_bf16.h"
#include "runtime/numbers/rt_int8.h"
#include "tests/support/test.h"

enum { COUNT = 300, BEGUN = 4, WORKERS = 3 };

typedef struct {
    rt_optimizer_config optimizer;
    ps_dense *dense;
    float values[COUNT], state[2 * COUNT]; // as they should be
    uint32_t state_count;
} fixture;

static rt_message message_of(rt_message_type type, uint32_t worker, uint64_t t, uint32_t count,
                             const void *head, size_t head_size, const void *rest, size_t size)
{
    rt_message message;
    assert_int_equal(rt_message_create(&message, type, rt_peer(RT_ROLE_WORKER, worker), t, count,
                                       head_size + size),
                     RT_OK);
    if (head_size)
        memcpy(rt_message_payload(&message), head, head_size);
    if (size)
        memcpy(rt_message_payload(&message) + head_size, rest, size);
    return message;
}

static rt_message state_at(const fixture *f, uint64_t t, uint32_t worker, uint32_t first,
                           uint32_t count)
{
    float block[3 * COUNT];
    const rt_wire_dense_state head = {COUNT, COUNT + f->state_count};
    memcpy(block, f->values, sizeof f->values);
    memcpy(block + COUNT, f->state, f->state_count * sizeof *block);
    return message_of(RT_MESSAGE_DENSE_STATE, worker, t, first, &head, sizeof head, block + first,
                      count * sizeof *block);
}

static rt_message state_of(const fixture *f, uint32_t worker, uint32_t first, uint32_t count)
{
    return state_at(f, BEGUN, worker, first, count);
}

static rt_message step_of(uint32_t worker, uint64_t t, uint32_t applies, float scale)
{
    const rt_wire_dense_step step = {.applies = applies, .scale = scale};
    return message_of(RT_MESSAGE_DENSE_STEP, worker, t, 1, &step, sizeof step, NULL, 0);
}

static rt_message shifted_of(uint32_t worker, uint64_t t, const rt_wire_dense_step *step)
{
    return message_of(RT_MESSAGE_DENSE_STEP, worker, t, 1, step, sizeof *step, NULL, 0);
}

static rt_message pull_of(uint32_t worker, uint64_t t)
{
    return message_of(RT_MESSAGE_DENSE_PULL, worker, t, 0, NULL, 0, NULL, 0);
}

// Floats [first, first + count) of a part with its verdict, all of one value.
static rt_message gradient_of(uint32_t worker, uint64_t workers, uint64_t t, uint32_t first,
                              uint32_t count, float value)
{
    float floats[COUNT + 1];
    const rt_wire_dense head = {workers};
    for (uint32_t i = 0; i < count; i++)
        floats[i] = value + (float)(first + i) * 0x1p-8f;
    return message_of(RT_MESSAGE_DENSE_GRAD, worker, t, first, &head, sizeof head, floats,
                      count * sizeof *floats);
}

static rt_status give(fixture *f, rt_message message, const char *text)
{
    rt_error error = {0};
    ps_dense_answer answer;
    const uint32_t worker = rt_peer_rank(rt_message_header(&message)->sender);
    assert_int_equal(rt_message_validate(&message, rt_peer(RT_ROLE_WORKER, worker), &error), RT_OK);
    rt_status status = ps_dense_receive(f->dense, worker, &message, &answer, &error);
    rt_message_release(&message);
    rt_message_release(&answer.message);
    if (text && !strstr(error.text, text))
        fail_msg("\"%s\" is not in: %s", text, error.text);
    return status;
}

static void taken(fixture *f, rt_message message)
{
    assert_int_equal(give(f, message, ""), RT_OK);
}

static void refused(fixture *f, rt_message message, const char *text)
{
    assert_int_equal(give(f, message, text), RT_WIRE);
}

static void setup(fixture *f, rt_optimizer_kind kind)
{
    *f = (fixture){.optimizer = {.kind = kind,
                                 .learning_rate = 0.1f,
                                 .epsilon = 1e-3f,
                                 .initial_accumulator = 0.1f,
                                 .momentum = 0.9f,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.99f,
                                 .l2 = 0.01f,
                                 .beta = 1}};
    const ps_dense_config config = {
        .worker_count = WORKERS, .bytes_max = 1 << 20, .keeps = true, .optimizer = f->optimizer};
    assert_int_equal(ps_dense_create(&config, &f->dense), RT_OK);
    f->state_count = rt_optimizer_state_floats(&f->optimizer, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        f->values[i] = (float)i * 0x1p-7f - 1;
    rt_optimizer_init_state(&f->optimizer, COUNT, f->state);
}

static void begin(fixture *f)
{
    taken(f, state_of(f, 0, 0, 200));
    taken(f, state_of(f, 0, 200, COUNT + f->state_count - 200));
}

// Both workers' gradients, in two chunks; and the step that follows.
static void iterate(fixture *f, uint64_t t, uint32_t applies, float scale)
{
    float sum[COUNT];
    for (uint32_t worker = 0; worker < 2; worker++) {
        taken(f, gradient_of(worker, 3, t, 128, COUNT + 1 - 128, (float)(worker + t)));
        taken(f, gradient_of(worker, 3, t, 0, 128, (float)(worker + t)));
    }
    taken(f, step_of(1, t, applies, scale));
    taken(f, step_of(0, t, applies, scale)); // says the same
    for (uint32_t i = 0; i < COUNT; i++)
        sum[i] = ((float)t + (float)i * 0x1p-8f) + ((float)(1 + t) + (float)i * 0x1p-8f);
    if (applies)
        rt_optimizer_step_scaled(&f->optimizer, COUNT, t, scale, f->values, f->state, sum);
}

static void must_be_equal(const fixture *f, uint64_t version)
{
    uint32_t total;
    const ps_weights *weights = ps_dense_weights(f->dense);
    const float *block = ps_weights_block(weights, &total);
    assert_non_null(block);
    assert_int_equal(ps_weights_version(weights), version);
    assert_int_equal(total, COUNT + f->state_count);
    assert_memory_equal(block, f->values, sizeof f->values);
    assert_memory_equal(block + COUNT, f->state, f->state_count * sizeof *block);
}

static void steps_are_the_optimizers(void **state)
{
    (void)state;
    for (rt_optimizer_kind kind = 0; kind < RT_OPTIMIZER_COUNT; kind++) {
        fixture f;
        setup(&f, kind);
        begin(&f);
        must_be_equal(&f, BEGUN);
        iterate(&f, BEGUN + 1, 1, 1);
        must_be_equal(&f, BEGUN + 1);
        iterate(&f, BEGUN + 2, 0, 1); // its loss is not finite
        must_be_equal(&f, BEGUN + 2);
        iterate(&f, BEGUN + 3, 1, 0.25f); // clipped
        must_be_equal(&f, BEGUN + 3);
        ps_dense_destroy(f.dense);
    }
}

// Biases that follow the base rate: whether the iteration counts or not, and before its step.
static void biases_are_shifted_before_the_step(void **state)
{
    (void)state;
    for (uint32_t applies = 0; applies < 2; applies++) {
        fixture f;
        float sum[COUNT];
        const rt_wire_dense_step step = {
            .applies = applies, .scale = 1, .at = {7, 0, COUNT - 1}, .by = {-2.5f, 0, 0.75f}};
        setup(&f, RT_OPTIMIZER_ADAGRAD);
        begin(&f);
        for (uint32_t worker = 0; worker < 2; worker++)
            taken(&f, gradient_of(worker, 3, BEGUN + 1, 0, COUNT + 1, 1));
        for (uint32_t i = 0; i < COUNT; i++)
            sum[i] = 2 * (1 + (float)i * 0x1p-8f);
        taken(&f, shifted_of(0, BEGUN + 1, &step));
        taken(&f, shifted_of(1, BEGUN + 1, &step)); // says the same: it is shifted once
        f.values[7] += -2.5f;
        f.values[COUNT - 1] += 0.75f;
        if (applies)
            rt_optimizer_step_scaled(&f.optimizer, COUNT, BEGUN + 1, 1, f.values, f.state, sum);
        must_be_equal(&f, BEGUN + 1);
        ps_dense_destroy(f.dense);
    }
}

static uint32_t pieces_for(fixture *f, uint32_t worker, float *block)
{
    uint32_t floats = 0;
    ps_dense_answer answer;
    while (ps_dense_next(f->dense, &answer) == RT_OK) {
        const rt_wire_header *header = rt_message_header(&answer.message);
        rt_wire_dense_state head;
        assert_int_equal(answer.workers, rt_bit(worker));
        assert_int_equal(header->type, RT_MESSAGE_DENSE_STATE);
        assert_int_equal(header->count, floats);
        memcpy(&head, rt_message_payload(&answer.message), sizeof head);
        assert_int_equal(head.value_count, COUNT);
        assert_int_equal(head.total, COUNT + f->state_count);
        const size_t bytes = header->payload_bytes - sizeof head;
        memcpy(block + floats, rt_message_payload(&answer.message) + sizeof head, bytes);
        floats += (uint32_t)(bytes / sizeof *block);
        rt_message_release(&answer.message);
    }
    return floats;
}

// A fetch waits for the very step that it names: not for the sum, which may be thrown away.
static void a_fetch_waits_for_its_step(void **state)
{
    (void)state;
    fixture f;
    float block[3 * COUNT];
    setup(&f, RT_OPTIMIZER_ADAM);
    taken(&f, pull_of(2, BEGUN + 1)); // before there is anything
    assert_int_equal(pieces_for(&f, 2, block), 0);
    begin(&f);
    assert_int_equal(pieces_for(&f, 2, block), 0);
    for (uint32_t worker = 0; worker < 2; worker++)
        taken(&f, gradient_of(worker, 3, BEGUN + 1, 0, COUNT + 1, 1));
    assert_int_equal(pieces_for(&f, 2, block), 0);
    taken(&f, step_of(0, BEGUN + 1, 1, 1));
    assert_int_equal(pieces_for(&f, 2, block), COUNT + f.state_count);
    assert_int_equal(pieces_for(&f, 2, block), 0); // once
    taken(&f, pull_of(1, BEGUN + 1));              // at once
    assert_int_equal(pieces_for(&f, 1, block), COUNT + f.state_count);
    uint32_t total;
    assert_memory_equal(block, ps_weights_block(ps_dense_weights(f.dense), &total), sizeof block);
    ps_dense_destroy(f.dense);
}

static void what_does_not_follow_is_refused(void **state)
{
    (void)state;
    fixture f;
    setup(&f, RT_OPTIMIZER_ADAGRAD);
    refused(&f, step_of(0, 1, 1, 1), "worker 0: a dense step of iteration 1");
    taken(&f, state_of(&f, 0, 0, 10));
    refused(&f, state_of(&f, 1, 10, 10), "worker 1: dense weights of iteration 4, from 10");
    refused(&f, state_of(&f, 0, 20, 10), "from 20");
    refused(&f, step_of(0, BEGUN + 1, 1, 1), "is not complete");
    // A sum while the weights before it are not there.
    refused(&f, gradient_of(0, 1, BEGUN + 1, 0, COUNT + 1, 1),
            "a dense sum of iteration 5 is complete, but the weights after 4 are not there");
    taken(&f, state_of(&f, 0, 10, COUNT + f.state_count - 10));
    refused(&f, state_of(&f, 0, COUNT + f.state_count, 0), "that nobody waits for");
    refused(&f, gradient_of(0, 1, BEGUN + 2, 0, COUNT + 1, 1), "weights after 5 are not there");
    ps_dense_destroy(f.dense);

    setup(&f, RT_OPTIMIZER_ADAGRAD);
    begin(&f);
    refused(&f, gradient_of(0, 1, BEGUN + 1, 1, COUNT + 1, 1),
            "dense gradients 1 to 302, but there are 300 weights here");
    taken(&f, gradient_of(0, 1, BEGUN + 1, 0, COUNT, 1));
    refused(&f, step_of(0, BEGUN + 2, 1, 1), "iteration 6");
    const rt_wire_dense_step two[2] = {{.applies = 1, .scale = 1}, {.applies = 1, .scale = 1}};
    refused(&f, message_of(RT_MESSAGE_DENSE_STEP, 0, BEGUN + 1, 2, two, sizeof two, NULL, 0),
            "a DENSE_STEP of 2 records");
    refused(&f, step_of(0, BEGUN + 1, 2, 1), "which cannot be");
    refused(&f, step_of(0, BEGUN + 1, 1, -1), "which cannot be");
    rt_wire_dense_step shifted = {.scale = 1, .at = {COUNT}, .by = {1}};
    refused(&f, shifted_of(0, BEGUN + 1, &shifted), "which cannot be");
    shifted = (rt_wire_dense_step){.scale = 1, .by = {NAN}};
    refused(&f, shifted_of(0, BEGUN + 1, &shifted), "which cannot be");
    taken(&f, step_of(0, BEGUN + 1, 1, 1));
    refused(&f, step_of(1, BEGUN + 1, 0, 1), "another one than that of the worker before");
    taken(&f, step_of(1, BEGUN, 0, 1)); // of long ago: nobody looks
    refused(&f, pull_of(1, BEGUN), "they are those after 5");
    taken(&f, pull_of(1, BEGUN + 3));
    refused(&f, pull_of(1, BEGUN + 3), "it waits already");
    ps_dense_destroy(f.dense);

    setup(&f, RT_OPTIMIZER_ADAGRAD);
    const rt_wire_dense_state wrong = {COUNT, COUNT + 1}, large = {1 << 20, 2 << 20};
    refused(&f, message_of(RT_MESSAGE_DENSE_STATE, 0, 1, 0, &wrong, sizeof wrong, NULL, 0),
            "expected 600");
    assert_int_equal(
        give(&f, message_of(RT_MESSAGE_DENSE_STATE, 0, 1, 0, &large, sizeof large, NULL, 0),
             "raise ps.memory_bytes_max"),
        RT_LIMIT);
    ps_dense_destroy(f.dense);
}

// A shard that has only the verdict, or nothing, keeps an empty part.
static void an_empty_part(void **state)
{
    (void)state;
    fixture f;
    setup(&f, RT_OPTIMIZER_ADAGRAD);
    const rt_wire_dense_state none = {0, 0};
    taken(&f, message_of(RT_MESSAGE_DENSE_STATE, 0, BEGUN, 0, &none, sizeof none, NULL, 0));
    taken(&f, gradient_of(0, 1, BEGUN + 1, 0, 1, 0));
    taken(&f, step_of(0, BEGUN + 1, 1, 1));
    assert_int_equal(ps_weights_version(ps_dense_weights(f.dense)), BEGUN + 1);
    ps_dense_destroy(f.dense);
}

// Who trained alone gives what it has: others go on from there.
static void weights_of_who_trained_alone(void **state)
{
    (void)state;
    fixture f;
    float block[3 * COUNT];
    setup(&f, RT_OPTIMIZER_ADAM);
    begin(&f);
    iterate(&f, BEGUN + 1, 1, 1);
    taken(&f, pull_of(0, BEGUN + 7));
    for (uint32_t i = 0; i < COUNT; i++)
        f.values[i] += (float)i;
    for (uint32_t i = 0; i < f.state_count; i++)
        f.state[i] += 0.5f;
    taken(&f, state_at(&f, BEGUN + 7, 1, 0, 200));
    assert_int_equal(pieces_for(&f, 0, block), 0); // not before all of it is there
    taken(&f, step_of(2, BEGUN + 1, 1, 1));        // of before: nobody looks
    refused(&f, gradient_of(0, 1, BEGUN + 8, 0, COUNT + 1, 1), "weights after 11 are not there");
    taken(&f, state_at(&f, BEGUN + 7, 1, 200, COUNT + f.state_count - 200));
    must_be_equal(&f, BEGUN + 7);
    assert_int_equal(pieces_for(&f, 0, block), COUNT + f.state_count);
    assert_memory_equal(block, f.values, sizeof f.values);
    taken(&f, step_of(2, BEGUN + 1, 1, 1)); // of before: nobody looks
    refused(&f, state_at(&f, BEGUN + 7, 1, 0, 200), "that nobody waits for"); // not newer
    refused(&f, state_at(&f, BEGUN + 3, 1, 0, 200), "that nobody waits for");
    iterate(&f, BEGUN + 8, 1, 1);
    must_be_equal(&f, BEGUN + 8);
    taken(&f, gradient_of(0, 1, BEGUN + 9, 0, COUNT + 1, 1));
    refused(&f, state_at(&f, BEGUN + 10, 1, 0, 200), "that nobody waits for"); // a step is due
    ps_dense_destroy(f.dense);
}

// A part with so many weights, of SGD: no state.
static void begin_large(fixture *f, uint32_t count, uint64_t bytes_max)
{
    *f = (fixture){.optimizer = {.kind = RT_OPTIMIZER_SGD, .learning_rate = 0.1f}};
    const ps_dense_config config = {
        .worker_count = WORKERS, .bytes_max = bytes_max, .keeps = true, .optimizer = f->optimizer};
    const rt_wire_dense_state head = {count, count};
    float *block = rt_alloc(count, sizeof *block);
    assert_int_equal(ps_dense_create(&config, &f->dense), RT_OK);
    for (uint32_t i = 0; i < count; i++)
        block[i] = (float)i;
    const uint32_t most = RT_WIRE_DENSE_CHUNK_FLOATS_MAX;
    for (uint32_t first = 0, some; first < count; first += some) {
        some = (uint32_t)rt_min_u64(count - first, most);
        taken(f, message_of(RT_MESSAGE_DENSE_STATE, 0, BEGUN, first, &head, sizeof head,
                            block + first, some * sizeof *block));
    }
    rt_free(block);
}

// In pieces of as many floats as a message may have; one worker after another, each from the first
// float to the last.
static void large_weights_go_in_pieces(void **state)
{
    (void)state;
    const uint32_t most = RT_WIRE_DENSE_CHUNK_FLOATS_MAX;
    const uint32_t counts[] = {1, most - 1, most, most + 1, 2 * most, 2 * most + 7};
    for (size_t c = 0; c < RT_COUNT_OF(counts); c++) {
        fixture f;
        ps_dense_answer answer;
        begin_large(&f, counts[c], UINT64_C(1) << 30);
        taken(&f, pull_of(2, BEGUN));
        taken(&f, pull_of(0, BEGUN + 1)); // can have nothing yet
        taken(&f, pull_of(1, BEGUN));
        for (uint32_t worker = 1; worker < 3; worker++) {
            for (uint32_t first = 0; first < counts[c];) {
                rt_wire_dense_state head;
                assert_int_equal(ps_dense_next(f.dense, &answer), RT_OK);
                const rt_wire_header *header = rt_message_header(&answer.message);
                const uint32_t some = (uint32_t)rt_min_u64(counts[c] - first, most);
                assert_int_equal(answer.workers, rt_bit(worker));
                assert_true(header->count == first && header->iteration == BEGUN);
                assert_int_equal(header->payload_bytes, sizeof head + some * sizeof(float));
                const uint8_t *bytes = rt_message_payload(&answer.message);
                memcpy(&head, bytes, sizeof head);
                assert_true(head.value_count == counts[c] && head.total == counts[c]);
                for (uint32_t i = 0; i < some; i++) {
                    float value;
                    memcpy(&value, bytes + sizeof head + i * sizeof value, sizeof value);
                    assert_true(value == (float)(first + i));
                }
                first += some;
                rt_message_release(&answer.message);
            }
        }
        assert_int_equal(ps_dense_next(f.dense, &answer), RT_AGAIN);
        ps_dense_destroy(f.dense);
    }
}

// While a part of the weights is out, who knows better has to wait for the rest of it.
static void nothing_newer_while_pieces_go(void **state)
{
    (void)state;
    const uint32_t count = RT_WIRE_DENSE_CHUNK_FLOATS_MAX + 1;
    const rt_wire_dense_state head = {count, count};
    static const float some[2];
    fixture f;
    ps_dense_answer answer;
    begin_large(&f, count, UINT64_C(1) << 30);
    taken(&f, pull_of(2, BEGUN));
    assert_int_equal(ps_dense_next(f.dense, &answer), RT_OK);
    rt_message_release(&answer.message);
    refused(&f, message_of(RT_MESSAGE_DENSE_STATE, 1, BEGUN + 5, 0, &head, sizeof head, some, 8),
            "that nobody waits for");
    assert_int_equal(ps_dense_next(f.dense, &answer), RT_OK);
    rt_message_release(&answer.message);
    taken(&f, message_of(RT_MESSAGE_DENSE_STATE, 1, BEGUN + 5, 0, &head, sizeof head, some, 8));
    refused(&f, message_of(RT_MESSAGE_DENSE_STATE, 1, BEGUN + 5, 2, &head, sizeof head, some, 0),
            "that nobody waits for"); // a piece of nothing
    ps_dense_destroy(f.dense);
}

// Values, state and sum, with room for the verdict.
static void weights_have_a_bound(void **state)
{
    (void)state;
    enum { VALUES = 1000, BYTES = (2 * VALUES + 1) * 4 };
    for (uint32_t less = 0; less < 2; less++) {
        fixture f;
        const rt_wire_dense_state head = {VALUES, VALUES};
        begin_large(&f, 0, BYTES - less);
        const rt_status status =
            give(&f, message_of(RT_MESSAGE_DENSE_STATE, 0, 1, 0, &head, sizeof head, NULL, 0),
                 less ? "take 8004 bytes, a shard has 8003 for them" : NULL);
        assert_int_equal(status, less ? RT_LIMIT : RT_OK);
        ps_dense_destroy(f.dense);
    }
}

// Pieces that do not go on where those before ended, by each thing that they say of themselves.
static void pieces_that_do_not_fit(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        fixture f;
        setup(&f, RT_OPTIMIZER_ADAGRAD);
        const uint32_t total = COUNT + f.state_count;
        rt_wire_dense_state head = {COUNT, total};
        float floats[3 * COUNT + 1] = {0};
        taken(&f, state_of(&f, 0, 0, 10));
        head.value_count += i == 0;
        head.total += i == 1;
        const uint32_t worker = i == 2, first = 10 + (i == 3), count = total - 10 + (i == 4);
        rt_message message = message_of(RT_MESSAGE_DENSE_STATE, worker, BEGUN + (i == 5), first,
                                        &head, sizeof head, floats, count * sizeof *floats);
        refused(&f, message, "that nobody waits for");
        taken(&f, state_of(&f, 0, 10, total - 10)); // the rest, as it should be
        ps_dense_destroy(f.dense);
    }
}

// A step needs the sum of all weights: with one float less there is none. The verdict is no weight.
static void a_step_needs_the_whole_sum(void **state)
{
    (void)state;
    static const float zeros[COUNT];
    fixture f;
    setup(&f, RT_OPTIMIZER_SGD);
    begin(&f);
    taken(&f, gradient_of(0, 1, BEGUN + 1, COUNT, 1, 1)); // the verdict
    refused(&f, step_of(0, BEGUN + 1, 1, 1), "is not complete");
    taken(&f, gradient_of(0, 1, BEGUN + 1, 1, COUNT - 1, 1));
    refused(&f, step_of(0, BEGUN + 1, 1, 1), "is not complete");
    taken(&f, gradient_of(0, 1, BEGUN + 1, 0, 1, 1));
    refused(&f, step_of(0, BEGUN + 1, 1, -0.5f), "which cannot be");
    refused(&f, step_of(0, BEGUN + 1, 1, __builtin_nanf("")), "which cannot be");
    taken(&f, step_of(0, BEGUN + 1, 1, 0)); // a scale of 0 may be: decay is left
    rt_optimizer_step_scaled(&f.optimizer, COUNT, BEGUN + 1, 0, f.values, f.state, zeros);
    must_be_equal(&f, BEGUN + 1);
    ps_dense_destroy(f.dense);
}

// What is kept is what was sent: rounded.
static void a_rounded_sum_is_the_gradient(void **state)
{
    (void)state;
    fixture f;
    float sum[COUNT];
    uint16_t packed[COUNT];
    const rt_wire_dense head = {1};
    setup(&f, RT_OPTIMIZER_SGD);
    begin(&f);
    for (uint32_t i = 0; i < COUNT; i++)
        sum[i] = (float)i / 3;
    rt_bf16_pack(sum, COUNT, packed);
    rt_bf16_unpack(packed, COUNT, sum);
    taken(&f, message_of(RT_MESSAGE_DENSE_GRAD_BF16, 0, BEGUN + 1, 0, &head, sizeof head, packed,
                         sizeof packed));
    taken(&f, step_of(0, BEGUN + 1, 1, 1));
    rt_optimizer_step_scaled(&f.optimizer, COUNT, BEGUN + 1, 1, f.values, f.state, sum);
    must_be_equal(&f, BEGUN + 1);
    ps_dense_destroy(f.dense);
}

// In 8 bits likewise, with weights that are not in blocks at the end.
static void a_sum_of_blocks_is_the_gradient(void **state)
{
    (void)state;
    enum { WHOLE = 5, ROUNDED = COUNT - WHOLE };
    fixture f;
    float sum[COUNT];
    uint8_t bytes[2 * COUNT * sizeof(float)];
    const rt_wire_dense_int8 head = {1, COUNT, WHOLE};
    setup(&f, RT_OPTIMIZER_SGD);
    begin(&f);
    for (uint32_t i = 0; i < COUNT; i++)
        sum[i] = (float)i / 3;
    memcpy(bytes, sum + ROUNDED, WHOLE * sizeof *sum);
    rt_int8_pack_blocks(sum, NULL, ROUNDED, bytes + WHOLE * sizeof *sum);
    rt_int8_unpack_blocks(bytes + WHOLE * sizeof *sum, ROUNDED,
                          sum); // rounded twice it is the same
    taken(&f, message_of(RT_MESSAGE_DENSE_GRAD_INT8, 0, BEGUN + 1, 0, &head, sizeof head, bytes,
                         WHOLE * sizeof *sum + rt_int8_bytes(ROUNDED)));
    taken(&f, step_of(0, BEGUN + 1, 1, 1));
    rt_optimizer_step_scaled(&f.optimizer, COUNT, BEGUN + 1, 1, f.values, f.state, sum);
    must_be_equal(&f, BEGUN + 1);
    ps_dense_destroy(f.dense);
}

TEST_MAIN(TEST(a_sum_of_blocks_is_the_gradient), TEST(steps_are_the_optimizers),
          TEST(biases_are_shifted_before_the_step), TEST(a_fetch_waits_for_its_step),
          TEST(what_does_not_follow_is_refused), TEST(an_empty_part),
          TEST(weights_of_who_trained_alone), TEST(large_weights_go_in_pieces),
          TEST(nothing_newer_while_pieces_go), TEST(weights_have_a_bound),
          TEST(pieces_that_do_not_fit), TEST(a_step_needs_the_whole_sum),
          TEST(a_rounded_sum_is_the_gradient))
