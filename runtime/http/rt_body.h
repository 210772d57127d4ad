// rt_body - the body of a request, as it comes.
//
// Memory is taken as bytes come, whatever was announced, and is the system's again once the body is
// gone: many large ones at once leave nothing behind. Plain value, zero-initialised; one thread.
#ifndef RT_BODY_H
#define RT_BODY_H

#include "runtime/rt_base.h"

typedef struct {
    char *bytes; // size of them, and a zero; NULL: none
    size_t size, capacity;
} rt_body;

// RT_NO_MEMORY: it is as before.
rt_status rt_body_add(rt_body *body, const char *part, size_t size);
void rt_body_fini(rt_body *body); // it is empty again

// What a body of that size takes: of a large one whole pages.
uint64_t rt_body_held(size_t size);

#endif
