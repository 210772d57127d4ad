#include "runtime/live/rt_feed.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/config/rt_address.h"
#include "runtime/live/rt_feed_link.h"
#include "runtime/live/rt_live.h"
#include "runtime/live/rt_spool.h"
#include "runtime/rt_thread.h"

#define WAIT_MS 200u

typedef struct {
    rt_keys keys;
    rt_transport *transport;
    rt_feed_hub hub;
    int wait_fd, wake_fd, stop_fd;
    rt_live *live;              // NULL: nothing of it is sent
    rt_spool *spools[RT_FLOWS]; // of what is not sent
    rt_feed_link links[RT_FLOWS];
    bool is_linked[RT_FLOWS];
} feed;

// ---- opening ---------------------------------------------------------------------------------

static void name_standby(rt_feed_hub *hub, const char *host, uint32_t port)
{
    static const char scheme[] = "tcp://";
    char *address = hub->addresses[1];
    const size_t length = sizeof scheme - 1;
    memcpy(address, scheme, length);
    (void)rt_address_join(host, port, address + length, sizeof hub->addresses[1] - length);
}

static rt_status connect_links(feed *f, const rt_config *config, rt_error *error)
{
    char host[RT_NAME_MAX];
    uint32_t port, standby_port;
    if (!rt_address_split(config->feed_to, host, sizeof host, &port) || port == 0)
        return rt_fail(error, RT_CONFIG,
                       "feed.to: \"%s\" is no address, expected \"HOST:PORT\" of the coordinator's "
                       "box",
                       config->feed_to);
    f->hub.keys = &f->keys;
    snprintf(f->hub.addresses[0], sizeof f->hub.addresses[0], "tcp://%s", config->feed_to);
    if (rt_address_split(config->standby, host, sizeof host, &standby_port))
        name_standby(&f->hub, host, port);
    f->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    f->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    if (f->wake_fd < 0 || f->wait_fd < 0)
        return rt_fail(error, RT_LIMIT, "out of descriptors");
    rt_status status = rt_keys_load(config, &f->keys, error);
    if (status)
        return status;
    return rt_transport_open(&rt_transport_zmq, &f->keys, &f->transport, error);
}

static rt_status watch(feed *f, int fd, rt_error *error)
{
    struct epoll_event event = {.events = EPOLLIN};
    if (fd >= 0 && epoll_ctl(f->wait_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return rt_fail(error, RT_LIMIT, "out of descriptors");
    return RT_OK;
}

static rt_status link_flow(feed *f, rt_flow flow, rt_journal *journal, const char *place,
                           rt_error *error)
{
    char path[RT_PATH_MAX + 16];
    rt_journal_place(place, flow, path, sizeof path);
    rt_status status =
        rt_feed_link_init(&f->links[flow], flow, journal, path, f->transport, &f->hub, error);
    f->is_linked[flow] = !status;
    if (status)
        return status;
    return watch(f, rt_journal_fd(journal), error);
}

static bool is_wanted(const rt_config *config, rt_flow flow)
{
    return flow == RT_FLOW_EVENTS || rt_config_has_join(&config->stream);
}

static rt_status open_flow(feed *f, const rt_config *config, rt_flow flow, const char *place,
                           rt_error *error)
{
    rt_journal *journal = NULL;
    if (f->live)
        journal = rt_live_journal(f->live, flow);
    if (!journal) {
        rt_status status = rt_spool_open(config, flow, place, f->wake_fd, &f->spools[flow], error);
        if (status)
            return status;
        journal = rt_spool_journal(f->spools[flow]);
    }
    return link_flow(f, flow, journal, place, error);
}

static rt_status open_all(feed *f, const rt_config *config, const char *directory, rt_error *error)
{
    const char *place = *config->journal_directory ? config->journal_directory : directory;
    rt_status status = connect_links(f, config, error);
    if (status)
        return status;
    status = watch(f, f->wake_fd, error);
    if (status)
        return status;
    status = watch(f, f->stop_fd, error);
    if (status)
        return status;
    if (rt_live_is_wanted(config)) {
        status = rt_live_open(config, directory, &f->live, error);
        if (status)
            return status;
    }
    for (rt_flow flow = 0; flow < RT_FLOWS; flow++) {
        if (!is_wanted(config, flow))
            continue;
        status = open_flow(f, config, flow, place, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static void close_all(feed *f)
{
    for (rt_flow flow = 0; flow < RT_FLOWS; flow++)
        if (f->is_linked[flow])
            rt_feed_link_fini(&f->links[flow]);
    if (f->transport)
        rt_transport_zmq.close(f->transport);
    rt_live_close(f->live);
    for (rt_flow flow = 0; flow < RT_FLOWS; flow++)
        rt_spool_close(f->spools[flow]);
    rt_keys_clear(&f->keys);
    if (f->wake_fd >= 0)
        close(f->wake_fd);
    if (f->wait_fd >= 0)
        close(f->wait_fd);
}

// ---- turns -----------------------------------------------------------------------------------

static bool is_readable(int fd)
{
    struct pollfd one = {fd, POLLIN, 0};
    return fd >= 0 && poll(&one, 1, 0) == 1;
}

static void wait_for_events(feed *f)
{
    bool ready[RT_FLOWS];
    uint64_t wakes;
    rt_endpoint *endpoints[RT_FLOWS];
    uint32_t count = 0;
    for (rt_flow flow = 0; flow < RT_FLOWS; flow++)
        if (f->is_linked[flow] && f->links[flow].endpoint)
            endpoints[count++] = f->links[flow].endpoint;
    if (count > 0) {
        (void)rt_transport_zmq.wait(endpoints, count, f->wait_fd, WAIT_MS, ready);
    } else {
        struct pollfd one = {f->stop_fd, POLLIN, 0};
        (void)poll(&one, 1, (int)WAIT_MS);
    }
    if (read(f->wake_fd, &wakes, sizeof wakes) < 0) {
        // nobody has written to it
    }
}

static rt_feed_counts counts_of(const rt_feed_link *link)
{
    return (rt_feed_counts){.taken = rt_journal_statistics(link->journal).next - 1,
                            .kept = link->kept,
                            .connections = link->connections};
}

// RT_END: its input has ended, and all of it is kept.
static rt_status turn_one(feed *f, rt_flow flow, rt_feed_counts *counts, rt_error *error)
{
    rt_feed_link *link = &f->links[flow];
    rt_status status = rt_feed_link_turn(link, error);
    *counts = counts_of(link);
    if (!status && f->spools[flow])
        status = rt_spool_state(f->spools[flow], error);
    if (status == RT_END && counts->kept < counts->taken)
        return RT_OK;
    return status;
}

static rt_status turn(feed *f, rt_feed_counts counts[RT_FLOWS], rt_error *error)
{
    bool has_ended = true;
    for (rt_flow flow = 0; flow < RT_FLOWS; flow++) {
        if (!f->is_linked[flow])
            continue;
        const rt_status status = turn_one(f, flow, &counts[flow], error);
        if (status && status != RT_END)
            return status;
        has_ended = has_ended && status == RT_END;
    }
    if (has_ended)
        return RT_END;
    return RT_OK;
}

// Until its input has ended and is kept (RT_END), it is told to stop, or something fails.
static rt_status run_turns(feed *f, rt_feed_counts counts[RT_FLOWS], rt_error *error)
{
    while (!is_readable(f->stop_fd)) {
        rt_status status = turn(f, counts, error);
        if (status)
            return status;
        wait_for_events(f);
    }
    return RT_OK;
}

rt_status rt_feed_run(const rt_config *config, const char *directory, int stop_fd,
                      rt_feed_counts counts[RT_FLOWS], rt_error *error)
{
    feed *f = rt_alloc(1, sizeof *f);
    if (!f)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    memset(counts, 0, RT_FLOWS * sizeof *counts);
    f->wake_fd = f->wait_fd = -1;
    f->stop_fd = stop_fd;
    rt_status status = open_all(f, config, directory, error);
    if (!status)
        status = run_turns(f, counts, error);
    close_all(f);
    rt_free(f);
    return status;
}

// ---- a feeder in a process -------------------------------------------------------------------

struct rt_feeder {
    feed feed;
    rt_journal *journal;
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock; // the members below
    rt_feed_counts counts;
    rt_error failure;
};

static void *run(void *context)
{
    rt_feeder *feeder = context;
    rt_error error = {0};
    prctl(PR_SET_NAME, "feeder");
    while (!error.status && !is_readable(feeder->feed.stop_fd)) {
        rt_feed_counts counts;
        (void)turn_one(&feeder->feed, RT_FLOW_EVENTS, &counts, &error);
        pthread_mutex_lock(&feeder->lock);
        feeder->counts = counts;
        feeder->failure = error;
        pthread_mutex_unlock(&feeder->lock);
        if (!error.status)
            wait_for_events(&feeder->feed);
    }
    if (error.status)
        rt_warn("feed: %s; what comes stays in the spool", error.text);
    return NULL;
}

// What fails stays open in part, for rt_feeder_close.
static rt_status open_feeder(rt_feeder *feeder, const rt_config *config, const char *directory,
                             rt_error *error)
{
    feed *f = &feeder->feed;
    if (f->stop_fd < 0)
        return rt_fail(error, RT_LIMIT, "out of descriptors");
    rt_status status =
        rt_journal_open(directory, config->journal_bytes_max, NULL, &feeder->journal, error);
    if (status)
        return status;
    status = connect_links(f, config, error);
    if (status)
        return status;
    status = watch(f, f->stop_fd, error);
    if (status)
        return status;
    status = link_flow(f, RT_FLOW_EVENTS, feeder->journal, directory, error);
    if (status)
        return status;
    feeder->runs = rt_thread_start(&feeder->thread, run, feeder) == 0;
    if (!feeder->runs)
        return rt_fail(error, RT_LIMIT, "cannot start a feeder's thread");
    return RT_OK;
}

rt_status rt_feeder_open(const rt_config *config, const char *directory, rt_feeder **feeder_p,
                         rt_error *error)
{
    rt_feeder *feeder = rt_alloc(1, sizeof *feeder);
    if (!feeder)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a feeder");
    feed *f = &feeder->feed;
    f->wake_fd = f->wait_fd = -1;
    f->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutex_init(&feeder->lock, NULL);
    rt_status status = open_feeder(feeder, config, directory, error);
    if (status) {
        rt_feeder_close(feeder);
        return status;
    }
    *feeder_p = feeder;
    return RT_OK;
}

void rt_feeder_close(rt_feeder *feeder)
{
    const uint64_t one = 1;
    if (!feeder)
        return;
    if (feeder->runs && write(feeder->feed.stop_fd, &one, sizeof one) == sizeof one)
        pthread_join(feeder->thread, NULL);
    close_all(&feeder->feed);
    rt_journal_close(feeder->journal);
    if (feeder->feed.stop_fd >= 0)
        close(feeder->feed.stop_fd);
    pthread_mutex_destroy(&feeder->lock);
    rt_free(feeder);
}

rt_journal *rt_feeder_journal(rt_feeder *feeder)
{
    return feeder->journal;
}

bool rt_feeder_counts(rt_feeder *feeder, rt_feed_counts *counts, rt_error *error)
{
    pthread_mutex_lock(&feeder->lock);
    *counts = feeder->counts;
    const rt_error failure = feeder->failure;
    pthread_mutex_unlock(&feeder->lock);
    if (failure.status)
        rt_fail(error, failure.status, "%s", failure.text);
    return !failure.status;
}
