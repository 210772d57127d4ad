// The HTTP server: curl, and sockets that behave as no client should.
#include "runtime/http/rt_http.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/test.h"

#define LATER_MAX 64
#define LARGE_BYTES (8u << 20) // more than sockets take

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t came;
    rt_http_request *kept[LATER_MAX];
    uint32_t kept_count, answered_count;
    uint32_t at_once_max; // of those that are kept and not answered
    uint64_t handled;
} service;

// Paths: /echo answers with the method, path, parameter, header and body; /later is kept.
static void handle(void *context, rt_http_request *request)
{
    service *s = context;
    size_t size;
    const char *body = rt_http_body(request, &size);
    pthread_mutex_lock(&s->lock);
    s->handled++;
    if (strcmp(rt_http_path(request), "/later") == 0) {
        assert_true(s->kept_count < LATER_MAX);
        s->kept[s->kept_count++] = request;
        if (s->kept_count - s->answered_count > s->at_once_max)
            s->at_once_max = s->kept_count - s->answered_count;
        pthread_cond_broadcast(&s->came);
        pthread_mutex_unlock(&s->lock);
        return;
    }
    pthread_mutex_unlock(&s->lock);
    if (strcmp(rt_http_path(request), "/listen") == 0) {
        if (!rt_http_listen(request, "text/event-stream"))
            rt_http_refuse(request, 503, "too many listen");
        return;
    }
    if (strcmp(rt_http_path(request), "/large") == 0) {
        static const char large[LARGE_BYTES];
        rt_http_answer(request, 200, "text/plain", large, sizeof large);
        return;
    }
    if (strcmp(rt_http_path(request), "/echo") != 0) {
        rt_http_refuse(request, 404, "no such path \"%s\"", rt_http_path(request));
        return;
    }
    char text[4096];
    const char *parameter = rt_http_parameter(request, "q"), *header = rt_http_header(request, "X");
    const int length =
        snprintf(text, sizeof text, "%s %s q=%s x=%s %zu:%.*s", rt_http_method(request),
                 rt_http_path(request), parameter ? parameter : "-", header ? header : "-", size,
                 (int)(size < 3000 ? size : 3000), body);
    rt_http_answer(request, 200, "text/plain", text, (size_t)length);
}

static service *make_service(void)
{
    static service s;
    pthread_mutex_init(&s.lock, NULL);
    pthread_cond_init(&s.came, NULL);
    return &s;
}

// The server's thread counts: only the lock orders what it wrote before what is read here.
static uint64_t handled_by(service *s)
{
    pthread_mutex_lock(&s->lock);
    const uint64_t handled = s->handled;
    pthread_mutex_unlock(&s->lock);
    return handled;
}

static rt_http_config make_config(service *s)
{
    static rt_config config;
    rt_http_config http;
    assert_int_equal(rt_config_init(&config), RT_OK);
    rt_http_defaults(&config, &http);
    http.name = "test.http";
    http.key = "test.http.listen";
    http.address = "127.0.0.1:0";
    http.handle = handle;
    http.context = s;
    return http;
}

static rt_http *open_server(const rt_http_config *config)
{
    rt_http *http;
    rt_error error = {0};
    if (rt_http_open(config, &http, &error))
        fail_msg("%s", error.text);
    return http;
}

// What curl prints; its exit status in *status_p.
static char *curl(const char *arguments, const char *url, int *status_p)
{
    static char output[8192];
    char command[2048];
    snprintf(command, sizeof command, "curl -s -S --max-time 20 %s '%s' 2>&1", arguments, url);
    if (system("command -v curl >/dev/null") != 0)
        test_skip("curl is not installed (tools/setup test)");
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    const size_t size = fread(output, 1, sizeof output - 1, pipe);
    output[size] = '\0';
    *status_p = pclose(pipe);
    return output;
}

static void must_answer(const char *arguments, const rt_http *http, const char *path,
                        const char *want)
{
    char url[256];
    int status;
    snprintf(url, sizeof url, "%s%s", rt_http_url(http), path);
    const char *got = curl(arguments, url, &status);
    if (strcmp(got, want) != 0)
        fail_msg("curl %s %s: got \"%s\", want \"%s\"", arguments, path, got, want);
}

// A file of the case's folder: its path stays to the end of the case, unlike test_path's.
static const char *kept_path(const char *name)
{
    static char paths[16][256];
    static uint32_t count;
    assert_true(count < RT_COUNT_OF(paths));
    snprintf(paths[count], sizeof paths[count], "%s", test_path(name));
    return paths[count++];
}

static const char *write_file(const char *name, const char *text, mode_t mode)
{
    const char *path = kept_path(name);
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, mode), 0);
    return path;
}

static void must_not_open(const rt_http_config *config, rt_status want, const char *text)
{
    rt_http *http;
    rt_error error = {0};
    const rt_status got = rt_http_open(config, &http, &error);
    if (got != want || !strstr(error.text, text))
        fail_msg("got %s \"%s\", want %s \"%s\"", rt_status_text(got), error.text,
                 rt_status_text(want), text);
}

static void answers_requests(void **state)
{
    (void)state;
    const rt_http_config config = make_config(make_service());
    rt_http *http = open_server(&config);
    must_answer("", http, "/echo?q=a%20b", "GET /echo q=a b x=- 0:");
    must_answer("-H 'X: y' --data-binary abc", http, "/echo", "POST /echo q=- x=y 3:abc");
    must_answer("-H 'Transfer-Encoding: chunked' --data-binary abcdef", http, "/echo",
                "POST /echo q=- x=- 6:abcdef");
    must_answer("-H 'Content-Encoding: identity' --data-binary ab", http, "/echo",
                "POST /echo q=- x=- 2:ab");
    must_answer("-w ' %{http_code}' -H 'Content-Encoding: gzip' --data-binary abc", http, "/echo",
                "{\"error\":\"Content-Encoding: expected a body as it is\"} 415");
    must_answer("-w ' %{http_code}'", http, "/nothing",
                "{\"error\":\"no such path \\\"/nothing\\\"\"} 404");
    assert_true(rt_http_statistics(http).answered == 5);
    rt_http_close(http);
}

static void bounds_bodies(void **state)
{
    (void)state;
    service *s = make_service();
    rt_http_config config = make_config(s);
    config.body_bytes_max = 1000;
    rt_http *http = open_server(&config);
    char body[1200];
    memset(body, 'x', sizeof body);
    FILE *file = fopen(test_path("body"), "w");
    fwrite(body, 1, 1000, file);
    fclose(file);
    char arguments[1200];
    snprintf(arguments, sizeof arguments, "-o /dev/null -w %%{http_code} --data-binary @%s",
             test_path("body"));
    must_answer(arguments, http, "/echo", "200");
    file = fopen(test_path("body"), "a");
    fwrite(body, 1, 1, file);
    fclose(file);
    const uint64_t handled = handled_by(s);
    must_answer(arguments, http, "/echo", "413");
    snprintf(arguments, sizeof arguments,
             "-o /dev/null -w %%{http_code} -H 'Transfer-Encoding: chunked' --data-binary @%s",
             test_path("body"));
    must_answer(arguments, http, "/echo", "413");
    assert_int_equal(handled_by(s), handled); // neither came through
    rt_http_close(http);

    config.bodies_bytes_max = 500;
    http = open_server(&config);
    must_answer("-o /dev/null -w %{http_code} --data-binary abc", http, "/echo", "200");
    file = fopen(test_path("body"), "w");
    fwrite(body, 1, 501, file);
    fclose(file);
    must_answer(arguments, http, "/echo", "503");
    assert_int_equal(rt_http_statistics(http).refused, 1);
    rt_http_close(http);
}

// ---- answers that come later -----------------------------------------------------------------

typedef struct {
    const rt_http *http;
    char got[256];
} client;

static void *ask_later(void *context)
{
    client *c = context;
    char command[512];
    snprintf(command, sizeof command, "curl -s --max-time 20 --data-binary x '%s/later'",
             rt_http_url(c->http));
    FILE *pipe = popen(command, "r");
    const size_t size = pipe ? fread(c->got, 1, sizeof c->got - 1, pipe) : 0;
    c->got[size] = '\0';
    if (pipe)
        pclose(pipe);
    return NULL;
}

static void answers_later(void **state)
{
    (void)state;
    enum { COUNT = 8 };
    service *s = make_service();
    const rt_http_config config = make_config(s);
    rt_http *http = open_server(&config);
    pthread_t threads[COUNT];
    client clients[COUNT];
    must_answer("", http, "/echo", "GET /echo q=- x=- 0:"); // curl is there
    for (int i = 0; i < COUNT; i++) {
        clients[i].http = http;
        assert_int_equal(pthread_create(&threads[i], NULL, ask_later, &clients[i]), 0);
    }
    pthread_mutex_lock(&s->lock);
    while (s->kept_count < COUNT)
        pthread_cond_wait(&s->came, &s->lock);
    pthread_mutex_unlock(&s->lock);
    must_answer("", http, "/echo", "GET /echo q=- x=- 0:"); // others are served meanwhile
    rt_http_quiet(http);
    for (int i = COUNT; i-- > 0;)
        rt_http_answer(s->kept[i], 200, "text/plain", "late", 4);
    for (int i = 0; i < COUNT; i++) {
        pthread_join(threads[i], NULL);
        assert_string_equal(clients[i].got, "late");
    }
    must_answer("-w ' %{http_code}'", http, "/echo",
                "{\"error\":\"this server is about to end\"} 503");
    rt_http_close(http);
}

// ---- sockets ---------------------------------------------------------------------------------

static int connect_to(const rt_http *http)
{
    const struct sockaddr_in place = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        .sin_port = htons((uint16_t)atoi(strrchr(rt_http_url(http), ':') + 1))};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&place, sizeof place), 0);
    return fd;
}

static void send_text(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

// Until the other side closes, or no more comes for so long.
static size_t read_all(int fd, char *text, size_t size, int wait_ms, bool *closed_p)
{
    size_t length = 0;
    struct pollfd wanted = {fd, POLLIN, 0};
    *closed_p = false;
    while (length < size - 1 && poll(&wanted, 1, wait_ms) == 1) {
        const ssize_t got = read(fd, text + length, size - 1 - length);
        *closed_p = got <= 0;
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    text[length] = '\0';
    return length;
}

static void refuses_bad_requests(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"nonsense\r\n\r\n", ""},
        {"GET /echo HTTP/9.9\r\nHost: localhost\r\n\r\n", "HTTP/1"},
        {"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: zwei\r\n\r\n", "HTTP/1.1 400"},
        {"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
         "HTTP/1.1 413"}};
    service *s = make_service();
    const rt_http_config config = make_config(s);
    rt_http *http = open_server(&config);
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        char text[2048];
        bool is_closed;
        const int fd = connect_to(http);
        send_text(fd, cases[i].text);
        read_all(fd, text, sizeof text, 5000, &is_closed);
        if (strncmp(text, cases[i].want, strlen(cases[i].want)) != 0 || !is_closed)
            fail_msg("case %zu: got \"%s\"", i, text);
        close(fd);
    }
    char *head = malloc(100000);
    bool is_closed;
    memset(head, 'a', 99999);
    memcpy(head, "GET /", 5);
    head[99999] = '\0';
    const int fd = connect_to(http);
    (void)!send(fd, head, 99999, MSG_NOSIGNAL);
    read_all(fd, head, 100000, 5000, &is_closed);
    assert_true(is_closed);
    close(fd);
    free(head);
    must_answer("", http, "/echo", "GET /echo q=- x=- 0:");
    rt_http_close(http);
}

// Of each what the answer begins with; nothing of it reaches the handler.
static void refuses_unclear_bodies(void **state)
{
    (void)state;
    static const char *const heads[] = {
        "Content-Length: 3\r\nContent-Length: 3\r\n",
        "Content-Length: 3\r\ncontent-length: 30\r\n",
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 3, 3\r\n",
        "Content-Length: +3\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x3\r\n",
        "Content-Length: 3 3\r\n",
        "Content-Length:\r\n",
        "Content-Length : 3\r\n",
        "Content-Length: 99999999999999999999999999\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Host: localhost\r\nContent-Length: 3\r\n"};
    service *s = make_service();
    const rt_http_config config = make_config(s);
    rt_http *http = open_server(&config);
    const uint64_t handled = handled_by(s);
    for (size_t i = 0; i < RT_COUNT_OF(heads); i++) {
        char text[4096];
        bool is_closed;
        const int fd = connect_to(http);
        snprintf(text, sizeof text, "POST /echo HTTP/1.1\r\nHost: localhost\r\n%s\r\n", heads[i]);
        send_text(fd, text);
        send_text(fd, "3\r\nabc\r\n0\r\n\r\nGET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n");
        read_all(fd, text, sizeof text, 5000, &is_closed);
        if (!strstr(text, "HTTP/1.1 400") && !strstr(text, "HTTP/1.1 413") && *text)
            fail_msg("case %zu: got \"%s\"", i, text);
        if (strstr(text, "HTTP/1.1 200") || !is_closed)
            fail_msg("case %zu: went on: \"%s\"", i, text);
        close(fd);
    }
    assert_true(handled_by(s) == handled);
    must_answer("--http1.0 -H Host:", http, "/echo", "GET /echo q=- x=- 0:");
    rt_http_close(http);
}

// What a browser says of the page that sends a request, and what is answered.
static void asks_whose_page_it_is(void **state)
{
    (void)state;
    static const char own[] = "200", foreign[] = "403";
    static const struct {
        const char *headers, *want;
    } cases[] = {
        {"-H 'Host: 192.0.2.1:7080'", own},
        {"-H 'Host: [2001:db8::1]:7080'", own},
        {"-H 'Host: LOCALHOST:1'", own},
        {"-H 'Host: localhost.'", own},
        {"-H 'Host: listed.example'", own},
        {"-H 'Host: listed.example:99'", own},
        {"-H 'Host: ported.example:99'", own},
        {"-H 'Host: ported.example:98'", foreign},
        {"-H 'Host: evil.example'", foreign},
        {"-H 'Host: localhost.evil.example'", foreign},
        {"-H 'Host: 127.0.0.1.evil.example'", foreign},
        {"-H 'Host: 127.0.0.1@evil.example'", foreign},
        {"-H 'Host: localhost:80:evil'", foreign},
        {"-H 'Host: [::1'", foreign},
        {"-H 'Origin: https://evil.example'", foreign},
        {"-H 'Origin: null'", foreign},
        {"-H 'Origin;'", foreign},
        {"-H 'Origin: http://127.0.0.1'", foreign}, // of another port
        {"-H 'Host: localhost:5' -H 'Origin: http://localhost:5'", own},
        {"-H 'Host: evil.example' -H 'Origin: http://evil.example'", foreign},
        {"-H 'Origin: https://listed.example'", own},
        {"-H 'Origin: https://listed.example.evil'", foreign},
        {"-H 'Origin: https://listed.example' -H 'Sec-Fetch-Site: cross-site'", own},
        {"-H 'Sec-Fetch-Site: cross-site'", foreign},
        {"-H 'Sec-Fetch-Site: same-site'", foreign},
        {"-H 'Sec-Fetch-Site: same-origin'", own},
        {"-H 'Sec-Fetch-Site: none'", own},
        {"-H 'Sec-Fetch-Site: cross-site' -H 'Sec-Fetch-Mode: navigate' "
         "-H 'Sec-Fetch-Dest: document'",
         own},
        {"-H 'Sec-Fetch-Site: cross-site' -H 'Sec-Fetch-Mode: navigate' "
         "-H 'Sec-Fetch-Dest: iframe'",
         foreign},
        {"-d x -H 'Sec-Fetch-Site: cross-site' -H 'Sec-Fetch-Mode: navigate' "
         "-H 'Sec-Fetch-Dest: document'",
         foreign},
        {"-d x -H 'Content-Type: text/plain' -H 'Origin: https://evil.example'", foreign},
        {"-X OPTIONS -H 'Origin: https://evil.example'", foreign},
        {"-X OPTIONS -H 'Origin: https://listed.example'", "204"},
    };
    service *s = make_service();
    rt_http_config config = make_config(s);
    config.hosts = "listed.example,ported.example:99";
    rt_http *http = open_server(&config);
    char arguments[512];
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        const uint64_t handled = handled_by(s);
        snprintf(arguments, sizeof arguments, "-o /dev/null -w %%{http_code} %s", cases[i].headers);
        must_answer(arguments, http, "/echo", cases[i].want);
        assert_true(handled_by(s) == handled + (cases[i].want == own));
    }
    char name[256] = "";
    assert_int_equal(gethostname(name, sizeof name - 1), 0);
    snprintf(arguments, sizeof arguments, "-o /dev/null -w %%{http_code} -H 'Host: %s:7080'", name);
    must_answer(arguments, http, "/echo", own);
    rt_http_close(http);
    config.hosts = "one,,two";
    must_not_open(&config, RT_CONFIG, "security.hosts");
    config.hosts = "http://one";
    must_not_open(&config, RT_CONFIG, "security.hosts");
    config.hosts = "";
    config.token = write_file("token", "0123456789abcdef", 0600);
    http = open_server(&config); // whoever shows it need not call the server by a name of its own
    must_answer("-o /dev/null -w %{http_code} -H 'Host: any.example' "
                "-H 'Authorization: Bearer 0123456789abcdef'",
                http, "/echo", own);
    must_answer("-o /dev/null -w %{http_code} -H 'Host: any.example'", http, "/echo", foreign);
    must_answer("-o /dev/null -w %{http_code} -H 'Origin: http://any.example' "
                "-H 'Authorization: Bearer 0123456789abcdef'",
                http, "/echo", foreign);
    rt_http_close(http);
}

static void gives_up_who_is_slow(void **state)
{
    (void)state;
    rt_http_config config = make_config(make_service());
    config.head_s = config.idle_s = 1;
    config.request_s = 2;
    rt_http *http = open_server(&config);
    char text[1024];
    bool is_closed;
    const int silent = connect_to(http), slow = connect_to(http), head = connect_to(http);
    bool is_slow_there = true, is_head_there = true;
    send_text(head, "GET /echo HTTP/1.1\r\nX: ");
    send_text(silent, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc");
    send_text(slow, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n");
    for (int i = 0; i < 80 && (is_slow_there || is_head_there); i++) { // never idle for a second
        is_slow_there = is_slow_there && send(slow, "x", 1, MSG_NOSIGNAL) == 1;
        is_head_there = is_head_there && send(head, "x", 1, MSG_NOSIGNAL) == 1;
        usleep(100000);
    }
    assert_false(is_slow_there);
    assert_false(is_head_there);
    close(head);
    read_all(slow, text, sizeof text, 5000, &is_closed);
    assert_true(is_closed);
    read_all(silent, text, sizeof text, 5000, &is_closed);
    assert_true(is_closed);
    close(silent);
    close(slow);
    rt_http_close(http);
}

// What comes now and then is not silence, and is too slow.
static void gives_up_a_slow_body(void **state)
{
    (void)state;
    rt_http_config config = make_config(make_service());
    config.body_s = 0.5;
    rt_http *http = open_server(&config);
    const int slow = connect_to(http);
    bool is_there = true;
    send_text(slow, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n");
    for (int i = 0; i < 200 && is_there; i++) { // 20 s; without a rate it may take 120
        is_there = send(slow, "x", 1, MSG_NOSIGNAL) == 1;
        usleep(100000);
    }
    assert_false(is_there);
    close(slow);
    must_answer("", http, "/echo", "GET /echo q=- x=- 0:");
    rt_http_close(http);
}

// Many more than there are places, that say nothing, begin a head or begin a body: whoever comes
// with a request is answered at once.
static void makes_room(void **state)
{
    (void)state;
    enum { COUNT = 60, PLACES = 12 };
    static const char *const beginnings[] = {
        "", "\x16\x03\x01", "GET /echo HTTP/1.1\r\nX: ",
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\nabc",
        "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"}; // and do not read
    rt_http_config config = make_config(make_service());
    config.connections_max = PLACES;
    for (size_t k = 0; k < RT_COUNT_OF(beginnings); k++) {
        rt_http *http = open_server(&config);
        int fds[COUNT];
        for (int i = 0; i < COUNT; i++) {
            fds[i] = connect_to(http);
            send_text(fds[i], beginnings[k]);
        }
        for (int i = 0; i < 3; i++)
            must_answer("--max-time 15", http, "/echo", "GET /echo q=- x=- 0:");
        for (int i = 0; i < COUNT; i++)
            close(fds[i]);
        rt_http_close(http);
    }
}

// Who says that nothing more comes may find the connection ended (libmicrohttpd does not wait), who
// is gone is no trouble, and neither is in the way of others.
static void half_closed_and_gone(void **state)
{
    (void)state;
    enum { COUNT = 2 };
    service *s = make_service();
    const rt_http_config config = make_config(s);
    rt_http *http = open_server(&config);
    char text[1024];
    bool is_closed;
    int fds[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        fds[i] = connect_to(http);
        send_text(fds[i], "POST /later HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx");
        assert_int_equal(shutdown(fds[i], SHUT_WR), 0);
        pthread_mutex_lock(&s->lock);
        while (s->kept_count <= i)
            pthread_cond_wait(&s->came, &s->lock);
        pthread_mutex_unlock(&s->lock);
    }
    close(fds[1]);
    rt_http_answer(s->kept[1], 200, "text/plain", "nobody", 6);
    rt_http_answer(s->kept[0], 200, "text/plain", "late", 4);
    const size_t size = read_all(fds[0], text, sizeof text, 5000, &is_closed);
    if (!is_closed || (size > 0 && !strstr(text, "\r\n\r\nlate")))
        fail_msg("got \"%s\"", text);
    close(fds[0]);
    must_answer("", http, "/echo", "GET /echo q=- x=- 0:");
    rt_http_close(http);
}

// The others wait to be accepted: each answer lets one in.
static void bounds_connections(void **state)
{
    (void)state;
    enum { COUNT = 12, BOUND = 4 };
    service *s = make_service();
    rt_http_config config = make_config(s);
    config.connections_max = BOUND;
    rt_http *http = open_server(&config);
    int fds[COUNT];
    for (int i = 0; i < COUNT; i++) {
        fds[i] = connect_to(http);
        send_text(fds[i], "GET /later HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        pthread_mutex_lock(&s->lock);
        while (s->kept_count < rt_min_u64(i + BOUND, COUNT))
            pthread_cond_wait(&s->came, &s->lock);
        rt_http_request *request = s->kept[i];
        s->answered_count++;
        pthread_mutex_unlock(&s->lock);
        rt_http_answer(request, 200, "text/plain", "late", 4);
    }
    for (int i = 0; i < COUNT; i++)
        close(fds[i]);
    must_answer("", http, "/echo", "GET /echo q=- x=- 0:");
    rt_http_close(http);
    assert_int_equal(s->at_once_max, BOUND);
}

// ---- security --------------------------------------------------------------------------------

static void asks_for_the_token(void **state)
{
    (void)state;
    service *s = make_service();
    rt_http_config config = make_config(s);
    config.token = write_file("token", "0123456789abcdef\n", 0600);
    rt_http *http = open_server(&config);
    static const char refused[] =
        "{\"error\":\"expected the token: Authorization: Bearer TOKEN\"} 401";
    must_answer("-w ' %{http_code}'", http, "/echo", refused);
    must_answer("-w ' %{http_code}' -H 'Authorization: Bearer 0123456789abcdeF'", http, "/echo",
                refused);
    must_answer("-w ' %{http_code}' -H 'Authorization: Bearer '", http, "/echo", refused);
    must_answer("-w ' %{http_code}' -H 'Authorization: Bearer 0123456789abcdef0123456789abcdef'",
                http, "/echo", refused);
    must_answer("-w ' %{http_code}' -H 'Authorization: Basic 0123456789abcdef'", http, "/echo",
                refused);
    assert_int_equal(handled_by(s), 0);
    must_answer("-H 'Authorization: Bearer 0123456789abcdef'", http, "/echo",
                "GET /echo q=- x=- 0:");
    rt_http_close(http);
}

static void speaks_tls(void **state)
{
    (void)state;
    rt_http_config config = make_config(make_service());
    char command[4096], arguments[2048], key[1024];
    snprintf(key, sizeof key, "%s", test_path("key.pem"));
    if (system("command -v openssl >/dev/null") != 0)
        test_skip("openssl is not installed (tools/setup test)");
    snprintf(
        command, sizeof command,
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 -keyout %s -out %s 2>/dev/null",
        key, test_path("cert.pem"));
    assert_int_equal(system(command), 0);
    assert_int_equal(chmod(key, 0600), 0);
    config.certificate_key = key;
    config.certificate = kept_path("cert.pem");
    config.token = write_file("token", "0123456789abcdef", 0600);
    rt_http *http = open_server(&config);
    assert_memory_equal(rt_http_url(http), "https://", 8);
    snprintf(arguments, sizeof arguments,
             "--cacert %s -H 'Authorization: Bearer 0123456789abcdef' --data-binary abc",
             config.certificate);
    must_answer(arguments, http, "/echo", "POST /echo q=- x=- 3:abc");
    int status; // without TLS there is nothing
    char url[128];
    snprintf(url, sizeof url, "http%s/echo", rt_http_url(http) + strlen("https"));
    curl("", url, &status);
    assert_int_not_equal(status, 0);
    rt_http_close(http);
}

static void refuses_to_open(void **state)
{
    (void)state;
    rt_http_config config = make_config(make_service());
    config.address = "0.0.0.0:0";
    must_not_open(&config, RT_CONFIG, "can be reached from other machines");
    config.token = write_file("token", "0123456789abcdef", 0600);
    must_not_open(&config, RT_CONFIG, "can be reached from other machines");
    config.insecure = true;
    rt_http_close(open_server(&config));
    config.insecure = false;
    config.address = "127.0.0.1:0";
    config.token = write_file("token2", "0123456789abcdef", 0644);
    must_not_open(&config, RT_CONFIG, "others can read it");
    config.token = write_file("token3", "short", 0600);
    must_not_open(&config, RT_CONFIG, "at least 16 characters");
    config.token = write_file("token4", "two words-0123456789", 0600);
    must_not_open(&config, RT_CONFIG, "expected one word");
    config.token = "/nowhere/token";
    must_not_open(&config, RT_IO, "cannot open /nowhere/token");
    config.token = "";
    config.certificate = write_file("cert.pem", "no certificate", 0644);
    must_not_open(&config, RT_CONFIG, "security.certificate_key is needed");
    config.certificate_key = write_file("key.pem", "no key", 0600);
    must_not_open(&config, RT_CONFIG, "no pair");
    config.certificate = config.certificate_key = "";
    config.address = "nonsense";
    must_not_open(&config, RT_CONFIG, "expected \"HOST:PORT\"");
    config.address = "127.0.0.1:0";
    rt_http *first = open_server(&config);
    config.address = rt_http_url(first) + strlen("http://");
    must_not_open(&config, RT_IO, "address already in use");
    rt_http_close(first);
}

// ---- listeners -------------------------------------------------------------------------------

// Until it holds a text; false: it did not come within five seconds.
static bool read_until(int fd, char *text, size_t size, const char *part)
{
    size_t length = 0;
    struct pollfd wanted = {fd, POLLIN, 0};
    while (length < size - 1 && poll(&wanted, 1, 5000) == 1) {
        const ssize_t got = read(fd, text + length, size - 1 - length);
        if (got <= 0)
            break;
        length += (size_t)got;
        text[length] = '\0';
        if (strstr(text, part))
            return true;
    }
    return false;
}

static void publish(rt_http *http, const char *text)
{
    assert_int_equal(rt_http_publish(http, text, strlen(text)), RT_OK);
}

static void await_listeners(rt_http *http, uint32_t count)
{
    for (int i = 0; i < 500 && rt_http_listeners(http) != count; i++)
        usleep(10000);
    assert_int_equal(rt_http_listeners(http), count);
}

static void brings_news(void **state)
{
    (void)state;
    char text[4096];
    bool is_closed;
    rt_http_config config = make_config(make_service());
    config.listeners_max = 2;
    rt_http *http = open_server(&config);
    publish(http, "nobody heard this\n");
    publish(http, "<first>\n");
    const int one = connect_to(http), other = connect_to(http), late = connect_to(http);
    send_text(one, "GET /listen HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_true(read_until(one, text, sizeof text, "<first>"));
    assert_non_null(strstr(text, "text/event-stream"));
    assert_null(strstr(text, "nobody"));
    send_text(other, "GET /listen HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_true(read_until(other, text, sizeof text, "<first>"));
    send_text(late, "GET /listen HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_true(read_until(late, text, sizeof text, "too many listen"));
    publish(http, "<second>\n");
    assert_true(read_until(one, text, sizeof text, "<second>"));
    assert_true(read_until(other, text, sizeof text, "<second>"));
    close(one);
    for (int i = 0; i < 3; i++) // who has gone is found by what is sent
        publish(http, "<third>\n"), usleep(50000);
    await_listeners(http, 1);
    must_answer("", http, "/echo", "GET /echo q=- x=- 0:");
    rt_http_close(http);
    read_all(other, text, sizeof text, 5000, &is_closed);
    assert_true(is_closed);
    close(other);
    close(late);
}

// One that does not read holds up nobody, and gets the newest when it does.
static void leaves_out_for_the_slow(void **state)
{
    (void)state;
    enum { SIZE = 4 << 20, ROUNDS = 20 };
    char *text = malloc(SIZE + 64), *got = malloc((ROUNDS + 1) * (size_t)SIZE);
    bool is_closed;
    rt_http_config config = make_config(make_service());
    config.listeners_max = 2;
    rt_http *http = open_server(&config);
    const int slow = connect_to(http);
    send_text(slow, "GET /listen HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await_listeners(http, 1);
    memset(text, 'x', SIZE);
    for (int i = 1; i <= ROUNDS; i++) {
        snprintf(text + SIZE, 64, "<round %d>", i);
        publish(http, text);
        usleep(20000);
    }
    assert_true(read_until(slow, got, (ROUNDS + 1) * (size_t)SIZE, "<round 20>"));
    assert_null(strstr(got, "<round 10>"));
    rt_http_close(http);
    read_all(slow, text, SIZE, 5000, &is_closed);
    close(slow);
    free(text);
    free(got);
}

// A browser asks for name and password; nothing else is taken where it is not wanted.
static void takes_a_password(void **state)
{
    (void)state;
    rt_http_config config = make_config(make_service());
    config.token = write_file("token", "0123456789abcdef", 0600);
    rt_http *http = open_server(&config);
    must_answer("-o /dev/null -w %{http_code} -u me:0123456789abcdef", http, "/echo", "401");
    rt_http_close(http);
    config.takes_password = true;
    http = open_server(&config);
    must_answer("-u me:0123456789abcdef", http, "/echo", "GET /echo q=- x=- 0:");
    must_answer("-H 'Authorization: Bearer 0123456789abcdef'", http, "/echo",
                "GET /echo q=- x=- 0:");
    must_answer("-o /dev/null -w %{http_code} -u me:0123456789abcdeX", http, "/echo", "401");
    must_answer("-o /dev/null -w %{http_code} -u 0123456789abcdef:", http, "/echo", "401");
    must_answer("-o /dev/null -w %{http_code} -H 'Authorization: Basic =%%'", http, "/echo", "401");
    must_answer("-o /dev/null -w %{http_code}", http, "/echo", "401");
    rt_http_close(http);
}

TEST_MAIN(TEST(brings_news), TEST(leaves_out_for_the_slow), TEST(takes_a_password),
          TEST(answers_requests), TEST(bounds_bodies), TEST(answers_later),
          TEST(refuses_bad_requests), TEST(refuses_unclear_bodies), TEST(asks_whose_page_it_is),
          TEST(gives_up_who_is_slow), TEST(gives_up_a_slow_body), TEST(makes_room),
          TEST(half_closed_and_gone), TEST(bounds_connections), TEST(asks_for_the_token),
          TEST(speaks_tls), TEST(refuses_to_open))
