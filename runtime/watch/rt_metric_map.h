// rt_metric_map - the table of the numbers that a run shows of itself. A metric is one line.
//
// XX(name, unit, what it is, then how it is read and where it is shown, in any order):
//
//   FROM(record, member)        read in records of docs/METRICS.md; a path has dots. "summary" is
//                               summary.json. Without FROM rt_view.c works the number out.
//   SUM, COUNT, KEPT            what it is after several records (rt_take in rt_metric.h);
//                               without: what the last one says
//   STATUS(member)              of GET /status and `lanyard top --json`; a path has at most one dot
//   SERIES(name), SECONDS(name) for Prometheus; SECONDS: of a number in milliseconds
//   LABELS(text)                of the series, where a metric is one of several
//   TILE(id, title, form)       at the top of the page
//   TOP(place, text, form)      `lanyard top`: its line from 2 on, then its place in that line
//   COLUMN(place, title, form)  of the table that compares runs in `lanyard report`
//   CHART(title, unit, from zero, scale)          in both; CHART_OF_PAGE, CHART_OF_REPORT: in one
//   CELL(title, form, scale)    of a list (shards, columns, ...): a column of its table on the page
//   TRUTH                       0 and 1 are false and true in /status
//   SPARSE                      where nobody knows it, it is left out; else it is "-" or null
//   IF_KNOWN, IF_ANY            the tile is there if the number is known, or more than 0
//
// What follows from a line: reading, all that is named in it, and tests of each of these. Alerts
// name metrics (rt_alerts.h). docs/METRICS.md lists the table;
// `LANYARD_UPDATE_GOLDEN=1 tests/install/test_records table` writes that anew.
#ifndef RT_METRIC_MAP_H
#define RT_METRIC_MAP_H

// clang-format off

// Of the run. The order is that of tiles, charts, and members of /status.
#define RT_METRICS_OF_RUN(XX)                                                                      \
    XX(iteration, "", "Number of the last iteration.", STATUS("iteration"),                        \
       SERIES("lanyard_iteration"), TILE("iteration", "iteration", WHOLE))                         \
    XX(iterations, "", "Iterations that were trained.", SERIES("lanyard_iterations_total"))        \
    XX(samples, "samples", "Samples that were trained.", FROM("iteration", "samples"), SUM,        \
       STATUS("samples"), SERIES("lanyard_samples_total"))                                         \
    XX(iteration_age_s, "s", "Since the last iteration ended.", STATUS("iteration_age_s"),         \
       TILE("age", "last one, age", AGE), TOP(45, "  last iteration %s ago", AGE))                 \
    XX(last_iteration_unix_s, "s", "When the last iteration ended, by the clock of the day.",      \
       SERIES("lanyard_last_iteration_timestamp_seconds"))                                         \
    XX(window_samples, "samples", "Samples that the window holds (`watch.window_samples`).",       \
       FROM("iteration", "window.samples"), STATUS("window.samples"),                              \
       SERIES("lanyard_window_samples"), TOP(36, ", %s samples", SHORT))                           \
    XX(window_log_loss, "nats", "Log loss of the window.", FROM("iteration", "window.log_loss"),   \
       STATUS("window.log_loss"), SERIES("lanyard_window_log_loss"),                               \
       TILE("loss", "log loss", DIGITS_4), TOP(31, "log loss %s", DIGITS_4),                       \
       CHART("Log loss, of the window", "nats", false, 1))                                         \
    XX(reference_loss, "nats", "Log loss on average over about ten windows.",                      \
       STATUS("window.log_loss_before"), SERIES("lanyard_reference_log_loss"),                     \
       TOP(32, " (before %s)", DIGITS_4))                                                          \
    XX(window_auc, "", "AUC of the window.", FROM("iteration", "window.auc"),                      \
       STATUS("window.auc"), SERIES("lanyard_window_auc"), TILE("auc", "AUC", DIGITS_4),           \
       TOP(33, ", AUC %s", DIGITS_4), CHART("AUC, of the window", "", false, 1))                   \
    XX(window_accuracy, "",                                                                        \
       "Share of the window whose likeliest class was right, of a label of several classes.",      \
       FROM("iteration", "window.accuracy"), STATUS("window.accuracy"), SPARSE,                    \
       SERIES("lanyard_window_accuracy_ratio"), TILE("accuracy", "accuracy", DIGITS_4), IF_KNOWN,  \
       TOP(34, ", accuracy %s", DIGITS_4), CHART("Accuracy, of the window", "", false, 1))         \
    XX(window_calibration, "", "Mean prediction over mean label, of the window.",                  \
       FROM("iteration", "window.calibration"), STATUS("window.calibration"),                      \
       SERIES("lanyard_window_calibration_ratio"), TILE("calibration", "calibration", DIGITS_4),   \
       TOP(35, ", calibration %s", DIGITS_3),                                                      \
       CHART("Calibration, of the window", "mean prediction / label", false, 1))                   \
    XX(iterations_per_s, "1/s", "Iterations in a second, over the last 10 s, or two iterations.",  \
       STATUS("iterations_per_s"), TILE("speed", "iterations/s", SHORT),                           \
       TOP(21, "%s iterations/s", SHORT))                                                          \
    XX(samples_per_s, "1/s", "Samples in a second, over the same time.", STATUS("samples_per_s"),  \
       TILE("samples", "samples/s", SHORT), TOP(22, ", %s samples/s", SHORT),                      \
       CHART("Speed", "samples/s, over 10 s", true, 1))                                            \
    XX(iteration_ms, "ms", "Time of an iteration, over the same time.", STATUS("iteration_ms"),    \
       SECONDS("lanyard_iteration_seconds"), TOP(23, "; %s ms each", SHORT))                       \
    XX(passed_ms, "ms", "From the record of an iteration to the next one.",                        \
       COLUMN(1, "ms, measured", SHORT))                                                           \
    XX(cost, "rows", "Cost of an iteration's transfers, in rows on the fastest link.",             \
       FROM("iteration", "cost"), STATUS("cost"), SERIES("lanyard_cost_rows"),                     \
       COLUMN(3, "cost, rows", SHORT),                                                             \
       CHART("Transmission cost", "rows on the fastest link, per iteration", true, 1))             \
    XX(predicted_ms, "ms", "Time of an iteration by plan and links.",                              \
       FROM("iteration", "predicted_ms"), STATUS("predicted_ms"),                                  \
       SECONDS("lanyard_predicted_iteration_seconds"), TOP(24, ", predicted %s", SHORT),           \
       COLUMN(2, "ms, predicted", SHORT), CHART("Predicted time of an iteration", "ms", true, 1))  \
    XX(hits, "", "Share of look-ups that the caches served in the last iteration.",                \
       FROM("iteration", "hit_ratio.lookups"), STATUS("hits"), SERIES("lanyard_cache_hit_ratio"),  \
       LABELS("{of=\"lookups\"}"), TILE("hits", "cache hits", SHARE),                              \
       TOP(41, "hits %s", PERCENT), COLUMN(4, "hits", DIGITS_3),                                   \
       CHART("Cache hits", "% of look-ups", true, 100))                                            \
    XX(hits_keys, "", "Share of keys that the caches served in the last iteration.",               \
       FROM("iteration", "hit_ratio.keys"), SERIES("lanyard_cache_hit_ratio"),                     \
       LABELS("{of=\"keys\"}"))                                                                    \
    XX(keys, "keys", "Keys that the planner knows.", FROM("iteration", "keys"), STATUS("keys"),    \
       SERIES("lanyard_keys"), TILE("keys", "keys", SHORT), TOP(42, "  keys %s", SHORT))           \
    XX(checkpoint_iteration, "", "Iteration of the newest checkpoint; 0: there is none.",          \
       STATUS("checkpoint.iteration"))                                                             \
    XX(checkpoint_age_s, "s", "Since the newest checkpoint was completed, or the run began.",      \
       STATUS("checkpoint.age_s"), TILE("checkpoint", "checkpoint, age", AGE))                     \
    XX(checkpoint_unix_s, "s", "When the newest checkpoint was completed, or the run began.",      \
       SERIES("lanyard_checkpoint_timestamp_seconds"))                                             \
    XX(checkpoint_every_s, "s", "Between two checkpoints (`checkpoint.every_s`); 0: none by time.",\
       FROM("members", "checkpoint.every_s"), STATUS("checkpoint.every_s"),                        \
       SERIES("lanyard_checkpoint_interval_seconds"))                                              \
    XX(unsaved_s, "s", "Age of the oldest iteration that no checkpoint has; 0: all are in one.",   \
       STATUS("checkpoint.unsaved_s"), SERIES("lanyard_unsaved_seconds"))                          \
    XX(lag_events, "events", "Events that came and were not read yet.",                            \
       FROM("members", "lag.events"), STATUS("lag.events"), SERIES("lanyard_stream_lag_events"),   \
       TILE("lag", "events wait", SHORT), IF_KNOWN,                                                \
       CHART_OF_PAGE("Events that wait", "events", true, 1))                                       \
    XX(lag_bytes, "bytes", "Bytes of files that were not read yet.", FROM("members", "lag.bytes"), \
       STATUS("lag.bytes"), SERIES("lanyard_stream_lag_bytes"))                                    \
    XX(latency_p99_ms, "ms", "From an event's arrival to trained rows, for 99% of them.",          \
       FROM("iteration", "latency_ms.p99"), STATUS("lag.latency_p99_ms"),                          \
       SECONDS("lanyard_latency_p99_seconds"))                                                     \
    XX(waiting_events, "events", "Events that wait for their outcomes (`stream.join`).",           \
       FROM("members", "join.waiting"), SERIES("lanyard_join_waiting_events"))                     \
    XX(doubted, "", "Events and outcomes whose times others do not bear out.",                     \
       FROM("members", "join.doubted"), KEPT, SERIES("lanyard_join_doubted_total"))                \
    XX(standby_there, "", "The standby answers.", FROM("members", "standby.there"),                \
       STATUS("standby.there"), TRUTH)                                                             \
    XX(standby_in_step, "", "1: the standby has all of the journals.",                             \
       FROM("members", "standby.in_step"), STATUS("standby.in_step"), TRUTH,                       \
       SERIES("lanyard_standby_in_step"))                                                          \
    XX(standby_away_s, "s", "For so long the standby does not answer; 0: it does.",                \
       STATUS("standby.away_s"), SERIES("lanyard_standby_away_seconds"))                           \
    XX(standby_behind_bytes, "bytes", "Bytes of the journals that the standby lacks.",             \
       FROM("members", "standby.behind_bytes"), STATUS("standby.behind_bytes"),                    \
       SERIES("lanyard_standby_behind_bytes"))                                                     \
    XX(standby_commits_alone, "", "Commits that were acknowledged without the standby.",           \
       FROM("members", "standby.commits_alone"), STATUS("standby.commits_alone"),                  \
       SERIES("lanyard_standby_commits_alone_total"))                                              \
    XX(standby_checkpoint, "", "Iteration of the standby's newest whole checkpoint; 0: none.",     \
       FROM("members", "standby.checkpoint"), STATUS("standby.checkpoint"),                        \
       SERIES("lanyard_standby_checkpoint_iteration"))                                             \
    XX(in_force, "", "Iteration of the published version that servers answer with; 0: none.",      \
       STATUS("published.in_force"), SERIES("lanyard_model_in_force_iteration"),                   \
       TILE("in-force", "iteration in force", WHOLE), IF_ANY)                                      \
    XX(in_force_age_s, "s", "Since the version in force was published.", SPARSE,                   \
       STATUS("in_force_age_s"), SERIES("lanyard_model_in_force_age_seconds"),                     \
       TILE("in-force-age", "in force, age", AGE), IF_KNOWN)                                       \
    XX(held, "", "Versions since then that the guard has held back.", STATUS("published.held"),    \
       SERIES("lanyard_models_held"), TILE("held", "versions held back", SHORT), IF_ANY)           \
    XX(held_iteration, "", "Iteration of the newest version that is held back.",                   \
       STATUS("published.held_iteration"), SPARSE)                                                 \
    XX(held_s, "s", "For so long versions have been held back.", STATUS("published.held_s"),       \
       SPARSE)                                                                                     \
    XX(a_sample_bytes, "bytes", "Bytes over all links for a trained sample, since the run started.",\
       FROM("members", "traffic.a_sample"), STATUS("traffic.a_sample"),                            \
       SERIES("lanyard_traffic_sample_bytes"), TILE("sample-bytes", "bytes/sample", SHORT),        \
       IF_KNOWN)                                                                                   \
    XX(traffic_requests, "bytes",                                                                  \
       "Over all links: pulls, rows that are given up, confirmations of pushes.",                  \
       FROM("members", "traffic.requests"), STATUS("traffic.requests"),                            \
       SERIES("lanyard_traffic_bytes_total"), LABELS("{cause=\"requests\"}"))                      \
    XX(traffic_rows, "bytes",                                                                      \
       "Over all links: values of rows, with their keys and versions.",                            \
       FROM("members", "traffic.rows"), STATUS("traffic.rows"),                                    \
       SERIES("lanyard_traffic_bytes_total"), LABELS("{cause=\"rows\"}"))                          \
    XX(traffic_first_rows, "bytes",                                                                \
       "Over all links: values of rows that nobody has trained before.",                           \
       FROM("members", "traffic.first_rows"), STATUS("traffic.first_rows"),                        \
       SERIES("lanyard_traffic_bytes_total"), LABELS("{cause=\"first_rows\"}"))                    \
    XX(traffic_row_state, "bytes",                                                                 \
       "Over all links: the optimizer's state that rows bring along.",                             \
       FROM("members", "traffic.row_state"), STATUS("traffic.row_state"),                          \
       SERIES("lanyard_traffic_bytes_total"), LABELS("{cause=\"row_state\"}"))                     \
    XX(traffic_gradients, "bytes",                                                                 \
       "Over all links: gradients of rows.",                                                       \
       FROM("members", "traffic.gradients"), STATUS("traffic.gradients"),                          \
       SERIES("lanyard_traffic_bytes_total"), LABELS("{cause=\"gradients\"}"))                     \
    XX(traffic_dense, "bytes",                                                                     \
       "Over all links: gradients of the dense part, and their sums.",                             \
       FROM("members", "traffic.dense"), STATUS("traffic.dense"),                                  \
       SERIES("lanyard_traffic_bytes_total"), LABELS("{cause=\"dense\"}"))                         \
    XX(traffic_dense_weights, "bytes",                                                             \
       "Over all links: the dense part for a worker that comes or comes back.",                    \
       FROM("members", "traffic.dense_weights"), STATUS("traffic.dense_weights"),                  \
       SERIES("lanyard_traffic_bytes_total"), LABELS("{cause=\"dense_weights\"}"))                 \
    XX(traffic_slices, "bytes",                                                                    \
       "Over all links: plans and samples for the workers.",                                       \
       FROM("members", "traffic.slices"), STATUS("traffic.slices"),                                \
       SERIES("lanyard_traffic_bytes_total"), LABELS("{cause=\"slices\"}"))                        \
    XX(traffic_reports, "bytes",                                                                   \
       "Over all links: what workers say of an iteration: predictions, counts.",                   \
       FROM("members", "traffic.reports"), STATUS("traffic.reports"),                              \
       SERIES("lanyard_traffic_bytes_total"), LABELS("{cause=\"reports\"}"))                       \
    XX(traffic_checkpoints, "bytes",                                                               \
       "Over all links: checkpoints, the finished model, the standby's copies.",                   \
       FROM("members", "traffic.checkpoints"), STATUS("traffic.checkpoints"),                      \
       SERIES("lanyard_traffic_bytes_total"), LABELS("{cause=\"checkpoints\"}"))                   \
    XX(traffic_versions, "bytes",                                                                  \
       "Over all links: published versions, for servers.",                                         \
       FROM("members", "traffic.versions"), STATUS("traffic.versions"),                            \
       SERIES("lanyard_traffic_bytes_total"), LABELS("{cause=\"versions\"}"))                      \
    XX(traffic_feed, "bytes",                                                                      \
       "Over all links: events and outcomes that are sent to the run.",                            \
       FROM("members", "traffic.feed"), STATUS("traffic.feed"),                                    \
       SERIES("lanyard_traffic_bytes_total"), LABELS("{cause=\"feed\"}"))                          \
    XX(traffic_questions, "bytes",                                                                 \
       "Over all links: rows that servers ask servers for.",                                       \
       FROM("members", "traffic.questions"), STATUS("traffic.questions"),                          \
       SERIES("lanyard_traffic_bytes_total"), LABELS("{cause=\"questions\"}"))                     \
    XX(traffic_probes, "bytes",                                                                    \
       "Over all links: measurements of links.",                                                   \
       FROM("members", "traffic.probes"), STATUS("traffic.probes"),                                \
       SERIES("lanyard_traffic_bytes_total"), LABELS("{cause=\"probes\"}"))                        \
    XX(traffic_control, "bytes",                                                                   \
       "Over all links: joining, heartbeats, requests, the end.",                                  \
       FROM("members", "traffic.control"), STATUS("traffic.control"),                              \
       SERIES("lanyard_traffic_bytes_total"), LABELS("{cause=\"control\"}"))                       \
    XX(bad_batches, "", "Batches whose loss was not finite.", FROM("iteration", "bad"), SUM,       \
       STATUS("bad_batches"), SERIES("lanyard_bad_batches_total"),                                 \
       TOP(44, "  bad batches %s", WHOLE))                                                         \
    XX(malformed, "lines", "Lines of the input that were left out.",                               \
       FROM("iteration", "malformed_lines"), COUNT, STATUS("malformed_lines"),                     \
       SERIES("lanyard_malformed_lines_total"))                                                    \
    XX(malformed_share, "", "Share of lines that were left out, over the last 10 s.",              \
       STATUS("malformed_share"), TILE("malformed", "malformed lines", SHARE),                     \
       TOP(43, "  malformed %s", PERCENT))                                                         \
    XX(input_lost, "events", "Events that are lost.", FROM("members", "input.events_lost"), COUNT, \
       STATUS("input_events_lost"))                                                                \
    XX(input_breaks, "", "Times that an input was not the one that had been read.",                \
       FROM("members", "input.breaks"), COUNT, STATUS("input_breaks"))                             \
    XX(input_trouble, "", "Events that are lost, and times that an input was another one.",        \
       SERIES("lanyard_input_lost_total"))                                                         \
    XX(waits_for_input, "", "1: nothing is there to be trained.",                                  \
       FROM("members", "waits_for_input"), SERIES("lanyard_waits_for_input"))                      \
    XX(warnings, "", "Warnings of the coordinator's log.", SERIES("lanyard_warnings_total"))       \
    XX(workers_all, "", "Workers of the run.", SERIES("lanyard_workers"))                          \
    XX(workers_out, "", "Workers that were lost, and that the run goes on without.",               \
       SERIES("lanyard_workers_out"))                                                              \
    XX(idle_s, "s", "Since the last iteration ended, though there is input.")                      \
    XX(bad_age_s, "s", "Since a batch had a loss that is not finite.")                             \
    XX(lost_age_s, "s", "Since the last losses of the input.")                                     \
    XX(doubted_age_s, "s", "Since the last record came whose times are wrong.")                    \
    XX(loss_drift, "", "Log loss of the window over its average of about ten windows.")            \
    XX(malformed_now, "", "`malformed_share`, where something was trained in the last 5 minutes.") \
    XX(link_share, "", "Least share that a link has of its best rate.")                            \
    XX(memory_share, "", "Largest share that a process has of its memory.")                        \
    XX(decision_ms, "ms", "Time of the decision who trains which sample.",                         \
       FROM("iteration", "decision_ms"), STATUS("decision_ms"),                                    \
       SECONDS("lanyard_decision_seconds"), TOP(25, ", decision %s", SHORT),                       \
       COLUMN(5, "decision, ms", SHORT), CHART_OF_REPORT("Time of a decision", "ms", true, 1))     \
    XX(alpha, "", "`dispatch.alpha` in force.", FROM("iteration", "alpha"),                        \
       CHART_OF_REPORT("alpha", "share of samples placed exactly", true, 1))                       \
    XX(batch_log_loss, "nats", "Log loss of a batch, predicted before it was trained.",            \
       FROM("iteration", "quality.log_loss"))                                                      \
    XX(batch_auc, "", "AUC of a batch, predicted before it was trained.",                          \
       FROM("iteration", "quality.auc"))                                                           \
    XX(batch_accuracy, "", "Accuracy of a batch of classes, predicted before it was trained.",     \
       FROM("iteration", "quality.accuracy"))                                                      \
    XX(whole_log_loss, "nats", "Log loss over the whole run.", FROM("summary", "logloss"),         \
       COLUMN(6, "log loss", DIGITS_4), OR_MEAN_OF(batch_log_loss))                                \
    XX(whole_auc, "", "AUC over the whole run.", FROM("summary", "auc"),                           \
       COLUMN(7, "AUC", DIGITS_4), OR_MEAN_OF(batch_auc))                                          \
    XX(whole_accuracy, "", "Accuracy over the whole run, of a label of several classes.",          \
       FROM("summary", "accuracy"), COLUMN(8, "accuracy", DIGITS_4), SPARSE,                       \
       OR_MEAN_OF(batch_accuracy))                                                                 \
    XX(last_log_loss, "nats", "Log loss over the last fifth of the run.",                          \
       FROM("summary", "logloss_last_fifth"), COLUMN(9, "last fifth: log loss", DIGITS_4))         \
    XX(last_auc, "", "AUC over the last fifth of the run.", FROM("summary", "auc_last_fifth"),     \
       COLUMN(10, "AUC", DIGITS_4))                                                                \
    XX(last_accuracy, "", "Accuracy over the last fifth, of a label of several classes.",          \
       FROM("summary", "accuracy_last_fifth"), COLUMN(11, "accuracy", DIGITS_4), SPARSE)           \
    XX(run_sample_bytes, "bytes", "Bytes over all links for a trained sample, of a whole run.",    \
       FROM("summary", "traffic.a_sample"), COLUMN(13, "bytes/sample", SHORT))                     \
    XX(stale_reads, "rows", "Rows that were read without an update that they had to contain.",     \
       FROM("summary", "stale_reads"), COLUMN(12, "stale reads", SHORT))

// Of each process. Lists are read in the items of records of their own (rt_view.c).
#define RT_METRICS_OF_PROCESS(XX)                                                                  \
    XX(rss_bytes, "bytes", "Memory of a process.", FROM("members", "rss_bytes"),                   \
       STATUS("rss_bytes"), SERIES("lanyard_process_resident_memory_bytes"),                       \
       CELL("memory, MB", SHORT, 1e-6))                                                            \
    XX(max_bytes, "bytes", "Memory that a process may have.",                                      \
       FROM("members", "memory_max_bytes"), STATUS("memory_max_bytes"),                            \
       SERIES("lanyard_process_memory_limit_bytes"), CELL("of, MB", SHORT, 1e-6))

#define RT_METRICS_OF_SHARD(XX)                                                                    \
    XX(keys, "rows", "Rows that a shard holds.", FROM("members", "keys"), STATUS("keys"),          \
       SERIES("lanyard_shard_rows"), CELL("rows", SHORT, 1))                                       \
    XX(row_bytes, "bytes", "What a shard's rows take.", FROM("members", "row_bytes"),              \
       STATUS("row_bytes"), SERIES("lanyard_shard_row_bytes"), CELL("rows, MB", SHORT, 1e-6))      \
    XX(row_bytes_max, "bytes", "What a shard's rows may take (`ps.memory_bytes_max`).",            \
       FROM("members", "row_bytes_max"), STATUS("row_bytes_max"),                                  \
       SERIES("lanyard_shard_row_limit_bytes"), CELL("of, MB", SHORT, 1e-6))                       \
    XX(image_bytes, "bytes", "Rows as they were at the newest checkpoints.",                       \
       FROM("members", "image_bytes"), STATUS("image_bytes"), SERIES("lanyard_shard_image_bytes"))

#define RT_METRICS_OF_WORKER(XX)                                                                   \
    XX(takes_part, "", "1: the worker trained the last iteration; 0: it sat out.",                 \
       STATUS("takes_part"), TRUTH, SERIES("lanyard_worker_takes_part"))

// Of each way of a worker's link.
#define RT_METRICS_OF_LINK(XX)                                                                     \
    XX(sum, "bytes", "Rows, requests and dense gradients, as planned.",                            \
       SERIES("lanyard_link_bytes_total"))                                                         \
    XX(bytes_per_s, "bytes/s", "Rate of a link that the planner counts on.",                       \
       STATUS("bytes_per_s"), SERIES("lanyard_link_bytes_per_second"))                             \
    XX(best, "bytes/s", "The best rate of a link so far.",                                         \
       SERIES("lanyard_link_best_bytes_per_second"))                                               \
    XX(used, "", "Share of a link's rate that is used.", STATUS("used"),                           \
       SERIES("lanyard_link_used_ratio"))

#define RT_METRICS_OF_COLUMN(XX)                                                                   \
    XX(values, "values", "Values of a column.", FROM("columns", "values"), SUM,                    \
       SERIES("lanyard_column_values_total"))                                                      \
    XX(empty, "values", "Values of a column that are empty.", FROM("columns", "empty"), SUM,       \
       SERIES("lanyard_column_empty_total"))                                                       \
    XX(fresh, "values", "Values of a column that were never trained before.",                      \
       FROM("columns", "new"), SUM, SERIES("lanyard_column_new_total"))                            \
    XX(empty_share, "", "Share of a column's values that are empty, of the last record.",          \
       STATUS("empty"), CELL("empty, %", DIGITS_1, 100))                                           \
    XX(new_share, "", "Share of a column's values that are new, of the last record.",              \
       STATUS("new"), CELL("new, %", DIGITS_1, 100))

// Of each value of watch.column.
#define RT_METRICS_OF_SLICE(XX)                                                                    \
    XX(samples, "samples", "Samples with a value of `watch.column`, fading.",                      \
       FROM("slices", "samples"), STATUS("samples"), SERIES("lanyard_slice_samples"),              \
       CELL("samples", SHORT, 1))                                                                  \
    XX(log_loss, "nats", "Log loss of the samples with a value of `watch.column`.",                \
       FROM("slices", "log_loss"), STATUS("log_loss"), SERIES("lanyard_slice_log_loss"),           \
       CELL("log loss", SHORT, 1))                                                                 \
    XX(auc, "", "AUC of the samples with a value of `watch.column`.", FROM("slices", "auc"),       \
       STATUS("auc"))                                                                              \
    XX(calibration, "", "Mean prediction over mean label, with a value of `watch.column`.",        \
       FROM("slices", "calibration"), STATUS("calibration"),                                       \
       SERIES("lanyard_slice_calibration_ratio"), CELL("calibration", SHORT, 1))                   \
    XX(mean_label, "", "Mean label of the samples with a value of `watch.column`.",                \
       FROM("slices", "mean_label"), CELL("mean label", SHORT, 1))                                 \
    XX(accuracy, "", "Accuracy of the samples with a value of `watch.column`.",                    \
       FROM("slices", "accuracy"), STATUS("accuracy"), SPARSE)

// Of each of several labels.
#define RT_METRICS_OF_LABEL(XX)                                                                    \
    XX(log_loss, "nats", "Log loss of a label over the whole run.", FROM("summary", "logloss"),    \
       CELL("log loss", DIGITS_4, 1))                                                              \
    XX(auc, "", "AUC of a label over the whole run.", FROM("summary", "auc"),                      \
       CELL("AUC", DIGITS_4, 1))                                                                   \
    XX(calibration, "", "Mean prediction over mean label, over the whole run.",                    \
       FROM("summary", "calibration"), CELL("calibration", DIGITS_3, 1))                           \
    XX(last_log_loss, "nats", "Log loss of a label over the last fifth of the run.",               \
       FROM("summary", "logloss_last_fifth"), CELL("last fifth: log loss", DIGITS_4, 1))           \
    XX(last_auc, "", "AUC of a label over the last fifth of the run.",                             \
       FROM("summary", "auc_last_fifth"), CELL("AUC", DIGITS_4, 1))

// clang-format on

#define RT_METRIC_SETS(XX) \
    XX(RUN, run)           \
    XX(PROCESS, process)   \
    XX(SHARD, shard)       \
    XX(WORKER, worker)     \
    XX(LINK, link)         \
    XX(COLUMN, column)     \
    XX(SLICE, slice)       \
    XX(LABEL, label)

#endif
