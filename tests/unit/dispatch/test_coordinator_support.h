// test_coordinator_support - a coordinator in a thread; the case plays a shard and two workers,
// over real sockets.
#ifndef TEST_COORDINATOR_SUPPORT_H
#define TEST_COORDINATOR_SUPPORT_H

#include "dispatch/coordinator/dp_coordinator.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <netinet/in.h>
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
#include "runtime/config/rt_formats.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_file.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define UNUSED __attribute__((unused))

#define HASH UINT64_C(0xabcdef0123456789)
#define SCHEMA UINT64_C(0x1122334455667788)
#define WORKERS 2u
#define BATCH 8u // samples of a worker
#define ITERATIONS 40u
#define PATIENCE_S 20u // a step that takes longer has failed
#define COORDINATOR rt_peer(RT_ROLE_COORDINATOR, 0)
#define SHARD rt_peer(RT_ROLE_PS, 0)
#define MEMBERS (1 + WORKERS)
#define MEMBERS_MAX (MEMBERS + 1) // with a second shard, that only some cases have

static UNUSED const rt_transport_ops *const ops = &rt_transport_zmq;

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
    rt_endpoint *members[MEMBERS_MAX]; // the shard, the workers, the second shard
    rt_wire_welcome welcome;           // of worker 0
    uint64_t end_ns;
} fixture;

static uint32_t peer_of(uint32_t member)
{
    if (member == 0 || member > WORKERS)
        return rt_peer(RT_ROLE_PS, member ? member - WORKERS : 0);
    return rt_peer(RT_ROLE_WORKER, member - 1);
}

static UNUSED void note_address(void *context, const char *address)
{
    fixture *f = context;
    pthread_mutex_lock(&f->lock);
    snprintf(f->address, sizeof f->address, "%s", address);
    pthread_mutex_unlock(&f->lock);
}

static UNUSED void note_saved(void *context)
{
    ((fixture *)context)->saved++;
}

static UNUSED void *run_coordinator(void *context)
{
    fixture *f = context;
    f->status = dp_coordinator_run(&f->own, &f->error);
    return NULL;
}

static UNUSED void say(fixture *f, uint32_t member, rt_message_type type, uint64_t iteration,
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

static UNUSED void join_run(fixture *f, uint32_t member)
{
    rt_error error = {0};
    const uint32_t self = peer_of(member), rank = rt_peer_rank(self);
    const bool is_shard = rt_peer_role(self) == RT_ROLE_PS;
    rt_wire_hello hello = rt_control_greet(self, &f->own.identity);
    hello.box =
        rt_config_hash_box(&f->config, is_shard ? rt_config_box_of_shard(&f->config, rank)
                                                : rt_config_box_of_worker(&f->config, rank));
    if (is_shard || rt_dispatch_is_mutual(&f->config.dispatch))
        rt_control_put_text(hello.address, sizeof hello.address, "tcp://127.0.0.1:1");
    if (ops->connect(f->transport, self, COORDINATOR, f->address, &f->members[member], &error))
        fail_msg("%s", error.text);
    say(f, member, RT_MESSAGE_HELLO, 0, &hello, sizeof hello, NULL, 0);
}

// The next message that is not a sign of life; all members give theirs meanwhile.
static UNUSED rt_message next(fixture *f, uint32_t member)
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

static UNUSED rt_message expect(fixture *f, uint32_t member, rt_message_type type)
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

// Of a run in a folder that is there.
static UNUSED void prepare_again(fixture *f)
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
    f->own =
        (dp_coordinator_config){.config = c,
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

static UNUSED void prepare(fixture *f)
{
    prepare_again(f);
    assert_int_equal(mkdir(f->out, 0700), 0);
}

// Of a case of several runs.
static UNUSED void remove_out(const fixture *f)
{
    char command[600];
    snprintf(command, sizeof command, "rm -r '%s'", f->out);
    assert_int_equal(system(command), 0);
}

// Somebody who listens and never answers; its port.
static UNUSED uint16_t listen_in_silence(int *fd)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(*fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(*fd, 8), 0);
    assert_int_equal(getsockname(*fd, (struct sockaddr *)&at, &length), 0);
    return ntohs(at.sin_port);
}

// Until members can join.
static UNUSED void begin_run(fixture *f)
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
}

// Up to the WELCOMEs.
static UNUSED void start(fixture *f)
{
    begin_run(f);
    for (uint32_t m = 0; m <= f->config.worker_count; m++)
        join_run(f, m);
    for (uint32_t m = 0; m <= f->config.worker_count; m++) {
        rt_message message = expect(f, m, RT_MESSAGE_WELCOME);
        assert_true(rt_control_has(&message, sizeof f->welcome));
        memcpy(&f->welcome, rt_message_payload(&message), sizeof f->welcome);
        rt_message_release(&message);
    }
}

// What the coordinator's error must say, whose thread has ended.
static UNUSED void finish_joined(fixture *f, rt_status want, const char *text)
{
    if (f->status != want || !strstr(f->error.text, text))
        fail_msg("status %d (%s), expected %d with '%s'", f->status, f->error.text, want, text);
    ops->close(f->transport);
    rt_config_fini(&f->config);
}

static UNUSED void finish(fixture *f, rt_status want, const char *text)
{
    pthread_join(f->thread, NULL);
    finish_joined(f, want, text);
}

// ---- workers that train ----------------------------------------------------------------------

// Of a SLICE. *iteration: 0 of a flush.
static UNUSED rt_wire_report report_on(const rt_message *slice, uint32_t *iteration)
{
    rt_wire_slice head;
    memcpy(&head, rt_message_payload(slice), sizeof head);
    *iteration = head.iteration;
    return (rt_wire_report){.sample_count = head.sample_count,
                            .loss_sum = 0.5 * head.sample_count,
                            .fingerprint = head.fingerprint,
                            .skipped = head.flags & DP_SLICE_UNTRAINED && head.sample_count,
                            .times.compute_ns = 2000000ull * head.sample_count};
}

static UNUSED void report(fixture *f, uint32_t worker, uint64_t sequence,
                          const rt_wire_report *report)
{
    float predictions[4 * BATCH];
    assert_true(report->sample_count <= RT_COUNT_OF(predictions));
    for (uint32_t i = 0; i < RT_COUNT_OF(predictions); i++)
        predictions[i] = 0.25f;
    say(f, 1 + worker, RT_MESSAGE_REPORT, sequence, report, sizeof *report, predictions,
        report->sample_count * sizeof(float));
}

// Trains the slices of one iteration and reports on them; those of a flush it only takes. Samples.
static UNUSED uint64_t train_next(fixture *f, uint32_t *iteration)
{
    uint64_t samples = 0;
    for (uint32_t w = 0; w < WORKERS; w++) {
        rt_message slice = expect(f, 1 + w, RT_MESSAGE_SLICE);
        const rt_wire_report one = report_on(&slice, iteration);
        if (*iteration)
            report(f, w, rt_message_header(&slice)->iteration, &one);
        samples += one.sample_count;
        rt_message_release(&slice);
    }
    return samples;
}

// Trains up to an iteration; samples that were trained.
static UNUSED uint64_t train_to(fixture *f, uint32_t last)
{
    uint64_t samples = 0;
    for (uint32_t t = 0; t < last;) {
        samples += train_next(f, &t);
        assert_int_not_equal(t, 0);
    }
    return samples;
}

// Trains what comes before the next flush; samples.
static UNUSED uint64_t train_to_flush(fixture *f)
{
    uint64_t samples = 0;
    for (uint32_t t = 1; t > 0;)
        samples += train_next(f, &t);
    return samples;
}

static UNUSED void take_flush(fixture *f)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        rt_message slice = expect(f, 1 + w, RT_MESSAGE_SLICE);
        uint32_t iteration;
        (void)report_on(&slice, &iteration);
        assert_int_equal(iteration, 0);
        rt_message_release(&slice);
    }
}

static UNUSED void finish_workers(fixture *f)
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

static UNUSED const char rows[] = "rows of shard 0";

// Answers what a cut asks of members; the iteration that it is of. base: of the checkpoint that it
// changes.
static UNUSED uint32_t play_cut_upon(fixture *f, uint32_t base)
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
    assert_int_equal(order.base, base);
    say(f, 0, RT_MESSAGE_CUT, iteration, NULL, 0, NULL, 0);
    const rt_wire_written written = {.bytes = strlen(rows), .hash = 88, .ns = 1000};
    say(f, 0, RT_MESSAGE_WRITTEN, iteration, &written, sizeof written, NULL, 0);
    return iteration;
}

static UNUSED uint32_t play_cut(fixture *f)
{
    return play_cut_upon(f, 0);
}

// The file of the model, or of a checkpoint, that a member has: one piece, until it is written.
static UNUSED void give_file(fixture *f, uint32_t member, uint64_t iteration, const char *bytes)
{
    const size_t size = strlen(bytes);
    const rt_wire_piece piece = {
        .total = size,
        .checksum = rt_hash_bytes(bytes, size),
        .sum = rt_hash_bytes(bytes, size),
        .file = rt_peer_role(peer_of(member)) == RT_ROLE_PS ? rt_peer_rank(peer_of(member)) : 0};
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

// drained: the member that is told of another end; MEMBERS: none is.
static UNUSED void expect_stops(fixture *f, rt_reason reason, uint32_t drained)
{
    for (uint32_t m = 0; m <= f->config.worker_count; m++) {
        rt_message message = next(f, m);
        while (rt_message_header(&message)->type != RT_MESSAGE_STOP) { // slices that are under way
            rt_message_release(&message);
            message = next(f, m);
        }
        assert_int_equal(rt_message_header(&message)->iteration,
                         m == drained ? RT_REASON_DRAINED : reason);
        rt_message_release(&message);
        ops->end(f->members[m], 0); // the coordinator waits for that
    }
}

static UNUSED void expect_stop(fixture *f, rt_reason reason)
{
    expect_stops(f, reason, MEMBERS);
}

// The shard gives up; that ends the run.
static UNUSED void end_by_failure(fixture *f)
{
    say(f, 0, RT_MESSAGE_FAILED, 0, "enough", 6, NULL, 0);
    expect_stop(f, RT_REASON_FAILED);
    finish(f, RT_PEER, "enough");
}

static UNUSED void end_well(fixture *f)
{
    finish_workers(f);
    give_file(f, 1, 0, "dense weights");
    give_file(f, 0, 0, rows);
    expect_stop(f, RT_REASON_COMPLETE);
}

// ---- what is left of a run -------------------------------------------------------------------

static UNUSED cJSON *json_of(const fixture *f, const char *name)
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

static UNUSED double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    if (!cJSON_IsNumber(item))
        fail_msg("no %s", name);
    return item->valuedouble;
}

static UNUSED void text_must_be(const cJSON *object, const char *name, const char *want)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    assert_true(cJSON_IsString(item));
    assert_string_equal(item->valuestring, want);
}

// The last record of this kind.
static UNUSED cJSON *last_record(const fixture *f, const char *kind)
{
    char path[600], line[8192], start[64];
    cJSON *found = NULL;
    snprintf(path, sizeof path, "%s/metrics.jsonl", f->out);
    snprintf(start, sizeof start, "{\"record\":\"%s\"", kind);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, start, strlen(start)) != 0)
            continue;
        cJSON_Delete(found);
        found = cJSON_Parse(line);
    }
    fclose(file);
    assert_non_null(found);
    return found;
}

// Lines of a file that have a text.
static UNUSED uint32_t count_lines(const fixture *f, const char *name, const char *text)
{
    char path[600], line[8192];
    uint32_t count = 0;
    snprintf(path, sizeof path, "%s/%s", f->out, name);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        count += strstr(line, text) != NULL;
    if (file)
        fclose(file);
    return count;
}

#endif
