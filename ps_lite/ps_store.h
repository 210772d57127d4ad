// ps_store - the rows of a table on disk: a file without a name, mapped into memory.
//
// The kernel keeps in memory what is used, and writes and drops the rest when memory is short; so
// rows have addresses as those in memory have, and a row that is not there costs one read of a
// page. The file is no format: it ends with the process, and what lasts is written by checkpoints.
//
// A forked copy of the process must see the rows as they stood when it was made, but a shared
// mapping shows it every later write. So the process holds the store while a copy reads: its own
// writes then go to private pages, and the file stays as it was. Afterwards these pages are written
// to the file, a part at a time.
//
// One thread owns a store. A page that cannot be read later (a bad disk) ends the process with a
// message: there is no other answer to a load from memory that fails.
#ifndef PS_STORE_H
#define PS_STORE_H

#include "runtime/config/rt_config.h"

typedef struct ps_store ps_store;

// In a folder on a disk, which need not have room yet. bytes_max: address space that is set aside.
// RT_CONFIG: there is no such folder, or nothing can be written there; RT_NO_MEMORY.
rt_status ps_store_create(const char *folder, uint64_t bytes_max, ps_store **store_p,
                          rt_error *error);
// As the configuration says, for one shard; *store_p: NULL where rows are in memory.
rt_status ps_store_open(const rt_config *config, ps_store **store_p, rt_error *error);

void ps_store_destroy(ps_store *store); // also of NULL

// The next `bytes` of the store, behind those that it has; room on disk is taken at once.
// *bytes_p: NULL unless RT_OK. RT_IO: the disk is full, or its error; RT_LIMIT: beyond bytes_max.
rt_status ps_store_add(ps_store *store, uint64_t bytes, void **bytes_p, rt_error *error);

// Gives back the bytes from here on, an address that add has returned. While it is held the disk
// keeps them, and nothing may be added again before the copy has ended.
void ps_store_cut(ps_store *store, void *from);

// Starts reading `bytes` from here on, where they are not in memory.
void ps_store_will_need(const ps_store *store, const void *from, size_t bytes);

// Right after a fork, and before anything is written: writes are private from here on. On an error
// the copy must not go on. RT_NO_MEMORY.
rt_status ps_store_hold(ps_store *store, rt_error *error);

// Once the copy has ended: writes to the file what was written meanwhile. RT_OK: nothing is held
// any more; RT_AGAIN: there is more to do, call it again; RT_IO.
rt_status ps_store_release(ps_store *store, rt_error *error);

bool ps_store_is_held(const ps_store *store);
uint64_t ps_store_bytes(const ps_store *store); // on disk

#endif
