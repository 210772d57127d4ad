#include "runtime/rt_build.h"

#ifndef RT_COMMIT // the Makefile says
#define RT_COMMIT ""
#endif

_Static_assert(sizeof RT_PROGRAM_VERSION RT_COMMIT <= RT_BUILD_MAX, "it goes into a HELLO");

const char *rt_build(void)
{
    return RT_PROGRAM_VERSION RT_COMMIT;
}
