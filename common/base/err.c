#include "common/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct error_row {
    int code;
    int sysexit;
    const char *name;
    const char *plain;
};

static const struct error_row rows[] = {
#define ERROR(name, value, sysexit, text) {(value), (sysexit), #name, (text)},
#include "common/base/errors.def"
#undef ERROR
};

static const struct error_row *row_of(int code)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].code == code) {
            return &rows[i];
        }
    }
    return NULL;
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
    CHECK(code < 0);
    if (e != NULL) {
        va_list ap;
        va_start(ap, fmt);
        e->code = code;
        vsnprintf(e->text, sizeof e->text, fmt, ap);
        va_end(ap);
    }
    return code;
}

int err_from_errno(int errno_value)
{
    switch (errno_value) {
    case ENOSPC:
    case EDQUOT:
        return E_NOSPACE;
    case ENOENT:
        return E_NOTFOUND;
    case EEXIST:
        return E_EXISTS;
    case EACCES:
    case EPERM:
    case EROFS:
        return E_DENIED;
    case EAGAIN:
        return E_AGAIN;
    case ETIMEDOUT:
        return E_TIMEOUT;
    default:
        return E_IO;
    }
}

int err_sys(struct err *e, const char *fmt, ...)
{
    int saved = errno;
    int code = err_from_errno(saved);

    if (e != NULL) {
        char why[96];
        va_list ap;
        int n;

        va_start(ap, fmt);
        e->code = code;
        n = vsnprintf(e->text, sizeof e->text, fmt, ap);
        va_end(ap);
        if (n >= 0 && (size_t)n < sizeof e->text) {
            snprintf(e->text + n, sizeof e->text - (size_t)n, ": %s",
                     strerror_r(saved, why, sizeof why));
        }
    }
    return code;
}

int err_prefix(struct err *e, const char *fmt, ...)
{
    char old[sizeof e->text];
    va_list ap;
    int n;

    if (e == NULL || e->code == 0) {
        return e == NULL ? 0 : e->code;
    }
    memcpy(old, e->text, sizeof old);
    va_start(ap, fmt);
    n = vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof e->text) {
        snprintf(e->text + n, sizeof e->text - (size_t)n, ": %s", old);
    }
    return e->code;
}

void err_clear(struct err *e)
{
    if (e != NULL) {
        e->code = 0;
        e->text[0] = '\0';
    }
}

const char *err_name(int code)
{
    const struct error_row *r = row_of(code);
    return code == 0 ? "OK" : r != NULL ? r->name : "E_?";
}

const char *err_plain(int code)
{
    const struct error_row *r = row_of(code);
    return code == 0 ? "no error" : r != NULL ? r->plain : "unknown error";
}

int err_sysexit(int code)
{
    const struct error_row *r = row_of(code);
    return code == 0 ? 0 : r != NULL ? r->sysexit : 70;
}
