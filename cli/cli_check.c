// `lanyard check`: a configuration with all its defaults, or the reference of all keys.
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"

static int print_document(void)
{
    char *markdown;
    if (rt_config_document(&markdown))
        return CLI_FAILED;
    int code = fputs(markdown, stdout) >= 0 ? CLI_OK : CLI_FAILED;
    rt_free(markdown);
    return code;
}

int cli_check(int argc, char **argv)
{
    const char *path = NULL, *sets[CLI_SETS_MAX];
    uint32_t set_count;
    bool document = false;
    rt_config config;
    rt_error error = {0};
    char *json;
    const cli_option options[] = {{"document", NULL, &document}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &path, sets, &set_count))
        return CLI_USAGE;
    if (document)
        return print_document();
    if (!cli_load(path, sets, set_count, "lanyard", &config))
        return CLI_FAILED;
    rt_status status = rt_config_to_json(&config, &json);
    rt_config_fini(&config);
    if (status) {
        rt_fail(&error, status, "out of memory");
        return cli_fail(&error);
    }
    int code = puts(json) >= 0 ? CLI_OK : CLI_FAILED;
    rt_free(json);
    return code;
}
