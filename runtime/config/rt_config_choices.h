// rt_config_choices - what keys with a choice of values may be: names as users write them, what
// they stand for, and a line of help each; a row without a name ends a list. What programmers add
// by one line has its list in rt_choice.h. Only rt_config_keys.c includes this.
#ifndef RT_CONFIG_CHOICES_H
#define RT_CONFIG_CHOICES_H

#include "runtime/config/rt_config_keys.h"

extern const rt_config_choice rt_choices_log_levels[], rt_choices_losses[], rt_choices_formats[],
    rt_choices_quote_rules[], rt_choices_outcome_formats[], rt_choices_unanswered_events[],
    rt_choices_standby_away[], rt_choices_late_outcomes[], rt_choices_join_ends[],
    rt_choices_sources[], rt_choices_dense_scalings[], rt_choices_synthetic_shapes[],
    rt_choices_storages[], rt_choices_serve_rows[], rt_choices_models[], rt_choices_deep_inputs[],
    rt_choices_crosses[], rt_choices_poolings[], rt_choices_row_optimizers[],
    rt_choices_dense_optimizers[], rt_choices_decays[], rt_choices_evictions[],
    rt_choices_policies[], rt_choices_solvers[], rt_choices_micro_batches[], rt_choices_views[],
    rt_choices_first_touches[], rt_choices_hybrids[], rt_choices_collectives[],
    rt_choices_dense_wires[], rt_choices_row_wires[], rt_choices_transports[];

#endif
