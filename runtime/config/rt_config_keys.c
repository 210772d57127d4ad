#include "runtime/config/rt_config_keys.h"

#include <string.h>

#include "runtime/config/rt_config_choices.h"
#include "runtime/config/rt_config_rows.h"

#define OBJECT rt_config

_Static_assert(sizeof(rt_policy_kind) == sizeof(int), "choices are read and written as int");

#define OPTIMIZER_KEYS(section, member, choices_, rate_)                                           \
    CHOICE(section ".name", member.kind, rt_optimizer_kind, "\"adagrad\"", choices_,               \
           "The optimizer."),                                                                      \
        FLOAT(section ".learning_rate", member.learning_rate, rate_, ABOVE(0, 1000),               \
              "Step size."),                                                                       \
        FLOAT(section ".l2", member.l2, "0", IN(0, 1e6),                                           \
              "L2 penalty: this factor times the weight is added to the weight's gradient, for "   \
              "rows in the iterations that train them. In ftrl: lambda_2."),                       \
        FLOAT(section ".clip_norm", member.clip_norm, "0", IN(0, 1e6),                             \
              "Largest norm of a summed gradient, before the L2 penalty: of each row, and of all " \
              "dense weights together. Larger gradients are scaled down to it. 0: off.")

const rt_config_key rt_config_keys[] = {
    CHOICE("log.level", log_level, rt_log_level, "\"info\"", rt_choices_log_levels,
           "How much the log on standard error says."),
    U64("metrics.bytes_max", metrics_bytes_max, "4000000000", IN(0, RT_CONFIG_INTEGER_MAX), "bytes",
        "Size of the metrics files. At half of it `metrics.jsonl` is renamed to "
        "`metrics.jsonl.1`, replacing the previous one, and a new file begins, so the newest "
        "records stay. 0: no limit."),
    U64("seed", seed, "1", IN(0, RT_CONFIG_INTEGER_MAX), "",
        "Seed of everything random: initial rows and weights, ties, generated data."),
    {TEXT_ROW(
         "device", device, "auto",
         "Where workers compute: `cpu`; `cuda:0`, a GPU by its number; `cuda`, a GPU by the "
         "worker's rank, modulo the number of GPUs of its machine; or `auto`, which is `cuda` if "
         "this build and machine have a GPU, and `cpu` otherwise."),
     .min = 1},
    U32("compute.threads", compute.threads, "0", IN(0, RT_THREADS_MAX), "threads",
        "Threads of a worker that computes on the CPU. Each box may have its own number. 0: the "
        "cores that the process may use, divided by the workers of the box (`lanyard up` and "
        "mpirun know their number; otherwise `lanyard worker --share N`). The model does not "
        "depend on it."),
    U32("compute.nice", compute.nice, "0", IN(0, 19), "",
        "Priority that a worker gives up, as in nice(1). Each box may have its own number. On a "
        "box that also answers (`lanyard serve`), 10 lets answers go first."),
    BOOL("compute.idle", compute.idle, "false",
         "Run all processes of the run on this box only when nobody else wants the core "
         "(SCHED_IDLE). Each box may have its own value. For a box that also answers (`lanyard "
         "serve`): with `compute.nice`, an answer may wait some milliseconds for the end of a "
         "time slice."),
    BOOL("compute.tf32", compute.tf32, "false",
         "Round the factors of matrix products on a GPU to 10 bits of mantissa (TF32). This is "
         "several times faster; sums stay 32 bits. The model differs slightly."),
    LIST("boxes", rt_config_boxes, boxes, box_count, "[]", "",
         "The machines of a site. They determine `workers`, `links.workers`, `links.ps_gbps`, "
         "`ps.shards` and `network.ps`; if these keys are given, they must agree. Traffic between "
         "a worker and a shard of one box uses no link. A box's link carries the traffic of its "
         "workers and shards with other boxes."),
    U32("workers", worker_count, "1", IN(1, RT_WORKERS_MAX), "",
        "Number of workers. Without this key it is the number of workers of `boxes`, otherwise of "
        "links in `links.workers`, otherwise one."),
    U32("batch.samples", batch_samples, "256", IN(1, 4194304), "samples",
        "N, the samples of a batch of all workers together. The first batches are smaller: a "
        "batch has a 64th of the samples that came before it, at least 8 and at most N. A batch of "
        "lines also ends with the eighth sample of a key that is new or came rarely before, such "
        "as a user in a visit (docs/STREAMS.md, Latency)."),
    U32("batch.samples_per_worker", samples_per_worker, "0", IN(0, 65536), "samples",
        "m: every batch has m x `workers` samples, from the start and whatever its keys, as in "
        "papers. Replaces `batch.samples`. 0: `batch.samples` applies."),
    U32("batch.wait_ms", batch_wait_ms, "60000", IN(0, 86400000), "ms",
        "Time after which an incomplete batch from a pipe or standard input is trained, counted "
        "from its first sample. 0: wait until the batch is full."),

    CHOICE("stream.format", stream.format, rt_format, "\"criteo\"", rt_choices_formats,
           "Format of the input."),
    CHOICE("stream.source", stream.source, rt_source_kind, "\"file\"", rt_choices_sources,
           "Source of the input (docs/STREAMS.md). Events that are sent are stored in a journal "
           "before their sender gets an answer, and trained once."),
    TEXT("stream.id", stream.id,
         "Where an event's id is. An event with the id of an earlier one is dropped. The value is "
         "a column's name or number (table), a path (json), I1 to C26, a number, or 41 for an "
         "extra last column (criteo), or `#` for the comment (libsvm). Empty: events have no id."),
    U32("stream.id_window", stream.id_window, "1000000", IN(1, 100000000), "events",
        "Number of events whose ids are remembered. An id takes 8 bytes in every checkpoint and 24 "
        "bytes in memory."),
    BOOL("stream.take_anything", stream.take_anything, "false",
         "Store events of http, tcp and mqtt without a check, and count bad ones as malformed "
         "when they are read. False: refuse bad events with the reason before they are stored."),
    TEXT_OR("stream.http.listen", stream.http_listen, "127.0.0.1:7080",
            "`HOST:PORT` of `stream.source` http. Addresses beyond loopback need "
            "`security.certificate` and `security.token`."),
    TEXT_OR("stream.tcp.listen", stream.tcp_listen, "127.0.0.1:7081",
            "`HOST:PORT` of `stream.source` tcp. Addresses beyond loopback need "
            "`security.insecure`."),
    TEXT_OR("stream.mqtt.broker", stream.mqtt_broker, "127.0.0.1:1883",
            "`HOST:PORT` of the broker."),
    TEXT_OR("stream.mqtt.topic", stream.mqtt_topic, "lanyard/events",
            "Topic, subscribed to with QoS 1. It may have wildcards. A message has one event or "
            "several, one per line."),
    TEXT_OR("stream.mqtt.client", stream.mqtt_client, "lanyard",
            "Name of the session at the broker. Every run needs a different one."),
    TEXT("stream.mqtt.user", stream.mqtt_user, "User name. Empty: none."),
    TEXT("stream.mqtt.password", stream.mqtt_password,
         "File with the password, one word, that nobody else can read."),
    TEXT("stream.mqtt.ca", stream.mqtt_ca,
         "Certificate authority of the broker, a PEM file, for TLS. Empty: no TLS, which needs "
         "loopback or `security.insecure`."),
    TEXT_OR("stream.kafka.brokers", stream.kafka_brokers, "127.0.0.1:9092",
            "`HOST:PORT,...` of some brokers."),
    TEXT_OR("stream.kafka.topic", stream.kafka_topic, "events",
            "Topic. All its partitions are read."),
    TEXT("stream.kafka.options", stream.kafka_options,
         "Options of librdkafka, `name=value,...`, such as "
         "`security.protocol=ssl,ssl.ca.location=ca.pem`. The consumer group is `lanyard`, "
         "unless `group.id` names another."),
    TEXT("stream.kafka.password", stream.kafka_password,
         "File with the password (`sasl.password`), one word, that nobody else can read."),
    LIST("stream.files", rt_config_files, stream.files, stream.file_count, "[]", "",
         "Input files, read in this order. `-` is standard input. Packed files are unpacked. "
         "Paths are relative to the working directory of the program. A FIFO must be last, "
         "because it has no end."),
    BOOL("stream.fifo_ends", stream.fifo_ends, "false",
         "End the input from a FIFO when its last writer closes it. Otherwise the FIFO stays open "
         "for the next writer, and the run ends on request or at `stream.samples_max`."),
    U64("stream.samples_max", stream.samples_max, "0", IN(0, RT_CONFIG_INTEGER_MAX), "samples",
        "Number of samples after which the run stops. 0: the end of the input."),
    DOUBLE("stream.malformed_share_max", stream.malformed_share_max, "0.01", IN(0, 1), "",
           "Largest accepted share of malformed lines among the last 5,000 to 10,000 lines. It is "
           "checked from line 1,000 on. Above it the input ends with an error; earlier samples are "
           "trained and saved."),
    CHOICE("stream.dense_scaling", stream.dense_scaling, rt_dense_scaling, "\"standard\"",
           rt_choices_dense_scalings,
           "Scaling of dense features. Means and deviations are saved with the model."),
    LIST("stream.tables", rt_config_shared, stream.shared, stream.shared_count, "[]", "",
         "Fields that share rows, by name: `history=item` gives history the rows of item, so a "
         "value has one row in both (docs/FORMATS.md). Every other field has its own rows."),
    U32("stream.epochs", stream.epochs, "1", IN(1, RT_FILES_MAX), "",
        "Number of passes over the files. In later passes the metrics describe samples that the "
        "model has already seen: use `stream.holdout` to judge the model."),
    DOUBLE("stream.holdout", stream.holdout, "0", IN(0, 0.9), "",
           "Share of the samples of files that is not trained, chosen by a hash of the line and "
           "`seed`. `lanyard up --out` judges the model by them at its end, and `lanyard eval "
           "RUN` later."),
    U32("stream.patience", stream.patience, "0", IN(0, RT_FILES_MAX), "epochs",
        "Number of epochs in a row without a better held-out log loss after which training ends. "
        "Every epoch ends with a checkpoint, which the samples of `stream.holdout` judge. The best "
        "one becomes the saved model. 0: all epochs are trained, and the last model is saved."),
    DOUBLE("stream.negatives_keep", stream.negatives_keep, "1", ABOVE(0, 1), "",
           "w, the share of samples with label 0 that is trained, chosen by a hash of `seed` and "
           "the sample's id or number. Metrics and answers correct a prediction p to p / (p + (1 - "
           "p) / w)."),
    CHARACTER("stream.table.delimiter", stream.table.delimiter, ",", NULL,
              "Character between the cells of a line."),
    CHOICE("stream.table.quotes", stream.table.quotes, rt_quotes, "\"auto\"",
           rt_choices_quote_rules, "Meaning of a quote at the beginning of a cell."),
    BOOL("stream.table.header", stream.table.has_header, "false",
         "The first line of every file names the cells. Cells are matched to columns by name, in "
         "any order; cells without a column are not read. Every column that is not ignored then "
         "needs a name."),
    LIST("stream.table.columns", rt_config_columns, stream.table.columns, stream.table.column_count,
         "[]", "",
         "The columns: all cells of a line, from the left, or in json the members to read. One to "
         "8 columns are labels. Categorical and multi columns become fields in this order."),
    DOUBLE("stream.libsvm.label_at_least", stream.libsvm.label_at_least, "1", IN(-1e300, 1e300), "",
           "Labels from this number upward are 1, others 0."),
    U64("stream.libsvm.index_first", stream.libsvm.index_first, "1", IN(0, 1), "",
        "Smallest index of a file."),
    U32("stream.libsvm.dense", stream.libsvm.dense_count, "0", IN(0, 65536), "",
        "Number of indices, from the smallest, that are dense features; a missing one is 0. The "
        "other indices are ids. Value 1 means that the id is present, and 0 that it is absent; a "
        "line with any other value is malformed."),
    LIST("stream.libsvm.fields", rt_config_libsvm_fields, stream.libsvm.fields,
         stream.libsvm.field_count, "[]", "",
         "First index of every field. A field ends where the next one begins. Empty: all ids are "
         "one field."),
    U32("stream.libsvm.values_max", stream.libsvm.values_max, "32", IN(1, 1024), "ids",
        "Most ids of one field in a line. Further ids are dropped."),
    CHOICE("stream.join.source", stream.join.source, rt_source_kind, "\"file\"", rt_choices_sources,
           "Source of outcomes. With file and no `stream.join.outcomes` events already have their "
           "labels, and this section is not used. http takes outcomes by `POST /outcomes` at "
           "`stream.http.listen`. mqtt and kafka read `stream.join.topic` at the same brokers. "
           "feed takes them from feeders that have a `stream.join` section."),
    LIST("stream.join.outcomes", rt_config_files, stream.join.files, stream.join.file_count, "[]",
         "", "Like `stream.files`, for `stream.join.source` file and follow."),
    TEXT_OR("stream.join.listen", stream.join.listen, "127.0.0.1:7083",
            "Like `stream.tcp.listen`, for `stream.join.source` tcp."),
    TEXT_OR("stream.join.topic", stream.join.topic, "outcomes",
            "Topic of outcomes, for `stream.join.source` mqtt and kafka. The MQTT session is "
            "`stream.mqtt.client` with `-outcomes` appended."),
    CHOICE("stream.join.format", stream.join.format, rt_format, "\"table\"",
           rt_choices_outcome_formats, "Format of outcomes."),
    CHARACTER("stream.join.delimiter", stream.join.table.delimiter, ",", NULL,
              "Like `stream.table.delimiter`."),
    BOOL("stream.join.header", stream.join.table.has_header, "false",
         "Like `stream.table.header`."),
    LIST("stream.join.columns", rt_config_columns, stream.join.table.columns,
         stream.join.table.column_count, "[]", "",
         "Like `stream.table.columns`, with kinds id (one), time, label and ignore. Without a "
         "label every outcome has label 1."),
    DOUBLE("stream.join.window_s", stream.join.window_s, "3600", IN(0, 1e9), "s",
           "Time that an event waits for its outcome, by the times of events and outcomes."),
    CHOICE("stream.join.unanswered", stream.join.unanswered, rt_join_unanswered, "\"negative\"",
           rt_choices_unanswered_events, "Treatment of an event without an outcome in time."),
    CHOICE("stream.join.late", stream.join.late, rt_join_late, "\"drop\"", rt_choices_late_outcomes,
           "Treatment of an outcome with label 1 that comes after its event was trained with label "
           "0."),
    DOUBLE("stream.join.late_s", stream.join.late_s, "86400", IN(0, 1e9), "s",
           "Time for which an event is kept after its window, for late outcomes (with `late` "
           "train)."),
    DOUBLE("stream.join.resend_s", stream.join.resend_s, "60", IN(0, 1e9), "s",
           "Time after a restart during which no window ends, so that outcomes from the outage can "
           "still arrive (http, tcp, feed, mqtt)."),
    U32("stream.join.events_max", stream.join.events_max, "100000", IN(1, 100000000), "events",
        "Largest number of events that wait or are kept, and of outcomes that wait for their "
        "events. Beyond it, the oldest stop waiting early and are counted."),
    CHOICE("stream.join.at_end", stream.join.at_end, rt_join_at_end, "\"train\"",
           rt_choices_join_ends,
           "Treatment of events that still wait when both inputs have "
           "ended."),
    CHOICE("stream.synthetic.shape", stream.synthetic_shape, rt_synthetic_shape, "\"criteo\"",
           rt_choices_synthetic_shapes, "Fields and the sizes of their id spaces."),
    DOUBLE("stream.synthetic.scale", stream.synthetic_scale, "0.05", ABOVE(0, 1), "",
           "Share of every id space that is used."),
    DOUBLE("stream.synthetic.zipf", stream.synthetic_zipf, "1.05", IN(0, 4), "",
           "Exponent of the popularity. 0 is uniform."),
    U32("stream.synthetic.clusters", stream.synthetic_clusters, "32", IN(0, 65536), "",
        "Number of user interests. An interest correlates the fields of a sample. 0: none."),
    U32("stream.synthetic.labels", stream.synthetic_labels, "1", IN(1, RT_LABELS_MAX), "",
        "Number of labels of a sample. The features act on each label differently. Each label is 1 "
        "half as often as the one before it."),
    DOUBLE("stream.synthetic.drift", stream.synthetic_drift, "0", IN(0, 1), "",
           "Share of the popularity ranks that are replaced in a million samples."),
    U64("stream.synthetic.first", stream.synthetic_first, "0", IN(0, RT_CONFIG_INTEGER_MAX),
        "samples",
        "Number of samples to skip at the start of the stream, so that training begins after some "
        "drift."),

    CHOICE("model.name", model.kind, rt_model_kind, "\"wdl\"", rt_choices_models, "The model."),
    LIST("model.embedding_dim", rt_config_dims, model.embedding_dims, model.embedding_dim_count,
         "16", "floats",
         "Length of an embedding row. A list gives the length for every field, in order; only "
         "`sim` supports different lengths."),
    CHOICE("model.deep_input", model.deep_input, rt_deep_input, "\"all\"", rt_choices_deep_inputs,
           "Input of the MLP."),
    CHOICE("model.pooling", model.pooling, rt_pooling, "\"sum\"", rt_choices_poolings,
           "How several rows of one field become one."),
    LIST("model.mlp", rt_config_mlp, model.mlp, model.mlp_layer_count, "[256, 256, 256]", "",
         "Widths of the hidden layers."),
    LIST("model.mlp_bottom", rt_config_mlp_bottom, model.mlp_bottom, model.mlp_bottom_layer_count,
         "[]", "",
         "Widths of the hidden layers under the interactions (dlrm). A last layer of "
         "embedding_dim follows."),
    CHOICE("model.cross", model.cross, rt_cross, "\"vector\"", rt_choices_crosses,
           "Weights of a cross layer (dcn)."),
    U32("model.cross_layers", model.cross_layer_count, "3", IN(1, RT_CROSS_LAYERS_MAX), "",
        "Number of cross layers (dcn)."),
    TEXT("model.sequence", model.sequence,
         "The field with several values to whose rows attention is applied (din)."),
    TEXT("model.target", model.target,
         "The field that every row of the sequence is compared with (din)."),
    LIST("model.attention", rt_config_mlp, model.attention, model.attention_layer_count, "[36]", "",
         "Widths of the hidden layers of the attention unit (din)."),
    U32("model.fan_out", model.fan_out, "10", IN(1, RT_FAN_OUT_MAX), "",
        "Number of neighbours of a sample's node (graphsage). The fields are the node, one field "
        "for each neighbour, and one field of several values for the neighbours of each "
        "neighbour."),
    DOUBLE("model.init_scale", model.init_scale, "0.01", IN(0, 10), "",
           "Standard deviation of initial row values."),
    {ROW("model.base_rate", RT_KEY_DOUBLE, "\"auto\"", "",
         "Share of label 1 from which the output's bias starts. `\"auto\"`: the bias follows the "
         "observed share until both labels have been seen; nothing is trained before that "
         "(docs/MODELS.md)."),
     IN(1e-6, 1 - 1e-6), .offset = OFFSET(model.base_rate, double), .word = "auto",
     .word_offset = OFFSET(model.base_rate_auto, bool)},

    OPTIMIZER_KEYS("optimizer.rows", optimizer_rows, rt_choices_row_optimizers, "0.03"),
    FLOAT("optimizer.rows.l1", optimizer_rows.l1, "0", IN(0, 1e6),
          "L1 penalty (ftrl): unimportant weights become 0."),
    OPTIMIZER_KEYS("optimizer.dense", optimizer_dense, rt_choices_dense_optimizers, "0.005"),
    FLOAT(
        "optimizer.dense.initial_accumulator", optimizer_dense.initial_accumulator, "1e-9",
        IN(0, 1e6),
        "Initial sum of squared gradients (adagrad, rowwise_adagrad, ftrl). From 0, the first step "
        "of adagrad has the size of the rate, however small the gradient is."),
    U32("optimizer.dense.warmup_iterations", optimizer_dense.warmup_iterations, "0", IN(0, 1e9),
        "iterations", "Iterations in which the learning rate rises linearly from 0 (not ftrl)."),
    CHOICE("optimizer.dense.decay", optimizer_dense.decay, rt_decay_kind, "\"none\"",
           rt_choices_decays, "How the learning rate falls after the warm-up (not ftrl)."),
    U32("optimizer.dense.decay_iterations", optimizer_dense.decay_iterations, "10000", IN(1, 1e9),
        "iterations", "Length of the decay, to a hundredth of the rate."),

    U64("cache.rows", cache.rows, "0", IN(0, RT_CACHE_ROWS_MAX), "rows",
        "Rows that each worker's cache holds. 0: `cache.ratio` applies."),
    DOUBLE("cache.ratio", cache.ratio, "0.08", ABOVE(0, 1), "",
           "Size of a worker's cache as a share of the distinct keys of the input. The cache has "
           "room for at least the rows that a worker's batch may need. If the keys cannot be "
           "counted (pipes, standard input, endless generated samples) and `cache.distinct_keys` "
           "is 0, the cache takes 64 MiB, and has room for at least twice the rows that a batch "
           "may need."),
    U64("cache.distinct_keys", cache.distinct_keys, "0", IN(0, RT_CONFIG_INTEGER_MAX), "keys",
        "Distinct keys of the input, for `cache.ratio`. 0: the input is read once to count them."),
    CHOICE("cache.eviction", cache.eviction_given, int, "\"auto\"", rt_choices_evictions,
           "Which row makes room for another."),
    U32("cache.lookahead", cache.lookahead, "0", IN(0, 1023), "batches",
        "Number of batches to read ahead of the planned one. The rows that they need are evicted "
        "last. The batches are kept in memory; each of their keys takes 16 to 64 bytes, and 8 "
        "bytes for each batch that has it. A live stream is trained this many batches later. With "
        "`dispatch.policy` `\"bagpipe\"` 0 means 199."),

    CHOICE("dispatch.policy", dispatch.policy, rt_policy_kind, "\"esd\"", rt_choices_policies,
           "How samples are assigned to workers."),
    TEXT("dispatch.profile", dispatch_profile,
         "File of `lanyard profile --out`, on the coordinator's box: the rows that every worker "
         "keeps (fae). Caches need room for all of them and a micro-batch."),
    {ROW("dispatch.alpha", RT_KEY_DOUBLE, "1", "",
         "Share of the samples that the exact solver places; the greedy places the others (esd). "
         "`\"auto\"`: the largest share whose decision takes at most half of an iteration. Can "
         "be changed during a run."),
     IN(0, 1), .offset = OFFSET(dispatch.alpha, double), .word = "auto",
     .word_offset = OFFSET(dispatch.alpha_auto, bool)},
    CHOICE("dispatch.hybrid", dispatch.hybrid, rt_hybrid_kind, "\"refine\"", rt_choices_hybrids,
           "Which samples the exact solver places (esd, `dispatch.alpha` below 1)."),
    CHOICE("dispatch.solver", dispatch.solver, rt_solver_kind, "\"transport\"", rt_choices_solvers,
           "The exact solver (esd). A solver that this build or machine lacks falls back to "
           "`transport`."),
    WORD_OR_LIST(
        "dispatch.participants", rt_config_participants, "\"all\"", "",
        "Workers that train, by rank. `\"all\"`: all of them. `\"auto\"`: the set with the "
        "shortest predicted iterations. The planner finds it by planning recent batches on several "
        "sets, so it plans some iterations twice. A worker whose dense exchange delays the others "
        "sits out: it gets no samples, still pushes the rows of its cache that others need, and "
        "fetches the dense weights from the shards when it returns. Choose `\"auto\"` if links or "
        "boxes differ much. `\"rotate\"`: other workers every 3 iterations, for tests. All values "
        "but `\"all\"` keep the dense weights at the shards. They need `network.collective` "
        "`\"ps\"` or `\"auto\"`, which then means `\"ps\"`."),
    CHOICE("dispatch.view", dispatch.view, rt_view_kind, "\"auto\"", rt_choices_views,
           "The state of the caches on which a decision is based. It does not affect correctness: "
           "a copy is reused only if it has every update."),
    CHOICE("dispatch.first_touch", dispatch.first_touch, rt_first_touch, "\"local\"",
           rt_choices_first_touches, "Source of a row that was never trained."),
    BOOL("dispatch.full_sync", dispatch.full_sync, "false",
         "Push every trained row to the parameter server after every iteration, whether or not "
         "another worker needs it (Herald's vanilla)."),
    BOOL("dispatch.hand_over", dispatch.hand_over, "false",
         "Send a row directly from one worker to another if only the first has its latest version, "
         "only the second needs it, and this is cheaper by the known link rates (Herald, appendix "
         "B). Every worker then listens for the others (`network.worker_port`). This helps if the "
         "link of the parameter servers is narrower than the workers' links together. It needs "
         "`network.transport` `\"zmq\"`, `network.row_wire` `\"fp32\"` and `ps.homes` "
         "`\"hashed\"`, and excludes `consistency.staleness`."),
    BOOL("dispatch.reduce", dispatch.reduce, "false",
         "Let one of the workers that train a row, not the parameter servers, sum the gradients "
         "and keep the row, if this relieves the busiest link (REDUCE of Bagpipe). Gradients then "
         "go from worker to worker, as rows do with `dispatch.hand_over`; the two keys work "
         "together. This helps if the link of the parameter servers is narrow. It needs "
         "`network.transport` `\"zmq\"`, `network.row_wire` `\"fp32\"` and `ps.homes` "
         "`\"hashed\"`, and excludes `dispatch.full_sync` and `consistency.staleness`."),
    U32("dispatch.tables", dispatch.tables, "0", IN(0, RT_FIELDS_MAX), "tables",
        "Number of tables (fields) that are scored. The ones with the highest degree of "
        "infrequency are chosen (laia; Herald's scheduler). 0: all."),
    U32("dispatch.window", dispatch.window, "1", IN(1, 32), "batches",
        "Number of batches that are placed together, so that a row stays on the worker that trains "
        "it next (esd, makespan). Samples stay in their batches. This reads one batch fewer than "
        "the window ahead, and delays the training of a live stream by as many batches."),
    CHOICE("dispatch.micro_batches", dispatch.micro_batches, rt_micro_batch_kind, "\"free\"",
           rt_choices_micro_batches,
           "How the samples of a batch are divided (makespan). Other policies divide them "
           "equally."),
    U32("dispatch.micro_batch_min", dispatch.micro_batch_min, "0", IN(0, 1 << 20), "samples",
        "Fewest samples of a worker in an iteration, at most an equal share (makespan)."),
    U32("dispatch.micro_batch_max", dispatch.micro_batch_max, "0", IN(0, 1 << 20), "samples",
        "Most samples of a worker in an iteration, at least an equal share (makespan). 0: "
        "`micro_batches` decides."),
    U32("dispatch.search_evaluations", dispatch.search_evaluations, "8000", IN(0, UINT32_MAX), "",
        "Placements that the local search may evaluate in an iteration (makespan). Each takes "
        "about 0.1 microseconds for each key and 8 workers. Can be changed during a run."),
    {ROW("dispatch.budget_ms", RT_KEY_DOUBLE, "0", "ms",
         "Time that placing a batch may take. The planner adjusts `search_evaluations` (makespan) "
         "or `tables` (laia) to measured times. 0: no limit. `\"auto\"`: Herald's budget, which is "
         "the measured time of an iteration without embedding traffic, less the time of the rest "
         "of a plan. `sim`, and a run with `dispatch.measure_compute` false, measure nothing. Can "
         "be changed during a run."),
     IN(0, 1e6), .offset = OFFSET(dispatch.budget_ms, double), .word = "auto",
     .word_offset = OFFSET(dispatch.budget_auto, bool)},
    BOOL("dispatch.measure_compute", dispatch.measure_compute, "true",
         "In a run, predict with the computing times that workers report, not with "
         "`sim.compute_us_per_sample` (makespan, predicted times)."),

    WORD_OR_LIST(
        "consistency.staleness", rt_config_staleness, "\"auto\"", "iterations",
        "s of HET. A copy of a row may take this many updates of its own before it is pushed and "
        "pulled again, and may lag the row's clock by this many. `\"off\"`: every read has every "
        "update. 0: the same model, but no copy is used twice. `\"inf\"`: no limit. `\"auto\"`: "
        "100 for `dispatch.policy` `\"het\"`, otherwise `\"off\"`. Above 0 each worker updates its "
        "own copies, by sgd, adagrad or rowwise_adagrad."),

    LIST("links.workers", rt_config_links, links.workers, links.given_count, "[]",
         "Gbit/s (1e9 bits)",
         "The link of every worker, in order of rank: `5` is 5 Gbit/s both ways, and "
         "`{\"count\": 4, \"gbps\": 5}` means four of them. Empty: 1 Gbit/s each."),
    DOUBLE("links.ps_gbps", links.ps_gbps, "0", IN(0, 1e4), "Gbit/s",
           "The link of the parameter servers, each way. 0: no limit."),
    BOOL("links.pin", links.pin, "true",
         "Use the given links unchanged. False: `links.workers` is only the start. Every worker "
         "measures its link when it joins, and dispatch follows the measurements."),
    DOUBLE("links.probe_s", links.probe_s, "600", IN(0, 1e6), "s",
           "With `links.pin: false`: time after which a link is measured again if no transfer has "
           "shown its rate. Training waits meanwhile. A link that seems to have changed is "
           "measured after a tenth of this time. A measurement takes about one second; all "
           "measurements together take at most 1% of the time. 0: measure only when workers join."),

    U32("planner.threads", planner_threads, "0", IN(0, RT_THREADS_MAX), "threads",
        "Threads of the planner on the coordinator's box and in `sim`. Each box may have its own "
        "number. 0: half of the cores that the process may use, at most 4. Plans do not depend "
        "on it."),
    U32("ps.shards", ps_shard_count, "1", IN(1, RT_SHARDS_MAX), "",
        "Number of parameter server shards."),
    CHOICE("ps.homes", ps_homes, rt_homes, "\"hashed\"", rt_config_homes,
           "Which shard is a row's home. `planned` moves fewer rows if `boxes` places shards on "
           "the workers' boxes."),
    U64("ps.memory_bytes_max", ps_memory_bytes_max, "8589934592",
        IN(1048576, RT_CONFIG_INTEGER_MAX), "bytes",
        "Memory for the rows of one shard. Before it is full, the shard removes the rows that were "
        "trained longest ago (`rows.max`)."),

    CHOICE("ps.storage", ps_storage, rt_storage, "\"memory\"", rt_choices_storages,
           "Where the rows of a shard are."),
    TEXT("ps.folder", ps_folder,
         "With `ps.storage` \"disk\": a folder on a disk of the shard's box, not in memory. "
         "Empty: /var/tmp. The file has no name there, and disappears with the process."),
    U64("ps.disk_bytes_max", ps_disk_bytes_max, "68719476736", IN(1048576, RT_CONFIG_INTEGER_MAX),
        "bytes",
        "With `ps.storage` \"disk\": largest size of the file with the rows of one shard. "
        "`ps.memory_bytes_max` then limits the index of these rows, which takes about 30 to 60 "
        "bytes a row."),

    U32("rows.expire_iterations", rows.expire_iterations, "0", IN(0, 1e9), "iterations",
        "Iterations without training after which a row is removed from shards and caches. If its "
        "key comes again, it gets a new row. 0: never."),
    DOUBLE("rows.expire_s", rows.expire_s, "0", IN(0, 1e9), "s",
           "The same by time of this run. Time while the run is down does not count. 0: never."),
    U64("rows.max", rows.max, "0", IN(0, RT_CONFIG_INTEGER_MAX), "rows",
        "Largest number of rows on all shards together. Beyond it, the rows that were trained "
        "longest ago are removed until an eighth is free. 0: as many as `ps.memory_bytes_max` (and "
        "`ps.disk_bytes_max`) hold."),
    U32("rows.admit", rows.admit, "1", IN(1, 255), "look-ups",
        "Number of look-ups after which a key gets a row. Until then it counts as a row of zeros "
        "that is not trained, also in predictions. 1: a key gets a row at once; a prediction for a "
        "key without a row uses the initial row of training."),
    U64("rows.admit_bytes", rows.admit_bytes, "1048576", IN(4096, 1073741824), "bytes",
        "With `rows.admit`: memory for the counts. All counts are halved after every "
        "`rows.admit_bytes` / 8 new keys."),
    DOUBLE("rows.admit_share", rows.admit_share, "1", ABOVE(0, 1), "",
           "Replaces `rows.admit`. A key without a row gets one with this probability in each "
           "batch that has the key, on average after 1 / share batches. This needs no memory."),

    TEXT("journal.directory", journal_directory,
         "Folder of the journal. Empty: `journal` in the folder of `--out`."),
    U64("journal.bytes_max", journal_bytes_max, "4294967296", IN(1048576, RT_CONFIG_INTEGER_MAX),
        "bytes",
        "Size of the journal. A full journal accepts nothing, and senders are told to wait. At "
        "half of it a checkpoint is made, so that older segments can go."),
    DOUBLE("journal.keep_s", journal_keep_s, "0", IN(0, 1e10), "s",
           "Age above which events are removed once the newest checkpoint includes their training, "
           "even if an older checkpoint needs them. A checkpoint is made if necessary. 0: keep "
           "events as long as any checkpoint needs them."),
    TEXT_OR(
        "feed.listen", feed_listen, "127.0.0.1:7082",
        "`HOST:PORT` of `stream.source` feed on the coordinator's box. Addresses beyond loopback "
        "need keys (`security.key`)."),
    TEXT("feed.to", feed_to, "`HOST:PORT` of the coordinator's box, for `lanyard feed`."),

    TEXT("checkpoint.directory", checkpoint.directory,
         "Folder for checkpoints. Empty: `checkpoints` in the folder of `--out`. Shards on other "
         "machines use the same path there."),
    U32("checkpoint.every_iterations", checkpoint.every_iterations, "0", IN(0, 1e9), "iterations",
        "Iterations between checkpoints. 0: not by count."),
    DOUBLE("checkpoint.every_s", checkpoint.every_s, "0", IN(0, 1e7), "s",
           "Seconds between checkpoints. 0: not by time."),
    U32("checkpoint.full_every", checkpoint.full_every, "10", IN(1, 1000), "checkpoints",
        "Number of checkpoints in a chain: the first has all rows, each of the others the rows "
        "that changed since the one before. From 64 MiB of rows on, a full chain, or one whose "
        "changes have as many bytes as all rows, is merged while the run goes on. 1: all rows "
        "every time."),
    U32("checkpoint.keep", checkpoint.keep, "3", IN(1, 1000), "checkpoints",
        "Number of newest checkpoints to keep, with the ones that they build on. There are at most "
        "`checkpoint.keep` + `checkpoint.full_every` - 1 folders, beside the one being written and "
        "any completed during a merge."),
    DOUBLE("checkpoint.keep_s", checkpoint.keep_s, "0", IN(0, 1e10), "s",
           "Age above which checkpoints are removed when a new one is complete. The newest and the "
           "ones that it builds on stay. 0: never."),
    TEXT("checkpoint.after", checkpoint.after,
         "Shell command that runs for each complete checkpoint, with its folder as `$1`. Training "
         "goes on meanwhile, and one command runs at a time. Example: `rsync -a --ignore-existing "
         "\"$1\" backup:run1/`. Empty: none."),
    U32("checkpoint.copies", checkpoint.copies, "1", IN(0, 1), "copies",
        "1: a checkpoint is complete only when the coordinator's box has a copy of all shards' "
        "files. A shard that loses its files gets them back from it. The copy costs nothing if a "
        "shard is on the same box or uses the same folder. 0: the loss of one shard's disk makes "
        "all checkpoints useless."),
    BOOL("checkpoint.at_end", checkpoint.at_end, "false",
         "Make a checkpoint at the end of a run, so that another run can resume from it."),

    DOUBLE("publish.every_s", publish.every_s, "0", IN(0, 1e7), "s",
           "Seconds between published versions of the model, each made by a checkpoint. 0: never."),
    TEXT("publish.folder", publish.folder,
         "Folder for published models on the coordinator's box. Empty: `published` in the folder "
         "of `--out`."),
    U32("publish.keep", publish.keep, "5", IN(1, 1000), "versions",
        "Number of newest versions to keep for `lanyard rollback`, with the ones that they build "
        "on."),
    DOUBLE("publish.guard.log_loss", publish.guard_log_loss, "0.05", IN(0, 100), "",
           "Margin for log loss, as a share. A version is held back, with an alert, if two "
           "conditions hold: its log loss divided by the base rate's exceeds 1, or the last "
           "published version's ratio, by more than this; and on the same samples its log loss "
           "exceeds that of the version in force by more than this. 0: no limit."),
    DOUBLE("publish.guard.calibration", publish.guard_calibration, "0.25", IN(0, 100), "",
           "Margin for calibration (mean prediction / mean label), as a share. A version is also "
           "held back if its calibration is further from 1 than the last published version's by "
           "more than this. 0: no limit."),
    DOUBLE("publish.guard.hold_s", publish.guard_hold_s, "600", IN(0, 1e9), "s",
           "Time without a version that passes. After it, the newest version or the one in force, "
           "whichever is better, is put in force, with an alert."),
    TEXT("publish.address", publish.address,
         "HOST:PORT at which `lanyard serve --run` on other boxes fetches published models. "
         "Empty: none. Addresses beyond loopback need keys."),

    {TEXT_ROW("serve.address", serve.address, "127.0.0.1:8077",
              "HOST:PORT at which `lanyard serve` answers HTTP. Port 0: any free one. Addresses "
              "beyond loopback need `security.certificate` and `security.token`."),
     .min = 1},
    U32("serve.candidates_max", serve.candidates_max, "1024", IN(1, 65536), "candidates",
        "Largest number of candidates in a request, and in one scoring."),
    TEXT("serve.log", serve.log,
         "Folder of a spool for served questions. They become events of `stream.format` with an "
         "id, which go to `feed.to` and into the join of a run (`stream.join`). Empty: none."),
    TEXT("serve.hand_out", serve.hand_out,
         "HOST:PORT at which servers of other boxes (`lanyard serve --run`) fetch the model from "
         "this one, or single rows with `serve.rows` \"fetched\". This server must have all rows "
         "of a run's published versions. Empty: none. Addresses beyond loopback need keys."),
    CHOICE("serve.rows", serve.rows, rt_serve_rows, "\"local\"", rt_choices_serve_rows,
           "Where the rows of the model are."),
    U64("serve.cache_bytes_max", serve.cache_bytes_max, "268435456",
        IN(65536, RT_CONFIG_INTEGER_MAX), "bytes",
        "With `serve.rows` \"fetched\": memory for the rows that were used last."),
    U32("serve.fetch_ms", serve.fetch_ms, "200", IN(1, 60000), "ms",
        "With `serve.rows` \"fetched\": time after which a question whose rows have not arrived is "
        "refused (503)."),

    TEXT("watch.listen", watch.listen,
         "HOST:PORT at which the coordinator serves its page and metrics over HTTP "
         "(docs/WATCHING.md), for example `127.0.0.1:7070`. Port 0: any free one. Empty: none. "
         "Addresses beyond loopback need `security.certificate` and `security.token`."),
    U64("watch.window_samples", watch.window_samples, "100000", IN(100, 1e12), "samples",
        "Number of newest samples over which log loss, AUC and calibration are shown."),
    TEXT("watch.column", watch.column,
         "A categorical column. Quality is also shown for each of its most frequent values, over "
         "about `watch.window_samples` samples each. Empty: none."),

    TEXT("alerts.command", alerts.command,
         "Shell command (`/bin/sh`) on the coordinator's box for every alert, with a JSON object "
         "on its standard input (docs/WATCHING.md). Empty: none."),
    DOUBLE("alerts.no_progress_s", alerts.no_progress_s, "300", IN(0, 1e7), "s",
           "Seconds without a trained iteration, although there is input, after which an alert "
           "fires. 0: never."),
    CHOICE(
        "on_worker_loss", on_worker_loss, rt_on_loss, "\"stop\"", rt_choices_losses,
        "What `lanyard up` does when a process is lost. `shrink` also lets `lanyard coordinator "
        "--restart` go on without a missing worker, and lets a run go on when a worker that sits "
        "out is lost (`dispatch.participants`)."),
    U32("restarts_max", restarts_max, "20", IN(0, 1e6), "restarts",
        "Most restarts in an hour. A run that needs more ends."),

    TEXT("coordinator.standby", standby,
         "`HOST:PORT` at which `lanyard standby` on another box follows the coordinator, and "
         "leads the run after a promotion. Workers, shards and feeders look there, too. Empty: "
         "none."),
    CHOICE("coordinator.standby_away", standby_away, rt_standby_away, "\"wait\"",
           rt_choices_standby_away, "What the coordinator does while the standby does not answer."),

    CHOICE("network.transport", network_transport, rt_network_transport, "\"zmq\"",
           rt_choices_transports, "How messages travel."),
    TEXT("network.coordinator", network_coordinator,
         "`HOST:PORT` at which the coordinator listens and members find it. Empty: members are "
         "told by `--coordinator`."),
    LIST("network.ps", rt_config_shards, network_ps, network_ps_count, "[]", "",
         "`HOST:PORT` of every shard, in order. Empty: each shard listens on a free port and "
         "tells the coordinator."),
    TEXT("network.interface", network_interface,
         "Network interface (such as `eth0`) on whose address processes listen, if no other key "
         "gives the address."),
    TEXT("network.bind", network_bind,
         "Address on which processes listen. It overrides the keys above. It is a number "
         "(`10.0.0.5`, `::1`, `fe80::1%eth0`, in brackets or not), a name, or an interface. "
         "`0.0.0.0` and `::` mean all interfaces. Empty: the keys above decide; without them it is "
         "`127.0.0.1`."),
    U32("network.worker_port", network_worker_port, "0", IN(0, 65535), "",
        "With `dispatch.hand_over` or `dispatch.reduce`: worker r listens at this port + r. Its "
        "address is `network.bind` or `--bind`, otherwise the `host` of its box, otherwise the "
        "address of `network.interface`. 0: any free port."),
    CHOICE("network.collective", collective, rt_collective, "\"auto\"", rt_choices_collectives,
           "How the workers' dense gradients are summed. With keys (`security.key`) only `ps` is "
           "encrypted."),
    CHOICE("network.dense_wire", dense_wire, rt_coding, "\"fp32\"", rt_choices_dense_wires,
           "Number format of dense gradients and their sums in messages (ps)."),
    CHOICE("network.row_wire", row_wire, rt_coding, "\"fp32\"", rt_choices_row_wires,
           "Number format of row values, row changes and row gradients in messages. Workers and "
           "parameter servers compute in 32 bits. Initial rows, optimizer state and flushed rows "
           "always travel in 32 bits."),
    BOOL("guards.skip_bad_batches", guard_skip_bad_batches, "true",
         "Skip a batch if its loss is NaN or infinite on any worker: no row and no weight changes. "
         "Rows that another worker needs next wait until all workers have reported their loss. "
         "Without this guard they do not wait, and a bad batch spoils the model."),
    TEXT("security.key", security_key,
         "File with the secret key of this box (`lanyard keygen`). Empty: no keys, and only "
         "loopback addresses."),
    TEXT("security.allow", security_allow,
         "Public keys of the boxes that may join: a directory with a `.public` file for each, or "
         "one file with all their lines."),
    TEXT("security.server_key", security_server_key, "Public key file of the coordinator's box."),
    TEXT("security.standby_key", security_standby_key,
         "Public key file of the standby's box (`coordinator.standby`). Empty: "
         "`security.server_key`."),
    BOOL("security.insecure", security_insecure, "false",
         "Use addresses beyond loopback without keys. Anybody in the network can then read the "
         "data and change the model; every start warns of it."),
    TEXT("security.certificate", security_certificate,
         "Certificate for HTTP, a PEM file with its chain. Empty: no TLS, and only loopback "
         "addresses."),
    TEXT("security.certificate_key", security_certificate_key,
         "Key of the certificate, a PEM file that nobody else can read."),
    TEXT("security.token", security_token,
         "File with one word of at least 16 characters. Nobody else may be able to read the file. "
         "Every HTTP request must send the word (`Authorization: Bearer WORD`). Empty: no token, "
         "on loopback only."),
    TEXT("security.hosts", security_hosts,
         "`NAME,NAME:PORT,...`: hosts that HTTP requests may name, in addition to addresses, "
         "localhost and the names of this machine. Web pages of these hosts may send requests."),

    DOUBLE("timeouts.peer_s", timeout_peer_s, "5", ABOVE(0, 86400), "s",
           "Silence after which a peer counts as failed."),
    DOUBLE("timeouts.answer_s", timeout_answer_s, "1800", ABOVE(0, 1e6), "s",
           "Time after which a peer counts as failed although it is not silent, if everybody waits "
           "for its iteration, cut, probe or end. Choose a longer time than the slowest link needs "
           "for all rows of a cache."),
    DOUBLE("timeouts.start_s", timeout_start_s, "30", ABOVE(0, 86400), "s",
           "Time within which all processes must join."),
    DOUBLE("timeouts.rejoin_s", timeout_rejoin_s, "15", ABOVE(0, 86400), "s",
           "With `on_worker_loss` `shrink`: time that a restart waits for workers before it goes "
           "on without them. It then goes on for at least this time. `up` restarts a lost worker "
           "after this time."),

    U64("sim.iterations", sim_iterations, "0", IN(0, RT_CONFIG_INTEGER_MAX), "iterations",
        "Iterations to simulate. 0: until the input ends."),
    U32("sim.warmup", sim_warmup, "10", IN(0, 1e9), "iterations",
        "Iterations at the start that are not counted."),
    BOOL("sim.dense", sim_dense, "true",
         "Include the exchange of the dense weights in the predicted time."),
    BOOL("sim.dispatch_error", sim_dispatch_error, "false",
         "Also solve every batch exactly, and report the loss of greedy placements (esd)."),
    DOUBLE("sim.compute_us_per_sample", compute_us_per_sample, "0", IN(0, 1e9), "us",
           "Computing time of a sample on a worker. 0: unknown, left out."),
    {0},
};

static const struct {
    const char *section, *help;
} section_help[] = {
    {"metrics", "Measurements that a run keeps (docs/METRICS.md), 1 to 2 KB an iteration."},
    {"compute", "How workers use the processor or GPU."},
    {"stream", "The input."},
    {"stream.http", "For `stream.source` http."},
    {"stream.tcp", "For `stream.source` tcp."},
    {"stream.mqtt", "For `stream.source` mqtt."},
    {"stream.kafka", "For `stream.source` kafka."},
    {"journal", "Acknowledged events, kept until a checkpoint includes their training; for\n"
                "`stream.source` http, tcp, feed, mqtt, and the spool of `lanyard feed`. Outcomes\n"
                "have a journal of the same size in its subfolder `outcomes`."},
    {"feed", "Events from other boxes (`lanyard feed`)."},
    {"stream.table", "Delimited text with one sample per line; for `stream.format` table."},
    {"stream.libsvm", "Lines of `label index:value ...`; for `stream.format` libsvm."},
    {"stream.join", "Labels that come later than their events, in a second input\n"
                    "(docs/FORMATS.md)."},
    {"stream.synthetic", "Generated samples; for `stream.format` synthetic."},
    {"optimizer", "For embedding rows and for the dense weights. A stateful row optimizer "
                  "makes rows\n"
                  "larger on the wire: the state travels with a row."},
    {"cache", "The embedding rows that every worker keeps."},
    {"dispatch", "The assignment of samples to workers."},
    {"links", "Link rates, by which dispatch weighs transfers."},
    {"ps", "The parameter servers."},
    {"guards", "Protection from batches that would spoil the model."},
    {"coordinator", "A second box that can replace the coordinator (docs/OPERATIONS.md)."},
    {"network",
     "Where processes listen and find each other. `lanyard up` needs none of these keys."},
    {"security", "Keys for runs on several boxes; see docs/SECURITY.md."},
    {"checkpoint", "Files from which a run can resume (`lanyard up CONFIG --resume`). SIGUSR1 to\n"
                   "the coordinator, or to `lanyard up`, makes a checkpoint at any time."},
    {"publish", "The model of a run that trains, for `lanyard serve` (docs/SERVING.md)."},
    {"publish.guard", "Limits above which a worse model is not published."},
    {"serve", "For `lanyard serve` only (docs/SERVING.md)."},
    {"watch", "Ways to watch a run (docs/WATCHING.md)."},
    {"alerts", "When to alert somebody, and how."},
    {"sim", "For `lanyard sim` only."},
};

const rt_config_key *rt_config_find(const char *path)
{
    for (const rt_config_key *key = rt_config_keys; key->path; key++) {
        if (strcmp(key->path, path) == 0)
            return key;
    }
    return NULL;
}

bool rt_config_is_section(const char *path)
{
    size_t length = strlen(path);
    for (const rt_config_key *key = rt_config_keys; key->path; key++) {
        if (strncmp(key->path, path, length) == 0 && key->path[length] == '.')
            return true;
    }
    return false;
}

const char *rt_config_section_help(const char *section)
{
    for (size_t i = 0; i < RT_COUNT_OF(section_help); i++) {
        if (strcmp(section_help[i].section, section) == 0)
            return section_help[i].help;
    }
    return NULL;
}
