"""egress.py - a trap around a client: it reaches one address, and whatever else it tries is refused and noted.

A preloaded library stands before connect(), sendto() and getaddrinfo(), so that what is not Python (hf_xet) is caught too.
"""
import os
import pathlib
import shutil
import subprocess

SOURCE = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void note(const char *what, const char *where)
{
    const char *path = getenv("EGRESS_LOG");
    char line[512];
    int n = snprintf(line, sizeof line, "%s %s\n", what, where);
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
    if (fd >= 0) {
        if (write(fd, line, n) != n) {
            abort();
        }
        close(fd);
    }
}

static int allowed(const char *what, const struct sockaddr *a)
{
    char host[64] = "?", all[128];
    const char *want = getenv("EGRESS_ALLOW");
    int port = 0;
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)a;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        port = ntohs(in->sin_port);
    } else if (a->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)a;
        inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
        port = ntohs(in->sin6_port);
    } else {
        return 1;
    }
    snprintf(all, sizeof all, "%s:%d", host, port);
    note(what, all);
    return want != NULL && strcmp(all, want) == 0;
}

int connect(int fd, const struct sockaddr *a, socklen_t n)
{
    static int (*real)(int, const struct sockaddr *, socklen_t);
    if (!real) {
        real = dlsym(RTLD_NEXT, "connect");
    }
    if (a && !allowed("connect", a)) {
        errno = ECONNREFUSED;
        return -1;
    }
    return real(fd, a, n);
}

ssize_t sendto(int fd, const void *p, size_t size, int flags, const struct sockaddr *a, socklen_t n)
{
    static ssize_t (*real)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    if (!real) {
        real = dlsym(RTLD_NEXT, "sendto");
    }
    if (a && !allowed("sendto", a)) {
        errno = ENETUNREACH;
        return -1;
    }
    return real(fd, p, size, flags, a, n);
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (!real) {
        real = dlsym(RTLD_NEXT, "getaddrinfo");
    }
    if (name && strcmp(name, "127.0.0.1") != 0) {
        note("lookup", name);
        return EAI_NONAME;
    }
    return real(name, service, hints, out);
}
"""


class Trap:
    """env() for the client; strangers() is what it reached for besides `host:port`."""

    def __init__(self, folder, allow):
        self.folder, self.allow = pathlib.Path(folder), allow
        self.log = self.folder / "egress.log"
        self.library = self.folder / "egress.so"
        source = self.folder / "egress.c"
        source.write_text(SOURCE)
        subprocess.run([shutil.which("cc"), "-shared", "-fPIC", "-O1", "-o", self.library, source, "-ldl"], check=True)

    def env(self):
        return {"LD_PRELOAD": str(self.library), "EGRESS_LOG": str(self.log), "EGRESS_ALLOW": self.allow}

    def seen(self):
        return self.log.read_text().splitlines() if self.log.exists() else []

    def strangers(self):
        return sorted({line for line in self.seen() if line.split()[1] != self.allow})

    def clear(self):
        if self.log.exists():
            os.unlink(self.log)
