#include "common/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

void check_failed(const char *what, const char *file, int line)
{
    log_settle();
    fprintf(stderr, "%s:%d: CHECK(%s) failed\n", file, line, what);
    abort();
}

void *mem_new(size_t size_bytes)
{
    return mem_array(1, size_bytes);
}

void *mem_array(size_t count, size_t size_bytes)
{
    void *p = calloc(count != 0 ? count : 1, size_bytes != 0 ? size_bytes : 1);
    CHECK(p != NULL);
    return p;
}

char *mem_strdup(const char *s)
{
    char *p = strdup(s);
    CHECK(p != NULL);
    return p;
}
