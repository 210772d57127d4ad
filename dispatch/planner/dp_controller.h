// dp_controller - turns measured times into input records: alpha, search_evaluations, tables,
// compute.
//
// Stands outside the planner, reads no clock itself: callers bring every time in, so that a test
// can play any run. One thread; a plain value without memory of its own.
#ifndef DP_CONTROLLER_H
#define DP_CONTROLLER_H

#include "dispatch/plan/dp_decision.h"
#include "dispatch/plan/dp_input.h"
#include "runtime/config/rt_config.h"

#define DP_CONTROLLER_WINDOW 100u     // iterations that alpha is judged by
#define DP_CONTROLLER_ALPHA_STEPS 8u  // alpha is a multiple of 1/8
#define DP_CONTROLLER_SEARCH 32u      // iterations that search_evaluations and tables are judged by
#define DP_CONTROLLER_COMPUTE 31u     // reports whose median is a worker's computing time
#define DP_CONTROLLER_EVALUATIONS 64u // the fewest that a budget leaves

// A ring of the last times, in seconds.
typedef struct {
    double values[DP_CONTROLLER_WINDOW];
    uint32_t count, next;
} dp_times;

typedef struct {
    double compute_s;                     // in force in the planner
    double recent[DP_CONTROLLER_COMPUTE]; // seconds per sample, a ring
    uint32_t count, next;
} dp_computing;

typedef struct {
    bool uses_alpha; // the policy
    bool alpha_auto;
    double alpha_share;
    bool budget_auto;
    double budget_s; // 0: off, or not measured yet
    bool measure_compute;
    uint32_t worker_count;

    dp_times necessary, plans; // that the budget follows from

    dp_times iterations;
    dp_times decisions; // at the alpha in force
    uint32_t step;      // alpha x DP_CONTROLLER_ALPHA_STEPS
    uint32_t patience;  // decisions to wait before a higher alpha is tried
    uint32_t waited;
    bool rose; // to this step, which has not proven itself yet

    dp_times searches;        // seconds per evaluation
    uint64_t evaluations;     // sum over searches
    uint32_t evaluations_max; // in force in the planner
    dp_times scorings;        // placements, with the tables in force
    uint32_t tables;          // in force in the planner; 0: as configured
    dp_computing workers[RT_WORKERS_MAX];

    dp_input ready[4 + RT_WORKERS_MAX];
    uint32_t ready_count;
} dp_controller;

void dp_controller_init(const rt_config *config, dp_controller *controller);

// A run goes on where these values are in force. compute_s: by worker.
void dp_controller_resume(dp_controller *controller, double alpha, uint32_t evaluations,
                          const double *compute_s);

// dispatch.alpha was reloaded: a number, or "auto" from the alpha in force on.
void dp_controller_set_alpha(dp_controller *controller, bool is_auto, double alpha);

// dispatch.search_evaluations and dispatch.budget_ms (or RT_BUDGET_AUTO) were reloaded.
void dp_controller_set_search(dp_controller *controller, uint32_t evaluations, double budget_ms);

// An iteration would have taken so long without embedding traffic, and its plan but for the
// placement. Before its dp_controller_decided.
void dp_controller_necessary(dp_controller *controller, double necessary_s, double plan_s);

// A batch was decided: times of look-up and placement together, and of the placement. Decisions
// made before the last record came into force are told by what `decision` says was in force.
void dp_controller_decided(dp_controller *controller, const dp_decision *decision,
                           double decision_s, double place_s);

// An iteration took so long.
void dp_controller_iterated(dp_controller *controller, double iteration_s);

// A worker computed so long on so many samples.
void dp_controller_computed(dp_controller *controller, uint32_t worker, double compute_s,
                            uint32_t sample_count);

// Takes the next record (iteration 0: as soon as possible). False: none.
bool dp_controller_next(dp_controller *controller, dp_input *input);

#endif
