// A coordinator in a thread; the case plays a shard and two workers, over real sockets.
#include "dispatch/coordinator/dp_coordinator.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dispatch/plan/dp_slice_wire.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_file.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define HASH UINT64_C(0xabcdef0123456789)
#define SCHEMA UINT64_C(0x1122334455667788)
#define WORKERS 2u
#define BATCH 8u      // samples of a worker
#define ITERATIONS 40u
#define PATIENCE_S 20u // a step that takes longer has failed
#define COORDINATOR rt_peer(RT_ROLE_COORDINATOR, 0)
#define SHARD rt_peer(RT_ROLE_PS, 0)
#define MEMBERS (1 + WORKERS)

static const rt_transport_ops *const ops = &rt_transport_zmq;

typedef struct {
    rt_config config;
    dp_coordinator_config own;
    char out[512];
    pthread_t thread;
    rt_status status; // of the coordinator
    rt_error error;
    pthread_mutex_t lock;
    char address[RT_NAME_MAX];
    uint32_t saved; // calls
    rt_transport *transport;
    rt_endpoint *members[MEMBERS]; // the shard, then the workers
    rt_wire_welcome welcome;       // of worker 0
    uint64_t end_ns;
} fixture;

static uint32_t peer_of(uint32_t member)
{
    return member == 0 ? SHARD : rt_peer(RT_ROLE_WORKER, member - 1);
}

static void note_address(void *context, const char *address)
{
    fixture *f = context;
    pthread_mutex_lock(&f->lock);
    snprintf(f->address, sizeof f->address, "%s", address);
    pthread_mutex_unlock(&f->lock);
}

static void note_saved(void *context)
{
    ((fixture *)context)->saved++;
}

static void *run_coordinator(void *context)
{
    fixture *f = context;
    f->status = dp_coordinator_run(&f->own, &f->error);
    return NULL;
}

static void say(fixture *f, uint32_t member, rt_message_type type, uint64_t iteration,
                const void *payload, size_t size, const void *more, size_t more_size)
{
    rt_message message;
    assert_int_equal(
        rt_message_create(&message, type, peer_of(member), iteration, size > 0, size + more_size),
        RT_OK);
    if (size)
        memcpy(rt_message_payload(&message), payload, size);
    if (more_size)
        memcpy(rt_message_payload(&message) + size, more, more_size);
    assert_int_equal(ops->send(f->members[member], COORDINATOR, &message), RT_OK);
}

static void join_run(fixture *f, uint32_t member)
{
    rt_error error = {0};
    const uint32_t self = peer_of(member);
    rt_wire_hello hello = rt_control_greet(self, &f->own.identity);
    if (member == 0)
        rt_control_put_text(hello.address, sizeof hello.address, "tcp://127.0.0.1:1");
    if (ops->connect(f->transport, self, COORDINATOR, f->address, &f->members[member], &error))
        fail_msg("%s", error.text);
    say(f, member, RT_MESSAGE_HELLO, 0, &hello, sizeof hello, NULL, 0);
}

// The next message that is not a sign of life; all members give theirs meanwhile.
static rt_message next(fixture *f, uint32_t member)
{
    for (;;) {
        bool ready;
        uint32_t peer;
        rt_message message = {0};
        rt_error error = {0};
        const rt_status status = ops->receive(f->members[member], &peer, &message, &error);
        if (!status && rt_message_header(&message)->type != RT_MESSAGE_HEARTBEAT)
            return message;
        rt_message_release(&message);
        if (status == RT_AGAIN)
            ops->wait(&f->members[member], 1, -1, 50, &ready);
        else if (status)
            fail_msg("%s", error.text);
        if (rt_now_ns() > f->end_ns)
            fail_msg("member %u waits for nothing", member);
    }
}

static rt_message expect(fixture *f, uint32_t member, rt_message_type type)
{
    char text[512] = "";
    rt_message message = next(f, member);
    const uint32_t got = rt_message_header(&message)->type;
    if (got == RT_MESSAGE_STOP)
        (void)rt_control_text(&message, text, sizeof text);
    if (got != type)
        fail_msg("member %u: %s (%s), expected %s", member, rt_message_type_name(got), text,
                 rt_message_type_name(type));
    return message;
}

static void prepare(fixture *f)
{
    *f = (fixture){.end_ns = rt_now_ns() + PATIENCE_S * test_limit_factor() * UINT64_C(1000000000)};
    pthread_mutex_init(&f->lock, NULL);
    assert_int_equal(rt_config_init(&f->config), RT_OK);
    rt_config *c = &f->config;
    c->worker_count = WORKERS;
    c->ps_shard_count = 1;
    c->samples_per_worker = BATCH;
    c->stream.format = RT_FORMAT_SYNTHETIC;
    c->stream.samples_max = ITERATIONS * WORKERS * BATCH;
    c->cache.rows = 100000;
    c->run_ahead = 2;
    c->timeout_peer_s = 2 * PATIENCE_S;
    strcpy(c->network_bind, "127.0.0.1");
    snprintf(f->out, sizeof f->out, "%s", test_path("out"));
    assert_int_equal(mkdir(f->out, 0700), 0);
    f->own = (dp_coordinator_config){.config = c,
                                     .identity = {.config_hash = HASH, .given_hash = 5, .format = 2},
                                     .schema = SCHEMA,
                                     .ops = ops,
                                     .resume = DP_RESUME_NO,
                                     .directory = f->out,
                                     .dense_bytes = 4000,
                                     .stop_fd = -1,
                                     .signal_fd = -1,
                                     .announce = note_address,
                                     .saved = note_saved,
                                     .announce_context = f};
}

// Up to the WELCOMEs.
static void start(fixture *f)
{
    rt_error error = {0};
    assert_int_equal(ops->open(&f->transport, &error), RT_OK);
    assert_int_equal(pthread_create(&f->thread, NULL, run_coordinator, f), 0);
    for (bool is_there = false; !is_there;) {
        pthread_mutex_lock(&f->lock);
        is_there = *f->address;
        pthread_mutex_unlock(&f->lock);
        if (rt_now_ns() > f->end_ns)
            fail_msg("the coordinator does not listen");
        usleep(1000);
    }
    for (uint32_t m = 0; m < MEMBERS; m++)
        join_run(f, m);
    for (uint32_t m = 0; m < MEMBERS; m++) {
        rt_message message = expect(f, m, RT_MESSAGE_WELCOME);
        assert_true(rt_control_has(&message, sizeof f->welcome));
        memcpy(&f->welcome, rt_message_payload(&message), sizeof f->welcome);
        rt_message_release(&message);
    }
}

// What the coordinator's error must say.
static void finish(fixture *f, rt_status want, const char *text)
{
    pthread_join(f->thread, NULL);
    if (f->status != want || !strstr(f->error.text, text))
        fail_msg("status %d (%s), expected %d with '%s'", f->status, f->error.text, want, text);
    ops->close(f->transport);
    rt_config_fini(&f->config);
}

// ---- workers that train ----------------------------------------------------------------------

// Of a SLICE. *iteration: 0 of a flush.
static rt_wire_report report_on(const rt_message *slice, uint32_t *iteration)
{
    rt_wire_slice head;
    memcpy(&head, rt_message_payload(slice), sizeof head);
    *iteration = head.iteration;
    return (rt_wire_report){.sample_count = head.sample_count,
                            .loss_sum = 0.5 * head.sample_count,
                            .fingerprint = head.fingerprint,
                            .times.compute_ns = 2000000ull * head.sample_count};
}

static void report(fixture *f, uint32_t worker, uint64_t sequence, const rt_wire_report *report)
{
    float predictions[4 * BATCH];
    assert_true(report->sample_count <= RT_COUNT_OF(predictions));
    for (uint32_t i = 0; i < RT_COUNT_OF(predictions); i++)
        predictions[i] = 0.25f;
    say(f, 1 + worker, RT_MESSAGE_REPORT, sequence, report, sizeof *report, predictions,
        report->sample_count * sizeof(float));
}

// Trains up to an iteration; samples that were trained.
static uint64_t train_to(fixture *f, uint32_t last)
{
    uint64_t samples = 0;
    for (uint32_t t = 0; t < last;) {
        for (uint32_t w = 0; w < WORKERS; w++) {
            rt_message slice = expect(f, 1 + w, RT_MESSAGE_SLICE);
            const rt_wire_report one = report_on(&slice, &t);
            report(f, w, rt_message_header(&slice)->iteration, &one);
            samples += one.sample_count;
            rt_message_release(&slice);
        }
    }
    return samples;
}

static void take_flush(fixture *f)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        rt_message slice = expect(f, 1 + w, RT_MESSAGE_SLICE);
        uint32_t iteration;
        (void)report_on(&slice, &iteration);
        assert_int_equal(iteration, 0);
        rt_message_release(&slice);
    }
}

static void finish_workers(fixture *f)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        rt_message message = expect(f, 1 + w, RT_MESSAGE_FINISH);
        rt_message_release(&message);
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        const rt_wire_report flushed = {.done.evict_push = 5 + w};
        say(f, 1 + w, RT_MESSAGE_FINISHED, 0, &flushed, sizeof flushed, NULL, 0);
    }
}

static const char rows[] = "rows of shard 0";

// The file of the model, or of a checkpoint, that a member has: one piece, until it is written.
static void give_file(fixture *f, uint32_t member, uint64_t iteration, const char *bytes)
{
    const size_t size = strlen(bytes);
    const rt_wire_piece piece = {.total = size,
                                 .checksum = rt_hash_bytes(bytes, size),
                                 .sum = rt_hash_bytes(bytes, size),
                                 .file = rt_peer_rank(peer_of(member))};
    rt_wire_taken taken = {0};
    rt_message message = expect(f, member, RT_MESSAGE_SAVE);
    rt_message_release(&message);
    say(f, member, RT_MESSAGE_PIECE, iteration, &piece, sizeof piece, bytes, size);
    while (!taken.is_complete) {
        message = expect(f, member, RT_MESSAGE_TAKEN);
        memcpy(&taken, rt_message_payload(&message), sizeof taken);
        rt_message_release(&message);
        assert_int_equal(taken.status, RT_OK);
    }
}

static void expect_stop(fixture *f, rt_reason reason)
{
    for (uint32_t m = 0; m < MEMBERS; m++) {
        rt_message message = next(f, m);
        while (rt_message_header(&message)->type != RT_MESSAGE_STOP) { // slices that are under way
            rt_message_release(&message);
            message = next(f, m);
        }
        assert_int_equal(rt_message_header(&message)->iteration, reason);
        rt_message_release(&message);
        ops->end(f->members[m], 0); // the coordinator waits for that
    }
}

static void end_well(fixture *f)
{
    finish_workers(f);
    give_file(f, 1, 0, "dense weights");
    give_file(f, 0, 0, rows);
    expect_stop(f, RT_REASON_COMPLETE);
}

// ---- what is left of a run -------------------------------------------------------------------

static cJSON *json_of(const fixture *f, const char *name)
{
    char path[600], text[65536];
    snprintf(path, sizeof path, "%s/%s", f->out, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    cJSON *root = cJSON_Parse(text);
    assert_non_null(root);
    return root;
}

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    if (!cJSON_IsNumber(item))
        fail_msg("no %s", name);
    return item->valuedouble;
}

static void text_must_be(const cJSON *object, const char *name, const char *want)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    assert_true(cJSON_IsString(item));
    assert_string_equal(item->valuestring, want);
}

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
    if (rt_manifest_read(folder, &manifest, &error) ||
        rt_manifest_check(folder, manifest, &error))
        fail_msg("%s", error.text);
    text_must_be(manifest, "kind", "model");
    assert_true(number(manifest, "iteration") == iterations);
    assert_true(number(manifest, "samples") == (double)samples);
    assert_true(number(manifest, "shards") == 1);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)SCHEMA);
    text_must_be(manifest, "schema", hash);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)HASH);
    text_must_be(manifest, "config", hash);
    part_must_be(manifest, "dense.bin", "dense weights");
    part_must_be(manifest, "rows-000-of-001.bin", rows);
    assert_true(rt_manifest_part_of(manifest, "config.json", &part));
    assert_true(rt_manifest_part_of(manifest, "scale.bin", &part));
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(manifest, "parts")), 4);
    cJSON_Delete(manifest);
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
    cJSON *summary = json_of(&f, "summary.json");
    assert_true(number(summary, "iterations") == ITERATIONS);
    assert_true(number(summary, "samples") == (double)samples);
    assert_true(number(summary, "stale_reads") == 0);
    assert_true(number(summary, "bad_batches") == 0);
    assert_true(cJSON_IsFalse(cJSON_GetObjectItem(summary, "interrupted")));
    cJSON_Delete(summary);
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

// No more slices are out than planner.run_ahead and one more; each report lets another one out.
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
    usleep(50000); // what is out of bounds would come
    for (uint32_t m = 1; m < MEMBERS; m++) {
        uint32_t peer;
        rt_message message = {0};
        rt_error error = {0};
        rt_status status;
        while ((status = ops->receive(f.members[m], &peer, &message, &error)) == RT_OK) {
            assert_int_equal(rt_message_header(&message)->type, RT_MESSAGE_HEARTBEAT);
            rt_message_release(&message);
        }
        assert_int_equal(status, RT_AGAIN);
    }
    for (uint32_t i = 0; i < 3; i++) {
        const rt_wire_report one = report_on(&slices[i], &iteration);
        report(&f, 0, rt_message_header(&slices[i])->iteration, &one);
        rt_message_release(&slices[i]);
    }
    for (uint32_t i = 0; i < 3; i++) {
        rt_message slice = expect(&f, 1, RT_MESSAGE_SLICE);
        assert_int_equal(rt_message_header(&slice)->iteration, 4 + i);
        rt_message_release(&slice);
    }
    say(&f, 0, RT_MESSAGE_FAILED, 0, "enough", 6, NULL, 0);
    expect_stop(&f, RT_REASON_FAILED);
    finish(&f, RT_PEER, "enough");
}

// ---- what workers must not say ---------------------------------------------------------------

typedef void (*change)(rt_wire_report *report, uint64_t *sequence);

static void more_samples(rt_wire_report *report, uint64_t *sequence)
{
    (void)sequence;
    report->sample_count++;
}

static void another_plan(rt_wire_report *report, uint64_t *sequence)
{
    (void)sequence;
    report->fingerprint ^= 1;
}

static void another_slice(rt_wire_report *report, uint64_t *sequence)
{
    (void)report;
    *sequence += 100;
}

static void nothing_applied(rt_wire_report *report, uint64_t *sequence)
{
    (void)sequence;
    report->skipped = 1;
}

static void bad_and_applied(rt_wire_report *report, uint64_t *sequence)
{
    (void)sequence;
    report->loss_sum = NAN;
}

// Worker 0's first report is changed so, worker 1's is as it should be.
static void report_must_fail(change how, const char *text)
{
    fixture f;
    prepare(&f);
    start(&f);
    for (uint32_t w = WORKERS; w-- > 0;) {
        uint32_t iteration;
        rt_message slice = expect(&f, 1 + w, RT_MESSAGE_SLICE);
        uint64_t sequence = rt_message_header(&slice)->iteration;
        rt_wire_report one = report_on(&slice, &iteration);
        if (w == 0)
            how(&one, &sequence);
        report(&f, w, sequence, &one);
        rt_message_release(&slice);
    }
    expect_stop(&f, RT_REASON_FAILED);
    finish(&f, RT_WIRE, text);
    assert_int_equal(f.saved, 0);
}

static void a_report_on_other_samples(void **state)
{
    (void)state;
    report_must_fail(more_samples, "worker 0: a report on 9 samples, expected 8");
}

static void a_report_by_another_plan(void **state)
{
    (void)state;
    report_must_fail(another_plan, "worker 0 trained iteration 1 by another plan");
}

static void a_report_on_another_slice(void **state)
{
    (void)state;
    report_must_fail(another_slice, "worker 0: a report on slice 101 that nobody waits for");
}

static void a_verdict_that_differs(void **state)
{
    (void)state;
    report_must_fail(nothing_applied, "workers 0x1 applied nothing, but every loss is finite");
}

static void a_bad_batch_that_was_applied(void **state)
{
    (void)state;
    report_must_fail(bad_and_applied, "workers 0 applied nothing, the others did");
}

static void a_report_twice(void **state)
{
    (void)state;
    fixture f;
    uint32_t iteration;
    prepare(&f);
    start(&f);
    rt_message slice = expect(&f, 1, RT_MESSAGE_SLICE);
    const rt_wire_report one = report_on(&slice, &iteration);
    for (uint32_t i = 0; i < 2; i++)
        report(&f, 0, rt_message_header(&slice)->iteration, &one);
    rt_message_release(&slice);
    expect_stop(&f, RT_REASON_FAILED);
    finish(&f, RT_WIRE, "worker 0: a report on slice 1 that nobody waits for");
}

// A worker trains slices in their order.
static void a_report_before_its_turn(void **state)
{
    (void)state;
    fixture f;
    uint32_t iteration;
    prepare(&f);
    start(&f);
    rt_message first = expect(&f, 1, RT_MESSAGE_SLICE), second = expect(&f, 1, RT_MESSAGE_SLICE);
    const rt_wire_report one = report_on(&second, &iteration);
    report(&f, 0, rt_message_header(&second)->iteration, &one);
    rt_message_release(&first);
    rt_message_release(&second);
    expect_stop(&f, RT_REASON_FAILED);
    finish(&f, RT_WIRE, "worker 0: a report on slice 2 that nobody waits for");
}

// Batches without a finite loss, of all workers, up to guards.bad_batches_max.
static void bad_batches_are_counted(void **state)
{
    (void)state;
    fixture f;
    prepare(&f);
    f.config.guard_bad_batches_max = 2;
    start(&f);
    for (uint32_t t = 1; t <= 3; t++) {
        for (uint32_t w = 0; w < WORKERS; w++) {
            uint32_t iteration;
            rt_message slice = expect(&f, 1 + w, RT_MESSAGE_SLICE);
            rt_wire_report one = report_on(&slice, &iteration);
            one.loss_sum = w == 0 ? INFINITY : 1; // one worker's is enough
            one.skipped = 1;
            report(&f, w, rt_message_header(&slice)->iteration, &one);
            rt_message_release(&slice);
        }
    }
    expect_stop(&f, RT_REASON_LASTS);
    finish(&f, RT_DATA,
           "iteration 3 is bad batch number 3: its loss is not finite; guards.bad_batches_max is 2");
}

// Each of these ends a run that trains.
static void messages_that_nobody_waits_for(void **state)
{
    (void)state;
    static const struct {
        uint32_t member;
        rt_message_type type;
        size_t size;
        const char *text;
    } cases[] = {
        {1, RT_MESSAGE_FINISHED, 168, "worker 0: a FINISHED of 168 bytes that nobody waits for"},
        {1, RT_MESSAGE_MARK, 0, "worker 0: a MARK that nobody waits for"},
        {1, RT_MESSAGE_PART, 16, "a PART of the dense weights that nobody waits for"},
        {0, RT_MESSAGE_PIECE, 40, "ps 0: a PIECE of a file that nobody waits for"},
        {0, RT_MESSAGE_CUT, 0, "ps 0: a CUT that nobody asked for"},
        {0, RT_MESSAGE_WRITTEN, 32, "ps 0: WRITTEN that nobody waits for"},
        {2, RT_MESSAGE_WELCOME, 168, "worker 1: unexpected WELCOME"},
        {0, RT_MESSAGE_REPORT, 168, "ps 0: a report on slice 1 that nobody waits for"},
    };
    const rt_wire_report zeros = {0};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        fixture f;
        prepare(&f);
        start(&f);
        say(&f, cases[i].member, cases[i].type, 1, &zeros, cases[i].size, NULL, 0);
        expect_stop(&f, RT_REASON_FAILED);
        finish(&f, RT_WIRE, cases[i].text);
        assert_int_equal(rmdir(f.out) == 0, false); // the metrics of the attempt
        char command[600];
        snprintf(command, sizeof command, "rm -r '%s'", f.out);
        assert_int_equal(system(command), 0);
    }
}

static void whoever_answers_finish_twice(void **state)
{
    (void)state;
    fixture f;
    prepare(&f);
    f.config.stream.samples_max = WORKERS * BATCH;
    start(&f);
    train_to(&f, 1);
    take_flush(&f);
    for (uint32_t w = 0; w < WORKERS; w++) {
        rt_message message = expect(&f, 1 + w, RT_MESSAGE_FINISH);
        rt_message_release(&message);
    }
    const rt_wire_report flushed = {0};
    for (uint32_t i = 0; i < 2; i++)
        say(&f, 2, RT_MESSAGE_FINISHED, 0, &flushed, sizeof flushed, NULL, 0);
    expect_stop(&f, RT_REASON_FAILED);
    finish(&f, RT_WIRE, "worker 1: a FINISHED of 168 bytes that nobody waits for");
}

// ---- stopping, checkpoints -------------------------------------------------------------------

// What is out is trained, then the model is saved; the summary says that there was more.
static void a_stop_ends_it_early(void **state)
{
    (void)state;
    fixture f;
    uint32_t iteration = 1;
    prepare(&f);
    f.own.stop_fd = eventfd(0, EFD_CLOEXEC);
    f.config.stream.samples_max = 0; // no end
    start(&f);
    train_to(&f, 3);
    assert_int_equal(eventfd_write(f.own.stop_fd, 1), 0);
    for (uint64_t flushed = 0; flushed != 3;) {
        for (uint32_t w = 0; w < WORKERS; w++) {
            rt_message slice = expect(&f, 1 + w, RT_MESSAGE_SLICE);
            const rt_wire_report one = report_on(&slice, &iteration);
            if (iteration)
                report(&f, w, rt_message_header(&slice)->iteration, &one);
            else
                flushed |= rt_bit(w);
            rt_message_release(&slice);
        }
    }
    end_well(&f);
    finish(&f, RT_OK, "");
    close(f.own.stop_fd);
    cJSON *summary = json_of(&f, "summary.json");
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(summary, "interrupted")));
    cJSON_Delete(summary);
}

// Answers what a cut asks of members; the iteration that it is of.
static uint32_t play_cut(fixture *f)
{
    rt_wire_cut order;
    for (uint32_t w = 0; w < WORKERS; w++) {
        rt_message message = expect(f, 1 + w, RT_MESSAGE_MARK);
        const rt_wire_part part = {.total = 5};
        if (w == 0)
            say(f, 1, RT_MESSAGE_PART, 0, &part, sizeof part, "dense", 5);
        say(f, 1 + w, RT_MESSAGE_MARK, rt_message_header(&message)->iteration, NULL, 0, NULL, 0);
        rt_message_release(&message);
    }
    rt_message message = expect(f, 0, RT_MESSAGE_CUT);
    const uint32_t iteration = (uint32_t)rt_message_header(&message)->iteration;
    assert_true(rt_control_has(&message, sizeof order));
    memcpy(&order, rt_message_payload(&message), sizeof order);
    rt_message_release(&message);
    assert_int_equal(order.base, 0);
    say(f, 0, RT_MESSAGE_CUT, iteration, NULL, 0, NULL, 0);
    const rt_wire_written written = {.bytes = strlen(rows), .hash = 88, .ns = 1000};
    say(f, 0, RT_MESSAGE_WRITTEN, iteration, &written, sizeof written, NULL, 0);
    return iteration;
}

// A signal asks for a checkpoint; the run goes on after it. copies: the shard's file comes here.
static void ask_for_checkpoint(bool copies)
{
    const struct signalfd_siginfo asks = {.ssi_signo = SIGUSR1};
    fixture f;
    int pair[2];
    char folder[700];
    uint32_t iteration = 1;
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
    while (iteration) { // up to the flush of the cut
        for (uint32_t w = 0; w < WORKERS; w++) {
            rt_message slice = expect(&f, 1 + w, RT_MESSAGE_SLICE);
            const rt_wire_report one = report_on(&slice, &iteration);
            if (iteration)
                report(&f, w, rt_message_header(&slice)->iteration, &one);
            samples += one.sample_count;
            rt_message_release(&slice);
        }
    }
    const uint32_t cut = play_cut(&f);
    if (copies)
        give_file(&f, 0, cut, rows);
    assert_int_equal(cut * WORKERS * BATCH, samples);
    samples += train_to(&f, ITERATIONS);
    assert_int_equal(samples, ITERATIONS * WORKERS * BATCH);
    take_flush(&f);
    end_well(&f);
    finish(&f, RT_OK, "");
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

TEST_MAIN(TEST(a_run_from_hello_to_stop), TEST(computing_times_reach_the_planner),
          TEST(slices_wait_for_reports), TEST(a_report_on_other_samples),
          TEST(a_report_by_another_plan), TEST(a_report_on_another_slice),
          TEST(a_verdict_that_differs), TEST(a_bad_batch_that_was_applied), TEST(a_report_twice), TEST(a_report_before_its_turn),
          TEST(bad_batches_are_counted), TEST(messages_that_nobody_waits_for),
          TEST(whoever_answers_finish_twice), TEST(a_stop_ends_it_early),
          TEST(a_checkpoint_when_somebody_asks), TEST(a_checkpoint_and_a_copy_of_the_rows), TEST(without_checkpoints_to_resume_from),
          TEST(errors_before_the_first_member), TEST(a_run_that_begins_anew))
