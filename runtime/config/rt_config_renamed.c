// What earlier versions had: keys that had another name, keys that are gone, and values that are
// gone. Configurations, models and checkpoints of then go on, with a line that says what happens
// now. docs/STABILITY.md says for how long a line stays here.
#include "runtime/config/rt_config_keys.h"

// {"section.before", "section.now"}; gone: {"section.before", NULL, what happens now (JSON), the
// same in words}. Models and checkpoints have all keys of their time, so that nothing is said of a
// key that is gone where it says what happens now.
const rt_config_renamed rt_config_renames[] = {
    {"sim.hand_over", "dispatch.hand_over", NULL, NULL},
    {"sim.reduce", "dispatch.reduce", NULL, NULL},
    {"dispatch.accounting", NULL, "\"bsp\"", "every transfer of an iteration counts"},
    {"optimizer.rows.epsilon", NULL, "1e-10", "it is 1e-10"},
    {"optimizer.rows.beta1", NULL, "0.9", "it is 0.9"},
    {"optimizer.rows.beta2", NULL, "0.999", "it is 0.999"},
    {"optimizer.rows.beta", NULL, "1", "it is 1"},
    {"optimizer.dense.epsilon", NULL, "1e-10", "it is 1e-10"},
    {"optimizer.dense.beta1", NULL, "0.9", "it is 0.9"},
    {"optimizer.dense.beta2", NULL, "0.999", "it is 0.999"},
    {"optimizer.dense.beta", NULL, "1", "it is 1"},
    {"network.message_bytes", NULL, "262144", "messages of rows have about 256 KB"},
    {"dispatch.alpha_share", NULL, "0.5", "a decision may take half of an iteration"},
    {"dispatch.criterion", NULL, "\"min2_min\"",
     "samples are placed exactly by the second smallest cost less the smallest"},
    {"dispatch.evict_cost", NULL, "false", "a transfer costs its bytes (esd)"},
    {"dispatch.keeper", NULL, "false", "every trainer of a row sends its gradient"},
    {"planner.placement", NULL, "\"coordinator\"", "the coordinator plans, for all workers"},
    {"optimizer.rows.decay_floor", NULL, "0.01", "a decay leaves a hundredth of the rate"},
    {"optimizer.dense.decay_floor", NULL, "0.01", "a decay leaves a hundredth of the rate"},
    {"optimizer.rows.initial_accumulator", NULL, "0", "sums of squared gradients start at 0"},
    {"optimizer.rows.warmup_iterations", NULL, "0",
     "the learning rate of rows is the same throughout"},
    {"optimizer.rows.decay", NULL, "\"none\"", "the learning rate of rows is the same throughout"},
    {"optimizer.rows.decay_iterations", NULL, "10000",
     "the learning rate of rows is the same throughout"},
    {"optimizer.dense.momentum", NULL, "0.9", "it is 0.9"},
    {"optimizer.dense.l1", NULL, "0", "dense weights have no L1 penalty"},
    {"stream.join.quotes", NULL, "\"auto\"",
     "outcomes have quotes as stream.table.quotes auto says"},
    {"stream.synthetic.base_rate", NULL, "0", "the shape says how often a label is 1"},
    {"stream.kafka.group", NULL, "\"lanyard\"",
     "it is \"lanyard\", or what stream.kafka.options says (group.id=NAME)"},
    {"planner.run_ahead", NULL, "2", "two iterations are planned ahead"},
    {"publish.guard.samples", NULL, "20000", "the last 20,000 samples are judged"},
    {"serve.threads", NULL, "0", "each core that the process may use scores"},
    {"alerts.every_s", NULL, "600", "an alert is told at most every 600 s"},
    {"alerts.link_share", NULL, "0.5", "an alert tells of a link at half of its best rate"},
    {"alerts.checkpoint_age", NULL, "3",
     "an alert tells of a checkpoint that is three checkpoint.every_s old"},
    {"alerts.memory_share", NULL, "0.9", "an alert tells of nine tenths of the memory in use"},
    {"network.port", NULL, "0", "the coordinator's port is that of network.coordinator"},
    {"network.overlap", NULL, "true", "what an iteration needs moves during the one before"},
    {"network.dense_overlap", NULL, "true",
     "gradients of a layer are sent while those of the layers below are computed"},
    {"alerts.malformed_share", NULL, "0.05",
     "an alert tells of 5% of malformed lines, or of stream.malformed_share_max where it is more"},
    {"alerts.loss_drift", NULL, "1.2",
     "an alert tells of a log loss that is 1.2 times the average of ten windows"},
    {"rows.keep_min", NULL, "0", "rows end by their age, however few there are"},
    {"guards.bad_batches_max", NULL, "100", "a run ends after more than 100 bad batches"},
    {0},
};

// {key, value before, value now}.
const rt_config_replaced rt_config_replacements[] = {
    {"dispatch.policy", "herald", "laia"},
    {"dispatch.solver", "auction", "transport"},
    {"dispatch.solver", "auction_cuda", "transport"},
    {0},
};
