/* hub_list.c - documents of a tree in a Hub's format: listings, single paths, and metadata of the
 * whole tree. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <time.h>

#include "common/codec/form.h"
#include "common/codec/jwrite.h"
#include "common/hash/git_oid.h"
#include "server/repo/hosted/hub.h"
#include "server/store/blob.h"
#include "server/store/lineage.h"
#include "server/store/note.h"
#include "server/store/ref.h"

static void hub_lfs(struct buf *out, const struct entry *en, const char *id, const char *digest);
static struct slice hub_title(const struct snap *sn, const struct note *n, struct arena *a);

/* --- info, branches and tags, commits ---
 *
 * What a Hub says of a repository as a whole: its info at a version, its branches and tags, its
 * commits.
 */

enum { COMMITS_MAX = 1000 };

struct about {
    struct buf *out;
    struct store *s;
    const struct repo *r;
    const struct plan *p;
};

/* --- info ------------------------------------------------------------------------------------- */

static int on_sibling(void *arg, const struct entry *en)
{
    struct about *l = arg;

    if (l->out->rc != 0) {
        return E_TOOBIG;
    }
    if (en->type != ENTRY_FILE) {
        return 0;
    }
    jwrite_open(l->out, NULL, '{');
    jwrite_text(l->out, "rfilename", en->path);
    if (l->p->recursive) { /* sizes and digests too */
        hub_lfs(l->out, en, "blobId", "sha256");
    }
    jwrite_close(l->out, '}');
    return 0;
}

/* Of one tree at p->snap, as a whole. */
static int hub_info(struct store *s, const struct repo *r, const struct plan *p, struct buf *out,
                    struct err *e)
{
    struct about about = {out, s, r, p}, *l = &about;
    const struct snap *sn = &l->p->snap;
    struct slice rest = l->p->name;
    struct slice type = hub_cut_type(&rest);
    char id[HUB_COMMIT_HEX + 1];
    int rc;

    hub_commit_id(&sn->root, id);
    jwrite_open(l->out, NULL, '{');
    jwrite_text(l->out, "_id", slice_first(slice_str(id), 24));
    jwrite_text(l->out, "id", rest);
    if (slice_eqs(type, "models")) {
        jwrite_text(l->out, "modelId", rest);
    }
    jwrite_text(l->out, "author", slice_cut(&rest, '/'));
    jwrite_str(l->out, "sha", id);
    hub_when(l->out, "lastModified", sn->created_unix_s);
    hub_when(l->out, "createdAt", sn->created_unix_s);
    jwrite_bool(l->out, "private", !l->r->anonymous_read);
    jwrite_bool(l->out, "gated", false);
    jwrite_bool(l->out, "disabled", false);
    jwrite_word(l->out, "tags", SLICE("[]"));
    jwrite_u64(l->out, "downloads", 0);
    jwrite_u64(l->out, "likes", 0);
    jwrite_u64(l->out, "usedStorage", sn->bytes);
    jwrite_open(l->out, "siblings", '[');
    rc = tree_walk(l->s, &sn->root, SLICE(""), SLICE_NONE, on_sibling, l, e);
    jwrite_close(l->out, ']');
    jwrite_close(l->out, '}');
    return rc;
}

/* --- branches and tags ------------------------------------------------------------------------ */

static void ref_row(struct about *l, const char *prefix, struct slice name, const struct snap *sn)
{
    struct buf ref = BUF_INIT(2 * REF_NAME_MAX);
    char id[HUB_COMMIT_HEX + 1];

    hub_commit_id(&sn->root, id);
    buf_str(&ref, prefix);
    buf_adds(&ref, name);
    jwrite_open(l->out, NULL, '{');
    jwrite_text(l->out, "name", name);
    jwrite_text(l->out, "ref", buf_slice(&ref));
    jwrite_str(l->out, "targetCommit", id);
    jwrite_close(l->out, '}');
    buf_free(&ref);
}

struct refs {
    struct about *l;
    enum ref_kind kind;
    struct err *e;
};

static int on_hub_ref(void *arg, const struct ref *r)
{
    struct refs *w = arg;
    struct about *l = w->l;
    struct snap sn;
    int rc;

    if (r->kind != w->kind) {
        return 0;
    }
    rc = snap_get(l->s, slice_str(l->r->name), l->p->name, r->seq, &sn, w->e);
    if (rc == 0) {
        ref_row(l, r->kind == REF_BRANCH ? "refs/heads/" : "refs/tags/", r->name, &sn);
    }
    return rc;
}

/* What `mirrorctl snapshot tag` gave. */
static int on_label(void *arg, const struct snap *sn)
{
    if (sn->label[0] != '\0') {
        ref_row(arg, "refs/tags/", slice_str(sn->label), sn);
    }
    return 0;
}

static int hub_refs(struct store *s, const struct repo *r, const struct plan *p, struct buf *out,
                    struct err *e)
{
    struct about about = {out, s, r, p}, *l = &about;
    struct slice repo = slice_str(l->r->name);
    struct refs w = {.l = l, .kind = REF_BRANCH, .e = e};
    int rc;

    jwrite_open(l->out, NULL, '{');
    jwrite_open(l->out, "branches", '[');
    ref_row(l, "refs/heads/", SLICE("main"), &l->p->snap);
    rc = ref_list(l->s, repo, l->p->name, on_hub_ref, &w, e);
    jwrite_close(l->out, ']');
    jwrite_word(l->out, "converts", SLICE("[]"));
    jwrite_open(l->out, "tags", '[');
    w.kind = REF_TAG;
    rc = rc != 0 ? rc : ref_list(l->s, repo, l->p->name, on_hub_ref, &w, e);
    rc = rc != 0 ? rc : snap_list(l->s, repo, l->p->name, on_label, l, e);
    jwrite_close(l->out, ']');
    jwrite_close(l->out, '}');
    return rc;
}

/* --- commits ---------------------------------------------------------------------------------- */

static int commit_row(struct about *l, const struct snap *sn, struct err *e)
{
    struct arena a = {0};
    struct note n;
    char id[HUB_COMMIT_HEX + 1];
    int rc = note_get(l->s, slice_str(l->r->name), l->p->name, sn->seq, &a, &n, e);

    if (rc == 0 || rc == E_NOTFOUND) {
        hub_commit_id(&sn->root, id);
        jwrite_open(l->out, NULL, '{');
        jwrite_str(l->out, "id", id);
        jwrite_text(l->out, "title", hub_title(sn, &n, &a));
        jwrite_text(l->out, "message", n.message);
        hub_when(l->out, "date", sn->created_unix_s);
        jwrite_open(l->out, "authors", '[');
        if (n.author.n != 0) {
            jwrite_open(l->out, NULL, '{');
            jwrite_text(l->out, "user", n.author);
            jwrite_close(l->out, '}');
        }
        jwrite_close(l->out, ']');
        jwrite_close(l->out, '}');
        rc = 0;
    }
    arena_fini(&a);
    return rc;
}

/* Newest first: the version that was asked for, and what each was made from. */
static int hub_commits(struct store *s, const struct repo *r, const struct plan *p, struct buf *out,
                       struct err *e)
{
    struct about about = {out, s, r, p}, *l = &about;
    struct snap sn = l->p->snap;
    int rc = 0;

    jwrite_open(l->out, NULL, '[');
    for (int i = 0; rc == 0 && i < COMMITS_MAX; i++) {
        rc = commit_row(l, &sn, e);
        if (rc == 0 && sn.parent_seq == 0) {
            break;
        }
        rc =
            rc != 0 ? rc : snap_get(l->s, slice_str(l->r->name), l->p->name, sn.parent_seq, &sn, e);
    }
    jwrite_close(l->out, ']');
    return rc == E_NOTFOUND ? 0 : rc; /* a history that was cut by an older mirrord */
}

/* --- headers of safetensors files ---
 *
 * What a sharded model consists of: the header of each safetensors file that its index names, in
 * one document. The index and the headers are files of the tree, so all of it is read here, within
 * bounds.
 *
 * source   huggingface_hub, HfApi.get_sharded_safetensors_metadata(); the safetensors format: u64
 *          length, JSON of that length
 */

enum { INDEX_BYTES = 64 << 20, HEADER_BYTES = 100 << 20, LENGTH_BYTES = 8, SHARDS_MAX = 10000 };

struct tensors {
    struct store *s;
    const struct plan *p;
    struct buf *out;
};

static int no(struct err *e, const char *what, struct slice path)
{
    return err_set(e, E_NOTFOUND, "%s: " SLICE_FMT, what, SLICE_ARG(path));
}

static int open_tensor_file(const struct tensors *t, struct slice path, struct blob **out,
                            struct err *e)
{
    struct arena a = {0};
    struct entry en;
    int rc = path.p != NULL && tree_path_valid(path)
                 ? tree_get(t->s, &t->p->snap.root, path, &a, &en, e)
                 : E_NOTFOUND;

    if (rc == E_NOTFOUND || (rc == 0 && en.type != ENTRY_FILE)) {
        rc = no(e, "no such file", path);
    }
    rc = rc != 0 ? rc : blob_open(t->s, &en.digest, out, e);
    arena_fini(&a);
    return rc;
}

/* n bytes of the file from `at` on, as a JSON object; NULL: they are none. */
static json_t *read_object(struct blob *b, uint64_t at, uint64_t n, struct buf *text, struct err *e)
{
    char *room;
    json_t *o;

    buf_clear(text);
    room = buf_room(text, n);
    if (room == NULL || blob_read(b, at, room, n, e) != 0) {
        return NULL;
    }
    buf_grew(text, n);
    o = jread_parse(buf_slice(text), 0, jread_values_of(n));
    if (!json_is_object(o)) {
        json_decref(o);
        return NULL;
    }
    return o;
}

/* The header is passed on as the file has it. */
static int write_header(const struct tensors *t, const char *shard, struct buf *text, struct err *e)
{
    struct slice path = slice_str(shard);
    uint8_t length[LENGTH_BYTES];
    struct blob *b = NULL;
    json_t *o = NULL;
    uint64_t n = 0;
    int rc = open_tensor_file(t, path, &b, e);

    if (rc == 0 && blob_size_bytes(b) < LENGTH_BYTES) {
        rc = no(e, "not a safetensors file", path);
    }
    rc = rc != 0 ? rc : blob_read(b, 0, length, sizeof length, e);
    for (int i = LENGTH_BYTES; rc == 0 && i-- > 0;) {
        n = n << 8 | length[i];
    }
    if (rc == 0 && (n > HEADER_BYTES || n > blob_size_bytes(b) - LENGTH_BYTES ||
                    (o = read_object(b, LENGTH_BYTES, n, text, e)) == NULL)) {
        rc = no(e, "not a safetensors file", path);
    }
    if (rc == 0) {
        jwrite_key(t->out, path);
        jwrite_word(t->out, NULL, slice_trim(buf_slice(text)));
        rc = t->out->rc;
    }
    json_decref(o);
    blob_release(&b);
    return rc;
}

/* Each shard once, however many tensors are in it. */
static int write_headers(const struct tensors *t, const json_t *index, struct err *e)
{
    const json_t *map = json_object_get(index, "weight_map");
    json_t *seen = json_object(), *shard;
    struct buf text = BUF_INIT(HEADER_BYTES);
    const char *key;
    int rc = 0;

    CHECK(seen != NULL);
    jwrite_open(t->out, "headers", '{');
    json_object_foreach((json_t *)(uintptr_t)map, key, shard)
    {
        const char *name = json_string_value(shard);
        if (rc != 0 || (name != NULL && json_object_get(seen, name) != NULL)) {
            continue;
        }
        if (name == NULL || json_object_size(seen) == SHARDS_MAX) {
            rc = err_set(e, E_NOTFOUND,
                         "the index refers to something other than files, or to too many");
            continue;
        }
        CHECK(json_object_set_new(seen, name, json_true()) == 0);
        rc = write_header(t, name, &text, e);
    }
    jwrite_close(t->out, '}');
    buf_free(&text);
    json_decref(seen);
    return rc;
}

/* The index without its weight_map, which repeats the names in the headers. */
static int write_index(const struct tensors *t, const json_t *index)
{
    const json_t *metadata = json_object_get(index, "metadata");

    jwrite_open(t->out, "index", '{');
    if (metadata != NULL) {
        jwrite_key(t->out, SLICE("metadata"));
        (void)json_dump_callback(metadata, jwrite_dumped, t->out, JSON_COMPACT | JSON_ENCODE_ANY);
    }
    jwrite_close(t->out, '}');
    return t->out->rc;
}

/* E_NOTFOUND: no such index, or it names what is no safetensors file. */
static int hub_tensors(struct store *s, const struct plan *p, struct buf *out, struct err *e)
{
    struct tensors t = {s, p, out};
    struct buf text = BUF_INIT(INDEX_BYTES);
    struct blob *b = NULL;
    json_t *index = NULL;
    int rc = open_tensor_file(&t, p->text, &b, e);

    if (rc == 0 && (blob_size_bytes(b) > INDEX_BYTES ||
                    (index = read_object(b, 0, blob_size_bytes(b), &text, e)) == NULL)) {
        rc = no(e, "not a safetensors index", p->text);
    }
    if (rc == 0) {
        jwrite_open(out, NULL, '{');
        rc = write_index(&t, index);
        rc = rc != 0 ? rc : write_headers(&t, index, e);
        jwrite_close(out, '}');
    }
    json_decref(index);
    buf_free(&text);
    blob_release(&b);
    return rc;
}

enum { SKIP_BYTES = 4096, POINTER_BYTES = 256 };

struct hub_list {
    struct buf *out;
    struct store *s;
    const struct repo *r;
    const struct plan *p;
    struct slice folder; /* with its '/', or empty */
    bool recursive;
    size_t count;
    struct buf skip;         /* a path after all of the folder that was listed */
    struct buf before;       /* the last file's path */
    struct lineage *lineage; /* expand: who changed what */
    struct snap last;        /* that was listed as a path's last commit, */
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

/* --- files ------------------------------------------------------------------------------------ */

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

/* A file's size, and its names as LFS and git have them; id, digest: what documents call those. */
static void hub_lfs(struct buf *out, const struct entry *en, const char *id, const char *digest)
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

/* --- last commits ----------------------------------------------------------------------------- */

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
    rc = rc != 0 ? rc : note_get(l->s, repo, l->p->name, seq, &l->last_arena, &l->last_note, NULL);
    l->last.seq = rc == 0 || rc == E_NOTFOUND ? l->last.seq : 0;
    return l->last.seq == seq;
}

static struct slice hub_title(const struct snap *sn, const struct note *n, struct arena *a)
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

/* The name in our own chunk store. Where single paths are asked for, each file has one: clients
 * copy between repositories by it. */
static bool has_chunk_name(const struct hub_list *l, const struct entry *en)
{
    return en->size_bytes >= l->r->xet_from_bytes ||
           (l->p->form == LIST_HUB_PATHS && l->r->xet_from_bytes != UINT64_MAX &&
            en->size_bytes != 0);
}

static void write_hub_row(struct hub_list *l, const struct entry *en)
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

/* --- a folder --------------------------------------------------------------------------------- */

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

static int on_hub_entry(void *arg, const struct entry *en)
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
            write_hub_row(l, en);
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
        rc = tree_walk(l->s, &l->p->snap.root, l->folder, after, on_hub_entry, l, e);
        after = buf_slice(&l->skip);
    } while (rc == 1);
    jwrite_close(l->out, ']');
    if (rc == 0 && l->count == 0 && l->folder.n != 0) {
        return err_set(e, E_NOTFOUND, "no such folder");
    }
    return rc;
}

/* --- single paths ----------------------------------------------------------------------------- */

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
        write_hub_row(l, &en);
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
        rc = err_set(e, E_TOOBIG,
                     "the listing is larger than %zu bytes; request a folder below this one",
                     body->max);
    }
out:
    lineage_close(&l.lineage);
    arena_fini(&l.last_arena);
    buf_free(&l.skip);
    buf_free(&l.before);
    return rc;
}
