#include "runtime/config/rt_config_choices.h"

#include "runtime/config/rt_formats.h"
#include "runtime/config/rt_models.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/config/rt_policies.h"
#include "runtime/config/rt_solvers.h"
#include "runtime/config/rt_sources.h"

const rt_config_choice rt_choices_log_levels[] = {
    {"error", RT_LOG_ERROR, "what ends the run"}, {"warn", RT_LOG_WARN, "what needs attention"},
    {"info", RT_LOG_INFO, "a few lines per run"}, {"debug", RT_LOG_DEBUG, "lines per object"},
    {"trace", RT_LOG_TRACE, "lines per message"}, {0},
};
const rt_config_choice rt_choices_losses[] = {
    {"stop", RT_LOSS_STOP, "the run ends"},
    {"restart", RT_LOSS_RESTART, "restart all processes from the newest checkpoint"},
    {"shrink", RT_LOSS_SHRINK, "restart without the lost worker; take it back when it returns"},
    {0},
};
#define XX(kind, number, name, traits, help) {#name, RT_FORMAT_##kind, help},
const rt_config_choice rt_choices_formats[] = {RT_FORMAT_MAP(XX, XX){0}};
#undef XX
const rt_config_choice rt_choices_quote_rules[] = {
    {"auto", RT_QUOTES_AUTO, "rfc4180, or none if the delimiter is a tab"},
    {"rfc4180", RT_QUOTES_RFC4180,
     "a quoted cell may have delimiters and line ends; \"\" is a quote"},
    {"none", RT_QUOTES_NONE, "a quote has no meaning"},
    {0},
};
const rt_config_choice rt_choices_outcome_formats[] = {
    {"table", RT_FORMAT_TABLE, "delimited text"},
    {"json", RT_FORMAT_JSON, "an object per line"},
    {0},
};
const rt_config_choice rt_choices_standby_away[] = {
    {"wait", RT_STANDBY_WAIT, "do not start, and do not acknowledge events, until it answers"},
    {"go_on", RT_STANDBY_GO_ON, "acknowledge events without it; the log and `lanyard top` say so"},
    {0},
};
const rt_config_choice rt_choices_unanswered_events[] = {
    {"negative", RT_JOIN_NEGATIVE, "train it with label 0"},
    {"drop", RT_JOIN_DROP, "drop it and count it"},
    {0},
};
const rt_config_choice rt_choices_late_outcomes[] = {
    {"drop", RT_LATE_DROP, "it is counted"},
    {"train", RT_LATE_TRAIN, "the event is trained again, with label 1"},
    {0},
};
const rt_config_choice rt_choices_join_ends[] = {
    {"train", RT_JOIN_END_TRAIN, "treat them as `unanswered` says"},
    {"keep", RT_JOIN_END_KEEP, "keep them in the checkpoint (`checkpoint.at_end`)"},
    {0},
};
#define XX(kind, name, help) {#name, RT_SOURCE_##kind, help},
const rt_config_choice rt_choices_sources[] = {RT_SOURCE_MAP(XX, XX){0}};
#undef XX
const rt_config_choice rt_choices_dense_scalings[] = {
    {"standard", RT_SCALING_STANDARD,
     "subtract the mean and divide by the standard deviation of all samples so far (after "
     "`transform`); at most 10 deviations"},
    {"none", RT_SCALING_NONE, "no scaling"},
    {0},
};
const rt_config_choice rt_choices_synthetic_shapes[] = {
    {"criteo", RT_SYNTHETIC_CRITEO, "fields and id counts of Criteo Kaggle"},
    {"avazu", RT_SYNTHETIC_AVAZU, "fields and id counts of Avazu"},
    {"search", RT_SYNTHETIC_SEARCH, "fields and id counts of Criteo Sponsored Search"},
    {0},
};
const rt_config_choice rt_choices_storages[] = {
    {"memory", RT_STORAGE_MEMORY, "in memory"},
    {"disk", RT_STORAGE_DISK,
     "in a file; memory has the rows in use, as far as it suffices (docs/ARCHITECTURE.md)"},
    {0},
};
const rt_config_choice rt_choices_serve_rows[] = {
    {"local", RT_SERVE_ROWS_LOCAL, "all on this box"},
    {"fetched", RT_SERVE_ROWS_FETCHED,
     "with `--run`: fetched when a question needs them, from a server's `serve.hand_out`"},
    {0},
};
#define XX(kind, name, traits, help) {#name, RT_MODEL_##kind, help},
const rt_config_choice rt_choices_models[] = {RT_MODEL_MAP(XX){0}};
#undef XX
const rt_config_choice rt_choices_deep_inputs[] = {
    {"dense", RT_DEEP_DENSE, "dense features; embeddings join at the last layer"},
    {"all", RT_DEEP_ALL, "dense features and all embeddings"},
    {0},
};
const rt_config_choice rt_choices_crosses[] = {
    {"vector", RT_CROSS_VECTOR, "DCN, version 1"},
    {"matrix", RT_CROSS_MATRIX, "DCN, version 2"},
    {0},
};
const rt_config_choice rt_choices_poolings[] = {
    {"sum", RT_POOL_SUM, "their sum"},
    {"mean", RT_POOL_MEAN, "their mean"},
    {0},
};
#define XX(kind, name, traits, help) {#name, RT_OPTIMIZER_##kind, help},
const rt_config_choice rt_choices_row_optimizers[] = {RT_OPTIMIZER_MAP(XX, RT_CHOICE_NONE){0}};
const rt_config_choice rt_choices_dense_optimizers[] = {RT_OPTIMIZER_MAP(XX, XX){0}};
#undef XX
const rt_config_choice rt_choices_decays[] = {
    {"none", RT_DECAY_NONE, "it stays constant"},
    {"linear", RT_DECAY_LINEAR, "it falls linearly"},
    {"cosine", RT_DECAY_COSINE, "it falls along half a cosine"},
    {"inverse_sqrt", RT_DECAY_INVERSE_SQRT,
     "it is divided by the square root of 1 + iterations / decay_iterations"},
    {0},
};
const rt_config_choice rt_choices_evictions[] = {
    {"auto", RT_EVICT_AUTO,
     "`\"light_lfu\"` for het, `\"ttl\"` for bagpipe, `\"lru\"` for fae, `\"emark\"` for the other "
     "policies"},
    {"emark", RT_EVICT_EMARK, "outdated copies, then the lowest mark, then the lowest frequency"},
    {"lru", RT_EVICT_LRU, "least recently used"},
    {"lfu", RT_EVICT_LFU, "least frequently used"},
    {"light_lfu", RT_EVICT_LIGHT_LFU,
     "the same, but a row with ten uses stays until its count has decayed (HET)"},
    {"ttl", RT_EVICT_TTL,
     "a row leaves after its last use in the batches of `cache.lookahead`, before its slot is "
     "needed (Bagpipe); then the least recently used"},
    {0},
};
#define XX(kind, name, help) {#name, RT_POLICY_##kind, help},
const rt_config_choice rt_choices_policies[] = {RT_POLICY_MAP(XX){0}};
#undef XX
#define XX(kind, name, help) {#name, RT_SOLVER_##kind, help},
const rt_config_choice rt_choices_solvers[] = {RT_SOLVER_MAP(XX){0}};
#undef XX
const rt_config_choice rt_choices_micro_batches[] = {
    {"free", RT_MICRO_BATCH_FREE,
     "so that all workers end at the same time; a worker gets at most eight equal shares"},
    {"equal", RT_MICRO_BATCH_EQUAL, "equally, unless `micro_batch_max` is set"},
    {0},
};
const rt_config_choice rt_choices_views[] = {
    {"auto", RT_VIEW_AUTO, "`\"snapshot\"` for laia and esd, `\"strict\"` for the others"},
    {"snapshot", RT_VIEW_SNAPSHOT,
     "caches simulated from the placements: every worker that trained a row in the row's last "
     "iteration has it (ESD, section 5; Herald, section 5)"},
    {"strict", RT_VIEW_STRICT,
     "the workers' real caches: after several trainers no worker has the row"},
    {0},
};
const rt_config_choice rt_choices_hybrids[] = {
    {"refine", RT_HYBRID_REFINE,
     "the greedy places all samples; the solver then places again the samples that cost most above "
     "their cheapest worker, with partners to swap with"},
    {"paper", RT_HYBRID_PAPER,
     "the solver first places the samples with the largest difference between their two cheapest "
     "workers; the greedy places the others (ESD, Algorithm 2)"},
    {0},
};
const rt_config_choice rt_choices_first_touches[] = {
    {"local", RT_FIRST_TOUCH_LOCAL, "the worker computes the initial row; nothing is sent"},
    {"pull", RT_FIRST_TOUCH_PULL, "the parameter server makes it, and the worker pulls it"},
    {0},
};

const rt_config_choice rt_choices_collectives[] = {
    {"auto", RT_COLLECTIVE_AUTO,
     "nccl if every worker has its own GPU and no keys are in use, otherwise ps"},
    {"ps", RT_COLLECTIVE_PS, "each shard sums its part, in worker order"},
    {"mpi", RT_COLLECTIVE_MPI, "Open MPI, not encrypted; `mpirun` starts the workers"},
    {"nccl", RT_COLLECTIVE_NCCL, "NCCL, from GPU to GPU, not encrypted"},
    {0},
};
const rt_config_choice rt_choices_dense_wires[] = {
    {"fp32", RT_CODING_FP32, "32 bits"},
    {"bf16", RT_CODING_BF16,
     "half the bytes; a worker adds its rounding errors to its next gradients"},
    {"int8", RT_CODING_INT8,
     "a quarter of the bytes, with a scale for every 256 of them, after the run's first 20 "
     "iterations in 32 bits, trained or not; rounding errors are added to the next gradients "
     "(workers) and sums (shards)"},
    {0},
};

const rt_config_choice rt_choices_row_wires[] = {
    {"fp32", RT_CODING_FP32, "32 bits"},
    {"bf16", RT_CODING_BF16, "16 bits"},
    {"int8", RT_CODING_INT8, "8 bits, with a scale for every row"},
    {0},
};

const rt_config_choice rt_choices_transports[] = {
    {"zmq", RT_NETWORK_ZMQ, "ZeroMQ over TCP"},
    {"ucx", RT_NETWORK_UCX, "UCX: RDMA if there is hardware, otherwise TCP"},
    {"mixed", RT_NETWORK_MIXED,
     "servers use both (UCX at the port after ZeroMQ's), and every worker one: "
     "`links.workers[].transport`"},
    {0},
};
