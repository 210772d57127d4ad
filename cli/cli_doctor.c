// `lanyard doctor`: whether this box can take part in the run of a configuration, and what to fix.
//
// Looks, and changes nothing: it listens for a moment where a run would, and knocks at the ports of
// other boxes. Everything is tried, also after something failed.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/timex.h>
#include <unistd.h>
#include <zmq.h>

#include "cli/cli.h"
#include "cli/cli_plan.h"
#include "edge_worker/device/ew_device.h"
#include "runtime/config/rt_address.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/wire/rt_control.h"
#include "runtime/rt_json.h"
#include "runtime/transport/rt_keys.h"

#define FINDINGS_MAX 128
#define KNOCK_MS 2000
#define FILES_WANTED 1024
#define PROCESS_BYTES 100e6 // beside what is planned: code, BLAS, buffers

typedef enum { FINE, LOOK, BROKEN } grade; // LOOK: works, but somebody should look at it

typedef struct {
    grade grade;
    const char *subject;
    char text[512];
} finding;

typedef struct {
    const char *out;
    rt_config config;
    finding findings[FINDINGS_MAX];
    uint32_t count;
    bool has_coordinator; // this box is where the configuration puts it
    uint32_t shards_here;
} doctor;

static void say(doctor *d, grade as, const char *subject, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void say(doctor *d, grade as, const char *subject, const char *format, ...)
{
    va_list arguments;
    if (d->count == FINDINGS_MAX)
        return;
    finding *one = &d->findings[d->count++];
    one->grade = as;
    one->subject = subject;
    va_start(arguments, format);
    vsnprintf(one->text, sizeof one->text, format, arguments);
    va_end(arguments);
}

// ---- network ---------------------------------------------------------------------------------

// 0: a process of this box can listen there. Otherwise why not.
static int try_listen(const struct addrinfo *at)
{
    const int yes = 1;
    int reason = 0, one = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (one < 0)
        return errno;
    (void)setsockopt(one, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes); // as ZeroMQ does
    if (bind(one, at->ai_addr, at->ai_addrlen) != 0 || listen(one, 1) != 0)
        reason = errno;
    close(one);
    return reason;
}

// 0: somebody accepts connections there.
static int knock(const struct addrinfo *at)
{
    int reason = 0, one = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = sizeof reason;
    if (one < 0)
        return errno;
    if (connect(one, at->ai_addr, at->ai_addrlen) != 0) {
        struct pollfd item = {one, POLLOUT, 0};
        if (errno != EINPROGRESS)
            reason = errno;
        else if (poll(&item, 1, KNOCK_MS) <= 0)
            reason = ETIMEDOUT;
        else if (getsockopt(one, SOL_SOCKET, SO_ERROR, &reason, &size) != 0)
            reason = errno;
    }
    close(one);
    return reason;
}

// An address that the configuration gives to a process. True: it is one of this box.
static bool check_place(doctor *d, const char *who, const char *address)
{
    char host[RT_PATH_MAX], service[16];
    uint32_t port;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    if (!rt_address_split(address, host, sizeof host, &port))
        return false; // the check of the configuration says so
    snprintf(service, sizeof service, "%" PRIu32, port);
    int reason = getaddrinfo(host, service, &hints, &found);
    if (reason) {
        say(d, BROKEN, "names", "%s at %s: %s: the name must be in DNS or in /etc/hosts", who,
            address, gai_strerror(reason));
        return false;
    }
    int here = try_listen(found);
    if (here == 0)
        say(d, FINE, "ports", "%s can listen at %s, an address of this box", who, address);
    else if (here == EADDRINUSE)
        say(d, LOOK, "ports",
            "%s: %s is an address of this box, and the port is taken: by the run "
            "itself, or choose another (`ss -ltnp` shows by whom)",
            who, address);
    else if (here == EACCES)
        say(d, BROKEN, "ports", "%s: this user may not listen at %s: take a port above 1023", who,
            address);
    if (here == 0 || here == EADDRINUSE || here == EACCES) {
        freeaddrinfo(found);
        return true;
    }
    int there = knock(found);
    freeaddrinfo(found);
    if (there == 0)
        say(d, FINE, "ports", "%s takes connections: %s, on another box", address, who);
    else if (there == ECONNREFUSED)
        say(d, LOOK, "ports", "%s: the box of %s is there, but nobody listens: not started yet?",
            who, address);
    else
        say(d, BROKEN, "ports",
            "%s: no way to %s: %s: is the address right, the box on, the port "
            "open in its firewall?",
            who, address, strerror(there));
    return false;
}

static void check_network(doctor *d)
{
    const rt_config *config = &d->config;
    char name[32], host[RT_PATH_MAX];
    rt_error error;
    if (config->network_interface[0]) {
        if (rt_address_of_interface(config->network_interface, host, sizeof host, &error))
            say(d, BROKEN, "interface", "%s", error.text);
        else
            say(d, FINE, "interface", "%s has the address %s", config->network_interface, host);
    }
    if (!config->network_coordinator[0]) {
        say(d, config->network_ps_count ? LOOK : FINE, "names",
            "network.coordinator is not given: right for `lanyard up`; on several boxes give it");
        d->has_coordinator = true;
        d->shards_here = config->ps_shard_count;
        return;
    }
    d->has_coordinator = check_place(d, "coordinator", config->network_coordinator);
    for (uint32_t i = 0; i < config->network_ps_count; i++)
        d->shards_here +=
            check_place(d, rt_peer_name(rt_peer(RT_ROLE_PS, i), name), config->network_ps[i]);
}

// ---- keys ------------------------------------------------------------------------------------

static void check_keys(doctor *d)
{
    const rt_config *config = &d->config;
    rt_keys *keys = rt_alloc(1, sizeof *keys);
    rt_error error = {0};
    if (!keys)
        say(d, BROKEN, "keys", "out of memory");
    else if (!config->security_key[0] && config->security_insecure)
        say(d, LOOK, "keys",
            "security.insecure: whoever reaches the network can join, read the "
            "data and change the model; `lanyard keygen` makes keys");
    else if (!config->security_key[0] && config->network_coordinator[0] &&
             !rt_address_is_loopback(config->network_coordinator))
        say(d, BROKEN, "keys",
            "none, but %s is no loopback address: run `lanyard keygen`, give "
            "security.key, security.allow, security.server_key",
            config->network_coordinator);
    else if (!config->security_key[0])
        say(d, FINE, "keys", "none, and none are needed: only loopback addresses are used");
    else if (rt_keys_load(config, keys, &error))
        say(d, BROKEN, "keys", "%s", error.text);
    else if (!rt_keys_find(keys, keys->coordinator.bytes))
        say(d, BROKEN, "keys",
            "security.server_key is that of box %s, which security.allow does "
            "not have: copy its .public file there",
            keys->coordinator.name);
    else {
        say(d, FINE, "keys", "this is box %s, the coordinator's is %s, %" PRIu32 " may join",
            keys->own.name, keys->coordinator.name, keys->allowed_count);
        if (d->has_coordinator && config->network_coordinator[0] &&
            memcmp(keys->own.bytes, keys->coordinator.bytes, RT_KEY_BYTES) != 0)
            say(d, BROKEN, "keys",
                "the coordinator belongs on this box by its address, and on box "
                "%s by its key: one of security.server_key and network.coordinator is wrong",
                keys->coordinator.name);
    }
    if (keys)
        rt_keys_clear(keys);
    rt_free(keys);
}

// ---- the machine -----------------------------------------------------------------------------

static void check_clock(doctor *d)
{
    struct timex now = {0};
    int state = adjtimex(&now);
    if (state < 0)
        say(d, LOOK, "clock", "cannot be asked: %s", strerror(errno));
    else if (state == TIME_ERROR || (now.status & STA_UNSYNC))
        say(d, LOOK, "clock",
            "is not synchronised: runs do not care, but logs of several boxes "
            "will not line up (systemd-timesyncd or chrony would)");
    else
        say(d, FINE, "clock", "synchronised, at most %.1f ms off", (double)now.maxerror * 1e-3);
}

// Whether this user may write there. inside: only of interest where the folder is there.
static void check_folder(doctor *d, const char *folder, bool inside)
{
    if (access(folder, R_OK | W_OK | X_OK) == 0)
        say(d, FINE, "rights", "this user can write to %s", folder);
    else if (errno == ENOENT && !inside)
        say(d, LOOK, "rights", "%s is not there; a run makes it if its parent is", folder);
    else if (errno != ENOENT)
        say(d, BROKEN, "rights",
            "this user cannot write to %s: %s: is it the one that runs the service, and the "
            "folder's owner?",
            folder, strerror(errno));
}

// Where a run that went on from there would read and write: somebody else may have made it.
static void check_checkpoints(doctor *d)
{
    char folder[RT_PATH_MAX + 16], newest[RT_FOLDER_MAX];
    uint32_t *iterations, count;
    const char *given = d->config.checkpoint.directory;
    if (!*given && !d->out)
        return;
    snprintf(folder, sizeof folder, "%s%s", *given ? given : d->out, *given ? "" : "/checkpoints");
    check_folder(d, folder, !*given);
    if (rt_checkpoint_list(folder, &iterations, &count, NULL) || count == 0)
        return;
    if (!rt_checkpoint_path(folder, iterations[count - 1], newest, sizeof newest, NULL))
        check_folder(d, newest, true);
    rt_free(iterations);
}

static void check_rights(doctor *d)
{
    struct rlimit files;
    check_folder(d, d->out ? d->out : ".", !d->out);
    check_checkpoints(d);
    for (uint32_t i = 0; d->has_coordinator && i < d->config.stream.file_count; i++) {
        const char *path = d->config.stream.files[i];
        if (d->config.stream.format != RT_FORMAT_SYNTHETIC && strcmp(path, "-") != 0 &&
            access(path, R_OK) != 0)
            say(d, BROKEN, "rights", "stream.files: %s: %s", path, strerror(errno));
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max < FILES_WANTED)
        say(d, LOOK, "rights",
            "at most %lu open files: strangers' connections could use them up; "
            "raise the limit (LimitNOFILE= in a unit) to %d or more",
            (unsigned long)files.rlim_max, FILES_WANTED);
}

static double model_bytes(const doctor *d, const cli_plan *plan)
{
    double rows = plan->distinct_keys ? (double)plan->distinct_keys / d->config.ps_shard_count : 0;
    return rows * (double)(plan->row_bytes + plan->state_bytes + 16) * d->shards_here +
           (double)plan->dense_bytes * 3;
}

static void check_disk(doctor *d, const cli_plan *plan)
{
    const char *folder = d->out && access(d->out, F_OK) == 0 ? d->out : ".";
    struct statvfs info;
    const double wanted = 2 * model_bytes(d, plan); // the new one is written beside the old
    if (statvfs(folder, &info) != 0) {
        say(d, LOOK, "disk", "%s: %s", folder, strerror(errno));
        return;
    }
    const double left = (double)info.f_bavail * (double)info.f_frsize;
    say(d,
        left < wanted         ? BROKEN
        : left < wanted + 1e9 ? LOOK
                              : FINE,
        "disk", "%.1f GB are free at %s, %s %.2f GB for a model and its successor%s", left * 1e-9,
        folder, plan->distinct_keys ? "a run needs" : "without its rows a run needs", wanted * 1e-9,
        left < wanted ? ": make room" : "");
}

static void check_memory(doctor *d, const cli_plan *plan)
{
    unsigned long long available_kb = 0;
    char line[256];
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &available_kb) == 1)
            break;
    if (file)
        fclose(file);
    const bool all_here = !d->config.network_coordinator[0];
    const uint32_t workers = all_here ? d->config.worker_count : !d->has_coordinator;
    const double wanted = (double)plan->worker_bytes * workers +
                          (double)plan->shard_bytes * d->shards_here +
                          (double)plan->coordinator_bytes * d->has_coordinator +
                          PROCESS_BYTES * (workers + d->shards_here + d->has_coordinator);
    const double available = (double)available_kb * 1024;
    say(d, available < wanted ? BROKEN : FINE, "memory",
        "%.2f GB are available, %u workers, %u shards%s on this box take about %.2f GB%s",
        available * 1e-9, workers, d->shards_here, d->has_coordinator ? ", the coordinator" : "",
        wanted * 1e-9,
        available < wanted ? ": lower cache.rows, or spread the shards over more boxes" : "");
}

static void check_device(doctor *d)
{
    ew_device device;
    rt_error error = {0};
    if (d->config.network_coordinator[0] && d->has_coordinator) {
        say(d, FINE, "device", "not looked at: the coordinator's box computes nothing");
        return;
    }
    if (ew_device_open(d->config.device, &device, &error)) {
        say(d, BROKEN, "device", "%s: %s", d->config.device, error.text);
        return;
    }
    say(d, FINE, "device", "%s", device.description);
    ew_device_close(&device);
}

static void check_versions(doctor *d)
{
    int major, minor, patch;
    zmq_version(&major, &minor, &patch);
    say(d, FINE, "versions", "lanyard %s, protocol %u: all boxes need the same; libzmq %d.%d.%d",
        RT_PROGRAM_VERSION, RT_WIRE_VERSION, major, minor, patch);
    if (!zmq_has("curve"))
        say(d, d->config.security_key[0] ? BROKEN : LOOK, "versions",
            "this libzmq was built without CURVE: there can be no keys; Debian's libzmq5 has it");
}

static void check_plan(doctor *d)
{
    cli_plan plan;
    rt_error error = {0};
    rt_status status = cli_plan_make(&d->config, false, &plan, &error);
    if (status == RT_IO && !d->has_coordinator) {
        say(d, FINE, "memory", "not planned: the input is on the coordinator's box");
        return;
    }
    if (status) {
        say(d, BROKEN, "memory", "%s", error.text);
        return;
    }
    check_memory(d, &plan);
    check_disk(d, &plan);
}

// ---- the report ------------------------------------------------------------------------------

static const char *const grade_names[] = {"ok", "look", "FIX"};

static void print_text(const doctor *d)
{
    for (uint32_t i = 0; i < d->count; i++) {
        const finding *one = &d->findings[i];
        printf("%-4s %-10s %s\n", grade_names[one->grade], one->subject, one->text);
    }
}

static void print_json(const doctor *d, bool healthy)
{
    static const char *const names[] = {"ok", "look", "fix"};
    rt_json json;
    rt_json_init(&json, 2);
    rt_json_begin_object(&json, NULL);
    rt_json_bool(&json, "healthy", healthy);
    rt_json_begin_array(&json, "findings");
    for (uint32_t i = 0; i < d->count; i++) {
        rt_json_begin_object(&json, NULL);
        rt_json_string(&json, "grade", names[d->findings[i].grade]);
        rt_json_string(&json, "subject", d->findings[i].subject);
        rt_json_string(&json, "text", d->findings[i].text);
        rt_json_end_object(&json);
    }
    rt_json_end_array(&json);
    rt_json_end_object(&json);
    const char *text = rt_json_text(&json, NULL);
    if (text)
        printf("%s\n", text);
    rt_json_fini(&json);
}

static rt_status load(doctor *d, const char *path, const char *const *sets, uint32_t set_count,
                      rt_error *error)
{
    rt_status status = rt_config_init(&d->config);
    if (status)
        return rt_fail(error, status, "out of memory");
    status = rt_config_load(&d->config, path, error);
    for (uint32_t i = 0; i < set_count && !status; i++)
        status = rt_config_set(&d->config, sets[i], error);
    if (!status)
        status = rt_config_check(&d->config, error);
    if (!status)
        status = rt_config_check_training(&d->config, error);
    if (status)
        rt_config_fini(&d->config);
    return status;
}

static void examine(doctor *d)
{
    say(d, FINE, "config", "can be read, and its parts fit together");
    check_versions(d);
    check_network(d);
    check_keys(d);
    check_clock(d);
    check_rights(d);
    check_plan(d);
    check_device(d);
    rt_config_fini(&d->config);
}

int cli_doctor(int argc, char **argv)
{
    rt_error error = {0};
    const char *path = NULL, *sets[CLI_SETS_MAX];
    uint32_t set_count;
    bool as_json = false, healthy = true;
    doctor d = {0};
    const cli_option options[] = {{"out", &d.out, NULL}, {"json", NULL, &as_json}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &path, sets, &set_count))
        return CLI_USAGE;
    if (!path) {
        fprintf(stderr, "lanyard doctor: which CONFIG? (see lanyard doctor --help)\n");
        return CLI_USAGE;
    }
    rt_log_setup(RT_LOG_ERROR, "doctor");
    if (load(&d, path, sets, set_count, &error))
        say(&d, BROKEN, "config", "%s", error.text);
    else
        examine(&d);
    for (uint32_t i = 0; i < d.count; i++)
        healthy = healthy && d.findings[i].grade != BROKEN;
    if (as_json)
        print_json(&d, healthy);
    else
        print_text(&d);
    return healthy ? CLI_OK : CLI_FAILED;
}
