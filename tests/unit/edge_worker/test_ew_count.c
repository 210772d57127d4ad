// What models cost, counted, against closed formulas; and the table of docs/MODELS.md against that.
#include "edge_worker/model/ew_count.h"
#include "runtime/config/rt_models.h"
#include "runtime/config/rt_optimizers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

#define DOCUMENT "docs/MODELS.md"
#define BEGIN "<!-- begin: counts, written by tests/unit/edge_worker/test_ew_count -->\n"
#define END "<!-- end -->"
#define SAMPLES 256u

static const rt_optimizer_config adagrad = {.kind = RT_OPTIMIZER_ADAGRAD};

static const struct {
    const char *name;
    rt_model_kind kind;
    rt_deep_input deep;
    rt_cross cross;
} models[] = {
    {"wdl, deep_input dense", RT_MODEL_WDL, RT_DEEP_DENSE, RT_CROSS_VECTOR},
    {"wdl, deep_input all", RT_MODEL_WDL, RT_DEEP_ALL, RT_CROSS_VECTOR},
    {"dfm", RT_MODEL_DFM, RT_DEEP_ALL, RT_CROSS_VECTOR},
    {"dcn, cross vector", RT_MODEL_DCN, RT_DEEP_ALL, RT_CROSS_VECTOR},
    {"dcn, cross matrix", RT_MODEL_DCN, RT_DEEP_ALL, RT_CROSS_MATRIX},
    {"dlrm", RT_MODEL_DLRM, RT_DEEP_ALL, RT_CROSS_VECTOR},
    {"ncf", RT_MODEL_NCF, RT_DEEP_ALL, RT_CROSS_VECTOR},
    {"din", RT_MODEL_DIN, RT_DEEP_ALL, RT_CROSS_VECTOR},
    {"graphsage", RT_MODEL_GRAPHSAGE, RT_DEEP_ALL, RT_CROSS_VECTOR},
};

static ew_model_config config_of(size_t index)
{
    const bool ncf = models[index].kind == RT_MODEL_NCF;
    const bool graph = models[index].kind == RT_MODEL_GRAPHSAGE;
    const uint32_t fields = ncf ? 2 : graph ? 21 : 26;
    rt_tables tables = {.are_shared = graph || models[index].kind == RT_MODEL_DIN,
                        .field_count = fields}; // one table, as far as anybody looks
    for (uint32_t f = 1; f < fields; f++)
        tables.borrows[f] = graph || f == 25;
    return (ew_model_config){.model = {.kind = models[index].kind,
                                       .embedding_dim = 16,
                                       .deep_input = models[index].deep,
                                       .cross = models[index].cross,
                                       .cross_layer_count = 3,
                                       .mlp_layer_count = 3,
                                       .mlp = {256, 256, 256},
                                       .mlp_bottom_layer_count = 2,
                                       .mlp_bottom = {256, 64},
                                       .attention_layer_count = 1,
                                       .attention = {36},
                                       .pooling = graph ? RT_POOL_MEAN : RT_POOL_SUM,
                                       .fan_out = 10},
                             .tables = tables,
                             .sequence_field = 25,
                             .optimizer = adagrad,
                             .dense_count = ncf || graph ? 0 : 13,
                             .field_count = fields,
                             .sample_count_max = SAMPLES,
                             .lookup_count_max = SAMPLES * fields,
                             .row_count_max = SAMPLES * fields};
}

static ew_model_counts count_of(const ew_model_config *config)
{
    ew_model_counts counts;
    rt_error error = {0};
    if (ew_count_model(config, &adagrad, SAMPLES, &counts, &error))
        fail_msg("%s", error.text);
    return counts;
}

// Weights of matrix products, and all weights, as docs/MODELS.md has them.
typedef struct {
    uint64_t products; // multiplied with every sample, once in the forward pass
    uint64_t all;
    uint64_t inputs; // of them those whose inputs get no gradient
} weights;

static weights mlp_of(uint64_t inputs, const uint32_t *widths, uint32_t count)
{
    weights sum = {0};
    for (uint32_t i = 0; i < count; i++) {
        sum.products += inputs * widths[i];
        sum.all += (inputs + 1) * widths[i];
        inputs = widths[i];
    }
    return sum;
}

static weights formula_of(const ew_model_config *c)
{
    const uint64_t F = c->field_count, d = c->model.embedding_dim, D = c->dense_count;
    const uint64_t n = F * d + D, w = 256, L = c->model.cross_layer_count;
    const uint32_t bottom[] = {256, 64, (uint32_t)d}, *mlp = c->model.mlp;
    weights sum, low;
    switch (c->model.kind) {
    case RT_MODEL_WDL:
        sum = mlp_of(c->model.deep_input == RT_DEEP_ALL ? n : D, mlp, 3);
        return (weights){sum.products + w, sum.all + w + F * d + 1, D * 256};
    case RT_MODEL_DFM:
        sum = mlp_of(n, mlp, 3);
        return (weights){sum.products + w + D, sum.all + w + n + 1, D * 256 + D};
    case RT_MODEL_DCN:
        sum = mlp_of(n, mlp, 3);
        if (c->model.cross == RT_CROSS_MATRIX)
            return (weights){sum.products + w + n + L * n * n,
                             sum.all + L * (n * n + n) + n + w + 1, D * 256};
        return (weights){sum.products + w + (L + 1) * n, sum.all + 2 * L * n + n + w + 1, D * 256};
    case RT_MODEL_DLRM:
        low = mlp_of(D, bottom, 3);
        sum = mlp_of(d + F * (F + 1) / 2, mlp, 3);
        return (weights){low.products + sum.products + w, low.all + sum.all + w + 1, D * 256};
    case RT_MODEL_NCF:
        sum = mlp_of(d, mlp, 3);
        return (weights){sum.products + w, sum.all + d / 2 + w + 1, 0};
    case RT_MODEL_DIN:
        sum = mlp_of(n, mlp, 3);
        low = mlp_of(3 * d, c->model.attention, 1);
        // Besides weights: a is spread over d columns, once; back it is their sum, and the target's
        // gradients are added by a product with ones (d x d).
        return (weights){sum.products + w + low.products + 36 + d, sum.all + w + 1 + low.all + 37,
                         D * 256 + d - d * d};
    case RT_MODEL_GRAPHSAGE:
        low = mlp_of(2 * d, mlp, 1);
        sum = mlp_of(2 * 256, mlp + 1, 2);
        // The first layer is computed of every node: a sample's own and its 10 neighbours.
        return (weights){sum.products + w + 11 * low.products, sum.all + w + 1 + low.all, 0};
    }
    return (weights){0};
}

// Every weight of a product makes two operations per sample forward, and four backward: its own
// gradient, and that of its input, unless nobody needs that.
static void counts_follow_the_formulas(void **state)
{
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(models); i++) {
        const ew_model_config config = config_of(i);
        const ew_model_counts counts = count_of(&config);
        const weights want = formula_of(&config);
        printf("%s\n", models[i].name); // shown when the case fails
        assert_int_equal(counts.parameter_count, want.all);
        assert_int_equal(counts.forward.gemm_flops, 2 * SAMPLES * want.products);
        assert_int_equal(counts.pass.gemm_flops, 2 * SAMPLES * (3 * want.products - want.inputs));
        assert_int_equal(counts.step.gemm_flops, 0);
        uint64_t rows = (uint64_t)SAMPLES * config.field_count * config.model.embedding_dim;
        assert_int_equal(counts.step.flops, 7 * (want.all + rows)); // Adagrad
        assert_int_equal(counts.step.bytes,
                         4 * 5 * (want.all + rows)); // value, square: r/w; gradient
        assert_true(counts.forward.bytes > 0 && counts.pass.bytes > counts.forward.bytes);
    }
}

// Bagpipe, Table 2.
static void a_shape_of_a_paper(void **state)
{
    (void)state;
    ew_model_config config = config_of(0);
    config.model.embedding_dim = 48;
    assert_int_equal(count_of(&config).parameter_count, 136673);
}

// A step over so many samples costs so many times more, but for what is there once.
static void counts_are_proportional(void **state)
{
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(models); i++) {
        ew_model_config config = config_of(i);
        ew_model_counts half, all = count_of(&config);
        rt_error error = {0};
        assert_int_equal(ew_count_model(&config, &adagrad, SAMPLES / 2, &half, &error), RT_OK);
        assert_int_equal(2 * half.pass.gemm_flops, all.pass.gemm_flops);
        assert_true(2 * half.pass.bytes >= all.pass.bytes && half.pass.bytes < all.pass.bytes);
    }
}

static double thousands(uint64_t a, uint64_t b)
{
    return (double)(a + b) / SAMPLES / 1000;
}

static void write_table(char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size,
                                   "| model | dense weights | prediction | forward, backward | "
                                   "optimizers | KB forward, backward | KB optimizers |\n"
                                   "|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < RT_COUNT_OF(models); i++) {
        const ew_model_config config = config_of(i);
        const ew_model_counts c = count_of(&config);
        used += (size_t)snprintf(
            text + used, size - used, "| %s | %u | %.0f | %.0f | %.1f | %.1f | %.1f |\n",
            models[i].name, c.parameter_count, thousands(c.forward.gemm_flops, c.forward.flops),
            thousands(c.pass.gemm_flops, c.pass.flops), thousands(c.step.flops, 0),
            thousands(c.pass.gemm_bytes, c.pass.bytes), thousands(c.step.bytes, 0));
        assert_true(used < size);
    }
}

static void rewrite(const char *text, const char *begin, const char *table, const char *end)
{
    FILE *file = fopen(DOCUMENT, "w");
    assert_non_null(file);
    assert_true(fprintf(file, "%.*s%s%s", (int)(begin - text), text, table, end) > 0);
    assert_int_equal(fclose(file), 0);
}

static void the_document_has_these_counts(void **state)
{
    (void)state;
    static char text[1 << 16], table[1 << 12];
    FILE *file = fopen(DOCUMENT, "r");
    if (!file)
        test_skip("run from the repository's root: " DOCUMENT " is not here");
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    char *begin = strstr(text, BEGIN), *end = strstr(text, END);
    assert_true(begin && end && begin < end);
    begin += strlen(BEGIN);
    write_table(table, sizeof table);
    if (getenv("LANYARD_UPDATE_DOCS"))
        rewrite(text, begin, table, end);
    else if (strncmp(begin, table, strlen(table)) != 0 || begin + strlen(table) != end)
        fail_msg(DOCUMENT " has another table than this (LANYARD_UPDATE_DOCS=1 writes it):\n%s",
                 table);
}

TEST_MAIN(TEST(counts_follow_the_formulas), TEST(a_shape_of_a_paper), TEST(counts_are_proportional),
          TEST(the_document_has_these_counts))
