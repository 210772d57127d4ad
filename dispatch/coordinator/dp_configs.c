#include "dispatch/coordinator/dp_configs.h"

#include "runtime/rt_json.h"

rt_status dp_configs_init(const rt_config *config, dp_configs *configs)
{
    rt_config *const all[] = {&configs->whole, &configs->part, &configs->current};
    for (size_t i = 0; i < RT_COUNT_OF(all); i++) {
        const rt_status status = rt_config_copy(config, all[i]);
        if (status) {
            while (i-- > 0)
                rt_config_fini(all[i]);
            return status;
        }
    }
    return RT_OK;
}

void dp_configs_fini(dp_configs *configs)
{
    rt_config_fini(&configs->whole);
    rt_config_fini(&configs->part);
    rt_config_fini(&configs->current);
}

static rt_status adopt_from(const rt_config *whole, uint32_t first, rt_config *config,
                            rt_json *json, rt_error *error)
{
    for (uint32_t b = first; b < whole->box_count; b++) {
        rt_json_clear(json);
        rt_config_write_box(whole, b, json, NULL);
        const char *text = rt_json_text(json, NULL);
        if (!text)
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
        const rt_status status = rt_config_add_box(config, text, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status dp_configs_adopt(const rt_config *whole, rt_config *config, rt_error *error)
{
    rt_json json;
    rt_json_init(&json, 0);
    const rt_status status = adopt_from(whole, config->box_count, config, &json, error);
    rt_json_fini(&json);
    return status;
}
