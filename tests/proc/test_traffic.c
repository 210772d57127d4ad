// What a run says that it moved, by cause, against what the kernel counted on the interface.
#define _GNU_SOURCE // unshare
#include <errno.h>
#include <math.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/wire/rt_traffic.h"
#include "tests/support/run_case.h"
#include "tests/support/test.h"

static const char config[] =
    "{\"version\":1,\"workers\":3,\"ps\":{\"shards\":2},\"batch\":{\"samples_per_worker\":256},"
    "\"stream\":{\"format\":\"synthetic\",\"samples_max\":15000,"
    "\"synthetic\":{\"shape\":\"criteo\",\"scale\":0.01}},"
    "\"model\":{\"name\":\"wdl\",\"embedding_dim\":32,\"mlp\":[32]},"
    "\"cache\":{\"rows\":9000}}";

typedef struct {
    double bytes, packets;
} counted;

static counted kernel(void)
{
    char line[512];
    counted all = {0};
    FILE *file = fopen("/proc/self/net/dev", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        sscanf(line, " lo: %lf %lf", &all.bytes, &all.packets);
    fclose(file);
    return all;
}

// A network of this process and its children alone.
static void leave_the_network(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 && unshare(CLONE_NEWNET) != 0)
        test_skip("no network namespace here: %s", strerror(errno));
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0);
    close(fd);
}

// The sum of all causes is what the kernel has without headers of packets (Ethernet's 14 bytes, IP's
// 20, TCP's 32), to a hundredth: the transport adds its frames, and a last word may find nobody.
static void must_be_the_kernels(const char *out, const counted *before, const char *summary)
{
    char text[64];
    const counted after = kernel();
    run_value(summary, "\"all\":", text);
    const double all = strtod(text, NULL), bytes = after.bytes - before->bytes;
    const double content = bytes - 66 * (after.packets - before->packets);
    if (fabs(all - content) > 0.01 * content)
        fail_msg("%s: the run tells of %.0f bytes, the kernel of %.0f and %.0f without headers",
                 out, all, bytes, content);
}

static double value_of(const char *summary, const char *name)
{
    char text[64];
    run_value(summary, name, text);
    return strtod(text, NULL);
}

static char *trained(const char *out, const char *const *sets)
{
    const counted before = kernel();
    run_up(config, out, NULL, sets);
    size_t size;
    char *summary = run_file(out, "summary.json", &size);
    assert_non_null(summary);
    char *traffic = strstr(summary, "\"traffic\":");
    assert_non_null(traffic);
    must_be_the_kernels(out, &before, traffic);
    memmove(summary, traffic, strlen(traffic) + 1);
    return summary;
}

// Whatever travels is told once: rows whole and rounded, from worker to worker, bounded staleness,
// checkpoints. And where a cause is gone, so are its bytes.
static void the_kernel_counts_the_same(void **state)
{
    (void)state;
    static const char *const plain[] = {NULL},
                             *const rounded[] = {"network.row_wire=\"int8\"",
                                                 "network.dense_wire=\"int8\"", NULL},
                             *const handed[] = {"dispatch.hand_over=true", "dispatch.reduce=true",
                                                "dispatch.policy=\"laia\"", NULL},
                             *const stateless[] = {"optimizer.rows.name=\"sgd\"",
                                                   "checkpoint.every_iterations=5", NULL},
                             *const stale[] = {"consistency.staleness=3", NULL};
    leave_the_network();
    char *whole = trained("plain", plain), *small = trained("rounded", rounded);
    char *hands = trained("handed", handed), *sgd = trained("stateless", stateless);
    char *lag = trained("stale", stale);
    assert_true(value_of(whole, "\"row_state\":") > 0);
    test_close(value_of(sgd, "\"row_state\":"), 0, 0, 0, "state of SGD");
    assert_true(value_of(small, "\"gradients\":") < 0.5 * value_of(whole, "\"gradients\":"));
    assert_true(value_of(whole, "\"dense\":") > 0 && value_of(whole, "\"slices\":") > 0);
    assert_true(value_of(hands, "\"rows\":") > 0 && value_of(lag, "\"rows\":") > 0);
    assert_true(value_of(whole, "\"samples\":") == 15000);
    free(whole);
    free(small);
    free(hands);
    free(sgd);
    free(lag);
}

TEST_MAIN(TEST(the_kernel_counts_the_same))
