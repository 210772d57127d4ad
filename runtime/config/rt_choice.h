// rt_choice - what a user chooses by name and a programmer adds: one line each.
//
// XX(ENUMERATOR, name, help). From a line come the enumerator (rt_config.h), the name in a
// configuration file and its line of docs/CONFIG.md (rt_config_choices.c), and the entry in the table
// of those who do the work: dp_policy_NAME (dp_policy.h), dp_solver_NAME (dp_solver.h), NAME in
// rt_optimizer.c. A new line without its table of operations does not build. New lines go to the
// end: the numbers of optimizers stand in model files.
#ifndef RT_CHOICE_H
#define RT_CHOICE_H

// How many lines a list has: (0 RT_POLICY_MAP(RT_CHOICE_ONE)).
#define RT_CHOICE_ONE(kind, name, help) +1
#define RT_CHOICE_NONE(kind, name, help)

// clang-format off

// "dispatch.policy"
#define RT_POLICY_MAP(XX)                                                                \
    XX(RANDOM, random, "at random")                                                      \
    XX(LAIA, laia, "where most of a sample's rows are (Herald, Algorithm 1)")            \
    XX(ESD, esd, "where training it costs least (ESD, Algorithms 1 and 2)")              \
    XX(HERALD, herald, "as laia, over the tables where it matters most (Herald)")        \
    XX(MAKESPAN, makespan,                                                               \
       "where the iteration is predicted to end first, every row counted once")

// "dispatch.solver"
#define RT_SOLVER_MAP(XX)                                                                \
    XX(TRANSPORT, transport, "augmenting paths over the workers")                        \
    XX(AUCTION, auction, "auction with epsilon scaling")                                 \
    XX(HUNGARIAN, hungarian, "on the expanded square matrix: small sizes")               \
    XX(GREEDY, greedy, "cheapest worker with room: not exact")                           \
    XX(HUNGARIAN_CUDA, hungarian_cuda, "on the GPU")                                     \
    XX(AUCTION_CUDA, auction_cuda, "on the GPU")

// "stream.source"; LIVE(...): who sends is told what is kept in the journal (rt_intake.h).
#define RT_SOURCE_MAP(XX, LIVE)                                                          \
    XX(FILE, file, "`stream.files`, each to its end; a pipe to its own")                 \
    XX(FOLLOW, follow, "one file that grows, and those that take its name")              \
    LIVE(HTTP, http, "`POST /events`, lines of `stream.format`")                         \
    LIVE(TCP, tcp, "lines; a count of those that are kept goes back")                    \
    LIVE(FEED, feed, "`lanyard feed` on other boxes")                                    \
    LIVE(MQTT, mqtt, "a topic of an MQTT broker, QoS 1 (libmosquitto)")                  \
    XX(KAFKA, kafka, "a topic of Kafka (librdkafka)")

// "optimizer.rows.name" and "optimizer.dense.name"; DENSE(...) is for the dense weights only.
#define RT_OPTIMIZER_MAP(XX, DENSE)                                                      \
    XX(SGD, sgd, "no state: rows are smallest on the wire")                              \
    DENSE(MOMENTUM, momentum, "SGD with momentum")                                       \
    XX(ADAGRAD, adagrad, "one accumulator per value")                                    \
    XX(ROWWISE_ADAGRAD, rowwise_adagrad, "one accumulator per row")                      \
    XX(ADAM, adam, "two moments per value")                                              \
    XX(FTRL, ftrl, "FTRL-Proximal")

// clang-format on
#endif
