/* verify.c - damage: found by verify_run() and by the scrubber, confirmed, and dropped.
 *
 * verify_run() checks the invariants of a live store, one pass each. An apparent violation is
 * checked again before it is reported, and every removal is checked on the commit thread or under
 * the register of seals.
 *
 *   blobs      a row leads to all bytes (deep: to the right ones)
 *   files      a file has a row; inline bytes, chunk lists and access hours have a blob; partial/
 *              has its rows
 *   holders    a holder has its blob, and its object or upload; a tree may have one before its
 *              first snapshot
 *   trees      a snapshot can be read completely, its files are present and held
 *   counters   are the sum of the rows
 */

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/endian.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/store/drop.h"
#include "server/store/gc.h"
#include "server/store/head.h"
#include "server/store/keep.h"
#include "server/store/ref.h"
#include "server/store/row.h"
#include "server/store/state.h"

/* --- a damaged blob --------------------------------------------------------------------------- */

struct damaged {
    struct drops drops;
    enum damage how;
};

static int look_inline(struct store *s, const struct digest *d, uint64_t size_bytes, struct err *e)
{
    struct buf bytes = BUF_INIT(BLOB_INLINE_BYTES);
    int rc = kv_get(s->kv, TABLE_INLINE, digest_key(d), &bytes, e);

    if (rc == E_NOTFOUND) {
        rc = err_set(e, E_CORRUPT, "its inline bytes are missing");
    } else if (rc == E_TOOBIG || (rc == 0 && bytes.n != size_bytes)) {
        rc = err_set(e, E_CORRUPT, "its inline bytes do not have the recorded size");
    }
    buf_free(&bytes);
    return rc;
}

static int look_place(struct store *s, const struct drop *x, struct err *e)
{
    struct blob *b = NULL;
    int rc;

    if (x->row.place == BLOB_INLINE) {
        return look_inline(s, &x->digest, x->row.size_bytes, e);
    }
    rc = blob_open_file(s, &x->digest, x->row.size_bytes, &b, e);
    blob_release(&b);
    return rc == E_NOTFOUND ? err_set(e, E_CORRUPT, "its file is missing") : rc;
}

static int damage_look(struct store *s, const struct digest *d, struct err *e)
{
    struct drop x;
    int rc = drop_look(s, d, &x, e);

    rc = rc != 0 ? rc : look_place(s, &x, e);
    drop_free(&x);
    return rc;
}

static int still_damaged(struct store *s, void *arg, struct err *e)
{
    struct damaged *x = arg;
    const struct drop *one = x->drops.drop;
    int rc = drops_check(s, &x->drops, e);

    if (rc != 0 || x->how != DAMAGE_PLACE || one->row.place == 0) {
        return rc;
    }
    rc = look_place(s, one, e);
    return rc == 0 ? err_set(e, E_CHANGED, "the blob is complete") : rc == E_CORRUPT ? 0 : rc;
}

static void count_damaged_blob(struct store *s)
{
    if (atomic_fetch_add(&s->damaged, 1) == 0) {
        atomic_store(&s->damaged_since_unix_s, clock_unix_s());
    }
}

uint64_t store_damaged(const struct store *s, uint64_t *since_unix_s)
{
    *since_unix_s = atomic_load(&s->damaged_since_unix_s);
    return atomic_load(&s->damaged);
}

int damage_confirm(struct store *s, const struct digest *d, enum damage how, struct err *e)
{
    struct drop x;
    struct damaged arg = {{&x, 1}, how};
    char hex[DIGEST_HEX + 1];
    int rc = drop_look(s, d, &x, e);

    digest_format(d, hex);
    if (rc == 0 && how == DAMAGE_UNREADABLE && x.others != 0 && !blob_is_elsewhere(s, d, NULL)) {
        count_damaged_blob(s);
        log_error("store.unreadable", "blob=%s held=%zu", hex, x.others);
        rc = err_set(e, E_IO, "the blob cannot be read, and no origin has it");
    } else if (rc == E_NOTFOUND) {
        rc = err_set(e, E_CHANGED, "the blob was deleted in the meantime");
    } else if (rc == 0 || rc == E_CORRUPT) {
        struct batch *b = batch_new();
        batch_check(b, still_damaged, &arg);
        /* Wrong bytes of an upload may be the best copy that is left of it. */
        drop_put(&x, b, x.others != 0 ? AFTER_SET_ASIDE : AFTER_QUARANTINE);
        rc = store_commit(s, &b, COMMIT_SYNC, e);
    }
    if (rc == 0) {
        count_damaged_blob(s);
        log_error("store.damaged", "blob=%s objects=%zu held=%zu%s", hex, x.objects, x.others,
                  x.others != 0 && x.row.place != BLOB_INLINE ? " kept=quarantine" : "");
    }
    drop_free(&x);
    return rc;
}

/* --- what all passes know --------------------------------------------------------------------- */

struct verify {
    struct store *s;
    bool deep;
    bool repair;
    bool (*progress)(void *arg, uint64_t done, uint64_t total);
    void (*finding)(void *arg, const char *what);
    void *arg;
    struct verify_report *out;
    struct counts sum;
    uint64_t total;
    enum table table; /* of a pass over side rows */
    struct buf key;
    struct buf row;
    struct err *e;
};

static void verify_found(struct verify *v, uint64_t *kind, const char *fmt, ...) PRINTF_LIKE(3, 4);

static bool verify_has_row(struct verify *v, enum table t, struct slice key);

/* --- scrub --- */

enum { SCRUB_ROW_MAX = 4096 };

#define CURSOR SLICE("scrub_cursor")

struct scrub {
    struct store *s;
    struct buf key;
    struct buf row;
    uint64_t before_unix_s;
    struct err *e;
};

/* Notes that the blob was whole now; when its row changed meanwhile, the newer row stands. */
static void note_verified(struct scrub *x, const struct digest *d, struct blob_row r)
{
    char row[BLOB_ROW_BYTES];
    struct batch *b = batch_new();

    r.verified_unix_s = clock_unix_s();
    blob_row_encode(&r, row);
    batch_require_value(b, TABLE_BLOB, digest_key(d), buf_slice(&x->row));
    batch_put(b, TABLE_BLOB, digest_key(d), slice_of(row, sizeof row));
    if (store_commit(x->s, &b, COMMIT_LAZY, NULL) != 0) {
        return; /* it is hashed again in the next round */
    }
}

static int hash_blob(struct store *s, const struct digest *d, bool *same, struct err *e)
{
    struct blob *b = NULL;
    struct digest got;
    int rc = blob_open(s, d, &b, e);

    if (rc == 0 && blob_fd(b) == -1) {
        digest_of(blob_bytes(b), &got);
    } else if (rc == 0) {
        rc = digest_of_fd(blob_fd(b), blob_size_bytes(b), &got, e);
        if (rc == E_CORRUPT) { /* it ends early */
            memset(&got, 0, sizeof got);
            rc = 0;
        }
        /* What nobody else reads shall not push out what clients do. */
        (void)posix_fadvise(blob_fd(b), 0, 0, POSIX_FADV_DONTNEED);
    }
    *same = rc == 0 && digest_eq(&got, d);
    blob_release(&b);
    return rc;
}

/* Hashes the blob, twice when it seems wrong. E_CORRUPT: blob_open() found it damaged and has
 * dropped it. E_IO: unreadable. */
static int blob_hash_check(struct store *s, const struct digest *d, bool *whole, struct err *e)
{
    int rc = hash_blob(s, d, whole, e);

    if (rc == E_IO || (rc == 0 && !*whole)) { /* once more: memory and cables err too */
        rc = hash_blob(s, d, whole, e);
    }
    return rc;
}

void damage_suspect(struct store *s, const struct digest *d)
{
    bool whole = false;
    int rc;

    if (!blob_is_elsewhere(s, d, NULL)) {
        return;
    }
    rc = blob_hash_check(s, d, &whole, NULL);
    if (rc == E_IO || (rc == 0 && !whole)) {
        (void)!damage_confirm(s, d, rc == E_IO ? DAMAGE_UNREADABLE : DAMAGE_BYTES, NULL);
    }
}

static int scrub_one(struct scrub *x, const struct digest *d, uint64_t *read_bytes,
                     uint64_t *damaged)
{
    struct blob_row r;
    bool whole = false;
    int rc = blob_row_decode(buf_slice(&x->row), &r, x->e);

    if (rc == 0 && max_u64(r.verified_unix_s, r.created_unix_s) >= x->before_unix_s) {
        return 0;
    }
    if (rc == 0) {
        *read_bytes += r.size_bytes;
        rc = blob_hash_check(x->s, d, &whole, x->e);
    }
    if (rc == 0 && whole) {
        note_verified(x, d, r);
    } else if (rc == 0 || rc == E_CORRUPT || rc == E_IO) {
        enum damage how = rc == E_IO ? DAMAGE_UNREADABLE : DAMAGE_BYTES;
        int dropped = rc == E_CORRUPT ? 0 : damage_confirm(x->s, d, how, x->e);
        *damaged += dropped == 0 || dropped == E_IO;
        rc = dropped == E_CHANGED || dropped == E_IO ? 0 : dropped;
    }
    return rc == E_NOTFOUND ? 0 : rc;
}

static void set_cursor(struct scrub *x, struct slice at)
{
    struct batch *b = batch_new();

    batch_put(b, TABLE_META, CURSOR, at);
    if (store_commit(x->s, &b, COMMIT_LAZY, NULL) != 0) {
        return; /* some blobs are hashed twice */
    }
}

int scrub_step(struct store *s, uint64_t budget_bytes, uint64_t before_unix_s, uint64_t *read_bytes,
               uint64_t *damaged, struct err *e)
{
    struct scrub x = {s, BUF_INIT(SCRUB_ROW_MAX), BUF_INIT(SCRUB_ROW_MAX), before_unix_s, e};
    struct buf at = BUF_INIT(SCRUB_ROW_MAX);
    int rc = kv_get(s->kv, TABLE_META, CURSOR, &at, e);

    *read_bytes = *damaged = 0;
    rc = rc == E_NOTFOUND ? 0 : rc;
    while (rc == 0 && *read_bytes < budget_bytes) {
        struct digest d;
        rc = kv_first(s->kv, TABLE_BLOB, buf_slice(&at), &x.key, &x.row, e);
        if (rc == E_NOTFOUND) { /* the round is done; the next step begins another */
            buf_clear(&at);
            rc = 0;
            break;
        }
        if (rc != 0) {
            break;
        }
        if (x.key.n == DIGEST_BYTES) {
            memcpy(d.b, x.key.p, DIGEST_BYTES);
            rc = scrub_one(&x, &d, read_bytes, damaged);
        }
        buf_clear(&at);
        buf_adds(&at, buf_slice(&x.key));
        buf_byte(&at, 0);
    }
    set_cursor(&x, buf_slice(&at));
    buf_free(&at);
    buf_free(&x.key);
    buf_free(&x.row);
    return rc;
}

/* --- files ---
 *
 * Of a verify, what lies in the folders: each blob's file has its row, each partial one a fetch or
 * an upload.
 */

enum { PARTIAL_OLD_S = 3600 };

static void check_name(struct verify *v, const char *folder, const char *name)
{
    struct digest d;
    char path[BLOB_PATH];
    int fd;

    if (!digest_parse(slice_str(name), &d)) {
        verify_found(v, &v->out->bad_rows, "blobs/%s/%.80s: not a file of this store", folder,
                     name);
        return;
    }
    blob_path(&d, path);
    if (memcmp(path, folder, 5) != 0 || strcmp(path + 6, name) != 0) {
        verify_found(v, &v->out->bad_rows, "blobs/%s/%.80s: in the wrong folder", folder, name);
        return;
    }
    if (verify_has_row(v, TABLE_BLOB, digest_key(&d)) || seal_entered(v->s, &d)) {
        return;
    }
    fd = seal_remove_file(v->s, &d, SEAL_UNLINK);
    if (fd != -1) {
        close(fd);
        verify_found(v, &v->out->orphans, "blobs/%s: orphaned, removed", path);
        v->out->repaired++;
    }
}

static DIR *open_dir(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd != -1 ? fdopendir(fd) : NULL;

    if (d == NULL && fd != -1) {
        close(fd);
    }
    return d;
}

static void check_folder(struct verify *v, const char *folder)
{
    DIR *d = open_dir(v->s->blobs_fd, folder);
    struct dirent *ent;

    while (d != NULL && (ent = readdir(d)) != NULL) {
        if (ent->d_name[0] != '.') {
            check_name(v, folder, ent->d_name);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
}

/* Passes: orphans are removed and counted, what is in the wrong place is said. */
/* blobs/ */
static int verify_files(struct verify *v)
{
    char folder[6];

    for (unsigned i = 0; i < 256; i++) {
        snprintf(folder, sizeof folder, "%02x", i);
        if (faccessat(v->s->blobs_fd, folder, F_OK, AT_SYMLINK_NOFOLLOW) == -1) {
            continue;
        }
        for (unsigned j = 0; j < 256; j++) {
            snprintf(folder, sizeof folder, "%02x/%02x", i, j);
            check_folder(v, folder);
        }
    }
    return 0;
}

/* Young ones belong to a fetch whose row is on its way. */
static void check_partial(struct verify *v, const char *name)
{
    struct stat st;
    uint8_t raw[STAGE_KEY_BYTES];
    uint64_t now = clock_unix_s();

    if (fstatat(v->s->partial_fd, name, &st, AT_SYMLINK_NOFOLLOW) == -1 ||
        (uint64_t)st.st_mtime + PARTIAL_OLD_S > now) {
        return;
    }
    if (slice_hex(slice_str(name), raw, sizeof raw) &&
        (stage_is_open(v->s, be_get(raw, sizeof raw)) ||
         verify_has_row(v, TABLE_PARTIAL, slice_of(raw, sizeof raw)))) {
        return;
    }
    if (unlinkat(v->s->partial_fd, name, 0) == 0) {
        verify_found(v, &v->out->orphans, "partial/%.80s: orphaned, removed", name);
        v->out->repaired++;
    }
}

/* partial/ */
static int verify_partials(struct verify *v)
{
    DIR *d = open_dir(v->s->partial_fd, ".");
    struct dirent *ent;

    while (d != NULL && (ent = readdir(d)) != NULL) {
        if (ent->d_name[0] != '.') {
            check_partial(v, ent->d_name);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    return 0;
}

enum { ROW_MAX = 64 << 20 };

/* Counts it, and says it to whoever listens. */
static void verify_found(struct verify *v, uint64_t *kind, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    ++*kind;
    if (v->finding != NULL) {
        va_start(ap, fmt);
        vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        v->finding(v->arg, text);
    }
}

/* A row of that key, and be it one that cannot be read. */
static bool verify_has_row(struct verify *v, enum table t, struct slice key)
{
    return kv_get(v->s->kv, t, key, &v->row, NULL) != E_NOTFOUND;
}

/* Commits a repair of one row; what changed meanwhile needs none. */
static int mend(struct verify *v, struct batch **bp)
{
    int rc = store_commit(v->s, bp, COMMIT_LAZY, v->e);

    v->out->repaired += rc == 0;
    return rc == E_CHANGED ? 0 : rc;
}

/* --- blobs --- */

static int drop_damaged(struct verify *v, const struct digest *d, enum damage how)
{
    int rc = v->repair ? damage_confirm(v->s, d, how, v->e) : 0;

    v->out->repaired += v->repair && rc == 0;
    return rc == E_CHANGED ? 0 : rc;
}

static int check_bytes(struct verify *v, const struct digest *d, const char *hex)
{
    bool whole = false;
    int rc = blob_hash_check(v->s, d, &whole, v->e);

    if (rc == 0 && !whole) {
        verify_found(v, &v->out->damaged, "blob %s: bytes do not match the digest", hex);
        rc = drop_damaged(v, d, DAMAGE_BYTES);
    } else if (rc == E_IO) {
        verify_found(v, &v->out->damaged, "blob %s: the disk cannot read its bytes", hex);
        rc = drop_damaged(v, d, DAMAGE_UNREADABLE);
    }
    return rc == E_NOTFOUND || rc == E_CORRUPT || rc == E_IO ? 0 : rc;
}

static int check_blob(void *arg, struct slice key, struct slice value)
{
    struct verify *v = arg;
    struct err why = {0};
    struct blob_row r;
    struct digest d;
    char hex[DIGEST_HEX + 1];
    int rc;

    if (key.n != DIGEST_BYTES) {
        verify_found(v, &v->out->bad_rows, "the key of a blob has an invalid size: %zu bytes",
                     key.n);
        return 0;
    }
    memcpy(d.b, key.p, DIGEST_BYTES);
    digest_format(&d, hex);
    if (blob_row_decode(value, &r, NULL) == 0) {
        counts_add(&v->sum, r.size_bytes);
        v->out->bytes += r.size_bytes;
    }
    if (v->progress != NULL && !v->progress(v->arg, v->out->blobs, v->total)) {
        return err_set(v->e, E_CANCELLED, "canceled: the client of the verification is gone");
    }
    v->out->blobs++;
    rc = damage_look(v->s, &d, &why);
    if (rc == E_CORRUPT) {
        bool missing = strstr(why.text, "missing") != NULL;
        verify_found(v, missing ? &v->out->missing : &v->out->damaged, "blob %s: %s", hex,
                     why.text);
        return drop_damaged(v, &d, DAMAGE_PLACE);
    }
    if (rc != 0) {
        return rc == E_NOTFOUND ? 0 : err_set(v->e, rc, "%s", why.text);
    }
    return v->deep ? check_bytes(v, &d, hex) : 0;
}

/* --- rows beside a blob's --- */

static int check_side_row(void *arg, struct slice key, struct slice value)
{
    struct verify *v = arg;
    struct batch *b;

    (void)value;
    if (verify_has_row(v, TABLE_BLOB, key) || !verify_has_row(v, v->table, key) ||
        (key.n == DIGEST_BYTES && seal_entered(v->s, (const void *)key.p))) {
        return 0;
    }
    verify_found(v, &v->out->orphans, "a row without its blob was removed");
    b = batch_new();
    batch_require_absent(b, TABLE_BLOB, key);
    batch_del(b, v->table, key);
    return mend(v, &b);
}

static int check_side_rows(struct verify *v)
{
    static const enum table beside[] = {TABLE_INLINE, TABLE_CHUNKS, TABLE_PIECES, TABLE_ATIME};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(beside); i++) {
        v->table = beside[i];
        rc = kv_scan_once(v->s->kv, NULL, beside[i], SLICE_NONE, SLICE_NONE, check_side_row, v,
                          v->e);
    }
    return rc;
}

/* --- holders --- */

/* A holder and what it stands on come and go in one batch, so a look at both takes three. */
static bool lost(struct verify *v, struct slice holder, enum table t, struct slice key)
{
    return !verify_has_row(v, t, key) && verify_has_row(v, TABLE_HOLDER, holder) &&
           !verify_has_row(v, t, key);
}

static int remove_holder(struct verify *v, struct slice holder, enum table t, struct slice key)
{
    struct batch *b;

    if (!v->repair) {
        return 0;
    }
    b = batch_new();
    batch_require_absent(b, t, key);
    batch_del(b, TABLE_HOLDER, holder);
    return mend(v, &b);
}

static int check_referrer(struct verify *v, struct slice holder, struct slice repo, char kind,
                          struct slice key)
{
    enum table t = kind == 'o' ? TABLE_OBJECT : kind == 's' ? TABLE_STAGE : TABLE_UPLOAD;

    if (kind == 't') {
        return 0; /* a publish under way, or one that never came: the collection sees to it */
    }
    buf_clear(&v->key);
    if (kind != 'u') {
        buf_adds(&v->key, repo);
        buf_byte(&v->key, 0);
    }
    buf_adds(&v->key, key);
    if (!lost(v, holder, t, buf_slice(&v->key))) {
        return 0;
    }
    verify_found(v, &v->out->bad_rows,
                 "a holder ('%c') in " SLICE_FMT " without its referrer " SLICE_FMT, kind,
                 SLICE_ARG(repo), (int)(key.n < 200 ? key.n : 200), key.n != 0 ? key.p : "");
    return remove_holder(v, holder, t, buf_slice(&v->key));
}

static int check_holder(void *arg, struct slice row_key, struct slice value)
{
    struct verify *v = arg;
    struct slice repo, key, blob;
    char kind;

    (void)value;
    if (!holder_parse(row_key, &repo, &kind, &key) ||
        (kind != 'o' && kind != 't' && kind != 'u' && kind != 's')) {
        verify_found(v, &v->out->bad_rows, "the key of a holder cannot be decoded");
        return 0;
    }
    blob = slice_first(row_key, DIGEST_BYTES);
    if (lost(v, row_key, TABLE_BLOB, blob)) {
        if (kind == 't') {
            return 0; /* said with the tree; a new seal heals it */
        }
        verify_found(v, &v->out->bad_rows, "a holder in " SLICE_FMT " without its blob",
                     SLICE_ARG(repo));
        return remove_holder(v, row_key, TABLE_BLOB, blob);
    }
    return check_referrer(v, row_key, repo, kind, key);
}

static int check_holders(struct verify *v)
{
    return kv_scan_once(v->s->kv, NULL, TABLE_HOLDER, SLICE_NONE, SLICE_NONE, check_holder, v,
                        v->e);
}

/* --- trees --- */

static void bad_tree(void *arg, struct slice tree, uint64_t seq, const struct err *why)
{
    struct verify *v = arg;
    int nul = (int)slice_find(tree, '\0');

    nul = nul < 0 ? 0 : nul;
    verify_found(v, &v->out->damaged, "snapshot %.*s " SLICE_FMT " v%" PRIu64 ": %s", nul, tree.p,
                 SLICE_ARG(slice_from(tree, (size_t)nul + (tree.n != 0))), seq, why->text);
}

static int check_file_of_tree(void *arg, struct slice tree, const struct entry *en, struct err *e)
{
    struct verify *v = arg;
    struct buf holder = BUF_INIT(KV_KEY_MAX);
    struct slice name = tree;
    struct slice repo = slice_cut(&name, '\0');
    char hex[DIGEST_HEX + 1];
    int rc = 0;

    (void)e;
    digest_format(&en->digest, hex);
    holder_key(&holder, &en->digest, repo, 't', name);
    if (blob_is_elsewhere(v->s, &en->digest, NULL)) {
        /* it may be evicted, and brought here again */
    } else if (!verify_has_row(v, TABLE_BLOB, digest_key(&en->digest))) {
        verify_found(v, &v->out->missing,
                     "missing: blob %s of " SLICE_FMT " " SLICE_FMT " (" SLICE_FMT ")", hex,
                     SLICE_ARG(repo), SLICE_ARG(name), SLICE_ARG(en->path));
    } else if (!verify_has_row(v, TABLE_HOLDER, buf_slice(&holder))) {
        verify_found(v, &v->out->bad_rows, "blob %s is not held by " SLICE_FMT " " SLICE_FMT, hex,
                     SLICE_ARG(repo), SLICE_ARG(name));
        if (v->repair) {
            struct batch *b = batch_new();
            batch_put(b, TABLE_HOLDER, buf_slice(&holder), SLICE_NONE);
            rc = mend(v, &b);
        }
    }
    buf_free(&holder);
    return rc;
}

static int check_head(void *arg, struct slice key, struct slice value)
{
    struct verify *v = arg;
    struct slice name = key;
    struct slice repo = slice_cut(&name, '\0');
    struct head h;

    if (head_decode(value, &h, NULL) != 0) {
        verify_found(v, &v->out->bad_rows, "the row of a head cannot be decoded");
        return 0;
    }
    buf_clear(&v->key);
    snap_key(&v->key, repo, name, h.live_seq);
    if (!verify_has_row(v, TABLE_SNAP, buf_slice(&v->key)) && verify_has_row(v, TABLE_HEAD, key)) {
        verify_found(v, &v->out->bad_rows,
                     "the head of " SLICE_FMT " " SLICE_FMT " has no snapshot", SLICE_ARG(repo),
                     SLICE_ARG(name));
    }
    return 0;
}

/* A branch or a tag. */
static int check_ref(void *arg, struct slice key, struct slice value)
{
    struct verify *v = arg;
    struct slice name = key;
    struct slice repo = slice_cut(&name, '\0');
    struct slice tree = slice_cut(&name, '\0');
    struct ref r;

    if (ref_decode(value, &r, NULL) != 0) {
        verify_found(v, &v->out->bad_rows, "the row of a branch or tag cannot be decoded");
        return 0;
    }
    buf_clear(&v->key);
    snap_key(&v->key, repo, tree, r.seq);
    if (!verify_has_row(v, TABLE_SNAP, buf_slice(&v->key)) && verify_has_row(v, TABLE_REF, key) &&
        !verify_has_row(v, TABLE_SNAP, buf_slice(&v->key))) {
        verify_found(v, &v->out->bad_rows,
                     SLICE_FMT " of " SLICE_FMT " " SLICE_FMT " has no snapshot",
                     SLICE_ARG(slice_from(name, 1)), SLICE_ARG(repo), SLICE_ARG(tree));
    }
    return 0;
}

static int check_trees(struct verify *v)
{
    struct mark_events ev = {bad_tree, check_file_of_tree, v};
    struct kv_view *view = kv_view_open(v->s->kv);
    struct mark m = {0};
    int rc = kv_scan_once(v->s->kv, view, TABLE_HEAD, SLICE_NONE, SLICE_NONE, check_head, v, v->e);

    rc = rc != 0 ? rc
                 : kv_scan(v->s->kv, view, TABLE_REF, SLICE_NONE, SLICE_NONE, check_ref, v, v->e);
    rc = rc != 0 ? rc : mark_run(v->s, view, &ev, &m, v->e);
    mark_free(&m);
    kv_view_close(&view);
    return rc;
}

/* --- counters --- */

static int read_counts(void *arg, struct slice key, struct slice value)
{
    (void)key;
    return counts_decode(value, arg, NULL) == 0 ? 0 : E_CORRUPT;
}

struct correction {
    struct counts sum;
    struct counts kept;
};

static int correct(struct store *s, void *arg, struct err *e)
{
    struct correction *c = arg;

    (void)e;
    committer_adjust(s, &c->sum, &c->kept);
    return 0;
}

static int check_counts(struct verify *v, const struct counts *kept)
{
    struct correction c = {v->sum, *kept};
    struct batch *b;

    if (memcmp(&v->sum, kept, sizeof *kept) == 0) {
        return 0;
    }
    verify_found(v, &v->out->bad_rows,
                 "the counters have %" PRIu64 " blobs and %" PRIu64 " bytes instead of %" PRIu64
                 " and %" PRIu64,
                 kept->blobs, kept->used_bytes, v->sum.blobs, v->sum.used_bytes);
    if (!v->repair) {
        return 0;
    }
    b = batch_new();
    batch_check(b, correct, &c);
    return mend(v, &b);
}

/* Rows and counters change in one batch, so one view of both must agree. */
static int check_blobs(struct verify *v)
{
    struct kv_view *view = kv_view_open(v->s->kv);
    struct counts kept = {0};
    int rc = kv_scan_once(v->s->kv, view, TABLE_META, SLICE("counts"), SLICE("counts\1"),
                          read_counts, &kept, v->e);

    if (rc == E_CORRUPT) {
        kept = (struct counts){0};
        rc = 0;
    }
    v->total = kept.blobs;
    if (rc == 0) {
        rc = kv_scan_once(v->s->kv, view, TABLE_BLOB, SLICE_NONE, SLICE_NONE, check_blob, v, v->e);
    }
    kv_view_close(&view);
    if (rc == 0 && v->progress != NULL) {
        (void)v->progress(v->arg, v->out->blobs, v->out->blobs);
    }
    return rc != 0 ? rc : check_counts(v, &kept);
}

int verify_run(struct store *s, bool deep, bool repair,
               bool (*progress)(void *arg, uint64_t done, uint64_t total),
               void (*finding)(void *arg, const char *what), void *arg, struct verify_report *out,
               struct err *e)
{
    struct verify v = {.s = s,
                       .deep = deep,
                       .repair = repair,
                       .progress = progress,
                       .finding = finding,
                       .arg = arg,
                       .out = out,
                       .key = BUF_INIT(KV_KEY_MAX),
                       .row = BUF_INIT(ROW_MAX),
                       .e = e};
    static int (*const passes[])(struct verify *) = {
        check_blobs, verify_files, verify_partials, check_side_rows, check_holders, check_trees,
    };
    int rc = 0;

    *out = (struct verify_report){0};
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(passes); i++) {
        rc = passes[i](&v);
    }
    if (rc == 0 && verify_is_clean(out)) {
        atomic_store(&s->damaged, 0);
    }
    buf_free(&v.key);
    buf_free(&v.row);
    return rc;
}
