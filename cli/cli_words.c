#include "cli/cli_words.h"

#include <stdio.h>
#include <string.h>

bool cli_word_is_option(const cli_word *word)
{
    return strncmp(word->name, "--", 2) == 0;
}

static cli_word *find(cli_words *words, const char *name)
{
    for (uint32_t i = 0; i < words->count; i++)
        if (strcmp(words->words[i].name, name) == 0)
            return &words->words[i];
    return NULL;
}

static cli_word *add(cli_words *words, const char *name, size_t size)
{
    rt_assert(words->count < CLI_WORDS_MAX && size < CLI_WORD_BYTES);
    cli_word *word = &words->words[words->count++];
    *word = (cli_word){0};
    memcpy(word->name, name, size);
    return word;
}

static void set_value(cli_word *word, const char *value, size_t size)
{
    rt_assert(size < CLI_WORD_BYTES);
    memcpy(word->value, value, size);
    word->value[size] = '\0';
}

static size_t line_size(const char *line)
{
    const size_t size = strcspn(line, "\n");
    return size + (line[size] == '\n');
}

// A line "  --out DIR  text", and the lines below it that are indented further.
static const char *read_item(cli_words *words, const char *line)
{
    const char *term = line + 2, *text = strstr(term, "  ");
    const size_t name = strcspn(term, " \n"), whole = text ? (size_t)(text - term) : name;
    cli_word *word = add(words, term, name);
    if (whole > name + 1)
        set_value(word, term + name + 1, whole - name - 1);
    word->text = term + whole;
    line += line_size(line);
    while (strncmp(line, "   ", 3) == 0)
        line += line_size(line);
    word->text_size = (size_t)(line - word->text);
    return line;
}

static const char *read_items(cli_words *words, const char *text)
{
    while (strncmp(text, "  ", 2) == 0)
        text = read_item(words, text);
    return text;
}

// The next word of a synopsis, without the brackets around it; false at the end.
static bool next_token(const char **at, const char **token, size_t *size)
{
    *token = *at + strspn(*at, " [");
    *size = strcspn(*token, " ]");
    *at = *token + *size;
    *at += strspn(*at, "].");
    return *size > 0;
}

static bool begins_value(const char *at)
{
    return *at == ' ' && at[1] != '[' && at[1] != '-' && at[1] != '|' && at[1] != '\0';
}

// The options of a synopsis that no line explains.
static void read_synopsis(cli_words *words, const char *synopsis)
{
    const char *token;
    size_t size;
    while (next_token(&synopsis, &token, &size)) {
        char name[CLI_WORD_BYTES];
        if (strncmp(token, "--", 2) != 0)
            continue;
        rt_assert(size < sizeof name);
        memcpy(name, token, size);
        name[size] = '\0';
        const bool has_value = token[size] == ' ' && begins_value(token + size);
        cli_word *word = find(words, name);
        if (!word)
            word = add(words, name, size);
        if (has_value && next_token(&synopsis, &token, &size) && !word->value[0])
            set_value(word, token, size);
    }
}

void cli_words_read(const cli_command *command, cli_words *words)
{
    words->count = 0;
    words->notes = "";
    if (command->options)
        words->notes = read_items(words, command->options);
    if (strstr(command->arguments, "--set "))
        read_items(words, CLI_SET_HELP);
    read_synopsis(words, command->arguments);
}

void cli_word_lines(const cli_word *word, void (*put)(void *to, const char *line, size_t size),
                    void *to)
{
    size_t size;
    for (size_t at = 0; word->text && at < word->text_size; at += size) {
        const char *line = word->text + at;
        const size_t spaces = strspn(line, " ");
        size = line_size(line);
        put(to, line + spaces, size - spaces - 1);
    }
}

void cli_words_first(const cli_command *command, char first[CLI_WORD_BYTES])
{
    const char *at = command->arguments, *token;
    size_t size;
    first[0] = '\0';
    if (!next_token(&at, &token, &size) || strncmp(token, "--", 2) == 0)
        return;
    rt_assert(size < CLI_WORD_BYTES);
    memcpy(first, token, size);
    first[size] = '\0';
}
