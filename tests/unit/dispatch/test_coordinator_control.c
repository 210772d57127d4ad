// What people ask of a run: every request, what it is answered, and what it becomes.
#include "runtime/config/rt_policies.h"
#include "tests/unit/dispatch/test_coordinator_ask.h"

#include "dispatch/coordinator/dp_control.h"
#include "dispatch/coordinator/dp_run.h"
#include "tests/support/config_case.h"
#include "tests/support/visitors.h"

static void fail_run(fixture *f)
{
    say(f, 0, RT_MESSAGE_FAILED, 0, "enough", 6, NULL, 0);
    expect_stop(f, RT_REASON_FAILED);
    finish(f, RT_PEER, "enough");
}

static void must_have_lines(const fixture *f, const char *name, const char *text, uint32_t want)
{
    const uint32_t count = count_lines(f, name, text);
    if (count != want)
        fail_msg("%s: %u lines with %s, expected %u", name, count, text, want);
}

// ---- set -------------------------------------------------------------------------------------

#define SETTABLE                                                                           \
    "dispatch.alpha, dispatch.search_evaluations, dispatch.budget_ms, dispatch.policy, "   \
    "dispatch.participants, optimizer.rows.learning_rate, optimizer.dense.learning_rate, " \
    "publish.guard.log_loss, publish.guard.calibration, publish.guard.hold_s, log.level"

static void open_with(fixture *f, rt_participants who, uint64_t mask, bool has_folder)
{
    prepare(f);
    f->own.directory = has_folder ? f->out : NULL;
    f->config.dispatch.participants = who;
    f->config.dispatch.participant_mask = mask;
    f->config.dispatch.measure_compute = false; // no records but ours
    start(f);
}

static void set_from(fixture *f, const char *key, const char *value, const char *when)
{
    char request[128], says[160];
    snprintf(request, sizeof request, "set\n%s\n%s", key, value);
    snprintf(says, sizeof says, "%s is %s from %s on", key, value, when);
    ask(f, request, RT_OK, says);
}

static void set(fixture *f, const char *key, const char *value)
{
    set_from(f, key, value, "the next plan");
}

// Each is one record, for every worker one.
static void what_is_set_becomes_records(void **state)
{
    (void)state;
    fixture f;
    open_with(&f, RT_PARTICIPANTS_LIST, 3, true);
    train_to(&f, 2);
    set(&f, "dispatch.alpha", "0.25");
    set(&f, "dispatch.search_evaluations", "777");
    set(&f, "dispatch.policy", "laia");
    set(&f, "dispatch.participants", "[1]");
    set_from(&f, "log.level", "error", "now");
    train_to(&f, 12);
    must_have_lines(&f, "records.jsonl", "\"kind\":", 4);
    must_have_lines(&f, "records.jsonl", "\"kind\":\"alpha\",\"value\":0.25", 1);
    must_have_lines(&f, "records.jsonl", "\"kind\":\"search_evaluations\",\"value\":777", 1);
    must_have_lines(&f, "records.jsonl", "\"kind\":\"participates\",\"worker\":0,\"value\":0", 1);
    set(&f, "dispatch.participants", "all"); // of values that are in force already nothing comes
    set(&f, "dispatch.policy", "random");
    train_to(&f, 24);
    must_have_lines(&f, "records.jsonl", "\"kind\":", 6);
    must_have_lines(&f, "records.jsonl", "\"kind\":\"participates\",\"worker\":0,\"value\":1", 1);
    char name[64];
    snprintf(name, sizeof name, "\"kind\":\"policy\",\"value\":%d", RT_POLICY_LAIA);
    must_have_lines(&f, "records.jsonl", name, 1);
    snprintf(name, sizeof name, "\"kind\":\"policy\",\"value\":%d", RT_POLICY_RANDOM);
    must_have_lines(&f, "records.jsonl", name, 1);
    must_have_lines(&f, "metrics.jsonl", "\"record\":\"set\"", 7);
    must_have_lines(&f, "metrics.jsonl", "\"key\":\"dispatch.alpha\",\"value\":\"0.25\"", 1);
    must_have_lines(&f, "metrics.jsonl", "\"key\":\"log.level\",\"value\":\"error\"", 1);
    fail_run(&f);
}

// What is refused changes nothing.
static void what_cannot_be_set(void **state)
{
    (void)state;
    fixture f;
    open_with(&f, RT_PARTICIPANTS_ALL, 0, false);
    refuse(&f, "set\nworkers\n2",
           "workers: cannot be set while a run trains; expected one of " SETTABLE);
    refuse(
        &f, "set\ndispatch.participants\n[1]",
        "dispatch.participants: this run began with \"all\": its shards keep no dense weights for "
        "workers that come back");
    refuse(
        &f, "set\noptimizer.rows.learning_rate\n0.5",
        "optimizer.rows.learning_rate: needs a checkpoint from which all processes start again, and this "
        "run makes none: it has neither --out nor checkpoint.directory, or workers that plan");
    refuse(&f, "set\ndispatch.alpha",
           "a request \"set\" with 1 arguments, which this build does not know");
    refuse(&f, "sets\ndispatch.alpha\n1",
           "a request \"sets\" with 2 arguments, which this build does not know");
    refuse(&f, "drain", "a request \"drain\" with 0 arguments, which this build does not know");
    refuse(&f, "forget\nx\ny",
           "a request \"forget\" with 2 arguments, which this build does not know");
    fail_run(&f);
}

static void only_who_began_so_can_choose(void **state)
{
    (void)state;
    fixture f;
    open_with(&f, RT_PARTICIPANTS_LIST, 3, true);
    refuse(&f, "set\ndispatch.participants\nauto",
           "dispatch.participants: only a run that began with it can choose");
    train_to(&f, 10);
    must_have_lines(&f, "records.jsonl", "\"kind\":", 0);
    must_have_lines(&f, "metrics.jsonl", "\"record\":\"set\"", 0);
    fail_run(&f);
}

// Half of the numbers of visitors are taken: who asks finds one of the others.
static void others_ask_too(void **state)
{
    (void)state;
    fixture f;
    visitors others;
    static const char nothing[] = "nothing";
    open_with(&f, RT_PARTICIPANTS_ALL, 0, false);
    visitors_take(&others, f.address, 0, RT_RANKS_MAX / 2, RT_MESSAGE_CONTROL, nothing,
                  strlen(nothing));
    for (int i = 0; i < 4; i++)
        set(&f, "dispatch.alpha", i % 2 ? "0.25" : "0.5");
    visitors_leave(&others);
    fail_run(&f);
}

// ---- forget ----------------------------------------------------------------------------------

#define HEXADECIMAL "forget: expected keys of 16 hexadecimal digits"

static bool is_listed(const fixture *f, const char *key)
{
    return count_lines(f, "checkpoints/forgotten", key) == 1;
}

// Trains on until a checkpoint without the rows is there.
static void await_no_list(fixture *f)
{
    (void)train_to_flush(f);
    const uint32_t cut = play_cut(f);
    if (f->config.checkpoint.copies)
        give_file(f, 0, cut, rows);
    assert_in_range(cut, 2 + 2 + 8, ITERATIONS);
    train_to(f, cut + 5);
    while (access(test_path("out/checkpoints/forgotten"), F_OK) == 0) { // it is being written
        assert_true(rt_now_ns() < f->end_ns);
        usleep(10000);
    }
}

// Their keys are beside the checkpoints until one is there that has all rows, and not these.
static void rows_are_forgotten(void **state)
{
    (void)state;
    fixture f;
    open_with(&f, RT_PARTICIPANTS_ALL, 0, true);
    train_to(&f, 2);
    static const char *const wrong[] = {"0123456789abcde",    "0123456789abcdef0",
                                        "0123456789abcdeg",   "0123456789ABCDEF",
                                        "0123456789abcdef,1", "x"};
    for (size_t i = 0; i < RT_COUNT_OF(wrong); i++) {
        char request[64];
        snprintf(request, sizeof request, "forget\n%s", wrong[i]);
        refuse(&f, request, HEXADECIMAL);
    }
    // two are the same number in two columns
    ask(&f, "forget\n0000000000000000,0000000000000001,0300000000000001", RT_OK,
        "3 keys: their rows end before the next batch is trained; checkpoints from then on do "
        "without");
    ask(&f, "forget\nfedcba9876543210", RT_OK,
        "1 keys: their rows end before the next batch is trained; checkpoints from then on do "
        "without");
    assert_true(is_listed(&f, "0000000000000000\n") && is_listed(&f, "0000000000000001\n"));
    assert_true(is_listed(&f, "fedcba9876543210\n"));
    await_no_list(&f);
    must_have_lines(&f, "metrics.jsonl", "\"record\":\"forget\"", 2);
    must_have_lines(&f, "metrics.jsonl", "\"keys\":3}", 1);
    must_have_lines(&f, "records.jsonl", "\"kind\":\"forget\"", 4);
    must_have_lines(&f, "records.jsonl", "\"key\":\"0000000000000000\"", 1);
    must_have_lines(&f, "records.jsonl", "\"key\":\"0000000000000001\"", 1);
    must_have_lines(&f, "records.jsonl", "\"key\":\"0300000000000001\"", 1);
    must_have_lines(&f, "records.jsonl", "\"key\":\"fedcba9876543210\"", 1);
    fail_run(&f);
}

// Rows that were not trained for 20 iterations end: what a record says of that.
static void rows_end(void **state)
{
    (void)state;
    fixture f;
    rt_wire_expire order;
    const rt_wire_expire answer = {.rows = 17};
    prepare(&f);
    f.config.rows.expire_iterations = 20;
    f.config.dispatch.measure_compute = false;
    start(&f);
    (void)train_to_flush(&f);
    for (uint32_t w = 0; w < WORKERS; w++) {
        rt_message message = expect(&f, 1 + w, RT_MESSAGE_MARK);
        say(&f, 1 + w, RT_MESSAGE_MARK, rt_message_header(&message)->iteration, NULL, 0, NULL, 0);
        rt_message_release(&message);
    }
    rt_message message = expect(&f, 0, RT_MESSAGE_EXPIRE);
    const uint32_t cut = (uint32_t)rt_message_header(&message)->iteration;
    memcpy(&order, rt_message_payload(&message), sizeof order);
    rt_message_release(&message);
    say(&f, 0, RT_MESSAGE_EXPIRE, cut, &answer, sizeof answer, NULL, 0);
    for (uint32_t w = 0; w < WORKERS; w++) { // it goes on
        message = expect(&f, 1 + w, RT_MESSAGE_SLICE);
        rt_message_release(&message);
    }
    cJSON *sweep = last_record(&f, "sweep");
    assert_true(cut > 20 && number(sweep, "iteration") == cut);
    assert_true(order.floor == cut - 20 + 1 && number(sweep, "floor") == order.floor);
    assert_true(number(sweep, "rows_ended") == 17 && number(sweep, "forgotten") == 0);
    assert_true(number(sweep, "keys_ended") > 0 && number(sweep, "keys") > 0);
    cJSON_Delete(sweep);
    fail_run(&f);
}

static void without_checkpoints(void **state)
{
    (void)state;
    fixture f;
    open_with(&f, RT_PARTICIPANTS_ALL, 0, false);
    ask(&f, "forget\n0123456789abcdef", RT_OK,
        "1 keys: their rows end before the next batch is trained");
    assert_int_equal(access(test_path("out/checkpoints"), F_OK), -1);
    fail_run(&f);
}

// A slice that a worker keeps for a while.
static rt_message take_slice(fixture *f, uint32_t worker, uint32_t want)
{
    uint32_t iteration;
    rt_message slice = expect(f, 1 + worker, RT_MESSAGE_SLICE);
    (void)report_on(&slice, &iteration);
    assert_int_equal(iteration, want);
    return slice;
}

// Without checkpoints keys wait until all plans that may have been made without them are trained.
static void how_long_keys_wait(void **state)
{
    (void)state;
    enum { PART = DP_FORGET_MAX / 2, AHEAD = 2, LAST = 2 + AHEAD + 8 }; // 8: on their way
    fixture f;
    rt_message kept[AHEAD + 1][WORKERS];
    char request[16 + 17 * PART] = "forget\n", *at = request + strlen(request);
    open_with(&f, RT_PARTICIPANTS_ALL, 0, false);
    for (uint32_t i = 0; i < PART; i++)
        at += snprintf(at, 18, "%s%016x", i ? "," : "", i);
    train_to(&f, 2);
    for (uint32_t i = 0; i < AHEAD + 1; i++) { // the last one: once iteration 2 is complete
        for (uint32_t w = 0; w < WORKERS; w++)
            kept[i][w] = take_slice(&f, w, 3 + i);
    }
    for (uint32_t i = 0; i < 2; i++)
        ask(&f, request, RT_OK, "128 keys: their rows end before the next batch is trained");
    for (uint32_t t = 3; t <= LAST + 1; t++) {
        if (t == LAST + 1)
            refuse(&f, "forget\n0123456789abcdef",
                   "forget: 256 keys wait for a checkpoint without their rows: ask again later");
        for (uint32_t w = 0; w < WORKERS; w++) {
            uint32_t iteration;
            rt_message *slice = &kept[(t - 3) % (AHEAD + 1)][w];
            const rt_wire_report one = report_on(slice, &iteration);
            report(&f, w, rt_message_header(slice)->iteration, &one);
            rt_message_release(slice);
        }
        for (uint32_t w = 0; w < WORKERS; w++)
            kept[(t - 3) % (AHEAD + 1)][w] = take_slice(&f, w, t + AHEAD + 1);
    }
    ask(&f, "forget\n0123456789abcdef", RT_OK,
        "1 keys: their rows end before the next batch is trained");
    for (uint32_t i = 0; i < (AHEAD + 1) * WORKERS; i++)
        rt_message_release(&kept[i / WORKERS][i % WORKERS]);
    fail_run(&f);
}

static void put_list(const char *text, size_t size)
{
    FILE *file = fopen(test_path("out/checkpoints/forgotten"), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void must_be_damaged(rt_status status, const rt_error *error)
{
    if (status != RT_DATA || !strstr(error->text, "out/checkpoints/forgotten is damaged"))
        fail_msg("%d: %s", (int)status, error->text);
}

static rt_status open_list(dp_control *control, const char *text, size_t size, rt_error *error)
{
    static dp_run run;
    put_list(text, size);
    run.control = (dp_control){0};
    run.folder.resumes = true;
    snprintf(run.folder.checkpoints, sizeof run.folder.checkpoints, "%s",
             test_path("out/checkpoints"));
    const rt_status status = dp_control_open(&run, error);
    *control = run.control;
    return status;
}

static void must_be_both(const char *text, size_t size)
{
    rt_error error = {0};
    dp_control control;
    if (open_list(&control, text, size, &error))
        fail_msg("%s", error.text);
    assert_int_equal(control.forgotten_count, 2);
    assert_true(control.forgotten[0] == 0xa1 && control.forgotten[1] == 0xb2);
}

// A run ends before its first member where the file is not what was written: any byte of it, any
// length. One of an earlier build, which has no sum, is read.
static void a_damaged_list_is_noticed(void **state)
{
    (void)state;
    fixture f;
    char text[200];
    rt_error error = {0};
    dp_control control;
    open_with(&f, RT_PARTICIPANTS_ALL, 0, true);
    train_to(&f, 2);
    ask(&f, "forget\n00000000000000a1,00000000000000b2", RT_OK,
        "2 keys: their rows end before the next batch is trained; checkpoints from then on do "
        "without");
    FILE *file = fopen(test_path("out/checkpoints/forgotten"), "r");
    assert_non_null(file);
    const size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = '\0';
    await_no_list(&f);
    fail_run(&f);
    must_be_both(text, size);
    for (size_t i = 0; i < size; i++) {
        must_be_damaged(open_list(&control, text, i, &error), &error);
        text[i] ^= 1;
        must_be_damaged(open_list(&control, text, size, &error), &error);
        text[i] ^= 1;
    }
    const char *keys = strchr(text, '\n') + 1;
    must_be_both(keys, strlen(keys));
    must_be_damaged(open_list(&control, keys, strlen(keys) - 1, &error), &error);
    prepare_again(&f);
    f.own.directory = f.out;
    f.own.resume = DP_RESUME_NEWEST;
    must_be_damaged(dp_coordinator_run(&f.own, &f.error), &f.error);
    assert_string_equal(f.address, "");
    rt_config_fini(&f.config);
}

// As many as can wait, and not one more.
static void too_many_are_forgotten(void **state)
{
    (void)state;
    enum { PART = DP_FORGET_MAX / 2 };
    fixture f;
    char request[16 + 17 * PART] = "forget\n", *at = request + strlen(request);
    open_with(&f, RT_PARTICIPANTS_ALL, 0, true);
    for (uint32_t i = 0; i < PART; i++)
        at += snprintf(at, 18, "%s%016x", i ? "," : "", i);
    for (uint32_t i = 0; i < 2; i++)
        ask(&f, request, RT_OK,
            "128 keys: their rows end before the next batch is trained; checkpoints from then on "
            "do without");
    refuse(&f, "forget\n0123456789abcdef",
           "forget: 256 keys wait for a checkpoint without their rows: ask again later");
    fail_run(&f);
}

// ---- what goes by a checkpoint ---------------------------------------------------------------

static cJSON *read_boxes(const fixture *f)
{
    return json_of(f, "checkpoints/boxes");
}

// It is answered with the checkpoint, with which the run ends, to start anew.
static void must_start_anew(fixture *f, question *q, const char *what, uint32_t drained)
{
    char says[128];
    (void)train_to_flush(f);
    const uint32_t cut = play_cut(f);
    if (f->config.checkpoint.copies)
        give_file(f, 0, cut, rows);
    expect_stops(f, RT_REASON_ANEW, drained);
    snprintf(says, sizeof says, "%s: all processes start again from iteration %u", what, cut);
    end_question(q, RT_OK, says);
    finish(f, RT_AGAIN, says);
}

static void must_have_rate(const cJSON *boxes, const char *key, double value, double configured)
{
    const cJSON *rate = cJSON_GetObjectItemCaseSensitive(boxes, key);
    test_close(number(rate, "value"), value, 1e-6, 0, key);
    test_close(number(rate, "configured"), configured, 1e-6, 0, key);
}

static void other_rates_begin_anew(void **state)
{
    (void)state;
    fixture f;
    question q;
    open_with(&f, RT_PARTICIPANTS_ALL, 0, true);
    const double rates[] = {(double)f.config.optimizer_rows.learning_rate,
                            (double)f.config.optimizer_dense.learning_rate};
    train_to(&f, 2);
    begin_question(&q, &f, "set\noptimizer.rows.learning_rate\n0.375");
    while (count_lines(&f, "metrics.jsonl", "\"key\":\"optimizer.rows.learning_rate\"") == 0)
        usleep(1000);
    refuse(&f, "set\noptimizer.dense.learning_rate\n0.5",
           "optimizer.dense.learning_rate: optimizer.rows.learning_rate changes already with the "
           "next checkpoint: ask again later");
    must_start_anew(&f, &q, "optimizer.rows.learning_rate changes", MEMBERS);
    cJSON *boxes = read_boxes(&f);
    must_have_rate(boxes, "optimizer.rows.learning_rate", 0.375, rates[0]);
    must_have_rate(boxes, "optimizer.dense.learning_rate", rates[1], rates[1]);
    cJSON_Delete(boxes);
}

// ---- boxes -----------------------------------------------------------------------------------

// A shard and a worker, a worker, and a shard that takes no part.
static void open_boxes_in(fixture *f)
{
    f->config.stream.samples_max = 0; // no end
    config_must_set(
        &f->config,
        "boxes=[" BOX("a", ",\"shards\":1,\"workers\":1") "," BOX("b", ",\"workers\":1") "," BOX(
            "c", ",\"shards\":1,\"workers\":0,\"spare\":true") "]");
    assert_int_equal(f->config.worker_count, WORKERS);
    assert_int_equal(f->config.ps_shard_count, 2);
    start(f);
    train_to(f, 2);
}

static void open_boxes(fixture *f)
{
    prepare(f);
    open_boxes_in(f);
}

static void boxes_that_cannot_move(void **state)
{
    (void)state;
    fixture f;
    open_boxes(&f);
    refuse(&f, "add\na", "a: already takes part in this run");
    refuse(&f, "drain\nc", "c: takes no part in this run");
    refuse(&f, "drain\nx", "x: the configuration has no box of that name");
    refuse(&f, "add\nx",
           "x: the configuration has no box of that name: `lanyard add RUN BOX --gbps G` "
           "says what it is");
    refuse(&f, "drain\na", "a: has the last shard of this run");
    refuse(&f, "add\nc",
           "c: not there yet: ps 1; start them on that box, they wait to be taken in");
    fail_run(&f);
}

static void without_boxes(void **state)
{
    (void)state;
    fixture f;
    open_with(&f, RT_PARTICIPANTS_ALL, 0, true);
    refuse(&f, "drain\na", "a: the configuration does not say which boxes there are: boxes");
    fail_run(&f);
}

static void a_box_leaves(void **state)
{
    (void)state;
    fixture f;
    question q;
    open_boxes(&f);
    begin_question(&q, &f, "drain\nb");
    must_start_anew(&f, &q, "b leaves", 2);
    cJSON *boxes = read_boxes(&f), *names = cJSON_GetObjectItem(boxes, "boxes");
    assert_int_equal(cJSON_GetArraySize(names), 1);
    assert_string_equal(cJSON_GetArrayItem(names, 0)->valuestring, "a");
    assert_true(number(boxes, "still_s") > 1e9); // by the clock of the day
    cJSON_Delete(boxes);
}

// What is no box, or cannot be one, leaves nothing behind.
static void boxes_that_cannot_be_new(void **state)
{
    (void)state;
    fixture f;
    open_boxes(&f);
    refuse(&f, "add\nd d\n{}",
           "d d: a box that is added has a name of letters, digits, dots, dashes, "
           "underscores");
    refuse(&f, "add\nc\n{}",
           "c: is already a box of this run: `lanyard add RUN c` without other options takes it "
           "in");
    refuse(&f, "add\nd\n7", "d: a request that is no JSON object");
    refuse(&f, "add\nd\n{\"box\":" BOX("e", ",\"workers\":1") "}", "d: a request with another box");
    refuse(&f, "add\nd\n{\"box\":" BOX("d", ",\"workers\":1") ",\"key\":\"k\"}",
           "d: this run uses no keys (security.key)");
    assert_int_equal(access(test_path("out/checkpoints/boxes"), F_OK), -1);
    fail_run(&f);
}

static void a_box_that_is_new(void **state)
{
    (void)state;
    fixture f;
    char says[1024], says_of_e[1024];
    open_boxes(&f);
    snprintf(
        says_of_e, sizeof says_of_e,
        "e is known to this run: worker 4. Start them there with the "
        "configuration %s/checkpoints/e.json: they are taken in with a checkpoint as soon as they "
        "are all there",
        f.out);
    snprintf(says, sizeof says,
             "d is known to this run: worker 2, worker 3, ps 2. Start them there "
             "with the configuration %s/checkpoints/d.json: they are taken in with a checkpoint as "
             "soon as they are all there",
             f.out);
    ask(&f, "add\nd\n{\"box\":" BOX("d", ",\"workers\":2,\"shards\":1") "}", RT_OK, says);
    ask(&f, "add\ne\n{\"box\":" BOX("e", ",\"workers\":1") "}", RT_OK, says_of_e);
    cJSON *boxes = read_boxes(&f), *added = cJSON_GetObjectItem(boxes, "added");
    assert_int_equal(cJSON_GetArraySize(added), 2);
    for (int i = 0; i < 2; i++) {
        const cJSON *one = cJSON_GetArrayItem(added, i);
        assert_true(number(one, "at") == 3 + i);
        text_must_be(cJSON_GetObjectItem(one, "box"), "name", i ? "e" : "d");
        assert_true(cJSON_IsTrue(cJSON_GetObjectItem(one, "awaited")));
    }
    cJSON_Delete(boxes);
    refuse(&f, "add\nd",
           "d: not there yet: worker 2, worker 3, ps 2; start them on that box, they "
           "wait to be taken in");
    ask(&f, "drain\nd", RT_OK, "d is not waited for any more: `lanyard add` takes it in");
    refuse(&f, "drain\nd", "d: takes no part in this run");
    refuse(&f, "drain\nd\nfor good",
           "d: its key was not added by `lanyard add`: drain it, and remove its file from every "
           "folder of security.allow");
    refuse(&f, "drain\nx\nfor good", "x: the configuration has no box of that name");
    refuse(&f, "drain\nd\nfor now",
           "a request to drain \"for now\", which this build does not know");
    boxes = read_boxes(&f);
    added = cJSON_GetObjectItem(boxes, "added");
    for (int i = 0; i < 2; i++)
        assert_int_equal(cJSON_IsTrue(cJSON_GetObjectItem(cJSON_GetArrayItem(added, i), "awaited")),
                         i);
    cJSON_Delete(boxes);
    rt_config told;
    rt_error error = {0};
    assert_int_equal(rt_config_init(&told), RT_OK);
    if (rt_config_load(&told, test_path("out/checkpoints/d.json"), &error))
        fail_msg("%s", error.text);
    assert_int_equal(told.box_count, 4); // as it was when d was added
    assert_string_equal(told.boxes[3].name, "d");
    assert_string_equal(told.network_bind, ""); // of another box
    rt_config_fini(&told);
    fail_run(&f);
    prepare_again(&f); // the next start knows them, too
    open_boxes_in(&f);
    refuse(&f, "add\nd",
           "d: not there yet: worker 2, worker 3, ps 2; start them on that box, they "
           "wait to be taken in");
    refuse(&f, "add\ne\n{}",
           "e: is already a box of this run: `lanyard add RUN e` without other options takes it "
           "in");
    ask(&f, "drain\ne", RT_OK, "e is not waited for any more: `lanyard add` takes it in");
    fail_run(&f);
}

// It is asked for once it is there; from then on it joins, whoever drains it.
static void a_box_that_joins_is_not_let_go(void **state)
{
    (void)state;
    static const char box[] = BOX("d", ",\"shards\":1,\"workers\":0");
    fixture f;
    char request[256], says[1024];
    prepare(&f);
    f.config.stream.samples_max = 0; // no end
    config_must_set(&f.config, "boxes=[" BOX("a", ",\"shards\":1,\"workers\":1") "," BOX(
                                   "b", ",\"workers\":1") "]");
    start(&f);
    train_to(&f, 2);
    snprintf(request, sizeof request, "add\nd\n{\"box\":%s}", box);
    snprintf(says, sizeof says,
             "d is known to this run: ps 1. Start them there with the configuration "
             "%s/checkpoints/d.json: they are taken in with a checkpoint as soon as they are all "
             "there",
             f.out);
    ask(&f, request, RT_OK, says);
    assert_int_equal(rt_config_add_box(&f.config, box, NULL), RT_OK);
    join_run(&f, MEMBERS);
    (void)train_to_flush(&f);
    refuse(&f, "drain\nd", "d: d joins already with the next checkpoint: ask again later");
    cJSON *boxes = read_boxes(&f);
    const cJSON *added = cJSON_GetArrayItem(cJSON_GetObjectItem(boxes, "added"), 0);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(added, "awaited")));
    cJSON_Delete(boxes);
    (void)play_cut(&f);
    fail_run(&f);
}

TEST_MAIN(TEST(what_is_set_becomes_records), TEST(what_cannot_be_set), TEST(others_ask_too),
          TEST(only_who_began_so_can_choose), TEST(rows_are_forgotten),
          TEST(a_damaged_list_is_noticed), TEST(rows_end), TEST(without_checkpoints),
          TEST(too_many_are_forgotten), TEST(how_long_keys_wait), TEST(other_rates_begin_anew),
          TEST(boxes_that_cannot_move), TEST(without_boxes), TEST(a_box_leaves),
          TEST(boxes_that_cannot_be_new), TEST(a_box_that_is_new),
          TEST(a_box_that_joins_is_not_let_go))
