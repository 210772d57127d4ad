// cli - the subcommands of `lanyard` and what they share.
//
// A command gets its own arguments and returns the exit status: 0 done, 1 failed (one clear error
// was printed), 2 wrong usage; and of the processes of a run 3 ended because it failed elsewhere, 4
// (coordinator) ended so that all start anew, with workers that are back, 5 ended because of what
// would only happen again until somebody mends it, 6 (members) ended because the run goes on
// without their box.
#ifndef CLI_H
#define CLI_H

#include "edge_worker/model/ew_model.h"
#include "edge_worker/predict/ew_source.h"
#include "runtime/config/rt_config.h"
#include "runtime/rt_notify.h"
#include "runtime/stream/rt_stream.h"
#include "runtime/transport/rt_transport.h"
#include "runtime/wire/rt_control.h"

#define CLI_OK 0
#define CLI_FAILED 1
#define CLI_USAGE 2
#define CLI_ENDED 3
#define CLI_ANEW 4
#define CLI_MEND 5
#define CLI_DRAINED 6
#define CLI_AGAIN 256 // no status: this process begins again, with the same words
#define CLI_SETS_MAX 256
#define CLI_UP_VARIABLE "LANYARD_UP" // in the environment of those that `up` starts
// On --up-fd, from a shard that waits for the next start: it was told to, or lost the coordinator.
#define CLI_TOLD "told"
#define CLI_ALONE "alone"
#define CLI_SAVED "saved" // on --announce-fd, after the address: model and summary are on disk

typedef struct {
    const char *name;
    const char *arguments;             // after the name, for the usage
    const char *help;                  // one line
    const char *options;               // lines for `lanyard NAME --help`; NULL: help says it all
    int (*run)(int argc, char **argv); // argv[0] is the command's name
} cli_command;

typedef struct {
    const cli_command *commands;
    size_t count;
} cli_commands;

int cli_init(int argc, char **argv);
int cli_up(int argc, char **argv);
int cli_coordinator(int argc, char **argv);
int cli_ps(int argc, char **argv);
int cli_worker(int argc, char **argv);
int cli_sim(int argc, char **argv);
int cli_advise(int argc, char **argv);
int cli_crosses(int argc, char **argv);
int cli_profile(int argc, char **argv);
int cli_eval(int argc, char **argv);
// The model of a run by what the run held out (stream.holdout): printed, and put into its summary.
int cli_eval_held_out(const char *folder);

// The model of a checkpoint, in a folder, as `lanyard export` makes it. RT_CONFIG, RT_DATA, RT_IO,
// RT_NOT_FOUND, RT_NO_MEMORY.
rt_status cli_extract(const char *checkpoint, const char *folder, rt_error *error);
int cli_predict(int argc, char **argv);
int cli_serve(int argc, char **argv);
int cli_pin(int argc, char **argv);
int cli_rollback(int argc, char **argv);
int cli_export(int argc, char **argv);
int cli_check(int argc, char **argv);
int cli_probe(int argc, char **argv);
int cli_top(int argc, char **argv);
int cli_report(int argc, char **argv);
int cli_keygen(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_feed(int argc, char **argv);
int cli_set(int argc, char **argv);
int cli_forget(int argc, char **argv);
int cli_add(int argc, char **argv);
int cli_drain(int argc, char **argv);
int cli_standby(int argc, char **argv);
int cli_promote(int argc, char **argv);
int cli_verify(int argc, char **argv);
int cli_trace(int argc, char **argv);

// An option "--name VALUE" (value set) or "--name" (flag set).
typedef struct {
    const char *name;
    const char **value;
    bool *flag;
} cli_option;

// Takes one positional argument (into *path, which may be required) and options, --set among them.
// sets receives the assignments in order. Prints what is wrong; false then.
bool cli_parse(int argc, char **argv, const cli_option *options, size_t option_count,
               const char **path, const char **sets, uint32_t *set_count);

// The whole number of an option; text NULL leaves *number_p. Prints what is wrong; false then.
bool cli_number(const char *command, const char *option, const char *text, uint64_t least,
                uint64_t *number_p);

// Loads a config file over the defaults, applies sets, checks it, sets the log up under name.
// Returns an exit status, after printing what is wrong; on CLI_OK config is the caller's
// (rt_config_fini).
int cli_load(const char *path, const char *const *sets, uint32_t set_count, const char *name,
             rt_config *config);

// The same for who reads no input: stream.files may be missing.
int cli_load_model(const char *path, const char *const *sets, uint32_t set_count, const char *name,
                   rt_config *config);

// Whether a file seems to be one of rows: several lines, and no object that goes over all of them.
bool cli_holds_rows(const char *path);

// Of the folder of a run its model/, or where there is none yet what it publishes; else the folder
// itself. model: room for its path.
const char *cli_model_of(const char *folder, char model[RT_PATH_MAX]);

// ew_source_open, and the log by its configuration. Returns an exit status, after printing what is
// wrong.
int cli_open_source(const char *folder, const char *const *sets, uint32_t set_count,
                    bool reads_input, rt_config *config, ew_source *source);

// The same for a process of a training run, which can do less than `sim`.
int cli_load_run(const char *path, const char *const *sets, uint32_t set_count, const char *name,
                 rt_config *config);

// For a command that reads its input once, and tells what it found at its end: a file that is
// followed is read as it is now, a FIFO until its last writer has closed it. RT_CONFIG: a topic,
// which has no end, unless stream.samples_max gives it one, or the command itself (is_bounded).
rt_status cli_end_input(rt_config *config, bool is_bounded, rt_error *error);

// Whether one of the assignments is of this key of "stream", or of the whole section.
bool cli_sets(const char *const *sets, uint32_t set_count, const char *key);

// HOST:PORT with "tcp://" before it where no scheme is given. Prints what is wrong; false then.
bool cli_address(const char *given, char *address, size_t size);

// Standard output is a pipe whose reader has ended, as that of `| head` does: it has what it wanted.
bool cli_reader_has_gone(void);

// Prints "lanyard: error" and returns CLI_FAILED.
int cli_fail(const rt_error *error);

// CLI_OK, or, after a failure, cli_fail.
int cli_end(rt_status status, const rt_error *error);

// A hash of everything in a config but what may differ from box to box (addresses that a process
// listens on, its key files): members of one run must agree on it. 0: out of memory.
uint64_t cli_config_hash(const rt_config *config);

// What the processes of a run must agree on. Zeros: out of memory.
rt_identity cli_identity(const rt_config *config);

// compute.idle, of a process of a run; before it starts threads.
void cli_give_way(const rt_config *config);

// Who listens, and where its configuration says so.
typedef enum {
    CLI_COORDINATOR,
    CLI_SHARD,
    CLI_WORKER,
    CLI_FEEDER,
    CLI_SERVER,
    CLI_STANDBY
} cli_listener;

// SIGINT and SIGTERM become readable, for every thread of the process; -1: that cannot be.
int cli_open_stop_fd(void);

// Waits until this machine has the addresses that it is to listen on, for timeouts.start_s at most
// (rt_await_places). rank: of a shard or worker.
rt_status cli_await(const rt_config *config, cli_listener who, uint32_t rank, int stop_fd,
                    rt_notify *notify, rt_error *error);

// A standby that was promoted listens on its own box, with its own key, where the configuration
// says that of the coordinator. After cli_identity: it is the same run.
void cli_move_to_standby(rt_config *config);

// Its epochs begin. RT_CONFIG: out is the folder of none; RT_IO, RT_DATA.
rt_status cli_begin_promoted(const rt_config *config, const char *out, rt_error *error);

// The model of a run on this stream, for micro-batches of batch.samples_per_worker.
ew_model_config cli_model(const rt_config *config, const rt_schema *schema);

// Bytes that the dense exchange moves per worker, each way and iteration.
rt_status cli_dense_bytes(const rt_config *config, const rt_schema *schema, uint64_t *bytes_p,
                          rt_error *error);

// By which a process of this config talks; rank: of a worker. One thread at a time.
// RT_UNSUPPORTED: error says what is missing.
rt_status cli_transport(const rt_config *config, rt_role role, uint32_t rank,
                        const rt_transport_ops **ops_p, rt_error *error);

// Whether a run with this config goes on without a lost worker. The number of MPI's is fixed.
bool cli_may_shrink(const rt_config *config);

// The schema of the config's stream, without opening an input.
rt_status cli_schema(const rt_config *config, rt_schema *schema, rt_error *error);

#endif
