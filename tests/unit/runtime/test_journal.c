// The journal against a plain list of lines: commits, ends that tear files, damage, bounds,
// origins.
#include "runtime/live/rt_journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"
#include "tests/support/test_clock.h"

#define BYTES_MAX (UINT64_C(1) << 30)

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t came;
    uint32_t done, failed, refused;
} outcome;

static void note_done(void *context, rt_status status)
{
    outcome *o = context;
    pthread_mutex_lock(&o->lock);
    o->done++;
    o->failed += status == RT_IO;
    o->refused += status == RT_REFUSED;
    pthread_cond_broadcast(&o->came);
    pthread_mutex_unlock(&o->lock);
}

static outcome *make_outcome(void)
{
    static outcome all[16];
    static uint32_t next;
    outcome *o = &all[next++ % 16];
    *o = (outcome){0};
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->came, NULL);
    return o;
}

static void await(outcome *o, uint32_t count)
{
    pthread_mutex_lock(&o->lock);
    while (o->done < count)
        pthread_cond_wait(&o->came, &o->lock);
    pthread_mutex_unlock(&o->lock);
}

static rt_journal *open_journal(uint64_t bytes_max)
{
    rt_journal *journal;
    rt_error error = {0};
    if (rt_journal_open(test_path("journal"), bytes_max, NULL, &journal, &error))
        fail_msg("%s", error.text);
    return journal;
}

static rt_status append(rt_journal *journal, const char *lines, rt_journal_entry more, outcome *o)
{
    more.lines = lines;
    more.size = strlen(lines);
    assert_true(rt_journal_count_lines(lines, more.size, &more.count));
    more.done = o ? note_done : NULL;
    more.context = o;
    return rt_journal_append(journal, &more);
}

static void must_append(rt_journal *journal, const char *lines)
{
    outcome *o = make_outcome();
    assert_int_equal(append(journal, lines, (rt_journal_entry){0}, o), RT_OK);
    await(o, 1);
    assert_int_equal(o->failed, 0);
}

// Everything that is committed, from the reader's place on, as one text.
static char *read_all(rt_journal *journal, uint64_t *first_p)
{
    char *text = calloc(1, 1);
    size_t length = 0;
    rt_journal_frame frame;
    rt_error error = {0};
    rt_status status;
    *first_p = 0;
    while (!(status = rt_journal_read(journal, &frame, &error))) {
        *first_p = *first_p ? *first_p : frame.first;
        text = realloc(text, length + frame.size + 1);
        memcpy(text + length, frame.lines, frame.size);
        length += frame.size;
        text[length] = '\0';
    }
    assert_int_equal(status, RT_AGAIN);
    return text;
}

static void must_read(rt_journal *journal, uint64_t first, const char *want)
{
    uint64_t got_first;
    char *got = read_all(journal, &got_first);
    assert_string_equal(got, want);
    if (*want)
        assert_int_equal(got_first, first);
    free(got);
}

static void must_seek(rt_journal *journal, uint64_t event, rt_status want, uint64_t want_lost)
{
    uint64_t lost = 0;
    rt_error error = {0};
    assert_int_equal(rt_journal_seek(journal, event, &lost, &error), want);
    assert_int_equal(lost, want_lost);
}

static void keeps_lines_in_order(void **state)
{
    (void)state;
    rt_journal *journal = open_journal(BYTES_MAX);
    must_append(journal, "a\nb");
    must_append(journal, "c\n");
    must_read(journal, 1, "a\nb\nc\n");
    must_append(journal, "d\n");
    must_read(journal, 4, "d\n");
    rt_journal_close(journal);
    journal = open_journal(BYTES_MAX);
    assert_int_equal(rt_journal_statistics(journal).next, 5);
    must_read(journal, 1, "a\nb\nc\nd\n");
    must_append(journal, "e\n");
    must_seek(journal, 2, RT_OK, 0);
    must_read(journal, 2, "b\nc\nd\ne\n");
    must_seek(journal, 6, RT_OK, 0);
    must_read(journal, 6, "");
    must_seek(journal, 7, RT_DATA, 0);
    rt_journal_close(journal);
}

// The file is cut at every byte of its last frame: what was whole before stays, nothing else does.
static void survives_torn_ends(void **state)
{
    (void)state;
    char path[512];
    rt_journal *journal = open_journal(BYTES_MAX);
    must_append(journal, "first\n");
    const uint64_t before = rt_journal_statistics(journal).bytes;
    must_append(journal, "second\nthird\n");
    const uint64_t after = rt_journal_statistics(journal).bytes;
    rt_journal_close(journal);
    snprintf(path, sizeof path, "%s/%020d.seg", test_path("journal"), 1);
    char *whole = malloc(after);
    int file = open(path, O_RDONLY);
    assert_int_equal(read(file, whole, after), after);
    close(file);
    for (uint64_t size = before; size < after; size++) {
        file = open(path, O_WRONLY | O_TRUNC);
        assert_int_equal(write(file, whole, size), size);
        close(file);
        journal = open_journal(BYTES_MAX);
        assert_int_equal(rt_journal_statistics(journal).next, 2);
        must_append(journal, "again\n");
        must_read(journal, 1, "first\nagain\n");
        rt_journal_close(journal);
    }
    free(whole);
}

// Of several segments one is damaged in the middle: what is behind it is read, and the loss told.
static void passes_over_damage(void **state)
{
    (void)state;
    char path[512], line[1200], byte;
    rt_journal *journal = open_journal(1 << 20);
    memset(line, 'x', sizeof line);
    line[1000] = '\n';
    line[1001] = '\0';
    for (int i = 0; i < 300; i++)
        must_append(journal, line);
    rt_journal_close(journal);
    snprintf(path, sizeof path, "%s/%020d.seg", test_path("journal"), 1);
    const int file = open(path, O_RDWR);
    assert_int_equal(pread(file, &byte, 1, 5000), 1);
    byte ^= 1;
    assert_int_equal(pwrite(file, &byte, 1, 5000), 1);
    close(file);
    journal = open_journal(1 << 20);
    uint64_t first;
    char *got = read_all(journal, &first);
    const rt_journal_counts counts = rt_journal_statistics(journal);
    assert_int_equal(first, 1);
    assert_in_range(counts.lost, 1, 299);
    assert_int_equal(strlen(got) / 1001, 300 - counts.lost);
    assert_int_equal(counts.next, 301);
    free(got);
    rt_journal_close(journal);
}

static uint32_t count_segments(void)
{
    uint32_t count = 0;
    DIR *folder = opendir(test_path("journal"));
    for (struct dirent *entry; (entry = readdir(folder));)
        count += strstr(entry->d_name, ".seg") != NULL;
    closedir(folder);
    return count;
}

static void is_bounded(void **state)
{
    (void)state;
    char line[5000];
    uint32_t taken = 0;
    rt_journal *journal = open_journal(1 << 20);
    memset(line, 'y', sizeof line);
    line[4998] = '\n';
    line[4999] = '\0';
    for (; taken < 10000; taken++) {
        outcome *o = make_outcome();
        const rt_status status = append(journal, line, (rt_journal_entry){0}, o);
        if (status == RT_AGAIN)
            break;
        await(o, 1);
    }
    assert_in_range(taken, 190, 210); // 1 MiB of 5 KB
    assert_true(rt_journal_is_pressed(journal));
    assert_true(rt_journal_statistics(journal).bytes <= 1 << 20);
    const uint32_t before = count_segments();
    assert_true(before > 8);
    rt_journal_keep_from(journal, taken / 2);
    for (int i = 0; i < 200 && count_segments() > before / 2 + 2; i++)
        usleep(10000);
    assert_in_range(count_segments(), before / 2 - 1, before / 2 + 2);
    must_append(journal, line); // there is room again
    const uint64_t first = rt_journal_statistics(journal).first;
    assert_in_range(first, 2, taken / 2);
    must_seek(journal, 1, RT_NOT_FOUND, first - 1);
    uint64_t got_first;
    char *got = read_all(journal, &got_first);
    assert_int_equal(got_first, first);
    assert_int_equal(strlen(got) / 4999, taken + 2 - first);
    free(got);
    rt_journal_close(journal);
}

// With a life time segments are begun by age, too, and the first is old once its last event is.
static void knows_how_old_events_are(void **state)
{
    (void)state;
    rt_journal *journal = open_journal(1 << 20);
    test_clock_stop();
    must_append(journal, "a\n");
    test_clock_move(0.3);
    must_append(journal, "b\n");
    assert_int_equal(count_segments(), 1);
    assert_false(rt_journal_is_old(journal));
    rt_journal_keep_for(journal, 0.8);
    must_append(journal, "c\n"); // after more than an eighth of that: a segment of its own
    assert_int_equal(count_segments(), 2);
    assert_false(rt_journal_is_old(journal));
    test_clock_move(0.79);
    assert_false(rt_journal_is_old(journal)); // the first segment ends with "b"
    test_clock_move(0.02);
    assert_true(rt_journal_is_old(journal));
    rt_journal_keep_for(journal, 1000);
    assert_false(rt_journal_is_old(journal));
    rt_journal_close(journal);
}

static void knows_origins(void **state)
{
    (void)state;
    outcome *o = make_outcome();
    rt_journal *journal = open_journal(BYTES_MAX);
    const rt_journal_entry one = {.origin = 7, .origin_first = 5, .origin_left = 5};
    assert_int_equal(append(journal, "5\n6\n7\n", one, o), RT_OK);
    await(o, 1);
    assert_int_equal(rt_journal_origin(journal, 7), 7);
    assert_int_equal(rt_journal_origin(journal, 8), 0);
    const rt_journal_entry overlap = {.origin = 7, .origin_first = 6, .origin_left = 5};
    assert_int_equal(append(journal, "6\n7\n8\n", overlap, o), RT_OK);
    assert_int_equal(append(journal, "6\n7\n", overlap, o), RT_OK); // all of it is known
    await(o, 3);
    const rt_journal_entry gap = {.origin = 7, .origin_first = 10, .origin_left = 9};
    assert_int_equal(append(journal, "10\n", gap, o), RT_OK);
    await(o, 4);
    assert_int_equal(o->refused, 1);
    assert_int_equal(rt_journal_origin(journal, 7), 8);
    const rt_journal_entry lost = {.origin = 7, .origin_first = 20, .origin_left = 20};
    assert_int_equal(append(journal, "20\n", lost, o), RT_OK);
    await(o, 5);
    assert_int_equal(rt_journal_statistics(journal).lost, 11);
    const rt_journal_entry later = {.origin = 9, .origin_first = 4, .origin_left = 1};
    assert_int_equal(append(journal, "4\n", later, o), RT_OK);
    await(o, 6);
    assert_int_equal(o->refused, 2); // of one that is new here, and has what comes first
    const rt_journal_entry rest = {.origin = 9, .origin_first = 4, .origin_left = 7};
    assert_int_equal(append(journal, "4\n", rest, o), RT_OK);
    await(o, 7);
    must_read(journal, 1, "5\n6\n7\n8\n20\n4\n");
    assert_int_equal(rt_journal_statistics(journal).repeated, 4);
    assert_int_equal(rt_journal_statistics(journal).lost, 14);
    rt_journal_close(journal);
    journal = open_journal(BYTES_MAX); // all of that holds after a restart
    assert_int_equal(rt_journal_origin(journal, 7), 20);
    rt_journal_close(journal);
}

// What is remembered outlives the segments that it came with.
static void remembers_beyond_segments(void **state)
{
    (void)state;
    char line[5000];
    outcome *o = make_outcome();
    rt_bytes note = {0};
    rt_journal *journal = open_journal(1 << 20);
    const rt_journal_entry one = {
        .origin = 3, .origin_first = 1, .origin_left = 1, .note = "place", .note_size = 5};
    assert_int_equal(append(journal, "x\n", one, o), RT_OK);
    await(o, 1);
    memset(line, 'z', sizeof line);
    line[4998] = '\n';
    line[4999] = '\0';
    for (int i = 0; i < 100; i++)
        must_append(journal, line);
    rt_journal_keep_from(journal, 100);
    for (int i = 0; i < 200 && rt_journal_statistics(journal).first == 1; i++)
        usleep(10000);
    rt_journal_close(journal);
    journal = open_journal(1 << 20);
    assert_true(rt_journal_statistics(journal).first > 1);
    assert_int_equal(rt_journal_origin(journal, 3), 1);
    rt_journal_note(journal, &note);
    assert_int_equal(note.size, 5);
    assert_memory_equal(note.data, "place", 5);
    rt_bytes_fini(&note);
    rt_journal_close(journal);
}

// Where a source stands is the note of a feeder's spool, and comes back however long it is.
static void has_room_for_any_position(void **state)
{
    (void)state;
    outcome *o = make_outcome();
    rt_bytes note = {0};
    char *place = malloc(RT_POSITION_SOURCE_BYTES_MAX);
    memset(place, '\n', RT_POSITION_SOURCE_BYTES_MAX);
    const rt_journal_entry one = {.note = place, .note_size = RT_POSITION_SOURCE_BYTES_MAX};
    rt_journal *journal = open_journal(1 << 20);
    assert_int_equal(append(journal, "x\n", one, o), RT_OK);
    await(o, 1);
    must_append(journal, "y\n"); // in a segment that begins with the note
    for (int start = 0; start < 2; start++) {
        rt_journal_close(journal);
        journal = open_journal(1 << 20);
        rt_journal_note(journal, &note);
        assert_int_equal(note.size, RT_POSITION_SOURCE_BYTES_MAX);
        assert_memory_equal(note.data, place, note.size);
        rt_bytes_fini(&note);
    }
    must_read(journal, 1, "x\ny\n");
    rt_journal_close(journal);
    free(place);
}

// A disk that is full: who waits is told so, nothing is acknowledged, and later it goes on.
static void tells_what_it_cannot_keep(void **state)
{
    (void)state;
    outcome *o = make_outcome();
    rt_journal *journal = open_journal(BYTES_MAX);
    must_append(journal, "good\n");
    struct rlimit limit, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_IGN);
    tight = limit;
    tight.rlim_cur = 200;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    char line[400];
    memset(line, 'l', sizeof line);
    line[398] = '\n';
    line[399] = '\0';
    assert_int_equal(append(journal, line, (rt_journal_entry){.origin = 1, .origin_first = 1}, o),
                     RT_OK);
    await(o, 1);
    assert_int_equal(o->failed, 1);
    assert_int_equal(rt_journal_origin(journal, 1), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    must_append(journal, "later\n");
    must_read(journal, 1, "good\nlater\n");
    rt_journal_close(journal);
    journal = open_journal(BYTES_MAX);
    must_read(journal, 1, "good\nlater\n");
    assert_int_equal(rt_journal_statistics(journal).lost, 0);
    rt_journal_close(journal);
}

// ---- a process that is killed ----------------------------------------------------------------

typedef struct {
    rt_journal *journal;
    uint64_t who;
    int out;
} writer;

static void *write_lines(void *context)
{
    writer *w = context;
    for (uint64_t i = 1;; i++) {
        char line[64];
        outcome o = {.lock = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER};
        snprintf(line, sizeof line, "%" PRIu64 " %" PRIu64 "\n", w->who, i);
        const rt_journal_entry entry = {.origin = w->who, .origin_first = i, .origin_left = 1};
        if (append(w->journal, line, entry, &o))
            _exit(1);
        await(&o, 1);
        const uint64_t told[2] = {w->who, i};
        if (write(w->out, told, sizeof told) != sizeof told)
            _exit(1);
    }
    return NULL;
}

static void keeps_what_it_acknowledged_when_killed(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    uint64_t acknowledged[THREADS + 1] = {0};
    (void)test_path("journal"); // of this process
    for (int round = 0; round < 5; round++) {
        int out[2];
        assert_int_equal(pipe(out), 0);
        const pid_t child = fork();
        if (child == 0) {
            pthread_t threads[THREADS];
            writer writers[THREADS];
            rt_journal *journal = open_journal(BYTES_MAX);
            for (uint64_t i = 0; i < THREADS; i++) {
                writers[i] = (writer){journal, (uint64_t)round * THREADS + i + 1, out[1]};
                pthread_create(&threads[i], NULL, write_lines, &writers[i]);
            }
            pause();
        }
        close(out[1]);
        uint64_t told[2], best[THREADS] = {0};
        for (int more = 20 * (round + 1); read(out[0], told, sizeof told) == sizeof told; more--) {
            best[told[0] - 1 - (uint64_t)round * THREADS] = told[1];
            if (more == 0) { // and then it is killed in the midst of something
                usleep(300u * (unsigned)round);
                kill(child, SIGKILL);
            }
        }
        waitpid(child, NULL, 0);
        close(out[0]);
        rt_journal *journal = open_journal(BYTES_MAX);
        for (uint64_t i = 0; i < THREADS; i++) {
            const uint64_t there = rt_journal_origin(journal, (uint64_t)round * THREADS + i + 1);
            assert_in_range(there, best[i], best[i] + 1);
            acknowledged[0] += best[i];
            acknowledged[i + 1] += there;
        }
        rt_journal_close(journal);
    }
    rt_journal *journal = open_journal(BYTES_MAX);
    uint64_t first, count = 0;
    char *all = read_all(journal, &first);
    for (const char *at = all; *at; at++)
        count += *at == '\n';
    assert_int_equal(count, rt_journal_statistics(journal).next - 1);
    uint64_t sum = 0;
    for (int i = 1; i <= THREADS; i++)
        sum += acknowledged[i];
    assert_int_equal(count, sum); // each once
    assert_true(acknowledged[0] > 0);
    free(all);
    rt_journal_close(journal);
}

static void is_used_by_one(void **state)
{
    (void)state;
    rt_journal *journal = open_journal(BYTES_MAX);
    const pid_t child = fork();
    if (child == 0) {
        rt_journal *second;
        rt_error error = {0};
        const bool refused =
            rt_journal_open(test_path("journal"), BYTES_MAX, NULL, &second, &error) == RT_IO &&
            strstr(error.text, "in use by another process");
        _exit(refused ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(WEXITSTATUS(status), 0);
    rt_journal_close(journal);
}

static void counts_lines(void **state)
{
    (void)state;
    uint32_t count = 9;
    assert_true(rt_journal_count_lines("", 0, &count));
    assert_int_equal(count, 0);
    assert_true(rt_journal_count_lines("a\n\nb", 4, &count));
    assert_int_equal(count, 3);
    char *text = malloc(RT_LINE_MAX + 2);
    memset(text, 'a', RT_LINE_MAX + 2);
    assert_true(rt_journal_count_lines(text, RT_LINE_MAX, &count));
    assert_false(rt_journal_count_lines(text, RT_LINE_MAX + 1, &count));
    free(text);
}

static void must_be_hidden(const char *name)
{
    struct stat info;
    assert_int_equal(stat(test_path(name), &info), 0);
    if ((info.st_mode & 07777) != 0640)
        fail_msg("%s has mode %04o, want 0640", name, info.st_mode & 07777);
}

// Events are for nobody else, whoever starts the program and whatever wrote them before; and no link
// is written through.
static void is_for_its_owner(void **state)
{
    static const char segment[] = "journal/00000000000000000001.seg";
    rt_journal *journal;
    rt_error error = {0};
    struct stat info;
    (void)state;
    umask(0);
    rt_journal_close(open_journal(BYTES_MAX));
    must_be_hidden(segment);
    must_be_hidden("journal/lock");
    assert_int_equal(chmod(test_path(segment), 0644), 0);
    rt_journal_close(open_journal(BYTES_MAX));
    must_be_hidden(segment);

    assert_int_equal(unlink(test_path("journal/lock")), 0);
    assert_int_equal(symlink("../elsewhere", test_path("journal/lock")), 0);
    assert_int_equal(rt_journal_open(test_path("journal"), BYTES_MAX, NULL, &journal, &error),
                     RT_IO);
    assert_non_null(strstr(error.text, "a symbolic link"));
    assert_int_not_equal(lstat(test_path("elsewhere"), &info), 0);
    assert_int_equal(unlink(test_path("journal/lock")), 0);
    char there[600];
    snprintf(there, sizeof there, "%s", test_path("there.seg"));
    assert_int_equal(rename(test_path(segment), there), 0);
    assert_int_equal(symlink("../there.seg", test_path(segment)), 0);
    assert_int_equal(rt_journal_open(test_path("journal"), BYTES_MAX, NULL, &journal, &error),
                     RT_IO);
}

TEST_MAIN(TEST(keeps_lines_in_order), TEST(survives_torn_ends), TEST(passes_over_damage),
          TEST(is_bounded), TEST(knows_how_old_events_are), TEST(knows_origins),
          TEST(remembers_beyond_segments), TEST(has_room_for_any_position),
          TEST(tells_what_it_cannot_keep), TEST(keeps_what_it_acknowledged_when_killed),
          TEST(is_used_by_one), TEST(counts_lines), TEST(is_for_its_owner))
