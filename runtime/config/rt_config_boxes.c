// "boxes": the machines of a site, and the keys that follow from them.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_address.h"
#include "runtime/config/rt_config_rows.h"
#include "runtime/rt_hash.h"

#define OBJECT rt_box_config

#define HOST_MAX 53u // with its port it is an address

const rt_config_choice rt_config_homes[] = {
    {"hashed", RT_HOMES_HASHED, "the shard is chosen by a hash of the key"},
    {"planned", RT_HOMES_PLANNED,
     "the shard on the box that trains the row first; the row moves with a worker that alone "
     "trains it"},
    {0},
};

static const rt_config_key box_members[] = {
    {ROW("name", RT_KEY_TEXT, NULL, "", "A unique name, for messages and metrics."),
     IN(1, RT_NAME_MAX - 1), .offset = OFFSET(name[0], char), .size = RT_NAME_MAX,
     .is_required = true},
    {ROW("gbps", RT_KEY_DOUBLE, NULL, "Gbit/s", "Rate of its link both ways; or"), ABOVE(0, 1e4),
     .offset = OFFSET(link.gbps_up, double), .also_offset = OFFSET(link.gbps_down, double),
     .is_short = true},
    DOUBLE("gbps_up", link.gbps_up, NULL, ABOVE(0, 1e4), "Gbit/s", "rate from the box, and"),
    DOUBLE("gbps_down", link.gbps_down, NULL, ABOVE(0, 1e4), "Gbit/s", "rate to the box."),
    U32("workers", worker_count, "1", IN(0, RT_WORKERS_MAX), "",
        "Workers on the box. Their ranks follow those of earlier boxes."),
    U32("shards", shard_count, "0", IN(0, RT_SHARDS_MAX), "",
        "Shards on the box. Their ranks follow those of earlier boxes."),
    {ROW("host", RT_KEY_TEXT, "\"\"", "",
         "Name or address of the box, for `network.ps`. Give it for all boxes with shards or for "
         "none. With none, shards tell the coordinator where they listen."),
     IN(0, HOST_MAX - 1), .offset = OFFSET(host[0], char), .size = HOST_MAX},
    U32("port", port, "7001", IN(1, 65535 - RT_SHARDS_MAX), "",
        "Port of its first shard; the others follow."),
    CHOICE("transport", link.transport, rt_network_transport, "\"ucx\"", rt_config_link_transports,
           "Transport of its workers, if `network.transport` is `mixed`."),
    BOOL("spare", spare, "false", "The box takes no part in a run until `lanyard add`."),
    {0},
};

static rt_status check_box(const void *element, const cJSON *value, const char *path,
                           rt_error *error)
{
    const rt_box_config *box = element;
    const rt_status status = rt_config_check_rates(element, value, path, error);
    if (status)
        return status;
    if (box->worker_count + box->shard_count == 0)
        return rt_fail(error, RT_CONFIG, "%s: box \"%s\" has neither a worker nor a shard", path,
                       box->name);
    return RT_OK;
}

// ---- what follows from boxes -----------------------------------------------------------------

// The box of one of those that boxes have so many of.
static uint32_t box_with(const rt_config *config, bool is_shard, uint32_t rank)
{
    uint32_t first = 0;
    for (uint32_t b = 0; b < config->box_count; b++) {
        if (is_shard)
            first += config->boxes[b].shard_count;
        else
            first += config->boxes[b].worker_count;
        if (rank < first)
            return b;
    }
    return RT_SITE_BOXES_MAX;
}

uint32_t rt_config_find_box(const rt_config *config, const char *name)
{
    uint32_t b = 0;
    while (b < config->box_count && strcmp(config->boxes[b].name, name) != 0)
        b++;
    return b;
}

uint32_t rt_config_box_of_worker(const rt_config *config, uint32_t worker)
{
    return box_with(config, false, worker);
}

uint32_t rt_config_box_of_shard(const rt_config *config, uint32_t shard)
{
    return box_with(config, true, shard);
}

const char *rt_config_host_of_worker(const rt_config *config, uint32_t worker)
{
    const uint32_t box = rt_config_box_of_worker(config, worker);
    if (box >= config->box_count)
        return "";
    return config->boxes[box].host;
}

uint64_t rt_config_first_boxes(const rt_config *config)
{
    uint64_t first = 0;
    for (uint32_t b = 0; b < config->box_count; b++)
        if (!config->boxes[b].spare)
            first |= rt_bit(b);
    return first;
}

void rt_config_members_of_boxes(const rt_config *config, uint64_t boxes, uint64_t *workers_p,
                                uint64_t *shards_p)
{
    *workers_p = *shards_p = 0;
    for (uint32_t w = 0; w < config->worker_count; w++)
        *workers_p |= (boxes >> rt_config_box_of_worker(config, w) & 1) << w;
    for (uint32_t s = 0; s < config->ps_shard_count; s++)
        *shards_p |= (boxes >> rt_config_box_of_shard(config, s) & 1) << s;
}

static void keep_shards(rt_config *config, uint64_t shards, uint32_t gone[RT_SITE_BOXES_MAX])
{
    uint32_t kept = 0, addresses = 0;
    for (uint32_t s = 0; s < config->ps_shard_count; s++) {
        if (!(shards >> s & 1)) {
            if (config->box_count)
                gone[rt_config_box_of_shard(config, s)]++;
            continue;
        }
        if (s < config->network_ps_count)
            memmove(config->network_ps[addresses++], config->network_ps[s], RT_NAME_MAX);
        kept++;
    }
    config->ps_shard_count = kept;
    config->network_ps_count = addresses;
    memset(config->network_ps[addresses], 0, (RT_SHARDS_MAX - addresses) * RT_NAME_MAX);
}

void rt_config_keep_members(rt_config *config, uint64_t workers, uint64_t shards)
{
    rt_links_config *links = &config->links;
    const uint64_t participants = config->dispatch.participant_mask;
    uint32_t kept = 0, gone[RT_SITE_BOXES_MAX] = {0}, gone_shards[RT_SITE_BOXES_MAX] = {0};
    config->dispatch.participant_mask = 0;
    for (uint32_t w = 0; w < config->worker_count; w++) {
        if (!(workers >> w & 1)) {
            if (config->box_count)
                gone[rt_config_box_of_worker(config, w)]++;
            continue;
        }
        config->dispatch.participant_mask |= (participants >> w & 1) << kept;
        links->workers[kept++] = links->workers[w];
    }
    keep_shards(config, shards, gone_shards);
    for (uint32_t b = 0; b < config->box_count; b++) {
        config->boxes[b].worker_count -= gone[b];
        config->boxes[b].shard_count -= gone_shards[b];
    }
    config->worker_count = kept;
    if (links->given_count > 0)
        links->given_count = kept;
}

void rt_config_leave_spares(rt_config *config)
{
    uint64_t workers, shards;
    if (config->box_count == 0)
        return;
    rt_config_members_of_boxes(config, rt_config_first_boxes(config), &workers, &shards);
    rt_config_keep_members(config, workers, shards);
}

// Into lists that are zero; what becomes of network.ps where no host is known is the caller's.
static void follow(const rt_box_config *boxes, uint32_t box_count, rt_config *config)
{
    uint32_t workers = 0, shards = 0;
    for (uint32_t b = 0; b < box_count; b++) {
        for (uint32_t i = 0; i < boxes[b].worker_count; i++)
            config->links.workers[workers++] = boxes[b].link;
        char host[RT_NAME_MAX];
        (void)rt_address_host(boxes[b].host, host, sizeof host);
        for (uint32_t i = 0; i < boxes[b].shard_count && boxes[b].host[0]; i++)
            (void)rt_address_join(host, boxes[b].port + i, config->network_ps[shards++],
                                  RT_NAME_MAX);
        if (!boxes[b].host[0])
            shards += boxes[b].shard_count;
    }
    config->worker_count = workers;
    config->links.given_count = workers;
    config->ps_shard_count = shards;
}

static bool has_hosts(const rt_box_config *boxes, uint32_t box_count)
{
    for (uint32_t b = 0; b < box_count; b++)
        if (boxes[b].shard_count && boxes[b].host[0])
            return true;
    return false;
}

// Every shard has an address where boxes have hosts.
static uint32_t address_count(const rt_config *config, bool have_hosts)
{
    if (!have_hosts)
        return 0;
    return config->ps_shard_count;
}

static rt_status check_all(const rt_box_config *boxes, uint32_t count, const char *path,
                           rt_error *error)
{
    const bool told = has_hosts(boxes, count);
    uint32_t workers = 0, shards = 0, first_workers = 0, first_shards = 0;
    for (uint32_t b = 0; b < count; b++) {
        workers += boxes[b].worker_count;
        shards += boxes[b].shard_count;
        if (!boxes[b].spare) {
            first_workers += boxes[b].worker_count;
            first_shards += boxes[b].shard_count;
        }
        if (told && boxes[b].shard_count && !boxes[b].host[0])
            return rt_fail(error, RT_CONFIG,
                           "%s[%" PRIu32 "]: box \"%s\" has shards and no \"host\", as others have",
                           path, b, boxes[b].name);
        for (uint32_t i = 0; i < b; i++)
            if (strcmp(boxes[i].name, boxes[b].name) == 0)
                return rt_fail(error, RT_CONFIG,
                               "%s[%" PRIu32 "]: \"%s\" is also the name of box %" PRIu32, path, b,
                               boxes[b].name, i);
    }
    if (workers == 0 || workers > RT_WORKERS_MAX || shards == 0 || shards > RT_SHARDS_MAX)
        return rt_fail(error, RT_CONFIG,
                       "%s: %" PRIu32 " workers and %" PRIu32
                       " shards, expected 1 to %u and 1 to %u",
                       path, workers, shards, RT_WORKERS_MAX, RT_SHARDS_MAX);
    const char *lacks = first_workers ? "shard" : "worker";
    if (first_workers == 0 || first_shards == 0)
        return rt_fail(error, RT_CONFIG, "%s: without the spare boxes there is no %s at the start",
                       path, lacks);
    return RT_OK;
}

static rt_status take_boxes(rt_config *config, const rt_config_elements *read, const char *path,
                            rt_error *error)
{
    const uint32_t count = read->count;
    if (count > 0) {
        const rt_status status = check_all(read->elements, count, path, error);
        if (status)
            return status;
    }
    config->box_count = count;
    memset(config->boxes, 0, sizeof config->boxes);
    memcpy(config->boxes, read->elements, count * sizeof *config->boxes);
    if (count == 0)
        return RT_OK;
    for (uint32_t j = 0; j < RT_WORKERS_MAX; j++)
        config->links.workers[j] = (rt_link_config){1, 1, RT_NETWORK_UCX};
    memset(config->network_ps, 0, sizeof config->network_ps);
    follow(config->boxes, count, config);
    config->network_ps_count = address_count(config, has_hosts(config->boxes, count));
    return RT_OK;
}

static void write_boxes(const rt_config *config, rt_json *json, const char *name)
{
    rt_json_begin_array(json, name);
    for (uint32_t b = 0; b < config->box_count; b++) {
        const rt_box_config *box = &config->boxes[b];
        if (box->worker_count + box->shard_count == 0)
            continue; // its worker was left out of this start (rt_config_keep_members)
        rt_json_begin_object(json, NULL);
        rt_config_members_write(box_members, box, NULL, json);
        rt_json_end_object(json);
    }
    rt_json_end_array(json);
}

_Static_assert(RT_SITE_BOXES_MAX == 64, "the text below says so");
const rt_config_list rt_config_boxes = {
    .expected = "a list of at most 64 objects",
    .count_max = RT_SITE_BOXES_MAX,
    .members = box_members,
    .kind = "box",
    .form = "an object",
    .check = check_box,
    .take = take_boxes,
    .write = write_boxes,
};

// ---- a box more ------------------------------------------------------------------------------

void rt_config_write_box(const rt_config *config, uint32_t box, rt_json *json, const char *key)
{
    rt_json_begin_object(json, key);
    rt_config_members_write(box_members, &config->boxes[box], "spare", json);
    rt_json_end_object(json);
}

uint64_t rt_config_hash_box(const rt_config *config, uint32_t box)
{
    rt_json json;
    size_t size;
    if (box >= config->box_count)
        return 0;
    rt_json_init(&json, 0);
    rt_config_write_box(config, box, &json, NULL);
    const char *text = rt_json_text(&json, &size);
    const uint64_t hash = text ? rt_hash_bytes(text, size) : 0;
    rt_json_fini(&json);
    return hash;
}

uint32_t rt_config_site_boxes(const rt_config *config)
{
    uint32_t count = config->box_count;
    while (count > 0 && config->boxes[count - 1].spare)
        count--;
    return count;
}

void rt_config_leave_last_spares(rt_config *config)
{
    uint64_t workers, shards;
    const uint32_t count = rt_config_site_boxes(config);
    if (count == config->box_count)
        return;
    rt_config_members_of_boxes(config, rt_bits_below(count), &workers, &shards);
    rt_config_keep_members(config, workers, shards);
    config->box_count = count;
}

// The list of those who take part is of those who are there; who comes later does, too.
static void add_participants(rt_config *config, uint32_t first)
{
    for (uint32_t w = first; w < config->worker_count; w++)
        if (config->dispatch.participants == RT_PARTICIPANTS_LIST)
            config->dispatch.participant_mask |= rt_bit(w);
}

static rt_status add_entry(rt_config *config, rt_box_config *entry, const char *path,
                           rt_error *error)
{
    rt_box_config boxes[RT_SITE_BOXES_MAX + 1];
    const uint32_t count = config->box_count, workers = config->worker_count;
    const bool had_hosts = has_hosts(config->boxes, count);
    entry->spare = true;
    memcpy(boxes, config->boxes, count * sizeof *boxes);
    boxes[count] = *entry;
    if (count == RT_SITE_BOXES_MAX)
        return rt_fail(error, RT_CONFIG, "boxes: there are %u already, there can be no more",
                       RT_SITE_BOXES_MAX);
    if (entry->shard_count && entry->host[0] && !had_hosts)
        return rt_fail(error, RT_CONFIG,
                       "%s: box \"%s\" has a \"host\" for its shards, the others have none", path,
                       entry->name);
    rt_status status = check_all(boxes, count + 1, "boxes", error);
    if (status)
        return status;
    config->boxes[count] = boxes[count];
    config->box_count = count + 1;
    follow(config->boxes, count + 1, config);
    config->network_ps_count = address_count(config, had_hosts);
    add_participants(config, workers);
    return RT_OK;
}

rt_status rt_config_add_box(rt_config *config, const char *text, rt_error *error)
{
    char path[RT_CONFIG_KEY_PATH_MAX];
    rt_box_config entry = {0};
    cJSON *json = cJSON_Parse(text);
    snprintf(path, sizeof path, "boxes[%" PRIu32 "]", config->box_count);
    if (!json)
        return rt_fail(error, RT_CONFIG, "%s: no JSON object", path);
    rt_status status = rt_config_entry_read(&rt_config_boxes, &entry, json, path, error);
    cJSON_Delete(json);
    if (status)
        return status;
    return add_entry(config, &entry, path, error);
}

// ---- what may not stand beside them ----------------------------------------------------------

static rt_status contradicts(const char *key, rt_error *error)
{
    return rt_fail(error, RT_CONFIG,
                   "%s: says something else than boxes, from which it follows; give one of the two",
                   key);
}

static bool same_links(const rt_config *config, const rt_config *other)
{
    if (config->links.given_count != other->links.given_count)
        return false;
    for (uint32_t j = 0; j < config->worker_count; j++) {
        const rt_link_config *a = &config->links.workers[j], *b = &other->links.workers[j];
        if (a->gbps_up != b->gbps_up || a->gbps_down != b->gbps_down ||
            a->transport != b->transport)
            return false;
    }
    return true;
}

static rt_status check_homes(const rt_config *config, rt_error *error)
{
    const struct {
        const char *key, *why;
        bool given;
    } others[] = {
        {rt_config_staleness_name(config), "several workers change copies of a row at once",
         config->consistency.bounded},
        {"dispatch.first_touch", "\"pull\" asks a shard before the row has a home",
         config->dispatch.first_touch == RT_FIRST_TOUCH_PULL},
    };
    if (config->ps_homes != RT_HOMES_PLANNED)
        return RT_OK;
    if (config->box_count == 0)
        return rt_fail(error, RT_CONFIG,
                       "ps.homes: \"planned\" needs to know which shard is on whose box: boxes");
    for (size_t i = 0; i < RT_COUNT_OF(others); i++)
        if (others[i].given)
            return rt_fail(error, RT_CONFIG, "%s: not with ps.homes \"planned\": %s", others[i].key,
                           others[i].why);
    return RT_OK;
}

rt_status rt_config_check_boxes(const rt_config *config, rt_error *error)
{
    rt_status status = check_homes(config, error);
    if (status || config->box_count == 0)
        return status;
    rt_config *expected = rt_alloc(1, sizeof *expected); // a few lists of it
    if (!expected)
        return RT_NO_MEMORY;
    follow(config->boxes, config->box_count, expected);
    const bool hosts = has_hosts(config->boxes, config->box_count);
    const char *key = NULL;
    if (config->worker_count != expected->worker_count)
        key = "workers";
    else if (config->ps_shard_count != expected->ps_shard_count)
        key = "ps.shards";
    else if (!same_links(config, expected))
        key = "links.workers";
    else if (config->links.ps_gbps > 0)
        key = "links.ps_gbps";
    else if (config->network_ps_count != address_count(config, hosts) ||
             memcmp(config->network_ps, expected->network_ps, sizeof config->network_ps) != 0)
        key = "network.ps";
    rt_free(expected);
    if (key)
        return contradicts(key, error);
    return RT_OK;
}
