// A shard's server in a thread; the case plays the coordinator and a worker, over real sockets.
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bandwidth_probe/bw_passive.h"
#include "ps_lite/ps_model_file.h"
#include "ps_lite/ps_table.h"
#include "runtime/files/rt_file.h"
#include "runtime/rt_hash.h"

#include "tests/support/server_case.h"

// The one piece of a small model, and what a coordinator answers.
static void take_model(fixture *f, uint64_t offset, uint32_t status, const char *text)
{
    rt_wire_piece piece;
    struct {
        rt_wire_taken head;
        char text[64];
    } answer = {.head = {.status = status, .is_complete = status == 0}};
    from_coordinator(f, RT_MESSAGE_SAVE, NULL, 0);
    rt_message message = expect(f->coordinator, RT_MESSAGE_PIECE);
    memcpy(&piece, rt_message_payload(&message), sizeof piece);
    const uint8_t *bytes = rt_message_payload(&message) + sizeof piece;
    const size_t size = message.size - sizeof(rt_wire_header) - sizeof piece;
    assert_true(piece.offset == 0 && piece.total == size && piece.status == RT_OK);
    assert_true(rt_message_header(&message)->iteration == 0 && piece.file == 0);
    assert_true(piece.checksum == rt_hash_bytes(bytes, size) && piece.sum == piece.checksum);
    assert_memory_equal(bytes, "RLYNROWS", 8);
    rt_message_release(&message);
    answer.head.offset = offset == UINT64_MAX ? size : offset;
    snprintf(answer.text, sizeof answer.text, "%s", text);
    from_coordinator(f, RT_MESSAGE_TAKEN, &answer, sizeof answer.head + strlen(text));
}

// Microseconds that a stamp tells, as a time of this machine near now.
static uint64_t time_of(uint32_t stamp, uint64_t now_us)
{
    const uint64_t turn = UINT64_C(1) << 31;
    const uint64_t us = now_us / turn * turn + (stamp >> 1);
    return us > now_us ? us - turn : us;
}

static void test_a_run_from_hello_to_stop(void **context)
{
    (void)context;
    fixture f;
    const uint64_t begin_us = rt_now_ns() / 1000;
    start(&f);
    launch(&f);
    join_run(&f, HASH);
    const rt_wire_pull pull = {5, 2, 9};
    const row_record push = {{5, 2, 0}, {1, 2, 3, 4}};
    from_worker(&f, RT_MESSAGE_PULL, &pull, sizeof pull); // parks
    from_worker(&f, RT_MESSAGE_HEARTBEAT, NULL, 0);
    from_worker(&f, RT_MESSAGE_PUSH_ROW, &push, sizeof push);
    rt_message message = expect(f.worker, RT_MESSAGE_PUSHED);
    rt_message_release(&message);
    message = expect(f.worker, RT_MESSAGE_ROWS);
    row_record got;
    assert_true(rt_control_has(&message, sizeof got));
    memcpy(&got, rt_message_payload(&message), sizeof got);
    const uint32_t stamp = rt_message_header(&message)->stamp; // when it was sent
    assert_true(stamp & 1);
    assert_in_range(time_of(stamp, rt_now_ns() / 1000), begin_us, rt_now_ns() / 1000);
    rt_message_release(&message);
    assert_true(got.head.key == 5 && got.head.version == 2 && got.head.tag == 9);
    assert_memory_equal(got.floats, push.floats, sizeof push.floats);

    take_model(&f, UINT64_MAX, RT_OK, "");
    from_coordinator(&f, RT_MESSAGE_STOP, "all done", 8);
    end(&f, RT_STOPPED, "all done");
}

// VITALS that tell of so many rows; earlier ones may tell of fewer.
static rt_wire_vitals await_rows(fixture *f, uint64_t rows)
{
    const uint64_t end = rt_now_ns() + PATIENCE_MS * UINT64_C(1000000);
    rt_wire_vitals vitals = {0};
    while (vitals.rows != rows) {
        rt_message message = {0};
        rt_error error = {RT_OK, ""};
        uint32_t peer;
        bool ready;
        if (rt_now_ns() > end)
            fail_msg("no VITALS of %" PRIu64 " rows came", rows);
        const rt_status status = ops->receive(f->coordinator, &peer, &message, &error);
        if (status == RT_AGAIN)
            ops->wait(&f->coordinator, 1, NO_WAKE, 100, &ready);
        else if (status)
            fail_msg("%s", error.text);
        else if (rt_message_header(&message)->type == RT_MESSAGE_VITALS) {
            assert_true(rt_control_has(&message, sizeof vitals));
            memcpy(&vitals, rt_message_payload(&message), sizeof vitals);
        }
        rt_message_release(&message);
    }
    return vitals;
}

// What a shard tells of its rows are the figures of a table that holds the same.
static void test_vitals_are_the_tables(void **context)
{
    (void)context;
    const row_record push = {{5, 2, 0}, {1, 2, 3, 4}};
    fixture f;
    start(&f);
    launch(&f);
    join_run(&f, HASH);
    from_worker(&f, RT_MESSAGE_PUSH_ROW, &push, sizeof push);
    rt_message message = expect(f.worker, RT_MESSAGE_PUSHED);
    rt_message_release(&message);
    const ps_table_config table = {.memory_bytes_max = f.config.ps_memory_bytes_max,
                                   .row_floats = DIM};
    const rt_wire_vitals after = await_rows(&f, 1);
    assert_int_equal(after.row_bytes_max, f.config.ps_memory_bytes_max);
    assert_int_equal(after.row_bytes, ps_table_bytes_for(&table, 1));
    from_coordinator(&f, RT_MESSAGE_STOP, "enough", 6);
    end(&f, RT_STOPPED, "enough");
}

static void test_finish_is_answered_and_ends(void **context)
{
    (void)context;
    fixture f;
    start(&f);
    launch(&f);
    join_run(&f, HASH);
    from_coordinator(&f, RT_MESSAGE_FINISH, NULL, 0);
    rt_message message = expect(f.coordinator, RT_MESSAGE_FINISHED);
    rt_message_release(&message);
    end(&f, RT_OK, "");
}

static void test_broken_messages_are_told_to_the_coordinator(void **context)
{
    (void)context;
    const row_record push = {{5, 0, 0}, {1, 2, 3, 4}};
    fixture f;
    start(&f);
    launch(&f);
    join_run(&f, HASH);
    from_worker(&f, RT_MESSAGE_PUSH_ROW, &push, sizeof push);
    expect_failed(&f, RT_WIRE, "worker 0: PUSH_ROW");

    start(&f);
    f.config.worker_count = 3; // not what the coordinator says
    launch(&f);
    rt_wire_welcome welcome = welcome_of(&f);
    welcome.worker_count = 2;
    welcome.workers = 3;
    from_coordinator(&f, RT_MESSAGE_WELCOME, &welcome, sizeof welcome);
    expect_failed(&f, RT_CONFIG, "2 workers");

    start(&f);
    launch(&f);
    join_run(&f, HASH);
    take_model(&f, 1u << 20, RT_OK, "");
    expect_failed(&f, RT_WIRE, "a TAKEN of bytes that were not sent");

    start(&f);
    launch(&f);
    join_run(&f, HASH);
    from_coordinator(&f, RT_MESSAGE_PIECE, &push, sizeof push);
    expect_failed(&f, RT_WIRE, "a PIECE of a file that no LOAD named");
}

static void expect_refusal(fixture *f, const char *text)
{
    char reason[512];
    rt_message message = expect(f->worker, RT_MESSAGE_STOP);
    assert_int_equal(rt_control_text(&message, reason, sizeof reason), RT_OK);
    rt_message_release(&message);
    if (!strstr(reason, text))
        fail_msg("\"%s\" lacks \"%s\"", reason, text);
}

// Who is not of the run is told why, changes nothing and ends nothing.
static void test_strangers_are_refused(void **context)
{
    (void)context;
    const row_record push = {{5, 2, 0}, {1, 2, 3, 4}}, broken = {{5, 0, 0}, {1, 2, 3, 4}};
    const rt_wire_pull pull = {5, 0, 9};
    rt_wire_hello hello = {.role = RT_ROLE_WORKER, .config_hash = HASH};
    fixture f;
    start(&f);
    launch(&f);
    join_run(&f, HASH + 1);
    expect_refusal(&f, "worker 0 runs with another configuration");
    from_worker(&f, RT_MESSAGE_HELLO, &hello, 48); // as short as it ever was, of another program
    expect_refusal(&f, "a HELLO of 48 bytes");
    from_worker(&f, RT_MESSAGE_PUSH_ROW, &push, sizeof push);
    from_worker(&f, RT_MESSAGE_PUSH_ROW, &broken, sizeof broken);
    from_worker(&f, RT_MESSAGE_SLICE, &push, 7);
    from_worker(&f, RT_MESSAGE_HELLO, &hello, 3);
    expect_refusal(&f, "a HELLO of 3 bytes");
    rt_control_put_text(hello.program, sizeof hello.program, rt_build());
    from_worker(&f, RT_MESSAGE_HELLO, &hello, sizeof hello);
    from_worker(&f, RT_MESSAGE_PULL, &pull, sizeof pull);
    rt_message message = expect(f.worker, RT_MESSAGE_ROWS);
    row_record got;
    assert_true(rt_control_has(&message, sizeof got));
    memcpy(&got, rt_message_payload(&message), sizeof got);
    rt_message_release(&message);
    assert_int_equal(got.head.version, 0); // what the stranger pushed is not there
    from_coordinator(&f, RT_MESSAGE_STOP, "enough", 6);
    end(&f, RT_STOPPED, "enough");
}

static void test_a_silent_coordinator_ends_the_shard(void **context)
{
    (void)context;
    fixture f;
    start(&f);
    f.config.timeout_peer_s = 0.2;
    launch(&f);
    join_run(&f, HASH);
    expect_failed(&f, RT_PEER, "coordinator was silent");
    start(&f);
    f.config.timeout_start_s = 0.2;
    f.config.timeout_peer_s = 0.1;
    launch(&f);
    end(&f, RT_TIMEOUT, f.address);
}

// The coordinator judges; the shard goes on without the worker.
static void test_a_worker_that_goes_does_not_end_the_shard(void **context)
{
    (void)context;
    const rt_wire_pull pulls[] = {{5, 2, 9}, {6, 0, 1}};
    const row_record push = {{5, 2, 0}, {1, 2, 3, 4}};
    fixture f;
    rt_error error;
    rt_endpoint *other;
    start(&f);
    launch(&f);
    join_run(&f, HASH);
    assert_int_equal(ops->connect(f.transport, rt_peer(RT_ROLE_WORKER, 1), rt_peer(RT_ROLE_PS, 0),
                                  f.shard_address, &other, &error),
                     RT_OK);
    rt_wire_hello hello = {.role = RT_ROLE_WORKER, .rank = 1, .config_hash = HASH};
    rt_control_put_text(hello.program, sizeof hello.program, rt_build());
    send_bytes(other, rt_peer(RT_ROLE_WORKER, 1), rt_peer(RT_ROLE_PS, 0), RT_MESSAGE_HELLO, 0, 1,
               &hello, sizeof hello);
    send_bytes(other, rt_peer(RT_ROLE_WORKER, 1), rt_peer(RT_ROLE_PS, 0), RT_MESSAGE_PULL, 3, 2,
               pulls, sizeof pulls); // one is answered, one parks
    rt_message message = expect(other, RT_MESSAGE_ROWS);
    rt_message_release(&message);
    ops->end(other, 0);
    from_worker(&f, RT_MESSAGE_PUSH_ROW, &push, sizeof push); // wakes the pull of who is gone
    message = expect(f.worker, RT_MESSAGE_PUSHED);
    rt_message_release(&message);
    from_worker(&f, RT_MESSAGE_PULL, &pulls[1], sizeof pulls[1]);
    message = expect(f.worker, RT_MESSAGE_ROWS);
    rt_message_release(&message);
    from_coordinator(&f, RT_MESSAGE_STOP, "enough", 6);
    end(&f, RT_STOPPED, "enough");
}

// ---- a disk that stands still

#define ROWS_FILE "rows-000-of-001.bin"

typedef struct {
    rt_wire_load load;
    uint8_t bytes[1024];
    size_t size;
    int writer;
} held_file;

// A file of rows as the shard expects it.
static void write_rows(held_file *held)
{
    const ps_model_info info = {.schema = 77, .row_count = 1, .shard_count = 1, .dim = DIM};
    const float row[DIM] = {1, 2, 3, 4};
    ps_model_writer *writer;
    rt_file_sum sum;
    *held = (held_file){.load = {.shard_count = 1, .flags = RT_WIRE_LOAD_FIRST}, .writer = -1};
    snprintf(held->load.folder, sizeof held->load.folder, "%s", test_path(ROWS_FILE));
    *strrchr(held->load.folder, '/') = '\0';
    rt_file_place place = {.path = test_path(ROWS_FILE)};
    const rt_sink sink = rt_file_sink(&place);
    assert_int_equal(ps_model_writer_open(&sink, &info, &writer, NULL), RT_OK);
    assert_int_equal(ps_model_writer_add(writer, 5, 2, row, NULL), RT_OK);
    assert_int_equal(ps_model_writer_commit(writer, &sum, NULL), RT_OK);
    held->load.files[0].bytes = sum.bytes;
    held->load.files[0].hash = sum.hash;
    FILE *file = fopen(test_path(ROWS_FILE), "r");
    assert_non_null(file);
    held->size = fread(held->bytes, 1, sizeof held->bytes, file);
    assert_int_equal(held->size, sum.bytes);
    fclose(file);
}

// Likewise, but the case holds its bytes back: a pipe has its name.
static void hold_file(held_file *held)
{
    write_rows(held);
    assert_int_equal(unlink(test_path(ROWS_FILE)), 0);
    assert_int_equal(mkfifo(test_path(ROWS_FILE), 0600), 0);
}

// Until the shard has opened the file.
static void await_reader(held_file *held)
{
    held->writer = open(test_path(ROWS_FILE), O_WRONLY | O_CLOEXEC);
    assert_true(held->writer >= 0);
}

// Of a checkpoint: a model's that a run begins with is read twice.
static void load(fixture *f, const held_file *held)
{
    send_bytes(f->coordinator, rt_peer(RT_ROLE_COORDINATOR, 0), rt_peer(RT_ROLE_PS, 0),
               RT_MESSAGE_LOAD, 2, 0, &held->load, sizeof held->load);
}

static rt_wire_written expect_loaded(fixture *f)
{
    rt_wire_written loaded;
    rt_message message = expect(f->coordinator, RT_MESSAGE_LOADED);
    assert_true(message.size >= sizeof(rt_wire_header) + sizeof loaded);
    memcpy(&loaded, rt_message_payload(&message), sizeof loaded);
    rt_message_release(&message);
    return loaded;
}

// A model that a run begins with is known by the XXH3 of its files' bytes.
static void test_a_model_is_known_by_its_bytes(void **context)
{
    (void)context;
    const rt_wire_pull pull = {5, 0, 9};
    const float want[DIM] = {1, 2, 3, 4};
    fixture f;
    held_file held;
    row_record got;
    write_rows(&held);
    held.load.flags |= RT_WIRE_LOAD_MODEL;
    held.load.files[0].hash = rt_hash_bytes(held.bytes, held.size);
    start(&f);
    launch(&f);
    join_run(&f, HASH);
    load(&f, &held);
    assert_int_equal(expect_loaded(&f).status, RT_OK);
    from_worker(&f, RT_MESSAGE_PULL, &pull, sizeof pull);
    rt_message message = expect(f.worker, RT_MESSAGE_ROWS);
    assert_true(rt_control_has(&message, sizeof got));
    memcpy(&got, rt_message_payload(&message), sizeof got);
    rt_message_release(&message);
    assert_memory_equal(got.floats, want, sizeof want);

    held.load.files[0].hash++;
    load(&f, &held);
    assert_int_equal(expect_loaded(&f).status, RT_DATA);
    from_coordinator(&f, RT_MESSAGE_STOP, "enough", 6);
    end(&f, RT_STOPPED, "enough");
}

static void start_loading(fixture *f, held_file *held, double peer_s)
{
    hold_file(held);
    start(f);
    f->config.timeout_peer_s = peer_s;
    launch(f);
    join_run(f, HASH);
    load(f, held);
    await_reader(held);
}

// The shard says that it is there, answers probes, and takes the rows when they come at last.
static void test_a_slow_disk_holds_nothing_up(void **context)
{
    (void)context;
    const rt_wire_probe probe = {.kind = RT_PROBE_BEGIN};
    const rt_wire_pull pull = {5, 2, 9};
    fixture f;
    held_file held;
    rt_wire_written loaded;
    start_loading(&f, &held, 1);
    for (uint32_t beats = 0; beats < 10;) { // a fifth of timeouts.peer_s apart
        bool ready;
        uint32_t peer;
        rt_message message = {0};
        rt_error error = {0};
        ops->wait(&f.coordinator, 1, NO_WAKE, 100, &ready);
        from_coordinator(&f, RT_MESSAGE_HEARTBEAT, NULL, 0);
        while (ops->receive(f.coordinator, &peer, &message, &error) == RT_OK) {
            const uint32_t type = rt_message_header(&message)->type;
            if (type != RT_MESSAGE_HEARTBEAT && type != RT_MESSAGE_VITALS)
                fail_msg("%s came", rt_message_type_name(type));
            rt_message_release(&message);
            beats += type == RT_MESSAGE_HEARTBEAT;
        }
    }
    from_worker(&f, RT_MESSAGE_PROBE, &probe, sizeof probe);
    rt_message message = expect(f.worker, RT_MESSAGE_PROBED);
    rt_message_release(&message);
    struct { // dense gradients are of no row
        rt_wire_dense head;
        float value;
    } dense = {{1}, 7};
    send_bytes(f.worker, rt_peer(RT_ROLE_WORKER, 0), rt_peer(RT_ROLE_PS, 0), RT_MESSAGE_DENSE_GRAD,
               1, 0, &dense, sizeof dense.head + sizeof dense.value);
    message = expect(f.worker, RT_MESSAGE_DENSE_SUM);
    rt_message_release(&message);
    assert_int_equal(write(held.writer, held.bytes, held.size), held.size);
    close(held.writer);
    message = expect(f.coordinator, RT_MESSAGE_LOADED);
    memcpy(&loaded, rt_message_payload(&message), sizeof loaded);
    assert_int_equal(loaded.status, RT_OK);
    rt_message_release(&message);
    from_worker(&f, RT_MESSAGE_PULL, &pull, sizeof pull);
    message = expect(f.worker, RT_MESSAGE_ROWS);
    rt_message_release(&message);
    from_coordinator(&f, RT_MESSAGE_STOP, "enough", 6);
    end(&f, RT_STOPPED, "enough");
}

// The end of the run, and whatever else ends a shard, waits for no disk.
static void test_a_slow_disk_delays_no_end(void **context)
{
    (void)context;
    const rt_wire_pull pull = {5, 2, 9};
    fixture f;
    held_file held;
    start_loading(&f, &held, 20);
    from_coordinator(&f, RT_MESSAGE_STOP, "enough", 6);
    end(&f, RT_STOPPED, "enough");
    close(held.writer);
    assert_int_equal(unlink(test_path(ROWS_FILE)), 0);

    start_loading(&f, &held, 0.5);
    expect_failed(&f, RT_PEER, "coordinator was silent");
    close(held.writer);
    assert_int_equal(unlink(test_path(ROWS_FILE)), 0);

    start_loading(&f, &held, 20);
    from_worker(&f, RT_MESSAGE_PULL, &pull, sizeof pull);
    expect_failed(&f, RT_WIRE, "worker 0: PULL while rows are read or written");
    close(held.writer);
    assert_int_equal(unlink(test_path(ROWS_FILE)), 0);

    start_loading(&f, &held, 20);
    load(&f, &held);
    expect_failed(&f, RT_WIRE, "LOAD while rows are read or written");
    close(held.writer);
}

// Each PUSHED says when its push came, however many there were before: in twos, so that one waits
// while another is confirmed, and more of them than times are kept.
static void test_every_push_is_stamped_with_its_arrival(void **context)
{
    (void)context;
    fixture f;
    start(&f);
    launch(&f);
    join_run(&f, HASH);
    for (uint32_t round = 1; round <= BW_PASSIVE_PUSHES_MAX; round++) {
        const row_record pushes[2] = {{{5, 2 * round, 0}, {1, 2, 3, 4}},
                                      {{5, 2 * round + 1, 0}, {1, 2, 3, 4}}};
        const uint64_t before_us = rt_now_ns() / 1000;
        for (uint32_t i = 0; i < 2; i++)
            from_worker(&f, RT_MESSAGE_PUSH_ROW, &pushes[i], sizeof pushes[i]);
        for (uint32_t i = 0; i < 2; i++) {
            rt_message message = expect(f.worker, RT_MESSAGE_PUSHED);
            const uint32_t stamp = rt_message_header(&message)->stamp;
            const uint64_t now_us = rt_now_ns() / 1000;
            rt_message_release(&message);
            assert_int_not_equal(stamp, 0);
            assert_in_range(time_of(stamp, now_us), before_us, now_us);
        }
    }
    from_coordinator(&f, RT_MESSAGE_STOP, "enough", 6);
    end(&f, RT_STOPPED, "enough");
}

TEST_MAIN(TEST(test_a_run_from_hello_to_stop), TEST(test_vitals_are_the_tables),
          TEST(test_finish_is_answered_and_ends),
          TEST(test_broken_messages_are_told_to_the_coordinator), TEST(test_strangers_are_refused),
          TEST(test_a_silent_coordinator_ends_the_shard),
          TEST(test_a_worker_that_goes_does_not_end_the_shard),
          TEST(test_every_push_is_stamped_with_its_arrival),
          TEST(test_a_model_is_known_by_its_bytes), TEST(test_a_slow_disk_holds_nothing_up),
          TEST(test_a_slow_disk_delays_no_end))
