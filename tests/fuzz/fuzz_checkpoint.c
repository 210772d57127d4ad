// libFuzzer: checkpoints, damaged, as --resume and `lanyard eval` read them.
//
// The target writes small checkpoints itself: one with all rows, one with changes that builds on
// it. An input names one of their files and changes it. What is left of the input is edits of four
// bytes each, or all of the file. "Sealed" inputs get their checksums, and the manifest its sums,
// made right again, so that what is behind the checksums is reached: any value there must end in an
// error or in a state that can be planned on from. The others must be noticed as damaged.
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "dispatch/coordinator/dp_saved.h"
#include "dispatch/coordinator/dp_stats.h"
#include "dispatch/planner/dp_setup.h"
#include "dispatch/planner/dp_snapshot.h"
#include "edge_worker/model/ew_model.h"
#include "ps_lite/ps_checkpoint.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_file.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"
#include "runtime/stream/rt_position.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define BASE 6u // iterations of the two checkpoints
#define NEWEST 12u
#define SAMPLES 8u // of a batch
#define PLANNED_ON 3u
#define STATE_NAME "optimizer.state"
#define FILE_BYTES_MAX (1u << 20)

typedef enum { MANIFEST, PLANNER, DENSE, ROWS, BASE_MANIFEST, BASE_ROWS, PART_COUNT } part_kind;

typedef struct {
    char path[RT_FOLDER_MAX + 64];
    rt_bytes bytes; // of the file as it was written
    rt_file_sum sum;
} part;

// One configuration and its two checkpoints.
typedef struct {
    rt_config config, eval_config;
    rt_schema schema;
    dp_planner_config planner;
    char folder[64];
    rt_bytes state; // planner.bin before packing: what the planner knew, then the sums of the run
    rt_bytes texts[2];      // manifests of NEWEST and BASE before they are signed
    size_t planned_size;    // of the state before the sums
    part parts[PART_COUNT]; // planner.bin without the sums, which are long and read last
    dp_stats *stats;        // loaded over and over: what an input leaves there means nothing
    ew_model *model;
} fixture;

static const char *const settings[][8] = {
    {"dispatch.policy=esd", "dispatch.alpha=0.5", "cache.eviction=emark",
     "optimizer.rows.name=sgd"},
    {"dispatch.policy=laia", "dispatch.tables=2", "cache.eviction=lru",
     "optimizer.rows.name=adagrad"},
    {"dispatch.policy=makespan", "dispatch.micro_batch_max=6", "cache.eviction=lfu",
     "cache.lookahead=2", "optimizer.dense.name=adam"},
};
#define FIXTURES RT_COUNT_OF(settings)

static fixture fixtures[FIXTURES];
static ew_device device;

static void must(rt_status status, const rt_error *error)
{
    if (status) {
        fprintf(stderr, "%s: %s\n", rt_status_text(status), error->text);
        abort();
    }
}

// ---- files -----------------------------------------------------------------------------------

static void write_file(const char *path, const void *bytes, size_t size)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    rt_assert(file >= 0 && write(file, bytes, size) == (ssize_t)size);
    close(file);
}

static void read_file(const char *path, rt_bytes *bytes)
{
    uint8_t block[4096];
    size_t got;
    FILE *file = fopen(path, "rb");
    rt_assert(file);
    bytes->size = 0;
    while ((got = fread(block, 1, sizeof block, file)) > 0)
        rt_bytes_put(bytes, block, got);
    fclose(file);
}

static void put_number(uint8_t *bytes, size_t size, size_t at, uint64_t value, size_t width)
{
    if (at + width <= size)
        memcpy(bytes + at, &value, width);
}

static uint64_t get_number(const uint8_t *bytes, size_t size, size_t at, size_t width)
{
    uint64_t value = 0;
    if (at <= size && width <= size - at)
        memcpy(&value, bytes + at, width);
    return value;
}

// ---- checksums made right (docs/MODEL_FORMAT.md has the places) --------------------------------

static void seal_rows(uint8_t *bytes, size_t size, rt_file_sum *sum)
{
    enum { HEADER = 72, BLOCK = 24 };
    *sum = (rt_file_sum){0};
    if (size < HEADER)
        return;
    uint64_t hash = rt_hash_bytes(bytes, HEADER - 8);
    put_number(bytes, size, HEADER - 8, hash, 8);
    *sum = (rt_file_sum){HEADER, rt_mix(hash)};
    for (size_t at = HEADER; at + BLOCK <= size;) {
        size_t stored = get_number(bytes, size, at + 16, 4);
        if (stored > size - at - BLOCK)
            return;
        hash = rt_hash_bytes(bytes + at + 8, BLOCK - 8 + stored);
        put_number(bytes, size, at, hash, 8);
        *sum = (rt_file_sum){sum->bytes + BLOCK + stored, rt_mix(sum->hash ^ hash)};
        at += BLOCK + stored;
    }
}

static void seal_dense(uint8_t *bytes, size_t size, rt_file_sum *sum)
{
    enum { HEADER = 32, ENTRY = 128 };
    const size_t count = get_number(bytes, size, 12, 4);
    put_number(bytes, size, 16, size, 8);
    for (size_t i = 0; i < count && HEADER + (i + 1) * ENTRY <= size; i++) {
        const size_t entry = HEADER + i * ENTRY;
        const uint64_t at = get_number(bytes, size, entry + 104, 8);
        const uint64_t values = get_number(bytes, size, entry + 112, 8);
        if (at <= size && values <= (size - at) / sizeof(float))
            put_number(bytes, size, entry + 120, rt_hash_bytes(bytes + at, values * sizeof(float)),
                       8);
    }
    if (size >= HEADER && count <= (size - HEADER) / ENTRY)
        put_number(bytes, size, 24, rt_hash_bytes(bytes + HEADER, count * ENTRY), 8);
    *sum = (rt_file_sum){size, rt_hash_bytes(bytes, size)};
}

static void put_part(rt_bytes *text, const char *name, const rt_file_sum *sum, const char *end)
{
    char line[160];
    int length =
        snprintf(line, sizeof line,
                 "{\"name\": \"%s\", \"bytes\": %" PRIu64 ", \"hash\": \"%016" PRIx64 "\"}%s", name,
                 sum->bytes, sum->hash, end);
    rt_bytes_put(text, line, (size_t)length);
}

static void write_manifest_text(const fixture *f, uint32_t iteration, uint32_t base,
                                const rt_file_sum sums[3], rt_bytes *text)
{
    char head[400];
    int length = snprintf(head, sizeof head,
                          "{\"format\": 1, \"iteration\": %" PRIu32 ", \"base\": %" PRIu32
                          ", \"samples\": %u, \"epoch\": 1, \"workers\": %" PRIu32
                          ", \"shards\": 1, \"schema\": \"%016" PRIx64 "\", \"config\": "
                          "\"%016" PRIx64 "\", \"parts\": [",
                          iteration, base, iteration * SAMPLES, f->config.worker_count,
                          rt_config_schema(&f->config), cli_config_hash(&f->config));
    rt_bytes_put(text, head, (size_t)length);
    put_part(text, "rows-000-of-001.bin", &sums[0], ", ");
    put_part(text, "planner.bin", &sums[1], ", ");
    put_part(text, "dense.bin", &sums[2], "]}");
    rt_bytes_put(text, "", 1); // terminated, as rt_manifest_sign takes it
    rt_assert(!text->failed);
}

static void write_signed(const part *manifest, const uint8_t *text)
{
    rt_bytes bytes = {0};
    rt_manifest_sign((const char *)text, &bytes);
    rt_assert(!bytes.failed);
    write_file(manifest->path, bytes.data, bytes.size);
    rt_bytes_fini(&bytes);
}

// ---- two checkpoints --------------------------------------------------------------------------

// Some blank lines in between, which a position in the stream remembers.
static void make_samples(fixture *f)
{
    char path[100];
    snprintf(f->folder, sizeof f->folder, "%s/lanyard-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    rt_assert(mkdtemp(f->folder));
    snprintf(path, sizeof path, "%s/samples", f->folder);
    FILE *file = fopen(path, "w");
    rt_assert(file);
    for (uint32_t i = 0; i < SAMPLES * (NEWEST + PLANNED_ON + 2); i++)
        fprintf(file, "%u,%c%u,0.%u,%u\n%s", i * i % 37, 'a' + (int)(i % 5), i % 7, i % 10,
                i % 3 == 0, i % SAMPLES == SAMPLES - 1 ? "\n" : "");
    rt_assert(fclose(file) == 0);
}

static void make_config(fixture *f, size_t index)
{
    static const char *const common[] = {
        "workers=2",
        "batch.samples_per_worker=4",
        "stream.format=table",
        "stream.table.columns=[{\"name\": \"u\", \"kind\": \"categorical\", \"id\": \"number\"},"
        "{\"name\": \"v\", \"kind\": \"categorical\", \"id\": \"hash\"},"
        "{\"name\": \"x\", \"kind\": \"dense\"}, {\"name\": \"y\", \"kind\": \"label\"}]",
        "model.embedding_dim=2",
        "model.mlp=[2]",
        "cache.rows=24",
        "ps.memory_bytes_max=67108864"};
    rt_error error = {0};
    must(rt_config_init(&f->config), &error);
    for (size_t i = 0; i < RT_COUNT_OF(common); i++)
        must(rt_config_set(&f->config, common[i], &error), &error);
    for (size_t i = 0; settings[index][i]; i++)
        must(rt_config_set(&f->config, settings[index][i], &error), &error);
    char files[100];
    snprintf(files, sizeof files, "stream.files=%s/samples", f->folder);
    must(rt_config_set(&f->config, files, &error), &error);
    must(rt_config_check(&f->config, &error), &error);
    must(rt_config_copy(&f->config, &f->eval_config), &error);
    must(rt_config_set(&f->eval_config, "stream.samples_max=8", &error), &error);
    must(rt_stream_read_schema(&f->config.stream, f->config.seed, &f->schema, &error), &error);
    must(dp_setup(&f->config, &f->schema, 0, &f->planner, &error), &error);
}

static void make_folders(fixture *f)
{
    static const struct {
        uint32_t iteration;
        const char *name;
    } places[] = {
        [MANIFEST] = {NEWEST, "manifest.json"},    [PLANNER] = {NEWEST, "planner.bin"},
        [DENSE] = {NEWEST, "dense.bin"},           [ROWS] = {NEWEST, "rows-000-of-001.bin"},
        [BASE_MANIFEST] = {BASE, "manifest.json"}, [BASE_ROWS] = {BASE, "rows-000-of-001.bin"}};
    for (size_t i = 0; i < PART_COUNT; i++) {
        char path[RT_FOLDER_MAX];
        rt_error error = {0};
        must(rt_checkpoint_path(f->folder, places[i].iteration, path, sizeof path, &error), &error);
        (void)mkdir(path, 0700);
        snprintf(f->parts[i].path, sizeof f->parts[i].path, "%s/%s", path, places[i].name);
        if (i == MANIFEST)
            must(dp_checkpoint_write_config(&f->eval_config, path, NULL, &error), &error);
    }
}

// The rows that the shards would hold at a cut: every key that was trained.
static void write_rows(const fixture *f, const dp_planner *planner, uint32_t iteration,
                       uint32_t base, const char *path, rt_file_sum *sum)
{
    const dp_directory *directory = dp_planner_directory(planner);
    const uint32_t dim = f->config.model.embedding_dim;
    const ps_model_info info = {.schema = rt_config_schema(&f->config),
                                .shard_count = 1,
                                .dim = dim,
                                .state_floats =
                                    rt_optimizer_state_floats(&f->config.optimizer_rows, dim),
                                .optimizer = f->config.optimizer_rows.kind,
                                .iteration = iteration,
                                .base = base,
                                .packed = f == fixtures};
    const ps_table_config sizes = {.row_floats = info.dim + info.state_floats,
                                   .memory_bytes_max = 1 << 24};
    ps_table *table;
    rt_error error = {0};
    must(ps_table_create(&sizes, &table), &error);
    for (uint64_t i = 0; i <= directory->mask; i++) {
        const dp_entry *entry = &directory->entries[i];
        uint32_t version =
            entry->record ? directory->records[entry->record - 1].version : entry->version;
        if (version == 0)
            continue;
        must(ps_table_reserve(table, 1, &error), &error);
        ps_entry *row = ps_table_insert(table, entry->key);
        row->version = version;
        memset(ps_table_row(table, row), 0, sizes.row_floats * sizeof(float));
    }
    rt_file_place place = {.path = path};
    const rt_sink sink = rt_file_sink(&place);
    must(ps_snapshot_write(table, &info, &sink, NULL, NULL, sum, &error), &error);
    ps_table_destroy(table);
}

static ew_model *create_model(const fixture *f)
{
    const uint32_t lookups = SAMPLES * f->schema.keys_per_sample_max;
    const ew_model_config config = {.model = f->config.model,
                                    .optimizer = f->config.optimizer_dense,
                                    .seed = f->config.seed,
                                    .dense_count = f->schema.dense_count,
                                    .field_count = f->schema.field_count,
                                    .sample_count_max = SAMPLES,
                                    .lookup_count_max = lookups,
                                    .row_count_max = lookups};
    ew_model *model;
    rt_error error = {0};
    must(ew_model_create(&config, &device, &model, &error), &error);
    return model;
}

// As ew_trainer_get_state writes it.
static void write_dense(const fixture *f, const char *path, rt_file_sum *sum)
{
    rt_tensor tensors[64];
    uint32_t count = 0, values, states;
    const float *from = ew_model_dense(f->model, EW_VALUES, &values);
    const float *state = ew_model_dense(f->model, EW_OPTIMIZER_STATE, &states);
    rt_bytes bytes = {0};
    while (ew_model_tensor(f->model, count, from, &tensors[count]))
        count++;
    tensors[count] = (rt_tensor){.rank = 1, .shape = {states}, .values = state};
    strcpy(tensors[count++].name, STATE_NAME);
    must(rt_tensors_encode(tensors, count, &bytes), &(rt_error){0});
    *sum = (rt_file_sum){bytes.size, rt_hash_bytes(bytes.data, bytes.size)};
    write_file(path, bytes.data, bytes.size);
    rt_bytes_fini(&bytes);
}

static dp_stats *create_stats(const fixture *f)
{
    dp_stats_config config = {.config = &f->config, .dense_count = f->schema.dense_count};
    dp_stats *stats;
    rt_error error = {0};
    dp_account_init(&f->planner, &config.costs);
    must(dp_stats_create(&config, &stats, &error), &error);
    return stats;
}

// As dp_cut gathers it: what the planner knew, then the sums of the run.
static void save_state(fixture *f, const dp_planner *planner, const rt_stream *stream)
{
    rt_bytes planned = {0};
    rt_bytes position = {0};
    rt_stream_tell(stream, &position);
    rt_bytes_put(&planned, position.data, position.size);
    rt_bytes_fini(&position);
    dp_planner_save(planner, &(rt_bytes){0}, &planned);
    rt_bytes_put_u64(&f->state, planned.size);
    rt_bytes_put(&f->state, planned.data, planned.size);
    f->planned_size = f->state.size;
    dp_stats_save(f->stats, &f->state);
    rt_assert(!planned.failed && !f->state.failed);
    rt_bytes_fini(&planned);
}

static void plan_batches(dp_planner *planner, rt_stream *stream, uint32_t count)
{
    const dp_plan *plan;
    rt_batch batch;
    rt_error error = {0};
    rt_batch_init(&batch, rt_stream_schema(stream)->dense_count);
    for (uint32_t i = 0; i < count && !rt_stream_read(stream, &batch, SAMPLES, &error); i++) {
        must(dp_planner_preview(planner, &batch), &error);
        must(dp_planner_look_up(planner, &batch), &error);
        dp_planner_place(planner);
        must(dp_planner_commit(planner, &plan), &error);
    }
    must(dp_planner_flush(planner, &plan), &error);
    if (!dp_planner_legal(planner, &error))
        must(RT_DATA, &error);
    rt_batch_fini(&batch);
}

static void make_checkpoints(fixture *f, size_t index)
{
    dp_planner *planner;
    rt_stream *stream;
    rt_error error = {0};
    part *parts = f->parts;
    make_samples(f);
    make_config(f, index);
    make_folders(f);
    f->stats = create_stats(f);
    f->model = create_model(f);
    must(dp_planner_create(&f->planner, &planner, &error), &error);
    must(rt_stream_open(&f->config.stream, f->config.seed, &stream, &error), &error);
    plan_batches(planner, stream, BASE);
    write_rows(f, planner, BASE, 0, parts[BASE_ROWS].path, &parts[BASE_ROWS].sum);
    plan_batches(planner, stream, NEWEST - BASE);
    write_rows(f, planner, NEWEST, BASE, parts[ROWS].path, &parts[ROWS].sum);
    save_state(f, planner, stream);
    must(rt_pack_write(parts[PLANNER].path, DP_CHECKPOINT_MAGIC, f->state.data, f->planned_size,
                       &parts[PLANNER].sum, &error),
         &error);
    write_dense(f, parts[DENSE].path, &parts[DENSE].sum);
    const rt_file_sum newest[] = {parts[ROWS].sum, parts[PLANNER].sum, parts[DENSE].sum};
    const rt_file_sum base[] = {parts[BASE_ROWS].sum, newest[1], newest[2]}; // not looked at
    write_manifest_text(f, NEWEST, BASE, newest, &f->texts[0]);
    write_manifest_text(f, BASE, 0, base, &f->texts[1]);
    write_signed(&parts[MANIFEST], f->texts[0].data);
    write_signed(&parts[BASE_MANIFEST], f->texts[1].data);
    for (size_t i = 0; i < PART_COUNT; i++)
        read_file(parts[i].path, &parts[i].bytes);
    rt_stream_close(stream);
    dp_planner_destroy(planner);
}

// ---- resuming: what coordinator, shard and workers do with the files ---------------------------

static bool load_rows(const fixture *f, const dp_saved *saved, ps_shard *shard)
{
    rt_wire_written loaded = {.status = RT_OK};
    for (uint32_t i = 0; i < saved->count && !loaded.status; i++) {
        rt_message order, answer;
        rt_error error = {0};
        rt_wire_load load = saved->loads[i];
        load.flags = i == 0 ? RT_WIRE_LOAD_FIRST : 0;
        must(rt_control_create_struct(&order, RT_MESSAGE_LOAD, rt_peer(RT_ROLE_COORDINATOR, 0),
                                      saved->past[i].iteration, &load, sizeof load, NULL),
             &error);
        must(ps_checkpoint_load(shard, &order, rt_config_schema(&f->config), 0, NULL, NULL, &answer,
                                &error),
             &error);
        memcpy(&loaded, rt_message_payload(&answer), sizeof loaded);
        rt_message_release(&order);
        rt_message_release(&answer);
    }
    return !loaded.status;
}

static rt_status know_keys(const ps_shard *shard, dp_planner *planner)
{
    rt_wire_key keys[64];
    rt_status status = RT_OK;
    uint32_t count = 1;
    for (uint64_t from = 0; count > 0 && !status; from += count) {
        count = ps_shard_keys(shard, from, RT_COUNT_OF(keys), keys);
        for (uint32_t i = 0; i < count && !status; i++)
            status = dp_planner_know(planner, keys[i].key, keys[i].version, 0);
    }
    return status;
}

// A planner made from any state must be able to plan. The bound on the search is the user's, who
// may set any; here it has to end.
static void plan_on(const fixture *f, dp_planner *planner, const rt_bytes *position)
{
    const dp_plan *plan;
    rt_stream *stream;
    rt_error error = {0};
    uint32_t slot = 0;
    dp_input bound = {.kind = DP_INPUT_SEARCH_EVALUATIONS, .value = 50};
    if (!dp_planner_legal(planner, &error))
        must(RT_DATA, &error);
    while (dp_planner_refill(planner, 16, &slot, &plan) == RT_OK)
        ;
    if (dp_planner_apply(planner, &bound, &error) == RT_AGAIN)
        return; // all records that may wait do
    must(rt_stream_open(&f->config.stream, f->config.seed, &stream, &error), &error);
    if (rt_stream_seek(stream, position, &error) == RT_OK)
        plan_batches(planner, stream, PLANNED_ON);
    rt_stream_close(stream);
}

static bool load_state(const fixture *f, const dp_saved *saved, const ps_shard *shard,
                       uint32_t workers)
{
    rt_reader reader = rt_bytes_reader(&saved->state);
    const uint64_t size = rt_reader_u64(&reader);
    const void *bytes = rt_reader_take(&reader, size, 1);
    rt_reader state = {bytes, bytes ? size : 0, !bytes};
    rt_bytes position = {0};
    dp_planner_config config = f->planner;
    dp_planner *planner;
    dp_restored restored;
    rt_error error = {0};
    if (!rt_position_take(&state, &position)) {
        rt_bytes_fini(&position);
        return false;
    }
    config.worker_count = workers;
    config.micro_batch_max = workers == f->planner.worker_count ? config.micro_batch_max : 0;
    must(dp_planner_create(&config, &planner, &error), &error);
    const bool same = saved->config_hash == cli_config_hash(&f->config);
    rt_status status = know_keys(shard, planner);
    if (!status)
        status = dp_planner_load(planner, &state, same, &restored, &error);
    if (!status && reader.left > 0)
        status = dp_stats_load(f->stats, &reader, &error);
    if (!status)
        plan_on(f, planner, &position);
    rt_bytes_fini(&position);
    dp_planner_destroy(planner);
    return !status;
}

static bool load_dense(const fixture *f, const rt_bytes *bytes)
{
    rt_tensors *tensors;
    rt_error error = {0};
    if (rt_tensors_decode("dense", bytes->data, bytes->size, &tensors, &error))
        return false;
    rt_status status = ew_model_load(f->model, tensors, &error);
    rt_assert(!status || error.text[0]);
    rt_tensors_close(tensors);
    return !status;
}

static bool resume(const fixture *f, uint32_t workers)
{
    const ps_shard_config config = {.shard_count = 1,
                                    .worker_count = f->config.worker_count,
                                    .dim = f->config.model.embedding_dim,
                                    .optimizer = f->config.optimizer_rows,
                                    .memory_bytes_max = 1 << 24,
                                    .gradient_bytes_max = 1 << 16,
                                    .dense_bytes_max = 1 << 16,
                                    .pulls_parked_max = 16,
                                    .message_bytes = 4096,
                                    .queue_messages_max = 4};
    dp_saved saved;
    ps_shard *shard;
    rt_error error = {0};
    if (dp_saved_read(f->folder, NEWEST, rt_config_schema(&f->config), &saved, &error)) {
        rt_assert(error.text[0]);
        return false;
    }
    must(ps_shard_create(&config, &shard), &error);
    const bool good = load_rows(f, &saved, shard) && load_dense(f, &saved.dense) &&
                      load_state(f, &saved, shard, workers);
    ps_shard_destroy(shard);
    dp_saved_fini(&saved);
    return good;
}

static bool evaluate(const fixture *f)
{
    char path[RT_FOLDER_MAX];
    must(rt_checkpoint_path(f->folder, NEWEST, path, sizeof path, NULL), &(rt_error){0});
    return cli_eval(2, (char *[]){"eval", path, NULL}) == CLI_OK;
}

// ---- inputs ----------------------------------------------------------------------------------

typedef struct {
    const fixture *f;
    part_kind kind;
    bool sealed;   // checksums are made right
    bool is_whole; // the rest is the file, not edits
    bool evaluates;
    bool sums;        // PLANNER: the state has those of the run
    uint32_t workers; // of the run that goes on
} plan;

// Place, what to do there, with which value. Half of the places are within the first `most` bytes.
static void edit(rt_bytes *bytes, size_t most, const uint8_t *order)
{
    const size_t place = order[0] | (size_t)order[1] << 8;
    const size_t limit = place & 1 ? bytes->size : rt_min_u64(most, bytes->size);
    const size_t at = limit ? place / 2 % limit : 0;
    const uint8_t value = order[3];
    uint8_t *to = bytes->data + at;
    switch (order[2] % 8) {
    case 0:
        put_number(bytes->data, bytes->size, at, value, 1);
        break;
    case 1:
        put_number(bytes->data, bytes->size, at, value, 4);
        break;
    case 2:
        put_number(bytes->data, bytes->size, at, UINT64_MAX >> value % 64, 8);
        break;
    case 3:
        put_number(bytes->data, bytes->size, at,
                   get_number(bytes->data, bytes->size, at, 4) + (uint64_t)(int8_t)value, 4);
        break;
    case 4: // cut short
        bytes->size = at;
        break;
    case 5: // bytes of another place
        if (at + value <= bytes->size)
            memmove(to, bytes->data + (at * 7 + value) % (bytes->size - value + 1), value);
        break;
    case 6: // left out
        if (at + value <= bytes->size) {
            memmove(to, to + value, bytes->size - at - value);
            bytes->size -= value;
        }
        break;
    default: // said twice
        if (at + value <= bytes->size && rt_bytes_extend(bytes, value))
            memmove(bytes->data + at + value, bytes->data + at, bytes->size - at - value);
    }
}

static void invent(const plan *p, const uint8_t *bytes, size_t size, rt_bytes *file)
{
    const fixture *f = p->f;
    rt_bytes from = f->parts[p->kind].bytes;
    if (p->sealed && p->kind == PLANNER) {
        from = f->state;
        from.size = p->sums ? from.size : f->planned_size;
    } else if (p->sealed && (p->kind == MANIFEST || p->kind == BASE_MANIFEST)) {
        from = f->texts[p->kind == BASE_MANIFEST];
    }
    if (p->is_whole) {
        rt_bytes_put(file, bytes, size);
        return;
    }
    rt_bytes_put(file, from.data, from.size);
    for (; size >= 4; bytes += 4, size -= 4)
        edit(file, f->planned_size, bytes);
}

// Puts the file in place; sealed, with all sums that name it.
static void place(const plan *p, rt_bytes *file)
{
    const fixture *f = p->f;
    const part *to = &f->parts[p->kind];
    rt_file_sum sums[] = {f->parts[ROWS].sum, f->parts[PLANNER].sum, f->parts[DENSE].sum};
    rt_bytes text = {0};
    rt_error error = {0};
    if (!p->sealed) {
        write_file(to->path, file->data, file->size);
        return;
    }
    rt_bytes_put(file, "", 1); // a text's end; not part of the others
    switch (p->kind) {
    case MANIFEST:
    case BASE_MANIFEST:
        write_signed(to, file->data);
        return;
    case PLANNER:
        must(rt_pack_write(to->path, DP_CHECKPOINT_MAGIC, file->data, file->size - 1, &sums[1],
                           &error),
             &error);
        break;
    case DENSE:
        seal_dense(file->data, file->size - 1, &sums[2]);
        write_file(to->path, file->data, file->size - 1);
        break;
    default:
        seal_rows(file->data, file->size - 1, &sums[0]);
        write_file(to->path, file->data, file->size - 1);
    }
    const bool is_base = p->kind == BASE_ROWS;
    write_manifest_text(f, is_base ? BASE : NEWEST, is_base ? 0 : BASE, sums, &text);
    write_signed(&f->parts[is_base ? BASE_MANIFEST : MANIFEST], text.data);
    rt_bytes_fini(&text);
}

static void put_back(const plan *p)
{
    const part *parts = p->f->parts;
    const part_kind manifest = p->kind >= BASE_MANIFEST ? BASE_MANIFEST : MANIFEST;
    write_file(parts[p->kind].path, parts[p->kind].bytes.data, parts[p->kind].bytes.size);
    write_file(parts[manifest].path, parts[manifest].bytes.data, parts[manifest].bytes.size);
}

static void remove_folders(void)
{
    for (size_t i = 0; i < FIXTURES; i++) {
        char path[100];
        snprintf(path, sizeof path, "%s/samples", fixtures[i].folder);
        (void)unlink(path);
        rt_checkpoint_remove(fixtures[i].folder, BASE, NULL);
        rt_checkpoint_remove(fixtures[i].folder, NEWEST, NULL);
        (void)rmdir(fixtures[i].folder);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    rt_error error = {0};
    must(ew_device_open("cpu", &device, &error), &error);
    for (size_t i = 0; i < FIXTURES; i++)
        make_checkpoints(&fixtures[i], i);
    atexit(remove_folders);
    rt_assert(freopen("/dev/null", "w", stdout)); // what `lanyard eval` prints
    for (size_t i = 0; i < FIXTURES; i++) {
        const plan whole = {.f = &fixtures[i], .kind = PLANNER, .sealed = true, .sums = true};
        rt_bytes state = {0};
        rt_assert(resume(whole.f, 2) && resume(whole.f, 1) && evaluate(whole.f));
        invent(&whole, NULL, 0, &state);
        place(&whole, &state);
        rt_assert(resume(whole.f, 2));
        put_back(&whole);
        rt_bytes_fini(&state);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size < 2 || size > FILE_BYTES_MAX)
        return -1;
    static const part_kind kinds[] = {PLANNER, PLANNER,  PLANNER,       ROWS,
                                      DENSE,   MANIFEST, BASE_MANIFEST, BASE_ROWS};
    const plan p = {.f = &fixtures[bytes[0] / RT_COUNT_OF(kinds) % FIXTURES],
                    .kind = kinds[bytes[0] % RT_COUNT_OF(kinds)],
                    .sealed = bytes[1] % 4,
                    .is_whole = bytes[1] / 4 % 8 == 7,
                    .workers = bytes[1] / 32 == 7 ? 1 : 2,
                    .evaluates = bytes[1] / 32 == 6,
                    .sums = bytes[1] / 32 == 5};
    const rt_bytes *was = &p.f->parts[p.kind].bytes;
    rt_bytes file = {0};
    invent(&p, bytes + 2, size - 2, &file);
    const bool changed = file.size != was->size || memcmp(file.data, was->data, was->size) != 0;
    place(&p, &file);
    rt_log_setup(RT_LOG_ERROR, "fuzz");
    const bool good = p.evaluates ? evaluate(p.f) : resume(p.f, p.workers);
    // A manifest's signature can be guessed. eval looks at rows and dense values, not at what is
    // between these.
    const bool is_covered = p.evaluates ? p.kind == ROWS || p.kind == BASE_ROWS
                                        : p.kind != MANIFEST && p.kind != BASE_MANIFEST;
    rt_assert(p.sealed || !changed || !good || !is_covered);
    put_back(&p);
    rt_bytes_fini(&file);
    return 0;
}
