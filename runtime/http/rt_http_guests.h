// rt_http_guests - the connections of a server: who takes too long, and who has to go when places
// are short.
//
// A server has so many places. Once all are taken, a guest that is slow is asked to go (its socket
// is shut down, and its owner sees an end), so that the next one finds a place: first one of an
// address that has shown nothing, then one of the address that has most of them, and of its guests
// the slowest. So whoever holds places without a use for them makes room for himself alone. An
// address that has shown something worth a place (a token, or a request that was answered) is known
// for an hour; a quarter of the places is for known ones. A guest whose request is being worked on
// stays, and so does one that has sent what nobody has read.
//
// Any thread. An owner tells when a guest comes, what it does, and when it has gone; its socket
// stays open until then.
#ifndef RT_HTTP_GUESTS_H
#define RT_HTTP_GUESTS_H

#include <sys/socket.h>

#include "runtime/rt_base.h"

typedef struct rt_http_guests rt_http_guests;
typedef struct rt_http_guest rt_http_guest; // a connection

typedef enum {
    RT_HTTP_GUEST_NEW,     // has not asked for anything yet
    RT_HTTP_GUEST_IDLE,    // has been answered
    RT_HTTP_GUEST_SENDING, // what it asks for is still coming
    RT_HTTP_GUEST_SERVED,  // waits for an answer, or listens
    RT_HTTP_GUEST_READING, // has its answer, and may not have read all of it
} rt_http_guest_state;

// How long each of these may take; a guest that took a small share of it is not slow.
typedef struct {
    uint32_t places;
    double head_s;             // a new guest has said by then what it wants
    double idle_s;             // one that was answered says it so much later
    double body_s;             // what it sends may stand still for so long
    uint32_t body_bytes_per_s; // and comes as fast as this on average
    bool ends_late;            // who takes longer has to go, also where places are free
} rt_http_guests_config;

// RT_NO_MEMORY; RT_LIMIT: no thread can be started.
rt_status rt_http_guests_open(const rt_http_guests_config *config, rt_http_guests **guests_p);
void rt_http_guests_close(rt_http_guests *guests); // with its guests; NULL is fine

// NULL: out of memory; the others do not mind that, nor does it say anything of the newcomer.
rt_http_guest *rt_http_guests_enter(rt_http_guests *guests, int socket,
                                    const struct sockaddr *from);
void rt_http_guests_leave(rt_http_guests *guests, rt_http_guest *guest);

void rt_http_guests_note(rt_http_guests *guests, rt_http_guest *guest, rt_http_guest_state state);
void rt_http_guests_note_bytes(rt_http_guests *guests, rt_http_guest *guest,
                               size_t size); // of what it sends
void rt_http_guests_note_worth(rt_http_guests *guests,
                               rt_http_guest *guest); // its address is known from now on

#endif
