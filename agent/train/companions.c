#include "agent/train/companions.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "agent/train/manifest.h"
#include "common/os/newfile.h"

enum { FILE_MAX_BYTES = 64 << 20 };

static const char *const names[] = {COMPANION_TOKENIZER, "tokenizer_config.json",
                                    "tokenizer.model",   "special_tokens_map.json",
                                    "added_tokens.json", "vocab.json",
                                    "merges.txt",        "generation_config.json"};

bool companions_have(const struct companions *c, const char *name)
{
    for (size_t i = 0; i < c->count; i++) {
        if (strcmp(c->name[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static int add_companion(struct companions *c, const char *path, const char *name, struct err *e)
{
    struct buf text = BUF_INIT(FILE_MAX_BYTES);
    int rc = companions_have(c, name) ? 0 : buf_read_file(&text, path, e);

    if (rc == 0 && text.n > 0) {
        c->name[c->count] = name;
        c->text[c->count++] = text;
    } else {
        buf_free(&text);
    }
    return rc;
}

int companions_add(struct companions *c, const char *path, struct err *e)
{
    struct stat st;
    int rc = 0;

    if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        return add_companion(c, path, names[0], e);
    }
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(names); i++) {
        char file[PATH_MAX];

        snprintf(file, sizeof file, "%s/%s", path, names[i]);
        rc = add_companion(c, file, names[i], e);
        rc = rc == E_NOTFOUND ? 0 : rc;
    }
    return rc;
}

void companions_free(struct companions *c)
{
    for (size_t i = 0; i < c->count; i++) {
        buf_free(&c->text[i]);
    }
    *c = (struct companions){0};
}

int companions_save(const struct companions *c, const char *dir, struct buf *manifest,
                    struct err *e)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < c->count; i++) {
        char path[PATH_MAX];
        struct digest digest;
        struct newfile *f;

        snprintf(path, sizeof path, "%s/%s", dir, c->name[i]);
        if (manifest != NULL) {
            digest_of(buf_slice(&c->text[i]), &digest);
            manifest_add(manifest, &digest, c->name[i]);
        }
        rc = newfile_open(path, 0644, &f, e);
        if (rc == 0) {
            newfile_write(f, c->text[i].p, c->text[i].n);
            rc = newfile_commit(&f, e);
        }
    }
    return rc;
}
