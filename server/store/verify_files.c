/* verify_files.c - of a verify, what lies in the folders: each blob's file has its row, each partial one a fill or an upload. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/endian.h"
#include "common/os/clock.h"
#include "server/store/verify_priv.h"

enum { PARTIAL_OLD_S = 3600 };

static void check_name(struct verify *v, const char *folder, const char *name)
{
    struct digest d;
    char path[BLOB_PATH];
    int fd;

    if (!digest_parse(slice_str(name), &d)) {
        verify_found(v, &v->out->bad_rows, "blobs/%s/%.80s: not ours", folder, name);
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
        verify_found(v, &v->out->orphans, "blobs/%s: orphan, removed", path);
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

int verify_files(struct verify *v)
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

/* Young ones belong to a fill whose row is on its way. */
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
        verify_found(v, &v->out->orphans, "partial/%.80s: orphan, removed", name);
        v->out->repaired++;
    }
}

int verify_partials(struct verify *v)
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
