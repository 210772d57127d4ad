// A feeder whose spool is not as it was written.
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/live/rt_feed.h"
#include "runtime/live/rt_live.h"
#include "runtime/live/rt_segment.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"
#include "tests/support/visitors.h"

#define BYTES_MAX (UINT64_C(1) << 20) // of a journal: segments of 64 KiB
#define LINE 6000u
#define LINES 30u
#define WAIT_MS 20000u

static void note_done(void *context, rt_status status)
{
    assert_int_equal(status, RT_OK);
    atomic_store((atomic_bool *)context, true);
}

// One frame for each line, one commit for each frame, in several segments.
static void fill(const char *place)
{
    char line[LINE];
    rt_journal *journal;
    rt_journal_extent *extents;
    uint32_t count;
    memset(line, '1', sizeof line - 1);
    line[sizeof line - 1] = '\n';
    assert_int_equal(rt_journal_open(place, BYTES_MAX, NULL, &journal, NULL), RT_OK);
    for (uint32_t i = 0; i < LINES; i++) {
        atomic_bool done = false;
        const rt_journal_entry entry = {
            .lines = line, .size = sizeof line, .count = 1, .done = note_done, .context = &done};
        assert_int_equal(rt_journal_append(journal, &entry), RT_OK);
        while (!atomic_load(&done))
            (void)poll(NULL, 0, 1);
    }
    assert_int_equal(rt_journal_extents(journal, &extents, &count), RT_OK);
    assert_true(count > 2);
    rt_free(extents);
    rt_journal_close(journal);
}

// In the line of this number of the first segment.
static void damage(const char *place, uint64_t number)
{
    char name[RT_SEGMENT_NAME_MAX], path[600];
    rt_segment_name(1, name);
    snprintf(path, sizeof path, "%s/%s", place, name);
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(pwrite(file, "?", 1, (off_t)(number * LINE - LINE / 2)), 1);
    close(file);
}

// What cannot be read is lost, and told; what follows it goes on its way.
static void lose_line(uint64_t number)
{
    char text[100];
    rt_live *live;
    rt_feeder *feeder;
    rt_feed_counts counts;
    rt_error error = {0};
    char spool[300];
    snprintf(spool, sizeof spool, "%s", test_path("spool"));
    fill(spool);
    damage(spool, number);
    rt_config config = config_fresh();
    snprintf(text, sizeof text, "feed.listen=127.0.0.1:%d", test_free_port());
    config_must_set(&config, text);
    snprintf(config.feed_to, sizeof config.feed_to, "%s", config.feed_listen);
    config_must_set(&config, "stream.source=feed");
    assert_int_equal(rt_live_open(&config, test_path("journal"), &live, &error), RT_OK);
    assert_int_equal(rt_feeder_open(&config, spool, &feeder, &error), RT_OK);
    const uint64_t wanted = LINES - 1;
    uint64_t events = 0;
    for (uint32_t i = 0; i < WAIT_MS / 10 && events < wanted; i++) {
        events = rt_live_statistics(live, RT_FLOW_EVENTS).journal.events;
        (void)poll(NULL, 0, 10);
    }
    assert_int_equal(events, wanted);
    for (uint32_t i = 0; i < WAIT_MS / 10; i++) {
        assert_true(rt_feeder_counts(feeder, &counts, &error));
        if (counts.kept == LINES)
            break;
        (void)poll(NULL, 0, 10);
    }
    assert_int_equal(counts.kept, LINES);
    assert_int_equal(rt_live_statistics(live, RT_FLOW_EVENTS).journal.events, wanted);
    assert_int_equal(rt_live_statistics(live, RT_FLOW_EVENTS).journal.lost, 1);
    rt_feeder_close(feeder);
    rt_live_close(live);
    rt_config_fini(&config);
}

static void what_is_behind_a_damage_arrives(void **state)
{
    (void)state;
    lose_line(4);
}

// The coordinator has heard nothing of this feeder yet.
static void what_is_behind_a_damaged_beginning_arrives(void **state)
{
    (void)state;
    lose_line(1);
}

// Half of the numbers of feeders are taken: it finds one of the others.
static void others_have_numbers(void **state)
{
    (void)state;
    char text[100], address[100], spool[300];
    rt_live *live;
    rt_feeder *feeder;
    rt_feed_counts counts;
    rt_error error = {0};
    visitors others;
    const rt_wire_events other = {.feeder = 99, .left = 1};
    snprintf(spool, sizeof spool, "%s", test_path("spool"));
    fill(spool);
    rt_config config = config_fresh();
    snprintf(text, sizeof text, "feed.listen=127.0.0.1:%d", test_free_port());
    config_must_set(&config, text);
    snprintf(config.feed_to, sizeof config.feed_to, "%s", config.feed_listen);
    snprintf(address, sizeof address, "tcp://%s", config.feed_listen);
    config_must_set(&config, "stream.source=feed");
    assert_int_equal(rt_live_open(&config, test_path("journal"), &live, &error), RT_OK);
    visitors_take(&others, address, 0, RT_RANKS_MAX / 2, RT_MESSAGE_EVENTS, &other, sizeof other);
    assert_int_equal(rt_feeder_open(&config, spool, &feeder, &error), RT_OK);
    do {
        (void)poll(NULL, 0, 10);
        assert_true(rt_feeder_counts(feeder, &counts, &error));
    } while (counts.kept < LINES); // or the time of the case is over
    rt_feeder_close(feeder);
    visitors_leave(&others);
    rt_live_close(live);
    rt_config_fini(&config);
}

TEST_MAIN(TEST(what_is_behind_a_damage_arrives), TEST(what_is_behind_a_damaged_beginning_arrives),
          TEST(others_have_numbers))
