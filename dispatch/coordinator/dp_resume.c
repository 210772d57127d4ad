#include "dispatch/coordinator/dp_resume.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_parcel.h"
#include "runtime/rt_log.h"
#include "runtime/stream/rt_ids.h"
#include "runtime/stream/rt_position.h"

#define PULLS_MAX (1u << 16) // of one slice that fills caches

typedef struct {
    const dp_resume_config *config;
    dp_planner *planner;
    uint64_t marks;        // workers that answered the last MARK
    const dp_saved *saved; // the candidate
    uint64_t loading;      // shards that read one of its files
    uint64_t asked;        // of them, those that are asked for rows that they have in memory
    uint32_t kept;         // shards whose rows are those of the candidate without a file
    uint32_t loaded[RT_SHARDS_MAX];
    uint64_t sending;    // shards that get a copy
    uint32_t sending_to; // of them, the one whose turn it is
    uint64_t given_up;   // whose copy could not be read: it may still answer what was sent of it
    rt_parcel_file copies[RT_SHARDS_MAX];
    uint64_t tried[RT_SHARDS_MAX]; // copies that a shard got for the load that it is at
    int wait_fd;                   // readable when a copy can go on, or the run is to end
    rt_error damage;               // what is wrong with the candidate
    uint64_t keys_missing;         // shards whose keys are not all known
    uint64_t keys_from[RT_SHARDS_MAX];
    uint64_t sequence; // of the last slice
    uint64_t begin_ns;
} resume;

// ---- before a run ----------------------------------------------------------------------------

static rt_status find_any(const char *directory, dp_resume_kind kind, bool *found_p,
                          rt_error *error)
{
    uint32_t *iterations, count;
    rt_status status = rt_checkpoint_list(directory, &iterations, &count, error);
    if (status)
        return status;
    rt_free(iterations);
    *found_p = count > 0;
    if (count > 0 && kind == DP_RESUME_NO)
        return rt_fail(error, RT_CONFIG,
                       "%s holds checkpoints of an earlier run: --resume goes on from there; or "
                       "remove them, or take another folder",
                       directory);
    if (count == 0 && kind == DP_RESUME_NEWEST)
        return rt_fail(error, RT_NOT_FOUND, "%s holds no checkpoint to resume from", directory);
    return RT_OK;
}

rt_status dp_resume_prepare(const rt_config *config, const char *out, dp_resume_kind kind,
                            char *directory, size_t size, bool *resumes_p, bool *has_epoch_p,
                            rt_error *error)
{
    const rt_checkpoint_config *c = &config->checkpoint;
    const bool publishes = config->publish.every_s > 0;
    const bool makes = c->every_iterations || c->every_s > 0 || c->at_end || publishes;
    const bool wanted = makes || kind == DP_RESUME_NEWEST;
    *resumes_p = *has_epoch_p = false;
    *directory = '\0';
    if (wanted && !*c->directory && !out)
        return rt_fail(error, RT_CONFIG,
                       "checkpoints need a folder: set --out or checkpoint.directory");
    if (publishes && !*config->publish.folder && !out)
        return rt_fail(error, RT_CONFIG,
                       "published models need a folder: set --out or publish.folder");
    if (!*c->directory && !out)
        return RT_OK;
    if (*c->directory)
        snprintf(directory, size, "%s", c->directory);
    else
        snprintf(directory, size, "%s/checkpoints", out);
    rt_status status = find_any(directory, kind, resumes_p, error);
    *has_epoch_p = !status && (makes || *resumes_p);
    return status;
}

rt_status dp_resume_begin_epoch(const char *directory, uint32_t *epoch_p, rt_error *error)
{
    rt_status status = rt_checkpoint_make(directory, error);
    if (status)
        return status;
    return dp_checkpoint_begin_epoch(directory, epoch_p, error);
}

// What is not for this configuration, or of another build, is no damage: nothing is passed over for
// it, since somebody can go on from it.
static bool is_sound(rt_status status)
{
    return status == RT_CONFIG || status == RT_UNSUPPORTED;
}

// ---- messages --------------------------------------------------------------------------------

static rt_status send_empty(resume *r, uint32_t peer, rt_message_type type, uint64_t number,
                            rt_error *error)
{
    rt_message message;
    if (rt_message_create(&message, type, r->config->sender, number, 0, 0))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return dp_roster_send(r->config->roster, peer, &message, error);
}

static rt_status send_order(resume *r, uint32_t shard, uint32_t i, const rt_wire_load *load,
                            rt_error *error)
{
    rt_message message;
    if (rt_control_create_struct(&message, RT_MESSAGE_LOAD, r->config->sender,
                                 r->saved->past[i].iteration, load, sizeof *load, NULL))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    r->loading |= rt_bit(shard);
    return dp_roster_send(r->config->roster, rt_peer(RT_ROLE_PS, shard), &message, error);
}

// The next file of the candidate, if there is one. While it is read the shard takes nothing else.
static rt_status send_load(resume *r, uint32_t shard, rt_error *error)
{
    const uint32_t i = r->loaded[shard];
    if (i == r->saved->count || r->damage.status)
        return RT_OK;
    rt_wire_load load = r->saved->loads[i];
    if (i == 0)
        load.flags |= RT_WIRE_LOAD_FIRST;
    if (i == 0)
        load.lineage = r->saved->lineages[shard];
    return send_order(r, shard, i, &load, error);
}

// ---- rows in memory --------------------------------------------------------------------------

// 0: the files are of other shards, or of other homes, or of a model.
static uint64_t lineage_of(const resume *r, uint32_t shard)
{
    const rt_config *config = r->config->config;
    uint64_t lineage = RT_LINEAGE_ALL_ROWS;
    const uint64_t merged = r->saved->lineages[shard];
    for (uint32_t i = 0; i < r->saved->count; i++) {
        const rt_wire_load *load = &r->saved->loads[i];
        const bool was_planned = load->flags & RT_WIRE_LOAD_HOMES;
        if (load->shard_count != config->ps_shard_count || load->flags & RT_WIRE_LOAD_MODEL ||
            was_planned != (config->ps_homes == RT_HOMES_PLANNED))
            return 0;
        lineage = rt_control_lineage(lineage, load->files[shard].bytes, load->files[shard].hash);
        if (i == 0 && merged)
            lineage = merged;
    }
    return lineage;
}

// A shard that has outlived the start before rolls its rows back; any other one reads files.
static rt_status send_first(resume *r, uint32_t shard, rt_error *error)
{
    dp_membership *members = dp_roster_members(r->config->roster);
    const uint64_t lineage = lineage_of(r, shard);
    rt_wire_load load = {.shard_count = r->config->config->ps_shard_count,
                         .flags = RT_WIRE_LOAD_KEPT};
    if (!lineage || !dp_membership_by_place(members, rt_peer(RT_ROLE_PS, shard))->has_rows)
        return send_load(r, shard, error);
    load.files[shard].hash = lineage;
    r->asked |= rt_bit(shard);
    return send_order(r, shard, r->saved->count - 1, &load, error);
}

// It was asked for rows in memory. What is wrong with them is wrong with no file.
static rt_status take_asked(resume *r, uint32_t shard, bool has_them, rt_error *error)
{
    r->asked &= ~rt_bit(shard);
    if (!has_them)
        return send_load(r, shard, error);
    r->loaded[shard] = r->saved->count;
    r->kept++;
    return RT_OK;
}

// ---- copies ----------------------------------------------------------------------------------

static rt_status send_piece(void *context, rt_message *message, rt_error *error)
{
    resume *r = context;
    const uint32_t shard = r->sending_to;
    return dp_roster_send(r->config->roster, rt_peer(RT_ROLE_PS, shard), message, error);
}

// The shard cannot read a file: it gets the one that is here, once. False: there is none.
static bool begin_copy(resume *r, uint32_t shard, uint32_t file, const char *why)
{
    char path[RT_FOLDER_MAX + 64];
    struct stat info;
    const uint32_t i = r->loaded[shard];
    const rt_wire_load *load = &r->saved->loads[i];
    rt_parcel_config config = {.send = send_piece,
                               .context = r,
                               .sender = r->config->sender,
                               .file = file,
                               .iteration = r->saved->past[i].iteration};
    if (file >= load->shard_count || r->tried[shard] >> file & 1)
        return false;
    r->tried[shard] |= rt_bit(file);
    snprintf(path, sizeof path, "%s/rows-%03" PRIu32 "-of-%03" PRIu32 ".bin", load->folder, file,
             load->shard_count);
    if (stat(path, &info) != 0 || (uint64_t)info.st_size != load->files[file].bytes ||
        rt_parcel_open(&r->copies[shard], path, &config, r->config->wake_fd, NULL))
        return false;
    r->sending |= rt_bit(shard);
    r->given_up &= ~rt_bit(shard);
    rt_info("ps %" PRIu32 " gets the copy of %s: %s", shard, path, why);
    return true;
}

static void end_copies(resume *r)
{
    for (uint32_t s = 0; s < RT_SHARDS_MAX; s++)
        rt_parcel_close(&r->copies[s]);
    r->sending = 0;
}

static rt_status go_on_with_copies(resume *r, rt_error *error)
{
    eventfd_t count;
    (void)eventfd_read(r->config->wake_fd, &count);
    for (uint64_t rest = r->sending; rest; rest &= rest - 1) {
        r->sending_to = rt_lowest_bit(rest);
        const rt_status status = rt_parcel_step(&r->copies[r->sending_to], error);
        if (status)
            return status;
    }
    return RT_OK;
}

// What is here cannot be read either, which is damage; that it cannot be written there is not.
static rt_status take_taken(resume *r, uint32_t shard, const rt_message *message, rt_error *error)
{
    char name[32];
    rt_parcel_file *copy = &r->copies[shard];
    if (r->given_up >> shard & 1)
        return RT_OK;
    if (!(r->sending >> shard & 1))
        return rt_fail(error, RT_WIRE, "ps %" PRIu32 ": a TAKEN of bytes that were not sent",
                       shard);
    const bool gave_up = copy->out.refusal.status != RT_OK;
    rt_status status =
        rt_parcel_taken(&copy->out, message, rt_peer_name(rt_peer(RT_ROLE_PS, shard), name), error);
    if (!status && copy->out.refusal.status && !gave_up)
        status = rt_fail(error, copy->out.refusal.status, "%s", copy->out.refusal.text);
    if (status || !copy->out.is_complete)
        return status;
    rt_parcel_close(copy);
    r->sending &= ~rt_bit(shard);
    return send_load(r, shard, error);
}

// A copy that cannot be read here: the candidate is of no use.
static void judge_copies(resume *r)
{
    for (uint64_t rest = r->sending; rest; rest &= rest - 1) {
        const uint32_t s = rt_lowest_bit(rest);
        if (!r->copies[s].out.refusal.status)
            continue;
        if (!r->damage.status)
            rt_fail(&r->damage, RT_DATA, "the copy for ps %" PRIu32 ": %.384s", s,
                    r->copies[s].out.refusal.text);
        rt_parcel_close(&r->copies[s]);
        r->sending &= ~rt_bit(s);
        r->given_up |= rt_bit(s);
    }
}

// ---- loading ---------------------------------------------------------------------------------

static rt_status take_loaded(resume *r, uint32_t shard, const rt_message *message, rt_error *error)
{
    rt_wire_written loaded;
    rt_reader reader = rt_message_reader(message);
    if (!rt_reader_get(&reader, &loaded, 1, sizeof loaded) || !(r->loading >> shard & 1))
        return rt_fail(error, RT_WIRE, "ps %" PRIu32 ": a LOADED that nobody waits for", shard);
    char why[385];
    snprintf(why, sizeof why, "%.*s", (int)rt_min_u64(reader.left, sizeof why - 1),
             (const char *)reader.next);
    r->loading &= ~rt_bit(shard);
    if (r->asked >> shard & 1)
        return take_asked(r, shard, loaded.status == RT_OK, error);
    if (is_sound((rt_status)loaded.status) || loaded.status == RT_NO_MEMORY)
        return rt_fail(error, (rt_status)loaded.status, "ps %" PRIu32 ": %s", shard, why);
    if (loaded.status && !r->damage.status && begin_copy(r, shard, loaded.file, why))
        return go_on_with_copies(r, error);
    r->loaded[shard]++;
    r->tried[shard] = 0;
    if (loaded.status && !r->damage.status)
        rt_fail(&r->damage, RT_DATA, "%s", why);
    return send_load(r, shard, error);
}

static rt_status take_keys(resume *r, uint32_t shard, const rt_message *message, rt_error *error)
{
    rt_reader reader = rt_message_reader(message);
    const uint32_t count = rt_message_header(message)->count;
    if (!(r->keys_missing >> shard & 1) || count > RT_WIRE_KEYS_MAX)
        return rt_fail(error, RT_WIRE, "ps %" PRIu32 ": keys that nobody asked for", shard);
    for (uint32_t i = 0; i < count; i++) {
        rt_wire_key record;
        if (!rt_reader_get(&reader, &record, 1, sizeof record))
            return rt_fail(error, RT_WIRE, "ps %" PRIu32 ": keys are cut short", shard);
        rt_status status = dp_planner_know(r->planner, record.key, record.version, shard);
        if (status)
            return rt_fail(error, status, "ps %" PRIu32 ": key %016" PRIx64 ": %s", shard,
                           record.key, rt_status_text(status));
    }
    r->keys_from[shard] += count;
    if (count == 0) {
        r->keys_missing &= ~rt_bit(shard);
        return RT_OK;
    }
    return send_empty(r, rt_peer(RT_ROLE_PS, shard), RT_MESSAGE_KEYS, r->keys_from[shard], error);
}

static rt_status take(resume *r, uint32_t peer, const rt_message *message, rt_error *error)
{
    const rt_wire_header *header = rt_message_header(message);
    const bool is_shard = rt_peer_role(peer) == RT_ROLE_PS;
    if (is_shard && header->type == RT_MESSAGE_LOADED)
        return take_loaded(r, rt_peer_rank(peer), message, error);
    if (is_shard && header->type == RT_MESSAGE_TAKEN)
        return take_taken(r, rt_peer_rank(peer), message, error);
    if (is_shard && header->type == RT_MESSAGE_KEYS)
        return take_keys(r, rt_peer_rank(peer), message, error);
    if (!is_shard && header->type == RT_MESSAGE_MARK) {
        if (header->iteration == r->sequence)
            r->marks |= rt_bit(rt_peer_rank(peer));
        return RT_OK;
    }
    return r->config->other(r->config->context, peer, message, error);
}

static rt_status receive_all(resume *r, rt_error *error)
{
    for (;;) {
        uint32_t peer;
        rt_message message = {0};
        rt_status status = dp_roster_receive(r->config->roster, &peer, &message, error);
        if (status == RT_AGAIN)
            return RT_OK;
        if (!status)
            status = take(r, peer, &message, error);
        rt_message_release(&message);
        if (status)
            return status;
    }
}

// Waits for messages and takes all that came. RT_STOPPED: the run is to end.
static rt_status turn(resume *r, rt_error *error)
{
    struct pollfd stop = {.fd = r->config->stop_fd, .events = POLLIN};
    rt_status status = dp_roster_wait(r->config->roster, r->wait_fd, error);
    if (status)
        return status;
    if (stop.fd >= 0 && poll(&stop, 1, 0) == 1)
        return rt_fail(error, RT_STOPPED, "interrupted while a checkpoint was being loaded");
    status = receive_all(r, error);
    if (status)
        return status;
    status = go_on_with_copies(r, error);
    judge_copies(r);
    return status;
}

// ---- a candidate -----------------------------------------------------------------------------

static rt_status load_files(resume *r, rt_error *error)
{
    for (uint32_t s = 0; s < r->config->config->ps_shard_count; s++) {
        const rt_status status = send_first(r, s, error);
        if (status)
            return status;
    }
    while (r->loading || r->sending) {
        const rt_status status = turn(r, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status load_rows(resume *r, const dp_saved *saved, rt_error *error)
{
    r->saved = saved;
    r->damage = (rt_error){0};
    r->kept = 0;
    memset(r->loaded, 0, sizeof r->loaded);
    memset(r->tried, 0, sizeof r->tried);
    const rt_status status = load_files(r, error);
    end_copies(r);
    return status;
}

static rt_status load_keys(resume *r, rt_error *error)
{
    const uint32_t shards = r->config->config->ps_shard_count;
    memset(r->keys_from, 0, sizeof r->keys_from);
    r->keys_missing = rt_bits_below(shards);
    for (uint32_t s = 0; s < shards; s++) {
        const rt_status status = send_empty(r, rt_peer(RT_ROLE_PS, s), RT_MESSAGE_KEYS, 0, error);
        if (status)
            return status;
    }
    while (r->keys_missing) {
        const rt_status status = turn(r, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status load_planner(resume *r, const dp_saved *saved, rt_reader *state,
                              dp_resumed *resumed)
{
    const bool same_config = saved->config_hash == r->config->config_hash;
    rt_status status =
        dp_planner_load(r->planner, state, same_config, &resumed->restored, &r->damage);
    if (status)
        return status;
    if (resumed->restored.iteration != saved->iteration)
        return rt_fail(&r->damage, RT_DATA, "state of the planner: of another iteration");
    return RT_OK;
}

// Damage shows in r->damage; what is returned ends the run.
static rt_status load_state(resume *r, const dp_saved *saved, dp_resumed *resumed, rt_error *error)
{
    rt_reader planner, rest;
    rt_status status =
        dp_state_open(&saved->state, &resumed->position, &planner, &rest, &r->damage);
    if (status == RT_NO_MEMORY || is_sound(status))
        return rt_fail(error, status, "%s", r->damage.text);
    if (status)
        return RT_OK;
    status = dp_planner_create(r->config->planner, &r->planner, error);
    if (!status)
        status = load_keys(r, error);
    if (status)
        return status;
    status = load_planner(r, saved, &planner, resumed);
    if (!status)
        status = dp_state_take_rest(&rest, r->config->stats, r->config->config,
                                    r->config->limits.dense_count, &resumed->beside, &r->damage);
    if (status) {
        dp_planner_destroy(r->planner);
        r->planner = NULL;
    }
    if (status == RT_NO_MEMORY)
        return rt_fail(error, status, "out of memory for the state of the planner");
    if (is_sound(status))
        return rt_fail(error, status, "%s", r->damage.text);
    return RT_OK;
}

static rt_status try_one(resume *r, uint32_t iteration, dp_saved *saved, dp_resumed *resumed,
                         rt_error *error)
{
    const dp_resume_config *config = r->config;
    r->damage = (rt_error){0};
    rt_status status =
        dp_saved_read(config->directory, iteration, config->schema, saved, &r->damage);
    if (status == RT_NO_MEMORY || is_sound(status)) // of whatever checkpoint
        return rt_fail(error, status, "%s", r->damage.text);
    if (status)
        return RT_OK;
    status = load_rows(r, saved, error);
    if (!status && !r->damage.status)
        status = load_state(r, saved, resumed, error);
    if (status || r->damage.status)
        dp_saved_fini(saved);
    return status;
}

// ---- workers ---------------------------------------------------------------------------------

static rt_status send_dense_part(const dp_resume_config *config, const dp_saved *saved, size_t at,
                                 uint32_t worker, rt_error *error)
{
    rt_message message;
    const size_t size = rt_min_u64(RT_WIRE_PART_BYTES_MAX, saved->dense.size - at);
    const rt_wire_part part = {at, saved->dense.size};
    if (rt_message_create(&message, RT_MESSAGE_PART, config->sender, saved->iteration, 1,
                          sizeof part + size))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    memcpy(rt_message_payload(&message), &part, sizeof part);
    memcpy(rt_message_payload(&message) + sizeof part, saved->dense.data + at, size);
    return dp_roster_send(config->roster, rt_peer(RT_ROLE_WORKER, worker), &message, error);
}

static rt_status send_dense(resume *r, const dp_saved *saved, rt_error *error)
{
    for (uint32_t w = 0; w < r->config->config->worker_count; w++) {
        for (size_t at = 0; at < saved->dense.size; at += RT_WIRE_PART_BYTES_MAX) {
            const rt_status status = send_dense_part(r->config, saved, at, w, error);
            if (status)
                return status;
        }
    }
    return RT_OK;
}

// One slice to every worker, and until all have carried it out.
static rt_status send_plan(resume *r, const dp_plan *plan, rt_error *error)
{
    const dp_resume_config *config = r->config;
    const uint32_t workers = config->config->worker_count;
    r->sequence++;
    r->marks = 0;
    for (uint32_t w = 0; w < workers; w++) {
        rt_message slice;
        const uint32_t peer = rt_peer(RT_ROLE_WORKER, w);
        if (dp_slice_encode(plan, w, NULL, &config->limits, config->sender, r->sequence, &slice))
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
        rt_message_header(&slice)->epoch = config->epoch;
        rt_status status = dp_roster_send(config->roster, peer, &slice, error);
        if (status)
            return status;
        status = send_empty(r, peer, RT_MESSAGE_MARK, r->sequence, error);
        if (status)
            return status;
    }
    while (rt_bit_count(r->marks) < workers) {
        const rt_status status = turn(r, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static bool has_fills(const dp_plan *plan, uint32_t worker_count)
{
    for (uint32_t w = 0; w < worker_count; w++)
        if (plan->slices[w].fill.count)
            return true;
    return false;
}

// Where caches start empty nobody is waited for: a slow box takes in the dense part while others
// begin.
static rt_status fill_caches(resume *r, rt_error *error)
{
    const dp_plan *plan;
    uint32_t slot = 0;
    for (;;) {
        rt_status status = dp_planner_refill(r->planner, PULLS_MAX, &slot, &plan);
        if (status == RT_END)
            return RT_OK;
        if (status)
            return rt_fail(error, status, "out of memory for the rows of the caches");
        if (has_fills(plan, r->config->config->worker_count))
            status = send_plan(r, plan, error);
        if (status)
            return status;
    }
}

static void report(const resume *r, const dp_resumed *resumed)
{
    rt_metrics *metrics = dp_stats_metrics(r->config->stats);
    rt_json *json = rt_metrics_begin(metrics, "resumed");
    rt_json_u64(json, "iteration", resumed->restored.iteration);
    rt_json_u64(json, "epoch", r->config->epoch);
    rt_json_bool(json, "caches", resumed->restored.caches);
    rt_json_u64(json, "shards_in_memory", r->kept);
    rt_json_double(json, "seconds", (double)(rt_now_ns() - r->begin_ns) * 1e-9);
    rt_metrics_end(metrics);
}

// What the next checkpoint builds on, and which stay.
static rt_status take_past(const resume *r, const dp_saved *saved, dp_resumed *resumed,
                           rt_error *error)
{
    const rt_wire_load *load = &saved->loads[saved->count - 1];
    const rt_config *config = r->config->config;
    const bool planned = config->ps_homes == RT_HOMES_PLANNED;
    resumed->is_of_others = load->shard_count != config->ps_shard_count ||
                            planned != !!(load->flags & RT_WIRE_LOAD_HOMES);
    rt_status status =
        dp_saved_past(r->config->directory, saved, &resumed->past, &resumed->past_count, error);
    if (!status)
        resumed->past[resumed->past_count - 1].events = rt_position_find_events(&resumed->position);
    return status;
}

static rt_status go_on(resume *r, dp_saved *saved, dp_resumed *resumed, rt_error *error)
{
    const char *caches = resumed->restored.caches ? "caches as they were" : "caches start empty";
    rt_status status = send_dense(r, saved, error);
    if (status)
        return status;
    status = fill_caches(r, error);
    if (status)
        return status;
    status = take_past(r, saved, resumed, error);
    if (status)
        return status;
    rt_info("going on after iteration %" PRIu32 ", %" PRIu64 " samples (%s)", saved->iteration,
            saved->samples, caches);
    report(r, resumed);
    resumed->planner = r->planner;
    resumed->sequence_next = r->sequence + 1;
    resumed->ages = saved->ages;
    return RT_OK;
}

// Why a candidate is of no use.
static void report_damage(const resume *r, uint32_t iteration)
{
    if (r->damage.status == RT_NOT_FOUND)
        rt_info("the checkpoint of iteration %" PRIu32 " was not completed", iteration);
    else
        rt_warn("the checkpoint of iteration %" PRIu32 " is damaged and passed over: %s", iteration,
                r->damage.text);
}

// What training would lose must not go unnoticed: somebody has to decide that.
static rt_status all_damaged(const dp_resume_config *config, const uint32_t *damaged,
                             uint32_t count, rt_error *error)
{
    char names[256] = "";
    for (uint32_t i = 0, used = 0; i < count && used < sizeof names; i++)
        used += (uint32_t)snprintf(names + used, sizeof names - used, "%s%" PRIu32, i ? ", " : "",
                                   damaged[i]);
    return rt_fail(error, RT_DATA,
                   "%s: no checkpoint can be read (those of the iterations %s are damaged); all is "
                   "left as it is: put a copy back, or take another folder to begin anew",
                   config->directory, names);
}

// From the newest on, the last of iterations, until one is whole: *left_p counts it and those
// before.
static rt_status try_all(resume *r, const uint32_t *iterations, uint32_t *damaged, uint32_t *left_p,
                         dp_saved *saved, dp_resumed *resumed, rt_error *error)
{
    uint32_t damaged_count = 0;
    while (*left_p > 0) {
        const uint32_t newest = iterations[*left_p - 1];
        const rt_status status = try_one(r, newest, saved, resumed, error);
        if (status || r->planner)
            return status;
        --*left_p;
        report_damage(r, newest);
        if (r->damage.status != RT_NOT_FOUND)
            damaged[damaged_count++] = newest;
    }
    if (damaged_count > 0)
        return all_damaged(r->config, damaged, damaged_count, error);
    return rt_fail(error, RT_NOT_FOUND, "%s: no checkpoint was completed", r->config->directory);
}

// Once one is found, those passed over are set aside; with none, damaged ones stay where they are.
// RT_NOT_FOUND: none was ever completed. RT_DATA: all that were are damaged.
static rt_status find_whole(resume *r, dp_saved *saved, dp_resumed *resumed, rt_error *error)
{
    const char *directory = r->config->directory;
    uint32_t *iterations, count;
    rt_status status = rt_checkpoint_list(directory, &iterations, &count, error);
    if (status)
        return status;
    uint32_t *damaged = rt_alloc(count + 1u, sizeof *damaged), left = count;
    if (damaged)
        status = try_all(r, iterations, damaged, &left, saved, resumed, error);
    else
        status = rt_fail(error, RT_NO_MEMORY, "out of memory");
    const bool found = !status || status == RT_NOT_FOUND; // else the last one is not judged yet
    for (uint32_t i = count; i > left && found; i--)
        rt_checkpoint_set_aside(directory, iterations[i - 1]);
    rt_free(iterations);
    rt_free(damaged);
    return status;
}

static rt_status watch(resume *r, rt_error *error)
{
    struct epoll_event event = {.events = EPOLLIN};
    const int fds[] = {r->config->wake_fd, r->config->stop_fd};
    for (size_t i = 0; i < RT_COUNT_OF(fds); i++) {
        if (fds[i] >= 0 && epoll_ctl(r->wait_fd, EPOLL_CTL_ADD, fds[i], &event) != 0)
            return rt_fail(error, RT_LIMIT, "out of descriptors");
    }
    return RT_OK;
}

static void end(resume *r)
{
    end_copies(r);
    if (r->wait_fd >= 0)
        close(r->wait_fd);
}

static rt_status load_model(resume *r, const dp_saved *model, rt_error *error)
{
    rt_status status = watch(r, error);
    if (status)
        return status;
    status = load_rows(r, model, error);
    if (status)
        return status;
    if (r->damage.status)
        return rt_fail(error, r->damage.status, "%s", r->damage.text);
    return send_dense(r, model, error);
}

rt_status dp_resume_begin_with(const dp_resume_config *config, const dp_saved *model,
                               rt_error *error)
{
    resume r = {.config = config, .begin_ns = rt_now_ns(), .wait_fd = epoll_create1(EPOLL_CLOEXEC)};
    const rt_status status = load_model(&r, model, error);
    end(&r);
    return status;
}

static rt_status load_newest(resume *r, dp_saved *saved, dp_resumed *resumed, rt_error *error)
{
    rt_status status = watch(r, error);
    if (status)
        return status;
    status = find_whole(r, saved, resumed, error);
    if (status)
        return status;
    return go_on(r, saved, resumed, error);
}

rt_status dp_resume_run(const dp_resume_config *config, dp_resumed *resumed, rt_error *error)
{
    resume r = {.config = config, .begin_ns = rt_now_ns(), .wait_fd = epoll_create1(EPOLL_CLOEXEC)};
    dp_saved saved = {0};
    *resumed = (dp_resumed){0};
    const rt_status status = load_newest(&r, &saved, resumed, error);
    dp_saved_fini(&saved);
    end(&r);
    if (status) {
        dp_planner_destroy(r.planner);
        rt_bytes_fini(&resumed->position);
        dp_state_rest_fini(&resumed->beside);
    }
    return status;
}
