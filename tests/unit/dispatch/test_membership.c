// The table of members: which state each call leads to, and which calls are bugs.
#include "dispatch/coordinator/dp_membership.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/test.h"

#define WORKERS 4u
#define SHARDS 2u

static dp_member *worker(dp_membership *all, uint32_t rank)
{
    return dp_membership_find(all, rt_peer(RT_ROLE_WORKER, rank));
}

static dp_member *shard(dp_membership *all, uint32_t rank)
{
    return dp_membership_find(all, rt_peer(RT_ROLE_PS, rank));
}

// Worker 1 was lost too often, worker 3 and shard 1 are of a box that is no part of the run.
static void invite(dp_membership *all)
{
    dp_membership_init(all, WORKERS, SHARDS);
    dp_membership_invite(all, RT_ROLE_WORKER, 1 << 1, DP_INVITED_LATER);
    dp_membership_invite(all, RT_ROLE_WORKER, 1 << 3, DP_INVITED_NOT);
    dp_membership_invite(all, RT_ROLE_PS, 1 << 1, DP_INVITED_NOT);
}

// Worker 2 is at place 1.
static void begin(dp_membership *all)
{
    invite(all);
    dp_membership_hello(all, worker(all, 0));
    dp_membership_hello(all, worker(all, 2));
    dp_membership_hello(all, shard(all, 0));
    dp_membership_begin(all);
}

static bool send(dp_membership *all, uint32_t iteration, uint64_t participants, uint64_t clean)
{
    const dp_membership_slice slice = {.sequence = all->sequence + 1,
                                       .iteration = iteration,
                                       .participants = participants,
                                       .clean = clean};
    return dp_membership_sent(all, &slice);
}

static void the_run_begins_with_who_is_there(void **state)
{
    (void)state;
    dp_membership all;
    invite(&all);
    assert_int_equal(all.worker_places, 7);
    dp_membership_hello(&all, shard(&all, 0));
    dp_membership_hello(&all, worker(&all, 1));
    assert_false(dp_membership_is_complete(&all, true)); // worker 1 counts for nothing
    dp_membership_hello(&all, worker(&all, 2));
    assert_false(dp_membership_is_complete(&all, false));
    assert_true(dp_membership_is_complete(&all, true));
    dp_membership_invite(&all, RT_ROLE_WORKER, 1 << 0, DP_INVITED_OPTIONAL);
    assert_true(dp_membership_is_complete(&all, false));
    dp_membership_hello(&all, shard(&all, 1));
    assert_true(dp_membership_waits(&all, worker(&all, 1)));
    assert_true(dp_membership_waits(&all, shard(&all, 1)));
    assert_false(dp_membership_waits(&all, worker(&all, 2)));
    assert_int_equal(dp_membership_workers(&all), 0); // not yet
    dp_membership_begin(&all);
    assert_int_equal(all.worker_places, 4);
    assert_int_equal(all.shard_places, 1);
    assert_int_equal(dp_membership_workers(&all), 1);
    assert_int_equal(dp_membership_missing(&all), 3);
    assert_int_equal(dp_membership_returning(&all), 2);
    assert_int_equal(worker(&all, 2)->state, DP_MEMBER_SITS_OUT);
    assert_int_equal(shard(&all, 0)->state, DP_MEMBER_TRAINS);
    assert_ptr_equal(dp_membership_by_place(&all, rt_peer(RT_ROLE_WORKER, 0)), worker(&all, 2));
    assert_int_equal(dp_membership_place(&all, worker(&all, 2)), 0);
    assert_null(worker(&all, WORKERS));
    assert_null(dp_membership_find(&all, rt_peer(RT_ROLE_VISITOR, 0)));
    dp_membership_hello(&all, worker(&all, 0));
    assert_int_equal(dp_membership_returning(&all), 3);
    dp_membership_went(&all, worker(&all, 0));
    assert_int_equal(worker(&all, 0)->state, DP_MEMBER_UNKNOWN);
    assert_int_equal(all.connected, 4);
}

static void slices_say_who_trains(void **state)
{
    (void)state;
    dp_membership all;
    begin(&all);
    assert_true(send(&all, 1, 3, 0));
    assert_int_equal(worker(&all, 0)->state, DP_MEMBER_TRAINS);
    assert_int_equal(worker(&all, 2)->state, DP_MEMBER_TRAINS);
    assert_true(send(&all, 2, 2, 1));
    assert_int_equal(worker(&all, 0)->state, DP_MEMBER_SITS_OUT);
    assert_true(send(&all, 0, 0, 3)); // a flush changes nothing
    assert_int_equal(worker(&all, 2)->state, DP_MEMBER_TRAINS);
    assert_int_equal(shard(&all, 0)->state, DP_MEMBER_TRAINS);
}

static void who_can_be_spared(void **state)
{
    (void)state;
    dp_membership all;
    begin(&all);
    assert_true(send(&all, 1, 3, 0));
    assert_true(send(&all, 2, 2, 1));
    dp_membership_reported(&all, 0, 2, true);
    dp_membership_completed(&all, 1);
    assert_false(dp_membership_can_spare(&all, 0)); // nobody may have its dense gradients
    dp_membership_completed(&all, 2);
    assert_true(dp_membership_can_spare(&all, 0));
    worker(&all, 0)->settled = 0;
    dp_membership_reported(&all, 0, 2, false);
    assert_false(dp_membership_can_spare(&all, 0)); // something of it is under way
    dp_membership_reported(&all, 0, 2, true);
    assert_false(dp_membership_can_spare(&all, 1));
    assert_true(send(&all, 3, 2, 0));
    assert_false(dp_membership_can_spare(&all, 0)); // it has rows that the PS lacks
    assert_true(send(&all, 4, 2, 1));
    dp_membership_lose(&all, 0);
    assert_int_equal(worker(&all, 0)->state, DP_MEMBER_LOST);
    assert_int_equal(dp_membership_workers(&all), 2);
    assert_int_equal(all.worker_places, 5);
    assert_true(send(&all, 5, 2, 1));
    assert_false(send(&all, 6, 3, 1)); // planned before
    dp_membership_hello(&all, worker(&all, 0));
    assert_int_equal(dp_membership_returning(&all), 1);
    assert_int_equal(dp_membership_workers(&all), 2);
    dp_membership_went(&all, worker(&all, 0));
    assert_int_equal(worker(&all, 0)->state, DP_MEMBER_LOST);
}

static void a_box_comes_and_another_goes(void **state)
{
    (void)state;
    dp_membership all;
    begin(&all);
    dp_membership_extend(&all, WORKERS + 1, SHARDS + 1);
    dp_membership_hello(&all, worker(&all, WORKERS));
    dp_membership_hello(&all, shard(&all, SHARDS));
    assert_int_equal(dp_membership_count(&all), WORKERS + SHARDS + 2);
    assert_int_equal(dp_membership_at(&all, WORKERS)->peer, rt_peer(RT_ROLE_WORKER, WORKERS));
    assert_int_equal(all.worker_places, 5);
    assert_int_equal(dp_membership_returning(&all), 0); // it joins, it does not come back
    dp_membership_dismiss(&all, 1 << 0 | 1 << 3 | 1 << WORKERS, 0);
    assert_int_equal(worker(&all, 0)->state, DP_MEMBER_DRAINING);
    assert_int_equal(worker(&all, 3)->state, DP_MEMBER_UNKNOWN); // nobody hears it
    assert_int_equal(worker(&all, WORKERS)->state, DP_MEMBER_DRAINING);
    assert_int_equal(dp_membership_workers(&all), 2);
}

// ---- bugs ------------------------------------------------------------------------------------

enum {
    NOBODY_IS_THERE,
    BEGINS_TWICE,
    INVITED_LATE,
    NOT_SPARE,
    LAST_WORKER,
    WENT_THAT_TAKES_PART,
    SENT_TWICE,
    SETTLED_EARLY,
    COMPLETED_EARLY,
    HELLO_OF_A_TRAINER,
    BUGS
};

static void commit(dp_membership *all, uint32_t bug)
{
    if (bug == BEGINS_TWICE)
        dp_membership_begin(all);
    else if (bug == INVITED_LATE)
        dp_membership_invite(all, RT_ROLE_WORKER, 1 << 1, DP_INVITED_AWAITED);
    else if (bug == NOT_SPARE)
        dp_membership_lose(all, 1);
    else if (bug == WENT_THAT_TAKES_PART)
        dp_membership_went(all, worker(all, 0));
    else if (bug == SETTLED_EARLY)
        dp_membership_reported(all, 0, 2, true);
    else if (bug == COMPLETED_EARLY)
        dp_membership_completed(all, 2);
    else if (bug == HELLO_OF_A_TRAINER)
        dp_membership_hello(all, worker(all, 0));
    else if (bug == SENT_TWICE)
        (void)dp_membership_sent(all, &(dp_membership_slice){.sequence = all->sequence});
    all->clean = 3;
    if (bug == LAST_WORKER) {
        worker(all, 2)->trained = worker(all, 0)->trained = 0;
        worker(all, 2)->needed = worker(all, 0)->needed = 0;
        worker(all, 2)->state = DP_MEMBER_SITS_OUT;
        dp_membership_lose(all, 0);
        dp_membership_lose(all, 1);
    }
}

static void bugs_end_the_program(void **state)
{
    (void)state;
    for (uint32_t bug = 0; bug < BUGS; bug++) {
        int how;
        const pid_t child = fork();
        if (child == 0) {
            dp_membership all;
            const struct rlimit none = {0, 0};
            setrlimit(RLIMIT_CORE, &none);
            close(STDERR_FILENO);
            invite(&all);
            if (bug == NOBODY_IS_THERE)
                dp_membership_begin(&all);
            begin(&all);
            (void)send(&all, 1, 2, 1);
            commit(&all, bug);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &how, 0), child);
        if (!WIFSIGNALED(how))
            fail_msg("bug %u goes unnoticed", bug);
    }
}

TEST_MAIN(TEST(the_run_begins_with_who_is_there), TEST(slices_say_who_trains),
          TEST(who_can_be_spared), TEST(a_box_comes_and_another_goes), TEST(bugs_end_the_program))
