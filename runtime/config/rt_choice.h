// rt_choice - what a user chooses by name and a programmer adds: one line each.
//
// XX(ENUMERATOR, name, help); formats and models also have traits. From a line come the enumerator
// (rt_config.h), the name in a configuration file and its line of docs/CONFIG.md
// (rt_config_choices.c), and the entry in the table of those who do the work: dp_policy_NAME
// (dp_policy.h), dp_solver_NAME (dp_solver.h), rt_parser_NAME (rt_parser.h), ew_NAME
// (ew_model_parts.h), NAME in rt_optimizer.c. A new line without its table of operations does not
// build. New lines go to the end: the numbers of optimizers and models stand in model files. (Those
// of formats do, too; they are told, as the order here is that of the documentation.)
#ifndef RT_CHOICE_H
#define RT_CHOICE_H

// How many lines a list has: (0 RT_POLICY_MAP(RT_CHOICE_ONE)).
#define RT_CHOICE_ONE(...) +1
#define RT_CHOICE_NONE(...)

// What others ask a format or a model instead of asking which one it is; 0: nothing of all that.
typedef enum {
    RT_HAS_COLUMNS = 1,   // "stream.table.columns" says what is in a line
    RT_HAS_DELIMITER = 2, // a line is cells; the first one of a file may be a header
    RT_HAS_INDICES = 4    // "stream.libsvm" says what they mean
} rt_format_trait;
typedef enum {
    RT_TAKES_SEQUENCE = 1, // "model.sequence" and "model.target" name its fields
    RT_TAKES_NODES = 2,    // its fields are a node, "model.fan_out" neighbours, and theirs
    RT_TAKES_LENGTHS = 4   // rows may differ in length, as they stand side by side
} rt_model_trait;

// clang-format off

// "dispatch.policy". Numbers in files are rt_policy_number's.
#define RT_POLICY_MAP(XX)                                                                \
    XX(RANDOM, random, "at random")                                                      \
    XX(LAIA, laia, "where most of a sample's rows are (Herald, Algorithm 1)")            \
    XX(ESD, esd, "where training it costs least (ESD, Algorithms 1 and 2)")              \
    XX(MAKESPAN, makespan,                                                               \
       "where the iteration is predicted to end first, every row counted once")

// "dispatch.solver"
#define RT_SOLVER_MAP(XX)                                                                \
    XX(TRANSPORT, transport, "augmenting paths over the workers")                        \
    XX(HUNGARIAN, hungarian, "on the expanded square matrix: small sizes")               \
    XX(GREEDY, greedy, "cheapest worker with room: not exact")                           \
    XX(HUNGARIAN_CUDA, hungarian_cuda, "on the GPU")

// "stream.source"; LIVE(...): who sends is told what is kept in the journal (rt_intake.h).
#define RT_SOURCE_MAP(XX, LIVE)                                                          \
    XX(FILE, file, "`stream.files`, each to its end; a pipe to its own")                 \
    XX(FOLLOW, follow, "one file that grows, and those that take its name")              \
    LIVE(HTTP, http, "`POST /events`, lines of `stream.format`")                         \
    LIVE(TCP, tcp, "lines; a count of those that are kept goes back")                    \
    LIVE(FEED, feed, "`lanyard feed` on other boxes")                                    \
    LIVE(MQTT, mqtt, "a topic of an MQTT broker, QoS 1 (libmosquitto)")                  \
    XX(KAFKA, kafka, "a topic of Kafka (librdkafka)")

// "stream.format": (ENUMERATOR, number, name, traits, help). GENERATED(...) reads no lines.
#define RT_FORMAT_MAP(XX, GENERATED)                                                     \
    XX(CRITEO, 0, criteo, 0, "label, 13 numbers, 26 hashed ids, separated by tabs")      \
    XX(TABLE, 1, table, RT_HAS_COLUMNS | RT_HAS_DELIMITER,                               \
       "delimited text as `stream.table` describes it")                                  \
    XX(JSON, 3, json, RT_HAS_COLUMNS,                                                    \
       "an object per line; `stream.table.columns` says which members")                  \
    XX(LIBSVM, 4, libsvm, RT_HAS_INDICES,                                                \
       "`label index:value ...`, also of libFM; `stream.libsvm`")                        \
    GENERATED(SYNTHETIC, 2, synthetic, 0, "generated; `stream.synthetic` describes it")

// "model.name": (ENUMERATOR, name, traits, help).
#define RT_MODEL_MAP(XX)                                                                 \
    XX(WDL, wdl, RT_TAKES_LENGTHS, "Wide & Deep")                                        \
    XX(DFM, dfm, 0, "DeepFM")                                                            \
    XX(DCN, dcn, RT_TAKES_LENGTHS, "Deep & Cross")                                       \
    XX(DLRM, dlrm, 0, "DLRM")                                                            \
    XX(NCF, ncf, 0, "neural collaborative filtering (NeuMF)")                            \
    XX(DIN, din, RT_TAKES_SEQUENCE, "Deep Interest Network: attention over a sequence")  \
    XX(GRAPHSAGE, graphsage, RT_TAKES_NODES,                                             \
       "GraphSAGE, two layers: a node, its neighbours, and theirs")

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
