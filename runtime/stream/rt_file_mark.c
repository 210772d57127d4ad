#include "runtime/stream/rt_file_mark.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/rt_hash.h"

#define MARK(XX, PART, NONE, T) \
    XX(T, path_hash)            \
    XX(T, name_hash)            \
    XX(T, device)               \
    XX(T, inode)                \
    XX(T, head_hash)            \
    XX(T, start_hash)           \
    XX(T, offset)               \
    XX(T, line)                 \
    XX(T, size)                 \
    XX(T, end_hash)             \
    XX(T, tail_hash)            \
    XX(T, tail_bytes)           \
    XX(T, head_bytes)           \
    XX(T, flags)                \
    XX(T, name)
RT_FIELDS_SHARED(
    rt_file_mark_fields, rt_file_mark, MARK,
    "path_hash:8 name_hash:8 device:8 inode:8 head_hash:8 start_hash:8 offset:8 line:8 "
    "size:8 head_bytes:4 flags:4 name:24");

#define START_BYTES 64u
#define END_BYTES 1024u
#define COPY_HEAD_BYTES 4096u // fewer bytes say too little of whether two files are copies

// Hash of the first size bytes, of the first START_BYTES, and how many of them there are.
static uint64_t hash_head(int descriptor, size_t size, uint32_t *count_p, uint64_t *start_p)
{
    uint8_t *bytes = rt_alloc(RT_FILE_HEAD_BYTES, 1);
    size_t count = 0;
    while (bytes && count < size) {
        ssize_t got = pread(descriptor, bytes + count, size - count, (off_t)count);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        count += (size_t)got;
    }
    const uint64_t hash = rt_hash_bytes(bytes, count);
    *start_p = rt_hash_bytes(bytes, rt_min_u64(count, START_BYTES));
    rt_free(bytes);
    *count_p = (uint32_t)count;
    return hash;
}

void rt_file_mark_init(const char *path, int descriptor, rt_file_mark *mark)
{
    struct stat info;
    const size_t length = strlen(path);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const size_t cut = length - rt_min_u64(length, RT_FILE_NAME_BYTES - 1);
    *mark = (rt_file_mark){.path_hash = rt_hash_bytes(path, length),
                           .name_hash = rt_hash_bytes(name, strlen(name))};
    memcpy(mark->name, path + cut, length - cut);
    if (descriptor < 0 || fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
        mark->flags = RT_MARK_WAITS;
        return;
    }
    mark->device = (uint64_t)info.st_dev;
    mark->inode = (uint64_t)info.st_ino;
    mark->head_hash =
        hash_head(descriptor, RT_FILE_HEAD_BYTES, &mark->head_bytes, &mark->start_hash);
}

// Of the last bytes of so many; 0: they cannot be read.
static uint64_t hash_end(int descriptor, uint64_t size)
{
    uint8_t bytes[END_BYTES];
    const size_t count = rt_min_u64(size, END_BYTES);
    if (descriptor < 0 || pread(descriptor, bytes, count, (off_t)(size - count)) != (ssize_t)count)
        return 0;
    return rt_hash_bytes(bytes, count);
}

void rt_file_mark_finish(rt_file_mark *mark, int descriptor, uint64_t size)
{
    mark->flags |= RT_MARK_FINISHED;
    mark->size = size;
    mark->end_hash = mark->flags & RT_MARK_WAITS ? 0 : hash_end(descriptor, size);
}

// A file of the size of the one that was read ends as that did, as far as is known.
static bool has_end(const rt_file_mark *before, int descriptor)
{
    struct stat info;
    if (!(before->flags & RT_MARK_FINISHED) || before->end_hash == 0 || descriptor < 0 ||
        fstat(descriptor, &info) != 0 || (uint64_t)info.st_size != before->size)
        return true;
    return hash_end(descriptor, before->size) == before->end_hash;
}

static bool has_head(const rt_file_mark *before, const rt_file_mark *now, int descriptor)
{
    uint32_t count;
    uint64_t start;
    if (before->head_bytes > RT_FILE_HEAD_BYTES || now->head_bytes < before->head_bytes)
        return false;
    if (now->head_bytes == before->head_bytes)
        return now->head_hash == before->head_hash;
    return hash_head(descriptor, before->head_bytes, &count, &start) == before->head_hash &&
           count == before->head_bytes;
}

int rt_file_mark_match(const rt_file_mark *before, const rt_file_mark *now, int descriptor)
{
    const bool is_path = before->path_hash == now->path_hash;
    if ((before->flags ^ now->flags) & RT_MARK_WAITS)
        return 0;
    if (now->flags & RT_MARK_WAITS)
        return is_path ? RT_FILE_SURE : 0;
    const bool is_inode = before->device == now->device && before->inode == now->inode;
    const bool is_copy =
        before->name_hash == now->name_hash && before->head_bytes >= COPY_HEAD_BYTES;
    if (!is_path && !is_inode && !is_copy)
        return 0;
    if (is_path && now->head_bytes < before->head_bytes && now->head_bytes >= START_BYTES &&
        now->start_hash == before->start_hash)
        return RT_FILE_SURE; // it was cut off
    if (!has_head(before, now, descriptor))
        return is_path ? RT_FILE_REPLACED : 0;
    if (!has_end(before, descriptor))
        return is_path ? RT_FILE_REWRITTEN : 0;
    if (is_path)
        return RT_FILE_SURE;
    return is_inode ? 2 : 1;
}
