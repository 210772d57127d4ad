// A journal with bits that flipped: whatever frame was hit, all others are read, the loss is
// counted to the event, and it goes on, this time and the next.
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/live/rt_journal.h"
#include "runtime/live/rt_segment.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define BYTES_MAX (UINT64_C(1) << 30)
#define FRAMES 6u
#define PER_FRAME 3u
#define EVENTS (FRAMES * PER_FRAME)
#define ORIGIN 77u

typedef struct {
    char path[600];
    uint8_t *bytes;
    size_t size, head;           // head: bytes of the segment's
    uint64_t begins[FRAMES + 1]; // offset of each frame
} segment;

static void note_done(void *context, rt_status status)
{
    rt_assert(status == RT_OK);
    __atomic_store_n((bool *)context, true, __ATOMIC_SEQ_CST);
}

static void append(rt_journal *journal, const char *lines, uint32_t count, rt_journal_entry more)
{
    bool done = false;
    more.lines = lines;
    more.size = strlen(lines);
    more.count = count;
    more.done = note_done;
    more.context = &done;
    assert_int_equal(rt_journal_append(journal, &more), RT_OK);
    while (!__atomic_load_n(&done, __ATOMIC_SEQ_CST))
        usleep(100);
}

static rt_journal *open_journal(const rt_journal_copy *copy)
{
    rt_journal *journal;
    rt_error error = {0};
    if (rt_journal_open(test_path("journal"), BYTES_MAX, copy, &journal, &error))
        fail_msg("%s", error.text);
    return journal;
}

// Frames of three events each, of an origin that numbers them as the journal does, with notes.
static void write_segment(segment *s)
{
    struct stat info;
    rt_journal *journal = open_journal(NULL);
    *s = (segment){.head = rt_journal_statistics(journal).bytes};
    for (uint32_t i = 0; i < FRAMES; i++) {
        char lines[100];
        const uint32_t first = i * PER_FRAME + 1;
        s->begins[i] = rt_journal_statistics(journal).bytes;
        snprintf(lines, sizeof lines, "e%" PRIu32 ",x\ne%" PRIu32 ",yy\ne%" PRIu32 ",zzz\n", first,
                 first + 1, first + 2);
        append(journal, lines, PER_FRAME,
               (rt_journal_entry){.origin = ORIGIN,
                                  .origin_first = first,
                                  .origin_left = 1,
                                  .note = "place",
                                  .note_size = 5});
    }
    s->begins[FRAMES] = rt_journal_statistics(journal).bytes;
    rt_journal_close(journal);
    snprintf(s->path, sizeof s->path, "%s/%020d.seg", test_path("journal"), 1);
    const int file = open(s->path, O_RDONLY);
    assert_int_equal(fstat(file, &info), 0);
    s->size = (size_t)info.st_size;
    assert_int_equal(s->size, s->begins[FRAMES]);
    s->bytes = malloc(s->size);
    assert_int_equal(read(file, s->bytes, s->size), s->size);
    close(file);
}

static void write_file(const char *path, const uint8_t *bytes, size_t size)
{
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(file >= 0);
    assert_int_equal(write(file, bytes, size), size);
    close(file);
}

// The folder with this segment alone, as the damage left it.
static void restore(const segment *s, size_t size)
{
    char command[700];
    snprintf(command, sizeof command, "rm -f '%s'/*.seg*", test_path("journal"));
    assert_int_equal(system(command), 0);
    write_file(s->path, s->bytes, size);
}

// The lines that come from an event on, as a set of numbers; a repeated one fails.
static uint64_t read_events(rt_journal *journal)
{
    uint64_t seen = 0;
    rt_journal_frame frame;
    rt_error error = {0};
    rt_status status;
    while (!(status = rt_journal_read(journal, &frame, &error))) {
        for (uint32_t i = 0; i < frame.count; i++) {
            const char *end = memchr(frame.lines, '\n', frame.size);
            const uint64_t number = strtoull(frame.lines + 1, NULL, 10);
            assert_true(end != NULL && number < 64);
            assert_true(*frame.lines == 'e' || number == 0);
            assert_false(seen >> number & 1);
            seen |= UINT64_C(1) << number;
            frame.size -= (size_t)(end + 1 - frame.lines);
            frame.lines = end + 1;
        }
    }
    assert_int_equal(status, RT_AGAIN);
    return seen;
}

static uint64_t all_but(uint64_t frames)
{
    uint64_t events = 0;
    for (uint32_t i = 0; i < FRAMES; i++)
        if (!(frames >> i & 1))
            events |= UINT64_C(7) << (i * PER_FRAME + 1);
    return events;
}

// Which frames an offset is in; 0: the segment's head.
static uint64_t frame_of(const segment *s, size_t at)
{
    for (uint32_t i = 0; i < FRAMES; i++)
        if (at >= s->begins[i] && at < s->begins[i + 1])
            return UINT64_C(1) << i;
    return 0;
}

// Reads what the damage left: all but at most these frames, and the rest is counted; with it, what
// comes now, and all of it once more at the next start.
static uint64_t must_go_on(const segment *s, uint64_t frames)
{
    uint64_t left = 0;
    for (int start = 0; start < 2; start++) {
        rt_journal *journal = open_journal(NULL);
        if (start == 0)
            append(journal, "n\n", 1, (rt_journal_entry){0});
        const uint64_t seen = read_events(journal);
        const uint64_t lost = rt_journal_statistics(journal).lost;
        assert_true(seen & 1); // "n"
        left = seen & ~UINT64_C(1);
        assert_int_equal(left & all_but(frames), all_but(frames));
        assert_int_equal((uint64_t)__builtin_popcountll(left) + lost, EVENTS);
        assert_int_equal(rt_journal_statistics(journal).next, EVENTS + 2);
        const uint64_t last = left >> (EVENTS - 2) & 7 ? EVENTS : EVENTS - PER_FRAME;
        assert_int_equal(rt_journal_origin(journal, ORIGIN), last);
        rt_journal_close(journal);
    }
    (void)s;
    return left;
}

static void one_bit_costs_one_frame(void **state)
{
    (void)state;
    segment s;
    uint64_t mended = 0;
    write_segment(&s);
    for (size_t at = 0; at < s.size; at++) {
        const uint8_t bit = (uint8_t)(1u << (at % 8));
        s.bytes[at] ^= bit;
        restore(&s, s.size);
        const uint64_t left = must_go_on(&s, frame_of(&s, at));
        mended += frame_of(&s, at) && left == all_but(0);
        s.bytes[at] ^= bit;
    }
    // Where magic, size, first event or count was hit nothing is lost.
    assert_int_equal(mended, FRAMES * 20);
    free(s.bytes);
}

static void two_places(void **state)
{
    (void)state;
    segment s;
    write_segment(&s);
    for (size_t at = 0; at < s.size; at += 7) {
        const size_t other = (at * 31 + 101) % s.size;
        if (other == at)
            continue;
        s.bytes[at] ^= 0x10;
        s.bytes[other] ^= 0x02;
        restore(&s, s.size);
        uint64_t frames = frame_of(&s, at) | frame_of(&s, other);
        rt_journal *journal = open_journal(NULL);
        append(journal, "n\n", 1, (rt_journal_entry){0});
        const uint64_t seen = read_events(journal);
        assert_int_equal(seen & all_but(frames), all_but(frames));
        assert_true(seen & 1);
        rt_journal_close(journal);
        s.bytes[at] ^= 0x10;
        s.bytes[other] ^= 0x02;
    }
    free(s.bytes);
}

// Nothing of a file is taken away but a frame that was cut off.
static void keeps_the_bytes(void **state)
{
    (void)state;
    segment s;
    struct stat info;
    write_segment(&s);
    s.bytes[s.begins[FRAMES - 1] + 60] ^= 1; // in the last frame
    restore(&s, s.size);
    rt_journal *journal = open_journal(NULL);
    append(journal, "n\n", 1, (rt_journal_entry){0});
    assert_int_equal(stat(s.path, &info), 0);
    assert_int_equal(info.st_size, s.size);
    (void)read_events(journal);
    rt_journal_keep_from(journal, EVENTS + 1); // it is not needed any more
    char aside[700];
    snprintf(aside, sizeof aside, "%s.damaged", s.path);
    for (int i = 0; i < 1000 && stat(aside, &info) != 0; i++)
        usleep(10000);
    assert_int_equal(stat(aside, &info), 0);
    assert_int_equal(info.st_size, s.size);
    assert_int_not_equal(stat(s.path, &info), 0);
    rt_journal_close(journal);
    free(s.bytes);
}

// A checkpoint stands behind what the damage took of the end: the run goes on, with its number.
static void a_position_behind_a_damaged_end(void **state)
{
    (void)state;
    segment s;
    uint64_t lost;
    write_segment(&s);
    memset(s.bytes + s.begins[FRAMES - 1], 0xff, s.size - s.begins[FRAMES - 1]);
    restore(&s, s.size);
    rt_journal *journal = open_journal(NULL);
    assert_true(rt_journal_begin_at(journal, EVENTS + 1));
    assert_int_equal(rt_journal_seek(journal, EVENTS + 1, &lost, NULL), RT_OK);
    append(journal, "n\n", 1, (rt_journal_entry){0});
    assert_int_equal(read_events(journal), 1);
    assert_int_equal(rt_journal_statistics(journal).lost, 0); // they had been trained
    assert_int_equal(rt_journal_statistics(journal).next, EVENTS + 2);
    rt_journal_close(journal);
    restore(&s, s.begins[FRAMES - 1]); // an old copy, whose end is whole
    journal = open_journal(NULL);
    assert_false(rt_journal_begin_at(journal, EVENTS + 1));
    rt_journal_close(journal);
    free(s.bytes);
}

// Wherever the last frame ends too early, nobody was told of it: the journal's end is whole.
static void a_frame_cut_off_anywhere_goes(void **state)
{
    (void)state;
    segment s;
    write_segment(&s);
    for (size_t size = s.begins[FRAMES - 1] + 1; size < s.size; size++) {
        restore(&s, size);
        rt_journal *journal = open_journal(NULL);
        assert_int_equal(rt_journal_statistics(journal).next, EVENTS - PER_FRAME + 1);
        assert_int_equal(rt_journal_statistics(journal).bytes, s.begins[FRAMES - 1]);
        assert_false(rt_journal_begin_at(journal, EVENTS + 1));
        assert_int_equal(read_events(journal), all_but(UINT64_C(1) << (FRAMES - 1)));
        assert_int_equal(rt_journal_statistics(journal).lost, 0);
        rt_journal_close(journal);
    }
    free(s.bytes);
}

// A machine lost its power while the first frame of a segment was written: zeros stand there. What
// comes goes into a segment of the same name.
static void zeros_behind_a_head(void **state)
{
    (void)state;
    segment s;
    struct stat info;
    char aside[700];
    write_segment(&s);
    memset(s.bytes + s.head, 0, s.size - s.head);
    restore(&s, s.size);
    for (int start = 0; start < 2; start++) {
        rt_journal *journal = open_journal(NULL);
        if (start == 0)
            append(journal, "n\n", 1, (rt_journal_entry){0});
        assert_int_equal(read_events(journal), 1);
        assert_int_equal(rt_journal_statistics(journal).next, 2);
        rt_journal_close(journal);
    }
    snprintf(aside, sizeof aside, "%s.damaged", s.path);
    assert_int_equal(stat(aside, &info), 0);
    assert_int_equal(info.st_size, s.size);
    free(s.bytes);
}

// Somebody removed the file that is written to: the reader says so, and does not look for ever.
static void the_last_segment_is_removed(void **state)
{
    (void)state;
    segment s;
    rt_journal_frame frame;
    rt_error error = {0};
    write_segment(&s);
    rt_journal *journal = open_journal(NULL);
    assert_int_equal(unlink(s.path), 0);
    alarm(60);
    assert_int_equal(rt_journal_read(journal, &frame, &error), RT_IO);
    alarm(0);
    assert_true(strstr(error.text, s.path) != NULL);
    rt_journal_close(journal);
    free(s.bytes);
}

// Lines that look like frames, in a frame that is damaged, are no frames.
static void lines_cannot_pose_as_frames(void **state)
{
    (void)state;
    char path[600];
    uint8_t byte;
    rt_bytes text = {0};
    rt_frame_head head = {.size = 4, .first = 2, .count = 1, .arrival_ns = 1};
    rt_frame_seal(&head, "eee\n");
    rt_journal *journal = open_journal(NULL);
    const uint64_t at = rt_journal_statistics(journal).bytes;
    rt_bytes_put(&text, &head, sizeof head);
    rt_bytes_put(&text, "eee\n", 4);
    bool done = false;
    uint32_t count;
    assert_true(rt_journal_count_lines((const char *)text.data, text.size, &count));
    const rt_journal_entry entry = {.lines = (const char *)text.data,
                                    .size = text.size,
                                    .count = count,
                                    .done = note_done,
                                    .context = &done};
    assert_int_equal(rt_journal_append(journal, &entry), RT_OK);
    while (!__atomic_load_n(&done, __ATOMIC_SEQ_CST))
        usleep(100);
    append(journal, "e5\n", 1, (rt_journal_entry){0});
    rt_journal_close(journal);
    snprintf(path, sizeof path, "%s/%020d.seg", test_path("journal"), 1);
    const int file = open(path, O_RDWR);
    assert_int_equal(pread(file, &byte, 1, (off_t)at + 32), 1); // the arrival of the first
    byte ^= 1;
    assert_int_equal(pwrite(file, &byte, 1, (off_t)at + 32), 1);
    close(file);
    journal = open_journal(NULL);
    assert_int_equal(read_events(journal), UINT64_C(1) << 5);
    assert_int_equal(rt_journal_statistics(journal).lost, count);
    rt_journal_close(journal);
    rt_bytes_fini(&text);
}

// ---- a copy elsewhere

static void offer(void *context, uint64_t first, uint64_t offset, const void *bytes, size_t size)
{
    (void)context;
    (void)first;
    (void)offset;
    (void)bytes;
    (void)size;
}

static rt_status settle(void *context, bool is_written, rt_error *error)
{
    (void)context;
    (void)is_written;
    (void)error;
    return RT_OK;
}

static rt_status fetch(void *context, uint64_t first, uint64_t offset, size_t size, rt_bytes *to,
                       rt_error *error)
{
    const segment *s = context;
    if (first != 1)
        return rt_fail(error, RT_IO, "no such segment");
    if (offset < s->size)
        rt_bytes_put(to, s->bytes + offset, rt_min_u64(size, s->size - offset));
    return RT_OK;
}

// Wherever it is hit, a journal that somebody has a copy of loses nothing.
static void a_copy_mends_it(void **state)
{
    (void)state;
    segment s, hit;
    write_segment(&s);
    hit = s;
    hit.bytes = malloc(s.size);
    for (size_t at = 0; at < s.size; at += 3) {
        memcpy(hit.bytes, s.bytes, s.size);
        hit.bytes[at] ^= 0x04;
        hit.bytes[(at * 13 + 50) % s.size] ^= 0x40;
        restore(&hit, s.size - at % 2); // some lack their end
        const rt_journal_copy copy = {offer, settle, fetch, &s};
        rt_journal *journal = open_journal(&copy);
        append(journal, "n\n", 1, (rt_journal_entry){0});
        assert_int_equal(read_events(journal), all_but(0) | 1);
        assert_int_equal(rt_journal_statistics(journal).lost, 0);
        assert_int_equal(rt_journal_origin(journal, ORIGIN), EVENTS);
        rt_journal_close(journal);
    }
    free(hit.bytes);
    free(s.bytes);
}

// A copy that is damaged, too, helps where it is whole.
static void a_damaged_copy_is_not_taken(void **state)
{
    (void)state;
    segment s;
    write_segment(&s);
    s.bytes[s.begins[2] + 60] ^= 1;
    restore(&s, s.size);
    const rt_journal_copy copy = {offer, settle, fetch, &s};
    rt_journal *journal = open_journal(&copy);
    assert_int_equal(read_events(journal), all_but(4));
    assert_int_equal(rt_journal_statistics(journal).lost, PER_FRAME);
    rt_journal_close(journal);
    free(s.bytes);
}

// A journal of a later version is not damaged, and stays as it is.
static void another_version_is_named(void **state)
{
    (void)state;
    segment s;
    rt_journal *journal;
    rt_error error = {0};
    struct stat info;
    write_segment(&s);
    s.bytes[8] = 2;
    const uint64_t hash = rt_hash_bytes(s.bytes, s.head - sizeof hash);
    memcpy(s.bytes + s.head - sizeof hash, &hash, sizeof hash);
    restore(&s, s.size);
    assert_int_equal(rt_journal_open(test_path("journal"), BYTES_MAX, NULL, &journal, &error),
                     RT_UNSUPPORTED);
    assert_true(strstr(error.text, "has format 2") != NULL);
    assert_int_equal(stat(s.path, &info), 0);
    assert_int_equal(info.st_size, s.size);
    free(s.bytes);
}

TEST_MAIN(TEST(one_bit_costs_one_frame), TEST(two_places), TEST(keeps_the_bytes),
          TEST(a_position_behind_a_damaged_end), TEST(a_frame_cut_off_anywhere_goes),
          TEST(zeros_behind_a_head), TEST(the_last_segment_is_removed),
          TEST(lines_cannot_pose_as_frames), TEST(a_copy_mends_it),
          TEST(a_damaged_copy_is_not_taken), TEST(another_version_is_named))
