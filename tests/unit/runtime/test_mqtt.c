// PUBACK after fsync: a broker's own log says when it came. The journal's disk refuses meanwhile.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/live/rt_live.h"
#include "tests/support/test.h"

#ifdef RT_HAS_MQTT

#define LIMIT_S 20

static pid_t start_broker(int port, const char *log)
{
    char path[600];
    snprintf(path, sizeof path, "%s", test_path("mosquitto.conf"));
    FILE *file = fopen(path, "w");
    fprintf(file, "listener %d 127.0.0.1\nallow_anonymous true\nlog_type all\nlog_dest stderr\n",
            port);
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

static bool log_has(const char *log, const char *text)
{
    static char all[1 << 20];
    FILE *file = fopen(log, "r");
    if (!file)
        return false;
    const size_t size = fread(all, 1, sizeof all - 1, file);
    fclose(file);
    all[size] = '\0';
    return strstr(all, text) != NULL;
}

static void await_log(const char *log, const char *text)
{
    for (int i = 0; i < LIMIT_S * 50; i++) {
        if (log_has(log, text))
            return;
        usleep(20000);
    }
    fail_msg("the broker did not say \"%s\"", text);
}

static void acknowledges_after_fsync(void **state)
{
    (void)state;
    if (system("command -v mosquitto >/dev/null && command -v mosquitto_pub >/dev/null") != 0)
        test_skip("mosquitto is not installed (tools/setup test)");
    char log[600], command[256];
    const int port = test_free_port();
    snprintf(log, sizeof log, "%s", test_path("log"));
    const pid_t broker = start_broker(port, log);
    await_log(log, "running");
    rt_config config;
    rt_live *live;
    rt_error error = {0};
    assert_int_equal(rt_config_init(&config), RT_OK);
    config.stream.source = RT_SOURCE_MQTT;
    snprintf(config.stream.mqtt_broker, sizeof config.stream.mqtt_broker, "127.0.0.1:%d", port);
    if (rt_live_open(&config, test_path("journal"), &live, &error))
        fail_msg("%s", error.text);
    await_log(log, "Sending SUBACK to lanyard");

    struct rlimit limit, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_IGN);
    tight = limit;
    tight.rlim_cur = 60; // a head of a segment, and no event
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    snprintf(command, sizeof command,
             "printf 'one\\ntwo' | mosquitto_pub -p %d -q 1 -t lanyard/events -s", port);
    assert_int_equal(system(command), 0);
    for (int i = 0; i < LIMIT_S * 50 && rt_live_statistics(live).journal.failures == 0; i++)
        usleep(20000);
    assert_true(rt_live_statistics(live).journal.failures > 0);
    assert_true(log_has(log, "Sending PUBLISH to lanyard"));
    usleep(300000);
    assert_false(log_has(log, "Received PUBACK from lanyard")); // it is not on disk
    assert_int_equal(rt_live_statistics(live).journal.next, 1);

    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    await_log(log, "Received PUBACK from lanyard"); // the broker sent it again
    assert_int_equal(rt_live_statistics(live).journal.next, 3);
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
#endif

TEST_MAIN(TEST(acknowledges_after_fsync))
