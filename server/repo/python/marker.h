/* marker.h - where a dependency counts: PEP 508's environment markers, and the environments that
 * files are kept for.
 *
 * threads  any; pure
 * source   PEP 508, with the old names of variables (os.name) that its appendix allows
 */
#ifndef SERVER_REPO_PYTHON_MARKER_H
#define SERVER_REPO_PYTHON_MARKER_H

#include "common/base/err.h"
#include "common/base/slice.h"

enum { PYENVS_MAX = 64 }; /* that files are kept for: bits of a set */

struct pyenv {            /* one Python on one platform */
    unsigned minor;       /* of 3.x */
    unsigned micro;       /* what nobody said: both a low and a high one are tried */
    const char *platform; /* "manylinux_2_28_x86_64", as wheels' tags say it */
    const char *os_name, *sys_platform, *platform_system, *platform_machine;
};

/* python: "3.11"; platform: borrowed. False: neither is known. */
MUST_USE bool pyenv_init(struct pyenv *env, const char *python, const char *platform);

/* extra: the one that is looked at, normalized, or "". What cannot be known (a kernel's release)
 * counts as true. E_INVALID: no marker; where and what. */
MUST_USE int marker_eval(struct slice text, const struct pyenv *env, struct slice extra, bool *out,
                         struct err *e);

#endif
