// config_case - configurations and configuration files for tests.
#ifndef CONFIG_CASE_H
#define CONFIG_CASE_H

#include "runtime/config/rt_config.h"

// A configuration in which every key has a value of its own, none the default.
extern const char config_everything[];

rt_config config_fresh(void);               // the defaults, but four workers; rt_config_fini
rt_config config_load_everything(void);     // config_everything, through a file
char *config_json(const rt_config *config); // rt_free

// Fails the case, saying why, when the assignment is refused.
void config_must_set(rt_config *config, const char *assignment);

// A file in the case's directory. Its path, a static string until the next call.
const char *config_write_bytes(const char *name, const void *bytes, size_t size);
const char *config_write_file(const char *name, const char *text);

// A file of Criteo's format there: so many samples, then so many lines that are none. The
// assignment that makes it the input, a static string until the next call.
const char *config_write_criteo(uint32_t samples, uint32_t garbage);

// The same without garbage, with popular ids and rare ones: of the fields 169 to 1444 times `ids`.
// A simulation has it at once, where a synthetic stream takes its time to begin.
const char *config_write_skewed(uint32_t samples, uint32_t ids);

#endif
