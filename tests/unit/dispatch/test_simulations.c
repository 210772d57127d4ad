// Short simulations, of Lanyard and of Bagpipe's designs, what is advised, the best fixed set,
// and counts of rows. simulations.txt has a line for each, and below it what a user is told: what
// is said, why something is refused, which advice comes first. The numbers of a result are held
// against each other (check_result), against an independent count of the input, and, of a journal,
// against the run that wrote it.
//
// A look at the clock takes so long as a line says, so that times are the same on every machine.
//
// A change that is to make others: LANYARD_UPDATE_GOLDEN=1 (or a part of a name, for those that
// have it) writes the file anew. It has a line for each, NAME: WORD... A word is
//   KEY=VALUE            of the configuration
//   run=sim, fixed, advise, count, read, or a SPEC of dp_peers.h
//   policy=SPEC          of dp_sim_apply_spec (@FILE: one of the case's)
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
#include "dispatch/planner/dp_popularity.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/config_case.h"
#include "tests/support/records.h"
#include "tests/support/said.h"
#include "tests/support/test.h"

#define SIMULATIONS "tests/unit/dispatch/simulations.txt"
#define PARTS 4u       // of the file, each a case
#define LINES_SHOWN 3u // of what is said

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
    char run[64];
    uint32_t iterations;
    dp_popularity_config counting;
    uint64_t hot_rows;
    char file[RT_PATH_MAX];                           // of hot rows
    char journal[RT_PATH_MAX], replayed[RT_PATH_MAX]; // paths; "": none
    rt_status status;
    rt_error error;
    uint64_t plans; // of the simulation before in the same line; 0: none
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
static const char *with_path(const char *value)
{
    static char text[RT_PATH_MAX + 64];
    const size_t length = strcspn(value, "@");
    const char *path = value[length] ? test_path(value + length + 1) : "";
    snprintf(text, sizeof text, "%.*s%s", (int)length, value, path);
    return text;
}

static void take_word(asked *a, char *word)
{
    char *value = strchr(word, '=');
    assert_non_null(value);
    const size_t length = (size_t)(value++ - word);
    const uint64_t number = strtoull(value, NULL, 10);
#define IS(name) (length == strlen(name) && memcmp(word, name, length) == 0)
    if (IS("run"))
        snprintf(a->run, sizeof a->run, "%s", value);
    else if (IS("policy"))
        a->status = dp_sim_apply_spec(&a->config, with_path(value), &a->error);
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
        config_must_set(&a->config, with_path(word));
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

static void must(bool ok, const char *what)
{
    if (!ok)
        fail_msg("%s", what);
}

static void check_hits(const asked *a, const dp_sim_result *r)
{
    const dp_account *account = &r->account;
    uint64_t pulls = 0, created = 0, samples = 0;
    for (uint32_t j = 0; j < r->costs.worker_count; j++) {
        const rt_counts *own = &account->workers[j];
        pulls += own->miss_pull;
        created += own->first_touch;
        samples += account->micro_batch[j];
    }
    const bool pulls_new = a->config.dispatch.first_touch == RT_FIRST_TOUCH_PULL;
    must(samples == account->samples, "each sample has one worker");
    must(account->hits.lookups_hit <= account->hits.lookups &&
             account->hits.keys_hit <= account->hits.keys &&
             account->hits.distinct <= account->hits.keys,
         "there are no more hits than look-ups");
    const uint64_t missed = account->hits.keys - account->hits.keys_hit;
    if (a->config.dispatch.policy == RT_POLICY_FAE) // rows come back before their use
        must(missed <= pulls + created, "what was not there came");
    else if (missed != pulls + (pulls_new ? 0 : created) + account->handed.rows)
        fail_msg("%" PRIu64 " keys were not there, but %" PRIu64 " rows came and %" PRIu64
                 " were made, %" PRIu64 " handed",
                 missed, pulls, created, account->handed.rows);
}

// All keys of the input, counted by themselves.
static void check_keys(asked *a, const dp_sim_result *r)
{
    dp_popularity profile;
    const rt_config *config = &a->config;
    const dp_popularity_config counting = {.memory_max = 1 << 26};
    const bool all = config->sim_iterations == 0 && !r->sweeps && config->rows.admit == 1 &&
                     config->rows.admit_share == 1;
    if (dp_popularity_take(config, &counting, &profile, NULL) == RT_OK && all)
        assert_int_equal(r->directory_keys, profile.row_count);
    dp_popularity_fini(&profile);
}

static void check_result(asked *a, const dp_sim_result *r)
{
    const dp_account *account = &r->account;
    check_hits(a, r);
    must(account->iterations > 0 && account->predicted_s > 0, "a simulation takes time");
    for (uint32_t j = 0; j < r->costs.worker_count; j++)
        must((account->traffic[j].up + account->traffic[j].down > 0) == (account->cost_s[j] > 0),
             "what moves costs");
    must(r->decision_ms_p50 <= r->decision_ms_p99 &&
             r->decision_ms_p99 <= r->decision_ms_max + 1e-9,
         "quantiles are in order");
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

static uint64_t lines_of(const char *text)
{
    uint64_t lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

// A line for each worker and iteration, and one for each sample, where a simulation came to its end.
static void check_files(asked *a, const dp_sim_result *r)
{
    char *trace = text_of(a->sim.trace), *placements = text_of(a->sim.placements);
    if (r && a->status == RT_OK) {
        const uint64_t iterations = r->account.iterations + r->warmup_iterations;
        const uint32_t n = r->costs.worker_count;
        assert_int_equal(lines_of(trace), iterations * n);
        must(lines_of(placements) >= r->account.samples &&
                 lines_of(placements) <= iterations * n * a->config.samples_per_worker,
             "each sample has a line");
    }
    free(trace);
    free(placements);
    dp_inputs_fini(&a->inputs);
}

static void run_sim(asked *a, rt_bytes *record)
{
    static dp_sim_result result;
    (void)record;
    a->status = dp_sim_run(&a->sim, &result, &a->error);
    if (!a->status) {
        check_result(a, &result);
        check_keys(a, &result);
        if (a->sim.inputs && a->plans)
            must(a->plans == result.fingerprint,
                 "a journal gives the plans of the run that wrote it");
        a->plans = result.fingerprint;
    }
    check_files(a, &result);
}

// It looks up what Lanyard does.
static void run_peer(asked *a, rt_bytes *record)
{
    static dp_sim_result result, own;
    dp_peer peer;
    (void)record;
    a->status = dp_peer_parse(a->run, &peer, &a->error);
    if (!a->status)
        a->status = dp_peer_run(&a->sim, &peer, &result, &a->error);
    check_files(a, NULL);
    if (a->status)
        return;
    const dp_account *account = &result.account;
    must(account->hits.lookups_hit <= account->hits.lookups &&
             account->hits.keys_hit <= account->hits.keys && account->predicted_s > 0,
         "there are no more hits than look-ups");
    must(result.reduce_critical_bytes <= result.reduce_bytes, "a part is no more than the whole");
    dp_sim_config sim = a->sim;
    sim.trace = sim.placements = NULL;
    sim.journal = NULL;
    sim.inputs = NULL;
    if (dp_sim_run(&sim, &own, NULL) == RT_OK) {
        assert_int_equal(account->samples, own.account.samples);
        assert_int_equal(account->hits.lookups, own.account.hits.lookups);
    }
}

// The best first. What an advice is, is in the first one's lines.
static void run_advise(asked *a, rt_bytes *record)
{
    static dp_advices advices;
    a->status = dp_advise(&a->sim, a->iterations, &advices, &a->error);
    for (uint32_t i = 1; i < advices.count; i++)
        must(advices.items[i - 1].predicted_s <= advices.items[i].predicted_s,
             "better advice comes first");
    records_put(record,
                "%" PRIu32 " advices, too small %" PRIu32 ", refused %" PRIu32
                ", too short %" PRIu32,
                advices.count, advices.too_small, advices.refused, advices.too_short);
    for (uint32_t l = 0; l < DP_ADVICE_LINES && advices.count; l++)
        if (*advices.items[0].lines[l])
            records_put(record, "%s", advices.items[0].lines[l]);
    dp_advices_fini(&advices);
    check_files(a, NULL);
}

static void run_fixed(asked *a, rt_bytes *record)
{
    dp_fixed_set best;
    a->status = dp_fixed_best(&a->sim, &best, &a->error);
    if (!a->status)
        records_put(record, "workers %" PRIx64 ", %" PRIu32 " tried", best.workers, best.tried);
    check_files(a, NULL);
}

static void check_rows(const dp_popularity *profile)
{
    uint64_t uses = 0;
    for (uint64_t i = 0; i < profile->row_count; i++) {
        const dp_popular *one = &profile->uses[i];
        uses += one->uses;
        must(i == 0 || one[-1].uses > one->uses ||
                 (one[-1].uses == one->uses && one[-1].key < one->key),
             "the most used rows come first, of equal ones the smallest key");
    }
    must(uses == profile->lookups, "each look-up uses a row");
}

// What is written reads as it was.
static void check_hot(asked *a, const dp_popularity *profile)
{
    dp_popular *rows = NULL;
    uint64_t count = 0;
    a->status =
        dp_popularity_write(profile, &a->config, &a->schema, a->hot_rows, a->file, &a->error);
    if (a->status)
        return;
    if (dp_popularity_read(a->file, &a->config, &a->schema, &rows, &count, &a->error))
        fail_msg("%s", a->error.text);
    assert_int_equal(count, rt_min_u64(a->hot_rows, profile->row_count));
    if (count)
        assert_memory_equal(rows, profile->uses, count * sizeof *rows);
    rt_free(rows);
}

static void run_count(asked *a, rt_bytes *record)
{
    dp_popularity profile;
    a->status = dp_popularity_take(&a->config, &a->counting, &profile, &a->error);
    if (!a->status) {
        records_put(record, "%" PRIu64 " rows, %" PRIu64 " look-ups, %" PRIu64 " samples, end: %s",
                    profile.row_count, profile.lookups, profile.samples,
                    dp_popularity_end_name(profile.end));
        check_rows(&profile);
    }
    if (!a->status && a->hot_rows)
        check_hot(a, &profile);
    dp_popularity_fini(&profile);
    check_files(a, NULL);
}

static void run_read(asked *a, rt_bytes *record)
{
    dp_popular *rows = NULL;
    uint64_t count = 0;
    a->status = dp_popularity_read(a->file, &a->config, &a->schema, &rows, &count, &a->error);
    if (!a->status)
        records_put(record, "%" PRIu64 " rows", count);
    rt_free(rows);
    check_files(a, NULL);
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
}

// ---- a record ----------------------------------------------------------------------------------

static const char common[] =
    "rows=200,1 workers=3 batch.samples_per_worker=4 stream.format=criteo model.embedding_dim=8 "
    "cache.rows=150 links.workers=[1,0.5,0.2] planner.threads=1 sim.warmup=3 run=sim "
    "clock=1000,500 file=hot dense=3000 memory=4000000 iterations=6";

// Of progress the end.
static const char *last_lines(const char *text)
{
    const char *at = text + strlen(text);
    for (uint32_t lines = 0; at > text; at--)
        if (at[-1] == '\n' && at[0] && ++lines == LINES_SHOWN)
            return at;
    return at;
}

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
    records_put_lines(record, what, last_lines(text));
}

// plans: of the one before; 0: none.
static void play_one(const char *all, uint64_t *plans_p, rt_bytes *record)
{
    static asked a;
    said_output log;
    a = (asked){.config = config_fresh(), .plans = *plans_p};
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
    if (a.status)
        put_said(record, rt_status_text(a.status), a.error.text);
    *plans_p = a.plans;
    rt_config_fini(&a.config);
}

static char *play(const char *line)
{
    char all[RECORDS_LINE_BYTES] = "", text[RECORDS_LINE_BYTES];
    rt_bytes record = {0};
    uint64_t plans = 0;
    snprintf(text, sizeof text, "%s", strchr(line, ':') + 1);
    for (char *rest = NULL, *one = strtok_r(text, "|", &rest); one;
         one = strtok_r(NULL, "|", &rest)) {
        strncat(all, one, sizeof all - strlen(all) - 1);
        play_one(all, &plans, &record);
    }
    return records_text(&record);
}

int main(int argc, char **argv)
{
    return records_main(SIMULATIONS, PARTS, 0, play, argc, argv);
}
