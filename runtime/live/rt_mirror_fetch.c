// Bytes of a journal that come back from the standby: what is damaged here may be whole there.
#include "runtime/live/rt_mirror_parts.h"

rt_status rt_mirror_fetch_bytes(void *context, uint64_t segment, uint64_t offset, size_t size,
                                rt_bytes *to, rt_error *error)
{
    rt_mirror_flow *f = context;
    rt_mirror *m = f->mirror;
    rt_mirror_fetch one = {.flow = f->flow,
                           .segment = segment,
                           .offset = offset,
                           .size = rt_min_u64(size, RT_WIRE_MIRROR_BYTES_MAX),
                           .to = to,
                           .status = RT_AGAIN};
    pthread_mutex_lock(&m->lock);
    while (m->fetch && !m->stop) // the other journal's reader is served first
        pthread_cond_wait(&m->changed, &m->lock);
    const bool may_ask = m->runs && m->is_there && !m->stop;
    m->fetch = may_ask ? &one : m->fetch;
    pthread_mutex_unlock(&m->lock);
    if (!may_ask)
        return rt_fail(error, RT_PEER, "%s is away", m->address);
    rt_mirror_wake(m);
    pthread_mutex_lock(&m->lock);
    while (one.status == RT_AGAIN && m->is_there && !m->stop)
        pthread_cond_wait(&m->changed, &m->lock);
    while (one.is_under_way) // it writes to this
        pthread_cond_wait(&m->changed, &m->lock);
    m->fetch = NULL;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    if (one.status == RT_AGAIN)
        return rt_fail(error, RT_PEER, "%s went away", m->address);
    if (one.status)
        return rt_fail(error, one.status, "%s", one.error.text);
    return RT_OK;
}

rt_status rt_mirror_serve(rt_mirror *m, rt_error *error)
{
    rt_bytes got = {0};
    pthread_mutex_lock(&m->lock);
    rt_mirror_fetch *one = m->fetch;
    if (one && one->status == RT_AGAIN)
        one->is_under_way = true;
    else
        one = NULL;
    pthread_mutex_unlock(&m->lock);
    if (!one)
        return RT_OK;
    const rt_wire_mirror what = {.kind = RT_MIRROR_READ,
                                 .flow = one->flow,
                                 .id = m->id,
                                 .epoch = m->config.epoch,
                                 .number = one->segment,
                                 .offset = one->offset,
                                 .total = one->size};
    const rt_status status = rt_mirror_ask(m, &what, NULL, 0, &got, &one->error);
    if (!status)
        rt_bytes_put(one->to, got.data, got.size - 1); // a zero ends it
    rt_bytes_fini(&got);
    const bool is_told = status == RT_OK || status == RT_IO;
    if (!is_told)
        rt_fail(error, status, "%s", one->error.text);
    pthread_mutex_lock(&m->lock);
    one->status = status;
    one->is_under_way = false;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    return is_told ? RT_OK : status;
}
