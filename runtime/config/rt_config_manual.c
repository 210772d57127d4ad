// The reference of all keys as a manual page, and the keys as words for completion.
#include <string.h>

#include "runtime/config/rt_config_keys.h"
#include "runtime/rt_roff.h"

// Paragraphs, but for the title; an example stands between two lines of backquotes.
static void put_introduction(FILE *out, const char *text)
{
    char block[1024];
    const char *before = ""; // the section's own line begins its first paragraph
    fputs(".SH DESCRIPTION\n", out);
    for (const char *end; *text; text = end + strspn(end, "\n")) {
        const char *gap = strstr(text, "\n\n");
        end = gap ? gap : text + strlen(text);
        const bool is_example = strncmp(text, "```\n", 4) == 0;
        const size_t around = is_example ? 4 : 0;
        if (*text == '#')
            continue;
        snprintf(block, sizeof block, "%.*s", (int)(end - text - 2 * (ptrdiff_t)around),
                 text + around);
        fprintf(out, "%s%s", before, is_example ? ".EX\n" : "");
        before = ".PP\n";
        rt_roff_text(out, block);
        fputs(is_example ? "\n.EE\n" : "\n", out);
    }
    fputs(".SH KEYS\n", out);
}

static void put_section(FILE *out, const char *name, const char *help)
{
    fputs(".SS ", out);
    rt_roff_text(out, *name ? name : "Top level");
    fputc('\n', out);
    if (help) {
        rt_roff_text(out, help);
        fputc('\n', out);
    }
}

static void put_members(FILE *out, const char *list)
{
    fputs(".SS Elements of ", out);
    rt_roff_text(out, list);
    fputc('\n', out);
}

static void put_named(FILE *out, const char *before, const char *text)
{
    if (!text || !*text)
        return;
    fputs(before, out);
    rt_roff_text(out, text);
}

static void put_key(FILE *out, const rt_config_key *key)
{
    char text[RT_CONFIG_BOUNDS_MAX];
    fputs(".TP\n.B ", out);
    rt_roff_text(out, key->path);
    fputc('\n', out);
    rt_roff_text(out, rt_config_type_name(key));
    put_named(out, ", ", rt_config_bounds(key, text, sizeof text));
    put_named(out, ", in ", key->unit);
    put_named(out, "; default ", key->fallback);
    fputs(".\n", out);
    rt_roff_text(out, key->help);
    fputc('\n', out);
    for (const rt_config_choice *one = key->choices; one && one->name; one++) {
        fputs(".br\n\\fB", out);
        rt_roff_text(out, one->name);
        fputs("\\fR: ", out);
        rt_roff_text(out, one->help);
        fputc('\n', out);
    }
}

rt_status rt_config_manual(char **text_p)
{
    static const rt_config_layout manual = {put_introduction, put_section, put_members, put_key};
    return rt_config_lay_out(&manual, text_p);
}

const char *rt_config_key_path(uint32_t at)
{
    return rt_config_keys[at].path;
}

const char *rt_config_key_help(const char *path)
{
    for (const rt_config_key *key = rt_config_keys; key->path; key++)
        if (strcmp(key->path, path) == 0)
            return key->help;
    return NULL;
}

const char *rt_config_key_word(uint32_t at, uint32_t i)
{
    static const char *const truths[] = {"false", "true", NULL};
    const rt_config_key *key = &rt_config_keys[at];
    if (key->type == RT_KEY_BOOL)
        return truths[i];
    if (key->list && key->list->words)
        return key->list->words[i];
    if (key->word && i == 0)
        return key->word;
    if (!key->choices)
        return NULL;
    return key->choices[i].name;
}
