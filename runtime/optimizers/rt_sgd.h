// Stochastic gradient descent.
static const rt_optimizer_about rt_sgd_about = {{0, 0}, {0, 0}, 2};
RT_OPTIMIZER_PLAIN_TERMS(rt_sgd)
RT_OPTIMIZER_ELEMENTWISE(rt_sgd)

static RT_ANYWHERE inline void rt_sgd_value(const rt_optimizer_config *config,
                                            rt_optimizer_terms terms, float raw, float *value,
                                            float *first, float *second)
{
    (void)config, (void)first, (void)second;
    *value -= terms.rate * rt_optimizer_shaped(terms, raw, *value);
}

#ifdef RT_OPTIMIZER_FORMULAS
#define rt_sgd_bits UINT64_C(0x736f4ad8e1fb3f83)
static void rt_sgd_formula(const rt_optimizer_given *given, double *w, double *a, double *b)
{
    (void)a, (void)b;
    *w -= given->rate * given->g;
}
#endif
