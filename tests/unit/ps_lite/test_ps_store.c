// Rows on disk: a copy of the process sees them as they were, and the process loses no change.
#include "ps_lite/ps_store.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ps_lite/ps_table.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define BLOCK (UINT64_C(1) << 20)
#define BLOCKS 24u // more than one call of release looks at
#define WORDS (BLOCK / sizeof(uint64_t))

static ps_store *make(uint64_t bytes_max)
{
    static const char *folder;
    folder = folder ? folder : test_directory();
    ps_store *store = NULL;
    rt_error error = {0};
    if (ps_store_create(folder, bytes_max, &store, &error))
        fail_msg("%s", error.text);
    return store;
}

static uint64_t *add(ps_store *store)
{
    void *bytes;
    rt_error error = {0};
    if (ps_store_add(store, BLOCK, &bytes, &error))
        fail_msg("%s", error.text);
    return bytes;
}

static uint32_t release_all(ps_store *store)
{
    uint32_t parts = 0;
    rt_error error = {0};
    rt_status status = RT_AGAIN;
    for (; status == RT_AGAIN; parts++)
        status = ps_store_release(store, &error);
    if (status)
        fail_msg("%s", error.text);
    return parts;
}

// What every word was when the copy was made; the copy says so when the pipe does.
static pid_t copy_that_checks(const uint64_t *words, uint64_t count, int go)
{
    const pid_t pid = fork();
    if (pid)
        return pid;
    char byte;
    if (read(go, &byte, 1) != 1)
        _exit(2);
    for (uint64_t i = 0; i < count; i++)
        if (words[i] != rt_mix(i))
            _exit(1);
    _exit(0);
}

static void a_copy_sees_the_past(void **state)
{
    (void)state;
    ps_store *store = make((BLOCKS + 2) * BLOCK);
    uint64_t *words = add(store);
    rt_random random = {1};
    for (uint32_t b = 1; b < BLOCKS; b++)
        assert_ptr_equal(add(store), words + b * WORDS);
    const uint64_t count = BLOCKS * WORDS;
    for (uint64_t i = 0; i < count; i++)
        words[i] = rt_mix(i);
    for (uint32_t round = 0; round < 3; round++) {
        int go[2], result;
        rt_error error = {0};
        assert_int_equal(pipe(go), 0);
        const pid_t pid = copy_that_checks(words, count, go[0]);
        assert_int_equal(ps_store_hold(store, &error), RT_OK);
        assert_true(ps_store_is_held(store));
        // Here and there, runs of pages, the first word and the last.
        for (uint32_t i = 0; i < 2000; i++)
            words[rt_random_u64(&random) % count] = round + 7;
        memset(words + 3 * WORDS, 5, BLOCK / 2);
        words[0] = words[count - 1] = 99;
        uint64_t *more = round == 0 ? add(store) : words + count; // beyond what is held
        *more = 1234 + round;
        uint64_t *want = malloc((count + 1) * sizeof *want);
        assert_non_null(want);
        memcpy(want, words, (count + 1) * sizeof *want);
        assert_int_equal(write(go[1], "g", 1), 1);
        assert_int_equal(waitpid(pid, &result, 0), pid);
        assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
        assert_int_equal(release_all(store), 2); // 16 of the 24 MB, and the rest
        assert_false(ps_store_is_held(store));
        assert_memory_equal(words, want, (count + 1) * sizeof *want);
        for (uint64_t i = 0; i < count; i++)
            words[i] = rt_mix(i);
        free(want);
        close(go[0]);
        close(go[1]);
    }
    ps_store_destroy(store);
}

// A second copy before the first one's changes were taken back: it sees them.
static void held_twice(void **state)
{
    (void)state;
    ps_store *store = make(BLOCK);
    uint64_t *words = add(store);
    rt_error error = {0};
    int go[2], result;
    for (uint64_t i = 0; i < WORDS; i++)
        words[i] = 0;
    assert_int_equal(ps_store_hold(store, &error), RT_OK);
    for (uint64_t i = 0; i < WORDS; i++)
        words[i] = rt_mix(i);
    assert_int_equal(pipe(go), 0);
    const pid_t pid = copy_that_checks(words, WORDS, go[0]);
    assert_int_equal(ps_store_hold(store, &error), RT_OK);
    memset(words, 0, BLOCK);
    assert_int_equal(write(go[1], "g", 1), 1);
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
    release_all(store);
    assert_int_equal(words[5], 0);
    close(go[0]);
    close(go[1]);
    ps_store_destroy(store);
}

// Bytes that this process has written to files so far.
static uint64_t written(void)
{
    unsigned long long bytes;
    FILE *file = fopen("/proc/self/io", "r");
    if (!file || fscanf(file, "rchar: %*u wchar: %llu", &bytes) != 1)
        test_skip("no /proc/self/io here");
    fclose(file);
    return bytes;
}

// Pages that changed while a copy read the others, and no more: a checkpoint of a large table in
// which little changes costs the disk little.
static void only_what_changed_is_written(void **state)
{
    (void)state;
    static const uint32_t pages[] = {0, 1, 2, 100, 255, 256, 511, 512, 513, 1000, 6143};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    ps_store *store = make(BLOCKS * BLOCK);
    uint8_t *bytes = (uint8_t *)add(store);
    rt_error error = {0};
    for (uint32_t b = 1; b < BLOCKS; b++)
        (void)add(store);
    const uint32_t page_count = (uint32_t)(BLOCKS * BLOCK / page);
    for (uint32_t i = 0; i < page_count; i++)
        bytes[i * page] = 1;
    assert_int_equal(ps_store_hold(store, &error), RT_OK);
    uint32_t changed = 0;
    for (size_t i = 0; i < RT_COUNT_OF(pages) && pages[i] < page_count; i++, changed++)
        bytes[pages[i] * page + 5] = 7;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < page_count; i++) // to be read is no change
        sum += bytes[i * page];
    assert_int_equal(sum, page_count);
    const uint64_t before = written();
    assert_int_equal(release_all(store), 2);
    assert_int_equal(written() - before, changed * page);
    for (size_t i = 0; i < changed; i++)
        assert_int_equal(bytes[pages[i] * page + 5], 7);
    ps_store_destroy(store);
}

// Of rows that end meanwhile nothing is written, and their room is free at once.
static void rows_that_end_while_they_are_held(void **state)
{
    (void)state;
    ps_store *store = make(4 * BLOCK);
    rt_error error = {0};
    uint64_t *words = add(store), *second = add(store), *third = add(store);
    words[0] = second[0] = third[0] = 1;
    assert_int_equal(ps_store_hold(store, &error), RT_OK);
    words[0] = second[0] = third[0] = 2;
    ps_store_cut(store, third);
    assert_true(ps_store_is_held(store));
    assert_int_equal(ps_store_bytes(store), 2 * BLOCK);
    assert_int_equal(release_all(store), 1);
    assert_true(words[0] == 2 && second[0] == 2);
    assert_int_equal(ps_store_hold(store, &error), RT_OK);
    ps_store_cut(store, words);
    assert_false(ps_store_is_held(store));
    assert_int_equal(release_all(store), 1);
    assert_ptr_equal(add(store), words);
    words[0] = 3;
    ps_store_destroy(store);
}

static void bounds_and_folders(void **state)
{
    (void)state;
    ps_store *store = make(2 * BLOCK);
    const int input = fcntl(STDIN_FILENO, F_GETFD);
    rt_error error = {0};
    void *bytes;
    uint64_t *first = add(store);
    uint64_t *second = add(store);
    *second = 3;
    assert_int_equal(ps_store_add(store, 1, &bytes, &error), RT_LIMIT);
    assert_non_null(strstr(error.text, "ps.disk_bytes_max"));
    assert_null(bytes);
    ps_store_cut(store, second);
    assert_int_equal(ps_store_bytes(store), BLOCK);
    assert_ptr_equal(add(store), second);
    ps_store_cut(store, first);
    assert_int_equal(ps_store_bytes(store), 0);
    ps_store_destroy(store);
    assert_int_equal(ps_store_create("/nowhere/at/all", BLOCK, &store, &error), RT_CONFIG);
    assert_string_equal(error.text, "ps.folder: /nowhere/at/all: cannot make a file for rows: No "
                                    "such file or directory");
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), input); // no descriptor of others was closed
}

// The disk says no when room is asked for, not when a row is written.
static void a_full_disk(void **state)
{
    (void)state;
    ps_store *store = make(8 * BLOCK);
    rt_error error = {0};
    void *bytes;
    struct rlimit before, small = {2 * BLOCK, 0};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    add(store);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(ps_store_add(store, 4 * BLOCK, &bytes, &error), RT_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_non_null(strstr(error.text, "no room for more rows"));
    ps_store_destroy(store);
}

// What has changed cannot be written any more: that is told, and what names the folder says why.
static void changes_that_cannot_be_written(void **state)
{
    (void)state;
    ps_store *store = make(4 * BLOCK);
    rt_error error = {0};
    struct rlimit before, small = {BLOCK, 0};
    uint64_t *words = add(store);
    (void)add(store);
    assert_int_equal(ps_store_hold(store, &error), RT_OK);
    words[WORDS + 5] = 7; // in the second block
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(ps_store_release(store, &error), RT_IO);
    assert_non_null(strstr(error.text, "cannot write rows: File too large"));
    assert_int_equal(ps_store_hold(store, &error), RT_IO);
    assert_true(ps_store_is_held(store));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(release_all(store), 1); // there is room again
    assert_int_equal(words[WORDS + 5], 7);
    ps_store_destroy(store);
}

// Cuts off every file that this process has open, which does to their mapped pages what a bad disk
// does: they are not there.
static void lose_files(void)
{
    for (int file = 3; file < 64; file++) {
        char path[64];
        struct stat info;
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        if (stat(path, &info) == 0 && S_ISREG(info.st_mode))
            (void)!ftruncate(file, 0);
    }
}

// How a copy of this process ends that reads a word of a file that is lost, and what it says.
static int read_lost(const volatile uint64_t *word, char text[512])
{
    int said[2], result;
    assert_int_equal(pipe(said), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(said[1], STDERR_FILENO);
        lose_files();
        _exit(*word == 1 ? 3 : 4);
    }
    close(said[1]);
    assert_int_equal(waitpid(pid, &result, 0), pid);
    memset(text, 0, 512);
    assert_true(read(said[0], text, 511) >= 0);
    close(said[0]);
    return result;
}

static ps_store *make_in(const char *name)
{
    ps_store *store = NULL;
    rt_error error = {0};
    assert_true(mkdir(test_path(name), 0700) == 0 || errno == EEXIST);
    if (ps_store_create(test_path(name), BLOCK, &store, &error))
        fail_msg("%s", error.text);
    return store;
}

// The folder is named whose disk it is, however many stores there are, and were.
static void a_page_that_cannot_be_read(void **state)
{
    (void)state;
    static const char *const names[] = {"one", "two", "three"};
    ps_store *stores[3];
    uint64_t *words[3];
    char text[512], want[600];
    for (uint32_t round = 0; round < 5; round++) {
        for (uint32_t i = 0; i < 3; i++) {
            stores[i] = make_in(names[i]);
            words[i] = add(stores[i]);
        }
        for (uint32_t i = 0; i < 3 && round % 4 == 0; i++) {
            for (uint32_t end = 0; end < 2; end++) { // its first word, and its last
                const int result = read_lost(words[i] + (end ? WORDS - 1 : 0), text);
                assert_true(WIFEXITED(result) && WEXITSTATUS(result) == EXIT_FAILURE);
                snprintf(want, sizeof want,
                         "lanyard: error: a row cannot be read from the disk of ps.folder %s\n",
                         test_path(names[i]));
                assert_string_equal(text, want);
            }
        }
        for (uint32_t i = 0; i < 3; i++)
            ps_store_destroy(stores[i]);
    }
}

// Somebody else's mapping is none of ours: the process ends as it would without a store.
static void another_page_that_cannot_be_read(void **state)
{
    (void)state;
    char text[512];
    ps_store *store = make_in("mine");
    (void)add(store);
    FILE *file = fopen(test_path("theirs"), "w+");
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), 4096), 0);
    const void *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(file), 0);
    assert_true(mapped != MAP_FAILED);
    const int result = read_lost(mapped, text);
    assert_true(WIFSIGNALED(result) && WTERMSIG(result) == SIGBUS);
    assert_null(strstr(text, "lanyard: ")); // qemu-user says something of its own
    fclose(file);
    ps_store_destroy(store);
}

// A table on disk beside one in memory: rows come, change and end.
static void a_table_on_disk(void **state)
{
    (void)state;
    for (uint32_t floats = 1; floats < 600; floats = floats * 5 + 2) {
        ps_store *store = make(UINT64_C(256) << 20);
        const ps_table_config in_memory = {.row_floats = floats,
                                           .memory_bytes_max = UINT64_C(1) << 28};
        ps_table_config on_disk = in_memory;
        on_disk.is_on_disk = true;
        on_disk.store = store;
        ps_table *tables[2];
        rt_random random = {floats};
        rt_error error = {0};
        assert_int_equal(ps_table_create(&in_memory, &tables[0]), RT_OK);
        assert_int_equal(ps_table_create(&on_disk, &tables[1]), RT_OK);
        assert_int_equal(ps_table_bytes(tables[1]), ps_table_bytes_for(&on_disk, 0));
        for (uint32_t op = 0; op < 20000; op++) {
            const uint64_t key = rt_mix(rt_random_u64(&random) % 6000);
            if (op == 7000)
                assert_int_equal(ps_store_hold(store, &error), RT_OK);
            if (op == 14000)
                release_all(store);
            for (uint32_t t = 0; t < 2; t++) {
                ps_entry *entry = ps_table_find(tables[t], key);
                if (!entry) {
                    assert_int_equal(ps_table_reserve(tables[t], 1, &error), RT_OK);
                    entry = ps_table_insert(tables[t], key);
                }
                entry->version = op + 1;
                for (uint32_t i = 0; i < floats; i++)
                    ps_table_row(tables[t], entry)[i] = (float)op + (float)i;
                ps_table_will_need(tables[t], entry);
                for (uint64_t at = 0;
                     op % 5000 == 4999 && ps_table_erase_below(tables[t], op - 3000, &at);) {
                }
            }
        }
        assert_int_equal(ps_table_count(tables[1]), ps_table_count(tables[0]));
        assert_true(ps_table_bytes(tables[1]) < ps_table_bytes(tables[0]) || floats == 1);
        for (uint64_t r = 0; r < ps_table_count(tables[0]); r++) {
            const uint64_t key = ps_table_key(tables[0], r);
            const ps_entry *a = ps_table_find(tables[0], key), *b = ps_table_find(tables[1], key);
            assert_non_null(b);
            assert_int_equal(a->version, b->version);
            assert_memory_equal(ps_table_row(tables[0], a), ps_table_row(tables[1], b),
                                floats * sizeof(float));
        }
        ps_table_destroy(tables[0]);
        ps_table_destroy(tables[1]);
        assert_int_equal(ps_store_bytes(store), 0);
        ps_store_destroy(store);
    }
}

// Blocks of rows that end give their room on disk back, but for one; not while a copy reads them.
static void a_table_gives_room_back(void **state)
{
    (void)state;
    enum { FLOATS = 1 << 20, ROWS = 8 }; // two rows to a block of 8 MB
    const uint64_t block = UINT64_C(8) << 20;
    ps_store *store = make(8 * block);
    rt_error error = {0};
    ps_table *table;
    const ps_table_config config = {
        .row_floats = FLOATS, .memory_bytes_max = 1 << 20, .is_on_disk = true, .store = store};
    assert_int_equal(ps_table_create(&config, &table), RT_OK);
    assert_int_equal(ps_table_reserve(table, ROWS, &error), RT_OK);
    for (uint64_t key = 0; key < ROWS; key++)
        ps_table_row(table, ps_table_insert(table, key))[0] = (float)key;
    assert_int_equal(ps_store_bytes(store), 4 * block);
    for (uint64_t left = ROWS; left-- > 0;) {
        const bool held = left > 4;
        if (left == ROWS - 1)
            assert_int_equal(ps_store_hold(store, &error), RT_OK);
        if (left == 4)
            release_all(store);
        assert_true(ps_table_erase(table, left));
        const uint64_t blocks = rt_min_u64(4, (left + 1) / 2 + 1);
        assert_int_equal(ps_store_bytes(store), (held ? 4 : blocks) * block);
        for (uint64_t key = 0; key < left; key++)
            assert_true(ps_table_row(table, ps_table_find(table, key))[0] == (float)key);
    }
    ps_table_destroy(table);
    assert_int_equal(ps_store_bytes(store), 0);
    ps_store_destroy(store);
}

TEST_MAIN(TEST(a_copy_sees_the_past), TEST(held_twice), TEST(only_what_changed_is_written),
          TEST(rows_that_end_while_they_are_held), TEST(bounds_and_folders), TEST(a_full_disk),
          TEST(changes_that_cannot_be_written), TEST(a_page_that_cannot_be_read),
          TEST(another_page_that_cannot_be_read), TEST(a_table_on_disk),
          TEST(a_table_gives_room_back))
