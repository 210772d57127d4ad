// rt_keys - the key pair of this box and the keys of those that may join, from files.
//
// A box has one CURVE key pair in two files of one line each: NAME.public, which every box of the
// network gets, and NAME.secret, which stays where it was made and which nobody but its owner may
// read (the mode is checked at every use). A value; one thread fills it, any number may read it.
#ifndef RT_KEYS_H
#define RT_KEYS_H

#include "runtime/config/rt_config.h"

#define RT_KEY_BYTES 32u
#define RT_KEY_TEXT_SIZE 41u // in Z85 (ZeroMQ RFC 32), terminated
#define RT_BOXES_MAX 256u    // in the list of those that may join

typedef struct {
    char name[RT_NAME_MAX];
    uint8_t bytes[RT_KEY_BYTES];
} rt_public_key;

typedef struct {
    bool is_insecure; // other addresses than loopback may be used without keys
    bool is_set;      // there are keys: everything below holds, every TCP connection uses them
    rt_public_key own;
    uint8_t secret[RT_KEY_BYTES];
    rt_public_key coordinator;
    rt_public_key standby; // of the box that may take its place; where none is named, its own
    uint32_t allowed_count;
    rt_public_key allowed[RT_BOXES_MAX];
} rt_keys;

// Makes DIRECTORY/NAME.public and DIRECTORY/NAME.secret (and the directory, if its parent exists).
// Files that are there are never written over. RT_CONFIG: not a name of letters, digits, dots,
// dashes, underscores; RT_IO; RT_UNSUPPORTED: libzmq was built without CURVE.
rt_status rt_keys_create(const char *directory, const char *name, rt_error *error);

// Reads what "security" of a configuration names; RT_OK without keys where it names none. With
// security.insecure a warning is logged. RT_IO, RT_CONFIG: error names the file, and what to do.
rt_status rt_keys_load(const rt_config *config, rt_keys *keys, rt_error *error);

// The public key in a file that `lanyard keygen` wrote, which nobody but its owner may change.
// RT_IO, RT_CONFIG: error names the file.
rt_status rt_keys_read_public(const char *path, rt_public_key *key, rt_error *error);

// Of letters, digits, dots, dashes, underscores: fit for the name of a file.
bool rt_key_name_is_valid(const char *name);

// A key of its name and its text (rt_key_text). RT_CONFIG.
rt_status rt_key_parse(const char *name, const char *text, rt_public_key *key, rt_error *error);

// The name of the box with this key: this one, or one that may join; NULL: neither.
const char *rt_keys_find(const rt_keys *keys, const uint8_t bytes[RT_KEY_BYTES]);

// Overwrites the secret.
void rt_keys_clear(rt_keys *keys);

// The line of a public key file; returns its length.
int rt_key_line(const rt_public_key *key, char *text, size_t size);

// The key as people compare it. Returns text.
const char *rt_key_text(const uint8_t bytes[RT_KEY_BYTES], char text[RT_KEY_TEXT_SIZE]);

#endif
