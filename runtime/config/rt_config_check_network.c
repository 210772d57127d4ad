// Addresses, keys, and what messages between processes are made of.
#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_address.h"
#include "runtime/config/rt_config_keys.h"

static rt_status check_address(const char *path, const char *address, uint32_t *port_p,
                               rt_error *error)
{
    char host[RT_NAME_MAX], shown[RT_CONFIG_SHOWN_MAX];
    if (rt_address_split(address, host, sizeof host, port_p) && *port_p > 0)
        return RT_OK;
    return rt_fail(error, RT_CONFIG, "%s: %s is no address, expected %s", path,
                   rt_config_show_text(address, shown), rt_address_form(address));
}

// Every shard has an address of its own.
static rt_status check_shard_addresses(const rt_config *config, rt_error *error)
{
    uint32_t port;
    char path[RT_CONFIG_KEY_PATH_MAX];
    for (uint32_t i = 0; i < config->network_ps_count; i++) {
        snprintf(path, sizeof path, "network.ps[%u]", i);
        rt_status status = check_address(path, config->network_ps[i], &port, error);
        if (status)
            return status;
        if (strcmp(config->network_ps[i], config->network_coordinator) == 0)
            return rt_fail(error, RT_CONFIG, "%s: is also network.coordinator", path);
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(config->network_ps[i], config->network_ps[j]) == 0)
                return rt_fail(error, RT_CONFIG, "%s: is also that of shard %u", path, j);
    }
    return RT_OK;
}

static rt_status check_addresses(const rt_config *config, rt_error *error)
{
    uint32_t port;
    if (config->network_coordinator[0]) {
        rt_status status =
            check_address("network.coordinator", config->network_coordinator, &port, error);
        if (status)
            return status;
    }
    if (config->network_ps_count && config->network_ps_count != config->ps_shard_count)
        return rt_fail(error, RT_CONFIG,
                       "network.ps: %u addresses, expected one for each of the %u of ps.shards",
                       config->network_ps_count, config->ps_shard_count);
    return check_shard_addresses(config, error);
}

// A standby takes over from checkpoints, at an address of its own.
static rt_status check_standby(const rt_config *config, rt_error *error)
{
    uint32_t port;
    if (!config->standby[0])
        return RT_OK;
    rt_status status = check_address("coordinator.standby", config->standby, &port, error);
    if (status)
        return status;
    if (!config->network_coordinator[0])
        return rt_fail(error, RT_CONFIG,
                       "coordinator.standby: needs network.coordinator, the address of the "
                       "coordinator before a promotion");
    if (strcmp(config->standby, config->network_coordinator) == 0)
        return rt_fail(error, RT_CONFIG, "coordinator.standby: is also network.coordinator");
    if (config->checkpoint.every_s == 0 && config->checkpoint.every_iterations == 0)
        return rt_fail(error, RT_CONFIG,
                       "coordinator.standby: a standby takes over from checkpoints: set "
                       "checkpoint.every_s or checkpoint.every_iterations");
    if (!config->checkpoint.copies)
        return rt_fail(error, RT_CONFIG,
                       "coordinator.standby: needs checkpoint.copies 1, so that it gets the rows "
                       "of all shards");
    return RT_OK;
}

// Keys are all there or not at all: a list of boxes without a key would let everybody in.
static rt_status check_security(const rt_config *config, rt_error *error)
{
    const struct {
        const char *path, *value;
    } parts[] = {{"security.key", config->security_key},
                 {"security.allow", config->security_allow},
                 {"security.server_key", config->security_server_key}};
    const char *given = NULL, *missing = NULL;
    for (size_t i = 0; i < RT_COUNT_OF(parts); i++) {
        if (parts[i].value[0])
            given = parts[i].path;
        else
            missing = parts[i].path;
    }
    if (given && missing)
        return rt_fail(error, RT_CONFIG, "%s: is needed where %s is given", missing, given);
    if (given && config->security_insecure)
        return rt_fail(error, RT_CONFIG, "security.insecure: expected false with keys (%s)", given);
    if (given && config->network_transport != RT_NETWORK_ZMQ)
        return rt_fail(error, RT_CONFIG, "network.transport: UCX knows no keys (%s); use \"zmq\"",
                       given);
    return RT_OK;
}

static rt_status check_dense_wire(const rt_config *config, rt_error *error)
{
    const bool is_by_ps =
        config->collective == RT_COLLECTIVE_PS || config->collective == RT_COLLECTIVE_AUTO;
    if (is_by_ps || config->dense_wire == RT_CODING_FP32)
        return RT_OK;
    return rt_fail(error, RT_CONFIG,
                   "network.dense_wire: \"%s\" is for network.collective \"ps\" only",
                   rt_config_choice_name("network.dense_wire", (int)config->dense_wire));
}

rt_status rt_config_check_network(const rt_config *config, rt_error *error)
{
    rt_status status = check_addresses(config, error);
    if (status)
        return status;
    status = check_standby(config, error);
    if (status)
        return status;
    status = check_security(config, error);
    if (status)
        return status;
    return check_dense_wire(config, error);
}
