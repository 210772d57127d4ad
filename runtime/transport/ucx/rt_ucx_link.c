#include "runtime/transport/ucx/rt_ucx_endpoint.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE_BYTES_MAX (RT_WIRE_PAYLOAD_BYTES_MAX + sizeof(rt_wire_header))
#define TELL_EVERY (RT_UCX_WINDOW / 4) // messages taken, between two TAKEN

struct rt_ucx_request {
    rt_ucx_request *next, *previous; // in its list; previous while in use
    rt_ucx_link *link;
    rt_ucx_head head;
    rt_message message;
};

// ---- requests --------------------------------------------------------------------------------

static rt_ucx_request *request_get(rt_ucx_link *link)
{
    rt_ucx_request *request = link->port->unused;
    if (request)
        link->port->unused = request->next;
    else if (!(request = rt_alloc(1, sizeof *request)))
        return NULL;
    request->link = link;
    request->previous = NULL;
    request->next = link->port->in_use;
    if (request->next)
        request->next->previous = request;
    link->port->in_use = request;
    link->requests++;
    return request;
}

static void request_put(rt_ucx_request *request)
{
    rt_ucx_link *link = request->link;
    rt_message_release(&request->message);
    if (request->next)
        request->next->previous = request->previous;
    if (request->previous)
        request->previous->next = request->next;
    else
        link->port->in_use = request->next;
    request->next = link->port->unused;
    link->port->unused = request;
    if (--link->requests == 0)
        link->port->is_changed = true;
}

void rt_ucx_port_fini(rt_ucx_port *port)
{
    while (port->in_use)
        request_put(port->in_use);
    while (port->unused) {
        rt_ucx_request *request = port->unused;
        port->unused = request->next;
        rt_free(request);
    }
}

// ---- opening and closing ---------------------------------------------------------------------

rt_ucx_link *rt_ucx_link_create(rt_ucx_port *port, int fd, uint16_t slot, uint64_t number)
{
    rt_ucx_link *link = rt_alloc(1, sizeof *link);
    if (!link)
        return NULL;
    link->port = port;
    link->fd = fd;
    link->slot = slot;
    link->number = number;
    for (size_t i = 0; i < RT_UCX_WINDOW; i++)
        link->window[i].link = link;
    return link;
}

void rt_ucx_link_destroy(rt_ucx_link *link)
{
    if (!link)
        return;
    for (size_t i = 0; i < RT_UCX_WINDOW; i++)
        rt_message_release(&link->window[i].message);
    if (link->fd >= 0)
        close(link->fd);
    rt_free(link);
}

void rt_ucx_link_fail(rt_ucx_link *link)
{
    link->has_failed = link->port->is_changed = true;
}

static void link_failed(void *context, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    (void)status; // whatever it was
    rt_ucx_link *link = context;
    link->is_lost = true;
    rt_ucx_link_fail(link);
}

ucs_status_t rt_ucx_link_open(rt_ucx_link *link, const ucp_address_t *address)
{
    const ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                                  UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                                  UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                    .address = address,
                                    .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                                    .err_handler = {link_failed, link}};
    return ucp_ep_create(link->port->worker, &params, &link->ep);
}

static void close_done(void *handle, ucs_status_t status, void *context)
{
    rt_ucx_request *request = context;
    (void)status;
    ucp_request_free(handle);
    request_put(request);
}

void rt_ucx_link_close(rt_ucx_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    link->has_failed = true;
    rt_ucx_request *request =
        link->ep && (link->is_lost || link->is_wired) ? request_get(link) : NULL;
    if (!request)
        return; // also without memory
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS |
                                                       UCP_OP_ATTR_FIELD_CALLBACK |
                                                       UCP_OP_ATTR_FIELD_USER_DATA,
                                       .flags = UCP_EP_CLOSE_FLAG_FORCE,
                                       .cb.send = close_done,
                                       .user_data = request};
    ucp_ep_h ep = link->ep;
    link->ep = NULL;
    if (!UCS_PTR_IS_PTR(ucp_ep_close_nbx(ep, &param)))
        request_put(request);
}

// ---- sending ---------------------------------------------------------------------------------

static void send_done(void *handle, ucs_status_t status, void *context)
{
    rt_ucx_request *request = context;
    (void)status;
    ucp_request_free(handle);
    request_put(request);
}

static rt_status frame_send(rt_ucx_link *link, rt_ucx_kind kind, uint64_t sequence,
                            rt_message *message)
{
    if (!link->ep || link->has_failed)
        return RT_NOT_FOUND;
    rt_ucx_request *request = request_get(link);
    if (!request)
        return RT_NO_MEMORY;
    request->head = (rt_ucx_head){.magic = RT_UCX_MAGIC,
                                  .kind = (uint16_t)kind,
                                  .slot = link->slot,
                                  .peer = link->port->self,
                                  .connection = link->number,
                                  .sequence = sequence};
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.send = send_done,
                                       .user_data = request};
    const void *data = NULL;
    size_t size = 0;
    if (message) {
        data = message->data;
        size = message->size;
    }
    void *handle = ucp_am_send_nbx(link->ep, RT_UCX_AM, &request->head, sizeof request->head, data,
                                   size, &param);
    if (UCS_PTR_IS_ERR(handle)) {
        request_put(request);
        return RT_NOT_FOUND;
    }
    if (message) {
        request->message = *message;
        *message = (rt_message){0};
    }
    if (!UCS_PTR_IS_PTR(handle)) // done already
        request_put(request);
    return RT_OK;
}

rt_status rt_ucx_link_send(rt_ucx_link *link, rt_message *message)
{
    if (link->got_bye || link->said_bye)
        return RT_NOT_FOUND;
    if (link->sent - link->sent_taken >= RT_UCX_WINDOW)
        return link->has_failed ? RT_NOT_FOUND : RT_AGAIN;
    rt_status status = frame_send(link, RT_UCX_MESSAGE, link->sent, message);
    link->sent += !status;
    return status;
}

// Where this fails the connection has failed, which is found out elsewhere.
void rt_ucx_link_say(rt_ucx_link *link, rt_ucx_kind kind, uint64_t sequence)
{
    (void)frame_send(link, kind, sequence, NULL);
}

void rt_ucx_link_say_bye(rt_ucx_link *link)
{
    if (!link->said_bye)
        rt_ucx_link_say(link, RT_UCX_BYE, link->sent);
    link->said_bye = true;
}

// ---- receiving -------------------------------------------------------------------------------

static void settle_end(rt_ucx_link *link)
{
    if (!link->got_bye || link->said_gone || link->arrived != link->arrived_end)
        return;
    link->said_gone = true;
    rt_ucx_link_say(link, RT_UCX_GONE, 0);
}

static void arrival_done(rt_ucx_arrival *arrival, bool is_here)
{
    arrival->state = is_here ? RT_UCX_HERE : RT_UCX_BROKEN;
    if (!is_here) {
        rt_ucx_link_fail(arrival->link);
        return;
    }
    arrival->link->arrived++;
    settle_end(arrival->link);
}

static void fetch_done(void *handle, ucs_status_t status, size_t length, void *context)
{
    rt_ucx_arrival *arrival = context;
    rt_ucx_link *link = arrival->link;
    ucp_request_free(handle);
    arrival_done(arrival, status == UCS_OK && length == arrival->message.size);
    if (--link->requests == 0)
        link->port->is_changed = true;
}

// A large message: UCX brings it into memory of ours.
static void fetch(rt_ucx_arrival *arrival, void *data)
{
    rt_ucx_link *link = arrival->link;
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                       UCP_OP_ATTR_FIELD_USER_DATA |
                                                       UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                       .cb.recv_am = fetch_done,
                                       .user_data = arrival};
    arrival->state = RT_UCX_COMING;
    link->requests++;
    void *handle = ucp_am_recv_data_nbx(link->port->worker, data, arrival->message.data,
                                        arrival->message.size, &param);
    if (UCS_PTR_IS_PTR(handle))
        return;
    link->requests--;
    arrival_done(arrival, !UCS_PTR_IS_ERR(handle));
}

static void take_message(rt_ucx_link *link, uint64_t sequence, void *data, size_t length,
                         bool is_fetched)
{
    rt_ucx_arrival *arrival = &link->window[sequence % RT_UCX_WINDOW];
    void *copy = NULL;
    bool is_expected = sequence >= link->taken && sequence - link->taken < RT_UCX_WINDOW &&
                       arrival->state == RT_UCX_NOTHING && length <= MESSAGE_BYTES_MAX &&
                       (!link->got_bye || sequence < link->arrived_end);
    if (!is_expected || !(copy = malloc(length + 1))) { // + 1: NULL means no memory
        rt_ucx_link_fail(link);
        return;
    }
    arrival->message = (rt_message){copy, length, free, copy};
    if (is_fetched) {
        fetch(arrival, data);
        return;
    }
    memcpy(copy, data, length);
    arrival_done(arrival, true);
}

ucs_status_t rt_ucx_link_take_frame(rt_ucx_link *link, const rt_ucx_head *head, void *data,
                                    size_t length, const ucp_am_recv_param_t *param)
{
    if (link->has_failed)
        return UCS_OK;
    switch (head->kind) {
    case RT_UCX_MESSAGE:
        take_message(link, head->sequence, data, length,
                     (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
        break;
    case RT_UCX_TAKEN:
        if (head->sequence > link->sent_taken && head->sequence <= link->sent)
            link->sent_taken = head->sequence;
        break;
    case RT_UCX_BYE:
        if (link->got_bye || head->sequence < link->arrived) {
            rt_ucx_link_fail(link);
            break;
        }
        link->got_bye = true;
        link->arrived_end = head->sequence;
        settle_end(link);
        break;
    case RT_UCX_GONE:
        link->got_gone = link->said_bye;
        break;
    default:
        rt_ucx_link_fail(link);
    }
    return UCS_OK;
}

rt_message rt_ucx_link_take(rt_ucx_link *link)
{
    rt_ucx_arrival *arrival = &link->window[link->taken % RT_UCX_WINDOW];
    rt_message message = arrival->message;
    rt_assert(arrival->state == RT_UCX_HERE);
    arrival->message = (rt_message){0};
    arrival->state = RT_UCX_NOTHING;
    if (++link->taken - link->taken_told >= TELL_EVERY) {
        link->taken_told = link->taken;
        rt_ucx_link_say(link, RT_UCX_TAKEN, link->taken);
    }
    return message;
}
