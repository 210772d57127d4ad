// open_quote_case - lines of a table of which one never closes its quote, for sources that give
// each line alone.
#ifndef OPEN_QUOTE_CASE_H
#define OPEN_QUOTE_CASE_H

#include <string.h>

#include "runtime/stream/rt_stream.h"
#include "tests/support/test.h"
#include "tests/support/config_case.h"

#define OPEN_QUOTE_LINES "0,\"8\n1,7\n1,9\n"

static inline void open_quote_configure(rt_config *config)
{
    config_must_set(config, "stream.format=table");
    config_must_set(config, "stream.table.columns=[{\"name\":\"y\",\"kind\":\"label\"},"
                            "{\"name\":\"c\",\"kind\":\"categorical\",\"id\":\"number\"}]");
}

// The first line is malformed, the others are samples.
static inline void open_quote_must_read(const rt_config *config)
{
    rt_stream *stream;
    rt_batch batch;
    rt_error error = {0};
    if (rt_stream_open(&config->stream, 1, &stream, &error))
        fail_msg("%s", error.text);
    rt_batch_init(&batch, 0);
    assert_int_equal(rt_stream_read(stream, &batch, 2, &error), RT_OK);
    assert_int_equal(batch.sample_count, 2);
    assert_int_equal(batch.keys[0] & 0xff, 7);
    assert_int_equal(batch.keys[1] & 0xff, 9);
    assert_int_equal(rt_stream_statistics(stream).malformed, 1);
    rt_batch_fini(&batch);
    rt_stream_close(stream);
}

#endif
