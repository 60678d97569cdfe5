#include "server/store/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/endian.h"
#include "common/base/log.h"
#include "server/store/kv.h"
#include "server/store/state.h"

enum { SEAL_BUCKETS = 256 };

struct seal {
    struct list node;
    struct digest digest;
    unsigned count;
};

void seals_init(struct seals *x)
{
    lock_init(&x->lock, LOCK_SEAL);
    x->bucket = mem_array(SEAL_BUCKETS, sizeof x->bucket[0]);
    for (size_t i = 0; i < SEAL_BUCKETS; i++) {
        list_init(&x->bucket[i]);
    }
}

void seals_fini(struct seals *x)
{
    for (size_t i = 0; i < SEAL_BUCKETS; i++) {
        struct list *n;
        while ((n = list_pop_front(&x->bucket[i])) != NULL) {
            free(LIST_ITEM(n, struct seal, node));
        }
    }
    free(x->bucket);
    lock_fini(&x->lock);
}

static struct seal *find_running_seal(struct seals *x, const struct digest *d)
{
    LIST_EACH (&x->bucket[d->b[DIGEST_BYTES - 1]], it) {
        struct seal *seal = LIST_ITEM(it, struct seal, node);
        if (digest_eq(&seal->digest, d)) {
            return seal;
        }
    }
    return NULL;
}

void seal_enter(struct store *s, const struct digest *d)
{
    struct seals *x = &s->seals;
    struct seal *seal;

    lock_take(&x->lock);
    seal = find_running_seal(x, d);
    if (seal == NULL) {
        seal = NEW(struct seal);
        seal->digest = *d;
        list_push_back(&x->bucket[d->b[DIGEST_BYTES - 1]], &seal->node);
    }
    seal->count++;
    lock_drop(&x->lock);
}

bool seal_entered(struct store *s, const struct digest *d)
{
    bool yes;

    lock_take(&s->seals.lock);
    yes = find_running_seal(&s->seals, d) != NULL;
    lock_drop(&s->seals.lock);
    return yes;
}

/* A read that fails counts as a row: a file too many is harmless. */
static bool has_row(struct store *s, const struct digest *d)
{
    struct buf row = BUF_INIT(4096);
    int rc = kv_get(s->kv, TABLE_BLOB, slice_of(d->b, DIGEST_BYTES), &row, NULL);

    buf_free(&row);
    return rc != E_NOTFOUND;
}

static int remove_locked(struct store *s, const struct digest *d, enum seal_removal how)
{
    char path[BLOB_PATH];
    const char *hex;
    int fd;

    if (find_running_seal(&s->seals, d) != NULL || has_row(s, d)) {
        return -1;
    }
    blob_path(d, path);
    hex = path + BLOB_PATH - 1 - DIGEST_HEX;
    fd = openat(s->blobs_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (how != SEAL_UNLINK) {
        char name[DIGEST_HEX + sizeof SET_ASIDE];
        snprintf(name, sizeof name, "%s%s", hex, how == SEAL_SET_ASIDE ? SET_ASIDE : "");
        if (renameat(s->blobs_fd, path, s->quarantine_fd, name) == 0) {
            (void)!utimensat(s->quarantine_fd, name, NULL, AT_SYMLINK_NOFOLLOW);
            return fd;
        }
    }
    if (unlinkat(s->blobs_fd, path, 0) == -1 && errno != ENOENT) {
        log_warn("store.unlink", "blob=%s why=\"%s\"", hex, strerror(errno));
    }
    return fd;
}

int seal_remove_file(struct store *s, const struct digest *d, enum seal_removal how)
{
    int fd;

    lock_take(&s->seals.lock);
    fd = remove_locked(s, d, how);
    lock_drop(&s->seals.lock);
    return fd;
}

void seal_leave(struct store *s, const struct digest *d, bool named)
{
    struct seal *seal;
    int fd = -1;

    lock_take(&s->seals.lock);
    seal = find_running_seal(&s->seals, d);
    CHECK(seal != NULL);
    if (--seal->count == 0) {
        list_remove(&seal->node);
        free(seal);
        fd = named ? -1 : remove_locked(s, d, SEAL_UNLINK);
    }
    lock_drop(&s->seals.lock);
    if (fd != -1) {
        close(fd);
    }
}

static int make_folder(struct store *s, const struct digest *d, struct err *e)
{
    char outer[8];
    char inner[8];
    int fd = -1;
    int rc = 0;

    snprintf(outer, sizeof outer, "%02x", d->b[0]);
    snprintf(inner, sizeof inner, "%02x", d->b[1]);
    if (mkdirat(s->blobs_fd, outer, 0750) == -1 && errno != EEXIST) {
        return err_sys(e, "mkdir blobs/%s", outer);
    }
    fd = openat(s->blobs_fd, outer, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd == -1) {
        return err_sys(e, "blobs/%s", outer);
    }
    if (mkdirat(fd, inner, 0750) == -1 && errno != EEXIST) {
        rc = err_sys(e, "mkdir blobs/%s/%s", outer, inner);
    } else if (fsync(fd) == -1 || fsync(s->blobs_fd) == -1) {
        rc = err_sys(e, "fsync blobs/%s", outer);
    }
    close(fd);
    return rc;
}

/* Folders are made when their first blob comes: 65,536 empty ones would take 256 MiB of an ext4. A
 * bit is set only after the folder's name is on disk, so that no other seal trusts a name that a
 * power cut could take. */
int seal_folder(struct store *s, const struct digest *d, struct err *e)
{
    unsigned n = (unsigned)be_get(d->b, 2);
    uint64_t bit = (uint64_t)1 << (n % 64);
    bool known;
    int rc;

    lock_take(&s->seals.lock);
    known = (s->seals.durable[n / 64] & bit) != 0;
    lock_drop(&s->seals.lock);
    if (known) {
        return 0;
    }
    rc = make_folder(s, d, e);
    if (rc == 0) {
        lock_take(&s->seals.lock);
        s->seals.durable[n / 64] |= bit;
        lock_drop(&s->seals.lock);
    }
    return rc;
}
