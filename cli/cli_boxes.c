#include "cli/cli_boxes.h"

#include <inttypes.h>
#include <math.h>

// Bytes and rows are means of an iteration, in both forms.
void cli_boxes_write(rt_json *json, const dp_account *account, uint32_t box_count)
{
    const double scale = 1.0 / (double)account->iterations;
    const dp_box_traffic *traffic = &account->boxes;
    if (box_count == 0)
        return;
    rt_json_begin_array(json, "boxes");
    for (uint32_t b = 0; b < box_count; b++) {
        rt_json_begin_object(json, NULL);
        rt_json_double(json, "bytes_up", (double)traffic->up[b] * scale);
        rt_json_double(json, "bytes_down", (double)traffic->down[b] * scale);
        rt_json_double(json, "rows_up", (double)traffic->rows_up[b] * scale);
        rt_json_double(json, "rows_down", (double)traffic->rows_down[b] * scale);
        rt_json_end_object(json);
    }
    rt_json_end_array(json);
    rt_json_double(json, "homes_moved", (double)account->moved * scale);
}

void cli_boxes_print(const char *title, const rt_config *config, const dp_account *account)
{
    const double scale = 1.0 / (double)account->iterations;
    const dp_box_traffic *traffic = &account->boxes;
    double busiest = 0, rows = 0;
    printf("%s: links of boxes, rows and MB up and down:\n", title);
    for (uint32_t b = 0; b < config->box_count; b++) {
        const double up = (double)traffic->rows_up[b] * scale;
        const double down = (double)traffic->rows_down[b] * scale;
        printf("  %-20s %8.0f %8.0f rows %9.3f %9.3f MB\n", config->boxes[b].name, up, down,
               (double)traffic->up[b] * 1e-6 * scale, (double)traffic->down[b] * 1e-6 * scale);
        busiest = fmax(busiest, fmax(up, down));
        rows += up;
    }
    printf("  %.0f rows on the busiest way, %.0f in all; %.0f change their home\n", busiest, rows,
           (double)account->moved * scale);
}

static void print_ranks(const char *what, uint32_t first, uint32_t count, FILE *file)
{
    if (count == 1)
        fprintf(file, ", %s %" PRIu32, what, first);
    else if (count)
        fprintf(file, ", %ss %" PRIu32 " to %" PRIu32, what, first, first + count - 1);
}

// Ranks go from box to box in the order of the configuration.
void cli_boxes_print_site(const rt_config *config, FILE *file)
{
    uint32_t worker = 0, shard = 0;
    for (uint32_t b = 0; b < config->box_count; b++) {
        const rt_box_config *box = &config->boxes[b];
        fprintf(file, "box %s: %g Gbit/s up, %g down", box->name, box->link.gbps_up,
                box->link.gbps_down);
        print_ranks("worker", worker, box->worker_count, file);
        print_ranks("shard", shard, box->shard_count, file);
        if (box->shard_count && config->network_ps_count)
            fprintf(file, " at %s", config->network_ps[shard]);
        fprintf(file, "\n");
        worker += box->worker_count;
        shard += box->shard_count;
    }
}
