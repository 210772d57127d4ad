#include "runtime/transport/rt_member.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>

#include "runtime/config/rt_address.h"
#include "runtime/config/rt_await.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"
#include "runtime/rt_memory.h"

#define COORDINATOR rt_peer(RT_ROLE_COORDINATOR, 0)
#define NS_PER_S 1e9
#define LEAVE_LINGER_MS 1000u
#define ANSWER_WAIT_MS 50
#define RETRY_MS 2         // while the queue to the coordinator is full
#define TAKEN_RETRY_MS 300 // until the place of this member is asked for again
#define VITALS_NS UINT64_C(2000000000)
#define FIRST_VITALS_NS UINT64_C(1000000000)
#define ATTEMPT_SHARE 0.6 // of timeout_peer_s, at one address before the other one is tried
#define WAIT_SAID_NS UINT64_C(2000000000)
// What a WELCOME may say. Products of these numbers are sizes, and must not wrap.
#define DENSE_FEATURES_MAX (1u << 16)
#define SLOTS_MAX (1u << 31)
#define RUN_AHEAD_MAX 1024u
#define SAMPLES_MAX (1u << 24)
#define LOOKUPS_MAX (1u << 30)

uint32_t rt_member_wait_ms(const rt_member *member)
{
    return (uint32_t)(member->config.timeout_peer_s * 1000 / 5) + 1;
}

static rt_status send_hello(rt_member *member, rt_error *error)
{
    rt_message message;
    rt_wire_hello hello = rt_control_greet(member->config.self, &member->config.identity);
    if (!rt_control_put_text(hello.address, sizeof hello.address, member->config.address))
        return rt_fail(error, RT_CONFIG, "address %s is too long", member->config.address);
    if (member->config.keys && member->config.keys->is_set)
        memcpy(hello.key, member->config.keys->own.bytes, sizeof hello.key);
    hello.run = member->leaders.of[0].run;
    hello.epoch = member->leaders.of[0].epoch;
    hello.box = member->config.box;
    hello.allowed = member->allowed;
    if (rt_message_create(&message, RT_MESSAGE_HELLO, member->config.self, member->config.holds, 1,
                          sizeof hello))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    memcpy(rt_message_payload(&message), &hello, sizeof hello);
    return rt_member_send(member, &message, error);
}

static bool takes_part(const rt_member *member)
{
    const rt_wire_welcome *welcome = &member->welcome;
    const bool is_ps = rt_peer_role(member->config.self) == RT_ROLE_PS;
    const uint32_t rank = rt_peer_rank(member->config.self);
    return rt_bit_count(welcome->workers) == welcome->worker_count &&
           rt_bit_count(welcome->shards_in) == welcome->shard_count && rank < RT_WORKERS_MAX &&
           (is_ps ? welcome->shards_in : welcome->workers) >> rank & 1;
}

uint32_t rt_member_rank(const rt_member *member)
{
    const bool is_ps = rt_peer_role(member->config.self) == RT_ROLE_PS;
    return rt_bits_under(is_ps ? member->welcome.shards_in : member->welcome.workers,
                         rt_peer_rank(member->config.self));
}

static rt_status take_welcome(rt_member *member, const rt_message *message, rt_error *error)
{
    rt_wire_welcome *welcome = &member->welcome;
    if (rt_message_header(message)->type != RT_MESSAGE_WELCOME ||
        !rt_control_has(message, sizeof *welcome))
        return rt_fail(error, RT_WIRE, "coordinator: expected a WELCOME, got %s",
                       rt_message_type_name(rt_message_header(message)->type));
    memcpy(welcome, rt_message_payload(message), sizeof *welcome);
    const uint64_t lookups = (uint64_t)welcome->sample_count_max * welcome->keys_per_sample_max;
    bool terminated = true;
    for (uint32_t i = 0; i < RT_SHARDS_MAX; i++)
        terminated &= welcome->shards[i][RT_ADDRESS_MAX - 1] == '\0';
    if (!terminated || !takes_part(member) || welcome->worker_count == 0 ||
        welcome->worker_count > RT_WORKERS_MAX || welcome->shard_count == 0 ||
        welcome->shard_count > RT_SHARDS_MAX || welcome->field_count == 0 ||
        welcome->field_count > RT_FIELDS_MAX || welcome->dense_count > DENSE_FEATURES_MAX ||
        welcome->slot_count == 0 || welcome->slot_count > SLOTS_MAX || welcome->run_ahead == 0 ||
        welcome->run_ahead > RUN_AHEAD_MAX || welcome->sample_count_max == 0 ||
        welcome->sample_count_max > SAMPLES_MAX || lookups == 0 || lookups > LOOKUPS_MAX)
        return rt_fail(error, RT_WIRE,
                       "coordinator: a WELCOME with impossible numbers: %" PRIu32 " workers, "
                       "%" PRIu32 " shards, %" PRIu32 " dense features, %" PRIu32 " fields, "
                       "%" PRIu32 " slots, %" PRIu32 " samples of %" PRIu32 " keys, %" PRIu32
                       " slices ahead",
                       welcome->worker_count, welcome->shard_count, welcome->dense_count,
                       welcome->field_count, welcome->slot_count, welcome->sample_count_max,
                       welcome->keys_per_sample_max, welcome->run_ahead);
    return RT_OK;
}

// Keys of boxes that were added to the run: the coordinator answers for them. Then HELLO again.
static rt_status take_allow(rt_member *member, const rt_message *message, rt_error *error)
{
    const uint32_t count = rt_message_header(message)->count;
    const rt_wire_allowed *all = (const void *)rt_message_payload(message);
    const size_t size = (size_t)count * sizeof *all;
    if (count == 0 || count > RT_SITE_BOXES_MAX || !rt_control_has(message, size))
        return rt_fail(error, RT_WIRE, "coordinator: an ALLOW with %" PRIu32 " boxes", count);
    const uint64_t hash = rt_hash_bytes(all, size);
    if (hash == member->allowed)
        return rt_fail(error, RT_WIRE, "coordinator: the same ALLOW twice");
    for (uint32_t i = 0; i < count; i++) {
        rt_public_key key = {0};
        if (memchr(all[i].name, 0, sizeof all[i].name) == NULL)
            return rt_fail(error, RT_WIRE, "coordinator: an ALLOW with a name that does not end");
        _Static_assert(sizeof key.name == sizeof all->name, "names fit");
        memcpy(key.name, all[i].name, sizeof key.name);
        memcpy(key.bytes, all[i].key, sizeof key.bytes);
        rt_status status = member->config.ops->allow(member->config.transport, &key, error);
        if (status)
            return status;
    }
    member->allowed = hash;
    return send_hello(member, error);
}

// Before anything is served: a coordinator that was replaced is not followed.
static rt_status follow(rt_member *member, rt_error *error)
{
    if (!member->config.leader || !member->welcome.run)
        return RT_OK;
    return rt_leaders_follow(member->config.leader, member->welcome.run, member->welcome.epoch,
                             &member->leaders, error);
}

// Says once why nothing happens.
static void say_that_we_wait(uint64_t since_ns, bool *said)
{
    if (*said || rt_now_ns() - since_ns < WAIT_SAID_NS)
        return;
    *said = true;
    rt_info("the coordinator is there; waiting until this process is taken into the run");
}

// At which of the two addresses, and until when before the other one is tried.
typedef struct {
    bool at_standby;
    uint64_t until_ns;
} attempt;

static bool has_standby(const rt_member *member)
{
    return member->config.standby && *member->config.standby;
}

static const char *address_of(const rt_member *member, const attempt *now)
{
    if (now->at_standby)
        return member->config.standby;
    return member->config.coordinator;
}

// A coordinator that is there is heard within a fifth of timeout_peer_s.
static uint64_t attempt_ns(const rt_member *member)
{
    if (has_standby(member))
        return (uint64_t)(member->config.timeout_peer_s * ATTEMPT_SHARE * NS_PER_S);
    return UINT64_MAX / 2;
}

static rt_status connect_to(rt_member *member, attempt *now, rt_error *error)
{
    const rt_member_config *config = &member->config;
    rt_status status = RT_OK;
    if (config->keys && config->keys->is_set && has_standby(member)) {
        const rt_public_key *key = &config->keys->coordinator;
        if (now->at_standby)
            key = &config->keys->standby;
        status = config->ops->trust(config->transport, COORDINATOR, key->bytes, error);
    }
    if (!status)
        status = config->ops->connect(config->transport, config->self, COORDINATOR,
                                      address_of(member, now), &member->endpoint, error);
    if (status) {
        member->endpoint = NULL;
        return status;
    }
    now->until_ns = rt_now_ns() + attempt_ns(member);
    member->heard_ns = rt_now_ns();
    return send_hello(member, error);
}

// One that nobody knows by name yet is no other.
static rt_status try_other(rt_member *member, attempt *now, rt_error *error)
{
    if (member->endpoint)
        member->config.ops->end(member->endpoint, 0);
    member->endpoint = NULL;
    now->at_standby = !now->at_standby;
    if (!rt_address_host_is_known(address_of(member, now)))
        now->at_standby = !now->at_standby;
    rt_info("trying %s", address_of(member, now));
    return connect_to(member, now, error);
}

// Whether what came says that somebody else leads the run, or that nobody is there.
static bool leads_elsewhere(const rt_member *member, rt_status status, const rt_error *why)
{
    return has_standby(member) &&
           (status == RT_NOT_FOUND || status == RT_PEER || status == RT_TIMEOUT ||
            (status == RT_STOPPED && strcmp(why->text, RT_STANDBY_FOLLOWS) == 0));
}

static rt_status never_answered(const rt_member *member, const rt_error *why, rt_error *error)
{
    const char *colon = why->text[0] ? ": " : "";
    if (has_standby(member))
        return rt_fail(error, RT_TIMEOUT,
                       "no answer from the coordinator at %s or %s within %g s%s%.200s",
                       member->config.coordinator, member->config.standby,
                       member->config.timeout_start_s, colon, why->text);
    return rt_fail(error, RT_TIMEOUT, "no answer from the coordinator at %s within %g s%s%.200s",
                   member->config.coordinator, member->config.timeout_start_s, colon, why->text);
}

static rt_status await_welcome(rt_member *member, attempt *now, rt_error *error)
{
    const uint64_t begin = rt_now_ns();
    const uint64_t deadline = begin + (uint64_t)(member->config.timeout_start_s * NS_PER_S);
    bool heard = false, said = false;
    rt_error why = {0};
    while (heard || rt_now_ns() < deadline) {
        bool ready;
        rt_message message = {0};
        rt_status status =
            member->config.ops->wait(&member->endpoint, 1, -1, rt_member_wait_ms(member), &ready);
        if (status)
            return rt_fail(error, status, "waiting for the coordinator: %s",
                           rt_status_text(status));
        const uint64_t before = heard ? member->heard_ns : rt_now_ns();
        member->heard_ns = before;
        // Who waits for others is not silent. Before the coordinator is there nothing can be sent.
        (void)rt_member_beat(member, NULL);
        status = rt_member_receive(member, &message, &why);
        if (!heard && (leads_elsewhere(member, status, &why) || rt_now_ns() > now->until_ns)) {
            rt_message_release(&message);
            if (try_other(member, now, &why) && !member->endpoint)
                return rt_fail(error, why.status, "%s", why.text);
            continue;
        }
        heard |= member->heard_ns != before;
        if (!status && rt_message_header(&message)->type == RT_MESSAGE_ALLOW) {
            status = take_allow(member, &message, &why);
            rt_message_release(&message);
            if (!status)
                continue;
        }
        if (!status) {
            status = take_welcome(member, &message, error);
            rt_message_release(&message);
            return status;
        }
        if (status != RT_AGAIN) {
            if (error)
                *error = why;
            return status;
        }
        if (heard)
            say_that_we_wait(begin, &said);
    }
    return never_answered(member, &why, error);
}

// Its place may be another's until that one's loss is noticed. When it stays so, two were started.
// A visitor comes again as another one.
static rt_status join_when_free(rt_member *member, attempt *now, rt_error *error)
{
    const uint64_t end_ns = rt_now_ns() + (uint64_t)(member->config.timeout_start_s * NS_PER_S);
    rt_error why = {0};
    for (;;) {
        rt_status status = connect_to(member, now, &why);
        if (!status)
            status = await_welcome(member, now, &why);
        if (status != RT_STOPPED || !member->is_taken ||
            rt_peer_role(member->config.self) == RT_ROLE_VISITOR) {
            if (status && error)
                *error = why;
            return status;
        }
        if (rt_now_ns() > end_ns)
            return rt_fail(error, RT_REFUSED,
                           "%.300s, for %g s (timeouts.start_s): two processes of this rank are "
                           "there, of which one has to end",
                           why.text, member->config.timeout_start_s);
        member->config.ops->end(member->endpoint, 0);
        member->endpoint = NULL;
        rt_notify_alive(member->config.notify);
        (void)poll(NULL, 0, TAKEN_RETRY_MS);
    }
}

rt_status rt_member_join(rt_member *member, const rt_member_config *config, rt_error *error)
{
    attempt now = {0};
    *member = (rt_member){.config = *config};
    rt_traffic_begin();
    rt_notify_ready(config->notify);
    rt_status status = RT_OK;
    if (config->leader)
        status = rt_leaders_read(config->leader, &member->leaders, error);
    if (status)
        return status;
    now.at_standby = has_standby(member) && !rt_address_host_is_known(config->coordinator) &&
                     rt_address_host_is_known(config->standby);
    rt_await_host("the coordinator", address_of(member, &now), config->timeout_start_s,
                  config->notify);
    status = join_when_free(member, &now, error);
    if (status && !member->endpoint)
        return status;
    const bool is_welcome = !status;
    if (!status)
        status = follow(member, error);
    if (status)
        rt_member_leave(member, is_welcome ? error : NULL);
    return status;
}

static void report(rt_member *member, const rt_error *failure)
{
    rt_message message;
    if (rt_control_create_end(&message, RT_MESSAGE_FAILED, member->config.self, failure->status,
                              failure->text) == RT_OK)
        (void)rt_member_send(member, &message, NULL);
}

rt_status rt_member_give_up(rt_member *member, rt_error *error)
{
    const uint64_t end_ns = rt_now_ns() + LEAVE_LINGER_MS * UINT64_C(1000000);
    rt_status status = RT_AGAIN;
    rt_error said = {0};
    if (!member->endpoint)
        return error->status;
    report(member, error);
    while ((status == RT_AGAIN || status == RT_OK) && rt_now_ns() < end_ns) {
        bool ready;
        rt_message message = {0};
        (void)member->config.ops->wait(&member->endpoint, 1, -1, ANSWER_WAIT_MS, &ready);
        status = rt_member_receive(member, &message, &said);
        rt_message_release(&message);
    }
    const bool was_planned = member->is_anew || strcmp(said.text, RT_BOX_DRAINED) == 0;
    if (status == RT_REFUSED || (status == RT_STOPPED && was_planned))
        *error = said;
    return error->status;
}

void rt_member_leave(rt_member *member, const rt_error *failure)
{
    if (!member->endpoint)
        return;
    if (failure)
        report(member, failure);
    member->config.ops->end(member->endpoint, LEAVE_LINGER_MS);
    member->endpoint = NULL;
}

rt_status rt_member_send(rt_member *member, rt_message *message, rt_error *error)
{
    const uint64_t limit_ns = rt_now_ns() + (uint64_t)(member->config.timeout_peer_s * NS_PER_S);
    rt_message_header(message)->sender = member->config.self;
    rt_status status =
        rt_transport_send(member->config.ops, member->endpoint, COORDINATOR, message);
    while (status == RT_AGAIN && rt_now_ns() < limit_ns) {
        (void)poll(NULL, 0, RETRY_MS);
        status = rt_transport_send(member->config.ops, member->endpoint, COORDINATOR, message);
    }
    rt_message_release(message);
    if (status == RT_AGAIN)
        return rt_fail(error, RT_PEER, "the coordinator has not read for %.1f s (timeouts.peer_s)",
                       member->config.timeout_peer_s);
    if (status)
        return rt_fail(error, RT_PEER, "cannot send to the coordinator: %s",
                       rt_status_text(status));
    member->sent_ns = rt_now_ns();
    return RT_OK;
}

static rt_status stopped(rt_member *member, const rt_message *message, rt_error *error)
{
    char text[sizeof error->text];
    const uint64_t reason = rt_message_header(message)->iteration;
    if (rt_control_text(message, text, sizeof text))
        strcpy(text, "no reason given");
    if (reason == RT_REASON_COMPLETE)
        return rt_fail(error, RT_STOPPED, RT_RUN_COMPLETE);
    if (reason == RT_REASON_DRAINED)
        return rt_fail(error, RT_STOPPED, RT_BOX_DRAINED);
    member->is_anew = reason == RT_REASON_ANEW;
    member->is_taken = reason == RT_REASON_TAKEN;
    const rt_status status = reason == RT_REASON_LASTS ? RT_REFUSED : RT_STOPPED;
    return rt_fail(error, status, "%s", text);
}

rt_status rt_member_check(const rt_member *member, rt_error *error)
{
    double silent_s = (double)(rt_now_ns() - member->heard_ns) / NS_PER_S;
    if (silent_s <= member->config.timeout_peer_s)
        return RT_OK;
    return rt_fail(error, RT_PEER, "the coordinator was silent for %.1f s", silent_s);
}

rt_status rt_member_receive(rt_member *member, rt_message *message, rt_error *error)
{
    for (;;) {
        uint32_t peer;
        rt_status status =
            rt_transport_receive(member->config.ops, member->endpoint, &peer, message, error);
        if (status == RT_AGAIN)
            status = rt_member_check(member, error) == RT_OK ? RT_AGAIN : RT_PEER;
        if (status)
            return status;
        member->heard_ns = rt_now_ns();
        uint32_t type = rt_message_header(message)->type;
        if (type == RT_MESSAGE_STOP)
            status = stopped(member, message, error);
        if (type != RT_MESSAGE_HEARTBEAT && type != RT_MESSAGE_STOP)
            return RT_OK;
        rt_message_release(message);
        if (status)
            return status;
    }
}

// For what need not arrive: a coordinator that has enough to read goes without.
static rt_status offer(rt_member *member, rt_message *message, rt_error *error)
{
    rt_status status =
        rt_transport_send(member->config.ops, member->endpoint, COORDINATOR, message);
    rt_message_release(message);
    if (status == RT_AGAIN)
        return RT_OK;
    if (status)
        return rt_fail(error, RT_PEER, "cannot send to the coordinator: %s",
                       rt_status_text(status));
    member->sent_ns = rt_now_ns();
    return RT_OK;
}

rt_status rt_member_beat(rt_member *member, rt_error *error)
{
    rt_message message;
    rt_notify_alive(member->config.notify);
    double since_s = (double)(rt_now_ns() - member->sent_ns) / NS_PER_S;
    if (since_s < member->config.timeout_peer_s / 5)
        return RT_OK;
    if (rt_control_create(&message, RT_MESSAGE_HEARTBEAT, member->config.self))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return offer(member, &message, error);
}

bool rt_member_vitals_due(rt_member *member)
{
    const uint64_t now = rt_now_ns();
    if (member->vitals_ns == 0)
        member->vitals_ns = now + FIRST_VITALS_NS;
    if (now < member->vitals_ns)
        return false;
    member->vitals_ns = now + VITALS_NS;
    return true;
}

rt_status rt_member_tell_vitals(rt_member *member, rt_wire_vitals *vitals, uint64_t image_bytes,
                                rt_error *error)
{
    rt_message message;
    vitals->resident_bytes = rt_memory_resident();
    vitals->memory_max_bytes = rt_memory_limit();
    if (rt_control_create_struct(&message, RT_MESSAGE_VITALS, member->config.self, image_bytes,
                                 vitals, sizeof *vitals, NULL))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return offer(member, &message, error);
}
