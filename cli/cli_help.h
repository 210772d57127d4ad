// cli_help - what the program says about itself, all of it from the tables of its commands and of
// the keys: usage, version, manual pages, completion for shells.
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include <stdio.h>

#include "cli/cli.h"

// ---- cli_manual.c -----------------------------------------------------------------------------

// Manual pages, made from the tables of commands and keys.

// lanyard.1, lanyard-COMMAND.1 and lanyard-config.5 in a folder that is there. RT_IO names the
// file.
rt_status cli_manual_write(const cli_commands *all, const char *folder, rt_error *error);

// ---- cli_completion.c -------------------------------------------------------------------------

// What shells complete, made from the tables of commands and keys.

// Functions that the shell reads.
void cli_completion_bash(const cli_commands *all, FILE *out);
void cli_completion_zsh(const cli_commands *all, FILE *out);

// -----------------------------------------------------------------------------------------------

// `lanyard help ...`.
int cli_help(const cli_commands *all, int argc, char **argv);

// `lanyard NAME ... --help`.
int cli_help_command(const cli_command *command);

// The list of all commands: CLI_OK on standard output, CLI_USAGE elsewhere.
int cli_help_usage(const cli_commands *all, FILE *file);

// `lanyard --version`: the build, and what it was built with.
int cli_help_version(void);

#endif
