// records - a file of what was recorded of something, and what is to be compared with it.
//
// A line "NAME: WHAT" for each, below it what was recorded, indented; lines with # and empty ones
// stay where they are. What depends on the machine is left out of what is recorded: names of
// builds, the last digits of numbers.
#ifndef RECORDS_H
#define RECORDS_H

#include "runtime/wire/rt_bytes.h"

#define RECORDS_LINE_BYTES 2048u

typedef struct {
    char *before; // comments and empty lines
    char name[64];
    char *line;
    char *recorded; // each line of it indented
} records_one;

typedef struct {
    records_one *of;
    uint32_t count, capacity;
} records_list;

void records_open(const char *path, records_list *list);
void records_save(const char *path, const records_list *list);
void records_close(records_list *list);

// What is to be recorded of a line (free); NULL: it could not be played.
typedef char *records_play(const char *line);

// The program of such a file: plays its lines, in as many cases as parts (at most 8), each of at
// most limit_s seconds (0: the usual), and compares; a case fails with those that differ printed.
// With LANYARD_UPDATE_GOLDEN it writes the file anew: all of it ("1"), or lines whose name has that
// in it.
int records_main(const char *path, uint32_t parts, unsigned limit_s, records_play *play, int argc,
                 char **argv);

// The program of a file of another layout: in as many cases as parts, checks every part.
int records_run(uint32_t parts, unsigned limit_s, void (*check)(uint32_t part), int argc,
                char **argv);

// What was put into a record (free), which ends with it.
char *records_text(rt_bytes *record);

// A whole file as text (free); NULL: it is not there.
char *records_read(const char *path);
void records_write(const char *path, const char *text);

// Lines that differ.
void records_print_difference(const char *recorded, const char *now);

// One more line of a record; what it says is made the same on every machine.
void records_put(rt_bytes *record, const char *format, ...) __attribute__((format(printf, 2, 3)));
// "WHAT: 3 lines HASH" of a text; and every line of it.
void records_put_hash(rt_bytes *record, const char *what, const char *text);
void records_put_lines(rt_bytes *record, const char *what, const char *text);
// A text without what depends on the machine; free.
char *records_normalise(const char *text);

#endif
