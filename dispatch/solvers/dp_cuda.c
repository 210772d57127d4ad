#include "dispatch/solvers/dp_cuda.h"

#include "runtime/rt_cuda.h"
#include "runtime/rt_log.h"

#define DEVICE 0u
#define HUNGARIAN "dp_hungarian" // in the plug-in

typedef struct {
    const dp_cuda_table *table;
    void *device_state; // NULL once the device has failed
    void *transport_state;
    double device_s; // of the last solve
} solver;

static rt_status find_table(const dp_cuda_table **table_p, rt_error *error)
{
    const rt_cuda_plugin *plugin;
    char name[96];
    rt_status status = rt_cuda_open(NULL, &plugin, error);
    if (!status)
        status = plugin->probe(DEVICE, name, sizeof name, error);
    if (status)
        return status;
    *table_p = plugin->table(HUNGARIAN);
    if (!*table_p)
        return rt_fail(error, RT_UNSUPPORTED, "the CUDA plug-in has no such solver");
    return RT_OK;
}

static rt_status available(rt_error *error)
{
    const dp_cuda_table *table;
    return find_table(&table, error);
}

static void destroy(void *state)
{
    solver *self = state;
    if (!self)
        return;
    if (self->device_state)
        self->table->destroy(self->device_state);
    if (self->transport_state)
        dp_solver_transport.destroy(self->transport_state);
    rt_free(self);
}

static rt_status create(uint32_t row_count_max, uint32_t sink_count_max, void **state_p)
{
    rt_error error = {0};
    solver *self = rt_alloc(1, sizeof *self);
    if (!self)
        return RT_NO_MEMORY;
    rt_status status = find_table(&self->table, &error);
    if (!status)
        status =
            self->table->create(DEVICE, row_count_max, sink_count_max, &self->device_state, &error);
    if (status) // the run can go on without
        rt_warn("dispatch.solver: transport takes over: %s", error.text);
    status = dp_solver_transport.create(row_count_max, sink_count_max, &self->transport_state);
    if (status) {
        destroy(self);
        return status;
    }
    *state_p = self;
    return RT_OK;
}

static void solve(void *state, const dp_problem *problem, uint32_t *sink_of_row)
{
    solver *self = state;
    rt_error error = {0};
    self->device_s = 0;
    if (self->device_state) {
        if (self->table->solve(self->device_state, problem, sink_of_row, &error) == RT_OK) {
            self->device_s = self->table->device_s(self->device_state);
            return;
        }
        rt_warn("dispatch.solver: %s: transport takes over: %s", self->table->name, error.text);
        self->table->destroy(self->device_state);
        self->device_state = NULL;
    }
    dp_solver_transport.solve(self->transport_state, problem, sink_of_row);
}

static double device_s(const void *state)
{
    const solver *self = state;
    return self->device_s;
}

const dp_solver_ops dp_solver_hungarian_cuda = {
    .name = "hungarian_cuda",
    .exact = true,
    .create = create,
    .destroy = destroy,
    .solve = solve,
    .device_s = device_s,
    .available = available,
};
