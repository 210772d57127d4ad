// What a run that begins with rows asks of its members: files in their order, copies of those that
// a shard lacks, the dense weights; and what they must not answer.
#include "tests/unit/dispatch/test_coordinator_support.h"

#include <stdatomic.h>

#include "dispatch/coordinator/dp_resume.h"

#define FILES 3u            // that build on each other
#define COPY_BYTES 1500007u // more than may be under way
#define SECOND_SHARD MEMBERS

// The model and how it is taken; `loaded` runs beside the case, which plays all members.
typedef struct {
    fixture f;
    dp_roster *roster;
    dp_resume_config how;
    dp_saved model;
    pthread_t loads;
    atomic_uint others; // messages that are not about resuming: what they are, added up
} loading;

static const uint32_t shards[] = {0, SECOND_SHARD};

static rt_status take_other(void *context, uint32_t peer, const rt_message *message,
                            rt_error *error)
{
    (void)error;
    const uint32_t from_shard = rt_peer_role(peer) == RT_ROLE_PS;
    const uint32_t is_mark = rt_message_header(message)->type == RT_MESSAGE_MARK;
    atomic_fetch_add(&((loading *)context)->others, 1 + 10 * is_mark + 100 * from_shard);
    return RT_OK;
}

static void *load_all(void *context)
{
    loading *l = context;
    l->f.status = dp_resume_begin_with(&l->how, &l->model, &l->f.error);
    return NULL;
}

static uint8_t byte_of(uint64_t at)
{
    return (uint8_t)(at * 31 + (at >> 9));
}

static void fill(rt_bytes *bytes, size_t size)
{
    uint8_t *to = rt_bytes_extend(bytes, size);
    assert_non_null(to);
    for (size_t i = 0; i < size; i++)
        to[i] = byte_of(i);
}

static const char *file_name(const rt_wire_load *load, uint32_t shard)
{
    static char path[RT_FOLDER_MAX + 64];
    snprintf(path, sizeof path, "%s/rows-%03" PRIu32 "-of-%03" PRIu32 ".bin", load->folder, shard,
             load->shard_count);
    return path;
}

static void make_model(loading *l, size_t dense)
{
    dp_saved *m = &l->model;
    *m = (dp_saved){.iteration = 70, .samples = 12, .count = FILES};
    m->past = rt_alloc(FILES, sizeof *m->past);
    m->loads = rt_alloc(FILES, sizeof *m->loads);
    for (uint32_t i = 0; i < FILES; i++) {
        m->past[i].iteration = 50 + 10 * i;
        m->loads[i].shard_count = 2;
        m->loads[i].flags = i == 2 ? RT_WIRE_LOAD_HOMES : 0;
        snprintf(m->loads[i].folder, sizeof m->loads[i].folder, "%s/%u", l->f.out, i);
        assert_int_equal(mkdir(m->loads[i].folder, 0700), 0);
        m->loads[i].files[0].bytes = m->loads[i].files[1].bytes = COPY_BYTES;
    }
    fill(&m->dense, dense);
}

static void gather(loading *l, size_t dense)
{
    rt_error error = {0};
    fixture *f = &l->f;
    prepare(f);
    atomic_init(&l->others, 0);
    f->config.ps_shard_count = 2;
    assert_int_equal(ops->open(&f->transport, &error), RT_OK);
    const dp_roster_config roster = {
        .ops = ops, .transport = f->transport, .config = &f->config, .identity = f->own.identity};
    if (dp_roster_create(&roster, &l->roster, &error))
        fail_msg("%s", error.text);
    note_address(f, dp_roster_address(l->roster));
    for (uint32_t m = 0; m < MEMBERS_MAX; m++)
        join_run(f, m);
    if (dp_roster_assemble(l->roster, -1, &error))
        fail_msg("%s", error.text);
    make_model(l, dense);
    f->own.stop_fd = eventfd(0, EFD_CLOEXEC);
    l->how = (dp_resume_config){.config = &f->config,
                                .sender = COORDINATOR,
                                .roster = l->roster,
                                .stop_fd = f->own.stop_fd,
                                .wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                                .other = take_other,
                                .context = l};
}

static void begin(loading *l, size_t dense)
{
    gather(l, dense);
    assert_int_equal(pthread_create(&l->loads, NULL, load_all, l), 0);
}

static void end(loading *l, rt_status want, const char *text)
{
    fixture *f = &l->f;
    pthread_join(l->loads, NULL);
    dp_roster_stop(l->roster, f->status, f->error.text);
    for (uint32_t m = 0; m < MEMBERS_MAX && !want; m++) { // nothing else is left to be heard
        rt_message message = expect(f, m, RT_MESSAGE_STOP);
        rt_message_release(&message);
    }
    for (uint32_t m = 0; m < MEMBERS_MAX; m++)
        ops->end(f->members[m], 0);
    dp_roster_destroy(l->roster);
    ops->close(f->transport);
    close(f->own.stop_fd);
    close(l->how.wake_fd);
    dp_saved_fini(&l->model);
    rt_config_fini(&f->config);
    remove_out(f);
    if (f->status != want || strcmp(f->error.text, text) != 0)
        fail_msg("status %d (%s), expected %d (%s)", f->status, f->error.text, want, text);
}

// The next LOAD of a shard is that of file i.
static void expect_load(loading *l, uint32_t member, uint32_t i)
{
    rt_wire_load got, want = l->model.loads[i];
    rt_message message = expect(&l->f, member, RT_MESSAGE_LOAD);
    assert_int_equal(rt_message_header(&message)->iteration, 50 + 10 * i);
    assert_true(rt_control_has(&message, sizeof got));
    memcpy(&got, rt_message_payload(&message), sizeof got);
    rt_message_release(&message);
    want.flags |= i == 0 ? RT_WIRE_LOAD_FIRST : 0;
    assert_memory_equal(&got, &want, sizeof got);
}

static void answer(loading *l, uint32_t member, rt_status status, uint32_t file, const char *why)
{
    const rt_wire_written loaded = {.status = (uint32_t)status, .file = file};
    say(&l->f, member, RT_MESSAGE_LOADED, 0, &loaded, sizeof loaded, why, strlen(why));
}

static void load_file(loading *l, uint32_t member, uint32_t i)
{
    expect_load(l, member, i);
    answer(l, member, RT_OK, 0, "");
}

static void load_files(loading *l, uint32_t member, uint32_t first)
{
    for (uint32_t i = first; i < FILES; i++)
        load_file(l, member, i);
}

// All workers get the dense weights, in parts.
static void expect_dense(loading *l)
{
    const size_t size = l->model.dense.size;
    for (uint32_t w = 0; w < WORKERS; w++) {
        for (size_t at = 0; at < size; at += RT_WIRE_PART_BYTES_MAX) {
            rt_wire_part part;
            rt_message message = expect(&l->f, 1 + w, RT_MESSAGE_PART);
            rt_reader reader = rt_message_reader(&message);
            assert_int_equal(rt_message_header(&message)->iteration, 70);
            assert_true(rt_reader_get(&reader, &part, 1, sizeof part));
            assert_int_equal(part.offset, at);
            assert_int_equal(part.total, size);
            assert_int_equal(reader.left, rt_min_u64(size - at, RT_WIRE_PART_BYTES_MAX));
            assert_memory_equal(reader.next, l->model.dense.data + at, reader.left);
            rt_message_release(&message);
        }
    }
}

static void files_in_their_order(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, RT_WIRE_PART_BYTES_MAX, RT_WIRE_PART_BYTES_MAX + 1,
                                   RT_WIRE_PART_BYTES_MAX * 5 / 2};
    for (size_t i = 0; i < RT_COUNT_OF(sizes); i++) {
        loading l;
        begin(&l, sizes[i]);
        load_files(&l, SECOND_SHARD, 0); // each at its pace
        load_files(&l, 0, 0);
        expect_dense(&l);
        end(&l, RT_OK, "");
        assert_int_equal(l.others, 0);
    }
}

// ---- copies ------------------------------------------------------------------------------------

static void put_copy(const loading *l, uint32_t i, uint32_t file, size_t size)
{
    rt_bytes bytes = {0};
    fill(&bytes, size);
    FILE *to = fopen(file_name(&l->model.loads[i], file), "wb");
    assert_non_null(to);
    assert_int_equal(fwrite(bytes.data, 1, size, to), size);
    assert_int_equal(fclose(to), 0);
    rt_bytes_fini(&bytes);
}

static void put_copies(const loading *l)
{
    for (uint32_t i = 0; i < FILES; i++) {
        put_copy(l, i, 0, COPY_BYTES);
        put_copy(l, i, 1, COPY_BYTES);
    }
}

static void say_taken(loading *l, uint32_t member, uint32_t i, rt_wire_taken taken, const char *why)
{
    say(&l->f, member, RT_MESSAGE_TAKEN, 50 + 10 * i, &taken, sizeof taken, why, strlen(why));
}

// The next PIECE of a file of load i; how many bytes of it there are then.
static uint64_t take_piece(loading *l, uint32_t member, uint32_t i, uint32_t file, uint64_t at)
{
    rt_wire_piece piece;
    rt_message message = expect(&l->f, member, RT_MESSAGE_PIECE);
    rt_reader reader = rt_message_reader(&message);
    assert_int_equal(rt_message_header(&message)->iteration, 50 + 10 * i);
    assert_true(rt_reader_get(&reader, &piece, 1, sizeof piece));
    assert_int_equal(piece.file, file);
    assert_int_equal(piece.status, RT_OK);
    assert_int_equal(piece.total, COPY_BYTES);
    assert_int_equal(piece.offset, at);
    const uint8_t *bytes = reader.next;
    at += reader.left;
    for (uint64_t b = piece.offset; b < at; b++)
        assert_int_equal(bytes[b - piece.offset], byte_of(b));
    rt_message_release(&message);
    return at;
}

// A shard that lacks a file gets it, as fast as it takes it, and is to read it then.
static void take_copy(loading *l, uint32_t member, uint32_t i, uint32_t file)
{
    for (uint64_t at = 0; at < COPY_BYTES;) {
        at = take_piece(l, member, i, file, at);
        say_taken(l, member, i,
                  (rt_wire_taken){.file = file, .offset = at, .is_complete = at == COPY_BYTES}, "");
    }
}

static void a_shard_that_lacks_a_file_gets_it(void **state)
{
    (void)state;
    loading l;
    begin(&l, 100);
    put_copies(&l);
    for (uint32_t i = 0; i < FILES; i++) { // of each load again
        expect_load(&l, 0, i);
        answer(&l, 0, RT_NOT_FOUND, 0, "no file");
        take_copy(&l, 0, i, 0);
        expect_load(&l, 0, i);
        answer(&l, 0, RT_DATA, 1, "damaged"); // another one of the same load
        take_copy(&l, 0, i, 1);
        load_file(&l, 0, i);
    }
    load_files(&l, SECOND_SHARD, 0);
    expect_dense(&l);
    end(&l, RT_OK, "");
}

// Each gets what it lacks, however far the other one is.
static void several_shards_get_copies_at_once(void **state)
{
    (void)state;
    uint64_t at[2] = {0};
    loading l;
    begin(&l, 100);
    put_copies(&l);
    load_file(&l, SECOND_SHARD, 0);
    for (uint32_t s = 0; s < 2; s++) {
        expect_load(&l, shards[s], s);
        answer(&l, shards[s], RT_NOT_FOUND, s, "no file");
    }
    while (at[0] < COPY_BYTES) {
        for (uint32_t s = 0; s < 2; s++) {
            at[s] = take_piece(&l, shards[s], s, s, at[s]);
            if (s == 1 && at[1] == COPY_BYTES)
                continue;
            say_taken(
                &l, shards[s], s,
                (rt_wire_taken){.file = s, .offset = at[s], .is_complete = at[s] == COPY_BYTES},
                "");
        }
    }
    load_files(&l, 0, 0);
    say_taken(&l, SECOND_SHARD, 1,
              (rt_wire_taken){.file = 1, .offset = COPY_BYTES, .is_complete = 1}, "");
    load_files(&l, SECOND_SHARD, 1);
    expect_dense(&l);
    end(&l, RT_OK, "");
}

// What is here is of no use to the shard: the model is damaged, which is what it said. Nobody is
// told to read further files.
static void no_copy_helps(void **state)
{
    (void)state;
    enum { NONE, SHORTER, LONGER, NO_SUCH_FILE, TWICE };
    for (uint32_t what = NONE; what <= TWICE; what++) {
        loading l;
        begin(&l, 100);
        put_copies(&l);
        if (what == NONE)
            assert_int_equal(unlink(file_name(&l.model.loads[1], 0)), 0);
        if (what == SHORTER || what == LONGER)
            put_copy(&l, 1, 0, what == SHORTER ? COPY_BYTES - 1 : COPY_BYTES + 1);
        load_file(&l, 0, 0);
        load_file(&l, SECOND_SHARD, 0);
        expect_load(&l, 0, 1);
        expect_load(&l, SECOND_SHARD, 1);
        answer(&l, 0, RT_NOT_FOUND, what == NO_SUCH_FILE ? 2 : 0, "no file");
        if (what == TWICE) {
            take_copy(&l, 0, 1, 0);
            expect_load(&l, 0, 1);
            answer(&l, 0, RT_DATA, 0, "no file");
        }
        answer(&l, SECOND_SHARD, RT_OK, 0, "");
        end(&l, RT_DATA, "no file");
    }
}

// The shard cannot take a copy: that is no damage, and ends the run with what it says.
static void a_copy_that_cannot_be_written(void **state)
{
    (void)state;
    loading l;
    begin(&l, 100);
    put_copies(&l);
    expect_load(&l, 0, 0);
    answer(&l, 0, RT_NOT_FOUND, 1, "no file");
    const uint64_t at = take_piece(&l, 0, 0, 1, 0);
    say_taken(&l, 0, 0, (rt_wire_taken){.file = 1, .status = RT_LIMIT, .offset = at}, "no room");
    end(&l, RT_LIMIT, "ps 0: no room");
}

// A copy that becomes shorter while it is sent: the shard is told so, and the model is damaged.
static void a_copy_that_ends_early(void **state)
{
    (void)state;
    const uint64_t whole = UINT64_C(64) << 20;
    loading l;
    rt_wire_piece piece = {0};
    gather(&l, 100);
    l.model.loads[0].files[1].bytes = whole;
    put_copy(&l, 0, 1, COPY_BYTES);
    assert_int_equal(truncate(file_name(&l.model.loads[0], 1), (off_t)whole), 0);
    assert_int_equal(pthread_create(&l.loads, NULL, load_all, &l), 0);
    expect_load(&l, SECOND_SHARD, 0);
    answer(&l, SECOND_SHARD, RT_NOT_FOUND, 1, "no file");
    for (uint64_t sent = 0; !piece.status;) { // what is read ahead is sent
        rt_message message = expect(&l.f, SECOND_SHARD, RT_MESSAGE_PIECE);
        rt_reader reader = rt_message_reader(&message);
        assert_true(rt_reader_get(&reader, &piece, 1, sizeof piece));
        sent += piece.status ? 0 : reader.left;
        assert_true(sent < whole);
        rt_message_release(&message);
        if (sent == RT_WIRE_PIECE_BYTES_MAX)
            assert_int_equal(truncate(file_name(&l.model.loads[0], 1), COPY_BYTES), 0);
        say_taken(&l, SECOND_SHARD, 0, (rt_wire_taken){.file = 1, .offset = sent}, "");
    }
    load_file(&l, 0, 0);
    end(&l, RT_DATA, "the copy for ps 1: the file has become shorter");
}

// ---- what ends it ------------------------------------------------------------------------------

// The file is not to blame: nothing is looked for elsewhere.
static void a_shard_that_cannot_load(void **state)
{
    (void)state;
    static const rt_status own[] = {RT_CONFIG, RT_NO_MEMORY};
    for (size_t i = 0; i < RT_COUNT_OF(own); i++) {
        loading l;
        begin(&l, 100);
        put_copies(&l);
        expect_load(&l, SECOND_SHARD, 0);
        answer(&l, SECOND_SHARD, own[i], 1, "too many rows");
        end(&l, own[i], "ps 1: too many rows");
    }
}

static void answers_that_nobody_waits_for(void **state)
{
    (void)state;
    static const struct {
        rt_message_type type;
        size_t size;
        const char *text;
    } cases[] = {
        {RT_MESSAGE_LOADED, sizeof(rt_wire_written), "ps 1: a LOADED that nobody waits for"},
        {RT_MESSAGE_TAKEN, sizeof(rt_wire_taken), "ps 1: a TAKEN of bytes that were not sent"},
        {RT_MESSAGE_KEYS, 0, "ps 1: keys that nobody asked for"},
    };
    const uint8_t zeros[64] = {0};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        loading l;
        begin(&l, 100);
        load_files(&l, SECOND_SHARD, 0); // all of them
        say(&l.f, SECOND_SHARD, cases[i].type, 0, zeros, cases[i].size, NULL, 0);
        end(&l, RT_WIRE, cases[i].text);
    }
    loading l; // one that is waited for, and is none
    begin(&l, 100);
    expect_load(&l, 0, 0);
    say(&l.f, 0, RT_MESSAGE_LOADED, 0, zeros, sizeof(rt_wire_written) - 1, NULL, 0);
    end(&l, RT_WIRE, "ps 0: a LOADED that nobody waits for");
}

// Messages about something else are somebody else's; of a MARK that nobody asked for nothing comes.
static void other_messages_are_passed_on(void **state)
{
    (void)state;
    const rt_wire_vitals vitals = {0};
    loading l;
    begin(&l, 100);
    say(&l.f, 0, RT_MESSAGE_VITALS, 0, &vitals, sizeof vitals, NULL, 0);
    say(&l.f, 1, RT_MESSAGE_VITALS, 0, &vitals, sizeof vitals, NULL, 0);
    say(&l.f, 1, RT_MESSAGE_LOADED, 0, NULL, 0, NULL, 0); // of a worker
    say(&l.f, 1, RT_MESSAGE_MARK, 0, NULL, 0, NULL, 0);
    say(&l.f, 0, RT_MESSAGE_MARK, 0, NULL, 0, NULL, 0); // of a shard
    while (atomic_load(&l.others) < 101 + 1 + 1 + 111) {
        assert_true(rt_now_ns() < l.f.end_ns);
        usleep(1000);
    }
    load_files(&l, 0, 0);
    load_files(&l, SECOND_SHARD, 0);
    expect_dense(&l);
    end(&l, RT_OK, "");
    assert_int_equal(l.others, 101 + 1 + 1 + 111);
}

static void somebody_ends_it(void **state)
{
    (void)state;
    loading l;
    begin(&l, 100);
    load_file(&l, 0, 0);
    assert_int_equal(eventfd_write(l.f.own.stop_fd, 1), 0);
    end(&l, RT_STOPPED, "interrupted while a checkpoint was being loaded");
}

TEST_MAIN(TEST(files_in_their_order), TEST(a_shard_that_lacks_a_file_gets_it),
          TEST(several_shards_get_copies_at_once), TEST(no_copy_helps),
          TEST(a_copy_that_cannot_be_written), TEST(a_copy_that_ends_early),
          TEST(a_shard_that_cannot_load), TEST(answers_that_nobody_waits_for),
          TEST(other_messages_are_passed_on), TEST(somebody_ends_it))
