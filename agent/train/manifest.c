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

static int verify_file(const char *path, const struct digest *want, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* nobody may ever write to a FIFO */
    struct digest got;
    struct stat st;
    int rc;

    if (fd == -1 || fstat(fd, &st) == -1) {
        rc = err_sys(e, "%s", path);
    } else if (!S_ISREG(st.st_mode)) {
        rc = err_set(e, E_CORRUPT, "%s: not a file", path);
    } else {
        rc = digest_of_fd(fd, (uint64_t)st.st_size, &got, e);
        if (rc == 0 && !digest_eq(&got, want)) {
            rc = err_set(e, E_CORRUPT, "%s: differs from the manifest", path);
        }
    }
    if (fd != -1) {
        close(fd);
    }
    return rc;
}

static int verify_line(const char *dir, struct slice line, struct err *e)
{
    struct digest want;
    char path[PATH_MAX];

    if (line.n < DIGEST_HEX + 3 || !digest_parse(slice_first(line, DIGEST_HEX), &want) ||
        memchr(line.p, '/', line.n) != NULL || memchr(line.p, '\0', line.n) != NULL) {
        return err_set(e, E_CORRUPT, "%s/" MANIFEST_NAME ": not a manifest", dir);
    }
    snprintf(path, sizeof path, "%s/" SLICE_FMT, dir, SLICE_ARG(slice_from(line, DIGEST_HEX + 2)));
    return verify_file(path, &want, e);
}

int manifest_verify(const char *dir, int least, struct err *e)
{
    struct buf text = BUF_INIT(MANIFEST_MAX_BYTES);
    char path[PATH_MAX];
    struct slice rest;
    int rc, lines = 0;

    snprintf(path, sizeof path, "%s/" MANIFEST_NAME, dir);
    rc = buf_read_file(&text, path, e);
    for (rest = buf_slice(&text); rc == 0 && rest.n > 0; lines++) {
        rc = verify_line(dir, slice_cut(&rest, '\n'), e);
    }
    if (rc == 0 && lines < least) {
        rc = err_set(e, E_CORRUPT, "%s: the manifest is cut short", path);
    }
    buf_free(&text);
    return rc;
}
