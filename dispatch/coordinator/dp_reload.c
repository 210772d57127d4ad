#include "dispatch/coordinator/dp_reload.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "dispatch/coordinator/dp_members.h"
#include "runtime/rt_json.h"
#include "runtime/rt_log.h"

#define LOOK_NS UINT64_C(1000000000)

static const char *const reloadable[] = {"dispatch.alpha", "dispatch.search_evaluations",
                                         "dispatch.budget_ms"};

void dp_reload_init(const dp_reload_source *source, const rt_config *running, dp_reload *reload)
{
    *reload = (dp_reload){.source = source, .running = running};
}

// The file differs from the one read last.
static bool is_due(dp_reload *reload, uint64_t now_ns)
{
    struct stat info = {0}; // stays zero where the file is gone
    if (reload->was_read && now_ns - reload->looked_ns < LOOK_NS)
        return false;
    reload->looked_ns = now_ns;
    if (stat(reload->source->path, &info) != 0)
        info = (struct stat){0};
    bool same = reload->was_read && reload->changed_s == info.st_mtim.tv_sec &&
                reload->changed_ns == info.st_mtim.tv_nsec && reload->size == info.st_size &&
                reload->inode == info.st_ino && reload->device == info.st_dev;
    reload->was_read = true;
    reload->changed_s = info.st_mtim.tv_sec;
    reload->changed_ns = info.st_mtim.tv_nsec;
    reload->size = info.st_size;
    reload->inode = info.st_ino;
    reload->device = info.st_dev;
    return !same;
}

static bool is_reloadable(const char *path)
{
    for (size_t i = 0; i < RT_COUNT_OF(reloadable); i++) {
        if (strcmp(reloadable[i], path) == 0)
            return true;
    }
    return false;
}

static void name_others(const rt_config *running, const rt_config *fresh, char *text, size_t size)
{
    uint32_t at = 0;
    size_t used = 0;
    *text = '\0';
    for (const char *path; used < size && (path = rt_config_difference(running, fresh, &at));) {
        if (!is_reloadable(path))
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", path);
    }
}

static rt_status check(const rt_config *fresh, rt_error *error)
{
    rt_status status = rt_config_check(fresh, error);
    if (status)
        return status;
    return rt_config_check_training(fresh, error);
}

// restart: the other keys that differ from the running configuration ("" if none), cut to size.
static rt_status read_file(const dp_reload *reload, dp_reloaded *values, char *restart, size_t size,
                           rt_error *error)
{
    rt_config fresh;
    const dp_reload_source *source = reload->source;
    rt_status status = rt_config_open(source->path, source->sets, source->set_count, &fresh, error);
    if (status)
        return status;
    status = check(&fresh, error);
    if (!status) {
        *values = (dp_reloaded){fresh.dispatch.alpha, fresh.dispatch.alpha_auto,
                                fresh.dispatch.search_evaluations,
                                rt_dispatch_budget_ms(&fresh.dispatch)};
        if (source->adapt)
            source->adapt(&fresh);
        if (reload->added_from && fresh.box_count == reload->added_from)
            (void)dp_added_adopt(reload->running, &fresh, NULL); // else boxes differ, which is said
        name_others(reload->running, &fresh, restart, size);
    }
    rt_config_fini(&fresh);
    return status;
}

static const char *alpha_text(const dp_reloaded *values, char text[32])
{
    if (values->alpha_auto)
        return "\"auto\"";
    return rt_json_format_double(values->alpha, text);
}

static const char *budget_text(double budget_ms, char text[32])
{
    if (budget_ms == RT_BUDGET_AUTO)
        return "\"auto\"";
    snprintf(text, 32, "%g", budget_ms);
    return text;
}

static void tell_changes(const dp_reloaded *old, const dp_reloaded *values)
{
    char from[32], to[32];
    if (values->alpha != old->alpha || values->alpha_auto != old->alpha_auto)
        rt_info("dispatch.alpha reloaded: %s -> %s", alpha_text(old, from), alpha_text(values, to));
    if (values->search_evaluations != old->search_evaluations)
        rt_info("dispatch.search_evaluations reloaded: %" PRIu32 " -> %" PRIu32,
                old->search_evaluations, values->search_evaluations);
    if (values->budget_ms != old->budget_ms)
        rt_info("dispatch.budget_ms reloaded: %s -> %s", budget_text(old->budget_ms, from),
                budget_text(values->budget_ms, to));
}

bool dp_reload_look(dp_reload *reload, bool asked, uint64_t now_ns, const dp_reloaded *in_force,
                    dp_reloaded *values)
{
    char restart[512];
    rt_error error = {0};
    if (!reload->source->path)
        return false;
    const bool due = is_due(reload, now_ns);
    if (!asked && !due)
        return false;
    if (read_file(reload, values, restart, sizeof restart, &error)) {
        rt_warn("the configuration was not reloaded, the values in force stay: %s", error.text);
        return false;
    }
    tell_changes(in_force, values);
    if (*restart)
        rt_warn("%s: needs a restart to take effect: %s", reload->source->path, restart);
    return true;
}
