// An executor alone, with rows of one value: in 8 bits they take more words than they have values.
#define DIM 1u
#include "tests/support/executor_case.h"

enum { ROWS = 4, WORDS = 2 }; // a scale, a code

typedef struct {
    rt_wire_row head;
    uint32_t words[WORDS];
    float state;
} coded_row;

// Rows that wait for their slots have room, each for all its words.
static void rounded_rows_do_not_overlap(void **state)
{
    (void)state;
    rig r;
    ew_codes codes;
    rt_error error;
    rt_message message;
    const size_t bytes = offsetof(coded_row, state) + sizeof(float);
    ew_executor_config config = config_of(&r, 3, 4, 4096);
    assert_int_equal(ew_codes_init(&codes, RT_CODING_INT8, SLOTS, DIM, 7, 0.1f), RT_OK);
    assert_int_equal(codes.words, WORDS);
    config.codes = &codes;
    create(&r, &config);
    begin(&r);
    for (uint32_t i = 0; i < ROWS; i++) {
        add_op(&r, DP_OP_INIT, key_of(i % FIELDS, 0, i), i, 0);
        add_row(&r, i, 0, DP_MODE_OWN);
    }
    give_slice(&r);
    begin(&r);
    for (uint32_t i = 0; i < ROWS; i++) {
        add_op(&r, DP_OP_PUSH_ROW, key_of(i % FIELDS, 0, i), i, 1)->reason = DP_REASON_EVICT;
        add_op(&r, DP_OP_PULL, key_of(i % FIELDS, 0, 10 + i), i, 2);
        add_row(&r, i, 2, DP_MODE_OWN);
    }
    give_slice(&r);
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_ROWS_CODED, rt_peer(RT_ROLE_PS, 0), 2,
                                       ROWS, ROWS * bytes),
                     RT_OK);
    for (uint32_t n = 0; n < ROWS; n++) { // the last one first
        const uint32_t i = ROWS - 1 - n;
        const rt_wire_pull pull = pull_at(&r, 0, i);
        const float value = 100 + (float)i;
        coded_row row = {.head = {pull.key, 2, pull.tag}, .state = 50 + (float)i};
        rt_coding_pack(RT_CODING_INT8, &value, DIM, row.words);
        memcpy(rt_message_payload(&message) + n * bytes, &row, bytes);
    }
    assert_int_equal(give(&r, rt_peer(RT_ROLE_PS, 0), &message, &error), RT_OK);
    assert_int_equal(ew_executor_get_statistics(r.executor).rows_early, ROWS);
    train(&r, NULL);
    for (uint32_t i = 0; i < ROWS; i++) {
        assert_true(row_at(&r, i)[0] > 99.9f + (float)i && row_at(&r, i)[0] < 100.1f + (float)i);
        assert_true(row_at(&r, i)[1] == 50 + (float)i);
    }
    teardown(&r);
    ew_codes_fini(&codes);
}

TEST_MAIN(TEST(rounded_rows_do_not_overlap))
