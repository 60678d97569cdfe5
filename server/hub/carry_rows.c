/* carry_rows.c - makes objects of a pull-through repo from an imported revision, as if the Hub had
 * sent them.
 *
 * Files and listings are valid for ever. The commit of a revision is the Hub's answer of an earlier
 * time: it is served immediately, while the Hub is asked in the background. Any answer of the Hub
 * replaces it; without an answer it stays.
 */
#include <jansson.h>
#include <stdlib.h>

#include "common/os/clock.h"
#include "server/hub/carry_in.h"
#include "server/hub/pinning.h"
#include "server/cache/object.h"
#include "server/repo/hf/key.h"
#include "server/store/blob.h"
#include "server/store/keep.h"
#include "server/upload/live.h"

enum { KEY_BYTES = 16 << 10, TRIES = 8, REFS_BYTES = 4 << 20 };

struct rows { /* one try */
    struct carry_in *c;
    struct store *store;
    struct slice repo;
    struct batch *b;
    struct arena arena;
    uint64_t now_unix_s;
};

static bool is_carried(const struct object *o)
{
    return o->swr_s == OBJECT_CARRIED_S;
}

/* What is there under a key: *there false when it is of another origin, too; its holder goes with
 * what replaces it. */
static int look_up_carried_row(struct rows *w, struct slice key, struct buf *row, struct object *o,
                               bool *there, struct err *e)
{
    struct buf row_key = BUF_INIT(KEY_BYTES);
    int rc;

    object_key(&row_key, w->repo, key, SLICE(""));
    rc = store_get(w->store, TABLE_OBJECT, buf_slice(&row_key), row, e);
    *there = rc == 0 && object_decode(buf_slice(row), &w->arena, o) &&
             origin_owns(w->c->is.repo->origin, o->origin);
    buf_free(&row_key);
    return rc == E_NOTFOUND ? 0 : rc;
}

/* The row, in the place of `old` (what look_up_carried_row() read; empty: none). */
static void put_object(struct rows *w, struct slice key, const struct object *o, struct slice old)
{
    struct buf row_key = BUF_INIT(KEY_BYTES), row = BUF_INIT(OBJECT_ROW_MAX);
    struct digest before;

    object_key(&row_key, w->repo, key, SLICE(""));
    if (old.n == 0) {
        batch_require_absent(w->b, TABLE_OBJECT, buf_slice(&row_key));
    } else {
        batch_require_value(w->b, TABLE_OBJECT, buf_slice(&row_key), old);
        if (object_row_digest(old, &before) && !digest_eq(&before, &o->digest)) {
            holder_key(&row, &before, w->repo, 'o', key);
            batch_del(w->b, TABLE_HOLDER, buf_slice(&row));
            buf_clear(&row);
        }
    }
    object_encode(o, &row);
    batch_put(w->b, TABLE_OBJECT, buf_slice(&row_key), buf_slice(&row));
    buf_clear(&row);
    holder_key(&row, &o->digest, w->repo, 'o', key);
    batch_put(w->b, TABLE_HOLDER, buf_slice(&row), SLICE(""));
    CHECK(row_key.rc == 0 && row.rc == 0); /* names have bounds far below */
    buf_free(&row_key);
    buf_free(&row);
}

static struct object object_of(struct rows *w, const struct digest *d, uint64_t size_bytes,
                               struct slice etag)
{
    return (struct object){.digest = *d,
                           .origin = origin_identity(w->c->is.repo->origin),
                           .size_bytes = size_bytes,
                           .stored_unix_s = w->now_unix_s,
                           .validated_unix_s = w->now_unix_s,
                           .fresh_until_unix_s = w->now_unix_s,
                           .etag = arena_fmt(&w->arena, "\"" SLICE_FMT "\"", SLICE_ARG(etag))};
}

/* --- files ------------------------------------------------------------------------------------ */

static int put_carried_row(struct rows *w, const struct carry_in_file *f, struct err *e)
{
    const struct carry *is = &w->c->is;
    struct buf row = BUF_INIT(OBJECT_ROW_MAX);
    struct manifest_entry en;
    char room[ETAG_HEX + 1];
    struct slice key;
    struct object o;
    bool there;
    int rc;

    manifest_at(&is->files, f->at, &en);
    key = key_file(is->type, is->id, &en, &w->arena);
    rc = look_up_carried_row(w, key, &row, &o, &there, e);
    if (rc == 0 && !(there && digest_eq(&o.digest, &f->digest))) {
        o = object_of(w, &f->digest, en.size_bytes, key_etag(&en, room));
        o.url = arena_fmt(&w->arena, "%s" SLICE_FMT, origin_url(is->repo->origin), SLICE_ARG(key));
        put_object(w, key, &o, buf_slice(&row));
    }
    buf_free(&row);
    return rc;
}

/* A file may be under several paths: its row is written once. */
static int compare_carried_digests(const void *a, const void *b)
{
    return memcmp((*(const struct carry_in_file *const *)a)->digest.b,
                  (*(const struct carry_in_file *const *)b)->digest.b, DIGEST_BYTES);
}

static int put_files(struct rows *w, struct err *e)
{
    struct carry_in *c = w->c;
    const struct carry_in_file **f = mem_array(c->files + 1, sizeof *f);
    int rc = 0;

    for (size_t i = 0; i < c->files; i++) {
        f[i] = &c->file[i];
    }
    qsort(f, c->files, sizeof *f, compare_carried_digests);
    for (size_t i = 0; rc == 0 && i < c->files; i++) {
        /* The same bytes have the same name, unless git has one and LFS another. */
        struct manifest_entry en, before;
        manifest_at(&c->is.files, f[i]->at, &en);
        bool again = false;
        for (size_t j = i; j-- > 0 && digest_eq(&f[j]->digest, &f[i]->digest) && !again;) {
            manifest_at(&c->is.files, f[j]->at, &before);
            again = before.lfs == en.lfs;
        }
        if (!again) {
            rc = put_carried_row(w, f[i], e);
        }
    }
    free(f);
    return rc;
}

/* --- words ------------------------------------------------------------------------------------ */

static struct object document_object(struct rows *w, const struct blob *b, struct slice url)
{
    char hex[DIGEST_HEX + 1];
    struct object o;

    digest_format(blob_digest(b), hex);
    o = object_of(w, blob_digest(b), blob_size_bytes(b), arena_fmt(&w->arena, "sha256-%s", hex));
    o.content_type = SLICE("application/json; charset=utf-8");
    o.url = arena_fmt(&w->arena, "%s" SLICE_FMT, origin_url(w->c->is.repo->origin), SLICE_ARG(url));
    return o;
}

/* All of the listing as one page, in the place of whatever pages there are: they might lead on to
 * one that is not here. */
static int put_tree(struct rows *w, const struct blob *b, struct err *e)
{
    const struct carry *is = &w->c->is;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < w->c->names_count; i++) {
        struct slice key = key_tree(is->type, w->c->names[i], is->commit, &w->arena);
        struct slice url = key_tree(is->type, is->id, is->commit, &w->arena);
        struct buf row = BUF_INIT(OBJECT_ROW_MAX);
        struct object old, o = document_object(w, b, url);
        bool there;
        rc = look_up_carried_row(w, key, &row, &old, &there, e);
        if (rc == 0) {
            put_object(w, key, &o, buf_slice(&row));
        }
        buf_free(&row);
    }
    return rc;
}

/* *kept becomes true when what is there was seen later than what comes. */
static int put_alias(struct rows *w, struct slice key, const struct blob *b, bool *kept,
                     struct err *e)
{
    struct buf row = BUF_INIT(OBJECT_ROW_MAX);
    struct object old, o = document_object(w, b, key);
    bool there;
    int rc = look_up_carried_row(w, key, &row, &old, &there, e);

    o.validated_unix_s = o.fresh_until_unix_s = w->c->is.seen_unix_s;
    o.swr_s = OBJECT_CARRIED_S;
    if (rc == 0 && there && old.validated_unix_s > o.validated_unix_s) {
        *kept = *kept || !digest_eq(&old.digest, &o.digest);
    } else if (rc == 0) {
        put_object(w, key, &o, buf_slice(&row));
    }
    buf_free(&row);
    return rc;
}

static int put_info(struct rows *w, const struct blob *b, struct err *e)
{
    const struct carry *is = &w->c->is;
    bool main = slice_eqs(is->rev, "main"), same = false;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < w->c->names_count; i++) {
        struct slice name = w->c->names[i];
        rc = put_alias(w, key_info(is->type, name, is->commit, &w->arena), b, &same, e);
        if (rc == 0 && !slice_eq(is->rev, is->commit)) {
            rc =
                put_alias(w, key_info(is->type, name, is->rev, &w->arena), b, &w->c->kept_later, e);
        }
        if (rc == 0 && main) {
            rc = put_alias(w, key_info(is->type, name, SLICE_NONE, &w->arena), b, &same, e);
        }
    }
    return rc;
}

/* What is closed at the Hub, and to be read here by whoever may read the repo: without the words
 * that say so. */
static int opened(const struct carry_in *c, struct buf *out, struct err *e)
{
    json_t *v = json_loadb(c->is.info.p, c->is.info.n, 0, NULL);
    char *text;

    if (!json_is_object(v)) {
        json_decref(v);
        return err_set(e, E_INVALID, "the Hub's metadata is not a JSON object");
    }
    json_object_set_new(v, "private", json_false());
    json_object_set_new(v, "gated", json_false());
    text = json_dumps(v, JSON_COMPACT);
    buf_str(out, text != NULL ? text : "");
    free(text);
    json_decref(v);
    return out->rc;
}

/* --- branches and tags ------------------------------------------------------------------------ */

static json_t *member(json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);

    if (!json_is_array(v)) {
        v = json_array();
        json_object_set_new(o, key, v);
    }
    return v;
}

static void set_ref(json_t *list, const char *ref, const char *name, const char *commit)
{
    json_t *one;
    size_t i;

    json_array_foreach(list, i, one)
    {
        const char *is = json_string_value(json_object_get(one, "name"));
        if (is != NULL && strcmp(is, name) == 0) {
            json_object_set_new(one, "targetCommit", json_string(commit));
            return;
        }
    }
    json_array_append_new(
        list, json_pack("{s:s, s:s, s:s}", "name", name, "ref", ref, "targetCommit", commit));
}

/* The Hub's own list stays as it is; one of ours gets one more entry. Which names are tags is
 * unknown: all but main are listed as tags. */
static int put_refs_of(struct rows *w, struct slice name, struct err *e)
{
    struct carry *is = &w->c->is;
    struct slice key =
        arena_fmt(&w->arena, SLICE_FMT "/refs", SLICE_ARG(key_words(is->type, name, &w->arena)));
    bool main = slice_eqs(is->rev, "main"), there, kept = false;
    const char *rev = arena_cstr(&w->arena, is->rev), *commit = arena_cstr(&w->arena, is->commit);
    struct buf row = BUF_INIT(OBJECT_ROW_MAX), doc = BUF_INIT(REFS_BYTES);
    struct blob *b = NULL;
    struct object old;
    json_t *v = NULL;
    char *text = NULL;
    int rc = look_up_carried_row(w, key, &row, &old, &there, e);

    if (rc != 0 || (there && !is_carried(&old))) {
        goto out;
    }
    if (there && blob_read_whole(w->store, &old.digest, &doc, NULL) == 0) {
        v = json_loadb(doc.p, doc.n, 0, NULL);
    }
    if (!json_is_object(v)) {
        json_decref(v);
        v = json_object();
    }
    json_object_set_new(v, "converts", json_array());
    (void)member(v, "branches");
    (void)member(v, "tags");
    set_ref(member(v, main ? "branches" : "tags"),
            arena_fmt(&w->arena, "refs/%s/%s", main ? "heads" : "tags", rev).p, rev, commit);
    text = json_dumps(v, JSON_COMPACT);
    CHECK(text != NULL);
    rc = blob_put_bytes(w->store, slice_str(text), w->b, &b, e);
    rc = rc != 0 ? rc : put_alias(w, key, b, &kept, e);
out:
    blob_release(&b);
    free(text);
    json_decref(v);
    buf_free(&row);
    buf_free(&doc);
    return rc;
}

static int put_refs(struct rows *w, struct err *e)
{
    struct slice rev = w->c->is.rev;
    int rc = 0;

    if (hf_is_commit(rev) || slice_starts(rev, SLICE("refs/")) || w->c->kept_later) {
        return 0;
    }
    for (size_t i = 0; rc == 0 && i < w->c->names_count; i++) {
        rc = put_refs_of(w, w->c->names[i], e);
    }
    return rc;
}

/* --- all of it -------------------------------------------------------------------------------- */

static int end_session(struct rows *w, struct err *e)
{
    struct carry_in *c = w->c;
    struct manifest_entry en;
    struct session s;
    int rc = carry_in_session(c, &s, e);

    if (rc == 0) {
        session_require(&s, w->b);
        batch_del(w->b, TABLE_UPLOAD, slice_of(s.id, UPLOAD_ID));
        for (size_t i = 0; i < c->files; i++) {
            manifest_at(&c->is.files, c->file[i].at, &en);
            session_file_del(&s, en.path, w->b);
            session_unhold(&s, en.path, &c->file[i].digest, w->b);
        }
    }
    session_free(&s);
    return rc;
}

static int attempt_carried_rows(struct carry_in *c, struct err *e)
{
    struct rows w = {.c = c,
                     .store = c->is.hub->store,
                     .repo = slice_str(c->is.repo->name),
                     .b = batch_new(),
                     .now_unix_s = clock_unix_s()};
    struct buf info = BUF_INIT(CARRY_WORDS_BYTES);
    struct blob *info_blob = NULL, *tree_blob = NULL;
    int rc = 0;

    c->kept_later = false;
    if (c->open && c->is.closed) {
        rc = opened(c, &info, e);
    } else {
        buf_adds(&info, buf_slice(&c->is.info));
    }
    rc = rc != 0 ? rc : end_session(&w, e);
    rc = rc != 0 ? rc : put_files(&w, e);
    rc = rc != 0 ? rc : blob_put_bytes(w.store, buf_slice(&info), w.b, &info_blob, e);
    rc = rc != 0 ? rc : blob_put_bytes(w.store, buf_slice(&c->is.tree), w.b, &tree_blob, e);
    rc = rc != 0 ? rc : put_tree(&w, tree_blob, e);
    rc = rc != 0 ? rc : put_info(&w, info_blob, e);
    rc = rc != 0 ? rc : put_refs(&w, e);
    if (c->pin) {
        pinning_import(w.repo, c->is.type, c->names, c->names_count, w.b);
    }
    rc = rc != 0 ? rc : store_commit(w.store, &w.b, COMMIT_SYNC, e);
    blob_release(&info_blob);
    blob_release(&tree_blob);
    batch_free(&w.b);
    buf_free(&info);
    arena_fini(&w.arena);
    return rc;
}

int carry_rows_commit(struct carry_in *c, struct err *e)
{
    char id[UPLOAD_ID + 1];
    int rc = E_CHANGED;

    memcpy(id, c->id, sizeof id);
    for (int i = 0; rc == E_CHANGED && i < TRIES; i++) {
        rc = attempt_carried_rows(c, e);
    }
    if (rc == 0) {
        live_remove(c->is.hub->uploads, id);
    }
    return rc;
}
