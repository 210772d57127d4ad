// Rates of a link from the messages that pass, against a second implementation that keeps every
// arrival, finds the edge of a stretch by trying all pairs of points, and knows all clocks as they
// are: random traffic of two shards over one link, both must read the same, to the last digit but
// for rounding.
#include "bandwidth_probe/bw_passive.h"

#include <math.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define SHARDS 3u // the last is on the worker's own box
#define POINTS 64u
#define SPANS_KEPT 8u
#define STEPS 2500u
#define PENDING 4096u
#define EVEN_BYTES 16384 // of messages, so that moments coincide: 2 ms
#define EVEN_RATE 8.192

// ---- the second implementation ---------------------------------------------------------------

typedef struct {
    bool known;
    int64_t first;
    double least, drift;
    uint32_t count;
    int64_t at_us;
} delay;

typedef struct {
    int64_t us;
    int64_t bytes;
} point;

typedef struct {
    int64_t from, to;
} span;

typedef struct {
    bool open;
    int64_t begin, last, all;
    point points[POINTS];
    uint32_t count;
    double bytes, us, shown, latest, least;
    uint32_t held_up;
    span spans[1u << 14];
    uint32_t span_count;
} stretch;

typedef struct {
    int64_t begun, handed, bytes;
} push;

typedef struct {
    delay up, down;
    int64_t bytes, begun;
    push waiting[BW_PASSIVE_PUSHES_MAX];
    uint32_t count, beyond; // pushes that wait; and those that are not followed
} stream;

typedef struct {
    stretch ways[BW_WAYS];
    stream streams[SHARDS];
} model;

static int64_t waited(delay *d, int64_t took, int64_t now)
{
    if (!d->known)
        *d = (delay){.known = true, .first = took, .at_us = now};
    const double beyond = (double)(took - d->first);
    const double drift = now > d->at_us ? (double)(now - d->at_us) * 2e-4 : 0;
    d->least += drift;
    d->drift += drift;
    d->at_us = now;
    d->count++;
    if (beyond <= d->least) {
        const double sure = d->least - d->drift; // it was no quicker than that
        d->drift = beyond > sure ? beyond - sure : 0;
        d->least = beyond;
    }
    return (int64_t)(beyond - d->least);
}

static bool is_full_from_to(const stretch *s, int64_t from, int64_t to)
{
    for (uint32_t i = 0; i < s->span_count; i++)
        if (i + SPANS_KEPT >= s->span_count && s->spans[i].from < to && s->spans[i].to > from)
            return true;
    return s->count >= 2 && s->begin < to && s->last > from;
}

static bool is_alone(const model *m, bw_way way, int64_t from, int64_t to)
{
    if (is_full_from_to(&m->ways[!way], from, to))
        return false;
    for (uint32_t s = 0; s < SHARDS && way == BW_DOWN; s++)
        if (m->streams[s].count && m->streams[s].waiting[0].handed + 10000 < to)
            return false;
    return true;
}

// Above 0: point k is above the line from a to b.
static double height(const stretch *s, uint32_t a, uint32_t b, uint32_t k)
{
    const point *p = s->points;
    return (double)(p[k].us - p[a].us) * (double)(p[b].bytes - p[a].bytes) -
           (double)(p[b].us - p[a].us) * (double)(p[k].bytes - p[a].bytes);
}

// Nothing is below the line, and no other point on it is farther out.
static bool is_edge(const stretch *s, uint32_t a, uint32_t b)
{
    for (uint32_t k = 0; k < s->count; k++) {
        const double at = height(s, a, b, k);
        if (at < 0 || (at == 0 && (k < a || k > b)))
            return false;
    }
    return true;
}

static double edge_in_the_middle(const stretch *s)
{
    const point *p = s->points;
    const int64_t half = (p[s->count - 1].bytes - p[0].bytes) / 2;
    for (uint32_t b = 1; b < s->count; b++)
        for (uint32_t a = 0; a < b && p[b].bytes - p[0].bytes >= half; a++)
            if (is_edge(s, a, b))
                return (double)(p[b].us - p[a].us) / (double)(p[b].bytes - p[a].bytes);
    fail_msg("no edge");
    return 0;
}

static void sum_up(model *m, bw_way way)
{
    stretch *s = &m->ways[way];
    const stretch *other = &m->ways[!way];
    if (s->count < 2)
        return;
    const point first = s->points[0], last = s->points[s->count - 1];
    if (s->count > 2 || last.us - first.us >= 40000) {
        const bool alone = is_alone(m, way, first.us, last.us);
        const bool both_slow = other->latest > 0 && other->latest * 1.2 < other->shown;
        const double us_per_byte = edge_in_the_middle(s);
        const bool counts = alone || both_slow || 1.2 / us_per_byte >= s->shown || s->held_up >= 16;
        s->latest = 1 / us_per_byte;
        if (counts) {
            s->bytes += (double)(last.bytes - first.bytes);
            s->us += (double)(last.bytes - first.bytes) * us_per_byte;
        }
        if (alone)
            s->shown = s->latest;
        s->held_up = alone ? 0 : s->held_up + !counts;
    }
    assert_true(s->span_count < RT_COUNT_OF(s->spans));
    s->spans[s->span_count++] = (span){s->begin, s->last};
    s->points[0] = last;
    s->count = 1;
}

static void bound(stretch *s, const delay *d)
{
    double doubt = 8000 / (1 + d->count / 32.0);
    doubt = (doubt < 2000 ? 2000 : doubt) + d->drift;
    const double us = (double)(s->last - s->begin) + 4000 + doubt, bytes = (double)s->all - 65536;
    if (!s->open)
        return;
    assert_true(us > 0);
    if (bytes / us > s->least)
        s->least = bytes / us;
    if (bytes > s->shown * us) {
        s->shown = bytes / us;
        s->held_up = 0;
    }
}

static void arrive(model *m, bw_way way, const delay *d, push sent, int64_t arrived, bool prompt)
{
    stretch *s = &m->ways[way];
    const bool follows = s->open && sent.handed + 10000 <= s->last;
    if (follows) {
        s->all += sent.bytes;
        if (!prompt || arrived <= s->last)
            return;
        if (s->count == POINTS) {
            s->last = arrived;
            sum_up(m, way);
        }
    } else {
        sum_up(m, way);
        s->open = prompt;
        s->begin = sent.begun;
        s->all = sent.bytes;
        s->count = 0;
    }
    s->last = arrived;
    if (s->open)
        s->points[s->count++] = (point){arrived, s->all};
    bound(s, d);
}

static double estimate(model *m, bw_way way)
{
    stretch *s = &m->ways[way];
    sum_up(m, way);
    if (s->us < 20000 || s->bytes < 131072)
        return 0;
    const double rate = s->bytes * 1e6 / s->us;
    s->bytes = s->us = 0;
    return rate;
}

// ---- traffic ---------------------------------------------------------------------------------

typedef struct {
    int64_t at; // when the worker learns of it
    uint32_t shard;
    bw_way way;
    push sent;      // of a push that is confirmed: what it was
    int64_t bytes;  // received
    int64_t remote; // by the shard's clock: arrival, or departure
    bool stamped, remote_prompt, prompt;
} message;

typedef struct {
    bw_passive passive;
    model m;
    rt_random random;
    bool even; // times and bytes are multiples: moments coincide
    int64_t now, offset[SHARDS];
    double rate[BW_WAYS], free_at[BW_WAYS]; // bytes/us; when the link is idle again
    message pending[PENDING];
    uint32_t pending_count, read, bounded; // rates that were read, bounds
} rig;

static bool chance(rig *r, uint32_t of)
{
    return rt_random_below(&r->random, of) == 0;
}

static int64_t some_time(rig *r, uint32_t below_us)
{
    const int64_t us = rt_random_below(&r->random, below_us);
    return r->even ? us / 2000 * 2000 : us;
}

// The link takes bytes one after the other.
static int64_t carry(rig *r, bw_way way, int64_t bytes)
{
    const double begin = fmax(r->free_at[way], (double)r->now);
    r->free_at[way] = begin + (double)bytes / r->rate[way];
    return (int64_t)r->free_at[way] + 200 + some_time(r, 60);
}

static void post(rig *r, message one)
{
    assert_true(r->pending_count < PENDING);
    uint32_t at = r->pending_count++;
    for (; at > 0 && r->pending[at - 1].at > one.at; at--)
        r->pending[at] = r->pending[at - 1];
    r->pending[at] = one;
}

static void send_some(rig *r, uint32_t shard, int64_t bytes, bool is_push)
{
    stream *s = &r->m.streams[shard];
    const int64_t arrived = carry(r, BW_UP, bytes);
    bw_passive_sent(&r->passive, shard, (uint64_t)bytes, is_push, (uint64_t)r->now);
    if (shard == SHARDS - 1)
        return;
    if (s->bytes == 0)
        s->begun = r->now;
    s->bytes += bytes;
    if (!is_push)
        return;
    if (s->count == BW_PASSIVE_PUSHES_MAX || s->beyond) {
        s->beyond++;
    } else {
        s->waiting[s->count++] = (push){s->begun, r->now, s->bytes};
        s->bytes = 0;
    }
    post(r, (message){.at = arrived + 300 + (chance(r, 3) ? some_time(r, 20000) : 0),
                      .shard = shard,
                      .way = BW_UP,
                      .remote = arrived + r->offset[shard],
                      .stamped = !chance(r, 12),
                      .remote_prompt = !chance(r, 6)});
}

static void fetch_some(rig *r, uint32_t shard, int64_t bytes)
{
    const int64_t arrived = carry(r, BW_DOWN, bytes);
    post(r, (message){.at = arrived + (chance(r, 4) ? some_time(r, 9000) : 0),
                      .shard = shard,
                      .way = BW_DOWN,
                      .bytes = bytes,
                      .remote = r->now + r->offset[shard],
                      .stamped = !chance(r, 12),
                      .prompt = !chance(r, 6)});
}

static uint32_t stamp_of(int64_t remote, bool prompt)
{
    return bw_stamp((uint64_t)remote * 1000, prompt);
}

static void confirm(rig *r, const message *one)
{
    stream *s = &r->m.streams[one->shard];
    bw_passive_confirmed(&r->passive, one->shard,
                         one->stamped ? stamp_of(one->remote, one->remote_prompt) : 0,
                         (uint64_t)r->now);
    if (s->count == 0) {
        s->beyond -= s->beyond > 0;
        return;
    }
    const push first = s->waiting[0];
    s->count--;
    memmove(s->waiting, s->waiting + 1, s->count * sizeof *s->waiting);
    if (!one->stamped)
        return;
    const int64_t took = waited(&s->up, one->remote - first.handed, r->now);
    arrive(&r->m, BW_UP, &s->up, first, first.handed + took, one->remote_prompt);
}

static void receive(rig *r, const message *one)
{
    stretch *down = &r->m.ways[BW_DOWN];
    stream *s = &r->m.streams[one->shard];
    bw_passive_received(&r->passive, one->shard, (uint64_t)one->bytes,
                        one->stamped ? stamp_of(one->remote, one->remote_prompt) : 0,
                        (uint64_t)r->now, one->prompt);
    if (!one->stamped && down->open)
        down->all += one->bytes;
    if (!one->stamped || one->shard == SHARDS - 1)
        return;
    const int64_t handed = r->now - waited(&s->down, r->now - one->remote, r->now);
    arrive(&r->m, BW_DOWN, &s->down, (push){handed, handed, one->bytes}, r->now, one->prompt);
}

static void pass_time(rig *r, int64_t us)
{
    const int64_t end = r->now + us;
    while (r->pending_count && r->pending[0].at <= end) {
        const message one = r->pending[0];
        memmove(r->pending, r->pending + 1, --r->pending_count * sizeof one);
        r->now = one.at > r->now ? one.at : r->now;
        if (one.way == BW_UP)
            confirm(r, &one);
        else
            receive(r, &one);
    }
    r->now = end;
}

static void compare(rig *r)
{
    for (bw_way way = 0; way < BW_WAYS; way++) {
        if (!chance(r, 3)) {
            const double rate = estimate(&r->m, way);
            test_close(bw_passive_estimate(&r->passive, way), rate, 1e-9, 1e-9, "bytes/s");
            r->read += rate > 0;
        }
        const double least = r->m.ways[way].least * 1e6;
        test_close(bw_passive_at_least(&r->passive, way), least, 1e-9, 1e-9, "bytes/s at least");
        r->bounded += least > 0;
        r->m.ways[way].least = 0;
    }
}

static void learn(rig *r)
{
    const bw_way way = rt_random_below(&r->random, 2);
    const uint32_t shard = rt_random_below(&r->random, SHARDS - 1);
    stream *s = &r->m.streams[shard];
    if (s->count == 0 && s->beyond == 0) // of nothing
        bw_passive_confirmed(&r->passive, shard, 2 * rt_random_below(&r->random, 1000), 1);
    if (chance(r, 2)) {
        const double rate = r->even ? 1.2 / (1 / r->rate[way]) // just so that nothing is held up
                                    : r->rate[way] * (0.5 + 2 * rt_random_unit(&r->random));
        bw_passive_probed(&r->passive, way, rate * 1e6);
        r->m.ways[way].shown = rate * 1e6 / 1e6;
        r->m.ways[way].held_up = 0;
        return;
    }
    const int64_t took = (way == BW_UP ? 1 : -1) * r->offset[shard] + 250;
    bw_passive_timed(&r->passive, shard, way, took, (uint64_t)r->now);
    *(way == BW_UP ? &s->up : &s->down) =
        (delay){.known = true, .first = took, .count = 128, .at_us = r->now};
}

static void one_step(rig *r)
{
    const uint32_t shard = rt_random_below(&r->random, chance(r, 8) ? SHARDS : SHARDS - 1);
    const uint32_t kind = rt_random_below(&r->random, 16);
    const uint32_t burst = chance(r, 40) ? 90 : 1 + rt_random_below(&r->random, 12);
    const int64_t most = chance(r, 2) ? 300000 : 4000;
    for (uint32_t i = 0; i < burst && kind < 12; i++) {
        const bool equal = r->even || (most < 9000 && kind < 9); // a point in the middle of others
        const int64_t bytes = equal ? EVEN_BYTES : 1 + rt_random_below(&r->random, (uint32_t)most);
        if (kind < 6 || (kind > 10 && i % 2))
            send_some(r, shard, bytes, !chance(r, 7));
        else
            fetch_some(r, shard, bytes);
        if (chance(r, 5))
            pass_time(r, some_time(r, 3000));
    }
    if (kind == 12) { // until the link is idle, and longer
        const double busy_us = fmax(r->free_at[0], r->free_at[1]) - (double)r->now;
        pass_time(r, (int64_t)fmax(busy_us, 0) + 400000);
    }
    if (kind == 13)
        compare(r);
    if (kind == 14 && chance(r, 4))
        learn(r);
    if (kind == 15 && chance(r, 6))
        r->rate[rt_random_below(&r->random, 2)] = r->even
                                                      ? 10.0 / (1 + rt_random_below(&r->random, 4))
                                                      : 2 + 40 * rt_random_unit(&r->random);
    pass_time(r, some_time(r, chance(r, 3) ? 120000 : 12000));
}

// Both ways full at once, again and again: what is slower than it was seen to be is held up, until
// it has been for so long, or was quicker in between.
static void hold_up(rig *r)
{
    const uint32_t rounds = 10 + rt_random_below(&r->random, 25);
    const uint32_t quick_one_of = 6 + rt_random_below(&r->random, 40);
    r->rate[BW_UP] = 2 + 3 * rt_random_unit(&r->random);
    for (uint32_t round = 0; round < rounds; round++) {
        const double rate = r->rate[BW_UP];
        pass_time(r, 600000);
        if (chance(r, quick_one_of))
            r->rate[BW_UP] = 60;
        for (uint32_t i = 0; i < 8; i++) {
            fetch_some(r, i % 2, 200000);
            send_some(r, i % 2, 150000, true);
        }
        pass_time(r, 3000000);
        r->rate[BW_UP] = rate;
        compare(r);
    }
}

static void random_traffic(void **state)
{
    (void)state;
    uint32_t read = 0, bounded = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        rig *r = rt_alloc(1, sizeof *r);
        assert_non_null(r);
        r->random.state = seed;
        r->now = 1000000;
        bw_passive_init(&r->passive);
        r->passive.local = 1u << (SHARDS - 1);
        r->even = seed % 3 == 0;
        for (bw_way way = 0; way < BW_WAYS; way++)
            r->rate[way] = r->even ? EVEN_RATE : 3 + 10 * rt_random_unit(&r->random);
        for (uint32_t s = 0; s < SHARDS; s++)
            r->offset[s] = rt_random_below(&r->random, UINT32_MAX);
        for (uint32_t i = 0; i < STEPS; i++) {
            one_step(r);
            if (!r->even && chance(r, 250))
                hold_up(r);
        }
        compare(r);
        read += r->read;
        bounded += r->bounded;
        rt_free(r);
    }
    assert_true(read > 500 && bounded > 500);
}

TEST_MAIN(TEST(random_traffic))
