// cli_top - what `lanyard top` shows of a run, of a width that a terminal over ssh has.
#ifndef CLI_TOP_H
#define CLI_TOP_H

#include <cjson/cJSON.h>

#include "runtime/page/rt_page.h"

#define CLI_TOP_COLUMNS 80u

// status: what GET /status answers (docs/WATCHING.md); text: lines of CLI_TOP_COLUMNS characters at
// most, row_max of them at most.
void cli_top_draw(const cJSON *status, const char *source, uint32_t row_max, rt_page *text);

#endif
