#include "dispatch/coordinator/dp_membership.h"

#include <stdio.h>
#include <string.h>

#include "runtime/wire/rt_wire.h"

// ---- transitions -----------------------------------------------------------------------------

#define TO(state) (1u << DP_MEMBER_##state)

static const uint32_t allowed[DP_MEMBER_STATES] = {
    [DP_MEMBER_UNKNOWN] = TO(JOINING),
    [DP_MEMBER_JOINING] = TO(UNKNOWN) | TO(LOST) | TO(SITS_OUT) | TO(TRAINS) | TO(DRAINING),
    [DP_MEMBER_SITS_OUT] = TO(TRAINS) | TO(DRAINING) | TO(LOST),
    [DP_MEMBER_TRAINS] = TO(SITS_OUT) | TO(DRAINING),
    [DP_MEMBER_LOST] = TO(JOINING)};

static bool is_worker(const dp_member *one)
{
    return rt_peer_role(one->peer) == RT_ROLE_WORKER;
}

static bool has_place(const dp_membership *all, const dp_member *one)
{
    const uint64_t places = is_worker(one) ? all->worker_places : all->shard_places;
    return places >> rt_peer_rank(one->peer) & 1;
}

static void check_one(const dp_membership *all, const dp_member *one)
{
    const dp_member_state state = one->state;
    const bool is_outside = state == DP_MEMBER_UNKNOWN || state == DP_MEMBER_JOINING;
    const bool is_placed = has_place(all, one);
    rt_assert(all->has_begun || is_outside);
    rt_assert(is_outside || is_placed || state == DP_MEMBER_DRAINING);
    rt_assert(!is_placed || one->invitation != DP_INVITED_NOT);
    rt_assert(is_worker(one) || (state != DP_MEMBER_SITS_OUT && state != DP_MEMBER_LOST));
    rt_assert(is_worker(one) || !is_placed || !all->has_begun || !is_outside);
    rt_assert(one->settled <= all->sequence && one->needed <= all->sequence);
    rt_assert(one->trained <= all->iteration);
}

static void check(const dp_membership *all)
{
    uint32_t connected = 0, workers = 0;
    for (uint32_t i = 0; i < dp_membership_count(all); i++) {
        const dp_member *one = dp_membership_at(all, i);
        check_one(all, one);
        connected += dp_member_is_connected(one);
        workers +=
            is_worker(one) && (dp_member_takes_part(one) || one->state == DP_MEMBER_DRAINING);
    }
    rt_assert(connected == all->connected);
    rt_assert(!all->has_begun || workers > 0);
    rt_assert(all->complete <= all->iteration);
}

static void change(dp_membership *all, dp_member *one, dp_member_state to)
{
    rt_assert(allowed[one->state] >> to & 1);
    all->connected -= dp_member_is_connected(one);
    one->state = to;
    all->connected += dp_member_is_connected(one);
}

// ---- the table -------------------------------------------------------------------------------

void dp_membership_init(dp_membership *all, uint32_t worker_count, uint32_t shard_count)
{
    *all = (dp_membership){0};
    dp_membership_extend(all, worker_count, shard_count);
    dp_membership_invite(all, RT_ROLE_WORKER, rt_bits_below(worker_count), DP_INVITED_AWAITED);
    dp_membership_invite(all, RT_ROLE_PS, rt_bits_below(shard_count), DP_INVITED_AWAITED);
}

void dp_membership_invite(dp_membership *all, rt_role role, uint64_t ranks,
                          dp_invitation invitation)
{
    uint64_t *places = role == RT_ROLE_WORKER ? &all->worker_places : &all->shard_places;
    rt_assert(!all->has_begun);
    rt_assert(role == RT_ROLE_WORKER || invitation != DP_INVITED_LATER);
    for (uint64_t rest = ranks; rest; rest &= rest - 1)
        dp_membership_find(all, rt_peer(role, rt_lowest_bit(rest)))->invitation = invitation;
    *places |= ranks;
    if (invitation == DP_INVITED_NOT)
        *places &= ~ranks;
    check(all);
}

void dp_membership_extend(dp_membership *all, uint32_t worker_count, uint32_t shard_count)
{
    rt_assert(worker_count <= RT_WORKERS_MAX && shard_count <= RT_SHARDS_MAX);
    for (uint32_t w = all->worker_count; w < worker_count; w++)
        all->workers[w] =
            (dp_member){.peer = rt_peer(RT_ROLE_WORKER, w), .invitation = DP_INVITED_NOT};
    for (uint32_t s = all->shard_count; s < shard_count; s++)
        all->shards[s] = (dp_member){.peer = rt_peer(RT_ROLE_PS, s), .invitation = DP_INVITED_NOT};
    all->worker_count = worker_count;
    all->shard_count = shard_count;
    check(all);
}

// ---- looking ---------------------------------------------------------------------------------

dp_member *dp_membership_find(dp_membership *all, uint32_t peer)
{
    const uint32_t rank = rt_peer_rank(peer);
    if (rt_peer_role(peer) == RT_ROLE_WORKER && rank < all->worker_count)
        return &all->workers[rank];
    if (rt_peer_role(peer) == RT_ROLE_PS && rank < all->shard_count)
        return &all->shards[rank];
    return NULL;
}

dp_member *dp_membership_by_place(dp_membership *all, uint32_t peer)
{
    const bool is_ps = rt_peer_role(peer) == RT_ROLE_PS;
    const uint64_t places = is_ps ? all->shard_places : all->worker_places;
    rt_assert(rt_peer_rank(peer) < rt_bit_count(places));
    const uint32_t rank = rt_bit_at(places, rt_peer_rank(peer));
    return is_ps ? &all->shards[rank] : &all->workers[rank];
}

uint32_t dp_membership_place(const dp_membership *all, const dp_member *one)
{
    const uint64_t places = is_worker(one) ? all->worker_places : all->shard_places;
    return rt_bits_under(places, rt_peer_rank(one->peer));
}

static bool is_invited_now(const dp_member *one)
{
    return one->invitation == DP_INVITED_AWAITED || one->invitation == DP_INVITED_OPTIONAL;
}

bool dp_membership_waits(const dp_membership *all, const dp_member *one)
{
    return one->state == DP_MEMBER_JOINING && (all->has_begun || !is_invited_now(one));
}

bool dp_membership_is_complete(const dp_membership *all, bool late)
{
    bool has_worker = false;
    for (uint32_t i = 0; i < dp_membership_count(all); i++) {
        const dp_member *one = dp_membership_at(all, i);
        const bool is_there = one->state == DP_MEMBER_JOINING;
        has_worker |= is_worker(one) && is_there && is_invited_now(one);
        if (!is_there && one->invitation == DP_INVITED_AWAITED && !(is_worker(one) && late))
            return false;
    }
    return has_worker;
}

uint64_t dp_membership_workers(const dp_membership *all)
{
    uint64_t places = 0, place = 1;
    for (uint64_t rest = all->worker_places; rest; rest &= rest - 1, place <<= 1) {
        if (dp_member_takes_part(&all->workers[rt_lowest_bit(rest)]))
            places |= place;
    }
    return places;
}

uint64_t dp_membership_missing(const dp_membership *all)
{
    uint64_t ranks = 0;
    for (uint32_t w = 0; w < all->worker_count; w++) {
        const dp_member *one = &all->workers[w];
        if (one->invitation != DP_INVITED_NOT && !dp_member_takes_part(one))
            ranks |= rt_bit(w);
    }
    return ranks;
}

uint64_t dp_membership_returning(const dp_membership *all)
{
    uint64_t ranks = 0;
    for (uint64_t rest = dp_membership_missing(all); rest; rest &= rest - 1) {
        if (dp_membership_waits(all, &all->workers[rt_lowest_bit(rest)]))
            ranks |= rest & -rest;
    }
    return ranks;
}

uint64_t dp_membership_absent(const dp_membership *all, rt_role role, uint64_t ranks)
{
    const dp_member *of = role == RT_ROLE_WORKER ? all->workers : all->shards;
    uint64_t absent = 0;
    for (; ranks; ranks &= ranks - 1) {
        if (!dp_member_is_connected(&of[rt_lowest_bit(ranks)]))
            absent |= ranks & -ranks;
    }
    return absent;
}

void dp_membership_names(rt_role role, uint64_t numbers, char *text, size_t size)
{
    char name[32];
    size_t used = strlen(text);
    for (; numbers && used + sizeof name + 2 < size; numbers &= numbers - 1)
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                                 rt_peer_name(rt_peer(role, rt_lowest_bit(numbers)), name));
}

static const dp_member *worker_at(const dp_membership *all, uint32_t place)
{
    rt_assert(place < rt_bit_count(all->worker_places));
    return &all->workers[rt_bit_at(all->worker_places, place)];
}

bool dp_membership_can_spare(const dp_membership *all, uint32_t worker)
{
    const dp_member *one = worker_at(all, worker);
    const bool can = all->clean >> worker & 1 && one->settled >= one->needed &&
                     (!one->trained || all->complete > one->trained);
    rt_assert(!can || one->state == DP_MEMBER_SITS_OUT);
    return can;
}

// ---- what happens ----------------------------------------------------------------------------

void dp_membership_hello(dp_membership *all, dp_member *one)
{
    if (one->state != DP_MEMBER_JOINING)
        change(all, one, DP_MEMBER_JOINING);
    check(all);
}

void dp_membership_begin(dp_membership *all)
{
    rt_assert(!all->has_begun && dp_membership_is_complete(all, true));
    all->has_begun = true;
    for (uint32_t w = 0; w < all->worker_count; w++) {
        dp_member *one = &all->workers[w];
        if (one->state == DP_MEMBER_JOINING && is_invited_now(one))
            change(all, one, DP_MEMBER_SITS_OUT);
        else
            all->worker_places &= ~rt_bit(w);
    }
    for (uint64_t rest = all->shard_places; rest; rest &= rest - 1)
        change(all, &all->shards[rt_lowest_bit(rest)], DP_MEMBER_TRAINS);
    check(all);
}

void dp_membership_went(dp_membership *all, dp_member *one)
{
    rt_assert(dp_membership_waits(all, one));
    const bool was_lost = all->has_begun && has_place(all, one);
    change(all, one, was_lost ? DP_MEMBER_LOST : DP_MEMBER_UNKNOWN);
    check(all);
}

void dp_membership_lose(dp_membership *all, uint32_t worker)
{
    rt_assert(dp_membership_can_spare(all, worker));
    change(all, dp_membership_by_place(all, rt_peer(RT_ROLE_WORKER, worker)), DP_MEMBER_LOST);
    check(all);
}

void dp_membership_dismiss(dp_membership *all, uint64_t workers, uint64_t shards)
{
    for (uint32_t i = 0; i < dp_membership_count(all); i++) {
        dp_member *one = dp_membership_find(all, dp_membership_at(all, i)->peer);
        const uint64_t leave = is_worker(one) ? workers : shards;
        if (leave >> rt_peer_rank(one->peer) & 1 && dp_member_is_connected(one))
            change(all, one, DP_MEMBER_DRAINING);
    }
    check(all);
}

bool dp_membership_sent(dp_membership *all, const dp_membership_slice *slice)
{
    const uint64_t trainers = slice->iteration ? slice->participants : 0;
    const uint64_t needed = slice->needed | trainers;
    uint64_t rest = all->worker_places;
    rt_assert(slice->sequence > all->sequence);
    if (needed & ~dp_membership_workers(all))
        return false;
    all->sequence = slice->sequence;
    all->clean = slice->clean;
    if (slice->iteration)
        all->iteration = slice->iteration;
    for (uint32_t place = 0; rest; place++, rest &= rest - 1) {
        dp_member *one = &all->workers[rt_lowest_bit(rest)];
        const bool trains = trainers >> place & 1;
        if (needed >> place & 1)
            one->needed = slice->sequence;
        if (trains)
            one->trained = slice->iteration;
        if (slice->iteration && dp_member_takes_part(one) &&
            trains != (one->state == DP_MEMBER_TRAINS))
            change(all, one, trains ? DP_MEMBER_TRAINS : DP_MEMBER_SITS_OUT);
    }
    check(all);
    return true;
}

void dp_membership_reported(dp_membership *all, uint32_t worker, uint64_t sequence, bool idle)
{
    dp_member *one = dp_membership_by_place(all, rt_peer(RT_ROLE_WORKER, worker));
    if (idle)
        one->settled = sequence;
    check(all);
}

void dp_membership_completed(dp_membership *all, uint32_t iteration)
{
    all->complete = iteration;
    check(all);
}

// ---- who does not answer ---------------------------------------------------------------------

rt_status dp_overdue_check(dp_overdue *overdue, const dp_awaited *awaited, uint64_t now_ns,
                           rt_error *error)
{
    char names[256] = "";
    const dp_awaited *before = &overdue->awaited;
    const bool any = (awaited->workers | awaited->shards) != 0;
    if (!any || before->workers != awaited->workers || before->shards != awaited->shards ||
        before->number != awaited->number || before->what != awaited->what) {
        overdue->awaited = *awaited;
        overdue->since_ns = now_ns;
        return RT_OK;
    }
    const double waited_s = (double)(now_ns - overdue->since_ns) * 1e-9;
    if (waited_s <= overdue->limit_s)
        return RT_OK;
    dp_membership_names(RT_ROLE_WORKER, awaited->workers, names, sizeof names);
    dp_membership_names(RT_ROLE_PS, awaited->shards, names, sizeof names);
    return rt_fail(error, RT_TIMEOUT, "%s: alive, but %s within %.0f s (timeouts.answer_s)", names,
                   awaited->what, waited_s);
}
