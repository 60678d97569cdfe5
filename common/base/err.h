/* err.h - how functions fail.
 *
 * A function that can fail returns int: 0, or a negative E_* from errors.def; the sentence for
 * people goes into the caller's struct err. err_set() returns its code, so that failing is one
 * line: `return err_set(e, E_IO, "...")`.
 *
 * owns     struct err is plain memory of the caller; NULL is accepted everywhere
 * threads  nothing shared: there is no thread-local last error, since work moves between threads
 */
#ifndef COMMON_BASE_ERR_H
#define COMMON_BASE_ERR_H

#include "common/base/check.h"

enum {
#define ERROR(name, value, sysexit, text) name = (value),
#include "common/base/errors.def"
#undef ERROR
};

struct err {
    int code; /* 0 or E_* */
    char text[248];
};

int err_set(struct err *e, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* From errno: picks E_NOSPACE, E_NOTFOUND, E_EXISTS, E_DENIED or E_IO, and says "<what>:
 * <strerror>". */
int err_sys(struct err *e, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Puts "<prefix>: " before the text; returns e->code. */
int err_prefix(struct err *e, const char *fmt, ...) PRINTF_LIKE(2, 3);
void err_clear(struct err *e);

const char *err_name(int code);  /* "E_IO"; "E_?" for a code that is not ours */
const char *err_plain(int code); /* "input/output error" */
int err_sysexit(int code);       /* sysexits.h number for a program's exit; 0 for 0 */
int err_from_errno(int errno_value);

#endif
