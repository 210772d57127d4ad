// rt_http_patience - ends connections whose next request does not come to the end of its head.
//
// The library closes who is silent; who sends a byte now and then is not, and is not seen before
// the head of the request is whole. So it is told when a connection begins, when it has a request,
// and when it waits for one again; a thread looks now and then for those that wait too long.
#ifndef RT_HTTP_PATIENCE_H
#define RT_HTTP_PATIENCE_H

#include "runtime/rt_base.h"

typedef struct rt_http_patience rt_http_patience;
typedef struct rt_http_guest rt_http_guest; // a connection

// limit_s: from the begin of a connection, or the end of its request before, to a whole head.
// RT_NO_MEMORY; RT_LIMIT: no thread can be started.
rt_status rt_http_patience_open(double limit_s, rt_http_patience **patience_p);
void rt_http_patience_close(rt_http_patience *patience); // with its guests; NULL is fine

// socket stays open until leave. NULL: out of memory; the others do not mind that.
rt_http_guest *rt_http_patience_enter(rt_http_patience *patience, int socket);
void rt_http_patience_leave(rt_http_patience *patience, rt_http_guest *guest);

void rt_http_patience_note(rt_http_patience *patience, rt_http_guest *guest, bool has_request);

#endif
