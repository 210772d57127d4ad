#include "edge_worker/serve/ew_log.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/random.h>

#include "runtime/config/rt_address.h"
#include "runtime/live/rt_feed.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"

struct ew_log {
    rt_feeder *feeder;
    uint64_t start; // of names
    atomic_uint_fast64_t names, events, dropped;
    atomic_flag is_told;
};

rt_status ew_log_open(const rt_config *config, ew_log **log_p, rt_error *error)
{
    if (!*config->feed_to)
        return rt_fail(
            error, RT_CONFIG,
            "feed.to: expected \"HOST:PORT\" of the run that takes what serve.log keeps");
    char address[RT_NAME_MAX + 16];
    const bool has_keys = *config->security_key || config->security_insecure;
    snprintf(address, sizeof address, "tcp://%s", config->feed_to);
    if (!has_keys && !rt_address_is_loopback(address))
        return rt_fail(error, RT_CONFIG,
                       "feed.to: %s is another machine, which can be reached only with keys "
                       "(security.key), or security.insecure: true",
                       config->feed_to);
    ew_log *log = rt_alloc(1, sizeof *log);
    if (!log)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    if (getrandom(&log->start, sizeof log->start, 0) != sizeof log->start)
        log->start = rt_now_ns();
    const rt_status status = rt_feeder_open(config, config->serve.log, &log->feeder, error);
    if (status) {
        ew_log_close(log);
        return rt_fail_in(error, "serve.log");
    }
    rt_info("what is served goes to %s and on to %s", config->serve.log, config->feed_to);
    *log_p = log;
    return RT_OK;
}

void ew_log_close(ew_log *log)
{
    if (!log)
        return;
    rt_feeder_close(log->feeder);
    rt_free(log);
}

// Unlike those of other servers and of this one before it was started anew: outcomes find their
// event by it.
void ew_log_name(ew_log *log, char name[EW_LOG_NAME_SIZE])
{
    const uint64_t number = atomic_fetch_add(&log->names, 1);
    snprintf(name, EW_LOG_NAME_SIZE, "%016" PRIx64, rt_mix(log->start + number));
}

// Answers go on without their log; one warning until it works again.
static void drop(ew_log *log, uint32_t count, const char *why)
{
    atomic_fetch_add(&log->dropped, count);
    if (!atomic_flag_test_and_set(&log->is_told))
        rt_warn("alert: serve.log: %s: what is served is not logged; log_dropped counts it", why);
}

typedef struct {
    ew_log *log;
    uint32_t count;
} appended;

// In the journal's thread.
static void committed(void *context, rt_status status)
{
    appended *a = context;
    if (status)
        drop(a->log, a->count, "the disk did not take it");
    else
        atomic_fetch_add(&a->log->events, a->count);
    rt_free(a);
}

// The journal's thread writes and syncs: an answer does not wait for a disk.
void ew_log_put(ew_log *log, const void *lines, size_t size, uint32_t count)
{
    appended *a = rt_alloc(1, sizeof *a);
    if (!a) {
        drop(log, count, "out of memory");
        return;
    }
    *a = (appended){log, count};
    const rt_journal_entry entry = {
        .lines = lines, .size = size, .count = count, .done = committed, .context = a};
    const rt_status status = rt_journal_append(rt_feeder_journal(log->feeder), &entry);
    if (!status) {
        atomic_flag_clear(&log->is_told);
        return;
    }
    drop(log, count, status == RT_AGAIN ? "the spool is full" : rt_status_text(status));
    rt_free(a);
}

ew_log_counts ew_log_counted(ew_log *log)
{
    rt_feed_counts counts;
    rt_error error = {0};
    (void)rt_feeder_counts(log->feeder, &counts, &error);
    return (ew_log_counts){atomic_load(&log->events), atomic_load(&log->dropped), counts.kept};
}
