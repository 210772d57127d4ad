// Adagrad with one accumulator per row, of the mean of the squares (as DLRM and FBGEMM do). What it
// leaves of the learning rate is all values' rate.
static const rt_optimizer_about rt_rowwise_adagrad_about = {{0, 1}, {0, 1}, 4};
RT_OPTIMIZER_PLAIN_TERMS(rt_rowwise_adagrad)

static RT_ANYWHERE inline float rt_rowwise_adagrad_settle(const rt_optimizer_config *config,
                                                          float rate, uint32_t dim, double squares,
                                                          float *state)
{
    const float square = *state + (float)squares / (float)dim;
    *state = square;
    return rate / rt_optimizer_positive(sqrtf(square) + config->epsilon);
}

static RT_ANYWHERE inline void rt_rowwise_adagrad_value(const rt_optimizer_config *config,
                                                        rt_optimizer_terms terms, float raw,
                                                        float *value, float *first, float *second)
{
    (void)config, (void)first, (void)second;
    *value -= terms.rate * rt_optimizer_shaped(terms, raw, *value);
}

#ifdef RT_OPTIMIZER_FORMULAS
#define rt_rowwise_adagrad_bits UINT64_C(0x2be6b5f098861874)
static void rt_rowwise_adagrad_formula(const rt_optimizer_given *given, double *w, double *sum,
                                       double *b)
{
    (void)b;
    *sum += given->mean_square;
    *w -= given->rate * given->g / (sqrt(*sum) + given->config->epsilon);
}
#endif
