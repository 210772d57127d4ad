// cli_manual - manual pages, made from the tables of commands and keys.
#ifndef CLI_MANUAL_H
#define CLI_MANUAL_H

#include "cli/cli.h"

// lanyard.1, lanyard-COMMAND.1 and lanyard-config.5 in a folder that is there. RT_IO names the
// file.
rt_status cli_manual_write(const cli_commands *all, const char *folder, rt_error *error);

#endif
