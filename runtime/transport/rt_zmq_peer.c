// The peers of a listening endpoint, and their connections by number.
#include "runtime/transport/rt_zmq_parts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_address.h"
#include "runtime/wire/rt_control.h"

void rt_zmq_identity_write(uint32_t peer, uint64_t connection,
                           uint8_t identity[RT_ZMQ_IDENTITY_BYTES])
{
    for (int i = 0; i < 4; i++)
        identity[i] = (uint8_t)(peer >> (24 - 8 * i));
    memcpy(identity + 4, &connection, sizeof connection);
}

rt_zmq_peer *rt_zmq_peer_find(rt_endpoint *endpoint, uint32_t peer)
{
    uint32_t role = (uint32_t)rt_peer_role(peer), rank = rt_peer_rank(peer);
    if (role < RT_ROLE_COORDINATOR || role > RT_ROLES || rank >= RT_RANKS_MAX)
        return NULL;
    return &endpoint->peers[role - 1][rank];
}

rt_zmq_peer *rt_zmq_identity_read(rt_endpoint *endpoint, zmq_msg_t *frame, uint32_t *peer_p,
                                  uint64_t *connection_p)
{
    const uint8_t *bytes = zmq_msg_data(frame);
    if (zmq_msg_size(frame) != RT_ZMQ_IDENTITY_BYTES)
        return NULL;
    *peer_p =
        (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
    memcpy(connection_p, bytes + 4, sizeof *connection_p);
    if (*connection_p)
        return rt_zmq_peer_find(endpoint, *peer_p);
    return NULL;
}

bool rt_zmq_address_send(rt_endpoint *endpoint, uint32_t peer, uint64_t connection)
{
    uint8_t identity[RT_ZMQ_IDENTITY_BYTES];
    rt_zmq_identity_write(peer, connection, identity);
    return zmq_send(endpoint->socket, identity, sizeof identity, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0;
}

void rt_zmq_drop_log(rt_endpoint *endpoint, bool is_known, uint32_t peer)
{
    uint64_t count;
    char name[32];
    if (!rt_log_due(&endpoint->drops, &count))
        return;
    if (is_known)
        rt_warn("%s: dropped %" PRIu64 " messages, the last from %s, which was started twice, or "
                "restarted",
                endpoint->address, count, rt_peer_name(peer, name));
    else
        rt_warn("%s: dropped %" PRIu64 " messages, the last from a stranger", endpoint->address,
                count);
}

// Tells a second process of the same peer to end.
static void second_stop(rt_endpoint *endpoint, uint32_t peer, uint64_t connection)
{
    rt_message message;
    if (rt_control_create_taken(&message, endpoint->self, peer))
        return;
    if (rt_zmq_address_send(endpoint, peer, connection))
        (void)zmq_send(endpoint->socket, message.data, message.size, ZMQ_DONTWAIT);
    rt_message_release(&message);
}

void rt_zmq_peer_place(rt_endpoint *endpoint, rt_zmq_peer *entry, zmq_msg_t *frame)
{
    struct sockaddr_storage from = {0};
    struct sockaddr_in *four = (struct sockaddr_in *)&from;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&from;
    if (RT_LIKELY(entry->placed == entry->connection))
        return;
    entry->placed = entry->connection;
    entry->is_here = false;
    const char *address = zmq_msg_gets(frame, "Peer-Address");
    if (strncmp(endpoint->address, "tcp://", strlen("tcp://")) != 0)
        entry->is_here = true; // the file system of this machine brought it
    else if (address && inet_pton(AF_INET, address, &four->sin_addr) == 1)
        from.ss_family = AF_INET;
    else if (address && inet_pton(AF_INET6, address, &six->sin6_addr) == 1)
        from.ss_family = AF_INET6;
    if (from.ss_family)
        entry->is_here = rt_address_is_here(&from);
}

bool rt_zmq_connection_admit(rt_endpoint *endpoint, rt_zmq_peer *entry, uint32_t peer,
                             uint64_t connection)
{
    if (RT_LIKELY(entry->connection == connection))
        return true;
    if (entry->refused == connection)
        return false;
    if (entry->connection != 0) {
        if (rt_zmq_address_send(endpoint, peer, entry->connection))
            (void)zmq_send(endpoint->socket, NULL, 0, ZMQ_DONTWAIT);
        else if (errno == EHOSTUNREACH) {
            entry->refused = entry->connection;
            entry->connection = 0;
        }
    }
    if (entry->connection == 0) {
        entry->connection = connection;
        return true;
    }
    entry->refused = connection;
    second_stop(endpoint, peer, connection);
    return false;
}
