// `lanyard report`: pages about made-up runs, whose numbers are known.
#include "tests/support/test.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/watch/rt_metric.h"
#include "tests/support/process_case.h"

#define RUN_S 60
#define DEPTH_MAX 64
#define PAGE_MAX (4u << 20)
#define RUN_PATH 300

typedef struct {
    process process;
    const char *directory; // of the case
    char out[400];
    char *page; // NULL: none was written
} scene;

// The path of a run's folder in the case's own.
static void name_run(const scene *s, const char *name, char path[RUN_PATH])
{
    snprintf(path, RUN_PATH, "%s/%s", s->directory, name);
}

static FILE *create(const char *directory, const char *name)
{
    char path[600];
    mkdir(directory, 0755);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    return file;
}

static void write_iteration(FILE *file, unsigned t, double seconds, double cost)
{
    fprintf(file,
            "{\"record\":\"iteration\",\"time_s\":%.9g,\"iteration\":%u,\"samples\":100,"
            "\"quality\":{\"log_loss\":0.6543,\"auc\":0.7654},\"cost\":%.9g,\"predicted_ms\":333.5,"
            "\"alpha\":0.25,\"decision_ms\":1.625,\"hit_ratio\":{\"lookups\":0.4375},"
            "\"ops\":{\"miss_pull\":11,\"update_push\":22,\"evict_push\":33,\"grad_push\":44},"
            "\"bytes_up\":[1000000,2000000],\"bytes_down\":[3000000,4000000],"
            "\"times_ms\":[{\"compute\":101,\"dense\":102,\"push\":103,\"pull\":104,\"plan\":105},"
            "{\"compute\":201,\"dense\":202,\"push\":203,\"pull\":204,\"plan\":205}]}\n",
            t * seconds, t, cost);
}

static void write_metrics(const char *directory, unsigned count, double seconds, double cost)
{
    FILE *file = create(directory, "metrics.jsonl");
    fprintf(file, "{\"record\":\"something new\",\"time_s\":0}\n");
    for (unsigned t = 1; t <= count; t++)
        write_iteration(file, t, seconds, cost);
    fclose(file);
}

static void write_summary(const char *directory)
{
    FILE *file = create(directory, "summary.json");
    fprintf(file, "{\"logloss\":0.5432,\"auc\":0.8765,\"logloss_last_fifth\":0.4321,"
                  "\"auc_last_fifth\":0.8888,\"stale_reads\":0,\"dense_bytes\":500000,"
                  "\"ops_by_worker\":[{\"miss_pull\":5,\"grad_push\":6},{\"miss_pull\":7}]}\n");
    fclose(file);
}

static int report(scene *s, const char *first, const char *second)
{
    snprintf(s->out, sizeof s->out, "%s/page.html", s->directory);
    remove(s->out);
    const char *const arguments[] = {
        process_lanyard(), "report", "--out", s->out, first, second, NULL};
    const int code = process_run(&s->process, arguments, RUN_S);
    FILE *file = fopen(s->out, "r");
    s->page = NULL;
    if (!file)
        return code;
    s->page = malloc(PAGE_MAX);
    assert_non_null(s->page);
    s->page[fread(s->page, 1, PAGE_MAX - 1, file)] = '\0';
    fclose(file);
    return code;
}

static void end_scene(scene *s)
{
    free(s->page);
    process_fini(&s->process);
}

static void expect(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not there", part);
}

// ---- well-formed -----------------------------------------------------------------------------

static const char *skip_entity(const char *at)
{
    static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strncmp(at, known[i], strlen(known[i])) == 0)
            return at + strlen(known[i]);
    }
    fail_msg("a lone & at: %.40s", at);
    return NULL;
}

// Past the end of a tag; quotes hide everything but what they may not contain.
static const char *skip_tag(const char *at, bool *closed)
{
    bool quoted = false;
    for (; *at && (quoted || *at != '>'); at++) {
        assert_true(*at != '<');
        quoted ^= *at == '"';
        *closed = *at == '/';
    }
    assert_true(*at == '>');
    return at + 1;
}

// Every element ends, in the right order; markup characters stand for markup only. Style sheets
// have no such characters here.
static void check_markup(const char *page)
{
    char open[DEPTH_MAX][16];
    int depth = 0;
    const char *at = page + strlen("<!DOCTYPE html>");
    assert_true(strncmp(page, "<!DOCTYPE html>", strlen("<!DOCTYPE html>")) == 0);
    while (*at) {
        char name[16] = "";
        if (*at == '&') {
            at = skip_entity(at);
            continue;
        }
        assert_true(*at != '>' && ((unsigned char)*at >= 0x20 || *at == '\n'));
        if (*at++ != '<')
            continue;
        const bool end = *at == '/';
        size_t length = 0;
        for (at += end; isalnum((unsigned char)*at); at++) {
            assert_true(length < sizeof name - 1);
            name[length++] = *at;
        }
        bool closed = false;
        at = skip_tag(at, &closed);
        if (end && (depth == 0 || strcmp(open[depth - 1], name) != 0))
            fail_msg("</%s> ends <%s>", name, depth ? open[depth - 1] : "nothing");
        if (end)
            depth--;
        else if (!closed) {
            assert_true(length > 0 && depth < DEPTH_MAX);
            strcpy(open[depth++], name);
        }
    }
    assert_int_equal(depth, 0);
}

// ---- cases -----------------------------------------------------------------------------------

static void numbers_appear(void **state)
{
    (void)state;
    char a[RUN_PATH], b[RUN_PATH];
    scene s = {.directory = test_directory()};
    name_run(&s, "a", a);
    name_run(&s, "b", b);
    write_metrics(a, 40, 0.5, 1234);
    write_summary(a);
    write_metrics(b, 40, 0.25, 777);
    write_summary(b);
    assert_int_equal(report(&s, a, b), 0);
    check_markup(s.page);
    // 2 iterations/s of 100 samples, then 4 of them: twice the first.
    expect(s.page, "<td>40</td><td>2</td><td>1.00x</td><td>200</td><td>500</td><td>333.5</td>"
                   "<td>1234</td><td>0.438</td><td>1.625</td><td>0.5432</td><td>0.8765</td>"
                   "<td>0.4321</td><td>0.8888</td><td>0</td>");
    expect(s.page, "<td>40</td><td>4</td><td>2.00x</td><td>400</td><td>250</td>");
    expect(s.page, "gradient pushes: 44");
    expect(s.page, "waiting for the plan: 205");
    expect(s.page, "rows and requests: 16");  // 1 MB in 0.5 s
    expect(s.page, "rows and requests: 128"); // 4 MB in 0.25 s
    expect(s.page, "dense weights: 8");
    expect(s.page, "pulls: 7");
    assert_null(strstr(s.page, "partial"));
    assert_null(strstr(s.page, "http"));    // nothing from outside
    assert_null(strstr(s.page, "<script")); // nothing that runs
    end_scene(&s);
}

// Of a label of several classes, beside a run without.
static void accuracy_appears(void **state)
{
    (void)state;
    char a[RUN_PATH], b[RUN_PATH];
    scene s = {.directory = test_directory()};
    name_run(&s, "a", a);
    name_run(&s, "b", b);
    write_metrics(a, 2, 0.5, 1234);
    write_summary(a);
    assert_int_equal(report(&s, a, NULL), 0);
    assert_null(strstr(s.page, "ccuracy"));
    end_scene(&s);
    FILE *file = create(b, "metrics.jsonl");
    for (int t = 1; t <= 2; t++)
        fprintf(file,
                "{\"record\":\"iteration\",\"time_s\":%d,\"iteration\":%d,\"samples\":100,"
                "\"quality\":{\"log_loss\":0.5,\"auc\":0.7,\"accuracy\":0.625}}\n",
                t, t);
    assert_int_equal(fclose(file), 0);
    file = create(b, "summary.json");
    fputs("{\"logloss\":0.5,\"auc\":0.7,\"accuracy\":0.6789,\"logloss_last_fifth\":0.4,"
          "\"auc_last_fifth\":0.8,\"accuracy_last_fifth\":0.7891,\"stale_reads\":0}\n",
          file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(report(&s, a, b), 0);
    check_markup(s.page);
    expect(s.page, "<th>AUC</th><th>accuracy</th><th>last fifth");
    expect(s.page, "<td>0.8765</td><td>-</td><td>0.4321</td><td>0.8888</td><td>-</td><td>0</td>");
    expect(s.page, "<td>0.7000</td><td>0.6789</td><td>0.4000</td><td>0.8000</td><td>0.7891</td>");
    expect(s.page, "Accuracy, of the window");
    end_scene(&s);
}

// A directory's name is the only text from outside.
static void hostile_names_are_escaped(void **state)
{
    (void)state;
    char directory[400];
    scene s = {.directory = test_directory()};
    snprintf(directory, sizeof directory,
             "%s/<script>alert('1')<&\"\\ --> \x01\t\xff\xc3\xef\xbf\xbf %%s%%n \xc3\xa4",
             s.directory);
    for (char *at = directory + strlen(s.directory) + 1; *at; at++)
        *at = *at == '/' ? '_' : *at;
    write_metrics(directory, 3, 1, 5);
    assert_int_equal(report(&s, directory, NULL), 0);
    check_markup(s.page);
    assert_null(strstr(s.page, "<script"));
    expect(s.page, "&lt;script&gt;alert(&#39;1&#39;)&lt;&amp;&quot;\\ --&gt; ");
    expect(s.page, " %s%n \xc3\xa4");
    end_scene(&s);
}

// What several labels are called stands in a configuration: text from outside, too.
static void labels_have_a_table(void **state)
{
    (void)state;
    char directory[RUN_PATH];
    scene s = {.directory = test_directory()};
    name_run(&s, "two", directory);
    write_metrics(directory, 3, 1, 5);
    FILE *file = create(directory, "summary.json");
    fprintf(file, "{\"logloss\":0.5,\"labels\":{\"click\":{\"logloss\":0.1234,\"auc\":0.7123,"
                  "\"calibration\":1.0321,\"logloss_last_fifth\":0.1111,\"auc_last_fifth\":0.7222},"
                  "\"<b>buy\":{\"logloss\":0.0456}}}\n");
    fclose(file);
    assert_int_equal(report(&s, directory, NULL), 0);
    check_markup(s.page);
    expect(s.page, "<td>click</td><td>0.1234</td><td>0.7123</td><td>1.032</td><td>0.1111</td>"
                   "<td>0.7222</td>");
    expect(s.page, "<td>&lt;b&gt;buy</td><td>0.0456</td><td>-</td>");
    end_scene(&s);
}

static void damaged_files_give_a_part(void **state)
{
    (void)state;
    char directory[RUN_PATH];
    scene s = {.directory = test_directory()};
    name_run(&s, "run", directory);
    FILE *file = create(directory, "metrics.jsonl");
    write_iteration(file, 1, 1, 10);
    fprintf(file, "{\"record\":\"iteration\",\"time_s\":\n[]\nnull\n\"<b>\"\n\n");
    write_iteration(file, 2, 1, 10);
    fprintf(file, "{\"record\":\"iteration\",\"time_s\":3,\"cost\":\"<b>\",\"ops\":7,"
                  "\"quality\":[1],\"times_ms\":{\"a\":{\"b\":1}},\"bytes_up\":[[],{}],"
                  "\"alpha\":1e999,\"decision_ms\":null}\n");
    for (unsigned i = 0; i < 3u << 20; i++) // a line that is longer than any record
        fputc('x', file);
    fprintf(file, "\n");
    fwrite("{\"record\":\"iteration\0\"}\n", 1, 24, file); // a bit that flipped hides no other line
    write_iteration(file, 4, 1, 10);
    fprintf(file, "{\"record\":\"iteration\",\"time_s\":5,\"cost\":10"); // cut short
    fclose(file);
    file = create(directory, "summary.json");
    fprintf(file, "{\"logloss\":0.5");
    fclose(file);
    assert_int_equal(report(&s, directory, NULL), 0);
    check_markup(s.page);
    expect(s.page, "partial: ");
    expect(s.page, "metrics.jsonl: 8 of 12 lines are damaged or cut short (first: line 2)");
    expect(s.page, "summary.json: is no JSON object");
    expect(s.page, "<td>4</td><td>1</td>"); // the iterations whose records are good
    expect(s.process.text, "cut short");
    end_scene(&s);
}

// 40 iterations of half a second, the checkpoint of 30, another process: 31 to 50. The clock of the
// second process begins anew, and ten iterations were made twice.
static void resumed_runs_keep_their_speed(void **state)
{
    (void)state;
    char directory[RUN_PATH];
    scene s = {.directory = test_directory()};
    name_run(&s, "resumed", directory);
    FILE *file = create(directory, "metrics.jsonl");
    for (unsigned t = 1; t <= 40; t++)
        write_iteration(file, t, 0.5, 10);
    fprintf(file, "{\"record\":\"resumed\",\"time_s\":1,\"iteration\":30}\n");
    for (unsigned t = 31; t <= 50; t++) // at 15.5 s and so on: also before the first one's end
        write_iteration(file, t, 0.5, 10);
    fclose(file);
    assert_int_equal(report(&s, directory, NULL), 0);
    check_markup(s.page);
    expect(s.page, "<td>50</td><td>2</td><td>1.00x</td>"); // iterations, a second
    expect(s.page, "<td>500</td>");                        // ms
    end_scene(&s);
}

static void what_is_no_run_is_named(void **state)
{
    (void)state;
    char nothing[RUN_PATH], empty[RUN_PATH], good[RUN_PATH];
    scene s = {.directory = test_directory()};
    name_run(&s, "nothing", nothing);
    name_run(&s, "empty", empty);
    name_run(&s, "good", good);
    write_metrics(empty, 0, 1, 1);
    write_metrics(good, 5, 1, 1);
    assert_int_equal(report(&s, good, nothing), 1);
    expect(s.process.text, "nothing: no metrics.jsonl");
    assert_null(s.page);
    end_scene(&s);
    s = (scene){.directory = s.directory};
    assert_int_equal(report(&s, empty, NULL), 1);
    expect(s.process.text, "empty/metrics.jsonl: no iteration is in it");
    assert_null(s.page);
    end_scene(&s);
    s = (scene){.directory = s.directory};
    assert_int_equal(report(&s, "--nonsense", NULL), 2);
    expect(s.process.text, "unknown option \"--nonsense\"");
    end_scene(&s);
}

// 10,000 iterations whose cost is 100, then 300: few points, and their means. The first half was
// put aside (metrics.bytes_max).
static void long_runs_are_boiled_down(void **state)
{
    (void)state;
    char directory[RUN_PATH];
    scene s = {.directory = test_directory()};
    name_run(&s, "long", directory);
    FILE *file = create(directory, "metrics.jsonl.1");
    for (unsigned t = 1; t <= 5000; t++)
        write_iteration(file, t, 0.01, 100);
    fclose(file);
    file = create(directory, "metrics.jsonl");
    for (unsigned t = 5001; t <= 10000; t++)
        write_iteration(file, t, 0.01, 300);
    fclose(file);
    assert_int_equal(report(&s, directory, NULL), 0);
    check_markup(s.page);
    expect(s.page, "is the mean of 32 iterations");
    expect(s.page, "<td>10000</td><td>100</td>");
    expect(s.page, "<td>200</td>"); // cost
    // Of an axis from 0 to 300 that is 182 high and ends at 196: the point of 100, then of 300.
    expect(s.page, ">300</text>");
    expect(s.page, " 135.3L");
    expect(s.page, " 14.0L");
    assert_true(strlen(s.page) < 200000);
    end_scene(&s);
}

// One record, or the summary, with the values of all metrics of the table that come of it.
static void write_all_metrics(FILE *file, const char *from, double time_s)
{
    cJSON *json = cJSON_CreateObject();
    char *text, name[64];
    cJSON_AddStringToObject(json, "record", from);
    cJSON_AddNumberToObject(json, "time_s", time_s);
    for (uint32_t i = 0; i < RT_RUN_METRICS; i++) {
        const rt_metric *metric = rt_metric_of_run(i);
        cJSON *at = json;
        const char *path = metric->at;
        if (!metric->from || strcmp(metric->from, from) != 0)
            continue;
        for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
            snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
            if (!cJSON_GetObjectItem(at, name))
                cJSON_AddObjectToObject(at, name);
            at = cJSON_GetObjectItem(at, name);
        }
        assert_non_null(cJSON_AddNumberToObject(at, path, 0.4375 + i));
    }
    text = cJSON_PrintUnformatted(json);
    fprintf(file, "%s\n", text);
    cJSON_free(text);
    cJSON_Delete(json);
}

// Every column and chart that the table names.
static void metrics_have_their_columns(void **state)
{
    (void)state;
    char directory[RUN_PATH], number[32], want[128];
    scene s = {.directory = test_directory()};
    name_run(&s, "all", directory);
    FILE *file = create(directory, "metrics.jsonl");
    for (int t = 1; t <= 3; t++) {
        write_all_metrics(file, "members", t);
        write_all_metrics(file, "iteration", t);
    }
    fclose(file);
    file = create(directory, "summary.json");
    write_all_metrics(file, "summary", 4);
    fclose(file);
    assert_int_equal(report(&s, directory, NULL), 0);
    check_markup(s.page);
    for (uint32_t i = 0; i < RT_RUN_METRICS; i++) {
        const rt_metric *metric = rt_metric_of_run(i);
        snprintf(want, sizeof want, "<th>%s</th>", metric->column.title);
        if (metric->column.place)
            expect(s.page, want);
        snprintf(want, sizeof want, "<td>%s</td>",
                 rt_form_text(metric->column.form, metric->from ? 0.4375 + i : 1000, number));
        if (metric->column.place)
            expect(s.page, want);
        snprintf(want, sizeof want, "<h3>%s <small>", metric->chart.title);
        if (metric->chart.where & RT_CHART_REPORT)
            expect(s.page, want);
    }
    end_scene(&s);
}

// A run that was resumed and goes on: what its first process wrote at its end is not said of it.
static void live_runs_are_told_of(void **state)
{
    (void)state;
    scene s = {.directory = test_directory()};
    char directory[RUN_PATH];
    name_run(&s, "run", directory);
    FILE *file = create(directory, "metrics.jsonl");
    write_iteration(file, 1, 1, 10);
    fprintf(file,
            "{\"record\":\"members\",\"time_s\":2,\"shards\":[{\"rank\":0}],\"ended\":true}\n"
            "{\"record\":\"resumed\",\"time_s\":0,\"iteration\":1}\n"
            "{\"record\":\"members\",\"time_s\":1,\"shards\":[{\"rank\":0}],\"ended\":false}\n");
    write_iteration(file, 2, 1, 10);
    fclose(file);
    write_summary(directory);
    assert_int_equal(report(&s, directory, NULL), 0);
    check_markup(s.page);
    expect(s.page, "run (unfinished)</td>");
    expect(s.page, "the run has not ended");
    assert_null(strstr(s.page, "0.5432"));
    expect(s.page, "<td>0.6543</td>");
    end_scene(&s);
}

TEST_MAIN(TEST(metrics_have_their_columns), TEST(numbers_appear), TEST(accuracy_appears),
          TEST(hostile_names_are_escaped), TEST(labels_have_a_table), TEST(live_runs_are_told_of),
          TEST(damaged_files_give_a_part), TEST(resumed_runs_keep_their_speed),
          TEST(what_is_no_run_is_named), TEST(long_runs_are_boiled_down))
