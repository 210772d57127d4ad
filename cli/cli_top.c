// `lanyard top`: how a run stands, from its folder or from its coordinator, in a terminal.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/cli_top.h"
#include "runtime/config/rt_address.h"
#include "runtime/http/rt_http_secrets.h"
#include "runtime/rt_log.h"
#include "runtime/watch/rt_view_tail.h"
#include "runtime/watch/rt_view_write.h"

#define EVERY_MS 1000
#define ANSWER_MS 5000
#define ANSWER_BYTES_MAX (4u << 20)
#define DEFAULT_ADDRESS "127.0.0.1:7070"
#define HOME "\033[H"
#define REST_CLEAR "\033[J"
#define LINE_CLEAR "\033[K\n"

typedef struct {
    const char *source, *other;       // other: a second address, or NULL
    char given[2 * RT_NAME_MAX + 32]; // where addresses are
    bool is_folder;
    char *token; // NULL: none
    rt_config defaults;
    rt_view view;
    rt_view_tail tail;
    rt_alerts alerts;
} top;

static volatile sig_atomic_t ends;

static void note_end(int number)
{
    (void)number;
    ends = 1;
}

// ---- a run's folder --------------------------------------------------------------------------

static rt_status open_folder(top *t, rt_error *error)
{
    rt_status status = rt_view_init(&t->view, RT_VIEW_POINTS);
    if (status)
        return rt_fail(error, status, "out of memory");
    rt_alerts_init(&t->defaults.alerts, t->source, &t->alerts);
    return rt_view_tail_open(t->source, &t->tail, error);
}

static rt_status read_folder(top *t, rt_json *json, rt_error *error)
{
    (void)rt_view_tail_read(&t->tail, UINT64_MAX, &t->view);
    if (!(t->view.iterations > 0))
        return rt_fail(error, RT_DATA, "%s/metrics.jsonl: no iteration is in it", t->source);
    if (isnan(t->view.offset_s)) // of a version without such records
        t->view.offset_s = rt_view_tail_unix_s(&t->tail) - t->view.time_s;
    rt_alerts_step(&t->alerts, &t->view, rt_unix_s());
    rt_view_write_json(&t->view, &t->alerts, rt_unix_s(), json);
    return RT_OK;
}

// ---- a coordinator ---------------------------------------------------------------------------

static bool is_ready(int fd, short events)
{
    struct pollfd one = {.fd = fd, .events = events};
    return poll(&one, 1, ANSWER_MS) == 1;
}

static rt_status connect_to(const char *address, int *socket_p, rt_error *error)
{
    char text[RT_NAME_MAX + 16];
    struct sockaddr_storage place;
    socklen_t length;
    snprintf(text, sizeof text, "tcp://%s", address);
    if (!rt_address_resolve(text, &place, &length))
        return rt_fail(error, RT_IO, "%s: neither the folder of a run nor HOST:PORT", address);
    *socket_p = rt_address_connect(text, ANSWER_MS);
    if (*socket_p < 0)
        return rt_fail(error, RT_IO, "%s: %s: does a run listen there (watch.listen)?", address,
                       strerror(errno));
    return RT_OK;
}

// The whole answer, as text.
static rt_status read_answer(const char *address, int fd, char **answer_p, rt_error *error)
{
    size_t size = 0;
    ssize_t got = 1;
    char *answer = rt_alloc(ANSWER_BYTES_MAX, 1);
    if (!answer)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    while (got > 0 && size + 1 < ANSWER_BYTES_MAX) {
        if (!is_ready(fd, POLLIN)) {
            rt_free(answer);
            return rt_fail(error, RT_TIMEOUT, "%s has not answered for %d s", address,
                           ANSWER_MS / 1000);
        }
        got = read(fd, answer + size, ANSWER_BYTES_MAX - 1 - size);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            got = 1;
        else if (got > 0)
            size += (size_t)got;
    }
    answer[size] = '\0';
    *answer_p = answer;
    return RT_OK;
}

#define REQUEST "GET /status HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n"

static rt_status send_request(const top *t, int fd, rt_error *error)
{
    char request[1024];
    int size;
    if (t->token)
        size = snprintf(request, sizeof request, REQUEST "Authorization: Bearer %s\r\n\r\n",
                        t->source, t->token);
    else
        size = snprintf(request, sizeof request, REQUEST "\r\n", t->source);
    if (size >= (int)sizeof request || write(fd, request, (size_t)size) != size)
        return rt_fail(error, RT_IO, "%s: the question could not be sent", t->source);
    return RT_OK;
}

static rt_status ask(const top *t, char **answer_p, rt_error *error)
{
    int fd = -1;
    rt_status status = connect_to(t->source, &fd, error);
    if (status)
        return status;
    status = send_request(t, fd, error);
    if (!status)
        status = read_answer(t->source, fd, answer_p, error);
    close(fd);
    return status;
}

// At the address that answered last, then at the other one: who leads may have changed.
static rt_status ask_both(top *t, char **answer_p, rt_error *error)
{
    rt_error why = {0};
    rt_status status = ask(t, answer_p, error);
    if (!status || !t->other)
        return status;
    const char *first = t->source;
    t->source = t->other;
    t->other = first;
    if (ask(t, answer_p, &why)) {
        const rt_error before = *error;
        return rt_fail(error, before.status, "%.200s; %.200s", before.text, why.text);
    }
    *error = (rt_error){0};
    return RT_OK;
}

static rt_status read_address(top *t, char **json_p, rt_error *error)
{
    char *answer = NULL;
    unsigned code = 0;
    rt_status status = ask_both(t, &answer, error);
    if (status)
        return status;
    const char *body = strstr(answer, "\r\n\r\n");
    const bool is_http = sscanf(answer, "HTTP/%*s %u", &code) == 1 && body;
    if (!is_http)
        status = rt_fail(error, RT_WIRE, "%s: expected HTTP, found \"%.20s\"", t->source, answer);
    else if (code == 401)
        status = rt_fail(error, RT_REFUSED, "%s asks for a token: --token FILE", t->source);
    else if (code != 200)
        status = rt_fail(error, RT_WIRE, "%s answers %u: is a run there (watch.listen)?", t->source,
                         code);
    else
        memmove(answer, body + 4, strlen(body + 4) + 1);
    if (status)
        rt_free(answer);
    else
        *json_p = answer;
    return status;
}

// ---- showing ---------------------------------------------------------------------------------

static rt_status copy_text(rt_json *json, char **copy_p, rt_error *error)
{
    const char *text = rt_json_text(json, NULL);
    char *copy = NULL;
    if (text)
        copy = rt_alloc(strlen(text) + 1, 1);
    if (!copy)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    strcpy(copy, text);
    *copy_p = copy;
    return RT_OK;
}

// The caller's (rt_free).
static rt_status read_status(top *t, char **json_p, rt_error *error)
{
    rt_json json;
    if (!t->is_folder)
        return read_address(t, json_p, error);
    rt_json_init(&json, 0);
    rt_status status = read_folder(t, &json, error);
    char *copy = NULL;
    if (!status)
        status = copy_text(&json, &copy, error);
    rt_json_fini(&json);
    *json_p = copy;
    return status;
}

static uint32_t terminal_rows(void)
{
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0)
        return 24;
    return size.ws_row - 1u;
}

// Every line clears what stood behind it.
static void print_screen(const rt_page *text)
{
    fputs(HOME, stdout);
    for (const char *at = text->text; at && *at; at++) {
        if (*at == '\n')
            fputs(LINE_CLEAR, stdout);
        else
            putchar(*at);
    }
    fputs(REST_CLEAR, stdout);
}

static rt_status draw(const top *t, const char *json, bool is_screen, rt_page *text,
                      rt_error *error)
{
    uint32_t rows = UINT32_MAX;
    if (is_screen)
        rows = terminal_rows();
    cJSON *parsed = cJSON_Parse(json);
    if (!parsed)
        return rt_fail(error, RT_DATA, "%s: its answer is not JSON", t->source);
    cli_top_draw(parsed, t->source, rows, text);
    cJSON_Delete(parsed);
    if (text->failed)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return RT_OK;
}

static rt_status show_text(const top *t, const char *json, bool is_screen, rt_error *error)
{
    rt_page text = {0};
    const rt_status status = draw(t, json, is_screen, &text, error);
    if (!status && is_screen)
        print_screen(&text);
    else if (!status && text.text)
        fputs(text.text, stdout);
    rt_page_fini(&text);
    return status;
}

static rt_status show(top *t, bool as_json, bool is_screen, rt_error *error)
{
    char *json = NULL;
    rt_status status = read_status(t, &json, error);
    if (status)
        return status;
    if (as_json)
        printf("%s\n", json);
    else
        status = show_text(t, json, is_screen, error);
    rt_free(json);
    fflush(stdout);
    return status;
}

// ---- keys ------------------------------------------------------------------------------------

// Keys come one by one, unseen, where standard input is the terminal that this process may use.
// False: they do not.
static bool take_keys(struct termios *before)
{
    struct termios now;
    if (tcgetattr(STDIN_FILENO, before) != 0 || tcgetpgrp(STDIN_FILENO) != getpgrp())
        return false;
    now = *before;
    now.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    now.c_cc[VMIN] = 0;
    now.c_cc[VTIME] = 0;
    return tcsetattr(STDIN_FILENO, TCSANOW, &now) == 0;
}

// Until the next look; sooner with `q`, which ends it as an interrupt does.
static void pause_for_keys(bool has_keys)
{
    struct pollfd in = {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN};
    const uint64_t end_ns = rt_now_ns() + EVERY_MS * UINT64_C(1000000);
    for (uint64_t now = rt_now_ns(); now < end_ns && !ends; now = rt_now_ns()) {
        char key = '\0';
        if (poll(&in, 1, (int)((end_ns - now) / 1000000) + 1) == 1 &&
            read(STDIN_FILENO, &key, 1) <= 0)
            in.fd = -1; // it has ended: nothing more comes
        if (key == 'q' || key == 'Q')
            ends = 1;
    }
}

// Until it is interrupted. A coordinator that does not answer may start again.
static rt_status show_on(top *t, rt_error *error)
{
    struct termios before;
    struct sigaction action = {.sa_handler = note_end};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    rt_status status = show(t, false, true, error);
    if (status)
        return status;
    const bool has_keys = take_keys(&before);
    while (!ends && !ferror(stdout)) {
        rt_error why = {0};
        pause_for_keys(has_keys);
        if (!ends && show(t, false, true, &why))
            printf(HOME "%.79s" LINE_CLEAR, why.text);
        fflush(stdout);
    }
    if (has_keys)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
    printf("\n");
    return RT_OK;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

// Of "http://HOST:PORT" what follows the scheme.
static const char *without_scheme(const char *address)
{
    if (strncmp(address, "http://", 7) == 0)
        return address + 7;
    return address;
}

// A folder, HOST:PORT, or that with "http://" before it; two addresses with a comma between them.
static rt_status choose_source(top *t, rt_error *error)
{
    if (!t->source)
        t->source = access("metrics.jsonl", R_OK) == 0 ? "." : DEFAULT_ADDRESS;
    t->is_folder = is_folder(t->source);
    if (t->is_folder)
        return open_folder(t, error);
    if (strncmp(t->source, "https://", 8) == 0)
        return rt_fail(error, RT_CONFIG,
                       "%s: top speaks no TLS; run it on that box, or give it the folder",
                       t->source);
    if ((size_t)snprintf(t->given, sizeof t->given, "%s", t->source) >= sizeof t->given)
        return rt_fail(error, RT_CONFIG, "%.40s...: longer than two addresses are", t->source);
    char *comma = strchr(t->given, ',');
    if (comma)
        *comma = '\0';
    t->source = without_scheme(t->given);
    t->other = NULL;
    if (comma)
        t->other = without_scheme(comma + 1);
    return RT_OK;
}

static rt_status run(top *t, bool once, bool as_json, const char *token, rt_error *error)
{
    rt_status status = rt_config_init(&t->defaults);
    if (status)
        return rt_fail(error, status, "out of memory");
    if (token)
        status = rt_http_read_word("--token", token, &t->token, error);
    if (status)
        return status;
    status = choose_source(t, error);
    if (status)
        return status;
    if (once || as_json || !isatty(STDOUT_FILENO))
        return show(t, as_json, false, error);
    return show_on(t, error);
}

int cli_top(int argc, char **argv)
{
    static top t; // only main's thread
    const char *token = NULL, *sets[CLI_SETS_MAX];
    uint32_t set_count = 0;
    bool once = false, as_json = false;
    rt_error error = {0};
    const cli_option options[] = {
        {"once", NULL, &once}, {"json", NULL, &as_json}, {"token", &token, NULL}};
    rt_log_setup(RT_LOG_WARN, "top");
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &t.source, sets, &set_count))
        return CLI_USAGE;
    rt_status status = run(&t, once, as_json, token, &error);
    rt_view_tail_close(&t.tail);
    rt_view_fini(&t.view);
    rt_config_fini(&t.defaults);
    rt_free(t.token);
    return cli_end(status, &error);
}
