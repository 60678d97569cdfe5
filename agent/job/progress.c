#include "agent/job/progress.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/slice.h"

enum { TAIL_BYTES = 4096 };

static int64_t newest_checkpoint(DIR *d)
{
    static const struct slice prefix = {"checkpoint-", 11};
    int64_t newest = -1;

    for (struct dirent *it; (it = readdir(d)) != NULL;) {
        struct slice name = slice_str(it->d_name);
        uint64_t step;

        if (slice_starts(name, prefix) && slice_u64(slice_from(name, prefix.n), &step) &&
            step <= INT64_MAX && (int64_t)step > newest) {
            newest = (int64_t)step;
        }
    }
    return newest;
}

/* {"step":120,... */
static bool step_of_progress_line(struct slice line, int64_t *out)
{
    static const struct slice begins = {"{\"step\":", 8};
    uint64_t step;

    if (!slice_starts(line, begins)) {
        return false;
    }
    line = slice_from(line, begins.n);
    if (!slice_u64(slice_cut(&line, ','), &step) || step > INT64_MAX) {
        return false;
    }
    *out = (int64_t)step;
    return true;
}

/* A line without an end was cut by a kill, and is passed over. */
static void read_metrics(int folder, struct progress *out)
{
    char tail[TAIL_BYTES];
    struct stat st;
    ssize_t n = -1;
    int fd = openat(folder, "metrics.jsonl", O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd == -1) {
        return;
    }
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        n = pread(fd, tail, sizeof tail, st.st_size > TAIL_BYTES ? st.st_size - TAIL_BYTES : 0);
        out->step = n == 0 ? 0 : -1; /* the trainer has made it, and no step is done */
        out->changed_ns = st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
    }
    close(fd);
    for (struct slice rest = slice_of(tail, n > 0 ? (size_t)n : 0); slice_find(rest, '\n') >= 0;) {
        (void)step_of_progress_line(slice_cut(&rest, '\n'), &out->step);
    }
}

void progress_read(const char *folder, struct progress *out)
{
    DIR *d = folder != NULL ? opendir(folder) : NULL;

    *out = PROGRESS_NONE;
    if (d != NULL) {
        out->checkpoint = newest_checkpoint(d);
        read_metrics(dirfd(d), out);
        closedir(d);
    }
}

void progress_since(const char *folder, const struct progress *before, struct progress *out)
{
    progress_read(folder, out);
    if (out->changed_ns == before->changed_ns) {
        out->step = -1;
    }
}
