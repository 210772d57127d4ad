// A run of a coordinator from the first HELLO to the last STOP, its checkpoints, and starts that
// fail.
#include "runtime/config/rt_formats.h"
#include "runtime/config/rt_sources.h"
#include "tests/unit/dispatch/test_coordinator_support.h"

#include <poll.h>
#include <sys/un.h>

static void part_must_be(const cJSON *manifest, const char *name, const char *bytes)
{
    rt_manifest_part part;
    assert_true(rt_manifest_part_of(manifest, name, &part));
    assert_int_equal(part.sum.bytes, strlen(bytes));
    assert_true(part.has_xxh3 && part.xxh3 == rt_hash_bytes(bytes, strlen(bytes)));
}

static void check_model(const fixture *f, uint32_t iterations, uint64_t samples)
{
    char folder[600], hash[32];
    rt_error error = {0};
    cJSON *manifest;
    rt_manifest_part part;
    snprintf(folder, sizeof folder, "%s/model", f->out);
    if (rt_manifest_read(folder, &manifest, &error) || rt_manifest_check(folder, manifest, &error))
        fail_msg("%s", error.text);
    text_must_be(manifest, "kind", "model");
    assert_true(number(manifest, "iteration") == iterations);
    assert_true(number(manifest, "samples") == (double)samples);
    assert_true(number(manifest, "shards") == 1);
    snprintf(hash, sizeof hash, "%016" PRIx64, SCHEMA);
    text_must_be(manifest, "schema", hash);
    snprintf(hash, sizeof hash, "%016" PRIx64, HASH);
    text_must_be(manifest, "config", hash);
    part_must_be(manifest, "dense.bin", "dense weights");
    part_must_be(manifest, "rows-000-of-001.bin", rows);
    assert_true(rt_manifest_part_of(manifest, "config.json", &part));
    assert_true(rt_manifest_part_of(manifest, "scale.bin", &part));
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(manifest, "parts")), 4);
    cJSON_Delete(manifest);
}

// That all records together have.
static double values_of_first_column(const fixture *f)
{
    static char line[1 << 16];
    char path[600];
    double values = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", f->out);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        cJSON *record = cJSON_Parse(line);
        const cJSON *columns = cJSON_GetObjectItem(record, "columns");
        if (columns)
            values += number(cJSON_GetArrayItem(columns, 0), "values");
        cJSON_Delete(record);
    }
    fclose(file);
    return values;
}

static void a_run_from_hello_to_stop(void **state)
{
    (void)state;
    fixture f;
    prepare(&f);
    start(&f);
    assert_int_equal(f.welcome.worker_count, WORKERS);
    assert_int_equal(f.welcome.shard_count, 1);
    assert_int_equal(f.welcome.run_ahead, 3);
    assert_int_equal(f.welcome.dense_bytes, 4000);
    assert_int_equal(f.welcome.workers, 3);
    assert_int_equal(f.welcome.epoch, 0); // no checkpoints
    assert_int_equal(f.welcome.slot_count, 100000);
    assert_string_equal(f.welcome.shards[0], "tcp://127.0.0.1:1");
    const uint64_t samples = train_to(&f, ITERATIONS);
    assert_int_equal(samples, ITERATIONS * WORKERS * BATCH);
    take_flush(&f);
    end_well(&f);
    finish(&f, RT_OK, "");
    assert_int_equal(f.saved, 1);
    check_model(&f, ITERATIONS, samples);
    assert_true(values_of_first_column(&f) == (double)samples);
    cJSON *summary = json_of(&f, "summary.json");
    assert_true(number(summary, "iterations") == ITERATIONS);
    assert_true(number(summary, "samples") == (double)samples);
    assert_true(number(summary, "stale_reads") == 0);
    assert_true(number(summary, "bad_batches") == 0);
    static const char *const qualities[] = {"logloss",
                                            "auc",
                                            "normalised_entropy",
                                            "calibration",
                                            "logloss_last_fifth",
                                            "auc_last_fifth",
                                            "normalised_entropy_last_fifth",
                                            "calibration_last_fifth"};
    for (size_t i = 0; i < RT_COUNT_OF(qualities); i++)
        assert_true(isfinite(number(summary, qualities[i])));
    assert_true(number(summary, "invalid_predictions") == 0);
    assert_true(cJSON_IsFalse(cJSON_GetObjectItem(summary, "interrupted")));
    const cJSON *done = cJSON_GetObjectItem(summary, "ops_by_worker");
    assert_int_equal(cJSON_GetArraySize(done), WORKERS);
    for (int w = 0; w < (int)WORKERS; w++) { // of the flush: workers report nothing before
        const double pushes = number(cJSON_GetArrayItem(done, w), "evict_push");
        assert_true(fabs(pushes * ITERATIONS - (5 + w)) < 1e-6); // printed with six digits or more
    }
    cJSON_Delete(summary);
}

// One worker is told of its cache as those of many are.
static void a_run_of_one_worker(void **state)
{
    (void)state;
    fixture f;
    prepare(&f);
    f.config.worker_count = 1;
    start(&f);
    assert_int_equal(f.welcome.worker_count, 1);
    assert_int_equal(f.welcome.workers, 1);
    assert_int_equal(f.welcome.slot_count, 100000);
    end_by_failure(&f);
}

// A run's records take the place of an earlier run's with its first iteration, be it the only one.
static void records_of_a_single_iteration(void **state)
{
    (void)state;
    fixture f;
    char path[600], line[1024] = "";
    prepare(&f);
    f.config.stream.samples_max = WORKERS * BATCH;
    snprintf(path, sizeof path, "%s/records.jsonl", f.out);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("of an earlier run\n", file);
    fclose(file);
    start(&f);
    train_to(&f, 1);
    take_flush(&f);
    end_well(&f);
    finish(&f, RT_OK, "");
    file = fopen(path, "r");
    if (file && fgets(line, sizeof line, file))
        assert_null(strstr(line, "of an earlier run"));
    if (file)
        fclose(file);
}

// Worker 1 sits out: after its first slice it gets none, and nobody waits for it. Its report on the
// first is late, when others are trained: they stand in their order in the records all the same.
static void who_sits_out_is_not_waited_for(void **state)
{
    (void)state;
    fixture f;
    char path[600], line[4096];
    uint32_t iteration, told = 0;
    prepare(&f);
    f.config.dispatch.participants = RT_PARTICIPANTS_LIST;
    f.config.dispatch.participant_mask = 1;
    start(&f);
    rt_message first = expect(&f, 2, RT_MESSAGE_SLICE);
    rt_wire_report late = report_on(&first, &iteration);
    late.times.plan_ns = UINT64_C(7777000000);
    for (uint32_t t = 1; t <= ITERATIONS; t++) {
        rt_message slice = expect(&f, 1, RT_MESSAGE_SLICE);
        const rt_wire_report one = report_on(&slice, &iteration);
        assert_int_equal(iteration, t);
        report(&f, 0, t, &one);
        rt_message_release(&slice);
        if (t == 3) // no more may be out
            report(&f, 1, 1, &late);
    }
    rt_message_release(&first);
    take_flush(&f);
    end_well(&f);
    finish(&f, RT_OK, "");
    snprintf(path, sizeof path, "%s/metrics.jsonl", f.out);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        char want[32];
        const bool is_first = strstr(line, "\"record\":\"iteration\"") != NULL;
        snprintf(want, sizeof want, "\"iteration\":%u,", told + 1);
        told += is_first;
        if (is_first && !strstr(line, want))
            fail_msg("%s is not of iteration %u", line, told);
        if (is_first) { // the others have no report of worker 1
            assert_int_equal(strstr(line, "\"plan\":7777}") != NULL, told == 1);
            assert_int_equal(strstr(line, ",null]") != NULL, told > 1);
        }
    }
    fclose(file);
    assert_int_equal(told, ITERATIONS);
}

// Workers compute 2 ms on a sample, as they say, so the planner is told; half of the window is
// enough, and the same again is no news.
static void computing_times_reach_the_planner(void **state)
{
    (void)state;
    fixture f;
    char path[600], line[1024];
    uint32_t told = 0;
    prepare(&f);
    start(&f);
    train_to(&f, ITERATIONS);
    take_flush(&f);
    end_well(&f);
    finish(&f, RT_OK, "");
    snprintf(path, sizeof path, "%s/records.jsonl", f.out);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        cJSON *one = cJSON_Parse(line);
        const cJSON *kind = cJSON_GetObjectItem(one, "kind");
        if (cJSON_IsString(kind) && strcmp(kind->valuestring, "compute") == 0) {
            told |= 1u << (uint32_t)number(one, "worker");
            assert_true(fabs(number(one, "value") - 0.002) < 1e-9);
            assert_true(number(one, "iteration") > 15);
        }
        cJSON_Delete(one);
    }
    fclose(file);
    assert_int_equal(told, 3);
}

// No more slices are out than run_ahead and one more; each report lets another one out.
// More than that are planned: had one been let out, it would have come before the STOP.
static void slices_wait_for_reports(void **state)
{
    (void)state;
    fixture f;
    rt_message slices[3];
    uint32_t iteration;
    prepare(&f);
    start(&f);
    for (uint32_t i = 0; i < 3; i++) {
        slices[i] = expect(&f, 1, RT_MESSAGE_SLICE);
        rt_message other = expect(&f, 2, RT_MESSAGE_SLICE);
        const rt_wire_report one = report_on(&other, &iteration);
        report(&f, 1, rt_message_header(&other)->iteration, &one);
        rt_message_release(&other);
    }
    for (uint32_t i = 0; i < 3; i++) {
        const rt_wire_report one = report_on(&slices[i], &iteration);
        report(&f, 0, rt_message_header(&slices[i])->iteration, &one);
        rt_message_release(&slices[i]);
        for (uint32_t m = 1; m <= WORKERS; m++) {
            rt_message slice = expect(&f, m, RT_MESSAGE_SLICE);
            assert_int_equal(rt_message_header(&slice)->iteration, 4 + i);
            rt_message_release(&slice);
        }
    }
    while (!count_lines(&f, "metrics.jsonl", "\"iteration\":3,")) { // the last report was taken
        assert_true(rt_now_ns() < f.end_ns);
        usleep(1000);
    }
    say(&f, 0, RT_MESSAGE_FAILED, 0, "enough", 6, NULL, 0);
    for (uint32_t m = 0; m < MEMBERS; m++) {
        rt_message stop = expect(&f, m, RT_MESSAGE_STOP);
        rt_message_release(&stop);
        ops->end(f.members[m], 0); // the coordinator waits for that
    }
    finish(&f, RT_PEER, "enough");
}

// ---- stopping, checkpoints -------------------------------------------------------------------

// What is out is trained, then the model is saved; the summary says that there was more.
static void a_stop_ends_it_early(void **state)
{
    (void)state;
    fixture f;
    prepare(&f);
    f.own.stop_fd = eventfd(0, EFD_CLOEXEC);
    f.config.stream.samples_max = 0; // no end
    start(&f);
    train_to(&f, 3);
    assert_int_equal(eventfd_write(f.own.stop_fd, 1), 0);
    train_to_flush(&f);
    end_well(&f);
    finish(&f, RT_OK, "");
    close(f.own.stop_fd);
    cJSON *summary = json_of(&f, "summary.json");
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(summary, "interrupted")));
    cJSON_Delete(summary);
}

// A signal asks for a checkpoint; the run goes on after it. copies: the shard's file comes here.
static void ask_for_checkpoint(bool copies)
{
    const struct signalfd_siginfo asks = {.ssi_signo = SIGUSR1};
    fixture f;
    int pair[2];
    char folder[700];
    cJSON *manifest;
    rt_manifest_part part;
    prepare(&f);
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair), 0);
    f.own.signal_fd = pair[0];
    f.config.checkpoint.every_iterations = 1000000;
    f.config.checkpoint.copies = copies;
    start(&f);
    assert_int_equal(f.welcome.epoch, 1);
    uint64_t samples = train_to(&f, 2);
    assert_int_equal(write(pair[1], &asks, sizeof asks), sizeof asks);
    samples += train_to_flush(&f);
    const uint32_t cut = play_cut(&f);
    if (copies)
        give_file(&f, 0, cut, rows);
    while (!count_lines(&f, "metrics.jsonl", "\"record\":\"checkpoint\"")) { // it is being written
        assert_true(rt_now_ns() < f.end_ns);
        usleep(1000);
    }
    assert_int_equal(cut * WORKERS * BATCH, samples);
    samples += train_to(&f, ITERATIONS);
    assert_int_equal(samples, ITERATIONS * WORKERS * BATCH);
    take_flush(&f);
    end_well(&f);
    finish(&f, RT_OK, "");
    cJSON *members = last_record(&f, "members");
    assert_true(number(cJSON_GetObjectItem(members, "checkpoint"), "iteration") == cut);
    cJSON_Delete(members);
    snprintf(folder, sizeof folder, "%s/checkpoints/ckpt-%012u", f.out, cut);
    assert_int_equal(rt_manifest_read(folder, &manifest, NULL), RT_OK);
    text_must_be(manifest, "kind", "checkpoint");
    assert_true(number(manifest, "iteration") == cut && number(manifest, "base") == 0);
    assert_true(number(manifest, "samples") == (double)(cut * WORKERS * BATCH));
    assert_true(rt_manifest_part_of(manifest, "rows-000-of-001.bin", &part));
    assert_true(part.sum.bytes == strlen(rows) && part.sum.hash == 88);
    strcat(folder, "/rows-000-of-001.bin");
    assert_int_equal(access(folder, R_OK) == 0, copies);
    assert_true(rt_manifest_part_of(manifest, "dense.bin", &part) && part.sum.bytes == 5);
    cJSON_Delete(manifest);
    close(pair[0]);
    close(pair[1]);
}

static void a_checkpoint_when_somebody_asks(void **state)
{
    (void)state;
    ask_for_checkpoint(false);
}

static void a_checkpoint_and_a_copy_of_the_rows(void **state)
{
    (void)state;
    ask_for_checkpoint(true);
}

// A run that publishes has checkpoints as often as that, if others are rarer.
static void publish_beside(double every_s)
{
    fixture f;
    prepare(&f);
    f.config.publish.every_s = 1e-6; // at once
    f.config.checkpoint.every_s = every_s;
    start(&f);
    const uint64_t samples = train_to_flush(&f); // of a cut
    assert_true(samples < ITERATIONS * WORKERS * BATCH);
    end_by_failure(&f);
}

static void publishing_takes_checkpoints(void **state)
{
    (void)state;
    publish_beside(0);
}

static void publishing_more_often_than_others(void **state)
{
    (void)state;
    publish_beside(1e6);
}

// 600 KB of events, as Criteo's format has them.
static void send_events(int to)
{
    char line[300];
    rt_random random = {3};
    for (uint32_t i = 0; i < 2400; i++) {
        size_t size = (size_t)snprintf(line, sizeof line, "%u\t\t\t\t\t\t\t\t\t\t\t\t\t", i % 2);
        for (uint32_t f = 0; f < 26; f++)
            size += (size_t)snprintf(line + size, sizeof line - size, "\t%08x",
                                     rt_random_below(&random, 1000));
        line[size++] = '\n';
        assert_int_equal(write(to, line, size), size);
    }
}

// So that what it covers may go; nothing else asks for one.
static void a_journal_that_is_half_full_asks_for_a_checkpoint(void **state)
{
    (void)state;
    fixture f;
    const uint16_t port = test_free_port();
    prepare(&f);
    f.config.stream.format = RT_FORMAT_CRITEO;
    f.config.stream.source = RT_SOURCE_TCP;
    f.config.stream.samples_max = 0;
    f.config.journal_bytes_max = 1 << 20;
    snprintf(f.config.stream.tcp_listen, sizeof f.config.stream.tcp_listen, "127.0.0.1:%u", port);
    start(&f);
    const int sender = test_connect(port);
    const uint64_t begin_ns = rt_now_ns();
    send_events(sender);
    train_to_flush(&f); // of a cut
    close(sender);
    end_by_failure(&f);
    cJSON *iteration = last_record(&f, "iteration");
    const double since_ms = (double)(rt_now_ns() - begin_ns) * 1e-6;
    const cJSON *latency = cJSON_GetObjectItem(iteration, "latency_ms"); // since they came
    assert_true(number(latency, "p50") > 0 && number(latency, "max") < since_ms);
    cJSON_Delete(iteration);
}

// A manager of services, which is told when this one is there.
static int listen_for_notes(rt_notify *notify)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", test_path("manager"));
    const int manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(manager, (struct sockaddr *)&at, sizeof at), 0);
    rt_notify_open(at.sun_path, NULL, NULL, notify);
    return manager;
}

// The standby is spoken to where it is said to be; until it has answered, nothing begins. Whoever
// watches over the coordinator does not wait for that.
static void a_standby_is_asked_first(void **state)
{
    (void)state;
    fixture f;
    struct pollfd silent = {.events = POLLIN};
    const uint16_t port = listen_in_silence(&silent.fd);
    rt_notify notify;
    char note[100] = "";
    prepare(&f);
    struct pollfd manager = {.fd = listen_for_notes(&notify), .events = POLLIN};
    f.own.notify = &notify;
    f.own.stop_fd = eventfd(0, EFD_CLOEXEC);
    snprintf(f.config.standby, sizeof f.config.standby, "127.0.0.1:%u", port);
    assert_int_equal(pthread_create(&f.thread, NULL, run_coordinator, &f), 0);
    assert_int_equal(poll(&silent, 1, 1000 * (int)(PATIENCE_S * test_limit_factor())), 1);
    assert_int_equal(poll(&manager, 1, 1000 * (int)(PATIENCE_S * test_limit_factor())), 1);
    assert_true(recv(manager.fd, note, sizeof note - 1, 0) > 0);
    assert_memory_equal(note, "READY=1", 7);
    assert_int_equal(eventfd_write(f.own.stop_fd, 1), 0);
    pthread_join(f.thread, NULL);
    assert_int_equal(f.status, RT_STOPPED);
    close(silent.fd);
    close(manager.fd);
    rt_notify_close(&notify);
    close(f.own.stop_fd);
    rt_config_fini(&f.config);
}

// With nothing to resume from a run that may begin anew does, and one that must not says so.
static void without_checkpoints_to_resume_from(void **state)
{
    (void)state;
    fixture f;
    prepare(&f);
    f.config.checkpoint.at_end = true;
    f.own.resume = DP_RESUME_NEWEST;
    assert_int_equal(dp_coordinator_run(&f.own, &f.error), RT_NOT_FOUND);
    assert_string_equal(f.address, "");
    rt_config_fini(&f.config);
}

// What is wrong with a configuration leaves nothing behind that the next start would stumble over.
static void errors_before_the_first_member(void **state)
{
    (void)state;
    fixture f;
    struct rlimit none = {0, 0}, limit;
    prepare(&f);
    f.config.checkpoint.at_end = true;
    f.config.cache.rows = 1;
    assert_int_equal(dp_coordinator_run(&f.own, &f.error), RT_CONFIG);
    assert_non_null(strstr(f.error.text, "the cache of worker 0 has 1 rows"));
    assert_string_equal(f.address, "");
    assert_int_equal(rmdir(f.out), 0); // it is empty
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none.rlim_max = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    f.error = (rt_error){0};
    const rt_status status = dp_coordinator_run(&f.own, &f.error);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, RT_LIMIT);
    assert_string_equal(f.error.text, "out of descriptors");
    rt_config_fini(&f.config);
}

// Checkpoints that were never completed are not there for a run that goes on if there is any.
static void a_run_that_begins_anew(void **state)
{
    (void)state;
    fixture f;
    char folder[700];
    prepare(&f);
    snprintf(folder, sizeof folder, "%s/checkpoints/ckpt-000000000003", f.out);
    assert_int_equal(rt_checkpoint_make(folder, NULL), RT_OK);
    f.own.resume = DP_RESUME_IF_ANY;
    f.config.checkpoint.every_iterations = 1000000;
    start(&f);
    assert_int_equal(f.welcome.epoch, 1);
    const uint64_t samples = train_to(&f, ITERATIONS);
    take_flush(&f);
    end_well(&f);
    finish(&f, RT_OK, "");
    check_model(&f, ITERATIONS, samples);
}

TEST_MAIN(TEST(a_run_from_hello_to_stop), TEST(a_run_of_one_worker),
          TEST(records_of_a_single_iteration), TEST(computing_times_reach_the_planner),
          TEST(slices_wait_for_reports), TEST(who_sits_out_is_not_waited_for),
          TEST(a_stop_ends_it_early), TEST(a_checkpoint_when_somebody_asks),
          TEST(a_checkpoint_and_a_copy_of_the_rows), TEST(publishing_takes_checkpoints),
          TEST(publishing_more_often_than_others),
          TEST(a_journal_that_is_half_full_asks_for_a_checkpoint), TEST(a_standby_is_asked_first),
          TEST(without_checkpoints_to_resume_from), TEST(errors_before_the_first_member),
          TEST(a_run_that_begins_anew))
