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
    {"restart", RT_LOSS_RESTART, "all processes start again, from the newest checkpoint"},
    {"shrink", RT_LOSS_SHRINK,
     "the same; without the worker, if it was one that was lost, until it is there again"},
    {0},
};
#define XX(kind, number, name, traits, help) {#name, RT_FORMAT_##kind, help},
const rt_config_choice rt_choices_formats[] = {RT_FORMAT_MAP(XX, XX){0}};
#undef XX
const rt_config_choice rt_choices_quote_rules[] = {
    {"auto", RT_QUOTES_AUTO, "as rfc4180, but none where the delimiter is a tab"},
    {"rfc4180", RT_QUOTES_RFC4180,
     "a cell may be quoted: it may hold delimiters and line ends then, and \"\" stands for a "
     "quote"},
    {"none", RT_QUOTES_NONE, "a quote is a byte like any other"},
    {0},
};
const rt_config_choice rt_choices_outcome_formats[] = {
    {"table", RT_FORMAT_TABLE, "delimited text"},
    {"json", RT_FORMAT_JSON, "an object per line"},
    {0},
};
const rt_config_choice rt_choices_standby_away[] = {
    {"wait", RT_STANDBY_WAIT, "nothing begins, and nothing is acknowledged, until it answers"},
    {"go_on", RT_STANDBY_GO_ON,
     "events are acknowledged without it, which the log and `lanyard top` say"},
    {0},
};
const rt_config_choice rt_choices_unanswered_events[] = {
    {"negative", RT_JOIN_NEGATIVE, "it has label 0"},
    {"drop", RT_JOIN_DROP, "it is left out, and counted"},
    {0},
};
const rt_config_choice rt_choices_late_outcomes[] = {
    {"drop", RT_LATE_DROP, "it is counted"},
    {"train", RT_LATE_TRAIN,
     "its event is trained once more, with label 1 in place of the 0 that it had"},
    {0},
};
const rt_config_choice rt_choices_join_ends[] = {
    {"train", RT_JOIN_END_TRAIN, "no outcome can come: they are trained as `unanswered` says"},
    {"keep", RT_JOIN_END_KEEP, "they wait on, in the checkpoint (`checkpoint.at_end`)"},
    {0},
};
#define XX(kind, name, help) {#name, RT_SOURCE_##kind, help},
const rt_config_choice rt_choices_sources[] = {RT_SOURCE_MAP(XX, XX){0}};
#undef XX
const rt_config_choice rt_choices_dense_scalings[] = {
    {"standard", RT_SCALING_STANDARD,
     "less the mean, divided by the deviation, of all samples so far (after `transform`); at most "
     "10 deviations"},
    {"none", RT_SCALING_NONE, "none: as they are read"},
    {0},
};
const rt_config_choice rt_choices_synthetic_shapes[] = {
    {"criteo", RT_SYNTHETIC_CRITEO, "fields and id counts of Criteo Kaggle"},
    {"avazu", RT_SYNTHETIC_AVAZU, "of Avazu"},
    {"search", RT_SYNTHETIC_SEARCH, "of Criteo Sponsored Search"},
    {0},
};
const rt_config_choice rt_choices_storages[] = {
    {"memory", RT_STORAGE_MEMORY, "in memory"},
    {"disk", RT_STORAGE_DISK,
     "in a file: memory has those that are used, as far as it reaches (docs/ARCHITECTURE.md)"},
    {0},
};
const rt_config_choice rt_choices_serve_rows[] = {
    {"local", RT_SERVE_ROWS_LOCAL, "all of them here"},
    {"fetched", RT_SERVE_ROWS_FETCHED,
     "with `--run`: as questions need them, from the server there (its `serve.hand_out`)"},
    {0},
};
#define XX(kind, name, traits, help) {#name, RT_MODEL_##kind, help},
const rt_config_choice rt_choices_models[] = {RT_MODEL_MAP(XX){0}};
#undef XX
const rt_config_choice rt_choices_deep_inputs[] = {
    {"dense", RT_DEEP_DENSE, "the dense features; embeddings join at the last layer"},
    {"all", RT_DEEP_ALL, "dense features and all embeddings"},
    {0},
};
const rt_config_choice rt_choices_crosses[] = {
    {"vector", RT_CROSS_VECTOR, "DCN, version 1"},
    {"matrix", RT_CROSS_MATRIX, "DCN, version 2"},
    {0},
};
const rt_config_choice rt_choices_poolings[] = {
    {"sum", RT_POOL_SUM, "the rows added up"},
    {"mean", RT_POOL_MEAN, "divided by their number"},
    {0},
};
#define XX(kind, name, traits, help) {#name, RT_OPTIMIZER_##kind, help},
const rt_config_choice rt_choices_row_optimizers[] = {RT_OPTIMIZER_MAP(XX, RT_CHOICE_NONE){0}};
const rt_config_choice rt_choices_dense_optimizers[] = {RT_OPTIMIZER_MAP(XX, XX){0}};
#undef XX
const rt_config_choice rt_choices_decays[] = {
    {"none", RT_DECAY_NONE, "it stays"},
    {"linear", RT_DECAY_LINEAR, "falls on a line"},
    {"cosine", RT_DECAY_COSINE, "falls along half a cosine"},
    {"inverse_sqrt", RT_DECAY_INVERSE_SQRT,
     "divided by the root of 1 + iterations / decay_iterations"},
    {0},
};
const rt_config_choice rt_choices_evictions[] = {
    {"emark", RT_EVICT_EMARK, "outdated copies, then the lowest mark, then the lowest frequency"},
    {"lru", RT_EVICT_LRU, "least recently used"},
    {"lfu", RT_EVICT_LFU, "least frequently used"},
    {"light_lfu", RT_EVICT_LIGHT_LFU,
     "the same, but rows used ten times only count on, and stay until that count has decayed "
     "(HET)"},
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
     "as many for each worker as let all be done at the same time, at most eight equal shares"},
    {"equal", RT_MICRO_BATCH_EQUAL, "all workers take equally many, unless micro_batch_max is set"},
    {0},
};
const rt_config_choice rt_choices_views[] = {
    {"auto", RT_VIEW_AUTO, "`\"snapshot\"` for laia and esd, `\"strict\"` for the others"},
    {"snapshot", RT_VIEW_SNAPSHOT,
     "caches simulated from the placements: every worker that trained a row in its last iteration "
     "holds it (ESD, section 5; Herald, section 5)"},
    {"strict", RT_VIEW_STRICT, "the workers' caches: of several trainers none holds the row"},
    {0},
};
const rt_config_choice rt_choices_hybrids[] = {
    {"refine", RT_HYBRID_REFINE,
     "all are placed greedily, then those that pay most above their cheapest worker are placed again, "
     "with partners to change places with"},
    {"paper", RT_HYBRID_PAPER,
     "those with the largest difference between their two cheapest workers, before the others (ESD, "
     "Algorithm 2)"},
    {0},
};
const rt_config_choice rt_choices_first_touches[] = {
    {"local", RT_FIRST_TOUCH_LOCAL, "the worker computes the initial row, nothing is sent"},
    {"pull", RT_FIRST_TOUCH_PULL, "the parameter server makes it and it is pulled"},
    {0},
};

const rt_config_choice rt_choices_collectives[] = {
    {"auto", RT_COLLECTIVE_AUTO,
     "nccl where every worker has a GPU of its own and no keys are in use, else ps"},
    {"ps", RT_COLLECTIVE_PS, "each parameter server adds its part of them, in worker order"},
    {"mpi", RT_COLLECTIVE_MPI, "Open MPI, not encrypted; workers are started by `mpirun`"},
    {"nccl", RT_COLLECTIVE_NCCL, "NCCL, from GPU to GPU, not encrypted"},
    {0},
};
const rt_config_choice rt_choices_dense_wires[] = {
    {"fp32", RT_CODING_FP32, "as they are"},
    {"bf16", RT_CODING_BF16, "half the bytes; a worker adds what rounding lost to its next ones"},
    {"int8", RT_CODING_INT8,
     "a quarter of the bytes, with a scale for every 256 of them, after the run's first 20 "
     "iterations in 32 bits, trained or not; what rounding lost is added to the next ones, by workers to "
     "gradients, by shards to sums"},
    {0},
};

const rt_config_choice rt_choices_row_wires[] = {
    {"fp32", RT_CODING_FP32, "as they are"},
    {"bf16", RT_CODING_BF16, "in 16 bits"},
    {"int8", RT_CODING_INT8, "in 8 bits, with a scale for every row"},
    {0},
};

const rt_config_choice rt_choices_transports[] = {
    {"zmq", RT_NETWORK_ZMQ, "ZeroMQ over TCP"},
    {"ucx", RT_NETWORK_UCX, "UCX: RDMA where there is hardware, else TCP"},
    {"mixed", RT_NETWORK_MIXED,
     "servers speak both (UCX at the port after ZeroMQ's), every worker one: "
     "`links.workers[].transport`"},
    {0},
};
