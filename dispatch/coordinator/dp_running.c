#include "dispatch/coordinator/dp_running.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/files/rt_file.h"
#include "runtime/rt_log.h"

#define PATH_SIZE (RT_PATH_MAX + 32)

void dp_running_tell(const rt_config *config, const char *directory, const char *address)
{
    rt_config told;
    rt_error error = {0};
    char path[PATH_SIZE], *json = NULL;
    const char *scheme_end = strstr(address, "://");
    if (rt_config_copy(config, &told))
        return;
    if (scheme_end)
        address = scheme_end + 3;
    snprintf(told.network_coordinator, sizeof told.network_coordinator, "%s", address);
    snprintf(path, sizeof path, "%s/" DP_RUNNING, directory);
    rt_status status = rt_config_to_json(&told, &json);
    if (status)
        rt_fail(&error, status, "%s: cannot be written", path);
    else
        status = rt_file_save(path, json, strlen(json), &error);
    if (status)
        rt_warn("%s: `lanyard set` does not find this run", error.text);
    rt_free(json);
    rt_config_fini(&told);
}

void dp_running_end(const char *directory)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/" DP_RUNNING, directory);
    (void)unlink(path);
}
