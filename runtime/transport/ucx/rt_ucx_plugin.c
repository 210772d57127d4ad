// What liblanyard_ucx.so shows: one symbol (rt_ucx.h). What it needs of the runtime beside that is
// linked into it once more: those files have no state.
#include "runtime/transport/ucx/rt_ucx_plugin.h"

#include <stdarg.h>
#include <stdio.h>

#define LINE_BYTES 1024

const rt_ucx_host *rt_ucx_program;

static void begin(const rt_ucx_host *host)
{
    rt_ucx_program = host;
}

void rt_log(rt_log_level level, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    rt_ucx_program->log(level, "%s", line);
}

extern const rt_ucx_plugin lanyard_ucx_plugin;
__attribute__((visibility("default"))) const rt_ucx_plugin lanyard_ucx_plugin = {
    RT_UCX_ABI, &rt_transport_ucx, &rt_transport_mixed, begin};
