// run_case - what runs leave in folders: waiting for it, reading it, comparing it.
//
// OUT is the name of a run's folder below run_folder(), which is the case's own. What is not as it
// should be fails the case.
#ifndef RUN_CASE_H
#define RUN_CASE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tests/support/process_case.h"

#define RUN_CASE_S 60.0 // a run takes less
#define RUN_CASE_ITERATIONS_MAX 200000u

const char *run_folder(void);

// A path below it; static, until the fourth call after this one.
const char *run_path(const char *name);

// A file there, empty; the caller closes it.
FILE *run_create(const char *name);

// Writes a file of that name below it, whose folder is there.
void run_write(const char *name, const void *bytes, size_t size);

// Starts "lanyard WORD... --set SET...": lists that end with NULL; sets may be NULL.
void run_start(process *p, const char *const *words, const char *const *sets);

// Starts "lanyard up CONFIG --out FOLDER/out FLAG --set SET..."; flag may be NULL. config: its
// text.
void run_start_up(process *p, const char *config, const char *out, const char *flag,
                  const char *const *sets);

// "lanyard COMMAND CONFIG", then "--out FOLDER/out", or "--json" where out is NULL; sets may begin
// with a flag.
void run_start_config(process *p, const char *command, const char *config, const char *out,
                      const char *const *sets);

// As run_start_up, to its good end.
void run_up(const char *config, const char *out, const char *flag, const char *const *sets);

void run_must_end(process *p, int want); // its status
void run_must_say(const process *p, const char *text);

// Of a file below FOLDER/out, terminated, the caller's (free); NULL: there is none.
char *run_file(const char *out, const char *name, size_t *size_p);

void run_must_equal(const char *out, const char *other, const char *name); // of a file
void run_same_line(const char *out, const char *other, const char *key);   // of summary.json

// The first value of a member ("\"stale_reads\": ") in a text.
void run_value(const char *text, const char *name, char value[64]);

// FOLDER/out's run made the plans that a summary of the simulator tells of.
void run_must_have_planned(const char *out, const char *simulated);

// The same of "lanyard sim CONFIG --set SET...". Members ("\"rows_handed\":") have the same values
// in both summaries; what training reads is as new as it must be. Lists that end with NULL.
void run_must_be_simulated(const char *config, const char *out, const char *const *sets,
                           const char *const *members);

// Of a member ("\"rows_handed\":"), over all records of iterations in FOLDER/out.
double run_sum(const char *out, const char *name);

// The same, which must be what summary.json has of one iteration times their number.
double run_sum_as_summed_up(const char *out, const char *name);

// The files of the model.
void run_must_have_one_model(const char *out, const char *other, uint32_t shards);

// Model, plans, and what was predicted on the way.
void run_must_be_the_same(const char *out, const char *other, uint32_t shards);

// Waits until the metrics have a text so often. p: what to show when it does not come.
void run_await_records(process *p, const char *out, const char *text, uint32_t count);

// Waits until `count` iterations were reported, those that were lost and made again included.
void run_await_iterations(process *p, const char *out, uint32_t count);

// Waits until a checkpoint is complete.
void run_await_checkpoint(process *p, const char *out);

// Waits until so many workers train, after the run went on from a checkpoint for the last time.
void run_await_going_on(process *p, const char *out, uint32_t workers);

// Forgets the end of a run: its model, its summary and its last checkpoint.
void run_lose_the_end(const char *out);

// Runs with these sets, which make checkpoints and end with NULL: one that loses its end and goes
// on comes to the same as one that does not.
void run_must_go_on_alike(const char *config, uint32_t shards, const char *const *sets);

// An endless run of four workers (sets, ended by NULL) that loses worker 2 and takes it back; every
// sample is trained once.
void run_must_regain_a_worker(const char *config, const char *out, const char *const *sets);

// The samples that summary.json says were trained.
uint64_t run_samples(const char *out);

// The history that survives trains sample_count samples, each once, in iterations without a gap, by
// so many workers at first, so many then, and so on; stale reads 0. If these are several numbers, a
// worker that was too slow for a start may be missing for a while, but not at the end.
void run_must_train_once(const char *out, uint64_t sample_count, uint32_t workers[], size_t count);

#endif
