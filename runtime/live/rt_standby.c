#include "runtime/live/rt_standby.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "runtime/files/rt_file.h"
#include "runtime/live/rt_standby_disk.h"
#include "runtime/rt_log.h"
#include "runtime/transport/rt_ask.h"
#include "runtime/transport/rt_member.h"

#define SELF rt_peer(RT_ROLE_COORDINATOR, 0)
#define WAIT_MS 200u
#define LINGER_MS 500u
#define LOOK_NS UINT64_C(100000000) // whether boxes were added

typedef struct {
    const rt_standby_config *config;
    rt_standby_disk disk;
    rt_transport *transport;
    rt_endpoint *endpoint;
    char bound[RT_NAME_MAX];
    uint32_t mirror;   // who began last
    uint64_t question; // of it, the last
    uint64_t heard_ns; // of the coordinator; 0: never
    bool is_silent;    // that was said
    rt_log_limit limit;
    rt_public_key added[RT_SITE_BOXES_MAX]; // that are let in beside the keys of the configuration
    uint32_t added_count;
    struct stat seen; // of the file that has them
    uint64_t look_ns; // when it is looked at again
} standby;

static rt_status create_answer(const rt_message *question, uint32_t self, uint32_t epoch,
                               const rt_error *error, const rt_bytes *text, rt_message *answer)
{
    const rt_wire_mirrored head = {.status = error->status, .epoch = epoch};
    const void *said = NULL;
    size_t size = 0;
    if (error->status) {
        said = error->text;
        size = strlen(error->text);
    } else if (text) {
        said = text->data;
        size = text->size;
    }
    rt_status status =
        rt_message_create(answer, RT_MESSAGE_MIRRORED, self, rt_message_header(question)->iteration,
                          1, sizeof head + size);
    if (status)
        return status;
    memcpy(rt_message_payload(answer), &head, sizeof head);
    if (size)
        memcpy(rt_message_payload(answer) + sizeof head, said, size);
    return RT_OK;
}

rt_status rt_standby_refuse(const rt_message *question, uint32_t self, rt_message *answer)
{
    rt_error why = {0};
    rt_fail(&why, RT_REFUSED, "the standby was promoted and now leads the run");
    return create_answer(question, self, 0, &why, NULL, answer);
}

// A connection that the coordinator gave up may still bring what was under way, behind what the
// next one has brought since: what is acknowledged by now would be cut off.
static rt_status take_turn(standby *s, uint32_t peer, uint32_t kind, uint64_t question,
                           rt_error *error)
{
    if (kind != RT_MIRROR_BEGIN && (peer != s->mirror || question <= s->question))
        return rt_fail(error, RT_WIRE, "a MIRROR of an earlier connection");
    s->mirror = peer;
    s->question = question;
    return RT_OK;
}

// text: what is there, of who begins; or bytes of a journal.
static rt_status take_mirror(standby *s, uint32_t peer, const rt_message *message, rt_bytes *text,
                             rt_error *error)
{
    rt_wire_mirror what;
    rt_reader reader = rt_message_reader(message);
    if (!rt_reader_get(&reader, &what, 1, sizeof what))
        return rt_fail(error, RT_WIRE, "an incomplete MIRROR");
    rt_status status = rt_standby_disk_adopt(&s->disk, what.id, what.epoch, error);
    if (status)
        return status;
    status = take_turn(s, peer, what.kind, rt_message_header(message)->iteration, error);
    if (status)
        return status;
    s->heard_ns = rt_now_ns();
    if (what.kind == RT_MIRROR_BEGIN || s->is_silent)
        rt_info("following the coordinator of epoch %" PRIu32, what.epoch);
    s->is_silent = false;
    if (what.kind == RT_MIRROR_BEAT)
        return RT_OK;
    if (what.kind != RT_MIRROR_BEGIN && what.kind != RT_MIRROR_READ)
        return rt_standby_disk_take(&s->disk, &what, &reader, error);
    if (what.kind == RT_MIRROR_READ)
        status = rt_standby_disk_read(&s->disk, &what, text, error);
    else
        status = rt_standby_disk_list(&s->disk, text, error);
    if (!status && text->failed)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return status;
}

static void answer_mirror(standby *s, uint32_t peer, const rt_message *message)
{
    rt_message answer;
    rt_bytes text = {0};
    rt_error error = {0};
    uint64_t count;
    const rt_status status = take_mirror(s, peer, message, &text, &error);
    if (status && rt_log_due(&s->limit, &count))
        rt_warn("refused: %s", error.text);
    if (!create_answer(message, SELF, s->disk.state.epoch, &error, &text, &answer)) {
        (void)rt_transport_send(s->config->ops, s->endpoint, peer, &answer);
        rt_message_release(&answer);
    }
    rt_bytes_fini(&text);
}

static void answer_control(standby *s, uint32_t peer, const rt_message *message)
{
    char request[RT_ASK_BYTES_MAX], said[256];
    rt_message answer;
    rt_error error = {0};
    rt_status status = rt_control_text(message, request, sizeof request);
    const bool promotes = !status && strcmp(request, "promote") == 0;
    if (promotes && !rt_transport_may_ask(s->config->ops, s->endpoint, s->config->keys, peer))
        status = rt_fail(&error, RT_REFUSED, RT_ASK_ELSEWHERE);
    else if (promotes)
        status = rt_standby_disk_promote(&s->disk, &error);
    else
        status = rt_fail(&error, RT_STOPPED,
                         "this is the standby (coordinator.standby): it only knows `lanyard "
                         "promote`");
    const double ago_s = s->heard_ns ? (double)(rt_now_ns() - s->heard_ns) * 1e-9 : 0;
    snprintf(said, sizeof said,
             "promoted: epoch %" PRIu32 " begins; the coordinator was heard %.1f s ago",
             s->disk.state.epoch, ago_s);
    if (!status)
        rt_info("%s", said);
    if (rt_control_create_end(&answer, RT_MESSAGE_CONTROLLED, SELF, status,
                              status ? error.text : said))
        return;
    if (!status)
        rt_message_header(&answer)->iteration = RT_REASON_COMPLETE;
    (void)rt_transport_send(s->config->ops, s->endpoint, peer, &answer);
    rt_message_release(&answer);
}

// Members come here when the coordinator does not answer: they try it again, and come back.
static void send_away(standby *s, uint32_t peer)
{
    rt_message answer;
    if (rt_control_create_end(&answer, RT_MESSAGE_STOP, SELF, RT_STOPPED, RT_STANDBY_FOLLOWS))
        return;
    (void)rt_transport_send(s->config->ops, s->endpoint, peer, &answer);
    rt_message_release(&answer);
}

static void turn(standby *s)
{
    const rt_transport_ops *ops = s->config->ops;
    bool ready;
    uint32_t peer;
    rt_message message = {0};
    rt_status status = rt_transport_receive(ops, s->endpoint, &peer, &message, NULL);
    rt_notify_alive(s->config->notify);
    if (status) {
        rt_message_release(&message);
        if (status == RT_AGAIN)
            (void)ops->wait(&s->endpoint, 1, s->config->stop_fd, WAIT_MS, &ready);
        return;
    }
    const uint32_t type = rt_message_header(&message)->type;
    const bool is_visitor = rt_peer_role(peer) == RT_ROLE_VISITOR;
    if (type == RT_MESSAGE_MIRROR && is_visitor)
        answer_mirror(s, peer, &message);
    else if (type == RT_MESSAGE_CONTROL && is_visitor)
        answer_control(s, peer, &message);
    else if (type == RT_MESSAGE_HELLO)
        send_away(s, peer);
    rt_message_release(&message);
}

static void look_at_silence(standby *s)
{
    const double limit_s = s->config->config->timeout_peer_s;
    if (s->is_silent || s->heard_ns == 0 || (double)(rt_now_ns() - s->heard_ns) < limit_s * 1e9)
        return;
    s->is_silent = true;
    rt_warn("the coordinator was silent for %g s (timeouts.peer_s): if it does not come back, "
            "`lanyard promote` lets this box lead the run",
            limit_s);
}

static bool is_stopped(const standby *s)
{
    struct pollfd stop = {s->config->stop_fd, POLLIN, 0};
    return s->config->stop_fd >= 0 && poll(&stop, 1, 0) > 0;
}

static void close_door(standby *s)
{
    if (s->endpoint)
        s->config->ops->end(s->endpoint, LINGER_MS);
    if (s->transport)
        s->config->ops->close(s->transport);
    s->endpoint = NULL;
    s->transport = NULL;
}

static rt_status allow_added(standby *s, rt_error *error)
{
    for (uint32_t i = 0; i < s->added_count; i++) {
        rt_status status = s->config->ops->allow(s->transport, &s->added[i], error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status open_door(standby *s, rt_error *error)
{
    char address[RT_NAME_MAX + 16];
    const rt_standby_config *config = s->config;
    snprintf(address, sizeof address, "tcp://%s", config->config->standby);
    rt_status status = rt_transport_open(config->ops, config->keys, &s->transport, error);
    if (!status)
        status = allow_added(s, error);
    if (!status)
        status = config->ops->listen(s->transport, SELF, address, s->bound, &s->endpoint, error);
    if (status)
        return rt_fail_in(error, "coordinator.standby");
    return RT_OK;
}

// ---- boxes that were added -------------------------------------------------------------------

static bool has_key(const rt_public_key *keys, uint32_t count, const rt_public_key *key)
{
    for (uint32_t i = 0; i < count; i++) {
        if (memcmp(keys[i].bytes, key->bytes, RT_KEY_BYTES) == 0)
            return true;
    }
    return false;
}

// Whether the file is another one than when it was read last.
static bool has_news(standby *s)
{
    char path[RT_PATH_MAX + 32];
    struct stat info = {0};
    const uint64_t now_ns = rt_now_ns();
    if (!s->config->read_added || !s->config->keys || !s->config->keys->is_set ||
        now_ns < s->look_ns)
        return false;
    s->look_ns = now_ns + LOOK_NS;
    snprintf(path, sizeof path, "%s/%s", s->config->checkpoints, s->config->added_name);
    if (stat(path, &info) != 0)
        return false;
    const bool is_same = rt_file_is_same(&s->seen, &info);
    s->seen = info;
    return !is_same;
}

// A key more is let in from here on. For one less the door is opened anew: no connection that it
// opened stays, and the coordinator comes back at once.
static rt_status look_at_added(standby *s, rt_error *error)
{
    rt_public_key before[RT_SITE_BOXES_MAX];
    const uint32_t before_count = s->added_count;
    rt_error why = {0};
    bool all_stay = true;
    if (!has_news(s))
        return RT_OK;
    memcpy(before, s->added, sizeof before);
    if (s->config->read_added(s->config->context, s->added, &s->added_count, &why)) {
        memcpy(s->added, before, sizeof before);
        s->added_count = before_count;
        rt_warn("boxes that were added are not known here: %s", why.text);
        return RT_OK;
    }
    for (uint32_t i = 0; i < before_count; i++)
        all_stay &= has_key(s->added, s->added_count, &before[i]);
    if (!s->endpoint)
        return RT_OK; // open_door lets them in
    if (!all_stay) {
        close_door(s);
        return open_door(s, error);
    }
    for (uint32_t i = 0; i < s->added_count; i++) {
        if (!has_key(before, before_count, &s->added[i]) &&
            s->config->ops->allow(s->transport, &s->added[i], &why))
            rt_warn("%s", why.text);
    }
    return RT_OK;
}

// ---- following -------------------------------------------------------------------------------

static rt_status follow(standby *s, rt_error *error)
{
    rt_status status = look_at_added(s, error);
    if (status)
        return status;
    status = open_door(s, error);
    if (status)
        return status;
    rt_notify_ready(s->config->notify);
    rt_info("listening on %s", s->bound);
    while (!s->disk.state.is_promoted) {
        if (is_stopped(s))
            return rt_fail(error, RT_STOPPED, "ends");
        turn(s);
        look_at_silence(s);
        status = look_at_added(s, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status rt_standby_run(const rt_standby_config *config, rt_error *error)
{
    standby *s = rt_alloc(1, sizeof *s);
    if (!s)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    s->config = config;
    rt_status status = rt_standby_disk_open(config->config, config->directory, config->checkpoints,
                                            &s->disk, error);
    if (!status)
        status = follow(s, error);
    close_door(s);
    rt_standby_disk_close(&s->disk);
    rt_free(s);
    return status;
}
