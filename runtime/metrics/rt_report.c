#include "runtime/metrics/rt_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "runtime/rt_json.h"

#define WIDTH_MIN 9
#define NOTES_MAX 16u
#define NOTE_MAX 400u

typedef struct {
    char column[RT_REPORT_CELL_MAX];
    char text[RT_REPORT_CELL_MAX];
    double value;
    bool is_number;
    int width;
} cell;

struct rt_report {
    FILE *text;
    rt_json json;
    cell cells[RT_REPORT_COLUMNS_MAX];
    uint32_t cell_count;
    uint32_t row_count;
    char notes[NOTES_MAX][NOTE_MAX];
    uint32_t note_count;
    bool ended;
};

rt_status rt_report_create(FILE *text, rt_report **report_p)
{
    rt_report *report = rt_alloc(1, sizeof *report);
    if (!report)
        return RT_NO_MEMORY;
    report->text = text;
    rt_json_init(&report->json, 2);
    rt_json_begin_object(&report->json, NULL);
    *report_p = report;
    return RT_OK;
}

void rt_report_destroy(rt_report *report)
{
    if (!report)
        return;
    rt_json_fini(&report->json);
    rt_free(report);
}

void rt_report_begin(rt_report *report, const char *name, const char *title)
{
    report->cell_count = report->row_count = report->note_count = 0;
    rt_json_begin_object(&report->json, name);
    rt_json_string(&report->json, "title", title);
    rt_json_begin_array(&report->json, "rows");
    if (report->text)
        fprintf(report->text, "== %s\n", title);
}

static cell *next_cell(rt_report *report, const char *column)
{
    rt_assert(report->cell_count < RT_REPORT_COLUMNS_MAX);
    cell *one = &report->cells[report->cell_count++];
    rt_assert(report->row_count == 0 || strcmp(one->column, column) == 0);
    snprintf(one->column, sizeof one->column, "%s", column);
    return one;
}

void rt_report_text(rt_report *report, const char *column, const char *value)
{
    cell *one = next_cell(report, column);
    one->is_number = false;
    snprintf(one->text, sizeof one->text, "%s", value);
}

void rt_report_number(rt_report *report, const char *column, double value, uint32_t decimals)
{
    cell *one = next_cell(report, column);
    double scale = pow(10, decimals);
    one->is_number = true;
    one->value = round(value * scale) / scale; // of NaN: NaN
    if (isnan(value))
        snprintf(one->text, sizeof one->text, "-");
    else
        snprintf(one->text, sizeof one->text, "%.*f", (int)decimals, value);
}

static void print_row(rt_report *report)
{
    for (uint32_t i = 0; i < report->cell_count && report->row_count == 0; i++) {
        cell *one = &report->cells[i];
        size_t longer = rt_max_u64(strlen(one->column), strlen(one->text));
        one->width = (int)rt_max_u64(longer, WIDTH_MIN);
        fprintf(report->text, "%s%*s", i ? "  " : "", one->width, one->column);
    }
    if (report->row_count == 0)
        fputc('\n', report->text);
    for (uint32_t i = 0; i < report->cell_count; i++)
        fprintf(report->text, "%s%*s", i ? "  " : "", report->cells[i].width,
                report->cells[i].text);
    fputc('\n', report->text);
    fflush(report->text);
}

void rt_report_end_row(rt_report *report)
{
    if (report->text)
        print_row(report);
    rt_json_begin_object(&report->json, NULL);
    for (uint32_t i = 0; i < report->cell_count; i++) {
        const cell *one = &report->cells[i];
        if (one->is_number)
            rt_json_double(&report->json, one->column, one->value);
        else
            rt_json_string(&report->json, one->column, one->text);
    }
    rt_json_end_object(&report->json);
    report->row_count++;
    report->cell_count = 0;
}

void rt_report_note(rt_report *report, const char *format, ...)
{
    va_list arguments;
    rt_assert(report->note_count < NOTES_MAX);
    va_start(arguments, format);
    vsnprintf(report->notes[report->note_count++], NOTE_MAX, format, arguments);
    va_end(arguments);
}

void rt_report_end(rt_report *report)
{
    rt_json_end_array(&report->json);
    rt_json_begin_array(&report->json, "notes");
    for (uint32_t i = 0; i < report->note_count; i++) {
        rt_json_string(&report->json, NULL, report->notes[i]);
        if (report->text)
            fprintf(report->text, "   %s\n", report->notes[i]);
    }
    rt_json_end_array(&report->json);
    rt_json_end_object(&report->json);
    if (report->text)
        fputc('\n', report->text);
}

const char *rt_report_json(rt_report *report)
{
    if (!report->ended)
        rt_json_end_object(&report->json);
    report->ended = true;
    return rt_json_text(&report->json, NULL);
}
