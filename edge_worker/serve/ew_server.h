// ew_server - answers requests for predictions over HTTP (docs/SERVING.md).
//
// The HTTP server's thread puts whole requests into a bounded queue; threads that score take as
// many as fit into a batch. GET /health and /metrics are answered at once.
#ifndef EW_SERVER_H
#define EW_SERVER_H

#include "edge_worker/serve/ew_remote.h"

typedef struct ew_server ew_server;

// config: serve.*, security.*; it, copy and remote outlive the server. remote: where the rows are
// that copy is without; NULL: it has all. RT_CONFIG, RT_IO, RT_LIMIT, RT_UNSUPPORTED, RT_NO_MEMORY.
rt_status ew_server_open(const rt_config *config, ew_follower *copy, ew_remote *remote,
                         ew_server **server_p, rt_error *error);

// "http://HOST:PORT"; valid while the server is.
const char *ew_server_url(const ew_server *server);

// Requests that came are answered first.
void ew_server_close(ew_server *server); // also NULL

#endif
