#include "kernels/dev.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"

struct kstream {
    int unused;
};

struct kevent {
    int unused;
};

const char *fault_cpu(void)
{
    return "";
}

int stream_open_cpu(struct kstream **out)
{
    /* matmul.c splits its work among OpenMP's threads; a second pool inside OpenBLAS would fight
     * them for the cores. */
    openblas_set_num_threads(1);
    *out = NEW(struct kstream);
    return 0;
}

int stream_sync_cpu(struct kstream *ks)
{
    (void)ks;
    return 0;
}

void stream_watch_cpu(struct kstream *ks, int (*poll)(void *arg), void *arg)
{
    (void)ks;
    (void)poll;
    (void)arg;
}

void stream_close_cpu(struct kstream **sp)
{
    free(*sp);
    *sp = NULL;
}

int event_open_cpu(struct kevent **out)
{
    *out = NEW(struct kevent);
    return 0;
}

void event_close_cpu(struct kevent **ep)
{
    free(*ep);
    *ep = NULL;
}

int event_record_cpu(struct kevent *ev, struct kstream *ks)
{
    (void)ev;
    (void)ks;
    return 0;
}

int event_wait_cpu(struct kevent *ev, struct kstream *ks)
{
    (void)ev;
    (void)ks;
    return 0;
}

int mem_alloc_cpu(void **out, size_t size_bytes)
{
    size_t rounded = (size_bytes + 255) / 256 * 256;

    *out = rounded < size_bytes ? NULL : aligned_alloc(256, rounded == 0 ? 256 : rounded);
    if (*out == NULL) {
        return E_NOSPACE;
    }
    memset(*out, 0, rounded);
    return 0;
}

void mem_free_cpu(void *p)
{
    free(p);
}

/* The number behind `key` in a small text file of the kernel's; SIZE_MAX without one ("max", no
 * such file). */
static size_t number_in(const char *path, const char *key)
{
    char text[4096];
    FILE *f = fopen(path, "re");
    const char *at;
    char *end;
    size_t n;
    unsigned long long v;

    if (f == NULL) {
        return SIZE_MAX;
    }
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    at = strstr(text, key);
    if (at == NULL) {
        return SIZE_MAX;
    }
    at += strlen(key);
    v = strtoull(at, &end, 10);
    return end == at ? SIZE_MAX : (size_t)v;
}

int mem_room_cpu(size_t *free_bytes)
{
    size_t available = number_in("/proc/meminfo", "MemAvailable:");
    size_t most = number_in("/sys/fs/cgroup/memory.max", "");
    size_t used = number_in("/sys/fs/cgroup/memory.current", "");

    *free_bytes = available == SIZE_MAX ? SIZE_MAX : available * 1024;
    if (most != SIZE_MAX && used != SIZE_MAX) {
        size_t left = most > used ? most - used : 0;

        *free_bytes = left < *free_bytes ? left : *free_bytes;
    }
    return 0;
}

int host_alloc_cpu(void **out, size_t size_bytes)
{
    *out = malloc(size_bytes == 0 ? 1 : size_bytes);
    return *out == NULL ? E_NOSPACE : 0;
}

void host_free_cpu(void *p)
{
    free(p);
}

int mem_zero_cpu(struct kstream *ks, void *p, size_t size_bytes)
{
    (void)ks;
    memset(p, 0, size_bytes);
    return 0;
}

int mem_copy_cpu(struct kstream *ks, void *to, const void *from, size_t size_bytes)
{
    (void)ks;
    memcpy(to, from, size_bytes);
    return 0;
}

int mem_copy_rows_cpu(struct kstream *ks, void *to, size_t to_step, const void *from,
                      size_t from_step, size_t row_bytes, int64_t rows)
{
    (void)ks;
    for (int64_t r = 0; r < rows; r++) {
        memcpy((char *)to + (size_t)r * to_step, (const char *)from + (size_t)r * from_step,
               row_bytes);
    }
    return 0;
}

int mem_put_cpu(struct kstream *ks, void *to, const void *from, size_t size_bytes)
{
    return mem_copy_cpu(ks, to, from, size_bytes);
}

int mem_get_cpu(struct kstream *ks, void *to, const void *from, size_t size_bytes)
{
    return mem_copy_cpu(ks, to, from, size_bytes);
}

void range_begin_cpu(const char *name)
{
    (void)name;
}

void range_end_cpu(void)
{
}
