#include "runtime/stream/rt_value_names.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_config.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_printable.h"

#define PLACES (2 * RT_VALUE_NAMES_MAX)

typedef struct {
    uint64_t key;
    char text[RT_VALUE_NAME_BYTES]; // empty: the place is free
} value;

struct rt_value_names {
    char column[RT_NAME_MAX];
    pthread_mutex_t lock; // what follows
    uint32_t count;
    value places[PLACES];
};

rt_status rt_value_names_create(const char *column, rt_value_names **names_p)
{
    rt_value_names *names = rt_alloc(1, sizeof *names);
    if (!names)
        return RT_NO_MEMORY;
    snprintf(names->column, sizeof names->column, "%s", column);
    pthread_mutex_init(&names->lock, NULL);
    *names_p = names;
    return RT_OK;
}

void rt_value_names_destroy(rt_value_names *names)
{
    if (!names)
        return;
    pthread_mutex_destroy(&names->lock);
    rt_free(names);
}

bool rt_value_names_are_of(const rt_value_names *names, const char *column)
{
    return names && strcmp(names->column, column) == 0;
}

// Half of the places are free at least, so there is an end.
static value *place_of(rt_value_names *names, uint64_t key)
{
    uint64_t at = rt_mix(key) % PLACES;
    while (names->places[at].text[0] && names->places[at].key != key)
        at = (at + 1) % PLACES;
    return &names->places[at];
}

// A long one is cut, and told from others that begin alike by its hash.
static void write_name(uint64_t key, const char *text, size_t length,
                       char name[RT_VALUE_NAME_BYTES])
{
    const size_t kept = RT_VALUE_NAME_BYTES - strlen("~12345678");
    if (rt_printable_write(text, length, name, RT_VALUE_NAME_BYTES))
        return;
    (void)rt_printable_write(text, length, name, kept);
    const size_t used = strlen(name);
    snprintf(name + used, RT_VALUE_NAME_BYTES - used, "~%08" PRIx32, (uint32_t)(key & RT_ID_MASK));
}

void rt_value_names_note(rt_value_names *names, uint64_t key, const char *text, size_t length)
{
    pthread_mutex_lock(&names->lock);
    value *place = place_of(names, key);
    if (!place->text[0] && length > 0 && names->count < RT_VALUE_NAMES_MAX) {
        place->key = key;
        write_name(key, text, length, place->text);
        names->count++;
    }
    pthread_mutex_unlock(&names->lock);
}

const char *rt_value_names_find(rt_value_names *names, uint64_t key, char text[RT_VALUE_NAME_BYTES])
{
    const uint64_t id = key & RT_ID_MASK;
    if (id == RT_ID_MISSING)
        snprintf(text, RT_VALUE_NAME_BYTES, "(empty)");
    else
        snprintf(text, RT_VALUE_NAME_BYTES, "%08" PRIx64, id);
    if (!names)
        return text;
    pthread_mutex_lock(&names->lock);
    const value *place = place_of(names, key);
    if (place->text[0])
        snprintf(text, RT_VALUE_NAME_BYTES, "%s", place->text);
    pthread_mutex_unlock(&names->lock);
    return text;
}
