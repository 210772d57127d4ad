#include "runtime/metrics/rt_metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/rt_log.h"
#include "runtime/files/rt_own.h"

struct rt_metrics {
    int file;      // -1: records are dropped
    uint64_t size; // bytes of whole records in the file
    uint64_t turn; // size at which the file is put aside; 0: never
    bool turn_failed;
    uint64_t lost;  // records that could not be written
    bool is_broken; // the file ends within a record that could not be taken back
    uint64_t opened_ns;
    rt_json json;
    void (*take)(void *context, const char *line, size_t size); // or NULL
    void *take_context;
    bool is_beside; // the file has its name later
    char *older;    // where it is put aside; NULL without a file
    char *fresh;    // its name until then
    char path[];
};

// A process that was killed may have left a line without its end.
static void find_end(rt_metrics *metrics)
{
    char last = '\n';
    off_t end = lseek(metrics->file, 0, SEEK_END);
    metrics->size = 0;
    if (end <= 0)
        return;
    metrics->size = (uint64_t)end;
    if (pread(metrics->file, &last, 1, end - 1) == 1)
        metrics->is_broken = last != '\n';
}

typedef enum { NAMED, BESIDE, GOES_ON } way;

// Of a run they have names of its own; of a simulation the one that somebody gave.
static rt_status open_now(rt_metrics *metrics, way how, rt_error *error)
{
    if (how == BESIDE)
        return rt_own_create(metrics->fresh, 0644, &metrics->file, error);
    if (how == GOES_ON)
        return rt_own_open(metrics->path, 0644, &metrics->file, error);
    metrics->file = open(metrics->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (metrics->file < 0)
        return rt_fail(error, RT_IO, "%s: cannot be written: %s", metrics->path, strerror(errno));
    return RT_OK;
}

static rt_status open_file(const char *path, way how, rt_metrics **metrics_p, rt_error *error)
{
    const size_t size = path ? strlen(path) + 1 : 1;
    rt_metrics *metrics = rt_alloc(1, sizeof *metrics + 3 * size + sizeof ".1.new");
    if (!metrics)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for metrics");
    metrics->file = -1;
    metrics->opened_ns = rt_now_ns();
    rt_json_init(&metrics->json, 0);
    if (path) {
        memcpy(metrics->path, path, size);
        metrics->older = metrics->path + size;
        snprintf(metrics->older, size + sizeof ".1", "%s.1", path);
        metrics->fresh = metrics->older + strlen(metrics->older) + 1;
        snprintf(metrics->fresh, size + sizeof ".new", "%s.new", path);
        metrics->is_beside = how == BESIDE;
        const rt_status status = open_now(metrics, how, error);
        if (status) {
            rt_free(metrics);
            return status;
        }
        find_end(metrics);
    }
    *metrics_p = metrics;
    return RT_OK;
}

rt_status rt_metrics_open(const char *path, rt_metrics **metrics_p, rt_error *error)
{
    return open_file(path, NAMED, metrics_p, error);
}

rt_status rt_metrics_open_beside(const char *path, rt_metrics **metrics_p, rt_error *error)
{
    return open_file(path, BESIDE, metrics_p, error);
}

void rt_metrics_keep(rt_metrics *metrics)
{
    if (!metrics->is_beside)
        return;
    metrics->is_beside = false;
    (void)unlink(metrics->older); // an earlier run's
    if (metrics->file >= 0 && rename(metrics->fresh, metrics->path) != 0)
        rt_warn("metrics: %s: cannot be replaced: %s; the records are in %s", metrics->path,
                strerror(errno), metrics->fresh);
}

rt_status rt_metrics_append(const char *path, rt_metrics **metrics_p, rt_error *error)
{
    return open_file(path, GOES_ON, metrics_p, error);
}

void rt_metrics_limit(rt_metrics *metrics, uint64_t bytes_max)
{
    metrics->turn = 0;
    if (bytes_max)
        metrics->turn = rt_max_u64(bytes_max / 2, 1);
}

void rt_metrics_close(rt_metrics *metrics)
{
    if (!metrics)
        return;
    if (metrics->file >= 0)
        close(metrics->file);
    if (metrics->file >= 0 && metrics->is_beside)
        (void)unlink(metrics->fresh);
    if (metrics->lost)
        rt_info("metrics: %s: %" PRIu64 " records were lost", metrics->path, metrics->lost);
    rt_json_fini(&metrics->json);
    rt_free(metrics);
}

rt_json *rt_metrics_begin(rt_metrics *metrics, const char *record)
{
    rt_json *json = &metrics->json;
    rt_json_clear(json);
    rt_json_begin_object(json, NULL);
    rt_json_string(json, "record", record);
    rt_json_double(json, "time_s", (double)((rt_now_ns() - metrics->opened_ns) / 1000) * 1e-6);
    return json;
}

// Returns the bytes written; fewer than size: errno says why.
static size_t write_all(int file, const char *bytes, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t written = write(file, bytes + done, size - done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            break;
        done += (size_t)written;
    }
    return done;
}

// The file is put aside and a new one begins; where that fails, it goes on.
static void turn_file(rt_metrics *metrics)
{
    int file = -1, cause = 0;
    if (rename(metrics->path, metrics->older) != 0) {
        cause = errno;
    } else {
        file = open(metrics->path, O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_WRONLY, 0644);
        cause = errno;
        if (file < 0)
            (void)rename(metrics->older, metrics->path);
    }
    if (file >= 0) {
        close(metrics->file);
        metrics->file = file;
        metrics->size = 0;
        return;
    }
    if (!metrics->turn_failed)
        rt_warn("metrics: %s: cannot begin a new file: %s; this one grows", metrics->path,
                strerror(cause));
    metrics->turn_failed = true;
    metrics->turn *= 2; // try again later
}

static void lose(rt_metrics *metrics, const char *why)
{
    if (metrics->lost++ == 0)
        rt_warn("metrics: %s: cannot be written: %s; the run goes on without", metrics->path, why);
}

void rt_metrics_tap(rt_metrics *metrics, void (*take)(void *context, const char *line, size_t size),
                    void *context)
{
    metrics->take = take;
    metrics->take_context = context;
}

void rt_metrics_end(rt_metrics *metrics)
{
    rt_json_end_object(&metrics->json);
    if (metrics->file < 0 && !metrics->take)
        return;
    size_t size;
    const char *text = rt_json_text(&metrics->json, &size);
    if (text && metrics->take)
        metrics->take(metrics->take_context, text, size);
    if (metrics->file < 0)
        return;
    if (!text) {
        lose(metrics, "out of memory");
        return;
    }
    // The line break takes the place of the terminating zero, so that one write does it all.
    metrics->json.text[size] = '\n';
    if (metrics->is_broken && write_all(metrics->file, "\n", 1) == 1)
        metrics->is_broken = false;
    size_t done = 0;
    if (!metrics->is_broken)
        done = write_all(metrics->file, text, size + 1);
    int cause = errno;
    if (done == size + 1) {
        metrics->size += done;
        if (metrics->turn && metrics->size >= metrics->turn)
            turn_file(metrics);
        return;
    }
    if (done > 0 && (ftruncate(metrics->file, (off_t)metrics->size) != 0 ||
                     lseek(metrics->file, (off_t)metrics->size, SEEK_SET) < 0))
        metrics->is_broken = true;
    lose(metrics, strerror(cause));
}

void rt_metrics_quality(rt_json *json, const char *key, const rt_quality *quality)
{
    rt_json_begin_object(json, key);
    rt_json_u64(json, "first_sample", quality->first_sample);
    rt_json_u64(json, "samples", quality->sample_count);
    rt_json_u64(json, "invalid", quality->invalid_count);
    rt_json_double(json, "log_loss", quality->log_loss);
    rt_json_double(json, "auc", quality->auc);
    rt_json_double(json, "normalised_entropy", quality->normalised_entropy);
    rt_json_double(json, "calibration", quality->calibration);
    const char *name = quality->class_count ? "accuracy" : "mean_label";
    rt_json_double(json, name, quality->mean_label);
    rt_json_end_object(json);
}
