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

static const struct error_row *error_row_of(int code)
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

/* "<front>: <reason>" into e->text, which may be short of room: then the front is cut, the reason
 * says what happened. */
static void join_err_text(struct err *e, char *front, const char *reason)
{
    size_t room = sizeof e->text - sizeof ": ";
    size_t head = strlen(front);
    size_t tail = strlen(reason);

    if (head + tail > room) {
        tail = min_u64(tail, max_u64(room / 2, room - min_u64(head, room)));
    }
    if (head + tail > room) {
        head = room - tail;
        memcpy(front + head - 3, "...", 4);
    }
    snprintf(e->text, sizeof e->text, "%s: %.*s", front, (int)tail, reason);
}

int err_sys(struct err *e, const char *fmt, ...)
{
    int saved = errno;
    int code = err_from_errno(saved);

    if (e != NULL) {
        char front[sizeof e->text];
        char why[96];
        va_list ap;

        va_start(ap, fmt);
        e->code = code;
        vsnprintf(front, sizeof front, fmt, ap);
        va_end(ap);
        join_err_text(e, front, strerror_r(saved, why, sizeof why));
    }
    return code;
}

int err_prefix(struct err *e, const char *fmt, ...)
{
    char front[sizeof e->text];
    char old[sizeof e->text];
    va_list ap;

    if (e == NULL || e->code == 0) {
        return e == NULL ? 0 : e->code;
    }
    memcpy(old, e->text, sizeof old);
    va_start(ap, fmt);
    vsnprintf(front, sizeof front, fmt, ap);
    va_end(ap);
    join_err_text(e, front, old);
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
    const struct error_row *r = error_row_of(code);
    return code == 0 ? "OK" : r != NULL ? r->name : "E_?";
}

const char *err_plain(int code)
{
    const struct error_row *r = error_row_of(code);
    return code == 0 ? "no error" : r != NULL ? r->plain : "unknown error";
}

int err_sysexit(int code)
{
    const struct error_row *r = error_row_of(code);
    return code == 0 ? 0 : r != NULL ? r->sysexit : 70;
}
