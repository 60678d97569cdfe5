#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/endian.h"
#include "common/base/log.h"
#include "server/store/parked.h"
#include "server/store/state.h"

struct sweep {
    struct store *s;
    struct batch *batch;
    size_t rows, files;
};

static bool id_of_name(const char *name, uint64_t *id)
{
    uint8_t raw[STAGE_KEY_BYTES];

    if (!slice_hex(slice_str(name), raw, sizeof raw)) {
        return false;
    }
    *id = be_get(raw, sizeof raw);
    return true;
}

static void sweep_name(struct sweep *w, const char *name)
{
    struct buf row = BUF_INIT((size_t)64 << 20);
    char key[STAGE_KEY_BYTES];
    struct stat st;
    uint64_t id = 0;
    int rc = E_NOTFOUND;

    if (id_of_name(name, &id)) {
        if (stage_is_open(w->s, id)) {
            return;
        }
        stage_key(id, key);
        rc = kv_get(w->s->kv, TABLE_PARTIAL, slice_of(key, sizeof key), &row, NULL);
        buf_free(&row);
    }
    if (rc == E_NOTFOUND && unlinkat(w->s->partial_fd, name, 0) == 0) {
        w->files++;
    } else if (fstatat(w->s->partial_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        parked_add(w->s, id, parked_size(&st));
    }
}

static int sweep_row(void *arg, struct slice key, struct slice value)
{
    struct sweep *w = arg;
    char name[STAGE_NAME] = "?";

    (void)value;
    if (key.n == STAGE_KEY_BYTES) {
        stage_name(be_get(key.p, STAGE_KEY_BYTES), name);
    }
    if (faccessat(w->s->partial_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == -1 && errno == ENOENT) {
        batch_del(w->batch, TABLE_PARTIAL, key);
        w->rows++;
    }
    return 0;
}

static int sweep_names(struct sweep *w, struct err *e)
{
    int fd = openat(w->s->partial_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd != -1 ? fdopendir(fd) : NULL;
    struct dirent *ent;

    if (d == NULL) {
        int rc = err_sys(e, "%s/partial", w->s->dir);
        if (fd != -1) {
            close(fd);
        }
        return rc;
    }
    while ((ent = readdir(d)) != NULL) {
        if (ent->d_name[0] != '.') {
            sweep_name(w, ent->d_name);
        }
    }
    closedir(d);
    return 0;
}

int stage_sweep(struct store *s, struct err *e)
{
    struct sweep w = {.s = s, .batch = batch_new()};
    int rc = sweep_names(&w, e);

    rc = rc != 0 ? rc
                 : kv_scan(s->kv, NULL, TABLE_PARTIAL, SLICE_NONE, SLICE_NONE, sweep_row, &w, e);
    if (rc == 0 && w.rows != 0) {
        rc = store_commit(s, &w.batch, COMMIT_LAZY, e);
    }
    batch_free(&w.batch);
    if (w.rows != 0 || w.files != 0) {
        log_info("store.swept", "partial_files=%zu partial_rows=%zu", w.files, w.rows);
    }
    return rc;
}
