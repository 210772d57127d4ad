// `lanyard standby` and `promote`: a second box that can lead the run.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "dispatch/coordinator/dp_checkpoint.h"
#include "dispatch/coordinator/dp_coordinator.h"
#include "dispatch/coordinator/dp_members.h"
#include "runtime/config/rt_address.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/live/rt_standby.h"
#include "runtime/transport/rt_ask.h"
#include "runtime/transport/rt_keys.h"
#include "runtime/files/rt_own.h"
#include "runtime/files/rt_file.h"

#define ANSWER_S 10.0

// ---- leading ---------------------------------------------------------------------------------

// "HOST:PORT" of the coordinator's box becomes that of the standby's, on the same port.
static void move_address(char *address, size_t size, const char *from, const char *to)
{
    char host[RT_NAME_MAX], before[RT_NAME_MAX], after[RT_NAME_MAX];
    uint32_t port, unused;
    if (!rt_address_split(address, host, sizeof host, &port) ||
        !rt_address_split(from, before, sizeof before, &unused) ||
        !rt_address_split(to, after, sizeof after, &unused) || strcmp(host, before) != 0)
        return;
    (void)rt_address_join(after, port, address, size);
}

void cli_move_to_standby(rt_config *config)
{
    char from[RT_NAME_MAX], to[RT_NAME_MAX];
    rt_stream_config *stream = &config->stream;
    snprintf(from, sizeof from, "%s", config->network_coordinator);
    snprintf(to, sizeof to, "%s", config->standby);
    char *const places[] = {stream->http_listen, stream->tcp_listen,   stream->join.listen,
                            config->feed_listen, config->watch.listen, config->publish.address};
    for (size_t i = 0; i < RT_COUNT_OF(places); i++)
        move_address(places[i], RT_NAME_MAX, from, to);
    snprintf(config->network_coordinator, sizeof config->network_coordinator, "%s", to);
    if (*config->security_standby_key) // whoever reads running.json expects this box's key
        snprintf(config->security_server_key, sizeof config->security_server_key, "%s",
                 config->security_standby_key);
    config->standby[0] = config->security_standby_key[0] = '\0';
}

static rt_status find_checkpoints(const rt_config *config, const char *out, char *path, size_t size,
                                  rt_error *error)
{
    const char *own = config->checkpoint.directory;
    int length;
    if (*own)
        length = snprintf(path, size, "%s", own);
    else
        length = snprintf(path, size, "%s/checkpoints", out);
    if (length <= 0 || (size_t)length >= size)
        return rt_fail(error, RT_CONFIG, "--out: the path %s is too long", out);
    if (*own)
        return RT_OK;
    return rt_own_check_folder(path, error);
}

rt_status cli_begin_promoted(const rt_config *config, const char *out, rt_error *error)
{
    char checkpoints[RT_PATH_MAX];
    rt_standby_state state;
    if (!out)
        return rt_fail(error, RT_CONFIG, "--promoted: needs --out, the folder of the standby");
    rt_status status = rt_standby_read(out, &state, error);
    if (status)
        return status;
    if (!state.is_promoted)
        return rt_fail(error, RT_CONFIG, "--promoted: %s is no standby that was promoted", out);
    status = find_checkpoints(config, out, checkpoints, sizeof checkpoints, error);
    if (status)
        return status;
    return dp_checkpoint_raise_epoch(checkpoints, state.epoch, error);
}

// ---- following -------------------------------------------------------------------------------

// For `lanyard promote DIR`: the configuration, with the address to ask.
static rt_status tell_running(const rt_config *config, const char *out, rt_error *error)
{
    char path[RT_PATH_MAX + 32], *json;
    if (rt_config_to_json(config, &json))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    snprintf(path, sizeof path, "%s/" DP_RUNNING, out);
    const rt_status status = rt_file_save(path, json, strlen(json), error);
    rt_free(json);
    return status;
}

// What a following standby asks for the keys of boxes that were added.
typedef struct {
    const rt_config *config;
    const char *checkpoints;
} added_place;

static rt_status read_added(void *context, rt_public_key *keys, uint32_t *count_p, rt_error *error)
{
    const added_place *place = context;
    rt_config whole;
    dp_added added;
    if (rt_config_copy(place->config, &whole))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    const rt_status status = dp_members_read_added(place->checkpoints, &whole, &added, error);
    rt_config_fini(&whole);
    *count_p = 0;
    if (status)
        return status;
    for (uint32_t i = 0; i < added.count; i++)
        if (added.of[i].has_key)
            keys[(*count_p)++] = added.of[i].key;
    return RT_OK;
}

// Both locks end with this process's image: the coordinator, which takes its place, takes its own.
static rt_status hold(const char *path, rt_error *error)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return rt_fail(error, rt_status_of_errno(errno), "%s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return RT_OK;
    close(fd);
    return rt_fail(error, RT_IO, "%s: a coordinator or standby uses this folder", path);
}

static rt_status prepare_folder(const rt_config *config, const char *out, rt_error *error)
{
    rt_status status = rt_checkpoint_make(out, error);
    if (status)
        return status;
    status = hold(out, error);
    if (status)
        return status;
    return tell_running(config, out, error);
}

static rt_status follow_with(const rt_config *config, const char *out, rt_keys *keys, int stop_fd,
                             rt_notify *notify, rt_error *error)
{
    char checkpoints[RT_PATH_MAX];
    rt_status status = rt_keys_load(config, keys, error);
    if (status)
        return status;
    status = find_checkpoints(config, out, checkpoints, sizeof checkpoints, error);
    if (status)
        return status;
    status = prepare_folder(config, out, error);
    if (status)
        return status;
    added_place place = {config, checkpoints};
    rt_standby_config standby = {.config = config,
                                 .keys = keys,
                                 .directory = out,
                                 .checkpoints = checkpoints,
                                 .stop_fd = stop_fd,
                                 .notify = notify,
                                 .added_name = DP_MEMBERS_NAME,
                                 .read_added = read_added,
                                 .context = &place};
    status = cli_transport(config, RT_ROLE_COORDINATOR, 0, &standby.ops, error);
    if (!status)
        status = cli_await(config, CLI_STANDBY, 0, stop_fd, notify, error);
    if (status)
        return status;
    return rt_standby_run(&standby, error);
}

static rt_status follow(const rt_config *config, const char *out, rt_notify *notify,
                        rt_error *error)
{
    rt_keys *keys = rt_alloc(1, sizeof *keys);
    if (!keys)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    const int stop_fd = cli_open_stop_fd();
    const rt_status status = follow_with(config, out, keys, stop_fd, notify, error);
    if (stop_fd >= 0)
        close(stop_fd);
    rt_keys_clear(keys);
    rt_free(keys);
    return status;
}

// This process goes on as the coordinator: the same number, so that its unit stays.
static int lead(const char *path, const char *out, const char *const *sets, uint32_t set_count)
{
    char *words[9 + 2 * CLI_SETS_MAX] = {
        "lanyard",   "coordinator", (char *)(uintptr_t)path, "--out", (char *)(uintptr_t)out,
        "--restart", "--promoted"};
    size_t count = 7;
    for (uint32_t i = 0; i < set_count; i++) {
        words[count++] = "--set";
        words[count++] = (char *)(uintptr_t)sets[i];
    }
    execv("/proc/self/exe", words);
    fprintf(stderr, "lanyard standby: cannot become the coordinator: %s\n", strerror(errno));
    return CLI_FAILED;
}

// Until it is promoted, or told to end (RT_STOPPED).
static rt_status stand_by(const rt_config *config, const char *out, rt_notify *notify,
                          rt_error *error)
{
    rt_standby_state state = {0};
    if (!*config->standby)
        return rt_fail(error, RT_CONFIG,
                       "coordinator.standby: where does the standby listen? It is not in the "
                       "configuration");
    const rt_status status = rt_standby_read(out, &state, error);
    if (status || state.is_promoted)
        return status;
    return follow(config, out, notify, error);
}

int cli_standby(int argc, char **argv)
{
    const char *path = NULL, *out = NULL, *sets[CLI_SETS_MAX];
    uint32_t set_count;
    rt_config config;
    rt_error error = {0};
    rt_notify notify;
    const cli_option options[] = {{"out", &out, NULL}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &path, sets, &set_count))
        return CLI_USAGE;
    if (!out) {
        fprintf(stderr, "lanyard standby: where is the run kept? Give --out DIR\n");
        return CLI_USAGE;
    }
    const int code = cli_load_run(path, sets, set_count, "standby", &config);
    if (code == CLI_FAILED)
        return CLI_MEND;
    if (code != CLI_OK)
        return code;
    rt_notify_open(getenv("NOTIFY_SOCKET"), getenv("WATCHDOG_USEC"), getenv("WATCHDOG_PID"),
                   &notify);
    const rt_status status = stand_by(&config, out, &notify, &error);
    rt_notify_close(&notify);
    rt_config_fini(&config);
    if (!status)
        return lead(path, out, sets, set_count);
    if (status == RT_STOPPED)
        return CLI_OK;
    (void)cli_fail(&error);
    return rt_status_lasts(status) ? CLI_MEND : CLI_FAILED;
}

// ---- promoting -------------------------------------------------------------------------------

static rt_status ask_with(const rt_config *config, rt_keys *keys, char text[RT_ASK_BYTES_MAX],
                          rt_error *error)
{
    char address[RT_NAME_MAX + 16];
    rt_ask_config own = {.keys = keys, .coordinator = address, .timeout_s = ANSWER_S};
    rt_status status = cli_transport(config, RT_ROLE_VISITOR, 0, &own.ops, error);
    if (!status)
        status = rt_keys_load(config, keys, error);
    if (status)
        return status;
    snprintf(address, sizeof address, "tcp://%s", config->standby);
    keys->coordinator = keys->standby; // the key that it must prove
    return rt_ask(&own, "promote", text, error);
}

static rt_status ask(const rt_config *config, char text[RT_ASK_BYTES_MAX], rt_error *error)
{
    if (!*config->standby)
        return rt_fail(error, RT_CONFIG,
                       "coordinator.standby: no standby is named, or it already leads the run");
    rt_keys *keys = rt_alloc(1, sizeof *keys);
    if (!keys)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    const rt_status status = ask_with(config, keys, text, error);
    rt_keys_clear(keys);
    rt_free(keys);
    return status;
}

int cli_promote(int argc, char **argv)
{
    const char *path = NULL, *sets[CLI_SETS_MAX];
    char place[RT_PATH_MAX + 32], text[RT_ASK_BYTES_MAX];
    uint32_t set_count;
    struct stat info;
    rt_config config;
    rt_error error = {0};
    if (!cli_parse(argc, argv, NULL, 0, &path, sets, &set_count))
        return CLI_USAGE;
    if (!path) {
        fprintf(stderr, "lanyard promote: which standby? Its folder, or a CONFIG with "
                        "coordinator.standby\n");
        return CLI_USAGE;
    }
    const bool is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    const char *name = is_folder ? "/" DP_RUNNING : "";
    snprintf(place, sizeof place, "%s%s", path, name);
    if (is_folder && access(place, F_OK) != 0) {
        rt_fail(&error, RT_NOT_FOUND, "%s: no standby is there: %s is missing", path, DP_RUNNING);
        return cli_fail(&error);
    }
    const int code = cli_load_model(place, sets, set_count, "lanyard", &config);
    if (code != CLI_OK)
        return code;
    const rt_status status = ask(&config, text, &error);
    rt_config_fini(&config);
    if (status)
        return cli_fail(&error);
    printf("%s\n", text);
    return CLI_OK;
}
