// `lanyard set`, `forget`, `add` and `drain`: what people ask of a run that trains.
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "dispatch/coordinator/dp_members.h"
#include "dispatch/coordinator/dp_coordinator.h"
#include "edge_worker/predict/ew_cells.h"
#include "runtime/config/rt_address.h"
#include "runtime/files/rt_file.h"
#include "runtime/rt_locale.h"
#include "runtime/transport/rt_ask.h"

#define ANSWER_S 10.0
#define REACH_MS 2000      // of a coordinator that has a standby
#define CHECKPOINT_S 120.0 // for what comes with a checkpoint

typedef struct request_kind {
    const char *name, *help; // of the usage
    uint32_t words;          // after RUN
    double timeout_s;
    rt_status (*make)(const struct request_kind *kind, const rt_config *config, char **words,
                      char *request, size_t size, rt_error *error);
} request_kind;

// The configuration of RUN: a file, or running.json in the folder of a run.
static int load(const char *run, const char *const *sets, uint32_t set_count, rt_config *config)
{
    char path[RT_PATH_MAX + 32];
    struct stat info;
    const bool is_folder = stat(run, &info) == 0 && S_ISDIR(info.st_mode);
    const char *name = is_folder ? "/" DP_RUNNING : "";
    snprintf(path, sizeof path, "%s%s", run, name);
    if (is_folder && stat(path, &info) != 0) {
        rt_error error = {0};
        rt_fail(&error, RT_NOT_FOUND, "%s: no run is there: %s is missing", run, DP_RUNNING);
        return cli_fail(&error);
    }
    return cli_load_model(path, sets, set_count, "lanyard", config);
}

static rt_status ask_at(const rt_config *config, const rt_keys *keys, const char *place,
                        double timeout_s, const char *request, char text[RT_ASK_BYTES_MAX],
                        rt_error *error)
{
    char address[RT_NAME_MAX + 16];
    rt_ask_config own = {.keys = keys, .coordinator = address, .timeout_s = timeout_s};
    const rt_status status = cli_transport(config, RT_ROLE_VISITOR, 0, &own.ops, error);
    if (status)
        return status;
    snprintf(address, sizeof address, "tcp://%s", place);
    if (*config->standby &&
        own.ops == &rt_transport_zmq) { // nobody waits long for a box that is lost
        const int fd = rt_address_connect(address, REACH_MS);
        if (fd < 0)
            return rt_fail(error, RT_PEER, "the coordinator at %s: %s", place, strerror(errno));
        close(fd);
    }
    return rt_ask(&own, request, text, error);
}

// At the coordinator's address, and, where nobody answers, at that of the standby, which may have
// been promoted. keys: those of the one that is asked.
static rt_status ask_both(const rt_config *config, rt_keys *keys, double timeout_s,
                          const char *request, char text[RT_ASK_BYTES_MAX], rt_error *error)
{
    rt_error first = {0}, second = {0};
    rt_status status =
        ask_at(config, keys, config->network_coordinator, timeout_s, request, text, &first);
    const bool is_silent = status == RT_TIMEOUT || status == RT_PEER || status == RT_IO;
    if (!status || !is_silent || !*config->standby) {
        *error = first;
        return status;
    }
    keys->coordinator = keys->standby;
    status = ask_at(config, keys, config->standby, timeout_s, request, text, &second);
    if (status)
        return rt_fail(error, status, "%.200s; %.200s", first.text, second.text);
    return RT_OK;
}

static rt_status ask_with(const rt_config *config, rt_keys *keys, double timeout_s,
                          const char *request, char text[RT_ASK_BYTES_MAX], rt_error *error)
{
    const rt_status status = rt_keys_load(config, keys, error);
    if (status)
        return status;
    if (!*config->network_coordinator)
        return rt_fail(error, RT_CONFIG,
                       "network.coordinator: where does the run listen? Give it, or the folder of "
                       "the run on the coordinator's box");
    return ask_both(config, keys, timeout_s, request, text, error);
}

static rt_status ask(const rt_config *config, double timeout_s, const char *request,
                     char text[RT_ASK_BYTES_MAX], rt_error *error)
{
    rt_keys *keys = rt_alloc(1, sizeof *keys);
    if (!keys)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    const rt_status status = ask_with(config, keys, timeout_s, request, text, error);
    rt_keys_clear(keys);
    rt_free(keys);
    return status;
}

// argv: the command, RUN, one or two words, options. What cli_parse takes has one word, so the
// others are moved out of its way.
static int run(int argc, char **argv, const request_kind *kind)
{
    const char *path = NULL, *sets[CLI_SETS_MAX];
    char request[RT_ASK_BYTES_MAX], text[RT_ASK_BYTES_MAX];
    uint32_t set_count;
    rt_config config;
    rt_error error = {0};
    const int last = 1 + (int)kind->words; // before the options
    if (argc <= last || strncmp(argv[1], "--", 2) == 0) {
        fprintf(stderr, "lanyard %s: expected %s\n", kind->name, kind->help);
        return CLI_USAGE;
    }
    char *words[2] = {argv[2], argv[last]};
    argv[last] = argv[1];
    argv[last - 1] = argv[0];
    if (!cli_parse(argc - last + 1, argv + last - 1, NULL, 0, &path, sets, &set_count))
        return CLI_USAGE;
    if (strchr(words[0], '\n') || strchr(words[1], '\n')) {
        fprintf(stderr, "lanyard %s: a line end stands in an argument\n", kind->name);
        return CLI_USAGE;
    }
    int code = load(path, sets, set_count, &config);
    if (code != CLI_OK)
        return code;
    double timeout_s = kind->timeout_s;
    if (strncmp(words[0], "optimizer.", strlen("optimizer.")) == 0)
        timeout_s = CHECKPOINT_S; // rates change with a checkpoint
    rt_status status = kind->make(kind, &config, words, request, sizeof request, &error);
    if (!status)
        status = ask(&config, timeout_s, request, text, &error);
    rt_config_fini(&config);
    if (status)
        return cli_fail(&error);
    printf("%s\n", text);
    return CLI_OK;
}

// The words as they are.
static rt_status make_plain(const request_kind *kind, const rt_config *config, char **words,
                            char *request, size_t size, rt_error *error)
{
    (void)config;
    size_t used = (size_t)snprintf(request, size, "%s", kind->name);
    for (uint32_t i = 0; i < kind->words && used < size; i++)
        used += (size_t)snprintf(request + used, size - used, "\n%s", words[i]);
    if (used < size)
        return RT_OK;
    return rt_fail(error, RT_CONFIG, "%s: too long for a request", words[kind->words - 1]);
}

int cli_set(int argc, char **argv)
{
    static const request_kind kind = {"set", "RUN KEY VALUE", 2, ANSWER_S, make_plain};
    return run(argc, argv, &kind);
}

// Of the first sample.
static bool has_key(const rt_batch *batch, uint64_t key)
{
    for (uint32_t i = 0; i < batch->key_offsets[1]; i++)
        if (batch->keys[i] == key)
            return true;
    return false;
}

// Keys of the second sample that the first, without the cell, does not have.
static rt_status list_keys(const rt_batch *batch, const char *column, char *request, size_t size,
                           rt_error *error)
{
    size_t used = (size_t)snprintf(request, size, "forget\n");
    const size_t begin = used;
    for (uint32_t k = batch->key_offsets[1]; k < batch->key_offsets[2] && used < size; k++) {
        const char *comma = used == begin ? "" : ",";
        if (!has_key(batch, batch->keys[k]))
            used += (size_t)snprintf(request + used, size - used, "%s%016" PRIx64, comma,
                                     batch->keys[k]);
    }
    if (used >= size)
        return rt_fail(error, RT_CONFIG, "%s: too many values", column);
    if (used == begin)
        return rt_fail(error, RT_CONFIG,
                       "%s: has no rows of its own: it is a number, or the value is empty", column);
    return RT_OK;
}

// Two samples: one without any cell, one with this cell alone.
static rt_status append_both(ew_cells *cells, const char *column, const char *value,
                             rt_batch *batch, rt_error *error)
{
    const uint32_t index = ew_cells_find(cells, column, strlen(column));
    if (index == EW_CELL_NONE)
        return rt_fail(error, RT_CONFIG, "%s: no such column", column);
    ew_cells_clear(cells);
    const rt_status status = ew_cells_append(cells, batch, error);
    if (status)
        return status;
    ew_cells_put(cells, index, value, strlen(value));
    return ew_cells_append(cells, batch, error);
}

// The values in cells are personal: what leaves this process is the key of their row.
static rt_status make_forget(const request_kind *kind, const rt_config *config, char **words,
                             char *request, size_t size, rt_error *error)
{
    (void)kind;
    ew_cells *cells;
    rt_batch batch;
    rt_status status = ew_cells_create(config, &cells, error);
    if (status)
        return status;
    rt_batch_init(&batch, 0); // keys only
    status = append_both(cells, words[0], words[1], &batch, error);
    if (!status)
        status = list_keys(&batch, words[0], request, size, error);
    rt_batch_fini(&batch);
    ew_cells_destroy(cells);
    return status;
}

int cli_forget(int argc, char **argv)
{
    static const request_kind kind = {"forget", "RUN COLUMN VALUE", 2, ANSWER_S, make_forget};
    return run(argc, argv, &kind);
}

// ---- add -------------------------------------------------------------------------------------

// What the command line says of a box that no configuration has.
typedef struct {
    const char *gbps, *gbps_up, *gbps_down, *workers, *shards, *host, *port, *transport, *key;
} new_box;

static bool put_number(rt_json *json, const char *name, const char *text)
{
    const char *end;
    if (!text)
        return true;
    const double value = rt_locale_number(text, &end);
    if (end == text || *end || !isfinite(value)) {
        fprintf(stderr, "lanyard add: %s: %s is no number\n", name, text);
        return false;
    }
    rt_json_double(json, name, value);
    return true;
}

static void put_text(rt_json *json, const char *name, const char *text)
{
    if (text)
        rt_json_string(json, name, text);
}

// Its object in boxes, as the coordinator reads it.
static bool put_box(rt_json *json, const char *name, const new_box *box)
{
    rt_json_begin_object(json, "box");
    rt_json_string(json, "name", name);
    const bool numbers =
        put_number(json, "gbps", box->gbps) && put_number(json, "gbps_up", box->gbps_up) &&
        put_number(json, "gbps_down", box->gbps_down) &&
        put_number(json, "workers", box->workers) && put_number(json, "shards", box->shards) &&
        put_number(json, "port", box->port);
    put_text(json, "host", box->host);
    put_text(json, "transport", box->transport);
    rt_json_end_object(json);
    return numbers;
}

// The key lies in the folder of the run while the coordinator is asked: who may write there may let
// it in. path: of that file.
static rt_status lay_key(const char *run, const char *from, char path[RT_PATH_MAX + 32],
                         char text[RT_KEY_TEXT_SIZE], rt_error *error)
{
    rt_public_key key;
    char line[256];
    struct stat info;
    snprintf(path, RT_PATH_MAX + 32, "%s/" DP_ADDED_KEY, run);
    if (stat(run, &info) != 0 || !S_ISDIR(info.st_mode))
        return rt_fail(
            error, RT_CONFIG,
            "--public-key: RUN has to be the folder of the run, on the coordinator's box");
    rt_status status = rt_keys_read_public(from, &key, error);
    if (status)
        return status;
    const int length = rt_key_line(&key, line, sizeof line);
    rt_key_text(key.bytes, text);
    return rt_file_save(path, line, (size_t)length, error);
}

// key: NULL, or the box's. CLI_USAGE: box is none, and that is said.
static int make_request(const char *name, const new_box *box, const char *key,
                        char request[RT_ASK_BYTES_MAX])
{
    rt_error error = {0};
    rt_json json;
    rt_json_init(&json, 0);
    rt_json_begin_object(&json, NULL);
    const bool is_box = put_box(&json, name, box);
    put_text(&json, "key", key);
    rt_json_end_object(&json);
    const char *object = rt_json_text(&json, NULL);
    if (!object)
        rt_fail(&error, RT_NO_MEMORY, "out of memory");
    else if (snprintf(request, RT_ASK_BYTES_MAX, "add\n%s\n%s", name, object) >=
             (int)RT_ASK_BYTES_MAX)
        rt_fail(&error, RT_CONFIG, "%s: too long for a request", name);
    rt_json_fini(&json);
    if (error.status)
        return cli_fail(&error);
    return is_box ? CLI_OK : CLI_USAGE;
}

static int ask_with_key(const rt_config *config, const char *name, const new_box *box,
                        const char *key)
{
    char request[RT_ASK_BYTES_MAX], text[RT_ASK_BYTES_MAX];
    rt_error error = {0};
    const int code = make_request(name, box, key, request);
    if (code != CLI_OK)
        return code;
    if (ask(config, CHECKPOINT_S, request, text, &error))
        return cli_fail(&error);
    printf("%s\n", text);
    return CLI_OK;
}

static int ask_for_new(const char *run, const rt_config *config, const char *name,
                       const new_box *box)
{
    char key[RT_KEY_TEXT_SIZE], path[RT_PATH_MAX + 32];
    rt_error error = {0};
    if (!box->key)
        return ask_with_key(config, name, box, NULL);
    if (lay_key(run, box->key, path, key, &error))
        return cli_fail(&error);
    const int code = ask_with_key(config, name, box, key);
    (void)unlink(path);
    return code;
}

int cli_add(int argc, char **argv)
{
    static const request_kind kind = {"add", "RUN BOX", 1, CHECKPOINT_S, make_plain};
    const char *path = NULL, *sets[CLI_SETS_MAX];
    uint32_t set_count;
    rt_config config;
    new_box box = {0};
    const cli_option options[] = {
        {"gbps", &box.gbps, NULL},           {"gbps-up", &box.gbps_up, NULL},
        {"gbps-down", &box.gbps_down, NULL}, {"workers", &box.workers, NULL},
        {"shards", &box.shards, NULL},       {"host", &box.host, NULL},
        {"port", &box.port, NULL},           {"transport", &box.transport, NULL},
        {"public-key", &box.key, NULL}};
    bool is_new = false;
    for (int i = 3; i < argc; i++)
        is_new |= strncmp(argv[i], "--", 2) == 0 && strcmp(argv[i], "--set") != 0;
    if (!is_new || strncmp(argv[1], "--", 2) == 0 || strncmp(argv[2], "--", 2) == 0)
        return run(argc, argv, &kind);
    const char *const name = argv[2];
    if (strchr(name, '\n')) {
        fprintf(stderr, "lanyard add: a line end stands in an argument\n");
        return CLI_USAGE;
    }
    argv[2] = argv[1];
    argv[1] = argv[0];
    if (!cli_parse(argc - 1, argv + 1, options, RT_COUNT_OF(options), &path, sets, &set_count))
        return CLI_USAGE;
    int code = load(path, sets, set_count, &config);
    if (code != CLI_OK)
        return code;
    code = ask_for_new(path, &config, name, &box);
    rt_config_fini(&config);
    return code;
}

static rt_status make_for_good(const request_kind *kind, const rt_config *config, char **words,
                               char *request, size_t size, rt_error *error)
{
    static const char more[] = "\nfor good";
    const rt_status status = make_plain(kind, config, words, request, size - sizeof more, error);
    if (status)
        return status;
    strcat(request, more);
    return RT_OK;
}

int cli_drain(int argc, char **argv)
{
    static const char help[] = "RUN BOX [--for-good]";
    static const request_kind kind = {"drain", help, 1, CHECKPOINT_S, make_plain},
                              for_good = {"drain", help, 1, CHECKPOINT_S, make_for_good};
    int kept = 0;
    for (int i = 0; i < argc; i++)
        if (i < 3 || strcmp(argv[i], "--for-good") != 0)
            argv[kept++] = argv[i];
    if (kept < argc)
        return run(kept, argv, &for_good);
    return run(kept, argv, &kind);
}
