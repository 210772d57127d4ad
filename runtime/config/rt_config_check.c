#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/config/rt_address.h"
#include "runtime/config/rt_config_keys.h"

static rt_status check_links(const rt_config *config, rt_error *error)
{
    uint32_t given = config->links.given_count;
    if (given != 0 && given != config->worker_count)
        return rt_fail(error, RT_CONFIG,
                       "links.workers: %u links, expected one for each of the %u "
                       "workers",
                       given, config->worker_count);
    return RT_OK;
}

static rt_status check_participants(const rt_config *config, rt_error *error)
{
    const uint64_t beyond =
        config->dispatch.participant_mask & ~rt_bits_below(config->worker_count);
    if (beyond)
        return rt_fail(error, RT_CONFIG,
                       "dispatch.participants: rank %u, expected one below workers (%u)",
                       rt_lowest_bit(beyond), config->worker_count);
    return RT_OK;
}

static rt_status check_source(const rt_stream_config *stream, rt_error *error)
{
    const char *name = rt_config_choice_name("stream.source", (int)stream->source);
    const bool follows = stream->source == RT_SOURCE_FOLLOW;
    if (follows && (stream->file_count != 1 || strcmp(stream->files[0], "-") == 0))
        return rt_fail(error, RT_CONFIG,
                       "stream.files: stream.source \"follow\" reads one file, by its path");
    if (!follows && stream->file_count > 0)
        return rt_fail(error, RT_CONFIG, "stream.files: stream.source \"%s\" reads no files", name);
    if (!follows && stream->format == RT_FORMAT_TABLE &&
        stream->table.has_header)
        return rt_fail(error, RT_CONFIG,
                       "stream.table.header: what stream.source \"%s\" is sent has none; expected "
                       "false, and the columns in their order",
                       name);
    return RT_OK;
}

static rt_status check_rows(const rt_config *config, rt_error *error)
{
    const rt_rows_config *rows = &config->rows;
    const char *key = rows->expire_iterations ? "rows.expire_iterations"
                      : rows->expire_s > 0    ? "rows.expire_s"
                      : rows->max             ? "rows.max"
                                              : NULL;
    if (rows->max && rows->keep_min > rows->max / 8 * 7)
        return rt_fail(error, RT_CONFIG,
                       "rows.keep_min: %llu rows, expected at most seven eighths of rows.max (%llu)",
                       (unsigned long long)rows->keep_min, (unsigned long long)rows->max);
    if (key && config->placement == RT_PLACEMENT_WORKER)
        return rt_fail(error, RT_CONFIG,
                       "%s: rows do not end with planner.placement \"worker\"; expected "
                       "\"coordinator\"",
                       key);
    return RT_OK;
}

static rt_status check_files(const rt_stream_config *stream, rt_error *error)
{
    uint32_t standard_input_count = 0;
    if (stream->format == RT_FORMAT_SYNTHETIC)
        return RT_OK;
    if (stream->source != RT_SOURCE_FILE)
        return check_source(stream, error);
    if (stream->file_count == 0)
        return rt_fail(error, RT_CONFIG,
                       "stream.files: no input given, expected a file or \"-\" (standard input)");
    for (uint32_t i = 0; i < stream->file_count; i++)
        standard_input_count += strcmp(stream->files[i], "-") == 0;
    if (standard_input_count > 1)
        return rt_fail(error, RT_CONFIG, "stream.files: standard input can be read only once");
    return RT_OK;
}

// A word for what can be no input; NULL: it may be one.
static const char *unreadable(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0 || (!S_ISSOCK(info.st_mode) && access(path, R_OK) != 0))
        return strerror(errno);
    if (S_ISDIR(info.st_mode))
        return "it is a folder";
    if (S_ISSOCK(info.st_mode))
        return "it is a socket: expected a file or a pipe (mkfifo); `nc -U SOCKET | lanyard ...` "
               "with stream.files=- reads one";
    return NULL;
}

rt_status rt_config_check_input(const rt_config *config, rt_error *error)
{
    const rt_stream_config *stream = &config->stream;
    if (stream->source == RT_SOURCE_FOLLOW) // it may come later
        return RT_OK;
    for (uint32_t i = 0; stream->format != RT_FORMAT_SYNTHETIC && i < stream->file_count; i++) {
        const char *path = stream->files[i];
        const char *why = strcmp(path, "-") == 0 ? NULL : unreadable(path);
        if (why)
            return rt_fail(error, RT_IO, "stream.files: cannot open %s: %s", path, why);
    }
    return RT_OK;
}

static bool is_number(const char *text)
{
    char *end;
    double number = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(number);
}

static rt_status check_column(const rt_table_config *table, uint32_t index, rt_error *error)
{
    const rt_column *column = &table->columns[index];
    if (column->kind == RT_COLUMN_LABEL && column->label_rule == RT_LABEL_AT_LEAST &&
        !is_number(column->label_value)) {
        char shown[RT_CONFIG_SHOWN_MAX];
        return rt_fail(error, RT_CONFIG,
                       "stream.table.columns[%u].value: %s is not a number, as \"at_least\" needs",
                       index, rt_config_show_text(column->label_value, shown));
    }
    if (column->kind == RT_COLUMN_MULTI && column->separator == table->delimiter)
        return rt_fail(error, RT_CONFIG,
                       "stream.table.columns[%u].separator: is also stream.table.delimiter", index);
    if (table->has_header && column->kind != RT_COLUMN_IGNORE && !column->name[0])
        return rt_fail(error, RT_CONFIG,
                       "stream.table.columns[%u].name: is needed with stream.table.header, which"
                       " tells columns by their names",
                       index);
    for (uint32_t i = 0; i < index; i++) {
        if (column->name[0] && strcmp(column->name, table->columns[i].name) == 0)
            return rt_fail(error, RT_CONFIG,
                           "stream.table.columns[%u].name: column %u has the same name", index, i);
    }
    return RT_OK;
}

static rt_status check_table(const rt_table_config *table, rt_error *error)
{
    uint32_t label_count = 0, field_count = 0;
    for (uint32_t i = 0; i < table->column_count; i++) {
        rt_column_kind kind = table->columns[i].kind;
        rt_status status = check_column(table, i, error);
        if (status != RT_OK)
            return status;
        label_count += kind == RT_COLUMN_LABEL;
        field_count += kind == RT_COLUMN_CATEGORICAL || kind == RT_COLUMN_MULTI;
    }
    if (label_count != 1)
        return rt_fail(error, RT_CONFIG,
                       "stream.table.columns: %u columns of kind \"label\", expected one",
                       label_count);
    if (field_count == 0 || field_count > RT_FIELDS_MAX)
        return rt_fail(error, RT_CONFIG,
                       "stream.table.columns: %u columns of kind \"categorical\" or \"multi\", "
                       "expected 1 to %u",
                       field_count, RT_FIELDS_MAX);
    return RT_OK;
}

// A rate that changes would move weights by itself: z holds what earlier rates made of them.
static rt_status check_rate(const rt_optimizer_config *optimizer, const char *section,
                            rt_error *error)
{
    if (optimizer->kind != RT_OPTIMIZER_FTRL ||
        (optimizer->warmup_iterations == 0 && optimizer->decay == RT_DECAY_NONE))
        return RT_OK;
    return rt_fail(error, RT_CONFIG, "%s.%s: ftrl has a learning rate of its own for every weight",
                   section, optimizer->warmup_iterations ? "warmup_iterations" : "decay");
}

static rt_status check_address(const char *path, const char *address, uint32_t *port_p,
                               rt_error *error)
{
    char host[RT_NAME_MAX], shown[RT_CONFIG_SHOWN_MAX];
    if (rt_address_split(address, host, sizeof host, port_p) && *port_p > 0)
        return RT_OK;
    return rt_fail(error, RT_CONFIG, "%s: %s is no address, expected \"HOST:PORT\"", path,
                   rt_config_show_text(address, shown));
}

static rt_status check_network(const rt_config *config, rt_error *error)
{
    uint32_t port = 0;
    char path[RT_CONFIG_KEY_PATH_MAX];
    rt_status status = RT_OK;
    if (config->network_coordinator[0])
        status = check_address("network.coordinator", config->network_coordinator, &port, error);
    if (!status && port && config->network_port && port != config->network_port)
        status = rt_fail(error, RT_CONFIG, "network.port: %u, but network.coordinator says %u",
                         config->network_port, port);
    if (!status && config->network_ps_count && config->network_ps_count != config->ps_shard_count)
        status = rt_fail(error, RT_CONFIG,
                         "network.ps: %u addresses, expected one for each of the "
                         "%u of ps.shards",
                         config->network_ps_count, config->ps_shard_count);
    for (uint32_t i = 0; i < config->network_ps_count && !status; i++) {
        snprintf(path, sizeof path, "network.ps[%u]", i);
        status = check_address(path, config->network_ps[i], &port, error);
        if (!status && strcmp(config->network_ps[i], config->network_coordinator) == 0)
            status = rt_fail(error, RT_CONFIG, "%s: is also network.coordinator", path);
        for (uint32_t j = 0; j < i && !status; j++)
            if (strcmp(config->network_ps[i], config->network_ps[j]) == 0)
                status = rt_fail(error, RT_CONFIG, "%s: is also that of shard %u", path, j);
    }
    return status;
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
    for (size_t i = 0; i < RT_COUNT_OF(parts); i++)
        *(parts[i].value[0] ? &given : &missing) = parts[i].path;
    if (given && missing)
        return rt_fail(error, RT_CONFIG, "%s: is needed where %s is given", missing, given);
    if (given && config->security_insecure)
        return rt_fail(error, RT_CONFIG, "security.insecure: true makes no sense with keys (%s)",
                       given);
    if (given && config->network_transport != RT_NETWORK_ZMQ)
        return rt_fail(error, RT_CONFIG, "network.transport: UCX knows no keys (%s); use \"zmq\"",
                       given);
    return RT_OK;
}

// "auto", "cpu", "cuda", "cuda:0".
static rt_status check_device(const rt_config *config, rt_error *error)
{
    static const char gpu[] = "cuda:";
    char shown[RT_CONFIG_SHOWN_MAX];
    const char *name = config->device, *number = name + sizeof gpu - 1;
    if (strcmp(name, "auto") == 0 || strcmp(name, "cpu") == 0 || strcmp(name, "cuda") == 0 ||
        (strncmp(name, gpu, sizeof gpu - 1) == 0 && *number &&
         number[strspn(number, "0123456789")] == '\0'))
        return RT_OK;
    return rt_fail(error, RT_CONFIG,
                   "device: %s is unknown, expected \"auto\", \"cpu\", \"cuda\", or a GPU by its "
                   "number: \"cuda:0\"",
                   rt_config_show_text(name, shown));
}

rt_status rt_config_check(const rt_config *config, rt_error *error)
{
    rt_status status = check_files(&config->stream, error);
    return status ? status : rt_config_check_model(config, error);
}

rt_status rt_config_check_model(const rt_config *config, rt_error *error)
{
    rt_status status = check_links(config, error);
    if (status == RT_OK)
        status = check_participants(config, error);
    if (status == RT_OK)
        status = check_rows(config, error);
    if (status == RT_OK)
        status = check_device(config, error);
    if (status == RT_OK)
        status = check_rate(&config->optimizer_rows, "optimizer.rows", error);
    if (status == RT_OK)
        status = check_rate(&config->optimizer_dense, "optimizer.dense", error);
    if (status == RT_OK && config->stream.format == RT_FORMAT_TABLE)
        status = check_table(&config->stream.table, error);
    if (status == RT_OK)
        status = check_network(config, error);
    if (status == RT_OK)
        status = check_security(config, error);
    if (status == RT_OK && config->dense_wire == RT_DENSE_BF16 &&
        (config->collective == RT_COLLECTIVE_MPI || config->collective == RT_COLLECTIVE_NCCL))
        status = rt_fail(error, RT_CONFIG,
                         "network.dense_wire: \"bf16\" is for network.collective \"ps\" only");
    if (status == RT_OK && config->sim_iterations > 0 &&
        config->sim_warmup >= config->sim_iterations)
        status = rt_fail(error, RT_CONFIG,
                         "sim.warmup: %u iterations leave none of the %llu of sim.iterations",
                         config->sim_warmup, (unsigned long long)config->sim_iterations);
    return status;
}

rt_status rt_config_check_training(const rt_config *config, rt_error *error)
{
    const rt_model_config *model = &config->model;
    if (config->dispatch.participants != RT_PARTICIPANTS_ALL &&
        (config->collective == RT_COLLECTIVE_MPI || config->collective == RT_COLLECTIVE_NCCL))
        return rt_fail(error, RT_CONFIG,
                       "network.collective: \"%s\" takes all workers into every iteration, "
                       "expected \"ps\" or \"auto\" where dispatch.participants is not \"all\"",
                       rt_config_choice_name("network.collective", (int)config->collective));
    for (uint32_t f = 1; f < model->embedding_dim_count; f++) {
        if (model->embedding_dims[f] != model->embedding_dims[0])
            return rt_fail(error, RT_CONFIG,
                           "model.embedding_dim: %u floats for field %u, %u for field 0, but a "
                           "training run needs rows of one length (`lanyard sim` does not)",
                           model->embedding_dims[f], f, model->embedding_dims[0]);
    }
    return RT_OK;
}
