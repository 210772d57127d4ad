// Kingma, Ba, ICLR 2015, Algorithm 1. State: the first moment, then the second.
static const rt_optimizer_about rt_adam_about = {{2, 0}, {0, 0}, 14};
RT_OPTIMIZER_ELEMENTWISE(rt_adam)

static inline void rt_adam_adapt(const rt_optimizer_config *config, uint64_t step,
                                 rt_optimizer_terms *terms)
{
    rt_assert(step > 0);
    terms->rate = (float)(terms->rate / (1 - rt_optimizer_power(config->beta1, step)));
    terms->root = (float)(1 / sqrt(1 - rt_optimizer_power(config->beta2, step)));
}

static RT_ANYWHERE inline void rt_adam_value(const rt_optimizer_config *config,
                                             rt_optimizer_terms terms, float raw, float *value,
                                             float *first, float *second)
{
    const float g = rt_optimizer_shaped(terms, raw, *value);
    const float m = config->beta1 * *first + (1 - config->beta1) * g;
    const float v = config->beta2 * *second + (1 - config->beta2) * (g * g);
    *first = m;
    *second = v;
    *value -= terms.rate * m / rt_optimizer_positive(sqrtf(v) * terms.root + config->epsilon);
}

#ifdef RT_OPTIMIZER_FORMULAS
#define rt_adam_bits UINT64_C(0x2141794328004277)
static void rt_adam_formula(const rt_optimizer_given *given, double *w, double *m, double *v)
{
    const double beta1 = given->config->beta1, beta2 = given->config->beta2, t = given->t;
    *m = beta1 * *m + (1 - beta1) * given->g;
    *v = beta2 * *v + (1 - beta2) * given->g * given->g;
    *w -= given->rate * (*m / (1 - pow(beta1, t))) /
          (sqrt(*v / (1 - pow(beta2, t))) + given->config->epsilon);
}
#endif
