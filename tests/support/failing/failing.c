// failing - makes the n-th call of a kind fail in a program that it is loaded into (LD_PRELOAD).
//
// LANYARD_FAIL="COMMAND KIND N": in processes whose first argument is COMMAND. KIND is
//   memory  malloc, calloc, realloc, aligned_alloc: no memory
//   write   write to anything but standard output and error: no space left
//   sync    fsync, fdatasync: input or output error
//   send    send and sendmsg, of any library: connection reset
//   end     rename, renameat2, unlink, rmdir: the process is killed before the call
//   group   setpgid: before it a SIGINT comes, as to all of a terminal's group
//   exit    the process is killed when it would have ended by itself (N is 1)
// But for send only calls of the program itself and of libcjson count: what others make of it is
// theirs. Says "failing: KIND N at OFFSET" (for addr2line) on standard error when it happens.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RANGES_MAX 8

// A tool around one process: its state is that of the process.
static struct {
    char kind[16];
    unsigned long n;
    atomic_ulong calls;
    size_t range_count;
    uintptr_t base; // of the program
    struct {
        uintptr_t begin, end;
    } ranges[RANGES_MAX];
} state;

static int note_object(struct dl_phdr_info *info, size_t size, void *is_first)
{
    (void)size;
    bool counts = *(bool *)is_first || strstr(info->dlpi_name, "cjson");
    if (*(bool *)is_first)
        state.base = info->dlpi_addr;
    *(bool *)is_first = false;
    for (int i = 0; counts && i < info->dlpi_phnum && state.range_count < RANGES_MAX; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
            continue;
        uintptr_t begin = info->dlpi_addr + part->p_vaddr;
        state.ranges[state.range_count].begin = begin;
        state.ranges[state.range_count++].end = begin + part->p_memsz;
    }
    return 0;
}

__attribute__((constructor)) static void prepare(void)
{
    char command[32] = "", line[256] = "";
    bool is_first = true;
    const char *order = getenv("LANYARD_FAIL");
    unsigned long n = 0;
    if (!order || sscanf(order, "%31s %15s %lu", command, state.kind, &n) != 3)
        return;
    int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t got = file >= 0 ? read(file, line, sizeof line - 1) : 0;
    close(file);
    size_t first = strlen(line) + 1;
    if (got <= 0 || first >= (size_t)got || strcmp(line + first, command) != 0)
        return;
    dl_iterate_phdr(note_object, &is_first);
    state.n = n;
}

static bool is_ours(const void *caller)
{
    for (size_t i = 0; i < state.range_count; i++)
        if ((uintptr_t)caller >= state.ranges[i].begin && (uintptr_t)caller < state.ranges[i].end)
            return true;
    return false;
}

// The function behind ours: that of the C library, or of a sanitizer. Another thread finds the
// same.
#define NEXT(name, result, ...)                    \
    static _Atomic(uintptr_t) next;                \
    if (!next)                                     \
        next = (uintptr_t)dlsym(RTLD_NEXT, #name); \
    result (*const real)(__VA_ARGS__) = (result(*)(__VA_ARGS__))next

// Counts a call; true when it is the one.
static bool fails(const char *kind, const void *caller)
{
    char text[64];
    if (state.n == 0 || strcmp(kind, state.kind) != 0 || (caller && !is_ours(caller)) ||
        atomic_fetch_add(&state.calls, 1) + 1 != state.n)
        return false;
    uintptr_t offset = (uintptr_t)caller - (caller ? state.base : 0);
    int length = snprintf(text, sizeof text, "failing: %s %lu at %#lx\n", kind, state.n,
                          (unsigned long)offset);
    NEXT(write, ssize_t, int, const void *, size_t);
    (void)!real(STDERR_FILENO, text, (size_t)length);
    return true;
}

static void end_if(const char *kind, const void *caller)
{
    if (fails(kind, caller))
        kill(getpid(), SIGKILL);
}

__attribute__((destructor)) static void leave(void)
{
    end_if("exit", NULL);
}

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

#define ALLOCATOR(name, parameters, arguments, ...)                                         \
    __attribute__((visibility("default"))) void *name parameters                            \
    {                                                                                       \
        NEXT(name, void *, __VA_ARGS__);                                                    \
        return fails("memory", __builtin_return_address(0)) ? no_memory() : real arguments; \
    }
ALLOCATOR(malloc, (size_t size), (size), size_t)
ALLOCATOR(calloc, (size_t count, size_t size), (count, size), size_t, size_t)
ALLOCATOR(realloc, (void *block, size_t size), (block, size), void *, size_t)
ALLOCATOR(aligned_alloc, (size_t alignment, size_t size), (alignment, size), size_t, size_t)

__attribute__((visibility("default"))) ssize_t write(int file, const void *bytes, size_t size)
{
    NEXT(write, ssize_t, int, const void *, size_t);
    if (file <= STDERR_FILENO || !fails("write", __builtin_return_address(0)))
        return real(file, bytes, size);
    errno = ENOSPC;
    return -1;
}

static int sync_with(const char *name, int file, const void *caller)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    if (!fails("sync", caller))
        return real(file);
    errno = EIO;
    return -1;
}

__attribute__((visibility("default"))) int fsync(int file)
{
    return sync_with("fsync", file, __builtin_return_address(0));
}

__attribute__((visibility("default"))) int fdatasync(int file)
{
    return sync_with("fdatasync", file, __builtin_return_address(0));
}

__attribute__((visibility("default"))) ssize_t send(int socket, const void *bytes, size_t size,
                                                    int flags)
{
    NEXT(send, ssize_t, int, const void *, size_t, int);
    if (!fails("send", NULL))
        return real(socket, bytes, size, flags);
    (void)shutdown(socket, SHUT_RDWR); // a reset ends both directions
    errno = ECONNRESET;
    return -1;
}

__attribute__((visibility("default"))) int setpgid(pid_t process, pid_t group)
{
    NEXT(setpgid, int, pid_t, pid_t);
    if (fails("group", __builtin_return_address(0)))
        kill(getpid(), SIGINT);
    return real(process, group);
}

#define ENDING(name, parameters, arguments, ...)               \
    __attribute__((visibility("default"))) int name parameters \
    {                                                          \
        NEXT(name, int, __VA_ARGS__);                          \
        end_if("end", __builtin_return_address(0));            \
        return real arguments;                                 \
    }
ENDING(rename, (const char *from, const char *to), (from, to), const char *, const char *)
ENDING(renameat2, (int from_in, const char *from, int to_in, const char *to, unsigned flags),
       (from_in, from, to_in, to, flags), int, const char *, int, const char *, unsigned)
ENDING(unlink, (const char *path), (path), const char *)
ENDING(rmdir, (const char *path), (path), const char *)
