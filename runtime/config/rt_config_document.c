// The reference of keys as Markdown (docs/CONFIG.md), and a configuration as JSON: both walk the
// table of keys, so that neither can lack one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/rt_config_keys.h"

static const char introduction[] =
    "# Configuration\n"
    "\n"
    "One JSON file describes a run. Every key has a default. Sections nest: `dispatch.alpha` below\n"
    "is `{\"dispatch\": {\"alpha\": 1}}` in the file. The command line can change single keys:\n"
    "\n"
    "```\n"
    "lanyard sim configs/demo.json --set dispatch.policy=laia --set dispatch.alpha=0.5\n"
    "lanyard up configs/criteo.json --set 'stream.files=[\"day0.tsv\", \"day1.tsv\"]'\n"
    "```\n"
    "\n"
    "A value after `--set` is JSON. Strings need no quotes. A section takes an object, which changes\n"
    "only the keys in it.\n"
    "\n"
    "A file can extend another one with `\"include\": \"formats/avazu.json\"` at its top level. The\n"
    "path is relative to the including file, and files nest at most 8 deep. The included file is\n"
    "read first, then the including file overrides it key by key. Lists are replaced as a whole.\n"
    "\n"
    "`\"version\": 1` at the top level is the version of the names of keys, and the default. A\n"
    "renamed key is still read by its old name, with a warning. `lanyard check FILE --migrate`\n"
    "prints the file with today's names (docs/STABILITY.md).\n"
    "\n"
    "An unknown key, a repeated key, a wrong type and a value out of range are errors that name\n"
    "file and path. `[0, 1]` includes both ends, `(0, 1]` excludes 0.\n"
    "`lanyard check FILE` checks a file.";

static void put_introduction(FILE *out, const char *text)
{
    fprintf(out,
            "%s\n\nThis page is made from the table in `runtime/config/rt_config_keys.c`; a test "
            "compares them.\n",
            text);
}

// Text of a table cell: a bar would end it.
static void put_cell(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            fputc('\\', out);
        fputc(*text, out);
    }
}

const char *rt_config_type_name(const rt_config_key *key)
{
    switch (key->type) {
    case RT_KEY_BOOL:
        return "boolean";
    case RT_KEY_U32:
    case RT_KEY_U64:
        return "integer";
    case RT_KEY_FLOAT:
    case RT_KEY_DOUBLE:
        return "number";
    case RT_KEY_CHARACTER:
    case RT_KEY_TEXT:
    case RT_KEY_CHOICE:
        return "string";
    case RT_KEY_LIST:
        return "list";
    }
    return "";
}

const char *rt_config_bounds(const rt_config_key *key, char *text, size_t size)
{
    static const char *const prefixes[] = {"an integer in ", "a number in ", "a string of ",
                                           "a list of "};
    if (key->type == RT_KEY_CHOICE || key->type == RT_KEY_BOOL)
        return "";
    rt_config_value_expected(key, text, size);
    // The type says it already.
    for (size_t i = 0; i < RT_COUNT_OF(prefixes); i++) {
        if (strncmp(text, prefixes[i], strlen(prefixes[i])) == 0)
            return text + strlen(prefixes[i]);
    }
    return text;
}

static void put_bounds(FILE *out, const rt_config_key *key)
{
    char text[RT_CONFIG_BOUNDS_MAX];
    put_cell(out, rt_config_bounds(key, text, sizeof text));
    for (const rt_config_choice *one = key->choices; one && one->name; one++) {
        fprintf(out, "%s`\"%s\"`: ", one == key->choices ? "" : "<br>", one->name);
        put_cell(out, one->help);
    }
}

static void put_row(FILE *out, const rt_config_key *key)
{
    fprintf(out, "| `%s` | %s | ", key->path, rt_config_type_name(key));
    if (key->fallback) {
        fputc('`', out);
        put_cell(out, key->fallback);
        fputc('`', out);
    }
    fprintf(out, " | ");
    put_bounds(out, key);
    fprintf(out, " | %s | ", key->unit);
    put_cell(out, key->help);
    fprintf(out, " |\n");
}

static void put_table_head(FILE *out)
{
    fprintf(out,
            "\n| key | type | default | allowed | unit | meaning |\n|---|---|---|---|---|---|\n");
}

static void put_heading(FILE *out, const char *section, const char *help)
{
    fprintf(out, "\n## %s\n", *section ? section : "Top level");
    if (help)
        fprintf(out, "\n%s\n", help);
    put_table_head(out);
}

static void put_members(FILE *out, const char *list)
{
    fprintf(out, "\n### Elements of `%s`\n", list);
    put_table_head(out);
}

static const rt_config_layout markdown = {put_introduction, put_heading, put_members, put_row};

// The section of a key's path, "" for a key at the root.
static void section_of(const char *path, char section[RT_CONFIG_KEY_PATH_MAX])
{
    const char *dot = strrchr(path, '.');
    snprintf(section, RT_CONFIG_KEY_PATH_MAX, "%.*s", dot ? (int)(dot - path) : 0, path);
}

// What is said of a section, or of the one around it.
static const char *help_of(const char *section)
{
    char outer[RT_CONFIG_KEY_PATH_MAX];
    const char *help = rt_config_section_help(section);
    section_of(section, outer);
    if (help || !*outer)
        return help;
    return rt_config_section_help(outer);
}

// Whether the elements of a list are those of an earlier one.
static bool is_again(const rt_config_key *key)
{
    const rt_config_key *earlier = rt_config_keys;
    while (earlier->list != key->list)
        earlier++;
    return earlier != key;
}

// Keys of one section stand together in the reference, wherever they stand in the table.
static void put_section(FILE *out, const rt_config_layout *layout, const char *section)
{
    char own[RT_CONFIG_KEY_PATH_MAX];
    layout->section(out, section, help_of(section));
    for (const rt_config_key *key = rt_config_keys; key->path; key++) {
        section_of(key->path, own);
        if (strcmp(own, section) == 0)
            layout->key(out, key);
    }
    for (const rt_config_key *key = rt_config_keys; key->path; key++) {
        section_of(key->path, own);
        if (strcmp(own, section) != 0 || !key->list || !key->list->members || is_again(key))
            continue;
        layout->members(out, key->path);
        for (const rt_config_key *member = key->list->members; member->path; member++)
            layout->key(out, member);
    }
}

// True for the first key of its section.
static bool opens_section(const rt_config_key *key)
{
    char own[RT_CONFIG_KEY_PATH_MAX], other[RT_CONFIG_KEY_PATH_MAX];
    section_of(key->path, own);
    for (const rt_config_key *earlier = rt_config_keys; earlier != key; earlier++) {
        section_of(earlier->path, other);
        if (strcmp(own, other) == 0)
            return false;
    }
    return true;
}

// rt_free may not be the one for text from elsewhere.
static rt_status hand_over(const char *text, size_t size, char **text_p)
{
    char *copy = rt_alloc(1, size + 1);
    if (!copy)
        return RT_NO_MEMORY;
    memcpy(copy, text, size);
    *text_p = copy;
    return RT_OK;
}

rt_status rt_config_lay_out(const rt_config_layout *layout, char **text_p)
{
    char *text = NULL, section[RT_CONFIG_KEY_PATH_MAX];
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return RT_NO_MEMORY;
    layout->introduction(out, introduction);
    put_section(out, layout, "");
    for (const rt_config_key *key = rt_config_keys; key->path; key++) {
        section_of(key->path, section);
        if (*section && opens_section(key))
            put_section(out, layout, section);
    }
    bool complete = ferror(out) == 0;
    complete = fclose(out) == 0 && complete;
    rt_status status = RT_NO_MEMORY;
    if (complete)
        status = hand_over(text, size, text_p);
    free(text); // of open_memstream
    return status;
}

rt_status rt_config_document(char **markdown_p)
{
    return rt_config_lay_out(&markdown, markdown_p);
}

// Closes and opens objects until those open are the sections of path. open holds their names.
static void enter_section(rt_json *json, const char *path, char *open)
{
    for (;;) {
        size_t length = strlen(open);
        if (length == 0 || (strncmp(open, path, length) == 0 && path[length] == '.'))
            break;
        char *dot = strrchr(open, '.');
        if (dot)
            *dot = '\0';
        else
            *open = '\0';
        rt_json_end_object(json);
    }
    for (;;) {
        char name[RT_CONFIG_KEY_PATH_MAX];
        size_t length = strlen(open), start = length > 0 ? length + 1 : 0;
        const char *dot = strchr(path + start, '.');
        if (!dot)
            break;
        snprintf(name, sizeof name, "%.*s", (int)(dot - path - start), path + start);
        rt_json_begin_object(json, name);
        snprintf(open, RT_CONFIG_KEY_PATH_MAX, "%.*s", (int)(dot - path), path);
    }
}

const char *rt_config_difference(const rt_config *left, const rt_config *right, uint32_t *at)
{
    const char *path = NULL;
    rt_json one, other;
    rt_json_init(&one, 0);
    rt_json_init(&other, 0);
    while (!path && rt_config_keys[*at].path) {
        const rt_config_key *key = &rt_config_keys[(*at)++];
        rt_json_clear(&one);
        rt_json_clear(&other);
        rt_config_value_write(key, left, &one, NULL);
        rt_config_value_write(key, right, &other, NULL);
        const char *text = rt_json_text(&one, NULL), *text2 = rt_json_text(&other, NULL);
        if (!text || !text2 || strcmp(text, text2) != 0)
            path = key->path;
    }
    rt_json_fini(&one);
    rt_json_fini(&other);
    return path;
}

rt_status rt_config_to_json(const rt_config *config, char **json_p)
{
    rt_json json;
    size_t size;
    char open[RT_CONFIG_KEY_PATH_MAX] = "";
    rt_json_init(&json, 4);
    rt_json_begin_object(&json, NULL);
    for (const rt_config_key *key = rt_config_keys; key->path; key++) {
        enter_section(&json, key->path, open);
        const char *dot = strrchr(key->path, '.');
        const char *leaf = dot ? dot + 1 : key->path;
        rt_config_value_write(key, config, &json, leaf);
    }
    enter_section(&json, "", open);
    rt_json_end_object(&json);
    const char *text = rt_json_text(&json, &size);
    rt_status status = RT_NO_MEMORY;
    if (text)
        status = hand_over(text, size, json_p);
    rt_json_fini(&json);
    return status;
}
