// Who answers holds no lock: it counts itself as a reader of the active side, then looks whether
// that still is the active one. Who changes the other side has seen to it that nobody enters it
// (is_whole, active), and waits until its last reader has left. All four accesses are sequentially
// consistent, so one of the two always sees the other.
#include "edge_worker/serve/ew_follower.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_file.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/files/rt_published.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"
#include "runtime/rt_priority.h"
#include "runtime/rt_thread.h"

#define LOOK_EVERY_NS 100000000 // whether there is another version
// A version that cannot be taken over may be a whole model that was read in vain: it is tried again
// after pauses that double, up to this one.
#define RETRY_NS_MAX UINT64_C(10000000000)
#define PATH_SIZE (RT_PATH_MAX + 96)
#define FRESH_BINS 400u // of histogram, FRESH_BIN_S each; the last holds all that is older
#define FRESH_BIN_S 0.05

typedef struct {
    bool is_there;
    rt_config config;
    ew_finished weights;
    ew_version version;
    uint64_t run; // of a published version
    atomic_uint readers;
    atomic_bool is_whole; // nobody changes it
} side;

struct ew_follower {
    ew_follower_config config;
    char folder[RT_PATH_MAX];
    bool is_published;
    side sides[2];
    atomic_uint active;
    pthread_t thread;
    bool started;
    atomic_bool stops;
    struct stat seen;            // of the file that is followed, when it was read last
    struct stat refused;         // likewise, when what it names could not be taken over
    uint64_t retry_ns, pause_ns; // when that is tried again, and the pause before
    pthread_mutex_t lock;        // of what follows
    ew_follower_state state;
    double fresh[FRESH_BINS + 1u]; // samples
};

// ---- reading a version -----------------------------------------------------------------------

typedef struct {
    char folder[PATH_SIZE];
    bool is_published;
    uint32_t held; // of current.json
    rt_published_version info;
} target;

static void followed_file(const ew_follower *copy, char path[PATH_SIZE])
{
    snprintf(path, PATH_SIZE, "%s/%s", copy->folder,
             copy->is_published ? RT_PUBLISHED_CURRENT : RT_MANIFEST_NAME);
}

static rt_status find_target(const ew_follower *copy, target *t, rt_error *error)
{
    rt_published current;
    *t = (target){.is_published = copy->is_published};
    if (!copy->is_published) {
        snprintf(t->folder, sizeof t->folder, "%s", copy->folder);
        return RT_OK;
    }
    rt_status status = rt_published_read(copy->folder, &current, error);
    if (status)
        return status;
    t->held = current.held;
    status = rt_published_version_of(copy->folder, current.iteration, &t->info, error);
    if (status)
        return status;
    return rt_checkpoint_path(copy->folder, current.iteration, t->folder, sizeof t->folder, error);
}

static uint64_t sum_of_file(FILE *file)
{
    char piece[4096];
    size_t count;
    rt_hasher *hasher = rt_hasher_create();
    if (!hasher)
        return 0;
    while ((count = fread(piece, 1, sizeof piece, file)) > 0)
        rt_hasher_add(hasher, piece, count);
    const uint64_t sum = rt_hasher_sum(hasher);
    rt_hasher_destroy(hasher);
    return sum;
}

// By which two boxes know that they have the same version; 0: nobody knows.
static uint64_t sum_of(const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    const uint64_t sum = sum_of_file(file);
    fclose(file);
    return sum;
}

static uint64_t id_of(const char *folder)
{
    char path[PATH_SIZE + 32];
    cJSON *root = NULL;
    uint64_t id = 0;
    if (rt_manifest_read(folder, &root, NULL) == RT_OK)
        id = rt_manifest_identity(root);
    cJSON_Delete(root);
    snprintf(path, sizeof path, "%s/" RT_MANIFEST_NAME, folder);
    return id ? id : sum_of(path);
}

static void note_version(side *s, const target *t)
{
    s->run = t->info.run;
    s->version = (ew_version){.iteration = s->weights.iteration,
                              .samples = s->weights.samples,
                              .trained_s = s->weights.trained_s,
                              .id = id_of(t->folder)};
}

static void drop(side *s)
{
    if (!s->is_there)
        return;
    ew_finished_close(&s->weights);
    rt_config_fini(&s->config);
    s->is_there = false;
}

// from: whose rows it builds on, or NULL: all of them are read.
static rt_status read_anew(const ew_follower *copy, side *s, const side *from, const target *t,
                           rt_error *error)
{
    ew_source source;
    drop(s);
    rt_status status = ew_source_open(t->folder, copy->config.sets, copy->config.set_count, false,
                                      &s->config, &source, error);
    if (status)
        return status;
    source.without_rows = copy->config.without_rows;
    if (from)
        status = ew_finished_copy(&from->weights, &source, &s->weights, error);
    else
        status = ew_finished_open(&source, &s->weights, error);
    if (status) {
        rt_config_fini(&s->config);
        return status;
    }
    s->is_there = true;
    return RT_OK;
}

static bool have_same_layers(const rt_tensors *old, const rt_tensors *new)
{
    for (uint32_t i = 0; i < rt_tensors_count(old); i++) {
        const rt_tensor *a = rt_tensors_at(old, i), *b = rt_tensors_find(new, a->name);
        if (strcmp(a->name, RT_TENSOR_STATE) == 0)
            continue;
        if (!b || memcmp(a->shape, b->shape, sizeof a->shape) != 0)
            return false;
    }
    return true;
}

// Whether scorers made for one can go on with the other.
static rt_status check_alike(const ew_finished *old, const ew_finished *new, rt_error *error)
{
    if (rt_config_schema(old->config) != rt_config_schema(new->config) ||
        memcmp(&old->schema, &new->schema, sizeof old->schema) != 0 ||
        !have_same_layers(old->dense, new->dense))
        return rt_fail(error, RT_CONFIG,
                       "it has other columns or layers: restart the server for it");
    return RT_OK;
}

// Whether a version is of the same run as what is there, and later.
static bool builds_on(const side *s, const target *t)
{
    return s->is_there && s->weights.rows && t->is_published && t->info.run &&
           s->run == t->info.run && s->weights.iteration > 0 &&
           t->info.iteration > s->weights.iteration;
}

// Changes go over what is there, or over a copy of what answers are made with.
static rt_status read_version(const ew_follower *copy, side *s, const target *t, rt_error *error)
{
    const side *other = &copy->sides[s == &copy->sides[0]];
    rt_status status = RT_AGAIN;
    if (builds_on(s, t)) {
        const ew_source source = {
            .folder = t->folder, .config = &s->config, .schema = rt_config_schema(&s->config)};
        status = ew_finished_update(&s->weights, &source, error);
    }
    if (status && builds_on(other, t))
        status = read_anew(copy, s, other, t, error);
    if (status)
        status = read_anew(copy, s, NULL, t, error);
    if (!status && other->is_there)
        status = check_alike(&other->weights, &s->weights, error);
    if (!status)
        note_version(s, t);
    return status;
}

// ---- who answers -----------------------------------------------------------------------------

const ew_finished *ew_follower_enter(ew_follower *copy, uint32_t *side_p, ew_version *version)
{
    for (;;) {
        const uint32_t active = atomic_load(&copy->active);
        side *s = &copy->sides[active];
        atomic_fetch_add(&s->readers, 1);
        if (atomic_load(&copy->active) == active) {
            *side_p = active;
            *version = s->version;
            return &s->weights;
        }
        atomic_fetch_sub(&s->readers, 1); // it changed in between
    }
}

const ew_finished *ew_follower_enter_version(ew_follower *copy, uint64_t id, uint32_t *side_p,
                                             ew_version *version)
{
    const uint32_t index = !atomic_load(&copy->active);
    side *s = &copy->sides[index];
    atomic_fetch_add(&s->readers, 1); // before the look: who changes it looks the other way round
    if (atomic_load(&s->is_whole) && s->version.id == id) {
        *side_p = index;
        *version = s->version;
        return &s->weights;
    }
    atomic_fetch_sub(&s->readers, 1);
    return ew_follower_enter(copy, side_p, version);
}

void ew_follower_leave(ew_follower *copy, uint32_t side_index)
{
    atomic_fetch_sub(&copy->sides[side_index].readers, 1);
}

static void pause_ns(long ns)
{
    const struct timespec pause = {0, ns};
    (void)nanosleep(&pause, NULL);
}

// ---- freshness -------------------------------------------------------------------------------

// The samples of a version were trained evenly between two times.
static void note_freshness(ew_follower *copy, const target *t, uint64_t samples_before,
                           double now_s)
{
    if (!t->is_published || isnan(t->info.trained_s) || isnan(t->info.since_s) ||
        t->info.samples <= samples_before) // gone back to
        return;
    const double least = now_s - t->info.trained_s, most = now_s - t->info.since_s;
    const uint64_t samples = t->info.samples - samples_before;
    const uint32_t parts = 32;
    for (uint32_t i = 0; i < parts && least >= 0; i++) {
        const double age_s = least + (most - least) * (i + 0.5) / parts;
        const double bins = age_s / FRESH_BIN_S;
        uint32_t bin = FRESH_BINS;
        if (bins < FRESH_BINS)
            bin = (uint32_t)bins;
        copy->fresh[bin] += (double)samples / parts;
    }
    if (isnan(copy->state.fresh_max_s) || most > copy->state.fresh_max_s)
        copy->state.fresh_max_s = most;
}

static double fresh_quantile(const ew_follower *copy, double share)
{
    double all = 0, sum = 0;
    for (uint32_t i = 0; i <= FRESH_BINS; i++)
        all += copy->fresh[i];
    if (all <= 0)
        return NAN;
    for (uint32_t i = 0; i < FRESH_BINS; i++) {
        sum += copy->fresh[i];
        if (sum >= share * all)
            return (i + 1) * FRESH_BIN_S;
    }
    return copy->state.fresh_max_s;
}

void ew_follower_get_state(ew_follower *copy, ew_follower_state *state)
{
    pthread_mutex_lock(&copy->lock);
    *state = copy->state;
    state->fresh_p50_s = fresh_quantile(copy, 0.5);
    state->fresh_p99_s = fresh_quantile(copy, 0.99);
    pthread_mutex_unlock(&copy->lock);
}

// ---- following -------------------------------------------------------------------------------

static void take_over(ew_follower *copy, const target *t, uint32_t index, bool counts)
{
    const uint64_t samples_before = copy->state.version.samples;
    side *s = &copy->sides[index];
    atomic_store(&s->is_whole, true);
    atomic_store(&copy->active, index);
    pthread_mutex_lock(&copy->lock);
    copy->state.version = s->version;
    copy->state.rows = s->weights.rows ? ps_table_count(s->weights.rows) : 0;
    copy->state.failure[0] = '\0';
    copy->state.held = t->held;
    if (counts) {
        copy->state.updates++;
        note_freshness(copy, t, samples_before, rt_unix_s());
    }
    pthread_mutex_unlock(&copy->lock);
}

// info: of the file that names it.
static void note_failure(ew_follower *copy, const struct stat *info, const rt_error *error)
{
    const bool is_other = !rt_file_is_same(info, &copy->refused);
    if (is_other)
        copy->pause_ns = LOOK_EVERY_NS;
    else
        copy->pause_ns = rt_min_u64(2 * copy->pause_ns, RETRY_NS_MAX);
    copy->retry_ns = rt_now_ns() + copy->pause_ns;
    copy->refused = *info;
    pthread_mutex_lock(&copy->lock);
    copy->state.failures += is_other;
    const bool is_new = strcmp(copy->state.failure, error->text) != 0;
    snprintf(copy->state.failure, sizeof copy->state.failure, "%.255s", error->text);
    pthread_mutex_unlock(&copy->lock);
    if (is_new)
        rt_warn("another model is not taken over, answers go on with that of iteration %" PRIu64
                ": %s",
                copy->state.version.iteration, error->text);
}

// Nobody has come in since the last change of places; who did before is waited for.
static side *idle_side(ew_follower *copy, uint32_t *index_p)
{
    *index_p = !atomic_load(&copy->active);
    side *s = &copy->sides[*index_p];
    atomic_store(&s->is_whole, false);
    while (atomic_load(&s->readers) > 0)
        pause_ns(200000);
    return s;
}

// Whether the file that is followed names something that is not tried yet, or to be tried again.
static bool is_due(const ew_follower *copy, struct stat *info)
{
    char path[PATH_SIZE];
    followed_file(copy, path);
    if (stat(path, info) != 0 || rt_file_is_same(info, &copy->seen))
        return false;
    return !rt_file_is_same(info, &copy->refused) || rt_now_ns() >= copy->retry_ns;
}

// The version that answers already, of which something else is said now: that one behind it is held
// back, or that it is pinned.
static bool answers_already(const ew_follower *copy, const target *t)
{
    const side *s = &copy->sides[atomic_load(&copy->active)];
    return t->is_published && t->info.run != 0 && s->run == t->info.run &&
           s->version.iteration == t->info.iteration;
}

static void note_held(ew_follower *copy, const target *t)
{
    pthread_mutex_lock(&copy->lock);
    copy->state.held = t->held;
    pthread_mutex_unlock(&copy->lock);
}

static void look(ew_follower *copy)
{
    struct stat info;
    target t;
    rt_error error = {0};
    uint32_t index;
    if (!is_due(copy, &info))
        return;
    rt_status status = find_target(copy, &t, &error);
    if (!status && answers_already(copy, &t)) {
        copy->seen = info;
        note_held(copy, &t);
        return;
    }
    if (!status)
        status = read_version(copy, idle_side(copy, &index), &t, &error);
    if (status) {
        note_failure(copy, &info, &error);
        return;
    }
    copy->seen = info;
    take_over(copy, &t, index, true);
}

static void *follow(void *context)
{
    ew_follower *copy = context;
    rt_priority_behind(); // answers do not wait for a change
    while (!atomic_load(&copy->stops)) {
        look(copy);
        pause_ns(LOOK_EVERY_NS);
    }
    return NULL;
}

// ---- beginning and end -----------------------------------------------------------------------

static rt_status read_first(ew_follower *copy, rt_error *error)
{
    char path[PATH_SIZE];
    target t;
    followed_file(copy, path);
    (void)stat(path, &copy->seen); // models of 0.1.0 have no manifest: they stay as they are
    rt_status status = find_target(copy, &t, error);
    if (status)
        return status;
    status = read_version(copy, &copy->sides[0], &t, error);
    if (status)
        return status;
    take_over(copy, &t, 0, false);
    return RT_OK;
}

rt_status ew_follower_open(const ew_follower_config *config, ew_follower **copy_p, rt_error *error)
{
    char path[PATH_SIZE];
    ew_follower *copy = rt_alloc(1, sizeof *copy);
    if (!copy)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    copy->config = *config;
    snprintf(copy->folder, sizeof copy->folder, "%s", config->folder);
    snprintf(path, sizeof path, "%s/" RT_PUBLISHED_CURRENT, copy->folder);
    copy->is_published = access(path, F_OK) == 0;
    copy->state.fresh_max_s = NAN;
    pthread_mutex_init(&copy->lock, NULL);
    rt_status status = read_first(copy, error);
    if (!status)
        status = rt_thread_run(&copy->thread, &copy->started, follow, copy, error);
    if (status) {
        ew_follower_close(copy);
        return status;
    }
    *copy_p = copy;
    return RT_OK;
}

void ew_follower_close(ew_follower *copy)
{
    if (!copy)
        return;
    atomic_store(&copy->stops, true);
    if (copy->started)
        pthread_join(copy->thread, NULL);
    drop(&copy->sides[0]);
    drop(&copy->sides[1]);
    pthread_mutex_destroy(&copy->lock);
    rt_free(copy);
}

rt_status ew_follower_copy_config(ew_follower *copy, rt_config *config)
{
    uint32_t index;
    ew_version version;
    const rt_status status =
        rt_config_copy(ew_follower_enter(copy, &index, &version)->config, config);
    ew_follower_leave(copy, index);
    return status;
}
