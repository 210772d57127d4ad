// Configuration: every key of the table, --set, checks, the reference.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/rt_config_keys.h"
#include "runtime/config/rt_formats.h"
#include "runtime/config/rt_models.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/config/rt_policies.h"
#include "runtime/config/rt_solvers.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

// The assignment fails with exactly this text, and the config stays as it was.
static void must_refuse(rt_config *config, const char *assignment, const char *text)
{
    rt_error error = {0};
    char *before = config_json(config);
    rt_status status = rt_config_set(config, assignment, &error);
    if (status != RT_CONFIG)
        fail_msg("%.80s: %s, expected a refusal", assignment, rt_status_text(status));
    assert_int_equal(error.status, RT_CONFIG);
    if (text)
        assert_string_equal(error.text, text);
    char *after = config_json(config);
    assert_string_equal(before, after);
    rt_free(before);
    rt_free(after);
}

static void test_defaults(void **state)
{
    (void)state;
    rt_config config;
    assert_int_equal(rt_config_init(&config), RT_OK);
    assert_int_equal(config.log_level, RT_LOG_INFO);
    assert_int_equal(config.worker_count, 1);
    assert_int_equal(config.batch_samples, 256);
    assert_int_equal(config.samples_per_worker, 0);
    assert_int_equal(config.stream.file_count, 0);
    assert_true(config.stream.malformed_share_max == 0.01);
    assert_int_equal(config.model.embedding_dim, 16);
    assert_int_equal(config.model.deep_input, RT_DEEP_ALL);
    assert_int_equal(config.model.mlp_layer_count, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(config.model.mlp[i], 256);
    assert_true(config.model.init_scale == 0.01);
    assert_true(config.model.base_rate_auto);
    assert_int_equal(config.stream.dense_scaling, RT_SCALING_STANDARD);
    assert_int_equal(config.optimizer_rows.kind, RT_OPTIMIZER_ADAGRAD);
    assert_true(config.optimizer_rows.learning_rate == 0.03f);
    assert_true(config.optimizer_dense.learning_rate == 0.005f);
    assert_true(config.optimizer_dense.epsilon == 1e-10f);
    assert_true(config.cache.ratio == 0.08);
    assert_int_equal(config.cache.eviction, RT_EVICT_EMARK);
    assert_true(config.dispatch.alpha == 1);
    assert_int_equal(config.dispatch.policy, RT_POLICY_ESD);
    assert_int_equal(config.dispatch.solver, RT_SOLVER_TRANSPORT);
    assert_int_equal(config.dispatch.view, RT_VIEW_AUTO);
    assert_int_equal(config.dispatch.first_touch, RT_FIRST_TOUCH_LOCAL);
    for (uint32_t i = 0; i < RT_WORKERS_MAX; i++) {
        assert_true(config.links.workers[i].gbps_up == 1);
        assert_true(config.links.workers[i].gbps_down == 1);
    }
    assert_int_equal(config.run_ahead, 2);
    assert_int_equal(config.ps_shard_count, 1);
    assert_true(config.ps_memory_bytes_max == UINT64_C(8) << 30);
    assert_string_equal(config.network_bind, "");
    assert_int_equal(config.network_message_bytes, 262144);
    assert_true(config.dispatch.alpha_share == 0.5 && config.optimizer_rows.epsilon == 1e-10f);
    assert_true(config.optimizer_dense.beta1 == 0.9f && config.optimizer_dense.beta2 == 0.999f);
    assert_true(config.optimizer_rows.beta == 1 && config.optimizer_dense.beta == 1);
    assert_true(config.timeout_peer_s == 5 && config.timeout_start_s == 30);
    assert_true(config.sim_dense && config.sim_warmup == 10);
    rt_config_fini(&config);
}

static void test_every_key_reaches_its_member(void **state)
{
    (void)state;
    rt_config c = config_load_everything();
    assert_int_equal(c.log_level, RT_LOG_TRACE);
    assert_true(c.metrics_bytes_max == 54321);
    assert_true(c.seed == UINT64_C(9007199254740991) && c.worker_count == 3);
    assert_int_equal(c.samples_per_worker, 17);
    assert_int_equal(c.stream.format, RT_FORMAT_TABLE);
    assert_int_equal(c.stream.file_count, 2);
    assert_string_equal(c.stream.files[0], "a,b.tsv");
    assert_string_equal(c.stream.files[1], "-");
    assert_true(c.stream.samples_max == 123 && c.stream.malformed_share_max == 0.125);
    assert_int_equal(c.stream.table.delimiter, '\t');
    assert_true(c.stream.table.has_header);
    assert_int_equal(c.stream.synthetic_shape, RT_SYNTHETIC_SEARCH);
    assert_true(c.stream.synthetic_scale == 0.5 && c.stream.synthetic_zipf == 1.5);
    assert_int_equal(c.stream.dense_scaling, RT_SCALING_NONE);
    assert_true(c.model.base_rate == 0.125 && !c.model.base_rate_auto);
    assert_true(c.stream.synthetic_clusters == 7 && c.stream.synthetic_drift == 0.375);
    assert_int_equal(c.model.kind, RT_MODEL_DLRM);
    assert_int_equal(c.model.embedding_dim, 48);
    assert_int_equal(c.model.deep_input, RT_DEEP_DENSE);
    assert_int_equal(c.model.pooling, RT_POOL_MEAN);
    assert_int_equal(c.model.mlp_layer_count, 2);
    assert_true(c.model.mlp[0] == 64 && c.model.mlp[1] == 32 && c.model.mlp[2] == 0);
    assert_true(c.model.init_scale == 0.0625);
    const rt_optimizer_config *r = &c.optimizer_rows, *d = &c.optimizer_dense;
    assert_true(r->kind == RT_OPTIMIZER_FTRL && d->kind == RT_OPTIMIZER_MOMENTUM);
    assert_true(r->learning_rate == 0.1f && d->learning_rate == 0.11f);
    assert_true(r->l1 == 0.6f && r->l2 == 0.7f && d->l2 == 0.71f);
    assert_true(r->clip_norm == 0.9f && d->clip_norm == 1.5f && d->warmup_iterations == 12);
    assert_true(d->decay == RT_DECAY_COSINE && d->decay_iterations == 345);
    assert_true(!c.guard_skip_bad_batches);
    assert_true(c.cache.rows == 1000 && c.cache.ratio == 0.75 && c.cache.distinct_keys == 4242);
    assert_int_equal(c.cache.eviction, RT_EVICT_LFU);
    assert_true(c.dispatch.policy == RT_POLICY_LAIA && c.dispatch.alpha == 0.25);
    assert_int_equal(c.dispatch.solver, RT_SOLVER_HUNGARIAN);
    assert_int_equal(c.dispatch.view, RT_VIEW_STRICT);
    assert_int_equal(c.dispatch.first_touch, RT_FIRST_TOUCH_PULL);
    assert_int_equal(c.links.given_count, 3);
    assert_true(c.links.workers[0].gbps_up == 2.5 && c.links.workers[0].gbps_down == 2.5);
    assert_true(c.links.workers[2].gbps_up == 1.5 && c.links.workers[2].gbps_down == 0.5);
    assert_int_equal(c.links.workers[0].transport, RT_NETWORK_UCX);
    assert_int_equal(c.links.workers[2].transport, RT_NETWORK_ZMQ);
    assert_int_equal(c.network_transport, RT_NETWORK_MIXED);
    assert_true(c.links.ps_gbps == 40 && c.planner_threads == 9 && c.ps_shard_count == 5);
    assert_int_equal(c.ps_memory_bytes_max, 2097152);
    assert_string_equal(c.network_bind, "10.0.0.1");
    assert_true(c.timeout_peer_s == 1.5 && c.timeout_start_s == 2.5);
    assert_true(c.sim_iterations == 77 && c.sim_warmup == 6 && !c.sim_dense);
    assert_true(c.compute_us_per_sample == 3.25 && c.sim_dispatch_error);
    assert_true(c.dispatch.budget_ms == 2.5);
    assert_true(!c.dispatch.measure_compute && !c.dispatch.alpha_auto);
    rt_config_fini(&c);
}

static void test_columns(void **state)
{
    (void)state;
    rt_config config = config_load_everything();
    const rt_column *columns = config.stream.table.columns;
    assert_int_equal(config.stream.table.column_count, 5);
    assert_string_equal(columns[0].name, "y");
    assert_int_equal(columns[0].kind, RT_COLUMN_LABEL);
    assert_int_equal(columns[0].label_rule, RT_LABEL_AT_LEAST);
    assert_string_equal(columns[0].label_value, "4");
    assert_int_equal(columns[1].kind, RT_COLUMN_DENSE);
    assert_int_equal(columns[1].transform, RT_TRANSFORM_LOG1P);
    assert_int_equal(columns[2].kind, RT_COLUMN_CATEGORICAL);
    assert_int_equal(columns[2].id, RT_ID_NUMBER);
    assert_int_equal(columns[3].kind, RT_COLUMN_MULTI);
    assert_int_equal(columns[3].separator, ';');
    assert_int_equal(columns[3].values_max, 5);
    assert_int_equal(columns[4].kind, RT_COLUMN_IGNORE); // the rest are defaults
    assert_int_equal(columns[4].label_rule, RT_LABEL_EQUALS);
    assert_string_equal(columns[4].label_value, "1");
    assert_int_equal(columns[4].transform, RT_TRANSFORM_NONE);
    assert_int_equal(columns[4].id, RT_ID_HASH);
    assert_int_equal(columns[4].separator, '|');
    assert_int_equal(columns[4].values_max, 8);
    rt_error error = {0};
    config.security_insecure = false;          // keys and their absence exclude each other,
    config.network_transport = RT_NETWORK_ZMQ; // keys and UCX as well
    config.box_count = 0;                      // and boxes what follows from others
    config.ps_homes = RT_HOMES_HASHED;
    if (rt_config_check(&config, &error))
        fail_msg("%s", error.text);
    rt_config_fini(&config);
}

// Number at a path of a config's JSON, found without the table.
static double number_at(const rt_config *config, const char *path)
{
    char *json = config_json(config), names[128];
    cJSON *tree = cJSON_Parse(json);
    const cJSON *node = tree;
    snprintf(names, sizeof names, "%s", path);
    for (char *name = strtok(names, "."); name; name = strtok(NULL, "."))
        node = cJSON_GetObjectItemCaseSensitive(node, name);
    assert_non_null(node);
    double number = node->valuedouble;
    cJSON_Delete(tree);
    rt_free(json);
    return number;
}

static void refuse_value(rt_config *config, const rt_config_key *key, const char *value)
{
    char assignment[2 * RT_PATH_MAX + 128], expected[256], want[400];
    rt_error error = {0};
    snprintf(assignment, sizeof assignment, "%s=%s", key->path, value);
    must_refuse(config, assignment, NULL);
    rt_config_set(config, assignment, &error);
    snprintf(want, sizeof want, "%s", key->path);
    if (strncmp(error.text, want, strlen(want)) != 0)
        fail_msg("%s: \"%s\" does not begin with the path", assignment, error.text);
    rt_config_value_expected(key, expected, sizeof expected);
    if (!strstr(error.text, expected))
        fail_msg("%s: \"%s\" does not say \"%s\"", assignment, error.text, expected);
}

static void check_number_key(rt_config *config, const rt_config_key *key)
{
    bool is_integer = key->type == RT_KEY_U32 || key->type == RT_KEY_U64;
    const double ends[2] = {key->min, key->max};
    const bool excluded[2] = {key->min_excluded, key->max_excluded};
    char text[32], assignment[256];
    for (int i = 0; i < 2; i++) {
        double step = is_integer ? 1 : fmax(fabs(ends[i]), 1) * 1e-6;
        rt_json_format_double(i == 0 ? ends[i] - step : ends[i] + step, text);
        refuse_value(config, key, text);
        rt_json_format_double(ends[i], text);
        if (excluded[i]) {
            refuse_value(config, key, text);
            rt_json_format_double(i == 0 ? ends[i] + step : ends[i] - step, text);
        }
        snprintf(assignment, sizeof assignment, "%s=%s", key->path, text);
        config_must_set(config, assignment);
        test_close(number_at(config, key->path), strtod(text, NULL), 1e-7, 0, key->path);
    }
    if (is_integer) {
        snprintf(text, sizeof text, "%.1f", key->min + 0.5);
        refuse_value(config, key, text);
    }
    refuse_value(config, key, "word");
    refuse_value(config, key, "");
    refuse_value(config, key, "1e999");
    refuse_value(config, key, "true");
}

static void check_text_key(rt_config *config, const rt_config_key *key)
{
    char value[2 * RT_PATH_MAX] = "", assignment[2 * RT_PATH_MAX + 128];
    memset(value, 'x', key->size);
    refuse_value(config, key, value);
    value[key->size - 1] = '\0';
    snprintf(assignment, sizeof assignment, "%s=%s", key->path, value);
    config_must_set(config, assignment);
    if (key->min > 0)
        refuse_value(config, key, "");
}

static void check_choice_key(rt_config *config, const rt_config_key *key)
{
    char assignment[256];
    for (const rt_config_choice *one = key->choices; one->name; one++) {
        snprintf(assignment, sizeof assignment, "%s=%s", key->path, one->name);
        config_must_set(config, assignment);
        assert_string_equal(rt_config_choice_name(key->path, one->value), one->name);
        assert_true(strlen(one->help) > 0);
    }
    refuse_value(config, key, "nothing-like-it");
    refuse_value(config, key, "");
    assert_null(rt_config_choice_name(key->path, 9999));
}

// A line for each name and value of before leads to one of today, which may have been in files.
static void test_what_was_before_leads_to_today(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    char assignment[256];
    for (const rt_config_renamed *one = rt_config_renames; one->before; one++) {
        cJSON *was = one->now ? NULL : cJSON_Parse(one->was);
        assert_null(rt_config_find(one->before));
        if (one->now ? !rt_config_find(one->now) : !was || !one->instead)
            fail_msg("%s leads nowhere", one->before);
        cJSON_Delete(was);
        snprintf(assignment, sizeof assignment, "%s=of another time", one->before);
        if (!one->now)
            config_must_set(&config, assignment);
    }
    for (const rt_config_replaced *one = rt_config_replacements; one->path; one++) {
        const rt_config_key *key = rt_config_find(one->path);
        assert_true(key && key->type == RT_KEY_CHOICE);
        for (const rt_config_choice *now = key->choices; now->name; now++)
            assert_string_not_equal(now->name, one->before);
        snprintf(assignment, sizeof assignment, "%s=%s", one->path, one->before);
        config_must_set(&config, assignment);
        int value;
        memcpy(&value, (const char *)&config + key->offset, sizeof value);
        assert_string_equal(rt_config_choice_name(one->path, value), one->now);
    }
    rt_config_fini(&config);
}

// Loops of tests run up to these: whoever adds a value adds it to its list.
static void test_counts_are_those_of_choices(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int count;
    } lists[] = {
        {"cache.eviction", RT_EVICT_AUTO + 1},
        {"dispatch.view", RT_VIEW_COUNT},
        {"dispatch.policy", RT_POLICY_COUNT},
        {"dispatch.solver", RT_SOLVER_COUNT},
        {"optimizer.dense.decay", RT_DECAY_COUNT},
        {"optimizer.dense.name", RT_OPTIMIZER_COUNT},
        {"network.row_wire", RT_CODING_COUNT},
        {"ps.homes", RT_HOMES_COUNT},
        {"model.name", RT_MODEL_COUNT},
    };
    for (size_t i = 0; i < RT_COUNT_OF(lists); i++) {
        for (int value = 0; value < lists[i].count; value++)
            if (!rt_config_choice_name(lists[i].path, value))
                fail_msg("%s: no choice stands for %d", lists[i].path, value);
        if (rt_config_choice_name(lists[i].path, lists[i].count))
            fail_msg("%s has more than %d choices", lists[i].path, lists[i].count);
    }
}

static void test_bounds_of_every_key(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    for (const rt_config_key *key = rt_config_keys; key->path; key++) {
        rt_error error = {0};
        char assignment[256];
        snprintf(assignment, sizeof assignment, "%s=%s", key->path, key->fallback);
        config_must_set(&config, assignment); // the default is allowed
        assert_true(strlen(key->path) < 64 && strlen(key->help) > 0 && key->unit);
        if (key->type == RT_KEY_TEXT)
            check_text_key(&config, key);
        else if (key->type == RT_KEY_CHOICE)
            check_choice_key(&config, key);
        else if (key->type == RT_KEY_CHARACTER || key->type == RT_KEY_BOOL)
            refuse_value(&config, key, "word");
        else if (key->type == RT_KEY_LIST)
            assert_int_equal(rt_config_set(&config, assignment, &error), RT_OK);
        else
            check_number_key(&config, key);
        if (key->type != RT_KEY_LIST) {
            // Through an object, so that --set does not turn the value into text.
            const char *dot = strrchr(key->path, '.');
            snprintf(assignment, sizeof assignment, "%.*s={\"%s\": [1]}",
                     dot ? (int)(dot - key->path) : 0, key->path, dot ? dot + 1 : key->path);
            if (dot)
                must_refuse(&config, assignment, NULL);
        }
    }
    rt_config_fini(&config);
}

// A row whose member belongs to another row would pass everything that goes through the table.
static void test_keys_do_not_share_members(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 4, 8, 4, 8, 1, 0, 4, 0};
    for (const rt_config_key *one = rt_config_keys; one->path; one++) {
        uint32_t size = one->type == RT_KEY_TEXT ? one->size : sizes[one->type];
        assert_true(one->offset + size <= sizeof(rt_config));
        for (const rt_config_key *other = rt_config_keys; other->path; other++) {
            if (other == one)
                continue;
            assert_string_not_equal(one->path, other->path);
            if (one->type != RT_KEY_LIST && other->type != RT_KEY_LIST &&
                other->offset >= one->offset && other->offset < one->offset + size)
                fail_msg("%s and %s share a member", one->path, other->path);
        }
    }
}

static void test_what_follows_from_keys(void **state)
{
    (void)state;
    static const double shares[][2] = {{0.01, 0.05}, {0.05, 0.05}, {0.2, 0.2}};
    for (size_t i = 0; i < RT_COUNT_OF(shares); i++) {
        rt_config config;
        char set[64];
        snprintf(set, sizeof set, "stream.malformed_share_max=%g", shares[i][0]);
        assert_int_equal(rt_config_open(config_write_file("malformed.json", "{}"),
                                        (const char *const[]){set}, 1, &config, NULL),
                         RT_OK);
        assert_true(config.alerts.malformed_share == shares[i][1]);
        rt_config_fini(&config);
    }
}

static void must_be(const rt_config *config, rt_eviction_kind eviction, bool bounded,
                    uint32_t staleness)
{
    assert_int_equal(config->cache.eviction, eviction);
    assert_int_equal(config->consistency.bounded, bounded);
    assert_int_equal(config->consistency.staleness, staleness);
}

// Whatever is set when; what is written says "auto", so that it follows again.
static void test_what_follows_from_het(void **state)
{
    (void)state;
    rt_config config = config_fresh(), again = config_fresh();
    must_be(&config, RT_EVICT_EMARK, false, 0);
    config_must_set(&config, "dispatch.policy=het");
    must_be(&config, RT_EVICT_LIGHT_LFU, true, RT_STALENESS_HET);
    char *json = config_json(&config);
    assert_int_equal(rt_config_load(&again, config_write_file("het.json", json), NULL), RT_OK);
    must_be(&again, RT_EVICT_LIGHT_LFU, true, RT_STALENESS_HET);
    config_must_set(&again, "dispatch.policy=laia");
    must_be(&again, RT_EVICT_EMARK, false, 0);
    config_must_set(&config, "cache.eviction=lfu");
    config_must_set(&config, "consistency.staleness=0");
    must_be(&config, RT_EVICT_LFU, true, 0);
    config_must_set(&config, "dispatch.policy=random");
    must_be(&config, RT_EVICT_LFU, true, 0);
    config_must_set(&config, "consistency.staleness=auto");
    must_be(&config, RT_EVICT_LFU, false, 0);
    rt_free(json);
    rt_config_fini(&config), rt_config_fini(&again);
}

static void test_round_trip(void **state)
{
    (void)state;
    rt_error error = {0};
    rt_config first = config_load_everything(), second = config_fresh();
    config_must_set(&first, "model.init_scale=0.30000000000000004");
    config_must_set(&first, "network.bind=\"a \\\"quoted\\\" \\u00e9 \\\\ name\"");
    char *json = config_json(&first);
    if (rt_config_load(&second, config_write_file("again.json", json), &error) != RT_OK)
        fail_msg("%s", error.text);
    char *again = config_json(&second);
    assert_string_equal(json, again);
    assert_true(second.model.init_scale == 0.30000000000000004);
    assert_string_equal(second.network_bind, "a \"quoted\" \xc3\xa9 \\ name");
    assert_memory_equal(first.stream.table.columns, second.stream.table.columns,
                        5 * sizeof(rt_column));
    assert_memory_equal(&first.links, &second.links, sizeof first.links);
    assert_memory_equal(&first.optimizer_rows, &second.optimizer_rows, sizeof first.optimizer_rows);
    rt_free(json);
    rt_free(again);
    rt_config_fini(&first);
    rt_config_fini(&second);
}

static void test_copy_is_deep(void **state)
{
    (void)state;
    rt_config config = config_load_everything(), copy;
    char *before = config_json(&config);
    assert_int_equal(rt_config_copy(&config, &copy), RT_OK);
    config_must_set(&copy, "stream.files=other");
    copy.stream.table.columns[0].kind = RT_COLUMN_IGNORE;
    char *after = config_json(&config);
    assert_string_equal(before, after);
    rt_config_fini(&config);
    assert_string_equal(copy.stream.files[0], "other");
    assert_int_equal(copy.stream.table.column_count, 5);
    rt_config_fini(&copy);
    rt_free(before);
    rt_free(after);
}

// "\\u0000" in a string is a backslash and five characters, no zero byte.
static void test_escaped_backslash(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    config_must_set(&config, "network={\"bind\": \"a\\\\u0000\"}");
    assert_string_equal(config.network_bind, "a\\u0000");
    rt_config_fini(&config);
}

static void test_set(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    config_must_set(&config, "dispatch.policy=laia");
    assert_int_equal(config.dispatch.policy, RT_POLICY_LAIA);
    config_must_set(&config, "dispatch.policy=\"random\"");
    assert_int_equal(config.dispatch.policy, RT_POLICY_RANDOM);
    config_must_set(&config, "dispatch={\"alpha\": 0.125, \"solver\": \"greedy\"}");
    assert_true(config.dispatch.alpha == 0.125 && config.dispatch.policy == RT_POLICY_RANDOM);
    config_must_set(&config, "workers= 1e1 ");
    assert_int_equal(config.worker_count, 10);
    config_must_set(&config, "sim.dense=false");
    assert_false(config.sim_dense);
    config_must_set(&config, "stream.table.delimiter=\t");
    assert_int_equal(config.stream.table.delimiter, '\t');
    config_must_set(&config, "stream.table.delimiter=\"\\t\"");
    config_must_set(&config, "network.bind=[::1]"); // text, although it looks like a list
    assert_string_equal(config.network_bind, "[::1]");
    config_must_set(&config, "network.bind=5");
    assert_string_equal(config.network_bind, "5");
    config_must_set(&config, "stream.files=a=b,c.tsv");
    assert_int_equal(config.stream.file_count, 1);
    assert_string_equal(config.stream.files[0], "a=b,c.tsv");
    config_must_set(&config, "stream.files=[\"a\", \"b\"]");
    assert_int_equal(config.stream.file_count, 2);
    config_must_set(&config, "stream.files=[]");
    assert_int_equal(config.stream.file_count, 0);
    config_must_set(&config, "model.mlp=[8]");
    assert_int_equal(config.model.mlp_layer_count, 1);
    config_must_set(&config, "links.workers=[{\"count\": 9, \"gbps\": 5}, 0.5]");
    assert_true(config.links.given_count == 10 && config.links.workers[8].gbps_up == 5);
    assert_true(config.links.workers[9].gbps_down == 0.5);
    config_must_set(&config, "links.workers=[]"); // back to the default
    assert_true(config.links.given_count == 0 && config.links.workers[63].gbps_up == 1);
    rt_config_fini(&config);
}

static void test_set_errors(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    must_refuse(&config, "workers", "\"workers\" is not an assignment, expected key=value");
    must_refuse(&config, "", "\"\" is not an assignment, expected key=value");
    must_refuse(&config, "=4", "\"=4\" is not an assignment, expected key=value");
    must_refuse(&config,
                "workers=", "workers: \"\" is not a number, expected an integer in [1, 64]");
    must_refuse(&config, "workers=four",
                "workers: \"four\" is not a number, expected an integer in [1, 64]");
    must_refuse(&config, "dispatch.alhpa=1",
                "dispatch.alhpa: unknown key, did you mean \"dispatch.alpha\"?");
    must_refuse(&config, "dispatch={\"policy\": \"laia\", \"alpha\": 2}",
                "dispatch.alpha: 2 is out of range, expected a number in [0, 1], or \"auto\"");
    must_refuse(&config, "dispatch=laia",
                "dispatch: is a section, not a key with a value (\"laia\"); did you mean "
                "\"dispatch.policy\"?");
    must_refuse(&config, "model.mlp=[1,",
                "model.mlp: value: line 1, column 4: the text ends in the middle of a JSON value");
    must_refuse(&config, "network.bind=\"x",
                "network.bind: value: line 1, column 2: not JSON from here on: \"x\"");
    must_refuse(&config, "network.bind=\xc3", "network.bind: value: not UTF-8 text");
    must_refuse(&config, "include=a.json", "include: only a file can include another");
    must_refuse(&config, "model.mlp=256",
                "model.mlp: 256 is not a list, expected a list of 1 to 8 integers in [1, 65536]");
    rt_config_fini(&config);
}

static void check_says(const char *const *assignments, const char *text)
{
    rt_config config = config_fresh();
    rt_error error = {0};
    for (; *assignments; assignments++)
        config_must_set(&config, *assignments);
    assert_int_equal(rt_config_check(&config, &error), text ? RT_CONFIG : RT_OK);
    if (text)
        assert_string_equal(error.text, text);
    rt_config_fini(&config);
}

#define SET(...) ((const char *const[]){__VA_ARGS__, NULL})
#define LABEL "{\"name\":\"y\",\"kind\":\"label\"}"
#define TABLE "stream.format=table", "stream.files=x"

static void test_check(void **state)
{
    (void)state;
    check_says(SET("stream.files=x"), NULL);
    check_says(SET("seed=1"), "stream.files: no input given, expected a file or \"-\" "
                              "(standard input)");
    check_says(SET("stream.files=[\"-\",\"-\"]", "cache.rows=1"),
               "stream.files: standard input can be read only once");
    check_says(SET("stream.files=x", "workers=2", "links.workers=[1,2,3]"),
               "links.workers: 3 links, expected one for each of the 2 workers");
    check_says(SET("stream.files=x", "cache.rows=1", "links.workers=[1,2,3]"), NULL);
    check_says(SET("stream.files=x", "links.workers=[1,2,3]", "workers=3"), NULL);
    check_says(SET("stream.files=-"), NULL);
    check_says(SET("stream.files=-", "cache.rows=10"), NULL);
    check_says(SET("stream.files=-", "cache.distinct_keys=10"), NULL);
    check_says(SET("stream.format=synthetic"), NULL);
    check_says(SET("stream.format=synthetic", "stream.samples_max=5"), NULL);
    check_says(SET("stream.files=x", "sim.iterations=10"),
               "sim.warmup: 10 iterations leave none of the 10 of sim.iterations");
    check_says(SET("stream.files=x", "sim.iterations=11"), NULL);
    check_says(SET("stream.files=x", "optimizer.dense.name=ftrl", "optimizer.dense.decay=linear"),
               "optimizer.dense.decay: ftrl has a learning rate of its own for every weight");
    check_says(
        SET("stream.files=x", "optimizer.dense.name=ftrl", "optimizer.dense.warmup_iterations=1"),
        "optimizer.dense.warmup_iterations: ftrl has a learning rate of its own for every "
        "weight");
    check_says(SET("stream.files=x", "optimizer.dense.warmup_iterations=1"), NULL);
}

static void test_check_of_tables(void **state)
{
    (void)state;
    check_says(SET(TABLE), "stream.table.columns: 0 columns of kind \"label\", expected one");
    check_says(
        SET(TABLE, "stream.join.columns=[" LABEL "]"),
        "stream.table.columns: 0 columns of kind \"label\", expected one; or, for labels that "
        "come later, stream.join.source or stream.join.outcomes");
    check_says(SET(TABLE, "stream.table.columns=[" LABEL "]"),
               "stream.table.columns: 0 columns of kind \"categorical\" or \"multi\", expected "
               "1 to 256");
    check_says(SET(TABLE, "stream.table.columns=[" LABEL ",{\"kind\":\"categorical\"}]"), NULL);
    check_says(SET(TABLE, "stream.table.columns=[" LABEL "," LABEL "]"),
               "stream.table.columns[1].name: column 0 has the same name");
    check_says(SET(TABLE, "stream.table.columns=[" LABEL
                          ",{\"kind\":\"label\"},{\"kind\":\"categorical\"}]"),
               "stream.table.columns[1].name: is needed where there are several labels");
    check_says(
        SET(TABLE, "stream.table.columns=[" LABEL ",{\"kind\":\"multi\",\"separator\":\",\"}]"),
        "stream.table.columns[1].separator: is also stream.table.delimiter");
    check_says(SET(TABLE, "stream.table.delimiter=\t",
                   "stream.table.columns=[" LABEL ",{\"kind\":\"multi\",\"separator\":\",\"}]"),
               NULL);
    check_says(SET(TABLE, "stream.table.columns=[{\"kind\":\"label\",\"rule\":\"at_least\","
                          "\"value\":\"4x\"},{\"kind\":\"categorical\"}]"),
               "stream.table.columns[0].value: \"4x\" is not a number, as \"at_least\" needs");
    check_says(SET(TABLE, "stream.table.columns=[{\"kind\":\"label\",\"rule\":\"at_least\","
                          "\"value\":\"-4.5\"},{\"kind\":\"categorical\"}]"),
               NULL);
}

// What a sample's node and its neighbours are to a graph's model; of theirs there may be many.
static void test_check_of_nodes(void **state)
{
    (void)state;
#define NODES(second)                                                                      \
    TABLE, "model.name=graphsage", "model.fan_out=1",                                      \
        "stream.table.columns=[" LABEL ",{\"kind\":\"dense\"},{\"kind\":\"categorical\"}," \
        "{\"kind\":\"" second "\"},{\"kind\":\"multi\"}]"
    check_says(SET(NODES("categorical")), NULL);
    check_says(SET(NODES("multi")), "stream.table.columns[3].kind: \"multi\" for one of its "
                                    "neighbours, which is one node to model.name \"graphsage\": "
                                    "expected \"categorical\"");
    check_says(SET(NODES("multi"), "model.name=dfm"), NULL);
#undef NODES
    check_says(
        SET(TABLE, "model.name=graphsage", "stream.table.columns=[" LABEL ",{\"kind\":\"multi\"}]"),
        "stream.table.columns[1].kind: \"multi\" for a sample's node, which is one node to "
        "model.name \"graphsage\": expected \"categorical\"");
}

static char *read_whole(const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s: %s (tests run in the root of the repository)", path, strerror(errno));
    char *text = calloc(1, 1u << 20);
    assert_non_null(text);
    size_t size = fread(text, 1, (1u << 20) - 1, file);
    assert_true(size > 0);
    fclose(file);
    return text;
}

// LANYARD_UPDATE_DOCS=1 writes the page anew.
static void test_reference(void **state)
{
    (void)state;
    static const char path[] = "docs/CONFIG.md";
    char *document;
    assert_int_equal(rt_config_document(&document), RT_OK);
    if (getenv("LANYARD_UPDATE_DOCS")) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(document, file);
        assert_int_equal(fclose(file), 0);
    }
    char *page = read_whole(path);
    size_t line = 1, at = 0;
    for (; page[at] && page[at] == document[at]; at++)
        line += page[at] == '\n';
    if (page[at] != document[at])
        fail_msg("%s differs from the table from line %zu on; LANYARD_UPDATE_DOCS=1 and this test "
                 "write it anew",
                 path, line);
    for (const rt_config_key *key = rt_config_keys; key->path; key++) {
        char cell[128];
        snprintf(cell, sizeof cell, "\n| `%s` | ", key->path);
        if (!strstr(page, cell))
            fail_msg("%s does not list %s", path, key->path);
    }
    free(page);
    rt_free(document);
}

// A number, or a word that may stand for it.
static void test_alpha_auto(void **state)
{
    (void)state;
    rt_error error = {0};
    rt_config config = config_fresh();
    assert_true(!config.dispatch.alpha_auto);
    config_must_set(&config, "dispatch.alpha=0.25");
    config_must_set(&config, "dispatch.alpha=auto");
    assert_true(config.dispatch.alpha_auto && config.dispatch.alpha == 1);
    must_refuse(&config, "dispatch.alpha=automatic",
                "dispatch.alpha: \"automatic\" is not a number, expected a number in [0, 1], or "
                "\"auto\"");
    must_refuse(&config, "links.probe_s=auto",
                "links.probe_s: \"auto\" is not a number, expected a number in [0, 1000000]");
    // It survives being written and read, and being copied.
    char *json = config_json(&config);
    assert_non_null(strstr(json, "\"alpha\": \"auto\""));
    rt_config again = config_fresh(), copy;
    assert_int_equal(rt_config_load(&again, config_write_file("auto.json", json), &error), RT_OK);
    assert_true(again.dispatch.alpha_auto && again.dispatch.alpha == 1);
    assert_int_equal(rt_config_copy(&config, &copy), RT_OK);
    assert_true(copy.dispatch.alpha_auto);
    config_must_set(&config, "dispatch={\"alpha\": 0.5}");
    assert_true(!config.dispatch.alpha_auto && config.dispatch.alpha == 0.5);
    rt_free(json);
    rt_config_fini(&config);
    rt_config_fini(&again);
    rt_config_fini(&copy);
}

static void test_differences_are_named(void **state)
{
    (void)state;
    uint32_t at = 0;
    rt_config left = config_fresh(), right = config_fresh();
    assert_null(rt_config_difference(&left, &right, &at));
    config_must_set(&right, "seed=2");
    config_must_set(&right, "stream.files=a.tsv");
    config_must_set(&right, "dispatch.alpha=auto"); // the number is the default's
    config_must_set(&right, "links.ps_gbps=1");
    at = 0;
    assert_string_equal(rt_config_difference(&left, &right, &at), "seed");
    assert_string_equal(rt_config_difference(&left, &right, &at), "stream.files");
    assert_string_equal(rt_config_difference(&left, &right, &at), "dispatch.alpha");
    assert_string_equal(rt_config_difference(&left, &right, &at), "links.ps_gbps");
    assert_null(rt_config_difference(&left, &right, &at));
    assert_null(rt_config_difference(&left, &right, &at));
    rt_config_fini(&left);
    rt_config_fini(&right);
}

TEST_MAIN(TEST(test_alpha_auto), TEST(test_differences_are_named), TEST(test_defaults),
          TEST(test_every_key_reaches_its_member), TEST(test_columns),
          TEST(test_counts_are_those_of_choices), TEST(test_bounds_of_every_key),
          TEST(test_what_was_before_leads_to_today), TEST(test_keys_do_not_share_members),
          TEST(test_what_follows_from_keys), TEST(test_what_follows_from_het),
          TEST(test_round_trip), TEST(test_copy_is_deep), TEST(test_escaped_backslash),
          TEST(test_set), TEST(test_set_errors), TEST(test_check), TEST(test_check_of_tables),
          TEST(test_check_of_nodes), TEST(test_reference))
