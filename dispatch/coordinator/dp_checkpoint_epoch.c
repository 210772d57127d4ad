// The epoch of a run's start, in a file beside its checkpoints.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "dispatch/coordinator/dp_checkpoint.h"
#include "runtime/files/rt_file.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"

static uint64_t hash_of_epoch(uint32_t epoch)
{
    return rt_hash_bytes(&epoch, sizeof epoch);
}

// Of the start before; 0: there was none. RT_DATA: nobody knows.
static rt_status read_epoch(const char *path, uint32_t *epoch_p)
{
    char text[64] = "";
    uint64_t hash;
    FILE *file = fopen(path, "re");
    *epoch_p = 0;
    if (!file && errno == ENOENT)
        return RT_OK;
    if (!file)
        return RT_DATA;
    const bool is_read = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    if (!is_read || sscanf(text, "%" SCNu32 " %16" SCNx64, epoch_p, &hash) != 2 ||
        hash != hash_of_epoch(*epoch_p))
        return RT_DATA;
    return RT_OK;
}

static rt_status write_epoch(const char *path, uint32_t epoch, rt_error *error)
{
    char text[64];
    int length =
        snprintf(text, sizeof text, "%" PRIu32 " %016" PRIx64 "\n", epoch, hash_of_epoch(epoch));
    return rt_file_save(path, (const uint8_t *)text, (size_t)length, error);
}

uint32_t dp_checkpoint_epoch(const char *directory)
{
    char path[RT_PATH_MAX + 16];
    uint32_t past;
    snprintf(path, sizeof path, "%s/epoch", directory);
    if (read_epoch(path, &past)) {
        past = (uint32_t)time(NULL); // in seconds: more than there were starts
        rt_warn("%s is damaged: counting on from %" PRIu32, path, past);
    }
    return past;
}

rt_status dp_checkpoint_raise_epoch(const char *directory, uint32_t epoch, rt_error *error)
{
    char path[RT_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/epoch", directory);
    if (dp_checkpoint_epoch(directory) + 1 >= epoch)
        return RT_OK;
    return write_epoch(path, epoch - 1, error);
}

rt_status dp_checkpoint_begin_epoch(const char *directory, uint32_t *epoch_p, rt_error *error)
{
    char path[RT_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/epoch", directory);
    *epoch_p = dp_checkpoint_epoch(directory) + 1;
    return write_epoch(path, *epoch_p, error);
}
