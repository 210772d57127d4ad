// `lanyard probe`: how fast the link to another machine is, both ways.
//
// Against a running PS shard, or against `lanyard probe --listen` where no run is. It joins as a
// worker rank that runs do not use (they have at most RT_WORKERS_MAX - 1 then). Where keys are in
// use it needs a configuration that names them (--config); the address must then be of the box
// whose key is security.server_key.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bandwidth_probe/bw_probe.h"
#include "cli/cli.h"
#include "runtime/transport/rt_keys.h"
#include "runtime/rt_json.h"

#define SELF rt_peer(RT_ROLE_WORKER, RT_WORKERS_MAX - 1)
#define SERVER rt_peer(RT_ROLE_PS, 0)
#define STREAMS 4u // where one may not fill the link; the others join as the ranks before that one
#define MORE 1.1   // several streams count where they carry so much more than one
#define TURN_S 60.0
#define LINGER_MS 500u

// Until a signal ends the process.
static rt_status serve(rt_transport *transport, const char *address, rt_error *error)
{
    const rt_transport_ops *ops = &rt_transport_zmq;
    char bound[RT_NAME_MAX];
    rt_endpoint *endpoint;
    bw_responder responder = {0};
    rt_status status = ops->listen(transport, SERVER, address, bound, &endpoint, error);
    if (status)
        return status;
    const bw_listener listener = {ops, endpoint, SERVER};
    printf("%s\n", bound);
    fflush(stdout);
    while (!status) {
        bool ready;
        uint32_t peer;
        rt_message message = {0};
        status = ops->receive(endpoint, &peer, &message, error);
        if (!status && rt_message_header(&message)->type == RT_MESSAGE_PROBE)
            status = bw_responder_take(&responder, &listener, peer, &message, error);
        rt_message_release(&message);
        if (status == RT_WIRE) { // a stranger's mistake ends nothing
            rt_warn("%s", error->text);
            status = RT_OK;
        }
        if (status == RT_AGAIN)
            status = ops->wait(&endpoint, 1, -1, 500, &ready);
        if (status == RT_NOT_FOUND)
            status = RT_OK; // somebody disconnected
        bw_responder_tick(&responder, &listener);
    }
    ops->end(endpoint, LINGER_MS);
    return status;
}

static void print_rate(const char *name, const bw_rate *rate)
{
    printf("%s %8.1f Mbit/s of payload (spread %.1f%%, %.1f MB sent)\n", name,
           rate->bytes_per_s * 8e-6, rate->spread * 100, (double)rate->bytes * 1e-6);
}

static void write_rate(rt_json *json, const char *name, const bw_rate *rate)
{
    rt_json_begin_object(json, name);
    rt_json_double(json, "bytes_per_s", rate->bytes_per_s);
    rt_json_double(json, "spread", rate->spread);
    rt_json_u64(json, "bytes", rate->bytes);
    rt_json_end_object(json);
}

static void print_result(const bw_result *result, uint32_t streams, bool as_json)
{
    rt_json json;
    if (!as_json) {
        print_rate("up  ", &result->up);
        print_rate("down", &result->down);
        printf("rtt  %8.3f ms\n", result->rtt_s * 1e3);
        if (streams > 1)
            printf("by %" PRIu32 " streams: one alone carries less\n", streams);
        return;
    }
    rt_json_init(&json, 2);
    rt_json_begin_object(&json, NULL);
    write_rate(&json, "up", &result->up);
    write_rate(&json, "down", &result->down);
    rt_json_double(&json, "rtt_s", result->rtt_s);
    rt_json_u64(&json, "streams", streams);
    rt_json_end_object(&json);
    const char *text = rt_json_text(&json, NULL);
    if (text)
        printf("%s\n", text);
    rt_json_fini(&json);
}

static rt_status connect_streams(rt_transport *transport, const char *address, uint32_t count,
                                 bw_probe_config *config, bw_stream_end *streams, rt_error *error)
{
    rt_status status = RT_OK;
    for (uint32_t i = config->stream_count; i < count && !status; i++) {
        streams[i] = (bw_stream_end){.self = SELF - i, .server = SERVER};
        status = config->ops->connect(transport, streams[i].self, SERVER, address,
                                      &streams[i].endpoint, error);
        config->stream_count += !status;
    }
    return status;
}

static double both_ways(const bw_result *result)
{
    return result->up.bytes_per_s + result->down.bytes_per_s;
}

static rt_status probe(rt_transport *transport, const rt_keys *keys, const char *address, bool json,
                       rt_error *error)
{
    bw_result result, several;
    bw_stream_end streams[STREAMS];
    bw_probe_config config = {.ops = &rt_transport_zmq, .streams = streams, .turn_s = TURN_S};
    uint32_t used = 1;
    rt_status status = config.ops->trust(transport, SERVER, keys->coordinator.bytes, error);
    if (!status)
        status = connect_streams(transport, address, 1, &config, streams, error);
    if (!status)
        status = bw_probe_run(&config, &result, error);
    if (!status && bw_probe_is_long(&result)) {
        status = connect_streams(transport, address, STREAMS, &config, streams, error);
        if (!status)
            status = bw_probe_run(&config, &several, error);
        if (!status && both_ways(&several) > MORE * both_ways(&result)) {
            result = several;
            used = STREAMS;
        }
    }
    if (!status)
        print_result(&result, used, json);
    for (uint32_t i = 0; i < config.stream_count; i++)
        config.ops->end(streams[i].endpoint, LINGER_MS);
    return status;
}

// The keys that a configuration names; without one, none.
static bool load_keys(const char *path, const char *const *sets, uint32_t set_count, bool insecure,
                      rt_keys *keys)
{
    rt_config config;
    rt_error error = {0};
    *keys = (rt_keys){.is_insecure = insecure};
    if (!path)
        return true;
    if (cli_load(path, sets, set_count, "probe", &config) != CLI_OK)
        return false;
    rt_status status = rt_keys_load(&config, keys, &error);
    rt_config_fini(&config);
    return status ? cli_fail(&error) == CLI_OK : true;
}

int cli_probe(int argc, char **argv)
{
    rt_error error = {0};
    rt_keys keys;
    rt_transport *transport;
    const char *given = NULL, *config = NULL, *sets[CLI_SETS_MAX];
    char address[RT_NAME_MAX + 16];
    uint32_t set_count;
    bool listening = false, json = false, insecure = false;
    const cli_option options[] = {{"listen", NULL, &listening},
                                  {"json", NULL, &json},
                                  {"config", &config, NULL},
                                  {"insecure", NULL, &insecure}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &given, sets, &set_count))
        return CLI_USAGE;
    if (!given || (set_count && !config)) {
        fprintf(stderr, "lanyard probe: expected HOST:PORT, for example 10.0.0.1:7000%s\n",
                given ? "; --set needs --config" : "");
        return CLI_USAGE;
    }
    if (!cli_address(given, address, sizeof address))
        return CLI_USAGE;
    rt_log_setup(RT_LOG_INFO, "probe");
    if (!load_keys(config, sets, set_count, insecure, &keys))
        return CLI_FAILED;
    rt_status status = rt_transport_open(&rt_transport_zmq, &keys, &transport, &error);
    if (status)
        return cli_fail(&error);
    status = listening ? serve(transport, address, &error)
                       : probe(transport, &keys, address, json, &error);
    rt_transport_zmq.close(transport);
    rt_keys_clear(&keys);
    return status ? cli_fail(&error) : CLI_OK;
}
