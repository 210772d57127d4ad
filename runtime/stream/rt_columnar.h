// rt_columnar - the rows of a file that holds columns (Parquet, Arrow), as lines of a table.
//
// lanyard-parquet, a program beside this one, reads the file and writes the lines. One thread.
#ifndef RT_COLUMNAR_H
#define RT_COLUMNAR_H

#include "runtime/rt_base.h"

#define RT_COLUMNAR_PROGRAM "lanyard-parquet"

typedef struct {
    int child; // 0: none
    int lines; // descriptor that the lines come from; -1: none
} rt_columnar;

#define RT_COLUMNAR_NONE ((rt_columnar){0, -1})

// Starts it on an open regular file, which is read from its beginning. RT_IO: error says why not.
rt_status rt_columnar_start(rt_columnar *columnar, int file, const char *name, rt_error *error);

// After the last line: whether there were no more. RT_DATA: it has failed, and said why.
rt_status rt_columnar_end(rt_columnar *columnar, const char *name, rt_error *error);

void rt_columnar_stop(rt_columnar *columnar); // also where there is none

#endif
