// Events that are sent: what senders are told, and what the source of lines gives of it.
#include "runtime/config/rt_sources.h"
#include "runtime/live/rt_live.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/stream/rt_source.h"
#include "tests/support/open_quote_case.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

static rt_config config;
static int port;
static void (*set_format)(rt_config *config); // NULL: lines of no format, which are not read

static rt_live *open_live(rt_source_kind kind, uint64_t bytes_max)
{
    rt_live *live;
    rt_error error = {0};
    if (!port)
        port = test_free_port();
    rt_config_fini(&config); // of the run before
    assert_int_equal(rt_config_init(&config), RT_OK);
    config.stream.source = kind;
    config.stream.take_anything = !set_format;
    if (set_format)
        set_format(&config);
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
    must_answer(body("a\nb\r\n"), "/events", "{\"stored\":2} 200");
    must_give(source, "a");
    must_give(source, "b");
    rt_source_live.back(source);
    must_give(source, "b");
    must_wait(source);
    must_answer("--data-binary ''", "/events",
                "{\"error\":\"the body is empty, expected one event per line\"} 400");
    must_answer("", "/events", "{\"error\":\"expected POST /events\"} 405");
    must_answer("", "/", "{\"error\":\"expected POST /events or GET /health\"} 404");
    must_answer("", "/health", "{\"status\":\"ok\",\"events\":2,\"journal_bytes\":100} 200");
    assert_int_equal(rt_live_statistics(live, RT_FLOW_EVENTS).intake.unnamed, 2);
    assert_int_equal(rt_live_statistics(live, RT_FLOW_EVENTS).read, 3);
    rt_source_live.close(source);
    rt_live_close(live);
}

static void sell_in_a_table(rt_config *c)
{
    config_must_set(c, "stream.format=table");
    config_must_set(c, "stream.table.delimiter=,");
    config_must_set(c, "stream.table.columns=[{\"name\":\"hour\",\"kind\":\"dense\"},"
                       "{\"name\":\"item\",\"kind\":\"categorical\"},"
                       "{\"name\":\"bought\",\"kind\":\"label\"}]");
}

static void sell_in_json(rt_config *c)
{
    sell_in_a_table(c);
    config_must_set(c, "stream.format=json");
}

static void sell_in_libsvm(rt_config *c)
{
    config_must_set(c, "stream.format=libsvm");
}

static void sell_in_criteo(rt_config *c)
{
    config_must_set(c, "stream.format=criteo");
}

typedef struct {
    const char *body;
    const char *code;
    const char *part; // of the answer
} sent_body;

static void must_answer_all(const sent_body *cases, size_t count)
{
    char command[1024], got[1024];
    for (size_t i = 0; i < count; i++) {
        snprintf(command, sizeof command,
                 "curl -s --max-time 10 -w ' %%{http_code}' %s http://127.0.0.1:%d/events",
                 body(cases[i].body), port);
        FILE *pipe = popen(command, "r");
        got[fread(got, 1, sizeof got - 1, pipe)] = '\0';
        pclose(pipe);
        const size_t length = strlen(got);
        if (length < 3 || strcmp(got + length - 3, cases[i].code) != 0 ||
            !strstr(got, cases[i].part))
            fail_msg("body %zu: got \"%s\", want %s and \"%s\"", i, got, cases[i].code,
                     cases[i].part);
    }
}

// What the run could not read is refused with its place, and nothing that came with it is stored.
static void http_reads_before_it_stores(void **state)
{
    (void)state;
    static const sent_body table[] = {
        {"3,tea,1\n4,tea,0", "200", "{\"stored\":2}"}, // the last line has no end
        {"this is no event", "400", "line 1: expected 3 cells, found 1"},
        {"3,tea,1\n4,tea,0\nnine,tea,1\n5,tea,1\n", "400",
         "line 3: column 1 (hour): expected a finite number or nothing, found \\\"nine\\\"; "
         "nothing of this"},
        {"3,tea,1,7", "400", "expected 3 cells, found 4"},
        {"3,tea", "400", "expected 3 cells, found 2"},
        {"3,tea,yes", "400", "line 1: column 3 (bought)"},
        {"3,\"tea,1\n", "400", "line 1: column 2 (item): expected a closing quote"},
        {"hour,item,bought\n3,tea,1\n", "400", "line 1: expected a sample, found the names"},
        {"3,tea,1\n\n3,tea,1\n", "400", "line 2: expected a sample, found an empty line"},
        {"\n\n", "400", "the body is empty"},
        {"{\"hour\":3,\"item\":\"tea\"}", "400", "line 1"},
        {"\x1f\x8b\x08packed", "415", "a packed file"},
        {"\x28\xb5\x2f\xfdpacked", "415", "a packed file"},
        {"\xef\xbb\xbf"
         "5,tea,1\r\n\r\n",
         "200", "{\"stored\":1}"},
    };
    static const sent_body json[] = {
        {"{\"hour\":3,\"item\":\"tea\",\"bought\":1}\n", "200", "{\"stored\":1}"},
        {"{\"hour\":18,\"item\":\"tea\"}", "400", "line 1: column 3 (bought)"},
        {"{\"hour\":3,\n\"item\":\"tea\"}", "400", "line 1: expected a JSON object"},
        {"[{\"hour\":3}]", "400", "line 1: expected a JSON object"},
        {"3,tea,1", "400", "line 1: expected a JSON object"},
    };
    static const sent_body libsvm[] = {{"1 1:1 3:1\n0 2:1", "200", "{\"stored\":2}"},
                                       {"1 1:1\n1 tea\n", "400", "line 2: "}};
    static const sent_body criteo[] = {{"1\t2\t3", "400", "line 1: "}};
    static const struct {
        void (*format)(rt_config *c);
        const sent_body *cases;
        size_t count;
        uint64_t stored;
    } formats[] = {{sell_in_a_table, table, RT_COUNT_OF(table), 3},
                   {sell_in_json, json, RT_COUNT_OF(json), 1},
                   {sell_in_libsvm, libsvm, RT_COUNT_OF(libsvm), 2},
                   {sell_in_criteo, criteo, RT_COUNT_OF(criteo), 0}};
    if (system("command -v curl >/dev/null") != 0)
        test_skip("curl is not installed (tools/setup test)");
    for (size_t i = 0, before = 0; i < RT_COUNT_OF(formats); i++) {
        set_format = formats[i].format;
        rt_live *live = open_live(RT_SOURCE_HTTP, 1 << 30);
        must_answer_all(formats[i].cases, formats[i].count);
        const rt_live_counts counts = rt_live_statistics(live, RT_FLOW_EVENTS);
        assert_int_equal(counts.journal.next - 1 - before, formats[i].stored);
        assert_true(counts.intake.refused >= 1);
        before = counts.journal.next - 1;
        if (i == 0) {
            void *source = open_source();
            must_give(source, "3,tea,1");
            must_give(source, "4,tea,0");
            must_give(source, "5,tea,1"); // without the mark
            must_wait(source);
            rt_source_live.close(source);
        }
        rt_live_close(live);
    }
    set_format = NULL;
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
    must_answer(arguments, "/events", "{\"stored\":30000} 200");
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
    must_answer(body("a\nb\nc"), "/events", "{\"stored\":3} 200");
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
    must_answer("--data-binary d", "/events", "{\"stored\":1} 200");
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

// Reads up to the number, which is the last that comes so far, behind what else is said.
static void must_say(int fd, const char *part, const char *number)
{
    char text[1024] = "";
    size_t length = 0;
    const size_t size = strlen(number);
    for (;;) {
        struct pollfd one = {fd, POLLIN, 0};
        if ((length >= size && strcmp(text + length - size, number) == 0) ||
            poll(&one, 1, 5000) != 1)
            break;
        const ssize_t got = read(fd, text + length, sizeof text - 1 - length);
        if (got <= 0)
            break;
        length += (size_t)got;
        text[length] = '\0';
    }
    if (length < size || strcmp(text + length - size, number) != 0 || !strstr(text, part))
        fail_msg("got \"%s\", want \"%s\" and \"%s\" at its end", text, part, number);
}

static void must_count(int fd, const char *want)
{
    must_say(fd, "", want);
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

// Lines that cannot be read are named, and those around them kept, in their order.
static void tcp_refuses_what_cannot_be_read(void **state)
{
    (void)state;
    set_format = sell_in_a_table;
    rt_live *live = open_live(RT_SOURCE_TCP, 1 << 30);
    void *source = open_source();
    const int sender = test_connect((uint16_t)port);
    send_text(sender, "3,tea,1\nnine,tea,1\n\n4,tea,0\r\n5,tea\n6,tea,1\n");
    must_count(sender, "6\n");
    must_give(source, "3,tea,1");
    must_give(source, "4,tea,0");
    must_give(source, "6,tea,1");
    must_wait(source);
    send_text(sender, "no,tea,1\n7,tea,1\n");
    must_say(sender,
             "refused 7: column 1 (hour): expected a finite number or nothing, found \"no\"\n",
             "8\n");
    must_give(source, "7,tea,1");
    assert_int_equal(rt_live_statistics(live, RT_FLOW_EVENTS).intake.refused, 3);
    close(sender);

    // A page that posts lines to this port.
    const int browser = test_connect((uint16_t)port);
    char byte;
    send_text(browser, "POST /events HTTP/1.1\r\nHost: localhost\r\n\r\n3,tea,1\n");
    assert_true(recv(browser, &byte, 1, 0) <= 0);
    must_wait(source);
    close(browser);
    rt_source_live.close(source);
    rt_live_close(live);
    set_format = NULL;
}

// More that say nothing than there are places, and one that does.
static void tcp_makes_room(void **state)
{
    (void)state;
    enum { COUNT = 200 };
    int silent[COUNT];
    set_format = sell_in_a_table;
    rt_live *live = open_live(RT_SOURCE_TCP, 1 << 30);
    for (int i = 0; i < COUNT; i++)
        silent[i] = test_connect((uint16_t)port);
    const int sender = test_connect((uint16_t)port);
    send_text(sender, "3,tea,1\n");
    must_count(sender, "1\n");
    for (int i = 0; i < COUNT; i++)
        close(silent[i]);
    close(sender);
    rt_live_close(live);
    set_format = NULL;
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
    must_not_open(rt_source_is_built(RT_SOURCE_MQTT) ? "stream.mqtt.ca" : "no \"mqtt\"");
}

TEST_MAIN(TEST(http_answers_once_events_are_kept), TEST(http_says_when_it_is_full),
          TEST(goes_on_where_it_stood), TEST(http_reads_before_it_stores),
          TEST(tcp_counts_what_is_kept), TEST(tcp_refuses_what_cannot_be_read),
          TEST(tcp_makes_room), TEST(an_open_quote_is_one_bad_line), TEST(refuses_to_open))
