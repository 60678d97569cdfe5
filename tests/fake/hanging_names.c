/* hanging_names.c - preloaded into a program, keeps each look-up of a name below "hangs.test"
 * waiting for ever, as a name server does that is behind a closed line. $HANGING_NAMES is a file
 * that grows by a byte with each such look-up. */
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    lookup *real = (lookup *)dlsym(RTLD_NEXT, "getaddrinfo");
    const char *count = getenv("HANGING_NAMES");

    if (name != NULL && count != NULL && strstr(name, "hangs.test") != NULL) {
        int fd = open(count, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        (void)!write(fd, "x", 1);
        close(fd);
        for (;;) {
            pause();
        }
    }
    return real(name, service, hints, out);
}
