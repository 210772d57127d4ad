// Key files: whatever their bytes, reading them ends in keys, or in an error that names the file.
#include "runtime/transport/rt_keys.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

// A configuration with good keys in a directory of its own.
static void prepare(char folder[32], rt_config *config)
{
    strcpy(folder, "/tmp/lanyard-fuzz-XXXXXX");
    rt_assert(mkdtemp(folder) && rt_keys_create(folder, "a", NULL) == RT_OK);
    rt_assert(rt_config_init(config) == RT_OK);
}

// The first byte says which of the three files the rest is.
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static char folder[32], path[64];
    static rt_config config;
    static rt_keys keys;
    rt_error error = {0};
    if (!folder[0])
        prepare(folder, &config);
    if (size == 0)
        return 0;
    snprintf(path, sizeof path, "%s/odd", folder);
    snprintf(config.security_key, RT_PATH_MAX, "%s/a.secret", folder);
    snprintf(config.security_allow, RT_PATH_MAX, "%s/a.public", folder);
    snprintf(config.security_server_key, RT_PATH_MAX, "%s/a.public", folder);
    char *const places[] = {config.security_key, config.security_allow, config.security_server_key};
    snprintf(places[bytes[0] % 3], RT_PATH_MAX, "%s", path);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    rt_assert(file >= 0 && write(file, bytes + 1, size - 1) == (ssize_t)(size - 1));
    close(file);
    if (rt_keys_load(&config, &keys, &error))
        rt_assert(strstr(error.text, path) && !keys.is_set);
    return 0;
}
