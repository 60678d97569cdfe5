/* image_list.c - an image's tags, and what refers to a manifest: documents made of a tree, on a pool thread. */
#include <inttypes.h>

#include "common/codec/form.h"
#include "common/codec/jread.h"
#include "common/codec/jwrite.h"
#include "common/codec/url.h"
#include "server/repo/hosted/image.h"
#include "server/store/blob.h"

enum { VALUE_MAX = 1024, DESCRIPTOR_MAX = 8 << 20, TAGS_MAX = 1 << 20 };

/* --- tags --------------------------------------------------------------------------------------------------------- */

struct tags {
    struct listing_out *out;
    uint64_t limit, count;
    char last[OCI_TAG_MAX + 1];
    bool more;
};

static int on_tag(void *arg, const struct entry *en)
{
    struct tags *t = arg;
    struct slice tag = slice_from(en->path, strlen("tags/"));

    if (t->count == t->limit) {
        t->more = true;
        return 1;
    }
    t->count++;
    jwrite_text(t->out->body, NULL, tag);
    if (tag.n < sizeof t->last) {
        memcpy(t->last, tag.p, tag.n);
        t->last[tag.n] = '\0';
    }
    return 0;
}

static int list_tags(struct store *s, const struct plan *p, struct listing_out *out, struct err *e)
{
    struct tags t = {.out = out, .limit = TAGS_MAX};
    struct arena a = {0};
    struct slice query = p->text;
    struct slice n = form_find(&query, "n", VALUE_MAX, &a);
    struct slice after = SLICE_NONE;
    struct slice last;
    uint64_t limit;
    int rc;

    query = p->text;
    last = form_find(&query, "last", VALUE_MAX, &a);
    if (slice_u64(n, &limit)) {
        t.limit = min_u64(limit, TAGS_MAX);
    }
    if (last.n != 0) {
        after = arena_fmt(&a, "tags/" SLICE_FMT, SLICE_ARG(last));
    }
    jwrite_open(out->body, NULL, '{');
    jwrite_text(out->body, "name", slice_from(p->name, strlen(IMAGE_TREE)));
    jwrite_open(out->body, "tags", '[');
    rc = tree_walk(s, &p->snap.root, SLICE("tags/"), after, on_tag, &t, e);
    jwrite_close(out->body, ']');
    jwrite_close(out->body, '}');
    buf_byte(out->body, '\n');
    if (t.more && t.limit != 0) { /* tags need no escapes */
        buf_addf(&out->next, SLICE_FMT "/tags/list?n=%" PRIu64 "&last=%s", SLICE_ARG(p->location),
                 t.limit, t.last);
    }
    arena_fini(&a);
    out->content_type = SLICE("application/json");
    return rc > 0 ? 0 : rc;
}

/* --- referrers ---------------------------------------------------------------------------------------------------- */

struct referrers {
    struct store *s;
    struct buf *out;
    struct slice kind; /* n == 0: any */
    struct err *e;
};

static int on_referrer(void *arg, const struct entry *en)
{
    struct referrers *r = arg;
    struct buf text = BUF_INIT(DESCRIPTOR_MAX);
    int rc = blob_read_whole(r->s, &en->digest, &text, r->e);

    if (rc == 0 && r->kind.n != 0) {
        json_t *o = json_loadb(text.p, text.n, 0, NULL);
        if (!slice_eq(jread_text(o, "artifactType"), r->kind)) {
            buf_clear(&text);
        }
        json_decref(o);
    }
    if (rc == 0 && text.n != 0) {
        jwrite_word(r->out, NULL, buf_slice(&text));
    }
    buf_free(&text);
    return rc;
}

static int list_referrers(struct store *s, const struct plan *p, struct listing_out *out,
                          struct err *e)
{
    struct arena a = {0};
    struct slice query = p->text;
    struct referrers r = {s, out->body, form_find(&query, "artifactType", VALUE_MAX, &a), e};
    int rc;

    jwrite_open(out->body, NULL, '{');
    jwrite_u64(out->body, "schemaVersion", 2);
    jwrite_str(out->body, "mediaType", "application/vnd.oci.image.index.v1+json");
    jwrite_open(out->body, "manifests", '[');
    rc = tree_walk(s, &p->snap.root, p->entry.path, SLICE_NONE, on_referrer, &r, e);
    jwrite_close(out->body, ']');
    jwrite_close(out->body, '}');
    buf_byte(out->body, '\n');
    arena_fini(&a);
    out->content_type = SLICE("application/vnd.oci.image.index.v1+json");
    return rc;
}

int image_listing(struct store *s, const struct plan *p, struct listing_out *out, struct err *e)
{
    int rc = p->form == LIST_IMAGE_TAGS ? list_tags(s, p, out, e) : list_referrers(s, p, out, e);

    if (rc == 0 && out->body->rc != 0) {
        rc = err_set(e, out->body->rc, "a list of more than %zu bytes", out->body->max);
    }
    return rc;
}
