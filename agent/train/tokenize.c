/* trainer tokenize - text files into one shard of bytes. */
#include <fcntl.h>
#include <fnmatch.h>
#include <fts.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/train/config.h"
#include "agent/train/shard.h"
#include "agent/train/verbs.h"
#include "common/os/newfile.h"

enum { PIECE_BYTES = 1 << 18 };

struct tokenizing {
    const char *include;
    struct newfile *file;
    struct hasher *hash;
    uint64_t tokens;
    uint64_t files;
    uint64_t skipped; /* binary files met in folders */
    char piece[PIECE_BYTES];
};

static int add_file(struct tokenizing *t, const char *path, bool text_only, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;
    bool first = true;

    if (fd == -1) {
        return err_sys(e, "%s", path);
    }
    for (;;) {
        ssize_t n = read(fd, t->piece, sizeof t->piece);

        if (n == -1 && errno == EINTR) {
            continue;
        }
        if (n == -1) {
            rc = err_sys(e, "%s", path);
        }
        if (n <= 0) {
            break;
        }
        if (first && text_only && memchr(t->piece, '\0', (size_t)n) != NULL) {
            t->skipped++;
            goto out;
        }
        first = false;
        newfile_write(t->file, t->piece, (size_t)n);
        hasher_add(t->hash, t->piece, (size_t)n);
        t->tokens += (uint64_t)n;
    }
    t->files++;
out:
    close(fd);
    return rc;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* The files below a folder, in the order of their names, so that the same tree gives the same shard. */
static int add_folder(struct tokenizing *t, char *path, struct err *e)
{
    char *roots[] = {path, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    FTSENT *at;
    int rc = 0;

    if (walk == NULL) {
        return err_sys(e, "%s", path);
    }
    while (rc == 0 && (at = fts_read(walk)) != NULL) {
        if (at->fts_info == FTS_ERR || at->fts_info == FTS_DNR || at->fts_info == FTS_NS) {
            errno = at->fts_errno;
            rc = err_sys(e, "%s", at->fts_path);
        } else if (at->fts_info == FTS_F && fnmatch(t->include, at->fts_name, 0) == 0) {
            rc = add_file(t, at->fts_path, true, e);
        }
    }
    fts_close(walk);
    return rc;
}

static int add_path(struct tokenizing *t, char *path, struct err *e)
{
    struct stat st;

    if (stat(path, &st) == -1) {
        return err_sys(e, "%s", path);
    }
    return S_ISDIR(st.st_mode) ? add_folder(t, path, e) : add_file(t, path, false, e);
}

/* A job file has no shell to expand a pattern. */
static int add_pattern(struct tokenizing *t, const char *pattern, struct err *e)
{
    glob_t found = {0};
    int rc = 0;

    if (glob(pattern, GLOB_NOCHECK, NULL, &found) != 0) {
        rc = err_set(e, E_NOTFOUND, "%s: matches no file", pattern);
    }
    for (size_t i = 0; rc == 0 && i < found.gl_pathc; i++) {
        rc = add_path(t, found.gl_pathv[i], e);
    }
    globfree(&found);
    return rc;
}

int verb_tokenize(const struct options *o, struct err *e)
{
    uint8_t header[SHARD_HEADER_BYTES] = {0};
    struct tokenizing *t = NULL;
    struct digest d;
    int rc;

    if (o->out == NULL || o->paths == 0) {
        return err_set(e, E_USAGE, "tokenize needs --out FILE and the text files or folders");
    }
    t = NEW(struct tokenizing);
    t->include = o->include;
    t->hash = hasher_new();
    rc = newfile_open(o->out, 0644, &t->file, e);
    if (rc != 0) {
        goto out;
    }
    newfile_write(t->file, header, sizeof header);
    for (int i = 0; rc == 0 && i < o->paths; i++) {
        rc = add_pattern(t, o->path[i], e);
    }
    if (rc == 0 && t->tokens == 0) {
        rc = err_set(e, E_INVALID, "no text in there");
    }
    if (rc == 0) {
        hasher_final(t->hash, &d);
        shard_header(t->tokens, VOCAB_BYTES, "bytes", &d, header);
        rc = fd_pwrite_all(newfile_fd(t->file), header, sizeof header, 0, e);
    }
    if (rc == 0) {
        rc = newfile_commit(&t->file, e);
    }
    if (rc == 0) {
        fprintf(stderr, "%s: %llu tokens from %llu files", o->out, (unsigned long long)t->tokens,
                (unsigned long long)t->files);
        fprintf(stderr, t->skipped > 0 ? " (%llu binary ones passed over)\n" : "\n",
                (unsigned long long)t->skipped);
    }
out:
    newfile_abort(&t->file);
    hasher_free(&t->hash);
    free(t);
    return rc;
}
