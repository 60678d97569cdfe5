#include "kernels/cuda/tuning.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, NAME_MAX_BYTES = 96 };

/* A name for a file out of a name for people. */
static void file_name_of_device(char *to, size_t room, const char *from)
{
    size_t n = 0;

    for (; *from != '\0' && n + 1 < room; from++) {
        bool fine = (*from >= '0' && *from <= '9') || (*from >= 'a' && *from <= 'z') ||
                    (*from >= 'A' && *from <= 'Z') || (*from == '.' && n > 0);
        to[n++] = fine ? *from : '-';
    }
    to[n] = '\0';
}

/* Every folder on the way. */
static bool make_folders(const char *path)
{
    char part[PATH_BYTES];

    snprintf(part, sizeof part, "%s", path);
    for (char *p = part + 1; *p != '\0'; p++) {
        if (*p == '/') {
            *p = '\0';
            if (mkdir(part, 0700) != 0 && errno != EEXIST) {
                return false;
            }
            *p = '/';
        }
    }
    return mkdir(part, 0700) == 0 || errno == EEXIST;
}

void tuning_open(struct tuning *t, const char *machine)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char name[NAME_MAX_BYTES];
    int n = 0;

    file_name_of_device(name, sizeof name, machine);
    if (cache != NULL && cache[0] == '/') {
        n = snprintf(t->folder, sizeof t->folder, "%s/trainer/%s", cache, name);
    } else if (home != NULL && home[0] == '/') {
        n = snprintf(t->folder, sizeof t->folder, "%s/.cache/trainer/%s", home, name);
    }
    if (n <= 0 || (size_t)n >= sizeof t->folder || !make_folders(t->folder) ||
        access(t->folder, W_OK) != 0) {
        t->folder[0] = '\0';
    }
}

static void path_of_tuning(const struct tuning *t, const char *question, char path[PATH_BYTES])
{
    char name[NAME_MAX_BYTES];

    file_name_of_device(name, sizeof name, question);
    snprintf(path, PATH_BYTES, "%s/%s", t->folder, name);
}

bool tuning_find(const struct tuning *t, const char *question, void *answer, size_t size_bytes)
{
    char path[PATH_BYTES], more;
    bool whole;
    int fd;

    if (t->folder[0] == '\0') {
        return false;
    }
    path_of_tuning(t, question, path);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd == -1) {
        return false;
    }
    whole = read(fd, answer, size_bytes) == (ssize_t)size_bytes && read(fd, &more, 1) == 0;
    close(fd);
    return whole;
}

/* The answer under a name of this process's own. */
static bool write_aside(const char *path, const void *answer, size_t size_bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool whole;

    if (fd == -1) {
        return false;
    }
    whole = write(fd, answer, size_bytes) == (ssize_t)size_bytes;
    return close(fd) == 0 && whole;
}

bool tuning_keep(const struct tuning *t, const char *question, void *answer, size_t size_bytes)
{
    char path[PATH_BYTES], aside[PATH_BYTES + 32];
    bool kept;

    if (t->folder[0] == '\0') {
        return false;
    }
    path_of_tuning(t, question, path);
    snprintf(aside, sizeof aside, "%s.%ld", path, (long)getpid());
    kept = write_aside(aside, answer, size_bytes);
    /* A link is there whole or not at all, and never replaces another's. */
    if (kept && link(aside, path) != 0) {
        kept = errno == EEXIST && tuning_find(t, question, answer, size_bytes);
    }
    unlink(aside);
    return kept;
}

void tuning_drop(const struct tuning *t, const char *question)
{
    char path[PATH_BYTES];

    if (t->folder[0] != '\0') {
        path_of_tuning(t, question, path);
        unlink(path);
    }
}
