// rt_spool - fills the spool of a feeder from files, Kafka, a file that grows. (What is sent to it
// is filled by rt_live.)
#ifndef RT_SPOOL_H
#define RT_SPOOL_H

#include "runtime/config/rt_config.h"
#include "runtime/live/rt_journal.h"

typedef struct rt_spool rt_spool;

// config is kept. directory: as rt_journal_place. wake_fd: an eventfd that is written when the
// input has ended. As rt_live_open.
rt_status rt_spool_open(const rt_config *config, rt_flow flow, const char *directory, int wake_fd,
                        rt_spool **spool_p, rt_error *error);
void rt_spool_close(rt_spool *spool); // NULL is fine

rt_journal *rt_spool_journal(const rt_spool *spool);

// The input has ended, and all of it is in the journal: RT_END. RT_OK: it goes on. Else it failed.
rt_status rt_spool_state(rt_spool *spool, rt_error *error);

#endif
