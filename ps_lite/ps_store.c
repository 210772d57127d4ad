#define _GNU_SOURCE // O_TMPFILE, MAP_NORESERVE
#include "ps_lite/ps_store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RELEASE_BYTES ((uint64_t)16 << 20) // that one call of release looks at
#define PAGE_IN_MEMORY (UINT64_C(1) << 63) // of an entry of /proc/self/pagemap
#define PAGE_SWAPPED (UINT64_C(1) << 62)
#define PAGE_OF_FILE (UINT64_C(1) << 61)
#define ENTRIES 512u

struct ps_store {
    uint8_t *base;      // bytes_max of address space; the file's first `bytes` are mapped there
    uint64_t bytes_max; // whole pages, as all sizes here
    uint64_t bytes;
    uint64_t held_from; // [held_from, held_to): writes are private
    uint64_t held_to;
    size_t page;
    int file;
    int pagemap; // of this process, or -1
    char folder[256];
};

static uint64_t whole_pages(const ps_store *store, uint64_t bytes)
{
    return (bytes + store->page - 1) / store->page * store->page;
}

// ---- A page that cannot be read --------------------------------------------------------------

#define SHOWN_MAX 8 // a shard has one store, a server that follows a run two

static _Atomic(const ps_store *) shown[SHOWN_MAX]; // whose pages are named

static const ps_store *find_shown(const uint8_t *at)
{
    for (uint32_t i = 0; i < SHOWN_MAX; i++) {
        const ps_store *store = shown[i];
        if (store && at >= store->base && at < store->base + store->bytes)
            return store;
    }
    return NULL;
}

static void cannot_read(int number, siginfo_t *info, void *context)
{
    (void)context;
    const ps_store *store = find_shown(info->si_addr);
    if (!store) {
        signal(number, SIG_DFL); // somebody else's: it comes again
        return;
    }
    static const char text[] = "lanyard: error: a row cannot be read from the disk of ps.folder ";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    (void)!write(STDERR_FILENO, store->folder, strlen(store->folder));
    (void)!write(STDERR_FILENO, "\n", 1);
    _exit(EXIT_FAILURE);
}

static void show(const ps_store *store)
{
    struct sigaction action = {.sa_sigaction = cannot_read, .sa_flags = SA_SIGINFO};
    for (uint32_t i = 0; i < SHOWN_MAX; i++) {
        const ps_store *none = NULL;
        if (atomic_compare_exchange_strong(&shown[i], &none, store))
            break;
    }
    sigaction(SIGBUS, &action, NULL);
}

static void hide(const ps_store *store)
{
    for (uint32_t i = 0; i < SHOWN_MAX; i++) {
        const ps_store *own = store;
        if (atomic_compare_exchange_strong(&shown[i], &own, NULL))
            break;
    }
}

// ---- The file --------------------------------------------------------------------------------

// A file system without O_TMPFILE gets one that loses its name at once.
static int open_file(const char *folder)
{
    char path[512];
    int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return file;
    if (snprintf(path, sizeof path, "%s/rows-XXXXXX", folder) >= (int)sizeof path)
        return errno = ENAMETOOLONG, -1;
    file = mkostemp(path, O_CLOEXEC);
    if (file >= 0)
        unlink(path);
    return file;
}

static rt_status failed(const ps_store *store, const char *what, rt_error *error)
{
    return rt_fail(error, RT_IO, "ps.folder: %s: %s: %s", store->folder, what, strerror(errno));
}

rt_status ps_store_create(const char *folder, uint64_t bytes_max, ps_store **store_p,
                          rt_error *error)
{
    ps_store *store = rt_alloc(1, sizeof *store);
    if (!store)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: rows on disk");
    snprintf(store->folder, sizeof store->folder, "%s", folder);
    store->page = (size_t)sysconf(_SC_PAGESIZE);
    store->bytes_max = whole_pages(store, bytes_max);
    store->pagemap = -1;
    store->file = open_file(folder);
    if (store->file < 0) {
        rt_fail(error, RT_CONFIG, "ps.folder: %s: cannot make a file for rows: %s", folder,
                strerror(errno));
        ps_store_destroy(store);
        return RT_CONFIG;
    }
    void *base =
        mmap(NULL, store->bytes_max, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        rt_fail(error, RT_NO_MEMORY, "ps.disk_bytes_max: no %" PRIu64 " bytes of address space: %s",
                store->bytes_max, strerror(errno));
        ps_store_destroy(store);
        return RT_NO_MEMORY;
    }
    store->base = base;
    store->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    show(store);
    *store_p = store;
    return RT_OK;
}

rt_status ps_store_open(const rt_config *config, ps_store **store_p, rt_error *error)
{
    const char *folder = *config->ps_folder ? config->ps_folder : "/var/tmp";
    *store_p = NULL;
    if (config->ps_storage != RT_STORAGE_DISK)
        return RT_OK;
    return ps_store_create(folder, config->ps_disk_bytes_max, store_p, error);
}

void ps_store_destroy(ps_store *store)
{
    if (!store)
        return;
    hide(store);
    if (store->base)
        munmap(store->base, store->bytes_max);
    if (store->file >= 0)
        close(store->file);
    if (store->pagemap >= 0)
        close(store->pagemap);
    rt_free(store);
}

// Maps [from, to) of the file, shared or private. Rows are read here and there: nothing is read
// ahead.
static int map(ps_store *store, uint64_t from, uint64_t to, int how)
{
    uint8_t *at = store->base + from;
    if (from == to)
        return 0;
    if (mmap(at, to - from, PROT_READ | PROT_WRITE, how | MAP_FIXED | MAP_NORESERVE, store->file,
             (off_t)from) == MAP_FAILED)
        return -1;
    (void)madvise(at, to - from, MADV_RANDOM);
    return 0;
}

rt_status ps_store_add(ps_store *store, uint64_t bytes, void **bytes_p, rt_error *error)
{
    const uint64_t more = whole_pages(store, bytes);
    *bytes_p = NULL;
    if (more > store->bytes_max - store->bytes)
        return rt_fail(error, RT_LIMIT,
                       "%" PRIu64 " bytes of rows are on disk, ps.disk_bytes_max allows %" PRIu64,
                       store->bytes, store->bytes_max);
    errno = posix_fallocate(store->file, (off_t)store->bytes, (off_t)more);
    if (errno || map(store, store->bytes, store->bytes + more, MAP_SHARED))
        return failed(store, "no room for more rows", error);
    *bytes_p = store->base + store->bytes;
    store->bytes += more;
    return RT_OK;
}

void ps_store_cut(ps_store *store, void *from)
{
    const uint64_t bytes = (uint64_t)((uint8_t *)from - store->base);
    rt_assert(bytes <= store->bytes);
    (void)mmap(from, store->bytes - bytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (!ps_store_is_held(store)) // else a copy reads it
        (void)!ftruncate(store->file, (off_t)bytes);
    store->held_to = rt_min_u64(store->held_to, bytes);
    store->held_from = rt_min_u64(store->held_from, store->held_to);
    store->bytes = bytes;
}

void ps_store_will_need(const ps_store *store, const void *from, size_t bytes)
{
    const uintptr_t mask = ~(uintptr_t)(store->page - 1);
    const uintptr_t first = (uintptr_t)from & mask;
    const uintptr_t end = ((uintptr_t)from + bytes + store->page - 1) & mask;
    (void)madvise((void *)first, end - first, MADV_WILLNEED);
}

// ---- Beside a copy of the process ------------------------------------------------------------

rt_status ps_store_hold(ps_store *store, rt_error *error)
{
    rt_status status = RT_AGAIN;
    while (status == RT_AGAIN)
        status = ps_store_release(store, error); // what the last copy has left
    if (status)
        return status;
    if (map(store, 0, store->bytes, MAP_PRIVATE))
        return rt_fail(error, RT_NO_MEMORY,
                       "cannot keep the rows on disk as they are while they are written: %s",
                       strerror(errno));
    store->held_from = 0;
    store->held_to = store->bytes;
    return RT_OK;
}

// Of which pages a private copy was made; without /proc all may be.
static void find_private(const ps_store *store, uint64_t from, uint32_t count, uint64_t *entries)
{
    const uint64_t page = ((uintptr_t)store->base + from) / store->page;
    const size_t bytes = count * sizeof *entries;
    if (store->pagemap < 0 ||
        pread(store->pagemap, entries, bytes, (off_t)(page * sizeof *entries)) != (ssize_t)bytes)
        for (uint32_t i = 0; i < count; i++)
            entries[i] = PAGE_IN_MEMORY;
}

static bool is_private(uint64_t entry)
{
    return (entry & (PAGE_IN_MEMORY | PAGE_SWAPPED)) && !(entry & PAGE_OF_FILE);
}

static int write_all(int file, const uint8_t *bytes, uint64_t count, uint64_t at)
{
    while (count) {
        const ssize_t written = pwrite(file, bytes, count, (off_t)at);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return -1;
        bytes += written;
        at += (uint64_t)written;
        count -= (uint64_t)written;
    }
    return 0;
}

static int write_private(const ps_store *store, uint64_t from, uint64_t to)
{
    uint64_t entries[ENTRIES];
    for (uint64_t at = from, bytes; at < to; at += bytes) {
        const uint32_t count = (uint32_t)rt_min_u64(ENTRIES, (to - at) / store->page);
        bytes = count * store->page;
        find_private(store, at, count, entries);
        for (uint32_t i = 0, end; i < count; i = end + 1) {
            for (end = i; end < count && is_private(entries[end]); end++)
                ;
            const uint64_t first = at + i * store->page;
            if (write_all(store->file, store->base + first, (end - i) * store->page, first))
                return -1;
        }
    }
    return 0;
}

rt_status ps_store_release(ps_store *store, rt_error *error)
{
    const uint64_t from = store->held_from;
    const uint64_t to = rt_min_u64(store->held_to, from + RELEASE_BYTES);
    if (from == to)
        return RT_OK;
    if (write_private(store, from, to) || map(store, from, to, MAP_SHARED))
        return failed(store, "cannot write rows", error);
    store->held_from = to;
    return to < store->held_to ? RT_AGAIN : RT_OK;
}

bool ps_store_is_held(const ps_store *store)
{
    return store->held_from < store->held_to;
}

uint64_t ps_store_bytes(const ps_store *store)
{
    return store->bytes;
}
