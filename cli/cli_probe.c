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

static rt_status take_message(bw_responder *responder, const bw_listener *listener, rt_error *error)
{
    uint32_t peer;
    rt_message message = {0};
    rt_status status =
        rt_transport_receive(listener->ops, listener->endpoint, &peer, &message, error);
    if (!status && rt_message_header(&message)->type == RT_MESSAGE_PROBE)
        status = bw_responder_take(responder, listener, peer, &message, error);
    rt_message_release(&message);
    return status;
}

// What comes next. A stranger's mistake, or that somebody disconnects, ends nothing.
static rt_status serve_once(bw_responder *responder, const bw_listener *listener, rt_error *error)
{
    bool ready;
    rt_endpoint *endpoint = listener->endpoint;
    const rt_status status = take_message(responder, listener, error);
    if (status == RT_WIRE)
        rt_warn("%s", error->text);
    if (status == RT_WIRE || status == RT_NOT_FOUND)
        return RT_OK;
    if (status == RT_AGAIN)
        return listener->ops->wait(&endpoint, 1, -1, 500, &ready);
    return status;
}

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
    do {
        status = serve_once(&responder, &listener, error);
        bw_responder_tick(&responder, &listener);
    } while (status == RT_OK);
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
    for (uint32_t i = config->stream_count; i < count; i++) {
        streams[i] = (bw_stream_end){.self = SELF - i, .server = SERVER};
        const rt_status status = config->ops->connect(transport, streams[i].self, SERVER, address,
                                                      &streams[i].endpoint, error);
        if (status)
            return status;
        config->stream_count++;
    }
    return RT_OK;
}

static double both_ways(const bw_result *result)
{
    return result->up.bytes_per_s + result->down.bytes_per_s;
}

// By one stream, and by several where the link is long: *used_p is of how many the result is.
static rt_status measure(rt_transport *transport, const char *address, bw_probe_config *config,
                         bw_stream_end *streams, bw_result *result, uint32_t *used_p,
                         rt_error *error)
{
    bw_result several;
    *used_p = 1;
    rt_status status = connect_streams(transport, address, 1, config, streams, error);
    if (status)
        return status;
    status = bw_probe_run(config, result, error);
    if (status || !bw_probe_is_long(result))
        return status;
    status = connect_streams(transport, address, STREAMS, config, streams, error);
    if (status)
        return status;
    status = bw_probe_run(config, &several, error);
    if (status)
        return status;
    if (both_ways(&several) > MORE * both_ways(result)) {
        *result = several;
        *used_p = STREAMS;
    }
    return RT_OK;
}

static rt_status probe(rt_transport *transport, const rt_keys *keys, const char *address, bool json,
                       rt_error *error)
{
    bw_result result;
    bw_stream_end streams[STREAMS];
    bw_probe_config config = {.ops = &rt_transport_zmq, .streams = streams, .turn_s = TURN_S};
    uint32_t used;
    rt_status status = config.ops->trust(transport, SERVER, keys->coordinator.bytes, error);
    if (status)
        return status;
    status = measure(transport, address, &config, streams, &result, &used, error);
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
    if (status)
        (void)cli_fail(&error);
    return status == RT_OK;
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
        const char *needs = given ? "; --set needs --config" : "";
        fprintf(stderr, "lanyard probe: expected HOST:PORT, for example 10.0.0.1:7000%s\n", needs);
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
    if (listening)
        status = serve(transport, address, &error);
    else
        status = probe(transport, &keys, address, json, &error);
    rt_transport_zmq.close(transport);
    rt_keys_clear(&keys);
    return cli_end(status, &error);
}
