/* conf.c - any bytes as a configuration: read, refused or printed and read again, never worse. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "server/conf/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* conf_read() takes a path: a file in memory has one. */
static void put(int fd, const void *p, size_t n)
{
    CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, p, n, 0) == (ssize_t)n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    struct conf *c = NULL, *again = NULL;
    struct buf text = BUF_INIT(1 << 20);
    struct err e = {0};

    if (fd == -1) {
        fd = memfd_create("conf", MFD_CLOEXEC);
        CHECK(fd != -1);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    put(fd, data, size);
    if (conf_read(path, &c, &e) != 0) {
        CHECK(c == NULL && e.code == E_CONFIG && e.text[0] != '\0');
        return 0;
    }
    conf_print(c, &text);
    CHECK(text.rc == 0);
    put(fd, text.p, text.n);
    CHECK(conf_read(path, &again, &e) == 0); /* what -T prints is a configuration */
    CHECK(again->repos_count == c->repos_count && again->limits_count == c->limits_count);
    conf_free(&again);
    conf_free(&c);
    buf_free(&text);
    return 0;
}
