// Boxes that leave a run or join it: what refuses them, what becomes of the question when the
// checkpoint fails or the run ends first, and the start that comes after.
#include "tests/unit/dispatch/test_coordinator_ask.h"

#include "runtime/stream/rt_stream.h"
#include "tests/support/config_case.h"

#define SECOND_SHARD MEMBERS

// Two boxes of a shard and a worker each.
static void prepare_boxes(fixture *f)
{
    prepare(f);
    f->config.stream.samples_max = 0; // no end
    f->config.dispatch.measure_compute = false;
    f->config.checkpoint.copies = false;
    config_must_set(&f->config, "boxes=[" BOX("a", ",\"shards\":1,\"workers\":1") "," BOX(
                                    "b", ",\"shards\":1,\"workers\":1") "]");
    assert_int_equal(f->config.worker_count, WORKERS);
    assert_int_equal(f->config.ps_shard_count, 2);
}

static void start_boxes(fixture *f)
{
    begin_run(f);
    for (uint32_t m = 0; m < MEMBERS_MAX; m++)
        join_run(f, m);
    for (uint32_t m = 0; m < MEMBERS_MAX; m++) {
        rt_message message = expect(f, m, RT_MESSAGE_WELCOME);
        rt_message_release(&message);
    }
}

static void say_rows(fixture *f, uint32_t member, uint64_t keys, uint64_t bytes)
{
    const rt_wire_vitals vitals = {
        .resident_bytes = 1, .rows = keys, .row_bytes = bytes, .row_bytes_max = bytes + 1};
    say(f, member, RT_MESSAGE_VITALS, 0, &vitals, sizeof vitals, NULL, 0);
}

static void say_vitals(fixture *f, uint32_t member, uint64_t keys)
{
    say_rows(f, member, keys, 100);
}

// As refuse, once what was said before is known: until then another answer comes.
static void refuse_then(fixture *f, const char *request, const char *before, const char *says)
{
    char text[RT_ASK_BYTES_MAX] = "";
    const rt_ask_config config = {.ops = ops, .coordinator = f->address, .timeout_s = PATIENCE_S};
    rt_error error = {0};
    do {
        assert_true(rt_now_ns() < f->end_ns);
        assert_int_equal(rt_ask(&config, request, text, &error), RT_REFUSED);
    } while (strncmp(error.text, before, strlen(before)) == 0);
    if (strncmp(error.text, says, strlen(says)) != 0)
        fail_msg("%s, expected %s", error.text, says);
}

// The run ends because of a shard.
static void end_boxes(fixture *f)
{
    say(f, 0, RT_MESSAGE_FAILED, 0, "enough", 6, NULL, 0);
    pthread_join(f->thread, NULL);
    for (uint32_t m = 0; m < MEMBERS_MAX; m++)
        ops->end(f->members[m], 0);
    finish_joined(f, RT_PEER, "ps 0 failed: enough");
}

// A cut of two shards, of which the second may have no room. Its iteration.
static uint32_t play_cut_of_two(fixture *f, rt_status second)
{
    rt_message message;
    uint64_t cut = 0;
    const rt_wire_part part = {.total = 5};
    for (uint32_t w = 0; w < WORKERS; w++) {
        message = expect(f, 1 + w, RT_MESSAGE_MARK);
        if (w == 0)
            say(f, 1, RT_MESSAGE_PART, 0, &part, sizeof part, "dense", 5);
        say(f, 1 + w, RT_MESSAGE_MARK, rt_message_header(&message)->iteration, NULL, 0, NULL, 0);
        rt_message_release(&message);
    }
    for (uint32_t s = 0; s < 2; s++) {
        const uint32_t member = s ? SECOND_SHARD : 0;
        message = expect(f, member, RT_MESSAGE_CUT);
        cut = rt_message_header(&message)->iteration;
        const rt_wire_written written = {.status = s ? (uint32_t)second : RT_OK, .bytes = 5};
        say(f, member, RT_MESSAGE_CUT, cut, NULL, 0, NULL, 0);
        say(f, member, RT_MESSAGE_WRITTEN, cut, &written, sizeof written, "why", s ? 3 : 0);
        rt_message_release(&message);
    }
    return (uint32_t)cut;
}

// Rows of a shard that leaves have to have room in the others, and a way there.
static void rows_of_a_box_that_leaves(void **state)
{
    (void)state;
    fixture f;
    prepare_boxes(&f);
    f.config.ps_memory_bytes_max = 0;
    start_boxes(&f);
    train_to(&f, 2);
    refuse(&f, "drain\nb",
           "b: rows move to other shards with the copies on the coordinator's box, but "
           "checkpoint.copies is 0");
    end_boxes(&f);
    remove_out(&f);
    prepare_boxes(&f);
    f.config.checkpoint.copies = true;
    f.config.ps_memory_bytes_max = 1 << 20;
    start_boxes(&f);
    train_to(&f, 2);
    refuse(&f, "drain\nb",
           "b: shard 0 has not said yet how many rows it has: ask again in a few seconds");
    say_vitals(&f, 0, 1000000);
    refuse_then(&f, "drain\nb", "b: shard 0 has",
                "b: shard 1 has not said yet how many rows it has: ask again in a few seconds");
    say_vitals(&f, SECOND_SHARD, 1);
    refuse_then(&f, "drain\nb", "b: shard 1 has",
                "b: there are 1000001 rows, the 1 shards that would be left hold ");
    end_boxes(&f);
}

// The checkpoint for which all wait has little to write: others go ahead of it, beside training.
static void a_large_table(void **state)
{
    (void)state;
    fixture f;
    question q;
    uint32_t cuts = 0, newest = 0, passed = 0;
    bool is_last = false;
    prepare_boxes(&f);
    f.own.spawned = true;
    f.config.ps_memory_bytes_max = 1 << 30;
    start_boxes(&f);
    train_to(&f, 2);
    for (uint32_t s = 0; s < 2; s++)
        say_rows(&f, s ? SECOND_SHARD : 0, UINT64_C(1) << 40, UINT64_C(1) << 30);
    refuse_then(&f, "drain\nb", "b: shard ", "b: there are 2199023255552 rows, the 1 ");
    begin_question(&q, &f, "set\noptimizer.rows.learning_rate\n0.375");
    while (!is_last) {
        (void)train_to_flush(&f);
        const uint32_t cut = play_cut_of_two(&f, RT_OK);
        is_last = cuts == 3 || (cuts > 0 && cut - newest >= passed / 2);
        passed = cut - newest;
        newest = cut;
        cuts++;
    }
    assert_in_range(cuts, 2, 4);
    pthread_join(f.thread, NULL);
    pthread_join(q.thread, NULL);
    assert_int_equal(q.status, RT_OK);
    for (uint32_t m = 0; m < MEMBERS_MAX; m++)
        ops->end(f.members[m], 0);
    finish_joined(&f, RT_AGAIN,
                  "optimizer.rows.learning_rate changes: all processes start again from");
}

// The question is answered, and the run goes on as it was.
static void a_checkpoint_that_fails(void **state)
{
    (void)state;
    fixture f;
    question q;
    uint32_t iteration;
    prepare_boxes(&f);
    f.own.spawned = true; // rows need no way
    start_boxes(&f);
    train_to(&f, 2);
    begin_question(&q, &f, "set\noptimizer.rows.learning_rate\n0.375");
    (void)train_to_flush(&f);
    (void)play_cut_of_two(&f, RT_IO);
    end_question(&q, RT_REFUSED, "the checkpoint could not be written: the run goes on unchanged");
    for (uint32_t i = 0; i < 5; i++)
        assert_true(train_next(&f, &iteration) > 0);
    end_boxes(&f);
    assert_int_not_equal(access(test_path("out/checkpoints/boxes"), F_OK), 0);
}

// Whoever asked is told so when the run ends first.
static void a_run_that_ends_before(void **state)
{
    (void)state;
    fixture f;
    question q;
    prepare(&f);
    f.config.stream.samples_max = 0;
    f.config.checkpoint.copies = false;
    f.config.dispatch.measure_compute = false;
    f.own.stop_fd = eventfd(0, EFD_CLOEXEC);
    start(&f);
    train_to(&f, 2);
    begin_question(&q, &f, "set\noptimizer.rows.learning_rate\n0.375");
    (void)train_to_flush(&f); // of the cut
    assert_int_equal(eventfd_write(f.own.stop_fd, 1), 0);
    (void)play_cut(&f);
    (void)train_to_flush(&f);
    end_well(&f);
    end_question(&q, RT_REFUSED, "the run ended before");
    finish(&f, RT_OK, "");
    close(f.own.stop_fd);
}

// What cannot change its boxes at all.
static void runs_that_stay_as_they_are(void **state)
{
    (void)state;
    fixture f;
    prepare_boxes(&f);
    f.config.collective = RT_COLLECTIVE_MPI;
    start_boxes(&f);
    train_to(&f, 2);
    refuse(&f, "drain\nb",
           "b: with network.collective \"mpi\" the number of workers is that of mpirun");
    end_boxes(&f);
}

static double rate_of(const cJSON *boxes, const char *key)
{
    return number(cJSON_GetObjectItemCaseSensitive(boxes, key), "value");
}

// Rates that were set stay when a box leaves.
static void rates_stay(void **state)
{
    (void)state;
    static const char text[] =
        "{\"optimizer.rows.learning_rate\":{\"value\":0.375,\"configured\":%.9g},"
        "\"optimizer.dense.learning_rate\":{\"value\":0.625,\"configured\":%.9g}}";
    fixture f;
    question q;
    prepare_boxes(&f);
    f.own.spawned = true;
    assert_int_equal(mkdir(test_path("out/checkpoints"), 0700), 0);
    FILE *file = fopen(test_path("out/checkpoints/boxes"), "w");
    assert_non_null(file);
    fprintf(file, text, (double)f.config.optimizer_rows.learning_rate,
            (double)f.config.optimizer_dense.learning_rate);
    fclose(file);
    start_boxes(&f);
    train_to(&f, 2);
    for (uint32_t s = 0; s < 2; s++)
        say_vitals(&f, s ? SECOND_SHARD : 0, 1);
    begin_question(&q, &f, "drain\nb");
    (void)train_to_flush(&f);
    (void)play_cut_of_two(&f, RT_OK);
    pthread_join(f.thread, NULL);
    pthread_join(q.thread, NULL);
    assert_int_equal(q.status, RT_OK);
    assert_memory_equal(q.text, "b leaves: all processes start again from iteration ", 51);
    for (uint32_t m = 0; m < MEMBERS_MAX; m++)
        ops->end(f.members[m], 0);
    finish_joined(&f, RT_AGAIN, "b leaves: all processes start again from iteration ");
    cJSON *boxes = json_of(&f, "checkpoints/boxes");
    test_close(rate_of(boxes, "optimizer.rows.learning_rate"), 0.375, 1e-6, 0, "rows");
    test_close(rate_of(boxes, "optimizer.dense.learning_rate"), 0.625, 1e-6, 0, "dense");
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(boxes, "boxes")), 1);
    cJSON_Delete(boxes);
}

// One that no configuration has, whose members the run's own launcher starts: the question is
// answered once all processes start again.
static void a_new_box_of_the_launcher(void **state)
{
    (void)state;
    fixture f;
    question q;
    prepare_boxes(&f);
    f.own.spawned = true;
    start_boxes(&f);
    train_to(&f, 2);
    begin_question(&q, &f, "add\nd\n{\"box\":" BOX("d", ",\"workers\":1") "}");
    (void)train_to_flush(&f);
    (void)play_cut_of_two(&f, RT_OK);
    pthread_join(f.thread, NULL);
    pthread_join(q.thread, NULL);
    assert_int_equal(q.status, RT_OK);
    assert_memory_equal(q.text, "d joins: all processes start again from iteration ", 50);
    for (uint32_t m = 0; m < MEMBERS_MAX; m++)
        ops->end(f.members[m], 0);
    finish_joined(&f, RT_AGAIN, "d joins: all processes start again from iteration ");
    cJSON *boxes = json_of(&f, "checkpoints/boxes");
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(boxes, "boxes")), 3);
    cJSON_Delete(boxes);
}

TEST_MAIN(TEST(rates_stay), TEST(a_new_box_of_the_launcher), TEST(rows_of_a_box_that_leaves),
          TEST(a_checkpoint_that_fails), TEST(a_large_table), TEST(a_run_that_ends_before),
          TEST(runs_that_stay_as_they_are))
