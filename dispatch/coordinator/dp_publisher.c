#include "dispatch/coordinator/dp_publisher.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/files/rt_file.h"
#include "runtime/files/rt_tensors.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"
#include "runtime/rt_thread.h"
#include "runtime/wire/rt_control.h"

#define SELF rt_peer(RT_ROLE_COORDINATOR, 0)
#define WAIT_MS 1000
#define LINGER_MS 200

// A part of a file without state, which leaves in several answers.
typedef struct {
    struct stat of; // the file; of no file at first
    uint64_t offset, next, checksum;
    rt_bytes bytes;
} stripped;

struct dp_publisher {
    dp_publisher_config config;
    char folder[RT_FOLDER_MAX], bound[RT_NAME_MAX];
    stripped part; // the last one; of the thread
    rt_transport *transport;
    rt_endpoint *endpoint;
    int wake_fd;
    pthread_t thread;
    bool started;
};

// current.json, of the version that the server answers with: its folder may be ahead of it.
static rt_status put_in_force(const dp_publisher *publisher, const rt_wire_fetch *fetch,
                              uint8_t *to, size_t *size_p, rt_wire_fetched *fetched,
                              rt_error *error)
{
    char text[96];
    rt_published published;
    const rt_status status = publisher->config.in_force(publisher->config.context, &published);
    if (status || fetch->offset > 0)
        return rt_fail(error, RT_NOT_FOUND, RT_PUBLISHED_CURRENT ": nothing is in force");
    snprintf(text, sizeof text, "{\"iteration\":%" PRIu32 ",\"pinned\":%s}\n", published.iteration,
             published.pinned ? "true" : "false");
    *size_p = strlen(text);
    fetched->total = fetched->part = fetched->next = *size_p;
    memcpy(to, text, *size_p);
    return RT_OK;
}

static rt_status read_whole(int file, const struct stat *info, const char *name, rt_bytes *bytes,
                            rt_error *error)
{
    const uint64_t size = (uint64_t)info->st_size;
    uint8_t *to = rt_bytes_extend(bytes, size);
    if (!to)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", name);
    for (uint64_t at = 0; at < size;) {
        const ssize_t got = pread(file, to + at, size - at, (off_t)at);
        if (got <= 0)
            return rt_fail(error, RT_IO, "%s: %s", name,
                           got < 0 ? strerror(errno) : "it became shorter");
        at += (uint64_t)got;
    }
    return RT_OK;
}

// A file of tensors is one part. One that has no state is sent as it is.
static rt_status strip_tensors(const char *name, const rt_bytes *whole, rt_bytes *part,
                               rt_error *error)
{
    rt_tensors *tensors;
    rt_status status = rt_tensors_decode(name, whole->data, whole->size, &tensors, error);
    if (status)
        return status;
    if (rt_tensors_find(tensors, RT_TENSOR_STATE))
        status = rt_tensors_encode_values(tensors, part);
    else
        rt_bytes_put(part, whole->data, whole->size);
    rt_tensors_close(tensors);
    if (status || part->failed)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", name);
    return RT_OK;
}

static rt_status make_part_of_tensors(int file, const struct stat *info, const char *name,
                                      stripped *part, rt_error *error)
{
    rt_bytes whole = {0};
    if (part->offset > 0)
        return rt_fail(error, RT_NOT_FOUND, "%s: no part begins there", name);
    rt_status status = read_whole(file, info, name, &whole, error);
    if (!status)
        status = strip_tensors(name, &whole, &part->bytes, error);
    part->next = (uint64_t)info->st_size;
    part->checksum = rt_hash_bytes(whole.data, whole.size);
    rt_bytes_fini(&whole);
    return status;
}

// The part of a file that was asked for, unless it is there since the last question.
static rt_status make_part(dp_publisher *publisher, int file, const struct stat *info,
                           const rt_wire_fetch *fetch, rt_error *error)
{
    stripped *part = &publisher->part;
    const char *name = strrchr(fetch->name, '/') + 1; // of a version: a folder and a file
    rt_status status;
    if (rt_file_is_same(&part->of, info) && part->offset == fetch->offset)
        return RT_OK;
    part->of = (struct stat){0};
    part->offset = fetch->offset;
    rt_bytes_clear(&part->bytes);
    if (strncmp(name, "rows-", 5) == 0)
        status = publisher->config.values(file, fetch->name, fetch->offset, &part->bytes,
                                          &part->next, &part->checksum, error);
    else if (strcmp(name, "dense.bin") == 0)
        status = make_part_of_tensors(file, info, fetch->name, part, error);
    else
        status = rt_fail(error, RT_NOT_FOUND, "%s: a file that has no state", fetch->name);
    if (!status)
        part->of = *info;
    return status;
}

// What does not fit into an answer is asked for next.
static rt_status put_part(dp_publisher *publisher, int file, const struct stat *info,
                          const rt_wire_fetch *fetch, uint8_t *to, size_t *size_p,
                          rt_wire_fetched *fetched, rt_error *error)
{
    const stripped *part = &publisher->part;
    if (!strchr(fetch->name, '/'))
        return rt_fail(error, RT_NOT_FOUND, "%s: a file that has no state", fetch->name);
    const rt_status status = make_part(publisher, file, info, fetch, error);
    if (status)
        return status;
    const uint64_t skip = rt_min_u64(fetch->skip, part->bytes.size);
    *size_p = (size_t)rt_min_u64(RT_WIRE_FETCH_BYTES_MAX, part->bytes.size - skip);
    if (*size_p)
        memcpy(to, part->bytes.data + skip, *size_p);
    fetched->part = part->bytes.size;
    fetched->next = part->next;
    fetched->checksum = part->checksum;
    return RT_OK;
}

static rt_status put_bytes(int file, const struct stat *info, const rt_wire_fetch *fetch,
                           uint8_t *to, size_t *size_p, rt_wire_fetched *fetched, rt_error *error)
{
    ssize_t count = 0;
    if (fetch->offset <= (uint64_t)info->st_size)
        count = pread(file, to, RT_WIRE_FETCH_BYTES_MAX, (off_t)fetch->offset);
    if (count < 0)
        return rt_fail(error, RT_IO, "%s: %s", fetch->name, strerror(errno));
    *size_p = (size_t)count;
    fetched->part = (uint64_t)count;
    fetched->next = fetch->offset + (uint64_t)count;
    return RT_OK;
}

// The bytes that were asked for, or why there are none.
static rt_status read_bytes(dp_publisher *publisher, const rt_wire_fetch *fetch, rt_message *answer,
                            size_t *size_p, rt_wire_fetched *fetched, rt_error *error)
{
    char path[RT_FOLDER_MAX + sizeof fetch->name];
    struct stat info;
    rt_status status;
    uint8_t *to = rt_message_payload(answer) + sizeof *fetched;
    if (publisher->config.in_force && strcmp(fetch->name, RT_PUBLISHED_CURRENT) == 0)
        return put_in_force(publisher, fetch, to, size_p, fetched, error);
    if (!rt_published_may_be(fetch->name))
        return rt_fail(error, RT_NOT_FOUND, "no published file has this name");
    snprintf(path, sizeof path, "%s/%s", publisher->folder, fetch->name);
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0 || fstat(file, &info) != 0) {
        if (file >= 0)
            close(file);
        return rt_fail(error, RT_NOT_FOUND, "%s: %s", fetch->name, strerror(errno));
    }
    if (fetch->values)
        status = put_part(publisher, file, &info, fetch, to, size_p, fetched, error);
    else
        status = put_bytes(file, &info, fetch, to, size_p, fetched, error);
    close(file);
    fetched->total = (uint64_t)info.st_size;
    return status;
}

static rt_status answer(dp_publisher *publisher, uint32_t peer, const rt_message *question)
{
    rt_wire_fetch fetch;
    rt_wire_fetched fetched = {0};
    rt_message message;
    rt_error error = {0};
    size_t size = 0;
    rt_reader reader = rt_message_reader(question);
    if (!rt_reader_get(&reader, &fetch, 1, sizeof fetch) || fetch.name[sizeof fetch.name - 1])
        return RT_WIRE;
    if (rt_message_create(&message, RT_MESSAGE_FETCHED, SELF,
                          rt_message_header(question)->iteration, 0,
                          sizeof fetched + RT_WIRE_FETCH_BYTES_MAX))
        return RT_NO_MEMORY;
    fetched.offset = fetch.offset;
    fetched.skip = fetch.skip;
    fetched.status = read_bytes(publisher, &fetch, &message, &size, &fetched, &error);
    if (fetched.status) {
        size = strlen(error.text);
        memcpy(rt_message_payload(&message) + sizeof fetched, error.text, size);
    }
    memcpy(rt_message_payload(&message), &fetched, sizeof fetched);
    rt_message_finish(&message, 0, sizeof fetched + size);
    rt_status status = rt_transport_send(&rt_transport_zmq, publisher->endpoint, peer, &message);
    rt_message_release(&message); // of who does not read, or is gone: it asks again
    return status;
}

static rt_status look_up(const dp_publisher *publisher, uint32_t peer, const rt_message *question)
{
    static const char none[] = "rows are handed out by a server (serve.hand_out), not by a run";
    const rt_wire_looked_up refused = {.status = RT_UNSUPPORTED};
    rt_message message = {0};
    rt_status status;
    if (publisher->config.look_up)
        status = publisher->config.look_up(publisher->config.context, question, &message);
    else
        status = rt_control_create_struct(&message, RT_MESSAGE_LOOKED_UP, SELF,
                                          rt_message_header(question)->iteration, &refused,
                                          sizeof refused, none);
    if (!status)
        status = rt_transport_send(&rt_transport_zmq, publisher->endpoint, peer, &message);
    rt_message_release(&message);
    return status;
}

// To a message that cannot be read. One of another build cannot read the answer either, but says so,
// and why.
static void refuse(dp_publisher *publisher, uint32_t peer, const char *why)
{
    const rt_wire_fetched refused = {.status = RT_WIRE};
    rt_message message;
    if (rt_message_create(&message, RT_MESSAGE_FETCHED, SELF, 0, 0, sizeof refused + strlen(why)))
        return;
    memcpy(rt_message_payload(&message), &refused, sizeof refused);
    memcpy(rt_message_payload(&message) + sizeof refused, why, strlen(why));
    (void)rt_transport_send(&rt_transport_zmq, publisher->endpoint, peer, &message);
    rt_message_release(&message);
}

static void *hand_out(void *context)
{
    dp_publisher *publisher = context;
    const rt_transport_ops *ops = &rt_transport_zmq;
    uint64_t stop = 0;
    while (read(publisher->wake_fd, &stop, sizeof stop) < 0) {
        bool ready;
        uint32_t peer = SELF;
        rt_message message = {0};
        rt_error error = {0};
        rt_status status = rt_transport_receive(ops, publisher->endpoint, &peer, &message, &error);
        if (!status && rt_message_header(&message)->type == RT_MESSAGE_FETCH)
            (void)answer(publisher, peer, &message);
        if (!status && rt_message_header(&message)->type == RT_MESSAGE_LOOK_UP)
            (void)look_up(publisher, peer, &message);
        if (status == RT_WIRE && peer != SELF)
            refuse(publisher, peer, error.text);
        rt_message_release(&message);
        if (status == RT_AGAIN)
            (void)ops->wait(&publisher->endpoint, 1, publisher->wake_fd, WAIT_MS, &ready);
    }
    return NULL;
}

static rt_status open_all(dp_publisher *publisher, rt_error *error)
{
    char address[RT_NAME_MAX + 16];
    snprintf(address, sizeof address, "tcp://%s", publisher->config.address);
    publisher->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (publisher->wake_fd < 0)
        return rt_fail(error, RT_LIMIT, "eventfd: %s", strerror(errno));
    rt_status status =
        rt_transport_open(&rt_transport_zmq, publisher->config.keys, &publisher->transport, error);
    if (status)
        return status;
    status = rt_transport_zmq.listen(publisher->transport, SELF, address, publisher->bound,
                                     &publisher->endpoint, error);
    if (status)
        return status;
    return rt_thread_run(&publisher->thread, &publisher->started, hand_out, publisher, error);
}

rt_status dp_publisher_open(const dp_publisher_config *config, dp_publisher **publisher_p,
                            rt_error *error)
{
    dp_publisher *publisher = rt_alloc(1, sizeof *publisher);
    if (!publisher)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    publisher->config = *config;
    snprintf(publisher->folder, sizeof publisher->folder, "%s", config->folder);
    if (open_all(publisher, error)) {
        dp_publisher_close(publisher);
        return rt_fail_in(error, "%s", config->key);
    }
    rt_info("published models at %s", publisher->bound);
    *publisher_p = publisher;
    return RT_OK;
}

void dp_publisher_close(dp_publisher *publisher)
{
    const uint64_t one = 1;
    if (!publisher)
        return;
    if (publisher->started && write(publisher->wake_fd, &one, sizeof one) == sizeof one)
        pthread_join(publisher->thread, NULL);
    if (publisher->endpoint)
        rt_transport_zmq.end(publisher->endpoint, LINGER_MS);
    if (publisher->transport)
        rt_transport_zmq.close(publisher->transport);
    if (publisher->wake_fd >= 0)
        close(publisher->wake_fd);
    rt_bytes_fini(&publisher->part.bytes);
    rt_free(publisher);
}
