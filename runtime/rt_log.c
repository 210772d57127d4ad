#include "runtime/rt_log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "runtime/rt_printable.h"

#define LIMIT_NS UINT64_C(5000000000)

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};
static _Atomic(rt_log_level) level_max = RT_LOG_INFO; // one that runs may be told another
static char process_name[32] = "lanyard";

void rt_log_setup(rt_log_level level, const char *name)
{
    level_max = level;
    snprintf(process_name, sizeof process_name, "%s", name);
}

void rt_log_set_level(rt_log_level level)
{
    level_max = level;
}

static struct {
    pthread_mutex_t lock;
    uint64_t count;
    char texts[RT_LOG_RECENT][RT_LOG_RECENT_BYTES];
} recent = {.lock = PTHREAD_MUTEX_INITIALIZER};

void rt_log_hold(void)
{
    pthread_mutex_lock(&recent.lock);
}

void rt_log_release(void)
{
    pthread_mutex_unlock(&recent.lock);
}

static void remember(const char *text)
{
    pthread_mutex_lock(&recent.lock);
    snprintf(recent.texts[recent.count++ % RT_LOG_RECENT], RT_LOG_RECENT_BYTES, "%s", text);
    pthread_mutex_unlock(&recent.lock);
}

uint32_t rt_log_recent(uint64_t *seen, char texts[RT_LOG_RECENT][RT_LOG_RECENT_BYTES])
{
    pthread_mutex_lock(&recent.lock);
    const uint64_t count = rt_min_u64(recent.count - *seen, RT_LOG_RECENT);
    for (uint64_t i = 0; i < count; i++)
        memcpy(texts[i], recent.texts[(recent.count - count + i) % RT_LOG_RECENT],
               RT_LOG_RECENT_BYTES);
    *seen = recent.count;
    pthread_mutex_unlock(&recent.lock);
    return (uint32_t)count;
}

void rt_log(rt_log_level level, const char *format, ...)
{
    if (level > level_max)
        return;
    char line[1024];
    int used;
    if (level <= RT_LOG_WARN)
        used = snprintf(line, sizeof line, "%s: %s: ", process_name, level_names[level]);
    else
        used = snprintf(line, sizeof line, "%s: ", process_name);
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, arguments);
    va_end(arguments);
    size_t length = (size_t)used;
    if (more > 0)
        length += (size_t)more;
    if (length > sizeof line - 2)
        length = sizeof line - 2;
    line[length] = '\0';
    rt_printable_clean(line); // what peers and files say is in it
    if (level <= RT_LOG_WARN)
        remember(line + used);
    line[length++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, length);
    (void)written; // there is nowhere left to report it
}

bool rt_log_due(rt_log_limit *limit, uint64_t *count_p)
{
    uint64_t now_ns = rt_now_ns();
    limit->count++;
    if (limit->logged_ns && now_ns - limit->logged_ns < LIMIT_NS)
        return false;
    *count_p = limit->count;
    *limit = (rt_log_limit){0, now_ns};
    return true;
}
