#include "dispatch/coordinator/dp_losses.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "runtime/config/rt_config.h"
#include "runtime/files/rt_file.h"
#include "runtime/rt_log.h"
#include "runtime/wire/rt_wire.h"
#include "dispatch/coordinator/dp_run.h"

#define NAME "losses"

void dp_losses_note(dp_losses *losses, uint32_t worker, int64_t now_s)
{
    int64_t *lost = losses->lost_s[worker];
    memmove(lost, lost + 1, (DP_LOSSES_MAX - 1) * sizeof *lost);
    lost[DP_LOSSES_MAX - 1] = now_s;
}

uint64_t dp_losses_too_often(const dp_losses *losses, int64_t now_s)
{
    uint64_t aside = 0;
    for (uint32_t w = 0; w < RT_WORKERS_MAX; w++) {
        const int64_t first = losses->lost_s[w][0], last = losses->lost_s[w][DP_LOSSES_MAX - 1];
        if (first > 0 && last <= now_s && now_s - first <= DP_LOSSES_S)
            aside |= rt_bit(w);
    }
    return aside;
}

uint64_t dp_losses_uninvite(const dp_losses *losses, uint64_t workers, int64_t now_s)
{
    char name[32];
    const uint64_t aside = dp_losses_too_often(losses, now_s) & workers;
    if (aside == workers)
        return 0;
    for (uint64_t rest = aside; rest; rest &= rest - 1)
        rt_warn("%s was lost %u times within %d s: it is put aside, the run goes on without it",
                rt_peer_name(rt_peer(RT_ROLE_WORKER, rt_lowest_bit(rest)), name), DP_LOSSES_MAX,
                DP_LOSSES_S);
    return aside;
}

void dp_losses_read(dp_losses *losses, const char *folder)
{
    char path[RT_PATH_MAX + 32];
    uint32_t worker;
    int64_t at_s;
    *losses = (dp_losses){0};
    snprintf(path, sizeof path, "%s/" NAME, folder);
    FILE *file = fopen(path, "re");
    while (file && fscanf(file, "%" SCNu32 " %" SCNd64, &worker, &at_s) == 2) {
        if (worker < RT_WORKERS_MAX && at_s > 0)
            dp_losses_note(losses, worker, at_s);
    }
    if (file)
        fclose(file);
}

static rt_status write_losses(const dp_losses *losses, rt_file *file, rt_error *error)
{
    char line[64];
    for (uint32_t i = 0; i < RT_WORKERS_MAX * DP_LOSSES_MAX; i++) {
        const int64_t at_s = losses->lost_s[i / DP_LOSSES_MAX][i % DP_LOSSES_MAX];
        if (at_s == 0)
            continue;
        const int length =
            snprintf(line, sizeof line, "%" PRIu32 " %" PRId64 "\n", i / DP_LOSSES_MAX, at_s);
        const rt_status status = rt_file_write(file, line, (size_t)length, error);
        if (status)
            return status;
    }
    return RT_OK;
}

void dp_losses_write(const dp_losses *losses, const char *folder)
{
    char path[RT_PATH_MAX + 32];
    rt_file *file;
    rt_error error = {0};
    (void)mkdir(folder, 0777); // of a run that makes no checkpoints
    snprintf(path, sizeof path, "%s/" NAME, folder);
    rt_status status = rt_file_create(path, &file, &error);
    if (!status) {
        status = write_losses(losses, file, &error);
        if (!status)
            status = rt_file_commit(file, &error);
        else
            rt_file_abort(file);
    }
    if (status)
        rt_warn("%s", error.text);
}

// ---- a loss that the run goes on from --------------------------------------------------------

static bool may_go(const dp_run *run, uint32_t worker)
{
    const uint64_t bit = rt_bit(worker);
    const bool trains = run->phase == DP_RUN_TRAINS || run->phase == DP_RUN_DRAINS;
    return trains && run->site_config.on_worker_loss == RT_LOSS_SHRINK &&
           run->run_config.dispatch.participants != RT_PARTICIPANTS_ALL &&
           !rt_dispatch_is_mutual(&run->run_config.dispatch) && (dp_run_workers(run) & ~bit) != 0 &&
           dp_membership_can_spare(dp_roster_members(run->roster), worker);
}

// For who waits to be taken back, and the next start.
static void note(dp_run *run, uint32_t rank)
{
    if (!*run->folder.checkpoints)
        return;
    dp_losses_note(&run->losses, rank, time(NULL));
    dp_losses_write(&run->losses, run->folder.checkpoints);
}

bool dp_run_spares(void *context, uint32_t worker, const char *why)
{
    dp_run *run = context;
    const dp_input input = {.kind = DP_INPUT_LOST, .worker = worker, .value = 1};
    dp_membership *members = dp_roster_members(run->roster);
    const uint32_t rank = rt_bit_at(members->worker_places, worker);
    if (!may_go(run, worker))
        return false;
    rt_warn("%s; it sat out, and had nothing that others lack: the run goes on without it", why);
    dp_membership_lose(members, worker);
    dp_cut_lose(&run->cut, worker);
    dp_feed_tell(run->feed, &input);
    note(run, rank);
    dp_run_put_off_taking_back(run);
    rt_json *json = rt_metrics_begin(dp_stats_metrics(run->stats), "lost");
    rt_json_u64(json, "worker", rank);
    rt_json_string(json, "why", why);
    rt_metrics_end(dp_stats_metrics(run->stats));
    return true;
}
