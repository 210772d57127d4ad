// rt_plugin - shared objects of ours that are opened at run time, so that the program needs none of
// the libraries that they link. They are never unloaded. Any thread.
#ifndef RT_PLUGIN_H
#define RT_PLUGIN_H

#include "runtime/rt_base.h"

// Loads file from the program's folder, from ../lib/lanyard beside that, or else from the loader's
// path; a file with a slash is a path. is_global: what it loads may use its symbols.
// RT_UNSUPPORTED: error says why not.
rt_status rt_plugin_load(const char *file, bool is_global, void **library_p, rt_error *error);

// Whether such a file is in one of the two folders. That it can be loaded is not said.
bool rt_plugin_is_there(const char *file);

#endif
