// One value of any kind: read from JSON and checked against its key's row, written, and named in
// messages; which key a misspelt one may have been meant for.
#include "runtime/config/rt_config_keys.h"
#include "runtime/rt_edit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_continuation(char byte) // of UTF-8
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

const char *rt_config_show_text(const char *bytes, char text[RT_CONFIG_SHOWN_MAX])
{
    size_t used = 0;
    text[used++] = '"';
    for (; *bytes && used < RT_CONFIG_SHOWN_MAX - 8; bytes++) {
        const unsigned char byte = (unsigned char)*bytes;
        text[used] = (char)byte;
        if (byte < 0x20 || byte == 0x7f)
            text[used] = '?';
        used++;
    }
    if (is_continuation(*bytes)) { // the cut is within a character: take its first bytes back
        while (used > 1 && is_continuation(text[used - 1]))
            used--;
        used -= used > 1;
    }
    const char *rest = *bytes ? "...\"" : "\"";
    snprintf(text + used, RT_CONFIG_SHOWN_MAX - used, "%s", rest);
    return text;
}

const char *rt_config_show(const cJSON *value, char text[RT_CONFIG_SHOWN_MAX])
{
    if (cJSON_IsString(value))
        return rt_config_show_text(value->valuestring, text);
    if (cJSON_IsNumber(value))
        return rt_json_format_double(value->valuedouble, text);
    if (cJSON_IsArray(value))
        return "a list";
    if (cJSON_IsObject(value))
        return "an object";
    if (cJSON_IsNull(value))
        return "null";
    if (cJSON_IsTrue(value))
        return "true";
    return "false";
}

static void describe_range(const rt_config_key *key, const char *noun, char *text, size_t size)
{
    char low[32], high[32];
    const char opening = key->min_excluded ? '(' : '[';
    const char closing = key->max_excluded ? ')' : ']';
    const int length = snprintf(text, size, "%s in %c%s, %s%c", noun, opening,
                                rt_json_format_double(key->min, low),
                                rt_json_format_double(key->max, high), closing);
    if (key->word)
        snprintf(text + length, size - (size_t)length, ", or \"%s\"", key->word);
}

static void describe_choices(const rt_config_choice *choices, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "one of");
    for (const rt_config_choice *one = choices; one->name && used < size; one++) {
        const char *comma = one == choices ? "" : ",";
        used += (size_t)snprintf(text + used, size - used, "%s \"%s\"", comma, one->name);
    }
}

static void describe_characters(const char *characters, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "one of");
    for (const char *one = characters; *one && used < size; one++) {
        const char *comma = one == characters ? "" : ",";
        if (*one == '\t')
            used += (size_t)snprintf(text + used, size - used, "%s \"\\t\" (tab)", comma);
        else
            used += (size_t)snprintf(text + used, size - used, "%s \"%c\"", comma, *one);
    }
}

void rt_config_value_expected(const rt_config_key *key, char *text, size_t size)
{
    switch (key->type) {
    case RT_KEY_BOOL:
        snprintf(text, size, "true or false");
        break;
    case RT_KEY_U32:
    case RT_KEY_U64:
        describe_range(key, "an integer", text, size);
        break;
    case RT_KEY_FLOAT:
    case RT_KEY_DOUBLE:
        describe_range(key, "a number", text, size);
        break;
    case RT_KEY_CHARACTER:
        if (key->characters)
            describe_characters(key->characters, text, size);
        else
            snprintf(text, size, "one character other than a quote and a line end");
        break;
    case RT_KEY_TEXT:
        snprintf(text, size, "a string of %u to %u bytes", (unsigned)key->min,
                 (unsigned)key->size - 1);
        break;
    case RT_KEY_CHOICE:
        describe_choices(key->choices, text, size);
        break;
    case RT_KEY_LIST:
        snprintf(text, size, "%s", key->list->expected);
        break;
    }
}

static rt_status reject(const rt_config_key *key, const char *path, const cJSON *value,
                        const char *why, rt_error *error)
{
    char shown[RT_CONFIG_SHOWN_MAX], expected[256];
    rt_config_value_expected(key, expected, sizeof expected);
    return rt_fail(error, RT_CONFIG, "%s: %s %s, expected %s", path, rt_config_show(value, shown),
                   why, expected);
}

static bool in_range(const rt_config_key *key, double number)
{
    if ((key->min_excluded && number == key->min) || (key->max_excluded && number == key->max))
        return false;
    return number >= key->min && number <= key->max;
}

static rt_status read_number(const rt_config_key *key, char *base, const cJSON *value,
                             const char *path, rt_error *error)
{
    bool is_integer = key->type == RT_KEY_U32 || key->type == RT_KEY_U64;
    bool is_word = key->word && cJSON_IsString(value) && strcmp(value->valuestring, key->word) == 0;
    double number = is_word ? key->max : value->valuedouble;
    if (!cJSON_IsNumber(value) && !is_word)
        return reject(key, path, value, "is not a number", error);
    if (is_integer && isfinite(number) && number != floor(number))
        return reject(key, path, value, "is not an integer", error);
    const float narrow = fabs(number) < 1e30 ? (float)number : 1e30f;
    // What is kept must be in range too: 0.99999999999 is 1 as a float.
    if (!in_range(key, number) || (key->type == RT_KEY_FLOAT && !in_range(key, (double)narrow)))
        return reject(key, path, value, "is out of range", error);
    if (key->word)
        *(bool *)(base + key->word_offset) = is_word;
    char *at = base + key->offset;
    if (key->type == RT_KEY_U32)
        memcpy(at, &(uint32_t){(uint32_t)number}, sizeof(uint32_t));
    else if (key->type == RT_KEY_U64)
        memcpy(at, &(uint64_t){(uint64_t)number}, sizeof(uint64_t));
    else if (key->type == RT_KEY_FLOAT)
        memcpy(at, &narrow, sizeof narrow);
    else
        memcpy(at, &number, sizeof number);
    if (key->also_offset)
        memcpy(base + key->also_offset, &number, sizeof number);
    return RT_OK;
}

static rt_status read_text(const rt_config_key *key, char *at, const cJSON *value, const char *path,
                           rt_error *error)
{
    if (!cJSON_IsString(value))
        return reject(key, path, value, "is not a string", error);
    size_t length = strlen(value->valuestring);
    if (length < (size_t)key->min)
        return reject(key, path, value, "is too short", error);
    if (length >= key->size)
        return reject(key, path, value, "is too long", error);
    memset(at, 0, key->size);
    memcpy(at, value->valuestring, length);
    return RT_OK;
}

static rt_status read_choice(const rt_config_key *key, char *at, const cJSON *value,
                             const char *path, rt_error *error)
{
    if (!cJSON_IsString(value))
        return reject(key, path, value, "is not a string", error);
    for (const rt_config_choice *one = key->choices; one->name; one++) {
        if (strcmp(one->name, value->valuestring) == 0) {
            memcpy(at, &one->value, sizeof one->value);
            return RT_OK;
        }
    }
    return reject(key, path, value, "is unknown", error);
}

static bool may_be_character(const rt_config_key *key, char character)
{
    if (key->characters)
        return strchr(key->characters, character) != NULL;
    return strchr("\"\n\r", character) == NULL;
}

rt_status rt_config_value_read(const rt_config_key *key, void *base, const cJSON *value,
                               const char *path, rt_error *error)
{
    char *at = (char *)base + key->offset;
    switch (key->type) {
    case RT_KEY_BOOL:
        if (!cJSON_IsBool(value))
            return reject(key, path, value, "is not a truth value", error);
        *(bool *)at = cJSON_IsTrue(value);
        return RT_OK;
    case RT_KEY_U32:
    case RT_KEY_U64:
    case RT_KEY_FLOAT:
    case RT_KEY_DOUBLE:
        return read_number(key, base, value, path, error);
    case RT_KEY_CHARACTER:
        if (!cJSON_IsString(value) || strlen(value->valuestring) != 1 ||
            !may_be_character(key, value->valuestring[0]))
            return reject(key, path, value, "is not allowed", error);
        *at = value->valuestring[0];
        return RT_OK;
    case RT_KEY_TEXT:
        return read_text(key, at, value, path, error);
    case RT_KEY_CHOICE:
        return read_choice(key, at, value, path, error);
    case RT_KEY_LIST:
        return rt_config_list_read(key, base, value, path, error);
    }
    return RT_CONFIG;
}

static const char *choice_name(const rt_config_choice *choices, int value)
{
    for (const rt_config_choice *one = choices; one->name; one++) {
        if (one->value == value)
            return one->name;
    }
    return NULL;
}

void rt_config_value_write(const rt_config_key *key, const void *base, rt_json *json,
                           const char *name)
{
    const char *at = (const char *)base + key->offset;
    int choice;
    if (key->word && *((const bool *)base + key->word_offset)) {
        rt_json_string(json, name, key->word);
        return;
    }
    switch (key->type) {
    case RT_KEY_BOOL:
        rt_json_bool(json, name, *(const bool *)at);
        break;
    case RT_KEY_U32:
        rt_json_u64(json, name, *(const uint32_t *)(const void *)at);
        break;
    case RT_KEY_U64:
        rt_json_u64(json, name, *(const uint64_t *)(const void *)at);
        break;
    case RT_KEY_FLOAT:
        rt_json_float(json, name, *(const float *)(const void *)at);
        break;
    case RT_KEY_DOUBLE:
        rt_json_double(json, name, *(const double *)(const void *)at);
        break;
    case RT_KEY_CHARACTER:
        rt_json_string(json, name, (char[]){*at, '\0'});
        break;
    case RT_KEY_TEXT:
        rt_json_string(json, name, at);
        break;
    case RT_KEY_CHOICE:
        memcpy(&choice, at, sizeof choice);
        rt_json_string(json, name, choice_name(key->choices, choice));
        break;
    case RT_KEY_LIST:
        rt_config_list_write(key, base, json, name);
        break;
    }
}

const char *rt_config_choice_name(const char *path, int value)
{
    const rt_config_key *key = rt_config_find(path);
    if (key && key->type == RT_KEY_CHOICE)
        return choice_name(key->choices, value);
    return NULL;
}

rt_status rt_config_value_defaults(const rt_config_key *keys, void *base)
{
    for (const rt_config_key *key = keys; key->path; key++) {
        if (!key->fallback)
            continue;
        cJSON *value = cJSON_Parse(key->fallback);
        if (!value)
            return RT_NO_MEMORY;
        rt_status status = rt_config_value_read(key, base, value, key->path, NULL);
        cJSON_Delete(value);
        if (status)
            return status;
    }
    return RT_OK;
}

void rt_config_join(char path[RT_CONFIG_KEY_PATH_MAX], const char *section, const char *name)
{
    const char *dot = *section ? "." : "";
    snprintf(path, RT_CONFIG_KEY_PATH_MAX, "%s%s%s", section, dot, name);
    for (char *byte = path; *byte; byte++) {
        if (*byte < 0x20 || *byte > 0x7e)
            *byte = '?';
    }
}

rt_status rt_config_reject_duplicate(const cJSON *object, const cJSON *value, const char *path,
                                     rt_error *error)
{
    for (const cJSON *one = object->child; one != value; one = one->next) {
        if (strcmp(one->string, value->string) == 0)
            return rt_fail(error, RT_CONFIG, "%s: stands twice in its object", path);
    }
    return RT_OK;
}

typedef struct {
    const char *text;
    uint32_t length;
} word;

static word word_of(const char *text, size_t length)
{
    return (word){text, (uint32_t)rt_min_u64(length, RT_CONFIG_KEY_PATH_MAX)};
}

static word leaf_of(word path)
{
    uint32_t start = path.length;
    while (start > 0 && path.text[start - 1] != '.')
        start--;
    return (word){path.text + start, path.length - start};
}

typedef struct {
    word wanted, leaf;
    word nearest;
    uint32_t least;
} suggestion;

static uint32_t distance_of(word left, word right)
{
    return rt_edit_distance(left.text, left.length, right.text, right.length);
}

static void consider(suggestion *best, word candidate)
{
    // The right name at the wrong place counts as one edit.
    uint32_t moved = distance_of(best->leaf, leaf_of(candidate)) + 1;
    uint32_t distance = (uint32_t)rt_min_u64(distance_of(best->wanted, candidate), moved);
    if (distance < best->least) {
        best->least = distance;
        best->nearest = candidate;
    }
}

rt_status rt_config_unknown(const rt_config_key *keys, const char *path, rt_error *error)
{
    word whole = word_of(path, strlen(path));
    suggestion best = {.wanted = whole, .leaf = leaf_of(whole)};
    if (strchr(path, '['))
        best.wanted = best.leaf;                  // of an element only the member is compared
    best.least = rt_edit_limit(best.leaf.length); // farther is no help
    for (const rt_config_key *key = keys; key->path; key++) {
        for (const char *dot = strchr(key->path, '.'); dot; dot = strchr(dot + 1, '.'))
            consider(&best, word_of(key->path, (size_t)(dot - key->path)));
        consider(&best, word_of(key->path, strlen(key->path)));
    }
    if (keys == rt_config_keys) {
        consider(&best, word_of("include", strlen("include")));
        consider(&best, word_of("version", strlen("version")));
    }
    if (best.nearest.text)
        return rt_fail(error, RT_CONFIG, "%s: unknown key, did you mean \"%.*s\"?", path,
                       (int)best.nearest.length, best.nearest.text);
    return rt_fail(error, RT_CONFIG, "%s: unknown key (docs/CONFIG.md lists all)", path);
}

static bool is_choice(const rt_config_key *key, const char *name)
{
    for (const rt_config_choice *one = key->choices; one && one->name; one++) {
        if (strcmp(one->name, name) == 0)
            return true;
    }
    return false;
}

rt_status rt_config_not_section(const char *path, const char *shown, const char *name,
                                rt_error *error)
{
    const size_t length = strlen(path);
    for (const rt_config_key *key = rt_config_keys; name && key->path; key++) {
        if (strncmp(key->path, path, length) == 0 && key->path[length] == '.' &&
            is_choice(key, name))
            return rt_fail(error, RT_CONFIG,
                           "%s: is a section, not a key with a value (%s); did you mean \"%s\"?",
                           path, shown, key->path);
    }
    return rt_fail(error, RT_CONFIG,
                   "%s: is a section, not a key with a value (%s): expected an object", path,
                   shown);
}

rt_status rt_config_members_read(const rt_config_key *members, void *base, const cJSON *object,
                                 const char *path, rt_error *error)
{
    char member_path[RT_CONFIG_KEY_PATH_MAX];
    rt_status status = rt_config_value_defaults(members, base);
    if (status)
        return status;
    for (const cJSON *value = object->child; value; value = value->next) {
        const rt_config_key *key = members;
        rt_config_join(member_path, path, value->string);
        while (key->path && strcmp(key->path, value->string) != 0)
            key++;
        if (!key->path)
            return rt_config_unknown(members, member_path, error);
        status = rt_config_reject_duplicate(object, value, member_path, error);
        if (status)
            return status;
        status = rt_config_value_read(key, base, value, member_path, error);
        if (status)
            return status;
    }
    for (const rt_config_key *key = members; key->path; key++) {
        if (key->is_required && !cJSON_GetObjectItemCaseSensitive(object, key->path))
            return rt_fail(error, RT_CONFIG, "%s: the key \"%s\" is missing", path, key->path);
    }
    return RT_OK;
}
