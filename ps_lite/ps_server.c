#include "ps_lite/ps_server.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "bandwidth_probe/bw_passive.h"
#include "bandwidth_probe/bw_probe.h"
#include "ps_lite/ps_checkpoint.h"
#include "ps_lite/ps_dense.h"
#include "ps_lite/ps_files.h"
#include "ps_lite/ps_memory.h"
#include "runtime/numbers/rt_stripes.h"
#include "runtime/rt_log.h"
#include "runtime/rt_memory.h"
#include "runtime/transport/rt_guests.h"

#define RECEIVE_MAX 256u // messages of one endpoint before replies are flushed
#define QUEUE_MESSAGES_MAX 4096u
#define LINGER_MS 1000u
#define DISK_IMAGE_BYTES_MAX (UINT64_C(128) << 20)

// When the pushes of a worker came that are not confirmed yet, in order.
typedef struct {
    uint32_t first, count;
    uint32_t stamps[BW_PASSIVE_PUSHES_MAX];
} arrivals;

typedef struct {
    const ps_server_config *config;
    uint32_t place; // among the shards that take part: that of its rows and files
    const rt_transport_ops *ops;
    rt_transport *transport;
    rt_member member; // the connection to the coordinator
    ps_shard *shard;
    ps_checkpoint checkpoint;
    ps_store *store; // rows on disk, or NULL; ps_shard_store's once there is a shard
    bool releases;   // it has changes to take back
    // Of memory while the store is held: what the process had before, and what changes may add.
    uint64_t held_from_bytes, held_bytes_max;
    rt_log_limit held_limit;
    ps_files files;
    int wait_fd; // readable when the files have something to do, or a part of a checkpoint is done
    bw_responder probes;
    arrivals arrived[RT_WORKERS_MAX];
    bool prompt;       // the next message was waited for
    rt_guests guests;  // the listener
    bool busy;         // with a file: rows must not change
    rt_status stopped; // what ended a roll-back of rows
    bool unsent;       // the shard holds messages that the transport did not take
    bool finished;
} server;

// As others know it, whatever its place is.
static uint32_t self_of(const server *s)
{
    return rt_peer(RT_ROLE_PS, s->config->rank);
}

// Credits bound the pushes of a worker; who sends more gets wrong times.
static void note_arrival(server *s, uint32_t peer)
{
    arrivals *list = &s->arrived[rt_peer_rank(peer)];
    const uint32_t stamp = bw_stamp(rt_now_ns(), s->prompt);
    if (list->count < BW_PASSIVE_PUSHES_MAX)
        list->stamps[(list->first + list->count) % BW_PASSIVE_PUSHES_MAX] = stamp;
    list->count++;
}

static uint32_t take_arrival(server *s, uint32_t peer)
{
    arrivals *list = &s->arrived[rt_peer_rank(peer)];
    if (list->count == 0)
        return 0;
    const uint32_t stamp = list->stamps[list->first];
    list->first = (list->first + 1) % BW_PASSIVE_PUSHES_MAX;
    list->count--;
    return stamp;
}

// A message that several workers get has one header: the first to get it sets the time.
static void set_stamp(server *s, uint32_t peer, rt_wire_header *header)
{
    if (header->stamp)
        return;
    if (header->type == RT_MESSAGE_PUSHED)
        header->stamp = take_arrival(s, peer);
    else
        header->stamp = bw_stamp(rt_now_ns(), true);
}

// What a worker that has gone does not get is nobody's loss; why it went, the coordinator finds.
static rt_status send_to_worker(void *context, uint32_t peer, rt_message *message)
{
    server *s = context;
    char name[32];
    set_stamp(s, peer, rt_message_header(message));
    rt_message_header(message)->sender = self_of(s);
    rt_status status = rt_transport_send(s->ops, s->guests.endpoint, peer, message);
    if (status != RT_NOT_FOUND)
        return status;
    rt_debug("%s of iteration %" PRIu64 " dropped: %s is not connected",
             rt_message_type_name(rt_message_header(message)->type),
             rt_message_header(message)->iteration, rt_peer_name(peer, name));
    rt_message_release(message);
    return RT_OK;
}

// Whether files of changes come again and again, which name what has left since.
static bool names_left(const rt_config *config)
{
    const bool comes_again = config->checkpoint.every_iterations ||
                             config->checkpoint.every_s > 0 || config->publish.every_s > 0;
    return config->ps_homes == RT_HOMES_PLANNED && config->checkpoint.full_every > 1 && comes_again;
}

// Where rows are on disk there is little memory, and ps.memory_bytes_max is not about them.
static uint64_t image_bytes_max(const server *s)
{
    const uint64_t share = ps_memory_share(s->config->config);
    if (!s->config->kept)
        return 0;
    return s->store ? rt_min_u64(share, DISK_IMAGE_BYTES_MAX) : share;
}

static rt_status create_shard(server *s, rt_error *error)
{
    const rt_config *config = s->config->config;
    const rt_wire_welcome *welcome = &s->member.welcome;
    s->held_bytes_max = ps_memory_held_max(config, s->config->rank);
    if (ps_store_open(config, &s->store, error))
        return error->status;
    const uint32_t batch = rt_config_batch(config, welcome->worker_count);
    const ps_shard_config shard = {
        .rank = s->place,
        .shard_count = welcome->shard_count,
        .worker_count = welcome->worker_count,
        .dim = config->model.embedding_dim,
        .optimizer = rt_optimizer_in_run(&config->optimizer_rows, welcome->row_rate, batch),
        .seed = config->seed,
        .init_scale = (float)config->model.init_scale,
        .homes = config->ps_homes,
        .names_left = names_left(config),
        .adds_deltas = config->consistency.staleness > 0,
        .row_wire = config->row_wire,
        .memory_bytes_max = config->ps_memory_bytes_max,
        .store = s->store,
        .image_bytes_max = image_bytes_max(s),
        .gradient_bytes_max = ps_memory_share(config),
        .dense_bytes_max = ps_memory_share(config),
        .keeps_dense = rt_stripes_keep(config),
        .dense_optimizer =
            rt_optimizer_in_run(&config->optimizer_dense, welcome->dense_rate, batch),
        .pulls_parked_max = 1u << 22,
        .message_bytes = config->network_message_bytes,
        .queue_messages_max = QUEUE_MESSAGES_MAX,
        .send = send_to_worker,
        .context = s};
    if (ps_shard_create(&shard, &s->shard))
        return rt_fail(error, RT_NO_MEMORY, "out of memory: shard %u", s->config->rank);
    struct epoll_event event = {.events = EPOLLIN};
    rt_status status = ps_files_init(&s->files, &s->member, rt_peer(RT_ROLE_PS, s->place), error);
    if (status)
        return status;
    s->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    if (s->wait_fd < 0 || epoll_ctl(s->wait_fd, EPOLL_CTL_ADD, s->files.wake_fd, &event) != 0)
        return rt_fail(error, RT_LIMIT, "out of descriptors");
    ps_checkpoint_init(&s->checkpoint, s->shard, s->config->schema, s->place,
                       s->member.welcome.shard_count);
    return RT_OK;
}

// ---- Joining and leaving ---------------------------------------------------------------------

static ps_kept *kept_of(const server *s)
{
    if (!s->config->kept)
        return NULL;
    return *s->config->kept;
}

static void drop_kept(const server *s)
{
    ps_kept_destroy(kept_of(s));
    if (s->config->kept)
        *s->config->kept = NULL;
}

static rt_status check_welcome(const server *s, rt_error *error)
{
    const rt_config *config = s->config->config;
    const rt_wire_welcome *welcome = &s->member.welcome;
    const bool may_shrink = config->on_worker_loss == RT_LOSS_SHRINK;
    if (config->box_count > 0)
        return RT_OK; // they come and go, some that this configuration does not have
    if ((welcome->worker_count == config->worker_count ||
         (may_shrink && welcome->worker_count < config->worker_count)) &&
        welcome->shard_count == config->ps_shard_count)
        return RT_OK;
    return rt_fail(error, RT_CONFIG,
                   "the coordinator runs %u workers and %u shards, this configuration has %u and "
                   "%u",
                   welcome->worker_count, welcome->shard_count, config->worker_count,
                   config->ps_shard_count);
}

static rt_status join(server *s, rt_error *error)
{
    char who[32], reachable[RT_NAME_MAX];
    const rt_config *config = s->config->config;
    const uint32_t self = self_of(s), rank = s->config->rank;
    const char *given = rank < config->network_ps_count ? config->network_ps[rank] : "";
    snprintf(who, sizeof who, "shard %" PRIu32, rank);
    const rt_door door = {.config = config,
                          .who = who,
                          .given = given,
                          .key = "network.ps",
                          .coordinator = s->config->coordinator,
                          .notify = s->config->notify};
    s->guests = (rt_guests){.ops = s->ops, .self = self, .identity = s->config->identity};
    rt_status status = rt_transport_open(s->ops, s->config->keys, &s->transport, error);
    if (status)
        return status;
    status = rt_guests_listen(&s->guests, s->transport, &door, reachable, error);
    if (status)
        return status;
    const rt_member_config member = {
        .ops = s->ops,
        .transport = s->transport,
        .self = self,
        .coordinator = s->config->coordinator,
        .standby = s->config->standby,
        .leader = s->config->leader,
        .address = reachable,
        .keys = s->config->keys,
        .identity = s->config->identity,
        .box = rt_config_hash_box(config, rt_config_box_of_shard(config, rank)),
        .holds = kept_of(s) ? ps_kept_iteration(kept_of(s)) : 0,
        .timeout_start_s = config->timeout_start_s,
        .timeout_peer_s = config->timeout_peer_s,
        .notify = s->config->notify};
    rt_info("shard %u of %u listens at %s", s->config->rank, config->ps_shard_count, reachable);
    status = rt_member_join(&s->member, &member, error);
    if (status)
        return status;
    status = check_welcome(s, error);
    if (status)
        return status;
    if (s->config->was_welcome)
        *s->config->was_welcome = true;
    s->place = rt_member_rank(&s->member);
    s->guests.worker_count = s->member.welcome.worker_count;
    status = create_shard(s, error);
    if (status)
        return status;
    ps_shard_begin_epoch(s->shard, s->member.welcome.epoch);
    return RT_OK;
}

// Whether the run ended elsewhere, and goes on with the next start.
static bool goes_on(rt_status status, const rt_error *error)
{
    return status == RT_PEER || status == RT_NOT_FOUND ||
           (status == RT_STOPPED && strcmp(error->text, RT_RUN_COMPLETE) &&
            strcmp(error->text, RT_BOX_DRAINED));
}

// Rows that have not been asked for yet are kept once more.
static void keep_rows(server *s)
{
    if (s->shard && s->config->kept && !kept_of(s))
        *s->config->kept = ps_shard_give(s->shard);
}

static void leave(server *s, rt_status status, const rt_error *error)
{
    const bool was_told = status == RT_OK || status == RT_STOPPED || status == RT_REFUSED;
    uint32_t linger_ms = LINGER_MS;
    if (goes_on(status, error))
        keep_rows(s);
    else
        drop_kept(s);
    if (kept_of(s) && s->member.endpoint) { // nobody is there to hear more
        s->ops->end(s->member.endpoint, 0);
        s->member.endpoint = NULL;
        linger_ms = 0;
    }
    rt_member_leave(&s->member, was_told ? NULL : error);
    if (s->guests.endpoint)
        s->ops->end(s->guests.endpoint, linger_ms);
    if (s->transport)
        s->ops->close(s->transport);
    if (s->shard)
        ps_checkpoint_fini(&s->checkpoint);
    ps_files_fini(&s->files);
    if (s->wait_fd >= 0)
        close(s->wait_fd);
    ps_store *store = s->store;
    if (s->shard)
        store = ps_shard_store(s->shard);
    ps_shard_destroy(s->shard);
    ps_store_destroy(store);
}

// ---- Messages --------------------------------------------------------------------------------

static rt_status say_finished(server *s, rt_error *error)
{
    rt_message message = {0};
    if (rt_control_create(&message, RT_MESSAGE_FINISHED, rt_peer(RT_ROLE_PS, s->place)) != RT_OK)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: a message");
    return rt_member_send(&s->member, &message, error);
}

static rt_status turn(server *s, int wake_fd, uint32_t wait_ms, rt_error *error);

// A large shard, or a slow disk, takes longer than the coordinator accepts silence, or probes that
// nobody answers; and the run may end meanwhile.
static rt_status meanwhile(void *context, int wait_fd, rt_error *error)
{
    server *s = context;
    uint32_t wait_ms = 0;
    if (wait_fd >= 0)
        wait_ms = rt_member_wait_ms(&s->member);
    s->busy = true;
    const rt_status status = turn(s, wait_fd, wait_ms, error);
    s->busy = false;
    return status;
}

// Why rows are not rolled back to the end is told apart from what ends the run.
static rt_status adopting(void *context, int wait_fd, rt_error *error)
{
    server *s = context;
    s->stopped = meanwhile(context, wait_fd, error);
    return s->stopped;
}

// The rows go to the coordinator's box: only there is a model whole. Of a checkpoint it is the file
// that was written last.
static rt_status save(server *s, const rt_message *message, rt_error *error)
{
    char path[RT_FOLDER_MAX + 64];
    const uint64_t iteration = rt_message_header(message)->iteration;
    const ps_checkpoint *c = &s->checkpoint;
    if (iteration && iteration != c->cut.iteration)
        return rt_fail(error, RT_WIRE,
                       "coordinator: SAVE of iteration %" PRIu64
                       ", the last checkpoint was that of %u",
                       iteration, c->cut.iteration);
    if (iteration == 0) {
        const rt_sink sink = ps_files_model(&s->files, meanwhile, s);
        return ps_shard_save(s->shard, &sink, s->config->schema, NULL, meanwhile, s, NULL, error);
    }
    const rt_status status =
        ps_model_file_path(c->folder, c->rank, c->shard_count, path, sizeof path, error);
    if (status)
        return status;
    return ps_files_copy(&s->files, path, iteration, c->rank, error);
}

// The end of the child that writes a checkpoint ends a wait too. A descriptor that is closed leaves
// by itself.
static void watch_child(server *s)
{
    struct epoll_event event = {.events = EPOLLIN};
    const int fd = ps_checkpoint_fd(&s->checkpoint);
    if (fd >= 0 && epoll_ctl(s->wait_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        // it is watched already; without it waits end all the same, later
    }
}

static rt_status cut(server *s, const rt_message *message, rt_error *error)
{
    rt_message answer = {0};
    s->held_from_bytes = rt_memory_private();
    rt_status status = ps_checkpoint_begin(&s->checkpoint, message, error);
    if (status)
        return status;
    if (rt_message_create(&answer, RT_MESSAGE_CUT, rt_peer(RT_ROLE_PS, s->place),
                          rt_message_header(message)->iteration, 0, 0))
        return rt_fail(error, RT_NO_MEMORY, "out of memory: a message");
    watch_child(s);
    return rt_member_send(&s->member, &answer, error);
}

static rt_status tell_written(server *s, rt_error *error)
{
    rt_message answer = {0};
    rt_status status = ps_checkpoint_poll(&s->checkpoint, &answer);
    if (status == RT_AGAIN)
        return RT_OK;
    if (status)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: a message");
    return rt_member_send(&s->member, &answer, error);
}

// In place of files, the rows that outlived the last run.
static rt_status adopt(server *s, uint32_t iteration, uint64_t lineage, rt_error *error)
{
    rt_message answer = {0};
    rt_error why = {0};
    rt_status status = rt_fail(&why, RT_NOT_FOUND, "no rows are kept in memory");
    s->stopped = RT_OK;
    if (kept_of(s))
        status = ps_shard_adopt(s->shard, s->config->kept, iteration, lineage, adopting, s, &why);
    if (s->stopped) {
        *error = why;
        return s->stopped;
    }
    if (status)
        rt_info("the rows of the checkpoint of iteration %" PRIu32 " come from files: %s",
                iteration, why.text);
    else
        rt_info("the rows in memory are those of the checkpoint of iteration %" PRIu32 " again",
                iteration);
    const rt_wire_written loaded = {.status = status ? RT_NOT_FOUND : RT_OK};
    if (rt_control_create_struct(&answer, RT_MESSAGE_LOADED, rt_peer(RT_ROLE_PS, s->place),
                                 iteration, &loaded, sizeof loaded, why.text))
        return rt_fail(error, RT_NO_MEMORY, "out of memory: a message");
    return rt_member_send(&s->member, &answer, error);
}

// The first file of a checkpoint: whatever an earlier one that turned out to be damaged left is
// dropped.
static rt_status load(server *s, const rt_message *message, rt_error *error)
{
    rt_message answer = {0};
    rt_wire_load head;
    const bool is_whole = rt_control_has(message, sizeof head);
    if (is_whole)
        memcpy(&head, rt_message_payload(message), sizeof head);
    if (is_whole && head.flags & RT_WIRE_LOAD_KEPT)
        return adopt(s, (uint32_t)rt_message_header(message)->iteration, head.files[s->place].hash,
                     error);
    drop_kept(s);
    if (is_whole && head.shard_count <= RT_SHARDS_MAX && memchr(head.folder, 0, sizeof head.folder))
        ps_files_note_load(&s->files, rt_message_header(message)->iteration, &head);
    if (is_whole && head.flags & RT_WIRE_LOAD_FIRST && ps_shard_clear(s->shard))
        return rt_fail(error, RT_NO_MEMORY, "out of memory: shard %u", s->config->rank);
    const rt_status status = ps_checkpoint_load(s->shard, message, s->config->schema, s->place,
                                                meanwhile, s, &answer, error);
    if (status)
        return status;
    return rt_member_send(&s->member, &answer, error);
}

static rt_status tell_keys(server *s, const rt_message *message, rt_error *error)
{
    rt_message answer = {0};
    const rt_status status = ps_checkpoint_keys(s->shard, message, s->place, &answer, error);
    if (status)
        return status;
    return rt_member_send(&s->member, &answer, error);
}

static rt_status expire(server *s, const rt_message *message, rt_error *error)
{
    rt_message answer = {0};
    rt_wire_expire order;
    rt_reader reader = rt_message_reader(message);
    if (!rt_reader_get(&reader, &order, 1, sizeof order) || reader.left % sizeof(uint64_t))
        return rt_fail(error, RT_WIRE, "coordinator: an EXPIRE of %zu bytes, expected %zu and keys",
                       message->size - sizeof(rt_wire_header), sizeof order);
    const rt_status status =
        ps_shard_expire(s->shard, order.floor, meanwhile, s, &order.rows, error);
    if (status)
        return status;
    while (reader.left)
        order.rows += ps_shard_forget(s->shard, rt_reader_u64(&reader));
    if (rt_control_create_struct(&answer, RT_MESSAGE_EXPIRE, rt_peer(RT_ROLE_PS, s->place),
                                 rt_message_header(message)->iteration, &order, sizeof order, NULL))
        return rt_fail(error, RT_NO_MEMORY, "out of memory: a message");
    return rt_member_send(&s->member, &answer, error);
}

static rt_status take_from_coordinator(server *s, const rt_message *message, rt_error *error)
{
    const uint32_t type = rt_message_header(message)->type;
    if (type == RT_MESSAGE_TAKEN || (type == RT_MESSAGE_PIECE && !s->busy))
        return ps_files_take(&s->files, message, error);
    if (s->busy)
        return rt_fail(error, RT_WIRE, "coordinator: %s while rows are read or written",
                       rt_message_type_name(rt_message_header(message)->type));
    if (type != RT_MESSAGE_LOAD && type != RT_MESSAGE_FINISH)
        drop_kept(s); // the run has rows without them
    switch (type) {
    case RT_MESSAGE_SAVE:
        return save(s, message, error);
    case RT_MESSAGE_CUT:
        return cut(s, message, error);
    case RT_MESSAGE_EXPIRE:
        return expire(s, message, error);
    case RT_MESSAGE_LOAD:
        return load(s, message, error);
    case RT_MESSAGE_KEYS:
        return tell_keys(s, message, error);
    case RT_MESSAGE_FINISH:
        s->finished = true;
        return RT_OK;
    default:
        return rt_fail(error, RT_WIRE, "coordinator: a PS shard takes no %s",
                       rt_message_type_name(rt_message_header(message)->type));
    }
}

static rt_status drain_coordinator(server *s, rt_error *error)
{
    for (uint32_t i = 0; i < RECEIVE_MAX && !s->finished; i++) {
        rt_message message = {0};
        rt_status status = rt_member_receive(&s->member, &message, error);
        if (status == RT_AGAIN)
            return RT_OK;
        if (status)
            return status;
        status = take_from_coordinator(s, &message, error);
        rt_message_release(&message);
        if (status)
            return status;
    }
    return RT_OK;
}

static bw_listener listener(const server *s)
{
    return (bw_listener){s->ops, s->guests.endpoint, self_of(s)};
}

static rt_status take_from_worker(server *s, uint32_t peer, rt_message *message, rt_error *error)
{
    rt_status status = RT_OK;
    char name[32];
    const uint32_t type = rt_message_header(message)->type;
    switch (type) {
    case RT_MESSAGE_HEARTBEAT:
        break;
    case RT_MESSAGE_HELLO:
        status = rt_guests_take_hello(&s->guests, peer, message, error);
        break;
    case RT_MESSAGE_PROBE: {
        const bw_listener here = listener(s);
        status = bw_responder_take(&s->probes, &here, peer, message, error);
        break;
    }
    default:
        if (!rt_guests_know(&s->guests, peer)) {
            status = rt_fail(error, RT_WIRE, "%s sent %s before a HELLO", rt_peer_name(peer, name),
                             rt_message_type_name(type));
            break;
        }
        if (s->busy && !ps_dense_takes(type)) {
            status = rt_fail(error, RT_WIRE, "%s: %s while rows are read or written",
                             rt_peer_name(peer, name), rt_message_type_name(type));
            break;
        }
        if (!ps_dense_takes(type))
            drop_kept(s); // the run has begun without them
        if (rt_message_is_push(type))
            note_arrival(s, peer);
        return ps_shard_receive(s->shard, peer, message, error);
    }
    rt_message_release(message);
    return status;
}

// Whether rows that changed since a copy of the process began to write them have as many pages as
// they may: then workers are not heard until it has ended, and the pages are back in their file.
static bool is_full(server *s)
{
    uint64_t count;
    if (!s->store || !ps_store_is_held(s->store) ||
        rt_memory_private() < s->held_from_bytes + s->held_bytes_max)
        return false;
    if (rt_log_due(&s->held_limit, &count))
        rt_info("rows that change while a checkpoint is written have %" PRIu64
                " MiB of memory: no more are taken until the disk of ps.folder has it",
                s->held_bytes_max >> 20);
    return true;
}

static rt_status drain_workers(server *s, rt_error *error)
{
    for (uint32_t i = 0; i < RECEIVE_MAX && !is_full(s); i++) {
        rt_message message = {0};
        uint32_t peer = 0;
        char name[32];
        rt_error why = {0};
        rt_status status = rt_transport_receive(s->ops, s->guests.endpoint, &peer, &message, &why);
        s->prompt &= i == 0;
        if (status == RT_AGAIN)
            return RT_OK;
        if (status == RT_NOT_FOUND)
            rt_debug("%s has disconnected", rt_peer_name(peer, name));
        else if (!status)
            status = take_from_worker(s, peer, &message, &why);
        if ((status == RT_WIRE || status == RT_CONFIG) && !rt_guests_know(&s->guests, peer))
            rt_guests_log_stranger(&s->guests, why.text);
        else if (status != RT_OK && status != RT_NOT_FOUND)
            return rt_fail(error, status, "%s", why.text);
    }
    return RT_OK;
}

// ---- The loop --------------------------------------------------------------------------------

// After a checkpoint, a part at a time.
static rt_status release_rows(server *s, rt_error *error)
{
    if (!ps_shard_store(s->shard) || ps_checkpoint_fd(&s->checkpoint) >= 0)
        return RT_OK;
    const rt_status status = ps_shard_release(s->shard, error);
    s->releases = status == RT_AGAIN;
    if (s->releases)
        return RT_OK;
    return status;
}

static rt_status tell_vitals(server *s, rt_error *error)
{
    ps_shard_statistics now;
    rt_wire_vitals vitals = {.row_bytes_max = s->config->config->ps_memory_bytes_max};
    if (!rt_member_vitals_due(&s->member))
        return RT_OK;
    ps_shard_get_statistics(s->shard, &now);
    vitals.rows = now.rows;
    vitals.row_bytes = now.row_bytes;
    return rt_member_tell_vitals(&s->member, &vitals, now.image_bytes, error);
}

// ready: workers, and the coordinator, have sent something. The order of the two sockets does not
// matter: a worker has finished when all its push credits are back, so at a SAVE the shard has
// every row.
static rt_status drain(server *s, const bool ready[2], rt_error *error)
{
    rt_status status = RT_OK;
    if (ready[0])
        status = drain_workers(s, error);
    if (status)
        return status;
    if (ready[1])
        return drain_coordinator(s, error);
    return rt_member_check(&s->member, error);
}

// What is done beside the messages, a part at a time.
static rt_status step(server *s, rt_error *error)
{
    rt_status status = tell_written(s, error);
    if (status)
        return status;
    status = ps_files_step(&s->files, error);
    if (status)
        return status;
    return release_rows(s, error);
}

// Waits for messages or wake_fd, and takes what came.
static rt_status turn(server *s, int wake_fd, uint32_t wait_ms, rt_error *error)
{
    rt_endpoint *const endpoints[2] = {s->guests.endpoint, s->member.endpoint};
    bool ready[2] = {false, false};
    if ((s->unsent || s->releases) && wait_ms)
        wait_ms = 1;                   // the transport does not tell when it has room again
    const uint32_t first = is_full(s); // without the workers
    const uint64_t begin_ns = rt_now_ns();
    rt_status status = s->ops->wait(endpoints + first, 2 - first, wake_fd, wait_ms, ready + first);
    s->prompt = rt_now_ns() - begin_ns >= BW_PROMPT_NS;
    if (status)
        return rt_fail(error, status, "waiting for messages: %s", rt_status_text(status));
    status = drain(s, ready, error);
    if (status)
        return status;
    status = step(s, error);
    if (status)
        return status;
    status = ps_shard_flush(s->shard, error);
    s->unsent = status == RT_AGAIN;
    if (status != RT_OK && status != RT_AGAIN)
        return status;
    const bw_listener here = listener(s);
    bw_responder_tick(&s->probes, &here);
    status = tell_vitals(s, error);
    if (status)
        return status;
    return rt_member_beat(&s->member, error);
}

static rt_status run(server *s, rt_error *error)
{
    rt_status status = join(s, error);
    if (status)
        return status;
    while (!s->finished) {
        status = turn(s, s->wait_fd, rt_member_wait_ms(&s->member), error);
        if (status)
            return status;
    }
    return say_finished(s, error);
}

rt_status ps_server_run(const ps_server_config *config, rt_error *error)
{
    rt_error local = {RT_OK, ""};
    server *s = rt_alloc(1, sizeof *s);
    if (!error)
        error = &local; // the coordinator is told why, even if the caller does not ask
    if (!s)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: shard %u", config->rank);
    s->config = config;
    s->ops = config->transport;
    s->wait_fd = -1;
    const rt_status status = run(s, error);
    if (config->is_anew)
        *config->is_anew = status == RT_STOPPED && s->member.is_anew;
    leave(s, status, error);
    rt_free(s);
    return status;
}
