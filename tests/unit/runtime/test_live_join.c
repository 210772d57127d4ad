// Labels that come later to a run that is sent its events: outcomes by HTTP, by TCP and from
// feeders, a stream that goes on, and who may feed where keys are in use.
#include "runtime/live/rt_live.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/live/rt_feed.h"
#include "runtime/stream/rt_stream.h"
#include "runtime/transport/rt_keys.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"
#include "tests/support/test_clock.h"

#define EVENTS                                                                          \
    "stream.table.columns=[{\"name\":\"id\",\"kind\":\"id\"},{\"name\":\"c\",\"kind\":" \
    "\"categorical\",\"id\":\"number\"}]"
#define OUTCOMES                                                                       \
    "stream.join.columns=[{\"name\":\"id\",\"kind\":\"id\"},{\"name\":\"y\",\"kind\":" \
    "\"label\"}]"
#define SOON_NS UINT64_C(200000000)
#define LIMIT_NS UINT64_C(20000000000)

static rt_config config;
static rt_live *live;
static rt_stream *stream;
static int http_port, tcp_ports[RT_FLOWS];
static const char *window_s = "1000000", *resend_s = "0";

static void set_port(const char *key, int port)
{
    char text[100];
    snprintf(text, sizeof text, "%s=127.0.0.1:%d", key, port);
    config_must_set(&config, text);
}

// Each with its own journal, in the case's folder. What was there goes on.
static void open_live(const char *events, const char *outcomes)
{
    char text[100];
    rt_error error = {0};
    config = config_fresh();
    config_must_set(&config, "stream.format=table");
    config_must_set(&config, EVENTS);
    config_must_set(&config, OUTCOMES);
    snprintf(text, sizeof text, "stream.join.window_s=%s", window_s);
    config_must_set(&config, text);
    snprintf(text, sizeof text, "stream.join.resend_s=%s", resend_s);
    config_must_set(&config, text);
    snprintf(text, sizeof text, "stream.source=%s", events);
    config_must_set(&config, text);
    snprintf(text, sizeof text, "stream.join.source=%s", outcomes);
    config_must_set(&config, text);
    set_port("stream.http.listen", http_port = test_free_port());
    set_port("stream.tcp.listen", tcp_ports[RT_FLOW_EVENTS] = test_free_port());
    set_port("stream.join.listen", tcp_ports[RT_FLOW_OUTCOMES] = test_free_port());
    if (rt_live_open(&config, test_path("journal"), &live, &error))
        fail_msg("%s", error.text);
    config.stream.live = live;
    if (rt_stream_open(&config.stream, 1, &stream, &error))
        fail_msg("%s", error.text);
    rt_stream_remember(stream);
    rt_stream_set_wait(stream, SOON_NS);
}

static void close_live(void)
{
    rt_stream_close(stream);
    rt_live_close(live);
    rt_config_fini(&config);
}

// "200 ANSWER"
static void must_answer(const char *method, const char *path, const char *body, const char *want)
{
    char request[2000], got[2000] = "";
    size_t length = 0;
    const int fd = test_connect((uint16_t)http_port);
    const int size =
        snprintf(request, sizeof request,
                 "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: "
                 "%zu\r\n\r\n%s",
                 method, path, strlen(body), body);
    assert_int_equal(send(fd, request, (size_t)size, MSG_NOSIGNAL), size);
    for (ssize_t one; (one = read(fd, got + length, sizeof got - 1 - length)) > 0;)
        length += (size_t)one;
    close(fd);
    const char *answer = strstr(got, "\r\n\r\n");
    if (strlen(got) < 12 || !answer || memcmp(got + 9, want, 3) != 0 ||
        strcmp(answer + 4, want + 4) != 0)
        fail_msg("%s %s: got \"%s\", want \"%s\"", method, path, got, want);
}

// "KEY:LABEL ..." of the samples that come until `count` are there, in their order.
static void must_train(uint32_t count, const char *want)
{
    char got[500] = "";
    rt_batch batch;
    rt_error error = {0};
    uint32_t seen = 0;
    rt_batch_init(&batch, 0);
    while (seen < count) {
        assert_int_equal(rt_stream_read(stream, &batch, count - seen, &error), RT_OK);
        for (uint32_t i = 0; i < batch.sample_count; i++) {
            const size_t length = strlen(got);
            snprintf(got + length, sizeof got - length, "%llu:%g ",
                     (unsigned long long)(batch.keys[i] & 0xffff), (double)batch.labels[i]);
        }
        seen += batch.sample_count;
    }
    rt_batch_fini(&batch);
    assert_string_equal(got, want);
}

static void outcomes_by_http(void **state)
{
    (void)state;
    open_live("http", "http");
    must_answer("POST", "/outcomes", "e2,1\n", "200 {\"stored\":1}"); // before its event
    must_answer("POST", "/events", "e1,1\ne2,2\ne3,3\n", "200 {\"stored\":3}");
    must_train(1, "2:1 ");
    must_answer("POST", "/outcomes", "e3,0\ne1,1\n", "200 {\"stored\":2}");
    must_train(2, "3:0 1:1 ");
    must_answer("GET", "/health", "",
                "200 {\"status\":\"ok\",\"events\":3,\"outcomes\":3,"
                "\"journal_bytes\":278}");
    must_answer("POST", "/", "",
                "404 {\"error\":\"expected POST /events, POST /outcomes or GET "
                "/health\"}");
    must_answer("GET", "/outcomes", "", "405 {\"error\":\"expected POST /outcomes\"}");
    must_answer("POST", "/outcomes", "",
                "400 {\"error\":\"the body is empty, expected one outcome per line\"}");
    assert_int_equal(rt_live_statistics(live, RT_FLOW_EVENTS).intake.unnamed, 3);
    close_live();
}

// Outcomes alone are sent: nobody may post events.
static void only_outcomes_are_sent(void **state)
{
    (void)state;
    rt_error error = {0};
    char text[400];
    FILE *file = fopen(test_path("events.csv"), "w");
    assert_true(fputs("e1,1,100\ne2,2,200\n", file) >= 0);
    fclose(file);
    config = config_fresh();
    snprintf(text, sizeof text, "stream.files=%s", test_path("events.csv"));
    config_must_set(&config, text);
    config_must_set(&config, "stream.format=table");
    config_must_set(&config,
                    "stream.table.columns=[{\"name\":\"id\",\"kind\":\"id\"},{\"name\":\"c\","
                    "\"kind\":\"categorical\",\"id\":\"number\"},{\"name\":\"t\",\"kind\":"
                    "\"time\"}]");
    config_must_set(&config, OUTCOMES);
    config_must_set(&config, "stream.join.source=http");
    config_must_set(&config, "stream.join.window_s=1000000000");
    set_port("stream.http.listen", http_port = test_free_port());
    assert_true(rt_live_is_wanted(&config));
    if (rt_live_open(&config, test_path("journal"), &live, &error))
        fail_msg("%s", error.text);
    config.stream.live = live;
    assert_null(rt_live_journal(live, RT_FLOW_EVENTS));
    must_answer("POST", "/events", "e1,1\n",
                "404 {\"error\":\"expected POST /outcomes or GET /health\"}");
    must_answer("POST", "/outcomes", "e2,1\ne1,0\n", "200 {\"stored\":2}");
    assert_int_equal(rt_stream_open(&config.stream, 1, &stream, &error), RT_OK);
    must_train(2, "1:0 2:1 ");
    close_live();
}

static void send_lines(int port, const char *text, const char *want)
{
    char got[100] = "";
    const int fd = test_connect((uint16_t)port);
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    struct pollfd one = {fd, POLLIN, 0};
    assert_int_equal(poll(&one, 1, 5000), 1);
    assert_true(read(fd, got, sizeof got - 1) > 0);
    close(fd);
    assert_string_equal(got, want);
}

static void outcomes_by_a_second_port(void **state)
{
    (void)state;
    open_live("tcp", "tcp");
    send_lines(tcp_ports[RT_FLOW_EVENTS], "e1,1\ne2,2\n", "2\n");
    send_lines(tcp_ports[RT_FLOW_OUTCOMES], "e2,0\n", "1\n");
    must_train(1, "2:0 ");
    send_lines(tcp_ports[RT_FLOW_OUTCOMES], "e1,1\n", "1\n");
    must_train(1, "1:1 ");
    close_live();
}

// What a checkpoint keeps, and another process that goes on with it.
static rt_bytes kept_position, kept_waiting;

static void keep(void)
{
    rt_bytes_fini(&kept_waiting);
    rt_stream_tell(stream, &kept_position);
    rt_stream_save(stream, &kept_position, &kept_waiting);
}

static void go_on(void)
{
    rt_bytes restored = {0};
    rt_error error = {0};
    open_live("http", "tcp");
    rt_reader reader = rt_bytes_reader(&kept_waiting);
    assert_true(rt_stream_take_waiting(&reader, &restored));
    if (rt_stream_seek(stream, &kept_position, &error) ||
        rt_stream_restore(stream, &restored, &error))
        fail_msg("%s", error.text);
    rt_bytes_fini(&restored);
}

static void end_keeping(void)
{
    rt_bytes_fini(&kept_position);
    rt_bytes_fini(&kept_waiting);
}

// What waits comes from the checkpoint, both flows go on in their journals.
static void goes_on_where_both_stood(void **state)
{
    (void)state;
    open_live("http", "tcp");
    must_answer("POST", "/events", "e1,1\ne2,2\ne3,3\n", "200 {\"stored\":3}");
    send_lines(tcp_ports[RT_FLOW_OUTCOMES], "e2,1\n", "1\n");
    must_train(1, "2:1 ");
    keep();
    const rt_position_events events = rt_position_find_events(&kept_position);
    assert_int_equal(events.next[RT_FLOW_EVENTS], 4);
    assert_int_equal(events.next[RT_FLOW_OUTCOMES], 2);
    send_lines(tcp_ports[RT_FLOW_OUTCOMES], "e1,0\n", "1\n");
    must_train(1, "1:0 "); // a run that is lost then
    close_live();
    go_on();
    must_answer("POST", "/events", "e4,4\n", "200 {\"stored\":1}");
    send_lines(tcp_ports[RT_FLOW_OUTCOMES], "e4,1\ne3,1\n", "2\n");
    must_train(3, "1:0 4:1 3:1 "); // e1's outcome is in the journal
    assert_int_equal(rt_stream_statistics(stream).join.waiting, 0);
    close_live();
    end_keeping();
}

// An outcome that nobody took while the run was down is there before the window ends that went on
// meanwhile; then windows end as ever.
static void what_was_not_taken_comes_first(void **state)
{
    (void)state;
    open_live("http", "tcp");
    must_answer("POST", "/events", "e1,1\ne2,2\n", "200 {\"stored\":2}");
    send_lines(tcp_ports[RT_FLOW_OUTCOMES], "e2,1\n", "1\n");
    must_train(1, "2:1 ");
    keep();
    close_live();
    window_s = "0.01";
    resend_s = "1000";
    (void)poll(NULL, 0, 20);
    go_on();
    must_answer("POST", "/events", "e3,3\n", "200 {\"stored\":1}"); // moves the clock
    send_lines(tcp_ports[RT_FLOW_OUTCOMES], "e1,1\n", "1\n");
    must_train(1, "1:1 ");
    keep();
    close_live();
    resend_s = "0.1";
    go_on();
    must_train(1, "3:0 ");
    close_live();
    end_keeping();
}

static void set_day(int64_t seconds)
{
    atomic_store(&test_clock.realtime_ns, seconds * 1000000000);
}

// The machine's clock is set while events wait, as that of a box without a battery is: nobody's
// window ends, and windows end as ever by the time that passes.
static void a_clock_that_is_set_ends_no_window(void **state)
{
    (void)state;
    static const int64_t days_s[] = {100, 1800000000, 1800007200, 1800000000, 5};
    char body[100], want[200] = "";
    window_s = "600";
    set_day(days_s[0]);
    open_live("http", "tcp");
    for (size_t i = 0; i < RT_COUNT_OF(days_s); i++) {
        set_day(days_s[i]);
        snprintf(body, sizeof body, "e%zu,%zu\nx,%zu\n", i, i, 20 + i);
        must_answer("POST", "/events", body, "200 {\"stored\":2}");
        send_lines(tcp_ports[RT_FLOW_OUTCOMES], "x,0\n", "1\n"); // it is read as far as that
        snprintf(body, sizeof body, "%zu:0 ", 20 + i);
        must_train(1, body);
        snprintf(want + strlen(want), sizeof want - strlen(want), "%zu:1 ", i);
    }
    send_lines(tcp_ports[RT_FLOW_OUTCOMES], "e0,1\ne1,1\ne2,1\ne3,1\ne4,1\n", "5\n");
    must_train(RT_COUNT_OF(days_s), want);
    assert_int_equal(rt_stream_statistics(stream).join.unanswered, 0);
    must_answer("POST", "/events", "f,9\n", "200 {\"stored\":1}");
    test_clock_stop();
    test_clock_move(601);
    must_train(1, "9:0 ");
    close_live();
}

static void what_has_no_journal_is_told_of(void **state)
{
    (void)state;
    rt_bytes position = {0};
    rt_position_events events = rt_position_find_events(&position);
    assert_true(events.next[RT_FLOW_EVENTS] == 0 && events.next[RT_FLOW_OUTCOMES] == 0);
    for (size_t size = 0; size < 200; size++) {
        rt_bytes_put(&position, "j", 1);
        events = rt_position_find_events(&position);
        assert_true(events.next[RT_FLOW_EVENTS] == 0 && events.next[RT_FLOW_OUTCOMES] == 0);
    }
    rt_bytes_fini(&position);
}

// Of a source whose own bytes end like the position of one.
static void what_only_looks_like_a_journal(void **state)
{
    (void)state;
    static const char files[RT_POSITION_NAME_BYTES] = "files";
    static const char journal[RT_POSITION_NAME_BYTES] = RT_POSITION_JOURNAL;
    static const char counts[RT_POSITION_COUNTS_BYTES] = {0};
    for (int is_journal = 0; is_journal < 2; is_journal++) {
        rt_bytes position = {0};
        rt_bytes_put_u64(&position, RT_POSITION_MAGIC);
        rt_bytes_put_u32(&position, RT_POSITION_VERSION);
        rt_bytes_put_u32(&position, 0);
        rt_bytes_put(&position, counts, sizeof counts);
        rt_bytes_put_u64(&position, 0);
        rt_bytes_put(&position, is_journal ? journal : files, sizeof files);
        if (!is_journal)
            rt_bytes_put(&position, journal, sizeof journal);
        rt_bytes_put_u64(&position, 5);
        const rt_position_events events = rt_position_find_events(&position);
        assert_int_equal(events.next[RT_FLOW_EVENTS], is_journal ? 5 : 0);
        assert_int_equal(events.next[RT_FLOW_OUTCOMES], 0);
        rt_bytes_fini(&position);
    }
}

// Bytes that a file may have from now on; 0: as many as before.
static void limit_files(rlim_t bytes)
{
    static struct rlimit before;
    struct rlimit limit;
    if (before.rlim_max == 0)
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = bytes ? bytes : before.rlim_cur;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_disk_that_takes_nothing(void **state)
{
    (void)state;
    char byte;
    open_live("http", "tcp");
    limit_files(60); // a head of a segment, and no line
    must_answer("POST", "/events", "e1,1\n",
                "503 {\"error\":\"the lines could not be stored: send them again\"}");
    const int fd = test_connect((uint16_t)tcp_ports[RT_FLOW_OUTCOMES]);
    assert_int_equal(send(fd, "e1,1\n", 5, MSG_NOSIGNAL), 5);
    assert_true(recv(fd, &byte, 1, 0) <= 0); // closed, and nothing was counted
    close(fd);
    assert_int_equal(rt_live_statistics(live, RT_FLOW_EVENTS).journal.next, 1);
    assert_int_equal(rt_live_statistics(live, RT_FLOW_OUTCOMES).journal.next, 1);
    limit_files(0);
    must_answer("POST", "/events", "e1,1\n", "200 {\"stored\":1}");
    send_lines(tcp_ports[RT_FLOW_OUTCOMES], "e1,1\n", "1\n");
    must_train(1, "1:1 ");
    close_live();
}

// ---- feeders -----------------------------------------------------------------------------------

// Of a box: its own, the hub's, and who may feed.
static void set_keys(rt_config *to, const char *own)
{
    const char *folder = test_path("keys");
    snprintf(to->security_key, sizeof to->security_key, "%s/%s.secret", folder, own);
    snprintf(to->security_server_key, sizeof to->security_server_key, "%s/hub.public", folder);
    snprintf(to->security_allow, sizeof to->security_allow, "%s/till.public", folder);
}

// key: of this feeder; NULL: none. It appends an event in a folder of its own.
static rt_feeder *feed(const char *key, const char *folder)
{
    rt_feeder *feeder;
    rt_error error = {0};
    static rt_config own; // as long as the feeder
    own = config_fresh();
    snprintf(own.feed_to, sizeof own.feed_to, "%s", config.feed_listen);
    if (key)
        set_keys(&own, key);
    if (rt_feeder_open(&own, test_path(folder), &feeder, &error))
        fail_msg("%s", error.text);
    const rt_journal_entry entry = {.lines = "e1,1\n", .size = 5, .count = 1};
    assert_int_equal(rt_journal_append(rt_feeder_journal(feeder), &entry), RT_OK);
    return feeder;
}

static uint64_t kept_by(rt_feeder *feeder, uint64_t limit_ns)
{
    rt_feed_counts counts;
    rt_error error = {0};
    const uint64_t end = rt_now_ns() + limit_ns;
    do {
        (void)poll(NULL, 0, 20);
        if (!rt_feeder_counts(feeder, &counts, &error))
            fail_msg("%s", error.text);
    } while (counts.kept == 0 && rt_now_ns() < end);
    return counts.kept;
}

// The same address and the same words: only who is on the list is heard.
static void only_known_keys_feed(void **state)
{
    (void)state;
    rt_error error = {0};
    if (rt_keys_create(test_path("keys"), "hub", &error) == RT_UNSUPPORTED)
        test_skip("%s", error.text);
    assert_int_equal(rt_keys_create(test_path("keys"), "till", &error), RT_OK);
    assert_int_equal(rt_keys_create(test_path("keys"), "stranger", &error), RT_OK);
    config = config_fresh();
    config_must_set(&config, "stream.source=feed");
    set_port("feed.listen", test_free_port());
    set_keys(&config, "hub");
    if (rt_live_open(&config, test_path("journal"), &live, &error))
        fail_msg("%s", error.text);
    rt_feeder *stranger = feed("stranger", "spool1"), *nobody = feed(NULL, "spool2");
    assert_int_equal(kept_by(stranger, 1500000000), 0);
    assert_int_equal(kept_by(nobody, 100000000), 0);
    assert_int_equal(rt_live_statistics(live, RT_FLOW_EVENTS).journal.next, 1);
    rt_feeder *till = feed("till", "spool3");
    assert_int_equal(kept_by(till, LIMIT_NS), 1);
    assert_int_equal(rt_live_statistics(live, RT_FLOW_EVENTS).journal.next, 2);
    rt_feeder_close(stranger);
    rt_feeder_close(nobody);
    rt_feeder_close(till);
    rt_live_close(live);
    rt_config_fini(&config);
}

// What is in the spool when a feeder ends goes on with the next one, once.
static void a_feeder_goes_on(void **state)
{
    (void)state;
    rt_error error = {0};
    config = config_fresh();
    config_must_set(&config, "stream.source=feed");
    set_port("feed.listen", test_free_port());
    rt_feeder_close(feed(NULL, "spool"));
    rt_feeder *feeder = feed(NULL, "spool");
    if (rt_live_open(&config, test_path("journal"), &live, &error))
        fail_msg("%s", error.text);
    for (int i = 0; i < 1000 && kept_by(feeder, LIMIT_NS) < 2; i++)
        (void)poll(NULL, 0, 20);
    assert_int_equal(rt_live_statistics(live, RT_FLOW_EVENTS).journal.next, 3);
    rt_feeder_close(feeder);
    feeder = feed(NULL, "spool");
    for (int i = 0; i < 1000 && kept_by(feeder, LIMIT_NS) < 3; i++)
        (void)poll(NULL, 0, 20);
    assert_int_equal(rt_live_statistics(live, RT_FLOW_EVENTS).journal.next, 4);
    rt_feeder_close(feeder);
    rt_live_close(live);
    rt_config_fini(&config);
}

TEST_MAIN(TEST(outcomes_by_http), TEST(only_outcomes_are_sent), TEST(outcomes_by_a_second_port),
          TEST(goes_on_where_both_stood), TEST(what_was_not_taken_comes_first),
          TEST(a_clock_that_is_set_ends_no_window), TEST(what_has_no_journal_is_told_of),
          TEST(what_only_looks_like_a_journal), TEST(a_disk_that_takes_nothing),
          TEST(only_known_keys_feed), TEST(a_feeder_goes_on))
