#include "runtime/transport/rt_leader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/files/rt_file.h"
#include "runtime/rt_hash.h"

static uint64_t hash_of(const rt_leader *leader)
{
    const uint64_t both[2] = {leader->run, leader->epoch};
    return rt_hash_bytes(both, sizeof both);
}

rt_status rt_leader_read(const char *path, rt_leader *leader, rt_error *error)
{
    rt_leader read = {0};
    uint64_t hash = 0;
    *leader = (rt_leader){0};
    FILE *file = fopen(path, "re");
    if (!file)
        return errno == ENOENT ? RT_OK : rt_fail(error, RT_IO, "%s: %s", path, strerror(errno));
    const int count = fscanf(file, "run %16" SCNx64 " epoch %10" SCNu32 " %16" SCNx64, &read.run,
                             &read.epoch, &hash);
    fclose(file);
    if (count != 3 || hash != hash_of(&read))
        return rt_fail(error, RT_DATA,
                       "%s: damaged: it says who leads the run. Remove it once no other "
                       "coordinator of the run is up",
                       path);
    *leader = read;
    return RT_OK;
}

static rt_status write_leader(const char *path, const rt_leader *leader, rt_error *error)
{
    char text[96];
    rt_file *file;
    const int length =
        snprintf(text, sizeof text, "run %016" PRIx64 " epoch %" PRIu32 " %016" PRIx64 "\n",
                 leader->run, leader->epoch, hash_of(leader));
    rt_status status = rt_file_create(path, &file, error);
    if (status)
        return status;
    status = rt_file_write(file, text, (size_t)length, error);
    if (!status)
        return rt_file_commit(file, error);
    rt_file_abort(file);
    return status;
}

rt_status rt_leader_follow(const char *path, uint64_t run, uint32_t epoch, rt_leader *leader,
                           rt_error *error)
{
    const rt_leader next = {run, epoch};
    rt_assert(run != 0);
    if (leader->run == run && leader->epoch > epoch)
        return rt_fail(error, RT_PEER,
                       "epoch %" PRIu32 " of the run is over: epoch %" PRIu32
                       " was served here. Another coordinator leads it",
                       epoch, leader->epoch);
    if (leader->run == run && leader->epoch == epoch)
        return RT_OK;
    rt_status status = write_leader(path, &next, error);
    if (!status)
        *leader = next;
    return status;
}
