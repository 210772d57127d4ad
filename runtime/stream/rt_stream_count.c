// The distinct keys of a whole stream, which is opened and read for that.
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/config/rt_sources.h"
#include "runtime/stream/rt_keyset.h"
#include "runtime/stream/rt_stream.h"

#define COUNT_BATCH 4096u

static rt_status count_batches(rt_stream *stream, rt_keyset *set, rt_error *error)
{
    rt_batch batch;
    rt_batch_init(&batch, rt_stream_schema(stream)->dense_count);
    rt_status status;
    while (!(status = rt_stream_read(stream, &batch, COUNT_BATCH, error))) {
        if (rt_tables_fold(&rt_stream_schema(stream)->tables, &batch) ||
            rt_keyset_add(set, batch.keys, batch.key_count)) {
            status = rt_fail(error, RT_NO_MEMORY, "out of memory after %" PRIu64 " distinct keys",
                             rt_keyset_count(set));
            break;
        }
    }
    rt_batch_fini(&batch);
    if (status == RT_END)
        return RT_OK;
    return status;
}

static bool are_files(char *const *files, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct stat info; // what is not there is named where it is opened
        if (strcmp(files[i], "-") == 0 || (stat(files[i], &info) == 0 && !S_ISREG(info.st_mode)))
            return false;
    }
    return true;
}

bool rt_stream_is_countable(const rt_stream_config *config)
{
    if (rt_format_is_generated(config->format))
        return config->samples_max > 0;
    if (config->source != RT_SOURCE_FILE || config->join.source != RT_SOURCE_FILE)
        return false;
    return are_files(config->files, config->file_count) &&
           are_files(config->join.files, config->join.file_count);
}

rt_status rt_stream_count_keys(const rt_stream_config *config, uint64_t seed,
                               uint64_t *distinct_keys_p, rt_error *error)
{
    rt_stream *stream;
    rt_keyset set;
    const bool is_countable = rt_stream_is_countable(config);
    if (!is_countable && rt_format_is_generated(config->format))
        return rt_fail(
            error, RT_CONFIG,
            "the keys of an endless stream cannot be counted: set cache.distinct_keys or "
            "stream.samples_max");
    if (!is_countable)
        return rt_fail(error, RT_CONFIG,
                       "the keys of standard input or a pipe cannot be counted, it is read only "
                       "once: set cache.distinct_keys");
    rt_stream_config once = *config;
    once.epochs = 1;
    rt_status status = rt_stream_open(&once, seed, &stream, error);
    if (status)
        return status;
    if (rt_keyset_init(&set)) {
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for counting keys");
    } else {
        status = count_batches(stream, &set, error);
        if (!status)
            *distinct_keys_p = rt_keyset_count(&set);
        rt_keyset_fini(&set);
    }
    rt_stream_close(stream);
    return status;
}
