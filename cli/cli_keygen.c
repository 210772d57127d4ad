// `lanyard keygen`: the key pair of one box.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "runtime/transport/rt_keys.h"

// The name of this machine up to the first dot.
static void default_name(char name[RT_NAME_MAX])
{
    if (gethostname(name, RT_NAME_MAX) != 0)
        strcpy(name, "box");
    name[RT_NAME_MAX - 1] = '\0';
    name[strcspn(name, ".")] = '\0';
}

int cli_keygen(int argc, char **argv)
{
    rt_error error = {0};
    const char *directory = NULL, *name = NULL, *sets[CLI_SETS_MAX];
    char own[RT_NAME_MAX];
    uint32_t set_count;
    const cli_option options[] = {{"name", &name, NULL}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &directory, sets, &set_count))
        return CLI_USAGE;
    if (!directory || set_count) {
        fprintf(stderr, "lanyard keygen: expected a directory for the two files of the key\n");
        return CLI_USAGE;
    }
    default_name(own);
    name = name ? name : own;
    if (rt_keys_create(directory, name, &error))
        return cli_fail(&error);
    printf("%s/%s.secret  stays on box %s: security.key\n"
           "%s/%s.public  goes to every box: security.allow, or security.server_key if the "
           "coordinator runs on box %s\n",
           directory, name, name, directory, name, name);
    return CLI_OK;
}
