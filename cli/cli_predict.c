// `lanyard predict`: the probability of label 1 for every line of an input, in its order; of
// several labels or classes one column for each.
//
// One thread reads, others score; who finishes the batch that is next in order writes it out.
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "edge_worker/predict/ew_scorer.h"
#include "runtime/rt_log.h"
#include "runtime/rt_thread.h"

#define BATCH_SAMPLES 256u
#define THREADS_MAX 256u
#define NUMBER_BYTES 24u           // "%.9g" and what follows it
#define WAIT_NS UINT64_C(20000000) // a batch that does not fill is scored after so long

typedef enum { JOB_FREE, JOB_READ, JOB_TAKEN, JOB_SCORED } job_state;

typedef struct {
    job_state state;
    rt_batch batch;
    bool is_place[BATCH_SAMPLES]; // of a line that is no sample
    char *text;                   // BATCH_SAMPLES x labels x NUMBER_BYTES
    size_t text_size;
} job;

typedef struct prediction prediction;

typedef struct {
    prediction *all;
    ew_scorer *scorer;
    pthread_t thread;
    bool started;
} scoring;

struct prediction {
    const rt_config *config;
    ew_source source;
    ew_finished weights;
    rt_stream_config input; // the model's, but all samples count and no outcomes are waited for
    rt_stream *stream;
    ew_device device;
    FILE *out;
    const char *out_path;
    uint32_t thread_count;
    scoring threads[THREADS_MAX];

    pthread_mutex_t lock; // of all below
    pthread_cond_t changed;
    job *jobs; // a ring
    uint32_t job_count;
    uint64_t read, taken, written; // jobs so far
    bool is_ended, is_writing;
    rt_error failure; // the first one
};

static job *job_of(const prediction *p, uint64_t number)
{
    return &p->jobs[number % p->job_count];
}

// With the lock held.
static void fail_with(prediction *p, const rt_error *error)
{
    if (!p->failure.status)
        p->failure = *error;
    pthread_cond_broadcast(&p->changed);
}

// ---- scoring ---------------------------------------------------------------------------------

// A line for each sample of the batch.
static void print_scores(job *j, const float *probabilities, uint32_t labels)
{
    char *to = j->text;
    for (uint32_t i = 0; i < j->batch.sample_count; i++) {
        for (uint32_t l = 0; l < labels; l++) {
            const double one = (double)*probabilities++;
            const char end = l + 1 < labels ? '\t' : '\n';
            if (j->is_place[i])
                to += snprintf(to, NUMBER_BYTES, "nan%c", end);
            else
                to += snprintf(to, NUMBER_BYTES, "%.9g%c", one, end);
        }
    }
    j->text_size = (size_t)(to - j->text);
}

static rt_status score(const scoring *s, job *j, rt_error *error)
{
    const float *probabilities;
    const ew_finished *weights = &s->all->weights;
    for (uint32_t i = 0; i < j->batch.sample_count; i++)
        j->is_place[i] = isnan(j->batch.labels[(size_t)i * j->batch.label_count]);
    const rt_status status = ew_scorer_run(s->scorer, weights, &j->batch, &probabilities, error);
    if (status)
        return status;
    print_scores(j, probabilities, weights->schema.output_count);
    return RT_OK;
}

static rt_status write_text(const prediction *p, const job *j, rt_error *error)
{
    if (fwrite(j->text, 1, j->text_size, p->out) == j->text_size && fflush(p->out) == 0)
        return RT_OK;
    if (p->out == stdout && cli_reader_has_gone())
        return rt_fail(error, RT_STOPPED, "nobody reads on");
    return rt_fail(error, RT_IO, "cannot write %s: %s", p->out_path, strerror(errno));
}

// Writes all jobs that are next in order. With the lock held, which is let go meanwhile.
static void write_scored(prediction *p)
{
    rt_error error = {0};
    while (!p->is_writing && p->written < p->read && job_of(p, p->written)->state == JOB_SCORED &&
           !p->failure.status) {
        job *j = job_of(p, p->written);
        p->is_writing = true;
        pthread_mutex_unlock(&p->lock);
        rt_status status = write_text(p, j, &error);
        pthread_mutex_lock(&p->lock);
        p->is_writing = false;
        j->state = JOB_FREE;
        p->written++;
        if (status)
            fail_with(p, &error);
        pthread_cond_broadcast(&p->changed);
    }
}

// Takes jobs in the order in which they were read, so that those that wait to be written are few.
static void *score_jobs(void *context)
{
    const scoring *s = context;
    prediction *p = s->all;
    rt_error error = {0};
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (p->taken == p->read && !p->is_ended && !p->failure.status)
            pthread_cond_wait(&p->changed, &p->lock);
        if (p->failure.status || p->taken == p->read)
            break;
        job *j = job_of(p, p->taken++);
        j->state = JOB_TAKEN;
        pthread_mutex_unlock(&p->lock);
        rt_status status = score(s, j, &error);
        pthread_mutex_lock(&p->lock);
        j->state = JOB_SCORED;
        if (status)
            fail_with(p, &error);
        write_scored(p);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

// ---- reading ---------------------------------------------------------------------------------

// The next job that is free; NULL: something failed.
static job *wait_for_job(prediction *p)
{
    pthread_mutex_lock(&p->lock);
    job *j = job_of(p, p->read);
    while (j->state != JOB_FREE && !p->failure.status)
        pthread_cond_wait(&p->changed, &p->lock);
    if (p->failure.status)
        j = NULL;
    pthread_mutex_unlock(&p->lock);
    return j;
}

// Until the input ends (RT_END), or something fails.
static rt_status read_jobs(prediction *p, rt_error *error)
{
    for (;;) {
        job *j = wait_for_job(p);
        if (!j)
            return RT_STOPPED; // a thread that scores has told why
        const rt_status status = rt_stream_read(p->stream, &j->batch, BATCH_SAMPLES, error);
        if (status)
            return status;
        pthread_mutex_lock(&p->lock);
        j->state = JOB_READ;
        p->read++;
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
    }
}

static void read_all(prediction *p)
{
    rt_error error = {0};
    const rt_status status = read_jobs(p, &error);
    pthread_mutex_lock(&p->lock);
    p->is_ended = true;
    pthread_cond_broadcast(&p->changed);
    while (p->written < p->read && !p->failure.status) // what came before a failure is written
        pthread_cond_wait(&p->changed, &p->lock);
    if (status != RT_END && status != RT_STOPPED)
        fail_with(p, &error);
    pthread_mutex_unlock(&p->lock);
}

// ---- beginning and end -----------------------------------------------------------------------

static rt_status open_input(prediction *p, rt_error *error)
{
    p->input = p->config->stream;
    p->input.negatives_keep = 1;
    p->input.holdout = 0;
    p->input.epochs = 1;
    return rt_stream_open(&p->input, p->config->seed, &p->stream, error);
}

static rt_status create_scorers(prediction *p, rt_error *error)
{
    for (uint32_t i = 0; i < p->thread_count; i++) {
        p->threads[i].all = p;
        const rt_status status =
            ew_scorer_create(&p->weights, &p->device, BATCH_SAMPLES, &p->threads[i].scorer, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status create_jobs(prediction *p, rt_error *error)
{
    const size_t bytes = (size_t)BATCH_SAMPLES * NUMBER_BYTES * p->weights.schema.output_count;
    p->job_count = 2 * p->thread_count + 2; // some are read and written while each thread has one
    p->jobs = rt_alloc(p->job_count, sizeof *p->jobs);
    if (!p->jobs)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < p->job_count; i++) {
        rt_batch_init(&p->jobs[i].batch, p->weights.schema.dense_count);
        p->jobs[i].text = rt_alloc(bytes, 1);
        if (!p->jobs[i].text)
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
    return RT_OK;
}

static rt_status open_all(prediction *p, rt_error *error)
{
    rt_status status = ew_scorer_open_device(1, &p->device, error);
    if (status)
        return status;
    status = ew_finished_open(&p->source, &p->weights, error);
    if (status)
        return status;
    status = open_input(p, error);
    if (status)
        return status;
    rt_stream_keep_places(p->stream);
    rt_stream_set_wait(p->stream, WAIT_NS);
    status = create_scorers(p, error);
    if (status)
        return status;
    return create_jobs(p, error);
}

static rt_status start_threads(prediction *p, rt_error *error)
{
    for (uint32_t i = 0; i < p->thread_count; i++) {
        scoring *s = &p->threads[i];
        const int code = rt_thread_start(&s->thread, score_jobs, s);
        s->started = code == 0;
        if (code)
            return rt_fail(error, RT_LIMIT, "cannot start a thread: %s", strerror(code));
    }
    return RT_OK;
}

static rt_status predict(prediction *p, rt_error *error)
{
    rt_status status = open_all(p, error);
    if (status)
        return status;
    status = start_threads(p, error);
    if (!status)
        read_all(p);
    pthread_mutex_lock(&p->lock);
    p->is_ended = true;
    if (status)
        fail_with(p, error);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->thread_count; i++)
        if (p->threads[i].started)
            pthread_join(p->threads[i].thread, NULL);
    *error = p->failure;
    return p->failure.status;
}

static void tell(const prediction *p)
{
    const rt_stream_stats stats = rt_stream_statistics(p->stream);
    uint64_t lookups = 0, unknown = 0;
    for (uint32_t i = 0; i < p->thread_count; i++) {
        const ew_scorer_counts counts = ew_scorer_counted(p->threads[i].scorer);
        lookups += counts.lookups;
        unknown += counts.unknown;
    }
    const double share = (double)unknown / (double)rt_max_u64(1, lookups);
    char malformed[64] = "";
    if (stats.malformed)
        snprintf(malformed, sizeof malformed, ", %" PRIu64 " malformed lines without one (\"nan\")",
                 stats.malformed);
    rt_info("%" PRIu64 " predictions%s, %.1f%% of look-ups are unknown keys",
            stats.samples - stats.malformed, malformed, 100 * share);
}

static void close_all(prediction *p)
{
    for (uint32_t i = 0; p->jobs && i < p->job_count; i++) {
        rt_batch_fini(&p->jobs[i].batch);
        rt_free(p->jobs[i].text);
    }
    rt_free(p->jobs);
    for (uint32_t i = 0; i < p->thread_count; i++)
        ew_scorer_destroy(p->threads[i].scorer);
    if (p->stream)
        rt_stream_close(p->stream);
    ew_finished_close(&p->weights);
    ew_device_close(&p->device);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
}

// As many as this process may run at a time, unless it is said.
static bool read_threads(const char *text, uint32_t *count_p)
{
    if (!text) {
        *count_p = (uint32_t)rt_min_u64(rt_thread_cores(), THREADS_MAX);
        return true;
    }
    char *end;
    const unsigned long count = strtoul(text, &end, 10);
    *count_p = (uint32_t)count;
    return *text >= '1' && *text <= '9' && *end == '\0' && count <= THREADS_MAX;
}

static rt_status open_out(prediction *p, const char *path, rt_error *error)
{
    p->out_path = "standard output";
    p->out = stdout;
    if (!path)
        return RT_OK;
    p->out_path = path;
    p->out = fopen(path, "we");
    if (!p->out)
        return rt_fail(error, RT_IO, "cannot write %s: %s", path, strerror(errno));
    return RT_OK;
}

static rt_status predict_to(prediction *p, const char *path, rt_error *error)
{
    rt_status status = open_out(p, path, error);
    if (status)
        return status;
    status = predict(p, error);
    if (!status)
        tell(p);
    if (path && fclose(p->out) != 0 && !status)
        return rt_fail(error, RT_IO, "cannot write %s: %s", path, strerror(errno));
    return status;
}

// The source of the model ends. One that the caller names goes on, and so does a FIFO: their lines
// are answered as they come.
static rt_status end_input(rt_config *config, bool is_source_said, rt_error *error)
{
    const bool fifo_ends = config->stream.fifo_ends;
    if (is_source_said)
        return RT_OK;
    const rt_status status = cli_end_input(config, false, error);
    config->stream.fifo_ends = fifo_ends;
    return status;
}

static int run(prediction *p, rt_config *config, bool is_source_said, const char *out)
{
    rt_error error = {0};
    p->config = config;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    rt_status status = end_input(config, is_source_said, &error);
    if (!status)
        status = predict_to(p, out, &error);
    close_all(p);
    return cli_end(status == RT_STOPPED ? RT_OK : status, &error);
}

int cli_predict(int argc, char **argv)
{
    const char *directory = NULL, *out = NULL, *threads = NULL, *sets[CLI_SETS_MAX];
    uint32_t set_count, thread_count;
    rt_config config;
    const cli_option options[] = {{"out", &out, NULL}, {"threads", &threads, NULL}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &directory, sets, &set_count))
        return CLI_USAGE;
    if (!directory || !read_threads(threads, &thread_count)) {
        fprintf(stderr,
                "lanyard predict: expected MODEL, the folder model/ of a run or a checkpoint; and "
                "of --threads 1 to %u\n",
                THREADS_MAX);
        return CLI_USAGE;
    }
    prediction *p = rt_alloc(1, sizeof *p);
    if (!p)
        return CLI_FAILED;
    p->thread_count = thread_count;
    int code = cli_open_source(directory, sets, set_count, true, &config, &p->source);
    if (code == CLI_OK) {
        config.stream.labels_optional = true;
        code = run(p, &config, cli_sets(sets, set_count, "stream.source"), out);
        rt_config_fini(&config);
    }
    rt_free(p);
    return code;
}
