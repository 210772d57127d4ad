// dp_run_type - the name of the state of a run, for whoever only hands it on; dp_run.h says what is
// in it.
#ifndef DP_RUN_TYPE_H
#define DP_RUN_TYPE_H

typedef struct dp_run dp_run;

#endif
