// Every pair of columns is tried, the best are tried again with what has been chosen before.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/guess/rt_crosses_parts.h"

// What is learnt about one value is drawn towards zero as if so much had been seen of it before, in
// units of what a sample tells. Of pairs of values the first half of the samples says which is best.
#define PRIOR 2.0F
#define PRIORS 4u
static const float priors[PRIORS] = {0.5F, 3, 20, 100};

#define BLOCKS 20u         // of held out samples, by which the error of a gain is estimated
#define ERRORS_MIN 4.0     // a gain of fewer standard errors may be chance, among so many pairs
#define SHARE_MIN 0.0005   // of the log loss; a smaller gain is not worth its rows
#define CANDIDATES 12u     // are tried again
#define WORK_MAX 40000000u // pairs x samples, of the first trial
#define SCREENED_MIN 20000u
#define AGAIN_MIN 1.05 // samples for each value: ids that come once have nothing to be crossed for
#define MARGIN_MAX 30.0
#define PROGRESS_NS UINT64_C(500000000)

typedef struct {
    float weight, mass; // mass: of what was seen, PRIOR is added
} effect;

typedef struct {
    uint64_t key; // ids of both columns
    float weights[PRIORS], mass;
    uint32_t count; // 0: free
} cell;

typedef struct {
    uint32_t columns[2];
    uint32_t prior;
    double gain, error;
    uint64_t values, rows;
} pair;

typedef struct {
    cross_samples *samples;
    const rt_crosses_settings *settings;
    effect *effects[2]; // of the values of a pair's columns
    uint32_t effect_count;
    cell *cells;
    uint64_t cell_count_max; // a power of 2, at least twice the samples
    uint64_t cell_count;     // of these, as many as a pair needs
    pair *pairs;
    uint32_t pair_count;
    uint64_t begin_ns, shown_ns;
} choosing;

static double sigmoid(double margin)
{
    return 1 / (1 + exp(-margin));
}

// The loss, and the probability of label 1.
static double judge(double margin, bool label, double *p)
{
    const double x = fmin(fmax(margin, -MARGIN_MAX), MARGIN_MAX), e = exp(-x);
    *p = 1 / (1 + e);
    return log1p(e) + (label ? 0 : x);
}

// A Newton step towards what is likeliest, with the curvature of all steps so far.
static void learn(effect *one, double p, bool label)
{
    one->mass += (float)(p * (1 - p));
    one->weight += (float)((label - p) / (one->mass + PRIOR));
}

static cell *find(const choosing *c, uint64_t key)
{
    uint64_t slot = rt_mix(key) & (c->cell_count - 1);
    while (c->cells[slot].count != 0 && c->cells[slot].key != key)
        slot = (slot + 1) & (c->cell_count - 1);
    return &c->cells[slot];
}

// An empty table that has room for the pairs of values.
static void clear(choosing *c, const pair *one, uint64_t count)
{
    uint64_t values = 1;
    for (uint32_t k = 0; k < 2; k++) {
        const uint32_t own = c->samples->columns[one->columns[k]].values;
        memset(c->effects[k], 0, own * sizeof *c->effects[k]);
        values *= own;
    }
    c->cell_count = 2;
    while (c->cell_count < 2 * rt_min_u64(count, values))
        c->cell_count *= 2;
    memset(c->cells, 0, c->cell_count * sizeof *c->cells);
}

static void measure(const double sums[BLOCKS], uint64_t held_out, pair *one)
{
    double sum = 0, squares = 0;
    for (uint32_t b = 0; b < BLOCKS; b++)
        sum += sums[b];
    for (uint32_t b = 0; b < BLOCKS; b++)
        squares += (sums[b] - sum / BLOCKS) * (sums[b] - sum / BLOCKS);
    one->gain = sum / (double)held_out;
    one->error = sqrt(squares * BLOCKS / (BLOCKS - 1)) / (double)held_out;
}

// A sample as a pair sees it.
typedef struct {
    effect *effects[2];
    cell *both;
    uint64_t key;
    double alone; // log-odds without the cross
    bool label;
} view;

static view look(const choosing *c, const pair *one, uint64_t i)
{
    const cross_samples *samples = c->samples;
    uint32_t ids[2];
    view v = {.alone = samples->margins[i], .label = samples->labels[i]};
    for (uint32_t k = 0; k < 2; k++) {
        ids[k] = samples->ids[one->columns[k] * samples->capacity + i];
        v.effects[k] = &c->effects[k][ids[k]];
        v.alone += v.effects[k]->weight;
    }
    v.key = (uint64_t)ids[0] << 32 | ids[1];
    v.both = find(c, v.key);
    return v;
}

static void learn_effects(const view *v, double p)
{
    learn(v->effects[0], p, v->label);
    learn(v->effects[1], p, v->label);
}

// p: without the cross; with it, by each prior.
static void learn_cell(const view *v, double p, const double with[PRIORS])
{
    v->both->mass += (float)(p * (1 - p));
    for (uint32_t k = 0; k < PRIORS; k++)
        v->both->weights[k] += (float)(v->label - with[k]) / (v->both->mass + priors[k]);
}

// The pair on the first `count` samples, of which the second half is judged.
static void try_pair(choosing *c, pair *one, uint64_t count)
{
    const uint64_t first = count / 2;
    double begun[PRIORS] = {0}, sums[PRIORS][BLOCKS] = {{0}};
    clear(c, one, count);
    one->values = one->rows = 0;
    for (uint64_t i = 0; i < count; i++) {
        const view v = look(c, one, i);
        double p, with[PRIORS];
        const double before = judge(v.alone, v.label, &p);
        for (uint32_t k = 0; k < PRIORS; k++)
            *(i < first ? &begun[k] : &sums[k][(i - first) * BLOCKS / (count - first)]) +=
                before - judge(v.alone + v.both->weights[k], v.label, &with[k]);
        v.both->key = v.key;
        v.both->count++;
        one->values += v.both->count == 1;
        one->rows += v.both->count == c->settings->admit;
        if (v.both->count >= c->settings->admit)
            learn_cell(&v, p, with);
        learn_effects(&v, p);
    }
    one->prior = 0;
    for (uint32_t k = 1; k < PRIORS; k++)
        if (begun[k] > begun[one->prior])
            one->prior = k;
    measure(sums[one->prior], count - first, one);
}

// What all other samples say of a sample's pair of values: if margins lagged behind what can be
// known of it, a cross that says the same over again would gain.
static double said_by_others(const view *v, const choosing *c, uint32_t prior)
{
    const double all = v->both->weights[prior], mass = v->both->mass + priors[prior];
    double others = all;
    if (v->both->count <= c->settings->admit)
        return 0;
    for (uint32_t k = 0; k < 2; k++) // its own step began at what the others say
        others = all - (v->label - sigmoid(v->alone + others)) / mass;
    return others;
}

// Margins take in the pair.
static void keep(choosing *c, pair *one)
{
    const cross_samples *samples = c->samples;
    try_pair(c, one, samples->count);
    for (uint32_t k = 0; k < 2; k++)
        memset(c->effects[k], 0, samples->columns[one->columns[k]].values * sizeof *c->effects[k]);
    for (uint64_t i = 0; i < samples->count; i++) {
        const view v = look(c, one, i);
        samples->margins[i] = (float)(v.alone + said_by_others(&v, c, one->prior));
        learn_effects(&v, sigmoid(v.alone));
    }
}

static void show_progress(choosing *c, const char *what, uint32_t done, uint32_t of, bool is_last)
{
    const uint64_t now = rt_now_ns();
    if (!c->settings->progress || (!is_last && now - c->shown_ns < PROGRESS_NS))
        return;
    c->shown_ns = now;
    fprintf(stderr, "\r%s: %" PRIu32 " of %" PRIu32 ", %.1f/s%s", what, done, of,
            done * 1e9 / (double)(now - c->begin_ns + 1), is_last ? "\n" : "   ");
}

static double held_out_loss(const cross_samples *samples)
{
    double sum = 0, p;
    for (uint64_t i = samples->count / 2; i < samples->count; i++)
        sum += judge(samples->margins[i], samples->labels[i], &p);
    return sum / (double)(samples->count - samples->count / 2);
}

static bool is_crossed(const rt_config *config, const char *a, const char *b)
{
    for (uint32_t c = 0; c < config->stream.table.column_count; c++) {
        const rt_column *column = &config->stream.table.columns[c];
        if (column->from_count == 2 &&
            ((strcmp(column->from[0], a) == 0 && strcmp(column->from[1], b) == 0) ||
             (strcmp(column->from[0], b) == 0 && strcmp(column->from[1], a) == 0)))
            return true;
    }
    return false;
}

static const char *name_of(const choosing *c, const rt_config *config, uint32_t column)
{
    return config->stream.table.columns[c->samples->columns[column].column].name;
}

// Ids are numbers in the order in which values came first.
static bool is_copy(const cross_samples *samples, uint32_t column)
{
    const uint32_t *ids = samples->ids + column * samples->capacity;
    for (uint32_t i = 0; i < column; i++)
        if (samples->columns[i].values == samples->columns[column].values &&
            memcmp(samples->ids + i * samples->capacity, ids, samples->count * sizeof *ids) == 0)
            return true;
    return false;
}

static bool can_pair(const choosing *c, uint32_t column, rt_crosses *crosses)
{
    const uint32_t values = c->samples->columns[column].values;
    if (values < 2)
        crosses->left_out_one++;
    else if ((double)c->samples->count < AGAIN_MIN * values)
        crosses->left_out_many++;
    else if (is_copy(c->samples, column))
        crosses->left_out_same++;
    else
        return true;
    return false;
}

static rt_status list_pairs(choosing *c, const rt_config *config, rt_crosses *crosses,
                            rt_error *error)
{
    uint32_t columns[RT_FIELDS_MAX], count = 0;
    for (uint32_t i = 0; i < c->samples->column_count; i++)
        if (can_pair(c, i, crosses))
            columns[count++] = i;
    crosses->columns = count;
    c->pairs = rt_alloc((size_t)count * count / 2 + 1, sizeof *c->pairs);
    if (!c->pairs)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: pairs of %" PRIu32 " columns", count);
    for (uint32_t i = 0; i < count; i++) {
        c->effect_count =
            (uint32_t)rt_max_u64(c->effect_count, c->samples->columns[columns[i]].values);
        for (uint32_t k = i + 1; k < count; k++)
            if (!is_crossed(config, name_of(c, config, columns[i]), name_of(c, config, columns[k])))
                c->pairs[c->pair_count++] = (pair){.columns = {columns[i], columns[k]}};
    }
    crosses->pairs = c->pair_count;
    return RT_OK;
}

static int compare_gains(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    if (x->gain != y->gain)
        return x->gain < y->gain ? 1 : -1;
    if (x->columns[0] != y->columns[0])
        return x->columns[0] < y->columns[0] ? -1 : 1;
    return x->columns[1] < y->columns[1] ? -1 : 1;
}

static bool has_name(const rt_config *config, const rt_crosses *crosses, const char *name)
{
    for (uint32_t c = 0; c < config->stream.table.column_count; c++)
        if (strcmp(config->stream.table.columns[c].name, name) == 0)
            return true;
    for (uint32_t i = 0; i < crosses->count; i++)
        if (strcmp(crosses->items[i].name, name) == 0)
            return true;
    return false;
}

// A name that no column has: of both, or a number where they are too long or taken.
static void choose_name(const rt_config *config, const rt_crosses *crosses, rt_crosses_one *cross)
{
    char text[2 * RT_NAME_MAX + 4];
    snprintf(text, sizeof text, "%s x %s", cross->from[0], cross->from[1]);
    for (uint32_t n = 1; strlen(text) >= RT_NAME_MAX || has_name(config, crosses, text); n++)
        snprintf(text, sizeof text, "cross %" PRIu32, n);
    memcpy(cross->name, text, strlen(text) + 1);
}

static void describe(const choosing *c, const rt_config *config, const pair *one,
                     const rt_crosses *crosses, rt_crosses_one *cross)
{
    *cross = (rt_crosses_one){
        .gain = one->gain, .error = one->error, .values = one->values, .rows = one->rows};
    for (uint32_t k = 0; k < 2; k++)
        strcpy(cross->from[k], name_of(c, config, one->columns[k]));
    choose_name(config, crosses, cross);
}

// A cross with as many values as one of its columns is that column again.
static bool is_new(const choosing *c, const pair *one)
{
    const uint32_t a = c->samples->columns[one->columns[0]].values;
    const uint32_t b = c->samples->columns[one->columns[1]].values;
    return one->values > a && one->values > b;
}

static bool is_worth(const choosing *c, const pair *one, double log_loss)
{
    return is_new(c, one) && one->gain >= ERRORS_MIN * one->error &&
           one->gain >= SHARE_MIN * log_loss;
}

// The best of the candidates, with the crosses that are chosen already, again and again.
static void choose(choosing *c, const rt_config *config, rt_crosses *crosses)
{
    uint32_t left = (uint32_t)rt_min_u64(c->pair_count, CANDIDATES);
    while (left > 0 && crosses->count < RT_CROSSES_MAX) {
        c->begin_ns = rt_now_ns();
        for (uint32_t i = 0; i < left; i++) {
            try_pair(c, &c->pairs[i], c->samples->count);
            show_progress(c, "the best", i + 1, left, i + 1 == left);
        }
        qsort(c->pairs, left, sizeof *c->pairs, compare_gains);
        while (left > 0 && c->pairs[left - 1].gain <= 0)
            left--;
        uint32_t at = 0;
        while (at < left && !is_worth(c, &c->pairs[at], crosses->log_loss))
            at++;
        if (at == left) {
            if (left > 0)
                describe(c, config, &c->pairs[0], crosses, &crosses->refused);
            return;
        }
        describe(c, config, &c->pairs[at], crosses, &crosses->items[crosses->count]);
        crosses->count++;
        keep(c, &c->pairs[at]);
        memmove(&c->pairs[at], &c->pairs[at + 1], (left - at - 1) * sizeof *c->pairs);
        left--;
    }
}

static rt_status allocate(choosing *c, rt_error *error)
{
    c->cell_count_max = 2;
    while (c->cell_count_max < 2 * c->samples->count)
        c->cell_count_max *= 2;
    c->cells = rt_alloc(c->cell_count_max, sizeof *c->cells);
    for (uint32_t k = 0; k < 2; k++)
        c->effects[k] = rt_alloc(c->effect_count + 1, sizeof *c->effects[k]);
    if (c->cells && c->effects[0] && c->effects[1])
        return RT_OK;
    return rt_fail(error, RT_NO_MEMORY, "out of memory: values of a pair");
}

static void try_all(choosing *c, rt_crosses *crosses)
{
    const uint64_t count = c->samples->count;
    crosses->screened = count;
    if (c->pair_count > WORK_MAX / count)
        crosses->screened = rt_min_u64(count, rt_max_u64(SCREENED_MIN, WORK_MAX / c->pair_count));
    c->begin_ns = rt_now_ns();
    for (uint32_t i = 0; i < c->pair_count; i++) {
        try_pair(c, &c->pairs[i], crosses->screened);
        show_progress(c, "pairs", i + 1, c->pair_count, i + 1 == c->pair_count);
    }
    qsort(c->pairs, c->pair_count, sizeof *c->pairs, compare_gains);
}

rt_status cross_choose(cross_samples *samples, const rt_config *config,
                       const rt_crosses_settings *settings, rt_crosses *crosses, rt_error *error)
{
    choosing c = {.samples = samples, .settings = settings};
    crosses->held_out = samples->count - samples->count / 2;
    crosses->log_loss = held_out_loss(samples);
    rt_status status = list_pairs(&c, config, crosses, error);
    if (!status && crosses->columns < 2)
        status = rt_fail(error, RT_CONFIG,
                         "stream.table.columns: %" PRIu32
                         " categorical columns whose values come again, expected at least 2 to "
                         "cross",
                         crosses->columns);
    if (!status)
        status = allocate(&c, error);
    if (!status) {
        try_all(&c, crosses);
        choose(&c, config, crosses);
    }
    rt_free(c.pairs);
    rt_free(c.cells);
    rt_free(c.effects[0]);
    rt_free(c.effects[1]);
    return status;
}
