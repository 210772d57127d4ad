// rt_config_choices - what keys with a choice of values may be: names as users write them, what
// they stand for, and a line of help each; a row without a name ends a list. What programmers add
// by one line has its list in rt_choice.h. Only rt_config_keys.c includes this.
#ifndef RT_CONFIG_CHOICES_H
#define RT_CONFIG_CHOICES_H

#include "runtime/config/rt_config_keys.h"

extern const rt_config_choice rt_choices_log_levels[];
extern const rt_config_choice rt_choices_losses[];
extern const rt_config_choice rt_choices_formats[];
extern const rt_config_choice rt_choices_quote_rules[];
extern const rt_config_choice rt_choices_outcome_formats[];
extern const rt_config_choice rt_choices_unanswered_events[];
extern const rt_config_choice rt_choices_standby_away[];
extern const rt_config_choice rt_choices_late_outcomes[];
extern const rt_config_choice rt_choices_join_ends[];
extern const rt_config_choice rt_choices_sources[];
extern const rt_config_choice rt_choices_dense_scalings[];
extern const rt_config_choice rt_choices_synthetic_shapes[];
extern const rt_config_choice rt_choices_storages[];
extern const rt_config_choice rt_choices_serve_rows[];
extern const rt_config_choice rt_choices_models[];
extern const rt_config_choice rt_choices_deep_inputs[];
extern const rt_config_choice rt_choices_crosses[];
extern const rt_config_choice rt_choices_poolings[];
extern const rt_config_choice rt_choices_row_optimizers[];
extern const rt_config_choice rt_choices_dense_optimizers[];
extern const rt_config_choice rt_choices_decays[];
extern const rt_config_choice rt_choices_evictions[];
extern const rt_config_choice rt_choices_policies[];
extern const rt_config_choice rt_choices_solvers[];
extern const rt_config_choice rt_choices_micro_batches[];
extern const rt_config_choice rt_choices_views[];
extern const rt_config_choice rt_choices_first_touches[];
extern const rt_config_choice rt_choices_hybrids[];
extern const rt_config_choice rt_choices_collectives[];
extern const rt_config_choice rt_choices_dense_wires[];
extern const rt_config_choice rt_choices_row_wires[];
extern const rt_config_choice rt_choices_transports[];

#endif
