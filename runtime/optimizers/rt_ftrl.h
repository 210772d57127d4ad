// McMahan et al., KDD 2013, Algorithm 1. State: n (squares), then z. A row's initial values enter
// only through sigma, so the first steps largely replace them. l2 is the paper's lambda_2. The
// paper's gradients are those of single samples: a step takes their sum, for beta and the penalties
// are numbers of that size, beside which a mean over a batch is nothing.
static const rt_optimizer_about rt_ftrl_about = {{2, 0}, {1, 0}, 15};
RT_OPTIMIZER_ELEMENTWISE(rt_ftrl)

static inline void rt_ftrl_adapt(const rt_optimizer_config *config, uint64_t step,
                                 rt_optimizer_terms *terms)
{
    (void)config, (void)step;
    terms->l2 = 0; // it has its own
}

static RT_ANYWHERE inline void rt_ftrl_value(const rt_optimizer_config *config,
                                             rt_optimizer_terms terms, float raw, float *value,
                                             float *n, float *z)
{
    const float g = terms.scale * raw * rt_optimizer_summed(config), square = *n + g * g;
    const float root = sqrtf(square), sigma = (root - sqrtf(*n)) / terms.rate;
    const float z_next = *z + (g - sigma * *value);
    const float shrunk = fabsf(z_next) > config->l1 ? copysignf(config->l1, z_next) - z_next : 0;
    *n = square;
    *z = z_next;
    *value = shrunk / rt_optimizer_positive((config->beta + root) / terms.rate + config->l2);
}

#ifdef RT_OPTIMIZER_FORMULAS
#define rt_ftrl_bits UINT64_C(0xc1e3fb4c01fc8d57)
static void rt_ftrl_formula(const rt_optimizer_given *given, double *w, double *n, double *z)
{
    const rt_optimizer_config *c = given->config;
    const double before = *n, g = given->g;
    *n += g * g;
    *z += g - (sqrt(*n) - sqrt(before)) / given->rate * *w;
    const double shrunk = fabs(*z) <= c->l1 ? 0 : *z - (*z > 0 ? c->l1 : -c->l1);
    *w = -shrunk / ((c->beta + sqrt(*n)) / given->rate + c->l2);
}
#endif
