// A cut between its plan and the moment when every row is captured: what is asked of whom, and
// when.
#include "dispatch/coordinator/dp_cut.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/members.h"
#include "tests/support/notes.h"
#include "tests/support/test.h"

#define WORKERS 3u
#define SHARDS 2u
#define SEQUENCE 7u // of the cut's slices
#define ITERATION 5u
#define DENSE_BYTES 40u

typedef struct {
    rt_config config;
    rt_transport transport;
    dp_planned planned;
    dp_roster *roster;
    dp_stats *stats;
    dp_checkpoint *checkpoint;
    dp_cut cut;
} cut_case;

// The slices of a cut are out.
static void begin(cut_case *c)
{
    *c = (cut_case){.planned = {.sequence = SEQUENCE, .is_cut = true, .cut = ITERATION}};
    assert_int_equal(rt_config_init(&c->config), RT_OK);
    c->config.worker_count = WORKERS;
    c->config.ps_shard_count = SHARDS;
    const dp_roster_config roster = {
        .ops = &notes_ops, .transport = &c->transport, .config = &c->config};
    const dp_stats_config stats = {.config = &c->config, .dense_count = 1};
    assert_int_equal(dp_roster_create(&roster, &c->roster, NULL), RT_OK);
    members_begin(dp_roster_members(c->roster));
    assert_int_equal(dp_stats_create(&stats, &c->stats, NULL), RT_OK);
    const dp_checkpoint_config checkpoint = {.directory = test_path("checkpoints"),
                                             .config = &c->config,
                                             .metrics = dp_stats_metrics(c->stats)};
    assert_int_equal(dp_checkpoint_create(&checkpoint, NULL, 0, &c->checkpoint, NULL), RT_OK);
    c->cut = (dp_cut){.roster = c->roster,
                      .stats = c->stats,
                      .checkpoint = c->checkpoint,
                      .sender = rt_peer(RT_ROLE_COORDINATOR, 0),
                      .shard_count = SHARDS};
    assert_int_equal(dp_cut_begin(&c->cut, &c->planned, NULL), RT_OK);
}

static void lose(cut_case *c, uint32_t worker)
{
    dp_membership_lose(dp_roster_members(c->roster), worker);
    dp_cut_lose(&c->cut, worker);
}

static void fini(cut_case *c)
{
    c->cut.planned = NULL; // nobody's
    dp_cut_fini(&c->cut);
    dp_checkpoint_destroy(c->checkpoint);
    dp_stats_destroy(c->stats);
    dp_roster_destroy(c->roster);
    rt_config_fini(&c->config);
}

// giver: 1 + the worker that was to give the dense part; 0: nobody.
static rt_status mark_of(cut_case *c, uint32_t peer, uint64_t sequence, uint32_t giver)
{
    rt_message message;
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_MARK, peer, sequence, giver, 0), RT_OK);
    rt_status status = dp_cut_mark(&c->cut, peer, &message, NULL);
    rt_message_release(&message);
    return status;
}

static rt_status mark(cut_case *c, uint32_t peer, uint64_t sequence)
{
    return mark_of(c, peer, sequence, 1 + c->cut.lead);
}

// Bytes [offset, offset + size) of the dense part.
static rt_status send_part(cut_case *c, uint32_t peer, uint64_t offset, uint64_t size)
{
    const rt_wire_part part = {offset, DENSE_BYTES};
    rt_message message;
    assert_int_equal(
        rt_message_create(&message, RT_MESSAGE_PART, peer, SEQUENCE, 1, sizeof part + size), RT_OK);
    memset(rt_message_payload(&message), 1, sizeof part + size);
    memcpy(rt_message_payload(&message), &part, sizeof part);
    rt_status status = dp_cut_part(&c->cut, peer, &message, NULL);
    rt_message_release(&message);
    return status;
}

static uint32_t asked(cut_case *c)
{
    assert_int_equal(dp_cut_step(&c->cut, NULL), RT_OK);
    return notes_ranks(&c->transport, RT_MESSAGE_CUT, RT_ROLE_PS, ITERATION);
}

// What was asked for begins; a sweep, which is no cut, leaves the question open.
static void a_request_is_met_once(void **state)
{
    (void)state;
    cut_case c;
    begin(&c);
    for (uint32_t is_cut = 0; is_cut < 2; is_cut++) {
        c.cut.planned = NULL;
        c.cut.is_requested = true;
        c.planned.is_cut = is_cut;
        assert_int_equal(dp_cut_begin(&c.cut, &c.planned, NULL), RT_OK);
        assert_int_equal(c.cut.is_requested, !is_cut);
    }
    fini(&c);
}

// A shard that captures before every worker has said that its pushes were processed would leave
// some of them out.
static void shards_wait_for_every_worker(void **state)
{
    (void)state;
    cut_case c;
    begin(&c);
    const rt_endpoint *endpoint = &c.transport.endpoint;
    assert_int_equal(notes_ranks(&c.transport, RT_MESSAGE_MARK, RT_ROLE_WORKER, SEQUENCE), 7);
    for (uint32_t i = 0; i < endpoint->count; i++) // worker 0 needs the dense part
        assert_int_equal(endpoint->sent[i].header.count, 1);
    assert_int_equal(asked(&c), 0);
    assert_int_equal(send_part(&c, rt_peer(RT_ROLE_WORKER, 0), 0, DENSE_BYTES), RT_OK);
    assert_int_equal(asked(&c), 0);
    assert_int_equal(mark(&c, rt_peer(RT_ROLE_WORKER, 0), SEQUENCE), RT_OK);
    assert_int_equal(asked(&c), 0);
    assert_int_equal(mark(&c, rt_peer(RT_ROLE_WORKER, 2), SEQUENCE), RT_OK);
    assert_int_equal(asked(&c), 0);
    assert_int_equal(mark(&c, rt_peer(RT_ROLE_WORKER, 1), SEQUENCE), RT_OK);
    assert_int_equal(asked(&c), 3);
    fini(&c);
}

static void shards_wait_for_the_dense_part(void **state)
{
    (void)state;
    cut_case c;
    begin(&c);
    for (uint32_t w = 0; w < WORKERS; w++)
        assert_int_equal(mark(&c, rt_peer(RT_ROLE_WORKER, w), SEQUENCE), RT_OK);
    assert_int_equal(asked(&c), 0);
    assert_int_equal(send_part(&c, rt_peer(RT_ROLE_WORKER, 0), 0, DENSE_BYTES - 8), RT_OK);
    assert_int_equal(asked(&c), 0);
    assert_int_equal(send_part(&c, rt_peer(RT_ROLE_WORKER, 0), DENSE_BYTES - 8, 8), RT_OK);
    assert_int_equal(asked(&c), 3);
    fini(&c);
}

static void what_nobody_waits_for(void **state)
{
    (void)state;
    cut_case c;
    begin(&c);
    const uint32_t worker = rt_peer(RT_ROLE_WORKER, 0), shard = rt_peer(RT_ROLE_PS, 0);
    assert_int_equal(mark(&c, shard, SEQUENCE), RT_WIRE);
    assert_int_equal(mark(&c, worker, SEQUENCE - 1), RT_WIRE);
    assert_int_equal(mark(&c, worker, SEQUENCE), RT_OK);
    assert_int_equal(mark(&c, worker, SEQUENCE), RT_WIRE);
    assert_int_equal(send_part(&c, rt_peer(RT_ROLE_WORKER, 1), 0, 8), RT_WIRE);
    assert_int_equal(send_part(&c, worker, 8, 8), RT_WIRE);
    assert_int_equal(send_part(&c, worker, 0, DENSE_BYTES + 8), RT_WIRE);
    assert_int_equal(dp_cut_captured(&c.cut, shard, NULL), RT_WIRE);
    fini(&c);
}

// Whoever cannot be asked ends the run, which would wait for the answer.
static void members_that_cannot_be_asked(void **state)
{
    (void)state;
    cut_case c;
    rt_error error = {0};
    begin(&c);
    c.transport.endpoint.broken = RT_NOT_FOUND;
    assert_int_equal(send_part(&c, rt_peer(RT_ROLE_WORKER, 0), 0, DENSE_BYTES), RT_OK);
    for (uint32_t w = 0; w < WORKERS; w++)
        assert_int_equal(mark(&c, rt_peer(RT_ROLE_WORKER, w), SEQUENCE), RT_OK);
    assert_int_equal(dp_cut_step(&c.cut, &error), RT_PEER);
    assert_non_null(strstr(error.text, "ps 0"));
    c.cut.planned = NULL;
    assert_int_equal(dp_cut_begin(&c.cut, &c.planned, &error), RT_PEER);
    assert_non_null(strstr(error.text, "worker 0"));
    fini(&c);
}

static rt_status expired(cut_case *c, uint32_t shard, uint64_t rows, bool *is_over)
{
    const rt_wire_expire answer = {.rows = rows};
    const uint32_t peer = rt_peer(RT_ROLE_PS, shard);
    rt_message message;
    assert_int_equal(rt_control_create_struct(&message, RT_MESSAGE_EXPIRE, peer, ITERATION, &answer,
                                              sizeof answer, NULL),
                     RT_OK);
    rt_status status = dp_cut_expired(&c->cut, peer, &message, is_over, NULL);
    rt_message_release(&message);
    return status;
}

// Rows end when all is carried out, on all shards; no dense part is sent.
static void a_sweep_is_a_cut(void **state)
{
    (void)state;
    cut_case c;
    bool is_over = true;
    begin(&c);
    c.planned.is_cut = false;
    c.planned.floor = 7;
    assert_int_equal(expired(&c, 0, 1, &is_over), RT_WIRE); // nobody has asked
    for (uint32_t w = 0; w < WORKERS; w++) {
        assert_int_equal(dp_cut_step(&c.cut, NULL), RT_OK);
        assert_int_equal(notes_ranks(&c.transport, RT_MESSAGE_EXPIRE, RT_ROLE_PS, ITERATION), 0);
        assert_int_equal(mark(&c, rt_peer(RT_ROLE_WORKER, w), SEQUENCE), RT_OK);
    }
    assert_int_equal(dp_cut_step(&c.cut, NULL), RT_OK);
    assert_int_equal(dp_cut_step(&c.cut, NULL), RT_OK); // and once
    assert_int_equal(notes_ranks(&c.transport, RT_MESSAGE_EXPIRE, RT_ROLE_PS, ITERATION), 3);
    assert_int_equal(asked(&c), 0);
    assert_int_equal(dp_cut_captured(&c.cut, rt_peer(RT_ROLE_PS, 0), NULL), RT_WIRE);
    assert_int_equal(expired(&c, 1, 5, &is_over), RT_OK);
    assert_false(is_over);
    assert_int_equal(expired(&c, 1, 5, &is_over), RT_WIRE); // again
    assert_int_equal(c.cut.ended_rows, 5);
    fini(&c);
}

// The run goes on without a worker: nobody waits for it.
static void lost_workers_are_not_waited_for(void **state)
{
    (void)state;
    cut_case c;
    begin(&c);
    lose(&c, 2); // while the cut is open
    assert_int_equal(mark(&c, rt_peer(RT_ROLE_WORKER, 0), SEQUENCE), RT_OK);
    assert_int_equal(dp_cut_awaited(&c.cut).workers, 3); // 0: the dense part
    assert_int_equal(send_part(&c, rt_peer(RT_ROLE_WORKER, 0), 0, DENSE_BYTES), RT_OK);
    assert_int_equal(dp_cut_awaited(&c.cut).workers, 2);
    assert_int_equal(asked(&c), 0);
    assert_int_equal(mark(&c, rt_peer(RT_ROLE_WORKER, 1), SEQUENCE), RT_OK);
    assert_int_equal(asked(&c), 3);
    fini(&c);
}

static void another_worker_gives_the_dense_part(void **state)
{
    (void)state;
    cut_case c;
    begin(&c);
    c.cut.planned = NULL;
    lose(&c, 0);
    rt_endpoint *endpoint = &c.transport.endpoint;
    endpoint->count = 0;
    assert_int_equal(dp_cut_begin(&c.cut, &c.planned, NULL), RT_OK);
    assert_int_equal(notes_ranks(&c.transport, RT_MESSAGE_MARK, RT_ROLE_WORKER, SEQUENCE), 6);
    for (uint32_t i = 0; i < endpoint->count; i++)
        assert_int_equal(endpoint->sent[i].header.count, 1 + 1); // worker 1 gives the dense part
    assert_int_equal(send_part(&c, rt_peer(RT_ROLE_WORKER, 0), 0, DENSE_BYTES), RT_WIRE);
    assert_int_equal(dp_cut_awaited(&c.cut).workers, 6);
    for (uint32_t w = 1; w < WORKERS; w++)
        assert_int_equal(mark(&c, rt_peer(RT_ROLE_WORKER, w), SEQUENCE), RT_OK);
    assert_int_equal(dp_cut_awaited(&c.cut).workers, 2);
    assert_int_equal(asked(&c), 0);
    assert_int_equal(send_part(&c, rt_peer(RT_ROLE_WORKER, 1), 0, DENSE_BYTES), RT_OK);
    assert_int_equal(asked(&c), 3);
    fini(&c);
}

// Each time one thing is wrong.
static void answers_that_no_sweep_waits_for(void **state)
{
    (void)state;
    cut_case c;
    const rt_wire_expire answer = {.rows = 1};
    bool is_over = true;
    for (uint32_t i = 0; i < 6; i++) {
        rt_message message;
        const uint32_t peer = rt_peer(i == 1 ? RT_ROLE_WORKER : RT_ROLE_PS, 1);
        begin(&c);
        c.planned.is_cut = i == 2;
        c.cut.planned = i == 3 ? NULL : &c.planned;
        c.cut.asked = i != 4;
        assert_int_equal(rt_control_create_struct(&message, RT_MESSAGE_EXPIRE, peer, ITERATION,
                                                  &answer, sizeof answer, NULL),
                         RT_OK);
        message.size -= i == 5;
        assert_int_equal(dp_cut_expired(&c.cut, peer, &message, &is_over, NULL),
                         i ? RT_WIRE : RT_OK);
        assert_int_equal(c.cut.ended_rows, i ? 0 : 1);
        assert_int_equal(c.cut.captured, i ? 0 : 2);
        assert_false(is_over);
        rt_message_release(&message);
        fini(&c);
    }
}

// Some of it has come: the next one is asked. What it answered to the question before, or answers
// later, is not meant.
static void the_giver_is_lost_meanwhile(void **state)
{
    (void)state;
    cut_case c;
    begin(&c);
    rt_endpoint *endpoint = &c.transport.endpoint;
    assert_int_equal(mark(&c, rt_peer(RT_ROLE_WORKER, 2), SEQUENCE), RT_OK);
    assert_int_equal(send_part(&c, rt_peer(RT_ROLE_WORKER, 0), 0, DENSE_BYTES - 8), RT_OK);
    lose(&c, 0);
    assert_int_equal(mark_of(&c, rt_peer(RT_ROLE_WORKER, 1), SEQUENCE, 1 + 0), RT_OK);
    endpoint->count = 0;
    assert_int_equal(asked(&c), 0);
    assert_int_equal(notes_ranks(&c.transport, RT_MESSAGE_MARK, RT_ROLE_WORKER, SEQUENCE), 2);
    assert_int_equal(endpoint->sent[0].header.count, 1 + 1);
    assert_int_equal(asked(&c), 0);
    assert_int_equal(endpoint->count, 1); // it is asked once
    assert_int_equal(dp_cut_awaited(&c.cut).workers, 2);
    assert_int_equal(send_part(&c, rt_peer(RT_ROLE_WORKER, 1), 0, DENSE_BYTES), RT_OK);
    assert_int_equal(asked(&c), 0);
    assert_int_equal(mark(&c, rt_peer(RT_ROLE_WORKER, 1), SEQUENCE), RT_OK);
    assert_int_equal(asked(&c), 3);
    lose(&c, 1); // it has given all
    assert_false(c.cut.asks_anew);
    fini(&c);
}

TEST_MAIN(TEST(a_request_is_met_once), TEST(the_giver_is_lost_meanwhile),
          TEST(lost_workers_are_not_waited_for), TEST(another_worker_gives_the_dense_part),
          TEST(a_sweep_is_a_cut), TEST(answers_that_no_sweep_waits_for),
          TEST(shards_wait_for_every_worker), TEST(shards_wait_for_the_dense_part),
          TEST(what_nobody_waits_for), TEST(members_that_cannot_be_asked))
