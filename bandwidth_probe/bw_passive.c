#include "bandwidth_probe/bw_passive.h"

#include <math.h>

#define STAMP_BITS 31
#define FIRST_US_MAX 1e8

void bw_passive_init(bw_passive *passive)
{
    *passive = (bw_passive){0};
}

// What a message took beyond the quickest one: 0 or more. Times are modulo 2^31.
static int64_t excess_us(bw_delay *delay, uint32_t handed, uint32_t arrived, uint64_t now_us)
{
    const uint32_t took = (arrived - handed) << (32 - STAMP_BITS);
    if (!delay->known)
        *delay = (bw_delay){.known = true, .first = took, .at_us = now_us};
    double beyond = (double)((int32_t)(took - delay->first) >> (32 - STAMP_BITS));
    if (fabs(beyond) > FIRST_US_MAX) { // clocks part: count from this one, before 2^30 are reached
        delay->first = took;
        delay->least -= beyond;
        beyond = 0;
    }
    const double drift =
        now_us > delay->at_us ? (double)(now_us - delay->at_us) * BW_PASSIVE_DRIFT : 0;
    delay->least += drift;
    delay->drift += drift;
    delay->at_us = now_us;
    delay->count += delay->count < UINT32_MAX;
    if (beyond <= delay->least) { // quick, or only no later than clocks may have drifted
        delay->drift = fmax(0, beyond - (delay->least - delay->drift));
        delay->least = beyond;
    }
    return (int64_t)(beyond - delay->least);
}

static double doubt_us(const bw_delay *delay)
{
    const double halvings = (double)delay->count / BW_PASSIVE_DOUBT_MESSAGES;
    return fmax(BW_PASSIVE_DOUBT_US / (1 + halvings), BW_PASSIVE_DOUBT_US_MIN) + delay->drift;
}

// The messages of the stretch took the time since it began for all but what passes at once.
static void note_least(bw_stretch *s, const bw_delay *delay)
{
    const double us = (double)(s->last_us - s->begin_us) + BW_PASSIVE_BURST_US + doubt_us(delay);
    const double bytes = (double)s->all_bytes - BW_PASSIVE_BURST_BYTES;
    if (!s->open)
        return;
    s->least = fmax(s->least, bytes / us);
    if (bytes > s->shown * us) {
        s->shown = bytes / us;
        s->held_up = 0;
    }
}

// Whether point b is on or above the line from a to c.
static bool is_above(const bw_stretch *s, uint32_t a, uint32_t b, uint32_t c)
{
    const double bytes_b = (double)(s->points[b].bytes - s->points[a].bytes);
    const double bytes_c = (double)(s->points[c].bytes - s->points[a].bytes);
    return (double)(s->points[b].us - s->points[a].us) * bytes_c >=
           (double)(s->points[c].us - s->points[a].us) * bytes_b;
}

// Microseconds per byte of that edge of the points' lower convex hull which passes their middle.
// The first and the last may be late.
static double middle_edge(const bw_stretch *s)
{
    uint32_t hull[BW_PASSIVE_POINTS], count = 0, edge = 1;
    const uint32_t last = s->point_count - 1;
    for (uint32_t i = 0; i <= last; i++) {
        while (count > 1 && is_above(s, hull[count - 2], hull[count - 1], i))
            count--;
        hull[count++] = i;
    }
    const uint64_t first_bytes = s->points[0].bytes, all = s->points[last].bytes - first_bytes;
    while (s->points[hull[edge]].bytes - first_bytes < all / 2)
        edge++;
    const uint32_t from = hull[edge - 1], to = hull[edge];
    return (double)(s->points[to].us - s->points[from].us) /
           (double)(s->points[to].bytes - s->points[from].bytes);
}

// Whether pushes that were handed over so early were not confirmed so much later.
static bool pushes_wait(const bw_passive *passive, int64_t to_us)
{
    for (uint32_t i = 0; i < RT_SHARDS_MAX; i++) {
        const bw_stream *stream = &passive->streams[i];
        if (stream->count && stream->pushes[stream->first].handed_us + BW_PASSIVE_DEPTH_US < to_us)
            return true;
    }
    return false;
}

static bw_way other_way(bw_way way)
{
    return way == BW_UP ? BW_DOWN : BW_UP;
}

static bool other_is_full(const bw_passive *passive, bw_way way, int64_t from_us, int64_t to_us)
{
    const bw_stretch *other = &passive->ways[other_way(way)];
    for (uint32_t i = 0; i < BW_PASSIVE_SPANS; i++) {
        if (other->spans[i].from_us < to_us && other->spans[i].to_us > from_us)
            return true;
    }
    if (other->point_count > 1 && other->begin_us < to_us && other->last_us > from_us)
        return true;
    return way == BW_DOWN && pushes_wait(passive, to_us);
}

static bool has_slowed_down(const bw_stretch *s)
{
    return s->latest > 0 && BW_PASSIVE_HELD_UP * s->latest < s->shown;
}

static void count_rate(bw_stretch *s, double bytes, double us_per_byte, bool alone,
                       bool other_slowed_down)
{
    s->latest = 1 / us_per_byte;
    if (alone || other_slowed_down || BW_PASSIVE_HELD_UP / us_per_byte >= s->shown ||
        s->held_up == BW_PASSIVE_HELD_UP_MAX) {
        s->bytes += bytes;
        s->us += bytes * us_per_byte;
    } else {
        s->held_up++;
    }
    if (alone) {
        s->shown = 1 / us_per_byte;
        s->held_up = 0;
    }
}

void bw_passive_probed(bw_passive *passive, bw_way way, double bytes_per_s)
{
    passive->ways[way].shown = bytes_per_s / 1e6;
    passive->ways[way].held_up = 0;
}

void bw_passive_timed(bw_passive *passive, uint32_t shard, bw_way way, int64_t took_us,
                      uint64_t now_us)
{
    bw_stream *stream = &passive->streams[shard];
    bw_delay *delay = way == BW_UP ? &stream->up : &stream->down;
    *delay = (bw_delay){.known = true,
                        .first = (uint32_t)took_us << (32 - STAMP_BITS),
                        .count = BW_PASSIVE_DOUBT_US / BW_PASSIVE_DOUBT_US_MIN *
                                 BW_PASSIVE_DOUBT_MESSAGES,
                        .at_us = now_us};
}

// Counts the points so far; the last is where the next ones begin.
static void count_points(bw_passive *passive, bw_way way)
{
    bw_stretch *s = &passive->ways[way];
    if (s->point_count < 2)
        return;
    const uint32_t last = s->point_count - 1;
    const int64_t from_us = s->points[0].us, to_us = s->points[last].us;
    if (last > 1 || to_us - from_us >= BW_PASSIVE_LONG_US)
        count_rate(s, (double)(s->points[last].bytes - s->points[0].bytes), middle_edge(s),
                   !other_is_full(passive, way, from_us, to_us),
                   has_slowed_down(&passive->ways[other_way(way)]));
    s->spans[s->span_next].from_us = s->begin_us;
    s->spans[s->span_next].to_us = s->last_us;
    s->span_next = (s->span_next + 1) % BW_PASSIVE_SPANS;
    s->points[0] = s->points[last];
    s->point_count = 1;
}

static void add_point(bw_passive *passive, bw_way way)
{
    bw_stretch *s = &passive->ways[way];
    if (s->point_count == BW_PASSIVE_POINTS)
        count_points(passive, way);
    s->points[s->point_count].us = s->last_us;
    s->points[s->point_count++].bytes = s->all_bytes;
}

// begun_us, handed_us: when the first and when the last of the bytes were handed over.
static void add(bw_passive *passive, bw_way way, const bw_delay *delay, int64_t begun_us,
                int64_t handed_us, int64_t arrived_us, uint64_t bytes, bool prompt)
{
    bw_stretch *s = &passive->ways[way];
    if (!s->open || handed_us + BW_PASSIVE_DEPTH_US > s->last_us) { // the link was idle, or may be
        count_points(passive, way);
        s->open = prompt;
        s->begin_us = begun_us;
        s->all_bytes = bytes;
        s->point_count = 0;
    } else {
        s->all_bytes += bytes;
        if (!prompt || arrived_us <= s->last_us)
            return;
    }
    s->last_us = arrived_us;
    if (s->open)
        add_point(passive, way);
    note_least(s, delay);
}

void bw_passive_sent(bw_passive *passive, uint32_t shard, uint64_t bytes, bool push,
                     uint64_t now_us)
{
    bw_stream *stream = &passive->streams[shard];
    if (passive->local >> shard & 1)
        return;
    if (stream->bytes == 0)
        stream->begun_us = (int64_t)now_us;
    stream->bytes += bytes;
    if (!push)
        return;
    if (stream->count == BW_PASSIVE_PUSHES_MAX || stream->unfollowed) {
        stream->unfollowed++;
        return;
    }
    const uint32_t at = (stream->first + stream->count++) % BW_PASSIVE_PUSHES_MAX;
    stream->pushes[at].begun_us = stream->begun_us;
    stream->pushes[at].handed_us = (int64_t)now_us;
    stream->pushes[at].bytes = stream->bytes;
    stream->bytes = 0;
}

void bw_passive_confirmed(bw_passive *passive, uint32_t shard, uint32_t stamp, uint64_t now_us)
{
    bw_stream *stream = &passive->streams[shard];
    if (passive->local >> shard & 1)
        return;
    if (stream->count == 0) {
        stream->unfollowed -= stream->unfollowed > 0;
        return;
    }
    const int64_t begun_us = stream->pushes[stream->first].begun_us;
    const int64_t handed_us = stream->pushes[stream->first].handed_us;
    const uint64_t bytes = stream->pushes[stream->first].bytes;
    stream->first = (stream->first + 1) % BW_PASSIVE_PUSHES_MAX;
    stream->count--;
    if (!stamp)
        return;
    const int64_t took_us = excess_us(&stream->up, (uint32_t)handed_us, stamp >> 1, now_us);
    add(passive, BW_UP, &stream->up, begun_us, handed_us, handed_us + took_us, bytes, stamp & 1);
}

void bw_passive_received(bw_passive *passive, uint32_t shard, uint64_t bytes, uint32_t stamp,
                         uint64_t now_us, bool prompt)
{
    bw_stretch *down = &passive->ways[BW_DOWN];
    if (!stamp) { // the next one with a stamp decides
        down->all_bytes += down->open ? bytes : 0;
        return;
    }
    if (passive->local >> shard & 1)
        return;
    bw_delay *delay = &passive->streams[shard].down;
    const int64_t took_us = excess_us(delay, stamp >> 1, (uint32_t)now_us, now_us);
    const int64_t handed_us = (int64_t)now_us - took_us;
    add(passive, BW_DOWN, delay, handed_us, handed_us, (int64_t)now_us, bytes, prompt);
}

double bw_passive_estimate(bw_passive *passive, bw_way way)
{
    bw_stretch *stretch = &passive->ways[way];
    count_points(passive, way);
    if (stretch->us < BW_PASSIVE_LEAST_US || stretch->bytes < BW_PASSIVE_LEAST_BYTES)
        return 0;
    const double rate = stretch->bytes * 1e6 / stretch->us;
    stretch->bytes = 0;
    stretch->us = 0;
    return rate;
}

double bw_passive_at_least(bw_passive *passive, bw_way way)
{
    const double least = passive->ways[way].least * 1e6;
    passive->ways[way].least = 0;
    return least;
}
