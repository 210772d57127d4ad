#include "runtime/live/rt_live_clock.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_config.h"
#include "runtime/files/rt_file.h"
#include "runtime/rt_clock.h"
#include "runtime/rt_log.h"

#define NAME "clock"
#define BOOT_BYTES 64
#define TOLD_NS INT64_C(60000000000) // a difference at a start that is worth a word
#define BELIEVED_NS INT64_C(604800000000000)

static atomic_bool was_resumed;

// Which boot of which machine: monotonic clocks of one are one.
static bool boot_of(char boot[BOOT_BYTES])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    const bool is_read = file && fscanf(file, "%63s", boot) == 1;
    if (file)
        fclose(file);
    return is_read;
}

static bool read_offset(const char *path, const char *boot, int64_t *offset_p)
{
    char of[BOOT_BYTES];
    FILE *file = fopen(path, "re");
    const bool is_read = file && fscanf(file, "1 %63s %" SCNd64, of, offset_p) == 2;
    if (file)
        fclose(file);
    return is_read && strcmp(of, boot) == 0;
}

static void write_offset(const char *path, const char *boot)
{
    char text[BOOT_BYTES + 40];
    rt_error error = {0};
    const int size = snprintf(text, sizeof text, "1 %s %" PRId64 "\n", boot, rt_clock_offset());
    if (rt_file_save(path, text, (size_t)size, &error))
        rt_warn("%s", error.text);
}

// Another boot, or another machine: what its clock of the day is worth.
static void go_on_from(int64_t last_ns)
{
    const int64_t passed = rt_day_ns() - last_ns;
    if (passed >= 0 && passed <= BELIEVED_NS) {
        rt_clock_set_offset(rt_day_ns() - (int64_t)rt_now_ns());
        return;
    }
    rt_clock_set_offset(last_ns - (int64_t)rt_now_ns());
    if (passed < -TOLD_NS || passed > 0)
        rt_warn("the clock of this machine is %.0f s %s the last event of the journal: what waits "
                "goes on as if no time had passed",
                fabs((double)passed * 1e-9), passed < 0 ? "before" : "after");
}

void rt_live_clock_resume(const char *folder, uint64_t last_ns)
{
    char path[RT_PATH_MAX + 16], boot[BOOT_BYTES];
    int64_t kept;
    snprintf(path, sizeof path, "%s/" NAME, folder);
    const bool has_boot = boot_of(boot);
    if (!atomic_exchange(&was_resumed, true)) {
        if (has_boot && read_offset(path, boot, &kept))
            rt_clock_set_offset(kept);
        else if (last_ns)
            go_on_from((int64_t)last_ns);
    }
    rt_clock_at_least(last_ns);
    if (has_boot)
        write_offset(path, boot);
}
