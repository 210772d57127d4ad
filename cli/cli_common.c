// What commands share: their arguments, configurations, what members of a run agree on.
#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cli/cli.h"
#include "edge_worker/model/ew_count.h"
#include "runtime/config/rt_sources.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/numbers/rt_coding.h"
#include "runtime/rt_edit.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_priority.h"

static const cli_option *find_option(const char *argument, const cli_option *options,
                                     size_t option_count)
{
    for (size_t i = 0; i < option_count; i++)
        if (strcmp(argument + 2, options[i].name) == 0)
            return &options[i];
    return NULL;
}

static bool wrong(const char *command, const char *what, const char *argument)
{
    fprintf(stderr, "lanyard %s: %s \"%s\" (see lanyard %s --help)\n", command, what, argument,
            command);
    return false;
}

// The name of an option ends where its value begins: "--out=run".
static size_t name_length(const char *argument)
{
    return strcspn(argument + 2, "=");
}

// What else may have been meant: an option of nearly that name, or one with its value behind "=";
// or a key, whose value --set gives.
static bool refuse_option(const char *command, const char *argument, const cli_option *options,
                          size_t option_count)
{
    const size_t length = name_length(argument);
    const char *nearest = NULL, *value = argument + 2 + length;
    uint32_t least = rt_edit_limit(length);
    char key[RT_NAME_MAX];
    snprintf(key, sizeof key, "%.*s", (int)length, argument + 2);
    if (strchr(key, '.') || rt_config_key_help(key)) {
        fprintf(stderr, "lanyard %s: unknown option \"%s\": a key is given by --set %.*s%s\n",
                command, argument, (int)length, argument + 2, *value ? value : "=VALUE");
        return false;
    }
    for (size_t i = 0; i < option_count; i++) {
        const char *name = options[i].name;
        const uint32_t far = rt_edit_distance(argument + 2, length, name, strlen(name));
        if (far >= least)
            continue;
        nearest = name;
        least = far;
    }
    if (!nearest)
        return wrong(command, "unknown option", argument);
    fprintf(
        stderr,
        "lanyard %s: unknown option \"%s\", did you mean \"--%s%s%s\"? (see lanyard %s --help)\n",
        command, argument, nearest, *value ? " " : "", *value ? value + 1 : "", command);
    return false;
}

// A second argument: an assignment without --set, or the rows that are meant.
static bool refuse_argument(const char *command, const char *argument)
{
    const char *equals = strchr(argument, '=');
    if (equals && equals > argument) {
        fprintf(stderr, "lanyard %s: unexpected argument \"%s\", did you mean --set %s?\n", command,
                argument, argument);
        return false;
    }
    if (access(argument, F_OK) != 0)
        return wrong(command, "unexpected argument", argument);
    fprintf(
        stderr,
        "lanyard %s: unexpected argument \"%s\": files of rows are given by --set stream.files=%s\n",
        command, argument, argument);
    return false;
}

bool cli_parse(int argc, char **argv, const cli_option *options, size_t option_count,
               const char **path, const char **sets, uint32_t *set_count)
{
    const char *assignment = NULL;
    const cli_option set = {"set", &assignment, NULL};
    *set_count = 0;
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (strncmp(argument, "--", 2) != 0) {
            if (*path)
                return refuse_argument(argv[0], argument);
            *path = argument;
            continue;
        }
        const cli_option *option = &set;
        if (strcmp(argument, "--set") != 0)
            option = find_option(argument, options, option_count);
        if (!option)
            return refuse_option(argv[0], argument, options, option_count);
        if (option->flag) {
            *option->flag = true;
            continue;
        }
        if (++i == argc || argv[i][0] == '\0')
            return wrong(argv[0], "a value is missing after", argument);
        *option->value = argv[i];
        if (option != &set)
            continue;
        if (*set_count == CLI_SETS_MAX)
            return wrong(argv[0], "too many assignments, the first too many is", assignment);
        sets[(*set_count)++] = assignment;
    }
    return true;
}

bool cli_address(const char *given, char *address, size_t size)
{
    const char *scheme = strstr(given, "://") ? "" : "tcp://";
    if ((size_t)snprintf(address, size, "%s%s", scheme, given) < size)
        return true;
    fprintf(stderr, "lanyard: %s: an address has at most %zu characters\n", given, size - 1);
    return false;
}

bool cli_reader_has_gone(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP));
}

int cli_fail(const rt_error *error)
{
    rt_error_log("%s", error->text);
    return CLI_FAILED;
}

int cli_end(rt_status status, const rt_error *error)
{
    if (status)
        return cli_fail(error);
    return CLI_OK;
}

bool cli_number(const char *command, const char *option, const char *text, uint64_t least,
                uint64_t *number_p)
{
    char *end;
    if (!text)
        return true;
    errno = 0;
    const uint64_t number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || number < least) {
        fprintf(stderr, "lanyard %s: --%s \"%s\": expected a whole number from %" PRIu64 "\n",
                command, option, text, least);
        return false;
    }
    *number_p = number;
    return true;
}

bool cli_holds_rows(const char *path)
{
    char bytes[16384];
    FILE *file = fopen(path, "rb");
    const size_t count = file ? fread(bytes, 1, sizeof bytes - 1, file) : 0;
    if (file)
        fclose(file);
    bytes[count] = '\0';
    const bool has_mark = count >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0;
    const char *begin = bytes + 3 * has_mark;
    begin += strspn(begin, " \t\r\n");
    return count > 0 && (*begin != '{' || strstr(begin, "}\n{") || strstr(begin, "}\r\n{"));
}

static int fail_config(const char *path, rt_error *error)
{
    (void)cli_fail(error);
    if (cli_holds_rows(path))
        fprintf(stderr, "If %s holds rows to train on: lanyard init %s > run.json\n", path, path);
    return CLI_FAILED;
}

typedef rt_status check_config(const rt_config *config, rt_error *error);

static int load(const char *path, const char *const *sets, uint32_t set_count, const char *name,
                check_config *check, rt_config *config)
{
    rt_error error = {0};
    rt_log_setup(RT_LOG_INFO, name);
    if (!path) {
        fprintf(stderr, "lanyard: which CONFIG? (see lanyard --help)\n");
        return CLI_USAGE;
    }
    if (rt_config_open(path, sets, set_count, config, &error))
        return fail_config(path, &error);
    if (check(config, &error)) {
        rt_config_fini(config);
        return cli_fail(&error);
    }
    rt_log_setup(config->log_level, name);
    prctl(PR_SET_NAME, name); // what ps and top show
    return CLI_OK;
}

int cli_load(const char *path, const char *const *sets, uint32_t set_count, const char *name,
             rt_config *config)
{
    return load(path, sets, set_count, name, rt_config_check, config);
}

int cli_load_model(const char *path, const char *const *sets, uint32_t set_count, const char *name,
                   rt_config *config)
{
    return load(path, sets, set_count, name, rt_config_check_model, config);
}

const char *cli_model_of(const char *folder, char model[RT_PATH_MAX])
{
    static const char *const inside[] = {"model/config.json", "published/current.json",
                                         "published/lock"};
    static const char *const own[] = {"config.json", "current.json"};
    for (size_t i = 0; i < RT_COUNT_OF(own); i++)
        if (snprintf(model, RT_PATH_MAX, "%s/%s", folder, own[i]) >= (int)RT_PATH_MAX ||
            access(model, F_OK) == 0)
            return folder;
    for (size_t i = 0; i < RT_COUNT_OF(inside); i++) {
        if (snprintf(model, RT_PATH_MAX, "%s/%s", folder, inside[i]) >= (int)RT_PATH_MAX ||
            access(model, F_OK) != 0)
            continue;
        *strrchr(model, '/') = '\0';
        return model;
    }
    return folder;
}

int cli_open_source(const char *folder, const char *const *sets, uint32_t set_count,
                    bool reads_input, rt_config *config, ew_source *source)
{
    rt_error error = {0};
    static char model[RT_PATH_MAX]; // source keeps it; one at a time, of main's thread
    rt_log_setup(RT_LOG_INFO, "lanyard");
    folder = cli_model_of(folder, model);
    if (ew_source_open(folder, sets, set_count, reads_input, config, source, &error))
        return cli_fail(&error);
    rt_log_setup(config->log_level, "lanyard");
    prctl(PR_SET_NAME, "lanyard");
    return CLI_OK;
}

int cli_load_run(const char *path, const char *const *sets, uint32_t set_count, const char *name,
                 rt_config *config)
{
    rt_error error = {0};
    int code = cli_load(path, sets, set_count, name, config);
    if (code != CLI_OK || rt_config_check_training(config, &error) == RT_OK)
        return code;
    rt_config_fini(config);
    return cli_fail(&error);
}

bool cli_sets(const char *const *sets, uint32_t set_count, const char *key)
{
    const size_t length = strlen(key);
    for (uint32_t i = 0; i < set_count; i++)
        if ((strncmp(sets[i], key, length) == 0 && sets[i][length] == '=') ||
            strncmp(sets[i], "stream=", strlen("stream=")) == 0)
            return true;
    return false;
}

static rt_status fail_without_end(const char *section, const char *files, rt_error *error)
{
    return rt_fail(error, RT_CONFIG,
                   "%s.source: \"kafka\" has no end: set stream.samples_max, or read files: --set "
                   "%s.source=file --set %s=...",
                   section, section, files);
}

rt_status cli_end_input(rt_config *config, bool is_bounded, rt_error *error)
{
    rt_stream_config *stream = &config->stream;
    rt_join_config *join = &stream->join;
    const bool joins = rt_config_has_join(stream) && !stream->labels_optional;
    if (rt_format_is_generated(stream->format))
        return RT_OK;
    if (stream->source == RT_SOURCE_FOLLOW) {
        rt_info("%s is read to its present end", stream->files[0]);
        stream->source = RT_SOURCE_FILE;
    }
    if (join->source == RT_SOURCE_FOLLOW)
        join->source = RT_SOURCE_FILE;
    stream->fifo_ends = true;
    if (is_bounded || stream->samples_max)
        return RT_OK;
    if (stream->source == RT_SOURCE_KAFKA)
        return fail_without_end("stream", "stream.files", error);
    if (joins && join->source == RT_SOURCE_KAFKA)
        return fail_without_end("stream.join", "stream.join.outcomes", error);
    return RT_OK;
}

int cli_open_stop_fd(void)
{
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGINT);
    sigaddset(&stop, SIGTERM);
    if (sigprocmask(SIG_BLOCK, &stop, NULL) != 0)
        return -1;
    return signalfd(-1, &stop, SFD_NONBLOCK | SFD_CLOEXEC);
}

void cli_give_way(const rt_config *config)
{
    rt_error error = {0};
    if (config->compute.idle && rt_priority_idle(&error))
        rt_warn("compute.idle: %s", error.text);
}

// JSON of what boxes share; NULL: out of memory.
static char *shared_json(const rt_config *config)
{
    char *json;
    rt_config shared;
    if (rt_config_copy(config, &shared))
        return NULL;
    rt_config_leave_last_spares(&shared); // boxes that were added later are not in every file
    char *const own[] = {shared.network_bind,        shared.network_interface,
                         shared.security_key,        shared.security_allow,
                         shared.security_server_key, shared.security_standby_key};
    for (size_t i = 0; i < RT_COUNT_OF(own); i++)
        *own[i] = '\0';
    shared.compute.threads = 0; // likewise
    shared.compute.nice = 0;    // likewise
    shared.planner_threads = 0; // likewise
    shared.compute.idle = false;
    shared.sim_iterations = 0; // when a run ends is the coordinator's, and it may go on later
    shared.sim_warmup = 0;
    shared.stream.samples_max = 0;
    shared.watch = (rt_watch_config){0};
    shared.alerts = (rt_alerts_config){0};
    const rt_status status = rt_config_to_json(&shared, &json);
    rt_config_fini(&shared);
    if (status)
        return NULL;
    return json;
}

// text: NULL, out of memory, has 0.
static uint64_t hash_of(const char *text)
{
    if (!text)
        return 0;
    return rt_hash_bytes(text, strlen(text));
}

uint64_t cli_config_hash(const rt_config *config)
{
    char *json = shared_json(config);
    const uint64_t hash = hash_of(json);
    rt_free(json);
    return hash;
}

rt_status cli_transport(const rt_config *config, rt_role role, uint32_t rank,
                        const rt_transport_ops **ops_p, rt_error *error)
{
    rt_network_transport kind = config->network_transport;
    const bool is_mixed = kind == RT_NETWORK_MIXED;
    if (is_mixed &&
        (role == RT_ROLE_VISITOR ||
         (role == RT_ROLE_WORKER && config->links.workers[rank].transport == RT_NETWORK_ZMQ)))
        kind = RT_NETWORK_ZMQ;
    return rt_transport_find(kind, ops_p, error);
}

// Takes out of an object what stands in the other one too.
static void take_out(cJSON *object, const cJSON *other)
{
    for (cJSON *item = object->child, *next; item; item = next) {
        const cJSON *same = cJSON_GetObjectItemCaseSensitive(other, item->string);
        next = item->next;
        if (cJSON_IsObject(item) && cJSON_IsObject(same))
            take_out(item, same);
        if (same && (cJSON_Compare(item, same, true) || (cJSON_IsObject(item) && !item->child)))
            cJSON_Delete(cJSON_DetachItemViaPointer(object, item));
    }
}

// The tree of shared_json; NULL: out of memory.
static cJSON *shared_tree(const rt_config *config)
{
    char *json = shared_json(config);
    cJSON *tree = cJSON_Parse(json);
    rt_free(json);
    return tree;
}

// Of the keys that differ from the defaults; 0: out of memory.
static uint64_t given_hash(const rt_config *config)
{
    rt_config defaults;
    if (rt_config_init(&defaults))
        return 0;
    char *text = NULL;
    cJSON *given = shared_tree(config), *other = shared_tree(&defaults);
    if (given && other) {
        take_out(given, other);
        text = cJSON_PrintUnformatted(given);
    }
    const uint64_t hash = hash_of(text);
    cJSON_free(text);
    cJSON_Delete(given);
    cJSON_Delete(other);
    rt_config_fini(&defaults);
    return hash;
}

rt_identity cli_identity(const rt_config *config)
{
    return (rt_identity){cli_config_hash(config), given_hash(config), RT_MANIFEST_FORMAT};
}

bool cli_may_shrink(const rt_config *config)
{
    return config->on_worker_loss == RT_LOSS_SHRINK && config->collective != RT_COLLECTIVE_MPI;
}

rt_status cli_schema(const rt_config *config, rt_schema *schema, rt_error *error)
{
    return rt_stream_read_schema(&config->stream, config->seed, schema, error);
}

// Rows of different lengths: the dense weights depend on the sum of the lengths where rows stand
// side by side, and on the one length where they are added up or multiplied.
static rt_status dense_inputs(ew_model_config *one, rt_error *error)
{
    rt_model_config *model = &one->model;
    rt_config config = {.model = *model};
    uint32_t sum = 0;
    if (rt_config_check_training(&config, NULL) == RT_OK)
        return RT_OK;
    if (!rt_model_takes(model->kind, RT_TAKES_LENGTHS))
        return rt_fail(error, RT_CONFIG,
                       "model.embedding_dim: this model needs rows of one length (sim.dense=false "
                       "leaves the model out)");
    for (uint32_t f = 0; f < model->embedding_dim_count; f++)
        sum += model->embedding_dims[f];
    model->embedding_dim = sum;
    one->field_count = 1;
    return RT_OK;
}

ew_model_config cli_model(const rt_config *config, const rt_schema *schema)
{
    const uint32_t samples = rt_config_share(config);
    ew_model_config model = {.model = config->model,
                             .optimizer = config->optimizer_dense,
                             .seed = config->seed,
                             .dense_count = schema->dense_count,
                             .more_labels = schema->label_count - 1,
                             .class_count = schema->class_count,
                             .sample_count_max = samples,
                             .lookup_count_max = samples * schema->keys_per_sample_max,
                             .row_count_max = samples * schema->keys_per_sample_max};
    ew_model_fields(&model, schema);
    return model;
}

rt_status cli_dense_bytes(const rt_config *config, const rt_schema *schema, uint64_t *bytes_p,
                          rt_error *error)
{
    ew_model_counts counts;
    ew_model_config one = cli_model(config, schema);
    one.sample_count_max = 1;
    one.lookup_count_max = one.row_count_max = schema->keys_per_sample_max;
    rt_status status = dense_inputs(&one, error);
    if (status)
        return status;
    status = ew_count_model(&one, &config->optimizer_rows, 1, &counts, error);
    if (status)
        return status;
    *bytes_p = rt_coding_dense_bytes(config->dense_wire, counts.parameter_count);
    return RT_OK;
}
