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
        FLOAT(section ".initial_accumulator", member.initial_accumulator, "0", IN(0, 1e6),         \
              "Sum of squared gradients at the start (adagrad, rowwise_adagrad, ftrl)."),          \
        FLOAT(section ".l2", member.l2, "0", IN(0, 1e6),                                           \
              "L2 penalty: so much times the weight is added to its gradient; of a row, in the "   \
              "iterations that train it. Of ftrl: lambda_2."),                                     \
        FLOAT(section ".clip_norm", member.clip_norm, "0", IN(0, 1e6),                             \
              "Summed gradients with a larger norm are scaled down to it, before the L2 "          \
              "penalty: of each row by itself, of all dense weights together; 0: off."),           \
        U32(section ".warmup_iterations", member.warmup_iterations, "0", IN(0, 1e9), "iterations", \
            "The learning rate grows linearly from the start (not ftrl)."),                        \
        CHOICE(section ".decay", member.decay, rt_decay_kind, "\"none\"", rt_choices_decays,       \
               "How the learning rate falls after the warm-up (not ftrl, whose own falls)."),      \
        U32(section ".decay_iterations", member.decay_iterations, "10000", IN(1, 1e9),             \
            "iterations", "Length of the decay, which leaves a hundredth of the rate.")

const rt_config_key rt_config_keys[] = {
    CHOICE("log.level", log_level, rt_log_level, "\"info\"", rt_choices_log_levels,
           "Volume of the log on standard error."),
    U64("metrics.bytes_max", metrics_bytes_max, "4000000000", IN(0, RT_CONFIG_INTEGER_MAX), "bytes",
        "When `metrics.jsonl` has half of it, it becomes `metrics.jsonl.1`, in place of the one "
        "before, and a new one begins: the newest records stay. 0: all of them."),
    U64("seed", seed, "1", IN(0, RT_CONFIG_INTEGER_MAX), "",
        "Everything random follows from it: initial rows and weights, ties, generated data."),
    {TEXT_ROW(
         "device", device, "auto",
         "Where workers compute: `cpu`, `cuda:0` (a GPU by its number), `cuda` (worker r on GPU r "
         "modulo their number on its machine), or `auto`: as `cuda` if this build and machine have "
         "one, else the CPU."),
     .min = 1},
    U32("compute.threads", compute.threads, "0", IN(0, RT_THREADS_MAX), "threads",
        "Of a worker that computes on the CPU; every box may have its own number. 0: the cores "
        "that the process may use, shared by the workers of the box (`lanyard up` and mpirun know "
        "how many there are; otherwise `lanyard worker --share N`). The model does not depend on "
        "it."),
    U32("compute.nice", compute.nice, "0", IN(0, 19), "",
        "Priority that a worker gives up, as nice(1) has it; every box may have its own number. On "
        "a box that also answers (`lanyard serve`) 10 lets answers go first: training takes what "
        "they leave."),
    BOOL("compute.idle", compute.idle, "false",
         "All processes of the run on this box, not only workers, run when nobody else wants the "
         "core, and leave it at once to whoever does (SCHED_IDLE); every box may have its own. For "
         "a box that also answers (`lanyard serve`): with `compute.nice` an answer may wait until "
         "a slice of training is over, some milliseconds."),
    BOOL("compute.tf32", compute.tf32, "false",
         "On a GPU matrix products round their factors to 10 bits of mantissa (TF32), which is "
         "several times faster; sums stay 32 bits. The model is a slightly different one."),
    LIST("boxes", rt_config_boxes, boxes, box_count, "[]", "",
         "The machines of a site: `workers`, `links.workers`, `links.ps_gbps`, `ps.shards` and "
         "`network.ps` follow from them, box by box, and may not say anything else. What a worker "
         "and a shard of one box exchange takes no link; a box's link carries what its workers "
         "exchange with others and what others want of its shards."),
    U32("workers", worker_count, "1", IN(1, RT_WORKERS_MAX), "",
        "Number of workers. Where it is not said: those of `boxes`, as many as `links.workers` has "
        "links, or one."),
    U32("batch.samples", batch_samples, "256", IN(1, 4194304), "samples",
        "N: a batch of all workers together, however many there are. The first ones are smaller: a "
        "batch has a 64th of the samples that came before it, at least 8, at most N."),
    U32("batch.samples_per_worker", samples_per_worker, "0", IN(0, 65536), "samples",
        "m: instead of `batch.samples`, every batch from the first on has m x `workers` samples, as "
        "in papers. 0: `batch.samples` counts."),
    U32("batch.wait_ms", batch_wait_ms, "60000", IN(0, 86400000), "ms",
        "A batch that a pipe or standard input does not fill is trained as it is, so long after "
        "its first sample was read. 0: it waits until it is full."),

    CHOICE("stream.format", stream.format, rt_format, "\"criteo\"", rt_choices_formats,
           "What the input looks like."),
    CHOICE("stream.source", stream.source, rt_source_kind, "\"file\"", rt_choices_sources,
           "Where it comes from (docs/STREAMS.md). What is sent is kept in a journal before its "
           "sender is told so, and trained once."),
    TEXT("stream.id", stream.id,
         "What names an event: one whose name came before is dropped. table: name or number of a "
         "column; json: a path; criteo: I1 to C26, a number, or 41: a column behind the others; "
         "libsvm: `#`, the comment. Empty: events have no names."),
    U32("stream.id_window", stream.id_window, "1000000", IN(1, 100000000), "events",
        "So many events are remembered by their names: 8 bytes each in every checkpoint, 24 in "
        "memory."),
    BOOL("stream.take_anything", stream.take_anything, "false",
         "What is sent by http, tcp and mqtt is stored as it comes; what cannot be read is counted "
         "as malformed when its turn comes. False: it is read before it is stored, and refused, "
         "with the reason, where that fails."),
    TEXT_OR("stream.http.listen", stream.http_listen, "127.0.0.1:7080",
            "`HOST:PORT` of `stream.source` http; beyond loopback with `security.certificate` and "
            "`security.token`."),
    TEXT_OR("stream.tcp.listen", stream.tcp_listen, "127.0.0.1:7081",
            "`HOST:PORT` of `stream.source` tcp; beyond loopback with `security.insecure` only."),
    TEXT_OR("stream.mqtt.broker", stream.mqtt_broker, "127.0.0.1:1883", "`HOST:PORT`."),
    TEXT_OR("stream.mqtt.topic", stream.mqtt_topic, "lanyard/events",
            "Subscribed to with QoS 1; may hold wildcards. A message is one event or several, in "
            "lines."),
    TEXT_OR("stream.mqtt.client", stream.mqtt_client, "lanyard",
            "Name of the session that the broker keeps; another one for every run."),
    TEXT("stream.mqtt.user", stream.mqtt_user, "Empty: without a name."),
    TEXT("stream.mqtt.password", stream.mqtt_password,
         "File with the password, one word, that nobody else can read."),
    TEXT("stream.mqtt.ca", stream.mqtt_ca,
         "Certificate authority of the broker, a PEM file: TLS. Empty: in the clear, on loopback, "
         "or with `security.insecure`."),
    TEXT_OR("stream.kafka.brokers", stream.kafka_brokers, "127.0.0.1:9092",
            "`HOST:PORT,...` of some of them."),
    TEXT_OR("stream.kafka.topic", stream.kafka_topic, "events", "All its partitions are read."),
    TEXT("stream.kafka.options", stream.kafka_options,
         "`name=value,...` for librdkafka: `security.protocol=ssl,ssl.ca.location=ca.pem`. The "
         "consumer group is `lanyard`, unless `group.id` names one."),
    TEXT("stream.kafka.password", stream.kafka_password,
         "File with the password (`sasl.password`), one word, that nobody else can read."),
    LIST("stream.files", rt_config_files, stream.files, stream.file_count, "[]", "",
         "Read in this order; `-` is standard input, `.zst` is unpacked on the way. Paths are "
         "relative to the directory that the program runs in. A FIFO stands last: it has no end."),
    BOOL(
        "stream.fifo_ends", stream.fifo_ends, "false",
        "The input from a FIFO ends when its last writer closes it. Otherwise it is held open, for "
        "the next writer: the run ends when it is told to, or with `stream.samples_max`."),
    U64("stream.samples_max", stream.samples_max, "0", IN(0, RT_CONFIG_INTEGER_MAX), "samples",
        "Stop after so many; 0: at the end of the input."),
    DOUBLE("stream.malformed_share_max", stream.malformed_share_max, "0.01", IN(0, 1), "",
           "The input ends in an error when more than this share of the last 5,000 to 10,000 lines "
           "cannot be parsed (judged from 1,000 lines on); what came before is trained and saved."),
    CHOICE("stream.dense_scaling", stream.dense_scaling, rt_dense_scaling, "\"standard\"",
           rt_choices_dense_scalings,
           "How dense features are scaled; the numbers are part of the model."),
    LIST(
        "stream.tables", rt_config_shared, stream.shared, stream.shared_count, "[]", "",
        "Fields that share rows, by their names: `history=item` gives history the rows of item, so "
        "that a value is the same row in both (docs/FORMATS.md). Every other field has rows of its "
        "own."),
    U32("stream.epochs", stream.epochs, "1", IN(1, RT_FILES_MAX), "",
        "How often the files are read, one after the other. What metrics say of later epochs is of "
        "samples that were trained before: `stream.holdout` judges."),
    DOUBLE("stream.holdout", stream.holdout, "0", IN(0, 0.9), "",
           "This share of the samples of files is not trained, chosen by a hash of the line and of "
           "`seed`. `lanyard up --out` judges the model by them at its end, `lanyard eval RUN` "
           "later."),
    DOUBLE("stream.negatives_keep", stream.negatives_keep, "1", ABOVE(0, 1), "",
           "w: of the samples with label 0 only this share is trained, chosen by a hash of `seed` "
           "and of the sample's id, or number. Predictions p become p / (p + (1 - p) / w), in the "
           "metrics and wherever the model is asked."),
    CHARACTER("stream.table.delimiter", stream.table.delimiter, ",", NULL,
              "Between the cells of a line."),
    CHOICE("stream.table.quotes", stream.table.quotes, rt_quotes, "\"auto\"",
           rt_choices_quote_rules, "What a quote at the beginning of a cell means."),
    BOOL("stream.table.header", stream.table.has_header, "false",
         "The first line of every file holds names: a cell belongs to the column of its name, in "
         "whatever order; other cells are not read. Every column but ignored ones needs a name "
         "then."),
    LIST("stream.table.columns", rt_config_columns, stream.table.columns, stream.table.column_count,
         "[]", "",
         "Every cell of a line, from the left. One is the label, or up to 8 are. Categorical and "
         "multi columns become fields in this order. In objects (json): the members that are "
         "read."),
    DOUBLE("stream.libsvm.label_at_least", stream.libsvm.label_at_least, "1", IN(-1e300, 1e300), "",
           "The label is 1 from this number on, else 0."),
    U64("stream.libsvm.index_first", stream.libsvm.index_first, "1", IN(0, 1), "",
        "The smallest index of a file."),
    U32("stream.libsvm.dense", stream.libsvm.dense_count, "0", IN(0, 65536), "",
        "So many indices, from the smallest on, are dense features; one that a line lacks is 0. "
        "The others are ids: value 1 says that the id is there, 0 that it is not; another one is "
        "malformed."),
    LIST("stream.libsvm.fields", rt_config_libsvm_fields, stream.libsvm.fields,
         stream.libsvm.field_count, "[]", "",
         "First index of every field; its ids go up to the next. Empty: all ids are one field."),
    U32("stream.libsvm.values_max", stream.libsvm.values_max, "32", IN(1, 1024), "ids",
        "Further ids of a field and line are dropped."),
    CHOICE("stream.join.source", stream.join.source, rt_source_kind, "\"file\"", rt_choices_sources,
           "Where outcomes come from. file without `stream.join.outcomes`: samples have their "
           "labels with them, and this section is not looked at. http: `POST /outcomes` to "
           "`stream.http.listen`; mqtt and kafka: `stream.join.topic` of the same brokers; feed: "
           "feeders that have a `stream.join` themselves."),
    LIST("stream.join.outcomes", rt_config_files, stream.join.files, stream.join.file_count, "[]",
         "", "As `stream.files`, of `stream.join.source` file and follow."),
    TEXT_OR("stream.join.listen", stream.join.listen, "127.0.0.1:7083",
            "As `stream.tcp.listen`, of `stream.join.source` tcp."),
    TEXT_OR("stream.join.topic", stream.join.topic, "outcomes",
            "Of `stream.join.source` mqtt and kafka. The session at an MQTT broker is that of "
            "`stream.mqtt.client` with `-outcomes` behind it."),
    CHOICE("stream.join.format", stream.join.format, rt_format, "\"table\"",
           rt_choices_outcome_formats, "What lines of outcomes look like."),
    CHARACTER("stream.join.delimiter", stream.join.table.delimiter, ",", NULL,
              "As `stream.table.delimiter`."),
    BOOL("stream.join.header", stream.join.table.has_header, "false", "As `stream.table.header`."),
    LIST("stream.join.columns", rt_config_columns, stream.join.table.columns,
         stream.join.table.column_count, "[]", "",
         "As `stream.table.columns`; of kinds id (one), time, label and ignore. Without a label "
         "every outcome has label 1."),
    DOUBLE("stream.join.window_s", stream.join.window_s, "3600", IN(0, 1e9), "s",
           "An event waits so long for its outcome, by the times of events and outcomes."),
    CHOICE("stream.join.unanswered", stream.join.unanswered, rt_join_unanswered, "\"negative\"",
           rt_choices_unanswered_events, "What an event is that has waited in vain."),
    CHOICE("stream.join.late", stream.join.late, rt_join_late, "\"drop\"", rt_choices_late_outcomes,
           "What an outcome with label 1 does that comes when its event was trained with 0."),
    DOUBLE("stream.join.late_s", stream.join.late_s, "86400", IN(0, 1e9), "s",
           "So long after its window an event is kept for late outcomes (late train)."),
    DOUBLE("stream.join.resend_s", stream.join.resend_s, "60", IN(0, 1e9), "s",
           "Of outcomes that are sent (http, tcp, feed, mqtt): when a run goes on no window ends "
           "for so long, so that those come first which nobody took while it was down."),
    U32("stream.join.events_max", stream.join.events_max, "100000", IN(1, 100000000), "events",
        "That wait or are kept at once, and outcomes that wait for their events. When there are "
        "more the oldest ones go as if their time were over, and are counted."),
    CHOICE("stream.join.at_end", stream.join.at_end, rt_join_at_end, "\"train\"",
           rt_choices_join_ends, "What becomes of waiting events when both inputs have ended."),
    CHOICE("stream.synthetic.shape", stream.synthetic_shape, rt_synthetic_shape, "\"criteo\"",
           rt_choices_synthetic_shapes, "Fields and the sizes of their id spaces."),
    DOUBLE("stream.synthetic.scale", stream.synthetic_scale, "0.05", ABOVE(0, 1), "",
           "Share of every id space that is used."),
    DOUBLE("stream.synthetic.zipf", stream.synthetic_zipf, "1.05", IN(0, 4), "",
           "Exponent of the popularity: 0 is uniform."),
    U32("stream.synthetic.clusters", stream.synthetic_clusters, "32", IN(0, 65536), "",
        "Interests of users, which tie the fields of a sample together; 0: none."),
    U32("stream.synthetic.labels", stream.synthetic_labels, "1", IN(1, RT_LABELS_MAX), "",
        "Labels of a sample, each with effects of its own; every one after the first is 1 half as "
        "often as the one before."),
    DOUBLE("stream.synthetic.drift", stream.synthetic_drift, "0", IN(0, 1), "",
           "Share of the popularity ranks that are replaced in a million samples."),
    U64("stream.synthetic.first", stream.synthetic_first, "0", IN(0, RT_CONFIG_INTEGER_MAX),
        "samples",
        "The stream begins so many samples later: for a model that begins anew after some drift."),

    CHOICE("model.name", model.kind, rt_model_kind, "\"wdl\"", rt_choices_models, "The model."),
    LIST("model.embedding_dim", rt_config_dims, model.embedding_dims, model.embedding_dim_count,
         "16", "floats",
         "Length of an embedding row. A list has one for every field, in order; only `sim` can do "
         "with different ones."),
    CHOICE("model.deep_input", model.deep_input, rt_deep_input, "\"all\"", rt_choices_deep_inputs,
           "What the MLP sees."),
    CHOICE("model.pooling", model.pooling, rt_pooling, "\"sum\"", rt_choices_poolings,
           "How several rows of one field become one."),
    LIST("model.mlp", rt_config_mlp, model.mlp, model.mlp_layer_count, "[256, 256, 256]", "",
         "Widths of the hidden layers."),
    LIST("model.mlp_bottom", rt_config_mlp_bottom, model.mlp_bottom, model.mlp_bottom_layer_count,
         "[]", "",
         "Widths of the hidden layers under the interactions (dlrm); a last one of embedding_dim "
         "follows."),
    CHOICE("model.cross", model.cross, rt_cross, "\"vector\"", rt_choices_crosses,
           "Weights of a cross layer (dcn)."),
    U32("model.cross_layers", model.cross_layer_count, "3", IN(1, RT_CROSS_LAYERS_MAX), "",
        "Cross layers (dcn)."),
    TEXT("model.sequence", model.sequence,
         "The field of several values whose rows attention weighs (din)."),
    TEXT("model.target", model.target,
         "The field that every row of the sequence is weighed against (din)."),
    LIST("model.attention", rt_config_mlp, model.attention, model.attention_layer_count, "[36]", "",
         "Widths of the hidden layers of the unit that weighs (din)."),
    U32("model.fan_out", model.fan_out, "10", IN(1, RT_FAN_OUT_MAX), "",
        "Neighbours of a sample's node: the fields are the node, so many neighbours, and, in as "
        "many fields of several values, the neighbours of each of these (graphsage)."),
    DOUBLE("model.init_scale", model.init_scale, "0.01", IN(0, 10), "",
           "Standard deviation of initial row values."),
    {ROW("model.base_rate", RT_KEY_DOUBLE, "\"auto\"", "",
         "Share of label 1 that training starts from, as the output's bias. `\"auto\"`: the bias "
         "follows the share so far until labels of both classes have come; nothing is trained "
         "before that (docs/MODELS.md)."),
     IN(1e-6, 1 - 1e-6), .offset = OFFSET(model.base_rate, double), .word = "auto",
     .word_offset = OFFSET(model.base_rate_auto, bool)},

    OPTIMIZER_KEYS("optimizer.rows", optimizer_rows, rt_choices_row_optimizers, "0.03"),
    FLOAT("optimizer.rows.l1", optimizer_rows.l1, "0", IN(0, 1e6),
          "L1 penalty (ftrl): weights that matter little become 0."),
    OPTIMIZER_KEYS("optimizer.dense", optimizer_dense, rt_choices_dense_optimizers, "0.005"),

    U64("cache.rows", cache.rows, "0", IN(0, RT_CACHE_ROWS_MAX), "rows",
        "Rows that each worker can hold; 0: by `cache.ratio`."),
    DOUBLE("cache.ratio", cache.ratio, "0.08", ABOVE(0, 1), "",
           "Rows per worker as a share of the distinct keys of the input, and at least what a "
           "worker's batch may need. Where these keys cannot be "
           "counted (pipes, standard input, generated samples without end) and "
           "`cache.distinct_keys` is 0: as many rows as take 64 MiB, and at least twice that."),
    U64("cache.distinct_keys", cache.distinct_keys, "0", IN(0, RT_CONFIG_INTEGER_MAX), "keys",
        "Distinct keys of the input, for `cache.ratio`; 0: the input is read once to count them."),
    CHOICE("cache.eviction", cache.eviction, rt_eviction_kind, "\"emark\"", rt_choices_evictions,
           "Which row makes room."),
    U32("cache.lookahead", cache.lookahead, "0", IN(0, 32), "batches",
        "So many batches are read ahead of the one that is planned; a row that they need makes "
        "room last. A live stream is trained so many batches later."),

    CHOICE("dispatch.policy", dispatch.policy, rt_policy_kind, "\"esd\"", rt_choices_policies,
           "Which worker trains a sample."),
    {ROW("dispatch.alpha", RT_KEY_DOUBLE, "1", "",
         "Share of the samples that are placed exactly, the others greedily (esd). `\"auto\"`: the "
         "largest whose decision takes at most half of an iteration. Can be changed while a run "
         "goes on."),
     IN(0, 1), .offset = OFFSET(dispatch.alpha, double), .word = "auto",
     .word_offset = OFFSET(dispatch.alpha_auto, bool)},
    CHOICE("dispatch.hybrid", dispatch.hybrid, rt_hybrid_kind, "\"refine\"", rt_choices_hybrids,
           "Which samples are placed exactly (esd, `dispatch.alpha` below 1)."),
    CHOICE("dispatch.solver", dispatch.solver, rt_solver_kind, "\"transport\"", rt_choices_solvers,
           "How they are placed (esd). One that this build or machine lacks falls back to "
           "`transport`."),
    WORD_OR_LIST(
        "dispatch.participants", rt_config_participants, "\"all\"", "",
        "Which workers train, by rank. `\"auto\"`: the set whose iterations are predicted "
        "shortest, found by planning the last batches on sets of workers; a box whose part of the "
        "dense exchange takes longer than the others need sits out. It has no samples, serves "
        "what others need of its cache, and fetches the dense weights from the shards when it "
        "comes back. No set is too small for its caches. `\"all\"` is the default because it is "
        "what was before: the other values keep the dense weights at the shards, too, and "
        "`\"auto\"` plans some iterations again, half of one beside each; but where links or "
        "boxes differ much `\"auto\"` is the one to take. `\"rotate\"`: other workers every 3 "
        "iterations, to try what a run withstands. Needs `network.collective` `\"ps\"` or "
        "`\"auto\"`, which is `ps` then."),
    CHOICE("dispatch.view", dispatch.view, rt_view_kind, "\"auto\"", rt_choices_views,
           "Which caches a decision sees. What moves does not depend on it: a copy is used again "
           "only if it has every update."),
    CHOICE("dispatch.first_touch", dispatch.first_touch, rt_first_touch, "\"local\"",
           rt_choices_first_touches, "Where a row comes from that was never trained."),
    BOOL("dispatch.full_sync", dispatch.full_sync, "false",
         "Push every trained row to the parameter server after every iteration, needed elsewhere "
         "or not (what Herald calls vanilla)."),
    BOOL("dispatch.hand_over", dispatch.hand_over, "false",
         "A row that one worker alone has and another one alone needs goes from worker to worker, "
         "where that is cheaper by the link table (Herald, appendix B). Every worker listens for "
         "the others then (`network.worker_port`). Pays where the link of the parameter servers is "
         "narrower than those of the workers together. Needs `network.transport` `\"zmq\"`, "
         "`network.row_wire` `\"fp32\"`, `ps.homes` `\"hashed\"`; not with "
         "`consistency.staleness`."),
    BOOL("dispatch.reduce", dispatch.reduce, "false",
         "One of the workers that train a row may sum their gradients, instead of the parameter "
         "servers, and keeps the row, where that leaves the busiest link less to do (REDUCE of "
         "Bagpipe). Gradients go from worker to worker, as rows do with `dispatch.hand_over`, with "
         "which it is best combined. Pays where the link of the parameter servers is narrow. Needs "
         "`network.transport` `\"zmq\"`, `network.row_wire` `\"fp32\"`, `ps.homes` "
         "`\"hashed\"`; not with `dispatch.full_sync`, `consistency.staleness`."),
    U32("dispatch.tables", dispatch.tables, "0", IN(0, RT_FIELDS_MAX), "tables",
        "Score so many tables (fields), those with the highest degree of infrequency (laia); 0: "
        "all. Herald's scheduler."),
    U32("dispatch.window", dispatch.window, "1", IN(1, 32), "batches",
        "A batch is placed together with those that follow it, so many in all: a row had better be "
        "where it is trained next (esd, makespan). Samples stay in their batches; so many less one "
        "are read ahead, and a live stream is trained so much later."),
    CHOICE("dispatch.micro_batches", dispatch.micro_batches, rt_micro_batch_kind, "\"free\"",
           rt_choices_micro_batches,
           "How samples are shared out (makespan; the other policies: equally)."),
    U32("dispatch.micro_batch_min", dispatch.micro_batch_min, "0", IN(0, 1 << 20), "samples",
        "The fewest samples of a worker and iteration, at most an equal share (makespan)."),
    U32("dispatch.micro_batch_max", dispatch.micro_batch_max, "0", IN(0, 1 << 20), "samples",
        "The most samples of a worker and iteration, at least an equal share (makespan); 0: as "
        "`micro_batches` says."),
    U32("dispatch.search_evaluations", dispatch.search_evaluations, "8000", IN(0, UINT32_MAX), "",
        "Placements that the local search may judge per iteration (makespan); each takes about "
        "0.1 microseconds per key and 8 workers. Can be changed while a run goes on."),
    DOUBLE(
        "dispatch.budget_ms", dispatch.budget_ms, "0", IN(0, 1e6), "ms",
        "Time that placing a batch may take: `search_evaluations` (makespan) or `tables` (laia) "
        "follow from the time that they are measured to take; 0: off. Herald's budget is the time "
        "of an iteration without embedding traffic, less the time of a plan. Can be changed while "
        "a run goes on."),
    BOOL("dispatch.measure_compute", dispatch.measure_compute, "true",
         "Computing times that workers report replace `sim.compute_us_per_sample` in a run "
         "(makespan, predicted times)."),

    WORD_OR_LIST(
        "consistency.staleness", rt_config_staleness, "\"off\"", "iterations",
        "How many updates of its own a copy of a row may take before it is pushed and pulled anew, "
        "and how many it may lack behind the row's clock (HET, s). `\"off\"`: none, every read has "
        "every update; 0: the same model, but no copy is used twice; `\"inf\"`: any. Above 0 rows "
        "are stepped where they are trained, by sgd, adagrad or rowwise_adagrad."),

    LIST("links.workers", rt_config_links, links.workers, links.given_count, "[]",
         "Gbit/s (1e9 bits)",
         "The link of every worker, in order of rank: `5` is 5 Gbit/s both ways, and "
         "`{\"count\": 4, \"gbps\": 5}` stands for four of them. Empty: 1 Gbit/s each."),
    DOUBLE("links.ps_gbps", links.ps_gbps, "0", IN(0, 1e4), "Gbit/s",
           "The link of the parameter servers, each way; 0: no limit."),
    BOOL("links.pin", links.pin, "true",
         "Links are taken as given. Otherwise `links.workers` is where a run starts: every worker "
         "measures its link when it joins, and dispatch follows."),
    DOUBLE(
        "links.probe_s", links.probe_s, "600", IN(0, 1e6), "s",
        "With `links.pin: false`: a link of which transfers told nothing for so long is measured "
        "again while training waits, one that they say has changed after a tenth of that; about "
        "one second each, at most 1% of the time. 0: only when workers join."),

    U32("planner.threads", planner_threads, "0", IN(0, RT_THREADS_MAX), "threads",
        "That plan on the coordinator's box, and in `sim`; each box may have its own number. 0: "
        "half of the cores that the process may use, at most 4. The plans do not depend on it."),
    U32("ps.shards", ps_shard_count, "1", IN(1, RT_SHARDS_MAX), "", "Parameter server shards."),
    CHOICE("ps.homes", ps_homes, rt_homes, "\"hashed\"", rt_config_homes,
           "Which shard a row is on. With `boxes`, and shards on boxes of workers, `planned` "
           "moves fewer."),
    U64("ps.memory_bytes_max", ps_memory_bytes_max, "8589934592",
        IN(1048576, RT_CONFIG_INTEGER_MAX), "bytes",
        "For the rows of one shard. Before it is reached, the rows that were trained longest ago "
        "end (`rows.max`)."),

    CHOICE("ps.storage", ps_storage, rt_storage, "\"memory\"", rt_choices_storages,
           "Where the rows of a shard are."),
    TEXT("ps.folder", ps_folder,
         "`ps.storage` \"disk\": a folder on a disk of the shard's box, not one in memory; empty: "
         "/var/tmp. The file has no name there, and ends with the process."),
    U64("ps.disk_bytes_max", ps_disk_bytes_max, "68719476736", IN(1048576, RT_CONFIG_INTEGER_MAX),
        "bytes",
        "`ps.storage` \"disk\": for the rows of one shard; `ps.memory_bytes_max` bounds what finds "
        "them, about 30 to 60 bytes a row."),

    U32("rows.expire_iterations", rows.expire_iterations, "0", IN(0, 1e9), "iterations",
        "A row that no iteration has trained for so long ends: shards and caches forget it, and it "
        "starts anew if its key comes back. 0: not by count."),
    DOUBLE("rows.expire_s", rows.expire_s, "0", IN(0, 1e9), "s",
           "The same by time, of this run; time while it was not running does not count. 0: not by "
           "time."),
    U64("rows.keep_min", rows.keep_min, "0", IN(0, RT_CONFIG_INTEGER_MAX), "rows",
        "So many rows, the ones trained last, stay whatever their age."),
    U64("rows.max", rows.max, "0", IN(0, RT_CONFIG_INTEGER_MAX), "rows",
        "When all shards together have more, the rows that were trained longest ago end, until an "
        "eighth is free. 0: as many as `ps.memory_bytes_max` (and `ps.disk_bytes_max`) hold."),
    U32("rows.admit", rows.admit, "1", IN(1, 255), "look-ups",
        "A key gets a row once it was seen so often. Until then, and in predictions as long as the "
        "model has no row for it, it counts as a row of zeros that nobody trains. 1: at once; "
        "predictions then take the row that training would start from."),
    U64("rows.admit_bytes", rows.admit_bytes, "1048576", IN(4096, 1073741824), "bytes",
        "With `rows.admit`: of the counts. They are halved whenever an eighth as many keys were "
        "counted for the first time."),
    DOUBLE(
        "rows.admit_share", rows.admit_share, "1", ABOVE(0, 1), "",
        "In place of `rows.admit`: in every batch in which a key without a row comes, it gets one "
        "with this probability, after 1 / share such batches on average. Needs no memory."),

    TEXT("journal.directory", journal_directory,
         "Folder of the journal; empty: `journal` in the folder of `--out`."),
    U64("journal.bytes_max", journal_bytes_max, "4294967296", IN(1048576, RT_CONFIG_INTEGER_MAX),
        "bytes",
        "Of the journal. When it is full nothing more is taken: who sends is told to wait. When "
        "half of it is in use a checkpoint is made, so that what it covers can go."),
    DOUBLE("journal.keep_s", journal_keep_s, "0", IN(0, 1e10), "s",
           "Events that are older go once the newest checkpoint holds what was trained on them, "
           "though an older one could go on from them; a checkpoint is made where it does not. 0: "
           "they stay as long as any checkpoint needs them."),
    TEXT_OR(
        "feed.listen", feed_listen, "127.0.0.1:7082",
        "`HOST:PORT` of `stream.source` feed on the coordinator's box; beyond loopback with keys "
        "(`security.key`)."),
    TEXT("feed.to", feed_to, "`HOST:PORT` of the coordinator's box, for `lanyard feed`."),

    TEXT("checkpoint.directory", checkpoint.directory,
         "Folder for checkpoints; empty: `checkpoints` in the folder of `--out`. Parameter servers "
         "on other machines use the same path there."),
    U32("checkpoint.every_iterations", checkpoint.every_iterations, "0", IN(0, 1e9), "iterations",
        "A checkpoint after every so many iterations; 0: not by count."),
    DOUBLE("checkpoint.every_s", checkpoint.every_s, "0", IN(0, 1e7), "s",
           "A checkpoint when so much time has passed since the last one; 0: not by time."),
    U32("checkpoint.full_every", checkpoint.full_every, "10", IN(1, 1000), "checkpoints",
        "One of so many holds all rows, the others those that changed since the one before; 1: all "
        "rows every time."),
    U32("checkpoint.keep", checkpoint.keep, "3", IN(1, 1000), "checkpoints",
        "The newest so many stay, and those that they build on: at most `checkpoint.keep` + "
        "`checkpoint.full_every` - 1 folders, and the one that is being written."),
    DOUBLE(
        "checkpoint.keep_s", checkpoint.keep_s, "0", IN(0, 1e10), "s",
        "Checkpoints that are older go when one is complete, but for the newest and what it builds "
        "on. 0: whatever their age."),
    TEXT("checkpoint.after", checkpoint.after,
         "A shell command for each checkpoint that is complete, with its folder as `$1`, one at a "
         "time and beside training, such as `rsync -a --ignore-existing \"$1\" backup:run1/`; "
         "empty: none."),
    U32("checkpoint.copies", checkpoint.copies, "1", IN(0, 1), "copies",
        "1: a checkpoint is complete when the files of all shards are on the coordinator's box "
        "too, from where a shard that has lost its own gets them back; costs nothing where that is "
        "the same box or folder. 0: a lost disk of a shard is the end of all checkpoints."),
    BOOL("checkpoint.at_end", checkpoint.at_end, "false",
         "One more at the end of a run, so that another run can go on from there."),

    DOUBLE("publish.every_s", publish.every_s, "0", IN(0, 1e7), "s",
           "The model is published when so much time has passed since the last time, by way of a "
           "checkpoint; 0: never."),
    TEXT("publish.folder", publish.folder,
         "Folder for published models, on the coordinator's box; empty: `published` in the folder "
         "of `--out`."),
    U32("publish.keep", publish.keep, "5", IN(1, 1000), "versions",
        "The newest so many stay, for `lanyard rollback`, and those that they build on."),
    DOUBLE("publish.guard.log_loss", publish.guard_log_loss, "0.05", IN(0, 100), "",
           "A model is held back, with an alert, whose log loss (over that of the base rate) is "
           "by more than this share above 1, or above the last published one's, and by more than "
           "that above the log loss of the version in force on the same samples; 0: not judged."),
    DOUBLE("publish.guard.calibration", publish.guard_calibration, "0.25", IN(0, 100), "",
           "So is one whose mean prediction over mean label is further from 1 than the last "
           "published one's by more than this share; 0: not judged."),
    DOUBLE("publish.guard.hold_s", publish.guard_hold_s, "600", IN(0, 1e9), "s",
           "When no version has passed for so long, the better one is put in force, with an alert: "
           "the newest, or the one that is."),
    TEXT("publish.address", publish.address,
         "HOST:PORT where `lanyard serve --run` of other boxes asks for published models; empty: "
         "nowhere. Beyond loopback it needs keys."),

    {TEXT_ROW(
         "serve.address", serve.address, "127.0.0.1:8077",
         "HOST:PORT where `lanyard serve` answers HTTP; port 0: any free one. Beyond loopback it "
         "needs `security.certificate` and `security.token`."),
     .min = 1},
    U32("serve.candidates_max", serve.candidates_max, "1024", IN(1, 65536), "candidates",
        "Of one request; as many are scored at once."),
    TEXT("serve.log", serve.log,
         "Folder of a spool: what was served goes there, as events of `stream.format` with an id, "
         "and on to `feed.to`, into the join of a run (`stream.join`). Empty: nowhere."),
    TEXT("serve.hand_out", serve.hand_out,
         "HOST:PORT where servers of other boxes (`lanyard serve --run`) ask this one, which has "
         "all rows of what a run publishes, for the model or, with `serve.rows` \"fetched\", for "
         "rows of it; empty: nowhere. Beyond loopback it needs keys."),
    CHOICE("serve.rows", serve.rows, rt_serve_rows, "\"local\"", rt_choices_serve_rows,
           "Where the rows of the model are."),
    U64("serve.cache_bytes_max", serve.cache_bytes_max, "268435456",
        IN(65536, RT_CONFIG_INTEGER_MAX), "bytes",
        "`serve.rows` \"fetched\": for the rows that were used last."),
    U32("serve.fetch_ms", serve.fetch_ms, "200", IN(1, 60000), "ms",
        "`serve.rows` \"fetched\": a question whose rows have not come by then is refused (503)."),

    TEXT("watch.listen", watch.listen,
         "HOST:PORT where the coordinator shows the run over HTTP (docs/WATCHING.md), for example "
         "`127.0.0.1:7070`; port 0: any free one; empty: nowhere. Beyond loopback it needs "
         "`security.certificate` and `security.token`."),
    U64("watch.window_samples", watch.window_samples, "100000", IN(100, 1e12), "samples",
        "The last ones, whose log loss, AUC and calibration are those of the run now."),
    TEXT("watch.column", watch.column,
         "A categorical column: quality is also told for each of its values that come most, of "
         "about as many samples; empty: of none."),

    TEXT("alerts.command", alerts.command,
         "Run by `/bin/sh` on the coordinator's box when a run needs somebody to look at it, with "
         "a JSON object on its standard input (docs/WATCHING.md); empty: nothing is run."),
    DOUBLE("alerts.no_progress_s", alerts.no_progress_s, "300", IN(0, 1e7), "s",
           "No iteration was trained for so long, though there is input; 0: never told."),
    DOUBLE("alerts.loss_drift", alerts.loss_drift, "1.2", IN(0, 1000), "",
           "Log loss of `watch.window_samples` is so many times what it was on average over ten "
           "times as many; 0: never told."),
    CHOICE(
        "on_worker_loss", on_worker_loss, rt_on_loss, "\"stop\"", rt_choices_losses,
        "What `lanyard up` does when a process is lost, and with `shrink` also what "
        "`lanyard coordinator --restart` does when a worker is missing, and that the coordinator "
        "goes on without a worker that sits out (`dispatch.participants`)."),
    U32("restarts_max", restarts_max, "20", IN(0, 1e6), "restarts",
        "In an hour; a run that needs more ends."),

    TEXT("coordinator.standby", standby,
         "`HOST:PORT` where `lanyard standby` on another box follows the coordinator, and where it "
         "leads the run once it was promoted. Workers, shards and feeders look there, too. Empty: "
         "there is none."),
    CHOICE("coordinator.standby_away", standby_away, rt_standby_away, "\"wait\"",
           rt_choices_standby_away, "What is done while it does not answer."),

    CHOICE("network.transport", network_transport, rt_network_transport, "\"zmq\"",
           rt_choices_transports, "How messages travel."),
    TEXT("network.coordinator", network_coordinator,
         "`HOST:PORT` where workers and shards find the coordinator, and where it listens. Empty: "
         "they are told (`--coordinator`)."),
    LIST("network.ps", rt_config_shards, network_ps, network_ps_count, "[]", "",
         "`HOST:PORT` of every shard, in order. Empty: each listens on a free port and tells the "
         "coordinator."),
    TEXT("network.interface", network_interface,
         "Name of the interface whose address processes listen on, where nothing else "
         "says it (`eth0`)."),
    TEXT("network.bind", network_bind,
         "Address that processes listen on, whatever the keys above say: a number (`10.0.0.5`, "
         "`::1`, `fe80::1%eth0`, in brackets or not), a name, an interface; `0.0.0.0` and `::` are "
         "every interface. Empty: as they say, else `127.0.0.1`."),
    U32("network.worker_port", network_worker_port, "0", IN(0, 65535), "",
        "With `dispatch.hand_over` or `dispatch.reduce`: worker r listens at this port + r, on "
        "`network.bind` or `--bind`, else on the `host` of its box, else on `network.interface`; "
        "0: any free port."),
    CHOICE("network.collective", collective, rt_collective, "\"auto\"", rt_choices_collectives,
           "How the workers' dense gradients are summed. With keys (`security.key`) `ps` alone is "
           "encrypted."),
    CHOICE("network.dense_wire", dense_wire, rt_coding, "\"fp32\"", rt_choices_dense_wires,
           "Dense gradients and their sums in messages (ps)."),
    CHOICE("network.row_wire", row_wire, rt_coding, "\"fp32\"", rt_choices_row_wires,
           "Values of rows, what workers changed of them, and gradients of rows in messages. "
           "Workers and parameter servers compute in 32 bits; initial rows, the state of the "
           "optimizer, and rows that are flushed travel as they are."),
    BOOL("guards.skip_bad_batches", guard_skip_bad_batches, "true",
         "A batch whose loss is NaN or infinite on any worker is applied nowhere: no row and no "
         "weight changes. Rows that several workers want then wait for all workers' verdict; "
         "without it they do not, and a bad batch spoils the model."),
    TEXT("security.key", security_key,
         "File with the secret key of this box (`lanyard keygen`). Empty: no keys, and only "
         "loopback addresses are used."),
    TEXT("security.allow", security_allow,
         "Public keys of the boxes that may join: a directory with a `.public` file for each, or "
         "one file with all their lines."),
    TEXT("security.server_key", security_server_key,
         "Public key file of the box that the coordinator runs on."),
    TEXT("security.standby_key", security_standby_key,
         "Public key file of the standby's box (`coordinator.standby`). Empty: as "
         "`security.server_key`."),
    BOOL("security.insecure", security_insecure, "false",
         "Use other addresses than loopback without keys. Everybody in the network can then read "
         "the data and change the model; every start warns of it."),
    TEXT("security.certificate", security_certificate,
         "Certificate of what speaks HTTP, a PEM file (with its chain). Empty: no TLS, and only "
         "loopback addresses are listened on."),
    TEXT("security.certificate_key", security_certificate_key,
         "Its key, a PEM file that nobody else can read."),
    TEXT(
        "security.token", security_token,
        "File with one word, at least 16 characters, that nobody else can read: every HTTP "
        "request must show it (`Authorization: Bearer WORD`). Empty: none is needed, on loopback."),
    TEXT("security.hosts", security_hosts,
         "`NAME,NAME:PORT,...`: HTTP requests may be for these hosts, too, beside addresses, "
         "localhost and the names of this machine; and pages of these sites may send some."),

    DOUBLE("timeouts.peer_s", timeout_peer_s, "5", ABOVE(0, 86400), "s",
           "A peer that is silent for so long has failed."),
    DOUBLE("timeouts.answer_s", timeout_answer_s, "1800", ABOVE(0, 1e6), "s",
           "So has one that is not silent, but has not done for so long what all wait for: an "
           "iteration, a cut, a probe, the end. More than the slowest link takes for all rows of a "
           "cache."),
    DOUBLE("timeouts.start_s", timeout_start_s, "30", ABOVE(0, 86400), "s",
           "All processes have joined by then."),
    DOUBLE("timeouts.rejoin_s", timeout_rejoin_s, "15", ABOVE(0, 86400), "s",
           "With `on_worker_loss` `shrink`: a start again waits so long for workers, then goes on "
           "without them, for so long at least; `up` starts a lost worker again after so long."),

    U64("sim.iterations", sim_iterations, "0", IN(0, RT_CONFIG_INTEGER_MAX), "iterations",
        "To simulate; 0: until the input ends."),
    U32("sim.warmup", sim_warmup, "10", IN(0, 1e9), "iterations", "At the start, not counted."),
    BOOL("sim.dense", sim_dense, "true",
         "The exchange of the dense weights is part of the predicted time."),
    BOOL("sim.dispatch_error", sim_dispatch_error, "false",
         "Solve every batch a second time, exactly, and say what greedy placements cost (esd)."),
    DOUBLE("sim.compute_us_per_sample", compute_us_per_sample, "0", IN(0, 1e9), "us",
           "Computing time of a sample on a worker; 0: not known, left out."),
    {0},
};

static const struct {
    const char *section, *help;
} section_help[] = {
    {"metrics", "What is kept of the measurements (docs/METRICS.md); 1 to 2 KB an iteration."},
    {"compute", "How workers use what they compute on."},
    {"stream", "Where samples come from."},
    {"stream.http", "Of `stream.source` http."},
    {"stream.tcp", "Of `stream.source` tcp."},
    {"stream.mqtt", "Of `stream.source` mqtt."},
    {"stream.kafka", "Of `stream.source` kafka."},
    {"journal", "Where events are kept until checkpoints hold what was trained on them; for\n"
                "`stream.source` http, tcp, feed, mqtt, and the spool of `lanyard feed`. Outcomes\n"
                "that are sent have one of their own in it, `outcomes`, with as much room."},
    {"feed", "Events from other boxes (`lanyard feed`)."},
    {"stream.table", "Delimited text with one sample per line; for `stream.format` table."},
    {"stream.libsvm", "Lines of `label index:value ...`; for `stream.format` libsvm."},
    {"stream.join", "Labels that come later than what they belong to, in a second input\n"
                    "(docs/FORMATS.md)."},
    {"stream.synthetic", "Generated samples; for `stream.format` synthetic."},
    {"optimizer", "For embedding rows and for the dense weights. A stateful row optimizer "
                  "makes rows\n"
                  "larger on the wire: the state travels with a row."},
    {"cache", "What every worker keeps of the embedding rows."},
    {"dispatch", "Which worker trains which sample."},
    {"links", "Known link rates. The dispatcher weighs transfers by them."},
    {"ps", "The parameter servers."},
    {"guards", "What a run does about batches that would spoil the model."},
    {"coordinator", "A second box that can take over (docs/OPERATIONS.md)."},
    {"network", "Where processes listen and find each other; `lanyard up` needs none of it."},
    {"security", "Keys for runs on several boxes; see docs/SECURITY.md."},
    {"checkpoint", "What a run can go on from (`lanyard up CONFIG --resume`). SIGUSR1 to the\n"
                   "coordinator, or to `lanyard up`, asks for one at any time."},
    {"publish", "The model of a run that trains, for `lanyard serve` (docs/SERVING.md)."},
    {"publish.guard", "What is not published: a model that has become worse."},
    {"serve", "For `lanyard serve` only (docs/SERVING.md)."},
    {"watch", "How a run can be looked at (docs/WATCHING.md)."},
    {"alerts", "When somebody should look at it, and who is told."},
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
