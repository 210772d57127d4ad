// PUBACK after fsync: a broker's own log says when it came, while the journal's disk refuses. And a
// broker that speaks TLS and wants a password: who has neither hears nothing.
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/config/rt_sources.h"
#include "runtime/live/rt_live.h"
#include "tests/support/test.h"

#ifdef RT_HAS_MQTT

#define LIMIT_S 20

// The intake's thread gets no memory while it is set.
static atomic_bool is_out_of_memory;

// In place of libc's, in this program.
void *aligned_alloc(size_t align, size_t size)
{
    char name[16] = "";
    void *block = NULL;
    prctl(PR_GET_NAME, name);
    if (atomic_load(&is_out_of_memory) && strcmp(name, "mqtt") == 0)
        return NULL;
    return posix_memalign(&block, align, size) ? NULL : block;
}

// settings: of the broker.
static pid_t start_broker(int port, const char *log, const char *settings)
{
    char path[600];
    snprintf(path, sizeof path, "%s", test_path("mosquitto.conf"));
    FILE *file = fopen(path, "w");
    fprintf(file, "listener %d 127.0.0.1\nlog_type all\nlog_dest stderr\n%s%s", port, settings,
            getuid() == 0 ? "user root\n" : "");
    fclose(file);
    const pid_t child = fork();
    if (child == 0) {
        const int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
        dup2(out, STDERR_FILENO);
        execlp("mosquitto", "mosquitto", "-c", path, "-v", (char *)NULL);
        _exit(127);
    }
    return child;
}

// What the broker says when it sends an event once more: it came, and was not acknowledged.
#define SENT_AGAIN "(d1, q1"

static void await_log(const char *log, const char *text)
{
    for (int i = 0; i < LIMIT_S * 50; i++) {
        if (test_file_has(log, text))
            return;
        usleep(20000);
    }
    fail_msg("the broker did not say \"%s\"", text);
}

// A broker without passwords, and a run that has subscribed there.
typedef struct {
    char log[600]; // the broker's
    int port;
    pid_t broker;
    rt_config config;
    rt_live *live;
} site;

static void open_site(site *s, bool strict)
{
    rt_error error = {0};
    if (system("command -v mosquitto >/dev/null && command -v mosquitto_pub >/dev/null") != 0)
        test_skip("mosquitto is not installed (tools/setup test)");
    s->port = test_free_port();
    snprintf(s->log, sizeof s->log, "%s", test_path("log"));
    s->broker = start_broker(s->port, s->log, "allow_anonymous true\n");
    await_log(s->log, "running");
    assert_int_equal(rt_config_init(&s->config), RT_OK);
    s->config.stream.source = RT_SOURCE_MQTT;
    s->config.stream.take_anything = !strict;
    snprintf(s->config.stream.mqtt_broker, sizeof s->config.stream.mqtt_broker, "127.0.0.1:%d",
             s->port);
    if (rt_live_open(&s->config, test_path("journal"), &s->live, &error))
        fail_msg("%s", error.text);
    await_log(s->log, "Sending SUBACK to lanyard");
}

static void send_two_events(const site *s)
{
    char command[256];
    snprintf(command, sizeof command,
             "printf 'one\\ntwo' | mosquitto_pub -p %d -q 1 -t lanyard/events -s", s->port);
    assert_int_equal(system(command), 0);
}

static void close_site(site *s)
{
    rt_live_close(s->live);
    rt_config_fini(&s->config);
    kill(s->broker, SIGTERM);
    waitpid(s->broker, NULL, 0);
}

static void acknowledges_after_fsync(void **state)
{
    (void)state;
    site s;
    open_site(&s, false);

    struct rlimit limit, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_IGN);
    tight = limit;
    tight.rlim_cur = 60; // a head of a segment, and no event
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    send_two_events(&s);
    for (int i = 0;
         i < LIMIT_S * 50 && rt_live_statistics(s.live, RT_FLOW_EVENTS).journal.failures == 0; i++)
        usleep(20000);
    assert_true(rt_live_statistics(s.live, RT_FLOW_EVENTS).journal.failures > 0);
    assert_true(test_file_has(s.log, "Sending PUBLISH to lanyard"));
    await_log(s.log, SENT_AGAIN);
    assert_false(test_file_has(s.log, "Received PUBACK from lanyard")); // it is not on disk
    assert_int_equal(rt_live_statistics(s.live, RT_FLOW_EVENTS).journal.next, 1);

    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    await_log(s.log, "Received PUBACK from lanyard"); // the broker sent it again
    assert_int_equal(rt_live_statistics(s.live, RT_FLOW_EVENTS).journal.next, 3);
    close_site(&s);
}

// What there was no memory for comes again, and what comes then is kept.
static void without_memory_nothing_is_acknowledged(void **state)
{
    (void)state;
    site s;
    open_site(&s, false);
    atomic_store(&is_out_of_memory, true);
    send_two_events(&s);
    await_log(s.log, SENT_AGAIN);
    assert_false(test_file_has(s.log, "Received PUBACK from lanyard"));
    assert_int_equal(rt_live_statistics(s.live, RT_FLOW_EVENTS).journal.next, 1);
    atomic_store(&is_out_of_memory, false);
    await_log(s.log, "Received PUBACK from lanyard"); // the broker sent it again
    assert_int_equal(rt_live_statistics(s.live, RT_FLOW_EVENTS).journal.next, 3);
    close_site(&s);
}

// Nobody can be told of a line that cannot be read: it is left out and counted, and what came with
// it is kept.
static void leaves_out_what_cannot_be_read(void **state)
{
    (void)state;
    site s;
    char command[256];
    open_site(&s, true);
    snprintf(command, sizeof command,
             "(printf '0'; yes '\t' | head -39 | tr -d '\\n'; "
             "printf '\\nnonsense\\n\\n') | mosquitto_pub -p %d -q 1 -t lanyard/events -s",
             s.port);
    assert_int_equal(system(command), 0);
    await_log(s.log, "Received PUBACK from lanyard");
    const rt_live_counts counts = rt_live_statistics(s.live, RT_FLOW_EVENTS);
    assert_int_equal(counts.journal.next, 2);
    assert_int_equal(counts.intake.refused, 1);
    close_site(&s);
}

static void make(const char *command)
{
    char text[1500];
    snprintf(text, sizeof text, "cd %s && %s >made 2>&1", test_path("."), command);
    if (system(text) != 0)
        fail_msg("%s", text);
}

// A run with this authority and this password, of the two that there are.
static rt_live *open_with(rt_config *config, int port, const char *authority, const char *password)
{
    rt_live *live;
    rt_error error = {0};
    rt_stream_config *stream = &config->stream;
    assert_int_equal(rt_config_init(config), RT_OK);
    stream->source = RT_SOURCE_MQTT;
    stream->take_anything = true;
    snprintf(stream->mqtt_broker, sizeof stream->mqtt_broker, "127.0.0.1:%d", port);
    snprintf(stream->mqtt_ca, sizeof stream->mqtt_ca, "%s", test_path(authority));
    snprintf(stream->mqtt_user, sizeof stream->mqtt_user, "hub");
    snprintf(stream->mqtt_password, sizeof stream->mqtt_password, "%s", test_path(password));
    if (rt_live_open(config, test_path("journal"), &live, &error))
        fail_msg("%s", error.text);
    return live;
}

static void over_tls_with_a_password(void **state)
{
    (void)state;
    if (system("command -v mosquitto >/dev/null && command -v mosquitto_passwd >/dev/null && "
               "command -v mosquitto_pub >/dev/null && command -v openssl >/dev/null") != 0)
        test_skip("mosquitto or openssl is not installed (tools/setup test)");
    char log[600], settings[3000], folder[600];
    const int port = test_free_port();
    rt_config config;
    static const char certificate[] =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1";
    snprintf(log, sizeof log, "%s", test_path("log"));
    snprintf(folder, sizeof folder, "%s", test_path("."));
    snprintf(settings, sizeof settings, "%s -keyout key.pem -out good.pem", certificate);
    make(settings);
    snprintf(settings, sizeof settings, "%s -keyout other.key -out other.pem", certificate);
    make(settings);
    make("printf 'open sesame' | tr -d ' ' >right && printf guessed >wrong && chmod 600 right "
         "wrong");
    make("mosquitto_passwd -b -c words hub opensesame");
    snprintf(settings, sizeof settings,
             "allow_anonymous false\npassword_file %s/words\ncertfile %s/good.pem\nkeyfile "
             "%s/key.pem\n",
             folder, folder, folder);
    const pid_t broker = start_broker(port, log, settings);
    await_log(log, "running");

    rt_live *live =
        open_with(&config, port, "other.pem", "right"); // another broker, for all it knows
    await_log(log, "tlsv1 alert unknown ca");
    assert_int_equal(rt_live_statistics(live, RT_FLOW_EVENTS).intake.connections, 0);
    rt_live_close(live);
    rt_config_fini(&config);
    live = open_with(&config, port, "good.pem", "wrong");
    await_log(log, "not authorised");
    assert_int_equal(rt_live_statistics(live, RT_FLOW_EVENTS).intake.connections, 0);
    rt_live_close(live);
    rt_config_fini(&config);

    live = open_with(&config, port, "good.pem", "right");
    await_log(log, "Sending SUBACK to lanyard");
    snprintf(settings, sizeof settings,
             "mosquitto_pub -h 127.0.0.1 -p %d --cafile good.pem -u hub -P opensesame -q 1 -t "
             "lanyard/events -m one",
             port);
    make(settings);
    await_log(log, "Received PUBACK from lanyard");
    assert_int_equal(rt_live_statistics(live, RT_FLOW_EVENTS).journal.next, 2);
    rt_live_close(live);
    rt_config_fini(&config);
    kill(broker, SIGTERM);
    waitpid(broker, NULL, 0);
}
#else
static void acknowledges_after_fsync(void **state)
{
    (void)state;
    test_skip("this build has no MQTT (tools/setup mqtt)");
}

static void without_memory_nothing_is_acknowledged(void **state)
{
    acknowledges_after_fsync(state);
}

static void over_tls_with_a_password(void **state)
{
    acknowledges_after_fsync(state);
}
#endif

TEST_MAIN(TEST(acknowledges_after_fsync), TEST(without_memory_nothing_is_acknowledged),
          TEST(leaves_out_what_cannot_be_read), TEST(over_tls_with_a_password))
