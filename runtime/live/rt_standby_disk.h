// rt_standby_disk - what a standby keeps: segments of journals, checkpoints, and its own state.
#ifndef RT_STANDBY_DISK_H
#define RT_STANDBY_DISK_H

#include "runtime/live/rt_standby.h"
#include "runtime/stream/rt_position.h"
#include "runtime/wire/rt_bytes.h"
#include "runtime/wire/rt_control.h"

typedef struct {
    char directory[RT_PATH_MAX], checkpoints[RT_PATH_MAX];
    char journals[RT_FLOWS][RT_PATH_MAX + 16];
    uint64_t id; // 0: of no run yet
    rt_standby_state state;
    // The segment and the file that were written last.
    int segment_file, part_file;
    uint32_t segment_flow;
    uint64_t segment;
    char part[RT_PATH_MAX + 160];
} rt_standby_disk;

// Makes the folders. RT_CONFIG, RT_IO, RT_DATA.
rt_status rt_standby_disk_open(const rt_config *config, const char *directory,
                               const char *checkpoints, rt_standby_disk *disk, rt_error *error);
void rt_standby_disk_close(rt_standby_disk *disk);

// It follows this run from now on. RT_REFUSED: another one, or one of an epoch that is over.
rt_status rt_standby_disk_adopt(rt_standby_disk *disk, uint64_t id, uint32_t epoch,
                                rt_error *error);

// On disk before it returns. RT_REFUSED: nothing was ever copied.
rt_status rt_standby_disk_promote(rt_standby_disk *disk, rt_error *error);

// What is there, as the answer to BEGIN has it. RT_IO, RT_NO_MEMORY.
rt_status rt_standby_disk_list(rt_standby_disk *disk, rt_bytes *text, rt_error *error);

// What READ asks for is appended to `bytes`. RT_IO; RT_WIRE: what nobody may ask for; RT_NO_MEMORY.
rt_status rt_standby_disk_read(const rt_standby_disk *disk, const rt_wire_mirror *what,
                               rt_bytes *bytes, rt_error *error);

// Carries out a BLOCK, CUT, FILE or DROP. RT_IO; RT_WIRE: what nobody may ask for.
rt_status rt_standby_disk_take(rt_standby_disk *disk, const rt_wire_mirror *what,
                               const rt_reader *bytes, rt_error *error);

#endif
