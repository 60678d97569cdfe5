/* disk.c - room where a job's files come and go. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "agent/agent.h"
#include "agent/preflight/look.h"
#include "common/codec/units.h"

/* A folder that is still to be made: where it will be. */
static bool nearest_folder(const char *path, char out[PATH_MAX], struct stat *st)
{
    if (path[0] != '/' || strlen(path) >= PATH_MAX) {
        return false;
    }
    strcpy(out, path);
    while (stat(out, st) == -1) {
        char *slash = strrchr(out, '/');
        if (errno != ENOENT || slash == NULL || slash == out) {
            return false;
        }
        *slash = '\0';
    }
    return true;
}

static void check_disk_path(const struct look *l, const char *what, const char *path,
                            struct finding *f)
{
    char have[UNITS_TEXT], need[UNITS_TEXT];
    struct statvfs fs;
    uint64_t free_bytes, all_bytes, want = 0;
    bool expected = expect_u64(&l->expect, EXPECT_disk_free, &want);

    if (statvfs(path, &fs) == -1) {
        finding_bad(f, "DISK_ERROR", "check the mount and the kernel's log", "%s, %.100s: %s", what,
                    path, strerror(errno));
        return;
    }
    free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    all_bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
    size_format(free_bytes, have);
    if (fs.f_flag & ST_RDONLY) {
        finding_bad(f, "DISK_READONLY",
                    "check the kernel's log: file systems become read-only after errors",
                    "%s, %.100s, is read-only", what, path);
    }
    if (expected && free_bytes < want) {
        size_format(want, need);
        finding_bad(f, "DISK_FREE",
                    "run trainagent gc --keep SIZE to free space in the local cache",
                    "%s, %.100s, has %s free, expected at least %s", what, path, have, need);
    } else if (!expected && free_bytes < all_bytes / 20) {
        finding_warn(f, "DISK_FREE",
                     "run trainagent gc --keep SIZE to free space in the local cache",
                     "%s, %.100s, has %s free, less than 5 %%", what, path, have);
    }
    if (fs.f_files != 0 && fs.f_favail < fs.f_files / 20) {
        finding_warn(
            f, "DISK_INODES",
            "remove small files, or run trainagent gc --keep SIZE to shrink the local cache",
            "%s, %.100s, has %" PRIu64 " inodes left, less than 5 %%", what, path,
            (uint64_t)fs.f_favail);
    }
    finding_ok(f, "%s has %s free", what, have);
}

void check_disk(struct look *l, struct finding *f)
{
    const struct {
        const char *what;
        const char *path;
    } folder[] = {{"the local cache", l->agent->local_cache_dir},
                  {"the jobs' folder", l->agent->state_dir},
                  {"the job's output folder", l->out}};
    dev_t seen[ARRAY_LEN(folder)];
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(folder); i++) {
        char path[PATH_MAX], full[PATH_MAX];
        struct stat st;
        bool known = false;

        if (folder[i].path == NULL) {
            continue;
        }
        if (folder[i].path[0] != '/' && realpath(".", full) != NULL &&
            strlen(full) + strlen(folder[i].path) + 2 < sizeof full) {
            strcat(strcat(full, "/"), folder[i].path);
        } else {
            snprintf(full, sizeof full, "%s", folder[i].path);
        }
        if (!nearest_folder(full, path, &st)) {
            finding_bad(f, "DISK_ERROR", "check the mount and the kernel's log", "%s, %.100s: %s",
                        folder[i].what, folder[i].path, strerror(errno));
            continue;
        }
        for (size_t k = 0; k < n; k++) {
            known = known || seen[k] == st.st_dev; /* each disk is reported once */
        }
        if (!known) {
            seen[n++] = st.st_dev;
            check_disk_path(l, folder[i].what, path, f);
        }
    }
}
