// rt_http_secrets - certificate and token of an HTTP server, and whether it may listen without.
#ifndef RT_HTTP_SECRETS_H
#define RT_HTTP_SECRETS_H

#include "runtime/http/rt_http.h"

typedef struct {
    char *certificate, *key; // PEM; NULL: no TLS
    char *token;             // NULL: none
} rt_http_secrets;

// RT_CONFIG: beyond loopback all three are needed, or config->insecure, which is warned of; a file
// that others can read (key, token) or that holds no token; RT_IO; error names the key.
rt_status rt_http_secrets_load(const rt_http_config *config, bool is_loopback,
                               rt_http_secrets *secrets, rt_error *error);
void rt_http_secrets_clear(rt_http_secrets *secrets); // overwrites what is secret

// header: of Authorization; NULL: there was none. takes_password: the token may also be the password
// that a browser asked for. Takes as long whatever of a token is wrong.
bool rt_http_secrets_permit(const rt_http_secrets *secrets, const char *header,
                            bool takes_password);

// Reads the one word that a file holds, which nobody but its owner can read; the caller's (rt_free,
// overwritten first). key: for messages. RT_IO, RT_CONFIG, RT_NO_MEMORY.
rt_status rt_http_read_word(const char *key, const char *path, char **word_p, rt_error *error);

#endif
