/* details.c - what the Hub knows of entries beyond names and sizes (expand=true): which commit touched one last, what scanners
 * said. Scans go on after a commit, so the Hub is asked, part by part as the client asks, and its word is kept as briefly as
 * other documents. While the Hub is silent, and nothing was kept, entries are told of without. */
#include <jansson.h>

#include "common/codec/url.h"
#include "common/codec/jread.h"
#include "server/repo/hf/hf.h"
#include "server/repo/hf/key.h"

enum { DOC_BYTES = 4 << 20 };

bool details_wanted(struct slice form)
{
    while (form.n != 0) {
        struct slice value = slice_cut(&form, '&');
        if (slice_eqs(slice_cut(&value, '='), "expand")) {
            return slice_ieq(value, SLICE("true")) || slice_eqs(value, "1");
        }
    }
    return false;
}

/* By the commit: a branch may be held here at an older one. */
static struct slice listing_of(const struct hf_ask *k, struct slice folder)
{
    return arena_fmt(k->a, SLICE_FMT "%s" SLICE_FMT,
                     SLICE_ARG(key_tree(k->at.type, access_id(k), k->commit, k->a)),
                     folder.n != 0 ? "/" : "", SLICE_ARG(url_encoded_path(folder, k->a)));
}

bool details_tree(struct hf_ask *k)
{
    const struct fact *f;

    if (k->r->synced || !details_wanted(k->req->query)) {
        return false;
    }
    f = access_json(k, listing_of(k, k->at.path), k->req->query, false);
    if (f == NULL) {
        return true;
    }
    if (f->rc == E_NOTFOUND || f->rc == E_DENIED) {
        say_fact(k, f);
        return true;
    }
    k->stale = f->stale || f->rc != 0;
    k->in_trouble = f->in_trouble || f->rc != 0;
    if (f->rc == 0) {
        say_json(k, f->bytes);
        hf_say_next(k, f->next);
    }
    return f->rc == 0;
}

/* --- of single paths: the Hub answers those by POST, its listing of their folders by GET -------------------------- */

static struct slice folder_of(struct slice path)
{
    size_t n = slice_behind(path, '/');

    return slice_first(path, n != 0 ? n - 1 : 0);
}

static bool has_folder(const struct details *d, struct slice folder)
{
    for (size_t i = 0; i < d->count; i++) {
        if (slice_eq(d->folder[i], folder)) {
            return true;
        }
    }
    return false;
}

/* Its entries by path: a request may name thousands of them. NULL: it is no list. */
static json_t *by_path(struct slice doc)
{
    json_t *list = doc.n <= DOC_BYTES ? jread_parse(doc, 0, jread_values_of(doc.n)) : NULL;
    json_t *all = json_is_array(list) ? json_object() : NULL;
    json_t *one;
    size_t i;

    json_array_foreach(list, i, one)
    {
        const char *path = json_string_value(json_object_get(one, "path"));
        if (path != NULL && json_object_get(all, path) == NULL) {
            (void)json_object_set(all, path, one);
        }
    }
    json_decref(list);
    return all;
}

bool details_learn(struct hf_ask *k, struct slice path, struct details *d)
{
    struct slice folder = folder_of(path);
    const struct fact *f;

    if (has_folder(d, folder) || d->count == DETAILS_FOLDERS_MAX) {
        return true;
    }
    f = access_json(k, listing_of(k, folder), SLICE("expand=true"), false);
    if (f == NULL) {
        return false;
    }
    k->stale = k->stale || f->stale || f->rc != 0;
    k->in_trouble = k->in_trouble || f->in_trouble || f->rc != 0;
    d->folder[d->count] = folder;
    d->entries[d->count++] = f->rc == 0 ? by_path(f->bytes) : NULL;
    return true;
}

static int into_buf(const char *p, size_t n, void *arg)
{
    buf_add(arg, p, n);
    return ((struct buf *)arg)->rc != 0 ? -1 : 0;
}

bool details_say(const struct details *d, struct slice path, struct buf *out)
{
    size_t at = out->n;

    for (size_t i = 0; i < d->count; i++) {
        const json_t *one = json_object_getn(d->entries[i], path.p, path.n);
        if (one != NULL) {
            if (json_dump_callback(one, into_buf, out, JSON_COMPACT) == 0) {
                return true;
            }
            out->n = at;
            return false;
        }
    }
    return false;
}

void details_close(struct details *d)
{
    for (size_t i = 0; i < d->count; i++) {
        json_decref(d->entries[i]);
    }
    d->count = 0;
}
