/* text.h - text in a fixed array of the caller, where nothing may be allocated. */
#ifndef COMMON_BASE_TEXT_H
#define COMMON_BASE_TEXT_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"

/* Appends as far as there is room. Inline: a plugin has it without the rest of common/. */
static inline PRINTF_LIKE(3, 4) void text_addf(char *text, size_t room, const char *fmt, ...)
{
    size_t n = strlen(text);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text + n, room - n, fmt, ap);
    va_end(ap);
}

#endif
