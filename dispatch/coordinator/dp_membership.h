// dp_membership - who the members of a run are, and what each one is to it: one table with one
// state for each worker and each shard of the configuration. Nothing else notes who takes part.
//
//             HELLO                  the run begins              a slice
//    +-> UNKNOWN ----------> JOINING ---------------> SITS_OUT <---------> TRAINS
//    |                       |  |  ^                    |   |                |
//    | it went, no place     |  |  | HELLO         lost |   | its box leaves |
//    +-----------------------+  |  |                    v   +-------+--------+
//                               |  +----------------- LOST          |
//                               |  it went, had a place ^           v
//                               +-----------------------+       DRAINING
//                               |                                   ^
//                               |  its box leaves                   |
//                               +-----------------------------------+
//
// A HELLO that does not fit changes nothing. A shard that takes part is always in TRAINS: JOINING
// leads there. If a worker is lost that the run needs, the run ends, and the table with it. Two
// states belong to recovery without a standstill (docs/RECOVERY.md), and nothing enters them yet:
// FILLING comes between JOINING and SITS_OUT, while the run goes on and the newcomer's cache is
// filled; ROLLED_BACK comes between LOST and SITS_OUT, once a lost worker is back at a cut.
//
//   call                     who                 when
//   dp_membership_hello      dp_roster           a HELLO fits
//   dp_membership_begin      dp_roster           all that are awaited are there
//   dp_membership_went       dp_roster           a member that waits is silent, fails, is closed
//   dp_membership_extend     dp_move             a box more is known
//   dp_membership_sent       dp_iterations       before the slices of a plan go out
//   dp_membership_reported   dp_iterations       a worker has reported a slice
//   dp_membership_completed  dp_iterations       all have reported an iteration
//   dp_membership_lose       dp_losses           a worker has gone, and dp_membership_can_spare
//   dp_membership_dismiss    dp_move             the checkpoint with which a box leaves is written
//
// Members have two numbers. A rank numbers all members of the configuration: people, files and, if
// nothing else is said, this header use ranks. A place numbers the members that take part, in the
// order of their ranks: plans, slices and masks of workers use places. Places are final once the
// run has begun; until then every member that is invited has one.
//
// What holds after every call (check() asserts it):
// - Before the run begins every member is UNKNOWN or JOINING.
// - A member in another state has a place, or is DRAINING.
// - A member with a place is invited. Once the run has begun, such a shard is TRAINS or DRAINING.
// - Only workers are SITS_OUT or LOST, and at least one worker takes part.
// - A worker has settled no slice that was not sent, and trained no iteration that was not sent.
//
// A plain value of the coordinator's thread.
#ifndef DP_MEMBERSHIP_H
#define DP_MEMBERSHIP_H

#include "runtime/rt_base.h"
#include "runtime/wire/rt_control.h"

typedef enum {
    DP_MEMBER_UNKNOWN,  // not connected
    DP_MEMBER_JOINING,  // connected; it waits until the run begins, or a later start takes it in
    DP_MEMBER_FILLING,  // not entered yet
    DP_MEMBER_SITS_OUT, // the newest iteration that went out is trained without it
    DP_MEMBER_TRAINS,
    DP_MEMBER_DRAINING,    // told to end for good when the run ends
    DP_MEMBER_LOST,        // not connected; its place stays empty
    DP_MEMBER_ROLLED_BACK, // not entered yet
    DP_MEMBER_STATES
} dp_member_state;

typedef enum {
    DP_INVITED_AWAITED,  // the run does not begin before it is there
    DP_INVITED_OPTIONAL, // it takes part if it is there when the run begins
    DP_INVITED_LATER,    // a worker that was lost too often: a later start takes it back
    DP_INVITED_NOT       // of a box that is no part of the run: `lanyard add` takes it in
} dp_invitation;

typedef struct {
    uint32_t peer; // its rank
    dp_member_state state;
    dp_invitation invitation;
    // While it is connected.
    uint64_t heard_ns;
    char address[RT_ADDRESS_MAX];
    uint8_t key[RT_WIRE_KEY_BYTES];
    bool has_rows; // a shard that came with rows of a checkpoint in memory
    // Of a worker: what was sent to it, and what it has said of that.
    uint64_t needed;  // the last slice in which it trains, or sends something to others
    uint64_t settled; // the last slice whose report said that all it had sent is confirmed
    uint32_t trained; // its last iteration; 0: none since this start
} dp_member;

typedef struct {
    dp_member workers[RT_WORKERS_MAX], shards[RT_SHARDS_MAX];
    uint32_t worker_count, shard_count;
    uint64_t worker_places, shard_places; // masks of ranks: who has a place
    uint32_t connected;
    bool has_begun;
    uint64_t sequence;  // of the newest slices that went out
    uint32_t iteration; // likewise, and
    uint32_t complete;  // the newest one that all have reported
    uint64_t clean;     // workers by place that have no row, behind that plan, which the PS lacks
} dp_membership;

// All are awaited.
void dp_membership_init(dp_membership *all, uint32_t worker_count, uint32_t shard_count);

// Of these ranks, before the run begins. LATER: workers only.
void dp_membership_invite(dp_membership *all, rt_role role, uint64_t ranks,
                          dp_invitation invitation);

// So many there are now; those that are new are not invited.
void dp_membership_extend(dp_membership *all, uint32_t worker_count, uint32_t shard_count);

// ---- looking ---------------------------------------------------------------------------------

static inline uint32_t dp_membership_count(const dp_membership *all)
{
    return all->worker_count + all->shard_count;
}

// Workers, then shards.
static inline const dp_member *dp_membership_at(const dp_membership *all, uint32_t i)
{
    return i < all->worker_count ? &all->workers[i] : &all->shards[i - all->worker_count];
}

// NULL: the configuration has none such.
dp_member *dp_membership_find(dp_membership *all, uint32_t peer);

// By the place among those of its role; and the other way round.
dp_member *dp_membership_by_place(dp_membership *all, uint32_t peer);
uint32_t dp_membership_place(const dp_membership *all, const dp_member *one);

static inline bool dp_member_takes_part(const dp_member *one)
{
    return one->state == DP_MEMBER_SITS_OUT || one->state == DP_MEMBER_TRAINS;
}

static inline bool dp_member_is_connected(const dp_member *one)
{
    return one->state == DP_MEMBER_JOINING || one->state == DP_MEMBER_DRAINING ||
           dp_member_takes_part(one);
}

// It is connected and no part of this run, but of a later start.
bool dp_membership_waits(const dp_membership *all, const dp_member *one);

// Whether the run can begin. late: workers are not awaited any longer.
bool dp_membership_is_complete(const dp_membership *all, bool late);

// Masks of workers. By place, those that take part; by rank, those that are invited and do not,
// and of these the ones that wait to be taken back.
uint64_t dp_membership_workers(const dp_membership *all);
uint64_t dp_membership_missing(const dp_membership *all);
uint64_t dp_membership_returning(const dp_membership *all);

// Of these ranks, those that are not connected.
uint64_t dp_membership_absent(const dp_membership *all, rt_role role, uint64_t ranks);

// Appends names, of ranks or of places, to a list in text: "worker 0, worker 3".
void dp_membership_names(rt_role role, uint64_t numbers, char *text, size_t size);

// Whether nobody misses a worker, by its place, if it goes now (docs/PROTOCOL.md, "A worker that is
// lost"): it sits out, has no row that the PS lacks, has settled the last slice that needed it, and
// an iteration after its last one is complete: others have its dense gradients and weights.
bool dp_membership_can_spare(const dp_membership *all, uint32_t worker);

// ---- what happens ----------------------------------------------------------------------------

void dp_membership_hello(dp_membership *all, dp_member *one);
void dp_membership_begin(dp_membership *all);
void dp_membership_went(dp_membership *all, dp_member *one);  // it waits
void dp_membership_lose(dp_membership *all, uint32_t worker); // by its place; it can be spared
void dp_membership_dismiss(dp_membership *all, uint64_t workers, uint64_t shards); // masks of ranks

// Slices for all go out; masks of workers by place.
typedef struct {
    uint64_t sequence;
    uint32_t iteration;    // 0: a flush
    uint64_t participants; // who train it
    uint64_t needed;       // and those that have something to do in it
    uint64_t clean;        // who have no row behind it which the PS lacks
} dp_membership_slice;

// False: it needs a worker that is lost.
bool dp_membership_sent(dp_membership *all, const dp_membership_slice *slice);

// idle: what the worker, by its place, has sent is confirmed, all that came is carried out.
void dp_membership_reported(dp_membership *all, uint32_t worker, uint64_t sequence, bool idle);
void dp_membership_completed(dp_membership *all, uint32_t iteration);

// ---- who does not answer ---------------------------------------------------------------------
//
// Members that are alive and do not answer.
//
// Heartbeats come from a member's communication; its training, its device or its disk can hang all
// the same. Who has not answered what it was asked for timeouts.answer_s, while nobody else answers
// either, counts as lost. A plain value of the coordinator's thread.

typedef struct {
    uint64_t workers, shards; // masks: whose answer is awaited
    const char *what;         // "has not reported an iteration", a literal
    uint64_t number;          // tells one such wait from the next
} dp_awaited;

typedef struct {
    double limit_s;
    dp_awaited awaited; // when it was looked at last
    uint64_t since_ns;  // when that began
} dp_overdue;

// RT_TIMEOUT: the same is awaited for longer than the limit; error names the members.
rt_status dp_overdue_check(dp_overdue *overdue, const dp_awaited *awaited, uint64_t now_ns,
                           rt_error *error);

#endif
