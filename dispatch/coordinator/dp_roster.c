#include "dispatch/coordinator/dp_roster.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_address.h"
#include "runtime/live/rt_standby.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"
#include "runtime/transport/rt_member.h"

#define SELF rt_peer(RT_ROLE_COORDINATOR, 0)
#define STOP_LINGER_MS 1000u
#define NS_PER_S 1e9
#define RETRY_MS 2                        // while a queue is full
#define STRANGERS_MAX 64                  // of their messages, per receive
#define LAST_WORDS_MAX 4096               // messages that are looked at when a run ends
#define LAST_WORDS_NS UINT64_C(200000000) // for those that are still on their way

struct dp_roster {
    dp_roster_config config;
    rt_endpoint *endpoint;
    char address[RT_NAME_MAX];
    dp_membership members;
    uint32_t lost; // rank of a worker, see dp_roster_lost
    uint64_t beat_ns;
    rt_error replaced; // by whom a member has served meanwhile
    rt_log_limit strangers, refused;
};

// A worker or a shard, by a peer of any kind; NULL: it is none of the configuration.
static dp_member *find_member(dp_roster *roster, uint32_t peer)
{
    return dp_membership_find(&roster->members, peer);
}

rt_status dp_roster_create(const dp_roster_config *config, dp_roster **roster_p, rt_error *error)
{
    const rt_config *c = config->config;
    dp_roster *roster = rt_alloc(1, sizeof *roster);
    char address[RT_PATH_MAX];
    if (!roster)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    roster->config = *config;
    roster->lost = UINT32_MAX;
    dp_membership_init(&roster->members, c->worker_count, c->ps_shard_count);
    rt_status status = rt_address_listen(c->network_bind, c->network_coordinator,
                                         c->network_interface, 0, address, sizeof address, error);
    if (!status)
        status = config->ops->listen(config->transport, SELF, address, roster->address,
                                     &roster->endpoint, error);
    if (status) {
        rt_free(roster);
        return status;
    }
    *roster_p = roster;
    return RT_OK;
}

void dp_roster_destroy(dp_roster *roster)
{
    if (!roster)
        return;
    roster->config.ops->end(roster->endpoint, STOP_LINGER_MS);
    rt_free(roster);
}

const char *dp_roster_address(const dp_roster *roster)
{
    return roster->address;
}

dp_membership *dp_roster_members(dp_roster *roster)
{
    return &roster->members;
}

bool dp_roster_is_replaced(const dp_roster *roster)
{
    return roster->replaced.status != RT_OK;
}

uint32_t dp_roster_lost(const dp_roster *roster)
{
    return roster->lost;
}

// It is connected, and part of the run: it can end it.
static bool counts(const dp_roster *roster, const dp_member *m)
{
    return dp_member_is_connected(m) && !dp_membership_waits(&roster->members, m);
}

static void note_loss(dp_roster *roster, uint32_t peer)
{
    if (rt_peer_role(peer) == RT_ROLE_WORKER && roster->members.has_begun &&
        roster->lost == UINT32_MAX)
        roster->lost = rt_peer_rank(peer);
}

// Whether the run goes on without it. What it may still say is a stranger's.
static bool spare(const dp_roster *roster, const dp_member *m, const char *why)
{
    const dp_roster_config *own = &roster->config;
    return roster->members.has_begun && rt_peer_role(m->peer) == RT_ROLE_WORKER && own->spares &&
           own->spares(own->context, dp_membership_place(&roster->members, m), why);
}

// A worker that waited is gone: the run does without it anyway.
static void forget(dp_roster *roster, dp_member *m, const char *why)
{
    char name[32];
    dp_membership_went(&roster->members, m);
    rt_info("%s, which waited to be taken %s, is gone again: %s", rt_peer_name(m->peer, name),
            m->invitation == DP_INVITED_NOT ? "in" : "back", why);
}

static rt_status member_failed(const rt_message *message, const char *name, rt_error *error)
{
    char reason[384];
    if (rt_control_text(message, reason, sizeof reason))
        snprintf(reason, sizeof reason, "it gave no reason");
    if (rt_message_header(message)->iteration == RT_REASON_LASTS)
        return rt_fail(error, RT_REFUSED, "%s failed: %s", name, reason);
    return rt_fail(error, RT_PEER, "%s failed: %s", name, reason);
}

// A member whose last words say why it left: what members have said before counts, and may come
// behind the news that a connection has ended. RT_OK: none has said anything.
static rt_status hear_last_words(dp_roster *roster, rt_error *error)
{
    const uint64_t limit_ns = rt_now_ns() + LAST_WORDS_NS;
    for (uint32_t i = 0; i < LAST_WORDS_MAX && rt_now_ns() < limit_ns; i++) {
        uint32_t from = 0;
        char name[32];
        rt_message message = {0};
        rt_status status =
            rt_transport_receive(roster->config.ops, roster->endpoint, &from, &message, NULL);
        if (status == RT_AGAIN)
            (void)poll(NULL, 0, RETRY_MS);
        else if (status && status != RT_NOT_FOUND)
            return RT_OK;
        const dp_member *m = find_member(roster, from);
        const bool says_why = !status && m && counts(roster, m) &&
                              rt_message_header(&message)->type == RT_MESSAGE_FAILED;
        status = RT_OK;
        if (says_why)
            status = member_failed(&message, rt_peer_name(from, name), error);
        rt_message_release(&message);
        if (status)
            return status;
    }
    return RT_OK;
}

// Ends the run, because sending to the peer failed with `reason`, unless it can be spared. error:
// NULL where the run has ended, or it is somebody else's turn.
static rt_status gone(dp_roster *roster, uint32_t peer, rt_status reason, rt_error *error)
{
    char name[32];
    rt_error why = {0};
    rt_peer_name(peer, name);
    // A connection that ended looks full as long as what came over it was not read.
    if (reason == RT_AGAIN)
        rt_fail(&why, RT_PEER, "%s has not read for %.1f s (timeouts.peer_s): dropped", name,
                roster->config.config->timeout_peer_s);
    else if (reason == RT_NOT_FOUND)
        rt_fail(&why, RT_PEER, "%s is gone: its connection has ended", name);
    else
        rt_fail(&why, RT_PEER, "cannot send to %s: %s", name, rt_status_text(reason));
    if (error && spare(roster, find_member(roster, peer), why.text))
        return RT_OK;
    rt_status status = RT_OK;
    if (error)
        status = hear_last_words(roster, error);
    if (status)
        return status;
    if (reason != RT_AGAIN)
        note_loss(roster, peer);
    return rt_fail(error, RT_PEER, "%s", why.text);
}

// Heartbeats to all who have room for one.
static rt_status beat(dp_roster *roster, rt_error *error)
{
    uint64_t now = rt_now_ns();
    rt_notify_alive(roster->config.notify);
    if ((double)(now - roster->beat_ns) / NS_PER_S < roster->config.config->timeout_peer_s / 5)
        return RT_OK;
    roster->beat_ns = now;
    for (uint32_t i = 0; i < dp_membership_count(&roster->members); i++) {
        const uint32_t peer = dp_membership_at(&roster->members, i)->peer;
        dp_member *m = find_member(roster, peer);
        rt_message message;
        if (!dp_member_is_connected(m))
            continue;
        if (rt_control_create(&message, RT_MESSAGE_HEARTBEAT, SELF))
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
        rt_status status = rt_transport_send(roster->config.ops, roster->endpoint, peer, &message);
        rt_message_release(&message);
        if (!status || status == RT_AGAIN) // a full queue says as much
            continue;
        if (dp_membership_waits(&roster->members, m))
            forget(roster, m, rt_status_text(status));
        else if ((status = gone(roster, peer, status, error)))
            return status;
    }
    return RT_OK;
}

static rt_status send_to(dp_roster *roster, uint32_t peer, rt_message *message, rt_error *error)
{
    const double limit_s = roster->config.config->timeout_peer_s;
    const uint64_t limit_ns = rt_now_ns() + (uint64_t)(limit_s * NS_PER_S);
    rt_status status = rt_transport_send(roster->config.ops, roster->endpoint, peer, message);
    while (status == RT_AGAIN && rt_now_ns() < limit_ns) {
        (void)poll(NULL, 0, RETRY_MS);
        (void)beat(roster, NULL); // who is gone is found when its own turn comes
        status = rt_transport_send(roster->config.ops, roster->endpoint, peer, message);
    }
    rt_message_release(message);
    if (!status)
        return RT_OK;
    return gone(roster, peer, status, error);
}

rt_status dp_roster_send(dp_roster *roster, uint32_t peer, rt_message *message, rt_error *error)
{
    const dp_member *to = dp_membership_by_place(&roster->members, peer);
    if (dp_member_takes_part(to))
        return send_to(roster, to->peer, message, error);
    rt_message_release(message);
    return RT_OK;
}

void dp_roster_stop(dp_roster *roster, rt_status status, const char *text)
{
    for (uint32_t i = 0; i < dp_membership_count(&roster->members); i++) {
        const dp_member *m = dp_membership_at(&roster->members, i);
        const bool leaves = m->state == DP_MEMBER_DRAINING;
        const char *why = leaves ? RT_BOX_DRAINED : text;
        rt_message message;
        if (!dp_member_is_connected(m) ||
            rt_control_create_end(&message, RT_MESSAGE_STOP, SELF, status, why))
            continue;
        if (leaves)
            rt_message_header(&message)->iteration = RT_REASON_DRAINED;
        else if (status == RT_AGAIN)
            rt_message_header(&message)->iteration = RT_REASON_ANEW;
        (void)send_to(roster, m->peer, &message, NULL);
    }
}

bool dp_roster_may_ask(dp_roster *roster, uint32_t visitor)
{
    const dp_roster_config *own = &roster->config;
    return rt_transport_may_ask(own->ops, roster->endpoint, own->keys, visitor);
}

void dp_roster_answer(dp_roster *roster, uint32_t visitor, rt_status status, const char *text)
{
    rt_message message;
    if (rt_control_create_end(&message, RT_MESSAGE_CONTROLLED, SELF, status, text))
        return;
    (void)rt_transport_send(roster->config.ops, roster->endpoint, visitor, &message);
    rt_message_release(&message);
}

// ---- joining ---------------------------------------------------------------------------------

static bool is_zero(const uint8_t *bytes, size_t size)
{
    return *bytes == 0 && memcmp(bytes, bytes + 1, size - 1) == 0;
}

static uint32_t box_of(const rt_config *config, uint32_t peer)
{
    if (rt_peer_role(peer) == RT_ROLE_PS)
        return rt_config_box_of_shard(config, rt_peer_rank(peer));
    return rt_config_box_of_worker(config, rt_peer_rank(peer));
}

// Of a member that listens: whoever connects to it needs its key.
static rt_status check_key(const dp_roster *roster, const rt_wire_hello *hello, const char *name,
                           rt_error *error)
{
    const dp_roster_config *own = &roster->config;
    const rt_keys *keys = own->keys;
    if (!keys || !keys->is_set || rt_keys_find(keys, hello->key))
        return RT_OK;
    if (own->added && dp_added_find_key(own->added, hello->key))
        return RT_OK;
    return rt_fail(error, RT_CONFIG, "%s has %s, which security.allow does not have", name,
                   is_zero(hello->key, sizeof hello->key) ? "no key" : "a key");
}

// What a HELLO says of a member against what the run knows of it.
static rt_status check_hello(const dp_roster *roster, const rt_wire_hello *hello,
                             const dp_member *found, const char *name, rt_error *error)
{
    const rt_config *config = roster->config.config;
    if (!found)
        return rt_fail(error, RT_CONFIG,
                       "%s joined, but the config has %" PRIu32 " workers and %" PRIu32
                       " PS shards",
                       name, config->worker_count, config->ps_shard_count);
    if (counts(roster, found))
        return rt_fail(error, RT_PEER,
                       "%s has already joined: it was started twice, or was lost only a moment ago",
                       name);
    const rt_status status = rt_control_agree(hello, &roster->config.identity, name, error);
    if (status)
        return status;
    if (hello->role != (uint32_t)rt_peer_role(found->peer) ||
        hello->rank != rt_peer_rank(found->peer))
        return rt_fail(error, RT_WIRE, "%s says that it is another one", name);
    const bool listens = hello->role == RT_ROLE_PS || rt_dispatch_is_mutual(&config->dispatch);
    if (listens && !hello->address[0])
        return rt_fail(error, RT_WIRE, "%s does not say where it listens", name);
    if (hello->box != rt_config_hash_box(config, box_of(config, found->peer)))
        return rt_fail(
            error, RT_CONFIG,
            "%s has a different entry for its box in boxes: use the file that `lanyard add` wrote "
            "for it",
            name);
    if (!listens)
        return RT_OK;
    return check_key(roster, hello, name, error);
}

// Somebody who is no member. Nothing ends because of it.
static void log_stranger(dp_roster *roster, const char *what)
{
    uint64_t count;
    if (rt_log_due(&roster->strangers, &count))
        rt_warn("%s: refused %" PRIu64 " messages of strangers; the last: %s", roster->address,
                count, what);
}

static void send_away(dp_roster *roster, uint32_t peer, rt_status status, bool is_taken,
                      const char *text)
{
    rt_message message;
    if (rt_control_create_end(&message, RT_MESSAGE_STOP, SELF, status, text))
        return;
    if (is_taken)
        rt_message_header(&message)->iteration = RT_REASON_TAKEN;
    (void)rt_transport_send(roster->config.ops, roster->endpoint, peer, &message);
    rt_message_release(&message);
}

// A visitor learns whether a member like it would be let in, and is gone.
static void answer_visitor(dp_roster *roster, uint32_t peer, const rt_message *message)
{
    char name[32];
    rt_wire_hello hello;
    rt_error why = {0};
    rt_status status = rt_control_hello(message, peer, SELF, &hello, &why);
    if (!status)
        status = rt_control_agree(&hello, &roster->config.identity, rt_peer_name(peer, name), &why);
    if (!status)
        (void)rt_fail(&why, RT_STOPPED, RT_VISITOR_FITS "%s", rt_build());
    send_away(roster, peer, why.status, false, why.text);
}

// A coordinator whose standby this one was.
static void answer_replaced(dp_roster *roster, uint32_t peer, const rt_message *question)
{
    rt_message answer;
    log_stranger(roster, "a coordinator that was replaced came back: it is told so");
    if (rt_standby_refuse(question, SELF, &answer))
        return;
    (void)rt_transport_send(roster->config.ops, roster->endpoint, peer, &answer);
    rt_message_release(&answer);
}

// The id of a run is known to those alone who have served it.
static rt_status check_epoch(dp_roster *roster, const rt_wire_hello *hello, const char *name,
                             rt_error *error)
{
    const dp_roster_config *own = &roster->config;
    if (!own->run || hello->run != own->run || hello->epoch <= own->epoch)
        return RT_OK;
    (void)rt_fail(&roster->replaced, RT_REFUSED,
                  "this coordinator was replaced: %s has served epoch %" PRIu32
                  " of this run, which another one leads; this is epoch %" PRIu32,
                  name, hello->epoch, own->epoch);
    return rt_fail(error, RT_PEER, "%s", roster->replaced.text);
}

// Keys of boxes that were added, where it does not have them. *told: they are on their way, and it
// says HELLO again when it has taken them.
static rt_status tell_keys(dp_roster *roster, uint32_t peer, uint64_t has, bool *told,
                           rt_error *error)
{
    rt_wire_allowed all[RT_SITE_BOXES_MAX];
    const dp_roster_config *own = &roster->config;
    uint32_t count = 0;
    if (own->added && own->keys && own->keys->is_set)
        count = dp_added_list(own->added, all);
    const size_t size = count * sizeof *all;
    rt_message message;
    *told = count > 0 && has != rt_hash_bytes(all, size);
    if (!*told)
        return RT_OK;
    if (rt_message_create(&message, RT_MESSAGE_ALLOW, SELF, 0, count, size))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    memcpy(rt_message_payload(&message), all, size);
    rt_status status = rt_transport_send(own->ops, roster->endpoint, peer, &message);
    rt_message_release(&message);
    if (status)
        return rt_fail(error, status, "cannot send it keys: %s", rt_status_text(status));
    return RT_OK;
}

static rt_status join(dp_roster *roster, uint32_t peer, const rt_message *message, rt_error *error)
{
    char name[32];
    rt_wire_hello hello;
    dp_member *found = find_member(roster, peer);
    rt_status status = rt_control_hello(message, peer, SELF, &hello, error);
    if (!status)
        status = check_hello(roster, &hello, found, rt_peer_name(peer, name), error);
    if (!status)
        status = check_epoch(roster, &hello, name, error);
    bool told = false;
    if (!status)
        status = tell_keys(roster, peer, hello.allowed, &told, error);
    if (status)
        send_away(roster, peer, status, status == RT_PEER && counts(roster, found), error->text);
    if (status || told)
        return status;
    dp_membership_hello(&roster->members, found);
    found->heard_ns = rt_now_ns();
    memcpy(found->address, hello.address, sizeof found->address);
    memcpy(found->key, hello.key, sizeof found->key);
    found->has_rows = rt_message_header(message)->iteration != 0;
    if (found->invitation == DP_INVITED_NOT)
        rt_info("%s is there; its box takes no part in this run: `lanyard add` takes it in", name);
    else if (dp_membership_waits(&roster->members, found))
        rt_info("%s is there again: it waits to be taken back", name);
    return RT_OK;
}

static rt_status say_who_is_missing(const dp_roster *roster, rt_error *error)
{
    const dp_membership *all = &roster->members;
    char missing[256] = "";
    dp_membership_names(RT_ROLE_WORKER,
                        dp_membership_absent(all, RT_ROLE_WORKER, all->worker_places), missing,
                        sizeof missing);
    dp_membership_names(RT_ROLE_PS, dp_membership_absent(all, RT_ROLE_PS, all->shard_places),
                        missing, sizeof missing);
    return rt_fail(error, RT_TIMEOUT, "%s did not join within %g s (timeouts.start_s)", missing,
                   roster->config.config->timeout_start_s);
}

static bool readable(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return fd >= 0 && poll(&one, 1, 0) == 1;
}

static void begin(dp_roster *roster)
{
    char name[32];
    dp_membership_begin(&roster->members);
    for (uint64_t rest = dp_membership_missing(&roster->members); rest; rest &= rest - 1) {
        const dp_member *m = &roster->members.workers[rt_lowest_bit(rest)];
        if (m->invitation != DP_INVITED_LATER)
            rt_warn("%s is not there: the run goes on without it", rt_peer_name(m->peer, name));
    }
}

// Whether all are there that are waited for, workers for timeouts.rejoin_s at most.
static bool is_complete(const dp_roster *roster, uint64_t late_ns)
{
    return dp_membership_is_complete(&roster->members,
                                     roster->config.may_shrink && rt_now_ns() > late_ns);
}

rt_status dp_roster_assemble(dp_roster *roster, int stop_fd, rt_error *error)
{
    const rt_config *config = roster->config.config;
    const uint64_t start_ns = rt_now_ns();
    const uint64_t deadline = start_ns + (uint64_t)(config->timeout_start_s * NS_PER_S);
    const uint64_t late = start_ns + (uint64_t)(config->timeout_rejoin_s * NS_PER_S);
    while (!is_complete(roster, late)) {
        uint32_t peer;
        rt_message message = {0};
        if (rt_now_ns() > deadline)
            return say_who_is_missing(roster, error);
        if (readable(stop_fd))
            return rt_fail(error, RT_STOPPED, "interrupted before the run began");
        rt_status status = dp_roster_receive(roster, &peer, &message, error);
        if (status == RT_AGAIN && !is_complete(roster, late))
            status = dp_roster_wait(roster, stop_fd, error);
        rt_message_release(&message);
        if (status && status != RT_AGAIN)
            return status;
    }
    begin(roster);
    return RT_OK;
}

// Where the workers that take part listen for each other: to all of them, behind WELCOME.
static rt_status tell_workers(dp_roster *roster, rt_error *error)
{
    rt_wire_workers all = {0};
    const uint32_t count = rt_bit_count(roster->members.worker_places);
    for (uint32_t p = 0; p < count; p++) {
        const dp_member *worker =
            dp_membership_by_place(&roster->members, rt_peer(RT_ROLE_WORKER, p));
        memcpy(all.workers[p].address, worker->address, sizeof all.workers[p].address);
        memcpy(all.workers[p].key, worker->key, sizeof all.workers[p].key);
    }
    for (uint32_t p = 0; p < count; p++) {
        rt_message message;
        if (rt_control_create_struct(&message, RT_MESSAGE_PEERS, SELF, 0, &all, sizeof all, NULL))
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
        const rt_status status =
            dp_roster_send(roster, rt_peer(RT_ROLE_WORKER, p), &message, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status dp_roster_welcome(dp_roster *roster, rt_wire_welcome *welcome, rt_error *error)
{
    dp_membership *members = &roster->members;
    welcome->workers = members->worker_places;
    welcome->shards_in = (uint32_t)members->shard_places;
    for (uint32_t s = 0; s < rt_bit_count(members->shard_places); s++) {
        const dp_member *shard = dp_membership_by_place(members, rt_peer(RT_ROLE_PS, s));
        memcpy(welcome->shards[s], shard->address, RT_ADDRESS_MAX);
        memcpy(welcome->shard_keys[s], shard->key, RT_WIRE_KEY_BYTES);
    }
    for (uint32_t i = 0; i < dp_membership_count(members); i++) {
        const dp_member *m = dp_membership_at(members, i);
        rt_message message;
        if (!counts(roster, m))
            continue;
        if (rt_message_create(&message, RT_MESSAGE_WELCOME, SELF, 0, 1, sizeof *welcome))
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
        memcpy(rt_message_payload(&message), welcome, sizeof *welcome);
        const rt_status status = send_to(roster, m->peer, &message, error);
        if (status)
            return status;
    }
    if (!rt_dispatch_is_mutual(&roster->config.config->dispatch))
        return RT_OK;
    return tell_workers(roster, error);
}

// ---- messages --------------------------------------------------------------------------------

static rt_status check_silence(dp_roster *roster, rt_error *error)
{
    uint64_t now = rt_now_ns();
    for (uint32_t i = 0; i < dp_membership_count(&roster->members); i++) {
        dp_member *m = find_member(roster, dp_membership_at(&roster->members, i)->peer);
        double silent_s = (double)(now - m->heard_ns) / NS_PER_S;
        char name[32];
        if (!dp_member_is_connected(m) || now <= m->heard_ns ||
            silent_s <= roster->config.config->timeout_peer_s)
            continue;
        if (dp_membership_waits(&roster->members, m)) {
            forget(roster, m, "it is silent");
            continue;
        }
        (void)rt_fail(error, RT_PEER, "%s was silent for %.1f s (timeouts.peer_s)",
                      rt_peer_name(m->peer, name), silent_s);
        if (!spare(roster, m, error->text)) {
            note_loss(roster, m->peer);
            return RT_PEER;
        }
        *error = (rt_error){0};
    }
    return RT_OK;
}

// A HELLO that does not fit ends nothing. One of our own (its role and rank are in the
// configuration, and it speaks the protocol) is missing all the same: the run begins once it fits.
static void take_hello(dp_roster *roster, uint32_t peer, const rt_message *message)
{
    rt_error why = {0};
    uint64_t count;
    if (rt_peer_role(peer) == RT_ROLE_VISITOR) {
        answer_visitor(roster, peer, message);
        return;
    }
    rt_status status = join(roster, peer, message, &why);
    if (!status)
        return;
    if (dp_roster_is_replaced(roster))
        return;
    if (status == RT_WIRE || !find_member(roster, peer) || roster->members.has_begun)
        log_stranger(roster, why.text);
    else if (rt_log_due(&roster->refused, &count))
        rt_warn("refused, and still waited for: %s", why.text);
}

// What a worker says that waits: nothing but that it is there, or that it gives up.
static void take_of_waiting(dp_roster *roster, dp_member *from, const rt_message *message)
{
    const uint32_t type = rt_message_header(message)->type;
    rt_error why = {0};
    from->heard_ns = rt_now_ns();
    if (type == RT_MESSAGE_FAILED) {
        member_failed(message, "it", &why);
        forget(roster, from, why.text);
    } else if (type != RT_MESSAGE_HEARTBEAT) {
        log_stranger(roster, rt_message_type_name(type));
    }
}

// One message of the transport; RT_AGAIN: none. *taken: it was about membership.
static rt_status receive_one(dp_roster *roster, uint32_t *peer_p, rt_message *message, bool *taken,
                             rt_error *error)
{
    char name[32];
    rt_error why = {0};
    *taken = true;
    *peer_p = 0;
    rt_status status =
        rt_transport_receive(roster->config.ops, roster->endpoint, peer_p, message, &why);
    dp_member *from = find_member(roster, *peer_p);
    if (status == RT_WIRE && !(from && counts(roster, from))) {
        log_stranger(roster, why.text);
        return RT_OK;
    }
    if (status == RT_AGAIN)
        return RT_AGAIN;
    if (status)
        return rt_fail(error, status, "%s", why.text);
    uint32_t type = rt_message_header(message)->type;
    if (type == RT_MESSAGE_HELLO) {
        take_hello(roster, *peer_p, message);
        return RT_OK;
    }
    if (type == RT_MESSAGE_CONTROL && rt_peer_role(*peer_p) == RT_ROLE_VISITOR) {
        *taken = !roster->members.has_begun;
        if (*taken)
            dp_roster_answer(roster, *peer_p, RT_AGAIN,
                             "the run has not begun: it waits for others");
        return RT_OK;
    }
    if (type == RT_MESSAGE_MIRROR && rt_peer_role(*peer_p) == RT_ROLE_VISITOR) {
        answer_replaced(roster, *peer_p, message);
        return RT_OK;
    }
    if (!from || !dp_member_is_connected(from)) {
        log_stranger(roster, rt_message_type_name(type));
        return RT_OK;
    }
    if (dp_membership_waits(&roster->members, from)) {
        take_of_waiting(roster, from, message);
        return RT_OK;
    }
    from->heard_ns = rt_now_ns();
    *peer_p = rt_peer(rt_peer_role(from->peer), dp_membership_place(&roster->members, from));
    if (type == RT_MESSAGE_FAILED) {
        status = member_failed(message, rt_peer_name(from->peer, name), error);
        if (status != RT_PEER || !spare(roster, from, error->text))
            return status;
        *error = (rt_error){0};
        return RT_OK;
    }
    *taken = type == RT_MESSAGE_HEARTBEAT;
    return RT_OK;
}

rt_status dp_roster_receive(dp_roster *roster, uint32_t *peer_p, rt_message *message,
                            rt_error *error)
{
    for (int i = 0; i < STRANGERS_MAX; i++) {
        bool taken;
        const uint32_t connected = roster->members.connected;
        rt_status status = receive_one(roster, peer_p, message, &taken, error);
        if (status == RT_AGAIN)
            break;
        if (!status && !taken)
            return RT_OK;
        rt_message_release(message);
        if (!status && dp_roster_is_replaced(roster))
            status = rt_fail(error, RT_REFUSED, "%s", roster->replaced.text);
        if (status)
            return status;
        if (roster->members.connected != connected)
            return RT_AGAIN; // the caller looks who is there
    }
    const rt_status status = check_silence(roster, error);
    if (status)
        return status;
    return RT_AGAIN; // the caller has other work
}

rt_status dp_roster_wait(dp_roster *roster, int wake_fd, rt_error *error)
{
    bool ready;
    uint32_t limit_ms = (uint32_t)(roster->config.config->timeout_peer_s * 1000 / 10) + 1;
    rt_status status = roster->config.ops->wait(&roster->endpoint, 1, wake_fd, limit_ms, &ready);
    if (status)
        return rt_fail(error, status, "waiting for messages: %s", rt_status_text(status));
    return beat(roster, error);
}
