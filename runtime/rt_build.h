// rt_build - which build of the program this is.
#ifndef RT_BUILD_H
#define RT_BUILD_H

#include "runtime/rt_status.h"

#define RT_PROGRAM_VERSION "0.2.0"
#define RT_PROGRAM_DATE "2026-11-22" // of the release, as in CHANGELOG.md
#define RT_BUILD_MAX 24u             // bytes, with the zero

// "0.2.0 (2e64674)": the release and the commit that it was built from, with a "+" where files were
// changed since; only the release where it was not built from a repository.
const char *rt_build(void);

// RT_UNSUPPORTED: what another build wrote is of a format that this one does not read. That is no
// damage, and whoever meets it leaves the file as it is. writer: that build, where it is known.
rt_status rt_fail_format(rt_error *error, const char *name, unsigned format, unsigned newest,
                         const char *writer);

#endif
