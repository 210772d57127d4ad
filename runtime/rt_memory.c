#include "runtime/rt_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/rt_group.h"

// Pages; both 0: not known.
static void read_pages(uint64_t *resident_p, uint64_t *shared_p)
{
    uint64_t all;
    FILE *file = fopen("/proc/self/statm", "re");
    *resident_p = *shared_p = 0;
    if (!file)
        return;
    if (fscanf(file, "%" SCNu64 " %" SCNu64 " %" SCNu64, &all, resident_p, shared_p) != 3)
        *resident_p = *shared_p = 0;
    fclose(file);
}

uint64_t rt_memory_resident(void)
{
    uint64_t resident, shared;
    read_pages(&resident, &shared);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t rt_memory_private(void)
{
    uint64_t resident, shared;
    read_pages(&resident, &shared);
    return (resident - rt_min_u64(resident, shared)) * (uint64_t)sysconf(_SC_PAGESIZE);
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
