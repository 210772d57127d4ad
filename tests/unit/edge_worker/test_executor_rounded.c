// An executor alone, where rows travel rounded, or as what has changed of them: which bytes come
// in, which go out, and what the slab has. What is rounded is compared with the codec's own.
#define DIM 7u // bf16: 4 words, int8: 3
#include "tests/support/executor_case.h"

#define ROW_FLOATS (DIM + STATE)
#define EPOCH 6u

static const rt_coding codings[] = {RT_CODING_BF16, RT_CODING_INT8};

typedef struct {
    rig r;
    ew_codes codes;
    ew_bases bases;
    rt_coding coding;
} world;

static void make(world *w, rt_coding coding, bool stale)
{
    ew_executor_config config = config_of(&w->r, 3, 8, 4096);
    const ew_host_rows *rows = &w->r.rows;
    w->coding = coding;
    config.epoch = EPOCH;
    assert_int_equal(ew_codes_init(&w->codes, coding, SLOTS, DIM, rows->seed, rows->init_scale),
                     RT_OK);
    assert_int_equal(
        ew_bases_init(&w->bases, SLOTS, DIM, &rows->optimizer, rows->seed, rows->init_scale),
        RT_OK);
    config.codes = coding == RT_CODING_FP32 ? NULL : &w->codes;
    config.bases = stale ? &w->bases : NULL;
    create(&w->r, &config);
}

static void destroy(world *w)
{
    teardown(&w->r);
    ew_codes_fini(&w->codes);
    ew_bases_fini(&w->bases);
}

// Slices and answers of this run.
static void give_next(world *w)
{
    rt_error error;
    rt_message message = slice_message(&w->r, ++w->r.sequence);
    rt_message_header(&message)->epoch = EPOCH;
    if (give(&w->r, COORDINATOR, &message, &error))
        fail_msg("%s", error.text);
}

// Floats that both codings lose something of.
static void fill(uint32_t number, float *row)
{
    for (uint32_t k = 0; k < ROW_FLOATS; k++)
        row[k] = 10 * (float)(number + 1) + 0.371f * (float)k;
}

static void rounded(const world *w, const float *values, float *out)
{
    uint32_t words[DIM];
    rt_coding_pack(w->coding, values, DIM, words);
    rt_coding_unpack(w->coding, words, DIM, out);
}

// A record of an answer: what the pull asked for, as it asked for it.
static uint8_t *put_row(const world *w, uint8_t *at, const rt_wire_pull *pull, const float *row)
{
    const rt_wire_row head = {pull->key, pull->version, pull->tag};
    const bool whole = pull->version == 0 || pull->tag & RT_WIRE_TAG_WHOLE;
    const rt_coding coding = whole ? RT_CODING_FP32 : w->coding;
    const size_t state = pull->tag & RT_WIRE_TAG_STATE ? STATE * sizeof *row : 0;
    memcpy(at, &head, sizeof head);
    rt_coding_pack(coding, row, DIM, at + sizeof head);
    at += sizeof head + rt_coding_words(coding, DIM) * sizeof *row;
    memcpy(at, row + DIM, state);
    return at + state;
}

// Rows for so many pulls of a request, the last one first.
static void answer_all(world *w, uint32_t request, uint32_t count, float rows[][ROW_FLOATS])
{
    rt_message message;
    rt_error error;
    const bool coded = w->coding != RT_CODING_FP32;
    assert_int_equal(rt_message_create(&message, coded ? RT_MESSAGE_ROWS_CODED : RT_MESSAGE_ROWS,
                                       rt_peer(RT_ROLE_PS, 0), w->r.sequence, count,
                                       count * (sizeof(rt_wire_row) + ROW_FLOATS * sizeof(float))),
                     RT_OK);
    rt_message_header(&message)->epoch = EPOCH;
    uint8_t *at = rt_message_payload(&message);
    for (uint32_t i = count; i-- > 0;) {
        const rt_wire_pull pull = pull_at(&w->r, request, i);
        at = put_row(w, at, &pull, rows[i]);
    }
    rt_message_finish(&message, count, (uint64_t)(at - rt_message_payload(&message)));
    if (give(&w->r, rt_peer(RT_ROLE_PS, 0), &message, &error))
        fail_msg("%s", error.text);
}

static const uint8_t *sent_as(const world *w, uint32_t i, rt_message_type type, uint32_t count,
                              size_t record_bytes)
{
    assert_true(i < w->r.sent_count);
    const rt_wire_header *header = rt_message_header(&w->r.sent[i].message);
    assert_string_equal(rt_message_type_name(header->type), rt_message_type_name(type));
    assert_int_equal(header->count, count);
    assert_int_equal(header->payload_bytes, count * record_bytes);
    assert_int_equal(header->epoch, EPOCH);
    assert_int_equal(header->iteration, w->r.sequence);
    assert_int_equal(header->sender, rt_peer(RT_ROLE_WORKER, 1));
    return rt_message_payload(&w->r.sent[i].message);
}

// What a training does to the rows of slots, without the executor.
static void change(world *w, const uint32_t *slots, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < ROW_FLOATS; k++)
            row_at(&w->r, slots[i])[k] += 0.0625f * (float)(k + 1) * (float)(slots[i] + 1);
}

// ---- what comes in ---------------------------------------------------------------------------

// Pull i takes key i into slot i: rounded with state, rounded without, the initial row, two whole
// ones.
static const uint32_t versions[] = {3, 4, 0, 5, 6};
static const uint8_t flags[] = {DP_OP_STATE, 0, DP_OP_STATE, DP_OP_STATE | DP_OP_WHOLE,
                                DP_OP_STATE | DP_OP_WHOLE};

static void pull_five(world *w, float rows[5][ROW_FLOATS])
{
    begin(&w->r);
    for (uint32_t i = 0; i < 5; i++) {
        const uint64_t key = key_of(i % FIELDS, 0, i);
        add_op(&w->r, DP_OP_PULL, key, i, versions[i])->flags = flags[i];
        add_row(&w->r, i, versions[i], i == 1 ? DP_MODE_GRAD : DP_MODE_OWN);
        fill(i, rows[i]);
        if (versions[i] == 0)
            rt_row_init(key, w->r.rows.seed, w->r.rows.init_scale, DIM, rows[i]);
    }
    add_row(&w->r, 7, 0, DP_MODE_OWN); // a sample has two
    add_op(&w->r, DP_OP_INIT, key_of(1, 0, 9), 7, 0);
    add_op(&w->r, DP_OP_PUSH_GRAD, key_of(1, 0, 1), 1, 1)->base = 4;
    give_next(w);
    (void)sent_as(w, 0, RT_MESSAGE_PULL, 5, sizeof(rt_wire_pull));
    for (uint32_t i = 0; i < 5; i++) {
        const rt_wire_pull pull = pull_at(&w->r, 0, i);
        assert_int_equal(!!(pull.tag & RT_WIRE_TAG_STATE), flags[i] & DP_OP_STATE);
        assert_int_equal(!!(pull.tag & RT_WIRE_TAG_WHOLE), !!(flags[i] & DP_OP_WHOLE));
        assert_true(pull.key == key_of(i % FIELDS, 0, i) && pull.version == versions[i]);
    }
    answer_all(w, 0, 5, rows);
    for (uint32_t i = 0; i < 5; i++) {
        float want[ROW_FLOATS];
        memcpy(want, rows[i], sizeof want);
        if (i < 2)
            rounded(w, rows[i], want);
        assert_memory_equal(row_at(&w->r, i), want, (i == 1 ? DIM : ROW_FLOATS) * sizeof *want);
    }
    forget_sent(&w->r);
}

static void rows_come_rounded(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < RT_COUNT_OF(codings); c++) {
        world w;
        rt_counts done;
        rt_error error = {0};
        ew_job job;
        float rows[5][ROW_FLOATS], gradients[6 * DIM];
        uint32_t words[DIM];
        rt_wire_grad head;
        make(&w, codings[c], false);
        pull_five(&w, rows);
        for (uint32_t i = 0; i < 6 * DIM; i++)
            gradients[i] = 0.37f * (float)i;
        assert_int_equal(ew_executor_next_job(w.r.executor, &job), RT_OK);
        assert_int_equal(ew_executor_trained(w.r.executor, gradients, true, &done, &error), RT_OK);
        const uint32_t bytes = 4 * rt_coding_words(codings[c], DIM);
        const uint8_t *grad = sent_as(&w, 0, RT_MESSAGE_PUSH_GRAD_CODED, 1, sizeof head + bytes);
        memcpy(&head, grad, sizeof head);
        assert_true(head.key == key_of(1, 0, 1) && head.mask == 3 && head.base == 4 &&
                    head.step == RT_WIRE_STEP);
        rt_coding_pack(codings[c], gradients + DIM, DIM, words);
        assert_memory_equal(grad + sizeof head, words, bytes);
        assert_true(done.miss_pull == 5 && done.first_touch == 2 && done.grad_push == 1);
        assert_int_equal(ew_executor_get_statistics(w.r.executor).stale_reads, 0);
        destroy(&w);
    }
}

// Rows that come while their slots are in use wait as they came, each in its place.
static void rounded_rows_wait_for_their_slots(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < RT_COUNT_OF(codings); c++) {
        world w;
        uint64_t keys[4];
        float rows[4][ROW_FLOATS], want[ROW_FLOATS];
        make(&w, codings[c], false);
        begin(&w.r);
        for (uint32_t i = 0; i < 4; i++) {
            keys[i] = key_of(i % FIELDS, 0, i);
            add_op(&w.r, DP_OP_INIT, keys[i], i, 0);
            add_row(&w.r, i, 0, DP_MODE_OWN);
            fill(i, rows[i]);
        }
        give_next(&w);
        begin(&w.r);
        for (uint32_t i = 0; i < 4; i++) {
            add_op(&w.r, DP_OP_PUSH_ROW, keys[i], i, 1)->reason = DP_REASON_EVICT;
            add_op(&w.r, DP_OP_PULL, key_of(i % FIELDS, 0, 10 + i), i, 2 + i)->flags =
                i == 3 ? DP_OP_STATE | DP_OP_WHOLE : DP_OP_STATE;
            add_row(&w.r, i, 2 + i, DP_MODE_OWN);
        }
        give_next(&w);
        answer_all(&w, 0, 4, rows);
        assert_int_equal(ew_executor_get_statistics(w.r.executor).rows_early, 4);
        for (uint32_t i = 0; i < 4; i++)
            assert_true(row_at(&w.r, i)[DIM] != rows[i][DIM]); // none is there yet
        train(&w.r, NULL);
        for (uint32_t i = 0; i < 4; i++) {
            memcpy(want, rows[i], sizeof want);
            if (i < 3)
                rounded(&w, rows[i], want);
            assert_memory_equal(row_at(&w.r, i), want, sizeof want);
        }
        train(&w.r, NULL);
        assert_int_equal(ew_executor_get_statistics(w.r.executor).stale_reads, 0);
        destroy(&w);
    }
}

static void refused(world *w, rt_message_type type, const char *text)
{
    rt_error error;
    rt_message message = rows_message(type, w->r.sequence, (rt_wire_row){0}, DIM, 1);
    rt_message_header(&message)->epoch = EPOCH;
    assert_int_equal(give(&w->r, rt_peer(RT_ROLE_PS, 1), &message, &error), RT_WIRE);
    if (!strstr(error.text, text))
        fail_msg("\"%s\" lacks \"%s\"", error.text, text);
}

static void the_other_kind_of_rows_is_refused(void **state)
{
    (void)state;
    world w;
    make(&w, RT_CODING_INT8, false);
    refused(&w, RT_MESSAGE_ROWS, "PS shard 1: ROWS, but network.row_wire is not \"fp32\"");
    destroy(&w);
    make(&w, RT_CODING_FP32, false);
    refused(&w, RT_MESSAGE_ROWS_CODED, "ROWS_CODED, but network.row_wire is \"fp32\"");
    destroy(&w);
}

// ---- what goes out ---------------------------------------------------------------------------

static void check_change(const world *w, const uint8_t *record, uint64_t key, uint32_t version,
                         uint32_t base, const float *before, const float *now)
{
    rt_wire_change head;
    uint32_t words[DIM];
    float diff[DIM];
    const size_t bytes = rt_coding_words(w->coding, DIM) * sizeof *words;
    memcpy(&head, record, sizeof head);
    assert_true(head.key == key && head.version == version && head.base == base);
    for (uint32_t k = 0; k < DIM; k++)
        diff[k] = now[k] - before[k];
    rt_coding_pack(w->coding, diff, DIM, words);
    assert_memory_equal(record + sizeof head, words, bytes);
    assert_memory_equal(record + sizeof head + bytes, now + DIM, STATE * sizeof *now);
}

// Against what the row was when it came: rounded, or as every process makes it. Rows that go whole
// are, from then on, what others get of them.
static void what_changed_goes_out(void **state)
{
    (void)state;
    static const uint32_t slots[] = {0, 2, 3, 4};
    for (uint32_t c = 0; c < RT_COUNT_OF(codings); c++) {
        world w;
        float rows[5][ROW_FLOATS], came[ROW_FLOATS], whole[2][ROW_FLOATS], went[2][ROW_FLOATS];
        make(&w, codings[c], false);
        const size_t change_bytes =
            sizeof(rt_wire_change) + (rt_coding_words(codings[c], DIM) + STATE) * sizeof(float);
        const size_t whole_bytes = sizeof(rt_wire_row) + ROW_FLOATS * sizeof(float);
        pull_five(&w, rows);
        change(&w, slots, 4);
        train(&w.r, (float[6 * DIM]){0});
        forget_sent(&w.r);
        begin(&w.r);
        for (uint32_t i = 0; i < 4; i++) {
            dp_op *op =
                add_op(&w.r, DP_OP_PUSH_ROW, key_of(slots[i] % FIELDS, 0, slots[i]), slots[i], 1);
            op->reason = i % 2 ? DP_REASON_EVICT : DP_REASON_UPDATE;
            op->flags |= i > 1 ? DP_OP_WHOLE : 0;
        }
        add_row(&w.r, 3, 1, DP_MODE_OWN);
        add_row(&w.r, 7, 1, DP_MODE_OWN);
        for (uint32_t i = 0; i < 2; i++)
            memcpy(whole[i], row_at(&w.r, 3 + i), sizeof whole[i]);
        give_next(&w);
        assert_int_equal(w.r.sent_count, 2);
        const uint8_t *record = sent_as(&w, 0, RT_MESSAGE_PUSH_CHANGE, 2, change_bytes);
        rounded(&w, rows[0], came);
        check_change(&w, record, key_of(0, 0, 0), 1, 3, came, row_at(&w.r, 0));
        check_change(&w, record + change_bytes, key_of(0, 0, 2), 1, 0, rows[2], row_at(&w.r, 2));
        record = sent_as(&w, 1, RT_MESSAGE_PUSH_ROW, 2, whole_bytes);
        for (uint32_t i = 0; i < 2; i++, record += whole_bytes) {
            rt_wire_row head;
            memcpy(&head, record, sizeof head);
            assert_true(head.key == key_of((3 + i) % FIELDS, 0, 3 + i) && head.version == 1);
            assert_int_equal(head.tag, i ? DP_REASON_EVICT : DP_REASON_UPDATE);
            assert_memory_equal(record + sizeof head, whole[i], sizeof whole[i]);
            memcpy(went[i], whole[i], sizeof went[i]);
            rounded(&w, whole[i], went[i]);
            assert_memory_equal(row_at(&w.r, 3 + i), went[i], sizeof went[i]);
        }
        change(&w, slots + 2, 1);
        train(&w.r, NULL);
        forget_sent(&w.r);
        begin(&w.r);
        add_op(&w.r, DP_OP_PUSH_ROW, key_of(1, 0, 3), 3, 2);
        give_next(&w);
        record = sent_as(&w, 0, RT_MESSAGE_PUSH_CHANGE, 1, change_bytes);
        check_change(&w, record, key_of(1, 0, 3), 2, 1, went[0], row_at(&w.r, 3));
        const rt_counts done = ew_executor_get_statistics(w.r.executor).done;
        assert_true(done.update_push == 2 && done.evict_push == 2 && done.flush_push == 0);
        assert_int_equal(ew_executor_get_statistics(w.r.executor).stale_reads, 0);
        destroy(&w);
    }
}

// ---- bounded staleness -----------------------------------------------------------------------

static void check_delta(const world *w, const uint8_t *record, rt_wire_delta want,
                        const float *before, const float *now)
{
    rt_wire_delta head;
    float diff[ROW_FLOATS];
    uint32_t words[DIM];
    const size_t bytes = rt_coding_words(w->coding, DIM) * sizeof *words;
    memcpy(&head, record, sizeof head);
    assert_memory_equal(&head, &want, sizeof want);
    for (uint32_t k = 0; k < ROW_FLOATS; k++)
        diff[k] = now[k] - before[k];
    rt_coding_pack(w->coding, diff, DIM, words);
    assert_memory_equal(record + sizeof head, words, bytes);
    assert_memory_equal(record + sizeof head + bytes, diff + DIM, STATE * sizeof *diff);
}

// What has changed since a row came, values and state, goes out; the copy lacks what others have
// changed, and is given up.
static void changes_of_stale_rows(rt_coding coding)
{
    world w;
    float rows[2][ROW_FLOATS], came[2][ROW_FLOATS], now[2][ROW_FLOATS];
    const uint64_t keys[] = {key_of(0, 0, 0), key_of(1, 0, 0)};
    make(&w, coding, true);
    begin(&w.r);
    add_op(&w.r, DP_OP_PULL, keys[0], 0, 3);
    add_op(&w.r, DP_OP_INIT, keys[1], 1, 0);
    for (uint32_t i = 0; i < 2; i++)
        add_row(&w.r, i, i ? 0 : 3, DP_MODE_OWN);
    give_next(&w);
    fill(0, rows[0]);
    answer_all(&w, 0, 1, rows);
    rt_row_init(keys[1], w.r.rows.seed, w.r.rows.init_scale, DIM, came[1]);
    rt_optimizer_init_state(&w.r.rows.optimizer, DIM, came[1] + DIM);
    memcpy(came[0], rows[0], sizeof came[0]);
    rounded(&w, rows[0], came[0]);
    for (uint32_t i = 0; i < 2; i++)
        assert_memory_equal(row_at(&w.r, i), came[i], sizeof came[i]);
    change(&w, (const uint32_t[]){0, 1}, 2);
    train(&w.r, NULL);
    forget_sent(&w.r);
    begin(&w.r);
    for (uint32_t i = 0; i < 2; i++) {
        dp_op *op = add_op(&w.r, DP_OP_PUSH_DELTA, keys[i], i, i ? 1 : 4);
        op->mask = 1; // the version that the slot has
        op->base = i ? 0 : 3;
        op->pulls = (uint8_t)(2 - i);
        op->reason = i ? DP_REASON_FLUSH : DP_REASON_EVICT;
        memcpy(now[i], row_at(&w.r, i), sizeof now[i]);
        add_row(&w.r, i, 1, DP_MODE_OWN); // which is there no more
    }
    give_next(&w);
    assert_int_equal(w.r.sent_count, 1);
    const bool coded = coding != RT_CODING_FP32;
    const size_t bytes =
        sizeof(rt_wire_delta) + (rt_coding_words(coding, DIM) + STATE) * sizeof(float);
    const uint8_t *record =
        sent_as(&w, 0, coded ? RT_MESSAGE_PUSH_DELTA_CODED : RT_MESSAGE_PUSH_DELTA, 2, bytes);
    check_delta(&w, record, (rt_wire_delta){.key = keys[0], .version = 4, .base = 3, .pulls = 2},
                came[0], now[0]);
    check_delta(&w, record + bytes,
                (rt_wire_delta){.key = keys[1], .version = 1, .base = 0, .pulls = 1}, came[1],
                now[1]);
    assert_int_equal(ew_executor_get_statistics(w.r.executor).stale_reads, 2);
    train(&w.r, NULL);
    const rt_counts done = ew_executor_get_statistics(w.r.executor).done;
    assert_true(done.evict_push == 1 && done.flush_push == 1 && done.update_push == 0);
    destroy(&w);
}

static void stale_rows_go_out_as_changes(void **state)
{
    (void)state;
    changes_of_stale_rows(RT_CODING_FP32);
    changes_of_stale_rows(RT_CODING_BF16);
    changes_of_stale_rows(RT_CODING_INT8);
}

static void not_accepted(world *w, const char *text)
{
    rt_error error;
    rt_message message = slice_message(&w->r, w->r.sequence + 1);
    rt_message_header(&message)->epoch = EPOCH;
    assert_int_equal(give(&w->r, COORDINATOR, &message, &error), RT_WIRE);
    if (!strstr(error.text, text))
        fail_msg("\"%s\" lacks \"%s\"", error.text, text);
}

static void each_pushes_in_its_own_way(void **state)
{
    (void)state;
    world w;
    make(&w, RT_CODING_FP32, true);
    begin(&w.r);
    add_op(&w.r, DP_OP_PUSH_ROW, key_of(0, 0, 0), 0, 0);
    not_accepted(&w, "slice 1 pushes rows, but consistency.staleness is above 0");
    destroy(&w);
    make(&w, RT_CODING_FP32, false);
    begin(&w.r);
    add_op(&w.r, DP_OP_PUSH_DELTA, key_of(0, 0, 0), 0, 1)->pulls = 0;
    not_accepted(&w, "slice 1 pushes changes of rows, but consistency.staleness is 0 or off");
    destroy(&w);
}

// A run that begins with a model pulls its rows in version 0: they are not what a worker would make.
static void rows_of_a_model_change_from_what_came(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < RT_COUNT_OF(codings); c++) {
        world w;
        const uint64_t key = key_of(0, 0, 0);
        float rows[1][ROW_FLOATS], came[ROW_FLOATS];
        make(&w, codings[c], false);
        begin(&w.r);
        add_op(&w.r, DP_OP_PULL, key, 0, 0)->flags = DP_OP_STATE;
        add_row(&w.r, 0, 0, DP_MODE_OWN);
        add_op(&w.r, DP_OP_INIT, key_of(1, 0, 9), 7, 0);
        add_row(&w.r, 7, 0, DP_MODE_OWN); // a sample has two
        fill(0, rows[0]);
        memcpy(came, rows[0], sizeof came);
        rounded(&w, rows[0], came);
        give_next(&w);
        answer_all(&w, 0, 1, rows);
        assert_memory_equal(row_at(&w.r, 0), came, sizeof came);
        change(&w, (const uint32_t[]){0}, 1);
        train(&w.r, (float[2 * DIM]){0});
        forget_sent(&w.r);
        begin(&w.r);
        add_op(&w.r, DP_OP_PUSH_ROW, key, 0, 1);
        give_next(&w);
        const uint8_t *record = sent_as(
            &w, 0, RT_MESSAGE_PUSH_CHANGE, 1,
            sizeof(rt_wire_change) + (rt_coding_words(codings[c], DIM) + STATE) * sizeof(float));
        check_change(&w, record, key, 1, 0, came, row_at(&w.r, 0));
        destroy(&w);
    }
}

TEST_MAIN(TEST(rows_come_rounded), TEST(rounded_rows_wait_for_their_slots),
          TEST(the_other_kind_of_rows_is_refused), TEST(what_changed_goes_out),
          TEST(stale_rows_go_out_as_changes), TEST(each_pushes_in_its_own_way),
          TEST(rows_of_a_model_change_from_what_came))
