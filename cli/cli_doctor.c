// `lanyard doctor`: whether this box can take part in the run of a configuration, and what to fix.
//
// Looks, and changes nothing: it listens for a moment where a run would, and asks the coordinator,
// if it is there. Everything is tried, also after something failed.
#include "cli/cli_doctor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/timex.h>
#include <unistd.h>
#include <zmq.h>

#include "cli/cli.h"
#include "cli/cli_plan.h"
#include "edge_worker/device/ew_device.h"
#include "ps_lite/ps_memory.h"
#include "runtime/config/rt_address.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/rt_json.h"
#include "runtime/rt_memory.h"
#include "runtime/transport/rt_keys.h"
#include "runtime/wire/rt_control.h"

#define FILES_WANTED 1024
#define MB 1e-6
#define SPARE_BYTES 1e9 // of a disk: less is worth a look
#define say cli_doctor_say

void cli_doctor_say(doctor *d, grade as, const char *subject, const char *format, ...)
{
    va_list arguments;
    if (d->count == CLI_FINDINGS_MAX)
        return;
    finding *one = &d->findings[d->count++];
    one->grade = as;
    one->subject = subject;
    va_start(arguments, format);
    vsnprintf(one->text, sizeof one->text, format, arguments);
    va_end(arguments);
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

// A folder that is not there is made by a run, if that can be.
static void check_parent(doctor *d, const char *folder)
{
    char parent[RT_PATH_MAX];
    size_t length = strlen(folder);
    if (length > 0 && folder[length - 1] == '/')
        length--;
    snprintf(parent, sizeof parent, "%.*s", (int)length, folder);
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = '\0';
    const char *in = slash ? parent : ".";
    if (access(in, W_OK | X_OK) == 0)
        say(d, LOOK, "rights", "%s is not there; a run makes it", folder);
    else
        say(d, BROKEN, "rights", "%s is not there, and a run cannot make it in %s: %s", folder, in,
            strerror(errno));
}

// Whether this user may write there. inside: only of interest where the folder is there.
static void check_folder(doctor *d, const char *folder, bool inside)
{
    struct stat info;
    const bool is_there = stat(folder, &info) == 0;
    if (!is_there && errno == ENOENT) {
        if (!inside)
            check_parent(d, folder);
        return;
    }
    if (is_there && !S_ISDIR(info.st_mode))
        errno = ENOTDIR;
    else if (access(folder, R_OK | W_OK | X_OK) == 0) {
        say(d, FINE, "rights", "this user can write to %s", folder);
        return;
    }
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
    if (*given)
        snprintf(folder, sizeof folder, "%s", given);
    else if (d->out)
        snprintf(folder, sizeof folder, "%s/checkpoints", d->out);
    else
        return;
    check_folder(d, folder, !*given);
    if (rt_checkpoint_list(folder, &iterations, &count, NULL) || count == 0)
        return;
    if (!rt_checkpoint_path(folder, iterations[count - 1], newest, sizeof newest, NULL))
        check_folder(d, newest, true);
    rt_free(iterations);
}

static void check_input(doctor *d, const char *path)
{
    if (rt_format_is_generated(d->config.stream.format) || strcmp(path, "-") == 0 ||
        access(path, R_OK) == 0)
        return;
    if (errno == ENOENT && cli_doctor_unit_makes(path))
        say(d, LOOK, "rights",
            "stream.files: %s is not there yet: lanyard-coordinator.service "
            "makes the pipe when it starts",
            path);
    else if (errno == ENOENT)
        say(d, BROKEN, "rights", "stream.files: %s: %s: a file, or a pipe that mkfifo makes", path,
            strerror(ENOENT));
    else
        say(d, BROKEN, "rights", "stream.files: %s: %s", path, strerror(errno));
}

static void check_rights(doctor *d)
{
    struct rlimit files;
    if (d->out)
        check_folder(d, d->out, false);
    else
        check_folder(d, ".", true);
    check_checkpoints(d);
    for (uint32_t i = 0; d->has_coordinator && i < d->config.stream.file_count; i++)
        check_input(d, d->config.stream.files[i]);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max < FILES_WANTED)
        say(d, LOOK, "rights",
            "at most %lu open files: strangers' connections could use them up; "
            "raise the limit (LimitNOFILE= in a unit) to %d or more",
            (unsigned long)files.rlim_max, FILES_WANTED);
}

static cli_residents residents_of(const doctor *d)
{
    cli_residents here = {.workers = !d->has_coordinator,
                          .shards = d->shards_here,
                          .has_coordinator = d->has_coordinator};
    if (!d->config.network_coordinator[0]) // all is here
        here.workers = d->config.worker_count;
    return here;
}

static void check_disk(doctor *d, const cli_plan *plan)
{
    const char *folder = d->out && access(d->out, F_OK) == 0 ? d->out : ".";
    const cli_residents here = residents_of(d);
    const double wanted = (double)cli_plan_disk(plan, &d->config, &here);
    struct statvfs info;
    char takes[128];
    if (statvfs(folder, &info) != 0) {
        say(d, LOOK, "disk", "%s: %s", folder, strerror(errno));
        return;
    }
    const double left = (double)info.f_bavail * (double)info.f_frsize;
    const grade enough = left < wanted + SPARE_BYTES ? LOOK : FINE;
    cli_plan_tell_disk(plan, &d->config, &here, takes, sizeof takes);
    if (left < wanted)
        say(d, BROKEN, "disk", "%.1f MB are free at %s: %s: make room", left * MB, folder, takes);
    else
        say(d, enough, "disk", "%.1f MB are free at %s: %s", left * MB, folder, takes);
}

// What new processes may take without pushing others out, as the kernel estimates it, and no more
// than the control group may have.
static double available_bytes(void)
{
    const uint64_t limit = rt_memory_limit();
    uint64_t available_kb = 0;
    char line[256];
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &available_kb) == 1)
            break;
    if (file)
        fclose(file);
    if (limit && limit / 1024 < available_kb)
        return (double)limit;
    return (double)available_kb * 1024;
}

static void check_memory(doctor *d, const cli_plan *plan)
{
    const cli_residents here = residents_of(d);
    const double available = available_bytes(), wanted = (double)cli_plan_memory(plan, &here);
    const double tables = (double)ps_memory_max(&d->config, 0) * here.shards;
    const bool may_grow = !plan->distinct_keys && available < wanted + tables;
    const grade enough = may_grow ? LOOK : FINE;
    char takes[512];
    cli_plan_tell_memory(plan, &d->config, &here, takes, sizeof takes);
    if (available < wanted)
        say(d, BROKEN, "memory",
            "%.1f MB are available: %s: lower cache.rows, or spread the shards over more boxes",
            available * MB, takes);
    else
        say(d, enough, "memory", "%.1f MB are available: %s", available * MB, takes);
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

// Of workers some may do without UCX, where both are spoken.
static void check_transport(doctor *d)
{
    const rt_network_transport kind = d->config.network_transport;
    const rt_transport_ops *ops;
    rt_error error = {0};
    if (kind == RT_NETWORK_ZMQ)
        return;
    const bool may_lack = kind == RT_NETWORK_MIXED && !d->has_coordinator && d->shards_here == 0;
    if (rt_transport_find(kind, &ops, &error))
        say(d, may_lack ? LOOK : BROKEN, "transport", "%s", error.text);
    else
        say(d, FINE, "transport", "%s: its plug-in is there", ops->name);
}

static void check_versions(doctor *d)
{
    int major, minor, patch;
    zmq_version(&major, &minor, &patch);
    say(d, FINE, "versions", "lanyard %s, protocol %u: all boxes need the same; libzmq %d.%d.%d",
        RT_PROGRAM_VERSION, RT_WIRE_VERSION, major, minor, patch);
    const grade without_curve = d->config.security_key[0] ? BROKEN : LOOK;
    if (!zmq_has("curve"))
        say(d, without_curve, "versions",
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

static rt_status check(const rt_config *config, rt_error *error)
{
    rt_status status = rt_config_check(config, error);
    if (status)
        return status;
    return rt_config_check_training(config, error);
}

static rt_status load(doctor *d, const char *path, const char *const *sets, uint32_t set_count,
                      rt_error *error)
{
    rt_status status = rt_config_open(path, sets, set_count, &d->config, error);
    if (status)
        return status;
    status = check(&d->config, error);
    if (status) {
        rt_config_fini(&d->config);
        return status;
    }
    d->identity = cli_identity(&d->config);
    return RT_OK;
}

static void examine(doctor *d)
{
    say(d, FINE, "config", "can be read, and its parts fit together");
    check_versions(d);
    cli_doctor_network(d);
    check_transport(d);
    check_keys(d);
    check_clock(d);
    check_rights(d);
    cli_doctor_units(d);
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
