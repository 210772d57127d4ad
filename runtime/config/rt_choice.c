#include "runtime/config/rt_choice.h"

#include "runtime/config/rt_formats.h"
#include "runtime/config/rt_models.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/config/rt_sources.h"

bool rt_format_has(rt_format format, rt_format_trait trait)
{
#define XX(kind, number, name, traits, help) [RT_FORMAT_##kind] = (traits),
    static const uint32_t all[] = { RT_FORMAT_MAP(XX, XX) };
#undef XX
    return format < RT_COUNT_OF(all) && (all[format] & trait) != 0;
}

bool rt_format_is_generated(rt_format format)
{
#define XX(kind, number, name, traits, help) || format == RT_FORMAT_##kind
    return false RT_FORMAT_MAP(RT_CHOICE_NONE, XX);
#undef XX
}

bool rt_model_takes(rt_model_kind kind, rt_model_trait trait)
{
#define XX(kind, name, traits, help) (traits),
    static const uint32_t all[] = { RT_MODEL_MAP(XX) };
#undef XX
    return kind < RT_COUNT_OF(all) && (all[kind] & trait) != 0;
}

bool rt_optimizer_is(rt_optimizer_kind kind, rt_optimizer_trait trait)
{
#define XX(kind, name, traits, help) (traits),
    static const uint32_t all[] = { RT_OPTIMIZER_MAP(XX, XX) };
#undef XX
    return kind < RT_COUNT_OF(all) && (all[kind] & trait) != 0;
}

bool rt_source_is_live(rt_source_kind source)
{
#define NO(kind, name, help) false,
#define YES(kind, name, help) true,
    static const bool all[] = {RT_SOURCE_MAP(NO, YES)};
#undef NO
#undef YES
    return source < RT_COUNT_OF(all) && all[source];
}

bool rt_source_is_built(rt_source_kind kind)
{
#ifndef RT_HAS_MQTT
    if (kind == RT_SOURCE_MQTT)
        return false;
#endif
#ifndef RT_HAS_KAFKA
    if (kind == RT_SOURCE_KAFKA)
        return false;
#endif
    return kind < RT_SOURCE_COUNT;
}
