// cli_boxes - the boxes of a site as people and programs read of them.
#ifndef CLI_BOXES_H
#define CLI_BOXES_H

#include <stdio.h>

#include "dispatch/planner/dp_account.h"
#include "runtime/rt_json.h"

// What the links of boxes carry, per iteration of the account: "boxes" of a simulation. Nothing
// where boxes are not told.
void cli_boxes_write(rt_json *json, const dp_account *account, uint32_t box_count);

// The same as a table.
void cli_boxes_print(const char *title, const rt_config *config, const dp_account *account);

// What follows from "boxes": who is on each, and where its shards are found.
void cli_boxes_print_site(const rt_config *config, FILE *file);

#endif
