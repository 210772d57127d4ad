#include "dispatch/cache/dp_directory.h"

#include <inttypes.h>
#include <string.h>

#include "dispatch/plan/dp_plan.h"

#define HALF_BITS 16u
#define HALF_COUNT (1u << HALF_BITS)
#define ENTRIES_MIN 1024u
#define ENTRIES_MAX (UINT64_C(1) << 32)  // dp_record.entry has 32 bits
#define LOAD_NUMERATOR 7u                // of 10
#define STEP_ENTRIES (UINT64_C(1) << 16) // that are cleared at once
#define MOVE_INSTRUCTIONS 26u            // of an entry, into a larger table

static uint64_t entries_for(uint64_t key_count)
{
    uint64_t entries = ENTRIES_MIN;
    while (entries <= ENTRIES_MAX && key_count > entries * LOAD_NUMERATOR / 10)
        entries *= 2;
    return entries;
}

rt_status dp_directory_init(dp_directory *directory, uint64_t keys_expected)
{
    memset(directory, 0, sizeof *directory);
    uint64_t entries = entries_for(keys_expected);
    if (entries > ENTRIES_MAX)
        return RT_NO_MEMORY;
    directory->entries = rt_alloc(entries, sizeof(dp_entry));
    if (!directory->entries)
        return RT_NO_MEMORY;
    directory->mask = entries - 1;
    return RT_OK;
}

rt_status dp_directory_keep_homes(dp_directory *directory)
{
    directory->homes = rt_alloc(directory->mask + 1, sizeof *directory->homes);
    if (!directory->homes)
        return RT_NO_MEMORY;
    return RT_OK;
}

void dp_directory_set_home(dp_directory *directory, dp_record *record, uint32_t shard)
{
    if (record->home != DP_NO_HOME)
        directory->home_counts[record->home]--;
    directory->home_counts[shard]++;
    record->home = (uint8_t)shard;
}

void dp_directory_fini(dp_directory *directory)
{
    rt_free(directory->entries);
    rt_free(directory->next);
    rt_free(directory->homes);
    rt_free(directory->records);
    rt_free(directory->free_records);
    memset(directory, 0, sizeof *directory);
}

static bool entry_is_free(const dp_entry *entry)
{
    return (entry->version | entry->record) == 0;
}

// The table that comes next, of count entries: entries_max more of it are clear.
static rt_status clear_next(dp_directory *directory, uint64_t count, uint64_t entries_max)
{
    if (directory->next_count != count) {
        rt_free(directory->next);
        directory->next_count = directory->next_cleared = 0;
        directory->next = rt_alloc_unset(count, sizeof(dp_entry));
        if (!directory->next)
            return RT_NO_MEMORY;
        directory->next_count = count;
    }
    const uint64_t entries = rt_min_u64(entries_max, count - directory->next_cleared);
    memset(directory->next + directory->next_cleared, 0, entries * sizeof(dp_entry));
    directory->next_cleared += entries;
    return RT_OK;
}

static rt_status grow_table(dp_directory *directory, uint64_t key_count)
{
    uint64_t count = entries_for(key_count);
    if (count <= directory->mask + 1)
        return RT_OK;
    if (count > ENTRIES_MAX)
        return RT_NO_MEMORY;
    uint8_t *homes = NULL;
    if (directory->homes)
        homes = rt_alloc(count, sizeof *homes);
    if (clear_next(directory, count, count) || (directory->homes && !homes)) {
        rt_free(homes);
        return RT_NO_MEMORY;
    }
    dp_entry *entries = directory->next;
    directory->next = NULL;
    directory->next_count = directory->next_cleared = 0;
    for (uint64_t i = 0; i <= directory->mask; i++) {
        const dp_entry *old = &directory->entries[i];
        if (entry_is_free(old))
            continue;
        uint64_t at = rt_mix(old->key) & (count - 1);
        while (!entry_is_free(&entries[at]))
            at = (at + 1) & (count - 1);
        entries[at] = *old;
        if (homes)
            homes[at] = directory->homes[i];
        if (old->record)
            directory->records[old->record - 1].entry = (uint32_t)at;
    }
    rt_free(directory->entries);
    rt_free(directory->homes);
    directory->entries = entries;
    directory->homes = homes;
    directory->mask = count - 1;
    return RT_OK;
}

rt_status dp_directory_expect(dp_directory *directory, uint64_t record_count)
{
    if (rt_grow_unset(&directory->records, &directory->record_capacity, record_count,
                      sizeof(dp_record)) ||
        rt_grow_unset(&directory->free_records, &directory->free_capacity, record_count,
                      sizeof(uint32_t)))
        return RT_NO_MEMORY;
    return RT_OK;
}

rt_status dp_directory_reserve(dp_directory *directory, uint32_t key_count)
{
    if (dp_directory_expect(directory, (uint64_t)directory->record_top + key_count))
        return RT_NO_MEMORY;
    return grow_table(directory, directory->key_count + key_count);
}

static bool must_clear(const dp_directory *directory, uint64_t count)
{
    return count > directory->mask + 1 && count <= ENTRIES_MAX &&
           (directory->next_count != count || directory->next_cleared < count);
}

rt_status dp_directory_reserve_step(dp_directory *directory, uint32_t key_count, bool *done_p)
{
    const uint64_t count = entries_for(directory->key_count + key_count);
    *done_p = !must_clear(directory, count);
    if (*done_p)
        return dp_directory_reserve(directory, key_count);
    return clear_next(directory, count, STEP_ENTRIES);
}

uint64_t dp_directory_step_work(const dp_directory *directory, uint32_t key_count)
{
    const uint64_t count = entries_for(directory->key_count + key_count);
    if (must_clear(directory, count))
        return rt_min_u64(STEP_ENTRIES, count) * sizeof(dp_entry);
    if (count <= directory->mask + 1)
        return 0;
    return (directory->mask + 1) * MOVE_INSTRUCTIONS;
}

static uint32_t take_record(dp_directory *directory)
{
    directory->record_count++;
    if (directory->free_count)
        return directory->free_records[--directory->free_count];
    rt_assert(directory->record_top < directory->record_capacity);
    return directory->record_top++;
}

dp_sought dp_directory_seek(const dp_directory *directory, uint64_t key, uint64_t home)
{
    uint64_t at = home;
    const dp_entry *entry = &directory->entries[at];
    while (!entry_is_free(entry) && entry->key != key) {
        at = (at + 1) & directory->mask;
        entry = &directory->entries[at];
    }
    return (dp_sought){.record = entry->record ? entry->record - 1 : DP_NO_RECORD,
                       .entry = (uint32_t)at,
                       .has_entry = !entry_is_free(entry)};
}

// Another key may have come to the entry that was free. Of what has an entry only attach touches
// memory far away.
void dp_directory_reserve_record(dp_directory *directory, uint64_t key, dp_sought *sought)
{
    sought->record = take_record(directory);
    if (sought->has_entry)
        return;
    uint64_t at = sought->entry;
    while (!entry_is_free(&directory->entries[at]))
        at = (at + 1) & directory->mask;
    directory->entries[at] = (dp_entry){.key = key, .record = sought->record + 1};
    directory->key_count++;
    sought->entry = (uint32_t)at;
}

void dp_directory_attach(dp_directory *directory, uint64_t key, const dp_sought *sought)
{
    dp_entry *entry = &directory->entries[sought->entry];
    const bool has_home = directory->homes && entry->version > 0;
    entry->record = sought->record + 1;
    directory->records[sought->record] =
        (dp_record){.key = key,
                    .version = entry->version,
                    .version_ps = entry->version,
                    .entry = sought->entry,
                    .copies.first = DP_NO_COPY,
                    .viewed.first = DP_NO_COPY,
                    .home = has_home ? directory->homes[sought->entry] : DP_NO_HOME};
}

uint32_t dp_directory_find(dp_directory *directory, uint64_t key)
{
    dp_sought sought = dp_directory_seek(directory, key, dp_directory_home(directory, key));
    if (sought.record == DP_NO_RECORD) {
        dp_directory_reserve_record(directory, key, &sought);
        dp_directory_attach(directory, key, &sought);
    }
    return sought.record;
}

uint32_t dp_directory_peek(const dp_directory *directory, uint64_t key)
{
    return dp_directory_seek(directory, key, dp_directory_home(directory, key)).record;
}

bool dp_directory_knows(const dp_directory *directory, uint64_t key)
{
    uint64_t at = dp_directory_home(directory, key);
    for (; !entry_is_free(&directory->entries[at]); at = (at + 1) & directory->mask) {
        if (directory->entries[at].key == key)
            return true;
    }
    return false;
}

rt_status dp_directory_add(dp_directory *directory, uint64_t key, uint32_t version, uint32_t home)
{
    rt_assert(version > 0);
    rt_status status = grow_table(directory, directory->key_count + 1);
    if (status)
        return status;
    uint64_t at = dp_directory_home(directory, key);
    while (!entry_is_free(&directory->entries[at]))
        at = (at + 1) & directory->mask;
    directory->entries[at] = (dp_entry){key, version, 0};
    if (directory->homes) {
        directory->homes[at] = (uint8_t)home;
        directory->home_counts[home]++;
    }
    directory->key_count++;
    return RT_OK;
}

bool dp_directory_detach(dp_directory *directory, uint32_t index)
{
    dp_record *record = &directory->records[index];
    dp_entry *entry = &directory->entries[record->entry];
    if (entry->record != index + 1)
        return false;
    rt_assert(record->copies.holders == 0 && record->copies.first == DP_NO_COPY);
    rt_assert(record->viewed.first == DP_NO_COPY);
    rt_assert(record->version == record->version_ps && record->version > 0);
    entry->version = record->version;
    if (directory->homes)
        directory->homes[record->entry] = record->home;
    entry->record = 0;
    return true;
}

void dp_directory_reclaim(dp_directory *directory, uint32_t index)
{
    directory->free_records[directory->free_count++] = index;
    directory->record_count--;
}

void dp_directory_release(dp_directory *directory, uint32_t index)
{
    const bool was_there = dp_directory_detach(directory, index);
    rt_assert(was_there);
    dp_directory_reclaim(directory, index);
}

uint32_t dp_directory_version(const dp_directory *directory, uint64_t key)
{
    uint64_t at = dp_directory_home(directory, key);
    for (; !entry_is_free(&directory->entries[at]); at = (at + 1) & directory->mask) {
        const dp_entry *entry = &directory->entries[at];
        if (entry->key == key)
            return entry->record ? directory->records[entry->record - 1].version : entry->version;
    }
    return 0;
}

void dp_directory_walk(const dp_directory *directory, void (*take)(void *context, uint32_t age),
                       void *context)
{
    for (uint64_t i = 0; i <= directory->mask; i++) {
        const dp_entry *entry = &directory->entries[i];
        if (!entry_is_free(entry))
            take(context, entry->record
                              ? dp_directory_age(directory, &directory->records[entry->record - 1])
                              : entry->version);
    }
}

// How many keys have a version with these upper bits, or with these lower ones below given upper
// ones.
typedef struct {
    bool is_lower;
    uint32_t upper;
    uint64_t counts[HALF_COUNT];
} histogram;

static void count_version(void *context, uint32_t version)
{
    histogram *h = context;
    if (!h->is_lower)
        h->counts[version >> HALF_BITS]++;
    else if (version >> HALF_BITS == h->upper)
        h->counts[version & (HALF_COUNT - 1)]++;
}

// The half in which the rank-th newest is; *rank_p becomes its rank there. HALF_COUNT: there are
// not so many.
static uint32_t find_half(const histogram *h, uint64_t *rank_p)
{
    for (uint32_t half = HALF_COUNT; half-- > 0;) {
        if (h->counts[half] >= *rank_p)
            return half;
        *rank_p -= h->counts[half];
    }
    return HALF_COUNT;
}

uint32_t dp_directory_newest(const dp_directory *directory, uint64_t rank)
{
    histogram *h = rt_alloc(1, sizeof *h);
    uint32_t version = 0;
    if (!h)
        return 0;
    dp_directory_walk(directory, count_version, h);
    h->upper = find_half(h, &rank);
    if (h->upper < HALF_COUNT) {
        h->is_lower = true;
        memset(h->counts, 0, sizeof h->counts);
        dp_directory_walk(directory, count_version, h);
        version = h->upper << HALF_BITS | find_half(h, &rank);
    }
    rt_free(h);
    return version;
}

// An entry goes; those behind it that stand further from home than they must move up, so that no
// probe meets a gap:
//
//     place     3    4    5    6    7          place     3    4    5    6    7
//     key       a    X    b    c    -    ->    key       a    b    c    -    -      homes: b 4, c 5
//
// An entry moves into the gap unless its home lies behind the gap.
static void erase_entry(dp_directory *directory, uint64_t gap)
{
    dp_entry *entries = directory->entries;
    const uint64_t mask = directory->mask;
    if (directory->homes)
        directory->home_counts[directory->homes[gap]]--;
    for (uint64_t at = (gap + 1) & mask; !entry_is_free(&entries[at]); at = (at + 1) & mask) {
        const uint64_t distance = (at - dp_directory_home(directory, entries[at].key)) & mask;
        if (distance < ((at - gap) & mask))
            continue;
        entries[gap] = entries[at];
        if (directory->homes)
            directory->homes[gap] = directory->homes[at];
        if (entries[gap].record)
            directory->records[entries[gap].record - 1].entry = (uint32_t)gap;
        gap = at;
    }
    entries[gap] = (dp_entry){0};
    directory->key_count--;
}

// What moves up comes from places that are still ahead, or, around the end, from the beginning,
// where all that is left stays.
uint64_t dp_directory_erase_below(dp_directory *directory, uint32_t floor)
{
    const uint64_t before = directory->key_count;
    for (uint64_t at = 0; at <= directory->mask; at++) {
        const dp_entry *entry = &directory->entries[at];
        while (!entry_is_free(entry) && !entry->record && entry->version < floor)
            erase_entry(directory, at);
        rt_assert(!entry->record || directory->records[entry->record - 1].version >= floor);
    }
    return before - directory->key_count;
}

void dp_directory_erase(dp_directory *directory, uint64_t key)
{
    uint64_t at = dp_directory_home(directory, key);
    while (directory->entries[at].key != key || entry_is_free(&directory->entries[at])) {
        rt_assert(!entry_is_free(&directory->entries[at]));
        at = (at + 1) & directory->mask;
    }
    rt_assert(!directory->entries[at].record);
    erase_entry(directory, at);
}

uint64_t dp_directory_bytes(const dp_directory *directory)
{
    return (directory->mask + 1) * (sizeof(dp_entry) + (directory->homes != NULL)) +
           (uint64_t)directory->record_capacity * sizeof(dp_record) +
           (uint64_t)directory->free_capacity * sizeof(uint32_t);
}

static bool record_legal(const dp_record *record, rt_error *error)
{
    const char *wrong = NULL;
    if (record->version_ps > record->version)
        wrong = "the PS is ahead of the latest version";
    else if (record->version_ps < record->version && record->copies.holders == 0)
        wrong = "the latest version is held by nobody";
    else if (record->copies.holders && record->copies.first == DP_NO_COPY)
        wrong = "held, but there is no copy";
    if (!wrong)
        return true;
    rt_fail(error, RT_CONFIG,
            "key %" PRIx64 ": %s (latest %" PRIu32 ", PS %" PRIu32 ", holders %" PRIx64 ")",
            record->key, wrong, record->version, record->version_ps, record->copies.holders);
    return false;
}

bool dp_directory_legal(const dp_directory *directory, rt_error *error)
{
    uint64_t records = 0;
    for (uint64_t i = 0; i <= directory->mask; i++) {
        const dp_entry *entry = &directory->entries[i];
        if (!entry->record)
            continue;
        const dp_record *record = &directory->records[entry->record - 1];
        records++;
        if (record->key != entry->key || record->entry != i) {
            rt_fail(error, RT_CONFIG, "key %" PRIx64 ": entry and record differ", entry->key);
            return false;
        }
        if (!record_legal(record, error))
            return false;
    }
    if (records != directory->record_count)
        rt_fail(error, RT_CONFIG, "%" PRIu64 " records reachable, %" PRIu32 " in use", records,
                directory->record_count);
    return records == directory->record_count;
}
