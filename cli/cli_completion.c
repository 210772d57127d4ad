// Completion for bash and zsh, made from the tables of commands and keys.
#include <string.h>

#include "cli/cli_help.h"
#include "cli/cli_words.h"

// What may follow, by its name in the usage.
typedef enum { KIND_NONE, KIND_FILE, KIND_FOLDER, KIND_KEY, KIND_COMMAND, KIND_WORDS } kind;

static kind kind_of(const char *value)
{
    static const struct {
        const char *name;
        kind kind;
    } names[] = {{"CONFIG", KIND_FILE},   {"FILE", KIND_FILE},      {"ROWS", KIND_FILE},
                 {"DIR", KIND_FOLDER},    {"FOLDER", KIND_FOLDER},  {"MODEL", KIND_FOLDER},
                 {"SOURCE", KIND_FOLDER}, {"RUN", KIND_FOLDER},     {"RUN...", KIND_FOLDER},
                 {"KEY=VALUE", KIND_KEY}, {"COMMAND", KIND_COMMAND}};
    for (size_t i = 0; i < RT_COUNT_OF(names); i++)
        if (strcmp(value, names[i].name) == 0)
            return names[i].kind;
    return strchr(value, '|') ? KIND_WORDS : KIND_NONE;
}

// "cpu|cuda:N" as words.
static void put_alternatives(FILE *out, const char *value)
{
    for (; *value; value++)
        fputc(*value == '|' ? ' ' : *value, out);
}

// One of several, with a space between them; end: of each.
static void put_word(FILE *out, size_t index, const char *word, const char *end)
{
    if (index > 0)
        fputc(' ', out);
    fprintf(out, "%s%s", word, end);
}

static void put_command_names(FILE *out, const cli_commands *all)
{
    for (size_t i = 0; i < all->count; i++)
        put_word(out, i, all->commands[i].name, "");
}

static void put_keys(FILE *out)
{
    const char *path;
    for (uint32_t i = 0; (path = rt_config_key_path(i)); i++)
        put_word(out, i, path, "=");
}

// "KEY) words='...' ;;" for every key that takes one of some words.
static void put_key_words(FILE *out, const char *indent)
{
    const char *path, *word;
    for (uint32_t i = 0; (path = rt_config_key_path(i)); i++) {
        if (!rt_config_key_word(i, 0))
            continue;
        fprintf(out, "%s%s) words='", indent, path);
        for (uint32_t k = 0; (word = rt_config_key_word(i, k)); k++)
            put_word(out, k, word, "");
        fputs("' ;;\n", out);
    }
}

// ---- bash ------------------------------------------------------------------------------------

static void put_bash_kind(FILE *out, const char *value, const cli_commands *all)
{
    static const char *const what[] = {[KIND_NONE] = "",
                                       [KIND_FILE] = "kind=file",
                                       [KIND_FOLDER] = "kind=folder",
                                       [KIND_KEY] = "kind=key"};
    const kind one = kind_of(value);
    if (one == KIND_COMMAND || one == KIND_WORDS) {
        fputs("words='", out);
        if (one == KIND_COMMAND)
            put_command_names(out, all);
        else
            put_alternatives(out, value);
        fputs("'", out);
        return;
    }
    fputs(what[one], out);
}

// Options, what follows each, and what else a command takes.
static void put_bash_command(FILE *out, const cli_command *command, const cli_commands *all)
{
    cli_words words;
    char first[CLI_WORD_BYTES];
    cli_words_read(command, &words);
    cli_words_first(command, first);
    fprintf(out, "    '%s')\n        case $before in\n", command->name);
    for (uint32_t i = 0; i < words.count; i++) {
        if (!words.words[i].value[0])
            continue;
        fprintf(out, "        %s) options= ", words.words[i].name);
        put_bash_kind(out, words.words[i].value, all);
        fputs(" ;;\n", out);
    }
    fputs("        *) options='", out);
    for (uint32_t i = 0; i < words.count; i++)
        if (cli_word_is_option(&words.words[i]))
            fprintf(out, "%s ", words.words[i].name);
    fputs("--help' ", out);
    put_bash_kind(out, first, all);
    fputs(" ;;\n        esac ;;\n", out);
}

// bash breaks words at = and :, and replaces only what stands behind the last of them; the line
// itself is looked at instead, word by word.
static const char bash_head[] =
    "# Completion of lanyard for bash, made by `lanyard help --completion bash`.\n"
    "_lanyard_key_words() { # KEY: the words that its value may be\n"
    "    words=\n"
    "    case $1 in\n";
static const char bash_middle[] =
    "_lanyard() {\n"
    "    local line=${COMP_LINE:0:COMP_POINT} options= words= kind= command= before= word= cut=\n"
    "    local -a typed\n"
    "    read -ra typed <<<\"$line\"\n"
    "    [[ $line == *[[:space:]] ]] && typed+=('')\n"
    "    word=${typed[-1]} before=${typed[-2]} command=${typed[1]}\n"
    "    COMPREPLY=()\n"
    "    if [ \"${#typed[@]}\" -le 2 ]; then\n"
    "        COMPREPLY=($(compgen -W \"$_lanyard_commands --help --version\" -- \"$word\"))\n"
    "        return\n"
    "    fi\n"
    "    case $command in\n";
static const char bash_tail[] =
    "    esac\n"
    "    if [ \"$kind\" = key ] && [[ $word == *=* ]]; then\n"
    "        _lanyard_key_words \"${word%%=*}\"\n"
    "        kind= cut=${word%%=*}= word=${word#*=}\n"
    "    elif [ \"$kind\" = key ]; then\n"
    "        words=$_lanyard_keys\n"
    "        compopt -o nospace 2>/dev/null\n"
    "    fi\n"
    "    case $word in\n"
    "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
    "    *)\n"
    "        [ -z \"$words\" ] || COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
    "        local IFS=$'\\n'\n"
    "        case $kind in\n"
    "        file) COMPREPLY+=($(compgen -f -- \"$word\")) ;;\n"
    "        folder) COMPREPLY+=($(compgen -d -- \"$word\")) ;;\n"
    "        esac\n"
    "        case $kind in\n"
    "        file | folder) compopt -o filenames 2>/dev/null ;;\n"
    "        esac ;;\n"
    "    esac\n"
    "    # Where bash breaks words at =, it replaces only what follows.\n"
    "    [[ $COMP_WORDBREAKS == *=* ]] || COMPREPLY=(\"${COMPREPLY[@]/#/$cut}\")\n"
    "}\n"
    "complete -F _lanyard lanyard\n";

void cli_completion_bash(const cli_commands *all, FILE *out)
{
    fputs(bash_head, out);
    put_key_words(out, "    ");
    fputs("    *) ;;\n    esac\n}\n_lanyard_commands='", out);
    put_command_names(out, all);
    fputs("'\n_lanyard_keys='", out);
    put_keys(out);
    fputs("'\n", out);
    fputs(bash_middle, out);
    for (size_t i = 0; i < all->count; i++)
        put_bash_command(out, &all->commands[i], all);
    fputs(bash_tail, out);
}

// ---- zsh -------------------------------------------------------------------------------------

// Text between single quotes, in a specification of _arguments: colons and brackets end its parts.
static void put_zsh_text(FILE *out, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (strchr(":[]\\", text[i]))
            fputc('\\', out);
        if (text[i] == '\'')
            fputs("'\\''", out);
        else
            fputc(text[i], out);
    }
}

static void put_zsh_kind(FILE *out, const char *value, const cli_commands *all)
{
    static const char *const what[] = {[KIND_NONE] = " ",
                                       [KIND_FILE] = "_files",
                                       [KIND_FOLDER] = "_files -/",
                                       [KIND_KEY] = "_lanyard_keys"};
    const kind one = kind_of(value);
    fputc(':', out);
    put_zsh_text(out, value, strlen(value));
    fputc(':', out);
    if (one == KIND_COMMAND || one == KIND_WORDS) {
        fputc('(', out);
        if (one == KIND_COMMAND)
            put_command_names(out, all);
        else
            for (const char *at = value; *at; at++)
                put_zsh_text(out, *at == '|' ? " " : at, 1);
        fputc(')', out);
        return;
    }
    fputs(what[one], out);
}

static void put_zsh_line(void *to, const char *line, size_t size)
{
    fputc(' ', to);
    put_zsh_text(to, line, size);
}

static void put_zsh_command(FILE *out, const cli_command *command, const cli_commands *all)
{
    cli_words words;
    char first[CLI_WORD_BYTES];
    cli_words_read(command, &words);
    cli_words_first(command, first);
    fprintf(out, "_lanyard_of_%s() {\n    _arguments", command->name);
    for (uint32_t i = 0; i < words.count; i++) {
        const cli_word *word = &words.words[i];
        if (!cli_word_is_option(word))
            continue;
        const char *repeats = strcmp(word->name, "--set") == 0 ? "*" : "";
        fprintf(out, " \\\n        '%s%s", repeats, word->name);
        if (word->text) {
            fputs("[", out);
            cli_word_lines(word, put_zsh_line, out);
            fputs("]", out);
        }
        if (word->value[0])
            put_zsh_kind(out, word->value, all);
        fputc('\'', out);
    }
    fputs(" \\\n        '--help[explains the options]'", out);
    if (first[0]) {
        fputs(" \\\n        '*", out);
        put_zsh_kind(out, first, all);
        fputc('\'', out);
    }
    fputs("\n}\n", out);
}

static void put_zsh_described(FILE *out, const cli_commands *all)
{
    for (size_t i = 0; i < all->count; i++) {
        fprintf(out, "        '%s:", all->commands[i].name);
        put_zsh_text(out, all->commands[i].help, strlen(all->commands[i].help));
        fputs("'\n", out);
    }
}

// A command, then the function of that command with the rest of the line.
static void put_zsh_choice(FILE *out, const cli_commands *all)
{
    fputs("_lanyard() {\n    local -a commands=(\n", out);
    put_zsh_described(out, all);
    fputs("    )\n"
          "    if ((CURRENT == 2)); then\n"
          "        _describe command commands\n"
          "        return\n"
          "    fi\n"
          "    local name=_lanyard_of_${words[2]}\n"
          "    shift words\n"
          "    ((CURRENT--))\n"
          "    (($+functions[$name])) && $name\n"
          "}\n",
          out);
}

void cli_completion_zsh(const cli_commands *all, FILE *out)
{
    fputs("#compdef lanyard\n"
          "# Completion of lanyard for zsh, made by `lanyard help --completion zsh`.\n"
          "_lanyard_keys() {\n"
          "    local words\n"
          "    if [[ $PREFIX != *=* ]]; then\n"
          "        compadd -S '' -- ",
          out);
    put_keys(out);
    fputs("\n        return\n    fi\n    case ${PREFIX%%=*} in\n", out);
    put_key_words(out, "    ");
    fputs("    esac\n    compset -P '*='\n    compadd -- ${=words}\n}\n", out);
    for (size_t i = 0; i < all->count; i++)
        put_zsh_command(out, &all->commands[i], all);
    put_zsh_choice(out, all);
    fputs("if [ \"$funcstack[1]\" = _lanyard ]; then\n    _lanyard \"$@\"\nelse\n"
          "    compdef _lanyard lanyard\nfi\n",
          out);
}
