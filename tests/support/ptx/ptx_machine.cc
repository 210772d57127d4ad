// The table of kernels: by the name that the compiler of the host has for a kernel, what nvcc made
// of it. See ptx_machine.h.
#include "tests/support/ptx/ptx_machine.h"

#include <stdlib.h>

#define NAME_BYTES 64
#define THREADS_PROMISED 256u // 64 K registers, at most 255 for a thread

static ptx_kernel *kernels;

ptx_kernel::ptx_kernel(const char *mangled_, void (*run_)(void **), unsigned threads_max_)
    : mangled(mangled_), run(run_), threads_max(threads_max_), next(kernels)
{
    kernels = this;
}

// "_Z9pool_bagsILj4EEv..." is pool_bags<4>: of templates, those with one number.
static bool is_called(const ptx_kernel *kernel, const char *name, size_t length)
{
    char *at = NULL, plain[NAME_BYTES];
    size_t own = strtoul(kernel->mangled + 2, &at, 10);
    if (strncmp(at + own, "ILj", 3) == 0)
        (void)snprintf(plain, sizeof plain, "%.*s<%lu>", (int)own, at,
                       strtoul(at + own + 3, NULL, 10));
    else
        (void)snprintf(plain, sizeof plain, "%.*s", (int)own, at);
    return strlen(plain) == length && strncmp(plain, name, length) == 0;
}

// pretty: "... [auto F = pool_bags<4>]".
extern "C" const ptx_kernel *ptx_find(const char *pretty)
{
    const char *name = strstr(pretty, "F = ");
    name = name ? name + 4 : pretty;
    name += *name == '&';
    size_t length = strcspn(name, "];");
    const ptx_kernel *found = NULL;
    for (const ptx_kernel *one = kernels; one; one = one->next) {
        if (!is_called(one, name, length))
            continue;
        if (found)
            refuse("two kernels have this name", one->mangled);
        found = one;
    }
    if (!found)
        refuse("there is no PTX of this kernel", pretty);
    return found;
}

extern "C" void ptx_run(const ptx_kernel *kernel, void **arguments)
{
    kernel->run(arguments);
}

extern "C" void ptx_check(const ptx_kernel *kernel, unsigned threads)
{
    unsigned most = kernel->threads_max ? kernel->threads_max : THREADS_PROMISED;
    if (threads > most)
        refuse("more threads than its registers are bounded for (__launch_bounds__)",
               kernel->mangled);
}
