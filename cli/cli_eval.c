// `lanyard eval`: a saved model, or a checkpoint, on other rows; log loss and AUC without training.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/cli_run.h"
#include "edge_worker/predict/ew_scorer.h"
#include "runtime/files/rt_file.h"
#include "runtime/metrics/rt_judge.h"
#include "runtime/rt_json.h"
#include "runtime/wire/rt_bytes.h"

#define BATCH_SAMPLES 1024u

typedef struct {
    const rt_config *config;
    ew_source source;
    bool is_of_holdout; // of the samples that training left to be judged by
    ew_finished weights;
    rt_stream_config input; // the model's, but for negatives_keep: all samples are judged
    rt_stream *stream;
    rt_batch batch;
    ew_device device;
    ew_scorer *scorer;
    rt_judge judge;
    FILE *predictions; // those of a sample in a line; NULL: not wanted
} evaluation;

static uint32_t label_count(const evaluation *e)
{
    return e->weights.schema.label_count;
}

// A line for each sample. That one could not be written shows when the file is closed.
static void write_predictions(const evaluation *e, const float *probabilities)
{
    const uint32_t outputs = e->weights.schema.output_count;
    for (uint32_t i = 0; i < e->batch.sample_count; i++) {
        for (uint32_t o = 0; o < outputs; o++) {
            const char end = o + 1 < outputs ? '\t' : '\n';
            fprintf(e->predictions, "%.9g%c", (double)*probabilities++, end);
        }
    }
}

static rt_status evaluate_batch(evaluation *e, rt_error *error)
{
    const float *probabilities;
    const rt_status status =
        ew_scorer_run(e->scorer, &e->weights, &e->batch, &probabilities, error);
    if (status)
        return status;
    rt_judge_add(&e->judge, &e->batch, probabilities);
    if (e->predictions)
        write_predictions(e, probabilities);
    return RT_OK;
}

static void print_quality(const char *name, const char *colon, const rt_quality *own)
{
    char loss[RT_QUALITY_TEXT], auc[RT_QUALITY_TEXT], calibration[RT_QUALITY_TEXT];
    printf("%s%s%" PRIu64 " samples%s log loss %s, AUC %s, calibration %s", name, *name ? ": " : "",
           own->sample_count, colon, rt_quality_show(own->log_loss, 4, loss),
           rt_quality_show(own->auc, 4, auc), rt_quality_show(own->calibration, 3, calibration));
}

static void print_labels(const evaluation *e)
{
    for (uint32_t l = 0; l < label_count(e) && label_count(e) > 1; l++) {
        const rt_quality own = rt_meter_total(e->judge.meters[l]);
        print_quality(e->weights.schema.label_names[l], ",", &own);
        printf("\n");
    }
}

static void write_quality(rt_json *out, const rt_quality *quality)
{
    rt_json_u64(out, "samples", quality->sample_count);
    rt_json_double(out, "logloss", quality->log_loss);
    rt_json_double(out, "auc", quality->auc);
    if (quality->class_count)
        rt_json_double(out, "accuracy", quality->mean_label);
    rt_json_double(out, "calibration", quality->calibration);
}

static void write_labels(const evaluation *e, rt_json *out)
{
    if (label_count(e) == 1)
        return;
    rt_json_begin_object(out, "labels");
    for (uint32_t l = 0; l < label_count(e); l++) {
        const rt_quality own = rt_meter_total(e->judge.meters[l]);
        rt_json_begin_object(out, e->weights.schema.label_names[l]);
        write_quality(out, &own);
        rt_json_end_object(out);
    }
    rt_json_end_object(out);
}

static double unknown_share(const evaluation *e)
{
    const ew_scorer_counts counts = ew_scorer_counted(e->scorer);
    return (double)counts.unknown / (double)rt_max_u64(1, counts.lookups);
}

static void write_result(const evaluation *e, rt_json *out)
{
    const rt_quality quality = rt_meter_total(e->judge.meters[0]);
    write_quality(out, &quality);
    rt_json_double(out, "unknown_lookups", unknown_share(e));
    rt_json_u64(out, "dense_clipped", ew_scorer_counted(e->scorer).dense_clipped);
    write_labels(e, out);
}

static void print_json(const evaluation *e)
{
    rt_json out;
    rt_json_init(&out, 2);
    rt_json_begin_object(&out, NULL);
    write_result(e, &out);
    rt_json_end_object(&out);
    const char *text = rt_json_text(&out, NULL);
    puts(text ? text : "{}");
    rt_json_fini(&out);
}

static void print_result(const evaluation *e)
{
    const rt_quality quality = rt_meter_total(e->judge.meters[0]);
    const uint64_t clipped = ew_scorer_counted(e->scorer).dense_clipped;
    if (quality.sample_count == 0) {
        printf("0 samples: nothing was judged\n");
        return;
    }
    print_quality("", ":", &quality);
    printf(", %.1f%% of look-ups are unknown keys\n", 100 * unknown_share(e));
    if (quality.class_count)
        printf("accuracy %.4f of %" PRIu32 " classes\n", quality.mean_label, quality.class_count);
    print_labels(e);
    if (clipped)
        printf("%" PRIu64 " dense values lay beyond %g deviations and were clipped to that\n",
               clipped, (double)RT_SCALE_LIMIT);
}

// A summary is an object over lines: another member is put before its end.
static rt_status add_to_summary(const evaluation *e, const char *path, rt_error *error)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return rt_fail(error, RT_IO, "%s: %s", path, strerror(errno));
    char *summary = rt_alloc(CLI_RUN_SUMMARY_MAX, 1);
    size_t size = summary ? fread(summary, 1, CLI_RUN_SUMMARY_MAX, file) : 0, more_size = 0;
    fclose(file);
    rt_json more;
    rt_status status = RT_OK;
    while (size > 0 && summary[size - 1] != '}')
        size--;
    while (size > 0 && (summary[size - 1] == '}' || summary[size - 1] == '\n'))
        size--;
    rt_json_init(&more, 2);
    rt_json_begin_object(&more, NULL);
    rt_json_begin_object(&more, "holdout");
    write_result(e, &more);
    rt_json_end_object(&more);
    rt_json_end_object(&more);
    const char *text = rt_json_text(&more, &more_size);
    rt_bytes whole = {0};
    rt_bytes_put(&whole, summary, size);
    rt_bytes_put(&whole, ",", 1);
    if (text)
        rt_bytes_put(&whole, text + 1, more_size - 1);
    rt_bytes_put(&whole, "\n", 1);
    if (!summary || !text || whole.failed)
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for %s", path);
    else
        status = rt_file_save(path, whole.data, whole.size, error);
    rt_bytes_fini(&whole);
    rt_json_fini(&more);
    rt_free(summary);
    return status;
}

// Training may have left out samples of label 0 (stream.negatives_keep); here all are judged, by
// probabilities that are corrected for it. Of the files of the run itself what it held out.
static rt_status open_input(evaluation *e, rt_error *error)
{
    e->input = e->config->stream;
    e->input.negatives_keep = 1;
    e->input.epochs = 1;
    e->input.reads_held_out = e->is_of_holdout;
    if (!e->is_of_holdout)
        e->input.holdout = 0;
    return rt_stream_open(&e->input, e->config->seed, &e->stream, error);
}

static rt_status open_all(evaluation *e, rt_error *error)
{
    rt_status status = ew_scorer_open_device(e->config->compute.threads, &e->device, error);
    if (status)
        return status;
    status = open_input(e, error);
    if (status)
        return status;
    status = ew_finished_open(&e->source, &e->weights, error);
    if (status)
        return status;
    status = ew_scorer_create(&e->weights, &e->device, BATCH_SAMPLES, &e->scorer, error);
    if (status)
        return status;
    if (rt_judge_init(&e->judge, &e->weights.schema, rt_stream_is_weighted(&e->input),
                      BATCH_SAMPLES))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return RT_OK;
}

static rt_status evaluate(evaluation *e, rt_error *error)
{
    if (rt_format_is_generated(e->config->stream.format) && e->config->stream.samples_max == 0)
        return rt_fail(error, RT_CONFIG,
                       "the generated stream has no end: set stream.samples_max to the number of "
                       "samples to evaluate");
    rt_status status = open_all(e, error);
    if (status)
        return status;
    rt_batch_init(&e->batch, e->weights.schema.dense_count);
    for (;;) {
        status = rt_stream_read(e->stream, &e->batch, BATCH_SAMPLES, error);
        if (status == RT_END)
            return RT_OK;
        if (status)
            return status;
        status = evaluate_batch(e, error);
        if (status)
            return status;
    }
}

static rt_status open_predictions(evaluation *e, const char *path, rt_error *error)
{
    if (!path)
        return RT_OK;
    e->predictions = fopen(path, "we");
    if (!e->predictions)
        return rt_fail(error, RT_IO, "cannot write %s: %s", path, strerror(errno));
    return RT_OK;
}

static rt_status close_predictions(evaluation *e, const char *path, rt_error *error)
{
    if (!e->predictions)
        return RT_OK;
    const bool failed = ferror(e->predictions);
    if (fclose(e->predictions) != 0 || failed)
        return rt_fail(error, RT_IO, "cannot write %s: %s", path, strerror(errno));
    return RT_OK;
}

static rt_status evaluate_to(evaluation *e, const char *predictions, rt_error *error)
{
    rt_status status = open_predictions(e, predictions, error);
    if (status)
        return status;
    status = evaluate(e, error);
    if (status) {
        (void)close_predictions(e, predictions, NULL); // what failed first is told
        return status;
    }
    return close_predictions(e, predictions, error);
}

// Which samples were held out follows from the share and the seed of the run that made the model: by
// others it would be judged by samples that it was trained on.
static rt_status check_holdout(const evaluation *e, const char *const *sets, uint32_t set_count,
                               rt_error *error)
{
    static const char *const keys[] = {"stream.holdout", "seed"};
    for (size_t i = 0; i < RT_COUNT_OF(keys); i++)
        if (e->is_of_holdout && cli_sets(sets, set_count, keys[i]))
            return rt_fail(error, RT_CONFIG,
                           "%s: which samples were held out follows from the run that made the "
                           "model, and others were trained; leave it as it was, or name other "
                           "files (stream.files)",
                           keys[i]);
    if (!e->is_of_holdout && cli_sets(sets, set_count, "stream.holdout") &&
        !cli_sets(sets, set_count, "stream.files"))
        rt_warn("stream.holdout is 0: all samples of the files are judged, also those that the "
                "model was trained on");
    return RT_OK;
}

static void close_all(evaluation *e)
{
    rt_stream_close(e->stream);
    rt_batch_fini(&e->batch);
    ew_scorer_destroy(e->scorer);
    ew_device_close(&e->device);
    ew_finished_close(&e->weights);
    rt_judge_fini(&e->judge);
}

typedef struct {
    const char *predictions, *summary; // files; NULL: none
    bool json;
} results_wanted;

static int eval(const char *directory, const char *const *sets, uint32_t set_count,
                const results_wanted *wanted)
{
    rt_config config;
    rt_error error = {0};
    evaluation e = {.config = &config};
    int code = cli_open_source(directory, sets, set_count, true, &config, &e.source);
    if (code != CLI_OK)
        return code;
    // Other files are judged as a whole.
    e.is_of_holdout = config.stream.holdout > 0 && !cli_sets(sets, set_count, "stream.files");
    rt_status status = check_holdout(&e, sets, set_count, &error);
    if (!status)
        status = cli_end_input(&config, false, &error);
    if (!status)
        status = evaluate_to(&e, wanted->predictions, &error);
    if (!status && wanted->json)
        print_json(&e);
    else if (!status)
        print_result(&e);
    if (!status && wanted->summary)
        status = add_to_summary(&e, wanted->summary, &error);
    close_all(&e);
    rt_config_fini(&config);
    return cli_end(status, &error);
}

int cli_eval_held_out(const char *folder)
{
    char summary[RT_PATH_MAX + 32];
    snprintf(summary, sizeof summary, "%s/summary.json", folder);
    return eval(folder, NULL, 0, &(results_wanted){.summary = summary});
}

int cli_eval(int argc, char **argv)
{
    const char *directory = NULL, *sets[CLI_SETS_MAX];
    uint32_t set_count;
    results_wanted wanted = {0};
    const cli_option options[] = {{"json", NULL, &wanted.json},
                                  {"predictions", &wanted.predictions, NULL}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &directory, sets, &set_count))
        return CLI_USAGE;
    if (!directory) {
        fprintf(stderr, "lanyard eval: which DIR? The folder model/ of a run, or a checkpoint\n");
        return CLI_USAGE;
    }
    return eval(directory, sets, set_count, &wanted);
}
