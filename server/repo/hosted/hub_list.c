/* hub_list.c - documents of a tree as a Hub words them: listings and single paths; hub_about.c has what is said of the whole. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "common/codec/form.h"
#include "common/codec/jwrite.h"
#include "common/hash/git_oid.h"
#include "server/repo/hosted/hub.h"
#include "server/store/lineage.h"
#include "server/store/note.h"

enum { SKIP_BYTES = 4096, POINTER_BYTES = 256 };

struct hub_list {
    struct buf *out;
    struct store *s;
    const struct repo *r;
    const struct plan *p;
    struct slice folder; /* with its '/', or empty */
    bool recursive;
    size_t count;
    struct buf skip;         /* a path behind all of the folder that was told of */
    struct buf before;       /* the last file's path */
    struct lineage *lineage; /* expand: who changed what */
    struct snap last;        /* that was told of as a path's last commit, */
    struct note last_note;
    struct arena last_arena; /* and its texts */
};

void hub_when(struct buf *out, const char *key, uint64_t unix_s)
{
    time_t t = (time_t)unix_s;
    struct tm tm;
    char s[40];

    if (gmtime_r(&t, &tm) == NULL || strftime(s, sizeof s, "%Y-%m-%dT%H:%M:%S.000Z", &tm) == 0) {
        s[0] = '\0';
    }
    jwrite_str(out, key, s);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

/* The pointer file that git would hold for it: its id and length are what a Hub tells. */
static size_t pointer_of(const struct entry *en, const char *hex, char oid[GIT_OID_HEX + 1])
{
    char pointer[POINTER_BYTES];
    struct git_oid o;
    int n =
        snprintf(pointer, sizeof pointer,
                 "version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %" PRIu64 "\n",
                 hex, en->size_bytes);

    git_oid_of(slice_of(pointer, (size_t)n), &o);
    git_oid_format(&o, oid);
    return (size_t)n;
}

void hub_lfs(struct buf *out, const struct entry *en, const char *id, const char *digest)
{
    char hex[DIGEST_HEX + 1];
    char oid[GIT_OID_HEX + 1];
    size_t n;

    digest_format(&en->digest, hex);
    n = pointer_of(en, hex, oid);
    jwrite_u64(out, "size", en->size_bytes);
    jwrite_str(out, id, oid);
    jwrite_open(out, "lfs", '{');
    jwrite_str(out, digest, hex);
    jwrite_u64(out, "size", en->size_bytes);
    jwrite_u64(out, "pointerSize", n);
    jwrite_close(out, '}');
}

/* --- last commits ------------------------------------------------------------------------------------------------- */

static bool find_last(struct hub_list *l, uint64_t seq)
{
    struct slice repo = slice_str(l->r->name);
    int rc;

    if (l->last.seq == seq) {
        return true;
    }
    arena_fini(&l->last_arena);
    l->last_arena = (struct arena){0};
    rc = snap_get(l->s, repo, l->p->name, seq, &l->last, NULL);
    if (rc == 0) {
        rc = note_get(l->s, repo, l->p->name, seq, &l->last_arena, &l->last_note, NULL);
    }
    l->last.seq = rc == 0 || rc == E_NOTFOUND ? l->last.seq : 0;
    return l->last.seq == seq;
}

struct slice hub_title(const struct snap *sn, const struct note *n, struct arena *a)
{
    return n->title.n != 0 ? n->title : arena_fmt(a, "v%" PRIu64, sn->seq);
}

static void last_commit(struct hub_list *l, struct slice path)
{
    char id[HUB_COMMIT_HEX + 1];

    if (l->lineage == NULL || !find_last(l, lineage_seq(l->lineage, path))) {
        return;
    }
    hub_commit_id(&l->last.root, id);
    jwrite_open(l->out, "lastCommit", '{');
    jwrite_str(l->out, "id", id);
    jwrite_text(l->out, "title", hub_title(&l->last, &l->last_note, &l->last_arena));
    hub_when(l->out, "date", l->last.created_unix_s);
    jwrite_close(l->out, '}');
}

/* The name in our own chunk store. Where single paths are asked for, each file has one: clients copy between repositories by it. */
static bool has_chunk_name(const struct hub_list *l, const struct entry *en)
{
    return en->size_bytes >= l->r->xet_from_bytes ||
           (l->p->form == LIST_HUB_PATHS && l->r->xet_from_bytes != UINT64_MAX &&
            en->size_bytes != 0);
}

static void file_row(struct hub_list *l, const struct entry *en)
{
    jwrite_open(l->out, NULL, '{');
    jwrite_str(l->out, "type", "file");
    jwrite_text(l->out, "path", en->path);
    hub_lfs(l->out, en, "oid", "oid");
    if (has_chunk_name(l, en)) {
        jwrite_hex(l->out, "xetHash", en->digest.b, DIGEST_BYTES);
    }
    last_commit(l, en->path);
    jwrite_close(l->out, '}');
}

/* path: without its '/'. Its id: any, the same as long as the tree is. */
static void folder_row(struct hub_list *l, struct slice path)
{
    struct hasher *h = hasher_new_whole();
    struct digest d;
    char id[HUB_COMMIT_HEX + 1];

    hasher_add(h, l->p->snap.root.b, DIGEST_BYTES);
    hasher_add(h, path.p, path.n);
    hasher_final(h, &d);
    hasher_free(&h);
    hub_commit_id(&d, id);
    jwrite_open(l->out, NULL, '{');
    jwrite_str(l->out, "type", "directory");
    jwrite_text(l->out, "path", path);
    jwrite_str(l->out, "oid", id);
    jwrite_u64(l->out, "size", 0);
    last_commit(l, path);
    jwrite_close(l->out, '}');
}

/* --- a folder ----------------------------------------------------------------------------------------------------- */

/* Folders that this file is the first of. */
static void folders_of(struct hub_list *l, struct slice path)
{
    for (size_t i = l->folder.n; i < path.n; i++) {
        if (path.p[i] == '/' && !slice_starts(buf_slice(&l->before), slice_first(path, i + 1))) {
            folder_row(l, slice_first(path, i));
        }
    }
    buf_clear(&l->before);
    buf_adds(&l->before, path);
}

static int on_entry(void *arg, const struct entry *en)
{
    struct hub_list *l = arg;
    ptrdiff_t slash = slice_find(slice_from(en->path, l->folder.n), '/');

    l->count++;
    if (l->out->rc != 0) {
        return E_TOOBIG;
    }
    if (slash < 0 || l->recursive) {
        folders_of(l, en->path);
        if (en->type == ENTRY_FILE) {
            file_row(l, en);
        }
        return 0;
    }
    folder_row(l, slice_first(en->path, l->folder.n + (size_t)slash));
    buf_clear(&l->skip);
    buf_add(&l->skip, en->path.p, l->folder.n + (size_t)slash + 1);
    memset(buf_room(&l->skip, SKIP_BYTES), 0xff, SKIP_BYTES);
    buf_grew(&l->skip, SKIP_BYTES);
    return 1; /* and go on behind it */
}

static int list_tree(struct hub_list *l, struct err *e)
{
    struct slice after = SLICE_NONE;
    int rc;

    jwrite_open(l->out, NULL, '[');
    do {
        rc = tree_walk(l->s, &l->p->snap.root, l->folder, after, on_entry, l, e);
        after = buf_slice(&l->skip);
    } while (rc == 1);
    jwrite_close(l->out, ']');
    if (rc == 0 && l->count == 0 && l->folder.n != 0) {
        return err_set(e, E_NOTFOUND, "no such folder");
    }
    return rc;
}

/* --- single paths ------------------------------------------------------------------------------------------------- */

static int on_any(void *arg, const struct entry *en)
{
    (void)en;
    ++*(size_t *)arg;
    return 1;
}

static int path_row(struct hub_list *l, struct slice path, struct err *e)
{
    struct arena a = {0};
    struct entry en;
    size_t below = 0;
    int rc;

    if (!tree_path_valid(path)) {
        return 0;
    }
    rc = tree_get(l->s, &l->p->snap.root, path, &a, &en, e);
    if (rc == 0 && en.type == ENTRY_FILE) {
        file_row(l, &en);
    } else if (rc == E_NOTFOUND) {
        struct slice folder = arena_fmt(&a, SLICE_FMT "/", SLICE_ARG(path));
        rc = tree_walk(l->s, &l->p->snap.root, folder, SLICE_NONE, on_any, &below, e);
        rc = rc == 1 ? 0 : rc;
        if (rc == 0 && below != 0) {
            folder_row(l, path);
        }
    }
    arena_fini(&a);
    return rc;
}

static int list_paths(struct hub_list *l, struct err *e)
{
    struct slice form = l->p->text, path;
    struct arena a = {0};
    int rc = 0;

    jwrite_open(l->out, NULL, '[');
    while (rc == 0 && (path = form_find(&form, "paths", SKIP_BYTES, &a)).p != NULL) {
        path.n -= path.n != 0 && path.p[path.n - 1] == '/';
        rc = path_row(l, path, e);
    }
    jwrite_close(l->out, ']');
    arena_fini(&a);
    return rc;
}

int hub_listing(struct store *s, const struct repo *r, const struct plan *p, struct buf *body,
                struct slice *content_type, struct err *e)
{
    struct hub_list l = {.out = body,
                         .s = s,
                         .r = r,
                         .p = p,
                         .folder = p->entry.path,
                         .recursive = p->recursive,
                         .skip = BUF_INIT(3 * SKIP_BYTES),
                         .before = BUF_INIT(2 * SKIP_BYTES)};
    int rc = 0;

    *content_type = SLICE("application/json");
    if (p->expand && (p->form == LIST_HUB_TREE || p->form == LIST_HUB_PATHS)) {
        rc = lineage_open(s, slice_str(r->name), p->name, &p->snap, &l.lineage, e);
        if (rc != 0) {
            goto out;
        }
    }
    switch ((enum hosted_list)p->form) {
    case LIST_HUB_INFO:
        rc = hub_info(s, r, p, body, e);
        break;
    case LIST_HUB_TREE:
        rc = list_tree(&l, e);
        break;
    case LIST_HUB_PATHS:
        rc = list_paths(&l, e);
        break;
    case LIST_HUB_MODES:
        rc = hub_modes(s, p, body, e);
        break;
    case LIST_HUB_REFS:
        rc = hub_refs(s, r, p, body, e);
        break;
    case LIST_HUB_COMMITS:
        rc = hub_commits(s, r, p, body, e);
        break;
    case LIST_HUB_OBJECTS:
        rc = hub_objects(s, r, p, body, e);
        break;
    case LIST_HUB_TENSORS:
        rc = hub_tensors(s, p, body, e);
        break;
    case LIST_HUB_TREES:
    case LIST_IMAGE_TAGS:
    case LIST_IMAGE_REFERRERS:
    case LIST_PYTHON_PROJECTS:
    case LIST_PYTHON_PROJECT:
    case LIST_HOSTED_FOLDER:
        break;
    }
    if (rc == E_TOOBIG || (rc == 0 && body->rc != 0)) {
        rc = err_set(e, E_TOOBIG, "a listing of more than %zu bytes: ask for a folder below",
                     body->max);
    }
out:
    lineage_close(&l.lineage);
    arena_fini(&l.last_arena);
    buf_free(&l.skip);
    buf_free(&l.before);
    return rc;
}
