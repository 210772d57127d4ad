#include "runtime/files/rt_manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/files/rt_file.h"
#include "runtime/rt_build.h"
#include "runtime/rt_hash.h"
#include "runtime/wire/rt_control.h"

#define BYTES_MAX (1u << 20)
#define FILE_BYTES_MAX (UINT64_C(1) << 50)
#define SIGNATURE ",\n  \"checksum\": \"" // then 16 digits, a quote, "\n}\n"

// ---- writing ---------------------------------------------------------------------------------

void rt_manifest_begin(rt_json *json, const char *kind, unsigned format)
{
    rt_json_init(json, 2);
    rt_json_begin_object(json, NULL);
    rt_json_u64(json, "format", format);
    rt_json_string(json, "kind", kind);
    rt_json_string(json, "build", rt_build());
}

void rt_manifest_put_hash(rt_json *json, const char *name, uint64_t hash)
{
    char text[32];
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    rt_json_string(json, name, text);
}

void rt_manifest_put_labels(rt_json *json, const rt_stream_config *stream)
{
    const uint32_t count = rt_config_label_count(stream);
    if (count == 1)
        return;
    rt_json_begin_array(json, "labels");
    for (uint32_t l = 0; l < count; l++)
        rt_json_string(json, NULL, rt_config_label(stream, l));
    rt_json_end_array(json);
}

void rt_manifest_put_part(rt_json *json, const char *name, const rt_manifest_part *part)
{
    rt_json_begin_object(json, NULL);
    rt_json_string(json, "name", name);
    rt_json_u64(json, "bytes", part->sum.bytes);
    if (part->has_hash)
        rt_manifest_put_hash(json, "hash", part->sum.hash);
    if (part->has_xxh3)
        rt_manifest_put_hash(json, "xxh3", part->xxh3);
    rt_json_end_object(json);
}

void rt_manifest_sign(const char *text, rt_bytes *bytes)
{
    char tail[64];
    size_t length = text ? strlen(text) : 0;
    bool is_open = false; // without its own last brace; the one before is its last member's
    while (length > 0 && (text[length - 1] == '\n' || (text[length - 1] == '}' && !is_open)))
        is_open |= text[--length] == '}';
    int size =
        snprintf(tail, sizeof tail, SIGNATURE "%016" PRIx64 "\"\n}\n", rt_hash_bytes(text, length));
    rt_bytes_put(bytes, text, length);
    rt_bytes_put(bytes, tail, (size_t)size);
}

static rt_status save_signed(const char *text, const char *folder, rt_error *error)
{
    char path[RT_FOLDER_MAX + 32];
    rt_bytes bytes = {0};
    rt_manifest_sign(text, &bytes);
    snprintf(path, sizeof path, "%s/" RT_MANIFEST_NAME, folder);
    rt_status status;
    if (!text || bytes.failed)
        status = rt_fail(error, RT_NO_MEMORY, "out of memory");
    else
        status = rt_file_save(path, bytes.data, bytes.size, error);
    rt_bytes_fini(&bytes);
    return status;
}

rt_status rt_manifest_write(rt_json *json, const char *folder, rt_error *error)
{
    rt_json_end_object(json);
    const rt_status status = save_signed(rt_json_text(json, NULL), folder, error);
    rt_json_fini(json);
    return status;
}

// ---- changing --------------------------------------------------------------------------------

bool rt_manifest_set_hash(cJSON *object, const char *name, uint64_t hash)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    cJSON_DeleteItemFromObjectCaseSensitive(object, name);
    return cJSON_AddStringToObject(object, name, text) != NULL;
}

bool rt_manifest_set_sum(cJSON *root, const char *name, const rt_file_sum *sum)
{
    cJSON *part;
    cJSON_ArrayForEach(part, cJSON_GetObjectItemCaseSensitive(root, "parts"))
    {
        const cJSON *its = cJSON_GetObjectItemCaseSensitive(part, "name");
        cJSON *bytes = cJSON_GetObjectItemCaseSensitive(part, "bytes");
        if (!cJSON_IsString(its) || strcmp(its->valuestring, name) != 0)
            continue;
        cJSON_SetNumberValue(bytes, (double)sum->bytes);
        return bytes && rt_manifest_set_hash(part, "hash", sum->hash);
    }
    return false;
}

rt_status rt_manifest_save(cJSON *root, const char *folder, rt_error *error)
{
    cJSON_DeleteItemFromObjectCaseSensitive(root, "checksum");
    char *text = cJSON_Print(root);
    for (char *tab = text; tab && (tab = strchr(tab, '\t'));)
        *tab = ' '; // as in other manifests; in strings they are escaped
    const rt_status status = save_signed(text, folder, error);
    cJSON_free(text);
    return status;
}

// ---- reading ---------------------------------------------------------------------------------

bool rt_manifest_u64(const cJSON *object, const char *name, uint64_t most, uint64_t *value_p)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (!(value >= 0 && value <= (double)most) || value != floor(value))
        return false;
    *value_p = (uint64_t)value;
    return true;
}

bool rt_manifest_u32(const cJSON *object, const char *name, uint64_t most, uint32_t *value_p)
{
    uint64_t value;
    if (!rt_manifest_u64(object, name, most, &value))
        return false;
    *value_p = (uint32_t)value;
    return true;
}

bool rt_manifest_hash(const cJSON *object, const char *name, uint64_t *hash_p)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    char *end;
    if (!cJSON_IsString(item) || strlen(item->valuestring) != 16)
        return false;
    *hash_p = strtoull(item->valuestring, &end, 16);
    return *end == '\0';
}

bool rt_manifest_part_of(const cJSON *root, const char *name, rt_manifest_part *part)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(root, "parts"))
    {
        const cJSON *own = cJSON_GetObjectItemCaseSensitive(one, "name");
        if (!cJSON_IsString(own) || strcmp(own->valuestring, name) != 0)
            continue;
        *part = (rt_manifest_part){0};
        part->has_hash = rt_manifest_hash(one, "hash", &part->sum.hash);
        part->has_xxh3 = rt_manifest_hash(one, "xxh3", &part->xxh3);
        return rt_manifest_u64(one, "bytes", FILE_BYTES_MAX, &part->sum.bytes) &&
               (part->has_hash || part->has_xxh3);
    }
    return false;
}

uint64_t rt_manifest_identity(const cJSON *root)
{
    const cJSON *trained = cJSON_GetObjectItemCaseSensitive(root, "trained_s");
    uint64_t origin, of[5];
    rt_manifest_part dense;
    if (rt_manifest_hash(root, "origin", &origin))
        return origin;
    if (!rt_manifest_hash(root, "run", &of[0]) || !cJSON_IsNumber(trained) ||
        !rt_manifest_u64(root, "iteration", UINT32_MAX, &of[1]) ||
        !rt_manifest_u64(root, "samples", UINT64_C(1) << 53, &of[2]) ||
        !rt_manifest_part_of(root, "dense.bin", &dense))
        return 0;
    memcpy(&of[3], &trained->valuedouble, sizeof of[3]);
    of[4] = dense.has_hash ? dense.sum.hash : dense.xxh3;
    return rt_hash_bytes(of, sizeof of);
}

static bool is_signed(const char *bytes, size_t size)
{
    const size_t tail = sizeof SIGNATURE - 1 + 16 + 4;
    char want[64];
    if (size < tail)
        return false;
    snprintf(want, sizeof want, SIGNATURE "%016" PRIx64 "\"\n}\n",
             rt_hash_bytes(bytes, size - tail));
    return memcmp(bytes + size - tail, want, tail) == 0;
}

static rt_status parse(const char *path, const char *bytes, size_t size, cJSON **root_p,
                       rt_error *error)
{
    uint64_t format = 0;
    if (size > BYTES_MAX || !is_signed(bytes, size))
        return rt_fail(error, RT_DATA, "%s is damaged", path);
    cJSON *root = cJSON_ParseWithLength(bytes, size);
    const bool has_format =
        cJSON_IsObject(root) && rt_manifest_u64(root, "format", UINT32_MAX, &format) && format >= 1;
    if (has_format && format <= RT_MANIFEST_FORMAT_STATE) {
        *root_p = root;
        return RT_OK;
    }
    rt_status status;
    if (has_format) {
        char writer[96];
        const cJSON *build = cJSON_GetObjectItemCaseSensitive(root, "build");
        snprintf(writer, sizeof writer, "lanyard %.64s",
                 cJSON_IsString(build) ? build->valuestring : "of an unknown build");
        status = rt_fail_format(error, path, (unsigned)format, RT_MANIFEST_FORMAT_STATE, writer);
    } else
        status = rt_fail(error, RT_DATA, "%s: no manifest", path);
    cJSON_Delete(root);
    return status;
}

rt_status rt_manifest_read(const char *folder, cJSON **root_p, rt_error *error)
{
    char path[RT_FOLDER_MAX + 32];
    if ((size_t)snprintf(path, sizeof path, "%s/" RT_MANIFEST_NAME, folder) >= sizeof path)
        return rt_fail(error, RT_CONFIG, "the path %s is too long", folder);
    FILE *file = fopen(path, "rbe");
    if (!file)
        return rt_fail(error, errno == ENOENT ? RT_NOT_FOUND : rt_status_of_errno(errno),
                       "cannot open %s: %s", path, strerror(errno));
    char *bytes = rt_alloc(BYTES_MAX + 2, 1);
    rt_status status = bytes ? RT_OK : rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    const size_t size = bytes ? fread(bytes, 1, BYTES_MAX + 1, file) : 0;
    if (!status && ferror(file))
        status = rt_fail(error, RT_IO, "cannot read %s: %s", path, strerror(errno));
    fclose(file);
    if (!status)
        status = parse(path, bytes, size, root_p, error);
    rt_free(bytes);
    return status;
}

// ---- checking --------------------------------------------------------------------------------

static rt_status sum_bytes(const char *path, FILE *file, rt_hasher *hasher, uint64_t *sum_p,
                           rt_error *error)
{
    const size_t size = 65536;
    uint8_t *block = rt_alloc(size, 1);
    if (!hasher || !block) {
        rt_free(block);
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    }
    for (size_t got; (got = fread(block, 1, size, file)) > 0;)
        rt_hasher_add(hasher, block, got);
    rt_free(block);
    if (ferror(file))
        return rt_fail(error, RT_IO, "cannot read %s: %s", path, strerror(errno));
    *sum_p = rt_hasher_sum(hasher);
    return RT_OK;
}

static rt_status sum_file(const char *path, uint64_t *sum_p, rt_error *error)
{
    FILE *file = fopen(path, "rbe");
    if (!file)
        return rt_fail(error, rt_status_of_errno(errno), "cannot open %s: %s", path,
                       strerror(errno));
    rt_hasher *hasher = rt_hasher_create();
    const rt_status status = sum_bytes(path, file, hasher, sum_p, error);
    rt_hasher_destroy(hasher);
    fclose(file);
    return status;
}

static rt_status check_part(const char *folder, const char *name, const rt_manifest_part *part,
                            rt_error *error)
{
    char path[RT_FOLDER_MAX + 96];
    struct stat info;
    uint64_t sum = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (stat(path, &info) != 0) {
        const int reason = errno;
        const rt_status status = reason == ENOENT ? RT_DATA : rt_status_of_errno(reason);
        return rt_fail(error, status, "%s, which %s/" RT_MANIFEST_NAME " names: %s", path, folder,
                       strerror(reason));
    }
    if ((uint64_t)info.st_size != part->sum.bytes)
        return rt_fail(error, RT_DATA,
                       "%s has %" PRIu64 " bytes, the manifest says %" PRIu64
                       ": it is not the file that belongs there",
                       path, (uint64_t)info.st_size, part->sum.bytes);
    if (!part->has_xxh3)
        return RT_OK;
    rt_status status = sum_file(path, &sum, error);
    if (!status && sum != part->xxh3)
        return rt_fail(error, RT_DATA,
                       "%s has the sum %016" PRIx64 ", the manifest says %016" PRIx64
                       ": it is damaged, or not the file that belongs there",
                       path, sum, part->xxh3);
    return status;
}

static rt_status check_parts(const char *folder, const cJSON *root, bool with_rows, rt_error *error)
{
    const cJSON *one, *parts = cJSON_GetObjectItemCaseSensitive(root, "parts");
    if (cJSON_GetArraySize(parts) == 0)
        return rt_fail(error, RT_DATA, "%s/" RT_MANIFEST_NAME " names no files", folder);
    cJSON_ArrayForEach(one, parts)
    {
        rt_manifest_part part;
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(one, "name");
        if (!cJSON_IsString(name) || strchr(name->valuestring, '/') ||
            !rt_manifest_part_of(root, name->valuestring, &part))
            return rt_fail(error, RT_DATA, "%s/" RT_MANIFEST_NAME " names a file without its sum",
                           folder);
        if (!with_rows && strncmp(name->valuestring, "rows-", 5) == 0)
            continue;
        rt_status status = check_part(folder, name->valuestring, &part, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status rt_manifest_check(const char *folder, const cJSON *root, rt_error *error)
{
    return check_parts(folder, root, true, error);
}

rt_status rt_manifest_check_without_rows(const char *folder, const cJSON *root, rt_error *error)
{
    return check_parts(folder, root, false, error);
}
