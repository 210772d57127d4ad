#include "runtime/rt_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/rt_group.h"

uint64_t rt_memory_resident(void)
{
    uint64_t all, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file)
        return 0;
    if (fscanf(file, "%" SCNu64 " %" SCNu64, &all, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t rt_memory_limit(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES);
    const uint64_t machine = pages > 0 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
    const uint64_t group = rt_group_memory();
    if (group && (group < machine || !machine))
        return group;
    return machine;
}
