// libFuzzer: clang-14 -fsanitize=fuzzer,address,undefined. The first byte selects the entry: a file
// or an assignment. What loads must be written back and load again to the same text.
#define _GNU_SOURCE // memfd_create
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/config/rt_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_file(int file, const void *bytes, size_t size)
{
    rt_assert(ftruncate(file, 0) == 0);
    rt_assert(pwrite(file, bytes, size, 0) == (ssize_t)size);
}

static void check_round_trip(const rt_config *config, int file, const char *path)
{
    rt_config again;
    char *first, *second;
    rt_error error = {0};
    rt_assert(rt_config_to_json(config, &first) == RT_OK);
    write_file(file, first, strlen(first));
    rt_assert(rt_config_init(&again) == RT_OK);
    rt_assert(rt_config_load(&again, path, &error) == RT_OK);
    rt_assert(rt_config_to_json(&again, &second) == RT_OK);
    rt_assert(strcmp(first, second) == 0);
    rt_free(first);
    rt_free(second);
    rt_config_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int file = -1;
    static char path[64];
    rt_config config;
    rt_error error = {0};
    if (size == 0)
        return 0;
    if (file < 0) {
        file = memfd_create("config", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    rt_assert(file >= 0 && rt_config_init(&config) == RT_OK);
    rt_status status;
    if (data[0] & 1) {
        write_file(file, data + 1, size - 1);
        status = rt_config_load(&config, path, &error);
    } else {
        char *assignment = calloc(1, size);
        rt_assert(assignment);
        memcpy(assignment, data + 1, size - 1);
        status = rt_config_set(&config, assignment, &error);
        free(assignment);
    }
    rt_assert(status == RT_OK || strlen(error.text) > 0);
    (void)rt_config_check(&config, &error);
    if (status == RT_OK)
        check_round_trip(&config, file, path);
    rt_config_fini(&config);
    return 0;
}
