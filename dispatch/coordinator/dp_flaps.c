#include "dispatch/coordinator/dp_flaps.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/config/rt_config.h"
#include "runtime/files/rt_file.h"
#include "runtime/rt_log.h"
#include "runtime/wire/rt_wire.h"

#define NAME "losses"

void dp_flaps_note(dp_flaps *flaps, uint32_t worker, int64_t now_s)
{
    int64_t *lost = flaps->lost_s[worker];
    memmove(lost, lost + 1, (DP_FLAPS_MAX - 1) * sizeof *lost);
    lost[DP_FLAPS_MAX - 1] = now_s;
}

uint64_t dp_flaps_aside(const dp_flaps *flaps, int64_t now_s)
{
    uint64_t aside = 0;
    for (uint32_t w = 0; w < RT_WORKERS_MAX; w++) {
        const int64_t first = flaps->lost_s[w][0], last = flaps->lost_s[w][DP_FLAPS_MAX - 1];
        if (first > 0 && last <= now_s && now_s - first <= DP_FLAPS_S)
            aside |= rt_bit(w);
    }
    return aside;
}

uint64_t dp_flaps_put_aside(const dp_flaps *flaps, uint32_t worker_count, int64_t now_s)
{
    char name[32];
    const uint64_t aside = dp_flaps_aside(flaps, now_s), all = rt_bits_below(worker_count);
    if ((aside & all) == all)
        return 0;
    for (uint64_t rest = aside; rest; rest &= rest - 1)
        rt_warn("%s was lost %u times within %d s: it is put aside, the run goes on without it",
                rt_peer_name(rt_peer(RT_ROLE_WORKER, rt_lowest_bit(rest)), name), DP_FLAPS_MAX,
                DP_FLAPS_S);
    return aside;
}

void dp_flaps_read(dp_flaps *flaps, const char *folder)
{
    char path[RT_PATH_MAX + 32];
    uint32_t worker;
    int64_t at_s;
    *flaps = (dp_flaps){0};
    snprintf(path, sizeof path, "%s/" NAME, folder);
    FILE *file = fopen(path, "re");
    while (file && fscanf(file, "%" SCNu32 " %" SCNd64, &worker, &at_s) == 2) {
        if (worker < RT_WORKERS_MAX && at_s > 0)
            dp_flaps_note(flaps, worker, at_s);
    }
    if (file)
        fclose(file);
}

static rt_status write_losses(const dp_flaps *flaps, rt_file *file, rt_error *error)
{
    char line[64];
    for (uint32_t i = 0; i < RT_WORKERS_MAX * DP_FLAPS_MAX; i++) {
        const int64_t at_s = flaps->lost_s[i / DP_FLAPS_MAX][i % DP_FLAPS_MAX];
        if (at_s == 0)
            continue;
        const int length =
            snprintf(line, sizeof line, "%" PRIu32 " %" PRId64 "\n", i / DP_FLAPS_MAX, at_s);
        const rt_status status = rt_file_write(file, line, (size_t)length, error);
        if (status)
            return status;
    }
    return RT_OK;
}

void dp_flaps_write(const dp_flaps *flaps, const char *folder)
{
    char path[RT_PATH_MAX + 32];
    rt_file *file;
    rt_error error = {0};
    (void)mkdir(folder, 0777); // of a run that makes no checkpoints
    snprintf(path, sizeof path, "%s/" NAME, folder);
    rt_status status = rt_file_create(path, &file, &error);
    if (!status) {
        status = write_losses(flaps, file, &error);
        if (!status)
            status = rt_file_commit(file, &error);
        else
            rt_file_abort(file);
    }
    if (status)
        rt_warn("%s", error.text);
}
