#include "runtime/transport/rt_ask.h"

#include <string.h>

#include "runtime/transport/rt_visitor.h"
#include "runtime/wire/rt_control.h"

#define COORDINATOR rt_peer(RT_ROLE_COORDINATOR, 0)
#define WAIT_MS 50u
#define LINGER_MS 1000u

static rt_status take_answer(const rt_message *message, char text[RT_ASK_BYTES_MAX],
                             rt_error *error)
{
    const rt_wire_header *header = rt_message_header(message);
    char said[RT_ASK_BYTES_MAX];
    if ((header->type != RT_MESSAGE_CONTROLLED && header->type != RT_MESSAGE_STOP) ||
        rt_control_text(message, said, sizeof said))
        return rt_fail(error, RT_WIRE, "coordinator: expected a CONTROLLED, got %s",
                       rt_message_type_name(header->type));
    const rt_status refusal = rt_control_is_taken(message) ? RT_AGAIN : RT_REFUSED;
    if (header->type == RT_MESSAGE_STOP || header->iteration != RT_REASON_COMPLETE)
        return rt_fail(error, refusal, "%s", said);
    memcpy(text, said, sizeof said);
    return RT_OK;
}

static rt_status await(const rt_ask_config *config, rt_endpoint *endpoint,
                       char text[RT_ASK_BYTES_MAX], rt_error *error)
{
    const uint64_t end_ns = rt_now_ns() + (uint64_t)(config->timeout_s * 1e9);
    rt_error why = {0};
    while (rt_now_ns() < end_ns) {
        bool ready;
        uint32_t peer;
        rt_message message = {0};
        (void)config->ops->wait(&endpoint, 1, -1, WAIT_MS, &ready);
        rt_status status = rt_transport_receive(config->ops, endpoint, &peer, &message, &why);
        if (status == RT_AGAIN)
            continue;
        if (!status)
            status = take_answer(&message, text, error);
        else
            rt_fail(error, status, "the coordinator at %s: %s", config->coordinator,
                    why.text[0] ? why.text : "its connection has ended");
        rt_message_release(&message);
        return status;
    }
    return rt_fail(error, RT_TIMEOUT, "no answer from the coordinator at %s within %g s%s%.200s",
                   config->coordinator, config->timeout_s, why.text[0] ? ": " : "", why.text);
}

static rt_status ask(const rt_ask_config *config, rt_transport *transport, uint32_t self,
                     const char *request, char text[RT_ASK_BYTES_MAX], rt_error *error)
{
    rt_endpoint *endpoint;
    rt_message message;
    rt_status status =
        config->ops->connect(transport, self, COORDINATOR, config->coordinator, &endpoint, error);
    if (status)
        return status;
    if (rt_control_create_text(&message, RT_MESSAGE_CONTROL, self, request))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory");
    if (!status && rt_transport_send(config->ops, endpoint, COORDINATOR, &message)) {
        rt_message_release(&message);
        status =
            rt_fail(error, RT_PEER, "cannot send to the coordinator at %s", config->coordinator);
    }
    if (!status)
        status = await(config, endpoint, text, error);
    config->ops->end(endpoint, LINGER_MS);
    return status;
}

rt_status rt_ask(const rt_ask_config *config, const char *request, char text[RT_ASK_BYTES_MAX],
                 rt_error *error)
{
    rt_transport *transport;
    rt_visitor self;
    if (strlen(request) >= RT_ASK_BYTES_MAX)
        return rt_fail(error, RT_CONFIG, "a request of %zu bytes, at most %u are possible",
                       strlen(request), RT_ASK_BYTES_MAX - 1);
    rt_status status = rt_visitor_init(&self, error);
    if (!status)
        status = rt_transport_open(config->ops, config->keys, &transport, error);
    if (status)
        return status;
    do
        status = ask(config, transport, rt_visitor_peer(&self), request, text, error);
    while (status == RT_AGAIN && rt_visitor_next(&self));
    config->ops->close(transport);
    if (status == RT_AGAIN && error)
        error->status = RT_REFUSED;
    if (status == RT_AGAIN)
        return RT_REFUSED;
    return status;
}
