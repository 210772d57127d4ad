// cli_completion - what shells complete, made from the tables of commands and keys.
#ifndef CLI_COMPLETION_H
#define CLI_COMPLETION_H

#include <stdio.h>

#include "cli/cli.h"

// Functions that the shell reads.
void cli_completion_bash(const cli_commands *all, FILE *out);
void cli_completion_zsh(const cli_commands *all, FILE *out);

#endif
