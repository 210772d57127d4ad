// Waiting for the addresses that a process listens on.
#include "cli/cli.h"
#include "runtime/config/rt_await.h"
#include "runtime/config/rt_sources.h"

#define PLACES_MAX 8u

typedef struct {
    rt_await_place of[PLACES_MAX];
    uint32_t count;
} places;

static void add(places *all, const char *key, const char *place)
{
    rt_assert(all->count < PLACES_MAX);
    all->of[all->count++] = (rt_await_place){key, place};
}

// As rt_address_listen chooses.
static void add_server(places *all, const rt_config *config, const char *key, const char *given)
{
    if (*config->network_bind)
        add(all, "network.bind", config->network_bind);
    else if (*given)
        add(all, key, given);
    else
        add(all, "network.interface", config->network_interface);
}

static void add_intakes(places *all, const rt_config *config)
{
    const rt_stream_config *stream = &config->stream;
    const bool joins = rt_config_join_is_live(stream);
    const bool feeds =
        stream->source == RT_SOURCE_FEED || (joins && stream->join.source == RT_SOURCE_FEED);
    if (stream->source == RT_SOURCE_HTTP || (joins && stream->join.source == RT_SOURCE_HTTP))
        add(all, "stream.http.listen", stream->http_listen);
    if (stream->source == RT_SOURCE_TCP)
        add(all, "stream.tcp.listen", stream->tcp_listen);
    if (joins && stream->join.source == RT_SOURCE_TCP)
        add(all, "stream.join.listen", stream->join.listen);
    if (feeds)
        add(all, "feed.listen", config->feed_listen);
}

rt_status cli_await(const rt_config *config, cli_listener who, uint32_t rank, int stop_fd,
                    rt_notify *notify, rt_error *error)
{
    places all = {.count = 0};
    if (who == CLI_COORDINATOR) {
        add_server(&all, config, "network.coordinator", config->network_coordinator);
        add(&all, "watch.listen", config->watch.listen);
        if (config->publish.every_s > 0)
            add(&all, "publish.address", config->publish.address);
    }
    if (who == CLI_COORDINATOR || who == CLI_FEEDER)
        add_intakes(&all, config);
    if (who == CLI_SHARD)
        add_server(&all, config, "network.ps",
                   rank < config->network_ps_count ? config->network_ps[rank] : "");
    if (who == CLI_WORKER && rt_dispatch_is_mutual(&config->dispatch))
        add_server(&all, config, "boxes[].host", rt_config_host_of_worker(config, rank));
    if (who == CLI_STANDBY)
        add(&all, "coordinator.standby", config->standby);
    if (who == CLI_SERVER)
        add(&all, "serve.address", config->serve.address);
    return rt_await_places(all.of, all.count, config->timeout_start_s, stop_fd, notify, error);
}
