// one_by_one - threads that run one at a time, in an order that is always the same, and a clock
// that goes on only when somebody says so.
//
// For a test that is linked with $(ONE_BY_ONE) of mk/tests.mk. The thread of the case runs until it
// rests or waits itself; others run only then, the oldest first, each until it waits for another.
// What they do is then the same in every run, and so is what a record says of times. Threads that
// wait in the kernel (sockets, pipes) are not for this. A forked copy runs as usual, but as fast as
// it can: nothing waits for a disk.
#ifndef ONE_BY_ONE_H
#define ONE_BY_ONE_H

#include <stdint.h>

// Lets the others run until each of them waits for something that only the caller can bring about.
void one_by_one_rest(void);

// Waits for the processes that were started: each begins its work now at the earliest, and only
// from now on others see that it has ended.
void one_by_one_end_children(void);

// The clock goes on. It begins at 1,000 s, and in 2027. A look at it by another thread than the
// case's takes a microsecond.
void one_by_one_pass(uint64_t ns);

uint64_t one_by_one_now_ns(void);

#endif
