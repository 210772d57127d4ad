// rt_json_cell - the cell that a number or a word of JSON is, in a sample that is trained as in one
// that is asked about: ids are hashes of it.
#ifndef RT_JSON_CELL_H
#define RT_JSON_CELL_H

#include <stdbool.h>

#define RT_JSON_INTEGER_MAX 9007199254740991.0 // 2^53 - 1: above, readers round integers
#define RT_JSON_CELL_BYTES 32u

// The digits of an integer below 2^53, else "%.17g". False: a number that readers of JSON do not
// agree on.
bool rt_json_cell_number(double number, char text[RT_JSON_CELL_BYTES]);

const char *rt_json_cell_word(bool is_true);

#endif
