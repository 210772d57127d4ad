#include "tests/support/config_case.h"

#include <stdio.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

const char *config_write_bytes(const char *name, const void *bytes, size_t size)
{
    static char folder[256], path[512];
    if (!folder[0])
        snprintf(folder, sizeof folder, "%s", test_directory());
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return path;
}

const char *config_write_file(const char *name, const char *text)
{
    return config_write_bytes(name, text, strlen(text));
}

char *config_json(const rt_config *config)
{
    char *json;
    assert_int_equal(rt_config_to_json(config, &json), RT_OK);
    return json;
}

void config_must_set(rt_config *config, const char *assignment)
{
    rt_error error = {0};
    if (rt_config_set(config, assignment, &error) != RT_OK)
        fail_msg("%s: %s", assignment, error.text);
}

rt_config config_fresh(void)
{
    rt_config config;
    assert_int_equal(rt_config_init(&config), RT_OK);
    config.worker_count = 4;
    return config;
}

// Every key with a value of its own, none the default.
const char config_everything[] =
    "{\"log\": {\"level\": \"trace\"}, \"seed\": 9007199254740991,"
    " \"device\": \"cuda:1\", \"workers\": 3,"
    " \"boxes\": [{\"name\": \"till\", \"gbps\": 3, \"workers\": 2, \"shards\": 1}],"
    " \"batch\": {\"samples_per_worker\": 17},"
    " \"stream\": {\"format\": \"table\", \"files\": [\"a,b.tsv\", \"-\"], \"samples_max\": 123,"
    "  \"dense_scaling\": \"none\","
    "  \"malformed_share_max\": 0.125, \"tables\": [\"v=u\"],"
    "  \"table\": {\"delimiter\": \"\\t\", \"header\": true, \"columns\": ["
    "   {\"name\": \"y\", \"kind\": \"label\", \"rule\": \"at_least\", \"value\": \"4\"},"
    "   {\"name\": \"x\", \"kind\": \"dense\", \"transform\": \"log1p\"},"
    "   {\"name\": \"u\", \"kind\": \"categorical\", \"id\": \"number\"},"
    "   {\"name\": \"v\", \"kind\": \"multi\", \"separator\": \";\", \"values_max\": 5},"
    "   {\"kind\": \"ignore\"}]},"
    "  \"synthetic\": {\"shape\": \"search\", \"scale\": 0.5, \"zipf\": 1.5, \"clusters\": 7,"
    "   \"drift\": 0.375}},"
    " \"model\": {\"name\": \"dlrm\", \"embedding_dim\": 48, \"deep_input\": \"dense\","
    "  \"pooling\": \"mean\", \"mlp\": [64, 32], \"init_scale\": 0.0625,"
    "  \"sequence\": \"v\", \"target\": \"u\", \"attention\": [20, 10], \"fan_out\": 7,"
    "  \"base_rate\": 0.125},"
    " \"optimizer\": {"
    "  \"rows\": {\"name\": \"ftrl\", \"learning_rate\": 0.1,"
    "   \"l1\": 0.6, \"l2\": 0.7,"
    "   \"clip_norm\": 0.9},"
    "  \"dense\": {\"name\": \"momentum\", \"learning_rate\": 0.11,"
    "   \"l2\": 0.71,"
    "   \"clip_norm\": 1.5, \"warmup_iterations\": 12, \"decay\": \"cosine\","
    "   \"decay_iterations\": 345}},"
    " \"cache\": {\"rows\": 1000, \"ratio\": 0.75, \"distinct_keys\": 4242,"
    "  \"eviction\": \"lfu\", \"lookahead\": 3},"
    " \"dispatch\": {\"policy\": \"laia\", \"alpha\": 0.25,"
    "  \"solver\": \"hungarian\", \"view\": \"strict\", \"first_touch\": \"pull\","
    "  \"budget_ms\": 2.5, \"measure_compute\": false,"
    "  \"tables\": 7},"
    " \"links\": {\"workers\": [2.5, {\"gbps_up\": 1.5, \"gbps_down\": 0.5, \"count\": 2,"
    "   \"transport\": \"zmq\"}],"
    "  \"ps_gbps\": 40},"
    " \"planner\": {\"threads\": 9},"
    " \"ps\": {\"shards\": 5, \"homes\": \"planned\", \"memory_bytes_max\": 2097152},"
    " \"network\": {\"transport\": \"mixed\", \"bind\": \"10.0.0.1\","
    "  \"coordinator\": \"10.0.0.1:4711\", \"interface\": \"eth9\","
    "  \"ps\": [\"a:1\", \"b:2\", \"c:3\", \"d:4\", \"[::1]:5\"],"
    "  \"collective\": \"ps\", \"dense_wire\": \"bf16\", \"row_wire\": \"int8\"},"
    " \"metrics\": {\"bytes_max\": 54321},"
    " \"guards\": {\"skip_bad_batches\": false},"
    " \"security\": {\"key\": \"k\", \"allow\": \"l\", \"server_key\": \"s\", \"insecure\": true},"
    " \"checkpoint\": {\"directory\": \"/x/y\", \"every_iterations\": 5, \"every_s\": 2.25,"
    "  \"full_every\": 4, \"keep\": 6, \"at_end\": true},"
    " \"on_worker_loss\": \"shrink\", \"restarts_max\": 8,"
    " \"timeouts\": {\"peer_s\": 1.5, \"start_s\": 2.5, \"rejoin_s\": 3.5},"
    " \"sim\": {\"iterations\": 77, \"warmup\": 6, \"dense\": false, \"dispatch_error\": true,"
    "  \"compute_us_per_sample\": 3.25}}";

rt_config config_load_everything(void)
{
    rt_config config = config_fresh();
    rt_error error = {0};
    if (rt_config_load(&config, config_write_file("everything.json", config_everything), &error) !=
        RT_OK)
        fail_msg("%s", error.text);
    return config;
}

// The assignment that makes it the input goes to files.
static FILE *create_rows(char files[600])
{
    const char *path = test_path("rows");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    snprintf(files, 600, "stream.files=[\"%s\"]", path);
    return file;
}

const char *config_write_criteo(uint32_t samples, uint32_t garbage)
{
    static char files[600];
    FILE *file = create_rows(files);
    for (uint32_t i = 0; i < samples; i++) {
        fprintf(file, "%u", i % 2);
        for (uint32_t f = 0; f < 39; f++)
            fprintf(file, f < 13 ? "\t%u" : "\t%08x", i % (f + 2));
        fputc('\n', file);
    }
    for (uint32_t i = 0; i < garbage; i++)
        fputs("garbage\n", file);
    (void)fclose(file);
    return files;
}

const char *config_write_skewed(uint32_t samples, uint32_t ids)
{
    static char files[600];
    FILE *file = create_rows(files);
    rt_random random = {1};
    for (uint32_t i = 0; i < samples; i++) {
        fprintf(file, "%u", i % 2);
        for (uint32_t f = 0; f < 39; f++) {
            const uint64_t one = rt_random_u64(&random) % 1000, most = f * f * ids;
            fprintf(file, f < 13 ? "\t%u" : "\t%08x",
                    f < 13 ? i % (f + 2) : (uint32_t)(one * one * one * most / 1000000000));
        }
        fputc('\n', file);
    }
    (void)fclose(file);
    return files;
}
