// bw_table - the links of a run as far as they are known, with a version that changes count up.
//
// Starts with the configured rates. A measured rate takes effect when it differs from the one in
// force by more than BW_CHANGE, and lasts: a probe counts at once; of estimates from transfers,
// which are noisy, BW_AGREE of the last BW_LASTS must say so, and their median is taken. A probe
// replaces what transfers said if it differs by more than BW_PRECISE.
//
// The link of the parameter servers is shared: when several workers read slow at once, far below
// what their own links have, it holds them up, and their sum is its rate; the same once they read
// faster together than it is known to be. It gives all that it holds up about the same, so one
// that reads faster than those, as fast as its own link, shows that it is their links that are
// slow.
//
// Shards may be on several boxes. A worker probes each; the best is its own link, and a box that
// all who try it find slower than their own links is a limit of its shards.
// A plain value, one thread, reads no clock.
#ifndef BW_TABLE_H
#define BW_TABLE_H

#include "runtime/config/rt_config.h"
#include "runtime/wire/rt_control.h"

#define BW_CHANGE 0.15
#define BW_PRECISE 0.05
#define BW_LASTS 8u
#define BW_AGREE 6u
#define BW_SHARED 0.3  // so far below its rate in force a link is slow for others' sake
#define BW_WITNESS 1.3 // a link so much faster than the slow ones shows what the others could have
#define BW_FORGET 16u  // iterations after which an estimate no longer counts
#define BW_RECENT 4u   // iterations for which an estimate speaks for its link

typedef enum { BW_UP, BW_DOWN, BW_WAYS } bw_way;
typedef enum { BW_PROBED, BW_ESTIMATED } bw_source;

typedef struct {
    double bytes_per_s; // in force
    bool is_estimate;   // that is what transfers said, and no probe since
    uint32_t count, next;
    struct {
        double bytes_per_s;
        uint64_t round;
    } last[BW_LASTS]; // estimates since the last change
} bw_known;

typedef struct {
    uint32_t worker_count;
    bool pinned; // links.pin: what is measured changes nothing
    uint64_t version;
    bw_known links[RT_WORKERS_MAX][BW_WAYS];
    double rtt_s[RT_WORKERS_MAX]; // to the nearest box of shards; 0: not measured
    bw_known ps[BW_WAYS];         // bytes_per_s 0: no limit is known; BW_UP: from the workers
    uint32_t shard_count;
    uint32_t box_of[RT_SHARDS_MAX]; // the first shard on the same box
    double boxes[RT_SHARDS_MAX];    // bytes/s of that shard's box; 0: no limit known
    double probed[RT_WORKERS_MAX][RT_SHARDS_MAX][BW_WAYS]; // of that shard's box; 0: not measured
    uint64_t rounds;
    struct {
        double bytes_per_s;
        uint64_t round;
    } recent[RT_WORKERS_MAX][BW_WAYS];
} bw_table;

typedef struct {
    double ways[BW_WAYS];     // bytes/s; 0: nothing new
    double at_least[BW_WAYS]; // used where ways says nothing and the rate in force is slower
} bw_rates;

// What a worker's probe of one box of shards said.
typedef struct {
    uint32_t shard; // the first of the box
    double ways[BW_WAYS];
    double rtt_s;
} bw_reading;

typedef struct {
    uint64_t links[BW_WAYS]; // masks of workers
    uint64_t shards;         // mask
    bool ps;
} bw_changes;

// Shards whose addresses ("tcp://HOST:PORT") name the same host are on one box: box_of[i] is the
// first of them.
void bw_boxes(const char (*addresses)[RT_ADDRESS_MAX], uint32_t shard_count, uint32_t *box_of);

void bw_table_init(const rt_config *config, bw_table *table);

double bw_table_rate(const bw_table *table, uint32_t worker, bw_way way); // bytes/s, in force

// True: the rate in force changed. A rate that is no positive number is not taken.
bool bw_table_measured(bw_table *table, uint32_t worker, bw_way way, bw_source source,
                       double bytes_per_s);

// True: what transfers of the worker said is in force, and no probe has confirmed it.
bool bw_table_doubts(const bw_table *table, uint32_t worker);

// Takes the probes of a worker, one for every box at most.
void bw_table_probed(bw_table *table, uint32_t worker, const bw_reading *readings, uint32_t count,
                     bw_changes *changes);

// Takes one round of estimates, of all workers; *changes says what is in force now that was not.
void bw_table_estimated(bw_table *table, const bw_rates *estimates, bw_changes *changes);

// Of the parameter servers together, the slower way; 0: no limit is known.
double bw_table_ps_rate(const bw_table *table);

// What is left for one shard of its box's link, the slower way, if all shards of the box take the
// same; 0: no limit is known.
double bw_table_shard_rate(const bw_table *table, uint32_t shard);

// That rate is in force in the run that goes on.
void bw_table_set_shard_rate(bw_table *table, uint32_t shard, double bytes_per_s);

#endif
