// rt_http_head - what is looked at of a request before anything else: whether one can tell where
// its body ends, for which host it is meant, and from which page a browser sends it.
//
// A browser carries requests of any page to any address that it reaches, this machine's loopback
// addresses too, and says so: Host is the name under which the page found the address, Origin and
// Sec-Fetch-Site say whose page it is. A page elsewhere that gives its own name our address (DNS
// rebinding) cannot give it another Host. What is no browser sends neither Origin nor
// Sec-Fetch-Site, and the address or name that it was told as its Host.
#ifndef RT_HTTP_HEAD_H
#define RT_HTTP_HEAD_H

#include <microhttpd.h>

#include "runtime/rt_base.h"

typedef struct rt_http_names rt_http_names; // under which a server may be asked for

// Addresses, localhost, the host of address, what this machine calls itself, and those that are
// listed: "NAME" or "NAME:PORT", commas between them. RT_CONFIG: no such list; RT_NO_MEMORY.
rt_status rt_http_names_open(const char *address, const char *listed, rt_http_names **names_p,
                             rt_error *error);
void rt_http_names_close(rt_http_names *names); // NULL is fine

typedef struct {
    unsigned code; // 0: go on; else what is answered, because
    char text[256];
    const char *origin; // of a page that is listed; NULL: none is
} rt_http_verdict;

// shows_token: no page could have sent it, whatever the Host.
void rt_http_judge_head(const rt_http_names *names, struct MHD_Connection *connection,
                        const char *method, const char *version, bool shows_token,
                        rt_http_verdict *verdict);

#endif
