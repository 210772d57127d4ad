// rt_config_keys - the table behind rt_config: one row per key. Only rt_config*.c and its test
// include this.
//
// To add a key: a member in rt_config.h and a row in rt_config_keys.c, at its section. What a column
// or a box has is a key likewise, with its row in rt_config_columns.c or rt_config_boxes.c. To
// rename a key, or to take out a key or a value of a choice: its row, and a line in
// rt_config_renamed.c. To add a value to a choice (a policy, a solver): its enumerator and a line in
// its list of choices. Reading, checking, --set, completion, copying, the reference in
// docs/CONFIG.md and writing back all follow from the table; a row whose member has another type
// does not compile.
#ifndef RT_CONFIG_KEYS_H
#define RT_CONFIG_KEYS_H

#include <cjson/cJSON.h>
#include <stdio.h>

#include "runtime/config/rt_config.h"
#include "runtime/rt_json.h"

#define RT_CONFIG_KEY_PATH_MAX 128
#define RT_CONFIG_INTEGER_MAX 9007199254740991.0 // 2^53 - 1: JSON numbers are doubles

typedef enum {
    RT_KEY_BOOL,
    RT_KEY_U32,
    RT_KEY_U64,
    RT_KEY_FLOAT,
    RT_KEY_DOUBLE,
    RT_KEY_CHARACTER, // one byte of `characters`, or any but a quote and a line end
    RT_KEY_TEXT,      // zero-terminated, `size` bytes with the zero; at least `min` characters
    RT_KEY_CHOICE,    // an enum of int's size
    RT_KEY_LIST
} rt_config_key_type;

typedef struct {
    const char *name; // NULL ends a list of choices
    int value;
    const char *help;
} rt_config_choice;

typedef struct rt_config_key rt_config_key;

// What was read of a list, to be stored.
typedef struct {
    const void *elements;
    uint32_t count;
    bool is_alone;    // one element that stood in place of a list
    const char *word; // NULL, or one of the list's words, which did
} rt_config_elements;

// A list: what its elements are. They stand one after the other at the key's offset, key->size
// bytes each, and how many they are at its count_offset.
typedef struct {
    const char *expected; // after "expected", in errors and in the reference
    uint32_t count_min, count_max;
    const rt_config_key *element; // one that is no object; NULL: all are objects
    const rt_config_key *members; // of one that is an object, ends with path NULL; NULL: none is
    const char *kind;             // of what an element is, in errors: "is no column, expected ..."
    const char *form;
    bool is_owned;     // at the offset is a pointer to them, in a block of its own; NULL of none.
                       // Of texts these are pointers into the same block
    bool takes_one;    // an element may stand alone, with --set a bare word
    const char *rises; // what an element is called that has to be above the one before it
    const char *const *words; // may stand in place of a list; ends with NULL
    uint32_t entry_size;      // of an element while it is read, if not key->size
    // What members cannot say of one that was read. value: its object.
    rt_status (*check)(const void *element, const cJSON *value, const char *path, rt_error *error);
    // In place of storing and writing them as they are, where more follows from them. config is
    // unchanged on failure.
    rt_status (*take)(rt_config *config, const rt_config_elements *read, const char *path,
                      rt_error *error);
    void (*write)(const rt_config *config, rt_json *json, const char *name);
} rt_config_list;

struct rt_config_key {
    const char *path; // from the root by dots; of a member: its name
    rt_config_key_type type;
    bool min_excluded, max_excluded;
    bool is_required;     // members only
    bool is_brief;        // members only: not written where it is the default
    bool is_short;        // members only: never written; a short way to say what others say
    uint32_t offset;      // into rt_config, or into the element
    uint32_t also_offset; // RT_KEY_DOUBLE: the number is stored there, too; 0: nowhere
    uint32_t size;        // RT_KEY_TEXT, of an element of RT_KEY_LIST
    uint32_t count_offset;
    double min, max;      // numbers
    const char *fallback; // the default as JSON; of a member NULL: not given
    const char *unit;     // "" where there is none
    const char *help;
    const rt_config_choice *choices;
    const char *characters;
    const rt_config_list *list;
    const char *word; // numbers: may stand instead; sets the bool at word_offset, the number is max
    uint32_t word_offset;
};

typedef struct {
    const char *before, *now; // paths; before NULL ends the list, now NULL: the key is gone
    const char *was;          // of a key that is gone: the JSON of what happens now
    const char *instead;      // the same in words
} rt_config_renamed;
typedef struct {
    const char *path; // of a choice; NULL ends the list
    const char *before, *now;
} rt_config_replaced;
// rt_config_renamed.c, where a line is added with each change of a name.
extern const rt_config_renamed rt_config_renames[];
extern const rt_config_replaced rt_config_replacements[];

// rt_config_migrate.c: the path that a key has today.
const char *rt_config_current(const char *path);

// Whether there was such a key; then a warning, which begins with where (a file, "--set"), unless
// value is what happens now. value may be NULL.
bool rt_config_is_gone(const char *path, const cJSON *value, const char *where);

// The value that stands for one that is gone, with a warning that begins with where (NULL: none).
const char *rt_config_replace(const char *path, const char *value, const char *where);

// Puts values of renamed keys where they are now, replaces values that are gone, and leaves out
// keys that are gone; of each a warning that names file (NULL: none is needed). RT_CONFIG: both
// names are there. RT_NO_MEMORY.
rt_status rt_config_modernise(cJSON *tree, const char *file, rt_error *error);

// The value that --set gives to a path of today becomes a tree of today's names and values with
// nothing else in it. The tree is the caller's, also after a failure: RT_CONFIG, RT_NO_MEMORY.
rt_status rt_config_modernise_value(const char *path, cJSON **tree_p, rt_error *error);

// Takes "version" out of a file. RT_CONFIG: it is another one.
rt_status rt_config_check_version(cJSON *tree, rt_error *error);

// A tree that was modernised, as a file; free with rt_free. RT_NO_MEMORY.
rt_status rt_config_print_modern(cJSON *tree, char **json_p);

extern const rt_config_key rt_config_keys[];           // grouped by section; ends with path NULL
const rt_config_key *rt_config_find(const char *path); // NULL: no such key
bool rt_config_is_section(const char *path);

// One line per section that has one; NULL otherwise.
const char *rt_config_section_help(const char *section);

extern const rt_config_list rt_config_files, rt_config_dims, rt_config_mlp, rt_config_mlp_bottom,
    rt_config_shared, rt_config_columns, rt_config_libsvm_fields, rt_config_links, rt_config_shards,
    rt_config_boxes, rt_config_participants, rt_config_staleness;

// rt_config_lists.c: the list at base + key->offset. RT_CONFIG names path, or the element; it is
// unchanged then. RT_NO_MEMORY.
rt_status rt_config_list_read(const rt_config_key *key, void *base, const cJSON *value,
                              const char *path, rt_error *error);
void rt_config_list_write(const rt_config_key *key, const void *base, rt_json *json,
                          const char *name);

// An object of a list into element (its entry_size or key->size bytes, zero).
rt_status rt_config_entry_read(const rt_config_list *list, void *element, const cJSON *value,
                               const char *path, rt_error *error);

#define RT_CONFIG_ENTRY_MAX 2048 // bytes of an element
// Members of an element that are written: all but short ones, and brief ones only where they are
// not the default. but: one that is left away, or NULL.
void rt_config_members_write(const rt_config_key *members, const void *element, const char *but,
                             rt_json *json);

// Blocks that lists own: to, which was copied byte by byte, gets blocks of its own (on failure none
// of its own: RT_NO_MEMORY), or gives them back.
rt_status rt_config_lists_copy(const rt_config *from, rt_config *to);
void rt_config_lists_free(rt_config *config);

// Either "gbps", or "gbps_up" and "gbps_down" (rt_config_list.check).
rt_status rt_config_check_rates(const void *element, const cJSON *value, const char *path,
                                rt_error *error);

// rt_config_check.c: the key of consistency.staleness as a message names it: who did not give it is told its origin.
const char *rt_config_staleness_name(const rt_config *config);

// rt_config_boxes.c: what follows from "boxes" stands in the config, and nothing else. RT_CONFIG
// names the key that says something else.
rt_status rt_config_check_boxes(const rt_config *config, rt_error *error);

// rt_config_check_stream.c: where a run's samples come from, which a finished model does not ask.
// RT_CONFIG, RT_UNSUPPORTED.
rt_status rt_config_check_source(const rt_config *config, rt_error *error);

// Parts of rt_config_check_model: what samples look like; addresses, keys and messages
// (rt_config_check_network.c). RT_CONFIG.
rt_status rt_config_check_stream(const rt_config *config, rt_error *error);
rt_status rt_config_check_network(const rt_config *config, rt_error *error);
extern const rt_config_choice rt_config_homes[];
extern const rt_config_choice rt_config_link_transports[]; // of one worker or box

// rt_config_value.c: reads one value into base + offset (lists: base is the rt_config), writes it
// as member name, and says in words what is allowed. RT_CONFIG names path, RT_NO_MEMORY.
rt_status rt_config_value_read(const rt_config_key *key, void *base, const cJSON *value,
                               const char *path, rt_error *error);
void rt_config_value_write(const rt_config_key *key, const void *base, rt_json *json,
                           const char *name);
void rt_config_value_expected(const rt_config_key *key, char *text, size_t size);

// Sets every key that has a default to it.
rt_status rt_config_value_defaults(const rt_config_key *keys, void *base);

// Reads an object of members into base, over their defaults.
rt_status rt_config_members_read(const rt_config_key *members, void *base, const cJSON *object,
                                 const char *path, rt_error *error);

// RT_CONFIG if an earlier sibling has the name of value.
rt_status rt_config_reject_duplicate(const cJSON *object, const cJSON *value, const char *path,
                                     rt_error *error);

// RT_CONFIG: a value stands where the section path belongs. shown: the value as people see it;
// name: if it is one of the choices of a key in that section, the text names the key. NULL: no
// text.
rt_status rt_config_not_section(const char *path, const char *shown, const char *name,
                                rt_error *error);

// RT_CONFIG; the text names path and the nearest of keys, if one is near.
rt_status rt_config_unknown(const rt_config_key *keys, const char *path, rt_error *error);

// section.name, cut to the size; bytes that a terminal might obey become '?'.
void rt_config_join(char path[RT_CONFIG_KEY_PATH_MAX], const char *section, const char *name);

// What value is, in a few words and without bytes that a terminal might obey. Returns text.
#define RT_CONFIG_SHOWN_MAX 56
const char *rt_config_show(const cJSON *value, char text[RT_CONFIG_SHOWN_MAX]);
const char *rt_config_show_text(const char *bytes, char text[RT_CONFIG_SHOWN_MAX]);

// rt_config_document.c: how a reference of all keys is laid out.
typedef struct {
    void (*introduction)(FILE *out, const char *text); // Markdown
    // name "": top level; help may be NULL.
    void (*section)(FILE *out, const char *name, const char *help);
    void (*members)(FILE *out, const char *list); // those of the elements of a list follow
    void (*key)(FILE *out, const rt_config_key *key);
} rt_config_layout;

// The whole reference; free with rt_free. RT_NO_MEMORY.
rt_status rt_config_lay_out(const rt_config_layout *layout, char **text_p);
const char *rt_config_type_name(const rt_config_key *key);

// What is allowed, as far as the type does not say it: "", or in text.
#define RT_CONFIG_BOUNDS_MAX 256
const char *rt_config_bounds(const rt_config_key *key, char *text, size_t size);

// rt_config_text.c: parses size bytes of JSON; text[size] is 0. On RT_OK the tree is the caller's
// (cJSON_Delete). RT_CONFIG: error names line and column. RT_NO_MEMORY.
rt_status rt_config_parse(const char *text, size_t size, cJSON **tree_p, rt_error *error);

// What a list of columns leaves out, once all of it is read: a column that is made `from` another
// one's cell reads it as that one does; finds_by_name: cells have names, so that one which no
// column is named after is an ignored column before it. RT_NO_MEMORY.
rt_status rt_config_complete_columns(rt_table_config *table, bool finds_by_name);

#endif
