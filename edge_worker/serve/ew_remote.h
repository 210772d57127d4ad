// ew_remote - rows of a model that this box has no full copy of (serve.rows "fetched").
//
// The rows that were used last are in a bounded cache (ew_cache); those that a batch lacks are
// asked for in one question (ew_asker) of the server that has all of them (ew_lender there), and so
// are those that were cached with another version: they come again only where they have changed. So
// a batch has the rows of one version, that of the dense part, where that version is still there.
//
// Where there is no answer in time, rows of another version stand in for those of this one, and the
// answer says so; samples with a key that nothing is known of are not answered: a row that was
// trained is never taken for one that was not.
#ifndef EW_REMOTE_H
#define EW_REMOTE_H

#include "edge_worker/serve/ew_follower.h"
#include "runtime/transport/rt_keys.h"

typedef struct ew_remote ew_remote;

typedef struct {
    const char *address; // "tcp://HOST:PORT"
    const rt_keys *keys; // NULL: loopback only; outlives it
    uint32_t dim;
    uint64_t cache_bytes_max;
    uint32_t fetch_ms;
} ew_remote_config;

typedef struct {
    uint64_t cached;       // keys that something is known of
    uint64_t cached_bytes; // that the cache may take
    uint64_t wanted;       // keys of batches, each once a batch
    uint64_t asked;        // of them, for which a question went out
    uint64_t fetched;      // rows that came
    uint64_t questions, failures;
} ew_remote_counts;

// RT_CONFIG, RT_IO, RT_NO_MEMORY, RT_LIMIT. That nobody answers yet is no error.
rt_status ew_remote_open(const ew_remote_config *config, ew_remote **remote_p, rt_error *error);
void ew_remote_close(ew_remote *remote); // also NULL; fetchers are gone

ew_remote_counts ew_remote_counted(ew_remote *remote);

// Of one thread that scores.
typedef struct ew_fetcher ew_fetcher;

// RT_NO_MEMORY.
rt_status ew_fetcher_create(ew_remote *remote, ew_fetcher **fetcher_p);
void ew_fetcher_destroy(ew_fetcher *fetcher); // also NULL

// What the next ew_scorer_run with these weights finds rows by: those of this version.
const ew_rows_elsewhere *ew_fetcher_begin(ew_fetcher *fetcher, const ew_version *version);

// Of look-ups [first, end) of the batch that was gathered last: RT_PEER, a row is not here and did
// not come. Otherwise *version (of the dense part) says what its rows are of.
rt_status ew_fetcher_judge(const ew_fetcher *fetcher, uint32_t first, uint32_t end,
                           ew_version *version, rt_error *error);

#endif
