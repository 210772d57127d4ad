#include "dispatch/coordinator/dp_running.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/rt_log.h"

#define PATH_SIZE (RT_PATH_MAX + 32)

static bool write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    if (!file)
        return false;
    const bool is_written = fputs(text, file) >= 0;
    return fclose(file) == 0 && is_written;
}

void dp_running_tell(const rt_config *config, const char *directory, const char *address)
{
    rt_config told;
    char path[PATH_SIZE], *json = NULL;
    const char *scheme_end = strstr(address, "://");
    if (rt_config_copy(config, &told))
        return;
    if (scheme_end)
        address = scheme_end + 3;
    snprintf(told.network_coordinator, sizeof told.network_coordinator, "%s", address);
    snprintf(path, sizeof path, "%s/" DP_RUNNING, directory);
    if (rt_config_to_json(&told, &json) || !write_text(path, json))
        rt_warn("%s: cannot be written: `lanyard set` does not find this run", path);
    rt_free(json);
    rt_config_fini(&told);
}

void dp_running_end(const char *directory)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/" DP_RUNNING, directory);
    (void)unlink(path);
}
