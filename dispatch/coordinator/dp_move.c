#include "dispatch/coordinator/dp_move.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "dispatch/coordinator/dp_run.h"
#include "dispatch/planner/dp_setup.h"
#include "runtime/rt_log.h"

// what: the box, or the key.
static rt_status check_run(const dp_run *c, const char *what, rt_error *error)
{
    if (!c->checkpoint)
        return rt_fail(
            error, RT_CONFIG,
            "%s: goes by a checkpoint from which all start anew, and this run makes none: "
            "it has neither --out nor checkpoint.directory, or workers that plan",
            what);
    if (c->move.is_asked)
        return rt_fail(error, RT_AGAIN, "%s: %s already with the next checkpoint: ask again later",
                       what, c->move.what);
    return RT_OK;
}

rt_status dp_move_check_boxes(const dp_run *c, const char *box, rt_error *error)
{
    if (c->site_config.box_count == 0)
        return rt_fail(error, RT_CONFIG,
                       "%s: the configuration does not say which boxes there are: boxes", box);
    if (c->site_config.collective == RT_COLLECTIVE_MPI)
        return rt_fail(
            error, RT_CONFIG,
            "%s: with network.collective \"mpi\" the number of workers is that of mpirun", box);
    return check_run(c, box, error);
}

// Members of a box that joins, where nobody starts them once they are wanted.
static rt_status check_presence(const dp_run *c, const char *box, const dp_members *joining,
                                rt_error *error)
{
    char missing[256] = "", name[32];
    size_t used = 0;
    const struct {
        rt_role role;
        uint64_t all;
    } kinds[] = {{RT_ROLE_WORKER, joining->workers}, {RT_ROLE_PS, joining->shards}};
    for (size_t k = 0; k < RT_COUNT_OF(kinds) && !c->own.spawned; k++) {
        for (uint64_t rest = kinds[k].all; rest; rest &= rest - 1) {
            const uint32_t peer = rt_peer(kinds[k].role, rt_lowest_bit(rest));
            const dp_member *one = dp_membership_find(dp_roster_members(c->roster), peer);
            if (dp_member_is_connected(one) || used + sizeof name + 2 >= sizeof missing)
                continue;
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%s",
                                     used ? ", " : "", rt_peer_name(peer, name));
        }
    }
    if (!used)
        return RT_OK;
    return rt_fail(error, RT_NOT_FOUND,
                   "%s: not there yet: %s; start them on that box, they wait to be taken in", box,
                   missing);
}

// Rows that the shards which stay have no memory for.
static rt_status check_rows(const dp_run *c, const char *box, const rt_config *left,
                            rt_error *error)
{
    uint64_t rows = 0;
    const uint64_t fit = dp_setup_rows_that_fit(left);
    for (uint32_t s = 0; s < c->run_config.ps_shard_count; s++) {
        const rt_wire_vitals *vitals = &c->watch.shards[s];
        if (!vitals->row_bytes_max)
            return rt_fail(error, RT_AGAIN,
                           "%s: shard %" PRIu32 " has not said yet how many rows it has: ask again "
                           "in a few seconds",
                           box, s);
        rows += vitals->rows;
    }
    if (rows <= fit)
        return RT_OK;
    return rt_fail(error, RT_CONFIG,
                   "%s: there are %" PRIu64 " rows, the %" PRIu32 " shards that would be left hold "
                   "%" PRIu64 ": raise ps.memory_bytes_max, or lower rows.max first",
                   box, rows, left->ps_shard_count, fit);
}

static rt_status check_left(const dp_run *c, const char *box, const rt_config *left,
                            rt_error *error)
{
    rt_status status = rt_config_check_model(left, error);
    if (status)
        return status;
    status = rt_config_check_training(left, error);
    if (status || left->ps_shard_count >= c->run_config.ps_shard_count)
        return status;
    return check_rows(c, box, left, error);
}

// What the run would be is a configuration as any other.
static rt_status check_next(const dp_run *c, const char *box, const dp_members *next,
                            rt_error *error)
{
    rt_config left;
    const uint32_t before = c->run_config.ps_shard_count;
    if (!next->workers)
        return rt_fail(error, RT_CONFIG, "%s: has the last worker of this run", box);
    if (!next->shards)
        return rt_fail(error, RT_CONFIG, "%s: has the last shard of this run", box);
    if (!c->own.spawned && c->site_config.checkpoint.copies == 0 &&
        rt_bit_count(next->shards) != before)
        return rt_fail(error, RT_CONFIG,
                       "%s: rows go to other shards by the copies on the coordinator's box, and "
                       "checkpoint.copies is 0",
                       box);
    if (rt_config_copy(&c->site_config, &left))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    rt_config_keep_members(&left, next->workers, next->shards);
    const rt_status status = check_left(c, box, &left, error);
    rt_config_fini(&left);
    return status;
}

rt_status dp_move_check_join(const dp_run *c, const char *box, rt_error *error)
{
    const uint32_t b = rt_config_find_box(&c->site_config, box);
    const dp_members next = dp_members_of(&c->site_config, c->members.boxes | rt_bit(b));
    return check_next(c, box, &next, error);
}

bool dp_move_is_there(const dp_run *c, uint32_t box)
{
    const dp_members joining = dp_members_of(&c->site_config, rt_bit(box));
    return check_presence(c, c->site_config.boxes[box].name, &joining, NULL) == RT_OK;
}

rt_status dp_move_ask(dp_run *c, bool joins, const char *box, rt_error *error)
{
    rt_status status = dp_move_check_boxes(c, box, error);
    if (status)
        return status;
    const uint32_t b = rt_config_find_box(&c->site_config, box);
    if (b == c->site_config.box_count)
        return rt_fail(error, RT_NOT_FOUND, "%s: the configuration has no box of that name%s", box,
                       joins ? ": `lanyard add RUN BOX --gbps G` says what it is" : "");
    const uint64_t in = c->members.boxes;
    const bool is_in = in >> b & 1;
    if (is_in && joins)
        return rt_fail(error, RT_CONFIG, "%s: takes part in this run already", box);
    if (!is_in && !joins)
        return rt_fail(error, RT_CONFIG, "%s: takes no part in this run", box);
    dp_move move = {.is_asked = true, .next = dp_members_of(&c->site_config, in ^ rt_bit(b))};
    move.next.row_rate = c->members.row_rate;
    move.next.dense_rate = c->members.dense_rate;
    snprintf(move.what, sizeof move.what, "%s %s", box, joins ? "joins" : "leaves");
    if (joins) {
        const dp_members joining = dp_members_of(&c->site_config, rt_bit(b));
        status = check_presence(c, box, &joining, error);
        if (status)
            return status;
    } else {
        move.leaves = rt_bit(b);
    }
    status = check_next(c, box, &move.next, error);
    if (status)
        return status;
    c->move = move;
    return RT_OK;
}

// One that takes no part.
static rt_status ask_end_of_other(dp_run *c, const char *box, uint32_t b, rt_error *error)
{
    const rt_status status = check_run(c, box, error);
    if (status)
        return status;
    c->move = (dp_move){.is_asked = true, .next = c->members, .leaves = rt_bit(b)};
    return RT_OK;
}

rt_status dp_move_ask_end(dp_run *c, const char *box, rt_error *error)
{
    const uint32_t b = rt_config_find_box(&c->site_config, box);
    rt_status status = dp_added_check_end(&c->added, &c->site_config, box, error);
    if (status)
        return status;
    if (c->members.boxes >> b & 1)
        status = dp_move_ask(c, false, box, error);
    else
        status = ask_end_of_other(c, box, b, error);
    if (status)
        return status;
    c->move.is_for_good = true;
    snprintf(c->move.what, sizeof c->move.what, "%s leaves for good, its key is taken off", box);
    return RT_OK;
}

rt_status dp_move_ask_rates(dp_run *c, const char *key, const rt_config *fresh, rt_error *error)
{
    rt_status status = check_run(c, key, error);
    if (status)
        return status;
    c->move = (dp_move){.is_asked = true, .next = c->members};
    c->move.next.row_rate = fresh->optimizer_rows.learning_rate;
    c->move.next.dense_rate = fresh->optimizer_dense.learning_rate;
    snprintf(c->move.what, sizeof c->move.what, "%s changes", key);
    return RT_OK;
}

bool dp_move_is_at_rest(const dp_run *c)
{
    return !c->hold && !c->cut.planned && !c->flights.count && !c->prober.open &&
           !dp_checkpoint_busy(c->checkpoint) &&
           dp_checkpoint_newest(c->checkpoint) == dp_tally_iterations(c->tally);
}

static void answer(dp_run *c, rt_status status, const char *text)
{
    c->move.is_asked = false;
    rt_info("%s", text);
    if (c->move.visitor)
        dp_roster_answer(c->roster, c->move.visitor, status, text);
}

rt_status dp_move_end(dp_run *c, bool is_written, rt_error *error)
{
    dp_move *move = &c->move;
    char text[sizeof move->what + 64];
    rt_error why = {0};
    move->next.still_s = c->cut.drained_s;
    if (move->next.still_s <= 0)
        move->next.still_s = rt_unix_s();
    dp_added added = c->added;
    dp_added_joined(&added, move->next.boxes);
    if (move->is_for_good)
        dp_added_end(&added, rt_lowest_bit(move->leaves));
    rt_status status;
    if (is_written)
        status = dp_members_write(&c->site_config, c->checkpoints, &move->next, &added, &why);
    else
        status =
            rt_fail(&why, RT_IO, "the checkpoint could not be written: the run goes on as it was");
    if (status) {
        answer(c, status, why.text);
        return RT_OK;
    }
    snprintf(text, sizeof text, "%s: all start anew from iteration %" PRIu32, move->what,
             dp_checkpoint_newest(c->checkpoint));
    const dp_members leaving = dp_members_of(&c->site_config, move->leaves);
    if (move->leaves)
        dp_membership_dismiss(dp_roster_members(c->roster), leaving.workers, leaving.shards);
    answer(c, RT_OK, text);
    return rt_fail(error, RT_AGAIN, "%s", text);
}

void dp_move_drop(dp_run *c)
{
    if (c->move.is_asked)
        answer(c, RT_STOPPED, "the run ended before");
}

void dp_move_iterated(dp_run *c)
{
    dp_members *members = &c->members;
    rt_error why = {0};
    if (members->still_s <= 0)
        return;
    const double pause_s = fmax(0, rt_unix_s() - members->still_s); // clocks may be set
    rt_json *json = rt_metrics_begin(dp_tally_metrics(c->tally), "boxes");
    rt_json_begin_array(json, "boxes");
    for (uint64_t rest = members->boxes; rest; rest &= rest - 1)
        rt_json_string(json, NULL, c->site_config.boxes[rt_lowest_bit(rest)].name);
    rt_json_end_array(json);
    rt_json_double(json, "pause_s", pause_s);
    rt_metrics_end(dp_tally_metrics(c->tally));
    rt_info("all started anew: training stood still for %.1f s", pause_s);
    members->still_s = 0;
    if (dp_members_write(&c->site_config, c->checkpoints, members, &c->added, &why))
        rt_warn("%s", why.text);
}
