// `lanyard set`, `forget`, `add` and `drain`: what people ask of a run that trains.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "dispatch/coordinator/dp_coordinator.h"
#include "edge_worker/predict/ew_cells.h"
#include "runtime/config/rt_address.h"
#include "runtime/transport/rt_ask.h"

#define ANSWER_S 10.0
#define REACH_MS 2000 // of a coordinator that has a standby
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
    snprintf(path, sizeof path, "%s%s", run, is_folder ? "/" DP_RUNNING : "");
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
    const bool is_ucx = config->network_transport == RT_NETWORK_UCX; // mixed: by ZeroMQ
    const rt_ask_config own = {.ops = is_ucx ? &rt_transport_ucx : &rt_transport_zmq,
                               .keys = keys,
                               .coordinator = address,
                               .timeout_s = timeout_s};
    snprintf(address, sizeof address, "tcp://%s", place);
    const int fd = *config->standby && !is_ucx ? rt_address_connect(address, REACH_MS) : -1;
    if (fd >= 0)
        close(fd);
    else if (*config->standby && !is_ucx) // nobody waits long for a box that is lost
        return rt_fail(error, RT_PEER, "the coordinator at %s: %s", place, strerror(errno));
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
    return status ? rt_fail(error, status, "%.200s; %.200s", first.text, second.text) : RT_OK;
}

static rt_status ask(const rt_config *config, double timeout_s, const char *request,
                     char text[RT_ASK_BYTES_MAX], rt_error *error)
{
    rt_keys *keys = rt_alloc(1, sizeof *keys);
    if (!keys)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    rt_status status = rt_keys_load(config, keys, error);
    if (!status && !*config->network_coordinator)
        status = rt_fail(error, RT_CONFIG,
                         "network.coordinator: where does the run listen? Give it, or the folder of "
                         "the run on the coordinator's box");
    if (!status)
        status = ask_both(config, keys, timeout_s, request, text, error);
    rt_keys_clear(keys);
    rt_free(keys);
    return status;
}

// argv: the command, RUN, one or two words, options.
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
    const bool is_rate = strncmp(words[0], "optimizer.", strlen("optimizer.")) == 0;
    rt_status status = kind->make(kind, &config, words, request, sizeof request, &error);
    if (!status)
        status = ask(&config, is_rate ? CHECKPOINT_S : kind->timeout_s, request, text, &error);
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

// Keys of the second sample that the first, without the cell, does not have.
static rt_status list_keys(const rt_batch *batch, const char *column, char *request, size_t size,
                           rt_error *error)
{
    size_t used = (size_t)snprintf(request, size, "forget\n");
    const size_t begin = used;
    for (uint32_t k = batch->key_offsets[1]; k < batch->key_offsets[2] && used < size; k++) {
        bool is_other = true;
        for (uint32_t i = 0; i < batch->key_offsets[1]; i++)
            is_other &= batch->keys[i] != batch->keys[k];
        if (is_other)
            used += (size_t)snprintf(request + used, size - used, "%s%016" PRIx64,
                                     used == begin ? "" : ",", batch->keys[k]);
    }
    if (used >= size)
        return rt_fail(error, RT_CONFIG, "%s: too many values", column);
    if (used == begin)
        return rt_fail(error, RT_CONFIG,
                       "%s: has no rows of its own: it is a number, or the value is empty", column);
    return RT_OK;
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
    const uint32_t index = ew_cells_find(cells, words[0], strlen(words[0]));
    if (index == EW_CELL_NONE)
        status = rt_fail(error, RT_CONFIG, "%s: no such column", words[0]);
    ew_cells_clear(cells);
    if (!status)
        status = ew_cells_append(cells, &batch, error);
    if (!status) {
        ew_cells_put(cells, index, words[1], strlen(words[1]));
        status = ew_cells_append(cells, &batch, error);
    }
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

int cli_add(int argc, char **argv)
{
    static const request_kind kind = {"add", "RUN BOX", 1, CHECKPOINT_S, make_plain};
    return run(argc, argv, &kind);
}

int cli_drain(int argc, char **argv)
{
    static const request_kind kind = {"drain", "RUN BOX", 1, CHECKPOINT_S, make_plain};
    return run(argc, argv, &kind);
}
