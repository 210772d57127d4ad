// A standby and journals, played: with them comes what a coordinator does with both. What it tells
// them is in the file "kept" of its folder.
#include <inttypes.h>
#include <stdio.h>

#include "runtime/live/rt_live.h"
#include "tests/support/played_parts.h"
#include "tests/support/test.h"

#define KEPT "out/kept"

rt_status __wrap_rt_mirror_open(const rt_mirror_config *config, rt_mirror **mirror_p,
                                rt_error *error);
void __wrap_rt_mirror_close(rt_mirror *mirror);
rt_status __wrap_rt_mirror_await(rt_mirror *mirror, double limit_s, int stop_fd, rt_error *error);
void __wrap_rt_mirror_lead(rt_mirror *mirror);
rt_status __wrap_rt_mirror_check(rt_mirror *mirror, rt_error *error);
void __wrap_rt_mirror_statistics(rt_mirror *mirror, rt_mirror_counts *counts);
bool __wrap_rt_live_is_wanted(const rt_config *config);
rt_status __wrap_rt_live_open_with(const rt_config *config, const char *directory,
                                   rt_mirror *mirror, rt_live **live_p, rt_error *error);
void __wrap_rt_live_close(rt_live *live);
rt_journal *__wrap_rt_live_journal(const rt_live *live, rt_flow flow);
rt_live_counts __wrap_rt_live_statistics(rt_live *live, rt_flow flow);
bool __wrap_rt_journal_is_pressed(rt_journal *journal);
bool __wrap_rt_journal_is_old(rt_journal *journal);
void __wrap_rt_journal_keep_from(rt_journal *journal, uint64_t event);
rt_position_events __real_rt_position_find_events(const rt_bytes *position);
rt_position_events __wrap_rt_position_find_events(const rt_bytes *position);

static char mirrors[1], lives[1], journals[RT_FLOWS]; // only where they are counts

static void keep(const char *what, uint64_t flow, uint64_t number)
{
    FILE *file = fopen(KEPT, "a");
    assert_non_null(file);
    assert_true(fprintf(file, "%s %" PRIu64 " %" PRIu64 "\n", what, flow, number) > 0);
    assert_int_equal(fclose(file), 0);
}

// ---- a standby ---------------------------------------------------------------------------------

rt_status __wrap_rt_mirror_open(const rt_mirror_config *config, rt_mirror **mirror_p,
                                rt_error *error)
{
    (void)error;
    keep(config->address, config->epoch, config->waits);
    keep(config->directory, 0, (uint64_t)(config->timeout_peer_s * 1000));
    keep(config->checkpoints, 0, config->ops == &played_ops);
    *mirror_p = (rt_mirror *)(void *)mirrors;
    return RT_OK;
}

void __wrap_rt_mirror_close(rt_mirror *mirror)
{
    (void)mirror;
}

rt_status __wrap_rt_mirror_await(rt_mirror *mirror, double limit_s, int stop_fd, rt_error *error)
{
    const uint32_t status = played_stage()->manners.standby;
    (void)mirror;
    (void)stop_fd;
    keep("await", 0, (uint64_t)(limit_s * 1000));
    if (status)
        return rt_fail(error, (rt_status)status, "the standby is not there");
    return RT_OK;
}

void __wrap_rt_mirror_lead(rt_mirror *mirror)
{
    if (mirror)
        keep("lead", 0, played_stage()->iteration);
}

rt_status __wrap_rt_mirror_check(rt_mirror *mirror, rt_error *error)
{
    const played *p = played_stage();
    if (!mirror || !p->manners.promoted || p->turns < p->manners.promoted)
        return RT_OK;
    return rt_fail(error, RT_REFUSED, "the standby leads the run");
}

void __wrap_rt_mirror_statistics(rt_mirror *mirror, rt_mirror_counts *counts)
{
    const played *p = played_stage();
    (void)mirror;
    *counts = (rt_mirror_counts){.is_there = p->iteration % 2,
                                 .is_in_step = p->iteration % 3 == 0,
                                 .behind_bytes = 1000 + p->iteration,
                                 .blocks = 2000 + p->iteration,
                                 .alone = 3000 + p->iteration,
                                 .checkpoint = 4000 + p->iteration,
                                 .away_s = p->iteration / 4.0};
}

// ---- journals ----------------------------------------------------------------------------------

static rt_flow flow_of(const rt_journal *journal)
{
    return (rt_flow)((const char *)(const void *)journal - journals);
}

bool __wrap_rt_live_is_wanted(const rt_config *config)
{
    (void)config;
    return played_stage()->manners.live != 0;
}

rt_status __wrap_rt_live_open_with(const rt_config *config, const char *directory,
                                   rt_mirror *mirror, rt_live **live_p, rt_error *error)
{
    (void)config;
    (void)error;
    keep(directory, 0, mirror != NULL);
    *live_p = (rt_live *)(void *)lives;
    return RT_OK;
}

void __wrap_rt_live_close(rt_live *live)
{
    (void)live;
}

rt_journal *__wrap_rt_live_journal(const rt_live *live, rt_flow flow)
{
    (void)live;
    return played_stage()->manners.live >> flow & 1 ? (rt_journal *)(void *)&journals[flow] : NULL;
}

rt_live_counts __wrap_rt_live_statistics(rt_live *live, rt_flow flow)
{
    const uint64_t all = 1000 * (1 + flow) + played_stage()->iteration;
    (void)live;
    return (rt_live_counts){.journal = {.next = all + 1,
                                        .first = all + 2,
                                        .bytes = all + 3,
                                        .events = all + 4,
                                        .repeated = all + 5,
                                        .commits = flow ? 0 : 7,
                                        .commit_ns = 1000000 * all,
                                        .failures = all + 8,
                                        .full = all + 9,
                                        .lost = all + 10},
                            .intake = {all + 11, all + 12, all + 13},
                            .read = 10 * played_stage()->iteration};
}

bool __wrap_rt_journal_is_pressed(rt_journal *journal)
{
    const played *p = played_stage();
    return p->manners.pressed && p->iteration >= p->manners.pressed + flow_of(journal);
}

bool __wrap_rt_journal_is_old(rt_journal *journal)
{
    const played *p = played_stage();
    return p->manners.old && p->iteration >= p->manners.old + flow_of(journal);
}

void __wrap_rt_journal_keep_from(rt_journal *journal, uint64_t event)
{
    keep("keep from", flow_of(journal), event);
}

// Ten more with every cut that is planned; of the other flow half as many.
rt_position_events __wrap_rt_position_find_events(const rt_bytes *position)
{
    static uint64_t cuts;
    const played *p = played_stage();
    if (!p || !p->manners.live)
        return __real_rt_position_find_events(position);
    cuts++;
    return (rt_position_events){{10 * cuts, 5 * cuts}};
}
