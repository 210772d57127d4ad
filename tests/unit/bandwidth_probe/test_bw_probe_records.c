// Probes of links that are made up, one for each way in which they may behave, against those that
// were recorded (tests/golden/probes.golden): what was sent and when, and what came of it. What a
// probe has to find out, test_bw_probe says; this one notices that one goes on otherwise.
//
// A change that is to make others: LANYARD_UPDATE_GOLDEN=1 (or a part of a name) writes the file
// anew. It has a line for each link, NAME: KEY=VALUE..., below it, indented, what is recorded.
#include "tests/unit/bandwidth_probe/probe_link.h"

#include <inttypes.h>
#include <stdio.h>

#include "tests/support/records.h"

#define GOLDEN "tests/golden/probes.golden"
#define PARTS 2u

typedef struct {
    probe_link link;
    double turn_s, silence_s;
} probe;

static void set(probe *p, const char *key, double value)
{
    probe_link *l = &p->link;
    const struct {
        const char *key;
        double *number; // or one of these, in units of
        uint64_t *wide;
        uint32_t *whole;
        double unit;
    } all[] = {{"turn_s", &p->turn_s, NULL, NULL, 1},
               {"silence_s", &p->silence_s, NULL, NULL, 1},
               {"rate", &l->bytes_per_s, NULL, NULL, 1},
               {"stream_rate", &l->stream_bytes_per_s, NULL, NULL, 1},
               {"rtt_us", NULL, &l->rtt_ns, NULL, 1e3},
               {"disturbed_ms", NULL, &l->disturbed_ns, NULL, 1e6},
               {"slows_ms", NULL, &l->slows_ns, NULL, 1e6},
               {"seed", NULL, &l->seed, NULL, 1},
               {"tick_us", NULL, &l->tick_ns, NULL, 1e3},
               {"jitter_us", NULL, &l->jitter_ns, NULL, 1e3},
               {"streams", NULL, NULL, &l->stream_count, 1},
               {"uneven", NULL, NULL, &l->uneven, 1},
               {"queue", NULL, NULL, &l->queue, 1},
               {"ends_at", NULL, NULL, &l->ends_at, 1},
               {"deaf_from", NULL, NULL, &l->deaf_from, 1},
               {"wrong_at", NULL, NULL, &l->wrong_at, 1},
               {"waits", NULL, NULL, &l->waits, 1},
               {"turns", NULL, NULL, &l->turns, 1}};
    for (size_t i = 0; i < RT_COUNT_OF(all); i++) {
        if (strcmp(all[i].key, key) != 0)
            continue;
        if (all[i].number)
            *all[i].number = value * all[i].unit;
        else if (all[i].wide)
            *all[i].wide = (uint64_t)(value * all[i].unit);
        else
            *all[i].whole = (uint32_t)(value * all[i].unit);
        return;
    }
    if (strcmp(key, "offset_us") == 0)
        l->offset_ns = (int64_t)(value * 1e3);
    else if (strcmp(key, "is_taken") == 0)
        l->is_taken = value != 0;
    else
        fail_msg("a link has no %s", key);
}

static probe probe_of(const char *line)
{
    probe p = {.link = {.stream_count = 1, .rtt_ns = 200000}, .turn_s = 5};
    char text[RECORDS_LINE_BYTES];
    snprintf(text, sizeof text, "%s", strchr(line, ':') + 1);
    for (char *rest = NULL, *one = strtok_r(text, " ", &rest); one;
         one = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(one, '=');
        if (!value)
            fail_msg("%s: expected KEY=VALUE", one);
        *value++ = '\0';
        set(&p, one, strtod(value, NULL));
    }
    if (p.link.stream_bytes_per_s == 0)
        p.link.stream_bytes_per_s = p.link.bytes_per_s;
    return p;
}

static void put_rate(rt_bytes *record, const char *way, const bw_rate *rate)
{
    records_put(record, "%s: %.9e bytes/s, spread %.9e, %" PRIu64 " bytes, trains: %" PRIu32, way,
                rate->bytes_per_s, rate->spread, rate->bytes, rate->trains);
}

static char *play(const char *line)
{
    const probe p = probe_of(line);
    rt_bytes record = {0};
    rt_error error = {0};
    rt_status status;
    bw_result r = {0};
    link_look_ns = 0; // however often it is looked at
    link_clock_ns = UINT64_C(1000000000);
    probe_link *link = link_probe(&p.link, p.turn_s, p.silence_s, &status, &r, &error);
    records_put(&record, "ended with %d: %s", status, error.text);
    records_put(&record, "sent %" PRIu32 " messages #%016" PRIx64 ", all at %" PRIu64, link->sent,
                link->sent_hash, link_clock_ns);
    free(link);
    if (!status) {
        put_rate(&record, "up", &r.up);
        put_rate(&record, "down", &r.down);
        records_put(&record, "round trip %.9e s, up %" PRId64 ", down %" PRId64 " us%s", r.rtt_s,
                    r.up_us, r.down_us, bw_probe_is_long(&r) ? ", long" : "");
    }
    return records_text(&record);
}

int main(int argc, char **argv)
{
    return records_main(GOLDEN, PARTS, 0, play, argc, argv);
}
