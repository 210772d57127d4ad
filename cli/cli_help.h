// cli_help - what the program says about itself, all of it from the tables of its commands and of
// the keys: usage, version, manual pages, completion for shells.
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include <stdio.h>

#include "cli/cli.h"

// `lanyard help ...`.
int cli_help(const cli_commands *all, int argc, char **argv);

// `lanyard NAME ... --help`.
int cli_help_command(const cli_command *command);

// The list of all commands: CLI_OK on standard output, CLI_USAGE elsewhere.
int cli_help_usage(const cli_commands *all, FILE *file);

// `lanyard --version`: the build, and what it was built with.
int cli_help_version(void);

#endif
