#include "ps_lite/ps_checkpoint.h"

#include <stdio.h>
#include <string.h>

#include "runtime/files/rt_ahead.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_file.h"
#include "runtime/rt_hash.h"

#define WRITE_LIMIT_S 900.0
#define SUM_BYTES ((size_t)1 << 20) // at a time

void ps_checkpoint_init(ps_checkpoint *checkpoint, ps_shard *shard, uint64_t schema, uint32_t rank,
                        uint32_t shard_count)
{
    *checkpoint = (ps_checkpoint){.shard = shard,
                                  .schema = schema,
                                  .rank = rank,
                                  .shard_count = shard_count,
                                  .child = {.fd = -1}};
}

void ps_checkpoint_fini(ps_checkpoint *checkpoint)
{
    rt_child_end(&checkpoint->child);
}

int ps_checkpoint_fd(const ps_checkpoint *checkpoint)
{
    return checkpoint->child.fd;
}

// ---- writing ---------------------------------------------------------------------------------

// On a box of its own this is all that removes old files of the shard.
static void remove_old(const ps_checkpoint *c)
{
    char parent[RT_FOLDER_MAX], name[64];
    uint32_t *iterations, count;
    snprintf(parent, sizeof parent, "%s", c->folder);
    char *slash = strrchr(parent, '/');
    if (!slash || rt_checkpoint_list((*slash = '\0', parent), &iterations, &count, NULL))
        return;
    snprintf(name, sizeof name, "rows-%03u-of-%03u.bin", c->rank, c->shard_count);
    for (uint32_t i = 0; i < count && iterations[i] < c->keep_from; i++)
        rt_checkpoint_remove(parent, iterations[i], name);
    rt_free(iterations);
}

// In the forked copy.
static void write_rows(void *context, rt_child_result *result)
{
    const ps_checkpoint *c = context;
    char path[RT_FOLDER_MAX + 64];
    rt_file_sum sum = {0};
    rt_file_place place = {.path = path};
    const rt_sink sink = rt_file_sink(&place);
    remove_old(c); // before: a disk may have no room for one more
    if (rt_checkpoint_make_own(c->folder, &result->error) ||
        ps_model_file_path(c->folder, c->rank, c->shard_count, path, sizeof path, &result->error) ||
        ps_shard_save(c->shard, &sink, c->schema, &c->cut, NULL, NULL, &sum, &result->error))
        return;
    result->values[0] = sum.bytes;
    result->values[1] = sum.hash;
}

rt_status ps_checkpoint_begin(ps_checkpoint *c, const rt_message *message, rt_error *error)
{
    rt_wire_cut cut;
    const uint64_t iteration = rt_message_header(message)->iteration;
    if (!rt_control_has(message, sizeof cut))
        return rt_fail(error, RT_WIRE, "coordinator: a CUT of %zu bytes, expected %zu",
                       message->size - sizeof(rt_wire_header), sizeof cut);
    memcpy(&cut, rt_message_payload(message), sizeof cut);
    if (!memchr(cut.folder, 0, sizeof cut.folder) || iteration > UINT32_MAX || cut.base > iteration)
        return rt_fail(error, RT_WIRE, "coordinator: a CUT with impossible values");
    if (c->child.fd >= 0)
        return rt_fail(error, RT_WIRE, "coordinator: a CUT while another one is being written");
    c->cut = (ps_cut){(uint32_t)iteration, cut.base};
    c->keep_from = cut.keep_from;
    memcpy(c->folder, cut.folder, sizeof c->folder);
    c->failure = (rt_error){0};
    if (!rt_child_start(&c->child, write_rows, c, WRITE_LIMIT_S, &c->failure) &&
        ps_shard_hold(c->shard, &c->failure))
        rt_child_end(&c->child); // it would see what changes from here on
    ps_shard_cut(c->shard, c->cut.iteration, c->cut.base, rt_message_header(message)->count);
    return RT_OK;
}

rt_status ps_checkpoint_poll(ps_checkpoint *c, rt_message *answer)
{
    rt_child_result result = {.error = c->failure};
    if (!c->failure.status && (c->child.fd < 0 || rt_child_poll(&c->child, &result) == RT_AGAIN))
        return RT_AGAIN;
    c->failure = (rt_error){0};
    if (!result.error.status)
        ps_shard_written(c->shard, c->cut.iteration, result.values[0], result.values[1]);
    const rt_wire_written written = {.status = result.error.status,
                                     .bytes = result.values[0],
                                     .hash = result.values[1],
                                     .ns = result.ns};
    return rt_control_create_struct(answer, RT_MESSAGE_WRITTEN, rt_peer(RT_ROLE_PS, c->rank),
                                    c->cut.iteration, &written, sizeof written, result.error.text);
}

// ---- reading ---------------------------------------------------------------------------------

typedef struct {
    ps_shard *shard;
    uint64_t schema;
    ps_progress progress;
    void *context;
    bool begins;       // with a model: files are known by XXH3
    rt_status stopped; // what progress returned
} loading;

static rt_status go_on(void *context, int wait_fd, rt_error *error)
{
    loading *l = context;
    l->stopped = RT_OK;
    if (l->progress)
        l->stopped = l->progress(l->context, wait_fd, error);
    return l->stopped;
}

// block: room for SUM_BYTES.
static rt_status sum_blocks(loading *l, rt_ahead *file, rt_hasher *hasher, uint8_t *block,
                            rt_file_sum *sum, rt_error *error)
{
    for (;;) {
        size_t got = 0;
        int wait_fd = -1;
        rt_status status = rt_ahead_take(file, block, SUM_BYTES, &got, error);
        if (status == RT_END) {
            sum->hash = rt_hasher_sum(hasher);
            return RT_OK;
        }
        if (status && status != RT_AGAIN)
            return status;
        if (status == RT_AGAIN)
            wait_fd = rt_ahead_fd(file);
        else
            rt_hasher_add(hasher, block, got);
        sum->bytes += got;
        status = go_on(l, wait_fd, error);
        if (status)
            return status;
    }
}

// XXH3 of all bytes of a file, however slow its disk is.
static rt_status sum_bytes(loading *l, const char *path, rt_file_sum *sum, rt_error *error)
{
    rt_ahead *file;
    rt_status status = rt_ahead_open(path, &file, error);
    if (status)
        return status;
    rt_hasher *hasher = rt_hasher_create();
    uint8_t *block = rt_alloc(SUM_BYTES, 1);
    if (hasher && block)
        status = sum_blocks(l, file, hasher, block, sum, error);
    else
        status = rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    rt_free(block);
    rt_hasher_destroy(hasher);
    rt_ahead_close(file);
    return status;
}

static rt_status load_file(loading *l, const rt_wire_load *load, uint32_t file, rt_error *error)
{
    char path[RT_FOLDER_MAX + 64];
    rt_file_sum sum = {0}, all = {0};
    rt_status status =
        ps_model_file_path(load->folder, file, load->shard_count, path, sizeof path, error);
    if (status)
        return status;
    if (l->begins)
        status = sum_bytes(l, path, &all, error);
    if (status)
        return status;
    status = ps_shard_load(l->shard, path, l->schema, go_on, l, &sum, error);
    if (status)
        return status;
    if (l->begins)
        sum = all;
    if (sum.bytes != load->files[file].bytes || sum.hash != load->files[file].hash)
        return rt_fail(error, RT_DATA, "%s is not the file that the manifest names", path);
    return RT_OK;
}

// *file_p: the last one that was looked at, of which an error is.
static rt_status load_files(loading *l, const rt_wire_load *load, uint32_t *file_p, rt_error *error)
{
    for (uint32_t f = 0; f < load->shard_count; f++) {
        *file_p = f;
        if (!ps_shard_wants_file(l->shard, f, load->shard_count, load->flags & RT_WIRE_LOAD_HOMES))
            continue;
        const rt_status status = load_file(l, load, f, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status ps_checkpoint_load(ps_shard *shard, const rt_message *message, uint64_t schema,
                             uint32_t rank, ps_progress progress, void *context, rt_message *answer,
                             rt_error *error)
{
    rt_wire_load load;
    rt_error found = {0};
    const uint64_t iteration = rt_message_header(message)->iteration;
    loading l = {shard, schema, progress, context, false, RT_OK};
    if (!rt_control_has(message, sizeof load))
        return rt_fail(error, RT_WIRE, "coordinator: a LOAD of %zu bytes, expected %zu",
                       message->size - sizeof(rt_wire_header), sizeof load);
    memcpy(&load, rt_message_payload(message), sizeof load);
    if (!memchr(load.folder, 0, sizeof load.folder) || load.shard_count > RT_SHARDS_MAX)
        return rt_fail(error, RT_WIRE, "coordinator: a LOAD with impossible values");
    l.begins = load.flags & RT_WIRE_LOAD_MODEL;
    uint32_t file = 0;
    const uint64_t lineage = ps_shard_begin_load(shard, &load);
    const rt_status status = load_files(&l, &load, &file, &found);
    if (l.stopped) {
        *error = found;
        return l.stopped;
    }
    ps_shard_loaded(shard, (uint32_t)iteration, status ? 0 : lineage);
    if (l.begins && !status)
        ps_shard_begin_with(shard);
    const rt_wire_written loaded = {.status = status, .file = file};
    return rt_control_create_struct(answer, RT_MESSAGE_LOADED, rt_peer(RT_ROLE_PS, rank), iteration,
                                    &loaded, sizeof loaded, found.text);
}

rt_status ps_checkpoint_keys(const ps_shard *shard, const rt_message *message, uint32_t rank,
                             rt_message *answer, rt_error *error)
{
    const uint64_t from = rt_message_header(message)->iteration;
    if (rt_message_create(answer, RT_MESSAGE_KEYS, rt_peer(RT_ROLE_PS, rank), from, 0,
                          RT_WIRE_KEYS_MAX * sizeof(rt_wire_key)))
        return rt_fail(error, RT_NO_MEMORY, "out of memory: a message");
    rt_wire_key *records = (rt_wire_key *)(void *)rt_message_payload(answer);
    const uint32_t count = ps_shard_keys(shard, from, RT_WIRE_KEYS_MAX, records);
    rt_message_finish(answer, count, count * sizeof *records);
    return RT_OK;
}
