// rt_config - everything a user may set, as one plain value.
//
// Read from JSON (libcjson) over defaults; `--set a.b.c=value` changes single keys. Every key is a
// row of one table (path, type, bounds, default, help): an unknown key, a wrong type or a value out
// of range is an error that names the path and what is allowed. docs/CONFIG.md is made from the
// same table. A config owns its strings; it holds no pointers into the JSON text.
#ifndef RT_CONFIG_H
#define RT_CONFIG_H

#include "runtime/config/rt_choice.h"
#include "runtime/rt_base.h"
#include "runtime/rt_json.h"
#include "runtime/rt_log.h"

#define RT_CONFIG_VERSION 1 // "version" of a file; docs/STABILITY.md
#define RT_PATH_MAX 1024
#define RT_NAME_MAX 64
#define RT_FILES_MAX 256
#define RT_COLUMNS_MAX 512
#define RT_CLASSES_MAX 1024  // of the one label of a sample
#define RT_COLUMN_FROM_MAX 4 // columns that another one is made from
#define RT_COLUMN_NULLS_MAX 4
#define RT_COLUMN_TIME_FORMAT "unix" // where nothing is said
#define RT_COLUMN_NULL_SIZE 24
#define RT_COLUMN_EDGES_MAX 32 // of buckets
#define RT_MLP_LAYERS_MAX 8
#define RT_SHARED_MAX 64                   // pairs of fields that share a table
#define RT_FAN_OUT_MAX (RT_SHARED_MAX / 2) // of a graph: all its fields share one table
#define RT_SHARED_SIZE (2 * RT_NAME_MAX)   // of "FIELD=OTHER"
#define RT_CROSS_LAYERS_MAX 8

#define RT_CACHE_ROWS_MAX 67108863 // that a plan can number

typedef enum { RT_SCALING_NONE, RT_SCALING_STANDARD } rt_dense_scaling; // of dense features
typedef enum { RT_SYNTHETIC_CRITEO, RT_SYNTHETIC_AVAZU, RT_SYNTHETIC_SEARCH } rt_synthetic_shape;
typedef enum {
    RT_COLUMN_IGNORE,
    RT_COLUMN_LABEL,
    RT_COLUMN_DENSE,
    RT_COLUMN_CATEGORICAL,
    RT_COLUMN_MULTI, // several values in one cell
    RT_COLUMN_WEIGHT,
    RT_COLUMN_ID, // of the sample
    RT_COLUMN_TIME
} rt_column_kind;
typedef enum { RT_LABEL_EQUALS, RT_LABEL_AT_LEAST } rt_label_rule;
typedef enum {
    RT_TRANSFORM_NONE,
    RT_TRANSFORM_LOG1P,   // log(1 + max(x, 0))
    RT_TRANSFORM_HOUR,    // of the day, 0 to 23, of a time
    RT_TRANSFORM_WEEKDAY, // 0 (Monday) to 6, of a time
    RT_TRANSFORM_BUCKET   // how many edges are at most the number
} rt_transform;
typedef enum { RT_ID_HASH, RT_ID_NUMBER } rt_id_kind;
// How numbers are written, by what is before the decimals and between the thousands.
typedef enum {
    RT_NUMBER_PLAIN,
    RT_NUMBER_COMMA,        // 1234,5
    RT_NUMBER_COMMA_GROUPS, // 1,234.5
    RT_NUMBER_POINT_GROUPS, // 1.234,5
    RT_NUMBER_QUOTE_GROUPS, // 1'234.5
    RT_NUMBER_SPACE_GROUPS, // 1 234,5
} rt_number_format;
typedef enum { RT_QUOTES_AUTO, RT_QUOTES_RFC4180, RT_QUOTES_NONE } rt_quotes;

typedef struct {
    char name[RT_NAME_MAX];
    rt_column_kind kind;
    rt_label_rule label_rule; // label: 1 if the cell equals / is at least label_value
    char label_value[RT_NAME_MAX];
    double loss_weight;     // label: of its loss in the sum
    uint32_t classes;       // label: it is one of so many, from 0; 0: it is 0 or 1
    rt_transform transform; // dense; hour, weekday and bucket also categorical
    rt_id_kind id;          // categorical, multi: the id is the hash of the bytes, or the number
    char separator;         // multi
    uint32_t values_max;    // multi: further values of a cell are dropped
    char path[RT_NAME_MAX]; // JSON: names and numbers from the root, by dots; "": name
    char time_format[RT_NAME_MAX];
    rt_number_format number_format;
    uint32_t null_count; // texts that are as an empty cell
    char nulls[RT_COLUMN_NULLS_MAX][RT_COLUMN_NULL_SIZE];
    char missing[RT_NAME_MAX]; // stands for an empty cell; "": nothing does
    uint32_t from_count;       // 0: the column has a cell; 1: it has that of another one; more: a
    char from[RT_COLUMN_FROM_MAX][RT_NAME_MAX]; // cross of columns that stand before it
    uint32_t edge_count;
    double edges[RT_COLUMN_EDGES_MAX]; // rising
} rt_column;

typedef struct {
    char delimiter;  // any byte but a quote and a line end
    bool has_header; // the first line of every file says which cell is which column
    uint32_t column_count;
    rt_column *columns; // column_count
    rt_quotes quotes;
} rt_table_config;

// Lines of "label index:value index:value ...".
typedef struct {
    double label_at_least;          // from there on the label is 1
    uint64_t index_first;           // the smallest index
    uint32_t dense_count;           // so many indices are dense features, the others keys
    uint32_t field_count;           // 0: all keys are one field
    uint64_t fields[RT_FIELDS_MAX]; // first index of every field, rising
    uint32_t values_max;            // keys of a field and sample; further ones are dropped
} rt_libsvm_config;

typedef enum { RT_JOIN_NEGATIVE, RT_JOIN_DROP } rt_join_unanswered;
typedef enum { RT_LATE_DROP, RT_LATE_TRAIN } rt_join_late;
typedef enum { RT_JOIN_END_TRAIN, RT_JOIN_END_KEEP } rt_join_at_end;

// Labels that come later: lines of outcomes name the events that they belong to.
typedef struct {
    rt_source_kind source;
    uint32_t file_count; // of outcomes
    char **files;
    char listen[RT_NAME_MAX]; // HOST:PORT, of source tcp
    char topic[256];          // of mqtt and kafka
    rt_format format;         // table or json
    rt_table_config table;
    double window_s; // an event waits so long for its outcome
    rt_join_unanswered unanswered;
    rt_join_late late;
    double late_s;         // how much longer it is kept, for late ones
    double resend_s;       // after a start no window ends for so long, where outcomes are sent
    uint32_t events_max;   // that wait, or are kept
    rt_join_at_end at_end; // what becomes of those that wait when the input ends
} rt_join_config;

typedef struct {
    rt_format format;
    rt_source_kind source;
    struct rt_live *live; // no key: what a live source reads (rt_live.h), of who opens the stream
    struct rt_value_names *names; // likewise: where values of a column are noted; NULL: nowhere
    char id[RT_NAME_MAX];         // column or field that names an event; "": none does
    uint32_t id_window;           // events of which an id is remembered
    bool take_anything;           // what is sent is stored, whether it can be read or not
    char http_listen[RT_NAME_MAX], tcp_listen[RT_NAME_MAX]; // HOST:PORT
    char mqtt_broker[RT_NAME_MAX], mqtt_topic[256], mqtt_client[RT_NAME_MAX];
    char mqtt_user[RT_NAME_MAX], mqtt_password[RT_PATH_MAX], mqtt_ca[RT_PATH_MAX];
    char kafka_brokers[RT_PATH_MAX], kafka_topic[256];
    char kafka_options[RT_PATH_MAX]; // "name=value,..." for librdkafka
    char kafka_password[RT_PATH_MAX];
    uint32_t file_count;
    char **files;         // paths; "-" is standard input; .zst is unpacked on the way
    uint64_t samples_max; // stop after so many; 0: until the input ends
    bool fifo_ends;       // the input from a FIFO ends with its last writer
    bool labels_optional; // no key: who predicts sets it. Lines are questions: of what stands there
                          // only what a prediction needs is read, and labels may be left out
    rt_dense_scaling dense_scaling;
    double malformed_share_max; // of the last 5,000 to 10,000 lines (judged from 1,000 lines on)
    double negatives_keep;      // share of the samples with label 0 that is trained; 0: all
    uint32_t epochs;            // how often the files are read; 0: once
    double holdout;             // share of the samples that is not trained
    uint32_t patience;          // epochs without a better judgement by them; 0: nobody judges
    bool reads_held_out;        // no key: who judges sets it. These samples, instead of the others
    rt_table_config table;      // table, json
    rt_libsvm_config libsvm;
    uint32_t shared_count;                      // "tables"
    char shared[RT_SHARED_MAX][RT_SHARED_SIZE]; // "history=item": the first uses the other's rows
    rt_join_config join;
    bool holds_outcomes; // no key: set by rt_join, whose second input this is
    rt_synthetic_shape synthetic_shape;
    double synthetic_scale;      // of the id spaces, (0, 1]
    double synthetic_zipf;       // exponent of the popularity
    uint32_t synthetic_clusters; // users' interests that tie fields together; 0: none
    uint32_t synthetic_labels;   // of a sample
    double synthetic_drift;      // share of the popularity ranks replaced per million samples
    uint64_t synthetic_first;    // number of the first sample
} rt_stream_config;

typedef enum { RT_DEEP_DENSE, RT_DEEP_ALL } rt_deep_input;
typedef enum { RT_POOL_SUM, RT_POOL_MEAN } rt_pooling;
typedef enum { RT_CROSS_VECTOR, RT_CROSS_MATRIX } rt_cross; // DCN v1, v2

typedef struct {
    rt_model_kind kind;                     // "model.name"
    uint32_t embedding_dim;                 // floats per row; of the largest, where fields differ
    uint32_t embedding_dim_count;           // fields in the list; 0: one number for all
    uint32_t embedding_dims[RT_FIELDS_MAX]; // the list
    rt_deep_input deep_input;
    rt_pooling pooling;
    uint32_t mlp_layer_count;
    uint32_t mlp[RT_MLP_LAYERS_MAX];
    uint32_t mlp_bottom_layer_count; // dlrm: hidden layers between dense features and their vector
    uint32_t mlp_bottom[RT_MLP_LAYERS_MAX];
    rt_cross cross; // dcn
    uint32_t cross_layer_count;
    char sequence[RT_NAME_MAX], target[RT_NAME_MAX]; // din: fields
    uint32_t attention_layer_count;                  // din: hidden layers of the activation unit
    uint32_t attention[RT_MLP_LAYERS_MAX];
    uint32_t fan_out;    // graphsage: neighbours of a sample's node
    double init_scale;   // standard deviation of initial row values
    double base_rate;    // share of label 1 that the initial bias stands for; 0: as 0.5
    bool base_rate_auto; // "auto": the first batch's, once that was predicted
} rt_model_config;

typedef enum {
    RT_DECAY_NONE,
    RT_DECAY_LINEAR,
    RT_DECAY_COSINE, // half a period (Loshchilov, Hutter, ICLR 2017, without restarts)
    RT_DECAY_INVERSE_SQRT
} rt_decay_kind;
#define RT_DECAY_COUNT (RT_DECAY_INVERSE_SQRT + 1)

typedef struct {
    rt_optimizer_kind kind;
    float learning_rate;
    float epsilon;             // adagrad, row-wise adagrad, adam
    float initial_accumulator; // of rows no key: 0; adagrad, row-wise adagrad, ftrl
    float momentum;
    float beta1, beta2; // adam
    float l1, l2, beta; // ftrl-proximal (McMahan et al., KDD 2013); l2 of the others: weight decay
    float clip_norm;    // largest norm of a row's, or of the whole dense, gradient; 0: any
    uint32_t warmup_iterations; // the learning rate grows linearly; 0: none
    rt_decay_kind decay;        // of the learning rate, after the warm-up
    uint32_t decay_iterations;
    float decay_floor;      // no key: share of the learning rate that stays
    uint32_t batch_samples; // no key: N, by which gradients were divided; 0: by nothing
} rt_optimizer_config;

typedef enum {
    RT_EVICT_EMARK,
    RT_EVICT_LRU,
    RT_EVICT_LFU,
    RT_EVICT_LIGHT_LFU,
    RT_EVICT_TTL
} rt_eviction_kind;
#define RT_EVICT_COUNT (RT_EVICT_TTL + 1)
#define RT_EVICT_AUTO RT_EVICT_COUNT // no rule: the policy says which

typedef struct {
    uint64_t rows;             // rows per worker; 0: by ratio
    double ratio;              // rows per worker as a share of the distinct keys of the input
    uint64_t distinct_keys;    // declared; 0: counted once (files only)
    int eviction_given;        // of rt_eviction_kind, or RT_EVICT_AUTO
    rt_eviction_kind eviction; // no key: what follows from it
    uint32_t lookahead;        // batches that the planner sees before it plans one; 0: none
} rt_cache_config;

typedef enum { RT_MICRO_BATCH_FREE, RT_MICRO_BATCH_EQUAL } rt_micro_batch_kind;
typedef enum { RT_VIEW_AUTO, RT_VIEW_SNAPSHOT, RT_VIEW_STRICT } rt_view_kind;
#define RT_VIEW_COUNT (RT_VIEW_STRICT + 1)

typedef enum { RT_STORAGE_MEMORY, RT_STORAGE_DISK } rt_storage;
typedef enum {
    RT_PARTICIPANTS_ALL,
    RT_PARTICIPANTS_AUTO,
    RT_PARTICIPANTS_ROTATE,
    RT_PARTICIPANTS_LIST
} rt_participants;
typedef enum { RT_FIRST_TOUCH_LOCAL, RT_FIRST_TOUCH_PULL } rt_first_touch;
typedef enum { RT_HYBRID_REFINE, RT_HYBRID_PAPER } rt_hybrid_kind;

typedef struct {
    rt_policy_kind policy;
    double alpha;          // share of the samples that Opt places, [0, 1]
    bool alpha_auto;       // "auto": a controller changes alpha, which starts at 1
    double alpha_share;    // of the iteration time that a decision may take, for "auto"; no key
    rt_hybrid_kind hybrid; // which samples these are
    rt_solver_kind solver;
    rt_view_kind view; // which caches a decision sees
    rt_first_touch first_touch;
    bool full_sync;  // every trained row goes to the PS after every iteration (Herald's "vanilla")
    uint32_t window; // batches that are placed together; 0 and 1: each by itself
    bool hand_over;  // SEND and RECV: rows may go from worker to worker
    bool reduce;     // REDUCE and SUM: gradients may, to one of the trainers of their row
    rt_micro_batch_kind micro_batches;         // makespan
    uint32_t micro_batch_min, micro_batch_max; // makespan: samples per worker; max 0: no limit
    uint32_t search_evaluations; // makespan: local search stops after so many moves were judged
    double budget_ms;            // of a decision; a controller derives search_evaluations; 0: off
    bool budget_auto;            // "auto": it is measured
    bool measure_compute;        // the workers' measured computing times weigh on decisions
    uint32_t tables;             // laia: tables that are scored; 0: all
    rt_participants participants;
    uint64_t participant_mask; // ranks, where they are listed
} rt_dispatch_config;

#define RT_BUDGET_AUTO (-1.0)
static inline double rt_dispatch_budget_ms(const rt_dispatch_config *dispatch)
{
    return dispatch->budget_auto ? RT_BUDGET_AUTO : dispatch->budget_ms;
}

// Workers send to each other, so they listen for each other.
static inline bool rt_dispatch_is_mutual(const rt_dispatch_config *dispatch)
{
    return dispatch->hand_over || dispatch->reduce;
}

typedef enum { RT_STANDBY_WAIT, RT_STANDBY_GO_ON } rt_standby_away;
typedef enum { RT_NETWORK_ZMQ, RT_NETWORK_UCX, RT_NETWORK_MIXED } rt_network_transport;

// How old a copy of a row may be that is trained on (HET, VLDB'22).
#define RT_STALENESS_INF UINT32_MAX
#define RT_STALENESS_HET 100u // the largest of HET's Table 1
typedef struct {
    bool bounded;       // otherwise every read has every update: strict BSP
    uint32_t staleness; // s; RT_STALENESS_INF: any
} rt_consistency_config;

typedef struct {
    double gbps_up, gbps_down;      // Gbit/s, 1e9 bits
    rt_network_transport transport; // of workers, where both are spoken
} rt_link_config;

typedef struct {
    rt_link_config workers[RT_WORKERS_MAX]; // "links.workers", one per worker
    uint32_t given_count;                   // length of the list; 0: none, every link is 1 Gbit/s
    double ps_gbps;                         // each way; 0: no limit
    bool pin;                               // as given: nobody measures
    double probe_s; // a link that nothing told of for so long is probed; 0: never
} rt_links_config;

// A machine with one link: its workers and shards share it, and what stays there needs none.
typedef struct {
    char name[RT_NAME_MAX];
    char host[RT_NAME_MAX]; // of its addresses; "": they are not told
    uint32_t port;          // of its first shard, the others follow
    rt_link_config link;
    uint32_t worker_count, shard_count;
    bool spare; // no part of a run until it is added
} rt_box_config;

typedef enum { RT_HOMES_HASHED, RT_HOMES_PLANNED } rt_homes; // which shard a row is on
#define RT_HOMES_COUNT (RT_HOMES_PLANNED + 1)

typedef enum {
    RT_COLLECTIVE_AUTO,
    RT_COLLECTIVE_PS,
    RT_COLLECTIVE_MPI,
    RT_COLLECTIVE_NCCL
} rt_collective;

// How floats travel: "network.dense_wire", "network.row_wire".
typedef enum { RT_CODING_FP32, RT_CODING_BF16, RT_CODING_INT8 } rt_coding;
#define RT_CODING_COUNT (RT_CODING_INT8 + 1)

typedef struct {
    char directory[256];       // "": checkpoints/ in the directory of the results
    uint32_t every_iterations; // 0: not by count
    double every_s;            // 0: not by time
    uint32_t full_every;       // of so many one has all rows, the others those that changed
    uint32_t keep;             // the newest so many stay, and what they build on
    bool at_end;
    uint32_t copies;         // of the shards' files, on the coordinator's box
    double keep_s;           // older ones go, but for the newest; 0: whatever their age
    char after[RT_PATH_MAX]; // a command for each that is complete; "": none
} rt_checkpoint_config;

typedef struct {
    double every_s;        // 0: nothing is published
    char folder[256];      // "": published/ in the directory of the results
    uint32_t keep;         // versions
    double guard_log_loss; // margin, a share; 0: not judged
    double guard_calibration;
    uint64_t guard_samples;    // no key: over which both are taken
    double guard_hold_s;       // without a version that passes: then the better of two is in force
    char address[RT_NAME_MAX]; // where servers of other boxes are told; "": none are
} rt_publish_config;

typedef enum { RT_SERVE_ROWS_LOCAL, RT_SERVE_ROWS_FETCHED } rt_serve_rows;

typedef struct {
    char address[RT_NAME_MAX]; // HOST:PORT
    uint32_t candidates_max;   // of a request
    char log[RT_PATH_MAX];     // folder of the spool; "": nothing is logged
    rt_serve_rows rows;
    uint64_t cache_bytes_max;   // of fetched rows
    uint32_t fetch_ms;          // that a question waits for rows
    char hand_out[RT_NAME_MAX]; // HOST:PORT where other servers ask for rows; "": nowhere
} rt_serve_config;

typedef struct {
    char listen[RT_NAME_MAX]; // HOST:PORT of the coordinator's pages; "": none
    uint64_t window_samples;  // of quality "now"
    char column[RT_NAME_MAX]; // by whose values quality is split; "": by none
} rt_watch_config;

// When a run tells that somebody should look at it; 0: never, for each.
typedef struct {
    char command[RT_PATH_MAX]; // "": nobody is told
    double every_s;            // no key: the same alert at most so often
    double no_progress_s;
    double loss_drift;      // no key: times
    double malformed_share; // no key: of lines
    double link_share;      // no key: of the best rate so far
    double checkpoint_age;  // no key: intervals
    double memory_share;    // no key
} rt_alerts_config;

// Rows that end because nobody has trained them for long, and when one is stored ("rows").
typedef struct {
    uint32_t expire_iterations; // 0: not by count
    double expire_s;            // 0: not by time
    uint64_t max;               // of all shards; 0: what ps.memory_bytes_max holds
    uint32_t admit;             // a key gets a row once it was seen so often; 1: at once
    uint64_t admit_bytes;       // of the counts, "rows.admit_bytes"
    double admit_share;         // or: in a batch it gets one with this probability
} rt_rows_config;

// Whether keys may lack a row: it counts as zeros then, in training and wherever the model is
// asked.
static inline bool rt_rows_are_admitted(const rt_rows_config *rows)
{
    return rows->admit > 1 || rows->admit_share < 1;
}

// What happens when a process of a run is lost.
typedef enum { RT_LOSS_STOP, RT_LOSS_RESTART, RT_LOSS_SHRINK } rt_on_loss;

typedef struct {
    uint32_t threads; // "compute.threads"; 0: the cores that a process may use
    uint32_t nice;    // "compute.nice"
    bool idle;        // "compute.idle"
    bool tf32;        // "compute.tf32"
} rt_compute_config;

typedef struct {
    rt_log_level log_level;
    uint64_t metrics_bytes_max; // "metrics.bytes_max"; 0: no bound
    uint64_t seed;
    char device[RT_NAME_MAX]; // of every worker: "auto", "cpu", "cuda", "cuda:N"
    rt_compute_config compute;
    uint32_t box_count;                     // "boxes"; 0: they are not told
    rt_box_config boxes[RT_SITE_BOXES_MAX]; // ranks of workers and shards go up from the first on
    uint32_t worker_count;                  // "workers"
    bool has_workers;                       // no key: "workers" was said
    uint32_t batch_samples;                 // "batch.samples": N of a batch, once it has grown
    uint32_t samples_per_worker; // m; N = m x workers from the first batch on; 0: batch_samples
    uint32_t batch_wait_ms;      // one that does not fill is trained as it is; 0: it waits
    rt_stream_config stream;
    rt_model_config model;
    rt_optimizer_config optimizer_rows;  // "optimizer.rows"
    rt_optimizer_config optimizer_dense; // "optimizer.dense"
    rt_cache_config cache;
    rt_dispatch_config dispatch;
    rt_consistency_config consistency;
    bool consistency_auto; // it follows from the policy
    rt_links_config links;
    uint32_t planner_threads;     // "planner.threads"; 0: half of the cores, at most 4
    uint32_t run_ahead;           // no key: iterations planned before they are done
    uint32_t ps_shard_count;      // "ps.shards"
    uint64_t ps_memory_bytes_max; // per shard
    rt_homes ps_homes;            // "ps.homes"
    rt_storage ps_storage;
    char ps_folder[RT_PATH_MAX];        // of rows on disk; "": /var/tmp
    char dispatch_profile[RT_PATH_MAX]; // fae: the hot rows; "": none
    uint64_t ps_disk_bytes_max;         // per shard
    rt_rows_config rows;
    rt_network_transport network_transport;
    char network_bind[RT_NAME_MAX];        // address that servers listen on; "": as below
    char network_coordinator[RT_NAME_MAX]; // "HOST:PORT" where members find it; "": they are told
    char network_interface[RT_NAME_MAX];   // servers listen on its address; "": any
    char standby[RT_NAME_MAX];             // "HOST:PORT" of who may take its place; "": nobody
    rt_standby_away standby_away;          // what is done without it
    uint32_t network_ps_count;             // 0: shards listen on any free port
    char network_ps[RT_SHARDS_MAX][RT_NAME_MAX]; // "HOST:PORT" of every shard
    uint32_t network_worker_port;                // of worker 0, the others follow; 0: any
    uint32_t network_message_bytes;              // rows are sent in messages of about this size
    bool guard_skip_bad_batches;                 // "guards.skip_bad_batches"
    uint32_t guard_bad_batches_max;              // no key: the run ends past so many
    rt_collective collective;               // "network.collective": how dense gradients are summed
    rt_coding dense_wire;                   // "network.dense_wire"
    rt_coding row_wire;                     // "network.row_wire"
    char security_key[RT_PATH_MAX];         // own secret key file; "": no keys
    char security_allow[RT_PATH_MAX];       // public keys of those that may join
    char security_server_key[RT_PATH_MAX];  // public key file of the coordinator's box
    char security_standby_key[RT_PATH_MAX]; // of the standby's
    bool security_insecure;                 // other addresses than loopback without keys
    char security_certificate[RT_PATH_MAX]; // of HTTP servers: PEM files; "": no TLS
    char security_certificate_key[RT_PATH_MAX];
    char security_token[RT_PATH_MAX];    // file with what every HTTP request must show; "": nothing
    char security_hosts[RT_PATH_MAX];    // names that HTTP requests may be for, or come from
    char journal_directory[RT_PATH_MAX]; // "": journal/ in the directory of the results
    double journal_keep_s; // older events go once the newest checkpoint covers them; 0: any age
    uint64_t journal_bytes_max;
    char feed_listen[RT_NAME_MAX], feed_to[RT_NAME_MAX]; // HOST:PORT of the coordinator's box
    rt_checkpoint_config checkpoint;
    rt_publish_config publish;
    rt_serve_config serve;
    rt_watch_config watch;
    rt_alerts_config alerts;
    rt_on_loss on_worker_loss;
    uint32_t restarts_max;        // in an hour
    double timeout_peer_s;        // a peer silent for so long has failed
    double timeout_answer_s;      // one that beats and does not answer for so long, too
    double timeout_start_s;       // all processes must have joined by then
    double timeout_rejoin_s;      // on_worker_loss shrink: a lost worker is waited for so long
    uint64_t sim_iterations;      // "sim.iterations"; 0: until the input ends
    uint32_t sim_warmup;          // iterations not counted
    bool sim_dense;               // the dense exchange is part of the predicted time
    bool sim_dispatch_error;      // esd: a second, exact solution tells what HybridDis lost
    double compute_us_per_sample; // "sim.compute_us_per_sample"; 0: not known
} rt_config;

// Samples of a full batch of so many workers, N; and of one of them, at most.
static inline uint32_t rt_config_batch(const rt_config *config, uint32_t worker_count)
{
    return config->samples_per_worker ? worker_count * config->samples_per_worker
                                      : config->batch_samples;
}
static inline uint32_t rt_config_share(const rt_config *config)
{
    return (rt_config_batch(config, config->worker_count) + config->worker_count - 1) /
           config->worker_count;
}

// Samples of the batch that follows so many. Large batches are for speed: what is learnt from a
// sample in time for the next ones matters most while little is known, and costs time once.
#define RT_BATCH_FIRST 8u
#define RT_BATCH_GROWTH 64u // a batch has this part of the samples before it
static inline uint32_t rt_batch_grown(uint32_t full, uint64_t samples)
{
    return (uint32_t)rt_min_u64(rt_max_u64(samples / RT_BATCH_GROWTH, RT_BATCH_FIRST), full);
}
static inline bool rt_config_batch_grows(const rt_config *config)
{
    return config->samples_per_worker == 0;
}
static inline uint32_t rt_config_batch_after(const rt_config *config, uint32_t worker_count,
                                             uint64_t samples)
{
    const uint32_t full = rt_config_batch(config, worker_count);
    return rt_config_batch_grows(config) ? rt_batch_grown(full, samples) : full;
}

// Bagpipe (SOSP'23) has a window of 200 batches, the planned one included, in its experiments, and
// rows leave after their last use in it.
#define RT_BAGPIPE_LOOKAHEAD 199u

// cache.lookahead and cache.eviction, or what the policy has in their place.
uint32_t rt_config_lookahead(const rt_config *config);

// Batches that are read before the one that is planned: for look-ahead, or what a window needs.
uint32_t rt_config_batches_ahead(const rt_config *config);

static inline bool rt_config_source_is_live(const rt_stream_config *stream)
{
    return !rt_format_is_generated(stream->format) && rt_source_is_live(stream->source);
}

// Labels of a sample: how many, what each is called (of a format without names "label"), and what
// its loss is multiplied by. Of a stream of outcomes: those that an outcome may fill.
uint32_t rt_config_label_count(const rt_stream_config *stream);
const char *rt_config_label(const rt_stream_config *stream, uint32_t label);
double rt_config_label_weight(const rt_stream_config *stream, uint32_t label);

// Of how many classes the one label is; 0: it is, or they are, 0 or 1.
uint32_t rt_config_class_count(const rt_stream_config *stream);
// Predictions of a sample: one for each label, or class.
uint32_t rt_config_output_count(const rt_stream_config *stream);

// Whether labels come later (stream.join), and are sent.
bool rt_config_has_join(const rt_stream_config *stream);

static inline bool rt_config_join_is_live(const rt_stream_config *stream)
{
    return rt_config_has_join(stream) && rt_source_is_live(stream->join.source);
}

// Sets every key to its default. RT_NO_MEMORY.
rt_status rt_config_init(rt_config *config);
void rt_config_fini(rt_config *config);

// A deep copy. RT_NO_MEMORY leaves copy untouched.
rt_status rt_config_copy(const rt_config *config, rt_config *copy);

// A copy of them, free with rt_free; NULL of none. RT_NO_MEMORY.
rt_status rt_config_copy_columns(const rt_column *columns, uint32_t count, rt_column **copy_p);

// Leaves only the workers and shards of two masks, in their order, with their links and addresses.
void rt_config_keep_members(rt_config *config, uint64_t workers, uint64_t shards);

// Masks of the workers and shards of some boxes (a mask of those).
void rt_config_members_of_boxes(const rt_config *config, uint64_t boxes, uint64_t *workers_p,
                                uint64_t *shards_p);

// The boxes that a run begins with: all but spare ones; and leaving those away.
uint64_t rt_config_first_boxes(const rt_config *config);
void rt_config_leave_spares(rt_config *config);

// Boxes up to the last one that is not spare. Those behind it are known to the coordinator and to
// themselves; members of the others may lack them in their configuration.
uint32_t rt_config_site_boxes(const rt_config *config);
void rt_config_leave_last_spares(rt_config *config);

// A spare box more, behind all others. json: an object as those of "boxes", whose "spare" does not
// count. RT_CONFIG: it is none, or does not fit to the others, which error says; RT_NO_MEMORY. Then
// config is as before.
rt_status rt_config_add_box(rt_config *config, const char *json, rt_error *error);

// The entry of a box as such an object, and a hash of it; "spare" is left away. No such box: 0.
void rt_config_write_box(const rt_config *config, uint32_t box, rt_json *json, const char *key);
uint64_t rt_config_hash_box(const rt_config *config, uint32_t box);

// The box of this name: its index, or box_count where there is none.
uint32_t rt_config_find_box(const rt_config *config, const char *name);

// The box of a worker or a shard, by its rank; RT_SITE_BOXES_MAX: boxes are not told.
uint32_t rt_config_box_of_worker(const rt_config *config, uint32_t worker);
uint32_t rt_config_box_of_shard(const rt_config *config, uint32_t shard);

// Of a worker's box: "" where it is not told.
const char *rt_config_host_of_worker(const rt_config *config, uint32_t worker);

// Reads a JSON file over the present values, then checks nothing but single keys. A file may name
// another one to be read before it: "include": "formats/avazu.json", relative to the file itself.
// RT_IO, RT_CONFIG: error names file, line or key path; config is unchanged.
rt_status rt_config_load(rt_config *config, const char *path, rt_error *error);

// The keys of a file (RT_CONFIG_VERSION) by the names that they have today, without those of files
// that it includes; free with rt_free. Errors as above.
rt_status rt_config_migrate(const char *path, char **json_p, rt_error *error);

// One assignment "a.b.c=value"; value is JSON, or taken as a string where a string is expected
// ("stream.files=a.tsv" is a list of one file; several files need a JSON list, as a file name may
// hold a comma). A section takes an object: "dispatch={...}" changes the keys that it names.
// RT_CONFIG: error names the key path; config is unchanged.
rt_status rt_config_set(rt_config *config, const char *assignment, rt_error *error);

// Default values, over them those of the file, over them set_count assignments; nothing is checked
// but single keys. Errors as above; config is not initialised then.
rt_status rt_config_open(const char *path, const char *const *sets, uint32_t set_count,
                         rt_config *config, rt_error *error);

// Walks the keys whose values differ: start with *at = 0; the next one's path, NULL after the last.
const char *rt_config_difference(const rt_config *left, const rt_config *right, uint32_t *at);

// What no single key can show: lists as long as "workers", files where the format needs them,
// combinations that exclude each other. Call after the last load and set.
rt_status rt_config_check(const rt_config *config, rt_error *error);

// The same but for what is about the input, for who reads none.
rt_status rt_config_check_model(const rt_config *config, rt_error *error);

// Whether stream.files are there to be read, where they will be. RT_IO names the key and the file.
rt_status rt_config_check_input(const rt_config *config, rt_error *error);

// What `sim` can do and a training run cannot; after rt_config_check. RT_CONFIG.
rt_status rt_config_check_training(const rt_config *config, rt_error *error);

// The name that stands in a file for a value of a choice: ("dispatch.policy", RT_POLICY_ESD) is
// "esd". NULL: no such choice or value.
const char *rt_config_choice_name(const char *path, int value);

// The same of a column's kind.
const char *rt_config_column_kind(rt_column_kind kind);

// Of a model with this config on this stream: for files, so that they are not mixed up.
uint64_t rt_config_schema(const rt_config *config);

// The whole reference as Markdown, as in docs/CONFIG.md; free with rt_free.
rt_status rt_config_document(char **markdown_p);

// The same for lanyard-config(5): from its DESCRIPTION on, in man(7); free with rt_free.
rt_status rt_config_manual(char **text_p);

// Walks the keys, at from 0: the path, and the words that its value may be (of a choice; true and
// false), i from 0. NULL after the last.
const char *rt_config_key_path(uint32_t at);
const char *
rt_config_key_help(const char *path); // all that docs/CONFIG.md says of it; NULL: no key
const char *rt_config_key_word(uint32_t at, uint32_t i);

// The same config as JSON, defaults included; free with rt_free.
rt_status rt_config_to_json(const rt_config *config, char **json_p);

#endif
