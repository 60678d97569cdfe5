#include "agent/train/manifest.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

void manifest_add(struct buf *manifest, const struct digest *d, const char *name)
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    buf_addf(manifest, "%s  %s\n", hex, name);
}

int manifest_verify_file(const char *dir, const char *name, const struct digest *want,
                         struct err *e)
{
    char path[PATH_MAX];
    struct digest got;
    struct stat st;
    int fd, rc;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* nobody may ever write to a FIFO */
    if (fd == -1 || fstat(fd, &st) == -1) {
        rc = err_sys(e, "%s", path);
    } else if (!S_ISREG(st.st_mode)) {
        rc = err_set(e, E_CORRUPT, "%s: not a regular file", path);
    } else {
        rc = digest_of_fd(fd, (uint64_t)st.st_size, &got, e);
        if (rc == 0 && !digest_eq(&got, want)) {
            rc = err_set(e, E_CORRUPT,
                         "%s: the file differs from the manifest; it is damaged or was changed",
                         path);
        }
    }
    if (fd != -1) {
        close(fd);
    }
    return rc;
}

/* The digest, two blanks, a name that is none of a path. */
static bool read_manifest_line(struct slice line, struct digest *want, char name[NAME_MAX + 1])
{
    struct slice rest;

    if (line.n < DIGEST_HEX + 3 || line.n > DIGEST_HEX + 2 + NAME_MAX ||
        !digest_parse(slice_first(line, DIGEST_HEX), want) || memchr(line.p, '/', line.n) != NULL ||
        memchr(line.p, '\0', line.n) != NULL) {
        return false;
    }
    rest = slice_from(line, DIGEST_HEX + 2);
    snprintf(name, NAME_MAX + 1, SLICE_FMT, SLICE_ARG(rest));
    return true;
}

int manifest_each(const char *dir, int least,
                  int (*file)(void *arg, const char *dir, const char *name,
                              const struct digest *want, struct err *e),
                  void *arg, struct err *e)
{
    struct buf text = BUF_INIT(MANIFEST_MAX_BYTES);
    char path[PATH_MAX], name[NAME_MAX + 1];
    struct digest want;
    struct slice rest;
    int rc, lines = 0;

    snprintf(path, sizeof path, "%s/" MANIFEST_NAME, dir);
    rc = buf_read_file(&text, path, e);
    for (rest = buf_slice(&text); rc == 0 && rest.n > 0; lines++) {
        rc = read_manifest_line(slice_cut(&rest, '\n'), &want, name)
                 ? file(arg, dir, name, &want, e)
                 : err_set(e, E_CORRUPT, "%s: not a manifest", path);
    }
    if (rc == 0 && lines < least) {
        rc = err_set(e, E_CORRUPT, "%s: the manifest is truncated", path);
    }
    buf_free(&text);
    return rc;
}

static int verify_one(void *arg, const char *dir, const char *name, const struct digest *want,
                      struct err *e)
{
    (void)arg;
    return manifest_verify_file(dir, name, want, e);
}

int manifest_verify(const char *dir, int least, struct err *e)
{
    return manifest_each(dir, least, verify_one, NULL, e);
}
