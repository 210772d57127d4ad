// cli_words - what a command takes, read out of the text of its usage, so that help, manual pages
// and completion say the same.
#ifndef CLI_WORDS_H
#define CLI_WORDS_H

#include "cli/cli.h"

#define CLI_WORDS_MAX 32
#define CLI_WORD_BYTES 32

// "--out DIR", or an argument that is explained ("MODEL").
typedef struct {
    char name[CLI_WORD_BYTES];  // "--out", "MODEL"
    char value[CLI_WORD_BYTES]; // "DIR"; "" of a flag and of an argument
    const char *text;           // its lines in command->options; NULL: none
    size_t text_size;
} cli_word;

typedef struct {
    cli_word words[CLI_WORDS_MAX]; // explained ones first, in their order
    uint32_t count;
    const char *notes; // what follows them in command->options, to its end; "" where nothing does
} cli_words;

void cli_words_read(const cli_command *command, cli_words *words);
bool cli_word_is_option(const cli_word *word);

// Calls put for every line of a word's text, without what it is indented by.
void cli_word_lines(const cli_word *word, void (*put)(void *to, const char *line, size_t size),
                    void *to);

// The first argument that is no option ("CONFIG"): "" where there is none.
void cli_words_first(const cli_command *command, char first[CLI_WORD_BYTES]);

// "CONFIG [--set KEY=VALUE]...", with what is common to all commands.
#define CLI_SET_HELP \
    "  --set KEY=VALUE  change one key of CONFIG, for example --set dispatch.alpha=0.5\n"

#endif
