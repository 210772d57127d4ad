// Conversations of a coordinator with the members of short runs: some 540 ways of going about it
// (conversations.txt). Whatever happens in one, the rules of tests/support/played_rules.h hold of
// all that is said, and those of left_behind.h of the files. Beside that the file has, below each,
// what a user sees: how it ends, what it logs, which checkpoints and models there are.
//
// Members, journals and a standby are played (tests/support/played.h), threads run one at a time
// and time passes only while the coordinator waits: a conversation is the same in every build and
// on every machine.
//
// A change that is to make others: LANYARD_UPDATE_GOLDEN=1 (or a part of a name, for those that
// have it) writes the file anew, to be read; a broken rule is never written. It has a line for each
// conversation, NAME: WHAT..., so that a new one is a new line. WHAT is
//   KEY=VALUE          of the configuration
//   run.KEY=VALUE      how the coordinator is started (start_with)
//   play.KEY=VALUE     how members behave (behave)
//   @ITERATION:EVENT   something happens when that iteration's slices go out; @0: before members
//   @tSECONDS:EVENT    join; or so long after the run's start, or before the members answer the
//   first
//   @MESSAGE:EVENT     message of that type (happen)
//   |                  the next run in the same folder, with all of the configuration before
#define _XOPEN_SOURCE 700 // nftw
#define _DEFAULT_SOURCE
#include "dispatch/coordinator/dp_coordinator.h"

#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dispatch/coordinator/dp_losses.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"
#include "runtime/stream/rt_synthetic.h"
#include "tests/support/config_case.h"
#include "tests/support/one_by_one.h"
#include "tests/support/played.h"
#include "tests/support/records.h"
#include "tests/support/left_behind.h"
#include "tests/support/played_rules.h"
#include "tests/support/said.h"
#include "tests/support/test.h"

#define CONVERSATIONS "tests/unit/dispatch/conversations.txt"
#define PARTS 8u    // of the file, each a case
#define LIMIT_S 30u // of a conversation
#define CASE_S 240u
#define RUN_FILE "run.json"
#define EVENTS_MAX 64u
#define SAID_BYTES (1u << 14)

// ---- a run -------------------------------------------------------------------------------------

typedef struct {
    char *text; // behind the colon
    uint32_t iteration;
    uint64_t after_ns;
    rt_message_type type; // 0: it waits for no message
    bool is_timed, is_over;
} event;

typedef struct {
    rt_config config, theirs; // theirs: where members have another one (run.members)
    bool has_theirs;
    dp_coordinator_config own;
    played *members;
    event events[EVENTS_MAX];
    uint32_t event_count;
    uint64_t begin_ns;
    bool may_simulate;
    int signals; // the other end of own.signal_fd
    uint32_t saved;
} conversation;

static void say_text(conversation *c, uint32_t peer, rt_message_type type, uint64_t iteration,
                     const char *text)
{
    played_say(c->members, peer, type, iteration, 0, text, strlen(text));
}

// PEER:WHAT, a HELLO in which that is wrong.
static void say_hello(conversation *c, uint32_t peer, const char *what)
{
    rt_wire_hello hello = played_hello(c->members, peer);
    if (strcmp(what, "format") == 0)
        hello.format++;
    if (strcmp(what, "config") == 0)
        hello.config_hash++;
    if (strcmp(what, "given") == 0) {
        hello.config_hash++;
        hello.given_hash++;
    }
    if (strcmp(what, "box") == 0)
        hello.box++;
    if (strcmp(what, "role") == 0)
        hello.role ^= 1;
    if (strcmp(what, "rank") == 0)
        hello.rank++;
    if (strcmp(what, "address") == 0)
        hello.address[0] = '\0';
    if (strcmp(what, "key") == 0)
        hello.key[3]++;
    if (strcmp(what, "no_key") == 0)
        memset(hello.key, 0, sizeof hello.key);
    if (strcmp(what, "epoch") == 0) { // it has served what leads the run "1e5d" after this one
        hello.run = 0x1e5d;
        hello.epoch = 9;
    }
    if (strcmp(what, "program") == 0)
        rt_control_put_text(hello.program, sizeof hello.program, "of another day");
    played_join(c->members, peer, &hello);
}

static rt_message_type type_of(const char *name)
{
    static const struct {
        const char *name;
        rt_message_type type;
    } types[] = {
#define XX(type, number, ...) {#type, RT_MESSAGE_##type},
        RT_MESSAGE_MAP(XX)
#undef XX
    };
    for (size_t i = 0; i < RT_COUNT_OF(types); i++) {
        if (strcmp(types[i].name, name) == 0)
            return types[i].type;
    }
    fail_msg("no message is called %s", name);
    return 0;
}

// PEER:TYPE:ITERATION:COUNT:BYTES:FIRST, the value of the first byte; or, of bytes that are zero
// but for one, BYTES:VALUE:AT.
static void say_anything(conversation *c, uint32_t peer, const char *what)
{
    char type[32] = "";
    uint8_t bytes[512] = {0};
    uint64_t iteration = 0;
    uint32_t count = 0, size = 0, value = 0, at = 0;
    const int given =
        sscanf(what, "%31[A-Z_]:%" SCNu64 ":%" SCNu32 ":%" SCNu32 ":%" SCNu32 ":%" SCNu32, type,
               &iteration, &count, &size, &value, &at);
    if (given < 1)
        fail_msg("%s: expected TYPE:ITERATION:COUNT:BYTES", what);
    assert_true(size <= sizeof bytes && at < sizeof bytes);
    for (uint32_t i = 0; i < size && given < 6; i++)
        bytes[i] = (uint8_t)(i / 8 % 4);
    bytes[at] = (uint8_t)value;
    if (rt_peer_role(peer) == RT_ROLE_VISITOR)
        played_find(c->members, peer)->is_there = true;
    played_say(c->members, peer, type_of(type), iteration, count, bytes, size);
}

static void signal_it(conversation *c, int number)
{
    const struct signalfd_siginfo one = {.ssi_signo = (uint32_t)number};
    assert_int_equal(write(c->signals, &one, sizeof one), sizeof one);
}

// A request, with ~ for the ends of lines and ^ for blanks.
static void ask(conversation *c, const char *text)
{
    char request[1024];
    const uint32_t visitor = played_peer_of("v0");
    played_find(c->members, visitor)->is_there = true;
    snprintf(request, sizeof request, "%s", text);
    for (char *at = request; *at; at++) {
        if (*at == '~')
            *at = '\n';
        if (*at == '^')
            *at = ' ';
    }
    say_text(c, visitor, RT_MESSAGE_CONTROL, 0, request);
}

// PEER or PEER:TEXT
static void happen_to(conversation *c, const char *what, char *whom)
{
    char *text = strchr(whom, ':');
    if (text)
        *text++ = '\0';
    const uint32_t peer = played_peer_of(whom);
    played_peer *one = played_find(c->members, peer);
    if (!one)
        fail_msg("%s: there is no %s", what, whom);
    if (strcmp(what, "join") == 0 || strcmp(what, "hello") == 0)
        say_hello(c, peer, text ? text : "");
    else if (strcmp(what, "say") == 0)
        say_anything(c, peer, text ? text : "");
    else if (strcmp(what, "fail") == 0)
        say_text(c, peer, RT_MESSAGE_FAILED, text ? RT_REASON_LASTS : RT_REASON_FAILED,
                 text ? text : "enough");
    else if (strcmp(what, "gone") == 0)
        one->is_gone = true;
    else if (strcmp(what, "broken") == 0)
        one->is_broken = true;
    else if (strcmp(what, "full") == 0)
        one->is_full = true;
    else if (strcmp(what, "mute") == 0)
        one->is_mute = true;
    else if (strcmp(what, "back") == 0)
        one->is_full = one->is_mute = false;
    else
        fail_msg("nobody knows what \"%s\" is", what);
}

// PATH~TEXT: a file has this text, with ^ for blanks; PATH~/: a folder takes its place; PATH alone:
// it goes.
static void put_file(char *path)
{
    char *text = strchr(path, '~');
    if (!text) {
        assert_int_equal(unlink(path), 0);
        return;
    }
    *text++ = '\0';
    if (strcmp(text, "/") == 0) {
        (void)unlink(path);
        assert_int_equal(mkdir(path, 0777), 0);
        return;
    }
    for (char *at = text; *at; at++)
        *at = *at == '^' ? ' ' : *at == '~' ? '\n' : *at;
    records_write(path, text);
}

// FROM~TO: a file or a folder gets another name.
static void move_file(char *from)
{
    char *to = strchr(from, '~');
    assert_non_null(to);
    *to++ = '\0';
    assert_int_equal(rename(from, to), 0);
}

static void happen(conversation *c, event *one)
{
    char text[1024];
    one->is_over = true;
    snprintf(text, sizeof text, "%s", one->text);
    char *value = strchr(text, '=');
    if (value)
        *value++ = '\0';
    if (strcmp(text, "stop") == 0)
        assert_int_equal(eventfd_write(c->own.stop_fd, 1), 0);
    else if (strcmp(text, "usr1") == 0)
        signal_it(c, SIGUSR1);
    else if (strcmp(text, "hup") == 0)
        signal_it(c, SIGHUP);
    else if (!value)
        fail_msg("nobody knows what \"%s\" is", text);
    else if (strcmp(text, "ask") == 0)
        ask(c, value);
    else if (strcmp(text, "write") == 0)
        records_write(RUN_FILE, value);
    else if (strcmp(text, "file") == 0)
        put_file(value);
    else if (strcmp(text, "move") == 0)
        move_file(value);
    else
        happen_to(c, text, value);
}

static void on_iteration(played *p, uint32_t iteration)
{
    conversation *c = p->context;
    for (uint32_t i = 0; i < c->event_count; i++) {
        event *one = &c->events[i];
        if (!one->is_over && !one->is_timed && !one->type && one->iteration == iteration)
            happen(c, one);
    }
}

static void on_message(played *p, rt_message_type type)
{
    conversation *c = p->context;
    for (uint32_t i = 0; i < c->event_count; i++) {
        event *one = &c->events[i];
        if (!one->is_over && one->type == type)
            happen(c, one);
    }
}

static void on_turn(played *p)
{
    conversation *c = p->context;
    for (uint32_t i = 0; i < c->event_count; i++) {
        event *one = &c->events[i];
        if (!one->is_over && one->is_timed && one_by_one_now_ns() - c->begin_ns >= one->after_ns)
            happen(c, one);
    }
}

// The coordinator listens.
static void announce(void *context, const char *address)
{
    conversation *c = context;
    const uint64_t absent = c->members->manners.absent;
    assert_string_equal(address, "tcp://127.0.0.1:1234");
    on_iteration(c->members, 0);
    for (uint32_t s = 0; s < c->config.ps_shard_count; s++) {
        if (!(c->members->manners.absent_shards >> s & 1))
            say_hello(c, rt_peer(RT_ROLE_PS, s), "");
    }
    for (uint32_t w = 0; w < c->config.worker_count; w++) {
        if (!(absent >> w & 1))
            say_hello(c, rt_peer(RT_ROLE_WORKER, w), "");
    }
}

static void count_saved(void *context)
{
    ((conversation *)context)->saved++;
}

// ---- what is wanted ----------------------------------------------------------------------------

// Made up: nobody looks whether they are keys.
static void take_keys(conversation *c)
{
    static rt_keys keys;
    keys = (rt_keys){.is_set = true, .own = {.name = "own"}, .allowed_count = 1};
    memset(keys.own.bytes, 7, sizeof keys.own.bytes);
    snprintf(keys.allowed[0].name, sizeof keys.allowed[0].name, "other");
    memset(keys.allowed[0].bytes, 9, sizeof keys.allowed[0].bytes);
    c->own.keys = &keys;
    c->members->has_keys = true;
}

// So many lines of Criteo's format in the file "rows", and every tenth time garbage.
static void write_rows(uint64_t count, bool has_garbage)
{
    FILE *file = fopen("rows", "w");
    assert_non_null(file);
    for (uint64_t i = 0; i < count; i++) {
        fputs(i % 3 == 0 ? "1" : "0", file);
        for (uint64_t f = 0; f < 39; f++)
            fprintf(file, f < 13 ? "\t%" PRIu64 : "\t%08" PRIx64, i * 7 % (f + 3));
        fputs(has_garbage && i % 10 == 9 ? "\nno sample\n" : "\n", file);
    }
    assert_int_equal(fclose(file), 0);
}

// Likewise a table: a label, a class, a number, an id, ids, the time, and an outcome of another
// label.
static void write_table(uint64_t count)
{
    FILE *file = fopen("rows", "w");
    assert_non_null(file);
    for (uint64_t i = 0; i < count; i++)
        fprintf(file,
                "%" PRIu64 ",%" PRIu64 ",%g,user%" PRIu64 ",tag%" PRIu64 "|tag%" PRIu64 ",%" PRIu64
                "\n",
                (uint64_t)(i % 3 == 0), i % 5, (double)i / 8 - 3, i % 29, i % 7, i % 11, i / 4);
    assert_int_equal(fclose(file), 0);
}

// So many keys wait to be forgotten.
static void write_forgotten(uint64_t count)
{
    FILE *file = fopen("forgotten", "w");
    assert_non_null(file);
    for (uint64_t i = 0; i < count; i++)
        fprintf(file, "%016" PRIx64 "\n", i);
    assert_int_equal(fclose(file), 0);
}

// Members have this in their configuration.
static void tell_members(conversation *c, const char *assignment)
{
    assert_int_equal(rt_config_copy(&c->config, &c->theirs), RT_OK);
    c->has_theirs = true;
    config_must_set(&c->theirs, assignment);
}

static void start_with(conversation *c, const char *key, const char *value)
{
    dp_coordinator_config *own = &c->own;
    const uint64_t number = strtoull(value, NULL, 0);
    if (strcmp(key, "resume") == 0)
        own->resume = number ? DP_RESUME_IF_ANY : DP_RESUME_NEWEST;
    else if (strcmp(key, "model") == 0)
        own->model = value;
    else if (strcmp(key, "may_shrink") == 0)
        own->may_shrink = number != 0;
    else if (strcmp(key, "without") == 0)
        own->without = number;
    else if (strcmp(key, "spawned") == 0)
        own->spawned = number != 0;
    else if (strcmp(key, "out") == 0)
        own->directory = number ? "out" : NULL;
    else if (strcmp(key, "trace") == 0)
        own->trace = number != 0;
    else if (strcmp(key, "progress") == 0)
        own->progress = number != 0;
    else if (strcmp(key, "dense_bytes") == 0)
        own->dense_bytes = number;
    else if (strcmp(key, "hash") == 0)
        own->identity.config_hash += number;
    else if (strcmp(key, "schema") == 0)
        own->schema += number;
    else if (strcmp(key, "reload") == 0)
        own->reload.path = RUN_FILE;
    else if (strcmp(key, "file") == 0)
        put_file((char *)(uintptr_t)value);
    else if (strcmp(key, "move") == 0)
        move_file((char *)(uintptr_t)value);
    else if (strcmp(key, "keys") == 0)
        take_keys(c);
    else if (strcmp(key, "members") == 0)
        tell_members(c, value);
    else if (strcmp(key, "rows") == 0 || strcmp(key, "rows_and_garbage") == 0)
        write_rows(number, key[4] != '\0');
    else if (strcmp(key, "simulated") == 0)
        c->may_simulate = number != 0;
    else if (strcmp(key, "forgotten") == 0)
        write_forgotten(number);
    else if (strcmp(key, "table") == 0)
        write_table(number);
    else
        fail_msg("run.%s: a coordinator has none", key);
}

static void behave(played_manners *m, const char *key, const char *value)
{
    const uint64_t number = strtoull(value, NULL, 0);
    static const struct {
        const char *key;
        size_t offset, size;
    } all[] = {
#define ONE(name) {#name, offsetof(played_manners, name), sizeof m->name}
        ONE(absent),  ONE(absent_shards), ONE(late),          ONE(bad),       ONE(applied),
        ONE(rates),   ONE(busy),          ONE(file_bytes),    ONE(writes),    ONE(no_room),
        ONE(unread),  ONE(unwanted),      ONE(wrong_version), ONE(slow),      ONE(turn_ms),
        ONE(rows),    ONE(spoils),        ONE(lies),          ONE(no_vitals), ONE(deaf),
        ONE(fails),   ONE(live),          ONE(pressed),       ONE(old),       ONE(standby),
        ONE(promoted)
#undef ONE
    };
    if (strcmp(key, "compute_us") == 0) {
        for (uint32_t w = 0; w < RT_COUNT_OF(m->compute_ns); w++)
            m->compute_ns[w] = number * 1000 * (1 + w);
        return;
    }
    for (size_t i = 0; i < RT_COUNT_OF(all); i++) {
        if (strcmp(all[i].key, key) != 0)
            continue;
        memcpy((uint8_t *)m + all[i].offset, &number, all[i].size); // little-endian
        return;
    }
    fail_msg("play.%s: members do not know that", key);
}

static void note_event(conversation *c, char *text)
{
    char *colon = strchr(text, ':');
    event *one = &c->events[c->event_count++];
    assert_true(c->event_count <= EVENTS_MAX);
    if (!colon)
        fail_msg("%s: expected @WHEN:EVENT", text);
    *one = (event){.text = colon + 1, .is_timed = text[1] == 't'};
    *colon = '\0';
    if (text[1] >= 'A' && text[1] <= 'Z')
        one->type = type_of(text + 1);
    else if (one->is_timed)
        one->after_ns = (uint64_t)(strtod(text + 2, NULL) * 1e9);
    else
        one->iteration = (uint32_t)strtoul(text + 1, NULL, 10);
}

// What no key sets; of config NULL: whether a word is about that.
static bool set_constant(rt_config *config, const char *word)
{
    static const struct {
        const char *name;
        size_t offset;
        bool is_large;
    } all[] = {{"play.run_ahead=", offsetof(rt_config, run_ahead), false},
               {"play.bad_batches_max=", offsetof(rt_config, guard_bad_batches_max), false},
               {"play.guard_samples=", offsetof(rt_config, publish.guard_samples), true}};
    for (size_t i = 0; i < RT_COUNT_OF(all); i++) {
        const size_t length = strlen(all[i].name);
        if (strncmp(word, all[i].name, length) != 0)
            continue;
        const uint64_t number = strtoull(word + length, NULL, 10);
        if (config) // little-endian
            memcpy((uint8_t *)config + all[i].offset, &number, all[i].is_large ? 8 : 4);
        return true;
    }
    return false;
}

// Everything but the configuration, which is set before.
static void prepare(conversation *c, char *what)
{
    for (char *rest = NULL, *one = strtok_r(what, " ", &rest); one;
         one = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(one, '=');
        if (*one == '@') {
            note_event(c, one);
            continue;
        }
        if (set_constant(NULL, one))
            continue;
        if (value && strncmp(one, "run.", 4) == 0) {
            *value++ = '\0';
            start_with(c, one + 4, value);
        } else if (value && strncmp(one, "play.", 5) == 0) {
            *value++ = '\0';
            behave(&c->members->manners, one + 5, value);
        }
    }
}

// A value with ^ for blanks.
static void configure(rt_config *config, const char *what)
{
    char text[RECORDS_LINE_BYTES];
    snprintf(text, sizeof text, "%s", what);
    for (char *rest = NULL, *one = strtok_r(text, " ", &rest); one;
         one = strtok_r(NULL, " ", &rest)) {
        if (!set_constant(config, one) && *one != '@' && *one != '|' &&
            strncmp(one, "run.", 4) != 0 && strncmp(one, "play.", 5) != 0) {
            for (char *at = one; (at = strchr(at, '^'));)
                *at = ' ';
            config_must_set(config, one);
        }
    }
}

static const char common[] =
    "workers=2 batch.samples_per_worker=8 stream.format=synthetic stream.samples_max=192 "
    "stream.synthetic.scale=0.001 cache.rows=700 planner.threads=1 ps.shards=2 "
    "network.bind=127.0.0.1 checkpoint.copies=0 dispatch.measure_compute=false";
static const char links[] = "links.workers=[1,0.5]"; // unless boxes have them

// ---- generators --------------------------------------------------------------------------------

// To make one takes as long as half a run does. Those of the common configuration are made before a
// process for a conversation is forked, which finds as many as it has runs.
static rt_synthetic *spares[3];
static uint32_t spare_count;
static rt_config spares_config;

rt_status __real_rt_synthetic_create(const rt_stream_config *config, uint64_t seed,
                                     rt_synthetic **synthetic_p, rt_error *error);
rt_status __wrap_rt_synthetic_create(const rt_stream_config *config, uint64_t seed,
                                     rt_synthetic **synthetic_p, rt_error *error);

static void make_spares(void)
{
    if (spare_count > 0)
        return;
    assert_int_equal(rt_config_init(&spares_config), RT_OK);
    configure(&spares_config, common);
    for (; spare_count < RT_COUNT_OF(spares); spare_count++)
        assert_int_equal(__real_rt_synthetic_create(&spares_config.stream, spares_config.seed,
                                                    &spares[spare_count], NULL),
                         RT_OK);
}

rt_status __wrap_rt_synthetic_create(const rt_stream_config *config, uint64_t seed,
                                     rt_synthetic **synthetic_p, rt_error *error)
{
    const rt_stream_config *usual = &spares_config.stream;
    const size_t first = offsetof(rt_stream_config, synthetic_shape);
    const size_t end = offsetof(rt_stream_config, synthetic_first) + sizeof usual->synthetic_first;
    if (spare_count == 0 || seed != spares_config.seed ||
        memcmp((const uint8_t *)config + first, (const uint8_t *)usual + first, end - first) != 0)
        return __real_rt_synthetic_create(config, seed, synthetic_p, error);
    *synthetic_p = spares[--spare_count];
    return RT_OK;
}

// ---- conversations -----------------------------------------------------------------------------

// Rules, and what is left behind.
static void check(conversation *c, rt_status status, const char *why, rt_bytes *record)
{
    char left[RECORDS_LINE_BYTES];
    const left_run run = {
        .config = &c->config, .own = &c->own, .status = status, .may_simulate = c->may_simulate};
    played_rules_end(c->members, status == RT_OK);
    rt_bytes *heard = &c->members->heard;
    rt_bytes_put(heard, "", 1);
    for (char *rest = (char *)heard->data, *line; (line = strsep(&rest, "\n"));)
        if (*line && (strncmp(line, "stop: ", 6) != 0 || strcmp(line + 6, why) != 0))
            records_put(record, "%s", line);
    rt_bytes_fini(heard);
    left_check(&run, c->members, left, sizeof left);
    if (*left)
        records_put(record, "leaves%s", left);
    rt_bytes *broken = &c->members->broken;
    rt_bytes_put(broken, "", 1);
    if (broken->size > 1) {
        printf("broken rules:\n%s", (const char *)broken->data);
        record->failed = true;
    }
    rt_bytes_fini(broken);
}

static void one_run(played *members, const char *all, char *own, rt_bytes *record)
{
    conversation c = {.members = members, .begin_ns = one_by_one_now_ns()};
    rt_error error = {0};
    said_output out, log;
    int pair[2];
    char said[SAID_BYTES];
    assert_int_equal(rt_config_init(&c.config), RT_OK);
    configure(&c.config, common);
    configure(&c.config, strstr(all, "boxes=") ? "" : links);
    configure(&c.config, all);
    if (rt_config_check(&c.config, &error))
        fail_msg("%s", error.text);
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    c.signals = pair[1];
    c.own = (dp_coordinator_config){.config = &c.config,
                                    .identity = {0xabcdef0123456789, 5, RT_MANIFEST_FORMAT},
                                    .schema = 0x1122334455667788,
                                    .ops = &played_ops,
                                    .resume = DP_RESUME_NO,
                                    .directory = "out",
                                    .dense_bytes = 4000,
                                    .stop_fd = eventfd(0, EFD_CLOEXEC),
                                    .signal_fd = pair[0],
                                    .announce = announce,
                                    .saved = count_saved,
                                    .announce_context = &c};
    members->has_keys = false;
    members->manners = (played_manners){.compute_ns = {20000, 20000, 20000, 20000}};
    prepare(&c, own);
    members->config = c.has_theirs ? &c.theirs : &c.config;
    members->identity = c.own.identity;
    members->more_labels = rt_config_label_count(&c.config.stream) - 1;
    members->on_iteration = on_iteration;
    members->on_message = on_message;
    members->on_turn = on_turn;
    members->context = &c;
    played_begin(members);
    said_begin(&out, STDOUT_FILENO);
    said_begin(&log, STDERR_FILENO);
    const rt_status status = dp_coordinator_run(&c.own, &error);
    snprintf(said, sizeof said, "%s", said_end(&log));
    one_by_one_end_children(); // commands of the user's, which nobody waits for
    (void)said_end(&out);
    records_put(record, "%s%s%s", status ? rt_status_text(status) : "complete",
                *error.text ? ": " : "", error.text);
    records_put_lines(record, "log", said);
    check(&c, status, error.text, record);
    played_end(members);
    rt_config_fini(&c.config);
    if (c.has_theirs)
        rt_config_fini(&c.theirs);
    close(c.own.stop_fd);
    close(pair[0]);
    close(pair[1]);
}

// All runs of a line, in a process and a folder of its own.
static void converse(const char *line, rt_bytes *record)
{
    static played members;
    char all[RECORDS_LINE_BYTES] = "", text[RECORDS_LINE_BYTES];
    snprintf(text, sizeof text, "%s", strchr(line, ':') + 1);
    rt_log_setup(RT_LOG_INFO, "c");
    assert_int_equal(mkdir("out", 0777), 0);
    for (char *rest = NULL, *run = strtok_r(text, "|", &rest); run;
         run = strtok_r(NULL, "|", &rest)) {
        strncat(all, run, sizeof all - strlen(all) - 1);
        one_run(&members, all, run, record);
    }
    played_fini(&members);
}

static _Noreturn void run_child(const char *line, const char *folder)
{
    rt_bytes record = {0};
    int input[2];
    alarm(LIMIT_S * test_limit_factor());
    // Standard input has something to read, which is nobody's business.
    if (pipe(input) != 0 || write(input[1], "x", 1) != 1 || dup2(input[0], STDIN_FILENO) < 0)
        exit(1);
    if (chdir(folder) != 0)
        exit(1);
    converse(line, &record);
    FILE *file = fopen("record", "w");
    const bool ok =
        file && !record.failed && fwrite(record.data, 1, record.size, file) == record.size;
    rt_bytes_fini(&record);
    exit(file && fclose(file) == 0 && ok ? 0 : 1);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

// What is recorded of a line, the caller's. NULL: it could not be played.
static char *play(const char *line)
{
    char folder[] = "/dev/shm/lanyard-records-XXXXXX", path[64];
    int how = 0;
#ifdef __SANITIZE_THREAD__
    test_skip(
        "threads run one at a time here, and a copy of the process that ends has none of them");
#endif
    make_spares();
    assert_non_null(mkdtemp(folder)); // in memory: a disk would take most of the time
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0)
        run_child(line, folder);
    assert_int_equal(waitpid(child, &how, 0), child);
    if (how)
        printf("its process ended by %s %d\n", WIFSIGNALED(how) ? "signal" : "exit status",
               WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
    snprintf(path, sizeof path, "%s/record", folder);
    char *record = how == 0 ? records_read(path) : NULL;
    assert_int_equal(nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    return record;
}

int main(int argc, char **argv)
{
    return records_main(CONVERSATIONS, PARTS, CASE_S, play, argc, argv);
}
