// GraphSAGE of two layers with mean aggregators (Hamilton, Ying, Leskovec, NIPS 2017, Algorithm 1
// and section 3.3), over sampled neighbours as HET trains it: an embedding row is what a node
// begins with. Of the sample's node t, its neighbours u, and the neighbours w of each of these
//   h(v) = relu(W [r_v, mean of r_n over v's neighbours n] + b)      for t and every u
//   g    = relu layers([h(t), mean of h(u)])                         the first is the second hop's
//   logit = output.weight . g + output.bias
// A cell that is empty is a neighbour that is missing: it is in no mean, and a mean of nothing is
// zeros. Vectors are not divided by their length (Algorithm 1, line 7), as in most programs.
//
// Look-ups come by node (ew_split.c). A node's x is [own row, mean of its neighbours' rows]. What
// the first layer makes of a sample's nodes is looked up like rows: the first node's, and the mean
// of the others, are the sample's y.
#include "edge_worker/model/ew_model_parts.h"

enum { FIELDS = 2 }; // own, neighbours

typedef struct {
    ew_mlp inner, outer;
    uint32_t dim, width, hidden_count; // width: of the first layer
    uint32_t output, output_bias;      // offsets
    float *x, *x_gradients;            // nodes x x_stride
    float *y, *y_gradients;            // sample_count x y_stride
    uint32_t x_stride, y_stride;
    ew_lookups nodes; // what the first layer made, as rows
} sage;

// ---- creation --------------------------------------------------------------------------------

static rt_status check_fields(const ew_model_config *config, rt_error *error)
{
    const uint32_t fan_out = config->model.fan_out, fields = config->field_count;
    if (fan_out < 1 || fan_out > RT_FAN_OUT_MAX)
        return rt_fail(error, RT_CONFIG, "model.fan_out: %u, expected 1 to %d", fan_out,
                       RT_FAN_OUT_MAX);
    if (fields != 2 * fan_out + 1)
        return rt_fail(error, RT_CONFIG,
                       "model.fan_out: the stream has %u fields, \"graphsage\" with a fan-out of "
                       "%u expects %u: a node, its neighbours, and the neighbours of each of these",
                       fields, fan_out, 2 * fan_out + 1);
    for (uint32_t f = 1; f < fields; f++)
        if (!config->tables.are_shared || !config->tables.borrows[f] ||
            rt_tables_of(&config->tables, f) != rt_tables_of(&config->tables, 0))
            return rt_fail(error, RT_CONFIG,
                           "model.name \"graphsage\" needs the rows of the first field in field "
                           "%u: expected \"THAT=FIRST\" of every other one in stream.tables",
                           f);
    return RT_OK;
}

static rt_status check(const ew_model_config *config, rt_error *error)
{
    const rt_model_config *model = &config->model;
    rt_status status = check_fields(config, error);
    if (status)
        return status;
    if (config->dense_count > 0)
        return rt_fail(error, RT_CONFIG,
                       "model.name \"graphsage\" has no use for dense features, the stream has %u",
                       config->dense_count);
    if (model->pooling != RT_POOL_MEAN)
        return rt_fail(error, RT_CONFIG,
                       "model.pooling: \"graphsage\" aggregates by the mean, expected \"mean\"");
    if (model->mlp_layer_count < 2)
        return rt_fail(error, RT_CONFIG,
                       "model.mlp: has %u layers, \"graphsage\" expects 2 or more: one for each "
                       "hop, and what comes behind them",
                       model->mlp_layer_count);
    return RT_OK;
}

static rt_status create_buffers(ew_model *model, sage *self, rt_error *error)
{
    const size_t nodes = model->split.node_count_max, samples = model->config.sample_count_max;
    const ew_model_wanted wanted[] = {
        {nodes * self->x_stride, &self->x},
        {nodes * self->x_stride, &self->x_gradients},
        {samples * self->y_stride, &self->y},
        {samples * self->y_stride, &self->y_gradients},
        {nodes * self->width, &self->inner.output},
        {nodes * self->width, &self->inner.output_gradients},
        {nodes + 1, &self->nodes.row_starts},
        {nodes, &self->nodes.row_fields},
        {nodes, &self->nodes.row_scalars},
        {nodes, &self->nodes.row_samples},
    };
    return ew_model_buffers(model, wanted, RT_COUNT_OF(wanted), error);
}

static rt_status create(ew_model *model, void *part, rt_error *error)
{
    const rt_model_config *config = &model->config.model;
    sage *self = part;
    rt_status status = check(&model->config, error);
    if (status)
        return status;
    self->dim = config->embedding_dim;
    self->width = config->mlp[0];
    self->hidden_count = config->mlp[config->mlp_layer_count - 1];
    self->x_stride = ew_stride(FIELDS * self->dim);
    self->y_stride = ew_stride(FIELDS * self->width);
    self->inner.row_count_max = model->split.node_count_max;
    self->inner.output_stride = self->width; // as rows_back writes gradients of rows
    status = create_buffers(model, self, error);
    if (status)
        return status;
    status = ew_mlp_create(model, &self->inner, "inner", FIELDS * self->dim, config->mlp, 1, error);
    if (status)
        return status;
    status = ew_mlp_create(model, &self->outer, "outer", FIELDS * self->width, config->mlp + 1,
                           config->mlp_layer_count - 1, error);
    if (status)
        return status;
    ew_output_create(model, self->hidden_count, &self->output, &self->output_bias);
    return RT_OK;
}

// ---- passes ----------------------------------------------------------------------------------

static void set_nodes(const ew_model *model, sage *self)
{
    const ew_split *s = &model->split;
    ew_lookups *nodes = &self->nodes;
    nodes->sample_count = model->sample_count;
    nodes->field_count = FIELDS;
    nodes->lookup_count = nodes->row_count = s->node_count;
    nodes->dim = nodes->row_stride = self->width;
    nodes->pooling = RT_POOL_MEAN;
    nodes->lookup_rows = nodes->row_slots = s->numbers;
    nodes->bag_offsets = s->node_bags_there;
    nodes->slab = self->inner.output;
}

static void forward(ew_model *model, void *part)
{
    sage *self = part;
    const ew_layer_ops *layers = model->device->layers;
    void *state = model->device->state;
    set_nodes(model, self);
    layers->pool(state, &model->lookups, NULL, 0, self->x, self->x_stride);
    self->inner.row_count = model->split.node_count;
    ew_mlp_forward(model, &self->inner, self->x, self->x_stride);
    layers->pool(state, &self->nodes, NULL, 0, self->y, self->y_stride);
    ew_mlp_forward(model, &self->outer, self->y, self->y_stride);
    ew_linear_forward(model, self->output, self->outer.output, self->hidden_count,
                      self->outer.output_stride, 0);
    ew_bias_forward(model, self->output_bias);
}

static void backward(ew_model *model, void *part)
{
    sage *self = part;
    const ew_layer_ops *layers = model->device->layers;
    void *state = model->device->state;
    ew_bias_backward(model, self->output_bias);
    ew_linear_backward(model, self->output, self->outer.output, self->hidden_count,
                       self->outer.output_stride, self->outer.output_gradients);
    ew_model_done(model, self->output);
    ew_mlp_backward(model, &self->outer, FIELDS * self->width, 0, self->y_gradients,
                    self->y_stride);
    layers->index(state, &self->nodes);
    layers->rows_back(state, &self->nodes, self->y_gradients, self->y_stride, NULL,
                      self->inner.output_gradients);
    ew_mlp_backward(model, &self->inner, FIELDS * self->dim, 0, self->x_gradients, self->x_stride);
    layers->rows_back(state, &model->lookups, self->x_gradients, self->x_stride, NULL,
                      model->row_gradients);
}

const ew_model_kind ew_graphsage = {"graphsage", sizeof(sage), create, forward,
                                    backward,    false,        true};
