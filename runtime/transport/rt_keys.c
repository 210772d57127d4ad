#include "runtime/transport/rt_keys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "runtime/config/rt_address.h"

#define FILE_BYTES_MAX (64u << 10)
#define PUBLIC_WORDS "lanyard-public-key 1"
#define SECRET_WORDS "lanyard-secret-key 1"
#define PUBLIC_SUFFIX ".public"
#define SECRET_SUFFIX ".secret"
#define OTHERS_READ (S_IRWXG | S_IRWXO)
#define OTHERS_WRITE (S_IWGRP | S_IWOTH)

bool rt_key_name_is_valid(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789._-";
    size_t length = strlen(name);
    return length > 0 && length < RT_NAME_MAX && *name != '.' && strspn(name, allowed) == length;
}

static rt_status need_curve(rt_error *error)
{
    if (zmq_has("curve"))
        return RT_OK;
    return rt_fail(error, RT_UNSUPPORTED,
                   "this machine's libzmq was built without CURVE, so there can be no keys "
                   "(Debian's libzmq5 has it); security.insecure: true does without");
}

const char *rt_key_text(const uint8_t bytes[RT_KEY_BYTES], char text[RT_KEY_TEXT_SIZE])
{
    return zmq_z85_encode(text, bytes, RT_KEY_BYTES);
}

int rt_key_line(const rt_public_key *key, char *text, size_t size)
{
    char shown[RT_KEY_TEXT_SIZE];
    return snprintf(text, size, PUBLIC_WORDS " %s %s\n", key->name, rt_key_text(key->bytes, shown));
}

// ---- making ----------------------------------------------------------------------------------

static rt_status write_new(const char *path, mode_t mode, const char *line, rt_error *error)
{
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (file < 0 && errno == EEXIST)
        return rt_fail(error, RT_IO, "%s already exists, and Lanyard never overwrites keys", path);
    if (file < 0)
        return rt_fail(error, RT_IO, "cannot create %s: %s", path, strerror(errno));
    size_t length = strlen(line);
    bool written = write(file, line, length) == (ssize_t)length && fsync(file) == 0;
    int reason = errno;
    written = close(file) == 0 && written;
    if (written)
        return RT_OK;
    unlink(path);
    return rt_fail(error, RT_IO, "cannot write %s: %s", path, strerror(reason));
}

rt_status rt_keys_create(const char *directory, const char *name, rt_error *error)
{
    char public_text[RT_KEY_TEXT_SIZE], secret_text[RT_KEY_TEXT_SIZE], line[256];
    char public_path[RT_PATH_MAX + RT_NAME_MAX], secret_path[RT_PATH_MAX + RT_NAME_MAX];
    rt_status status = need_curve(error);
    if (status)
        return status;
    if (!rt_key_name_is_valid(name))
        return rt_fail(error, RT_CONFIG,
                       "\"%s\" is no name for a box, expected at most %d letters, digits, dots, "
                       "dashes, underscores",
                       name, RT_NAME_MAX - 1);
    if (strlen(directory) >= RT_PATH_MAX - 16)
        return rt_fail(error, RT_CONFIG, "%s: longer than %d bytes", directory, RT_PATH_MAX - 17);
    if (mkdir(directory, 0755) != 0 && errno != EEXIST)
        return rt_fail(error, RT_IO, "cannot create %s: %s", directory, strerror(errno));
    if (zmq_curve_keypair(public_text, secret_text) != 0)
        return rt_fail(error, RT_IO, "cannot make a key pair: %s", zmq_strerror(errno));
    snprintf(public_path, sizeof public_path, "%s/%s" PUBLIC_SUFFIX, directory, name);
    snprintf(secret_path, sizeof secret_path, "%s/%s" SECRET_SUFFIX, directory, name);
    snprintf(line, sizeof line, SECRET_WORDS " %s %s %s\n", name, public_text, secret_text);
    status = write_new(secret_path, S_IRUSR | S_IWUSR, line, error);
    if (!status) {
        snprintf(line, sizeof line, PUBLIC_WORDS " %s %s\n", name, public_text);
        status = write_new(public_path, 0644, line, error);
        if (status)
            unlink(secret_path);
    }
    explicit_bzero(secret_text, sizeof secret_text);
    explicit_bzero(line, sizeof line);
    return status;
}

// ---- reading ---------------------------------------------------------------------------------

// What a file may not be; forbidden: mode bits that make it useless as a secret or as a list.
static rt_status check_mode(const char *path, const struct stat *info, mode_t forbidden,
                            rt_error *error)
{
    if (info->st_uid != geteuid() && info->st_uid != 0)
        return rt_fail(error, RT_CONFIG,
                       "%s belongs to user %u, expected the one who runs this "
                       "(%u) or root",
                       path, info->st_uid, geteuid());
    if (!(info->st_mode & forbidden))
        return RT_OK;
    if (forbidden == OTHERS_READ)
        return rt_fail(error, RT_CONFIG, "%s has mode %04o, so others can read it: chmod 600 it",
                       path, info->st_mode & 07777);
    return rt_fail(error, RT_CONFIG, "%s has mode %04o, so others can change it: chmod go-w it",
                   path, info->st_mode & 07777);
}

static rt_status read_file(int file, const char *path, mode_t forbidden, char *text,
                           rt_error *error)
{
    struct stat info;
    text[0] = '\0';
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode))
        return rt_fail(error, RT_IO, "%s is not a regular file, expected a key file", path);
    rt_status status = check_mode(path, &info, forbidden, error);
    if (status)
        return status;
    const ssize_t got = read(file, text, FILE_BYTES_MAX);
    if (got < 0)
        return rt_fail(error, RT_IO, "cannot read %s: %s", path, strerror(errno));
    text[got] = '\0';
    if (got == FILE_BYTES_MAX || memchr(text, 0, (size_t)got))
        return rt_fail(error, RT_CONFIG, "%s is not a key file", path);
    return RT_OK;
}

static rt_status read_text(const char *path, mode_t forbidden, char *text, rt_error *error)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return rt_fail(error, RT_IO, "cannot open the key file %s: %s", path, strerror(errno));
    const rt_status status = read_file(file, path, forbidden, text, error);
    close(file);
    return status;
}

// Z85 names 85 characters; others make libzmq read outside of its table, or decode to nonsense.
static bool decode(const char *text, uint8_t bytes[RT_KEY_BYTES])
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 ".-:+=^!/*?&<>()[]{}@%$#";
    return strlen(text) == RT_KEY_TEXT_SIZE - 1 && strspn(text, digits) == RT_KEY_TEXT_SIZE - 1 &&
           zmq_z85_decode(bytes, text) != NULL;
}

// One line of a public key file or a list of them.
static rt_status parse_public(const char *path, unsigned number, const char *line,
                              rt_public_key *key, rt_error *error)
{
    char text[RT_KEY_TEXT_SIZE] = "", rest;
    *key = (rt_public_key){0};
    if (sscanf(line, PUBLIC_WORDS " %63s %40s %c", key->name, text, &rest) == 2 &&
        rt_key_name_is_valid(key->name) && decode(text, key->bytes))
        return RT_OK;
    return rt_fail(error, RT_CONFIG,
                   "%s:%u: expected \"" PUBLIC_WORDS " NAME KEY\", as `lanyard "
                   "keygen` writes it",
                   path, number);
}

static rt_status add_allowed(rt_keys *keys, const char *path, const rt_public_key *key,
                             rt_error *error)
{
    for (uint32_t i = 0; i < keys->allowed_count; i++) {
        const rt_public_key *other = &keys->allowed[i];
        if (strcmp(other->name, key->name) != 0)
            continue;
        if (memcmp(other->bytes, key->bytes, RT_KEY_BYTES) == 0)
            return RT_OK;
        return rt_fail(error, RT_CONFIG, "%s: a second, different key of box %s", path, key->name);
    }
    if (keys->allowed_count == RT_BOXES_MAX)
        return rt_fail(error, RT_LIMIT, "%s: more than %u boxes", path, RT_BOXES_MAX);
    keys->allowed[keys->allowed_count++] = *key;
    return RT_OK;
}

// All keys of a file into the list of those that may join.
static rt_status read_allowed(rt_keys *keys, const char *path, char *text, rt_error *error)
{
    rt_status status = read_text(path, OTHERS_WRITE, text, error);
    unsigned number = 0;
    if (status)
        return status;
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        rt_public_key key;
        number++;
        if (*line == '\0' || *line == '#')
            continue;
        status = parse_public(path, number, line, &key, error);
        if (status)
            return status;
        status = add_allowed(keys, path, &key, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static bool is_public_key(const char *name)
{
    const size_t length = strlen(name), suffix = strlen(PUBLIC_SUFFIX);
    return length > suffix && strcmp(name + length - suffix, PUBLIC_SUFFIX) == 0;
}

static rt_status read_allowed_files(rt_keys *keys, const char *path, DIR *directory, char *text,
                                    rt_error *error)
{
    char file[RT_PATH_MAX + 256];
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (!is_public_key(entry->d_name))
            continue;
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        rt_status status = read_allowed(keys, file, text, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status read_allowed_directory(rt_keys *keys, const char *path, char *text,
                                        rt_error *error)
{
    DIR *directory = opendir(path);
    if (!directory)
        return rt_fail(error, RT_IO, "cannot open security.allow %s: %s", path, strerror(errno));
    const rt_status status = read_allowed_files(keys, path, directory, text, error);
    closedir(directory);
    return status;
}

static rt_status load_allowed(rt_keys *keys, const char *path, char *text, rt_error *error)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return rt_fail(error, RT_IO, "security.allow: %s: %s", path, strerror(errno));
    rt_status status = check_mode(path, &info, OTHERS_WRITE, error);
    if (status)
        return status;
    if (S_ISDIR(info.st_mode))
        status = read_allowed_directory(keys, path, text, error);
    else
        status = read_allowed(keys, path, text, error);
    if (!status && keys->allowed_count == 0)
        return rt_fail(error, RT_CONFIG, "security.allow: %s has no key of any box", path);
    return status;
}

static rt_status load_secret(rt_keys *keys, const char *path, char *text, rt_error *error)
{
    char public_text[RT_KEY_TEXT_SIZE] = "", secret_text[RT_KEY_TEXT_SIZE] = "";
    char derived[RT_KEY_TEXT_SIZE] = "", rest;
    rt_status status = read_text(path, OTHERS_READ, text, error);
    if (status)
        return status;
    bool is_pair = sscanf(text, SECRET_WORDS " %63s %40s %40s %c", keys->own.name, public_text,
                          secret_text, &rest) == 3 &&
                   rt_key_name_is_valid(keys->own.name) && decode(public_text, keys->own.bytes) &&
                   decode(secret_text, keys->secret) &&
                   zmq_curve_public(derived, secret_text) == 0 && strcmp(derived, public_text) == 0;
    explicit_bzero(secret_text, sizeof secret_text);
    if (is_pair)
        return RT_OK;
    return rt_fail(error, RT_CONFIG,
                   "%s is no secret key, expected a file that `lanyard keygen` "
                   "wrote",
                   path);
}

static rt_status load_server(rt_public_key *key, const char *path, char *text, rt_error *error)
{
    rt_status status = read_text(path, OTHERS_WRITE, text, error);
    text[strcspn(text, "\n")] = '\0';
    if (status)
        return status;
    return parse_public(path, 1, text, key, error);
}

rt_status rt_keys_read_public(const char *path, rt_public_key *key, rt_error *error)
{
    rt_status status = need_curve(error);
    if (status)
        return status;
    char *text = rt_alloc(1, FILE_BYTES_MAX + 1);
    if (!text)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    status = load_server(key, path, text, error);
    rt_free(text);
    return status;
}

rt_status rt_key_parse(const char *name, const char *text, rt_public_key *key, rt_error *error)
{
    rt_public_key read = {0};
    if (!rt_key_name_is_valid(name) || !decode(text, read.bytes))
        return rt_fail(error, RT_CONFIG, "%.*s: expected a name and a public key in Z85",
                       (int)RT_NAME_MAX, name);
    snprintf(read.name, sizeof read.name, "%s", name);
    *key = read;
    return RT_OK;
}

// text: room for a file.
static rt_status load_all(const rt_config *config, rt_keys *keys, char *text, rt_error *error)
{
    rt_status status = need_curve(error);
    if (status)
        return status;
    status = load_secret(keys, config->security_key, text, error);
    if (status)
        return status;
    status = load_server(&keys->coordinator, config->security_server_key, text, error);
    if (status)
        return status;
    keys->standby = keys->coordinator;
    if (*config->security_standby_key)
        status = load_server(&keys->standby, config->security_standby_key, text, error);
    if (status)
        return status;
    return load_allowed(keys, config->security_allow, text, error);
}

rt_status rt_keys_load(const rt_config *config, rt_keys *keys, rt_error *error)
{
    memset(keys, 0, sizeof *keys);
    keys->is_insecure = config->security_insecure;
    if (config->security_insecure)
        rt_warn("security.insecure: whoever reaches this machine's network can join the run, read "
                "the data and change the model");
    if (!config->security_key[0])
        return RT_OK;
    char *text = rt_alloc(1, FILE_BYTES_MAX + 1);
    if (!text)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    rt_status status = load_all(config, keys, text, error);
    explicit_bzero(text, FILE_BYTES_MAX + 1);
    rt_free(text);
    keys->is_set = !status;
    if (status)
        rt_keys_clear(keys);
    return status;
}

// Keys are public: comparing them in constant time would hide nothing.
const char *rt_keys_find(const rt_keys *keys, const uint8_t bytes[RT_KEY_BYTES])
{
    if (memcmp(keys->own.bytes, bytes, RT_KEY_BYTES) == 0)
        return keys->own.name;
    for (uint32_t i = 0; i < keys->allowed_count; i++)
        if (memcmp(keys->allowed[i].bytes, bytes, RT_KEY_BYTES) == 0)
            return keys->allowed[i].name;
    return NULL;
}

void rt_keys_clear(rt_keys *keys)
{
    explicit_bzero(keys, sizeof *keys);
}
