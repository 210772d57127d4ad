// Every operation of simulations, counted again by tools/recount.py from rows and placements alone.
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/policies/dp_policy.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/run_case.h"

#define RUN_S 120.0
#define PYTHON "/usr/bin/python3"

typedef enum { PLAIN, FULL_SYNC, HAND_OVER } move;

// ttl comes with look-ahead, and has a case of its own
static const char *const evictions[] = {"emark", "lru", "lfu", "light_lfu"};
_Static_assert(RT_COUNT_OF(evictions) + 1 == RT_EVICT_COUNT, "one of each but ttl");

static void needs_python(void)
{
    process p = {0};
    if (process_run(&p, (const char *const[]){PYTHON, "-c", "", NULL}, RUN_S) != 0)
        test_skip(PYTHON " is not there");
    process_fini(&p);
}

// Placements and trace of the latest simulation are counted again. words, up to NULL: what the
// recount is told.
static int recount(const char *const *words, process *p)
{
    char placements[400], trace[400];
    snprintf(placements, sizeof placements, "%s/placements", run_folder());
    snprintf(trace, sizeof trace, "%s/trace", run_folder());
    const char *arguments[24] = {PYTHON, "tools/recount.py", placements, trace, "--workers", "4"};
    for (size_t count = 6; *words; count++)
        arguments[count] = *words++;
    return process_run(p, arguments, RUN_S);
}

// A simulation of a policy with these settings, up to NULL, comes to what the recount comes to.
// what: of the case.
static void must_recount(const char *policy, const char *const *sets, const char *const *words,
                         const char *what)
{
    static const char *const all[] = {"workers=4", "batch.samples_per_worker=16",
                                      "stream.samples_max=3500"};
    char placements[400], trace[400];
    process p = {0};
    snprintf(placements, sizeof placements, "%s/placements", run_folder());
    snprintf(trace, sizeof trace, "%s/trace", run_folder());
    const char *simulate[32] = {process_lanyard(), "sim",     "configs/demo.json",
                                "--policies",      policy,    "--placements",
                                placements,        "--trace", trace};
    size_t count = 9;
    for (size_t i = 0; i < RT_COUNT_OF(all) || *sets; i++) {
        simulate[count++] = "--set";
        simulate[count++] = i < RT_COUNT_OF(all) ? all[i] : *sets++;
    }
    process_must_run(simulate, RUN_S);
    if (recount(words, &p) != 0 || !strstr(p.text, " 0 differ"))
        fail_msg("%s, %s: %s", policy, what, p.text);
    process_fini(&p);
}

// The most samples that a worker can get make room for 26 rows each: 16, or all 64.
static void check(const char *policy, const char *eviction, move way, const char *first,
                  const char *staleness)
{
    char cache[64], spec[128], consistency[64], what[96];
    snprintf(consistency, sizeof consistency, "consistency.staleness=%s", staleness);
    snprintf(cache, sizeof cache, "cache.eviction=%s", eviction);
    snprintf(spec, sizeof spec, "%s:alpha=0.5:tables=3:full_sync=%s:first_touch=%s", policy,
             way == FULL_SYNC ? "true" : "false", first);
    snprintf(what, sizeof what, "%s, staleness %s", eviction, staleness);
    const char *words[16] = {"--rows", "500", "--eviction", eviction, "--first-touch", first};
    size_t count = 6;
    if (way == FULL_SYNC)
        words[count++] = "--full-sync";
    if (way == HAND_OVER)
        words[count++] = "--hand-over";
    if (strcmp(staleness, "off") != 0) {
        words[count++] = "--staleness";
        words[count++] = staleness;
        words[count++] = "--overshoot";
        words[count++] = strcmp(policy, "makespan") == 0 ? "1664" : "416";
    }
    must_recount(spec,
                 (const char *const[]){"cache.rows=500", cache, consistency,
                                       way == HAND_OVER ? "dispatch.hand_over=true"
                                                        : "dispatch.hand_over=false",
                                       NULL},
                 words, what);
}

static void every_policy_and_eviction(void **state)
{
    (void)state;
    needs_python();
    for (uint32_t policy = 0; policy < RT_POLICY_BAGPIPE; policy++) {
        for (uint32_t e = 0; e < RT_COUNT_OF(evictions); e++)
            if (policy != RT_POLICY_HET)
                check(dp_policy_find((rt_policy_kind)policy)->name, evictions[e], PLAIN,
                      (policy + e) % 2 ? "pull" : "local", "off");
    }
}

static void full_synchronisation(void **state)
{
    (void)state;
    needs_python();
    for (uint32_t e = 0; e < RT_COUNT_OF(evictions); e++)
        check("laia", evictions[e], FULL_SYNC, "pull", "off");
}

// Rows that leave after their last use in sight; of 420 slots some are needed before.
static void rows_that_expire(void **state)
{
    static const struct {
        const char *policy, *eviction, *rows, *lookahead;
    } cases[] = {
        {"bagpipe", "ttl", "420", "7"}, {"bagpipe", "ttl", "900", "199"},
        {"random", "ttl", "420", "1"},  {"random", "ttl", "450", "30"},
        {"esd", "ttl", "500", "3"},     {"random", "lru", "420", "9"},
    };
    char rows[64], lookahead[64], eviction[64];
    (void)state;
    needs_python();
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        snprintf(rows, sizeof rows, "cache.rows=%s", cases[i].rows);
        snprintf(lookahead, sizeof lookahead, "cache.lookahead=%s", cases[i].lookahead);
        snprintf(eviction, sizeof eviction, "cache.eviction=%s", cases[i].eviction);
        must_recount(cases[i].policy, (const char *const[]){rows, lookahead, eviction, NULL},
                     (const char *const[]){"--rows", cases[i].rows, "--eviction", cases[i].eviction,
                                           "--lookahead", cases[i].lookahead, NULL},
                     rows);
    }
}

// Rows that every worker keeps, few and more than a batch has.
static void hot_rows(void **state)
{
    static const char *const rows[] = {"1", "150", "2500"};
    char hot[400], profile[500];
    (void)state;
    needs_python();
    snprintf(hot, sizeof hot, "%s/hot", run_folder());
    snprintf(profile, sizeof profile, "dispatch.profile=%s", hot);
    for (size_t i = 0; i < 2 * RT_COUNT_OF(rows); i++) {
        const char *first = i % 2 ? "pull" : "local";
        char touch[64];
        snprintf(touch, sizeof touch, "dispatch.first_touch=%s", first);
        process_must_run((const char *const[]){process_lanyard(), "profile", "configs/demo.json",
                                               "--samples", "2000", "--rows", rows[i / 2], "--out",
                                               hot, NULL},
                         RUN_S);
        must_recount("fae", (const char *const[]){"cache.rows=3000", profile, touch, NULL},
                     (const char *const[]){"--hot", hot, "--first-touch", first, NULL},
                     rows[i / 2]);
    }
}

static void rows_that_are_handed_over(void **state)
{
    (void)state;
    needs_python();
    for (uint32_t i = 0; i < 2 * RT_COUNT_OF(evictions); i++) {
        const uint32_t e = i / 2, policy = i % 2;
        check(policy ? "makespan" : "esd", evictions[e], HAND_OVER,
              (e + e / 2 + policy) % 2 ? "pull" : "local", "off");
    }
}

// Every bound with every policy and every eviction, but for that of het.
static void bounded_staleness(void **state)
{
    (void)state;
    static const char *const bounds[] = {"0", "1", "10", "100", "inf"};
    needs_python();
    for (uint32_t b = 0; b < RT_COUNT_OF(bounds); b++)
        for (uint32_t p = 0; p < rt_max_u64(RT_POLICY_BAGPIPE, RT_COUNT_OF(evictions)); p++) {
            const rt_policy_kind policy = (rt_policy_kind)(p % RT_POLICY_BAGPIPE);
            uint32_t e = (b + p) % RT_COUNT_OF(evictions);
            if (policy == RT_POLICY_HET && e == RT_EVICT_EMARK)
                e = RT_EVICT_LIGHT_LFU;
            check(dp_policy_find(policy)->name, evictions[e], PLAIN,
                  (b + p / 2) % 2 ? "pull" : "local", bounds[b]);
        }
}

// It would notice: one operation more on one line.
static void a_difference_is_found(void **state)
{
    (void)state;
    char command[1000];
    process p = {0};
    needs_python();
    snprintf(command, sizeof command, "sed -i '40s/\"miss_pull\":/\"miss_pull\":1/' '%s/trace'",
             run_folder());
    check("esd", "emark", PLAIN, "local", "off");
    process_must_run((const char *const[]){"/bin/sh", "-c", command, NULL}, RUN_S);
    assert_int_equal(recount((const char *const[]){"--rows", "500", "--eviction", "emark",
                                                   "--first-touch", "local", NULL},
                             &p),
                     1);
    assert_non_null(strstr(p.text, "iteration 10, worker 3: miss_pull 1"));
    assert_non_null(strstr(p.text, " 1 differ"));
    process_fini(&p);
}

// HybridDis' greedy half, by a program that has Algorithms 1 and 2 from the paper.
static void the_greedy_is_the_paper_s(void **state)
{
    char placements[400];
    process p = {0};
    (void)state;
    needs_python();
    snprintf(placements, sizeof placements, "%s/placements", run_folder());
    process_must_run(
        (const char *const[]){process_lanyard(), "sim", "configs/demo.json", "--policies",
                              "esd:alpha=0:hybrid=paper:first_touch=pull", "--set", "workers=4",
                              "--set", "batch.samples_per_worker=64", "--set", "cache.ratio=1",
                              "--set", "cache.rows=0", "--set", "stream.samples_max=4096",
                              "--placements", placements, NULL},
        RUN_S);
    const char *const in_ticks[] = {
        PYTHON, "tests/proc/check_greedy.py", placements, "64", "26214", "262144", NULL};
    if (process_run(&p, in_ticks, RUN_S) != 0)
        fail_msg("%s", p.text);
    process_fini(&p);
    const char *const in_other_prices[] = {
        PYTHON, "tests/proc/check_greedy.py", placements, "64", "1", "3", NULL};
    assert_int_equal(process_run(&p, in_other_prices, RUN_S), 1);
    assert_non_null(strstr(p.text, "4096 samples, "));
    process_fini(&p);
}

// It is the one that published results are given relative to; what chooses tables is another one.
static void plain_laia_is_the_reference(void **state)
{
    (void)state;
    process p = {0};
    const char *const words[] = {
        process_lanyard(), "sim",   "configs/demo.json",        "--policies", "laia:tables=1,laia",
        "--json",          "--set", "stream.samples_max=20000", NULL};
    assert_int_equal(process_run(&p, words, RUN_S), 0);
    const char *plain = strstr(p.text, "\"policy\": \"laia\"");
    assert_non_null(plain);
    if (!strstr(plain, "\"reduction_vs_laia\": 0,"))
        fail_msg("laia is not what others are compared with: %s", p.text);
    process_fini(&p);
}

static void one_policy_at_a_time(void **state)
{
    (void)state;
    process p = {0};
    const char *const two[] = {process_lanyard(), "sim",          "configs/demo.json", "--policies",
                               "laia,esd",        "--placements", "/dev/null",         NULL};
    assert_int_equal(process_run(&p, two, RUN_S), 1);
    assert_non_null(strstr(p.text, "--placements: expected one policy, found 2"));
    process_fini(&p);
}

TEST_MAIN(TEST_SLOW(every_policy_and_eviction, 240), TEST(full_synchronisation),
          TEST_SLOW(rows_that_expire, 120), TEST(hot_rows), TEST(rows_that_are_handed_over),
          TEST_SLOW(bounded_staleness, 240), TEST(a_difference_is_found),
          TEST(the_greedy_is_the_paper_s), TEST(plain_laia_is_the_reference),
          TEST(one_policy_at_a_time))
