// Short simulations, of Lanyard and of the systems beside it, what is advised, the best fixed set,
// and counts of rows, against those that were recorded (tests/golden/simulations.golden): every
// number of a result, every word that is said. What they have to be, other tests say; this one
// notices that they became others.
//
// A look at the clock takes so long as a line says, so that times are the same on every machine.
//
// A change that is to make others: LANYARD_UPDATE_GOLDEN=1 (or a part of a name, for those that
// have it) writes the file anew. It has a line for each, NAME: WORD..., and below it, indented,
// what is recorded. A word is
//   KEY=VALUE            of the configuration
//   run=sim, fixed, advise, count, read, or a SPEC of dp_peers.h (@FILE: one of the case's)
//   policy=SPEC          of dp_sim_apply_spec
//   rows=SAMPLES,IDS     the input is a file of config_write_skewed
//   bad=SAMPLES,GARBAGE  or of config_write_criteo
//   text=LINE;LINE...    or one of these lines ("+": a space)
//   clock=NS,NS          that a look at the clock takes, and every fifth more
//   dense=BYTES keys=N progress=true journal=FILE replay=FILE (a journal)
//   wide=IDS             one line of libsvm
//   iterations=N         to advise by
//   samples=N memory=N   to count
//   hot=N file=FILE      rows of the file of hot rows, and its name
//   |                    the next one, with all of the words before
#include "dispatch/sim/dp_sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dispatch/sim/dp_advise.h"
#include "dispatch/sim/dp_fixed.h"
#include "dispatch/sim/dp_peers.h"
#include "dispatch/sim/dp_popularity.h"
#include "tests/support/config_case.h"
#include "tests/support/records.h"
#include "tests/support/said.h"
#include "tests/support/test.h"

#define GOLDEN "tests/golden/simulations.golden"
#define PARTS 4u // of the file, each a case
#define SHOWN 3u // advices, from both ends

// ---- the clock ---------------------------------------------------------------------------------

static struct {
    uint64_t now_ns, look_ns, fifth_ns, looks;
} test_time;

uint64_t __wrap_rt_now_ns(void);
uint64_t __wrap_rt_now_ns(void)
{
    test_time.now_ns += test_time.look_ns + (++test_time.looks % 5 == 0) * test_time.fifth_ns;
    return test_time.now_ns;
}

// ---- what is asked for -------------------------------------------------------------------------

typedef struct {
    rt_config config;
    rt_schema schema;
    dp_sim_config sim;
    dp_inputs inputs;
    char run[RT_PATH_MAX];
    uint32_t iterations;
    dp_popularity_config counting;
    uint64_t hot_rows;
    char file[RT_PATH_MAX];                           // of hot rows
    char journal[RT_PATH_MAX], replayed[RT_PATH_MAX]; // paths; "": none
    rt_status status;
    rt_error error;
} asked;

static void set_text(asked *a, char *lines)
{
    char files[600];
    for (char *at = lines; *at; at++)
        *at = *at == ';' ? '\n' : *at == '+' ? ' ' : *at;
    records_write(test_path("text"), lines);
    snprintf(files, sizeof files, "stream.files=[\"%s\"]", test_path("text"));
    config_must_set(&a->config, files);
}

// Ids from 0 on in one sample, as many as are asked for.
static void set_wide(asked *a, unsigned long ids)
{
    char *line = malloc(8 * (ids + 2));
    size_t size = (size_t)sprintf(line, "1");
    for (unsigned long i = 0; i < ids; i++)
        size += (size_t)sprintf(line + size, " %lu:1", i);
    set_text(a, line);
    free(line);
}

static void set_rows(asked *a, const char *numbers, const char *(*write)(uint32_t, uint32_t))
{
    uint32_t samples, more;
    assert_int_equal(sscanf(numbers, "%" SCNu32 ",%" SCNu32, &samples, &more), 2);
    config_must_set(&a->config, write(samples, more));
}

// With the path of a file of the case where it says @NAME.
static void take_run(asked *a, const char *value)
{
    const size_t length = strcspn(value, "@");
    const char *path = value[length] ? test_path(value + length + 1) : "";
    snprintf(a->run, sizeof a->run, "%.*s%s", (int)length, value, path);
}

static void take_word(asked *a, char *word)
{
    char *value = strchr(word, '=');
    assert_non_null(value);
    const size_t length = (size_t)(value++ - word);
    const uint64_t number = strtoull(value, NULL, 10);
#define IS(name) (length == strlen(name) && memcmp(word, name, length) == 0)
    if (IS("run"))
        take_run(a, value);
    else if (IS("policy"))
        a->status = dp_sim_apply_spec(&a->config, value, &a->error);
    else if (IS("rows"))
        set_rows(a, value, config_write_skewed);
    else if (IS("bad"))
        set_rows(a, value, config_write_criteo);
    else if (IS("text"))
        set_text(a, value);
    else if (IS("wide"))
        set_wide(a, number);
    else if (IS("clock"))
        assert_int_equal(
            sscanf(value, "%" SCNu64 ",%" SCNu64, &test_time.look_ns, &test_time.fifth_ns), 2);
    else if (IS("file"))
        snprintf(a->file, sizeof a->file, "%s", test_path(value));
    else if (IS("dense"))
        a->sim.dense_bytes = number;
    else if (IS("keys"))
        a->sim.distinct_keys = number;
    else if (IS("progress"))
        a->sim.progress = a->counting.progress = strcmp(value, "true") == 0;
    else if (IS("journal"))
        snprintf(a->journal, sizeof a->journal, "%s", *value ? test_path(value) : "");
    else if (IS("replay"))
        snprintf(a->replayed, sizeof a->replayed, "%s", *value ? test_path(value) : "");
    else if (IS("iterations"))
        a->iterations = (uint32_t)number;
    else if (IS("samples"))
        a->counting.samples_max = number;
    else if (IS("memory"))
        a->counting.memory_max = number;
    else if (IS("hot"))
        a->hot_rows = number;
    else
        config_must_set(&a->config, word);
#undef IS
}

static void take_words(asked *a, const char *text)
{
    char words[RECORDS_LINE_BYTES];
    snprintf(words, sizeof words, "%s", text);
    for (char *rest = NULL, *word = strtok_r(words, " ", &rest); word && !a->status;
         word = strtok_r(NULL, " ", &rest))
        take_word(a, word);
}

// ---- what comes of it --------------------------------------------------------------------------

// What the planner alone has.
static void put_planned(rt_bytes *record, const dp_sim_result *r)
{
    const dp_account *account = &r->account;
    const dp_decisions *d = &r->decisions;
    records_put(record,
                "%" PRIu64 " keys, %" PRIu64 " bytes, %" PRIu64 " sweeps of %" PRIu64
                " rows, plans #%016" PRIx64,
                r->directory_keys, r->directory_bytes, r->sweeps, r->rows_ended, r->fingerprint);
    records_put(record, "ms %.9g %.9g %.9g, %.9g; samples/s %.9g", r->decision_ms_p50,
                r->decision_ms_p99, r->decision_ms_max, r->commit_ms_p50, r->planned_samples_per_s);
    records_put(record,
                "decided %" PRIu64 ", measured %" PRIu64 ", samples %" PRIu64 " %" PRIu64
                " %" PRIu64 ", alpha %.9g, error %.9g of %.9g, device %.9g",
                d->iterations, d->measured_iterations, d->samples, d->opt_samples, d->heu_samples,
                d->alpha, d->error_s, d->error_bound_s, d->device_s);
    records_put(record,
                "clocks %" PRIu64 " %" PRIu64 " %" PRIu64 ", moved %" PRIu64 ", handed %" PRIu64
                " %" PRIu64 " %.9g",
                account->clocks.stale_keys, account->clocks.clock_messages,
                account->clocks.clock_spread, account->moved, account->handed.gradients,
                account->handed.bytes, account->handed.cost_s);
}

static void put_totals(rt_bytes *record, const dp_sim_result *r)
{
    const dp_account *account = &r->account;
    records_put(record,
                "%" PRIu64 " iterations behind %" PRIu64 ", %" PRIu64 " samples, %" PRIu32
                " slots, workers %" PRIx64 ", s %.9g",
                account->iterations, r->warmup_iterations, account->samples, r->slot_count,
                r->participants, account->predicted_s);
    records_put(record,
                "hits %" PRIu64 " of %" PRIu64 ", %" PRIu64 " of %" PRIu64 " of %" PRIu64
                ", handed %" PRIu64 ", summed %" PRIu64 ", soon %" PRIu64 ", window %" PRIu64
                " rows %" PRIu64 " batches",
                account->hits.lookups_hit, account->hits.lookups, account->hits.keys_hit,
                account->hits.keys, account->hits.distinct, account->handed.rows, r->reduce_bytes,
                r->reduce_critical_bytes, r->window_rows, r->window_batches);
}

// Of each worker: its counts in the order of RT_COUNTS_MAP, bytes up and down, samples, seconds.
static void put_result(rt_bytes *record, const dp_sim_result *r)
{
    const dp_account *account = &r->account;
    put_totals(record, r);
    for (uint32_t j = 0; j < r->costs.worker_count; j++) {
        char line[RECORDS_LINE_BYTES] = "";
        size_t size = 0;
#define XX(name, title) \
    size +=             \
        (size_t)snprintf(line + size, sizeof line - size, " %" PRIu64, account->workers[j].name);
        RT_COUNTS_MAP(XX, XX)
#undef XX
        records_put(record, "worker %" PRIu32 ":%s, %" PRIu64 " %" PRIu64 ", %" PRIu64 ", %.9g", j,
                    line, account->traffic[j].up, account->traffic[j].down, account->micro_batch[j],
                    account->cost_s[j]);
    }
}

// From its start, as text of the caller's (free).
static char *text_of(FILE *file)
{
    rt_bytes all = {0};
    char block[4096];
    rewind(file);
    for (size_t got; (got = fread(block, 1, sizeof block, file)) > 0;)
        rt_bytes_put(&all, block, got);
    rt_bytes_put(&all, "", 1);
    assert_false(all.failed);
    (void)fclose(file);
    char *text = strdup((const char *)all.data);
    rt_bytes_fini(&all);
    return text;
}

// Where a simulation may write, and what it may read; others have it, too, and leave it alone.
static void open_files(asked *a)
{
    a->sim.trace = tmpfile();
    a->sim.placements = tmpfile();
    assert_true(a->sim.trace && a->sim.placements);
    if (*a->journal)
        a->sim.journal = a->journal;
    if (!*a->replayed)
        return;
    const uint32_t workers = a->config.worker_count;
    assert_int_equal(dp_inputs_load(a->replayed, workers, &a->inputs, NULL), RT_OK);
    a->sim.inputs = &a->inputs;
}

static void put_files(rt_bytes *record, asked *a)
{
    char *trace = text_of(a->sim.trace), *placements = text_of(a->sim.placements);
    if (*trace)
        records_put_hash(record, "trace", trace);
    if (*placements)
        records_put_hash(record, "placements", placements);
    free(trace);
    free(placements);
    dp_inputs_fini(&a->inputs);
    if (!*a->journal)
        return;
    char *journal = records_read(a->journal);
    records_put_lines(record, "journal", journal ? journal : "none");
    free(journal);
}

static void run_sim(asked *a, rt_bytes *record)
{
    static dp_sim_result result;
    a->status = dp_sim_run(&a->sim, &result, &a->error);
    if (a->status)
        return;
    put_result(record, &result);
    put_planned(record, &result);
}

static void run_peer(asked *a, rt_bytes *record)
{
    static dp_sim_result result;
    dp_peer peer;
    a->status = dp_peer_parse(a->run, &peer, &a->error);
    if (!a->status)
        records_put(record,
                    "peer %d: hot %" PRIu64 ", profile %" PRIu64 ", file %d, schedule %d, "
                    "window %" PRIu32 ", replicate %d, partition %d",
                    peer.kind, peer.hot_rows, peer.profile, peer.file[0] != 0, peer.schedule,
                    peer.window, peer.replicate, peer.partition);
    if (!a->status)
        a->status = dp_peer_run(&a->sim, &peer, &result, &a->error);
    if (!a->status)
        put_result(record, &result);
}

static void describe_advice(const dp_advice *one, char *line, size_t size)
{
    size_t used = (size_t)snprintf(
        line, size,
        "%.9g s %.9g bytes, cache %" PRIu64 ", workers %" PRIx64 ", within %d %" PRIu32 ":",
        one->predicted_s, one->bytes, one->cache_bytes, one->participants, one->consistency.bounded,
        one->consistency.staleness);
    for (uint32_t l = 0; l < DP_ADVICE_LINES; l++)
        used += (size_t)snprintf(line + used, size - used, " %s", one->lines[l]);
}

static void run_advise(asked *a, rt_bytes *record)
{
    static dp_advices advices;
    char line[RECORDS_LINE_BYTES];
    rt_bytes all = {0};
    a->status = dp_advise(&a->sim, a->iterations, &advices, &a->error);
    records_put(record,
                "%" PRIu32 " advices, too small %" PRIu32 ", refused %" PRIu32
                ", too short %" PRIu32 ", %" PRIu64 " iterations, %" PRIu64 " keys",
                advices.count, advices.too_small, advices.refused, advices.too_short,
                advices.iterations, advices.keys);
    for (uint32_t i = 0; i < advices.count; i++) {
        describe_advice(&advices.items[i], line, sizeof line);
        rt_bytes_put(&all, line, strlen(line));
        rt_bytes_put(&all, "\n", 1);
        if (i < SHOWN || i + SHOWN >= advices.count)
            records_put(record, "%" PRIu32 ": %s", i, line);
    }
    rt_bytes_put(&all, "", 1);
    records_put_hash(record, "all", (const char *)all.data);
    rt_bytes_fini(&all);
    dp_advices_fini(&advices);
}

static void run_fixed(asked *a, rt_bytes *record)
{
    dp_fixed_set best;
    a->status = dp_fixed_best(&a->sim, &best, &a->error);
    records_put(record, "workers %" PRIx64 ", %.9g s, %" PRIu32 " tried", best.workers,
                best.predicted_s, best.tried);
}

static void put_rows(rt_bytes *record, const dp_popular *rows, uint64_t count)
{
    rt_bytes all = {0};
    char line[64];
    for (uint64_t i = 0; i < count; i++) {
        snprintf(line, sizeof line, "%016" PRIx64 " %" PRIu64 "\n", rows[i].key, rows[i].uses);
        rt_bytes_put(&all, line, strlen(line));
    }
    rt_bytes_put(&all, "", 1);
    records_put_hash(record, "rows", (const char *)all.data);
    rt_bytes_fini(&all);
}

static void run_count(asked *a, rt_bytes *record)
{
    dp_popularity profile;
    a->status = dp_popularity_take(&a->config, &a->counting, &profile, &a->error);
    records_put(record, "%" PRIu64 " rows, %" PRIu64 " look-ups, %" PRIu64 " samples, end: %s",
                profile.row_count, profile.lookups, profile.samples,
                dp_popularity_end_name(profile.end));
    put_rows(record, profile.uses, profile.row_count);
    if (!a->status && a->hot_rows) {
        a->status =
            dp_popularity_write(&profile, &a->config, &a->schema, a->hot_rows, a->file, &a->error);
        char *file = a->status ? NULL : records_read(a->file);
        if (file) {
            records_put(record, "file: %.*s", (int)strcspn(file, "\n"), file);
            records_put_hash(record, "file", file);
        }
        free(file);
    }
    dp_popularity_fini(&profile);
}

static void run_read(asked *a, rt_bytes *record)
{
    dp_popular *rows = NULL;
    uint64_t count = 0;
    a->status = dp_popularity_read(a->file, &a->config, &a->schema, &rows, &count, &a->error);
    put_rows(record, rows, count);
    rt_free(rows);
}

static void run_one(asked *a, rt_bytes *record)
{
    static const struct {
        const char *name;
        void (*run)(asked *a, rt_bytes *record);
    } runs[] = {{"sim", run_sim},
                {"advise", run_advise},
                {"fixed", run_fixed},
                {"count", run_count},
                {"read", run_read}};
    open_files(a);
    size_t i = 0;
    while (i < RT_COUNT_OF(runs) && strcmp(a->run, runs[i].name) != 0)
        i++;
    (i < RT_COUNT_OF(runs) ? runs[i].run : run_peer)(a, record);
    put_files(record, a);
}

// ---- a record ----------------------------------------------------------------------------------

static const char common[] =
    "rows=200,1 workers=3 batch.samples_per_worker=4 stream.format=criteo model.embedding_dim=8 "
    "cache.rows=150 links.workers=[1,0.5,0.2] planner.threads=1 sim.warmup=3 run=sim "
    "clock=1000,500 file=hot dense=3000 memory=4000000 iterations=6";

// What is said, without the name of the case's folder; a line that is written over is several.
static void put_said(rt_bytes *record, const char *what, const char *said)
{
    char text[1 << 14];
    char folder[300];
    size_t size = 0;
    snprintf(folder, sizeof folder, "%s", test_path(""));
    for (const char *at = said; *at && size + 1 < sizeof text;) {
        if (strncmp(at, folder, strlen(folder)) == 0) {
            at += strlen(folder);
            continue;
        }
        text[size++] = *at == '\r' ? '\n' : *at;
        at++;
    }
    text[size] = '\0';
    if (strlen(text) < 1500)
        records_put_lines(record, what, text);
    else
        records_put_hash(record, what, text);
}

static void play_one(const char *all, rt_bytes *record)
{
    static asked a;
    said_output log;
    a = (asked){.config = config_fresh()};
    test_time.now_ns = test_time.looks = 0;
    a.sim = (dp_sim_config){.config = &a.config, .schema = &a.schema};
    take_words(&a, common);
    take_words(&a, all);
    said_begin(&log, STDERR_FILENO);
    if (!a.status && strcmp(a.run, "advise") != 0) // which checks itself
        a.status = rt_config_check(&a.config, &a.error);
    if (!a.status)
        a.status = rt_stream_read_schema(&a.config.stream, a.config.seed, &a.schema, &a.error);
    if (!a.status)
        run_one(&a, record);
    put_said(record, "said", said_end(&log));
    records_put(record, "status %d", a.status);
    put_said(record, "error", a.error.text);
    rt_config_fini(&a.config);
}

static char *play(const char *line)
{
    char all[RECORDS_LINE_BYTES] = "", text[RECORDS_LINE_BYTES];
    rt_bytes record = {0};
    snprintf(text, sizeof text, "%s", strchr(line, ':') + 1);
    for (char *rest = NULL, *one = strtok_r(text, "|", &rest); one;
         one = strtok_r(NULL, "|", &rest)) {
        strncat(all, one, sizeof all - strlen(all) - 1);
        play_one(all, &record);
    }
    return records_text(&record);
}

int main(int argc, char **argv)
{
    return records_main(GOLDEN, PARTS, 0, play, argc, argv);
}
