// A mirror and its standby in one process, over loopback: what is acknowledged is synced there, and
// folders are the same byte for byte, whoever was away.
#include "runtime/config/rt_sources.h"
#include "runtime/live/rt_mirror.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/live/rt_segment.h"
#include "runtime/live/rt_standby.h"
#include "runtime/live/rt_standby_disk.h"
#include "runtime/rt_log.h"
#include "runtime/transport/rt_ask.h"
#include "runtime/wire/rt_control.h"
#include "tests/support/test.h"
#include "tests/support/visitors.h"

#define BYTES_MAX (UINT64_C(1) << 20) // of a journal: segments of 64 KiB
#define BLOCK 6000u
#define WAIT_S 20

// ---- what is synced: under the standby's folder, by the last fdatasync of each file

static pthread_mutex_t sync_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    ino_t file;
    off_t size;
} synced[256];
static uint32_t synced_count;

// In place of libc's, in this program.
int fdatasync(int fd)
{
    struct stat info;
    const int failed = (int)syscall(SYS_fdatasync, fd);
    if (failed || fstat(fd, &info) != 0)
        return failed;
    pthread_mutex_lock(&sync_lock);
    uint32_t i = 0;
    while (i < synced_count && synced[i].file != info.st_ino)
        i++;
    rt_assert(i < RT_COUNT_OF(synced));
    synced_count += i == synced_count;
    synced[i].file = info.st_ino;
    synced[i].size = info.st_size;
    pthread_mutex_unlock(&sync_lock);
    return 0;
}

// Writes to this folder fail while it is set.
static _Atomic(const char *) full_folder;

// Likewise in place of libc's.
ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    const char *full = full_folder;
    char name[64], path[512] = "";
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    if (full && readlink(name, path, sizeof path - 1) > 0 &&
        strncmp(path, full, strlen(full)) == 0) {
        errno = ENOSPC;
        return -1;
    }
    return (ssize_t)syscall(SYS_pwrite64, fd, bytes, size, offset);
}

static bool is_synced(const char *path)
{
    struct stat info;
    bool is = false;
    if (stat(path, &info) != 0)
        return false;
    pthread_mutex_lock(&sync_lock);
    for (uint32_t i = 0; i < synced_count; i++)
        is |= synced[i].file == info.st_ino && synced[i].size == info.st_size;
    pthread_mutex_unlock(&sync_lock);
    return is;
}

// ---- both ends

typedef struct {
    rt_config config;
    char here[256], there[256], here_saved[300], there_saved[300], here_journal[300],
        there_journal[300], address[RT_NAME_MAX + 16];
    rt_mirror *mirror;
    rt_journal *journal;
    pthread_t thread;
    int stop_fd;
    rt_status ended; // of the standby
    rt_error error;
} both;

static uint32_t find_port(void)
{
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof place;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&place, size) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&place, &size), 0);
    close(fd);
    return ntohs(place.sin_port);
}

static void prepare(both *b)
{
    const char *folder = test_directory();
    *b = (both){.stop_fd = -1};
    snprintf(b->here, sizeof b->here, "%s/here", folder);
    snprintf(b->there, sizeof b->there, "%s/there", folder);
    snprintf(b->here_saved, sizeof b->here_saved, "%s/checkpoints", b->here);
    snprintf(b->there_saved, sizeof b->there_saved, "%s/checkpoints", b->there);
    snprintf(b->here_journal, sizeof b->here_journal, "%s/journal", b->here);
    snprintf(b->there_journal, sizeof b->there_journal, "%s/journal", b->there);
    assert_int_equal(mkdir(b->here, 0755) | mkdir(b->here_saved, 0755) | mkdir(b->there, 0755), 0);
    assert_int_equal(rt_config_init(&b->config), RT_OK);
    b->config.stream.source = RT_SOURCE_HTTP;
    b->config.timeout_peer_s = 2;
    snprintf(b->config.standby, sizeof b->config.standby, "127.0.0.1:%u", find_port());
    snprintf(b->address, sizeof b->address, "tcp://%s", b->config.standby);
}

static void *stand_by(void *context)
{
    both *b = context;
    const rt_standby_config config = {.config = &b->config,
                                      .ops = &rt_transport_zmq,
                                      .directory = b->there,
                                      .checkpoints = b->there_saved,
                                      .stop_fd = b->stop_fd};
    b->ended = rt_standby_run(&config, &b->error);
    return NULL;
}

static void start_standby(both *b)
{
    b->stop_fd = eventfd(0, EFD_CLOEXEC);
    assert_int_equal(pthread_create(&b->thread, NULL, stand_by, b), 0);
}

static void end_standby(both *b)
{
    const uint64_t one = 1;
    assert_int_equal(write(b->stop_fd, &one, sizeof one), sizeof one);
    pthread_join(b->thread, NULL);
    close(b->stop_fd);
    b->stop_fd = -1;
    assert_int_equal(b->ended, RT_STOPPED);
}

// Of a coordinator whose shards have not come.
static rt_status begin_mirror(both *b, uint32_t epoch, bool waits, rt_error *error)
{
    const rt_mirror_config config = {.ops = &rt_transport_zmq,
                                     .address = b->address,
                                     .directory = b->here,
                                     .checkpoints = b->here_saved,
                                     .epoch = epoch,
                                     .waits = waits,
                                     .timeout_peer_s = 2};
    assert_int_equal(rt_mirror_open(&config, &b->mirror, error), RT_OK);
    const bool comes = waits || b->stop_fd >= 0; // else nobody is waited for in vain for long
    return rt_mirror_await(b->mirror, comes ? WAIT_S : 0.3, -1, error);
}

static rt_status open_mirror(both *b, uint32_t epoch, bool waits, rt_error *error)
{
    const rt_status status = begin_mirror(b, epoch, waits, error);
    rt_mirror_lead(b->mirror);
    return status;
}

static void open_journal(both *b)
{
    const rt_journal_copy copy = rt_mirror_copy(b->mirror, RT_FLOW_EVENTS);
    assert_int_equal(rt_journal_open(b->here_journal, BYTES_MAX, &copy, &b->journal, NULL), RT_OK);
    rt_mirror_attach(b->mirror, RT_FLOW_EVENTS, b->journal);
}

static void close_all(both *b)
{
    rt_mirror_stop(b->mirror);
    rt_journal_close(b->journal);
    rt_mirror_close(b->mirror);
    b->mirror = NULL;
    b->journal = NULL;
}

// ---- appending

typedef struct {
    both *of;
    atomic_int done, kept, refused, failed, not_there;
} outcome;

// The last segment is there, with as many bytes, and synced.
static bool is_kept_there(const both *b)
{
    rt_journal_extent *extents;
    uint32_t count;
    char path[400];
    struct stat info;
    assert_int_equal(rt_journal_extents(b->journal, &extents, &count), RT_OK);
    const rt_journal_extent last = extents[count - 1];
    rt_free(extents);
    snprintf(path, sizeof path, "%s/%020" PRIu64 ".seg", b->there_journal, last.first);
    return stat(path, &info) == 0 && (uint64_t)info.st_size == last.bytes && is_synced(path);
}

static void note_done(void *context, rt_status status)
{
    outcome *o = context;
    o->kept += status == RT_OK;
    o->refused += status == RT_REFUSED;
    o->failed += status != RT_OK && status != RT_REFUSED;
    o->not_there += status == RT_OK && !is_kept_there(o->of);
    o->done++;
}

static void append(both *b, outcome *o, uint32_t blocks, bool one_by_one)
{
    char lines[BLOCK];
    memset(lines, 'x', sizeof lines);
    o->of = b;
    for (uint32_t i = 0; i < blocks; i++) {
        const int before = o->done;
        snprintf(lines, sizeof lines, "%u", i);
        const rt_journal_entry entry = {
            .lines = lines, .size = BLOCK - i % 97, .count = 1, .done = note_done, .context = o};
        assert_int_equal(rt_journal_append(b->journal, &entry), RT_OK);
        for (int n = 0; one_by_one && o->done == before && n < WAIT_S * 1000; n++)
            (void)poll(NULL, 0, 1);
    }
}

static void await(const atomic_int *number, int wanted)
{
    for (int n = 0; *number < wanted && n < WAIT_S * 100; n++)
        (void)poll(NULL, 0, 10);
    assert_int_equal(*number, wanted);
}

// ---- comparing

static bool are_same(const char *path, const char *other)
{
    char command[700];
    snprintf(command, sizeof command,
             "diff -r -x lock -x standby.id -x standby.state -x epoch '%s' '%s' >/dev/null", path,
             other);
    return system(command) == 0;
}

static void await_same(const char *path, const char *other)
{
    for (int n = 0; !are_same(path, other) && n < WAIT_S * 20; n++)
        (void)poll(NULL, 0, 50);
    assert_true(are_same(path, other));
}

// The mirror knows it a moment after the bytes are there.
static void await_in_step(both *b)
{
    rt_mirror_counts counts = {0};
    for (int n = 0; !counts.is_in_step && n < WAIT_S * 100; n++) {
        (void)poll(NULL, 0, 10);
        rt_mirror_statistics(b->mirror, &counts);
    }
    assert_true(counts.is_in_step);
}

static void acknowledged_is_synced_there(void **state)
{
    (void)state;
    both b;
    outcome o = {0};
    prepare(&b);
    start_standby(&b);
    assert_int_equal(open_mirror(&b, 1, true, NULL), RT_OK);
    open_journal(&b);
    append(&b, &o, 60, true); // 360 KB: segments begin
    append(&b, &o, 40, false);
    await(&o.done, 100);
    assert_int_equal(o.kept, 100);
    assert_int_equal(o.not_there, 0);
    assert_true(are_same(b.here_journal, b.there_journal));
    close_all(&b);
    end_standby(&b);
    rt_config_fini(&b.config);
}

static void who_was_away_gets_what_it_lacks(void **state)
{
    (void)state;
    both b;
    outcome o = {0}, more = {0};
    prepare(&b);
    assert_int_equal(open_mirror(&b, 1, false, NULL), RT_TIMEOUT);
    open_journal(&b);
    append(&b, &o, 50, true); // without it
    assert_int_equal(o.kept, 50);
    assert_int_equal(o.not_there, 50);
    start_standby(&b);
    await_same(b.here_journal, b.there_journal);
    end_standby(&b);
    append(&b, &o, 20, true);
    assert_int_equal(o.kept, 70);
    start_standby(&b);
    await_same(b.here_journal, b.there_journal);
    await_in_step(&b);
    append(&b, &more, 10, true);
    assert_int_equal(more.kept, 10);
    assert_int_equal(more.not_there, 0);
    close_all(&b);
    end_standby(&b);
    rt_config_fini(&b.config);
}

static void flip(const char *folder, uint64_t segment, uint64_t at)
{
    char path[400], byte;
    snprintf(path, sizeof path, "%s/%020" PRIu64 ".seg", folder, segment);
    const int file = open(path, O_RDWR);
    assert_int_equal(pread(file, &byte, 1, (off_t)at), 1);
    byte ^= 8;
    assert_int_equal(syscall(SYS_pwrite64, file, &byte, 1, (off_t)at), 1);
    close(file);
}

static uint64_t read_all(both *b)
{
    uint64_t events = 0;
    rt_journal_frame frame;
    while (!rt_journal_read(b->journal, &frame, NULL))
        events += frame.count;
    return events;
}

// Bits that flip here come back from the standby, in every segment; those that flip in both are
// lost alone.
static void damage_is_mended_from_there(void **state)
{
    (void)state;
    both b;
    outcome o = {0}, more = {0};
    rt_journal_extent *extents;
    uint32_t count;
    prepare(&b);
    start_standby(&b);
    assert_int_equal(open_mirror(&b, 1, true, NULL), RT_OK);
    open_journal(&b);
    append(&b, &o, 60, true);
    assert_int_equal(o.kept, 60);
    assert_int_equal(rt_journal_extents(b.journal, &extents, &count), RT_OK);
    assert_true(count > 3);
    const rt_journal_extent second = extents[1], last = extents[count - 1];
    rt_free(extents);
    close_all(&b);
    flip(b.here_journal, 1, 3); // the head of the segment
    flip(b.here_journal, second.first, second.bytes / 2);
    flip(b.here_journal, last.first, 3);
    flip(b.here_journal, last.first, last.bytes - 7); // the last frame
    assert_int_equal(open_mirror(&b, 1, true, NULL), RT_OK);
    open_journal(&b);
    assert_int_equal(read_all(&b), 60);
    assert_int_equal(rt_journal_statistics(b.journal).lost, 0);
    append(&b, &more, 5, true);
    await_same(b.here_journal, b.there_journal);
    close_all(&b);
    flip(b.here_journal, second.first, second.bytes / 2);
    flip(b.there_journal, second.first, second.bytes / 2 + 3);
    assert_int_equal(open_mirror(&b, 1, true, NULL), RT_OK);
    open_journal(&b);
    assert_int_equal(read_all(&b), 64);
    assert_int_equal(rt_journal_statistics(b.journal).lost, 1);
    close_all(&b);
    end_standby(&b);
    rt_config_fini(&b.config);
}

static void without_it_whoever_waits_is_not_told(void **state)
{
    (void)state;
    both b;
    outcome o = {0};
    prepare(&b);
    start_standby(&b);
    assert_int_equal(open_mirror(&b, 1, true, NULL), RT_OK);
    open_journal(&b);
    append(&b, &o, 5, true);
    end_standby(&b);
    append(&b, &o, 3, false);
    (void)poll(NULL, 0, 500);
    assert_int_equal(o.done, 5);
    close_all(&b); // ends the wait: nothing of it was acknowledged, and nothing is on disk
    assert_int_equal(o.kept, 5);
    assert_int_equal(o.failed, 3);
    start_standby(&b);
    assert_int_equal(open_mirror(&b, 1, true, NULL), RT_OK);
    open_journal(&b);
    assert_int_equal(rt_journal_statistics(b.journal).next, 6);
    await_same(b.here_journal, b.there_journal);
    close_all(&b);
    end_standby(&b);
    rt_config_fini(&b.config);
}

// Shards may follow another coordinator by now: nothing is acknowledged before they are here, and
// what was written until then is on no disk if they do not come.
static void alone_it_is_told_once_shards_are_there(void **state)
{
    (void)state;
    both b;
    outcome o = {0}, later = {0};
    prepare(&b);
    assert_int_equal(begin_mirror(&b, 1, false, NULL), RT_TIMEOUT);
    open_journal(&b);
    append(&b, &o, 3, false);
    (void)poll(NULL, 0, 300);
    assert_int_equal(o.done, 0);
    close_all(&b);
    assert_int_equal(o.failed, 3);
    assert_int_equal(begin_mirror(&b, 1, false, NULL), RT_TIMEOUT);
    open_journal(&b);
    append(&b, &later, 3, false);
    (void)poll(NULL, 0, 300);
    assert_int_equal(later.done, 0);
    rt_mirror_lead(b.mirror);
    await(&later.kept, 3);
    assert_int_equal(rt_journal_statistics(b.journal).next, 4);
    close_all(&b);
    rt_config_fini(&b.config);
}

// A disk that takes no more: what went to the other one of it goes there, too.
static void what_is_not_written_on_both_is_on_none(void **state)
{
    (void)state;
    both b;
    outcome o = {0}, later = {0};
    prepare(&b);
    start_standby(&b);
    assert_int_equal(open_mirror(&b, 1, false, NULL), RT_OK);
    open_journal(&b);
    append(&b, &o, 2, true);
    full_folder = b.here_journal;
    append(&b, &o, 3, true);
    full_folder = NULL;
    assert_int_equal(o.failed, 3);
    await_same(b.here_journal, b.there_journal);
    full_folder = b.there_journal; // a standby that cannot keep it is away
    append(&b, &o, 1, true);
    assert_int_equal(o.not_there, 1);
    full_folder = NULL;
    await_same(b.here_journal, b.there_journal);
    await_in_step(&b);
    append(&b, &later, 10, true);
    assert_int_equal(later.kept, 10);
    assert_int_equal(later.not_there, 0);
    await_same(b.here_journal, b.there_journal);
    close_all(&b);
    end_standby(&b);
    rt_config_fini(&b.config);
}

static void ask_to_promote(both *b)
{
    char text[RT_ASK_BYTES_MAX];
    const rt_ask_config ask = {
        .ops = &rt_transport_zmq, .coordinator = b->address, .timeout_s = WAIT_S};
    assert_int_equal(rt_ask(&ask, "promote", text, NULL), RT_OK);
    assert_non_null(strstr(text, "1048576"));
}

static void promoted_takes_nothing_more(void **state)
{
    (void)state;
    both b;
    outcome o = {0};
    rt_standby_state read;
    prepare(&b);
    start_standby(&b);
    assert_int_equal(open_mirror(&b, 7, true, NULL), RT_OK);
    open_journal(&b);
    append(&b, &o, 4, true);
    ask_to_promote(&b);
    pthread_join(b.thread, NULL);
    assert_int_equal(b.ended, RT_OK);
    assert_int_equal(rt_standby_read(b.there, &read, NULL), RT_OK);
    assert_true(read.is_promoted && read.epoch == RT_STANDBY_EPOCHS);
    append(&b, &o, 2, false);
    (void)poll(NULL, 0, 300);
    assert_int_equal(o.kept, 4);
    close_all(&b);
    assert_int_equal(o.kept, 4);
    close(b.stop_fd);
    rt_config_fini(&b.config);
}

static void follows_one_run_and_no_old_epoch(void **state)
{
    (void)state;
    both b;
    char id[300];
    rt_error error = {0};
    prepare(&b);
    start_standby(&b);
    assert_int_equal(open_mirror(&b, 7, true, NULL), RT_OK);
    close_all(&b);
    assert_int_equal(open_mirror(&b, 6, true, &error), RT_REFUSED);
    assert_non_null(strstr(error.text, "epoch 7"));
    close_all(&b);
    snprintf(id, sizeof id, "%s/standby.id", b.here);
    assert_int_equal(unlink(id), 0); // a folder that begins anew
    assert_int_equal(open_mirror(&b, 8, true, &error), RT_REFUSED);
    assert_non_null(strstr(error.text, "another run"));
    close_all(&b);
    end_standby(&b);
    rt_config_fini(&b.config);
}

// What a coordinator has written, but nobody got, would stay where blocks are to go.
static void no_folder_of_a_coordinator_is_followed_in(void **state)
{
    (void)state;
    both b;
    prepare(&b);
    assert_int_equal(open_mirror(&b, 7, false, NULL), RT_TIMEOUT); // gives it its id
    close_all(&b);
    snprintf(b.there, sizeof b.there, "%s", b.here);
    start_standby(&b);
    pthread_join(b.thread, NULL);
    assert_int_equal(b.ended, RT_CONFIG);
    assert_non_null(strstr(b.error.text, "the folder of a coordinator"));
    close(b.stop_fd);
    rt_config_fini(&b.config);
}

static void put_file(const char *folder, const char *name, const char *text, size_t times)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (size_t i = 0; i < times; i++)
        assert_true(fputs(text, file) >= 0);
    fclose(file);
}

static void make_checkpoint(const both *b, const char *name, const char *text)
{
    char folder[400];
    snprintf(folder, sizeof folder, "%s/%s", b->here_saved, name);
    assert_int_equal(mkdir(folder, 0755), 0);
    put_file(folder, "dense.bin", text, 300000); // some megabytes: several pieces
    put_file(folder, "empty.bin", text, 0);
    put_file(folder, "manifest.json", text, 1);
}

static void checkpoints_come_and_go_as_here(void **state)
{
    (void)state;
    both b;
    char command[500];
    prepare(&b);
    make_checkpoint(&b, "ckpt-000000000010", "ten bytes.");
    put_file(b.here_saved, "boxes", "who is in\n", 1);
    start_standby(&b);
    assert_int_equal(open_mirror(&b, 1, true, NULL), RT_OK);
    await_same(b.here_saved, b.there_saved);
    make_checkpoint(&b, "ckpt-000000000020", "twenty");
    await_same(b.here_saved, b.there_saved);
    snprintf(command, sizeof command, "rm -r '%s/ckpt-000000000010' '%s/ckpt-000000000020'",
             b.here_saved, b.here_saved);
    assert_int_equal(system(command), 0);
    make_checkpoint(&b, "ckpt-000000000020", "another history"); // of the same iteration
    put_file(b.here_saved, "boxes", "who is in now\n", 1);
    await_same(b.here_saved, b.there_saved);
    close_all(&b);
    end_standby(&b);
    rt_config_fini(&b.config);
}

static void await_size(const char *folder, const char *name, off_t size)
{
    char path[400];
    struct stat info;
    off_t found = -2;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (uint32_t i = 0; i < WAIT_S * 100 && found != size; i++) {
        found = stat(path, &info) == 0 ? info.st_size : -1;
        (void)poll(NULL, 0, 10);
    }
    assert_int_equal(found, size);
}

// Rows that people want forgotten would come back with a checkpoint of the standby.
static void keys_to_be_forgotten_are_there_as_long_as_here(void **state)
{
    (void)state;
    both b;
    char path[400];
    prepare(&b);
    snprintf(path, sizeof path, "%s/forgotten", b.here_saved);
    start_standby(&b);
    assert_int_equal(open_mirror(&b, 1, true, NULL), RT_OK);
    put_file(b.here_saved, "forgotten", "00000000000000aa\n", 2);
    await_size(b.there_saved, "forgotten", 34);
    assert_int_equal(unlink(path), 0);
    await_size(b.there_saved, "forgotten", -1);
    put_file(b.here_saved, "forgotten", "00000000000000ab\n", 1);
    await_size(b.there_saved, "forgotten", 17);
    close_all(&b);
    assert_int_equal(unlink(path), 0); // while the standby was away
    assert_int_equal(open_mirror(&b, 1, true, NULL), RT_OK);
    await_size(b.there_saved, "forgotten", -1);
    close_all(&b);
    end_standby(&b);
    rt_config_fini(&b.config);
}

// A checkpoint that stays away from the standby without a word would be missed once it leads.
static void a_file_that_cannot_be_read_is_told(void **state)
{
    (void)state;
    both b;
    char path[500], texts[RT_LOG_RECENT][RT_LOG_RECENT_BYTES];
    uint64_t seen = 0;
    bool is_told = false;
    prepare(&b);
    make_checkpoint(&b, "ckpt-000000000010", "ten bytes.");
    snprintf(path, sizeof path, "%s/ckpt-000000000010/rows.bin", b.here_saved);
    assert_int_equal(symlink("elsewhere", path), 0); // no file of a checkpoint
    start_standby(&b);
    assert_int_equal(open_mirror(&b, 1, true, NULL), RT_OK);
    for (uint32_t i = 0; i < WAIT_S * 100 && !is_told; i++) {
        const uint32_t count = rt_log_recent(&seen, texts);
        for (uint32_t t = 0; t < count; t++)
            is_told |= strstr(texts[t], "rows.bin") != NULL;
        (void)poll(NULL, 0, 10);
    }
    assert_true(is_told);
    assert_int_equal(unlink(path), 0);
    await_same(b.here_saved, b.there_saved);
    close_all(&b);
    end_standby(&b);
    rt_config_fini(&b.config);
}

// A link in the standby's folder leads nowhere; where the journal has a folder of its own, the name
// is not used.
static void a_link_is_no_journal_where_one_is_used(void **state)
{
    (void)state;
    rt_config config;
    rt_standby_disk disk;
    rt_error error = {0};
    assert_int_equal(rt_config_init(&config), RT_OK);
    config.stream.source = RT_SOURCE_HTTP;
    assert_int_equal(mkdir(test_path("out"), 0700), 0);
    assert_int_equal(symlink("../elsewhere", test_path("out/journal")), 0);
    char out[RT_PATH_MAX], saved[RT_PATH_MAX];
    snprintf(out, sizeof out, "%s", test_path("out"));
    snprintf(saved, sizeof saved, "%s", test_path("saved"));
    assert_int_equal(rt_standby_disk_open(&config, out, saved, &disk, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "out/journal: a symbolic link"));
    snprintf(config.journal_directory, sizeof config.journal_directory, "%s", test_path("kept"));
    if (rt_standby_disk_open(&config, out, saved, &disk, &error))
        fail_msg("%s", error.text);
    rt_standby_disk_close(&disk);
    rt_config_fini(&config);
}

// ---- a connection as the standby sees it

typedef struct {
    rt_transport *transport;
    rt_endpoint *end;
    uint32_t self;
    uint64_t question;
} line;

static line call(const both *b, uint32_t rank)
{
    line l = {.self = rt_peer(RT_ROLE_VISITOR, rank)};
    assert_int_equal(rt_transport_open(&rt_transport_zmq, NULL, &l.transport, NULL), RT_OK);
    assert_int_equal(rt_transport_zmq.connect(l.transport, l.self, rt_peer(RT_ROLE_COORDINATOR, 0),
                                              b->address, &l.end, NULL),
                     RT_OK);
    return l;
}

// Half of the numbers of visitors are taken: the coordinator finds one of the others.
static void others_have_numbers(void **state)
{
    (void)state;
    both b;
    visitors others;
    static const char nothing[] = "nothing";
    prepare(&b);
    start_standby(&b);
    visitors_take(&others, b.address, 0, RT_RANKS_MAX / 2, RT_MESSAGE_CONTROL, nothing,
                  strlen(nothing));
    assert_int_equal(open_mirror(&b, 1, true, NULL), RT_OK);
    open_journal(&b);
    await_in_step(&b);
    visitors_leave(&others);
    close_all(&b);
    end_standby(&b);
    rt_config_fini(&b.config);
}

static void hang_up(line *l)
{
    rt_transport_zmq.end(l->end, 0);
    rt_transport_zmq.close(l->transport);
}

// The status that the standby answers with.
static rt_status ask(line *l, rt_wire_mirror what, size_t size)
{
    rt_message message;
    uint32_t peer;
    bool ready;
    what.id = 7;
    what.epoch = 1;
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_MIRROR, l->self, ++l->question, 1,
                                       sizeof what + size),
                     RT_OK);
    memcpy(rt_message_payload(&message), &what, sizeof what);
    memset(rt_message_payload(&message) + sizeof what, 'x', size);
    assert_int_equal(rt_transport_zmq.send(l->end, rt_peer(RT_ROLE_COORDINATOR, 0), &message),
                     RT_OK);
    rt_status status = RT_AGAIN;
    for (uint32_t i = 0; i < WAIT_S && status == RT_AGAIN; i++) {
        (void)rt_transport_zmq.wait(&l->end, 1, -1, 1000, &ready);
        status = rt_transport_zmq.receive(l->end, &peer, &message, NULL);
    }
    assert_int_equal(status, RT_OK);
    rt_wire_mirrored answer;
    rt_reader reader = rt_message_reader(&message);
    assert_true(rt_reader_get(&reader, &answer, 1, sizeof answer));
    rt_message_release(&message);
    return (rt_status)answer.status;
}

static rt_status begin(line *l)
{
    return ask(l, (rt_wire_mirror){.kind = RT_MIRROR_BEGIN}, 0);
}

static rt_status put(line *l, uint64_t offset, size_t size)
{
    const rt_wire_mirror what = {
        .kind = RT_MIRROR_BLOCK, .flags = RT_WIRE_MIRROR_SYNC, .number = 1, .offset = offset};
    return ask(l, what, size);
}

static off_t segment_size(const both *b)
{
    char name[RT_SEGMENT_NAME_MAX], path[400];
    struct stat info;
    rt_segment_name(1, name);
    snprintf(path, sizeof path, "%s/%s", b->there_journal, name);
    return stat(path, &info) == 0 ? info.st_size : -1;
}

// After a cut in the network TCP brings what was under way on a connection that the mirror has
// given up, behind what the next one has brought since: nothing of that may be taken back.
static void an_old_connection_takes_nothing_back(void **state)
{
    (void)state;
    both b;
    prepare(&b);
    start_standby(&b);
    line old = call(&b, 1), new = call(&b, 2);
    assert_int_equal(begin(&old), RT_OK);
    assert_int_equal(put(&old, 0, 100), RT_OK);
    assert_int_equal(begin(&new), RT_OK);
    assert_int_equal(put(&new, 100, 50), RT_OK);
    assert_int_not_equal(put(&old, 100, 50), RT_OK);
    assert_int_equal(segment_size(&b), 150);
    assert_int_not_equal(put(&old, 150, 50), RT_OK);
    assert_int_equal(segment_size(&b), 150);
    const rt_wire_mirror cut = {.kind = RT_MIRROR_CUT, .number = 1, .offset = 100};
    assert_int_not_equal(ask(&old, cut, 0), RT_OK);
    assert_int_equal(segment_size(&b), 150);
    assert_int_equal(put(&new, 150, 50), RT_OK);
    new.question -= 2; // as one of this number that came late
    assert_int_not_equal(ask(&new, cut, 0), RT_OK);
    assert_int_equal(segment_size(&b), 200);
    assert_int_equal(begin(&new), RT_OK);
    assert_int_equal(ask(&new, cut, 0), RT_OK);
    assert_int_equal(segment_size(&b), 100);
    hang_up(&old);
    hang_up(&new);
    end_standby(&b);
    rt_config_fini(&b.config);
}

// A block goes where the segment ends; a refused one neither cuts it nor fills a gap with zeros.
static void a_block_elsewhere_changes_nothing(void **state)
{
    (void)state;
    both b;
    prepare(&b);
    start_standby(&b);
    line l = call(&b, 1);
    assert_int_equal(begin(&l), RT_OK);
    assert_int_equal(put(&l, 0, 100), RT_OK);
    assert_int_not_equal(put(&l, 60, 10), RT_OK);
    assert_int_equal(segment_size(&b), 100);
    assert_int_not_equal(put(&l, 130, 10), RT_OK);
    assert_int_equal(segment_size(&b), 100);
    assert_int_equal(put(&l, 100, 10), RT_OK);
    assert_int_equal(segment_size(&b), 110);
    hang_up(&l);
    end_standby(&b);
    rt_config_fini(&b.config);
}

TEST_MAIN(TEST(acknowledged_is_synced_there), TEST(who_was_away_gets_what_it_lacks),
          TEST(damage_is_mended_from_there), TEST(without_it_whoever_waits_is_not_told),
          TEST(alone_it_is_told_once_shards_are_there),
          TEST(what_is_not_written_on_both_is_on_none), TEST(promoted_takes_nothing_more),
          TEST(follows_one_run_and_no_old_epoch), TEST(no_folder_of_a_coordinator_is_followed_in),
          TEST(checkpoints_come_and_go_as_here),
          TEST(keys_to_be_forgotten_are_there_as_long_as_here),
          TEST(a_file_that_cannot_be_read_is_told), TEST(a_link_is_no_journal_where_one_is_used),
          TEST(an_old_connection_takes_nothing_back), TEST(a_block_elsewhere_changes_nothing),
          TEST(others_have_numbers))
