// A file without optimizer state that comes from a publisher: parts in pieces, and answers that
// cannot be any.
#include "edge_worker/serve/ew_values.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ps_lite/ps_model_file.h"
#include "tests/support/test.h"

#define ROWS 5000u // two blocks
#define DIM 4u
#define STATE 4u
#define PARTS 3u

typedef struct {
    char path[500];
    int file;
    rt_file_sum sum; // of the file with state
    ew_values values;
    rt_bytes parts[PARTS];
    rt_wire_fetched answers[PARTS]; // each of a whole part
} fixture;

static void write_rows(fixture *f)
{
    const ps_model_info info = {
        .row_count = ROWS, .shard_count = 1, .dim = DIM, .state_floats = STATE, .iteration = 7};
    rt_file_place place = {.path = f->path};
    const rt_sink sink = rt_file_sink(&place);
    ps_model_writer *writer;
    assert_int_equal(ps_model_writer_open(&sink, &info, &writer, NULL), RT_OK);
    for (uint32_t i = 0; i < ROWS; i++) {
        const float row[DIM + STATE] = {(float)i, 1, 2, 3, 4, 5, 6, 7};
        assert_int_equal(ps_model_writer_add(writer, i, 2, row, NULL), RT_OK);
    }
    assert_int_equal(ps_model_writer_commit(writer, &f->sum, NULL), RT_OK);
}

static void open_values(fixture *f)
{
    rt_file *to;
    assert_int_equal(rt_file_create(test_path("values"), &to, NULL), RT_OK);
    ew_values_init(&f->values, "rows", true, f->sum.bytes, to);
}

static void begin(fixture *f)
{
    uint64_t offset = 0;
    *f = (fixture){0};
    snprintf(f->path, sizeof f->path, "%s", test_path("rows"));
    write_rows(f);
    f->file = open(f->path, O_RDONLY | O_CLOEXEC);
    assert_true(f->file >= 0);
    for (uint32_t i = 0; i < PARTS; i++) {
        rt_wire_fetched *one = &f->answers[i];
        assert_int_equal(ps_model_values(f->file, "rows", offset, &f->parts[i], &one->next,
                                         &one->checksum, NULL),
                         RT_OK);
        one->offset = offset;
        one->part = f->parts[i].size;
        one->total = f->sum.bytes;
        offset = one->next;
    }
    assert_int_equal(offset, f->sum.bytes);
    open_values(f);
}

static void finish(fixture *f)
{
    rt_file_abort(f->values.to);
    ew_values_fini(&f->values);
    for (uint32_t i = 0; i < PARTS; i++)
        rt_bytes_fini(&f->parts[i]);
    close(f->file);
}

// A part in pieces of so many bytes.
static void take(fixture *f, uint32_t part, size_t piece)
{
    const rt_bytes *bytes = &f->parts[part];
    for (size_t at = 0; at < bytes->size; at += piece) {
        rt_wire_fetched answer = f->answers[part];
        answer.skip = at;
        assert_int_equal(ew_values_take(&f->values, &answer, bytes->data + at,
                                        rt_min_u64(piece, bytes->size - at), NULL),
                         RT_OK);
    }
}

static void parts_come_in_pieces(void **state)
{
    (void)state;
    const size_t pieces[] = {1 << 20, 4096, 17};
    for (size_t i = 0; i < RT_COUNT_OF(pieces); i++) {
        fixture f;
        ps_model_info info;
        ps_model_reader *reader;
        uint64_t key, count = 0;
        uint32_t version;
        const float *row;
        begin(&f);
        for (uint32_t part = 0; part < PARTS; part++) {
            assert_false(f.values.is_whole);
            take(&f, part, pieces[i]);
        }
        assert_true(f.values.is_whole);
        assert_memory_equal(&f.values.origin, &f.sum, sizeof f.sum);
        assert_int_equal(rt_file_commit(f.values.to, NULL), RT_OK);
        f.values.to = NULL;
        assert_int_equal(
            ps_model_reader_open(test_path("values"), NULL, NULL, &info, &reader, NULL), RT_OK);
        assert_true(info.state_floats == 0 && info.row_count == ROWS && info.iteration == 7);
        while (ps_model_reader_next(reader, &key, &version, &row, NULL) == RT_OK)
            assert_true(key == count++ && version == 2 && row[0] == (float)key && row[3] == 3);
        const rt_file_sum own = ps_model_reader_sum(reader);
        assert_int_equal(count, ROWS);
        assert_memory_equal(&f.values.own, &own, sizeof own);
        ps_model_reader_close(reader);
        finish(&f);
    }
}

static void must_refuse(rt_status want, void (*change)(rt_wire_fetched *answer), size_t less)
{
    fixture f;
    begin(&f);
    take(&f, 0, 1 << 20);
    rt_wire_fetched answer = f.answers[1];
    change(&answer);
    assert_int_equal(
        ew_values_take(&f.values, &answer, f.parts[1].data, f.parts[1].size - less, NULL), want);
    assert_false(f.values.is_whole);
    finish(&f);
}

static void of_another_offset(rt_wire_fetched *answer)
{
    answer->offset++;
}
static void of_another_place(rt_wire_fetched *answer)
{
    answer->skip = 8;
}
static void that_goes_nowhere(rt_wire_fetched *answer)
{
    answer->next = answer->offset;
}
static void that_leaves_the_file(rt_wire_fetched *answer)
{
    answer->next = answer->total + 1;
}
static void of_a_smaller_part(rt_wire_fetched *answer)
{
    answer->part--;
}
static void of_a_huge_part(rt_wire_fetched *answer)
{
    answer->part = UINT64_MAX;
}
static void of_a_longer_file(rt_wire_fetched *answer)
{
    answer->total++;
}
static void as_it_is(rt_wire_fetched *answer)
{
    (void)answer;
}
static void that_ends_too_soon(rt_wire_fetched *answer)
{
    answer->part -= 8;
}

static void impossible_answers(void **state)
{
    (void)state;
    must_refuse(RT_WIRE, of_another_offset, 0);
    must_refuse(RT_WIRE, of_another_place, 0);
    must_refuse(RT_WIRE, that_goes_nowhere, 0);
    must_refuse(RT_WIRE, that_leaves_the_file, 0);
    must_refuse(RT_WIRE, of_a_smaller_part, 0);
    must_refuse(RT_WIRE, of_a_huge_part, 0);
    must_refuse(RT_DATA, of_a_longer_file, 0);
    must_refuse(RT_DATA, that_ends_too_soon, 8);
    fixture f;
    begin(&f);
    take(&f, 0, 1 << 20);
    assert_int_equal(ew_values_take(&f.values, &f.answers[1], "", 0, NULL), RT_WIRE);
    finish(&f);
    must_refuse(RT_OK, as_it_is, 0);
}

// Any bit of any part.
static void damaged_parts(void **state)
{
    (void)state;
    for (uint32_t part = 0; part < PARTS; part++)
        for (uint32_t i = 0; i < 40; i++) {
            fixture f;
            begin(&f);
            for (uint32_t before = 0; before < part; before++)
                take(&f, before, 1 << 20);
            rt_bytes *bytes = &f.parts[part];
            bytes->data[i * (bytes->size - 1) / 39] ^= (uint8_t)(1u << i % 8);
            assert_int_equal(
                ew_values_take(&f.values, &f.answers[part], bytes->data, bytes->size, NULL),
                RT_DATA);
            finish(&f);
        }
}

// Nothing begins there, or the file is another one.
static void parts_that_are_none(void **state)
{
    (void)state;
    fixture f;
    rt_bytes part = {0};
    uint64_t next, checksum;
    begin(&f);
    const uint64_t places[] = {1, f.answers[1].offset + 1, f.answers[1].offset - 1, f.sum.bytes,
                               f.sum.bytes + 1};
    for (size_t i = 0; i < RT_COUNT_OF(places); i++)
        assert_int_equal(ps_model_values(f.file, "rows", places[i], &part, &next, &checksum, NULL),
                         RT_DATA);
    assert_int_equal(part.size, 0);
    rt_bytes_fini(&part);
    finish(&f);
}

TEST_MAIN(TEST(parts_come_in_pieces), TEST(impossible_answers), TEST(damaged_parts),
          TEST(parts_that_are_none))
