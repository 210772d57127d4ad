// cli_doctor - what the parts of `lanyard doctor` share: the findings, and what is known of this
// box.
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "runtime/config/rt_config.h"
#include "runtime/wire/rt_control.h"

#define CLI_FINDINGS_MAX 128

typedef enum { FINE, LOOK, BROKEN } grade; // LOOK: works, but somebody should look at it

typedef struct {
    grade grade;
    const char *subject;
    char text[640];
} finding;

typedef struct {
    const char *out; // --out, or NULL
    rt_config config;
    rt_identity identity;
    finding findings[CLI_FINDINGS_MAX];
    uint32_t count;
    bool has_coordinator; // this box is where the configuration puts it
    uint32_t shards_here;
} doctor;

// Adds a finding; of too many the last are left out.
void cli_doctor_say(doctor *d, grade as, const char *subject, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// Addresses: whether this box can listen at its own, and reach the others. Finds out what is to run
// here. Where the coordinator answers it is asked whether it would let a member of this box in.
void cli_doctor_network(doctor *d);

// Under the units of configs/systemd a process sees and writes less than its user may: says which
// paths of the configuration that is about, for those units that are installed here. After
// cli_doctor_network.
void cli_doctor_units(doctor *d);

// The unit of the coordinator makes this pipe before it starts.
bool cli_doctor_unit_makes(const char *path);

#endif
