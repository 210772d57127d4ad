#include "runtime/transport/rt_member.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/files/rt_file.h"
#include "runtime/rt_hash.h"

#define LINE_MAX 64u // bytes, with the line end

static uint64_t hash_of(const rt_leader *leader)
{
    const uint64_t both[2] = {leader->run, leader->epoch};
    return rt_hash_bytes(both, sizeof both);
}

static bool read_line(const char *line, rt_leader *leader)
{
    uint64_t hash = 0;
    return sscanf(line, "run %16" SCNx64 " epoch %10" SCNu32 " %16" SCNx64, &leader->run,
                  &leader->epoch, &hash) == 3 &&
           leader->run && hash == hash_of(leader);
}

rt_status rt_leaders_read(const char *path, rt_leaders *leaders, rt_error *error)
{
    rt_leaders read = {0};
    char line[LINE_MAX + 1];
    uint32_t count = 0;
    bool is_whole = true;
    *leaders = (rt_leaders){0};
    FILE *file = fopen(path, "re");
    if (!file && errno == ENOENT)
        return RT_OK;
    if (!file)
        return rt_fail(error, RT_IO, "%s: %s", path, strerror(errno));
    while (is_whole && fgets(line, sizeof line, file))
        is_whole = count < RT_LEADER_RUNS_MAX && read_line(line, &read.of[count++]);
    fclose(file);
    if (!is_whole || count == 0)
        return rt_fail(error, RT_DATA,
                       "%s: damaged: it says who leads the runs that were served here. Remove it "
                       "once no other coordinator of them is up",
                       path);
    *leaders = read;
    return RT_OK;
}

static rt_status write_leaders(const char *path, const rt_leaders *leaders, rt_error *error)
{
    char text[RT_LEADER_RUNS_MAX * LINE_MAX];
    size_t used = 0;
    for (uint32_t i = 0; i < RT_LEADER_RUNS_MAX && leaders->of[i].run; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used,
                             "run %016" PRIx64 " epoch %" PRIu32 " %016" PRIx64 "\n",
                             leaders->of[i].run, leaders->of[i].epoch, hash_of(&leaders->of[i]));
    return rt_file_save(path, text, used, error);
}

// Where the run stands; the last place, whose run goes, if it stands nowhere.
static uint32_t find(const rt_leaders *leaders, uint64_t run)
{
    uint32_t i = 0;
    while (i < RT_LEADER_RUNS_MAX - 1 && leaders->of[i].run && leaders->of[i].run != run)
        i++;
    return i;
}

rt_status rt_leaders_follow(const char *path, uint64_t run, uint32_t epoch, rt_leaders *leaders,
                            rt_error *error)
{
    rt_leaders next = *leaders;
    rt_assert(run != 0);
    const uint32_t at = find(leaders, run);
    const bool is_known = leaders->of[at].run == run;
    const uint32_t served = is_known ? leaders->of[at].epoch : 0;
    memmove(&next.of[1], &next.of[0], at * sizeof next.of[0]);
    next.of[0] = (rt_leader){run, (uint32_t)rt_max_u64(served, epoch)};
    const bool is_noted = at == 0 && is_known && served >= epoch;
    rt_status status = RT_OK;
    if (!is_noted)
        status = write_leaders(path, &next, error);
    if (status)
        return status;
    *leaders = next;
    if (served > epoch)
        return rt_fail(error, RT_PEER,
                       "epoch %" PRIu32 " of the run is over: epoch %" PRIu32
                       " was served here. Another coordinator leads it",
                       epoch, served);
    return RT_OK;
}
