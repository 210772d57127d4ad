#include "dispatch/coordinator/dp_move.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dispatch/coordinator/dp_run.h"
#include "dispatch/planner/dp_setup.h"
#include "runtime/rt_log.h"
#include "runtime/files/rt_file.h"
#include "runtime/rt_json.h"
#include "runtime/rt_json_read.h"

// what: the box, or the key.
static rt_status check_run(const dp_run *run, const char *what, rt_error *error)
{
    if (!run->checkpoint)
        return rt_fail(
            error, RT_CONFIG,
            "%s: needs a checkpoint from which all processes start again, and this run makes none: "
            "it has neither --out nor checkpoint.directory, or workers that plan",
            what);
    if (run->move.is_asked)
        return rt_fail(error, RT_AGAIN, "%s: %s already with the next checkpoint: ask again later",
                       what, run->move.what);
    return RT_OK;
}

rt_status dp_move_check_boxes(const dp_run *run, const char *box, rt_error *error)
{
    if (run->site_config.box_count == 0)
        return rt_fail(error, RT_CONFIG,
                       "%s: the configuration does not say which boxes there are: boxes", box);
    if (run->site_config.collective == RT_COLLECTIVE_MPI)
        return rt_fail(
            error, RT_CONFIG,
            "%s: with network.collective \"mpi\" the number of workers is that of mpirun", box);
    return check_run(run, box, error);
}

// Members of a box that joins, where nobody starts them once they are wanted.
static rt_status check_presence(const dp_run *run, const char *box, const dp_members *joining,
                                rt_error *error)
{
    const dp_membership *all = dp_roster_members(run->roster);
    const uint64_t workers = dp_membership_absent(all, RT_ROLE_WORKER, joining->workers);
    const uint64_t shards = dp_membership_absent(all, RT_ROLE_PS, joining->shards);
    char missing[256] = "";
    if (run->own.spawned || !(workers | shards))
        return RT_OK;
    dp_membership_names(RT_ROLE_WORKER, workers, missing, sizeof missing);
    dp_membership_names(RT_ROLE_PS, shards, missing, sizeof missing);
    return rt_fail(error, RT_NOT_FOUND,
                   "%s: not there yet: %s; start them on that box, they wait to be taken in", box,
                   missing);
}

// Rows that the shards which stay have no memory for.
static rt_status check_rows(const dp_run *run, const char *box, const rt_config *left,
                            rt_error *error)
{
    uint64_t rows = 0;
    const uint64_t fit = dp_setup_rows_that_fit(left);
    for (uint32_t s = 0; s < run->run_config.ps_shard_count; s++) {
        const rt_wire_vitals *vitals = &run->watch.shards[s];
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

static rt_status check_left(const dp_run *run, const char *box, const rt_config *left,
                            rt_error *error)
{
    rt_status status = rt_config_check_model(left, error);
    if (status)
        return status;
    status = rt_config_check_training(left, error);
    if (status || left->ps_shard_count >= run->run_config.ps_shard_count)
        return status;
    return check_rows(run, box, left, error);
}

// What the run would be is a configuration as any other.
static rt_status check_next(const dp_run *run, const char *box, const dp_members *next,
                            rt_error *error)
{
    rt_config left;
    const uint32_t before = run->run_config.ps_shard_count;
    if (!next->workers)
        return rt_fail(error, RT_CONFIG, "%s: has the last worker of this run", box);
    if (!next->shards)
        return rt_fail(error, RT_CONFIG, "%s: has the last shard of this run", box);
    if (!run->own.spawned && run->site_config.checkpoint.copies == 0 &&
        rt_bit_count(next->shards) != before)
        return rt_fail(error, RT_CONFIG,
                       "%s: rows move to other shards with the copies on the coordinator's box, "
                       "but checkpoint.copies is 0",
                       box);
    if (rt_config_copy(&run->site_config, &left))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    rt_config_keep_members(&left, next->workers, next->shards);
    const rt_status status = check_left(run, box, &left, error);
    rt_config_fini(&left);
    return status;
}

rt_status dp_move_check_join(const dp_run *run, const char *box, rt_error *error)
{
    const uint32_t b = rt_config_find_box(&run->site_config, box);
    const dp_members next = dp_members_of(&run->site_config, run->members.boxes | rt_bit(b));
    return check_next(run, box, &next, error);
}

bool dp_move_is_there(const dp_run *run, uint32_t box)
{
    const dp_members joining = dp_members_of(&run->site_config, rt_bit(box));
    return check_presence(run, run->site_config.boxes[box].name, &joining, NULL) == RT_OK;
}

rt_status dp_move_ask(dp_run *run, bool joins, const char *box, rt_error *error)
{
    rt_status status = dp_move_check_boxes(run, box, error);
    if (status)
        return status;
    const uint32_t b = rt_config_find_box(&run->site_config, box);
    if (b == run->site_config.box_count)
        return rt_fail(error, RT_NOT_FOUND, "%s: the configuration has no box of that name%s", box,
                       joins ? ": `lanyard add RUN BOX --gbps G` says what it is" : "");
    const uint64_t in = run->members.boxes;
    const bool is_in = in >> b & 1;
    if (is_in && joins)
        return rt_fail(error, RT_CONFIG, "%s: already takes part in this run", box);
    if (!is_in && !joins)
        return rt_fail(error, RT_CONFIG, "%s: takes no part in this run", box);
    dp_move move = {.is_asked = true, .next = dp_members_of(&run->site_config, in ^ rt_bit(b))};
    move.next.row_rate = run->members.row_rate;
    move.next.dense_rate = run->members.dense_rate;
    snprintf(move.what, sizeof move.what, "%s %s", box, joins ? "joins" : "leaves");
    if (joins) {
        const dp_members joining = dp_members_of(&run->site_config, rt_bit(b));
        status = check_presence(run, box, &joining, error);
        if (status)
            return status;
    } else {
        move.leaves = rt_bit(b);
    }
    status = check_next(run, box, &move.next, error);
    if (status)
        return status;
    run->move = move;
    return RT_OK;
}

// One that takes no part.
static rt_status ask_end_of_other(dp_run *run, const char *box, uint32_t b, rt_error *error)
{
    const rt_status status = check_run(run, box, error);
    if (status)
        return status;
    run->move = (dp_move){.is_asked = true, .next = run->members, .leaves = rt_bit(b)};
    return RT_OK;
}

rt_status dp_move_ask_end(dp_run *run, const char *box, rt_error *error)
{
    const uint32_t b = rt_config_find_box(&run->site_config, box);
    rt_status status = dp_added_check_end(&run->added, &run->site_config, box, error);
    if (status)
        return status;
    if (run->members.boxes >> b & 1)
        status = dp_move_ask(run, false, box, error);
    else
        status = ask_end_of_other(run, box, b, error);
    if (status)
        return status;
    run->move.is_for_good = true;
    snprintf(run->move.what, sizeof run->move.what, "%s leaves for good, its key is taken off",
             box);
    return RT_OK;
}

rt_status dp_move_ask_rates(dp_run *run, const char *key, const rt_config *fresh, rt_error *error)
{
    rt_status status = check_run(run, key, error);
    if (status)
        return status;
    run->move = (dp_move){.is_asked = true, .next = run->members};
    run->move.next.row_rate = fresh->optimizer_rows.learning_rate;
    run->move.next.dense_rate = fresh->optimizer_dense.learning_rate;
    snprintf(run->move.what, sizeof run->move.what, "%s changes", key);
    return RT_OK;
}

bool dp_move_is_at_rest(const dp_run *run)
{
    return !run->restart.checkpoint && !run->cut.planned && !run->open.count && !run->prober.open &&
           !dp_checkpoint_busy(run->checkpoint) &&
           dp_checkpoint_newest(run->checkpoint) == dp_stats_iterations(run->stats);
}

static void answer(dp_run *run, rt_status status, const char *text)
{
    run->move.is_asked = false;
    rt_info("%s", text);
    if (run->move.visitor)
        dp_roster_answer(run->roster, run->move.visitor, status, text);
}

rt_status dp_move_end(dp_run *run, bool is_written, rt_error *error)
{
    dp_move *move = &run->move;
    char text[sizeof move->what + 64];
    rt_error why = {0};
    move->next.still_s = run->cut.drained_s;
    if (move->next.still_s <= 0)
        move->next.still_s = rt_unix_s();
    dp_added added = run->added;
    dp_added_joined(&added, move->next.boxes);
    if (move->is_for_good)
        dp_added_end(&added, rt_lowest_bit(move->leaves));
    rt_status status;
    if (is_written)
        status =
            dp_members_write(&run->site_config, run->folder.checkpoints, &move->next, &added, &why);
    else
        status =
            rt_fail(&why, RT_IO, "the checkpoint could not be written: the run goes on unchanged");
    if (status) {
        answer(run, status, why.text);
        return RT_OK;
    }
    snprintf(text, sizeof text, "%s: all processes start again from iteration %" PRIu32, move->what,
             dp_checkpoint_newest(run->checkpoint));
    const dp_members leaving = dp_members_of(&run->site_config, move->leaves);
    if (move->leaves)
        dp_membership_dismiss(dp_roster_members(run->roster), leaving.workers, leaving.shards);
    answer(run, RT_OK, text);
    return rt_fail(error, RT_AGAIN, "%s", text);
}

void dp_move_drop(dp_run *run)
{
    if (run->move.is_asked)
        answer(run, RT_STOPPED, "the run ended before");
}

void dp_move_iterated(dp_run *run)
{
    dp_members *members = &run->members;
    rt_error why = {0};
    if (members->still_s <= 0)
        return;
    const double pause_s = fmax(0, rt_unix_s() - members->still_s); // clocks may be set
    rt_json *json = rt_metrics_begin(dp_stats_metrics(run->stats), "boxes");
    rt_json_begin_array(json, "boxes");
    for (uint64_t rest = members->boxes; rest; rest &= rest - 1)
        rt_json_string(json, NULL, run->site_config.boxes[rt_lowest_bit(rest)].name);
    rt_json_end_array(json);
    rt_json_double(json, "pause_s", pause_s);
    rt_metrics_end(dp_stats_metrics(run->stats));
    rt_info("all started anew: training stood still for %.1f s", pause_s);
    members->still_s = 0;
    if (dp_members_write(&run->site_config, run->folder.checkpoints, members, &run->added, &why))
        rt_warn("%s", why.text);
}

// ---- boxes that no configuration had ---------------------------------------------------------

#define ASK_AGAIN_NS UINT64_C(10000000000) // for a checkpoint, where the one before failed

// ---- a run begins ----------------------------------------------------------------------------

static rt_status allow_keys(dp_run *run, rt_error *error)
{
    for (uint32_t i = 0; i < run->added.count; i++) {
        rt_info("box %s was added to this run", run->site_config.boxes[run->added.first + i].name);
        if (!run->added.of[i].has_key)
            continue;
        const rt_status status = run->own.ops->allow(run->transport, &run->added.of[i].key, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status dp_adding_begin(dp_run *run, rt_error *error)
{
    rt_status status =
        dp_members_read_added(run->folder.checkpoints, &run->site_config, &run->added, error);
    if (status || !run->added.count)
        return status;
    run->settings.reload.added_from = run->added.first;
    status = dp_added_adopt(&run->site_config, &run->run_config, error);
    if (status)
        return status;
    status = rt_config_check(&run->site_config, error);
    if (status)
        return status;
    return allow_keys(run, error);
}

// ---- a box more ------------------------------------------------------------------------------

static bool has_other_key(const rt_public_key *key, const rt_public_key *other)
{
    return strcmp(key->name, other->name) == 0 &&
           memcmp(key->bytes, other->bytes, RT_KEY_BYTES) != 0;
}

// Only who may write into the folder of the run lets a key in: any box with a key may ask.
static rt_status check_key(const dp_run *run, const char *box, const char *text, rt_public_key *key,
                           rt_error *error)
{
    char path[RT_PATH_MAX + 32], shown[RT_KEY_TEXT_SIZE];
    const rt_keys *keys = run->own.keys;
    if (!keys || !keys->is_set)
        return rt_fail(error, RT_CONFIG, "%s: this run uses no keys (security.key)", box);
    if (!run->own.directory)
        return rt_fail(error, RT_CONFIG,
                       "%s: a key is accepted only through the folder of the run, and this run has "
                       "none (--out)",
                       box);
    snprintf(path, sizeof path, "%s/" DP_ADDED_KEY, run->own.directory);
    rt_status status = rt_keys_read_public(path, key, error);
    if (status)
        return status;
    if (strcmp(rt_key_text(key->bytes, shown), text) != 0)
        return rt_fail(error, RT_CONFIG, "%s: %s has another key", box, path);
    bool differs = has_other_key(key, &keys->own);
    for (uint32_t i = 0; i < keys->allowed_count; i++)
        differs |= has_other_key(key, &keys->allowed[i]);
    for (uint32_t i = 0; i < run->added.count; i++)
        differs |= run->added.of[i].has_key && has_other_key(key, &run->added.of[i].key);
    if (differs)
        return rt_fail(error, RT_CONFIG, "%s: another key of the name %s is allowed already", box,
                       key->name);
    return RT_OK;
}

// As one of the run: what it would be with it is a configuration as any other. The lists that
// others may point to stay where they are.
static rt_status extend(dp_run *run, const char *box, const cJSON *json, rt_error *error)
{
    rt_config *whole = &run->site_config;
    char *text = cJSON_PrintUnformatted(json);
    if (!text)
        return rt_fail(error, RT_WIRE, "%s: a request without the box", box);
    rt_status status = rt_config_add_box(whole, text, error);
    cJSON_free(text);
    if (status)
        return status;
    if (strcmp(whole->boxes[whole->box_count - 1].name, box) != 0)
        return rt_fail(error, RT_WIRE, "%s: a request with another box", box);
    status = rt_config_check(whole, error);
    if (status)
        return status;
    status = rt_config_check_training(whole, error);
    if (status)
        return status;
    return dp_move_check_join(run, box, error);
}

// For the box, which needs one that has it; as all others have it but for that.
static rt_status write_config(const dp_run *run, const char *path, rt_error *error)
{
    const rt_config *site = run->own.site ? run->own.site : &run->site_config;
    rt_config told;
    char *text = NULL;
    if (rt_config_copy(site, &told))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    rt_status status = dp_added_adopt(&run->site_config, &told, error);
    told.network_bind[0] = '\0'; // of this box
    if (!status && rt_config_to_json(&told, &text))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory");
    rt_config_fini(&told);
    if (!status)
        status = rt_file_save(path, text, strlen(text), error);
    rt_free(text);
    return status;
}

// It is on disk; from here on nothing fails that would have to be undone.
static void let_in(dp_run *run, const char *box, char *answer, size_t size)
{
    char path[RT_PATH_MAX + RT_NAME_MAX + 16], ranks[256] = "";
    rt_error why = {0};
    const uint32_t i = run->added.count - 1, b = run->added.first + i;
    const dp_members joins = dp_members_of(&run->site_config, rt_bit(b));
    dp_membership_extend(dp_roster_members(run->roster), run->site_config.worker_count,
                         run->site_config.ps_shard_count);
    if (run->added.of[i].has_key &&
        run->own.ops->allow(run->transport, &run->added.of[i].key, &why))
        rt_warn("%s", why.text);
    dp_membership_names(RT_ROLE_WORKER, joins.workers, ranks, sizeof ranks);
    dp_membership_names(RT_ROLE_PS, joins.shards, ranks, sizeof ranks);
    snprintf(path, sizeof path, "%s/%s.json", run->folder.checkpoints, box);
    if (write_config(run, path, &why)) {
        rt_warn("%s", why.text);
        snprintf(path, sizeof path, "(it could not be written: %.200s)", why.text);
    }
    snprintf(
        answer, size,
        "%s is known to this run: %s. Start them there with the configuration %s: they are taken "
        "in with a checkpoint as soon as they are all there",
        box, ranks, path);
}

static void note(dp_added *added, uint32_t at, const rt_public_key *key)
{
    if (added->count == 0)
        added->first = at;
    added->of[added->count].has_key = key != NULL;
    if (key)
        added->of[added->count].key = *key;
    added->of[added->count++].awaited = true;
}

static rt_status add(dp_run *run, const char *box, const cJSON *json, rt_error *error)
{
    const char *text = cJSON_GetStringValue(rt_json_member(json, "key"));
    const rt_config before = run->site_config;
    const dp_added added = run->added;
    rt_public_key read;
    const rt_public_key *key = NULL;
    rt_status status;
    if (text) {
        key = &read;
        status = check_key(run, box, text, &read, error);
        if (status)
            return status;
    }
    status = extend(run, box, rt_json_member(json, "box"), error);
    if (!status) {
        note(&run->added, run->site_config.box_count - 1, key);
        status = dp_members_write(&run->site_config, run->folder.checkpoints, &run->members,
                                  &run->added, error);
    }
    if (!status)
        return RT_OK;
    run->site_config = before;
    run->added = added;
    return status;
}

rt_status dp_adding_ask(dp_run *run, const char *box, const char *text, char *answer, size_t size,
                        rt_error *error)
{
    rt_status status = dp_move_check_boxes(run, box, error);
    if (status)
        return status;
    if (!rt_key_name_is_valid(box))
        return rt_fail(error, RT_CONFIG,
                       "%s: a box that is added has a name of letters, digits, dots, dashes, "
                       "underscores",
                       box);
    if (rt_config_find_box(&run->site_config, box) < run->site_config.box_count)
        return rt_fail(error, RT_CONFIG,
                       "%s: is already a box of this run: `lanyard add RUN %s` without other "
                       "options takes it in",
                       box, box);
    cJSON *json = cJSON_Parse(text);
    if (cJSON_IsObject(json))
        status = add(run, box, json, error);
    else
        status = rt_fail(error, RT_WIRE, "%s: a request that is no JSON object", box);
    cJSON_Delete(json);
    if (status)
        return status;
    let_in(run, box, answer, size);
    if (!run->own.spawned)
        return RT_OK;
    return dp_move_ask(run, true, box, error);
}

// ---- waiting for it --------------------------------------------------------------------------

bool dp_adding_let_go(dp_run *run, const char *box, char *answer, size_t size)
{
    rt_error why = {0};
    const uint32_t b = rt_config_find_box(&run->site_config, box), i = b - run->added.first;
    if (b == run->site_config.box_count || b < run->added.first || i >= run->added.count ||
        !run->added.of[i].awaited || (run->move.is_asked && run->move.next.boxes >> b & 1))
        return false;
    run->added.of[i].awaited = false;
    if (dp_members_write(&run->site_config, run->folder.checkpoints, &run->members, &run->added,
                         &why))
        rt_warn("%s", why.text);
    snprintf(answer, size, "%s is not waited for any more: `lanyard add` takes it in", box);
    return true;
}

void dp_adding_step(dp_run *run)
{
    rt_error why = {0};
    if (run->move.is_asked || run->phase != DP_RUN_TRAINS || run->interrupted)
        return;
    for (uint32_t i = 0; i < run->added.count; i++) {
        const uint32_t b = run->added.first + i;
        if (!run->added.of[i].awaited || !dp_move_is_there(run, b) ||
            rt_now_ns() < run->added.ask_ns)
            continue;
        run->added.ask_ns = rt_now_ns() + ASK_AGAIN_NS;
        if (dp_move_ask(run, true, run->site_config.boxes[b].name, &why))
            rt_warn("%s", why.text);
        else
            rt_info("box %s is there: it joins with the next checkpoint",
                    run->site_config.boxes[b].name);
        return;
    }
}
