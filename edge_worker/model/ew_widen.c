// The dense part of a model with fewer fields or labels goes into one with more.
//
// Rows of the last layer stand for labels, and more labels come behind.
//
// Columns (of a cross also rows) of a matrix stand for inputs. Those of pooled embeddings are field
// by field, those of pairs in the order of their larger number, and more fields come behind; so
// every input of the model with fewer fields has its place among those of the other.
#include <string.h>

#include "edge_worker/model/ew_model_parts.h"

#define NO_INPUT UINT32_MAX

typedef enum { SAME, POOLED, PAIRS, LABELS } inputs_kind;

// What stands for inputs along one dimension of a tensor: `head` others, then the fields' part.
typedef struct {
    inputs_kind kind;
    uint32_t head;
} inputs;

typedef struct {
    const ew_model *model;
    uint32_t old_fields, old_labels;
} widening;

static bool is_named(const ew_parameter *p, const char *name)
{
    return strcmp(p->name, name) == 0;
}

static uint32_t hidden_count(const ew_model *model)
{
    const rt_model_config *config = &model->config.model;
    return config->mlp[config->mlp_layer_count - 1];
}

static inputs inputs_of_columns(const ew_model *model, const ew_parameter *p)
{
    const ew_model_kind *kind = model->kind;
    const bool is_output = is_named(p, "output.weight"), is_first = is_named(p, "mlp.0.weight");
    if (is_named(p, "output.bias"))
        return (inputs){LABELS, 0};
    if (kind == &ew_wdl && is_first && model->config.model.deep_input == RT_DEEP_ALL)
        return (inputs){POOLED, 0};
    if ((kind == &ew_dfm || kind == &ew_din) && is_first)
        return (inputs){POOLED, 0};
    if ((kind == &ew_wdl || kind == &ew_dfm) && is_output)
        return (inputs){POOLED, hidden_count(model)};
    if (kind == &ew_dcn && (is_output || is_first || strncmp(p->name, "cross.", 6) == 0))
        return (inputs){POOLED, 0};
    if (kind == &ew_dlrm && is_named(p, "top.0.weight"))
        return (inputs){PAIRS, model->config.model.embedding_dim};
    return (inputs){SAME, 0};
}

// Beside labels: only the matrices of a cross give as many values as they take.
static inputs inputs_of_rows(const ew_model *model, const ew_parameter *p)
{
    if (is_named(p, "output.weight"))
        return (inputs){LABELS, 0};
    const bool is_square = !p->is_vector && p->row_count == p->column_count;
    if (model->kind == &ew_dcn && is_square && strncmp(p->name, "cross.", 6) == 0 &&
        !is_named(p, "cross.weight") && !is_named(p, "cross.bias"))
        return (inputs){POOLED, 0};
    return (inputs){SAME, 0};
}

static uint32_t old_count(const widening *w, inputs kind, uint32_t count)
{
    const uint32_t fields = w->model->config.field_count, old = w->old_fields;
    if (kind.kind == LABELS)
        return w->old_labels;
    if (kind.kind == POOLED)
        return count - (fields - old) * w->model->config.model.embedding_dim;
    if (kind.kind == PAIRS)
        return count - ((fields + 1) * fields - (old + 1) * old) / 2;
    return count;
}

// Pairs (a, b), b < a: a (a - 1) / 2 + b. The last vector of all is that of the dense features.
static uint32_t old_pair(const widening *w, uint32_t at)
{
    const uint32_t fields = w->model->config.field_count, old = w->old_fields;
    uint32_t a = 1;
    while (a * (a + 1) / 2 <= at)
        a++;
    const uint32_t b = at - a * (a - 1) / 2;
    if ((a >= old && a < fields) || b >= old)
        return NO_INPUT;
    if (a == fields)
        a = old;
    return a * (a - 1) / 2 + b;
}

// Where the input stood; NO_INPUT: it was not there.
static uint32_t old_input(const widening *w, inputs kind, uint32_t at)
{
    const uint32_t dim = w->model->config.model.embedding_dim;
    const uint32_t fields = w->model->config.field_count, old = w->old_fields;
    if (kind.kind == LABELS)
        return at < w->old_labels ? at : NO_INPUT;
    if (kind.kind == SAME || at < kind.head)
        return at;
    const uint32_t rest = at - kind.head;
    if (kind.kind == PAIRS) {
        const uint32_t pair = old_pair(w, rest);
        if (pair == NO_INPUT)
            return NO_INPUT;
        return kind.head + pair;
    }
    if (rest < old * dim)
        return at;
    if (rest < fields * dim)
        return NO_INPUT;
    return at - (fields - old) * dim;
}

static bool fits(const widening *w, const ew_parameter *p, const rt_tensor *found)
{
    const uint64_t rows = old_count(w, inputs_of_rows(w->model, p), p->row_count);
    const uint64_t columns = old_count(w, inputs_of_columns(w->model, p), p->column_count);
    if (!found)
        return false;
    if (p->is_vector)
        return found->rank == 1 && found->shape[0] == columns;
    return found->rank == 2 && found->shape[0] == rows && found->shape[1] == columns;
}

static bool all_fit(const widening *w, const rt_tensors *file)
{
    const ew_model *model = w->model;
    for (uint32_t i = 0; i < model->parameter_count; i++)
        if (!fits(w, &model->parameters[i], rt_tensors_find(file, model->parameters[i].name)))
            return false;
    return true;
}

static void widen(const widening *w, const ew_parameter *p, const float *old, float *values)
{
    const inputs rows = inputs_of_rows(w->model, p), columns = inputs_of_columns(w->model, p);
    const uint32_t old_columns = old_count(w, columns, p->column_count);
    const uint32_t row_count = p->is_vector ? 1 : p->row_count;
    for (uint32_t r = 0; r < row_count; r++) {
        const uint32_t old_r = old_input(w, rows, r);
        for (uint32_t c = 0; c < p->column_count; c++) {
            const uint32_t old_c = old_input(w, columns, c);
            float *value = &values[(size_t)r * p->column_count + c];
            *value = 0;
            if (old_r != NO_INPUT && old_c != NO_INPUT)
                *value = old[(size_t)old_r * old_columns + old_c];
        }
    }
}

rt_status ew_model_begin_with(ew_model *model, const rt_tensors *file, rt_error *error)
{
    const rt_tensor *bias = rt_tensors_find(file, "output.bias");
    widening w = {model, model->config.field_count, model->label_count};
    if (bias && bias->rank == 1 && bias->shape[0] >= 1 && bias->shape[0] < w.old_labels)
        w.old_labels = (uint32_t)bias->shape[0];
    while (w.old_fields > 0 && !all_fit(&w, file))
        w.old_fields--;
    if (w.old_fields == 0 ||
        (w.old_fields == model->config.field_count && w.old_labels == model->label_count))
        return ew_model_load(model, file, error);
    float *values = rt_alloc(model->float_count, sizeof *values);
    if (!values)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the dense part");
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const ew_parameter *p = &model->parameters[i];
        widen(&w, p, rt_tensors_find(file, p->name)->values, values + p->offset);
    }
    rt_status status = ew_model_dense_write(model, EW_VALUES, values, error);
    rt_free(values);
    return status;
}
