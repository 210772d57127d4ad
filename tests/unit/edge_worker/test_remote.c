// Rows that are fetched: asked for once, kept with their version, never made up. The one who hands
// them out is a thread here that can be told to be silent, or to answer with nonsense.
#include "edge_worker/serve/ew_remote.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "edge_worker/serve/ew_cache.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_thread.h"
#include "runtime/transport/rt_transport.h"
#include "runtime/wire/rt_control.h"
#include "tests/support/test.h"

#define SERVER rt_peer(RT_ROLE_COORDINATOR, 0)
#define DIM 4u
#define KEYS_MAX 64u

typedef enum {
    GOOD,
    SILENT,
    REFUSES,
    OTHER_DIM,
    OTHER_COUNT,
    CUT_SHORT,    // fewer floats than rows
    TOO_LONG,     // more
    SAME_OF_NONE, // says that a row has not changed which nobody has
    NO_SUCH_KIND,
    MANNERS
} manners;

// Rows of even keys are the same in all versions; keys that 7 divides have none.
static void make_row(uint64_t key, uint64_t version, float row[DIM])
{
    for (uint32_t i = 0; i < DIM; i++)
        row[i] = (float)key + 0.25f * (float)i + (key % 2 ? 1000 * (float)version : 0);
}

typedef struct {
    rt_transport *transport;
    rt_endpoint *endpoint;
    char address[RT_NAME_MAX];
    pthread_t thread;
    atomic_bool stops;
    atomic_int manners;
    atomic_uint version;   // the one it has
    atomic_uint questions; // for rows
    atomic_uint wanted;    // keys of the last one
} source;

static ew_version version_of(uint64_t id)
{
    return (ew_version){
        .iteration = 10 * id, .samples = id, .trained_s = 100.0 * (double)id, .id = id};
}

static void answer(source *s, uint32_t peer, const rt_message *question)
{
    uint8_t payload[sizeof(rt_wire_looked_up) + KEYS_MAX + KEYS_MAX * DIM * sizeof(float) + 64] = {
        0};
    const int manner = atomic_load(&s->manners);
    const uint64_t version = atomic_load(&s->version);
    const ew_version is = version_of(version);
    const uint32_t count =
        (uint32_t)((question->size - sizeof(rt_wire_header) - sizeof(rt_wire_look_up)) /
                   sizeof(rt_wire_wanted));
    rt_wire_looked_up head = {.dim = DIM + (manner == OTHER_DIM),
                              .status = manner == REFUSES ? RT_UNSUPPORTED : RT_OK,
                              .version = is.id,
                              .iteration = is.iteration,
                              .trained_s = is.trained_s,
                              .count = count + (manner == OTHER_COUNT)};
    memcpy(payload, &head, sizeof head);
    uint8_t *found = payload + sizeof head, *row_at = found + (count + 7) / 8 * 8;
    for (uint32_t i = 0; i < count; i++) {
        rt_wire_wanted one;
        float row[DIM];
        memcpy(&one, rt_message_payload(question) + sizeof(rt_wire_look_up) + i * sizeof one,
               sizeof one);
        make_row(one.key, version, row);
        found[i] = one.key % 7 == 0                                         ? RT_LOOK_UP_NONE
                   : one.have && one.have == rt_hash_bytes(row, sizeof row) ? RT_LOOK_UP_SAME
                                                                            : RT_LOOK_UP_ROW;
        if (found[i] == RT_LOOK_UP_ROW) {
            memcpy(row_at, row, sizeof row);
            row_at += sizeof row;
        }
    }
    if (manner == SAME_OF_NONE || manner == NO_SUCH_KIND)
        memset(found, manner == SAME_OF_NONE ? RT_LOOK_UP_SAME : 9, count);
    size_t size = (size_t)(row_at - payload);
    size = manner == CUT_SHORT ? size - 4 : manner == TOO_LONG ? size + 4 : size;
    if (count > 0) { // before the answer: who has it looks
        atomic_store(&s->wanted, count);
        atomic_fetch_add(&s->questions, 1);
    }
    rt_message message;
    assert_int_equal(rt_control_create_struct(&message, RT_MESSAGE_LOOKED_UP, SERVER,
                                              rt_message_header(question)->iteration, payload, size,
                                              NULL),
                     RT_OK);
    assert_int_equal(rt_transport_zmq.send(s->endpoint, peer, &message), RT_OK);
}

static void *hand_out(void *context)
{
    source *s = context;
    while (!atomic_load(&s->stops)) {
        bool ready;
        uint32_t peer;
        rt_message message = {0};
        rt_error error = {0};
        if (rt_transport_zmq.receive(s->endpoint, &peer, &message, &error) == RT_AGAIN)
            (void)rt_transport_zmq.wait(&s->endpoint, 1, -1, 20, &ready);
        else if (atomic_load(&s->manners) != SILENT)
            answer(s, peer, &message);
        rt_message_release(&message);
    }
    return NULL;
}

static const uint64_t some[] = {5, 9, 5, 14, 12, 33};
#define SOME RT_COUNT_OF(some)

typedef struct {
    source source;
    ew_remote *remote;
    ew_fetcher *fetcher;
    ps_found found[SOME]; // what the last batch got
    ew_version told;
} scene;

static void open_scene(scene *on, uint32_t fetch_ms)
{
    source *s = &on->source;
    rt_error error = {0};
    *on = (scene){0};
    atomic_store(&s->version, 1);
    assert_int_equal(rt_transport_open(&rt_transport_zmq, NULL, &s->transport, NULL), RT_OK);
    assert_int_equal(rt_transport_zmq.listen(s->transport, SERVER, "tcp://127.0.0.1:0", s->address,
                                             &s->endpoint, NULL),
                     RT_OK);
    assert_int_equal(rt_thread_start(&s->thread, hand_out, s), 0);
    const ew_remote_config config = {
        .address = s->address, .dim = DIM, .cache_bytes_max = 1 << 16, .fetch_ms = fetch_ms};
    if (ew_remote_open(&config, &on->remote, &error))
        fail_msg("%s", error.text);
    assert_int_equal(ew_fetcher_create(on->remote, &on->fetcher), RT_OK);
}

static void close_scene(scene *on)
{
    source *s = &on->source;
    ew_fetcher_destroy(on->fetcher);
    ew_remote_close(on->remote);
    atomic_store(&s->stops, true);
    pthread_join(s->thread, NULL);
    rt_transport_zmq.end(s->endpoint, 0);
    rt_transport_zmq.close(s->transport);
}

// A batch of keys, at most SOME, with the dense part of a version.
static rt_status gather(scene *on, uint64_t version, const uint64_t *keys, const uint8_t *named,
                        uint32_t count)
{
    rt_error error = {0};
    const ew_version asked = version_of(version);
    const ew_rows_elsewhere *rows = ew_fetcher_begin(on->fetcher, &asked);
    assert_int_equal(rows->gather(rows->context, keys, named, count, &error), RT_OK);
    for (uint32_t i = 0; i < count; i += 2) // by blocks, as a scorer does
        rows->find(rows->context, keys + i, i + 1 < count ? 2 : 1, on->found + i);
    return ew_fetcher_judge(on->fetcher, 0, count, &on->told, &error);
}

// The first ones of `some`, all of which name rows.
static rt_status gather_some(scene *on, uint64_t version, uint32_t count)
{
    static const uint8_t all[SOME] = {1, 1, 1, 1, 1, 1};
    return gather(on, version, some, all, count);
}

// That all of `some` are there, those of odd keys as in a version.
static void must_have(const scene *on, uint64_t version)
{
    for (uint32_t i = 0; i < SOME; i++) {
        float row[DIM];
        assert_int_equal(on->found[i].entry != NULL, some[i] % 7 != 0);
        if (!on->found[i].entry)
            continue;
        make_row(some[i], version, row);
        assert_memory_equal(on->found[i].row, row, sizeof row);
    }
}

// With the dense part of a version, rows of odd keys are as in another.
static void must_gather(scene *on, uint64_t version, uint64_t rows)
{
    assert_int_equal(gather_some(on, version, SOME), RT_OK);
    must_have(on, rows);
}

static void rows_are_asked_for_once(void **state)
{
    scene on;
    (void)state;
    open_scene(&on, 20000);
    for (uint32_t turn = 0; turn < 3; turn++) {
        must_gather(&on, 1, 1);
        assert_int_equal(on.told.iteration, 10);
        assert_int_equal(on.told.rows_newest, 0); // all of one version
    }
    assert_int_equal(atomic_load(&on.source.questions), 1);
    assert_int_equal(atomic_load(&on.source.wanted), 5); // each key once, that without a row too
    assert_int_equal(ew_remote_counted(on.remote).fetched, 4);
    const uint8_t named[] = {0, 0};
    const uint64_t other[] = {101, 103};
    assert_int_equal(gather(&on, 1, other, named, 2), RT_OK);
    assert_true(!on.found[0].entry && !on.found[1].entry);
    assert_int_equal(atomic_load(&on.source.questions), 1); // they name no rows
    close_scene(&on);
}

static void what_has_not_changed_does_not_come_again(void **state)
{
    scene on;
    (void)state;
    open_scene(&on, 20000);
    assert_int_equal(gather_some(&on, 1, SOME), RT_OK);
    atomic_store(&on.source.version, 2);
    must_gather(&on, 2, 2);
    assert_int_equal(on.told.rows_newest, 0);
    assert_int_equal(atomic_load(&on.source.wanted), 5);
    assert_int_equal(ew_remote_counted(on.remote).fetched, 4 + 3); // 12 is the same
    close_scene(&on);
}

static void other_versions_are_told(void **state)
{
    scene on;
    (void)state;
    open_scene(&on, 20000);
    assert_int_equal(gather_some(&on, 1, 1), RT_OK); // 5
    atomic_store(&on.source.version, 3);             // and 2 is gone
    must_gather(&on, 2, 3);
    assert_int_equal(on.told.iteration, 20);
    assert_int_equal(on.told.rows_oldest, 20);
    assert_int_equal(on.told.rows_newest, 30);
    assert_true(on.told.trained_s == 200);
    assert_int_equal(gather_some(&on, 3, SOME), RT_OK);
    assert_int_equal(on.told.rows_newest, 0); // it has become that one
    assert_int_equal(atomic_load(&on.source.questions), 2);
    close_scene(&on);
}

static void nothing_is_made_up_in_silence(void **state)
{
    scene on;
    (void)state;
    open_scene(&on, 300);
    assert_int_equal(gather_some(&on, 1, 5), RT_OK);
    atomic_store(&on.source.manners, SILENT);
    assert_int_equal(gather_some(&on, 2, SOME), RT_PEER); // 33 is not here
    assert_int_equal(gather_some(&on, 2, 5), RT_OK);
    assert_int_equal(on.told.iteration, 20);
    assert_int_equal(on.told.rows_oldest, 10);
    assert_int_equal(on.told.rows_newest, 20);
    assert_true(on.told.trained_s == 100); // as old as the oldest
    assert_int_equal(gather_some(&on, 1, 5), RT_OK);
    assert_int_equal(on.told.rows_newest, 0);
    atomic_store(&on.source.version, 2);
    atomic_store(&on.source.manners, GOOD);
    while (gather_some(&on, 2, SOME)) // until it is found to answer again
        ;
    must_have(&on, 2);
    close_scene(&on);
}

static void nonsense_is_no_answer(void **state)
{
    scene on;
    (void)state;
    open_scene(&on, 20000);
    for (int manner = REFUSES; manner < MANNERS; manner++) {
        atomic_store(&on.source.manners, manner);
        if (gather_some(&on, 1, SOME) != RT_PEER)
            fail_msg("nonsense %d was believed", manner);
        assert_int_equal(ew_remote_counted(on.remote).cached, 0);
    }
    atomic_store(&on.source.manners, GOOD);
    must_gather(&on, 1, 1);
    close_scene(&on);
}

// ---- the cache ---------------------------------------------------------------------------------

static void the_cache_keeps_its_bound(void **state)
{
    ew_cache *cache;
    const uint64_t bytes_max = 1 << 16;
    uint32_t kept = 0;
    (void)state;
    assert_int_equal(ew_cache_create(bytes_max, DIM, &cache), RT_OK);
    assert_true(ew_cache_bytes(cache) <= bytes_max);
    const ew_version version = version_of(1);
    const ew_cached row = {EW_CACHED_ROW, ew_cache_serial(cache, &version)};
    for (uint64_t key = 0; key < 20000; key++) {
        float values[DIM];
        ew_cached known;
        const uint64_t hot = 1;
        make_row(key, 1, values);
        ew_cache_put(cache, &key, 1, values, &row);
        ew_cache_get(cache, &hot, 1, values, &known); // used all the time: it stays
        assert_int_equal(known.kind, key == 0 ? EW_CACHED_NOTHING : EW_CACHED_ROW);
    }
    assert_true(ew_cache_count(cache) * (DIM * sizeof(float)) < bytes_max);
    for (uint64_t key = 0; key < 20000; key++) {
        float values[DIM], want[DIM];
        ew_cached known;
        ew_cache_get(cache, &key, 1, values, &known);
        make_row(key, 1, want);
        kept += known.kind == EW_CACHED_ROW;
        if (known.kind == EW_CACHED_ROW)
            assert_memory_equal(values, want, sizeof want);
    }
    assert_int_equal(kept, ew_cache_count(cache));
    assert_true(kept > 500);
    ew_cache_destroy(cache);
}

static void old_versions_are_forgotten(void **state)
{
    ew_cache *cache;
    ew_version told;
    ew_cached known;
    const uint64_t key = 5;
    float row[DIM] = {0};
    (void)state;
    assert_int_equal(ew_cache_create(1 << 16, DIM, &cache), RT_OK);
    const ew_version first = version_of(1);
    const ew_cached none = {EW_CACHED_NONE, ew_cache_serial(cache, &first)};
    ew_cache_put(cache, &key, 1, row, &none);
    for (uint64_t id = 1; id <= 256; id++) {
        const ew_version one = version_of(id);
        ew_cache_get(cache, &key, 1, row, &known);
        assert_int_equal(known.kind, EW_CACHED_NONE);
        assert_int_equal(ew_cache_serial(cache, &one), id);
        assert_int_equal(ew_cache_serial(cache, &one), id);
    }
    const ew_version next = version_of(257);
    assert_true(ew_cache_version(cache, 1, &told) && told.iteration == 10);
    assert_int_equal(ew_cache_serial(cache, &next), 257);
    assert_false(ew_cache_version(cache, 1, &told));
    ew_cache_get(cache, &key, 1, row, &known);
    assert_int_equal(known.kind, EW_CACHED_NOTHING);
    ew_cache_destroy(cache);
}

TEST_MAIN(TEST(rows_are_asked_for_once), TEST(what_has_not_changed_does_not_come_again),
          TEST(other_versions_are_told), TEST(nothing_is_made_up_in_silence),
          TEST(nonsense_is_no_answer), TEST(the_cache_keeps_its_bound),
          TEST(old_versions_are_forgotten))
