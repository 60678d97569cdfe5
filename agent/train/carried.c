#include "agent/train/carried.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/train/manifest.h"
#include "agent/train/tokenizer.h"
#include "common/os/newfile.h"

/* The first is the tokenizer; slow tokenizers of other programs want the last three. */
static const char *const names[] = {"tokenizer.json",
                                    "tokenizer_config.json",
                                    "special_tokens_map.json",
                                    "added_tokens.json",
                                    "vocab.json",
                                    "merges.txt"};

struct carried {
    struct buf file[ARRAY_LEN(names)]; /* empty: not there */
};

int carried_load(const char *path, struct carried **out, struct err *e)
{
    struct carried *c = NEW(struct carried);
    struct stat st;
    bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    char file[PATH_MAX];
    int rc = 0;

    *out = NULL;
    for (size_t i = 0; rc == 0 && i < (folder ? ARRAY_LEN(names) : 1); i++) {
        c->file[i] = BUF_INIT(TOKENIZER_MAX_FILE);
        snprintf(file, sizeof file, "%s%s%s", path, folder ? "/" : "", folder ? names[i] : "");
        if (i == 0 || access(file, F_OK) == 0) {
            rc = buf_read_file(&c->file[i], file, e);
        }
    }
    if (rc == 0) {
        *out = c;
        c = NULL;
    }
    carried_free(&c);
    return rc;
}

void carried_free(struct carried **cp)
{
    struct carried *c = *cp;

    if (c != NULL) {
        *cp = NULL;
        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
            buf_free(&c->file[i]);
        }
        free(c);
    }
}

static int save(const char *dir, const char *name, struct slice bytes, struct err *e)
{
    char path[PATH_MAX];
    struct newfile *f;
    int rc;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    rc = newfile_open(path, 0644, &f, e);
    if (rc == 0) {
        newfile_write(f, bytes.p, bytes.n);
        rc = newfile_commit(&f, e);
    }
    return rc;
}

int carried_save(const struct carried *c, const char *dir, struct buf *manifest, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && c != NULL && i < ARRAY_LEN(names); i++) {
        struct slice bytes = buf_slice(&c->file[i]);
        struct digest d;

        if (bytes.n == 0) {
            continue;
        }
        rc = save(dir, names[i], bytes, e);
        if (manifest != NULL) {
            digest_of(bytes, &d);
            manifest_add(manifest, &d, names[i]);
        }
    }
    return rc;
}
