#include "runtime/rt_status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *rt_status_text(rt_status status)
{
    switch (status) {
#define XX(name, text) \
    case RT_##name:    \
        return text;
        RT_STATUS_MAP(XX)
#undef XX
    }
    return "unknown status";
}

bool rt_status_lasts(rt_status status)
{
    return status == RT_CONFIG || status == RT_DATA || status == RT_REFUSED ||
           status == RT_UNSUPPORTED;
}

rt_status rt_status_of_errno(int reason)
{
    if (reason == EACCES || reason == EPERM || reason == EROFS)
        return RT_CONFIG;
    return RT_IO;
}

rt_status rt_fail(rt_error *error, rt_status status, const char *format, ...)
{
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        error->status = status;
        vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
    }
    return status;
}

rt_status rt_fail_in(rt_error *error, const char *format, ...)
{
    char text[sizeof error->text];
    va_list arguments;
    va_start(arguments, format);
    int used = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (used < 0 || (size_t)used >= sizeof text)
        return error->status;
    snprintf(text + used, sizeof text - (size_t)used, ": %s", error->text);
    memcpy(error->text, text, sizeof text);
    return error->status;
}
