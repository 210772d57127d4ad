// Probes of links that are made up, one for each way in which they may behave: probes.txt has a
// line for each, NAME: KEY=VALUE..., and below it what the probe finds, to be held against that. A
// steady link is found to three in a hundred, and no probe takes longer than it may.
//
// LANYARD_UPDATE_GOLDEN=1 (or a part of a name) writes the file anew.
#include "tests/unit/bandwidth_probe/probe_link.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "tests/support/records.h"

#define PROBES "tests/unit/bandwidth_probe/probes.txt"
#define PARTS 2u
#define UNDER_WAY_BYTES 5e6

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

// Of one stream as of all; the clock of neither side jumps, nobody disturbs it, nothing is lost.
static bool is_steady(const probe_link *l)
{
    return !l->disturbed_ns && !l->slows_ns && !l->uneven && !l->jitter_ns && !l->ends_at &&
           !l->deaf_from && !l->wrong_at && !l->tick_ns && !l->waits && !l->queue && !l->is_taken &&
           l->stream_bytes_per_s >= l->bytes_per_s;
}

static void check_steady(const probe *p, const bw_result *r)
{
    const double rate = p->link.bytes_per_s;
    if (rate * (double)p->link.rtt_ns * 1e-9 > UNDER_WAY_BYTES)
        return; // more than a probe has under way does not fill it
    if (fabs(r->up.bytes_per_s / rate - 1) > 0.03 || fabs(r->down.bytes_per_s / rate - 1) > 0.03)
        fail_msg("a link of %g bytes/s is found to have %g up, %g down", rate, r->up.bytes_per_s,
                 r->down.bytes_per_s);
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
    free(link);
    if (status) {
        records_put(&record, "%s", error.text);
        return records_text(&record);
    }
    records_put(&record, "%.3g bytes/s up, %.3g down, round trip %.2g s%s", r.up.bytes_per_s,
                r.down.bytes_per_s, r.rtt_s, bw_probe_is_long(&r) ? ", long" : "");
    if (is_steady(&p.link))
        check_steady(&p, &r);
    return records_text(&record);
}

int main(int argc, char **argv)
{
    return records_main(PROBES, PARTS, 0, play, argc, argv);
}
