// rt_pool - threads that share a piece of work, part by part.
//
// Whoever calls rt_pool_run works too. Between pieces that follow each other closely the threads
// spin for a moment, then they sleep. They take no signals.
#ifndef RT_POOL_H
#define RT_POOL_H

#include "runtime/rt_base.h"

typedef struct rt_pool rt_pool;
typedef void (*rt_pool_work)(void *context, uint32_t part);

// thread_count: with the caller, so 1 starts none; at most RT_THREADS_MAX. RT_NO_MEMORY,
// RT_LIMIT.
rt_status rt_pool_create(uint32_t thread_count, rt_pool **pool_p, rt_error *error);
void rt_pool_destroy(rt_pool *pool); // or NULL

uint32_t rt_pool_threads(const rt_pool *pool); // of NULL: 1

// Calls work(context, part) once for every part below part_count, on any thread and in any order,
// and returns when all have. Any thread may call; the threads work for one caller at a time, and
// one that comes meanwhile does its parts itself, as everybody does with the pool NULL. work may
// not call this, nor begin.
void rt_pool_run(rt_pool *pool, uint32_t part_count, rt_pool_work work, void *context);

// The same beside what the caller does next, which may be rt_pool_run: begin returns at once,
// threads that would wait take parts, small ones at best; end does what is left with them, and
// returns when all is done. There is one at a time. false: all parts are done already, by the
// caller, and nothing is to be ended.
bool rt_pool_begin(rt_pool *pool, uint32_t part_count, rt_pool_work work, void *context);
void rt_pool_end(rt_pool *pool);

#endif
