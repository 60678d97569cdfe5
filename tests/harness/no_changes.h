/* no_changes.h - instead of upload/changes.c, which is then not linked, for those who feed a reader
 * (repo.h: put_reader): what it calls is judged and forgotten. Once in a program. */
#ifndef TESTS_HARNESS_NO_CHANGES_H
#define TESTS_HARNESS_NO_CHANGES_H

#include "server/upload/changes.h"

static struct no_changes {
    struct put put;
    bool here;                        /* what the reader asks for, and what it names */
    bool (*path_valid)(struct slice); /* of what it changes */
    size_t file_bytes;                /* the most that a file may have */
} no_changes;

const struct put *changes_put(const struct changes *c)
{
    (void)c;
    return &no_changes.put;
}

void changes_make(struct changes *c)
{
    (void)c;
}

int changes_see(struct changes *c, struct slice path, bool *yes, struct err *e)
{
    (void)c, (void)e;
    CHECK(no_changes.path_valid(path));
    *yes = no_changes.here;
    return 0;
}

int changes_find(struct changes *c, const struct called *name, struct digest *out, bool *known,
                 struct err *e)
{
    (void)c, (void)e;
    *known = name->by == CALLED_SHA256 || no_changes.here;
    *out = name->sha256;
    return 0;
}

int changes_called(struct changes *c, const struct sha512 *name, const struct digest *d,
                   struct err *e)
{
    (void)c, (void)name, (void)d, (void)e;
    return 0;
}

void changes_parent(struct changes *c, struct slice hex, struct upload_reply *out)
{
    (void)c, (void)hex, (void)out;
}

void changes_note(struct changes *c, struct slice title, struct slice message,
                  struct upload_reply *out)
{
    (void)c, (void)title, (void)message, (void)out;
}

int changes_file(struct changes *c, struct slice path, struct slice bytes, struct upload_reply *out,
                 struct err *e)
{
    (void)c, (void)out, (void)e;
    CHECK(no_changes.path_valid(path) && bytes.n <= no_changes.file_bytes);
    return 0;
}

int changes_object(struct changes *c, struct slice path, const struct digest *d,
                   uint64_t size_bytes, struct upload_reply *out, struct err *e)
{
    (void)c, (void)d, (void)e;
    CHECK(no_changes.path_valid(path) && (size_bytes <= INT64_MAX || size_bytes == UINT64_MAX));
    out->status = no_changes.here ? 0 : 409;
    return 0;
}

int changes_remove(struct changes *c, struct slice path, struct upload_reply *out, struct err *e)
{
    (void)c, (void)out, (void)e;
    path.n -= path.n != 0 && path.p[path.n - 1] == '/';
    CHECK(path.n == 0 || tree_path_valid(path));
    return 0;
}

void changes_remove_where(struct changes *c, struct slice folder,
                          bool (*which)(const struct entry *en, const struct digest *d),
                          const struct digest *d)
{
    (void)c, (void)folder, (void)which, (void)d;
}

/* The sinks of the store call these; they are linked, not used. */
struct changes *changes_open(struct uploads *u, const struct put *p)
{
    (void)u, (void)p;
    return NULL;
}

int changes_commit(struct changes *c, uint64_t now_unix_s, struct upload_reply *out, struct err *e)
{
    (void)c, (void)now_unix_s, (void)out, (void)e;
    return 0;
}

void changes_close(struct changes **cp)
{
    *cp = NULL;
}

#endif
