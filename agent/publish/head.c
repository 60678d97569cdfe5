/* head.c - what the tree has of the files already: that need not be sent again.
 *
 * Its listing is asked for before the upload. Is it these files to the last byte, all is done. Else the files that it has as they are stay
 * where they are, and the commit lays the rest over that root (If-Match); but only when the tree has nothing besides, for what is to go can only
 * be said by the commit that makes the upload the whole tree. A listing that cannot be had, or is of another kind, says nothing.
 */
#include <jansson.h>
#include <stdlib.h>

#include <uthash.h>

#include "agent/publish/publisher.h"
#include "common/codec/jread.h"

struct named {
    UT_hash_handle hh;
    struct publish_file *file;
};

static struct named *index_files(struct publish_files *files, struct named *all)
{
    struct named *by_name = NULL;

    for (size_t i = 0; i < files->n; i++) {
        struct named *x = &all[i];
        x->file = &files->at[i];
        HASH_ADD_KEYPTR(hh, by_name, x->file->name.p, x->file->name.n, x);
    }
    return by_name;
}

/* False: the tree has something that is not to be in it. */
static bool compare_entry(const struct named *by_name, const json_t *entry)
{
    struct slice name = jread_text(entry, "path");
    const json_t *mtime = json_object_get(entry, "mtime");
    struct named *x = NULL;
    struct digest digest;
    uint64_t size;

    if (name.n != 0) {
        HASH_FIND(hh, by_name, name.p, name.n, x);
    }
    if (x == NULL || !digest_parse(jread_text(entry, "sha256"), &digest) ||
        !jread_u64(entry, "size", &size)) {
        return false;
    }
    /* A time that was kept is a part of the root, and what we send has none. */
    x->file->there = (mtime == NULL || json_is_null(mtime)) && size == x->file->size_bytes &&
                     digest_eq(&digest, &x->file->digest);
    return true;
}

static bool compare_all(struct publisher *p, const json_t *entries)
{
    struct named *all = mem_array(p->files.n + 1, sizeof all[0]);
    struct named *by_name = index_files(&p->files, all);
    bool ok = json_array_size(entries) > 0;

    for (size_t i = 0; ok && i < json_array_size(entries); i++) {
        ok = compare_entry(by_name, json_array_get(entries, i));
    }
    HASH_CLEAR(hh, by_name);
    free(all);
    return ok;
}

void head_forget(struct publisher *p)
{
    for (size_t i = 0; i < p->files.n; i++) {
        p->files.at[i].there = false;
    }
    p->over_head = false;
    p->next = 0;
}

void head_read(struct publisher *p, struct slice listing, struct publish_result *out)
{
    json_t *doc = json_loadb(listing.p != NULL ? listing.p : "", listing.n, 0, NULL);
    struct slice version = jread_text(doc, "version");
    size_t left = 0;

    p->over_head = version.n != 0 && version.n < sizeof out->version &&
                   digest_parse(jread_text(doc, "root"), &p->head) &&
                   compare_all(p, json_object_get(doc, "entries"));
    if (!p->over_head) {
        head_forget(p);
    } else {
        for (size_t i = 0; i < p->files.n; i++) {
            left += !p->files.at[i].there;
        }
        p->same = left == 0;
        if (p->same) {
            out->root = p->head;
            memcpy(out->version, version.p, version.n);
            out->version[version.n] = '\0';
        }
    }
    json_decref(doc);
}
