// rt_guess_parts - what the files of rt_guess share.
#ifndef RT_GUESS_PARTS_H
#define RT_GUESS_PARTS_H

#include "runtime/guess/rt_guess.h"
#include "runtime/stream/rt_columns.h"
#include "runtime/stream/rt_keyset.h"

// ---- letters, of ASCII alone, whatever the locale ----

static inline bool rt_guess_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline bool rt_guess_is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

static inline bool rt_guess_is_letter(char c)
{
    return rt_guess_is_upper((char)(c & ~0x20));
}

static inline char rt_guess_lower(char c)
{
    return rt_guess_is_upper(c) ? (char)(c | 0x20) : c;
}

// ---- the first lines of a file ----

typedef struct {
    char *bytes;      // a '\n' behind each line, padding behind all
    uint64_t *starts; // line_count + 1
    uint32_t line_count;
    uint32_t line_room;
    uint64_t size, room;
    bool is_whole;
} rt_guess_lines;

rt_status rt_guess_lines_read(const char *path, rt_guess_lines *lines, rt_error *error);
void rt_guess_lines_fini(rt_guess_lines *lines);
rt_cell rt_guess_line(const rt_guess_lines *lines, uint32_t index); // without its end

// ---- layout ----

typedef struct {
    rt_format format;
    char delimiter;
    bool has_quotes, has_header;
    char words[96];
} rt_guess_layout;

#define RT_GUESS_CELLS_MAX 4096u

// The cells of the record that begins at line *line_p, which is moved behind it: a quoted cell goes
// on over line ends. scratch holds what quotes are taken off: as many bytes as the record has, and
// one per cell. Returns the count of cells; 0: a quote is not closed, or text stands behind one.
uint32_t rt_guess_split(const rt_guess_layout *layout, const rt_guess_lines *lines,
                        uint32_t *line_p, rt_cell *cells, char *scratch);
#define RT_GUESS_SCRATCH (RT_LINES_JOINED_BYTES + RT_LINE_MAX + RT_GUESS_CELLS_MAX)

// RT_DATA: these are no rows, error says what they look like.
rt_status rt_guess_layout_find(const char *path, const rt_guess_lines *lines,
                               rt_guess_layout *layout, rt_error *error);

// ---- values ----

#define RT_GUESS_TOP 64u
#define RT_GUESS_ODD 4u
#define RT_GUESS_TEXT 48u
#define RT_GUESS_NUMBERS 512u
#define RT_GUESS_TIMES 96u
#define RT_GUESS_SEPARATORS 3u
#define RT_GUESS_NULLS 20u

// What may say of a row what its label says.
typedef enum {
    RT_GUESS_THERE,  // the cell is there
    RT_GUESS_TELLS,  // it is there, and neither 0 nor a no
    RT_GUESS_FIRST,  // it is the text that came first
    RT_GUESS_SPLITS, // their number
} rt_guess_split_by;

typedef struct {
    char text[RT_GUESS_TEXT];
    uint64_t count;
} rt_guess_value;

typedef struct {
    int64_t first_ms, last_ms;
    uint64_t missed;
    uint32_t hours; // mask
    bool is_dead;
} rt_guess_time;

typedef struct {
    char *name;
    uint64_t present, empty;
    uint64_t nulls[RT_GUESS_NULLS]; // of rt_guess_null, counted neither as present nor as empty
    rt_keyset distinct;
    rt_guess_value top[RT_GUESS_TOP]; // the first that came
    uint32_t top_count;
    uint64_t numbers[RT_NUMBER_SPACE_GROUPS + 1]; // by number_format
    rt_guess_value odd[RT_GUESS_ODD];             // texts that are no numbers, the first ones
    uint32_t odd_count;
    uint64_t odd_more; // beyond these
    uint64_t fractions, leading_zeros, negatives;
    double min, max, before;
    uint64_t rises, steps; // from one to the next: larger; by exactly one
    double sample[RT_GUESS_NUMBERS];
    uint64_t bytes, bytes_max, spaces;
    rt_guess_time times[RT_GUESS_TIMES];
    bool has_times; // some are alive
    uint64_t lists[RT_GUESS_SEPARATORS], parts[RT_GUESS_SEPARATORS];
    rt_keyset distinct_parts[RT_GUESS_SEPARATORS];
    uint64_t mails, addresses, phones;
    uint64_t arrays, array_values, array_max; // of JSON
    rt_keyset distinct_array;
    uint64_t nested, words;                 // arrays of arrays and objects; true and false
    uint64_t beyond;                        // whole numbers that JSON does not keep
    uint64_t dotted, grouped;               // with points; with points between thousands
    uint64_t splits[RT_GUESS_SPLITS][2][2]; // rows by rt_guess_splits, whether so, and by label
} rt_guess_values;

rt_status rt_guess_values_init(rt_guess_values *values, const char *name, size_t length);
void rt_guess_values_fini(rt_guess_values *values);
rt_status rt_guess_values_add(rt_guess_values *values, rt_cell cell);
rt_status rt_guess_values_add_array(rt_guess_values *values, const rt_cell *cells, uint32_t count);

bool rt_guess_time_format(uint32_t index, char format[RT_NAME_MAX]); // false: there is none
char rt_guess_separator(uint32_t index);
const char *rt_guess_null(uint32_t index, bool *is_sure_p); // NULL: there is none
int rt_guess_null_find(rt_cell cell);                       // -1: it is none

// ---- kinds ----

typedef struct {
    const rt_guess_layout *layout;
    rt_guess_values *values;
    uint32_t count;
    uint64_t row_count;
    bool has_comma; // some column has decimals behind a comma
} rt_guess_table;

bool rt_guess_has_word(const char *name, const char *words); // words: by spaces

// Which column is the label, and how: found, or as asked. RT_DATA: none is.
bool rt_guess_says_no(rt_cell cell);
rt_status rt_guess_label(const rt_guess_table *table, const char *asked, uint32_t *index_p,
                         rt_guess_column *column, rt_error *error);
// The share of rows that have no label, which column then says.
double rt_guess_unlabelled(const rt_guess_values *v, rt_guess_column *column);
void rt_guess_kind(const rt_guess_table *table, uint32_t index, rt_guess_column *column);

#endif
