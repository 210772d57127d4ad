// stores - what a parameter server does with rows, on rows that are kept in one of several ways.
//
//   stores table|lmdb|rocksdb FOLDER ROWS FLOATS MESSAGES SKEW
//
// Makes ROWS rows of FLOATS, then takes MESSAGES messages of 1,000 distinct keys each: reads every
// row, adds to it and keeps it. Keys follow a power law (rank ~ u^SKEW; 1: all alike). Neither
// store syncs: what lasts is written by checkpoints. Prints one JSON line.
#include <errno.h>
#include <lmdb.h>
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "ps_lite/ps_table.h"
#include "runtime/rt_hash.h"

#define KEYS 1000u

typedef struct {
    const char *folder;
    uint64_t rows;
    uint32_t floats;
    void *state;
} store;

static void must(int failed, const char *what)
{
    if (!failed)
        return;
    fprintf(stderr, "stores: %s\n", what);
    exit(EXIT_FAILURE);
}

static void change(float *row, uint32_t floats)
{
    for (uint32_t i = 0; i < floats; i++)
        row[i] += 1;
}

// ---- ps_table, rows on disk

static void table_open(store *s)
{
    rt_error error = {0};
    ps_store *rows;
    ps_table *table;
    must(ps_store_create(s->folder, s->rows * s->floats * 8 + (1 << 26), &rows, &error),
         error.text);
    const ps_table_config config = {.row_floats = s->floats,
                                    .memory_bytes_max = UINT64_C(1) << 36,
                                    .is_on_disk = true,
                                    .store = rows};
    must(ps_table_create(&config, &table), "out of memory");
    s->state = table;
}

static void table_take(store *s, const uint64_t *keys, uint32_t count)
{
    rt_error error = {0};
    ps_table *table = s->state;
    must(ps_table_reserve(table, count, &error), error.text);
    for (uint32_t i = 0; i < count; i++) {
        const ps_entry *entry = ps_table_find(table, keys[i]);
        if (entry)
            ps_table_will_need(table, entry);
    }
    for (uint32_t i = 0; i < count; i++) {
        ps_entry *entry = ps_table_find(table, keys[i]);
        const int is_new = !entry;
        if (is_new)
            entry = ps_table_insert(table, keys[i]);
        if (is_new)
            memset(ps_table_row(table, entry), 0, s->floats * sizeof(float));
        change(ps_table_row(table, entry), s->floats);
    }
}

// ---- LMDB: one transaction a message

typedef struct {
    MDB_env *environment;
    MDB_dbi database;
} lmdb;

static void lmdb_open(store *s)
{
    lmdb *l = calloc(1, sizeof *l);
    MDB_txn *begin;
    must(!l || mdb_env_create(&l->environment), "LMDB");
    mdb_env_set_mapsize(l->environment, s->rows * (s->floats * 4 + 64) * 3 + (1 << 30));
    must(mdb_env_open(l->environment, s->folder,
                      MDB_WRITEMAP | MDB_NOSYNC | MDB_NORDAHEAD | MDB_NOLOCK, 0600),
         "LMDB: open");
    must(mdb_txn_begin(l->environment, NULL, 0, &begin) ||
             mdb_dbi_open(begin, NULL, MDB_INTEGERKEY, &l->database) || mdb_txn_commit(begin),
         "LMDB: begin");
    s->state = l;
}

static void lmdb_take(store *s, const uint64_t *keys, uint32_t count)
{
    lmdb *l = s->state;
    MDB_txn *all;
    must(mdb_txn_begin(l->environment, NULL, 0, &all), "LMDB: begin");
    for (uint32_t i = 0; i < count; i++) {
        uint64_t one = keys[i];
        MDB_val key = {sizeof one, &one}, found = {0}, room = {s->floats * sizeof(float), NULL};
        const int missing = mdb_get(all, l->database, &key, &found);
        float *row = malloc(room.mv_size);
        must(!row, "out of memory");
        if (missing)
            memset(row, 0, room.mv_size);
        else
            memcpy(row, found.mv_data, room.mv_size);
        change(row, s->floats);
        must(mdb_put(all, l->database, &key, &room, MDB_RESERVE), "LMDB: put");
        memcpy(room.mv_data, row, room.mv_size);
        free(row);
    }
    must(mdb_txn_commit(all), "LMDB: commit");
}

// ---- RocksDB: one batch a message, without its log

static void rocksdb_open_all(store *s)
{
    char *error = NULL;
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
    rocksdb_options_increase_parallelism(options, 2);
    rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom(10));
    rocksdb_options_set_block_based_table_factory(options, table);
    s->state = rocksdb_open(options, s->folder, &error);
    must(error != NULL, error);
}

static void rocksdb_take(store *s, const uint64_t *keys, uint32_t count)
{
    const char *names[KEYS];
    size_t name_sizes[KEYS], sizes[KEYS];
    char *rows[KEYS], *errors[KEYS], *error = NULL;
    const size_t bytes = s->floats * sizeof(float);
    rocksdb_readoptions_t *reading = rocksdb_readoptions_create();
    rocksdb_writeoptions_t *writing = rocksdb_writeoptions_create();
    rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
    rocksdb_writeoptions_disable_WAL(writing, 1);
    for (uint32_t i = 0; i < count; i++) {
        names[i] = (const char *)&keys[i];
        name_sizes[i] = sizeof keys[i];
    }
    rocksdb_multi_get(s->state, reading, count, names, name_sizes, rows, sizes, errors);
    for (uint32_t i = 0; i < count; i++) {
        must(errors[i] != NULL, errors[i]);
        if (!rows[i])
            rows[i] = calloc(1, bytes);
        change((float *)(void *)rows[i], s->floats);
        rocksdb_writebatch_put(batch, names[i], name_sizes[i], rows[i], bytes);
        free(rows[i]);
    }
    rocksdb_write(s->state, writing, batch, &error);
    must(error != NULL, error);
    rocksdb_writebatch_destroy(batch);
    rocksdb_writeoptions_destroy(writing);
    rocksdb_readoptions_destroy(reading);
}

// ---- The messages

static const struct {
    const char *name;
    void (*open)(store *s);
    void (*take)(store *s, const uint64_t *keys, uint32_t count);
} kinds[] = {{"table", table_open, table_take},
             {"lmdb", lmdb_open, lmdb_take},
             {"rocksdb", rocksdb_open_all, rocksdb_take}};

static uint64_t draw(rt_random *random, uint64_t rows, double skew)
{
    double u = (double)(rt_random_u64(random) >> 11) * 0x1p-53, share = u;
    for (double s = skew; s > 1.5; s -= 1)
        share *= u;
    return rt_mix((uint64_t)(share * (double)rows)); // neighbours in rank are none on disk
}

int main(int count, char **words)
{
    uint64_t keys[KEYS];
    must(count != 7, "expected KIND FOLDER ROWS FLOATS MESSAGES SKEW");
    store s = {.folder = words[2],
               .rows = strtoull(words[3], NULL, 10),
               .floats = (uint32_t)strtoul(words[4], NULL, 10)};
    const uint64_t messages = strtoull(words[5], NULL, 10);
    const double skew = strtod(words[6], NULL);
    rt_random random = {7};
    size_t k = 0;
    while (k < RT_COUNT_OF(kinds) && strcmp(kinds[k].name, words[1]) != 0)
        k++;
    must(k == RT_COUNT_OF(kinds), "expected table, lmdb or rocksdb");
    kinds[k].open(&s);
    const uint64_t begin_ns = rt_now_ns();
    for (uint64_t row = 0; row < s.rows; row += KEYS) {
        for (uint32_t i = 0; i < KEYS; i++)
            keys[i] = rt_mix(row + i);
        kinds[k].take(&s, keys, KEYS);
    }
    const uint64_t made_ns = rt_now_ns();
    for (uint64_t m = 0; m < messages; m++) {
        for (uint32_t i = 0; i < KEYS; i++)
            keys[i] = draw(&random, s.rows, skew);
        kinds[k].take(&s, keys, KEYS);
    }
    const double taken_s = (double)(rt_now_ns() - made_ns) * 1e-9;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("{\"store\": \"%s\", \"made_rows_per_s\": %.0f, \"rows_per_s\": %.0f, "
           "\"major_faults\": %ld, \"read_mb\": %ld, \"written_mb\": %ld}\n",
           words[1], (double)s.rows / ((double)(made_ns - begin_ns) * 1e-9),
           (double)(messages * KEYS) / taken_s, used.ru_majflt, used.ru_inblock / 2048,
           used.ru_oublock / 2048);
    return EXIT_SUCCESS;
}
