// A look, every ASK_EVERY_NS in the subscriber's thread: what is in force there (current.json), the
// manifests from it down to what is here, the files of each, then current.json here. One question
// is under way at a time, and every answer has a deadline; after a failure all begins anew.
#include "edge_worker/serve/ew_subscriber.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "edge_worker/serve/ew_values.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_file.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/files/rt_published.h"
#include "runtime/rt_log.h"
#include "runtime/rt_thread.h"
#include "runtime/transport/rt_visitor.h"
#include "runtime/wire/rt_bytes.h"
#include "runtime/wire/rt_control.h"

#define SERVER rt_peer(RT_ROLE_COORDINATOR, 0)
#define ASK_EVERY_NS 200000000
#define ANSWER_S 10.0
#define WAIT_MS 200
#define CHAIN_MAX 1100u                     // versions that build on each other
#define CHAIN_ROWS_MAX 4u                   // bytes of these, for each of a version with all rows
#define SMALL_BYTES_MAX (UINT64_C(4) << 20) // of current.json and manifests
#define PATH_SIZE (RT_FOLDER_MAX + 192)

struct ew_subscriber {
    ew_subscriber_config config;
    char folder[RT_FOLDER_MAX];
    char address[RT_NAME_MAX + 16], other[RT_NAME_MAX + 16]; // other: "", or where it may be, too
    bool at_standby;
    rt_transport *transport;
    rt_endpoint *endpoint; // NULL: not connected
    rt_visitor visitor;
    uint64_t question; // number of the last FETCH
    atomic_bool stops;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    rt_log_limit limit;
    char failure[256]; // why the last look brought nothing; with the lock held
};

// ---- asking ----------------------------------------------------------------------------------

// Where the run may be led from two boxes, each has a key of its own: that of the one we ask.
static rt_status trust_server(const ew_subscriber *s, rt_error *error)
{
    const rt_keys *keys = s->config.keys;
    if (!keys || !keys->is_set || !*s->other)
        return RT_OK;
    const rt_public_key *key = &keys->coordinator;
    if (s->at_standby)
        key = &keys->standby;
    return rt_transport_zmq.trust(s->transport, SERVER, key->bytes, error);
}

static rt_status connect_anew(ew_subscriber *s, rt_error *error)
{
    const rt_status status = trust_server(s, error);
    if (status)
        return status;
    return rt_transport_zmq.connect(s->transport, rt_visitor_peer(&s->visitor), SERVER, s->address,
                                    &s->endpoint, error);
}

static void hang_up(ew_subscriber *s)
{
    if (s->endpoint)
        rt_transport_zmq.end(s->endpoint, 0);
    s->endpoint = NULL;
}

// Each question has a number, by which its answer is told from a late one of the question before.
static rt_status send_fetch(ew_subscriber *s, const char *name, const rt_wire_fetch *what,
                            rt_error *error)
{
    rt_message message;
    rt_wire_fetch fetch = *what;
    if (!rt_control_put_text(fetch.name, sizeof fetch.name, name))
        return rt_fail(error, RT_DATA, "%s: a file with such a name cannot be fetched", name);
    rt_status status = RT_OK;
    if (!s->endpoint)
        status = connect_anew(s, error);
    if (status)
        return status;
    if (rt_control_create_struct(&message, RT_MESSAGE_FETCH, rt_visitor_peer(&s->visitor),
                                 ++s->question, &fetch, sizeof fetch, NULL))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    status = rt_transport_send(&rt_transport_zmq, s->endpoint, SERVER, &message);
    rt_message_release(&message);
    if (status)
        return rt_fail(error, RT_PEER, "%s does not take questions", s->address);
    return RT_OK;
}

// The answer to the last question; RT_AGAIN: another visitor has our number. Those to others, which
// came too late, are passed over.
static rt_status await_answer(ew_subscriber *s, rt_message *answer, rt_error *error)
{
    const uint64_t end_ns = rt_now_ns() + (uint64_t)(ANSWER_S * 1e9);
    const rt_transport_ops *ops = &rt_transport_zmq;
    while (rt_now_ns() < end_ns && !atomic_load(&s->stops)) {
        bool ready;
        uint32_t peer;
        rt_status status = rt_transport_receive(ops, s->endpoint, &peer, answer, error);
        if (status == RT_AGAIN) {
            (void)ops->wait(&s->endpoint, 1, -1, WAIT_MS, &ready);
            continue;
        }
        if (status == RT_NOT_FOUND)
            return rt_fail(error, RT_PEER, "%s ended the connection", s->address);
        if (status)
            return status;
        const rt_wire_header *header = rt_message_header(answer);
        if (header->type == RT_MESSAGE_FETCHED && header->iteration == s->question)
            return RT_OK;
        const bool is_taken = rt_control_is_taken(answer);
        rt_message_release(answer);
        if (is_taken)
            return rt_fail(error, RT_AGAIN, "%s has as many visitors as it can serve", s->address);
    }
    return rt_fail(error, RT_TIMEOUT, "%s does not answer", s->address);
}

static rt_status ask(ew_subscriber *s, const char *name, const rt_wire_fetch *what,
                     rt_message *answer, rt_error *error)
{
    rt_status status;
    do {
        status = send_fetch(s, name, what, error);
        if (!status)
            status = await_answer(s, answer, error);
        if (status)
            hang_up(s);
    } while (status == RT_AGAIN && rt_visitor_next(&s->visitor));
    if (!status)
        rt_visitor_settle(&s->visitor);
    return status;
}

// Some bytes of a file; *answer is the caller's on RT_OK. what: all but the name.
static rt_status fetch(ew_subscriber *s, const char *name, const rt_wire_fetch *what,
                       rt_message *answer, rt_wire_fetched *fetched, rt_reader *bytes,
                       rt_error *error)
{
    rt_status status = ask(s, name, what, answer, error);
    if (status)
        return status;
    *bytes = rt_message_reader(answer);
    if (!rt_reader_get(bytes, fetched, 1, sizeof *fetched) || fetched->offset != what->offset)
        status = rt_fail(error, RT_WIRE, "%s: an answer to another question", s->address);
    else if (fetched->status)
        status = rt_fail(error, RT_NOT_FOUND, "%.*s", (int)rt_min_u64(bytes->left, 200),
                         (const char *)bytes->next);
    else if (bytes->left == 0 && what->offset < fetched->total)
        status = rt_fail(error, RT_WIRE, "%s: %s ended early", s->address, name);
    if (status)
        rt_message_release(answer);
    return status;
}

// What becomes of the bytes of a file, piece by piece.
typedef rt_status take_piece(void *to, const void *bytes, size_t size, rt_error *error);

// Hands a piece on. Its server says with each how long the file is: *total_p.
static rt_status fetch_piece(ew_subscriber *s, const char *name, uint64_t bytes_max,
                             take_piece *take, void *to, uint64_t *offset_p, uint64_t *total_p,
                             rt_error *error)
{
    rt_message answer = {0};
    rt_wire_fetched fetched;
    rt_reader bytes;
    const rt_wire_fetch what = {.offset = *offset_p};
    rt_status status = fetch(s, name, &what, &answer, &fetched, &bytes, error);
    if (status)
        return status;
    if (fetched.total > bytes_max)
        status = rt_fail(error, RT_LIMIT, "%s has %" PRIu64 " bytes, expected at most %" PRIu64,
                         name, fetched.total, bytes_max);
    else
        status = take(to, bytes.next, bytes.left, error);
    *offset_p += bytes.left;
    *total_p = fetched.total;
    rt_message_release(&answer);
    return status;
}

static rt_status fetch_all(ew_subscriber *s, const char *name, uint64_t bytes_max, take_piece *take,
                           void *to, rt_error *error)
{
    uint64_t offset = 0, total = 1;
    while (offset < total) {
        const rt_status status = fetch_piece(s, name, bytes_max, take, to, &offset, &total, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status take_bytes(void *to, const void *bytes, size_t size, rt_error *error)
{
    rt_bytes *all = to;
    rt_bytes_put(all, bytes, size);
    if (all->failed)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return RT_OK;
}

static rt_status take_file(void *to, const void *bytes, size_t size, rt_error *error)
{
    return rt_file_write(to, bytes, size, error);
}

// ---- versions --------------------------------------------------------------------------------

typedef struct {
    uint32_t iteration;
    rt_bytes manifest;
} version;

static void version_name(uint32_t iteration, const char *file, char name[128])
{
    char path[64] = "";
    (void)rt_checkpoint_path("", iteration, path, sizeof path, NULL); // "/ckpt-..."
    snprintf(name, 128, "%s/%s", path + 1, file);
}

// Where a file of a version is: name, there and here.
static void find_file(const ew_subscriber *s, uint32_t iteration, const char *file, char name[128],
                      char path[PATH_SIZE])
{
    version_name(iteration, file, name);
    snprintf(path, PATH_SIZE, "%s/%s", s->folder, name);
}

static rt_status fetch_file(ew_subscriber *s, uint32_t iteration, const char *file, rt_error *error)
{
    char name[128], path[PATH_SIZE];
    rt_file *to;
    find_file(s, iteration, file, name, path);
    rt_status status = rt_file_create(path, &to, error);
    if (status)
        return status;
    status = fetch_all(s, name, UINT64_MAX, take_file, to, error);
    if (!status)
        return rt_file_commit(to, error);
    rt_file_abort(to);
    return status;
}

static rt_status fetch_part(ew_subscriber *s, const char *name, ew_values *values, rt_error *error)
{
    rt_message answer = {0};
    rt_wire_fetched fetched;
    rt_reader bytes;
    const rt_wire_fetch what = {.offset = values->offset, .skip = values->part.size, .values = 1};
    rt_status status = fetch(s, name, &what, &answer, &fetched, &bytes, error);
    if (status)
        return status;
    status = ew_values_take(values, &fetched, bytes.next, bytes.left, error);
    rt_message_release(&answer);
    return status;
}

// *sum: that of the manifest; then of what is here.
static rt_status fetch_parts(ew_subscriber *s, const char *name, bool is_rows, rt_file *to,
                             rt_file_sum *sum, rt_error *error)
{
    ew_values values;
    rt_status status = RT_OK;
    ew_values_init(&values, name, is_rows, sum->bytes, to);
    while (!values.is_whole && !status)
        status = fetch_part(s, name, &values, error);
    if (!status && (values.origin.bytes != sum->bytes || values.origin.hash != sum->hash))
        status = rt_fail(error, RT_DATA,
                         "%s is made of %" PRIu64 " bytes with the sum %016" PRIx64
                         ", its manifest says %" PRIu64 " and %016" PRIx64,
                         name, values.origin.bytes, values.origin.hash, sum->bytes, sum->hash);
    *sum = values.own;
    ew_values_fini(&values);
    return status;
}

static bool is_rows(const cJSON *file)
{
    return cJSON_IsString(file) && strncmp(file->valuestring, "rows-", 5) == 0;
}

// A file without optimizer state, with which nothing is predicted.
static rt_status fetch_values(ew_subscriber *s, uint32_t iteration, const cJSON *file,
                              rt_file_sum *sum, rt_error *error)
{
    char name[128], path[PATH_SIZE];
    rt_file *to;
    find_file(s, iteration, file->valuestring, name, path);
    rt_status status = rt_file_create(path, &to, error);
    if (status)
        return status;
    status = fetch_parts(s, name, is_rows(file), to, sum, error);
    if (!status)
        return rt_file_commit(to, error);
    rt_file_abort(to);
    return status;
}

// A peer has written the manifest: only names that a published version may have become paths here.
// *changed: what is here has another sum.
static rt_status fetch_named(ew_subscriber *s, uint32_t iteration, cJSON *manifest,
                             const cJSON *file, bool *changed, rt_error *error)
{
    char name[128];
    rt_manifest_part part;
    if (s->config.without_rows && is_rows(file))
        return RT_OK;
    if (!cJSON_IsString(file))
        return rt_fail(error, RT_DATA, "a manifest names a file that none has");
    version_name(iteration, file->valuestring, name);
    if (!rt_published_may_be(name))
        return rt_fail(error, RT_DATA, "a manifest names a file that none has");
    if (!ew_values_may_be(file->valuestring) ||
        !rt_manifest_part_of(manifest, file->valuestring, &part) || !part.has_hash)
        return fetch_file(s, iteration, file->valuestring, error);
    rt_file_sum sum = part.sum;
    const rt_status status = fetch_values(s, iteration, file, &sum, error);
    if (status || (sum.bytes == part.sum.bytes && sum.hash == part.sum.hash))
        return status;
    *changed = true;
    if (!rt_manifest_set_sum(manifest, file->valuestring, &sum))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return RT_OK;
}

static rt_status fetch_files(ew_subscriber *s, uint32_t iteration, cJSON *manifest, bool *changed,
                             rt_error *error)
{
    char path[PATH_SIZE];
    const cJSON *parts = cJSON_GetObjectItemCaseSensitive(manifest, "parts"), *part;
    rt_status status = rt_checkpoint_path(s->folder, iteration, path, sizeof path, error);
    if (status)
        return status;
    status = rt_checkpoint_make_own(path, error);
    if (status)
        return status;
    status = fetch_file(s, iteration, "config.json", error);
    if (status)
        return status;
    cJSON_ArrayForEach(part, parts)
    {
        const cJSON *file = cJSON_GetObjectItemCaseSensitive(part, "name");
        status = fetch_named(s, iteration, manifest, file, changed, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// The manifest as it is there, unless files are others here: then with their sums, and by which it
// is the same version all the same.
static rt_status write_manifest(const ew_subscriber *s, const version *v, cJSON *manifest,
                                bool changed, rt_error *error)
{
    char name[128], path[PATH_SIZE];
    find_file(s, v->iteration, RT_MANIFEST_NAME, name, path);
    if (!changed)
        return rt_file_save(path, v->manifest.data, v->manifest.size, error);
    *strrchr(path, '/') = '\0';
    return rt_manifest_save(manifest, path, error);
}

// Every file that the manifest names, and config.json; the manifest last, which makes it whole.
static rt_status fetch_version(ew_subscriber *s, const version *v, rt_error *error)
{
    bool changed = false;
    cJSON *root = cJSON_ParseWithLength((const char *)v->manifest.data, v->manifest.size);
    const uint64_t identity = rt_manifest_identity(root);
    rt_checkpoint_remove(s->folder, v->iteration, NULL);
    rt_status status = fetch_files(s, v->iteration, root, &changed, error);
    if (!status && changed && !rt_manifest_set_hash(root, "origin", identity))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory");
    if (!status)
        status = write_manifest(s, v, root, changed, error);
    cJSON_Delete(root);
    return status;
}

static uint64_t bytes_of_rows(const cJSON *manifest)
{
    uint64_t bytes, sum = 0;
    const cJSON *part;
    cJSON_ArrayForEach(
        part, cJSON_GetObjectItemCaseSensitive(
                  manifest, "parts")) if (is_rows(cJSON_GetObjectItemCaseSensitive(part, "name")) &&
                                          rt_manifest_u64(part, "bytes", UINT64_C(1) << 50, &bytes))
        sum += bytes;
    return sum;
}

// Whether the changes that a version here builds on take many times the room of all rows, or are
// not all here.
static bool has_long_chain(const ew_subscriber *s, uint32_t iteration)
{
    uint64_t changes = 0, rows = 0;
    for (uint32_t next = iteration, base = 0; next; next = base) {
        char path[PATH_SIZE];
        cJSON *root;
        if (rt_checkpoint_path(s->folder, next, path, sizeof path, NULL) ||
            rt_manifest_read(path, &root, NULL))
            return true;
        const bool has_base = rt_manifest_u32(root, "base", next - 1, &base);
        changes += rows;
        rows = bytes_of_rows(root);
        cJSON_Delete(root);
        if (!has_base)
            return true;
    }
    return changes / CHAIN_ROWS_MAX > rows;
}

// Whether this very version is here: another run may have one of the same iteration. Since it came
// its rows may have been merged there with those that they build on: what is here says the same,
// and is taken anew only once its changes have become many.
static bool is_here(const ew_subscriber *s, const version *v, const cJSON *there)
{
    char path[PATH_SIZE];
    cJSON *here;
    uint32_t base = 0, base_there = 0;
    if (rt_checkpoint_path(s->folder, v->iteration, path, sizeof path, NULL) ||
        rt_manifest_read(path, &here, NULL))
        return false;
    const uint64_t identity = rt_manifest_identity(here);
    const bool same = identity && identity == rt_manifest_identity(there) &&
                      rt_manifest_u32(here, "base", UINT32_MAX, &base) &&
                      rt_manifest_u32(there, "base", UINT32_MAX, &base_there) &&
                      (s->config.without_rows || rt_manifest_check(path, here, NULL) == RT_OK);
    cJSON_Delete(here);
    return same && (base == 0 || base_there != 0 || s->config.without_rows ||
                    !has_long_chain(s, v->iteration));
}

// *base_p: the version that its rows build on, an earlier one; 0: it has all of them.
static rt_status fetch_manifest(ew_subscriber *s, version *v, uint32_t *base_p, bool *is_here_p,
                                rt_error *error)
{
    char name[128];
    version_name(v->iteration, RT_MANIFEST_NAME, name);
    v->manifest = (rt_bytes){0};
    const rt_status status = fetch_all(s, name, SMALL_BYTES_MAX, take_bytes, &v->manifest, error);
    if (status)
        return status;
    cJSON *root = cJSON_ParseWithLength((const char *)v->manifest.data, v->manifest.size);
    const bool has_base = rt_manifest_u32(root, "base", UINT32_MAX, base_p);
    *is_here_p = has_base && is_here(s, v, root);
    cJSON_Delete(root);
    if (!has_base || (*base_p != 0 && *base_p >= v->iteration))
        return rt_fail(error, RT_DATA, "%s: no manifest of a version", name);
    return RT_OK;
}

// Those that are missing here, newest first, down to one that is here or has all rows. The first
// *count_p of chain have manifests, which are the caller's, also after an error.
static rt_status find_chain(ew_subscriber *s, uint32_t newest, version *chain, uint32_t *count_p,
                            rt_error *error)
{
    uint32_t next = newest;
    *count_p = 0;
    while (next) {
        if (*count_p == CHAIN_MAX)
            return rt_fail(error, RT_DATA, "more than %u versions build on each other", CHAIN_MAX);
        version *v = &chain[*count_p];
        v->iteration = next;
        bool here = false;
        const rt_status status = fetch_manifest(s, v, &next, &here, error);
        if (status || here) {
            rt_bytes_fini(&v->manifest);
            return status;
        }
        (*count_p)++;
        if (s->config.without_rows)
            return RT_OK; // what it builds on are rows
    }
    return RT_OK;
}

// Oldest first: what is whole here stays of use when the link breaks half-way.
static rt_status fetch_chain(ew_subscriber *s, uint32_t newest, rt_error *error)
{
    version *chain = rt_alloc(CHAIN_MAX, sizeof *chain);
    uint32_t count = 0;
    if (!chain)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    rt_status status = find_chain(s, newest, chain, &count, error);
    for (uint32_t i = count; i-- > 0;) {
        if (!status)
            status = fetch_version(s, &chain[i], error);
        rt_bytes_fini(&chain[i].manifest);
    }
    rt_free(chain);
    return status;
}

// ---- what is in force ------------------------------------------------------------------------

static rt_status parse_current(const ew_subscriber *s, const rt_bytes *bytes, rt_published *current,
                               rt_error *error)
{
    cJSON *root = cJSON_ParseWithLength((const char *)bytes->data, bytes->size);
    *current =
        (rt_published){.pinned = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(root, "pinned"))};
    const bool is_version = rt_manifest_u32(root, "iteration", UINT32_MAX, &current->iteration) &&
                            current->iteration > 0;
    if (!rt_manifest_u32(root, "held", UINT32_MAX, &current->held))
        current->held = 0;
    cJSON_Delete(root);
    if (!is_version)
        return rt_fail(error, RT_DATA, "%s: what is in force is no version", s->address);
    return RT_OK;
}

static rt_status fetch_current(ew_subscriber *s, rt_published *current, rt_error *error)
{
    rt_bytes bytes = {0};
    rt_status status =
        fetch_all(s, RT_PUBLISHED_CURRENT, SMALL_BYTES_MAX, take_bytes, &bytes, error);
    if (!status)
        status = parse_current(s, &bytes, current, error);
    rt_bytes_fini(&bytes);
    return status;
}

// With the folder's lock: `lanyard pin` may be changing the same file.
static rt_status put_in_force(ew_subscriber *s, const rt_published *current, rt_error *error)
{
    int lock;
    rt_status status = rt_published_lock(s->folder, &lock, error);
    if (status)
        return status;
    status = rt_published_write(s->folder, current, error);
    if (!status && !current->pinned)
        rt_published_remove_above(s->folder, current->iteration); // another run's
    if (!status)
        rt_published_prune(s->folder, s->config.keep, s->config.without_rows);
    close(lock);
    return status;
}

static rt_status look(ew_subscriber *s, rt_error *error)
{
    rt_published there, here = {0};
    rt_status status = fetch_current(s, &there, error);
    if (status)
        return status;
    if (rt_published_read(s->folder, &here, NULL) == RT_OK && here.iteration == there.iteration &&
        here.pinned == there.pinned && here.held == there.held)
        return RT_OK; // of another run: until its next version, and age_s says so
    status = fetch_chain(s, there.iteration, error);
    if (status)
        return status;
    return put_in_force(s, &there, error);
}

// Between two addresses reasons alternate, so that each is new: there time alone bounds warnings.
static void note(ew_subscriber *s, const rt_error *error)
{
    uint64_t count;
    pthread_mutex_lock(&s->lock);
    const bool is_new = strcmp(s->failure, error->text) != 0;
    snprintf(s->failure, sizeof s->failure, "%.255s", error->text);
    pthread_mutex_unlock(&s->lock);
    if (!error->status)
        return;
    bool is_due = is_new;
    if (*s->other)
        is_due = rt_log_due(&s->limit, &count);
    if (is_due)
        rt_warn("published models: %s; trying on", error->text);
}

// Who leads the run may have changed.
static void try_other(ew_subscriber *s)
{
    char before[sizeof s->address];
    if (!*s->other)
        return;
    hang_up(s);
    pthread_mutex_lock(&s->lock); // who waits may be about to name it
    memcpy(before, s->address, sizeof before);
    memcpy(s->address, s->other, sizeof before);
    memcpy(s->other, before, sizeof before);
    pthread_mutex_unlock(&s->lock);
    s->at_standby = !s->at_standby;
}

static void *subscribe(void *context)
{
    ew_subscriber *s = context;
    const struct timespec pause = {0, ASK_EVERY_NS};
    while (!atomic_load(&s->stops)) {
        rt_error error = {0};
        const rt_status status = look(s, &error);
        note(s, &error);
        if (status == RT_TIMEOUT || status == RT_PEER || status == RT_IO)
            try_other(s);
        (void)nanosleep(&pause, NULL);
    }
    return NULL;
}

// ---- beginning and end -----------------------------------------------------------------------

// What a server without rows has left is no whole model: nothing is in force until one has come.
static void forget_without_rows(const ew_subscriber *s)
{
    char path[PATH_SIZE];
    rt_published here;
    cJSON *root = NULL;
    if (s->config.without_rows || rt_published_read(s->folder, &here, NULL) ||
        rt_checkpoint_path(s->folder, here.iteration, path, sizeof path, NULL) ||
        rt_manifest_read(path, &root, NULL))
        return;
    const bool lacks_rows = rt_manifest_check(path, root, NULL) &&
                            rt_manifest_check_without_rows(path, root, NULL) == RT_OK;
    cJSON_Delete(root);
    snprintf(path, sizeof path, "%s/" RT_PUBLISHED_CURRENT, s->folder);
    if (lacks_rows && unlink(path) == 0)
        rt_info("%s has a model without its rows: they are fetched", s->folder);
}

static rt_status open_all(ew_subscriber *s, rt_error *error)
{
    rt_status status = rt_checkpoint_make(s->folder, error);
    if (status)
        return status;
    forget_without_rows(s);
    status = rt_transport_open(&rt_transport_zmq, s->config.keys, &s->transport, error);
    if (status)
        return status;
    status = rt_visitor_init(&s->visitor, error);
    if (status)
        return status;
    status = connect_anew(s, error);
    if (status)
        return status;
    return rt_thread_run(&s->thread, &s->started, subscribe, s, error);
}

rt_status ew_subscriber_open(const ew_subscriber_config *config, ew_subscriber **subscriber_p,
                             rt_error *error)
{
    ew_subscriber *s = rt_alloc(1, sizeof *s);
    if (!s)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    s->config = *config;
    snprintf(s->folder, sizeof s->folder, "%s", config->folder);
    snprintf(s->address, sizeof s->address, "%s", config->address);
    snprintf(s->other, sizeof s->other, "%s", config->standby);
    pthread_mutex_init(&s->lock, NULL);
    const rt_status status = open_all(s, error);
    if (status) {
        ew_subscriber_close(s);
        return status;
    }
    *subscriber_p = s;
    return RT_OK;
}

void ew_subscriber_close(ew_subscriber *s)
{
    if (!s)
        return;
    atomic_store(&s->stops, true);
    if (s->started)
        pthread_join(s->thread, NULL);
    hang_up(s);
    if (s->transport)
        rt_transport_zmq.close(s->transport);
    pthread_mutex_destroy(&s->lock);
    rt_free(s);
}

rt_status ew_subscriber_find(ew_subscriber *s, rt_error *error)
{
    rt_published current;
    if (rt_published_read(s->folder, &current, NULL) == RT_OK)
        return RT_OK;
    pthread_mutex_lock(&s->lock);
    const char *why = s->failure[0] ? s->failure : "it is asked for one";
    rt_fail(error, RT_AGAIN, "no model has come to %s from %s yet: %s", s->folder, s->address, why);
    pthread_mutex_unlock(&s->lock);
    return RT_AGAIN;
}
