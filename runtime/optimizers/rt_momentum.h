// Stochastic gradient descent with momentum. State: the velocity.
static const rt_optimizer_about rt_momentum_about = {{1, 0}, {0, 0}, 4};
RT_OPTIMIZER_PLAIN_TERMS(rt_momentum)
RT_OPTIMIZER_ELEMENTWISE(rt_momentum)

static RT_ANYWHERE inline void rt_momentum_value(const rt_optimizer_config *config,
                                                 rt_optimizer_terms terms, float raw, float *value,
                                                 float *velocity, float *second)
{
    (void)second;
    const float v = config->momentum * *velocity + rt_optimizer_shaped(terms, raw, *value);
    *velocity = v;
    *value -= terms.rate * v;
}

#ifdef RT_OPTIMIZER_FORMULAS
#define rt_momentum_bits UINT64_C(0xed3960465474e6d7)
static void rt_momentum_formula(const rt_optimizer_given *given, double *w, double *v, double *b)
{
    (void)b;
    *v = given->config->momentum * *v + given->g;
    *w -= given->rate * *v;
}
#endif
