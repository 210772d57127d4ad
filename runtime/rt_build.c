#include "runtime/rt_build.h"

#ifndef RT_COMMIT // the Makefile says
#define RT_COMMIT ""
#endif

_Static_assert(sizeof RT_PROGRAM_VERSION RT_COMMIT <= RT_BUILD_MAX, "it goes into a HELLO");

const char *rt_build(void)
{
    return RT_PROGRAM_VERSION RT_COMMIT;
}

rt_status rt_fail_format(rt_error *error, const char *name, unsigned format, unsigned newest,
                         const char *writer)
{
    return rt_fail(error, RT_UNSUPPORTED,
                   "%s has format %u, written by %s; this is lanyard %s, which reads up to %u",
                   name, format, writer ? writer : "another build", rt_build(), newest);
}
