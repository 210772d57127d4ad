#include "bandwidth_probe/bw_passive.h"

#include <math.h>

#define STAMP_BITS 31

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
    const double beyond = (double)((int32_t)(took - delay->first) >> (32 - STAMP_BITS));
    if (now_us > delay->at_us)
        delay->least += (double)(now_us - delay->at_us) * BW_PASSIVE_DRIFT;
    delay->at_us = now_us;
    delay->least = fmin(delay->least, beyond);
    return (int64_t)(beyond - delay->least);
}

// The messages of the stretch took the time since it began for all but what passes at once.
static void note_least(bw_stretch *s)
{
    const double us = (double)(s->last_us - s->begin_us) + BW_PASSIVE_DOUBT_US;
    const double bytes = (double)s->all_bytes - BW_PASSIVE_BURST_BYTES;
    if (s->open && us > 0 && bytes > 0)
        s->least = fmax(s->least, bytes / us);
}

static void add(bw_stretch *s, int64_t handed_us, int64_t arrived_us, uint64_t bytes, bool prompt)
{
    if (!s->open || handed_us + BW_PASSIVE_DEPTH_US > s->last_us) { // the link was idle, or may be
        *s = (bw_stretch){.open = prompt,
                          .begin_us = handed_us,
                          .last_us = arrived_us,
                          .all_bytes = bytes,
                          .least = s->least,
                          .bytes = s->bytes,
                          .us = s->us};
    } else {
        s->pending_bytes += bytes;
        s->all_bytes += bytes;
        if (!prompt || arrived_us <= s->last_us)
            return;
        s->bytes += s->pending_bytes;
        s->us += (uint64_t)(arrived_us - s->last_us);
        s->pending_bytes = 0;
        s->last_us = arrived_us;
    }
    note_least(s);
}

void bw_passive_sent(bw_passive *passive, uint32_t shard, uint64_t bytes, bool push,
                     uint64_t now_us)
{
    bw_stream *stream = &passive->streams[shard];
    stream->bytes += bytes;
    if (!push)
        return;
    if (stream->count == BW_PASSIVE_PUSHES_MAX || stream->unfollowed) {
        stream->unfollowed++;
        return;
    }
    const uint32_t at = (stream->first + stream->count++) % BW_PASSIVE_PUSHES_MAX;
    stream->pushes[at].handed_us = (int64_t)now_us;
    stream->pushes[at].bytes = stream->bytes;
    stream->bytes = 0;
}

void bw_passive_confirmed(bw_passive *passive, uint32_t shard, uint32_t stamp, uint64_t now_us)
{
    bw_stream *stream = &passive->streams[shard];
    if (stream->count == 0) {
        stream->unfollowed -= stream->unfollowed > 0;
        return;
    }
    const int64_t handed_us = stream->pushes[stream->first].handed_us;
    const uint64_t bytes = stream->pushes[stream->first].bytes;
    stream->first = (stream->first + 1) % BW_PASSIVE_PUSHES_MAX;
    stream->count--;
    if (!stamp)
        return;
    const int64_t took_us = excess_us(&stream->up, (uint32_t)handed_us, stamp >> 1, now_us);
    add(&passive->ways[BW_UP], handed_us, handed_us + took_us, bytes, stamp & 1);
}

void bw_passive_received(bw_passive *passive, uint32_t shard, uint64_t bytes, uint32_t stamp,
                         uint64_t now_us, bool prompt)
{
    bw_stretch *down = &passive->ways[BW_DOWN];
    if (!stamp) { // the next one with a stamp decides
        down->pending_bytes += down->open ? bytes : 0;
        return;
    }
    const int64_t took_us =
        excess_us(&passive->streams[shard].down, stamp >> 1, (uint32_t)now_us, now_us);
    add(down, (int64_t)now_us - took_us, (int64_t)now_us, bytes, prompt);
}

double bw_passive_estimate(bw_passive *passive, bw_way way)
{
    bw_stretch *stretch = &passive->ways[way];
    if (stretch->us < BW_PASSIVE_LEAST_US || stretch->bytes < BW_PASSIVE_LEAST_BYTES)
        return 0;
    const double rate = (double)stretch->bytes * 1e6 / (double)stretch->us;
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
