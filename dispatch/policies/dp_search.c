#include "dispatch/policies/dp_search_parts.h"

#include <math.h>
#include <string.h>

#define CANDIDATES 12u // samples per pair of workers that a swap considers
#define SWAP_TRIES 3u
#define PASSES_MAX 64u
#define STOP_SHARE 200u // a pass that improves less than 1/200 of the samples is the last

typedef int32_t lanes __attribute__((vector_size(LANES * sizeof(int32_t))));

rt_status dp_search_create(uint32_t worker_count, uint32_t box_count, uint32_t sample_count_max,
                           uint32_t lookup_count_max, dp_search **search_p)
{
    dp_search *s = rt_alloc(1, sizeof *s);
    if (!s)
        return RT_NO_MEMORY;
    s->worker_count = worker_count;
    s->lane_count = (worker_count + LANES - 1) / LANES * LANES;
    size_t rows = (size_t)sample_count_max * s->lane_count;
    s->classes = rt_alloc((size_t)CLASSES_MAX * (box_count + 1), sizeof *s->classes);
    s->keys = rt_alloc(lookup_count_max, sizeof *s->keys);
    s->shared_of = rt_alloc(lookup_count_max, sizeof *s->shared_of);
    s->key_count_max = lookup_count_max / 2 + 1;
    s->uses = rt_alloc(s->key_count_max, worker_count);
    s->ends = rt_alloc(sample_count_max, sizeof *s->ends);
    s->members = rt_alloc(lookup_count_max, sizeof *s->members);
    s->base = rt_alloc(rows, sizeof *s->base);
    s->scores = rt_alloc(rows, sizeof *s->scores);
    s->worker_of = rt_alloc(sample_count_max, sizeof *s->worker_of);
    s->singles = rt_alloc(sample_count_max, sizeof *s->singles);
    s->order = rt_alloc(sample_count_max, sizeof *s->order);
    s->scratch = rt_alloc(sample_count_max, sizeof *s->scratch);
    s->candidates = rt_alloc((size_t)worker_count * worker_count * CANDIDATES, sizeof(uint32_t));
    if (!s->classes || !s->keys || !s->shared_of || !s->uses || !s->ends || !s->members ||
        !s->base || !s->scores || !s->worker_of || !s->singles || !s->order || !s->scratch ||
        !s->candidates) {
        dp_search_destroy(s);
        return RT_NO_MEMORY;
    }
    *search_p = s;
    return RT_OK;
}

void dp_search_destroy(dp_search *s)
{
    if (!s)
        return;
    rt_free(s->classes);
    rt_free(s->keys);
    rt_free(s->shared_of);
    rt_free(s->uses);
    rt_free(s->ends);
    rt_free(s->members);
    rt_free(s->base);
    rt_free(s->scores);
    rt_free(s->worker_of);
    rt_free(s->singles);
    rt_free(s->order);
    rt_free(s->scratch);
    rt_free(s->candidates);
    rt_free(s);
}

// ---- the problem -----------------------------------------------------------------------------

// What the rows of one sample cost at most: beside the price of a sample, and less than that of
// another place, it fits into 32 bits.
#define ROWS_PRICE_MAX 1e9

static uint32_t most_keys_of_a_sample(const dp_view *view)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < view->sample_count; i++)
        most = (uint32_t)rt_max_u64(most, view->offsets[i + 1] - view->offsets[i]);
    return most;
}

// By how much prices are scaled down. At most every key of a sample is one that all workers train
// and that somebody has to push: with many workers, or a parameter server whose link is said to be
// very slow, that would be too much.
static double scale_of(const dp_search *s, const dp_prices *prices)
{
    const dp_ticks *ticks = s->view->ticks;
    double highest = 0, served = 0; // what the box of a row adds to a transfer, at most
    for (uint32_t f = 0; f < ticks->field_count; f++)
        for (uint32_t b = 0; b < ticks->box_count; b++)
            served = fmax(served, fmax(ticks->box_up[f][b] * prices->box_up[b],
                                       fmax(ticks->box_down[f][b], ticks->box_grad[f][b]) *
                                           prices->box_down[b]));
    for (uint32_t f = 0; f < ticks->field_count; f++) {
        double all = 0, push_max = 0;
        for (uint32_t j = 0; j < s->worker_count; j++) {
            const double push = ticks->push[f][j] * prices->up[j] + served;
            all += ticks->pull[f][j] * prices->down[j] + served +
                   fmax(ticks->grad[f][j] * prices->up[j] + served, push * DP_SEARCH_LATER);
            push_max = fmax(push_max, push);
        }
        highest = fmax(highest, all + push_max);
    }
    highest *= most_keys_of_a_sample(s->view);
    if (highest <= ROWS_PRICE_MAX)
        return 1;
    return ROWS_PRICE_MAX / highest;
}

static int32_t weighted(int32_t ticks, double weight)
{
    return (int32_t)rint(ticks * weight);
}

// Of a row on a box. What passes links counts on both of them.
static void price_on_box(const dp_search *s, const dp_prices *prices, uint32_t field, uint32_t box,
                         uint32_t j, row_class *c)
{
    const dp_ticks *ticks = s->view->ticks;
    const uint32_t own = ticks->box_of[j];
    const double up = prices->box_up[own] * s->scale, down = prices->box_down[own] * s->scale;
    const bool stays = ticks->homes_move && ticks->shard_boxes >> own & 1;
    if (box == DP_NO_BOX) { // it is made where it is trained; others' gradients go there
        c->grad[j] = weighted(ticks->grad[field][j], up);
        return;
    }
    if (box == own)
        return;
    const double there_up = prices->box_up[box] * s->scale;
    const double there_down = prices->box_down[box] * s->scale;
    c->pull[j] =
        weighted(ticks->pull[field][j], down) + weighted(ticks->box_up[field][box], there_up);
    c->push[j] =
        weighted(ticks->push[field][j], up) + weighted(ticks->box_down[field][box], there_down);
    c->grad[j] =
        weighted(ticks->grad[field][j], up) + weighted(ticks->box_grad[field][box], there_down);
    c->later[j] = stays ? 0 : (int32_t)(c->push[j] * DP_SEARCH_LATER);
}

static void price_on_link(const dp_search *s, const dp_prices *prices, uint32_t field, uint32_t j,
                          row_class *c)
{
    const dp_ticks *ticks = s->view->ticks;
    const double up = prices->up[j] * s->scale, down = prices->down[j] * s->scale;
    c->pull[j] = weighted(ticks->pull[field][j], down);
    c->push[j] = weighted(ticks->push[field][j], up);
    c->grad[j] = weighted(ticks->grad[field][j], up);
    c->later[j] = weighted(ticks->push[field][j], up * DP_SEARCH_LATER);
}

// What a row owes that worker alone trains now. That next trains it then is what is expected of a
// batch which is not placed yet: it counts in part.
static int32_t later_of(const row_class *c, uint8_t next, uint32_t worker)
{
    if (next == DP_NO_NEXT)
        return c->later[worker];
    const int32_t then = worker == next ? -c->pull[worker] : c->push[worker];
    return c->later[worker] + (then - c->later[worker]) / DP_SEARCH_EXPECTED;
}

static void fill_class(const dp_search *s, const dp_prices *prices, uint32_t field, uint32_t box,
                       row_class *c)
{
    memset(c, 0, sizeof *c);
    for (uint32_t j = 0; j < s->worker_count; j++) {
        if (s->view->ticks->box_count)
            price_on_box(s, prices, field, box, j, c);
        else
            price_on_link(s, prices, field, j, c);
        // Bounded staleness: each of several trainers has a copy to push later, as one alone has.
        if (s->view->owed)
            c->grad[j] = c->later[j];
        if (s->view->always_summed)
            c->later[j] = c->grad[j];
        c->both[j] = c->pull[j] + c->grad[j];
        c->alone[j] = c->pull[j] + c->later[j];
    }
}

static bool cost_the_same(const dp_ticks *ticks, uint32_t a, uint32_t b)
{
    const size_t size = ticks->worker_count * sizeof **ticks->pull;
    return memcmp(ticks->pull[a], ticks->pull[b], size) == 0 &&
           memcmp(ticks->push[a], ticks->push[b], size) == 0 &&
           memcmp(ticks->grad[a], ticks->grad[b], size) == 0;
}

// The class of a key: that of its field, and of where it is.
static uint16_t class_of(const dp_search *s, const dp_distinct *d)
{
    const uint32_t boxes = s->view->ticks->box_count; // 0: rows are nowhere
    const uint32_t box = (uint32_t)rt_min_u64(d->box, boxes);
    return (uint16_t)(s->class_of_field[d->field] * (boxes + 1) + box);
}

static void fill_classes(dp_search *s, const dp_prices *prices, uint32_t field, uint32_t class)
{
    const uint32_t boxes = s->view->ticks->box_count;
    row_class *first = &s->classes[class * (boxes + 1)]; // of the boxes; behind them that of none
    for (uint32_t b = 0; b < boxes; b++)
        fill_class(s, prices, field, b, &first[b]);
    fill_class(s, prices, field, DP_NO_BOX, &first[boxes]);
}

// Fields whose rows are equally large share a class.
static void make_classes(dp_search *s, const dp_prices *prices)
{
    const dp_ticks *ticks = s->view->ticks;
    uint32_t first_field[CLASSES_MAX];
    s->class_count = 0;
    for (uint32_t f = 0; f < ticks->field_count; f++) {
        uint32_t c = 0;
        while (c < s->class_count && !cost_the_same(ticks, f, first_field[c]))
            c++;
        if (c == s->class_count) {
            first_field[s->class_count++] = f;
            fill_classes(s, prices, f, c);
        }
        s->class_of_field[f] = (uint16_t)c;
    }
}

static uint8_t dirty_owner(const dp_distinct *d, const row_class *c)
{
    if (!d->dirty || !d->holders)
        return NO_OWNER;
    uint32_t best = rt_lowest_bit(d->holders);
    for (uint64_t rest = d->holders; rest; rest &= rest - 1) {
        uint32_t j = rt_lowest_bit(rest);
        best = c->push[j] < c->push[best] ? j : best;
    }
    return (uint8_t)best;
}

// A stage of the preparation, in parts: of the distinct keys, or of the samples.
typedef struct {
    dp_search *s;
    uint32_t part_count;
    uint32_t keys[PARTS_MAX + 1];    // shared ones of the parts before
    int32_t samples[RT_WORKERS_MAX]; // what one more costs, by worker
} preparing;

static bool is_shared(const dp_distinct *distinct)
{
    return distinct->uses >= 2 && distinct->uses <= USES_MAX;
}

static void count_some(void *context, uint32_t part)
{
    preparing *all = context;
    const dp_view *view = all->s->view;
    const uint32_t end = dp_search_part_begin(view->distinct_count, part + 1, all->part_count);
    uint32_t count = 0;
    for (uint32_t d = dp_search_part_begin(view->distinct_count, part, all->part_count); d < end;
         d++)
        count += is_shared(&view->distinct[d]);
    all->keys[part + 1] = count;
}

static shared_key key_of(const dp_search *s, uint32_t d)
{
    const dp_view *view = s->view;
    const dp_distinct *distinct = &view->distinct[d];
    const uint16_t class = class_of(s, distinct);
    const row_class *c = &s->classes[class];
    const uint8_t owner = dirty_owner(distinct, c);
    return (shared_key){.held = distinct->holders,
                        .owed = view->owed ? view->owed[d] : 0,
                        .owner_push = owner == NO_OWNER ? 0 : c->push[owner],
                        .row_class = class,
                        .owner = owner,
                        .next = view->next ? view->next[d] : DP_NO_NEXT};
}

static void collect_some(void *context, uint32_t part)
{
    const preparing *all = context;
    dp_search *s = all->s;
    const uint32_t count = s->view->distinct_count;
    const uint32_t end = dp_search_part_begin(count, part + 1, all->part_count);
    uint32_t k = all->keys[part];
    for (uint32_t d = dp_search_part_begin(count, part, all->part_count); d < end; d++) {
        s->shared_of[d] = NONE;
        if (!is_shared(&s->view->distinct[d]))
            continue;
        s->shared_of[d] = k;
        s->keys[k++] = key_of(s, d);
    }
}

static void collect_keys(preparing *all)
{
    rt_pool *pool = all->s->view->pool;
    rt_pool_run(pool, all->part_count, count_some, all);
    for (uint32_t part = 0; part < all->part_count; part++)
        all->keys[part + 1] += all->keys[part];
    all->s->key_count = all->keys[all->part_count];
    rt_pool_run(pool, all->part_count, collect_some, all);
}

// A key of this sample alone: its trainer pulls it, unless it holds it, and will own it.
static void add_single(const dp_search *s, const dp_distinct *d, uint64_t owed, uint8_t next,
                       int32_t *row)
{
    const row_class *c = &s->classes[class_of(s, d)];
    uint8_t owner = dirty_owner(d, c);
    int32_t push = owner == NO_OWNER ? 0 : c->push[owner];
    for (uint32_t j = 0; j < s->lane_count; j++)
        row[j] += c->alone[j] + push;
    for (uint32_t j = 0; next != DP_NO_NEXT && j < s->worker_count; j++)
        row[j] += later_of(c, next, j) - c->later[j];
    for (uint64_t rest = d->holders; rest; rest &= rest - 1) {
        uint32_t j = rt_lowest_bit(rest);
        row[j] -= c->pull[j];
    }
    for (uint64_t rest = owed; rest; rest &= rest - 1)
        row[rt_lowest_bit(rest)] += c->push[rt_lowest_bit(rest)];
    // A sole holder that trains the row again does not push it; one of several would have to.
    if (owner != NO_OWNER && d->holders == rt_bit(owner))
        row[owner] -= push;
}

static void collect_sample(dp_search *s, uint32_t sample, const int32_t *price)
{
    const dp_view *view = s->view;
    int32_t *row = s->base + (size_t)sample * s->lane_count;
    uint32_t *member = s->members + view->offsets[sample];
    uint32_t singles = 0;
    memset(row, 0, s->lane_count * sizeof *row);
    memcpy(row, price, s->worker_count * sizeof *row);
    for (uint32_t k = view->offsets[sample]; k < view->offsets[sample + 1]; k++) {
        const uint32_t d = view->lookups[k];
        if (s->shared_of[d] != NONE) {
            *member++ = s->shared_of[d];
        } else if (view->distinct[d].uses == 1) {
            add_single(s, &view->distinct[d], view->owed ? view->owed[d] : 0,
                       view->next ? view->next[d] : DP_NO_NEXT, row);
            singles++;
        }
    }
    s->ends[sample] = (uint32_t)(member - s->members);
    s->singles[sample] = singles;
    // What is known without evaluating; not the scores of the batch before: a resumed run has none.
    memcpy(s->scores + (size_t)sample * s->lane_count, row, s->lane_count * sizeof *row);
}

static void sample_some(void *context, uint32_t part)
{
    const preparing *all = context;
    const uint32_t count = all->s->sample_count;
    const uint32_t end = dp_search_part_begin(count, part + 1, all->part_count);
    for (uint32_t i = dp_search_part_begin(count, part, all->part_count); i < end; i++)
        collect_sample(all->s, i, all->samples);
}

static void set_problem(dp_search *s, const dp_view *view, const dp_prices *prices)
{
    preparing all = {.s = s, .part_count = dp_search_parts(view)};
    s->view = view;
    s->worker_count = view->worker_count;
    s->sample_count = view->sample_count;
    s->scale = scale_of(s, prices);
    make_classes(s, prices);
    collect_keys(&all);
    for (uint32_t j = 0; j < s->worker_count; j++)
        all.samples[j] = weighted(prices->sample[j], s->scale);
    rt_pool_run(view->pool, all.part_count, sample_some, &all);
}

// ---- placing ---------------------------------------------------------------------------------

// What a worker moves to have the row.
static int32_t pull_of(const shared_key *key, const row_class *c, uint32_t worker)
{
    return (key->held >> worker & 1 ? 0 : c->pull[worker]) +
           (key->owed >> worker & 1 ? c->push[worker] : 0);
}

static inline uint8_t *uses_of(const dp_search *s, uint32_t k, uint32_t worker)
{
    return &s->uses[(size_t)worker * s->key_count_max + k];
}

static void enter(dp_search *s, uint32_t k, uint32_t worker)
{
    shared_key *key = &s->keys[k];
    if ((*uses_of(s, k, worker))++)
        return;
    const row_class *c = &s->classes[key->row_class];
    s->rows[worker]++;
    key->users |= rt_bit(worker);
    key->grad_sum += c->grad[worker];
    key->pull_sum += pull_of(key, c, worker);
}

static void leave(dp_search *s, uint32_t k, uint32_t worker)
{
    shared_key *key = &s->keys[k];
    if (--*uses_of(s, k, worker))
        return;
    const row_class *c = &s->classes[key->row_class];
    s->rows[worker]--;
    key->users &= ~rt_bit(worker);
    key->grad_sum -= c->grad[worker];
    key->pull_sum -= pull_of(key, c, worker);
}

static void put(dp_search *s, uint32_t sample, uint32_t worker)
{
    for (uint32_t m = s->view->offsets[sample]; m < s->ends[sample]; m++)
        enter(s, s->members[m], worker);
    s->worker_of[sample] = worker;
    s->rows[worker] += s->singles[sample];
    s->loads[worker]++;
}

static void take(dp_search *s, uint32_t sample)
{
    uint32_t worker = s->worker_of[sample];
    for (uint32_t m = s->view->offsets[sample]; m < s->ends[sample]; m++)
        leave(s, s->members[m], worker);
    s->rows[worker] -= s->singles[sample];
    s->loads[worker]--;
}

// A whole placement, in parts: every worker's samples by themselves, then the users of some keys.
// Beside them the samples are put into an order.
typedef struct {
    dp_search *s;
    const uint32_t *worker_of_sample;
    rt_random *random; // NULL: no order is needed
    uint32_t part_count;
} settling;

static void shuffle(dp_search *s, rt_random *random)
{
    for (uint32_t i = 0; i < s->sample_count; i++)
        s->order[i] = i;
    for (uint32_t i = s->sample_count; i > 1; i--) {
        uint32_t other = rt_random_below(random, i);
        uint64_t kept = s->order[i - 1];
        s->order[i - 1] = s->order[other];
        s->order[other] = kept;
    }
}

static void put_worker(const settling *all, uint32_t worker)
{
    dp_search *s = all->s;
    uint8_t *uses = uses_of(s, 0, worker);
    uint32_t samples = 0, rows = 0;
    memset(uses, 0, s->key_count);
    for (uint32_t i = 0; i < s->sample_count; i++) {
        if (all->worker_of_sample[i] != worker)
            continue;
        for (uint32_t m = s->view->offsets[i]; m < s->ends[i]; m++)
            rows += uses[s->members[m]]++ == 0;
        s->worker_of[i] = worker;
        rows += s->singles[i];
        samples++;
    }
    s->loads[worker] = samples;
    s->rows[worker] = rows;
}

static void put_some(void *context, uint32_t part)
{
    const settling *all = context;
    if (part > 0)
        put_worker(all, part - 1);
    else if (all->random)
        shuffle(all->s, all->random);
}

static void tally_some(void *context, uint32_t part)
{
    const settling *all = context;
    dp_search *s = all->s;
    const uint32_t end = dp_search_part_begin(s->key_count, part + 1, all->part_count);
    for (uint32_t k = dp_search_part_begin(s->key_count, part, all->part_count); k < end; k++) {
        shared_key *key = &s->keys[k];
        const row_class *c = &s->classes[key->row_class];
        for (uint32_t j = 0; j < s->worker_count; j++) {
            if (!*uses_of(s, k, j))
                continue;
            key->users |= rt_bit(j);
            key->grad_sum += c->grad[j];
            key->pull_sum += pull_of(key, c, j);
        }
    }
}

static void set_placement(dp_search *s, const uint32_t *worker_of_sample, rt_random *random)
{
    settling all = {s, worker_of_sample, random, dp_search_parts(s->view)};
    uint32_t everywhere = 0;
    for (uint32_t d = 0; d < s->view->distinct_count; d++)
        everywhere += s->view->distinct[d].uses > USES_MAX;
    memset(s->loads, 0, sizeof s->loads);
    rt_pool_run(s->view->pool, 1 + s->worker_count, put_some, &all);
    rt_pool_run(s->view->pool, all.part_count, tally_some, &all);
    for (uint32_t j = 0; j < s->worker_count; j++)
        s->rows[j] += everywhere;
}

// Whether a worker's cache holds the rows of the sample beside those it needs already.
static bool has_room(const dp_search *s, const dp_search_limits *limits, uint32_t worker,
                     uint32_t sample)
{
    const uint32_t keys = s->view->offsets[sample + 1] - s->view->offsets[sample];
    return (uint64_t)s->rows[worker] + keys <= limits->rows_max[worker];
}

static uint32_t roomiest(const dp_search *s, const dp_search_limits *limits)
{
    uint32_t best = 0;
    for (uint32_t j = 1; j < s->worker_count; j++) {
        if ((int64_t)limits->rows_max[j] - s->rows[j] >
            (int64_t)limits->rows_max[best] - s->rows[best])
            best = j;
    }
    return best;
}

static void fit_caches(dp_search *s, const dp_search_limits *limits)
{
    for (uint32_t i = 0; i < s->sample_count; i++) {
        const uint32_t from = s->worker_of[i];
        if (s->rows[from] <= limits->rows_max[from])
            continue;
        const uint32_t to = roomiest(s, limits);
        if (to == from || !has_room(s, limits, to, i))
            continue;
        take(s, i);
        put(s, i, to);
    }
}

// ---- evaluation ------------------------------------------------------------------------------

// cost(U) of one key, U not empty.
static int32_t key_cost(const shared_key *key, const row_class *c, uint64_t users, int32_t pull_sum,
                        int32_t grad_sum)
{
    if (users & (users - 1))
        return pull_sum + key->owner_push + grad_sum;
    bool stays = users == key->held; // its only holder trains it alone
    return pull_sum + (stays ? 0 : key->owner_push) + later_of(c, key->next, rt_lowest_bit(users));
}

// Adds to row the cost of the key when the users are U and one more worker, for every such worker.
static void add_key(const dp_search *s, const shared_key *key, uint64_t users, int32_t pull_sum,
                    int32_t grad_sum, int32_t *row)
{
    const row_class *c = &s->classes[key->row_class];
    int32_t inside, outside;
    const int32_t *entering;
    if (users == 0) {
        inside = 0; // nobody is
        outside = key->owner_push;
        entering = c->alone;
    } else {
        inside = key_cost(key, c, users, pull_sum, grad_sum);
        outside = pull_sum + key->owner_push + grad_sum;
        entering = c->both;
    }
    for (uint32_t first = 0; first < s->lane_count; first += LANES) {
        const lanes bits = {1, 2, 4, 8, 16, 32, 64, 128};
        int32_t byte = (int32_t)(users >> first & 0xff);
        lanes in = (bits & byte) != 0;
        lanes *out = (lanes *)(void *)(row + first);
        const lanes *add = (const lanes *)(const void *)(entering + first);
        *out += (in & inside) | (~in & (*add + outside));
    }
    for (uint32_t j = 0; users == 0 && key->next != DP_NO_NEXT && j < s->worker_count; j++)
        row[j] += later_of(c, key->next, j) - c->later[j];
    for (uint64_t rest = key->held & ~users; rest; rest &= rest - 1)
        row[rt_lowest_bit(rest)] -= c->pull[rt_lowest_bit(rest)];
    for (uint64_t rest = key->owed & ~users; rest; rest &= rest - 1)
        row[rt_lowest_bit(rest)] += c->push[rt_lowest_bit(rest)];
    if (users == 0 && key->owner != NO_OWNER && key->held == rt_bit(key->owner))
        row[key->owner] -= key->owner_push;
}

// The cost of the sample's keys with it on every worker in turn, all other samples where they are.
static void evaluate(dp_search *s, uint32_t sample, int32_t *row)
{
    uint32_t worker = s->worker_of[sample];
    memcpy(row, s->base + (size_t)sample * s->lane_count, s->lane_count * sizeof *row);
    for (uint32_t m = s->view->offsets[sample]; m < s->ends[sample]; m++) {
        uint32_t k = s->members[m];
        const shared_key *key = &s->keys[k];
        if (*uses_of(s, k, worker) > 1) {
            add_key(s, key, key->users, key->pull_sum, key->grad_sum, row);
            continue;
        }
        const row_class *c = &s->classes[key->row_class];
        int32_t pull = pull_of(key, c, worker);
        add_key(s, key, key->users & ~rt_bit(worker), key->pull_sum - pull,
                key->grad_sum - c->grad[worker], row);
    }
    s->evaluations++;
}

// ---- local search ----------------------------------------------------------------------------

static uint32_t *candidates_of(const dp_search *s, uint32_t from, uint32_t to)
{
    return s->candidates + ((size_t)from * s->worker_count + to) * CANDIDATES;
}

static int32_t gain_of(const dp_search *s, uint32_t sample, uint32_t to)
{
    const int32_t *row = s->scores + (size_t)sample * s->lane_count;
    return row[to] - row[s->worker_of[sample]];
}

// Insertion into a short sorted list. Returns the gain of its last, which another has to be below.
static int32_t insert(const dp_search *s, uint32_t *list, uint32_t sample, uint32_t to)
{
    const int32_t gain = gain_of(s, sample, to);
    uint32_t at = CANDIDATES;
    for (; at > 0; at--) {
        const uint32_t other = list[at - 1];
        if (other != NONE && gain_of(s, other, to) <= gain)
            break;
        if (at < CANDIDATES)
            list[at] = other;
    }
    if (at < CANDIDATES)
        list[at] = sample;
    if (list[CANDIDATES - 1] == NONE)
        return INT32_MAX;
    return gain_of(s, list[CANDIDATES - 1], to);
}

// The workers to which a sample is more willing to change than the last of their lists.
static uint64_t find_willing(const dp_search *s, const int32_t *row, int32_t here,
                             const int32_t *bound)
{
    uint64_t willing = 0;
    for (uint32_t first = 0; first < s->lane_count; first += LANES) {
        const lanes *costs = (const lanes *)(const void *)(row + first);
        const lanes *most = (const lanes *)(const void *)(bound + first);
        const lanes below = *costs - here < *most;
        const lanes bits = below & (lanes){1, 2, 4, 8, 16, 32, 64, 128};
        const int32_t byte =
            (bits[0] | bits[1]) | (bits[2] | bits[3]) | (bits[4] | bits[5]) | (bits[6] | bits[7]);
        willing |= (uint64_t)byte << first;
    }
    return willing;
}

// For every ordered pair of workers the samples most willing to change, by their last scores.
static void find_candidates(dp_search *s)
{
    const uint32_t n = s->worker_count;
    int32_t bounds[RT_WORKERS_MAX][RT_WORKERS_MAX] __attribute__((aligned(32)));
    memset(s->candidates, 0xff, (size_t)n * n * CANDIDATES * sizeof *s->candidates);
    for (uint32_t from = 0; from < n; from++)
        for (uint32_t to = 0; to < s->lane_count; to++)
            bounds[from][to] = to == from || to >= n ? INT32_MIN : INT32_MAX;
    for (uint32_t i = 0; i < s->sample_count; i++) {
        const int32_t *row = s->scores + (size_t)i * s->lane_count;
        const uint32_t from = s->worker_of[i];
        for (uint64_t rest = find_willing(s, row, row[from], bounds[from]); rest;
             rest &= rest - 1) {
            const uint32_t to = rt_lowest_bit(rest);
            bounds[from][to] = insert(s, candidates_of(s, from, to), i, to);
        }
    }
}

// Exchanges sample (now on `from`) with a sample on `to` if the exact cost falls.
static bool try_swap(dp_search *s, const dp_search_limits *limits, uint32_t sample, uint32_t to,
                     int32_t gain)
{
    const uint32_t from = s->worker_of[sample];
    const uint32_t *list = candidates_of(s, to, from);
    uint32_t tries = 0;
    for (uint32_t at = 0; at < CANDIDATES && tries < SWAP_TRIES; at++) {
        uint32_t other = list[at];
        if (other == NONE || s->worker_of[other] != to || !has_room(s, limits, from, other))
            continue;
        int32_t *row = s->scores + (size_t)other * s->lane_count;
        if (gain + row[from] - row[to] >= 0)
            return false; // the list is sorted: no better one follows
        tries++;
        take(s, sample);
        put(s, sample, to);
        evaluate(s, other, row);
        if (gain + row[from] - row[to] < 0) {
            take(s, other);
            put(s, other, from);
            return true;
        }
        take(s, sample);
        put(s, sample, from);
    }
    return false;
}

static bool improve_sample(dp_search *s, const dp_search_limits *limits, uint32_t sample)
{
    int32_t *row = s->scores + (size_t)sample * s->lane_count;
    uint32_t from = s->worker_of[sample], move = NONE, swap = NONE;
    evaluate(s, sample, row);
    for (uint32_t j = 0; j < s->worker_count; j++) {
        if (j == from || row[j] >= row[from] || !has_room(s, limits, j, sample))
            continue;
        if (swap == NONE || row[j] < row[swap])
            swap = j;
        if (s->loads[j] < limits->max[j] && (move == NONE || row[j] < row[move]))
            move = j;
    }
    if (swap == NONE)
        return false;
    if (move != NONE && s->loads[from] > limits->min[from]) {
        take(s, sample);
        put(s, sample, move);
        return true;
    }
    return try_swap(s, limits, sample, swap, row[swap] - row[from]);
}

uint32_t dp_search_run(dp_search *s, const dp_view *view, const dp_prices *prices,
                       const dp_search_limits *limits, rt_random *random,
                       uint32_t *worker_of_sample)
{
    s->evaluations = 0;
    set_problem(s, view, prices);
    set_placement(s, worker_of_sample, random);
    fit_caches(s, limits);
    for (uint32_t i = 0; i < s->sample_count && limits->evaluations_max > 2 * s->sample_count; i++)
        evaluate(s, i, s->scores + (size_t)i * s->lane_count);
    for (uint32_t pass = 0; pass < PASSES_MAX; pass++) {
        uint32_t improved = 0;
        find_candidates(s);
        if (pass > 0)
            shuffle(s, random);
        for (uint32_t i = 0; i < s->sample_count && s->evaluations < limits->evaluations_max; i++)
            improved += improve_sample(s, limits, (uint32_t)s->order[i]);
        if (s->evaluations >= limits->evaluations_max || improved * STOP_SHARE < s->sample_count)
            break;
    }
    memcpy(worker_of_sample, s->worker_of, s->sample_count * sizeof *worker_of_sample);
    return s->evaluations;
}

// ---- the cost as a whole ---------------------------------------------------------------------

int64_t dp_search_cost(dp_search *s, const dp_view *view, const dp_prices *prices,
                       const uint32_t *worker_of_sample)
{
    int64_t sum = 0;
    set_problem(s, view, prices);
    set_placement(s, worker_of_sample, NULL);
    for (uint32_t k = 0; k < s->key_count; k++)
        sum += key_cost(&s->keys[k], &s->classes[s->keys[k].row_class], s->keys[k].users,
                        s->keys[k].pull_sum, s->keys[k].grad_sum);
    for (uint32_t i = 0; i < s->sample_count; i++)
        sum += s->base[(size_t)i * s->lane_count + worker_of_sample[i]];
    return sum;
}
