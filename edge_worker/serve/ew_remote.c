#include "edge_worker/serve/ew_remote.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "edge_worker/serve/ew_asker.h"
#include "edge_worker/serve/ew_cache.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"
#include "runtime/wire/rt_control.h"

#define NOBODY UINT32_MAX // place of a look-up that names no row

struct ew_remote {
    char address[RT_NAME_MAX + 16];
    uint32_t dim, fetch_ms;
    ew_cache *cache;
    ew_asker *asker;
    atomic_flag is_told; // why rows are refused
    atomic_uint_fast64_t wanted, asked, fetched, questions, failures;
};

struct ew_fetcher {
    ew_remote *remote;
    ew_rows_elsewhere elsewhere;
    ew_version version; // of the batch
    uint32_t serial;    // its number in the cache

    const uint64_t *looked_up; // keys of the batch, as they were given
    uint32_t *places;          // of each of them, in what follows
    uint64_t *keys;            // each once
    ew_cached *known;
    float *rows;
    uint32_t *missing; // places that are asked for
    uint32_t capacity; // of all of these
    uint32_t count, missing_count;
    uint32_t *index; // open addressing: place + 1
    uint32_t index_capacity;
};

// ---- memory ----------------------------------------------------------------------------------

// Slots of the index: a power of two, at most half of which are taken.
static uint32_t count_slots(uint32_t count)
{
    uint32_t slots = 64;
    while (slots < 2 * (uint64_t)count && slots < UINT32_C(1) << 31)
        slots *= 2;
    return slots;
}

// Room for count look-ups, and an empty index.
static bool make_room(ew_fetcher *f, uint32_t count)
{
    const uint32_t slots = count_slots(count);
    if (rt_grow(&f->index, &f->index_capacity, slots, sizeof *f->index))
        return false;
    memset(f->index, 0, slots * sizeof *f->index);
    if (count <= f->capacity)
        return true;
    uint32_t have[5] = {f->capacity, f->capacity, f->capacity, f->capacity, f->capacity};
    const size_t row_bytes = f->remote->dim * sizeof *f->rows;
    if (rt_grow(&f->places, &have[0], count, sizeof *f->places) ||
        rt_grow(&f->keys, &have[1], count, sizeof *f->keys) ||
        rt_grow(&f->known, &have[2], count, sizeof *f->known) ||
        rt_grow(&f->rows, &have[3], count, row_bytes) ||
        rt_grow(&f->missing, &have[4], count, sizeof *f->missing))
        return false;
    f->capacity = count;
    return true;
}

// ---- one batch -------------------------------------------------------------------------------

// Every key once.
static void collect(ew_fetcher *f, const uint64_t *keys, const uint8_t *named, uint32_t count)
{
    const uint32_t slots = count_slots(count);
    f->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = (uint32_t)rt_mix(keys[i]) & (slots - 1);
        f->places[i] = NOBODY;
        if (!named[i])
            continue;
        while (f->index[slot] && f->keys[f->index[slot] - 1] != keys[i])
            slot = (slot + 1) & (slots - 1);
        if (!f->index[slot]) {
            f->keys[f->count++] = keys[i];
            f->index[slot] = f->count;
        }
        f->places[i] = f->index[slot] - 1;
    }
}

// Those that are not known in this version.
static void find_missing(ew_fetcher *f)
{
    f->missing_count = 0;
    for (uint32_t i = 0; i < f->count; i++)
        if (f->known[i].kind == EW_CACHED_NOTHING || f->known[i].serial != f->serial)
            f->missing[f->missing_count++] = i;
}

static const float *row_at(const ew_fetcher *f, uint32_t place)
{
    return f->rows + (size_t)place * f->remote->dim;
}

// Of those from `first` on, as many as fit.
static rt_status create_question(const ew_fetcher *f, uint32_t first, uint32_t count,
                                 rt_message *question)
{
    const rt_wire_look_up head = {.version = f->version.id};
    const rt_status status =
        rt_message_create(question, RT_MESSAGE_LOOK_UP, rt_peer(RT_ROLE_VISITOR, 0), 0, 0,
                          sizeof head + (uint64_t)count * sizeof(rt_wire_wanted));
    if (status)
        return status;
    uint8_t *to = rt_message_payload(question);
    memcpy(to, &head, sizeof head);
    to += sizeof head;
    for (uint32_t i = 0; i < count; i++, to += sizeof(rt_wire_wanted)) {
        const uint32_t place = f->missing[first + i];
        rt_wire_wanted one = {f->keys[place], 0};
        if (f->known[place].kind == EW_CACHED_ROW)
            one.have = rt_hash_bytes(row_at(f, place), f->remote->dim * sizeof(float));
        memcpy(to, &one, sizeof one);
    }
    return RT_OK;
}

static rt_status check_head(const ew_fetcher *f, const rt_wire_looked_up *head,
                            const rt_reader *rest, uint32_t count, rt_error *error)
{
    ew_remote *r = f->remote;
    if (head->status) {
        rt_fail(error, RT_PEER, "%s: %.*s", r->address, (int)rt_min_u64(rest->left, 200),
                (const char *)rest->next);
        if (!atomic_flag_test_and_set(&r->is_told))
            rt_warn("rows: %s", error->text);
        return RT_PEER;
    }
    if (head->count != count || head->dim != r->dim)
        return rt_fail(error, RT_PEER, "%s: an answer of other rows than were asked for",
                       r->address);
    return RT_OK;
}

// Whether every answer is one that can be given: what is the same as ours, we have. *rows_p: how
// many rows follow.
static bool check_found(const ew_fetcher *f, uint32_t first, uint32_t count, const uint8_t *found,
                        uint32_t *rows_p)
{
    *rows_p = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t place = f->missing[first + i];
        if (found[i] == RT_LOOK_UP_ROW)
            (*rows_p)++;
        else if (found[i] == RT_LOOK_UP_SAME && f->known[place].kind != EW_CACHED_ROW)
            return false;
        else if (found[i] != RT_LOOK_UP_SAME && found[i] != RT_LOOK_UP_NONE)
            return false;
    }
    return true;
}

// Puts an answer in its places. All or nothing: it is looked through before.
static rt_status take_answer(ew_fetcher *f, uint32_t first, uint32_t count,
                             const rt_message *answer, rt_error *error)
{
    ew_remote *r = f->remote;
    rt_wire_looked_up head = {.status = RT_WIRE};
    rt_reader reader = rt_message_reader(answer);
    uint32_t rows = 0;
    (void)rt_reader_get(&reader, &head, 1, sizeof head);
    rt_status status = check_head(f, &head, &reader, count, error);
    if (status)
        return status;
    const uint8_t *found = rt_reader_take(&reader, ((uint64_t)count + 7) / 8 * 8, 1);
    if (!found || !check_found(f, first, count, found, &rows) ||
        reader.left != (uint64_t)rows * r->dim * sizeof(float))
        return rt_fail(error, RT_PEER, "%s: an incomplete answer", r->address);
    const ew_version version = {
        .id = head.version, .iteration = head.iteration, .trained_s = head.trained_s};
    const uint32_t serial = ew_cache_serial(r->cache, &version);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t place = f->missing[first + i];
        f->known[place] = (ew_cached){EW_CACHED_ROW, serial};
        if (found[i] == RT_LOOK_UP_NONE)
            f->known[place].kind = EW_CACHED_NONE;
        if (found[i] == RT_LOOK_UP_ROW)
            (void)rt_reader_get(&reader, f->rows + (size_t)place * r->dim, r->dim, sizeof(float));
    }
    atomic_fetch_add(&r->fetched, rows);
    return RT_OK;
}

static rt_status ask(ew_fetcher *f, uint32_t first, uint32_t count, uint64_t deadline_ns,
                     rt_error *error)
{
    rt_message question = {0}, answer = {0};
    rt_status status = create_question(f, first, count, &question);
    if (status)
        return rt_fail(error, status, "out of memory");
    atomic_fetch_add(&f->remote->questions, 1);
    status = ew_asker_ask(f->remote->asker, &question, deadline_ns, &answer, error);
    if (!status)
        status = take_answer(f, first, count, &answer, error);
    rt_message_release(&answer);
    return status;
}

static rt_status ask_by_parts(ew_fetcher *f, uint64_t deadline_ns, rt_error *error)
{
    uint32_t count;
    for (uint32_t first = 0; first < f->missing_count; first += count) {
        count = (uint32_t)rt_min_u64(f->missing_count - first, RT_WIRE_LOOK_UPS_MAX);
        const rt_status status = ask(f, first, count, deadline_ns, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// Nothing is lost without an answer: what is known stays, and who judges sees it.
static void ask_all(ew_fetcher *f)
{
    ew_remote *r = f->remote;
    const uint64_t deadline_ns = rt_now_ns() + (uint64_t)r->fetch_ms * 1000000;
    rt_error error = {0};
    if (ask_by_parts(f, deadline_ns, &error)) {
        atomic_fetch_add(&r->failures, 1);
        rt_debug("%s", error.text);
    }
}

static rt_status gather(void *context, const uint64_t *keys, const uint8_t *named, uint32_t count,
                        rt_error *error)
{
    ew_fetcher *f = context;
    ew_remote *r = f->remote;
    if (!make_room(f, count))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for rows");
    f->looked_up = keys;
    f->serial = ew_cache_serial(r->cache, &f->version);
    collect(f, keys, named, count);
    ew_cache_get(r->cache, f->keys, f->count, f->rows, f->known);
    find_missing(f);
    atomic_fetch_add(&r->wanted, f->count);
    atomic_fetch_add(&r->asked, f->missing_count);
    if (f->missing_count == 0)
        return RT_OK;
    ask_all(f);
    ew_cache_put(r->cache, f->keys, f->count, f->rows, f->known);
    return RT_OK;
}

static void find(void *context, const uint64_t *keys, uint32_t count, ps_found *found)
{
    static ps_entry some; // that there is a row is all that it says
    ew_fetcher *f = context;
    const uint32_t *places = f->places + (keys - f->looked_up);
    for (uint32_t i = 0; i < count; i++) {
        found[i] = (ps_found){NULL, NULL};
        if (places[i] != NOBODY && f->known[places[i]].kind == EW_CACHED_ROW)
            found[i] = (ps_found){&some, f->rows + (size_t)places[i] * f->remote->dim};
    }
}

// ---- what became of it -----------------------------------------------------------------------

rt_status ew_fetcher_judge(const ew_fetcher *f, uint32_t first, uint32_t end, ew_version *version,
                           rt_error *error)
{
    uint32_t last = f->serial;
    ew_version one;
    *version = f->version;
    version->rows_oldest = version->rows_newest = version->iteration;
    bool is_one = true;
    for (uint32_t i = first; i < end; i++) {
        const uint32_t place = f->places[i];
        if (place == NOBODY)
            continue;
        const ew_cached *known = &f->known[place];
        if (known->kind == EW_CACHED_NOTHING)
            return rt_fail(error, RT_PEER, "rows are not here, and %s does not hand them out",
                           f->remote->address);
        if (known->serial == last)
            continue;
        last = known->serial;
        is_one = is_one && last == f->serial;
        if (!ew_cache_version(f->remote->cache, last, &one))
            return rt_fail(error, RT_PEER,
                           "the rows here have a version that nobody knows any "
                           "more");
        version->rows_oldest = rt_min_u64(version->rows_oldest, one.iteration);
        version->rows_newest = rt_max_u64(version->rows_newest, one.iteration);
        if (one.trained_s < version->trained_s)
            version->trained_s = one.trained_s;
    }
    if (is_one)
        version->rows_oldest = version->rows_newest = 0;
    return RT_OK;
}

// ---- beginning and end -----------------------------------------------------------------------

rt_status ew_remote_open(const ew_remote_config *config, ew_remote **remote_p, rt_error *error)
{
    const ew_asker_config ask = {config->address, config->keys};
    ew_remote *remote = rt_alloc(1, sizeof *remote);
    if (!remote)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    snprintf(remote->address, sizeof remote->address, "%s", config->address);
    remote->dim = config->dim;
    remote->fetch_ms = config->fetch_ms;
    rt_status status = ew_cache_create(config->cache_bytes_max, config->dim, &remote->cache);
    if (status)
        status = rt_fail(error, status, "serve.cache_bytes_max: out of memory");
    if (!status)
        status = ew_asker_open(&ask, &remote->asker, error);
    if (status) {
        ew_remote_close(remote);
        return status;
    }
    *remote_p = remote;
    return RT_OK;
}

void ew_remote_close(ew_remote *remote)
{
    if (!remote)
        return;
    ew_asker_close(remote->asker);
    ew_cache_destroy(remote->cache);
    rt_free(remote);
}

ew_remote_counts ew_remote_counted(ew_remote *remote)
{
    return (ew_remote_counts){.cached = ew_cache_count(remote->cache),
                              .cached_bytes = ew_cache_bytes(remote->cache),
                              .wanted = atomic_load(&remote->wanted),
                              .asked = atomic_load(&remote->asked),
                              .fetched = atomic_load(&remote->fetched),
                              .questions = atomic_load(&remote->questions),
                              .failures = atomic_load(&remote->failures)};
}

rt_status ew_fetcher_create(ew_remote *remote, ew_fetcher **fetcher_p)
{
    ew_fetcher *f = rt_alloc(1, sizeof *f);
    if (!f)
        return RT_NO_MEMORY;
    f->remote = remote;
    f->elsewhere = (ew_rows_elsewhere){gather, find, f};
    *fetcher_p = f;
    return RT_OK;
}

void ew_fetcher_destroy(ew_fetcher *f)
{
    if (!f)
        return;
    rt_free(f->places);
    rt_free(f->keys);
    rt_free(f->known);
    rt_free(f->rows);
    rt_free(f->missing);
    rt_free(f->index);
    rt_free(f);
}

const ew_rows_elsewhere *ew_fetcher_begin(ew_fetcher *f, const ew_version *version)
{
    f->version = *version;
    return &f->elsewhere;
}
