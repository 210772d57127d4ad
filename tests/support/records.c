#include "tests/support/records.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/rt_build.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define PATH_BYTES 600
#define WRITE_S 900

// ---- the file ----------------------------------------------------------------------------------

char *records_read(const char *path)
{
    FILE *file = fopen(path, "r");
    rt_bytes all = {0};
    char block[4096];
    if (!file)
        return NULL;
    for (size_t got; (got = fread(block, 1, sizeof block, file)) > 0;)
        rt_bytes_put(&all, block, got);
    (void)fclose(file);
    rt_bytes_put(&all, "", 1);
    assert_false(all.failed);
    char *text = strdup((const char *)all.data);
    rt_bytes_fini(&all);
    return text;
}

void records_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

// Appends to a text, with the end of the line.
static void append(char **text, const char *line)
{
    const size_t before = strlen(*text), more = strlen(line);
    *text = realloc(*text, before + more + 2);
    assert_non_null(*text);
    memcpy(*text + before, line, more);
    memcpy(*text + before + more, "\n", 2);
}

static records_one *add(records_list *list)
{
    assert_int_equal(rt_grow(&list->of, &list->capacity, list->count + 1u, sizeof *list->of),
                     RT_OK);
    records_one *one = &list->of[list->count++];
    *one = (records_one){.before = strdup(""), .recorded = strdup("")};
    return one;
}

void records_open(const char *path, records_list *list)
{
    char *text = records_read(path), *before = strdup("");
    *list = (records_list){0};
    if (!text)
        fail_msg("%s: cannot be read", path);
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        const char *colon = strchr(line, ':');
        if (*line == ' ' && list->count) {
            append(&list->of[list->count - 1].recorded, line);
        } else if (*line == '#' || !colon) {
            if (*line || (rest && *rest))
                append(&before, line);
        } else {
            records_one *one = add(list);
            free(one->before);
            one->before = before;
            before = strdup("");
            one->line = strdup(line);
            snprintf(one->name, sizeof one->name, "%.*s", (int)(colon - line), line);
            for (uint32_t i = 0; i + 1 < list->count; i++)
                if (strcmp(list->of[i].name, one->name) == 0)
                    fail_msg("%s: \"%s\" stands there twice", path, one->name);
        }
    }
    free(before);
    free(text);
}

void records_save(const char *path, const records_list *list)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (uint32_t i = 0; i < list->count; i++) {
        const records_one *one = &list->of[i];
        assert_true(fprintf(file, "%s%s\n%s", one->before, one->line, one->recorded) > 0);
    }
    assert_int_equal(fclose(file), 0);
    printf("wrote %s\n", path);
}

void records_close(records_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        free(list->of[i].before);
        free(list->of[i].line);
        free(list->of[i].recorded);
    }
    rt_free(list->of);
}

// Up to the end of the line.
static size_t length_of(const char *line)
{
    return strcspn(line, "\n");
}

static const char *next_of(const char *line)
{
    const size_t length = length_of(line);
    return line + length + (line[length] == '\n');
}

void records_print_difference(const char *recorded, const char *now)
{
    while (*recorded || *now) {
        const bool same =
            length_of(recorded) == length_of(now) && memcmp(recorded, now, length_of(now)) == 0;
        if (!same)
            printf("  recorded %.*s\n  now      %.*s\n", (int)length_of(recorded), recorded,
                   (int)length_of(now), now);
        recorded = next_of(recorded);
        now = next_of(now);
    }
}

static bool is_same(const records_one *one, records_play *play)
{
    char *now = play(one->line);
    const bool same = now && strcmp(now, one->recorded) == 0;
    if (!same) {
        printf("%s\n", one->line);
        records_print_difference(one->recorded, now ? now : "");
    }
    free(now);
    return same;
}

// ---- the program -------------------------------------------------------------------------------

static void (*parts_check)(uint32_t part);

#define PART(n)                        \
    static void part_##n(void **state) \
    {                                  \
        (void)state;                   \
        parts_check(n);                \
    }
PART(0)
PART(1)
PART(2)
PART(3)
PART(4)
PART(5)
PART(6)
PART(7)

int records_run(uint32_t parts, unsigned limit_s, void (*check)(uint32_t part), int argc,
                char **argv)
{
    test_case cases[] = {TEST(part_0), TEST(part_1), TEST(part_2), TEST(part_3),
                         TEST(part_4), TEST(part_5), TEST(part_6), TEST(part_7)};
    parts_check = check;
    for (uint32_t i = 0; i < parts; i++)
        cases[i].limit_s = limit_s;
    return test_run(cases, parts, argc, argv);
}

static struct {
    const char *path;
    uint32_t parts;
    records_play *play;
} played;

// Every parts-th line, from this one on.
static void check(uint32_t part)
{
    records_list list;
    uint32_t wrong = 0, checked = 0;
    records_open(played.path, &list);
    for (uint32_t i = part; i < list.count; i += played.parts, checked++)
        wrong += !is_same(&list.of[i], played.play);
    assert_true(checked > 3);
    records_close(&list);
    if (wrong)
        fail_msg("%u of %u are others than those recorded in %s", wrong, checked, played.path);
}

// A case, too, as files need a folder of their own.
static void written_anew(void **state)
{
    (void)state;
    const char *which = getenv("LANYARD_UPDATE_GOLDEN");
    records_list list;
    uint32_t failed = 0;
    records_open(played.path, &list);
    for (uint32_t i = 0; i < list.count; i++) {
        records_one *one = &list.of[i];
        if (strcmp(which, "1") != 0 && !strstr(one->name, which))
            continue;
        char *now = played.play(one->line);
        if (!now) {
            printf("%s: could not be played\n", one->name);
            failed++;
            continue;
        }
        if (strcmp(now, one->recorded) !=
            0) { // to be read: a record is what it is to be from now on
            printf("%s\n", one->line);
            records_print_difference(one->recorded, now);
        }
        free(one->recorded);
        one->recorded = now;
    }
    records_save(played.path, &list);
    records_close(&list);
    assert_int_equal(failed, 0);
}

int records_main(const char *path, uint32_t parts, unsigned limit_s, records_play *play, int argc,
                 char **argv)
{
    static const test_case anew[] = {TEST_SLOW(written_anew, WRITE_S)};
    played.path = path;
    played.parts = parts;
    played.play = play;
    if (getenv("LANYARD_UPDATE_GOLDEN"))
        return test_run(anew, 1, argc, argv);
    return records_run(parts, limit_s, check, argc, argv);
}

char *records_text(rt_bytes *record)
{
    rt_bytes_put(record, "", 1);
    assert_false(record->failed);
    char *text = strdup((const char *)record->data);
    rt_bytes_fini(record);
    return text;
}

// ---- what depends on the machine ---------------------------------------------------------------

// A number with a point or an exponent, of which six digits count; else 0.
static size_t take_number(const char *at, char *to, size_t size)
{
    const size_t length = strspn(at, "0123456789.e+-");
    const bool has_point = memchr(at, '.', length) != NULL;
    char *end;
    if (!isdigit((unsigned char)*at) || (!has_point && !memchr(at, 'e', length)))
        return 0;
    const double value = strtod(at, &end);
    const size_t used = (size_t)(end - at);
    if ((!memchr(at, '.', used) && !memchr(at, 'e', used)) || end[-1] == '.' || *end == '.' ||
        isalnum((unsigned char)*end))
        return 0;
    snprintf(to, size, "%.6g", value);
    return used;
}

static void leave_out_word(char *text, const char *word)
{
    const size_t length = strlen(word);
    for (char *at = text; (at = strstr(at, word));)
        memmove(at, at + length, strlen(at + length) + 1);
}

char *records_normalise(const char *text)
{
    rt_bytes all = {0};
    char number[64], folder[PATH_BYTES];
    char *plain = strdup(text);
    bool is_word = false; // digits in a name, or behind a #, are no number
    assert_non_null(plain);
    leave_out_word(plain, rt_build());
    for (const char *at = plain; *at;) {
        const size_t length = is_word ? 0 : take_number(at, number, sizeof number);
        if (length)
            rt_bytes_put(&all, number, strlen(number));
        else
            rt_bytes_put(&all, at, 1);
        is_word = !length && (isalnum((unsigned char)*at) || strchr("._#", *at));
        at += length ? length : 1;
    }
    rt_bytes_put(&all, "", 1);
    assert_false(all.failed);
    char *made = strdup((const char *)all.data);
    rt_bytes_fini(&all);
    free(plain);
    assert_non_null(getcwd(folder, sizeof folder));
    leave_out_word(made, folder);
    return made;
}

// ---- a record ----------------------------------------------------------------------------------

void records_put(rt_bytes *record, const char *format, ...)
{
    char line[RECORDS_LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    char *made = records_normalise(line);
    rt_bytes_put(record, "  ", 2);
    rt_bytes_put(record, made, strlen(made));
    rt_bytes_put(record, "\n", 1);
    free(made);
}

static uint32_t hash_of(const char *text)
{
    char *made = records_normalise(text);
    const uint64_t hash = rt_hash_bytes(made, strlen(made));
    free(made);
    return (uint32_t)hash;
}

void records_put_hash(rt_bytes *record, const char *what, const char *text)
{
    uint32_t lines = 0;
    for (const char *at = text; *at; at = next_of(at))
        lines++;
    records_put(record, "%s: %" PRIu32 " lines #%08" PRIx32, what, lines, hash_of(text));
}

void records_put_lines(rt_bytes *record, const char *what, const char *text)
{
    for (const char *at = text; *at; at = next_of(at))
        records_put(record, "%s: %.*s", what, (int)length_of(at), at);
}
