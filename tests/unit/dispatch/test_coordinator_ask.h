// test_coordinator_ask - what a visitor asks of the coordinator of test_coordinator_support, and
// what it is answered.
#ifndef TEST_COORDINATOR_ASK_H
#define TEST_COORDINATOR_ASK_H

#include "tests/unit/dispatch/test_coordinator_support.h"

#include "runtime/transport/rt_ask.h"

#define BOX(name, rest) "{\"name\":\"" name "\",\"gbps\":1" rest "}"

static UNUSED void ask(fixture *f, const char *request, rt_status want, const char *says)
{
    char text[RT_ASK_BYTES_MAX] = "";
    rt_error error = {0};
    const rt_ask_config config = {.ops = ops, .coordinator = f->address, .timeout_s = PATIENCE_S};
    const rt_status status = rt_ask(&config, request, text, &error);
    const char *answer = status ? error.text : text;
    if (status != want || strcmp(answer, says) != 0)
        fail_msg("%s\n%d: \"%s\", expected\n%d: \"%s\"", request, status, answer, want, says);
}

static UNUSED void refuse(fixture *f, const char *request, const char *says)
{
    ask(f, request, RT_REFUSED, says);
}

// One that is answered later.
typedef struct {
    pthread_t thread;
    fixture *f;
    const char *request;
    char text[RT_ASK_BYTES_MAX];
    rt_error error;
    rt_status status;
} question;

static UNUSED void *wait_for_answer(void *context)
{
    question *q = context;
    const rt_ask_config config = {
        .ops = ops, .coordinator = q->f->address, .timeout_s = PATIENCE_S};
    do {
        q->error = (rt_error){0};
        q->status = rt_ask(&config, q->request, q->text, &q->error);
    } while (q->status == RT_REFUSED && strstr(q->error.text, "ask again in a few seconds"));
    return NULL;
}

static UNUSED void begin_question(question *q, fixture *f, const char *request)
{
    *q = (question){.f = f, .request = request};
    assert_int_equal(pthread_create(&q->thread, NULL, wait_for_answer, q), 0);
}

// The answer has come.
static UNUSED void end_question(question *q, rt_status want, const char *says)
{
    pthread_join(q->thread, NULL);
    const char *answer = q->status ? q->error.text : q->text;
    if (q->status != want || strcmp(answer, says) != 0)
        fail_msg("%d: %s, expected %d: %s", q->status, answer, want, says);
}

#endif
