#include "runtime/http/rt_http_parts.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <resolv.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/config/rt_address.h"
#include "runtime/rt_locale.h"

#define NAMES_MAX 64u
#define NAME_BYTES 256u
#define LENGTH_DIGITS_MAX 18u
#define SHOWN_BYTES_MAX 60

struct rt_http_names {
    char own[NAMES_MAX][NAME_BYTES];
    uint32_t own_count;
    char listed[NAMES_MAX][NAME_BYTES]; // with a port or without
    uint32_t listed_count;
};

// ---- names -----------------------------------------------------------------------------------

static void add_own(rt_http_names *names, const char *name)
{
    const size_t length = strlen(name);
    if (length > 0 && length < NAME_BYTES && names->own_count < NAMES_MAX)
        strcpy(names->own[names->own_count++], name);
}

// "NAME.DOMAIN" for the domains in which this machine looks names up.
static void add_domains(rt_http_names *names, const char *name)
{
    char full[2 * NAME_BYTES];
    struct __res_state state;
    memset(&state, 0, sizeof state);
    snprintf(full, sizeof full, "%s.local", name);
    add_own(names, full);
    if (res_ninit(&state) != 0)
        return;
    for (uint32_t i = 0; i < MAXDNSRCH && state.dnsrch[i]; i++) {
        snprintf(full, sizeof full, "%s.%s", name, state.dnsrch[i]);
        add_own(names, full);
    }
    res_nclose(&state);
}

static bool names_host(const struct hostent *entry, const char *name)
{
    bool is_it = rt_locale_is(entry->h_name, name);
    for (char **alias = entry->h_aliases; *alias && !is_it; alias++)
        is_it = rt_locale_is(*alias, name);
    return is_it;
}

// The lines of /etc/hosts in which it stands. Nobody is asked.
static void add_lines(rt_http_names *names, const char *name)
{
    sethostent(1);
    for (struct hostent *entry; (entry = gethostent());) {
        if (!names_host(entry, name))
            continue;
        add_own(names, entry->h_name);
        for (char **alias = entry->h_aliases; *alias; alias++)
            add_own(names, *alias);
    }
    endhostent();
}

static void add_machine(rt_http_names *names)
{
    char name[NAME_BYTES] = "";
    if (gethostname(name, sizeof name - 1) != 0 || !*name)
        return;
    add_own(names, name);
    add_lines(names, name);
    name[strcspn(name, ".")] = '\0';
    add_own(names, name);
    add_domains(names, name);
}

static rt_status list(rt_http_names *names, const char *listed, rt_error *error)
{
    while (*listed) {
        const size_t length = strcspn(listed, ",");
        const bool is_name = length > 0 && strcspn(listed, "/ \t*") >= length;
        if (!is_name || length >= NAME_BYTES || names->listed_count == NAMES_MAX)
            return rt_fail(error, RT_CONFIG,
                           "security.hosts: \"%s\": expected up to %u of \"NAME\" or "
                           "\"NAME:PORT\", with commas between them",
                           listed, NAMES_MAX);
        snprintf(names->listed[names->listed_count++], NAME_BYTES, "%.*s", (int)length, listed);
        listed += length + (listed[length] == ',');
        if (!*listed && listed[-1] == ',')
            return rt_fail(error, RT_CONFIG, "security.hosts: it ends in a comma");
    }
    return RT_OK;
}

rt_status rt_http_names_open(const char *address, const char *listed, rt_http_names **names_p,
                             rt_error *error)
{
    char host[NAME_BYTES];
    uint32_t port;
    rt_http_names *names = rt_alloc(1, sizeof *names);
    if (!names)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for names");
    add_own(names, "localhost");
    if (rt_address_split(address, host, sizeof host, &port))
        add_own(names, host);
    add_machine(names);
    const rt_status status = list(names, listed, error);
    if (status) {
        rt_http_names_close(names);
        return status;
    }
    *names_p = names;
    return RT_OK;
}

void rt_http_names_close(rt_http_names *names)
{
    rt_free(names);
}

static bool is_same(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && rt_locale_begins(text, name);
}

// Of "HOST" or "HOST:PORT", with brackets where there are some.
static size_t host_length(const char *authority)
{
    const char *bracket = *authority == '[' ? strchr(authority, ']') : NULL;
    if (bracket)
        return (size_t)(bracket + 1 - authority);
    return strcspn(authority, ":");
}

static bool is_listed(const rt_http_names *names, const char *authority)
{
    const size_t host = host_length(authority);
    for (uint32_t i = 0; i < names->listed_count; i++)
        if (is_same(names->listed[i], authority, host) ||
            is_same(names->listed[i], authority, strlen(authority)))
            return true;
    return false;
}

static bool is_number(const char *host, size_t length)
{
    char text[NAME_BYTES];
    uint8_t address[sizeof(struct in6_addr)];
    const bool is_bracketed = length > 2 && host[0] == '[' && host[length - 1] == ']';
    if (length >= sizeof text)
        return false;
    snprintf(text, sizeof text, "%.*s", (int)(is_bracketed ? length - 2 : length),
             host + is_bracketed);
    text[strcspn(text, "%")] = '\0'; // the interface of a link-local one
    return inet_pton(is_bracketed ? AF_INET6 : AF_INET, text, address) == 1;
}

static bool is_own(const rt_http_names *names, const char *authority)
{
    size_t length = host_length(authority);
    const char *rest = authority + length;
    if (*rest && (*rest != ':' || rest[1 + strspn(rest + 1, "0123456789")]))
        return false;
    if (is_number(authority, length))
        return true;
    if (length > 0 && authority[length - 1] == '.')
        length--;
    for (uint32_t i = 0; i < names->own_count; i++)
        if (is_same(names->own[i], authority, length))
            return true;
    return false;
}

// ---- heads -----------------------------------------------------------------------------------

typedef struct {
    uint32_t lengths, codings, hosts, origins;
    const char *length, *coding, *host, *origin;
    bool is_odd; // a name has a space, as in "Content-Length : 3"
} head;

static enum MHD_Result note_header(void *context, enum MHD_ValueKind kind, const char *name,
                                   const char *value)
{
    head *h = context;
    const struct {
        const char *name;
        uint32_t *count;
        const char **value;
    } all[] = {{MHD_HTTP_HEADER_CONTENT_LENGTH, &h->lengths, &h->length},
               {MHD_HTTP_HEADER_TRANSFER_ENCODING, &h->codings, &h->coding},
               {MHD_HTTP_HEADER_HOST, &h->hosts, &h->host},
               {MHD_HTTP_HEADER_ORIGIN, &h->origins, &h->origin}};
    (void)kind;
    h->is_odd |= name[strcspn(name, " \t")] != '\0';
    for (size_t i = 0; i < RT_COUNT_OF(all); i++) {
        if (!rt_locale_is(name, all[i].name))
            continue;
        (*all[i].count)++;
        *all[i].value = value ? value : "";
    }
    return MHD_YES;
}

static void refuse(rt_http_verdict *verdict, unsigned code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void refuse(rt_http_verdict *verdict, unsigned code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(verdict->text, sizeof verdict->text, format, arguments);
    va_end(arguments);
    verdict->code = code;
}

// Two servers that read one of these in two ways take the rest of a body for a request.
static void judge_framing(const head *h, const char *version, rt_http_verdict *verdict)
{
    const size_t digits = h->length ? strspn(h->length, "0123456789") : 0;
    if (h->is_odd)
        refuse(verdict, 400, "expected names of headers without a space");
    else if (h->lengths > 1)
        refuse(verdict, 400, "expected one Content-Length, found %u", h->lengths);
    else if (h->lengths && h->codings)
        refuse(verdict, 400, "expected Content-Length or Transfer-Encoding, found both");
    else if (h->length && (digits == 0 || digits > LENGTH_DIGITS_MAX || h->length[digits]))
        refuse(verdict, 400, "Content-Length: expected a number of bytes");
    else if (h->codings > 1 || (h->coding && !rt_locale_is(h->coding, "chunked")))
        refuse(verdict, 400, "Transfer-Encoding: expected chunked");
    else if (h->coding && strcmp(version, MHD_HTTP_VERSION_1_0) == 0)
        refuse(verdict, 400, "Transfer-Encoding: expected HTTP/1.1");
    else if (h->hosts > 1 || (!h->hosts && strcmp(version, MHD_HTTP_VERSION_1_0) != 0))
        refuse(verdict, 400, "expected one Host, found %u", h->hosts);
    else if (h->origins > 1)
        refuse(verdict, 400, "expected one Origin, found %u", h->origins);
}

static void judge_host(const rt_http_names *names, const head *h, rt_http_verdict *verdict)
{
    if (h->host && !is_own(names, h->host) && !is_listed(names, h->host))
        refuse(verdict, MHD_HTTP_FORBIDDEN,
               "Host: %.*s is no address or name of this server; security.hosts can list it",
               SHOWN_BYTES_MAX, h->host);
}

static const char *authority_of(const char *origin)
{
    const char *colon = strstr(origin, "://");
    if (!colon)
        return ""; // "null": a page without an origin
    return colon + 3;
}

// Who follows a link from elsewhere is shown the page that he asked for, and the page there
// nothing.
static bool is_followed_link(struct MHD_Connection *connection, const char *method)
{
    const char *mode = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Sec-Fetch-Mode");
    const char *to = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Sec-Fetch-Dest");
    return strcmp(method, MHD_HTTP_METHOD_GET) == 0 && mode && rt_locale_is(mode, "navigate") &&
           to && rt_locale_is(to, "document");
}

static void judge_page(const rt_http_names *names, const head *h, struct MHD_Connection *connection,
                       const char *method, rt_http_verdict *verdict)
{
    const char *site = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Sec-Fetch-Site");
    const char *from = h->origin ? authority_of(h->origin) : NULL;
    if (from && is_listed(names, from)) {
        verdict->origin = h->origin;
        return;
    }
    if (from && !(*from && h->host && rt_locale_is(from, h->host)))
        refuse(verdict, MHD_HTTP_FORBIDDEN,
               "Origin: %.*s is another site; security.hosts can list it", SHOWN_BYTES_MAX,
               h->origin);
    else if (site && !rt_locale_is(site, "same-origin") && !rt_locale_is(site, "none") &&
             !is_followed_link(connection, method))
        refuse(verdict, MHD_HTTP_FORBIDDEN,
               "Sec-Fetch-Site: %.*s: pages of other sites get nothing here", SHOWN_BYTES_MAX,
               site);
}

void rt_http_judge_head(const rt_http_names *names, struct MHD_Connection *connection,
                        const char *method, const char *version, bool shows_token,
                        rt_http_verdict *verdict)
{
    head h = {0};
    *verdict = (rt_http_verdict){0};
    (void)MHD_get_connection_values(connection, MHD_HEADER_KIND, note_header, &h);
    judge_framing(&h, version, verdict);
    if (!verdict->code && !shows_token)
        judge_host(names, &h, verdict);
    if (!verdict->code)
        judge_page(names, &h, connection, method, verdict);
}
