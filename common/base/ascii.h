/* ascii.h - classes of ASCII characters, whatever the locale.
 *
 * A byte of 0x80 or more is in no class, and ascii_lower() returns it as it is.
 */
#ifndef COMMON_BASE_ASCII_H
#define COMMON_BASE_ASCII_H

#include <stdbool.h>

static inline bool ascii_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline bool ascii_is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static inline bool ascii_is_alpha(char c)
{
    return ascii_is_lower(c) || (c >= 'A' && c <= 'Z');
}

static inline bool ascii_is_alnum(char c)
{
    return ascii_is_alpha(c) || ascii_is_digit(c);
}

static inline char ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

#endif
