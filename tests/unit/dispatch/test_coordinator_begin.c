// What a run needs before it begins, what it leaves for others to find, and the model that it may
// begin with.
#include "tests/unit/dispatch/test_coordinator_support.h"

// The coordinator alone, to its end.
static void must_not_begin(fixture *f, rt_status want, const char *text)
{
    const rt_status status = dp_coordinator_run(&f->own, &f->error);
    if (status != want || !strstr(f->error.text, text))
        fail_msg("status %d (%s), expected %d with '%s'", status, f->error.text, want, text);
    assert_string_equal(f->address, "");
    rt_config_fini(&f->config);
}

// running.json says where a run listens, as long as it is there.
static void where_a_run_is_found(void **state)
{
    (void)state;
    fixture f;
    char path[600];
    prepare(&f);
    start(&f);
    cJSON *told = json_of(&f, DP_RUNNING);
    const cJSON *network = cJSON_GetObjectItem(told, "network");
    text_must_be(network, "coordinator", f.address + strlen("tcp://"));
    assert_true(number(told, "workers") == WORKERS);
    cJSON_Delete(told);
    end_by_failure(&f);
    snprintf(path, sizeof path, "%s/" DP_RUNNING, f.out);
    assert_int_not_equal(access(path, F_OK), 0);
}

// ---- a standby ---------------------------------------------------------------------------------

static void prepare_standby(fixture *f, int *fd, rt_standby_away away)
{
    prepare(f);
    f->config.standby_away = away;
    snprintf(f->config.standby, sizeof f->config.standby, "127.0.0.1:%u", listen_in_silence(fd));
}

static void a_standby_needs_a_folder(void **state)
{
    (void)state;
    fixture f;
    int silent;
    prepare_standby(&f, &silent, RT_STANDBY_WAIT);
    f.own.directory = NULL;
    must_not_begin(&f, RT_CONFIG, "coordinator.standby: needs a folder of the run: --out");
    close(silent);
}

// One that does not answer is waited for as members are, or not at all for long.
static void a_standby_that_does_not_answer(void **state)
{
    (void)state;
    fixture f;
    int silent;
    prepare_standby(&f, &silent, RT_STANDBY_WAIT);
    f.config.timeout_start_s = 0.3;
    must_not_begin(&f, RT_TIMEOUT, "");
    close(silent);
    remove_out(&f);
    prepare_standby(&f, &silent, RT_STANDBY_GO_ON);
    f.config.timeout_peer_s = 3 * test_limit_factor();
    start(&f);
    end_by_failure(&f);
    close(silent);
}

// ---- a model -----------------------------------------------------------------------------------

static void runs_that_take_no_model(void **state)
{
    (void)state;
    enum { HOMES, ADMIT, SHARE, NOT_THERE, CASES };
    static const char *const texts[] = {"--init needs ps.homes \"hashed\"",
                                        "--init needs rows.admit 1 and rows.admit_share 1",
                                        "rows.admit_share 1", "--init /nowhere/model"};
    for (uint32_t which = HOMES; which < CASES; which++) {
        fixture f;
        prepare(&f);
        f.own.model = "/nowhere/model";
        if (which == HOMES)
            f.config.ps_homes = RT_HOMES_PLANNED;
        if (which == ADMIT)
            f.config.rows.admit = 2;
        if (which == SHARE)
            f.config.rows.admit_share = 0.5;
        must_not_begin(&f, which == NOT_THERE ? RT_NOT_FOUND : RT_CONFIG, texts[which]);
        remove_out(&f);
    }
}

static void make_model(char model[600])
{
    fixture f;
    char first[600];
    prepare(&f);
    start(&f);
    train_to(&f, ITERATIONS);
    take_flush(&f);
    end_well(&f);
    finish(&f, RT_OK, "");
    snprintf(first, sizeof first, "%s", test_path("first"));
    assert_int_equal(rename(f.out, first), 0);
    snprintf(model, 600, "%.500s/model", first);
}

static void expect_rows_of_model(fixture *f, const char *model)
{
    rt_wire_load load;
    const rt_wire_written loaded = {0};
    rt_message message = expect(f, 0, RT_MESSAGE_LOAD);
    assert_int_equal(rt_message_header(&message)->iteration, 0);
    memcpy(&load, rt_message_payload(&message), sizeof load);
    rt_message_release(&message);
    assert_int_equal(load.flags, RT_WIRE_LOAD_FIRST | RT_WIRE_LOAD_MODEL);
    assert_string_equal(load.folder, model);
    assert_int_equal(load.files[0].bytes, strlen(rows));
    assert_true(load.files[0].hash == rt_hash_bytes(rows, strlen(rows)));
    say(f, 0, RT_MESSAGE_LOADED, 0, &loaded, sizeof loaded, NULL, 0);
}

static void expect_weights_of_model(fixture *f)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        static const char weights[] = "dense weights";
        rt_message message = expect(f, 1 + w, RT_MESSAGE_PART);
        const rt_wire_part want = {0, strlen(weights)};
        assert_memory_equal(rt_message_payload(&message), &want, sizeof want);
        assert_memory_equal(rt_message_payload(&message) + sizeof want, weights, strlen(weights));
        rt_message_release(&message);
    }
}

// Members take it first; then every row is pulled where it is touched first, and none is made. It
// goes on learning the scale of dense features, which begins where the model's ended.
static void a_run_that_begins_with_a_model(void **state)
{
    (void)state;
    fixture f;
    char model[600];
    uint32_t iteration, pulls = 0;
    make_model(model);
    prepare(&f);
    f.own.model = model;
    start(&f);
    expect_rows_of_model(&f, model);
    expect_weights_of_model(&f);
    for (uint32_t w = 0; w < WORKERS; w++) {
        rt_wire_slice head;
        rt_message slice = expect(&f, 1 + w, RT_MESSAGE_SLICE);
        memcpy(&head, rt_message_payload(&slice), sizeof head);
        const rt_wire_report one = report_on(&slice, &iteration);
        assert_int_equal(iteration, 1);
        assert_int_equal(head.init_count, 0);
        assert_true(head.log_odds == 0);
        pulls += head.pull_count;
        report(&f, w, rt_message_header(&slice)->iteration, &one);
        rt_message_release(&slice);
    }
    assert_true(pulls > 0);
    train_to(&f, ITERATIONS);
    take_flush(&f);
    end_well(&f);
    finish(&f, RT_OK, "");
    cJSON *manifest = json_of(&f, "model/manifest.json");
    assert_true(number(manifest, "samples") == ITERATIONS * WORKERS * BATCH);
    assert_true(number(manifest, "scale_samples") == 2 * ITERATIONS * WORKERS * BATCH);
    cJSON_Delete(manifest);
}

TEST_MAIN(TEST(where_a_run_is_found), TEST(a_standby_needs_a_folder),
          TEST(a_standby_that_does_not_answer), TEST(runs_that_take_no_model),
          TEST(a_run_that_begins_with_a_model))
