/* marker.h - evaluates PEP 508's environment markers, which say where a dependency applies, for the
 * environments that files are kept for.
 *
 * owns     nothing
 * threads  any; pure
 * errors   E_INVALID: not a marker
 * source   PEP 508, with the old names of variables (os.name) that its appendix allows
 */
#ifndef SERVER_REPO_PYTHON_MARKER_H
#define SERVER_REPO_PYTHON_MARKER_H

#include "common/base/err.h"
#include "common/base/slice.h"

enum { PYENVS_MAX = 64 }; /* environments that files are kept for: bits of a set */

struct pyenv {            /* one Python on one platform */
    unsigned minor;       /* of 3.x */
    unsigned micro;       /* not configured: both a low and a high one are tried */
    const char *platform; /* "manylinux_2_28_x86_64", as in wheels' tags */
    const char *os_name, *sys_platform, *platform_system, *platform_machine;
};

/* python: "3.11"; platform: borrowed. False: one of them is unknown. */
MUST_USE bool pyenv_init(struct pyenv *env, const char *python, const char *platform);

/* extra: the one to evaluate for, normalized, or "". A variable that cannot be known (a kernel's
 * release) makes its comparison true. E_INVALID: not a marker, with the place and the reason. */
MUST_USE int marker_eval(struct slice text, const struct pyenv *env, struct slice extra, bool *out,
                         struct err *e);

#endif
