// The reference of all keys as a manual page, and the keys as words for completion.
#include "runtime/config/rt_config_keys.h"
#include "runtime/rt_roff.h"

static const char introduction[] =
    ".SH DESCRIPTION\n"
    "A run is described by one JSON file; every key has a default. Sections nest:\n"
    ".B dispatch.alpha\n"
    "below is {\\(dqdispatch\\(dq: {\\(dqalpha\\(dq: 1}} in the file. Single keys can be changed\n"
    "on the command line:\n"
    ".PP\n"
    ".EX\n"
    "lanyard sim configs/demo.json \\-\\-set dispatch.policy=laia \\-\\-set dispatch.alpha=0.5\n"
    ".EE\n"
    ".PP\n"
    "A value after\n"
    ".B \\-\\-set\n"
    "is JSON; where a string is expected, quotes may be left out. A section takes an object and\n"
    "changes only the keys in it.\n"
    ".PP\n"
    "A file can build on another one with \\(dqinclude\\(dq: \\(dqformats/avazu.json\\(dq at its\n"
    "top level: that file (the path is relative to the including one, at most 8 deep) is read\n"
    "first, then overridden key by key. Lists are replaced as a whole. \\(dqversion\\(dq: 1 says\n"
    "which names of keys a file uses.\n"
    ".PP\n"
    "An unknown key, a key that stands twice, a wrong type and a value out of range are errors\n"
    "that name the file and the path. [0, 1] includes both ends, (0, 1] excludes 0.\n"
    ".B lanyard check\n"
    "tells whether a file is complete.\n"
    ".SH KEYS\n";

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
    static const rt_config_layout manual = {put_section, put_members, put_key};
    return rt_config_lay_out(&manual, introduction, text_p);
}

const char *rt_config_key_path(uint32_t at)
{
    return rt_config_keys[at].path;
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
