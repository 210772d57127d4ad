#define _GNU_SOURCE // memmem
// Who is let into a run and who is not, what each is told, and what members that are in must not
// say. The case plays all of them and takes the roster's turns.
#include "tests/unit/dispatch/test_coordinator_support.h"

#include "tests/support/members.h"

#define WORKER(rank) rt_peer(RT_ROLE_WORKER, rank)

typedef struct {
    fixture f;
    rt_keys keys;
    dp_added added;
    dp_roster_config config;
    dp_roster *roster;
    char said[64]; // of the worker that was spared
} gathering;

static void prepare_roster(gathering *g)
{
    prepare(&g->f);
    assert_int_equal(ops->open(&g->f.transport, NULL), RT_OK);
    memset(&g->keys, 0, sizeof g->keys);
    memset(&g->added, 0, sizeof g->added);
    g->config = (dp_roster_config){.ops = ops,
                                   .transport = g->f.transport,
                                   .config = &g->f.config,
                                   .identity = g->f.own.identity};
}

static void open_roster(gathering *g)
{
    rt_error error = {0};
    if (dp_roster_create(&g->config, &g->roster, &error))
        fail_msg("%s", error.text);
    note_address(&g->f, dp_roster_address(g->roster));
}

static void close_all(gathering *g)
{
    for (uint32_t m = 0; m < MEMBERS_MAX; m++) {
        if (g->f.members[m])
            ops->end(g->f.members[m], 0);
    }
    dp_roster_destroy(g->roster);
    ops->close(g->f.transport);
    rt_config_fini(&g->f.config);
    assert_int_equal(rmdir(g->f.out), 0);
}

static void assemble(gathering *g)
{
    rt_error error = {0};
    if (dp_roster_assemble(g->roster, -1, &error))
        fail_msg("%s", error.text);
}

static void gather_all(gathering *g)
{
    prepare_roster(g);
    open_roster(g);
    for (uint32_t m = 0; m < MEMBERS; m++)
        join_run(&g->f, m);
    assemble(g);
}

static rt_wire_hello hello_of(const gathering *g, uint32_t self)
{
    rt_wire_hello hello = rt_control_greet(self, &g->f.own.identity);
    if (rt_peer_role(self) == RT_ROLE_PS)
        rt_control_put_text(hello.address, sizeof hello.address, "tcp://127.0.0.1:1");
    return hello;
}

static rt_endpoint *connect_as(gathering *g, uint32_t self)
{
    rt_error error = {0};
    rt_endpoint *endpoint = NULL;
    if (ops->connect(g->f.transport, self, COORDINATOR, g->f.address, &endpoint, &error))
        fail_msg("%s", error.text);
    return endpoint;
}

static void send_from(rt_endpoint *endpoint, uint32_t self, rt_message_type type,
                      const void *payload, size_t size)
{
    rt_message message;
    assert_int_equal(rt_message_create(&message, type, self, 0, size > 0, size), RT_OK);
    if (size)
        memcpy(rt_message_payload(&message), payload, size);
    assert_int_equal(ops->send(endpoint, COORDINATOR, &message), RT_OK);
}

// The roster's turns until something came that is not about membership; what it ended with.
static rt_status take_turns(gathering *g, uint32_t *peer, rt_message *message, rt_error *error)
{
    rt_status status = RT_AGAIN;
    while (status == RT_AGAIN) {
        assert_true(rt_now_ns() < g->f.end_ns);
        assert_int_equal(dp_roster_wait(g->roster, -1, error), RT_OK);
        status = dp_roster_receive(g->roster, peer, message, error);
    }
    return status;
}

// The roster's turns until this endpoint has an answer; nothing else may come of them.
static rt_message answer_to(gathering *g, rt_endpoint *endpoint)
{
    for (;;) {
        uint32_t peer;
        bool ready;
        rt_error error = {0};
        rt_message message = {0};
        const rt_status status = ops->receive(endpoint, &peer, &message, &error);
        if (!status && rt_message_header(&message)->type != RT_MESSAGE_HEARTBEAT)
            return message;
        rt_message_release(&message);
        assert_true(rt_now_ns() < g->f.end_ns);
        if (dp_roster_receive(g->roster, &peer, &message, &error) != RT_AGAIN)
            fail_msg("%s", error.text);
        assert_int_equal(ops->wait(&endpoint, 1, -1, 5, &ready), RT_OK);
    }
}

static void must_be_sent_away(gathering *g, rt_endpoint *endpoint, rt_reason reason,
                              const char *text)
{
    char got[512] = "";
    rt_message message = answer_to(g, endpoint);
    assert_int_equal(rt_message_header(&message)->type, RT_MESSAGE_STOP);
    assert_int_equal(rt_control_text(&message, got, sizeof got), RT_OK);
    if (!strstr(got, text) || rt_message_header(&message)->iteration != reason)
        fail_msg("\"%s\", expected \"%s\"", got, text);
    rt_message_release(&message);
}

static void await(gathering *g, uint32_t peer)
{
    while (!members_connected(g->roster, peer)) {
        rt_error error = {0};
        rt_message message = {0};
        uint32_t from;
        assert_true(rt_now_ns() < g->f.end_ns);
        assert_int_equal(dp_roster_wait(g->roster, -1, &error), RT_OK);
        if (dp_roster_receive(g->roster, &from, &message, &error) != RT_AGAIN)
            fail_msg("%s", error.text);
    }
}

// ---- HELLO -------------------------------------------------------------------------------------

static void another_role(rt_wire_hello *hello)
{
    hello->role = RT_ROLE_PS;
}

static void another_rank(rt_wire_hello *hello)
{
    hello->rank++;
}

static void another_config(rt_wire_hello *hello)
{
    hello->config_hash++;
}

static void another_box(rt_wire_hello *hello)
{
    hello->box++;
}

static void no_address(rt_wire_hello *hello)
{
    hello->address[0] = '\0';
}

static void another_key(rt_wire_hello *hello)
{
    hello->key[31] = 9;
}

static void no_key(rt_wire_hello *hello)
{
    (void)hello;
}

static void who_is_sent_away(void **state)
{
    (void)state;
    static const struct {
        uint32_t role, rank;
        void (*change)(rt_wire_hello *hello);
        bool has_keys, is_mutual;
        rt_reason reason;
        const char *text;
    } cases[] = {
        {RT_ROLE_WORKER, 2, no_key, false, false, RT_REASON_LASTS,
         "worker 2 joined, but the config has 2 workers and 1 PS shards"},
        {RT_ROLE_PS, 1, no_key, false, false, RT_REASON_LASTS,
         "ps 1 joined, but the config has 2 workers and 1 PS shards"},
        {RT_ROLE_WORKER, 1, another_config, false, false, RT_REASON_LASTS,
         "worker 1 runs with another configuration"},
        {RT_ROLE_WORKER, 0, another_role, false, false, RT_REASON_FAILED,
         "worker 0 says that it is another one"},
        {RT_ROLE_WORKER, 0, another_rank, false, false, RT_REASON_FAILED,
         "worker 0 says that it is another one"},
        {RT_ROLE_PS, 0, no_address, false, false, RT_REASON_FAILED,
         "ps 0 does not say where it listens"},
        {RT_ROLE_WORKER, 1, no_address, false, true, RT_REASON_FAILED,
         "worker 1 does not say where it listens"},
        {RT_ROLE_WORKER, 1, another_box, false, false, RT_REASON_LASTS,
         "worker 1 has a different entry for its box in boxes"},
        {RT_ROLE_PS, 0, no_key, true, false, RT_REASON_LASTS,
         "ps 0 has no key, which security.allow does not have"},
        {RT_ROLE_PS, 0, another_key, true, false, RT_REASON_LASTS,
         "ps 0 has a key, which security.allow does not have"},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        gathering g;
        const uint32_t self = rt_peer(cases[i].role, cases[i].rank);
        prepare_roster(&g);
        g.keys.is_set = cases[i].has_keys;
        g.config.keys = &g.keys;
        memset(g.keys.own.bytes, 1, RT_KEY_BYTES);
        g.f.config.dispatch.hand_over = cases[i].is_mutual;
        open_roster(&g);
        rt_wire_hello hello = hello_of(&g, self);
        cases[i].change(&hello);
        rt_endpoint *endpoint = connect_as(&g, self);
        send_from(endpoint, self, RT_MESSAGE_HELLO, &hello, sizeof hello);
        must_be_sent_away(&g, endpoint, cases[i].reason, cases[i].text);
        assert_false(members_connected(g.roster, self));
        ops->end(endpoint, 0);
        close_all(&g);
    }
}

// Of a run with keys a shard has to have one that is allowed, or that of a box that was added; of
// workers that nobody connects to, nobody asks.
static void who_is_let_in(void **state)
{
    (void)state;
    static const struct {
        uint32_t member;
        uint8_t key; // every byte of it
        bool has_keys, is_mutual;
    } cases[] = {{0, 0, false, false}, {0, 1, true, false}, {0, 3, true, false},
                 {2, 0, true, false},  {2, 1, true, true},  {1, 0, false, true}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        gathering g;
        const uint32_t self = peer_of(cases[i].member);
        prepare_roster(&g);
        g.keys.is_set = cases[i].has_keys;
        memset(g.keys.own.bytes, 1, RT_KEY_BYTES);
        g.added.count = 1;
        g.added.of[0].has_key = cases[i].key == 3;
        memset(g.added.of[0].key.bytes, 3, RT_KEY_BYTES);
        g.config.keys = &g.keys;
        g.config.added = cases[i].key == 3 ? &g.added : NULL;
        g.f.config.dispatch.reduce = cases[i].is_mutual;
        open_roster(&g);
        rt_wire_allowed all[RT_SITE_BOXES_MAX];
        rt_wire_hello hello = hello_of(&g, self);
        rt_control_put_text(hello.address, sizeof hello.address, "tcp://127.0.0.1:1");
        memset(hello.key, cases[i].key, sizeof hello.key);
        hello.allowed = rt_hash_bytes(all, dp_added_list(&g.added, all) * sizeof *all);
        rt_endpoint *endpoint = connect_as(&g, self);
        send_from(endpoint, self, RT_MESSAGE_HELLO, &hello, sizeof hello);
        await(&g, self);
        ops->end(endpoint, 0);
        close_all(&g);
    }
}

static void who_joins_twice(void **state)
{
    (void)state;
    gathering g;
    prepare_roster(&g);
    open_roster(&g);
    join_run(&g.f, 1);
    await(&g, WORKER(0));
    const rt_wire_hello hello = hello_of(&g, WORKER(0));
    send_from(g.f.members[1], WORKER(0), RT_MESSAGE_HELLO, &hello, sizeof hello);
    must_be_sent_away(
        &g, g.f.members[1], RT_REASON_TAKEN,
        "worker 0 has already joined: it was started twice, or was lost only a moment ago");
    assert_true(members_connected(g.roster, WORKER(0)));
    close_all(&g);
}

// Who lacks keys of boxes that were added gets them, and is in once it says that it has them.
static void keys_are_told_first(void **state)
{
    (void)state;
    gathering g;
    rt_wire_allowed all[RT_SITE_BOXES_MAX];
    prepare_roster(&g);
    g.keys.is_set = true;
    g.added.count = 2;
    for (uint32_t b = 0; b < 2; b++) {
        g.added.of[b].has_key = true;
        memset(g.added.of[b].key.bytes, 3 + (int)b, RT_KEY_BYTES);
        snprintf(g.added.of[b].key.name, RT_NAME_MAX, "box%u", b);
    }
    g.config.keys = &g.keys;
    g.config.added = &g.added;
    open_roster(&g);
    const uint32_t count = dp_added_list(&g.added, all);
    assert_int_equal(count, 2);
    rt_wire_hello hello = hello_of(&g, WORKER(1));
    rt_endpoint *endpoint = connect_as(&g, WORKER(1));
    for (uint32_t wrong = 0; wrong < 2; wrong++) {
        hello.allowed = wrong;
        send_from(endpoint, WORKER(1), RT_MESSAGE_HELLO, &hello, sizeof hello);
        rt_message message = answer_to(&g, endpoint);
        assert_int_equal(rt_message_header(&message)->type, RT_MESSAGE_ALLOW);
        assert_int_equal(rt_message_header(&message)->count, count);
        assert_true(rt_control_has(&message, count * sizeof *all));
        assert_memory_equal(rt_message_payload(&message), all, count * sizeof *all);
        rt_message_release(&message);
        assert_false(members_connected(g.roster, WORKER(1)));
    }
    hello.allowed = rt_hash_bytes(all, count * sizeof *all);
    send_from(endpoint, WORKER(1), RT_MESSAGE_HELLO, &hello, sizeof hello);
    await(&g, WORKER(1));
    ops->end(endpoint, 0);
    close_all(&g);
}

// ---- assembling --------------------------------------------------------------------------------

static void where_it_cannot_listen(void **state)
{
    (void)state;
    gathering g;
    rt_error error = {0};
    prepare_roster(&g);
    strcpy(g.f.config.network_bind, "192.0.2.1"); // of no machine
    assert_int_not_equal(dp_roster_create(&g.config, &g.roster, &error), RT_OK);
    assert_non_null(strstr(error.text, "192.0.2.1"));
    g.roster = NULL;
    close_all(&g);
}

static void who_is_missing_is_named(void **state)
{
    (void)state;
    gathering g;
    rt_error error = {0};
    prepare_roster(&g);
    g.f.config.ps_shard_count = 3;
    g.f.config.worker_count = 4;
    g.f.config.timeout_start_s = 0.25;
    open_roster(&g);
    dp_membership_invite(dp_roster_members(g.roster), RT_ROLE_WORKER, 4, DP_INVITED_NOT);
    dp_membership_invite(dp_roster_members(g.roster), RT_ROLE_PS, 2, DP_INVITED_NOT);
    join_run(&g.f, 2);
    await(&g, WORKER(1));
    assert_int_equal(dp_roster_assemble(g.roster, -1, &error), RT_TIMEOUT);
    assert_string_equal(error.text, "worker 0, worker 3, ps 0, ps 2 did not join within 0.25 s "
                                    "(timeouts.start_s)");
    close_all(&g);
}

static void somebody_ends_it_before(void **state)
{
    (void)state;
    gathering g;
    rt_error error = {0};
    const int stop = eventfd(1, EFD_CLOEXEC);
    prepare_roster(&g);
    open_roster(&g);
    assert_int_equal(dp_roster_assemble(g.roster, stop, &error), RT_STOPPED);
    assert_string_equal(error.text, "interrupted before the run began");
    close(stop);
    close_all(&g);
}

// Who was lost too often waits even if it comes in time, if the run may do without.
static void workers_that_are_aside(void **state)
{
    (void)state;
    for (uint32_t may = 0; may < 2; may++) {
        gathering g;
        rt_wire_welcome welcome = {0};
        prepare_roster(&g);
        g.config.may_shrink = true;
        g.f.config.timeout_rejoin_s = 1000;
        open_roster(&g);
        dp_membership_invite(dp_roster_members(g.roster), RT_ROLE_WORKER, may, DP_INVITED_LATER);
        join_run(&g.f, 1);
        await(&g, WORKER(0));
        assert_int_equal(dp_membership_returning(dp_roster_members(g.roster)), may);
        join_run(&g.f, 0);
        join_run(&g.f, 2);
        assemble(&g);
        assert_int_equal(dp_roster_members(g.roster)->worker_places, may ? 2 : 3);
        assert_int_equal(dp_membership_returning(dp_roster_members(g.roster)), may);
        assert_int_equal(dp_roster_welcome(g.roster, &welcome, NULL), RT_OK);
        rt_message message = expect(&g.f, 2, RT_MESSAGE_WELCOME);
        rt_message_release(&message);
        dp_roster_stop(g.roster, RT_OK, "");
        message = expect(&g.f, 1, may ? RT_MESSAGE_STOP : RT_MESSAGE_WELCOME);
        rt_message_release(&message);
        close_all(&g);
    }
}

// Workers that send to each other are told where; all are told where shards are.
static void who_listens_where(void **state)
{
    (void)state;
    static const char *const places[] = {"tcp://127.0.0.1:11", "tcp://127.0.0.1:12",
                                         "tcp://127.0.0.1:13"};
    gathering g;
    rt_error error = {0};
    rt_wire_welcome welcome = {0};
    rt_wire_workers all;
    prepare_roster(&g);
    g.f.config.dispatch.hand_over = true;
    open_roster(&g);
    for (uint32_t m = 0; m < MEMBERS; m++) {
        rt_wire_hello hello = hello_of(&g, peer_of(m));
        rt_control_put_text(hello.address, sizeof hello.address, places[m]);
        memset(hello.key, 40 + (int)m, sizeof hello.key);
        g.f.members[m] = connect_as(&g, peer_of(m));
        send_from(g.f.members[m], peer_of(m), RT_MESSAGE_HELLO, &hello, sizeof hello);
    }
    assemble(&g);
    assert_int_equal(dp_roster_welcome(g.roster, &welcome, &error), RT_OK);
    for (uint32_t m = 0; m < MEMBERS; m++) {
        rt_message message = expect(&g.f, m, RT_MESSAGE_WELCOME);
        memcpy(&welcome, rt_message_payload(&message), sizeof welcome);
        assert_string_equal(welcome.shards[0], places[0]);
        assert_int_equal(welcome.shard_keys[0][31], 40);
        assert_string_equal(welcome.shards[1], "");
        rt_message_release(&message);
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        rt_message message = expect(&g.f, 1 + w, RT_MESSAGE_PEERS);
        assert_true(rt_control_has(&message, sizeof all));
        memcpy(&all, rt_message_payload(&message), sizeof all);
        rt_message_release(&message);
        for (uint32_t p = 0; p < WORKERS; p++) {
            assert_string_equal(all.workers[p].address, places[1 + p]);
            assert_int_equal(all.workers[p].key[0], 41 + p);
            assert_int_equal(all.workers[p].key[31], 41 + p);
        }
        assert_string_equal(all.workers[WORKERS].address, "");
    }
    close_all(&g);
}

// ---- visitors and strangers --------------------------------------------------------------------

static void must_be_answered(gathering *g, rt_endpoint *visitor, rt_message_type type,
                             const char *text)
{
    rt_message message = answer_to(g, visitor);
    const rt_wire_header *header = rt_message_header(&message);
    rt_reader reader = rt_message_reader(&message);
    assert_int_equal(header->type, type);
    assert_non_null(memmem(reader.next, reader.left, text, strlen(text)));
    rt_message_release(&message);
}

// Requests are the coordinator's business as soon as there is a run; who was replaced is told so.
static void what_visitors_are_answered(void **state)
{
    (void)state;
    const uint32_t self = rt_peer(RT_ROLE_VISITOR, 4);
    const rt_wire_mirror question = {.kind = RT_MIRROR_BEGIN};
    uint32_t peer = 0;
    rt_error error = {0};
    rt_message message = {0};
    gathering g;
    prepare_roster(&g);
    open_roster(&g);
    rt_endpoint *visitor = connect_as(&g, self);
    send_from(visitor, self, RT_MESSAGE_CONTROL, "set\na\n1", 7);
    must_be_answered(&g, visitor, RT_MESSAGE_CONTROLLED, "the run has not begun: it waits");
    for (uint32_t m = 0; m < MEMBERS; m++)
        join_run(&g.f, m);
    assemble(&g);
    send_from(visitor, self, RT_MESSAGE_MIRROR, &question, sizeof question);
    must_be_answered(&g, visitor, RT_MESSAGE_MIRRORED, "the standby was promoted");
    send_from(visitor, self, RT_MESSAGE_CONTROL, "set\na\n1", 7);
    assert_int_equal(take_turns(&g, &peer, &message, &error), RT_OK);
    assert_int_equal(rt_message_header(&message)->type, RT_MESSAGE_CONTROL);
    rt_message_release(&message);
    dp_roster_answer(g.roster, peer, RT_OK, "a is 1");
    must_be_answered(&g, visitor, RT_MESSAGE_CONTROLLED, "a is 1");
    ops->end(visitor, 0);
    close_all(&g);
}

// What they say before they have joined is not heard, and neither is what a worker says that waits.
// The shard, which is in, is.
static void strangers_are_not_heard(void **state)
{
    (void)state;
    uint32_t peer = 0;
    rt_error error = {0};
    rt_message message = {0};
    gathering g;
    prepare_roster(&g);
    g.config.may_shrink = true;
    g.f.config.worker_count = 3;
    g.f.config.timeout_rejoin_s = 1000;
    open_roster(&g);
    dp_membership_invite(dp_roster_members(g.roster), RT_ROLE_WORKER, 1, DP_INVITED_LATER);
    dp_membership_invite(dp_roster_members(g.roster), RT_ROLE_WORKER, 4, DP_INVITED_OPTIONAL);
    for (uint32_t m = 0; m < MEMBERS; m++)
        join_run(&g.f, m);
    assemble(&g);
    await(&g, WORKER(0));
    rt_endpoint *other = connect_as(&g, WORKER(2));
    for (uint32_t i = 0; i < 100; i++) { // more than are looked at in one turn
        send_from(other, WORKER(2), RT_MESSAGE_MARK, NULL, 0);
        send_from(other, WORKER(2), RT_MESSAGE_FAILED, "enough", 6);
        send_from(g.f.members[1], WORKER(0), RT_MESSAGE_REPORT, NULL, 0);
    }
    const rt_wire_hello hello = hello_of(&g, WORKER(2));
    send_from(other, WORKER(2), RT_MESSAGE_HELLO, &hello, sizeof hello);
    await(&g, WORKER(2));
    assert_int_equal(dp_membership_returning(dp_roster_members(g.roster)), 5);
    send_from(g.f.members[0], SHARD, RT_MESSAGE_MARK, NULL, 0);
    assert_int_equal(take_turns(&g, &peer, &message, &error), RT_OK);
    assert_int_equal(rt_message_header(&message)->type, RT_MESSAGE_MARK);
    assert_int_equal(peer, SHARD);
    rt_message_release(&message);
    ops->end(other, 0);
    close_all(&g);
}

// ---- members that are in -----------------------------------------------------------------------

static void who_fails_without_a_reason(void **state)
{
    (void)state;
    uint32_t peer;
    rt_error error = {0};
    rt_message message = {0};
    gathering g;
    gather_all(&g);
    send_from(g.f.members[2], WORKER(1), RT_MESSAGE_FAILED, "\0\0", 2);
    assert_int_equal(take_turns(&g, &peer, &message, &error), RT_PEER);
    assert_string_equal(error.text, "worker 1 failed: it gave no reason");
    assert_int_equal(dp_roster_lost(g.roster), UINT32_MAX); // it was there to say so
    close_all(&g);
}

static void send_damaged(rt_endpoint *endpoint, uint32_t self)
{
    rt_message message;
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_HEARTBEAT, self, 0, 0, 0), RT_OK);
    rt_message_header(&message)->magic ^= 1;
    assert_int_equal(ops->send(endpoint, COORDINATOR, &message), RT_OK);
}

// Bytes that are no message: of a member they end the run, of others they do nothing.
static void bytes_that_are_no_message(void **state)
{
    (void)state;
    uint32_t peer;
    rt_error error = {0};
    rt_message message = {0};
    gathering g;
    gather_all(&g);
    const uint32_t self = rt_peer(RT_ROLE_VISITOR, 4);
    rt_endpoint *visitor = connect_as(&g, self);
    send_damaged(visitor, self);
    send_from(visitor, self, RT_MESSAGE_CONTROL, "set\na\n1", 7);
    assert_int_equal(take_turns(&g, &peer, &message, &error), RT_OK);
    assert_int_equal(peer, self);
    rt_message_release(&message);
    send_damaged(g.f.members[2], WORKER(1));
    assert_int_equal(take_turns(&g, &peer, &message, &error), RT_WIRE);
    assert_non_null(strstr(error.text, "worker 1"));
    ops->end(visitor, 0);
    close_all(&g);
}

static bool spare_all(void *context, uint32_t worker, const char *why)
{
    gathering *g = context;
    dp_membership *members = dp_roster_members(g->roster);
    members->clean = rt_bit(worker);
    dp_membership_lose(members, worker);
    snprintf(g->said, sizeof g->said, "%u: %.23s", worker, why);
    return true;
}

// Silence that ends nothing is nobody's error.
static void who_is_silent_can_be_spared(void **state)
{
    (void)state;
    rt_error error = {0};
    rt_message message = {0};
    uint32_t peer;
    gathering g;
    prepare_roster(&g);
    g.config.spares = spare_all;
    g.config.context = &g;
    *g.said = '\0';
    open_roster(&g);
    for (uint32_t m = 0; m < MEMBERS; m++)
        join_run(&g.f, m);
    assemble(&g);
    g.f.config.timeout_peer_s = 0.2 * test_limit_factor();
    while (!*g.said) { // the others are heard
        assert_true(rt_now_ns() < g.f.end_ns);
        send_from(g.f.members[0], SHARD, RT_MESSAGE_HEARTBEAT, NULL, 0);
        send_from(g.f.members[2], WORKER(1), RT_MESSAGE_HEARTBEAT, NULL, 0);
        assert_int_equal(dp_roster_receive(g.roster, &peer, &message, &error), RT_AGAIN);
        assert_string_equal(error.text, "");
        usleep(1000);
    }
    assert_string_equal(g.said, "0: worker 0 was silent for");
    rt_status status = RT_AGAIN;
    while (status == RT_AGAIN && rt_now_ns() < g.f.end_ns) { // the shard cannot be spared
        send_from(g.f.members[2], WORKER(1), RT_MESSAGE_HEARTBEAT, NULL, 0);
        status = dp_roster_receive(g.roster, &peer, &message, &error);
        usleep(1000);
    }
    assert_int_equal(status, RT_PEER);
    assert_memory_equal(error.text, "ps 0 was silent for", 19);
    assert_int_equal(dp_roster_lost(g.roster), UINT32_MAX);
    assert_false(members_connected(g.roster, WORKER(0)));
    close_all(&g);
}

TEST_MAIN(TEST(who_is_sent_away), TEST(who_is_let_in), TEST(who_joins_twice),
          TEST(keys_are_told_first), TEST(where_it_cannot_listen), TEST(who_is_missing_is_named),
          TEST(somebody_ends_it_before), TEST(workers_that_are_aside), TEST(who_listens_where),
          TEST(what_visitors_are_answered), TEST(strangers_are_not_heard),
          TEST(who_fails_without_a_reason), TEST(bytes_that_are_no_message),
          TEST(who_is_silent_can_be_spared))
