#include "runtime/http/rt_http_secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/rt_log.h"
#include "runtime/rt_locale.h"

#define FILE_BYTES_MAX ((size_t)64 << 10)
#define TOKEN_BYTES_MIN 16
#define SCHEME "Bearer "
#define BASIC "Basic "

static rt_status check_file(const char *key, const char *path, const struct stat *info,
                            bool is_secret, rt_error *error)
{
    if (!S_ISREG(info->st_mode))
        return rt_fail(error, RT_CONFIG, "%s: %s is not a regular file", key, path);
    if (info->st_uid != geteuid() && info->st_uid != 0)
        return rt_fail(error, RT_CONFIG,
                       "%s: %s belongs to user %u, expected the one who runs this (%u) or root",
                       key, path, info->st_uid, geteuid());
    if (is_secret && info->st_mode & (S_IRWXG | S_IRWXO))
        return rt_fail(error, RT_CONFIG,
                       "%s: %s has mode %04o, so others can read it: chmod 600 it", key, path,
                       info->st_mode & 07777);
    if ((size_t)info->st_size > FILE_BYTES_MAX)
        return rt_fail(error, RT_CONFIG, "%s: %s is longer than %zu bytes", key, path,
                       FILE_BYTES_MAX);
    return RT_OK;
}

static void clear(char **text_p)
{
    if (*text_p)
        explicit_bzero(*text_p, strlen(*text_p));
    rt_free(*text_p);
    *text_p = NULL;
}

static rt_status read_file(const char *key, const char *path, bool is_secret, char **text_p,
                           rt_error *error)
{
    struct stat info;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0 || fstat(file, &info) != 0) {
        const int reason = errno;
        if (file >= 0)
            close(file);
        return rt_fail(error, RT_IO, "%s: cannot open %s: %s", key, path, strerror(reason));
    }
    rt_status status = check_file(key, path, &info, is_secret, error);
    char *text = status ? NULL : rt_alloc(FILE_BYTES_MAX + 1, 1);
    if (!status && !text)
        status = rt_fail(error, RT_NO_MEMORY, "out of memory");
    if (!status && read(file, text, FILE_BYTES_MAX) < 0)
        status = rt_fail(error, RT_IO, "%s: cannot read %s: %s", key, path, strerror(errno));
    close(file);
    if (status)
        clear(&text);
    *text_p = text;
    return status;
}

rt_status rt_http_read_word(const char *key, const char *path, char **word_p, rt_error *error)
{
    char *text;
    rt_status status = read_file(key, path, true, &text, error);
    if (status)
        return status;
    const size_t length = strcspn(text, " \t\r\n");
    if (length > 0 && text[length + strspn(text + length, " \t\r\n")] == '\0') {
        text[length] = '\0';
        *word_p = text;
        return RT_OK;
    }
    clear(&text);
    return rt_fail(error, RT_CONFIG, "%s: %s: expected one word in one line", key, path);
}

static rt_status load_token(const char *path, char **token_p, rt_error *error)
{
    rt_status status = rt_http_read_word("security.token", path, token_p, error);
    if (status || strlen(*token_p) >= TOKEN_BYTES_MIN)
        return status;
    clear(token_p);
    return rt_fail(error, RT_CONFIG,
                   "security.token: %s: expected at least %d characters (openssl rand -hex 32)",
                   path, TOKEN_BYTES_MIN);
}

rt_status rt_http_secrets_load(const rt_http_config *config, bool is_loopback,
                               rt_http_secrets *secrets, rt_error *error)
{
    const bool has_tls = *config->certificate, has_token = *config->token;
    rt_status status = RT_OK;
    const bool has_key = *config->certificate_key != '\0';
    if (has_tls && !has_key)
        return rt_fail(error, RT_CONFIG,
                       "security.certificate_key is needed where security.certificate is given");
    if (has_key && !has_tls)
        return rt_fail(error, RT_CONFIG,
                       "security.certificate is needed where security.certificate_key is given");
    if (!is_loopback && !(has_tls && has_token) && !config->insecure)
        return rt_fail(error, RT_CONFIG,
                       "%s: %s can be reached from other machines: that needs "
                       "security.certificate, security.certificate_key and security.token, or "
                       "security.insecure: true",
                       config->key, config->address);
    if (!is_loopback && !(has_tls && has_token))
        rt_warn("security.insecure: whoever reaches %s can read and send what %s takes",
                config->address, config->name);
    if (has_token)
        status = load_token(config->token, &secrets->token, error);
    if (!status && has_tls)
        status = read_file("security.certificate", config->certificate, false,
                           &secrets->certificate, error);
    if (!status && has_tls)
        status = read_file("security.certificate_key", config->certificate_key, true, &secrets->key,
                           error);
    if (status)
        rt_http_secrets_clear(secrets);
    return status;
}

void rt_http_secrets_clear(rt_http_secrets *secrets)
{
    clear(&secrets->certificate);
    clear(&secrets->key);
    clear(&secrets->token);
}

// Of base64 as in RFC 4648; -1: no digit.
static int digit_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (!c)
        return -1;
    const char *at = strchr(digits, c);
    if (!at)
        return -1;
    return (int)(at - digits);
}

// The password of "NAME:PASSWORD" in base64 (RFC 7617), terminated; false: there is none.
static bool password_of(const char *coded, char *text, size_t size)
{
    uint32_t bits = 0, bit_count = 0;
    size_t length = 0;
    for (; digit_of(*coded) >= 0; coded++) {
        bits = bits << 6 | (uint32_t)digit_of(*coded);
        bit_count += 6;
        if (bit_count < 8)
            continue;
        bit_count -= 8;
        if (length + 1 == size)
            return false;
        text[length++] = (char)(bits >> bit_count & 0xff);
    }
    text[length] = '\0';
    const char *colon = strchr(text, ':');
    if (!colon)
        return false;
    memmove(text, colon + 1, strlen(colon + 1) + 1);
    return true;
}

// Takes as long whatever of a token is wrong.
static bool is_token(const char *want, const char *got)
{
    const size_t got_length = strlen(got), length = strlen(want);
    unsigned difference = got_length != length;
    for (size_t i = 0; i < length; i++)
        difference |= (unsigned char)want[i] ^ (unsigned char)got[got_length ? i % got_length : 0];
    return difference == 0;
}

bool rt_http_secrets_permit(const rt_http_secrets *secrets, const char *header, bool takes_password)
{
    char password[512];
    if (!secrets->token)
        return true;
    if (!header)
        return false;
    if (rt_locale_begins(header, SCHEME))
        return is_token(secrets->token, header + strlen(SCHEME));
    return takes_password && rt_locale_begins(header, BASIC) &&
           password_of(header + strlen(BASIC), password, sizeof password) &&
           is_token(secrets->token, password);
}
