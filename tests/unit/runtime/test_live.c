// Events that are sent: what senders are told, and what the source of lines gives of it.
#include "runtime/live/rt_live.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/stream/rt_source.h"
#include "tests/support/open_quote_case.h"
#include "tests/support/test.h"

static rt_config config;
static int port;

static rt_live *open_live(rt_source_kind kind, uint64_t bytes_max)
{
    rt_live *live;
    rt_error error = {0};
    if (!port)
        port = test_free_port();
    assert_int_equal(rt_config_init(&config), RT_OK);
    config.stream.source = kind;
    config.journal_bytes_max = bytes_max;
    snprintf(config.stream.http_listen, sizeof config.stream.http_listen, "127.0.0.1:%d", port);
    snprintf(config.stream.tcp_listen, sizeof config.stream.tcp_listen, "127.0.0.1:%d", port);
    if (rt_live_open(&config, test_path("journal"), &live, &error))
        fail_msg("%s", error.text);
    config.stream.live = live;
    return live;
}

static void *open_source(void)
{
    void *source;
    assert_int_equal(rt_source_live.open(&config.stream, 1, &source, NULL), RT_OK);
    return source;
}

static void must_give(void *source, const char *want)
{
    rt_line line;
    rt_error error = {0};
    assert_int_equal(rt_source_live.line(source, rt_now_ns() + 5000000000u, 0, &line, &error),
                     RT_OK);
    assert_int_equal(line.length, strlen(want));
    assert_memory_equal(line.text, want, line.length);
    assert_true(line.arrival_ns > 0);
}

static void must_wait(void *source)
{
    rt_line line;
    rt_error error = {0};
    assert_int_equal(rt_source_live.line(source, rt_now_ns() + 50000000, 0, &line, &error),
                     RT_AGAIN);
}

// "CODE BODY" of a request by curl.
static void must_answer(const char *arguments, const char *path, const char *want)
{
    char command[1024], got[1024];
    snprintf(command, sizeof command,
             "curl -s --max-time 10 -w ' %%{http_code}' %s http://127.0.0.1:%d%s", arguments, port,
             path);
    FILE *pipe = popen(command, "r");
    const size_t size = fread(got, 1, sizeof got - 1, pipe);
    got[size] = '\0';
    pclose(pipe);
    if (strcmp(got, want) != 0)
        fail_msg("%s %s: got \"%s\", want \"%s\"", arguments, path, got, want);
}

static const char *body(const char *text)
{
    static char arguments[700];
    FILE *file = fopen(test_path("body"), "w");
    fputs(text, file);
    fclose(file);
    snprintf(arguments, sizeof arguments, "--data-binary @%s", test_path("body"));
    return arguments;
}

static void http_answers_once_events_are_kept(void **state)
{
    (void)state;
    if (system("command -v curl >/dev/null") != 0)
        test_skip("curl is not installed (tools/setup test)");
    rt_live *live = open_live(RT_SOURCE_HTTP, 1 << 30);
    void *source = open_source();
    must_wait(source);
    must_answer(body("a\nb\r\n"), "/events", "{\"accepted\":2} 200");
    must_give(source, "a");
    must_give(source, "b");
    rt_source_live.back(source);
    must_give(source, "b");
    must_wait(source);
    must_answer("--data-binary ''", "/events",
                "{\"error\":\"the body is empty, expected one event per line\"} 400");
    must_answer("", "/events", "{\"error\":\"expected POST /events\"} 405");
    must_answer("", "/", "{\"error\":\"expected POST /events or GET /health\"} 404");
    must_answer("", "/health", "{\"status\":\"ok\",\"events\":2,\"journal_bytes\":101} 200");
    assert_int_equal(rt_live_statistics(live, RT_FLOW_EVENTS).intake.unnamed, 2);
    assert_int_equal(rt_live_statistics(live, RT_FLOW_EVENTS).read, 3);
    rt_source_live.close(source);
    rt_live_close(live);
}

static void http_says_when_it_is_full(void **state)
{
    (void)state;
    if (system("command -v curl >/dev/null") != 0)
        test_skip("curl is not installed (tools/setup test)");
    char arguments[700];
    FILE *file = fopen(test_path("body"), "w");
    for (int i = 0; i < 30000; i++)
        fprintf(file, "1\t%05d\t68fd1e64\t17\n", i); // 600 KB
    fclose(file);
    rt_live *live = open_live(RT_SOURCE_HTTP, 1 << 20);
    snprintf(arguments, sizeof arguments, "--data-binary @%s", test_path("body"));
    must_answer(arguments, "/events", "{\"accepted\":30000} 200");
    must_answer(arguments, "/events",
                "{\"error\":\"the journal is full: training is behind\"} 503");
    assert_int_equal(rt_live_statistics(live, RT_FLOW_EVENTS).journal.next, 30001);
    assert_int_equal(rt_live_statistics(live, RT_FLOW_EVENTS).journal.full, 1);
    rt_live_close(live);
}

static void goes_on_where_it_stood(void **state)
{
    (void)state;
    if (system("command -v curl >/dev/null") != 0)
        test_skip("curl is not installed (tools/setup test)");
    rt_bytes position = {0};
    rt_error error = {0};
    rt_live *live = open_live(RT_SOURCE_HTTP, 1 << 30);
    void *source = open_source();
    must_answer(body("a\nb\nc"), "/events", "{\"accepted\":3} 200");
    must_give(source, "a");
    must_give(source, "b");
    rt_source_live.tell(source, &position);
    rt_source_live.close(source);
    rt_live_close(live);
    live = open_live(RT_SOURCE_HTTP, 1 << 30);
    source = open_source();
    rt_reader reader = rt_bytes_reader(&position);
    assert_int_equal(rt_source_live.seek(source, &reader, NULL, &error), RT_OK);
    must_give(source, "c");
    must_answer("--data-binary d", "/events", "{\"accepted\":1} 200");
    must_give(source, "d");
    rt_source_live.close(source);
    const uint64_t beyond = 9;
    reader = (rt_reader){(const uint8_t *)&beyond, sizeof beyond, false};
    source = open_source();
    assert_int_equal(rt_source_live.seek(source, &reader, NULL, &error), RT_DATA);
    assert_non_null(strstr(error.text, "ends with event 4"));
    reader = (rt_reader){(const uint8_t *)&beyond, 3, false};
    assert_int_equal(rt_source_live.seek(source, &reader, NULL, &error), RT_DATA);
    rt_source_live.close(source);
    rt_bytes_fini(&position);
    rt_live_close(live);
}

// ---- tcp -------------------------------------------------------------------------------------

static void send_text(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

// Reads until the number, which is the last that comes so far.
static void must_count(int fd, const char *want)
{
    char text[256] = "";
    size_t length = 0;
    for (;;) {
        struct pollfd one = {fd, POLLIN, 0};
        if (strstr(text, want) || poll(&one, 1, 5000) != 1)
            break;
        const ssize_t got = read(fd, text + length, sizeof text - 1 - length);
        if (got <= 0)
            break;
        length += (size_t)got;
        text[length] = '\0';
    }
    const size_t size = strlen(want);
    if (length < size || strcmp(text + length - size, want) != 0)
        fail_msg("got \"%s\", want \"%s\" at its end", text, want);
}

static void tcp_counts_what_is_kept(void **state)
{
    (void)state;
    char byte;
    rt_live *live = open_live(RT_SOURCE_TCP, 1 << 30);
    void *source = open_source();
    const int one = test_connect((uint16_t)port), two = test_connect((uint16_t)port);
    send_text(one, "a\nb\nhal");
    must_count(one, "2\n");
    send_text(two, "x\n");
    must_count(two, "1\n");
    send_text(one, "f\n");
    must_count(one, "3\n");
    send_text(one, "cut off");
    shutdown(one, SHUT_WR);
    assert_int_equal(recv(one, &byte, 1, 0), 0); // closed; nothing more was counted
    must_give(source, "a");
    must_give(source, "b");
    must_give(source, "x");
    must_give(source, "half");
    must_wait(source);
    char *line = malloc(RT_LINE_MAX + 100000);
    memset(line, 'l', RT_LINE_MAX + 100000);
    for (size_t sent = 0; sent < RT_LINE_MAX + 100000;) {
        const ssize_t got = send(two, line + sent, RT_LINE_MAX + 100000 - sent, MSG_NOSIGNAL);
        if (got <= 0)
            break;
        sent += (size_t)got;
    }
    assert_true(recv(two, &byte, 1, 0) <= 0); // no line has so many bytes: cut off
    free(line);
    must_wait(source);
    close(one);
    close(two);
    rt_source_live.close(source);
    rt_live_close(live);
}

// Whoever may send could end the run with it, and each that goes on from its journal.
static void an_open_quote_is_one_bad_line(void **state)
{
    (void)state;
    rt_live *live = open_live(RT_SOURCE_TCP, 1 << 30);
    open_quote_configure(&config);
    const int sender = test_connect((uint16_t)port);
    send_text(sender, OPEN_QUOTE_LINES);
    must_count(sender, "3\n");
    open_quote_must_read(&config);
    close(sender);
    rt_live_close(live);
}

static void must_not_open(const char *want)
{
    rt_live *live;
    rt_error error = {0};
    const rt_status status = rt_live_open(&config, test_path("journal"), &live, &error);
    if (status == RT_OK || !strstr(error.text, want))
        fail_msg("got %s \"%s\", want \"%s\"", rt_status_text(status), error.text, want);
}

static void refuses_to_open(void **state)
{
    (void)state;
    rt_live *live;
    rt_error error = {0};
    assert_int_equal(rt_config_init(&config), RT_OK);
    config.stream.source = RT_SOURCE_TCP;
    assert_int_equal(rt_live_open(&config, "", &live, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "journal.directory"));
    strcpy(config.stream.tcp_listen, "0.0.0.0:0");
    must_not_open("security.insecure");
    strcpy(config.stream.tcp_listen, "nonsense");
    must_not_open("stream.tcp.listen");
    config.stream.source = RT_SOURCE_HTTP;
    strcpy(config.stream.http_listen, "0.0.0.0:0");
    must_not_open("security.certificate");
    config.stream.source = RT_SOURCE_FEED;
    strcpy(config.feed_listen, "0.0.0.0:0");
    must_not_open("feed.listen");
    config.stream.source = RT_SOURCE_MQTT;
    strcpy(config.stream.mqtt_broker, "192.0.2.1:1883");
    must_not_open(rt_config_has_source(RT_SOURCE_MQTT) ? "stream.mqtt.ca" : "no \"mqtt\"");
}

TEST_MAIN(TEST(http_answers_once_events_are_kept), TEST(http_says_when_it_is_full),
          TEST(goes_on_where_it_stood), TEST(tcp_counts_what_is_kept),
          TEST(an_open_quote_is_one_bad_line), TEST(refuses_to_open))
