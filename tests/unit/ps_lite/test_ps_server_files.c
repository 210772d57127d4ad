// What a coordinator orders of a shard's server beside training: checkpoints, lists of keys, rows
// that end, files that come and go. Over real sockets; files are read back from disk.
#define _GNU_SOURCE // memmem
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ps_lite/ps_model_file.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_file.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_memory.h"

#include "tests/support/process_case.h"
#include "tests/support/server_case.h"

#define ROWS_FILE "rows-000-of-001.bin"
#define FILE_MAX 4096u
#define MORE_THAN_AT_ONCE (600u * 2048u) // rows of 16 bytes, in blocks of 8 MB; 16 MB go at once

static void order(fixture *f, rt_message_type type, uint64_t iteration, const void *payload,
                  size_t size)
{
    send_bytes(f->coordinator, rt_peer(RT_ROLE_COORDINATOR, 0), rt_peer(RT_ROLE_PS, 0), type,
               iteration, 0, payload, size);
}

static void stop(fixture *f)
{
    order(f, RT_MESSAGE_STOP, 0, "enough", 6);
    end(f, RT_STOPPED, "enough");
}

static void begin(fixture *f)
{
    start(f);
    launch(f);
    join_run(f, HASH);
}

static void push(fixture *f, uint64_t key, uint32_t version)
{
    const row_record record = {{key, version, 0}, {(float)key, 2, 3, 4}};
    from_worker(f, RT_MESSAGE_PUSH_ROW, &record, sizeof record);
    rt_message message = expect(f->worker, RT_MESSAGE_PUSHED);
    rt_message_release(&message);
}

// The next message to the coordinator: of this type and iteration, from this shard, with a record
// of this size at its begin, and so many bytes behind it. Returns these; valid until the next call.
static const uint8_t *told(fixture *f, rt_message_type type, uint64_t iteration, void *record,
                           size_t size, size_t *more)
{
    static rt_message message;
    rt_message_release(&message);
    message = expect(f->coordinator, type);
    const rt_wire_header *header = rt_message_header(&message);
    assert_int_equal(header->iteration, iteration);
    assert_int_equal(header->sender, rt_peer(RT_ROLE_PS, 0));
    assert_true(header->payload_bytes >= size);
    if (size)
        memcpy(record, rt_message_payload(&message), size);
    *more = header->payload_bytes - size;
    return rt_message_payload(&message) + size;
}

static size_t read_whole(const char *path, uint8_t *bytes)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    const size_t size = fread(bytes, 1, FILE_MAX, file);
    fclose(file);
    return size;
}

// A file that has rows of these keys and versions, and values as push gave them.
static void must_have(const char *path, const rt_wire_written *written, uint32_t iteration,
                      uint32_t base, const rt_wire_key *want, uint32_t count)
{
    ps_model_info info;
    ps_model_reader *reader;
    uint64_t key;
    uint32_t version, found = 0;
    const float *row;
    assert_int_equal(ps_model_reader_open(path, NULL, NULL, &info, &reader, NULL), RT_OK);
    assert_true(info.iteration == iteration && info.base == base && info.row_count == count);
    assert_true(info.schema == 77 && info.shard == 0 && info.shard_count == 1 && info.dim == DIM);
    while (ps_model_reader_next(reader, &key, &version, &row, NULL) == RT_OK) {
        assert_true(found < count && key == want[found].key && version == want[found].version);
        assert_true(row[0] == (float)key && row[3] == 4);
        found++;
    }
    assert_int_equal(found, count);
    const rt_file_sum sum = ps_model_reader_sum(reader);
    assert_true(sum.bytes == written->bytes && sum.hash == written->hash);
    ps_model_reader_close(reader);
}

enum { A_PUSH = 2048 };

static void push_many(fixture *f, uint32_t count)
{
    row_record *records = rt_alloc(A_PUSH, sizeof *records);
    for (uint32_t first = 0; first < count; first += A_PUSH) {
        for (uint32_t i = 0; i < A_PUSH; i++)
            records[i] = (row_record){{first + i, 2, 0}, {(float)(first + i), 2, 3, 4}};
        send_bytes(f->worker, rt_peer(RT_ROLE_WORKER, 0), rt_peer(RT_ROLE_PS, 0),
                   RT_MESSAGE_PUSH_ROW, 3, A_PUSH, records, A_PUSH * sizeof *records);
        rt_message message = expect(f->worker, RT_MESSAGE_PUSHED);
        rt_message_release(&message);
    }
    rt_free(records);
}

// ---- checkpoints -----------------------------------------------------------------------------

static rt_wire_cut cut_of(uint32_t iteration, uint32_t base, uint32_t keep_from, char path[1200])
{
    rt_wire_cut cut = {.base = base, .keep_from = keep_from};
    assert_int_equal(
        rt_checkpoint_path(test_path("cuts"), iteration, cut.folder, sizeof cut.folder, NULL),
        RT_OK);
    snprintf(path, 1200, "%s/" ROWS_FILE, cut.folder);
    return cut;
}

static void begin_cut(fixture *f, uint32_t iteration, const rt_wire_cut *cut)
{
    size_t more;
    order(f, RT_MESSAGE_CUT, iteration, cut, sizeof *cut);
    (void)told(f, RT_MESSAGE_CUT, iteration, NULL, 0, &more);
    assert_int_equal(more, 0);
}

static rt_wire_written end_cut(fixture *f, uint32_t iteration, const char *text)
{
    rt_wire_written written;
    size_t more;
    const uint8_t *said = told(f, RT_MESSAGE_WRITTEN, iteration, &written, sizeof written, &more);
    assert_int_equal(written.status == RT_OK, *text == '\0');
    if (!*text)
        assert_int_equal(more, 0);
    else if (!memmem(said, more, text, strlen(text)))
        fail_msg("\"%.*s\" lacks \"%s\"", (int)more, (const char *)said, text);
    return written;
}

// The file that was written last, in one piece; and what a coordinator says when it has it.
static void take_copy(fixture *f, uint32_t iteration, const char *path)
{
    static uint8_t bytes[FILE_MAX];
    rt_wire_piece piece;
    size_t more;
    const size_t size = read_whole(path, bytes);
    order(f, RT_MESSAGE_SAVE, iteration, NULL, 0);
    const uint8_t *sent = told(f, RT_MESSAGE_PIECE, iteration, &piece, sizeof piece, &more);
    assert_true(piece.file == 0 && piece.status == RT_OK && piece.offset == 0);
    assert_true(piece.total == size && more == size);
    assert_memory_equal(sent, bytes, size);
    const rt_wire_taken taken = {.offset = size, .is_complete = 1};
    order(f, RT_MESSAGE_TAKEN, iteration, &taken, sizeof taken);
}

// What was pushed when the CUT was answered is written, nothing of later; then what has changed
// since. Old files go when a checkpoint is written that does without them.
static void cuts(bool on_disk)
{
    fixture f;
    char first[1200], second[1200], third[1200];
    const rt_wire_key all[] = {{5, 2, 0}, {6, 3, 0}, {7, 4, 0}}, changed[] = {{6, 11, 0}};
    start(&f);
    f.config.ps_storage = on_disk ? RT_STORAGE_DISK : RT_STORAGE_MEMORY;
    f.config.ps_disk_bytes_max = UINT64_C(64) << 20;
    snprintf(f.config.ps_folder, sizeof f.config.ps_folder, "%s", test_path("cuts"));
    *strrchr(f.config.ps_folder, '/') = '\0';
    launch(&f);
    join_run(&f, HASH);
    for (uint32_t i = 0; i < 3; i++)
        push(&f, all[i].key, all[i].version);
    rt_wire_cut cut = cut_of(10, 0, 0, first);
    begin_cut(&f, 10, &cut);
    push(&f, 6, 11);
    rt_wire_written written = end_cut(&f, 10, "");
    assert_true(written.ns > 0 && written.file == 0);
    must_have(first, &written, 10, 0, all, 3);
    take_copy(&f, 10, first);
    cut = cut_of(20, 10, 10, second);
    begin_cut(&f, 20, &cut);
    written = end_cut(&f, 20, "");
    must_have(second, &written, 20, 10, changed, 1);
    take_copy(&f, 20, second);
    take_copy(&f, 20, second); // once more
    assert_int_equal(access(first, F_OK), 0);
    cut = cut_of(30, 30, 30, third); // on itself: nothing can have changed
    begin_cut(&f, 30, &cut);
    written = end_cut(&f, 30, "");
    must_have(third, &written, 30, 30, NULL, 0);
    assert_int_not_equal(access(first, F_OK), 0);
    assert_int_not_equal(access(second, F_OK), 0);
    const rt_wire_taken late = {.offset = 1}; // of a copy that is complete: nobody looks
    order(&f, RT_MESSAGE_TAKEN, 20, &late, sizeof late);
    take_copy(&f, 30, third);
    stop(&f);
}

static void a_cut_is_written_and_sent(void **state)
{
    (void)state;
    cuts(false);
}

static void a_cut_of_rows_on_disk(void **state)
{
    (void)state;
    cuts(true);
}

// A checkpoint that cannot be written costs that one.
static void a_folder_that_cannot_be_made(void **state)
{
    (void)state;
    fixture f;
    char path[1200];
    const rt_wire_key all[] = {{5, 2, 0}};
    rt_wire_cut bad = {.folder = "/proc/nowhere/ckpt-000000000010"};
    begin(&f);
    push(&f, 5, 2);
    begin_cut(&f, 10, &bad);
    rt_wire_written written = end_cut(&f, 10, "/proc/nowhere");
    assert_true(written.bytes == 0 && written.hash == 0);
    const rt_wire_cut good = cut_of(20, 0, 0, path);
    begin_cut(&f, 20, &good);
    written = end_cut(&f, 20, "");
    must_have(path, &written, 20, 0, all, 1);
    stop(&f);
}

static void ends(rt_message_type type, uint64_t iteration, const void *payload, size_t size,
                 const char *text)
{
    fixture f;
    begin(&f);
    order(&f, type, iteration, payload, size);
    expect_failed(&f, RT_WIRE, text);
}

static void impossible_cuts(void **state)
{
    (void)state;
    char path[1200];
    rt_wire_cut cut = cut_of(10, 0, 0, path);
    ends(RT_MESSAGE_CUT, 10, &cut, sizeof cut - 1, "a CUT of 1031 bytes, expected 1032");
    ends(RT_MESSAGE_CUT, UINT64_C(1) << 32, &cut, sizeof cut, "a CUT with impossible values");
    cut.base = 11;
    ends(RT_MESSAGE_CUT, 10, &cut, sizeof cut, "a CUT with impossible values");
    cut.base = 0;
    memset(cut.folder, 'x', sizeof cut.folder);
    ends(RT_MESSAGE_CUT, 10, &cut, sizeof cut, "a CUT with impossible values");
    ends(RT_MESSAGE_SAVE, 10, NULL, 0, "SAVE of iteration 10, the last checkpoint was that of 0");
    ends(RT_MESSAGE_REPORT, 0, NULL, 0, "a PS shard takes no REPORT");
}

// The last iteration that a row's version can have; and one cut at a time: a pipe stands where the
// file is to be, so that writing it takes forever.
static void one_cut_at_a_time(void **state)
{
    (void)state;
    fixture f;
    char path[1200], beside[1300];
    begin(&f);
    push(&f, 5, 2);
    const rt_wire_cut cut = cut_of(UINT32_MAX, 0, 0, path);
    snprintf(beside, sizeof beside, "%s.tmp", path);
    assert_int_equal(rt_checkpoint_make(cut.folder, NULL), RT_OK);
    assert_int_equal(mkfifo(beside, 0600), 0);
    begin_cut(&f, UINT32_MAX, &cut);
    push(&f, 5, 3); // the shard goes on
    order(&f, RT_MESSAGE_CUT, UINT32_MAX, &cut, sizeof cut);
    expect_failed(&f, RT_WIRE, "a CUT while another one is being written");
}

// More than a store gives back at once after a checkpoint: a part at a time, beside the messages.
static void a_cut_of_a_large_store(void **state)
{
    (void)state;
    fixture f;
    char first[1200], second[1200];
    const rt_wire_key changed[] = {{6, 11, 0}};
    start(&f);
    f.config.ps_storage = RT_STORAGE_DISK;
    f.config.ps_disk_bytes_max = UINT64_C(256) << 20;
    f.config.ps_memory_bytes_max = UINT64_C(256) << 20;
    snprintf(f.config.ps_folder, sizeof f.config.ps_folder, "%s", test_path("cuts"));
    *strrchr(f.config.ps_folder, '/') = '\0';
    launch(&f);
    join_run(&f, HASH);
    push_many(&f, MORE_THAN_AT_ONCE);
    rt_wire_cut cut = cut_of(10, 0, 0, first);
    begin_cut(&f, 10, &cut);
    (void)end_cut(&f, 10, "");
    for (uint32_t version = 3; version < 12; version++)
        push(&f, 6, version);
    cut = cut_of(20, 10, 10, second); // all is given back before the next one begins
    begin_cut(&f, 20, &cut);
    const rt_wire_written written = end_cut(&f, 20, "");
    must_have(second, &written, 20, 10, changed, 1);
    stop(&f);
}

// Rows of a quarter of a page, the key and the version of which are their first two values.
#define WIDE 252u
#define WIDE_ROWS 64u  // of a push
#define WIDE_PAGES 16u // that they are in

typedef struct {
    rt_wire_row head;
    float floats[WIDE];
} wide_record;

static void send_wide(fixture *f, uint32_t number, uint32_t version)
{
    static wide_record records[WIDE_ROWS];
    for (uint32_t i = 0; i < WIDE_ROWS; i++) {
        const uint32_t key = number * WIDE_ROWS + i;
        records[i] =
            (wide_record){.head = {key, version, 0}, .floats = {(float)key, (float)version}};
    }
    send_bytes(f->worker, rt_peer(RT_ROLE_WORKER, 0), rt_peer(RT_ROLE_PS, 0), RT_MESSAGE_PUSH_ROW,
               3, WIDE_ROWS, records, sizeof records);
}

// The next message, while the coordinator says that it lives: the disk may take long.
static void await(fixture *f, rt_endpoint *from, rt_message_type type)
{
    const uint64_t end = rt_now_ns() + PATIENCE_MS * UINT64_C(1000000);
    for (uint64_t next = 0;;) {
        rt_message message = {0};
        uint32_t peer;
        bool ready, lives;
        if (rt_now_ns() >= next) {
            next = rt_now_ns() + UINT64_C(200000000);
            order(f, RT_MESSAGE_HEARTBEAT, 0, NULL, 0);
        }
        (void)ops->wait(&from, 1, NO_WAKE, 100, &ready);
        assert_true(rt_now_ns() < end);
        if (ops->receive(from, &peer, &message, NULL) != RT_OK)
            continue;
        lives = is_sign_of_life(&message);
        if (!lives)
            assert_string_equal(rt_message_type_name(rt_message_header(&message)->type),
                                rt_message_type_name(type));
        rt_message_release(&message);
        if (!lives)
            return;
    }
}

static void push_wide(fixture *f, uint32_t number, uint32_t version)
{
    send_wide(f, number, version);
    await(f, f->worker, RT_MESSAGE_PUSHED);
}

// Whether a push is confirmed before the shard has said several times that it lives.
static bool is_confirmed(fixture *f)
{
    const uint64_t end = rt_now_ns() + PATIENCE_MS * UINT64_C(1000000);
    for (uint32_t beats = 0; beats < 3 && rt_now_ns() < end;) {
        rt_endpoint *const both[] = {f->worker, f->coordinator};
        rt_message message = {0};
        uint32_t peer;
        bool ready[2];
        (void)ops->wait(both, 2, NO_WAKE, 100, ready);
        if (ops->receive(f->worker, &peer, &message, NULL) == RT_OK) {
            assert_int_equal(rt_message_header(&message)->type, RT_MESSAGE_PUSHED);
            rt_message_release(&message);
            return true;
        }
        if (ops->receive(f->coordinator, &peer, &message, NULL) == RT_OK) {
            assert_true(is_sign_of_life(&message));
            if (rt_message_header(&message)->type == RT_MESSAGE_HEARTBEAT) {
                order(f, RT_MESSAGE_HEARTBEAT, 0, NULL, 0); // so does the coordinator
                beats++;
            }
            rt_message_release(&message);
        }
    }
    assert_true(rt_now_ns() < end); // it lives
    return false;
}

static _Atomic pid_t *stopped; // shared with copies of the process: one that is to stop, or did

static void stop_copy(void)
{
    if (stopped && *stopped < 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); // also of a case that fails
        *stopped = getpid();
        raise(SIGSTOP);
    }
}

static void must_have_wide(const char *path, uint32_t pushes, float version)
{
    ps_model_info info;
    ps_model_reader *reader;
    uint64_t key, found = 0;
    uint32_t ignored;
    const float *row;
    assert_int_equal(ps_model_reader_open(path, NULL, NULL, &info, &reader, NULL), RT_OK);
    while (ps_model_reader_next(reader, &key, &ignored, &row, NULL) == RT_OK) {
        assert_true(key == found && row[0] == (float)key && row[1] == version);
        found++;
    }
    assert_int_equal(found, pushes * WIDE_ROWS);
    ps_model_reader_close(reader);
}

// Rows that change, all of them, while a copy that has stopped is to write them. Returns how many
// pushes were taken until it went on.
static uint32_t change_while_written(uint32_t pushes, uint64_t memory_bytes_max)
{
    fixture f;
    char first[1200], second[1200];
    start(&f);
    f.config.ps_storage = RT_STORAGE_DISK;
    f.config.ps_disk_bytes_max = UINT64_C(256) << 20;
    f.config.model.embedding_dim = WIDE;
    f.config.ps_memory_bytes_max = memory_bytes_max;
    f.config.timeout_peer_s = 2;
    snprintf(f.config.ps_folder, sizeof f.config.ps_folder, "%s", test_path("cuts"));
    *strrchr(f.config.ps_folder, '/') = '\0';
    stopped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(stopped != MAP_FAILED);
    assert_int_equal(pthread_atfork(NULL, NULL, stop_copy), 0);
    launch(&f);
    join_run(&f, HASH);
    for (uint32_t i = 0; i < pushes; i++)
        push_wide(&f, i, 2);
    *stopped = -1;
    rt_wire_cut cut = cut_of(10, 0, 0, first);
    begin_cut(&f, 10, &cut);
    uint32_t taken = 0;
    do
        send_wide(&f, taken, 11);
    while (is_confirmed(&f) && ++taken < pushes);
    const uint32_t before = taken;
    assert_int_equal(kill(*stopped, SIGCONT), 0);
    await(&f, f.coordinator, RT_MESSAGE_WRITTEN);
    await(&f, f.worker, RT_MESSAGE_PUSHED); // the one that waited
    while (++taken < pushes)
        push_wide(&f, taken, 11);
    must_have_wide(first, pushes, 2);
    cut = cut_of(20, 0, 20, second);
    begin_cut(&f, 20, &cut);
    await(&f, f.coordinator, RT_MESSAGE_WRITTEN);
    must_have_wide(second, pushes, 11);
    stop(&f);
    return before;
}

// The pages of rows that change while they are written have a bound: the shard goes on living, and
// takes no more until they are written.
static void rows_that_change_while_they_are_written(void **state)
{
    (void)state;
    const uint32_t bound = 1024 / WIDE_PAGES; // a quarter of 16 MiB, in pages
    const uint32_t taken = change_while_written(3 * bound, UINT64_C(16) << 20);
    if (taken == 0 || taken > bound * 3 / 2)
        fail_msg("%u pushes of %u pages were taken, expected about %u", taken, WIDE_PAGES, bound);
}

// Where the kernel ends whoever takes more than the control group has.
static void a_table_larger_than_its_control_group(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    test_skip("a sanitizer takes memory of its own");
#endif
    process_limit_memory(rt_memory_resident() + (UINT64_C(24) << 20));
    (void)change_while_written(768, UINT64_C(1) << 30); // 48 MiB
    process_leave_limit();
}

// ---- the model -------------------------------------------------------------------------------

// More rows than may be under way as pieces of a model.
#define MANY 81920u

static void say_taken(fixture *f, uint64_t offset, bool is_complete, rt_status status)
{
    struct {
        rt_wire_taken head;
        char text[8];
    } answer = {{.offset = offset, .is_complete = is_complete, .status = status}, "no room"};
    order(f, RT_MESSAGE_TAKEN, 0, &answer, sizeof answer.head + (status ? 7 : 0));
}

// A few pieces are under way, until they are taken: the shard goes on with what else there is
// meanwhile, and the file is whole.
static void a_large_model_goes_as_it_is_taken(void **state)
{
    (void)state;
    fixture f;
    size_t more;
    uint64_t got = 0, total = 1;
    FILE *file = fopen(test_path(ROWS_FILE), "w");
    assert_non_null(file);
    begin(&f);
    push_many(&f, MANY);
    order(&f, RT_MESSAGE_SAVE, 0, NULL, 0);
    for (uint32_t pieces = 0; got < total; pieces++) {
        rt_wire_piece piece;
        const uint8_t *bytes = told(&f, RT_MESSAGE_PIECE, 0, &piece, sizeof piece, &more);
        assert_true(piece.offset == got && piece.status == RT_OK && piece.file == 0);
        assert_int_equal(fwrite(bytes, 1, more, file), more);
        got += more;
        total = piece.total;
        if (pieces < RT_WIRE_PIECES_MAX - 1)
            continue;
        if (pieces == RT_WIRE_PIECES_MAX - 1) { // nothing comes: it answers others
            const rt_wire_probe probe = {.kind = RT_PROBE_BEGIN};
            from_worker(&f, RT_MESSAGE_PROBE, &probe, sizeof probe);
            rt_message message = expect(f.worker, RT_MESSAGE_PROBED);
            rt_message_release(&message);
        }
        say_taken(&f, got, got == total, RT_OK);
    }
    assert_true(total > 2 * RT_WIRE_PIECES_MAX * RT_WIRE_PIECE_BYTES_MAX);
    fclose(file);
    ps_model_info info;
    ps_model_reader *reader;
    uint64_t key, count = 0;
    uint32_t version;
    const float *row;
    assert_int_equal(ps_model_reader_open(test_path(ROWS_FILE), NULL, NULL, &info, &reader, NULL),
                     RT_OK);
    while (ps_model_reader_next(reader, &key, &version, &row, NULL) == RT_OK)
        assert_true(key == count++ && row[0] == (float)key);
    assert_int_equal(count, MANY);
    ps_model_reader_close(reader);
    stop(&f);
}

// A coordinator without room for it: the shard ends with what it was told.
static void a_model_that_nobody_has_room_for(void **state)
{
    (void)state;
    fixture f;
    rt_wire_piece piece;
    size_t more;
    begin(&f);
    push_many(&f, MANY);
    order(&f, RT_MESSAGE_SAVE, 0, NULL, 0);
    for (uint32_t i = 0; i < RT_WIRE_PIECES_MAX; i++)
        (void)told(&f, RT_MESSAGE_PIECE, 0, &piece, sizeof piece, &more);
    say_taken(&f, RT_WIRE_PIECE_BYTES_MAX, false, RT_IO);
    expect_failed(&f, RT_IO, "no room");
}

// ---- keys, and rows that end -----------------------------------------------------------------

static uint64_t keys_from(fixture *f, uint64_t from, rt_wire_key keys[8])
{
    size_t more;
    order(f, RT_MESSAGE_KEYS, from, NULL, 0);
    const uint8_t *bytes = told(f, RT_MESSAGE_KEYS, from, NULL, 0, &more);
    assert_true(more % sizeof *keys == 0 && more <= 8 * sizeof *keys);
    memcpy(keys, bytes, more);
    return more / sizeof *keys;
}

static void keys_are_told(void **state)
{
    (void)state;
    fixture f;
    rt_wire_key keys[8];
    begin(&f);
    assert_int_equal(keys_from(&f, 0, keys), 0);
    push(&f, 70, 4);
    push(&f, 50, 2);
    push(&f, 60, 3);
    assert_int_equal(keys_from(&f, 0, keys), 3);
    assert_true(keys[0].key == 70 && keys[0].version == 4 && keys[2].key == 60);
    assert_int_equal(keys_from(&f, 2, keys), 1);
    assert_true(keys[0].key == 60 && keys[0].version == 3);
    assert_int_equal(keys_from(&f, 3, keys), 0);
    stop(&f);
}

static void rows_end(void **state)
{
    (void)state;
    fixture f;
    rt_wire_key keys[8];
    size_t more;
    struct {
        rt_wire_expire head;
        uint64_t keys[3];
    } ask = {.head = {.floor = 3}, .keys = {9, 1000, 7}};
    rt_wire_expire got;
    begin(&f);
    for (uint32_t key = 1; key <= 9; key++)
        push(&f, key, key);
    order(&f, RT_MESSAGE_EXPIRE, 12, &ask, sizeof ask);
    (void)told(&f, RT_MESSAGE_EXPIRE, 12, &got, sizeof got, &more);
    assert_int_equal(more, 0);
    assert_true(got.floor == 3 && got.rows == 2 + 2);
    assert_int_equal(keys_from(&f, 0, keys), 5);
    order(&f, RT_MESSAGE_EXPIRE, 13, &ask, sizeof ask.head); // no keys; nobody is below
    (void)told(&f, RT_MESSAGE_EXPIRE, 13, &got, sizeof got, &more);
    assert_int_equal(got.rows, 0);
    stop(&f);
    ends(RT_MESSAGE_EXPIRE, 12, &ask, sizeof ask - 1,
         "an EXPIRE of 39 bytes, expected 16 and keys");
    ends(RT_MESSAGE_EXPIRE, 12, &ask, 12, "an EXPIRE of 12 bytes, expected 16 and keys");
}

// ---- files that come -------------------------------------------------------------------------

static rt_wire_load write_file(uint64_t key)
{
    const ps_model_info info = {.schema = 77, .row_count = 1, .shard_count = 1, .dim = DIM};
    const float row[DIM] = {1, 2, 3, 4};
    ps_model_writer *writer;
    rt_file_sum sum;
    rt_wire_load load = {.shard_count = 1, .flags = RT_WIRE_LOAD_FIRST};
    rt_file_place place = {.path = test_path(ROWS_FILE)};
    const rt_sink sink = rt_file_sink(&place);
    snprintf(load.folder, sizeof load.folder, "%s", test_path(ROWS_FILE));
    *strrchr(load.folder, '/') = '\0';
    assert_int_equal(ps_model_writer_open(&sink, &info, &writer, NULL), RT_OK);
    assert_int_equal(ps_model_writer_add(writer, key, 2, row, NULL), RT_OK);
    assert_int_equal(ps_model_writer_commit(writer, &sum, NULL), RT_OK);
    load.files[0].bytes = sum.bytes;
    load.files[0].hash = sum.hash;
    return load;
}

static void loads(fixture *f, uint64_t iteration, const rt_wire_load *load, rt_status status,
                  uint32_t file, const char *text)
{
    rt_wire_written loaded;
    size_t more;
    order(f, RT_MESSAGE_LOAD, iteration, load, sizeof *load);
    const uint8_t *said = told(f, RT_MESSAGE_LOADED, iteration, &loaded, sizeof loaded, &more);
    assert_string_equal(rt_status_text(loaded.status), rt_status_text(status));
    assert_int_equal(loaded.file, file);
    if (!memmem(said, more, text, strlen(text)))
        fail_msg("\"%.*s\" lacks \"%s\"", (int)more, (const char *)said, text);
}

// Each way in which files are not what a manifest says: which of them is to blame is told, and the
// next order finds the shard as if nothing had been.
static void files_that_do_not_fit(void **state)
{
    (void)state;
    fixture f;
    char path[1200];
    rt_wire_key keys[8];
    const rt_wire_load good = write_file(5);
    rt_wire_load bad = good;
    begin(&f);
    loads(&f, 4, &good, RT_OK, 0, "");
    loads(&f, 4, &good, RT_OK, 0, ""); // the first one of a checkpoint: what was there is dropped
    bad.flags = 0;
    loads(&f, 4, &bad, RT_DATA, 0, "a second row of key 0000000000000005");
    bad = good;
    bad.files[0].bytes++;
    loads(&f, 5, &bad, RT_DATA, 0, "is not the file that the manifest names");
    bad = good;
    bad.files[0].hash++;
    loads(&f, 5, &bad, RT_DATA, 0, "is not the file that the manifest names");
    bad = good;
    bad.shard_count = 2; // of two shards: both files may have rows of this one, and none is there
    loads(&f, 5, &bad, RT_IO, 0, "rows-000-of-002.bin");
    snprintf(path, sizeof path, "%s", test_path(ROWS_FILE));
    assert_int_equal(rename(path, test_path("rows-000-of-002.bin")), 0);
    loads(&f, 5, &bad, RT_IO, 1, "rows-001-of-002.bin");
    bad.shard_count = 0; // no rows
    loads(&f, 5, &bad, RT_OK, 0, "");
    assert_int_equal(keys_from(&f, 0, keys), 0);
    stop(&f);
}

static void impossible_loads(void **state)
{
    (void)state;
    rt_wire_load load = write_file(5);
    ends(RT_MESSAGE_LOAD, 4, &load, sizeof load - 1, "a LOAD of 1287 bytes, expected 1288");
    load.shard_count = RT_SHARDS_MAX + 1;
    ends(RT_MESSAGE_LOAD, 4, &load, sizeof load, "a LOAD with impossible values");
    load.shard_count = 1;
    memset(load.folder, 'x', sizeof load.folder);
    ends(RT_MESSAGE_LOAD, 4, &load, sizeof load, "a LOAD with impossible values");
}

typedef struct {
    rt_wire_piece head;
    uint8_t bytes[FILE_MAX];
    size_t size;
} piece_record;

static piece_record piece_of(const char *path, uint32_t file)
{
    piece_record one = {.head = {.file = file}};
    one.size = read_whole(path, one.bytes);
    one.head.total = one.size;
    one.head.checksum = one.head.sum = rt_hash_bytes(one.bytes, one.size);
    return one;
}

static void give_piece(fixture *f, uint64_t iteration, const piece_record *one)
{
    order(f, RT_MESSAGE_PIECE, iteration, one, sizeof one->head + one->size);
}

// A box has lost its file of a checkpoint: it says so, gets it back, and loads it.
static void a_lost_file_comes_back(void **state)
{
    (void)state;
    fixture f;
    rt_wire_key keys[8];
    rt_wire_taken taken;
    size_t more;
    const rt_wire_load load = write_file(5);
    const piece_record one = piece_of(test_path(ROWS_FILE), 0);
    assert_int_equal(unlink(test_path(ROWS_FILE)), 0);
    begin(&f);
    loads(&f, 4, &load, RT_IO, 0, ROWS_FILE);
    give_piece(&f, 4, &one);
    do {
        const uint8_t *said = told(&f, RT_MESSAGE_TAKEN, 4, &taken, sizeof taken, &more);
        if (taken.status || more)
            fail_msg("%.*s", (int)more, (const char *)said);
        assert_int_equal(taken.file, 0);
    } while (!taken.is_complete);
    assert_int_equal(taken.offset, one.size);
    loads(&f, 4, &load, RT_OK, 0, "");
    assert_int_equal(keys_from(&f, 0, keys), 1);
    assert_true(keys[0].key == 5 && keys[0].version == 2);
    stop(&f);
}

static void pieces_that_nobody_waits_for(void **state)
{
    (void)state;
    const rt_wire_load load = write_file(5);
    for (uint32_t i = 0; i < 4; i++) {
        fixture f;
        piece_record one = piece_of(test_path(ROWS_FILE), i == 0);
        begin(&f);
        loads(&f, 4, &load, RT_OK, 0, "");
        one.head.offset = i == 1; // not the first one
        one.size = i == 2 ? 0 : one.size;
        if (i == 2) // not even a head
            order(&f, RT_MESSAGE_PIECE, 4, &one, sizeof one.head - 1);
        else
            give_piece(&f, i == 3 ? 5 : 4, &one);
        expect_failed(&f, RT_WIRE, "a PIECE of a file that no LOAD named");
    }
}

TEST_MAIN(TEST(a_cut_is_written_and_sent), TEST(a_cut_of_rows_on_disk),
          TEST(a_cut_of_a_large_store), TEST(rows_that_change_while_they_are_written),
          TEST(a_table_larger_than_its_control_group), TEST(a_folder_that_cannot_be_made),
          TEST(impossible_cuts), TEST(one_cut_at_a_time), TEST(a_large_model_goes_as_it_is_taken),
          TEST(a_model_that_nobody_has_room_for), TEST(keys_are_told), TEST(rows_end),
          TEST(files_that_do_not_fit), TEST(impossible_loads), TEST(a_lost_file_comes_back),
          TEST(pieces_that_nobody_waits_for))
