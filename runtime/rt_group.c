#include "runtime/rt_group.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MOUNT "/sys/fs/cgroup"
#define MEMBERSHIP "/proc/self/cgroup"
#define PATH_BYTES 4352 // of a mount, a group and a file
#define LINE_BYTES 4096

typedef uint64_t read_limit(const char *group);

static uint64_t least(uint64_t one, uint64_t other)
{
    if (one && other)
        return rt_min_u64(one, other);
    return one ? one : other;
}

// Numbers at the begin of a file of a group; the others stay. False: it has not so many.
static bool read_numbers(const char *group, const char *name, int count, int64_t numbers[2])
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", group, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    const int found = fscanf(file, "%" SCNd64 " %" SCNd64, &numbers[0], &numbers[1]);
    fclose(file);
    return found >= count;
}

static uint64_t cores_of(int64_t quota_us, int64_t period_us)
{
    if (quota_us <= 0 || period_us <= 0)
        return 0;
    return (uint64_t)quota_us / (uint64_t)period_us +
           ((uint64_t)quota_us % (uint64_t)period_us > 0);
}

// "max 100000": without a limit.
static uint64_t cores_2(const char *group)
{
    int64_t numbers[2] = {0};
    return read_numbers(group, "cpu.max", 2, numbers) ? cores_of(numbers[0], numbers[1]) : 0;
}

// A quota of -1: without a limit.
static uint64_t cores_1(const char *group)
{
    int64_t quota[2] = {0}, period[2] = {0};
    if (!read_numbers(group, "cpu.cfs_quota_us", 1, quota) ||
        !read_numbers(group, "cpu.cfs_period_us", 1, period))
        return 0;
    return cores_of(quota[0], period[0]);
}

static uint64_t memory_2(const char *group)
{
    int64_t numbers[2] = {0};
    return read_numbers(group, "memory.max", 1, numbers) && numbers[0] > 0 ? (uint64_t)numbers[0]
                                                                           : 0;
}

// Without a limit it is more than any machine has.
static uint64_t memory_1(const char *group)
{
    int64_t numbers[2] = {0};
    return read_numbers(group, "memory.limit_in_bytes", 1, numbers) && numbers[0] > 0
               ? (uint64_t)numbers[0]
               : 0;
}

// Of a group below a mount and of all above it. What is mounted may begin at a group within the
// path (a container without a view of its own): then as much of its end is taken as is there.
static uint64_t least_above(const char *mount, const char *group, read_limit *read)
{
    char path[PATH_BYTES];
    const size_t base = strlen(mount);
    const char *rest = group;
    snprintf(path, sizeof path, "%s%s", mount, rest);
    while (access(path, F_OK) != 0 && rest) {
        rest = strchr(rest + 1, '/');
        snprintf(path, sizeof path, "%s%s", mount, rest ? rest : "");
    }
    uint64_t limit = read(path);
    for (char *slash = strrchr(path, '/'); slash && slash >= path + base;
         slash = strrchr(path, '/')) {
        *slash = '\0';
        limit = least(limit, read(path));
    }
    return limit;
}

static bool has_controller(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

// A line: "NUMBER:CONTROLLERS:GROUP"; of version 2 the number is 0, and there are no controllers.
static uint64_t limit_of(char *line, const char *mount, const char *controller, read_limit *read_1,
                         read_limit *read_2)
{
    char place[PATH_BYTES - LINE_BYTES];
    char *controllers = strchr(line, ':'),
         *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group)
        return 0;
    *controllers++ = *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    if (*controllers == '\0') {
        snprintf(place, sizeof place, "%s/unified", mount); // beside version 1
        return least(least_above(mount, group, read_2), least_above(place, group, read_2));
    }
    if (!has_controller(controllers, controller))
        return 0;
    snprintf(place, sizeof place, "%s/%s", mount, controller);
    const uint64_t limit = least_above(place, group, read_1);
    snprintf(place, sizeof place, "%s/%s", mount, controllers);
    return least(limit, least_above(place, group, read_1));
}

static uint64_t find(const char *mount, const char *membership, const char *controller,
                     read_limit *read_1, read_limit *read_2)
{
    char line[LINE_BYTES];
    uint64_t limit = 0;
    FILE *file = fopen(membership, "re");
    if (!file)
        return read_2(mount);
    while (fgets(line, sizeof line, file))
        limit = least(limit, limit_of(line, mount, controller, read_1, read_2));
    fclose(file);
    return limit;
}

uint64_t rt_group_cores_in(const char *mount, const char *membership)
{
    return find(mount, membership, "cpu", cores_1, cores_2);
}

uint64_t rt_group_memory_in(const char *mount, const char *membership)
{
    return find(mount, membership, "memory", memory_1, memory_2);
}

uint64_t rt_group_cores(void)
{
    return rt_group_cores_in(MOUNT, MEMBERSHIP);
}

uint64_t rt_group_memory(void)
{
    return rt_group_memory_in(MOUNT, MEMBERSHIP);
}
