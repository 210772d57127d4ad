// Duchi, Hazan, Singer, JMLR 12 (2011), the diagonal form. State: the sum of squares.
static const rt_optimizer_about rt_adagrad_about = {{1, 0}, {1, 0}, 7};
RT_OPTIMIZER_PLAIN_TERMS(rt_adagrad)
RT_OPTIMIZER_ELEMENTWISE(rt_adagrad)

static RT_ANYWHERE inline void rt_adagrad_value(const rt_optimizer_config *config,
                                                rt_optimizer_terms terms, float raw, float *value,
                                                float *squares, float *second)
{
    (void)second;
    const float g = rt_optimizer_shaped(terms, raw, *value), square = *squares + g * g;
    *squares = square;
    *value -= terms.rate * g / rt_optimizer_positive(sqrtf(square) + config->epsilon);
}

#ifdef RT_OPTIMIZER_FORMULAS
#define rt_adagrad_bits UINT64_C(0x22284348fcd10935)
static void rt_adagrad_formula(const rt_optimizer_given *given, double *w, double *sum, double *b)
{
    (void)b;
    *sum += given->g * given->g;
    *w -= given->rate * given->g / (sqrt(*sum) + given->config->epsilon);
}
#endif
