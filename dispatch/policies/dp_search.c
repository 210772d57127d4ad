#include "dispatch/policies/dp_search.h"

#include <math.h>
#include <string.h>

#include "dispatch/cache/dp_eviction.h"

#define LANES 8u
#define USES_MAX 255u // keys with more are trained everywhere: they decide nothing
#define CLASSES_MAX RT_FIELDS_MAX
#define CANDIDATES 12u // samples per pair of workers that a swap considers
#define SWAP_TRIES 3u
#define PASSES_MAX 64u
#define STOP_SHARE 200u // a pass that improves less than 1/200 of the samples is the last

typedef int32_t lanes __attribute__((vector_size(LANES * sizeof(int32_t))));

// Weighted ticks of one row size; lanes beyond the workers are never chosen.
typedef struct {
    int32_t pull[RT_WORKERS_MAX] __attribute__((aligned(32)));
    int32_t push[RT_WORKERS_MAX] __attribute__((aligned(32)));
    int32_t grad[RT_WORKERS_MAX] __attribute__((aligned(32)));
    int32_t both[RT_WORKERS_MAX] __attribute__((aligned(32)));  // pull + grad
    int32_t alone[RT_WORKERS_MAX] __attribute__((aligned(32))); // pull + later push
    int32_t later[RT_WORKERS_MAX] __attribute__((aligned(32))); // later push
} row_class;

// A distinct key that several samples have.
typedef struct {
    uint64_t users;     // U
    uint64_t held;      // workers with the latest copy, or one that may be read
    uint64_t owed;      // workers that push before they pull (dp_view)
    int32_t pull_sum;   // over U without held
    int32_t grad_sum;   // over U
    int32_t owner_push; // what the dirty owner's push costs; 0 when the PS has the row
    uint16_t row_class;
    uint8_t owner; // dirty owner, or NO_OWNER
    uint8_t next;  // who trains it next, or DP_NO_NEXT
} shared_key;

#define NO_OWNER 0xffu

struct dp_search {
    uint32_t worker_count, lane_count;
    uint32_t sample_count;
    double scale; // of all prices
    const dp_view *view;
    row_class *classes; // by row size; class_of_field
    uint32_t class_count;
    uint16_t class_of_field[RT_FIELDS_MAX];
    shared_key *keys;
    uint32_t *shared_of; // by distinct key: index into keys, or NONE
    uint8_t *uses;       // keys x lane_count: samples of the key on each worker
    uint32_t key_count;
    uint32_t *offsets;   // sample_count + 1, into members
    uint32_t *members;   // shared keys of every sample
    int32_t *base;       // sample x lane_count: keys that only this sample has, and its price
    int32_t *scores;     // sample x lane_count: as last evaluated
    uint32_t *worker_of; // of the placement in progress
    uint32_t loads[RT_WORKERS_MAX]; // samples
    uint32_t rows[RT_WORKERS_MAX];  // distinct rows; keys with more than USES_MAX count everywhere
    uint32_t *singles;              // by sample: its keys that no other sample has
    uint64_t *order, *scratch;
    uint32_t *candidates; // worker x worker x CANDIDATES
    uint32_t evaluations;
};

#define NONE UINT32_MAX

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
    s->uses = rt_alloc((size_t)lookup_count_max / 2 + 1, s->lane_count);
    s->offsets = rt_alloc((size_t)sample_count_max + 1, sizeof *s->offsets);
    s->members = rt_alloc(lookup_count_max, sizeof *s->members);
    s->base = rt_alloc(rows, sizeof *s->base);
    s->scores = rt_alloc(rows, sizeof *s->scores);
    s->worker_of = rt_alloc(sample_count_max, sizeof *s->worker_of);
    s->singles = rt_alloc(sample_count_max, sizeof *s->singles);
    s->order = rt_alloc(sample_count_max, sizeof *s->order);
    s->scratch = rt_alloc(sample_count_max, sizeof *s->scratch);
    s->candidates = rt_alloc((size_t)worker_count * worker_count * CANDIDATES, sizeof(uint32_t));
    if (!s->classes || !s->keys || !s->shared_of || !s->uses || !s->offsets || !s->members ||
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
    rt_free(s->offsets);
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
    return highest > ROWS_PRICE_MAX ? ROWS_PRICE_MAX / highest : 1;
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
    c->pull[j] = weighted(ticks->pull[field][j], down) +
                 weighted(ticks->box_up[field][box], there_up);
    c->push[j] = weighted(ticks->push[field][j], up) +
                 weighted(ticks->box_down[field][box], there_down);
    c->grad[j] = weighted(ticks->grad[field][j], up) +
                 weighted(ticks->box_grad[field][box], there_down);
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
    const uint32_t boxes = s->view->ticks->box_count;
    const uint32_t box = d->box == DP_NO_BOX ? boxes : d->box;
    return (uint16_t)(s->class_of_field[d->field] * (boxes + 1) + (boxes ? box : 0));
}

static void fill_classes(dp_search *s, const dp_prices *prices, uint32_t field, uint32_t class)
{
    const uint32_t boxes = s->view->ticks->box_count;
    for (uint32_t b = 0; b <= boxes; b++)
        fill_class(s, prices, field, b == boxes ? DP_NO_BOX : b,
                   &s->classes[class * (boxes + 1) + b]);
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

static void collect_keys(dp_search *s)
{
    const dp_view *view = s->view;
    s->key_count = 0;
    for (uint32_t d = 0; d < view->distinct_count; d++) {
        const dp_distinct *distinct = &view->distinct[d];
        s->shared_of[d] = NONE;
        if (distinct->uses < 2 || distinct->uses > USES_MAX)
            continue;
        const uint16_t class = class_of(s, distinct);
        const row_class *c = &s->classes[class];
        uint8_t owner = dirty_owner(distinct, c);
        s->shared_of[d] = s->key_count;
        s->keys[s->key_count++] = (shared_key){.held = distinct->holders,
                                               .owed = view->owed ? view->owed[d] : 0,
                                               .owner_push = owner == NO_OWNER ? 0 : c->push[owner],
                                               .row_class = class,
                                               .owner = owner,
                                               .next = view->next ? view->next[d] : DP_NO_NEXT};
    }
    memset(s->uses, 0, (size_t)s->key_count * s->lane_count);
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

static void collect_samples(dp_search *s, const dp_prices *prices)
{
    const dp_view *view = s->view;
    int32_t samples[RT_WORKERS_MAX];
    uint32_t count = 0;
    for (uint32_t j = 0; j < s->worker_count; j++)
        samples[j] = weighted(prices->sample[j], s->scale);
    for (uint32_t i = 0; i < view->sample_count; i++) {
        int32_t *row = s->base + (size_t)i * s->lane_count;
        s->offsets[i] = count;
        memset(row, 0, s->lane_count * sizeof *row);
        memcpy(row, samples, s->worker_count * sizeof *row);
        s->singles[i] = 0;
        for (uint32_t k = view->offsets[i]; k < view->offsets[i + 1]; k++) {
            uint32_t d = view->lookups[k];
            if (s->shared_of[d] != NONE) {
                s->members[count++] = s->shared_of[d];
            } else if (view->distinct[d].uses == 1) {
                add_single(s, &view->distinct[d], view->owed ? view->owed[d] : 0,
                           view->next ? view->next[d] : DP_NO_NEXT, row);
                s->singles[i]++;
            }
        }
    }
    s->offsets[view->sample_count] = count;
}

static void set_problem(dp_search *s, const dp_view *view, const dp_prices *prices)
{
    s->view = view;
    s->worker_count = view->worker_count;
    s->sample_count = view->sample_count;
    s->scale = scale_of(s, prices);
    make_classes(s, prices);
    collect_keys(s);
    collect_samples(s, prices);
}

// ---- placing ---------------------------------------------------------------------------------

// What a worker moves to have the row.
static int32_t pull_of(const shared_key *key, const row_class *c, uint32_t worker)
{
    return (key->held >> worker & 1 ? 0 : c->pull[worker]) +
           (key->owed >> worker & 1 ? c->push[worker] : 0);
}

static void enter(dp_search *s, uint32_t k, uint32_t worker)
{
    shared_key *key = &s->keys[k];
    if (s->uses[(size_t)k * s->lane_count + worker]++)
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
    if (--s->uses[(size_t)k * s->lane_count + worker])
        return;
    const row_class *c = &s->classes[key->row_class];
    s->rows[worker]--;
    key->users &= ~rt_bit(worker);
    key->grad_sum -= c->grad[worker];
    key->pull_sum -= pull_of(key, c, worker);
}

static void put(dp_search *s, uint32_t sample, uint32_t worker)
{
    for (uint32_t m = s->offsets[sample]; m < s->offsets[sample + 1]; m++)
        enter(s, s->members[m], worker);
    s->worker_of[sample] = worker;
    s->rows[worker] += s->singles[sample];
    s->loads[worker]++;
}

static void take(dp_search *s, uint32_t sample)
{
    uint32_t worker = s->worker_of[sample];
    for (uint32_t m = s->offsets[sample]; m < s->offsets[sample + 1]; m++)
        leave(s, s->members[m], worker);
    s->rows[worker] -= s->singles[sample];
    s->loads[worker]--;
}

static void set_placement(dp_search *s, const uint32_t *worker_of_sample)
{
    uint32_t everywhere = 0;
    for (uint32_t d = 0; d < s->view->distinct_count; d++)
        everywhere += s->view->distinct[d].uses > USES_MAX;
    memset(s->loads, 0, sizeof s->loads);
    for (uint32_t j = 0; j < s->worker_count; j++)
        s->rows[j] = everywhere;
    for (uint32_t i = 0; i < s->sample_count; i++)
        put(s, i, worker_of_sample[i]);
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
    for (uint32_t m = s->offsets[sample]; m < s->offsets[sample + 1]; m++) {
        uint32_t k = s->members[m];
        const shared_key *key = &s->keys[k];
        if (s->uses[(size_t)k * s->lane_count + worker] > 1) {
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

// For every ordered pair of workers the samples most willing to change, by their last scores.
static void find_candidates(dp_search *s)
{
    uint32_t n = s->worker_count;
    memset(s->candidates, 0xff, (size_t)n * n * CANDIDATES * sizeof *s->candidates);
    for (uint32_t i = 0; i < s->sample_count; i++) {
        const int32_t *row = s->scores + (size_t)i * s->lane_count;
        uint32_t from = s->worker_of[i];
        for (uint32_t to = 0; to < n; to++) {
            uint32_t *list = s->candidates + ((size_t)from * n + to) * CANDIDATES;
            int32_t gain = row[to] - row[from];
            uint32_t at = CANDIDATES;
            for (; at > 0; at--) { // insertion into a short sorted list
                uint32_t other = list[at - 1];
                if (other != NONE) {
                    const int32_t *scores = s->scores + (size_t)other * s->lane_count;
                    if (scores[to] - scores[from] <= gain)
                        break;
                }
                if (at < CANDIDATES)
                    list[at] = other;
            }
            if (at < CANDIDATES)
                list[at] = i;
        }
    }
}

// Exchanges sample (now on `from`) with a sample on `to` if the exact cost falls.
static bool try_swap(dp_search *s, const dp_search_limits *limits, uint32_t sample, uint32_t to,
                     int32_t gain)
{
    uint32_t from = s->worker_of[sample], n = s->worker_count;
    const uint32_t *list = s->candidates + ((size_t)to * n + from) * CANDIDATES;
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

uint32_t dp_search_run(dp_search *s, const dp_view *view, const dp_prices *prices,
                       const dp_search_limits *limits, rt_random *random,
                       uint32_t *worker_of_sample)
{
    s->evaluations = 0;
    set_problem(s, view, prices);
    set_placement(s, worker_of_sample);
    fit_caches(s, limits);
    if (limits->evaluations_max > 2 * s->sample_count) {
        for (uint32_t i = 0; i < s->sample_count; i++)
            evaluate(s, i, s->scores + (size_t)i * s->lane_count);
    } else { // what is known without; not those of the batch before: a resumed run has none
        memcpy(s->scores, s->base, (size_t)s->sample_count * s->lane_count * sizeof *s->scores);
    }
    for (uint32_t pass = 0; pass < PASSES_MAX; pass++) {
        uint32_t improved = 0;
        find_candidates(s);
        shuffle(s, random);
        for (uint32_t i = 0; i < s->sample_count && s->evaluations < limits->evaluations_max; i++)
            improved += improve_sample(s, limits, (uint32_t)s->order[i]);
        if (s->evaluations >= limits->evaluations_max || improved * STOP_SHARE < s->sample_count)
            break;
    }
    memcpy(worker_of_sample, s->worker_of, s->sample_count * sizeof *worker_of_sample);
    return s->evaluations;
}

// ---- totals ----------------------------------------------------------------------------------

// From a worker to the box of a row (up), or back.
static void add_passing(const dp_view *view, uint32_t worker, uint32_t box, bool up, int32_t own,
                        int32_t there, dp_loads *loads)
{
    const uint32_t here = view->ticks->box_of[worker];
    if (here == box || box == DP_NO_BOX)
        return;
    (up ? loads->up : loads->down)[worker] += own;
    (up ? loads->box_up : loads->box_down)[here] += own;
    (up ? loads->box_down : loads->box_up)[box] += there;
}

// As add_loads, where boxes are told. A row that is nowhere yet will be with one of its trainers,
// as will one that several train and none has at home, where homes are planned.
static void add_box_loads(const dp_view *view, uint32_t index, uint64_t users, dp_loads *loads)
{
    const dp_ticks *ticks = view->ticks;
    const dp_distinct *d = &view->distinct[index];
    const int32_t *row_up = ticks->box_up[d->field], *row_down = ticks->box_down[d->field];
    const int32_t *grad = ticks->box_grad[d->field];
    if (d->dirty && d->holders && users != d->holders) {
        const uint32_t owner = rt_lowest_bit(d->holders);
        add_passing(view, owner, d->box, true, ticks->push[d->field][owner],
                    d->box == DP_NO_BOX ? 0 : row_down[d->box], loads);
    }
    for (uint64_t rest = users & ~d->holders; rest; rest &= rest - 1) {
        const uint32_t j = rt_lowest_bit(rest);
        add_passing(view, j, d->box, false, ticks->pull[d->field][j],
                    d->box == DP_NO_BOX ? 0 : row_up[d->box], loads);
    }
    if (!(users & (users - 1)) && !view->always_summed)
        return;
    uint32_t box = d->box;
    if (box == DP_NO_BOX)
        box = ticks->box_of[rt_lowest_bit(users)];
    for (uint64_t rest = users; rest; rest &= rest - 1) {
        const uint32_t j = rt_lowest_bit(rest);
        add_passing(view, j, box, true, ticks->grad[d->field][j], grad[box], loads);
    }
}

static void add_loads(const dp_view *view, uint32_t index, uint64_t users, dp_loads *loads)
{
    const dp_ticks *ticks = view->ticks;
    if (ticks->box_count) {
        add_box_loads(view, index, users, loads);
        return;
    }
    const dp_distinct *d = &view->distinct[index];
    bool dirty = d->dirty && d->holders;
    if (dirty && users != d->holders) {
        uint32_t owner = rt_lowest_bit(d->holders);
        loads->up[owner] += ticks->push[d->field][owner];
        loads->ps_up += ticks->ps_row[d->field];
    }
    for (uint64_t rest = users & ~d->holders; rest; rest &= rest - 1) {
        uint32_t j = rt_lowest_bit(rest);
        loads->down[j] += ticks->pull[d->field][j];
        loads->ps_down += ticks->ps_row[d->field];
    }
    if (view->owed) {
        for (uint64_t rest = users & view->owed[index]; rest; rest &= rest - 1) {
            loads->up[rt_lowest_bit(rest)] += ticks->push[d->field][rt_lowest_bit(rest)];
            loads->ps_up += ticks->ps_row[d->field];
        }
        return;
    }
    if (!(users & (users - 1)) && !view->always_summed)
        return;
    for (uint64_t rest = users; rest; rest &= rest - 1) {
        uint32_t j = rt_lowest_bit(rest);
        loads->up[j] += ticks->grad[d->field][j];
        loads->ps_up += ticks->ps_grad[d->field];
    }
}

// Keys outside the search have more than USES_MAX samples: they are trained wherever there are any.
void dp_search_loads(const dp_search *s, dp_loads *loads)
{
    const dp_view *view = s->view;
    uint64_t busy = 0;
    memset(loads, 0, sizeof *loads);
    memcpy(loads->samples, s->loads, sizeof loads->samples);
    memcpy(loads->rows, s->rows, sizeof loads->rows);
    for (uint32_t j = 0; j < s->worker_count; j++)
        busy |= s->loads[j] ? rt_bit(j) : 0;
    for (uint32_t d = 0; d < view->distinct_count; d++) {
        if (s->shared_of[d] != NONE)
            add_loads(view, d, s->keys[s->shared_of[d]].users, loads);
        else if (view->distinct[d].uses > USES_MAX)
            add_loads(view, d, busy, loads);
    }
    for (uint32_t i = 0; i < s->sample_count; i++) {
        for (uint32_t at = view->offsets[i]; at < view->offsets[i + 1]; at++) {
            if (view->distinct[view->lookups[at]].uses == 1)
                add_loads(view, view->lookups[at], rt_bit(s->worker_of[i]), loads);
        }
    }
}

int64_t dp_search_cost(dp_search *s, const dp_view *view, const dp_prices *prices,
                       const uint32_t *worker_of_sample)
{
    int64_t sum = 0;
    set_problem(s, view, prices);
    set_placement(s, worker_of_sample);
    for (uint32_t k = 0; k < s->key_count; k++)
        sum += key_cost(&s->keys[k], &s->classes[s->keys[k].row_class], s->keys[k].users,
                        s->keys[k].pull_sum, s->keys[k].grad_sum);
    for (uint32_t i = 0; i < s->sample_count; i++)
        sum += s->base[(size_t)i * s->lane_count + worker_of_sample[i]];
    return sum;
}
