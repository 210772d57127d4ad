// What an intake holds before a disk that takes its time: many large requests at once.
#include "runtime/live/rt_live.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/config_case.h"
#include "tests/support/test.h"

#define SENDERS 90
#define BODY_BYTES 6000000u
#define PROMISED_KB (256l << 10)
#define SENDING_S 3

static atomic_bool is_slow;

// In the place of the system's: the disk of this test.
int fdatasync(int file)
{
    if (atomic_load(&is_slow))
        sleep(1);
    return (int)syscall(SYS_fdatasync, file);
}

static rt_config config;
static char *body;
static uint64_t end_ns;
static atomic_uint stored, refused;

static long peak_kb(void)
{
    char line[256];
    long kb = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %ld", &kb) == 1)
            break;
    if (file)
        fclose(file);
    return kb;
}

static void open_live(const char *source, rt_live **live)
{
    char text[100];
    rt_error error = {0};
    config = config_fresh();
    config_must_set(&config, "stream.format=table");
    config_must_set(&config, "stream.table.delimiter=,");
    config_must_set(&config, "stream.table.columns=[{\"name\":\"hour\",\"kind\":\"dense\"},"
                             "{\"name\":\"item\",\"kind\":\"categorical\"},"
                             "{\"name\":\"bought\",\"kind\":\"label\"}]");
    snprintf(text, sizeof text, "stream.source=%s", source);
    config_must_set(&config, text);
    snprintf(config.stream.http_listen, sizeof config.stream.http_listen, "127.0.0.1:%d",
             test_free_port());
    snprintf(config.stream.tcp_listen, sizeof config.stream.tcp_listen, "127.0.0.1:%d",
             test_free_port());
    if (rt_live_open(&config, test_path("journal"), live, &error))
        fail_msg("%s", error.text);
    config.stream.live = *live;
}

static bool send_all(int fd, const char *text, size_t size)
{
    while (size > 0) {
        const ssize_t count = send(fd, text, size, MSG_NOSIGNAL);
        if (count <= 0)
            return false;
        text += count;
        size -= (size_t)count;
    }
    return true;
}

static void *post(void *context)
{
    char head[256], answer[16] = "";
    const uint16_t port = (uint16_t)atoi(strrchr(config.stream.http_listen, ':') + 1);
    const int length = snprintf(head, sizeof head,
                                "POST /events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                                "Content-Length: %u\r\n\r\n",
                                BODY_BYTES);
    (void)context;
    while (rt_now_ns() < end_ns) {
        const int fd = test_connect(port);
        if (send_all(fd, head, (size_t)length) && send_all(fd, body, BODY_BYTES) &&
            recv(fd, answer, sizeof answer - 1, MSG_WAITALL) > 12) {
            atomic_fetch_add(&stored, strncmp(answer + 9, "200", 3) == 0);
            atomic_fetch_add(&refused, strncmp(answer + 9, "503", 3) == 0);
        }
        close(fd);
    }
    return NULL;
}

static void *pour(void *context)
{
    const uint16_t port = (uint16_t)atoi(strrchr(config.stream.tcp_listen, ':') + 1);
    const int fd = test_connect(port);
    const struct timeval second = {.tv_sec = 1};
    (void)context;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
    while (rt_now_ns() < end_ns && send_all(fd, body, BODY_BYTES))
        continue;
    close(fd);
    return NULL;
}

static void must_hold_what_is_promised(const char *source, void *(*sender)(void *))
{
    pthread_t threads[SENDERS];
    rt_live *live;
    body = malloc(BODY_BYTES);
    for (uint32_t i = 0; i < BODY_BYTES; i += 12)
        memcpy(body + i, "3,tea12345,1\n" + 1, 12); // ",tea12345,1\n": an hour may be empty
    open_live(source, &live);
    const long before_kb = peak_kb();
    atomic_store(&is_slow, true);
    end_ns = rt_now_ns() + SENDING_S * UINT64_C(1000000000);
    for (uint32_t i = 0; i < SENDERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, sender, NULL), 0);
    for (uint32_t i = 0; i < SENDERS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&is_slow, false);
    rt_live_close(live);
    printf("%s: %ld MB; stored %u, refused %u\n", source, (peak_kb() - before_kb) >> 10,
           atomic_load(&stored), atomic_load(&refused));
    assert_true(peak_kb() - before_kb < PROMISED_KB);
    rt_config_fini(&config);
    free(body);
}

static void requests_before_a_slow_disk(void **state)
{
    (void)state;
    must_hold_what_is_promised("http", post);
    assert_true(atomic_load(&stored) + atomic_load(&refused) > 0);
}

static void connections_before_a_slow_disk(void **state)
{
    (void)state;
    must_hold_what_is_promised("tcp", pour);
}

TEST_MAIN(TEST(requests_before_a_slow_disk), TEST(connections_before_a_slow_disk))
