// libFuzzer: positions in the input, damaged. A stream that takes one reads on to an end or an
// error, and what it tells then is a position again.
//
// The first byte selects: all bytes of a position, or edits of a good one, three bytes each.
#define _GNU_SOURCE // memfd_create
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/config/rt_formats.h"
#include "runtime/stream/rt_position.h"
#include "runtime/stream/rt_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BATCH 8u

static rt_column columns[] = {{.name = "y", .kind = RT_COLUMN_LABEL, .label_value = "1"},
                              {.name = "u", .kind = RT_COLUMN_CATEGORICAL, .id = RT_ID_NUMBER},
                              {.name = "x", .kind = RT_COLUMN_DENSE}};

static rt_stream *open_stream(const rt_stream_config *config)
{
    rt_stream *stream;
    rt_error error = {0};
    rt_assert(rt_stream_open(config, 1, &stream, &error) == RT_OK);
    return stream;
}

// Half of the first file.
static void make_position(const rt_stream_config *config, rt_bytes *position)
{
    rt_batch batch;
    rt_error error = {0};
    rt_stream *stream = open_stream(config);
    rt_batch_init(&batch, 1);
    rt_assert(rt_stream_read(stream, &batch, BATCH, &error) == RT_OK);
    rt_stream_tell(stream, position);
    rt_assert(!position->failed);
    rt_batch_fini(&batch);
    rt_stream_close(stream);
}

static void make_file(char path[64], char first)
{
    const int file = memfd_create("input", 0);
    snprintf(path, 64, "/proc/self/fd/%d", file);
    rt_assert(dprintf(file, "u,x,y\n") > 0);
    for (int i = 0; i < 2 * (int)BATCH; i++)
        rt_assert(dprintf(file, "%d,%c.5,%d\n%s", i, first, i & 1, i == 11 ? "\n" : "") > 0);
}

static void read_on(const rt_stream_config *config, const rt_bytes *position)
{
    rt_batch batch;
    rt_bytes told = {0}, taken = {0};
    rt_error error = {0};
    rt_stream *stream = open_stream(config);
    rt_batch_init(&batch, 1);
    rt_status status = rt_stream_seek(stream, position, &error);
    while (!status)
        status = rt_stream_read(stream, &batch, BATCH, &error);
    rt_assert(status == RT_END || error.text[0]);
    rt_stream_tell(stream, &told);
    rt_reader reader = rt_bytes_reader(&told);
    rt_assert(!told.failed && told.size <= RT_POSITION_BYTES_MAX);
    rt_assert(rt_position_take(&reader, &taken) && reader.left == 0);
    rt_bytes_fini(&told);
    rt_bytes_fini(&taken);
    rt_batch_fini(&batch);
    rt_stream_close(stream);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char paths[2][64], *files[] = {paths[0], paths[1]};
    static rt_bytes good;
    const rt_stream_config config = {
        .format = RT_FORMAT_TABLE,
        .file_count = 2,
        .files = files,
        .malformed_share_max = 1,
        .table = {.delimiter = ',', .has_header = true, .column_count = 3, .columns = columns}};
    if (good.size == 0) {
        make_file(paths[0], '1');
        make_file(paths[1], '2');
        make_position(&config, &good);
    }
    if (size == 0)
        return 0;
    rt_bytes position = {0}, taken = {0};
    if (data[0] & 1) {
        rt_bytes_put(&position, data + 1, size - 1);
    } else {
        rt_bytes_put(&position, good.data, good.size);
        for (size_t at = 1; at + 3 <= size; at += 3)
            position.data[(data[at] | (size_t)data[at + 1] << 8) % position.size] = data[at + 2];
    }
    rt_reader reader = rt_bytes_reader(&position);
    if (rt_position_take(&reader, &taken))
        read_on(&config, &taken);
    rt_bytes_fini(&position);
    rt_bytes_fini(&taken);
    return 0;
}
